/* Creation: from a configuration to an engine that can step without allocating. */
#include "engine/save/checkpoint.h"

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
    if (shoali_pool_threads_given())
        return 0;
    int64_t ranks = shoali_started_get().local_size;
    if (engine->place.ranks_per_machine > 0 &&
        engine->place.ranks_per_machine < engine->place.world)
        ranks = engine->place.ranks_per_machine;
    else if (ranks <= 0)
        ranks = engine->place.world;
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
    SHOAL_TRY(status, shoali_batch_triad(config, engine->place.data_ranks, &engine->step.batch),
              done);
    engine->step.largest = engine->step.batch;
    SHOAL_TRY(status,
              shoali_optimizer_make(&config->optimizer, config->document, "optimizer",
                                    &config->arena, &engine->optimizer),
              done);
    if (!engine->optimizer.type && !engine->inference) {
        status = SHOAL_FAIL(SHOAL_ECONFIG, "the configuration has no `optimizer` section: give "
                                           "--lr, which means AdamW, or add {\"optimizer\": "
                                           "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}}}");
        goto done;
    }
    SHOAL_TRY(status,
              shoali_schedule_make(&config->scheduler, config->document, "scheduler",
                                   engine->optimizer.lr, &config->arena, &engine->step.schedule),
              done);
    shoali_loss_scaler_init(&engine->step.scaler, &config->fp16);
    if (config->reduction == SHOALI_REDUCTION_EXACT)
        SHOAL_TRY(status, shoali_loss_scaler_check_exact(&engine->step.scaler), done);
    engine->seed = args->seed ? args->seed : (uint64_t)config->seed;
    if (config->dump_state && !engine->meta)
        log_config(config);
done:
    return status;
}

/* Kernels that the device does not have cost copies: the user should know which. */
static shoal_status count_staged(struct shoal_engine *engine)
{
    struct shoali_str text = {0};
    if (!engine->ops.staged || engine->meta)
        return SHOAL_OK;
    engine->ops.staged_calls = shoali_calloc((size_t)engine->ops.kernel_count,
                                             sizeof *engine->ops.staged_calls, "counts of kernels");
    if (!engine->ops.staged_calls)
        return SHOAL_ENOMEM;
    shoali_ops_describe_staged(&engine->ops, &text);
    if (engine->place.rank == 0 && text.length > 0)
        SHOALI_INFO("ops",
                    "accelerator %s has no kernels of its own for: %s; they run on the host, with "
                    "copies from and to the device",
                    shoali_device_accelerator(engine->device)->name, shoali_str_get(&text));
    shoali_str_fini(&text);
    return SHOAL_OK;
}

static shoal_status open_device(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status;
    const struct shoali_accelerator *accelerator;
    const char *text = getenv("LOCAL_RANK"), *local = text && *text ? text : NULL;
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
    SHOAL_TRY(status, shoali_ops_select(args->ops, accelerator, &engine->ops), done);
    shoali_ops_host_of(&engine->ops, &engine->host_ops);
    engine->exec.ops = &engine->ops;
    SHOAL_TRY(status, count_staged(engine), done);
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
    SHOAL_TRY(status, shoali_recompute_init(&engine->step.recompute, &words), done);
done:
    return status;
}

/* Packing saves a product of 512 rows some 3 %, one of 64 rows 15 %, and costs the memory of the
 * weights twice. Stage 3 would pack at every fetch. */
static shoal_status create_packed_weights(struct shoal_engine *engine)
{
    const struct shoali_ds_config *config = &engine->config;
    const bool given = shoali_config_given(&shoali_ds_section, config, "packed_weights");
    struct shoali_packed_rule rule = {
        .repeats = engine->inference ? INT64_MAX : engine->step.batch.accumulation,
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
        .optimizer_buffers = shoali_offload_buffers(&config->zero_optimization),
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
        .host_ops = &engine->host_ops,
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
        .gas = engine->step.batch.accumulation,
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

/* The configuration on TensorBoard's page of texts, without the key of an account. */
static shoal_status write_config(struct shoal_engine *engine)
{
    shoal_status status;
    char *json = NULL;
    struct shoali_str text = {0};
    json_t *root = json_deep_copy(shoali_json_root(engine->config.document));
    json_object_del(json_object_get(root, "comet"), "api_key");
    SHOAL_TRY(status, shoali_json_write(root, JSON_INDENT(2), "the configuration", &json), done);
    shoali_str_append(&text, "```json\n%s\n```", json);
    if (text.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the text of the configuration");
        goto done;
    }
    SHOAL_TRY(status, shoal_monitor_write_text(engine->monitor, 0, "configuration", text.text),
              done);
done:
    shoali_str_fini(&text);
    json_decref(root);
    free(json);
    return status;
}

static shoal_status create_monitor(struct shoal_engine *engine)
{
    shoal_status status;
    const struct shoali_ds_config *config = &engine->config;
    if (engine->place.rank != 0 || engine->inference || engine->meta)
        return SHOAL_OK;
    status = shoal_monitor_create(
        &(shoal_monitor_args){
            .csv_enabled = config->csv_monitor.enabled,
            .csv_output_path = config->csv_monitor.output_path,
            .csv_job_name = config->csv_monitor.job_name,
            .jsonl_enabled = config->jsonl_monitor.enabled,
            .jsonl_output_path = config->jsonl_monitor.output_path,
            .jsonl_job_name = config->jsonl_monitor.job_name,
            .tensorboard_enabled = config->tensorboard.enabled,
            .tensorboard_output_path = config->tensorboard.output_path,
            .tensorboard_job_name = config->tensorboard.job_name,
            .goes_on = true, /* training is worth more than its numbers */
        },
        &engine->monitor);
    return status >= 0 && config->tensorboard.enabled ? write_config(engine) : status;
}

/* Ranks must compute with the same kernels, or their bits differ silently. Which ones are good
 * depends on the CPU, so hosts of different kinds may choose differently. */
static shoal_status agree_on_kernels(struct shoal_engine *engine)
{
    shoal_status status;
    char cpu_text[SHOALI_CPU_NAME_BYTES];
    const struct shoali_cpu cpu = shoali_cpu_get();
    struct shoali_str text = {0};
    int64_t hash[2] = {0};
    if (engine->place.world == 1 || engine->meta)
        return SHOAL_OK;
    hash[0] = (int64_t)(shoali_ops_digest(&engine->ops, NULL) >> 2);
    hash[1] = -hash[0];
    SHOAL_TRY(status,
              shoal_all_reduce(engine->place.group, hash, hash, 2, SHOAL_I64, SHOAL_MAX, NULL),
              done);
    if (hash[0] != -hash[1]) {
        (void)shoali_ops_digest(&engine->ops, &text);
        status = SHOAL_FAIL(
            SHOAL_EMISMATCH,
            "ranks would compute with different kernels (rank %d: %s, on a CPU %s), which "
            "would give different bits: set SHOAL_OPS to one that all machines have, and use one "
            "version of cuBLASLt ('shoal report' lists them)",
            (int)engine->place.rank, shoali_str_get(&text), shoali_cpu_describe(&cpu, cpu_text));
    }
done:
    shoali_str_fini(&text);
    return status;
}

/* A rank that fails alone is waited for. Until anything was shared, mistakes of configuration and
 * arguments are found by all ranks alike or told to them, and the group stays good for another
 * attempt. */
static void notify_others(const struct shoal_engine *engine, shoal_status status)
{
    const bool alike = status == SHOAL_ECONFIG || status == SHOAL_EINVAL || status == SHOAL_ENOENT;
    if (engine->place.group && (engine->zero || !(alike || engine->failure_agreed)))
        shoal_comm_abort(engine->place.group, status);
}

shoal_status shoal_engine_create(const shoal_engine_args *args, shoal_engine **engine)
{
    *engine = NULL;
    return shoali_engine_make(args ? args : &(shoal_engine_args){0},
                              &(struct shoali_engine_making){.meta = false}, engine);
}

/* At least one, so that a model without inputs is no lack of memory. */
static shoal_status make_batch_arrays(struct shoal_engine *engine)
{
    const size_t count = engine->model->input_count > 0 ? (size_t)engine->model->input_count : 1;
    engine->step.batch_arrays =
        shoali_calloc(count, sizeof *engine->step.batch_arrays, "a batch's list");
    engine->step.batch_inputs =
        shoali_calloc(count, sizeof *engine->step.batch_inputs, "a batch's list");
    return engine->step.batch_arrays && engine->step.batch_inputs ? SHOAL_OK : SHOAL_ENOMEM;
}

/* What needs no other rank, nor the mesh. */
static shoal_status configure(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status;
    if (!args->model)
        return SHOAL_FAIL(SHOAL_EINVAL, "shoal_engine_create needs a model");
    SHOAL_TRY(status, make_batch_arrays(engine), done);
    SHOAL_TRY(status, shoali_ds_config_init(&engine->config, args->config_path, args->config_text),
              done);
done:
    return status;
}

/* What follows from the configuration, the model and this rank's place. */
static shoal_status derive(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status;
    SHOAL_TRY(status, read_config(engine, args), done);
    engine->config.hashes = engine->config.hashes && !engine->meta; /* there is nothing to hash */
    SHOAL_TRY(status, open_device(engine, args), done);
    SHOAL_TRY(status, shoali_engine_declare(engine, compute_dtype(&engine->config)), done);
    SHOAL_TRY(status, shoali_engine_make_groups(engine), done);
    SHOAL_TRY(status, read_recompute(engine, args), done);
    SHOAL_TRY(status, shoali_stages_partition(engine, args), done);
done:
    return status;
}

shoal_status shoali_engine_make(const shoal_engine_args *args,
                                const struct shoali_engine_making *making,
                                shoal_engine **engine_out)
{
    shoal_status status = SHOAL_ENOMEM;
    *engine_out = NULL;
    struct shoal_engine *engine = shoali_calloc(1, sizeof *engine, "the engine");
    if (!engine)
        return status;
    engine->model = args->model;
    engine->place.group = args->group  ? args->group
                          : args->mesh ? shoal_mesh_world(args->mesh)
                                       : NULL;
    engine->inference = args->inference;
    engine->blank_weights = args->blank_weights;
    engine->meta = making->meta;
    engine->save.info.step = -1;
    engine->place.admitted = making->admitted;
    engine->place.ranks_per_machine = making->ranks_per_machine;
    engine->step.watch = making->watch;
    engine->save.override_existing_checkpoint = args->override_existing_checkpoint;
    const char *output_path = args->output_path ? args->output_path : "";
    engine->output_path = shoali_malloc(strlen(output_path) + 1, "the output folder's name");
    if (!engine->output_path)
        goto done;
    strcpy(engine->output_path, output_path);
    status = configure(engine, args);
    SHOAL_TRY(status, shoali_engine_agree_configured(engine, args, status), done);
    SHOAL_TRY(status, shoali_engine_open_mesh(engine, args), done);
    SHOAL_TRY(status, shoali_engine_comms_open(engine), done);
    status = derive(engine, args);
    SHOAL_TRY(status, shoali_engine_agree_derived(engine, status), done);
    SHOAL_TRY(status, agree_on_kernels(engine), done);
    SHOAL_TRY(status, shoali_stages_join(engine), done);
    SHOAL_TRY(status, shoali_engine_measure_micro(engine), done);
    SHOAL_TRY(status, create_packed_weights(engine), done);
    SHOAL_TRY(status, create_zero(engine), done);
    if (!engine->inference)
        SHOAL_TRY(status, shoali_engine_need_micros(engine), done);
    SHOAL_TRY(status, create_monitor(engine), done);
    if (args->saves && !engine->inference)
        SHOAL_TRY(status, shoali_engine_prepare_saves(engine), done);
    SHOAL_TRY(status, shoali_engine_agree_made(engine), done);
    *engine_out = engine;
done:
    if (status < 0) {
        notify_others(engine, status);
        shoal_engine_destroy(engine);
    }
    return status;
}

/* How often kernels ran on the host for want of one of the device. */
static void say_staged(struct shoal_engine *engine)
{
    struct shoali_str text = {0};
    for (int32_t k = 0; engine->ops.staged_calls && k < engine->ops.kernel_count; k++) {
        const int64_t calls = engine->ops.staged_calls[k];
        if (calls > 0)
            shoali_str_append(&text, "%s%s %lld", text.length > 0 ? ", " : "",
                              shoali_ops_kernel_name(&engine->ops, k), (long long)calls);
    }
    if (engine->place.rank == 0 && text.length > 0)
        SHOALI_INFO("ops", "calls of kernels that ran on the host: %s", shoali_str_get(&text));
    shoali_str_fini(&text);
    shoali_free((void *)engine->ops.staged_calls);
}

void shoal_engine_destroy(shoal_engine *engine)
{
    if (!engine)
        return;
    shoali_engine_saver_destroy(engine->save.saver);
    shoal_monitor_destroy(engine->monitor);
    shoali_engine_drop_micros(engine);
    shoali_free(engine->step.lists);
    shoali_free(engine->step.batch_arrays);
    shoali_free(engine->step.batch_inputs);
    if (engine->packed_weights)
        shoali_device_free(engine->device, engine->packed_weights);
    shoali_zero_destroy(engine->zero);
    shoali_stages_fini(engine);
    shoal_comm_destroy(engine->place.sharers);
    shoali_module_fini(&engine->module);
    if (engine->exec.stream)
        shoali_stream_destroy(engine->exec.stream);
    shoali_device_destroy(engine->device);
    say_staged(engine);
    shoali_pool_destroy(engine->pool);
    shoali_engine_comms_close(engine);
    if (engine->config.document)
        shoali_ds_config_fini(&engine->config);
    shoal_mesh_destroy(engine->place.own_mesh);
    shoali_free(engine->output_path);
    shoali_free(engine->save.buffer);
    shoali_engine_drop_files(engine);
    shoali_free(engine);
}
