/* Segments shared by the ranks of a group, and the memory of shoal_comm_alloc.
 *
 * An arena has one part per rank. A rank that frees its part keeps the mapping until all its
 * members have freed theirs, because a member that still uses the arena names places in it that the
 * others must be able to reach. */
#include "comm/algorithms/slots.h"

#include <stdio.h>
#include <string.h>

enum { HEADER_BYTES = 4096, SENTENCE_BYTES = 384 };

struct shoali_arena_shared {
    uint64_t identity;
    _Atomic uint32_t freed; /* members that have freed their part */
};

/* What a rank reports while a segment is made. */
struct note {
    int32_t status;
    uint64_t address;
    char name[sizeof(((struct shoali_segment *)0)->name)];
    char sentence[SENTENCE_BYTES];
};

static void note_status(struct note *note, shoal_status status)
{
    note->status = status;
    if (status < 0)
        snprintf(note->sentence, sizeof(note->sentence), "%s", shoal_error_message());
}

/* Everybody's notes; an error when one of them is. */
static shoal_status exchange_notes(struct shoali_slots_group *group, const struct note *own,
                                   struct note *notes)
{
    shoal_status status = shoali_slots_run(group, &(struct shoali_post){.kind = SHOALI_ALL_GATHER,
                                                                        .here = SHOALI_HERE,
                                                                        .in = own,
                                                                        .out = notes,
                                                                        .count = sizeof(*own),
                                                                        .dtype = SHOAL_U8});
    for (int32_t r = 0; r < group->size && status == SHOAL_OK; r++)
        if (notes[r].status < 0)
            status = SHOAL_FAIL((shoal_status)notes[r].status, "rank %d: %s",
                                (int)shoali_slots_number(group, r), notes[r].sentence);
    return status;
}

shoal_status shoali_segment_share(struct shoali_slots_group *group,
                                  const struct shoali_segment_args *args,
                                  struct shoali_segment *segment)
{
    struct shoali_slots_world *world = group->world;
    struct note own = {0}, notes[SHOALI_MAX_RANKS];
    const bool is_maker = args->maker == group->rank;
    shoal_status status = SHOAL_OK;
    *segment = (struct shoali_segment){
        .fd = -1, .bytes = args->bytes, .own_begin = args->own_begin, .own_bytes = args->own_bytes};
    if (is_maker) {
        note_status(&own, world->host->create(world->user, args->bytes, segment));
        if (own.status == SHOAL_OK)
            args->format(segment->base, args->format_arg);
        own.address = segment->address;
        memcpy(own.name, segment->name, sizeof(own.name));
    }
    SHOAL_TRY(status, exchange_notes(group, &own, notes), done);
    if (!is_maker && args->maker >= 0) {
        segment->address = notes[args->maker].address;
        memcpy(segment->name, notes[args->maker].name, sizeof(segment->name));
        note_status(&own, world->host->attach(world->user, segment));
    } else if (is_maker && args->own_bytes > 0 && world->host->reserve) {
        note_status(&own, world->host->reserve(world->user, segment));
    }
    SHOAL_TRY(status, exchange_notes(group, &own, notes), done);
done:
    if (is_maker && segment->base)
        world->host->seal(segment);
    if (status != SHOAL_OK && segment->base) {
        world->host->detach(world->user, segment);
        segment->base = NULL;
    }
    return status;
}

static void format_arena(void *memory, const void *identity)
{
    ((struct shoali_arena_shared *)memory)->identity = *(const uint64_t *)identity;
}

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

shoal_status shoali_slots_alloc(void *backend, const char *here, size_t bytes, void **memory)
{
    struct shoali_slots_group *group = backend;
    struct shoali_slots_world *world = group->world;
    shoal_status status = SHOAL_OK;
    const size_t stride = round_up(bytes > 0 ? bytes : 1, 4096);
    uint64_t identity = 0;
    (void)here; /* the group's `check` names it */
    struct shoali_segment_args args = {.maker = 0, .format = format_arena, .format_arg = &identity};
    struct shoali_comm_arena *arena = shoali_calloc(1, sizeof(*arena), "an arena");
    *memory = NULL;
    if (!arena) {
        shoali_slots_abort(group, SHOAL_ENOMEM, shoal_error_message());
        return SHOAL_ENOMEM;
    }
    if (stride < bytes || stride > (SIZE_MAX / 2 - HEADER_BYTES) / (size_t)group->size) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot share %zu bytes for each of %d ranks", bytes,
                            (int)group->size);
        goto done;
    }
    args.bytes = HEADER_BYTES + stride * (size_t)group->size;
    /* Every rank its part, at the same time: clearing pages takes a large model's ranks long. */
    args.own_begin = group->rank == 0 ? 0 : HEADER_BYTES + stride * (size_t)group->rank;
    args.own_bytes = group->rank == 0 ? HEADER_BYTES + stride : stride;
    if (group->rank == 0)
        identity = atomic_fetch_add(&world->shared->next_identity, 1) + 1;
    SHOAL_TRY(status, shoali_segment_share(group, &args, &arena->segment), done);
    arena->shared = arena->segment.base;
    arena->identity = arena->shared->identity;
    arena->members = group->members;
    arena->owner = group;
    arena->bytes = stride;
    arena->memory =
        (unsigned char *)arena->segment.base + HEADER_BYTES + (size_t)group->rank * stride;
    *memory = arena->memory;
    pthread_mutex_lock(&world->lock);
    arena->next = world->arenas;
    world->arenas = arena;
    pthread_mutex_unlock(&world->lock);
    arena = NULL;
done:
    shoali_free(arena);
    return status;
}

/* Unmaps what no member uses any more; with `all`, everything. Under the lock. */
static void sweep(struct shoali_slots_world *world, bool all)
{
    struct shoali_comm_arena **link = &world->arenas;
    while (*link) {
        struct shoali_comm_arena *arena = *link;
        const uint32_t members = shoali_members_count(&arena->members);
        if (!all && atomic_load(&arena->shared->freed) < members) {
            link = &arena->next;
            continue;
        }
        *link = arena->next;
        world->host->detach(world->user, &arena->segment);
        shoali_free(arena);
    }
}

static void give_up(struct shoali_comm_arena *arena)
{
    arena->owner = NULL;
    atomic_fetch_add(&arena->shared->freed, 1);
}

void shoali_slots_free(void *backend, void *memory)
{
    struct shoali_slots_world *world = ((struct shoali_slots_group *)backend)->world;
    pthread_mutex_lock(&world->lock);
    for (struct shoali_comm_arena *arena = world->arenas; arena; arena = arena->next)
        if (arena->memory == memory && arena->owner) {
            give_up(arena);
            break;
        }
    sweep(world, false);
    pthread_mutex_unlock(&world->lock);
}

void shoali_arenas_drop(struct shoali_slots_world *world, const void *owner)
{
    pthread_mutex_lock(&world->lock);
    for (struct shoali_comm_arena *arena = world->arenas; arena; arena = arena->next)
        if (arena->owner && (!owner || arena->owner == owner))
            give_up(arena);
    sweep(world, owner == NULL);
    pthread_mutex_unlock(&world->lock);
}

struct shoali_place shoali_place_of(struct shoali_slots_world *world, const void *memory,
                                    size_t bytes)
{
    struct shoali_place place = {0};
    if (world->host->any_address) {
        memset(&place.members, 0xff, sizeof place.members);
        place.arena = SHOALI_PLACE_ADDRESS;
        place.offset = (uintptr_t)memory;
        return place;
    }
    uintptr_t begin = (uintptr_t)memory;
    pthread_mutex_lock(&world->lock);
    for (const struct shoali_comm_arena *arena = world->arenas; arena; arena = arena->next) {
        uintptr_t base = (uintptr_t)arena->memory;
        if (!arena->owner || begin < base || begin - base > arena->bytes ||
            arena->bytes - (begin - base) < bytes)
            continue;
        place = (struct shoali_place){arena->identity, begin - (uintptr_t)arena->segment.base,
                                      arena->members};
        break;
    }
    pthread_mutex_unlock(&world->lock);
    return place;
}

void *shoali_place_resolve(struct shoali_slots_world *world, const struct shoali_place *place)
{
    unsigned char *address = NULL;
    if (place->arena == SHOALI_PLACE_ADDRESS)
        return (void *)(uintptr_t)place->offset;
    pthread_mutex_lock(&world->lock);
    for (const struct shoali_comm_arena *arena = world->arenas; arena && !address;
         arena = arena->next)
        if (arena->identity == place->arena)
            address = (unsigned char *)arena->segment.base + place->offset;
    pthread_mutex_unlock(&world->lock);
    SHOAL_ASSERT(address); /* members keep an arena until all have freed it */
    return address;
}
