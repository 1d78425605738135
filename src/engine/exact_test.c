/* "reduction": "exact" promises bits that do not depend on ranks, threads, device or the moment;
 * "fast" promises the order of sums. */
#include "engine/test_gpt.h"
#include "ops/ops.h"

#include <math.h>

enum { STEPS = 10 };
static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* The tests of one precision. */
struct precision {
    const char *name, *options;
    int64_t lonely_step;
};
#define COMMON "\"reduction\":\"exact\",\"gradient_clipping\":0.5"
static const struct precision fp32 = {.name = "fp32", .options = COMMON};
static const struct precision bf16 = {.name = "bf16",
                                      .options = COMMON ",\"bf16\":{\"enabled\":true}"};
/* At step 3 one micro-batch has a single target, so its gradients are some 14 times those of the
 * others and leave fp16's range on the one rank that computes it. */
static const struct precision fp16 = {
    .name = "fp16",
    .options =
        COMMON ",\"exact_unit_log2\":30,\"fp16\":{\"enabled\":true,\"initial_scale_power\":16,"
               "\"hysteresis\":1,\"loss_scale_window\":4}",
    .lonely_step = 3};

static struct gpt_run base_run(const struct precision *precision)
{
    return (struct gpt_run){.options = precision->options,
                            .dropout = 0.1,
                            .steps = STEPS,
                            .lonely_step = precision->lonely_step,
                            .lonely_micro = 10};
}

static void run_and_compare(const struct gpt_run *run, const char *what)
{
    gpt_run_ranks(*run, seats);
    gpt_assert_same(seats, run->ranks ? run->ranks : 1, reference, what);
}

static void train_reference(const struct precision *precision)
{
    gpt_run_ranks(base_run(precision), reference);
    const shoal_step_info *last = &reference[0].info[STEPS - 1];
    printf("%s: seed 7, loss %.6f -> %.6f, norm %.4f, fingerprint %016llx\n", precision->name,
           reference[0].info[0].loss, last->loss, last->grad_norm,
           (unsigned long long)reference[0].fingerprint);
    assert_true(last->loss < reference[0].info[0].loss - 0.1); /* it learns, so bits moved */
    int64_t clipped = 0;
    for (int32_t s = 0; s < STEPS; s++)
        clipped += reference[0].info[s].grad_norm > 0.5;
    assert_true(clipped > 0);
}

static void check_ranks(const struct precision *precision)
{
    for (int32_t n = 2; n <= 4; n++) {
        struct gpt_run run = base_run(precision);
        run.ranks = n;
        run_and_compare(&run, "ranks");
    }
}

static void check_threads(const struct precision *precision)
{
    for (int32_t threads = 2; threads <= 3; threads++) {
        struct gpt_run run = base_run(precision);
        run.threads = threads;
        run_and_compare(&run, "threads");
    }
}

static void check_sim(const struct precision *precision)
{
    static const char *const modes[] = {"late", "random", "thread"};
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "268435456", 1), 0);
    for (int32_t mode = 0; mode < 3; mode++) {
        assert_int_equal(setenv("SHOAL_SIM_STREAMS", modes[mode], 1), 0);
        for (int32_t n = 1; n <= 2; n++) {
            struct gpt_run run = base_run(precision);
            run.ranks = n;
            run.accelerator = "sim";
            run_and_compare(&run, modes[mode]);
        }
    }
    assert_int_equal(unsetenv("SHOAL_SIM_STREAMS"), 0);
}

static void test_precision(void **state)
{
    const struct precision *precision = *state;
    train_reference(precision);
    check_ranks(precision);
    check_threads(precision);
    check_sim(precision);
}

/* The overflow is that of one rank's one micro-batch, and all ranks skip. */
static void test_lonely_overflow(void **state)
{
    (void)state;
    struct gpt_run run = base_run(&fp16);
    for (int32_t lonely = 0; lonely < 2; lonely++) {
        run.ranks = 4;
        run.steps = 5;
        run.lonely_step = lonely ? fp16.lonely_step : 0;
        gpt_run_ranks(run, seats);
        for (int32_t r = 0; r < 4; r++) {
            for (int32_t s = 0; s < 5; s++)
                assert_int_equal(seats[r].info[s].applied, !lonely || s != fp16.lonely_step);
            assert_int_equal(seats[r].info[4].skipped_steps, lonely);
            assert_true(seats[r].info[3].loss_scale == 65536);
            assert_true(seats[r].info[4].loss_scale == (lonely ? 32768 : 65536));
        }
    }
}

/* The promise holds for every kernel table that this CPU can run. (Tables may differ from each
 * other in attention, and in bf16 products: ranks agree on one.) */
static void test_kernels(void **state)
{
    static const struct precision *const precisions[] = {&fp32, &bf16, &fp16};
    (void)state;
    for (const struct shoali_ops_table *const *table = shoali_ops_all(); *table; table++)
        for (size_t p = 0; (*table)->memory == NULL && (*table)->probe() && p < 3; p++) {
            struct gpt_run run = base_run(precisions[p]);
            run.ops = (*table)->name;
            run.steps = 3;
            gpt_run_ranks(run, reference);
            run.ranks = 3;
            run.threads = 2;
            run_and_compare(&run, run.ops);
        }
}

static void test_untied(void **state)
{
    (void)state;
    struct gpt_run run = base_run(&fp32);
    run.untied = true;
    run.samples = 2;
    gpt_run_ranks(run, reference);
    run.ranks = 4;
    run_and_compare(&run, "untied");
}

/* A step that depends on nothing must not be equal to everything: seeds, data and dropout reach the
 * fingerprint. */
static void test_differs(void **state)
{
    (void)state;
    struct gpt_run run = base_run(&fp32);
    run.steps = 2;
    gpt_run_ranks(run, reference);
    const uint64_t first = reference[0].fingerprint;
    run.dropout = 0;
    gpt_run_ranks(run, seats);
    assert_true(seats[0].fingerprint != first);
    run.dropout = 0.1;
    run.seed = 8;
    gpt_run_ranks(run, seats);
    assert_true(seats[0].fingerprint != first);

    run = (struct gpt_run){.steps = 2}; /* fast: the order of sums shows */
    gpt_run_ranks(run, reference);
    run.ranks = 3;
    gpt_run_ranks(run, seats);
    assert_true(seats[0].fingerprint != reference[0].fingerprint);
}

/* Twice the same fast run gives the same bits, whatever the threads and the device. */
static void test_fast_repeats(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 4; n++) {
        struct gpt_run run = {.ranks = n, .dropout = 0.1, .steps = 4};
        gpt_run_ranks(run, reference);
        run.threads = 3;
        run_and_compare(&run, "fast, 3 threads");
        run.accelerator = "sim";
        run_and_compare(&run, "fast, sim");
    }
}

/* ---- fast: how far N ranks may be from one --------------------------------------------------- */

enum { MICRO = 8, PARAMS_MAX = 40000 };
static float one[PARAMS_MAX], many[PARAMS_MAX];
static double magnitude[PARAMS_MAX];

/* All gradients of the first step, one parameter after the other; user: where to. */
static bool take_gradients(struct gpt_seat *seat)
{
    float *out = seat->run->user;
    static _Thread_local float dropped[PARAMS_MAX];
    EXPECT(gpt_train(seat));
    EXPECT(shoal_engine_param_count(seat->engine) <= PARAMS_MAX);
    const char *name;
    for (int32_t i = 0; (name = shoal_engine_param_name(seat->engine, i)); i++) {
        EXPECT(shoal_engine_get_gradient(seat->engine, name, seat->rank ? dropped : out) ==
               SHOAL_OK);
        out += seat->engine->module.param[i]->count;
    }
    return true;
}

/* The micro-batches' gradients g_i are the same bits for any N, because the seed 1/gas is a power
 * of two; only the order of adding them differs. Adding M numbers in any order errs by at most
 * (M-1) u sum|g_i|, u = 2^-24 (Higham 2002, 4.2), so two orders are within twice that, and the
 * mean's division adds one rounding to each. */
static void test_fast_tolerance(void **state)
{
    (void)state;
    struct gpt_run run = {.micro_batches = 1, .steps = 1, .run = take_gradients, .user = one};
    for (int32_t m = 0; m < MICRO; m++) {
        run.first_micro = m;
        gpt_run_ranks(run, seats);
        for (int32_t i = 0; i < PARAMS_MAX; i++)
            magnitude[i] += fabs((double)one[i]) / MICRO;
    }
    run.first_micro = 0;
    run.micro_batches = MICRO;
    gpt_run_ranks(run, seats);
    run.user = many;
    for (int32_t n = 2; n <= 8; n *= 2) {
        double worst = 0;
        run.ranks = n;
        gpt_run_ranks(run, seats);
        for (int32_t i = 0; i < PARAMS_MAX; i++) {
            const double bound = 2 * MICRO * ldexp(magnitude[i], -24);
            const double error = fabs((double)one[i] - (double)many[i]);
            if (error > bound)
                fail_msg("element %d: %.9g with 1 rank, %.9g with %d; allowed %.3g", (int)i,
                         (double)one[i], (double)many[i], (int)n, bound);
            worst = bound > 0 && error / bound > worst ? error / bound : worst;
        }
        printf("fast: gradients of %d ranks and of one differ by at most %.3f of the bound 2 M u "
               "sum|g|\n",
               (int)n, worst);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_precision, (void *)(uintptr_t)&fp32),
        cmocka_unit_test_prestate(test_precision, (void *)(uintptr_t)&bf16),
        cmocka_unit_test_prestate(test_precision, (void *)(uintptr_t)&fp16),
        cmocka_unit_test(test_lonely_overflow),
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_untied),
        cmocka_unit_test(test_differs),
        cmocka_unit_test(test_fast_repeats),
        cmocka_unit_test(test_fast_tolerance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
