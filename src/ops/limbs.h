/* limbs - sums of squares as 192-bit integers, little end first: see shoali_norm2_args, and
 * shoali_square_sums_args for those of tensors. */
#ifndef SHOALI_OPS_LIMBS_H
#define SHOALI_OPS_LIMBS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* limbs += value << (64*at) */
static inline void limbs_add_at(uint64_t limbs[3], int32_t at, uint64_t value)
{
    for (; at < 3 && value != 0; at++) {
        limbs[at] += value;
        value = limbs[at] < value; /* the carry */
    }
}

/* Adds the integer x, 0 <= x < 2^183. */
static inline void limbs_add_integer(uint64_t limbs[3], double x)
{
    if (x < 0x1p53) {
        limbs_add_at(limbs, 0, (uint64_t)x);
        return;
    }
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t mantissa = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
    const int32_t shift = (int32_t)(bits >> 52) - 1075;
    const int32_t limb = shift / 64, within = shift % 64;
    limbs_add_at(limbs, limb, mantissa << within);
    if (within > 0)
        limbs_add_at(limbs, limb + 1, mantissa >> (64 - within));
}

/* Adds rint(x^2 2^62); returns 1 instead when x is NaN, infinite or at least 2^60 in magnitude. */
static inline uint32_t limbs_add_square(uint64_t limbs[3], float x)
{
    const double wide = (double)x;
    if (!(fabs(wide) < 0x1p60))
        return 1;
    limbs_add_integer(limbs, rint(wide * wide * 0x1p62));
    return 0;
}

/* Adds the square of one element of a tensor, in units of 2^-98. */
static inline void limbs_add_term(uint64_t limbs[3], float x)
{
    const double square = (double)x * (double)x;
    limbs_add_integer(limbs, rint((square < 0x1p56 ? square : 0x1p56) * 0x1p98));
}

/* a += b */
static inline void limbs_add(uint64_t a[3], const uint64_t b[3])
{
    for (int32_t i = 0; i < 3; i++)
        limbs_add_at(a, i, b[i]);
}

/* A sum of terms as a number: rounded a few times. */
static inline double limbs_sum_of_terms(const uint64_t limbs[3])
{
    return ((double)limbs[2] * 0x1p128 + ((double)limbs[1] * 0x1p64 + (double)limbs[0])) * 0x1p-98;
}

#endif
