/* storage - elements of arrays, widened to float, double or int64 and rounded back; for kernels
 * that go one element at a time. */
#ifndef SHOALI_OPS_STORAGE_H
#define SHOALI_OPS_STORAGE_H

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

#endif
