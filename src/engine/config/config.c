#include "engine/config/config.h"

#include "base/log.h"
#include "base/str.h"
#include "engine/config/rows.h"

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
        "Number of partial sums that form a sum over heads, columns of a layer or the vocabulary: "
        "a power of two. The tensor-parallel size divides it. Another number gives other bits.",
        .min = 1, .max = SPLITS_MAX),
    ROW(exact_splits, INT, sequence, 1,
        "Number of blocks of the sequence that each add a partial sum to a gradient: a power of "
        "two that divides the sequence length. The number of ranks that share a sequence divides "
        "it. Another number gives other bits.",
        .min = 1, .max = SPLITS_MAX),
};
static const struct shoali_section shoali_exact_splits_section =
    SECTION(exact_splits, "exact_splits", exact_splits_rows,
            "Numbers of partial sums that form exact sums.", );

/* A key that changes nothing whatever its value. */
#define UNREAD(key_, help_) ROW_AS(key_, ds, JSON, dead, 0, help_, NOEFFECT)
#define NOT_READ "DeepSpeed reads no key of this name."
/* A key that is refused where it is on. */
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
    ROW(ds, BOOL, managed_gradient_accumulation, 1,
        "false: every call of step updates the weights.", PENDING),
    ROW(ds, INT, steps_per_print, 0, "Steps between progress lines; 0 or not given: none.",
        .min = 0, .max = NO_MAX, BY_RANK),
    ROW(ds, BOOL, dump_state, 0, "Log the configuration at the start, a line per key.", BY_RANK),
    ROW(ds, FLOAT, gradient_clipping, 1, "Largest global L2 norm of the gradient; 0: no limit.",
        .min = 0, .max = NO_MAX, TRAINING),
    ROW(ds, BOOL, prescale_gradients, 0, "Divide by the number of ranks before the sum.", ),
    ROW(ds, FLOAT, gradient_predivide_factor, 1,
        "Without prescale_gradients: divide by this before the sum, and by the rest after it.",
        .min = 1e-30, .max = NO_MAX),
    ROW(ds, ENUM, gradient_allreduce_op, 0, "How gradients of ranks are combined.",
        .choices = gradient_ops, TRAINING),
    ROW(ds, ENUM, communication_data_type, 0, "Gradients are always sent in fp32.",
        .choices = data_types, IDLE),
    ROW(ds, ENUM, seq_parallel_communication_data_type, 0, "No ranks share a sequence.",
        .alias = "seq_parallel_comm_data_type", .choices = data_types, IDLE),
    ROW(ds, ENUM, reduction, 0,
        "exact: sums in integers, so that the bits do not depend on the layout (Shoal's own).",
        .choices = reductions, TRAINING),
    ROW(ds, BOOL, packed_weights, 0,
        "Keep a second copy of weights in the layout that matrix products read. Not given: only of "
        "weights that several products of at most 512 rows read in a step (Shoal's own).", ),
    ROW(ds, INT, exact_unit_log2, 44, "Exact sums count in units of 2^-this (Shoal's own).",
        .min = 20, .max = 60, TRAINING),
    ROW(ds, BOOL, hashes, 0,
        "Write hashes.jsonl: a hash of each gradient, state and weight after each step, for shoal "
        "diff (Shoal's own).", ),
    ROW(ds, INT, seed, 1234, "Seed of initialisation and dropout (Shoal's own).", .min = 0,
        .max = NO_MAX),
    ROW(ds, INT, threads, 0, "Threads per rank; 0: the rank's share of cores (Shoal's own).",
        .min = 0, .max = 4096, BY_RANK),
    ROW(ds, BOOL, wall_clock_breakdown, 0, "Log where the time of a step goes.", BY_RANK),
    ROW(ds, BOOL, memory_breakdown, 0,
        "shoal plan says what memory is for, and timers.throughput logs what is in use.", IDLE),
    ROW(ds, BOOL, sparse_gradients, 0, "Embedding gradients are sent whole.", IDLE),
    ROW(ds, BOOL, graph_harvesting, 0, "The norm is not captured in a CUDA graph.", IDLE),
    ROW(ds, INT, vocabulary_size, 0, "Kernels take any vocabulary size.", .min = 1, .max = NO_MAX,
        NOEFFECT),
    ROW(ds, BOOL, dataloader_drop_last, 0, "Every batch is whole.", IDLE),
    ROW(ds, BOOL, use_data_before_expert_parallelism, 0, "There are no expert-parallel ranks.",
        IDLE),
    ROW(ds, STRING, log_level, 0, "use the variable SHOAL_LOG (SHOAL_LOG=info,comm=debug)", DEAD),
    ROW(ds, BOOL, zero_allow_untested_optimizer, 0, "ZeRO works with every optimizer.", NOEFFECT),
    ROW(ds, BOOL, zero_force_ds_cpu_optimizer, 1, "Offload works with every optimizer.", NOEFFECT),
    ROW(ds, INT, data_parallel_size, 0, "Number of data-parallel ranks; 0: all that remain.",
        .min = 0, .max = 1 << 20),
    ROW(ds, INT, sequence_parallel_size, 1, "Ranks that share one sequence.", PENDING),

    SUBSECTION(
        exact_splits, shoali_exact_splits_section,
        "With reduction exact: numbers of partial sums, each computed by one rank (Shoal's own)."),
    SUBSECTION(fp16, shoali_fp16_section, "Training in half precision."),
    SUBSECTION(bf16, shoali_bf16_section, "Training in bfloat16.", .alias = "bfloat16"),
    SUBSECTION(data_types, shoali_data_types_section, "Types of sums and buffers."),
    SUBSECTION(torch_autocast, shoali_torch_autocast_section, "Types chosen per layer."),
    SUBSECTION(optimizer, shoali_optimizer_section, "The optimizer."),
    SUBSECTION(scheduler, shoali_scheduler_section, "The learning rate."),
    SUBSECTION(zero_optimization, shoali_zero_section, "ZeRO: states partitioned over the ranks."),
    SUBSECTION(aio, shoali_aio_section, "Asynchronous file access.", BY_RANK),
    SUBSECTION(activation_checkpointing, shoali_activation_checkpointing_section,
               "Recomputing activations."),
    SUBSECTION(csv_monitor, shoali_csv_monitor_section, "One CSV file per quantity.", BY_RANK),
    SUBSECTION(jsonl_monitor, shoali_jsonl_monitor_section, "JSON lines (Shoal's own).", BY_RANK),
    SUBSECTION(tensorboard, shoali_tensorboard_section, "TensorBoard.", BY_RANK),
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

    UNREAD("disable_allgather", "It never had an effect."),
    UNREAD("fp32_allreduce", "Gradients are always sent in fp32."),
    UNREAD("allgather_size", "Use zero_optimization.allgather_bucket_size."),
    UNREAD("zero_max_elements_per_comm", "Use zero_optimization.reduce_bucket_size."),
    UNREAD("zero_reduce_scatter", "Use zero_optimization.reduce_scatter."),
    UNREAD("eigenvalue", "Only quantize_training reads it."),
    UNREAD("cuda_visible_devices", "Set the variable CUDA_VISIBLE_DEVICES."),
    UNREAD("log", "DeepSpeed reads no section of this name: keys such as steps_per_print stand "
                  "outside."),
    UNREAD("comms_config", "DeepSpeed reads no section of this name: use comms_logger."),
    UNREAD("monitor_config", "DeepSpeed reads no section of this name: use csv_monitor."),
    UNREAD("memory_break_down", "DeepSpeed reads no key of this name: use memory_breakdown."),
    UNREAD("memory_efficient_linear", "Linear layers never save their weight."),
    UNREAD("offload_optimizer", "DeepSpeed reads it in zero_optimization only."),
    UNREAD("offload_param", "DeepSpeed reads it in zero_optimization only."),

    UNREAD("backend", NOT_READ),
    UNREAD("use_cpu", NOT_READ),
    UNREAD("same_network", NOT_READ),
    UNREAD("communication", NOT_READ),
    UNREAD("memory_optimization", NOT_READ),
    UNREAD("preserve_fp32", NOT_READ),
    UNREAD("disable_fused_adam", NOT_READ),
    UNREAD("zero3_init_flag", "Accelerate reads it, in its own file."),
    UNREAD("zero3_save_16bit_model", "Accelerate reads it, in its own file."),
    UNREAD("gradient_accumulation_dtype",
           "DeepSpeed reads no key of this name: use data_types.grad_accum_dtype."),
    UNREAD("max_grad_norm", "DeepSpeed reads no key of this name: use gradient_clipping."),

    REFUSED("msamp", "FP8 by MS-AMP is not supported: use bf16"),
    REFUSED("amp", "NVIDIA Apex is not used: use fp16 or bf16"),
    REFUSED("sparse_attention", "leave it out: attention is dense, and computed in tiles"),
    REFUSED("quantize_training", "leave it out: DeepSpeed switched it off, and no training here "
                                 "quantizes weights"),
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

/* Optimizers of other libraries clip themselves: optimizer.params.max_grad_norm is the same limit
 * as gradient_clipping. */
static shoal_status take_max_grad_norm(struct shoali_ds_config *config)
{
    const json_t *value = json_object_get(config->optimizer.params, "max_grad_norm");
    const double norm = json_number_value(value);
    if (!value || json_is_null(value) || json_is_string(value))
        return SHOAL_OK;
    if (!json_is_number(value) || norm < 0)
        return SHOAL_FAIL(SHOAL_ECONFIG, "optimizer.params.max_grad_norm must be a number of at "
                                         "least 0");
    if (!shoali_config_given(&shoali_ds_section, config, "gradient_clipping"))
        config->gradient_clipping = norm;
    if (config->gradient_clipping != norm)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "optimizer.params.max_grad_norm is %g, but gradient_clipping is %g: both "
                          "limit the gradient's norm, remove one of them",
                          norm, config->gradient_clipping);
    SHOALI_WARN_FIRST("config", "optimizer.params.max_grad_norm is taken as gradient_clipping %g",
                      norm);
    return SHOAL_OK;
}

/* Documentation of Hugging Face has aio inside zero_optimization. */
static shoal_status take_aio(struct shoali_ds_config *config)
{
    struct shoali_zero_config *zero = &config->zero_optimization;
    if (!shoali_config_given(&shoali_zero_section, zero, "aio"))
        return SHOAL_OK;
    if (shoali_config_given(&shoali_ds_section, config, "aio"))
        return SHOAL_FAIL(SHOAL_ECONFIG, "zero_optimization.aio and aio are both given: remove the "
                                         "section inside zero_optimization");
    config->aio = zero->aio;
    SHOALI_WARN_FIRST("config", "zero_optimization.aio is taken as aio, which belongs outside of "
                                "zero_optimization");
    return SHOAL_OK;
}

enum { LINES_MOST = 4 };

/* Appends the lines of the keys that a sentence about several of them names. */
static shoal_status add_lines(const struct shoali_ds_config *config, shoal_status status)
{
    char sentence[1024], key[128], list[64] = "";
    int32_t lines[LINES_MOST], count = 0;
    snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
    for (const char *at = sentence; *at && count < LINES_MOST;) {
        size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_.");
        snprintf(key, sizeof key, "%.*s", (int)length, at);
        at += length + (length == 0);
        while (length > 0 && length < sizeof key && key[length - 1] == '.')
            key[--length] = '\0';
        const int32_t line =
            length && config->document ? shoali_json_line(config->document, key) : 0;
        bool known = line <= 0;
        for (int32_t i = 0; i < count && !known; i++)
            known = lines[i] == line;
        if (!known)
            lines[count++] = line;
    }
    if (count < 2)
        return status;
    for (int32_t i = 0; i < count; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d",
                 i == 0           ? ""
                 : i + 1 == count ? " and "
                                  : ", ",
                 (int)lines[i]);
    return SHOAL_FAIL(status, "%s (lines %s)", sentence, list);
}

static shoal_status validate_all(struct shoali_ds_config *config)
{
    shoal_status status;
    if (config->fp16.enabled && config->bf16.enabled)
        return SHOAL_FAIL(SHOAL_ECONFIG, "fp16 and bf16 are both enabled: enable one of them");
    SHOAL_TRY(status, take_max_grad_norm(config), done);
    SHOAL_TRY(status, take_aio(config), done);
    SHOAL_TRY(status, validate_reduction(config), done);
    SHOAL_TRY(status, validate_exact(config), done);
    SHOAL_TRY(status, validate_splits(config), done);
    SHOAL_TRY(status, validate_packed(config), done);
    SHOAL_TRY(status, validate_saves(config), done);
    SHOAL_TRY(status, validate_elasticity(config), done);
done:
    return status;
}

static shoal_status validate(void *value)
{
    const shoal_status status = validate_all(value);
    return status < 0 ? add_lines(value, status) : status;
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
        SHOAL_TRY(status, shoali_json_load_config(path, &config->document), done);
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
        "For users: which keys may `ds_config.json` have, and what does each mean?\n\n"
        "`shoal help config` makes this page; do not edit it. The keys are DeepSpeed's; keys of "
        "Shoal's own are marked. The file is JSON or, as for DeepSpeed, Hjson: commas and quotes "
        "may be left out. Comments (`#`, `//` and `/* */`) are allowed, and so are notes: keys "
        "that begin with `_`, `#` or `//`, and `comment`. The values `\"auto\"` and `null` leave "
        "the "
        "default. A key is *off* if its value is `null`, `false`, `{}` or `\"enabled\": false`.\n\n"
        "| key | what happens |\n|---|---|\n"
        "| unknown | an error that names the nearest known key. If it is off and no known key is "
        "near, it is accepted |\n"
        "| marked \"Not supported yet\" | an error, unless its value is the default |\n"
        "| marked \"Deprecated\" | an error that names the replacement, unless it is off |\n"
        "| marked \"No effect\" | accepted, whatever its value; a notice says why |\n"
        "| marked \"Accepted, no effect\" | changes no result; another value than the default "
        "costs one warning, which says what happens |\n"
        "| marked \"Old name\" | taken with its modern meaning, and one warning |\n"
        "| a boolean with the value 0, 1, `\"true\"` or `\"false\"`; a number written as text, "
        "`false` (0), or `true` where the default is 1 | taken, with one warning |\n\n"
        "Flags of `shoal pretrain` fill what the file leaves out or has as `\"auto\"`: `--lr`, "
        "`--micro-batch-size`, `--bf16` and others. `--train-iters` fills `total_num_steps` of a "
        "schedule; `--lr-warmup-iters` fills `warmup_num_steps`, which is 0 otherwise. Without a "
        "batch size the micro-batch is 1. A file without `optimizer` needs `--lr` alone, which "
        "means AdamW. Without `--deepspeed_config` flags say everything.\n\n");
    shoali_config_markdown(&shoali_ds_section, "", out);
}
