/* Every op against central differences in F64, then 16-bit runs against F64; then each of its
 * launches fails once. */
#ifndef OP_CASES /* a program with ops of its own names its header */
#define OP_CASES "autograd/test_ops.h"
#endif
#include OP_CASES
#include "base/fault.h"

#include <math.h>

struct values {
    double in[MAX_INPUTS][MAX_ELEMENTS], param[MAX_PARAMS][MAX_ELEMENTS];
    int32_t ids[MAX_INPUTS][MAX_ELEMENTS];
};

struct check {
    struct rig rig;
    const struct op_case *op;
    shoal_dtype dtype;
    uint64_t seed;
    struct shoali_slot *slot;
    struct shoal_tape *tape;
    struct shoal_param param[MAX_PARAMS];
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

/* Parameters and inputs of a new recording. */
static void begin(struct check *check, const struct values *values, shoal_tensor **in)
{
    const struct op_case *op = check->op;
    for (int32_t i = 0; i < op->params; i++)
        rig_write_values(&check->rig, check->dtype, check->param[i].data, values->param[i],
                         check->param[i].count);
    rig_ok(shoali_tape_begin(
        check->tape, &(struct shoali_tape_begin){
                         .step = 3, .first_sample = 2, .training = true, .needs_grad = true}));
    for (int32_t i = 0; i < op->inputs; i++)
        in[i] = is_ids(op, i) ? shoali_tape_add_input(check->tape, SHOAL_I32, &op->in[i],
                                                      values->ids[i], false)
                              : add_values(check, values->in[i], &op->in[i]);
}

static shoal_tensor *record(struct check *check, shoal_tensor *const *in)
{
    shoal_param *param[MAX_PARAMS] = {0};
    for (int32_t i = 0; i < check->op->params; i++)
        param[i] = &check->param[i];
    return weigh(check, check->op->build(check->tape, in, param));
}

/* Results are in input_grad and the sinks. */
static shoal_status backward(struct check *check, shoal_tensor **in, shoal_tensor *result)
{
    shoal_tensor *wanted[MAX_INPUTS];
    void *to[MAX_INPUTS];
    int32_t count = 0;
    for (int32_t i = 0; i < check->op->inputs; i++)
        if (!is_ids(check->op, i)) {
            wanted[count] = in[i];
            to[count++] = check->input_grad[i];
        }
    return shoali_tape_backward(check->tape, &(struct shoali_backward){.outputs = &result,
                                                                       .output_count = 1,
                                                                       .seed_value = 1,
                                                                       .inputs = wanted,
                                                                       .input_grads = to,
                                                                       .input_count = count});
}

/* Runs the op; with `grads` also its backward. */
static double evaluate(struct check *check, const struct values *values, bool grads)
{
    shoal_tensor *in[MAX_INPUTS];
    double loss = 0;
    begin(check, values, in);
    shoal_tensor *result = record(check, in);
    rig_ok(shoali_tape_status(check->tape));
    rig_ok(shoal_tensor_get_scalar(result, &loss));
    if (grads)
        rig_ok(backward(check, in, result));
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
    static double in_grad[MAX_INPUTS][MAX_ELEMENTS], param_grad[MAX_PARAMS][MAX_ELEMENTS];
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

/* Of a chain of up to 4 ops with sums of up to 20 terms, each result rounded to eps relative. */
#define ROUNDINGS 32

/* `moved`: what `expected` becomes when each value moves by one rounding. */
static void compare_arrays(const char *name, const double *got, const double *expected,
                           const double *moved, int64_t count, double eps)
{
    const double scale = largest(expected, count) + 0.1;
    double change = 0;
    for (int64_t i = 0; i < count; i++)
        change = fmax(change, fabs(moved[i] - expected[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected[i]) <= ROUNDINGS * (eps * scale + change)))
            fail_msg("%s: element %lld is %g, in F64 %g (largest %g, one rounding changes %g)",
                     name, (long long)i, got[i], expected[i], scale, change);
}

/* Gradients of one type, as doubles. */
struct gradients {
    double in[MAX_INPUTS][MAX_ELEMENTS], param[MAX_PARAMS][MAX_ELEMENTS];
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

/* Moves each value by eps relative, up or down by the seed. */
static void move_values(const struct op_case *op, uint64_t seed, double eps,
                        const struct values *values, struct values *moved)
{
    double sign[MAX_ELEMENTS];
    *moved = *values;
    for (int32_t i = 0; i < op->inputs; i++) {
        rig_random(seed, "input sign", -1, 1, sign, shoal_shape_count(&op->in[i]));
        for (int64_t e = 0; e < shoal_shape_count(&op->in[i]); e++)
            moved->in[i][e] *= 1 + copysign(eps, sign[e]);
    }
    for (int32_t i = 0; i < op->params; i++) {
        rig_random(seed, "param sign", -1, 1, sign, shoal_shape_count(&op->param[i]));
        for (int64_t e = 0; e < shoal_shape_count(&op->param[i]); e++)
            moved->param[i][e] *= 1 + copysign(eps, sign[e]);
    }
}

/* A norm of nearly equal values enlarges roundings without limit, so the tolerance has two parts:
 * roundings of the largest element, and what one rounding of all values changes. */
static void check_type(shoal_dtype dtype, double eps, const char *ops)
{
    static struct values values, other;
    static struct gradients got, expected, moved;
    const uint64_t seed = rig_seed(shoal_dtype_name(dtype));
    for (int32_t c = 0; c < CASES; c++) {
        const struct op_case *op = &cases[c];
        make_values(op, seed, &values);
        if (dtype == SHOAL_BF16 || dtype == SHOAL_F16)
            round_values(op, dtype, &values);
        move_values(op, seed, eps, &values, &other);
        gradients_of(op, dtype, ops, seed, &values, &got);
        gradients_of(op, SHOAL_F64, "ref", seed, &values, &expected);
        gradients_of(op, SHOAL_F64, "ref", seed, &other, &moved);
        for (int32_t i = 0; i < op->inputs; i++)
            if (!is_ids(op, i))
                compare_arrays(op->name, got.in[i], expected.in[i], moved.in[i],
                               shoal_shape_count(&op->in[i]), eps);
        for (int32_t i = 0; i < op->params; i++)
            compare_arrays(op->name, got.param[i], expected.param[i], moved.param[i],
                           shoal_shape_count(&op->param[i]), eps);
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

/* ---- failures ---- */

/* Allocation number `skip` fails, if there is one; the simulated device needs one for each launch.
 */
static bool fails_at(const struct op_case *op, int32_t skip, const struct values *values)
{
    static struct check check;
    char point[32];
    shoal_tensor *in[MAX_INPUTS];
    check_open(&check, op, SHOAL_F32, "ref", 1);
    begin(&check, values, in);
    snprintf(point, sizeof point, "alloc:%d", (int)skip);
    assert_true(shoali_fault_arm(point));
    shoal_tensor *result = record(&check, in);
    shoal_status status = shoali_tape_status(check.tape);
    if (status >= 0)
        status = backward(&check, in, result);
    if (status >= 0)
        status = shoali_stream_synchronize(check.rig.stream);
    const bool fired = shoali_fault_left() < 0;
    assert_true(shoali_fault_arm(NULL));
    if (fired != (status < 0))
        fail_msg("%s: allocation %d %s: %s", op->name, (int)skip, fired ? "failed" : "did not fail",
                 shoal_status_name(status));
    check_close(&check);
    return fired;
}

/* No launch's error is lost. */
static void test_each_launch_may_fail(void **state)
{
    static struct values values;
    const char *chosen = getenv("SHOAL_ACCELERATOR");
    char accelerator[64] = "";
    int64_t failed = 0;
    (void)state;
    snprintf(accelerator, sizeof accelerator, "%s", chosen ? chosen : "");
    assert_int_equal(setenv("SHOAL_ACCELERATOR", "sim", 1), 0);
    for (int32_t c = 0; c < CASES; c++) {
        int32_t skip = 0;
        make_values(&cases[c], 1, &values);
        while (fails_at(&cases[c], skip, &values))
            skip++;
        failed += skip;
    }
    if (chosen)
        assert_int_equal(setenv("SHOAL_ACCELERATOR", accelerator, 1), 0);
    else
        assert_int_equal(unsetenv("SHOAL_ACCELERATOR"), 0);
    printf("%lld allocations failed, one after the other\n", (long long)failed);
    assert_true(failed > 4 * CASES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_central_differences),
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_each_launch_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
