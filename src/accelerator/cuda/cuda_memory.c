/* cuda_memory.c - device and pinned memory: lists of blocks, and the quarantine. */
#include "accelerator/cuda/cuda_device.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists, with the device's lock held ---- */

/* Index of the first block that begins behind the address. */
static size_t find_behind(const struct cuda_blocks *blocks, const void *address)
{
    size_t low = 0, high = blocks->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((uintptr_t)blocks->block[middle].address <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool reserve(struct cuda_blocks *blocks)
{
    if (blocks->count < blocks->capacity)
        return true;
    const size_t capacity = 2 * blocks->capacity + 32;
    struct cuda_block *grown = realloc(blocks->block, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    blocks->block = grown;
    blocks->capacity = capacity;
    return true;
}

static void insert(struct cuda_blocks *blocks, struct cuda_block block)
{
    const size_t at = find_behind(blocks, block.address);
    memmove(&blocks->block[at + 1], &blocks->block[at],
            (blocks->count - at) * sizeof *blocks->block);
    blocks->block[at] = block;
    blocks->count++;
}

static struct cuda_block take(struct cuda_blocks *blocks, const void *address)
{
    const size_t behind = find_behind(blocks, address);
    SHOAL_ASSERT(behind > 0 && blocks->block[behind - 1].address == address);
    const struct cuda_block block = blocks->block[behind - 1];
    memmove(&blocks->block[behind - 1], &blocks->block[behind],
            (blocks->count - behind) * sizeof *blocks->block);
    blocks->count--;
    return block;
}

/* ---- giving back ---- */

/* Without a word: an error is an earlier one, which the device has told. */
static void give_back(struct cuda_device *cuda, const struct cuda_block *block)
{
    if (block->pinned)
        (void)cuda->driver->host_free(block->address);
    else
        (void)cuda->driver->memory_free((uintptr_t)block->address);
}

/* With the process's lock held: what is in quarantine goes back, unless a task is queued. Work that
 * uses the blocks is over then. */
static void empty_quarantine(struct cuda_device *cuda)
{
    struct cuda_blocks blocks;
    if (shoali_cuda_process.task_count > 0)
        return;
    pthread_mutex_lock(&cuda->lock);
    blocks = cuda->quarantine;
    cuda->quarantine = (struct cuda_blocks){0};
    pthread_mutex_unlock(&cuda->lock);
    if (blocks.count > 0 && shoali_cuda_enter_to_end(cuda)) {
        (void)cuda->driver->context_synchronize();
        for (size_t i = 0; i < blocks.count; i++)
            give_back(cuda, &blocks.block[i]);
    }
    free(blocks.block);
}

static void release(struct cuda_device *cuda, void *address)
{
    pthread_mutex_lock(&shoali_cuda_process.lock);
    pthread_mutex_lock(&cuda->lock);
    const struct cuda_block block = take(&cuda->live, address);
    const bool kept = reserve(&cuda->quarantine);
    if (kept)
        insert(&cuda->quarantine, block);
    pthread_mutex_unlock(&cuda->lock);
    if (block.pinned)
        shoali_device_count_host(&cuda->base, -(int64_t)block.bytes);
    else
        shoali_device_count_free(&cuda->base, block.bytes);
    empty_quarantine(cuda); /* a block that no list has room for stays the context's */
    pthread_mutex_unlock(&shoali_cuda_process.lock);
}

/* ---- taking ---- */

static shoal_status out_of_memory(struct cuda_device *cuda, size_t bytes)
{
    int64_t total, available;
    char asked[32], left[32], all[32];
    shoali_error_clear();
    shoali_cuda_memory(&cuda->base, &total, &available);
    return SHOAL_FAIL(
        SHOAL_ENOMEM,
        "cuda: no memory for %zu bytes (%s): %s of the GPU's %lld bytes (%s) are "
        "free, and this rank has %s; `shoal plan` says what a run needs",
        bytes, shoali_format_bytes((double)bytes, asked),
        shoali_format_bytes((double)available, left), (long long)total,
        shoali_format_bytes((double)total, all),
        shoali_format_bytes((double)atomic_load(&cuda->base.allocated_bytes), (char[32]){0}));
}

static unsigned ask(struct cuda_device *cuda, size_t bytes, bool pinned, void **address)
{
    unsigned long long number = 0;
    const size_t asked = bytes > 0 ? bytes : 1;
    if (pinned)
        return cuda->driver->host_alloc(address, asked, SHOALI_CUDA_HOST_PORTABLE);
    const int64_t left = cuda->limit_bytes - atomic_load(&cuda->base.allocated_bytes);
    if (left < 0 || bytes > (uint64_t)left)
        return SHOALI_CUDA_OUT_OF_MEMORY;
    const unsigned code = cuda->driver->memory_alloc(&number, asked);
    *address = (void *)(uintptr_t)number;
    return code;
}

static shoal_status acquire(struct cuda_device *cuda, size_t bytes, bool pinned, void **address)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_cuda_enter(cuda), done);
    pthread_mutex_lock(&shoali_cuda_process.lock);
    unsigned code = ask(cuda, bytes, pinned, address);
    if (code == SHOALI_CUDA_OUT_OF_MEMORY) {
        empty_quarantine(cuda);
        code = ask(cuda, bytes, pinned, address);
    }
    pthread_mutex_unlock(&shoali_cuda_process.lock);
    if (code == SHOALI_CUDA_OUT_OF_MEMORY && !pinned) {
        status = out_of_memory(cuda, bytes);
        goto done;
    }
    SHOAL_TRY(status,
              shoali_cuda_check(cuda->driver, code, pinned ? "cuMemHostAlloc" : "cuMemAlloc"),
              done);
    const struct cuda_block block = {.address = *address, .bytes = bytes, .pinned = pinned};
    pthread_mutex_lock(&cuda->lock);
    const bool kept = reserve(&cuda->live);
    if (kept)
        insert(&cuda->live, block);
    pthread_mutex_unlock(&cuda->lock);
    if (!kept) {
        give_back(cuda, &block);
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cuda: cannot grow the list of blocks");
    }
done:
    if (status < 0)
        *address = NULL;
    return status;
}

/* ---- the table's members ---- */

shoal_status shoali_cuda_alloc(struct shoali_device *device, size_t bytes, void **address)
{
    const shoal_status status = acquire((struct cuda_device *)device, bytes, false, address);
    if (status == SHOAL_OK)
        shoali_device_count_alloc(device, bytes);
    return status;
}

void shoali_cuda_free(struct shoali_device *device, void *address)
{
    release((struct cuda_device *)device, address);
}

static bool is_of(struct cuda_device *cuda, const void *address, bool pinned)
{
    pthread_mutex_lock(&cuda->lock);
    const size_t behind = find_behind(&cuda->live, address);
    const struct cuda_block *block = behind > 0 ? &cuda->live.block[behind - 1] : NULL;
    const bool is = block != NULL && block->pinned == pinned &&
                    (size_t)((const char *)address - block->address) <= block->bytes;
    pthread_mutex_unlock(&cuda->lock);
    return is;
}

bool shoali_cuda_owns(struct shoali_device *device, const void *address)
{
    return is_of((struct cuda_device *)device, address, false);
}

bool shoali_cuda_is_pinned(struct cuda_device *cuda, const void *address)
{
    return is_of(cuda, address, true);
}

shoal_status shoali_cuda_host_alloc(struct shoali_device *device, size_t bytes, void **memory)
{
    const shoal_status status = acquire((struct cuda_device *)device, bytes, true, memory);
    if (status == SHOAL_OK)
        shoali_device_count_host(device, (int64_t)bytes);
    return status;
}

void shoali_cuda_host_free(struct shoali_device *device, void *memory)
{
    release((struct cuda_device *)device, memory);
}

void shoali_cuda_memory(struct shoali_device *device, int64_t *total_bytes,
                        int64_t *available_bytes)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    size_t total = 0, available = 0;
    if (shoali_cuda_enter(cuda) != SHOAL_OK || cuda->driver->memory_info(&available, &total) != 0) {
        shoali_error_clear();
        total = available = 0;
    }
    *total_bytes = (int64_t)total;
    *available_bytes = (int64_t)available;
    if (*total_bytes > cuda->limit_bytes)
        *total_bytes = cuda->limit_bytes;
    const int64_t left = cuda->limit_bytes - atomic_load(&cuda->base.allocated_bytes);
    if (*available_bytes > left)
        *available_bytes = left > 0 ? left : 0;
}

void shoali_cuda_memory_close(struct cuda_device *cuda)
{
    const bool entered = shoali_cuda_enter_to_end(cuda);
    struct cuda_blocks *const lists[] = {&cuda->quarantine, &cuda->live};
    for (int i = 0; i < 2; i++) {
        for (size_t b = 0; entered && b < lists[i]->count; b++)
            give_back(cuda, &lists[i]->block[b]);
        free(lists[i]->block);
    }
}
