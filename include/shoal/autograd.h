/* autograd.h - layers, parameters and the ops of a forward pass.
 *
 * The user writes only the forward pass, as layers. The same `forward` runs in training, in
 * evaluation and in meta mode.
 *
 * Terms
 *   layer      a const table {declare, forward}. `declare` names the layer's parameters (global
 *              shape, init rule, tags) before any memory exists. `forward` replaces the boundary
 *              tensors that it gets by those of the next layer.
 *   tape       the record of one forward pass: each op appends a node, and backward visits the
 *              nodes in reverse order.
 *   meta mode  a forward pass that computes shapes only, for plans and arena sizes.
 *
 * Invariants
 *   Errors     An op returns a tensor handle. A failed op poisons the tape and returns NULL. Every
 *              later op on that tape returns NULL and does nothing. The function that ran the
 *              forward pass (shoal_engine_forward) returns the status.
 *   Ownership  Tensor handles are borrowed from the tape and end with it.
 *   Ranks      A function is collective only if its docstring says so.
 *   Threads    A tape belongs to one thread at a time.
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

/* How the ranks of an axis partition a parameter: each rank holds a shard of one dim. A packed
 * matrix (columns of q, k and v, or of the two halves of a gated unit) lists the sizes of its
 * parts. Each part is partitioned separately, in whole units (heads; by default one index). With n
 * units and t ranks the first n mod t ranks hold one unit more. Without a split, all ranks of the
 * axis hold the whole parameter. */
#define SHOAL_SPLIT_PARTS 4
typedef struct shoal_param_split {
    shoal_axes axis; /* SHOAL_AXIS_TP, SHOAL_AXIS_EP; 0: no split */
    int32_t dim;
    int32_t part_count;                                       /* 0: one part, the whole dim */
    int64_t part[SHOAL_SPLIT_PARTS], unit[SHOAL_SPLIT_PARTS]; /* unit 0: 1 */
} shoal_param_split;
#define SHOAL_SPLITS 2

/* Describes a parameter before it has memory. Its global name is "LAYER.NAME". A NAME that begins
 * with "/" is the global name itself (without the "/"). */
typedef struct shoal_param_spec {
    const char *name;  /* e.g. "ln_1.weight"; borrowed for the call */
    shoal_shape shape; /* global */
    shoal_init_kind init;
    double init_a, init_b;
    unsigned tags;  /* SHOAL_PARAM_* */
    double lr_mult; /* 0 means 1 */
    /* Full global name of a parameter that was declared earlier. This declaration is then a second
     * use of that parameter. */
    const char *tied_to;
    shoal_param_split split[SHOAL_SPLITS]; /* of different dims; with tied_to as the primary's */
    /* For more ranks than a part has units (a multiple of the units): the ranks that share a unit
     * divide it in pieces of this many indices, e.g. the heads of a query group. A piece as large
     * as the unit: each of these ranks holds the whole unit, e.g. the group's key and value head.
     * 0: a rank has whole units, or none. */
    int64_t split_fine[SHOAL_SPLITS][SHOAL_SPLIT_PARTS];
} shoal_param_spec;

/* Declares the layer's next parameter. The index of the parameter is the number of earlier
 * declarations of this layer. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_declare_param(shoal_declaration *declaration,
                                                         const shoal_param_spec *spec);
/* Returns the global name. Borrowed until the engine is destroyed. */
SHOAL_API const char *shoal_param_name(const shoal_param *param);
/* Returns the global shape, as declared. Borrowed until the engine is destroyed. */
SHOAL_API const shoal_shape *shoal_param_shape(const shoal_param *param);
SHOAL_API int64_t shoal_param_count(const shoal_param *param); /* elements */
/* Returns the shape of this rank's shard. Borrowed until the engine is destroyed. */
SHOAL_API const shoal_shape *shoal_param_local_shape(const shoal_param *param);

/* ---- layers --------------------------------------------------------------------------------- */

/* The tensors between two layers. A layer reads them and replaces them by its outputs. */
typedef struct shoal_boundary shoal_boundary;
/* Returns how many tensors the previous layer left; 0 for the first layer. */
SHOAL_API int32_t shoal_boundary_count(const shoal_boundary *boundary);
/* Returns the index-th tensor. An index out of range ends the forward pass with SHOAL_EINVAL. */
SHOAL_API shoal_tensor *shoal_boundary_get(shoal_tape *tape, const shoal_boundary *boundary,
                                           int32_t index);
/* Replaces the boundary's tensors by these, for the next layer. The array is copied. A layer that
 * does not call it passes its inputs on. */
SHOAL_API void shoal_boundary_set(shoal_tape *tape, shoal_boundary *boundary,
                                  shoal_tensor *const *tensors, int32_t count);

/* A kind of layer. The table is borrowed as long as the engine exists. */
typedef struct shoal_layer_type {
    const char *name; /* "gpt_block" */
    shoal_status (*declare)(const void *config, shoal_declaration *declaration);
    void (*forward)(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary);
} shoal_layer_type;

/* One layer of a model: the table, its name (the prefix of its parameters' names) and its
 * configuration (borrowed). */
typedef struct shoal_layer_spec {
    const shoal_layer_type *type;
    const char *name;
    const void *config;
} shoal_layer_spec;

/* Returns the `config` of the layer's spec. Borrowed from the caller of the engine. */
SHOAL_API const void *shoal_layer_config(const shoal_layer *layer);
/* Returns the index-th declared parameter of this layer; NULL when out of range. */
SHOAL_API shoal_param *shoal_layer_param(const shoal_layer *layer, int32_t index);

/* One array of a batch, with the shape of one sample, e.g. {"tokens", SHOAL_I32, shape_1(T)}. On
 * the tape it has the shape [B, ...]. */
typedef struct shoal_input_spec {
    const char *name;
    shoal_dtype dtype; /* I32, or F32 (converted to the compute dtype) */
    shoal_shape sample_shape;
} shoal_input_spec;

/* A model: layers in order. The last layer leaves one scalar, the mean loss of the micro-batch. The
 * caller owns all arrays and keeps them until the engine is destroyed. */
typedef struct shoal_model {
    const char *name;
    const shoal_layer_spec *layers;
    int32_t layer_count;
    const shoal_input_spec *inputs;
    int32_t input_count;
    int64_t tokens_per_sample; /* for tokens/s; 0: 1 */
} shoal_model;

/* ---- in a forward pass ---------------------------------------------------------------------- */

/* Returns the index-th array of the batch, [B, sample shape]. */
SHOAL_API shoal_tensor *shoal_tape_input(shoal_tape *tape, int32_t index);
/* Returns true in training (dropout is active). */
SHOAL_API bool shoal_tape_training(const shoal_tape *tape);
/* Returns true during text generation. Input 0 then holds the new tokens of all sequences, [1, R].
 * Ops that depend on positions (attention, embedding) continue at each sequence's position. The
 * last layer leaves the logits of shoal_generation_rows instead of a loss. */
SHOAL_API bool shoal_tape_generating(const shoal_tape *tape);
/* Returns the rows of x [1, R, C] whose logits are requested -> [n, C]. */
SHOAL_API shoal_tensor *shoal_generation_rows(shoal_tape *tape, shoal_tensor *x);
/* Returns the type of stored activations (F32, BF16, F16; F64 in tests). */
SHOAL_API shoal_dtype shoal_tape_dtype(const shoal_tape *tape);

/* Nested scopes name parts of a layer for profiling, recompute and random streams. Each layer is a
 * scope. shoal_scope_end lists the tensors that are used after the scope. Other tensors of the
 * scope are freed unless backward needs them. */
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

/* Computes y = act(x w + bias) + residual over the last dim of x. `weight` is [in, out] (GPT-2's
 * Conv1D layout), or [out, in] with weight_out_in. `bias` and `residual` may be NULL. Cost:
 * 2*R*in*out FLOPs forward, twice that backward. */
typedef struct shoal_linear_args {
    shoal_param *bias;
    shoal_tensor *residual;
    shoal_activation activation;
    bool weight_out_in;
} shoal_linear_args;
SHOAL_API shoal_tensor *shoal_linear(shoal_tape *tape, shoal_tensor *x, shoal_param *weight,
                                     const shoal_linear_args *args);

/* Computes the products of x with several weights. Their results are concatenated in the last dim:
 * [.., sum of out]. The products with q, k and v give the packed qkv of shoal_attention. The
 * products with a gate and its values give the input of shoal_glu. Backward adds the weights'
 * contributions to x's gradient in the order of the weights. */
#define SHOAL_LINEARS 3
typedef struct shoal_linears_args {
    shoal_param *weight[SHOAL_LINEARS]; /* the first NULL ends them */
    shoal_param *bias[SHOAL_LINEARS];   /* each may be NULL */
    bool weight_out_in;                 /* weights are [out, in], else [in, out] */
} shoal_linears_args;
SHOAL_API shoal_tensor *shoal_linears(shoal_tape *tape, shoal_tensor *x,
                                      const shoal_linears_args *args);

/* Looks up ids I32 [..] -> [.., C]: row ids[i] of table [V, C]. Adds row t of positions [P, C]
 * (NULL: none) for index t of the last dim, or for the position of a generated sequence.
 * SHOAL_EINVAL: the last dim is longer than P, or an id is outside the table (reported at the
 * latest when the step ends). */
SHOAL_API shoal_tensor *shoal_embedding(shoal_tape *tape, shoal_tensor *ids, shoal_param *table,
                                        shoal_param *positions);
/* The same with row first_position + t of positions for index t (OPT has two spare rows). */
SHOAL_API shoal_tensor *shoal_embedding_from(shoal_tape *tape, shoal_tensor *ids,
                                             shoal_param *table, shoal_param *positions,
                                             int64_t first_position);
/* Computes (x - mean) / sqrt(variance + eps) * gamma + beta over the last dim C of x. gamma and
 * beta have shape [C]; beta may be NULL. Backward reads x and keeps two numbers per row. Ba, Kiros,
 * Hinton 2016. */
SHOAL_API shoal_tensor *shoal_layer_norm(shoal_tape *tape, shoal_tensor *x, shoal_param *gamma,
                                         shoal_param *beta, double eps);
/* Computes x / sqrt(mean of x^2 + eps) * gamma over the last dim C of x; gamma [C]. Zhang, Sennrich
 * 2019. */
SHOAL_API shoal_tensor *shoal_rms_norm(shoal_tape *tape, shoal_tensor *x, shoal_param *gamma,
                                       double eps);

/* Computes shoal_layer_norm, or with `rms` shoal_rms_norm. With gamma_plus_one the parameter is
 * gamma - 1, so that 0 leaves x unscaled (Gemma; --apply-layernorm-1p). */
typedef struct shoal_norm_args {
    shoal_param *gamma, *beta; /* beta may be NULL; both NULL: gamma is 1 */
    double eps;
    bool rms;
    bool gamma_plus_one;
} shoal_norm_args;
SHOAL_API shoal_tensor *shoal_norm(shoal_tape *tape, shoal_tensor *x, const shoal_norm_args *args);
/* Normalises each query head and each key head of packed qkv separately. All query heads share one
 * set of parameters [D], all key heads another. Value heads are copied (Dehghani et al. 2023). */
typedef struct shoal_qk_norm_args {
    int64_t heads, kv_heads;                          /* kv_heads 0: heads */
    shoal_param *q_gamma, *q_beta, *k_gamma, *k_beta; /* betas may be NULL */
    double eps;
    bool rms;
    bool gamma_plus_one;
} shoal_qk_norm_args;
SHOAL_API shoal_tensor *shoal_qk_norm(shoal_tape *tape, shoal_tensor *qkv,
                                      const shoal_qk_norm_args *args);

/* Frequencies of rotary positions: inverse_frequency[i] = base^(-2i/rotary_size) for i <
 * rotary_size/2. `scaling` changes them for texts longer than the model was trained on. */
typedef enum shoal_rope_scaling {
    SHOAL_ROPE_SCALING_NONE = 0,
    SHOAL_ROPE_SCALING_LINEAR = 1, /* all divided by factor (Chen et al. 2023) */
    SHOAL_ROPE_SCALING_LLAMA3 = 2  /* low ones divided, high ones unchanged, a blend between */
} shoal_rope_scaling;
typedef struct shoal_rope_args {
    int64_t rotary_size;
    double base; /* 0: 10000 */
    shoal_rope_scaling scaling;
    double factor; /* of LINEAR and LLAMA3 */
    /* LLAMA3: number of turns within original_max_position. A frequency with fewer turns than the
     * first is low, one with more turns than the second is high. */
    double low_freq_factor, high_freq_factor;
    int64_t original_max_position;
} shoal_rope_args;
#define SHOAL_ROTARY_SIZE_MAX 256
/* Fills inverse_frequency with rotary_size / 2 numbers. SHOAL_EINVAL names the wrong argument. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_rope_frequencies(const shoal_rope_args *args,
                                                            float *inverse_frequency);
/* Applies rotary positions (Su et al. 2021) to each query head and key head of packed qkv. The
 * first rotary_size elements of a head are rotated in pairs by position * inverse_frequency. The
 * position is the index in T, or the position in a generated sequence. It is below 2^20. */
typedef struct shoal_rotary_args {
    int64_t heads, kv_heads; /* kv_heads 0: heads */
    int64_t rotary_size;     /* even, at most D and SHOAL_ROTARY_SIZE_MAX */
    const float *inverse_frequency;
    /* Pairs are neighbours. Otherwise a pair has one element of each half, as Hugging Face's files
     * expect. */
    bool interleaved;
} shoal_rotary_args;
SHOAL_API shoal_tensor *shoal_rotary(shoal_tape *tape, shoal_tensor *qkv,
                                     const shoal_rotary_args *args);

/* Computes causal self-attention of packed qkv [B, T, (H + 2*KV) * D] (all q heads, then k heads,
 * then v heads) -> [B, T, H*D]. scale 0: 1/sqrt(D). A position that sees no key gives zeros. */
typedef struct shoal_attention_args {
    int64_t heads, kv_heads; /* kv_heads 0: heads */
    double scale;
    double dropout;
    bool full;      /* not causal */
    int64_t window; /* causal: position t sees (t - window, t]; 0: all positions up to t */
    /* I32 [B], or NULL. In sample b only positions below key_count[b] are seen; the rest is
     * padding. */
    shoal_tensor *key_count;
} shoal_attention_args;
SHOAL_API shoal_tensor *shoal_attention(shoal_tape *tape, shoal_tensor *qkv,
                                        const shoal_attention_args *args);

/* Computes dropout(x) + residual (NULL: none). The mask is a function of (seed, step, scope, op,
 * global element). */
SHOAL_API shoal_tensor *shoal_dropout(shoal_tape *tape, shoal_tensor *x, double probability,
                                      shoal_tensor *residual);
/* Computes the mean cross-entropy over the rows whose target is >= 0. logits [.., V], targets I32
 * [..] -> scalar F32. */
SHOAL_API shoal_tensor *shoal_cross_entropy(shoal_tape *tape, shoal_tensor *logits,
                                            shoal_tensor *targets);
/* Computes shoal_cross_entropy of the logits x weight^T with x [.., C] and weight [V, C]. It
 * computes a tile of V at a time and does not store the logits. Backward computes the product a
 * second time. Results differ in the last bits from the two ops, because 16-bit logits are not
 * rounded and sums are computed per tile. */
SHOAL_API shoal_tensor *shoal_linear_cross_entropy(shoal_tape *tape, shoal_tensor *x,
                                                   shoal_param *weight, shoal_tensor *targets);
/* Compute the cross-entropy with smoothed labels. Of K classes the target has probability 1 -
 * label_smoothing and each other class label_smoothing / (K - 1), as in Megatron-LM. PyTorch
 * spreads over all K classes, so its label_smoothing has to be K/(K - 1) times as large. K counts
 * all classes, also when tp partitions them. 0 <= label_smoothing < 1; 0 gives the bits of the
 * unsmoothed functions. */
SHOAL_API shoal_tensor *shoal_cross_entropy_smoothed(shoal_tape *tape, shoal_tensor *logits,
                                                     shoal_tensor *targets, double label_smoothing);
SHOAL_API shoal_tensor *shoal_linear_cross_entropy_smoothed(shoal_tape *tape, shoal_tensor *x,
                                                            shoal_param *weight,
                                                            shoal_tensor *targets,
                                                            double label_smoothing);
/* Computes the mean squared error: the sum of squared differences / count -> scalar F32. */
SHOAL_API shoal_tensor *shoal_mse(shoal_tape *tape, shoal_tensor *x, shoal_tensor *target);
/* Computes e^x divided by its sum over the last dim, in the shape of x. Backward reads the
 * result. */
SHOAL_API shoal_tensor *shoal_softmax(shoal_tape *tape, shoal_tensor *x);

/* Computes a gated linear unit over the last dim of x [.., 2F]: activation(first half) * second
 * half (Shazeer 2020; SwiGLU with SHOAL_ACTIVATION_SILU). */
SHOAL_API shoal_tensor *shoal_glu(shoal_tape *tape, shoal_tensor *x, shoal_activation activation);
/* Computes x Phi(x). `kind` is SHOAL_ACTIVATION_GELU (erf) or SHOAL_ACTIVATION_GELU_TANH. */
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
/* Compute a + b, a - b, a * b, a / b, in the shape of a. The shape of b is the same, or the last
 * dims of it (broadcast over the leading dims), or one element. Both have one type. */
SHOAL_API shoal_tensor *shoal_add(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b);
SHOAL_API shoal_tensor *shoal_sub(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b);
SHOAL_API shoal_tensor *shoal_mul(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b);
SHOAL_API shoal_tensor *shoal_div(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b);
/* Reduce one dim. dim < 0 counts from the end. SHOAL_ALL_DIMS reduces to a scalar, which is F32 for
 * 16-bit tensors, as losses are. */
#define SHOAL_ALL_DIMS 1000
SHOAL_API shoal_tensor *shoal_sum(shoal_tape *tape, shoal_tensor *x, int32_t dim);
SHOAL_API shoal_tensor *shoal_mean(shoal_tape *tape, shoal_tensor *x, int32_t dim);
/* Returns x in another shape with the same number of elements. Copies nothing. */
SHOAL_API shoal_tensor *shoal_reshape(shoal_tape *tape, shoal_tensor *x, shoal_shape shape);
/* Copies elements [begin, begin + count) of one dim (dim < 0: from the end). */
SHOAL_API shoal_tensor *shoal_slice(shoal_tape *tape, shoal_tensor *x, int32_t dim, int64_t begin,
                                    int64_t count);
/* Concatenates copies of tensors along one dim. They differ in this dim only. */
SHOAL_API shoal_tensor *shoal_concat(shoal_tape *tape, shoal_tensor *const *parts, int32_t count,
                                     int32_t dim);
/* Returns a copy of x with two dims exchanged. */
SHOAL_API shoal_tensor *shoal_transpose(shoal_tape *tape, shoal_tensor *x, int32_t dim_a,
                                        int32_t dim_b);
/* Returns the parameter as a tensor, for elementwise use. */
SHOAL_API shoal_tensor *shoal_param_tensor(shoal_tape *tape, shoal_param *param);
/* Gathers rows of x [R, C] by I32 row indices [n] -> [n, C]. n may depend on data; its bound is the
 * capacity of `rows`. */
SHOAL_API shoal_tensor *shoal_gather_rows(shoal_tape *tape, shoal_tensor *x, shoal_tensor *rows);
/* Selects the rows of x [R, C] where mask I32 [R] is nonzero, in order. The result's size depends
 * on data, 0 included; its bound is R. Synchronises. */
SHOAL_API shoal_tensor *shoal_select_rows(shoal_tape *tape, shoal_tensor *x, shoal_tensor *mask);

/* Sums x over the ranks of `group`. Collective over `group` in forward and in backward. Backward
 * sums the gradients. */
SHOAL_API shoal_tensor *shoal_all_reduce_sum(shoal_tape *tape, shoal_tensor *x, shoal_group *group);
/* Sends rows of x [R, C] to ranks: send_counts[N] (host array, copied; the sum is R). The output
 * has the shape [sum of received rows, C] and at most bound_rows rows. Backward is the reverse
 * exchange. Collective over `group` in forward and in backward. Synchronises. */
SHOAL_API shoal_tensor *shoal_all_to_all_rows(shoal_tape *tape, shoal_tensor *x, shoal_group *group,
                                              const int64_t *send_counts, int64_t bound_rows);

#ifdef __cplusplus
}
#endif
#endif
