/* vocab.json and merges.txt of GPT-2; vocab.txt of BERT. */
#include "tokenizer/formats.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

json_t *shoali_typed(const char *type)
{
    return json_pack("{s:s}", "type", type);
}

json_t *shoali_added_entry(int64_t id, const char *content)
{
    return json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id", (json_int_t)id, "content", content,
                     "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

shoal_status shoali_read_json_file(const char *path, json_t **root)
{
    shoal_status status;
    char *data = NULL;
    size_t bytes;
    struct shoali_json_error error;
    *root = NULL;
    SHOAL_TRY(status, shoali_read_text(path, &data, &bytes), done);
    status = shoali_json_read(data, bytes, root, &error);
    if (status == SHOAL_ECORRUPT)
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s: line %d, column %d: %s", path, (int)error.line,
                            (int)error.column, error.text);
done:
    free(data);
    return status;
}

static shoal_status no_memory(void)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a vocabulary");
}

/* One line of a text, ended by a NUL in place of its end; NULL behind the last one. */
static char *next_line(char **at, size_t *length)
{
    char *line = *at;
    if (!*line)
        return NULL;
    char *end = strchr(line, '\n');
    *length = end ? (size_t)(end - line) : strlen(line);
    *at = line + *length + (end ? 1 : 0);
    if (*length > 0 && line[*length - 1] == '\r')
        (*length)--;
    line[*length] = '\0';
    return line;
}

static shoal_status read_text(const char *path, char **data)
{
    shoal_status status;
    size_t bytes;
    SHOAL_TRY(status, shoali_read_text(path, data, &bytes), done);
    const size_t good = shoali_utf8_check(*data, bytes);
    if (good < bytes)
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s is not text: byte %zu is not UTF-8", path, good + 1);
done:
    return status;
}

/* Lines "left right"; a first line may say "#version: ...". */
static shoal_status read_merges(const char *path, json_t *merges)
{
    shoal_status status;
    char *data = NULL;
    char *at, *line;
    size_t length;
    int number = 0;
    SHOAL_TRY(status, read_text(path, &data), done);
    at = data + shoali_bom_bytes(data, strlen(data));
    while ((line = next_line(&at, &length))) {
        number++;
        if (length == 0 || strncmp(line, "#version", 8) == 0)
            continue;
        const char *space = strchr(line, ' ');
        if (!space || space == line || !space[1] || strchr(space + 1, ' ')) {
            status = SHOAL_FAIL(SHOAL_ECONFIG,
                                "%s:%d: `%s` is not two strings with a space between them", path,
                                number, line);
            goto done;
        }
        if (json_array_append_new(merges, json_string(line)) != 0) {
            status = no_memory();
            goto done;
        }
    }
done:
    free(data);
    return status;
}

shoal_status shoali_read_gpt2(const char *vocab_path, const char *merges_path, json_t **root)
{
    shoal_status status;
    json_t *vocab = NULL, *merges = json_array(), *added = json_array();
    *root = NULL;
    SHOAL_TRY(status, shoali_read_json_file(vocab_path, &vocab), done);
    if (!json_is_object(vocab)) {
        status = SHOAL_FAIL(
            SHOAL_ECONFIG, "%s is not a vocabulary, which is {\"token\": number, ...}", vocab_path);
        goto done;
    }
    SHOAL_TRY(status, read_merges(merges_path, merges), done);
    const json_t *eod = json_object_get(vocab, "<|endoftext|>");
    if (json_is_integer(eod) &&
        json_array_append_new(added,
                              shoali_added_entry(json_integer_value(eod), "<|endoftext|>")) != 0) {
        status = no_memory();
        goto done;
    }
    *root = json_pack("{s:s, s:O, s:n, s:{s:s,s:b,s:b,s:b}, s:{s:s,s:b,s:b,s:b}, "
                      "s:{s:s,s:b,s:b,s:b}, s:{s:s,s:n,s:n,s:O,s:O}}",
                      "version", "1.0", "added_tokens", added, "normalizer", "pre_tokenizer",
                      "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1,
                      "post_processor", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets",
                      0, "use_regex", 1, "decoder", "type", "ByteLevel", "add_prefix_space", 1,
                      "trim_offsets", 1, "use_regex", 1, "model", "type", "BPE", "dropout",
                      "unk_token", "vocab", vocab, "merges", merges);
    if (!*root)
        status = no_memory();
done:
    json_decref(vocab);
    json_decref(merges);
    json_decref(added);
    return status;
}

/* ---- BERT ---- */

static shoal_status read_lines(const struct shoali_bert_args *args, json_t *vocab, json_t *added)
{
    const char *special[] = {"[PAD]", args->unk, args->cls, args->sep, "[MASK]"};
    shoal_status status;
    char *data = NULL;
    char *at, *line;
    size_t length;
    json_int_t id = 0;
    bool failed = false;
    SHOAL_TRY(status, read_text(args->vocab_path, &data), done);
    for (at = data; (line = next_line(&at, &length)); id++) {
        if (json_object_get(vocab, line)) {
            status = SHOAL_FAIL(SHOAL_ECONFIG, "%s:%lld: `%s` occurs here a second time",
                                args->vocab_path, (long long)id + 1, line);
            goto done;
        }
        failed |= json_object_set_new(vocab, line, json_integer(id)) != 0;
        for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
            if (strcmp(special[i], line) == 0)
                failed |= json_array_append_new(added, shoali_added_entry(id, special[i])) != 0;
    }
    if (failed)
        status = no_memory();
done:
    free(data);
    return status;
}

shoal_status shoali_read_bert(const struct shoali_bert_args *args, json_t **root)
{
    shoal_status status;
    struct shoali_bert_args own = *args;
    json_t *vocab = json_object(), *added = json_array();
    *root = NULL;
    own.unk = own.unk ? own.unk : "[UNK]";
    own.cls = own.cls ? own.cls : "[CLS]";
    own.sep = own.sep ? own.sep : "[SEP]";
    SHOAL_TRY(status, read_lines(&own, vocab, added), done);
    const json_t *cls = json_object_get(vocab, own.cls), *sep = json_object_get(vocab, own.sep);
    if (!cls || !sep || !json_object_get(vocab, own.unk)) {
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s is not a vocabulary of BERT: it has no %s, %s or %s",
                            own.vocab_path, own.cls, own.sep, own.unk);
        goto done;
    }
    json_t *accents = own.strip_accents < 0 ? json_null() : json_boolean(own.strip_accents);
    *root = json_pack(
        "{s:s, s:O, s:{s:s,s:b,s:b,s:o,s:b}, s:{s:s}, s:{s:s,s:[sI],s:[sI]}, "
        "s:{s:s,s:s,s:b}, s:{s:s,s:s,s:s,s:i,s:O}, s:I}",
        "version", "1.0", "added_tokens", added, "normalizer", "type", "BertNormalizer",
        "clean_text", 1, "handle_chinese_chars", (int)own.chinese, "strip_accents", accents,
        "lowercase", (int)own.lower_case, "pre_tokenizer", "type", "BertPreTokenizer",
        "post_processor", "type", "BertProcessing", "sep", own.sep, json_integer_value(sep), "cls",
        own.cls, json_integer_value(cls), "decoder", "type", "WordPiece", "prefix", "##", "cleanup",
        1, "model", "type", "WordPiece", "unk_token", own.unk, "continuing_subword_prefix", "##",
        "max_input_chars_per_word", 100, "vocab", vocab, "eod", json_integer_value(sep));
    if (!*root)
        status = no_memory();
done:
    json_decref(vocab);
    json_decref(added);
    return status;
}
