/* tiktoken: lines "base64 rank", and the JSON list of Megatron's TikTokenizer, whose ids begin
 * behind 1000 special tokens. */
#include "tokenizer/formats.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/splitters.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPECIALS = 1000, DEFAULT_SIZE = 1 << 17 };

/* A word: capitals and small letters apart, by the letters' general categories. */
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALLS "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define LEADING "[^\\r\\n\\p{L}\\p{N}]?"
#define SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char *const patterns[][2] = {
    {"gpt2", SHOALI_PATTERN_GPT2},
    {"cl100k", SHOALI_PATTERN_LLAMA3},
    {"o200k", LEADING CAPITALS "*" SMALLS "+" ENDING "|" LEADING CAPITALS "+" SMALLS "*" ENDING
                               "|\\p{N}{1,3}" SIGNS},
    {"v1", LEADING "+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
    {"v2", LEADING CAPITALS "*" SMALLS "+|" LEADING CAPITALS "+" SMALLS "*|\\p{N}" SIGNS},
};

/* A name, or the pattern itself. */
static const char *pattern_of(const char *name)
{
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        if (strcmp(patterns[i][0], name) == 0)
            return patterns[i][1];
    return name;
}

static shoal_status no_memory(void)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a vocabulary");
}

/* A token in the characters of byte-level vocabularies. `what` says where it stands. */
static shoal_status add_token(json_t *vocab, const char *path, const char *what, int64_t number,
                              const char *text, size_t length, int64_t id)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str name = {0};
    size_t bytes = 0;
    char *raw = malloc(length + 4);
    if (!raw)
        return no_memory();
    if (!shoali_base64(text, length, raw, &bytes) || bytes == 0) {
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s: %s %lld: `%.*s` is not base64", path, what,
                            (long long)number, (int)(length > 40 ? 40 : length), text);
        goto done;
    }
    shoali_append_byte_chars(raw, bytes, &name);
    if (name.failed) {
        status = no_memory();
    } else if (json_object_get(vocab, name.text)) {
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s: %s %lld: this token occurs here a second time",
                            path, what, (long long)number);
    } else if (json_object_set_new(vocab, name.text, json_integer(id)) != 0) {
        status = no_memory();
    }
done:
    shoali_str_fini(&name);
    free(raw);
    return status;
}

static shoal_status read_lines(const char *path, const char *data, size_t bytes, json_t *vocab)
{
    shoal_status status = SHOAL_OK;
    int64_t number = 0;
    for (const char *at = data, *end = data + bytes, *next; at < end; at = next) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        next = line_end ? line_end + 1 : end;
        number++;
        size_t length = (size_t)((line_end ? line_end : end) - at);
        length -= length > 0 && at[length - 1] == '\r';
        if (length == 0)
            continue;
        const char *space = memchr(at, ' ', length);
        int64_t rank = -1;
        char digits[24] = "";
        const size_t digit_count = space ? (size_t)(at + length - space - 1) : 0;
        if (space && digit_count < sizeof digits)
            memcpy(digits, space + 1, digit_count);
        if (!*digits || !shoali_parse_i64(digits, &rank) || rank < 0 || rank > SHOALI_ID_MAX)
            return SHOAL_FAIL(SHOAL_ECONFIG, "%s:%lld: \"base64 rank\" is expected here", path,
                              (long long)number);
        SHOAL_TRY(status, add_token(vocab, path, "line", number, at, (size_t)(space - at), rank),
                  done);
    }
done:
    return status;
}

/* [{"rank": 0, "token_bytes": "AA=="}, ...] */
static shoal_status read_list(const char *path, const json_t *list, int64_t size, json_t *vocab)
{
    shoal_status status = SHOAL_OK;
    for (size_t i = 0; i < json_array_size(list) && (int64_t)i < size - SPECIALS; i++) {
        const json_t *element = json_array_get(list, i);
        const char *text = json_string_value(json_object_get(element, "token_bytes"));
        const json_t *rank = json_object_get(element, "rank");
        if (!text || !json_is_integer(rank) || json_integer_value(rank) != (json_int_t)i)
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              "%s: element %zu is not {\"rank\": %zu, \"token_bytes\": \"base64\"}",
                              path, i, i);
        SHOAL_TRY(status,
                  add_token(vocab, path, "element", (int64_t)i, text, strlen(text),
                            (int64_t)i + SPECIALS),
                  done);
    }
done:
    return status;
}

/* The list shows each token as a text too, the byte 0 among them, which no text here may hold. It
 * is not read: another character may stand for it. */
static void hide_nul(char *data, size_t bytes)
{
    char *end = data + bytes;
    for (char *at = data; (at = memchr(at, '\\', (size_t)(end - at))); at++)
        if (end - at >= 6 && memcmp(at, "\\u0000", 6) == 0)
            at[5] = '1';
}

static bool add_specials(json_t *added)
{
    static const char *const named[] = {"<unk>", "<s>", "</s>"};
    bool failed = false;
    for (int i = 0; i < SPECIALS; i++) {
        char name[32];
        snprintf(name, sizeof name, "<SPECIAL_%d>", i);
        failed |= json_array_append_new(added, shoali_added_entry(i, i < 3 ? named[i] : name)) != 0;
    }
    return !failed;
}

shoal_status shoali_read_tiktoken(const shoal_tokenizer_args *args, const char *path, char *data,
                                  size_t bytes, bool lines, json_t **root)
{
    shoal_status status;
    json_t *list = NULL, *vocab = json_object(), *added = json_array();
    struct shoali_json_error error;
    const char *pattern = pattern_of(args->pattern ? args->pattern : lines ? "cl100k" : "v2");
    *root = NULL;
    if (lines) {
        SHOAL_TRY(status, read_lines(path, data, bytes, vocab), done);
    } else {
        hide_nul(data, bytes);
        status = shoali_json_read(data, bytes, &list, &error);
        if (status == SHOAL_ECORRUPT)
            status = SHOAL_FAIL(SHOAL_ECONFIG, "%s: line %d, column %d: %s", path, (int)error.line,
                                (int)error.column, error.text);
        SHOAL_TRY(status, status, done);
        SHOAL_TRY(
            status,
            read_list(path, list, args->vocab_size > 0 ? args->vocab_size : DEFAULT_SIZE, vocab),
            done);
        if (!add_specials(added)) {
            status = no_memory();
            goto done;
        }
    }
    *root = json_pack("{s:s,s:O,s:n,s:{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b,s:b}]},s:{s:s},"
                      "s:{s:s,s:O}}",
                      "version", "1.0", "added_tokens", added, "normalizer", "pre_tokenizer",
                      "type", "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
                      pattern, "behavior", "Isolated", "invert", 0, "type", "ByteLevel",
                      "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0, "decoder", "type",
                      "ByteLevel", "model", "type", "TikToken", "vocab", vocab);
    if (!*root)
        status = no_memory();
done:
    json_decref(list);
    json_decref(vocab);
    json_decref(added);
    return status;
}
