/* Sample i of a split: which part, which sample of it, which tokens. */
#include "data/indexed/samples.h"

#include <string.h>

#define PLACES 64   /* entries of a document index that are read at once */
#define TOKENS 2048 /* tokens that are read at once */

void shoali_samples_close(struct shoali_samples *samples)
{
    if (!samples)
        return;
    for (int32_t k = 0; k < samples->part_count && samples->part; k++)
        shoali_maps_close(&samples->part[k].maps);
    shoali_maps_close(&samples->blend);
    shoali_free(samples->part);
    shoali_free(samples->cycle.order);
    pthread_mutex_destroy(&samples->cycle.mutex);
    shoali_free(samples);
}

int64_t shoali_samples_count(const struct shoali_samples *samples)
{
    return samples->count;
}

bool shoali_samples_blended(const struct shoali_samples *samples)
{
    return samples->blend.count > 0;
}

bool shoali_samples_begin_alike(const struct shoali_samples *first,
                                const struct shoali_samples *second)
{
    bool alike = first->part_count == second->part_count && first->count <= second->count;
    for (int32_t k = 0; k < first->part_count && alike; k++) {
        const struct shoali_gpt_shape *a = &first->part[k].shape, *b = &second->part[k].shape;
        alike = a->epochs == b->epochs && a->samples == b->samples && a->separate == b->separate;
    }
    return alike;
}

/* ---- reading ---- */

/* Where tokens go: token p is input p and the target of p - 1. */
struct sink {
    int32_t *tokens, *targets;
    int64_t length, filled;
};

static void take(struct sink *sink, const int32_t *token, int64_t count)
{
    for (int64_t i = 0; i < count; i++, sink->filled++) {
        if (sink->filled < sink->length)
            sink->tokens[sink->filled] = token[i];
        if (sink->filled > 0)
            sink->targets[sink->filled - 1] = token[i];
    }
}

/* Tokens [offset, end) of a sequence, end < 0: all the rest. */
static shoal_status take_sequence(const struct shoali_samples *samples,
                                  const struct shoali_gpt_part *part, int64_t sequence,
                                  int64_t offset, int64_t end, struct sink *sink)
{
    shoal_status status = SHOAL_OK;
    int32_t token[TOKENS];
    const int64_t wanted = sink->length + (part->args.no_extra_token ? 0 : 1);
    if (sequence < part->args.first || sequence >= part->args.first + part->args.sequence_count)
        return shoali_wrong_map(&part->maps.file[SHOALI_DOCUMENT]);
    for (int64_t got = TOKENS; got == TOKENS && sink->filled < wanted; offset += got) {
        const int64_t left = wanted - sink->filled, room = left < TOKENS ? left : TOKENS;
        SHOAL_TRY(status,
                  shoali_indexed_read(part->file, sequence, offset, end < 0 ? -1 : end - offset,
                                      samples->data->vocab_size, room, token, &got),
                  done);
        take(sink, token, got);
        if (end >= 0 && offset + got >= end)
            break;
    }
done:
    return status;
}

static shoal_status read_part(const struct shoali_samples *samples,
                              const struct shoali_gpt_part *part, int64_t number, struct sink *sink)
{
    shoal_status status;
    const struct shoali_npy *map = part->maps.file;
    const int64_t extra = part->args.no_extra_token ? 0 : 1;
    int64_t at, pair[4], sequence[PLACES];
    SHOAL_TRY(status, shoali_npy_read(&map[SHOALI_SHUFFLE], number, 1, &at), done);
    if (at < 0 || at >= part->shape.samples)
        return shoali_wrong_map(&map[SHOALI_SHUFFLE]);
    SHOAL_TRY(status, shoali_npy_read(&map[SHOALI_SAMPLE], at, 2, pair), done);
    if (pair[0] < 0 || pair[1] < 0 || pair[2] < pair[0] || pair[3] < -extra ||
        pair[2] >= map[SHOALI_DOCUMENT].rows || (pair[0] == pair[2] && pair[3] + extra < pair[1]))
        return shoali_wrong_map(&map[SHOALI_SAMPLE]);
    for (int64_t first = pair[0]; first <= pair[2]; first += PLACES) {
        const int64_t left = pair[2] + 1 - first, count = left < PLACES ? left : PLACES;
        SHOAL_TRY(status, shoali_npy_read(&map[SHOALI_DOCUMENT], first, count, sequence), done);
        for (int64_t i = 0; i < count; i++) {
            const int64_t place = first + i;
            SHOAL_TRY(status,
                      take_sequence(samples, part, sequence[i], place == pair[0] ? pair[1] : 0,
                                    place == pair[2] ? pair[3] + extra : -1, sink),
                      done);
        }
    }
done:
    return status;
}

/* Sample at place i of the order that goes round in epochs. */
static int64_t cyclic_number(const struct shoali_samples *samples, int64_t i)
{
    /* the lock and what it guards change, what the caller sees does not */
    struct shoali_cycle *cycle = (struct shoali_cycle *)(uintptr_t)&samples->cycle;
    const int64_t epoch = i / samples->count;
    pthread_mutex_lock(&cycle->mutex);
    if (cycle->epoch != epoch) {
        struct shoali_mt19937 generator;
        shoali_mt19937_init(&generator, (uint32_t)epoch);
        shoali_mt19937_permute(&generator, cycle->order, samples->count);
        cycle->epoch = epoch;
    }
    const int64_t number = cycle->order[i % samples->count];
    pthread_mutex_unlock(&cycle->mutex);
    return number;
}

/* A sample of the next token: -1 where nothing is to be learnt. */
static shoal_status read_next(const struct shoali_samples *samples,
                              const struct shoali_gpt_part *part, int64_t number,
                              int32_t *const *arrays)
{
    shoal_status status;
    int32_t *tokens = arrays[0], *targets = arrays[1];
    struct sink sink = {.tokens = tokens, .targets = targets, .length = samples->seq_length};
    SHOAL_TRY(status, read_part(samples, part, number, &sink), done);
    for (int64_t t = sink.filled; t < sink.length; t++)
        tokens[t] = 0;
    for (int64_t t = sink.filled > 0 ? sink.filled - 1 : 0; t < sink.length; t++)
        targets[t] = -1;
    for (int64_t t = 0; samples->mask_eod && t < sink.length; t++)
        if (tokens[t] == samples->data->eod)
            targets[t] = -1;
done:
    return status;
}

static shoal_status read_number(const struct shoali_samples *samples, int64_t i,
                                int32_t *const *arrays)
{
    shoal_status status;
    int64_t part = 0, number = i;
    if (samples->blend.count > 0) {
        SHOAL_TRY(status, shoali_npy_read(&samples->blend.file[SHOALI_DATASET], i, 1, &part), done);
        SHOAL_TRY(status, shoali_npy_read(&samples->blend.file[SHOALI_NUMBER], i, 1, &number),
                  done);
        if (part < 0 || part >= samples->part_count || number < 0)
            return shoali_wrong_map(&samples->blend.file[SHOALI_DATASET]);
        SHOAL_TRY(status, shoali_check_taken(samples, (int32_t)part, number), done);
    }
    SHOAL_TRY(status,
              (samples->masked ? shoali_masked_read : read_next)(samples, &samples->part[part],
                                                                 number, arrays),
              done);
done:
    return status;
}

shoal_status shoali_samples_read(const struct shoali_samples *samples, int64_t i,
                                 int32_t *const *arrays)
{
    const int64_t number = samples->cycle.order && i >= 0 ? cyclic_number(samples, i) : i;
    if (number < 0 || number >= samples->count)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "sample %lld of the %s part was requested, but the part was made for "
                          "%lld: give --train-iters of the whole run at the start",
                          (long long)i, samples->split, (long long)samples->count);
    return read_number(samples, number, arrays);
}
