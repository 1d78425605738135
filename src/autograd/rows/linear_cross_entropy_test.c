/* linear_cross_entropy against the two ops it stands for; its targets, sinks and memory. */
#include "autograd/test_rig.h"

#include <math.h>

struct sizes {
    int64_t rows, in, vocabulary;
};

/* What one run computes, as doubles; fixed-point gradients as they are. */
struct result {
    double loss, *dx, *dweight;
    int64_t *fixed;
};

struct head {
    struct rig rig;
    struct sizes sizes;
    double smoothing;
    shoal_dtype dtype;
    struct shoali_slot *slot;
    struct shoal_tape *tape;
    struct shoal_param weight;
    double *x, *w;
    int32_t *targets;
    void *dx;
};

static void head_open(struct head *head, const struct sizes *sizes, shoal_dtype dtype,
                      uint64_t seed, int32_t ignored_below)
{
    const int64_t rows = sizes->rows, in = sizes->in, vocabulary = sizes->vocabulary;
    const struct shoali_stream stream = shoali_stream_make(seed, "targets", "", 0);
    rig_open(&head->rig, NULL);
    head->sizes = *sizes;
    head->dtype = dtype;
    rig_ok(shoali_slot_create(head->rig.device, 0, &head->slot));
    head->tape = rig_tape(&head->rig, head->slot, dtype, NULL, NULL, 0);
    rig_param(&head->rig, &head->weight, "w", dtype, shoal_shape_2(vocabulary, in));
    head->dx = rig_alloc(&head->rig, (size_t)(rows * in) * 8);
    head->x = calloc((size_t)(rows * in), sizeof *head->x);
    head->w = calloc((size_t)(vocabulary * in), sizeof *head->w);
    head->targets = calloc((size_t)rows, sizeof *head->targets);
    rig_random(seed, "x", -1, 1, head->x, rows * in);
    rig_random(seed, "w", -1, 1, head->w, vocabulary * in);
    rig_write_values(&head->rig, dtype, head->weight.data, head->w, vocabulary * in);
    for (int64_t r = 0; r < rows; r++) {
        const uint64_t target = shoali_random_below(&stream, (uint64_t)r, (uint64_t)vocabulary);
        head->targets[r] = r % 5 < ignored_below ? -1 : (int32_t)target;
    }
}

static void head_close(struct head *head)
{
    shoali_tape_destroy(head->tape);
    shoali_slot_destroy(head->slot);
    rig_close(&head->rig);
    free(head->x);
    free(head->w);
    free(head->targets);
}

static void result_free(struct result *result)
{
    free(result->dx);
    free(result->dweight);
    free(result->fixed);
}

static shoal_tensor *record(struct head *head, shoal_tensor *x, shoal_tensor *targets, bool fused)
{
    if (fused)
        return shoal_linear_cross_entropy_smoothed(head->tape, x, &head->weight, targets,
                                                   head->smoothing);
    shoal_tensor *logits =
        shoal_linear(head->tape, x, &head->weight, &(shoal_linear_args){.weight_out_in = 1});
    return shoal_cross_entropy_smoothed(head->tape, logits, targets, head->smoothing);
}

static shoal_tensor *add_x(struct head *head, bool needs_grad)
{
    const int64_t count = head->sizes.rows * head->sizes.in;
    const shoal_shape shape = shoal_shape_2(head->sizes.rows, head->sizes.in);
    float *narrow = calloc((size_t)count, sizeof *narrow);
    for (int64_t i = 0; i < count; i++)
        narrow[i] = (float)head->x[i];
    const void *host = head->dtype == SHOAL_F64 ? (const void *)head->x : (const void *)narrow;
    shoal_tensor *x = shoali_tape_add_input(head->tape, head->dtype, &shape, host, needs_grad);
    free(narrow);
    return x;
}

static shoal_tensor *head_forward(struct head *head, bool fused, bool needs_grad, shoal_tensor **x)
{
    const shoal_shape rows = shoal_shape_1(head->sizes.rows);
    rig_ok(shoali_tape_begin(
        head->tape, &(struct shoali_tape_begin){.training = true, .needs_grad = needs_grad}));
    *x = add_x(head, needs_grad);
    shoal_tensor *targets =
        shoali_tape_add_input(head->tape, SHOAL_I32, &rows, head->targets, false);
    shoal_tensor *loss = record(head, *x, targets, fused);
    rig_ok(shoali_tape_status(head->tape));
    return loss;
}

static struct result head_run(struct head *head, bool fused)
{
    const int64_t inputs = head->sizes.rows * head->sizes.in, weights = head->weight.count;
    struct result result = {.dx = calloc((size_t)inputs, sizeof *result.dx),
                            .dweight = calloc((size_t)weights, sizeof *result.dweight),
                            .fixed = calloc((size_t)weights, sizeof *result.fixed)};
    struct shoali_sink *sink = &head->weight.sink;
    const bool adds = sink->accumulate;
    shoal_tensor *x, *loss = head_forward(head, fused, true, &x);
    rig_ok(shoal_tensor_get_scalar(loss, &result.loss));
    rig_ok(shoali_tape_backward(head->tape, &(struct shoali_backward){.outputs = &loss,
                                                                      .output_count = 1,
                                                                      .seed_value = 1,
                                                                      .inputs = &x,
                                                                      .input_grads = &head->dx,
                                                                      .input_count = 1}));
    rig_read_values(&head->rig, head->dtype, head->dx, result.dx, inputs);
    sink->accumulate = adds; /* for the next run, too */
    if (sink->dtype == SHOAL_I64)
        rig_read(&head->rig, result.fixed, sink->destination, (size_t)weights * 8);
    else
        rig_read_values(&head->rig, sink->dtype, sink->destination, result.dweight, weights);
    return result;
}

/* ---- against the two ops --------------------------------------------------------------------- */

/* Of a type's storage. */
static double roundoff(shoal_dtype dtype)
{
    return dtype == SHOAL_BF16  ? 0x1p-9
           : dtype == SHOAL_F16 ? 0x1p-12
           : dtype == SHOAL_F32 ? 0x1p-24
                                : 0x1p-53;
}

static void assert_close(const struct head *head, const char *what, const double *a,
                         const double *b, int64_t count, double allowed)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(a[i] - b[i]) <= allowed))
            fail_msg("%s %lld x %lld x %lld: %s[%lld] is %.9g, of the two ops %.9g; allowed %.3g",
                     shoal_dtype_name(head->dtype), (long long)head->sizes.rows,
                     (long long)head->sizes.in, (long long)head->sizes.vocabulary, what,
                     (long long)i, a[i], b[i], allowed);
}

/* |x|, |w| <= 1.1, so a logit is at most L = 1.21 C. Sums of exponentials are off by V/16 + 16
 * roundings and a logarithm by its argument's part; 16-bit logits, rounded in one of the two ways
 * alone, by L roundoffs, which the probabilities inherit twice (the logit's and lse's), and their
 * gradients by another. A row's |dlogits| add up to at most 2/count, a column's to rows/count; what
 * underflows in fp16 is 2^-25 at most. */
static void compare(const struct head *head, const struct result *a, const struct result *b)
{
    const struct sizes *s = &head->sizes;
    const bool half = head->dtype == SHOAL_BF16 || head->dtype == SHOAL_F16;
    const double unit = head->dtype == SHOAL_F64 ? 0x1p-53 : 0x1p-24;
    const double narrow = half ? roundoff(head->dtype) : 0, largest = 1.21 * (double)s->in;
    const double lost = head->dtype == SHOAL_F16 ? 0x1p-24 : 0;
    int64_t count = 0;
    for (int64_t r = 0; r < s->rows; r++)
        count += head->targets[r] >= 0;
    const double counted = count > 0 ? (double)count : 1;
    const double sums = 2 * ((double)s->vocabulary / 16 + 16) * unit + 16 * largest * unit;
    const double logits = sums + 2 * largest * narrow;
    assert_close(head, "loss", &a->loss, &b->loss, 1, logits);
    const double share = 2 * logits + 4 * narrow;
    assert_close(head, "dx", a->dx, b->dx, s->rows * s->in,
                 1.1 * (2 / counted * (share + 2 * (double)s->vocabulary * unit + narrow) +
                        (double)s->vocabulary * lost));
    assert_close(head, "dweight", a->dweight, b->dweight, head->weight.count,
                 1.1 * ((double)s->rows / counted * (share + 2 * (double)s->rows * unit) +
                        (double)s->rows * lost));
}

static const struct sizes shapes[] = {{1, 1, 1},      {7, 5, 65},    {33, 17, 1023},
                                      {5, 16, 1024},  {9, 8, 1025},  {65, 24, 2500},
                                      {130, 3, 3072}, {3, 4, 50257}, {40, 8, 50257}};

static void test_like_the_two_ops(void **state)
{
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16, SHOAL_F64};
    (void)state;
    const uint64_t seed = rig_seed("two ops");
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            static struct head head;
            if (dtypes[d] == SHOAL_F64 && shapes[i].rows * shapes[i].vocabulary > 400000)
                continue; /* the oracle is slow */
            head_open(&head, &shapes[i], dtypes[d], seed + i, 1);
            head.smoothing = shapes[i].vocabulary > 1 && i % 2 ? 0.2 : 0;
            struct result fused = head_run(&head, true), plain = head_run(&head, false);
            compare(&head, &fused, &plain);
            result_free(&fused);
            result_free(&plain);
            head_close(&head);
        }
}

/* ---- targets --------------------------------------------------------------------------------- */

static void test_all_ignored(void **state)
{
    static struct head head;
    const struct sizes sizes = {9, 8, 1030};
    (void)state;
    head_open(&head, &sizes, SHOAL_F32, 5, 5);
    struct result result = head_run(&head, true);
    assert_true(result.loss == 0);
    for (int64_t i = 0; i < sizes.rows * sizes.in; i++)
        assert_true(result.dx[i] == 0);
    for (int64_t i = 0; i < head.weight.count; i++)
        assert_true(result.dweight[i] == 0);
    result_free(&result);
    head_close(&head);
}

/* A target beyond the vocabulary: refused when the host knows it, else a loss that is no number. */
static void test_targets_out_of_range(void **state)
{
    static struct head head;
    const struct sizes sizes = {9, 8, 1030};
    const shoal_shape rows = shoal_shape_1(sizes.rows);
    (void)state;
    head_open(&head, &sizes, SHOAL_F32, 5, 0);
    head.targets[4] = 1030;
    rig_ok(shoali_tape_begin(head.tape, &(struct shoali_tape_begin){.needs_grad = true}));
    shoal_tensor *x = add_x(&head, true);
    shoal_tensor *known = shoali_tape_add_input(head.tape, SHOAL_I32, &rows, head.targets, false);
    assert_null(record(&head, x, known, true));
    assert_non_null(strstr(shoal_error_message(), "a target is 1030 but the logits have 1030"));

    void *device = rig_alloc(&head.rig, (size_t)sizes.rows * 4);
    rig_write(&head.rig, device, head.targets, (size_t)sizes.rows * 4);
    for (int32_t fused = 0; fused < 2; fused++) {
        double loss;
        rig_ok(shoali_tape_begin(head.tape, &(struct shoali_tape_begin){.needs_grad = true}));
        x = add_x(&head, true);
        shoal_tensor *hidden =
            shoali_tape_add_device_input(head.tape, SHOAL_I32, &rows, device, false);
        rig_ok(shoal_tensor_get_scalar(record(&head, x, hidden, fused != 0), &loss));
        assert_true(isnan(loss));
    }
    head_close(&head);
}

static void test_refusals(void **state)
{
    static struct head head;
    const struct sizes sizes = {6, 8, 20};
    const shoal_shape wrong_x = shoal_shape_2(6, 7), rows = shoal_shape_1(6),
                      few = shoal_shape_1(5);
    (void)state;
    head_open(&head, &sizes, SHOAL_F32, 5, 0);
    const struct {
        const shoal_shape *x, *targets;
        shoal_dtype dtype;
        const char *sentence;
    } wrong[] = {
        {&wrong_x, &rows, SHOAL_I32, "x [6, 7] and weight w [20, 8] do not fit"},
        {NULL, &few, SHOAL_I32, "targets [5] do not fit logits [6, 20]"},
        {NULL, &rows, SHOAL_F32, "linear_cross_entropy"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rig_ok(shoali_tape_begin(head.tape, &(struct shoali_tape_begin){.needs_grad = true}));
        shoal_tensor *x = wrong[i].x
                              ? shoali_tape_add_input(head.tape, SHOAL_F32, wrong[i].x, NULL, true)
                              : add_x(&head, true);
        shoal_tensor *targets =
            shoali_tape_add_input(head.tape, wrong[i].dtype, wrong[i].targets, NULL, false);
        assert_null(record(&head, x, targets, true));
        assert_int_equal(shoali_tape_status(head.tape), SHOAL_EINVAL);
        if (!strstr(shoal_error_message(), wrong[i].sentence))
            fail_msg("\"%s\" is missing in: %s", wrong[i].sentence, shoal_error_message());
    }
    head_close(&head);
}

/* ---- modes ----------------------------------------------------------------------------------- */

static void test_evaluation_and_frozen_weight(void **state)
{
    static struct head head;
    const struct sizes sizes = {33, 8, 2100};
    double loss;
    shoal_tensor *x;
    (void)state;
    head_open(&head, &sizes, SHOAL_BF16, 6, 1);
    struct result trained = head_run(&head, true);
    rig_ok(shoal_tensor_get_scalar(head_forward(&head, true, false, &x), &loss));
    assert_memory_equal(&loss, &trained.loss, sizeof loss);
    head.weight.tags = SHOAL_PARAM_FROZEN;
    rig_ok(shoali_fill(head.rig.stream, head.weight.sink.destination, 0,
                       (size_t)head.weight.count * sizeof(float)));
    struct result frozen = head_run(&head, true);
    assert_memory_equal(frozen.dx, trained.dx, (size_t)(sizes.rows * sizes.in) * sizeof(double));
    for (int64_t i = 0; i < head.weight.count; i++)
        assert_true(frozen.dweight[i] == 0);
    result_free(&trained);
    result_free(&frozen);
    head_close(&head);
}

/* The exact sink holds the fp32 gradient, converted once; a second tape adds to either. */
static void test_sinks(void **state)
{
    static struct head head;
    const struct sizes sizes = {33, 8, 2100};
    (void)state;
    head_open(&head, &sizes, SHOAL_BF16, 7, 1);
    struct shoali_sink *sink = &head.weight.sink;
    struct result once = head_run(&head, true);
    sink->accumulate = true;
    struct result twice = head_run(&head, true);
    sink->dtype = SHOAL_I64;
    sink->unit_log2 = 44;
    sink->limit = 0x1p19;
    sink->destination = rig_alloc(&head.rig, (size_t)head.weight.count * 8);
    sink->flag = rig_alloc(&head.rig, 4);
    sink->accumulate = false;
    struct result exact = head_run(&head, true);
    sink->accumulate = true;
    struct result exact_twice = head_run(&head, true);
    for (int64_t i = 0; i < head.weight.count; i++) {
        const int64_t fixed = (int64_t)rint(once.dweight[i] * 0x1p44);
        assert_true(twice.dweight[i] == 2 * once.dweight[i]);
        assert_int_equal(exact.fixed[i], fixed);
        assert_int_equal(exact_twice.fixed[i], 2 * fixed);
    }
    result_free(&once);
    result_free(&twice);
    result_free(&exact);
    result_free(&exact_twice);
    head_close(&head);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Planned bytes of forward and backward behind an op that makes x. */
static int64_t plan_head(const struct sizes *sizes, shoal_dtype dtype, shoal_dtype sink, bool fused)
{
    struct head head = {.dtype = dtype, .sizes = *sizes};
    const shoal_shape shape = shoal_shape_2(sizes->rows, sizes->in);
    const shoal_shape rows = shoal_shape_1(sizes->rows);
    rig_ok(shoali_slot_create(NULL, 0, &head.slot));
    head.tape = rig_tape(NULL, head.slot, dtype, NULL, NULL, 0);
    head.weight = (struct shoal_param){.name = "w",
                                       .shape = shoal_shape_2(sizes->vocabulary, sizes->in),
                                       .count = sizes->vocabulary * sizes->in,
                                       .dtype = dtype,
                                       .uses = 1,
                                       .sink.dtype = sink};
    rig_ok(shoali_tape_begin(head.tape, &(struct shoali_tape_begin){.needs_grad = true}));
    shoal_tensor *in = shoali_tape_add_input(head.tape, dtype, &shape, NULL, true);
    shoal_tensor *targets = shoali_tape_add_input(head.tape, SHOAL_I32, &rows, NULL, false);
    shoal_scope_begin(head.tape, "head");
    shoal_tensor *loss = record(&head, shoal_square(head.tape, in), targets, fused);
    shoal_scope_end(head.tape, &loss, 1);
    rig_ok(shoali_tape_status(head.tape));
    rig_ok(shoali_tape_backward(
        head.tape,
        &(struct shoali_backward){.outputs = &loss, .output_count = 1, .seed_value = 1}));
    const int64_t peak = (int64_t)shoali_slot_peak_bytes(head.slot);
    shoali_tape_destroy(head.tape);
    shoali_slot_destroy(head.slot);
    return peak;
}

static void test_memory_without_logits(void **state)
{
    const struct sizes sizes = {1024, 768, 50257};
    const int64_t logits = 1024 * 50257, tile = 1024 * (1024 + 16) * 4, hidden = 1024 * 768;
    (void)state;
    for (int32_t exact = 0; exact < 2; exact++) {
        const shoal_dtype sink = exact ? SHOAL_I64 : SHOAL_F32;
        /* x twice, dx and its fp32 sum; the exact sink's rows; lse, targets, scalars */
        const int64_t others = exact * 1024 * 768 * 4 + 32768;
        const int64_t fp32 = plan_head(&sizes, SHOAL_F32, sink, true);
        const int64_t bf16 = plan_head(&sizes, SHOAL_BF16, sink, true);
        print_message("fp32 %lld, bf16 %lld bytes\n", (long long)fp32, (long long)bf16);
        assert_in_range(fp32, tile, tile + 4 * 4 * hidden + others);
        assert_in_range(bf16, tile, tile + (4 * 2 + 4) * hidden + others);
        assert_true(plan_head(&sizes, SHOAL_F32, sink, false) >= logits * 4);
        assert_true(plan_head(&sizes, SHOAL_BF16, sink, false) >= logits * 2);
    }
    /* ... and not with the vocabulary at all */
    const struct sizes wide = {1024, 768, 4 * 50257};
    assert_int_equal(plan_head(&wide, SHOAL_BF16, SHOAL_I64, true),
                     plan_head(&sizes, SHOAL_BF16, SHOAL_I64, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_the_two_ops),
        cmocka_unit_test(test_all_ignored),
        cmocka_unit_test(test_targets_out_of_range),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_evaluation_and_frozen_weight),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_memory_without_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
