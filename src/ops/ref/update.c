/* update - optimizer steps. Each line is one rounding, or an fma: the order of ops.h. */
#include "ops/ref/ref.h"
#include "ops/scalars.h"

/* Control words of the clip kernel: what gradients are multiplied with; whether the step is
 * skipped. */
static float multiplier_of(const float *control)
{
    return control != NULL ? control[1] : 1.0f;
}
static bool skips(const float *control)
{
    return control != NULL && control[2] != 0;
}

void shoali_ref_adam(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_adam_args *a = args;
    const float multiplier = multiplier_of(a->control);
    const float rest1 = 1.0f - a->beta1, rest2 = 1.0f - a->beta2;
    const float decay = -a->lr * a->weight_decay;
    if (skips(a->control))
        return;
    for (int64_t i = 0; i < a->count; i++) {
        float p = a->param[i];
        float g = a->grad[i] * multiplier;
        if (!a->decoupled)
            g = fmaf(a->weight_decay, p, g);
        const float m = fmaf(a->beta1, a->exp_avg[i], rest1 * g);
        const float square = g * g;
        const float v = fmaf(a->beta2, a->exp_avg_sq[i], rest2 * square);
        float d = sqrtf(v) * a->inv_sqrt_c2;
        d = d + a->eps;
        if (a->decoupled)
            p = fmaf(decay, p, p);
        float u = m / d;
        u = a->step_size * u;
        p = p - u;
        a->param[i] = p;
        a->exp_avg[i] = m;
        a->exp_avg_sq[i] = v;
        if (a->low != NULL)
            store_f32(a->low, i, p, a->low_dtype);
    }
}

void shoali_ref_sgd(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_sgd_args *a = args;
    const float multiplier = multiplier_of(a->control);
    const float fresh = 1.0f - a->dampening;
    if (skips(a->control))
        return;
    for (int64_t i = 0; i < a->count; i++) {
        float p = a->param[i];
        float g = a->grad[i] * multiplier;
        g = fmaf(a->weight_decay, p, g);
        if (a->momentum != 0) {
            float buffer = g;
            if (!a->first)
                buffer = fmaf(a->momentum, a->momentum_buffer[i], fresh * g);
            a->momentum_buffer[i] = buffer;
            g = a->nesterov ? fmaf(a->momentum, buffer, g) : buffer;
        }
        p = fmaf(-a->lr, g, p);
        a->param[i] = p;
        if (a->low != NULL)
            store_f32(a->low, i, p, a->low_dtype);
    }
}
