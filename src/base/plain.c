#include "base/plain.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* A locale of its own for each call: the C locale is a constant of the C library, so that nothing
 * is allocated and no global of ours is needed. */
static locale_t plain_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

int shoali_vsnprintf(char *text, size_t bytes, const char *format, va_list args)
{
    const locale_t plain = plain_locale();
    const locale_t before = plain ? uselocale(plain) : (locale_t)0;
    const int length = vsnprintf(text, bytes, format, args);
    if (before)
        uselocale(before);
    if (plain)
        freelocale(plain);
    return length;
}

int shoali_snprintf(char *text, size_t bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = shoali_vsnprintf(text, bytes, format, args);
    va_end(args);
    return length;
}

double shoali_strtod(const char *text, char **end)
{
    const locale_t plain = plain_locale();
    const double value = plain ? strtod_l(text, end, plain) : strtod(text, end);
    if (plain)
        freelocale(plain);
    return value;
}

int shoali_strncasecmp(const char *a, const char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char x = (unsigned char)shoali_ascii_lower(a[i]);
        const unsigned char y = (unsigned char)shoali_ascii_lower(b[i]);
        if (x != y || x == 0)
            return x - y;
    }
    return 0;
}

int shoali_strcasecmp(const char *a, const char *b)
{
    return shoali_strncasecmp(a, b, (size_t)-1);
}
