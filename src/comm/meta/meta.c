/* One rank of a group whose other ranks do not exist: for plans. Posts are counted by wrap/record
 * and complete at once. Records of the host (small, in its own memory) come out as if every other
 * rank had posted the same; device addresses (accelerator/meta) and staged data are not touched. */
#include "comm/comm.h"

#include <string.h>

#define FIRST_ADDRESS ((uintptr_t)1 << 61)
#define PAGE_BYTES ((size_t)4096)
#define RECORD_BYTES ((size_t)64 << 10) /* gathers that are longer carry the device's data */

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

/* y = x * ranks, in integers or rounded: the sum of equal values. Of a long record the beginning,
 * which is what somebody looks at: the step's has a word for every few parameters behind it. */
static void sum_equal(const struct shoali_post *post, int32_t ranks)
{
    const int64_t room = (int64_t)(RECORD_BYTES / shoal_dtype_bytes(post->dtype));
    for (int64_t i = 0; i < post->count && i < room; i++) {
        if (post->dtype == SHOAL_I64)
            ((int64_t *)post->out)[i] = ((const int64_t *)post->in)[i] * ranks;
        else if (post->dtype == SHOAL_I32)
            ((int32_t *)post->out)[i] = ((const int32_t *)post->in)[i] * ranks;
        else if (post->dtype == SHOAL_F64)
            ((double *)post->out)[i] = ((const double *)post->in)[i] * ranks;
        else if (post->dtype == SHOAL_F32)
            ((float *)post->out)[i] = ((const float *)post->in)[i] * (float)ranks;
    }
}

static void copy_own(const struct shoali_post *post, int32_t ranks)
{
    const size_t bytes = shoali_post_in_bytes(post, ranks);
    const size_t out_bytes = shoali_post_out_bytes(post, ranks);
    for (size_t at = 0; bytes > 0 && at + bytes <= out_bytes; at += bytes)
        if ((const char *)post->out + at != post->in)
            memmove((char *)post->out + at, post->in, bytes);
}

static bool is_host(const void *address)
{
    return address && (uintptr_t)address < FIRST_ADDRESS;
}

static shoal_status post(void *backend, const struct shoali_post *post, void **request)
{
    const struct meta_group *group = backend;
    const size_t out_bytes = shoali_post_out_bytes(post, group->size);
    *request = NULL;
    if (out_bytes == 0 || !is_host(post->out) || !is_host(post->in))
        return SHOAL_OK;
    if (post->kind == SHOALI_ALL_REDUCE && post->op == SHOAL_SUM)
        sum_equal(post, group->size);
    else if (out_bytes <= RECORD_BYTES &&
             (post->kind == SHOALI_ALL_REDUCE || post->kind == SHOALI_ALL_GATHER))
        copy_own(post, group->size);
    return SHOAL_OK;
}

static shoal_status finish(void *backend, void *request)
{
    (void)backend;
    (void)request;
    return SHOAL_OK;
}

/* The others give the same color, unless the caller knows how many do, and which of them this
 * is. */
static shoal_status split(void *backend, const struct shoali_split_args *args, void **child)
{
    const struct meta_group *group = backend;
    const int32_t ranks = args->expected > 0 ? args->expected : group->size;
    const int32_t own = args->expected > 0 ? args->key : group->rank;
    *child = NULL;
    return args->color < 0 ? SHOAL_OK
                           : create(&(shoal_comm_args){.rank = own, .world_size = ranks}, child);
}

static shoal_status alloc(void *backend, const char *here, size_t bytes, void **memory)
{
    struct meta_group *group = backend;
    (void)here;
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

static void second_thread(void *backend)
{
    (void)backend; /* there is nobody to wait for */
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
    .second_thread = second_thread,
};
