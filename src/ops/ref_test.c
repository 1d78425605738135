/* The oracle itself, kernels with a gradient: against naive formulas in double, and its gradients
 * against central differences. */
#include "ops/conformance/conformance.h"
#include "ops/ref/ref.h"

static struct trial memory; /* arena and random numbers for one test */

static int setup(void **state)
{
    (void)state;
    memset(&memory, 0, sizeof memory);
    shoali_arena_init(&memory.arena);
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    shoali_arena_fini(&memory.arena);
    return 0;
}
static double *doubles(int64_t count, double low, double high)
{
    return floats_between(&memory, count, SHOAL_F64, low, high);
}
/* d(sum w out)/dx by central differences must be `gradient`. `forward` computes `out` from what x
 * points to. */
struct function {
    void (*forward)(const void *args);
    const void *args;
    double *x;
    int64_t count;
    const double *out, *weight;
    int64_t out_count;
};
static double weighted(const struct function *f)
{
    double sum = 0;
    f->forward(f->args);
    for (int64_t i = 0; i < f->out_count; i++)
        sum += f->weight[i] * f->out[i];
    return sum;
}
static void check_gradient(const struct function *f, const double *gradient, const char *what)
{
    const double h = 1e-5; /* error about h^2 f''' / 6 + 1e-16 / h */
    for (int64_t i = 0; i < f->count; i++) {
        const double x = f->x[i];
        f->x[i] = x + h;
        const double above = weighted(f);
        f->x[i] = x - h;
        const double below = weighted(f);
        f->x[i] = x;
        assert_near(gradient[i], (above - below) / (2 * h), 2e-8, what);
    }
    (void)weighted(f); /* outputs of the unchanged x */
}

/* ---- gemm ---- */

static double naive_gelu(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static void test_gemm(void **state)
{
    (void)state;
    enum { M = 5, N = 7, K = 19 };
    for (int flags = 0; flags < 4; flags++) {
        const double *a = doubles(M * K, -1, 1), *b = doubles(K * N, -1, 1);
        const double *bias = doubles(N, -1, 1), *residual = doubles(M * N, -1, 1);
        const double *old = doubles(M * N, -1, 1);
        double *c = doubles(M * N, 0, 1), *preact = doubles(M * N, 0, 1);
        memcpy(c, old, sizeof(double) * M * N);
        const struct shoali_gemm_args args = {
            .a = a,
            .b = b,
            .c = c,
            .bias = bias,
            .residual = residual,
            .preact = preact,
            .m = M,
            .n = N,
            .k = K,
            .lda = flags & 1 ? M : K,
            .ldb = flags & 2 ? K : N,
            .ldc = N,
            .trans_a = flags & 1,
            .trans_b = flags & 2,
            .accumulate = 1,
            .activation = SHOALI_ACT_GELU_ERF,
            .dtype_ab = SHOAL_F64,
            .dtype_c = SHOAL_F64,
            .dtype_bias = SHOAL_F64,
        };
        shoali_ref_gemm(&args, NULL);
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++) {
                double v = old[m * N + n] + bias[n];
                for (int k = 0; k < K; k++)
                    v +=
                        a[flags & 1 ? k * M + m : m * K + k] * b[flags & 2 ? n * K + k : k * N + n];
                assert_near(preact[m * N + n], v, 1e-14, "preact");
                assert_near(c[m * N + n], naive_gelu(v) + residual[m * N + n], 1e-14, "c");
            }
    }
}

/* Order and rounding, on numbers where another order gives other bits. */
static void test_dot_order(void **state)
{
    (void)state;
    enum { K = 100 };
    const float *a = floats(&memory, K, SHOAL_F32), *b = floats(&memory, K, SHOAL_F32);
    float c = 0, forward = 0, backward = 0;
    const struct shoali_gemm_args args = {
        .a = a, .b = b, .c = &c, .m = 1, .n = 1, .k = K, .lda = K, .ldb = 1, .ldc = 1};
    shoali_ref_gemm(&args, NULL);
    for (int k = 0; k < K; k++)
        forward = fmaf(a[k], b[k], forward);
    for (int k = K - 1; k >= 0; k--)
        backward = fmaf(a[k], b[k], backward);
    assert_true(forward != backward);
    assert_true(c == forward);
}

/* ---- norm ---- */

enum { ROWS = 3, COLUMNS = 19 };

static void forward_norm(const void *args)
{
    shoali_ref_norm(args, NULL);
}

static void check_norm(int32_t rms)
{
    double *x = doubles(ROWS * COLUMNS, -1, 3), *gamma = doubles(COLUMNS, -1, 1);
    double *beta = doubles(COLUMNS, -1, 1), *y = doubles(ROWS * COLUMNS, 0, 0);
    double *mean = doubles(ROWS, 0, 0), *rstd = doubles(ROWS, 0, 0);
    const struct shoali_norm_args args = {
        .x = x,
        .gamma = gamma,
        .beta = beta,
        .y = y,
        .mean = (float *)mean,
        .rstd = (float *)rstd,
        .rows = ROWS,
        .columns = COLUMNS,
        .eps = 1e-3,
        .rms = rms,
        .dtype = SHOAL_F64,
    };
    shoali_ref_norm(&args, NULL);
    for (int r = 0; r < ROWS; r++) {
        double m = 0, v = 0;
        for (int c = 0; c < COLUMNS && !rms; c++)
            m += x[r * COLUMNS + c] / COLUMNS;
        for (int c = 0; c < COLUMNS; c++)
            v += pow(x[r * COLUMNS + c] - m, 2) / COLUMNS;
        for (int c = 0; c < COLUMNS; c++)
            assert_near(y[r * COLUMNS + c],
                        (x[r * COLUMNS + c] - m) / sqrt(v + 1e-3) * gamma[c] + beta[c], 1e-13, "y");
    }
    const double *dy = doubles(ROWS * COLUMNS, -1, 1);
    double *dx = doubles(ROWS * COLUMNS, 0, 0);
    double *dgamma = doubles(COLUMNS, 0, 0), *dbeta = doubles(COLUMNS, 0, 0);
    const struct shoali_norm_backward_args back = {
        .x = x,
        .gamma = gamma,
        .dy = dy,
        .mean = (float *)mean,
        .rstd = (float *)rstd,
        .dx = dx,
        .dgamma = (float *)dgamma,
        .dbeta = (float *)dbeta,
        .rows = ROWS,
        .columns = COLUMNS,
        .rms = rms,
        .dtype = SHOAL_F64,
    };
    shoali_ref_norm_backward(&back, NULL);
    struct function f = {forward_norm, &args, x, ROWS * COLUMNS, y, dy, ROWS * COLUMNS};
    check_gradient(&f, dx, "dx of norm");
    f.x = gamma;
    f.count = COLUMNS;
    check_gradient(&f, dgamma, "dgamma");
    f.x = beta;
    check_gradient(&f, dbeta, "dbeta");
}
static void test_layer_norm(void **state)
{
    (void)state;
    check_norm(0);
}
static void test_rms_norm(void **state)
{
    (void)state;
    check_norm(1);
}

/* ---- attention ---- */

static void forward_attention(const void *args)
{
    shoali_ref_attention(args, NULL);
}

/* Scores as a matrix, softmax by its definition. */
static void naive_attention_row(const struct shoali_attention_args *a, int64_t b, int64_t h,
                                int64_t t, double *out)
{
    const double *q = a->q, *k = a->k, *v = a->v;
    const int64_t kv_head = h / (a->heads / a->kv_heads), size = a->head_size;
    double weight[16], sum = 0;
    for (int64_t j = 0; j < a->kv_len; j++) {
        double s = 0;
        for (int64_t d = 0; d < size; d++)
            s += q[(b * a->q_len + t) * a->q_stride + h * size + d] *
                 k[(b * a->kv_len + j) * a->kv_stride + kv_head * size + d];
        const int64_t own = t + a->kv_len - a->q_len;
        const bool seen = (!a->causal || j <= own) && (a->window == 0 || j > own - a->window) &&
                          (a->key_count == NULL || j < a->key_count[b]);
        weight[j] = seen ? exp(s * a->scale) : 0;
        sum += weight[j];
    }
    for (int64_t d = 0; d < size; d++) {
        out[d] = 0;
        for (int64_t j = 0; j < a->kv_len; j++) {
            const uint64_t row =
                (uint64_t)(((a->mask.first_sample + b) * a->heads + h) * a->q_len + t);
            const uint64_t index = row * (uint64_t)a->kv_len + (uint64_t)j;
            const bool kept =
                shoali_random_dense_u32(&a->random, index) >= shoali_dropout_threshold(a->dropout);
            if (kept)
                out[d] += weight[j] / sum / (1 - (double)a->dropout) *
                          v[(b * a->kv_len + j) * a->kv_stride + kv_head * size + d];
        }
    }
}

enum { B = 2, T = 5, S = 7, H = 4, G = 2, D = 3, PAD = 2 };
enum { Q_COUNT = B * T * (H * D + PAD), KV_COUNT = B * S * (G * D + PAD) };

/* q, k, v are what args points to, writable. */
static void check_attention_gradients(const struct shoali_attention_args *args, double *q,
                                      double *k, double *v)
{
    const double *dout = doubles(B * T * H * D, -1, 1);
    double *dq = doubles(Q_COUNT, 0, 0), *dk = doubles(KV_COUNT, 0, 0),
           *dv = doubles(KV_COUNT, 0, 0);
    const struct shoali_attention_backward_args back = {
        .q = args->q,
        .k = args->k,
        .v = args->v,
        .key_count = args->key_count,
        .out = args->out,
        .dout = dout,
        .lse = args->lse,
        .delta = (float *)doubles(B * H * T, 0, 0),
        .dq = dq,
        .dk = dk,
        .dv = dv,
        .batch = B,
        .q_len = T,
        .kv_len = S,
        .heads = H,
        .kv_heads = G,
        .head_size = D,
        .q_stride = args->q_stride,
        .kv_stride = args->kv_stride,
        .out_stride = args->out_stride,
        .window = args->window,
        .scale = args->scale,
        .causal = args->causal,
        .dropout = args->dropout,
        .random = args->random,
        .mask.first_sample = 3,
        .dtype = SHOAL_F64,
    };
    shoali_ref_attention_backward(&back, NULL);
    struct function f = {forward_attention, args, q, Q_COUNT, args->out, dout, B * T * H * D};
    check_gradient(&f, dq, "dq"); /* the padding's gradient is the 0 it was filled with */
    f.x = k;
    f.count = KV_COUNT;
    check_gradient(&f, dk, "dk");
    f.x = v;
    check_gradient(&f, dv, "dv");
}
static void check_attention(int32_t causal, float dropout, int64_t window, const int32_t *key_count)
{
    double *q = doubles(Q_COUNT, -1, 1), *k = doubles(KV_COUNT, -1, 1),
           *v = doubles(KV_COUNT, -1, 1);
    double *out = doubles(B * T * H * D, 0, 0), *lse = doubles(B * H * T, 0, 0), row[D];
    const struct shoali_attention_args args = {
        .q = q,
        .k = k,
        .v = v,
        .key_count = key_count,
        .out = out,
        .lse = (float *)lse,
        .batch = B,
        .q_len = T,
        .kv_len = S,
        .heads = H,
        .kv_heads = G,
        .head_size = D,
        .q_stride = H * D + PAD,
        .kv_stride = G * D + PAD,
        .out_stride = H * D,
        .window = window,
        .scale = 0.7,
        .causal = causal,
        .dropout = dropout,
        .random = next_stream(&memory),
        .mask.first_sample = 3,
        .dtype = SHOAL_F64,
    };
    shoali_ref_attention(&args, NULL);
    for (int64_t i = 0; i < B * T * H; i++) {
        naive_attention_row(&args, i / H / T, i % H, i / H % T, row);
        for (int64_t d = 0; d < D; d++)
            assert_near(out[i * D + d], row[d], 1e-13, "out");
    }
    check_attention_gradients(&args, q, k, v);
}
static void test_attention(void **state)
{
    (void)state;
    const int32_t counts[B] = {4, 6};
    check_attention(0, 0.0f, 0, NULL);
    check_attention(1, 0.0f, 0, NULL);
    check_attention(1, 0.4f, 0, NULL);
    check_attention(1, 0.0f, 3, NULL);
    check_attention(1, 0.4f, 1, NULL);
    check_attention(0, 0.0f, 0, counts);
    check_attention(1, 0.0f, 4, counts);
}

/* A query that sees no key: zeros, not NaN; keys that nobody sees: zero gradients. */
static void test_attention_without_keys(void **state)
{
    (void)state;
    const float q[3] = {1, 2, 3}, k[1] = {1}, v[1] = {5};
    const int32_t none[1] = {0};
    float out[3], lse[3];
    struct shoali_attention_args args = {.q = q,
                                         .k = k,
                                         .v = v,
                                         .out = out,
                                         .lse = lse,
                                         .batch = 1,
                                         .q_len = 3,
                                         .kv_len = 1,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .head_size = 1,
                                         .q_stride = 1,
                                         .kv_stride = 1,
                                         .out_stride = 1,
                                         .scale = 1,
                                         .causal = 1};
    shoali_ref_attention(&args, NULL);
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 5);
    assert_true(lse[0] == -INFINITY && lse[2] == 3);
    args.key_count = none;
    shoali_ref_attention(&args, NULL);
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0);
    assert_true(lse[0] == -INFINITY && lse[2] == -INFINITY);
}

/* ---- losses ---- */

static void forward_cross_entropy(const void *args)
{
    shoali_ref_cross_entropy(args, NULL);
}

/* `others` of each class but the target. */
static void check_cross_entropy(double others)
{
    enum { STRIDE = COLUMNS + 2 };
    const struct shoali_label_probabilities labels = {others > 0 ? 1 - others * (COLUMNS - 1) : 0,
                                                      others};
    double *logits = doubles(ROWS * STRIDE, -3, 3), *loss = doubles(ROWS, 0, 0);
    double *lse = doubles(ROWS, 0, 0), mean = 0, count = 0, dloss = 1.5;
    const int32_t targets[ROWS] = {4, -1, COLUMNS - 1};
    const struct shoali_cross_entropy_args args = {
        logits, targets, (float *)loss, (float *)lse, ROWS, COLUMNS, STRIDE, SHOAL_F64, labels};
    shoali_ref_cross_entropy(&args, NULL);
    double total = 0;
    for (int r = 0; r < ROWS; r++) {
        double sum = 0, want = 0;
        for (int c = 0; c < COLUMNS; c++)
            sum += exp(logits[r * STRIDE + c]);
        for (int c = 0; c < COLUMNS && targets[r] >= 0; c++) {
            const double target = 1 - others * (COLUMNS - 1);
            want += (c == targets[r] ? target : others) * (log(sum) - logits[r * STRIDE + c]);
        }
        assert_near(loss[r], want, 1e-14, "loss");
        total += want;
    }
    const struct shoali_loss_mean_args mean_args = {(float *)loss,   targets, (float *)&mean,
                                                    (float *)&count, ROWS,    SHOAL_F64};
    shoali_ref_loss_mean(&mean_args, NULL);
    assert_near(mean, total / 2, 1e-14, "mean");
    assert_true(count == 2);
    double *dlogits = doubles(ROWS * STRIDE, 0, 0);
    const double weight[ROWS] = {dloss / 2, dloss / 2, dloss / 2};
    const struct shoali_cross_entropy_backward_args back = {
        logits, targets, (float *)lse, (float *)&dloss, (float *)&count, dlogits,
        ROWS,   COLUMNS, STRIDE,       SHOAL_F64,       labels};
    shoali_ref_cross_entropy_backward(&back, NULL);
    const struct function f = {
        forward_cross_entropy, &args, logits, ROWS * STRIDE, loss, weight, ROWS};
    check_gradient(&f, dlogits, "dlogits");
}

static void test_cross_entropy(void **state)
{
    (void)state;
    check_cross_entropy(0);
    check_cross_entropy(0.02);
}

/* The last class is one, the number behind it is none: NaN, in a plain loss and in one by tiles. */
static void test_targets_at_the_end(void **state)
{
    (void)state;
    enum { CLASSES = 5 };
    double *logits = doubles(3 * CLASSES, -3, 3), loss[3], lse[3];
    const int32_t targets[3] = {CLASSES - 1, CLASSES, -1};
    const struct shoali_cross_entropy_args args = {logits,  targets, (float *)loss, (float *)lse, 3,
                                                   CLASSES, CLASSES, SHOAL_F64,     {0, 0}};
    shoali_ref_cross_entropy(&args, NULL);
    assert_near(loss[0], lse[0] - logits[CLASSES - 1], 1e-14, "the last class");
    assert_true(isnan(loss[1]));
    assert_true(loss[2] == 0);
}

static void forward_softmax(const void *args)
{
    shoali_ref_softmax(args, NULL);
}

static void test_softmax(void **state)
{
    (void)state;
    double *x = doubles(ROWS * COLUMNS, -3, 3), *y = doubles(ROWS * COLUMNS, 0, 0);
    const double *dy = doubles(ROWS * COLUMNS, -1, 1);
    double *dx = doubles(ROWS * COLUMNS, 0, 0);
    const struct shoali_softmax_args args = {
        .x = x, .y = y, .rows = ROWS, .columns = COLUMNS, .dtype = SHOAL_F64};
    shoali_ref_softmax(&args, NULL);
    const struct shoali_softmax_args back = {.x = y,
                                             .dy = dy,
                                             .y = dx,
                                             .rows = ROWS,
                                             .columns = COLUMNS,
                                             .backward = 1,
                                             .dtype = SHOAL_F64};
    shoali_ref_softmax(&back, NULL);
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int c = 0; c < COLUMNS; c++)
            sum += exp(x[r * COLUMNS + c]);
        for (int c = 0; c < COLUMNS; c++)
            assert_near(y[r * COLUMNS + c], exp(x[r * COLUMNS + c]) / sum, 1e-14, "softmax");
    }
    const struct function f = {forward_softmax, &args, x, ROWS * COLUMNS, y, dy, ROWS * COLUMNS};
    check_gradient(&f, dx, "dx of softmax");
}

/* ---- embedding ---- */

static void forward_embedding(const void *args)
{
    shoali_ref_embedding(args, NULL);
}

static void test_embedding(void **state)
{
    (void)state;
    enum { R = 7, C = 3, V = 5, P = 6, PERIOD = 4 };
    double *table = doubles(V * C, -1, 1), *positions = doubles(P * C, -1, 1);
    double *out = doubles(R * C, 0, 0), *dtable = doubles(V * C, 0, 0);
    double *dpositions = doubles(P * C, 0, 0);
    const double *dout = doubles(R * C, -1, 1);
    const int32_t ids[R] = {0, 4, 4, 1, 0, 2, 4};
    int64_t bad_id = 0;
    const struct shoali_embedding_args args = {ids, table,  positions, out,       &bad_id, R, C,
                                               V,   PERIOD, 2,         SHOAL_F64, 0,       0};
    shoali_ref_embedding(&args, NULL);
    assert_int_equal(bad_id, 0);
    for (int i = 0; i < R * C; i++)
        assert_true(out[i] ==
                    table[ids[i / C] * C + i % C] + positions[(i / C % PERIOD + 2) * C + i % C]);
    const struct shoali_embedding_backward_args back = {
        ids, dout, (float *)dtable, (float *)dpositions, R, C, V, P, PERIOD, 2, 0, 0, SHOAL_F64, 0};
    shoali_ref_embedding_backward(&back, NULL);
    struct function f = {forward_embedding, &args, table, V * C, out, dout, R * C};
    check_gradient(&f, dtable, "dtable");
    f.x = positions;
    f.count = P * C;
    check_gradient(&f, dpositions, "dpositions");
}

/* ---- element-wise ---- */

static void forward_unary(const void *args)
{
    shoali_ref_unary(args, NULL);
}

static void test_unary(void **state)
{
    (void)state;
    enum { N = 40 };
    for (int kind = SHOALI_NEG; kind <= SHOALI_ADD_SCALAR; kind++) {
        const bool positive = kind == SHOALI_LOG || kind == SHOALI_SQRT;
        double *x = doubles(N, positive ? 0.5 : -4, 4), *y = doubles(N, 0, 0);
        const double *dy = doubles(N, -1, 1);
        double *dx = doubles(N, 0, 0);
        const struct shoali_unary_args args = {.x = x,
                                               .y = y,
                                               .count = N,
                                               .alpha = 0.3,
                                               .kind = (enum shoali_unary)kind,
                                               .dtype = SHOAL_F64};
        struct shoali_unary_args back = args;
        back.y = dx;
        back.dy = dy;
        back.backward = 1;
        shoali_ref_unary(&back, NULL);
        const struct function f = {forward_unary, &args, x, N, y, dy, N};
        check_gradient(&f, dx, "dx of unary");
        for (int i = 0; i < N; i++) {
            if (kind == SHOALI_GELU_ERF)
                assert_near(y[i], naive_gelu(x[i]), 1e-14, "gelu");
            if (kind == SHOALI_GELU_TANH)
                assert_near(y[i],
                            0.5 * x[i] *
                                (1 + tanh(sqrt(2 / M_PI) * (x[i] + 0.044715 * pow(x[i], 3)))),
                            1e-14, "gelu_tanh");
            if (kind == SHOALI_SILU)
                assert_near(y[i], x[i] / (1 + exp(-x[i])), 1e-14, "silu");
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_gemm),          TEST(test_dot_order),
        TEST(test_layer_norm),    TEST(test_rms_norm),
        TEST(test_attention),     TEST(test_attention_without_keys),
        TEST(test_cross_entropy), TEST(test_targets_at_the_end),
        TEST(test_softmax),       TEST(test_embedding),
        TEST(test_unary),
    };
    return cmocka_run_group_tests_name("ref", tests, NULL, NULL);
}
