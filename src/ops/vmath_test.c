/* vmath: accuracy against libm's doubles, special values, and equal bits of all implementations. */
#include "base/cpu.h"
#include "base/test_cmocka.h"
#include "ops/ref/ref.h"
#include "ops/scalars.h"
#include "ops/vmath_isa/results.h"

#include <math.h>
#include <stdio.h>

/* ---- accuracy ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double sigmoid_derivative(double x)
{
    return exp(-fabs(x)) / ((1 + exp(-fabs(x))) * (1 + exp(-fabs(x))));
}
static double tanh_derivative(double x)
{
    return 1 / (cosh(x) * cosh(x));
}
static double cdf(double x)
{
    return 0.5 * erfc(-x * sqrt(0.5));
}
static double gelu_erf(double x)
{
    return x * cdf(x);
}
static double gelu_erf_derivative(double x)
{
    return cdf(x) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
}
static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double gelu_tanh_derivative(double x)
{
    const double k = sqrt(2 / M_PI), t = tanh(k * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}
static double silu(double x)
{
    return x * sigmoid(x);
}
static double silu_derivative(double x)
{
    return sigmoid(x) + x * sigmoid_derivative(x);
}

/* ulp: bound in units of the last place; absolute: in units of 2^-22 max(|x|, 1). */
static const struct accuracy {
    const char *name;
    float (*ours)(enum shoali_unary kind, float x, float alpha);
    enum shoali_unary kind;
    double (*theirs)(double);
    float low, high;
    double ulp, absolute;
} accuracies[] = {
    {"exp", shoali_ref_function_f32, SHOALI_EXP, exp, -104, 88.7f, 2, 0},
    {"log", shoali_ref_function_f32, SHOALI_LOG, log, 0x1p-149f, 3e38f, 2, 0},
    {"tanh", shoali_ref_function_f32, SHOALI_TANH, tanh, -1e30f, 1e30f, 2, 0},
    {"sigmoid", shoali_ref_function_f32, SHOALI_SIGMOID, sigmoid, -103, 1e30f, 3, 0},
    {"silu", shoali_ref_function_f32, SHOALI_SILU, silu, -80, 80, 3, 0},
    {"sigmoid_derivative", shoali_ref_derivative_f32, SHOALI_SIGMOID, sigmoid_derivative, -80, 80,
     4, 0},
    {"tanh_derivative", shoali_ref_derivative_f32, SHOALI_TANH, tanh_derivative, -40, 40, 4, 0},
    {"gelu_erf", shoali_ref_function_f32, SHOALI_GELU_ERF, gelu_erf, -1e4f, 1e4f, 0, 1},
    {"gelu_erf_derivative", shoali_ref_derivative_f32, SHOALI_GELU_ERF, gelu_erf_derivative, -1e4f,
     1e4f, 0, 1},
    {"gelu_tanh", shoali_ref_function_f32, SHOALI_GELU_TANH, gelu_tanh, -1e4f, 1e4f, 0, 1},
    {"gelu_tanh_derivative", shoali_ref_derivative_f32, SHOALI_GELU_TANH, gelu_tanh_derivative,
     -1e4f, 1e4f, 0, 1},
    {"silu_derivative", shoali_ref_derivative_f32, SHOALI_SILU, silu_derivative, -80, 80, 0, 1},
};

static double last_place(double x)
{
    const float a = (float)fabs(x);
    return a < 0x1p-126f ? 0x1p-149 : (double)nextafterf(a, INFINITY) - (double)a;
}

static void test_accuracy(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof accuracies / sizeof accuracies[0]; f++) {
        const struct accuracy *a = &accuracies[f];
        for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 20011) {
            const float x = v1_from_bits((uint32_t)bits);
            if (!(x >= a->low && x <= a->high))
                continue;
            const double want = a->theirs((double)x), got = (double)a->ours(a->kind, x, 0);
            const double unit = a->ulp > 0 ? a->ulp * last_place(want)
                                           : a->absolute * 0x1p-22 * fmax(fabs((double)x), 1);
            if (!(fabs(got - want) <= unit))
                fail_msg("%s(%a) is %.9g, not %.9g", a->name, (double)x, got, want);
        }
    }
}

static void test_special_values(void **state)
{
    (void)state;
    assert_true(v1_exp(-INFINITY) == 0 && v1_exp(INFINITY) == INFINITY && isnan(v1_exp(NAN)));
    assert_true(v1_exp(0) == 1 && v1_log(1) == 0);
    assert_true(v1_log(0) == -INFINITY && v1_log(INFINITY) == INFINITY);
    assert_true(isnan(v1_log(-1)) && isnan(v1_log(NAN)));
    assert_true(v1_tanh(INFINITY) == 1 && v1_tanh(-INFINITY) == -1 && isnan(v1_tanh(NAN)));
    assert_true(v1_sigmoid(INFINITY) == 1 && v1_sigmoid(-INFINITY) == 0 && isnan(v1_sigmoid(NAN)));
    assert_true(signbit(v1_tanh(-0.0f)));
    assert_true(isnan(v1_relu(NAN)) && v1_relu(-3) == 0 && v1_relu(3) == 3);
    assert_true(v1_gelu_tanh_derivative(1e30f) == 1 && v1_gelu_tanh_derivative(-1e30f) == 0);
    assert_true(v1_gelu_erf(INFINITY) == INFINITY && v1_gelu_erf(-INFINITY) == 0);
    assert_true(isnan(v1_gelu_erf(NAN)) && isnan(v1_gelu_tanh_derivative(NAN)));
    assert_true(signbit(v1_gelu_tanh(-0.0f)) && v1_gelu_erf_derivative(-0.0f) == 0.5f);
    /* The second operand decides for NaN and for zeros of both signs. */
    assert_true(v1_max(NAN, 1) == 1 && isnan(v1_max(1, NAN)) && isnan(v1_min(1, NAN)));
    assert_true(signbit(v1_max(0.0f, -0.0f)) && !signbit(v1_min(-0.0f, 0.0f)));
}

/* ---- lanes ---- */

static void test_lane_order(void **state)
{
    (void)state;
    float x[16];
    for (int j = 0; j < 16; j++)
        x[j] = ldexpf(1.0f, (j * 7) % 16 * 3 - 24) * (j % 3 ? 1.0f : -1.1f);
    float p[16];
    memcpy(p, x, sizeof p);
    for (int width = 8; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            p[j] = p[j] + p[j + width];
    assert_true(v16_sum(v16_load(x)) == p[0]);
    float largest = x[0];
    for (int j = 1; j < 16; j++)
        largest = fmaxf(largest, x[j]);
    assert_true(v16_largest(v16_load(x)) == largest);
}

static void test_tails(void **state)
{
    (void)state;
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16};
    for (int d = 0; d < 3; d++)
        for (int64_t n = 0; n <= 16; n++) {
            unsigned char memory[80], before[80];
            memset(before, 0xa5, sizeof before);
            memcpy(memory, before, sizeof memory);
            v16_store_as_n(memory, 0, n, v16_set1(1.5f), dtypes[d]);
            const size_t end = (size_t)n * shoal_dtype_bytes(dtypes[d]);
            assert_memory_equal(memory + end, before + end, sizeof memory - end);
            float lanes[16];
            v16_store(lanes, v16_load_as_n(memory, 0, n, dtypes[d]));
            for (int64_t j = 0; j < 16; j++)
                assert_true(lanes[j] == (j < n ? 1.5f : 0.0f));
        }
}

static void test_random_is_that_of_base(void **state)
{
    (void)state;
    const uint64_t firsts[] = {0, 5, UINT32_MAX - 7, (UINT64_C(9) << 32) - 1, UINT64_MAX - 40};
    const struct shoali_stream random = shoali_stream_make(3, "dropout", "a.b", 17);
    for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
        uint32_t words[16];
        v16i_store(words, v16_random_u32(&random, firsts[f]));
        for (uint64_t j = 0; j < 16; j++)
            assert_int_equal(words[j], shoali_random_u32(&random, firsts[f] + j));
    }
}

static void test_dropout_is_that_of_base(void **state)
{
    (void)state;
    const uint64_t starts[] = {0, 1000, (UINT64_C(1) << 34) - 64, (UINT64_C(9) << 32) - 1};
    const struct shoali_stream random = shoali_stream_make(3, "dropout", "a.b", 17);
    const uint32_t threshold = 0x60000000u;
    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++)
        for (uint64_t skip = 0; skip < 130; skip++)
            for (int64_t count = 1; count <= 64; count += 9) {
                const uint64_t first = starts[s] + skip;
                const uint64_t bits = v16_dropout_keep(&random, first, count, threshold);
                for (int64_t j = 0; j < count; j++)
                    assert_int_equal(bits >> j & 1, shoali_random_dense_u32(
                                                        &random, first + (uint64_t)j) >= threshold);
            }
}

static void test_same_bits(void **state)
{
    (void)state;
    const struct {
        const char *name;
        vmath_results_fn fn;
        bool able;
    } isas[] = {
#if defined(SHOALI_VMATH_ISAS) && defined(__aarch64__)
        {"neon", vmath_results_neon, shoali_cpu_get().asimd},
        {"neon_bf16", vmath_results_neon_bf16, shoali_cpu_get().bf16},
#elif defined(SHOALI_VMATH_ISAS)
        {"avx2", vmath_results_avx2,
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
        {"avx512", vmath_results_avx512,
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")},
        {"avx512_bf16", vmath_results_avx512_bf16, __builtin_cpu_supports("avx512bf16")},
#endif
        {"portable", vmath_results_portable, true},
    };
    const struct shoali_stream random = shoali_stream_make(1, "test", "", 0);
    for (uint64_t step = 0; step < 30000; step++) {
        static uint32_t want[VMATH_RESULTS][16], got[VMATH_RESULTS][16];
        uint32_t x[16], y[16];
        for (uint64_t j = 0; j < 16; j++) {
            x[j] = shoali_random_u32(&random, step * 32 + j);
            y[j] = shoali_random_u32(&random, step * 32 + 16 + j);
        }
        const int64_t n = (int64_t)(step % 17);
        vmath_results_portable(x, y, n, &random, step << 30, want);
        for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
            if (!isas[i].able)
                continue;
            isas[i].fn(x, y, n, &random, step << 30, got);
            for (int r = 0; r < VMATH_RESULTS; r++)
                for (int j = 0; j < 16; j++)
                    if (want[r][j] != got[r][j])
                        fail_msg("%s result %d of %08x: %08x, not %08x (step %llu)", isas[i].name,
                                 r, x[j], got[r][j], want[r][j], (unsigned long long)step);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_lane_order),
        cmocka_unit_test(test_tails),
        cmocka_unit_test(test_random_is_that_of_base),
        cmocka_unit_test(test_dropout_is_that_of_base),
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests_name("vmath", tests, NULL, NULL);
}
