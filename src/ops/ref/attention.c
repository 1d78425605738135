#include "ops/attention_plain.h"
#include "ops/ref/ref.h"

void shoali_ref_attention(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    shoali_attention_plain(args);
}

void shoali_ref_attention_backward(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    shoali_attention_backward_plain(args);
}
