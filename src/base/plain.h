/* plain - numbers and words in the C locale, whatever locale the program around us has set.
 *
 * A program that calls setlocale(LC_ALL, "") in a country with a decimal comma changes what printf
 * and strtod do in every library of its process, and with a Turkish locale what strcasecmp says of
 * "I" and "i". Files, ids and hashes must not depend on it. The library therefore prints and reads
 * fractions, and compares words, by these functions alone; scripts/check-layers finds others. All
 * texts that are formatted by shoali_str_append, shoali_arena_printf, SHOAL_FAIL and the log go
 * through shoali_vsnprintf.
 *
 * The program `shoal` itself stays in the C locale: it never calls setlocale.
 */
#ifndef SHOALI_PLAIN_H
#define SHOALI_PLAIN_H

#include "shoal/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* As vsnprintf and snprintf. */
int shoali_vsnprintf(char *text, size_t bytes, const char *format, va_list args);
int shoali_snprintf(char *text, size_t bytes, const char *format, ...) SHOAL_PRINTF(3, 4);
/* As strtod; end may be NULL. */
double shoali_strtod(const char *text, char **end);

/* ASCII alone: bytes above 127 are no letters and no spaces. */
static inline bool shoali_ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}
static inline bool shoali_ascii_digit(char c)
{
    return c >= '0' && c <= '9';
}
static inline char shoali_ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}
static inline bool shoali_ascii_letter(char c)
{
    return shoali_ascii_lower(c) >= 'a' && shoali_ascii_lower(c) <= 'z';
}
/* As strcasecmp and strncasecmp. */
int shoali_strcasecmp(const char *a, const char *b);
int shoali_strncasecmp(const char *a, const char *b, size_t bytes);

#endif
