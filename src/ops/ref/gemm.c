#include "ops/ref/ref.h"

#include "ops/real.h"

#include "ops/ref/gemm_real.h"

#include "ops/real.h"

#include "ops/ref/gemm_real.h"

void shoali_ref_gemm(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_gemm_args *a = args;
    if (a->dtype_ab == SHOAL_F64)
        gemm_f64(a);
    else
        gemm_f32(a);
}

/* The oracle reads B where it is, whether packed_b is given or not. */
void shoali_ref_pack_b(const void *args, const struct shoali_kernel_context *context)
{
    (void)args, (void)context;
}
