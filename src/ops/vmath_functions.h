/* vmath_functions - the elementary functions, written once for one lane and for sixteen. vmath.h
 * includes this file twice; VF, VI name the operations and VF_TYPE, VI_TYPE, VM_TYPE the types of
 * one width.
 *
 * Coefficients: Chebyshev interpolation of the stated function on the stated interval, rounded to
 * float; the error given is that of the rounded polynomial. No include guard: meant to be included
 * twice.
 */

#ifndef VF_HAS_LDEXP
/* x 2^n for an integral n of at most 252 in size, rounded once when x is near 1: the first of two
 * halves is exact. */
SHOALI_V VF_TYPE VF(ldexp)(VF_TYPE x, VF_TYPE n)
{
    const VF_TYPE magic = VF(set1)(0x1.8p23f); /* leaves the integer in the low bits */
    const VI_TYPE exponent = VI(sub)(VF(bits)(VF(add)(n, magic)), VF(bits)(magic));
    const VI_TYPE half = VI(sar)(exponent, 1);
    const VI_TYPE rest = VI(sub)(exponent, half);
    const VI_TYPE bias = VI(set1)(127);
    x = VF(mul)(x, VF(from_bits)(VI(shl)(VI(add)(half, bias), 23)));
    return VF(mul)(x, VF(from_bits)(VI(shl)(VI(add)(rest, bias), 23)));
}
#endif

/* e^x. x = n ln2 + r, |r| <= ln2/2; e^r = 1 + r + r^2 P(r), P on [-0.3466, 0.3466] to 4e-9. */
SHOALI_V VF_TYPE VF(exp)(VF_TYPE x)
{
    const VF_TYPE magic = VF(set1)(0x1.8p23f); /* adding it rounds to an integer */
    x = VF(max)(VF(set1)(-104.0f), x);
    x = VF(min)(VF(set1)(89.0f), x);
    const VF_TYPE shifted = VF(fma)(x, VF(set1)(0x1.715476p+0f), magic);
    const VF_TYPE n = VF(sub)(shifted, magic);
    VF_TYPE r = VF(fnma)(n, VF(set1)(0x1.62e4p-1f), x);
    r = VF(fnma)(n, VF(set1)(0x1.7f7d1cp-20f), r);
    VF_TYPE p = VF(set1)(0x1.a124f6p-13f);
    p = VF(fma)(p, r, VF(set1)(0x1.6d432ap-10f));
    p = VF(fma)(p, r, VF(set1)(0x1.1110ep-7f));
    p = VF(fma)(p, r, VF(set1)(0x1.5554eap-5f));
    p = VF(fma)(p, r, VF(set1)(0x1.555556p-3f));
    p = VF(fma)(p, r, VF(set1)(0.5f));
    p = VF(fma)(VF(mul)(r, r), p, r);
    p = VF(add)(p, VF(set1)(1.0f));
    return VF(ldexp)(p, n);
}

/* Natural logarithm. x = 2^n (1+f), 1+f in [sqrt(1/2), sqrt(2)); with s = f/(2+f), z = s^2:
 * log(1+f) = f - (f^2/2 - s (f^2/2 + z R(z))), R on [0, 0.0296] to 3e-8. 0 gives -inf, negative
 * NaN. */
SHOALI_V VF_TYPE VF(log)(VF_TYPE x)
{
    const VF_TYPE one = VF(set1)(1.0f);
    const VM_TYPE tiny = VF(lt)(x, VF(set1)(0x1p-126f));
    const VF_TYPE scaled = VF(select)(tiny, VF(mul)(x, VF(set1)(0x1p23f)), x);
    /* Taking sqrt(1/2)'s bits away first puts the border of the mantissa there. */
    const VI_TYPE border = VI(set1)(0x3f3504f3u);
    const VI_TYPE offset = VI(sub)(VF(bits)(scaled), border);
    const VI_TYPE n = VI(sar)(offset, 23);
    const VF_TYPE m = VF(from_bits)(VI(add)(VI(and)(offset, VI(set1)(0x7fffffu)), border));
    VF_TYPE exponent = VF(from_int)(n);
    exponent = VF(sub)(exponent, VF(select)(tiny, VF(set1)(23.0f), VF(set1)(0.0f)));
    const VF_TYPE f = VF(sub)(m, one);
    const VF_TYPE s = VF(div)(f, VF(add)(f, VF(set1)(2.0f)));
    const VF_TYPE z = VF(mul)(s, s);
    VF_TYPE r = VF(set1)(0x1.ddf01ap-3f);
    r = VF(fma)(r, z, VF(set1)(0x1.245ba6p-2f));
    r = VF(fma)(r, z, VF(set1)(0x1.9999ecp-2f));
    r = VF(fma)(r, z, VF(set1)(0x1.555556p-1f));
    const VF_TYPE half = VF(mul)(VF(mul)(VF(set1)(0.5f), f), f);
    const VF_TYPE low = VF(mul)(exponent, VF(set1)(0x1.7f7d1cp-20f));
    const VF_TYPE tail = VF(fma)(s, VF(fma)(z, r, half), low);
    const VF_TYPE head = VF(sub)(f, VF(sub)(half, tail));
    VF_TYPE y = VF(fma)(exponent, VF(set1)(0x1.62e4p-1f), head);
    const VF_TYPE infinity = VF(set1)(__builtin_inff());
    y = VF(select)(VF(lt)(x, infinity), y, x); /* inf, and NaN as it is */
    y = VF(select)(VF(eq)(x, VF(set1)(0.0f)), VF(neg)(infinity), y);
    return VF(select)(VF(lt)(x, VF(set1)(0.0f)), VF(set1)(__builtin_nanf("")), y);
}

/* |x| < 0.625: x + x^3 P(x^2), P = (tanh(x)-x)/x^3 to 1.3e-8; else 1 - 2/(e^(2|x|) + 1). */
SHOALI_V VF_TYPE VF(tanh)(VF_TYPE x)
{
    const VF_TYPE one = VF(set1)(1.0f), two = VF(set1)(2.0f);
    const VF_TYPE a = VF(abs)(x);
    const VF_TYPE z = VF(mul)(x, x);
    VF_TYPE p = VF(set1)(0x1.2c83cp-9f);
    p = VF(fma)(p, z, VF(set1)(-0x1.116a16p-7f));
    p = VF(fma)(p, z, VF(set1)(0x1.64a976p-6f));
    p = VF(fma)(p, z, VF(set1)(-0x1.ba08c4p-5f));
    p = VF(fma)(p, z, VF(set1)(0x1.1110eap-3f));
    p = VF(fma)(p, z, VF(set1)(-0x1.555556p-2f));
    const VF_TYPE small = VF(fma)(VF(mul)(z, x), p, x);
    const VF_TYPE e = VF(exp)(VF(add)(a, a));
    const VF_TYPE large = VF(sub)(one, VF(div)(two, VF(add)(e, one)));
    const VF_TYPE y = VF(select)(VF(lt)(a, VF(set1)(0.625f)), small, large);
    return VF(copysign)(y, x); /* also of -0, which the fma loses */
}

/* 1/(1+e^-x), and s (1-s) as e/(1+e)^2 without the cancellation. The exponential is of -|x|, so
 * neither side overflows or loses its relative accuracy. One division serves both: it costs as much
 * as the exponential's polynomial. */
SHOALI_V VF_TYPE VF(sigmoid_both)(VF_TYPE x, VF_TYPE *derivative)
{
    const VF_TYPE one = VF(set1)(1.0f);
    const VF_TYPE e = VF(exp)(VF(neg)(VF(abs)(x)));
    const VF_TYPE r = VF(div)(one, VF(add)(one, e));
    const VF_TYPE below = VF(mul)(e, r); /* of -|x| */
    *derivative = VF(mul)(below, r);
    return VF(select)(VF(lt)(x, VF(set1)(0.0f)), below, r);
}
SHOALI_V VF_TYPE VF(sigmoid)(VF_TYPE x)
{
    VF_TYPE derivative;
    return VF(sigmoid_both)(x, &derivative);
}
SHOALI_V VF_TYPE VF(sigmoid_derivative)(VF_TYPE x)
{
    VF_TYPE derivative;
    (void)VF(sigmoid_both)(x, &derivative);
    return derivative;
}
/* 1 - tanh(x)^2 = 4 s(2x) (1 - s(2x)). */
SHOALI_V VF_TYPE VF(tanh_derivative)(VF_TYPE x)
{
    return VF(mul)(VF(set1)(4.0f), VF(sigmoid_derivative)(VF(add)(x, x)));
}

/* The polynomial of |x|'s interval (vmath_tables.h). A NaN stays one: its interval is any. */
SHOALI_V VF_TYPE VF(interpolate)(VF_TYPE a, const float (*table)[SHOALI_VMATH_INTERVALS],
                                 const int terms)
{
    const VF_TYPE magic = VF(set1)(0x1.8p23f); /* leaves the integer in the low bits */
    const VF_TYPE shifted = VF(fma)(a, VF(set1)(SHOALI_VMATH_PER_INTERVAL), magic);
    const VI_TYPE interval = VF(bits)(shifted);
    const VF_TYPE t = VF(fnma)(VF(sub)(shifted, magic), VF(set1)(SHOALI_VMATH_INTERVAL), a);
    VF_TYPE p = VF(pick)(table[terms - 1], interval);
    for (int i = terms - 2; i >= 0; i--)
        p = VF(fma)(p, t, VF(pick)(table[i], interval));
    return p;
}
SHOALI_V VF_TYPE VF(gelu)(VF_TYPE x, const float (*tail)[SHOALI_VMATH_INTERVALS])
{
    const VF_TYPE a = VF(min)(VF(set1)(SHOALI_VMATH_LAST), VF(abs)(x));
    const VF_TYPE beyond = VF(interpolate)(a, tail, SHOALI_VMATH_TAIL_TERMS);
    return VF(fnma)(a, beyond, VF(max)(VF(set1)(0.0f), x));
}
SHOALI_V VF_TYPE VF(gelu_derivative)(VF_TYPE x, const float (*slope)[SHOALI_VMATH_INTERVALS])
{
    const VF_TYPE a = VF(min)(VF(set1)(SHOALI_VMATH_LAST), VF(abs)(x));
    const VF_TYPE below = VF(interpolate)(a, slope, SHOALI_VMATH_SLOPE_TERMS);
    return VF(select)(VF(lt)(x, VF(set1)(0.0f)), below, VF(sub)(VF(set1)(1.0f), below));
}
/* x Phi(x), Phi the normal distribution function (1 + erf(x/sqrt 2))/2. */
SHOALI_V VF_TYPE VF(gelu_erf)(VF_TYPE x)
{
    return VF(gelu)(x, shoali_vmath_normal_tail);
}
/* Phi(x) + x e^(-x^2/2) / sqrt(2 pi) */
SHOALI_V VF_TYPE VF(gelu_erf_derivative)(VF_TYPE x)
{
    return VF(gelu_derivative)(x, shoali_vmath_normal_slope);
}
/* x (1 + tanh u)/2 = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
SHOALI_V VF_TYPE VF(gelu_tanh)(VF_TYPE x)
{
    return VF(gelu)(x, shoali_vmath_tanh_tail);
}
SHOALI_V VF_TYPE VF(gelu_tanh_derivative)(VF_TYPE x)
{
    return VF(gelu_derivative)(x, shoali_vmath_tanh_slope);
}
/* max(x, 0); a NaN stays, and so does -0. */
SHOALI_V VF_TYPE VF(relu)(VF_TYPE x)
{
    return VF(max)(VF(set1)(0.0f), x);
}
SHOALI_V VF_TYPE VF(relu_derivative)(VF_TYPE x)
{
    return VF(select)(VF(lt)(VF(set1)(0.0f), x), VF(set1)(1.0f), VF(set1)(0.0f));
}
SHOALI_V VF_TYPE VF(silu)(VF_TYPE x)
{
    return VF(mul)(x, VF(sigmoid)(x));
}
/* s + x s (1-s) */
SHOALI_V VF_TYPE VF(silu_derivative)(VF_TYPE x)
{
    VF_TYPE derivative;
    const VF_TYPE value = VF(sigmoid_both)(x, &derivative);
    return VF(fma)(x, derivative, value);
}
