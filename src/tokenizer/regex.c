#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_FIRST = 1 << 15, STACK_MAX = 1 << 23 };

struct shoali_regex {
    pcre2_code *code;
    char *pattern;
    bool jit;
};
struct shoali_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

#define SPACES                                                                                  \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
#define WORDS                                                                   \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}" \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

/* What a letter behind a backslash means, as the inside of a class; NULL: as PCRE2 has it. */
static const char *class_of(char letter)
{
    switch (letter) {
    case 's':
    case 'S':
        return SPACES;
    case 'w':
    case 'W':
        return WORDS;
    case 'd':
    case 'D':
        return "\\p{Nd}";
    default:
        return NULL;
    }
}

/* The pattern in PCRE2's words. A complement inside a class stays as it is: a set of sets is not
 * expressible there. */
static void translate(const char *pattern, struct shoali_str *out)
{
    bool in_class = false;
    for (const char *at = pattern; *at; at++) {
        if (*at == '\\' && at[1]) {
            const char *inside = class_of(at[1]);
            const bool complement = at[1] >= 'A' && at[1] <= 'Z';
            if (inside && !in_class)
                shoali_str_append(out, complement ? "[^%s]" : "[%s]", inside);
            else if (inside && !complement)
                shoali_str_append(out, "%s", inside);
            else
                shoali_str_append_bytes(out, at, 2);
            at++;
            continue;
        }
        if (in_class && *at == ']')
            in_class = false;
        else if (!in_class && *at == '[') {
            in_class = true;
            if (at[1] == '^')
                shoali_str_append_bytes(out, at++, 1);
            if (at[1] == ']') /* first in a class it stands for itself */
                shoali_str_append_bytes(out, at++, 1);
        }
        shoali_str_append_bytes(out, at, 1);
    }
}

static shoal_status compile(struct shoali_regex *regex, const char *text, uint32_t options)
{
    int error;
    PCRE2_SIZE offset;
    PCRE2_UCHAR message[160];
    regex->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options | PCRE2_UTF,
                                &error, &offset, NULL);
    if (!regex->code) {
        pcre2_get_error_message(error, message, sizeof message);
        return SHOAL_FAIL(SHOAL_ECONFIG, "the pattern `%s` cannot be read: %s", regex->pattern,
                          (const char *)message);
    }
    /* Without a JIT (not built in, or no executable memory) the interpreter gives the same. */
    regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    return SHOAL_OK;
}

shoal_status shoali_regex_create(const char *pattern, bool literal, struct shoali_regex **regex)
{
    shoal_status status;
    struct shoali_str text = {0};
    struct shoali_regex *made = shoali_calloc(1, sizeof *made, "a pattern");
    *regex = NULL;
    if (!made)
        return SHOAL_ENOMEM;
    made->pattern = strdup(pattern);
    if (literal)
        shoali_str_append(&text, "%s", pattern);
    else
        translate(pattern, &text);
    if (text.failed || !made->pattern) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a pattern");
        goto done;
    }
    SHOAL_TRY(status,
              compile(made, shoali_str_get(&text),
                      literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C),
              done);
    *regex = made;
    made = NULL;
done:
    shoali_str_fini(&text);
    shoali_regex_destroy(made);
    return status;
}

void shoali_regex_destroy(struct shoali_regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free(regex->pattern);
    shoali_free(regex);
}

const char *shoali_regex_pattern(const struct shoali_regex *regex)
{
    return regex->pattern;
}

shoal_status shoali_matcher_create(struct shoali_matcher **matcher)
{
    struct shoali_matcher *made = shoali_calloc(1, sizeof *made, "a matcher");
    *matcher = made;
    if (!made)
        return SHOAL_ENOMEM;
    made->data = pcre2_match_data_create(1, NULL);
    made->context = pcre2_match_context_create(NULL);
    made->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MAX, NULL);
    if (!made->data || !made->context) {
        shoali_matcher_destroy(made);
        *matcher = NULL;
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate what matching a pattern needs");
    }
    if (made->stack) /* none where PCRE2 has no JIT */
        pcre2_jit_stack_assign(made->context, NULL, made->stack);
    return SHOAL_OK;
}

void shoali_matcher_destroy(struct shoali_matcher *matcher)
{
    if (!matcher)
        return;
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    shoali_free(matcher);
}

/* The first match at or behind `at`. SHOAL_END: there is none. */
static shoal_status match(const struct shoali_regex *regex, struct shoali_matcher *matcher,
                          const char *text, size_t bytes, size_t at, size_t *begin, size_t *end)
{
    const PCRE2_SPTR subject = (PCRE2_SPTR)(text ? text : "");
    const int found = regex->jit
                          ? pcre2_jit_match(regex->code, subject, bytes, at, PCRE2_NO_UTF_CHECK,
                                            matcher->data, matcher->context)
                          : pcre2_match(regex->code, subject, bytes, at, PCRE2_NO_UTF_CHECK,
                                        matcher->data, matcher->context);
    if (found == PCRE2_ERROR_NOMATCH)
        return SHOAL_END;
    if (found < 0) {
        PCRE2_UCHAR message[160];
        pcre2_get_error_message(found, message, sizeof message);
        return SHOAL_FAIL(SHOAL_EINVAL, "the pattern `%s` cannot be applied to the text: %s",
                          regex->pattern, (const char *)message);
    }
    const PCRE2_SIZE *ovector = pcre2_get_ovector_pointer(matcher->data);
    *begin = ovector[0];
    *end = ovector[1];
    /* \K in a lookahead can put the begin behind the end. */
    if (*begin > *end)
        *begin = *end;
    return SHOAL_OK;
}

shoal_status shoali_regex_next(const struct shoali_regex *regex, struct shoali_matcher *matcher,
                               const char *text, size_t bytes, struct shoali_matches *matches,
                               size_t *begin, size_t *end)
{
    shoal_status status = SHOAL_END;
    while (matches->at <= bytes) {
        status = match(regex, matcher, text, bytes, matches->at, begin, end);
        if (status != SHOAL_OK)
            return status;
        const bool empty = *begin == *end;
        const bool counts = !empty || !matches->any || *begin != matches->last_end;
        matches->at = *end;
        if (empty && *end < bytes) /* on by a character */
            while (++matches->at < bytes && ((unsigned char)text[matches->at] & 0xc0) == 0x80)
                continue;
        else if (empty)
            matches->at = bytes + 1;
        if (counts) {
            matches->any = true;
            matches->last_end = *end;
            return SHOAL_OK;
        }
        status = SHOAL_END;
    }
    return status;
}
