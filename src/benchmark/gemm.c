/* gemm.c - matrix products. */
#include "benchmark/benchmark.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct product {
    const char *name;
    int32_t trans_a, trans_b;
    int64_t m, n, k;
    int32_t per_step; /* how often a step makes it */
};
/* One step of GPT-2 124M on 4 x 256 tokens. Weights are [in, out], the token table [vocabulary,
 * channels]. */
static const struct product step_124m[] = {
    {"qkv forward", 0, 0, 1024, 2304, 768, 12},  {"proj forward", 0, 0, 1024, 768, 768, 12},
    {"fc1 forward", 0, 0, 1024, 3072, 768, 12},  {"fc2 forward", 0, 0, 1024, 768, 3072, 12},
    {"head forward", 0, 1, 1024, 50257, 768, 1}, {"qkv dx", 0, 1, 1024, 768, 2304, 12},
    {"proj dx", 0, 1, 1024, 768, 768, 12},       {"fc1 dx", 0, 1, 1024, 768, 3072, 12},
    {"fc2 dx", 0, 1, 1024, 3072, 768, 12},       {"head dx", 0, 0, 1024, 768, 50257, 1},
    {"qkv dw", 1, 0, 768, 2304, 1024, 12},       {"proj dw", 1, 0, 768, 768, 1024, 12},
    {"fc1 dw", 1, 0, 768, 3072, 1024, 12},       {"fc2 dw", 1, 0, 3072, 768, 1024, 12},
    {"head dw", 1, 0, 50257, 768, 1024, 1},
};
/* The layers of one step of a Llama of 1B parameters (hidden 2048, 32 heads on 8, feed-forward 8192
 * with a gate, 16 layers) on 4096 tokens. Its weights are [out, in]. */
static const struct product llama_1b[] = {
    {"q, out forward", 0, 1, 4096, 2048, 2048, 32},   {"k, v forward", 0, 1, 4096, 512, 2048, 32},
    {"gate, up forward", 0, 1, 4096, 8192, 2048, 32}, {"down forward", 0, 1, 4096, 2048, 8192, 16},
    {"q, out dx", 0, 0, 4096, 2048, 2048, 32},        {"k, v dx", 0, 0, 4096, 2048, 512, 32},
    {"gate, up dx", 0, 0, 4096, 2048, 8192, 32},      {"down dx", 0, 0, 4096, 8192, 2048, 16},
    {"q, out dw", 1, 0, 2048, 2048, 4096, 32},        {"k, v dw", 1, 0, 512, 2048, 4096, 32},
    {"gate, up dw", 1, 0, 8192, 2048, 4096, 32},      {"down dw", 1, 0, 2048, 8192, 4096, 16},
};
/* 4 layers, 128 channels, 12 x 64 tokens of 65 kinds; and products for one token. */
static const struct product tiny[] = {
    {"qkv forward", 0, 0, 768, 384, 128, 4}, {"proj forward", 0, 0, 768, 128, 128, 4},
    {"fc1 forward", 0, 0, 768, 512, 128, 4}, {"fc2 forward", 0, 0, 768, 128, 512, 4},
    {"head forward", 0, 1, 768, 65, 128, 1}, {"qkv dx", 0, 1, 768, 128, 384, 4},
    {"fc2 dx", 0, 1, 768, 512, 128, 4},      {"head dx", 0, 0, 768, 128, 65, 1},
    {"qkv dw", 1, 0, 128, 384, 768, 4},      {"fc1 dw", 1, 0, 128, 512, 768, 4},
    {"fc2 dw", 1, 0, 512, 128, 768, 4},      {"head dw", 1, 0, 65, 128, 768, 1},
    {"one token NN", 0, 0, 1, 3072, 768, 0}, {"one token NT", 0, 1, 1, 3072, 768, 0},
};

struct totals {
    double ms, limit_ms;
};

static double flops_of(const struct product *p)
{
    return 2.0 * (double)p->m * (double)p->n * (double)p->k;
}

/* "qkv forward NN 1024x2304x768" */
static void describe(const struct product *p, char *name, size_t bytes)
{
    snprintf(name, bytes, "%s %c%c %lldx%lldx%lld", p->name, p->trans_a ? 'T' : 'N',
             p->trans_b ? 'T' : 'N', (long long)p->m, (long long)p->n, (long long)p->k);
}

/* What a step does once for all products that read one weight. Packed: NULL or of free(). */
static shoal_status pack(const struct shoali_bench *bench, const struct shoali_gemm_args *product,
                         void **packed)
{
    const size_t bytes = bench->device ? 0
                                       : shoali_op_packed_b_bytes(&bench->ops, product->n,
                                                                  product->k, product->dtype_ab);
    if (bytes == 0)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "bench gemm: the kernels \"%s\" have no packed layout for %s: leave "
                          "--prepacked out",
                          bench->ops.name, shoal_dtype_name(product->dtype_ab));
    if (posix_memalign(packed, 64, bytes) != 0)
        return SHOAL_FAIL(SHOAL_ENOMEM,
                          "bench gemm: cannot allocate %zu bytes for a packed "
                          "matrix",
                          bytes);
    const struct shoali_pack_b_args args = {.b = product->b,
                                            .packed = *packed,
                                            .n = product->n,
                                            .k = product->k,
                                            .ldb = product->ldb,
                                            .trans_b = product->trans_b,
                                            .dtype = product->dtype_ab};
    shoali_bench_call(bench, &shoali_kernel_pack_b, &args);
    return SHOAL_OK;
}

static shoal_status measure_on_host(const struct shoali_bench *bench, const struct product *p,
                                    const struct shoali_gemm_args *args, bool explain,
                                    struct totals *totals)
{
    struct shoali_samples rate = {.count = 0}, peak = {.count = 0};
    struct shoali_str note = {0};
    char name[96];
    shoali_bench_call(bench, &shoali_kernel_gemm, args);
    for (int32_t i = 0; i < bench->run.repeats; i++) {
        shoali_samples_add(&peak, shoali_limit_fma(bench->pool, args->dtype_ab));
        shoali_samples_add(&rate, flops_of(p) * 1e-9 /
                                      shoali_bench_time(bench, &shoali_kernel_gemm, args));
    }
    const double us = flops_of(p) * 1e-3 / shoali_samples_median(&rate);
    const shoali_bench_value value = {"time", "us", us};
    totals->ms += us * 1e-3 * p->per_step;
    totals->limit_ms += flops_of(p) * 1e-6 / shoali_samples_median(&peak) * p->per_step;
    describe(p, name, sizeof name);
    shoali_bench_result result = {.bench = "gemm",
                                  .name = name,
                                  .unit = "GFLOP/s",
                                  .limit_name = "multiply-add peak",
                                  .values = &value,
                                  .value_count = 1};
    if (explain)
        shoali_ops_explain_gemm(&bench->ops, args, shoali_pool_threads(bench->pool), &note);
    if (note.text)
        result.note = note.text;
    const shoal_status status = shoali_bench_emit(&bench->run, &result, &rate, &peak);
    shoali_str_fini(&note);
    return status;
}

static shoal_status measure_on_device(struct shoali_bench *bench, const struct product *p,
                                      const struct shoali_gemm_args *args,
                                      struct shoali_operands *operands, struct totals *totals)
{
    char name[96];
    shoal_status status;
    const double in = (double)shoal_dtype_bytes(args->dtype_ab);
    const double out = (double)shoal_dtype_bytes(args->dtype_c);
    struct shoali_device_figure figure = {.bench = "gemm",
                                          .name = name,
                                          .dtype = args->dtype_ab,
                                          .kernel = &shoali_kernel_gemm,
                                          .args = args,
                                          .operands = operands,
                                          .flops = flops_of(p),
                                          .bytes = in * (double)p->k * (double)(p->m + p->n) +
                                                   out * (double)p->m * (double)p->n};
    describe(p, name, sizeof name);
    SHOAL_TRY(status, shoali_device_measure(bench, &figure), done);
    totals->ms += figure.us * 1e-3 * p->per_step;
    totals->limit_ms += figure.limit_us * 1e-3 * p->per_step;
done:
    return status;
}

static shoal_status measure(struct shoali_bench *bench, const struct product *p,
                            const shoali_bench_gemm_args *asked, struct totals *totals)
{
    /* Gradients of weights are fp32. */
    const shoal_dtype dtype = asked->dtype, dtype_c = p->trans_a ? SHOAL_F32 : dtype;
    struct shoali_operands operands = {.bench = NULL};
    void *a = NULL, *b = NULL, *c = NULL, *packed = NULL;
    const struct shoali_bench_array arrays[] = {SHOALI_BENCH_ARRAY(a, p->m * p->k, dtype),
                                                SHOALI_BENCH_ARRAY(b, p->k * p->n, dtype),
                                                SHOALI_BENCH_ARRAY(c, p->m * p->n, dtype_c)};
    shoal_status status;
    SHOAL_TRY(status, shoali_operands_create(bench, arrays, 3, 0, &operands), done);
    struct shoali_gemm_args args = {.a = a,
                                    .b = b,
                                    .c = c,
                                    .m = p->m,
                                    .n = p->n,
                                    .k = p->k,
                                    .lda = p->trans_a ? p->m : p->k,
                                    .ldb = p->trans_b ? p->k : p->n,
                                    .ldc = p->n,
                                    .trans_a = p->trans_a,
                                    .trans_b = p->trans_b,
                                    .dtype_ab = dtype,
                                    .dtype_c = dtype_c,
                                    .dtype_bias = dtype};
    if (asked->prepacked)
        SHOAL_TRY(status, pack(bench, &args, &packed), done);
    args.packed_b = packed;
    SHOAL_TRY(status,
              bench->device ? measure_on_device(bench, p, &args, &operands, totals)
                            : measure_on_host(bench, p, &args, asked->explain != 0, totals),
              done);
done:
    shoali_operands_destroy(&operands);
    free(packed);
    return status;
}

static shoal_status measure_set(struct shoali_bench *bench, const struct product *products,
                                size_t count, const char *name, const shoali_bench_gemm_args *asked)
{
    shoal_status status = SHOAL_OK;
    struct totals totals = {0};
    struct shoali_samples sum = {.count = 0}, limit = {.count = 0};
    for (size_t i = 0; i < count; i++)
        SHOAL_TRY(status, measure(bench, &products[i], asked, &totals), done);
    if (!(totals.ms > 0)) /* none was timed */
        goto done;
    shoali_samples_add(&sum, totals.ms);
    shoali_samples_add(&limit, totals.limit_ms);
    shoali_bench_result result = {.bench = "gemm",
                                  .name = name,
                                  .unit = "ms",
                                  .limit_name = bench->device ? "product" : "multiply-add peak",
                                  .emulated = bench->facts.emulated};
    SHOAL_TRY(status, shoali_bench_emit(&bench->run, &result, &sum, &limit), done);
done:
    return status;
}

static shoal_status measure_asked(struct shoali_bench *bench, const shoali_bench_gemm_args *args)
{
    const char *set = args->set ? args->set : "124m";
    struct totals totals = {0};
    if (args->m > 0 && args->n > 0 && args->k > 0)
        return measure(bench,
                       &(struct product){.name = "product",
                                         .trans_a = args->trans_a,
                                         .trans_b = args->trans_b,
                                         .m = args->m,
                                         .n = args->n,
                                         .k = args->k},
                       args, &totals);
    if (args->m || args->n || args->k)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench gemm: give --m, --n and --k, all at least 1, or "
                                        "none of them");
    if (strcmp(set, "124m") == 0)
        return measure_set(bench, step_124m, sizeof step_124m / sizeof step_124m[0],
                           "all of a GPT-2 124M step of 4x256 tokens", args);
    if (strcmp(set, "tiny") == 0)
        return measure_set(bench, tiny, sizeof tiny / sizeof tiny[0],
                           "all of these of a step of 12x64 tokens", args);
    if (strcmp(set, "llama-1b") == 0)
        return measure_set(bench, llama_1b, sizeof llama_1b / sizeof llama_1b[0],
                           "all layers of a Llama 1B step of 4096 tokens", args);
    return SHOAL_FAIL(SHOAL_EINVAL, "bench gemm: unknown set \"%s\": give 124m, tiny or llama-1b",
                      set);
}

shoal_status shoali_bench_gemm(const shoali_bench_gemm_args *args)
{
    struct shoali_bench bench = {.pool = NULL};
    shoal_status status;
    SHOAL_TRY(status, shoali_bench_init(&bench, "gemm", &args->run), done);
    SHOAL_TRY(status, measure_asked(&bench, args), done);
done:
    shoali_bench_fini(&bench);
    return status;
}
