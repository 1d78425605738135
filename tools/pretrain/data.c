/* Megatron's flags for data, and what `shoal pretrain` makes of them: the arguments of a data set
 * and of its loaders. */
#include "pretrain/pretrain.h"

#include "base/json.h"
#include "base/str.h"

#include <float.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct pretrain_data, key, type, member, __VA_ARGS__)

static const char *const orders[] = {"single", "cyclic", NULL};

static const struct shoali_option rows[] = {
    OPTION("train-data-path", STRINGS, split_path[SHOAL_SPLIT_TRAIN],
           .flags = SHOALI_OPTION_BY_RANK,
           .help = "data files of the training part, in the form of --data-path; instead of "
                   "--data-path and --split"),
    OPTION("valid-data-path", STRINGS, split_path[SHOAL_SPLIT_VALID],
           .flags = SHOALI_OPTION_BY_RANK, .help = "data files of the validation part"),
    OPTION("test-data-path", STRINGS, split_path[SHOAL_SPLIT_TEST], .flags = SHOALI_OPTION_BY_RANK,
           .help = "data files of the test part, on which no loss is computed"),
    OPTION("data-args-path", STRING, args_path, .flags = SHOALI_OPTION_BY_RANK,
           .help = "file with the words of --data-path"),
    OPTION("per-split-data-args-path", STRING, per_split_args_path, .flags = SHOALI_OPTION_BY_RANK,
           .help =
               "JSON file {\"train\": [...], \"valid\": [...], \"test\": [...]} with the words of "
               "--train-data-path, --valid-data-path and --test-data-path"),
    OPTION("json-keys", STRINGS, json_keys, .default_text = "text",
           .help = "JSON keys of the texts in *.jsonl files"),
    OPTION("data-text", BOOL, text,
           .help = "read JSON in files of other names than *.jsonl as text, with braces and keys"),
    OPTION("data-files-report", BOOL, files_report, .flags = SHOALI_OPTION_BY_RANK,
           .help = "list every text file, and whether it is read or skipped"),
    OPTION(
        "dataloader-type", ENUM, order, .choices = orders,
        .help =
            "order of samples of data files; single: one order for all samples of --train-iters; "
            "cyclic: a new shuffle in each epoch, as with Megatron's --no-data-sharding"),
    OPTION("mid-level-dataset-surplus", FLOAT, surplus, .default_number = 0.005, .min = 0, .max = 1,
           .help = "fraction of extra samples made of each part of a blend"),
    OPTION("eod-mask-loss", BOOL, eod_mask_loss,
           .help = "leave the token after the end of a document out of the loss; for data files"),
    OPTION("eod-id", INT, eod, .default_number = -1, .min = 0, .max = INT32_MAX,
           .help = "end-of-document token of data files; default: as their .tokens.json says"),
    OPTION("mask-prob", FLOAT, mask_prob, .default_number = 0.15, .min = 0, .max = 1,
           .help = "fraction of tokens that are masked (bert)"),
    OPTION("short-seq-prob", FLOAT, short_seq_prob, .default_number = 0.1, .min = 0, .max = 1,
           .help = "fraction of samples that are shorter than --seq-length (bert)"),
    OPTION(
        "strict-data", BOOL, strict,
        .help =
            "fail when data, their weights, --split or flags of samples differ from those of the "
            "checkpoint of --load"),
    OPTION(
        "allow-other-tokenizer", BOOL, allow_other_tokenizer,
        .help =
            "train although data files, --load and the tokenizer flags have different tokenizers; "
            "the flags' one is used, else that of --load"),
};
const struct shoali_section pretrain_data_section = {.name = "data",
                                                     .rows = SHOALI_ROWS(rows),
                                                     .struct_bytes = sizeof(struct pretrain_data),
                                                     .given_offset =
                                                         offsetof(struct pretrain_data, given)};

static const char *const split_keys[SHOAL_SPLIT_COUNT] = {"train", "valid", "test"};

/* ---- files with words ---- */

static shoal_status add_word(struct shoali_strings *words, const char *word,
                             struct shoali_arena *arena)
{
    /* the arena gives no memory back: grow by doubling */
    if ((words->count & (words->count - 1)) == 0) {
        const size_t room = words->count ? 2 * (size_t)words->count : 1;
        const char **grown = shoali_arena_alloc(arena, room * sizeof *grown);
        if (!grown)
            return SHOAL_ENOMEM;
        if (words->count)
            memcpy(grown, words->value, (size_t)words->count * sizeof *grown);
        words->value = grown;
    }
    words->value[words->count] = shoali_arena_strdup(arena, word);
    return words->value[words->count++] ? SHOAL_OK : SHOAL_ENOMEM;
}

static shoal_status read_words(const char *path, struct shoali_strings *words,
                               struct shoali_arena *arena)
{
    shoal_status status;
    char *text = NULL, *rest = NULL;
    size_t bytes;
    SHOAL_TRY(status, shoali_read_text(path, &text, &bytes), done);
    for (char *word = strtok_r(text + shoali_bom_bytes(text, bytes), " \t\r\n\f\v", &rest); word;
         word = strtok_r(NULL, " \t\r\n\f\v", &rest))
        SHOAL_TRY(status, add_word(words, word, arena), done);
    if (words->count == 0)
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "%s is empty: write the words of --data-path into it", path);
done:
    free(text);
    return status < 0 ? shoali_error_prefix(status, "--data-args-path") : status;
}

static shoal_status bad_split_file(const char *path)
{
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s must be {\"train\": [...], \"valid\": [...], \"test\": [...]}, each a "
                      "list of the words of --train-data-path, or null",
                      path);
}

static shoal_status take_list(const json_t *list, const char *path, struct shoali_strings *words,
                              struct shoali_arena *arena)
{
    shoal_status status = SHOAL_OK;
    if (!json_is_array(list))
        return json_is_null(list) ? SHOAL_OK : bad_split_file(path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *word = json_array_get(list, i);
        char number[64];
        if (json_is_number(word))
            snprintf(number, sizeof number, "%.17g", json_number_value(word));
        else if (!json_is_string(word))
            return bad_split_file(path);
        SHOAL_TRY(status,
                  add_word(words, json_is_string(word) ? json_string_value(word) : number, arena),
                  done);
    }
done:
    return status;
}

static shoal_status read_splits(const char *path, struct pretrain_data *data,
                                struct shoali_arena *arena)
{
    shoal_status status;
    char *text = NULL;
    size_t bytes;
    json_t *root = NULL, *list;
    const char *key;
    SHOAL_TRY(status, shoali_read_text(path, &text, &bytes), done);
    status = shoali_json_read(text, bytes, &root, NULL);
    if (status < 0) {
        status = shoali_error_prefix(status == SHOAL_ECORRUPT ? SHOAL_EINVAL : status, "%s", path);
        goto done;
    }
    if (!json_is_object(root) || json_object_size(root) == 0) {
        status = bad_split_file(path);
        goto done;
    }
    json_object_foreach(root, key, list)
    {
        int p = 0;
        while (p < SHOAL_SPLIT_COUNT && strcmp(key, split_keys[p]) != 0)
            p++;
        if (p == SHOAL_SPLIT_COUNT) {
            status = bad_split_file(path);
            goto done;
        }
        SHOAL_TRY(status, take_list(list, path, &data->split_path[p], arena), done);
    }
done:
    free(text);
    json_decref(root);
    return status < 0 ? shoali_error_prefix(status, "--per-split-data-args-path") : status;
}

/* ---- what excludes what ---- */

static bool has_splits(const struct pretrain_data *data)
{
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        if (data->split_path[p].count)
            return true;
    return false;
}

bool pretrain_has_data(const struct pretrain_options *options)
{
    return options->data_path.count || options->mock_data || has_splits(&options->data);
}

shoal_status pretrain_data_finish(struct pretrain_options *options, struct shoali_arena *arena)
{
    shoal_status status = SHOAL_OK;
    struct pretrain_data *data = &options->data;
    const char *given[5];
    int count = 0;
    if (options->data_path.count)
        given[count++] = "--data-path";
    if (options->mock_data)
        given[count++] = "--mock-data";
    if (data->args_path)
        given[count++] = "--data-args-path";
    if (has_splits(data))
        given[count++] = "--train-data-path and so on";
    if (data->per_split_args_path)
        given[count++] = "--per-split-data-args-path";
    if (count > 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s and %s exclude each other: give one of them", given[0],
                          given[1]);
    if (data->args_path)
        SHOAL_TRY(status, read_words(data->args_path, &options->data_path, arena), done);
    if (data->per_split_args_path)
        SHOAL_TRY(status, read_splits(data->per_split_args_path, data, arena), done);
    const struct shoali_section *section = &pretrain_data_section;
    const bool masked = shoali_config_given(section, data, "mask-prob"),
               shorter = shoali_config_given(section, data, "short-seq-prob");
    if ((masked || shorter) && pretrain_samples(options) == SHOAL_SAMPLE_NEXT_TOKEN)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--%s is for masked samples, and `%s` predicts the next token: leave "
                            "it out",
                            masked ? "mask-prob" : "short-seq-prob",
                            shoal_model_config_name(options->model.config));
    else if (masked && data->mask_prob == 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "--mask-prob is 0, which masks nothing: give a value "
                                          "above 0");
    else if (has_splits(data) && options->split)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--split divides the files of --data-path: leave it out when each "
                            "part has its own files");
done:
    return status;
}

/* ---- arguments ---- */

shoal_dataset_args pretrain_data_args(const struct pretrain_options *options,
                                      const struct pretrain_tokenizer *own)
{
    const struct pretrain_data *data = &options->data;
    /* a model that is known by name has a value of its own: data that say theirs go before it */
    const bool given = model_flags_given(&options->model, "vocab-size") &&
                       !tokenizer_flags_take_vocab_size(&options->tokenizer);
    shoal_dataset_args args = {
        .paths = options->data_path.value,
        .path_count = options->data_path.count,
        .cache_path = options->data_cache_path,
        .tokenizer = options->tokenizer.type,
        .use_tokenizer = own->tokenizer,
        .split = options->split,
        .mock = options->mock_data,
        .mock_vocab_size =
            options->vocab_size > 0 ? (int32_t)options->vocab_size : own->mock_vocab_size,
        .seed = (uint64_t)options->shared.seed,
        .vocab_size = given ? (int32_t)options->vocab_size : 0,
        .least_vocab_size = options->hub.checkpoint ? (int32_t)options->vocab_size : 0,
        .eod_given = data->eod >= 0,
        .eod_token = (int32_t)data->eod,
        .json_keys = data->json_keys.value,
        .json_key_count = data->json_keys.count,
        .split_documents = pretrain_samples(options) != SHOAL_SAMPLE_NEXT_TOKEN,
        .data_text = data->text,
        .list_files = data->files_report,
        .tokenizer_source = *own->source ? own->source : NULL,
        .allow_other_tokenizer = data->allow_other_tokenizer};
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++) {
        args.split_paths[p] = data->split_path[p].value;
        args.split_path_count[p] = data->split_path[p].count;
    }
    return args;
}

shoal_sample_kind pretrain_samples(const struct pretrain_options *options)
{
    return shoal_model_config_samples(options->model.config);
}

/* As many validation samples as Megatron would make for the whole training. */
static int64_t valid_samples(const struct pretrain_options *options, int64_t batch)
{
    const int64_t times =
        options->eval_interval > 0 ? options->train_iters / options->eval_interval + 1 : 1;
    int64_t count;
    return shoali_mul(times, options->eval_iters, &count) && shoali_mul(count, batch, &count)
               ? count
               : INT64_MAX;
}

void pretrain_loader_args(const struct pretrain_options *options, shoal_split split,
                          shoal_loader_args *args)
{
    const int64_t batch = args->micro_batch * args->micro_batches;
    args->split = split;
    args->sequential = split != SHOAL_SPLIT_TRAIN && options->full_validation;
    /* 0 would be the default: the least that is none */
    args->surplus = options->data.surplus > 0 ? options->data.surplus : DBL_MIN;
    args->eod_mask_loss = options->data.eod_mask_loss;
    args->kind = pretrain_samples(options);
    args->mask_prob = options->data.mask_prob > 0 ? options->data.mask_prob : DBL_MIN;
    args->short_seq_prob = options->data.short_seq_prob > 0 ? options->data.short_seq_prob : -1;
    args->order =
        split == SHOAL_SPLIT_TRAIN ? (shoal_order)options->data.order : SHOAL_ORDER_SINGLE;
    if (split != SHOAL_SPLIT_TRAIN)
        args->sample_count = valid_samples(options, batch);
    else if (options->train_samples > 0) /* of which Megatron makes its order */
        args->sample_count = options->train_samples;
    else if (!shoali_mul(options->train_iters, batch, &args->sample_count))
        args->sample_count = INT64_MAX;
}
