/* transformer - models from autograd's ops, and the table by which the program knows them. Level
 * L7.
 *
 *   models.c       the table: a line per model
 *   model.c        what is done with a row: configurations, JSON, making and describing models
 *   gpt_model.c    GPT-2: its row;  gpt.c  its layers
 *   llama_model.c  Llama, Mistral, Qwen, Gemma and other decoders: their row;  llama.c  its layers
 *                  (llama.h);  llama_names.c  names of parameters in published files
 *   bert_model.c   BERT: its row;   bert.c  its layers (bert.h)
 *
 * Only the public autograd interface is used by layers: a model here is what a user could write.
 * docs/EXTENDING.md has a model as a recipe.
 *
 * A ROW says everything that others need to know of a model.
 *   options     Each is a member of the row's own struct, which layers read. They are the flags of
 *               `pretrain`, `plan` and `bench`, and the keys of a checkpoint's description; a row
 *               must have seq-length and vocab-size, which data decides or needs.
 *   presets     configurations with a name of their own
 *   complete    fills in what 0 stands for, and checks what is between options
 *   build       layers and inputs. The name of a parameter, which is its layer's name, a dot, and
 *               its own, or its own alone behind a slash, is its name in files: it is taken from
 *               the published files of the model.
 *   samples     which samples it learns from. A model's inputs are the first arrays of a loader's
 *               samples of this kind, in their order and by their names.
 *   max_length  generation: tokens of a text at most. The layers themselves honour
 *               shoal_tape_generating: the last one leaves logits of shoal_generation_rows.
 */
#ifndef SHOALI_TRANSFORMER_H
#define SHOALI_TRANSFORMER_H

#include "base/base.h"
#include "shoal/transformer.h"

#include <stddef.h>

struct shoali_model_row;

struct shoal_model_config {
    const struct shoali_model_row *row;
    const struct shoali_model_preset *preset; /* that it was made from; NULL: none */
    void *values;                             /* the row's struct */
};

/* One model: what is behind the public handle, which is its address. */
struct shoali_model {
    shoal_model model;
    shoal_model_config config; /* its own; complete */
    struct shoali_arena arena; /* for what `build` makes */
};

/* An option, and the member that holds it: int64_t (also of a choice: its index), double or
 * bool. */
struct shoali_model_option {
    shoal_model_option option;
    size_t offset;
    bool newer; /* configurations stored before there was such an option have the default */
};

struct shoali_model_preset {
    const char *name;
    const void *values;
    int64_t bench_micro_batch, bench_seq_length;
};

struct shoali_model_row {
    const char *name; /* "gpt": the program's word, and model_type in a checkpoint */
    const struct shoali_model_option *options;
    int32_t option_count;
    size_t values_bytes;
    const struct shoali_model_preset *presets;
    int32_t preset_count;
    SHOAL_CHECKED shoal_status (*complete)(void *values);
    /* Fills model->model in from model->config.values, which stay where they are. */
    SHOAL_CHECKED shoal_status (*build)(struct shoali_model *model);
    /* Like snprintf: a few words behind "model: ". */
    void (*describe)(const void *values, char *text, size_t bytes);
    double (*attention_flops)(const void *values); /* of a token, forward and backward; NULL: 0 */
    int64_t (*max_length)(const void *values);     /* NULL: it does not generate */
    shoal_sample_kind (*samples)(const void *values); /* NULL: the next token */
};
#define SHOALI_MODEL_OPTIONS(array) (array), (int32_t)(sizeof(array) / sizeof((array)[0]))
#define SHOALI_MODEL_PRESETS(array) SHOALI_MODEL_OPTIONS(array)

/* NULL-terminated. */
extern const struct shoali_model_row *const shoali_model_rows[];
extern const struct shoali_model_row shoali_model_gpt, shoali_model_llama, shoali_model_bert;

/* A model of `row` from its own struct. */
SHOAL_CHECKED shoal_status shoali_model_create(const struct shoali_model_row *row,
                                               const void *values, shoal_model **model);
/* For `build`: the model of these layers, with inputs "tokens" and "targets" of `length` each. */
SHOAL_CHECKED shoal_status shoali_model_of_tokens(struct shoali_model *made,
                                                  const shoal_layer_spec *layers, int32_t count,
                                                  int64_t length);
/* The first of configs[0..i] that equals configs[i], of `bytes` each, padding included. Blocks of
 * one configuration cost the same: a plan looks at one of them. */
const void *shoali_model_share(const void *configs, int32_t i, size_t bytes);
/* Writes the defaults. */
void shoali_model_defaults(const struct shoali_model_row *row, void *values);

/* head.c: the mean loss of the batch's targets, of x [B, T, C] and the output matrix. Where text is
 * generated, the logits of the rows that are asked for. */
struct shoali_head {
    shoal_param *weight; /* [V, C] */
    shoal_param *bias;   /* [V]; NULL: none. Not with `fused` */
    bool fused;          /* the logits are never stored */
    double label_smoothing;
};
shoal_tensor *shoali_next_token_head(shoal_tape *tape, shoal_tensor *x,
                                     const struct shoali_head *head);

/* The layer kinds of GPT-2, in order of use. Config of a block is a shoali_gpt_block_config, of the
 * others a shoal_gpt_config, complete. */
struct shoali_gpt_block_config {
    const shoal_gpt_config *model;
    double softmax_scale; /* 0: 1/sqrt(channels of a head) */
};
extern const shoal_layer_type shoali_gpt_embedding, shoali_gpt_block, shoali_gpt_head;
/* Rows of wte. */
int64_t shoali_gpt_padded_vocab(const shoal_gpt_config *config);

#endif
