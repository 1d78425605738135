/* slot.c - first fit over a list of segments in address order. */
#include "autograd/tape/slot.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT_BYTES = 64, FIRST_BLOCK_BYTES = 256 * 1024, NONE = -1 };

/* A range of offsets, in use or free. Lists are linked by index, in address order. */
struct segment {
    size_t offset, bytes;
    int32_t prev, next;           /* neighbours of the same block; NONE at its ends */
    int32_t free_prev, free_next; /* of the free list */
    int32_t block;
    bool free;
};

struct block {
    char *base;
    size_t offset, bytes; /* in the space of offsets */
};

struct shoali_slot {
    struct shoali_device *device; /* NULL: meta */
    bool pinned;                  /* host memory */
    struct block *block;
    int32_t block_count;
    struct segment *segment;
    int32_t segment_count, segment_capacity;
    int32_t spare;      /* unused entries of `segment`, linked by next */
    int32_t first_free; /* lowest free segment */
    size_t capacity_bytes, used_bytes, peak_bytes;
    size_t high_bytes; /* most of used_bytes since it was last asked for */
    int64_t growth_count;
    bool planned; /* a capacity was given: growing means that the plan was wrong */
};

static size_t round_up(size_t bytes)
{
    const size_t rounded = (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    return rounded > 0 ? rounded : UNIT_BYTES;
}

/* ---- segments ---- */

/* Makes sure that two entries can be taken without failing. */
static shoal_status reserve_segments(struct shoali_slot *slot)
{
    if (slot->segment_count + 2 <= slot->segment_capacity)
        return SHOAL_OK;
    const int32_t capacity = slot->segment_capacity > 0 ? 2 * slot->segment_capacity : 256;
    struct segment *grown = realloc(slot->segment, (size_t)capacity * sizeof(*grown));
    if (grown == NULL)
        return SHOAL_FAIL(SHOAL_ENOMEM, "slot: cannot allocate a list of %d segments",
                          (int)capacity);
    slot->segment = grown;
    slot->segment_capacity = capacity;
    return SHOAL_OK;
}

static int32_t take_entry(struct shoali_slot *slot)
{
    const int32_t entry = slot->spare;
    if (entry == NONE)
        return slot->segment_count++;
    slot->spare = slot->segment[entry].next;
    return entry;
}

static void return_entry(struct shoali_slot *slot, int32_t entry)
{
    slot->segment[entry].next = slot->spare;
    slot->spare = entry;
}

static void link_free(struct shoali_slot *slot, int32_t entry)
{
    struct segment *s = slot->segment;
    int32_t before = NONE, after = slot->first_free;
    while (after != NONE && s[after].offset < s[entry].offset) {
        before = after;
        after = s[after].free_next;
    }
    s[entry].free = true;
    s[entry].free_prev = before;
    s[entry].free_next = after;
    if (after != NONE)
        s[after].free_prev = entry;
    if (before != NONE)
        s[before].free_next = entry;
    else
        slot->first_free = entry;
}

static void unlink_free(struct shoali_slot *slot, int32_t entry)
{
    struct segment *s = slot->segment;
    const int32_t before = s[entry].free_prev, after = s[entry].free_next;
    if (before != NONE)
        s[before].free_next = after;
    else
        slot->first_free = after;
    if (after != NONE)
        s[after].free_prev = before;
    s[entry].free = false;
}

/* One free segment that covers all of a block. */
static void cover_block(struct shoali_slot *slot, int32_t index)
{
    const int32_t entry = take_entry(slot);
    slot->segment[entry] = (struct segment){.offset = slot->block[index].offset,
                                            .bytes = slot->block[index].bytes,
                                            .prev = NONE,
                                            .next = NONE,
                                            .block = index};
    link_free(slot, entry);
}

/* ---- blocks ---- */

static shoal_status add_block(struct shoali_slot *slot, size_t bytes)
{
    shoal_status status;
    void *base = SHOALI_META_ADDRESS;
    struct block *grown =
        realloc(slot->block, ((size_t)slot->block_count + 1) * sizeof(*slot->block));
    if (grown == NULL)
        return SHOAL_FAIL(SHOAL_ENOMEM, "slot: cannot allocate a list of blocks");
    slot->block = grown;
    SHOAL_TRY(status, reserve_segments(slot), done);
    if (slot->device != NULL && slot->pinned)
        SHOAL_TRY(status, shoali_device_host_alloc(slot->device, bytes, &base), done);
    else if (slot->device != NULL)
        SHOAL_TRY(status, shoali_device_alloc(slot->device, bytes, &base), done);
    slot->block[slot->block_count] =
        (struct block){.base = base, .offset = slot->capacity_bytes, .bytes = bytes};
    slot->capacity_bytes += bytes;
    cover_block(slot, slot->block_count++);
    status = SHOAL_OK;
done:
    return status;
}

static shoal_status grow(struct shoali_slot *slot, size_t bytes)
{
    shoal_status status;
    size_t wanted =
        slot->capacity_bytes > FIRST_BLOCK_BYTES ? slot->capacity_bytes / 2 : FIRST_BLOCK_BYTES;
    if (wanted < bytes)
        wanted = bytes;
    wanted = round_up(wanted);
    SHOAL_TRY(status, add_block(slot, wanted), done);
    slot->growth_count++;
    shoali_log(slot->planned ? SHOAL_LOG_WARNING : SHOAL_LOG_DEBUG, "autograd",
               "activation memory grew by %zu to %zu bytes%s", wanted, slot->capacity_bytes,
               slot->planned ? "; the plan did not cover this shape" : "");
done:
    return status;
}

static shoal_status create(struct shoali_device *device, bool pinned, size_t capacity_bytes,
                           struct shoali_slot **slot)
{
    shoal_status status = SHOAL_OK;
    *slot = NULL;
    struct shoali_slot *made = shoali_calloc(1, sizeof(*made), "a slot");
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->device = device;
    made->pinned = pinned;
    made->spare = NONE;
    made->first_free = NONE;
    made->planned = device != NULL && capacity_bytes > 0;
    if (device == NULL)
        SHOAL_TRY(status, add_block(made, (SIZE_MAX / 4) / UNIT_BYTES * UNIT_BYTES), done);
    else if (capacity_bytes > 0)
        SHOAL_TRY(status, add_block(made, round_up(capacity_bytes)), done);
    *slot = made;
    made = NULL;
done:
    shoali_slot_destroy(made);
    return status;
}

shoal_status shoali_slot_create(struct shoali_device *device, size_t capacity_bytes,
                                struct shoali_slot **slot)
{
    return create(device, false, capacity_bytes, slot);
}

shoal_status shoali_slot_create_pinned(struct shoali_device *device, size_t capacity_bytes,
                                       struct shoali_slot **slot)
{
    return create(device, true, capacity_bytes, slot);
}

void shoali_slot_destroy(struct shoali_slot *slot)
{
    if (slot == NULL)
        return;
    for (int32_t i = 0; slot->device != NULL && i < slot->block_count; i++) {
        if (slot->pinned)
            shoali_device_host_free(slot->device, slot->block[i].base);
        else
            shoali_device_free(slot->device, slot->block[i].base);
    }
    free(slot->block);
    free(slot->segment);
    shoali_free(slot);
}

size_t shoali_slot_peak_bytes(const struct shoali_slot *slot)
{
    return slot != NULL ? slot->peak_bytes : 0;
}

int64_t shoali_slot_growth_count(const struct shoali_slot *slot)
{
    return slot != NULL ? slot->growth_count : 0;
}

size_t shoali_slot_used_bytes(const struct shoali_slot *slot)
{
    return slot->used_bytes;
}

size_t shoali_slot_take_high(struct shoali_slot *slot)
{
    const size_t high = slot->high_bytes;
    slot->high_bytes = slot->used_bytes;
    return high;
}

/* ---- allocation ---- */

static int32_t first_fit(const struct shoali_slot *slot, size_t bytes)
{
    int32_t entry = slot->first_free;
    while (entry != NONE && slot->segment[entry].bytes < bytes)
        entry = slot->segment[entry].free_next;
    return entry;
}

/* Splits the free segment `entry` so that it has exactly `bytes`; the rest stays free behind it. */
static void split(struct shoali_slot *slot, int32_t entry, size_t bytes)
{
    const int32_t rest = take_entry(slot);
    struct segment *s = slot->segment;
    s[rest] = (struct segment){.offset = s[entry].offset + bytes,
                               .bytes = s[entry].bytes - bytes,
                               .prev = entry,
                               .next = s[entry].next,
                               .free_prev = entry,
                               .free_next = s[entry].free_next,
                               .block = s[entry].block,
                               .free = true};
    if (s[rest].next != NONE)
        s[s[rest].next].prev = rest;
    if (s[rest].free_next != NONE)
        s[s[rest].free_next].free_prev = rest;
    s[entry].next = rest;
    s[entry].free_next = rest;
    s[entry].bytes = bytes;
}

shoal_status shoali_slot_alloc(struct shoali_slot *slot, size_t bytes, int32_t *segment)
{
    shoal_status status;
    *segment = SHOALI_NO_SEGMENT;
    if (bytes > SIZE_MAX / 8)
        return SHOAL_FAIL(SHOAL_ENOMEM,
                          "slot: %zu bytes for one tensor are more than a machine has", bytes);
    bytes = round_up(bytes);
    SHOAL_TRY(status, reserve_segments(slot), done);
    int32_t entry = first_fit(slot, bytes);
    if (entry == NONE) {
        SHOAL_TRY(status, grow(slot, bytes), done);
        SHOAL_TRY(status, reserve_segments(slot), done);
        entry = first_fit(slot, bytes);
    }
    if (slot->segment[entry].bytes > bytes)
        split(slot, entry, bytes);
    unlink_free(slot, entry);
    slot->used_bytes += bytes;
    if (slot->used_bytes > slot->high_bytes)
        slot->high_bytes = slot->used_bytes;
    const size_t end = slot->segment[entry].offset + bytes;
    if (end > slot->peak_bytes)
        slot->peak_bytes = end;
    *segment = entry;
    status = SHOAL_OK;
done:
    return status;
}

/* Joins free segment `entry` with its free follower. */
static void join_next(struct shoali_slot *slot, int32_t entry)
{
    struct segment *s = slot->segment;
    const int32_t next = s[entry].next;
    if (next == NONE || !s[next].free || !s[entry].free)
        return;
    unlink_free(slot, next);
    s[entry].bytes += s[next].bytes;
    s[entry].next = s[next].next;
    if (s[entry].next != NONE)
        s[s[entry].next].prev = entry;
    return_entry(slot, next);
}

void shoali_slot_free(struct shoali_slot *slot, int32_t segment)
{
    if (segment == SHOALI_NO_SEGMENT)
        return;
    SHOAL_ASSERT(segment < slot->segment_count && !slot->segment[segment].free);
    slot->used_bytes -= slot->segment[segment].bytes;
    const int32_t prev = slot->segment[segment].prev;
    link_free(slot, segment);
    join_next(slot, segment);
    if (prev != NONE)
        join_next(slot, prev);
}

void *shoali_slot_address(const struct shoali_slot *slot, int32_t segment)
{
    const struct segment *s = &slot->segment[segment];
    const struct block *block = &slot->block[s->block];
    return block->base + (s->offset - block->offset);
}

void shoali_slot_reset(struct shoali_slot *slot)
{
    slot->segment_count = 0;
    slot->spare = NONE;
    slot->first_free = NONE;
    slot->used_bytes = 0;
    for (int32_t i = 0; i < slot->block_count; i++)
        cover_block(slot, i);
}
