/* Large blocks of direct collectives. An ordinary store first fetches the line it will overwrite,
 * which costs as much memory traffic as reading it; stores past the caches (non-temporal) do not.
 * They pay when the block would have left the caches before anybody reads it. */
#include "comm/algorithms/slots.h"

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    STREAM_BYTES = 8 << 20, /* written by one rank */
    TILE_BYTES = 16384,     /* of a result, between its arithmetic and its stores: stays in L1 */
    LINE = 64
};

/* Whole lines to an aligned place. The others find them there once this rank has published its next
 * round: stream_end orders them before that. */
static void stream_lines(unsigned char *to, const unsigned char *from, size_t bytes)
{
#if defined(__SSE2__)
    for (size_t i = 0; i < bytes; i += LINE) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + i + 16));
        const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + i + 32));
        const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + i + 48));
        _mm_stream_si128((__m128i *)(void *)(to + i), a);
        _mm_stream_si128((__m128i *)(void *)(to + i + 16), b);
        _mm_stream_si128((__m128i *)(void *)(to + i + 32), c);
        _mm_stream_si128((__m128i *)(void *)(to + i + 48), d);
    }
#else
    memcpy(to, from, bytes);
#endif
}

static void stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Ordinary stores for what shares a line with something else. */
static void stream(unsigned char *to, const unsigned char *from, size_t bytes)
{
    size_t head = (size_t)(-(uintptr_t)to % LINE);
    head = head < bytes ? head : bytes;
    const size_t lines = (bytes - head) / LINE * LINE;
    memcpy(to, from, head);
    stream_lines(to + head, from + head, lines);
    memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

void shoali_copy_block(void *const *to, int32_t count, const void *from, size_t bytes,
                       size_t total_bytes)
{
    if (total_bytes < STREAM_BYTES) {
        for (int32_t i = 0; i < count && bytes > 0; i++)
            if (to[i] != from)
                memcpy(to[i], from, bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += TILE_BYTES)
        for (int32_t i = 0; i < count; i++)
            if (to[i] != from)
                stream((unsigned char *)to[i] + at, (const unsigned char *)from + at,
                       bytes - at < TILE_BYTES ? bytes - at : TILE_BYTES);
    stream_end();
}

static bool writes_a_source(const struct shoali_reduce_sources_args *args)
{
    for (int32_t d = 0; d < args->destinations; d++)
        for (int32_t s = 0; s < args->sources; s++)
            if (args->y[d] == args->x[s])
                return true;
    return false;
}

/* Element by element as in one call: only the place of the stores differs. */
static void reduce_streaming(const struct shoali_ops *ops,
                             const struct shoali_reduce_sources_args *args)
{
    _Alignas(LINE) unsigned char tile[TILE_BYTES];
    const size_t element = shoal_dtype_bytes(args->dtype);
    const int64_t step = (int64_t)(TILE_BYTES / element);
    struct shoali_reduce_sources_args part = *args;
    part.y[0] = tile;
    part.destinations = 1;
    for (int64_t i = 0; i < args->count; i += step) {
        const size_t at = (size_t)i * element;
        part.count = args->count - i < step ? args->count - i : step;
        for (int32_t s = 0; s < args->sources; s++)
            part.x[s] = (const unsigned char *)args->x[s] + at;
        shoali_host_reduce(ops, &part);
        for (int32_t d = 0; d < args->destinations; d++)
            stream((unsigned char *)args->y[d] + at, tile, (size_t)part.count * element);
    }
    stream_end();
}

void shoali_reduce_block(const struct shoali_ops *ops,
                         const struct shoali_reduce_sources_args *args)
{
    const size_t bytes =
        (size_t)args->count * shoal_dtype_bytes(args->dtype) * (size_t)args->destinations;
    if (bytes < STREAM_BYTES || writes_a_source(args))
        shoali_host_reduce(ops, args);
    else
        reduce_streaming(ops, args);
}
