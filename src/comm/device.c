/* Collectives on device addresses. */
#include "comm/group.h"

/* The stream's earlier work, a copy to pinned memory, the collective, a copy back. Waits for the
 * copies because the pinned memory is used again. */
static shoal_status staged(shoal_group *group, struct shoali_device_stream *stream,
                           const struct shoali_post *post)
{
    struct shoali_device *device = shoali_stream_device(stream);
    struct shoali_post host = *post;
    const size_t in_bytes = shoali_post_in_bytes(post, group->size);
    const size_t out_bytes = shoali_post_out_bytes(post, group->size);
    /* Of a broadcast `in` and `out` are the same buffer. */
    const bool one = post->kind == SHOALI_BROADCAST;
    void *in = NULL, *out = NULL;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, shoali_device_staging_take(device, in_bytes > 0 ? in_bytes : 1, &in), done);
    if (!one)
        SHOAL_TRY(status, shoali_device_staging_take(device, out_bytes > 0 ? out_bytes : 1, &out),
                  done);
    if (in_bytes > 0)
        SHOAL_TRY(status, shoali_copy(stream, in, post->in, in_bytes, SHOALI_DEVICE_TO_HOST), done);
    SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
    host.in = in;
    host.out = one ? in : out;
    SHOAL_TRY(status, shoali_comm_post(group, &host, NULL), done);
    if (out_bytes > 0) {
        SHOAL_TRY(status,
                  shoali_copy(stream, post->out, host.out, out_bytes, SHOALI_HOST_TO_DEVICE), done);
        SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
    }
done:
    shoali_device_staging_give(device, in);
    shoali_device_staging_give(device, out);
    return status;
}

static bool passes_through(const shoal_group *group, const struct shoali_device *device)
{
    return shoali_device_accelerator(device)->host_accessible || group->backend->device_memory;
}

/* Work on a host-accessible device is finished when its launch returns, so there is nothing to wait
 * for. */
shoal_status shoali_comm_device(shoal_group *group, struct shoali_device_stream *stream,
                                const struct shoali_post *post)
{
    if (passes_through(group, shoali_stream_device(stream)))
        return shoali_comm_post(group, post, NULL);
    return staged(group, stream, post);
}

static bool is_shared(const shoal_group *group, const struct shoali_device *device)
{
    return shoali_device_accelerator(device)->host_accessible && group->size > 1;
}

/* Remembers the size, and lets the device count the memory. */
static shoal_status note_block(shoal_group *group, struct shoali_device *device, void *address,
                               size_t bytes)
{
    struct shoali_comm_block *block = shoali_calloc(1, sizeof *block, "a shared buffer's size");
    if (!block)
        return SHOAL_ENOMEM;
    *block = (struct shoali_comm_block){group->block, address, bytes};
    group->block = block;
    shoali_device_count_foreign(device, (int64_t)bytes);
    return SHOAL_OK;
}

shoal_status shoali_comm_device_alloc(shoal_group *group, struct shoali_device_stream *stream,
                                      size_t bytes, void **address)
{
    struct shoali_device *device = shoali_stream_device(stream);
    shoal_status status;
    if (!is_shared(group, device))
        return shoali_device_alloc_zeroed(stream, bytes, address);
    SHOAL_TRY(status, shoal_comm_alloc(group, bytes, address), done);
    status = note_block(group, device, *address, bytes);
    if (status < 0) {
        shoal_comm_free(group, *address);
        *address = NULL;
    }
done:
    return status;
}

void shoali_comm_device_free(shoal_group *group, struct shoali_device *device, void *address)
{
    if (!address)
        return;
    if (!is_shared(group, device)) {
        shoali_device_free(device, address);
        return;
    }
    for (struct shoali_comm_block **link = &group->block; *link; link = &(*link)->next) {
        struct shoali_comm_block *block = *link;
        if (block->address != address)
            continue;
        shoali_device_count_foreign(device, -(int64_t)block->bytes);
        *link = block->next;
        shoali_free(block);
        break;
    }
    shoal_comm_free(group, address);
}
