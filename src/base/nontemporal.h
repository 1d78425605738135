/* nontemporal - stores past the caches. Level L0.
 *
 * An ordinary store first fetches the line that it will overwrite, which costs as much memory
 * traffic as reading it; these do not, and push nothing out of the caches. They pay for large
 * results that would have left the caches before anybody reads them. Other threads see them after
 * shoali_nontemporal_end and whatever publishes ordinary stores. Where the processor has no such
 * stores they are ordinary ones.
 */
#ifndef SHOALI_BASE_NONTEMPORAL_H
#define SHOALI_BASE_NONTEMPORAL_H

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { SHOALI_NONTEMPORAL_BYTES = 64 };

/* `to` is aligned to SHOALI_NONTEMPORAL_BYTES, `bytes` a multiple of it; no overlap. */
static inline void shoali_nontemporal_copy(void *to, const void *from, size_t bytes)
{
#if defined(__SSE2__)
    __m128i *target = to;
    const __m128i *source = from;
    for (size_t i = 0; i < bytes / sizeof *target; i += 4) {
        const __m128i a = _mm_loadu_si128(source + i), b = _mm_loadu_si128(source + i + 1);
        const __m128i c = _mm_loadu_si128(source + i + 2), d = _mm_loadu_si128(source + i + 3);
        _mm_stream_si128(target + i, a);
        _mm_stream_si128(target + i + 1, b);
        _mm_stream_si128(target + i + 2, c);
        _mm_stream_si128(target + i + 3, d);
    }
#else
    memcpy(to, from, bytes);
#endif
}

static inline void shoali_nontemporal_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
