/* Values of single rows: conversion from JSON or text, range, default, state. */
#include "base/config_internal.h"

#include "base/json.h"
#include "base/plain.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GOT_BYTES = 80 };

void shoali_config_append_number(double value, struct shoali_str *out)
{
    char text[40];
    double back;
    for (int digits = 15; digits <= 17; digits++) {
        shoali_snprintf(text, sizeof(text), "%.*g", digits, value);
        if (shoali_parse_f64(text, &back) && back == value)
            break;
    }
    shoali_str_append(out, "%s", text);
}

void shoali_config_append_range(const struct shoali_option *row, struct shoali_str *out)
{
    bool low = row->min > -(double)INFINITY, high = row->max < (double)INFINITY;
    if (row->min == 0.0 && row->max == 0.0)
        return;
    if (low && high) {
        shoali_str_append(out, "from ");
        shoali_config_append_number(row->min, out);
        shoali_str_append(out, " to ");
        shoali_config_append_number(row->max, out);
    } else if (low || high) {
        shoali_str_append(out, low ? "at least " : "at most ");
        shoali_config_append_number(low ? row->min : row->max, out);
    }
}

void shoali_config_append_choices(const struct shoali_option *row, char quote,
                                  struct shoali_str *out)
{
    for (int32_t i = 0; row->choices[i]; i++) {
        const char *between = i == 0 ? "" : row->choices[i + 1] ? ", " : " or ";
        shoali_str_append(out, "%s%c%s%c", between, quote, row->choices[i], quote);
    }
}

/* The input as the user wrote it, cut to fit a message. */
static const char *got(const struct shoali_config_input *input, char buffer[GOT_BYTES])
{
    if (!input->json) {
        snprintf(buffer, GOT_BYTES, "\"%.70s\"", input->text ? input->text : "");
        return buffer;
    }
    size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15);
    char *text = NULL;
    if (shoali_json_write(input->json, flags, "a value", &text) < 0)
        shoali_error_clear(); /* the message is made all the same */
    snprintf(buffer, GOT_BYTES, "%.70s%s", text ? text : "?",
             text && strlen(text) > 70 ? "..." : "");
    free(text);
    return buffer;
}

static shoal_status check_range(const struct shoali_option *row, double value)
{
    if (row->min == 0.0 && row->max == 0.0)
        return SHOAL_OK;
    if (value >= row->min && value <= row->max)
        return SHOAL_OK;
    struct shoali_str range = {0};
    shoali_config_append_range(row, &range);
    shoali_str_append(&range, "%s%s, got ", row->unit ? " " : "", row->unit ? row->unit : "");
    shoali_config_append_number(value, &range);
    shoal_status status = SHOAL_FAIL(SHOAL_ECONFIG, "must be %s", shoali_str_get(&range));
    shoali_str_fini(&range);
    return status;
}

/* A number of elements may have a fraction, which is dropped: people write 0.9 * hidden^2. */
static bool input_int(const struct shoali_option *row, const struct shoali_config_input *input,
                      int64_t *value)
{
    const char *text = input->text ? input->text : json_string_value(input->json);
    if (text)
        return shoali_parse_i64(text, value);
    if (json_is_integer(input->json)) {
        *value = json_integer_value(input->json);
        return true;
    }
    double real = json_is_real(input->json) ? json_real_value(input->json) : 0.5;
    if (row->unit && strcmp(row->unit, "elements") == 0 && json_is_real(input->json))
        real = trunc(real);
    if (real != floor(real) || !(fabs(real) < 0x1p63))
        return false;
    *value = (int64_t)real;
    return true;
}

static bool input_float(const struct shoali_config_input *input, double *value)
{
    const char *text = input->text ? input->text : json_string_value(input->json);
    if (text)
        return shoali_parse_f64(text, value);
    *value = json_number_value(input->json);
    return json_is_number(input->json);
}

/* DeepSpeed takes 0, 1 and words as well. */
static bool json_bool(const json_t *json, bool *value)
{
    const char *text = json_string_value(json);
    const json_int_t number = json_is_integer(json) ? json_integer_value(json) : -1;
    const bool on =
        json_is_true(json) || number == 1 || (text && shoali_strcasecmp(text, "true") == 0);
    *value = on;
    return on || json_is_false(json) || number == 0 ||
           (text && shoali_strcasecmp(text, "false") == 0);
}

static shoal_status store_bool(const struct shoali_config_input *input, bool *member)
{
    char buffer[GOT_BYTES];
    bool value = false;
    if (input->text ? shoali_parse_bool(input->text, &value) : json_bool(input->json, &value)) {
        *member = value;
        return SHOAL_OK;
    }
    return SHOAL_FAIL(SHOAL_ECONFIG, "must be true or false, got %s", got(input, buffer));
}

static shoal_status store_int(const struct shoali_option *row,
                              const struct shoali_config_input *input, int64_t *member)
{
    char buffer[GOT_BYTES];
    int64_t value;
    if (!input_int(row, input, &value))
        return SHOAL_FAIL(SHOAL_ECONFIG, "must be an integer, got %s", got(input, buffer));
    shoal_status status;
    SHOAL_TRY(status, check_range(row, (double)value), done);
    *member = value;
done:
    return status;
}

static shoal_status store_float(const struct shoali_option *row,
                                const struct shoali_config_input *input, double *member)
{
    char buffer[GOT_BYTES];
    double value;
    if (!input_float(input, &value))
        return SHOAL_FAIL(SHOAL_ECONFIG, "must be a number, got %s", got(input, buffer));
    shoal_status status;
    SHOAL_TRY(status, check_range(row, value), done);
    *member = value;
done:
    return status;
}

static shoal_status store_string(const struct shoali_config_input *input, const char **member,
                                 struct shoali_arena *arena)
{
    char buffer[GOT_BYTES];
    const char *text = input->text ? input->text : json_string_value(input->json);
    if (!text)
        return SHOAL_FAIL(SHOAL_ECONFIG, "must be a string, got %s", got(input, buffer));
    *member = shoali_arena_strdup(arena, text);
    return *member ? SHOAL_OK : SHOAL_ENOMEM;
}

static shoal_status store_enum(const struct shoali_option *row,
                               const struct shoali_config_input *input, int32_t *member)
{
    char buffer[GOT_BYTES];
    const char *text = input->text ? input->text : json_string_value(input->json);
    for (int32_t i = 0; text && row->choices[i]; i++) {
        if (shoali_strcasecmp(text, row->choices[i]) == 0) {
            *member = i;
            return SHOAL_OK;
        }
    }
    struct shoali_str choices = {0};
    shoali_config_append_choices(row, '"', &choices);
    shoal_status status = SHOAL_FAIL(SHOAL_ECONFIG, "must be %s, got %s", shoali_str_get(&choices),
                                     got(input, buffer));
    shoali_str_fini(&choices);
    return status;
}

/* Cuts a text at `separator` (' ': any white space) into words without surrounding space. */
static shoal_status split(const char *text, char separator, struct shoali_strings *words,
                          struct shoali_arena *arena)
{
    size_t length = strlen(text);
    char *copy = shoali_arena_strdup(arena, text);
    words->value = shoali_arena_alloc(arena, (length / 2 + 2) * sizeof(char *));
    words->count = 0;
    if (!copy || !words->value)
        return SHOAL_ENOMEM;
    for (char *at = copy; *(at += strspn(at, " \t\n"));) {
        size_t word_length = separator == ' ' ? strcspn(at, " \t\n") : strcspn(at, ",");
        char *end = at + word_length;
        bool more = *end != '\0';
        *end = '\0';
        char *tail = end;
        while (tail > at && shoali_ascii_space(tail[-1]))
            *--tail = '\0';
        words->value[words->count++] = at;
        at = more ? end + 1 : end;
    }
    return SHOAL_OK;
}

/* Turns any form of list into JSON elements or words; *count is their number. */
static shoal_status open_list(const struct shoali_option *row, struct shoali_config_input *input,
                              int32_t *count, struct shoali_arena *arena)
{
    char buffer[GOT_BYTES];
    if (input->json && !json_is_array(input->json)) {
        const char *of = row->type == SHOALI_FLOATS ? "numbers"
                         : row->type == SHOALI_INTS ? "integers"
                                                    : "strings";
        return SHOAL_FAIL(SHOAL_ECONFIG, "must be a list of %s, got %s", of, got(input, buffer));
    }
    shoal_status status = SHOAL_OK;
    struct shoali_strings words;
    if (input->text) {
        char separator = row->type == SHOALI_STRINGS ? ' ' : ',';
        SHOAL_TRY(status, split(input->text, separator, &words, arena), done);
        *input = (struct shoali_config_input){.words = words.value, .word_count = words.count};
    }
    *count = input->json ? (int32_t)json_array_size(input->json) : input->word_count;
done:
    return status;
}

static struct shoali_config_input element(const struct shoali_config_input *list, int32_t i)
{
    if (list->json)
        return (struct shoali_config_input){.json = json_array_get(list->json, (size_t)i)};
    return (struct shoali_config_input){.text = list->words[i]};
}

static shoal_status store_list(const struct shoali_option *row,
                               const struct shoali_config_input *input, void *member,
                               struct shoali_arena *arena)
{
    shoal_status status;
    struct shoali_config_input list = *input;
    int32_t count = 0;
    SHOAL_TRY(status, open_list(row, &list, &count, arena), done);
    /* All three kinds of element have eight bytes or less. */
    void *values = shoali_arena_alloc(arena, (size_t)count * sizeof(int64_t));
    if (!values) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t i = 0; i < count; i++) {
        struct shoali_config_input item = element(&list, i);
        if (row->type == SHOALI_FLOATS)
            status = store_float(row, &item, (double *)values + i);
        else if (row->type == SHOALI_INTS)
            status = store_int(row, &item, (int64_t *)values + i);
        else
            status = store_string(&item, (const char **)values + i, arena);
        if (status < 0) {
            shoali_error_prefix(status, "element %d", (int)i + 1);
            goto done;
        }
    }
    if (row->type == SHOALI_FLOATS)
        *(struct shoali_floats *)member = (struct shoali_floats){values, count};
    else if (row->type == SHOALI_INTS)
        *(struct shoali_ints *)member = (struct shoali_ints){values, count};
    else
        *(struct shoali_strings *)member = (struct shoali_strings){values, count};
done:
    return status;
}

static shoal_status store_json(const struct shoali_config_input *input, json_t **member)
{
    char buffer[GOT_BYTES];
    if (!json_is_object(input->json) && !json_is_array(input->json))
        return SHOAL_FAIL(SHOAL_ECONFIG, "must be a section { ... } or a list, got %s",
                          got(input, buffer));
    *member = input->json;
    return SHOAL_OK;
}

shoal_status shoali_config_store(const struct shoali_option *row,
                                 const struct shoali_config_input *input, void *member,
                                 struct shoali_arena *arena)
{
    switch (row->type) {
    case SHOALI_BOOL:
        return store_bool(input, member);
    case SHOALI_INT:
        return store_int(row, input, member);
    case SHOALI_FLOAT:
        return store_float(row, input, member);
    case SHOALI_STRING:
        return store_string(input, member, arena);
    case SHOALI_ENUM:
        return store_enum(row, input, member);
    case SHOALI_FLOATS:
    case SHOALI_INTS:
    case SHOALI_STRINGS:
        return store_list(row, input, member, arena);
    case SHOALI_JSON:
        return store_json(input, member);
    case SHOALI_SECTION:
        break;
    }
    return SHOAL_FAIL(SHOAL_EINTERNAL, "row `%s` cannot take a plain value", row->key);
}

shoal_status shoali_config_store_default(const struct shoali_option *row, void *member,
                                         struct shoali_arena *arena)
{
    struct shoali_config_input text = {.text = row->default_text ? row->default_text : ""};
    /* A default may lie outside the range that users can give, e.g. -1 for "not set". */
    struct shoali_option unbounded = *row;
    unbounded.min = unbounded.max = 0.0;
    switch (row->type) {
    case SHOALI_BOOL:
        *(bool *)member = row->default_number != 0.0;
        return SHOAL_OK;
    case SHOALI_INT:
        *(int64_t *)member = (int64_t)row->default_number;
        return SHOAL_OK;
    case SHOALI_FLOAT:
        *(double *)member = row->default_number;
        return SHOAL_OK;
    case SHOALI_ENUM:
        *(int32_t *)member = (int32_t)row->default_number;
        return SHOAL_OK;
    case SHOALI_STRING:
        *(const char **)member = NULL;
        return row->default_text ? store_string(&text, member, arena) : SHOAL_OK;
    case SHOALI_FLOATS:
    case SHOALI_INTS:
    case SHOALI_STRINGS:
        return store_list(&unbounded, &text, member, arena);
    case SHOALI_JSON:
        *(json_t **)member = NULL;
        return SHOAL_OK;
    case SHOALI_SECTION:
        break;
    }
    return SHOAL_FAIL(SHOAL_EINTERNAL, "row `%s` has no plain default", row->key);
}
