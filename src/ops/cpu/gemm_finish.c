/* gemm_finish - what happens to a tile's sums on their way into C. */
#include "ops/cpu/fixed.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/pairs.h"
#include "ops/cpu/range.h"

void SHOALI_CPU_SYMBOL(gemm_fetch)(const struct shoali_gemm_args *args, int64_t m0, int rows,
                                   int64_t n0, int64_t columns)
{
    const int64_t first = m0 * args->ldc + n0;
    if (args->fixed && !args->nontemporal)
        gemm_fetch_tile(args->fixed, SHOAL_I64, args->ldc, first, rows, columns);
    else if (!args->nontemporal)
        gemm_fetch_tile(args->c, args->dtype_c, args->ldc, first, rows, columns);
    if (args->before)
        gemm_fetch_tile(args->before, SHOAL_F32, args->ldc, first, rows, columns);
    if (args->residual)
        gemm_fetch_tile(args->residual, args->dtype_c, args->ldc, first, rows, columns);
    if (args->preact)
        gemm_fetch_tile(args->preact, args->dtype_c, args->ldc, first, rows, columns);
}

/* Stores lanes of v as the matrix has them and returns what was stored. bf16 is rounded by the CPU
 * where it multiplies pairs: to nearest even, and what becomes of numbers below 2^-126 is in
 * pairs.h. */
SHOALI_INLINE v16 store_rounded(void *matrix, int64_t at, int64_t lanes, v16 v,
                                const shoal_dtype dtype)
{
    if (SHOALI_CPU_PAIRS && dtype == SHOAL_BF16) {
        uint16_t half[16], *to = (uint16_t *)matrix + at;
        pairs_store(lanes >= 16 ? to : half, v);
        if (lanes < 16)
            memcpy(to, half, (size_t)lanes * 2);
        return v16_load_bf16(lanes >= 16 ? to : half);
    }
    v = v16_round_as(v, dtype);
    lanes_store(matrix, at, lanes, v, dtype);
    return v;
}

/* The sum of this product behind that of earlier ones. Without one there is nothing to add: +0
 * would turn -0. */
SHOALI_INLINE v16 join(const struct shoali_gemm_args *args, v16 v, int64_t at, int64_t lanes)
{
    const v16 before = lanes_load(args->before, at, lanes, SHOAL_F32);
    return args->k > 0 ? v16_add(before, v) : before;
}

/* Sixteen columns (lanes of them valid) of one row; `at` is the element of C, n its column. */
SHOALI_INLINE void finish_vector(const struct shoali_gemm_args *args, v16 v, int64_t at, int64_t n,
                                 int64_t lanes, const enum shoali_activation activation,
                                 const shoal_dtype dtype)
{
    if (args->before)
        v = join(args, v, at, lanes);
    if (args->accumulate)
        v = v16_add(lanes_load(args->c, at, lanes, dtype), v);
    if (args->bias)
        v = v16_add(v, lanes_load(args->bias, n, lanes, args->dtype_bias));
    if (args->preact)
        v = store_rounded(args->preact, at, lanes, v, dtype);
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
    case SHOALI_ACT_RELU_SQUARED:
        v = v16_relu(v);
        v = v16_mul(v, v);
        break;
    case SHOALI_ACT_SILU:
        v = v16_silu(v);
        break;
    }
    if (args->residual)
        v = v16_add(lanes_load(args->residual, at, lanes, dtype), v);
    (void)store_rounded(args->c, at, lanes, v, dtype);
}

/* Inlined with a constant activation and dtype. The copy of the arguments, which no store can
 * touch, stays in registers. */
SHOALI_INLINE void finish_typed(const struct shoali_gemm_args *args, const float *sum,
                                int64_t sum_ld, int64_t m0, int64_t rows, int64_t n0,
                                int64_t columns, const enum shoali_activation activation,
                                const shoal_dtype dtype)
{
    const struct shoali_gemm_args here = *args;
    const int64_t whole = columns & ~(int64_t)15;
    for (int64_t i = 0; i < rows; i++, sum += sum_ld) {
        const int64_t at = (m0 + i) * here.ldc + n0;
        for (int64_t j = 0; j < whole; j += 16)
            finish_vector(&here, v16_load(sum + j), at + j, n0 + j, 16, activation, dtype);
        if (whole < columns)
            finish_vector(&here, v16_load(sum + whole), at + whole, n0 + whole, columns - whole,
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
            if (args->before)
                v = join(args, v, (m0 + i) * args->ldc + n0 + j, 16);
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

#define MOST_COLUMNS 48 /* of a tile of any table that this is compiled for */

/* Whole vectors of fp32 past the caches, nothing added. */
static void finish_past_caches(const struct shoali_gemm_args *args, const float *sum,
                               int64_t sum_ld, int64_t m0, int64_t rows, int64_t n0,
                               int64_t columns)
{
    float *c = (float *)args->c + m0 * args->ldc + n0;
    for (int64_t i = 0; i < rows; i++, c += args->ldc, sum += sum_ld)
        shoali_nontemporal_copy(c, sum, (size_t)columns * sizeof *c);
}

/* A row's sums as integers. */
SHOALI_INLINE bool fix_row(const struct shoali_gemm_args *args, const float *sum, int64_t columns,
                           int64_t at, double unit, const enum fixing fixing)
{
    bool bad = false;
    int64_t *fixed = args->fixed + at, j = 0;
    for (; j + 8 <= columns; j += 8)
        bad |= fixed_eight(sum + j, fixed + j, unit, args->limit, fixing);
    if (j < columns)
        bad |= fixed_rest(sum + j, columns - j, fixed + j, unit, args->limit, fixing);
    return bad;
}

static void finish_fixed(const struct shoali_gemm_args *args, const float *sum, int64_t sum_ld,
                         int64_t m0, int64_t rows, int64_t n0, int64_t columns)
{
    const struct shoali_gemm_args here = *args;
    const double unit = fixed_unit(here.unit_log2);
    bool bad = false;
    for (int64_t i = 0; i < rows; i++, sum += sum_ld) {
        const int64_t at = (m0 + i) * here.ldc + n0;
        float joined[MOST_COLUMNS]; /* gemv, which has more, leaves no integers */
        const float *row = here.before ? joined : sum;
        for (int64_t j = 0; here.before && j < columns; j += 16)
            v16_store(joined + j,
                      join(&here, v16_load(sum + j), at + j, SHOALI_MIN(16, columns - j)));
        if (here.accumulate)
            bad |= fix_row(&here, row, columns, at, unit, FIXED_ADD);
        else if (here.nontemporal)
            bad |= fix_row(&here, row, columns, at, unit, FIXED_STREAM);
        else
            bad |= fix_row(&here, row, columns, at, unit, FIXED_STORE);
    }
    if (bad)
        __atomic_fetch_or(here.flag, 1u, __ATOMIC_RELAXED);
}

bool SHOALI_CPU_SYMBOL(gemm_streams)(const struct shoali_gemm_args *args,
                                     const struct shoali_pool *pool)
{
    const bool alone = !args->accumulate && !args->before && !args->bias && !args->preact &&
                       !args->residual && args->activation == SHOALI_ACT_NONE &&
                       args->dtype_c == SHOAL_F32;
    const int64_t whole = args->fixed ? 8 : 16, bytes = 64 / whole;
    const void *to = args->fixed ? (const void *)args->fixed : args->c;
    return alone && args->n % whole == 0 && args->ldc % whole == 0 &&
           range_streams(pool, to, NULL, args->m * args->n, bytes);
}

/* Thirty-two columns of bf16, a line when they begin with one. */
SHOALI_INLINE void store_two_rounded(uint16_t *c, v16 low, v16 high)
{
#if SHOALI_CPU_PAIRS
    pairs_store_two(c, low, high);
#else
    (void)store_rounded(c, 0, 16, low, SHOAL_BF16);
    (void)store_rounded(c, 16, 16, high, SHOAL_BF16);
#endif
}

/* The same into bf16 without a residual. Where there is no bias, -0 is added, which changes
 * nothing. */
static void finish_half(const struct shoali_gemm_args *args, const float *sum, int64_t sum_ld,
                        int64_t m0, int64_t rows, int64_t n0, int64_t columns)
{
    const struct shoali_gemm_args here = *args;
    v16 bias[2] = {v16_set1(-0.0f), v16_set1(-0.0f)};
    for (int64_t j = 0; j < columns; j += 32) {
        const bool two = j + 16 < columns;
        uint16_t *c = (uint16_t *)here.c + m0 * here.ldc + n0 + j;
        for (int half = 0; here.bias && half < 1 + two; half++)
            bias[half] = v16_load_as(here.bias, n0 + j + 16 * half, here.dtype_bias);
        for (int64_t i = 0; i < rows; i++, c += here.ldc) {
            const float *of = sum + i * sum_ld + j;
            const v16 low = v16_add(v16_load(of), bias[0]);
            if (two)
                store_two_rounded(c, low, v16_add(v16_load(of + 16), bias[1]));
            else
                (void)store_rounded(c, 0, 16, low, SHOAL_BF16);
        }
    }
}

void SHOALI_CPU_SYMBOL(gemm_finish)(const struct shoali_gemm_args *args, const float *sum,
                                    int64_t sum_ld, int64_t m0, int64_t rows, int64_t n0,
                                    int64_t columns)
{
    const enum shoali_activation activation = args->activation;
    const shoal_dtype dtype = args->dtype_c;
    const bool none = activation == SHOALI_ACT_NONE;
    const bool simple = none && !args->preact && columns % 16 == 0;
    if (args->fixed)
        finish_fixed(args, sum, sum_ld, m0, rows, n0, columns);
    else if (simple && args->nontemporal)
        finish_past_caches(args, sum, sum_ld, m0, rows, n0, columns);
    else if (simple && dtype == SHOAL_F32)
        finish_plain(args, sum, sum_ld, m0, rows, n0, columns);
    else if (simple && dtype == SHOAL_BF16 && !args->accumulate && !args->residual && !args->before)
        finish_half(args, sum, sum_ld, m0, rows, n0, columns);
    else if (none && dtype == SHOAL_BF16)
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, SHOALI_ACT_NONE, SHOAL_BF16);
    else if (activation == SHOALI_ACT_GELU_ERF && dtype == SHOAL_F32)
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, SHOALI_ACT_GELU_ERF, SHOAL_F32);
    else if (activation == SHOALI_ACT_GELU_TANH && dtype == SHOAL_F32)
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, SHOALI_ACT_GELU_TANH, SHOAL_F32);
    else if (activation == SHOALI_ACT_GELU_ERF && dtype == SHOAL_BF16)
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, SHOALI_ACT_GELU_ERF, SHOAL_BF16);
    else if (activation == SHOALI_ACT_GELU_TANH && dtype == SHOAL_BF16)
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, SHOALI_ACT_GELU_TANH, SHOAL_BF16);
    else
        finish_typed(args, sum, sum_ld, m0, rows, n0, columns, activation, dtype);
}
