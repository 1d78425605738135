/* The map of masked samples: runs of sentences. */
#include "data/indexed/indexed.h"

#include <math.h>
#include <string.h>

#define EPOCHS_MAX (INT32_MAX - 1)

/* What a pass over the documents leaves: rows, or with `row` NULL their number alone. */
struct making {
    const struct shoali_masked_args *args;
    struct shoali_mt19937 lengths;
    uint32_t ratio; /* one of so many samples is shorter; 0: none */
    uint32_t *row;
    int64_t count;
};

static int64_t draw_tokens(struct making *making)
{
    const int64_t most = making->args->most_tokens;
    if (making->ratio == 0)
        return most;
    const uint32_t word = shoali_mt19937_next(&making->lengths);
    return word % making->ratio == 0 ? 2 + word % (most - 1) : most;
}

static void put_row(struct making *making, int64_t first, int64_t end, int64_t tokens)
{
    if (making->row) {
        uint32_t *row = making->row + 3 * making->count;
        row[0] = (uint32_t)first;
        row[1] = (uint32_t)end;
        row[2] = (uint32_t)tokens;
    }
    making->count++;
}

static bool is_usable(const struct shoali_masked_args *args, int64_t first, int64_t end)
{
    const int64_t base = args->boundaries[0];
    bool usable = end - first >= args->least_sentences;
    for (int64_t i = first; usable && end - first > 1 && i < end; i++)
        usable = args->lengths[i - base] <= SHOALI_SENTENCE_TOKENS;
    return usable;
}

static void add_document(struct making *making, int64_t first, int64_t end)
{
    const struct shoali_masked_args *args = making->args;
    const int64_t base = args->boundaries[0];
    if (!is_usable(args, first, end))
        return;
    int64_t wanted = draw_tokens(making), begin = first, tokens = 0;
    for (int64_t i = first; i < end; i++) {
        const int64_t left = end - i - 1;
        tokens += args->lengths[i - base];
        if (left == 0 || (tokens >= wanted && left > 1 && i + 1 - begin >= args->least_sentences)) {
            put_row(making, begin, i + 1, wanted);
            begin = i + 1;
            tokens = 0;
            wanted = draw_tokens(making);
        }
    }
}

/* Whole epochs until there are enough. */
static void make(struct making *making)
{
    const struct shoali_masked_args *args = making->args;
    shoali_mt19937_init(&making->lengths, args->seed);
    making->count = 0;
    for (int64_t epoch = 0; epoch < (args->sample_count > 0 ? EPOCHS_MAX : 1); epoch++) {
        if (args->sample_count > 0 && making->count >= args->sample_count)
            break;
        for (int64_t d = 0; d < args->document_count; d++)
            add_document(making, args->boundaries[d], args->boundaries[d + 1]);
        if (making->count == 0)
            break;
    }
}

static void shuffle(uint32_t *row, int64_t count, uint32_t seed)
{
    struct shoali_mt19937_64 generator;
    shoali_mt19937_64_init(&generator, (uint64_t)seed + 1);
    for (int64_t i = count - 1; i > 0; i--) {
        uint32_t kept[3];
        uint32_t *a = row + 3 * i,
                 *b = row + 3 * (shoali_mt19937_64_next(&generator) % (uint64_t)(i + 1));
        memcpy(kept, a, sizeof kept);
        memmove(a, b, sizeof kept);
        memcpy(b, kept, sizeof kept);
    }
}

shoal_status shoali_masked_index(const struct shoali_masked_args *args, uint32_t **rows,
                                 int64_t *count)
{
    struct making making = {.args = args};
    *rows = NULL;
    if (args->short_seq_prob > 0)
        making.ratio = (uint32_t)round(1.0 / args->short_seq_prob);
    make(&making);
    *count = making.count;
    if (making.count == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "none of its %lld documents has %d sentences or more of at most %d "
                          "tokens: were the files made with shoal preprocess --split-sentences?",
                          (long long)args->document_count, (int)args->least_sentences,
                          SHOALI_SENTENCE_TOKENS);
    making.row = shoali_malloc((size_t)making.count * 3 * sizeof *making.row, "a sample index");
    if (!making.row)
        return SHOAL_ENOMEM;
    make(&making);
    shuffle(making.row, making.count, args->seed);
    *rows = making.row;
    return SHOAL_OK;
}
