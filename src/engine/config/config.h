/* config - the whole ds_config.json: one plain struct, one table of rows.
 *
 * Every key that DeepSpeed knows has a row: supported, known but not supported yet (an error when
 * it asks for something), without effect (a line says why), an old name (a warning), or dead (an
 * error that names the alternative). A switched-off section may
 * carry any valid values. Sections of subsystems below the engine (fp16, optimizer, scheduler,
 * monitors) are theirs; this folder composes them:
 *
 *   config.c           the root table, reading, checks across sections
 *   config_batch.c     the three batch sizes
 *   config_mesh.c      what sections say of the mesh: made by them, or compared with them
 *   config_zero.c      zero_optimization with offload and zenflow, aio
 *   config_features.c  sections of one feature each: activation checkpointing, compile, ...
 *   config_tools.c     sections about observing and tuning: profilers, autotuning,
 *                      checkpoint
 *   config_rows.h      how rows are written
 */
#ifndef SHOALI_ENGINE_CONFIG_H
#define SHOALI_ENGINE_CONFIG_H

#include "base/config_table.h"
#include "elasticity/elasticity.h"
#include "monitor/monitor.h"
#include "optimizer/loss_scaler.h"
#include "optimizer/lr_schedules.h"
#include "optimizer/optimizer.h"

enum shoali_reduction { SHOALI_REDUCTION_FAST, SHOALI_REDUCTION_EXACT };
enum shoali_gradient_op { SHOALI_GRADIENT_MEAN, SHOALI_GRADIENT_SUM };
enum shoali_data_type { SHOALI_TYPE_FP32, SHOALI_TYPE_FP16, SHOALI_TYPE_BF16 };
enum shoali_offload_device { SHOALI_OFFLOAD_NONE, SHOALI_OFFLOAD_CPU, SHOALI_OFFLOAD_NVME };

struct shoali_bf16_config {
    bool enabled, immediate_grad_update, check_grad_overflow;
    bool bf16_master_weights_and_grads, bf16_optimizer_states;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_data_types_config {
    int32_t grad_accum_dtype;               /* enum shoali_data_type */
    const char *param_dtype, *buffer_dtype; /* NULL: the model's */
    struct shoali_strings keep_in_fp32_modules;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_torch_autocast_config {
    bool enabled;
    const char *dtype;
    struct shoali_strings lower_precision_safe_modules;
    uint64_t given[SHOALI_GIVEN_WORDS];
};

struct shoali_offload_param_config {
    int32_t device; /* enum shoali_offload_device */
    const char *nvme_path;
    int64_t buffer_count, buffer_size, max_in_cpu; /* sizes in elements */
    bool pin_memory;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_offload_optimizer_config {
    int32_t device; /* enum shoali_offload_device */
    const char *nvme_path;
    int64_t buffer_count;
    bool pin_memory, pipeline_read, pipeline_write, fast_init, super_offload;
    double ratio, cpuadam_cores_perc;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_zenflow_config {
    double topk_ratio, auto_ratio, pt_reserved_cores_perc;
    const char *select_strategy;
    int64_t select_interval, update_interval, full_warm_up_rounds, steps_per_epoch; /* 0: auto */
    bool overlap_step, offload;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_leaf_module_config {
    struct shoali_strings classes, names, name_suffixes;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_loco_config {
    double err_beta;
    int64_t reset_T; /* 0: no feedback */
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_aio_config {
    int64_t block_size; /* bytes */
    int64_t queue_depth, intra_op_parallelism;
    bool single_submit, overlap_events, use_gds;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_zero_config {
    int64_t stage;
    /* bucket, group and threshold sizes are elements */
    int64_t reduce_bucket_size, allgather_bucket_size, sub_group_size;
    int64_t stage3_prefetch_bucket_size, stage3_param_persistence_threshold;
    int64_t stage3_model_persistence_threshold, stage3_max_live_parameters;
    int64_t stage3_max_reuse_distance, stage3_module_granularity_threshold;
    int64_t zero_hpz_partition_size, mics_shard_size;
    bool contiguous_gradients, reduce_scatter, use_multi_rank_bucket_allreduce;
    bool allgather_partitions, overlap_comm, load_from_fp32_weights, elastic_checkpoint;
    bool stage3_gather_16bit_weights_on_model_save, stage3_use_all_reduce_for_fetch_params;
    bool stage3_allgather_sequential, ignore_unused_parameters, round_robin_gradients;
    bool zero_quantized_weights, zero_quantized_nontrainable_weights, zero_quantized_gradients;
    bool mics_hierarchical_params_gather, memory_efficient_linear, pipeline_loading_checkpoint;
    bool override_module_apply, log_trace_cache_warnings, enable_sanity_checks;
    bool save_muon_momentum_buffer_in_memory, legacy_stage1;
    bool cpu_offload, cpu_offload_param, cpu_offload_use_pin_memory;
    struct shoali_loco_config zeropp_loco_param;
    struct shoali_offload_param_config offload_param;
    struct shoali_offload_optimizer_config offload_optimizer;
    struct shoali_zenflow_config zenflow;
    struct shoali_leaf_module_config leaf_module;
    struct shoali_aio_config aio; /* taken as the root's where that is not given */
    uint64_t given[SHOALI_GIVEN_WORDS];
};

struct shoali_activation_checkpointing_config {
    bool partition_activations, contiguous_memory_optimization, synchronize_checkpoint_boundary;
    bool profile, cpu_checkpointing;
    int64_t number_checkpoints; /* 0: not given */
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_comms_logger_config {
    bool enabled, prof_all, verbose, debug, show_straggler;
    struct shoali_strings prof_ops;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_flops_profiler_config {
    bool enabled, detailed;
    double recompute_fwd_factor;
    int64_t profile_step, module_depth, top_modules;
    const char *output_file;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_throughput_config {
    bool enabled, synchronized;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_timers_config {
    struct shoali_throughput_config throughput;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_parallel_write_config {
    bool pipeline_stage;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_writer_config {
    const char *type, *data_parallel;
    bool decoupled, io_buffer_double, show_statistics;
    int64_t io_buffer_size, io_multiplier, staging_buffer_size;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_checkpoint_config {
    int32_t tag_validation;
    bool load_universal, use_node_local_storage, checkpoint_serialization;
    int64_t keep_last, keep_every;
    struct shoali_parallel_write_config parallel_write;
    struct shoali_writer_config writer;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_autotuning_config {
    bool enabled, fast, overwrite;
    const char *results_dir, *exps_dir, *metric_path, *model_info_path;
    int32_t metric, tuner_type;
    int64_t start_profile_step, end_profile_step, tuner_early_stopping, tuner_num_trials;
    int64_t max_train_batch_size, min_train_batch_size;
    int64_t max_train_micro_batch_size_per_gpu, min_train_micro_batch_size_per_gpu;
    int64_t num_tuning_micro_batch_sizes, mp_size;
    struct json_t *arg_mappings, *model_info;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_pipeline_config {
    const char *partition;
    int64_t stages; /* 0: as the mesh has */
    int64_t activation_checkpoint_interval;
    bool seed_layers, pipe_partitioned, grad_partitioned, use_reentrant, overlap_p2p;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_tp_config {
    int64_t tp_size, tp_grain_size;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_tensor_parallel_config {
    int64_t autotp_size;
    const char *dtype, *preset_model;
    bool tp_overlap_comm, keep_module_on_host, replace_with_kernel_inject;
    struct json_t *partition_config, *injection_policy_tuple;
    struct shoali_tp_config tp;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_expert_parallel_config {
    bool enabled, validate_folding_routing, use_grouped_mm, disable_triton_grouped_mm;
    bool route_norm, has_shared_experts;
    int64_t autoep_size, expert_tensor_parallel_size, num_expert_groups, num_limited_groups, top_k;
    double route_scale, routed_scaling_factor, load_balance_coeff;
    const char *preset_model, *moe_layer_pattern, *expert_pattern, *router_pattern, *score_apply;
    const char *combine_impl, *score_func, *expert_w1, *expert_w2, *expert_w3;
    const char *num_experts_attr, *top_k_attr, *shared_experts_pattern;
    const char *shared_experts_gate_pattern;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_compile_config {
    bool deepcompile, free_activation, offload_activation, offload_activation_pin_memory;
    bool offload_opt_states, offload_parameters, double_buffer, symmetric_memory, debug_log;
    bool sync_before_reduce, sync_after_reduce, sync_before_allgather, sync_after_allgather;
    bool keep_int_input_tensors, keep_all_input_tensors;
    int64_t free_activation_threshold; /* bytes */
    struct shoali_strings passes;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_hybrid_engine_config {
    bool enabled, release_inference_cache, pin_parameters, enable_cuda_graph;
    int64_t max_out_tokens, inference_tp_size, tp_gather_partition_size;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_layer_drop_config {
    bool enabled;
    double theta, gamma;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_curriculum_config {
    bool enabled;
    const char *curriculum_type, *schedule_type;
    int64_t min_difficulty, max_difficulty;
    struct json_t *schedule_config;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_data_efficiency_config {
    bool enabled;
    int64_t seed;
    struct json_t *data_sampling, *data_routing;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_weight_quantization_config {
    bool enabled;
    int64_t num_bits, q_groups;
    const char *q_type;
    struct json_t *quantized_initialization, *post_init_quant;
    uint64_t given[SHOALI_GIVEN_WORDS];
};

/* Logical splits of exact sums; 1: none. autograd/tensor_parallel.h */
struct shoali_exact_splits_config {
    int64_t tensor, sequence;
    uint64_t given[SHOALI_GIVEN_WORDS];
};

struct shoali_ds_config {
    int64_t train_batch_size, train_micro_batch_size_per_gpu,
        gradient_accumulation_steps; /* 0: not given */
    int64_t steps_per_print;         /* 0: never */
    double gradient_clipping;        /* global L2 norm, 0: off */
    double gradient_predivide_factor;
    int32_t gradient_allreduce_op;   /* enum shoali_gradient_op */
    int32_t communication_data_type; /* enum shoali_data_type */
    int32_t seq_parallel_communication_data_type;
    int32_t reduction;                      /* enum shoali_reduction */
    int64_t exact_unit_log2, seed, threads; /* threads 0: see shoal_engine_args */
    int64_t data_parallel_size, sequence_parallel_size, vocabulary_size;
    bool packed_weights; /* given or not: see shoali_config_given */
    bool hashes, dump_state, prescale_gradients, wall_clock_breakdown, memory_breakdown;
    bool managed_gradient_accumulation, disable_allgather, sparse_gradients, graph_harvesting;
    bool dataloader_drop_last, use_data_before_expert_parallelism;
    bool zero_allow_untested_optimizer, zero_force_ds_cpu_optimizer;
    const char *log_level;
    struct json_t *compression_training,
        *dead; /* `dead`: where keys that only give an error point */

    struct shoali_exact_splits_config exact_splits;
    struct shoali_fp16_config fp16;
    struct shoali_bf16_config bf16;
    struct shoali_data_types_config data_types;
    struct shoali_torch_autocast_config torch_autocast;
    struct shoali_optimizer_config optimizer;
    struct shoali_scheduler_config scheduler;
    struct shoali_zero_config zero_optimization;
    struct shoali_aio_config aio;
    struct shoali_activation_checkpointing_config activation_checkpointing;
    struct shoali_file_monitor_config csv_monitor, jsonl_monitor, tensorboard;
    struct shoali_wandb_config wandb;
    struct shoali_comet_config comet;
    struct shoali_comms_logger_config comms_logger;
    struct shoali_flops_profiler_config flops_profiler;
    struct shoali_timers_config timers;
    struct shoali_checkpoint_config checkpoint;
    struct shoali_elasticity_config elasticity;
    struct shoali_autotuning_config autotuning;
    struct shoali_pipeline_config pipeline;
    struct shoali_tensor_parallel_config tensor_parallel;
    struct shoali_expert_parallel_config expert_parallel;
    struct shoali_compile_config compile;
    struct shoali_hybrid_engine_config hybrid_engine;
    struct shoali_layer_drop_config progressive_layer_drop;
    struct shoali_curriculum_config curriculum_learning;
    struct shoali_data_efficiency_config data_efficiency;
    struct shoali_weight_quantization_config weight_quantization;
    uint64_t given[SHOALI_GIVEN_WORDS];

    struct shoali_arena arena; /* strings and lists */
    struct shoali_json
        *document; /* owned; SHOALI_JSON members and `optimizer.params` borrow from it */
};
extern const struct shoali_section shoali_ds_section, shoali_autotuning_section;

/* Reads a configuration from a file or a text (with both, the text was made from the file and from
 * flags: messages name the file's lines) and checks everything that does
 * not depend on the number of ranks. On an error *config needs no fini. SHOAL_ECONFIG with file,
 * line and key. */
SHOAL_CHECKED shoal_status shoali_ds_config_init(struct shoali_ds_config *config, const char *path,
                                                 const char *text);
void shoali_ds_config_fini(struct shoali_ds_config *config);

/* train = micro * accumulation * dp_world: derives what was not given, or takes what elasticity
 * says. SHOAL_ECONFIG names all values when they contradict. */
struct shoali_batch_sizes {
    int64_t train, micro, accumulation;
};
SHOAL_CHECKED shoal_status shoali_batch_triad(const struct shoali_ds_config *config,
                                              int64_t dp_world, struct shoali_batch_sizes *sizes);

/* config_zero.c. offload_optimizer.buffer_count; 0: not given. */
int64_t shoali_offload_buffers(const struct shoali_zero_config *zero);

/* config_mesh.c. Sizes of tp and pp that keys give go into args; those of any mesh must be the
 * keys'. SHOAL_ECONFIG with file, line and key. */
struct shoal_mesh;
struct shoal_mesh_args;
struct shoal_engine_args;
SHOAL_CHECKED shoal_status shoali_config_mesh(const struct shoali_ds_config *config,
                                              struct shoal_mesh_args *args);
SHOAL_CHECKED shoal_status shoali_config_check_mesh(const struct shoali_ds_config *config,
                                                    const struct shoal_mesh *mesh);
/* How layers are cut: the argument's, else the key's, else "parameters". Borrowed. */
SHOAL_CHECKED shoal_status shoali_config_partition(const struct shoali_ds_config *config,
                                                   const struct shoal_engine_args *args,
                                                   const char **method);
/* A pipeline's transfers are beside its computations: the key's say, else with several chunks. */
bool shoali_config_overlap_p2p(const struct shoali_ds_config *config,
                               const struct shoal_engine_args *args, int32_t chunks);
/* Sums over tp run beside the weight gradients, unless a flag or the key says no. */
bool shoali_config_tensor_overlap(const struct shoali_ds_config *config,
                                  const struct shoal_engine_args *args);

/* docs/CONFIG.md. */
struct shoali_str;
void shoali_ds_config_markdown(struct shoali_str *out);

#endif
