/* step.c - whole training steps through the engine. */
#include "benchmark/step.h"

#include "base/plain.h"
#include "base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Enough to keep a pipeline busy. */
static int64_t accumulation(const shoali_bench_step_args *args)
{
    if (args->accumulation > 0)
        return args->accumulation;
    return args->mesh && args->mesh->pipeline > 1 ? 4 * (int64_t)args->mesh->pipeline : 1;
}

static shoal_status config_text(const shoali_bench_step_args *args, struct shoali_str *text)
{
    const char *precision = args->dtype == SHOAL_BF16  ? ", \"bf16\": { \"enabled\": true }"
                            : args->dtype == SHOAL_F16 ? ", \"fp16\": { \"enabled\": true }"
                                                       : "";
    if (args->dtype != SHOAL_F32 && args->dtype != SHOAL_BF16 && args->dtype != SHOAL_F16)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "bench step: type %s is not supported: give f32, bf16 or "
                          "f16",
                          shoal_dtype_name(args->dtype));
    shoali_str_append(text,
                      "{ \"train_micro_batch_size_per_gpu\": %lld, "
                      "\"gradient_accumulation_steps\": %lld, \"gradient_clipping\": 1.0,\n"
                      "  \"optimizer\": { \"type\": \"AdamW\", \"params\": { \"lr\": 1e-4, "
                      "\"betas\": [0.9, 0.95], \"eps\": 1e-8, \"weight_decay\": 0.1 } }%s }\n",
                      (long long)args->micro_batch, (long long)accumulation(args), precision);
    return text->failed ? SHOAL_FAIL(SHOAL_ENOMEM, "bench step: out of memory") : SHOAL_OK;
}

/* The engine's own rule: ranks share the cores of the machine. */
static int32_t thread_count(const struct shoali_step *step)
{
    if (step->run.threads || shoali_pool_threads_given())
        return step->run.threads;
    const int64_t local = shoali_started_get().local_size;
    const int64_t ranks = local > 0 ? local : shoal_comm_size(step->group);
    const int32_t share = shoali_core_count() / (int32_t)ranks;
    return share > 0 ? share : 1;
}

shoal_status shoali_step_make_engine(struct shoali_step *step, const char *text)
{
    shoal_engine_args args = {0};
    if (step->args->engine)
        args = *step->args->engine;
    args.model = step->model;
    args.config_path = step->args->config_path;
    args.config_text = text;
    args.group = step->group;
    args.mesh = step->mesh;
    args.threads = step->run.threads;
    args.ops = step->run.ops;
    args.accelerator = step->run.accelerator;
    return shoal_engine_create(&args, &step->engine);
}

/* Samples of the model's kind, of random tokens: a function of step and micro-batch, never of the
 * rank. */
static shoal_status make_data(struct shoali_step *step, int32_t vocabulary, int64_t micro,
                              int64_t micro_batches)
{
    shoal_status status;
    int64_t numbers, all = 0;
    SHOAL_TRY(status,
              shoal_dataset_create(&(shoal_dataset_args){.mock = true,
                                                         .mock_vocab_size = vocabulary,
                                                         .mock_token_count = 65536 + step->sequence,
                                                         .split = "1"},
                                   &step->dataset),
              done);
    SHOAL_TRY(status,
              shoal_loader_create(
                  &(shoal_loader_args){.dataset = step->dataset,
                                       .kind = shoal_model_config_samples(step->args->model),
                                       .seq_length = step->sequence,
                                       .micro_batch = micro,
                                       .micro_batches = micro_batches,
                                       .seed = 1},
                  &step->loader),
              done);
    for (int32_t i = 0; shoal_loader_array(step->loader, i, &numbers); i++)
        all += micro * numbers;
    step->batch = shoali_calloc((size_t)all, sizeof(int32_t), "a micro-batch");
    if (!step->batch)
        return SHOAL_ENOMEM;
    int32_t *at = step->batch;
    for (int32_t i = 0; shoal_loader_array(step->loader, i, &numbers); i++) {
        SHOAL_ASSERT(i < SHOALI_STEP_ARRAYS);
        step->arrays[i] = at;
        at += micro * numbers;
    }
done:
    return status;
}

static shoal_status prepare(struct shoali_step *step)
{
    const shoali_bench_step_args *args = step->args;
    struct shoali_str text = {0};
    shoal_status status;
    int64_t batch, micro, accumulation;
    double vocabulary;
    if (!args->config_path)
        SHOAL_TRY(status, config_text(args, &text), done);
    SHOAL_TRY(status, shoal_comm_init(&(shoal_comm_args){0}, &step->group), done);
    step->run.threads = thread_count(step);
    if (args->mesh) {
        shoal_mesh_args mesh = *args->mesh;
        mesh.group = step->group;
        SHOAL_TRY(status, shoal_mesh_create(&mesh, &step->mesh), done);
    }
    SHOAL_TRY(status, shoal_model_create(args->model, &step->model), done);
    SHOAL_TRY(status, shoal_model_config_get(args->model, "vocab-size", &vocabulary), done);
    SHOAL_TRY(status,
              shoali_step_make_engine(step, args->config_path ? NULL : shoali_str_get(&text)),
              done);
    shoal_engine_get_batch_info(step->engine, &batch, &micro, &accumulation);
    step->sequence = step->model->tokens_per_sample;
    step->tokens_per_step = (double)(batch * step->sequence);
    SHOAL_TRY(status, make_data(step, (int32_t)vocabulary, micro, batch / micro), done);
done:
    shoali_str_fini(&text);
    return status;
}

static shoal_status fill(void *user, int64_t number, int64_t micro, shoal_batch *batch)
{
    struct shoali_step *step = user;
    for (int32_t i = 0; i < step->model->input_count; i++)
        batch->data[i] = step->arrays[i];
    return shoal_loader_get_arrays(step->loader, number, micro, step->arrays);
}

shoal_status shoali_step_train(struct shoali_step *step, int32_t steps, double *seconds)
{
    shoal_step_info info, sum = {0};
    shoal_status status;
    SHOAL_TRY(status, shoal_barrier(step->group), done);
    const double start = shoali_seconds();
    SHOAL_TRY(status, shoali_step_device_begin(step), done);
    for (int32_t i = 0; i < steps; i++) {
        SHOAL_TRY(status, shoal_engine_train_batch(step->engine, fill, step, &info), done);
        sum.forward_ms += info.forward_ms;
        sum.backward_ms += info.backward_ms;
        sum.reduce_ms += info.reduce_ms;
        sum.update_ms += info.update_ms;
    }
    *seconds = shoali_seconds() - start;
    SHOAL_TRY(status, shoali_step_device_end(step, steps, seconds), done);
    shoali_samples_add(&step->forward, sum.forward_ms / steps);
    shoali_samples_add(&step->backward, sum.backward_ms / steps);
    shoali_samples_add(&step->reduce, sum.reduce_ms / steps);
    shoali_samples_add(&step->update, sum.update_ms / steps);
done:
    return status;
}

void shoali_step_forget(struct shoali_step *step)
{
    step->forward.count = step->backward.count = step->reduce.count = step->update.count = 0;
    step->host.count = 0;
}

/* All ranks at once; GFLOP/s of all. */
static shoal_status sample_peak(struct shoali_step *step)
{
    double peak;
    shoal_status status;
    SHOAL_TRY(status, shoal_barrier(step->group), done);
    SHOAL_TRY(status, shoali_step_peak(step, &peak), done);
    SHOAL_TRY(status, shoal_all_reduce(step->group, &peak, &peak, 1, SHOAL_F64, SHOAL_SUM, NULL),
              done);
    shoali_samples_add(&step->peak, peak);
done:
    return status;
}

static shoal_status take_samples(struct shoali_step *step, struct shoali_step_swap *swap)
{
    const double share = step->run.seconds / step->run.repeats;
    double seconds;
    shoal_status status;
    SHOAL_TRY(status, shoali_step_train(step, 1, &seconds), done); /* packs, touches memory */
    SHOAL_TRY(status, shoali_step_device_open(step), done);
    SHOAL_TRY(status, shoali_step_train(step, 1, &seconds), done);
    int32_t steps = seconds * 1e6 < share ? 1000000 : (int32_t)(share / seconds);
    steps = steps < 1 ? 1 : steps;
    SHOAL_TRY(status, shoal_broadcast(step->group, &steps, 1, SHOAL_I32, 0, NULL), done);
    shoali_step_forget(step);
    for (int32_t i = 0; i < step->run.repeats; i++) {
        if (step->run.before_sample && shoal_engine_rank(step->engine) == 0)
            SHOAL_TRY(status, step->run.before_sample(step->run.user), done);
        SHOAL_TRY(status, sample_peak(step), done);
        if (swap)
            SHOAL_TRY(status, shoali_step_swap_sample(swap, step), done);
        SHOAL_TRY(status, shoali_step_train(step, steps, &seconds), done);
        shoali_samples_add(&step->rate, step->tokens_per_step * steps / seconds);
    }
done:
    return status;
}

/* ", tp 2, pp 2 1f1b, 8 micro-batches". */
static void describe_mesh(const struct shoali_step *step, char *text, size_t bytes)
{
    int64_t count;
    const shoal_engine_args *engine = step->args->engine;
    if (!step->mesh)
        return;
    const int32_t tensor = shoal_mesh_size(step->mesh, SHOAL_AXIS_TP);
    const int32_t stages = shoal_mesh_size(step->mesh, SHOAL_AXIS_PP);
    const int32_t chunks = engine && engine->virtual_stages > 1 ? engine->virtual_stages : 1;
    size_t at = 0;
    shoal_engine_get_batch_info(step->engine, NULL, NULL, &count);
    if (tensor > 1)
        at += (size_t)snprintf(text, bytes, ", tp %d%s", (int)tensor,
                               engine && engine->sequence_parallel ? " with sequence" : "");
    if (stages > 1 && at < bytes)
        snprintf(text + at, bytes - at, ", pp %d %s, %lld micro-batches", (int)stages,
                 engine && engine->pipeline_schedule ? engine->pipeline_schedule
                 : chunks > 1                        ? "interleaved"
                                                     : "1f1b",
                 (long long)count);
}

enum { MOST_VALUES = 16 };
/* What stands beside a figure. */
static int32_t list_values(const struct shoali_step *step, double flops, shoali_bench_value *values)
{
    const double mib = 1.0 / (1024 * 1024);
    shoal_memory_info memory;
    shoal_engine_get_memory_info(step->engine, &memory);
    const double rate = shoali_samples_median(&step->rate);
    const shoali_bench_value by_host[] = {
        {"step", "ms", step->tokens_per_step * 1e3 / rate},
        {"forward", "ms", shoali_samples_median(&step->forward)},
        {"backward", "ms", shoali_samples_median(&step->backward)},
        {"reduce", "ms", shoali_samples_median(&step->reduce)},
        {"update", "ms", shoali_samples_median(&step->update)}};
    const shoali_bench_value by_device[] = {
        {"step", "ms", step->tokens_per_step * 1e3 / rate},
        {"by the host's clock", "ms", shoali_samples_median(&step->host)},
        {"product", "GFLOP/s", shoali_samples_median(&step->peak)},
        {"copy", "GB/s", shoali_samples_median(&step->copy)}};
    const shoali_bench_value both[] = {
        {"FLOPs per token", "MFLOP", flops * 1e-6},
        {"peak RSS", "MiB", (double)shoali_process_peak_bytes() * mib},
        {"weights", "MiB", (double)memory.weights_bytes * mib},
        {"gradients", "MiB", (double)memory.gradients_bytes * mib},
        {"states", "MiB", (double)memory.states_bytes * mib},
        {"activations", "MiB", (double)memory.activations_bytes * mib},
        {"buffers", "MiB", (double)memory.buffers_bytes * mib}};
    const size_t first = step->on.device ? sizeof by_device : sizeof by_host;
    memcpy(values, step->on.device ? by_device : by_host, first);
    memcpy((char *)values + first, both, sizeof both);
    return (int32_t)((first + sizeof both) / sizeof values[0]);
}

static shoal_status emit(struct shoali_step *step)
{
    shoal_status status;
    double flops;
    struct shoali_samples roofline = {.count = 0};
    shoali_bench_value values[MOST_VALUES];
    char name[256], mesh[96] = "";
    SHOAL_TRY(status, shoal_model_flops_per_token(step->model, &flops), done);
    for (int32_t i = 0; i < step->peak.count; i++)
        shoali_samples_add(&roofline, step->peak.value[i] * 1e9 / flops);
    const int32_t ranks = shoal_engine_world_size(step->engine);
    describe_mesh(step, mesh, sizeof mesh);
    shoali_snprintf(
        name, sizeof name, "%s %.1fM, %.0fx%lld tokens, %s%s, %d rank%s of %d thread%s%s",
        shoal_model_config_name(step->args->model),
        (double)shoal_engine_param_count(step->engine) * 1e-6,
        step->tokens_per_step / (double)step->sequence, (long long)step->sequence,
        shoal_dtype_name(shoal_engine_dtype(step->engine)),
        step->args->config_path ? " by configuration" : "", (int)ranks, ranks > 1 ? "s" : "",
        (int)shoali_pool_threads(step->pool), shoali_pool_threads(step->pool) > 1 ? "s" : "", mesh);
    shoali_bench_result result = {.bench = "step",
                                  .name = name,
                                  .unit = "tokens/s",
                                  .limit_name = step->on.device
                                                    ? "product / FLOPs per token"
                                                    : "multiply-add peak / FLOPs per token",
                                  .values = values,
                                  .value_count = list_values(step, flops, values),
                                  .emulated = step->on.facts.emulated};
    status = shoali_bench_emit(&step->run, &result, &step->rate, &roofline);
done:
    return status;
}

/* The clock is the same for all processes of the machine. */
static shoal_status first_step(struct shoali_step *step)
{
    double seconds;
    char text[64];
    shoal_status status;
    SHOAL_TRY(status, shoal_barrier(step->group), done);
    const int64_t begin_ns = shoali_now_ns();
    SHOAL_TRY(status, shoali_step_train(step, 1, &seconds), done);
    const int bytes = snprintf(text, sizeof text, "%lld\n%lld\n", (long long)begin_ns,
                               (long long)shoali_now_ns());
    if (shoal_engine_rank(step->engine) == 0)
        SHOAL_TRY(status,
                  shoali_write_file_atomic(step->args->first_step_file, text, (size_t)bytes), done);
done:
    return status;
}

shoal_status shoali_bench_step(const shoali_bench_step_args *args)
{
    shoal_status status = SHOAL_OK;
    struct shoali_step_swap *swap = NULL;
    struct shoali_step *step = shoali_calloc(1, sizeof *step, "the benchmark");
    if (!step)
        return SHOAL_ENOMEM;
    step->args = args;
    SHOAL_TRY(status, shoali_bench_run_init(&args->run, &step->run), done);
    SHOAL_TRY(status, prepare(step), done);
    if (args->first_step_file) {
        SHOAL_TRY(status, first_step(step), done);
        goto done;
    }
    SHOAL_TRY(status, shoali_pool_create(step->run.threads, &step->pool), done);
    SHOAL_TRY(status, shoali_step_swap_create(step, &swap), done);
    SHOAL_TRY(status, take_samples(step, swap), done);
    if (shoal_engine_rank(step->engine) == 0)
        SHOAL_TRY(status, emit(step), done);
    shoali_step_device_close(step);
    if (swap)
        SHOAL_TRY(status, shoali_step_swap_finish(swap, step), done);
done:
    if (status < 0 && step->group)
        shoal_comm_abort(step->group, status);
    shoali_step_swap_destroy(swap);
    shoali_step_device_close(step);
    shoal_engine_destroy(step->engine);
    shoal_model_destroy(step->model);
    shoal_mesh_destroy(step->mesh);
    shoal_comm_destroy(step->group);
    shoali_pool_destroy(step->pool);
    shoal_loader_destroy(step->loader);
    shoal_dataset_destroy(step->dataset);
    shoali_free(step->batch);
    shoali_free(step);
    return status;
}
