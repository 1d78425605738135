/* What forward, backward, step and train_batch mean, what they refuse and what they say then. */
#include "engine/test_gpt.h"

#include <math.h>

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* ---- accumulation --------------------------------------------------------------------------- */

/* The loop a DeepSpeed user writes. */
static bool train_by_hand(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    int64_t train, micro_batch, gas;
    shoal_engine_get_batch_info(seat->engine, &train, &micro_batch, &gas);
    EXPECT(train == micro_batch * gas * seat->run->ranks && micro_batch == seat->run->samples);
    for (; seat->steps_done < seat->run->steps; seat->steps_done++) {
        const int64_t step = seat->steps_done;
        double mean = 0, loss;
        for (int64_t i = 0; i < gas; i++) {
            shoal_batch batch = {.data = (const void *[2]){NULL}};
            shoal_tensor *scalar;
            EXPECT(gpt_next(seat, step, seat->rank * gas + i, &batch) == SHOAL_OK);
            EXPECT(shoal_engine_forward(seat->engine, &batch, &scalar) == SHOAL_OK);
            EXPECT(shoal_tensor_get_scalar(scalar, &loss) == SHOAL_OK);
            mean += loss / (double)gas;
            EXPECT(shoal_engine_is_gradient_accumulation_boundary(seat->engine) == (i == gas - 1));
            EXPECT(shoal_engine_backward(seat->engine) == SHOAL_OK);
            EXPECT(shoal_engine_is_gradient_accumulation_boundary(seat->engine) == (i == gas - 1));
            EXPECT(shoal_engine_global_steps(seat->engine) == step);
            EXPECT(shoal_engine_step(seat->engine) == SHOAL_OK);
        }
        EXPECT(shoal_engine_global_steps(seat->engine) == step + 1);
        shoal_engine_get_step_info(seat->engine, &seat->info[step]);
        EXPECT(seat->info[step].step == step && seat->info[step].applied);
        /* fixed point of 2^-44 and the division: both far below a float's last bit */
        EXPECT(seat->run->ranks > 1 || fabs(mean - seat->info[step].loss) < ldexp(1.0, -40));
    }
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    return true;
}

static void test_by_hand(void **state)
{
    (void)state;
    static const char *const options[] = {
        "\"reduction\":\"exact\"", "\"gradient_clipping\":1.0",
        ("\"bf16\":{\"enabled\":true},\"scheduler\":{\"type\":\"WarmupLR\","
         "\"params\":{\"warmup_num_steps\":4}}")};
    for (int32_t i = 0; i < 3; i++)
        for (int32_t n = 1; n <= 3; n++) {
            struct gpt_run run = {.ranks = n, .options = options[i], .dropout = 0.1, .steps = 3};
            gpt_run_ranks(run, reference);
            run.run = train_by_hand;
            gpt_run_ranks(run, seats);
            gpt_assert_same(seats, n, reference, "by hand");
        }
}

/* A forward whose result nobody wants (evaluation by hand) leaves no trace. */
static bool forward_twice(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    shoal_batch batch = {.data = (const void *[2]){NULL}};
    EXPECT(gpt_next(seat, 99, 0, &batch) == SHOAL_OK);
    EXPECT(shoal_engine_forward(seat->engine, &batch, NULL) == SHOAL_OK);
    return gpt_train(seat);
}

static void test_abandoned_forward(void **state)
{
    (void)state;
    struct gpt_run run = {.steps = 2, .dropout = 0.1};
    gpt_run_ranks(run, reference);
    run.run = forward_twice;
    gpt_run_ranks(run, seats);
    gpt_assert_same(seats, 1, reference, "abandoned forward");
}

/* Evaluation: the same bits for any number of ranks, no dropout, and training goes on as if it had
 * not been. */
static bool train_and_evaluate(struct gpt_seat *seat)
{
    double loss[2];
    shoal_batch batch = {.data = (const void *[2]){NULL}};
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 7, &loss[0]) == SHOAL_OK);
    EXPECT(gpt_next(seat, 0, 0, &batch) == SHOAL_OK);
    EXPECT(shoal_engine_forward(seat->engine, &batch, NULL) == SHOAL_OK); /* without backward */
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 7, &loss[1]) == SHOAL_OK);
    EXPECT(loss[0] == loss[1] && fabs(loss[0] - log(GPT_VOCAB)) < 0.1);
    EXPECT(gpt_train(seat));
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 7, &loss[1]) == SHOAL_OK);
    EXPECT(loss[1] < loss[0]);
    seat->info[seat->steps_done++].loss = loss[1];
    return true;
}

static void test_evaluation(void **state)
{
    (void)state;
    struct gpt_run run = {.steps = 4, .dropout = 0.1, .options = "\"reduction\":\"exact\""};
    gpt_run_ranks(run, seats);
    const uint64_t plain = seats[0].fingerprint;
    run.run = train_and_evaluate;
    gpt_run_ranks(run, reference);
    assert_true(reference[0].fingerprint == plain);
    for (run.ranks = 2; run.ranks <= 4; run.ranks++) {
        run.options = run.ranks == 3 ? "\"reduction\":\"exact\",\"zero_optimization\":{\"stage\":3,"
                                       "\"stage3_param_persistence_threshold\":0}"
                                     : "\"reduction\":\"exact\"";
        gpt_run_ranks(run, seats);
        gpt_assert_same(seats, run.ranks, reference, "evaluation");
    }
}

/* A rank's wish to stop ends an evaluation of all ranks; the next evaluation is whole. */
static bool stop_evaluation(struct gpt_seat *seat)
{
    const int64_t endless = (int64_t)1 << 40;
    double loss = 0;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(gpt_train(seat));
    if (seat->rank == seat->run->ranks - 1)
        shoal_engine_request_stop(seat->engine);
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, endless, &loss) == SHOAL_SKIPPED);
    EXPECT(isnan(loss) && shoal_engine_stop_requested(seat->engine));
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 7, &loss) == SHOAL_OK);
    return !isnan(loss);
}

static void test_stop_evaluation(void **state)
{
    (void)state;
    struct gpt_run run = {.steps = 1, .run = stop_evaluation};
    for (run.ranks = 1; run.ranks <= 3; run.ranks++)
        gpt_run_ranks(run, seats);
    run.ranks = 2;
    run.options = "\"zero_optimization\":{\"stage\":3,\"stage3_param_persistence_threshold\":0}";
    gpt_run_ranks(run, seats);
}

/* A rank's wish to stop is known to all after the same step. */
static bool stop_at_two(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    while (!shoal_engine_stop_requested(seat->engine)) {
        EXPECT(shoal_engine_global_steps(seat->engine) < 3);
        if (seat->rank == 1 && shoal_engine_global_steps(seat->engine) == 1)
            shoal_engine_request_stop(seat->engine);
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) == SHOAL_OK);
    }
    EXPECT(shoal_engine_global_steps(seat->engine) == 2);
    return true;
}

static void test_stop(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.ranks = 3, .run = stop_at_two}, seats);
}

/* ---- refusals ------------------------------------------------------------------------------- */

#define EXPECT_REFUSED(call, code, text)                       \
    do {                                                       \
        EXPECT((call) == (code));                              \
        EXPECT(strstr(shoal_error_message(), (text)) != NULL); \
    } while (0)

static bool wrong_order(struct gpt_seat *seat)
{
    shoal_batch batch = {.data = (const void *[2]){NULL}};
    double loss;
    float *value = calloc(GPT_VOCAB * 32, sizeof *value);
    uint64_t before, after;
    EXPECT(value && gpt_open(seat, NULL) == SHOAL_OK);
    shoal_engine *engine = seat->engine;
    EXPECT(shoal_engine_fingerprint(engine, &before) == SHOAL_OK);
    EXPECT_REFUSED(shoal_engine_step(engine), SHOAL_EINVAL, "step without a backward");
    EXPECT_REFUSED(shoal_engine_backward(engine), SHOAL_EINVAL, "backward without a forward");
    EXPECT_REFUSED(shoal_engine_get_gradient(engine, "transformer.wte.weight", value), SHOAL_EINVAL,
                   "after a step");
    EXPECT(gpt_next(seat, 0, 0, &batch) == SHOAL_OK);
    batch.samples = 2;
    EXPECT_REFUSED(shoal_engine_forward(engine, &batch, NULL), SHOAL_EINVAL,
                   "train_micro_batch_size_per_gpu is 1");
    batch.samples = 0;
    EXPECT(shoal_engine_forward(engine, &batch, NULL) == SHOAL_OK);
    EXPECT_REFUSED(shoal_engine_step(engine), SHOAL_EINVAL, "step without a backward");
    EXPECT(shoal_engine_eval_batch(engine, gpt_next, seat, 1, &loss) == SHOAL_OK);
    EXPECT_REFUSED(shoal_engine_backward(engine), SHOAL_EINVAL, "backward without a forward");
    EXPECT(shoal_engine_forward(engine, &batch, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_backward(engine) == SHOAL_OK);
    EXPECT_REFUSED(shoal_engine_eval_batch(engine, gpt_next, seat, 1, &loss), SHOAL_EINVAL,
                   "evaluation is possible only between steps: 1 of 12");
    EXPECT_REFUSED(shoal_engine_save_checkpoint(engine, "/nowhere", NULL, NULL), SHOAL_EINVAL,
                   "between steps");
    EXPECT_REFUSED(shoal_engine_load_checkpoint(engine, "/nowhere", NULL, 0, NULL), SHOAL_EINVAL,
                   "between steps");
    EXPECT_REFUSED(shoal_engine_backward(engine), SHOAL_EINVAL, "backward without a forward");
    for (int32_t i = 1; i < 12; i++) { /* without step in between: allowed, they count alike */
        EXPECT(shoal_engine_forward(engine, &batch, NULL) == SHOAL_OK);
        EXPECT(shoal_engine_backward(engine) == SHOAL_OK);
    }
    EXPECT(shoal_engine_forward(engine, &batch, NULL) == SHOAL_OK);
    EXPECT_REFUSED(shoal_engine_backward(engine), SHOAL_EINVAL, "call shoal_engine_step");
    EXPECT(shoal_engine_fingerprint(engine, &after) == SHOAL_OK && before == after);
    EXPECT(shoal_engine_step(engine) == SHOAL_OK && shoal_engine_global_steps(engine) == 1);
    EXPECT_REFUSED(shoal_engine_get_param(engine, "transformer.wte.weihgt", value), SHOAL_EINVAL,
                   "nearest is `transformer.wte.weight`");
    EXPECT_REFUSED(shoal_engine_get_state(engine, "transformer.wte.weight", "momentum", value),
                   SHOAL_EINVAL, "no state `momentum`");
    free(value);
    return true;
}

static void test_wrong_order(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.run = wrong_order}, seats);
}

/* A step call after the extra forward above must not lose that forward's turn: covered by
 * test_abandoned_forward. Here: what a batch with an id outside the vocabulary says. */
static bool bad_id(struct gpt_seat *seat)
{
    shoal_batch batch = {.data = (const void *[2]){NULL}};
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(gpt_next(seat, 0, 0, &batch) == SHOAL_OK);
    seat->tokens[5] = GPT_VOCAB;
    shoal_status status = shoal_engine_forward(seat->engine, &batch, NULL);
    if (status >= 0)
        status = shoal_engine_backward(seat->engine);
    EXPECT(status == SHOAL_EINVAL);
    EXPECT(strstr(shoal_error_message(), "31") != NULL);
    return true;
}

static void test_bad_id(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.run = bad_id, .micro_batches = 1}, seats);
}

static bool refused_configuration(struct gpt_seat *seat)
{
    EXPECT_REFUSED(gpt_open(seat, "{\"train_batch_size\":4}"), SHOAL_ECONFIG, "optimizer");
    EXPECT_REFUSED(gpt_open(seat, "{\"train_batch_size\":5,\"train_micro_batch_size_per_gpu\":2,"
                                  "\"optimizer\":{\"type\":\"Adam\"}}"),
                   SHOAL_ECONFIG, "train_batch_size 5");
    EXPECT_REFUSED(gpt_open(seat, "{\"train_batch_sise\":5}"), SHOAL_ECONFIG, "train_batch_size");
    EXPECT_REFUSED(gpt_open(seat,
                            "{\"train_batch_size\":4,\"reduction\":\"exact\",\"optimizer\":{"
                            "\"type\":\"Adam\"},\"fp16\":{\"enabled\":true,\"loss_scale\":100}}"),
                   SHOAL_ECONFIG, "power of two");
    EXPECT(!seat->engine);
    return true;
}

static void test_refused_configuration(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.run = refused_configuration}, seats);
}

/* ---- numbers that leave the range ------------------------------------------------------------ */

/* Weights that are no numbers any more: three skipped steps, then a verdict that names the first
 * parameter without a usable gradient. */
static bool three_skips(struct gpt_seat *seat)
{
    static const char *const name = "transformer.h.1.mlp.c_fc.weight";
    const bool exact = seat->run->user != NULL;
    float *value = calloc(32 * 128, sizeof *value);
    shoal_status status = SHOAL_OK;
    shoal_step_info info;
    EXPECT(value && gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_get_param(seat->engine, name, value) == SHOAL_OK);
    value[17] = NAN;
    EXPECT(shoal_engine_set_param(seat->engine, name, value) == SHOAL_OK);
    free(value);
    for (int32_t i = 0; i < 2; i++) {
        status = shoal_engine_train_batch(seat->engine, gpt_next, seat, &info);
        EXPECT(status == SHOAL_SKIPPED && !info.applied && info.skipped_steps == i + 1);
        EXPECT(isnan(info.loss) && isnan(info.grad_norm));
    }
    status = shoal_engine_train_batch(seat->engine, gpt_next, seat, &info);
    EXPECT_REFUSED(status, SHOAL_ENUMERIC, "three steps in a row were skipped");
    EXPECT(!exact || strstr(shoal_error_message(), "`transformer.wte.weight`") != NULL);
    return true;
}

static void test_three_skips(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 2; n++) {
        gpt_run_ranks((struct gpt_run){.ranks = n, .run = three_skips}, seats);
        gpt_run_ranks((struct gpt_run){.ranks = n,
                                       .run = three_skips,
                                       .options = "\"reduction\":\"exact\"",
                                       .user = seats},
                      seats);
    }
}

/* Exact sums have a range; a step beyond it is skipped and the parameter named. The unit is so
 * small that 2^(63-60-4) = 1/2 is out of range. */
static bool beyond_range(struct gpt_seat *seat)
{
    shoal_step_info info;
    shoal_status status = SHOAL_OK;
    float *value = calloc(32, sizeof *value);
    EXPECT(value && gpt_open(seat, NULL) == SHOAL_OK);
    for (int32_t i = 0; i < 32; i++)
        value[i] = 300; /* the last norm's scale: gradients below it grow alike */
    EXPECT(shoal_engine_set_param(seat->engine, "transformer.ln_f.weight", value) == SHOAL_OK);
    free(value);
    for (int32_t i = 0; i < 3; i++) {
        status = shoal_engine_train_batch(seat->engine, gpt_next, seat, &info);
        EXPECT(status == (i < 2 ? SHOAL_SKIPPED : SHOAL_ENUMERIC));
    }
    EXPECT(isfinite(info.loss));
    EXPECT(strstr(shoal_error_message(), "smaller `exact_unit_log2`") != NULL);
    EXPECT(strstr(shoal_error_message(), "`transformer.") != NULL);
    return true;
}

static void test_beyond_range(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 2; n++)
        gpt_run_ranks((struct gpt_run){.ranks = n,
                                       .run = beyond_range,
                                       .options = "\"reduction\":\"exact\",\"exact_unit_log2\":60"},
                      seats);
}

/* fp16: the scale falls to its minimum, then the sentence of the scaler. */
static bool scale_exhausted(struct gpt_seat *seat)
{
    float *value = calloc(32, sizeof *value);
    shoal_status status = SHOAL_OK;
    EXPECT(value && gpt_open(seat, NULL) == SHOAL_OK);
    value[0] = NAN;
    EXPECT(shoal_engine_set_param(seat->engine, "transformer.ln_f.bias", value) == SHOAL_OK);
    free(value);
    int32_t steps = 0;
    while (status >= 0 && steps < 20) {
        status = shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL);
        steps++;
    }
    EXPECT(status == SHOAL_ENUMERIC);
    EXPECT(steps == 5); /* 16, 8, 4, 2, and at 1 no more */
    EXPECT(strstr(shoal_error_message(), "scale") != NULL);
    return true;
}

static void test_scale_exhausted(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.ranks = 2,
                                   .run = scale_exhausted,
                                   .options =
                                       "\"fp16\":{\"enabled\":true,\"initial_scale_power\":4,"
                                       "\"hysteresis\":1,\"min_loss_scale\":1}"},
                  seats);
}

/* ---- which ranks divide the samples --------------------------------------------------------- */

static shoal_status open_on_mesh(struct gpt_seat *seat, shoal_mesh *mesh)
{
    shoal_status status = SHOAL_OK;
    char text[2048];
    gpt_config_text(seat->run, text, sizeof text);
    if (!seat->model)
        SHOAL_TRY(status, gpt_make_model(seat->run, &seat->model), done);
    status = shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                      .config_text = text,
                                                      .mesh = mesh,
                                                      .seed = seat->run->seed,
                                                      .threads = 1},
                                 &seat->engine);
done:
    return status;
}

/* A mesh of all ranks along dp is the plain group, and says which micro-batches are whose. */
static bool train_on_mesh(struct gpt_seat *seat)
{
    shoal_mesh *mesh = NULL;
    int64_t first, count, train, micro, gas;
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group}, &mesh) == SHOAL_OK);
    EXPECT(open_on_mesh(seat, mesh) == SHOAL_OK);
    shoal_engine_get_micro_range(seat->engine, &first, &count);
    shoal_engine_get_batch_info(seat->engine, &train, &micro, &gas);
    EXPECT(count == gas && first == seat->rank * gas);
    const bool trained = gpt_train(seat);
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return trained;
}

/* Axes that the engine does not divide by yet are refused, not silently computed twice. */
static bool refused_mesh(struct gpt_seat *seat)
{
    static const shoal_mesh_args meshes[] = {{.ranks = 8, .pipeline = 4, .context = 2},
                                             {.ranks = 2, .context = 2}};
    static const char *const sentences[] = {
        "8 ranks 1 are along dp, 1 along tp and 4 along pp (this one is cp 0, pp 0)",
        "2 ranks 1 are along dp, 1 along tp and 1 along pp (this one is cp 0)"};
    for (int32_t i = 0; i < 2; i++) {
        shoal_mesh *mesh;
        EXPECT(shoal_mesh_create(&meshes[i], &mesh) == SHOAL_OK);
        EXPECT_REFUSED(open_on_mesh(seat, mesh), SHOAL_EUNSUPPORTED, sentences[i]);
        shoal_mesh_destroy(mesh);
    }
    shoal_mesh *nobody;
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.ranks = 2, .pipeline = 2}, &nobody) == SHOAL_OK);
    EXPECT_REFUSED(open_on_mesh(seat, nobody), SHOAL_EINVAL,
                   "a mesh of 2 ranks without a group, over which they communicate");
    shoal_mesh_destroy(nobody);
    return true;
}

static void test_mesh(void **state)
{
    (void)state;
    struct gpt_run run = {.options = "\"reduction\":\"exact\"", .dropout = 0.1, .steps = 2};
    gpt_run_ranks(run, reference);
    run.run = train_on_mesh;
    for (run.ranks = 1; run.ranks <= 4; run.ranks *= 2) {
        gpt_run_ranks(run, seats);
        gpt_assert_same(seats, run.ranks, reference, "on a mesh");
    }
    gpt_run_ranks((struct gpt_run){.run = refused_mesh}, seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_abandoned_forward),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_stop_evaluation),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_wrong_order),
        cmocka_unit_test(test_bad_id),
        cmocka_unit_test(test_refused_configuration),
        cmocka_unit_test(test_three_skips),
        cmocka_unit_test(test_beyond_range),
        cmocka_unit_test(test_scale_exhausted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
