#include "engine/config/rows.h"

#include "base/log.h"

static const char *const offload_devices[] = {"none", "cpu", "nvme", NULL};

static const struct shoali_option offload_param_rows[] = {
    ROW(offload_param, ENUM, device, 0,
        "Stage 3: where a rank's shard of the parameters is stored between uses.",
        .choices = offload_devices),
    ROW(offload_param, STRING, nvme_path, 0, "Folder on the NVMe drive.", BY_RANK),
    ROW(offload_param, INT, buffer_count, 5,
        "nvme: number of buffers in host memory, each as large as the largest layer's shard.",
        .min = 1, .max = 1024),
    ROW(offload_param, INT, buffer_size, 1e8, "nvme: largest size of a buffer.", .min = 1,
        .max = NO_MAX, .unit = "elements"),
    ROW(offload_param, INT, max_in_cpu, 1e9,
        "nvme: a rank's parameters up to this many stay in host memory.", .min = 0, .max = NO_MAX,
        .unit = "elements"),
    ROW(offload_param, BOOL, pin_memory, 1, "Host memory is pinned.", ),
};
static const struct shoali_section offload_param_section =
    SECTION(offload_param, "offload_param", offload_param_rows, "Parameters outside the device.", );

static const struct shoali_option offload_optimizer_rows[] = {
    ROW(offload_optimizer, ENUM, device, 0,
        "Stages 1 to 3: where master weights and optimizer states live and are updated.",
        .choices = offload_devices),
    ROW(offload_optimizer, STRING, nvme_path, 0, "Folder on the NVMe drive.", BY_RANK),
    ROW(offload_optimizer, INT, buffer_count, 4,
        "Buffers of a sub-group in host memory. cpu: 2 per sub-group in flight; nvme: 2 + number "
        "of states, times 1, 2 or 3 with pipeline_read and pipeline_write.",
        .min = 1, .max = 1024),
    ROW(offload_optimizer, BOOL, pin_memory, 1, "Host memory is pinned.", ),
    ROW(offload_optimizer, BOOL, pipeline_read, 0, "Read the next states during an update.", ),
    ROW(offload_optimizer, BOOL, pipeline_write, 0, "Write states back during the next update.", ),
    ROW(offload_optimizer, BOOL, fast_init, 0, "Master weights are made once, in memory.", IDLE),
    ROW(offload_optimizer, FLOAT, ratio, 1,
        "Share of the sub-groups that are offloaded; the first ones stay on the device.", .min = 0,
        .max = 1),
    ROW(offload_optimizer, BOOL, super_offload, 0, "The update begins after backward.", IDLE),
    ROW(offload_optimizer, FLOAT, cpuadam_cores_perc, 0.8, "Only super_offload uses it.", .min = 0,
        .max = 1, NOEFFECT),
};
static const struct shoali_section offload_optimizer_section =
    SECTION(offload_optimizer, "offload_optimizer", offload_optimizer_rows,
            "Optimizer states outside the device.", );

static const struct shoali_option zenflow_rows[] = {
    ROW(zenflow, FLOAT, topk_ratio, 0.1, "Share of columns updated on the device.", .min = 0,
        .max = 1),
    ROW(zenflow, STRING, select_strategy, 0, "When columns are chosen: auto, step or epoch.",
        .default_text = "auto"),
    ROW(zenflow, INT, select_interval, 0, "Steps or epochs between choices."),
    ROW(zenflow, INT, update_interval, 0, "Steps between updates of the other columns."),
    ROW(zenflow, BOOL, overlap_step, 0, "Update in a process of its own."),
    ROW(zenflow, BOOL, offload, 0, "Keep the chosen columns' states on the host."),
    ROW(zenflow, FLOAT, auto_ratio, 0.99, "Share of parameters that triggers an update."),
    ROW(zenflow, INT, full_warm_up_rounds, 0, "Steps with full updates at the start."),
    ROW(zenflow, FLOAT, pt_reserved_cores_perc, 0.5, "Share of cores kept for compute."),
    ROW(zenflow, INT, steps_per_epoch, 0, "Steps of an epoch, for strategy epoch."),
};
static const struct shoali_section zenflow_section =
    SECTION(zenflow, "zenflow", zenflow_rows, "Asynchronous updates of unimportant columns.", );

static const struct shoali_option leaf_module_rows[] = {
    ROW(leaf_module, STRINGS, classes, 0, "Layers are always fetched whole.", NOEFFECT),
    ROW(leaf_module, STRINGS, names, 0, "Layers are always fetched whole.", NOEFFECT),
    ROW(leaf_module, STRINGS, name_suffixes, 0, "Layers are always fetched whole.", NOEFFECT),
};
static const struct shoali_section leaf_module_section =
    SECTION(leaf_module, "leaf_module", leaf_module_rows, "Layers that stage 3 fetches whole.", );

static const struct shoali_option loco_rows[] = {
    ROW(loco, FLOAT, err_beta, 0.8, "Weight of the old error; the new one has 1 - err_beta.",
        .min = 0, .max = 1, TRAINING),
    ROW(loco, INT, reset_T, 1024, "Steps after which the errors are forgotten.", .min = 1,
        .max = NO_MAX, .unit = "steps", TRAINING),
};
static const struct shoali_section loco_section =
    SECTION(loco, "zeropp_loco_param", loco_rows,
            "Error feedback of quantized gradients. A checkpoint does not have the errors: they "
            "begin at 0 when a run continues.", );

static const struct shoali_option aio_rows[] = {
    ROW(aio, INT, block_size, 1048576, "Size of one request.", .min = 512, .max = NO_MAX,
        .unit = "bytes"),
    ROW(aio, INT, queue_depth, 8, "Requests in flight per thread.", .min = 1, .max = 65536),
    ROW(aio, INT, intra_op_parallelism, 1, "Threads per file operation.", .min = 1, .max = 1024),
    ROW_AS("thread_count", aio, INT, intra_op_parallelism, 1, "It means intra_op_parallelism.",
           RENAMED, .instead = "intra_op_parallelism", .min = 1, .max = 1024),
    ROW(aio, BOOL, single_submit, 0, "Submit each request by itself.", ),
    ROW(aio, BOOL, overlap_events, 1, "Refill the queue while requests complete.", ),
    ROW(aio, BOOL, use_gds, 0, "Files are read through host memory.", IDLE),
};
const struct shoali_section shoali_aio_section =
    SECTION(aio, "aio", aio_rows, "Asynchronous file access for NVMe offload.", );

/* Elements; more than any model has. */
#define EVERYTHING 9e18

/* DeepSpeed takes its stage 3 keys with and without the prefix. */
#define STAGE3(type_, name, default_, help_, ...)                                        \
    ROW_AS("stage3_" #name, zero, type_, stage3_##name, default_, help_, .alias = #name, \
           __VA_ARGS__)

static const struct shoali_option zero_rows[] = {
    ROW(zero, INT, stage, 0,
        "0: nothing is partitioned; 1: optimizer states; 2: also gradients; 3: also weights.",
        .min = 0, .max = 3),
    ROW(zero, BOOL, contiguous_gradients, 1, "Gradients always lie in one buffer.", NOEFFECT),
    ROW(zero, BOOL, reduce_scatter, 1,
        "Stages 1 to 3: reduce each gradient to its owner only; false: by all-reduce.", ),
    ROW(zero, INT, reduce_bucket_size, 5e8, "Gradient elements reduced at once.", .min = 1,
        .max = NO_MAX, .unit = "elements"),
    ROW(zero, BOOL, use_multi_rank_bucket_allreduce, 1,
        "How buckets are reduced is chosen by the communication backend.", NOEFFECT),
    ROW(zero, BOOL, allgather_partitions, 1, "Weights are always gathered by all-gather.",
        NOEFFECT),
    ROW(zero, INT, allgather_bucket_size, 5e8, "Weight elements gathered at once.", .min = 2,
        .max = NO_MAX, .unit = "elements"),
    ROW(zero, BOOL, overlap_comm, 0,
        "Communicate in a separate thread, overlapped with computation; not given: on in stage "
        "3.", ),
    ROW(zero, BOOL, load_from_fp32_weights, 1,
        "Master weights are always read from the checkpoint's fp32 files.", NOEFFECT),
    ROW(zero, BOOL, elastic_checkpoint, 0, "Every checkpoint loads into any layout.", NOEFFECT),
    ROW(zero, SECTION, offload_param, 0, "Parameters outside the device.",
        .section = &offload_param_section),
    ROW(zero, SECTION, offload_optimizer, 0, "Optimizer states outside the device.",
        .section = &offload_optimizer_section),
    ROW(zero, INT, sub_group_size, 1e9,
        "Elements that the optimizer updates at once in stage 3 and with offload (there at most "
        "2^22); 0: 2^22.",
        .min = 0, .max = NO_MAX, .unit = "elements"),
    ROW(zero, BOOL, cpu_offload, 0, "true means offload_optimizer: {\"device\": \"cpu\"}.",
        RENAMED),
    ROW(zero, BOOL, cpu_offload_param, 0, "true means offload_param: {\"device\": \"cpu\"}.",
        RENAMED, .alias = "cpu_offload_params"),
    ROW(zero, BOOL, cpu_offload_use_pin_memory, 0,
        "It means pin_memory in offload_param and offload_optimizer.", RENAMED),
    STAGE3(INT, prefetch_bucket_size, 5e7, "Stage 3: elements gathered ahead.", .min = 0,
           .max = NO_MAX, .unit = "elements"),
    STAGE3(INT, param_persistence_threshold, 1e5,
           "Layers whose parameters are all up to this size stay gathered.", .min = 0,
           .max = NO_MAX, .unit = "elements"),
    STAGE3(INT, model_persistence_threshold, EVERYTHING,
           "Limit for the sum of all layers that stay gathered.", .min = 0, .max = NO_MAX,
           .unit = "elements"),
    STAGE3(INT, max_live_parameters, 1e9, "Elements that may be gathered at a time.", .min = 0,
           .max = NO_MAX, .unit = "elements"),
    STAGE3(INT, max_reuse_distance, 1e9,
           "A layer used again within this many elements is not released.", .min = 0, .max = NO_MAX,
           .unit = "elements"),
    STAGE3(BOOL, gather_16bit_weights_on_model_save, 0,
           "Checkpoints always hold whole weights; nothing is gathered for it.", NOEFFECT),
    ROW_AS("stage3_gather_fp16_weights_on_model_save", zero, BOOL,
           stage3_gather_16bit_weights_on_model_save, 0,
           "It means stage3_gather_16bit_weights_on_model_save.", RENAMED,
           .instead = "stage3_gather_16bit_weights_on_model_save"),
    STAGE3(INT, module_granularity_threshold, 0,
           "Neighbouring layers smaller than this are fetched together, until they reach it.",
           .min = 0, .max = NO_MAX, .unit = "elements"),
    STAGE3(BOOL, use_all_reduce_for_fetch_params, 0,
           "Weights are always fetched by all-gather, which sends half as much.", NOEFFECT),
    STAGE3(BOOL, allgather_sequential, 0,
           "Layers are gathered in place, without the copies that this would save.", NOEFFECT),
    ROW(zero, BOOL, ignore_unused_parameters, 1,
        "If a trainable parameter gets no gradient from any micro-batch of a step: true: warn once "
        "per parameter; false: an error before the update."),
    ROW_AS("find_unused_parameters", zero, BOOL, ignore_unused_parameters, 1,
           "It means ignore_unused_parameters.", RENAMED, .instead = "ignore_unused_parameters"),
    ROW(zero, BOOL, legacy_stage1, 0, "There is one implementation of stage 1.", NOEFFECT),
    ROW(zero, BOOL, round_robin_gradients, 0,
        "Every bucket is always partitioned equally over the ranks.", NOEFFECT),
    ROW(zero, INT, zero_hpz_partition_size, 1,
        "Stage 3: this many consecutive ranks share a second copy of the weights, and gather from "
        "it once it is filled.",
        .min = 1, .max = 1 << 20, .unit = "ranks"),
    ROW(zero, BOOL, zero_quantized_weights, 0, "Stage 3: gather weights as 8-bit integers.",
        TRAINING),
    ROW(zero, BOOL, zero_quantized_nontrainable_weights, 0, "Store frozen weights in 8 bits.",
        PENDING),
    ROW(zero, BOOL, zero_quantized_gradients, 0, "Stage 3: send gradients as 4-bit integers.",
        TRAINING),
    ROW(zero, SECTION, zeropp_loco_param, 0, "Error feedback of quantized gradients.",
        .section = &loco_section),
    ROW(zero, INT, mics_shard_size, -1,
        "Stage 3: this many consecutive ranks partition the model, and other such groups hold "
        "replicas; -1: all ranks.",
        .min = -1, .max = 1 << 20, .unit = "ranks"),
    ROW(zero, BOOL, mics_hierarchical_params_gather, 0,
        "MiCS with shards on several hosts: every rank gathers from its counterparts on the other "
        "hosts, then within its host; false: one rank of each host communicates for all.", ),
    ROW(zero, BOOL, memory_efficient_linear, 1, "Linear layers never save their weight.", NOEFFECT),
    ROW(zero, BOOL, pipeline_loading_checkpoint, 0, "Ranks always load at the same time.",
        NOEFFECT),
    ROW(zero, BOOL, override_module_apply, 1, "There is no Module.apply.", NOEFFECT),
    ROW(zero, BOOL, log_trace_cache_warnings, 0, "There is no trace: the order of layers is known.",
        NOEFFECT),
    ROW(zero, BOOL, enable_sanity_checks, 0, "The checks are always on.", NOEFFECT),
    ROW(zero, BOOL, save_muon_momentum_buffer_in_memory, 0, "Keep Muon's momentum in memory.",
        PENDING),
    ROW(zero, SECTION, zenflow, 0, "Asynchronous updates of unimportant columns.",
        .section = &zenflow_section),
    ROW(zero, SECTION, leaf_module, 0, "Layers that stage 3 fetches whole.",
        .section = &leaf_module_section),
    ROW(zero, SECTION, aio, 0, "Another place of the root section aio.",
        .section = &shoali_aio_section, BY_RANK),
};

/* ZeRO++ and MiCS. */
static shoal_status validate_groups(const struct shoali_zero_config *zero)
{
    const bool offloads = zero->offload_param.device != SHOALI_OFFLOAD_NONE ||
                          zero->offload_optimizer.device != SHOALI_OFFLOAD_NONE;
    const char *key = zero->zero_hpz_partition_size > 1 ? "zero_hpz_partition_size"
                      : zero->mics_shard_size > 0       ? "mics_shard_size"
                      : zero->zero_quantized_weights    ? "zero_quantized_weights"
                      : zero->zero_quantized_gradients  ? "zero_quantized_gradients"
                                                        : NULL;
    if (key && zero->stage != 3)
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s needs stage 3 (stage is %lld)", key,
                          (long long)zero->stage);
    if (zero->mics_shard_size == 0)
        return SHOAL_FAIL(SHOAL_ECONFIG, "mics_shard_size: 0 ranks hold nothing, give -1 or more "
                                         "than 0");
    if (zero->zero_hpz_partition_size > 1 && zero->mics_shard_size > 0)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "zero_hpz_partition_size and mics_shard_size both keep gathers among "
                          "neighbours: give one of them");
    if (zero->mics_shard_size > 0 && offloads)
        return SHOAL_FAIL(SHOAL_ECONFIG, "mics_shard_size cannot be combined with "
                                         "offload_optimizer or offload_param");
    if (zero->zero_hpz_partition_size > 1 && zero->offload_param.device != SHOALI_OFFLOAD_NONE)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "zero_hpz_partition_size keeps a second copy of the weights on the "
                          "device, which offload_param is to avoid: give one of them");
    if (zero->zeropp_loco_param.reset_T > 0 && !zero->zero_quantized_gradients)
        return SHOAL_FAIL(SHOAL_ECONFIG, "zeropp_loco_param feeds back what "
                                         "zero_quantized_gradients loses: switch that on too");
    if (zero->zero_quantized_gradients && !zero->reduce_scatter)
        return SHOAL_FAIL(SHOAL_ECONFIG, "zero_quantized_gradients sends each part to its owner: "
                                         "it needs reduce_scatter true");
    return SHOAL_OK;
}

/* ---- keys that are given and have nothing to do ---------------------------------------------- */

static void notice(const struct shoali_section *section, const void *config,
                   const char *const *keys, const char *why)
{
    for (; *keys; keys++)
        if (shoali_config_given(section, config, *keys))
            SHOALI_INFO("config", "%s.%s has no effect: %s", section->name, *keys, why);
}

static void notice_offload(const struct shoali_zero_config *zero)
{
    static const char *const nvme_param[] = {"nvme_path", "buffer_count", "buffer_size",
                                             "max_in_cpu", NULL};
    static const char *const nvme_optimizer[] = {"nvme_path", "pipeline_read", "pipeline_write",
                                                 NULL};
    static const char *const pin[] = {"pin_memory", NULL};
    static const char *const optimizer[] = {"buffer_count", "pin_memory", "ratio", NULL};
    const int32_t param_device = zero->offload_param.device;
    const int32_t optimizer_device = zero->offload_optimizer.device;
    if (param_device != SHOALI_OFFLOAD_NVME)
        notice(&offload_param_section, &zero->offload_param, nvme_param, "device is not nvme");
    if (param_device == SHOALI_OFFLOAD_NONE)
        notice(&offload_param_section, &zero->offload_param, pin, "device is none");
    if (optimizer_device != SHOALI_OFFLOAD_NVME)
        notice(&offload_optimizer_section, &zero->offload_optimizer, nvme_optimizer,
               "device is not nvme");
    /* weights on their way out pass through its buffers */
    if (optimizer_device == SHOALI_OFFLOAD_NONE && param_device == SHOALI_OFFLOAD_NONE)
        notice(&offload_optimizer_section, &zero->offload_optimizer, optimizer, "device is none");
}

static void notice_stage(const struct shoali_zero_config *zero)
{
    static const char *const stage_3[] = {"stage3_prefetch_bucket_size",
                                          "stage3_param_persistence_threshold",
                                          "stage3_model_persistence_threshold",
                                          "stage3_max_live_parameters",
                                          "stage3_max_reuse_distance",
                                          "stage3_module_granularity_threshold",
                                          NULL};
    static const char *const parts[] = {"reduce_scatter", "allgather_bucket_size", NULL};
    static const char *const sub_group[] = {"sub_group_size", NULL};
    static const char *const ahead[] = {"stage3_prefetch_bucket_size", NULL};
    const bool offloads = zero->offload_param.device != SHOALI_OFFLOAD_NONE ||
                          zero->offload_optimizer.device != SHOALI_OFFLOAD_NONE;
    if (zero->stage < 3)
        notice(&shoali_zero_section, zero, stage_3, "it is for stage 3");
    else if (!zero->overlap_comm)
        notice(&shoali_zero_section, zero, ahead,
               "nothing is gathered ahead, because overlap_comm is false");
    if (zero->stage == 0)
        notice(&shoali_zero_section, zero, parts, "nothing is partitioned in stage 0");
    if (zero->stage < 3 && !offloads)
        notice(&shoali_zero_section, zero, sub_group, "it is for stage 3 and for offload");
}

/* ---- names and combinations that DeepSpeed takes --------------------------------------------- */

/* What "sub_group_size": 0 is taken as: the largest sub-group of an offload. */
#define SUB_GROUP_LEAST (1 << 22)

/* cpu_offload of one of both sections: its device, unless the section names another one. */
static shoal_status take_cpu(const char *old_key, bool old, const char *section, bool given,
                             int32_t *device)
{
    if (!old)
        return SHOAL_OK;
    if (given && *device == SHOALI_OFFLOAD_NONE)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s is true, but %s.device is none: remove %s, its older name", old_key,
                          section, old_key);
    if (*device == SHOALI_OFFLOAD_NONE)
        *device = SHOALI_OFFLOAD_CPU;
    return SHOAL_OK;
}

static shoal_status take_old_names(struct shoali_zero_config *zero)
{
    shoal_status status;
    struct shoali_offload_optimizer_config *optimizer = &zero->offload_optimizer;
    struct shoali_offload_param_config *param = &zero->offload_param;
    const bool by_optimizer = shoali_config_given(&offload_optimizer_section, optimizer, "device");
    const bool by_param = shoali_config_given(&offload_param_section, param, "device");
    SHOAL_TRY(status,
              take_cpu("cpu_offload", zero->cpu_offload, "offload_optimizer", by_optimizer,
                       &optimizer->device),
              done);
    SHOAL_TRY(status,
              take_cpu("cpu_offload_param", zero->cpu_offload_param, "offload_param", by_param,
                       &param->device),
              done);
    if (!shoali_config_given(&shoali_zero_section, zero, "cpu_offload_use_pin_memory"))
        goto done;
    if (!shoali_config_given(&offload_optimizer_section, optimizer, "pin_memory"))
        optimizer->pin_memory = zero->cpu_offload_use_pin_memory;
    if (!shoali_config_given(&offload_param_section, param, "pin_memory"))
        param->pin_memory = zero->cpu_offload_use_pin_memory;
done:
    return status;
}

/* An offload that a stage has no shards for: DeepSpeed ignores it in silence. */
static void leave_stage(struct shoali_zero_config *zero)
{
    if (zero->offload_optimizer.device != SHOALI_OFFLOAD_NONE && zero->stage == 0) {
        zero->offload_optimizer.device = SHOALI_OFFLOAD_NONE;
        SHOALI_WARN_FIRST("config", "zero_optimization.offload_optimizer has no effect: it needs "
                                    "stage 1, 2 or 3 (stage is 0)");
    }
    if (zero->offload_param.device != SHOALI_OFFLOAD_NONE && zero->stage != 3) {
        zero->offload_param.device = SHOALI_OFFLOAD_NONE;
        SHOALI_WARN_FIRST(
            "config",
            "zero_optimization.offload_param has no effect: it needs stage 3 (stage is "
            "%lld)",
            (long long)zero->stage);
    }
}

static shoal_status validate_zero(void *config)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_config *zero = config;
    if (!shoali_config_given(&shoali_zero_section, zero, "overlap_comm"))
        zero->overlap_comm = zero->stage == 3;
    if (!shoali_config_given(&shoali_zero_section, zero, "zeropp_loco_param"))
        zero->zeropp_loco_param.reset_T = 0;
    if (zero->allgather_bucket_size % 2)
        return SHOAL_FAIL(SHOAL_ECONFIG, "allgather_bucket_size: %lld is odd, give an even number",
                          (long long)zero->allgather_bucket_size);
    if (zero->offload_optimizer.ratio < 1 && zero->stage != 3)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "offload_optimizer.ratio: %g is below 1, which needs stage 3 (stage is "
                          "%lld)",
                          zero->offload_optimizer.ratio, (long long)zero->stage);
    SHOAL_TRY(status, take_old_names(zero), done);
    if (zero->sub_group_size == 0) {
        zero->sub_group_size = SUB_GROUP_LEAST;
        SHOALI_WARN_FIRST("config", "zero_optimization.sub_group_size 0 is taken as %d elements",
                          SUB_GROUP_LEAST);
    }
    SHOAL_TRY(status, validate_groups(zero), done);
    if ((zero->offload_param.device == SHOALI_OFFLOAD_NVME && !zero->offload_param.nvme_path) ||
        (zero->offload_optimizer.device == SHOALI_OFFLOAD_NVME &&
         !zero->offload_optimizer.nvme_path))
        return SHOAL_FAIL(SHOAL_ECONFIG, "device nvme needs nvme_path: give a folder on the drive");
    if (shoali_config_given(&shoali_zero_section, zero, "zenflow"))
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "zenflow, which is on when it is given, is not supported: remove the "
                          "section; offload_optimizer alone updates every weight at each step");
    notice_stage(zero);
    notice_offload(zero);
    leave_stage(zero);
done:
    return status;
}

const struct shoali_section shoali_zero_section =
    SECTION(zero, "zero_optimization", zero_rows,
            "States partitioned over the ranks instead of replicated.", .validate = validate_zero,
            .bare_key = "stage");

int64_t shoali_offload_buffers(const struct shoali_zero_config *zero)
{
    const struct shoali_offload_optimizer_config *optimizer = &zero->offload_optimizer;
    return shoali_config_given(&offload_optimizer_section, optimizer, "buffer_count")
               ? optimizer->buffer_count
               : 0;
}
