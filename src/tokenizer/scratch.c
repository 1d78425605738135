/* What one call of encode works with, and the cache of words. */
#include "tokenizer/pipeline.h"

#include <stdlib.h>
#include <string.h>

static void destroy_scratch(struct shoali_scratch *scratch)
{
    shoali_matcher_destroy(scratch->matcher);
    shoali_str_fini(&scratch->normal[0].text);
    shoali_str_fini(&scratch->normal[1].text);
    shoali_str_fini(&scratch->work);
    for (int i = 0; i < SHOALI_STAGES_MAX; i++) {
        shoali_str_fini(&scratch->level[i]);
        shoali_str_fini(&scratch->bytes[i]);
    }
    shoali_free(scratch->cache);
    free(scratch->symbols);
    shoali_free(scratch);
}

static shoal_status create_scratch(const struct shoali_pipeline *pipeline,
                                   struct shoali_scratch **scratch)
{
    shoal_status status = SHOAL_OK;
    struct shoali_scratch *made = shoali_calloc(1, sizeof *made, "buffers of a tokenizer");
    if (!made)
        return SHOAL_ENOMEM;
    if (pipeline->regexes)
        SHOAL_TRY(status, shoali_matcher_create(&made->matcher), done);
    made->cache = shoali_calloc(SHOALI_CACHE_SIZE, sizeof *made->cache, "a cache of words");
    status = made->cache ? SHOAL_OK : SHOAL_ENOMEM;
done:
    if (status < 0) {
        destroy_scratch(made);
        made = NULL;
    }
    *scratch = made;
    return status;
}

shoal_status shoali_scratch_take(const struct shoali_pipeline *pipeline,
                                 struct shoali_scratch **scratch)
{
    struct shoali_pipeline *shared = (struct shoali_pipeline *)pipeline;
    pthread_mutex_lock(&shared->mutex);
    *scratch = shared->idle;
    if (*scratch)
        shared->idle = (*scratch)->next;
    pthread_mutex_unlock(&shared->mutex);
    return *scratch ? SHOAL_OK : create_scratch(pipeline, scratch);
}

/* Buffers that one long text made large are not kept. */
static void trim(struct shoali_str *text)
{
    if (text->capacity > (size_t)1 << 22 || text->failed)
        shoali_str_fini(text);
}

void shoali_scratch_give(const struct shoali_pipeline *pipeline, struct shoali_scratch *scratch)
{
    struct shoali_pipeline *shared = (struct shoali_pipeline *)pipeline;
    if (!scratch)
        return;
    trim(&scratch->normal[0].text);
    trim(&scratch->normal[1].text);
    trim(&scratch->work);
    for (int i = 0; i < SHOALI_STAGES_MAX; i++) {
        trim(&scratch->level[i]);
        trim(&scratch->bytes[i]);
    }
    if (scratch->symbols_bytes > (size_t)1 << 22) {
        free(scratch->symbols);
        scratch->symbols = NULL;
        scratch->symbols_bytes = 0;
    }
    pthread_mutex_lock(&shared->mutex);
    scratch->next = shared->idle;
    shared->idle = scratch;
    pthread_mutex_unlock(&shared->mutex);
}

void shoali_scratches_destroy(struct shoali_pipeline *pipeline)
{
    while (pipeline->idle) {
        struct shoali_scratch *scratch = pipeline->idle;
        pipeline->idle = scratch->next;
        destroy_scratch(scratch);
    }
}

void *shoali_scratch_symbols(struct shoali_scratch *scratch, size_t bytes)
{
    if (bytes <= scratch->symbols_bytes)
        return scratch->symbols;
    size_t capacity = scratch->symbols_bytes ? scratch->symbols_bytes : 4096;
    while (capacity < bytes)
        capacity *= 2;
    free(scratch->symbols);
    scratch->symbols = shoali_malloc(capacity, "the symbols of a word");
    scratch->symbols_bytes = scratch->symbols ? capacity : 0;
    return scratch->symbols;
}

/* ---- the cache ---- */

/* Key and place of a short word. */
static struct shoali_cached *cached_of(struct shoali_scratch *scratch, const char *word,
                                       size_t bytes, char key[SHOALI_CACHE_KEY])
{
    uint64_t part[3];
    memset(key, 0, SHOALI_CACHE_KEY);
    memcpy(key, word, bytes);
    key[SHOALI_CACHE_KEY - 1] = (char)bytes;
    memcpy(part, key, sizeof part);
    uint64_t hash =
        (part[0] ^ part[2] * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xc2b2ae3d27d4eb4f);
    hash = (hash ^ hash >> 29 ^ part[1]) * UINT64_C(0x9e3779b97f4a7c15);
    return &scratch->cache[hash >> 49];
}

static shoal_status encode_anew(struct shoali_run *run, const char *word, size_t bytes)
{
    const struct shoali_pipeline *pipeline = run->pipeline;
    return pipeline->model.kind->encode(&pipeline->model, run, word, bytes, run->ids);
}

shoal_status shoali_encode_word(struct shoali_run *run, const char *word, size_t bytes)
{
    char key[SHOALI_CACHE_KEY];
    struct shoali_ids *ids = run->ids;
    if (bytes >= SHOALI_CACHE_KEY)
        return encode_anew(run, word, bytes);
    struct shoali_cached *cached = cached_of(run->scratch, word, bytes, key);
    if (memcmp(cached->key, key, SHOALI_CACHE_KEY) == 0) {
        if (ids->count + SHOALI_CACHE_IDS <= ids->capacity) {
            memcpy(ids->token + ids->count, cached->id, sizeof cached->id);
            ids->count += cached->count;
        } else {
            for (int32_t i = 0; i < cached->count; i++)
                shoali_ids_add(ids, cached->id[i]);
        }
        return SHOAL_OK;
    }
    const int64_t before = ids->count;
    const shoal_status status = encode_anew(run, word, bytes);
    const int64_t count = ids->count - before;
    if (status < 0 || ids->count > ids->capacity || count > SHOALI_CACHE_IDS)
        return status;
    memcpy(cached->key, key, SHOALI_CACHE_KEY);
    cached->count = (int32_t)count;
    memcpy(cached->id, ids->token + before, (size_t)count * sizeof *cached->id);
    return SHOAL_OK;
}
_Static_assert(SHOALI_CACHE_SIZE == 1 << (64 - 49), "the hash's upper bits are the place");
