/* emulated - what a tile instruction computes, in plain C: for machines without AMX, and where
 * there is no memory to pack for it.
 *
 * amx_plain_step is the definition, one element at a time, with the corner cases that the hardware
 * has. amx_emulated_multiply does 16 columns at once and leaves to the definition what vectors
 * cannot tell apart: infinities and NaNs, and a result of exactly 2^-126, which is tiny when it was
 * rounded up to that.
 */
#ifndef SHOALI_OPS_AMX_EMULATED_H
#define SHOALI_OPS_AMX_EMULATED_H

#include "ops/vmath.h"

#include <math.h>

struct amx_tile {
    uint8_t row[16][64];
};

static inline uint32_t amx_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float amx_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#define AMX_SIGN 0x80000000u
#define AMX_LEAST_NORMAL 0x00800000u /* 2^-126 */

static inline float amx_without_denormal(float x)
{
    const uint32_t bits = amx_bits(x);
    return (bits & ~AMX_SIGN) < AMX_LEAST_NORMAL ? amx_float(bits & AMX_SIGN) : x;
}
static inline float amx_widen(uint16_t x)
{
    return amx_without_denormal(amx_float((uint32_t)x << 16));
}

/* The first of the operands that is a NaN, made quiet; 0: none is. */
static inline uint32_t amx_nan_of(float x, float y, float z)
{
    const float of[3] = {x, y, z};
    for (int i = 0; i < 3; i++)
        if (isnan(of[i]))
            return amx_bits(of[i]) | 0x00400000u;
    return 0;
}
#define AMX_NEW_NAN 0xffc00000u /* of inf * 0 and inf - inf */

/* Whether x*y + z, which rounds to +-2^-126, lies so far below it that 24 bits with any exponent
 * would not reach it: less than 2^-126 (1 - 2^-25), the half way to the next such number. */
static inline bool amx_rounded_up(float x, float y, float z)
{
    const double product = (double)x * (double)y, c = (double)z, sum = product + c;
    const double back = sum - product;
    const double error = (product - (sum - back)) + (c - back); /* sum + error is exact */
    const double limit = 0x1p-126 * (1 - 0x1p-25);
    const double size = sum < 0 ? -sum : sum, rest = sum < 0 ? -error : error;
    return size < limit || (size == limit && rest < 0);
}

static inline float amx_fma(float x, float y, float z)
{
    const uint32_t nan = amx_nan_of(x, y, z);
    if (nan != 0)
        return amx_float(nan);
    const float r = fmaf(x, y, z);
    const uint32_t size = amx_bits(r) & ~AMX_SIGN;
    if (isnan(r))
        return amx_float(AMX_NEW_NAN);
    if (size == AMX_LEAST_NORMAL && amx_rounded_up(x, y, z))
        return amx_float(amx_bits(r) & AMX_SIGN);
    return amx_without_denormal(r);
}
static inline float amx_add(float x, float y)
{
    const uint32_t nan = amx_nan_of(x, y, 0);
    if (nan != 0)
        return amx_float(nan);
    const float r = x + y;
    return isnan(r) ? amx_float(AMX_NEW_NAN) : amx_without_denormal(r); /* exact where it is tiny */
}

/* One element, one step: c + sum of 32 products; a and b are the elements' bits, `b_pair` elements
 * from a pair of b to the next. */
static inline float amx_plain_step(float c, const uint16_t *a, const uint16_t *b, int64_t b_pair)
{
    float even = 0, odd = 0;
    for (int p = 0; p < 16; p++, a += 2, b += b_pair) {
        even = amx_fma(amx_widen(a[0]), amx_widen(b[0]), even);
        odd = amx_fma(amx_widen(a[1]), amx_widen(b[1]), odd);
    }
    return amx_add(amx_without_denormal(c), amx_add(even, odd));
}

/* ---- sixteen columns at once ---- */

static inline void amx_emulated_load(struct amx_tile *tile, int rows, const void *base,
                                     int64_t stride)
{
    memset(tile, 0, sizeof *tile);
    for (int r = 0; r < rows; r++)
        memcpy(tile->row[r], (const char *)base + r * stride, sizeof tile->row[r]);
}
static inline void amx_emulated_store(const struct amx_tile *tile, int rows, void *base,
                                      int64_t stride)
{
    for (int r = 0; r < rows; r++)
        memcpy((char *)base + r * stride, tile->row[r], sizeof tile->row[r]);
}

SHOALI_V v16 amx_flush(v16 x)
{
    const v16i bits = v16_bits(x), size = v16i_and(bits, v16i_set1(~AMX_SIGN));
    const v16 zero = v16_from_bits(v16i_and(bits, v16i_set1(AMX_SIGN)));
    return v16_select(v16i_geu(size, v16i_set1(AMX_LEAST_NORMAL)), x, zero);
}
/* Lanes of `kept` become 1 where the definition has to decide. */
SHOALI_V v16i amx_doubtful(v16 x, v16i kept)
{
    const v16i size = v16i_and(v16_bits(x), v16i_set1(~AMX_SIGN));
    const v16i above =
        v16i_select(v16i_geu(size, v16i_set1(AMX_LEAST_NORMAL + 1)), v16i_set1(0), v16i_set1(1));
    return v16i_or(kept,
                   v16i_select(v16i_geu(size, v16i_set1(AMX_LEAST_NORMAL)), above, v16i_set1(0)));
}
SHOALI_V v16i amx_not_finite(v16 x, v16i kept)
{
    const v16i size = v16i_and(v16_bits(x), v16i_set1(~AMX_SIGN));
    return v16i_or(kept,
                   v16i_select(v16i_geu(size, v16i_set1(0x7f800000u)), v16i_set1(1), v16i_set1(0)));
}

static inline void amx_emulated_row(float c[16], const uint8_t a[64], const struct amx_tile *b,
                                    const v16 b_even[16], const v16 b_odd[16])
{
    uint16_t of_a[32], of_b[512];
    uint32_t doubt[16], any = 0;
    v16 even = v16_set1(0.0f), odd = v16_set1(0.0f);
    v16i kept = v16i_set1(0);
    memcpy(of_a, a, sizeof of_a);
    for (int p = 0; p < 16; p++) {
        even = v16_fma(v16_set1(amx_widen(of_a[2 * p])), b_even[p], even);
        odd = v16_fma(v16_set1(amx_widen(of_a[2 * p + 1])), b_odd[p], odd);
        kept = amx_doubtful(even, amx_doubtful(odd, kept));
        even = amx_flush(even);
        odd = amx_flush(odd);
    }
    const v16 before = v16_load(c);
    const v16 sum = v16_add(amx_flush(before), amx_flush(v16_add(even, odd)));
    kept = amx_not_finite(sum, kept);
    v16i_store(doubt, kept);
    for (int n = 0; n < 16; n++)
        any |= doubt[n];
    if (any != 0)
        memcpy(of_b, b, sizeof of_b);
    float result[16];
    v16_store(result, amx_flush(sum));
    for (int n = 0; n < 16; n++)
        c[n] = doubt[n] ? amx_plain_step(c[n], of_a, of_b + 2 * n, 32) : result[n];
}

/* c += a b, of `rows` rows; those below become zeros. */
static inline void amx_emulated_multiply(struct amx_tile *c, const struct amx_tile *a,
                                         const struct amx_tile *b, int rows)
{
    v16 b_even[16], b_odd[16];
    for (int p = 0; p < 16; p++) {
        float words[16];
        memcpy(words, b->row[p], sizeof words);
        const v16i pair = v16_bits(v16_load(words));
        b_even[p] = amx_flush(v16_from_bits(v16i_shl(pair, 16)));
        b_odd[p] = amx_flush(v16_from_bits(v16i_and(pair, v16i_set1(0xffff0000u))));
    }
    for (int m = 0; m < rows; m++) {
        float sums[16];
        memcpy(sums, c->row[m], sizeof sums);
        amx_emulated_row(sums, a->row[m], b, b_even, b_odd);
        memcpy(c->row[m], sums, sizeof sums);
    }
    memset((char *)c + rows * 64, 0, (size_t)(16 - rows) * 64);
}

#endif
