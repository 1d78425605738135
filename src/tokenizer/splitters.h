/* splitters - the patterns of well-known models by hand, many times as fast as a regular
 * expression.
 *
 * A function says where the match that begins at `at` ends: these patterns match at every place, so
 * that words follow each other without gaps. Classes of characters come from one table. The pattern
 * in words stands beside each function; tests compare with regex.h on random text. */
#ifndef SHOALI_TOKENIZER_SPLITTERS_H
#define SHOALI_TOKENIZER_SPLITTERS_H

#include "tokenizer/unicode.h"

/* The text is UTF-8, at < bytes. Returns the end, > at. */
typedef size_t (*shoali_split_fn)(const struct shoali_classes *classes, const char *text,
                                  size_t bytes, size_t at);

#define SHOALI_PATTERN_GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SHOALI_PATTERN_LLAMA3                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+" \
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHOALI_PATTERN_QWEN2                                                                  \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+" \
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* The function for a pattern; NULL: there is none. */
shoali_split_fn shoali_splitter_of(const char *pattern);

#endif
