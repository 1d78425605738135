#include "ops/ref/ref.h"

#include "ops/real.h"

#include "ops/ref/embedding_real.h"

#include "ops/real.h"

#include "ops/ref/embedding_real.h"

void shoali_ref_embedding(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_embedding_args *a = args;
    if (a->dtype == SHOAL_F64)
        embedding_f64(a);
    else
        embedding_f32(a);
}

void shoali_ref_embedding_backward(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_embedding_backward_args *a = args;
    if (a->dtype == SHOAL_F64)
        embedding_backward_f64(a);
    else
        embedding_backward_f32(a);
}
