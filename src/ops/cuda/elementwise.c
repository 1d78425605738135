/* elementwise.c - queues the kernels of one element at a time. */
#include "ops/cuda/launch.h"
#include "ops/storage.h"

#include <string.h>

_Static_assert((int)CUDA_F32 == (int)SHOAL_F32 && (int)CUDA_BF16 == (int)SHOAL_BF16 &&
                   (int)CUDA_F16 == (int)SHOAL_F16,
               "kernels know types by these numbers");
_Static_assert(CUDA_MAX_DIMS == SHOAL_MAX_DIMS, "blocks of as many dimensions");
_Static_assert(SHOALI_NEG == 0 && SHOALI_ADD_SCALAR == 13 && SHOALI_ADD == 0 && SHOALI_DIV == 3,
               "kernels know kinds by these numbers");

void shoali_cuda_axpy(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_axpy_args *given = args;
    const struct cuda_axpy_args own = {.x = given->x,
                                       .y = given->y,
                                       .count = given->count,
                                       .a = (float)given->a,
                                       .accumulate = given->accumulate,
                                       .dtype = (int32_t)given->dtype};
    shoali_cuda_queue_flat(context, CUDA_axpy, &own, own.count);
}

void shoali_cuda_binary(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_binary_args *given = args;
    const struct cuda_binary_args own = {.a = given->a,
                                         .b = given->b,
                                         .y = given->y,
                                         .count = given->count,
                                         .b_count = given->b_count,
                                         .kind = (int32_t)given->kind,
                                         .accumulate = given->accumulate,
                                         .dtype = (int32_t)given->dtype};
    shoali_cuda_queue_flat(context, CUDA_binary, &own, own.count);
}

void shoali_cuda_unary(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_unary_args *given = args;
    const struct cuda_unary_args own = {.x = given->x,
                                        .dy = given->dy,
                                        .y = given->y,
                                        .count = given->count,
                                        .alpha = (float)given->alpha,
                                        .kind = (int32_t)given->kind,
                                        .backward = given->backward,
                                        .accumulate = given->accumulate,
                                        .dtype = (int32_t)given->dtype};
    shoali_cuda_queue_flat(context, CUDA_unary, &own, own.count);
}

void shoali_cuda_glu(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_glu_args *given = args;
    const struct cuda_glu_args own = {.x = given->x,
                                      .dy = given->dy,
                                      .y = given->y,
                                      .rows = given->rows,
                                      .columns = given->columns,
                                      .kind = (int32_t)given->kind,
                                      .backward = given->backward,
                                      .accumulate = given->accumulate,
                                      .dtype = (int32_t)given->dtype};
    shoali_cuda_queue_flat(context, CUDA_glu, &own, own.rows * own.columns);
}

static bool is_short_float(shoal_dtype dtype)
{
    return (SHOALI_SHORT_FLOATS & shoali_dtype_bit(dtype)) != 0;
}

bool shoali_cuda_converts(const void *args)
{
    const struct shoali_convert_args *given = args;
    return is_short_float(given->dtype) && is_short_float(given->dtype_out);
}

void shoali_cuda_convert(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_convert_args *given = args;
    const struct cuda_convert_args own = {.x = given->x,
                                          .y = given->y,
                                          .count = given->count,
                                          .dtype = (int32_t)given->dtype,
                                          .dtype_out = (int32_t)given->dtype_out};
    shoali_cuda_queue_flat(context, CUDA_convert, &own, own.count);
}

/* The element as the oracle writes it. */
void shoali_cuda_set(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_set_args *given = args;
    struct cuda_set_args own = {
        .y = given->y, .count = given->count, .bytes = (int32_t)shoal_dtype_bytes(given->dtype)};
    struct shoali_set_args one = *given;
    one.y = &own.bits;
    one.count = 1;
    shoali_ops_entry(&shoali_ops_ref, &shoali_kernel_set)
        ->fn(&one, &(struct shoali_kernel_context){0});
    shoali_cuda_queue_flat(context, CUDA_set, &own, own.count);
}

bool shoali_cuda_copies(const void *args)
{
    const struct shoali_copy_strided_args *given = args;
    return !given->accumulate || is_short_float(given->dtype);
}

void shoali_cuda_copy_strided(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_copy_strided_args *given = args;
    struct cuda_copy_strided_args own = {.x = given->x,
                                         .y = given->y,
                                         .ndim = given->ndim,
                                         .bytes = (int32_t)shoal_dtype_bytes(given->dtype),
                                         .accumulate = given->accumulate,
                                         .dtype = (int32_t)given->dtype,
                                         .count = 1};
    for (int32_t d = 0; d < given->ndim; d++) {
        own.count *= given->dim[d];
        own.dim[d] = given->dim[d];
        own.x_stride[d] = given->x_stride[d];
        own.y_stride[d] = given->y_stride[d];
    }
    shoali_cuda_queue_flat(context, CUDA_copy_strided, &own, own.count);
}
