#include "engine/config/rows.h"

#include <string.h>

static const char *const data_types[] = {"fp32", "fp16", "bf16", NULL};

/* Keys of fp16 that people copy. */
#define NO_SCALE(key_)                                                                       \
    {                                                                                        \
        .key = #key_, .type = SHOALI_JSON, NOEFFECT, .help = "bfloat16 needs no loss scale." \
    }

static const struct shoali_option bf16_rows[] = {
    ROW(bf16, BOOL, enabled, 0, "Compute in bfloat16, keep fp32 master weights.", ),
    ROW(bf16, BOOL, immediate_grad_update, 0, "Gradients are summed in fp32 in any case.", IDLE),
    ROW(bf16, BOOL, check_grad_overflow, 1,
        "A step whose gradient is not finite is always skipped.", NOEFFECT),
    ROW(bf16, BOOL, bf16_master_weights_and_grads, 0,
        "Master weights and gradient sums stay in fp32, which takes more memory.", IDLE),
    ROW(bf16, BOOL, bf16_optimizer_states, 0,
        "Optimizer states stay in fp32, which takes more memory.", IDLE),
    NO_SCALE(auto_cast),
    NO_SCALE(loss_scale),
    NO_SCALE(initial_scale_power),
    NO_SCALE(loss_scale_window),
    NO_SCALE(hysteresis),
    NO_SCALE(min_loss_scale),
    NO_SCALE(consecutive_hysteresis),
    NO_SCALE(opt_level),
};
const struct shoali_section shoali_bf16_section =
    SECTION(bf16, "bf16", bf16_rows, "Training in bfloat16.", );

static const struct shoali_option data_types_rows[] = {
    ROW(data_types, ENUM, grad_accum_dtype, 0, "Gradients are summed in fp32.",
        .choices = data_types, IDLE),
    ROW(data_types, STRING, param_dtype, 0, "Type of the weights.", PENDING),
    ROW(data_types, STRING, buffer_dtype, 0, "Type of buffers that are not weights.", PENDING),
    ROW(data_types, STRINGS, keep_in_fp32_modules, 0,
        "Weights are the only tensors, and their masters are in fp32.", NOEFFECT),
};
const struct shoali_section shoali_data_types_section =
    SECTION(data_types, "data_types", data_types_rows, "Types of sums and buffers.", );

static const struct shoali_option torch_autocast_rows[] = {
    ROW(torch_autocast, BOOL, enabled, 0, "Choose the type per layer.", PENDING),
    ROW(torch_autocast, STRING, dtype, 0, "The 16-bit type: fp16 or bf16.", ),
    ROW(torch_autocast, STRINGS, lower_precision_safe_modules, 0, "Layer kinds in that type.", ),
};
const struct shoali_section shoali_torch_autocast_section =
    SECTION(torch_autocast, "torch_autocast", torch_autocast_rows, "Types chosen per layer.", );

static const struct shoali_option activation_checkpointing_rows[] = {
    ROW(activation_checkpointing, BOOL, partition_activations, 0,
        "Kept inputs are not partitioned over tensor-parallel ranks.", NOEFFECT),
    ROW(activation_checkpointing, INT, number_checkpoints, 0,
        "Recompute the layers in this many chunks of equal length; only the inputs of chunks are "
        "kept. 0: as --recompute-granularity says.",
        .min = 0, .max = 100000),
    ROW(activation_checkpointing, BOOL, contiguous_memory_optimization, 0,
        "Store the kept inputs of recomputed layers in one planned block."),
    ROW(activation_checkpointing, BOOL, synchronize_checkpoint_boundary, 0,
        "Wait for the device at the beginning and end of each recomputed part."),
    ROW(activation_checkpointing, BOOL, profile, 0,
        "Log the time of each recomputed part, which waits for the device."),
    ROW(activation_checkpointing, BOOL, cpu_checkpointing, 0,
        "Store the kept inputs of recomputed layers in pinned host memory until their backward "
        "pass."),
};
const struct shoali_section shoali_activation_checkpointing_section =
    SECTION(activation_checkpointing, "activation_checkpointing", activation_checkpointing_rows,
            "Recomputing activations instead of keeping them.", );

static const struct shoali_option pipeline_rows[] = {
    ROW(pipeline, INT, stages, 0, "Number of stages; 0: that of the mesh, or 1.", .min = 0,
        .max = 65536),
    ROW(pipeline, STRING, partition, 0,
        "How layers are spread over stages: flops (which best means), parameters, uniform, "
        "even, type:REGEX or layout:TEXT.",
        .default_text = "best"),
    ROW(pipeline, BOOL, seed_layers, 0, "Each layer always has its own seed.", NOEFFECT),
    ROW(pipeline, INT, activation_checkpoint_interval, 0,
        "Recompute the layers in chunks of this many; only the inputs of chunks are kept. 0: as "
        "--recompute-granularity says.",
        .min = 0, .max = 100000),
    ROW(pipeline, BOOL, pipe_partitioned, 1, "How activations are sent, the pipeline chooses.",
        IDLE),
    ROW(pipeline, BOOL, grad_partitioned, 1, "How gradients are sent, the pipeline chooses.", IDLE),
    {.key = "activation_checkpointing",
     .type = SHOALI_JSON,
     NOEFFECT,
     .help = "Use activation_checkpoint_interval."},
    ROW(pipeline, BOOL, use_reentrant, 1, "There is one way of recomputing.", NOEFFECT),
    ROW(pipeline, BOOL, overlap_p2p, 0,
        "Send and receive between stages in two threads, overlapped with computation. Not given: "
        "on with virtual stages. It helps between hosts, and costs time where cores are scarce. An "
        "MPI that the program started without threads refuses it."),
};
const struct shoali_section shoali_pipeline_section =
    SECTION(pipeline, "pipeline", pipeline_rows, "Pipeline parallelism.", );

static const struct shoali_option tp_rows[] = {
    ROW(tp, INT, tp_size, 1, "Number of tensor-parallel ranks; 1: that of autotp_size.", .min = 0,
        .max = 65536),
    ROW(tp, INT, tp_grain_size, 1, "Shards are multiples of this.", PENDING),
};
static const struct shoali_section tp_section =
    SECTION(tp, "tp", tp_rows, "Size of the tensor-parallel group.", );

static const struct shoali_option tensor_parallel_rows[] = {
    ROW(tensor_parallel, INT, autotp_size, 0, "Number of tensor-parallel ranks; 0 and 1: off.",
        .min = 0, .max = 65536),
    {.key = "size", .type = SHOALI_JSON, NOEFFECT, .help = "The size is autotp_size."},
    ROW(tensor_parallel, STRING, dtype, 0, "Type of the weights.", .default_text = "fp16"),
    ROW(tensor_parallel, BOOL, tp_overlap_comm, 0,
        "Reduce input gradients while weight gradients are computed; false: before. Not given: "
        "true.",
        .flags = SHOALI_OPTION_NO_DEFAULT),
    ROW(tensor_parallel, SECTION, tp, 0, "Size of the tensor-parallel group.",
        .section = &tp_section),
    ROW(tensor_parallel, JSON, partition_config, 0,
        "Rules that say by name how weights are split, for a model that declares no splits."),
    ROW(tensor_parallel, STRING, preset_model, 0,
        "Rules for the names of a known family: llama, mistral, qwen2, qwen3, gemma, phi3, gpt2, "
        "bert, bloom, chatglm, mixtral, deepseek_v2."),
    ROW(tensor_parallel, BOOL, keep_module_on_host, 0, "Keep unsplit weights on the host.",
        PENDING),
    ROW(tensor_parallel, BOOL, replace_with_kernel_inject, 0, "Replace layers by fused ones.",
        .alias = "kernel_inject", PENDING),
    ROW(tensor_parallel, JSON, injection_policy_tuple, 0, "Layers to replace.", PENDING),
};
const struct shoali_section shoali_tensor_parallel_section =
    SECTION(tensor_parallel, "tensor_parallel", tensor_parallel_rows, "Tensor parallelism.", );

/* Only the switch is refused, so that a section that is off may say what it likes. */
static const struct shoali_option expert_parallel_rows[] = {
    ROW(expert_parallel, BOOL, enabled, 0, "Spread experts over ranks.", PENDING),
    ROW(expert_parallel, INT, autoep_size, 1, "Number of expert-parallel ranks.", .min = 1,
        .max = NO_MAX),
    ROW(expert_parallel, INT, expert_tensor_parallel_size, 1, "Ranks that split one expert.",
        .min = 1, .max = 1),
    ROW(expert_parallel, BOOL, validate_folding_routing, 0, "Compare routing across ranks.", ),
    ROW(expert_parallel, STRING, preset_model, 0, "Known model.", ),
    ROW(expert_parallel, STRING, moe_layer_pattern, 0, "Names of the layers with experts.", ),
    ROW(expert_parallel, STRING, expert_pattern, 0, "Name of the experts in a layer.", ),
    ROW(expert_parallel, STRING, router_pattern, 0, "Name of the router in a layer.", ),
    ROW(expert_parallel, BOOL, use_grouped_mm, 1, "One matrix product for all experts.", ),
    ROW(expert_parallel, BOOL, disable_triton_grouped_mm, 0, "There is no Triton.", NOEFFECT),
    ROW(expert_parallel, BOOL, route_norm, 0, "Normalise the chosen scores.", ),
    ROW(expert_parallel, FLOAT, route_scale, 1, "Factor of the chosen scores.", ),
    ROW(expert_parallel, FLOAT, routed_scaling_factor, 1, "Factor of the experts' output.", ),
    ROW(expert_parallel, STRING, score_apply, 0, "Where scores are applied: pre or post.",
        .default_text = "auto"),
    ROW(expert_parallel, STRING, combine_impl, 0, "How outputs are combined.",
        .default_text = "auto"),
    ROW(expert_parallel, STRING, score_func, 0, "softmax or sigmoid.", .default_text = "auto"),
    ROW(expert_parallel, INT, top_k, 0, "Experts per token; 0: the model's.", .min = 0,
        .max = NO_MAX),
    ROW(expert_parallel, INT, num_expert_groups, 0, "Groups of experts; 0: none.", .min = 0,
        .max = NO_MAX),
    ROW(expert_parallel, INT, num_limited_groups, 0, "Groups chosen per token; 0: all.", .min = 0,
        .max = NO_MAX),
    ROW(expert_parallel, FLOAT, load_balance_coeff, 0, "Weight of the balancing loss.", PENDING),
    ROW(expert_parallel, STRING, expert_w1, 0, "Name of the gate weight.", ),
    ROW(expert_parallel, STRING, expert_w2, 0, "Name of the down weight.", ),
    ROW(expert_parallel, STRING, expert_w3, 0, "Name of the up weight.", ),
    ROW(expert_parallel, STRING, num_experts_attr, 0,
        "The model's key for the number of experts.", ),
    ROW(expert_parallel, STRING, top_k_attr, 0, "The model's key for experts per token.", ),
    ROW(expert_parallel, BOOL, has_shared_experts, 0, "Some experts see every token.", ),
    ROW(expert_parallel, STRING, shared_experts_pattern, 0, "Name of the shared experts.", ),
    ROW(expert_parallel, STRING, shared_experts_gate_pattern, 0, "Name of their gate.", ),
};
const struct shoali_section shoali_expert_parallel_section =
    SECTION(expert_parallel, "expert_parallel", expert_parallel_rows, "Expert parallelism.", );

/* Kernels are compiled ahead and the order of layers is known: the keys change nothing. */
#define COMPILED(type_, key_, default_) \
    ROW(compile, type_, key_, default_, "Kernels are compiled ahead, and fetches planned.", IDLE)
#define COMPILER(key_)                                                                     \
    {                                                                                      \
        .key = #key_, .type = SHOALI_JSON, NOEFFECT, .help = "Kernels are compiled ahead." \
    }

static const struct shoali_option compile_rows[] = {
    COMPILED(BOOL, deepcompile, 0),
    COMPILED(BOOL, free_activation, 0),
    ROW(compile, INT, free_activation_threshold, 10485760, "Least size freed early.", .min = 0,
        .max = NO_MAX, .unit = "bytes"),
    ROW(compile, BOOL, offload_activation, 0, "Use activation_checkpointing.cpu_checkpointing.",
        IDLE),
    ROW(compile, BOOL, offload_activation_pin_memory, 1, "Lock them in memory.", ),
    ROW(compile, BOOL, offload_opt_states, 0, "Use zero_optimization.offload_optimizer.", IDLE),
    ROW(compile, BOOL, double_buffer, 1, "Use two gather buffers.", ),
    COMPILED(BOOL, symmetric_memory, 0),
    COMPILED(BOOL, debug_log, 0),
    ROW(compile, BOOL, offload_parameters, 0, "Use zero_optimization.offload_param.", IDLE),
    COMPILED(BOOL, sync_before_reduce, 0),
    COMPILED(BOOL, sync_after_reduce, 0),
    COMPILED(BOOL, sync_before_allgather, 0),
    COMPILED(BOOL, sync_after_allgather, 0),
    ROW(compile, BOOL, keep_int_input_tensors, 1, "Keep integer inputs.", ),
    COMPILED(BOOL, keep_all_input_tensors, 0),
    ROW(compile, STRINGS, passes, 0,
        "Passes to run: z1 and z3 have no effect; autosp and autotp are not supported.", ),
    COMPILER(enabled),
    COMPILER(disable),
    COMPILER(backend),
    COMPILER(kwargs),
};

/* Passes that share out a sequence or a layer ask for more than another plan. */
static shoal_status check_compile(void *value)
{
    const struct shoali_compile_config *compile = value;
    for (int32_t i = 0; i < compile->passes.count; i++) {
        const char *pass = compile->passes.value[i];
        if (strcmp(pass, "z1") != 0 && strcmp(pass, "z3") != 0)
            return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                              "passes has \"%s\", which is not supported: leave it out; a model's "
                              "layers are split by tensor_parallel.autotp_size",
                              pass);
    }
    return SHOAL_OK;
}
const struct shoali_section shoali_compile_section = SECTION(
    compile, "compile", compile_rows, "Planning from a traced graph.", .validate = check_compile);

static const struct shoali_option hybrid_engine_rows[] = {
    ROW(hybrid_engine, BOOL, enabled, 0, "Train and generate with one engine.", PENDING),
    ROW(hybrid_engine, INT, max_out_tokens, 512, "Most tokens to generate.", .min = 1,
        .max = NO_MAX),
    ROW(hybrid_engine, INT, inference_tp_size, 1, "Tensor-parallel ranks when generating.",
        .min = 1, .max = NO_MAX),
    ROW(hybrid_engine, BOOL, release_inference_cache, 0, "Free the cache after generating.", ),
    ROW(hybrid_engine, BOOL, pin_parameters, 1, "Keep weights gathered.", ),
    ROW(hybrid_engine, INT, tp_gather_partition_size, 8, "Layers gathered at once.", .min = 1,
        .max = NO_MAX),
    ROW(hybrid_engine, BOOL, enable_cuda_graph, 0, "Capture generation in a CUDA graph.", ),
};
const struct shoali_section shoali_hybrid_engine_section =
    SECTION(hybrid_engine, "hybrid_engine", hybrid_engine_rows, "Training and generating.", );

static const struct shoali_option layer_drop_rows[] = {
    ROW(layer_drop, BOOL, enabled, 0, "Skip layers at random.", PENDING),
    ROW(layer_drop, FLOAT, theta, 1, "Share of layers kept in the end.", .min = 0, .max = 1),
    ROW(layer_drop, FLOAT, gamma, 0.001, "How fast the share falls.", .min = 0, .max = NO_MAX),
};
const struct shoali_section shoali_layer_drop_section =
    SECTION(layer_drop, "progressive_layer_drop", layer_drop_rows, "Skipping layers at random.", );

static const struct shoali_option curriculum_rows[] = {
    ROW(curriculum, BOOL, enabled, 0, "Begin with easy samples.", PENDING),
    ROW(curriculum, STRING, curriculum_type, 0, "Measure of difficulty: seqlen.", ),
    ROW(curriculum, INT, min_difficulty, 0, "Difficulty at the start.", .min = 0, .max = NO_MAX),
    ROW(curriculum, INT, max_difficulty, 0, "Difficulty in the end.", .min = 0, .max = NO_MAX),
    ROW(curriculum, STRING, schedule_type, 0,
        "fixed_discrete, fixed_root, fixed_linear or custom.", ),
    ROW(curriculum, JSON, schedule_config, 0, "Parameters of the schedule.", ),
};
const struct shoali_section shoali_curriculum_section =
    SECTION(curriculum, "curriculum_learning", curriculum_rows, "From easy to hard samples.", );

static const struct shoali_option data_efficiency_rows[] = {
    ROW(data_efficiency, BOOL, enabled, 0, "Choose and shorten samples.", PENDING),
    ROW(data_efficiency, INT, seed, 1234, "Seed of the choice.", ),
    ROW(data_efficiency, JSON, data_sampling, 0, "How samples are chosen.", ),
    ROW(data_efficiency, JSON, data_routing, 0, "Which tokens skip layers.", ),
};
const struct shoali_section shoali_data_efficiency_section =
    SECTION(data_efficiency, "data_efficiency", data_efficiency_rows, "Choosing samples.", );

static const struct shoali_option weight_quantization_rows[] = {
    ROW(weight_quantization, BOOL, enabled, 0, "Quantize weights.", PENDING),
    ROW(weight_quantization, INT, num_bits, 8, "Bits per weight.", .min = 1, .max = 16),
    ROW(weight_quantization, STRING, q_type, 0, "symmetric or asymmetric.",
        .default_text = "symmetric"),
    ROW(weight_quantization, INT, q_groups, 1, "Groups with a scale of their own.", .min = 1,
        .max = NO_MAX),
    ROW(weight_quantization, JSON, quantized_initialization, 0, "Quantize when loading.", PENDING),
    ROW(weight_quantization, JSON, post_init_quant, 0, "Quantize after loading.", PENDING),
};
const struct shoali_section shoali_weight_quantization_section = SECTION(
    weight_quantization, "weight_quantization", weight_quantization_rows, "Weights in few bits.", );
