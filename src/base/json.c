/* The reader is recursive descent over the bytes; one scratch text holds the token at work. */
#include "base/json.h"

#include "base/fault.h"
#include "base/str.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 2048, NEAR_BYTES = 20 };

struct reader {
    const char *at, *end;
    int32_t depth;
    struct shoali_str token; /* the string or number that is read, NUL-terminated */
    bool no_memory;
    const char *wrong_at; /* where the text is wrong, NULL: nowhere */
    const char *expected; /* ... and what should stand there */
    bool duplicate;
};

/* The first thing that is wrong counts. Returns NULL, as all readers of values then do. */
static json_t *wrong(struct reader *reader, const char *at, const char *expected)
{
    if (!reader->wrong_at && !reader->no_memory) {
        reader->wrong_at = at;
        reader->expected = expected;
    }
    return NULL;
}

static json_t *made(struct reader *reader, json_t *value)
{
    reader->no_memory = reader->no_memory || !value;
    return value;
}

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->end && memchr(" \t\r\n", *reader->at, 4))
        reader->at++;
}

/* The next byte, 0 at the end. */
static char peek(const struct reader *reader)
{
    return reader->at < reader->end ? *reader->at : '\0';
}

static bool take(struct reader *reader, char byte)
{
    const bool is = reader->at < reader->end && *reader->at == byte;
    reader->at += is;
    return is;
}

/* ---- strings ---- */

/* The four digits of \uXXXX at `at`, -1: they are not there. */
static int32_t hex4(const struct reader *reader, const char *at)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++, at++) {
        const char *digits = "0123456789abcdefABCDEF";
        const char *digit = at < reader->end && *at ? strchr(digits, *at) : NULL;
        if (!digit)
            return -1;
        const int32_t place = (int32_t)(digit - digits);
        value = 16 * value + (place < 16 ? place : place - 6);
    }
    return value;
}

/* \uXXXX, or two of them for a code point beyond U+FFFF; `at` stands on the first u. */
static bool take_unicode(struct reader *reader)
{
    const char *begin = reader->at - 1;
    int32_t value = hex4(reader, reader->at + 1);
    reader->at += 5;
    if (value >= 0xd800 && value < 0xdc00 && reader->end - reader->at >= 6 &&
        reader->at[0] == '\\' && reader->at[1] == 'u') {
        const int32_t low = hex4(reader, reader->at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
            reader->at += 6;
        }
    }
    if (value <= 0 || (value >= 0xd800 && value < 0xe000)) {
        wrong(reader, begin,
              value == 0  ? "no character U+0000"
              : value < 0 ? "\\u and four hexadecimal digits"
                          : "a pair of surrogates, not one alone");
        return false;
    }
    char bytes[4];
    const int length = shoali_utf8_encode((uint32_t)value, bytes);
    shoali_str_append_bytes(&reader->token, bytes, (size_t)length);
    return true;
}

/* What follows a backslash. */
static bool take_escape(struct reader *reader)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char next = peek(reader);
    if (next == 'u')
        return take_unicode(reader);
    const char *found = next ? strchr(escapes, next) : NULL;
    if (!found) {
        wrong(reader, reader->at - 1, "one of the escapes \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
        return false;
    }
    shoali_str_append_bytes(&reader->token, &meant[found - escapes], 1);
    reader->at++;
    return true;
}

/* Bytes up to the next quote, escape or the end, as they are. */
static bool take_plain(struct reader *reader)
{
    const char *begin = reader->at;
    uint32_t code_point;
    while (reader->at < reader->end && *reader->at != '"' && *reader->at != '\\') {
        const int length =
            shoali_utf8_decode(reader->at, (size_t)(reader->end - reader->at), &code_point);
        if (length == 0 || code_point < 0x20) {
            wrong(reader, reader->at,
                  length == 0 ? "UTF-8" : "an escape such as \\n instead of a control character");
            return false;
        }
        reader->at += length;
    }
    shoali_str_append_bytes(&reader->token, begin, (size_t)(reader->at - begin));
    return true;
}

/* A string into the token; `at` stands on its first quote. */
static bool take_string(struct reader *reader)
{
    const char *begin = reader->at++;
    reader->token.length = 0;
    shoali_str_append_bytes(&reader->token, "", 0);
    while (!reader->token.failed && !take(reader, '"')) {
        if (reader->at == reader->end) {
            wrong(reader, begin, "a string that ends with a quote");
            return false;
        }
        if (!(take(reader, '\\') ? take_escape(reader) : take_plain(reader)))
            return false;
    }
    reader->no_memory = reader->no_memory || reader->token.failed;
    return !reader->no_memory;
}

/* ---- numbers and words ---- */

/* Appends digits to the token; false when there is none. */
static bool take_digits(struct reader *reader)
{
    const char *begin = reader->at;
    while (peek(reader) >= '0' && peek(reader) <= '9')
        reader->at++;
    shoali_str_append_bytes(&reader->token, begin, (size_t)(reader->at - begin));
    return reader->at > begin;
}

/* Appends the next byte to the token if it is one of `bytes`. */
static bool take_one_of(struct reader *reader, const char *bytes)
{
    const char next = peek(reader);
    if (!next || !strchr(bytes, next))
        return false;
    shoali_str_append_bytes(&reader->token, reader->at++, 1);
    return true;
}

static json_t *make_number(struct reader *reader, bool real)
{
    const char *text = reader->token.text;
    char *end;
    double value;
    if (reader->token.failed) {
        reader->no_memory = true;
        return NULL;
    }
    errno = 0;
    const long long integer = real ? 0 : strtoll(text, &end, 10);
    if (!real && errno == 0)
        return made(reader, json_integer(integer));
    /* Beyond int64 an integer is read as a fraction, beyond a double a number stays text: only the
     * reader of such a key can tell whether that matters. */
    return made(reader, shoali_parse_f64(text, &value) ? json_real(value) : json_string(text));
}

static json_t *read_number(struct reader *reader)
{
    const char *begin = reader->at;
    bool real = false;
    reader->token.length = 0;
    take_one_of(reader, "-");
    const char *digits = reader->at;
    bool good = take_digits(reader) && (*digits != '0' || reader->at - digits == 1);
    if (good && take_one_of(reader, ".")) {
        real = true;
        good = take_digits(reader);
    }
    if (good && take_one_of(reader, "eE")) {
        real = true;
        take_one_of(reader, "+-");
        good = take_digits(reader);
    }
    return good ? make_number(reader, real) : wrong(reader, begin, "a number as in JSON");
}

static json_t *read_word(struct reader *reader)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    for (int i = 0; i < 6; i++) {
        const size_t length = strlen(words[i]);
        if ((size_t)(reader->end - reader->at) < length ||
            memcmp(reader->at, words[i], length) != 0)
            continue;
        reader->at += length;
        if (i > 2) /* no JSON, but Python writes them */
            return made(reader, json_string(words[i]));
        return i == 0 ? json_true() : i == 1 ? json_false() : json_null();
    }
    return wrong(reader, reader->at, "a value");
}

/* ---- containers ---- */

static json_t *read_value(struct reader *reader);

static bool read_member(struct reader *reader, json_t *object)
{
    const char *key_at = reader->at;
    if (peek(reader) != '"')
        return wrong(reader, reader->at, "a key in quotes");
    if (!take_string(reader))
        return false;
    if (json_object_get(object, reader->token.text)) {
        reader->duplicate = !reader->wrong_at;
        return wrong(reader, key_at, "no key twice");
    }
    char *key = shoali_fault("alloc") ? NULL : strdup(reader->token.text);
    reader->no_memory = reader->no_memory || !key;
    skip_space(reader);
    json_t *value = NULL;
    if (key)
        value = take(reader, ':') ? read_value(reader) : wrong(reader, reader->at, ":");
    if (value && json_object_set_new_nocheck(object, key, value) != 0) {
        reader->no_memory = true;
        value = NULL;
    }
    free(key);
    return value != NULL;
}

static bool read_element(struct reader *reader, json_t *list)
{
    json_t *value = read_value(reader);
    if (value && json_array_append_new(list, value) != 0) {
        reader->no_memory = true;
        return false;
    }
    return value != NULL;
}

/* `at` stands on the opening bracket. */
static json_t *read_container(struct reader *reader, bool is_list)
{
    const char *begin = reader->at++;
    const char closing = is_list ? ']' : '}';
    json_t *value = made(reader, is_list ? json_array() : json_object());
    bool good = value != NULL;
    if (reader->depth == DEPTH_MAX) {
        json_decref(value);
        return wrong(reader, begin, "at most 2048 levels");
    }
    reader->depth++;
    skip_space(reader);
    if (good && !take(reader, closing)) {
        bool more = true;
        while (good && more) {
            skip_space(reader);
            good = is_list ? read_element(reader, value) : read_member(reader, value);
            skip_space(reader);
            more = good && take(reader, ',');
        }
        if (good && !take(reader, closing))
            good = wrong(reader, reader->at, is_list ? ", or ]" : ", or }");
    }
    reader->depth--;
    if (good)
        return value;
    json_decref(value);
    return NULL;
}

static json_t *read_value(struct reader *reader)
{
    skip_space(reader);
    const char next = peek(reader);
    if (next == '{' || next == '[')
        return read_container(reader, next == '[');
    if (next == '"')
        return take_string(reader) ? made(reader, json_string_nocheck(reader->token.text)) : NULL;
    const bool infinite =
        next == '-' && reader->end - reader->at > 1 && reader->at[1] == 'I'; /* -Infinity */
    if ((next == '-' && !infinite) || (next >= '0' && next <= '9'))
        return read_number(reader);
    return read_word(reader);
}

/* ---- the interface ---- */

/* Lines and columns are counted when something is wrong, not before. */
static void describe(const struct reader *reader, const char *text, struct shoali_json_error *error)
{
    const char *line = text;
    *error = (struct shoali_json_error){.line = 1, .duplicate = reader->duplicate};
    for (const char *at = text; at < reader->wrong_at; at++)
        if (*at == '\n') {
            error->line++;
            line = at + 1;
        }
    error->column = (int32_t)(reader->wrong_at - line) + 1;
    size_t length = 0;
    const size_t left = (size_t)(reader->end - reader->wrong_at);
    while (length < left && length < NEAR_BYTES && (unsigned char)reader->wrong_at[length] > ' ' &&
           (unsigned char)reader->wrong_at[length] < 0x7f)
        length++;
    const char *got = left == 0 ? "the end of the text" : "a byte that is not printable";
    if (length > 0)
        snprintf(error->text, sizeof error->text, "expected %s, got `%.*s`", reader->expected,
                 (int)length, reader->wrong_at);
    else
        snprintf(error->text, sizeof error->text, "expected %s, got %s", reader->expected,
                 left > 0 && memchr(" \t\r\n", *reader->wrong_at, 4) ? "a space" : got);
}

shoal_status shoali_json_read(const char *text, size_t bytes, json_t **value,
                              struct shoali_json_error *error)
{
    shoal_status status = SHOAL_OK;
    struct shoali_json_error own;
    struct reader reader = {.at = text + shoali_bom_bytes(text, bytes), .end = text + bytes};
    *value = read_value(&reader);
    skip_space(&reader);
    if (*value && reader.at < reader.end)
        wrong(&reader, reader.at, "nothing more");
    if (reader.no_memory) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the values of a JSON text");
    } else if (reader.wrong_at) {
        error = error ? error : &own;
        describe(&reader, text, error);
        status = SHOAL_FAIL(SHOAL_ECORRUPT, "line %d, column %d: %s", (int)error->line,
                            (int)error->column, error->text);
    }
    if (status < 0) {
        json_decref(*value);
        *value = NULL;
    }
    shoali_str_fini(&reader.token);
    return status;
}

static int append(const char *bytes, size_t count, void *user)
{
    struct shoali_str *text = user;
    shoali_str_append_bytes(text, bytes, count);
    return text->failed ? -1 : 0;
}

shoal_status shoali_json_write(const json_t *value, size_t flags, const char *what, char **text)
{
    struct shoali_str out = {0};
    if (json_dump_callback(value, append, &out, flags | JSON_ENCODE_ANY) != 0 || out.failed) {
        shoali_str_fini(&out);
        *text = NULL;
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the text of %s", what);
    }
    *text = out.text;
    return SHOAL_OK;
}
