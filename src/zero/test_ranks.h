/* test_ranks - zero on ranks that are threads, with a small model that is awkward to cut: a tied
 * table, a layer without parameters, parameters of no and of one element, one that no op uses, a
 * frozen one, multipliers. For the tests of this folder.
 *
 * A run says what to train; go() starts one thread per rank and leaves everything by its place in
 * the flat space in a result. Rank functions use NEED and return false; cmocka's assertions belong
 * to the main thread. */
#ifndef SHOALI_ZERO_TEST_RANKS_H
#define SHOALI_ZERO_TEST_RANKS_H

#include "base/test_cmocka.h"
#include "optimizer/test_default.h"
#include "zero/zero.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 8, STEPS_MAX = 4, T = 6, FLAT_MAX = 120000, KINDS_MAX = 4 };

/* ---- the model ------------------------------------------------------------------------------ */

struct sizes {
    int64_t width, vocab;
    bool untied;
};
static const struct sizes small = {24, 37, false}, large = {128, 200, true};

static inline shoal_status declare(shoal_declaration *to, const char *name, shoal_shape shape,
                                   unsigned tags, double lr_mult, const char *tied_to)
{
    return shoal_declare_param(to, &(shoal_param_spec){.name = name,
                                                       .shape = shape,
                                                       .init = SHOAL_INIT_NORMAL,
                                                       .init_b = 0.2,
                                                       .tags = tags,
                                                       .lr_mult = lr_mult,
                                                       .tied_to = tied_to});
}

static inline shoal_status declare_embed(const void *config, shoal_declaration *to)
{
    const struct sizes *sizes = config;
    shoal_status status;
    SHOAL_TRY(status, declare(to, "none", shoal_shape_1(0), 0, 1, NULL), done);
    SHOAL_TRY(status, declare(to, "table", shoal_shape_2(sizes->vocab, sizes->width), 0, 1, NULL),
              done);
done:
    return status;
}

static inline void forward_embed(const shoal_layer *layer, shoal_tape *tape,
                                 shoal_boundary *boundary)
{
    shoal_tensor *x =
        shoal_embedding(tape, shoal_tape_input(tape, 0), shoal_layer_param(layer, 1), NULL);
    shoal_boundary_set(tape, boundary, &x, 1);
}

static inline shoal_status declare_block(const void *config, shoal_declaration *to)
{
    const struct sizes *sizes = config;
    const int64_t c = sizes->width;
    shoal_status status;
    SHOAL_TRY(status, declare(to, "gate", shoal_shape_1(c), SHOAL_PARAM_FROZEN, 1, NULL), done);
    SHOAL_TRY(status, declare(to, "weight", shoal_shape_2(c, c), 0, 0.5, NULL), done);
    SHOAL_TRY(status, declare(to, "bias", shoal_shape_1(c), SHOAL_PARAM_NO_DECAY, 1, NULL), done);
    SHOAL_TRY(status, declare(to, "unused", shoal_shape_1(5), 0, 1, NULL), done);
done:
    return status;
}

static inline void forward_block(const shoal_layer *layer, shoal_tape *tape,
                                 shoal_boundary *boundary)
{
    shoal_tensor *x = shoal_boundary_get(tape, boundary, 0);
    shoal_tensor *y = shoal_mul(tape, x, shoal_param_tensor(tape, shoal_layer_param(layer, 0)));
    y = shoal_linear(tape, y, shoal_layer_param(layer, 1),
                     &(shoal_linear_args){.bias = shoal_layer_param(layer, 2), .residual = x});
    shoal_boundary_set(tape, boundary, &y, 1);
}

static inline void forward_plain(const shoal_layer *layer, shoal_tape *tape,
                                 shoal_boundary *boundary)
{
    (void)layer;
    shoal_tensor *y = shoal_tanh(tape, shoal_boundary_get(tape, boundary, 0));
    shoal_boundary_set(tape, boundary, &y, 1);
}

static inline shoal_status declare_neck(const void *config, shoal_declaration *to)
{
    const struct sizes *sizes = config;
    shoal_status status;
    SHOAL_TRY(status, declare(to, "down", shoal_shape_2(sizes->width, 1), 0, 1, NULL), done);
    SHOAL_TRY(status, declare(to, "one", shoal_shape_1(1), SHOAL_PARAM_NO_DECAY, 1, NULL), done);
    SHOAL_TRY(status, declare(to, "up", shoal_shape_2(1, sizes->width), 0, 1, NULL), done);
done:
    return status;
}

static inline void forward_neck(const shoal_layer *layer, shoal_tape *tape,
                                shoal_boundary *boundary)
{
    shoal_tensor *x = shoal_boundary_get(tape, boundary, 0);
    shoal_tensor *y = shoal_linear(tape, x, shoal_layer_param(layer, 0),
                                   &(shoal_linear_args){.bias = shoal_layer_param(layer, 1)});
    y = shoal_linear(tape, y, shoal_layer_param(layer, 2), &(shoal_linear_args){.residual = x});
    shoal_boundary_set(tape, boundary, &y, 1);
}

static inline shoal_status declare_head(const void *config, shoal_declaration *to)
{
    const struct sizes *sizes = config;
    return declare(to, "table", shoal_shape_2(sizes->vocab, sizes->width), 0, 1,
                   sizes->untied ? NULL : "embed.table");
}

static inline void forward_head(const shoal_layer *layer, shoal_tape *tape,
                                shoal_boundary *boundary)
{
    shoal_tensor *logits =
        shoal_linear(tape, shoal_boundary_get(tape, boundary, 0), shoal_layer_param(layer, 0),
                     &(shoal_linear_args){.weight_out_in = true});
    shoal_tensor *loss = shoal_cross_entropy(tape, logits, shoal_tape_input(tape, 1));
    shoal_boundary_set(tape, boundary, &loss, 1);
}

static const shoal_layer_type embed = {
    .name = "embed", .declare = declare_embed, .forward = forward_embed};
static const shoal_layer_type block = {
    .name = "block", .declare = declare_block, .forward = forward_block};
static const shoal_layer_type plain = {.name = "plain", .forward = forward_plain};
static const shoal_layer_type neck = {
    .name = "neck", .declare = declare_neck, .forward = forward_neck};
static const shoal_layer_type head = {
    .name = "head", .declare = declare_head, .forward = forward_head};

/* ---- a run ---------------------------------------------------------------------------------- */

struct seat;
struct run {
    int32_t ranks, stage;
    const struct sizes *sizes; /* NULL: small */
    shoal_dtype dtype;
    bool exact, all_reduce, overlap;
    int64_t micro_batches, first_micro, bucket, sub_group;
    struct shoali_zero_fetch fetch;
    struct shoali_zero_offload offload;
    int32_t steps, bad_step, bad_rank; /* bad_step: infinite gradients on one rank; 0: none */
    int64_t eval;                      /* micro-batches evaluated before the last step */
    const char *accelerator;           /* NULL: the environment's */
    const char *optimizer;             /* NULL: AdamW */
    double timeout_s;                  /* 0: 60 */
    bool no_check;
    int32_t hpz, mics;
    bool hierarchical_gather;
    bool quantized_weights, quantized_gradients;
    int64_t loco_reset;
    double loco_beta;
    bool (*drive)(struct seat *seat);    /* NULL: train the steps and collect */
    void (*describe)(struct seat *seat); /* NULL: the model above */
    bool (*adjust)(struct seat *seat, struct shoali_zero_args *args); /* NULL: nothing */
    bool fails; /* errors are expected: they are in the seats */
};
/* What a run leaves: everything by its place in the flat space. */
struct result {
    float kind[KINDS_MAX][FLAT_MAX], gradient[FLAT_MAX];
    int64_t flat_count, param_elements;
    /* Of each kind that is not per element: what a rank has of it. Every rank has all. */
    uint64_t small[RANKS_MAX][KINDS_MAX];
    struct shoali_zero_verdict verdict[STEPS_MAX];
    double eval_loss[32];
    int64_t traffic; /* elements per step, rank 0 */
    struct shoali_zero_memory memory[RANKS_MAX];
    bool params_gone;
};
struct seat {
    const struct run *run;
    struct result *result;
    struct shoal_thread_world *world;
    int32_t rank;
    bool passed;
    shoal_status status; /* of the call that failed */
    char message[1024];

    shoal_group *group, *cut; /* cut: of a test, destroyed with the seat */
    struct shoali_pool *pool;
    struct shoali_device *device;
    struct shoali_ops ops;
    struct shoali_exec exec;
    struct shoali_optimizer optimizer;
    struct shoali_arena arena;
    shoal_layer_spec layers[10];
    shoal_input_spec inputs[2];
    shoal_model model;
    struct shoali_module module;
    struct shoali_zero *zero;
    struct shoali_slot *slot;
    struct shoal_tape *tape;
};

#define NEED(call)                                                \
    do {                                                          \
        seat->status = (call);                                    \
        if (seat->status < 0)                                     \
            return note_failure(seat, #call, __FILE__, __LINE__); \
    } while (0)

static inline bool note_failure(struct seat *seat, const char *call, const char *file, int line)
{
    snprintf(seat->message, sizeof seat->message, "%s", shoal_error_message());
    if (!seat->run->fails)
        fprintf(stderr, "%s:%d: rank %d of %d, stage %d: %s: %s\n", file, line, (int)seat->rank,
                (int)seat->run->ranks, (int)seat->run->stage, call, seat->message);
    return false;
}

static inline void describe_model(struct seat *seat)
{
    const struct sizes *sizes = seat->run->sizes ? seat->run->sizes : &small;
    const shoal_layer_spec layers[6] = {{&embed, "embed", sizes}, {&block, "a", sizes},
                                        {&plain, "plain", sizes}, {&block, "b", sizes},
                                        {&neck, "neck", sizes},   {&head, "head", sizes}};
    memcpy(seat->layers, layers, sizeof layers);
    seat->inputs[0] =
        (shoal_input_spec){.name = "tokens", .dtype = SHOAL_I32, .sample_shape = shoal_shape_1(T)};
    seat->inputs[1] =
        (shoal_input_spec){.name = "targets", .dtype = SHOAL_I32, .sample_shape = shoal_shape_1(T)};
    seat->model = (shoal_model){.name = "awkward",
                                .layers = seat->layers,
                                .layer_count = 6,
                                .inputs = seat->inputs,
                                .input_count = 2,
                                .tokens_per_sample = T};
}

static inline bool open_seat(struct seat *seat)
{
    const struct run *run = seat->run;
    const struct shoali_accelerator *accelerator;
    if (run->ranks > 1)
        NEED(shoal_comm_init(
            &(shoal_comm_args){.rank = seat->rank,
                               .world_size = run->ranks,
                               .threads = seat->world,
                               .no_check = run->no_check,
                               .timeout_s = run->timeout_s > 0 ? run->timeout_s : 60},
            &seat->group));
    NEED(shoali_accelerator_select(run->accelerator, &accelerator));
    NEED(shoali_pool_create(1, &seat->pool));
    NEED(shoali_device_create(accelerator, 0, seat->pool, &seat->device));
    NEED(shoali_stream_create(seat->device, &seat->exec.stream));
    NEED(shoali_ops_select(NULL, NULL, &seat->ops));
    seat->exec.ops = &seat->ops;
    if (run->describe)
        run->describe(seat);
    else
        describe_model(seat);
    NEED(shoali_module_init(&seat->module, &seat->model, run->dtype, NULL, 0));
    shoali_arena_init(&seat->arena);
    NEED(optimizer_default(run->optimizer ? run->optimizer : "adamw", &seat->arena,
                           &seat->optimizer));
    seat->optimizer.weight_decay = 0.1;
    struct shoali_zero_args args = {.module = &seat->module,
                                    .device = seat->device,
                                    .exec = seat->exec,
                                    .group = seat->group,
                                    .optimizer = &seat->optimizer,
                                    .seed = 5,
                                    .stage = run->stage,
                                    .exact = run->exact,
                                    .unit_log2 = 40,
                                    .reduce_bucket_size = run->bucket,
                                    .sub_group_size = run->sub_group,
                                    .all_reduce = run->all_reduce,
                                    .gradient_predivide_factor = 1.0,
                                    .max_norm = 0.5,
                                    .gas = run->micro_batches / run->ranks,
                                    .overlap = run->overlap,
                                    .shard_size = run->mics,
                                    .hierarchical_gather = run->hierarchical_gather,
                                    .hpz_size = run->hpz,
                                    .quantized_weights = run->quantized_weights,
                                    .quantized_gradients = run->quantized_gradients,
                                    .loco_reset = run->loco_reset,
                                    .loco_beta = run->loco_beta,
                                    .fetch = run->fetch,
                                    .offload = run->offload};
    if (run->adjust && !run->adjust(seat, &args))
        return false;
    NEED(shoali_zero_create(&args, &seat->zero));
    NEED(shoali_slot_create(seat->device, 1 << 22, &seat->slot));
    NEED(
        shoali_tape_create(&(struct shoali_tape_args){.exec = seat->exec,
                                                      .module = &seat->module,
                                                      .slot = seat->slot,
                                                      .dtype = run->dtype,
                                                      .seed = 5,
                                                      .observers = shoali_zero_observer(seat->zero),
                                                      .observer_count = 1},
                           &seat->tape));
    return true;
}

static inline void close_seat(struct seat *seat)
{
    if (!seat->passed && seat->group)
        shoal_comm_abort(seat->group, SHOAL_EINTERNAL); /* or the others wait for us */
    if (seat->tape)
        shoali_tape_destroy(seat->tape);
    if (seat->slot)
        shoali_slot_destroy(seat->slot);
    shoali_zero_destroy(seat->zero);
    shoali_module_fini(&seat->module);
    shoali_arena_fini(&seat->arena);
    if (seat->exec.stream)
        shoali_stream_destroy(seat->exec.stream);
    shoali_device_destroy(seat->device);
    shoali_pool_destroy(seat->pool);
    shoal_comm_destroy(seat->cut);
    shoal_comm_destroy(seat->group);
}

/* A recording of seat->tape begins, with its batch. */
static inline bool begin_tape(struct seat *seat, int64_t step, int64_t micro, bool training)
{
    const struct sizes *sizes = seat->run->sizes ? seat->run->sizes : &small;
    const shoal_shape shape = shoal_shape_2(1, T);
    int32_t tokens[T], targets[T];
    struct shoal_tensor *inputs[2];
    for (int32_t t = 0; t < T; t++) {
        tokens[t] = (int32_t)((step * 7 + micro * 5 + t * 3) % sizes->vocab);
        targets[t] = (int32_t)((tokens[t] + 2 + micro) % sizes->vocab);
    }
    NEED(shoali_tape_begin(seat->tape, &(struct shoali_tape_begin){.step = step,
                                                                   .first_sample = micro,
                                                                   .training = training,
                                                                   .needs_grad = training}));
    inputs[0] = shoali_tape_add_input(seat->tape, SHOAL_I32, &shape, tokens, false);
    inputs[1] = shoali_tape_add_input(seat->tape, SHOAL_I32, &shape, targets, false);
    shoali_tape_set_batch(seat->tape, inputs, 2);
    return true;
}

static inline bool forward(struct seat *seat, int64_t step, int64_t micro, bool training,
                           struct shoal_tensor **loss)
{
    shoal_boundary boundary = {0};
    if (!begin_tape(seat, step, micro, training))
        return false;
    NEED(shoali_tape_forward_layers(seat->tape, &seat->module, 0, seat->module.layer_count,
                                    &boundary));
    *loss = boundary.tensor[0];
    return true;
}

static inline bool train_step(struct seat *seat, int32_t step)
{
    const struct run *run = seat->run;
    const int64_t gas = run->micro_batches / run->ranks;
    const double scale = run->dtype == SHOAL_F16 ? 256 : 1;
    const bool bad = run->bad_step == step && step > 0 && run->bad_rank == seat->rank;
    struct shoali_zero_verdict verdict;
    struct shoal_tensor *loss;
    for (int64_t i = 0; i < gas; i++) {
        if (!forward(seat, step, run->first_micro + seat->rank * gas + i, true, &loss))
            return false;
        NEED(shoali_zero_micro_begin(seat->zero, i));
        NEED(shoali_zero_add_loss(seat->zero, loss->data));
        NEED(shoali_tape_backward(
            seat->tape, &(struct shoali_backward){
                            .outputs = &loss,
                            .output_count = 1,
                            .seed_value = bad ? INFINITY : shoali_zero_seed(seat->zero, scale)}));
        shoali_tape_end(seat->tape);
    }
    NEED(shoali_zero_reduce(seat->zero, scale, false, &verdict));
    if (!verdict.overflow)
        NEED(shoali_zero_step(seat->zero, &(struct shoali_zero_now){.lr = 0.01, .t = step + 1}));
    if (seat->rank == 0)
        seat->result->verdict[step] = verdict;
    return true;
}

/* As the engine does: the last round may leave ranks without a micro-batch. */
static inline bool evaluate(struct seat *seat)
{
    const struct run *run = seat->run;
    for (int64_t first = 0; first < run->eval; first += run->ranks) {
        struct shoal_tensor *loss;
        const int64_t micro = first + seat->rank;
        if (micro >= run->eval) {
            NEED(shoali_zero_idle_forward(seat->zero));
            return true;
        }
        if (!forward(seat, 99, micro, false, &loss))
            return false;
        NEED(shoal_tensor_get_scalar(loss, &seat->result->eval_loss[micro]));
        shoali_tape_end(seat->tape);
    }
    return true;
}

/* States of rows, columns and tensors: in full from rank 0, hashed from each. */
static inline bool collect_small(struct seat *seat)
{
    static _Thread_local float values[FLAT_MAX];
    for (int32_t k = 0; k < shoali_zero_kind_count(seat->zero); k++) {
        struct shoali_zero_kind kind;
        shoali_zero_get_kind(seat->zero, k, &kind);
        if (kind.of == SHOALI_STATE_ELEMENT)
            continue;
        NEED(shoali_zero_read(seat->zero, k, 0, kind.count, values));
        seat->result->small[seat->rank][k] =
            shoali_hash64(values, (size_t)kind.count * sizeof *values);
        if (seat->rank == 0)
            memcpy(seat->result->kind[k], values, (size_t)kind.count * sizeof *values);
    }
    return true;
}

static inline bool collect(struct seat *seat)
{
    struct result *result = seat->result;
    int32_t count;
    const struct shoali_zero_range *own = shoali_zero_counted_ranges(seat->zero, &count);
    shoali_zero_memory(seat->zero, &result->memory[seat->rank]);
    if (seat->rank == 0) {
        result->flat_count = seat->module.element_count;
        result->params_gone = true;
        for (int32_t i = 0; i < seat->module.param_count; i++)
            result->params_gone = result->params_gone && !seat->module.param[i]->data;
    }
    if (!collect_small(seat))
        return false;
    for (int32_t k = 0; k < shoali_zero_kind_count(seat->zero); k++) {
        struct shoali_zero_kind kind;
        shoali_zero_get_kind(seat->zero, k, &kind);
        if (kind.of != SHOALI_STATE_ELEMENT)
            continue;
        for (int32_t r = 0; r < count && kind.dtype == SHOAL_F32; r++)
            NEED(shoali_zero_read(seat->zero, k, own[r].begin, own[r].count,
                                  result->kind[k] + own[r].begin));
    }
    for (int32_t r = 0; r < count; r++)
        NEED(shoali_zero_read_gradient(seat->zero, own[r].begin, own[r].count,
                                       result->gradient + own[r].begin));
    return true;
}

static inline int64_t traffic_of(struct seat *seat)
{
    struct shoali_comm_counters counters;
    if (shoali_zero_counters(seat->zero, &counters) < 0)
        return -1;
    return counters.elements[SHOALI_ALL_REDUCE] + counters.elements[SHOALI_REDUCE_SCATTER] +
           counters.elements[SHOALI_ALL_GATHER];
}

static inline bool take_seat(struct seat *seat)
{
    if (!open_seat(seat))
        return false;
    const int64_t before = traffic_of(seat);
    for (int32_t step = 0; step < seat->run->steps; step++) {
        if (seat->run->eval && step == seat->run->steps - 1 && !evaluate(seat))
            return false;
        if (!train_step(seat, step))
            return false;
    }
    if (seat->rank == 0)
        seat->result->traffic = (traffic_of(seat) - before) / seat->run->steps;
    return collect(seat);
}

static inline void *sit(void *arg)
{
    struct seat *seat = arg;
    const uint32_t fp = shoali_fp_enter();
    seat->passed = seat->run->drive ? seat->run->drive(seat) : take_seat(seat);
    close_seat(seat);
    shoali_fp_leave(fp);
    return NULL;
}

static struct seat seats[RANKS_MAX];

static inline void go(struct run run, struct result *result)
{
    pthread_t thread[RANKS_MAX];
    struct shoal_thread_world *world = NULL;
    memset(result, 0, sizeof *result);
    if (run.ranks > 1)
        assert_int_equal(shoal_thread_world_create(run.ranks, &world), SHOAL_OK);
    for (int32_t r = 0; r < run.ranks; r++) {
        seats[r] = (struct seat){.run = &run, .result = result, .world = world, .rank = r};
        assert_int_equal(pthread_create(&thread[r], NULL, sit, &seats[r]), 0);
    }
    for (int32_t r = 0; r < run.ranks; r++)
        pthread_join(thread[r], NULL);
    shoal_thread_world_destroy(world);
    for (int32_t r = 0; r < run.ranks; r++)
        assert_true(seats[r].passed || run.fails);
    assert_true(run.fails || (result->flat_count > 0 && result->flat_count <= FLAT_MAX));
}

static struct result reference, other;

static inline void compare(const struct run *run, bool losses)
{
    const size_t bytes = (size_t)reference.flat_count * sizeof(float);
    assert_int_equal(other.flat_count, reference.flat_count);
    for (int32_t k = 0; k < KINDS_MAX; k++)
        for (int64_t i = 0; i < reference.flat_count; i++)
            if (memcmp(&other.kind[k][i], &reference.kind[k][i], sizeof(float)) != 0)
                fail_msg("stage %d, %d ranks, bucket %lld: kind %d, element %lld is %.9g instead "
                         "of %.9g",
                         (int)run->stage, (int)run->ranks, (long long)run->bucket, (int)k,
                         (long long)i, (double)other.kind[k][i], (double)reference.kind[k][i]);
    assert_memory_equal(other.gradient, reference.gradient, bytes);
    for (int32_t r = 0; r < run->ranks; r++)
        assert_memory_equal(other.small[r], reference.small[0], sizeof other.small[r]);
    for (int32_t s = 0; s < run->steps; s++) {
        assert_int_equal(other.verdict[s].overflow, reference.verdict[s].overflow);
        assert_memory_equal(&other.verdict[s].norm, &reference.verdict[s].norm, sizeof(double));
        if (losses)
            assert_memory_equal(&other.verdict[s].loss, &reference.verdict[s].loss, sizeof(double));
    }
    assert_memory_equal(other.eval_loss, reference.eval_loss, sizeof reference.eval_loss);
}

#endif
