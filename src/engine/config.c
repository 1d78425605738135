#include "engine/config.h"

#include "base/str.h"
#include "engine/config_rows.h"

#include <jansson.h>
#include <string.h>

static const char *const gradient_ops[] = {"mean", "sum", NULL};
static const char *const data_types[] = {"fp32", "fp16", "bf16", NULL};
static const char *const reductions[] = {"fast", "exact", NULL};

#define SUBSECTION(key_, section_, help_, ...)                                                   \
    {                                                                                            \
        .key = #key_, .type = SHOALI_SECTION, .offset = offsetof(struct shoali_ds_config, key_), \
        .section = &(section_), .help = help_, __VA_ARGS__                                       \
    }
#define SPLITS_MAX 64 /* ranks of a group */
static const struct shoali_option exact_splits_rows[] = {
    ROW(exact_splits, INT, tensor, 1,
        "Partial sums that a sum over heads, columns of a layer or the vocabulary is joined from: "
        "1, "
        "2, 4, ...; the ranks of tensor parallelism divide it. Part of what a run is: another "
        "number "
        "gives other bits.",
        .min = 1, .max = SPLITS_MAX),
    ROW(exact_splits, INT, sequence, 1,
        "Blocks of the sequence that each add their own share to a gradient: 1, 2, 4, ...; the "
        "ranks "
        "that divide a sequence divide it, and it divides the sequence. Part of what a run is.",
        .min = 1, .max = SPLITS_MAX),
};
static const struct shoali_section shoali_exact_splits_section = SECTION(
    exact_splits, "exact_splits", exact_splits_rows, "Pieces that exact sums are made of.", );

/* A key that is refused whatever its value. */
#define REFUSED(key_, help_) ROW_AS(key_, ds, JSON, dead, 0, help_, DEAD)

/* Of samples and micro-batches: products of two of them with the ranks stay far from 2^63, or are
 * found when the batch is cut. */
#define BATCH_MAX 1e12

static const struct shoali_option rows[] = {
    ROW(ds, INT, train_batch_size, 0, "Samples per optimizer step, over all ranks.", .min = 1,
        .max = BATCH_MAX),
    ROW(ds, INT, train_micro_batch_size_per_gpu, 0, "Samples in one forward of one rank.", .min = 1,
        .max = BATCH_MAX),
    ROW(ds, INT, gradient_accumulation_steps, 0, "Forwards of one rank per optimizer step.",
        .min = 1, .max = BATCH_MAX),
    ROW(ds, BOOL, managed_gradient_accumulation, 1, "false: every call of step is an update.",
        PENDING),
    ROW(ds, INT, steps_per_print, 0, "Steps between progress lines; not given: none.", .min = 1,
        .max = NO_MAX),
    ROW(ds, BOOL, dump_state, 0, "Log the configuration at the start, a line per key.", ),
    ROW(ds, FLOAT, gradient_clipping, 1, "Largest global L2 norm of the gradient; 0: no limit.",
        .min = 0, .max = NO_MAX),
    ROW(ds, BOOL, prescale_gradients, 0, "Divide by the number of ranks before the sum.", ),
    ROW(ds, FLOAT, gradient_predivide_factor, 1, "Part of that division made before the sum.",
        .min = 1e-30, .max = NO_MAX),
    ROW(ds, ENUM, gradient_allreduce_op, 0, "How gradients of ranks are combined.",
        .choices = gradient_ops),
    ROW(ds, ENUM, communication_data_type, 0, "Type that gradients travel in.",
        .choices = data_types, PENDING),
    ROW(ds, ENUM, seq_parallel_communication_data_type, 0,
        "Type that gradients of sequence-parallel ranks travel in.", .choices = data_types,
        PENDING),
    ROW(ds, ENUM, reduction, 0,
        "exact: sums in integers, so that the bits do not depend on the layout (Shoal's own).",
        .choices = reductions),
    ROW(ds, BOOL, packed_weights, 0,
        "Keep weights in the layout that products read, too: true, false, or, by itself, where "
        "several products of at most 512 rows read a weight in a step (Shoal's own).", ),
    ROW(ds, INT, exact_unit_log2, 44, "Exact sums count in units of 2^-this (Shoal's own).",
        .min = 20, .max = 60),
    ROW(ds, BOOL, hashes, 0,
        "Write hashes.jsonl: what each gradient, state and weight was after each step, for shoal "
        "diff (Shoal's own).", ),
    ROW(ds, INT, seed, 1234, "Seed of initialisation and dropout (Shoal's own).", .min = 0,
        .max = NO_MAX),
    ROW(ds, INT, threads, 0, "Threads per rank; 0: the rank's share of cores (Shoal's own).",
        .min = 0, .max = 4096),
    ROW(ds, BOOL, wall_clock_breakdown, 0, "Log where the time of a step goes.", ),
    ROW(ds, BOOL, memory_breakdown, 0, "Log memory at points of the step.", PENDING),
    ROW(ds, BOOL, sparse_gradients, 0, "Send embedding gradients as rows.", PENDING),
    ROW(ds, BOOL, graph_harvesting, 0, "Capture the norm in a CUDA graph.", PENDING),
    ROW(ds, INT, vocabulary_size, 0, "Kernels take any vocabulary size.", .min = 1, .max = NO_MAX,
        NOEFFECT),
    ROW(ds, BOOL, dataloader_drop_last, 0, "Drop a short last batch.", PENDING),
    ROW(ds, BOOL, use_data_before_expert_parallelism, 0, "Order of data and expert ranks.",
        PENDING),
    ROW(ds, STRING, log_level, 0, "use the variable SHOAL_LOG (SHOAL_LOG=info,comm=debug)", DEAD),
    ROW(ds, BOOL, zero_allow_untested_optimizer, 0, "ZeRO works with every optimizer.", NOEFFECT),
    ROW(ds, BOOL, zero_force_ds_cpu_optimizer, 1, "Offload works with every optimizer.", NOEFFECT),
    ROW(ds, INT, data_parallel_size, 0, "Number of data-parallel ranks; 0: all that remain.",
        .min = 0, .max = 1 << 20),
    ROW(ds, INT, sequence_parallel_size, 1, "Ranks that share one sequence.", PENDING),

    SUBSECTION(exact_splits, shoali_exact_splits_section,
               "With reduction exact: pieces that sums are made of, of which ranks take whole ones "
               "(Shoal's own)."),
    SUBSECTION(fp16, shoali_fp16_section, "Training in half precision."),
    SUBSECTION(bf16, shoali_bf16_section, "Training in bfloat16.", .alias = "bfloat16"),
    SUBSECTION(data_types, shoali_data_types_section, "Types of sums and buffers."),
    SUBSECTION(torch_autocast, shoali_torch_autocast_section, "Types chosen per layer."),
    SUBSECTION(optimizer, shoali_optimizer_section, "The optimizer."),
    SUBSECTION(scheduler, shoali_scheduler_section, "The learning rate."),
    SUBSECTION(zero_optimization, shoali_zero_section, "What is partitioned over the ranks."),
    SUBSECTION(aio, shoali_aio_section, "Asynchronous file access."),
    SUBSECTION(activation_checkpointing, shoali_activation_checkpointing_section,
               "Recomputing activations."),
    SUBSECTION(csv_monitor, shoali_csv_monitor_section, "One CSV file per quantity."),
    SUBSECTION(jsonl_monitor, shoali_jsonl_monitor_section, "JSON lines (Shoal's own)."),
    SUBSECTION(tensorboard, shoali_tensorboard_section, "TensorBoard."),
    SUBSECTION(wandb, shoali_wandb_section, "Weights & Biases."),
    SUBSECTION(comet, shoali_comet_section, "Comet."),
    SUBSECTION(comms_logger, shoali_comms_logger_section, "Time and volume of collectives."),
    SUBSECTION(flops_profiler, shoali_flops_profiler_section, "Operations and time per layer."),
    SUBSECTION(timers, shoali_timers_section, "Timers."),
    SUBSECTION(checkpoint, shoali_checkpoint_section, "Checkpoints."),
    SUBSECTION(elasticity, shoali_elasticity_section, "Batch sizes for any number of ranks."),
    SUBSECTION(autotuning, shoali_autotuning_section, "Searching for a fast configuration."),
    SUBSECTION(pipeline, shoali_pipeline_section, "Pipeline parallelism."),
    SUBSECTION(tensor_parallel, shoali_tensor_parallel_section, "Tensor parallelism."),
    SUBSECTION(expert_parallel, shoali_expert_parallel_section, "Expert parallelism."),
    SUBSECTION(compile, shoali_compile_section, "Planning from a traced graph."),
    SUBSECTION(hybrid_engine, shoali_hybrid_engine_section, "Training and generating."),
    SUBSECTION(progressive_layer_drop, shoali_layer_drop_section, "Skipping layers at random."),
    SUBSECTION(curriculum_learning, shoali_curriculum_section, "From easy to hard samples."),
    SUBSECTION(data_efficiency, shoali_data_efficiency_section, "Choosing samples."),
    SUBSECTION(weight_quantization, shoali_weight_quantization_section, "Weights in few bits."),
    ROW(ds, JSON, compression_training, 0, "Pruning and quantizing during training.", PENDING),

    ROW(ds, BOOL, disable_allgather, 0, "leave it out: it never had an effect", DEAD),
    REFUSED("amp", "use fp16 or bf16"),
    REFUSED("sparse_attention", "leave it out: attention is computed in tiles without it"),
    REFUSED("quantize_training", "leave it out: it is switched off upstream too"),
    REFUSED("eigenvalue", "leave it out: it is switched off upstream too"),
    REFUSED("nebula", "leave it out: checkpoints are written by Shoal itself"),
    REFUSED("datastates_ckpt", "leave it out: checkpoints are written by Shoal itself"),
};

static shoal_status validate_exact(const struct shoali_ds_config *config)
{
    const struct shoali_zero_config *zero = &config->zero_optimization;
    if (config->reduction != SHOALI_REDUCTION_EXACT)
        return SHOAL_OK;
    if (zero->zero_quantized_weights || zero->zero_quantized_gradients)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "zero_optimization.%s cannot be combined with \"reduction\": "
                          "\"exact\": what is rounded depends on the number of ranks",
                          zero->zero_quantized_weights ? "zero_quantized_weights"
                                                       : "zero_quantized_gradients");
    if (config->gradient_allreduce_op == SHOALI_GRADIENT_MEAN)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_ECONFIG, "gradient_allreduce_op: sum cannot be combined with "
                                     "\"reduction\": \"exact\", whose one division makes the mean");
}

static shoal_status validate_splits(const struct shoali_ds_config *config)
{
    const int64_t splits[] = {config->exact_splits.tensor, config->exact_splits.sequence};
    static const char *const names[] = {"tensor", "sequence"};
    for (int i = 0; i < 2; i++) {
        if (splits[i] & (splits[i] - 1))
            return SHOAL_FAIL(
                SHOAL_ECONFIG,
                "exact_splits.%s is %lld: give a power of two, which a binary tree joins", names[i],
                (long long)splits[i]);
        if (splits[i] > 1 && config->reduction != SHOALI_REDUCTION_EXACT)
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              "exact_splits.%s is %lld, which \"reduction\": \"exact\" alone has a "
                              "use for: add that key, or leave exact_splits out",
                              names[i], (long long)splits[i]);
    }
    return SHOAL_OK;
}

static shoal_status validate_reduction(const struct shoali_ds_config *config)
{
    const struct shoali_zero_config *zero = &config->zero_optimization;
    bool sum = config->gradient_allreduce_op == SHOALI_GRADIENT_SUM;
    if (sum && zero->stage == 3)
        return SHOAL_FAIL(SHOAL_ECONFIG, "gradient_allreduce_op: sum cannot be combined with "
                                         "zero_optimization.stage 3");
    if (!sum && zero->stage >= 2 && zero->reduce_scatter &&
        (config->prescale_gradients || config->gradient_predivide_factor != 1))
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "prescale_gradients and gradient_predivide_factor (%g) cannot be combined "
            "with zero_optimization.stage %lld and reduce_scatter",
            config->gradient_predivide_factor, (long long)zero->stage);
    return SHOAL_OK;
}

static shoal_status validate_packed(const struct shoali_ds_config *config)
{
    if (config->packed_weights && config->zero_optimization.stage == 3)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "packed_weights: true cannot be combined with zero_optimization.stage 3, "
                          "which keeps no weight between its uses: leave the key out");
    return SHOAL_OK;
}

static shoal_status validate_saves(const struct shoali_ds_config *config)
{
    if (!config->checkpoint.writer.decoupled ||
        config->zero_optimization.offload_optimizer.device != SHOALI_OFFLOAD_NVME)
        return SHOAL_OK;
    return SHOAL_FAIL(
        SHOAL_ECONFIG,
        "checkpoint.writer.decoupled cannot be combined with "
        "zero_optimization.offload_optimizer.device nvme, whose buffers belong to the "
        "training alone: leave one of them out, or offload to cpu");
}

/* DeepSpeed: runtime/config.py. */
static shoal_status validate_elasticity(const struct shoali_ds_config *config)
{
    static const char *const keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps"};
    if (!config->elasticity.enabled || config->elasticity.ignore_non_elastic_batch_info)
        return SHOAL_OK;
    for (int i = 0; i < 3; i++)
        if (shoali_config_given(&shoali_ds_section, config, keys[i]))
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              "%s is given, and elasticity, which is enabled, chooses the batch: "
                              "leave the key out, or add \"ignore_non_elastic_batch_info\": true "
                              "to elasticity",
                              keys[i]);
    return SHOAL_OK;
}

static shoal_status validate(void *value)
{
    shoal_status status;
    const struct shoali_ds_config *config = value;
    const char *ignored = "max_grad_norm";
    if (config->fp16.enabled && config->bf16.enabled)
        return SHOAL_FAIL(SHOAL_ECONFIG, "fp16 and bf16 are both enabled: enable one of them");
    if (json_object_get(config->optimizer.params, ignored))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "optimizer.params.%s: clipping is not the optimizer's: use the key "
                          "gradient_clipping",
                          ignored);
    SHOAL_TRY(status, validate_reduction(config), done);
    SHOAL_TRY(status, validate_exact(config), done);
    SHOAL_TRY(status, validate_splits(config), done);
    SHOAL_TRY(status, validate_packed(config), done);
    SHOAL_TRY(status, validate_saves(config), done);
    SHOAL_TRY(status, validate_elasticity(config), done);
done:
    return status;
}

const struct shoali_section shoali_ds_section = {
    .name = "ds_config.json",
    .help = "The configuration file.",
    .rows = rows,
    .row_count = (int32_t)(sizeof(rows) / sizeof(rows[0])),
    .struct_bytes = offsetof(struct shoali_ds_config, arena), /* what follows is no configuration */
    .given_offset = offsetof(struct shoali_ds_config, given),
    .validate = validate,
};

shoal_status shoali_ds_config_init(struct shoali_ds_config *config, const char *path,
                                   const char *text)
{
    shoal_status status;
    *config = (struct shoali_ds_config){0};
    shoali_arena_init(&config->arena);
    if (!path && !text) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "no configuration is given: a file such as "
                                          "ds_config.json is needed");
        goto done;
    }
    SHOAL_TRY(status, shoali_config_defaults(&shoali_ds_section, config, &config->arena), done);
    if (path)
        SHOAL_TRY(status, shoali_json_load(path, &config->document), done);
    if (text) {
        struct shoali_json *original = config->document;
        config->document = NULL;
        status = shoali_json_parse(text, strlen(text), "config", &config->document);
        if (status < 0) {
            shoali_json_close(original);
            goto done;
        }
        shoali_json_set_origin(config->document, original);
    }
    SHOAL_TRY(
        status,
        shoali_config_read_json(&shoali_ds_section, config->document, "", config, &config->arena),
        done);
done:
    if (status < 0)
        shoali_ds_config_fini(config);
    return status;
}

void shoali_ds_config_fini(struct shoali_ds_config *config)
{
    if (config->document)
        shoali_json_close(config->document);
    config->document = NULL;
    shoali_arena_fini(&config->arena);
}

void shoali_ds_config_markdown(struct shoali_str *out)
{
    shoali_str_append(
        out,
        "# The configuration file\n\n"
        "Made by `shoal help config`; do not edit. Keys are those of DeepSpeed's ds_config.json; "
        "comments (`//` and `/* */`) are allowed, the values `\"auto\"` and `null` leave the "
        "default, "
        "an unknown key is an error. *pending* keys are known and not supported yet: a value other "
        "than the default is an error. *dead* keys are an error that names what to use instead. "
        "Keys with *no effect* are accepted with a notice.\n\n");
    shoali_config_markdown(&shoali_ds_section, "", out);
}
