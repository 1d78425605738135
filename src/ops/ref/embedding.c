#include "ops/ref/real.h"

#include "ops/ref/embedding_real.h"

#include "ops/ref/real.h"

#include "ops/ref/embedding_real.h"

void shoali_ref_embedding(const void *args, struct shoali_pool *pool)
{
    (void)pool;
    const struct shoali_embedding_args *a = args;
    if (a->dtype == SHOAL_F64)
        embedding_f64(a);
    else
        embedding_f32(a);
}

void shoali_ref_embedding_backward(const void *args, struct shoali_pool *pool)
{
    (void)pool;
    const struct shoali_embedding_backward_args *a = args;
    if (a->dtype == SHOAL_F64)
        embedding_backward_f64(a);
    else
        embedding_backward_f32(a);
}
