/* Ranks that conclude alike. With uneven shares of tp they cut the pipeline at the same layers.
 * They join, gather and keep the same units, and have every bit of one rank. Ranks that were
 * started with other values, or a rank that fails alone, give a sentence on all ranks. The group
 * stays good. */
#include "engine/test_families.h"

enum { STEPS = 2, SENTENCE = 256 };

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* ---- uneven shares --------------------------------------------------------------------------- */

#define EXACT "\"reduction\":\"exact\",\"exact_splits\":{\"tensor\":2,\"sequence\":2}"
#define ZERO(stage, more) ",\"zero_optimization\":{\"stage\":" #stage more "}"
#define SMALL ",\"reduce_bucket_size\":500,\"allgather_bucket_size\":500"
#define FETCH                                                                   \
    ",\"stage3_param_persistence_threshold\":700,"                              \
    "\"stage3_model_persistence_threshold\":2200,"                              \
    "\"stage3_prefetch_bucket_size\":2600,\"stage3_max_live_parameters\":9000," \
    "\"stage3_max_reuse_distance\":2000,\"stage3_module_granularity_threshold\":1200"
#define OVERLAP ",\"overlap_comm\":true"

/* 3 heads of 11 on 2 ranks. */
static const struct test_setting heads[] = {
    {"num-layers", 2}, {"hidden-size", 33}, {"num-attention-heads", 3}, {NULL, 0}};
/* 3 groups, and 46 columns of the inner layer. */
static const struct test_setting grouped[] = {{"num-layers", 6},
                                              {"hidden-size", 36},
                                              {"num-attention-heads", 6},
                                              {"group-query-attention", 1},
                                              {"num-query-groups", 3},
                                              {"ffn-hidden-size", 46},
                                              {NULL, 0}};
/* The same with a larger vocabulary: by own shares its ranks would cut at different layers. */
static const struct test_setting heavy[] = {
    {"num-layers", 6},          {"hidden-size", 36},
    {"num-attention-heads", 6}, {"group-query-attention", 1},
    {"num-query-groups", 3},    {"ffn-hidden-size", 46},
    {"vocab-size", 256},        {NULL, 0}};
struct shape {
    const char *model;
    const struct test_setting *settings;
    int32_t tensor, pipeline, chunks, data;
    bool sequence;
    const char *options, *recompute;
};
static const struct shape shapes[] = {
    {"llama", heavy, 2, 2, 3, 1, .options = EXACT},
    {"llama", heavy, 2, 2, 2, 1, .options = EXACT},
    {"llama", heavy, 2, 4, 1, 1, .options = EXACT},
    {"llama", grouped, 2, 2, 3, 1, .options = EXACT},
    {"llama", grouped, 2, 4, 1, 1, .options = EXACT},
    {"llama", grouped, 2, 2, 2, 1, .sequence = true, .options = EXACT ZERO(1, SMALL)},
    {"gpt", heads, 2, 1, 0, 1, .sequence = true, .options = EXACT ZERO(1, SMALL)},
    {"gpt", heads, 2, 1, 0, 2, .sequence = true, .options = EXACT ZERO(0, SMALL OVERLAP),
     .recompute = "full"},
    {"gpt", heads, 2, 1, 0, 2, .sequence = true, .options = EXACT ZERO(1, SMALL OVERLAP)},
    {"gpt", heads, 2, 1, 0, 2, .sequence = true, .options = EXACT ZERO(2, SMALL OVERLAP)},
    {"gpt", heads, 2, 1, 0, 1, .sequence = true, .options = EXACT ZERO(3, SMALL FETCH OVERLAP)},
    {"gpt", heads, 2, 1, 0, 2, .sequence = true, .options = EXACT ZERO(3, SMALL FETCH OVERLAP),
     .recompute = "full"},
    {"llama", grouped, 2, 1, 0, 2, .sequence = true, .options = EXACT ZERO(3, SMALL FETCH)},
    {"llama", grouped, 2, 2, 1, 2, .sequence = true, .options = EXACT ZERO(3, SMALL FETCH OVERLAP)},
};

static bool train(struct gpt_seat *seat)
{
    const struct shape *shape = seat->run->user;
    shoal_mesh *mesh = NULL;
    char text[2048];
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(test_make_model(seat->run, shape->model, shape->settings, &seat->model) == SHOAL_OK);
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group,
                                                .tensor = shape->tensor,
                                                .pipeline = shape->pipeline},
                             &mesh) == SHOAL_OK);
    EXPECT(shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                    .config_text = text,
                                                    .mesh = mesh,
                                                    .threads = 1,
                                                    .sequence_parallel = shape->sequence,
                                                    .virtual_stages = shape->chunks,
                                                    .recompute_granularity = shape->recompute},
                               &seat->engine) == SHOAL_OK);
    const bool passed = gpt_train(seat);
    if (!passed && seat->group)
        shoal_comm_abort(seat->group, SHOAL_EINTERNAL);
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return passed;
}

static void test_uneven_shares(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct shape shape = shapes[i];
        char what[64];
        struct gpt_run run = {.ranks = shape.tensor * shape.pipeline * shape.data,
                              .micro_batches = 8,
                              .options = shape.options,
                              .steps = STEPS,
                              .run = train,
                              .user = &shape};
        struct shape one = {shape.model, shape.settings, 1, 1, 0, 1, .options = EXACT};
        struct gpt_run alone = run;
        alone.ranks = 1;
        alone.options = one.options;
        alone.user = &one;
        gpt_run_ranks(alone, reference);
        gpt_run_ranks(run, seats);
        snprintf(what, sizeof what, "shape %zu", i);
        gpt_assert_same(seats, run.ranks, reference, what);
    }
}

/* ---- ranks that were started differently ----------------------------------------------------- */

/* What rank 1 of two has; NULL, 0: as rank 0. */
struct wrong {
    const char *options, *optimizer;
    uint64_t seed;
    const char *recompute;
    int64_t layers;
    bool untied, broken;
    const char *sentence; /* of all ranks */
};
static const struct wrong wrongs[] = {
    {.optimizer = "{\"type\":\"AdamW\",\"params\":{\"lr\":0.02}}",
     .sentence = "optimizer.params.lr (rank 0: 0.01, rank 1: 0.02)"},
    {.options = "\"gradient_clipping\":0.5",
     .sentence = "gradient_clipping (rank 0: 1, rank 1: 0.5)"},
    {.options = "\"zero_optimization\":{\"stage\":2}",
     .sentence = "zero_optimization.stage (rank 0: 0, rank 1: 2)"},
    {.seed = 8, .sentence = "seed of the run (rank 0: 7, rank 1: 8)"},
    {.recompute = "full", .sentence = "recompute_granularity (rank 0: nothing, rank 1: full)"},
    {.layers = 3, .sentence = "layers (rank 0: 4 layers (digest "},
    {.untied = true, .sentence = "parameters (rank 0: "},
    {.options = "\"zero_optimization\":{\"stage\":7}",
     .broken = true,
     .sentence = "zero_optimization.stage: must be from 0 to 3"},
};

static bool refuse(struct gpt_seat *seat)
{
    const struct wrong *wrong = seat->run->user;
    struct gpt_run own = *seat->run;
    const struct gpt_run *all = seat->run;
    own.optimizer = "{\"type\":\"AdamW\",\"params\":{\"lr\":0.01}}";
    if (seat->rank == 1) {
        own.options = wrong->options;
        own.optimizer = wrong->optimizer ? wrong->optimizer : own.optimizer;
        own.seed = wrong->seed ? wrong->seed : own.seed;
        own.recompute = wrong->recompute;
        own.layers = wrong->layers ? wrong->layers : own.layers;
        own.untied = wrong->untied;
    }
    seat->run = &own;
    const shoal_status status = gpt_open(seat, NULL);
    seat->run = all;
    EXPECT(status < 0 && strstr(shoal_error_message(), wrong->sentence));
    EXPECT(!wrong->broken || status == (seat->rank == 1 ? SHOAL_ECONFIG : SHOAL_EPEER));
    shoal_model_destroy(seat->model);
    seat->model = NULL;
    EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
    return gpt_train(seat);
}

static void test_other_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        struct wrong wrong = wrongs[i];
        gpt_run_ranks((struct gpt_run){.ranks = 2, .steps = 1, .run = refuse, .user = &wrong},
                      seats);
    }
}

/* Threads, paths and what is logged are each rank's own. */
static bool differ(struct gpt_seat *seat)
{
    char options[SENTENCE];
    struct gpt_run own = *seat->run;
    const struct gpt_run *all = seat->run;
    snprintf(options, sizeof options,
             "\"threads\":%d,\"dump_state\":false,\"wall_clock_breakdown\":%s,"
             "\"csv_monitor\":{\"output_path\":\"%s\"}",
             (int)seat->rank + 1, seat->rank ? "true" : "false", seat->rank ? "a" : "b");
    own.options = options;
    own.threads = seat->rank + 1;
    own.output_path = seat->rank ? "a" : "b";
    seat->run = &own;
    const shoal_status status = gpt_open(seat, NULL);
    seat->run = all;
    EXPECT(status == SHOAL_OK);
    return gpt_train(seat);
}

static void test_own_values(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.ranks = 2, .steps = 1, .run = differ}, seats);
}

/* ---- more splits than heads ------------------------------------------------------------------ */

static bool refuse_splits(struct gpt_seat *seat)
{
    const struct shape *shape = seat->run->user;
    shoal_mesh *mesh = NULL;
    char text[2048];
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(test_make_model(seat->run, shape->model, shape->settings, &seat->model) == SHOAL_OK);
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group, .tensor = shape->tensor},
                             &mesh) == SHOAL_OK);
    const shoal_status status = shoal_engine_create(
        &(shoal_engine_args){.model = seat->model, .config_text = text, .mesh = mesh, .threads = 1},
        &seat->engine);
    EXPECT(status == SHOAL_EINVAL && strstr(shoal_error_message(), "exact_splits.tensor is 8") &&
           strstr(shoal_error_message(), "only 3 units") &&
           strstr(shoal_error_message(), "give at most that many splits"));
    shoal_mesh_destroy(mesh);
    return true;
}

static void test_more_splits_than_heads(void **state)
{
    (void)state;
    for (int32_t m = 0; m < 2; m++)
        for (int32_t tensor = 1; tensor <= 2; tensor++) {
            struct shape shape = {
                .model = m ? "llama" : "gpt", .settings = m ? grouped : heads, .tensor = tensor};
            gpt_run_ranks((struct gpt_run){.ranks = tensor,
                                           .options = "\"reduction\":\"exact\","
                                                      "\"exact_splits\":{\"tensor\":8}",
                                           .run = refuse_splits,
                                           .user = &shape},
                          seats);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uneven_shares),
        cmocka_unit_test(test_other_values),
        cmocka_unit_test(test_own_values),
        cmocka_unit_test(test_more_splits_than_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
