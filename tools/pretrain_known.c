/* Megatron's flags that `shoal pretrain` knows and has no use for: not supported yet (an error,
 * unless the value is the default), of another model (the same), without effect here (a notice), or replaced by something else
 * (an error that names it). None is stored. */
#include "pretrain.h"

#define KNOWN(key_, type_, state_, help_, ...)                                        \
    {                                                                                 \
        .key = key_, .type = SHOALI_##type_, .state = SHOALI_##state_, .help = help_, \
        .flags = SHOALI_OPTION_HIDDEN, __VA_ARGS__                                    \
    }
#define OF_LLAMA(key_, type_, ...) \
    KNOWN(key_, type_, ELSEWHERE, "the model llama has it: shoal pretrain llama", __VA_ARGS__)
#define LATER(key_, type_) KNOWN(key_, type_, PENDING, "", )

static const struct shoali_option rows[] = {
    LATER("num-experts", INT),
    LATER("quick-geglu", BOOL),
    LATER("init-method-xavier-uniform", BOOL),

    /* of a model that has them they are found before these */
    OF_LLAMA("group-query-attention", BOOL, ),
    OF_LLAMA("num-query-groups", INT, .default_number = 1),
    OF_LLAMA("kv-channels", INT, ),
    OF_LLAMA("position-embedding-type", STRING, .default_text = "learned_absolute"),
    OF_LLAMA("rotary-base", INT, .default_number = 10000),
    OF_LLAMA("rotary-percent", FLOAT, .default_number = 1),
    OF_LLAMA("rotary-interleaved", BOOL, ),
    OF_LLAMA("rotary-seq-len-interpolation-factor", FLOAT, ),
    OF_LLAMA("use-rope-scaling", BOOL, ),
    OF_LLAMA("rope-scaling-factor", FLOAT, .default_number = 8),
    OF_LLAMA("window-size", INT, ),
    OF_LLAMA("window-attn-skip-freq", INT, ),
    OF_LLAMA("normalization", STRING, .default_text = "LayerNorm"),
    OF_LLAMA("apply-layernorm-1p", BOOL, ),
    OF_LLAMA("qk-layernorm", BOOL, ),
    OF_LLAMA("swiglu", BOOL, ),
    OF_LLAMA("squared-relu", BOOL, ),
    OF_LLAMA("add-qkv-bias", BOOL, ),

    LATER("train-samples", INT),
    LATER("lr-decay-samples", INT),
    LATER("lr-warmup-samples", INT),
    LATER("step-batch-size-schedule", STRING),
    LATER("start-weight-decay", FLOAT),
    LATER("end-weight-decay", FLOAT),
    KNOWN("weight-decay-incr-style", STRING, PENDING, "", .default_text = "constant"),
    LATER("override-opt-param-scheduler", BOOL),
    LATER("use-checkpoint-opt-param-scheduler", BOOL),

    KNOWN("no-load-rng", BOOL, NOEFFECT,
          "There is no generator state: what is random follows from seed, step and element.", ),
    LATER("no-save-optim", BOOL),
    KNOWN("no-save-rng", BOOL, NOEFFECT, "There is no generator state.", ),
    KNOWN("use-persistent-ckpt-worker", BOOL, NOEFFECT, "The thread that saves stays, always.", ),
    KNOWN("async-strategy", STRING, NOEFFECT, "There is one way of saving beside the training.", ),
    LATER("distribute-saved-activations", BOOL),
    LATER("tensorboard-dir", STRING),
    LATER("wandb-project", STRING),

    KNOWN("use-mcore-models", BOOL, NOEFFECT, "There is one implementation.", ),
    KNOWN("transformer-impl", STRING, NOEFFECT, "There is one implementation.", ),
    KNOWN("use-flash-attn", BOOL, NOEFFECT, "Attention is always computed in tiles.", ),
    KNOWN("attention-softmax-in-fp32", BOOL, NOEFFECT, "It always is.", ),
    KNOWN("accumulate-allreduce-grads-in-fp32", BOOL, NOEFFECT,
          "Gradients are always summed in fp32, or in integers.", ),
    KNOWN("no-gradient-accumulation-fusion", BOOL, NOEFFECT,
          "Kernels always add to the gradients.", ),
    KNOWN("no-masked-softmax-fusion", BOOL, NOEFFECT, "There is one kernel.", ),
    KNOWN("no-bias-gelu-fusion", BOOL, NOEFFECT, "There is one kernel.", ),
    KNOWN("no-bias-dropout-fusion", BOOL, NOEFFECT, "There is one kernel.", ),
    KNOWN("distributed-backend", STRING, NOEFFECT, "SHOAL_COMM chooses the backend.", ),
    KNOWN("distributed-timeout-minutes", INT, NOEFFECT,
          "The variable DEEPSPEED_TIMEOUT sets the deadline.", ),
    KNOWN("num-workers", INT, NOEFFECT, "One thread reads ahead.", ),

    KNOWN("use-rotary-position-embeddings", BOOL, DEAD,
          "give --position-embedding-type rope, to shoal pretrain llama", ),
    KNOWN("use-distributed-optimizer", BOOL, DEAD,
          "set zero_optimization.stage to 1 in the configuration", ),
    KNOWN("overlap-grad-reduce", BOOL, DEAD,
          "set zero_optimization.overlap_comm in the configuration", ),
    KNOWN("overlap-param-gather", BOOL, DEAD,
          "set zero_optimization.overlap_comm in the configuration", ),
    KNOWN("optimizer", STRING, DEAD, "set optimizer.type in the configuration", ),
    KNOWN("sgd-momentum", FLOAT, DEAD, "set optimizer.params.momentum in the configuration", ),
    KNOWN("optimizer-cpu-offload", BOOL, DEAD,
          "set zero_optimization.offload_optimizer in the configuration", ),
    KNOWN("initial-loss-scale", FLOAT, DEAD,
          "set fp16.initial_scale_power in the configuration: the scale is 2 to that power", ),
    KNOWN("recompute-activations", BOOL, DEAD,
          "give --recompute-granularity selective --recompute-modules attn", ),
    KNOWN("persistent-save-interval", INT, DEAD, "give --save-interval", ),
    KNOWN("exit-signal", STRING, DEAD, "give --exit-signal-handler, which is for SIGTERM", ),
};

const struct shoali_section pretrain_known_section = {.name = "known",
                                                      .rows = SHOALI_ROWS(rows),
                                                      .struct_bytes = sizeof(struct pretrain_known),
                                                      .given_offset = SIZE_MAX};
