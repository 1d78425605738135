/* ZeRO's stages as a user meets them: training, evaluation, checkpoints and single parameters of a
 * GPT are the same bits whatever the stage, the ranks and the sizes of messages. */
#include "engine/test_gpt.h"

#include <dirent.h>
#include <unistd.h>

enum { STEPS = 3, HALF = 1, EVAL = 7 };
static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

#define STAGE_3_NOTHING_KEPT                                \
    "\"stage\":3,\"stage3_param_persistence_threshold\":0," \
    "\"stage3_max_live_parameters\":0,\"stage3_max_reuse_distance\":0"
#define STAGE_3_SMALL                                                          \
    "\"stage\":3,\"stage3_param_persistence_threshold\":40,"                   \
    "\"stage3_max_live_parameters\":30000,\"stage3_max_reuse_distance\":2000," \
    "\"stage3_prefetch_bucket_size\":15000,\"sub_group_size\":1000,"           \
    "\"reduce_bucket_size\":1700,\"allgather_bucket_size\":5000"
static const char *const stages[] = {
    "\"stage\":0", "\"stage\":1,\"reduce_bucket_size\":3000",
    "\"stage\":2", "\"stage\":2,\"reduce_scatter\":false,\"allgather_bucket_size\":700",
    "\"stage\":3", STAGE_3_NOTHING_KEPT,
    STAGE_3_SMALL, "\"stage\":3,\"stage3_param_persistence_threshold\":0",
};
enum { STAGE_COUNT = sizeof stages / sizeof stages[0] };

static const char *const precisions[] = {
    "", ",\"bf16\":{\"enabled\":true}",
    ",\"exact_unit_log2\":36,\"fp16\":{\"enabled\":true,\"initial_scale_power\":8}"};

/* What a run's function is told. */
struct task {
    const char *dir, *tag; /* of the checkpoint to save or load */
};

static struct gpt_run make_run(const char *stage, const char *precision, const char *reduction,
                               char *options, size_t bytes)
{
    snprintf(options, bytes,
             "\"reduction\":\"%s\",\"gradient_clipping\":0.5,\"zero_optimization\":{%s}%s",
             reduction, stage, precision);
    return (struct gpt_run){.options = options, .dropout = 0.1, .steps = STEPS};
}

/* ---- training and evaluation ---------------------------------------------------------------- */

static bool train_and_evaluate(struct gpt_seat *seat)
{
    double loss;
    EXPECT(gpt_train(seat));
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, EVAL, &loss) == SHOAL_OK);
    seat->info[seat->steps_done] = seat->info[seat->steps_done - 1];
    seat->info[seat->steps_done++].loss = loss;
    return true;
}

static void test_same_bits(void **state)
{
    const char *precision = *state;
    char options[1024];
    struct gpt_run run = make_run(stages[0], precision, "exact", options, sizeof options);
    run.run = train_and_evaluate;
    gpt_run_ranks(run, reference);
    assert_true(reference[0].info[STEPS - 1].loss < reference[0].info[0].loss);
    for (int32_t n = 1; n <= 4; n++)
        for (int32_t s = 1; s < STAGE_COUNT; s++) {
            run = make_run(stages[s], precision, "exact", options, sizeof options);
            run.run = train_and_evaluate;
            run.ranks = n;
            gpt_run_ranks(run, seats);
            gpt_assert_same(seats, n, reference, stages[s]);
        }
}

/* One micro-batch per rank: fast sums are in the order of ranks in every stage. */
static void test_fast(void **state)
{
    char options[1024];
    (void)state;
    for (int32_t n = 2; n <= 4; n++)
        for (int32_t s = 0; s < STAGE_COUNT; s++) {
            struct gpt_run run = make_run(stages[s], "", "fast", options, sizeof options);
            run.ranks = n;
            run.micro_batches = n;
            gpt_run_ranks(run, s == 0 ? reference : seats);
            if (s > 0)
                gpt_assert_same(seats, n, reference, stages[s]);
        }
}

/* A replay in backward reads weights that were gathered again. */
static bool train_with_recompute(struct gpt_seat *seat)
{
    char text[2048];
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(gpt_make_model(seat->run, &seat->model) == SHOAL_OK);
    EXPECT(shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                    .config_text = text,
                                                    .group = seat->group,
                                                    .seed = seat->run->seed,
                                                    .threads = 1,
                                                    .recompute_granularity = "full"},
                               &seat->engine) == SHOAL_OK);
    return gpt_train(seat);
}

static void test_recompute(void **state)
{
    char options[1024];
    (void)state;
    struct gpt_run run = make_run(stages[0], precisions[1], "exact", options, sizeof options);
    gpt_run_ranks(run, reference);
    for (int32_t s = 1; s < STAGE_COUNT; s++) {
        run = make_run(stages[s], precisions[1], "exact", options, sizeof options);
        run.ranks = 3;
        run.run = train_with_recompute;
        gpt_run_ranks(run, seats);
        gpt_assert_same(seats, 3, reference, stages[s]);
    }
}

static void test_sim(void **state)
{
    char options[1024];
    (void)state;
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "268435456", 1), 0);
    struct gpt_run run = make_run(stages[0], "", "exact", options, sizeof options);
    gpt_run_ranks(run, reference);
    for (int32_t s = 1; s < STAGE_COUNT; s++) {
        run = make_run(stages[s], "", "exact", options, sizeof options);
        run.ranks = 2;
        run.accelerator = "sim";
        gpt_run_ranks(run, seats);
        gpt_assert_same(seats, 2, reference, stages[s]);
    }
}

/* ---- checkpoints ---------------------------------------------------------------------------- */

static bool save_half(struct gpt_seat *seat)
{
    const struct task *task = seat->run->user;
    EXPECT(gpt_train(seat));
    EXPECT(shoal_engine_save_checkpoint(seat->engine, task->dir, task->tag, NULL) == SHOAL_OK);
    return true;
}

static bool load_and_go_on(struct gpt_seat *seat)
{
    const struct task *task = seat->run->user;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, task->dir, task->tag, 0, NULL) == SHOAL_OK);
    seat->steps_done = HALF;
    EXPECT(gpt_train(seat));
    memcpy(seat->info, reference[0].info, HALF * sizeof seat->info[0]); /* not run here */
    return true;
}

static void remove_tree(const char *path)
{
    char inner[512];
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (unlink(inner) != 0)
            remove_tree(inner);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

/* Saved in any stage by any number of ranks, gone on with in any other. */
static void test_checkpoints(void **state)
{
    const char *precision = *state;
    char options[1024], dir[] = "stages_test_XXXXXX";
    struct task task = {.dir = dir, .tag = "half"};
    assert_non_null(mkdtemp(dir));
    struct gpt_run run = make_run(stages[0], precision, "exact", options, sizeof options);
    gpt_run_ranks(run, reference);
    for (int32_t s = 0; s < STAGE_COUNT; s++) {
        run = make_run(stages[s], precision, "exact", options, sizeof options);
        run.ranks = 1 + s % 4;
        run.steps = HALF;
        run.run = save_half;
        run.user = &task;
        gpt_run_ranks(run, seats);
        const int32_t other = (s * 3 + 5) % STAGE_COUNT;
        run = make_run(stages[other], precision, "exact", options, sizeof options);
        run.ranks = 4 - s % 4;
        run.run = load_and_go_on;
        run.user = &task;
        gpt_run_ranks(run, seats);
        gpt_assert_same(seats, run.ranks, reference, stages[other]);
    }
    remove_tree(dir);
}

/* Weights without gradients and states: an engine made for inference, any stage. */
static bool evaluate_loaded(struct gpt_seat *seat)
{
    const struct task *task = seat->run->user;
    char text[2048];
    double loss;
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(gpt_make_model(seat->run, &seat->model) == SHOAL_OK);
    EXPECT(shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                    .config_text = text,
                                                    .group = seat->group,
                                                    .threads = 1,
                                                    .inference = 1},
                               &seat->engine) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, task->dir, task->tag, 1, NULL) == SHOAL_OK);
    for (int32_t i = 0; i < 2; i++)
        EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, EVAL, &loss) == SHOAL_OK);
    seat->info[0].loss = loss;
    return true;
}

static bool save_and_evaluate(struct gpt_seat *seat)
{
    double loss;
    EXPECT(save_half(seat));
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, EVAL, &loss) == SHOAL_OK);
    seat->info[0].loss = loss;
    return true;
}

static void test_inference(void **state)
{
    char options[1024], dir[] = "stages_test_XXXXXX";
    struct task task = {.dir = dir, .tag = "half"};
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int32_t s = 0; s < STAGE_COUNT; s++) {
        struct gpt_run run = make_run(stages[s], precisions[1], "exact", options, sizeof options);
        run.ranks = s == 0 ? 1 : 3;
        run.run = s == 0 ? save_and_evaluate : evaluate_loaded;
        run.user = &task;
        gpt_run_ranks(run, s == 0 ? reference : seats);
        for (int32_t r = 0; r < run.ranks && s > 0; r++)
            assert_memory_equal(&seats[r].info[0].loss, &reference[0].info[0].loss, sizeof(double));
    }
    remove_tree(dir);
}

/* ---- single parameters ---------------------------------------------------------------------- */

enum { WTE = GPT_VOCAB * 32 };
static float kept[3][WTE];

/* The tied table: read, set, used. */
static bool look_at_parameters(struct gpt_seat *seat)
{
    float value[WTE];
    const char *name = "transformer.wte.weight";
    EXPECT(gpt_train(seat));
    float *to = seat->run->ranks == 1 ? kept[0] : value;
    EXPECT(shoal_engine_get_param(seat->engine, name, to) == SHOAL_OK);
    EXPECT(memcmp(to, kept[0], sizeof value) == 0);
    to = seat->run->ranks == 1 ? kept[1] : value;
    EXPECT(shoal_engine_get_gradient(seat->engine, name, to) == SHOAL_OK);
    EXPECT(memcmp(to, kept[1], sizeof value) == 0);
    to = seat->run->ranks == 1 ? kept[2] : value;
    EXPECT(shoal_engine_get_state(seat->engine, name, "exp_avg", to) == SHOAL_OK);
    EXPECT(memcmp(to, kept[2], sizeof value) == 0);
    for (int32_t i = 0; i < WTE; i++)
        value[i] = kept[0][(i * 7) % WTE];
    double loss; /* the first evaluation leaves weights gathered, which the new ones replace */
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, EVAL, &loss) == SHOAL_OK);
    EXPECT(shoal_engine_set_param(seat->engine, name, value) == SHOAL_OK);
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, EVAL, &loss) == SHOAL_OK);
    seat->info[0].loss = loss;
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    return true;
}

static void test_parameters(void **state)
{
    char options[1024];
    (void)state;
    for (int32_t s = 0; s < STAGE_COUNT; s++) {
        struct gpt_run run = make_run(stages[s], precisions[1], "exact", options, sizeof options);
        run.run = look_at_parameters;
        run.ranks = s == 0 ? 1 : 3;
        gpt_run_ranks(run, s == 0 ? reference : seats);
        if (s > 0)
            gpt_assert_same(seats, 3, reference, stages[s]);
    }
    assert_true(memcmp(kept[0], kept[1], sizeof kept[0]) != 0 && kept[1][5] != 0);
}

/* Buffers exist before the first step and nothing comes after. */
static bool count_allocations(struct gpt_seat *seat)
{
    shoal_memory_info created, before, after;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    shoal_engine_get_memory_info(seat->engine, &created);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    shoal_engine_get_memory_info(seat->engine, &before);
    EXPECT(gpt_train(seat));
    shoal_engine_get_memory_info(seat->engine, &after);
    EXPECT(after.buffers_bytes == created.buffers_bytes);
    EXPECT(after.device_alloc_count == before.device_alloc_count);
    return true;
}

static void test_allocations(void **state)
{
    char options[1024];
    (void)state;
    for (int32_t s = 0; s < STAGE_COUNT; s++) {
        struct gpt_run run = make_run(stages[s], "", "fast", options, sizeof options);
        run.run = count_allocations;
        run.ranks = 2;
        gpt_run_ranks(run, seats);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_same_bits, (void *)(uintptr_t)precisions[0]),
        cmocka_unit_test_prestate(test_same_bits, (void *)(uintptr_t)precisions[1]),
        cmocka_unit_test_prestate(test_same_bits, (void *)(uintptr_t)precisions[2]),
        cmocka_unit_test(test_fast),
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_sim),
        cmocka_unit_test_prestate(test_checkpoints, (void *)(uintptr_t)precisions[0]),
        cmocka_unit_test_prestate(test_checkpoints, (void *)(uintptr_t)precisions[1]),
        cmocka_unit_test(test_inference),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
