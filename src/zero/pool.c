/* Memory: shared with the other ranks, and the pool of buffers that live units take turns in. */
#include "zero/pool.h"

shoal_status shoali_zero_alloc_shared_at(const char *here, const struct shoali_zero_setup *setup,
                                         size_t bytes, void **address)
{
    if (setup->data_ranks > 1)
        return shoali_comm_device_alloc(here, setup->args.group, setup->args.exec.stream, bytes,
                                        address);
    return shoali_device_alloc_zeroed(setup->args.exec.stream, bytes, address);
}

void shoali_zero_free_shared(const struct shoali_zero_setup *setup, void *address)
{
    if (!address)
        return;
    if (setup->data_ranks > 1)
        shoali_comm_device_free(setup->args.group, setup->args.device, address);
    else
        shoali_device_free(setup->args.device, address);
}

/* A large buffer is not spent on a small unit: there would soon be none for the next large one. */
static bool suits(const struct shoali_zero_buffer *buffer, size_t bytes)
{
    return !buffer->taken && buffer->bytes >= bytes && buffer->bytes / 2 <= bytes;
}

static shoal_status add_buffer(struct shoali_zero_pool *pool, size_t bytes,
                               struct shoali_zero_buffer **made)
{
    shoal_status status;
    struct shoali_zero_buffer *buffer = shoali_calloc(1, sizeof *buffer, "a buffer of zero's pool");
    if (!buffer)
        return SHOAL_ENOMEM;
    buffer->bytes = bytes;
    buffer->next = pool->first;
    pool->first = buffer;
    SHOAL_TRY(status, shoali_zero_alloc_shared(pool->setup, bytes, &buffer->memory), done);
    *made = buffer;
done:
    return status;
}

shoal_status shoali_zero_take(struct shoali_zero_pool *pool, size_t bytes, void **home,
                              void **address)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_buffer *best = NULL;
    bytes = bytes > 0 ? bytes : 1;
    for (struct shoali_zero_buffer *buffer = pool->first; buffer; buffer = buffer->next) {
        const bool is_home = buffer->memory == *home, best_is_home = best && best->memory == *home;
        if (suits(buffer, bytes) &&
            (!best || is_home || (!best_is_home && buffer->bytes < best->bytes)))
            best = buffer;
    }
    if (!best)
        SHOAL_TRY(status, add_buffer(pool, bytes, &best), done);
    best->taken = true;
    *address = *home = best->memory;
done:
    return status;
}

void shoali_zero_give(struct shoali_zero_pool *pool, void *address)
{
    for (struct shoali_zero_buffer *buffer = pool->first; buffer; buffer = buffer->next)
        if (buffer->memory == address)
            buffer->taken = false;
}

int64_t shoali_zero_pool_bytes(const struct shoali_zero_pool *pool)
{
    int64_t sum = 0;
    for (const struct shoali_zero_buffer *buffer = pool->first; buffer; buffer = buffer->next)
        sum += (int64_t)buffer->bytes;
    return sum;
}

void shoali_zero_pool_fini(struct shoali_zero_pool *pool)
{
    while (pool->first) {
        struct shoali_zero_buffer *buffer = pool->first;
        pool->first = buffer->next;
        shoali_zero_free_shared(pool->setup, buffer->memory);
        shoali_free(buffer);
    }
}
