/* rows.c - queues the kernels that reduce rows or columns. */
#include "ops/cuda/launch.h"

void shoali_cuda_norm(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_norm_args *given = args;
    const struct cuda_norm_args own = {.x = given->x,
                                       .gamma = given->gamma,
                                       .beta = given->beta,
                                       .y = given->y,
                                       .mean = given->mean,
                                       .rstd = given->rstd,
                                       .rows = given->rows,
                                       .columns = given->columns,
                                       .group = given->group,
                                       .group_stride = given->group_stride,
                                       .eps = (float)given->eps,
                                       .rms = given->rms,
                                       .gamma_plus_one = given->gamma_plus_one,
                                       .dtype = (int32_t)given->dtype};
    shoali_cuda_queue(context, CUDA_norm_rows, &own,
                      (struct shoali_cuda_grid){.blocks = shoali_cuda_row_blocks(context, own.rows),
                                                .threads = 256});
}

/* A block for each strip of columns. */
static void queue_columns(const struct shoali_kernel_context *context, enum cuda_kernel kernel,
                          const void *args, int64_t outer, int64_t columns, int32_t shared_bytes)
{
    shoali_cuda_queue(
        context, kernel, args,
        (struct shoali_cuda_grid){.blocks = outer * ((columns + CUDA_STRIP - 1) / CUDA_STRIP),
                                  .threads = CUDA_COLUMN_THREADS,
                                  .shared_bytes = shared_bytes});
}

void shoali_cuda_norm_backward(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_norm_backward_args *given = args;
    const struct cuda_norm_backward_args own = {.x = given->x,
                                                .gamma = given->gamma,
                                                .dy = given->dy,
                                                .mean = given->mean,
                                                .rstd = given->rstd,
                                                .dx = given->dx,
                                                .dgamma = given->dgamma,
                                                .dbeta = given->dbeta,
                                                .rows = given->rows,
                                                .columns = given->columns,
                                                .group = given->group,
                                                .group_stride = given->group_stride,
                                                .rms = given->rms,
                                                .gamma_plus_one = given->gamma_plus_one,
                                                .accumulate_dx = given->accumulate_dx,
                                                .accumulate_params = given->accumulate_params,
                                                .dtype = (int32_t)given->dtype};
    SHOAL_ASSERT(own.group == 0 || own.rows <= INT32_MAX);
    /* The parameters first: dx may be written over dy. */
    if (own.dgamma != NULL || own.dbeta != NULL)
        queue_columns(context, CUDA_norm_backward_columns, &own, 1, own.columns,
                      CUDA_NORM_COLUMNS_SHARED);
    if (own.dx != NULL && own.rows > 0)
        shoali_cuda_queue(context, CUDA_norm_backward_rows, &own,
                          (struct shoali_cuda_grid){
                              .blocks = shoali_cuda_row_blocks(context, own.rows), .threads = 256});
}

bool shoali_cuda_reduces(const void *args)
{
    const struct shoali_reduce_args *given = args;
    return (SHOALI_SHORT_FLOATS & shoali_dtype_bit(given->dtype_out)) != 0;
}

void shoali_cuda_reduce(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_reduce_args *given = args;
    const struct cuda_reduce_args own = {.x = given->x,
                                         .y = given->y,
                                         .outer = given->outer,
                                         .reduced = given->reduced,
                                         .inner = given->inner,
                                         .factor = (float)given->factor,
                                         .accumulate = given->accumulate,
                                         .lanes = given->inner == 1 && !given->row_order,
                                         .dtype = (int32_t)given->dtype,
                                         .dtype_out = (int32_t)given->dtype_out};
    if (own.lanes)
        shoali_cuda_queue(
            context, CUDA_reduce_lanes, &own,
            (struct shoali_cuda_grid){.blocks = shoali_cuda_row_blocks(context, own.outer),
                                      .threads = 256});
    else
        queue_columns(context, CUDA_reduce_columns, &own, own.outer, own.inner, CUDA_REDUCE_SHARED);
}
