/* Kernels of one element at a time: the formulas of ops/ref/elementwise_real.h and copy.c. */
#include "ops/cuda/kernels/activation.h"

DEVICE float unary_backward(const struct cuda_unary_args *args, float x, float dy)
{
    if (args->kind == NEG)
        return -dy;
    if (args->kind == LOG)
        return dy / x;
    if (args->kind == ADD_SCALAR)
        return dy;
    return dy * derivative_of(args->kind, x, args->alpha);
}

KERNEL(unary, struct cuda_unary_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP) {
        const float x = load_as(args->x, i, args->dtype);
        const float v = args->backward ? unary_backward(args, x, load_as(args->dy, i, args->dtype))
                                       : function_of(args->kind, x, args->alpha);
        put_as(args->y, i, v, args->accumulate, args->dtype);
    }
}

KERNEL(glu, struct cuda_glu_args, 256)
{
    const int64_t count = args->rows * args->columns;
    for (int64_t i = FIRST; i < count; i += STEP) {
        const int64_t row = i / args->columns, column = i - row * args->columns;
        const int64_t a_at = 2 * row * args->columns + column, b_at = a_at + args->columns;
        const float a = load_as(args->x, a_at, args->dtype);
        const float b = load_as(args->x, b_at, args->dtype);
        const float value = function_of(args->kind, a, 0);
        if (!args->backward) {
            put_as(args->y, i, value * b, args->accumulate, args->dtype);
        } else {
            const float dy = load_as(args->dy, i, args->dtype);
            const float slope = derivative_of(args->kind, a, 0);
            put_as(args->y, a_at, dy * b * slope, args->accumulate, args->dtype);
            put_as(args->y, b_at, dy * value, args->accumulate, args->dtype);
        }
    }
}

DEVICE float binary_value(int32_t kind, float a, float b)
{
    switch (kind) {
    case 0:
        return a + b;
    case 1:
        return a - b;
    case 2:
        return a * b;
    default:
        return a / b;
    }
}

KERNEL(binary, struct cuda_binary_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP) {
        const int64_t at = args->b_count == args->count ? i : i % args->b_count;
        const float v = binary_value(args->kind, load_as(args->a, i, args->dtype),
                                     load_as(args->b, at, args->dtype));
        put_as(args->y, i, v, args->accumulate, args->dtype);
    }
}

KERNEL(axpy, struct cuda_axpy_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP) {
        const float v = args->x != 0 ? args->a * load_as(args->x, i, args->dtype) : 0.0f;
        put_as(args->y, i, v, args->accumulate, args->dtype);
    }
}

KERNEL(convert, struct cuda_convert_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP)
        store_as(args->y, i, load_as(args->x, i, args->dtype), args->dtype_out);
}

/* Any type: elements are moved as they are. */
DEVICE void set_element(void *y, int64_t i, uint64_t bits, int32_t bytes)
{
    if (bytes == 8)
        ((uint64_t *)y)[i] = bits;
    else if (bytes == 4)
        ((uint32_t *)y)[i] = (uint32_t)bits;
    else if (bytes == 2)
        ((uint16_t *)y)[i] = (uint16_t)bits;
    else
        ((uint8_t *)y)[i] = (uint8_t)bits;
}
DEVICE uint64_t element_of(const void *x, int64_t i, int32_t bytes)
{
    if (bytes == 8)
        return ((const uint64_t *)x)[i];
    if (bytes == 4)
        return ((const uint32_t *)x)[i];
    return bytes == 2 ? ((const uint16_t *)x)[i] : ((const uint8_t *)x)[i];
}

KERNEL(set, struct cuda_set_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP)
        set_element(args->y, i, args->bits, args->bytes);
}

KERNEL(copy_strided, struct cuda_copy_strided_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP) {
        int64_t rest = i, from = 0, to = 0;
        for (int32_t d = args->ndim - 1; d >= 0; d--) {
            const int64_t before = rest / args->dim[d], at = rest - before * args->dim[d];
            from += at * args->x_stride[d];
            to += at * args->y_stride[d];
            rest = before;
        }
        if (args->accumulate)
            store_as(args->y, to,
                     load_as(args->y, to, args->dtype) + load_as(args->x, from, args->dtype),
                     args->dtype);
        else
            set_element(args->y, to, element_of(args->x, from, args->bytes), args->bytes);
    }
}
