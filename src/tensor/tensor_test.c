/* tensor_test.c - dtypes, shapes, 16-bit conversions. */
#include "base/test_cmocka.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static void test_dtypes(void **state)
{
    (void)state;
    static const size_t bytes[SHOAL_DTYPE_COUNT] = {4, 2, 2, 8, 4, 8, 1};
    static const char *const name[SHOAL_DTYPE_COUNT] = {"F32", "BF16", "F16", "F64",
                                                        "I32", "I64",  "U8"};
    for (int i = 0; i < SHOAL_DTYPE_COUNT; i++) {
        assert_int_equal(shoal_dtype_bytes((shoal_dtype)i), bytes[i]);
        assert_string_equal(shoal_dtype_name((shoal_dtype)i), name[i]);
    }
    assert_int_equal(shoal_dtype_bytes(SHOAL_DTYPE_COUNT), 0);
    assert_string_equal(shoal_dtype_name(SHOAL_DTYPE_COUNT), "?");
}

static void test_shapes(void **state)
{
    (void)state;
    const shoal_shape scalar = {0, {0}};
    const shoal_shape a = shoal_shape_3(12, 64, 128);
    shoal_shape b = a;
    assert_int_equal(shoal_shape_count(&scalar), 1);
    assert_int_equal(shoal_shape_count(&a), 12 * 64 * 128);
    b.dim[4] = 77; /* dims past ndim do not count */
    assert_true(shoali_shape_equal(&a, &b));
    b.dim[2] = 127;
    assert_false(shoali_shape_equal(&a, &b));
    b = shoal_shape_2(12, 64);
    assert_false(shoali_shape_equal(&a, &b));

    const shoal_shape huge = shoal_shape_3((int64_t)1 << 31, (int64_t)1 << 31, 2);
    const shoal_shape most = shoal_shape_2(INT64_MAX, 1);
    const shoal_shape negative = shoal_shape_2(-1, 0);
    const shoal_shape empty = shoal_shape_3((int64_t)1 << 40, (int64_t)1 << 40, 0);
    const shoal_shape wrong = {SHOAL_MAX_DIMS + 1, {1, 1, 1, 1, 1}};
    assert_int_equal(shoal_shape_count(&huge), -1);
    assert_true(shoal_shape_count(&most) == INT64_MAX);
    assert_int_equal(shoal_shape_count(&negative), -1);
    assert_int_equal(shoal_shape_count(&empty), 0);
    assert_int_equal(shoal_shape_count(&wrong), -1);

    char text[128];
    assert_string_equal(shoali_shape_format(&a, text), "[12, 64, 128]");
    assert_string_equal(shoali_shape_format(&scalar, text), "[]");
    const shoal_shape wide = {5, {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN}};
    assert_int_equal(strlen(shoali_shape_format(&wide, text)), 5 * 20 + 4 * 2 + 2);
}

static void test_describe(void **state)
{
    (void)state;
    struct shoal_tensor tensor;
    memset(&tensor, 0xff, sizeof tensor);
    tensor.shape = shoal_shape_2(3, 5);
    shoali_tensor_describe(&tensor, SHOAL_BF16, &tensor.shape);
    assert_int_equal(shoal_tensor_dtype(&tensor), SHOAL_BF16);
    assert_int_equal(shoal_shape_count(shoal_tensor_shape(&tensor)), 15);
    const struct shoali_block whole = shoali_block_whole(&tensor.shape);
    assert_true(shoali_block_equal(&tensor.block, &whole));
    assert_int_equal(tensor.bound, 15);
    assert_int_equal(tensor.node, -1);
    assert_null(tensor.data);
    assert_null(tensor.stream);
    for (int i = 0; i < SHOAL_MAX_DIMS; i++)
        assert_int_equal(tensor.block.offset[i], 0);
}

static void test_f16_round_trip(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const float x = shoali_f16_to_f32((uint16_t)i);
        const uint16_t back = shoali_f32_to_f16(x);
        const uint32_t exponent = (i >> 10) & 31, mantissa = i & 1023;
        if (exponent == 31 && mantissa != 0) {
            assert_true(isnan(x));
            assert_int_equal(back, i | 0x200u); /* quiet, payload and sign kept */
            continue;
        }
        double expected = exponent == 0 ? ldexp(mantissa, -24)
                                        : ldexp(1024 + (double)mantissa, (int)exponent - 25);
        if (exponent == 31)
            expected = INFINITY;
        if (i & 0x8000u)
            expected = -expected;
        assert_true((double)x == expected);
        assert_int_equal(signbit(x) != 0, i >> 15);
        assert_int_equal(back, i);
    }
}

static void test_bf16_round_trip(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const float x = shoali_bf16_to_f32((uint16_t)i);
        assert_int_equal(bits_of(x), i << 16);
        const bool nan = (i & 0x7fffu) > 0x7f80u;
        assert_int_equal(shoali_f32_to_bf16(x), nan ? i | 0x40u : i);
    }
}

/* The nearest number with `digits` significand bits, smallest normal 2^least, largest exponent
 * `most`, ties to even: by scaling so that rint() of a double rounds at the right bit. */
static double round_oracle(double x, int digits, int least, int most)
{
    if (x == 0 || isinf(x))
        return x;
    int exponent;
    (void)frexp(x, &exponent);
    exponent -= 1; /* |x| in [2^exponent, 2^(exponent+1)) */
    if (exponent < least)
        exponent = least;
    const double y = ldexp(rint(ldexp(x, digits - 1 - exponent)), exponent - digits + 1);
    return fabs(y) >= ldexp(1, most + 1) ? copysign(INFINITY, x) : y;
}

static void check_rounding(uint32_t u)
{
    const float x = float_of(u);
    const float half = shoali_f16_to_f32(shoali_f32_to_f16(x));
    const float brain = shoali_bf16_to_f32(shoali_f32_to_bf16(x));
    if (isnan(x)) {
        assert_true(isnan(half) && isnan(brain));
        return;
    }
    const bool good = (double)half == round_oracle(x, 11, -14, 15) &&
                      (double)brain == round_oracle(x, 8, -126, 127) &&
                      !signbit(half) == !signbit(x) && !signbit(brain) == !signbit(x);
    if (!good)
        print_error("conversion of float bits %08x is wrong: f16 %a, bf16 %a\n", u, (double)half,
                    (double)brain);
    assert_true(good);
}

/* Every exponent and sign with the mantissas at and around each rounding boundary of both types,
 * and with pseudo-random ones. */
static void test_rounding(void **state)
{
    (void)state;
    uint32_t random = 12345;
    for (uint32_t top = 0; top < 512; top++) {
        for (uint32_t bit = 0; bit < 23; bit++)
            for (uint32_t other = 0; other < 23; other++)
                for (int32_t delta = -1; delta <= 1; delta++) {
                    const uint32_t mantissa = ((1u << bit) | (1u << other)) + (uint32_t)delta;
                    check_rounding((top << 23) | (mantissa & 0x7fffffu));
                }
        for (int i = 0; i < 500; i++) {
            random = random * 1664525u + 1013904223u;
            check_rounding((top << 23) | (random >> 9));
        }
    }
    assert_int_equal(shoali_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(shoali_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(shoali_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(shoali_f32_to_f16(0x1.000002p-25f), 1);
    assert_int_equal(shoali_f32_to_f16(0x1.8p-24f), 2);
    assert_int_equal(shoali_f32_to_f16(0x1.ffcp-15f), 0x400); /* rounds up to the first normal */
    assert_int_equal(shoali_f32_to_bf16(float_of(0x7f7fffffu)), 0x7f80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),          cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_describe),        cmocka_unit_test(test_f16_round_trip),
        cmocka_unit_test(test_bf16_round_trip), cmocka_unit_test(test_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
