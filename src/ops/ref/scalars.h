/* scalars - elements of arrays as float or double, and the functions of ops/vmath.h for both. */
#ifndef SHOALI_OPS_REF_SCALARS_H
#define SHOALI_OPS_REF_SCALARS_H

#include "base/mathx.h"
#include "ops/ref/ref.h"
#include "ops/vmath.h"

#include <math.h>

/* Element i of a float array as float: F32, BF16, F16. */
static inline float load_f32(const void *array, int64_t i, shoal_dtype dtype)
{
    if (dtype == SHOAL_F32)
        return ((const float *)array)[i];
    const uint16_t x = ((const uint16_t *)array)[i];
    return dtype == SHOAL_BF16 ? shoali_bf16_to_f32(x) : shoali_f16_to_f32(x);
}
static inline double load_f64(const void *array, int64_t i, shoal_dtype dtype)
{
    return dtype == SHOAL_F64 ? ((const double *)array)[i] : (double)load_f32(array, i, dtype);
}
static inline void store_f32(void *array, int64_t i, float x, shoal_dtype dtype)
{
    if (dtype == SHOAL_F32)
        ((float *)array)[i] = x;
    else if (dtype == SHOAL_BF16)
        ((uint16_t *)array)[i] = shoali_f32_to_bf16(x);
    else
        ((uint16_t *)array)[i] = shoali_f32_to_f16(x);
}
/* The float next to x towards 0 with its last bit set when x is not exact: rounding that again to
 * 16 bits gives what one rounding from double would. */
static inline float round_to_odd(double x)
{
    float f = (float)x;
    if ((double)f == x || isnan(x))
        return f;
    uint32_t bits = v1_bits(f);
    if (fabs((double)f) > fabs(x))
        bits--;
    return v1_from_bits(bits | 1u);
}
/* Rounds once, to nearest even. */
static inline void store_f64(void *array, int64_t i, double x, shoal_dtype dtype)
{
    if (dtype == SHOAL_F64)
        ((double *)array)[i] = x;
    else
        store_f32(array, i, dtype == SHOAL_F32 ? (float)x : round_to_odd(x), dtype);
}

/* Element i of an array of I32, I64 or U8. */
static inline int64_t load_int(const void *array, int64_t i, shoal_dtype dtype)
{
    if (dtype == SHOAL_I64)
        return ((const int64_t *)array)[i];
    return dtype == SHOAL_I32 ? ((const int32_t *)array)[i] : ((const uint8_t *)array)[i];
}
/* Integers wrap, as a C conversion does. */
static inline void store_int(void *array, int64_t i, int64_t x, shoal_dtype dtype)
{
    if (dtype == SHOAL_I64)
        ((int64_t *)array)[i] = x;
    else if (dtype == SHOAL_I32)
        ((int32_t *)array)[i] = (int32_t)x;
    else
        ((uint8_t *)array)[i] = (uint8_t)x;
}

static inline float fma_f32(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double fma_f64(double a, double b, double c)
{
    return fma(a, b, c);
}
static inline float sqrt_f32(float x)
{
    return sqrtf(x);
}
static inline double sqrt_f64(double x)
{
    return sqrt(x);
}
static inline float exp_f32(float x)
{
    return v1_exp(x);
}
static inline double exp_f64(double x)
{
    return shoali_exp(x);
}
static inline float log_f32(float x)
{
    return v1_log(x);
}
static inline double log_f64(double x)
{
    return shoali_ln(x);
}
static inline float max_f32(float a, float b)
{
    return v1_max(a, b);
}
static inline double max_f64(double a, double b)
{
    return a > b ? a : b;
}

/* f(x) and f'(x) of an element-wise function; alpha for the two that have it. */
float shoali_ref_function_f32(enum shoali_unary kind, float x, float alpha);
float shoali_ref_derivative_f32(enum shoali_unary kind, float x, float alpha);
double shoali_ref_function_f64(enum shoali_unary kind, double x, double alpha);
double shoali_ref_derivative_f64(enum shoali_unary kind, double x, double alpha);
static inline float function_f32(enum shoali_unary kind, float x, float alpha)
{
    return shoali_ref_function_f32(kind, x, alpha);
}
static inline double function_f64(enum shoali_unary kind, double x, double alpha)
{
    return shoali_ref_function_f64(kind, x, alpha);
}

/* The end of the lane order. */
static inline float lane_total_f32(float partial[16])
{
    for (int width = 8; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            partial[j] += partial[j + width];
    return partial[0];
}
static inline double lane_total_f64(double partial[16])
{
    for (int width = 8; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            partial[j] += partial[j + width];
    return partial[0];
}

/* Whether a dropout mask keeps the element, and what it is then multiplied by. */
static inline bool dropout_keeps(const struct shoali_stream *random, uint64_t index,
                                 float probability)
{
    return shoali_random_u32(random, index) >= shoali_dropout_threshold(probability);
}
static inline float dropout_scale_f32(float probability)
{
    return (float)(1.0 / (1.0 - (double)probability));
}
static inline double dropout_scale_f64(float probability)
{
    return 1.0 / (1.0 - (double)probability);
}

#endif
