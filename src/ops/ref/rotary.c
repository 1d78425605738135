#include "ops/ref/ref.h"

#include "ops/real.h"

#include "ops/ref/rotary_real.h"

#include "ops/real.h"

#include "ops/ref/rotary_real.h"

void shoali_ref_rotary(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_rotary_args *a = args;
    if (a->dtype == SHOAL_F64)
        rotary_f64(a);
    else
        rotary_f32(a);
}
