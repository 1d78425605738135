#include "ops/ref/ref.h"

#include "ops/real.h"

#include "ops/ref/norm_real.h"

#include "ops/real.h"

#include "ops/ref/norm_real.h"

void shoali_ref_norm(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_norm_args *a = args;
    if (a->dtype == SHOAL_F64)
        norm_f64(a);
    else
        norm_f32(a);
}

void shoali_ref_norm_backward(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_norm_backward_args *a = args;
    if (a->dtype == SHOAL_F64)
        norm_backward_f64(a);
    else
        norm_backward_f32(a);
}
