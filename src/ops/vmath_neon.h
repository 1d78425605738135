/* vmath_neon - sixteen lanes in four registers of Advanced SIMD (AArch64's base). Included by
 * vmath.h, which says what each operation means. */
#ifndef SHOALI_OPS_VMATH_NEON_H
#define SHOALI_OPS_VMATH_NEON_H

#include "ops/vmath_scalar.h"

#include <arm_neon.h>

/* Members, not arrays: those would live in memory. Lanes 0 .. 3 are in a, 4 .. 7 in b, and so
 * on. */
typedef struct {
    float32x4_t a, b, c, d;
} v16;
typedef struct {
    uint32x4_t a, b, c, d;
} v16i;
typedef struct {
    uint32x4_t a, b, c, d; /* all bits of a lane set: true */
} v16m;

/* One intrinsic on each of the four registers of one, two or three operands. */
#define SHOALI_NEON_1(type, f, x) ((type){f((x).a), f((x).b), f((x).c), f((x).d)})
#define SHOALI_NEON_2(type, f, x, y) \
    ((type){f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d)})
#define SHOALI_NEON_3(type, f, x, y, z)                                             \
    ((type){f((x).a, (y).a, (z).a), f((x).b, (y).b, (z).b), f((x).c, (y).c, (z).c), \
            f((x).d, (y).d, (z).d)})
/* Functions of that kind. */
#define SHOALI_QUARTERS_UNARY(result, name, type, f) \
    SHOALI_UNARY(result, name, type, SHOALI_NEON_1(result, f, a))
#define SHOALI_QUARTERS_BINARY(result, name, type, f) \
    SHOALI_BINARY(result, name, type, SHOALI_NEON_2(result, f, a, b))

SHOALI_V v16 v16_set1(float x)
{
    const float32x4_t four = vdupq_n_f32(x);
    return (v16){four, four, four, four};
}
SHOALI_QUARTERS_BINARY(v16, v16_add, v16, vaddq_f32)
SHOALI_QUARTERS_BINARY(v16, v16_sub, v16, vsubq_f32)
SHOALI_QUARTERS_BINARY(v16, v16_mul, v16, vmulq_f32)
SHOALI_QUARTERS_BINARY(v16, v16_div, v16, vdivq_f32)
/* FMLA and FMLS add to their first operand. */
SHOALI_TERNARY(v16, v16_fma, v16, SHOALI_NEON_3(v16, vfmaq_f32, c, a, b))
SHOALI_TERNARY(v16, v16_fnma, v16, SHOALI_NEON_3(v16, vfmsq_f32, c, a, b))
SHOALI_QUARTERS_UNARY(v16, v16_sqrt, v16, vsqrtq_f32)
SHOALI_QUARTERS_UNARY(v16, v16_abs, v16, vabsq_f32)
SHOALI_QUARTERS_UNARY(v16, v16_neg, v16, vnegq_f32)
SHOALI_QUARTERS_UNARY(v16, v16_floor, v16, vrndmq_f32)
SHOALI_QUARTERS_UNARY(v16, v16_rint, v16, vrndnq_f32)
SHOALI_QUARTERS_BINARY(v16m, v16_lt, v16, vcltq_f32)
SHOALI_QUARTERS_BINARY(v16m, v16_le, v16, vcleq_f32)
SHOALI_QUARTERS_BINARY(v16m, v16_eq, v16, vceqq_f32)
SHOALI_QUARTERS_BINARY(v16m, v16m_and, v16m, vandq_u32)
SHOALI_QUARTERS_BINARY(v16m, v16m_or, v16m, vorrq_u32)
SHOALI_QUARTERS_UNARY(v16m, v16m_not, v16m, vmvnq_u32)
SHOALI_UNARY(v16m, v16_isnan, v16, v16m_not(v16_eq(a, a)))
SHOALI_V v16 v16_select(v16m m, v16 a, v16 b)
{
    return SHOALI_NEON_3(v16, vbslq_f32, m, a, b);
}
/* FMIN and FMAX treat NaNs and zeros in another way. */
SHOALI_BINARY(v16, v16_min, v16, v16_select(v16_lt(a, b), a, b))
SHOALI_BINARY(v16, v16_max, v16, v16_select(v16_lt(b, a), a, b))
SHOALI_QUARTERS_UNARY(v16i, v16_bits, v16, vreinterpretq_u32_f32)
SHOALI_QUARTERS_UNARY(v16, v16_from_bits, v16i, vreinterpretq_f32_u32)
SHOALI_UNARY(float32x4_t, v16_four_from_int, uint32x4_t, vcvtq_f32_s32(vreinterpretq_s32_u32(a)))
SHOALI_QUARTERS_UNARY(v16, v16_from_int, v16i, v16_four_from_int)
SHOALI_V v16i v16i_set1(uint32_t x)
{
    const uint32x4_t four = vdupq_n_u32(x);
    return (v16i){four, four, four, four};
}
SHOALI_V v16 v16_copysign(v16 a, v16 b)
{
    const uint32x4_t sign = vdupq_n_u32(0x80000000u);
    return v16_select((v16m){sign, sign, sign, sign}, b, a);
}
SHOALI_V v16i v16i_iota(void)
{
    static const uint32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (v16i){vld1q_u32(lanes), vld1q_u32(lanes + 4), vld1q_u32(lanes + 8),
                  vld1q_u32(lanes + 12)};
}
SHOALI_QUARTERS_BINARY(v16i, v16i_add, v16i, vaddq_u32)
SHOALI_QUARTERS_BINARY(v16i, v16i_sub, v16i, vsubq_u32)
SHOALI_QUARTERS_BINARY(v16i, v16i_and, v16i, vandq_u32)
SHOALI_QUARTERS_BINARY(v16i, v16i_or, v16i, vorrq_u32)
SHOALI_QUARTERS_BINARY(v16i, v16i_xor, v16i, veorq_u32)
/* Operators: the intrinsics with an immediate take none that a function was called with. */
SHOALI_V v16i v16i_shl(v16i a, int n)
{
    return (v16i){a.a << n, a.b << n, a.c << n, a.d << n};
}
SHOALI_V v16i v16i_shr(v16i a, int n)
{
    return (v16i){a.a >> n, a.b >> n, a.c >> n, a.d >> n};
}
SHOALI_V uint32x4_t v16i_four_sar(uint32x4_t a, int n)
{
    return vreinterpretq_u32_s32(vreinterpretq_s32_u32(a) >> n);
}
SHOALI_V v16i v16i_sar(v16i a, int n)
{
    return (v16i){v16i_four_sar(a.a, n), v16i_four_sar(a.b, n), v16i_four_sar(a.c, n),
                  v16i_four_sar(a.d, n)};
}
SHOALI_QUARTERS_BINARY(v16m, v16i_geu, v16i, vcgeq_u32)
SHOALI_V v16i v16i_select(v16m m, v16i a, v16i b)
{
    return SHOALI_NEON_3(v16i, vbslq_u32, m, a, b);
}
/* Four lookups of four bytes each in a table of 64. */
SHOALI_V float32x4_t v16_four_pick(uint8x16x4_t table, uint32x4_t i)
{
    const uint32x4_t first = vmulq_n_u32(vandq_u32(i, vdupq_n_u32(15)), 0x04040404u);
    const uint32x4_t bytes = vaddq_u32(first, vdupq_n_u32(0x03020100u));
    return vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_u32(bytes)));
}
SHOALI_V v16 v16_pick(const float *table, v16i i)
{
    const uint8x16x4_t bytes = {
        {vreinterpretq_u8_f32(vld1q_f32(table)), vreinterpretq_u8_f32(vld1q_f32(table + 4)),
         vreinterpretq_u8_f32(vld1q_f32(table + 8)), vreinterpretq_u8_f32(vld1q_f32(table + 12))}};
    return (v16){v16_four_pick(bytes, i.a), v16_four_pick(bytes, i.b), v16_four_pick(bytes, i.c),
                 v16_four_pick(bytes, i.d)};
}
SHOALI_V void v16i_four_mul_wide(uint32x4_t a, uint32_t b, uint32x4_t *high, uint32x4_t *low)
{
    const uint32x4_t first = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(a), b));
    const uint32x4_t last = vreinterpretq_u32_u64(vmull_high_n_u32(a, b));
    *high = vuzp2q_u32(first, last);
    *low = vuzp1q_u32(first, last);
}
SHOALI_V void v16i_mul_wide(v16i a, uint32_t b, v16i *high, v16i *low)
{
    v16i_four_mul_wide(a.a, b, &high->a, &low->a);
    v16i_four_mul_wide(a.b, b, &high->b, &low->b);
    v16i_four_mul_wide(a.c, b, &high->c, &low->c);
    v16i_four_mul_wide(a.d, b, &high->d, &low->d);
}
SHOALI_V void v16i_store(uint32_t *p, v16i x)
{
    vst1q_u32(p, x.a);
    vst1q_u32(p + 4, x.b);
    vst1q_u32(p + 8, x.c);
    vst1q_u32(p + 12, x.d);
}
SHOALI_V v16m v16m_first(int64_t n)
{
    return v16m_not(v16i_geu(v16i_iota(), v16i_set1((uint32_t)n)));
}
/* The bit of each lane. */
SHOALI_V v16i v16m_places(void)
{
    static const uint32_t bits[4] = {1, 2, 4, 8};
    const uint32x4_t first = vld1q_u32(bits);
    return (v16i){first, vshlq_n_u32(first, 4), vshlq_n_u32(first, 8), vshlq_n_u32(first, 12)};
}
/* Lane j's truth as bit j, and back. */
SHOALI_V uint32_t v16m_bits(v16m a)
{
    const v16i place = v16m_places();
    const v16i set = SHOALI_NEON_2(v16i, vandq_u32, a, place);
    return vaddvq_u32(vorrq_u32(vorrq_u32(set.a, set.b), vorrq_u32(set.c, set.d)));
}
SHOALI_V v16m v16m_from_bits(uint32_t bits)
{
    const v16i all = v16i_set1(bits), place = v16m_places();
    return SHOALI_NEON_2(v16m, vtstq_u32, all, place);
}
SHOALI_V bool v16m_any(v16m a)
{
    return vmaxvq_u32(vorrq_u32(vorrq_u32(a.a, a.b), vorrq_u32(a.c, a.d))) != 0;
}
SHOALI_V v16 v16_load(const float *p)
{
    return (v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
SHOALI_V void v16_store(float *p, v16 x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}

/* ---- 16-bit types ---- */

/* Eight of them, with zeros below: four and four. */
SHOALI_V void v16_widen_bf16(uint16x8_t x, float32x4_t *first, float32x4_t *last)
{
    const uint16x8_t zero = vdupq_n_u16(0);
    *first = vreinterpretq_f32_u16(vzip1q_u16(zero, x));
    *last = vreinterpretq_f32_u16(vzip2q_u16(zero, x));
}
SHOALI_V v16 v16_load_bf16(const uint16_t *p)
{
    v16 x;
    v16_widen_bf16(vld1q_u16(p), &x.a, &x.b);
    v16_widen_bf16(vld1q_u16(p + 8), &x.c, &x.d);
    return x;
}
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
/* BFCVTN rounds as tensor.h does, denormals and NaNs included. */
SHOALI_V uint16x8_t v16_narrow_bf16(float32x4_t first, float32x4_t last)
{
    const bfloat16x8_t half = vcvtq_low_bf16_f32(first);
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(half, last));
}
#else
/* The rounding of tensor.h, in integers. */
SHOALI_V uint16x4_t v16_four_narrow_bf16(float32x4_t x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint16x4_t upper = vshrn_n_u32(bits, 16);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint16x4_t number = vmovn_u32(vceqq_f32(x, x));
    return vbsl_u16(number, vshrn_n_u32(rounded, 16), vorr_u16(upper, vdup_n_u16(0x40)));
}
SHOALI_V uint16x8_t v16_narrow_bf16(float32x4_t first, float32x4_t last)
{
    return vcombine_u16(v16_four_narrow_bf16(first), v16_four_narrow_bf16(last));
}
#endif
SHOALI_V void v16_store_bf16(uint16_t *p, v16 x)
{
    vst1q_u16(p, v16_narrow_bf16(x.a, x.b));
    vst1q_u16(p + 8, v16_narrow_bf16(x.c, x.d));
}
SHOALI_V v16 v16_load_f16(const uint16_t *p)
{
    const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(p));
    const float16x8_t high = vreinterpretq_f16_u16(vld1q_u16(p + 8));
    return (v16){vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
                 vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)};
}
SHOALI_V void v16_store_f16(uint16_t *p, v16 x)
{
    const float16x8_t low = vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b);
    const float16x8_t high = vcvt_high_f16_f32(vcvt_f16_f32(x.c), x.d);
    vst1q_u16(p, vreinterpretq_u16_f16(low));
    vst1q_u16(p + 8, vreinterpretq_u16_f16(high));
}

/* ---- one result ---- */

SHOALI_V float v16_sum(v16 x)
{
    const float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
SHOALI_BINARY(float32x4_t, v16_four_max, float32x4_t, vbslq_f32(vcgtq_f32(a, b), a, b))
SHOALI_V float v16_largest(v16 x)
{
    const float32x4_t four = v16_four_max(v16_four_max(x.a, x.c), v16_four_max(x.b, x.d));
    const float32x4_t two = v16_four_max(four, vextq_f32(four, four, 2));
    return v1_max(vgetq_lane_f32(two, 0), vgetq_lane_f32(two, 1));
}

#include "ops/vmath_partial.h"
SHOALI_PARTIAL(float, v16_load, v16_store)

#endif
