/* Included by elementwise.c for float and double, after real.h. */

static void R(put)(void *y, int64_t i, REAL v, int32_t accumulate, shoal_dtype dtype)
{
    if (accumulate)
        v = R(load)(y, i, dtype) + v;
    R(store)(y, i, v, dtype);
}

static void R(dropout)(const struct shoali_dropout_args *args)
{
    const REAL scale = R(dropout_scale)(args->probability);
    for (int64_t i = 0; i < args->count; i++) {
        int64_t length;
        const int64_t at = shoali_runs_at(&args->runs, i, &length);
        const uint64_t index = (uint64_t)args->first_element + (uint64_t)at;
        REAL v = 0;
        if (dropout_keeps(&args->random, index, args->probability))
            v = R(load)(args->x, i, args->dtype) * scale;
        if (args->residual != NULL)
            v = R(load)(args->residual, i, args->dtype) + v;
        R(put)(args->y, i, v, args->accumulate, args->dtype);
    }
}

static REAL R(unary_backward)(const struct shoali_unary_args *args, REAL x, REAL dy)
{
    if (args->kind == SHOALI_NEG)
        return -dy;
    if (args->kind == SHOALI_LOG)
        return dy / x;
    if (args->kind == SHOALI_ADD_SCALAR)
        return dy;
    return dy * R(shoali_ref_derivative)(args->kind, x, (REAL)args->alpha);
}

static void R(unary)(const struct shoali_unary_args *args)
{
    for (int64_t i = 0; i < args->count; i++) {
        const REAL x = R(load)(args->x, i, args->dtype);
        const REAL v = args->backward
                           ? R(unary_backward)(args, x, R(load)(args->dy, i, args->dtype))
                           : R(shoali_ref_function)(args->kind, x, (REAL)args->alpha);
        R(put)(args->y, i, v, args->accumulate, args->dtype);
    }
}

static void R(glu)(const struct shoali_glu_args *args)
{
    for (int64_t i = 0; i < args->rows * args->columns; i++) {
        const int64_t a_at = i / args->columns * 2 * args->columns + i % args->columns;
        const int64_t b_at = a_at + args->columns;
        const REAL a = R(load)(args->x, a_at, args->dtype), b = R(load)(args->x, b_at, args->dtype);
        const REAL value = R(shoali_ref_function)(args->kind, a, 0);
        if (!args->backward) {
            R(put)(args->y, i, value * b, args->accumulate, args->dtype);
            continue;
        }
        const REAL dy = R(load)(args->dy, i, args->dtype);
        const REAL slope = R(shoali_ref_derivative)(args->kind, a, 0);
        R(put)(args->y, a_at, dy * b * slope, args->accumulate, args->dtype);
        R(put)(args->y, b_at, dy * value, args->accumulate, args->dtype);
    }
}

static REAL R(binary_value)(enum shoali_binary kind, REAL a, REAL b)
{
    switch (kind) {
    case SHOALI_ADD:
        return a + b;
    case SHOALI_SUB:
        return a - b;
    case SHOALI_MUL:
        return a * b;
    case SHOALI_DIV:
        return a / b;
    }
    return 0;
}

static void R(binary)(const struct shoali_binary_args *args)
{
    for (int64_t i = 0; i < args->count; i++) {
        const REAL a = R(load)(args->a, i, args->dtype);
        const REAL b = R(load)(args->b, i % args->b_count, args->dtype);
        R(put)(args->y, i, R(binary_value)(args->kind, a, b), args->accumulate, args->dtype);
    }
}

static void R(axpy)(const struct shoali_axpy_args *args)
{
    for (int64_t i = 0; i < args->count; i++) {
        const REAL v = args->x != NULL ? (REAL)args->a * R(load)(args->x, i, args->dtype) : (REAL)0;
        R(put)(args->y, i, v, args->accumulate, args->dtype);
    }
}

/* inner 1 without row_order: one contiguous row, lane order; else one accumulator over the rows. */
static REAL R(reduce_one)(const struct shoali_reduce_args *args, int64_t outer, int64_t inner)
{
    REAL partial[16] = {0};
    const bool lanes = args->inner == 1 && !args->row_order;
    for (int64_t r = 0; r < args->reduced; r++) {
        const int64_t at = (outer * args->reduced + r) * args->inner + inner;
        partial[lanes ? r % 16 : 0] += R(load)(args->x, at, args->dtype);
    }
    return lanes ? R(lane_total)(partial) : partial[0];
}

static void R(reduce)(const struct shoali_reduce_args *args)
{
    for (int64_t i = 0; i < args->outer * args->inner; i++) {
        const REAL sum = R(reduce_one)(args, i / args->inner, i % args->inner);
        R(put)(args->y, i, (REAL)args->factor * sum, args->accumulate, args->dtype_out);
    }
}

static void R(broadcast)(const struct shoali_broadcast_args *args)
{
    for (int64_t i = 0; i < args->outer * args->reduced * args->inner; i++) {
        const int64_t from = i / args->inner / args->reduced * args->inner + i % args->inner;
        const REAL v = (REAL)args->factor * R(load)(args->x, from, args->dtype);
        R(put)(args->y, i, v, args->accumulate, args->dtype);
    }
}
