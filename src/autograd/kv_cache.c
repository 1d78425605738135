/* kv_cache.c - the blocks of keys and values behind a tape that generates. */
#include "autograd/kv_cache.h"

#include "accelerator/accelerator.h"

struct entry {
    int64_t width;
    shoal_dtype dtype;
    size_t offset;
};
struct shoali_kv_cache {
    struct shoali_device *device;
    int32_t sequences;
    int64_t positions;
    struct entry *entry;
    int32_t count, capacity, next;
    size_t bytes;
    void *memory; /* device; NULL before it is placed */
};

shoal_status shoali_kv_cache_create(struct shoali_device *device, int32_t sequences,
                                    int64_t positions, struct shoali_kv_cache **cache)
{
    struct shoali_kv_cache *made = shoali_calloc(1, sizeof *made, "a cache of keys and values");
    *cache = made;
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->device = device;
    made->sequences = sequences;
    made->positions = positions;
    return SHOAL_OK;
}

void shoali_kv_cache_destroy(struct shoali_kv_cache *cache)
{
    if (cache == NULL)
        return;
    if (cache->memory != NULL)
        shoali_device_free(cache->device, cache->memory);
    shoali_free(cache->entry);
    shoali_free(cache);
}

int64_t shoali_kv_cache_positions(const struct shoali_kv_cache *cache)
{
    return cache->positions;
}

void shoali_kv_cache_rewind(struct shoali_kv_cache *cache)
{
    cache->next = 0;
}

shoal_status shoali_kv_cache_place(struct shoali_kv_cache *cache)
{
    return cache->bytes > 0 ? shoali_device_alloc(cache->device, cache->bytes, &cache->memory)
                            : SHOAL_OK;
}

static shoal_status append_entry(struct shoali_kv_cache *cache, int64_t width, shoal_dtype dtype)
{
    if (cache->count == cache->capacity) {
        const int32_t capacity = cache->capacity > 0 ? 2 * cache->capacity : 32;
        struct entry *grown = shoali_calloc((size_t)capacity, sizeof *grown, "cache entries");
        if (grown == NULL)
            return SHOAL_ENOMEM;
        for (int32_t i = 0; i < cache->count; i++)
            grown[i] = cache->entry[i];
        shoali_free(cache->entry);
        cache->entry = grown;
        cache->capacity = capacity;
    }
    const size_t bytes = (size_t)cache->sequences * (size_t)cache->positions * (size_t)width *
                         shoal_dtype_bytes(dtype);
    cache->entry[cache->count++] = (struct entry){width, dtype, cache->bytes};
    cache->bytes += (bytes + 63) / 64 * 64;
    return SHOAL_OK;
}

shoal_status shoali_kv_cache_next(struct shoali_kv_cache *cache, int64_t width, shoal_dtype dtype,
                                  void **data)
{
    shoal_status status = SHOAL_OK;
    *data = NULL;
    if (cache->next == cache->count && cache->memory == NULL)
        SHOAL_TRY(status, append_entry(cache, width, dtype), done);
    if (cache->next >= cache->count || cache->entry[cache->next].width != width ||
        cache->entry[cache->next].dtype != dtype)
        return SHOAL_FAIL(
            SHOAL_EINTERNAL,
            "attention %d of the model has a different shape than its key/value cache",
            (int)cache->next);
    const struct entry *entry = &cache->entry[cache->next++];
    if (cache->memory != NULL)
        *data = (char *)cache->memory + entry->offset;
done:
    return status;
}
