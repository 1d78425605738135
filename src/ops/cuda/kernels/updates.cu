/* Kernels of flat buffers: exact sums, the squared norm, the optimizer. */
#include "ops/cuda/kernels/elements.h"

KERNEL(to_fixed, struct cuda_to_fixed_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP) {
        const int64_t row = args->columns < args->stride ? i / args->columns : 0;
        const int64_t at = i + row * (args->stride - args->columns);
        const double x = (double)args->x[at];
        int64_t contribution = 0;
        if (fabs(x) < args->limit)
            contribution = (int64_t)rint(x * args->unit);
        else
            atomic_or_u32(args->flag, 1);
        args->fixed[at] = args->accumulate
                              ? (int64_t)((uint64_t)args->fixed[at] + (uint64_t)contribution)
                              : contribution;
    }
}

KERNEL(from_fixed, struct cuda_from_fixed_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP)
        args->y[i] = (float)((double)args->fixed[i] * args->unit / args->divisor);
}

/* ---- squared norms: ops/limbs.h ---- */

/* All limbs in registers: none is indexed by a variable. */
DEVICE void limbs_add_at(uint64_t limbs[3], int at, uint64_t value)
{
    UNROLL
    for (int i = 0; i < 3; i++)
        if (i >= at) {
            limbs[i] += value;
            value = limbs[i] < value; /* the carry */
        }
}
/* Adds the integer x, 0 <= x < 2^183. */
DEVICE void limbs_add_integer(uint64_t limbs[3], double x)
{
    if (x < 0x1p53) {
        limbs_add_at(limbs, 0, (uint64_t)x);
        return;
    }
    const uint64_t bits = bits_of_f64(x);
    const uint64_t mantissa = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
    const int shift = (int)(bits >> 52) - 1075, limb = shift / 64, within = shift % 64;
    limbs_add_at(limbs, limb, mantissa << within);
    if (within > 0)
        limbs_add_at(limbs, limb + 1, mantissa >> (64 - within));
}

enum { NORM2_THREADS = 256 };
struct norm2_shared {
    uint64_t limbs[NORM2_THREADS][3];
};
SAME(sizeof(struct norm2_shared), CUDA_NORM2_SHARED);

/* Other blocks add at the same time: each addition learns its own carry. */
DEVICE void limbs_add_shared(uint64_t *limbs, const uint64_t added[3])
{
    uint64_t carry = 0;
    for (int i = 0; i < 3; i++) {
        const uint64_t value = added[i] + carry;
        carry = value < carry;
        const uint64_t old = (uint64_t)atomic_add_i64((int64_t *)&limbs[i], (int64_t)value);
        carry += old + value < old;
    }
}

KERNEL(norm2, struct cuda_norm2_args, NORM2_THREADS)
{
    SHARED(struct norm2_shared, s);
    uint64_t own[3] = {0, 0, 0};
    for (int64_t i = FIRST; i < args->count; i += STEP) {
        const double x = (double)args->x[i];
        if (fabs(x) < 0x1p60)
            limbs_add_integer(own, rint(x * x * 0x1p62));
        else
            atomic_or_u32(args->flag, 1);
    }
    UNROLL
    for (int l = 0; l < 3; l++)
        s->limbs[THREAD][l] = own[l];
    for (int width = THREADS / 2; width > 0; width /= 2) {
        block_barrier();
        if (THREAD < width)
            for (int l = 0; l < 3; l++)
                limbs_add_at(s->limbs[THREAD], l, s->limbs[THREAD + width][l]);
    }
    if (THREAD == 0)
        limbs_add_shared(args->limbs, s->limbs[0]);
}

/* ---- the optimizer: each line one rounding, or an fma ---- */

KERNEL(adam, struct cuda_adam_args, 256)
{
    const float multiplier = args->control != 0 ? args->control[1] : 1.0f;
    if (args->control != 0 && args->control[2] != 0)
        return;
    for (int64_t i = FIRST; i < args->count; i += STEP) {
        float p = args->param[i], g = args->grad[i] * multiplier;
        if (!args->decoupled)
            g = v1_fma(args->weight_decay, p, g);
        const float m = v1_fma(args->beta1, args->exp_avg[i], args->rest1 * g);
        const float square = g * g;
        const float v = v1_fma(args->beta2, args->exp_avg_sq[i], args->rest2 * square);
        float d = v1_sqrt(v) * args->inv_sqrt_c2;
        d = d + args->eps;
        if (args->decoupled)
            p = v1_fma(args->decay, p, p);
        float u = m / d;
        u = args->step_size * u;
        p = p - u;
        args->param[i] = p;
        args->exp_avg[i] = m;
        args->exp_avg_sq[i] = v;
        if (args->low != 0)
            store_as(args->low, i, p, args->low_dtype);
    }
}
