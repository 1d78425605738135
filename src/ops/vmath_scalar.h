/* vmath_scalar - one lane. The portable vector applies these to each of its lanes, and they are
 * what the vector instructions of the other implementations must agree with. Included by vmath.h
 * and by kernels for GPUs, which define SHOALI_V before.
 */
#ifndef SHOALI_OPS_VMATH_SCALAR_H
#define SHOALI_OPS_VMATH_SCALAR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A function of a, of a and b, of a, b and c, which are of one type. */
#define SHOALI_UNARY(result, name, type, ...) \
    SHOALI_V result name(type a)              \
    {                                         \
        return __VA_ARGS__;                   \
    }
#define SHOALI_BINARY(result, name, type, ...) \
    SHOALI_V result name(type a, type b)       \
    {                                          \
        return __VA_ARGS__;                    \
    }
#define SHOALI_TERNARY(result, name, type, ...)  \
    SHOALI_V result name(type a, type b, type c) \
    {                                            \
        return __VA_ARGS__;                      \
    }

typedef float v1;
typedef uint32_t v1i;
typedef bool v1m;

/* Multipliers and key increments of Philox 4x32 (Salmon et al. 2011). */
#define SHOALI_PHILOX_MULTIPLIER0 0xD2511F53u
#define SHOALI_PHILOX_MULTIPLIER1 0xCD9E8D57u
#define SHOALI_PHILOX_WEYL0 0x9E3779B9u
#define SHOALI_PHILOX_WEYL1 0xBB67AE85u

SHOALI_V v1i v1_bits(v1 x)
{
    v1i bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
SHOALI_V v1 v1_from_bits(v1i bits)
{
    v1 x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
SHOALI_V v1 v1_set1(float x)
{
    return x;
}
/* table[i mod 16] */
SHOALI_V v1 v1_pick(const float *table, v1i i)
{
    return table[i & 15];
}
SHOALI_BINARY(v1, v1_add, v1, a + b)
SHOALI_BINARY(v1, v1_sub, v1, a - b)
SHOALI_BINARY(v1, v1_mul, v1, a *b)
SHOALI_BINARY(v1, v1_div, v1, a / b)
SHOALI_TERNARY(v1, v1_fma, v1, __builtin_fmaf(a, b, c))
SHOALI_TERNARY(v1, v1_fnma, v1, __builtin_fmaf(-a, b, c))
SHOALI_UNARY(v1, v1_sqrt, v1, __builtin_sqrtf(a))
SHOALI_BINARY(v1, v1_min, v1, a < b ? a : b)
SHOALI_BINARY(v1, v1_max, v1, a > b ? a : b)
SHOALI_UNARY(v1, v1_abs, v1, v1_from_bits(v1_bits(a) & 0x7fffffffu))
SHOALI_UNARY(v1, v1_neg, v1, v1_from_bits(v1_bits(a) ^ 0x80000000u))
/* Magnitude of a, sign of b. */
SHOALI_V v1 v1_copysign(v1 a, v1 b)
{
    return v1_from_bits((v1_bits(a) & 0x7fffffffu) | (v1_bits(b) & 0x80000000u));
}
SHOALI_UNARY(v1, v1_floor, v1, __builtin_floorf(a))
SHOALI_UNARY(v1, v1_rint, v1, __builtin_rintf(a))
SHOALI_BINARY(v1m, v1_lt, v1, a < b)
SHOALI_BINARY(v1m, v1_le, v1, a <= b)
SHOALI_BINARY(v1m, v1_eq, v1, a == b)
SHOALI_UNARY(v1m, v1_isnan, v1, a != a)
SHOALI_V v1 v1_select(v1m m, v1 a, v1 b)
{
    return m ? a : b;
}
SHOALI_V v1i v1i_set1(uint32_t x)
{
    return x;
}
SHOALI_BINARY(v1i, v1i_add, v1i, a + b)
SHOALI_BINARY(v1i, v1i_sub, v1i, a - b)
SHOALI_BINARY(v1i, v1i_and, v1i, a &b)
SHOALI_BINARY(v1i, v1i_or, v1i, a | b)
SHOALI_BINARY(v1i, v1i_xor, v1i, a ^ b)
SHOALI_V v1i v1i_shl(v1i a, int n)
{
    return a << n;
}
SHOALI_V v1i v1i_shr(v1i a, int n)
{
    return a >> n;
}
/* Shift that keeps the sign. */
SHOALI_V v1i v1i_sar(v1i a, int n)
{
    return (v1i)((int32_t)a >> n);
}
SHOALI_BINARY(v1m, v1i_geu, v1i, a >= b)
SHOALI_V v1i v1i_select(v1m m, v1i a, v1i b)
{
    return m ? a : b;
}
/* The signed integer as float, |a| <= 2^24. */
SHOALI_UNARY(v1, v1_from_int, v1i, (float)(int32_t)a)

#endif
