/* attention.c - causal attention of packed q, k, v, forward and backward. */
#include "benchmark/benchmark.h"

#include <stdio.h>
#include <string.h>

struct shape {
    int64_t batch, heads, kv_heads, length, head_size;
};
static const struct shape shapes[] = {
    {12, 4, 4, 64, 32},  {4, 12, 12, 256, 64}, {1, 12, 12, 1024, 64},
    {1, 4, 4, 2048, 64}, {1, 4, 4, 1024, 128}, {1, 32, 8, 4096, 64},
};

struct memory {
    void *qkv, *dqkv, *out, *dout, *lse, *delta;
};

static shoal_status allocate(const struct shoali_bench *bench, const struct shape *s,
                             shoal_dtype dtype, struct memory *memory,
                             struct shoali_operands *operands)
{
    const int64_t tokens = s->batch * s->length, width = s->heads * s->head_size;
    const int64_t all = (s->heads + 2 * s->kv_heads) * s->head_size;
    const struct shoali_bench_array arrays[] = {
        SHOALI_BENCH_ARRAY(memory->qkv, tokens * all, dtype),
        SHOALI_BENCH_ARRAY(memory->dqkv, tokens * all, dtype),
        SHOALI_BENCH_ARRAY(memory->out, tokens * width, dtype),
        SHOALI_BENCH_ARRAY(memory->dout, tokens * width, dtype),
        SHOALI_BENCH_ARRAY(memory->lse, tokens * s->heads, SHOAL_F32),
        SHOALI_BENCH_ARRAY(memory->delta, tokens * s->heads, SHOAL_F32)};
    return shoali_operands_create(bench, arrays, sizeof arrays / sizeof arrays[0], 0, operands);
}

/* "forward B1 H32/8 T4096 D64" */
static void describe(const struct shape *s, const char *what, char *name, size_t bytes)
{
    snprintf(name, bytes, "%s B%lld H%lld", what, (long long)s->batch, (long long)s->heads);
    const size_t end = strlen(name);
    if (s->kv_heads != s->heads)
        snprintf(name + end, bytes - end, "/%lld", (long long)s->kv_heads);
    const size_t rest = strlen(name);
    snprintf(name + rest, bytes - rest, " T%lld D%lld", (long long)s->length,
             (long long)s->head_size);
}

/* What a call reads and writes at the least: of q, k, v, out and their gradients, a number per row
 * of lse and delta. */
static double bytes_of(const struct shape *s, shoal_dtype dtype, bool backward)
{
    const double rows = (double)(s->batch * s->length);
    const double width = (double)(s->heads * s->head_size);
    const double all = width + 2 * (double)(s->kv_heads * s->head_size);
    const double numbers = backward ? 2 * all + 2 * width : all + width;
    return rows *
           (numbers * (double)shoal_dtype_bytes(dtype) + 4 * (double)s->heads * (backward ? 2 : 1));
}

static shoal_status measure_on_host(const struct shoali_bench *bench, const char *name,
                                    shoal_dtype dtype, double flops,
                                    const struct shoali_kernel *kernel, const void *args)
{
    struct shoali_samples rate = {.count = 0}, peak = {.count = 0};
    shoali_bench_call(bench, kernel, args);
    for (int32_t i = 0; i < bench->run.repeats; i++) {
        shoali_samples_add(&peak, shoali_limit_fma(bench->pool, dtype));
        shoali_samples_add(&rate, flops * 1e-9 / shoali_bench_time(bench, kernel, args));
    }
    const shoali_bench_value value = {"time", "us", flops * 1e-3 / shoali_samples_median(&rate)};
    shoali_bench_result result = {.bench = "attention",
                                  .name = name,
                                  .unit = "GFLOP/s",
                                  .limit_name = "multiply-add peak",
                                  .values = &value,
                                  .value_count = 1};
    return shoali_bench_emit(&bench->run, &result, &rate, &peak);
}

/* Two products of visible keys in forward, five in backward. */
static shoal_status measure(struct shoali_bench *bench, const struct shape *s, shoal_dtype dtype,
                            bool backward, struct shoali_operands *operands, const void *args)
{
    const struct shoali_kernel *kernel =
        backward ? &shoali_kernel_attention_backward : &shoali_kernel_attention;
    const double flops = (backward ? 5.0 : 2.0) * (double)(s->batch * s->heads) *
                         (double)s->length * (double)(s->length + 1) * (double)s->head_size;
    char name[96];
    describe(s, backward ? "backward" : "forward", name, sizeof name);
    if (!bench->device)
        return measure_on_host(bench, name, dtype, flops, kernel, args);
    struct shoali_device_figure figure = {.bench = "attention",
                                          .name = name,
                                          .dtype = dtype,
                                          .kernel = kernel,
                                          .args = args,
                                          .operands = operands,
                                          .flops = flops,
                                          .bytes = bytes_of(s, dtype, backward)};
    return shoali_device_measure(bench, &figure);
}

static shoal_status measure_shape(struct shoali_bench *bench, const struct shape *s,
                                  shoal_dtype dtype)
{
    const int64_t width = s->heads * s->head_size;
    const int64_t stride = width + 2 * s->kv_heads * s->head_size;
    const size_t key = (size_t)width * shoal_dtype_bytes(dtype);
    const size_t value = key + (size_t)(s->kv_heads * s->head_size) * shoal_dtype_bytes(dtype);
    struct memory m = {0};
    struct shoali_operands operands = {.bench = NULL};
    shoal_status status;
    SHOAL_TRY(status, allocate(bench, s, dtype, &m, &operands), done);
    const struct shoali_attention_args forward = {.q = m.qkv,
                                                  .k = (char *)m.qkv + key,
                                                  .v = (char *)m.qkv + value,
                                                  .out = m.out,
                                                  .lse = m.lse,
                                                  .batch = s->batch,
                                                  .q_len = s->length,
                                                  .kv_len = s->length,
                                                  .heads = s->heads,
                                                  .kv_heads = s->kv_heads,
                                                  .head_size = s->head_size,
                                                  .q_stride = stride,
                                                  .kv_stride = stride,
                                                  .out_stride = width,
                                                  .scale = 0.125,
                                                  .causal = 1,
                                                  .dtype = dtype};
    const struct shoali_attention_backward_args backward = {.q = forward.q,
                                                            .k = forward.k,
                                                            .v = forward.v,
                                                            .out = m.out,
                                                            .dout = m.dout,
                                                            .lse = m.lse,
                                                            .delta = m.delta,
                                                            .dq = m.dqkv,
                                                            .dk = (char *)m.dqkv + key,
                                                            .dv = (char *)m.dqkv + value,
                                                            .batch = s->batch,
                                                            .q_len = s->length,
                                                            .kv_len = s->length,
                                                            .heads = s->heads,
                                                            .kv_heads = s->kv_heads,
                                                            .head_size = s->head_size,
                                                            .q_stride = stride,
                                                            .kv_stride = stride,
                                                            .out_stride = width,
                                                            .scale = 0.125,
                                                            .causal = 1,
                                                            .dtype = dtype};
    SHOAL_TRY(status, measure(bench, s, dtype, false, &operands, &forward), done);
    SHOAL_TRY(status, measure(bench, s, dtype, true, &operands, &backward), done);
done:
    shoali_operands_destroy(&operands);
    return status;
}

static shoal_status measure_asked(struct shoali_bench *bench,
                                  const shoali_bench_attention_args *args)
{
    const struct shape s = {args->batch, args->heads,
                            args->kv_heads > 0 ? args->kv_heads : args->heads, args->seq_length,
                            args->head_size};
    shoal_status status = SHOAL_OK;
    /* each below the number of elements, so products of them do not wrap unseen */
    if ((double)s.batch * (double)s.length * (double)s.heads * (double)s.head_size > 1e15)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench attention: the sizes exceed any memory: give "
                                        "smaller sizes");
    if (s.heads > 0 && s.heads % s.kv_heads != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "bench attention: --heads %lld is not divisible by --kv-heads %lld: "
                          "give a divisor of the heads",
                          (long long)s.heads, (long long)s.kv_heads);
    if (s.batch > 0 && s.heads > 0 && s.length > 0 && s.head_size > 0)
        return measure_shape(bench, &s, args->dtype);
    if (s.batch || s.heads || args->kv_heads || s.length || s.head_size)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench attention: give --batch, --heads, --seq-length "
                                        "and --head-size, all at least 1, or none of them");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && status >= 0; i++)
        status = measure_shape(bench, &shapes[i], args->dtype);
    return status;
}

shoal_status shoali_bench_attention(const shoali_bench_attention_args *args)
{
    struct shoali_bench bench = {.pool = NULL};
    shoal_status status;
    SHOAL_TRY(status, shoali_bench_init(&bench, "attention", &args->run), done);
    SHOAL_TRY(status, measure_asked(&bench, args), done);
done:
    shoali_bench_fini(&bench);
    return status;
}
