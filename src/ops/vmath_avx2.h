/* vmath_avx2 - sixteen lanes in two AVX2 registers. Included by vmath.h, which says what each
 * operation means. */
#ifndef SHOALI_OPS_VMATH_AVX2_H
#define SHOALI_OPS_VMATH_AVX2_H

#include "ops/vmath_x86.h"

typedef struct {
    __m256 low, high;
} v16;
typedef struct {
    __m256i low, high;
} v16i;
typedef struct {
    __m256 low, high; /* all bits of a lane set: true */
} v16m;

/* Functions that do f to both registers of their operands. */
#define SHOALI_HALVES_UNARY(result, name, type, f) \
    SHOALI_UNARY(result, name, type, (result){f(a.low), f(a.high)})
#define SHOALI_HALVES_BINARY(result, name, type, f) \
    SHOALI_BINARY(result, name, type, (result){f(a.low, b.low), f(a.high, b.high)})
#define SHOALI_HALVES_TERNARY(result, name, type, f) \
    SHOALI_TERNARY(result, name, type, (result){f(a.low, b.low, c.low), f(a.high, b.high, c.high)})
#define SHOALI_HALVES_COMPARE(name, predicate) \
    SHOALI_BINARY(                             \
        v16m, name, v16,                       \
        (v16m){_mm256_cmp_ps(a.low, b.low, predicate), _mm256_cmp_ps(a.high, b.high, predicate)})
#define SHOALI_HALVES_SHIFT(name, f)                      \
    SHOALI_V v16i name(v16i a, int n)                     \
    {                                                     \
        const __m128i count = _mm_cvtsi32_si128(n);       \
        return (v16i){f(a.low, count), f(a.high, count)}; \
    }

SHOALI_V v16 v16_set1(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
SHOALI_HALVES_BINARY(v16, v16_add, v16, _mm256_add_ps)
SHOALI_HALVES_BINARY(v16, v16_sub, v16, _mm256_sub_ps)
SHOALI_HALVES_BINARY(v16, v16_mul, v16, _mm256_mul_ps)
SHOALI_HALVES_BINARY(v16, v16_div, v16, _mm256_div_ps)
SHOALI_HALVES_BINARY(v16, v16_min, v16, _mm256_min_ps)
SHOALI_HALVES_BINARY(v16, v16_max, v16, _mm256_max_ps)
SHOALI_HALVES_TERNARY(v16, v16_fma, v16, _mm256_fmadd_ps)
SHOALI_HALVES_TERNARY(v16, v16_fnma, v16, _mm256_fnmadd_ps)
SHOALI_HALVES_UNARY(v16, v16_sqrt, v16, _mm256_sqrt_ps)
SHOALI_V v16 v16_abs(v16 a)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
SHOALI_V v16 v16_neg(v16 a)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_xor_ps(sign, a.low), _mm256_xor_ps(sign, a.high)};
}
SHOALI_V v16 v16_copysign(v16 a, v16 b)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_or_ps(_mm256_andnot_ps(sign, a.low), _mm256_and_ps(sign, b.low)),
                 _mm256_or_ps(_mm256_andnot_ps(sign, a.high), _mm256_and_ps(sign, b.high))};
}
SHOALI_V v16 v16_floor(v16 a)
{
    enum { MODE = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC };
    return (v16){_mm256_round_ps(a.low, MODE), _mm256_round_ps(a.high, MODE)};
}
SHOALI_V v16 v16_rint(v16 a)
{
    enum { MODE = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    return (v16){_mm256_round_ps(a.low, MODE), _mm256_round_ps(a.high, MODE)};
}
SHOALI_HALVES_COMPARE(v16_lt, _CMP_LT_OQ)
SHOALI_HALVES_COMPARE(v16_le, _CMP_LE_OQ)
SHOALI_HALVES_COMPARE(v16_eq, _CMP_EQ_OQ)
SHOALI_V v16m v16_isnan(v16 a)
{
    return (v16m){_mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q),
                  _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q)};
}
SHOALI_V v16 v16_select(v16m m, v16 a, v16 b)
{
    return (v16){_mm256_blendv_ps(b.low, a.low, m.low), _mm256_blendv_ps(b.high, a.high, m.high)};
}
SHOALI_HALVES_UNARY(v16i, v16_bits, v16, _mm256_castps_si256)
SHOALI_HALVES_UNARY(v16, v16_from_bits, v16i, _mm256_castsi256_ps)
SHOALI_HALVES_UNARY(v16, v16_from_int, v16i, _mm256_cvtepi32_ps)
SHOALI_V v16i v16i_set1(uint32_t x)
{
    return (v16i){_mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x)};
}
SHOALI_V v16i v16i_iota(void)
{
    return (v16i){_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                  _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
SHOALI_HALVES_BINARY(v16i, v16i_add, v16i, _mm256_add_epi32)
SHOALI_HALVES_BINARY(v16i, v16i_sub, v16i, _mm256_sub_epi32)
SHOALI_HALVES_BINARY(v16i, v16i_and, v16i, _mm256_and_si256)
SHOALI_HALVES_BINARY(v16i, v16i_or, v16i, _mm256_or_si256)
SHOALI_HALVES_BINARY(v16i, v16i_xor, v16i, _mm256_xor_si256)
SHOALI_HALVES_SHIFT(v16i_shl, _mm256_sll_epi32)
SHOALI_HALVES_SHIFT(v16i_shr, _mm256_srl_epi32)
SHOALI_HALVES_SHIFT(v16i_sar, _mm256_sra_epi32)
/* a >= b where a is the larger of both: there is no unsigned comparison. */
SHOALI_V __m256 v16i_half_geu(__m256i a, __m256i b)
{
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a));
}
SHOALI_HALVES_BINARY(v16m, v16i_geu, v16i, v16i_half_geu)
/* Bit 3, which says which half of the table it is, becomes the sign. */
SHOALI_V __m256 v16_half_pick(__m256 first, __m256 second, __m256i i)
{
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(first, i), _mm256_permutevar8x32_ps(second, i),
                            _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
}
SHOALI_V v16 v16_pick(const float *table, v16i i)
{
    const __m256 first = _mm256_loadu_ps(table), second = _mm256_loadu_ps(table + 8);
    return (v16){v16_half_pick(first, second, i.low), v16_half_pick(first, second, i.high)};
}
SHOALI_V v16i v16i_select(v16m m, v16i a, v16i b)
{
    return (v16i){_mm256_blendv_epi8(b.low, a.low, _mm256_castps_si256(m.low)),
                  _mm256_blendv_epi8(b.high, a.high, _mm256_castps_si256(m.high))};
}
/* The instruction multiplies the even words; the odd ones are shifted down for it. */
SHOALI_V void v16i_half_mul_wide(__m256i a, __m256i factor, __m256i *high, __m256i *low)
{
    const __m256i even = _mm256_mul_epu32(a, factor);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factor);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
SHOALI_V void v16i_mul_wide(v16i a, uint32_t b, v16i *high, v16i *low)
{
    const __m256i factor = _mm256_set1_epi32((int)b);
    v16i_half_mul_wide(a.low, factor, &high->low, &low->low);
    v16i_half_mul_wide(a.high, factor, &high->high, &low->high);
}
SHOALI_V void v16i_store(uint32_t *p, v16i x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x.low);
    _mm256_storeu_si256((__m256i *)(void *)(p + 8), x.high);
}
SHOALI_V v16m v16m_first(int64_t n)
{
    const __m256i count = _mm256_set1_epi32((int)n);
    const v16i j = v16i_iota();
    return (v16m){_mm256_castsi256_ps(_mm256_cmpgt_epi32(count, j.low)),
                  _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, j.high))};
}
SHOALI_HALVES_BINARY(v16m, v16m_and, v16m, _mm256_and_ps)
SHOALI_HALVES_BINARY(v16m, v16m_or, v16m, _mm256_or_ps)
SHOALI_V v16m v16m_not(v16m a)
{
    const __m256 ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    return (v16m){_mm256_xor_ps(a.low, ones), _mm256_xor_ps(a.high, ones)};
}
/* Lane j's truth as bit j, and back. */
SHOALI_V uint32_t v16m_bits(v16m a)
{
    return (uint32_t)_mm256_movemask_ps(a.low) | (uint32_t)_mm256_movemask_ps(a.high) << 8;
}
SHOALI_V v16m v16m_from_bits(uint32_t bits)
{
    const __m256i all = _mm256_set1_epi32((int)bits);
    const __m256i low = _mm256_set_epi32(1 << 7, 1 << 6, 1 << 5, 1 << 4, 1 << 3, 1 << 2, 2, 1);
    const __m256i high = _mm256_slli_epi32(low, 8);
    return (v16m){_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low)),
                  _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, high), high))};
}
SHOALI_V bool v16m_any(v16m a)
{
    return _mm256_movemask_ps(_mm256_or_ps(a.low, a.high)) != 0;
}
SHOALI_V v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
SHOALI_V void v16_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
}
SHOALI_V v16 v16_load_n(const float *p, int64_t n)
{
    const v16m m = v16m_first(n);
    return (v16){_mm256_maskload_ps(p, _mm256_castps_si256(m.low)),
                 _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.high))};
}
SHOALI_V void v16_store_n(float *p, int64_t n, v16 x)
{
    const v16m m = v16m_first(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.low), x.low);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.high), x.high);
}
SHOALI_V __m256 v16_half_widen_bf16(const uint16_t *p)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
SHOALI_V v16 v16_load_bf16(const uint16_t *p)
{
    return (v16){v16_half_widen_bf16(p), v16_half_widen_bf16(p + 8)};
}
/* The rounding of tensor.h; the result is in the low half of each lane. */
SHOALI_V __m256i v16_half_narrow_bf16(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
}
/* The packing works in 128-bit halves; the permutation puts its four quarters in order. */
SHOALI_V void v16_store_bf16(uint16_t *p, v16 x)
{
    const __m256i low = v16_half_narrow_bf16(x.low), high = v16_half_narrow_bf16(x.high);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)p, packed);
}
SHOALI_V __m256 v16_half_widen_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
SHOALI_V v16 v16_load_f16(const uint16_t *p)
{
    return (v16){v16_half_widen_f16(p), v16_half_widen_f16(p + 8)};
}
SHOALI_V void v16_half_store_f16(uint16_t *p, __m256 x)
{
    enum { MODE = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x, MODE));
}
SHOALI_V void v16_store_f16(uint16_t *p, v16 x)
{
    v16_half_store_f16(p, x.low);
    v16_half_store_f16(p + 8, x.high);
}
SHOALI_V float v16_sum(v16 x)
{
    return v8_sum(_mm256_add_ps(x.low, x.high));
}
SHOALI_V float v16_largest(v16 x)
{
    return v8_largest(_mm256_max_ps(x.low, x.high));
}

#include "ops/vmath_partial.h"

#endif
