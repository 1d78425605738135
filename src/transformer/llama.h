/* llama - the configuration of the decoders of llama.c, and their layer kinds.
 *
 * A row, `llama`, serves the models that grew from Llama: Llama 1-3, Mistral, Qwen 2 and 3, Gemma,
 * what Megatron's flags make of a decoder, and other decoders of the Hub. Parameters have the names
 * of Hugging Face's files (a row of llama_names.c; these are Llama's):
 *
 *   model.embed_tokens.weight [V, C]           model.embed_positions.weight [P, C] if learned
 *   model.layers.N.input_layernorm.weight      .bias with LayerNorm
 *                  self_attn.{q,k,v}_proj.weight [heads D, C]    .bias
 *                  self_attn.{q,k}_norm.weight [D]               .bias with LayerNorm
 *                  self_attn.o_proj.weight [C, H D]              .bias
 *                  post_attention_layernorm.weight
 *                  mlp.gate_proj.weight, mlp.up_proj.weight [F, C], mlp.down_proj.weight [C, F]
 *   model.norm.weight, lm_head.weight [V, C]
 *
 * x = multiplier * embed[token]; per block x += o(attention(rotary(qk_norm(qkv(norm(x)))))), x +=
 * down(act(gate(norm(x))) * up(norm(x))); logits = norm(x) lm_head^T. Without a gate the block is
 * down(act(up(norm(x)))). Parallel residual: both branches read the block's x. Norms behind the
 * branches (--post-layernorm) replace those in front. Initial values: normal(0, init_method_std),
 * o_proj and down_proj std/sqrt(2 L), norms 1 (0 where gamma is stored minus 1), biases 0.
 *
 * Declared splits along tp: q, k, v by heads, gate and up by rows, o and down by columns,
 * embed_tokens and lm_head by vocabulary. One matrix of q, k and v may have its rows sorted by
 * query group (`grouped`); it is split by groups. Its product is gathered, because the ops of
 * attention want all queries first. So are queries and keys with one norm over all heads.
 */
#ifndef SHOALI_TRANSFORMER_LLAMA_H
#define SHOALI_TRANSFORMER_LLAMA_H

#include "transformer/transformer.h"

/* Choices, in the order of their names in llama_model.c. */
enum { SHOALI_POSITIONS_LEARNED, SHOALI_POSITIONS_ROPE, SHOALI_POSITIONS_NONE };
enum { SHOALI_NORM_LAYER, SHOALI_NORM_RMS };

/* A row of llama_names.c. NULL: there is no such parameter in this way of naming. */
struct shoali_llama_names {
    const char *model, *tokens, *positions; /* the layer of the embedding, and its tables */
    const char *blocks;                     /* a block is BLOCKS.N */
    const char *input_norm, *mlp_norm, *post_attention_norm, *post_mlp_norm, *q_norm, *k_norm;
    const char *q, *k, *v, *qkv; /* qkv: one matrix instead of three */
    const char *o, *gate, *up, *gate_up, *down;
    const char *norm, *head;
    bool grouped;            /* rows of qkv: of each group queries, key, value; else as q, k, v */
    int64_t spare_positions; /* rows in front of that of position 0 */
};
/* The words for the rows, NULL-terminated, and the rows. */
extern const char *const shoali_llama_layouts[];
extern const struct shoali_llama_names shoali_llama_names[];

struct shoali_llama_config {
    int64_t num_layers, hidden_size, num_attention_heads, seq_length;
    int64_t max_position_embeddings; /* 0: seq_length */
    int64_t num_query_groups;        /* complete: key and value heads, also without the flag */
    int64_t kv_channels;             /* of a head; 0: hidden_size / num_attention_heads */
    int64_t ffn_hidden_size;         /* 0: of the hidden size */
    int64_t vocab_size, make_vocab_size_divisible_by;
    int64_t window_size, window_attn_skip_freq;
    int64_t position_embedding_type, normalization; /* choices */
    int64_t rope_scaling_original_max_position;
    double rotary_base, rotary_percent, rotary_seq_len_interpolation_factor;
    double rope_scaling_factor, rope_scaling_low_freq_factor, rope_scaling_high_freq_factor;
    double norm_epsilon, init_method_std, attention_dropout, hidden_dropout;
    double embedding_multiplier, label_smoothing;
    double softmax_scale; /* 0: 1/sqrt(kv_channels) */
    double residual_multiplier, logits_multiplier;
    int64_t weight_names, no_rope_freq; /* a choice; each so many-th layer has no rope, 0: none */
    bool use_parallel_residual, shared_input_norm, post_layernorm;
    bool disable_norm_bias, disable_norm_weight, qk_layernorm_whole;
    bool add_mlp_bias, add_lm_head_bias, relu;
    bool group_query_attention, rotary_interleaved, use_rope_scaling;
    bool swiglu, geglu, squared_relu, openai_gelu;
    bool disable_bias_linear, add_qkv_bias, add_attention_output_bias;
    bool qk_layernorm, apply_layernorm_1p, untie_embeddings, cross_entropy_loss_fusion;
    /* set by complete */
    int64_t rotary_size; /* 0: no rotary positions */
    float inverse_frequency[SHOAL_ROTARY_SIZE_MAX / 2];
};

/* Config of a block; the others have a shoali_llama_config, complete. */
struct shoali_llama_block {
    const struct shoali_llama_config *model;
    int64_t window; /* 0: none */
    bool rope;
};
extern const shoal_layer_type shoali_llama_embedding, shoali_llama_block_type, shoali_llama_head;
/* Rows of embed_tokens. */
int64_t shoali_llama_padded_vocab(const struct shoali_llama_config *config);
static inline const struct shoali_llama_names *
shoali_llama_names_of(const struct shoali_llama_config *config)
{
    return &shoali_llama_names[config->weight_names];
}
/* Whether the feed-forward part has a gate. */
static inline bool shoali_llama_gated(const struct shoali_llama_config *config)
{
    return config->swiglu || config->geglu;
}

#endif
