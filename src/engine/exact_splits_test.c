/* Exact sums in declared splits: ranks along tp, with and without sequence parallelism, alone and
 * with dp, have every bit of one rank's run with the same exact_splits: losses, norms, weights and
 * states. */
#include "engine/engine.h"
#include "engine/test_families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

struct task {
    const char *name, *model;
    const struct test_setting *settings;
    int32_t tensor, data;
    bool sequence, no_overlap;
    const char *save, *load;
    int64_t steps; /* 0: STEPS */
};

static char folder[] = "/tmp/shoal-splits-XXXXXX";
static double limit; /* of a contribution to the last parameter, on rank 0 */
static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* ---- models ---------------------------------------------------------------------------------- */

static const struct test_setting gpt[] = {
    {"num-layers", 2}, {"hidden-size", 32}, {"num-attention-heads", 4}, {NULL, 0}};
/* Heads and vocabulary in uneven shares. */
static const struct test_setting gpt_tiled[] = {{"num-layers", 2},
                                                {"hidden-size", 40},
                                                {"num-attention-heads", 5},
                                                {"untie-embeddings-and-output-weights", 1},
                                                {"cross-entropy-loss-fusion", 1},
                                                {"label-smoothing", 0.1},
                                                {NULL, 0}};
static const struct test_setting llama[] = {{"num-layers", 2},
                                            {"hidden-size", 24},
                                            {"num-attention-heads", 8},
                                            {"kv-channels", 6},
                                            {"group-query-attention", 1},
                                            {"num-query-groups", 4},
                                            {"ffn-hidden-size", 42},
                                            {"qk-layernorm", 1},
                                            {"add-qkv-bias", 1},
                                            {"untie-embeddings-and-output-weights", 0},
                                            {"label-smoothing", 0.2},
                                            {NULL, 0}};
static const struct test_setting bert[] = {
    {"num-layers", 2}, {"hidden-size", 32}, {"num-attention-heads", 4}, {NULL, 0}};

static const struct task models[] = {
    {.name = "gpt", .model = "gpt", .settings = gpt},
    {.name = "tiled", .model = "gpt", .settings = gpt_tiled},
    {.name = "llama", .model = "llama", .settings = llama},
    {.name = "bert", .model = "bert", .settings = bert},
};
enum { MODELS = sizeof models / sizeof models[0] };

/* ---- a rank ---------------------------------------------------------------------------------- */

static shoal_status make_engine(struct gpt_seat *seat, shoal_mesh **mesh)
{
    shoal_status status;
    const struct gpt_run *run = seat->run;
    const struct task *task = run->user;
    char text[2048];
    gpt_config_text(run, text, sizeof text);
    *mesh = NULL;
    SHOAL_TRY(status, test_make_model(run, task->model, task->settings, &seat->model), done);
    SHOAL_TRY(
        status,
        shoal_mesh_create(&(shoal_mesh_args){.group = seat->group, .tensor = task->tensor}, mesh),
        done);
    SHOAL_TRY(
        status,
        shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                 .config_text = text,
                                                 .mesh = *mesh,
                                                 .seed = 7,
                                                 .threads = 1,
                                                 .accelerator = "cpu",
                                                 .recompute_granularity = run->recompute,
                                                 .sequence_parallel = task->sequence,
                                                 .no_async_tensor_parallel = task->no_overlap},
                            &seat->engine),
        done);
done:
    return status;
}

static bool step(struct gpt_seat *seat)
{
    const struct task *task = seat->run->user;
    if (task->load) {
        EXPECT(shoal_engine_load_checkpoint(seat->engine, task->load, NULL, false, NULL) ==
               SHOAL_OK);
        seat->steps_done = shoal_engine_global_steps(seat->engine);
    }
    while (seat->steps_done < seat->run->steps) {
        EXPECT(shoal_engine_train_batch(seat->engine, test_next, seat,
                                        &seat->info[seat->steps_done]) >= 0);
        seat->steps_done++;
    }
    const struct shoali_module *module = &seat->engine->module;
    if (seat->rank == 0)
        limit = module->param[module->param_count - 1]->sink.limit;
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    if (task->save)
        EXPECT(shoal_engine_save_checkpoint(seat->engine, task->save, NULL, NULL) == SHOAL_OK);
    return true;
}

static bool live(struct gpt_seat *seat)
{
    shoal_mesh *mesh = NULL;
    EXPECT(make_engine(seat, &mesh) == SHOAL_OK);
    const bool done = step(seat);
    if (!done && seat->group)
        shoal_comm_abort(seat->group, SHOAL_EINTERNAL);
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return done;
}

static void run(const struct task *task, const char *options, double dropout, const char *recompute)
{
    gpt_run_ranks((struct gpt_run){.ranks = task->tensor * task->data,
                                   .micro_batches = 4,
                                   .samples = 2,
                                   .steps = task->steps ? task->steps : STEPS,
                                   .options = options,
                                   .dropout = dropout,
                                   .recompute = recompute,
                                   .run = live,
                                   .user = (void *)(uintptr_t)task},
                  seats);
}

/* ---- the same bits --------------------------------------------------------------------------- */

#define SPLITS(t, s) \
    "\"reduction\":\"exact\",\"exact_splits\":{\"tensor\":" #t ",\"sequence\":" #s "},"
#define ZERO(stage) "\"gradient_clipping\":0.5,\"zero_optimization\":{\"stage\":" #stage "}"
#define STAGES(prefix)                                                 \
    {                                                                  \
        prefix ZERO(0), prefix ZERO(1), prefix ZERO(2), prefix ZERO(3) \
    }
#define BF16 "\"bf16\":{\"enabled\":true},"
#define F16 "\"exact_unit_log2\":30,\"fp16\":{\"enabled\":true,\"initial_scale_power\":8},"

struct layout {
    int32_t tensor, data;
    bool sequence, no_overlap;
    const char *recompute;
};
static const struct layout layouts[] = {
    {2, 1, false, false, NULL},  {4, 1, false, false, "full"}, {2, 2, true, false, NULL},
    {4, 1, true, false, NULL},   {1, 2, false, false, "full"}, {4, 2, true, true, "full"},
    {2, 1, false, true, "full"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static void as_one_rank(const struct task *model, const char *const *options, int32_t most,
                        double dropout)
{
    struct task task = *model;
    task.tensor = task.data = 1;
    run(&task, options[0], dropout, NULL);
    memcpy(reference, seats, sizeof seats);
    for (int32_t l = 0; l < LAYOUTS; l++) {
        char name[128];
        task.tensor = layouts[l].tensor;
        task.data = layouts[l].data;
        task.sequence = layouts[l].sequence;
        task.no_overlap = layouts[l].no_overlap;
        if (task.tensor > most)
            continue;
        snprintf(name, sizeof name, "%s, %d x %d%s, %s", task.name, (int)task.tensor,
                 (int)task.data, task.sequence ? " by sequence" : "", options[l % 4]);
        run(&task, options[l % 4], dropout, layouts[l].recompute);
        gpt_assert_same(seats, task.tensor * task.data, reference, name);
    }
}

static void test_fp32(void **state)
{
    static const char *const four[] = STAGES(SPLITS(4, 4));
    static const char *const two[] = STAGES(SPLITS(2, 4));
    (void)state;
    for (int32_t m = 0; m < MODELS; m++) {
        as_one_rank(&models[m], four, 4, 0.1);
        as_one_rank(&models[m], two, 2, 0);
    }
}

/* A rank that holds one column of a product sums its rows in the order of wider shares. */
static void test_one_column(void **state)
{
    static const struct test_setting narrow[] = {{"num-layers", 1},
                                                 {"hidden-size", 32},
                                                 {"num-attention-heads", 4},
                                                 {"ffn-hidden-size", 4},
                                                 {NULL, 0}};
    static const struct task model = {.name = "one column", .model = "gpt", .settings = narrow};
    static const char *const four[] = STAGES(SPLITS(4, 4));
    (void)state;
    as_one_rank(&model, four, 4, 0);
}

static void test_bf16(void **state)
{
    static const char *const four[] = STAGES(BF16 SPLITS(4, 4));
    static const char *const two[] = STAGES(BF16 SPLITS(2, 2));
    (void)state;
    for (int32_t m = 0; m < MODELS; m++) {
        as_one_rank(&models[m], four, 4, 0.1);
        as_one_rank(&models[m], two, 2, 0);
    }
}

static void test_fp16(void **state)
{
    static const char *const four[] = STAGES(F16 SPLITS(4, 4));
    (void)state;
    for (int32_t m = 0; m < MODELS; m++)
        as_one_rank(&models[m], four, 4, 0.1);
}

/* What one mesh has saved another one goes on with, to the bits of a run that never stopped. */
static void test_resume(void **state)
{
    static const char *const options = BF16 SPLITS(4, 4) ZERO(2);
    (void)state;
    for (int32_t m = 0; m < MODELS; m++) {
        char path[64];
        struct task task = models[m];
        task.tensor = task.data = 1;
        run(&task, options, 0.1, NULL);
        memcpy(reference, seats, sizeof seats);
        snprintf(path, sizeof path, "%s/%d", folder, (int)m);
        task.tensor = task.data = 2;
        task.sequence = true;
        task.steps = 1;
        task.save = path;
        run(&task, options, 0.1, NULL);
        task.tensor = m % 2 ? 1 : 4;
        task.data = 1;
        task.sequence = false;
        task.steps = 0;
        task.save = NULL;
        task.load = path;
        run(&task, options, 0.1, NULL);
        for (int32_t r = 0; r < task.tensor; r++) /* the first step was another run's */
            seats[r].info[0] = reference[0].info[0];
        gpt_assert_same(seats, task.tensor, reference, task.name);
    }
}

/* Splits are other sums: what is compared above is not what all runs have. And their contributions
 * are so many more that must not wrap: 4 micro-batches in units of 2^-44. */
static void test_other_splits(void **state)
{
    static const char *const options[] = {SPLITS(1, 1) ZERO(0), SPLITS(2, 1) ZERO(0),
                                          SPLITS(4, 1) ZERO(0), SPLITS(1, 2) ZERO(0)};
    static const int32_t contributions[] = {1, 2, 4, 2};
    uint64_t fingerprint[4];
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct task task = models[2];
        task.tensor = task.data = 1;
        run(&task, options[i], 0, NULL);
        fingerprint[i] = seats[0].fingerprint;
        assert_true(limit == (double)(1 << 17) / (double)contributions[i]);
        for (int k = 0; k < i; k++)
            assert_true(fingerprint[k] != fingerprint[i]);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const char *expected;

static bool is_refused(struct gpt_seat *seat)
{
    shoal_mesh *mesh = NULL;
    const shoal_status status = make_engine(seat, &mesh);
    EXPECT(status == SHOAL_ECONFIG || status == SHOAL_EINVAL);
    if (!strstr(shoal_error_message(), expected))
        fail_msg("no \"%s\" in: %s", expected, shoal_error_message());
    shoal_mesh_destroy(mesh);
    return true;
}

static void test_refused(void **state)
{
    static const struct {
        int model;
        int32_t tensor;
        bool sequence;
        const char *options, *sentence;
    } cases[] = {
        {0, 2, false, "\"reduction\":\"exact\"",
         "exact_splits.tensor is 1 and 2 ranks are along tp: with \"reduction\": \"exact\" each "
         "has "
         "whole pieces of a sum: add \"exact_splits\": {\"tensor\": 2}"},
        {0, 3, false, SPLITS(1, 1) ZERO(0),
         "exact_splits.tensor is 1 and 3 ranks are along tp: with \"reduction\": \"exact\" sums "
         "are "
         "trees, which 2, 4, 8, ... ranks divide"},
        {0, 4, false, SPLITS(2, 1) ZERO(0), "exact_splits.tensor is 2 and 4 ranks are along tp"},
        {0, 2, true, SPLITS(2, 1) ZERO(0), "exact_splits.sequence is 1 and 2 ranks are along tp"},
        {0, 1, false, SPLITS(1, 32) ZERO(0), "which does not divide a sequence of"},
        {2, 1, false, SPLITS(8, 1) ZERO(0), "give at most that many splits"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct task task = models[cases[i].model];
        task.tensor = cases[i].tensor;
        task.data = 1;
        task.sequence = cases[i].sequence;
        expected = cases[i].sentence;
        gpt_run_ranks((struct gpt_run){.ranks = task.tensor,
                                       .micro_batches = 4,
                                       .samples = 2,
                                       .options = cases[i].options,
                                       .run = is_refused,
                                       .user = &task},
                      seats);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp32),       cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_one_column), cmocka_unit_test(test_fp16),
        cmocka_unit_test(test_resume),     cmocka_unit_test(test_other_splits),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("splits", tests, make_folder, remove_folder);
}
