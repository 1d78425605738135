/* gemm_finish - what happens to a tile's sums on their way into C. */
#include "ops/cpu/gemm.h"
#include "ops/vmath.h"

/* Sixteen columns (lanes of them valid) of one row; `at` is the element of C, n its column. */
SHOALI_INLINE void finish_vector(const struct shoali_gemm_args *args, v16 v, int64_t at, int64_t n,
                                 int64_t lanes)
{
    const shoal_dtype dtype = args->dtype_c;
    if (args->accumulate)
        v = v16_add(v16_load_as_n(args->c, at, lanes, dtype), v);
    if (args->bias)
        v = v16_add(v, v16_load_as_n(args->bias, n, lanes, args->dtype_bias));
    if (args->preact) {
        v = v16_round_as(v, dtype);
        v16_store_as_n(args->preact, at, lanes, v, dtype);
    }
    switch (args->activation) {
    case SHOALI_ACT_NONE:
        break;
    case SHOALI_ACT_GELU_ERF:
        v = v16_gelu_erf(v);
        break;
    case SHOALI_ACT_GELU_TANH:
        v = v16_gelu_tanh(v);
        break;
    case SHOALI_ACT_RELU:
        v = v16_relu(v);
        break;
    }
    if (args->residual)
        v = v16_add(v16_load_as_n(args->residual, at, lanes, dtype), v);
    v16_store_as_n(args->c, at, lanes, v, dtype);
}

/* Sums with at most a bias and an addition to C, without the questions of the general case. Where
 * bf16 products are the CPU's own, so is the rounding: to nearest even, but numbers below 2^-126
 * become 0. */
SHOALI_INLINE bool finish_fast(const struct shoali_gemm_args *args, const float *sum, int64_t at,
                               int64_t n)
{
    if (args->preact || args->residual || args->activation != SHOALI_ACT_NONE)
        return false;
    v16 v = v16_load(sum);
    if (args->dtype_c == SHOAL_F32) {
        float *c = (float *)args->c + at;
        if (args->accumulate)
            v = v16_add(v16_load(c), v);
        if (args->bias)
            v = v16_add(v, v16_load_as(args->bias, n, args->dtype_bias));
        v16_store(c, v);
        return true;
    }
#if SHOALI_CPU_PAIRS
    if (args->dtype_c == SHOAL_BF16 && !args->accumulate) {
        if (args->bias)
            v = v16_add(v, v16_load_as(args->bias, n, args->dtype_bias));
        const __m256bh half = _mm512_cvtneps_pbh(v);
        memcpy((uint16_t *)args->c + at, &half, sizeof half);
        return true;
    }
#endif
    return false;
}

void SHOALI_CPU_SYMBOL(gemm_finish)(const struct shoali_gemm_args *args, const float *sum,
                                    int64_t sum_ld, int64_t m0, int64_t rows, int64_t n0,
                                    int64_t columns)
{
    for (int64_t i = 0; i < rows; i++, sum += sum_ld) {
        for (int64_t j = 0; j < columns; j += 16) {
            const int64_t lanes = SHOALI_MIN(16, columns - j), at = (m0 + i) * args->ldc + n0 + j;
            if (lanes < 16 || !finish_fast(args, sum + j, at, n0 + j))
                finish_vector(args, v16_load(sum + j), at, n0 + j, lanes);
        }
    }
}
