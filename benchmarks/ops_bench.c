/* ops_bench - for developers of kernels: speed of each kernel against the machine's limit measured
 * in the same run.
 *
 *   ops_bench [gemm|attention|stream] [--threads N] [--dtype f32|bf16] [--ops NAME] [--seconds S]
 *
 * The limit is a loop of independent FMAs (or bf16 dot products, twice that) on one thread times
 * the threads, taken again before each shape; for streaming kernels it is an in-place axpy of this
 * file over 256 MiB. Times are the best of many repetitions: on a shared machine only the best is
 * comparable.
 */
#include "base/base.h"
#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20)

struct options {
    const char *what, *ops_name;
    int32_t threads;
    shoal_dtype dtype;
    double seconds; /* per shape */
};
struct bench {
    struct options options;
    struct shoali_ops ops;
    struct shoali_pool *pool;
};

static double now(void)
{
    return (double)shoali_now_ns() * 1e-9;
}

/* ---- limits -----------------------------------------------------------------------------------
 */

#if defined(__x86_64__)
/* Twelve chains in one statement: an array would be kept in memory. */
#define FMA_LINE(n) "vfmadd231ps %12, %13, %" #n "\n\t"
#define FMA_ALL \
    FMA_LINE(0) \
    FMA_LINE(1) \
    FMA_LINE(2) \
    FMA_LINE(3) \
    FMA_LINE(4) \
    FMA_LINE(5) FMA_LINE(6) FMA_LINE(7) FMA_LINE(8) FMA_LINE(9) FMA_LINE(10) FMA_LINE(11)

__attribute__((target("avx512f"))) static double fma_flops_512(int64_t rounds)
{
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f), a, b, c, d, e, f, g, h, i, j, k,
           l;
    a = b = c = d = e = f = g = h = i = j = k = l = x;
    for (int64_t r = 0; r < rounds; r++)
        __asm__ volatile(FMA_ALL
                         : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h),
                           "+v"(i), "+v"(j), "+v"(k), "+v"(l)
                         : "v"(x), "v"(y));
    return 12.0 * 32 * (double)rounds;
}

__attribute__((target("avx2,fma"))) static double fma_flops_256(int64_t rounds)
{
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f), a, b, c, d, e, f, g, h, i, j, k,
           l;
    a = b = c = d = e = f = g = h = i = j = k = l = x;
    for (int64_t r = 0; r < rounds; r++)
        __asm__ volatile(FMA_ALL
                         : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h),
                           "+x"(i), "+x"(j), "+x"(k), "+x"(l)
                         : "x"(x), "x"(y));
    return 12.0 * 16 * (double)rounds;
}
#endif

/* GFLOP/s of one thread, now; 0 where no limit is known. */
static double fma_peak(void)
{
    double best = 0;
#if defined(__x86_64__)
    const bool wide = __builtin_cpu_supports("avx512f");
    if (!wide && !__builtin_cpu_supports("fma"))
        return 0;
    for (int repeat = 0; repeat < 5; repeat++) {
        double start = now();
        double flops = wide ? fma_flops_512(400000) : fma_flops_256(400000);
        double rate = flops / (now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
#endif
    return best;
}

/* ---- matrix products --------------------------------------------------------------------------
 */

struct gemm_shape {
    const char *name;
    int32_t trans_a, trans_b;
    int64_t m, n, k;
};
static const struct gemm_shape gemm_shapes[] = {
    {"124M qkv forward", 0, 1, 1024, 2304, 768},    {"124M proj forward", 0, 1, 1024, 768, 768},
    {"124M fc1 forward", 0, 1, 1024, 3072, 768},    {"124M fc2 forward", 0, 1, 1024, 768, 3072},
    {"124M head forward", 0, 1, 1024, 50257, 768},  {"124M fc1 forward NN", 0, 0, 1024, 3072, 768},
    {"124M fc2 forward NN", 0, 0, 1024, 768, 3072}, {"124M qkv dx", 0, 0, 1024, 768, 2304},
    {"124M fc1 dx", 0, 0, 1024, 768, 3072},         {"124M fc2 dx", 0, 0, 1024, 3072, 768},
    {"124M head dx", 0, 0, 1024, 768, 50257},       {"124M qkv dw", 1, 0, 2304, 768, 1024},
    {"124M fc1 dw", 1, 0, 3072, 768, 1024},         {"124M fc2 dw", 1, 0, 768, 3072, 1024},
    {"124M head dw", 1, 0, 50257, 768, 1024},       {"tiny qkv forward", 0, 1, 768, 384, 128},
    {"tiny proj forward", 0, 1, 768, 128, 128},     {"tiny fc1 forward", 0, 1, 768, 512, 128},
    {"tiny fc2 forward", 0, 1, 768, 128, 512},      {"tiny head forward", 0, 1, 768, 65, 128},
    {"tiny fc1 forward NN", 0, 0, 768, 512, 128},   {"tiny fc2 forward NN", 0, 0, 768, 128, 512},
    {"tiny qkv dx", 0, 0, 768, 128, 384},           {"tiny fc2 dx", 0, 0, 768, 512, 128},
    {"tiny head dx", 0, 0, 768, 128, 65},           {"tiny qkv dw", 1, 0, 384, 128, 768},
    {"tiny fc1 dw", 1, 0, 512, 128, 768},           {"tiny fc2 dw", 1, 0, 128, 512, 768},
    {"tiny head dw", 1, 0, 65, 128, 768},           {"one token NN", 0, 0, 1, 3072, 768},
    {"one token NT", 0, 1, 1, 3072, 768},
};

/* The best table's kernel for the dtype, from the member at `offset` of the table. */
static shoali_kernel_fn find_kernel(const struct bench *bench, size_t offset)
{
    for (int i = 0; bench->ops.chain[i]; i++) {
        const struct shoali_ops_table *table = bench->ops.chain[i];
        shoali_kernel_fn fn;
        memcpy(&fn, (const char *)table + offset, sizeof fn);
        if (fn && (table->dtypes >> bench->options.dtype & 1))
            return fn;
    }
    return NULL;
}

static void *filled(size_t count, shoal_dtype dtype)
{
    size_t bytes = (count * shoal_dtype_bytes(dtype) + 127) / 64 * 64;
    const size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    bytes = (bytes + align - 1) / align * align;
    char *memory = aligned_alloc(align, bytes);
    uint32_t state = 1;
    if (!memory)
        abort();
    if (align == HUGE_PAGE)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        float value = (float)(int32_t)(state >> 8) / 16777216.0f - 0.5f;
        uint16_t half = dtype == SHOAL_BF16 ? shoali_f32_to_bf16(value) : shoali_f32_to_f16(value);
        if (dtype == SHOAL_F32)
            memcpy(memory + 4 * i, &value, 4);
        else
            memcpy(memory + 2 * i, &half, 2);
    }
    return memory;
}

static double best_time(const struct bench *bench, shoali_kernel_fn fn, const void *args)
{
    double best = 1e30, begin = now();
    fn(args, bench->pool);
    for (int i = 0; i < 3 || now() - begin < bench->options.seconds; i++) {
        double start = now();
        fn(args, bench->pool);
        double taken = now() - start;
        best = taken < best ? taken : best;
    }
    return best;
}

static void bench_gemm(const struct bench *bench)
{
    const shoal_dtype dtype = bench->options.dtype;
    shoali_kernel_fn fn = find_kernel(bench, offsetof(struct shoali_ops_table, gemm));
    for (size_t i = 0; i < sizeof gemm_shapes / sizeof gemm_shapes[0]; i++) {
        const struct gemm_shape *s = &gemm_shapes[i];
        void *a = filled((size_t)(s->m * s->k), dtype), *b = filled((size_t)(s->k * s->n), dtype);
        /* gradients of weights are fp32 */
        shoal_dtype dtype_c = s->trans_a ? SHOAL_F32 : dtype;
        void *c = filled((size_t)(s->m * s->n), dtype_c);
        struct shoali_gemm_args args = {.a = a,
                                        .b = b,
                                        .c = c,
                                        .m = s->m,
                                        .n = s->n,
                                        .k = s->k,
                                        .lda = s->trans_a ? s->m : s->k,
                                        .ldb = s->trans_b ? s->k : s->n,
                                        .ldc = s->n,
                                        .trans_a = s->trans_a,
                                        .trans_b = s->trans_b,
                                        .dtype_ab = dtype,
                                        .dtype_c = dtype_c,
                                        .dtype_bias = dtype};
        double peak = fma_peak() * bench->options.threads * (dtype == SHOAL_BF16 ? 2 : 1);
        double taken = best_time(bench, fn, &args);
        double rate = 2.0 * (double)s->m * (double)s->n * (double)s->k / taken * 1e-9;
        printf("%-22s %c%c %6lld %6lld %6lld %10.1f us %8.1f GFLOP/s %6.1f %% of %.0f\n", s->name,
               s->trans_a ? 'T' : 'N', s->trans_b ? 'T' : 'N', (long long)s->m, (long long)s->n,
               (long long)s->k, taken * 1e6, rate, peak > 0 ? 100 * rate / peak : 0, peak);
        fflush(stdout);
        free(a);
        free(b);
        free(c);
    }
}

/* ---- attention --------------------------------------------------------------------------------
 */

struct attention_shape {
    int64_t batch, heads, length, d;
};
static const struct attention_shape attention_shapes[] = {
    {12, 4, 64, 32}, {4, 12, 256, 64}, {1, 12, 1024, 64}, {1, 4, 2048, 64}, {1, 4, 1024, 128},
};

/* Causal: only the products of seen keys count; two in forward, five in backward. */
static void report_attention(const struct attention_shape *s, const char *what, int products,
                             double taken, double peak)
{
    double flops =
        (double)products * (double)(s->batch * s->heads * s->length * (s->length + 1) * s->d);
    double rate = flops / taken * 1e-9;
    printf("%-22s B %3lld H %3lld T %5lld D %4lld %10.1f us %8.1f GFLOP/s %6.1f %% of %.0f\n", what,
           (long long)s->batch, (long long)s->heads, (long long)s->length, (long long)s->d,
           taken * 1e6, rate, peak > 0 ? 100 * rate / peak : 0, peak);
    fflush(stdout);
}

static void bench_attention(const struct bench *bench)
{
    const shoal_dtype dtype = bench->options.dtype;
    shoali_kernel_fn forward = find_kernel(bench, offsetof(struct shoali_ops_table, attention));
    shoali_kernel_fn backward =
        find_kernel(bench, offsetof(struct shoali_ops_table, attention_backward));
    const size_t element = shoal_dtype_bytes(dtype);
    for (size_t i = 0; i < sizeof attention_shapes / sizeof attention_shapes[0]; i++) {
        const struct attention_shape *s = &attention_shapes[i];
        const int64_t width = s->heads * s->d, tokens = s->batch * s->length;
        char *qkv = filled((size_t)(tokens * 3 * width), dtype),
             *dqkv = filled((size_t)(tokens * 3 * width), dtype);
        void *out = filled((size_t)(tokens * width), dtype),
             *dout = filled((size_t)(tokens * width), dtype);
        float *lse = filled((size_t)(tokens * s->heads), SHOAL_F32),
              *delta = filled((size_t)(tokens * s->heads), SHOAL_F32);
        struct shoali_attention_args f = {.q = qkv,
                                          .k = qkv + element * (size_t)width,
                                          .v = qkv + 2 * element * (size_t)width,
                                          .out = out,
                                          .lse = lse,
                                          .batch = s->batch,
                                          .q_len = s->length,
                                          .kv_len = s->length,
                                          .heads = s->heads,
                                          .kv_heads = s->heads,
                                          .head_size = s->d,
                                          .q_stride = 3 * width,
                                          .kv_stride = 3 * width,
                                          .out_stride = width,
                                          .scale = 0.125,
                                          .causal = 1,
                                          .dtype = dtype};
        struct shoali_attention_backward_args b = {.q = f.q,
                                                   .k = f.k,
                                                   .v = f.v,
                                                   .out = out,
                                                   .dout = dout,
                                                   .lse = lse,
                                                   .delta = delta,
                                                   .dq = dqkv,
                                                   .dk = dqkv + element * (size_t)width,
                                                   .dv = dqkv + 2 * element * (size_t)width,
                                                   .batch = s->batch,
                                                   .q_len = s->length,
                                                   .kv_len = s->length,
                                                   .heads = s->heads,
                                                   .kv_heads = s->heads,
                                                   .head_size = s->d,
                                                   .q_stride = 3 * width,
                                                   .kv_stride = 3 * width,
                                                   .out_stride = width,
                                                   .scale = 0.125,
                                                   .causal = 1,
                                                   .dtype = dtype};
        double peak = fma_peak() * bench->options.threads * (dtype == SHOAL_BF16 ? 2 : 1);
        report_attention(s, "attention forward", 2, best_time(bench, forward, &f), peak);
        report_attention(s, "attention backward", 5, best_time(bench, backward, &b), peak);
        free(qkv);
        free(dqkv);
        free(out);
        free(dout);
        free(lse);
        free(delta);
    }
}

/* ---- streams ----------------------------------------------------------------------------------
 */

#define STREAM_COUNT ((int64_t)16 << 20)

struct axpy {
    float *x;
    const float *y;
};
static void axpy_part(void *arg, int32_t index, int32_t count)
{
    const struct axpy *work = arg;
    int64_t begin, end;
    shoali_pool_slice(STREAM_COUNT, 1024, index, count, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        work->x[i] += 0.5f * work->y[i];
}

/* GB/s of x += a y, 12 bytes per element. */
static double axpy_limit(const struct bench *bench, float *x, const float *y)
{
    struct axpy work = {x, y};
    double best = 0;
    for (int i = 0; i < 5; i++) {
        double start = now();
        shoali_pool_run(bench->pool, axpy_part, &work);
        double rate = 12.0 * (double)STREAM_COUNT / (now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

static void report_stream(const struct bench *bench, const char *what, size_t offset,
                          const void *args, int64_t count, double bytes, double limit)
{
    shoali_kernel_fn fn = find_kernel(bench, offset);
    double taken = best_time(bench, fn, args), rate = bytes * (double)count / taken * 1e-9;
    printf("%-22s %10lld elements %10.1f us %8.3f ns each %7.1f GB/s %6.1f %% of %.1f\n", what,
           (long long)count, taken * 1e6, taken / (double)count * 1e9, rate, 100 * rate / limit,
           limit);
    fflush(stdout);
}
#define STREAM(kernel, args, count, bytes)                                                   \
    report_stream(bench, #kernel, offsetof(struct shoali_ops_table, kernel), &(args), count, \
                  bytes, limit)

static void bench_rows(const struct bench *bench, float *const x[5], double limit)
{
    const int64_t rows = 1024, columns = 768, count = rows * columns, vocabulary = 8192;
    static int32_t targets[1024];
    float mean_and_count[2] = {1, 1024};
    struct shoali_norm_args norm = {.x = x[0],
                                    .gamma = x[1],
                                    .beta = x[1],
                                    .y = x[2],
                                    .mean = x[3],
                                    .rstd = x[4],
                                    .rows = rows,
                                    .columns = columns,
                                    .eps = 1e-5};
    STREAM(norm, norm, count, 8);
    struct shoali_norm_backward_args back = {.x = x[0],
                                             .gamma = x[1],
                                             .dy = x[0],
                                             .mean = x[3],
                                             .rstd = x[4],
                                             .dx = x[2],
                                             .dgamma = x[1] + columns,
                                             .dbeta = x[1] + 2 * columns,
                                             .rows = rows,
                                             .columns = columns};
    STREAM(norm_backward, back, count, 12);
    struct shoali_unary_args gelu = {
        .x = x[0], .y = x[1], .count = count, .kind = SHOALI_GELU_TANH};
    STREAM(unary, gelu, count, 8);
    struct shoali_unary_args gelu_back = {
        .x = x[0], .dy = x[2], .y = x[1], .count = count, .kind = SHOALI_GELU_TANH, .backward = 1};
    STREAM(unary, gelu_back, count, 12);
    struct shoali_dropout_args dropout = {
        .x = x[0], .residual = x[2], .y = x[1], .count = count, .probability = 0.1f};
    STREAM(dropout, dropout, count, 12);
    struct shoali_cross_entropy_args loss = {.logits = x[0],
                                             .targets = targets,
                                             .loss = x[3],
                                             .lse = x[4],
                                             .rows = rows,
                                             .columns = vocabulary,
                                             .stride = vocabulary};
    STREAM(cross_entropy, loss, rows * vocabulary, 4);
    struct shoali_cross_entropy_backward_args loss_back = {.logits = x[0],
                                                           .targets = targets,
                                                           .lse = x[4],
                                                           .dloss = mean_and_count,
                                                           .count = mean_and_count + 1,
                                                           .dlogits = x[1],
                                                           .rows = rows,
                                                           .columns = vocabulary,
                                                           .stride = vocabulary};
    STREAM(cross_entropy_backward, loss_back, rows * vocabulary, 8);
    struct shoali_reduce_args bias = {
        .x = x[0], .y = x[1], .outer = 1, .reduced = rows, .inner = columns, .factor = 1};
    STREAM(reduce, bias, count, 4);
}

static void bench_stream(const struct bench *bench)
{
    const int64_t count = STREAM_COUNT;
    float *x[5];
    for (int i = 0; i < 5; i++)
        x[i] = filled((size_t)count, SHOAL_F32);
    int64_t *fixed = filled((size_t)count * 2, SHOAL_F32);
    double limit = axpy_limit(bench, x[0], x[1]);
    uint64_t limbs[3] = {0};
    uint32_t flag = 0;
    memset(x[3], 0, (size_t)count * 4); /* second moments */
    struct shoali_adam_args adam = {.param = x[0],
                                    .grad = x[1],
                                    .exp_avg = x[2],
                                    .exp_avg_sq = x[3],
                                    .low = x[4],
                                    .count = count,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.999f,
                                    .eps = 1e-8f,
                                    .weight_decay = 0.01f,
                                    .lr = 1e-6f,
                                    .step_size = 1e-6f,
                                    .inv_sqrt_c2 = 1,
                                    .decoupled = 1,
                                    .low_dtype = SHOAL_BF16};
    STREAM(adam, adam, count, 30);
    struct shoali_axpy_args axpy = {
        .x = x[1], .y = x[0], .count = count, .a = 1e-6, .accumulate = 1};
    STREAM(axpy, axpy, count, 12);
    struct shoali_convert_args convert = {
        .x = x[0], .y = x[4], .count = count, .dtype_out = SHOAL_BF16};
    STREAM(convert, convert, count, 6);
    struct shoali_norm2_args norm2 = {.x = x[1], .limbs = limbs, .flag = &flag, .count = count};
    STREAM(norm2, norm2, count, 4);
    struct shoali_to_fixed_args to = {
        .x = x[1], .fixed = fixed, .flag = &flag, .count = count, .unit_log2 = 40, .limit = 1024};
    STREAM(to_fixed, to, count, 12);
    struct shoali_from_fixed_args from = {
        .fixed = fixed, .y = x[4], .count = count, .unit_log2 = 40, .divisor = 3};
    STREAM(from_fixed, from, count, 12);
    struct shoali_reduce_sources_args sources = {
        .x = {x[0], x[1]}, .y = {x[2], x[4]}, .sources = 2, .destinations = 2, .count = count};
    STREAM(reduce_sources, sources, count, 16);
    struct shoali_random_fill_args random = {.y = x[4], .count = 1 << 16, .b = 0.02};
    STREAM(random_fill, random, 1 << 16, 4);
    bench_rows(bench, x, limit);
    for (int i = 0; i < 5; i++)
        free(x[i]);
    free(fixed);
}

/* ---- program ----------------------------------------------------------------------------------
 */

static bool parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.what = "gemm", .threads = 1, .seconds = 0.1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (argv[i][0] != '-') {
            options->what = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "--threads"))
            options->threads = (int32_t)strtol(value, NULL, 10);
        else if (!strcmp(argv[i], "--dtype"))
            options->dtype = !strcmp(value, "bf16")  ? SHOAL_BF16
                             : !strcmp(value, "f16") ? SHOAL_F16
                                                     : SHOAL_F32;
        else if (!strcmp(argv[i], "--ops"))
            options->ops_name = value;
        else if (!strcmp(argv[i], "--seconds"))
            options->seconds = strtod(value, NULL);
        else
            return false;
        i++;
    }
    return options->threads >= 1;
}

int main(int argc, char **argv)
{
    struct bench bench = {.pool = NULL};
    if (!parse(argc, argv, &bench.options)) {
        fprintf(stderr,
                "usage: ops_bench [gemm|attention|stream] [--threads N] [--dtype f32|bf16|f16] "
                "[--ops NAME] [--seconds S]\n");
        return 2;
    }
    if (shoali_pool_create(bench.options.threads, &bench.pool) < 0 ||
        shoali_ops_select(bench.options.ops_name, &bench.ops) < 0) {
        fprintf(stderr, "ops_bench: %s\n", shoal_error_message());
        return 2;
    }
    printf("# ops %s, %s, %d threads\n", bench.ops.name, shoal_dtype_name(bench.options.dtype),
           (int)bench.options.threads);
    if (!strcmp(bench.options.what, "gemm"))
        bench_gemm(&bench);
    else if (!strcmp(bench.options.what, "attention"))
        bench_attention(&bench);
    else if (!strcmp(bench.options.what, "stream"))
        bench_stream(&bench);
    shoali_pool_destroy(bench.pool);
    return 0;
}
