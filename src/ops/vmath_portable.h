/* vmath_portable - sixteen lanes as arrays, for every machine. Included by vmath.h, which says what
 * each operation means. */
#ifndef SHOALI_OPS_VMATH_PORTABLE_H
#define SHOALI_OPS_VMATH_PORTABLE_H

#include "ops/vmath_scalar.h"

typedef struct {
    v1 lane[16];
} v16;
typedef struct {
    v1i lane[16];
} v16i;
typedef struct {
    v1m lane[16];
} v16m;

/* Functions that do f to each lane of their operands. */
#define SHOALI_LANES(result, name, parameters, x) \
    SHOALI_V result name parameters               \
    {                                             \
        result r;                                 \
        for (int j = 0; j < 16; j++)              \
            r.lane[j] = x;                        \
        return r;                                 \
    }
#define SHOALI_LANES_UNARY(result, name, type, f) SHOALI_LANES(result, name, (type a), f(a.lane[j]))
#define SHOALI_LANES_BINARY(result, name, type, f) \
    SHOALI_LANES(result, name, (type a, type b), f(a.lane[j], b.lane[j]))
#define SHOALI_LANES_TERNARY(result, name, type, f) \
    SHOALI_LANES(result, name, (type a, type b, type c), f(a.lane[j], b.lane[j], c.lane[j]))

SHOALI_LANES(v16, v16_set1, (float x), x)
SHOALI_LANES_BINARY(v16, v16_add, v16, v1_add)
SHOALI_LANES_BINARY(v16, v16_sub, v16, v1_sub)
SHOALI_LANES_BINARY(v16, v16_mul, v16, v1_mul)
SHOALI_LANES_BINARY(v16, v16_div, v16, v1_div)
SHOALI_LANES_TERNARY(v16, v16_fma, v16, v1_fma)
SHOALI_LANES_TERNARY(v16, v16_fnma, v16, v1_fnma)
SHOALI_LANES_UNARY(v16, v16_sqrt, v16, v1_sqrt)
SHOALI_LANES_BINARY(v16, v16_min, v16, v1_min)
SHOALI_LANES_BINARY(v16, v16_max, v16, v1_max)
SHOALI_LANES_UNARY(v16, v16_abs, v16, v1_abs)
SHOALI_LANES_UNARY(v16, v16_neg, v16, v1_neg)
SHOALI_LANES_BINARY(v16, v16_copysign, v16, v1_copysign)
SHOALI_LANES_UNARY(v16, v16_floor, v16, v1_floor)
SHOALI_LANES_UNARY(v16, v16_rint, v16, v1_rint)
SHOALI_LANES_BINARY(v16m, v16_lt, v16, v1_lt)
SHOALI_LANES_BINARY(v16m, v16_le, v16, v1_le)
SHOALI_LANES_BINARY(v16m, v16_eq, v16, v1_eq)
SHOALI_LANES_UNARY(v16m, v16_isnan, v16, v1_isnan)
SHOALI_LANES(v16, v16_select, (v16m m, v16 a, v16 b), m.lane[j] ? a.lane[j] : b.lane[j])
SHOALI_LANES_UNARY(v16i, v16_bits, v16, v1_bits)
SHOALI_LANES_UNARY(v16, v16_from_bits, v16i, v1_from_bits)
SHOALI_LANES_UNARY(v16, v16_from_int, v16i, v1_from_int)
SHOALI_LANES(v16i, v16i_set1, (uint32_t x), x)
/* 0, 1, ..., 15 */
SHOALI_LANES(v16i, v16i_iota, (void), (v1i)j)
SHOALI_LANES_BINARY(v16i, v16i_add, v16i, v1i_add)
SHOALI_LANES_BINARY(v16i, v16i_sub, v16i, v1i_sub)
SHOALI_LANES_BINARY(v16i, v16i_and, v16i, v1i_and)
SHOALI_LANES_BINARY(v16i, v16i_or, v16i, v1i_or)
SHOALI_LANES_BINARY(v16i, v16i_xor, v16i, v1i_xor)
SHOALI_LANES(v16i, v16i_shl, (v16i a, int n), v1i_shl(a.lane[j], n))
SHOALI_LANES(v16i, v16i_shr, (v16i a, int n), v1i_shr(a.lane[j], n))
SHOALI_LANES(v16i, v16i_sar, (v16i a, int n), v1i_sar(a.lane[j], n))
SHOALI_LANES_BINARY(v16m, v16i_geu, v16i, v1i_geu)
SHOALI_LANES(v16, v16_pick, (const float *table, v16i i), v1_pick(table, i.lane[j]))
SHOALI_LANES(v16i, v16i_select, (v16m m, v16i a, v16i b), m.lane[j] ? a.lane[j] : b.lane[j])
/* Upper and lower words of the 64-bit products. */
SHOALI_V void v16i_mul_wide(v16i a, uint32_t b, v16i *high, v16i *low)
{
    for (int j = 0; j < 16; j++) {
        const uint64_t product = (uint64_t)a.lane[j] * b;
        high->lane[j] = (v1i)(product >> 32);
        low->lane[j] = (v1i)product;
    }
}
SHOALI_V void v16i_store(uint32_t *p, v16i x)
{
    memcpy(p, x.lane, sizeof x.lane);
}
/* The first n lanes true. */
SHOALI_LANES(v16m, v16m_first, (int64_t n), j < n)
SHOALI_LANES(v16m, v16m_and, (v16m a, v16m b), a.lane[j] && b.lane[j])
SHOALI_LANES(v16m, v16m_or, (v16m a, v16m b), a.lane[j] || b.lane[j])
SHOALI_LANES(v16m, v16m_not, (v16m a), !a.lane[j])
/* Lane j's truth as bit j, and back. */
SHOALI_V uint32_t v16m_bits(v16m a)
{
    uint32_t bits = 0;
    for (int j = 0; j < 16; j++)
        bits |= (uint32_t)(a.lane[j] ? 1 : 0) << j;
    return bits;
}
SHOALI_LANES(v16m, v16m_from_bits, (uint32_t bits), (bits >> j & 1) != 0)
SHOALI_V bool v16m_any(v16m a)
{
    bool any = false;
    for (int j = 0; j < 16; j++)
        any = any || a.lane[j];
    return any;
}
SHOALI_LANES(v16, v16_load, (const float *p), p[j])
SHOALI_LANES(v16, v16_load_n, (const float *p, int64_t n), j < n ? p[j] : 0.0f)
SHOALI_V void v16_store(float *p, v16 x)
{
    for (int j = 0; j < 16; j++)
        p[j] = x.lane[j];
}
SHOALI_V void v16_store_n(float *p, int64_t n, v16 x)
{
    for (int j = 0; j < 16 && j < n; j++)
        p[j] = x.lane[j];
}
SHOALI_LANES(v16, v16_load_bf16, (const uint16_t *p), shoali_bf16_to_f32(p[j]))
SHOALI_V void v16_store_bf16(uint16_t *p, v16 x)
{
    for (int j = 0; j < 16; j++)
        p[j] = shoali_f32_to_bf16(x.lane[j]);
}
SHOALI_LANES(v16, v16_load_f16, (const uint16_t *p), shoali_f16_to_f32(p[j]))
SHOALI_V void v16_store_f16(uint16_t *p, v16 x)
{
    for (int j = 0; j < 16; j++)
        p[j] = shoali_f32_to_f16(x.lane[j]);
}
/* The end of the lane order. */
SHOALI_V float v16_sum(v16 x)
{
    for (int width = 8; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            x.lane[j] += x.lane[j + width];
    return x.lane[0];
}
/* Largest lane; NaN lanes may or may not count. */
SHOALI_V float v16_largest(v16 x)
{
    for (int width = 8; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            x.lane[j] = v1_max(x.lane[j], x.lane[j + width]);
    return x.lane[0];
}

#include "ops/vmath_partial.h"

#endif
