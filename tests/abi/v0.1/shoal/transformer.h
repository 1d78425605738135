/* transformer.h - models by name, composed from the ops.
 *
 *   shoal_model_config_create("gpt2-124m", &config);
 *   shoal_model_config_set(config, "seq-length", 512);
 *   shoal_model_create(config, &model);
 *
 * Models are a table. A row has a name ("gpt"), the options that describe one of its models
 * (Megatron's flag names, with ranges, defaults and a sentence each), models that are known by a
 * name of their own ("gpt2-124m"), and what builds the layers. The `shoal` program knows the table
 * alone: its flags, its plans and what a checkpoint says of its model are the rows' options.
 *
 * A model is an array of layers {embedding, block 0 ... L-1, head}; the engine, the pipeline cut
 * and the plan see only that array. The names of parameters are those in published files (of GPT-2
 * those of Hugging Face; its Conv1D weights are [in, out]), so a checkpoint's model files open
 * there as they are. A model of your own needs none of this: an array of layers is enough
 * (autograd.h).
 *
 * GPT-2 (Radford et al. 2019): x = wte[token] + wpe[position]; per block x +=
 * proj(attention(ln_1(x))), x += proj(gelu(fc(ln_2(x)))); logits = ln_f(x) wte^T. Initial values:
 * normal(0, init_method_std), the two projections back into the residual stream std/sqrt(2 L),
 * positions and tokens std, norms 1 and 0, biases 0.
 *
 * "llama" is every decoder that grew from Llama (Touvron et al. 2023), by Megatron's flags and with
 * Hugging Face's names: Llama, Mistral, Qwen 2 and 3, Gemma. docs/MODELS.md lists both.
 *
 * BERT (Devlin et al. 2018): x = LayerNorm(word[token] + position[t] + type[which text]); per block x
 * = LayerNorm(x + output(attention(x))), x = LayerNorm(x + output(gelu(intermediate(x)))), where
 * attention sees all tokens of the sample; logits = LayerNorm(gelu(transform(x))) word^T + bias, and
 * of the first token two more for the order of the texts. The loss is the sum of both means.
 * --bert-pre-norm is Megatron's: norms before attention and feed-forward, and one behind all. Names
 * are those of Hugging Face's BertForPreTraining and MegatronBertForPreTraining.
 */
#ifndef SHOAL_TRANSFORMER_H
#define SHOAL_TRANSFORMER_H

#include "shoal/autograd.h"
#include "shoal/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the table ------------------------------------------------------------------------------ */

/* Names of the table, and of the models that have one of their own; NULL behind the last. */
SHOAL_API const char *shoal_model_name(int32_t index);
SHOAL_API const char *shoal_model_preset_name(int32_t index);

typedef enum shoal_model_option_type {
    SHOAL_MODEL_INT,
    SHOAL_MODEL_FLOAT,
    SHOAL_MODEL_BOOL,
    SHOAL_MODEL_CHOICE /* one of `choices`; its value is the index, in JSON it is the name */
} shoal_model_option_type;

/* One value that describes a model. All strings are constants. */
typedef struct shoal_model_option {
    const char *name; /* "num-layers": Megatron's flag, and the key in JSON */
    shoal_model_option_type type;
    bool required;                  /* has no default */
    bool lean;                      /* BOOL: the same model in less memory, for more work */
    double default_value, min, max; /* min and max both 0: any */
    const char *flag;               /* BOOL that is true by default: the flag that makes it false */
    const char *unit, *help;        /* unit: may be NULL */
    const char *const *choices;     /* CHOICE: names, and NULL */
    const void *reserved[3];        /* NULL */
} shoal_model_option;

/* Values of all options of one row of the table. */
typedef struct shoal_model_config shoal_model_config;

/* `name`: of the table, with the defaults, or of a known model. *config is owned:
 * shoal_model_config_destroy. SHOAL_EINVAL names the nearest. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_create(const char *name,
                                                               shoal_model_config **config);
SHOAL_API void shoal_model_config_destroy(shoal_model_config *config);           /* NULL is fine */
SHOAL_API const char *shoal_model_config_name(const shoal_model_config *config); /* "gpt" */
/* In the order of help; NULL behind the last. Each model has seq-length and vocab-size. */
SHOAL_API const shoal_model_option *shoal_model_config_option(const shoal_model_config *config,
                                                              int32_t index);
/* SHOAL_EINVAL: no such option, or a value that is out of range or not whole; BOOL: 0 or 1, CHOICE:
 * an index. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_set(shoal_model_config *config,
                                                            const char *name, double value);
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_get(const shoal_model_config *config,
                                                            const char *name, double *value);
/* A CHOICE by its name, in any case: SHOAL_EINVAL lists those that there are. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_set_choice(shoal_model_config *config,
                                                                   const char *name,
                                                                   const char *choice);
/* "12 layers, hidden 768"; returns text. */
SHOAL_API const char *shoal_model_config_describe(const shoal_model_config *config, char *text,
                                                  size_t bytes);
/* As a JSON object {"model_type": "gpt", "num-layers": 12, ...} (owned by the caller, free()), and
 * back: SHOAL_ECORRUPT names what is missing, wrong or not known. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_to_json(const shoal_model_config *config,
                                                                char **json);
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_config_from_json(const char *json,
                                                                  shoal_model_config **config);
/* Batch that benchmarks and documents use of a known model; 1 and its seq-length of others. */
SHOAL_API void shoal_model_config_bench_batch(const shoal_model_config *config,
                                              int64_t *micro_batch, int64_t *seq_length);

/* What its samples are: the kind to ask a loader for. */
SHOAL_API shoal_sample_kind shoal_model_config_samples(const shoal_model_config *config);

/* Checks the values (SHOAL_EINVAL names the flags) and builds the layers. The configuration is
 * copied. *model is owned: shoal_model_destroy. The model's inputs are the first arrays of such
 * samples, all I32: of the next token "tokens" and "targets", [T] per sample. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_create(const shoal_model_config *config,
                                                        shoal_model **model);
/* Of models made by this header; NULL is fine. */
SHOAL_API void shoal_model_destroy(shoal_model *model);
/* Of such a model, with the values that others give filled in; borrowed. */
SHOAL_API const shoal_model_config *shoal_model_get_config(const shoal_model *model);
/* Elements of the parameters that the layers declare, of any model. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_param_count(const shoal_model *model,
                                                             int64_t *count);
/* Of training, of a model made by this header: 6 N, and attention, counted full as the field does.
 */
SHOAL_API SHOAL_CHECKED shoal_status shoal_model_flops_per_token(const shoal_model *model,
                                                                 double *flops);

/* ---- GPT-2 from C --------------------------------------------------------------------------- */

/* The same options as members. Zero-initialise, call shoal_gpt_config_defaults, change what you
 * need. */
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
    /* Of the training loss (shoal_cross_entropy_smoothed), not of evaluation; 0: none. */
    double label_smoothing;
} shoal_gpt_config;

/* 4h feed-forward, dropout 0.1, std 0.02, epsilon 1e-5, biases on, no padding. */
SHOAL_INLINE void shoal_gpt_config_defaults(shoal_gpt_config *config);
/* As shoal_model_create. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_gpt_create(const shoal_gpt_config *config,
                                                         shoal_model **model);
/* The configuration of a GPT-2 that this header made, with what was 0 filled in; zeros for another
 * model. */
SHOAL_INLINE void shoal_gpt_get_config(const shoal_model *model, shoal_gpt_config *config);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API void shoal_gpt_config_defaults_sized(shoal_gpt_config *config, size_t config_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_gpt_create_sized(const shoal_gpt_config *config,
                                                            size_t config_size,
                                                            shoal_model **model);
SHOAL_API void shoal_gpt_get_config_sized(const shoal_model *model, shoal_gpt_config *config,
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

#ifdef __cplusplus
}
#endif
#endif
