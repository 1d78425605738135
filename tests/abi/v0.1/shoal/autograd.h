/* autograd.h - layers, parameters and the ops a forward pass is written with.
 *
 * The user writes only the forward pass, as layers. A layer is a const table {declare, forward}:
 * `declare` names its parameters (global shape, init rule, tags) before any memory exists;
 * `forward` turns its boundary tensors into the next layer's. The same forward runs for training,
 * for evaluation and in *meta mode* (shapes only: plans, arena sizes). Each op appends a node to
 * the tape; backward replays it in reverse.
 *
 * Errors: ops return a tensor handle. A failed op poisons the tape and returns NULL; every later
 * op on that tape is a no-op returning NULL, and the status comes from whoever ran the forward
 * (shoal_engine_forward). All handles are borrowed from the tape and die with it.
 *
 * Not collective, except ops whose name says so. One tape belongs to one thread at a time.
 */
#ifndef SHOAL_AUTOGRAD_H
#define SHOAL_AUTOGRAD_H

#include "shoal/mesh.h"
#include "shoal/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_tape shoal_tape;
typedef struct shoal_param shoal_param;
typedef struct shoal_layer shoal_layer;
typedef struct shoal_declaration shoal_declaration;

/* ---- parameters ----------------------------------------------------------------------------- */

typedef enum shoal_init_kind {
    SHOAL_INIT_ZEROS = 0,
    SHOAL_INIT_ONES = 1,
    SHOAL_INIT_NORMAL = 2, /* mean a, standard deviation b */
    SHOAL_INIT_UNIFORM = 3 /* [a, b) */
} shoal_init_kind;

#define SHOAL_PARAM_NO_DECAY 1u /* weight decay never applies, whatever the configuration says */
#define SHOAL_PARAM_FROZEN 2u   /* no gradient, no optimizer state */

/* How the ranks of an axis share a parameter: each holds its part of one dim. A matrix that holds
 * several, as columns of q, k and v, or of a gate and what it gates, lists their sizes, and each is
 * cut on its own in whole units (heads, rows of 1); of n units and t ranks the first n mod t have
 * one more. A parameter without a split is on all ranks of the axis alike. */
#define SHOAL_SPLIT_PARTS 4
typedef struct shoal_param_split {
    shoal_axes axis; /* SHOAL_AXIS_TP, SHOAL_AXIS_EP; 0: no split */
    int32_t dim;
    int32_t part_count;                                       /* 0: one part, the whole dim */
    int64_t part[SHOAL_SPLIT_PARTS], unit[SHOAL_SPLIT_PARTS]; /* unit 0: 1 */
} shoal_param_split;
#define SHOAL_SPLITS 2

/* What a layer says about a parameter before it has memory. Its global name is "LAYER.NAME"; a
 * NAME that begins with "/" is the global name itself (without the "/"). */
typedef struct shoal_param_spec {
    const char *name;  /* e.g. "ln_1.weight"; borrowed for the call */
    shoal_shape shape; /* global */
    shoal_init_kind init;
    double init_a, init_b;
    unsigned tags;  /* SHOAL_PARAM_* */
    double lr_mult; /* 0 means 1 */
    const char
        *tied_to; /* full global name of the primary declared earlier: this is a second use of it */
    shoal_param_split split[SHOAL_SPLITS]; /* of different dims; with tied_to as the primary's */
    /* Ranks that are a multiple of a part's units divide each unit among those that share it, in
     * pieces of so many indices (heads of a query group); pieces of a whole unit: each of them has
     * it (the group's key and value head). 0: a rank has whole units, or none. */
    int64_t split_fine[SHOAL_SPLITS][SHOAL_SPLIT_PARTS];
} shoal_param_spec;

/* Declares the layer's next parameter; its index is the number of earlier declarations of this
 * layer. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_declare_param(shoal_declaration *declaration,
                                                            const shoal_param_spec *spec);
/* Its global name. Borrowed until the engine is destroyed. */
SHOAL_API const char *shoal_param_name(const shoal_param *param);
/* Shape of the whole, as declared. Borrowed until the engine is destroyed. */
SHOAL_API const shoal_shape *shoal_param_shape(const shoal_param *param);
SHOAL_API int64_t shoal_param_count(const shoal_param *param); /* elements */
/* What of it this rank holds. */
SHOAL_API const shoal_shape *shoal_param_local_shape(const shoal_param *param);

/* ---- layers --------------------------------------------------------------------------------- */

/* The tensors between two layers. A layer reads them and replaces them by its outputs. */
typedef struct shoal_boundary shoal_boundary;
/* How many tensors the layer before has left; 0 for the first layer. */
SHOAL_API int32_t shoal_boundary_count(const shoal_boundary *boundary);
/* The index-th of them. Asking for one that is not there ends the forward pass with SHOAL_EINVAL. */
SHOAL_API shoal_tensor *shoal_boundary_get(shoal_tape *tape, const shoal_boundary *boundary,
                                           int32_t index);
/* Leaves these for the next layer, instead of those that are there. The array is copied. A layer
 * that does not call it passes on what it was given. */
SHOAL_API void shoal_boundary_set(shoal_tape *tape, shoal_boundary *boundary,
                                  shoal_tensor *const *tensors, int32_t count);

/* A kind of layer. The table is borrowed as long as the engine lives. */
typedef struct shoal_layer_type {
    const char *name; /* "gpt_block" */
    shoal_status (*declare)(const void *config, shoal_declaration *declaration);
    void (*forward)(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary);
    void (*reserved[6])(void); /* NULL */
} shoal_layer_type;

/* One layer of a model: the table, its name (prefix of its parameters' names), its configuration
 * (borrowed). */
typedef struct shoal_layer_spec {
    const shoal_layer_type *type;
    const char *name;
    const void *config;
} shoal_layer_spec;

/* The configuration of the layer's spec. Borrowed from the caller of the engine. */
SHOAL_API const void *shoal_layer_config(const shoal_layer *layer);
/* The index-th declared parameter of this layer; NULL when out of range. */
SHOAL_API shoal_param *shoal_layer_param(const shoal_layer *layer, int32_t index);

/* One array of a batch: per sample shape, e.g. {"tokens", SHOAL_I32, shape_1(T)}; the tape sees
 * [B, ...]. */
typedef struct shoal_input_spec {
    const char *name;
    shoal_dtype dtype; /* I32, or F32 (converted to the compute dtype) */
    shoal_shape sample_shape;
    int64_t reserved[2]; /* 0 */
} shoal_input_spec;

/* A model: layers in order; the last one's boundary is exactly one scalar, the mean loss of the
 * micro-batch. The caller owns all arrays and keeps them until the engine is destroyed. */
typedef struct shoal_model {
    const char *name;
    const shoal_layer_spec *layers;
    int32_t layer_count;
    const shoal_input_spec *inputs;
    int32_t input_count;
    int64_t tokens_per_sample; /* for tokens/s; 0: 1 */
    const void *reserved[4];   /* NULL */
} shoal_model;

/* ---- in a forward pass ---------------------------------------------------------------------- */

/* The i-th array of the batch, [B, sample shape]. */
SHOAL_API shoal_tensor *shoal_tape_input(shoal_tape *tape, int32_t index);
/* True while training (dropout active). */
SHOAL_API bool shoal_tape_training(const shoal_tape *tape);
/* True while text is generated: input 0 holds the new tokens of all sequences, [1, R]. Ops that
 * know positions (attention, embedding) then go on where each sequence is. The last layer leaves
 * logits of shoal_generation_rows instead of a loss. */
SHOAL_API bool shoal_tape_generating(const shoal_tape *tape);
/* The rows of x [1, R, C] whose logits are asked for -> [n, C]. */
SHOAL_API shoal_tensor *shoal_generation_rows(shoal_tape *tape, shoal_tensor *x);
/* The type activations are stored in (F32, BF16, F16; F64 in tests). */
SHOAL_API shoal_dtype shoal_tape_dtype(const shoal_tape *tape);

/* Nested scopes name parts of a layer for profiling, recompute and random streams. Layers are
 * scopes by themselves. End lists the tensors that live on; others of the scope are freed unless
 * backward needs them. */
SHOAL_API void shoal_scope_begin(shoal_tape *tape, const char *name);
SHOAL_API void shoal_scope_end(shoal_tape *tape, shoal_tensor *const *outputs,
                               int32_t output_count);

typedef enum shoal_activation {
    SHOAL_ACTIVATION_NONE = 0,
    SHOAL_ACTIVATION_GELU = 1,      /* erf form (torch's default) */
    SHOAL_ACTIVATION_GELU_TANH = 2, /* tanh form (GPT-2, --openai-gelu) */
    SHOAL_ACTIVATION_RELU = 3,
    SHOAL_ACTIVATION_RELU_SQUARED = 4, /* max(x, 0)^2 (--squared-relu) */
    SHOAL_ACTIVATION_SILU = 5          /* x sigmoid(x) */
} shoal_activation;

/* y = act(x w + bias) + residual over the last dim of x. weight is [in, out] (GPT-2's Conv1D
 * layout), or [out, in] when weight_out_in. bias, residual may be NULL. FLOPs 2*R*in*out forward,
 * twice that backward. */
typedef struct shoal_linear_args {
    shoal_param *bias;
    shoal_tensor *residual;
    shoal_activation activation;
    bool weight_out_in;
} shoal_linear_args;
SHOAL_INLINE shoal_tensor *shoal_linear(shoal_tape *tape, shoal_tensor *x, shoal_param *weight,
                                        const shoal_linear_args *args);

/* Products of x with several weights, side by side in the last dim of one tensor [.., sum of out]: q,
 * k and v of separate parameters become the packed qkv of shoal_attention, a gate and what it gates
 * the input of shoal_glu. Backward adds the weights' shares of x's gradient in their order. */
#define SHOAL_LINEARS 3
typedef struct shoal_linears_args {
    shoal_param *weight[SHOAL_LINEARS]; /* the first NULL ends them */
    shoal_param *bias[SHOAL_LINEARS];   /* each may be NULL */
    bool weight_out_in;                 /* they are [out, in], else [in, out] */
} shoal_linears_args;
SHOAL_INLINE shoal_tensor *shoal_linears(shoal_tape *tape, shoal_tensor *x,
                                         const shoal_linears_args *args);

/* ids I32 [..] -> [.., C]: row ids[i] of table [V, C], plus row t of positions [P, C] (NULL: none)
 * for index t of the last dim, or where a generated sequence is. SHOAL_EINVAL when that dim is
 * longer than P; an id outside the table is SHOAL_EINVAL too, at the latest when the step ends. */
SHOAL_API shoal_tensor *shoal_embedding(shoal_tape *tape, shoal_tensor *ids, shoal_param *table,
                                        shoal_param *positions);
/* Over the last dim C of x: (x - mean) / sqrt(variance + eps) * gamma + beta; gamma, beta [C], beta
 * may be NULL. Backward reads x, and keeps two numbers per row. Ba, Kiros, Hinton 2016. */
SHOAL_API shoal_tensor *shoal_layer_norm(shoal_tape *tape, shoal_tensor *x, shoal_param *gamma,
                                         shoal_param *beta, double eps);
/* Over the last dim C of x: x / sqrt(mean of x^2 + eps) * gamma; gamma [C]. Zhang, Sennrich 2019.
 */
SHOAL_API shoal_tensor *shoal_rms_norm(shoal_tape *tape, shoal_tensor *x, shoal_param *gamma,
                                       double eps);

/* Both by one function. gamma_plus_one: the parameter is gamma - 1, so that 0 changes nothing (Gemma;
 * --apply-layernorm-1p). */
typedef struct shoal_norm_args {
    shoal_param *gamma, *beta; /* beta may be NULL */
    double eps;
    bool rms;
    bool gamma_plus_one;
} shoal_norm_args;
SHOAL_INLINE shoal_tensor *shoal_norm(shoal_tape *tape, shoal_tensor *x,
                                      const shoal_norm_args *args);
/* The norm of each query head and each key head of packed qkv by itself, with parameters [D] that all
 * query heads, and all key heads, share; value heads are copied (Dehghani et al. 2023). */
typedef struct shoal_qk_norm_args {
    int64_t heads, kv_heads;                          /* kv_heads 0: heads */
    shoal_param *q_gamma, *q_beta, *k_gamma, *k_beta; /* betas may be NULL */
    double eps;
    bool rms;
    bool gamma_plus_one;
} shoal_qk_norm_args;
SHOAL_INLINE shoal_tensor *shoal_qk_norm(shoal_tape *tape, shoal_tensor *qkv,
                                         const shoal_qk_norm_args *args);

/* Frequencies of rotary positions: inverse_frequency[i] = base^(-2i/rotary_size), i < rotary_size/2,
 * scaled for texts longer than the model has seen. */
typedef enum shoal_rope_scaling {
    SHOAL_ROPE_SCALING_NONE = 0,
    SHOAL_ROPE_SCALING_LINEAR = 1, /* all divided by factor (Chen et al. 2023) */
    SHOAL_ROPE_SCALING_LLAMA3 = 2  /* low ones divided, high ones as they are, a blend between */
} shoal_rope_scaling;
typedef struct shoal_rope_args {
    int64_t rotary_size;
    double base; /* 0: 10000 */
    shoal_rope_scaling scaling;
    double factor; /* of LINEAR and LLAMA3 */
    /* LLAMA3: turns within original_max_position below which a frequency is low, and above which it
     * is high */
    double low_freq_factor, high_freq_factor;
    int64_t original_max_position;
} shoal_rope_args;
#define SHOAL_ROTARY_SIZE_MAX 256
/* SHOAL_EINVAL names what cannot be. inverse_frequency has room for rotary_size / 2 numbers. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_rope_frequencies(const shoal_rope_args *args,
                                                               float *inverse_frequency);
/* Rotary positions (Su et al. 2021): of each query head and key head of packed qkv the first
 * rotary_size elements are turned, pair by pair, by position times inverse_frequency. The position
 * is the index in T, or where a generated sequence is; below 2^20. */
typedef struct shoal_rotary_args {
    int64_t heads, kv_heads; /* kv_heads 0: heads */
    int64_t rotary_size;     /* even, at most D and SHOAL_ROTARY_SIZE_MAX */
    const float *inverse_frequency;
    bool
        interleaved; /* pairs of neighbours; else one of each half (as Hugging Face's files want) */
} shoal_rotary_args;
SHOAL_INLINE shoal_tensor *shoal_rotary(shoal_tape *tape, shoal_tensor *qkv,
                                        const shoal_rotary_args *args);

/* Causal self-attention from packed qkv [B, T, (H + 2*KV) * D] (all q heads, then k heads, then v
 * heads) -> [B, T, H*D]. scale 0: 1/sqrt(D). A position that sees no key gives zeros. */
typedef struct shoal_attention_args {
    int64_t heads, kv_heads; /* kv_heads 0: heads */
    double scale;
    double dropout;
    bool full;      /* not causal */
    int64_t window; /* causal: position t sees (t - window, t]; 0: all before it */
    /* I32 [B], or NULL: of sample b only positions below key_count[b] are seen; the others are
     * padding. */
    shoal_tensor *key_count;
} shoal_attention_args;
SHOAL_INLINE shoal_tensor *shoal_attention(shoal_tape *tape, shoal_tensor *qkv,
                                           const shoal_attention_args *args);

/* dropout(x) + residual (NULL: none); the mask is a function of (seed, step, scope, op, global
 * element). */
SHOAL_API shoal_tensor *shoal_dropout(shoal_tape *tape, shoal_tensor *x, double probability,
                                      shoal_tensor *residual);
/* Mean cross-entropy over the rows whose target is >= 0: logits [.., V], targets I32 [..] ->
 * scalar F32. */
SHOAL_API shoal_tensor *shoal_cross_entropy(shoal_tape *tape, shoal_tensor *logits,
                                            shoal_tensor *targets);
/* shoal_cross_entropy of the logits x weight^T, x [.., C], weight [V, C]: without the logits in
 * memory, a tile of V at a time. Backward computes the product a second time. Its bits are not
 * those of the two ops, because 16-bit logits are not rounded and sums are made per tile. */
SHOAL_API shoal_tensor *shoal_linear_cross_entropy(shoal_tape *tape, shoal_tensor *x,
                                                   shoal_param *weight, shoal_tensor *targets);
/* The same with smoothed labels: of K classes the target is to have probability 1 - label_smoothing,
 * and each other label_smoothing / (K - 1), as Megatron-LM has it (PyTorch's spreads over all K: its
 * label_smoothing of K/(K - 1) times as much is the same). K is the number of classes of the whole,
 * whatever tp is. 0 <= label_smoothing < 1; 0: the bits of the functions above. */
SHOAL_API shoal_tensor *shoal_cross_entropy_smoothed(shoal_tape *tape, shoal_tensor *logits,
                                                     shoal_tensor *targets, double label_smoothing);
SHOAL_API shoal_tensor *shoal_linear_cross_entropy_smoothed(shoal_tape *tape, shoal_tensor *x,
                                                            shoal_param *weight,
                                                            shoal_tensor *targets,
                                                            double label_smoothing);
/* Sum over rows of the squared difference / count -> scalar F32: mean squared error. */
SHOAL_API shoal_tensor *shoal_mse(shoal_tape *tape, shoal_tensor *x, shoal_tensor *target);
/* e^x divided by its sum over the last dim; of x's shape. Backward reads the result. */
SHOAL_API shoal_tensor *shoal_softmax(shoal_tape *tape, shoal_tensor *x);

/* Gated linear unit over the last dim of x [.., 2F]: activation(first half) * second half (Shazeer
 * 2020; SwiGLU with SHOAL_ACTIVATION_SILU). */
SHOAL_API shoal_tensor *shoal_glu(shoal_tape *tape, shoal_tensor *x, shoal_activation activation);
/* x Phi(x); kind SHOAL_ACTIVATION_GELU (erf) or SHOAL_ACTIVATION_GELU_TANH. */
SHOAL_API shoal_tensor *shoal_gelu(shoal_tape *tape, shoal_tensor *x, shoal_activation kind);
/* max(x, 0); the derivative at 0 is 0. */
SHOAL_API shoal_tensor *shoal_relu(shoal_tape *tape, shoal_tensor *x);
/* Hyperbolic tangent. */
SHOAL_API shoal_tensor *shoal_tanh(shoal_tape *tape, shoal_tensor *x);
/* 1 / (1 + e^-x). */
SHOAL_API shoal_tensor *shoal_sigmoid(shoal_tape *tape, shoal_tensor *x);
/* x sigmoid(x). */
SHOAL_API shoal_tensor *shoal_silu(shoal_tape *tape, shoal_tensor *x);
/* e^x. */
SHOAL_API shoal_tensor *shoal_exp(shoal_tape *tape, shoal_tensor *x);
/* Natural logarithm; x > 0. */
SHOAL_API shoal_tensor *shoal_ln(shoal_tape *tape, shoal_tensor *x);
/* Square root; x >= 0. */
SHOAL_API shoal_tensor *shoal_sqrt(shoal_tape *tape, shoal_tensor *x);
/* x^2. */
SHOAL_API shoal_tensor *shoal_square(shoal_tape *tape, shoal_tensor *x);
/* factor * x. */
SHOAL_API shoal_tensor *shoal_scale(shoal_tape *tape, shoal_tensor *x, double factor);
/* x + value. */
SHOAL_API shoal_tensor *shoal_add_scalar(shoal_tape *tape, shoal_tensor *x, double value);
/* a + b, a - b, a * b, a / b, of a's shape; b has it too, or its last dims (broadcast over the
 * leading ones), or one element. Both of one type. */
SHOAL_API shoal_tensor *shoal_add(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b);
SHOAL_API shoal_tensor *shoal_sub(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b);
SHOAL_API shoal_tensor *shoal_mul(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b);
SHOAL_API shoal_tensor *shoal_div(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b);
/* Reduce one dim (dim < 0: from the end; SHOAL_ALL_DIMS: to a scalar, F32 for 16-bit
 * tensors as losses are). */
#define SHOAL_ALL_DIMS 1000
SHOAL_API shoal_tensor *shoal_sum(shoal_tape *tape, shoal_tensor *x, int32_t dim);
SHOAL_API shoal_tensor *shoal_mean(shoal_tape *tape, shoal_tensor *x, int32_t dim);
/* x in another shape of as many elements; copies nothing. */
SHOAL_API shoal_tensor *shoal_reshape(shoal_tape *tape, shoal_tensor *x, shoal_shape shape);
/* Elements [begin, begin + count) of one dim (dim < 0: from the end), copied. */
SHOAL_API shoal_tensor *shoal_slice(shoal_tape *tape, shoal_tensor *x, int32_t dim, int64_t begin,
                                    int64_t count);
/* Tensors that differ in one dim alone, one behind the other along it, copied. */
SHOAL_API shoal_tensor *shoal_concat(shoal_tape *tape, shoal_tensor *const *parts, int32_t count,
                                     int32_t dim);
/* x with two dims exchanged, copied. */
SHOAL_API shoal_tensor *shoal_transpose(shoal_tape *tape, shoal_tensor *x, int32_t dim_a,
                                        int32_t dim_b);
/* The parameter itself as a tensor (for elementwise use). */
SHOAL_API shoal_tensor *shoal_param_tensor(shoal_tape *tape, shoal_param *param);
/* Elements i of x [R, C] selected by I32 row indices [n] (n data-dependent, bound = capacity
 * rows): rows -> [n, C]. */
SHOAL_API shoal_tensor *shoal_gather_rows(shoal_tape *tape, shoal_tensor *x, shoal_tensor *rows);
/* Rows of x [R, C] where mask I32 [R] is nonzero, in order: an op with data-dependent size, 0
 * included; bound R. Synchronises. */
SHOAL_API shoal_tensor *shoal_select_rows(shoal_tape *tape, shoal_tensor *x, shoal_tensor *mask);

/* Collective over `group` in forward and backward. Backward of a sum is a sum of the gradients. */
SHOAL_API shoal_tensor *shoal_all_reduce_sum(shoal_tape *tape, shoal_tensor *x, shoal_group *group);
/* Rows of x [R, C] go to ranks by send_counts[N] (host array, copied; sum = R); the output [sum
 * recv, C] has at most bound_rows rows. Backward is the reverse exchange. Synchronises. */
SHOAL_API shoal_tensor *shoal_all_to_all_rows(shoal_tape *tape, shoal_tensor *x, shoal_group *group,
                                              const int64_t *send_counts, int64_t bound_rows);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_declare_param_sized(shoal_declaration *declaration,
                                                               const shoal_param_spec *spec,
                                                               size_t spec_size);
SHOAL_API shoal_tensor *shoal_linear_sized(shoal_tape *tape, shoal_tensor *x, shoal_param *weight,
                                           const shoal_linear_args *args, size_t args_size);
SHOAL_API shoal_tensor *shoal_linears_sized(shoal_tape *tape, shoal_tensor *x,
                                            const shoal_linears_args *args, size_t args_size);
SHOAL_API shoal_tensor *shoal_norm_sized(shoal_tape *tape, shoal_tensor *x,
                                         const shoal_norm_args *args, size_t args_size);
SHOAL_API shoal_tensor *shoal_qk_norm_sized(shoal_tape *tape, shoal_tensor *qkv,
                                            const shoal_qk_norm_args *args, size_t args_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_rope_frequencies_sized(const shoal_rope_args *args,
                                                                  size_t args_size,
                                                                  float *inverse_frequency);
SHOAL_API shoal_tensor *shoal_rotary_sized(shoal_tape *tape, shoal_tensor *qkv,
                                           const shoal_rotary_args *args, size_t args_size);
SHOAL_API shoal_tensor *shoal_attention_sized(shoal_tape *tape, shoal_tensor *qkv,
                                              const shoal_attention_args *args, size_t args_size);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_declare_param(shoal_declaration *declaration,
                                                            const shoal_param_spec *spec)
{
    return shoal_declare_param_sized(declaration, spec, sizeof *spec);
}
SHOAL_INLINE shoal_tensor *shoal_linear(shoal_tape *tape, shoal_tensor *x, shoal_param *weight,
                                        const shoal_linear_args *args)
{
    return shoal_linear_sized(tape, x, weight, args, sizeof *args);
}
SHOAL_INLINE shoal_tensor *shoal_linears(shoal_tape *tape, shoal_tensor *x,
                                         const shoal_linears_args *args)
{
    return shoal_linears_sized(tape, x, args, sizeof *args);
}
SHOAL_INLINE shoal_tensor *shoal_norm(shoal_tape *tape, shoal_tensor *x,
                                      const shoal_norm_args *args)
{
    return shoal_norm_sized(tape, x, args, sizeof *args);
}
SHOAL_INLINE shoal_tensor *shoal_qk_norm(shoal_tape *tape, shoal_tensor *qkv,
                                         const shoal_qk_norm_args *args)
{
    return shoal_qk_norm_sized(tape, qkv, args, sizeof *args);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_rope_frequencies(const shoal_rope_args *args,
                                                               float *inverse_frequency)
{
    return shoal_rope_frequencies_sized(args, sizeof *args, inverse_frequency);
}
SHOAL_INLINE shoal_tensor *shoal_rotary(shoal_tape *tape, shoal_tensor *qkv,
                                        const shoal_rotary_args *args)
{
    return shoal_rotary_sized(tape, qkv, args, sizeof *args);
}
SHOAL_INLINE shoal_tensor *shoal_attention(shoal_tape *tape, shoal_tensor *qkv,
                                           const shoal_attention_args *args)
{
    return shoal_attention_sized(tape, qkv, args, sizeof *args);
}

#ifdef __cplusplus
}
#endif
#endif
