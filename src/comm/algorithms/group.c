/* The control memory of a group and the small things done with it. */
#include "comm/algorithms/slots.h"

#include <string.h>

struct layout {
    size_t slots, channels, halves, pieces, bytes;
    size_t half_bytes, piece_bytes;
};

static size_t clamp(size_t value, size_t low, size_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Staging for about 4 MiB of halves and 4 MiB of pieces; a half holds at least a small operation, a
 * piece a short message, so that a group of the most ranks costs each of them about 0.6 MiB. */
static struct layout make_layout(int32_t size)
{
    const size_t budget = (size_t)4 << 20, ranks = (size_t)size;
    struct layout layout = {0};
    layout.half_bytes = clamp(budget / (2 * ranks) / 4096 * 4096, SHOALI_SMALL_BYTES, 262144);
    layout.piece_bytes =
        clamp(budget / (2 * ranks * ranks) / 4096 * 4096, ranks > 64 ? 512 : 4096, 65536);
    layout.slots = (sizeof(struct shoali_group_shared) + 4095) / 4096 * 4096;
    layout.channels = layout.slots + ranks * sizeof(struct shoali_slot);
    layout.halves = layout.channels + ranks * ranks * sizeof(struct shoali_channel);
    layout.halves = (layout.halves + 4095) / 4096 * 4096;
    layout.pieces = layout.halves + 2 * ranks * layout.half_bytes;
    layout.bytes = layout.pieces + 2 * ranks * ranks * layout.piece_bytes;
    return layout;
}

size_t shoali_group_bytes(int32_t size)
{
    return make_layout(size).bytes;
}

void shoali_group_format(void *memory, int32_t size, uint64_t identity, const int32_t *world_rank)
{
    struct shoali_group_shared *shared = memory;
    shared->identity = identity;
    shared->size = size;
    memcpy(shared->world_rank, world_rank, (size_t)size * sizeof(world_rank[0]));
}

shoal_status shoali_group_open(struct shoali_slots_world *world, void *memory,
                               const struct shoali_segment *segment, int32_t rank,
                               struct shoali_slots_group **out)
{
    struct shoali_slots_group *group = shoali_calloc(1, sizeof(*group), "a group");
    struct shoali_segment own = *segment;
    if (!group) {
        if (own.base)
            world->host->detach(world->user, &own);
        return SHOAL_ENOMEM;
    }
    unsigned char *base = memory;
    group->shared = memory;
    group->size = group->shared->size;
    struct layout layout = make_layout(group->size);
    group->slot = (struct shoali_slot *)(base + layout.slots);
    group->channel = (struct shoali_channel *)(base + layout.channels);
    group->halves = base + layout.halves;
    group->pieces = base + layout.pieces;
    group->half_bytes = layout.half_bytes;
    group->piece_bytes = layout.piece_bytes;
    group->segment = own;
    group->rank = rank;
    for (int32_t r = 0; r < group->size; r++)
        shoali_members_add(&group->members, group->shared->world_rank[r]);
    group->world = world;
    group->spin_ns = world->spin_ns;
    shoali_world_retain(world);
    *out = group;
    return SHOAL_OK;
}

void shoali_group_ring(struct shoali_slots_group *group, int32_t rank)
{
    struct shoali_slot *slot = &group->slot[rank];
    if (rank == group->rank || !atomic_load(&slot->sleeping))
        return;
    atomic_fetch_add(&slot->bell, 1);
    shoali_futex_wake(&slot->bell);
}

void shoali_group_ring_all(struct shoali_slots_group *group)
{
    for (int32_t r = 0; r < group->size; r++)
        shoali_group_ring(group, r);
}

/* A rank whose call fails returns only when nobody is busy (progress.c), so that its buffers are
 * not touched afterwards: busy is set before looking at the verdict, there the verdict before
 * looking at busy. */
bool shoali_group_enter_busy(struct shoali_slots_group *group)
{
    atomic_store(&group->slot[group->rank].busy, 1);
    if (atomic_load(&group->world->shared->verdict) == SHOALI_VERDICT_NONE)
        return true;
    atomic_store(&group->slot[group->rank].busy, 0);
    return false;
}

void shoali_group_leave_busy(struct shoali_slots_group *group)
{
    atomic_store(&group->slot[group->rank].busy, 0);
}

unsigned char *shoali_group_half(const struct shoali_slots_group *group, int32_t rank)
{
    return group->halves + ((size_t)rank * 2 + group->round % 2) * group->half_bytes;
}

const struct shoali_wire *shoali_group_wire(const struct shoali_slots_group *group, int32_t rank)
{
    return &group->slot[rank].front[group->round % 2].wire;
}

/* A front says the present round or the one before the last: nobody is further ahead. */
bool shoali_group_has_arrived(const struct shoali_slots_group *group, int32_t rank)
{
    return atomic_load(&group->slot[rank].front[group->round % 2].arrived) == group->round;
}

struct shoali_channel *shoali_group_channel(const struct shoali_slots_group *group, int32_t from,
                                            int32_t to)
{
    return &group->channel[(size_t)from * (size_t)group->size + (size_t)to];
}
