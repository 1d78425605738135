/* pretrain - what the files of `shoal pretrain` share.
 *
 *   pretrain.c          the run: data, model, engine, loop
 *   pretrain_options.c  Megatron's flags as tables
 *   pretrain_data.c     Megatron's flags for data, and the arguments they become
 *   pretrain_known.c    ... and those that are only known
 *   pretrain_config.c   values that may be given as flag and in ds_config.json: one of both, or the
 * same in both
 *   pretrain_hub.c      --load of a folder as the Hugging Face Hub has it: what it says of the model
 *   pretrain_files.c    files of a checkpoint that other programs look for
 *   pretrain_open.c     data, on the stages that read any
 *   pretrain_batch.c    a batch that grows (--rampup-batch-size)
 *   pretrain_eval.c     micro-batches for the engine; validation
 *   pretrain_save.c     checkpoints, and signals that ask for them
 *   pretrain_setup.c    from options to a model and the engine's arguments, also for `shoal plan`
 *   pretrain_plan.c     whether the machine is large enough
 */
#ifndef SHOAL_PRETRAIN_H
#define SHOAL_PRETRAIN_H

#include "base/config_table.h"
#include "mesh_flags.h"
#include "model_flags.h"
#include "shoal/comm.h"
#include "shoal/data.h"
#include "shoal/engine.h"
#include "shoal/monitor.h"
#include "shoal/plan.h"
#include "tokenizer_flags.h"

#include <stdio.h>

/* What flags of pretrain_known.c would be stored in, if they were. */
struct pretrain_known {
    int64_t nothing[2];
};
extern const struct shoali_section pretrain_known_section;

/* The flags that ds_config.json may also give; used only where given (`given` bits). */
struct pretrain_shared {
    int64_t micro_batch_size, global_batch_size;
    double lr, weight_decay, adam_beta1, adam_beta2, adam_eps, clip_grad;
    double min_lr, lr_warmup_init, lr_warmup_fraction;
    int64_t lr_warmup_iters, lr_decay_iters, lr_wsd_decay_iters;
    const char *lr_decay_style, *lr_wsd_decay_style;
    double loss_scale, min_loss_scale;
    int64_t loss_scale_window, hysteresis;
    bool bf16, fp16, async_save;
    int64_t keep_last, save_retain_interval;
    int64_t seed; /* the configuration's where the flag is not given */
    int64_t threads;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
/* Flags of pretrain_data.c. */
struct pretrain_data {
    struct shoali_strings split_path[SHOAL_SPLIT_COUNT], json_keys;
    const char *args_path, *per_split_args_path;
    int32_t order; /* shoal_order */
    double surplus;
    bool eod_mask_loss;
    int64_t eod; /* -1: not given */
    double mask_prob, short_seq_prob;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
extern const struct shoali_section pretrain_data_section;

/* A folder of --load that says which model it has. */
struct pretrain_hub {
    const char *folder; /* of weights alone; NULL: --load has checkpoints, or there is no --load */
    shoal_model_config *config; /* as it says; owned; NULL: the flags say it */
    char said_by[4200];         /* for messages */
};
/* --dist-ckpt-strictness */
enum { PRETRAIN_RAISE_ALL, PRETRAIN_LOG_ALL };

/* --rampup-batch-size; start 0: the batch is always the same. */
struct pretrain_ramp {
    int64_t start, increment, samples;
};

/* --step-batch-size-schedule; count 0: none. */
enum { PRETRAIN_SCHEDULE_MAX = 64 };
struct pretrain_schedule_entry {
    int64_t tokens, samples; /* that were consumed when it begins */
    int64_t batch;
};
struct pretrain_schedule {
    struct pretrain_schedule_entry entry[PRETRAIN_SCHEDULE_MAX];
    int32_t count;
};

struct pretrain_options {
    struct model_flags model;
    struct pretrain_hub hub;
    int64_t seq_length, vocab_size; /* of the model; vocab_size 0: not known yet */
    /* recompute */
    struct shoali_strings recompute_modules;
    const char *recompute_granularity, *recompute_method;
    int64_t recompute_num_layers;
    /* data */
    struct shoali_strings data_path;
    const char *data_cache_path, *split;
    bool mock_data, full_validation;
    struct shoali_strings ramp_words;
    struct pretrain_ramp ramp;
    struct shoali_strings schedule_words;
    struct pretrain_schedule schedule;
    /* run */
    const char *deepspeed_config, *save, *load, *load_tag;
    bool deepspeed, finetune, use_checkpoint_args, no_load_optim, exit_signal_handler,
        exit_on_missing_checkpoint, ignore_plan, override_existing_checkpoint;
    int32_t dist_ckpt_strictness;
    int64_t train_iters, eval_interval, eval_iters, save_interval, log_interval, exit_interval,
        exit_minutes, ckpt_step, local_rank;
    uint64_t given[SHOALI_GIVEN_WORDS];

    struct tokenizer_flags tokenizer;
    struct mesh_flags mesh;
    struct pretrain_data data;
    struct pretrain_shared shared;
    struct pretrain_known known;
    struct shoali_arena arena;
};

/* A subcommand that takes these flags. */
struct pretrain_command {
    const char *name, *usage;          /* name: with the model, for messages */
    const char *model;                 /* of the table, or a known one */
    bool any_model;                    /* no word named it: --load may */
    const struct shoali_section *more; /* flags of its own; NULL none */
    void *more_options;
    bool trains; /* --train-iters and data are required */
};
/* SHOAL_END: help was asked for and printed. */
SHOAL_CHECKED shoal_status pretrain_options_init(struct pretrain_options *options,
                                                 const struct pretrain_command *command, int argc,
                                                 char **argv);
void pretrain_options_fini(struct pretrain_options *options);

/* Looks among the words for a --load whose folder has a config.json, or for --use-checkpoint-args,
 * and reads what it says. */
SHOAL_CHECKED shoal_status pretrain_hub_find(struct pretrain_hub *hub, int argc, char *const *argv);
void pretrain_hub_fini(struct pretrain_hub *hub);
/* The table of the model's flags, with that folder's values. SHOAL_EINVAL: the model that `command`
 * names is another one. */
SHOAL_CHECKED shoal_status pretrain_hub_flags(const struct pretrain_hub *hub,
                                              const struct pretrain_command *command,
                                              struct model_flags *flags,
                                              struct shoali_arena *arena);
/* After parsing: flags that contradict the folder, and what training from it needs. */
SHOAL_CHECKED shoal_status pretrain_hub_check(const struct pretrain_options *options, bool trains);
/* Takes the seed from the configuration where no flag gives one: data is drawn with it before an
 * engine reads the rest. */
SHOAL_CHECKED shoal_status pretrain_take_seed(struct pretrain_options *options);
/* The configuration for the engine: *path (borrowed), and *text (owned, free()) where flags changed
 * it, else NULL. SHOAL_ECONFIG shows both values when flag and file contradict. */
SHOAL_CHECKED shoal_status pretrain_config(const struct pretrain_options *options,
                                           const char **path, char **text);

/* Reads the files that hold words of --data-path, and checks what excludes what. */
SHOAL_CHECKED shoal_status pretrain_data_finish(struct pretrain_options *options,
                                                struct shoali_arena *arena);
/* Files, prefixes or random tokens are given. */
bool pretrain_has_data(const struct pretrain_options *options);
/* What the model learns from. */
shoal_sample_kind pretrain_samples(const struct pretrain_options *options);
/* Completes the arguments of a part's loader, whose batch is set. */
void pretrain_loader_args(const struct pretrain_options *options, shoal_split split,
                          shoal_loader_args *args);
/* The tokenizer of the flags where it is read from files; NULL: byte or char, or random tokens. */
SHOAL_CHECKED shoal_status pretrain_load_tokenizer(const struct pretrain_options *options,
                                                   shoal_tokenizer **tokenizer);
/* `stored`: the tokenizer of the checkpoint to continue, or of files; NULL none. */
shoal_dataset_args pretrain_data_args(const struct pretrain_options *options,
                                      const shoal_tokenizer *stored);
SHOAL_CHECKED shoal_status pretrain_make_model(const struct pretrain_options *options,
                                               int64_t vocab_size, shoal_model **model);
/* The engine's arguments, and what they borrow. */
struct pretrain_setup {
    shoal_engine_args args;
    char *text;
    const char **modules; /* NULL-terminated; NULL: none */
    /* For suggestions: the model with the option that saves memory; NULL: none, or it is given. */
    shoal_model *lean;
    char lean_flag[64];
};
SHOAL_CHECKED shoal_status pretrain_setup_init(struct pretrain_setup *setup,
                                               const struct pretrain_options *options,
                                               const shoal_model *model, shoal_mesh *mesh);
void pretrain_setup_fini(struct pretrain_setup *setup);

/* Everything a run holds. */
struct pretrain {
    struct pretrain_options options;
    shoal_group *group;
    shoal_mesh *mesh;       /* of its ranks */
    bool reads, all_read;   /* this rank's stage opens data; every stage does */
    shoal_dataset *dataset; /* NULL on stages that do not read; loaders, too */
    int64_t vocab_size;     /* of the data */
    bool validates;
    int64_t valid_steps;               /* of a validation */
    shoal_tokenizer *stored_tokenizer; /* of the checkpoint to continue, or of files */
    shoal_model *model;
    shoal_engine *engine;
    shoal_loader *train, *valid;
    shoal_progress *progress;
    int32_t *batch;   /* owned: all arrays of a micro-batch, */
    int32_t **arrays; /* owned: ... and each of them, the model's inputs first */
    int64_t batch_bytes;
    struct pretrain_setup setup;
    shoal_plan plan;
    int64_t train_batch, micro_batch;
    int64_t batch_now;      /* of the next step; 0: not known yet */
    int64_t micro_per_step; /* M: global micro-batches of a step of train_batch samples */
    char *client_json;
    bool found; /* the checkpoint of --load */
    double final_loss;
    bool output_lost;   /* standard output took no line; said once */
    double step_ms;     /* of a usual step */
    int64_t said_saved; /* step of the last save that a line told of, plus 1; 0: none */
    bool asked_in_vain; /* for a save without a folder; said once */
};
bool pretrain_is_first(const struct pretrain *run);
/* In this order, all collective: who does what; the data, after a checkpoint was looked for; loaders,
 * when the engine knows its batch. */
SHOAL_CHECKED shoal_status pretrain_open_mesh(struct pretrain *run);
SHOAL_CHECKED shoal_status pretrain_open_data(struct pretrain *run);
SHOAL_CHECKED shoal_status pretrain_open_loaders(struct pretrain *run);
/* Host memory of the data set here. */
int64_t pretrain_data_bytes(const struct pretrain *run);

/* Three words, or none. SHOAL_EINVAL. */
SHOAL_CHECKED shoal_status pretrain_ramp_read(const struct shoali_strings *words,
                                              struct pretrain_ramp *ramp);
/* Whether it leads to `full` in batches that the ranks can divide; SHOAL_ECONFIG. */
SHOAL_CHECKED shoal_status pretrain_ramp_check(const struct pretrain_ramp *ramp, int64_t full,
                                               int64_t micro, int64_t data_ranks);
/* Entries, in the order of their tokens. SHOAL_EINVAL. */
SHOAL_CHECKED shoal_status pretrain_schedule_read(const struct shoali_strings *words,
                                                  int64_t seq_length,
                                                  struct pretrain_schedule *schedule);
/* As pretrain_ramp_check: the largest is `full`. */
SHOAL_CHECKED shoal_status pretrain_schedule_check(const struct pretrain_schedule *schedule,
                                                   int64_t full, int64_t micro, int64_t data_ranks);
/* Whether steps may have different batches. */
bool pretrain_batch_varies(const struct pretrain_options *options);
/* Samples of a step before which `consumed` were. */
int64_t pretrain_ramp_batch(const struct pretrain_ramp *ramp, int64_t full, int64_t consumed);
/* Before each step: the batch that it has, and what is read ahead for it. */
SHOAL_CHECKED shoal_status pretrain_next_batch(struct pretrain *run, bool *changed);

/* Plans the run; SHOAL_ECONFIG when it does not fit this machine, with what would make it fit.
 * Collective, and before anything large is allocated. */
SHOAL_CHECKED shoal_status pretrain_check_plan(struct pretrain *run);
/* Gives the engine the files that its checkpoints have for other programs; after the model's weights
 * were loaded. */
SHOAL_CHECKED shoal_status pretrain_add_files(struct pretrain *run);
/* One line about planned and used memory. */
void pretrain_show_memory(struct pretrain *run);

/* Validation loss and one line about it (rank 0). Collective. */
SHOAL_CHECKED shoal_status pretrain_evaluate(struct pretrain *run, const char *where, double *loss);
/* Saves, or begins to. Collective. */
SHOAL_CHECKED shoal_status pretrain_save(struct pretrain *run);
/* Whether to save after this step; the same on all ranks. due: by --save-interval. */
bool pretrain_wants_save(struct pretrain *run, bool due);
/* A line about a save that is over. */
void pretrain_say_saved(struct pretrain *run);
/* Waits for what is being saved, and says it. Collective. */
SHOAL_CHECKED shoal_status pretrain_end_saves(struct pretrain *run);
/* SIGUSR1 kills nobody who is not ready yet; from take_signals on it asks the engine for a save, and
 * with --exit-signal-handler SIGTERM to stop. */
void pretrain_expect_signals(void);
void pretrain_take_signals(const struct pretrain *run);
void pretrain_drop_signals(void);
/* Memory for a micro-batch of run->train's arrays. */
SHOAL_CHECKED shoal_status pretrain_make_batch(struct pretrain *run);
void pretrain_free_batch(struct pretrain *run);
/* The batch source over a loader: `user` is this. */
struct pretrain_source {
    struct pretrain *run;
    shoal_loader *loader;
    int64_t per_step; /* global micro-batches the loader has in a step */
};
shoal_status pretrain_next(void *user, int64_t step, int64_t micro, shoal_batch *batch);

#endif
