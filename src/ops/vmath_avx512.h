/* vmath_avx512 - sixteen lanes in one AVX-512 register. Included by vmath.h, which says what each
 * operation means. */
#ifndef SHOALI_OPS_VMATH_AVX512_H
#define SHOALI_OPS_VMATH_AVX512_H

#include "ops/vmath_x86.h"

typedef __m512 v16;
typedef __m512i v16i;
typedef __mmask16 v16m;

SHOALI_V v16 v16_set1(float x)
{
    return _mm512_set1_ps(x);
}
SHOALI_BINARY(v16, v16_add, v16, _mm512_add_ps(a, b))
SHOALI_BINARY(v16, v16_sub, v16, _mm512_sub_ps(a, b))
SHOALI_BINARY(v16, v16_mul, v16, _mm512_mul_ps(a, b))
SHOALI_BINARY(v16, v16_div, v16, _mm512_div_ps(a, b))
SHOALI_BINARY(v16, v16_min, v16, _mm512_min_ps(a, b))
SHOALI_BINARY(v16, v16_max, v16, _mm512_max_ps(a, b))
SHOALI_TERNARY(v16, v16_fma, v16, _mm512_fmadd_ps(a, b, c))
SHOALI_TERNARY(v16, v16_fnma, v16, _mm512_fnmadd_ps(a, b, c))
SHOALI_UNARY(v16, v16_sqrt, v16, _mm512_sqrt_ps(a))
SHOALI_UNARY(v16, v16_abs, v16,
             _mm512_and_ps(a, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff))))
SHOALI_UNARY(v16, v16_neg, v16, _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)))
SHOALI_V v16 v16_copysign(v16 a, v16 b)
{
    const __m512 sign = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b));
}
SHOALI_UNARY(v16, v16_floor, v16,
             _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC))
SHOALI_V v16 v16_rint(v16 a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SHOALI_BINARY(v16m, v16_lt, v16, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ))
SHOALI_BINARY(v16m, v16_le, v16, _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ))
SHOALI_BINARY(v16m, v16_eq, v16, _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ))
SHOALI_UNARY(v16m, v16_isnan, v16, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q))
SHOALI_V v16 v16_select(v16m m, v16 a, v16 b)
{
    return _mm512_mask_blend_ps(m, b, a);
}
#define SHOALI_VMATH_LDEXP 1
SHOALI_V v16 v16_ldexp(v16 x, v16 n)
{
    return _mm512_scalef_ps(x, n); /* rounds once */
}
SHOALI_UNARY(v16i, v16_bits, v16, _mm512_castps_si512(a))
SHOALI_UNARY(v16, v16_from_bits, v16i, _mm512_castsi512_ps(a))
SHOALI_UNARY(v16, v16_from_int, v16i, _mm512_cvtepi32_ps(a))
SHOALI_V v16i v16i_set1(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}
SHOALI_V v16i v16i_iota(void)
{
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}
SHOALI_BINARY(v16i, v16i_add, v16i, _mm512_add_epi32(a, b))
SHOALI_BINARY(v16i, v16i_sub, v16i, _mm512_sub_epi32(a, b))
SHOALI_BINARY(v16i, v16i_and, v16i, _mm512_and_si512(a, b))
SHOALI_BINARY(v16i, v16i_or, v16i, _mm512_or_si512(a, b))
SHOALI_BINARY(v16i, v16i_xor, v16i, _mm512_xor_si512(a, b))
SHOALI_V v16i v16i_shl(v16i a, int n)
{
    return _mm512_sll_epi32(a, _mm_cvtsi32_si128(n));
}
SHOALI_V v16i v16i_shr(v16i a, int n)
{
    return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n));
}
SHOALI_V v16i v16i_sar(v16i a, int n)
{
    return _mm512_sra_epi32(a, _mm_cvtsi32_si128(n));
}
SHOALI_BINARY(v16m, v16i_geu, v16i, _mm512_cmpge_epu32_mask(a, b))
SHOALI_V v16 v16_pick(const float *table, v16i i)
{
    return _mm512_permutexvar_ps(i, _mm512_loadu_ps(table));
}
SHOALI_V v16i v16i_select(v16m m, v16i a, v16i b)
{
    return _mm512_mask_blend_epi32(m, b, a);
}
/* The instruction multiplies the even words; the odd ones are shifted down for it. */
SHOALI_V void v16i_mul_wide(v16i a, uint32_t b, v16i *high, v16i *low)
{
    const __m512i factor = _mm512_set1_epi32((int)b);
    const __m512i even = _mm512_mul_epu32(a, factor);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), factor);
    *high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    *low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}
SHOALI_V void v16i_store(uint32_t *p, v16i x)
{
    _mm512_storeu_si512(p, x);
}
SHOALI_V v16m v16m_first(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}
SHOALI_BINARY(v16m, v16m_and, v16m, (__mmask16)(a &b))
SHOALI_BINARY(v16m, v16m_or, v16m, (__mmask16)(a | b))
SHOALI_UNARY(v16m, v16m_not, v16m, (__mmask16)~a)
/* Lane j's truth as bit j, and back. */
SHOALI_UNARY(uint32_t, v16m_bits, v16m, a)
SHOALI_V v16m v16m_from_bits(uint32_t bits)
{
    return (v16m)bits;
}
SHOALI_UNARY(bool, v16m_any, v16m, a != 0)
SHOALI_V v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
SHOALI_V v16 v16_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(v16m_first(n), p);
}
SHOALI_V void v16_store(float *p, v16 x)
{
    _mm512_storeu_ps(p, x);
}
SHOALI_V void v16_store_n(float *p, int64_t n, v16 x)
{
    _mm512_mask_storeu_ps(p, v16m_first(n), x);
}
SHOALI_V v16 v16_widen_bf16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
/* The rounding of tensor.h, in integers. */
SHOALI_V __m256i v16_round_bf16(v16 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(v16_isnan(x), rounded, quiet));
}
/* The instruction differs for denormals alone, which it makes 0. */
SHOALI_V __m256i v16_narrow_bf16(v16 x)
{
#if defined(__AVX512BF16__)
    enum { DENORMAL = 0x20 };
    if (__builtin_expect(_mm512_fpclass_ps_mask(x, DENORMAL) == 0, 1))
        return (__m256i)_mm512_cvtneps_pbh(x);
#endif
    return v16_round_bf16(x);
}
SHOALI_V v16 v16_load_bf16(const uint16_t *p)
{
    return v16_widen_bf16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
SHOALI_V v16 v16_load_bf16_n(const uint16_t *p, int64_t n)
{
    return v16_widen_bf16(_mm256_maskz_loadu_epi16(v16m_first(n), p));
}
SHOALI_V void v16_store_bf16(uint16_t *p, v16 x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v16_narrow_bf16(x));
}
SHOALI_V void v16_store_bf16_n(uint16_t *p, int64_t n, v16 x)
{
    _mm256_mask_storeu_epi16(p, v16m_first(n), v16_narrow_bf16(x));
}
SHOALI_V v16 v16_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
SHOALI_V v16 v16_load_f16_n(const uint16_t *p, int64_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v16m_first(n), p));
}
SHOALI_V __m256i v16_narrow_f16(v16 x)
{
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SHOALI_V void v16_store_f16(uint16_t *p, v16 x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v16_narrow_f16(x));
}
SHOALI_V void v16_store_f16_n(uint16_t *p, int64_t n, v16 x)
{
    _mm256_mask_storeu_epi16(p, v16m_first(n), v16_narrow_f16(x));
}
SHOALI_V float v16_sum(v16 x)
{
    return v8_sum(_mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}
SHOALI_V float v16_largest(v16 x)
{
    return v8_largest(_mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}

/* v16_random_block with every second index in a register of 64-bit lanes: products stay where they
 * are, upper and lower half one shift apart. Upper halves of c0 .. c3 are never used. */
#define SHOALI_VMATH_RANDOM 1
#define SHOALI_XOR3 0x96 /* the truth table of a ^ b ^ c; clang wants a literal */
SHOALI_V void v16i_random_half(const struct shoali_stream *stream, __m512i index, __m512i word[4])
{
    const __m512i multiplier0 = _mm512_set1_epi64(SHOALI_PHILOX_MULTIPLIER0);
    const __m512i multiplier1 = _mm512_set1_epi64(SHOALI_PHILOX_MULTIPLIER1);
    __m512i c0 = index, c1 = _mm512_srli_epi64(index, 32);
    __m512i c2 = _mm512_set1_epi64(stream->high[0]), c3 = _mm512_set1_epi64(stream->high[1]);
    uint32_t k0 = stream->key[0], k1 = stream->key[1];
    for (int round = 0; round < 10; round++) {
        const __m512i product0 = _mm512_mul_epu32(c0, multiplier0);
        const __m512i product1 = _mm512_mul_epu32(c2, multiplier1);
        c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), c1, _mm512_set1_epi64(k0),
                                       SHOALI_XOR3);
        c1 = product1;
        c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), c3, _mm512_set1_epi64(k1),
                                       SHOALI_XOR3);
        c3 = product0;
        k0 += SHOALI_PHILOX_WEYL0;
        k1 += SHOALI_PHILOX_WEYL1;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}
SHOALI_V void v16_random_block(const struct shoali_stream *stream, uint64_t first, v16i word[4])
{
    const __m512i even = _mm512_add_epi64(_mm512_set1_epi64((int64_t)first),
                                          _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0));
    const __m512i odd = _mm512_add_epi64(even, _mm512_set1_epi64(1));
    __m512i of_even[4], of_odd[4];
    v16i_random_half(stream, even, of_even);
    v16i_random_half(stream, odd, of_odd);
    for (int w = 0; w < 4; w++)
        word[w] = _mm512_mask_blend_epi32(0xaaaa, of_even[w], _mm512_slli_epi64(of_odd[w], 32));
}

#endif
