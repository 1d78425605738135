/* Attention of every built table this CPU can run, against the textbook sums in double. */
#include "base/base.h"
#include "base/test_brief.h"
#include "base/test_cmocka.h"
#include "ops/ops.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the table has attention for this type, on this CPU. */
static bool attends(const struct shoali_ops_table *table, shoal_dtype dtype)
{
    return table->memory == NULL && table->probe() &&
           (shoali_ops_entry(table, &shoali_kernel_attention)->dtypes & shoali_dtype_bit(dtype)) !=
               0;
}

/* One entry of a table, called. */
static void call(const struct shoali_ops_table *table, const struct shoali_kernel *kernel,
                 const void *args, struct shoali_pool *pool)
{
    const struct shoali_kernel_context context = {.threads = pool};
    shoali_ops_entry(table, kernel)->fn(args, &context);
}

struct problem {
    int64_t batch, q_len, kv_len, heads, kv_heads, d;
    int32_t causal;
    float dropout;
    shoal_dtype dtype;
    bool packed;  /* q, k, v interleaved as [T, 3, H, D] */
    float spread; /* what queries are multiplied with; 0: 1 */
    int64_t window;
    bool padded; /* samples have keys of their own number: most, none, more than there are */
};
static const struct problem problems[] = {
    {2, 64, 64, 4, 4, 32, 1, 0, SHOAL_F32, true, 0, 0, false},
    {1, 200, 200, 2, 2, 64, 1, 0.2f, SHOAL_F32, true, 0, 0, false},
    {2, 67, 67, 4, 2, 16, 1, 0, SHOAL_F32, false, 0, 0, false},
    {1, 33, 130, 3, 1, 40, 1, 0.1f, SHOAL_F32, false, 0, 0, false},
    {1, 70, 40, 2, 2, 24, 0, 0, SHOAL_F32, false, 0, 0, false},
    {1, 1, 77, 2, 1, 64, 1, 0, SHOAL_F32, false, 0, 0, false},
    {1, 90, 90, 1, 1, 17, 1, 0, SHOAL_F32, false, 0, 0, false},
    {1, 80, 50, 1, 1, 32, 1, 0, SHOAL_F32, false, 0, 0, false}, /* the first queries see nothing */
    {1, 100, 100, 2, 2, 64, 1, 0.2f, SHOAL_BF16, true, 0, 0, false},
    {2, 67, 131, 4, 2, 33, 1, 0, SHOAL_BF16, false, 0, 0, false},
    {1, 65, 65, 2, 1, 80, 0, 0, SHOAL_BF16, false, 0, 0, false},
    {1, 100, 100, 2, 2, 48, 1, 0, SHOAL_F16, true, 0, 0, false},
    {1, 70, 70, 1, 1, 256, 1, 0, SHOAL_F32, false, 0, 0, false},
    /* scores far apart: shifts are raised in the first tile and in later ones */
    {1, 300, 300, 2, 2, 64, 1, 0, SHOAL_F32, true, 20, 0, false},
    {1, 150, 280, 2, 1, 32, 0, 0.2f, SHOAL_F32, false, 12, 0, false},
    {1, 300, 300, 2, 2, 64, 1, 0, SHOAL_BF16, true, 20, 0, false},
    /* windows of less and more than a tile, that begin on a tile's edge and beside it */
    {1, 200, 200, 2, 2, 64, 1, 0.2f, SHOAL_F32, true, 0, 64, false},
    {1, 300, 300, 2, 1, 32, 1, 0, SHOAL_F32, false, 20, 17, false},
    {2, 150, 280, 4, 2, 40, 1, 0, SHOAL_F32, false, 0, 2, false},
    {1, 90, 400, 2, 2, 16, 1, 0.1f, SHOAL_F32, false, 12, 129, false},
    {1, 260, 200, 1, 1, 32, 1, 0, SHOAL_F32, false, 0, 70, false},
    {1, 1, 333, 2, 1, 64, 1, 0, SHOAL_F32, false, 0, 100, false},
    {1, 300, 300, 2, 2, 64, 1, 0, SHOAL_BF16, true, 20, 50, false},
    {1, 301, 301, 3, 1, 33, 1, 0.1f, SHOAL_BF16, false, 0, 130, false},
    {1, 200, 200, 2, 2, 48, 1, 0, SHOAL_F16, true, 0, 63, false},
    /* samples of their own lengths */
    {3, 130, 130, 2, 2, 32, 0, 0.2f, SHOAL_F32, true, 0, 0, true},
    {3, 200, 200, 2, 1, 40, 1, 0, SHOAL_F32, false, 12, 0, true},
    {3, 200, 200, 2, 1, 16, 1, 0, SHOAL_F32, false, 0, 50, true},
    {3, 67, 140, 2, 2, 64, 0, 0, SHOAL_BF16, false, 0, 0, true},
    {3, 150, 150, 2, 2, 64, 1, 0, SHOAL_BF16, true, 0, 30, true},
};

static float get(const void *x, int64_t i, shoal_dtype dtype)
{
    if (dtype == SHOAL_F32)
        return ((const float *)x)[i];
    uint16_t half = ((const uint16_t *)x)[i];
    return dtype == SHOAL_BF16 ? shoali_bf16_to_f32(half) : shoali_f16_to_f32(half);
}

static void *random_array(uint32_t *state, int64_t count, shoal_dtype dtype)
{
    void *x = malloc((size_t)count * shoal_dtype_bytes(dtype));
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        *state = *state * 1664525u + 1013904223u;
        float value = (float)((int32_t)(*state >> 8) - (1 << 23)) / (float)(1 << 22);
        if (dtype == SHOAL_F32)
            ((float *)x)[i] = value;
        else
            ((uint16_t *)x)[i] =
                dtype == SHOAL_BF16 ? shoali_f32_to_bf16(value) : shoali_f32_to_f16(value);
    }
    return x;
}

enum { SAMPLES = 3 };
/* Everything of one problem; *_at give element offsets. */
struct data {
    struct problem p;
    struct shoali_attention_args f;
    struct shoali_attention_backward_args b;
    void *q, *k, *v, *out, *dout, *dq, *dk, *dv;
    int32_t key_count[SAMPLES];
    float *lse, *delta;
    double *e_out, *e_dq, *e_dk, *e_dv, *e_lse; /* expected, dense [b][t][h][d] */
};

static int64_t q_at(const struct data *x, int64_t b, int64_t t, int64_t h)
{
    return (b * x->p.q_len + t) * x->f.q_stride + h * x->p.d;
}
static int64_t kv_at(const struct data *x, int64_t b, int64_t t, int64_t h)
{
    return (b * x->p.kv_len + t) * x->f.kv_stride + h * x->p.d;
}
static int64_t out_at(const struct data *x, int64_t b, int64_t t, int64_t h)
{
    return (b * x->p.q_len + t) * x->f.out_stride + h * x->p.d;
}

static double dot(const struct data *x, const void *a, int64_t a_at, const void *b, int64_t b_at)
{
    double sum = 0;
    for (int64_t i = 0; i < x->p.d; i++)
        sum += (double)get(a, a_at + i, x->p.dtype) * (double)get(b, b_at + i, x->p.dtype);
    return sum;
}

static bool sees(const struct data *x, int64_t b, int64_t t, int64_t j)
{
    const struct problem *s = &x->p;
    const int64_t own = t + s->kv_len - s->q_len; /* key of the query's own place */
    return (!s->causal || j <= own) && (s->window == 0 || j > own - s->window) &&
           (!s->padded || j < x->key_count[b]);
}

/* One query row: p[j] after the softmax, 0 of what it does not see; keep[j] the dropout factor. */
static void expect_row(const struct data *x, int64_t b, int64_t h, int64_t t, double *p,
                       double *keep, double *lse)
{
    const struct problem *s = &x->p;
    const int64_t kv = h / (s->heads / s->kv_heads);
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < s->kv_len; j++) {
        p[j] = x->f.scale * dot(x, x->q, q_at(x, b, t, h), x->k, kv_at(x, b, j, kv));
        top = sees(x, b, t, j) && p[j] > top ? p[j] : top;
    }
    for (int64_t j = 0; j < s->kv_len; j++)
        sum += p[j] = sees(x, b, t, j) ? exp(p[j] - top) : 0;
    *lse = top + log(sum);
    sum = sum > 0 ? sum : 1;
    for (int64_t j = 0; j < s->kv_len; j++) {
        uint64_t index =
            ((uint64_t)((x->f.mask.first_sample + b) * s->heads + h) * (uint64_t)s->q_len +
             (uint64_t)t) *
                (uint64_t)s->kv_len +
            (uint64_t)j;
        bool kept =
            shoali_random_dense_u32(&x->f.random, index) >= shoali_dropout_threshold(s->dropout);
        p[j] /= sum;
        keep[j] = kept ? 1 / (1 - (double)s->dropout) : 0;
    }
}

static void expect(struct data *x)
{
    const struct problem *s = &x->p;
    const int64_t d = s->d;
    double *p = malloc((size_t)s->kv_len * 8), *keep = malloc((size_t)s->kv_len * 8);
    assert_true(p && keep);
    for (int64_t row = 0; row < s->batch * s->heads * s->q_len; row++) {
        int64_t t = row % s->q_len, h = row / s->q_len % s->heads, b = row / s->q_len / s->heads;
        int64_t kv = h / (s->heads / s->kv_heads), at = ((b * s->q_len + t) * s->heads + h) * d;
        double delta = 0;
        expect_row(x, b, h, t, p, keep, &x->e_lse[row]);
        for (int64_t j = 0; j < s->kv_len; j++) {
            for (int64_t i = 0; i < d; i++)
                x->e_out[at + i] +=
                    p[j] * keep[j] * (double)get(x->v, kv_at(x, b, j, kv) + i, s->dtype);
            delta += p[j] * keep[j] * dot(x, x->dout, out_at(x, b, t, h), x->v, kv_at(x, b, j, kv));
        }
        for (int64_t j = 0; j < s->kv_len; j++) {
            int64_t kv_out = ((b * s->kv_len + j) * s->kv_heads + kv) * d;
            double dp = keep[j] * dot(x, x->dout, out_at(x, b, t, h), x->v, kv_at(x, b, j, kv));
            double ds = p[j] * (dp - delta) * x->f.scale;
            for (int64_t i = 0; i < d; i++) {
                x->e_dv[kv_out + i] +=
                    p[j] * keep[j] * (double)get(x->dout, out_at(x, b, t, h) + i, s->dtype);
                x->e_dk[kv_out + i] += ds * (double)get(x->q, q_at(x, b, t, h) + i, s->dtype);
                x->e_dq[at + i] += ds * (double)get(x->k, kv_at(x, b, j, kv) + i, s->dtype);
            }
        }
    }
    free(p);
    free(keep);
}

/* Elements of a row of all heads, and from row to row: packed rows hold q, k and v. */
struct widths {
    int64_t q, kv, q_stride, kv_stride;
};
static struct widths widths_of(const struct problem *p)
{
    const int64_t q = p->heads * p->d, kv = p->kv_heads * p->d;
    return (struct widths){.q = q,
                           .kv = kv,
                           .q_stride = p->packed ? 3 * q : q + 3,
                           .kv_stride = p->packed ? 3 * q : kv};
}

static void make_arrays(struct data *x, const struct problem *p, const struct widths *w)
{
    uint32_t seed = 5;
    const int64_t q_count = p->batch * p->q_len * w->q_stride;
    const int64_t kv_count = p->batch * p->kv_len * w->kv_stride;
    const int64_t out_count = p->batch * p->q_len * w->q;
    const size_t rows = (size_t)(p->batch * p->heads * p->q_len);
    const size_t part = (size_t)w->q * shoal_dtype_bytes(p->dtype);
    x->q = random_array(&seed, q_count, p->dtype);
    x->dq = random_array(&seed, q_count, p->dtype);
    x->k = p->packed ? (char *)x->q + part : random_array(&seed, kv_count, p->dtype);
    x->v = p->packed ? (char *)x->q + 2 * part : random_array(&seed, kv_count, p->dtype);
    x->dk = p->packed ? (char *)x->dq + part : random_array(&seed, kv_count, p->dtype);
    x->dv = p->packed ? (char *)x->dq + 2 * part : random_array(&seed, kv_count, p->dtype);
    x->out = random_array(&seed, out_count, p->dtype);
    x->dout = random_array(&seed, out_count, p->dtype);
    x->lse = malloc(rows * 4);
    x->delta = malloc(rows * 4);
    x->e_lse = calloc(rows, 8);
    x->e_out = calloc((size_t)out_count, 8);
    x->e_dq = calloc((size_t)out_count, 8);
    x->e_dk = calloc((size_t)(p->batch * p->kv_len * w->kv), 8);
    x->e_dv = calloc((size_t)(p->batch * p->kv_len * w->kv), 8);
    assert_true(x->lse && x->delta && x->e_lse && x->e_out && x->e_dq && x->e_dk && x->e_dv);
}

static void spread_queries(const struct data *x)
{
    const struct problem *p = &x->p;
    for (int64_t row = 0; p->spread > 0 && row < p->batch * p->q_len; row++) {
        for (int64_t i = 0; i < p->heads * p->d; i++) {
            const int64_t at = row * x->f.q_stride + i;
            const float value = get(x->q, at, p->dtype) * p->spread;
            if (p->dtype == SHOAL_F32)
                ((float *)x->q)[at] = value;
            else
                ((uint16_t *)x->q)[at] = shoali_f32_to_bf16(value);
        }
    }
}

/* How far a sum of scores spread apart may be off: a score is less than 4 spread sqrt(D), it and
 * its way through log2 round to a few times 2^-24 of that. */
static double slack(const struct problem *p)
{
    return 16 * 4 * (double)p->spread * sqrt((double)p->d) * 0x1p-24;
}

static void make(struct data *x, const struct problem *p)
{
    const struct widths w = widths_of(p);
    *x = (struct data){.p = *p};
    make_arrays(x, p, &w);
    const int64_t counts[SAMPLES] = {p->kv_len * 2 / 3, 0, p->kv_len + 7};
    for (int i = 0; i < SAMPLES; i++)
        x->key_count[i] = (int32_t)counts[i];
    x->f = (struct shoali_attention_args){.q = x->q,
                                          .k = x->k,
                                          .v = x->v,
                                          .key_count = p->padded ? x->key_count : NULL,
                                          .out = x->out,
                                          .lse = x->lse,
                                          .batch = p->batch,
                                          .q_len = p->q_len,
                                          .kv_len = p->kv_len,
                                          .heads = p->heads,
                                          .kv_heads = p->kv_heads,
                                          .head_size = p->d,
                                          .q_stride = w.q_stride,
                                          .kv_stride = w.kv_stride,
                                          .out_stride = w.q,
                                          .window = p->window,
                                          .scale = 1 / sqrt((double)p->d),
                                          .causal = p->causal,
                                          .dropout = p->dropout,
                                          .random = shoali_stream_make(11, "dropout", "att", 3),
                                          .mask.first_sample = 5,
                                          .dtype = p->dtype};
    x->b = (struct shoali_attention_backward_args){.q = x->q,
                                                   .k = x->k,
                                                   .v = x->v,
                                                   .key_count = x->f.key_count,
                                                   .out = x->out,
                                                   .dout = x->dout,
                                                   .lse = x->lse,
                                                   .delta = x->delta,
                                                   .dq = x->dq,
                                                   .dk = x->dk,
                                                   .dv = x->dv,
                                                   .batch = p->batch,
                                                   .q_len = p->q_len,
                                                   .kv_len = p->kv_len,
                                                   .heads = p->heads,
                                                   .kv_heads = p->kv_heads,
                                                   .head_size = p->d,
                                                   .q_stride = w.q_stride,
                                                   .kv_stride = w.kv_stride,
                                                   .out_stride = w.q,
                                                   .window = p->window,
                                                   .scale = x->f.scale,
                                                   .causal = p->causal,
                                                   .dropout = p->dropout,
                                                   .random = x->f.random,
                                                   .mask.first_sample = 5,
                                                   .dtype = p->dtype};
    spread_queries(x);
}

static void drop(struct data *x)
{
    if (!x->p.packed) {
        free(x->k);
        free(x->v);
        free(x->dk);
        free(x->dv);
    }
    free(x->q);
    free(x->dq);
    free(x->out);
    free(x->dout);
    free(x->lse);
    free(x->delta);
    free(x->e_lse);
    free(x->e_out);
    free(x->e_dq);
    free(x->e_dk);
    free(x->e_dv);
}

/* Rows of d against dense expectations, largest deviation relative to the largest expected value.
 */
static void compare(const struct data *x, const char *what, const void *got, int64_t stride,
                    const double *expected, int64_t rows, int64_t heads)
{
    double worst = 0, top = 1e-30;
    const double limit = x->p.dtype == SHOAL_F32 ? 3e-6 : x->p.dtype == SHOAL_BF16 ? 1.5e-2 : 2e-3;
    const double bound = limit + slack(&x->p);
    for (int64_t i = 0; i < rows * heads * x->p.d; i++)
        top = fabs(expected[i]) > top ? fabs(expected[i]) : top;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < heads * x->p.d; i++) {
            double off = fabs((double)get(got, r * stride + i, x->p.dtype) -
                              expected[r * heads * x->p.d + i]);
            worst = off > worst || off != off ? off : worst;
        }
    }
    if (!(worst / top <= bound))
        fail_msg("%s: off by %g of the largest value, limit %g", what, worst / top, bound);
}

static void check(const struct data *x)
{
    const struct problem *p = &x->p;
    for (int64_t i = 0; i < p->batch * p->heads * p->q_len; i++) {
        if (x->e_lse[i] == -INFINITY)
            assert_true(x->lse[i] == -INFINITY);
        else if (!(fabs((double)x->lse[i] - x->e_lse[i]) <= 1e-5 + slack(p)))
            fail_msg("lse %d is %g, expected %g", (int)i, (double)x->lse[i], x->e_lse[i]);
    }
    compare(x, "out", x->out, x->f.out_stride, x->e_out, p->batch * p->q_len, p->heads);
    compare(x, "dq", x->dq, x->f.q_stride, x->e_dq, p->batch * p->q_len, p->heads);
    compare(x, "dk", x->dk, x->f.kv_stride, x->e_dk, p->batch * p->kv_len, p->kv_heads);
    compare(x, "dv", x->dv, x->f.kv_stride, x->e_dv, p->batch * p->kv_len, p->kv_heads);
}

static void test_problems(void **state)
{
    (void)state;
    const struct shoali_ops_table *const *tables = shoali_ops_all();
    struct shoali_pool *pool = NULL;
    assert_int_equal(shoali_pool_create(3, &pool), SHOAL_OK);
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        struct data x;
        make(&x, &problems[i]);
        expect(&x);
        size_t bytes =
            (size_t)(x.p.batch * x.p.q_len * x.f.q_stride) * shoal_dtype_bytes(x.p.dtype);
        void *alone = malloc(bytes);
        assert_non_null(alone);
        for (int t = 0; tables[t] != &shoali_ops_ref; t++) {
            if (!attends(tables[t], x.p.dtype))
                continue;
            call(tables[t], &shoali_kernel_attention, &x.f, NULL);
            call(tables[t], &shoali_kernel_attention_backward, &x.b, NULL);
            check(&x);
            memcpy(alone, x.dq, bytes);
            /* Threads claim tiles in order, and in others. */
            for (uint64_t seed = 0; seed < test_repeats(4); seed++) {
                shoali_pool_shuffle(pool, seed * 0x9e3779b97f4a7c15u);
                call(tables[t], &shoali_kernel_attention, &x.f, pool);
                call(tables[t], &shoali_kernel_attention_backward, &x.b, pool);
                assert_memory_equal(alone, x.dq, bytes);
                check(&x);
            }
        }
        free(alone);
        drop(&x);
    }
    shoali_pool_destroy(pool);
}

/* A row has the same bits alone, with the keys it sees, as among the others: so a sequence may be
 * cut anywhere, and a cache of keys gives what the whole sequence gives. */
static void check_rows_alone(const struct shoali_ops_table *table, const struct data *x)
{
    const struct problem *p = &x->p;
    const size_t item = shoal_dtype_bytes(p->dtype), bytes = (size_t)(p->heads * p->d) * item;
    char *out = malloc(bytes);
    float *lse = malloc((size_t)p->heads * sizeof *lse);
    assert_true(out && lse);
    call(table, &shoali_kernel_attention, &x->f, NULL);
    for (int64_t t = 0; t < p->q_len; t++) {
        struct shoali_attention_args one = x->f;
        one.q = (const char *)x->q + (size_t)q_at(x, 0, t, 0) * item;
        one.out = out;
        one.lse = lse;
        one.q_len = 1;
        one.kv_len = t + 1;
        call(table, &shoali_kernel_attention, &one, NULL);
        const char *among = (const char *)x->out + (size_t)out_at(x, 0, t, 0) * item;
        if (memcmp(out, among, bytes) != 0)
            fail_msg("%s: row %d differs", table->name, (int)t);
        for (int64_t h = 0; h < p->heads; h++)
            assert_true(lse[h] == x->lse[h * p->q_len + t]);
    }
    free(lse);
    free(out);
}

static void test_rows_stand_alone(void **state)
{
    (void)state;
    static const struct problem cases[] = {
        {1, 200, 200, 2, 1, 64, 1, 0, SHOAL_F32, false, 20, 0, false},
        {1, 200, 200, 2, 2, 64, 1, 0, SHOAL_BF16, false, 20, 0, false},
        {1, 150, 150, 3, 3, 32, 1, 0, SHOAL_F32, true, 8, 0, false},
        {1, 150, 150, 1, 1, 80, 1, 0, SHOAL_F16, true, 0, 0, false},
        {1, 200, 200, 2, 1, 64, 1, 0, SHOAL_F32, false, 20, 70, false},
        {1, 200, 200, 2, 2, 64, 1, 0, SHOAL_BF16, false, 20, 9, false},
        {1, 200, 200, 2, 2, 24, 1, 0, SHOAL_F32, true, 8, 64, false}};
    const struct shoali_ops_table *const *tables = shoali_ops_all();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct data x;
        make(&x, &cases[i]);
        for (int t = 0; tables[t] != &shoali_ops_ref; t++)
            if (attends(tables[t], x.p.dtype))
                check_rows_alone(tables[t], &x);
        drop(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_problems),
        cmocka_unit_test(test_rows_stand_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
