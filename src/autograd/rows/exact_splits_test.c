/* Sums in declared splits against plain loops in the order that their definition names. */
#include "autograd/rows/exact_splits.h"
#include "autograd/test_rig.h"

#include <math.h>

enum { ROWS = 5, MOST = 64, PARTS = 3 };

struct bench {
    struct rig rig;
    struct shoali_slot *slot;
    struct shoal_tape *tape;
    shoal_dtype dtype;
    struct shoal_param weight, bias;
};

static void bench_open(struct bench *bench, shoal_dtype dtype, int32_t splits,
                       int32_t sequence_splits)
{
    memset(bench, 0, sizeof *bench);
    /* Products of pairs have an order of their own: 16 bits by the plain kernels. */
    rig_open(&bench->rig, dtype == SHOAL_F32 ? NULL : "ref");
    bench->dtype = dtype;
    rig_ok(shoali_slot_create(bench->rig.device, 0, &bench->slot));
    const struct shoali_tape_args args = {
        .exec = bench->rig.exec,
        .slot = bench->slot,
        .dtype = dtype,
        .seed = 1,
        .tensor_parallel = {.exact = true, .splits = splits, .sequence_splits = sequence_splits}};
    rig_ok(shoali_tape_create(&args, &bench->tape));
}

static void bench_close(struct bench *bench)
{
    shoali_tape_destroy(bench->tape);
    shoali_slot_destroy(bench->slot);
    rig_close(&bench->rig);
}

static float narrow(shoal_dtype dtype, float value)
{
    return dtype == SHOAL_F32 ? value : shoali_bf16_to_f32(shoali_f32_to_bf16(value));
}

/* Values of the type, as floats. */
static void fill(struct bench *bench, uint64_t seed, const char *what, float *values, int64_t count)
{
    double random[ROWS * MOST * MOST];
    rig_random(seed, what, -1, 1, random, count);
    for (int64_t i = 0; i < count; i++)
        values[i] = narrow(bench->dtype, (float)random[i]);
}

static void give(struct bench *bench, void *to, const float *values, int64_t count)
{
    double wide[ROWS * MOST * MOST];
    for (int64_t i = 0; i < count; i++)
        wide[i] = (double)values[i];
    rig_write_values(&bench->rig, bench->dtype, to, wide, count);
}

/* ---- products -------------------------------------------------------------------------------- */

/* A dim of parts, each of units, in splits. */
struct dim {
    int32_t splits, parts;
    int64_t units[PARTS], unit;
};

static int64_t dim_count(const struct dim *dim)
{
    int64_t count = 0;
    for (int32_t p = 0; p < dim->parts; p++)
        count += dim->units[p] * dim->unit;
    return count;
}

static struct shoali_columns columns_of(const struct dim *dim)
{
    struct shoali_columns columns = {.parts = dim->parts, .splits = dim->splits, .sharers = 1};
    for (int32_t p = 0; p < dim->parts; p++) {
        columns.whole[p] = columns.count[p] = dim->units[p] * dim->unit;
        columns.unit[p] = dim->unit;
    }
    return columns;
}

/* Of split s of n the first mod-many have a unit more. */
static int64_t split_begin(int64_t units, int32_t splits, int32_t s)
{
    const int64_t more = units % splits;
    return units / splits * s + (s < more ? s : more);
}

/* a[k * a_step] b[k * b_step] over the dim: a chain of fma for each part of a split, parts and then
 * splits added as the definition says. */
static float sum_of(const struct dim *dim, const float *a, int64_t a_step, const float *b,
                    int64_t b_step)
{
    float share[MOST];
    for (int32_t s = 0; s < dim->splits; s++) {
        int64_t before = 0;
        for (int32_t p = 0; p < dim->parts; p++) {
            float dot = 0;
            const int64_t begin = split_begin(dim->units[p], dim->splits, s) * dim->unit;
            const int64_t end = split_begin(dim->units[p], dim->splits, s + 1) * dim->unit;
            for (int64_t k = before + begin; k < before + end; k++)
                dot = fmaf(a[k * a_step], b[k * b_step], dot);
            share[s] = p == 0 ? dot : share[s] + dot;
            before += dim->units[p] * dim->unit;
        }
    }
    for (int32_t stride = 1; stride < dim->splits; stride *= 2)
        for (int32_t s = 0; s + stride < dim->splits; s += 2 * stride)
            share[s] += share[s + stride];
    return share[0];
}

static void expect(const struct bench *bench, const void *got, const float *expected, int64_t count,
                   const char *what)
{
    double values[ROWS * MOST * MOST];
    struct bench *open = (struct bench *)(uintptr_t)bench;
    rig_read_values(&open->rig, bench->dtype, got, values, count);
    for (int64_t i = 0; i < count; i++)
        if (values[i] != (double)expected[i])
            fail_msg("%s: element %lld is %.9g, expected %.9g", what, (long long)i, values[i],
                     (double)expected[i]);
}

static const struct dim dims[] = {
    {2, 1, {16}, 1},      {4, 1, {7}, 3},       {8, 1, {9}, 2},   {2, 3, {4, 2, 2}, 3},
    {4, 3, {5, 5, 5}, 2}, {8, 3, {8, 8, 8}, 2}, {16, 1, {48}, 1}, {2, 2, {9, 9}, 1},
};
enum { DIMS = sizeof dims / sizeof dims[0] };

/* y = round(relu(sum + bias) + residual), summed over the weight's inputs. */
static void row(shoal_dtype dtype, const struct dim *dim, bool out_in, uint64_t seed)
{
    enum { OUT = 17 };
    struct bench bench;
    const int64_t in = dim_count(dim);
    float x[ROWS * MOST], w[MOST * OUT], b[OUT], residual[ROWS * OUT], y[ROWS * OUT];
    const shoal_shape x_shape = shoal_shape_2(ROWS, in), y_shape = shoal_shape_2(ROWS, OUT);
    bench_open(&bench, dtype, dim->splits, 1);
    fill(&bench, seed, "x", x, ROWS * in);
    fill(&bench, seed, "w", w, in * OUT);
    fill(&bench, seed, "b", b, OUT);
    fill(&bench, seed, "r", residual, ROWS * OUT);
    rig_param(&bench.rig, &bench.weight, "w", dtype,
              out_in ? shoal_shape_2(OUT, in) : shoal_shape_2(in, OUT));
    rig_param(&bench.rig, &bench.bias, "b", dtype, shoal_shape_1(OUT));
    bench.weight.tensor_dim = out_in ? 1 : 0;
    bench.weight.columns = columns_of(dim);
    give(&bench, bench.weight.data, w, in * OUT);
    give(&bench, bench.bias.data, b, OUT);
    rig_ok(shoali_tape_begin(bench.tape, &(struct shoali_tape_begin){.training = true}));
    shoal_tensor *added = shoali_tape_add_input(bench.tape, dtype, &y_shape, residual, false);
    shoal_tensor *out = shoal_linear(
        bench.tape, shoali_tape_add_input(bench.tape, dtype, &x_shape, x, false), &bench.weight,
        &(shoal_linear_args){.bias = &bench.bias,
                             .residual = added,
                             .activation = SHOAL_ACTIVATION_RELU,
                             .weight_out_in = out_in});
    rig_ok(shoali_tape_status(bench.tape));
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t n = 0; n < OUT; n++) {
            float v = sum_of(dim, x + r * in, 1, out_in ? w + n * in : w + n, out_in ? 1 : OUT);
            v += b[n];
            v = v > 0 ? v : 0;
            y[r * OUT + n] = narrow(dtype, residual[r * OUT + n] + v);
        }
    expect(&bench, out->data, y, ROWS * OUT, "a row weight's result");
    bench_close(&bench);
}

/* dx = round(sum), summed over the weight's outputs. */
static void column(shoal_dtype dtype, const struct dim *dim, bool out_in, uint64_t seed)
{
    enum { IN = 19 };
    struct bench bench;
    const int64_t out = dim_count(dim);
    float x[ROWS * IN], w[MOST * IN], dy[ROWS * MOST], dx[ROWS * IN];
    const shoal_shape x_shape = shoal_shape_2(ROWS, IN);
    bench_open(&bench, dtype, dim->splits, 1);
    fill(&bench, seed, "x", x, ROWS * IN);
    fill(&bench, seed, "w", w, out * IN);
    fill(&bench, seed, "dy", dy, ROWS * out);
    rig_param(&bench.rig, &bench.weight, "w", dtype,
              out_in ? shoal_shape_2(out, IN) : shoal_shape_2(IN, out));
    bench.weight.tensor_dim = out_in ? 0 : 1;
    bench.weight.columns = columns_of(dim);
    give(&bench, bench.weight.data, w, out * IN);
    void *seeds = rig_alloc(&bench.rig, ROWS * MOST * 4),
         *to = rig_alloc(&bench.rig, ROWS * IN * 4);
    give(&bench, seeds, dy, ROWS * out);
    rig_ok(shoali_tape_begin(bench.tape,
                             &(struct shoali_tape_begin){.training = true, .needs_grad = true}));
    shoal_tensor *input = shoali_tape_add_input(bench.tape, dtype, &x_shape, x, true);
    shoal_tensor *y = shoal_linear(bench.tape, input, &bench.weight,
                                   &(shoal_linear_args){.weight_out_in = out_in});
    rig_ok(shoali_tape_status(bench.tape));
    rig_ok(shoali_tape_backward(bench.tape,
                                &(struct shoali_backward){.outputs = &y,
                                                          .seeds = (const void *const *)&seeds,
                                                          .output_count = 1,
                                                          .inputs = &input,
                                                          .input_grads = &to,
                                                          .input_count = 1}));
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t n = 0; n < IN; n++)
            dx[r * IN + n] = narrow(
                dtype, sum_of(dim, dy + r * out, 1, out_in ? w + n : w + n * out, out_in ? IN : 1));
    expect(&bench, to, dx, ROWS * IN, "a column weight's input gradient");
    bench_close(&bench);
}

static void test_products(void **state)
{
    (void)state;
    const uint64_t seed = rig_seed("products");
    for (int d = 0; d < DIMS; d++)
        for (int variant = 0; variant < 4; variant++) {
            const shoal_dtype dtype = variant & 1 ? SHOAL_BF16 : SHOAL_F32;
            if (dims[d].parts == 1)
                row(dtype, &dims[d], variant & 2, seed + (uint64_t)d);
            column(dtype, &dims[d], variant & 2, seed + (uint64_t)d);
        }
}

/* A head of fewer classes than splits: as a linear op, with the same sentence. */
static void test_too_many_splits(void **state)
{
    enum { CLASSES = 5, IN = 4 };
    const struct dim dim = {8, 1, {CLASSES}, 1};
    const shoal_shape shape = shoal_shape_2(ROWS, IN), rows = shoal_shape_1(ROWS);
    static const float values[ROWS * IN];
    static const int32_t classes[ROWS];
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        struct bench bench;
        bench_open(&bench, SHOAL_F32, dim.splits, 1);
        rig_param(&bench.rig, &bench.weight, "head", SHOAL_F32, shoal_shape_2(CLASSES, IN));
        bench.weight.columns = columns_of(&dim);
        rig_ok(shoali_tape_begin(bench.tape, &(struct shoali_tape_begin){.needs_grad = true}));
        shoal_tensor *x = shoali_tape_add_input(bench.tape, SHOAL_F32, &shape, values, true);
        shoal_tensor *targets = shoali_tape_add_input(bench.tape, SHOAL_I32, &rows, classes, false);
        if (fused)
            (void)shoal_linear_cross_entropy(bench.tape, x, &bench.weight, targets);
        else
            (void)shoal_linear(bench.tape, x, &bench.weight,
                               &(shoal_linear_args){.weight_out_in = true});
        assert_int_equal(shoali_tape_status(bench.tape), SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_message(),
                               "parameter head: exact_splits.tensor is 8, but the parameter has "
                               "only 5 units"));
        bench_close(&bench);
    }
}

/* ---- contributions --------------------------------------------------------------------------- */

/* Each block of the sequence is a contribution, rounded to the unit by itself. */
static void test_blocks(void **state)
{
    enum { SAMPLES = 3, LENGTH = 8, COLUMNS = 5, BLOCKS = 4, UNIT = 24 };
    static float x[SAMPLES * LENGTH * COLUMNS], dy[SAMPLES * LENGTH * COLUMNS];
    const int64_t count = SAMPLES * LENGTH * COLUMNS, each = LENGTH / BLOCKS;
    const shoal_shape shape = shoal_shape_3(SAMPLES, LENGTH, COLUMNS);
    int64_t got[COLUMNS];
    struct bench bench;
    struct shoal_param gamma;
    (void)state;
    const uint64_t seed = rig_seed("blocks");
    bench_open(&bench, SHOAL_F32, 1, BLOCKS);
    fill(&bench, seed, "x", x, count);
    fill(&bench, seed, "dy", dy, count);
    rig_param(&bench.rig, &gamma, "gamma", SHOAL_F32, shoal_shape_1(COLUMNS));
    rig_param(&bench.rig, &bench.bias, "beta", SHOAL_F32, shoal_shape_1(COLUMNS));
    struct shoal_param *params[] = {&gamma, &bench.bias};
    for (int p = 0; p < 2; p++)
        params[p]->sink = (struct shoali_sink){.destination = rig_alloc(&bench.rig, sizeof got),
                                               .dtype = SHOAL_I64,
                                               .unit_log2 = UNIT,
                                               .limit = 0x1p30,
                                               .flag = rig_alloc(&bench.rig, sizeof(uint32_t))};
    void *seeds = rig_alloc(&bench.rig, sizeof dy);
    give(&bench, seeds, dy, count);
    rig_ok(shoali_tape_begin(bench.tape,
                             &(struct shoali_tape_begin){.training = true, .needs_grad = true}));
    shoal_tensor *y =
        shoal_layer_norm(bench.tape, shoali_tape_add_input(bench.tape, SHOAL_F32, &shape, x, true),
                         &gamma, &bench.bias, 1e-5);
    rig_ok(shoali_tape_backward(
        bench.tape, &(struct shoali_backward){
                        .outputs = &y, .seeds = (const void *const *)&seeds, .output_count = 1}));
    rig_read(&bench.rig, got, bench.bias.sink.destination, sizeof got);
    for (int64_t c = 0; c < COLUMNS; c++) {
        int64_t expected = 0;
        for (int64_t b = 0; b < BLOCKS; b++) {
            float sum = 0;
            for (int64_t s = 0; s < SAMPLES; s++) {
                float part = 0;
                for (int64_t t = b * each; t < (b + 1) * each; t++)
                    part += dy[(s * LENGTH + t) * COLUMNS + c];
                sum = s == 0 ? part : sum + part;
            }
            expected += (int64_t)rint(ldexp((double)sum, UNIT));
        }
        assert_int_equal(got[c], expected);
    }
    bench_close(&bench);
}

enum { GRAIN = 8, PRODUCT_UNIT = 1 }; /* parts of a number; a contribution is rounded to halves */

/* Multiples of 1 / GRAIN, so that every order of a sum gives the same float and only what is
 * rounded by itself shows. */
static void fill_grains(struct bench *bench, uint64_t seed, const char *what, float *values,
                        int64_t count)
{
    fill(bench, seed, what, values, count);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)rint((double)values[i] * GRAIN) / GRAIN;
}

/* A weight's gradient, which a product may leave as integers: of so many samples and blocks. */
static void product_blocks(shoal_dtype dtype, int64_t samples, int32_t blocks, uint64_t seed)
{
    enum { LENGTH = 8, IN = 3, OUT = 21, MOST_SAMPLES = 3 };
    float x[MOST_SAMPLES * LENGTH * IN], dy[MOST_SAMPLES * LENGTH * OUT];
    const int64_t rows = samples * LENGTH, each = LENGTH / blocks;
    const shoal_shape shape = shoal_shape_3(samples, LENGTH, IN);
    int64_t got[IN * OUT];
    struct bench bench;
    bench_open(&bench, dtype, 1, blocks);
    fill_grains(&bench, seed, "x", x, rows * IN);
    fill_grains(&bench, seed, "dy", dy, rows * OUT);
    rig_param(&bench.rig, &bench.weight, "w", dtype, shoal_shape_2(IN, OUT));
    bench.weight.sink = (struct shoali_sink){.destination = rig_alloc(&bench.rig, sizeof got),
                                             .dtype = SHOAL_I64,
                                             .unit_log2 = PRODUCT_UNIT,
                                             .limit = 0x1p30,
                                             .flag = rig_alloc(&bench.rig, sizeof(uint32_t))};
    void *seeds = rig_alloc(&bench.rig, sizeof dy);
    give(&bench, seeds, dy, rows * OUT);
    rig_ok(shoali_tape_begin(bench.tape,
                             &(struct shoali_tape_begin){.training = true, .needs_grad = true}));
    shoal_tensor *y =
        shoal_linear(bench.tape, shoali_tape_add_input(bench.tape, dtype, &shape, x, false),
                     &bench.weight, &(shoal_linear_args){.weight_out_in = false});
    rig_ok(shoali_tape_backward(
        bench.tape, &(struct shoali_backward){
                        .outputs = &y, .seeds = (const void *const *)&seeds, .output_count = 1}));
    rig_read(&bench.rig, got, bench.weight.sink.destination, sizeof got);
    for (int64_t i = 0; i < IN * OUT; i++) {
        int64_t expected = 0;
        for (int64_t b = 0; b < blocks; b++) {
            double sum = 0;
            for (int64_t s = 0; s < samples; s++)
                for (int64_t t = s * LENGTH + b * each; t < s * LENGTH + (b + 1) * each; t++)
                    sum += (double)x[t * IN + i / OUT] * (double)dy[t * OUT + i % OUT];
            expected += (int64_t)rint(ldexp(sum, PRODUCT_UNIT));
        }
        if (got[i] != expected)
            fail_msg("%s, %d samples, %d blocks, seed %llu: element %d is %lld halves, not %lld",
                     shoal_dtype_name(dtype), (int)samples, (int)blocks, (unsigned long long)seed,
                     (int)i, (long long)got[i], (long long)expected);
    }
    bench_close(&bench);
}

static void test_product_blocks(void **state)
{
    (void)state;
    const uint64_t seed = rig_seed("product blocks");
    for (int variant = 0; variant < 2; variant++)
        for (int64_t samples = 1; samples <= 3; samples += 2)
            for (int32_t blocks = 1; blocks <= 4; blocks *= 2)
                product_blocks(variant ? SHOAL_BF16 : SHOAL_F32, samples, blocks, seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_product_blocks),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_too_many_splits),
        cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests_name("splits", tests, NULL, NULL);
}
