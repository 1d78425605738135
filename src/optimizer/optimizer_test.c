/* The step against the textbook formulas; cuts, skips and multipliers bit by bit; configuration. */
#include "base/test_cmocka.h"
#include "optimizer/test_default.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 1001
#define COUNT 1237 /* no multiple of any vector width */
#define STEPS 6

/* ---- a device with one stream ---- */

struct machine {
    struct shoali_pool *pool;
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    struct shoali_ops ops;
    struct shoali_exec exec;
    struct shoali_arena arena;
};

static int make_machine(void **state)
{
    static struct machine machine;
    const struct shoali_accelerator *accelerator;
    memset(&machine, 0, sizeof(machine));
    shoali_arena_init(&machine.arena);
    ok(shoali_pool_create(2, &machine.pool));
    ok(shoali_accelerator_select(NULL, &accelerator));
    ok(shoali_device_create(accelerator, 0, machine.pool, &machine.device));
    ok(shoali_stream_create(machine.device, &machine.stream));
    ok(shoali_ops_select(NULL, NULL, &machine.ops));
    machine.exec = (struct shoali_exec){&machine.ops, machine.stream};
    *state = &machine;
    return 0;
}

static int drop_machine(void **state)
{
    struct machine *machine = *state;
    shoali_stream_destroy(machine->stream);
    shoali_device_destroy(machine->device);
    shoali_pool_destroy(machine->pool);
    shoali_arena_fini(&machine->arena);
    return 0;
}

static void *device_array(struct machine *machine, const void *host, size_t bytes)
{
    void *address = NULL;
    ok(shoali_device_alloc(machine->device, bytes, &address));
    ok(shoali_upload(machine->stream, address, host, bytes));
    return address;
}

/* ---- a flat shard on the device ---- */

struct shard {
    float *param, *grad, *state[2];
    uint16_t *low;
    float *control;
};

static void random_values(float *x, uint64_t stream_number, double scale)
{
    struct shoali_stream stream = shoali_stream_make(SEED, "test", "values", stream_number);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(scale * shoali_random_normal(&stream, (uint64_t)i));
}

static void shard_make(struct machine *machine, struct shard *shard)
{
    static float values[COUNT];
    static const uint16_t low[COUNT];
    const float control[3] = {0, 1, 0};
    random_values(values, 0, 1);
    shard->param = device_array(machine, values, sizeof(values));
    shard->grad = device_array(machine, values, sizeof(values));
    memset(values, 0, sizeof(values));
    for (int s = 0; s < 2; s++)
        shard->state[s] = device_array(machine, values, sizeof(values));
    shard->low = device_array(machine, low, sizeof(low));
    shard->control = device_array(machine, control, sizeof(control));
}

static void shard_drop(struct machine *machine, struct shard *shard)
{
    shoali_device_free(machine->device, shard->param);
    shoali_device_free(machine->device, shard->grad);
    shoali_device_free(machine->device, shard->state[0]);
    shoali_device_free(machine->device, shard->state[1]);
    shoali_device_free(machine->device, shard->low);
    shoali_device_free(machine->device, shard->control);
}

static void shard_read(struct machine *machine, const struct shard *shard, float *param)
{
    ok(shoali_download(machine->stream, param, shard->param, COUNT * sizeof(float)));
}

static double lr_at(int64_t t)
{
    return 0.01 / (double)t;
}

/* One update of the shard cut into `pieces` segments, with the gradient of step t times 4 (control
 * undoes it). */
static void shard_step(struct machine *machine, const struct shoali_optimizer *optimizer,
                       struct shard *shard, int64_t t, int pieces)
{
    static float grad[COUNT];
    const float control[3] = {0, 0.25f, 0};
    random_values(grad, (uint64_t)t, 4);
    ok(shoali_upload(machine->stream, shard->grad, grad, sizeof(grad)));
    ok(shoali_upload(machine->stream, shard->control, control, sizeof(control)));
    struct shoali_optimizer_now now = {
        .exec = &machine->exec, .control = shard->control, .lr = lr_at(t), .t = t};
    for (int k = 0; k < pieces; k++) {
        int64_t first = (int64_t)COUNT * k / pieces, end = (int64_t)COUNT * (k + 1) / pieces;
        struct shoali_optimizer_segment segment = {
            .param = shard->param + first,
            .grad = shard->grad + first,
            .state = {shard->state[0] + first, shard->state[1] + first},
            .low = shard->low + first,
            .low_dtype = SHOAL_BF16,
            .count = end - first,
            .lr_multiplier = 1,
            .weight_decay_multiplier = 1,
        };
        ok(shoali_optimizer_step(optimizer, &now, &segment));
    }
}

/* ---- references ---- */

struct reference {
    double param[COUNT], m[COUNT], v[COUNT];
};

static void reference_begin(struct reference *ref)
{
    static float values[COUNT];
    memset(ref, 0, sizeof(*ref));
    random_values(values, 0, 1);
    for (int i = 0; i < COUNT; i++)
        ref->param[i] = values[i];
}

static void reference_adam(struct reference *ref, const struct shoali_optimizer *optimizer,
                           bool decoupled, bool corrected, int64_t t)
{
    static float grad[COUNT];
    double b1 = optimizer->beta[0], b2 = optimizer->beta[1], wd = optimizer->weight_decay;
    double eps = optimizer->params.adam.eps, lr = lr_at(t);
    random_values(grad, (uint64_t)t, 4);
    for (int i = 0; i < COUNT; i++) {
        double g = 0.25 * (double)grad[i], *p = &ref->param[i];
        if (!decoupled)
            g += wd * *p;
        ref->m[i] = b1 * ref->m[i] + (1 - b1) * g;
        ref->v[i] = b2 * ref->v[i] + (1 - b2) * g * g;
        double c1 = corrected ? 1 - pow(b1, (double)t) : 1;
        double c2 = corrected ? 1 - pow(b2, (double)t) : 1;
        double u = ref->m[i] / c1 / (sqrt(ref->v[i] / c2) + eps);
        *p -= lr * (u + (decoupled ? wd * *p : 0));
    }
}

static void reference_sgd(struct reference *ref, const struct shoali_optimizer *optimizer,
                          int64_t t)
{
    static float grad[COUNT];
    const struct shoali_sgd_params *params = &optimizer->params.sgd;
    random_values(grad, (uint64_t)t, 4);
    for (int i = 0; i < COUNT; i++) {
        double g = 0.25 * (double)grad[i] + optimizer->weight_decay * ref->param[i];
        if (params->momentum != 0) {
            ref->m[i] = t == 1 ? g : params->momentum * ref->m[i] + (1 - params->dampening) * g;
            g = params->nesterov ? g + params->momentum * ref->m[i] : ref->m[i];
        }
        ref->param[i] -= lr_at(t) * g;
    }
}

/* A step changes a parameter by at most about lr * |u|; each of ~10 roundings costs eps of the
 * operands (parameters below 8, changes below 8 lr), so STEPS steps stay within this. */
static double tolerance(void)
{
    return STEPS * 10 * 0x1p-24 * 8 * (1 + 0.01);
}

static void compare(struct machine *machine, const struct shard *shard, const struct reference *ref)
{
    static float param[COUNT];
    static uint16_t low[COUNT];
    shard_read(machine, shard, param);
    ok(shoali_download(machine->stream, low, shard->low, sizeof(low)));
    for (int i = 0; i < COUNT; i++) {
        if (!(fabs((double)param[i] - ref->param[i]) <= tolerance()))
            fail_msg("param[%d] is %.9g, expected %.9g", i, param[i], ref->param[i]);
        assert_int_equal(low[i], shoali_f32_to_bf16(param[i]));
    }
}

static void test_adam(void **state)
{
    struct machine *machine = *state;
    static struct reference ref;
    print_message("seed %d, %s\n", SEED, machine->ops.name);
    for (int k = 0; k < 8; k++) {
        struct shoali_optimizer optimizer;
        struct shard shard;
        bool is_adamw = k & 1, decoupled = k & 1 || k & 2, corrected = !(k & 4);
        ok(optimizer_default(is_adamw ? "AdamW" : "Adam", &machine->arena, &optimizer));
        optimizer.params.adam.adam_w_mode = (k & 2) != 0;
        optimizer.params.adam.bias_correction = corrected;
        optimizer.params.adam.weight_decay = 0.1;
        shoali_optimizer_configure(&optimizer);
        assert_int_equal(optimizer.state_count, 2);
        reference_begin(&ref);
        shard_make(machine, &shard);
        for (int64_t t = 1; t <= STEPS; t++) {
            reference_adam(&ref, &optimizer, decoupled, corrected, t);
            shard_step(machine, &optimizer, &shard, t, 1);
        }
        compare(machine, &shard, &ref);
        shard_drop(machine, &shard);
    }
}

static void test_sgd(void **state)
{
    struct machine *machine = *state;
    static struct reference ref;
    static const struct {
        double momentum, dampening;
        bool nesterov;
        int32_t states;
    } cases[] = {{0, 0, false, 0}, {0.9, 0, false, 1}, {0.9, 0.3, false, 1}, {0.8, 0, true, 1}};
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        struct shoali_optimizer optimizer;
        struct shard shard;
        ok(optimizer_default("sgd", &machine->arena, &optimizer));
        optimizer.params.sgd.momentum = cases[k].momentum;
        optimizer.params.sgd.dampening = cases[k].dampening;
        optimizer.params.sgd.nesterov = cases[k].nesterov;
        optimizer.params.sgd.weight_decay = 0.01;
        shoali_optimizer_configure(&optimizer);
        assert_int_equal(optimizer.state_count, cases[k].states);
        reference_begin(&ref);
        shard_make(machine, &shard);
        for (int64_t t = 1; t <= STEPS; t++) {
            reference_sgd(&ref, &optimizer, t);
            shard_step(machine, &optimizer, &shard, t, 1);
        }
        compare(machine, &shard, &ref);
        shard_drop(machine, &shard);
    }
}

/* Cutting a shard into segments changes no bit. */
static void test_segments(void **state)
{
    struct machine *machine = *state;
    static float whole[COUNT], cut[COUNT];
    static const char *const names[] = {"adamw", "sgd"};
    for (int k = 0; k < 2; k++) {
        struct shoali_optimizer optimizer;
        ok(optimizer_default(names[k], &machine->arena, &optimizer));
        if (k == 1)
            optimizer.params.sgd.momentum = 0.9;
        shoali_optimizer_configure(&optimizer);
        for (int pieces = 1; pieces <= 7; pieces += 3) {
            struct shard shard;
            shard_make(machine, &shard);
            for (int64_t t = 1; t <= 3; t++)
                shard_step(machine, &optimizer, &shard, t, pieces);
            shard_read(machine, &shard, pieces == 1 ? whole : cut);
            if (pieces > 1)
                assert_memory_equal(whole, cut, sizeof(cut));
            shard_drop(machine, &shard);
        }
    }
}

/* control[2] != 0: nothing is written, neither parameters nor states nor the 16-bit copy. */
static void test_skip(void **state)
{
    struct machine *machine = *state;
    static float before[COUNT], after[COUNT], moment[COUNT];
    static uint16_t low[COUNT];
    const float control[3] = {NAN, 1, 1};
    struct shoali_optimizer optimizer;
    struct shard shard;
    ok(optimizer_default("adamw", &machine->arena, &optimizer));
    shard_make(machine, &shard);
    shard_read(machine, &shard, before);
    ok(shoali_upload(machine->stream, shard.control, control, sizeof(control)));
    struct shoali_optimizer_now now = {
        .exec = &machine->exec, .control = shard.control, .lr = 1, .t = 1};
    struct shoali_optimizer_segment segment = {.param = shard.param,
                                               .grad = shard.grad,
                                               .state = {shard.state[0], shard.state[1]},
                                               .low = shard.low,
                                               .low_dtype = SHOAL_F16,
                                               .count = COUNT,
                                               .lr_multiplier = 1};
    ok(shoali_optimizer_step(&optimizer, &now, &segment));
    shard_read(machine, &shard, after);
    assert_memory_equal(before, after, sizeof(before));
    ok(shoali_download(machine->stream, moment, shard.state[1], sizeof(moment)));
    ok(shoali_download(machine->stream, low, shard.low, sizeof(low)));
    for (int i = 0; i < COUNT; i++)
        assert_true(moment[i] == 0 && low[i] == 0);
    now.control = NULL; /* without a control block the step is taken */
    ok(shoali_optimizer_step(&optimizer, &now, &segment));
    shard_read(machine, &shard, after);
    assert_memory_not_equal(before, after, sizeof(before));
    shard_drop(machine, &shard);
}

/* Multipliers: weight decay off and half the lr, as two runs that say so globally. */
static void test_multipliers(void **state)
{
    struct machine *machine = *state;
    static float multiplied[COUNT], direct[COUNT];
    struct shoali_optimizer optimizer;
    struct shard shard;
    for (int k = 0; k < 2; k++) {
        ok(optimizer_default("adamw", &machine->arena, &optimizer));
        optimizer.weight_decay = k == 0 ? 0.5 : 0;
        shard_make(machine, &shard);
        struct shoali_optimizer_now now = {
            .exec = &machine->exec, .lr = k == 0 ? 0.02 : 0.01, .t = 1};
        struct shoali_optimizer_segment segment = {.param = shard.param,
                                                   .grad = shard.grad,
                                                   .state = {shard.state[0], shard.state[1]},
                                                   .count = COUNT,
                                                   .lr_multiplier = k == 0 ? 0.5 : 1,
                                                   .weight_decay_multiplier = k};
        ok(shoali_optimizer_step(&optimizer, &now, &segment));
        shard_read(machine, &shard, k == 0 ? multiplied : direct);
        shard_drop(machine, &shard);
    }
    assert_memory_equal(multiplied, direct, sizeof(direct));
}

/* Two steps, so that a momentum that was kept counts. */
static void two_steps(struct machine *machine, const struct shoali_optimizer *optimizer,
                      bool cycles, float *param)
{
    struct shard shard;
    shard_make(machine, &shard);
    for (int64_t t = 1; t <= 2; t++) {
        struct shoali_optimizer_now now = {.exec = &machine->exec,
                                           .lr = 0.01,
                                           .t = t,
                                           .cycle_momentum = cycles,
                                           .momentum = cycles ? 0.85 : 0.3};
        struct shoali_optimizer_segment segment = {.param = shard.param,
                                                   .grad = shard.grad,
                                                   .state = {shard.state[0], shard.state[1]},
                                                   .count = COUNT,
                                                   .lr_multiplier = 1};
        ok(shoali_optimizer_step(optimizer, &now, &segment));
    }
    shard_read(machine, &shard, param);
    shard_drop(machine, &shard);
}

/* Cycled momentum is beta1 = momentum, beta2 = 0.99; of SGD its momentum. */
static void test_cycled_momentum(void **state)
{
    struct machine *machine = *state;
    static float cycled[COUNT], direct[COUNT], other[COUNT];
    static const char *const names[] = {"adamw", "sgd"};
    for (int k = 0; k < 2; k++) {
        struct shoali_optimizer optimizer;
        ok(optimizer_default(names[k], &machine->arena, &optimizer));
        if (k == 1)
            optimizer.params.sgd.momentum = 0.5;
        shoali_optimizer_configure(&optimizer);
        two_steps(machine, &optimizer, true, cycled);
        two_steps(machine, &optimizer, false, other);
        if (k == 1)
            optimizer.params.sgd.momentum = 0.85;
        else
            optimizer.beta[1] = 0.99;
        optimizer.beta[0] = 0.85;
        two_steps(machine, &optimizer, false, direct);
        assert_memory_equal(cycled, direct, sizeof(direct));
        assert_memory_not_equal(cycled, other, sizeof(other));
    }
}

static void test_step_refusals(void **state)
{
    struct machine *machine = *state;
    struct shoali_optimizer optimizer;
    struct shard shard;
    ok(optimizer_default("adamw", &machine->arena, &optimizer));
    shard_make(machine, &shard);
    struct shoali_optimizer_now now = {.exec = &machine->exec, .lr = 1};
    struct shoali_optimizer_segment segment = {
        .param = shard.param, .grad = shard.grad, .count = COUNT};
    assert_int_equal(shoali_optimizer_step(&optimizer, &now, &segment), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "t = 1"));
    now.t = 1;
    assert_int_equal(shoali_optimizer_step(&optimizer, &now, &segment), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "exp_avg"));
    segment.grad = NULL;
    assert_int_equal(shoali_optimizer_step(&optimizer, &now, &segment), SHOAL_EINVAL);
    segment.count = -1;
    assert_int_equal(shoali_optimizer_step(&optimizer, &now, &segment), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "a segment of -1 elements"));
    segment.count = 0;
    ok(shoali_optimizer_step(&optimizer, &now, &segment));
    shard_drop(machine, &shard);
}

/* ---- configuration ---- */

static shoal_status from_json(const char *body, struct shoali_arena *arena,
                              struct shoali_optimizer *optimizer)
{
    struct shoali_json *document = NULL;
    struct shoali_optimizer_config config;
    char text[512];
    shoal_status status;
    snprintf(text, sizeof(text), "{\n\"optimizer\": {%s}}", body);
    SHOAL_TRY(status, shoali_json_parse(text, strlen(text), "test.json", &document), done);
    SHOAL_TRY(status, shoali_config_defaults(&shoali_optimizer_section, &config, arena), done);
    SHOAL_TRY(
        status,
        shoali_config_read_json(&shoali_optimizer_section, document, "optimizer", &config, arena),
        done);
    SHOAL_TRY(status, shoali_optimizer_make(&config, document, "optimizer", arena, optimizer),
              done);
done:
    shoali_json_close(document);
    return status;
}

static void test_config(void **state)
{
    struct machine *machine = *state;
    struct shoali_optimizer o;
    ok(from_json("\"type\": \"AdamW\", \"params\": {\"lr\": 3e-4, \"betas\": [0.8, 0.95], "
                 "\"eps\": 1e-6, \"weight_decay\": 0.2, \"torch_adam\": true}",
                 &machine->arena, &o));
    assert_string_equal(o.type->name, "adamw");
    assert_true(o.lr == 3e-4 && o.beta[0] == 0.8 && o.beta[1] == 0.95 && o.weight_decay == 0.2);
    assert_true(o.params.adam.eps == 1e-6 && o.params.adam.bias_correction);
    ok(from_json("\"type\": \"adam\"", &machine->arena, &o));
    assert_true(o.lr == 1e-3 && o.beta[0] == 0.9 && o.beta[1] == 0.999 && o.weight_decay == 0);
    assert_true(o.params.adam.eps == 1e-8 && o.params.adam.adam_w_mode);
    ok(from_json(
        "\"type\": \"adam\", \"params\": {\"torch_adam\": \"torch_impl\", \"fused\": true}",
        &machine->arena, &o)); /* as Habana's files have it: DeepSpeed asks whether it is empty */
    ok(from_json("\"type\": \"SGD\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9}", &machine->arena,
                 &o));
    assert_true(o.lr == 0.1 && o.beta[0] == 0.9 && o.state_count == 1);
    ok(from_json("", &machine->arena, &o));
    assert_null(o.type);
}

/* What `params` says reaches the optimizer, of every type, at the limits of what is taken. */
static void test_config_of_types(void **state)
{
    struct machine *machine = *state;
    static const struct {
        const char *body;
        double lr, weight_decay, beta[2];
        int32_t states;
    } cases[] = {
        {"\"adam\", \"params\": {\"betas\": [0, 0], \"weight_decay\": 0.5}", 1e-3, 0.5, {0, 0}, 2},
        {"\"lamb\", \"params\": {\"lr\": 2, \"betas\": [0, 0.5], \"weight_decay\": 0.5}",
         2,
         0.5,
         {0, 0.5},
         2},
        {"\"lamb\", \"params\": {\"min_coeff\": 10, \"max_coeff\": 10}", 1e-3, 0, {0.9, 0.999}, 2},
        {"\"adafactor\"", 1e-2, 0, {0, 0}, 2},
        {"\"adafactor\", \"params\": {\"lr\": 2, \"weight_decay\": 0.5, \"d\": 0.25}",
         2,
         0.5,
         {0, 0},
         2},
        {"\"sgd\", \"params\": {\"lr\": 2, \"weight_decay\": 0.5}", 2, 0.5, {0, 0}, 0},
        {"\"sgd\", \"params\": {\"lr\": 2, \"momentum\": 0.5, \"nesterov\": true}",
         2,
         0,
         {0.5, 0},
         1},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct shoali_optimizer o;
        char body[200];
        memset(&o, -1, sizeof o);
        snprintf(body, sizeof body, "\"type\": %s", cases[k].body);
        ok(from_json(body, &machine->arena, &o));
        if (o.lr != cases[k].lr || o.weight_decay != cases[k].weight_decay ||
            o.beta[0] != cases[k].beta[0] || o.beta[1] != cases[k].beta[1] ||
            o.state_count != cases[k].states)
            fail_msg("%s: lr %g, decay %g, betas %g %g, %d states", body, o.lr, o.weight_decay,
                     o.beta[0], o.beta[1], (int)o.state_count);
    }
}

static void test_names_of_states(void **state)
{
    static const char *const names[] = {"exp_avg", "exp_avg_sq", "momentum_buffer",
                                        "exp_avg_sq_row", "exp_avg_sq_col"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_true(shoali_optimizer_is_state(names[i]));
    assert_false(shoali_optimizer_is_state("master"));
    assert_false(shoali_optimizer_is_state("exp_av"));
}

static void test_config_refusals(void **state)
{
    struct machine *machine = *state;
    static const struct {
        const char *body;
        shoal_status status;
        const char *word;
    } cases[] = {
        {"\"type\": \"adafacter\"", SHOAL_ECONFIG, "the nearest name is `adafactor`; use adamw"},
        {"\"type\": \"Lion\"", SHOAL_EUNSUPPORTED, "known but not supported yet"},
        {"\"type\": \"Lamb\", \"params\": {\"min_coeff\": 11}", SHOAL_ECONFIG,
         "11 is above max_coeff, which is 10"},
        {"\"type\": \"lamb\", \"params\": {\"betas\": [0.9, 1]}", SHOAL_ECONFIG, "[0, 1)"},
        {"\"type\": \"lamb\", \"params\": {\"max_grad_norm\": -1}", SHOAL_ECONFIG, "max_grad_norm"},
        {"\"type\": \"Adafactor\", \"params\": {\"eps\": [1e-7]}", SHOAL_ECONFIG, "give two"},
        {"\"type\": \"Adafactor\", \"params\": {\"d\": 0}", SHOAL_ECONFIG, "d: 0 is not above 0"},
        {"\"type\": \"Adafactor\", \"params\": {\"eps\": [0, 1]}", SHOAL_ECONFIG,
         "eps: 0 is not a number above 0"},
        {"\"type\": \"Adafactor\", \"params\": {\"eps\": [1, 0]}", SHOAL_ECONFIG,
         "eps: 0 is not a number above 0"},
        {"\"type\": \"adam\", \"params\": {\"betas\": [-0.1, 0.9]}", SHOAL_ECONFIG,
         "betas: -0.1 is outside [0, 1)"},
        {"\"type\": \"sgd\", \"params\": {\"momentum\": 0.9, \"dampening\": 0.1, \"nesterov\": "
         "true}",
         SHOAL_ECONFIG, "nesterov: needs momentum > 0 and dampening 0"},
        {"\"type\": \"Adafactor\", \"params\": {\"betas\": [0.9, 0.99]}", SHOAL_ECONFIG, "betas"},
        {"\"type\": \"OneBitAdam\"", SHOAL_EUNSUPPORTED, ":2: optimizer.type: "},
        {"\"type\": \"RMSprop\"", SHOAL_EUNSUPPORTED, "RMSprop"},
        {"\"type\": \"adam\", \"params\": {\"beta\": [0.9, 0.99]}", SHOAL_ECONFIG, "betas"},
        {"\"type\": \"adam\", \"params\": {\"betas\": [0.9]}", SHOAL_ECONFIG, "two"},
        {"\"type\": \"adam\", \"params\": {\"betas\": [0.9, 1]}", SHOAL_ECONFIG, "[0, 1)"},
        {"\"type\": \"adam\", \"params\": {\"lr\": -1}", SHOAL_ECONFIG, "lr"},
        {"\"type\": \"adam\", \"params\": {\"amsgrad\": true}", SHOAL_EUNSUPPORTED, "amsgrad"},
        {"\"type\": \"adam\", \"params\": {\"max_grad_norm\": -1.0}", SHOAL_ECONFIG,
         "max_grad_norm"},
        {"\"type\": \"sgd\", \"params\": {\"nesterov\": true}", SHOAL_ECONFIG, "momentum"},
        {"\"type\": \"sgd\", \"params\": {\"betas\": [0.9, 0.99]}", SHOAL_ECONFIG, "betas"},
    };
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        struct shoali_optimizer optimizer;
        shoal_status status = from_json(cases[k].body, &machine->arena, &optimizer);
        if (status != cases[k].status || !strstr(shoal_error_message(), cases[k].word))
            fail_msg("%s: %s: %s", cases[k].body, shoal_status_name(status), shoal_error_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_skip),
        cmocka_unit_test(test_multipliers),
        cmocka_unit_test(test_cycled_momentum),
        cmocka_unit_test(test_step_refusals),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_config_of_types),
        cmocka_unit_test(test_names_of_states),
        cmocka_unit_test(test_config_refusals),
    };
    return cmocka_run_group_tests(tests, make_machine, drop_machine);
}
