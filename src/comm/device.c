/* Device memory that collectives reach. */
#include "comm/group.h"

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

shoal_status shoali_comm_device_alloc(const char *here, shoal_group *group,
                                      struct shoali_device_stream *stream, size_t bytes,
                                      void **address)
{
    struct shoali_device *device = shoali_stream_device(stream);
    shoal_status status;
    if (!is_shared(group, device))
        return shoali_device_alloc_zeroed(stream, bytes, address);
    SHOAL_TRY(status, shoal_comm_alloc_at(here, group, bytes, address), done);
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
