/* stream.c - kernels that touch memory once: the optimizer's update, sums, rows. */
#include "benchmark/benchmark.h"

#include <stdio.h>

enum { ARRAYS = 5, ROWS = 1024, COLUMNS = 768, VOCABULARY = 8192 };
/* What the kernels of rows need on the host; on a device a row is enough. */
#define LEAST_COUNT ((int64_t)ROWS * VOCABULARY)

struct stream {
    struct shoali_bench bench;
    struct shoali_operands operands;
    const char *name; /* of the subcommand */
    float *x[ARRAYS];
    float *fixed; /* of int64_t: as the others, at the begin of a line and in large pages */
    int32_t *targets, *ids; /* ids: each row of a table once, far from its neighbours */
    uint64_t *limbs;
    uint32_t *flag;
    float *mean_and_count;
    int64_t count;
    int64_t rows, classified; /* of norms and losses: on a device as many as there is room for */
};

/* What a kernel moves for each element; of one that streams, how many lines it reads for how many
 * that it writes. */
struct moves {
    double bytes;
    int32_t reads, writes;
};

/* The same lines without the kernel, as many of them as have room. */
static double lines_alone(const struct stream *stream, const struct moves *moves, int64_t count)
{
    const int64_t line = SHOALI_BENCH_LINE, lines = stream->count * 4 / line;
    const bool two_to_one = moves->writes > moves->reads;
    const float *x = moves->reads > 1 ? stream->fixed : stream->x[0];
    float *y = two_to_one ? stream->fixed : stream->x[2];
    const int64_t room = two_to_one || moves->writes == 0 ? lines : lines / moves->writes;
    const int64_t rounds =
        (int64_t)(moves->bytes * (double)count) / line / (moves->reads + moves->writes);
    return shoali_limit_lines(stream->bench.pool, x, y, rounds < room ? rounds : room, moves->reads,
                              moves->writes);
}

#define MEASURE(stream, kernel, name, args, count, ...) \
    measure(stream, name, &shoali_kernel_##kernel, &(args), (count), (struct moves){__VA_ARGS__})

static shoal_status measure_on_host(const struct stream *stream, const char *name,
                                    const struct shoali_kernel *kernel, const void *args,
                                    int64_t count, struct moves moves)
{
    const struct shoali_bench *bench = &stream->bench;
    const double bytes = moves.bytes;
    struct shoali_samples rate = {.count = 0}, limit = {.count = 0}, lines = {.count = 0};
    shoali_bench_call(bench, kernel, args);
    for (int32_t i = 0; i < bench->run.repeats; i++) {
        /* x[0] and x[1] grow by 1e-6 of themselves each time: they stay numbers. */
        shoali_samples_add(
            &limit, shoali_limit_axpy(bench->pool, stream->x[0], stream->x[1], stream->count));
        if (moves.reads > 0)
            shoali_samples_add(&lines, lines_alone(stream, &moves, count));
        shoali_samples_add(&rate,
                           bytes * (double)count * 1e-9 / shoali_bench_time(bench, kernel, args));
    }
    const double median = shoali_samples_median(&rate);
    const double alone = moves.reads > 0 ? shoali_samples_median(&lines) : 1;
    const shoali_bench_value values[] = {{"time", "us", bytes * (double)count * 1e-3 / median},
                                         {"these lines alone", "GB/s", alone},
                                         {"part of that", "%", 100 * median / alone}};
    shoali_bench_result result = {.bench = stream->name,
                                  .name = name,
                                  .unit = "GB/s",
                                  .limit_name = "axpy",
                                  .values = values,
                                  .value_count = moves.reads > 0 ? 3 : 1};
    return shoali_bench_emit(&bench->run, &result, &rate, &limit);
}

static shoal_status measure(struct stream *stream, const char *name,
                            const struct shoali_kernel *kernel, const void *args, int64_t count,
                            struct moves moves)
{
    struct shoali_device_figure figure = {.bench = stream->name,
                                          .name = name,
                                          .dtype = SHOAL_F32,
                                          .kernel = kernel,
                                          .args = args,
                                          .operands = &stream->operands,
                                          .bytes = moves.bytes * (double)count};
    return stream->bench.device ? shoali_device_measure(&stream->bench, &figure)
                                : measure_on_host(stream, name, kernel, args, count, moves);
}

static shoal_status measure_adam(struct stream *stream)
{
    float *const *x = stream->x;
    struct shoali_adam_args adam = {.param = x[0],
                                    .grad = x[1],
                                    .exp_avg = x[2],
                                    .exp_avg_sq = x[3],
                                    .low = x[4],
                                    .count = stream->count,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.999f,
                                    .eps = 1e-8f,
                                    .weight_decay = 0.01f,
                                    .lr = 1e-6f,
                                    .step_size = 1e-6f,
                                    .inv_sqrt_c2 = 1,
                                    .decoupled = 1,
                                    .low_dtype = SHOAL_BF16};
    shoal_status status;
    SHOAL_TRY(status,
              MEASURE(stream, adam, "AdamW with bf16 weights", adam, stream->count, .bytes = 30),
              done);
    adam.low = NULL;
    SHOAL_TRY(status, MEASURE(stream, adam, "AdamW", adam, stream->count, .bytes = 28), done);
done:
    return status;
}

static shoal_status measure_sums(struct stream *stream)
{
    float *const *x = stream->x;
    const int64_t count = stream->count;
    const struct shoali_axpy_args axpy = {
        .x = x[1], .y = x[0], .count = count, .a = 1e-6, .accumulate = 1};
    const struct shoali_convert_args convert = {
        .x = x[0], .y = x[4], .count = count, .dtype_out = SHOAL_BF16};
    const struct shoali_norm2_args norm2 = {
        .x = x[1], .limbs = stream->limbs, .flag = stream->flag, .count = count};
    const struct shoali_to_fixed_args to = {.x = x[1],
                                            .fixed = (int64_t *)(void *)stream->fixed,
                                            .flag = stream->flag,
                                            .count = count,
                                            .unit_log2 = 40,
                                            .limit = 1024};
    const struct shoali_from_fixed_args from = {.fixed =
                                                    (const int64_t *)(const void *)stream->fixed,
                                                .y = x[4],
                                                .count = count,
                                                .unit_log2 = 40,
                                                .divisor = 3};
    const struct shoali_reduce_sources_args sources = {
        .x = {x[0], x[1]}, .y = {x[2], x[4]}, .sources = 2, .destinations = 2, .count = count};
    const int64_t drawn = count < 1 << 16 ? count : 1 << 16;
    const struct shoali_random_fill_args random = {.y = x[4], .count = drawn, .b = 0.02};
    shoal_status status;
    SHOAL_TRY(status, MEASURE(stream, axpy, "axpy kernel", axpy, count, .bytes = 12), done);
    SHOAL_TRY(status,
              MEASURE(stream, convert, "convert to bf16", convert, count, .bytes = 6, .reads = 2,
                      .writes = 1),
              done);
    SHOAL_TRY(status, MEASURE(stream, norm2, "norm2", norm2, count, .bytes = 4, .reads = 1), done);
    SHOAL_TRY(
        status,
        MEASURE(stream, to_fixed, "to_fixed", to, count, .bytes = 12, .reads = 1, .writes = 2),
        done);
    SHOAL_TRY(status,
              MEASURE(stream, from_fixed, "from_fixed", from, count, .bytes = 12, .reads = 2,
                      .writes = 1),
              done);
    SHOAL_TRY(status,
              MEASURE(stream, reduce_sources, "reduce_sources 2 to 2", sources, count, .bytes = 16,
                      .reads = 2, .writes = 2),
              done);
    SHOAL_TRY(status, MEASURE(stream, random_fill, "random_fill", random, drawn, .bytes = 4), done);
done:
    return status;
}

static shoal_status measure_norms(struct stream *stream)
{
    float *const *x = stream->x;
    const int64_t rows = stream->rows, count = rows * COLUMNS;
    const struct shoali_norm_args norm = {.x = x[0],
                                          .gamma = x[1],
                                          .beta = x[1],
                                          .y = x[2],
                                          .mean = x[3],
                                          .rstd = x[4],
                                          .rows = rows,
                                          .columns = COLUMNS,
                                          .eps = 1e-5};
    const struct shoali_norm_backward_args back = {.x = x[0],
                                                   .gamma = x[1],
                                                   .dy = x[0],
                                                   .mean = x[3],
                                                   .rstd = x[4],
                                                   .dx = x[2],
                                                   .dgamma = x[1] + COLUMNS,
                                                   .dbeta = x[1] + 2 * COLUMNS,
                                                   .rows = rows,
                                                   .columns = COLUMNS};
    const struct shoali_reduce_args bias = {
        .x = x[0], .y = x[1], .outer = 1, .reduced = rows, .inner = COLUMNS, .factor = 1};
    char name[2][48];
    shoal_status status;
    snprintf(name[0], sizeof name[0], "norm %lldx%d", (long long)rows, COLUMNS);
    snprintf(name[1], sizeof name[1], "sum of rows %lldx%d", (long long)rows, COLUMNS);
    SHOAL_TRY(status, MEASURE(stream, norm, name[0], norm, count, .bytes = 8), done);
    SHOAL_TRY(status, MEASURE(stream, norm_backward, "norm backward", back, count, .bytes = 12),
              done);
    SHOAL_TRY(status, MEASURE(stream, reduce, name[1], bias, count, .bytes = 4), done);
done:
    return status;
}

static shoal_status measure_rows(struct stream *stream)
{
    float *const *x = stream->x;
    const int64_t rows = stream->classified, logits = rows * VOCABULARY;
    const int64_t count = stream->rows * COLUMNS;
    const struct shoali_unary_args gelu = {
        .x = x[0], .y = x[1], .count = count, .kind = SHOALI_GELU_TANH};
    const struct shoali_unary_args gelu_back = {
        .x = x[0], .dy = x[2], .y = x[1], .count = count, .kind = SHOALI_GELU_TANH, .backward = 1};
    const struct shoali_dropout_args dropout = {
        .x = x[0], .residual = x[2], .y = x[1], .count = count, .probability = 0.1f};
    const struct shoali_cross_entropy_args loss = {.logits = x[0],
                                                   .targets = stream->targets,
                                                   .loss = x[3],
                                                   .lse = x[4],
                                                   .rows = rows,
                                                   .columns = VOCABULARY,
                                                   .stride = VOCABULARY};
    const struct shoali_cross_entropy_backward_args back = {.logits = x[0],
                                                            .targets = stream->targets,
                                                            .lse = x[4],
                                                            .dloss = stream->mean_and_count,
                                                            .count = stream->mean_and_count + 1,
                                                            .dlogits = x[1],
                                                            .rows = rows,
                                                            .columns = VOCABULARY,
                                                            .stride = VOCABULARY};
    char name[48];
    shoal_status status;
    snprintf(name, sizeof name, "cross entropy %lldx%d", (long long)rows, VOCABULARY);
    SHOAL_TRY(status, MEASURE(stream, unary, "gelu tanh", gelu, count, .bytes = 8), done);
    SHOAL_TRY(status, MEASURE(stream, unary, "gelu tanh backward", gelu_back, count, .bytes = 12),
              done);
    SHOAL_TRY(status,
              MEASURE(stream, dropout, "dropout with residual", dropout, count, .bytes = 12), done);
    SHOAL_TRY(status, MEASURE(stream, cross_entropy, name, loss, logits, .bytes = 4, .reads = 1),
              done);
    SHOAL_TRY(status,
              MEASURE(stream, cross_entropy_backward, "cross entropy backward", back, logits,
                      .bytes = 8, .reads = 1, .writes = 1),
              done);
done:
    return status;
}

/* What models without the plain kernels above have in their place, and the table of tokens. */
static shoal_status measure_llama(struct stream *stream)
{
    enum { HEADS = 12 };
    float *const *x = stream->x;
    const int64_t rows = stream->rows, count = rows * COLUMNS, half = rows > 1 ? rows / 2 : 1;
    const struct shoali_glu_args glu = {
        .x = x[0], .y = x[1], .rows = half, .columns = COLUMNS / 2, .kind = SHOALI_SILU};
    struct shoali_rotary_args rotary = {.x = x[0],
                                        .y = x[1],
                                        .batch = 1,
                                        .length = rows,
                                        .columns = COLUMNS,
                                        .heads = HEADS,
                                        .head_size = COLUMNS / HEADS,
                                        .rotary_size = COLUMNS / HEADS};
    const struct shoali_embedding_backward_args table = {.ids = stream->ids,
                                                         .dout = x[0],
                                                         .dtable = x[2],
                                                         .rows = rows,
                                                         .columns = COLUMNS,
                                                         .table_rows = rows};
    shoal_status status;
    for (int32_t i = 0; i < COLUMNS / HEADS / 2; i++)
        rotary.inverse_frequency[i] = 1.0f / (float)(1 + i);
    SHOAL_TRY(status, MEASURE(stream, glu, "gated silu", glu, half * (COLUMNS / 2), .bytes = 12),
              done);
    SHOAL_TRY(status, MEASURE(stream, rotary, "rotary", rotary, count, .bytes = 8), done);
    SHOAL_TRY(status,
              MEASURE(stream, embedding_backward, "embedding gradient", table, count, .bytes = 8),
              done);
done:
    return status;
}

/* How many rows the kernels of rows get. */
static shoal_status choose_count(struct stream *stream, const shoali_bench_stream_args *args)
{
    const int64_t usual = args->adam_only ? (int64_t)64 << 20 : (int64_t)16 << 20;
    const int64_t least = args->adam_only ? 1 : stream->bench.device ? VOCABULARY : LEAST_COUNT;
    stream->count = args->count ? args->count : usual;
    if (stream->count < least)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench %s: --count is %lld: give at least %lld",
                          stream->name, (long long)stream->count, (long long)least);
    stream->rows = stream->classified = ROWS;
    if (stream->bench.device && !args->adam_only) {
        stream->rows = stream->count / COLUMNS;
        stream->classified = stream->count / VOCABULARY;
    }
    return SHOAL_OK;
}

/* Owned by the caller. */
static int32_t *spread_ids(int64_t rows)
{
    int32_t *ids = shoali_malloc((size_t)rows * sizeof *ids, "token ids of a benchmark");
    for (int64_t i = 0, half = (rows + 1) / 2; ids && i < rows; i++)
        ids[i] = (int32_t)(i % 2 ? half + i / 2 : i / 2);
    return ids;
}

static shoal_status allocate(struct stream *stream, bool adam_only)
{
    const int64_t count = stream->count;
    int32_t *ids = spread_ids(stream->rows);
    if (!ids)
        return SHOAL_ENOMEM;
    const float mean_and_count[2] = {1, (float)stream->classified};
    float **x = stream->x;
    const struct shoali_bench_array arrays[] = {
        SHOALI_BENCH_ARRAY(x[0], count, SHOAL_F32),
        SHOALI_BENCH_ARRAY(x[1], count, SHOAL_F32),
        SHOALI_BENCH_ARRAY(x[2], count, SHOAL_F32),
        /* second moments are not negative */
        SHOALI_BENCH_ZEROS(x[3], count, SHOAL_F32),
        SHOALI_BENCH_ARRAY(x[4], count, SHOAL_F32),
        SHOALI_BENCH_ARRAY(stream->fixed, 2 * count, SHOAL_F32),
        SHOALI_BENCH_ZEROS(stream->targets, stream->classified, SHOAL_I32),
        {.at = &stream->ids, .count = stream->rows, .dtype = SHOAL_I32, .from = ids},
        SHOALI_BENCH_ZEROS(stream->limbs, 3, SHOAL_I64),
        SHOALI_BENCH_ZEROS(stream->flag, 1, SHOAL_I32),
        {.at = &stream->mean_and_count, .count = 2, .dtype = SHOAL_F32, .from = mean_and_count}};
    const int32_t all = (int32_t)(sizeof arrays / sizeof arrays[0]);
    const shoal_status status = shoali_operands_create(
        &stream->bench, arrays, adam_only ? ARRAYS : all, (size_t)count * 4, &stream->operands);
    shoali_free(ids);
    return status;
}

shoal_status shoali_bench_stream(const shoali_bench_stream_args *args)
{
    struct stream stream = {.name = args->adam_only ? "adam" : "stream"};
    shoal_status status;
    SHOAL_TRY(status, shoali_bench_init(&stream.bench, stream.name, &args->run), done);
    SHOAL_TRY(status, choose_count(&stream, args), done);
    SHOAL_TRY(status, allocate(&stream, args->adam_only), done);
    SHOAL_TRY(status, measure_adam(&stream), done);
    if (!args->adam_only) {
        SHOAL_TRY(status, measure_sums(&stream), done);
        SHOAL_TRY(status, measure_norms(&stream), done);
        SHOAL_TRY(status, measure_rows(&stream), done);
        SHOAL_TRY(status, measure_llama(&stream), done);
    }
done:
    shoali_operands_destroy(&stream.operands);
    shoali_bench_fini(&stream.bench);
    return status;
}
