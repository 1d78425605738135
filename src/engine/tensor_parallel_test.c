/* Ranks along tp, alone and with dp, train what one rank trains: models whose matrices are divided
 * have the losses and norms of whole ones but for the order of sums. Ranks that step together agree
 * to the bit, and a checkpoint does not tell how many there were. */
#include "engine/test_families.h"

#include <math.h>

enum { STEPS = 6, WEIGHTS_MAX = 1 << 17 };

struct task {
    const char *name, *model;
    const struct test_setting *settings;
    int32_t tensor, data, pipeline; /* pipeline 0: 1 */
    bool sequence, no_overlap;
    const char *save, *load;
    int64_t steps; /* -1: none; 0: STEPS */
    double share;  /* by which a parameter may have moved otherwise; 0: it is not looked at */
};

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];
static char folder[] = "/tmp/shoal-tp-XXXXXX";

/* ---- models ---------------------------------------------------------------------------------- */

static const struct test_setting gpt[] = {
    {"num-layers", 2}, {"hidden-size", 32}, {"num-attention-heads", 4}, {NULL, 0}};
static const struct test_setting gpt_tiled[] = {{"num-layers", 2},
                                                {"hidden-size", 48},
                                                {"num-attention-heads", 3},
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
static const struct test_setting llama_shared[] = {{"num-layers", 2},
                                                   {"hidden-size", 24},
                                                   {"num-attention-heads", 8},
                                                   {"group-query-attention", 1},
                                                   {"num-query-groups", 2},
                                                   {"ffn-hidden-size", 40},
                                                   {"normalization", 0},
                                                   {"disable-bias-linear", 0},
                                                   {"swiglu", 0},
                                                   {"position-embedding-type", 0},
                                                   {NULL, 0}};

static const struct test_setting bert[] = {
    {"num-layers", 2}, {"hidden-size", 32}, {"num-attention-heads", 4}, {NULL, 0}};
static const struct test_setting bert_pre_norm[] = {
    {"num-layers", 2},    {"hidden-size", 36},     {"num-attention-heads", 4},
    {"bert-pre-norm", 1}, {"bert-binary-head", 0}, {NULL, 0}};

/* Adam divides by what for some weights is rounding alone. */
#define SGD "{\"type\":\"SGD\",\"params\":{\"lr\":0.1,\"momentum\":0.9,\"weight_decay\":0.1}}"

/* ---- a rank ---------------------------------------------------------------------------------- */

/* Of one rank's run, before and after; and what another's are compared by. */
static float first[WEIGHTS_MAX], last[WEIGHTS_MAX];

static bool keep(struct gpt_seat *seat, float *weights)
{
    const char *name;
    int64_t at = 0;
    for (int32_t p = 0; (name = shoal_engine_param_name(seat->engine, p)); p++) {
        EXPECT(shoal_engine_get_param(seat->engine, name, weights + at) == SHOAL_OK);
        at += shoal_param_count(seat->engine->module.param[p]);
        EXPECT(at <= WEIGHTS_MAX - 8192);
    }
    return true;
}

/* Each parameter moved by what it did on one rank, but for a small share. */
static bool check_weights(struct gpt_seat *seat, double share)
{
    static _Thread_local float got[WEIGHTS_MAX];
    const char *name;
    int64_t at = 0;
    EXPECT(keep(seat, got));
    for (int32_t p = 0; (name = shoal_engine_param_name(seat->engine, p)); p++) {
        const int64_t count = shoal_param_count(seat->engine->module.param[p]);
        double moved = 0, apart = 0;
        for (int64_t i = at; i < at + count; i++) {
            moved += ((double)last[i] - first[i]) * ((double)last[i] - first[i]);
            apart += ((double)last[i] - got[i]) * ((double)last[i] - got[i]);
        }
        if (!(sqrt(apart) <= share * sqrt(moved) + 1e-6))
            fprintf(stderr, "%s moved by %g and is %g away\n", name, sqrt(moved), sqrt(apart));
        EXPECT(sqrt(apart) <= share * sqrt(moved) + 1e-6);
        at += count;
    }
    return true;
}

static bool step(struct gpt_seat *seat)
{
    const struct task *task = seat->run->user;
    const bool alone = seat->run->ranks == 1, compares = task->share > 0;
    if (compares && alone)
        EXPECT(keep(seat, first));
    if (task->load)
        EXPECT(shoal_engine_load_checkpoint(seat->engine, task->load, NULL, false, NULL) ==
               SHOAL_OK);
    while (seat->steps_done < seat->run->steps) {
        EXPECT(shoal_engine_train_batch(seat->engine, test_next, seat,
                                        &seat->info[seat->steps_done]) >= 0);
        seat->steps_done++;
    }
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    if (compares && alone)
        EXPECT(keep(seat, last));
    else if (compares)
        EXPECT(check_weights(seat, task->share));
    if (task->save)
        EXPECT(shoal_engine_save_checkpoint(seat->engine, task->save, NULL, NULL) == SHOAL_OK);
    return true;
}

static bool live(struct gpt_seat *seat)
{
    const struct gpt_run *run = seat->run;
    const struct task *task = run->user;
    char text[2048];
    shoal_mesh *mesh = NULL;
    gpt_config_text(run, text, sizeof text);
    EXPECT(test_make_model(run, task->model, task->settings, &seat->model) == SHOAL_OK);
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group,
                                                .tensor = task->tensor,
                                                .pipeline = task->pipeline},
                             &mesh) == SHOAL_OK);
    EXPECT(shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                    .config_text = text,
                                                    .mesh = mesh,
                                                    .saves = task->save != NULL,
                                                    .seed = 7,
                                                    .threads = 1,
                                                    .accelerator = "cpu",
                                                    .recompute_granularity = run->recompute,
                                                    .sequence_parallel = task->sequence,
                                                    .no_async_tensor_parallel = task->no_overlap},
                               &seat->engine) == SHOAL_OK);
    const bool done = step(seat);
    if (!done && seat->group)
        shoal_comm_abort(seat->group, SHOAL_EINTERNAL);
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return done;
}

static int32_t ranks_of(const struct task *task)
{
    return task->tensor * task->data * (task->pipeline ? task->pipeline : 1);
}

static void run(const struct task *task, const char *options, double dropout, const char *recompute)
{
    gpt_run_ranks((struct gpt_run){.ranks = ranks_of(task),
                                   .micro_batches = 4,
                                   .samples = 2,
                                   .steps = task->steps < 0 ? 0
                                            : task->steps   ? task->steps
                                                            : STEPS,
                                   .options = options,
                                   .optimizer = SGD,
                                   .dropout = dropout,
                                   .recompute = recompute,
                                   .run = live,
                                   .user = (void *)(uintptr_t)task},
                  seats);
}

/* ---- what is compared ------------------------------------------------------------------------ */

/* Sums over at most some 200 numbers, of which a step has about 20 behind each other, in another
 * order:
 * 20 sqrt(200) 2^-24 = 1.7e-5 relative; the steps carry it on: at most twice as much each. */
static void assert_near(const struct task *task, double tolerance)
{
    for (int32_t r = 0; r < ranks_of(task); r++)
        for (int64_t s = 0; s < STEPS; s++) {
            const shoal_step_info *a = &seats[r].info[s], *b = &reference[0].info[s];
            const double bound = tolerance * (double)(1 << s);
            if (!(fabs(a->loss - b->loss) <= bound * b->loss) ||
                !(fabs(a->grad_norm - b->grad_norm) <= 4 * bound * b->grad_norm))
                fail_msg("%s, %d x %d%s, rank %d, step %d: loss %.9g norm %.9g, not %.9g %.9g",
                         task->name, (int)task->tensor, (int)task->data,
                         task->sequence ? " by sequence" : "", (int)r, (int)s, a->loss,
                         a->grad_norm, b->loss, b->grad_norm);
            assert_true(a->loss == seats[0].info[s].loss &&
                        a->grad_norm == seats[0].info[s].grad_norm);
        }
    for (int32_t r = 1; r < ranks_of(task); r++)
        assert_int_equal(seats[r].fingerprint, seats[0].fingerprint);
}

#define ZERO(stage) "\"gradient_clipping\":0.5,\"zero_optimization\":{\"stage\":" #stage "}"
#define BF16 "\"bf16\":{\"enabled\":true},"

static const struct task models[] = {
    {.name = "gpt", .model = "gpt", .settings = gpt},
    {.name = "tiled", .model = "gpt", .settings = gpt_tiled},
    {.name = "llama", .model = "llama", .settings = llama},
    {.name = "shared", .model = "llama", .settings = llama_shared},
    {.name = "bert", .model = "bert", .settings = bert},
    {.name = "bert, pre-norm", .model = "bert", .settings = bert_pre_norm},
};
enum { MODELS = sizeof models / sizeof models[0] };
static const char *const stages[] = {ZERO(0), ZERO(1), ZERO(2), ZERO(3)};
static const char *const stages_bf16[] = {BF16 ZERO(0), BF16 ZERO(1), BF16 ZERO(2), BF16 ZERO(3)};

#if defined(SHOALI_TSAN)
enum { EVERY = 3 }; /* layouts: the same code in the same threads */
#else
enum { EVERY = 1 };
#endif

static void as_one_rank(const char *const *options, bool sequence, double tolerance, double share)
{
    static const struct {
        int32_t tensor, data, pipeline;
        const char *recompute;
    } layouts[] = {{2, 1, 1, NULL},   {4, 1, 1, NULL},   {2, 2, 1, "full"}, {2, 2, 1, NULL},
                   {4, 2, 1, "full"}, {2, 1, 2, "full"}, {2, 2, 2, NULL}};
    for (int32_t m = 0; m < MODELS; m++) {
        struct task task = models[m];
        task.tensor = task.data = task.pipeline = 1;
        task.share = share;
        run(&task, options[0], 0.1, NULL);
        memcpy(reference, seats, sizeof seats);
        for (int32_t l = m % EVERY; l < (int32_t)(sizeof layouts / sizeof layouts[0]); l += EVERY) {
            task.tensor = layouts[l].tensor;
            task.data = layouts[l].data;
            task.pipeline = layouts[l].pipeline;
            task.sequence = sequence;
            if (task.settings == gpt_tiled) /* three heads */
                task.tensor = task.tensor == 4 ? 3 : 2;
            if (task.sequence && task.tensor == 3)
                continue;
            run(&task, options[(m + l) % 4], 0.1, layouts[l].recompute);
            assert_near(&task, tolerance);
        }
    }
}

static void test_as_one_rank(void **state)
{
    (void)state;
    as_one_rank(stages, false, 2e-5, 1e-3);
}

static void test_by_sequence(void **state)
{
    (void)state;
    as_one_rank(stages, true, 2e-5, 1e-3);
}

/* 2^-8 for 2^-24, and fewer of them matter: each tensor is rounded once more than it was. */
static void test_bf16(void **state)
{
    (void)state;
    as_one_rank(stages_bf16, false, 2e-2, 0.3);
    as_one_rank(stages_bf16, true, 2e-2, 0.3);
}

/* Beside the weight's gradient or before it. */
static void test_overlap(void **state)
{
    (void)state;
    for (int32_t m = 0; m < MODELS; m++) {
        struct task task = models[m];
        task.tensor = 2;
        task.data = 2;
        task.sequence = m % 2;
        run(&task, stages[m % 4], 0.1, NULL);
        memcpy(reference, seats, sizeof seats);
        task.no_overlap = true;
        run(&task, stages[m % 4], 0.1, NULL);
        gpt_assert_same(seats, 4, reference, models[m].name);
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static const char *fresh(char *path, size_t bytes, const char *name)
{
    char command[256];
    snprintf(path, bytes, "%s/%s", folder, name);
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
    return path;
}

/* What one mesh has saved any other loads, and saves the same bytes. */
static void test_checkpoints(void **state)
{
    static const struct {
        int32_t tensor, data;
    } meshes[] = {{1, 1}, {2, 2}, {4, 1}, {1, 3}, {4, 2}};
    enum { MESHES = sizeof meshes / sizeof meshes[0] };
    char saved[64], again[64], command[256];
    (void)state;
    for (int32_t m = 2; m < MODELS; m += 2)
        for (int32_t from = m % EVERY; from < MESHES; from += EVERY) {
            struct task task = models[m];
            task.tensor = meshes[from].tensor;
            task.data = meshes[from].data == 3 ? 2 : meshes[from].data;
            task.steps = 2;
            task.save = fresh(saved, sizeof saved, "saved");
            run(&task, stages_bf16[from % 4], 0, NULL);
            task.load = saved;
            task.steps = -1;
            for (int32_t to = 0; to < MESHES; to++) {
                task.tensor = meshes[to].tensor;
                task.data = meshes[to].data == 3 ? 2 : meshes[to].data;
                task.save = fresh(again, sizeof again, "again");
                run(&task, stages_bf16[(from + to) % 4], 0, NULL);
                snprintf(command, sizeof command, "diff -rq %s %s >&2", saved, again);
                if (system(command) != 0)
                    fail_msg("%s: %d to %d: files differ", task.name, (int)from, (int)to);
            }
        }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static bool is_refused(struct gpt_seat *seat)
{
    const struct task *task = seat->run->user;
    char text[2048];
    shoal_mesh *mesh = NULL;
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(test_make_model(seat->run, task->model, task->settings, &seat->model) == SHOAL_OK);
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group,
                                                .tensor = task->tensor,
                                                .pipeline = task->pipeline},
                             &mesh) == SHOAL_OK);
    EXPECT(shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                    .config_text = text,
                                                    .mesh = mesh,
                                                    .seed = 7,
                                                    .threads = 1,
                                                    .accelerator = "cpu",
                                                    .sequence_parallel = task->sequence},
                               &seat->engine) < 0);
    if (!strstr(shoal_error_message(), task->load))
        fprintf(stderr, "%s\n", shoal_error_message());
    EXPECT(strstr(shoal_error_message(), task->load) != NULL);
    shoal_mesh_destroy(mesh);
    return true;
}

static void refuse(const struct task *model, int32_t tensor, bool sequence, const char *options,
                   const char *sentence)
{
    struct task task = *model;
    task.tensor = tensor;
    task.sequence = sequence;
    task.load = sentence;
    gpt_run_ranks((struct gpt_run){.ranks = tensor,
                                   .micro_batches = 4,
                                   .samples = 2,
                                   .options = options,
                                   .run = is_refused,
                                   .user = &task},
                  seats);
}

static void test_refused(void **state)
{
    (void)state;
    refuse(&models[0], 2, false, "\"reduction\":\"exact\"", "exact_splits.tensor is 1");
    refuse(&models[1], 3, true, ZERO(0), "a sequence of 16 cannot be divided by the 3 ranks");
    refuse(&models[0], 8, false, ZERO(0), "8 ranks along tp");
    refuse(&models[3], 3, false, ZERO(0), "3 ranks along tp");
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
        cmocka_unit_test(test_as_one_rank), cmocka_unit_test(test_by_sequence),
        cmocka_unit_test(test_bf16),        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_checkpoints), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
