/* mathx - elementary functions with the same bits on every machine.
 *
 * glibc picks variants by CPU, so no kernel, init rule or schedule may call libm. These are written
 * as fixed lists of IEEE operations (explicit fma); sqrt, fma, floor, rint, ldexp are exact and may
 * be used from the C library. Errors are below 1 ulp (double) unless noted; the tests state and
 * check it.
 */
#ifndef SHOALI_MATHX_H
#define SHOALI_MATHX_H

double shoali_exp(double x);
double shoali_ln(double x);            /* natural logarithm, x > 0; ln(0) = -inf, negative = NaN */
double shoali_pow(double x, double y); /* x > 0; exp(y ln x), error 1 ulp + |y ln x|/64 ulp */
double shoali_powi(double x, long n);  /* repeated squaring; exact order */
double shoali_sin(double x);           /* |x| <= 2^20, NaN beyond */
double shoali_cos(double x);
double shoali_tanh(double x);
double shoali_erf(double x);

#endif
