/* tuning - `shoal run --autotuning tune|run`: which ZeRO stage, micro-batch size and settings of
 * communication train a command's model fastest. DeepSpeed: autotuning/autotuner.py.
 *
 *   tuning.c   the order of what is tried, and the command
 *   space.c    what the configuration leaves open, and what it says of each trial
 *   order.c    which trial of a space comes next
 *   trial.c    one trial: folder, start, end, what it took
 *   results.c  summary, best configuration, best command
 *
 * A TRIAL is the user's own command with another --deepspeed_config, started as `shoal run` with
 * the same flags, one after the other. The section autotuning of its configuration makes the engine
 * measure a few steps, write them to a file and stop (engine/step/profile.c). Whether it fits is
 * not modelled here: `shoal pretrain` plans every run before it allocates, and refuses. So a trial
 * that does not fit costs a start. Checkpoints are not written: --save is left out, and --load
 * where it names the same folder.
 *
 * What is searched. A number in zero_optimization.stage is kept; a list are the stages to try;
 * without it all four are tried, where there are several data-parallel ranks. For each stage sizes
 * of micro-batches: those of a list in train_micro_batch_size_per_gpu; else 1, 2, 4, ... from the
 * number given, until one does not run or brings less than 5 %, then num_tuning_micro_batch_sizes
 * around the best. The batch of a step stays what the user gives, since it belongs to the training:
 * accumulation follows, and sizes that do not divide it are left out. Only a batch that nobody gave
 * grows, up to max_train_batch_size. With "fast": false the best size of a stage is then tried with
 * the knobs of space.c, but for a stage that was slower than the one before.
 *
 * The results' files are DeepSpeed's: in results_dir a folder per trial (ds_config.json, exp.json,
 * cmd.txt, stdout.log, stderr.log, metrics.json), summary.txt, ds_config_optimal.json and
 * cmd_optimal.txt; in exps_dir a file per trial. All hosts of a job must see these folders. */
#ifndef SHOALI_TUNING_H
#define SHOALI_TUNING_H

#include "engine/config/config.h"
#include "launcher/cluster/cluster.h"

enum { SHOALI_KNOBS = 4, SHOALI_KNOB_VALUES = 4, SHOALI_TRIALS_MAX = 2048 };

/* A key of zero_optimization with the values to try. */
struct shoali_knob {
    const char *key, *acronym;
    int32_t first_stage; /* the least that it does anything in */
    int32_t count;
    int64_t value[SHOALI_KNOB_VALUES];
    bool is_bool;
};
struct shoali_trial {
    int32_t stage; /* -1: as the configuration says */
    int64_t micro_batch, accumulation;
    int32_t knob[SHOALI_KNOBS]; /* index of its value, -1: as the configuration says */
    bool over, runs;            /* it has been tried; it was measured */
    int32_t code;               /* its exit code */
    double value, latency_ms;   /* by the metric; of a step */
    char name[96], why[400];    /* why: of one that does not run */
};
struct shoali_tuning {
    const struct shoali_launch_options *options;
    const shoal_launch_args *args;
    struct shoali_arena arena;
    const char *self, *folder;              /* path of this program, current folder */
    struct shoali_text_list flags, program; /* of trials: without what they are not to do */
    struct shoali_json *document;
    struct json_t *root; /* of the user's configuration; borrowed */
    const char *config_path;
    struct shoali_autotuning_config config;
    const char *results_dir, *exps_dir; /* absolute */
    int32_t ranks, data_ranks, hosts;
    int64_t batch;        /* 0: nobody gave one */
    int64_t accumulation; /* ... then this */
    struct shoali_knob knobs[SHOALI_KNOBS];
    int32_t knob_count;
    struct shoali_trial *trial; /* [SHOALI_TRIALS_MAX] */
    int32_t trials, best;       /* best: -1 none yet */
    struct json_t *aio;         /* as `shoal tune io` found it, owned; NULL: not asked for */
    const char *comm_table;     /* of `shoal tune comm`; NULL: none */
    int asked;                  /* a signal that ends the search, 0: none */
};

/* Tunes. *best: the words of the program with the best configuration, in the arena, NULL when a
 * signal ended it. `argv` is the command line of `shoal run`, of which `program` is the end.
 * *exit_code:
 * 128 + the signal. SHOAL_EINVAL, SHOAL_ECONFIG: what is wrong with the command; SHOAL_EIO: nothing
 * ran. */
SHOAL_CHECKED shoal_status shoali_tune(const struct shoali_launch_options *options,
                                       const shoal_launch_args *args,
                                       const struct shoali_strings *flags,
                                       struct shoali_arena *arena, const char *const **best,
                                       int *exit_code);

/* ---- space.c --------------------------------------------------------------------------------- */
/* Reads the configuration and the program's flags. */
SHOAL_CHECKED shoal_status shoali_tuning_read(struct shoali_tuning *tuning);
/* The stages to try, at most 4; a stage of -1: as the configuration says. */
SHOAL_CHECKED shoal_status shoali_tuning_stages(const struct shoali_tuning *tuning,
                                                int32_t stages[4], int32_t *count);
/* The accumulation with micro-batches of this size; 0: the batch cannot be made of them. */
int64_t shoali_tuning_accumulation(const struct shoali_tuning *tuning, int64_t micro_batch);
/* Sizes of the user's list, ascending; count 0: there is no list, and *first is where to begin. */
SHOAL_CHECKED shoal_status shoali_tuning_sizes(const struct shoali_tuning *tuning,
                                               struct shoali_ints *sizes, int64_t *first);
/* The configuration of a trial, owned; `measured`: an experiment, else the result. NULL: no
 * memory. */
struct json_t *shoali_tuning_config(const struct shoali_tuning *tuning,
                                    const struct shoali_trial *trial, bool measured);
/* Takes --NAME and its value out of a program's words. */
void shoali_text_list_drop(struct shoali_text_list *words, const char *name);

/* ---- order.c --------------------------------------------------------------------------------- */
/* The next of the trials [begin, end) that has not been tried, by tuner_type; -1: none is left. */
int32_t shoali_tuning_next(const struct shoali_tuning *tuning, int32_t begin, int32_t end);
/* Whether a is better than b by the metric. */
bool shoali_tuning_better(const struct shoali_tuning *tuning, double a, double b);

/* ---- trial.c --------------------------------------------------------------------------------- */
/* Runs it, or takes what an earlier search measured; says how it went. Errors are of this machine:
 * a trial that does not run is none. */
SHOAL_CHECKED shoal_status shoali_tuning_try(struct shoali_tuning *tuning,
                                             struct shoali_trial *trial);
/* Runs `shoal SUBJECT...` with the job's flags, or (alone) without a job, its output to PATH.log in
 * the results. */
SHOAL_CHECKED shoal_status shoali_tuning_helper(struct shoali_tuning *tuning, const char *name,
                                                const struct shoali_text_list *command, bool *done);
/* The words of a program with that configuration. */
SHOAL_CHECKED shoal_status shoali_tuning_command(const struct shoali_tuning *tuning,
                                                 const struct shoali_trial *trial,
                                                 const char *config_path, bool measured,
                                                 struct shoali_text_list *words);

/* ---- results.c ------------------------------------------------------------------------------- */
/* Writes a value, or a text, to FOLDER/NAME. */
SHOAL_CHECKED shoal_status shoali_tuning_write_json(const char *folder, const char *name,
                                                    const struct json_t *value);
SHOAL_CHECKED shoal_status shoali_tuning_write_text(const char *folder, const char *name,
                                                    const char *text);
/* Summary, best configuration and command. *best: as of shoali_tune. */
SHOAL_CHECKED shoal_status shoali_tuning_results(struct shoali_tuning *tuning,
                                                 struct shoali_arena *arena,
                                                 const char *const **best);

#endif
