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

SHOALI_V v16 v16_set1(float x)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = x;
    return r;
}
SHOALI_V v16 v16_add(v16 a, v16 b)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_add(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16 v16_sub(v16 a, v16 b)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_sub(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16 v16_mul(v16 a, v16 b)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_mul(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16 v16_div(v16 a, v16 b)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_div(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16 v16_fma(v16 a, v16 b, v16 c)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_fma(a.lane[j], b.lane[j], c.lane[j]);
    return r;
}
SHOALI_V v16 v16_fnma(v16 a, v16 b, v16 c)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_fnma(a.lane[j], b.lane[j], c.lane[j]);
    return r;
}
SHOALI_V v16 v16_sqrt(v16 a)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_sqrt(a.lane[j]);
    return r;
}
SHOALI_V v16 v16_min(v16 a, v16 b)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_min(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16 v16_max(v16 a, v16 b)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_max(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16 v16_abs(v16 a)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_abs(a.lane[j]);
    return r;
}
SHOALI_V v16 v16_neg(v16 a)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_neg(a.lane[j]);
    return r;
}
SHOALI_V v16 v16_copysign(v16 a, v16 b)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_copysign(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16 v16_floor(v16 a)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_floor(a.lane[j]);
    return r;
}
SHOALI_V v16 v16_rint(v16 a)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_rint(a.lane[j]);
    return r;
}
SHOALI_V v16m v16_lt(v16 a, v16 b)
{
    v16m r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_lt(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16m v16_le(v16 a, v16 b)
{
    v16m r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_le(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16m v16_eq(v16 a, v16 b)
{
    v16m r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_eq(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16m v16_isnan(v16 a)
{
    v16m r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_isnan(a.lane[j]);
    return r;
}
SHOALI_V v16 v16_select(v16m m, v16 a, v16 b)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = m.lane[j] ? a.lane[j] : b.lane[j];
    return r;
}
SHOALI_V v16i v16_bits(v16 a)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_bits(a.lane[j]);
    return r;
}
SHOALI_V v16 v16_from_bits(v16i a)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_from_bits(a.lane[j]);
    return r;
}
SHOALI_V v16 v16_from_int(v16i a)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_from_int(a.lane[j]);
    return r;
}
SHOALI_V v16i v16i_set1(uint32_t x)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = x;
    return r;
}
/* 0, 1, ..., 15 */
SHOALI_V v16i v16i_iota(void)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = (v1i)j;
    return r;
}
SHOALI_V v16i v16i_add(v16i a, v16i b)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1i_add(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16i v16i_sub(v16i a, v16i b)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1i_sub(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16i v16i_and(v16i a, v16i b)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1i_and(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16i v16i_or(v16i a, v16i b)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1i_or(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16i v16i_xor(v16i a, v16i b)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1i_xor(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16i v16i_shl(v16i a, int n)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1i_shl(a.lane[j], n);
    return r;
}
SHOALI_V v16i v16i_shr(v16i a, int n)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1i_shr(a.lane[j], n);
    return r;
}
SHOALI_V v16i v16i_sar(v16i a, int n)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1i_sar(a.lane[j], n);
    return r;
}
SHOALI_V v16m v16i_geu(v16i a, v16i b)
{
    v16m r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1i_geu(a.lane[j], b.lane[j]);
    return r;
}
SHOALI_V v16 v16_pick(const float *table, v16i i)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = v1_pick(table, i.lane[j]);
    return r;
}
SHOALI_V v16i v16i_select(v16m m, v16i a, v16i b)
{
    v16i r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = m.lane[j] ? a.lane[j] : b.lane[j];
    return r;
}
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
SHOALI_V v16m v16m_first(int64_t n)
{
    v16m r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = j < n;
    return r;
}
SHOALI_V v16m v16m_and(v16m a, v16m b)
{
    v16m r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = a.lane[j] && b.lane[j];
    return r;
}
SHOALI_V v16m v16m_or(v16m a, v16m b)
{
    v16m r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = a.lane[j] || b.lane[j];
    return r;
}
SHOALI_V v16m v16m_not(v16m a)
{
    v16m r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = !a.lane[j];
    return r;
}
/* Lane j's truth as bit j, and back. */
SHOALI_V uint32_t v16m_bits(v16m a)
{
    uint32_t bits = 0;
    for (int j = 0; j < 16; j++)
        bits |= (uint32_t)(a.lane[j] ? 1 : 0) << j;
    return bits;
}
SHOALI_V v16m v16m_from_bits(uint32_t bits)
{
    v16m r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = (bits >> j & 1) != 0;
    return r;
}
SHOALI_V bool v16m_any(v16m a)
{
    bool any = false;
    for (int j = 0; j < 16; j++)
        any = any || a.lane[j];
    return any;
}
SHOALI_V v16 v16_load(const float *p)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = p[j];
    return r;
}
SHOALI_V v16 v16_load_n(const float *p, int64_t n)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = j < n ? p[j] : 0.0f;
    return r;
}
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
SHOALI_V v16 v16_load_bf16(const uint16_t *p)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = shoali_bf16_to_f32(p[j]);
    return r;
}
SHOALI_V v16 v16_load_bf16_n(const uint16_t *p, int64_t n)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = j < n ? shoali_bf16_to_f32(p[j]) : 0.0f;
    return r;
}
SHOALI_V void v16_store_bf16(uint16_t *p, v16 x)
{
    for (int j = 0; j < 16; j++)
        p[j] = shoali_f32_to_bf16(x.lane[j]);
}
SHOALI_V void v16_store_bf16_n(uint16_t *p, int64_t n, v16 x)
{
    for (int j = 0; j < 16 && j < n; j++)
        p[j] = shoali_f32_to_bf16(x.lane[j]);
}
SHOALI_V v16 v16_load_f16(const uint16_t *p)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = shoali_f16_to_f32(p[j]);
    return r;
}
SHOALI_V v16 v16_load_f16_n(const uint16_t *p, int64_t n)
{
    v16 r;
    for (int j = 0; j < 16; j++)
        r.lane[j] = j < n ? shoali_f16_to_f32(p[j]) : 0.0f;
    return r;
}
SHOALI_V void v16_store_f16(uint16_t *p, v16 x)
{
    for (int j = 0; j < 16; j++)
        p[j] = shoali_f32_to_f16(x.lane[j]);
}
SHOALI_V void v16_store_f16_n(uint16_t *p, int64_t n, v16 x)
{
    for (int j = 0; j < 16 && j < n; j++)
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

#endif
