/* Records of JSON lines, in one pass. */
#include "text_data/jsonl.h"

#include "base/plain.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH = 2048, SHOWN_KEYS = 8 };

struct reader {
    const char *at, *begin, *end;
};

/* Where a string goes; NULL: nowhere. */
struct bytes {
    char **text;
    size_t *count, *capacity;
};

static shoal_status wrong(const struct reader *reader, const char *what)
{
    if (reader->at >= reader->end)
        return SHOAL_FAIL(SHOAL_EINVAL, "column %lld: %s, but the line ends",
                          (long long)(reader->at - reader->begin) + 1, what);
    const unsigned char byte = (unsigned char)*reader->at;
    if (byte > 32 && byte < 127)
        return SHOAL_FAIL(SHOAL_EINVAL, "column %lld: %s, but there is `%c`",
                          (long long)(reader->at - reader->begin) + 1, what, byte);
    return SHOAL_FAIL(SHOAL_EINVAL, "column %lld: %s, but there is byte 0x%02x",
                      (long long)(reader->at - reader->begin) + 1, what, byte);
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\t' ||
                                        *reader->at == '\r' || *reader->at == '\n'))
        reader->at++;
}

static bool take(struct reader *reader, char wanted)
{
    if (reader->at >= reader->end || *reader->at != wanted)
        return false;
    reader->at++;
    return true;
}

/* ---- strings ---- */

static shoal_status put(const struct bytes *out, const char *from, size_t bytes)
{
    if (!out)
        return SHOAL_OK;
    if (!*out->text || *out->capacity - *out->count < bytes) { /* also an empty text is somewhere */
        const size_t capacity = 2 * (*out->count + bytes) + 64;
        char *grown = shoali_fault("alloc") ? NULL : realloc(*out->text, capacity);
        if (!grown)
            return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %zu bytes of a record", capacity);
        *out->text = grown;
        *out->capacity = capacity;
    }
    memcpy(*out->text + *out->count, from, bytes);
    *out->count += bytes;
    return SHOAL_OK;
}

/* Eight bytes of which none is a quote, a backslash, a control character or no ASCII. */
static bool plain8(const char *at)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = UINT64_C(0x8080808080808080);
    uint64_t word;
    memcpy(&word, at, sizeof word);
    const uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');
    const uint64_t found =
        ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | (word - ones * 0x20) | word;
    return (found & tops) == 0;
}

/* The first byte from here that ends a run of text as it is. */
static const char *end_of_run(const char *at, const char *end)
{
    uint32_t code_point;
    while (at < end) {
        while (end - at >= 8 && plain8(at))
            at += 8;
        if (at == end)
            break;
        const unsigned char byte = (unsigned char)*at;
        if (byte == '"' || byte == '\\' || byte < 0x20)
            break;
        const int length =
            byte < 0x80 ? 1 : shoali_utf8_decode(at, (size_t)(end - at), &code_point);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

/* Four hexadecimal digits. */
static bool take_unit(struct reader *reader, uint32_t *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++, reader->at++) {
        if (reader->at >= reader->end)
            return false;
        const char c = *reader->at;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return false;
        *unit = 16 * *unit + (uint32_t)digit;
    }
    return true;
}

static shoal_status take_unicode(struct reader *reader, const struct bytes *out)
{
    static const char digits[] = "four hexadecimal digits should follow \\u";
    static const char pair[] = "the escape of a surrogate should be one of a pair";
    uint32_t first, second;
    char text[4];
    if (!take_unit(reader, &first))
        return wrong(reader, digits);
    if (first >= 0xdc00 && first < 0xe000)
        return wrong(reader, pair);
    if (first >= 0xd800 && first < 0xdc00) {
        if (!take(reader, '\\') || !take(reader, 'u'))
            return wrong(reader, pair);
        if (!take_unit(reader, &second))
            return wrong(reader, digits);
        if (second < 0xdc00 || second >= 0xe000)
            return wrong(reader, pair);
        first = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    }
    return put(out, text, (size_t)shoali_utf8_encode(first, text));
}

static shoal_status take_escape(struct reader *reader, const struct bytes *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (take(reader, 'u'))
        return take_unicode(reader, out);
    const char *found = reader->at < reader->end && *reader->at ? strchr(from, *reader->at) : NULL;
    if (!found)
        return wrong(reader, "an escape should be one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
    reader->at++;
    return put(out, &to[found - from], 1);
}

/* Behind the opening quote. */
static shoal_status take_string(struct reader *reader, const struct bytes *out)
{
    shoal_status status;
    for (;;) {
        const char *run = reader->at;
        reader->at = end_of_run(run, reader->end);
        SHOAL_TRY(status, put(out, run, (size_t)(reader->at - run)), done);
        if (take(reader, '"'))
            return SHOAL_OK;
        if (!take(reader, '\\'))
            return wrong(reader, reader->at < reader->end && (unsigned char)*reader->at >= 0x80
                                     ? "a string should be UTF-8"
                                     : "a string should end with a quote");
        SHOAL_TRY(status, take_escape(reader, out), done);
    }
done:
    return status;
}

/* ---- values that nobody asked for ---- */

static size_t take_digits(struct reader *reader)
{
    const char *first = reader->at;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9')
        reader->at++;
    return (size_t)(reader->at - first);
}

static shoal_status take_number(struct reader *reader)
{
    (void)take(reader, '-');
    const bool zero = reader->at < reader->end && *reader->at == '0';
    const size_t digits = take_digits(reader);
    if (digits == 0)
        return wrong(reader, "a value should stand here");
    if (zero && digits > 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "column %lld: a number begins with 0",
                          (long long)(reader->at - reader->begin));
    if (take(reader, '.') && take_digits(reader) == 0)
        return wrong(reader, "digits should follow the point");
    if (take(reader, 'e') || take(reader, 'E')) {
        if (!take(reader, '+'))
            (void)take(reader, '-');
        if (take_digits(reader) == 0)
            return wrong(reader, "digits should follow the exponent");
    }
    return SHOAL_OK;
}

static bool take_word(struct reader *reader, const char *word)
{
    const size_t bytes = strlen(word);
    if ((size_t)(reader->end - reader->at) < bytes || memcmp(reader->at, word, bytes) != 0)
        return false;
    reader->at += bytes;
    return true;
}

static shoal_status take_scalar(struct reader *reader)
{
    if (take(reader, '"'))
        return take_string(reader, NULL);
    static const char *const words[] = {"true",
                                        "false",
                                        "null",
                                        /* Python's */ "NaN",
                                        "Infinity",
                                        "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (take_word(reader, words[i]))
            return SHOAL_OK;
    return take_number(reader);
}

static shoal_status take_colon(struct reader *reader)
{
    shoal_status status;
    skip_blanks(reader);
    if (!take(reader, '"'))
        return wrong(reader, "a key in quotes should stand here");
    SHOAL_TRY(status, take_string(reader, NULL), done);
    skip_blanks(reader);
    if (!take(reader, ':'))
        status = wrong(reader, "a colon should follow the key");
done:
    return status;
}

/* Behind a value in lists and objects: closes what ends, and goes on to the next value or stays on
 * level 0. */
static shoal_status take_next(struct reader *reader, const bool *object, int *depth)
{
    while (*depth > 0) {
        skip_blanks(reader);
        const bool in_object = object[*depth - 1];
        if (take(reader, ','))
            return in_object ? take_colon(reader) : SHOAL_OK;
        if (!take(reader, in_object ? '}' : ']'))
            return wrong(reader, in_object ? "a comma or } should follow"
                                           : "a comma or ] should "
                                             "follow");
        --*depth;
    }
    return SHOAL_OK;
}

/* One value of any kind. */
static shoal_status take_value(struct reader *reader)
{
    shoal_status status = SHOAL_OK;
    bool object[DEPTH]; /* what is open: an object, or a list */
    int depth = 0;
    do {
        skip_blanks(reader);
        const bool opens_object = take(reader, '{');
        if (opens_object || take(reader, '[')) {
            if (depth == DEPTH)
                return wrong(reader, "at most 2048 lists and objects may be inside of each other");
            object[depth++] = opens_object;
            skip_blanks(reader);
            if (!take(reader, opens_object ? '}' : ']')) {
                if (opens_object)
                    SHOAL_TRY(status, take_colon(reader), done);
                continue;
            }
            depth--;
        } else {
            SHOAL_TRY(status, take_scalar(reader), done);
        }
        SHOAL_TRY(status, take_next(reader, object, &depth), done);
    } while (depth > 0);
done:
    return status;
}

/* ---- values that were asked for ---- */

static shoal_status end_text(struct shoali_jsonl_value *value)
{
    if (value->count == value->room) {
        const int32_t room = value->room ? 2 * value->room : 16;
        size_t *grown = shoali_fault("alloc") || room < 0
                            ? NULL
                            : realloc(value->end, (size_t)room * sizeof *grown);
        if (!grown)
            return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a list of texts");
        value->end = grown;
        value->room = room;
    }
    value->end[value->count++] = value->bytes;
    return SHOAL_OK;
}

static shoal_status take_text(struct reader *reader, const char *key,
                              struct shoali_jsonl_value *value)
{
    shoal_status status;
    const struct bytes out = {&value->text, &value->bytes, &value->capacity};
    skip_blanks(reader);
    if (!take(reader, '"'))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "column %lld: the value of `%s` should be a string or a list of strings",
                          (long long)(reader->at - reader->begin) + 1, key);
    SHOAL_TRY(status, take_string(reader, &out), done);
    SHOAL_TRY(status, end_text(value), done);
done:
    return status;
}

static shoal_status take_texts(struct reader *reader, const char *key,
                               struct shoali_jsonl_value *value)
{
    shoal_status status;
    if (value->found)
        return SHOAL_FAIL(SHOAL_EINVAL, "the key `%s` is given twice", key);
    value->found = true;
    skip_blanks(reader);
    if (!take(reader, '['))
        return take_text(reader, key, value);
    skip_blanks(reader);
    if (take(reader, ']'))
        return SHOAL_OK;
    do {
        SHOAL_TRY(status, take_text(reader, key, value), done);
        skip_blanks(reader);
    } while (take(reader, ','));
    if (!take(reader, ']'))
        status = wrong(reader, "a comma or ] should follow");
done:
    return status;
}

/* ---- the record ---- */

/* The index of the key that was read; -1: nobody asked for it. */
static int32_t find_key(const struct shoali_jsonl *jsonl, size_t bytes)
{
    for (int32_t k = 0; k < jsonl->key_count; k++)
        if (strlen(jsonl->keys[k]) == bytes && memcmp(jsonl->keys[k], jsonl->name, bytes) == 0)
            return k;
    return -1;
}

/* A key and its value. With `names` the keys are collected instead of the texts. */
static shoal_status take_member(struct shoali_jsonl *jsonl, struct reader *reader,
                                const char **names, size_t *name_count)
{
    shoal_status status;
    size_t bytes = 0;
    const struct bytes out = {&jsonl->name, &bytes, &jsonl->name_capacity};
    skip_blanks(reader);
    if (!take(reader, '"'))
        return wrong(reader, "a key in quotes should stand here");
    SHOAL_TRY(status, take_string(reader, &out), done);
    skip_blanks(reader);
    if (!take(reader, ':'))
        return wrong(reader, "a colon should follow the key");
    if (names) {
        if (*name_count < SHOWN_KEYS && (names[*name_count] = strndup(jsonl->name, bytes)))
            ++*name_count;
        return take_value(reader);
    }
    const int32_t k = find_key(jsonl, bytes);
    status = k < 0 ? take_value(reader) : take_texts(reader, jsonl->keys[k], &jsonl->value[k]);
done:
    return status;
}

static shoal_status take_members(struct shoali_jsonl *jsonl, struct reader *reader,
                                 const char **names, size_t *name_count)
{
    shoal_status status = SHOAL_OK;
    skip_blanks(reader);
    if (!take(reader, '{'))
        return wrong(reader, "a record is an object in braces, {\"key\": ...}");
    skip_blanks(reader);
    if (!take(reader, '}')) {
        do {
            SHOAL_TRY(status, take_member(jsonl, reader, names, name_count), done);
            skip_blanks(reader);
        } while (take(reader, ','));
        if (!take(reader, '}'))
            return wrong(reader, "a comma or } should follow");
    }
    skip_blanks(reader);
    if (reader->at < reader->end)
        status = wrong(reader, "a record should end with its brace");
done:
    return status;
}

static shoal_status missing(struct shoali_jsonl *jsonl, const struct reader *whole, const char *key)
{
    struct reader reader = *whole;
    const char *names[SHOWN_KEYS] = {0};
    size_t count = 0;
    shoal_status status = take_members(jsonl, &reader, names, &count);
    const char *nearest = shoali_nearest(key, names, count);
    if (nearest)
        status = SHOAL_FAIL(SHOAL_EINVAL, "there is no key `%s`; nearest is `%s`", key, nearest);
    else if (count > 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "there is no key `%s`; the first is `%s`", key, names[0]);
    else
        status = SHOAL_FAIL(SHOAL_EINVAL, "there is no key `%s`, the record is empty", key);
    for (size_t i = 0; i < count; i++)
        free((char *)(uintptr_t)names[i]);
    return status;
}

shoal_status shoali_jsonl_read(struct shoali_jsonl *jsonl, const char *line, size_t bytes)
{
    shoal_status status;
    const struct reader whole = {line, line, line + bytes};
    struct reader reader = whole;
    if (!jsonl->value)
        jsonl->value =
            shoali_calloc((size_t)jsonl->key_count + 1, sizeof *jsonl->value, "a record");
    if (!jsonl->value)
        return SHOAL_ENOMEM;
    for (int32_t k = 0; k < jsonl->key_count; k++) {
        jsonl->value[k].bytes = 0;
        jsonl->value[k].count = 0;
        jsonl->value[k].found = false;
    }
    skip_blanks(&reader);
    if (reader.at == reader.end)
        return SHOAL_END;
    SHOAL_TRY(status, take_members(jsonl, &reader, NULL, NULL), done);
    for (int32_t k = 0; k < jsonl->key_count; k++)
        if (!jsonl->value[k].found)
            return missing(jsonl, &whole, jsonl->keys[k]);
done:
    return status;
}

void shoali_jsonl_fini(struct shoali_jsonl *jsonl)
{
    for (int32_t k = 0; jsonl->value && k < jsonl->key_count; k++) {
        free(jsonl->value[k].text);
        free(jsonl->value[k].end);
    }
    shoali_free(jsonl->value);
    free(jsonl->name);
    jsonl->value = NULL;
    jsonl->name = NULL;
    jsonl->name_capacity = 0;
}

bool shoali_jsonl_is_name(const char *path)
{
    static const char *const suffixes[] = {".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"};
    const size_t length = strlen(path);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const size_t end = strlen(suffixes[i]);
        if (length > end && shoali_strcasecmp(path + length - end, suffixes[i]) == 0)
            return true;
    }
    return false;
}
