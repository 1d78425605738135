/* meta.c - a device in a plan: counts like another one and has no memory.
 *
 * Addresses, of pinned host memory too, come from a range that no process can map, so that touching
 * one is a crash and not a wrong number. They are never exchanged for real memory: a plan that
 * crashes only where the machine has little left would be found by its users.
 */
#include "accelerator/device.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ADDRESS ((uintptr_t)1 << 62)
#define ALIGN_BYTES ((size_t)64)
/* Devices of a rank (its own, the host's for offload) have addresses of their own. */
#define RANGE_LOG2 50
#define RANGE_COUNT 1024

static _Thread_local uintptr_t created;

struct meta_block {
    uintptr_t address;
    size_t bytes, asked; /* of addresses; by the caller */
};
/* Device blocks, or host blocks. */
struct meta_blocks {
    struct meta_block *block;
    size_t count, capacity;
};
struct meta_device {
    struct shoali_device base;
    pthread_mutex_t lock;
    uintptr_t next;
    struct meta_blocks device, host;
};

static bool add_block(struct meta_blocks *blocks, struct meta_block block)
{
    if (blocks->count == blocks->capacity) {
        const size_t capacity = 2 * blocks->capacity + 32;
        struct meta_block *grown = realloc(blocks->block, capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        blocks->block = grown;
        blocks->capacity = capacity;
    }
    blocks->block[blocks->count++] = block;
    return true;
}

/* The last block that covers the address; blocks->count when none does. */
static size_t find_block(const struct meta_blocks *blocks, const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    size_t i = blocks->count;
    while (i > 0 && (at < blocks->block[i - 1].address ||
                     at - blocks->block[i - 1].address >= blocks->block[i - 1].bytes))
        i--;
    return i > 0 ? i - 1 : blocks->count;
}

static struct meta_block remove_block(struct meta_blocks *blocks, const void *address)
{
    const size_t i = find_block(blocks, address);
    SHOAL_ASSERT(i < blocks->count); /* else freed twice, or not from here */
    const struct meta_block found = blocks->block[i];
    blocks->block[i] = blocks->block[--blocks->count];
    return found;
}

/* ---- memory --------------------------------------------------------------------------------- */

static bool meta_probe(void)
{
    return true;
}

static int32_t meta_device_count(void)
{
    return 1;
}

static shoal_status create(const struct shoali_accelerator *accelerator, struct shoali_pool *pool,
                           struct shoali_device **device)
{
    struct meta_device *meta = shoali_calloc(1, sizeof *meta, "a meta device");
    if (meta == NULL)
        return SHOAL_ENOMEM;
    shoali_device_init(&meta->base, accelerator, pool);
    pthread_mutex_init(&meta->lock, NULL);
    meta->next = FIRST_ADDRESS + (created++ % RANGE_COUNT << RANGE_LOG2);
    *device = &meta->base;
    return SHOAL_OK;
}

static void meta_device_destroy(struct shoali_device *device)
{
    struct meta_device *meta = (struct meta_device *)device;
    free(meta->device.block);
    free(meta->host.block);
    pthread_mutex_destroy(&meta->lock);
    shoali_device_fini(device);
    shoali_free(meta);
}

/* 0: there are none left. */
static uintptr_t take_addresses(struct meta_device *meta, size_t bytes)
{
    const size_t step = (bytes / ALIGN_BYTES + 1) * ALIGN_BYTES;
    uintptr_t first = 0;
    pthread_mutex_lock(&meta->lock);
    if (bytes < (size_t)1 << 60 && meta->next < UINTPTR_MAX - step) {
        first = meta->next;
        meta->next += step;
    }
    pthread_mutex_unlock(&meta->lock);
    return first;
}

static shoal_status add(struct meta_device *meta, struct meta_blocks *blocks, size_t bytes,
                        const char *what, void **address)
{
    const uintptr_t first = take_addresses(meta, bytes);
    pthread_mutex_lock(&meta->lock);
    const bool added =
        first != 0 && add_block(blocks, (struct meta_block){first, bytes + 1, bytes});
    pthread_mutex_unlock(&meta->lock);
    if (first == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a plan cannot count %zu bytes of %s: give a smaller model or "
                          "micro-batch, more ranks or a higher ZeRO stage",
                          bytes, what);
    if (!added)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a list of a plan's %zu blocks",
                          blocks->count + 1);
    *address = (void *)first;
    return SHOAL_OK;
}

static size_t drop(struct meta_device *meta, struct meta_blocks *blocks, const void *address)
{
    pthread_mutex_lock(&meta->lock);
    const struct meta_block block = remove_block(blocks, address);
    pthread_mutex_unlock(&meta->lock);
    return block.asked;
}

static shoal_status meta_alloc(struct shoali_device *device, size_t bytes, void **address)
{
    struct meta_device *meta = (struct meta_device *)device;
    const shoal_status status = add(meta, &meta->device, bytes, "one device", address);
    if (status == SHOAL_OK)
        shoali_device_count_alloc(device, bytes);
    return status;
}

static void meta_free(struct shoali_device *device, void *address)
{
    struct meta_device *meta = (struct meta_device *)device;
    shoali_device_count_free(device, drop(meta, &meta->device, address));
}

static shoal_status meta_host_alloc(struct shoali_device *device, size_t bytes, void **memory)
{
    struct meta_device *meta = (struct meta_device *)device;
    const shoal_status status = add(meta, &meta->host, bytes, "host memory", memory);
    if (status == SHOAL_OK)
        shoali_device_count_host(device, (int64_t)bytes);
    return status;
}

static void meta_host_free(struct shoali_device *device, void *memory)
{
    struct meta_device *meta = (struct meta_device *)device;
    shoali_device_count_host(device, -(int64_t)drop(meta, &meta->host, memory));
}

/* ---- streams, events, work: nothing happens ------------------------------------------------- */

static shoal_status meta_stream_create(struct shoali_device *device,
                                       struct shoali_device_stream **stream)
{
    *stream = shoali_calloc(1, sizeof **stream, "a meta stream");
    if (*stream == NULL)
        return SHOAL_ENOMEM;
    (*stream)->device = device;
    return SHOAL_OK;
}

static void meta_stream_destroy(struct shoali_device_stream *stream)
{
    shoali_free(stream);
}

static shoal_status meta_stream_synchronize(struct shoali_device_stream *stream)
{
    (void)stream;
    return SHOAL_OK;
}

static shoal_status meta_event_create(struct shoali_device *device, bool timed,
                                      struct shoali_event **event)
{
    (void)timed;
    *event = shoali_calloc(1, sizeof **event, "a meta event");
    if (*event == NULL)
        return SHOAL_ENOMEM;
    (*event)->device = device;
    return SHOAL_OK;
}

static void meta_event_destroy(struct shoali_event *event)
{
    shoali_free(event);
}

static shoal_status meta_event_record(struct shoali_event *event,
                                      struct shoali_device_stream *stream)
{
    (void)event;
    (void)stream;
    return SHOAL_OK;
}

static shoal_status meta_event_synchronize(struct shoali_event *event)
{
    (void)event;
    return SHOAL_OK;
}

static shoal_status meta_event_elapsed(struct shoali_event *begin, struct shoali_event *end,
                                       int64_t *ns)
{
    (void)begin;
    (void)end;
    *ns = 0;
    return SHOAL_OK;
}

static shoal_status meta_stream_wait_event(struct shoali_device_stream *stream,
                                           struct shoali_event *event)
{
    (void)stream;
    (void)event;
    return SHOAL_OK;
}

static shoal_status meta_launch(struct shoali_device_stream *stream,
                                const struct shoali_kernel_type *type, shoali_kernel_fn fn,
                                const void *args)
{
    (void)stream;
    (void)type;
    (void)fn;
    (void)args;
    return SHOAL_OK;
}

/* The host reads zeros. */
static shoal_status meta_copy(struct shoali_device_stream *stream, void *to, const void *from,
                              size_t bytes, enum shoali_copy_kind kind)
{
    (void)stream;
    (void)from;
    if (kind == SHOALI_DEVICE_TO_HOST && (uintptr_t)to < FIRST_ADDRESS)
        memset(to, 0, bytes);
    return SHOAL_OK;
}

static shoal_status meta_fill(struct shoali_device_stream *stream, void *to, uint8_t byte,
                              size_t bytes)
{
    (void)stream;
    (void)to;
    (void)byte;
    (void)bytes;
    return SHOAL_OK;
}

/* What a task does is counted where it does it. */
static shoal_status meta_launch_host(struct shoali_device_stream *stream,
                                     const struct shoali_host_task *task)
{
    return shoali_accelerator_cpu.launch_host(stream, task);
}

static void meta_memory(struct shoali_device *device, int64_t *total_bytes,
                        int64_t *available_bytes)
{
    (void)device;
    *total_bytes = *available_bytes = INT64_MAX;
}

static bool meta_owns(struct shoali_device *device, const void *address)
{
    struct meta_device *meta = (struct meta_device *)device;
    pthread_mutex_lock(&meta->lock);
    const bool owned = find_block(&meta->device, address) < meta->device.count;
    pthread_mutex_unlock(&meta->lock);
    return owned;
}

/* ---- the tables ----------------------------------------------------------------------------- */

#define META_MEMBERS                                                                           \
    .abi = SHOALI_ACCELERATOR_ABI, .bytes = sizeof(struct shoali_accelerator), .name = "meta", \
    .meta = true, .probe = meta_probe, .device_count = meta_device_count,                      \
    .device_destroy = meta_device_destroy, .alloc = meta_alloc, .free = meta_free,             \
    .owns = meta_owns, .host_alloc = meta_host_alloc, .host_free = meta_host_free,             \
    .stream_create = meta_stream_create, .stream_destroy = meta_stream_destroy,                \
    .stream_synchronize = meta_stream_synchronize, .event_create = meta_event_create,          \
    .event_destroy = meta_event_destroy, .event_record = meta_event_record,                    \
    .event_synchronize = meta_event_synchronize, .event_elapsed = meta_event_elapsed,          \
    .stream_wait_event = meta_stream_wait_event, .launch = meta_launch, .copy = meta_copy,     \
    .fill = meta_fill, .launch_host = meta_launch_host, .memory = meta_memory,                 \
    .counters = shoali_device_read_counters

/* A table for each accelerator that a plan may be of: its device_create knows which. */
#define META_TABLE(like, ...)                                                  \
    static shoal_status create_##like(int32_t index, struct shoali_pool *pool, \
                                      struct shoali_device **device);          \
    static const struct shoali_accelerator meta_##like = {                     \
        META_MEMBERS, .device_create = create_##like, __VA_ARGS__};            \
    static shoal_status create_##like(int32_t index, struct shoali_pool *pool, \
                                      struct shoali_device **device)           \
    {                                                                          \
        (void)index;                                                           \
        return create(&meta_##like, pool, device);                             \
    }
META_TABLE(cpu, .host_accessible = true, .exportable = true, .host_kernels = true)
META_TABLE(sim, .exportable = true, .host_kernels = true, .memory_name = "sim")
META_TABLE(sim_closed, .memory_name = "sim")
META_TABLE(cuda, .memory_name = "cuda")

const struct shoali_accelerator *shoali_accelerator_meta(const struct shoali_accelerator *like)
{
    if (like == &shoali_accelerator_cuda)
        return &meta_cuda;
    return like->host_accessible ? &meta_cpu : like->host_kernels ? &meta_sim : &meta_sim_closed;
}
