/* pretrain - what the files of `shoal pretrain` share.
 *
 *   pretrain.c          the run: data, model, engine, loop
 *   pretrain_options.c  Megatron's flags as tables
 *   pretrain_config.c   values that may be given as flag and in ds_config.json: one of both, or the
 * same in both pretrain_eval.c     validation
 */
#ifndef SHOAL_PRETRAIN_H
#define SHOAL_PRETRAIN_H

#include "base/config_table.h"
#include "shoal/comm.h"
#include "shoal/data.h"
#include "shoal/engine.h"
#include "shoal/monitor.h"
#include "shoal/transformer.h"

#include <stdio.h>

/* The flags that ds_config.json may also give; used only where given (`given` bits). */
struct pretrain_shared {
    int64_t micro_batch_size, global_batch_size;
    double lr, weight_decay, adam_beta1, adam_beta2, adam_eps, clip_grad;
    double min_lr, lr_warmup_init, lr_warmup_fraction;
    int64_t lr_warmup_iters, lr_decay_iters;
    const char *lr_decay_style;
    bool bf16, fp16;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct pretrain_options {
    /* model */
    int64_t num_layers, hidden_size, num_attention_heads, seq_length, max_position_embeddings,
        ffn_hidden_size;
    int64_t make_vocab_size_divisible_by;
    double attention_dropout, hidden_dropout, init_method_std, norm_epsilon;
    bool disable_bias_linear, openai_gelu, untie;
    /* data */
    struct shoali_strings recompute_modules;
    const char *recompute_granularity, *recompute_method;
    int64_t recompute_num_layers;
    struct shoali_strings data_path;
    const char *tokenizer_type, *split;
    bool mock_data, full_validation;
    /* run */
    const char *deepspeed_config, *save, *load, *load_tag;
    bool deepspeed, finetune, exit_signal_handler, no_save_optim;
    int64_t train_iters, eval_interval, eval_iters, save_interval, log_interval, seed, threads,
        local_rank;
    uint64_t given[SHOALI_GIVEN_WORDS];

    struct pretrain_shared shared;
    struct shoali_arena arena;
};

/* SHOAL_END: help was asked for and printed. */
SHOAL_CHECKED shoal_status pretrain_options_init(struct pretrain_options *options, int argc,
                                                 char **argv);
void pretrain_options_fini(struct pretrain_options *options);

/* The configuration for the engine: *path (borrowed), and *text (owned, free()) where flags changed
 * it, else NULL. SHOAL_ECONFIG shows both values when flag and file contradict. */
SHOAL_CHECKED shoal_status pretrain_config(const struct pretrain_options *options,
                                           const char **path, char **text);

/* Everything a run holds. */
struct pretrain {
    struct pretrain_options options;
    shoal_group *group;
    shoal_dataset *dataset;
    shoal_tokenizer *stored_tokenizer; /* of the checkpoint to continue */
    shoal_model *model;
    shoal_engine *engine;
    shoal_loader *train, *valid;
    shoal_progress *progress;
    int32_t *tokens, *targets;
    const char **recompute_modules; /* NULL-terminated; NULL: none */
    int64_t train_batch, micro_batch, accumulation;
    int64_t micro_per_step; /* M: global micro-batches of a step */
    char *client_json;
    double final_loss;
};

/* Validation loss and one line about it (rank 0). Collective. */
SHOAL_CHECKED shoal_status pretrain_evaluate(struct pretrain *run, const char *where, double *loss);
/* The batch source over a loader: `user` is this. */
struct pretrain_source {
    struct pretrain *run;
    shoal_loader *loader;
    int64_t per_step; /* global micro-batches the loader has in a step */
};
shoal_status pretrain_next(void *user, int64_t step, int64_t micro, shoal_batch *batch);

#endif
