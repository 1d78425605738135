/* Megatron's flags for `shoal pretrain`; those of the model come from the library. */
#include "pretrain.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define O(member) offsetof(struct pretrain_options, member)
#define S(member) offsetof(struct pretrain_shared, member)
#define REQUIRED .flags = SHOALI_OPTION_REQUIRED

static const char *const strictness[] = {"raise_all", "log_all", NULL};

static const struct shoali_option rows[] = {
    {.key = "recompute-granularity",
     .type = SHOALI_STRING,
     .offset = O(recompute_granularity),
     .help = "full: layers drop their activations and run again in backward; selective: parts of "
             "them do (--recompute-modules)"},
    {.key = "recompute-method",
     .type = SHOALI_STRING,
     .offset = O(recompute_method),
     .help = "of full: uniform (all layers, in chunks of --recompute-num-layers) or block (the "
             "first --recompute-num-layers)"},
    {.key = "recompute-num-layers",
     .type = SHOALI_INT,
     .offset = O(recompute_num_layers),
     .min = 0,
     .max = 100000,
     .help = "uniform: layers of a chunk, of which only the input is kept (default 1); block: "
             "layers that run again"},
    {.key = "recompute-modules",
     .type = SHOALI_STRINGS,
     .offset = O(recompute_modules),
     .help = "of selective: attn, mlp"},

    {.key = "data-path",
     .type = SHOALI_STRINGS,
     .offset = O(data_path),
     .help = "text files or folders, *.jsonl; or the prefixes of Megatron's data files (.bin and "
             ".idx), also as a blend: WEIGHT PREFIX WEIGHT PREFIX ..."},
    {.key = "data-cache-path",
     .type = SHOALI_STRING,
     .offset = O(data_cache_path),
     .help = "folder that keeps the tokens of the text, or the maps of data files, made once; "
             "default: .shoal-cache beside them, else a folder of yours below XDG_CACHE_HOME or "
             "/var/tmp"},
    {.key = "split",
     .type = SHOALI_STRING,
     .offset = O(split),
     .help = "weights of the training, validation and test parts; default: 90,10 of text, 969,30,1 "
             "of data files"},
    {.key = "mock-data",
     .type = SHOALI_BOOL,
     .offset = O(mock_data),
     .help = "random tokens instead of text"},

    {.key = "deepspeed",
     .type = SHOALI_BOOL,
     .offset = O(deepspeed),
     .help = "accepted for compatibility; always on"},
    {.key = "deepspeed_config",
     .type = SHOALI_STRING,
     .offset = O(deepspeed_config),
     .alias = "deepspeed-config",
     REQUIRED,
     .help = "the JSON file with batch sizes, optimizer, scheduler, precision, ZeRO"},
    {.key = "train-iters",
     .type = SHOALI_INT,
     .offset = O(train_iters),
     .min = 0,
     .max = 1e15,
     .unit = "steps",
     .help = "optimizer steps of the whole training, counted from its beginning; required"},
    {.key = "rampup-batch-size",
     .type = SHOALI_STRINGS,
     .offset = O(ramp_words),
     .unit = "samples",
     .help = "START INCREMENT SAMPLES: the batch begins with START samples and grows by INCREMENT, "
             "in equal shares of the first SAMPLES samples, to train_batch_size"},
    {.key = "step-batch-size-schedule",
     .type = SHOALI_STRINGS,
     .offset = O(schedule_words),
     .unit = "tokens:samples",
     .help =
         "TOKENS:BATCH ...: the batch from so many consumed tokens on, such as 0:768 250B:1536; "
         "the largest is train_batch_size"},
    {.key = "eval-interval",
     .type = SHOALI_INT,
     .offset = O(eval_interval),
     .min = 0,
     .max = 1e15,
     .unit = "steps",
     .help = "validate every so many steps; 0: only at the end"},
    {.key = "eval-iters",
     .type = SHOALI_INT,
     .offset = O(eval_iters),
     .default_number = 100,
     .min = 0,
     .max = 1e9,
     .help = "global batches of a validation; 0: none"},
    {.key = "full-validation",
     .type = SHOALI_BOOL,
     .offset = O(full_validation),
     .help = "validate on the whole validation part instead of --eval-iters batches"},
    {.key = "log-interval",
     .type = SHOALI_INT,
     .offset = O(log_interval),
     .default_number = 100,
     .min = 1,
     .max = 1e9,
     .unit = "steps",
     .help = "plain progress lines when the output is no terminal"},
    {.key = "save",
     .type = SHOALI_STRING,
     .offset = O(save),
     .help = "folder for checkpoints; saved at the end"},
    {.key = "save-interval",
     .type = SHOALI_INT,
     .offset = O(save_interval),
     .min = 0,
     .max = 1e15,
     .unit = "steps",
     .help = "save every so many steps as well; 0: only at the end"},
    {.key = "load",
     .type = SHOALI_STRING,
     .offset = O(load),
     .help = "folder with checkpoints to continue from; starts afresh when it has none. Or, with "
             "--finetune, one with config.json and model.safetensors as the Hugging Face Hub has "
             "them: its values are those of the model's flags, its tokenizer is used"},
    {.key = "load-tag",
     .type = SHOALI_STRING,
     .offset = O(load_tag),
     .help = "the checkpoint of that folder; default: the latest"},
    {.key = "override-existing-checkpoint",
     .type = SHOALI_BOOL,
     .offset = O(override_existing_checkpoint),
     .help = "let this run replace checkpoints of later steps in --save, and move latest back"},
    {.key = "ckpt-step",
     .type = SHOALI_INT,
     .offset = O(ckpt_step),
     .default_number = -1,
     .min = 0,
     .max = 1e15,
     .unit = "steps",
     .help = "the checkpoint of that step: --load-tag global_stepN"},
    {.key = "exit-on-missing-checkpoint",
     .type = SHOALI_BOOL,
     .offset = O(exit_on_missing_checkpoint),
     .help = "an error instead of starting afresh when --load has no checkpoint"},
    {.key = "finetune",
     .type = SHOALI_BOOL,
     .offset = O(finetune),
     .help = "take only the weights of --load and begin at step 0"},
    {.key = "use-checkpoint-args",
     .type = SHOALI_BOOL,
     .offset = O(use_checkpoint_args),
     .help = "the checkpoint in --load says which model it is; flags of the model must agree"},
    {.key = "no-load-optim",
     .type = SHOALI_BOOL,
     .offset = O(no_load_optim),
     .help = "take the weights of --load and go on with its step and data; optimizer states, the "
             "learning rate's schedule and the loss scale begin afresh"},
    {.key = "dist-ckpt-strictness",
     .type = SHOALI_ENUM,
     .offset = O(dist_ckpt_strictness),
     .choices = strictness,
     .help = "tensors that the checkpoint or the model lacks: raise_all: an error; log_all: a line "
             "lists them, and the others are loaded"},
    {.key = "exit-interval",
     .type = SHOALI_INT,
     .offset = O(exit_interval),
     .min = 1,
     .max = 1e15,
     .unit = "steps",
     .help = "save and leave after a step that this number divides"},
    {.key = "exit-duration-in-mins",
     .type = SHOALI_INT,
     .offset = O(exit_minutes),
     .min = 1,
     .max = 1e9,
     .unit = "minutes",
     .help = "save and leave after so much time"},
    {.key = "exit-signal-handler",
     .type = SHOALI_BOOL,
     .offset = O(exit_signal_handler),
     .help = "on SIGTERM finish the step, save, and leave with 0"},
    {.key = "ignore-plan",
     .type = SHOALI_BOOL,
     .offset = O(ignore_plan),
     .help = "start even when the plan says that the memory of this machine is too small"},
    {.key = "local_rank",
     .type = SHOALI_INT,
     .offset = O(local_rank),
     .alias = "local-rank",
     .default_number = -1,
     .flags = SHOALI_OPTION_HIDDEN,
     .help = "given by launchers; ignored"},
};
static const struct shoali_section section = {.name = "pretrain",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct pretrain_options),
                                              .given_offset = O(given)};

/* Kept apart because each may also stand in ds_config.json: pretrain_config.c compares. */
static const struct shoali_option shared_rows[] = {
    {.key = "micro-batch-size",
     .type = SHOALI_INT,
     .offset = S(micro_batch_size),
     .min = 1,
     .max = 1e9,
     .unit = "samples",
     .help = "also train_micro_batch_size_per_gpu of the configuration"},
    {.key = "global-batch-size",
     .type = SHOALI_INT,
     .offset = S(global_batch_size),
     .min = 1,
     .max = 1e12,
     .unit = "samples",
     .help = "also train_batch_size"},
    {.key = "lr",
     .type = SHOALI_FLOAT,
     .offset = S(lr),
     .min = 0,
     .max = 1e6,
     .help = "also optimizer.params.lr"},
    {.key = "min-lr",
     .type = SHOALI_FLOAT,
     .offset = S(min_lr),
     .min = 0,
     .max = 1e6,
     .help = "floor of the decay; with --lr-decay-style"},
    {.key = "lr-decay-style",
     .type = SHOALI_STRING,
     .offset = S(lr_decay_style),
     .help = "constant, linear, cosine, inverse-square-root, WSD; instead of the configuration's "
             "scheduler"},
    {.key = "lr-decay-iters",
     .type = SHOALI_INT,
     .offset = S(lr_decay_iters),
     .min = 1,
     .max = 1e15,
     .unit = "steps",
     .help = "end of the decay; default --train-iters"},
    {.key = "lr-wsd-decay-style",
     .type = SHOALI_STRING,
     .offset = S(lr_wsd_decay_style),
     .help = "last part of WSD: exponential, linear, cosine, minus_sqrt"},
    {.key = "lr-wsd-decay-iters",
     .type = SHOALI_INT,
     .offset = S(lr_wsd_decay_iters),
     .min = 0,
     .max = 1e15,
     .unit = "steps",
     .help = "length of the last part of WSD"},
    {.key = "lr-warmup-iters",
     .type = SHOALI_INT,
     .offset = S(lr_warmup_iters),
     .min = 0,
     .max = 1e15,
     .unit = "steps",
     .help = "linear warm-up"},
    {.key = "lr-warmup-fraction",
     .type = SHOALI_FLOAT,
     .offset = S(lr_warmup_fraction),
     .min = 0,
     .max = 1,
     .help = "warm-up as a part of the decay length"},
    {.key = "lr-warmup-init",
     .type = SHOALI_FLOAT,
     .offset = S(lr_warmup_init),
     .min = 0,
     .max = 1e6,
     .help = "rate at the first step of the warm-up"},
    {.key = "weight-decay",
     .type = SHOALI_FLOAT,
     .offset = S(weight_decay),
     .min = 0,
     .max = 1e6,
     .help =
         "also optimizer.params.weight_decay; given here, tensors of one dimension and biases do "
         "not decay"},
    {.key = "adam-beta1",
     .type = SHOALI_FLOAT,
     .offset = S(adam_beta1),
     .min = 0,
     .max = 1,
     .help = "also optimizer.params.betas[0]"},
    {.key = "adam-beta2",
     .type = SHOALI_FLOAT,
     .offset = S(adam_beta2),
     .min = 0,
     .max = 1,
     .help = "also optimizer.params.betas[1]"},
    {.key = "adam-eps",
     .type = SHOALI_FLOAT,
     .offset = S(adam_eps),
     .min = 0,
     .max = 1,
     .help = "also optimizer.params.eps"},
    {.key = "clip-grad",
     .type = SHOALI_FLOAT,
     .offset = S(clip_grad),
     .min = 0,
     .max = 1e9,
     .help = "also gradient_clipping; 0: off"},
    {.key = "bf16", .type = SHOALI_BOOL, .offset = S(bf16), .help = "also bf16.enabled"},
    {.key = "fp16", .type = SHOALI_BOOL, .offset = S(fp16), .help = "also fp16.enabled"},
    {.key = "loss-scale",
     .type = SHOALI_FLOAT,
     .offset = S(loss_scale),
     .min = 0,
     .max = 1e37,
     .help = "also fp16.loss_scale; 0: dynamic"},
    {.key = "min-loss-scale",
     .type = SHOALI_FLOAT,
     .offset = S(min_loss_scale),
     .min = 0,
     .max = 1e37,
     .help = "also fp16.min_loss_scale"},
    {.key = "loss-scale-window",
     .type = SHOALI_INT,
     .offset = S(loss_scale_window),
     .min = 1,
     .max = 1e15,
     .unit = "steps",
     .help = "also fp16.loss_scale_window"},
    {.key = "hysteresis",
     .type = SHOALI_INT,
     .offset = S(hysteresis),
     .min = 1,
     .max = 1e15,
     .help = "also fp16.hysteresis"},
    {.key = "seed",
     .type = SHOALI_INT,
     .offset = S(seed),
     .default_number = 1234,
     .min = 1,
     .max = 1e15,
     .help = "of initial weights, data order and dropout; also seed of the configuration"},
    {.key = "async-save",
     .type = SHOALI_BOOL,
     .offset = S(async_save),
     .help = "save while training goes on; also checkpoint.writer.decoupled"},
    {.key = "keep-last",
     .type = SHOALI_INT,
     .offset = S(keep_last),
     .min = 0,
     .max = 1e9,
     .help = "remove all but so many of the checkpoints that this folder's runs made; also "
             "checkpoint.keep_last; 0: none is removed"},
    {.key = "save-retain-interval",
     .type = SHOALI_INT,
     .offset = S(save_retain_interval),
     .min = 0,
     .max = 1e15,
     .unit = "steps",
     .help = "... and keep those whose step this divides; alone: those and the last one; also "
             "checkpoint.keep_every"},
    {.key = "threads",
     .type = SHOALI_INT,
     .offset = S(threads),
     .min = 0,
     .max = 4096,
     .help = "threads of each rank; 0: its share of the cores; also threads of the "
             "configuration"},
};
const struct shoali_section pretrain_shared_section = {.name = "shared",
                                                       .rows = SHOALI_ROWS(shared_rows),
                                                       .struct_bytes =
                                                           sizeof(struct pretrain_shared),
                                                       .given_offset = S(given)};

/* What says which checkpoint, and how. --ckpt-step becomes a tag. */
static shoal_status check_loading(struct pretrain_options *options, struct shoali_arena *arena)
{
    const char *flag = options->load_tag                     ? "--load-tag"
                       : options->ckpt_step >= 0             ? "--ckpt-step"
                       : options->finetune                   ? "--finetune"
                       : options->no_load_optim              ? "--no-load-optim"
                       : options->dist_ckpt_strictness       ? "--dist-ckpt-strictness"
                       : options->exit_on_missing_checkpoint ? "--exit-on-missing-checkpoint"
                                                             : NULL;
    if (flag && !options->load)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s without --load: name the folder with checkpoints",
                          flag);
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
    const char *flag = options->save_interval                  ? "save-interval"
                       : options->override_existing_checkpoint ? "override-existing-checkpoint"
                       : shared->async_save                    ? "async-save"
                       : shared->keep_last                     ? "keep-last"
                       : shared->save_retain_interval          ? "save-retain-interval"
                                                               : NULL;
    if (flag && !options->save)
        return SHOAL_FAIL(SHOAL_EINVAL, "--%s without --save: name the folder for checkpoints",
                          flag);
    if (shared->save_retain_interval &&
        (!options->save_interval || shared->save_retain_interval % options->save_interval))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--save-retain-interval %lld must be a multiple of --save-interval, "
                          "which is %lld: no checkpoint of such steps would be made",
                          (long long)shared->save_retain_interval,
                          (long long)options->save_interval);
    return SHOAL_OK;
}

/* What only training needs. */
static shoal_status check_training(struct pretrain_options *options,
                                   const struct pretrain_command *command,
                                   struct shoali_arena *arena)
{
    if (!shoali_config_given(&section, options, "train-iters"))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s: --train-iters must be given: optimizer steps of the whole training",
                          command->name);
    if ((options->save && !*options->save) || (options->load && !*options->load))
        return SHOAL_FAIL(SHOAL_EINVAL, "--%s names no folder: its value is empty",
                          options->save && !*options->save ? "save" : "load");
    const shoal_status saving = check_saving(options);
    if (saving < 0)
        return saving;
    if (!pretrain_has_data(options))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "no training data: give --data-path FILE_OR_FOLDER, or --mock-data for random tokens");
    return check_loading(options, arena);
}

/* Reads all flags; SHOAL_END: help was printed. */
static shoal_status parse(struct pretrain_options *options, const struct pretrain_command *command,
                          int argc, char **argv, struct shoali_arena *arena)
{
    shoal_status status;
    const struct shoali_flags tables[] = {{command->more, command->more_options},
                                          options->model.table,
                                          {&section, options},
                                          {&mesh_flags_section, &options->mesh},
                                          {&tokenizer_flags_section, &options->tokenizer},
                                          {&pretrain_data_section, &options->data},
                                          {&pretrain_shared_section, &options->shared},
                                          {&pretrain_known_section, &options->known}};
    const int32_t first = command->more ? 0 : 1;
    struct shoali_flag_args args = {
        .command = command->name, .tables = tables + first, .table_count = 8 - first};
    status = shoali_flags_parse(&args, argc, argv, arena, NULL);
    if (status == SHOAL_END) {
        struct shoali_str text = {0};
        args.table_count--; /* nothing of those that are only known */
        shoali_flags_help(&args, &text);
        printf("%s%s", command->usage, shoali_str_get(&text));
        shoali_str_fini(&text);
    }
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
    else
        SHOAL_TRY(status, model_flags_init(&options->model, command->model, arena), done);
done:
    return status;
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
    SHOAL_TRY(status, model_flags_take(&options->model), done);
    SHOAL_TRY(status, pretrain_hub_check(options, command->trains), done);
    SHOAL_TRY(status, pretrain_ramp_read(&options->ramp_words, &options->ramp), done);
    options->seq_length = model_flags_int(&options->model, "seq-length");
    SHOAL_TRY(
        status,
        pretrain_schedule_read(&options->schedule_words, options->seq_length, &options->schedule),
        done);
    if (options->ramp.start > 0 && options->schedule.count > 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "--rampup-batch-size and --step-batch-size-schedule both "
                                          "say how the batch changes: give one of them");
        goto done;
    }
    options->vocab_size = model_flags_int(&options->model, "vocab-size");
    status = pretrain_data_finish(options, &arena);
    if (status == SHOAL_OK && command->trains)
        status = check_training(options, command, &arena);
    if (status == SHOAL_OK && !*options->deepspeed_config)
        status = SHOAL_FAIL(SHOAL_EINVAL, "--deepspeed_config names no file: its value is empty");
    if (status == SHOAL_OK)
        status = pretrain_take_seed(options);
    if (status == SHOAL_OK)
        status = mesh_flags_take_config(&options->mesh, options->deepspeed_config, &arena);
    if (status == SHOAL_OK)
        status = mesh_flags_check(&options->mesh, options->model.config, &arena);
done:
    options->arena = arena;
    return status;
}

void pretrain_options_fini(struct pretrain_options *options)
{
    model_flags_fini(&options->model);
    pretrain_hub_fini(&options->hub);
    shoali_arena_fini(&options->arena);
}
