/* Tokens, cut into train, validation and test: one array of them, or data files. */
#include "data/indexed/indexed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOCK_TOKENS (INT64_C(1) << 20)
#define MOCK_VOCAB 256

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

static int32_t mock_vocabulary(const shoal_dataset_args *args)
{
    return args->mock_vocab_size ? args->mock_vocab_size : MOCK_VOCAB;
}

static shoal_status is_mock(const shoal_dataset_args *args, bool *is)
{
    *is = args->mock;
    return SHOAL_OK;
}

static shoal_status open_mock(const shoal_dataset_args *args, shoal_dataset *dataset)
{
    const int64_t count = args->mock_token_count ? args->mock_token_count : MOCK_TOKENS;
    if (mock_vocabulary(args) < 1 || count < 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "mock data: a vocabulary of %d and %lld tokens; both must be positive",
                          mock_vocabulary(args), (long long)count);
    return shoali_token_mock_open(args->seed, mock_vocabulary(args), count, &dataset->source);
}

const struct shoali_data_source shoali_data_mock = {
    .name = "mock data",
    .probe = is_mock,
    .open = open_mock,
};

static shoal_status open_indexed(const shoal_dataset_args *args, shoal_dataset *dataset)
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

const struct shoali_data_source shoali_data_indexed = {
    .name = "data files",
    .probe = shoali_indexed_recognize,
    .open = open_indexed,
};

const struct shoali_indexed_data *shoali_dataset_indexed(const shoal_dataset *dataset)
{
    return dataset->indexed;
}

/* ---- public ---- */

static shoal_status find_source(const shoal_dataset_args *args,
                                const struct shoali_data_source **source)
{
    shoal_status status = SHOAL_OK;
    const bool named = args->tokenizer && !args->use_tokenizer && !args->mock;
    bool is = false;
    *source = NULL;
    if (named && shoali_data_tokenizers[0])
        SHOAL_TRY(status, shoali_data_tokenizers[0]->check_name(args->tokenizer), done);
    for (int32_t i = 0; shoali_data_sources[i]; i++) {
        SHOAL_TRY(status, shoali_data_sources[i]->probe(args, &is), done);
        *source = shoali_data_sources[i];
        if (is)
            return SHOAL_OK;
    }
    status = SHOAL_FAIL(SHOAL_EINVAL, "this build has no reader of text (SHOAL_WITH_TOKENIZER=OFF):"
                                      " give data files (PREFIX.bin and PREFIX.idx) or mock data");
done:
    return status;
}

static shoal_status check_source(const shoal_dataset_args *args,
                                 const struct shoali_data_source *source)
{
    if (source == &shoali_data_indexed)
        return SHOAL_OK;
    if (args->eod_given)
        return SHOAL_FAIL(SHOAL_EINVAL, "--eod-id is for data files: text has no documents");
    if (args->vocab_size > 0 && !args->mock)
        return SHOAL_FAIL(SHOAL_EINVAL, "--vocab-size is for --mock-data and data files: the "
                                        "tokenizer of text files has its own");
    return SHOAL_OK;
}

static shoal_status open_dataset(const shoal_dataset_args *args, shoal_dataset **dataset)
{
    shoal_status status;
    const struct shoali_data_source *source;
    shoal_dataset *made = shoali_calloc(1, sizeof(*made), "a dataset");
    if (!made)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, find_source(args, &source), done);
    SHOAL_TRY(status, check_source(args, source), done);
    SHOAL_TRY(status, source->open(args, made), done);
    if (made->source) {
        SHOAL_TRY(status, cut_parts(made, args->split), done);
        uint64_t hashes[] = {made->source->hash, (uint64_t)made->source->vocab_size,
                             (uint64_t)made->cut[1], (uint64_t)made->cut[2]};
        made->fingerprint = shoali_hash64(hashes, sizeof(hashes));
    }
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
    if (dataset->tokenizer)
        shoali_data_tokenizers[0]->destroy(dataset->tokenizer);
    free(dataset->report);
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

const char *shoal_dataset_describe_files(const shoal_dataset *dataset)
{
    const char *report = dataset->indexed ? dataset->indexed->report : dataset->report;
    return report ? report : "";
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
                          "data files are read by samples: their tokens have no single order");
    if (first < 0 || count < 0 || first > total || count > total - first)
        return SHOAL_FAIL(SHOAL_EINVAL, "tokens [%lld, %lld + %lld) are outside the part of %lld",
                          (long long)first, (long long)first, (long long)count, (long long)total);
    return dataset->source->ops->read(dataset->source, dataset->cut[split] + first, count, tokens);
}

const char *shoal_dataset_path(const shoal_dataset *dataset)
{
    return dataset->source ? dataset->source->path : NULL;
}

int64_t shoal_dataset_host_bytes(const shoal_dataset *dataset)
{
    struct shoali_tokenizer_facts facts = {0};
    if (dataset->tokenizer)
        shoali_data_tokenizers[0]->get_facts(dataset->tokenizer, &facts);
    return (int64_t)sizeof(*dataset) + facts.host_bytes +
           (dataset->indexed ? shoali_indexed_data_bytes(dataset->indexed)
                             : (int64_t)dataset->source->host_bytes);
}

shoal_status shoal_dataset_create(const shoal_dataset_args *args, shoal_dataset **dataset)
{
    const shoal_dataset_args own = args ? *args : (shoal_dataset_args){0};
    *dataset = NULL;
    return open_dataset(&own, dataset);
}

shoal_status shoal_dataset_peek(const shoal_dataset_args *args, shoal_dataset_info *info)
{
    shoal_status status;
    const shoal_dataset_args own = args ? *args : (shoal_dataset_args){0};
    const struct shoali_data_source *source;
    shoal_dataset *dataset = NULL;
    shoal_dataset_info found = {0};
    SHOAL_TRY(status, find_source(&own, &source), done);
    if (source->peek) {
        SHOAL_TRY(status, source->peek(&own, &found), done);
    } else {
        SHOAL_TRY(status, open_dataset(&own, &dataset), done);
        found.vocab_size = shoal_dataset_vocab_size(dataset);
        found.host_bytes = shoal_dataset_host_bytes(dataset);
    }
done:
    shoal_dataset_destroy(dataset);
    if (info)
        *info = found;
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
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "unigram entropy: data files are not supported");
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
