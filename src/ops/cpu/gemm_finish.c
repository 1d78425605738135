/* gemm_finish - what happens to a tile's sums on their way into C. */
#include "ops/cpu/gemm.h"
#include "ops/cpu/range.h"

/* Sixteen columns (lanes of them valid) of one row; `at` is the element of C, n its column. */
SHOALI_INLINE void finish_vector(const struct shoali_gemm_args *args, v16 v, int64_t at, int64_t n,
                                 int64_t lanes, const enum shoali_activation activation,
                                 const shoal_dtype dtype)
{
    if (args->accumulate)
        v = v16_add(lanes_load(args->c, at, lanes, dtype), v);
    if (args->bias)
        v = v16_add(v, lanes_load(args->bias, n, lanes, args->dtype_bias));
    if (args->preact) {
        v = v16_round_as(v, dtype);
        lanes_store(args->preact, at, lanes, v, dtype);
    }
    switch (activation) {
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
        v = v16_add(lanes_load(args->residual, at, lanes, dtype), v);
    lanes_store(args->c, at, lanes, v, dtype);
}

/* Inlined with a constant activation and dtype. */
SHOALI_INLINE void finish_typed(const struct shoali_gemm_args *args, const float *sum,
                                int64_t sum_ld, int64_t m0, int64_t rows, int64_t n0,
                                int64_t columns, const enum shoali_activation activation,
                                const shoal_dtype dtype)
{
    const int64_t whole = columns & ~(int64_t)15;
    for (int64_t i = 0; i < rows; i++, sum += sum_ld) {
        const int64_t at = (m0 + i) * args->ldc + n0;
        for (int64_t j = 0; j < whole; j += 16)
            finish_vector(args, v16_load(sum + j), at + j, n0 + j, 16, activation, dtype);
        if (whole < columns)
            finish_vector(args, v16_load(sum + whole), at + whole, n0 + whole, columns - whole,
                          activation, dtype);
    }
}

/* Sums without an activation; whole vectors of fp32. */
static void finish_plain(const struct shoali_gemm_args *args, const float *sum, int64_t sum_ld,
                         int64_t m0, int64_t rows, int64_t n0, int64_t columns)
{
    const float *residual =
        args->residual ? (const float *)args->residual + m0 * args->ldc + n0 : NULL;
    for (int64_t j = 0; j < columns; j += 16) {
        const v16 bias =
            args->bias ? v16_load_as(args->bias, n0 + j, args->dtype_bias) : v16_set1(0.0f);
        float *c = (float *)args->c + m0 * args->ldc + n0 + j;
        for (int64_t i = 0; i < rows; i++, c += args->ldc) {
            v16 v = v16_load(sum + i * sum_ld + j);
            if (args->accumulate)
                v = v16_add(v16_load(c), v);
            if (args->bias)
                v = v16_add(v, bias);
            if (residual)
                v = v16_add(v16_load(residual + i * args->ldc + j), v);
            v16_store(c, v);
        }
    }
}

/* The same into bf16, where the CPU multiplies pairs. Its rounding is used too: to nearest even,
 * but numbers below 2^-126 become 0. */
static void finish_half(const struct shoali_gemm_args *args, const float *sum, int64_t sum_ld,
                        int64_t m0, int64_t rows, int64_t n0, int64_t columns)
{
#if SHOALI_CPU_PAIRS
    for (int64_t j = 0; j < columns; j += 16) {
        const v16 bias =
            args->bias ? v16_load_as(args->bias, n0 + j, args->dtype_bias) : v16_set1(0.0f);
        uint16_t *c = (uint16_t *)args->c + m0 * args->ldc + n0 + j;
        for (int64_t i = 0; i < rows; i++, c += args->ldc) {
            const __m256bh half = _mm512_cvtneps_pbh(v16_add(v16_load(sum + i * sum_ld + j), bias));
            memcpy(c, &half, sizeof half);
        }
    }
#else
    (void)args, (void)sum, (void)sum_ld, (void)m0, (void)rows, (void)n0, (void)columns;
#endif
}

void SHOALI_CPU_SYMBOL(gemm_finish)(const struct shoali_gemm_args *args, const float *sum,
                                    int64_t sum_ld, int64_t m0, int64_t rows, int64_t n0,
                                    int64_t columns)
{
    const bool simple = !args->preact && args->activation == SHOALI_ACT_NONE && columns % 16 == 0;
    if (simple && args->dtype_c == SHOAL_F32) {
        finish_plain(args, sum, sum_ld, m0, rows, n0, columns);
        return;
    }
    if (simple && SHOALI_CPU_PAIRS && args->dtype_c == SHOAL_BF16 && !args->accumulate &&
        !args->residual) {
        finish_half(args, sum, sum_ld, m0, rows, n0, columns);
        return;
    }
    const enum shoali_activation activation = args->activation;
    if (activation == SHOALI_ACT_GELU_ERF && args->dtype_c == SHOAL_F32)
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, SHOALI_ACT_GELU_ERF, SHOAL_F32);
    else if (activation == SHOALI_ACT_GELU_TANH && args->dtype_c == SHOAL_F32)
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, SHOALI_ACT_GELU_TANH, SHOAL_F32);
    else if (activation == SHOALI_ACT_GELU_ERF && args->dtype_c == SHOAL_BF16)
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, SHOALI_ACT_GELU_ERF, SHOAL_BF16);
    else if (activation == SHOALI_ACT_GELU_TANH && args->dtype_c == SHOAL_BF16)
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, SHOALI_ACT_GELU_TANH, SHOAL_BF16);
    else
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, activation, args->dtype_c);
}
