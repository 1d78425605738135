/* Collective ops with ranks as threads: forward, backward, replay; N = 1, 2, 3, 4. */
#include "autograd/test_rig.h"

#include <pthread.h>

enum { COLUMNS = 3, MAX_RANKS = 4, MAX_ROWS = 16 };

struct rank {
    int32_t rank, ranks;
    struct shoal_thread_world *world;
    bool recompute;
    /* results, compared by the main thread: cmocka's asserts belong to it */
    shoal_status status;
    char message[512];
    int32_t sent_rows, received_rows;
    float reduced[MAX_ROWS * COLUMNS], reduced_grad[MAX_ROWS * COLUMNS];
    float received[MAX_ROWS * COLUMNS], sent_grad[MAX_ROWS * COLUMNS];
};

/* Rows that rank `from` sends to rank `to`; 0 is among them. */
static int64_t rows_between(int32_t from, int32_t to)
{
    return (2 * from + 3 * to) % 4;
}

/* Element of rank's input, and of the weights of its outputs: exact in float, all different. */
static float value_of(int32_t rank, int32_t index)
{
    return (float)(100 * (rank + 1) + index);
}
static float weight_of(int32_t rank, int32_t index)
{
    return (float)((rank + 2) * 64 + index) / 8;
}

struct rank_tape {
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    struct shoali_slot *slot;
    struct shoal_tape *tape;
    void *grad;
};

static shoal_status recompute_all(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)tape;
    scope->recompute = *(const bool *)user;
    return SHOAL_OK;
}

static shoal_tensor *rank_input(struct shoal_tape *tape, int64_t rows, int32_t rank,
                                float (*value)(int32_t, int32_t), bool needs_grad)
{
    float host[MAX_ROWS * COLUMNS];
    const shoal_shape shape = shoal_shape_2(rows, COLUMNS);
    for (int32_t i = 0; i < rows * COLUMNS; i++)
        host[i] = value(rank, i);
    return shoali_tape_add_input(tape, SHOAL_F32, &shape, host, needs_grad);
}

/* loss = sum(weights * collective(x * 1)) in a scope; the gradient of x goes to host memory. */
static shoal_status finish(struct rank_tape *t, shoal_tensor *y, shoal_tensor *weights,
                           shoal_tensor *x, float *grad)
{
    shoal_status status;
    shoal_tensor *loss = shoal_sum(t->tape, shoal_mul(t->tape, y, weights), SHOAL_ALL_DIMS);
    SHOAL_TRY(status, shoali_tape_status(t->tape), done);
    SHOAL_TRY(status,
              shoali_tape_backward(t->tape, &(struct shoali_backward){.outputs = &loss,
                                                                      .output_count = 1,
                                                                      .seed_value = 1,
                                                                      .inputs = &x,
                                                                      .input_grads = &t->grad,
                                                                      .input_count = 1}),
              done);
    SHOAL_TRY(status,
              shoali_download(t->stream, grad, t->grad,
                              (size_t)shoal_shape_count(&x->shape) * sizeof(float)),
              done);
done:
    return status;
}

static shoal_status run_all_reduce(struct rank *rank, struct rank_tape *t, shoal_group *group)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_tape_begin(t->tape, &(struct shoali_tape_begin){.needs_grad = true}),
              done);
    shoal_tensor *x = rank_input(t->tape, 5, rank->rank, value_of, true);
    shoal_tensor *w = rank_input(t->tape, 5, rank->rank, weight_of, false);
    shoal_scope_begin(t->tape, "reduce");
    shoal_tensor *y = shoal_all_reduce_sum(t->tape, shoal_scale(t->tape, x, 1), group);
    y = shoal_scale(t->tape, y, 1);
    shoal_scope_end(t->tape, &y, 1);
    SHOAL_TRY(status, shoali_tape_status(t->tape), done);
    SHOAL_TRY(status, shoal_tensor_read(y, 0, 5 * COLUMNS, rank->reduced), done);
    SHOAL_TRY(status, finish(t, y, w, x, rank->reduced_grad), done);
done:
    return status;
}

static shoal_status run_exchange(struct rank *rank, struct rank_tape *t, shoal_group *group)
{
    shoal_status status;
    int64_t counts[MAX_RANKS], rows = 0;
    for (int32_t r = 0; r < rank->ranks; r++)
        rows += counts[r] = rows_between(rank->rank, r);
    SHOAL_TRY(status, shoali_tape_begin(t->tape, &(struct shoali_tape_begin){.needs_grad = true}),
              done);
    shoal_tensor *x = rank_input(t->tape, rows, rank->rank, value_of, true);
    shoal_scope_begin(t->tape, "exchange");
    shoal_tensor *y =
        shoal_all_to_all_rows(t->tape, shoal_scale(t->tape, x, 1), group, counts, MAX_ROWS);
    counts[0] = -1; /* they were copied */
    y = shoal_scale(t->tape, y, 1);
    shoal_scope_end(t->tape, &y, 1);
    SHOAL_TRY(status, shoali_tape_status(t->tape), done);
    rank->sent_rows = (int32_t)rows;
    rank->received_rows = (int32_t)y->shape.dim[0];
    shoal_tensor *w = rank_input(t->tape, rank->received_rows, rank->rank, weight_of, false);
    SHOAL_TRY(status,
              shoal_tensor_read(y, 0, (int64_t)rank->received_rows * COLUMNS, rank->received),
              done);
    SHOAL_TRY(status, finish(t, y, w, x, rank->sent_grad), done);
done:
    return status;
}

static shoal_status open_tape(struct rank *rank, const struct shoali_ops *ops,
                              const struct shoali_observer *observer, struct rank_tape *t)
{
    shoal_status status;
    const struct shoali_accelerator *accelerator;
    SHOAL_TRY(status, shoali_accelerator_select(NULL, &accelerator), done);
    SHOAL_TRY(status, shoali_device_create(accelerator, rank->rank, NULL, &t->device), done);
    SHOAL_TRY(status, shoali_stream_create(t->device, &t->stream), done);
    SHOAL_TRY(status, shoali_slot_create(t->device, 0, &t->slot), done);
    SHOAL_TRY(status, shoali_device_alloc(t->device, MAX_ROWS * COLUMNS * sizeof(float), &t->grad),
              done);
    const struct shoali_tape_args args = {.exec = {.ops = ops, .stream = t->stream},
                                          .slot = t->slot,
                                          .dtype = SHOAL_F32,
                                          .observers = observer,
                                          .observer_count = 1};
    SHOAL_TRY(status, shoali_tape_create(&args, &t->tape), done);
done:
    return status;
}

static void close_tape(struct rank_tape *t)
{
    shoali_tape_destroy(t->tape);
    shoali_slot_destroy(t->slot);
    if (t->device != NULL)
        shoali_device_free(t->device, t->grad);
    shoali_stream_destroy(t->stream);
    shoali_device_destroy(t->device);
}

static void *run_rank(void *arg)
{
    struct rank *rank = arg;
    struct rank_tape t = {0};
    shoal_group *group = NULL;
    struct shoali_ops ops;
    shoal_status status;
    const struct shoali_observer observer = {.user = &rank->recompute,
                                             .forward_begin = recompute_all};
    const shoal_comm_args comm = {.rank = rank->rank,
                                  .world_size = rank->ranks,
                                  .backend = "thread",
                                  .timeout_s = 60,
                                  .threads = rank->world};
    SHOAL_TRY(status, shoali_ops_select("ref", NULL, &ops), done);
    SHOAL_TRY(status, open_tape(rank, &ops, &observer, &t), done);
    SHOAL_TRY(status, shoal_comm_init(&comm, &group), done);
    SHOAL_TRY(status, run_all_reduce(rank, &t, group), done);
    SHOAL_TRY(status, run_exchange(rank, &t, group), done);
done:
    rank->status = status;
    if (status < 0) {
        snprintf(rank->message, sizeof rank->message, "%s", shoal_error_message());
        if (group != NULL)
            shoal_comm_abort(group, status);
    }
    close_tape(&t);
    shoal_comm_destroy(group);
    return NULL;
}

/* Row `row` of what `to` received is row *from_row of what *from sent. */
static void origin_of(int32_t ranks, int32_t to, int32_t row, int32_t *from, int32_t *from_row)
{
    int32_t left = row;
    for (*from = 0; *from < ranks; (*from)++) {
        const int32_t rows = (int32_t)rows_between(*from, to);
        if (left < rows)
            break;
        left -= rows;
    }
    *from_row = left;
    for (int32_t r = 0; r < to; r++)
        *from_row += (int32_t)rows_between(*from, r);
}

static void check_results(struct rank *const *rank, int32_t ranks)
{
    for (int32_t r = 0; r < ranks; r++) {
        for (int32_t i = 0; i < 5 * COLUMNS; i++) {
            float sum = 0, weights = 0;
            for (int32_t other = 0; other < ranks; other++) {
                sum += value_of(other, i);
                weights += weight_of(other, i);
            }
            assert_true(rank[r]->reduced[i] == sum);
            assert_true(rank[r]->reduced_grad[i] == weights);
        }
        for (int32_t i = 0; i < rank[r]->received_rows * COLUMNS; i++) {
            int32_t from, row;
            origin_of(ranks, r, i / COLUMNS, &from, &row);
            const int32_t at = row * COLUMNS + i % COLUMNS;
            assert_true(rank[r]->received[i] == value_of(from, at));
            assert_true(rank[from]->sent_grad[at] == weight_of(r, i));
        }
    }
}

static void run_world(int32_t ranks, bool recompute)
{
    struct rank *rank[MAX_RANKS];
    pthread_t thread[MAX_RANKS];
    struct shoal_thread_world *world;
    int32_t sent = 0, received = 0;
    rig_ok(shoal_thread_world_create(ranks, &world));
    for (int32_t r = 0; r < ranks; r++) {
        rank[r] = calloc(1, sizeof(struct rank));
        rank[r]->rank = r;
        rank[r]->ranks = ranks;
        rank[r]->world = world;
        rank[r]->recompute = recompute;
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, rank[r]), 0);
    }
    for (int32_t r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int32_t r = 0; r < ranks; r++) {
        if (rank[r]->status < 0)
            fail_msg("rank %d of %d: %s", (int)r, (int)ranks, rank[r]->message);
        sent += rank[r]->sent_rows;
        received += rank[r]->received_rows;
    }
    assert_int_equal(sent, received);
    check_results(rank, ranks);
    for (int32_t r = 0; r < ranks; r++)
        free(rank[r]);
    shoal_thread_world_destroy(world);
}

static void test_collectives_and_their_backward(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= MAX_RANKS; ranks++)
        run_world(ranks, false);
}

static void test_collectives_are_replayed(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= MAX_RANKS; ranks++)
        run_world(ranks, true);
}

/* What meta mode needs no partner for: the bound is the shape. */
static void test_meta_mode_talks_to_nobody(void **state)
{
    (void)state;
    struct shoali_slot *slot;
    shoal_group *group;
    rig_ok(shoal_comm_init(&(shoal_comm_args){.world_size = 1, .backend = "self"}, &group));
    rig_ok(shoali_slot_create(NULL, 0, &slot));
    struct shoal_tape *tape = rig_tape(NULL, slot, SHOAL_F32, NULL, NULL, 0);
    const shoal_shape shape = shoal_shape_2(4, COLUMNS);
    const int64_t counts[1] = {4};
    rig_ok(shoali_tape_begin(tape, &(struct shoali_tape_begin){.needs_grad = true}));
    shoal_tensor *x = shoali_tape_add_input(tape, SHOAL_F32, &shape, NULL, true);
    shoal_tensor *y =
        shoal_all_to_all_rows(tape, shoal_all_reduce_sum(tape, x, group), group, counts, 9);
    rig_ok(shoali_tape_status(tape));
    assert_int_equal(y->shape.dim[0], 9);
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    shoal_comm_destroy(group);
}

static void test_too_many_rows_is_said(void **state)
{
    (void)state;
    struct rig rig;
    struct shoali_slot *slot;
    shoal_group *group;
    rig_open(&rig, "ref");
    rig_ok(shoal_comm_init(&(shoal_comm_args){.world_size = 1, .backend = "self"}, &group));
    rig_ok(shoali_slot_create(rig.device, 0, &slot));
    struct shoal_tape *tape = rig_tape(&rig, slot, SHOAL_F32, NULL, NULL, 0);
    const int64_t counts[1] = {4};
    rig_ok(shoali_tape_begin(tape, &(struct shoali_tape_begin){.needs_grad = true}));
    shoal_tensor *x = rank_input(tape, 4, 0, value_of, true);
    assert_null(shoal_all_to_all_rows(tape, x, group, counts, 3));
    assert_non_null(strstr(shoal_error_message(), "bound_rows 3"));
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    shoal_comm_destroy(group);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives_and_their_backward),
        cmocka_unit_test(test_collectives_are_replayed),
        cmocka_unit_test(test_meta_mode_talks_to_nobody),
        cmocka_unit_test(test_too_many_rows_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
