/* transformer.h - models composed from the ops: GPT-2.
 *
 * A model is made from a plain configuration (Megatron's flag names) as an array of layers
 * {embedding, block 0 ... L-1, head}; the engine, the pipeline cut and the plan see only that
 * array. Parameter names and layouts are those of the Hugging Face GPT-2 files (Conv1D weights are
 * [in, out]), so a checkpoint's model files open there as they are.
 *
 * GPT-2 (Radford et al. 2019): x = wte[token] + wpe[position]; per block x +=
 * proj(attention(ln_1(x))), x += proj(gelu(fc(ln_2(x)))); logits = ln_f(x) wte^T. Initial values:
 * normal(0, init_method_std), the two projections back into the residual stream std/sqrt(2 L),
 * positions and tokens std, norms 1 and 0, biases 0.
 */
#ifndef SHOAL_TRANSFORMER_H
#define SHOAL_TRANSFORMER_H

#include "shoal/autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise, call shoal_gpt_config_defaults, change what you need. */
typedef struct shoal_gpt_config {
    int64_t num_layers, hidden_size, num_attention_heads;
    int64_t seq_length;              /* T of the batches */
    int64_t max_position_embeddings; /* 0: seq_length */
    int64_t ffn_hidden_size;         /* 0: 4 * hidden_size */
    int64_t vocab_size;
    int64_t make_vocab_size_divisible_by; /* rows of wte are padded to a multiple; 1: no padding */
    double attention_dropout, hidden_dropout;
    double init_method_std, norm_epsilon;
    bool add_bias_linear;  /* false: no biases in linear and norm layers */
    bool openai_gelu;      /* tanh form */
    bool untie_embeddings; /* an output matrix of its own: lm_head.weight */
    /* The head and its loss in tiles of the vocabulary (shoal_linear_cross_entropy): no logits in
     * memory, and the head's product once more in backward. */
    bool cross_entropy_loss_fusion;
} shoal_gpt_config;

/* Fills in Megatron's defaults: 4h feed-forward, dropout 0.1, std 0.02, epsilon 1e-5, biases on. */
SHOAL_INLINE void shoal_gpt_config_defaults(shoal_gpt_config *config);
/* Checks the numbers (heads divide hidden, positions >= sequence ...), SHOAL_EINVAL naming the
 * flags, and builds the layers. *model is owned by the caller: shoal_gpt_destroy. Inputs of the
 * model: "tokens" and "targets", I32 [T] per sample. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_gpt_create(const shoal_gpt_config *config,
                                                         shoal_model **model);
SHOAL_API void shoal_gpt_destroy(shoal_model *model);
/* The configuration of a model that shoal_gpt_create made, with what was 0 filled in. */
SHOAL_INLINE void shoal_gpt_get_config(const shoal_model *model, shoal_gpt_config *config);
/* Parameters, and training FLOPs per token (6N + 12 L C T; attention counted full as the field
 * does). */
SHOAL_INLINE int64_t shoal_gpt_param_count(const shoal_gpt_config *config);
SHOAL_INLINE double shoal_gpt_flops_per_token(const shoal_gpt_config *config);
/* The configuration as a JSON object with Megatron's flag names (owned by the caller, free()), and
 * back. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_gpt_config_to_json(const shoal_gpt_config *config,
                                                                 char **json);
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_gpt_config_from_json(const char *json,
                                                                   shoal_gpt_config *config);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API void shoal_gpt_config_defaults_sized(shoal_gpt_config *config, size_t config_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_gpt_create_sized(const shoal_gpt_config *config,
                                                            size_t config_size,
                                                            shoal_model **model);
SHOAL_API void shoal_gpt_get_config_sized(const shoal_model *model, shoal_gpt_config *config,
                                          size_t config_size);
SHOAL_API int64_t shoal_gpt_param_count_sized(const shoal_gpt_config *config, size_t config_size);
SHOAL_API double shoal_gpt_flops_per_token_sized(const shoal_gpt_config *config,
                                                 size_t config_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_gpt_config_to_json_sized(const shoal_gpt_config *config,
                                                                    size_t config_size,
                                                                    char **json);
SHOAL_API SHOAL_CHECKED shoal_status shoal_gpt_config_from_json_sized(const char *json,
                                                                      shoal_gpt_config *config,
                                                                      size_t config_size);

SHOAL_INLINE void shoal_gpt_config_defaults(shoal_gpt_config *config)
{
    shoal_gpt_config_defaults_sized(config, sizeof *config);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_gpt_create(const shoal_gpt_config *config,
                                                         shoal_model **model)
{
    return shoal_gpt_create_sized(config, sizeof *config, model);
}
SHOAL_INLINE void shoal_gpt_get_config(const shoal_model *model, shoal_gpt_config *config)
{
    shoal_gpt_get_config_sized(model, config, sizeof *config);
}
SHOAL_INLINE int64_t shoal_gpt_param_count(const shoal_gpt_config *config)
{
    return shoal_gpt_param_count_sized(config, sizeof *config);
}
SHOAL_INLINE double shoal_gpt_flops_per_token(const shoal_gpt_config *config)
{
    return shoal_gpt_flops_per_token_sized(config, sizeof *config);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_gpt_config_to_json(const shoal_gpt_config *config,
                                                                 char **json)
{
    return shoal_gpt_config_to_json_sized(config, sizeof *config, json);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_gpt_config_from_json(const char *json,
                                                                   shoal_gpt_config *config)
{
    return shoal_gpt_config_from_json_sized(json, config, sizeof *config);
}

#ifdef __cplusplus
}
#endif
#endif
