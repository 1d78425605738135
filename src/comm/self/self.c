/* One rank: everything is a copy. Buffers are pages, zeroed like those of the other backends. */
#include "comm/comm.h"

#include <string.h>
#include <sys/mman.h>

struct self_group {
    shoal_status failed; /* SHOAL_OK, or the status it was aborted with */
    char sentence[1024];
    struct self_memory *memory; /* of alloc, freed with the group */
};

struct self_memory {
    struct self_memory *next;
    void *address;
    size_t bytes;
};

static bool probe(void)
{
    return true;
}

static shoal_status create(const shoal_comm_args *args, void **backend)
{
    if (args->world_size != 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "backend self is for one rank, not %d: use shm or thread",
                          (int)args->world_size);
    *backend = shoali_calloc(1, sizeof(struct self_group), "a group");
    return *backend ? SHOAL_OK : SHOAL_ENOMEM;
}

static void destroy(void *backend)
{
    struct self_group *group = backend;
    while (group->memory) {
        struct self_memory *memory = group->memory;
        group->memory = memory->next;
        munmap(memory->address, memory->bytes);
        shoali_free(memory);
    }
    shoali_free(group);
}

static int32_t rank(const void *backend)
{
    (void)backend;
    return 0;
}

static int32_t size(const void *backend)
{
    (void)backend;
    return 1;
}

static shoal_status post(void *backend, const struct shoali_post *post, void **request)
{
    const struct self_group *group = backend;
    *request = NULL;
    if (group->failed != SHOAL_OK)
        return SHOAL_FAIL(group->failed, "%s", group->sentence);
    if (post->agree && post->kind == SHOALI_ALL_TO_ALL_V) {
        const struct shoali_record record = {.kind = SHOALI_ALL_TO_ALL_V};
        const struct shoali_seat seat = {
            .record = &record, .send_counts = post->send_counts, .recv_counts = post->recv_counts};
        shoal_status status = post->agree(&seat, 1);
        if (status < 0)
            return status;
    }
    size_t bytes = shoali_post_out_bytes(post, 1);
    if (bytes > 0 && post->out != post->in)
        memmove(post->out, post->in, bytes);
    return SHOAL_OK;
}

/* Posts complete at once, so there is never a request. */
static shoal_status finish(void *backend, void *request)
{
    (void)backend;
    (void)request;
    return SHOAL_OK;
}

static shoal_status split(void *backend, const struct shoali_split_args *args, void **child)
{
    const struct self_group *group = backend;
    *child = NULL;
    if (group->failed != SHOAL_OK)
        return SHOAL_FAIL(group->failed, "%s", group->sentence);
    return args->color < 0 ? SHOAL_OK : create(&(shoal_comm_args){.world_size = 1}, child);
}

static shoal_status alloc(void *backend, const char *here, size_t bytes, void **address)
{
    struct self_group *group = backend;
    struct self_memory *memory = shoali_calloc(1, sizeof(*memory), "a buffer");
    (void)here;
    *address = NULL;
    if (!memory)
        return SHOAL_ENOMEM;
    memory->bytes = bytes > 0 ? bytes : 1;
    memory->address = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory->address == MAP_FAILED) {
        shoali_free(memory);
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a buffer of %zu bytes", bytes);
    }
    memory->next = group->memory;
    group->memory = memory;
    *address = memory->address;
    return SHOAL_OK;
}

static void release(void *backend, void *address)
{
    struct self_group *group = backend;
    for (struct self_memory **link = &group->memory; *link; link = &(*link)->next) {
        struct self_memory *memory = *link;
        if (memory->address != address)
            continue;
        *link = memory->next;
        munmap(memory->address, memory->bytes);
        shoali_free(memory);
        return;
    }
}

static void second_thread(void *backend)
{
    (void)backend; /* there is nobody to wait for */
}

static void abort_group(void *backend, shoal_status status, const char *sentence)
{
    struct self_group *group = backend;
    size_t length = strlen(sentence);
    if (group->failed != SHOAL_OK)
        return;
    if (length >= sizeof(group->sentence))
        length = sizeof(group->sentence) - 1;
    memcpy(group->sentence, sentence, length);
    group->failed = status;
}

const struct shoali_comm_ops shoali_comm_self = {
    .abi = SHOALI_COMM_ABI,
    .bytes = sizeof(struct shoali_comm_ops),
    .name = "self",
    .probe = probe,
    .device_memory = true,
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
