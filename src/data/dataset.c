/* Tokens, cut into train, validation and test: one array of them, or data files. */
#include "data/indexed/indexed.h"
#include "data/token_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOCK_TOKENS (INT64_C(1) << 20)
#define MOCK_VOCAB 256

struct shoal_dataset {
    shoal_tokenizer *tokenizer;          /* NULL: mock, indexed */
    struct shoali_token_source *source;  /* NULL: indexed */
    struct shoali_indexed_data *indexed; /* NULL: text or mock */
    int32_t file_count;
    int64_t cut[SHOAL_SPLIT_COUNT + 1]; /* part p is [cut[p], cut[p+1]) */
    uint64_t fingerprint;
};

static const char *const split_names[SHOAL_SPLIT_COUNT] = {"train", "validation", "test"};

/* ---- split ---- */

static shoal_status bad_split(const char *spec)
{
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "split `%s`: give two or three weights such as 90,10 or 969,30,1: train, "
                      "validation, test; one weight is all train",
                      spec);
}

static shoal_status parse_split(const char *spec, double weight[SHOAL_SPLIT_COUNT])
{
    char copy[128];
    double sum = 0;
    int parts = 0;
    if (strlen(spec) >= sizeof(copy))
        return bad_split(spec);
    strcpy(copy, spec);
    for (char *word = copy; word;) {
        char *comma = strchr(word, ',');
        if (comma)
            *comma++ = '\0';
        if (parts == SHOAL_SPLIT_COUNT || !shoali_parse_f64(word, &weight[parts]) ||
            !(weight[parts] >= 0) || !isfinite(weight[parts]))
            return bad_split(spec);
        sum += weight[parts++];
        word = comma;
    }
    return sum > 0 && isfinite(sum) ? SHOAL_OK : bad_split(spec);
}

static shoal_status cut_parts(shoal_dataset *dataset, const char *spec)
{
    double weight[SHOAL_SPLIT_COUNT] = {0}, sum = 0, before = 0;
    shoal_status status = parse_split(spec ? spec : "90,10", weight);
    if (status < 0)
        return status;
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        sum += weight[p];
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++) {
        before += weight[p];
        dataset->cut[p + 1] = (int64_t)rint(before / sum * (double)dataset->source->count);
    }
    dataset->cut[SHOAL_SPLIT_COUNT] = dataset->source->count;
    return SHOAL_OK;
}

/* ---- sources ---- */

static shoal_status open_text(shoal_dataset *dataset, const shoal_dataset_args *args)
{
    shoal_status status;
    struct shoali_token_opened opened = {0};
    SHOAL_TRY(status, shoali_token_cache_open(args, &opened), done);
    dataset->tokenizer = opened.tokenizer;
    dataset->source = opened.source;
    dataset->file_count = opened.file_count;
done:
    return status;
}

static int32_t mock_vocabulary(const shoal_dataset_args *args)
{
    return args->mock_vocab_size ? args->mock_vocab_size : MOCK_VOCAB;
}

static shoal_status open_mock(shoal_dataset *dataset, const shoal_dataset_args *args)
{
    const int64_t count = args->mock_token_count ? args->mock_token_count : MOCK_TOKENS;
    if (mock_vocabulary(args) < 1 || count < 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "mock data: %d kinds of %lld tokens; both must be positive",
                          mock_vocabulary(args), (long long)count);
    return shoali_token_mock_open(args->seed, mock_vocabulary(args), count, &dataset->source);
}

static shoal_status check_tokenizer(const shoal_dataset_args *args)
{
    shoal_status status = SHOAL_OK;
    if (args->use_tokenizer || args->mock || !args->tokenizer ||
        strcmp(args->tokenizer, "byte") == 0 || strcmp(args->tokenizer, "char") == 0)
        return SHOAL_OK;
    shoal_tokenizer *none = NULL;
    status = shoal_tokenizer_create(args->tokenizer, "", 0, &none);
    shoal_tokenizer_destroy(none);
    return status;
}

/* ---- data files ---- */

static shoal_status open_indexed(shoal_dataset *dataset, const shoal_dataset_args *args)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_indexed_data_open(args, &dataset->indexed), done);
    dataset->file_count = dataset->indexed->file_count;
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++) {
        dataset->cut[p + 1] = dataset->cut[p];
        for (int32_t i = 0; i < dataset->indexed->split[p].count; i++)
            dataset->cut[p + 1] += dataset->indexed->split[p].part[i].tokens;
    }
    const uint64_t hashes[] = {dataset->indexed->hash, (uint64_t)dataset->indexed->vocab_size};
    dataset->fingerprint = shoali_hash64(hashes, sizeof hashes);
done:
    return status;
}

const struct shoali_indexed_data *shoali_dataset_indexed(const shoal_dataset *dataset)
{
    return dataset->indexed;
}

/* ---- public ---- */

static shoal_status open_dataset(const shoal_dataset_args *args, shoal_dataset **dataset)
{
    shoal_status status;
    bool indexed;
    shoal_dataset *made = shoali_calloc(1, sizeof(*made), "a dataset");
    if (!made)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, check_tokenizer(args), done);
    SHOAL_TRY(status, shoali_indexed_recognize(args, &indexed), done);
    if (indexed) {
        SHOAL_TRY(status, open_indexed(made, args), done);
        *dataset = made;
        made = NULL;
        goto done;
    }
    if (args->eod_given) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "--eod-id is for data files: text has no documents");
        goto done;
    }
    if (args->vocab_size > 0 && !args->mock) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "--vocab-size is for --mock-data and data files: the tokens "
                                     "of text are counted");
        goto done;
    }
    SHOAL_TRY(status, args->mock ? open_mock(made, args) : open_text(made, args), done);
    SHOAL_TRY(status, cut_parts(made, args->split), done);
    uint64_t hashes[] = {made->source->hash, (uint64_t)made->source->vocab_size,
                         (uint64_t)made->cut[1], (uint64_t)made->cut[2]};
    made->fingerprint = shoali_hash64(hashes, sizeof(hashes));
    *dataset = made;
    made = NULL;
done:
    shoal_dataset_destroy(made);
    return status;
}

void shoal_dataset_destroy(shoal_dataset *dataset)
{
    if (!dataset)
        return;
    shoali_token_source_close(dataset->source);
    shoali_indexed_data_close(dataset->indexed);
    shoal_tokenizer_destroy(dataset->tokenizer);
    shoali_free(dataset);
}

const shoal_tokenizer *shoal_dataset_tokenizer(const shoal_dataset *dataset)
{
    return dataset->indexed ? dataset->indexed->tokenizer : dataset->tokenizer;
}

int32_t shoal_dataset_vocab_size(const shoal_dataset *dataset)
{
    return dataset->indexed ? dataset->indexed->vocab_size : dataset->source->vocab_size;
}

int32_t shoal_dataset_file_count(const shoal_dataset *dataset)
{
    return dataset->file_count;
}

int64_t shoal_dataset_token_count(const shoal_dataset *dataset, shoal_split split)
{
    if ((int)split < 0 || split >= SHOAL_SPLIT_COUNT)
        return 0;
    return dataset->cut[split + 1] - dataset->cut[split];
}

shoal_status shoal_dataset_read(const shoal_dataset *dataset, shoal_split split, int64_t first,
                                int64_t count, int32_t *tokens)
{
    int64_t total = shoal_dataset_token_count(dataset, split);
    if (dataset->indexed)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "data files are read by samples: their tokens have no one order");
    if (first < 0 || count < 0 || first > total || count > total - first)
        return SHOAL_FAIL(SHOAL_EINVAL, "tokens [%lld, %lld + %lld) are outside the part of %lld",
                          (long long)first, (long long)first, (long long)count, (long long)total);
    return dataset->source->ops->read(dataset->source, dataset->cut[split] + first, count, tokens);
}

const char *shoal_dataset_path(const shoal_dataset *dataset)
{
    return dataset->source ? dataset->source->path : NULL;
}

static int64_t text_host_bytes(const shoal_tokenizer *tokenizer)
{
    return (int64_t)sizeof(struct shoal_dataset) + shoali_tokenizer_host_bytes(tokenizer) +
           (int64_t)shoali_token_file_host_bytes();
}

int64_t shoal_dataset_host_bytes(const shoal_dataset *dataset)
{
    if (dataset->indexed)
        return (int64_t)sizeof(*dataset) + shoali_indexed_data_bytes(dataset->indexed);
    return dataset->tokenizer ? text_host_bytes(dataset->tokenizer)
                              : (int64_t)(sizeof(*dataset) + dataset->source->host_bytes);
}

static shoal_status peek_char(const shoal_dataset_args *args, shoal_tokenizer **tokenizer)
{
    shoal_status status;
    struct shoali_token_opened opened;
    struct shoali_files files = {0};
    struct shoali_scan scan = {0};
    SHOAL_TRY(status, shoali_token_cache_find(args, &opened), done);
    if (status == SHOAL_OK) {
        *tokenizer = opened.tokenizer;
        opened.tokenizer = NULL;
        shoali_token_opened_fini(&opened);
        return SHOAL_OK;
    }
    SHOAL_TRY(status, shoali_files_find(args, &files), done);
    SHOAL_TRY(status, shoali_scan_init(&scan, &files, true, -1), done);
    SHOAL_TRY(status, shoali_tokenizer_from_set(scan.seen, tokenizer), done);
done:
    shoali_scan_fini(&scan);
    shoali_files_fini(&files);
    return status;
}

static shoal_status peek(const shoal_dataset_args *args, shoal_dataset_info *info)
{
    shoal_status status;
    shoal_tokenizer *tokenizer = NULL;
    shoal_dataset *mock = NULL;
    struct shoali_files files = {0};
    bool indexed;
    SHOAL_TRY(status, check_tokenizer(args), done);
    SHOAL_TRY(status, shoali_indexed_recognize(args, &indexed), done);
    if (args->mock || indexed) {
        SHOAL_TRY(status, open_dataset(args, &mock), done);
        info->vocab_size = shoal_dataset_vocab_size(mock);
        info->host_bytes = shoal_dataset_host_bytes(mock);
        goto done;
    }
    if (args->use_tokenizer)
        SHOAL_TRY(status, shoali_tokenizer_copy(args->use_tokenizer, &tokenizer), done);
    else if (args->tokenizer && strcmp(args->tokenizer, "char") == 0)
        SHOAL_TRY(status, peek_char(args, &tokenizer), done);
    else
        SHOAL_TRY(status, shoal_tokenizer_create("byte", "", 0, &tokenizer), done);
    SHOAL_TRY(status, shoali_files_find(args, &files), done);
    info->vocab_size = shoal_tokenizer_vocab_size(tokenizer);
    info->host_bytes = text_host_bytes(tokenizer);
done:
    shoal_dataset_destroy(mock);
    shoal_tokenizer_destroy(tokenizer);
    shoali_files_fini(&files);
    return status;
}

static shoal_status read_args(const shoal_dataset_args *args, size_t args_size,
                              shoal_dataset_args *own)
{
    *own = (shoal_dataset_args){0};
    return SHOALI_SIZED_READ(shoal_dataset_args, seed, args, args_size, own);
}

shoal_status shoal_dataset_create_sized(const shoal_dataset_args *args, size_t args_size,
                                        shoal_dataset **dataset)
{
    shoal_status status;
    shoal_dataset_args own;
    *dataset = NULL;
    SHOAL_TRY(status, read_args(args, args_size, &own), done);
    SHOAL_TRY(status, open_dataset(&own, dataset), done);
done:
    return status;
}

shoal_status shoal_dataset_peek_sized(const shoal_dataset_args *args, size_t args_size,
                                      shoal_dataset_info *info, size_t info_size)
{
    shoal_status status;
    shoal_dataset_args own;
    shoal_dataset_info found = {0};
    SHOAL_TRY(status, read_args(args, args_size, &own), done);
    SHOAL_TRY(status, peek(&own, &found), done);
done:
    shoali_sized_copy(info, info_size, &found, sizeof found);
    return status;
}

uint64_t shoal_dataset_fingerprint(const shoal_dataset *dataset)
{
    return dataset->fingerprint;
}

/* Adds to counts[v] how often v occurs in [0, end). */
static shoal_status count_until(const struct shoali_token_source *source, int64_t end,
                                int64_t *counts)
{
    shoal_status status = SHOAL_OK;
    int64_t until = 0;
    if (source->ops->count_until)
        SHOAL_TRY(status, source->ops->count_until(source, end, counts, &until), done);
    SHOAL_TRY(status, shoali_token_source_count(source, until, end - until, counts), done);
done:
    return status;
}

static shoal_status count_part(const shoal_dataset *dataset, shoal_split split, int64_t *counts)
{
    shoal_status status;
    const size_t vocab = (size_t)dataset->source->vocab_size;
    int64_t *before = shoali_calloc(vocab, sizeof(*before), "token counts");
    if (!before)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, count_until(dataset->source, dataset->cut[split], before), done);
    SHOAL_TRY(status, count_until(dataset->source, dataset->cut[split + 1], counts), done);
    for (size_t v = 0; v < vocab; v++)
        counts[v] -= before[v];
done:
    shoali_free(before);
    return status;
}

static double mean_surprise(const int64_t *train, const int64_t *part, size_t vocab)
{
    int64_t extra = 0, train_count = 0, part_count = 0;
    for (size_t v = 0; v < vocab; v++) {
        if (train[v] == 0 && part[v] > 0)
            extra = 1;
        train_count += train[v];
        part_count += part[v];
    }
    double sum = 0, all = (double)train_count + (double)extra * (double)vocab;
    for (size_t v = 0; v < vocab; v++)
        if (part[v] > 0)
            sum -= (double)part[v] * shoali_ln((double)(train[v] + extra) / all);
    return sum / (double)part_count;
}

shoal_status shoal_dataset_unigram_entropy(const shoal_dataset *dataset, shoal_split split,
                                           double *nats_per_token)
{
    shoal_status status;
    const size_t vocab = (size_t)shoal_dataset_vocab_size(dataset);
    const int64_t n = shoal_dataset_token_count(dataset, split);
    if (dataset->indexed)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "unigram entropy: data files are not counted");
    if (n == 0 || shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN) == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "unigram entropy: the %s part has no tokens",
                          n == 0 ? split_names[(unsigned)split % SHOAL_SPLIT_COUNT] : "train");
    int64_t *counts = shoali_calloc(2 * vocab, sizeof(*counts), "token counts");
    if (!counts)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, count_part(dataset, SHOAL_SPLIT_TRAIN, counts), done);
    SHOAL_TRY(status, count_part(dataset, split, counts + vocab), done);
    *nats_per_token = mean_surprise(counts, counts + vocab, vocab);
done:
    shoali_free(counts);
    return status;
}
