/* adam - one pass over parameter, moments and gradient; bound by memory. The order of operations is
 * that of ops.h. */
#include "ops/cpu/range.h"

struct adam_constants {
    v16 multiplier, beta1, beta2, rest1, rest2, eps, weight_decay, decay, step_size, inv_sqrt_c2;
};

SHOALI_INLINE void adam_step(const struct shoali_adam_args *args, const struct adam_constants *c,
                             int64_t i, int64_t lanes)
{
    v16 p = lanes_load(args->param, i, lanes, SHOAL_F32);
    v16 g = v16_mul(lanes_load(args->grad, i, lanes, SHOAL_F32), c->multiplier);
    if (!args->decoupled)
        g = v16_fma(c->weight_decay, p, g);
    const v16 m =
        v16_fma(c->beta1, lanes_load(args->exp_avg, i, lanes, SHOAL_F32), v16_mul(c->rest1, g));
    const v16 v = v16_fma(c->beta2, lanes_load(args->exp_avg_sq, i, lanes, SHOAL_F32),
                          v16_mul(c->rest2, v16_mul(g, g)));
    const v16 d = v16_add(v16_mul(v16_sqrt(v), c->inv_sqrt_c2), c->eps);
    if (args->decoupled)
        p = v16_fma(c->decay, p, p);
    p = v16_sub(p, v16_mul(c->step_size, v16_div(m, d)));
    lanes_store(args->param, i, lanes, p, SHOAL_F32);
    lanes_store(args->exp_avg, i, lanes, m, SHOAL_F32);
    lanes_store(args->exp_avg_sq, i, lanes, v, SHOAL_F32);
    if (args->low)
        lanes_store(args->low, i, lanes, p, args->low_dtype);
}

static void adam_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_adam_args *args = block;
    const struct adam_constants c = {
        .multiplier = v16_set1(args->control ? args->control[1] : 1.0f),
        .beta1 = v16_set1(args->beta1),
        .beta2 = v16_set1(args->beta2),
        .rest1 = v16_set1(1.0f - args->beta1),
        .rest2 = v16_set1(1.0f - args->beta2),
        .eps = v16_set1(args->eps),
        .weight_decay = v16_set1(args->weight_decay),
        .decay = v16_set1(-args->lr * args->weight_decay),
        .step_size = v16_set1(args->step_size),
        .inv_sqrt_c2 = v16_set1(args->inv_sqrt_c2),
    };
    int64_t i = begin;
    for (; i + 16 <= end; i += 16)
        adam_step(args, &c, i, 16);
    if (i < end)
        adam_step(args, &c, i, end - i);
}

void SHOALI_CPU_SYMBOL(adam)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_adam_args *adam = args;
    if (adam->control && adam->control[2] != 0)
        return;
    range_run(context->threads, adam_range, adam, adam->count, 64, 28);
}

SHOALI_INLINE void sgd_step(const struct shoali_sgd_args *args, v16 multiplier, int64_t i,
                            int64_t lanes)
{
    const v16 momentum = v16_set1(args->momentum), fresh = v16_set1(1.0f - args->dampening);
    v16 p = lanes_load(args->param, i, lanes, SHOAL_F32);
    v16 g = v16_mul(lanes_load(args->grad, i, lanes, SHOAL_F32), multiplier);
    g = v16_fma(v16_set1(args->weight_decay), p, g);
    if (args->momentum != 0) {
        v16 buffer = g;
        if (!args->first)
            buffer = v16_fma(momentum, lanes_load(args->momentum_buffer, i, lanes, SHOAL_F32),
                             v16_mul(fresh, g));
        lanes_store(args->momentum_buffer, i, lanes, buffer, SHOAL_F32);
        g = args->nesterov ? v16_fma(momentum, buffer, g) : buffer;
    }
    p = v16_fma(v16_set1(-args->lr), g, p);
    lanes_store(args->param, i, lanes, p, SHOAL_F32);
    if (args->low)
        lanes_store(args->low, i, lanes, p, args->low_dtype);
}

static void sgd_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_sgd_args *args = block;
    const v16 multiplier = v16_set1(args->control ? args->control[1] : 1.0f);
    for (int64_t i = begin; i < end; i += 16)
        sgd_step(args, multiplier, i, SHOALI_MIN(16, end - i));
}

void SHOALI_CPU_SYMBOL(sgd)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_sgd_args *sgd = args;
    if (sgd->control && sgd->control[2] != 0)
        return;
    range_run(context->threads, sgd_range, sgd, sgd->count, 64, 20);
}
