/* Numbers from text: exact, whole, and the same in every locale. */
#include "base/plain.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXPONENT_MAX = 400 };

/* A decimal text as digits * 10^exponent, sign apart. */
struct decimal {
    uint64_t digits;
    int exponent;
};

/* Adds the digits at *cursor; '_' may stand between two digits. Trailing zeros are counted in the
 * exponent so that "1000000000000000000000e-3" does not overflow. */
static bool take_digits(const char **cursor, struct decimal *number, int *digit_count, int *zeros,
                        int *fraction)
{
    const char *at = *cursor;
    for (; shoali_ascii_digit(*at) || *at == '_'; at++) {
        if (*at == '_') {
            bool between = at > *cursor && at[-1] != '_' && shoali_ascii_digit(at[1]);
            if (!between)
                return false;
            continue;
        }
        ++*digit_count;
        ++*zeros;
        if (fraction)
            ++*fraction;
        if (*at == '0')
            continue;
        for (; *zeros > 0; --*zeros)
            if (__builtin_mul_overflow(number->digits, 10, &number->digits))
                return false;
        if (__builtin_add_overflow(number->digits, (uint64_t)(*at - '0'), &number->digits))
            return false;
    }
    *cursor = at;
    return true;
}

static bool take_exponent(const char **cursor, int *exponent)
{
    const char *at = *cursor + 1;
    bool negative = *at == '-';
    if (*at == '-' || *at == '+')
        at++;
    if (!shoali_ascii_digit(*at))
        return false;
    int value = 0;
    for (; shoali_ascii_digit(*at); at++)
        if (value <= EXPONENT_MAX)
            value = 10 * value + (*at - '0');
    *exponent += negative ? -value : value;
    *cursor = at;
    return true;
}

static bool parse_decimal(const char *text, struct decimal *number)
{
    int digit_count = 0, zeros = 0, fraction = 0;
    *number = (struct decimal){0};
    if (!take_digits(&text, number, &digit_count, &zeros, NULL))
        return false;
    if (*text == '.') {
        text++;
        if (!take_digits(&text, number, &digit_count, &zeros, &fraction))
            return false;
    }
    if (digit_count == 0)
        return false;
    number->exponent = zeros - fraction;
    if ((*text == 'e' || *text == 'E') && !take_exponent(&text, &number->exponent))
        return false;
    return *text == '\0';
}

bool shoali_parse_i64(const char *text, int64_t *value)
{
    bool negative = *text == '-';
    if (*text == '-' || *text == '+')
        text++;
    struct decimal number;
    if (!parse_decimal(text, &number))
        return false;
    /* The last digit is not zero, so a negative exponent leaves a fraction. */
    if (number.digits != 0 && number.exponent < 0)
        return false;
    for (; number.digits != 0 && number.exponent > 0; number.exponent--)
        if (__builtin_mul_overflow(number.digits, 10, &number.digits))
            return false;
    if (number.digits > (uint64_t)INT64_MAX + negative)
        return false;
    *value = (int64_t)(negative ? 0 - number.digits : number.digits);
    return true;
}

bool shoali_parse_f64(const char *text, double *value)
{
    /* strtod would also take spaces, hexadecimal, "inf" and "nan". */
    if (text[strspn(text, "+-.0123456789eE")] != '\0')
        return false;
    char *end;
    double number = shoali_strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(number))
        return false;
    *value = number;
    return true;
}

bool shoali_parse_bytes(const char *text, int64_t *bytes)
{
    static const char prefixes[] = "kmgtp";
    char number[64];
    double value;
    const size_t length = strspn(text, "0123456789.eE+");
    const char *unit = text + length + strspn(text + length, " ");
    const char *prefix = *unit ? strchr(prefixes, shoali_ascii_lower(*unit)) : NULL;
    if (length == 0 || length >= sizeof number)
        return false;
    memcpy(number, text, length);
    number[length] = '\0';
    unit += prefix ? 1 : 0;
    const double base = prefix && shoali_strcasecmp(unit, "b") == 0 ? 1000 : 1024;
    const bool known =
        !*unit || shoali_strcasecmp(unit, "b") == 0 ||
        (prefix && (shoali_strcasecmp(unit, "i") == 0 || shoali_strcasecmp(unit, "ib") == 0));
    if (!known || !shoali_parse_f64(number, &value))
        return false;
    for (const char *at = prefixes; prefix && at <= prefix; at++)
        value *= base;
    if (!(value >= 1 && value <= 1e18))
        return false;
    *bytes = (int64_t)value;
    return true;
}

bool shoali_parse_bool(const char *text, bool *value)
{
    static const char *const words[] = {"true", "1", "yes", "on", "false", "0", "no", "off"};
    for (int i = 0; i < 8; i++) {
        if (shoali_strcasecmp(text, words[i]) == 0) {
            *value = i < 4;
            return true;
        }
    }
    return false;
}
