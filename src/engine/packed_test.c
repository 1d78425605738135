/* Packed weights change no bits, are made once per step and use, and are in the books. */
#include "engine/test_gpt.h"

static struct gpt_seat seats[GPT_RANKS_MAX], others[GPT_RANKS_MAX];

enum { STEPS = 3 };

/* Trains with weights that are replaced once from outside. */
static bool train_and_replace(struct gpt_seat *seat)
{
    static const float values[32 * 32 * 3];
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT((seat->engine->packed_weights_bytes > 0) == (seat->run->user != NULL));
    const char *name = NULL;
    for (int32_t i = 0; !name || !strstr(name, "attn.c_attn.weight"); i++) {
        name = shoal_engine_param_name(seat->engine, i);
        EXPECT(name != NULL);
    }
    for (; seat->steps_done < STEPS; seat->steps_done++) {
        shoal_step_info *info = &seat->info[seat->steps_done];
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, info) >= 0);
        if (seat->steps_done != 1)
            continue;
        EXPECT(shoal_engine_set_param(seat->engine, name, values) == SHOAL_OK);
    }
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    return true;
}

static void compare(struct gpt_run run, const char *with, const char *without)
{
    static int yes;
    char what[128];
    snprintf(what, sizeof what, "%s, %d ranks, %d threads, %s", with, (int)run.ranks,
             (int)run.threads, run.accelerator ? run.accelerator : "cpu");
    run.run = train_and_replace;
    run.options = without;
    gpt_run_ranks(run, others);
    run.options = with;
    run.user = &yes;
    gpt_run_ranks(run, seats);
    gpt_assert_same(seats, run.ranks ? run.ranks : 1, &others[0], what);
}

static void test_same_bits(void **state)
{
    static const char *const option[][2] = {
        {NULL, "\"packed_weights\":false"}, /* by itself: 12 products read a weight in a step */
        {"\"packed_weights\":true", "\"packed_weights\":false"},
        {"\"packed_weights\":\"auto\",\"bf16\":{\"enabled\":true}",
         "\"packed_weights\":false,\"bf16\":{\"enabled\":true}"},
        {"\"fp16\":{\"enabled\":true}", "\"packed_weights\":false,\"fp16\":{\"enabled\":true}"},
        {"\"zero_optimization\":{\"stage\":2}",
         "\"packed_weights\":false,\"zero_optimization\":{\"stage\":2}"},
    };
    (void)state;
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "268435456", 1), 0);
    for (size_t i = 0; i < sizeof option / sizeof option[0]; i++) {
        compare((struct gpt_run){.threads = 1 + (int32_t)i % 3}, option[i][0], option[i][1]);
        compare((struct gpt_run){.ranks = 2, .accelerator = "sim", .untied = true}, option[i][0],
                option[i][1]);
        compare((struct gpt_run){.ranks = 3, .recompute = "full", .dropout = 0.1}, option[i][0],
                option[i][1]);
    }
}

/* Kernels that a step launched. */
static int64_t launches(const struct shoal_engine *engine)
{
    struct shoali_device_counters counters;
    shoali_device_get_counters(engine->device, &counters);
    return counters.launch_count;
}

static bool count_launches(struct gpt_seat *seat)
{
    int64_t *result = seat->run->user, before = 0;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    for (int32_t step = 0; step < STEPS; step++) {
        before = launches(seat->engine);
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    }
    *result = launches(seat->engine) - before;
    return true;
}

/* 2 layers of 4 weights and the head's, each for both uses, whatever the number of micro-batches.
 */
static void test_packed_once_per_step(void **state)
{
    (void)state;
    for (int64_t micro_batches = 1; micro_batches <= 5; micro_batches += 2) {
        int64_t with, without;
        struct gpt_run run = {.micro_batches = micro_batches, .run = count_launches};
        run.options = "\"packed_weights\":true";
        run.user = &with;
        gpt_run_ranks(run, seats);
        run.options = "\"packed_weights\":false";
        run.user = &without;
        gpt_run_ranks(run, seats);
        assert_int_equal(with - without, 2 * (2 * 4 + 1));
    }
}

static bool expect_none(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(seat->engine->packed_weights_bytes == 0);
    return true;
}

/* Not where a weight is read once, where it does not stay, and where kernels have no such layout.
 */
static void test_where_there_are_none(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.micro_batches = 1, .run = expect_none}, seats);
    gpt_run_ranks((struct gpt_run){.options = "\"zero_optimization\":{\"stage\":3}",
                                   .ranks = 2,
                                   .run = expect_none},
                  seats);
    gpt_run_ranks(
        (struct gpt_run){.options = "\"packed_weights\":true", .ops = "ref", .run = expect_none},
        seats);
}

static bool expect_refusal(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_ECONFIG);
    EXPECT(strstr(shoal_error_message(), "packed_weights") != NULL);
    return true;
}

static void test_refused_in_stage_3(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.options = "\"packed_weights\":true,"
                                              "\"zero_optimization\":{\"stage\":3}",
                                   .run = expect_refusal},
                  seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_packed_once_per_step),
        cmocka_unit_test(test_where_there_are_none),
        cmocka_unit_test(test_refused_in_stage_3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
