/* The oracle itself, kernels without a gradient: against known values and naive formulas in double.
 */
#include "ops/conformance.h"
#include "ops/ref/ref.h"

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
        cmocka_unit_test(test_convert_rounds_once),
        cmocka_unit_test(test_norm2_is_exact),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_fixed_round_trip),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_reduce_sources),
    };
    return cmocka_run_group_tests_name("ref_flat", tests, NULL, NULL);
}
