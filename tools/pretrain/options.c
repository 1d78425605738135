/* Megatron's flags for `shoal pretrain`; those of the model come from the library. */
#include "pretrain/pretrain.h"

#include "base/log.h"
#include "flags/flags.h"
#include "tool.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct pretrain_options, key, type, member, __VA_ARGS__)
#define SHARED_OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct pretrain_shared, key, type, member, __VA_ARGS__)
#define REQUIRED .flags = SHOALI_OPTION_REQUIRED

/* Groups of the help; those of other tables are model, data, tokenizer and parallelism. */
#define DATA "data"
#define TRAINING "training"
#define OPTIMIZER "optimizer"
#define PRECISION "precision"
#define VALIDATION "validation"
#define CHECKPOINT "checkpoint"
#define MEMORY "memory"
#define LOGGING "logging"

static const char *const strictness[] = {"raise_all", "log_all", NULL};
static const char *const log_formats[] = {"auto", "shoal", "megatron", NULL};

#define BOARD(key, member, text)                                                      \
    OPTION(key, BOOL, board.member, .group = LOGGING, .flags = SHOALI_OPTION_BY_RANK, \
           .help = "write " text " there, too")

static const struct shoali_option rows[] = {
    OPTION("data-path", STRINGS, data_path, .group = DATA,
           .flags = SHOALI_OPTION_COMMON | SHOALI_OPTION_BY_RANK,
           .help =
               "text files or folders, *.jsonl files, or prefixes of Megatron's data files "
               "(PREFIX.bin and PREFIX.idx); several prefixes may be a blend: WEIGHT PREFIX WEIGHT "
               "PREFIX ..."),
    OPTION(
        "data-cache-path", STRING, data_cache_path, .group = DATA, .flags = SHOALI_OPTION_BY_RANK,
        .help =
            "folder that keeps the tokens of the text, or the index maps of data files; default: "
            ".shoal-cache in the folder of the data; where that cannot be written, a folder of "
            "yours below XDG_CACHE_HOME or /var/tmp"),
    OPTION("split", STRING, split, .group = DATA,
           .help = "weights of the training, validation and test parts; default: 90,10 for text, "
                   "969,30,1 for data files"),
    OPTION("mock-data", BOOL, mock_data, .group = DATA, .flags = SHOALI_OPTION_COMMON,
           .help = "train on random tokens instead of data"),

    OPTION("deepspeed_config", STRING, deepspeed_config, .group = TRAINING,
           .alias = "deepspeed-config", .flags = SHOALI_OPTION_COMMON | SHOALI_OPTION_BY_RANK,
           .help = "JSON file: batch sizes, optimizer, precision, ZeRO; else by flags"),
    OPTION("deepspeed", BOOL, deepspeed, .group = TRAINING,
           .help = "accepted for compatibility; always on"),
    OPTION("train-iters", INT, train_iters, .group = TRAINING, .min = 0, .max = 1e15,
           .unit = "steps", .flags = SHOALI_OPTION_COMMON | SHOALI_OPTION_NO_DEFAULT,
           .help = "steps of the whole training; or give --train-samples"),
    OPTION("train-samples", INT, train_samples, .group = TRAINING, .min = 1, .max = 1e15,
           .unit = "samples",
           .help = "samples of the whole training, instead of --train-iters; a remainder smaller "
                   "than a batch is left out"),
    OPTION("train-tokens", INT, train_tokens, .group = TRAINING, .min = 1, .max = 1e18,
           .unit = "tokens",
           .help = "end the training with the step that reaches this number of tokens, or earlier "
                   "by --train-iters or --train-samples"),
    OPTION("skip-train", BOOL, skip_train, .group = TRAINING,
           .help = "train no step: load, validate, end"),
    OPTION("kill-switch-path", STRING, kill_switch, .alias = "kill-switch-file", .group = TRAINING,
           .flags = SHOALI_OPTION_BY_RANK,
           .help = "save and exit after the step in which this file exists"),
    OPTION("rampup-batch-size", STRINGS, ramp_words, .group = TRAINING, .unit = "samples",
           .help =
               "START INCREMENT SAMPLES: start with START samples per step, add INCREMENT at equal "
               "intervals over the first SAMPLES samples, end at train_batch_size"),
    OPTION("step-batch-size-schedule", STRINGS, schedule_words, .group = TRAINING,
           .unit = "tokens:samples",
           .help =
               "TOKENS:BATCH ...: the batch size from each number of consumed tokens on, such as "
               "0:768 250B:1536; the largest is train_batch_size"),
    OPTION("exit-interval", INT, exit_interval, .group = TRAINING, .min = 0, .max = 1e15,
           .unit = "steps",
           .help = "save and exit after a step that this number divides; 0: never"),
    OPTION("exit-duration-in-mins", INT, exit_minutes, .group = TRAINING, .min = 0, .max = 1e9,
           .unit = "minutes", .help = "save and exit after this time; 0: never"),
    OPTION("exit-signal-handler", BOOL, exit_signal_handler, .group = TRAINING,
           .help = "on SIGINT (Ctrl-C), SIGTERM or SIGHUP finish the step, save, and exit with 0"),

    OPTION("eval-interval", INT, eval_interval, .group = VALIDATION, .min = 0, .max = 1e15,
           .flags = SHOALI_OPTION_COMMON, .help = "steps between validations; 0: only at the end"),
    OPTION("eval-iters", INT, eval_iters, .group = VALIDATION, .default_number = 100, .min = 0,
           .max = 1e9, .flags = SHOALI_OPTION_COMMON,
           .help = "global batches per validation; 0: no validation"),
    OPTION("full-validation", BOOL, full_validation, .group = VALIDATION,
           .help = "validate on the whole validation part instead of --eval-iters batches"),

    OPTION("save", STRING, save, .group = CHECKPOINT,
           .flags = SHOALI_OPTION_COMMON | SHOALI_OPTION_BY_RANK,
           .help = "folder for checkpoints; the last step is always saved"),
    OPTION("save-interval", INT, save_interval, .group = CHECKPOINT, .min = 0, .max = 1e15,
           .flags = SHOALI_OPTION_COMMON, .help = "steps between checkpoints; 0: only at the end"),
    OPTION(
        "load", STRING, load, .group = CHECKPOINT,
        .flags = SHOALI_OPTION_COMMON | SHOALI_OPTION_BY_RANK,
        .help =
            "folder of checkpoints to continue from: they set the model's flags and the tokenizer. "
            "If there is none, --save must name the same folder, and training starts at step 0. "
            "With --finetune also a Hugging Face folder (config.json, model.safetensors)"),
    OPTION("finetune", BOOL, finetune, .group = CHECKPOINT, .flags = SHOALI_OPTION_COMMON,
           .help = "load only the weights of --load and start at step 0; flags of the model may "
                   "change it"),
    OPTION("load-tag", STRING, load_tag, .group = CHECKPOINT,
           .help = "name of the checkpoint in --load; default: the latest"),
    OPTION("ckpt-step", INT, ckpt_step, .group = CHECKPOINT, .default_number = -1, .min = 0,
           .max = 1e15, .unit = "steps",
           .help = "step of the checkpoint in --load: the same as --load-tag global_stepN"),
    OPTION("override-existing-checkpoint", BOOL, override_existing_checkpoint, .group = CHECKPOINT,
           .help =
               "let this run replace checkpoints of later steps in --save, and move latest back"),
    OPTION("exit-on-missing-checkpoint", BOOL, exit_on_missing_checkpoint, .group = CHECKPOINT,
           .help = "fail when --load has no checkpoint, also where --save names the same folder"),
    OPTION("use-checkpoint-args", BOOL, use_checkpoint_args, .group = CHECKPOINT,
           .help =
               "fail when the checkpoint in --load does not say which model it has; a checkpoint "
               "that does always sets the model's flags"),
    OPTION("use-checkpoint-opt_param-scheduler", BOOL, use_checkpoint_schedule, .group = CHECKPOINT,
           .help = "take learning rate, weight decay and schedule of the checkpoint in --load "
                   "instead of those of flags and configuration"),
    OPTION("override-opt_param-scheduler", BOOL, override_schedule, .group = CHECKPOINT,
           .help = "take those of flags and configuration, as a resumed run does without it"),
    OPTION("allow-unknown-config-keys", BOOL, allow_unknown_config_keys, .group = CHECKPOINT,
           .help = "ignore keys of config.json that are not known, with a warning; without it they "
                   "are errors, because they may change what the model computes"),
    OPTION("no-load-optim", BOOL, no_load_optim, .group = CHECKPOINT,
           .help =
               "load weights, step and data position of --load; reset the optimizer states, the "
               "learning rate schedule and the loss scale"),
    OPTION("dist-ckpt-strictness", ENUM, dist_ckpt_strictness, .group = CHECKPOINT,
           .choices = strictness,
           .help = "what to do when the checkpoint or the model lacks tensors; raise_all: fail; "
                   "log_all: list them in the log and load the others"),

    OPTION("recompute-granularity", STRING, recompute_granularity, .group = MEMORY,
           .flags = SHOALI_OPTION_COMMON,
           .help = "activation checkpointing: full (layers run again in the backward pass) or "
                   "selective (the parts in --recompute-modules run again)"),
    OPTION(
        "recompute-method", STRING, recompute_method, .group = MEMORY,
        .help =
            "with full: uniform (all layers, in chunks of --recompute-num-layers) or block (only "
            "the first --recompute-num-layers)"),
    OPTION(
        "recompute-num-layers", INT, recompute_num_layers, .group = MEMORY, .min = 0, .max = 100000,
        .help = "with uniform: layers per chunk, of which only the input is kept (default 1); with "
                "block: layers that run again"),
    OPTION("recompute-modules", STRINGS, recompute_modules, .group = MEMORY,
           .help = "with selective: attn (default; Megatron's core_attn), mlp"),
    OPTION("ignore-plan", BOOL, ignore_plan, .group = MEMORY,
           .help = "start even when the plan says that this machine has too little memory"),

    OPTION("log-interval", INT, log_interval, .group = LOGGING, .default_number = 100, .min = 1,
           .max = 1e9, .flags = SHOALI_OPTION_COMMON | SHOALI_OPTION_BY_RANK,
           .help = "steps between progress lines without a terminal"),
    OPTION("log-format", ENUM, log_format, .group = LOGGING, .choices = log_formats,
           .flags = SHOALI_OPTION_BY_RANK,
           .help = "lines of steps: shoal's, megatron's (every --log-interval steps), or auto: "
                   "shoal's, and megatron's too where --log-interval or --log-throughput is given"),
    OPTION("log-throughput", BOOL, log_throughput, .group = LOGGING, .flags = SHOALI_OPTION_BY_RANK,
           .help = "add TFLOP/s per rank to Megatron's line"),
    OPTION("tensorboard-dir", STRING, board.dir, .group = LOGGING, .flags = SHOALI_OPTION_BY_RANK,
           .help = "write TensorBoard's files here, with Megatron's names"),
    OPTION("tensorboard-log-interval", INT, board.log_interval, .group = LOGGING,
           .default_number = 1, .min = 1, .max = 1e9, .flags = SHOALI_OPTION_BY_RANK,
           .help = "steps between its values"),
    BOARD("log-timers-to-tensorboard", timers, "the time of a step"),
    BOARD("log-batch-size-to-tensorboard", batch_size, "the batch size"),
    BOARD("log-memory-to-tensorboard", memory, "the most device memory that was used"),
    BOARD("log-world-size-to-tensorboard", world_size, "the number of ranks"),
    BOARD("log-validation-ppl-to-tensorboard", validation_ppl, "perplexities"),
    OPTION("no-log-learning-rate-to-tensorboard", BOOL, board.no_learning_rate, .group = LOGGING,
           .alias = "no-log-learnig-rate-to-tensorboard", .flags = SHOALI_OPTION_BY_RANK,
           .help = "write no learning rate there"),
    OPTION("no-log-loss-scale-to-tensorboard", BOOL, board.no_loss_scale, .group = LOGGING,
           .flags = SHOALI_OPTION_BY_RANK, .help = "write no loss scale there"),
    OPTION("local_rank", INT, local_rank, .alias = "local-rank", .default_number = -1,
           .flags = SHOALI_OPTION_HIDDEN | SHOALI_OPTION_BY_RANK,
           .help = "given by launchers; ignored"),
    OPTION("no-position-embedding", BOOL, no_position_embedding, .flags = SHOALI_OPTION_HIDDEN,
           .help = "no learned positions: --position-embedding-type none, unless it is rope"),
    OPTION("fp32-residual-connection", BOOL, fp32_residual, .group = PRECISION,
           .flags = SHOALI_OPTION_HIDDEN, .help = "accepted in fp32"),
};
static const struct shoali_section section = {.name = "pretrain",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct pretrain_options),
                                              .given_offset =
                                                  offsetof(struct pretrain_options, given)};

/* Kept apart because each may also stand in ds_config.json: config.c compares. */
static const struct shoali_option shared_rows[] = {
    SHARED_OPTION("micro-batch-size", INT, micro_batch_size, .group = TRAINING, .min = 1,
                  .max = 1e9, .unit = "samples", .flags = SHOALI_OPTION_COMMON,
                  .help = "samples of a micro-batch on each data-parallel rank; the same as "
                          "train_micro_batch_size_per_gpu in the configuration"),
    SHARED_OPTION(
        "global-batch-size", INT, global_batch_size, .group = TRAINING, .min = 1, .max = 1e12,
        .unit = "samples", .flags = SHOALI_OPTION_COMMON,
        .help = "samples per optimizer step over all ranks; the same as train_batch_size in the "
                "configuration"),
    SHARED_OPTION("seed", INT, seed, .group = TRAINING, .default_number = 1234, .min = 0,
                  .max = 1e15, .flags = SHOALI_OPTION_COMMON,
                  .help =
                      "seed of initial weights, data order and dropout; the same as seed in the "
                      "configuration"),
    SHARED_OPTION(
        "threads", INT, threads, .group = TRAINING, .min = 0, .max = 4096,
        .flags = SHOALI_OPTION_BY_RANK,
        .help = "threads per rank; 0: the rank's share of the cores; the same as threads in the "
                "configuration"),

    SHARED_OPTION(
        "lr", FLOAT, lr, .group = OPTIMIZER, .min = 0, .max = 1e6,
        .flags = SHOALI_OPTION_COMMON | SHOALI_OPTION_NO_DEFAULT,
        .help = "learning rate, the peak of a schedule; the same as optimizer.params.lr in the "
                "configuration"),
    SHARED_OPTION("min-lr", FLOAT, min_lr, .group = OPTIMIZER, .min = 0, .max = 1e6,
                  .help = "lowest learning rate of the decay; needs --lr-decay-style"),
    SHARED_OPTION(
        "lr-decay-style", STRING, lr_decay_style, .group = OPTIMIZER,
        .help =
            "constant, linear, cosine, inverse-square-root or WSD; replaces the configuration's "
            "scheduler"),
    SHARED_OPTION("lr-decay-iters", INT, lr_decay_iters, .group = OPTIMIZER, .min = 1, .max = 1e15,
                  .unit = "steps", .help = "last step of the decay; default: --train-iters"),
    SHARED_OPTION("lr-wsd-decay-style", STRING, lr_wsd_decay_style, .group = OPTIMIZER,
                  .help =
                      "decay in the last phase of WSD: exponential, linear, cosine or minus_sqrt"),
    SHARED_OPTION("lr-wsd-decay-iters", INT, lr_wsd_decay_iters, .group = OPTIMIZER, .min = 0,
                  .max = 1e15, .unit = "steps", .help = "length of the last phase of WSD"),
    SHARED_OPTION("lr-warmup-iters", INT, lr_warmup_iters, .group = OPTIMIZER, .min = 0,
                  .max = 1e15, .unit = "steps", .help = "length of the linear warm-up"),
    SHARED_OPTION("lr-decay-samples", INT, lr_decay_samples, .group = OPTIMIZER, .min = 1,
                  .max = 1e15, .unit = "samples", .help = "last sample of the decay"),
    SHARED_OPTION("lr-warmup-samples", INT, lr_warmup_samples, .group = OPTIMIZER, .min = 0,
                  .max = 1e15, .unit = "samples", .help = "length of the linear warm-up"),
    SHARED_OPTION("lr-wsd-decay-samples", INT, lr_wsd_decay_samples, .group = OPTIMIZER, .min = 0,
                  .max = 1e15, .unit = "samples", .help = "length of the last phase of WSD"),
    SHARED_OPTION("lr-decay-tokens", INT, lr_decay_tokens, .group = OPTIMIZER, .min = 1,
                  .max = 1e18, .unit = "tokens",
                  .help = "last token of the decay; before --lr-decay-samples"),
    SHARED_OPTION("lr-warmup-tokens", INT, lr_warmup_tokens, .group = OPTIMIZER, .min = 0,
                  .max = 1e18, .unit = "tokens",
                  .help = "length of the linear warm-up; before --lr-warmup-samples"),
    SHARED_OPTION("lr-warmup-fraction", FLOAT, lr_warmup_fraction, .group = OPTIMIZER, .min = 0,
                  .max = 1, .help = "length of the warm-up as a fraction of the decay's"),
    SHARED_OPTION("lr-warmup-init", FLOAT, lr_warmup_init, .group = OPTIMIZER, .min = 0, .max = 1e6,
                  .help = "learning rate at the first step of the warm-up"),
    SHARED_OPTION("weight-decay", FLOAT, weight_decay, .group = OPTIMIZER, .min = 0, .max = 1e6,
                  .flags = SHOALI_OPTION_NO_DEFAULT,
                  .help =
                      "weight decay; given by this flag, it leaves out biases and tensors of one "
                      "dimension; the same as optimizer.params.weight_decay in the configuration"),
    SHARED_OPTION("adam-beta1", FLOAT, adam_beta1, .group = OPTIMIZER, .min = 0, .max = 1,
                  .flags = SHOALI_OPTION_NO_DEFAULT,
                  .help = "first beta of Adam; the same as optimizer.params.betas[0]"),
    SHARED_OPTION("adam-beta2", FLOAT, adam_beta2, .group = OPTIMIZER, .min = 0, .max = 1,
                  .flags = SHOALI_OPTION_NO_DEFAULT,
                  .help = "second beta of Adam; the same as optimizer.params.betas[1]"),
    SHARED_OPTION("adam-eps", FLOAT, adam_eps, .group = OPTIMIZER, .min = 0, .max = 1,
                  .flags = SHOALI_OPTION_NO_DEFAULT,
                  .help = "epsilon of Adam; the same as optimizer.params.eps"),
    SHARED_OPTION("optimizer", STRING, optimizer, .group = OPTIMIZER,
                  .help = "adam (AdamW, as in Megatron), or a type of the configuration such as "
                          "sgd; the same as optimizer.type"),
    SHARED_OPTION("sgd-momentum", FLOAT, sgd_momentum, .group = OPTIMIZER, .min = 0, .max = 1,
                  .flags = SHOALI_OPTION_NO_DEFAULT,
                  .help = "momentum of SGD; the same as optimizer.params.momentum"),
    SHARED_OPTION("clip-grad", FLOAT, clip_grad, .group = OPTIMIZER, .min = 0, .max = 1e9,
                  .flags = SHOALI_OPTION_NO_DEFAULT,
                  .help = "largest gradient norm; 0: no clipping; the same as gradient_clipping"),

    SHARED_OPTION("bf16", BOOL, bf16, .group = PRECISION, .flags = SHOALI_OPTION_COMMON,
                  .help = "train in bf16; the same as bf16.enabled"),
    SHARED_OPTION("fp16", BOOL, fp16, .group = PRECISION,
                  .help = "train in fp16 with loss scaling; the same as fp16.enabled"),
    SHARED_OPTION("loss-scale", FLOAT, loss_scale, .group = PRECISION, .min = 0, .max = 1e37,
                  .flags = SHOALI_OPTION_NO_DEFAULT,
                  .help = "loss scale of fp16; 0: dynamic; the same as fp16.loss_scale"),
    SHARED_OPTION("initial-loss-scale", FLOAT, initial_loss_scale, .group = PRECISION, .min = 0,
                  .max = 1e37, .flags = SHOALI_OPTION_NO_DEFAULT,
                  .help = "first dynamic loss scale, a power of two; the same as "
                          "fp16.initial_scale_power"),
    SHARED_OPTION("min-loss-scale", FLOAT, min_loss_scale, .group = PRECISION, .min = 0,
                  .max = 1e37, .flags = SHOALI_OPTION_NO_DEFAULT,
                  .help = "lowest dynamic loss scale; the same as fp16.min_loss_scale"),
    SHARED_OPTION("loss-scale-window", INT, loss_scale_window, .group = PRECISION, .min = 1,
                  .max = 1e15, .unit = "steps",
                  .help = "steps without overflow before the loss scale grows; the same as "
                          "fp16.loss_scale_window"),
    SHARED_OPTION("hysteresis", INT, hysteresis, .group = PRECISION, .min = 1, .max = 1e15,
                  .help = "overflows before the loss scale shrinks; the same as fp16.hysteresis"),

    SHARED_OPTION("zero-stage", INT, zero_stage, .group = "parallelism", .min = 0, .max = 3,
                  .flags = SHOALI_OPTION_NO_DEFAULT,
                  .help = "stage of ZeRO; the same as zero_optimization.stage"),
    SHARED_OPTION("use-distributed-optimizer", BOOL, use_distributed_optimizer,
                  .group = "parallelism",
                  .help = "divide optimizer states over data-parallel ranks: stage 1 of ZeRO, or "
                          "the configuration's higher one"),
    SHARED_OPTION("overlap-grad-reduce", BOOL, overlap_grad_reduce, .group = "parallelism",
                  .help = "reduce gradients during the backward pass; the same as "
                          "zero_optimization.overlap_comm"),
    SHARED_OPTION("overlap-param-gather", BOOL, overlap_param_gather, .group = "parallelism",
                  .help = "gather parameters during the forward pass; the same as "
                          "zero_optimization.overlap_comm"),
    SHARED_OPTION("async-save", BOOL, async_save, .group = CHECKPOINT,
                  .help = "save while training continues; the same as checkpoint.writer.decoupled"),
    SHARED_OPTION(
        "keep-last", INT, keep_last, .group = CHECKPOINT, .min = 0, .max = 1e9,
        .help =
            "checkpoints to keep in --save; older ones that runs made there are removed; 0: keep "
            "all; the same as checkpoint.keep_last"),
    SHARED_OPTION(
        "save-retain-interval", INT, save_retain_interval, .group = CHECKPOINT, .min = 0,
        .max = 1e15, .unit = "steps",
        .help =
            "keep also the checkpoints whose step this number divides; without --keep-last: only "
            "these and the last one; the same as checkpoint.keep_every"),
};
const struct shoali_section pretrain_shared_section = {
    .name = "shared",
    .rows = SHOALI_ROWS(shared_rows),
    .struct_bytes = sizeof(struct pretrain_shared),
    .given_offset = offsetof(struct pretrain_shared, given)};

bool pretrain_asks_validation(const struct pretrain_options *options)
{
    return options->full_validation || options->eval_interval > 0 ||
           options->data.split_path[SHOAL_SPLIT_VALID].count > 0;
}

/* What says which checkpoint, and how. --ckpt-step becomes a tag. */
static shoal_status check_loading(struct pretrain_options *options, struct shoali_arena *arena)
{
    const char *flag = options->load_tag                     ? "--load-tag"
                       : options->ckpt_step >= 0             ? "--ckpt-step"
                       : options->finetune                   ? "--finetune"
                       : options->data.strict                ? "--strict-data"
                       : options->exit_on_missing_checkpoint ? "--exit-on-missing-checkpoint"
                                                             : NULL;
    const char *idle = options->no_load_optim          ? "no-load-optim"
                       : options->dist_ckpt_strictness ? "dist-ckpt-strictness"
                                                       : NULL;
    if (idle && !options->load) /* Megatron's scripts have them with and without a checkpoint */
        SHOALI_INFO("config", "--%s has no effect without --load: nothing is loaded", idle);
    if (flag && !options->load)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s without --load: name the folder with checkpoints",
                          flag);
    if (options->use_checkpoint_schedule && options->override_schedule)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--use-checkpoint-opt_param-scheduler and --override-opt_param-scheduler "
                          "exclude each other: give one of them");
    if (options->ckpt_step < 0)
        return SHOAL_OK;
    if (options->load_tag)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--ckpt-step and --load-tag both name a checkpoint: give one of them");
    options->load_tag =
        shoali_arena_printf(arena, "global_step%lld", (long long)options->ckpt_step);
    return options->load_tag ? SHOAL_OK : SHOAL_ENOMEM;
}

/* What says how, and what for, it is saved. Megatron's rule for the interval. */
static shoal_status check_saving(const struct pretrain_options *options)
{
    const struct pretrain_shared *shared = &options->shared;
    const char *flag = options->override_existing_checkpoint ? "override-existing-checkpoint"
                       : shared->async_save                  ? "async-save"
                       : shared->keep_last                   ? "keep-last"
                       : shared->save_retain_interval        ? "save-retain-interval"
                                                             : NULL;
    if (options->save_interval && !options->save) /* as many of Megatron's scripts have it */
        SHOALI_INFO("config", "--save-interval has no effect without --save: nothing is saved");
    if (flag && !options->save)
        return SHOAL_FAIL(SHOAL_EINVAL, "--%s without --save: name the folder for checkpoints",
                          flag);
    if (shared->save_retain_interval &&
        (!options->save_interval || shared->save_retain_interval % options->save_interval))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--save-retain-interval %lld is not a multiple of --save-interval "
                          "%lld: give a multiple of it",
                          (long long)shared->save_retain_interval,
                          (long long)options->save_interval);
    return SHOAL_OK;
}

/* What only training needs. */
static shoal_status check_training(struct pretrain_options *options,
                                   const struct pretrain_command *command,
                                   struct shoali_arena *arena)
{
    if (!shoali_config_given(&section, options, "train-iters") && !options->train_samples &&
        !options->train_tokens && !options->skip_train)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s: --train-iters must be given: optimizer steps of the whole training",
                          command->name);
    if (shoali_config_given(&section, options, "train-iters") && options->train_samples)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "--train-iters and --train-samples both set the length of the training: "
                          "give one of them");
    const shoal_status saving = check_saving(options);
    if (saving < 0)
        return saving;
    if (!pretrain_has_data(options))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "no training data: give --data-path FILE_OR_FOLDER, or --mock-data for random tokens");
    return check_loading(options, arena);
}

/* --help megatron */
static shoal_status print_known(void)
{
    struct shoali_str text = {0};
    pretrain_known_help(&text);
    const bool failed = text.failed;
    fputs(shoali_str_get(&text), stdout);
    shoali_str_fini(&text);
    return failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the help") : SHOAL_END;
}

/* Reads all flags; SHOAL_END: help was printed. */
static shoal_status parse(struct pretrain_options *options, const struct pretrain_command *command,
                          int argc, char **argv, struct shoali_arena *arena)
{
    shoal_status status;
    const struct shoali_flags tables[] = {{command->more, command->more_options},
                                          options->model.table,
                                          {&section, options},
                                          {&pretrain_data_section, &options->data},
                                          {&tokenizer_flags_section, &options->tokenizer},
                                          {&pretrain_shared_section, &options->shared},
                                          {&mesh_flags_section, &options->mesh},
                                          {&pretrain_known_section, &options->known}};
    const int32_t first = command->more ? 0 : 1;
    struct shoali_help help = {0};
    char **words = NULL;
    const struct shoali_flag_args args = {.command = command->name,
                                          .tables = tables + first,
                                          .table_count = 8 - first,
                                          .groups = command->groups,
                                          .help = &help};
    SHOAL_TRY(status, pretrain_take_windows(argc, argv, arena, &words), done);
    status = shoali_flags_parse(&args, argc, words, arena, NULL);
    if (status == SHOAL_END && help.group && strcmp(help.group, "megatron") == 0)
        status = print_known();
    else if (status == SHOAL_END)
        status = tool_print_flags(command->usage, &args);
done:
    return status;
}

static shoal_status write_defaults(struct pretrain_options *options,
                                   const struct pretrain_command *command, struct pretrain_hub hub,
                                   struct shoali_arena *arena)
{
    shoal_status status;
    status = shoali_config_defaults(&section, options, arena); /* which clears everything */
    options->hub = hub;
    SHOAL_TRY(status, status, done);
    SHOAL_TRY(status, shoali_config_defaults(&mesh_flags_section, &options->mesh, arena), done);
    SHOAL_TRY(status, shoali_config_defaults(&tokenizer_flags_section, &options->tokenizer, arena),
              done);
    SHOAL_TRY(status, shoali_config_defaults(&pretrain_data_section, &options->data, arena), done);
    SHOAL_TRY(status, shoali_config_defaults(&pretrain_shared_section, &options->shared, arena),
              done);
    SHOAL_TRY(status, shoali_config_defaults(&pretrain_known_section, &options->known, arena),
              done);
    if (command->more)
        SHOAL_TRY(status, shoali_config_defaults(command->more, command->more_options, arena),
                  done);
    if (options->hub.config)
        SHOAL_TRY(status, pretrain_hub_flags(&options->hub, command, &options->model, arena), done);
    else if (command->megatron)
        SHOAL_TRY(status, model_flags_init_megatron(&options->model, arena), done);
    else
        SHOAL_TRY(status, model_flags_init(&options->model, command->model, arena), done);
done:
    return status;
}

/* Megatron's name of the attention that runs again, and its default. */
static void take_modules(struct pretrain_options *options)
{
    static const char *attention[] = {"attn"};
    struct shoali_strings *modules = &options->recompute_modules;
    const char *granularity = options->recompute_granularity;
    for (int32_t i = 0; i < modules->count; i++)
        if (strcmp(modules->value[i], "core_attn") == 0)
            modules->value[i] = attention[0];
    if (modules->count == 0 && granularity && strcmp(granularity, "selective") == 0)
        *modules = (struct shoali_strings){attention, 1};
}

/* What Megatron's programs mean where a flag is not given. */
static shoal_status take_old_meanings(struct pretrain_options *options)
{
    take_modules(options);
    struct tokenizer_flags *tokenizer = &options->tokenizer;
    options->log_interval_given = shoali_config_given(&section, options, "log-interval");
    if (tokenizer->vocab_file && !tokenizer->type)
        tokenizer->type = tokenizer->merge_file ? "GPT2BPETokenizer" : "BertWordPieceLowerCase";
    if (options->no_position_embedding &&
        !model_flags_given(&options->model, "position-embedding-type"))
        return shoal_model_config_set_choice(options->model.config, "position-embedding-type",
                                             "none");
    return SHOAL_OK;
}

shoal_status pretrain_options_init(struct pretrain_options *options,
                                   const struct pretrain_command *command, int argc, char **argv)
{
    shoal_status status;
    struct shoali_arena arena;
    struct pretrain_hub hub = {0};
    shoali_arena_init(&arena);
    SHOAL_TRY(status, pretrain_hub_find(&hub, argc, argv), done);
    SHOAL_TRY(status, write_defaults(options, command, hub, &arena), done);
    status = parse(options, command, argc, argv, &arena);
    if (status != SHOAL_OK)
        goto done;
    SHOAL_TRY(status, take_old_meanings(options), done);
    SHOAL_TRY(status, model_flags_take(&options->model), done);
    SHOAL_TRY(status, pretrain_hub_check(options, command), done);
    SHOAL_TRY(status, pretrain_ramp_read(&options->ramp_words, &options->ramp), done);
    options->seq_length = model_flags_int(&options->model, "seq-length");
    SHOAL_TRY(
        status,
        pretrain_schedule_read(&options->schedule_words, options->seq_length, &options->schedule),
        done);
    SHOAL_TRY(status, pretrain_schedule_take_batch(options), done);
    if (options->ramp.start > 0 && options->schedule.count > 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "--rampup-batch-size and --step-batch-size-schedule "
                                          "both change the batch size: give one of them");
        goto done;
    }
    options->vocab_size = model_flags_int(&options->model, "vocab-size");
    status = pretrain_data_finish(options, &arena);
    if (status == SHOAL_OK && command->trains)
        status = check_training(options, command, &arena);
    if (status == SHOAL_OK)
        status = pretrain_take_seed(options);
    if (status == SHOAL_OK)
        status = mesh_flags_take_config(&options->mesh, options->deepspeed_config, &arena);
    if (status == SHOAL_OK)
        status = mesh_flags_check(&options->mesh, options->model.config, &arena);
    if (status == SHOAL_OK && !command->trains)
        status = pretrain_take_length(options, 1);
done:
    options->arena = arena;
    return status;
}

shoal_status pretrain_options_visit(const struct pretrain_options *options,
                                    void (*visit)(void *user, const char *path, const char *value),
                                    void *user)
{
    const struct {
        const struct shoali_section *section;
        const void *values;
    } all[] = {{&section, options},
               {&pretrain_data_section, &options->data},
               {&tokenizer_flags_section, &options->tokenizer},
               {&pretrain_shared_section, &options->shared},
               {&mesh_flags_section, &options->mesh}};
    shoal_status status = SHOAL_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == SHOAL_OK; i++)
        status = shoali_config_visit(all[i].section, all[i].values, "", 0, visit, user);
    return status;
}

void pretrain_options_fini(struct pretrain_options *options)
{
    model_flags_fini(&options->model);
    pretrain_hub_fini(&options->hub);
    json_decref(options->schedule_object);
    shoali_arena_fini(&options->arena);
}
