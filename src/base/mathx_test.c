/* Accuracy against libm's long double functions, bits against fixed fingerprints. */
#include "base/mathx.h"

#include "base/hash.h"
#include "base/test_cmocka.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINT_COUNT = 100000, FINGERPRINT_COUNT = 4096 };

typedef double (*function)(double);
typedef long double (*reference)(long double);

/* xorshift64*; the library's own generator is built on what is tested here. */
static uint64_t generator;

static double uniform(double low, double high)
{
    generator ^= generator >> 12;
    generator ^= generator << 25;
    generator ^= generator >> 27;
    double unit = (double)((generator * 0x2545F4914F6CDD1Du) >> 11) * 0x1p-53;
    return fma(high - low, unit, low);
}

static double ulp_of(double value)
{
    int exponent;
    if (fabs(value) < 0x1p-1022)
        return 0x1p-1074;
    frexp(value, &exponent);
    return ldexp(1.0, exponent - 53);
}

static double error_in_ulp(double got, long double expected)
{
    double nearest = (double)expected;
    if (got == nearest)
        return 0.0;
    return (double)(fabsl((long double)got - expected) / (long double)ulp_of(nearest));
}

struct range {
    const char *name;
    function got;
    reference expected;
    double low, high;
    bool exponents; /* low and high are of |x|, both signs */
    double bound;   /* ulp */
};

static void check_range(const struct range *range)
{
    double worst = 0.0, worst_at = 0.0;
    generator = 20240607;
    for (int i = 0; i < POINT_COUNT; i++) {
        double x = uniform(range->low, range->high);
        if (range->exponents)
            x = copysign((double)exp2l((long double)x), i & 1 && range->got != shoali_ln ? -1 : 1);
        double error = error_in_ulp(range->got(x), range->expected((long double)x));
        if (!(error <= worst)) {
            worst = error;
            worst_at = x;
        }
    }
    if (!(worst <= range->bound))
        fail_msg("%s: %.3f ulp at %a, the bound is %.2f", range->name, worst, worst_at,
                 range->bound);
}

static void test_accuracy(void **state)
{
    (void)state;
    static const struct range ranges[] = {
        {"exp", shoali_exp, expl, -708.0, 709.78, false, 0.70},
        {"exp near 0", shoali_exp, expl, -1.0, 1.0, false, 0.70},
        {"exp subnormal", shoali_exp, expl, -745.1, -708.0, false, 0.90},
        {"exp tiny", shoali_exp, expl, -80.0, 0.0, true, 0.70},
        {"ln", shoali_ln, logl, -1073.0, 1023.9, true, 0.60},
        {"ln near 1", shoali_ln, logl, 0.5, 2.0, false, 0.60},
        {"ln very near 1", shoali_ln, logl, 0.9999, 1.0001, false, 0.60},
        {"tanh", shoali_tanh, tanhl, -21.0, 21.0, false, 0.95},
        {"tanh near 0", shoali_tanh, tanhl, -0.5, 0.5, false, 0.95},
        {"tanh tiny", shoali_tanh, tanhl, -80.0, 5.0, true, 0.95},
        {"sin", shoali_sin, sinl, -8.0, 8.0, false, 0.80},
        {"sin far", shoali_sin, sinl, -0x1p20, 0x1p20, false, 0.80},
        {"sin tiny", shoali_sin, sinl, -80.0, 20.0, true, 0.80},
        {"cos", shoali_cos, cosl, -8.0, 8.0, false, 0.80},
        {"cos far", shoali_cos, cosl, -0x1p20, 0x1p20, false, 0.80},
        {"erf", shoali_erf, erfl, -6.2, 6.2, false, 0.80},
        {"erf near 0", shoali_erf, erfl, -0.55, 0.55, false, 0.80},
        {"erf tiny", shoali_erf, erfl, -900.0, 3.0, true, 0.80},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        check_range(&ranges[i]);
}

/* The hard cases of reduction: the doubles nearest to the zeros and extrema. */
static void test_multiples_of_half_pi(void **state)
{
    (void)state;
    double worst = 0.0;
    for (int k = 1; k < 660000; k += 7) {
        double x = (double)((long double)k * 1.57079632679489661923L);
        worst = fmax(worst, error_in_ulp(shoali_sin(x), sinl((long double)x)));
        worst = fmax(worst, error_in_ulp(shoali_cos(x), cosl((long double)x)));
    }
    assert_true(worst <= 0.80);
}

static void test_pow(void **state)
{
    (void)state;
    generator = 77;
    for (int i = 0; i < POINT_COUNT; i++) {
        double x = exp2(uniform(-20.0, 20.0)), y = uniform(-40.0, 40.0);
        long double expected = powl((long double)x, (long double)y);
        double size = fabs(y * log(x));
        double error = size > 700.0 ? 0.0 : error_in_ulp(shoali_pow(x, y), expected);
        if (!(error <= 1.0 + size / 64.0))
            fail_msg("pow(%a, %a): %.3f ulp", x, y, error);
    }
    assert_true(shoali_pow(2.0, 10.0) == 1024.0);
    assert_true(shoali_pow(9.0, 0.5) == 3.0);
    assert_true(shoali_pow(10.0, 400.0) == (double)INFINITY);
    assert_true(shoali_pow(10.0, -400.0) == 0.0);
    assert_true(shoali_pow(0.0, 2.0) == 0.0);
    assert_true(shoali_pow(5.0, 0.0) == 1.0);
    assert_true(isnan(shoali_pow(-2.0, 2.0)));
    assert_true(isnan(shoali_pow((double)NAN, 2.0)));
}

static void test_powi(void **state)
{
    (void)state;
    assert_true(shoali_powi(3.0, 5) == 243.0);
    assert_true(shoali_powi(-2.0, 3) == -8.0);
    assert_true(shoali_powi(2.0, -4) == 0.0625);
    assert_true(shoali_powi(7.5, 0) == 1.0);
    assert_true(shoali_powi(2.0, 1023) == 0x1p1023);
    assert_true(shoali_powi(1.0, LONG_MIN) == 1.0);
    /* Squares and products in the stated order: x^5 = x * (x^2)^2. */
    double x = 0.999, square = x * x;
    assert_true(shoali_powi(x, 5) == x * (square * square));
}

static void test_special_values(void **state)
{
    (void)state;
    const double infinity = (double)INFINITY, nan = (double)NAN;
    static const function all[] = {shoali_exp, shoali_ln,   shoali_sin,
                                   shoali_cos, shoali_tanh, shoali_erf};
    for (int i = 0; i < 6; i++)
        assert_true(isnan(all[i](nan)));
    assert_true(shoali_exp(0.0) == 1.0 && shoali_exp(-infinity) == 0.0);
    assert_true(shoali_exp(infinity) == infinity && shoali_exp(709.79) == infinity);
    assert_true(shoali_exp(709.782) < infinity && shoali_exp(-746.0) == 0.0);
    assert_true(shoali_exp(-745.0) == 0x1p-1074);
    assert_true(shoali_ln(1.0) == 0.0 && !signbit(shoali_ln(1.0)));
    assert_true(shoali_ln(0.0) == -infinity && shoali_ln(-0.0) == -infinity);
    assert_true(isnan(shoali_ln(-1.0)) && shoali_ln(infinity) == infinity);
    assert_true(shoali_cos(0.0) == 1.0 && isnan(shoali_cos(infinity)));
    assert_true(isnan(shoali_sin(0x1.0001p20)) && !isnan(shoali_sin(-0x1p20)));
    assert_true(shoali_tanh(infinity) == 1.0 && shoali_tanh(-infinity) == -1.0);
    assert_true(shoali_erf(infinity) == 1.0 && shoali_erf(-infinity) == -1.0);
    assert_true(shoali_erf(0x1p-1074) == 0x1p-1074);
    assert_true(signbit(shoali_sin(-0.0)) && signbit(shoali_tanh(-0.0)) &&
                signbit(shoali_erf(-0.0)));
}

static double pow_third(double x)
{
    return shoali_pow(x < 0 ? -x : x, 1.0 / 3.0);
}

/* A change of one bit anywhere, by a compiler, a flag or a machine, changes these. */
static void test_fingerprints(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        function got;
        double low, high;
        uint64_t expected;
    } rows[] = {
        {"exp", shoali_exp, -745.0, 709.0, 0x9b155d7413ffa6a6u},
        {"exp", shoali_exp, -2.0, 2.0, 0xfe71322c5218742fu},
        {"ln", shoali_ln, 1e-3, 1e3, 0x76741bf62f2fc22eu},
        {"pow", pow_third, -1e6, 1e6, 0x656205dd1fc4f319u},
        {"sin", shoali_sin, -1e6, 1e6, 0x8f980b0e613500cdu},
        {"cos", shoali_cos, -10.0, 10.0, 0x87e25145c4a2d3c5u},
        {"tanh", shoali_tanh, -10.0, 10.0, 0x723cd2d9ebbcfdd0u},
        {"erf", shoali_erf, -6.1, 6.1, 0xdbd9009e6079f743u},
        {"erf", shoali_erf, -0.6, 0.6, 0x1c780b9a3e35349cu},
    };
    double values[FINGERPRINT_COUNT];
    bool same = true;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        generator = 4096 + i;
        for (int k = 0; k < FINGERPRINT_COUNT; k++)
            values[k] = rows[i].got(uniform(rows[i].low, rows[i].high));
        uint64_t got = shoali_hash64(values, sizeof(values));
        if (got != rows[i].expected) {
            print_error("%s in [%g, %g]: 0x%016llx\n", rows[i].name, rows[i].low, rows[i].high,
                        (unsigned long long)got);
            same = false;
        }
    }
    assert_true(same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_multiples_of_half_pi),
        cmocka_unit_test(test_pow),
        cmocka_unit_test(test_powi),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_fingerprints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
