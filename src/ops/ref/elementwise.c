#include "ops/ref/ref.h"

#include "ops/real.h"

#include "ops/ref/elementwise_real.h"

#include "ops/real.h"

#include "ops/ref/elementwise_real.h"

void shoali_ref_dropout(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_dropout_args *a = args;
    if (a->dtype == SHOAL_F64)
        dropout_f64(a);
    else
        dropout_f32(a);
}

void shoali_ref_unary(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_unary_args *a = args;
    if (a->dtype == SHOAL_F64)
        unary_f64(a);
    else
        unary_f32(a);
}

void shoali_ref_glu(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_glu_args *a = args;
    if (a->dtype == SHOAL_F64)
        glu_f64(a);
    else
        glu_f32(a);
}

void shoali_ref_binary(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_binary_args *a = args;
    if (a->dtype == SHOAL_F64)
        binary_f64(a);
    else
        binary_f32(a);
}

void shoali_ref_axpy(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_axpy_args *a = args;
    if (a->dtype == SHOAL_F64)
        axpy_f64(a);
    else
        axpy_f32(a);
}

void shoali_ref_reduce(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_reduce_args *a = args;
    if (a->dtype == SHOAL_F64)
        reduce_f64(a);
    else
        reduce_f32(a);
}

void shoali_ref_broadcast(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_broadcast_args *a = args;
    if (a->dtype == SHOAL_F64)
        broadcast_f64(a);
    else
        broadcast_f32(a);
}
