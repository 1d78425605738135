#include "tokenizer/splitters.h"

#include <string.h>

/* Bits of the character at `at`, and its length; 0 at the end. */
static inline uint16_t class_at(const struct shoali_classes *classes, const char *text,
                                size_t bytes, size_t at, size_t *length)
{
    *length = 0;
    if (at >= bytes)
        return 0;
    uint32_t c;
    *length = (size_t)shoali_next(text + at, &c);
    return classes->of[c];
}

/* Behind the characters from `at` on that have one of `bits` (`want` 1) or none (0). */
static inline size_t skip(const struct shoali_classes *classes, const char *text, size_t bytes,
                          size_t at, int bits, bool want)
{
    while (at < bytes) {
        size_t length;
        const uint16_t class = class_at(classes, text, bytes, at, &length);
        if (((class & bits) != 0) != want)
            break;
        at += length;
    }
    return at;
}

/* 's 't 're 've 'm 'll 'd behind the apostrophe at `at`: their length with it, 0 none. */
static size_t contraction(const char *text, size_t bytes, size_t at, bool any_case)
{
    char first = at + 1 < bytes ? text[at + 1] : '\0',
         second = at + 2 < bytes ? text[at + 2] : '\0';
    if (any_case) {
        first = (char)(first >= 'A' && first <= 'Z' ? first | 0x20 : first);
        second = (char)(second >= 'A' && second <= 'Z' ? second | 0x20 : second);
        /* the long s is a small form of S */
        if (at + 2 < bytes && text[at + 1] == '\xc5' && text[at + 2] == '\xbf')
            return 3;
    }
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l'))
        return 3;
    return 0;
}

/* \s+(?!\S)|\s+ : all spaces at the end of the text, else all but the last, else the one. */
static size_t spaces(const struct shoali_classes *classes, const char *text, size_t bytes,
                     size_t at)
{
    size_t end = at, last = at;
    while (end < bytes) {
        size_t length;
        if (!(class_at(classes, text, bytes, end, &length) & SHOALI_SPACE))
            break;
        last = end;
        end += length;
    }
    return end == bytes || last == at ? end : last;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t split_gpt2(const struct shoali_classes *classes, const char *text, size_t bytes,
                         size_t at)
{
    size_t length;
    if (text[at] == '\'') {
        const size_t short_form = contraction(text, bytes, at, false);
        if (short_form)
            return at + short_form;
    }
    const size_t body = at + (text[at] == ' ');
    const uint16_t class = class_at(classes, text, bytes, body, &length);
    if (length == 0 || (class & SHOALI_SPACE))
        return spaces(classes, text, bytes, at);
    if (class & SHOALI_LETTER)
        return skip(classes, text, bytes, body + length, SHOALI_LETTER, true);
    if (class & SHOALI_NUMBER)
        return skip(classes, text, bytes, body + length, SHOALI_NUMBER, true);
    return skip(classes, text, bytes, body + length, SHOALI_SPACE | SHOALI_LETTER | SHOALI_NUMBER,
                false);
}

/* The second half of the newer patterns:
 *  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t split_rest(const struct shoali_classes *classes, const char *text, size_t bytes,
                         size_t at)
{
    size_t length;
    const size_t body = at + (text[at] == ' ');
    const uint16_t class = class_at(classes, text, bytes, body, &length);
    if (length > 0 && !(class & (SHOALI_SPACE | SHOALI_LETTER | SHOALI_NUMBER))) {
        const size_t end =
            skip(classes, text, bytes, body, SHOALI_SPACE | SHOALI_LETTER | SHOALI_NUMBER, false);
        return skip(classes, text, bytes, end, SHOALI_LINE, true);
    }
    /* the last line end among the spaces from here on */
    size_t line_end = 0;
    for (size_t i = at; i < bytes; i += length) {
        const uint16_t space = class_at(classes, text, bytes, i, &length);
        if (!(space & SHOALI_SPACE))
            break;
        if (space & SHOALI_LINE)
            line_end = i + 1;
    }
    return line_end ? line_end : spaces(classes, text, bytes, at);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|... */
static inline size_t split_newer(const struct shoali_classes *classes, const char *text,
                                 size_t bytes, size_t at, int digits)
{
    size_t length, next_length;
    if (text[at] == '\'') {
        const size_t short_form = contraction(text, bytes, at, true);
        if (short_form)
            return at + short_form;
    }
    const uint16_t class = class_at(classes, text, bytes, at, &length);
    if (class & SHOALI_LETTER)
        return skip(classes, text, bytes, at + length, SHOALI_LETTER, true);
    if (class & SHOALI_NUMBER) {
        for (int i = 1; i < digits; i++) {
            at += length;
            if (!(class_at(classes, text, bytes, at, &length) & SHOALI_NUMBER))
                return at;
        }
        return at + length;
    }
    if (!(class & SHOALI_LINE) &&
        (class_at(classes, text, bytes, at + length, &next_length) & SHOALI_LETTER))
        return skip(classes, text, bytes, at + length, SHOALI_LETTER, true);
    return split_rest(classes, text, bytes, at);
}

static size_t split_llama3(const struct shoali_classes *classes, const char *text, size_t bytes,
                           size_t at)
{
    return split_newer(classes, text, bytes, at, 3);
}

static size_t split_qwen2(const struct shoali_classes *classes, const char *text, size_t bytes,
                          size_t at)
{
    return split_newer(classes, text, bytes, at, 1);
}

shoali_split_fn shoali_splitter_of(const char *pattern)
{
    static const struct {
        const char *pattern;
        shoali_split_fn split;
    } rows[] = {
        {SHOALI_PATTERN_GPT2, split_gpt2},
        {SHOALI_PATTERN_LLAMA3, split_llama3},
        {SHOALI_PATTERN_QWEN2, split_qwen2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].pattern, pattern) == 0)
            return rows[i].split;
    return NULL;
}
