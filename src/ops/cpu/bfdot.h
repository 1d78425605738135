/* bfdot - what ARM's product of bf16 pairs computes, in plain C; the order of sums of
 * cpu-neon_bf16.
 *
 * BFDOT adds to each of four sums the products of two pairs of bf16. As Linux starts a process and
 * as base/fp.c sets FPCR, FPCR.EBF is 0, and the instruction is, on every CPU that has FEAT_BF16,
 *     c = c + (a0*b0 + a1*b1)
 * with three operations that round (the products of 8-bit significands are exact), each to odd: an
 * inexact result is truncated and its last bit set. Whatever else FPCR says,
 *   - operands that are denormal read as zeros of their sign;
 *   - a result below 2^-126, before it is rounded, becomes a zero of its sign;
 *   - a result of 2^128 or more becomes an infinity, and never by rounding;
 *   - a NaN, inf * 0 and inf - inf give the NaN 0x7fc00000;
 *   - two numbers that cancel give +0.
 * Source: Arm Architecture Reference Manual for A-profile (DDI 0487), BFDOT (by element), and the
 * functions BFDotAdd, BFMulH, FPAdd_BF16, BFUnpack and BFRound of its pseudocode. With FPCR.EBF 1
 * (FEAT_EBF16) a pair of products would be summed without a rounding and by FPCR's mode: other
 * bits.
 *
 * ORDER OF SUMS of the table: c begins as +0 and takes the pairs of k in rising order; the last
 * pair of an odd K has +0 as its second element. Attention sums likewise over the head's elements,
 * over keys, pairs beginning at even ones, and over queries, likewise.
 */
#ifndef SHOALI_OPS_CPU_BFDOT_H
#define SHOALI_OPS_CPU_BFDOT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bfdot_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float bfdot_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
#define BFDOT_NAN 0x7fc00000u

static inline float bfdot_without_denormal(float x)
{
    const uint32_t bits = bfdot_bits(x);
    return (bits & 0x7fffffffu) < 0x00800000u ? bfdot_float(bits & 0x80000000u) : x;
}
static inline float bfdot_widen(uint16_t x)
{
    return bfdot_without_denormal(bfdot_float((uint32_t)x << 16));
}

/* x + rest rounded to odd; |rest| is at most half a unit of the last place of x. */
static inline float bfdot_round(double x, double rest)
{
    uint64_t bits;
    if (isnan(x))
        return bfdot_float(BFDOT_NAN);
    if (x == 0)
        return (float)x;
    memcpy(&bits, &x, sizeof bits);
    if (isfinite(x) && rest != 0)
        bits = ((rest < 0) == (x < 0) ? bits : bits - 1) | 1;
    const uint32_t sign = (uint32_t)(bits >> 32) & 0x80000000u;
    const int64_t exponent = (int64_t)(bits >> 52 & 0x7ff) - 1023 + 127;
    const uint32_t fraction = (uint32_t)(bits >> 29) & 0x7fffffu;
    const uint32_t inexact = (bits & 0x1fffffffu) != 0;
    if (exponent >= 255)
        return bfdot_float(sign | 0x7f800000u);
    return bfdot_float(exponent < 1 ? sign : sign | (uint32_t)exponent << 23 | fraction | inexact);
}

static inline float bfdot_multiply(float x, float y)
{
    return bfdot_round((double)x * (double)y, 0);
}
static inline float bfdot_add(float x, float y)
{
    const double a = (double)bfdot_without_denormal(x), b = (double)bfdot_without_denormal(y);
    const double sum = a + b, back = sum - a;
    return bfdot_round(sum, isfinite(sum) ? (a - (sum - back)) + (b - back) : 0);
}

/* One element: the sum c and two neighbours of a and of b. */
static inline float bfdot_plain_step(float c, const uint16_t a[2], const uint16_t b[2])
{
    const float first = bfdot_multiply(bfdot_widen(a[0]), bfdot_widen(b[0]));
    const float second = bfdot_multiply(bfdot_widen(a[1]), bfdot_widen(b[1]));
    return bfdot_add(c, bfdot_add(first, second));
}

#endif
