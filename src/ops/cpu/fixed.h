/* fixed - contributions as integers: what to_fixed does, and the products that leave their sums so. */
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
