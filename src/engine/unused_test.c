/* Parameters that a layer uses without declaring them, and parameters that nobody uses. */
#include "engine/test_gpt.h"

enum { WIDTH = 4 };

/* Of one rank's model: what its middle layer does. */
struct habits {
    const shoal_layer *first; /* whose parameter the others may take without asking */
    bool takes;               /* the last layer uses it undeclared */
    int64_t spare_micro;      /* the spare parameter is used by this micro-batch; -1 never */
    int32_t spare_rank;       /* ... of this rank; -1 all */
    int32_t rank;
    int64_t micro;
};

static shoal_status declare_matrix(const void *config, shoal_declaration *declaration)
{
    (void)config;
    return shoal_declare_param(declaration, &(shoal_param_spec){.name = "w",
                                                                .shape = {2, {WIDTH, WIDTH}},
                                                                .init = SHOAL_INIT_NORMAL,
                                                                .init_b = 0.5});
}

static shoal_status declare_two(const void *config, shoal_declaration *declaration)
{
    shoal_status status;
    SHOAL_TRY(status, declare_matrix(config, declaration), done);
    SHOAL_TRY(status,
              shoal_declare_param(declaration, &(shoal_param_spec){.name = "spare",
                                                                   .shape = {1, {WIDTH}},
                                                                   .init = SHOAL_INIT_ONES}),
              done);
    SHOAL_TRY(status,
              shoal_declare_param(declaration, &(shoal_param_spec){.name = "frozen",
                                                                   .shape = {1, {WIDTH}},
                                                                   .tags = SHOAL_PARAM_FROZEN}),
              done);
done:
    return status;
}

static void first_forward(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    struct habits *habits = *(struct habits *const *)shoal_layer_config(layer);
    habits->first = layer;
    shoal_tensor *x =
        shoal_linear(tape, shoal_tape_input(tape, 0), shoal_layer_param(layer, 0), NULL);
    shoal_boundary_set(tape, boundary, &x, 1);
}

static void middle_forward(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct habits *habits = *(struct habits *const *)shoal_layer_config(layer);
    shoal_tensor *x = shoal_linear(tape, shoal_boundary_get(tape, boundary, 0),
                                   shoal_layer_param(layer, 0), NULL);
    if (habits->spare_micro == habits->micro &&
        (habits->spare_rank < 0 || habits->spare_rank == habits->rank))
        x = shoal_add(tape, x, shoal_param_tensor(tape, shoal_layer_param(layer, 1)));
    shoal_boundary_set(tape, boundary, &x, 1);
}

static void last_forward(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct habits *habits = *(struct habits *const *)shoal_layer_config(layer);
    shoal_tensor *x = shoal_linear(tape, shoal_boundary_get(tape, boundary, 0),
                                   shoal_layer_param(layer, 0), NULL);
    if (habits->takes)
        x = shoal_linear(tape, x, shoal_layer_param(habits->first, 0), NULL);
    shoal_tensor *loss = shoal_mse(tape, x, shoal_tape_input(tape, 1));
    shoal_boundary_set(tape, boundary, &loss, 1);
}

static const shoal_layer_type
    first_type = {.name = "first", .declare = declare_matrix, .forward = first_forward},
    middle_type = {.name = "middle", .declare = declare_two, .forward = middle_forward},
    last_type = {.name = "last", .declare = declare_matrix, .forward = last_forward};
static const shoal_input_spec inputs[] = {
    {.name = "x", .dtype = SHOAL_F32, .sample_shape = {1, {WIDTH}}},
    {.name = "y", .dtype = SHOAL_F32, .sample_shape = {1, {WIDTH}}}};

/* What a case asks, and what its ranks saw; asserted by the main thread. */
struct unused_case {
    const char *zero; /* members of zero_optimization */
    struct habits habits;
    int64_t steps;
    shoal_status expected;
    const char *says[2];
    int32_t warnings[GPT_RANKS_MAX]; /* by rank */
};

static shoal_status next(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    static float values[2][WIDTH] = {{1, -1, 0.5f, 2}, {0.5f, 1, 1, -1}};
    struct habits *habits = user;
    (void)step;
    habits->micro = micro % 2;
    batch->data[0] = values[0];
    batch->data[1] = values[1];
    return SHOAL_OK;
}

static void count_warnings(void *user, shoal_log_level level, const char *subsystem, int rank,
                           const char *message)
{
    int32_t *warnings = user;
    (void)subsystem;
    (void)rank;
    *warnings += level == SHOAL_LOG_WARNING && strstr(message, "middle.spare") != NULL;
}

static bool train_case(struct gpt_seat *seat)
{
    struct unused_case *unused = seat->run->user;
    struct habits habits = unused->habits, *own = &habits;
    const shoal_layer_spec layers[] = {
        {&first_type, "first", &own}, {&middle_type, "middle", &own}, {&last_type, "last", &own}};
    const shoal_model model = {
        .name = "odd", .layers = layers, .layer_count = 3, .inputs = inputs, .input_count = 2};
    char text[512];
    uint64_t before, after;
    shoal_status status = SHOAL_OK;
    habits.rank = seat->rank;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\":1,\"gradient_accumulation_steps\":2,"
             "\"steps_per_print\":1000000,\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":0.01"
             "}},\"zero_optimization\":{%s}}",
             unused->zero);
    EXPECT(shoal_log_configure(NULL, count_warnings, &unused->warnings[seat->rank]) == SHOAL_OK);
    EXPECT(shoal_engine_create(
               &(shoal_engine_args){
                   .model = &model, .config_text = text, .group = seat->group, .threads = 1},
               &seat->engine) == SHOAL_OK);
    EXPECT(shoal_engine_fingerprint(seat->engine, &before) == SHOAL_OK);
    for (int64_t s = 0; s < unused->steps && status >= 0; s++)
        status = shoal_engine_train_batch(seat->engine, next, own, NULL);
    EXPECT(status == unused->expected);
    for (int32_t i = 0; i < 2 && unused->says[i]; i++)
        EXPECT(strstr(shoal_error_message(), unused->says[i]));
    if (status >= 0 || strstr(text, "\"stage\":3") == NULL) {
        EXPECT(shoal_engine_fingerprint(seat->engine, &after) == SHOAL_OK);
        EXPECT((before == after) == (status < 0));
    }
    return true;
}

static void run_case(struct unused_case unused, int32_t ranks, int32_t warnings)
{
    struct gpt_seat seats[GPT_RANKS_MAX];
    gpt_run_ranks((struct gpt_run){.ranks = ranks, .run = train_case, .user = &unused}, seats);
    assert_int_equal(unused.warnings[0], warnings);
    for (int32_t r = 1; r < ranks; r++)
        assert_int_equal(unused.warnings[r], 0);
}

static void test_an_undeclared_parameter_is_named(void **state)
{
    (void)state;
    run_case((struct unused_case){.zero = "\"stage\":3,\"stage3_param_persistence_threshold\":0,"
                                          "\"stage3_max_reuse_distance\":0,"
                                          "\"stage3_prefetch_bucket_size\":0",
                                  .habits = {.takes = true, .spare_rank = -1},
                                  .steps = 1,
                                  .expected = SHOAL_EINVAL,
                                  .says = {"layer last uses parameter first.w",
                                           "tied_to = \"first.w\""}},
             2, 0);
}

static void test_unused_parameters_are_named(void **state)
{
    (void)state;
    static const char *const stages[] = {"\"stage\":0", "\"stage\":1", "\"stage\":2",
                                         "\"stage\":3"};
    for (int32_t stage = 0; stage < 4; stage++)
        for (int32_t ranks = 1; ranks <= 3; ranks++) {
            char strict[96];
            snprintf(strict, sizeof strict, "%s,\"ignore_unused_parameters\":false", stages[stage]);
            /* nobody uses it: warned once, or refused before anything changes */
            struct unused_case never = {
                .zero = stages[stage], .habits = {.spare_micro = -1}, .steps = 3};
            run_case(never, ranks, 1);
            never.zero = strict;
            never.expected = SHOAL_EINVAL;
            never.says[0] = "middle.spare";
            never.says[1] = "ignore_unused_parameters";
            run_case(never, ranks, 0);
            /* one micro-batch of one rank is enough */
            run_case((struct unused_case){.zero = strict,
                                          .habits = {.spare_micro = 1, .spare_rank = ranks - 1},
                                          .steps = 2},
                     ranks, 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_undeclared_parameter_is_named),
        cmocka_unit_test(test_unused_parameters_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
