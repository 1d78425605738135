/* glu - gated linear units. Threads split rows. */
#include "ops/cpu/range.h"

/* f(x) and, for backward, f'(x); what both need is computed once. */
struct gate {
    v16 value, slope;
};
SHOALI_INLINE struct gate gate_of(enum shoali_unary kind, v16 x, const bool slope)
{
    struct gate gate = {v16_set1(0.0f), v16_set1(0.0f)};
    v16 derivative;
    switch (kind) {
    case SHOALI_SILU:
        gate.value = v16_sigmoid_both(x, &derivative);
        gate.slope = v16_fma(x, derivative, gate.value);
        gate.value = v16_mul(x, gate.value);
        break;
    case SHOALI_GELU_ERF:
        gate.value = v16_gelu_erf(x);
        if (slope)
            gate.slope = v16_gelu_erf_derivative(x);
        break;
    case SHOALI_GELU_TANH:
        gate.value = v16_gelu_tanh(x);
        if (slope)
            gate.slope = v16_gelu_tanh_derivative(x);
        break;
    case SHOALI_RELU:
        gate.value = v16_relu(x);
        gate.slope = v16_relu_derivative(x);
        break;
    case SHOALI_RELU_SQUARED:
        gate.value = v16_mul(v16_relu(x), v16_relu(x));
        gate.slope = v16_add(v16_relu(x), v16_relu(x));
        break;
    default:
        gate.value = v16_sigmoid_both(x, &gate.slope);
        break;
    }
    return gate;
}

SHOALI_INLINE void put(const struct shoali_glu_args *args, int64_t at, int64_t lanes, v16 v,
                       const shoal_dtype dtype)
{
    if (args->accumulate)
        v = v16_add(lanes_load(args->y, at, lanes, dtype), v);
    lanes_store(args->y, at, lanes, v, dtype);
}

/* Inlined with constants. */
SHOALI_INLINE void glu_typed(const struct shoali_glu_args *args, int64_t begin, int64_t end,
                             const enum shoali_unary kind, const bool backward,
                             const shoal_dtype dtype)
{
    const int64_t columns = args->columns;
    for (int64_t row = begin; row < end; row++) {
        const int64_t a_at = 2 * row * columns, b_at = a_at + columns, y_at = row * columns;
        for (int64_t c = 0; c < columns; c += 16) {
            const int64_t lanes = SHOALI_MIN(16, columns - c);
            const v16 b = lanes_load(args->x, b_at + c, lanes, dtype);
            const struct gate gate =
                gate_of(kind, lanes_load(args->x, a_at + c, lanes, dtype), backward);
            if (!backward) {
                put(args, y_at + c, lanes, v16_mul(gate.value, b), dtype);
                continue;
            }
            const v16 dy = lanes_load(args->dy, y_at + c, lanes, dtype);
            put(args, a_at + c, lanes, v16_mul(v16_mul(dy, b), gate.slope), dtype);
            put(args, b_at + c, lanes, v16_mul(dy, gate.value), dtype);
        }
    }
}

SHOALI_INLINE void glu_kind(const struct shoali_glu_args *args, int64_t begin, int64_t end,
                            const bool backward)
{
    const enum shoali_unary kind = args->kind;
    if (kind == SHOALI_SILU && args->dtype == SHOAL_F32)
        glu_typed(args, begin, end, SHOALI_SILU, backward, SHOAL_F32);
    else if (kind == SHOALI_SILU && args->dtype == SHOAL_BF16)
        glu_typed(args, begin, end, SHOALI_SILU, backward, SHOAL_BF16);
    else if (kind == SHOALI_GELU_TANH && args->dtype == SHOAL_F32)
        glu_typed(args, begin, end, SHOALI_GELU_TANH, backward, SHOAL_F32);
    else if (kind == SHOALI_GELU_TANH && args->dtype == SHOAL_BF16)
        glu_typed(args, begin, end, SHOALI_GELU_TANH, backward, SHOAL_BF16);
    else
        glu_typed(args, begin, end, kind, backward, args->dtype);
}

static void glu_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_glu_args *args = block;
    if (args->backward)
        glu_kind(args, begin, end, true);
    else
        glu_kind(args, begin, end, false);
}

void SHOALI_CPU_SYMBOL(glu)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_glu_args *glu = args;
    range_run(context->threads, glu_range, glu, glu->rows, 1, glu->columns * 16);
}
