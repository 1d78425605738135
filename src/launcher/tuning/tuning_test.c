/* Which trials there are, and in which order. What a whole search does,
 * tests/cli/autotuning_test.sh. */
#include "base/test_cmocka.h"
#include "launcher/tuning/tuning.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
enum { GRID, RANDOM, MODEL };
enum { THROUGHPUT, LATENCY };

/* ---- order ------------------------------------------------------------------------------------ */
enum { TRIALS = 12 };

/* Three values of one knob, two of two others; what each trial would measure. */
static void begin(struct shoali_tuning *tuning, struct shoali_trial trials[TRIALS])
{
    memset(tuning, 0, sizeof(*tuning));
    memset(trials, 0, TRIALS * sizeof(trials[0]));
    tuning->trial = trials;
    tuning->trials = TRIALS;
    tuning->knob_count = 3;
    tuning->knobs[0].count = 3;
    tuning->knobs[1].count = tuning->knobs[2].count = 2;
    for (int32_t i = 0; i < TRIALS; i++) {
        trials[i].knob[0] = i / 4;
        trials[i].knob[1] = i / 2 % 2;
        trials[i].knob[2] = i % 2;
        trials[i].knob[3] = -1;
    }
}

static double measured(const struct shoali_trial *trial)
{
    return 100 + 20.0 * trial->knob[0] - 30.0 * trial->knob[1] + 5.0 * trial->knob[2];
}

/* Runs them all; *best_at: when the best one was tried, from 1. */
static void run_all(struct shoali_tuning *tuning, int32_t order[TRIALS], int32_t *best_at)
{
    int32_t best = 0;
    for (int32_t i = 1; i < TRIALS; i++)
        if (shoali_tuning_better(tuning, measured(&tuning->trial[i]),
                                 measured(&tuning->trial[best])))
            best = i;
    for (int32_t i = 0; i < TRIALS; i++) {
        order[i] = shoali_tuning_next(tuning, 0, TRIALS);
        assert_true(order[i] >= 0 && order[i] < TRIALS);
        struct shoali_trial *trial = &tuning->trial[order[i]];
        assert_false(trial->over);
        trial->over = trial->runs = true;
        trial->value = measured(trial);
        if (order[i] == best)
            *best_at = i + 1;
    }
    assert_int_equal(shoali_tuning_next(tuning, 0, TRIALS), -1);
}

static void test_order(void **state)
{
    (void)state;
    struct shoali_tuning tuning;
    struct shoali_trial trials[TRIALS];
    int32_t order[TRIALS], again[TRIALS], best_at;
    begin(&tuning, trials);
    run_all(&tuning, order, &best_at);
    for (int32_t i = 0; i < TRIALS; i++)
        assert_int_equal(order[i], i);
    begin(&tuning, trials);
    tuning.config.tuner_type = RANDOM;
    run_all(&tuning, order, &best_at);
    begin(&tuning, trials);
    tuning.config.tuner_type = RANDOM;
    run_all(&tuning, again, &best_at);
    assert_memory_equal(order, again, sizeof(order));
    for (int32_t i = 0; i + 1 < TRIALS; i++)
        if (order[i] > order[i + 1])
            return;
    fail_msg("by chance is one after the other");
}

/* Knobs that add up are seen through after a few trials, whichever way is better. */
static void test_model(void **state)
{
    (void)state;
    struct shoali_tuning tuning;
    struct shoali_trial trials[TRIALS];
    int32_t order[TRIALS], best_at = TRIALS;
    for (int32_t metric = THROUGHPUT; metric <= LATENCY; metric++) {
        begin(&tuning, trials);
        tuning.config.tuner_type = MODEL;
        tuning.config.metric = metric;
        run_all(&tuning, order, &best_at);
        if (best_at > 6)
            fail_msg("the best came as number %d", (int)best_at);
    }
}

/* A trial that did not run teaches nothing and is not tried again. */
static void test_model_without_values(void **state)
{
    (void)state;
    struct shoali_tuning tuning;
    struct shoali_trial trials[TRIALS];
    begin(&tuning, trials);
    tuning.config.tuner_type = MODEL;
    for (int32_t i = 0; i < TRIALS; i++) {
        const int32_t next = shoali_tuning_next(&tuning, 0, TRIALS);
        assert_true(next >= 0 && !trials[next].over);
        trials[next].over = true;
    }
    assert_int_equal(shoali_tuning_next(&tuning, 0, TRIALS), -1);
}

/* ---- batches ---------------------------------------------------------------------------------- */
static char path[64];

/* Reads a configuration for so many ranks and a program with these words. */
static void open_config(struct shoali_tuning *tuning, shoal_launch_args *args, const char **program,
                        const char *text, int32_t ranks)
{
    strcpy(path, "/tmp/shoal_tuning_XXXXXX");
    const int file = mkstemp(path);
    assert_true(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
    for (int i = 0; program[i]; i++)
        if (strcmp(program[i], "FILE") == 0)
            program[i] = path;
    memset(tuning, 0, sizeof(*tuning));
    memset(args, 0, sizeof(*args));
    args->program = program;
    tuning->args = args;
    tuning->ranks = ranks;
    shoali_arena_init(&tuning->arena);
    assert_int_equal(shoali_tuning_read(tuning), SHOAL_OK);
}

static void close_config(struct shoali_tuning *tuning)
{
    shoali_json_close(tuning->document);
    shoali_arena_fini(&tuning->arena);
    unlink(path);
}

static void test_accumulation(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t ranks;
        int64_t micro_batch, accumulation;
    } cases[] = {
        {"{\"train_batch_size\": 24}", 2, 4, 3},
        {"{\"train_batch_size\": 24}", 2, 5, 0},
        {"{\"train_batch_size\": 24}", 4, 6, 1},
        {"{\"train_batch_size\": 24}", 4, 12, 0},
        {"{\"gradient_accumulation_steps\": 3}", 4, 7, 3},
        {"{\"gradient_accumulation_steps\": 3, \"train_micro_batch_size_per_gpu\": 4}", 2, 6, 2},
        {"{}", 2, 8, 1},
        {"{\"autotuning\": {\"max_train_batch_size\": 20}}", 2, 3, 3},
        {"{\"autotuning\": {\"max_train_batch_size\": 20}}", 2, 11, 0},
        {"{\"autotuning\": {\"min_train_batch_size\": 20}}", 2, 9, 0},
        {"{\"autotuning\": {\"min_train_micro_batch_size_per_gpu\": 2}}", 2, 1, 0},
        {"{\"autotuning\": {\"max_train_micro_batch_size_per_gpu\": 2}}", 2, 4, 0},
        {"{\"train_batch_size\": 24, \"autotuning\": {\"mp_size\": 2}}", 4, 4, 3},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *program[] = {"train", "--deepspeed_config", "FILE", NULL};
        struct shoali_tuning tuning;
        shoal_launch_args args;
        open_config(&tuning, &args, program, cases[i].text, cases[i].ranks);
        const int64_t got = shoali_tuning_accumulation(&tuning, cases[i].micro_batch);
        if (got != cases[i].accumulation)
            fail_msg("%s on %d ranks, micro-batch %lld: %lld", cases[i].text, (int)cases[i].ranks,
                     (long long)cases[i].micro_batch, (long long)got);
        close_config(&tuning);
    }
}

/* The flags of the program say the batch, and how many ranks share a model. */
static void test_flags(void **state)
{
    (void)state;
    const char *program[] = {"train",
                             "--deepspeed_config",
                             "FILE",
                             "--global-batch-size",
                             "48",
                             "--tensor-model-parallel-size=2",
                             "--pipeline_model_parallel_size",
                             "2",
                             NULL};
    struct shoali_tuning tuning;
    shoal_launch_args args;
    open_config(&tuning, &args, program, "{}", 8);
    assert_int_equal(tuning.data_ranks, 2);
    assert_int_equal(shoali_tuning_accumulation(&tuning, 4), 6);
    close_config(&tuning);
}

static void test_words_drop(void **state)
{
    (void)state;
    static const char *const given[] = {
        "a", "--save", "x", "--save-interval", "5", "--save=y", "b", "--saves", "--SAVE", "--save"};
    struct shoali_arena arena;
    struct shoali_str text = {0};
    shoali_arena_init(&arena);
    struct shoali_text_list words = {.arena = &arena};
    for (size_t i = 0; i < COUNT(given); i++)
        shoali_text_list_add(&words, "%s", given[i]);
    shoali_text_list_drop(&words, "save");
    shoali_text_list_drop(&words, "save_interval");
    shoali_text_list_print(&words, &text);
    assert_string_equal(shoali_str_get(&text), "a b --saves --SAVE");
    shoali_str_fini(&text);
    shoali_arena_fini(&arena);
}

/* What a trial's configuration is: scalars for the engine, the user's values where nothing is
 * tried. */
static void test_config(void **state)
{
    (void)state;
    const char *program[] = {"train", "--deepspeed_config", "FILE", NULL};
    struct shoali_tuning tuning;
    shoal_launch_args args;
    open_config(&tuning, &args, program,
                "{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": [1, 2], "
                "\"zero_optimization\": {\"stage\": [1, 2], \"reduce_bucket_size\": [10, 20], "
                "\"overlap_comm\": true}}",
                2);
    tuning.results_dir = "/results";
    assert_int_equal(tuning.knob_count, 3); /* overlap_comm is the user's */
    struct shoali_trial trial = {
        .stage = 2, .micro_batch = 2, .accumulation = 4, .name = "t", .knob = {1, -1, -1, -1}};
    json_t *config = shoali_tuning_config(&tuning, &trial, true);
    const json_t *zero = json_object_get(config, "zero_optimization");
    assert_int_equal(json_integer_value(json_object_get(zero, "stage")), 2);
    assert_int_equal(json_integer_value(json_object_get(zero, "reduce_bucket_size")), 20);
    assert_true(json_is_true(json_object_get(zero, "overlap_comm")));
    assert_int_equal(json_integer_value(json_object_get(config, "train_micro_batch_size_per_gpu")),
                     2);
    assert_int_equal(json_integer_value(json_object_get(config, "train_batch_size")), 16);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(config, "autotuning"), "metric_path")),
        "/results/t/metrics.json");
    json_decref(config);
    trial.knob[0] = -1;
    config = shoali_tuning_config(&tuning, &trial, false);
    assert_null(json_object_get(config, "autotuning"));
    assert_null(
        json_object_get(json_object_get(config, "zero_optimization"), "reduce_bucket_size"));
    json_decref(config);
    close_config(&tuning);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_model_without_values),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_words_drop),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
