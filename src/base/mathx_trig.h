/* mathx_trig - sine and cosine of mathx.c, as a text that kernels for GPUs include too. They define
 * MATHX_BODY before, which is the beginning of a function. */
#ifndef SHOALI_MATHX_TRIG_H
#define SHOALI_MATHX_TRIG_H

#include <math.h>

#define TWO_OVER_PI 0x1.45f306dc9c883p-1
#define PIO2_1 0x1.921fb54400000p+0 /* three times 33 bits, and the rest */
#define PIO2_2 0x1.0b4611a600000p-34
#define PIO2_3 0x1.3198a2e000000p-69
#define PIO2_4 0x1.b839a252049c1p-104
#define TRIG_MAX 0x1p20

/* An unevaluated sum; lo is below half an ulp of hi. */
struct pair {
    double hi, lo;
};

MATHX_BODY struct pair two_sum(double a, double b)
{
    double sum = a + b, b_part = sum - a;
    const struct pair exact = {sum, (a - (sum - b_part)) + (b - b_part)};
    return exact;
}

/* For |a| >= |b|, or a = 0. */
MATHX_BODY struct pair fast_two_sum(double a, double b)
{
    double sum = a + b;
    const struct pair exact = {sum, b - (sum - a)};
    return exact;
}

/* x = k pi/2 + (hi + lo), |hi| <= pi/4 and a little, for |x| <= 2^20. */
MATHX_BODY struct pair trig_reduce(double x, long *quadrant)
{
    double k = rint(x * TWO_OVER_PI);
    *quadrant = (long)k & 3;
    struct pair first = two_sum(fma(-k, PIO2_1, x), -(k * PIO2_2));
    struct pair second = two_sum(first.hi, -(k * PIO2_3));
    double rest = fma(-k, PIO2_4, first.lo + second.lo);
    return fast_two_sum(second.hi, rest);
}

/* sin(r) = r + r^3 p(r^2) for |r| <= pi/4; lo enters with the derivative 1 - r^2/2. */
MATHX_BODY double sin_kernel(struct pair r)
{
    double z = r.hi * r.hi;
    double p = 1.0 / 355687428096000.0;
    p = fma(p, z, -1.0 / 1307674368000.0);
    p = fma(p, z, 1.0 / 6227020800.0);
    p = fma(p, z, -1.0 / 39916800.0);
    p = fma(p, z, 1.0 / 362880.0);
    p = fma(p, z, -1.0 / 5040.0);
    p = fma(p, z, 1.0 / 120.0);
    p = fma(p, z, -1.0 / 6.0);
    double lo = fma(-0.5 * z, r.lo, r.lo);
    return r.hi + fma(r.hi * z, p, lo);
}

/* cos(r) = 1 - r^2/2 + r^4 p(r^2); r^2 is taken as a pair. */
MATHX_BODY double cos_kernel(struct pair r)
{
    double z = r.hi * r.hi, z_lo = fma(r.hi, r.hi, -z);
    double p = -1.0 / 6402373705728000.0;
    p = fma(p, z, 1.0 / 20922789888000.0);
    p = fma(p, z, -1.0 / 87178291200.0);
    p = fma(p, z, 1.0 / 479001600.0);
    p = fma(p, z, -1.0 / 3628800.0);
    p = fma(p, z, 1.0 / 40320.0);
    p = fma(p, z, -1.0 / 720.0);
    p = fma(p, z, 1.0 / 24.0);
    struct pair head = fast_two_sum(1.0, -0.5 * z);
    double lo = fma(-r.hi, r.lo, fma(-0.5, z_lo, head.lo));
    return head.hi + fma(z * z, p, lo);
}

/* sin(x + shift pi/2). */
MATHX_BODY double trig_body(double x, long shift)
{
    if (!(fabs(x) <= TRIG_MAX))
        return (double)NAN;
    if (shift == 0 && fabs(x) < 0x1p-27)
        return x; /* keeps -0; the next term is x^3/6 */
    long quadrant;
    struct pair r = trig_reduce(x, &quadrant);
    quadrant = (quadrant + shift) & 3;
    double value = quadrant & 1 ? cos_kernel(r) : sin_kernel(r);
    return quadrant & 2 ? -value : value;
}

#endif
