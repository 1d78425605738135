/* Communication on its own thread: the same bits as without, one more buffer, and errors that reach
 * the computing thread. */
#include "zero/test_ranks.h"

#include <stdatomic.h>
#include <time.h>

static const struct shoali_zero_fetch fetches[] = {
    {.max_live = INT64_MAX, .prefetch_bucket = INT64_MAX},
    {.max_live = 2500,
     .max_reuse_distance = 700,
     .prefetch_bucket = 1000,
     .param_persistence = 100,
     .model_persistence = 200}};

static const char *const devices[][2] = {
    {"cpu", ""}, {"sim", "late"}, {"sim", "random"}, {"sim", "thread"}};

/* ---- bits ----------------------------------------------------------------------------------- */

static void on_as_off(struct run run)
{
    run.overlap = false;
    go(run, &reference);
    run.overlap = true;
    go(run, &other);
    compare(&run, true);
}

static void test_on_as_off(void **state)
{
    const int32_t device = *(const int32_t *)*state;
    struct run run = {.dtype = SHOAL_BF16, .accelerator = devices[device][0], .steps = 2};
    setenv("SHOAL_SIM_STREAMS", devices[device][1], 1);
    for (run.ranks = device ? 2 : 1; run.ranks <= 4; run.ranks++)
        for (run.stage = 0; run.stage <= 3; run.stage++)
            for (int32_t variant = 0; variant<4; variant += device> 1 ? 3 : 1) {
                run.exact = variant % 2 != 0;
                run.fetch = fetches[variant / 2];
                run.bucket = variant / 2 ? 300 : 0;
                run.all_reduce = variant == 2;
                run.micro_batches = run.ranks * (1 + variant / 2);
                run.eval = variant == 1 ? 5 : 0;
                on_as_off(run);
            }
    unsetenv("SHOAL_SIM_STREAMS");
}

/* What is promised: at most one more buffer, of the largest unit's gradients. */
static void test_memory(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 3; stage++) {
        struct run run = {.ranks = 2,
                          .stage = stage,
                          .sizes = &large,
                          .dtype = SHOAL_F32,
                          .micro_batches = 4,
                          .steps = 2,
                          .fetch = {.max_live = INT64_MAX, .prefetch_bucket = 0}};
        on_as_off(run);
        const int64_t more = other.memory[0].buffers_bytes - reference.memory[0].buffers_bytes;
        const int64_t largest = 200 * 128 * 4;
        printf("stage %d: %lld bytes more with overlap\n", (int)stage, (long long)more);
        assert_true(more >= 0 && more <= largest);
        assert_true(stage < 2 ? more == 0 : more > 0);
    }
}

/* ---- failures ------------------------------------------------------------------------------- */

static _Atomic int32_t gave_up;

/* One step that goes well, and in the next one rank 1 stops after a micro-batch's forward. With a
 * timeout the others give up first. */
static bool leave_in_step(struct seat *seat)
{
    const int64_t deadline = shoali_deadline_ns(INT64_C(60000000000));
    struct shoal_tensor *loss;
    if (!open_seat(seat) || !train_step(seat, 0))
        return false;
    if (seat->rank != 1) {
        const bool passed = train_step(seat, 1);
        atomic_fetch_add(&gave_up, !passed);
        return passed;
    }
    if (!forward(seat, 1, 0, true, &loss))
        return false;
    while (seat->run->timeout_s > 0 && atomic_load(&gave_up) < seat->run->ranks - 1 &&
           !shoali_deadline_passed(deadline))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    NEED(SHOAL_FAIL(SHOAL_EIO, "rank 1 has had enough"));
    return true;
}

static void test_peer_leaves(void **state)
{
    (void)state;
    for (int32_t silent = 0; silent < 2; silent++)
        for (int32_t stage = silent; stage <= 3; stage += 1 + silent) {
            const struct run run = {.ranks = 3,
                                    .stage = stage,
                                    .micro_batches = 3,
                                    .overlap = true,
                                    .bucket = 300,
                                    .fetch = fetches[0],
                                    .timeout_s = silent ? 1 : 0,
                                    .drive = leave_in_step,
                                    .fails = true};
            atomic_store(&gave_up, 0);
            go(run, &other);
            for (int32_t r = 0; r < run.ranks; r++) {
                assert_false(seats[r].passed);
                if (r == 1)
                    continue;
                assert_int_equal(seats[r].status, silent ? SHOAL_ETIMEOUT : SHOAL_EPEER);
                assert_non_null(strstr(seats[r].message, silent ? "rank 1 did not come within 1.0 s"
                                                                : "rank 1 has had enough"));
            }
        }
}

/* Layers a and b are alike, so that nothing but their order differs. */
static bool run_in_other_order(struct seat *seat)
{
    static const int32_t orders[2][6] = {{0, 1, 2, 3, 4, 5}, {0, 3, 2, 1, 4, 5}};
    const int32_t *order = orders[seat->rank == 1];
    struct shoali_zero_verdict verdict;
    int32_t tokens[T] = {0};
    const shoal_shape shape = shoal_shape_2(1, T);
    struct shoal_tensor *inputs[2];
    shoal_boundary boundary = {0};
    if (!open_seat(seat))
        return false;
    NEED(shoali_tape_begin(seat->tape,
                           &(struct shoali_tape_begin){.training = true, .needs_grad = true}));
    for (int32_t i = 0; i < 2; i++)
        inputs[i] = shoali_tape_add_input(seat->tape, SHOAL_I32, &shape, tokens, false);
    shoali_tape_set_batch(seat->tape, inputs, 2);
    for (int32_t i = 0; i < 6; i++)
        NEED(shoali_tape_forward_layers(seat->tape, &seat->module, order[i], 1, &boundary));
    NEED(shoali_zero_micro_begin(seat->zero, 0));
    NEED(shoali_tape_backward(seat->tape, &(struct shoali_backward){.outputs = &boundary.tensor[0],
                                                                    .output_count = 1,
                                                                    .seed_value = 1}));
    shoali_tape_end(seat->tape);
    NEED(shoali_zero_reduce(seat->zero, 1, false, &verdict));
    return true;
}

static void test_other_order(void **state)
{
    (void)state;
    for (int32_t variant = 0; variant < 6; variant++) {
        const bool no_check = variant >= 4; /* the record of the step tells it then */
        const struct run run = {.ranks = 2,
                                .stage = no_check ? 2 : 2 + variant / 2,
                                .micro_batches = 2,
                                .overlap = variant % 2 != 0,
                                .no_check = no_check,
                                .fetch = fetches[0],
                                .drive = run_in_other_order,
                                .fails = true};
        go(run, &other);
        for (int32_t r = 0; r < run.ranks; r++) {
            assert_false(seats[r].passed);
            assert_int_equal(seats[r].status, SHOAL_EMISMATCH);
            if (no_check) {
                assert_non_null(strstr(seats[r].message, "different orders"));
            } else {
                const char *first = strstr(seats[r].message, "(layer ");
                assert_non_null(first);
                assert_non_null(strstr(first + 1, "(layer "));
            }
        }
        printf("%s\n", seats[0].message);
    }
}

int main(void)
{
    static const int32_t device[] = {0, 1, 2, 3};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_on_as_off, (void *)(uintptr_t)&device[0]),
        cmocka_unit_test_prestate(test_on_as_off, (void *)(uintptr_t)&device[1]),
        cmocka_unit_test_prestate(test_on_as_off, (void *)(uintptr_t)&device[2]),
        cmocka_unit_test_prestate(test_on_as_off, (void *)(uintptr_t)&device[3]),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_peer_leaves),
        cmocka_unit_test(test_other_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
