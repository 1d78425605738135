/* attention.c - causal attention of packed q, k, v, forward and backward. */
#include "benchmark/benchmark.h"

#include <stdio.h>
#include <stdlib.h>
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

static shoal_status allocate(struct memory *memory, const struct shape *s, shoal_dtype dtype)
{
    const int64_t tokens = s->batch * s->length, width = s->heads * s->head_size;
    const int64_t all = (s->heads + 2 * s->kv_heads) * s->head_size;
    shoal_status status;
    SHOAL_TRY(status, shoali_bench_numbers(tokens * all, dtype, &memory->qkv), done);
    SHOAL_TRY(status, shoali_bench_numbers(tokens * all, dtype, &memory->dqkv), done);
    SHOAL_TRY(status, shoali_bench_numbers(tokens * width, dtype, &memory->out), done);
    SHOAL_TRY(status, shoali_bench_numbers(tokens * width, dtype, &memory->dout), done);
    SHOAL_TRY(status, shoali_bench_numbers(tokens * s->heads, SHOAL_F32, &memory->lse), done);
    SHOAL_TRY(status, shoali_bench_numbers(tokens * s->heads, SHOAL_F32, &memory->delta), done);
done:
    return status;
}

static void release(const struct memory *memory)
{
    free(memory->qkv);
    free(memory->dqkv);
    free(memory->out);
    free(memory->dout);
    free(memory->lse);
    free(memory->delta);
}

/* Two products of visible keys in forward, five in backward. */
static shoal_status measure(const struct shoali_bench *bench, const struct shape *s,
                            shoal_dtype dtype, const char *what, int products,
                            const struct shoali_kernel *kernel, const void *args)
{
    const double flops = (double)products * (double)(s->batch * s->heads) * (double)s->length *
                         (double)(s->length + 1) * (double)s->head_size;
    struct shoali_samples rate = {.count = 0}, peak = {.count = 0};
    char name[96];
    shoali_bench_call(bench, kernel, args);
    for (int32_t i = 0; i < bench->run.repeats; i++) {
        shoali_samples_add(&peak, shoali_limit_fma(bench->pool, dtype));
        shoali_samples_add(&rate, flops * 1e-9 / shoali_bench_time(bench, kernel, args));
    }
    const shoali_bench_value value = {"time", "us", flops * 1e-3 / shoali_samples_median(&rate)};
    snprintf(name, sizeof name, "%s B%lld H%lld", what, (long long)s->batch, (long long)s->heads);
    const size_t end = strlen(name);
    if (s->kv_heads != s->heads)
        snprintf(name + end, sizeof name - end, "/%lld", (long long)s->kv_heads);
    const size_t rest = strlen(name);
    snprintf(name + rest, sizeof name - rest, " T%lld D%lld", (long long)s->length,
             (long long)s->head_size);
    shoali_bench_result result = {.bench = "attention",
                                  .name = name,
                                  .unit = "GFLOP/s",
                                  .limit_name = "multiply-add peak",
                                  .values = &value,
                                  .value_count = 1};
    return shoali_bench_emit(&bench->run, &result, &rate, &peak);
}

static shoal_status measure_shape(const struct shoali_bench *bench, const struct shape *s,
                                  shoal_dtype dtype)
{
    const int64_t width = s->heads * s->head_size;
    const int64_t stride = width + 2 * s->kv_heads * s->head_size;
    const size_t key = (size_t)width * shoal_dtype_bytes(dtype);
    const size_t value = key + (size_t)(s->kv_heads * s->head_size) * shoal_dtype_bytes(dtype);
    struct memory m = {0};
    shoal_status status;
    SHOAL_TRY(status, allocate(&m, s, dtype), done);
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
    SHOAL_TRY(status, measure(bench, s, dtype, "forward", 2, &shoali_kernel_attention, &forward),
              done);
    SHOAL_TRY(status,
              measure(bench, s, dtype, "backward", 5, &shoali_kernel_attention_backward, &backward),
              done);
done:
    release(&m);
    return status;
}

static shoal_status measure_asked(const struct shoali_bench *bench,
                                  const shoali_bench_attention_args *args)
{
    const struct shape s = {args->batch, args->heads,
                            args->kv_heads > 0 ? args->kv_heads : args->heads, args->seq_length,
                            args->head_size};
    shoal_status status = SHOAL_OK;
    /* each below the number of elements, so products of them do not wrap unseen */
    if ((double)s.batch * (double)s.length * (double)s.heads * (double)s.head_size > 1e15)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench attention: these sizes are more than any memory "
                                        "holds: give smaller ones");
    if (s.heads > 0 && s.heads % s.kv_heads != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "bench attention: %lld heads do not share %lld heads of keys and values: "
                          "give a divisor of the heads",
                          (long long)s.heads, (long long)s.kv_heads);
    if (s.batch > 0 && s.heads > 0 && s.length > 0 && s.head_size > 0)
        return measure_shape(bench, &s, args->dtype);
    if (s.batch || s.heads || args->kv_heads || s.length || s.head_size)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench attention: give batch, heads, sequence length and "
                                        "head size, all at least 1, or none");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && status >= 0; i++)
        status = measure_shape(bench, &shapes[i], args->dtype);
    return status;
}

shoal_status shoali_bench_attention(const shoali_bench_attention_args *args)
{
    struct shoali_bench bench = {.pool = NULL};
    shoal_status status;
    SHOAL_TRY(status, shoali_bench_init(&bench, &args->run), done);
    SHOAL_TRY(status, measure_asked(&bench, args), done);
done:
    shoali_bench_fini(&bench);
    return status;
}
