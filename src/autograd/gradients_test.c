/* Every op against central differences in F64, then 16-bit runs against F64. */
#include "autograd/test_rig.h"

#include <math.h>

enum { MAX_INPUTS = 6, MAX_ELEMENTS = 4096 };

typedef shoal_tensor *(*build_fn)(shoal_tape *tape, shoal_tensor *const *in,
                                  shoal_param *const *param);

/* One op with inputs of odd sizes. Inputs with ids_below > 0 are I32 in [ids_low, ids_below). */
struct op_case {
    const char *name;
    build_fn build;
    shoal_shape in[MAX_INPUTS];
    int32_t inputs;
    int32_t ids_below[MAX_INPUTS], ids_low;
    shoal_shape param[3];
    int32_t params;
    double low, high; /* of values; 0, 0: -1, 1 */
};

struct values {
    double in[MAX_INPUTS][MAX_ELEMENTS], param[3][MAX_ELEMENTS];
    int32_t ids[MAX_INPUTS][MAX_ELEMENTS];
};

struct check {
    struct rig rig;
    const struct op_case *op;
    shoal_dtype dtype;
    uint64_t seed;
    struct shoali_slot *slot;
    struct shoal_tape *tape;
    struct shoal_param param[3];
    void *input_grad[MAX_INPUTS];
};

static bool is_ids(const struct op_case *op, int32_t input)
{
    return op->ids_below[input] > 0;
}

static void check_open(struct check *check, const struct op_case *op, shoal_dtype dtype,
                       const char *ops, uint64_t seed)
{
    rig_open(&check->rig, ops);
    check->op = op;
    check->dtype = dtype;
    check->seed = seed;
    rig_ok(shoali_slot_create(check->rig.device, 0, &check->slot));
    check->tape = rig_tape(&check->rig, check->slot, dtype, NULL, NULL, 0);
    for (int32_t i = 0; i < op->params; i++)
        rig_param(&check->rig, &check->param[i], "p", dtype, op->param[i]);
    for (int32_t i = 0; i < op->inputs; i++)
        check->input_grad[i] =
            rig_alloc(&check->rig, (size_t)shoal_shape_count(&op->in[i]) * 8 + 8);
}

static void check_close(struct check *check)
{
    shoali_tape_destroy(check->tape);
    shoali_slot_destroy(check->slot);
    rig_close(&check->rig);
}

static void make_values(const struct op_case *op, uint64_t seed, struct values *values)
{
    const double low = op->low == op->high ? -1 : op->low,
                 high = op->low == op->high ? 1 : op->high;
    for (int32_t i = 0; i < op->inputs; i++) {
        char what[32];
        snprintf(what, sizeof what, "%s/in%d", op->name, (int)i);
        const int64_t count = shoal_shape_count(&op->in[i]);
        const struct shoali_stream stream = shoali_stream_make(seed, "ids", what, 0);
        rig_random(seed, what, low, high, values->in[i], count);
        for (int64_t e = 0; is_ids(op, i) && e < count; e++)
            values->ids[i][e] =
                op->ids_low + (int32_t)shoali_random_below(
                                  &stream, (uint64_t)e, (uint64_t)(op->ids_below[i] - op->ids_low));
    }
    for (int32_t i = 0; i < op->params; i++) {
        char what[32];
        snprintf(what, sizeof what, "%s/param%d", op->name, (int)i);
        rig_random(seed, what, low, high, values->param[i], shoal_shape_count(&op->param[i]));
    }
}

/* Rounds to what the dtype holds, so that runs of two types start from the same numbers. */
static void round_values(const struct op_case *op, shoal_dtype dtype, struct values *values)
{
    uint16_t raw[MAX_ELEMENTS];
    for (int32_t i = 0; i < op->inputs; i++) {
        rig_encode(dtype, values->in[i], raw, shoal_shape_count(&op->in[i]));
        rig_decode(dtype, raw, values->in[i], shoal_shape_count(&op->in[i]));
    }
    for (int32_t i = 0; i < op->params; i++) {
        rig_encode(dtype, values->param[i], raw, shoal_shape_count(&op->param[i]));
        rig_decode(dtype, raw, values->param[i], shoal_shape_count(&op->param[i]));
    }
}

static shoal_tensor *add_values(struct check *check, const double *values, const shoal_shape *shape)
{
    const int64_t count = shoal_shape_count(shape);
    float narrow[MAX_ELEMENTS];
    for (int64_t i = 0; i < count; i++)
        narrow[i] = (float)values[i];
    const void *host = check->dtype == SHOAL_F64 ? (const void *)values : (const void *)narrow;
    return shoali_tape_add_input(check->tape, check->dtype, shape, host, true);
}

/* A scalar that every element of `out` enters with its own weight. */
static shoal_tensor *weigh(struct check *check, shoal_tensor *out)
{
    double weights[MAX_ELEMENTS];
    if (out == NULL || out->shape.ndim == 0)
        return out;
    rig_random(check->seed, "weights", -1, 1, weights, shoal_shape_count(&out->shape));
    float narrow[MAX_ELEMENTS];
    for (int64_t i = 0; i < shoal_shape_count(&out->shape); i++)
        narrow[i] = (float)(weights[i] = (double)(float)weights[i]);
    const void *host = check->dtype == SHOAL_F64 ? (const void *)weights : (const void *)narrow;
    shoal_tensor *w = shoali_tape_add_input(check->tape, check->dtype, &out->shape, host, false);
    return shoal_sum(check->tape, shoal_mul(check->tape, out, w), SHOAL_ALL_DIMS);
}

/* Runs the op; with `grads` also its backward, whose results are then in input_grad and the sinks.
 */
static double evaluate(struct check *check, const struct values *values, bool grads)
{
    const struct op_case *op = check->op;
    shoal_tensor *in[MAX_INPUTS];
    shoal_param *param[3] = {0};
    double loss = 0;
    for (int32_t i = 0; i < op->params; i++) {
        rig_write_values(&check->rig, check->dtype, check->param[i].data, values->param[i],
                         check->param[i].count);
        param[i] = &check->param[i];
    }
    rig_ok(shoali_tape_begin(
        check->tape, &(struct shoali_tape_begin){
                         .step = 3, .first_sample = 2, .training = true, .needs_grad = true}));
    for (int32_t i = 0; i < op->inputs; i++)
        in[i] = is_ids(op, i) ? shoali_tape_add_input(check->tape, SHOAL_I32, &op->in[i],
                                                      values->ids[i], false)
                              : add_values(check, values->in[i], &op->in[i]);
    shoal_tensor *result = weigh(check, op->build(check->tape, in, param));
    rig_ok(shoali_tape_status(check->tape));
    rig_ok(shoal_tensor_get_scalar(result, &loss));
    if (!grads)
        return loss;
    shoal_tensor *wanted[MAX_INPUTS];
    void *to[MAX_INPUTS];
    int32_t count = 0;
    for (int32_t i = 0; i < op->inputs; i++)
        if (!is_ids(op, i)) {
            wanted[count] = in[i];
            to[count++] = check->input_grad[i];
        }
    rig_ok(shoali_tape_backward(check->tape, &(struct shoali_backward){.outputs = &result,
                                                                       .output_count = 1,
                                                                       .seed_value = 1,
                                                                       .inputs = wanted,
                                                                       .input_grads = to,
                                                                       .input_count = count}));
    return loss;
}

static void compare_difference(struct check *check, struct values *values, double *value,
                               double gradient, const char *what, int64_t element)
{
    const double h = 1e-5, kept = *value;
    *value = kept + h;
    const double above = evaluate(check, values, false);
    *value = kept - h;
    const double below = evaluate(check, values, false);
    *value = kept;
    const double expected = (above - below) / (2 * h);
    /* Truncation h^2 times a third derivative of up to 1e3 (1/x at 0.1); rounding: eps times a loss
     * of up to 1e2 / h. */
    const double tolerance = 1e-6 + 1e-6 * fabs(expected);
    if (!(fabs(expected - gradient) <= tolerance))
        fail_msg("%s: d/d%s[%lld] is %.12g, central difference %.12g", check->op->name, what,
                 (long long)element, gradient, expected);
}

static void check_differences(const struct op_case *op, uint64_t seed)
{
    static struct check check;
    static struct values values;
    static double in_grad[MAX_INPUTS][MAX_ELEMENTS], param_grad[3][MAX_ELEMENTS];
    check_open(&check, op, SHOAL_F64, "ref", seed);
    make_values(op, seed, &values);
    evaluate(&check, &values, true);
    for (int32_t i = 0; i < op->inputs; i++)
        rig_read_values(&check.rig, SHOAL_F64, check.input_grad[i], in_grad[i],
                        shoal_shape_count(&op->in[i]));
    for (int32_t i = 0; i < op->params; i++)
        rig_read_values(&check.rig, SHOAL_F64, check.param[i].sink.destination, param_grad[i],
                        check.param[i].count);
    for (int32_t i = 0; i < op->inputs; i++)
        for (int64_t e = 0; !is_ids(op, i) && e < shoal_shape_count(&op->in[i]); e++)
            compare_difference(&check, &values, &values.in[i][e], in_grad[i][e], "input", e);
    for (int32_t i = 0; i < op->params; i++)
        for (int64_t e = 0; e < check.param[i].count; e++)
            compare_difference(&check, &values, &values.param[i][e], param_grad[i][e], "param", e);
    check_close(&check);
}

/* ---- the ops ---- */

#define R2(a, b) \
    {            \
        2,       \
        {        \
            a, b \
        }        \
    }
#define R3(a, b, c) \
    {               \
        3,          \
        {           \
            a, b, c \
        }           \
    }
#define R1(a) \
    {         \
        1,    \
        {     \
            a \
        }     \
    }

static shoal_tensor *linear_plain(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0], NULL);
}
static shoal_tensor *linear_bias(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0], &(shoal_linear_args){.bias = p[1], .weight_out_in = 1});
}
static shoal_tensor *linear_gelu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0],
                        &(shoal_linear_args){
                            .bias = p[1], .activation = SHOAL_ACTIVATION_GELU, .weight_out_in = 1});
}
static shoal_tensor *linear_gelu_tanh(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(
        t, in[0], p[0],
        &(shoal_linear_args){.residual = in[1], .activation = SHOAL_ACTIVATION_GELU_TANH});
}
static shoal_tensor *linear_relu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0], &(shoal_linear_args){.activation = SHOAL_ACTIVATION_RELU});
}
static shoal_tensor *linear_residual(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, in[0], p[0], &(shoal_linear_args){.bias = p[1], .residual = in[1]});
}
/* x is its own residual, and read once more. */
static shoal_tensor *linear_self(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    shoal_tensor *y = shoal_linear(t, in[0], p[0], &(shoal_linear_args){.residual = in[0]});
    return shoal_add(t, y, in[0]);
}
static shoal_tensor *embedding(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_embedding(t, in[0], p[0], p[1]);
}
static shoal_tensor *embedding_table(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_embedding(t, in[0], p[0], NULL);
}
static shoal_tensor *layer_norm(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_layer_norm(t, in[0], p[0], p[1], 1e-5);
}
static shoal_tensor *layer_norm_plain(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_layer_norm(t, in[0], p[0], NULL, 1e-5);
}
static shoal_tensor *rms_norm(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_rms_norm(t, in[0], p[0], 1e-5);
}
static shoal_tensor *attention(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_attention(t, in[0], &(shoal_attention_args){.heads = 2});
}
static shoal_tensor *attention_grouped(shoal_tape *t, shoal_tensor *const *in,
                                       shoal_param *const *p)
{
    (void)p;
    return shoal_attention(
        t, in[0], &(shoal_attention_args){.heads = 4, .kv_heads = 2, .scale = 0.7, .full = 1});
}
static shoal_tensor *attention_dropout(shoal_tape *t, shoal_tensor *const *in,
                                       shoal_param *const *p)
{
    (void)p;
    return shoal_attention(t, in[0], &(shoal_attention_args){.heads = 2, .dropout = 0.3});
}
/* Two readers of qkv: attention's gradient, which cannot accumulate, meets another. */
static shoal_tensor *attention_twice(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    shoal_tensor *a = attention(t, in, p), *b = attention_dropout(t, in, p);
    return shoal_mul(t, a, b);
}
static shoal_tensor *dropout(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_dropout(t, in[0], 0.4, NULL);
}
static shoal_tensor *dropout_residual(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_dropout(t, in[0], 0.4, in[1]);
}
static shoal_tensor *dropout_off(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_dropout(t, in[0], 0, in[1]);
}
static shoal_tensor *cross_entropy(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_cross_entropy(t, in[0], in[1]);
}
/* The logits come from an op, in a scope that ends: their memory takes the gradient. */
static shoal_tensor *cross_entropy_over(shoal_tape *t, shoal_tensor *const *in,
                                        shoal_param *const *p)
{
    shoal_scope_begin(t, "head");
    shoal_tensor *logits = shoal_linear(t, in[0], p[0], NULL);
    shoal_tensor *loss = shoal_cross_entropy(t, logits, in[1]);
    shoal_scope_end(t, &loss, 1);
    return loss;
}
static shoal_tensor *mse(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mse(t, in[0], in[1]);
}
static shoal_tensor *softmax(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_softmax(t, in[0]);
}
static shoal_tensor *gelu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_gelu(t, in[0], SHOAL_ACTIVATION_GELU);
}
static shoal_tensor *gelu_tanh(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_gelu(t, in[0], SHOAL_ACTIVATION_GELU_TANH);
}
static shoal_tensor *relu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_relu(t, in[0]);
}
static shoal_tensor *tanh_(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_tanh(t, in[0]);
}
static shoal_tensor *sigmoid(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_sigmoid(t, in[0]);
}
static shoal_tensor *silu(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_silu(t, in[0]);
}
static shoal_tensor *exp_(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_exp(t, in[0]);
}
static shoal_tensor *ln(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_ln(t, in[0]);
}
static shoal_tensor *sqrt_(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_sqrt(t, in[0]);
}
static shoal_tensor *square(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_square(t, in[0]);
}
static shoal_tensor *scale(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_add(t, shoal_scale(t, in[0], -1.75), shoal_scale(t, in[0], 0.5));
}
static shoal_tensor *add_scalar(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_square(t, shoal_add_scalar(t, in[0], 0.75));
}
static shoal_tensor *add(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_add(t, in[0], in[1]);
}
/* The same tensor on both sides of a hand-over. */
static shoal_tensor *add_self(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    shoal_tensor *x = shoal_square(t, in[0]);
    return shoal_mul(t, shoal_add(t, x, x), x);
}
static shoal_tensor *sub(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_sub(t, in[0], in[1]);
}
static shoal_tensor *mul(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mul(t, in[0], in[1]);
}
static shoal_tensor *div_(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_div(t, in[0], in[1]);
}
static shoal_tensor *sum_0(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_sum(t, in[0], 0);
}
static shoal_tensor *sum_last(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_sum(t, in[0], -1);
}
static shoal_tensor *mean_1(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mean(t, in[0], 1);
}
static shoal_tensor *mean_all(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mean(t, shoal_square(t, in[0]), SHOAL_ALL_DIMS);
}
static shoal_tensor *reshape(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    shoal_tensor *x = shoal_square(t, in[0]);
    return shoal_reshape(t,
                         shoal_mul(t, shoal_reshape(t, x, shoal_shape_2(5, 6)),
                                   shoal_reshape(t, in[0], shoal_shape_2(5, 6))),
                         shoal_shape_1(30));
}
static shoal_tensor *slice(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    shoal_tensor *a = shoal_slice(t, in[0], 1, 1, 3), *b = shoal_slice(t, in[0], 1, 2, 3);
    return shoal_mul(t, a, b);
}
static shoal_tensor *concat(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    shoal_tensor *const parts[] = {in[0], in[1], in[0], in[2], in[1], in[0]};
    return shoal_square(t, shoal_concat(t, parts, 6, -2));
}
static shoal_tensor *transpose(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_square(t, shoal_transpose(t, in[0], 0, -1));
}
static shoal_tensor *param_tensor(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    shoal_tensor *w = shoal_param_tensor(t, p[0]);
    return shoal_mul(t, shoal_mul(t, in[0], w), w);
}
static shoal_tensor *gather_rows(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    (void)p;
    return shoal_mul(t, shoal_gather_rows(t, in[0], in[1]), shoal_gather_rows(t, in[0], in[2]));
}
static shoal_tensor *select_rows(shoal_tape *t, shoal_tensor *const *in, shoal_param *const *p)
{
    return shoal_linear(t, shoal_select_rows(t, shoal_square(t, in[0]), in[1]), p[0], NULL);
}

static const struct op_case cases[] = {
    {"linear", linear_plain, {R3(2, 3, 5)}, 1, {0}, 0, {R2(5, 7)}, 1, 0, 0},
    {"linear bias out_in", linear_bias, {R2(3, 5)}, 1, {0}, 0, {R2(7, 5), R1(7)}, 2, 0, 0},
    {"linear gelu", linear_gelu, {R2(3, 5)}, 1, {0}, 0, {R2(7, 5), R1(7)}, 2, 0, 0},
    {"linear gelu_tanh residual",
     linear_gelu_tanh,
     {R2(3, 5), R2(3, 7)},
     2,
     {0},
     0,
     {R2(5, 7)},
     1,
     0,
     0},
    {"linear relu", linear_relu, {R2(3, 5)}, 1, {0}, 0, {R2(5, 3)}, 1, 0, 0},
    {"linear residual",
     linear_residual,
     {R2(3, 5), R2(3, 7)},
     2,
     {0},
     0,
     {R2(5, 7), R1(7)},
     2,
     0,
     0},
    {"linear self residual", linear_self, {R2(3, 5)}, 1, {0}, 0, {R2(5, 5)}, 1, 0, 0},
    {"embedding", embedding, {R2(2, 5)}, 1, {7}, 0, {R2(7, 3), R2(6, 3)}, 2, 0, 0},
    {"embedding table", embedding_table, {R2(3, 5)}, 1, {4}, 0, {R2(4, 3)}, 1, 0, 0},
    {"layer_norm", layer_norm, {R3(2, 3, 17)}, 1, {0}, 0, {R1(17), R1(17)}, 2, 0, 0},
    {"layer_norm no beta", layer_norm_plain, {R2(3, 5)}, 1, {0}, 0, {R1(5)}, 1, 0, 0},
    {"rms_norm", rms_norm, {R2(3, 19)}, 1, {0}, 0, {R1(19)}, 1, 0, 0},
    {"attention", attention, {R3(2, 5, 18)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"attention grouped full", attention_grouped, {R3(1, 5, 24)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"attention dropout", attention_dropout, {R3(2, 3, 18)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"attention twice", attention_twice, {R3(1, 3, 18)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"dropout", dropout, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"dropout residual", dropout_residual, {R2(3, 7), R2(3, 7)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"dropout off", dropout_off, {R2(3, 7), R2(3, 7)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"cross_entropy", cross_entropy, {R3(2, 3, 11), R2(2, 3)}, 2, {0, 11}, -1, {{0}}, 0, 0, 0},
    {"cross_entropy in place",
     cross_entropy_over,
     {R2(3, 5), R1(3)},
     2,
     {0, 9},
     -1,
     {R2(5, 9)},
     1,
     0,
     0},
    {"mse", mse, {R2(3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"softmax", softmax, {R2(3, 19)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"gelu", gelu, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, -3, 3},
    {"gelu_tanh", gelu_tanh, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, -3, 3},
    {"relu", relu, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"tanh", tanh_, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"sigmoid", sigmoid, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"silu", silu, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, -3, 3},
    {"exp", exp_, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"ln", ln, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0.2, 2},
    {"sqrt", sqrt_, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0.2, 2},
    {"square", square, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"scale", scale, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"add_scalar", add_scalar, {R2(3, 7)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"add", add, {R2(3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"add broadcast", add, {R3(2, 3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"add self", add_self, {R2(3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"sub", sub, {R2(3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"sub broadcast", sub, {R3(2, 3, 5), R1(5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"mul", mul, {R2(3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"mul broadcast", mul, {R3(2, 3, 5), R1(5)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"mul by one", mul, {R2(3, 5), R1(1)}, 2, {0}, 0, {{0}}, 0, 0, 0},
    {"div", div_, {R2(3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0.4, 2},
    {"div broadcast", div_, {R3(2, 3, 5), R2(3, 5)}, 2, {0}, 0, {{0}}, 0, 0.4, 2},
    {"sum dim 0", sum_0, {R3(2, 3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"sum last dim", sum_last, {R2(3, 17)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"mean dim 1", mean_1, {R3(2, 3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"mean all", mean_all, {R3(2, 3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"reshape", reshape, {R3(2, 3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"slice", slice, {R3(2, 5, 3)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"concat", concat, {R3(2, 2, 3), R3(2, 1, 3), R3(2, 3, 3)}, 3, {0}, 0, {{0}}, 0, 0, 0},
    {"transpose", transpose, {R3(2, 3, 5)}, 1, {0}, 0, {{0}}, 0, 0, 0},
    {"param_tensor", param_tensor, {R2(3, 5)}, 1, {0}, 0, {R1(5)}, 1, 0, 0},
    {"gather_rows", gather_rows, {R2(5, 3), R1(7), R1(7)}, 3, {0, 5, 5}, 0, {{0}}, 0, 0, 0},
    {"select_rows", select_rows, {R2(5, 3), R1(5)}, 2, {0, 2}, 0, {R2(3, 2)}, 1, 0, 0},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void test_central_differences(void **state)
{
    (void)state;
    const uint64_t seed = rig_seed("central differences");
    for (int32_t i = 0; i < CASES; i++)
        check_differences(&cases[i], seed);
}

/* ---- other types ---- */

static double largest(const double *values, int64_t count)
{
    double found = 0;
    for (int64_t i = 0; i < count; i++)
        found = fabs(values[i]) > found ? fabs(values[i]) : found;
    return found;
}

static void compare_arrays(const char *name, const double *got, const double *expected,
                           int64_t count, double relative)
{
    const double scale = largest(expected, count) + 0.1;
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected[i]) <= relative * scale))
            fail_msg("%s: element %lld is %g, in F64 %g (largest %g)", name, (long long)i, got[i],
                     expected[i], scale);
}

/* Gradients of one type, as doubles. */
struct gradients {
    double in[MAX_INPUTS][MAX_ELEMENTS], param[3][MAX_ELEMENTS];
};

static void gradients_of(const struct op_case *op, shoal_dtype dtype, const char *ops,
                         uint64_t seed, const struct values *values, struct gradients *gradients)
{
    static struct check check;
    check_open(&check, op, dtype, ops, seed);
    evaluate(&check, values, true);
    for (int32_t i = 0; i < op->inputs; i++)
        if (!is_ids(op, i))
            rig_read_values(&check.rig, dtype, check.input_grad[i], gradients->in[i],
                            shoal_shape_count(&op->in[i]));
    for (int32_t i = 0; i < op->params; i++)
        rig_read_values(&check.rig, check.param[i].sink.dtype, check.param[i].sink.destination,
                        gradients->param[i], check.param[i].count);
    check_close(&check);
}

/* A chain of up to 4 ops, each result rounded to eps relative, sums of up to 20 terms: 32 eps of
 * the largest element. */
static void check_type(shoal_dtype dtype, double eps, const char *ops)
{
    static struct values values;
    static struct gradients got, expected;
    const uint64_t seed = rig_seed(shoal_dtype_name(dtype));
    for (int32_t c = 0; c < CASES; c++) {
        const struct op_case *op = &cases[c];
        make_values(op, seed, &values);
        if (dtype == SHOAL_BF16 || dtype == SHOAL_F16)
            round_values(op, dtype, &values);
        gradients_of(op, dtype, ops, seed, &values, &got);
        gradients_of(op, SHOAL_F64, "ref", seed, &values, &expected);
        for (int32_t i = 0; i < op->inputs; i++)
            if (!is_ids(op, i))
                compare_arrays(op->name, got.in[i], expected.in[i], shoal_shape_count(&op->in[i]),
                               32 * eps);
        for (int32_t i = 0; i < op->params; i++)
            compare_arrays(op->name, got.param[i], expected.param[i],
                           shoal_shape_count(&op->param[i]), 32 * eps);
    }
}

static void test_f32(void **state)
{
    (void)state;
    check_type(SHOAL_F32, 0x1p-23, NULL);
}

static void test_bf16(void **state)
{
    (void)state;
    check_type(SHOAL_BF16, 0x1p-8, NULL);
}

static void test_f16(void **state)
{
    (void)state;
    check_type(SHOAL_F16, 0x1p-11, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_central_differences),
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_f16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
