/* staged.c - a kernel of the host on memory that only the device reaches.
 *
 * What the kernel's description says it may touch is copied to pinned memory of the stream, the
 * kernel runs there as a task of the host in the stream's order, and what it writes is copied back.
 * Arrays that overlap (q, k and v in one buffer) are one range, so that they overlap there, too. A
 * range is copied as a whole, gaps between rows included: the kernel may write some of them. Pinned
 * memory among the pointers is used where it is.
 */
#include "ops/kernel.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN_BYTES ((size_t)64)

struct range {
    char *begin; /* on the device */
    size_t bytes, at;
    bool written;
};
struct ranges {
    struct range range[SHOALI_KERNEL_MAX_POINTERS]; /* by address, without overlaps */
    int32_t count;
    size_t bytes; /* of pinned memory */
};

/* The call, as the stream's task keeps it. */
struct staged_call {
    struct shoali_device_stream *stream;
    shoali_kernel_fn fn;
    _Alignas(16) unsigned char args[];
};

static void add_range(struct ranges *ranges, struct range added)
{
    int32_t i = ranges->count++;
    for (; i > 0 && ranges->range[i - 1].begin > added.begin; i--)
        ranges->range[i] = ranges->range[i - 1];
    ranges->range[i] = added;
}

static void join_overlaps(struct ranges *ranges)
{
    int32_t kept = 0;
    for (int32_t i = 1; i < ranges->count; i++) {
        struct range *last = &ranges->range[kept];
        const struct range *next = &ranges->range[i];
        if (next->begin >= last->begin + last->bytes) {
            ranges->range[++kept] = *next;
            continue;
        }
        const size_t bytes = (size_t)(next->begin - last->begin) + next->bytes;
        last->bytes = bytes > last->bytes ? bytes : last->bytes;
        last->written = last->written || next->written;
    }
    ranges->count = ranges->count > 0 ? kept + 1 : 0;
}

/* Places in pinned memory, as far from a cache line's start as on the device. */
static void place(struct ranges *ranges)
{
    size_t at = 0;
    for (int32_t i = 0; i < ranges->count; i++) {
        struct range *range = &ranges->range[i];
        range->at = at + (uintptr_t)range->begin % ALIGN_BYTES;
        at = (range->at + range->bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    }
    ranges->bytes = at;
}

static shoal_status list_ranges(const struct shoali_kernel *kernel, struct shoali_device *device,
                                const void *args, struct ranges *ranges)
{
    *ranges = (struct ranges){0};
    SHOAL_ASSERT(kernel->type.array_offset == 0 && kernel->type.array_count_offset == 0);
    for (const struct shoali_kernel_pointer *at = kernel->type.pointers; at->name != NULL; at++) {
        char *begin = shoali_kernel_pointer_value(at, args);
        const size_t bytes = shoali_kernel_pointer_bytes(at, args);
        if (begin == NULL || !shoali_device_owns(device, begin))
            continue;
        if (shoali_kernel_pointer_count(at, args) < 0)
            return SHOAL_FAIL(SHOAL_EINTERNAL,
                              "kernel %s cannot run on the host: its description does not say how "
                              "long `%s` is",
                              kernel->type.name, at->name);
        if (bytes > 0)
            add_range(ranges, (struct range){.begin = begin,
                                             .bytes = bytes,
                                             .written = (at->use & SHOALI_WRITES) != 0});
    }
    join_overlaps(ranges);
    place(ranges);
    return SHOAL_OK;
}

/* The same pointers into pinned memory. */
static void translate(const struct shoali_kernel *kernel, const struct ranges *ranges,
                      const char *pinned, void *args)
{
    for (const struct shoali_kernel_pointer *at = kernel->type.pointers; at->name != NULL; at++) {
        char *value = shoali_kernel_pointer_value(at, args);
        for (int32_t i = 0; i < ranges->count; i++) {
            const struct range *range = &ranges->range[i];
            if (value < range->begin || value >= range->begin + range->bytes)
                continue;
            const char *moved = pinned + range->at + (value - range->begin);
            memcpy((char *)args + at->offset, &moved, sizeof moved);
        }
    }
}

static shoal_status run(void *user, void *const *buffers, bool may_wait)
{
    struct staged_call *call = user;
    (void)buffers;
    (void)may_wait;
    shoali_device_run_kernel(call->stream, call->fn, call->args);
    shoali_free(call);
    return SHOAL_OK;
}

static void drop(void *user, shoal_status status, const char *sentence)
{
    (void)status;
    (void)sentence;
    shoali_free(user);
}

static shoal_status queue(const struct shoali_exec *exec, const struct shoali_kernel *kernel,
                          shoali_kernel_fn fn, const void *args, const struct ranges *ranges,
                          const char *pinned)
{
    if (shoali_device_is_meta(shoali_stream_device(exec->stream)))
        return SHOAL_OK;
    struct staged_call *call =
        shoali_calloc(1, sizeof *call + kernel->type.args_bytes, "a kernel's call on the host");
    if (call == NULL)
        return SHOAL_ENOMEM;
    call->stream = exec->stream;
    call->fn = fn;
    memcpy(call->args, args, kernel->type.args_bytes);
    translate(kernel, ranges, pinned, call->args);
    return shoali_launch_host(
        exec->stream, &(struct shoali_host_task){
                          .name = kernel->type.name, .poll = run, .drop = drop, .user = call});
}

static shoal_status copy_ranges(struct shoali_device_stream *stream, const struct ranges *ranges,
                                char *pinned, enum shoali_copy_kind kind)
{
    shoal_status status = SHOAL_OK;
    const bool in = kind == SHOALI_DEVICE_TO_HOST;
    for (int32_t i = 0; i < ranges->count; i++) {
        const struct range *range = &ranges->range[i];
        char *host = pinned + range->at;
        if (in || range->written)
            SHOAL_TRY(status,
                      shoali_copy(stream, in ? host : range->begin, in ? range->begin : host,
                                  range->bytes, kind),
                      done);
    }
done:
    return status;
}

shoal_status shoali_kernel_stage(const struct shoali_exec *exec, const struct shoali_kernel *kernel,
                                 const struct shoali_ops_entry *entry, const void *args)
{
    shoal_status status;
    struct shoali_device_stream *stream = exec->stream;
    struct ranges ranges;
    void *pinned = NULL;
    shoali_ops_count_staged(exec->ops, kernel);
    SHOAL_TRY(status, list_ranges(kernel, shoali_stream_device(stream), args, &ranges), done);
    if (ranges.bytes > 0)
        SHOAL_TRY(status,
                  shoali_stream_staging(stream, SHOALI_STAGING_KERNEL, ranges.bytes, &pinned),
                  done);
    SHOAL_TRY(status, copy_ranges(stream, &ranges, pinned, SHOALI_DEVICE_TO_HOST), done);
    SHOAL_TRY(status, queue(exec, kernel, entry->fn, args, &ranges, pinned), done);
    SHOAL_TRY(status, copy_ranges(stream, &ranges, pinned, SHOALI_HOST_TO_DEVICE), done);
done:
    return status;
}
