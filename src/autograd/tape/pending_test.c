/* Split rows with ranks as threads: collectives on their way while kernels run give the bits of
 * collectives that are waited for. N = 1, 2, 3, 4. */
#include "autograd/test_rig.h"

#include <pthread.h>

enum { MAX_RANKS = 4, COUNT = 24, MANY = 12, RESULTS = 6 };

struct rank {
    int32_t rank, ranks;
    struct shoal_thread_world *world;
    bool unsplit, recompute;
    int32_t failing; /* this rank gives up in between; -1 none */
    void (*program)(struct rank *rank);
    struct shoal_tape *tape;
    struct shoali_slot *slot;
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    struct shoali_ops ops;
    shoal_group *group;
    /* results, compared by the main thread: cmocka's asserts belong to it */
    shoal_status status;
    char message[512];
    int32_t most_pending, after_view, after_use, at_end;
    size_t peak, plan;
    float y[RESULTS][COUNT * MAX_RANKS], dx[COUNT];
};

/* ---- an all-reduce that waits, to compare with ---- */

static shoal_status plain_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoal_tensor *x = shoali_node_in(node, 0);
    return shoali_node_output(tape, node, 0, x->dtype, &x->shape, -1);
}

static shoal_status plain_sum(struct shoal_tape *tape, struct shoali_node *node, const void *in,
                              void *out)
{
    shoal_group *const *group = shoali_node_attr(node);
    const struct shoali_post post = {.kind = SHOALI_ALL_REDUCE,
                                     .here = SHOALI_HERE,
                                     .in = in,
                                     .out = out,
                                     .count = shoal_shape_count(&node->in[0]->tensor.shape),
                                     .dtype = SHOAL_F32,
                                     .op = SHOAL_SUM};
    return SHOALI_LAUNCH(tape, shoali_comm_post_on(*group, tape->args.exec.stream, &post));
}

static shoal_status plain_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    return plain_sum(tape, node, node->in[0]->tensor.data, node->out[0]->tensor.data);
}

static shoal_status plain_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status, plain_sum(tape, node, shoali_node_grad(tape, node, 0), to), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row plain_row = {.abi = SHOALI_OP_ROW_ABI,
                                               .bytes = sizeof(struct shoali_op_row),
                                               .name = "plain_all_reduce",
                                               .infer = plain_infer,
                                               .forward = plain_forward,
                                               .backward_input = plain_backward,
                                               .flags = SHOALI_ROW_COLLECTIVE};

static shoal_tensor *reduced(struct rank *rank, shoal_tensor *x)
{
    shoal_group *group = rank->group;
    shoal_tensor *y =
        rank->unsplit
            ? shoali_tape_record(
                  rank->tape,
                  &(struct shoali_record_args){
                      .row = &plain_row, .inputs = {x}, .attr = &group, .attr_bytes = sizeof group})
            : shoal_all_reduce_sum(rank->tape, x, group);
    if (rank->tape->pending_count > rank->most_pending)
        rank->most_pending = rank->tape->pending_count;
    return y;
}

/* ---- a rank ---- */

static shoal_tensor *input(struct rank *rank, int32_t what)
{
    float host[COUNT];
    const struct shoali_stream stream = shoali_stream_make(7, "pending", "x", (uint64_t)what);
    for (int32_t i = 0; i < COUNT; i++)
        host[i] = shoali_random_uniform(&stream, (uint64_t)(rank->rank * COUNT + i)) - 0.5f;
    const shoal_shape shape = shoal_shape_2(COUNT / 4, 4);
    return shoali_tape_add_input(rank->tape, SHOAL_F32, &shape, host, true);
}

static shoal_status recompute_all(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)tape;
    scope->recompute = *(const bool *)user;
    return SHOAL_OK;
}

static void *run_rank(void *arg)
{
    struct rank *rank = arg;
    const struct shoali_accelerator *accelerator;
    shoal_status status;
    const struct shoali_observer observer = {.user = &rank->recompute,
                                             .forward_begin = recompute_all};
    const shoal_comm_args comm = {.rank = rank->rank,
                                  .world_size = rank->ranks,
                                  .backend = "thread",
                                  .timeout_s = 60,
                                  .threads = rank->world};
    SHOAL_TRY(status, shoali_ops_select("ref", NULL, &rank->ops), done);
    SHOAL_TRY(status, shoali_accelerator_select(NULL, &accelerator), done);
    SHOAL_TRY(status, shoali_device_create(accelerator, rank->rank, NULL, &rank->device), done);
    SHOAL_TRY(status, shoali_stream_create(rank->device, &rank->stream), done);
    SHOAL_TRY(status, shoali_slot_create(rank->device, 0, &rank->slot), done);
    SHOAL_TRY(status, shoal_comm_init(&comm, &rank->group), done);
    SHOAL_TRY(status,
              shoali_tape_create(
                  &(struct shoali_tape_args){.exec = {.ops = &rank->ops, .stream = rank->stream},
                                             .slot = rank->slot,
                                             .dtype = SHOAL_F32,
                                             .observers = &observer,
                                             .observer_count = 1},
                  &rank->tape),
              done);
    SHOAL_TRY(status,
              shoali_tape_begin(rank->tape, &(struct shoali_tape_begin){.needs_grad = true}), done);
    rank->program(rank);
    status = rank->status;
done:
    rank->status = status;
    if (status < 0 && rank->message[0] == '\0')
        snprintf(rank->message, sizeof rank->message, "%s", shoal_error_message());
    if (status < 0 && rank->group != NULL)
        shoal_comm_abort(rank->group, status);
    shoali_tape_destroy(rank->tape);
    shoali_slot_destroy(rank->slot);
    shoali_stream_destroy(rank->stream);
    shoali_device_destroy(rank->device);
    shoal_comm_destroy(rank->group);
    return NULL;
}

static void run_world(struct rank *rank, int32_t ranks, void (*program)(struct rank *),
                      bool unsplit, bool recompute, int32_t failing)
{
    pthread_t thread[MAX_RANKS];
    struct shoal_thread_world *world;
    rig_ok(shoal_thread_world_create(ranks, &world));
    memset(rank, 0, MAX_RANKS * sizeof(struct rank));
    for (int32_t r = 0; r < ranks; r++) {
        rank[r].rank = r;
        rank[r].ranks = ranks;
        rank[r].world = world;
        rank[r].unsplit = unsplit;
        rank[r].recompute = recompute;
        rank[r].failing = failing;
        rank[r].program = program;
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &rank[r]), 0);
    }
    for (int32_t r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    shoal_thread_world_destroy(world);
}

/* ---- several on their way ---- */

/* Reads all results into one loss on the tape. */
static shoal_tensor *loss_of(struct shoal_tape *t, shoal_tensor *const *y, int32_t count)
{
    shoal_tensor *loss = NULL;
    for (int32_t i = 0; i < count; i++) {
        shoal_tensor *part =
            shoal_sum(t, shoal_scale(t, shoal_square(t, y[i]), i + 1), SHOAL_ALL_DIMS);
        loss = loss != NULL ? shoal_add(t, loss, part) : part;
    }
    return loss;
}

/* Keeps the results and the gradient of their loss. */
static shoal_status finish(struct rank *rank, shoal_tensor *const *y, int32_t count,
                           shoal_tensor *x)
{
    shoal_status status = SHOAL_OK;
    void *grad = NULL;
    shoal_tensor *loss = loss_of(rank->tape, y, count);
    SHOAL_TRY(status, shoali_tape_status(rank->tape), done);
    for (int32_t i = 0; i < count; i++)
        SHOAL_TRY(status, shoal_tensor_read(y[i], 0, shoal_shape_count(&y[i]->shape), rank->y[i]),
                  done);
    SHOAL_TRY(status, shoali_device_alloc(rank->device, COUNT * sizeof(float), &grad), done);
    SHOAL_TRY(status,
              shoali_tape_backward(rank->tape, &(struct shoali_backward){.outputs = &loss,
                                                                         .output_count = 1,
                                                                         .seed_value = 1,
                                                                         .inputs = &x,
                                                                         .input_grads = &grad,
                                                                         .input_count = 1}),
              done);
    SHOAL_TRY(status, shoali_download(rank->stream, rank->dx, grad, sizeof rank->dx), done);
done:
    if (grad != NULL)
        shoali_device_free(rank->device, grad);
    return status;
}

static shoal_tensor *record_several(struct rank *rank, shoal_tensor **y)
{
    struct shoal_tape *t = rank->tape;
    shoal_tensor *x = input(rank, 0);
    shoal_scope_begin(t, "several");
    shoal_tensor *a = reduced(rank, shoal_scale(t, x, 1.25)), *b = reduced(rank, shoal_relu(t, x)),
                 *c = reduced(rank, shoal_tanh(t, x));
    y[0] = shoal_exp(t, x); /* reads none of them */
    shoal_tensor *view = shoal_reshape(t, c, shoal_shape_1(COUNT));
    rank->after_view = t->pending_count;
    y[1] = shoal_add(t, a, b);
    rank->after_use = t->pending_count;
    y[2] = shoal_mul(t, view, view);
    /* two contributions to x, each a sum over the group */
    y[3] = shoal_add(t, reduced(rank, x), reduced(rank, x));
    y[4] = reduced(rank, y[1]);
    y[5] = reduced(rank, shoal_scale(t, y[4], 0.5));
    shoal_scope_end(t, y, RESULTS);
    rank->at_end = t->pending_count;
    return x;
}

static void several(struct rank *rank)
{
    shoal_tensor *y[RESULTS], *x = record_several(rank, y);
    rank->status = finish(rank, y, RESULTS, x);
    rank->peak = shoali_slot_peak_bytes(rank->slot);
}

static void compare(const struct rank *a, const struct rank *b, int32_t ranks)
{
    for (int32_t r = 0; r < ranks; r++) {
        if (a[r].status < 0 || b[r].status < 0)
            fail_msg("rank %d of %d: %s%s", (int)r, (int)ranks, a[r].message, b[r].message);
        assert_memory_equal(a[r].y, b[r].y, sizeof a[r].y);
        assert_memory_equal(a[r].dx, b[r].dx, sizeof a[r].dx);
        assert_true(a[r].dx[1] != 0 && a[r].y[1][1] != 0);
    }
}

static struct rank split[MAX_RANKS], unsplit[MAX_RANKS];

static void test_bits_are_those_of_waiting(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= MAX_RANKS; ranks++)
        for (int32_t recompute = 0; recompute < 2; recompute++) {
            run_world(unsplit, ranks, several, true, false, -1);
            run_world(split, ranks, several, false, recompute != 0, -1);
            compare(split, unsplit, ranks);
            for (int32_t r = 0; r < ranks; r++) {
                assert_int_equal(split[r].after_view, 3);
                assert_int_equal(split[r].after_use, 1);
                assert_int_equal(split[r].at_end, 0);
                assert_int_equal(unsplit[r].most_pending, 0);
            }
        }
}

/* ---- more than a group takes at once, and reading one that nobody finished ---- */

static void many(struct rank *rank)
{
    struct shoal_tape *t = rank->tape;
    shoal_tensor *sum = NULL, *part[MANY], *x = input(rank, 1);
    for (int32_t i = 0; i < MANY; i++)
        part[i] = reduced(rank, shoal_scale(t, x, i + 1));
    rank->status = shoali_tape_status(t);
    if (rank->status >= 0 && t->pending_count > 0)
        rank->status = shoal_tensor_read(part[MANY - 1], 0, COUNT, rank->y[1]);
    rank->after_use = t->pending_count;
    for (int32_t i = 0; i < MANY; i++)
        sum = sum != NULL ? shoal_add(t, sum, part[i]) : part[i];
    if (rank->status >= 0)
        rank->status = finish(rank, &sum, 1, x);
}

static void test_more_than_fit(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= MAX_RANKS; ranks++) {
        run_world(unsplit, ranks, many, true, false, -1);
        run_world(split, ranks, many, false, false, -1);
        for (int32_t r = 0; r < ranks; r++) {
            assert_int_equal(split[r].most_pending, SHOALI_TAPE_MAX_PENDING);
            assert_int_equal(split[r].after_use, SHOALI_TAPE_MAX_PENDING - 1);
            for (int32_t i = 0; i < COUNT; i++) {
                float expected = 0;
                for (int32_t other = 0; other < ranks; other++) {
                    const struct shoali_stream stream = shoali_stream_make(7, "pending", "x", 1);
                    expected +=
                        MANY *
                        (shoali_random_uniform(&stream, (uint64_t)(other * COUNT + i)) - 0.5f);
                }
                assert_true(split[r].y[1][i] == expected);
            }
            memset(split[r].y[1], 0, sizeof split[r].y[1]);
            split[r].y[1][1] = unsplit[r].y[1][1] = 1;
        }
        compare(split, unsplit, ranks);
    }
}

/* ---- exchanges ---- */

static void exchanges(struct rank *rank)
{
    struct shoal_tape *t = rank->tape;
    const int32_t n = rank->ranks, rows = COUNT / 4;
    shoal_tensor *y[2], *x = input(rank, 2);
    int64_t counts[MAX_RANKS] = {0};
    for (int32_t i = 0; i < rows; i++)
        counts[(i * (rank->rank + 1)) % n]++;
    for (int32_t i = 0; i < 2; i++)
        y[i] = shoal_all_to_all_rows(t, shoal_scale(t, x, i + 1), rank->group, counts, rows * n);
    rank->most_pending = t->pending_count;
    rank->status = finish(rank, y, 2, x);
}

static void test_exchanges_are_split(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= MAX_RANKS; ranks++) {
        run_world(split, ranks, exchanges, false, false, -1);
        for (int32_t r = 0; r < ranks; r++) {
            if (split[r].status < 0)
                fail_msg("rank %d of %d: %s", (int)r, (int)ranks, split[r].message);
            assert_int_equal(split[r].most_pending, 2);
            for (int32_t i = 0; i < COUNT; i++) {
                const float x = split[r].dx[i] / 18; /* of x^2 + 2 (2x)^2 */
                assert_true(x > -0.51f && x < 0.51f && x != 0);
            }
            for (int32_t i = 0; i < COUNT * MAX_RANKS; i++)
                assert_true(split[r].y[1][i] == 2 * split[r].y[0][i]);
        }
    }
}

/* ---- what fails ---- */

static void broken(struct rank *rank)
{
    struct shoal_tape *t = rank->tape;
    shoal_tensor *x = input(rank, 3), *y[3];
    shoal_scope_begin(t, "broken");
    for (int32_t i = 0; i < 3; i++) {
        if (rank->rank == rank->failing && i == 2)
            (void)shoal_reshape(t, x, shoal_shape_1(COUNT + 1)); /* poisons */
        y[i] = reduced(rank, shoal_scale(t, x, i + 1));
    }
    shoal_tensor *z = shoal_add(t, shoal_add(t, y[0], y[1]), y[2]);
    shoal_scope_end(t, &z, 1);
    rank->status = shoali_tape_status(t);
    rank->at_end = t->pending_count;
    if (rank->status >= 0) /* where the streams have not come to the failure yet */
        rank->status = shoali_stream_synchronize(rank->stream);
}

static void test_a_failing_rank_takes_the_others_down(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= MAX_RANKS; ranks++) {
        const int32_t failing = ranks - 1;
        run_world(split, ranks, broken, false, false, failing);
        assert_int_equal(split[failing].status, SHOAL_EINVAL);
        assert_true(split[failing].at_end == 2);
        for (int32_t r = 0; r < failing; r++) {
            assert_int_equal(split[r].status, SHOAL_EPEER);
            assert_non_null(strstr(split[r].message, "reshape"));
        }
    }
}

/* ---- memory ---- */

static shoal_status plan(struct rank *rank, struct shoali_slot *slot)
{
    shoal_status status;
    void *grad = NULL;
    const struct shoali_observer observer = {.user = &rank->recompute,
                                             .forward_begin = recompute_all};
    struct shoal_tape *real = rank->tape;
    shoal_tensor *y[RESULTS];
    SHOAL_TRY(status,
              shoali_tape_create(&(struct shoali_tape_args){.slot = slot,
                                                            .dtype = SHOAL_F32,
                                                            .observers = &observer,
                                                            .observer_count = 1},
                                 &rank->tape),
              done);
    SHOAL_TRY(status,
              shoali_tape_begin(rank->tape, &(struct shoali_tape_begin){.needs_grad = true}), done);
    shoal_tensor *x = record_several(rank, y), *loss = loss_of(rank->tape, y, RESULTS);
    SHOAL_TRY(status,
              shoali_tape_backward(rank->tape, &(struct shoali_backward){.outputs = &loss,
                                                                         .output_count = 1,
                                                                         .seed_value = 1,
                                                                         .inputs = &x,
                                                                         .input_grads = &grad,
                                                                         .input_count = 1}),
              done);
    rank->plan = shoali_slot_peak_bytes(slot);
done:
    shoali_tape_destroy(rank->tape);
    rank->tape = real;
    return status;
}

static void planned(struct rank *rank)
{
    struct shoali_slot *slot;
    several(rank);
    if (rank->status >= 0)
        rank->status = shoali_slot_create(NULL, 0, &slot);
    if (rank->status < 0)
        return;
    rank->status = plan(rank, slot);
    shoali_slot_destroy(slot);
}

static void test_the_plan_has_what_is_held(void **state)
{
    (void)state;
    for (int32_t recompute = 0; recompute < 2; recompute++) {
        run_world(split, 2, planned, false, recompute != 0, -1);
        for (int32_t r = 0; r < 2; r++) {
            if (split[r].status < 0)
                fail_msg("rank %d: %s", (int)r, split[r].message);
            assert_true(split[r].plan > 0);
            assert_int_equal(split[r].plan, split[r].peak);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_of_waiting),
        cmocka_unit_test(test_more_than_fit),
        cmocka_unit_test(test_exchanges_are_split),
        cmocka_unit_test(test_a_failing_rank_takes_the_others_down),
        cmocka_unit_test(test_the_plan_has_what_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
