/* data - tokens as samples: mock data and data files. Level L5, knows base alone; the interface is
 * shoal/data.h.
 *
 *   token_source.h where tokens come from: a table of functions
 *   token_mock.c   random tokens
 *   dataset.c      sources by the arguments, split, unigram entropy, fingerprint
 *   indexed/       Megatron's data files and the order of their samples (indexed.h)
 *   cache_place.h  where cached files are kept, and the lock under which they are made
 *   masked.h       samples of masked tokens; of random ones: masked_mock.c
 *   loader.c       the pure function (seed, n) -> sample n
 *   prefetch.c     a thread and a bounded ring in front of that function
 *
 * Text, and what tokenizers say, are rows of text_data/ in tables that the build writes. Without
 * that part both tables end before them.
 */
#ifndef SHOALI_DATA_H
#define SHOALI_DATA_H

#include "base/base.h"
#include "data/token_source.h"
#include "shoal/data.h"

/* ---- dataset.c ---- */

struct shoali_indexed_data;
struct shoal_dataset {
    shoal_tokenizer *tokenizer;          /* owned; NULL: mock, indexed */
    struct shoali_token_source *source;  /* owned; NULL: indexed */
    struct shoali_indexed_data *indexed; /* owned; NULL: text or mock */
    int32_t file_count;
    char *report;                       /* owned: of files; NULL: none */
    int64_t cut[SHOAL_SPLIT_COUNT + 1]; /* part p is [cut[p], cut[p+1]) */
    uint64_t fingerprint;
};
/* What arguments may name. */
struct shoali_data_source {
    const char *name;
    shoal_status (*probe)(const shoal_dataset_args *args, bool *is);
    /* Sets what is known of the data. */
    shoal_status (*open)(const shoal_dataset_args *args, shoal_dataset *dataset);
    /* shoal_dataset_peek; NULL: opening is cheap. */
    shoal_status (*peek)(const shoal_dataset_args *args, shoal_dataset_info *info);
};
/* NULL-terminated; the first that fits is taken. Written by the build. */
extern const struct shoali_data_source *const shoali_data_sources[];

/* NULL for text and mock data. */
const struct shoali_indexed_data *shoali_dataset_indexed(const struct shoal_dataset *dataset);

/* What data asks of tokenizers. */
struct shoali_tokenizer_facts {
    const char *name, *json; /* borrowed */
    int32_t vocab_size, eod; /* eod: -1 none */
    int64_t host_bytes;
};
struct shoali_indexed_records;
struct shoali_data_tokenizers {
    /* SHOAL_EINVAL: no tokenizer is known by this name alone. */
    shoal_status (*check_name)(const char *name);
    shoal_status (*from_json)(const char *json, size_t bytes, shoal_tokenizer **tokenizer);
    void (*destroy)(shoal_tokenizer *tokenizer);
    void (*get_facts)(const shoal_tokenizer *tokenizer, struct shoali_tokenizer_facts *facts);
    /* -1 and NULL: none. */
    int32_t (*id)(const shoal_tokenizer *tokenizer, const char *token);
    const char *(*token)(const shoal_tokenizer *tokenizer, int32_t id);
    /* Whether every id means the same. */
    shoal_status (*is_same)(const shoal_tokenizer *a, const shoal_tokenizer *b, bool *same);
    /* Compares the tokenizer of the arguments with what data files say, and takes it. */
    shoal_status (*take_given)(struct shoali_indexed_data *data, const shoal_dataset_args *args,
                               const struct shoali_indexed_records *records);
};
/* At most one row, then NULL: without a row there is no tokenizer. Written by the build. */
extern const struct shoali_data_tokenizers *const shoali_data_tokenizers[];

/* loader.c: the pure function, used by the caller and by the prefetch thread. */
#define SHOALI_ARRAYS_MAX 5
struct shoali_segments;
struct shoali_masked;
struct shoali_loader_order {
    struct shoal_loader_args args;
    struct shoali_segments *segments; /* of data files; else NULL. Borrowed by the prefetcher */
    struct shoali_masked *masked; /* NULL: samples of the next token. Borrowed by the prefetcher */
    int32_t array_count;
    const char *name[SHOALI_ARRAYS_MAX];
    int64_t numbers[SHOALI_ARRAYS_MAX]; /* of a sample */
};
/* The micro-batch of the samples from `first` on. */
shoal_status shoali_loader_make(const struct shoali_loader_order *order, int64_t first,
                                int32_t *const *arrays);
/* Where random samples are drawn from: sample n has the numbers of n alone. */
struct shoali_stream shoali_loader_stream(const struct shoal_loader_args *args);
/* Numbers of all arrays of a micro-batch. */
int64_t shoali_loader_numbers(const struct shoali_loader_order *order);

/* prefetch.c */
struct shoali_prefetch;
/* What will be asked for, without end: in step s = 0, 1, ... the micro-batches whose first samples
 * are begin + s * per_step + first + i * stride, i below count. */
struct shoali_prefetch_list {
    int64_t begin, per_step, first, stride; /* samples */
    int64_t count;
    int32_t depth; /* micro-batches kept ready */
};
SHOAL_CHECKED shoal_status shoali_prefetch_create(const struct shoali_loader_order *loader,
                                                  const struct shoali_prefetch_list *list,
                                                  struct shoali_prefetch **prefetch);
void shoali_prefetch_destroy(struct shoali_prefetch *prefetch);
int64_t shoali_prefetch_bytes(int64_t batch_bytes, int32_t depth);
/* SHOAL_END: not on the list, or already passed; the caller makes it itself. */
SHOAL_CHECKED shoal_status shoali_prefetch_get(struct shoali_prefetch *prefetch, int64_t first,
                                               int32_t *const *arrays);

#endif
