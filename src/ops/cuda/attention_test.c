/* Attention by tensor cores, on the emulator or a GPU: it is chosen where it should be, and its
 * bits depend on nothing but a head's own vectors. The conformance suite compares each number with
 * `ref`; here whole results are compared with sums in fp32. */
#include "base/test_cmocka.h"
#include "ops/attention_plain.h"
#include "ops/cuda/launch.h"
#include "ops/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, LENGTH = 150, HEADS = 4, KV_HEADS = 2, GROUP = HEADS / KV_HEADS };

extern const struct shoali_ops_table shoali_ops_cuda;
static struct shoali_device *device;
static struct shoali_device_stream *stream;

/* q, k and v are interleaved in one array, and so are their gradients. */
enum { PACKED, OUT, DOUT, LSE, DELTA, GRADIENTS, ARRAYS };
static const char *const names[ARRAYS] = {"qkv", "out", "dout", "lse", "delta", "dq, dk, dv"};
struct problem {
    int64_t head_size, stride, window;
    shoal_dtype dtype;
    float dropout;
    size_t bytes[ARRAYS];
    unsigned char *host[ARRAYS], *device[ARRAYS];
};

static void fill(uint16_t *to, int64_t count, shoal_dtype dtype, uint64_t number)
{
    const struct shoali_stream random = shoali_stream_make(7, "attention_test", "", number);
    for (int64_t i = 0; i < count; i++) {
        const float x = 2 * shoali_random_uniform(&random, (uint64_t)i) - 1;
        to[i] = dtype == SHOAL_BF16 ? shoali_f32_to_bf16(x) : shoali_f32_to_f16(x);
    }
}

static struct problem begin(int64_t head_size, shoal_dtype dtype, int64_t window, float dropout)
{
    struct problem p = {.head_size = head_size,
                        .stride = (HEADS + 2 * KV_HEADS) * head_size,
                        .window = window,
                        .dtype = dtype,
                        .dropout = dropout};
    p.bytes[PACKED] = p.bytes[GRADIENTS] = (size_t)(BATCH * LENGTH * p.stride) * 2;
    p.bytes[OUT] = p.bytes[DOUT] = (size_t)(BATCH * LENGTH * HEADS * head_size) * 2;
    p.bytes[LSE] = p.bytes[DELTA] = (size_t)(BATCH * HEADS * LENGTH) * 4;
    for (int i = 0; i < ARRAYS; i++) {
        void *memory;
        p.host[i] = calloc(1, p.bytes[i]);
        assert_non_null(p.host[i]);
        ok(shoali_device_alloc(device, p.bytes[i], &memory));
        p.device[i] = memory;
    }
    fill((uint16_t *)(void *)p.host[PACKED], (int64_t)p.bytes[PACKED] / 2, dtype, 1);
    fill((uint16_t *)(void *)p.host[DOUT], (int64_t)p.bytes[DOUT] / 2, dtype, 2);
    for (int i = 0; i < ARRAYS; i++)
        ok(shoali_copy(stream, p.device[i], p.host[i], p.bytes[i], SHOALI_HOST_TO_DEVICE));
    return p;
}

static void end(struct problem *p)
{
    for (int i = 0; i < ARRAYS; i++) {
        free(p->host[i]);
        shoali_device_free(device, p->device[i]);
    }
}

/* Some samples and some groups of heads. */
struct part {
    int64_t sample, samples, group, groups;
};

static struct shoali_attention_args arguments(const struct problem *p, unsigned char *const *arrays,
                                              struct part part)
{
    const int64_t token = part.sample * LENGTH, d = p->head_size, h = part.group * GROUP;
    unsigned char *packed = arrays[PACKED] + 2 * token * p->stride;
    return (struct shoali_attention_args){
        .q = packed + 2 * h * d,
        .k = packed + 2 * (HEADS + part.group) * d,
        .v = packed + 2 * (HEADS + KV_HEADS + part.group) * d,
        .out = arrays[OUT] + 2 * (token * HEADS + h) * d,
        .lse = (float *)(void *)arrays[LSE] + (part.sample * HEADS + h) * LENGTH,
        .batch = part.samples,
        .q_len = LENGTH,
        .kv_len = LENGTH,
        .heads = part.groups * GROUP,
        .kv_heads = part.groups,
        .head_size = d,
        .q_stride = p->stride,
        .kv_stride = p->stride,
        .out_stride = HEADS * d,
        .window = p->window,
        .scale = 0.125,
        .causal = 1,
        .dropout = p->dropout,
        .random = shoali_stream_make(7, "attention_test", "mask", 0),
        .mask = {.first_sample = part.sample, .heads = HEADS, .first_head = h},
        .dtype = p->dtype};
}

struct gradients {
    const void *dout;
    float *delta;
    void *dq, *dk, *dv;
};

static struct shoali_attention_backward_args backward_of(const struct shoali_attention_args *f,
                                                         const struct gradients *g)
{
    return (struct shoali_attention_backward_args){.q = f->q,
                                                   .k = f->k,
                                                   .v = f->v,
                                                   .out = f->out,
                                                   .dout = g->dout,
                                                   .key_count = f->key_count,
                                                   .lse = f->lse,
                                                   .delta = g->delta,
                                                   .dq = g->dq,
                                                   .dk = g->dk,
                                                   .dv = g->dv,
                                                   .batch = f->batch,
                                                   .q_len = f->q_len,
                                                   .kv_len = f->kv_len,
                                                   .heads = f->heads,
                                                   .kv_heads = f->kv_heads,
                                                   .head_size = f->head_size,
                                                   .q_stride = f->q_stride,
                                                   .kv_stride = f->kv_stride,
                                                   .out_stride = f->out_stride,
                                                   .window = f->window,
                                                   .scale = f->scale,
                                                   .causal = f->causal,
                                                   .dropout = f->dropout,
                                                   .random = f->random,
                                                   .mask = f->mask,
                                                   .dtype = f->dtype};
}

static void forward(const struct shoali_attention_args *args)
{
    ok(shoali_launch(stream, &shoali_kernel_attention.type, shoali_cuda_attention, args));
}

static void backward(const struct shoali_attention_args *f, const struct gradients *g)
{
    const struct shoali_attention_backward_args args = backward_of(f, g);
    ok(shoali_launch(stream, &shoali_kernel_attention_backward.type, shoali_cuda_attention_backward,
                     &args));
}

static void run(const struct problem *p, struct part part)
{
    const struct shoali_attention_args f = arguments(p, p->device, part);
    const int64_t dq = (const unsigned char *)f.q - p->device[PACKED];
    const int64_t dk = (const unsigned char *)f.k - p->device[PACKED];
    const int64_t dv = (const unsigned char *)f.v - p->device[PACKED];
    const struct gradients g = {.dout = p->device[DOUT] + ((unsigned char *)f.out - p->device[OUT]),
                                .delta = (float *)(void *)p->device[DELTA] +
                                         (f.lse - (float *)(void *)p->device[LSE]),
                                .dq = p->device[GRADIENTS] + dq,
                                .dk = p->device[GRADIENTS] + dk,
                                .dv = p->device[GRADIENTS] + dv};
    forward(&f);
    backward(&f, &g);
}

static void take(const struct problem *p)
{
    for (int i = 0; i < ARRAYS; i++)
        ok(shoali_copy(stream, p->host[i], p->device[i], p->bytes[i], SHOALI_DEVICE_TO_HOST));
    ok(shoali_stream_synchronize(stream));
}

static void check_parts(int64_t head_size, shoal_dtype dtype, int64_t window, float dropout)
{
    struct problem whole = begin(head_size, dtype, window, dropout);
    struct problem parts = begin(head_size, dtype, window, dropout);
    run(&whole, (struct part){0, BATCH, 0, KV_HEADS});
    for (int64_t sample = BATCH - 1; sample >= 0; sample--)
        for (int64_t group = 0; group < KV_HEADS; group++)
            run(&parts, (struct part){sample, 1, group, 1});
    take(&whole);
    take(&parts);
    for (int i = 0; i < ARRAYS; i++)
        if (memcmp(whole.host[i], parts.host[i], whole.bytes[i]) != 0)
            fail_msg("%s of heads of %d: other bits in parts", names[i], (int)head_size);
    end(&whole);
    end(&parts);
}

static void test_parts(void **state)
{
    (void)state;
    check_parts(64, SHOAL_BF16, 0, 0);
    check_parts(64, SHOAL_BF16, 70, 0.2f);
    check_parts(128, SHOAL_BF16, 0, 0);
    check_parts(128, SHOAL_F16, 40, 0);
}

/* ---- how near to sums in fp32 ---- */

struct shape {
    int64_t batch, q_len, kv_len, heads, kv_heads, head_size, window;
    shoal_dtype dtype;
    int32_t causal, counts;
    float dropout;
};

/* A device's copy of an array of the host. */
static void *copy_of(const void *host, size_t bytes)
{
    void *memory;
    ok(shoali_device_alloc(device, bytes, &memory));
    ok(shoali_copy(stream, memory, host, bytes, SHOALI_HOST_TO_DEVICE));
    return memory;
}

static float *widened(const uint16_t *x, int64_t count, shoal_dtype dtype)
{
    float *wide = malloc((size_t)count * sizeof *wide);
    assert_non_null(wide);
    for (int64_t i = 0; i < count; i++)
        wide[i] = dtype == SHOAL_BF16 ? shoali_bf16_to_f32(x[i]) : shoali_f16_to_f32(x[i]);
    return wide;
}

/* |got - want| / |want| */
static double distance(const uint16_t *got, const float *want, int64_t count, shoal_dtype dtype)
{
    float *wide = widened(got, count, dtype);
    double away = 0, size = 1e-30;
    for (int64_t i = 0; i < count; i++) {
        away += ((double)wide[i] - (double)want[i]) * ((double)wide[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    free(wide);
    return sqrt(away / size);
}

enum { Q, K, V, TO_OUT, O, DQ, DK, DV, VECTORS };
static const char *const vector_names[VECTORS] = {"q", "k", "v", "dout", "out", "dq", "dk", "dv"};

static struct shoali_attention_args shaped(const struct shape *shape)
{
    return (struct shoali_attention_args){
        .batch = shape->batch,
        .q_len = shape->q_len,
        .kv_len = shape->kv_len,
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .head_size = shape->head_size,
        .q_stride = shape->heads * shape->head_size,
        .kv_stride = shape->kv_heads * shape->head_size,
        .out_stride = shape->heads * shape->head_size,
        .window = shape->window,
        .scale = 1 / sqrt((double)shape->head_size),
        .causal = shape->causal,
        .dropout = shape->dropout,
        .random = shoali_stream_make(7, "attention_test", "mask", 0),
        .mask = {.first_sample = 3, .keys = shape->kv_len + 5, .first_key = 5},
        .dtype = shape->dtype};
}

/* The arrays of a shape: vectors, then lse and delta, then key counts. */
struct arrays {
    void *vector[VECTORS], *row[2], *counts;
};
static void set_arrays(struct shoali_attention_args *f, struct gradients *g,
                       const struct arrays *arrays, bool counts)
{
    void *const *vector = arrays->vector;
    f->q = vector[Q], f->k = vector[K], f->v = vector[V], f->out = vector[O];
    f->lse = arrays->row[0];
    f->key_count = counts ? arrays->counts : NULL;
    *g = (struct gradients){vector[TO_OUT], arrays->row[1], vector[DQ], vector[DK], vector[DV]};
}

/* A result has three roundings of 2^-9 (bf16) or 2^-12 at most, each on average a half of that: its
 * own, of the weights, and of `out`, which delta is made of. The polynomial adds 1e-4. */
static void compare(const struct shape *shape, const struct arrays *got, const struct arrays *want,
                    const int64_t count[VECTORS])
{
    const double limit = shape->dtype == SHOAL_BF16 ? 0x1p-8 : 0x1p-10;
    for (int i = O; i < VECTORS; i++) {
        uint16_t *host = malloc(2 * (size_t)count[i]);
        assert_non_null(host);
        ok(shoali_copy(stream, host, got->vector[i], 2 * (size_t)count[i], SHOALI_DEVICE_TO_HOST));
        ok(shoali_stream_synchronize(stream));
        const double away = distance(host, want->vector[i], count[i], shape->dtype);
        if (!(away < limit))
            fail_msg("%s of heads of %d: relative distance %g, allowed %g", vector_names[i],
                     (int)shape->head_size, away, limit);
        free(host);
    }
}

static void check_shape(const struct shape *shape)
{
    const int64_t q = shape->batch * shape->q_len * shape->heads * shape->head_size;
    const int64_t kv = shape->batch * shape->kv_len * shape->kv_heads * shape->head_size;
    const int64_t count[VECTORS] = {q, kv, kv, q, q, q, kv, kv};
    const size_t row_bytes = (size_t)(shape->batch * shape->heads * shape->q_len) * sizeof(float);
    int32_t counts[2] = {(int32_t)shape->kv_len / 2, -1};
    struct arrays want = {.counts = counts}, got = {.counts = copy_of(counts, sizeof counts)};
    struct shoali_attention_args f = shaped(shape);
    struct gradients g;
    for (int i = 0; i < VECTORS; i++) {
        uint16_t *numbers = malloc(2 * (size_t)count[i]);
        assert_non_null(numbers);
        fill(numbers, count[i], shape->dtype, 10 + (uint64_t)i);
        want.vector[i] = widened(numbers, count[i], shape->dtype);
        got.vector[i] = copy_of(numbers, 2 * (size_t)count[i]);
        free(numbers);
    }
    for (int i = 0; i < 2; i++) {
        want.row[i] = calloc(1, row_bytes);
        assert_non_null(want.row[i]);
        got.row[i] = copy_of(want.row[i], row_bytes);
    }
    set_arrays(&f, &g, &got, shape->counts != 0);
    forward(&f);
    backward(&f, &g);
    set_arrays(&f, &g, &want, shape->counts != 0);
    f.dtype = SHOAL_F32;
    const struct shoali_attention_backward_args b = backward_of(&f, &g);
    shoali_attention_plain(&f);
    shoali_attention_backward_plain(&b);
    compare(shape, &got, &want, count);
    for (int i = 0; i < VECTORS + 2; i++) {
        free(i < VECTORS ? want.vector[i] : want.row[i - VECTORS]);
        shoali_device_free(device, i < VECTORS ? got.vector[i] : got.row[i - VECTORS]);
    }
    shoali_device_free(device, got.counts);
}

static void test_distance(void **state)
{
    static const struct shape shapes[] = {{1, 200, 200, 2, 1, 64, 0, SHOAL_BF16, 1, 0, 0},
                                          {2, 90, 130, 2, 2, 64, 0, SHOAL_BF16, 0, 1, 0},
                                          {1, 70, 170, 3, 1, 64, 50, SHOAL_F16, 1, 0, 0},
                                          {1, 140, 100, 2, 1, 64, 0, SHOAL_BF16, 1, 0, 0.25f},
                                          {1, 140, 140, 2, 2, 128, 0, SHOAL_BF16, 1, 0, 0},
                                          {2, 33, 97, 2, 1, 128, 0, SHOAL_F16, 0, 1, 0.1f},
                                          {1, 1, 77, 4, 2, 128, 30, SHOAL_BF16, 1, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_shape(&shapes[i]);
}

/* With the library off the results are those of `ref`, bit by bit; without they cannot be. */
static void test_choice(void **state)
{
    (void)state;
    for (int off = 0; off < 2; off++) {
        struct problem p = begin(64, SHOAL_BF16, 0, 0);
        unsigned char *out = calloc(1, p.bytes[OUT]), *lse = calloc(1, p.bytes[LSE]);
        unsigned char *arrays[ARRAYS] = {[PACKED] = p.host[PACKED], [OUT] = out, [LSE] = lse};
        const struct part all = {0, BATCH, 0, KV_HEADS};
        assert_true(out != NULL && lse != NULL);
        if (off)
            assert_int_equal(setenv("SHOAL_CUDA_BLAS", "off", 1), 0);
        run(&p, all);
        take(&p);
        assert_int_equal(unsetenv("SHOAL_CUDA_BLAS"), 0);
        const struct shoali_attention_args args = arguments(&p, arrays, all);
        shoali_attention_plain(&args);
        assert_int_equal(memcmp(out, p.host[OUT], p.bytes[OUT]) == 0, off);
        assert_int_equal(memcmp(lse, p.host[LSE], p.bytes[LSE]) == 0, off);
        free(out);
        free(lse);
        end(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_distance),
                                       cmocka_unit_test(test_choice)};
    if (!shoali_ops_cuda.probe()) {
        printf("skipped: there is no GPU, or no kernels for one\n");
        return 77;
    }
    if (shoali_device_create(&shoali_accelerator_cuda, 0, NULL, &device) != SHOAL_OK ||
        shoali_stream_create(device, &stream) != SHOAL_OK) {
        fprintf(stderr, "%s\n", shoal_error_message());
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    shoali_stream_destroy(stream);
    shoali_device_destroy(device);
    return failed;
}
