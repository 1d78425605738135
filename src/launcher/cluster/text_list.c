#include "launcher/cluster/cluster.h"

#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void add(struct shoali_text_list *words, char *word)
{
    if (words->count + 2 > words->capacity) {
        const int32_t capacity = words->capacity ? 2 * words->capacity : 16;
        char **value = shoali_arena_alloc(words->arena, (size_t)capacity * sizeof(char *));
        words->failed = words->failed || !value;
        if (words->failed)
            return;
        if (words->count)
            memcpy(value, words->value, (size_t)words->count * sizeof(char *));
        words->value = value;
        words->capacity = capacity;
    }
    words->failed = words->failed || !word;
    words->value[words->count++] = word;
    words->value[words->count] = NULL;
}

void shoali_text_list_add(struct shoali_text_list *words, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    const int length = shoali_vsnprintf(NULL, 0, format, list);
    char *word = length < 0 ? NULL : shoali_arena_alloc(words->arena, (size_t)length + 1);
    if (word)
        shoali_vsnprintf(word, (size_t)length + 1, format, again);
    va_end(again);
    va_end(list);
    add(words, word);
}

void shoali_text_list_add_all(struct shoali_text_list *words, const struct shoali_text_list *more)
{
    words->failed = words->failed || more->failed;
    for (int32_t i = 0; i < more->count; i++)
        add(words, more->value[i]);
}

/* Copies one word to `out`; the character after it, NULL: a quote is not closed. */
static const char *split_word(const char *at, char *out)
{
    char quote = '\0';
    for (; *at && (quote || !shoali_ascii_space(*at)); at++) {
        const bool escapes = *at == '\\' && quote != '\'';
        if (*at == quote) {
            quote = '\0';
        } else if (!quote && (*at == '\'' || *at == '"')) {
            quote = *at;
        } else if (escapes && !at[1]) {
            return NULL;
        } else {
            at += escapes;
            *out++ = *at;
        }
    }
    *out = '\0';
    return quote ? NULL : at;
}

shoal_status shoali_text_list_split(struct shoali_text_list *words, const char *text,
                                    const char *what)
{
    for (const char *at = text + strspn(text, " \t\n"); *at; at += strspn(at, " \t\n")) {
        char *word = shoali_arena_alloc(words->arena, strlen(at) + 1);
        if (!word)
            return SHOAL_ENOMEM;
        at = split_word(at, word);
        if (!at)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s \"%s\": a quote or a backslash at its end is open",
                              what, text);
        add(words, word);
    }
    return words->failed ? SHOAL_ENOMEM : SHOAL_OK;
}

void shoali_text_list_print(const struct shoali_text_list *words, struct shoali_str *out)
{
    for (int32_t i = 0; i < words->count; i++) {
        shoali_str_append(out, "%s", i ? " " : "");
        shoali_shell_quote(out, words->value[i]);
    }
    out->failed = out->failed || words->failed;
}
