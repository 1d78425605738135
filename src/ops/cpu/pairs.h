/* pairs - sums on their way back to bf16 where the CPU multiplies pairs: rounded to nearest even,
 * but numbers below 2^-126 become zeros of their sign, as products take them. Not so on ARM, whose
 * rounding instruction keeps them; its products (bfdot.h) read them as zeros, too. */
#ifndef SHOALI_OPS_CPU_PAIRS_H
#define SHOALI_OPS_CPU_PAIRS_H

#include "ops/cpu/isa.h"
#include "ops/vmath.h"

#if defined(__AVX512BW__)
/* Element i of the lower half and element i of the upper one become neighbours. */
SHOALI_INLINE __m512i pairs_mixed(__m512i halves)
{
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), halves);
}
#endif

#if defined(__AVX512BF16__)
SHOALI_INLINE void pairs_store(void *to, v16 x)
{
    const __m256bh half = _mm512_cvtneps_pbh(x);
    memcpy(to, &half, sizeof half);
}
SHOALI_INLINE void pairs_store_two(void *to, v16 low, v16 high)
{
    const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
    memcpy(to, &both, sizeof both);
}
SHOALI_INLINE void pairs_store_mixed(void *to, v16 low, v16 high)
{
    _mm512_storeu_si512(to, pairs_mixed((__m512i)_mm512_cvtne2ps_pbh(high, low)));
}
#elif SHOALI_CPU_BFDOT
SHOALI_INLINE void pairs_store(void *to, v16 x)
{
    v16_store_bf16(to, x);
}
SHOALI_INLINE void pairs_store_two(void *to, v16 low, v16 high)
{
    v16_store_bf16(to, low);
    v16_store_bf16((uint16_t *)to + 16, high);
}
SHOALI_INLINE void pairs_store_mixed(void *to, v16 low, v16 high)
{
    const uint16x8_t x[2] = {v16_narrow_bf16(low.a, low.b), v16_narrow_bf16(low.c, low.d)};
    const uint16x8_t y[2] = {v16_narrow_bf16(high.a, high.b), v16_narrow_bf16(high.c, high.d)};
    uint16_t *mixed = to;
    vst1q_u16(mixed, vzip1q_u16(x[0], y[0]));
    vst1q_u16(mixed + 8, vzip2q_u16(x[0], y[0]));
    vst1q_u16(mixed + 16, vzip1q_u16(x[1], y[1]));
    vst1q_u16(mixed + 24, vzip2q_u16(x[1], y[1]));
}
#else
/* The instruction, in integers. */
SHOALI_INLINE v16 pairs_flush(v16 x)
{
    const v16i bits = v16_bits(x), size = v16i_and(bits, v16i_set1(0x7fffffffu));
    const v16 zero = v16_from_bits(v16i_and(bits, v16i_set1(0x80000000u)));
    return v16_select(v16i_geu(size, v16i_set1(0x00800000u)), x, zero);
}
SHOALI_INLINE void pairs_store(void *to, v16 x)
{
    v16_store_bf16(to, pairs_flush(x));
}
SHOALI_INLINE void pairs_store_two(void *to, v16 low, v16 high)
{
    pairs_store(to, low);
    pairs_store((uint16_t *)to + 16, high);
}
SHOALI_INLINE void pairs_store_mixed(void *to, v16 low, v16 high)
{
    uint16_t x[2][16], *mixed = to;
    pairs_store(x[0], low);
    pairs_store(x[1], high);
    for (int i = 0; i < 32; i++)
        mixed[i] = x[i % 2][i / 2];
}
#endif

#endif
