/* Included by gemm.c for float and double, after real.h. */

static REAL R(dot)(const struct shoali_gemm_args *args, int64_t m, int64_t n)
{
    const int64_t a_first = args->trans_a ? m : m * args->lda;
    const int64_t a_step = args->trans_a ? args->lda : 1;
    const int64_t b_first = args->trans_b ? n * args->ldb : n;
    const int64_t b_step = args->trans_b ? 1 : args->ldb;
    REAL sum = 0;
    for (int64_t k = 0; k < args->k; k++) {
        const REAL a = R(load)(args->a, a_first + k * a_step, args->dtype_ab);
        const REAL b = R(load)(args->b, b_first + k * b_step, args->dtype_ab);
        sum = R(fma)(a, b, sum);
    }
    return sum;
}

static REAL R(activate)(enum shoali_activation activation, REAL x)
{
    if (activation == SHOALI_ACT_GELU_ERF)
        return R(function)(SHOALI_GELU_ERF, x, 0);
    if (activation == SHOALI_ACT_GELU_TANH)
        return R(function)(SHOALI_GELU_TANH, x, 0);
    if (activation == SHOALI_ACT_RELU_SQUARED)
        return R(function)(SHOALI_RELU_SQUARED, x, 0);
    if (activation == SHOALI_ACT_SILU)
        return R(function)(SHOALI_SILU, x, 0);
    return activation == SHOALI_ACT_RELU ? R(function)(SHOALI_RELU, x, 0) : x;
}

/* As to_fixed. */
static void R(leave_fixed)(const struct shoali_gemm_args *args, int64_t at, REAL v)
{
    const struct shoali_to_fixed_args one = {
        .x = &(const float){(float)v},
        .fixed = args->fixed + at,
        .flag = args->flag,
        .count = 1,
        .unit_log2 = args->unit_log2,
        .accumulate = args->accumulate,
        .limit = args->limit,
    };
    shoali_ref_to_fixed(&one, NULL);
}

static void R(gemm)(const struct shoali_gemm_args *args)
{
    for (int64_t m = 0; m < args->m; m++)
        for (int64_t n = 0; n < args->n; n++) {
            const int64_t at = m * args->ldc + n;
            REAL v = R(dot)(args, m, n);
            if (args->before != NULL)
                v = args->k > 0 ? ((const REAL *)args->before)[at] + v
                                : ((const REAL *)args->before)[at];
            if (args->fixed != NULL) {
                R(leave_fixed)(args, at, v);
                continue;
            }
            if (args->accumulate)
                v = R(load)(args->c, at, args->dtype_c) + v;
            if (args->bias != NULL)
                v += R(load)(args->bias, n, args->dtype_bias);
            if (args->preact != NULL) {
                R(store)(args->preact, at, v, args->dtype_c);
                v = R(load)(args->preact, at, args->dtype_c);
            }
            v = R(activate)(args->activation, v);
            if (args->residual != NULL)
                v = R(load)(args->residual, at, args->dtype_c) + v;
            R(store)(args->c, at, v, args->dtype_c);
        }
}
