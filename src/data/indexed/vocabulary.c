/* The vocabulary of data files: what their .tokens.json say, and what is given. */
#include "data/indexed/indexed.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* P.tokens.json, which shoal preprocess writes: SHOAL_END when there is none. */
static shoal_status read_description(const char *path, struct shoali_indexed_data *data)
{
    shoal_status status;
    char *text = NULL, *tokenizer = NULL;
    size_t bytes;
    json_t *root = NULL;
    status = shoali_read_file(path, &text, &bytes);
    if (status == SHOAL_ENOENT)
        return SHOAL_END;
    if (status < 0)
        goto done;
    SHOAL_TRY(status, shoali_json_read(text, bytes, &root, NULL), done);
    const json_t *vocab = json_object_get(root, "vocab_size"), *eod = json_object_get(root, "eod");
    const json_t *inner = json_object_get(root, "tokenizer");
    const int64_t size = json_integer_value(vocab);
    if (!json_is_integer(vocab) || size < 1 || size > INT32_MAX || !json_is_object(inner) ||
        (eod && (!json_is_integer(eod) || json_integer_value(eod) < -1 ||
                 json_integer_value(eod) >= size))) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "it needs vocab_size, tokenizer and, if any, eod");
        goto done;
    }
    data->vocab_size = (int32_t)size;
    data->eod = eod ? (int32_t)json_integer_value(eod) : -1;
    SHOAL_TRY(status, shoali_json_write(inner, JSON_COMPACT, "a tokenizer", &tokenizer), done);
    if (shoali_data_tokenizers[0])
        status =
            shoali_data_tokenizers[0]->from_json(tokenizer, strlen(tokenizer), &data->tokenizer);
done:
    if (status < 0)
        status = shoali_error_prefix(status == SHOAL_ECORRUPT ? SHOAL_EINVAL : status, "%s", path);
    free(text);
    free(tokenizer);
    json_decref(root);
    return status;
}

static shoal_status describe_file(const struct shoali_indexed *file,
                                  struct shoali_indexed_data *data)
{
    struct shoali_str path = {0};
    shoali_str_append(&path, "%s.tokens.json", file->prefix);
    const shoal_status status = path.failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a name")
                                            : read_description(shoali_str_get(&path), data);
    shoali_str_fini(&path);
    return status;
}

/* Whether `one` means the same by its ids as the files before it. */
static shoal_status agree(const struct shoali_indexed_data *data,
                          const struct shoali_indexed_data *one, bool *equal)
{
    *equal = one->vocab_size == data->vocab_size && one->eod == data->eod;
    if (!*equal || !one->tokenizer)
        return SHOAL_OK;
    return shoali_data_tokenizers[0]->is_same(data->tokenizer, one->tokenizer, equal);
}

/* The descriptions of all files that have one must agree. */
static shoal_status describe_files(struct shoali_indexed_data *data,
                                   struct shoali_indexed_records *records)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < data->file_count; i++) {
        struct shoali_indexed_data one = {.eod = -1};
        bool equal = true;
        status = describe_file(data->file[i], &one);
        if (status < 0)
            return status;
        if (status == SHOAL_END) {
            records->without = records->without ? records->without : data->file[i]->prefix;
            continue;
        }
        if (!records->first) {
            records->first = data->file[i]->prefix;
            data->vocab_size = one.vocab_size;
            data->eod = one.eod;
            data->tokenizer = one.tokenizer;
            continue;
        }
        status = agree(data, &one, &equal);
        if (one.tokenizer)
            shoali_data_tokenizers[0]->destroy(one.tokenizer);
        if (status >= 0 && !equal)
            status = SHOAL_FAIL(SHOAL_EINVAL,
                                "%s and %s were made with different tokenizers (their .tokens.json "
                                "say so): a blend needs one",
                                records->first, data->file[i]->prefix);
        if (status < 0)
            return status;
    }
    return SHOAL_OK;
}

/* ---- all of it ---- */

static shoal_status choose_sizes(struct shoali_indexed_data *data, const shoal_dataset_args *args)
{
    struct shoali_tokenizer_facts facts = {.eod = -1};
    if (data->tokenizer)
        shoali_data_tokenizers[0]->get_facts(data->tokenizer, &facts);
    if (args->vocab_size > 0)
        data->vocab_size = args->vocab_size;
    else if (data->vocab_size == 0)
        data->vocab_size = facts.vocab_size;
    if (args->vocab_size == 0 && data->vocab_size < args->least_vocab_size)
        data->vocab_size = args->least_vocab_size;
    if (data->vocab_size < facts.vocab_size)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--vocab-size %d is less than the %d of the tokenizer `%s` that %s was "
                          "made with",
                          data->vocab_size, facts.vocab_size, facts.name, data->file[0]->prefix);
    if (data->vocab_size == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s does not say how large its vocabulary is, and there is no "
                          "%s.tokens.json: give --vocab-size N, or --tokenizer-type",
                          data->file[0]->prefix, data->file[0]->prefix);
    if (args->eod_given)
        data->eod = args->eod_token;
    else if (data->eod < 0)
        data->eod = facts.eod;
    if (data->eod >= data->vocab_size)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the end-of-document token %d is outside the vocabulary of %d", data->eod,
                          data->vocab_size);
    return SHOAL_OK;
}

shoal_status shoali_indexed_find_vocabulary(struct shoali_indexed_data *data,
                                            const shoal_dataset_args *args)
{
    shoal_status status;
    struct shoali_indexed_records records = {0};
    struct shoali_tokenizer_facts facts;
    data->eod = -1;
    SHOAL_TRY(status, describe_files(data, &records), done);
    if (data->tokenizer) {
        shoali_data_tokenizers[0]->get_facts(data->tokenizer, &facts);
        data->hash = shoali_hash64(facts.json, strlen(facts.json));
    }
    if (shoali_data_tokenizers[0]) {
        SHOAL_TRY(status, shoali_data_tokenizers[0]->take_given(data, args, &records), done);
    } else if (args->tokenizer) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "this build has no tokenizer `%s` (SHOAL_WITH_TOKENIZER=OFF): give the "
                            "size of the vocabulary alone",
                            args->tokenizer);
        goto done;
    }
    SHOAL_TRY(status, choose_sizes(data, args), done);
done:
    return status;
}
