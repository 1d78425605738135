/* Recompute: the same bits as without, less memory, and what its options refuse. */
#include "engine/test_gpt.h"

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* How a seat's engine recomputes, and what it saw. */
struct recompute_case {
    const char *granularity, *method;
    int64_t num_layers;
    const char *const *modules;
    const char *keys; /* members of activation_checkpointing */
    int64_t activations_bytes, host_bytes, growths, live_elements;
    int32_t lines; /* logged by profile */
};

static shoal_status open_engine(struct gpt_seat *seat, const struct recompute_case *how)
{
    shoal_status status;
    struct gpt_run run = *seat->run;
    char text[2048], options[1024];
    snprintf(options, sizeof options, "%s%s\"activation_checkpointing\":{%s}",
             run.options ? run.options : "", run.options ? "," : "", how->keys ? how->keys : "");
    run.options = options;
    gpt_config_text(&run, text, sizeof text);
    SHOAL_TRY(status, gpt_make_model(seat->run, &seat->model), done);
    SHOAL_TRY(status,
              shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                       .config_text = text,
                                                       .group = seat->group,
                                                       .seed = run.seed,
                                                       .threads = run.threads,
                                                       .accelerator = run.accelerator,
                                                       .recompute_granularity = how->granularity,
                                                       .recompute_method = how->method,
                                                       .recompute_num_layers = how->num_layers,
                                                       .recompute_modules = how->modules},
                                  &seat->engine),
              done);
done:
    return status;
}

static void count_lines(void *user, shoal_log_level level, const char *subsystem, int rank,
                        const char *text)
{
    struct recompute_case *how = user;
    (void)level;
    how->lines += rank == 0 && strcmp(subsystem, "activation_checkpointing") == 0 &&
                  strstr(text, " ms") != NULL;
}

static bool train(struct gpt_seat *seat)
{
    struct recompute_case *how = seat->run->user;
    shoal_memory_info memory;
    struct shoali_zero_memory zero;
    if (how->keys && strstr(how->keys, "profile") && seat->rank == 0)
        EXPECT(shoal_log_configure("info", count_lines, how) == SHOAL_OK);
    EXPECT(open_engine(seat, how) == SHOAL_OK);
    EXPECT(gpt_train(seat));
    shoal_engine_get_memory_info(seat->engine, &memory);
    /* what the meta run found is what the run needed */
    EXPECT(seat->engine->step.micro_cost.slot_bytes ==
           (int64_t)shoali_slot_peak_bytes(seat->engine->step.micro[0].slot));
    if (seat->engine->step.micro[0].kept_slot)
        EXPECT(seat->engine->step.micro_cost.kept_bytes ==
               (int64_t)shoali_slot_peak_bytes(seat->engine->step.micro[0].kept_slot));
    shoali_zero_memory(seat->engine->zero, &zero);
    EXPECT(memory.host_peak_bytes >= memory.activations_host_bytes);
    if (seat->rank == 0) {
        how->activations_bytes = memory.activations_bytes;
        how->host_bytes = memory.activations_host_bytes;
        how->growths = memory.arena_growths;
        how->live_elements = zero.live_elements;
    }
    return true;
}

static const char *const mlp[] = {"mlp", NULL}, *const both[] = {"attn", "mlp", NULL};

/* Dropout is on: the replay has to draw the same masks. The plan of the meta run has to hold. */
static void test_same_bits_less_memory(void **state)
{
    (void)state;
    static const char *const options[] = {"\"reduction\":\"exact\"", "\"bf16\":{\"enabled\":true}",
                                          "\"zero_optimization\":{\"stage\":3}"};
    for (int32_t o = 0; o < 3; o++)
        for (int32_t n = 1; n <= 2; n++) {
            struct recompute_case none = {0};
            struct recompute_case cases[] = {
                {.granularity = "full"},
                {.granularity = "full", .method = "block", .num_layers = 1},
                {.granularity = "selective", .modules = mlp},
                {.granularity = "selective", .modules = both}};
            struct gpt_run run = {.ranks = n,
                                  .options = options[o],
                                  .dropout = 0.1,
                                  .samples = 4,
                                  .micro_batches = 4,
                                  .steps = 3,
                                  .run = train,
                                  .user = &none};
            gpt_run_ranks(run, reference);
            for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                run.user = &cases[i];
                gpt_run_ranks(run, seats);
                gpt_assert_same(seats, n, reference, cases[i].granularity);
                assert_int_equal(cases[i].growths, 0);
                assert_true(cases[i].activations_bytes < none.activations_bytes);
            }
        }
}

/* Layers of a chunk run again one after the other, and so are their weights gathered. */
static void test_weights_of_chunks(void **state)
{
    (void)state;
    struct recompute_case none = {0};
    struct recompute_case chunks = {.granularity = "full", .method = "uniform", .num_layers = 4};
    struct gpt_run run = {.ranks = 2,
                          .layers = 4,
                          .options = "\"zero_optimization\":{\"stage\":3,\"overlap_comm\":false,"
                                     "\"stage3_param_persistence_threshold\":0,"
                                     "\"stage3_prefetch_bucket_size\":0,"
                                     "\"stage3_max_reuse_distance\":0}",
                          .steps = 1,
                          .run = train,
                          .user = &none};
    gpt_run_ranks(run, seats);
    run.user = &chunks;
    gpt_run_ranks(run, seats);
    assert_true(none.live_elements > 0);
    assert_int_equal(chunks.live_elements, none.live_elements);
}

/* Chunks of layers, and every place where their inputs may wait. */
static void test_chunks_and_places(void **state)
{
    (void)state;
    static const char *const options[] = {
        "\"reduction\":\"exact\"", "\"bf16\":{\"enabled\":true}",
        ("\"zero_optimization\":{\"stage\":3,\"stage3_param_persistence_threshold\":0,"
         "\"stage3_max_reuse_distance\":0}"),
        "\"zero_optimization\":{\"stage\":2,\"overlap_comm\":true}"};
    static const char *const accelerators[] = {"cpu", "sim", "sim", "sim"};
    static const char *const streams[] = {"", "late", "random", "thread"};
    for (int32_t o = 0; o < 4; o++) {
        const int32_t n = o == 0 ? 1 : 2;
        struct recompute_case none = {0};
        struct recompute_case cases[] = {
            {.granularity = "full"},
            {.granularity = "full", .keys = "\"cpu_checkpointing\":true"},
            {.granularity = "full", .keys = "\"contiguous_memory_optimization\":true"},
            {.granularity = "full", .num_layers = 2},
            {.granularity = "full", .method = "uniform", .num_layers = 4},
            {.keys = "\"number_checkpoints\":2,\"partition_activations\":true"},
            {.keys = "\"number_checkpoints\":3,\"cpu_checkpointing\":true,"
                     "\"contiguous_memory_optimization\":true"},
            {.keys = "\"number_checkpoints\":1,\"synchronize_checkpoint_boundary\":true"},
            {.granularity = "full",
             .method = "block",
             .num_layers = 3,
             .keys = "\"cpu_checkpointing\":true"},
            {.granularity = "selective", .modules = both, .keys = "\"cpu_checkpointing\":true"},
            {.granularity = "full", .num_layers = 5, .keys = "\"profile\":true"}};
        struct gpt_run run = {.ranks = n,
                              .accelerator = accelerators[o],
                              .options = options[o],
                              .dropout = 0.1,
                              .layers = 6,
                              .samples = 2,
                              .micro_batches = 4,
                              .steps = 2,
                              .run = train,
                              .user = &none};
        assert_int_equal(setenv("SHOAL_SIM_STREAMS", streams[o], 1), 0);
        gpt_run_ranks(run, reference);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            char what[32];
            snprintf(what, sizeof what, "options %d, case %d", (int)o, (int)i);
            run.user = &cases[i];
            gpt_run_ranks(run, seats);
            gpt_assert_same(seats, n, reference, what);
            assert_int_equal(cases[i].growths, 0);
            assert_true(cases[i].activations_bytes < none.activations_bytes);
        }
        assert_true(cases[1].activations_bytes < cases[0].activations_bytes);
        const int64_t input = (o == 1 ? 2 : 4) * 2 * GPT_SEQ * 32; /* [2, T, C] */
        assert_int_equal(cases[1].host_bytes, 6 * input);
        assert_int_equal(cases[6].host_bytes, 3 * input);
        assert_int_equal(cases[0].host_bytes, 0);
        /* two micro-batches of n ranks, steps, chunks, forward and backward */
        assert_int_equal(cases[10].lines, 4 / n * 2 * 2 * 2);
    }
    assert_int_equal(unsetenv("SHOAL_SIM_STREAMS"), 0);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const core[] = {"core_attn", NULL}, *const wrong[] = {"norm", NULL};
    static const struct {
        struct recompute_case how;
        const char *says;
    } cases[] = {
        {{.granularity = "everything"}, "--recompute-granularity is \"everything\""},
        {{.method = "uniform"}, "without --recompute-granularity"},
        {{.granularity = "full", .method = "some"}, "--recompute-method is \"some\""},
        {{.granularity = "full", .method = "block"}, "needs --recompute-num-layers"},
        {{.keys = "\"number_checkpoints\":-1"}, "number_checkpoints"},
        {{.granularity = "full", .num_layers = 2, .keys = "\"number_checkpoints\":2"},
         "makes chunks of 1 of the 2 layers"},
        {{.granularity = "full",
          .method = "block",
          .num_layers = 1,
          .keys = "\"number_checkpoints\":2"},
         "block does not have"},
        {{.granularity = "selective", .modules = mlp, .keys = "\"number_checkpoints\":2"},
         "number_checkpoints goes with"},
        {{.granularity = "full", .modules = mlp}, "goes with --recompute-granularity selective"},
        {{.granularity = "selective"}, "needs --recompute-modules"},
        {{.granularity = "selective", .modules = core}, "never stores its score matrix"},
        {{.granularity = "selective", .modules = wrong}, "has \"norm\""},
    };
    static const struct gpt_run run = {
        .ranks = 1, .threads = 1, .micro_batches = 1, .samples = 1, .seed = 7};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gpt_seat seat = {.run = &run};
        assert_int_equal(shoal_status_exit_code(open_engine(&seat, &cases[i].how)), 2);
        assert_non_null(strstr(shoal_error_message(), cases[i].says));
        shoal_model_destroy(seat.model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_less_memory),
        cmocka_unit_test(test_weights_of_chunks),
        cmocka_unit_test(test_chunks_and_places),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
