/* The oracle itself, kernels without a gradient: against known values and naive formulas in double.
 */
#include "ops/conformance/conformance.h"
#include "ops/ref/ref.h"

#include <stdlib.h>

/* ---- moving and element-wise ---- */

static void test_copy_strided(void **state)
{
    (void)state;
    /* [2, 3, 2] out of rows of 5, to [2, 2, 3]. */
    int32_t x[30], y[12] = {0};
    for (int i = 0; i < 30; i++)
        x[i] = i;
    struct shoali_copy_strided_args args = {.x = x,
                                            .y = y,
                                            .ndim = 3,
                                            .dim = {2, 3, 2},
                                            .x_stride = {15, 5, 1},
                                            .y_stride = {6, 1, 3},
                                            .dtype = SHOAL_I32};
    shoali_ref_copy_strided(&args, NULL);
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 2; c++)
                assert_int_equal(y[a * 6 + c * 3 + b], x[a * 15 + b * 5 + c]);
    const float one = 1.5f;
    float sum = 2;
    args = (struct shoali_copy_strided_args){.x = &one, .y = &sum, .accumulate = 1};
    shoali_ref_copy_strided(&args, NULL);
    assert_true(sum == 3.5f);
}

static void test_reduce_and_broadcast(void **state)
{
    (void)state;
    const double x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}; /* [2, 3, 2] */
    double y[4] = {100, 100, 100, 100}, back[12];
    const struct shoali_reduce_args reduce = {.x = x,
                                              .y = y,
                                              .outer = 2,
                                              .reduced = 3,
                                              .inner = 2,
                                              .factor = 0.5,
                                              .accumulate = 1,
                                              .dtype = SHOAL_F64,
                                              .dtype_out = SHOAL_F64};
    shoali_ref_reduce(&reduce, NULL);
    assert_true(y[0] == 104.5 && y[1] == 106 && y[2] == 113.5 && y[3] == 115);
    const struct shoali_broadcast_args broadcast = {
        .x = y, .y = back, .outer = 2, .reduced = 3, .inner = 2, .factor = 2, .dtype = SHOAL_F64};
    shoali_ref_broadcast(&broadcast, NULL);
    for (int i = 0; i < 12; i++)
        assert_true(back[i] == 2 * y[i / 6 * 2 + i % 2]);
}

static void test_binary_and_axpy(void **state)
{
    (void)state;
    const double a[4] = {1, 2, 3, 4}, b[2] = {2, 8};
    const double want[4][4] = {
        {3, 10, 5, 12}, {-1, -6, 1, -4}, {2, 16, 6, 32}, {0.5, 0.25, 1.5, 0.5}};
    for (int kind = SHOALI_ADD; kind <= SHOALI_DIV; kind++) {
        double y[4];
        const struct shoali_binary_args args = {a, b,        y, 4, 2, (enum shoali_binary)kind,
                                                0, SHOAL_F64};
        shoali_ref_binary(&args, NULL);
        assert_memory_equal(y, want[kind], sizeof y);
    }
    double y[4] = {10, 10, 10, 10};
    const struct shoali_axpy_args axpy = {a, y, 4, -2, 1, SHOAL_F64};
    shoali_ref_axpy(&axpy, NULL);
    assert_true(y[0] == 8 && y[3] == 2);
}

/* The share that is kept, its scale, and that shards draw what the whole draws. */
static void test_dropout_and_random_fill(void **state)
{
    (void)state;
    enum { N = 20000 };
    static double x[N], y[N], z[N];
    struct shoali_set_args set = {x, N, 1.0, SHOAL_F64};
    shoali_ref_set(&set, NULL);
    struct shoali_dropout_args dropout = {.x = x,
                                          .y = y,
                                          .count = N,
                                          .probability = 0.25f,
                                          .random = shoali_stream_make(1, "dropout", "", 0),
                                          .dtype = SHOAL_F64};
    shoali_ref_dropout(&dropout, NULL);
    int kept = 0;
    for (int i = 0; i < N; i++) {
        assert_true(y[i] == 0 || fabs(y[i] - 4.0 / 3) < 1e-15);
        kept += y[i] != 0;
    }
    assert_true(abs(kept - 3 * N / 4) < 5 * 61); /* five standard deviations of sqrt(N 3/16) */
    dropout.first_element = 1000;
    dropout.count = N - 1000;
    dropout.y = z;
    shoali_ref_dropout(&dropout, NULL);
    assert_memory_equal(z, y + 1000, sizeof(double) * (N - 1000));

    struct shoali_random_fill_args fill = {.y = x,
                                           .count = N,
                                           .first_element = 7,
                                           .a = 2,
                                           .b = 3,
                                           .random = shoali_stream_make(1, "init", "w", 0),
                                           .dtype = SHOAL_F64};
    shoali_ref_random_fill(&fill, NULL);
    double mean = 0, square = 0;
    for (int i = 0; i < N; i++) {
        mean += x[i] / N;
        square += (x[i] - 2) * (x[i] - 2) / N;
    }
    assert_true(x[5] == 2 + 3 * shoali_random_normal(&fill.random, 12));
    assert_true(fabs(mean - 2) < 5 * 3 / sqrt(N) && fabs(square / 9 - 1) < 5 * sqrt(2.0 / N));
    fill.uniform = 1;
    shoali_ref_random_fill(&fill, NULL);
    for (int i = 0; i < N; i++)
        assert_true(x[i] >= 2 && x[i] < 3);
}

/* ---- conversions ---- */

static void test_convert_rounds_once(void **state)
{
    (void)state;
    /* Just above the middle between two bf16 by less than a float can show: two roundings would go
     * down. */
    const double x[2] = {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8};
    uint16_t y[2];
    struct shoali_convert_args args = {x, y, 2, SHOAL_F64, SHOAL_BF16};
    shoali_ref_convert(&args, NULL);
    assert_int_equal(y[0], 0x3f81);
    assert_int_equal(y[1], 0x3f80);
    const int64_t i[2] = {(INT64_C(1) << 60) + (INT64_C(1) << 52) + 1,
                          -((INT64_C(1) << 60) + (INT64_C(1) << 52))};
    args = (struct shoali_convert_args){i, y, 2, SHOAL_I64, SHOAL_BF16};
    shoali_ref_convert(&args, NULL);
    assert_int_equal(y[0], 0x5d81);
    assert_int_equal(y[1], 0xdd80);
    const float f[5] = {2.5f, -2.5f, 1e20f, NAN, 300.0f};
    int32_t n[5];
    args = (struct shoali_convert_args){f, n, 5, SHOAL_F32, SHOAL_I32};
    shoali_ref_convert(&args, NULL);
    assert_true(n[0] == 2 && n[1] == -2 && n[2] == INT32_MAX && n[3] == 0 && n[4] == 300);
}

/* ---- exact ---- */

static void test_norm2_is_exact(void **state)
{
    (void)state;
    /* Cancels nothing and needs all limbs: 2^59 squared is 2^180 in units of 2^-62. */
    const float x[4] = {0x1p59f, 3.0f, -0x1p-31f, 0x1p-32f};
    uint64_t limbs[3] = {0, 0, 0};
    uint32_t flag = 0;
    const struct shoali_norm2_args args = {x, limbs, &flag, 4};
    shoali_ref_norm2(&args, NULL);
    /* 9 * 2^62 = 2 * 2^64 + 2^62; 2^-62 is one unit; 2^-64 is a quarter of one and rounds to 0. */
    assert_true(limbs[0] == (UINT64_C(1) << 62) + 1);
    assert_true(limbs[1] == 2 && limbs[2] == UINT64_C(1) << (180 - 128));
    assert_int_equal(flag, 0);
}

static void test_clip(void **state)
{
    (void)state;
    uint64_t limbs[3] = {0, 100, 0}; /* 100 * 2^64 units of 2^-62: 400 */
    uint32_t flag = 0;
    float out[3];
    struct shoali_clip_args args = {limbs, &flag, out, 2.0, 0.5};
    shoali_ref_clip(&args, NULL);
    assert_true(out[0] == 10.0f && out[2] == 0);
    assert_near((double)out[1], 0.5 * 0.5 / 10.000001, 1e-7, "multiplier");
    flag = 1;
    shoali_ref_clip(&args, NULL);
    assert_true(isnan(out[0]) && out[2] == 1);
}

static void test_fixed_round_trip(void **state)
{
    (void)state;
    const float x[4] = {1.5f, -3.25f, 0x1p-45f, 40000.0f};
    int64_t fixed[4] = {1, 1, 1, 1};
    float y[4];
    uint32_t flag = 0;
    const struct shoali_to_fixed_args to = {x, fixed, &flag, 4, 44, 1, 0x1p15};
    shoali_ref_to_fixed(&to, NULL);
    assert_int_equal(fixed[0], (INT64_C(3) << 43) + 1);
    assert_int_equal(fixed[2], 1); /* half a unit rounds to the even 0 */
    assert_int_equal(fixed[3], 1); /* beyond the limit nothing is added */
    assert_int_equal(flag, 1);
    const struct shoali_from_fixed_args from = {fixed, y, 4, 44, 2.0};
    shoali_ref_from_fixed(&from, NULL);
    assert_true(y[0] == 0.75f && y[1] == -1.625f);
}

/* Off by at most half a scale: max / 127 / 2 and max / 7 / 2 of the block; one ulp of the largest
 * for the roundings of scale, quotient and product. */
static void test_quantize_bound(void **state)
{
    (void)state;
    enum { N = 1000 };
    float x[N], y[N];
    double message[N];
    for (int32_t bits = 4; bits <= 8; bits += 4)
        for (uint64_t seed = 1; seed < 20; seed++) {
            const struct shoali_stream random = shoali_stream_make(seed, "quantize", "", 0);
            for (int i = 0; i < N; i++)
                x[i] = ldexpf(shoali_random_uniform(&random, (uint64_t)i) - 0.5f, (int)seed - 10);
            const struct shoali_quantize_args to = {x, message, N, bits, SHOAL_F32};
            const struct shoali_dequantize_args from = {message, y, N, bits, 0, SHOAL_F32};
            shoali_ref_quantize(&to, NULL);
            shoali_ref_dequantize(&from, NULL);
            for (int first = 0; first < N; first += SHOALI_QUANTIZE_BLOCK) {
                double largest = 0;
                const int end =
                    first + SHOALI_QUANTIZE_BLOCK < N ? first + SHOALI_QUANTIZE_BLOCK : N;
                for (int i = first; i < end;
                     i++) /* fmax: gcc 12 for ARM ends with an error of its own */
                    largest = fabs((double)x[i]) > largest ? fabs((double)x[i]) : largest;
                const double bound = largest / ((1 << (bits - 1)) - 1) / 2 + largest * 0x1p-22;
                for (int i = first; i < end; i++)
                    if (fabs((double)x[i] - (double)y[i]) > bound)
                        fail_msg("seed %d, %d bits, element %d: %g became %g", (int)seed, (int)bits,
                                 i, (double)x[i], (double)y[i]);
            }
        }
    assert_int_equal(shoali_quantized_bytes(1024, 8), 1024 + 16);
    assert_int_equal(shoali_quantized_bytes(1024, 4), 512 + 16);
    x[300] = NAN;
    shoali_ref_quantize(&(struct shoali_quantize_args){x, message, N, 8, SHOAL_F32}, NULL);
    shoali_ref_dequantize(&(struct shoali_dequantize_args){message, y, N, 8, 0, SHOAL_F32}, NULL);
    assert_true(isnan(y[256]) && isnan(y[511]) && !isnan(y[255]) && !isnan(y[512]));
}

/* ---- optimizer ---- */

static void test_adam(void **state)
{
    (void)state;
    enum { N = 20 };
    struct trial memory = {0};
    shoali_arena_init(&memory.arena);
    for (int32_t decoupled = 0; decoupled < 2; decoupled++) {
        float *p = floats(&memory, N, SHOAL_F32), *m = floats(&memory, N, SHOAL_F32);
        float *v = floats_between(&memory, N, SHOAL_F32, 0.1, 1);
        const float *g = floats(&memory, N, SHOAL_F32);
        float p0[N], m0[N], v0[N];
        memcpy(p0, p, sizeof p0);
        memcpy(m0, m, sizeof m0);
        memcpy(v0, v, sizeof v0);
        const struct shoali_adam_args args = {.param = p,
                                              .exp_avg = m,
                                              .exp_avg_sq = v,
                                              .grad = g,
                                              .count = N,
                                              .beta1 = 0.9f,
                                              .beta2 = 0.99f,
                                              .eps = 1e-6f,
                                              .weight_decay = 0.1f,
                                              .lr = 0.01f,
                                              .step_size = 0.02f,
                                              .inv_sqrt_c2 = 1.5f,
                                              .decoupled = decoupled};
        shoali_ref_adam(&args, NULL);
        for (int i = 0; i < N; i++) {
            const double gi = (double)g[i] + (decoupled ? 0 : 0.1 * (double)p0[i]);
            const double mi = 0.9 * (double)m0[i] + 0.1 * gi;
            const double vi = 0.99 * (double)v0[i] + 0.01 * gi * gi;
            const double pi =
                (double)p0[i] * (decoupled ? 1 - 0.001 : 1) - 0.02 * mi / (sqrt(vi) * 1.5 + 1e-6);
            assert_near((double)p[i], pi, 2e-6, "param");
            assert_near((double)m[i], mi, 2e-6, "exp_avg");
            assert_near((double)v[i], vi, 2e-6, "exp_avg_sq");
        }
    }
    shoali_arena_fini(&memory.arena);
}

/* Sources in their order, wrapping integers, the average of 16-bit floats with one rounding. */
static void test_reduce_sources(void **state)
{
    (void)state;
    const uint8_t a = 200, b = 100;
    uint8_t c = 0;
    struct shoali_reduce_sources_args args = {
        .x = {&a, &b}, .sources = 2, .y = {&c}, .destinations = 1, .count = 1, .dtype = SHOAL_U8};
    shoali_ref_reduce_sources(&args, NULL);
    assert_int_equal(c, 44);
    args.op = SHOALI_MAX;
    shoali_ref_reduce_sources(&args, NULL);
    assert_int_equal(c, 200);
    const uint16_t one = shoali_f32_to_bf16(1.0f), small = shoali_f32_to_bf16(0x1p-8f);
    uint16_t y[2];
    args = (struct shoali_reduce_sources_args){
        .x = {&one, &small, &small, &small},
        .sources = 4,
        .y = {&y[0], &y[1]},
        .destinations = 2,
        .count = 1,
        .op = SHOALI_AVG,
        .dtype = SHOAL_BF16,
    };
    shoali_ref_reduce_sources(&args, NULL);
    /* (1 + 3/256)/4: rounding each sum to bf16 would have lost the small ones. */
    assert_int_equal(y[0], shoali_f32_to_bf16((1 + 3 * 0x1p-8f) / 4));
    assert_int_equal(y[1], y[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy_strided),
        cmocka_unit_test(test_reduce_and_broadcast),
        cmocka_unit_test(test_binary_and_axpy),
        cmocka_unit_test(test_dropout_and_random_fill),
        cmocka_unit_test(test_convert_rounds_once),
        cmocka_unit_test(test_norm2_is_exact),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_fixed_round_trip),
        cmocka_unit_test(test_quantize_bound),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_reduce_sources),
    };
    return cmocka_run_group_tests_name("ref_flat", tests, NULL, NULL);
}
