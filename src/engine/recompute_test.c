/* Recompute: the same bits as without, less memory, and what its options refuse. */
#include "engine/test_gpt.h"

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* How a seat's engine recomputes, and what it saw. */
struct recompute_case {
    const char *granularity, *method;
    int64_t num_layers;
    const char *const *modules;
    int64_t activations_bytes, growths;
};

static shoal_status open_engine(struct gpt_seat *seat, const struct recompute_case *how)
{
    shoal_status status;
    char text[2048];
    gpt_config_text(seat->run, text, sizeof text);
    SHOAL_TRY(status, gpt_make_model(seat->run, &seat->model), done);
    SHOAL_TRY(status,
              shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                       .config_text = text,
                                                       .group = seat->group,
                                                       .seed = seat->run->seed,
                                                       .threads = seat->run->threads,
                                                       .recompute_granularity = how->granularity,
                                                       .recompute_method = how->method,
                                                       .recompute_num_layers = how->num_layers,
                                                       .recompute_modules = how->modules},
                                  &seat->engine),
              done);
done:
    return status;
}

static bool train(struct gpt_seat *seat)
{
    struct recompute_case *how = seat->run->user;
    shoal_memory_info memory;
    EXPECT(open_engine(seat, how) == SHOAL_OK);
    EXPECT(gpt_train(seat));
    shoal_engine_get_memory_info(seat->engine, &memory);
    if (seat->rank == 0) {
        how->activations_bytes = memory.activations_bytes;
        how->growths = memory.arena_growths;
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
        {{.granularity = "full", .num_layers = 2}, "chunks of 2 layers"},
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
        shoal_gpt_destroy(seat.model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_less_memory),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
