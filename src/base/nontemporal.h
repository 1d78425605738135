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
#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { SHOALI_NONTEMPORAL_BYTES = 64 };

/* Half a line; `to` is aligned to it. Both halves are to be written, one after the other. `from` is
 * best a variable that the compiler keeps in a register. */
static inline void shoali_nontemporal_half(void *to, const void *from)
{
#if defined(__AVX__)
    _mm256_stream_si256((__m256i *)to, _mm256_loadu_si256((const __m256i *)from));
#elif defined(__SSE2__)
    _mm_stream_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)from));
    _mm_stream_si128((__m128i *)to + 1, _mm_loadu_si128((const __m128i *)from + 1));
#else
    memcpy(to, from, SHOALI_NONTEMPORAL_BYTES / 2);
#endif
}

/* A whole one. */
static inline void shoali_nontemporal_line(void *to, const void *from)
{
#if defined(__AVX512F__)
    _mm512_stream_si512((__m512i *)to, _mm512_loadu_si512(from));
#else
    shoali_nontemporal_half(to, from);
    shoali_nontemporal_half((char *)to + SHOALI_NONTEMPORAL_BYTES / 2,
                            (const char *)from + SHOALI_NONTEMPORAL_BYTES / 2);
#endif
}

/* `to` is aligned to SHOALI_NONTEMPORAL_BYTES, `bytes` a multiple of it; no overlap. */
static inline void shoali_nontemporal_copy(void *to, const void *from, size_t bytes)
{
    char *target = to;
    const char *source = from;
    for (size_t i = 0; i < bytes; i += SHOALI_NONTEMPORAL_BYTES)
        shoali_nontemporal_line(target + i, source + i);
}

static inline void shoali_nontemporal_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
