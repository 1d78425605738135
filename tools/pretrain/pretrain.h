/* pretrain - `shoal pretrain`: a training by Megatron's flags and ds_config.json.
 *
 *   pretrain.c   the run: data, model, engine, loop
 *   options.c    Megatron's flags as tables
 *   data.c       Megatron's flags for data, and the arguments they become
 *   known.c      ... and of Megatron-DeepSpeed, those that are only known
 *   spelling.c   what is asked of that table: the model that flags mean, the help
 *   length.c     the steps of --train-samples and --train-tokens
 *   config.c     values that a flag and ds_config.json may give
 *   lr_schedule.c  the learning-rate schedule that a checkpoint stores
 *   tokenizer.c  the tokenizer: of flags, of the checkpoint, of data files
 *   hub.c        --load of a folder that describes its model
 *   files.c      files of a checkpoint that other programs look for
 *   facts.c      what all ranks must have alike: flags, data
 *   open.c       data, on the stages that read any
 *   order.c      data and order of samples of the checkpoint that a run continues
 *   drawn.c      ... and what that order was made of
 *   batch.c      a batch that grows (--rampup-batch-size)
 *   log.c        Megatron's line about a step
 *   board.c      Megatron's scalars in TensorBoard
 *   eval.c       micro-batches for the engine; validation
 *   save.c       checkpoints
 *   signals.c    signals that ask for a save or an end, and what the run says then
 *   setup.c      from options to a model and the engine's arguments, also for `shoal plan`
 *   plan.c       whether the machine is large enough
 *
 * Terms. A *known* flag is one of Megatron's that is refused, or has no effect here. The *order* of
 * samples says which sample comes when.
 *
 * Invariants. A value that a flag and ds_config.json both give is the same in both. All ranks agree
 * on flags and data before they train. A run is planned before anything large is allocated.
 */
#ifndef SHOAL_PRETRAIN_H
#define SHOAL_PRETRAIN_H

#include "base/config_table.h"
#include "base/str.h"
#include "flags/mesh.h"
#include "flags/model.h"
#include "flags/tokenizer.h"
#include "shoal/comm.h"
#include "shoal/data.h"
#include "shoal/engine.h"
#include "shoal/monitor.h"
#include "shoal/plan.h"

#include <stdio.h>

/* What flags of known.c would be stored in, if they were. */
struct pretrain_known {
    int64_t nothing[2];
};
extern const struct shoali_section pretrain_known_section;
/* Appends one line for each row of that table: the flag, and what happens to it. */
void pretrain_known_help(struct shoali_str *out);

/* The flags that ds_config.json may also give; used only where given (`given` bits). */
struct pretrain_shared {
    int64_t micro_batch_size, global_batch_size;
    double lr, weight_decay, adam_beta1, adam_beta2, adam_eps, clip_grad;
    double min_lr, lr_warmup_init, lr_warmup_fraction;
    int64_t lr_warmup_iters, lr_decay_iters, lr_wsd_decay_iters;
    /* the same by samples or tokens */
    int64_t lr_warmup_samples, lr_decay_samples, lr_wsd_decay_samples;
    int64_t lr_warmup_tokens, lr_decay_tokens;
    const char *lr_decay_style, *lr_wsd_decay_style;
    double loss_scale, min_loss_scale;
    int64_t loss_scale_window, hysteresis;
    bool bf16, fp16, async_save;
    double initial_loss_scale, sgd_momentum;
    const char *optimizer;
    int64_t zero_stage;
    bool use_distributed_optimizer, overlap_grad_reduce, overlap_param_gather;
    int64_t keep_last, save_retain_interval;
    int64_t seed; /* the configuration's where the flag is not given */
    int64_t threads;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
/* Flags of data.c. */
struct pretrain_data {
    struct shoali_strings split_path[SHOAL_SPLIT_COUNT], json_keys;
    const char *args_path, *per_split_args_path;
    int32_t order; /* shoal_order */
    double surplus;
    bool eod_mask_loss, text, files_report;
    int64_t eod; /* -1: not given */
    double mask_prob, short_seq_prob;
    bool strict;
    bool allow_other_tokenizer;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
extern const struct shoali_section pretrain_data_section;

/* A folder of --load that says which model it has. */
struct pretrain_hub {
    const char *folder; /* of weights alone; NULL: --load has checkpoints, or there is no --load */
    bool checkpoint;    /* the description is a checkpoint's */
    shoal_model_config *config; /* as it says; owned; NULL: the flags say it */
    char *client;               /* a checkpoint's client text; owned; NULL: none */
    char source[4200];          /* for messages */
};
/* --log-format; AUTO: Megatron's lines where a flag asks for them */
enum { PRETRAIN_LOG_AUTO, PRETRAIN_LOG_SHOAL, PRETRAIN_LOG_MEGATRON };
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

/* Flags of TensorBoard. */
struct pretrain_board_options {
    const char *dir; /* NULL: none */
    int64_t log_interval;
    bool timers, batch_size, memory, world_size, validation_ppl, no_learning_rate, no_loss_scale;
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
    bool deepspeed, finetune, use_checkpoint_args, use_checkpoint_schedule, override_schedule,
        allow_unknown_config_keys, no_load_optim, exit_signal_handler, exit_on_missing_checkpoint,
        ignore_plan, override_existing_checkpoint, skip_train, no_position_embedding, fp32_residual,
        log_throughput, log_interval_given;
    const char *kill_switch;
    int32_t log_format; /* PRETRAIN_LOG_... */
    int64_t train_samples, train_tokens;
    int64_t full_batch; /* of the flags or the configuration; pretrain_take_length */
    int32_t dist_ckpt_strictness;
    int64_t train_iters, eval_interval, eval_iters, save_interval, log_interval, exit_interval,
        exit_minutes, ckpt_step, local_rank;
    uint64_t given[SHOALI_GIVEN_WORDS];

    struct tokenizer_flags tokenizer;
    struct mesh_flags mesh;
    struct pretrain_data data;
    struct pretrain_shared shared;
    struct pretrain_board_options board;
    struct pretrain_known known;
    struct json_t *schedule_object; /* of the checkpoint, which this run takes; owned; NULL: none */
    struct shoali_arena arena;
};

/* A subcommand that takes these flags. */
struct pretrain_command {
    const char *name, *usage;          /* name: with the model, for messages */
    const char *const *groups;         /* of the short help, in order, then NULL */
    const char *model;                 /* of the table, or a known one */
    bool any_model;                    /* no word named it: --load may */
    bool megatron;                     /* llama with the defaults of Megatron's GPT */
    const struct shoali_section *more; /* flags of its own; NULL none */
    void *more_options;
    bool trains; /* --train-iters and data are required */
};
/* Flags that gpt does not have and llama has make `gpt` the model llama with the defaults of
 * Megatron's GPT, whose program has all of them. */
void pretrain_choose_model(struct pretrain_command *command, int argc, char *const *argv);
/* The words with Megatron's form of --window-size, LEFT,0, in the model's form, LEFT + 1. */
SHOAL_CHECKED shoal_status pretrain_take_windows(int argc, char **argv, struct shoali_arena *arena,
                                                 char ***words);
/* SHOAL_END: help was asked for and printed. */
SHOAL_CHECKED shoal_status pretrain_options_init(struct pretrain_options *options,
                                                 const struct pretrain_command *command, int argc,
                                                 char **argv);
void pretrain_options_fini(struct pretrain_options *options);
/* Calls `visit` with each flag that all ranks must have alike, but for those of the model. */
SHOAL_CHECKED shoal_status pretrain_options_visit(const struct pretrain_options *options,
                                                  void (*visit)(void *user, const char *path,
                                                                const char *value),
                                                  void *user);

/* Looks among the words for --load, and reads what its folder says of its model. SHOAL_ENOENT:
 * there is no checkpoint, and --save does not name the same folder. */
SHOAL_CHECKED shoal_status pretrain_hub_find(struct pretrain_hub *hub, int argc, char *const *argv);
void pretrain_hub_fini(struct pretrain_hub *hub);
/* The table of the model's flags, with that folder's values. SHOAL_EINVAL: the model that `command`
 * names is another one. */
SHOAL_CHECKED shoal_status pretrain_hub_flags(const struct pretrain_hub *hub,
                                              const struct pretrain_command *command,
                                              struct model_flags *flags,
                                              struct shoali_arena *arena);
/* After parsing: flags that contradict the folder, and what training from it needs. */
SHOAL_CHECKED shoal_status pretrain_hub_check(struct pretrain_options *options,
                                              const struct pretrain_command *command);
/* A line on standard error about flags that differ from the checkpoint and may. */
void pretrain_hub_say(const struct pretrain_options *options);
/* The tokenizer that a checkpoint's client text has, owned; NULL: it has none. `folder` is for
 * messages. */
SHOAL_CHECKED shoal_status pretrain_hub_tokenizer(const char *client, const char *folder,
                                                  shoal_tokenizer **tokenizer);
/* Takes the seed from the configuration where no flag gives one: data is drawn with it before an
 * engine reads the rest. */
SHOAL_CHECKED shoal_status pretrain_take_seed(struct pretrain_options *options);
/* Finds --train-iters where the length is given in samples or tokens: when the data-parallel ranks
 * are known, and with them the batch. */
SHOAL_CHECKED shoal_status pretrain_take_length(struct pretrain_options *options,
                                                int64_t data_ranks);
/* The document of --deepspeed_config, or an empty one, which flags fill. */
struct shoali_json;
SHOAL_CHECKED shoal_status pretrain_load_config(const struct pretrain_options *options,
                                                struct shoali_json **document);
/* The configuration for the engine: *path (borrowed), and *text (owned, free()) where flags changed
 * it, else NULL. SHOAL_ECONFIG shows both values when flag and file contradict. */
SHOAL_CHECKED shoal_status pretrain_config(const struct pretrain_options *options,
                                           const char **path, char **text);

/* With --use-checkpoint-opt_param-scheduler: keeps the schedule of the checkpoint's client text,
 * NULL if it has none, for pretrain_config. SHOAL_EINVAL: it stores none. */
SHOAL_CHECKED shoal_status pretrain_lr_schedule_read(struct pretrain_options *options,
                                                     const char *client);
/* Puts that schedule in place of the configuration's. */
SHOAL_CHECKED shoal_status pretrain_lr_schedule_apply(const struct pretrain_options *options,
                                                      struct json_t *root, bool *changed);
/* Appends the object that a checkpoint stores. `text` is pretrain_config's. */
SHOAL_CHECKED shoal_status pretrain_lr_schedule_write(const struct pretrain_options *options,
                                                      const char *text, struct shoali_str *out);

/* Reads the files that hold words of --data-path, and checks what excludes what. */
SHOAL_CHECKED shoal_status pretrain_data_finish(struct pretrain_options *options,
                                                struct shoali_arena *arena);
/* A flag asks for validation. --eval-iters, which has a default, only says how much. */
bool pretrain_asks_validation(const struct pretrain_options *options);
/* Files, prefixes or random tokens are given. */
bool pretrain_has_data(const struct pretrain_options *options);
/* What the model learns from. */
shoal_sample_kind pretrain_samples(const struct pretrain_options *options);
/* Completes the arguments of a part's loader, whose batch is set. */
void pretrain_loader_args(const struct pretrain_options *options, shoal_split split,
                          shoal_loader_args *args);
/* A tokenizer, and where it comes from for sentences. */
struct pretrain_tokenizer {
    shoal_tokenizer *tokenizer; /* owned; NULL: byte or char by name, or as the data say */
    char source[300];
    int32_t mock_vocab_size; /* of --mock-data with flags of a tokenizer; 0: none */
};
/* Completes the tokenizer of the checkpoint, NULL if it has none, with those of flags and folder.
 * `compares`: refuses flags that name another one; one rank does. */
SHOAL_CHECKED shoal_status pretrain_choose_tokenizer(const struct pretrain_options *options,
                                                     bool compares, struct pretrain_tokenizer *own);
/* `own` is borrowed as long as the arguments. */
shoal_dataset_args pretrain_data_args(const struct pretrain_options *options,
                                      const struct pretrain_tokenizer *own);
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

/* What the checkpoint that a run continues says of its data (order.c). */
struct pretrain_order {
    int64_t *samples; /* as shoal_loader_order; owned; NULL: none */
    int32_t count;
};
/* drawn.c */
struct pretrain_drawn {
    struct json_t *order; /* owned; NULL: not known */
    char *batches;        /* owned; NULL: not known */
};
struct pretrain_stored {
    bool known;
    uint64_t fingerprint;
    struct pretrain_order order[2]; /* training, validation */
    struct pretrain_drawn drawn;
    bool forgotten; /* the order; a line has told it */
};

/* The steps since Megatron's last line. */
struct pretrain_interval {
    int64_t steps, skipped, nan;
    double loss, ms, samples; /* sums; of the loss without skipped and NaN ones */
};

/* Everything a run holds. */
struct pretrain {
    struct pretrain_options options;
    shoal_group *group;
    shoal_mesh *mesh;                    /* of its ranks */
    bool reads, all_read;                /* this rank's stage opens data; every stage does */
    shoal_dataset *dataset;              /* NULL on stages that do not read; loaders, too */
    int64_t vocab_size;                  /* of the data */
    bool validates, too_few;             /* too_few: validation has no sample, */
    int64_t valid_tokens;                /* ... but so many tokens */
    int64_t valid_steps;                 /* of a validation */
    struct pretrain_tokenizer tokenizer; /* of the checkpoint to continue, or of files */
    struct pretrain_stored stored;
    shoal_model *model;
    shoal_engine *engine;
    shoal_loader *train, *valid;
    shoal_progress *progress;
    shoal_monitor *board; /* NULL: none */
    int32_t *batch;       /* owned: all arrays of a micro-batch, */
    int32_t **arrays;     /* owned: ... and each of them, the model's inputs first */
    int64_t batch_bytes;
    struct pretrain_setup setup;
    shoal_plan plan;
    int64_t train_batch, micro_batch;
    int64_t batch_now;      /* of the next step; 0: not known yet */
    int64_t micro_per_step; /* M: global micro-batches of a step of train_batch samples */
    char *client_json;
    bool found;       /* the checkpoint of --load */
    bool made_folder; /* --save, of which the first bytes were there: */
    size_t made_from;
    double final_loss;
    int output_error; /* errno of standard output, which took no line; said once; 0: none */
    double step_ms;   /* of a usual step */
    struct pretrain_interval interval;
    int64_t reported_saved; /* step of the last save that a line told of, plus 1; 0: none */
    bool asked_in_vain;     /* for a save without a folder; said once */
};
bool pretrain_is_first(const struct pretrain *run);
/* Collective, in this order: the mesh; the data, after the checkpoint was searched; the loaders,
 * when the engine knows its batch and the consumed samples. */
SHOAL_CHECKED shoal_status pretrain_open_mesh(struct pretrain *run);
/* Collective: before the mesh; when the data are open. SHOAL_ECONFIG names what differs. */
SHOAL_CHECKED shoal_status pretrain_agree_flags(const struct pretrain *run);
SHOAL_CHECKED shoal_status pretrain_agree_data(const struct pretrain *run);
SHOAL_CHECKED shoal_status pretrain_open_data(struct pretrain *run);
SHOAL_CHECKED shoal_status pretrain_open_loaders(struct pretrain *run);
/* Host memory of the data set here. */
int64_t pretrain_data_bytes(const struct pretrain *run);

/* From the checkpoint's client text; to it, as an object. */
SHOAL_CHECKED shoal_status pretrain_stored_read(struct pretrain *run, const char *client);
SHOAL_CHECKED shoal_status pretrain_stored_write(const struct pretrain *run,
                                                 struct shoali_str *out);
void pretrain_stored_fini(struct pretrain_stored *stored);
/* When the data are open: a line where they are not the checkpoint's; with --strict-data
 * SHOAL_EINVAL. */
SHOAL_CHECKED shoal_status pretrain_stored_check(struct pretrain *run);
/* When the engine is loaded: completes the arguments of pretrain_loader_args. */
void pretrain_order_args(const struct pretrain *run, shoal_split split, shoal_loader_args *args);
/* When the loaders are open: a line where their order is not that of the checkpoint alone. */
void pretrain_order_say(const struct pretrain *run);
/* Other samples than the checkpoint's: their order begins anew. */
void pretrain_order_forget(struct pretrain_stored *stored);

/* From `data` of the client text, to it, as members behind others. */
SHOAL_CHECKED shoal_status pretrain_drawn_read(struct pretrain_drawn *drawn,
                                               const struct json_t *data);
SHOAL_CHECKED shoal_status pretrain_drawn_write(const struct pretrain *run, bool ordered,
                                                struct shoali_str *out);
void pretrain_drawn_fini(struct pretrain_drawn *drawn);
/* A line for each number that is not the checkpoint's; forgets the order where it cannot go on.
 * With --strict-data SHOAL_EINVAL. */
SHOAL_CHECKED shoal_status pretrain_drawn_check(struct pretrain *run);
/* With which the run's order is made: the checkpoint's, where its order goes on. */
uint64_t pretrain_drawn_seed(const struct pretrain *run);
double pretrain_drawn_surplus(const struct pretrain *run);

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
/* Without a batch of the flags or the configuration the largest entry is the full batch, as in
 * Megatron, which refuses --global-batch-size beside a schedule. */
SHOAL_CHECKED shoal_status pretrain_schedule_take_batch(struct pretrain_options *options);
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
/* Gives the engine the files that its checkpoints have for other programs. Call it after the
 * model's weights were loaded. */
SHOAL_CHECKED shoal_status pretrain_add_files(struct pretrain *run);
/* Puts what the plan says before the sentence of a run that is out of memory. The status. */
shoal_status pretrain_tell_plan(const struct pretrain *run, shoal_status status);
/* board.c: after the progress line is there. */
SHOAL_CHECKED shoal_status pretrain_open_board(struct pretrain *run);
SHOAL_CHECKED shoal_status pretrain_board_step(struct pretrain *run, const shoal_step_info *info);
SHOAL_CHECKED shoal_status pretrain_board_validation(struct pretrain *run, double loss);
/* One line about planned and used memory. */
void pretrain_show_memory(struct pretrain *run);

/* Whether Megatron's lines are wanted. */
bool pretrain_logs_megatron(const struct pretrain_options *options);
/* After each step: prints Megatron's line every --log-interval steps, and after the run's first. */
void pretrain_log_step(struct pretrain *run, const shoal_step_info *info, bool first);
/* Validation loss and one line about it (rank 0). Collective. */
SHOAL_CHECKED shoal_status pretrain_evaluate(struct pretrain *run, const char *where, double *loss);
/* Saves, or begins to. Collective. */
SHOAL_CHECKED shoal_status pretrain_save(struct pretrain *run);
/* Whether to save after this step; the same on all ranks. due: by --save-interval. */
bool pretrain_wants_save(struct pretrain *run, bool due);
/* A line about a save that is over. */
void pretrain_say_saved(struct pretrain *run);
/* Before anything is trained: makes --save and finds out whether it can be written. */
SHOAL_CHECKED shoal_status pretrain_make_folder(struct pretrain *run);
/* At the end: takes back what is empty of it. */
void pretrain_drop_folder(const struct pretrain *run);
/* Waits for what is being saved, and says it. Collective. */
SHOAL_CHECKED shoal_status pretrain_end_saves(struct pretrain *run);
/* SIGUSR1 kills no rank that is not ready yet, and a run of one rank that SIGINT or SIGTERM ends
 * says what it has saved. From take_signals on SIGUSR1 asks the engine for a save, and with
 * --exit-signal-handler SIGINT, SIGTERM and SIGHUP ask it to stop. */
void pretrain_expect_signals(void);
void pretrain_take_signals(const struct pretrain *run);
void pretrain_drop_signals(void);
/* At the end of a run that a signal has stopped: what it has saved, and the command that
 * continues. */
void pretrain_say_stopped(const struct pretrain *run);
/* Memory for a micro-batch of run->train's arrays. */
SHOAL_CHECKED shoal_status pretrain_make_batch(struct pretrain *run);
void pretrain_free_batch(struct pretrain *run);
/* The batch source over a loader: `user` is this. */
struct pretrain_source {
    struct pretrain *run;
    shoal_loader *loader;
};
shoal_status pretrain_next(void *user, int64_t step, int64_t micro, shoal_batch *batch);

#endif
