/* Ops whose parameters tp divides, with ranks as threads, against one rank, in F64: values, and the
 * gradients of each rank's blocks. t = 1, 2, 3, 4; along the sequence; replayed. */
#include "autograd/test_rig.h"

#include <math.h>
#include <pthread.h>

enum { B = 2, T = 12, C = 6, F = 10, V = 13, MAX_RANKS = 4, PARAMS = 8, ELEMENTS = 1024 };

struct rank {
    int32_t rank, ranks;
    bool sequence, recompute, overlap;
    struct shoal_thread_world *world;
    shoal_status status;
    char message[512];
    double loss, gradient[PARAMS][ELEMENTS]; /* of wholes; 0 where another rank has it */
    bool is_part[PARAMS];                    /* a sum over ranks is left to do */
};

/* ---- the model: embedding, column, row, heads of both kinds ------------------------------------ */

enum { TABLE, POSITIONS, GAMMA, UP, UP_BIAS, DOWN, DOWN_BIAS, HEAD };

static shoal_status declare(const void *config, shoal_declaration *declaration)
{
    const shoal_param_split rows = {.axis = SHOAL_AXIS_TP, .dim = 0};
    const shoal_param_split columns = {.axis = SHOAL_AXIS_TP, .dim = 1};
    const shoal_param_spec all[PARAMS] = {
        [TABLE] = {.name = "table", .shape = {2, {V, C}}, .split = {rows}},
        [POSITIONS] = {.name = "positions", .shape = {2, {T + 1, C}}},
        [GAMMA] = {.name = "gamma", .shape = {1, {C}}},
        [UP] = {.name = "up", .shape = {2, {C, F}}, .split = {columns}},
        [UP_BIAS] = {.name = "up_bias", .shape = {1, {F}}, .split = {rows}},
        [DOWN] = {.name = "down", .shape = {2, {C, F}}, .split = {columns}},
        [DOWN_BIAS] = {.name = "down_bias", .shape = {1, {C}}},
        [HEAD] = {.name = "head", .shape = {2, {V, C}}, .split = {rows}}};
    shoal_status status = SHOAL_OK;
    (void)config;
    for (int i = 0; i < PARAMS && status >= 0; i++)
        status = shoal_declare_param(declaration, &all[i]);
    return status;
}

static void forward(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    shoal_param *p[PARAMS];
    for (int i = 0; i < PARAMS; i++)
        p[i] = shoal_layer_param(layer, i);
    shoal_tensor *targets = shoal_tape_input(tape, 1);
    shoal_tensor *x = shoal_embedding(tape, shoal_tape_input(tape, 0), p[TABLE], p[POSITIONS]);
    shoal_tensor *y = shoal_rms_norm(tape, x, p[GAMMA], 1e-5);
    y = shoal_linear(tape, y, p[UP],
                     &(shoal_linear_args){.bias = p[UP_BIAS], .activation = SHOAL_ACTIVATION_GELU});
    y = shoal_dropout(tape, y, 0.3, NULL); /* of the whole's elements */
    x = shoal_linear(tape, y, p[DOWN],
                     &(shoal_linear_args){.bias = p[DOWN_BIAS],
                                          .residual = x,
                                          .activation = SHOAL_ACTIVATION_SILU,
                                          .weight_out_in = true});
    y = shoal_linear(tape, x, p[HEAD], &(shoal_linear_args){.weight_out_in = true});
    shoal_tensor *loss = shoal_add(tape, shoal_cross_entropy(tape, y, targets),
                                   shoal_linear_cross_entropy(tape, x, p[HEAD], targets));
    loss = shoal_add(tape, loss, shoal_cross_entropy_smoothed(tape, y, targets, 0.2));
    loss =
        shoal_add(tape, loss, shoal_linear_cross_entropy_smoothed(tape, x, p[HEAD], targets, 0.4));
    shoal_boundary_set(tape, boundary, &loss, 1);
}

static const shoal_layer_type type = {.name = "all", .declare = declare, .forward = forward};
static const shoal_layer_spec layer = {&type, "all", NULL};
static const shoal_model model = {.name = "ops", .layers = &layer, .layer_count = 1};

/* ---- a rank ---------------------------------------------------------------------------------- */

struct place {
    struct shoali_module module;
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    struct shoali_slot *slot;
    struct shoal_tape *tape;
    shoal_group *group;
    struct shoali_ops ops;
    void *sink[PARAMS];
};

/* Element `at` of the whole of a parameter. */
static double value_of(int32_t param, int64_t at)
{
    return sin(0.7 * (double)(at + 1) + 1.3 * (double)param) * 0.8 + (param == GAMMA);
}

static int64_t global_of(const struct shoal_param *param, int64_t at)
{
    int64_t run;
    return param->shard ? shoali_shard_run(param->shard, at, &run) : at;
}

static shoal_status fill_params(struct place *place)
{
    shoal_status status = SHOAL_OK;
    double values[ELEMENTS];
    for (int32_t p = 0; p < PARAMS; p++) {
        struct shoal_param *param = place->module.param[p];
        const size_t bytes = (size_t)param->count * sizeof(double);
        for (int64_t i = 0; i < param->count; i++)
            values[i] = value_of(p, global_of(param, i));
        SHOAL_TRY(status, shoali_device_alloc(place->device, bytes, &param->data), done);
        SHOAL_TRY(status, shoali_device_alloc(place->device, bytes, &place->sink[p]), done);
        SHOAL_TRY(status, shoali_upload(place->stream, param->data, values, bytes), done);
        param->sink.destination = place->sink[p];
    }
done:
    return status;
}

static shoal_status recompute_all(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)tape;
    scope->recompute = *(const bool *)user;
    return SHOAL_OK;
}

static shoal_status open_place(const struct rank *rank, const struct shoali_observer *observer,
                               struct place *place)
{
    shoal_status status;
    const struct shoali_accelerator *accelerator;
    const struct shoali_axis_place along = {SHOAL_AXIS_TP, rank->ranks, rank->rank, 1};
    SHOAL_TRY(status, shoali_ops_select("ref", NULL, &place->ops), done);
    SHOAL_TRY(status, shoali_accelerator_select(NULL, &accelerator), done);
    SHOAL_TRY(status, shoali_device_create(accelerator, rank->rank, NULL, &place->device), done);
    SHOAL_TRY(status, shoali_stream_create(place->device, &place->stream), done);
    SHOAL_TRY(status, shoali_slot_create(place->device, 0, &place->slot), done);
    SHOAL_TRY(status, shoali_module_init(&place->module, &model, SHOAL_F64, &along, 1), done);
    SHOAL_TRY(status, fill_params(place), done);
    SHOAL_TRY(status,
              shoal_comm_init(&(shoal_comm_args){.rank = rank->rank,
                                                 .world_size = rank->ranks,
                                                 .backend = "thread",
                                                 .timeout_s = 60,
                                                 .threads = rank->world},
                              &place->group),
              done);
    const struct shoali_tape_args args = {.exec = {.ops = &place->ops, .stream = place->stream},
                                          .module = &place->module,
                                          .slot = place->slot,
                                          .dtype = SHOAL_F64,
                                          .seed = 5,
                                          .observers = observer,
                                          .observer_count = 1,
                                          .tensor_parallel = {.group = place->group,
                                                              .ranks = rank->ranks,
                                                              .rank = rank->rank,
                                                              .sequence = rank->sequence,
                                                              .overlap = rank->overlap}};
    SHOAL_TRY(status, shoali_tape_create(&args, &place->tape), done);
done:
    return status;
}

static shoal_status compute(struct rank *rank, struct place *place)
{
    shoal_status status;
    int32_t ids[B * T], targets[B * T];
    double gradient[ELEMENTS];
    shoal_boundary boundary = {0};
    const shoal_shape shape = shoal_shape_2(B, T);
    for (int32_t i = 0; i < B * T; i++) {
        ids[i] = (i * 5 + i / 7) % V;
        targets[i] = i % 9 == 4 ? -1 : (i * 3 + 1) % V;
    }
    SHOAL_TRY(status,
              shoali_tape_begin(place->tape,
                                &(struct shoali_tape_begin){.training = true, .needs_grad = true}),
              done);
    struct shoal_tensor *inputs[2] = {
        shoali_tape_add_input(place->tape, SHOAL_I32, &shape, ids, false),
        shoali_tape_add_input(place->tape, SHOAL_I32, &shape, targets, false)};
    shoali_tape_set_batch(place->tape, inputs, 2);
    SHOAL_TRY(status, shoali_tape_forward_layers(place->tape, &place->module, 0, 1, &boundary),
              done);
    SHOAL_TRY(status, shoal_tensor_get_scalar(boundary.tensor[0], &rank->loss), done);
    SHOAL_TRY(
        status,
        shoali_tape_backward(place->tape, &(struct shoali_backward){.outputs = boundary.tensor,
                                                                    .output_count = 1,
                                                                    .seed_value = 1}),
        done);
    for (int32_t p = 0; p < PARAMS; p++) {
        const struct shoal_param *param = place->module.param[p];
        rank->is_part[p] = param->sum_over_tensor;
        SHOAL_TRY(status,
                  shoali_download(place->stream, gradient, place->sink[p],
                                  (size_t)param->count * sizeof(double)),
                  done);
        for (int64_t i = 0; i < param->count; i++)
            rank->gradient[p][global_of(param, i)] = gradient[i];
    }
done:
    return status;
}

static void close_place(struct place *place)
{
    shoali_tape_destroy(place->tape);
    shoali_slot_destroy(place->slot);
    for (int32_t p = 0; p < PARAMS && place->device; p++) {
        shoali_device_free(place->device, place->sink[p]);
        if (p < place->module.param_count)
            shoali_device_free(place->device, place->module.param[p]->data);
    }
    shoali_module_fini(&place->module);
    shoali_stream_destroy(place->stream);
    shoali_device_destroy(place->device);
    shoal_comm_destroy(place->group);
}

static void *run_rank(void *arg)
{
    struct rank *rank = arg;
    struct place place = {0};
    const struct shoali_observer observer = {.user = &rank->recompute,
                                             .forward_begin = recompute_all};
    shoal_status status;
    SHOAL_TRY(status, open_place(rank, &observer, &place), done);
    SHOAL_TRY(status, compute(rank, &place), done);
done:
    rank->status = status;
    if (status < 0) {
        snprintf(rank->message, sizeof rank->message, "%s", shoal_error_message());
        if (place.group)
            shoal_comm_abort(place.group, status);
    }
    close_place(&place);
    return NULL;
}

/* ---- all ranks against one ------------------------------------------------------------------- */

static struct rank one, ranks[MAX_RANKS];

static void run(int32_t count, struct rank how)
{
    pthread_t thread[MAX_RANKS];
    struct shoal_thread_world *world;
    rig_ok(shoal_thread_world_create(count, &world));
    for (int32_t r = 0; r < count; r++) {
        ranks[r] = how;
        ranks[r].rank = r;
        ranks[r].ranks = count;
        ranks[r].world = world;
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < count; r++)
        pthread_join(thread[r], NULL);
    shoal_thread_world_destroy(world);
    for (int32_t r = 0; r < count; r++)
        if (ranks[r].status < 0)
            fail_msg("rank %d of %d: %s", (int)r, (int)count, ranks[r].message);
}

/* Of blocks and parts the sum is the whole; what is replicated each rank has. */
static double gradient_of(int32_t count, int32_t param, int64_t at, bool replicated)
{
    double sum = 0;
    if (replicated && !ranks[0].is_part[param])
        return ranks[at % count].gradient[param][at];
    for (int32_t r = 0; r < count; r++)
        sum += ranks[r].gradient[param][at];
    return sum;
}

/* Sums of at most 24 products of numbers up to 3 in another order, six behind each other. */
static void compare(int32_t count)
{
    const double tolerance = 6 * 24 * 9 * 0x1p-53;
    for (int32_t r = 0; r < count; r++)
        assert_true(fabs(ranks[r].loss - one.loss) <= tolerance);
    for (int32_t p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < ELEMENTS; i++) {
            const bool replicated = p == POSITIONS || p == GAMMA || p == DOWN_BIAS;
            const double got = gradient_of(count, p, i, replicated);
            if (!(fabs(got - one.gradient[p][i]) <= tolerance))
                fail_msg("%d ranks%s: gradient %d of parameter %d is %.17g, not %.17g", (int)count,
                         ranks[0].sequence ? " by sequence" : "", (int)i, (int)p, got,
                         one.gradient[p][i]);
        }
}

static void test_values_and_gradients(void **state)
{
    (void)state;
    run(1, (struct rank){.overlap = true});
    one = ranks[0];
    assert_true(one.loss > 1 && one.gradient[GAMMA][0] != 0);
    for (int32_t count = 1; count <= MAX_RANKS; count++)
        for (int how = 0; how < 8; how++) {
            run(count,
                (struct rank){.sequence = how & 1, .recompute = how & 2, .overlap = !(how & 4)});
            compare(count);
            assert_int_equal(ranks[0].is_part[GAMMA], count > 1 && (how & 1));
        }
}

/* ---- gates ----------------------------------------------------------------------------------- */

static shoal_status declare_gate(const void *config, shoal_declaration *declaration)
{
    return shoal_declare_param(declaration,
                               &(shoal_param_spec){.name = "gate",
                                                   .shape = {2, {C, 16}},
                                                   .split = {*(const shoal_param_split *)config}});
}

static void forward_gate(const shoal_layer *self, shoal_tape *tape, shoal_boundary *boundary)
{
    shoal_tensor *x =
        shoal_linear(tape, shoal_tape_input(tape, 0), shoal_layer_param(self, 0), NULL);
    x = shoal_glu(tape, x, SHOAL_ACTIVATION_SILU);
    shoal_boundary_set(tape, boundary, &x, 1);
}

static const shoal_layer_type gate_type = {
    .name = "gate", .declare = declare_gate, .forward = forward_gate};

/* A gated unit takes what makes its input in two equal parts, of which a rank has a share each. */
static void test_gate(void **state)
{
    static const struct {
        int64_t part[2];
        bool fits;
    } cases[] = {{{8, 8}, true}, {{0}, false}, {{4, 12}, false}};
    const struct shoali_axis_place along = {SHOAL_AXIS_TP, 2, 1, 1};
    const shoal_shape shape = shoal_shape_2(1, C);
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const shoal_param_split split = {.axis = SHOAL_AXIS_TP,
                                         .dim = 1,
                                         .part_count = cases[k].part[0] > 0 ? 2 : 0,
                                         .part = {cases[k].part[0], cases[k].part[1]}};
        const shoal_layer_spec spec = {&gate_type, "gate", &split};
        const shoal_model gate = {.name = "gate", .layers = &spec, .layer_count = 1};
        shoal_boundary boundary = {0};
        struct shoali_module module;
        struct shoali_slot *slot;
        struct shoal_tape *tape;
        rig_ok(shoali_module_init(&module, &gate, SHOAL_F32, &along, 1));
        rig_ok(shoali_slot_create(NULL, 0, &slot));
        rig_ok(shoali_tape_create(
            &(struct shoali_tape_args){.module = &module,
                                       .slot = slot,
                                       .dtype = SHOAL_F32,
                                       .tensor_parallel = {.ranks = 2, .rank = 1}},
            &tape));
        rig_ok(shoali_tape_begin(tape, &(struct shoali_tape_begin){.training = true}));
        shoal_tensor *x = shoali_tape_add_input(tape, SHOAL_F32, &shape, NULL, false);
        shoali_tape_set_batch(tape, &x, 1);
        const shoal_status status = shoali_tape_forward_layers(tape, &module, 0, 1, &boundary);
        assert_int_equal(status, cases[k].fits ? SHOAL_OK : SHOAL_EINVAL);
        if (cases[k].fits)
            assert_int_equal(shoal_tensor_shape(boundary.tensor[0])->dim[1], 4);
        else
            assert_non_null(strstr(shoal_error_message(), "glu: tp does not divide both halves"));
        shoali_tape_destroy(tape);
        shoali_slot_destroy(slot);
        shoali_module_fini(&module);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values_and_gradients),
                                       cmocka_unit_test(test_gate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
