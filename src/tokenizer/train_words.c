#include "tokenizer/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void shoali_word_counts_fini(struct shoali_word_counts *counts)
{
    shoali_free(counts->slot);
    shoali_arena_fini(&counts->arena);
    *counts = (struct shoali_word_counts){0};
}

static struct shoali_word_count *find(const struct shoali_word_counts *counts, const char *text,
                                      size_t bytes, uint32_t hash)
{
    for (uint32_t at = hash;; at++) {
        struct shoali_word_count *slot = &counts->slot[at & counts->mask];
        if (!slot->text ||
            (slot->hash == hash && slot->bytes == bytes && memcmp(slot->text, text, bytes) == 0))
            return slot;
    }
}

static shoal_status grow(struct shoali_word_counts *counts)
{
    const struct shoali_word_counts old = *counts;
    const uint32_t slots = old.slot ? 2 * (old.mask + 1) : 1024;
    struct shoali_word_count *slot = shoali_calloc(slots, sizeof *slot, "counts of words");
    if (!slot)
        return SHOAL_ENOMEM;
    if (!old.slot)
        shoali_arena_init(&counts->arena);
    counts->slot = slot;
    counts->mask = slots - 1;
    for (uint32_t i = 0; old.slot && i <= old.mask; i++)
        if (old.slot[i].text)
            *find(counts, old.slot[i].text, old.slot[i].bytes, old.slot[i].hash) = old.slot[i];
    shoali_free(old.slot);
    return SHOAL_OK;
}

static shoal_status add(struct shoali_word_counts *counts, const char *text, size_t bytes,
                        int64_t count)
{
    shoal_status status = SHOAL_OK;
    if (2 * counts->used >= (int64_t)counts->mask)
        SHOAL_TRY(status, grow(counts), done);
    const uint32_t hash = (uint32_t)shoali_hash64(text, bytes);
    struct shoali_word_count *slot = find(counts, text, bytes, hash);
    if (!slot->text) {
        char *kept = shoali_arena_alloc(&counts->arena, bytes);
        if (!kept)
            return SHOAL_ENOMEM;
        memcpy(kept, text, bytes);
        *slot = (struct shoali_word_count){.text = kept, .bytes = (uint32_t)bytes, .hash = hash};
        counts->used++;
    }
    slot->count += count;
done:
    return status;
}

/* The words of a stretch of UTF-8 within a line. */
static shoal_status count_stretch(const struct shoali_classes *classes, shoali_split_fn split,
                                  const char *text, size_t bytes, struct shoali_word_counts *counts)
{
    shoal_status status = SHOAL_OK;
    for (size_t at = 0, end; at < bytes; at = end) {
        end = split(classes, text, bytes, at);
        SHOAL_TRY(status, add(counts, text + at, end - at, 1), done);
    }
done:
    return status;
}

static shoal_status count_line(const struct shoali_classes *classes, shoali_split_fn split,
                               const char *line, size_t bytes, struct shoali_word_counts *counts)
{
    shoal_status status = SHOAL_OK;
    for (size_t at = 0; at < bytes;) {
        const size_t good = shoali_utf8_prefix(line + at, bytes - at);
        SHOAL_TRY(status, count_stretch(classes, split, line + at, good, counts), done);
        at += good + (at + good < bytes);
    }
done:
    return status;
}

/* ---- threads ---- */

struct job {
    const struct shoali_classes *classes;
    shoali_split_fn split;
    const char *text;
    size_t bytes;
    struct shoali_word_counts *counts; /* of each thread */
    shoal_status *status;
    char (*sentence)[256]; /* an error's record is of the thread that met it */
};

/* The first line that begins at or behind `at`. */
static size_t line_begin(const struct job *job, size_t at)
{
    if (at == 0 || at >= job->bytes)
        return at < job->bytes ? at : job->bytes;
    const char *end = memchr(job->text + at - 1, '\n', job->bytes - at + 1);
    return end ? (size_t)(end + 1 - job->text) : job->bytes;
}

static void count_share(void *arg, int32_t index, int32_t count)
{
    const struct job *job = arg;
    int64_t begin, end;
    shoali_pool_slice((int64_t)job->bytes, 1, index, count, &begin, &end);
    size_t at = line_begin(job, (size_t)begin);
    const size_t stop = line_begin(job, (size_t)end);
    while (at < stop && job->status[index] >= 0) {
        const char *line_end = memchr(job->text + at, '\n', job->bytes - at);
        const size_t next = line_end ? (size_t)(line_end + 1 - job->text) : job->bytes;
        job->status[index] =
            count_line(job->classes, job->split, job->text + at, next - at, &job->counts[index]);
        at = next;
    }
    if (job->status[index] < 0)
        snprintf(job->sentence[index], sizeof job->sentence[index], "%s", shoal_error_message());
}

static shoal_status gather(const struct shoali_word_counts *from, struct shoali_word_counts *to)
{
    shoal_status status = SHOAL_OK;
    for (uint32_t i = 0; from->slot && i <= from->mask; i++)
        if (from->slot[i].text)
            SHOAL_TRY(status, add(to, from->slot[i].text, from->slot[i].bytes, from->slot[i].count),
                      done);
done:
    return status;
}

shoal_status shoali_count_words(struct shoali_pool *pool, const struct shoali_classes *classes,
                                shoali_split_fn split, const char *text, size_t bytes,
                                struct shoali_word_counts *counts)
{
    shoal_status status = SHOAL_OK;
    const size_t threads = (size_t)shoali_pool_threads(pool);
    struct job job = {.classes = classes, .split = split, .text = text, .bytes = bytes};
    job.counts = shoali_calloc(threads, sizeof *job.counts, "counts of words");
    job.status = shoali_calloc(threads, sizeof *job.status, "counts of words");
    job.sentence = shoali_calloc(threads, sizeof *job.sentence, "counts of words");
    if (!job.counts || !job.status || !job.sentence) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    shoali_pool_run(pool, count_share, &job);
    for (size_t i = 0; i < threads && status >= 0; i++)
        status = job.status[i] < 0 ? SHOAL_FAIL(job.status[i], "%s", job.sentence[i])
                                   : gather(&job.counts[i], counts);
done:
    for (size_t i = 0; job.counts && i < threads; i++)
        shoali_word_counts_fini(&job.counts[i]);
    shoali_free(job.counts);
    shoali_free(job.status);
    shoali_free(job.sentence);
    return status;
}
