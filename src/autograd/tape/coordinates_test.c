/* Coordinates: a block draws what the whole draws there, however it was cut and moved. */
#include "autograd/test_rig.h"
#include "tensor/test_block.h"

enum { MOST = 1 << 12 };

struct fixture {
    struct rig rig;
    struct shoali_slot *slot;
    struct shoal_tape *tape;
};

static void open_with(struct fixture *f, const char *ops)
{
    rig_open(&f->rig, ops);
    rig_ok(shoali_slot_create(f->rig.device, 0, &f->slot));
    f->tape = rig_tape(&f->rig, f->slot, SHOAL_F32, NULL, NULL, 0);
}

static void close_all(struct fixture *f)
{
    shoali_tape_destroy(f->tape);
    shoali_slot_destroy(f->slot);
    rig_close(&f->rig);
}

static void begin(struct fixture *f, int64_t first_sample)
{
    rig_ok(shoali_tape_begin(f->tape, &(struct shoali_tape_begin){.step = 9,
                                                                  .first_sample = first_sample,
                                                                  .training = true,
                                                                  .needs_grad = true}));
}

/* Says that a tensor is a block of a whole, for ops that are recorded afterwards. Without it an
 * input's dim 0 is taken for samples and its other dims for whole. */
static void set_block(shoal_tensor *x, const shoal_shape *global, const int64_t *offset)
{
    x->block = block_at(&x->shape, global, offset);
}

/* An input that holds its own global index (plus 1), a block of `global`. */
static shoal_tensor *block_input(struct fixture *f, const shoal_shape *shape,
                                 const shoal_shape *global, const int64_t *offset)
{
    static float values[MOST];
    const struct shoali_block block = block_at(shape, global, offset);
    struct shoali_runs runs;
    const int64_t count = shoal_shape_count(shape);
    assert_true(count <= MOST);
    const int64_t first = shoali_block_runs(&block, &runs);
    for (int64_t i = 0, length; i < count; i++)
        values[i] = (float)(first + shoali_runs_at(&runs, i, &length) + 1);
    shoal_tensor *x = shoali_tape_add_input(f->tape, SHOAL_F32, shape, values, true);
    set_block(x, global, offset);
    return x;
}

static void read_floats(struct fixture *f, const shoal_tensor *y, float *to)
{
    rig_ok(shoali_tape_status(f->tape));
    rig_read(&f->rig, to, y->data, (size_t)shoal_shape_count(&y->shape) * sizeof(float));
}

struct expected {
    int64_t global, offset;
};

static void expect_dims(const char *what, const shoal_tensor *y, const struct expected *dims)
{
    if (y == NULL)
        fail_msg("%s: %s", what, shoal_error_message());
    for (int32_t d = 0; d < y->shape.ndim; d++) {
        struct shoali_block block = y->block;
        int32_t first[SHOAL_MAX_DIMS + 1];
        int64_t global, offset;
        assert_true(shoali_block_align(&block, &y->shape, first));
        assert_true(shoali_block_join(&block, first[d], first[d + 1], &global, &offset));
        if (global != dims[d].global || offset != dims[d].offset)
            fail_msg("%s: dim %d is at %lld of %lld, expected %lld of %lld", what, (int)d,
                     (long long)offset, (long long)global, (long long)dims[d].offset,
                     (long long)dims[d].global);
    }
}
#define EXPECT(what, y, ...) expect_dims(what, y, (const struct expected[]){__VA_ARGS__})

/* ---- dropout of a whole is the dropouts of its parts ---- */

static shoal_tensor *plain(shoal_tape *t, shoal_tensor *x)
{
    return shoal_dropout(t, x, 0.3, NULL);
}
static shoal_tensor *transposed(shoal_tape *t, shoal_tensor *x)
{
    return shoal_transpose(t, shoal_dropout(t, shoal_transpose(t, x, 0, 2), 0.3, NULL), 0, 2);
}
static shoal_tensor *flattened(shoal_tape *t, shoal_tensor *x)
{
    const shoal_shape shape = x->shape;
    shoal_tensor *flat =
        shoal_reshape(t, x, shoal_shape_2(shape.dim[0] * shape.dim[1], shape.dim[2]));
    return shoal_reshape(t, shoal_dropout(t, shoal_relu(t, flat), 0.3, NULL), shape);
}
static shoal_tensor *with_residual(shoal_tape *t, shoal_tensor *x)
{
    return shoal_dropout(t, shoal_scale(t, x, 2), 0.3, shoal_add(t, x, x));
}

static shoal_tensor *(*const programs[])(shoal_tape *, shoal_tensor *) = {plain, transposed,
                                                                          flattened, with_residual};

/* Runs a program on a block; y at the block's places in `to`, an array of the whole. */
static void run_block(struct fixture *f, int32_t program, const shoal_shape *shape,
                      const shoal_shape *global, const int64_t *offset, float *to)
{
    static float values[MOST];
    const struct shoali_block block = block_at(shape, global, offset);
    struct shoali_runs runs;
    begin(f, 0);
    shoal_scope_begin(f->tape, "drop");
    shoal_tensor *y = programs[program](f->tape, block_input(f, shape, global, offset));
    shoal_scope_end(f->tape, &y, 1);
    read_floats(f, y, values);
    const int64_t first = shoali_block_runs(&block, &runs);
    for (int64_t i = 0, length; i < shoal_shape_count(shape); i++)
        to[first + shoali_runs_at(&runs, i, &length)] = values[i];
}

static void check_programs(struct fixture *f, float all[][MOST])
{
    static float parts[MOST];
    const shoal_shape global = shoal_shape_3(4, 8, 18);
    const int64_t none[3] = {0};
    for (int32_t p = 0; p < (int32_t)(sizeof programs / sizeof programs[0]); p++) {
        int32_t zeros = 0;
        float *whole = all[p];
        run_block(f, p, &global, &global, none, whole);
        for (int32_t i = 0; i < 4 * 8 * 18; i++)
            zeros += whole[i] == 0;
        assert_true(p == 3 || (zeros > 100 && zeros < 400));
        for (int32_t dim = 0; dim < 3; dim++) {
            shoal_shape half = global;
            memset(parts, 0xFF, sizeof parts);
            half.dim[dim] = dim == 2 ? 6 : global.dim[dim] / 2;
            for (int64_t at = 0; at < global.dim[dim]; at += half.dim[dim]) {
                int64_t offset[3] = {0};
                offset[dim] = at;
                run_block(f, p, &half, &global, offset, parts);
            }
            assert_memory_equal(parts, whole, 4 * 8 * 18 * sizeof(float));
        }
    }
}

static void test_parts_draw_what_the_whole_draws(void **state)
{
    (void)state;
    static float by_ref[8][MOST], by_cpu[8][MOST];
    struct fixture f;
    open_with(&f, "ref");
    check_programs(&f, by_ref);
    close_all(&f);
    open_with(&f, NULL);
    check_programs(&f, by_cpu);
    close_all(&f);
    assert_memory_equal(by_ref, by_cpu, sizeof by_ref);
}

static shoal_status recompute(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)user;
    (void)tape;
    scope->recompute = true;
    return SHOAL_OK;
}

/* The gradient of the square of a dropout, whose block is changed once it has run. */
static void run_square(struct fixture *f, float *y, float *dx)
{
    const shoal_shape shape = shoal_shape_2(6, 10), global = shoal_shape_2(6, 30);
    const int64_t offset[] = {0, 10}, other[] = {0, 20};
    float ones[60];
    void *seed = rig_alloc(&f->rig, 240), *grad = rig_alloc(&f->rig, 240);
    for (int32_t i = 0; i < 60; i++)
        ones[i] = 1;
    rig_write(&f->rig, seed, ones, 240);
    begin(f, 0);
    shoal_tensor *x = block_input(f, &shape, &global, offset);
    shoal_scope_begin(f->tape, "drop");
    shoal_tensor *dropped = shoal_dropout(f->tape, x, 0.5, NULL);
    shoal_tensor *out = shoal_square(f->tape, dropped);
    shoal_scope_end(f->tape, &out, 1);
    read_floats(f, out, y);
    set_block(dropped, &global, other);
    const void *const seeds[] = {seed};
    rig_ok(shoali_tape_backward(f->tape, &(struct shoali_backward){.outputs = &out,
                                                                   .seeds = seeds,
                                                                   .output_count = 1,
                                                                   .inputs = &x,
                                                                   .input_grads = &grad,
                                                                   .input_count = 1}));
    rig_read(&f->rig, dx, grad, 240);
}

/* The gradient passes the same mask, and a replay draws it again though the tensor's block was
 * changed since. */
static void test_backward_and_replay_draw_the_same(void **state)
{
    (void)state;
    const struct shoali_observer observer = {.forward_begin = recompute};
    float y[2][60], dx[2][60];
    for (int32_t replays = 0; replays < 2; replays++) {
        struct fixture f;
        open_with(&f, NULL);
        shoali_tape_destroy(f.tape);
        f.tape = rig_tape(&f.rig, f.slot, SHOAL_F32, NULL, &observer, replays);
        run_square(&f, y[replays], dx[replays]);
        close_all(&f);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    for (int32_t i = 0; i < 60; i++)
        assert_true((dx[0][i] != 0) == (y[0][i] != 0));
}

/* dropout(slice(slice(x))) = slice(slice(dropout(x))) = dropout(the block itself). */
static void test_a_slice_of_a_slice_is_a_block(void **state)
{
    (void)state;
    static float values[3][MOST];
    struct fixture f;
    open_with(&f, NULL);
    struct shoal_tape *t = f.tape;
    const shoal_shape whole = shoal_shape_3(4, 8, 18), part = shoal_shape_3(4, 3, 5);
    const int64_t offset[] = {0, 4, 9};
    for (int32_t way = 0; way < 2; way++) {
        const bool is_block = way == 1;
        begin(&f, 0);
        shoal_tensor *x = block_input(&f, is_block ? &part : &whole, &whole,
                                      is_block ? offset : (const int64_t[]){0, 0, 0}),
                     *y = x;
        shoal_scope_begin(t, "drop");
        y = shoal_slice(t, y, 1, is_block ? 0 : 3, is_block ? 3 : 5);
        y = shoal_slice(t, y, 2, is_block ? 0 : 7, is_block ? 5 : 9);
        y = is_block ? y : shoal_slice(t, shoal_slice(t, y, 1, 1, 3), 2, 2, 5);
        shoal_scope_begin(t, "mask");
        y = shoal_dropout(t, y, 0.4, NULL);
        shoal_scope_end(t, &y, 1);
        shoal_scope_end(t, &y, 1);
        EXPECT("slice of a slice", y, {4, 0}, {8, 4}, {18, 9});
        read_floats(&f, y, values[way]);
    }
    assert_memory_equal(values[0], values[1], 4 * 3 * 5 * sizeof(float));
    begin(&f, 0);
    shoal_scope_begin(t, "drop");
    shoal_scope_begin(t, "mask");
    shoal_tensor *x = block_input(&f, &whole, &whole, NULL);
    shoal_tensor *y = shoal_dropout(t, x, 0.4, NULL);
    shoal_scope_end(t, &y, 1);
    y = shoal_slice(t, shoal_slice(t, y, 1, 4, 3), 2, 9, 5);
    shoal_scope_end(t, &y, 1);
    read_floats(&f, y, values[2]);
    assert_memory_equal(values[1], values[2], 4 * 3 * 5 * sizeof(float));
    close_all(&f);
}

/* ---- attention ---- */

enum { B = 3, T = 6, H = 4, D = 4, PACKED = 3 * H * D };

/* A part of the samples and heads of one attention; its output goes to its places in `to`. */
static void run_attention(struct fixture *f, int64_t b0, int64_t samples, int64_t h0, int64_t heads,
                          float *to)
{
    static float values[MOST];
    const int64_t offset[] = {b0, 0, h0 * 3 * D};
    const shoal_shape shape = shoal_shape_3(samples, T, 3 * heads * D),
                      global = shoal_shape_3(B, T, PACKED);
    for (int64_t b = 0; b < samples; b++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t c = 0; c < 3 * heads * D; c++) {
                const int64_t kind = c / (heads * D), channel = c % (heads * D) + h0 * D;
                const int64_t at = ((b0 + b) * T + t) * PACKED + kind * H * D + channel;
                values[(b * T + t) * 3 * heads * D + c] = (float)(at * 37 % 101) / 50 - 1;
            }
    begin(f, 0);
    shoal_scope_begin(f->tape, "attn");
    shoal_tensor *qkv = shoali_tape_add_input(f->tape, SHOAL_F32, &shape, values, false);
    set_block(qkv, &global, offset);
    shoal_tensor *y = shoal_attention(
        f->tape, qkv, &(shoal_attention_args){.heads = heads, .dropout = 0.4, .full = 1});
    y = shoal_dropout(f->tape, y, 0.4, NULL);
    shoal_scope_end(f->tape, &y, 1);
    read_floats(f, y, values);
    for (int64_t i = 0; i < samples * T * heads * D; i++) {
        const int64_t row = b0 * T + i / (heads * D), channel = h0 * D + i % (heads * D);
        to[row * H * D + channel] = values[i];
    }
}

static void check_attention(const char *ops)
{
    static float whole[B * T * H * D], parts[B * T * H * D];
    struct fixture f;
    open_with(&f, ops);
    run_attention(&f, 0, B, 0, H, whole);
    for (int64_t heads = 1; heads <= 2; heads++) {
        memset(parts, 0xFF, sizeof parts);
        for (int64_t h = 0; h < H; h += heads)
            run_attention(&f, 0, B, h, heads, parts);
        assert_memory_equal(parts, whole, sizeof whole);
    }
    memset(parts, 0xFF, sizeof parts);
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h += 2)
            run_attention(&f, b, 1, h, 2, parts);
    assert_memory_equal(parts, whole, sizeof whole);
    close_all(&f);
}

static void test_attention_of_heads_and_samples(void **state)
{
    (void)state;
    check_attention("ref");
    check_attention(NULL);
}

static void test_attention_without_a_block_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    open_with(&f, "ref");
    begin(&f, 0);
    const shoal_shape shape = shoal_shape_3(1, 2, 12), global = shoal_shape_3(1, 2, 30);
    const int64_t offset[] = {0, 0, 6};
    shoal_tensor *qkv = shoali_tape_add_input(f.tape, SHOAL_F32, &shape, NULL, false);
    set_block(qkv, &global, offset);
    assert_non_null(shoal_attention(f.tape, qkv, &(shoal_attention_args){.heads = 2}));
    assert_null(shoal_attention(f.tape, qkv, &(shoal_attention_args){.heads = 2, .dropout = 0.1}));
    assert_int_equal(shoali_tape_status(f.tape), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "the place of qkv"));
    close_all(&f);
}

/* ---- every row ---- */

static void test_each_row_carries_coordinates(void **state)
{
    (void)state;
    enum { S = 5 };
    const struct expected samples = {SHOALI_BLOCK_OPEN, S};
    struct fixture f;
    struct shoal_param weight, gamma, table;
    open_with(&f, "ref");
    struct shoal_tape *t = f.tape;
    rig_param(&f.rig, &weight, "weight", SHOAL_F32, shoal_shape_2(6, 3));
    rig_param(&f.rig, &gamma, "gamma", SHOAL_F32, shoal_shape_1(6));
    rig_param(&f.rig, &table, "table", SHOAL_F32, shoal_shape_2(9, 7));
    begin(&f, S);
    const shoal_shape shape = shoal_shape_3(2, 4, 6), global = shoal_shape_3(0, 8, 18);
    shoal_shape open = global;
    open.dim[0] = SHOALI_BLOCK_OPEN;
    const int64_t offset[] = {S, 4, 12};
    shoal_tensor *x = shoali_tape_add_input(t, SHOAL_F32, &shape, NULL, false);
    EXPECT("input", x, samples, {4, 0}, {6, 0});
    set_block(x, &open, offset);
    EXPECT("set", x, samples, {8, 4}, {18, 12});
    EXPECT("relu", shoal_relu(t, x), samples, {8, 4}, {18, 12});
    EXPECT("add", shoal_add(t, x, x), samples, {8, 4}, {18, 12});
    EXPECT("linear", shoal_linear(t, x, &weight, NULL), samples, {8, 4}, {3, 0});
    EXPECT("norm", shoal_rms_norm(t, x, &gamma, 1e-5), samples, {8, 4}, {6, 0});
    EXPECT("softmax", shoal_softmax(t, x), samples, {8, 4}, {6, 0});
    EXPECT("sum", shoal_sum(t, x, 1), samples, {18, 12});
    EXPECT("mean", shoal_mean(t, x, 0), {8, 4}, {18, 12});
    EXPECT("transpose", shoal_transpose(t, x, 0, 2), {18, 12}, {8, 4}, samples);
    EXPECT("slice", shoal_slice(t, x, 2, 3, 2), samples, {8, 4}, {18, 15});
    EXPECT("reshape", shoal_reshape(t, x, shoal_shape_4(1, 2, 4, 6)), {1, 0}, samples, {8, 4},
           {18, 12});
    shoal_tensor *const neighbours[] = {shoal_slice(t, x, 1, 0, 1), shoal_slice(t, x, 1, 1, 2)};
    EXPECT("concat of neighbours", shoal_concat(t, neighbours, 2, 1), samples, {8, 4}, {18, 12});
    shoal_tensor *const strangers[] = {neighbours[1], neighbours[0]};
    EXPECT("concat of others", shoal_concat(t, strangers, 2, 1), samples, {3, 0}, {18, 12});
    shoal_tensor *qkv = shoal_attention(t, x, &(shoal_attention_args){.heads = 1, .kv_heads = 1});
    EXPECT("attention", qkv, samples, {8, 4}, {6, 4});
    const shoal_shape id_shape = shoal_shape_2(2, 4);
    const int32_t zeros[8] = {0};
    shoal_tensor *ids = shoali_tape_add_input(t, SHOAL_I32, &id_shape, zeros, false);
    EXPECT("embedding", shoal_embedding(t, ids, &table, NULL), samples, {4, 0}, {7, 0});
    EXPECT("parameter", shoal_param_tensor(t, &table), {9, 0}, {7, 0});
    rig_ok(shoali_tape_status(t));
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_draw_what_the_whole_draws),
        cmocka_unit_test(test_backward_and_replay_draw_the_same),
        cmocka_unit_test(test_a_slice_of_a_slice_is_a_block),
        cmocka_unit_test(test_attention_of_heads_and_samples),
        cmocka_unit_test(test_attention_without_a_block_is_refused),
        cmocka_unit_test(test_each_row_carries_coordinates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
