/* Memory and time: the plan of a meta run, recompute, replay, allocations, cost of recording. */
#include "autograd/test_model.h"

#include <time.h>

/* ---- a recompute observer ---- */

struct recompute {
    const char *suffix; /* scopes whose path ends so; "": all layers */
    int32_t flagged;
};

static shoal_status flag_scope(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)tape;
    struct recompute *recompute = user;
    const size_t length = strlen(scope->path), wanted = strlen(recompute->suffix);
    const bool matches = wanted == 0 ? scope->layer != NULL
                                     : length >= wanted && strcmp(scope->path + length - wanted,
                                                                  recompute->suffix) == 0;
    scope->recompute = matches;
    recompute->flagged += matches;
    return SHOAL_OK;
}

/* Gradients and loss of one run; returns the slot's peak. */
static size_t run_model(struct model *model, const struct shoali_observer *observers,
                        int32_t observer_count, size_t capacity, float *gradients, float *loss)
{
    struct shoali_slot *slot;
    rig_ok(shoali_slot_create(model->rig->device, capacity, &slot));
    struct shoal_tape *tape =
        rig_tape(model->rig, slot, model->module.dtype, &model->module, observers, observer_count);
    model_spoil_gradients(model);
    shoal_tensor *result = model_forward(model, tape, 2, MODEL_BATCH);
    rig_ok(shoal_tensor_read(result, 0, 1, loss));
    model_backward(tape, result);
    model_read_gradients(model);
    memcpy(gradients, model->gradients, (size_t)model->module.element_count * sizeof(float));
    if (capacity > 0)
        assert_int_equal(shoali_slot_growth_count(slot), 0);
    const size_t peak = shoali_slot_peak_bytes(slot);
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    return peak;
}

static size_t plan_model(struct model *model, const struct shoali_observer *observers,
                         int32_t observer_count)
{
    struct shoali_slot *slot;
    rig_ok(shoali_slot_create(NULL, 0, &slot));
    struct shoal_tape *tape =
        rig_tape(NULL, slot, model->module.dtype, &model->module, observers, observer_count);
    shoal_tensor *loss = model_forward(model, tape, 2, MODEL_BATCH);
    assert_null(loss->data);
    model_backward(tape, loss);
    const size_t peak = shoali_slot_peak_bytes(slot);
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    return peak;
}

struct fixture {
    struct rig rig;
    struct model model;
    float *expected, *got;
    float loss;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    rig_open(&f->rig, NULL);
    model_open(&f->model, &f->rig, SHOAL_F32);
    const size_t count = (size_t)f->model.module.element_count;
    f->expected = calloc(count, sizeof(float));
    f->got = calloc(count, sizeof(float));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    model_close(&f->model);
    rig_close(&f->rig);
    free(f->expected);
    free(f->got);
    free(f);
    return 0;
}

static size_t gradient_bytes(const struct fixture *f)
{
    return (size_t)f->model.module.element_count * sizeof(float);
}

static void test_plan_is_what_a_run_needs(void **state)
{
    struct fixture *f = *state;
    const size_t plan = plan_model(&f->model, NULL, 0);
    assert_true(plan > 0);
    /* A slot of exactly the plan holds the run, whose peak is the plan's. */
    assert_int_equal(run_model(&f->model, NULL, 0, plan, f->got, &f->loss), plan);
    /* A smaller one does not: the growth is counted. */
    struct shoali_slot *slot;
    rig_ok(shoali_slot_create(f->rig.device, plan - 64, &slot));
    struct shoal_tape *tape = rig_tape(&f->rig, slot, SHOAL_F32, &f->model.module, NULL, 0);
    model_backward(tape, model_forward(&f->model, tape, 2, MODEL_BATCH));
    assert_int_equal(shoali_slot_growth_count(slot), 1);
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
}

static void check_recompute(struct fixture *f, const char *suffix, int32_t scopes)
{
    float loss;
    const size_t plain = run_model(&f->model, NULL, 0, 0, f->expected, &f->loss);
    struct recompute recompute = {.suffix = suffix};
    const struct shoali_observer observer = {.user = &recompute, .forward_begin = flag_scope};
    const size_t plan = plan_model(&f->model, &observer, 1);
    recompute.flagged = 0;
    assert_int_equal(run_model(&f->model, &observer, 1, plan, f->got, &loss), plan);
    assert_int_equal(recompute.flagged, scopes);
    assert_memory_equal(&loss, &f->loss, sizeof loss);
    assert_memory_equal(f->got, f->expected, gradient_bytes(f));
    print_message("recompute '%s': peak %zu of %zu bytes\n", suffix, plan, plain);
    assert_true(plan < plain);
}

static void test_recompute_has_the_same_bits(void **state)
{
    check_recompute(*state, "", MODEL_LAYERS);
    check_recompute(*state, "attn", 2);
    check_recompute(*state, "mlp", 2);
}

static void test_replay_of_each_scope_has_the_same_bits(void **state)
{
    struct fixture *f = *state;
    run_model(&f->model, NULL, 0, 0, f->expected, &f->loss);
    static const char *const paths[] = {"h.0/attn", "h.1/mlp", "h.1", "embed", "head", "norm"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        float loss;
        struct recompute recompute = {.suffix = paths[i]};
        const struct shoali_observer observer = {.user = &recompute, .forward_begin = flag_scope};
        run_model(&f->model, &observer, 1, 0, f->got, &loss);
        assert_int_equal(recompute.flagged, 1);
        assert_memory_equal(&loss, &f->loss, sizeof loss);
        assert_memory_equal(f->got, f->expected, gradient_bytes(f));
    }
}

static void test_nothing_is_allocated_after_the_first_step(void **state)
{
    struct fixture *f = *state;
    struct shoali_slot *slot;
    struct shoali_device_counters before, after;
    size_t blocks = 0;
    const void *lists[2][5];
    rig_ok(shoali_slot_create(f->rig.device, 0, &slot));
    struct shoal_tape *tape = rig_tape(&f->rig, slot, SHOAL_F32, &f->model.module, NULL, 0);
    for (int32_t step = 0; step < 4; step++) {
        model_backward(tape, model_forward(&f->model, tape, step * MODEL_BATCH, MODEL_BATCH));
        const void *now[5] = {tape->node, tape->tensor, tape->scope, tape->event,
                              tape->staging.memory};
        shoali_device_get_counters(f->rig.device, &after);
        if (step > 0) {
            assert_int_equal(after.alloc_count, before.alloc_count);
            assert_int_equal(tape->arena.block_count, blocks);
            assert_memory_equal(now, lists[0], sizeof now);
            /* neither inputs nor backward wait for the device */
            assert_int_equal(after.host_sync_count, before.host_sync_count);
        }
        before = after;
        blocks = tape->arena.block_count;
        memcpy(lists[0], now, sizeof now);
    }
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
}

/* After backward only what the caller may still look at is in the slot. */
static void test_backward_gives_memory_back(void **state)
{
    struct fixture *f = *state;
    struct shoali_slot *slot;
    rig_ok(shoali_slot_create(f->rig.device, 0, &slot));
    struct shoal_tape *tape = rig_tape(&f->rig, slot, SHOAL_F32, &f->model.module, NULL, 0);
    shoal_tensor *loss = model_forward(&f->model, tape, 0, MODEL_BATCH);
    const size_t forward = shoali_slot_used_bytes(slot);
    model_backward(tape, loss);
    /* two inputs, the loss and the embedding's counter */
    const size_t inputs = 2 * (((size_t)MODEL_BATCH * MODEL_LENGTH * 4 + 63) / 64 * 64);
    assert_int_equal(shoali_slot_used_bytes(slot), inputs + 2 * 64);
    assert_true(forward > 4 * shoali_slot_used_bytes(slot));
    shoali_tape_end(tape);
    assert_int_equal(shoali_slot_used_bytes(slot), 0);
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
}

/* Evaluation saves nothing: depth adds no memory. */
static void test_evaluation_keeps_little(void **state)
{
    struct fixture *f = *state;
    size_t used[2], peak[2];
    for (int32_t blocks = 1; blocks <= 2; blocks++) {
        struct shoali_slot *slot;
        rig_ok(shoali_slot_create(f->rig.device, 0, &slot));
        struct shoal_tape *tape = rig_tape(&f->rig, slot, SHOAL_F32, &f->model.module, NULL, 0);
        shoal_boundary boundary = {0};
        rig_ok(shoali_tape_begin(tape, &(struct shoali_tape_begin){0}));
        model_add_batch(tape, 0, MODEL_BATCH);
        assert_int_equal(
            shoali_tape_forward_layers(tape, &f->model.module, 1, MODEL_LAYERS, &boundary),
            SHOAL_EINVAL);
        rig_ok(shoali_tape_forward_layers(tape, &f->model.module, 0, 1 + blocks, &boundary));
        used[blocks - 1] = shoali_slot_used_bytes(slot);
        peak[blocks - 1] = shoali_slot_peak_bytes(slot);
        assert_int_equal(shoali_tape_backward(tape, &(struct shoali_backward){0}), SHOAL_EINVAL);
        shoali_tape_destroy(tape);
        shoali_slot_destroy(slot);
    }
    assert_int_equal(used[0], used[1]);
    /* first fit may place the second block's tensors less tightly */
    assert_true(peak[1] <= peak[0] + peak[0] / 4);
}

static int64_t cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* The least time of a node beyond its kernel, forward and backward, of a tape of so many nodes. */
static double node_ns(int32_t nodes)
{
    enum { ROUNDS = 5 };
    struct shoali_slot *slot;
    rig_ok(shoali_slot_create(NULL, 0, &slot));
    struct shoal_tape *tape = rig_tape(NULL, slot, SHOAL_F32, NULL, NULL, 0);
    const shoal_shape shape = shoal_shape_2(64, 64);
    int64_t least = INT64_MAX;
    for (int32_t round = 0; round < ROUNDS; round++) {
        rig_ok(shoali_tape_begin(tape, &(struct shoali_tape_begin){.needs_grad = true}));
        shoal_tensor *x = shoali_tape_add_input(tape, SHOAL_F32, &shape, NULL, true);
        const int64_t start = cpu_ns();
        for (int32_t i = 0; i < nodes; i++)
            x = shoal_tanh(tape, x);
        rig_ok(shoali_tape_backward(
            tape, &(struct shoali_backward){.outputs = &x, .output_count = 1, .seed_value = 1}));
        const int64_t spent = cpu_ns() - start;
        least = spent < least ? spent : least;
    }
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    return (double)least / nodes;
}

/* A node costs as much in a long tape as in a short one. If each node looked at all before it, a
 * node of the long tape would cost 16 times as much. */
static void test_recording_is_linear(void **state)
{
    (void)state;
    const double few = node_ns(500), many = node_ns(8000);
    print_message("per node: %.0f ns of 500, %.0f ns of 8000\n", few, many);
    assert_true(many < 6 * few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plan_is_what_a_run_needs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recompute_has_the_same_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replay_of_each_scope_has_the_same_bits, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_allocated_after_the_first_step, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_backward_gives_memory_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_evaluation_keeps_little, setup, teardown),
        cmocka_unit_test(test_recording_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
