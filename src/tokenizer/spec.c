#include "tokenizer/spec.h"

#include "base/plain.h"

#include <jansson.h>
#include <stdarg.h>
#include <string.h>

shoal_status shoali_spec_prefix(const struct shoali_spec *spec, shoal_status status)
{
    if (status >= 0)
        return status;
    const bool both = *spec->file && *spec->place;
    if (*spec->file || *spec->place)
        return shoali_error_prefix(status, "%s%s%s", spec->file, both ? ": " : "", spec->place);
    return status;
}

shoal_status shoali_spec_fail(const struct shoali_spec *spec, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    shoali_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return shoali_spec_prefix(spec, SHOAL_FAIL(SHOAL_ECONFIG, "%s", text));
}

shoal_status shoali_spec_member(const struct shoali_spec *spec, const char *key,
                                struct shoali_spec *member)
{
    *member = *spec;
    if (!json_is_object(spec->json))
        return shoali_spec_fail(spec, "an object is expected here, with the member `%s`", key);
    member->json = json_object_get(spec->json, key);
    if (json_is_null(member->json))
        member->json = NULL;
    member->place =
        shoali_arena_printf(spec->arena, "%s%s%s", spec->place, *spec->place ? "." : "", key);
    return member->place ? SHOAL_OK : SHOAL_ENOMEM;
}

shoal_status shoali_spec_element(const struct shoali_spec *spec, size_t i,
                                 struct shoali_spec *element)
{
    *element = *spec;
    element->json = json_array_get(spec->json, i);
    element->place = shoali_arena_printf(spec->arena, "%s[%zu]", spec->place, i);
    return element->place ? SHOAL_OK : SHOAL_ENOMEM;
}

size_t shoali_spec_count(const struct shoali_spec *spec)
{
    return json_is_object(spec->json) ? json_object_size(spec->json) : json_array_size(spec->json);
}

shoal_status shoali_spec_optional(const struct shoali_spec *spec, const char *key,
                                  const char **text)
{
    struct shoali_spec member;
    shoal_status status = shoali_spec_member(spec, key, &member);
    *text = NULL;
    if (status < 0 || !member.json)
        return status;
    if (!json_is_string(member.json))
        return shoali_spec_fail(&member, "a text is expected here");
    *text = shoali_arena_strdup(spec->arena, json_string_value(member.json));
    return *text ? SHOAL_OK : SHOAL_ENOMEM;
}

shoal_status shoali_spec_text(const struct shoali_spec *spec, const char *key,
                              const char *otherwise, const char **text)
{
    const shoal_status status = shoali_spec_optional(spec, key, text);
    if (status < 0 || *text)
        return status;
    *text = otherwise;
    return otherwise ? SHOAL_OK : shoali_spec_fail(spec, "the text `%s` is missing", key);
}

shoal_status shoali_spec_bool(const struct shoali_spec *spec, const char *key, bool otherwise,
                              bool *value)
{
    struct shoali_spec member;
    const shoal_status status = shoali_spec_member(spec, key, &member);
    *value = otherwise;
    if (status < 0 || !member.json)
        return status;
    if (!json_is_boolean(member.json))
        return shoali_spec_fail(&member, "true or false is expected here");
    *value = json_is_true(member.json);
    return SHOAL_OK;
}

shoal_status shoali_spec_int(const struct shoali_spec *spec, const char *key, int64_t otherwise,
                             int64_t min, int64_t max, int64_t *value)
{
    struct shoali_spec member;
    const shoal_status status = shoali_spec_member(spec, key, &member);
    *value = otherwise;
    if (status < 0)
        return status;
    if (!member.json && otherwise < min)
        return shoali_spec_fail(spec, "the number `%s` is missing", key);
    if (!member.json)
        return SHOAL_OK;
    *value = json_integer_value(member.json);
    if (!json_is_integer(member.json) || *value < min || *value > max)
        return shoali_spec_fail(&member, "an integer from %lld to %lld is expected here",
                                (long long)min, (long long)max);
    return SHOAL_OK;
}

shoal_status shoali_spec_char(const struct shoali_spec *spec, const char *key,
                              const char *otherwise, uint32_t *c)
{
    const char *text;
    const shoal_status status = shoali_spec_text(spec, key, otherwise, &text);
    if (status < 0)
        return status;
    const size_t bytes = strlen(text);
    if (bytes == 0 || (size_t)shoali_utf8_decode(text, bytes, c) != bytes)
        return shoali_spec_fail(spec, "`%s` is `%s`; one character is expected", key, text);
    return SHOAL_OK;
}

shoal_status shoali_spec_choice(const struct shoali_spec *spec, const char *key,
                                const char *const *choices, int otherwise, int *index)
{
    const char *text;
    const shoal_status status =
        shoali_spec_text(spec, key, otherwise < 0 ? NULL : choices[otherwise], &text);
    struct shoali_str list = {0};
    if (status < 0)
        return status;
    for (*index = 0; choices[*index]; (*index)++) {
        if (strcmp(choices[*index], text) == 0) {
            shoali_str_fini(&list);
            return SHOAL_OK;
        }
        shoali_str_append(&list, "%s%s", *index ? ", " : "", choices[*index]);
    }
    const shoal_status failed =
        shoali_spec_fail(spec, "`%s` is `%s`; known are %s", key, text, shoali_str_get(&list));
    shoali_str_fini(&list);
    return failed;
}

shoal_status shoali_spec_list(const struct shoali_spec *spec, const char *key,
                              struct shoali_spec *list)
{
    const shoal_status status = shoali_spec_member(spec, key, list);
    if (status < 0)
        return status;
    if (!list->json)
        return shoali_spec_fail(spec, "the list `%s` is missing", key);
    if (!json_is_array(list->json))
        return shoali_spec_fail(list, "a list is expected here");
    return SHOAL_OK;
}

/* -1: no character of base64. */
static int digit_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool shoali_base64(const char *text, size_t length, char *out, size_t *bytes)
{
    uint32_t bits = 0;
    int have = 0;
    *bytes = 0;
    if (length % 4 != 0)
        return false;
    for (int pad = 0; pad < 2 && length > 0 && text[length - 1] == '='; pad++)
        length--;
    for (size_t i = 0; i < length; i++) {
        const int digit = digit_of(text[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[(*bytes)++] = (char)(bits >> have & 0xff);
        }
    }
    return (bits & ((1u << have) - 1)) == 0;
}

shoal_status shoali_spec_base64(const struct shoali_spec *spec, const char *text, const char **data,
                                size_t *bytes)
{
    const size_t length = strlen(text);
    char *out = shoali_arena_alloc(spec->arena, length / 4 * 3 + 1);
    if (!out)
        return SHOAL_ENOMEM;
    if (!shoali_base64(text, length, out, bytes))
        return shoali_spec_fail(spec, "this is not base64");
    *data = out;
    return SHOAL_OK;
}
