#include "base/str.h"

#include "base/fault.h"
#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64, WORD_MAX = 128 };

/* Makes room for `more` characters and the NUL; false (and `failed`) when memory is exhausted. */
static bool reserve(struct shoali_str *str, size_t more)
{
    if (str->failed)
        return false;
    size_t needed;
    if (__builtin_add_overflow(str->length + 1, more, &needed)) {
        str->failed = true;
        return false;
    }
    if (needed <= str->capacity)
        return true;
    size_t capacity = str->capacity ? str->capacity : FIRST_CAPACITY;
    while (capacity < needed)
        capacity = capacity > SIZE_MAX / 2 ? needed : 2 * capacity;
    char *text = shoali_fault("alloc") ? NULL : realloc(str->text, capacity);
    if (!text) {
        str->failed = true;
        return false;
    }
    str->text = text;
    str->capacity = capacity;
    return true;
}

void shoali_str_append(struct shoali_str *str, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = shoali_vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) {
        str->failed = true;
    } else if (reserve(str, (size_t)length)) {
        shoali_vsnprintf(str->text + str->length, (size_t)length + 1, format, again);
        str->length += (size_t)length;
    }
    va_end(again);
}

void shoali_str_append_bytes(struct shoali_str *str, const char *bytes, size_t count)
{
    if (!reserve(str, count))
        return;
    if (count > 0)
        memcpy(str->text + str->length, bytes, count);
    str->length += count;
    str->text[str->length] = '\0';
}

const char *shoali_str_get(const struct shoali_str *str)
{
    return str->text ? str->text : "";
}

void shoali_str_fini(struct shoali_str *str)
{
    free(str->text);
    *str = (struct shoali_str){0};
}

static int fold(char c)
{
    return c == '-' ? '_' : shoali_ascii_lower(c);
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* Edits (insert, delete, replace, swap neighbours) between two words shorter than WORD_MAX. */
static int edit_distance(const char *a, const char *b)
{
    int rows[3][WORD_MAX + 1];
    int length_b = (int)strlen(b);
    int *before = rows[0], *above = rows[1], *row = rows[2];
    for (int j = 0; j <= length_b; j++)
        above[j] = before[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        row[0] = i;
        for (int j = 1; j <= length_b; j++) {
            int differs = fold(a[i - 1]) != fold(b[j - 1]);
            int best = min_int(above[j] + 1, row[j - 1] + 1);
            best = min_int(best, above[j - 1] + differs);
            bool swapped = i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                           fold(a[i - 2]) == fold(b[j - 1]);
            row[j] = swapped ? min_int(best, before[j - 2] + 1) : best;
        }
        int *free_row = before;
        before = above;
        above = row;
        row = free_row;
    }
    return above[length_b];
}

const char *shoali_nearest(const char *word, const char *const *candidates, size_t count)
{
    size_t length = strlen(word);
    if (length >= WORD_MAX)
        return NULL;
    const char *nearest = NULL;
    int least = (int)(length / 3 > 2 ? length / 3 : 2) + 1;
    for (size_t i = 0; i < count; i++) {
        size_t candidate_length = strlen(candidates[i]);
        if (candidate_length >= WORD_MAX)
            continue;
        int distance = edit_distance(word, candidates[i]);
        /* Short words of which more than half differs do not resemble each other. */
        size_t longer = candidate_length > length ? candidate_length : length;
        if (distance < least && 2 * (size_t)distance <= longer) {
            least = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

const char *shoali_format_bytes(double bytes, char *buffer)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = bytes;
    int unit = 0;
    /* 1023.95 would print as 1024.0. */
    while ((value >= 1023.95 || value <= -1023.95) && unit < 6) {
        value /= 1024;
        unit++;
    }
    if (unit == 0)
        shoali_snprintf(buffer, 32, "%.0f %s", value, units[unit]);
    else
        shoali_snprintf(buffer, 32, "%.1f %s", value, units[unit]);
    return buffer;
}

void shoali_shell_quote(struct shoali_str *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "@%+=:,./_-";
    if (*word && strspn(word, plain) == strlen(word)) {
        shoali_str_append(out, "%s", word);
        return;
    }
    /* A backslash outside of the quotes: fish takes it for special inside. */
    shoali_str_append(out, "'");
    for (const char *at = word; *at; at++) {
        if (*at == '\'' || *at == '\\')
            shoali_str_append(out, "'\\%c'", *at);
        else
            shoali_str_append(out, "%c", *at);
    }
    shoali_str_append(out, "'");
}

void shoali_str_append_count(struct shoali_str *str, int64_t count)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)count);
    for (int i = 0; i < length; i++) {
        const bool cut = i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-';
        shoali_str_append(str, "%s%c", cut ? "," : "", digits[i]);
    }
}

const char *shoali_format_count(double count, char *buffer)
{
    static const char *const units[] = {"", " thousand", " million", " billion", " trillion"};
    int unit = 0;
    /* 999.996 would print as 1000.00. */
    while (count >= (unit < 2 ? 999.95 : 999.995) && unit < 4) {
        count /= 1000;
        unit++;
    }
    shoali_snprintf(buffer, 32, "%.*f%s", unit == 0 ? 0 : unit == 1 ? 1 : 2, count, units[unit]);
    return buffer;
}

size_t shoali_bom_bytes(const char *text, size_t bytes)
{
    return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

char *shoali_strip_line(char *text)
{
    text += shoali_bom_bytes(text, strlen(text));
    text += strspn(text, " \t\v\f");
    size_t length = strcspn(text, "\r\n");
    while (length > 0 && strchr(" \t\v\f", text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}
