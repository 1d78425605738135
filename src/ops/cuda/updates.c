/* updates.c - queues the kernels of flat buffers. */
#include "ops/cuda/launch.h"

#include <math.h>

void shoali_cuda_to_fixed(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_to_fixed_args *given = args;
    const struct cuda_to_fixed_args own = {.x = given->x,
                                           .fixed = given->fixed,
                                           .flag = given->flag,
                                           .count = given->count,
                                           .columns = given->count,
                                           .stride = given->count,
                                           .unit = ldexp(1.0, given->unit_log2),
                                           .limit = given->limit,
                                           .accumulate = given->accumulate};
    shoali_cuda_queue_flat(context, CUDA_to_fixed, &own, own.count);
}

void shoali_cuda_from_fixed(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_from_fixed_args *given = args;
    const struct cuda_from_fixed_args own = {.fixed = given->fixed,
                                             .y = given->y,
                                             .count = given->count,
                                             .unit = ldexp(1.0, -given->unit_log2),
                                             .divisor = given->divisor};
    shoali_cuda_queue_flat(context, CUDA_from_fixed, &own, own.count);
}

void shoali_cuda_norm2(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_norm2_args *given = args;
    const struct cuda_norm2_args own = {
        .x = given->x, .limbs = given->limbs, .flag = given->flag, .count = given->count};
    const int64_t room = 4 * (int64_t)shoali_cuda_multiprocessors(context);
    const int64_t blocks = (own.count + 4095) / 4096;
    shoali_cuda_queue(context, CUDA_norm2, &own,
                      (struct shoali_cuda_grid){.blocks = blocks < room ? blocks : room,
                                                .threads = 256,
                                                .shared_bytes = CUDA_NORM2_SHARED});
}

void shoali_cuda_adam(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_adam_args *given = args;
    const struct cuda_adam_args own = {.param = given->param,
                                       .exp_avg = given->exp_avg,
                                       .exp_avg_sq = given->exp_avg_sq,
                                       .grad = given->grad,
                                       .control = given->control,
                                       .low = given->low,
                                       .count = given->count,
                                       .beta1 = given->beta1,
                                       .beta2 = given->beta2,
                                       .rest1 = 1.0f - given->beta1,
                                       .rest2 = 1.0f - given->beta2,
                                       .eps = given->eps,
                                       .weight_decay = given->weight_decay,
                                       .decay = -given->lr * given->weight_decay,
                                       .step_size = given->step_size,
                                       .inv_sqrt_c2 = given->inv_sqrt_c2,
                                       .decoupled = given->decoupled,
                                       .low_dtype = (int32_t)given->low_dtype};
    shoali_cuda_queue_flat(context, CUDA_adam, &own, own.count);
}
