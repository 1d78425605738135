/* The tokenizers "byte" and "char". */
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

#define CODE_POINTS SHOALI_CODE_POINTS

struct shoal_tokenizer {
    bool is_char;
    int32_t vocab_size;
    uint32_t *code_point; /* char: of each token, increasing */
    int32_t ascii[128];   /* char: token of an ASCII code point, -1 none; the fast path of encode */
    struct shoali_str json;
};

/* What the JSON form holds. */
struct tokenizer_config {
    const char *type;
    int64_t version;
    struct shoali_ints code_points;
};
static const struct shoali_option config_rows[] = {
    {.key = "type",
     .type = SHOALI_STRING,
     .offset = offsetof(struct tokenizer_config, type),
     .flags = SHOALI_OPTION_REQUIRED,
     .help = "byte or char."},
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
};
static const struct shoali_section config_section = {
    .name = "tokenizer",
    .help = "A tokenizer.",
    .rows = config_rows,
    .row_count = sizeof(config_rows) / sizeof(config_rows[0]),
    .struct_bytes = sizeof(struct tokenizer_config),
    .given_offset = SIZE_MAX,
};

static shoal_status allocate(bool is_char, int64_t vocab_size, shoal_tokenizer **tokenizer)
{
    shoal_tokenizer *made = shoali_calloc(1, sizeof(*made), "a tokenizer");
    if (!made)
        return SHOAL_ENOMEM;
    made->is_char = is_char;
    made->vocab_size = (int32_t)vocab_size;
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
    shoali_str_append(json, "{\"type\": \"%s\", \"version\": 1", shoal_tokenizer_name(made));
    for (int32_t t = 0; made->is_char && t < made->vocab_size; t++) {
        shoali_str_append(json, "%s%u", t == 0 ? ", \"code_points\": [" : ", ",
                          made->code_point[t]);
        if (made->code_point[t] < 128)
            made->ascii[made->code_point[t]] = t;
    }
    shoali_str_append(json, made->is_char ? "]}" : "}");
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
    SHOAL_TRY(status, allocate(true, distinct, &made), done);
    int32_t t = 0;
    for (uint32_t byte = 0; byte < CODE_POINTS / 8; byte++)
        for (uint32_t bit = 0; seen[byte] >> bit; bit++)
            if (seen[byte] >> bit & 1u)
                made->code_point[t++] = 8 * byte + bit;
    SHOAL_TRY(status, finish(made, tokenizer), done);
done:
    return status;
}

static shoal_status create_char(const char *text, size_t bytes, shoal_tokenizer **tokenizer)
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

static shoal_status create_byte(shoal_tokenizer **tokenizer)
{
    shoal_status status;
    shoal_tokenizer *made = NULL;
    SHOAL_TRY(status, allocate(false, 256, &made), done);
    SHOAL_TRY(status, finish(made, tokenizer), done);
done:
    return status;
}

static shoal_status unknown_name(shoal_status code, const char *name)
{
    return SHOAL_FAIL(code, "there is no tokenizer `%s`; use byte or char", name);
}

shoal_status shoal_tokenizer_create(const char *name, const char *text, size_t bytes,
                                    shoal_tokenizer **tokenizer)
{
    *tokenizer = NULL;
    if (strcmp(name, "byte") == 0)
        return create_byte(tokenizer);
    if (strcmp(name, "char") == 0)
        return create_char(text, bytes, tokenizer);
    return unknown_name(SHOAL_EINVAL, name);
}

static shoal_status from_code_points(const struct shoali_ints *list, shoal_tokenizer **tokenizer)
{
    shoal_tokenizer *made = NULL;
    shoal_status status;
    if (list->count < 1)
        return SHOAL_FAIL(SHOAL_ECONFIG, "tokenizer: `char` needs the list code_points");
    SHOAL_TRY(status, allocate(true, list->count, &made), done);
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

shoal_status shoal_tokenizer_from_json(const char *json, size_t bytes, shoal_tokenizer **tokenizer)
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
        status = create_byte(tokenizer);
    else if (strcmp(config.type, "char") == 0)
        status = from_code_points(&config.code_points, tokenizer);
    else
        status = unknown_name(SHOAL_ECONFIG, config.type);
done:
    shoali_json_close(document);
    shoali_arena_fini(&arena);
    return status;
}

shoal_status shoali_tokenizer_copy(const shoal_tokenizer *from, shoal_tokenizer **to)
{
    shoal_status status;
    shoal_tokenizer *made = NULL;
    SHOAL_TRY(status, allocate(from->is_char, from->vocab_size, &made), done);
    if (from->is_char)
        memcpy(made->code_point, from->code_point,
               (size_t)from->vocab_size * sizeof(*made->code_point));
    SHOAL_TRY(status, finish(made, to), done);
done:
    return status;
}

void shoal_tokenizer_destroy(shoal_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    shoali_str_fini(&tokenizer->json);
    shoali_free(tokenizer->code_point);
    shoali_free(tokenizer);
}

const char *shoal_tokenizer_name(const shoal_tokenizer *tokenizer)
{
    return tokenizer->is_char ? "char" : "byte";
}

int32_t shoal_tokenizer_vocab_size(const shoal_tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

const char *shoal_tokenizer_json(const shoal_tokenizer *tokenizer)
{
    return shoali_str_get(&tokenizer->json);
}

int64_t shoali_tokenizer_host_bytes(const shoal_tokenizer *tokenizer)
{
    return (int64_t)(sizeof(*tokenizer) + tokenizer->json.length) +
           (tokenizer->is_char ? tokenizer->vocab_size * (int64_t)sizeof(*tokenizer->code_point)
                               : 0);
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
                                int64_t offset, int32_t *tokens, int64_t capacity, int64_t *count)
{
    int64_t n = 0;
    for (size_t at = 0; at < bytes; n++) {
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
        if (n < capacity)
            tokens[n] = token;
        at += (size_t)length;
    }
    *count = n;
    return SHOAL_OK;
}

shoal_status shoali_tokenizer_encode_at(const shoal_tokenizer *tokenizer, const char *text,
                                        size_t bytes, int64_t offset, int32_t *tokens,
                                        int64_t capacity, int64_t *count)
{
    if (tokenizer->is_char)
        return encode_char(tokenizer, text, bytes, offset, tokens, capacity, count);
    *count = (int64_t)bytes;
    for (int64_t i = 0; *count <= capacity && i < *count; i++)
        tokens[i] = (unsigned char)text[i];
    return SHOAL_OK;
}

shoal_status shoal_tokenizer_encode(const shoal_tokenizer *tokenizer, const char *text,
                                    size_t bytes, int32_t *tokens, int64_t capacity, int64_t *count)
{
    return shoali_tokenizer_encode_at(tokenizer, text, bytes, 0, tokens, capacity, count);
}

shoal_status shoal_tokenizer_decode(const shoal_tokenizer *tokenizer, const int32_t *tokens,
                                    int64_t count, char *text, size_t capacity, size_t *bytes)
{
    size_t needed = 0;
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= tokenizer->vocab_size)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "token %d at position %lld is outside the vocabulary of %d",
                              tokens[i], (long long)i, tokenizer->vocab_size);
        char piece[4] = {(char)tokens[i]};
        int length =
            tokenizer->is_char ? shoali_utf8_encode(tokenizer->code_point[tokens[i]], piece) : 1;
        if (needed + (size_t)length <= capacity)
            memcpy(text + needed, piece, (size_t)length);
        needed += (size_t)length;
    }
    *bytes = needed;
    return SHOAL_OK;
}
