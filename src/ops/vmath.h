/* vmath - sixteen floats at a time, and the elementary functions of them; the same bits everywhere.
 *
 *   v16   16 floats      v16m   16 truth values      v16i   16 32-bit integers (wrapping, unsigned)
 *   v1, v1m, v1i         the same operations on one lane: v1_exp(x) is any lane of v16_exp
 *
 * Four implementations of the lanes, chosen by the compiler's flags (SHOALI_VMATH_NAME says
 * which): AVX-512 (one register), AVX2 with FMA and F16C (two), ARM's Advanced SIMD (four),
 * portable C (an array). Only correctly rounded operations are used (+, -, *, /, sqrt, fma, rint,
 * floor and integers; never rcp or rsqrt, and a conversion to bf16 by the CPU only where it
 * rounds), in a fixed order, so all four give equal bits; only sign and payload of a NaN are free.
 * Assumes round to nearest and denormals kept (base/pool.h sets that).
 *
 * MIN AND MAX: v16_min(a, b) = a < b ? a : b and v16_max(a, b) = a > b ? a : b. So the second
 * operand is returned when either is NaN or when both are zeros: v16_max(limit, x) keeps a NaN in
 * x, and v16_max(x, limit) removes it. Comparisons with a NaN are false.
 *
 * TAILS: loads and stores ending in _n touch the first n lanes of memory (0 <= n <= 16); the other
 * lanes of a load are +0. A partial sum that starts at +0 is not changed by adding such a lane, nor
 * by fma of two.
 *
 * Errors of the functions (test: vmath_test.c, over all exponents): exp, log, tanh 2 ulp;
 * sigmoid and silu 3; sigmoid_derivative and tanh_derivative 4; gelu and all other derivatives
 * 2^-22 * max(|x|, 1), absolute.
 */
#ifndef SHOALI_OPS_VMATH_H
#define SHOALI_OPS_VMATH_H

#include "base/rng.h"
#include "tensor/tensor.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512DQ__) && !defined(SHOALI_VMATH_PORTABLE)
#define SHOALI_VMATH_NAME "avx512"
#define SHOALI_VMATH_LANES "ops/vmath_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(SHOALI_VMATH_PORTABLE)
#define SHOALI_VMATH_NAME "avx2"
#define SHOALI_VMATH_LANES "ops/vmath_avx2.h"
#elif defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__) && \
    !defined(SHOALI_VMATH_PORTABLE)
#define SHOALI_VMATH_NAME "neon"
#define SHOALI_VMATH_LANES "ops/vmath_neon.h"
#else
#define SHOALI_VMATH_NAME "portable"
#define SHOALI_VMATH_LANES "ops/vmath_portable.h"
#define SHOALI_VMATH_ARRAYS 1
#endif

/* Vectors must never travel through memory between these small functions. Arrays may under a
 * sanitizer: inlined, its checks of every lane take the compiler minutes. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SHOALI_VMATH_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHOALI_VMATH_SANITIZED 1
#endif
#if defined(SHOALI_VMATH_ARRAYS) && defined(SHOALI_VMATH_SANITIZED)
#define SHOALI_V static __attribute__((noinline, unused))
#else
#define SHOALI_V static inline __attribute__((always_inline))
#endif

#include "ops/vmath_scalar.h"

#include SHOALI_VMATH_LANES

#include "ops/vmath_tables.h"

/* One text for both widths: C has no other way to write a polynomial once for two types. */
#define VF_TYPE v1
#define VF(name) v1_##name
#define VI_TYPE v1i
#define VI(name) v1i_##name
#define VM_TYPE v1m
#include "ops/vmath_functions.h"
#undef VF_TYPE
#undef VF
#undef VI_TYPE
#undef VI
#undef VM_TYPE
#if defined(SHOALI_VMATH_LDEXP)
#define VF_HAS_LDEXP 1
#endif
#define VF_TYPE v16
#define VF(name) v16_##name
#define VI_TYPE v16i
#define VI(name) v16i_##name
#define VM_TYPE v16m
#include "ops/vmath_functions.h"
#undef VF_TYPE
#undef VF
#undef VI_TYPE
#undef VI
#undef VM_TYPE
#undef VF_HAS_LDEXP

/* Elements i .. i+15 of an array of F32, BF16 or F16, widened. */
SHOALI_V v16 v16_load_as(const void *array, int64_t i, shoal_dtype dtype)
{
    if (dtype == SHOAL_F32)
        return v16_load((const float *)array + i);
    if (dtype == SHOAL_BF16)
        return v16_load_bf16((const uint16_t *)array + i);
    return v16_load_f16((const uint16_t *)array + i);
}
/* Elements i .. i+n-1, the other lanes +0. */
SHOALI_V v16 v16_load_as_n(const void *array, int64_t i, int64_t n, shoal_dtype dtype)
{
    if (dtype == SHOAL_F32)
        return v16_load_n((const float *)array + i, n);
    if (dtype == SHOAL_BF16)
        return v16_load_bf16_n((const uint16_t *)array + i, n);
    return v16_load_f16_n((const uint16_t *)array + i, n);
}
/* Rounds to the array's type (nearest even) and stores elements i .. i+15. */
SHOALI_V void v16_store_as(void *array, int64_t i, v16 x, shoal_dtype dtype)
{
    if (dtype == SHOAL_F32)
        v16_store((float *)array + i, x);
    else if (dtype == SHOAL_BF16)
        v16_store_bf16((uint16_t *)array + i, x);
    else
        v16_store_f16((uint16_t *)array + i, x);
}
SHOALI_V void v16_store_as_n(void *array, int64_t i, int64_t n, v16 x, shoal_dtype dtype)
{
    if (dtype == SHOAL_F32)
        v16_store_n((float *)array + i, n, x);
    else if (dtype == SHOAL_BF16)
        v16_store_bf16_n((uint16_t *)array + i, n, x);
    else
        v16_store_f16_n((uint16_t *)array + i, n, x);
}

/* The value a store to `dtype` and a load would give. */
SHOALI_V v16 v16_round_as(v16 x, shoal_dtype dtype)
{
    uint16_t stored[16];
    if (dtype == SHOAL_F32)
        return x;
    if (dtype == SHOAL_BF16) { /* as shoali_f32_to_bf16, in registers */
        const v16i bits = v16_bits(x), odd = v16i_and(v16i_shr(bits, 16), v16i_set1(1));
        const v16i rounded = v16i_add(bits, v16i_add(odd, v16i_set1(0x7fff)));
        const v16i quiet = v16i_or(bits, v16i_set1(0x400000));
        const v16i kept = v16i_select(v16_isnan(x), quiet, rounded);
        return v16_from_bits(v16i_and(kept, v16i_set1(0xffff0000u)));
    }
    v16_store_as(stored, 0, x, dtype);
    return v16_load_as(stored, 0, dtype);
}

#ifndef SHOALI_VMATH_RANDOM
/* The Philox blocks first .. first+15: word w of block first+j is lane j of word[w]. */
SHOALI_V void v16_random_block(const struct shoali_stream *stream, uint64_t first, v16i word[4])
{
    const v16i low = v16i_set1((uint32_t)first), high = v16i_set1((uint32_t)(first >> 32));
    v16i c0 = v16i_add(low, v16i_iota());
    v16i c1 = v16i_select(v16i_geu(c0, low), high, v16i_add(high, v16i_set1(1)));
    v16i c2 = v16i_set1(stream->high[0]), c3 = v16i_set1(stream->high[1]);
    uint32_t k0 = stream->key[0], k1 = stream->key[1];
    for (int round = 0; round < 10; round++) {
        v16i high0, low0, high1, low1;
        v16i_mul_wide(c0, SHOALI_PHILOX_MULTIPLIER0, &high0, &low0);
        v16i_mul_wide(c2, SHOALI_PHILOX_MULTIPLIER1, &high1, &low1);
        c0 = v16i_xor(v16i_xor(high1, c1), v16i_set1(k0));
        c1 = low1;
        c2 = v16i_xor(v16i_xor(high0, c3), v16i_set1(k1));
        c3 = low0;
        k0 += SHOALI_PHILOX_WEYL0;
        k1 += SHOALI_PHILOX_WEYL1;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}
#endif
/* shoali_random_u32 of the indices first .. first+15. */
SHOALI_V v16i v16_random_u32(const struct shoali_stream *stream, uint64_t first)
{
    v16i word[4];
    v16_random_block(stream, first, word);
    return word[0];
}
/* Which elements of a group (shoali_random_dense_u32) a dropout mask keeps, as bits from the
 * lowest; threshold: shoali_dropout_threshold. */
SHOALI_V uint64_t v16_dropout_group(const struct shoali_stream *stream, uint64_t group,
                                    uint32_t threshold)
{
    v16i word[4];
    uint64_t bits = 0;
    v16_random_block(stream, group * 16, word);
    for (int w = 0; w < 4; w++)
        bits |= (uint64_t)v16m_bits(v16i_geu(word[w], v16i_set1(threshold))) << (16 * w);
    return bits;
}
/* The same of the elements first .. first+count-1, count <= 64: half the work if they are all of
 * one group. Bits beyond them may be anything. */
SHOALI_V uint64_t v16_dropout_keep(const struct shoali_stream *stream, uint64_t first,
                                   int64_t count, uint32_t threshold)
{
    const uint64_t group = first / 64, skip = first % 64;
    const uint64_t bits = v16_dropout_group(stream, group, threshold) >> skip;
    if (skip == 0 || (int64_t)skip + count <= 64)
        return bits;
    return bits | v16_dropout_group(stream, group + 1, threshold) << (64 - skip);
}

#endif
