/* copy - moving, converting and filling: the kernels that also know integers. */
#include "ops/ref/ref.h"
#include "ops/scalars.h"

static bool is_float(shoal_dtype dtype)
{
    return dtype == SHOAL_F32 || dtype == SHOAL_BF16 || dtype == SHOAL_F16 || dtype == SHOAL_F64;
}

void shoali_ref_copy_strided(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_copy_strided_args *a = args;
    const size_t bytes = shoal_dtype_bytes(a->dtype);
    int64_t total = 1;
    for (int32_t d = 0; d < a->ndim; d++)
        total *= a->dim[d];
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i, from = 0, to = 0;
        for (int32_t d = a->ndim - 1; d >= 0; d--) {
            from += rest % a->dim[d] * a->x_stride[d];
            to += rest % a->dim[d] * a->y_stride[d];
            rest /= a->dim[d];
        }
        if (!a->accumulate)
            memcpy((char *)a->y + (size_t)to * bytes, (const char *)a->x + (size_t)from * bytes,
                   bytes);
        else if (a->dtype == SHOAL_F64)
            ((double *)a->y)[to] += ((const double *)a->x)[from];
        else
            store_f32(a->y, to, load_f32(a->y, to, a->dtype) + load_f32(a->x, from, a->dtype),
                      a->dtype);
    }
}

/* Nearest even integer; beyond the type's range its nearest value; NaN gives 0. */
static int64_t int_from_f64(double x, shoal_dtype dtype)
{
    const double low = dtype == SHOAL_I64 ? -0x1p63 : dtype == SHOAL_I32 ? -0x1p31 : 0.0;
    const double end = dtype == SHOAL_I64 ? 0x1p63 : dtype == SHOAL_I32 ? 0x1p31 : 0x1p8;
    const int64_t largest = dtype == SHOAL_I64   ? INT64_MAX
                            : dtype == SHOAL_I32 ? INT32_MAX
                                                 : UINT8_MAX;
    const double rounded = rint(x);
    if (isnan(x))
        return 0;
    if (rounded >= end)
        return largest;
    return (int64_t)(rounded < low ? low : rounded);
}
/* An int64 as a double that rounds to every narrower type as the integer itself would: what does
 * not fit is halved with the lost bits kept in the last one. */
static double f64_from_int(int64_t x)
{
    const bool negative = x < 0;
    uint64_t magnitude = negative ? 0 - (uint64_t)x : (uint64_t)x;
    double scale = negative ? -1.0 : 1.0;
    while (magnitude >= (uint64_t)1 << 52) {
        magnitude = (magnitude >> 1) | (magnitude & 1);
        scale *= 2;
    }
    return (double)magnitude * scale;
}

void shoali_ref_convert(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_convert_args *a = args;
    const bool from_float = is_float(a->dtype), to_float = is_float(a->dtype_out);
    for (int64_t i = 0; i < a->count; i++) {
        if (from_float && to_float)
            store_f64(a->y, i, load_f64(a->x, i, a->dtype), a->dtype_out);
        else if (from_float)
            store_int(a->y, i, int_from_f64(load_f64(a->x, i, a->dtype), a->dtype_out),
                      a->dtype_out);
        else if (!to_float)
            store_int(a->y, i, load_int(a->x, i, a->dtype), a->dtype_out);
        else if (a->dtype_out == SHOAL_F64)
            ((double *)a->y)[i] = (double)load_int(a->x, i, a->dtype);
        else
            store_f64(a->y, i, f64_from_int(load_int(a->x, i, a->dtype)), a->dtype_out);
    }
}

void shoali_ref_set(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_set_args *a = args;
    for (int64_t i = 0; i < a->count; i++) {
        if (is_float(a->dtype))
            store_f64(a->y, i, a->value, a->dtype);
        else
            store_int(a->y, i, int_from_f64(a->value, a->dtype), a->dtype);
    }
}

void shoali_ref_random_fill(const void *args, const struct shoali_kernel_context *context)
{
    (void)context;
    const struct shoali_random_fill_args *a = args;
    for (int64_t i = 0; i < a->count; i++) {
        int64_t length;
        const int64_t at = shoali_runs_at(&a->runs, i, &length);
        const uint64_t index = (uint64_t)a->first_element + (uint64_t)at;
        double v;
        if (a->uniform)
            v = a->a + (a->b - a->a) * (double)shoali_random_uniform(&a->random, index);
        else
            v = a->a + a->b * shoali_random_normal(&a->random, index);
        store_f64(a->y, i, v, a->dtype);
    }
}
