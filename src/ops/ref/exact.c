/* exact - the integer sums of the exact reduction, and the decision for a step. */
#include "ops/limbs.h"
#include "ops/ref/ref.h"
#include "ops/scalars.h"

/* 2^n for -1022 <= n <= 1023. */
static double power_of_two(int32_t n)
{
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void shoali_ref_to_fixed(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_to_fixed_args *a = args;
    const double unit = power_of_two(a->unit_log2);
    for (int64_t i = 0; i < a->count; i++) {
        const double x = (double)a->x[i];
        int64_t contribution = 0;
        if (fabs(x) < a->limit)
            contribution = (int64_t)rint(x * unit);
        else
            *a->flag |= 1;
        /* Wrapping in unsigned arithmetic is defined, and order-free. */
        a->fixed[i] = a->accumulate ? (int64_t)((uint64_t)a->fixed[i] + (uint64_t)contribution)
                                    : contribution;
    }
}

void shoali_ref_from_fixed(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_from_fixed_args *a = args;
    const double unit = power_of_two(-a->unit_log2);
    for (int64_t i = 0; i < a->count; i++)
        a->y[i] = (float)((double)a->fixed[i] * unit / a->divisor);
}

void shoali_ref_norm2(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_norm2_args *a = args;
    for (int64_t i = 0; i < a->count; i++)
        *a->flag |= limbs_add_square(a->limbs, a->x[i]);
}

void shoali_ref_clip(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_clip_args *a = args;
    const double upper = (double)a->limbs[2] * 0x1p64 + (double)a->limbs[1];
    const double sum = upper * 0x1p64 + (double)a->limbs[0];
    const double norm = sqrt(sum * 0x1p-62) / a->loss_scale;
    const bool bad = *a->flag != 0;
    const bool clips = a->max_norm > 0 && norm > a->max_norm;
    const double factor = clips ? a->max_norm / (norm + 1e-6) : 1.0;
    a->out[0] = bad ? NAN : (float)norm;
    a->out[1] = (float)(1 / a->loss_scale * factor);
    a->out[2] = bad ? 1.0f : 0.0f;
}
