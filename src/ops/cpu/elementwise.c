/* elementwise - one value from one or two: dropout, functions, arithmetic, scaling. Threads split
 * elements. */
#include "ops/cpu/range.h"

/* y[i] (+)= v */
SHOALI_INLINE void put(void *y, int64_t i, int64_t lanes, v16 v, int32_t accumulate,
                       shoal_dtype dtype)
{
    if (accumulate)
        v = v16_add(lanes_load(y, i, lanes, dtype), v);
    lanes_store(y, i, lanes, v, dtype);
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Elements [begin, end), at most 64, of which `bits` says who is kept. */
static void dropout_some(const struct shoali_dropout_args *args, int64_t begin, int64_t end,
                         uint64_t bits, v16 scale)
{
    for (int64_t i = begin; i < end; i += 16, bits >>= 16) {
        const int64_t lanes = SHOALI_MIN(16, end - i);
        v16 v = v16_mul(lanes_load(args->x, i, lanes, args->dtype), scale);
        v = v16_select(v16m_from_bits((uint32_t)(bits & 0xffff)), v, v16_set1(0.0f));
        if (args->residual)
            v = v16_add(lanes_load(args->residual, i, lanes, args->dtype), v);
        put(args->y, i, lanes, v, args->accumulate, args->dtype);
    }
}

/* Elements [begin, end), the first of them global element `index`: group by group. */
static void dropout_run(const struct shoali_dropout_args *args, int64_t begin, int64_t end,
                        uint64_t index)
{
    const v16 scale = v16_set1((float)(1.0 / (1.0 - (double)args->probability)));
    const uint32_t threshold = shoali_dropout_threshold(args->probability);
    for (int64_t i = begin, n; i < end; i += n, index += (uint64_t)n) {
        const uint64_t skip = index % 64;
        n = SHOALI_MIN(64 - (int64_t)skip, end - i);
        uint64_t bits = UINT64_MAX;
        if (threshold > 0)
            bits = v16_dropout_group(&args->random, index / 64, threshold) >> skip;
        dropout_some(args, i, i + n, bits, scale);
    }
}

static void dropout_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_dropout_args *args = block;
    int64_t length;
    for (int64_t i = begin; i < end; i += length) {
        const int64_t at = shoali_runs_at(&args->runs, i, &length);
        length = SHOALI_MIN(length, end - i);
        dropout_run(args, i, i + length, (uint64_t)args->first_element + (uint64_t)at);
    }
}

void SHOALI_CPU_SYMBOL(dropout)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_dropout_args *dropout = args;
    range_run(context->threads, dropout_range, dropout, dropout->count, 64, 16);
}

/* ---- functions ------------------------------------------------------------------------------- */

SHOALI_INLINE v16 function(enum shoali_unary kind, v16 x, v16 alpha)
{
    switch (kind) {
    case SHOALI_NEG:
        return v16_neg(x);
    case SHOALI_EXP:
        return v16_exp(x);
    case SHOALI_LOG:
        return v16_log(x);
    case SHOALI_SQRT:
        return v16_sqrt(x);
    case SHOALI_TANH:
        return v16_tanh(x);
    case SHOALI_SIGMOID:
        return v16_sigmoid(x);
    case SHOALI_RELU:
        return v16_relu(x);
    case SHOALI_GELU_ERF:
        return v16_gelu_erf(x);
    case SHOALI_GELU_TANH:
        return v16_gelu_tanh(x);
    case SHOALI_SILU:
        return v16_silu(x);
    case SHOALI_SQUARE:
        return v16_mul(x, x);
    case SHOALI_RELU_SQUARED:
        return v16_mul(v16_relu(x), v16_relu(x));
    case SHOALI_SCALE:
        return v16_mul(alpha, x);
    case SHOALI_ADD_SCALAR:
        return v16_add(x, alpha);
    }
    return x;
}

/* dy * f'(x) */
SHOALI_INLINE v16 backward(enum shoali_unary kind, v16 x, v16 dy, v16 alpha)
{
    switch (kind) {
    case SHOALI_NEG:
        return v16_neg(dy);
    case SHOALI_EXP:
        return v16_mul(dy, v16_exp(x));
    case SHOALI_LOG:
        return v16_div(dy, x);
    case SHOALI_SQRT:
        return v16_mul(dy, v16_div(v16_set1(0.5f), v16_sqrt(x)));
    case SHOALI_TANH:
        return v16_mul(dy, v16_tanh_derivative(x));
    case SHOALI_SIGMOID:
        return v16_mul(dy, v16_sigmoid_derivative(x));
    case SHOALI_RELU:
        return v16_mul(dy, v16_relu_derivative(x));
    case SHOALI_GELU_ERF:
        return v16_mul(dy, v16_gelu_erf_derivative(x));
    case SHOALI_GELU_TANH:
        return v16_mul(dy, v16_gelu_tanh_derivative(x));
    case SHOALI_SILU:
        return v16_mul(dy, v16_silu_derivative(x));
    case SHOALI_SQUARE:
        return v16_mul(dy, v16_add(x, x));
    case SHOALI_RELU_SQUARED:
        return v16_mul(dy, v16_add(v16_relu(x), v16_relu(x)));
    case SHOALI_SCALE:
        return v16_mul(dy, alpha);
    case SHOALI_ADD_SCALAR:
        break;
    }
    return dy;
}

/* Inlined with a constant kind and dtype where a step depends on it. */
SHOALI_INLINE void unary_typed(const struct shoali_unary_args *args, int64_t begin, int64_t end,
                               const enum shoali_unary kind, const bool gradient,
                               const shoal_dtype dtype)
{
    const v16 alpha = v16_set1((float)args->alpha);
    for (int64_t i = begin; i < end; i += 16) {
        const int64_t lanes = SHOALI_MIN(16, end - i);
        const v16 x = lanes_load(args->x, i, lanes, dtype);
        const v16 v = gradient ? backward(kind, x, lanes_load(args->dy, i, lanes, dtype), alpha)
                               : function(kind, x, alpha);
        put(args->y, i, lanes, v, args->accumulate, dtype);
    }
}

static void unary_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_unary_args *args = block;
    const bool gradient = args->backward != 0;
    const enum shoali_unary kind = args->kind;
    const shoal_dtype dtype = args->dtype;
    if (gradient && kind == SHOALI_GELU_ERF && dtype == SHOAL_F32)
        unary_typed(args, begin, end, SHOALI_GELU_ERF, true, SHOAL_F32);
    else if (gradient && kind == SHOALI_GELU_ERF && dtype == SHOAL_BF16)
        unary_typed(args, begin, end, SHOALI_GELU_ERF, true, SHOAL_BF16);
    else if (gradient && kind == SHOALI_GELU_TANH && dtype == SHOAL_F32)
        unary_typed(args, begin, end, SHOALI_GELU_TANH, true, SHOAL_F32);
    else if (gradient && kind == SHOALI_GELU_TANH && dtype == SHOAL_BF16)
        unary_typed(args, begin, end, SHOALI_GELU_TANH, true, SHOAL_BF16);
    else
        unary_typed(args, begin, end, kind, gradient, dtype);
}

void SHOALI_CPU_SYMBOL(unary)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_unary_args *unary = args;
    range_run(context->threads, unary_range, unary, unary->count, 64, 16);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

SHOALI_INLINE v16 combine(enum shoali_binary kind, v16 a, v16 b)
{
    switch (kind) {
    case SHOALI_ADD:
        return v16_add(a, b);
    case SHOALI_SUB:
        return v16_sub(a, b);
    case SHOALI_MUL:
        return v16_mul(a, b);
    case SHOALI_DIV:
        break;
    }
    return v16_div(a, b);
}

/* n elements of a and y from i, of b from j: no wrap inside. */
static void binary_run(const struct shoali_binary_args *args, int64_t i, int64_t j, int64_t n)
{
    for (int64_t at = 0; at < n; at += 16) {
        const int64_t lanes = SHOALI_MIN(16, n - at);
        const v16 a = lanes_load(args->a, i + at, lanes, args->dtype);
        const v16 b = lanes_load(args->b, j + at, lanes, args->dtype);
        put(args->y, i + at, lanes, combine(args->kind, a, b), args->accumulate, args->dtype);
    }
}

static void binary_scalar(const struct shoali_binary_args *args, int64_t begin, int64_t end)
{
    float lane[16];
    v16_store(lane, lanes_load(args->b, 0, 1, args->dtype));
    const v16 b = v16_set1(lane[0]);
    for (int64_t i = begin; i < end; i += 16) {
        const int64_t lanes = SHOALI_MIN(16, end - i);
        const v16 a = lanes_load(args->a, i, lanes, args->dtype);
        put(args->y, i, lanes, combine(args->kind, a, b), args->accumulate, args->dtype);
    }
}

static void binary_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_binary_args *args = block;
    if (args->b_count == 1) {
        binary_scalar(args, begin, end);
        return;
    }
    for (int64_t i = begin, n; i < end; i += n) {
        const int64_t j = i % args->b_count;
        n = SHOALI_MIN(args->b_count - j, end - i);
        binary_run(args, i, j, n);
    }
}

void SHOALI_CPU_SYMBOL(binary)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_binary_args *binary = args;
    range_run(context->threads, binary_range, binary, binary->count, 64, 12);
}

/* ---- scaling --------------------------------------------------------------------------------- */

SHOALI_INLINE void axpy_typed(const struct shoali_axpy_args *args, int64_t begin, int64_t end,
                              const shoal_dtype dtype)
{
    const v16 a = v16_set1((float)args->a);
    for (int64_t i = begin; i < end; i += 16) {
        const int64_t lanes = SHOALI_MIN(16, end - i);
        v16 v = v16_set1(0.0f);
        if (args->x)
            v = v16_mul(a, lanes_load(args->x, i, lanes, dtype));
        put(args->y, i, lanes, v, args->accumulate, dtype);
    }
}

static void axpy_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_axpy_args *args = block;
    switch (args->dtype) {
    case SHOAL_F32:
        axpy_typed(args, begin, end, SHOAL_F32);
        break;
    case SHOAL_BF16:
        axpy_typed(args, begin, end, SHOAL_BF16);
        break;
    default:
        axpy_typed(args, begin, end, SHOAL_F16);
        break;
    }
}

void SHOALI_CPU_SYMBOL(axpy)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_axpy_args *axpy = args;
    range_run(context->threads, axpy_range, axpy, axpy->count, 64, 12);
}
