#include "ops/ref/ref.h"

#include "ops/real.h"

#include "ops/ref/loss_real.h"

#include "ops/real.h"

#include "ops/ref/loss_real.h"

void shoali_ref_cross_entropy(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_cross_entropy_args *a = args;
    if (a->dtype == SHOAL_F64)
        cross_entropy_f64(a);
    else
        cross_entropy_f32(a);
}

void shoali_ref_loss_mean(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_loss_mean_args *a = args;
    if (a->dtype == SHOAL_F64)
        loss_mean_f64(a);
    else
        loss_mean_f32(a);
}

void shoali_ref_cross_entropy_backward(const void *args,
                                       const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_cross_entropy_backward_args *a = args;
    if (a->dtype == SHOAL_F64)
        cross_entropy_backward_f64(a);
    else
        cross_entropy_backward_f32(a);
}

void shoali_ref_cross_entropy_tile(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_cross_entropy_tile_args *a = args;
    if (a->dtype == SHOAL_F64)
        cross_entropy_tile_f64(a);
    else
        cross_entropy_tile_f32(a);
}

void shoali_ref_cross_entropy_tile_backward(const void *args,
                                            const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_cross_entropy_tile_backward_args *a = args;
    if (a->dtype == SHOAL_F64)
        cross_entropy_tile_backward_f64(a);
    else
        cross_entropy_tile_backward_f32(a);
}

void shoali_ref_cross_entropy_join(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_cross_entropy_join_args *a = args;
    if (a->dtype == SHOAL_F64)
        cross_entropy_join_f64(a);
    else
        cross_entropy_join_f32(a);
}

void shoali_ref_softmax(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_softmax_args *a = args;
    if (a->dtype == SHOAL_F64)
        softmax_f64(a);
    else
        softmax_f32(a);
}
