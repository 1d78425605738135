/* Creation: from a configuration to an engine that can step without allocating. */
#include "engine/engine_checkpoint.h"

#include "base/cpu.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define PACKED_ROWS 512

static shoal_dtype compute_dtype(const struct shoali_ds_config *config)
{
    return config->bf16.enabled ? SHOAL_BF16 : config->fp16.enabled ? SHOAL_F16 : SHOAL_F32;
}

/* All ranks of a machine share its cores. */
static int32_t thread_count(const struct shoal_engine *engine, const shoal_engine_args *args)
{
    if (args->threads > 0)
        return args->threads;
    if (engine->config.threads > 0)
        return (int32_t)engine->config.threads;
    if (getenv("SHOAL_NUM_THREADS") || getenv("OMP_NUM_THREADS"))
        return 0;
    int64_t ranks = shoali_started_get().local_size;
    if (engine->ranks_per_machine > 0 && engine->ranks_per_machine < engine->world)
        ranks = engine->ranks_per_machine;
    else if (ranks <= 0)
        ranks = engine->world;
    const int32_t share = shoali_core_count() / (int32_t)ranks;
    return share > 0 ? share : 1;
}

/* Key `dump_state`. */
static void log_config(const struct shoali_ds_config *config)
{
    const char *key;
    json_t *value;
    json_object_foreach(shoali_json_root(config->document), key, value)
    {
        char *text = NULL;
        if (shoali_json_write(value, JSON_COMPACT, "a value", &text) < 0)
            shoali_error_clear(); /* a line of the log less */
        SHOALI_INFO("config", "%s: %s", key, text ? text : "?");
        free(text);
    }
}

static shoal_status read_config(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status;
    struct shoali_ds_config *config = &engine->config;
    SHOAL_TRY(status, shoali_batch_triad(config, engine->data_ranks, &engine->batch), done);
    engine->largest = engine->batch;
    SHOAL_TRY(status,
              shoali_optimizer_make(&config->optimizer, config->document, "optimizer",
                                    &config->arena, &engine->optimizer),
              done);
    if (!engine->optimizer.type && !engine->inference) {
        status = SHOAL_FAIL(SHOAL_ECONFIG,
                            "the configuration has no `optimizer` section: add {\"optimizer\": "
                            "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}}}");
        goto done;
    }
    SHOAL_TRY(status,
              shoali_schedule_make(&config->scheduler, config->document, "scheduler",
                                   engine->optimizer.lr, &config->arena, &engine->schedule),
              done);
    shoali_loss_scaler_init(&engine->scaler, &config->fp16);
    if (config->reduction == SHOALI_REDUCTION_EXACT)
        SHOAL_TRY(status, shoali_loss_scaler_check_exact(&engine->scaler), done);
    engine->seed = args->seed ? args->seed : (uint64_t)config->seed;
    if (config->dump_state && !engine->meta)
        log_config(config);
done:
    return status;
}

static shoal_status open_device(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status;
    const struct shoali_accelerator *accelerator;
    const char *local = getenv("LOCAL_RANK");
    int64_t local_rank = 0;
    if (!local && (local_rank = shoali_started_get().local_rank) < 0)
        local_rank = 0;
    if (local && !shoali_parse_i64(local, &local_rank))
        return SHOAL_FAIL(SHOAL_EINVAL, "the variable LOCAL_RANK is \"%s\", which is no number",
                          local);
    int32_t threads = thread_count(engine, args);
    SHOAL_TRY(status, shoali_pool_choose_threads(&threads), done);
    SHOAL_TRY(status, shoali_pool_create(engine->meta ? 1 : threads, &engine->pool), done);
    SHOAL_TRY(status, shoali_accelerator_select(args->accelerator, &accelerator), done);
    if (engine->meta)
        accelerator = shoali_accelerator_meta(accelerator);
    const int32_t devices = accelerator->device_count();
    SHOAL_TRY(status,
              shoali_device_create(accelerator, devices > 0 ? (int32_t)(local_rank % devices) : 0,
                                   engine->pool, &engine->device),
              done);
    if (engine->meta)
        shoali_device_set_threads(engine->device, threads);
    SHOAL_TRY(status, shoali_stream_create(engine->device, &engine->exec.stream), done);
    SHOAL_TRY(status, shoali_ops_select(args->ops, &engine->ops), done);
    engine->exec.ops = &engine->ops;
done:
    return status;
}

/* pipeline.activation_checkpoint_interval: DeepSpeed's word for chunks of so many layers. */
static shoal_status take_interval(const struct shoal_engine *engine,
                                  struct shoali_recompute_args *words)
{
    const int64_t interval = engine->config.pipeline.activation_checkpoint_interval;
    if (interval == 0)
        return SHOAL_OK;
    if (words->granularity || words->number_checkpoints > 0)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "pipeline.activation_checkpoint_interval %lld and %s both say what is "
                          "recomputed: give one of them",
                          (long long)interval,
                          words->granularity ? "--recompute-granularity"
                                             : "activation_checkpointing.number_checkpoints");
    words->granularity = "full";
    words->num_layers = interval;
    return SHOAL_OK;
}

static shoal_status read_recompute(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_activation_checkpointing_config *keys =
        &engine->config.activation_checkpointing;
    struct shoali_recompute_args words = {.granularity = args->recompute_granularity,
                                          .method = args->recompute_method,
                                          .num_layers = args->recompute_num_layers,
                                          .modules = args->recompute_modules,
                                          .layer_count = engine->module.layer_count};
    if (!engine->inference) { /* which has no backward to recompute for */
        words.number_checkpoints = keys->number_checkpoints;
        SHOAL_TRY(status, take_interval(engine, &words), done);
        words.cpu_checkpointing = keys->cpu_checkpointing;
        words.contiguous_memory_optimization = keys->contiguous_memory_optimization;
        words.synchronize = keys->synchronize_checkpoint_boundary;
        words.profile = keys->profile;
    }
    SHOAL_TRY(status, shoali_recompute_init(&engine->recompute, &words), done);
done:
    return status;
}

/* Packing saves a product of 512 rows some 3 %, one of 64 rows 15 %, and costs the memory of the
 * weights twice. Stage 3 would pack at every fetch. */
static shoal_status create_packed_weights(struct shoal_engine *engine)
{
    const struct shoali_ds_config *config = &engine->config;
    const bool given = shoali_config_given(&shoali_ds_section, config, "packed_weights");
    struct shoali_packed_rule rule = {.repeats = engine->inference ? INT64_MAX
                                                                   : engine->batch.accumulation,
                                      .least_uses = 2,
                                      .most_rows = PACKED_ROWS};
    if (config->zero_optimization.stage == 3 || (given && !config->packed_weights))
        return SHOAL_OK;
    if (given)
        rule = (struct shoali_packed_rule){1, 1, INT64_MAX};
    return shoali_packed_create(&engine->module, engine->device, &rule, &engine->packed_weights,
                                &engine->packed_weights_bytes);
}

static enum shoali_zero_home home_of(int32_t device)
{
    return device == SHOALI_OFFLOAD_NVME  ? SHOALI_ZERO_NVME
           : device == SHOALI_OFFLOAD_CPU ? SHOALI_ZERO_CPU
                                          : SHOALI_ZERO_DEVICE;
}

static struct shoali_zero_offload offload_of(const struct shoali_ds_config *config)
{
    const struct shoali_offload_param_config *param = &config->zero_optimization.offload_param;
    const struct shoali_offload_optimizer_config *optimizer =
        &config->zero_optimization.offload_optimizer;
    return (struct shoali_zero_offload){
        .optimizer = home_of(optimizer->device),
        .param = home_of(param->device),
        .ratio = optimizer->ratio,
        .optimizer_buffers = optimizer->buffer_count,
        .optimizer_pin = optimizer->pin_memory,
        .pipeline_read = optimizer->pipeline_read,
        .pipeline_write = optimizer->pipeline_write,
        .optimizer_path = optimizer->nvme_path,
        .param_path = param->nvme_path,
        .param_buffers = param->buffer_count,
        .param_buffer_size = param->buffer_size,
        .param_max_in_cpu = param->max_in_cpu,
        .param_pin = param->pin_memory,
        .io = {.block_bytes = (size_t)config->aio.block_size,
               .queue_depth = (int32_t)config->aio.queue_depth,
               .threads = (int32_t)config->aio.intra_op_parallelism,
               .single_submit = config->aio.single_submit,
               .overlap_events = config->aio.overlap_events,
               .direct = true},
    };
}

static shoal_status create_zero(struct shoal_engine *engine)
{
    shoal_status status;
    const struct shoali_ds_config *config = &engine->config;
    const struct shoali_zero_config *zero = &config->zero_optimization;
    const struct shoali_exact_splits_config *splits = &config->exact_splits;
    struct shoali_zero_args args = {
        .module = &engine->module,
        .device = engine->device,
        .exec = engine->exec,
        .optimizer = engine->inference ? NULL : &engine->optimizer,
        .rule = engine->param_groups.rule,
        .seed = engine->seed,
        .zeros = engine->blank_weights,
        .stage = (int32_t)zero->stage,
        .exact = config->reduction == SHOALI_REDUCTION_EXACT,
        .unit_log2 = (int32_t)config->exact_unit_log2,
        .contributions =
            (int32_t)(splits->tensor > splits->sequence ? splits->tensor : splits->sequence),
        .reduce_bucket_size = zero->reduce_bucket_size,
        .allgather_bucket_size = zero->allgather_bucket_size,
        .sub_group_size = zero->sub_group_size,
        .all_reduce = !zero->reduce_scatter,
        .prescale_gradients = config->prescale_gradients,
        .gradient_sum = config->gradient_allreduce_op == SHOALI_GRADIENT_SUM,
        .gradient_predivide_factor = config->gradient_predivide_factor,
        .max_norm = config->gradient_clipping,
        .gas = engine->batch.accumulation,
        .shard_size = (int32_t)(zero->mics_shard_size > 0 ? zero->mics_shard_size : 0),
        .hierarchical_gather = zero->mics_hierarchical_params_gather,
        .hpz_size = (int32_t)zero->zero_hpz_partition_size,
        .quantized_weights = zero->zero_quantized_weights,
        .quantized_gradients = zero->zero_quantized_gradients,
        .loco_reset = zero->zeropp_loco_param.reset_T,
        .loco_beta = zero->zeropp_loco_param.err_beta,
        .overlap = zero->overlap_comm,
        .fetch = {.prefetch_bucket = zero->stage3_prefetch_bucket_size,
                  .param_persistence = zero->stage3_param_persistence_threshold,
                  .model_persistence = zero->stage3_model_persistence_threshold,
                  .max_live = zero->stage3_max_live_parameters,
                  .max_reuse_distance = zero->stage3_max_reuse_distance,
                  .granularity = zero->stage3_module_granularity_threshold},
        .offload = offload_of(config),
    };
    SHOAL_TRY(status, shoali_engine_share_blocks(engine, &args), done);
    SHOAL_TRY(status, shoali_stages_describe(engine, &args), done);
    SHOAL_TRY(status, shoali_zero_create(&args, &engine->zero), done);
done:
    return status;
}

static shoal_status create_monitor(struct shoal_engine *engine)
{
    const struct shoali_ds_config *config = &engine->config;
    if (engine->rank != 0 || engine->inference || engine->meta)
        return SHOAL_OK;
    return shoal_monitor_create(
        &(shoal_monitor_args){
            .csv_enabled = config->csv_monitor.enabled,
            .csv_output_path = config->csv_monitor.output_path,
            .csv_job_name = config->csv_monitor.job_name,
            .jsonl_enabled = config->jsonl_monitor.enabled,
            .jsonl_output_path = config->jsonl_monitor.output_path,
            .jsonl_job_name = config->jsonl_monitor.job_name,
        },
        &engine->monitor);
}

/* Ranks must compute with the same kernels, or their bits differ silently. Which ones are good depends
 * on the CPU, so hosts of different kinds may choose differently. */
static shoal_status agree_on_kernels(struct shoal_engine *engine)
{
    shoal_status status;
    char cpu_text[SHOALI_CPU_NAME_BYTES];
    const struct shoali_cpu cpu = shoali_cpu_get();
    int64_t hash[2] = {(int64_t)(engine->ops.digest >> 2)};
    if (engine->world == 1)
        return SHOAL_OK;
    hash[1] = -hash[0];
    SHOAL_TRY(status, shoal_all_reduce(engine->group, hash, hash, 2, SHOAL_I64, SHOAL_MAX, NULL),
              done);
    if (hash[0] != -hash[1])
        status = SHOAL_FAIL(
            SHOAL_EMISMATCH,
            "ranks would compute with different kernels (rank %d: %s, on a CPU %s), which "
            "would give different bits: set SHOAL_OPS to one that all machines have "
            "('shoal report' lists them)",
            (int)engine->rank, engine->ops.name, shoali_cpu_describe(&cpu, cpu_text));
done:
    return status;
}

/* A rank that fails alone is waited for. Mistakes of configuration and arguments, until anything
 * was shared, are found by all ranks alike, and the group stays good for another attempt. */
static void tell_others(const struct shoal_engine *engine, shoal_status status)
{
    const bool alike = status == SHOAL_ECONFIG || status == SHOAL_EINVAL || status == SHOAL_ENOENT;
    if (engine->group && (engine->zero || !alike))
        shoal_comm_abort(engine->group, status);
}

shoal_status shoali_engine_read_args(const shoal_engine_args *args, size_t args_size,
                                     shoal_engine_args *own)
{
    *own = (shoal_engine_args){0};
    return SHOALI_SIZED_READ(shoal_engine_args, override_existing_checkpoint, args, args_size, own);
}

shoal_status shoal_engine_create_sized(const shoal_engine_args *args, size_t args_size,
                                       shoal_engine **engine)
{
    shoal_status status;
    shoal_engine_args own;
    *engine = NULL;
    SHOAL_TRY(status, shoali_engine_read_args(args, args_size, &own), done);
    SHOAL_TRY(status,
              shoali_engine_make(&own, &(struct shoali_engine_making){.meta = false}, engine),
              done);
done:
    return status;
}

/* What is not in the structs of today must not be asked for. */
static shoal_status check_reserved(const shoal_model *model)
{
    shoal_status status;
    SHOAL_TRY(
        status,
        shoali_check_reserved("shoal_model.reserved", model->reserved, sizeof model->reserved),
        done);
    for (int32_t i = 0; i < model->input_count; i++)
        SHOAL_TRY(status,
                  shoali_check_reserved("shoal_input_spec.reserved", model->inputs[i].reserved,
                                        sizeof model->inputs[i].reserved),
                  done);
    for (int32_t i = 0; i < model->layer_count; i++)
        if (model->layers[i].type)
            SHOAL_TRY(status,
                      shoali_check_reserved("shoal_layer_type.reserved",
                                            model->layers[i].type->reserved,
                                            sizeof model->layers[i].type->reserved),
                      done);
done:
    return status;
}

/* At least one, so that a model without inputs is no lack of memory. */
static shoal_status make_batch_arrays(struct shoal_engine *engine)
{
    const size_t count = engine->model->input_count > 0 ? (size_t)engine->model->input_count : 1;
    engine->batch_arrays = shoali_calloc(count, sizeof *engine->batch_arrays, "a batch's list");
    engine->batch_inputs = shoali_calloc(count, sizeof *engine->batch_inputs, "a batch's list");
    return engine->batch_arrays && engine->batch_inputs ? SHOAL_OK : SHOAL_ENOMEM;
}

shoal_status shoali_engine_make(const shoal_engine_args *args,
                                const struct shoali_engine_making *making,
                                shoal_engine **engine_out)
{
    shoal_status status = SHOAL_ENOMEM;
    *engine_out = NULL;
    if (!args->model)
        return SHOAL_FAIL(SHOAL_EINVAL, "shoal_engine_create needs a model");
    struct shoal_engine *engine = shoali_calloc(1, sizeof *engine, "the engine");
    if (!engine)
        return status;
    engine->model = args->model;
    engine->group = args->group ? args->group : args->mesh ? shoal_mesh_world(args->mesh) : NULL;
    engine->inference = args->inference;
    engine->blank_weights = args->blank_weights;
    engine->meta = making->meta;
    engine->save_info.step = -1;
    engine->admitted = making->admitted;
    engine->ranks_per_machine = making->ranks_per_machine;
    engine->watch = making->watch;
    engine->override_existing_checkpoint = args->override_existing_checkpoint;
    const char *output_path = args->output_path ? args->output_path : "";
    engine->output_path = shoali_malloc(strlen(output_path) + 1, "the output folder's name");
    if (!engine->output_path)
        goto done;
    strcpy(engine->output_path, output_path);
    SHOAL_TRY(status, check_reserved(args->model), done);
    SHOAL_TRY(status, make_batch_arrays(engine), done);
    SHOAL_TRY(status, shoali_ds_config_init(&engine->config, args->config_path, args->config_text),
              done);
    SHOAL_TRY(status, shoali_engine_open_mesh(engine, args), done);
    SHOAL_TRY(status, read_config(engine, args), done);
    engine->config.hashes = engine->config.hashes && !engine->meta; /* there is nothing to hash */
    SHOAL_TRY(status, shoali_engine_comms_open(engine), done);
    SHOAL_TRY(status, open_device(engine, args), done);
    SHOAL_TRY(status, agree_on_kernels(engine), done);
    SHOAL_TRY(status, shoali_engine_declare(engine, compute_dtype(&engine->config)), done);
    SHOAL_TRY(status, shoali_engine_make_groups(engine), done);
    SHOAL_TRY(status, read_recompute(engine, args), done);
    SHOAL_TRY(status, shoali_stages_cut(engine, args), done);
    SHOAL_TRY(status, shoali_engine_measure_micro(engine), done);
    SHOAL_TRY(status, create_packed_weights(engine), done);
    SHOAL_TRY(status, create_zero(engine), done);
    if (!engine->inference)
        SHOAL_TRY(status, shoali_engine_need_micros(engine), done);
    SHOAL_TRY(status, create_monitor(engine), done);
    if (args->saves && !engine->inference)
        SHOAL_TRY(status, shoali_engine_prepare_saves(engine), done);
    *engine_out = engine;
done:
    if (status < 0) {
        tell_others(engine, status);
        shoal_engine_destroy(engine);
    }
    return status;
}

void shoal_engine_destroy(shoal_engine *engine)
{
    if (!engine)
        return;
    shoali_engine_saver_destroy(engine->saver);
    shoal_monitor_destroy(engine->monitor);
    shoali_engine_drop_micros(engine);
    shoali_free(engine->step_list);
    shoali_free(engine->batch_arrays);
    shoali_free(engine->batch_inputs);
    if (engine->packed_weights)
        shoali_device_free(engine->device, engine->packed_weights);
    shoali_zero_destroy(engine->zero);
    shoali_stages_fini(engine);
    shoal_comm_destroy(engine->sharers);
    shoali_module_fini(&engine->module);
    if (engine->exec.stream)
        shoali_stream_destroy(engine->exec.stream);
    shoali_device_destroy(engine->device);
    shoali_pool_destroy(engine->pool);
    shoali_engine_comms_close(engine);
    if (engine->config.document)
        shoali_ds_config_fini(&engine->config);
    shoal_mesh_destroy(engine->own_mesh);
    shoali_free(engine->output_path);
    shoali_free(engine->save_buffer);
    shoali_engine_drop_files(engine);
    shoali_free(engine);
}
