/* attention_plain - see attention_plain.h. */
#include "ops/attention_plain.h"

#include "ops/real.h"

#include "ops/attention_plain_real.h"

#include "ops/real.h"

#include "ops/attention_plain_real.h"

void shoali_attention_plain(const struct shoali_attention_args *args)
{
    if (args->dtype == SHOAL_F64)
        attention_f64(args);
    else
        attention_f32(args);
}

void shoali_attention_backward_plain(const struct shoali_attention_backward_args *args)
{
    if (args->dtype == SHOAL_F64)
        attention_backward_f64(args);
    else
        attention_backward_f32(args);
}
