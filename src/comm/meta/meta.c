/* One rank of a group whose other ranks do not exist: for plans. Posts are counted by wrap/record
 * and complete at once; what is in host memory gets this rank's own values, as if the others had
 * added nothing. Device addresses (accelerator/meta) are not touched. */
#include "comm/comm.h"

#include <string.h>

#define FIRST_ADDRESS ((uintptr_t)1 << 61)
#define PAGE_BYTES ((size_t)4096)

struct meta_group {
    int32_t rank, size;
    uintptr_t next; /* of the addresses that alloc hands out */
};

static bool probe(void)
{
    return true;
}

static shoal_status create(const shoal_comm_args *args, void **backend)
{
    struct meta_group *group = shoali_calloc(1, sizeof *group, "a group");
    *backend = group;
    if (!group)
        return SHOAL_ENOMEM;
    *group =
        (struct meta_group){.rank = args->rank, .size = args->world_size, .next = FIRST_ADDRESS};
    return SHOAL_OK;
}

static void destroy(void *backend)
{
    shoali_free(backend);
}

static int32_t rank(const void *backend)
{
    return ((const struct meta_group *)backend)->rank;
}

static int32_t size(const void *backend)
{
    return ((const struct meta_group *)backend)->size;
}

static shoal_status post(void *backend, const struct shoali_post *post, void **request)
{
    const struct meta_group *group = backend;
    const size_t in_bytes = shoali_post_in_bytes(post, group->size);
    const size_t out_bytes = shoali_post_out_bytes(post, group->size);
    const bool own = post->kind == SHOALI_ALL_REDUCE || post->kind == SHOALI_BROADCAST;
    *request = NULL;
    if (out_bytes == 0 || post->out == post->in || (uintptr_t)post->out >= FIRST_ADDRESS)
        return SHOAL_OK;
    if (own && in_bytes > 0 && (uintptr_t)post->in < FIRST_ADDRESS)
        memmove(post->out, post->in, out_bytes);
    else
        memset(post->out, 0, out_bytes);
    return SHOAL_OK;
}

static shoal_status finish(void *backend, void *request)
{
    (void)backend;
    (void)request;
    return SHOAL_OK;
}

static shoal_status split(void *backend, const char *here, int32_t color, int32_t key, void **child)
{
    (void)backend;
    (void)key;
    *child = NULL;
    return color < 0 ? SHOAL_OK
                     : SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                                  "a plan cannot split a group (%s): it does not know the colors "
                                  "of ranks that do not exist",
                                  here);
}

static shoal_status alloc(void *backend, size_t bytes, void **memory)
{
    struct meta_group *group = backend;
    *memory = (void *)group->next;
    group->next += (bytes / PAGE_BYTES + 1) * PAGE_BYTES;
    return SHOAL_OK;
}

static void release(void *backend, void *memory)
{
    (void)backend;
    (void)memory;
}

static void abort_group(void *backend, shoal_status status, const char *sentence)
{
    (void)backend;
    (void)status;
    (void)sentence;
}

const struct shoali_comm_ops shoali_comm_meta = {
    .abi = SHOALI_COMM_ABI,
    .bytes = sizeof(struct shoali_comm_ops),
    .name = "meta",
    .probe = probe,
    .device_memory = false,
    .create = create,
    .destroy = destroy,
    .rank = rank,
    .size = size,
    .post = post,
    .test = finish,
    .wait = finish,
    .split = split,
    .alloc = alloc,
    .free = release,
    .abort = abort_group,
};
