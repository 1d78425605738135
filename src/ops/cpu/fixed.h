/* fixed - contributions as integers: what to_fixed does, and the products that leave their sums
 * so. */
#ifndef SHOALI_OPS_CPU_FIXED_H
#define SHOALI_OPS_CPU_FIXED_H

#include "base/nontemporal.h"
#include "ops/cpu/isa.h"

/* 2^n for -1022 <= n <= 1023. */
static inline double fixed_unit(int32_t n)
{
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

enum fixing { FIXED_STORE, FIXED_STREAM, FIXED_ADD };

#if defined(__AVX2__) && !defined(__AVX512DQ__)
/* Integers nearest to four numbers below 2^62, ties to even, without AVX-512's instruction. An
 * addition of 1.5 * 2^52 leaves a rounded number in the last bits of the sum. The number is taken
 * in two parts: a multiple of 2^32, which is even and exact, and the remainder. */
SHOALI_INLINE __m256i nearest_four(__m256d value)
{
    const __m256d magic = _mm256_set1_pd(0x1.8p52);
    const __m256d high = _mm256_fmadd_pd(value, _mm256_set1_pd(0x1p-32), magic);
    const __m256d part = _mm256_sub_pd(high, magic);
    const __m256d low = _mm256_add_pd(_mm256_fnmadd_pd(part, _mm256_set1_pd(0x1p32), value), magic);
    const __m256i bits = _mm256_castpd_si256(magic);
    const __m256i highs = _mm256_sub_epi64(_mm256_castpd_si256(high), bits);
    const __m256i lows = _mm256_sub_epi64(_mm256_castpd_si256(low), bits);
    return _mm256_add_epi64(_mm256_slli_epi64(highs, 32), lows);
}

SHOALI_INLINE bool fixed_four(const float *x, int64_t *fixed, double unit, double limit,
                              const enum fixing fixing)
{
    const __m256d value = _mm256_cvtps_pd(_mm_loadu_ps(x));
    const __m256d size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), value);
    const __m256d good = _mm256_cmp_pd(size, _mm256_set1_pd(limit), _CMP_LT_OQ);
    __m256i sum = nearest_four(_mm256_and_pd(good, _mm256_mul_pd(value, _mm256_set1_pd(unit))));
    __m256i *to = (__m256i *)(void *)fixed;
    if (fixing == FIXED_ADD)
        sum = _mm256_add_epi64(_mm256_loadu_si256(to), sum);
    if (fixing == FIXED_STREAM)
        _mm256_stream_si256(to, sum);
    else
        _mm256_storeu_si256(to, sum);
    return _mm256_movemask_pd(good) != 15;
}
#endif

/* Eight elements; a lane that is not below the limit gives 0. Returns whether there was one. */
SHOALI_INLINE bool fixed_eight(const float *x, int64_t *fixed, double unit, double limit,
                               const enum fixing fixing)
{
#if defined(__AVX512DQ__)
    const __m512d value = _mm512_cvtps_pd(_mm256_loadu_ps(x));
    const __mmask8 good =
        _mm512_cmp_pd_mask(_mm512_abs_pd(value), _mm512_set1_pd(limit), _CMP_LT_OQ);
    __m512i sum = _mm512_maskz_cvtpd_epi64(good, _mm512_mul_pd(value, _mm512_set1_pd(unit)));
    if (fixing == FIXED_ADD)
        sum = _mm512_add_epi64(_mm512_loadu_si512(fixed), sum);
    if (fixing == FIXED_STREAM)
        _mm512_stream_si512((__m512i *)(void *)fixed, sum);
    else
        _mm512_storeu_si512(fixed, sum);
    return good != 0xff;
#elif defined(__AVX2__)
    bool bad = false;
    for (int j = 0; j < 8; j += 4)
        bad |= fixed_four(x + j, fixed + j, unit, limit, fixing);
    return bad;
#else
    bool bad = false;
    int64_t eight[8], *to = fixing == FIXED_STREAM ? eight : fixed;
    for (int j = 0; j < 8; j++) {
        const double value = (double)x[j];
        const bool good = __builtin_fabs(value) < limit;
        const int64_t add = (int64_t)__builtin_rint(good ? value * unit : 0.0);
        bad |= !good;
        to[j] = fixing == FIXED_ADD ? (int64_t)((uint64_t)fixed[j] + (uint64_t)add) : add;
    }
    if (fixing == FIXED_STREAM)
        shoali_nontemporal_copy(fixed, eight, sizeof eight);
    return bad;
#endif
}

/* Fewer than eight. */
SHOALI_INLINE bool fixed_rest(const float *x, int64_t count, int64_t *fixed, double unit,
                              double limit, const enum fixing fixing)
{
    float eight[8] = {0};
    int64_t sums[8] = {0};
    memcpy(eight, x, (size_t)count * sizeof *x);
    memcpy(sums, fixed, (size_t)count * sizeof *fixed);
    const bool bad =
        fixed_eight(eight, sums, unit, limit, fixing == FIXED_ADD ? FIXED_ADD : FIXED_STORE);
    memcpy(fixed, sums, (size_t)count * sizeof *fixed);
    return bad;
}

#endif
