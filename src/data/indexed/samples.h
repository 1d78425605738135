/* samples - what opening a split's samples (samples_open.c) and reading them (samples.c) share. */
#ifndef SHOALI_SAMPLES_H
#define SHOALI_SAMPLES_H

#include "data/indexed/indexed.h"
#include "data/masked.h"

#include <pthread.h>

enum { SHOALI_DOCUMENT, SHOALI_SAMPLE, SHOALI_SHUFFLE, SHOALI_GPT_MAPS };
enum { SHOALI_DATASET, SHOALI_NUMBER, SHOALI_BLEND_MAPS };

/* One part, and its maps. Of masked samples the shape has their number alone. */
struct shoali_gpt_part {
    const struct shoali_indexed *file;
    struct shoali_gpt_args args;
    int64_t first_document, end_document;
    struct shoali_gpt_shape shape;
    struct shoali_maps maps;
};

/* A permutation of the samples per epoch, for the order "cyclic". An epoch has all of them,
 * whatever the batch is: it is Megatron's of one sample per step. Kept for the epoch that was
 * asked for last. */
struct shoali_cycle {
    pthread_mutex_t mutex;
    int64_t epoch;  /* of `order`; -1 none */
    int32_t *order; /* owned; NULL: the order is "single" */
};

struct shoali_samples {
    const struct shoali_indexed_data *data; /* borrowed */
    const struct shoali_masked *masked;     /* borrowed; NULL: samples of the next token */
    double short_seq_prob;                  /* of masked samples */
    const char *split;
    int64_t seq_length, count;
    struct shoali_gpt_part *part; /* owned */
    int32_t part_count;
    struct shoali_maps blend; /* count 0: there is one part */
    struct shoali_cycle cycle;
    bool mask_eod;
};

/* A map does not hold what its name says. */
shoal_status shoali_wrong_map(const struct shoali_npy *file);
/* SHOAL_EINVAL: the part has no sample of this number. */
SHOAL_CHECKED shoal_status shoali_check_taken(const struct shoali_samples *samples, int32_t part,
                                              int64_t number);

/* ---- samples_open.c ---- */

/* Appends `    "key": "text",` and a newline. */
void shoali_describe_text(struct shoali_str *out, const char *key, const char *text);
/* Maps of a class of data sets (`kind`), beside the data file `first` where no place is given. */
struct shoali_open_maps {
    const char *kind, *first;
    struct shoali_str *description;
    const char *const *names;
    int32_t count;
    shoal_status (*make)(void *user, const char *const *path);
    void *user;
};
SHOAL_CHECKED shoal_status shoali_samples_open_maps(const struct shoali_samples *samples,
                                                    const struct shoali_open_maps *open,
                                                    struct shoali_maps *maps);

/* ---- samples_masked.c ---- */

void shoali_masked_describe(const struct shoali_samples *samples,
                            const struct shoali_gpt_part *part, struct shoali_str *out);
/* Makes or opens the part's map, and sets the number of its samples. */
SHOAL_CHECKED shoal_status shoali_masked_open(const struct shoali_samples *samples,
                                              struct shoali_gpt_part *part);
/* Sample `number` of the part, which it has. */
SHOAL_CHECKED shoal_status shoali_masked_read(const struct shoali_samples *samples,
                                              const struct shoali_gpt_part *part, int64_t number,
                                              int32_t *const *arrays);

#endif
