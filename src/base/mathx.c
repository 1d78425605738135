/* Reduction to a small interval, a Taylor polynomial long enough for 2^-60, and the reduction's
 * rounding errors carried along (double-double where it matters). The constants are 1/n!, parts of
 * ln 2 and of pi/2; parts named _HI have so few bits that their product with the integer k is
 * exact.
 */
#include "base/mathx.h"

#include "base/mathx_internal.h"
#include "base/mathx_trig.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INV_LN2 0x1.71547652b82fep+0
#define LN2_HI 0x1.62e42fefa3800p-1 /* 42 bits */
#define LN2_LO 0x1.ef35793c76730p-45
#define SQRT2_MANTISSA 0x6a09e667f3bcdu /* of sqrt(2), without the leading one */

MATHX_BODY double bits_to_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

MATHX_BODY uint64_t double_to_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* p * 2^k, rounded once. */
MATHX_BODY double scale(double p, int k)
{
    if (k < -1021 || k > 1023)
        return ldexp(p, k);
    return p * bits_to_double((uint64_t)(k + 1023) << 52);
}

/* exp(x + x_lo) = 2^k (1 + r + c), |r| <= ln(2)/2, c about r^2/2. */
struct exp_parts {
    double r, c;
    int k;
};

MATHX_BODY struct exp_parts exp_reduce(double x, double x_lo)
{
    double k = rint(x * INV_LN2);
    double high = fma(-k, LN2_HI, x);
    double low = fma(k, LN2_LO, -x_lo);
    double r = high - low;
    double r_lo = (high - r) - low;
    double p = 1.0 / 6227020800.0;
    p = fma(p, r, 1.0 / 479001600.0);
    p = fma(p, r, 1.0 / 39916800.0);
    p = fma(p, r, 1.0 / 3628800.0);
    p = fma(p, r, 1.0 / 362880.0);
    p = fma(p, r, 1.0 / 40320.0);
    p = fma(p, r, 1.0 / 5040.0);
    p = fma(p, r, 1.0 / 720.0);
    p = fma(p, r, 1.0 / 120.0);
    p = fma(p, r, 1.0 / 24.0);
    p = fma(p, r, 1.0 / 6.0);
    p = fma(p, r, 0.5);
    return (struct exp_parts){r, fma(r * r, p, r_lo), (int)k};
}

MATHX_BODY double exp_body(double x, double x_lo)
{
    if (x != x)
        return x;
    if (x > 710.0)
        return (double)INFINITY;
    if (x < -746.0)
        return 0.0;
    struct exp_parts parts = exp_reduce(x, x_lo);
    struct pair sum = fast_two_sum(1.0, parts.r);
    return scale(sum.hi + (sum.lo + parts.c), parts.k);
}

/* ln(x) for 0 < x < inf: x = 2^k m, ln m = 2 atanh(s), s = (m - 1)/(m + 1). */
MATHX_BODY struct pair ln_pair(double x)
{
    int k = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        k = -54;
    }
    uint64_t bits = double_to_bits(x);
    uint64_t mantissa = bits & 0xfffffffffffffu;
    int halved = mantissa >= SQRT2_MANTISSA;
    k += (int)(bits >> 52) - 1023 + halved;
    double m = bits_to_double(mantissa | (uint64_t)(1023 - halved) << 52);

    struct pair plus = two_sum(1.0, m);
    double f = m - 1.0;
    double s = f / plus.hi;
    double s_lo = fma(-s, plus.lo, fma(-s, plus.hi, f)) / plus.hi;
    double z = s * s;
    double p = 2.0 / 23.0;
    p = fma(p, z, 2.0 / 21.0);
    p = fma(p, z, 2.0 / 19.0);
    p = fma(p, z, 2.0 / 17.0);
    p = fma(p, z, 2.0 / 15.0);
    p = fma(p, z, 2.0 / 13.0);
    p = fma(p, z, 2.0 / 11.0);
    p = fma(p, z, 2.0 / 9.0);
    p = fma(p, z, 2.0 / 7.0);
    p = fma(p, z, 2.0 / 5.0);
    p = fma(p, z, 2.0 / 3.0);
    double rest = fma(s * z, p, 2.0 * s_lo);
    struct pair sum = fast_two_sum((double)k * LN2_HI, 2.0 * s);
    return fast_two_sum(sum.hi, sum.lo + fma((double)k, LN2_LO, rest));
}

MATHX_BODY double ln_body(double x)
{
    if (x != x || x == (double)INFINITY)
        return x;
    if (x <= 0.0)
        return x == 0.0 ? -(double)INFINITY : (double)NAN;
    return ln_pair(x).hi;
}

MATHX_BODY double pow_body(double x, double y)
{
    if (y == 0.0 || x == 1.0)
        return 1.0;
    if (!(x > 0.0 && x < (double)INFINITY && fabs(y) < (double)INFINITY))
        return exp_body(y * ln_body(x), 0.0);
    struct pair log_x = ln_pair(x);
    double product = y * log_x.hi;
    if (!(fabs(product) < 800.0))
        return product > 0.0 ? (double)INFINITY : 0.0;
    double product_lo = fma(y, log_x.lo, fma(y, log_x.hi, -product));
    return exp_body(product, product_lo);
}

/* tanh(x) = e/(e + 2), e = exp(2x) - 1, for x >= 0; e is kept as a pair against cancellation. */
MATHX_BODY double tanh_body(double x)
{
    double size = fabs(x);
    if (!(size >= 0x1p-28))
        return x; /* also NaN; the next term is x^3/3 */
    if (size >= 20.0)
        return copysign(1.0, x);
    struct exp_parts parts = exp_reduce(2.0 * size, 0.0);
    struct pair e = fast_two_sum(parts.r, parts.c);
    if (parts.k > 0) {
        double two_k = scale(1.0, parts.k);
        struct pair sum = two_sum(two_k - 1.0, two_k * e.hi);
        e = fast_two_sum(sum.hi, fma(two_k, e.lo, sum.lo));
    }
    struct pair below = two_sum(2.0, e.hi);
    below.lo += e.lo;
    double quotient = e.hi / below.hi;
    double left = fma(-quotient, below.hi, e.hi);
    left = fma(-quotient, below.lo, left + e.lo);
    return copysign(quotient + left / below.hi, x);
}

static MATHX_FMA double exp_fma(double x)
{
    return exp_body(x, 0.0);
}

static MATHX_FMA double ln_fma(double x)
{
    return ln_body(x);
}

static MATHX_FMA double pow_fma(double x, double y)
{
    return pow_body(x, y);
}

static MATHX_FMA double tanh_fma(double x)
{
    return tanh_body(x);
}

static MATHX_FMA double trig_fma(double x, long shift)
{
    return trig_body(x, shift);
}

double shoali_exp(double x)
{
    return has_fma() ? exp_fma(x) : exp_body(x, 0.0);
}

double shoali_ln(double x)
{
    return has_fma() ? ln_fma(x) : ln_body(x);
}

double shoali_pow(double x, double y)
{
    return has_fma() ? pow_fma(x, y) : pow_body(x, y);
}

double shoali_tanh(double x)
{
    return has_fma() ? tanh_fma(x) : tanh_body(x);
}

double shoali_sin(double x)
{
    return has_fma() ? trig_fma(x, 0) : trig_body(x, 0);
}

double shoali_cos(double x)
{
    return has_fma() ? trig_fma(x, 1) : trig_body(x, 1);
}

double shoali_powi(double x, long n)
{
    unsigned long left = n < 0 ? 0ul - (unsigned long)n : (unsigned long)n;
    double result = 1.0, square = x;
    for (;;) {
        if (left & 1)
            result *= square;
        left >>= 1;
        if (left == 0)
            break;
        square *= square;
    }
    return n < 0 ? 1.0 / result : result;
}
