#include "tokenizer/train.h"

#include "base/beginning.h"
#include "base/str.h"
#include "tokenizer/formats.h"
#include "tokenizer/pipeline.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct pattern {
    const char *name, *pattern;
};

static shoal_status find_pattern(const char *name, const struct pattern **pattern)
{
    static const struct pattern rows[] = {{"gpt2", SHOALI_PATTERN_GPT2},
                                          {"llama3", SHOALI_PATTERN_LLAMA3},
                                          {"qwen2", SHOALI_PATTERN_QWEN2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        *pattern = &rows[i];
        if (strcmp(rows[i].name, name) == 0)
            return SHOAL_OK;
    }
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "there is no pattern `%s` for training; use gpt2, llama3 or qwen2", name);
}

/* Braces and keys of a million records would become tokens. */
static shoal_status check_json(const shoal_tokenizer_train_args *args, const char *path,
                               const char *text, size_t bytes)
{
    const char *dot = strrchr(path, '.');
    if (args->data_text || bytes == 0 ||
        (!shoali_json_is_lines(text, bytes) && (!dot || strcmp(dot, ".json") != 0)))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s is JSON, of which the tokenizer would learn braces and keys: write its "
                      "texts to a file (jq -r .text), or give --data-text to take it as it stands",
                      path);
}

static shoal_status count_files(const shoal_tokenizer_train_args *args,
                                const struct pattern *pattern, struct shoali_word_counts *counts)
{
    shoal_status status;
    struct shoali_classes *classes = NULL;
    struct shoali_pool *pool = NULL;
    bool any = false;
    SHOAL_TRY(status, shoali_classes_create(&classes), done);
    SHOAL_TRY(status, shoali_pool_create(args->threads, &pool), done);
    for (int32_t i = 0; i < args->path_count; i++) {
        char *text = NULL;
        size_t bytes;
        SHOAL_TRY(status, shoali_read_file(args->paths[i], &text, &bytes), done);
        status = shoali_beginning_wide(args->paths[i], text, bytes);
        if (status == SHOAL_OK)
            status = check_json(args, args->paths[i], text, bytes);
        if (status == SHOAL_OK)
            status = shoali_count_words(pool, classes, shoali_splitter_of(pattern->pattern), text,
                                        bytes, counts);
        free(text);
        SHOAL_TRY(status, status, done);
        any = any || bytes > 0;
    }
    if (!any)
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s %s: there is no text to learn a vocabulary from",
                            args->paths[0],
                            args->path_count > 1 ? "and the others are empty" : "is empty");
done:
    shoali_pool_destroy(pool);
    shoali_free(classes);
    return status;
}

/* Special tokens, then the bytes in the order of their characters. */
static shoal_status begin_vocab(const shoal_tokenizer_train_args *args,
                                struct shoali_trained *trained, int32_t byte_id[256])
{
    shoal_status status;
    const int64_t least = 256 + args->special_count;
    if (args->vocab_size < least || args->vocab_size > SHOALI_ID_MAX)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "a vocabulary of %lld tokens cannot be learnt: give --vocab-size from %lld "
            "(256 bytes and the special tokens) to %d",
            (long long)args->vocab_size, (long long)least, SHOALI_ID_MAX);
    SHOAL_TRY(status,
              shoali_vocab_init(&trained->vocab, args->vocab_size + 1, args->vocab_size + 1,
                                trained->arena),
              done);
    for (int32_t i = 0; i < args->special_count; i++) {
        const char *text = shoali_arena_strdup(trained->arena, args->special_tokens[i]);
        if (!text)
            return SHOAL_ENOMEM;
        if (!*text || shoali_vocab_find(&trained->vocab, text, strlen(text)) >= 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "the special token `%s` is empty or given twice", text);
        if (shoali_utf8_check(text, strlen(text)) != strlen(text))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "special token %d is not UTF-8 text: tokenizer.json cannot hold it",
                              (int)i + 1);
        shoali_vocab_add(&trained->vocab, trained->size++, text, strlen(text));
    }
    for (uint32_t c = 0; c < 0x144; c++) {
        const int byte = shoali_char_byte(c);
        if (byte < 0)
            continue;
        char *text = shoali_arena_alloc(trained->arena, 4);
        if (!text)
            return SHOAL_ENOMEM;
        const size_t bytes = (size_t)shoali_utf8_encode(c, text);
        byte_id[byte] = shoali_vocab_find(&trained->vocab, text, bytes);
        if (byte_id[byte] >= 0)
            continue;
        byte_id[byte] = trained->size++;
        shoali_vocab_add(&trained->vocab, byte_id[byte], text, bytes);
    }
done:
    return status;
}

/* ---- tokenizer.json ---- */

static json_t *byte_level(bool use_regex)
{
    return json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", (int)use_regex);
}

static json_t *pre_tokenizer(const struct pattern *pattern)
{
    if (strcmp(pattern->name, "gpt2") == 0)
        return byte_level(true);
    return json_pack("{s:s,s:[{s:s,s:{s:s},s:s,s:b},o]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", pattern->pattern, "behavior", "Isolated",
                     "invert", 0, byte_level(false));
}

static shoal_status write_root(const shoal_tokenizer_train_args *args,
                               const struct pattern *pattern, const struct shoali_trained *trained,
                               json_t **root)
{
    json_t *vocab = json_object(), *merges = json_array(), *added = json_array();
    bool failed = false;
    for (int32_t id = 0; id < trained->size; id++)
        failed |= json_object_set_new(vocab, trained->vocab.string[id].text, json_integer(id)) != 0;
    for (int64_t i = 0; i < trained->merge_count; i++) {
        const struct shoali_merge *merge = &trained->merge[i];
        failed |=
            json_array_append_new(merges, json_pack("[ss]", trained->vocab.string[merge->left].text,
                                                    trained->vocab.string[merge->right].text)) != 0;
    }
    for (int32_t i = 0; i < args->special_count; i++)
        failed |= json_array_append_new(added, shoali_added_entry(i, args->special_tokens[i])) != 0;
    *root =
        json_pack("{s:s,s:n,s:n,s:o,s:n,s:o,s:o,s:o,s:{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:o,s:o}}",
                  "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
                  "pre_tokenizer", pre_tokenizer(pattern), "post_processor", byte_level(true),
                  "decoder", byte_level(true), "model", "type", "BPE", "dropout", "unk_token",
                  "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback",
                  0, "ignore_merges", 0, "vocab", vocab, "merges", merges);
    return *root && !failed ? SHOAL_OK
                            : SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a tokenizer.json");
}

static shoal_status train(const shoal_tokenizer_train_args *args, shoal_tokenizer **tokenizer)
{
    shoal_status status;
    const struct pattern *pattern;
    struct shoali_word_counts counts = {0};
    struct shoali_arena arena;
    struct shoali_trained trained = {.arena = &arena};
    int32_t byte_id[256];
    json_t *root = NULL;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, find_pattern(args->pattern ? args->pattern : "gpt2", &pattern), done);
    if (args->path_count < 1) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "there is no text to learn a vocabulary from: name files");
        goto done;
    }
    SHOAL_TRY(status, begin_vocab(args, &trained, byte_id), done);
    SHOAL_TRY(status, count_files(args, pattern, &counts), done);
    SHOAL_TRY(
        status,
        shoali_learn_merges(&counts, byte_id, args->vocab_size, args->min_frequency, &trained),
        done);
    SHOAL_TRY(status, write_root(args, pattern, &trained, &root), done);
    SHOAL_TRY(status, shoali_pipeline_create("the trained tokenizer", root, tokenizer), done);
done:
    json_decref(root);
    shoali_word_counts_fini(&counts);
    shoali_arena_fini(&arena);
    return status;
}

shoal_status shoal_tokenizer_train(const shoal_tokenizer_train_args *args,
                                   shoal_tokenizer **tokenizer)
{
    shoal_status status;
    shoal_tokenizer_train_args own = {0};
    *tokenizer = NULL;
    if (args)
        own = *args;
    SHOAL_TRY(status, train(&own, tokenizer), done);
done:
    return status;
}
