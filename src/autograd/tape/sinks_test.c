/* Where gradients go: sinks, grad_ready, tied and frozen parameters, exact mode, deferred weights,
 * pipeline stages. */
#include "autograd/test_model.h"

#include <math.h>

struct fixture {
    struct rig rig;
    struct model model;
    float *expected;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    rig_open(&f->rig, NULL);
    model_open(&f->model, &f->rig, SHOAL_F32);
    f->expected = calloc((size_t)f->model.module.element_count, sizeof(float));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    model_close(&f->model);
    rig_close(&f->rig);
    free(f->expected);
    free(f);
    return 0;
}

struct lane {
    struct shoali_slot *slot;
    struct shoal_tape *tape;
};

static struct lane lane_open(struct fixture *f, const struct shoali_observer *observers,
                             int32_t observer_count)
{
    struct lane lane;
    rig_ok(shoali_slot_create(f->rig.device, 0, &lane.slot));
    lane.tape =
        rig_tape(&f->rig, lane.slot, SHOAL_F32, &f->model.module, observers, observer_count);
    return lane;
}

static void lane_close(struct lane *lane)
{
    shoali_tape_destroy(lane->tape);
    shoali_slot_destroy(lane->slot);
}

static void set_accumulate(struct model *model, bool accumulate)
{
    for (int32_t i = 0; i < model->module.param_count; i++)
        model->module.param[i]->sink.accumulate = accumulate;
}

/* The reference: micro-batches 0..count-1 of one sample each, in order, whole model. */
static void run_uncut(struct fixture *f, int32_t count)
{
    struct lane lane = lane_open(f, NULL, 0);
    model_spoil_gradients(&f->model);
    for (int32_t m = 0; m < count; m++) {
        set_accumulate(&f->model, m > 0);
        model_backward(lane.tape, model_forward(&f->model, lane.tape, m, 1));
    }
    set_accumulate(&f->model, false);
    model_read_gradients(&f->model);
    memcpy(f->expected, f->model.gradients, (size_t)f->model.module.element_count * sizeof(float));
    lane_close(&lane);
}

static void assert_gradients_equal(struct fixture *f)
{
    model_read_gradients(&f->model);
    assert_memory_equal(f->model.gradients, f->expected,
                        (size_t)f->model.module.element_count * sizeof(float));
}

/* ---- grad_ready ---- */

struct ready {
    int32_t count[64], order[64], total;
};

static shoal_status count_ready(void *user, struct shoal_tape *tape, struct shoal_param *param)
{
    (void)tape;
    struct ready *ready = user;
    ready->count[param->index]++;
    ready->order[ready->total++] = param->index;
    return SHOAL_OK;
}

static void test_grad_ready_once_with_zeros_for_unused(void **state)
{
    struct fixture *f = *state;
    struct ready ready = {0};
    const struct shoali_observer observer = {.user = &ready, .grad_ready = count_ready};
    struct lane lane = lane_open(f, &observer, 1);
    model_spoil_gradients(&f->model);
    model_backward(lane.tape, model_forward(&f->model, lane.tape, 0, MODEL_BATCH));
    const struct shoali_module *module = &f->model.module;
    for (int32_t i = 0; i < module->param_count; i++)
        assert_int_equal(ready.count[i], 1);
    /* The tied table is ready only with its first use, at the very end, with the positions; what no
     * op uses before anything else of its layer. */
    const struct shoal_param *table = shoali_module_find(module, "embed.table");
    assert_int_equal(table->uses, 2);
    assert_int_equal(ready.order[ready.total - 2], table->index);
    static const char *const unused[] = {"h.0.never_used", "h.1.never_used"};
    for (int32_t i = 0; i < 2; i++) {
        const struct shoal_param *param = shoali_module_find(module, unused[i]);
        double values[3];
        rig_read_values(&f->rig, SHOAL_F32, param->sink.destination, values, 3);
        for (int32_t e = 0; e < 3; e++)
            assert_true(values[e] == 0);
        int32_t at = 0;
        while (ready.order[at] != param->index)
            at++;
        /* the block's other eleven follow */
        for (int32_t other = at + 1; other < at + 12; other++)
            assert_in_range(ready.order[other], param->index - 11, param->index - 1);
    }
    lane_close(&lane);
}

static void test_unused_keeps_what_accumulates(void **state)
{
    struct fixture *f = *state;
    struct shoal_param *param = shoali_module_find(&f->model.module, "h.0.never_used");
    const double before[3] = {1, 2, 3};
    double after[3];
    struct lane lane = lane_open(f, NULL, 0);
    rig_write_values(&f->rig, SHOAL_F32, param->sink.destination, before, 3);
    param->sink.accumulate = true;
    model_backward(lane.tape, model_forward(&f->model, lane.tape, 0, 1));
    rig_read_values(&f->rig, SHOAL_F32, param->sink.destination, after, 3);
    assert_memory_equal(before, after, sizeof before);
    lane_close(&lane);
}

/* The gradient of a parameter with two uses is the sum of the gradients of two separate ones. */
static void test_tied_parameter_sums_its_uses(void **state)
{
    struct fixture *f = *state;
    struct shoal_param tied, first, second;
    const shoal_shape square = shoal_shape_2(3, 3), shape = shoal_shape_2(2, 3);
    double weights[9], x[6], sums[9], parts[2][9];
    float narrow[6];
    rig_random(5, "weights", -1, 1, weights, 9);
    rig_random(5, "x", -1, 1, x, 6);
    rig_encode(SHOAL_F32, x, narrow, 6);
    struct shoal_param *const all[3] = {&tied, &first, &second};
    for (int32_t i = 0; i < 3; i++) {
        rig_param(&f->rig, all[i], "w", SHOAL_F32, square);
        rig_write_values(&f->rig, SHOAL_F32, all[i]->data, weights, 9);
    }
    struct lane lane = lane_open(f, NULL, 0);
    lane.tape->args.module = NULL;
    for (int32_t split = 0; split < 2; split++) {
        rig_ok(shoali_tape_begin(lane.tape, &(struct shoali_tape_begin){.needs_grad = true}));
        shoal_tensor *in = shoali_tape_add_input(lane.tape, SHOAL_F32, &shape, narrow, false);
        shoal_tensor *h = shoal_linear(lane.tape, in, split ? &first : &tied, NULL);
        shoal_tensor *y = shoal_linear(lane.tape, h, split ? &second : &tied, NULL);
        model_backward(lane.tape, shoal_sum(lane.tape, y, SHOAL_ALL_DIMS));
    }
    rig_read_values(&f->rig, SHOAL_F32, tied.sink.destination, sums, 9);
    rig_read_values(&f->rig, SHOAL_F32, first.sink.destination, parts[0], 9);
    rig_read_values(&f->rig, SHOAL_F32, second.sink.destination, parts[1], 9);
    for (int32_t e = 0; e < 9; e++)
        assert_true((float)sums[e] == (float)parts[1][e] + (float)parts[0][e]);
    lane_close(&lane);
}

static void test_frozen_has_no_gradient(void **state)
{
    struct fixture *f = *state;
    struct ready ready = {0};
    const struct shoali_observer observer = {.user = &ready, .grad_ready = count_ready};
    run_uncut(f, 1);
    static const char *const frozen[] = {"h.0.qkv.weight",  "h.1.up.bias", "h.1.ln_1.weight",
                                         "embed.positions", "norm.weight", "h.0.never_used"};
    struct lane lane = lane_open(f, &observer, 1);
    for (int32_t i = 0; i < 6; i++) {
        struct shoal_param *param = shoali_module_find(&f->model.module, frozen[i]);
        param->tags |= SHOAL_PARAM_FROZEN;
        param->sink.destination = NULL; /* would be an error if it were asked for */
    }
    model_backward(lane.tape, model_forward(&f->model, lane.tape, 0, 1));
    int64_t at = 0;
    for (int32_t i = 0; i < f->model.module.param_count; i++) {
        const struct shoal_param *param = f->model.module.param[i];
        const bool is_frozen = (param->tags & SHOAL_PARAM_FROZEN) != 0;
        assert_int_equal(ready.count[i], is_frozen ? 0 : 1);
        if (!is_frozen) {
            float *got = malloc((size_t)param->count * sizeof *got);
            rig_read(&f->rig, got, param->sink.destination, (size_t)param->count * sizeof *got);
            assert_memory_equal(got, f->expected + at, (size_t)param->count * sizeof *got);
            free(got);
        }
        at += param->count;
    }
    lane_close(&lane);
}

static void test_missing_sink_is_named(void **state)
{
    struct fixture *f = *state;
    struct lane lane = lane_open(f, NULL, 0);
    shoali_module_find(&f->model.module, "h.1.down.weight")->sink.destination = NULL;
    shoal_tensor *loss = model_forward(&f->model, lane.tape, 0, 1);
    assert_int_equal(shoali_tape_backward(lane.tape, &(struct shoali_backward){.outputs = &loss,
                                                                               .output_count = 1,
                                                                               .seed_value = 1}),
                     SHOAL_EINTERNAL);
    assert_non_null(strstr(shoal_error_message(), "h.1.down.weight"));
    assert_non_null(strstr(shoal_error_message(), "h.1/mlp"));
    lane_close(&lane);
}

/* ---- exact sinks ---- */

struct exact {
    int64_t *sums; /* host, all parameters */
    uint32_t flag;
};

/* Sums the micro-batches of `list` into I64 sinks, then adds them to `exact` as integers: what a
 * rank would do. */
static void add_exact(struct fixture *f, const int32_t *list, int32_t count, double limit,
                      struct exact *exact)
{
    struct lane lane = lane_open(f, NULL, 0);
    uint32_t *flag = rig_alloc(&f->rig, sizeof *flag);
    const uint32_t zero = 0;
    rig_write(&f->rig, flag, &zero, sizeof zero);
    for (int32_t i = 0; i < f->model.module.param_count; i++) {
        struct shoali_sink *sink = &f->model.module.param[i]->sink;
        sink->dtype = SHOAL_I64;
        sink->unit_log2 = 44;
        sink->limit = limit;
        sink->flag = flag;
    }
    for (int32_t m = 0; m < count; m++) {
        set_accumulate(&f->model, m > 0);
        model_backward(lane.tape, model_forward(&f->model, lane.tape, list[m], 1));
    }
    int64_t at = 0;
    for (int32_t i = 0; i < f->model.module.param_count; i++) {
        const struct shoal_param *param = f->model.module.param[i];
        int64_t *values = malloc((size_t)param->count * sizeof *values);
        rig_read(&f->rig, values, param->sink.destination, (size_t)param->count * sizeof *values);
        for (int64_t e = 0; e < param->count; e++)
            exact->sums[at++] += values[e];
        free(values);
    }
    uint32_t got;
    rig_read(&f->rig, &got, flag, sizeof got);
    exact->flag |= got;
    rig_free(&f->rig, flag);
    lane_close(&lane);
}

static void test_exact_sums_do_not_depend_on_who_sums(void **state)
{
    struct fixture *f = *state;
    static const int32_t all[] = {0, 1, 2, 3, 4, 5}, odd[] = {5, 1, 3}, even[] = {4, 0, 2},
                         rest[] = {3, 4, 5}, start[] = {2, 1, 0};
    const size_t bytes = (size_t)f->model.module.element_count * sizeof(int64_t);
    struct exact sums[3];
    run_uncut(f, 6);
    for (int32_t i = 0; i < 3; i++)
        sums[i] = (struct exact){.sums = calloc(1, bytes)};
    add_exact(f, all, 6, 0x1p16, &sums[0]);
    add_exact(f, odd, 3, 0x1p16, &sums[1]);
    add_exact(f, even, 3, 0x1p16, &sums[1]);
    add_exact(f, rest, 3, 0x1p16, &sums[2]);
    add_exact(f, start, 3, 0x1p16, &sums[2]);
    assert_memory_equal(sums[0].sums, sums[1].sums, bytes);
    assert_memory_equal(sums[0].sums, sums[2].sums, bytes);
    assert_int_equal(sums[0].flag | sums[1].flag | sums[2].flag, 0);
    /* and they are the gradients: 6 micro-batches of fp32 rounding, unit 2^-44 */
    for (int64_t e = 0; e < f->model.module.element_count; e++) {
        const double exact = (double)sums[0].sums[e] * 0x1p-44, fast = (double)f->expected[e];
        assert_true(fabs(exact - fast) <= 1e-6 * (1 + fabs(fast)));
    }
    for (int32_t i = 0; i < 3; i++)
        free(sums[i].sums);
}

static void test_exact_out_of_range_is_flagged(void **state)
{
    struct fixture *f = *state;
    static const int32_t one[] = {0};
    struct exact sums = {.sums = calloc((size_t)f->model.module.element_count, sizeof(int64_t))};
    add_exact(f, one, 1, 0x1p-20, &sums);
    assert_int_equal(sums.flag, 1);
    free(sums.sums);
}

/* ---- deferred weights ---- */

static void test_deferred_weights_have_the_same_bits(void **state)
{
    struct fixture *f = *state;
    struct ready ready = {0};
    const struct shoali_observer observer = {.user = &ready, .grad_ready = count_ready};
    run_uncut(f, 2);
    struct lane lane[2] = {lane_open(f, &observer, 1), lane_open(f, NULL, 0)};
    model_spoil_gradients(&f->model);
    /* Both backwards run before either weight part: as a zero-bubble schedule would. */
    for (int32_t m = 0; m < 2; m++) {
        shoal_tensor *loss = model_forward(&f->model, lane[m].tape, m, 1);
        set_accumulate(&f->model, m > 0);
        rig_ok(shoali_tape_backward(lane[m].tape, &(struct shoali_backward){.outputs = &loss,
                                                                            .output_count = 1,
                                                                            .seed_value = 1,
                                                                            .defer_weight = true}));
        if (m == 0) {
            assert_true(ready.total < f->model.module.param_count);
            rig_ok(shoali_tape_backward_weight(lane[0].tape));
            assert_int_equal(ready.total, f->model.module.param_count);
            assert_int_equal(shoali_tape_backward_weight(lane[0].tape), SHOAL_EINVAL);
        }
    }
    rig_ok(shoali_tape_backward_weight(lane[1].tape));
    set_accumulate(&f->model, false);
    assert_gradients_equal(f);
    lane_close(&lane[0]);
    lane_close(&lane[1]);
}

/* ---- pipeline ---- */

enum { MICRO_BATCHES = 3, CUT = 2 };

/* First stage of micro-batch m: its boundary tensor. */
static shoal_tensor *forward_first_stage(struct fixture *f, struct shoal_tape *tape, int32_t m)
{
    shoal_boundary boundary = {0};
    rig_ok(shoali_tape_begin(
        tape, &(struct shoali_tape_begin){
                  .step = 4, .first_sample = m, .training = true, .needs_grad = true}));
    model_add_batch(tape, m, 1);
    rig_ok(shoali_tape_forward_layers(tape, &f->model.module, 0, CUT, &boundary));
    return boundary.tensor[0];
}

/* Second stage, forward and backward at once; the boundary's gradient goes to `grad`. */
static void run_second_stage(struct fixture *f, struct shoal_tape *tape, int32_t m,
                             const shoal_tensor *received, void *grad)
{
    shoal_boundary boundary = {0};
    rig_ok(shoali_tape_begin(
        tape, &(struct shoali_tape_begin){
                  .step = 4, .first_sample = m, .training = true, .needs_grad = true}));
    model_add_batch(tape, m, 1);
    shoal_tensor *in =
        shoali_tape_add_device_input(tape, SHOAL_F32, &received->shape, received->data, true);
    shoal_boundary_set(tape, &boundary, &in, 1);
    rig_ok(shoali_tape_forward_layers(tape, &f->model.module, CUT, MODEL_LAYERS - CUT, &boundary));
    rig_ok(shoali_tape_backward(tape, &(struct shoali_backward){.outputs = boundary.tensor,
                                                                .output_count = 1,
                                                                .seed_value = 1,
                                                                .inputs = &in,
                                                                .input_grads = &grad,
                                                                .input_count = 1}));
}

static void test_pipeline_stages_give_the_uncut_gradients(void **state)
{
    struct fixture *f = *state;
    struct lane first[MICRO_BATCHES], second = lane_open(f, NULL, 0);
    shoal_tensor *sent[MICRO_BATCHES];
    struct shoal_param *table = shoali_module_find(&f->model.module, "embed.table");
    run_uncut(f, MICRO_BATCHES);
    model_spoil_gradients(&f->model);
    for (int32_t m = 0; m < MICRO_BATCHES; m++) {
        first[m] = lane_open(f, NULL, 0);
        sent[m] = forward_first_stage(f, first[m].tape, m);
    }
    for (int32_t m = 0; m < MICRO_BATCHES; m++) {
        void *grad = rig_alloc(&f->rig, (size_t)shoal_shape_count(&sent[m]->shape) * 4);
        const void *seed = grad;
        set_accumulate(&f->model, m > 0);
        run_second_stage(f, second.tape, m, sent[m], grad);
        table->sink.accumulate = true; /* the head's share is in it */
        rig_ok(shoali_tape_backward(
            first[m].tape,
            &(struct shoali_backward){.outputs = &sent[m], .seeds = &seed, .output_count = 1}));
    }
    set_accumulate(&f->model, false);
    assert_gradients_equal(f);
    for (int32_t m = 0; m < MICRO_BATCHES; m++)
        lane_close(&first[m]);
    lane_close(&second);
}

/* ---- writing a parameter ---- */

static void test_a_read_parameter_cannot_be_written(void **state)
{
    struct fixture *f = *state;
    struct shoal_param *param = shoali_module_find(&f->model.module, "h.0.up.weight");
    struct lane lane[2] = {lane_open(f, NULL, 0), lane_open(f, NULL, 0)};
    rig_ok(shoali_param_begin_write(param));
    assert_int_equal(param->version, 1);
    model_backward(lane[0].tape, model_forward(&f->model, lane[0].tape, 0, 1));
    model_forward(&f->model, lane[1].tape, 0, 1);
    shoali_tape_end(lane[0].tape);
    assert_int_equal(shoali_param_begin_write(param), SHOAL_EINTERNAL);
    assert_non_null(strstr(shoal_error_message(), "h.0.up.weight"));
    assert_int_equal(param->version, 1);
    shoali_tape_end(lane[1].tape);
    rig_ok(shoali_param_begin_write(param));
    assert_int_equal(param->version, 2);
    lane_close(&lane[0]);
    lane_close(&lane[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_grad_ready_once_with_zeros_for_unused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_unused_keeps_what_accumulates, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tied_parameter_sums_its_uses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_frozen_has_no_gradient, setup, teardown),
        cmocka_unit_test_setup_teardown(test_missing_sink_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exact_sums_do_not_depend_on_who_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exact_out_of_range_is_flagged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deferred_weights_have_the_same_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pipeline_stages_give_the_uncut_gradients, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_read_parameter_cannot_be_written, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
