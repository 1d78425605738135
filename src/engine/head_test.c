/* --cross-entropy-loss-fusion: bits that depend on no layout, and a training like the unfused one.
 */
#include "engine/test_gpt.h"

#include <math.h>

enum { STEPS = 5 };
/* Two tiles of the vocabulary, the second of 76. */
enum { PADDING = 1100 };
static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

static struct gpt_run base_run(const char *options)
{
    return (struct gpt_run){.options = options,
                            .dropout = 0.1,
                            .steps = STEPS,
                            .micro_batches = 4,
                            .samples = 2,
                            .fused = true,
                            .padding = PADDING};
}

static void run_and_compare(const struct gpt_run *run, const char *what)
{
    gpt_run_ranks(*run, seats);
    gpt_assert_same(seats, run->ranks ? run->ranks : 1, reference, what);
}

#define EXACT "\"reduction\":\"exact\",\"gradient_clipping\":0.5"
#define STAGE(n) EXACT ",\"zero_optimization\":{\"stage\":" n "}"
#define BF16 ",\"bf16\":{\"enabled\":true}"

static void check_layouts(const char *const *stages, int32_t count)
{
    for (int32_t s = 0; s < count; s++)
        for (int32_t ranks = 1; ranks <= 4; ranks *= 2) {
            struct gpt_run run = base_run(stages[s]);
            run.ranks = ranks;
            run.threads = 1 + (s + ranks) % 3;
            run.recompute = (s + ranks) % 2 ? "full" : NULL;
            run_and_compare(&run, stages[s]);
        }
}

/* Ranks, stages, threads, recompute. */
static void test_layouts(void **state)
{
    static const char *const fp32[] = {EXACT, STAGE("1"), STAGE("2"), STAGE("3")};
    static const char *const bf16[] = {EXACT BF16, STAGE("2") BF16, STAGE("3") BF16};
    (void)state;
    gpt_run_ranks(base_run(fp32[0]), reference);
    assert_true(reference[0].info[STEPS - 1].loss < reference[0].info[0].loss - 0.1);
    check_layouts(fp32, 4);
    gpt_run_ranks(base_run(bf16[0]), reference);
    check_layouts(bf16, 3);
}

static void test_untied(void **state)
{
    (void)state;
    struct gpt_run run = base_run(STAGE("1"));
    run.untied = true;
    gpt_run_ranks(run, reference);
    run.ranks = 4;
    run.options = STAGE("3");
    run_and_compare(&run, "untied");
}

/* Labels are smoothed in training alone: before the first step evaluation knows nothing of it. */
static double evaluated[2][2]; /* [smoothed][tiled] */

static bool evaluate_then_train(struct gpt_seat *seat)
{
    const struct gpt_run *run = seat->run;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 5,
                                   &evaluated[run->label_smoothing > 0][run->fused]) == SHOAL_OK);
    return gpt_train(seat);
}

static void test_label_smoothing(void **state)
{
    (void)state;
    for (int32_t fused = 0; fused < 2; fused++) {
        struct gpt_run run = base_run(EXACT);
        run.fused = fused;
        run.run = evaluate_then_train;
        gpt_run_ranks(run, reference);
        run.label_smoothing = 0.2;
        gpt_run_ranks(run, seats);
        assert_true(evaluated[0][fused] > 0 && evaluated[1][fused] == evaluated[0][fused]);
        assert_true(seats[0].fingerprint != reference[0].fingerprint);
        assert_true(seats[0].info[STEPS - 1].loss > reference[0].info[STEPS - 1].loss);
        memcpy(reference, seats, sizeof reference);
        run.ranks = 4;
        run.options = STAGE("3");
        run.run = NULL;
        run_and_compare(&run, "smoothed labels");
    }
}

static void test_sim(void **state)
{
    static const char *const modes[] = {"late", "random", "thread"};
    (void)state;
    gpt_run_ranks(base_run(EXACT BF16), reference);
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "268435456", 1), 0);
    for (int32_t mode = 0; mode < 3; mode++) {
        struct gpt_run run = base_run(STAGE("3") BF16);
        assert_int_equal(setenv("SHOAL_SIM_STREAMS", modes[mode], 1), 0);
        run.ranks = 2;
        run.accelerator = "sim";
        run_and_compare(&run, modes[mode]);
    }
    assert_int_equal(unsetenv("SHOAL_SIM_STREAMS"), 0);
}

/* Losses of the two ways, step by step and on average over the second half. */
static void compare_trainings(const char *name, int32_t steps, double first, double each,
                              double average)
{
    double difference = 0, largest = 0;
    for (int32_t s = 0; s < steps; s++) {
        const double d = reference[0].info[s].loss - seats[0].info[s].loss;
        if (s == 0 && !(fabs(d) <= first))
            fail_msg("%s: the first losses differ by %g, more than %g", name, d, first);
        largest = fmax(largest, fabs(d));
        difference += s >= steps / 2 ? d / (steps - steps / 2) : 0;
    }
    print_message("%s: losses differ by up to %.3g, on average by %.3g\n", name, largest,
                  difference);
    assert_true(largest <= each);
    assert_true(fabs(difference) <= average);
}

/* The first step's losses are those of the same weights: they differ by some roundings of a loss of
 * 7 in fp32, and of its logits in bf16. Afterwards the two trainings drift apart: in fp32 slowly;
 * in bf16 they are two samples of the same training, whose single losses are worth little. */
static void test_like_unfused(void **state)
{
    static const char *const options[] = {"\"gradient_clipping\":0.5",
                                          "\"gradient_clipping\":0.5" BF16};
    (void)state;
    for (int32_t half = 0; half < 2; half++) {
        struct gpt_run run = base_run(options[half]);
        run.steps = 20;
        gpt_run_ranks(run, reference);
        run.fused = false;
        gpt_run_ranks(run, seats);
        compare_trainings(half ? "bf16" : "fp32", (int32_t)run.steps,
                          half ? 2 * 7 * 0x1p-9 : 8 * 0x1p-21, half ? 0.5 : 1e-3,
                          half ? 0.1 : 1e-3);
        assert_true(reference[0].info[run.steps - 1].loss < reference[0].info[0].loss - 1);
        assert_true(reference[0].fingerprint != seats[0].fingerprint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),         cmocka_unit_test(test_untied),
        cmocka_unit_test(test_label_smoothing), cmocka_unit_test(test_sim),
        cmocka_unit_test(test_like_unfused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
