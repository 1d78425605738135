/* Pipelines of models that are not a GPT: several tensors cross a boundary, some of them without
 * gradients, some passed on as they came, one of them twice; parameters without dims, frozen ones,
 * one that three stages hold; layers without parameters, and layers that read the batch in the
 * middle. And what is refused. */
#include "engine/test_pipeline.h"

enum { WIDTH = 8, LAYERS = 6 };

/* ---- the model ------------------------------------------------------------------------------- */

/* A layer by its number. */
static const int32_t numbers[LAYERS] = {0, 1, 2, 3, 4, 5};

static shoal_status declare_table(shoal_declaration *to, const char *tied)
{
    return shoal_declare_param(to, &(shoal_param_spec){.name = "table",
                                                       .shape = shoal_shape_2(GPT_VOCAB, WIDTH),
                                                       .init = SHOAL_INIT_NORMAL,
                                                       .init_b = 0.5,
                                                       .tied_to = tied});
}

static shoal_status declare_matrix(shoal_declaration *to, const char *name, unsigned tags)
{
    return shoal_declare_param(to, &(shoal_param_spec){.name = name,
                                                       .shape = shoal_shape_2(WIDTH, WIDTH),
                                                       .init = SHOAL_INIT_NORMAL,
                                                       .init_b = 0.5,
                                                       .tags = tags});
}

static shoal_status declare(const void *config, shoal_declaration *to)
{
    shoal_status status = SHOAL_OK;
    const int32_t number = *(const int32_t *)config;
    if (number == 0 || number == 2 || number == 5)
        SHOAL_TRY(status, declare_table(to, number == 0 ? NULL : "l0.table"), done);
    if (number == 1 || number == 2 || number == 3)
        SHOAL_TRY(status, declare_matrix(to, "matrix", 0), done);
    if (number == 3) {
        SHOAL_TRY(status, declare_matrix(to, "frozen", SHOAL_PARAM_FROZEN), done);
        SHOAL_TRY(
            status,
            shoal_declare_param(to, &(shoal_param_spec){.name = "scalar", .init = SHOAL_INIT_ONES}),
            done);
    }
done:
    return status;
}

/* What is between layers: {x, tokens, targets, x again}, behind layer 3 {x, targets, a scalar}. */
static void forward(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const int32_t number = *(const int32_t *)shoal_layer_config(layer);
    shoal_tensor *x = number ? shoal_boundary_get(tape, boundary, 0) : NULL;
    if (number == 0) {
        x = shoal_embedding(tape, shoal_tape_input(tape, 0), shoal_layer_param(layer, 0), NULL);
        x = shoal_dropout(tape, x, 0.1, NULL);
    } else if (number <= 3) {
        shoal_tensor *again = shoal_boundary_get(tape, boundary, 3);
        shoal_param *matrix = shoal_layer_param(layer, number == 2);
        shoal_tensor *y = shoal_tanh(tape, shoal_linear(tape, again, matrix, NULL));
        x = shoal_dropout(tape, y, 0.1, x);
    }
    if (number == 2) /* of the batch, and of what came */
        x = shoal_add(
            tape, x,
            shoal_embedding(tape, shoal_tape_input(tape, 0), shoal_layer_param(layer, 0), NULL));
    if (number < 3) {
        shoal_tensor *left[] = {x, shoal_tape_input(tape, 0), shoal_tape_input(tape, 1), x};
        if (number == 1) {
            left[1] = shoal_boundary_get(tape, boundary, 1);
            left[2] = shoal_boundary_get(tape, boundary, 2);
        }
        shoal_boundary_set(tape, boundary, left, 4);
        return;
    }
    if (number == 3) {
        shoal_tensor *scalar = shoal_param_tensor(tape, shoal_layer_param(layer, 2));
        x = shoal_linear(tape, x, shoal_layer_param(layer, 1), NULL);
        shoal_tensor *left[] = {x, shoal_boundary_get(tape, boundary, 2),
                                shoal_square(tape, scalar)};
        shoal_boundary_set(tape, boundary, left, 3);
        return;
    }
    if (number == 4) {
        shoal_tensor *left[] = {shoal_scale(tape, x, 1.5), shoal_boundary_get(tape, boundary, 1),
                                shoal_boundary_get(tape, boundary, 2)};
        shoal_boundary_set(tape, boundary, left, 3);
        return;
    }
    shoal_tensor *logits = shoal_linear(tape, x, shoal_layer_param(layer, 0),
                                        &(shoal_linear_args){.weight_out_in = true});
    shoal_tensor *loss = shoal_cross_entropy(tape, logits, shoal_boundary_get(tape, boundary, 1));
    loss = shoal_add(tape, loss, shoal_boundary_get(tape, boundary, 2));
    shoal_boundary_set(tape, boundary, &loss, 1);
}

static const shoal_layer_type type = {.name = "any", .declare = declare, .forward = forward};
static const shoal_layer_spec layers[LAYERS] = {
    {&type, "l0", &numbers[0]}, {&type, "l1", &numbers[1]}, {&type, "l2", &numbers[2]},
    {&type, "l3", &numbers[3]}, {&type, "l4", &numbers[4]}, {&type, "l5", &numbers[5]}};
static const shoal_input_spec inputs[] = {
    {.name = "tokens", .dtype = SHOAL_I32, .sample_shape = {1, {GPT_SEQ}}},
    {.name = "targets", .dtype = SHOAL_I32, .sample_shape = {1, {GPT_SEQ}}}};
static const shoal_model model = {
    .name = "any", .layers = layers, .layer_count = LAYERS, .inputs = inputs, .input_count = 2};

/* A plan's stage knows its number among those that hold a tied weight: here 0, 2 and 5. */
static void test_planned_tied(void **state)
{
    static const char config[] = "{\"train_batch_size\":8,\"train_micro_batch_size_per_gpu\":1,"
                                 "\"optimizer\":{\"type\":\"AdamW\"}}";
    static const int32_t numbers_there[LAYERS] = {0, -1, 1, -1, -1, 2};
    (void)state;
    for (int32_t stage = 0; stage < LAYERS; stage++) {
        const shoal_plan_args args = {.rank = stage, .world_size = LAYERS, .pipeline = LAYERS};
        shoal_group *group = NULL;
        shoal_mesh *mesh = NULL;
        shoal_engine *engine = NULL;
        assert_int_equal(shoali_comm_create_meta(stage, LAYERS, NULL, &group), SHOAL_OK);
        assert_int_equal(shoali_plan_mesh(&args, group, &mesh), SHOAL_OK);
        assert_int_equal(shoali_engine_make(&(shoal_engine_args){.model = &model,
                                                                 .config_text = config,
                                                                 .group = group,
                                                                 .mesh = mesh},
                                            &(struct shoali_engine_making){.meta = true}, &engine),
                         SHOAL_OK);
        assert_int_equal(engine->stages.made_count, 1);
        const shoal_group *tied = engine->stages.made[0];
        assert_int_equal(tied ? shoal_comm_rank(tied) : -1, numbers_there[stage]);
        assert_true(!tied || shoal_comm_size(tied) == 3);
        shoal_engine_destroy(engine);
        shoal_mesh_destroy(mesh);
        shoal_comm_destroy(group);
    }
}

static void test_any_model(void **state)
{
    static const struct cell cells[] = {
        {.pipeline = 2, .partition = "uniform"},
        {.pipeline = 3, .partition = "uniform", .schedule = "gpipe"},
        {.pipeline = 6, .schedule = "zb-h1"},
        {.pipeline = 6, .options = HASHES EXACT ZERO(3, FETCH)},
        {.pipeline = 4,
         .data = 2,
         .partition = "uniform",
         .options = HASHES EXACT ZERO(2, OVERLAP)},
        {.pipeline = 2, .virtual_stages = 3, .data = 2, .options = HASHES EXACT ZERO(3, FETCH)},
        {.pipeline = 3,
         .partition = "parameters",
         .data = 2,
         .schedule = "zb-h1",
         .options = HASHES EXACT ZERO(1, SMALL)},
        {.pipeline = 3, .partition = "layout:E||ttttL"},
        {.pipeline = 4,
         .data = 2,
         .partition = "uniform",
         .recompute = "full",
         .options = HASHES EXACT ZERO(3, FETCH CPU("optimizer") CPU("param"))},
    };
    (void)state;
    check_cells((struct cell){.model = &model, .options = HASHES EXACT ZERO(0, ""), .samples = 2},
                cells, sizeof cells / sizeof cells[0]);
}

/* A parameter of several stages is the same on each of them after every step, and counted once. */
static bool compare_tied(struct gpt_seat *seat, struct cell *cell)
{
    struct shoal_engine *engine = seat->engine;
    const struct shoal_param *tied = engine->module.param[0];
    float own[GPT_VOCAB * WIDTH] = {0}, all[GPT_VOCAB * WIDTH];
    int32_t ranges, holders = 0;
    int64_t counted = 0;
    EXPECT(engine->stages.tied_count == 1 && engine->stages.tied[0].param == 0);
    for (int64_t s = 0; s < cell->end; s++) {
        shoal_step_info info;
        EXPECT(shoal_engine_train_batch(engine, gpt_next, seat, &info) == SHOAL_OK);
        EXPECT(shoal_engine_get_param(engine, "l0.table", all) == SHOAL_OK);
        if (tied->count > 0) {
            EXPECT(shoali_zero_read(engine->zero, 0, tied->begin, tied->count, own) == SHOAL_OK);
            EXPECT(memcmp(own, all, sizeof own) == 0);
        }
    }
    holders = tied->count > 0;
    const struct shoali_zero_range *range = shoali_zero_counted_ranges(engine->zero, &ranges);
    for (int32_t i = 0; i < ranges; i++)
        if (range[i].begin < tied->begin + tied->count && tied->count > 0)
            counted += range[i].begin + range[i].count < tied->begin + tied->count
                           ? range[i].count
                           : tied->begin + tied->count - range[i].begin;
    EXPECT(shoal_all_reduce(seat->group, &holders, &holders, 1, SHOAL_I32, SHOAL_SUM, NULL) ==
           SHOAL_OK);
    EXPECT(shoal_all_reduce(seat->group, &counted, &counted, 1, SHOAL_I64, SHOAL_SUM, NULL) ==
           SHOAL_OK);
    EXPECT(holders == 3 && counted == GPT_VOCAB * WIDTH);
    return true;
}

static void test_tied(void **state)
{
    (void)state;
    struct cell cell = {.model = &model,
                        .pipeline = 6,
                        .options = ZERO(0, ""),
                        .end = STEPS,
                        .follow = compare_tied};
    run(&cell);
}

/* ---- any cell --------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *state, uint64_t count)
{
    *state = gpt_mix(*state + 0x9E3779B97F4A7C15u);
    return (*state >> 20) % count;
}

/* Layouts at random, against one rank. */
static void test_random_cells(void **state)
{
    static const char *const options[] = {EXACT ZERO(0, ""),
                                          EXACT ZERO(1, OVERLAP),
                                          EXACT ZERO(2, SMALL),
                                          EXACT ZERO(2, OVERLAP),
                                          EXACT ZERO(3, FETCH),
                                          EXACT ZERO(3, OVERLAP FETCH SMALL),
                                          EXACT ZERO(3, FETCH CPU("optimizer") CPU("param")),
                                          EXACT ZERO(1, CPU("optimizer"))};
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved"};
    static const char *const recompute[] = {NULL, "full"};
    const char *given = getenv("SHOAL_TEST_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 0) : 20261122;
    uint64_t random = seed;
    (void)state;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int32_t untied = 0; untied < 2; untied++) {
        struct cell one = {.options = options[0],
                           .end = 2,
                           .untied = untied,
                           .dropout = 0.1,
                           .layers = 6,
                           .micro_batches = 12};
        run(&one);
        const struct seen want = seen[0];
        for (int32_t i = 0; i < CELLS; i++) {
            struct cell cell = one;
            cell.pipeline = 2 + (int32_t)draw(&random, 3);
            cell.data = 1 + (int32_t)draw(&random, cell.pipeline > 2 ? 2 : 4);
            cell.schedule = schedules[draw(&random, 4)];
            cell.options = options[draw(&random, 8)];
            cell.recompute = recompute[draw(&random, 2)];
            cell.partition = draw(&random, 2) ? "uniform" : NULL;
            cell.backwards = draw(&random, 2);
            const int64_t gas = 12 / cell.data;
            if (cell.schedule[0] == 'i' && 12 % cell.data == 0 && gas % cell.pipeline == 0)
                cell.virtual_stages = 2;
            if (12 % cell.data != 0)
                cell.data = 1;
            run(&cell);
            assert_seen(&cell, &want);
        }
    }
}

/* ---- what is refused -------------------------------------------------------------------------- */

static void refuse(struct cell cell, const char *sentence)
{
    cell.sentence = sentence;
    cell.options = cell.options ? cell.options : ZERO(0, "");
    run(&cell);
}

static bool call_alone(struct gpt_seat *seat, struct cell *cell)
{
    shoal_tensor *loss;
    shoal_batch batch = {0};
    (void)cell;
    EXPECT(shoal_engine_forward(seat->engine, &batch, &loss) == SHOAL_EUNSUPPORTED);
    EXPECT(strstr(shoal_error_message(), "the 2 stages of this engine's pipeline") != NULL);
    EXPECT(shoal_engine_backward(seat->engine) == SHOAL_EUNSUPPORTED);
    EXPECT(shoal_engine_step(seat->engine) == SHOAL_EUNSUPPORTED);
    return true;
}

static void test_refused(void **state)
{
    (void)state;
    refuse((struct cell){.pipeline = 7}, "a pipeline of 7 stages needs more than 6 layers");
    refuse((struct cell){.pipeline = 2, .schedule = "zerobubble"},
           "there is no pipeline schedule \"zerobubble\"");
    refuse((struct cell){.pipeline = 2, .virtual_stages = 2, .schedule = "1f1b"},
           "the pipeline schedule 1f1b has one chunk of layers per stage, not 2");
    refuse((struct cell){.pipeline = 2, .virtual_stages = 2, .micro_batches = 5},
           "leave a group of 1, which is fewer than the 2 pipeline stages");
    refuse((struct cell){.pipeline = 2, .partition = "type:head2"}, "matches no layer");
    refuse((struct cell){.pipeline = 2, .partition = "even", .first_layers = 5},
           "do not divide among");
    refuse((struct cell){.pipeline = 2, .partition = "layout:Ettt|L"}, "layout");
    refuse((struct cell){.pipeline = 2, .partition = "layout:Ex|ttttL"},
           "has a sign other than E t m L");
    struct cell alone = {.pipeline = 2, .options = ZERO(0, ""), .follow = call_alone};
    run(&alone);
}

/* A neighbour that was made of another model. */
static bool disagree(struct gpt_seat *seat, struct cell *cell)
{
    shoal_step_info info;
    struct shoali_engine_stages *stages = &seat->engine->stages;
    (void)cell;
    if (stages->index == 1) /* it waits for fewer rows */
        stages->boundary[0].crossing[0].shape.dim[1]--;
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, &info) < 0);
    EXPECT(strstr(shoal_error_message(), "rank 0 (pp 0) posted send of 512 F32") != NULL);
    EXPECT(strstr(shoal_error_message(), "rank 1 (pp 1) posted recv of 480 F32") != NULL);
    EXPECT(strstr(shoal_error_message(), "the transfer into layer transformer.h.2") != NULL);
    return true;
}

static void test_other_shapes(void **state)
{
    (void)state;
    struct cell cell = {.pipeline = 2, .options = ZERO(0, ""), .follow = disagree};
    run(&cell);
}

/* ---- inference, evaluation alone -------------------------------------------------------------- */

static double evaluated[GPT_RANKS_MAX];

static bool evaluate(struct gpt_seat *seat, struct cell *cell)
{
    (void)cell;
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 7, &evaluated[seat->rank]) ==
           SHOAL_OK);
    return true;
}

static void test_inference(void **state)
{
    static const struct cell cells[] = {
        {.pipeline = 3}, {.pipeline = 2, .data = 2}, {.pipeline = 2, .virtual_stages = 2}};
    (void)state;
    struct cell one = {.options = ZERO(3, FETCH), .inference = true, .follow = evaluate};
    run(&one);
    const double want = evaluated[0];
    for (size_t i = 0; i < 3; i++) {
        struct cell cell = one;
        cell.pipeline = cells[i].pipeline;
        cell.data = cells[i].data;
        cell.virtual_stages = cells[i].virtual_stages;
        run(&cell);
        for (int32_t r = 0; r < ranks_of(&cell); r++)
            assert_memory_equal(&evaluated[r], &want, sizeof want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned_tied), cmocka_unit_test(test_any_model),
        cmocka_unit_test(test_tied),         cmocka_unit_test(test_random_cells),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_inference),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
