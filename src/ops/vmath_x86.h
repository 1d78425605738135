/* vmath_x86 - the end of reductions, where eight lanes are left. Included by vmath_avx2.h and
 * vmath_avx512.h. */
#ifndef SHOALI_OPS_VMATH_X86_H
#define SHOALI_OPS_VMATH_X86_H

#include "ops/vmath_scalar.h"

#include <immintrin.h>

SHOALI_V float v8_sum(__m256 x)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
SHOALI_V float v8_largest(__m256 x)
{
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#endif
