/* A unit is complete when its gradients came: deferred weight gradients, several tapes alive, a
 * micro-batch cut over two tapes that share a parameter. The model has a tied table and parameters
 * that no op uses.
 *
 * A schedule is a string of what a step does: f forward, B backward, b backward of inputs alone,
 * w the weights it left, C forward and backward on two tapes; each with the number of the
 * micro-batch, which has tapes of its own. */
#include "zero/test_ranks.h"

enum { LANES = 3, CUT = 3 };

static struct order {
    const char *schedule;
    int32_t gas;
    bool recompute;
} order;

struct lane {
    struct shoali_slot *slot;
    struct shoal_tape *tape;
    struct shoal_tensor *loss;
};

static shoal_status flag_layer(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)user;
    (void)tape;
    scope->recompute = order.recompute && scope->layer;
    return SHOAL_OK;
}

static bool open_lane(struct seat *seat, struct lane *lane, const struct shoali_observer *observers)
{
    NEED(shoali_slot_create(seat->device, 1 << 22, &lane->slot));
    NEED(shoali_tape_create(&(struct shoali_tape_args){.exec = seat->exec,
                                                       .module = &seat->module,
                                                       .slot = lane->slot,
                                                       .dtype = seat->run->dtype,
                                                       .seed = 5,
                                                       .observers = observers,
                                                       .observer_count = 2},
                            &lane->tape));
    return true;
}

static bool backward(struct seat *seat, struct lane *lane, bool defer)
{
    const double scale = seat->run->dtype == SHOAL_F16 ? 256 : 1;
    NEED(shoali_zero_add_loss(seat->zero, lane->loss->data));
    NEED(shoali_tape_backward(
        lane->tape, &(struct shoali_backward){.outputs = &lane->loss,
                                              .output_count = 1,
                                              .seed_value = shoali_zero_seed(seat->zero, scale),
                                              .defer_weight = defer}));
    return true;
}

/* The model's first layers on one tape, the others on the next, as two stages of a pipeline. */
static bool run_cut(struct seat *seat, struct lane lane[2], int32_t step, int64_t micro)
{
    shoal_boundary boundary = {0};
    void *gradient = NULL;
    const void *seed;
    for (int32_t l = 0; l < 2; l++) {
        seat->tape = lane[l].tape;
        if (!begin_tape(seat, step, micro, true))
            return false;
    }
    NEED(shoali_tape_forward_layers(lane[0].tape, &seat->module, 0, CUT, &boundary));
    struct shoal_tensor *sent = boundary.tensor[0];
    struct shoal_tensor *in =
        shoali_tape_add_device_input(lane[1].tape, sent->dtype, &sent->shape, sent->data, true);
    shoal_boundary_set(lane[1].tape, &boundary, &in, 1);
    NEED(shoali_tape_forward_layers(lane[1].tape, &seat->module, CUT,
                                    seat->module.layer_count - CUT, &boundary));
    NEED(shoali_device_alloc_zeroed(
        seat->exec.stream, (size_t)shoal_shape_count(&sent->shape) * sizeof(float), &gradient));
    seed = gradient;
    lane[1].loss = boundary.tensor[0];
    NEED(shoali_zero_add_loss(seat->zero, lane[1].loss->data));
    NEED(shoali_tape_backward(
        lane[1].tape, &(struct shoali_backward){.outputs = &lane[1].loss,
                                                .output_count = 1,
                                                .seed_value = shoali_zero_seed(seat->zero, 1),
                                                .inputs = &in,
                                                .input_grads = &gradient,
                                                .input_count = 1}));
    NEED(shoali_tape_backward(
        lane[0].tape,
        &(struct shoali_backward){.outputs = &sent, .seeds = &seed, .output_count = 1}));
    shoali_tape_end(lane[1].tape);
    shoali_tape_end(lane[0].tape);
    shoali_device_free(seat->device, gradient);
    return true;
}

static bool run_schedule(struct seat *seat, struct lane *lanes, int32_t step)
{
    struct shoal_tape *own = seat->tape;
    int64_t begun = 0;
    for (const char *at = order.schedule; *at; at += 2 + (at[2] == ' ')) {
        struct lane *lane = &lanes[at[1] - '0'];
        const int64_t micro = seat->rank * order.gas + (at[1] - '0');
        if (*at == 'B' || *at == 'b' || *at == 'C')
            NEED(shoali_zero_micro_begin(seat->zero, begun++));
        seat->tape = lane->tape;
        const bool passed = *at == 'f'   ? forward(seat, step, micro, true, &lane->loss)
                            : *at == 'C' ? run_cut(seat, lanes, step, micro)
                            : *at == 'w' ? true
                                         : backward(seat, lane, *at == 'b');
        seat->tape = own;
        if (!passed)
            return false;
        if (*at == 'w')
            NEED(shoali_tape_backward_weight(lane->tape));
        if (*at == 'w' || *at == 'B')
            shoali_tape_end(lane->tape);
    }
    return true;
}

static bool drive(struct seat *seat)
{
    struct lane lanes[LANES] = {{0}};
    struct shoali_observer observers[2] = {{.forward_begin = flag_layer}};
    bool passed = open_seat(seat);
    if (passed)
        observers[1] = *shoali_zero_observer(seat->zero);
    for (int32_t l = 0; l < LANES && passed; l++)
        passed = open_lane(seat, &lanes[l], observers);
    for (int32_t step = 0; step < seat->run->steps && passed; step++) {
        const double scale = seat->run->dtype == SHOAL_F16 ? 256 : 1;
        struct shoali_zero_verdict verdict;
        passed = run_schedule(seat, lanes, step);
        if (!passed)
            break;
        seat->status = shoali_zero_reduce(seat->zero, scale, false, &verdict);
        if (seat->status >= 0)
            seat->status =
                shoali_zero_step(seat->zero, &(struct shoali_zero_now){.lr = 0.01, .t = step + 1});
        passed = seat->status >= 0 || note_failure(seat, "the step", __FILE__, __LINE__);
        if (seat->rank == 0)
            seat->result->verdict[step] = verdict;
    }
    for (int32_t l = 0; l < LANES; l++) {
        if (lanes[l].tape)
            shoali_tape_destroy(lanes[l].tape);
        if (lanes[l].slot)
            shoali_slot_destroy(lanes[l].slot);
    }
    return passed && collect(seat);
}

static const struct shoali_zero_fetch fetches[] = {
    {.max_live = 0},
    {.max_live = INT64_MAX, .max_reuse_distance = INT64_MAX, .prefetch_bucket = INT64_MAX}};

/* Every stage, with and without overlap, buckets, recompute; against plain backwards at stage
 * `stage`, or at the run's own stage when that is -1. */
static void check(struct run run, const char *schedule, int32_t gas, int32_t stage)
{
    for (run.ranks = 1; run.ranks <= 3; run.ranks++) {
        run.micro_batches = gas * run.ranks;
        const int32_t first = run.stage, last = run.stage >= 0 ? run.stage : 3;
        for (int32_t s = first >= 0 ? first : 0; s <= last; s++) {
            struct run usual = run;
            usual.stage = stage >= 0 ? stage : s;
            go(usual, &reference);
            for (int32_t way = 0; way < 4; way++) {
                struct run cut = run;
                cut.stage = s;
                cut.drive = drive;
                cut.overlap = way & 1;
                cut.bucket = way & 1 ? 300 : 0;
                cut.fetch = fetches[way & 1];
                order = (struct order){schedule, gas, (way & 2) != 0};
                go(cut, &other);
                compare(&cut, true);
            }
        }
    }
}

static void test_exact(void **state)
{
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16};
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        const struct run run = {.stage = -1, .dtype = dtypes[d], .exact = true, .steps = 2};
        check(run, "f0 b0 w0 f1 b1 w1", 2, 0);
        check(run, "f0 f1 B0 B1", 2, 0);
        check(run, "f0 f1 B1 B0", 2, 0);
        check(run, "f0 f1 b0 b1 w0 w1", 2, 0);
        check(run, "f0 f1 b1 b0 w0 w1", 2, 0);
        check(run, "f0 b0 f1 f2 b2 w0 b1 w2 w1", 3, 0);
    }
}

/* Backwards that end before the next begins add in the order of plain ones. */
static void test_fast_one_after_the_other(void **state)
{
    (void)state;
    const struct run run = {.stage = -1, .dtype = SHOAL_F32, .steps = 2};
    check(run, "f0 b0 w0 f1 b1 w1", 2, -1);
    check(run, "f0 f1 B0 B1", 2, -1);
    check(run, "f0 f1 f2 b0 w0 b1 w1 B2", 3, -1);
}

/* Where all weights wait, micro-batches meet on the rank before they go over ranks: the order of
 * stage 1, at every stage. */
static void test_fast_side_by_side(void **state)
{
    (void)state;
    const struct run run = {.stage = -1, .dtype = SHOAL_F32, .steps = 2};
    check(run, "f0 f1 b0 b1 w0 w1", 2, 1);
    check(run, "f0 f1 f2 b0 b1 b2 w0 w1 w2", 3, 1);
}

/* A parameter's two uses are on two tapes, each of which says once that it is ready. */
static void test_two_tapes_of_one_micro_batch(void **state)
{
    (void)state;
    struct run run = {.stage = -1, .dtype = SHOAL_F32, .exact = true, .steps = 2};
    check(run, "C0", 1, 0);
    check(run, "C0 C1", 2, 0);
    run.exact = false;
    run.stage = 1;
    check(run, "C0 C1", 2, -1);
}

static void test_forgotten_weights(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 3; stage++) {
        const struct run run = {.ranks = 2,
                                .stage = stage,
                                .dtype = SHOAL_F32,
                                .micro_batches = 4,
                                .steps = 1,
                                .drive = drive,
                                .fails = true};
        order = (struct order){"f0 b0 f1 b1 w1", 2, false};
        go(run, &other);
        for (int32_t r = 0; r < 2; r++) {
            /* On a device whose streams run by themselves, the one may learn of the other first. */
            assert_true(seats[r].status == SHOAL_EINVAL || seats[r].status == SHOAL_EPEER);
            assert_true(seats[0].status == SHOAL_EINVAL || seats[1].status == SHOAL_EINVAL);
            assert_non_null(strstr(seats[r].message, "the gradient of `"));
            assert_non_null(strstr(seats[r].message, "defer_weight"));
        }
    }
    print_message("%s\n", seats[0].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_fast_one_after_the_other),
        cmocka_unit_test(test_fast_side_by_side),
        cmocka_unit_test(test_two_tapes_of_one_micro_batch),
        cmocka_unit_test(test_forgotten_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
