/* The tokenizers that need no file: byte, char, null. */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define CODE_POINTS SHOALI_CODE_POINTS

/* What the JSON form holds. */
struct tokenizer_config {
    const char *type;
    int64_t version, vocab_size;
    struct shoali_ints code_points;
};
static const struct shoali_option config_rows[] = {
    {.key = "type",
     .type = SHOALI_STRING,
     .offset = offsetof(struct tokenizer_config, type),
     .flags = SHOALI_OPTION_REQUIRED,
     .help = "byte, char or null."},
    {.key = "version",
     .type = SHOALI_INT,
     .offset = offsetof(struct tokenizer_config, version),
     .default_number = 1,
     .min = 1,
     .max = 1,
     .help = "Version of this format."},
    {.key = "code_points",
     .type = SHOALI_INTS,
     .offset = offsetof(struct tokenizer_config, code_points),
     .help = "char: the Unicode code point of each token, increasing."},
    {.key = "vocab_size",
     .type = SHOALI_INT,
     .offset = offsetof(struct tokenizer_config, vocab_size),
     .min = 0,
     .max = INT32_MAX,
     .help = "null: how many numbers there are."},
};
static const struct shoali_section config_section = {
    .name = "tokenizer",
    .help = "A tokenizer.",
    .rows = config_rows,
    .row_count = sizeof(config_rows) / sizeof(config_rows[0]),
    .struct_bytes = sizeof(struct tokenizer_config),
    .given_offset = SIZE_MAX,
};

static const struct shoali_tokenizer_kind byte_kind, char_kind;

static shoal_status allocate(const struct shoali_tokenizer_kind *kind, int64_t vocab_size,
                             shoal_tokenizer **tokenizer)
{
    const bool is_char = kind == &char_kind;
    shoal_tokenizer *made = shoali_calloc(1, sizeof(*made), "a tokenizer");
    if (!made)
        return SHOAL_ENOMEM;
    made->kind = kind;
    made->references = 1;
    made->vocab_size = (int32_t)vocab_size;
    made->eod = kind == &shoali_tokenizer_null ? made->vocab_size - 1 : -1;
    memset(made->ascii, 0xff, sizeof(made->ascii));
    if (is_char) {
        made->code_point =
            shoali_calloc((size_t)vocab_size, sizeof(*made->code_point), "a vocabulary");
        if (!made->code_point) {
            shoali_free(made);
            return SHOAL_ENOMEM;
        }
    }
    *tokenizer = made;
    return SHOAL_OK;
}

/* Completes a tokenizer whose code points are set. Takes `made` over. */
static shoal_status finish(shoal_tokenizer *made, shoal_tokenizer **tokenizer)
{
    struct shoali_str *json = &made->json;
    shoali_str_append(json, "{\"type\": \"%s\", \"version\": 1", made->kind->name);
    for (int32_t t = 0; made->code_point && t < made->vocab_size; t++) {
        shoali_str_append(json, "%s%u", t == 0 ? ", \"code_points\": [" : ", ",
                          made->code_point[t]);
        if (made->code_point[t] < 128)
            made->ascii[made->code_point[t]] = t;
    }
    if (made->kind == &shoali_tokenizer_null)
        shoali_str_append(json, ", \"vocab_size\": %d", made->vocab_size);
    shoali_str_append(json, made->code_point ? "]}" : "}");
    if (json->failed) {
        shoal_tokenizer_destroy(made);
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the JSON text of a tokenizer");
    }
    *tokenizer = made;
    return SHOAL_OK;
}

/* One bit per code point that occurs. */
static shoal_status learn(const char *text, size_t bytes, uint8_t *seen)
{
    uint32_t code_point;
    for (size_t at = 0; at < bytes;) {
        int length = shoali_utf8_decode(text + at, bytes - at, &code_point);
        if (length == 0)
            return SHOAL_FAIL(
                SHOAL_EINVAL,
                "the text is not UTF-8 at byte %zu (0x%02x); the tokenizer `byte` takes any "
                "data",
                at, (unsigned char)text[at]);
        seen[code_point >> 3] |= (uint8_t)(1u << (code_point & 7));
        at += (size_t)length;
    }
    return SHOAL_OK;
}

shoal_status shoali_tokenizer_from_set(const uint8_t *seen, shoal_tokenizer **tokenizer)
{
    shoal_status status;
    shoal_tokenizer *made = NULL;
    int64_t distinct = 0;
    for (uint32_t byte = 0; byte < CODE_POINTS / 8; byte++)
        distinct += __builtin_popcount(seen[byte]);
    if (distinct == 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "the tokenizer `char` needs a text to learn from");
        goto done;
    }
    SHOAL_TRY(status, allocate(&char_kind, distinct, &made), done);
    int32_t t = 0;
    for (uint32_t byte = 0; byte < CODE_POINTS / 8; byte++)
        for (uint32_t bit = 0; seen[byte] >> bit; bit++)
            if (seen[byte] >> bit & 1u)
                made->code_point[t++] = 8 * byte + bit;
    SHOAL_TRY(status, finish(made, tokenizer), done);
done:
    return status;
}

shoal_status shoali_tokenizer_make_char(const char *text, size_t bytes, shoal_tokenizer **tokenizer)
{
    shoal_status status;
    uint8_t *seen = shoali_calloc(CODE_POINTS / 8, 1, "the set of code points");
    if (!seen)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, learn(text, bytes, seen), done);
    SHOAL_TRY(status, shoali_tokenizer_from_set(seen, tokenizer), done);
done:
    shoali_free(seen);
    return status;
}

shoal_status shoali_tokenizer_make_byte(shoal_tokenizer **tokenizer)
{
    shoal_status status;
    shoal_tokenizer *made = NULL;
    SHOAL_TRY(status, allocate(&byte_kind, 256, &made), done);
    SHOAL_TRY(status, finish(made, tokenizer), done);
done:
    return status;
}

shoal_status shoali_tokenizer_make_null(int64_t vocab_size, shoal_tokenizer **tokenizer)
{
    shoal_status status;
    shoal_tokenizer *made = NULL;
    if (vocab_size < 1 || vocab_size > INT32_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "NullTokenizer has a vocabulary of %lld: give --vocab-size, at least 1",
                          (long long)vocab_size);
    SHOAL_TRY(status, allocate(&shoali_tokenizer_null, vocab_size, &made), done);
    SHOAL_TRY(status, finish(made, tokenizer), done);
done:
    return status;
}

static shoal_status from_code_points(const struct shoali_ints *list, shoal_tokenizer **tokenizer)
{
    shoal_tokenizer *made = NULL;
    shoal_status status;
    if (list->count < 1)
        return SHOAL_FAIL(SHOAL_ECONFIG, "tokenizer: `char` needs the list code_points");
    SHOAL_TRY(status, allocate(&char_kind, list->count, &made), done);
    for (int32_t t = 0; t < list->count; t++) {
        int64_t code_point = list->value[t], before = t > 0 ? list->value[t - 1] : -1;
        if (code_point <= before || code_point >= CODE_POINTS ||
            (code_point >= 0xd800 && code_point < 0xe000)) {
            status =
                SHOAL_FAIL(SHOAL_ECONFIG,
                           "tokenizer: code_points[%d] is %lld; they must increase and be Unicode "
                           "scalar values",
                           t, (long long)code_point);
            goto done;
        }
        made->code_point[t] = (uint32_t)code_point;
    }
    status = finish(made, tokenizer);
    made = NULL;
done:
    shoal_tokenizer_destroy(made);
    return status;
}

shoal_status shoali_tokenizer_plain(const char *json, size_t bytes, shoal_tokenizer **tokenizer)
{
    shoal_status status;
    struct shoali_json *document = NULL;
    struct tokenizer_config config = {0};
    struct shoali_arena arena;
    *tokenizer = NULL;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_json_parse(json, bytes, "tokenizer", &document), done);
    SHOAL_TRY(status, shoali_config_defaults(&config_section, &config, &arena), done);
    SHOAL_TRY(status, shoali_config_read_json(&config_section, document, "", &config, &arena),
              done);
    if (strcmp(config.type, "byte") == 0)
        status = shoali_tokenizer_make_byte(tokenizer);
    else if (strcmp(config.type, "char") == 0)
        status = from_code_points(&config.code_points, tokenizer);
    else if (strcmp(config.type, "null") == 0)
        status = shoali_tokenizer_make_null(config.vocab_size, tokenizer);
    else
        status = SHOAL_FAIL(
            SHOAL_ECONFIG,
            "there is no tokenizer `%s`; use byte or char, or a tokenizer.json with its `model`",
            config.type);
done:
    shoali_json_close(document);
    shoali_arena_fini(&arena);
    return status;
}

/* Token of a code point, -1 none. */
static int32_t token_of(const shoal_tokenizer *tokenizer, uint32_t code_point)
{
    if (code_point < 128)
        return tokenizer->ascii[code_point];
    int32_t low = 0, high = tokenizer->vocab_size;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (tokenizer->code_point[middle] < code_point)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < tokenizer->vocab_size && tokenizer->code_point[low] == code_point;
    return found ? low : -1;
}

static shoal_status encode_char(const shoal_tokenizer *tokenizer, const char *text, size_t bytes,
                                int64_t offset, struct shoali_ids *ids)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code_point = 0;
        int length = shoali_utf8_decode(text + at, bytes - at, &code_point);
        if (length == 0)
            return SHOAL_FAIL(
                SHOAL_EINVAL,
                "the text is not UTF-8 at byte %lld (0x%02x); the tokenizer `byte` takes any "
                "data",
                (long long)offset + (long long)at, (unsigned char)text[at]);
        int32_t token = token_of(tokenizer, code_point);
        if (token < 0)
            return SHOAL_FAIL(
                SHOAL_EINVAL,
                "the character U+%04X at byte %lld is not among the %d that the tokenizer "
                "`char` learnt from its training text",
                code_point, (long long)offset + (long long)at, tokenizer->vocab_size);
        shoali_ids_add(ids, token);
        at += (size_t)length;
    }
    return SHOAL_OK;
}

static shoal_status decode_char(const shoal_tokenizer *tokenizer, const int32_t *tokens,
                                int64_t count, struct shoali_str *text)
{
    char piece[4];
    for (int64_t i = 0; i < count; i++) {
        const int length = shoali_utf8_encode(tokenizer->code_point[tokens[i]], piece);
        shoali_str_append_bytes(text, piece, (size_t)length);
    }
    return SHOAL_OK;
}

static shoal_status encode_byte(const shoal_tokenizer *tokenizer, const char *text, size_t bytes,
                                int64_t offset, struct shoali_ids *ids)
{
    (void)tokenizer;
    (void)offset;
    const int64_t room = ids->capacity - ids->count;
    for (int64_t i = 0; (int64_t)bytes <= room && i < (int64_t)bytes; i++)
        ids->token[ids->count + i] = (unsigned char)text[i];
    ids->count += (int64_t)bytes;
    return SHOAL_OK;
}

static shoal_status decode_byte(const shoal_tokenizer *tokenizer, const int32_t *tokens,
                                int64_t count, struct shoali_str *text)
{
    (void)tokenizer;
    for (int64_t i = 0; i < count; i++)
        shoali_str_append_bytes(text, &(char){(char)tokens[i]}, 1);
    return SHOAL_OK;
}

/* ---- null: text is numbers ---- */

static shoal_status encode_null(const shoal_tokenizer *tokenizer, const char *text, size_t bytes,
                                int64_t offset, struct shoali_ids *ids)
{
    for (size_t at = 0; at < bytes;) {
        int64_t value = 0;
        const size_t begin = at;
        while (at < bytes && text[at] >= '0' && text[at] <= '9' && value < tokenizer->vocab_size)
            value = 10 * value + (text[at++] - '0');
        const bool ends = at == bytes || strchr(" \t\r\n", text[at]);
        if (at > begin && (!ends || value >= tokenizer->vocab_size))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "NullTokenizer: the text at byte %lld is not a number below %d",
                              (long long)offset + (long long)begin, tokenizer->vocab_size);
        if (at > begin)
            shoali_ids_add(ids, (int32_t)value);
        else if (ends && text[at])
            at++;
        else
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "NullTokenizer: the text must be numbers with spaces between them; "
                              "byte %lld is 0x%02x",
                              (long long)offset + (long long)at, (unsigned char)text[at]);
    }
    return SHOAL_OK;
}

static shoal_status decode_null(const shoal_tokenizer *tokenizer, const int32_t *tokens,
                                int64_t count, struct shoali_str *text)
{
    (void)tokenizer;
    for (int64_t i = 0; i < count; i++)
        shoali_str_append(text, "%s%d", i > 0 ? " " : "", tokens[i]);
    return SHOAL_OK;
}

static const struct shoali_tokenizer_kind byte_kind = {
    .name = "byte",
    .encode = encode_byte,
    .decode = decode_byte,
    .any_cut = true,
};
static const struct shoali_tokenizer_kind char_kind = {
    .name = "char",
    .encode = encode_char,
    .decode = decode_char,
    .any_cut = true,
};
const struct shoali_tokenizer_kind shoali_tokenizer_null = {
    .name = "null",
    .encode = encode_null,
    .decode = decode_null,
};
