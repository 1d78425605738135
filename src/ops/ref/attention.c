#include "ops/ref/real.h"

#include "ops/ref/attention_real.h"

#include "ops/ref/real.h"

#include "ops/ref/attention_real.h"

void shoali_ref_attention(const void *args, struct shoali_pool *pool)
{
    (void)pool;
    const struct shoali_attention_args *a = args;
    if (a->dtype == SHOAL_F64)
        attention_f64(a);
    else
        attention_f32(a);
}

void shoali_ref_attention_backward(const void *args, struct shoali_pool *pool)
{
    (void)pool;
    const struct shoali_attention_backward_args *a = args;
    if (a->dtype == SHOAL_F64)
        attention_backward_f64(a);
    else
        attention_backward_f32(a);
}
