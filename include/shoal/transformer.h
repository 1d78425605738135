/* transformer.h - builds models by name from a table.
 *
 *   shoal_model_config_create("gpt2-124m", &config);
 *   shoal_model_config_set(config, "seq-length", 512);
 *   shoal_model_create(config, &model);
 *
 * A row of the table has a name ("gpt"), options (Megatron's flag names, with ranges, defaults and
 * help), presets ("gpt2-124m"), and a function that builds the layers. Flags, plans and checkpoints
 * of the `shoal` program use this table. A model of your own does not need it: an array of layers
 * is enough (autograd.h).
 *
 * A model is an array of layers {embedding, block 0 ... L-1, head}. The engine, the pipeline
 * partition and the plan see only this array. Parameters have the names of published files, so
 * other programs open a checkpoint's model files without conversion.
 *
 *   gpt    GPT-2 (Radford et al. 2019), with Hugging Face's names; Conv1D weights are [in, out].
 *          x = wte[token] + wpe[position]; per block x += proj(attention(ln_1(x))),
 *          x += proj(gelu(fc(ln_2(x)))); logits = ln_f(x) wte^T.
 *          Initial values: normal(0, init_method_std), the two projections back into the residual
 *          stream std/sqrt(2 L), positions and tokens std, norms 1 and 0, biases 0.
 *   llama  decoders that grew from Llama (Touvron et al. 2023), with Megatron's flags and Hugging
 *          Face's names: Llama, Mistral, Qwen 2 and 3, Gemma. docs/MODELS.md lists both.
 *   bert   BERT (Devlin et al. 2018), with the names of Hugging Face's BertForPreTraining and
 *          MegatronBertForPreTraining. Attention sees all tokens of the sample.
 *          x = LayerNorm(word[token] + position[t] + type[which text]);
 *          per block x = LayerNorm(x + output(attention(x))),
 *          x = LayerNorm(x + output(gelu(intermediate(x))));
 *          logits = LayerNorm(gelu(transform(x))) word^T + bias, and two logits of the first token
 *          for the order of the texts. The loss is the sum of both means. --bert-pre-norm is
 *          Megatron's: norms before attention and feed-forward, and one norm after all blocks.
 */
#ifndef SHOAL_TRANSFORMER_H
#define SHOAL_TRANSFORMER_H

#include "shoal/autograd.h"
#include "shoal/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the table ------------------------------------------------------------------------------ */

/* Return the index-th name of the table, and the index-th preset; NULL beyond the last. */
SHOAL_API const char *shoal_model_name(int32_t index);
SHOAL_API const char *shoal_model_preset_name(int32_t index);

typedef enum shoal_model_option_type {
    SHOAL_MODEL_INT,
    SHOAL_MODEL_FLOAT,
    SHOAL_MODEL_BOOL,
    SHOAL_MODEL_CHOICE /* one of `choices`; the value is its index, in JSON its name */
} shoal_model_option_type;

/* One value that describes a model. All strings are constants. */
typedef struct shoal_model_option {
    const char *name; /* "num-layers": Megatron's flag, and the key in JSON */
    shoal_model_option_type type;
    bool required;                  /* has no default */
    bool lean;                      /* BOOL: the same model with less memory and more work */
    double default_value, min, max; /* min and max both 0: any */
    const char *flag;               /* BOOL with default true: the flag that makes it false */
    const char *unit, *help;        /* unit: may be NULL */
    const char *const *choices;     /* CHOICE: names, and NULL */
} shoal_model_option;

/* The values of all options of one row of the table. */
typedef struct shoal_model_config shoal_model_config;

/* Creates a configuration. `name` is a row of the table, with its defaults, or a preset. *config is
 * owned by the caller: shoal_model_config_destroy. SHOAL_EINVAL: there is no such name; the text
 * names the nearest one. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_create(const char *name,
                                                               shoal_model_config **config);
SHOAL_API void shoal_model_config_destroy(shoal_model_config *config);           /* NULL is fine */
SHOAL_API const char *shoal_model_config_name(const shoal_model_config *config); /* "gpt" */
/* Returns the index-th option in the order of the help; NULL beyond the last. Each model has
 * seq-length and vocab-size. */
SHOAL_API const shoal_model_option *shoal_model_config_option(const shoal_model_config *config,
                                                              int32_t index);
/* Set or get an option. BOOL: 0 or 1; CHOICE: an index. SHOAL_EINVAL: there is no such option, or
 * the value is out of range or not whole. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_set(shoal_model_config *config,
                                                            const char *name, double value);
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_get(const shoal_model_config *config,
                                                            const char *name, double *value);
/* Sets a CHOICE by name, in upper or lower case. SHOAL_EINVAL lists the choices. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_set_choice(shoal_model_config *config,
                                                                   const char *name,
                                                                   const char *choice);
/* Formats a short description: "12 layers, hidden 768". Returns `text`. */
SHOAL_API const char *shoal_model_config_describe(const shoal_model_config *config, char *text,
                                                  size_t bytes);
/* Convert to and from a JSON object {"model_type": "gpt", "num-layers": 12, ...}. *json is owned by
 * the caller: free(). SHOAL_ECORRUPT names what is missing, wrong or unknown. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_to_json(const shoal_model_config *config,
                                                                char **json);
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_from_json(const char *json,
                                                                  shoal_model_config **config);
/* Returns the batch that benchmarks and docs use for a preset. Other models: 1 and their
 * seq-length. */
SHOAL_API void shoal_model_config_bench_batch(const shoal_model_config *config,
                                              int64_t *micro_batch, int64_t *seq_length);

/* Returns the kind of samples that the model needs from a loader. */
SHOAL_API shoal_sample_kind shoal_model_config_samples(const shoal_model_config *config);

/* Checks the values and builds the layers. The configuration is copied. *model is owned by the
 * caller: shoal_model_destroy. The model's inputs are the first arrays of its kind of samples, all
 * I32. For the next token they are "tokens" and "targets", [T] per sample. SHOAL_EINVAL names the
 * flags. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_create(const shoal_model_config *config,
                                                        shoal_model **model);
/* Destroys a model that this header made. NULL is fine. */
SHOAL_API void shoal_model_destroy(shoal_model *model);
/* Returns the configuration of a model that this header made, with its derived values filled in.
 * Borrowed. */
SHOAL_API const shoal_model_config *shoal_model_get_config(const shoal_model *model);
/* Counts the elements of the parameters that the layers of any model declare. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_param_count(const shoal_model *model,
                                                             int64_t *count);
/* Computes the FLOPs of training per token, for a model that this header made: 6 N plus attention.
 * Attention is counted without a causal mask, as is usual. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_flops_per_token(const shoal_model *model,
                                                                 double *flops);

/* ---- GPT-2 from C --------------------------------------------------------------------------- */

/* The same options as members. Zero-initialise, call shoal_gpt_config_defaults, then change
 * members. */
typedef struct shoal_gpt_config {
    int64_t num_layers, hidden_size, num_attention_heads;
    int64_t seq_length;              /* T, tokens of a sample */
    int64_t max_position_embeddings; /* 0: seq_length */
    int64_t ffn_hidden_size;         /* 0: 4 * hidden_size */
    int64_t vocab_size;
    int64_t make_vocab_size_divisible_by; /* rows of wte are padded to a multiple; 1: no padding */
    double attention_dropout, hidden_dropout;
    double init_method_std, norm_epsilon;
    bool add_bias_linear;  /* false: no biases in linear and norm layers */
    bool openai_gelu;      /* tanh form */
    bool untie_embeddings; /* separate output matrix: lm_head.weight */
    /* Compute the head and its loss in tiles of the vocabulary (shoal_linear_cross_entropy). Logits
     * are not stored, and backward computes the head's product once more. */
    bool cross_entropy_loss_fusion;
    /* Of the training loss (shoal_cross_entropy_smoothed), not of evaluation. 0: none. */
    double label_smoothing;
    bool relu; /* max(x, 0) instead of GELU */
    /* Attention scores of layer i, from 0, are divided by i + 1. */
    bool scale_attn_by_inverse_layer_idx;
} shoal_gpt_config;

/* Fills the defaults: 4h feed-forward, dropout 0.1, std 0.02, epsilon 1e-5, biases on, no
 * padding. */
SHOAL_API void shoal_gpt_config_defaults(shoal_gpt_config *config);
/* Builds a GPT-2, as shoal_model_create. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_gpt_create(const shoal_gpt_config *config,
                                                      shoal_model **model);
/* Returns the configuration of a GPT-2 that this header made, with its derived values; zeros for
 * another model. */
SHOAL_API void shoal_gpt_get_config(const shoal_model *model, shoal_gpt_config *config);

#ifdef __cplusplus
}
#endif
#endif
