/* Groups: made of the world or of another group, and their memory. */
#include "comm/p2p/large.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LARGE_BYTES = 16 << 20 };

static void drop(struct shoali_p2p_group *group)
{
    struct shoali_p2p_world *world = group->world;
    while (group->memory) {
        struct shoali_p2p_memory *memory = group->memory;
        group->memory = memory->next;
        munmap(memory->address, memory->bytes);
        shoali_free(memory);
    }
    for (int32_t i = 0; i < SHOALI_QUEUE_REQUESTS; i++)
        shoali_free(group->op[i].room);
    /* Of an aborted world, the transport may still hold the envelopes. */
    if (!atomic_load(&world->aborted)) {
        for (int32_t r = 0; group->peer && r < group->size; r++) {
            shoali_free(group->peer[r].sent);
            shoali_free(group->peer[r].got);
        }
        shoali_free(group->peer);
        shoali_p2p_large_destroy(group->large);
        shoali_free(group->world_rank);
        shoali_free(group);
    }
    shoali_p2p_world_release(world);
}

static shoal_status make_peers(struct shoali_p2p_group *group)
{
    if (group->size > SHOALI_P2P_MAX_RANKS) {
        group->large = shoali_p2p_large_create(group->rank, group->size);
        return group->large ? SHOAL_OK : SHOAL_ENOMEM;
    }
    group->peer = shoali_calloc((size_t)group->size, sizeof *group->peer, "the ranks of a group");
    if (!group->peer)
        return SHOAL_ENOMEM;
    for (int32_t r = 0; r < group->size; r++) {
        struct shoali_p2p_peer *peer = &group->peer[r];
        peer->sent = shoali_calloc(1, sizeof *peer->sent, "an envelope");
        peer->got = shoali_calloc(1, sizeof *peer->got, "an envelope");
        if (!peer->sent || !peer->got)
            return SHOAL_ENOMEM;
    }
    return SHOAL_OK;
}

static shoal_status open_group(struct shoali_p2p_world *world, int32_t tag,
                               const int32_t *world_rank, int32_t size,
                               struct shoali_p2p_group **out)
{
    shoal_status status = SHOAL_OK;
    struct shoali_p2p_group *group = shoali_calloc(1, sizeof *group, "a group");
    *out = NULL;
    if (!group)
        return SHOAL_ENOMEM;
    shoali_p2p_world_retain(world);
    group->world = world;
    group->size = size;
    group->tag = tag;
    group->world_rank = shoali_malloc((size_t)size * sizeof *world_rank, "the ranks of a group");
    if (!group->world_rank) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    memcpy(group->world_rank, world_rank, (size_t)size * sizeof *world_rank);
    while (world_rank[group->rank] != world->rank)
        group->rank++;
    status = make_peers(group);
    if (status < 0)
        goto done;
    *out = group;
    return SHOAL_OK;
done:
    drop(group);
    return status;
}

void shoali_p2p_destroy(void *backend)
{
    struct shoali_p2p_group *group = backend;
    /* peer -1 tells it from the barriers of ranks that go on. */
    const struct shoali_post barrier = {
        .kind = SHOALI_BARRIER, .here = "shoal_comm_destroy", .dtype = SHOAL_U8, .peer = -1};
    if (shoali_p2p_run(group, &barrier) != SHOAL_OK)
        SHOALI_DEBUG("comm", "left an aborted group: %s", shoal_error_message());
    drop(group);
}

bool shoali_p2p_probe(void)
{
    return true; /* what is missing is said by create, which knows why it is needed */
}

int32_t shoali_p2p_rank(const void *backend)
{
    return ((const struct shoali_p2p_group *)backend)->rank;
}

int32_t shoali_p2p_size(const void *backend)
{
    return ((const struct shoali_p2p_group *)backend)->size;
}

/* ---- split ---------------------------------------------------------------------------------- */

struct choice {
    int32_t color, key, tag;
};

/* A tag that none of the parent's ranks uses; the children of one split have no rank in common and
 * share it. */
static int32_t agree_on_tag(struct shoali_p2p_world *world, const struct choice *choices,
                            int32_t ranks)
{
    int32_t tag = 0;
    for (int32_t r = 0; r < ranks; r++)
        tag = choices[r].tag > tag ? choices[r].tag : tag;
    pthread_mutex_lock(&world->lock);
    if (world->next_tag < tag + SHOALI_P2P_TAGS)
        world->next_tag = tag + SHOALI_P2P_TAGS;
    pthread_mutex_unlock(&world->lock);
    return tag;
}

shoal_status shoali_p2p_split(void *backend, const struct shoali_split_args *args, void **child)
{
    struct shoali_p2p_group *parent = backend, *group = NULL;
    struct shoali_p2p_world *world = parent->world;
    struct choice own = {.color = args->color, .key = args->key};
    const size_t ranks = (size_t)parent->size;
    struct choice *choices = shoali_malloc(ranks * sizeof *choices, "the colors of ranks");
    int32_t *members = shoali_malloc(2 * ranks * sizeof *members, "the ranks of a group");
    int32_t *world_rank = members ? members + ranks : NULL;
    shoal_status status = SHOAL_OK;
    *child = NULL;
    if (!choices || !members) {
        status = SHOAL_ENOMEM;
        shoali_p2p_abort(parent, status, shoal_error_message()); /* or the others wait for us */
        goto done;
    }
    pthread_mutex_lock(&world->lock);
    own.tag = world->next_tag;
    pthread_mutex_unlock(&world->lock);
    SHOAL_TRY(status,
              shoali_p2p_run(parent, &(struct shoali_post){.kind = SHOALI_ALL_GATHER,
                                                           .here = args->here,
                                                           .in = &own,
                                                           .out = choices,
                                                           .count = 3,
                                                           .dtype = SHOAL_I32}),
              done);
    const int32_t tag = agree_on_tag(world, choices, parent->size);
    if (tag > world->largest_tag - SHOALI_P2P_TAGS) {
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                            "%s has tags up to %d, and earlier groups have used them: make groups "
                            "once instead of again and again",
                            world->p2p->name, (int)world->largest_tag);
        goto done;
    }
    if (args->color < 0)
        goto done;
    const int32_t count =
        shoali_split_members(&choices[0].color, 3, parent->size, args->color, members);
    for (int32_t i = 0; i < count; i++)
        world_rank[i] = parent->world_rank[members[i]];
    status = open_group(world, tag, world_rank, count, &group);
    if (status < 0) /* the others have their groups */
        shoali_p2p_abort(parent, status, shoal_error_message());
    *child = group;
done:
    shoali_free(choices);
    shoali_free(members);
    return status;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* All ranks get theirs, or none. */
static shoal_status agree_on_memory(struct shoali_p2p_group *group, shoal_status own,
                                    const char *here, size_t bytes)
{
    int32_t failed = own == SHOAL_OK ? group->size : group->rank;
    char size_text[32];
    const struct shoali_post post = {.kind = SHOALI_ALL_REDUCE,
                                     .here = here,
                                     .in = &failed,
                                     .out = &failed,
                                     .count = 1,
                                     .dtype = SHOAL_I32,
                                     .op = SHOAL_MIN};
    const shoal_status status = shoali_p2p_run(group, &post);
    if (status != SHOAL_OK || failed == group->size)
        return status;
    return SHOAL_FAIL(SHOAL_ENOMEM, "rank %d cannot allocate %s", (int)group->world_rank[failed],
                      shoali_format_bytes((double)bytes, size_text));
}

shoal_status shoali_p2p_alloc(void *backend, const char *here, size_t bytes, void **address)
{
    struct shoali_p2p_group *group = backend;
    struct shoali_p2p_memory *memory = shoali_calloc(1, sizeof *memory, "a buffer");
    shoal_status status = memory ? SHOAL_OK : SHOAL_ENOMEM;
    *address = NULL;
    if (memory) {
        memory->bytes = bytes > 0 ? bytes : 1;
        memory->address = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory->address == MAP_FAILED)
            status = SHOAL_ENOMEM;
        else if (bytes >= LARGE_BYTES)
            madvise(memory->address, bytes, MADV_HUGEPAGE);
    }
    status = agree_on_memory(group, status, here, bytes);
    if (status == SHOAL_OK) {
        memory->next = group->memory;
        group->memory = memory;
        *address = memory->address;
        return SHOAL_OK;
    }
    if (memory && memory->address != MAP_FAILED)
        munmap(memory->address, memory->bytes);
    shoali_free(memory);
    return status;
}

void shoali_p2p_free(void *backend, void *address)
{
    struct shoali_p2p_group *group = backend;
    for (struct shoali_p2p_memory **link = &group->memory; *link; link = &(*link)->next) {
        struct shoali_p2p_memory *memory = *link;
        if (memory->address != address)
            continue;
        *link = memory->next;
        munmap(memory->address, memory->bytes);
        shoali_free(memory);
        return;
    }
}

/* ---- of the world -------------------------------------------------------------------------- */

shoal_status shoali_p2p_open_all(struct shoali_p2p_world *world, void **backend)
{
    struct shoali_p2p_group *group = NULL;
    int32_t *world_rank =
        shoali_malloc((size_t)world->size * sizeof *world_rank, "the ranks of a group");
    shoal_status status = world_rank ? SHOAL_OK : SHOAL_ENOMEM;
    for (int32_t r = 0; world_rank && r < world->size; r++)
        world_rank[r] = r;
    if (world_rank)
        status = open_group(world, SHOALI_P2P_FIRST_TAG, world_rank, world->size, &group);
    shoali_free(world_rank);
    if (status < 0)
        shoali_p2p_world_abort(world, world->rank, status, shoal_error_message());
    if (status == SHOAL_OK) {
        status = shoali_p2p_rules_share(group);
        if (status < 0) {
            shoali_p2p_destroy(group);
            group = NULL;
        }
    }
    *backend = group;
    return status;
}

void shoali_p2p_second_thread(void *backend)
{
    (void)backend; /* waits sleep soon anyway; the transport keeps threads apart */
}
