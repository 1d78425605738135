/* sim_memory.c - the reservation of the simulated device: first fit, quarantine, NaN filling.
 *
 * Every block is followed by a red zone of 64 bytes that AddressSanitizer watches. Fresh and
 * released memory is filled with 0xFF, which reads as NaN in every floating type and as -1 in the
 * integers.
 */
#include "accelerator/sim/sim_device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

#define GRANULE ((size_t)64)
#define RED_ZONE ((size_t)64)
#define POISON_BYTE 0xff

shoal_status shoali_sim_memory_open(struct sim_device *sim, size_t bytes)
{
    shoal_status status = SHOAL_OK;
    int file = memfd_create("shoal-sim", MFD_CLOEXEC);
    char *range = MAP_FAILED, *alias = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0) {
        range = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
        alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    }
    if (file >= 0)
        (void)close(file); /* the mappings keep the memory */
    sim->segment = shoali_malloc(16 * sizeof *sim->segment, "the sim device's segments");
    if (range == MAP_FAILED || alias == MAP_FAILED) {
        status = SHOAL_FAIL(SHOAL_ENOMEM,
                            "sim: cannot reserve twice %zu bytes of address space; set "
                            "SHOAL_SIM_BYTES to less",
                            bytes);
        goto done;
    }
    if (sim->segment == NULL) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    sim->segment_capacity = 16;
    sim->segment_count = 1;
    sim->segment[0] = (struct sim_segment){.bytes = bytes, .state = SIM_FREE};
    sim->range = range;
    sim->alias = alias;
    sim->bytes = bytes;
    sim->next_release = UINT64_MAX;
done:
    if (status != SHOAL_OK) {
        if (range != MAP_FAILED)
            (void)munmap(range, bytes);
        if (alias != MAP_FAILED)
            (void)munmap(alias, bytes);
        shoali_free(sim->segment);
        sim->segment = NULL;
    }
    return status;
}

void shoali_sim_memory_close(struct sim_device *sim)
{
    for (size_t i = 0; i < sim->pinned_count; i++)
        free(sim->pinned[i].memory);
    if (sim->bytes > 0) {
        /* Whoever gets these addresses next must not inherit our poison. */
        ASAN_UNPOISON_MEMORY_REGION(sim->alias, sim->high_bytes);
        (void)munmap(sim->range, sim->bytes);
        (void)munmap(sim->alias, sim->bytes);
    }
    shoali_free(sim->pinned);
    shoali_free(sim->segment);
}

bool shoali_sim_owns(const struct shoali_device *device, const void *address)
{
    if (device == NULL || (device->accelerator != &shoali_accelerator_sim &&
                           device->accelerator != &shoali_accelerator_sim_closed))
        return false;
    const struct sim_device *sim = (const struct sim_device *)device;
    const uintptr_t at = (uintptr_t)address, start = (uintptr_t)sim->range;
    return at >= start && at - start < sim->bytes;
}

void *shoali_sim_translate(const struct sim_device *sim, const void *address)
{
    /* The end address of a block translates too: its red zone lies inside the range. */
    if (!shoali_sim_owns(&sim->base, address))
        return (void *)(uintptr_t)address;
    return sim->alias + ((uintptr_t)address - (uintptr_t)sim->range);
}

/* Index of the segment that contains the offset. */
static size_t find_segment(const struct sim_device *sim, size_t offset)
{
    size_t low = 0, high = sim->segment_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (sim->segment[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

bool shoali_sim_is_live(const struct sim_device *sim, const void *address, size_t bytes)
{
    if (!shoali_sim_owns(&sim->base, address))
        return false;
    const size_t offset = (size_t)((uintptr_t)address - (uintptr_t)sim->range);
    const struct sim_segment *segment = &sim->segment[find_segment(sim, offset)];
    const size_t at = offset - segment->offset;
    return segment->state == SIM_LIVE && at <= segment->asked && bytes <= segment->asked - at;
}

/* Makes room for one more segment, so that first_fit cannot fail half way. */
static bool reserve_segment(struct sim_device *sim)
{
    if (sim->segment_count < sim->segment_capacity)
        return true;
    const size_t capacity = 2 * sim->segment_capacity;
    struct sim_segment *grown = realloc(sim->segment, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    sim->segment = grown;
    sim->segment_capacity = capacity;
    return true;
}

/* Takes `total` bytes from the first free segment that has them. False: none has. */
static bool first_fit(struct sim_device *sim, size_t total, size_t asked, void **address)
{
    size_t i = 0;
    while (i < sim->segment_count &&
           (sim->segment[i].state != SIM_FREE || sim->segment[i].bytes < total))
        i++;
    if (i == sim->segment_count)
        return false;
    struct sim_segment *segment = &sim->segment[i];
    if (segment->bytes > total) {
        memmove(segment + 1, segment, (sim->segment_count - i) * sizeof *segment);
        sim->segment_count++;
        segment[1].offset += total;
        segment[1].bytes -= total;
    }
    segment->bytes = total;
    segment->asked = asked;
    segment->state = SIM_LIVE;
    char *alias = sim->alias + segment->offset;
    ASAN_UNPOISON_MEMORY_REGION(alias, total);
    memset(alias, POISON_BYTE, total);
    ASAN_POISON_MEMORY_REGION(alias + asked, total - asked);
    sim->used_bytes += (int64_t)total;
    if (sim->high_bytes < segment->offset + total)
        sim->high_bytes = segment->offset + total;
    *address = sim->range + segment->offset;
    return true;
}

shoal_status shoali_sim_memory_alloc(struct sim_device *sim, size_t bytes, void **address)
{
    for (int attempt = 0; attempt < 2 && bytes < sim->bytes; attempt++) {
        const size_t total = (bytes + RED_ZONE + GRANULE - 1) / GRANULE * GRANULE;
        /* As on a GPU, the allocation waits for the freed memory to become reusable. */
        if (attempt > 0)
            shoali_sim_drain(sim);
        if (!reserve_segment(sim))
            return SHOAL_FAIL(SHOAL_ENOMEM, "sim: cannot grow the list of %zu segments",
                              sim->segment_count);
        if (first_fit(sim, total, bytes, address))
            return SHOAL_OK;
    }
    char asked[32], available[32], all[32];
    const int64_t left = (int64_t)sim->bytes - sim->used_bytes;
    return SHOAL_FAIL(
        SHOAL_ENOMEM,
        "sim: no memory for %zu bytes (%s); %lld bytes (%s) of %s are available, maybe "
        "in pieces: raise SHOAL_SIM_BYTES",
        bytes, shoali_format_bytes((double)bytes, asked), (long long)left,
        shoali_format_bytes((double)left, available), shoali_format_bytes((double)sim->bytes, all));
}

/* A block entered the quarantine now. Numbers only grow, so an older block stays the next. */
static void note_quarantined(struct sim_device *sim)
{
    if (sim->next_release == UINT64_MAX)
        sim->next_release = sim->last_number;
    shoali_sim_release(sim);
}

size_t shoali_sim_memory_free(struct sim_device *sim, void *address)
{
    SHOAL_ASSERT(shoali_sim_owns(&sim->base, address));
    const size_t offset = (size_t)((char *)address - sim->range);
    struct sim_segment *segment = &sim->segment[find_segment(sim, offset)];
    SHOAL_ASSERT(segment->offset == offset && segment->state == SIM_LIVE);
    segment->state = SIM_QUARANTINED;
    const size_t asked = segment->asked;
    segment->freed_at = sim->last_number;
    note_quarantined(sim);
    return asked;
}

/* Joins neighbouring free segments. */
static void coalesce(struct sim_device *sim)
{
    size_t kept = 0;
    for (size_t i = 1; i < sim->segment_count; i++) {
        struct sim_segment *last = &sim->segment[kept];
        if (last->state == SIM_FREE && sim->segment[i].state == SIM_FREE)
            last->bytes += sim->segment[i].bytes;
        else
            sim->segment[++kept] = sim->segment[i];
    }
    sim->segment_count = kept + 1;
}

/* Notes when a block that stays may be released, if it is in quarantine. */
static void keep_for_later(struct sim_device *sim, bool freed, uint64_t freed_at)
{
    if (freed && freed_at < sim->next_release)
        sim->next_release = freed_at;
}

static void release_pinned(struct sim_device *sim, uint64_t oldest)
{
    size_t kept = 0;
    for (size_t i = 0; i < sim->pinned_count; i++) {
        const struct sim_pinned block = sim->pinned[i];
        if (block.freed && block.freed_at < oldest) {
            free(block.memory);
            continue;
        }
        keep_for_later(sim, block.freed, block.freed_at);
        sim->pinned[kept++] = block;
    }
    sim->pinned_count = kept;
}

void shoali_sim_memory_release(struct sim_device *sim, uint64_t oldest)
{
    if (sim->next_release >= oldest)
        return;
    bool released = false;
    sim->next_release = UINT64_MAX;
    for (size_t i = 0; i < sim->segment_count; i++) {
        struct sim_segment *segment = &sim->segment[i];
        if (segment->state != SIM_QUARANTINED || segment->freed_at >= oldest) {
            keep_for_later(sim, segment->state == SIM_QUARANTINED, segment->freed_at);
            continue;
        }
        char *alias = sim->alias + segment->offset;
        ASAN_UNPOISON_MEMORY_REGION(alias, segment->bytes);
        memset(alias, POISON_BYTE, segment->bytes);
        ASAN_POISON_MEMORY_REGION(alias, segment->bytes);
        segment->state = SIM_FREE;
        sim->used_bytes -= (int64_t)segment->bytes;
        released = true;
    }
    if (released)
        coalesce(sim);
    release_pinned(sim, oldest);
}

shoal_status shoali_sim_pinned_alloc(struct sim_device *sim, size_t bytes, void **memory)
{
    if (sim->pinned_count == sim->pinned_capacity) {
        const size_t capacity = 2 * sim->pinned_capacity + 8;
        struct sim_pinned *grown = realloc(sim->pinned, capacity * sizeof *grown);
        if (grown == NULL)
            return SHOAL_FAIL(SHOAL_ENOMEM, "sim: cannot grow the list of pinned blocks");
        sim->pinned = grown;
        sim->pinned_capacity = capacity;
    }
    void *block = NULL;
    if (posix_memalign(&block, GRANULE, bytes > 0 ? bytes : GRANULE) != 0)
        return SHOAL_FAIL(SHOAL_ENOMEM, "sim: no memory for %zu bytes of pinned host memory",
                          bytes);
    memset(block, POISON_BYTE, bytes);
    sim->pinned[sim->pinned_count++] = (struct sim_pinned){.memory = block, .bytes = bytes};
    shoali_device_count_host(&sim->base, (int64_t)bytes);
    *memory = block;
    return SHOAL_OK;
}

void shoali_sim_pinned_free(struct sim_device *sim, void *memory)
{
    size_t i = 0;
    while (i < sim->pinned_count && sim->pinned[i].memory != memory)
        i++;
    SHOAL_ASSERT(i < sim->pinned_count && !sim->pinned[i].freed);
    sim->pinned[i].freed = true;
    shoali_device_count_host(&sim->base, -(int64_t)sim->pinned[i].bytes);
    sim->pinned[i].freed_at = sim->last_number;
    note_quarantined(sim);
}

bool shoali_sim_is_pinned(const struct sim_device *sim, const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    for (size_t i = 0; i < sim->pinned_count; i++) {
        const struct sim_pinned *block = &sim->pinned[i];
        const uintptr_t start = (uintptr_t)block->memory;
        if (!block->freed && at >= start && at - start <= block->bytes)
            return true;
    }
    return false;
}
