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

/* |x| < 0.921875: x + x Q(x^2), Q = erf(x)/x - 1 to 9e-9; else 1 - e^L(|x|), L = log(erfc(x)) on
 * [0.92, 4] to 1.4e-7, which is 3e-8 of the result; erf(4) rounds to 1. */
SHOALI_V VF_TYPE VF(erf)(VF_TYPE x)
{
    const VF_TYPE z = VF(mul)(x, x);
    VF_TYPE q = VF(set1)(0x1.5fcd12p-14f);
    q = VF(fma)(q, z, VF(set1)(-0x1.ab25e6p-11f));
    q = VF(fma)(q, z, VF(set1)(0x1.54e222p-8f));
    q = VF(fma)(q, z, VF(set1)(-0x1.b8114cp-6f));
    q = VF(fma)(q, z, VF(set1)(0x1.ce2e2ap-4f));
    q = VF(fma)(q, z, VF(set1)(-0x1.812744p-2f));
    q = VF(fma)(q, z, VF(set1)(0x1.06eba8p-3f));
    const VF_TYPE small = VF(fma)(x, q, x);
    const VF_TYPE a = VF(min)(VF(set1)(4.0f), VF(abs)(x));
    VF_TYPE l = VF(set1)(0x1.b93156p-20f);
    l = VF(fma)(l, a, VF(set1)(-0x1.835f18p-15f));
    l = VF(fma)(l, a, VF(set1)(0x1.3964ap-11f));
    l = VF(fma)(l, a, VF(set1)(-0x1.383056p-8f));
    l = VF(fma)(l, a, VF(set1)(0x1.b10c8ap-6f));
    l = VF(fma)(l, a, VF(set1)(-0x1.c2f2eap-4f));
    l = VF(fma)(l, a, VF(set1)(-0x1.437d1cp-1f));
    l = VF(fma)(l, a, VF(set1)(-0x1.215748p+0f));
    l = VF(fma)(l, a, VF(set1)(0x1.50277ap-12f));
    const VF_TYPE large = VF(sub)(VF(set1)(1.0f), VF(exp)(l));
    return VF(select)(VF(lt)(a, VF(set1)(0.921875f)), small, VF(copysign)(large, x));
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

/* The normal distribution function (1 + erf(x/sqrt 2))/2. */
SHOALI_V VF_TYPE VF(normal_cdf)(VF_TYPE x)
{
    const VF_TYPE half = VF(set1)(0.5f);
    return VF(fma)(half, VF(erf)(VF(mul)(x, VF(set1)(0x1.6a09e6p-1f))), half);
}
SHOALI_V VF_TYPE VF(gelu_erf)(VF_TYPE x)
{
    return VF(mul)(x, VF(normal_cdf)(x));
}
/* cdf(x) + x e^(-x^2/2) / sqrt(2 pi) */
SHOALI_V VF_TYPE VF(gelu_erf_derivative)(VF_TYPE x)
{
    const VF_TYPE e = VF(exp)(VF(mul)(VF(mul)(VF(set1)(-0.5f), x), x));
    const VF_TYPE density = VF(mul)(e, VF(set1)(0x1.988454p-2f));
    return VF(fma)(x, density, VF(normal_cdf)(x));
}
/* 2u, u = sqrt(2/pi) (x + 0.044715 x^3), so that (1 + tanh u)/2 = sigmoid(2u). */
SHOALI_V VF_TYPE VF(gelu_tanh_argument)(VF_TYPE x)
{
    const VF_TYPE square = VF(mul)(x, x);
    const VF_TYPE slope = VF(fma)(square, VF(set1)(0x1.2444f2p-4f), VF(set1)(0x1.988454p+0f));
    return VF(mul)(x, slope);
}
SHOALI_V VF_TYPE VF(gelu_tanh)(VF_TYPE x)
{
    return VF(mul)(x, VF(sigmoid)(VF(gelu_tanh_argument)(x)));
}
SHOALI_V VF_TYPE VF(gelu_tanh_derivative)(VF_TYPE x)
{
    /* Beyond |x| = 100 the inner derivative is 0; the limit keeps its other factor finite. */
    const VF_TYPE square = VF(min)(VF(set1)(1e4f), VF(mul)(x, x));
    const VF_TYPE argument = VF(gelu_tanh_argument)(x);
    const VF_TYPE slope = VF(fma)(square, VF(set1)(0x1.b6676cp-3f), VF(set1)(0x1.988454p+0f));
    VF_TYPE derivative;
    const VF_TYPE value = VF(sigmoid_both)(argument, &derivative);
    return VF(fma)(VF(mul)(x, slope), derivative, value);
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
