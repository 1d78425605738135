/* scalars - the functions of ops/vmath.h and the rules of ops.h for float and for double. */
#ifndef SHOALI_OPS_SCALARS_H
#define SHOALI_OPS_SCALARS_H

#include "base/mathx.h"
#include "ops/ops.h"
#include "ops/storage.h"

#include <math.h>

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
    return shoali_random_dense_u32(random, index) >= shoali_dropout_threshold(probability);
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
