/* generate.c - a prompt and the tokens after it, by an engine for inference. */
#include "benchmark/benchmark.h"

#include "base/plain.h"
#include "engine/engine.h"
#include "shoal/inference.h"

#include <stdio.h>
#include <stdlib.h>

enum { READ_COUNT = 64 << 20, PROMPT = 128 }; /* floats: more than caches hold */

struct generation {
    const shoali_bench_generate_args *args;
    struct shoali_bench bench;
    shoal_model *model;
    shoal_engine *engine;
    shoal_generator *generator;
    int32_t sequences;
    int64_t prompt, positions, vocabulary;
    int32_t *tokens; /* [positions] */
    shoal_generator_input *input;
    float *logits, *memory;
    struct shoali_samples prefill, token, peak, read;
};

/* As a generator makes one of a checkpoint. */
static shoal_status make_engine(struct generation *g)
{
    char text[256];
    const shoal_dtype dtype = g->args->dtype;
    if (dtype != SHOAL_F32 && dtype != SHOAL_BF16 && dtype != SHOAL_F16)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "bench generate: type %s is not supported: give f32, "
                          "bf16 or f16",
                          shoal_dtype_name(dtype));
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\":1,\"packed_weights\":false,"
             "\"bf16\":{\"enabled\":%s},\"fp16\":{\"enabled\":%s}}",
             dtype == SHOAL_BF16 ? "true" : "false", dtype == SHOAL_F16 ? "true" : "false");
    return shoal_engine_create(&(shoal_engine_args){.model = g->model,
                                                    .config_text = text,
                                                    .threads = g->bench.run.threads,
                                                    .ops = g->bench.run.ops,
                                                    .inference = 1},
                               &g->engine);
}

static shoal_status choose_sizes(struct generation *g)
{
    double vocabulary;
    shoal_status status;
    const shoali_bench_generate_args *args = g->args;
    SHOAL_TRY(status, shoal_model_config_get(args->model, "vocab-size", &vocabulary), done);
    g->vocabulary = (int64_t)vocabulary;
    g->positions = g->model->tokens_per_sample;
    g->sequences = args->sequences > 0 ? args->sequences : 1;
    g->prompt = args->prompt_length > 0     ? args->prompt_length
                : g->positions / 2 < PROMPT ? g->positions / 2
                                            : PROMPT;
    if (g->prompt < 1 || g->prompt >= g->positions)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "bench generate: a prompt of %lld tokens leaves no room for a new "
                            "token in a sequence of %lld: give a smaller --prompt-length",
                            (long long)g->prompt, (long long)g->positions);
done:
    return status;
}

static shoal_status prepare(struct generation *g)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_bench_init_on_host(&g->bench, &g->args->run), done);
    SHOAL_TRY(status, shoal_model_create(g->args->model, &g->model), done);
    SHOAL_TRY(status, choose_sizes(g), done);
    SHOAL_TRY(status, make_engine(g), done);
    SHOAL_TRY(status,
              shoal_generator_create(&(shoal_generator_args){.engine = g->engine,
                                                             .sequences = g->sequences,
                                                             .max_length = g->positions},
                                     &g->generator),
              done);
    SHOAL_TRY(status, shoali_packed_place(&g->engine->module, &g->engine->exec), done);
    SHOAL_TRY(status, shoali_bench_numbers(READ_COUNT, SHOAL_F32, (void **)&g->memory), done);
    const int64_t rows = shoal_generator_vocab_size(g->generator);
    g->tokens = shoali_calloc((size_t)g->positions, sizeof *g->tokens, "tokens");
    g->input = shoali_calloc((size_t)g->sequences, sizeof *g->input, "inputs");
    g->logits = shoali_calloc((size_t)(g->sequences * rows), sizeof *g->logits, "logits");
    if (!g->tokens || !g->input || !g->logits)
        status = SHOAL_ENOMEM;
    for (int64_t i = 0; g->tokens && i < g->positions; i++)
        g->tokens[i] = (int32_t)(i * 7919 % g->vocabulary);
done:
    return status;
}

/* Weights that a token passes through: those of products, and vectors; of a table that is only
 * looked up it is a row. */
static double weight_bytes(const struct generation *g)
{
    const struct shoali_module *module = &g->engine->module;
    double bytes = 0;
    for (int32_t i = 0; i < module->param_count; i++) {
        const struct shoal_param *param = module->param[i];
        const bool whole = param->packed[SHOALI_PACKED_FORWARD].n > 0 || param->shape.ndim < 2;
        bytes += (double)param->count / (whole ? 1 : (double)param->shape.dim[0]);
    }
    return bytes * (double)shoal_dtype_bytes(module->dtype);
}

/* Of the products of a token that has no logits: the head, alone in being made for fewer rows than
 * the others, is not among them. */
static double token_flops(const struct generation *g)
{
    const struct shoali_module *module = &g->engine->module;
    double flops = 0;
    int64_t most = 0;
    for (int32_t i = 0; i < module->param_count; i++) {
        const struct shoali_packed *use = &module->param[i]->packed[SHOALI_PACKED_FORWARD];
        most = use->rows > most ? use->rows : most;
    }
    for (int32_t i = 0; i < module->param_count; i++) {
        const struct shoali_packed *use = &module->param[i]->packed[SHOALI_PACKED_FORWARD];
        if (use->rows == most)
            flops += 2.0 * (double)use->n * (double)use->k;
    }
    return flops;
}

/* Gives every sequence `count` tokens from `at` on; seconds. */
static shoal_status read_tokens(struct generation *g, int64_t at, int64_t count, double *seconds)
{
    const double start = shoali_seconds();
    for (int32_t s = 0; s < g->sequences; s++)
        g->input[s] = (shoal_generator_input){s, g->tokens + at, count};
    const shoal_status status =
        shoal_generator_forward(g->generator, g->input, g->sequences, false, g->logits);
    *seconds = shoali_seconds() - start;
    return status;
}

static shoal_status forget(struct generation *g, int64_t length)
{
    shoal_status status = SHOAL_OK;
    for (int32_t s = 0; s < g->sequences; s++)
        SHOAL_TRY(status, shoal_generator_truncate(g->generator, s, length), done);
done:
    return status;
}

/* The best of the tokens that fit in the time, right behind the prompt and on from there. */
static shoal_status sample(struct generation *g, double share)
{
    shoal_status status;
    double seconds, best = 0, spent = 0;
    shoali_samples_add(&g->peak, shoali_limit_fma(g->bench.pool, g->args->dtype));
    shoali_samples_add(&g->read,
                       shoali_limit_lines(g->bench.pool, g->memory, NULL,
                                          READ_COUNT * (int64_t)sizeof(float) / SHOALI_BENCH_LINE,
                                          1, 0));
    SHOAL_TRY(status, forget(g, 0), done);
    SHOAL_TRY(status, read_tokens(g, 0, g->prompt, &seconds), done);
    shoali_samples_add(&g->prefill, (double)(g->sequences * g->prompt) / seconds);
    for (int64_t at = g->prompt; best == 0 || spent < share; at++) {
        if (at == g->positions) {
            at = g->prompt;
            SHOAL_TRY(status, forget(g, at), done);
        }
        SHOAL_TRY(status, read_tokens(g, at, 1, &seconds), done);
        best = best == 0 || seconds < best ? seconds : best;
        spent += seconds;
    }
    shoali_samples_add(&g->token, best * 1e3);
done:
    return status;
}

static shoal_status emit_prefill(struct generation *g, const char *what)
{
    char name[160];
    struct shoali_samples limit = {.count = 0};
    const double flops = token_flops(g);
    for (int32_t i = 0; i < g->peak.count; i++)
        shoali_samples_add(&limit, g->peak.value[i] * 1e9 / flops);
    snprintf(name, sizeof name, "%s: prompt of %lld tokens", what, (long long)g->prompt);
    shoali_bench_result result = {.bench = "generate",
                                  .name = name,
                                  .unit = "tokens/s",
                                  .limit_name = "multiply-add peak / FLOPs of products"};
    return shoali_bench_emit(&g->bench.run, &result, &g->prefill, &limit);
}

static shoal_status emit_token(struct generation *g, const char *what)
{
    char name[160];
    shoal_memory_info memory;
    struct shoali_samples limit = {.count = 0};
    const double bytes = weight_bytes(g), mib = 1.0 / (1024 * 1024);
    shoal_engine_get_memory_info(g->engine, &memory);
    for (int32_t i = 0; i < g->read.count; i++)
        shoali_samples_add(&limit, bytes / (g->read.value[i] * 1e9) * 1e3);
    const double ms = shoali_samples_median(&g->token);
    const shoali_bench_value values[] = {{"tokens/s", "1/s", 1e3 * g->sequences / ms},
                                         {"weights of a token", "MiB", bytes * mib},
                                         {"reads", "GB/s", bytes / ms * 1e-6},
                                         {"memory reads", "GB/s", shoali_samples_median(&g->read)},
                                         {"all weights", "MiB", (double)memory.weights_bytes * mib},
                                         {"masters", "MiB", (double)memory.master_bytes * mib}};
    snprintf(name, sizeof name, "%s: a token after it, of %d sequence%s", what, (int)g->sequences,
             g->sequences > 1 ? "s" : "");
    shoali_bench_result result = {.bench = "generate",
                                  .name = name,
                                  .unit = "ms",
                                  .limit_name = "weights at memory speed",
                                  .values = values,
                                  .value_count = sizeof values / sizeof values[0]};
    return shoali_bench_emit(&g->bench.run, &result, &g->token, &limit);
}

shoal_status shoali_bench_generate(const shoali_bench_generate_args *args)
{
    shoal_status status;
    char what[96];
    struct generation *g = shoali_calloc(1, sizeof *g, "the benchmark");
    if (!g)
        return SHOAL_ENOMEM;
    g->args = args;
    SHOAL_TRY(status, prepare(g), done);
    const shoali_bench_run *run = &g->bench.run;
    for (int32_t i = 0; i < run->repeats; i++) {
        if (run->before_sample)
            SHOAL_TRY(status, run->before_sample(run->user), done);
        SHOAL_TRY(status, sample(g, run->seconds / run->repeats), done);
    }
    shoali_snprintf(
        what, sizeof what, "%s %.1fM, %s, %d thread%s", shoal_model_config_name(args->model),
        (double)shoal_engine_param_count(g->engine) * 1e-6, shoal_dtype_name(args->dtype),
        (int)shoali_pool_threads(g->bench.pool), shoali_pool_threads(g->bench.pool) > 1 ? "s" : "");
    SHOAL_TRY(status, emit_prefill(g, what), done);
    SHOAL_TRY(status, emit_token(g, what), done);
done:
    shoal_generator_destroy(g->generator);
    shoal_engine_destroy(g->engine);
    shoal_model_destroy(g->model);
    shoali_bench_fini(&g->bench);
    free(g->memory);
    shoali_free(g->tokens);
    shoali_free(g->input);
    shoali_free(g->logits);
    shoali_free(g);
    return status;
}
