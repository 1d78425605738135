/* Large blocks of direct collectives, written past the caches: base/nontemporal.h. */
#include "comm/algorithms/slots.h"

#include "base/nontemporal.h"

#include <string.h>

enum {
    PAST_BYTES = 8 << 20, /* written by one rank: most of it would not stay in the caches */
    TILE_BYTES = 4096,    /* copied to all destinations before the next: read from memory once */
    LINE = SHOALI_NONTEMPORAL_BYTES
};

/* Bytes before the first whole line, at most `bytes`. */
static size_t head_of(const void *to, size_t bytes)
{
    const size_t head = (size_t)(-(uintptr_t)to % LINE);
    return head < bytes ? head : bytes;
}

/* Ordinary stores for what shares a line with something else. */
static void copy_past(unsigned char *to, const unsigned char *from, size_t bytes)
{
    const size_t head = head_of(to, bytes), lines = (bytes - head) / LINE * LINE;
    memcpy(to, from, head);
    shoali_nontemporal_copy(to + head, from + head, lines);
    memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

void shoali_copy_block(void *const *to, int32_t count, const void *from, size_t bytes,
                       size_t total_bytes)
{
    if (total_bytes < PAST_BYTES) {
        for (int32_t i = 0; i < count && bytes > 0; i++)
            if (to[i] != from)
                memcpy(to[i], from, bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += TILE_BYTES)
        for (int32_t i = 0; i < count; i++)
            if (to[i] != from)
                copy_past((unsigned char *)to[i] + at, (const unsigned char *)from + at,
                          bytes - at < TILE_BYTES ? bytes - at : TILE_BYTES);
    shoali_nontemporal_end();
}

static bool writes_a_source(const struct shoali_reduce_sources_args *args)
{
    for (int32_t d = 0; d < args->destinations; d++)
        for (int32_t s = 0; s < args->sources; s++)
            if (args->y[d] == args->x[s])
                return true;
    return false;
}

/* Elements before the first whole line of all destinations, or -1: they lie differently. */
static int64_t common_head(const struct shoali_reduce_sources_args *args, size_t element_bytes)
{
    const size_t head = head_of(args->y[0], LINE);
    for (int32_t d = 1; d < args->destinations; d++)
        if (head_of(args->y[d], LINE) != head)
            return -1;
    return head % element_bytes == 0 ? (int64_t)(head / element_bytes) : -1;
}

void shoali_reduce_block(const struct shoali_ops *ops,
                         const struct shoali_reduce_sources_args *args)
{
    const size_t element = shoal_dtype_bytes(args->dtype);
    const size_t bytes = (size_t)args->count * element * (size_t)args->destinations;
    const bool past = bytes >= PAST_BYTES && !writes_a_source(args);
    const int64_t head = past ? common_head(args, element) : -1;
    if (head < 0) {
        shoali_host_reduce(ops, args);
        return;
    }
    struct shoali_reduce_sources_args part = *args;
    part.count = head;
    shoali_host_reduce(ops, &part);
    for (int32_t s = 0; s < args->sources; s++)
        part.x[s] = (const unsigned char *)args->x[s] + (size_t)head * element;
    for (int32_t d = 0; d < args->destinations; d++)
        part.y[d] = (unsigned char *)args->y[d] + (size_t)head * element;
    part.count = args->count - head;
    part.nontemporal = 1;
    shoali_host_reduce(ops, &part);
}
