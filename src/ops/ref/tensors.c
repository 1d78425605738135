/* tensors - sums over whole tensors, and the updates that read what follows from them. Each line is
 * one rounding, or an fma: the order of ops_flat.h. */
#include "ops/limbs.h"
#include "ops/ref/ref.h"
#include "ops/scalars.h"

static float multiplier_of(const float *control)
{
    return control != NULL ? control[1] : 1.0f;
}
static bool skips(const float *control)
{
    return control != NULL && control[2] != 0;
}

static int64_t column_of(int64_t element, int64_t rows, int64_t columns)
{
    return element / (rows * columns) * columns + element % columns;
}

void shoali_ref_square_sums(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_square_sums_args *a = args;
    const float multiplier = multiplier_of(a->control);
    if (skips(a->control))
        return;
    for (int64_t i = 0; i < a->count; i++) {
        const int64_t element = a->first + i;
        const float x = a->x[i] * multiplier;
        if (a->tensor != NULL)
            limbs_add_term(a->tensor, x);
        if (a->row != NULL)
            limbs_add_term(a->row + 3 * (element / a->columns), x);
        if (a->column != NULL)
            limbs_add_term(a->column + 3 * column_of(element, a->rows, a->columns), x);
    }
}

/* ---- LAMB ---- */

static float lamb_update(float p, float m, float v, float eps, int32_t eps_inside,
                         float weight_decay)
{
    float d = eps_inside ? v + eps : v;
    d = sqrtf(d);
    if (!eps_inside)
        d = d + eps;
    const float u = m / d;
    return fmaf(weight_decay, p, u);
}

void shoali_ref_lamb(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_lamb_args *a = args;
    const float multiplier = multiplier_of(a->control);
    const float rest1 = 1.0f - a->beta1, rest2 = 1.0f - a->beta2;
    if (skips(a->control))
        return;
    for (int64_t i = 0; i < a->count; i++) {
        const float p = a->param[i];
        const float g = a->grad[i] * multiplier;
        const float m = fmaf(a->beta1, a->exp_avg[i], rest1 * g);
        const float square = g * g;
        const float v = fmaf(a->beta2, a->exp_avg_sq[i], rest2 * square);
        a->exp_avg[i] = m;
        a->exp_avg_sq[i] = v;
        limbs_add_term(a->param_sum, p);
        limbs_add_term(a->update_sum, lamb_update(p, m, v, a->eps, a->eps_inside, a->weight_decay));
    }
}

void shoali_ref_lamb_apply(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_lamb_apply_args *a = args;
    if (skips(a->control))
        return;
    for (int64_t i = 0; i < a->count; i++) {
        float p = a->param[i];
        const float u =
            lamb_update(p, a->exp_avg[i], a->exp_avg_sq[i], a->eps, a->eps_inside, a->weight_decay);
        p = fmaf(-a->factor[0], u, p);
        a->param[i] = p;
        if (a->low != NULL)
            store_f32(a->low, i, p, a->low_dtype);
    }
}

/* ---- Adafactor ---- */

static float adafactor_update(float g, float row, float column, float floor)
{
    float v = row * column;
    v = v < floor ? floor : v;
    return g / sqrtf(v);
}

void shoali_ref_adafactor(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_adafactor_args *a = args;
    const float multiplier = multiplier_of(a->control);
    if (skips(a->control))
        return;
    for (int64_t i = 0; i < a->count; i++) {
        const int64_t element = a->first + i;
        const float column =
            a->column != NULL ? a->column[column_of(element, a->rows, a->columns)] : 1.0f;
        limbs_add_term(a->sum, adafactor_update(a->grad[i] * multiplier,
                                                a->row[element / a->columns], column, a->floor));
    }
}

void shoali_ref_adafactor_apply(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_adafactor_apply_args *a = args;
    const float multiplier = multiplier_of(a->control);
    if (skips(a->control))
        return;
    for (int64_t i = 0; i < a->count; i++) {
        const int64_t element = a->first + i;
        const float column =
            a->column != NULL ? a->column[column_of(element, a->rows, a->columns)] : 1.0f;
        const float u = adafactor_update(a->grad[i] * multiplier, a->row[element / a->columns],
                                         column, a->floor);
        float p = a->param[i];
        p = fmaf(-a->decay, p, p);
        p = fmaf(-a->factor[0], u, p);
        a->param[i] = p;
        if (a->low != NULL)
            store_f32(a->low, i, p, a->low_dtype);
    }
}
