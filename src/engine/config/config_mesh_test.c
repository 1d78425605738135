/* A mesh by keys: made, compared, refused. */
#include "engine/test_gpt.h"

static struct gpt_seat seats[GPT_RANKS_MAX];

struct wish {
    const char *options, *partition; /* of the engine's arguments; NULL */
    int32_t tensor, pipeline;        /* of a mesh that is given; 0: none is */
    const char *sentence;            /* NULL: it works */
    int32_t stages;                  /* that the engine then has */
};

static shoal_status make(struct gpt_seat *seat, const struct wish *wish, shoal_mesh **mesh)
{
    shoal_status status = SHOAL_OK;
    char text[1024];
    gpt_config_text(seat->run, text, sizeof text);
    SHOAL_TRY(status, gpt_make_model(seat->run, &seat->model), done);
    if (wish->tensor || wish->pipeline)
        SHOAL_TRY(status,
                  shoal_mesh_create(&(shoal_mesh_args){.group = seat->group,
                                                       .tensor = wish->tensor,
                                                       .pipeline = wish->pipeline},
                                    mesh),
                  done);
    SHOAL_TRY(status,
              shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                       .config_text = text,
                                                       .group = seat->group,
                                                       .mesh = *mesh,
                                                       .partition_method = wish->partition,
                                                       .threads = 1},
                                  &seat->engine),
              done);
done:
    return status;
}

static bool try_wish(struct gpt_seat *seat)
{
    const struct wish *wish = seat->run->user;
    shoal_mesh *mesh = NULL;
    const shoal_status status = make(seat, wish, &mesh);
    if (wish->sentence) {
        EXPECT(status == SHOAL_ECONFIG || status == SHOAL_EINVAL);
        EXPECT(strstr(shoal_error_message(), wish->sentence));
    } else {
        char *text = NULL, stages[32];
        EXPECT(status == SHOAL_OK);
        snprintf(stages, sizeof stages, "%d stages", (int)wish->stages);
        EXPECT(shoal_engine_describe_mesh(seat->engine, &text) == SHOAL_OK);
        EXPECT((wish->stages > 1) == (strstr(text, stages) != NULL));
        EXPECT((wish->stages > 1) == (strstr(text, "stage 1: ") != NULL));
        free(text);
    }
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return true;
}

static void test_keys(void **state)
{
    (void)state;
    static const struct wish wishes[] = {
        {"\"pipeline\":{\"stages\":2}", NULL, 0, 0, NULL, 2},
        {"\"pipeline\":{\"stages\":\"auto\",\"partition\":\"best\"}", NULL, 0, 2, NULL, 2},
        {"\"pipeline\":{\"stages\":1},\"data_parallel_size\":2", NULL, 0, 0, NULL, 1},
        {"\"tensor_parallel\":{\"autotp_size\":1}", NULL, 0, 0, NULL, 1},
        {"\"pipeline\":{\"stages\":2,\"partition\":\"UNIFORM\"}", "uniform", 0, 0, NULL, 2},
        {"\"pipeline\":{\"stages\":2}", NULL, 2, 0,
         "pipeline.stages is 2, but the mesh has 1 rank along that axis", 0},
        {"\"tensor_parallel\":{\"autotp_size\":2}", NULL, 0, 2,
         "tensor_parallel.autotp_size is 2, but the mesh has 1 rank along that axis", 0},
        {"\"tensor_parallel\":{\"autotp_size\":2,\"tp\":{\"tp_size\":4}}", NULL, 0, 0,
         "tensor_parallel.tp.tp_size is 4, but tensor_parallel.autotp_size is 2", 0},
        {"\"data_parallel_size\":4", NULL, 0, 0,
         "data_parallel_size is 4, but the mesh has 2 ranks along that axis", 0},
        {"\"pipeline\":{\"stages\":3}", NULL, 0, 0,
         "2 ranks cannot be divided into replicas of 3 (tensor 1 x context 1 x pipeline 3)", 0},
        {"\"pipeline\":{\"stages\":2,\"partition\":\"parameters\"}", "uniform", 0, 0,
         "pipeline.partition is \"parameters\", but the engine's arguments have the partition "
         "method \"uniform\"",
         0},
        {"\"pipeline\":{\"stages\":2,\"partition\":\"profile\"}", NULL, 0, 0,
         "there is no partition method \"profile\"", 0},
        {"\"pipeline\":{\"activation_checkpoint_interval\":2},"
         "\"activation_checkpointing\":{\"number_checkpoints\":2}",
         NULL, 0, 0, "both say what is recomputed", 0},
    };
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
        struct wish wish = wishes[i];
        gpt_run_ranks(
            (struct gpt_run){
                .ranks = 2, .options = wish.options, .steps = 1, .run = try_wish, .user = &wish},
            seats);
    }
}

/* pipeline.activation_checkpoint_interval is recompute in chunks of so many layers: the bits of
 * training without it, in less memory. */
static bool train_and_measure(struct gpt_seat *seat)
{
    shoal_memory_info info;
    int64_t *bytes = seat->run->user;
    if (!gpt_train(seat))
        return false;
    shoal_engine_get_memory_info(seat->engine, &info);
    *bytes = info.activations_bytes;
    return true;
}

static void test_interval(void **state)
{
    (void)state;
    static struct gpt_seat plain[GPT_RANKS_MAX];
    int64_t whole = 0, chunks = 0;
    struct gpt_run run = {.layers = 6,
                          .dropout = 0.1,
                          .options = "\"pipeline\":{\"activation_checkpoint_interval\":0}",
                          .steps = 2,
                          .run = train_and_measure,
                          .user = &whole};
    gpt_run_ranks(run, plain);
    run.options = "\"pipeline\":{\"activation_checkpoint_interval\":2}";
    run.user = &chunks;
    gpt_run_ranks(run, seats);
    gpt_assert_same(seats, 1, plain, "interval");
    assert_true(chunks < whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys),
                                       cmocka_unit_test(test_interval)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
