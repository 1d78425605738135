/* Conformance of every built table with ref: kernels over flat arrays. */
#include "ops/conformance/conformance.h"

#define INTEGERS ((1u << SHOAL_I32) | (1u << SHOAL_I64) | (1u << SHOAL_U8))

/* ---- element-wise ---- */

/* A block of a larger tensor for `count` elements, or none. */
static struct shoali_runs pick_runs(struct trial *t, int64_t count)
{
    static const int64_t rows[] = {1, 2, 3, 7};
    const int64_t n = rows[pick(t, 4)];
    if (n == 1 || count % n != 0)
        return (struct shoali_runs){0};
    return (struct shoali_runs){2, {n, count / n}, {count / n + 13, 1}};
}

static void dropout(struct trial *t)
{
    static const float probabilities[] = {0.0f, 0.1f, 0.75f};
    const float probability = probabilities[pick(t, 3)];
    const bool residual = pick(t, 2) != 0, far = pick(t, 2) != 0;
    const int32_t accumulate = (int32_t)pick(t, 2);
    const int64_t count = pick_count(t);
    const struct shoali_dropout_args args = {
        .x = floats(t, count, t->dtype),
        .residual = residual ? floats(t, count, t->dtype) : NULL,
        .y = floats(t, count, t->dtype),
        .count = count,
        /* The second crosses the border of the counter's lower word. */
        .first_element = far ? (INT64_C(7) << 32) - 21 : 1000,
        .runs = pick_runs(t, count),
        .probability = probability,
        .accumulate = accumulate,
        .random = next_stream(t),
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.y, count, t->dtype);
}

/* Values of every exponent and sign, NaN, infinities, denormals. */
static void *any_floats(struct trial *t, int64_t count)
{
    const struct shoali_stream random = next_stream(t);
    void *array = block(t, count, t->dtype);
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = shoali_random_u32(&random, (uint64_t)i);
        if (t->dtype == SHOAL_F32)
            ((uint32_t *)array)[i] = bits;
        else
            ((uint16_t *)array)[i] = (uint16_t)bits;
    }
    return array;
}

static void unary(struct trial *t)
{
    const enum shoali_unary kind = (enum shoali_unary)pick(t, SHOALI_ADD_SCALAR + 1);
    const int32_t backward = (int32_t)pick(t, 2), accumulate = (int32_t)pick(t, 2);
    const bool any = pick(t, 2) != 0;
    const int64_t count = any ? 3001 : pick_count(t);
    const struct shoali_unary_args args = {
        .x = any ? any_floats(t, count) : floats_between(t, count, t->dtype, -6, 6),
        .dy = backward ? floats(t, count, t->dtype) : NULL,
        .y = floats(t, count, t->dtype),
        .count = count,
        .alpha = 0.7,
        .kind = kind,
        .backward = backward,
        .accumulate = accumulate,
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.y, count, t->dtype);
}

static void glu(struct trial *t)
{
    static const enum shoali_unary kinds[] = {SHOALI_SILU, SHOALI_GELU_ERF,     SHOALI_GELU_TANH,
                                              SHOALI_RELU, SHOALI_RELU_SQUARED, SHOALI_SIGMOID};
    const enum shoali_unary kind = kinds[pick(t, 6)];
    const int32_t backward = (int32_t)pick(t, 2), accumulate = (int32_t)pick(t, 2);
    const int64_t rows = pick_rows(t) - 1, columns = pick_size(t);
    const struct shoali_glu_args args = {
        .x = floats_between(t, 2 * rows * columns, t->dtype, -6, 6),
        .dy = backward ? floats(t, rows * columns, t->dtype) : NULL,
        .y = floats(t, rows * columns * (1 + backward), t->dtype),
        .rows = rows,
        .columns = columns,
        .kind = kind,
        .backward = backward,
        .accumulate = accumulate,
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.y, rows * columns * (1 + backward), t->dtype);
}

static void binary(struct trial *t)
{
    const enum shoali_binary kind = (enum shoali_binary)pick(t, 4);
    const int32_t accumulate = (int32_t)pick(t, 2);
    const bool in_place = pick(t, 2) != 0;
    const int64_t repeats = (int64_t[]){1, 2, 5}[pick(t, 3)];
    const int64_t b_count = repeats == 5 ? pick_size(t) : pick_count(t);
    const int64_t count = b_count * repeats;
    void *y = floats(t, count, t->dtype);
    const struct shoali_binary_args args = {
        .a = in_place ? y : floats(t, count, t->dtype),
        .b = floats(t, b_count, t->dtype),
        .y = y,
        .count = count,
        .b_count = b_count,
        .kind = kind,
        .accumulate = accumulate,
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, y, count, t->dtype);
}

static void axpy(struct trial *t)
{
    const bool with_x = pick(t, 2) != 0;
    const int32_t accumulate = (int32_t)pick(t, 2);
    const int64_t count = pick_count(t);
    const struct shoali_axpy_args args = {
        .x = with_x ? floats(t, count, t->dtype) : NULL,
        .y = floats(t, count, t->dtype),
        .count = count,
        .a = 1.0 / 3,
        .accumulate = accumulate,
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.y, count, t->dtype);
}

static void reduce(struct trial *t)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1},   {3, 130, 1},   {5, 15, 1},   {2, 17, 33},  {1, 65, 130}, {7, 31, 16},
        {3, 0, 5},   {4, 0, 1},     {1, 9, 7},    {2, 3, 1},    {1, 1000, 1}, {33, 16, 1},
        {2, 64, 15}, {1, 300, 700}, {900, 65, 1}, {70, 33, 40}, {1, 700, 96}};
    const int64_t *shape = shapes[pick(t, (int64_t)SHOALI_COUNT_OF(shapes))];
    const int32_t accumulate = (int32_t)pick(t, 2);
    const shoal_dtype dtype_out = pick(t, 2) ? SHOAL_F32 : t->dtype;
    const struct shoali_reduce_args args = {
        .x = floats(t, shape[0] * shape[1] * shape[2], t->dtype),
        .y = floats(t, shape[0] * shape[2], dtype_out),
        .outer = shape[0],
        .reduced = shape[1],
        .inner = shape[2],
        .factor = 0.3,
        .accumulate = accumulate,
        .row_order = (int32_t)pick(t, 2),
        .dtype = t->dtype,
        .dtype_out = dtype_out,
    };
    call(t, &args);
    give(t, args.y, shape[0] * shape[2], dtype_out);
}

static void broadcast(struct trial *t)
{
    const int64_t outer = 1 + pick(t, 3), reduced = pick_rows(t), inner = pick_size(t);
    const int32_t accumulate = (int32_t)pick(t, 2);
    const struct shoali_broadcast_args args = {
        .x = floats(t, outer * inner, t->dtype),
        .y = floats(t, outer * reduced * inner, t->dtype),
        .outer = outer,
        .reduced = reduced,
        .inner = inner,
        .factor = 0.3,
        .accumulate = accumulate,
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.y, outer * reduced * inner, t->dtype);
}

/* ---- moving ---- */

static void copy_strided(struct trial *t)
{
    static const int64_t dims[][3] = {{1, 1, 1},   {2, 3, 17}, {5, 16, 4},
                                      {3, 33, 65}, {7, 1, 31}, {30, 33, 67}};
    const int64_t *dim = dims[pick(t, 6)];
    const bool transposed = pick(t, 2) != 0;
    const bool is_float = (FLOATS32 >> t->dtype & 1u) != 0;
    const int32_t accumulate = pick(t, 2) && is_float;
    const int64_t pad = pick(t, 2) * 3, row = dim[2] + pad, count = dim[0] * dim[1] * row;
    const int64_t dense = dim[0] * dim[1] * dim[2];
    const size_t bytes = shoal_dtype_bytes(t->dtype);
    struct shoali_copy_strided_args args = {
        .ndim = 3,
        .dim = {dim[0], dim[1], dim[2]},
        .x_stride = {dim[1] * row, row, 1},
        /* To [outer, inner, middle] or the same order. */
        .y_stride = {dim[1] * dim[2], transposed ? 1 : dim[2], transposed ? dim[1] : 1},
        .accumulate = accumulate,
        .dtype = t->dtype,
    };
    if (is_float) {
        args.x = floats(t, count, t->dtype);
        args.y = floats(t, dense, t->dtype);
    } else {
        args.x = ints(t, count * 2, INT32_MIN, INT32_MAX); /* enough bytes for every type */
        args.y = block(t, dense, t->dtype);
    }
    assert_true(bytes <= 8);
    call(t, &args);
    give(t, args.y, dense, t->dtype);
}

static void convert(struct trial *t)
{
    static const shoal_dtype outs[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16};
    const shoal_dtype out = outs[pick(t, 3)];
    const bool in_place = pick(t, 2) && shoal_dtype_bytes(out) == shoal_dtype_bytes(t->dtype);
    const bool any = pick(t, 2) != 0;
    const int64_t count = any ? 5003 : pick_count(t);
    void *x = any ? any_floats(t, count) : floats(t, count, t->dtype);
    const struct shoali_convert_args args = {
        .x = x,
        .y = in_place ? x : block(t, count, out),
        .count = count,
        .dtype = t->dtype,
        .dtype_out = out,
    };
    call(t, &args);
    give(t, args.y, count, out);
}

static void set(struct trial *t)
{
    const double value = (double[]){0, 1, 2.5, 100}[pick(t, 4)];
    const int64_t count = pick_count(t);
    const struct shoali_set_args args = {block(t, count, t->dtype), count, value, t->dtype};
    call(t, &args);
    give(t, args.y, count, t->dtype);
}

static void random_fill(struct trial *t)
{
    const int32_t uniform = (int32_t)pick(t, 2);
    const int64_t first = pick(t, 2) * ((INT64_C(3) << 32) - 5), count = pick_count(t);
    const struct shoali_random_fill_args args = {
        .y = block(t, count, t->dtype),
        .count = count,
        .first_element = first,
        .runs = pick_runs(t, count),
        .a = pick(t, 2) ? 0.1 : 0,
        .b = 0.7,
        .uniform = uniform,
        .random = next_stream(t),
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.y, count, t->dtype);
}

/* ---- exact reduction ---- */

static uint32_t *flag_of(struct trial *t)
{
    uint32_t *flag = block(t, 1, SHOAL_I32);
    *flag = 0;
    return flag;
}

static void to_fixed(struct trial *t)
{
    const int64_t bad = pick(t, 4), count = pick_count(t);
    const int32_t accumulate = (int32_t)pick(t, 2);
    struct shoali_to_fixed_args args = {
        .x = wide_floats(t, count, 14, bad),
        .fixed = block(t, count, SHOAL_I64),
        .flag = flag_of(t),
        .count = count,
        .unit_log2 = 44,
        .accumulate = accumulate,
        .limit = 0x1p15,
    };
    call(t, &args);
    give(t, args.fixed, count, SHOAL_I64);
    give(t, args.flag, 1, SHOAL_I32);
}

static void from_fixed(struct trial *t)
{
    const int64_t count = pick_count(t);
    const double divisor = (double[]){1, 8, 3}[pick(t, 3)];
    const struct shoali_stream random = next_stream(t);
    int64_t *fixed = block(t, count, SHOAL_I64);
    for (int64_t i = 0; i < count; i++)
        fixed[i] =
            (int64_t)(shoali_random_below(&random, (uint64_t)i, UINT64_C(1) << 63) * 2) >> (i % 60);
    const struct shoali_from_fixed_args args = {fixed, block(t, count, SHOAL_F32), count, 44,
                                                divisor};
    call(t, &args);
    give(t, args.y, count, SHOAL_F32);
}

static void norm2(struct trial *t)
{
    const int64_t bad = pick(t, 4);
    const int32_t high =
        (int32_t[]){59, 7, -20}[pick(t, 3)]; /* of all sizes, and of small ones alone */
    const int64_t count = pick_count(t);
    uint64_t *limbs = block(t, 3, SHOAL_I64);
    limbs[0] = UINT64_MAX; /* so that the first addition carries */
    limbs[1] = UINT64_MAX;
    limbs[2] = 3;
    const struct shoali_norm2_args args = {wide_floats(t, count, high, bad), limbs, flag_of(t),
                                           count};
    call(t, &args);
    give(t, limbs, 3, SHOAL_I64);
    give(t, args.flag, 1, SHOAL_I32);
}

static void clip(struct trial *t)
{
    const double max_norm = (double[]){0, 1e-3, 1e30}[pick(t, 3)];
    const double loss_scale = (double[]){1, 65536, 3}[pick(t, 3)];
    uint64_t *limbs = block(t, 3, SHOAL_I64);
    uint32_t *flag = flag_of(t);
    *flag = (uint32_t)pick(t, 2);
    limbs[0] = UINT64_C(0x123456789abcdef1);
    limbs[1] = UINT64_C(0xfedcba9876543217) * (uint64_t)pick(t, 2);
    limbs[2] = (uint64_t)pick(t, 2) * 77;
    const struct shoali_clip_args args = {limbs, flag, block(t, 3, SHOAL_F32), loss_scale,
                                          max_norm};
    call(t, &args);
    give(t, args.out, 3, SHOAL_F32);
}

/* ---- collectives ---- */

static void reduce_sources(struct trial *t)
{
    static const int32_t counts[] = {1, 2, 3, 4, 7, 64};
    const bool is_float = (FLOATS32 >> t->dtype & 1u) != 0;
    const enum shoali_reduce_op op = (enum shoali_reduce_op)pick(t, SHOALI_SUM_TREE + 1);
    struct shoali_reduce_sources_args args = {.dtype = t->dtype};
    args.op = op == (is_float ? SHOALI_BOR : SHOALI_AVG) ? SHOALI_SUM : op;
    args.sources = counts[pick(t, 6)];
    if (args.op == SHOALI_SUM_TREE) /* of a power of two */
        args.sources = args.sources == 3 ? 8 : args.sources == 7 ? 16 : args.sources;
    args.destinations = 1 + (int32_t)pick(t, 3);
    const bool in_place = pick(t, 2) != 0;
    args.count = args.sources > 3 ? pick_size(t) : pick_count(t);
    for (int32_t i = 0; i < args.sources; i++)
        args.x[i] = is_float ? floats(t, args.count, t->dtype)
                             : (void *)ints(t, args.count * 2 + 2, INT32_MIN, INT32_MAX);
    for (int32_t i = 0; i < args.destinations; i++) {
        args.y[i] = block(t, args.count, t->dtype);
        if (i == 0 && in_place)
            args.y[i] = (void *)(uintptr_t)args.x[args.sources / 2];
        give(t, args.y[i], args.count, t->dtype);
    }
    call(t, &args);
}

static void call_ref(const struct shoali_kernel *kernel, const void *args)
{
    const struct shoali_kernel_context context = {0};
    shoali_ops_entry(&shoali_ops_ref, kernel)->fn(args, &context);
}

/* Blocks of zeros, of one huge element, of denormals, and one that is not finite. */
static void *quantized_input(struct trial *t, int64_t count, int64_t bad)
{
    float *x = wide_floats(t, count, 14, 0);
    void *as = block(t, count, t->dtype);
    for (int64_t i = 256; i < 512 && i < count; i++)
        x[i] = 0;
    for (int64_t i = 512; i < 768 && i < count; i++)
        x[i] *= 0x1p-140f;
    if (bad)
        x[count / 2] = bad == 1 ? NAN : INFINITY;
    const struct shoali_convert_args convert = {x, as, count, SHOAL_F32, t->dtype};
    call_ref(&shoali_kernel_convert, &convert);
    return as;
}

static void quantize(struct trial *t)
{
    const int32_t bits = pick(t, 2) ? 8 : 4;
    const int64_t bad = pick(t, 3), count = pick_count(t);
    const int64_t bytes = shoali_quantized_bytes(count, bits);
    const struct shoali_quantize_args args = {quantized_input(t, count, bad),
                                              block(t, bytes, SHOAL_U8), count, bits, t->dtype};
    memset(args.message, 0, (size_t)bytes);
    call(t, &args);
    give(t, args.message, bytes, SHOAL_U8);
}

static void dequantize(struct trial *t)
{
    const int32_t bits = pick(t, 2) ? 8 : 4, accumulate = (int32_t)pick(t, 2);
    const int64_t bad = pick(t, 2), count = pick_count(t);
    void *message = block(t, shoali_quantized_bytes(count, bits), SHOAL_U8);
    const struct shoali_quantize_args to = {quantized_input(t, count, bad), message, count, bits,
                                            t->dtype};
    call_ref(&shoali_kernel_quantize, &to);
    const struct shoali_dequantize_args args = {
        message, floats(t, count, t->dtype), count, bits, accumulate, t->dtype};
    call(t, &args);
    give(t, args.y, count, t->dtype);
}

const struct conformance_case flat_cases[] = {
    CONFORMANCE_CASE(dropout, dropout, 960, FLOATS32),
    CONFORMANCE_CASE(unary, unary, 1120, FLOATS32),
    CONFORMANCE_CASE(glu, glu, 2400, FLOATS32),
    CONFORMANCE_CASE(binary, binary, 480, FLOATS32),
    CONFORMANCE_CASE(axpy, axpy, 40, FLOATS32),
    CONFORMANCE_CASE(reduce, reduce, 64, FLOATS32),
    CONFORMANCE_CASE(broadcast, broadcast, 600, FLOATS32),
    CONFORMANCE_CASE(copy_strided, copy_strided, 48, FLOATS32 | INTEGERS),
    CONFORMANCE_CASE(convert, convert, 120, FLOATS32),
    CONFORMANCE_CASE(set, set, 40, FLOATS32 | INTEGERS),
    CONFORMANCE_CASE(random_fill, random_fill, 160, FLOATS32),
    CONFORMANCE_CASE(to_fixed, to_fixed, 80, ONLY_F32),
    CONFORMANCE_CASE(from_fixed, from_fixed, 30, ONLY_F32),
    CONFORMANCE_CASE(norm2, norm2, 120, ONLY_F32),
    CONFORMANCE_CASE(clip, clip, 72, ONLY_F32),
    CONFORMANCE_CASE(quantize, quantize, 60, FLOATS32),
    CONFORMANCE_CASE(dequantize, dequantize, 80, FLOATS32),
    CONFORMANCE_CASE(reduce_sources, reduce_sources, 2160, FLOATS32 | INTEGERS),
};
const size_t flat_case_count = SHOALI_COUNT_OF(flat_cases);
