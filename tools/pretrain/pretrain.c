/* shoal pretrain: the main loop. */
#include "pretrain/pretrain.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/started.h"
#include "base/status_page.h"
#include "base/str.h"
#include "tool.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool pretrain_is_first(const struct pretrain *run)
{
    return !run->group || shoal_comm_rank(run->group) == 0;
}

/* ---- what the run is made of ---------------------------------------------------------------- */

/* What rank 0 finds counts for all: folders may look different from elsewhere, and a rank that
 * begins anew beside others that continue would be worse than an error. *found: a checkpoint
 * exists; client is owned (free()). */
static shoal_status peek(struct pretrain *run, bool *found, char **client)
{
    shoal_status status;
    const struct pretrain_options *options = &run->options;
    int64_t facts[2] = {0, -1}; /* found, bytes of the client's text */
    const bool may_miss =
        !options->load_tag && !options->finetune && !options->exit_on_missing_checkpoint;
    if (pretrain_is_first(run)) {
        status = shoal_checkpoint_peek(options->load, options->load_tag, client, NULL);
        if (status == SHOAL_ENOENT && may_miss)
            fprintf(stderr, "shoal pretrain: %s; starting at step 0\n", shoal_error_message());
        else if (status < 0)
            return status;
        facts[0] = status == SHOAL_OK;
        facts[1] = *client ? (int64_t)strlen(*client) : -1;
    }
    if (run->group)
        SHOAL_TRY(status, shoal_broadcast(run->group, facts, 2, SHOAL_I64, 0, NULL), done);
    *found = facts[0] != 0;
    if (facts[1] >= 0 && !pretrain_is_first(run))
        *client = shoali_calloc((size_t)facts[1] + 1, 1, "the checkpoint's description");
    if (facts[1] >= 0 && !*client)
        return SHOAL_ENOMEM;
    if (run->group && facts[1] >= 0)
        SHOAL_TRY(status, shoal_broadcast(run->group, *client, facts[1], SHOAL_U8, 0, NULL), done);
    status = SHOAL_OK;
done:
    return status;
}

static shoal_status peek_checkpoint(struct pretrain *run)
{
    shoal_status status = SHOAL_OK;
    char *client = NULL;
    if (!run->options.load || run->options.hub.folder)
        return SHOAL_OK;
    SHOAL_TRY(status, peek(run, &run->found, &client), done);
    /* continuing needs the same token ids */
    if (client)
        SHOAL_TRY(status,
                  pretrain_hub_tokenizer(client, run->options.load, &run->tokenizer.tokenizer),
                  done);
    if (run->found && !run->options.hub.checkpoint && pretrain_is_first(run))
        fprintf(stderr,
                "shoal pretrain: the checkpoint in %s does not say which model it has (another "
                "program or an older version wrote it): the flags are not compared with it\n",
                run->options.load);
    if (pretrain_is_first(run))
        pretrain_hub_say(&run->options);
    if (client && !run->options.finetune)
        SHOAL_TRY(status, pretrain_stored_read(run, client), done);
    if (run->found)
        SHOAL_TRY(status, pretrain_lr_schedule_read(&run->options, client), done);
done:
    free(client);
    return status;
}

static shoal_status make_engine(struct pretrain *run)
{
    shoal_status status;
    run->setup.args.blank_weights = (run->found || run->options.hub.folder) &&
                                    run->options.dist_ckpt_strictness == PRETRAIN_RAISE_ALL;
    SHOAL_TRY(status, shoal_engine_create(&run->setup.args, &run->engine), done);
    shoal_engine_get_batch_info(run->engine, &run->train_batch, &run->micro_batch, NULL);
    run->micro_per_step = run->train_batch / run->micro_batch;
    SHOAL_TRY(status,
              pretrain_ramp_check(&run->options.ramp, run->train_batch, run->micro_batch,
                                  shoal_mesh_size(run->mesh, SHOAL_AXIS_DP)),
              done);
    SHOAL_TRY(status,
              pretrain_schedule_check(&run->options.schedule, run->train_batch, run->micro_batch,
                                      shoal_mesh_size(run->mesh, SHOAL_AXIS_DP)),
              done);
done:
    return status;
}

static shoal_status describe_client(struct pretrain *run)
{
    shoal_status status;
    char *model = NULL;
    struct shoali_str text = {0};
    const shoal_tokenizer *tokenizer = run->dataset ? shoal_dataset_tokenizer(run->dataset) : NULL;
    SHOAL_TRY(status, shoal_model_config_to_json(shoal_model_get_config(run->model), &model), done);
    shoali_str_append(&text, "{\"model\":%s", model);
    if (tokenizer)
        shoali_str_append(&text, ",\"tokenizer\":%s", shoal_tokenizer_json(tokenizer));
    if (run->dataset) {
        shoali_str_append(&text, ",\"data\":");
        SHOAL_TRY(status, pretrain_stored_write(run, &text), done);
    }
    shoali_str_append(&text, ",\"schedule\":");
    SHOAL_TRY(status, pretrain_lr_schedule_write(&run->options, run->setup.text, &text), done);
    shoali_str_append(&text, "}");
    run->client_json = text.failed ? NULL : strdup(shoali_str_get(&text));
    if (!run->client_json)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the checkpoint's description");
done:
    shoali_str_fini(&text);
    free(model);
    return status;
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* A training is worth more than its lines: it goes on without them, and its exit code tells. */
static void warn_lost_output(struct pretrain *run)
{
    const int error = errno;
    if (run->output_error || !pretrain_is_first(run) || !ferror(stdout))
        return;
    run->output_error = error ? error : EIO;
    fprintf(stderr,
            "shoal pretrain: cannot write to standard output: %s; the training goes on and will "
            "end with exit code 1\n",
            strerror(run->output_error));
}

/* For the launcher's report: where the lines go, nobody can read why the run ends with 1. */
static void report_lost_output(const struct pretrain *run)
{
    char sentence[256];
    if (!run->output_error || run->output_error == EPIPE) /* the reader has left */
        return;
    snprintf(sentence, sizeof sentence,
             "cannot write to standard output: %s; the training went on without its lines",
             strerror(run->output_error));
    shoali_status_page_fail(shoali_status_page_get(), SHOAL_EIO, sentence);
}

/* A run whose ranks do not all do the same says who does what; without memory for it, nothing. */
static void show_mesh(const struct pretrain *run)
{
    char *text = NULL;
    if (shoal_engine_describe_mesh(run->engine, &text) == SHOAL_OK)
        fputs(text, stdout);
    free(text);
}

/* Whose ranks these are, when they are not those of `shoal run` on one machine. */
static void show_launcher(const struct pretrain *run)
{
    const char *launcher = shoali_started_get().launcher;
    const char *backend = shoal_comm_backend(run->group);
    const bool away = strcmp(backend, "shm") != 0 && strcmp(backend, "self") != 0;
    if (!launcher && !away)
        return;
    printf("ranks: %d%s%s, connected by %s\n", (int)shoal_engine_world_size(run->engine),
           launcher ? " of " : "", launcher ? launcher : "", backend);
}

static void show_header(struct pretrain *run)
{
    const struct pretrain_options *options = &run->options;
    double entropy = (double)NAN;
    char text[512], count[32];
    if (!pretrain_is_first(run))
        return;
    printf("model: %s, %s parameters\n",
           shoal_model_config_describe(shoal_model_get_config(run->model), text, sizeof text),
           shoali_format_count((double)shoal_engine_param_count(run->engine), count));
    printf("%s\n", shoal_engine_describe_weight_decay(run->engine, text, sizeof text));
    printf("data: %lld training and %lld validation tokens of %d kinds\n",
           (long long)shoal_dataset_token_count(run->dataset, SHOAL_SPLIT_TRAIN),
           (long long)shoal_dataset_token_count(run->dataset, SHOAL_SPLIT_VALID),
           (int)shoal_dataset_vocab_size(run->dataset));
    printf("%s", shoal_dataset_describe_files(run->dataset));
    if (shoal_dataset_path(run->dataset))
        printf("tokens: %s\n", shoal_dataset_path(run->dataset));
    show_mesh(run);
    show_launcher(run);
    const int32_t ranks = shoal_mesh_size(run->mesh, SHOAL_AXIS_DP);
    printf("batch: %lld sample%s of %lld token%s = %lld micro-batch%s of %lld, on %d%s rank%s\n",
           (long long)run->train_batch, run->train_batch > 1 ? "s" : "",
           (long long)options->seq_length, options->seq_length > 1 ? "s" : "",
           (long long)run->micro_per_step, run->micro_per_step > 1 ? "es" : "",
           (long long)run->micro_batch, (int)ranks,
           ranks < shoal_engine_world_size(run->engine) ? " data-parallel" : "",
           ranks > 1 ? "s" : "");
    const bool next_token = pretrain_samples(options) == SHOAL_SAMPLE_NEXT_TOKEN;
    if (run->valid && next_token &&
        shoal_dataset_unigram_entropy(run->dataset, SHOAL_SPLIT_VALID, &entropy) >= 0)
        printf("unigram entropy of the validation part: %.4f nats per token (what a model without "
               "context could reach)\n",
               entropy);
    fflush(stdout);
    warn_lost_output(run);
}

/* The time of a step that is shown is a mean in which the last twenty weigh most. The first step,
 * which touches all memory for the first time, counts only until there is a second. */
static void show_step(struct pretrain *run, const shoal_step_info *info, int64_t first, double *ms)
{
    const int64_t counted = info->step - first;
    const double weight = counted <= 1 ? 1 : counted < 20 ? 1.0 / (double)counted : 0.05;
    const double tokens = (double)(info->train_batch_size * run->options.seq_length);
    const int32_t lines = shoal_mesh_size(run->mesh, SHOAL_AXIS_DP);
    shoali_status_page_count_tokens(shoali_status_page_get(),
                                    info->train_batch_size * run->options.seq_length / lines,
                                    run->options.train_iters);
    if (!run->progress)
        return;
    *ms += weight * (info->step_ms - *ms);
    run->step_ms = *ms;
    if (run->options.log_format == PRETRAIN_LOG_MEGATRON)
        return;
    shoal_progress_update(
        run->progress, &(shoal_progress_values){.step = info->step + 1,
                                                .loss = info->loss,
                                                .lr = info->lr,
                                                .grad_norm = info->grad_norm,
                                                .tokens_per_s = tokens / (*ms * 1e-3),
                                                .seconds_per_step = *ms * 1e-3,
                                                .skipped = info->skipped_steps,
                                                .loss_scale = info->loss_scale,
                                                .batch_size = pretrain_batch_varies(&run->options)
                                                                  ? info->train_batch_size
                                                                  : 0});
    warn_lost_output(run);
}

static shoal_status after_step(struct pretrain *run, int64_t *saved_step)
{
    shoal_status status = SHOAL_OK;
    const struct pretrain_options *options = &run->options;
    const int64_t step = shoal_engine_global_steps(run->engine);
    char where[64];
    double loss;
    snprintf(where, sizeof where, "iteration %lld", (long long)step);
    if (options->eval_interval > 0 && step % options->eval_interval == 0 &&
        step < options->train_iters)
        SHOAL_TRY(status, pretrain_evaluate(run, where, &loss), done);
    pretrain_say_saved(run);
    const bool due = options->save_interval > 0 && step % options->save_interval == 0;
    if (pretrain_wants_save(run, due)) {
        SHOAL_TRY(status, pretrain_save(run), done);
        *saved_step = step;
    }
done:
    return status;
}

/* By --exit-interval, which all ranks see alike. Time passes differently, and so may files appear:
 * a rank that ran out of time, or sees the file, asks all to stop after the next step. */
static bool asked_to_leave(struct pretrain *run, int64_t begin_ns)
{
    const struct pretrain_options *options = &run->options;
    const double minutes = (double)(shoali_now_ns() - begin_ns) * 1e-9 / 60;
    const bool killed = options->kill_switch && access(options->kill_switch, F_OK) == 0;
    if (killed || (options->exit_minutes && minutes >= (double)options->exit_minutes))
        shoal_engine_request_stop(run->engine);
    return options->exit_interval &&
           shoal_engine_global_steps(run->engine) % options->exit_interval == 0;
}

/* Whether what the run began with is what --save holds: else also a run of no steps saves it, as
 * initial weights or in another folder. */
static bool is_saved(const struct pretrain *run)
{
    const struct pretrain_options *options = &run->options;
    return run->found && !options->finetune && strcmp(options->load, options->save) == 0;
}

/* Where the batch grows, the run saves as Megatron does, and drops the times of smaller steps. */
static shoal_status begin_step(struct pretrain *run, int64_t first, int64_t *timed,
                               int64_t *saved_step)
{
    shoal_status status;
    bool changed;
    const int64_t step = shoal_engine_global_steps(run->engine);
    SHOAL_TRY(status, pretrain_next_batch(run, &changed), done);
    if (!changed || step == first)
        return SHOAL_OK;
    *timed = step;
    if (run->options.save && *saved_step != step) {
        SHOAL_TRY(status, pretrain_save(run), done);
        *saved_step = step;
    }
done:
    return status;
}

/* With comms_logger. */
static shoal_status show_comms(struct pretrain *run)
{
    char *text = NULL;
    const shoal_status status = shoal_engine_format_comms(run->engine, &text);
    if (status >= 0 && text && pretrain_is_first(run))
        fputs(text, stdout);
    free(text);
    return status;
}

/* --train-iters is easily taken for the number of steps that a continued run adds. */
static void say_nothing_left(const struct pretrain *run)
{
    const struct pretrain_options *options = &run->options;
    const int64_t step = shoal_engine_global_steps(run->engine);
    if (!options->skip_train && step > 0 && options->train_iters > 0 &&
        step >= options->train_iters && pretrain_is_first(run))
        fprintf(stderr,
                "shoal pretrain: nothing is left to train: the checkpoint in %s is of step %lld, "
                "and the training ends at step %lld (--train-iters counts from step 0)\n",
                options->load, (long long)step, (long long)options->train_iters);
}

static shoal_status train(struct pretrain *run)
{
    shoal_status status = SHOAL_OK;
    const struct pretrain_options *options = &run->options;
    struct pretrain_source source = {run, run->train};
    const int64_t first = shoal_engine_global_steps(run->engine);
    const int64_t begin = shoali_now_ns();
    int64_t saved_step = -1, timed = first;
    double ms = 0;
    char where[96];
    say_nothing_left(run);
    while (!options->skip_train && shoal_engine_global_steps(run->engine) < options->train_iters &&
           !shoal_engine_stop_requested(run->engine)) {
        shoal_step_info info;
        SHOAL_TRY(status, begin_step(run, first, &timed, &saved_step), done);
        SHOAL_TRY(status, shoal_engine_train_batch(run->engine, pretrain_next, &source, &info),
                  done);
        show_step(run, &info, timed, &ms);
        pretrain_log_step(run, &info, info.step == first);
        SHOAL_TRY(status, pretrain_board_step(run, &info), done);
        SHOAL_TRY(status, after_step(run, &saved_step), done);
        if (asked_to_leave(run, begin))
            break;
    }
    if (run->progress)
        shoal_progress_finish(run->progress);
    const int64_t last = shoal_engine_global_steps(run->engine);
    if (options->save && !options->skip_train && saved_step != last &&
        (last > first || !is_saved(run)))
        SHOAL_TRY(status, pretrain_save(run), done);
    SHOAL_TRY(status, pretrain_end_saves(run), done);
    pretrain_say_stopped(run);
    snprintf(where, sizeof where, "iteration %lld on validation set", (long long)last);
    if ((options->skip_train || last >= options->train_iters) &&
        !shoal_engine_stop_requested(run->engine)) {
        SHOAL_TRY(status, pretrain_evaluate(run, where, &run->final_loss), done);
        if (shoal_engine_stop_requested(run->engine))
            pretrain_say_stopped(run);
    }
    SHOAL_TRY(status, show_comms(run), done);
    pretrain_show_memory(run);
done:
    return status;
}

/* A run that could not save must not begin. What can be known about it only now: its step, and what
 * a checkpoint needs. */
static shoal_status check_saves(struct pretrain *run)
{
    const char *folder = run->options.save;
    if (!folder)
        return SHOAL_OK;
    const shoal_status status =
        shoal_engine_check_save(run->engine, folder, run->options.ignore_plan);
    if (status < 0 && pretrain_is_first(run))
        return shoali_error_prefix(status, "--save %s", folder);
    return status;
}

/* What the model begins with, where that is not chance. */
static shoal_status load(struct pretrain *run)
{
    const struct pretrain_options *options = &run->options;
    if (options->hub.folder)
        return shoal_engine_load_weights(
            run->engine, &(shoal_load_weights_args){.path = options->hub.folder,
                                                    .vocab_rows = options->vocab_size,
                                                    .not_strict = options->dist_ckpt_strictness !=
                                                                  PRETRAIN_RAISE_ALL});
    if (!run->found)
        return SHOAL_OK;
    return shoal_engine_load(
        run->engine,
        &(shoal_load_args){.dir = options->load,
                           .tag = options->load_tag,
                           .module_only = options->finetune,
                           .no_optimizer_states = options->no_load_optim,
                           .not_strict = options->dist_ckpt_strictness != PRETRAIN_RAISE_ALL},
        NULL);
}

static shoal_status prepare(struct pretrain *run)
{
    shoal_status status;
    SHOAL_TRY(status, shoal_comm_init(&(shoal_comm_args){0}, &run->group), done);
    SHOAL_TRY(status, pretrain_agree_flags(run), done);
    SHOAL_TRY(status, pretrain_open_mesh(run), done);
    SHOAL_TRY(status,
              pretrain_take_length(&run->options, shoal_mesh_size(run->mesh, SHOAL_AXIS_DP)), done);
    SHOAL_TRY(status, peek_checkpoint(run), done);
    SHOAL_TRY(status, pretrain_open_data(run), done);
    SHOAL_TRY(status, pretrain_agree_data(run), done);
    SHOAL_TRY(status, pretrain_make_model(&run->options, run->vocab_size, &run->model), done);
    SHOAL_TRY(status, pretrain_setup_init(&run->setup, &run->options, run->model, run->mesh), done);
    SHOAL_TRY(status, pretrain_check_plan(run), done);
    SHOAL_TRY(status, pretrain_make_folder(run), done);
    SHOAL_TRY(status, make_engine(run), done);
    SHOAL_TRY(status, load(run), done);
    SHOAL_TRY(status, pretrain_open_loaders(run), done);
    pretrain_order_say(run);
    SHOAL_TRY(status, describe_client(run), done);
    if (run->options.save && pretrain_is_first(run))
        SHOAL_TRY(status, pretrain_add_files(run), done);
    SHOAL_TRY(status, check_saves(run), done);
    pretrain_take_signals(run);
    show_header(run);
    if (pretrain_is_first(run))
        SHOAL_TRY(
            status,
            shoal_progress_create(&(shoal_progress_args){.out = stdout,
                                                         .total_steps = run->options.train_iters,
                                                         .plain_every = run->options.log_interval},
                                  &run->progress),
            done);
    SHOAL_TRY(status, pretrain_open_board(run), done);
done:
    return status;
}

static void release(struct pretrain *run, shoal_status status)
{
    shoal_progress_destroy(run->progress);
    shoal_monitor_destroy(run->board);
    pretrain_drop_signals();
    pretrain_drop_folder(run);
    if (status < 0 && run->group)
        shoal_comm_abort(run->group, status);
    shoal_loader_destroy(run->train);
    shoal_loader_destroy(run->valid);
    shoal_engine_destroy(run->engine);
    shoal_model_destroy(run->model);
    shoal_dataset_destroy(run->dataset);
    shoal_tokenizer_destroy(run->tokenizer.tokenizer);
    shoal_mesh_destroy(run->mesh);
    shoal_comm_destroy(run->group);
    pretrain_free_batch(run);
    free(run->client_json);
    pretrain_stored_fini(&run->stored);
    pretrain_setup_fini(&run->setup);
    pretrain_options_fini(&run->options);
}

static const char usage[] =
    "usage: shoal pretrain MODEL [--deepspeed_config FILE] --data-path TEXT [flags]\n"
    "       shoal run --num_gpus N shoal pretrain MODEL ...\n\n"
    "Trains a model on text, JSON lines or Megatron's data files. MODEL is gpt, llama, bert, or a\n"
    "known size such as gpt2-124m, which sets the model's flags. bert needs data files of\n"
    "`shoal preprocess --split-sentences`. Start several ranks with `shoal run`, mpirun or srun.\n"
    "With --load FOLDER leave MODEL and its flags out: the checkpoint has them, as a Hugging Face\n"
    "folder (with --finetune) does. `--help megatron` lists Megatron's flags that have no "
    "effect.\n\n";
static const char *const groups[] = {"model",       "data",      "tokenizer",  "training",
                                     "optimizer",   "precision", "validation", "checkpoint",
                                     "parallelism", "memory",    "logging",    NULL};

/* Of all ranks the first one tells what flags have no effect. */
static shoal_status read_options(struct pretrain_options *options, struct pretrain_command *command,
                                 int argc, char **argv)
{
    const int64_t rank = shoali_started_get().rank;
    shoali_context_get()->rank = rank > 0 ? (int)rank : 0;
    pretrain_choose_model(command, argc, argv);
    const shoal_status status = pretrain_options_init(options, command, argc, argv);
    shoali_context_get()->rank = 0;
    return status;
}

int tool_pretrain(int argc, char **argv)
{
    struct pretrain run = {0};
    shoal_status status;
    char name[96];
    int skip = 0;
    struct pretrain_command command = {
        .name = name, .usage = usage, .groups = groups, .trains = true};
    SHOAL_TRY(
        status,
        model_flags_word("shoal pretrain", argc, argv, &command.model, &skip, name, sizeof name),
        done);
    pretrain_expect_signals();
    command.any_model = !skip;
    status = read_options(&run.options, &command, argc - skip, argv + skip);
    if (status == SHOAL_OK)
        SHOAL_TRY(status, prepare(&run), done);
    if (status == SHOAL_OK)
        SHOAL_TRY(status, train(&run), done);
    report_lost_output(&run);
done:
    if (status == SHOAL_ENOMEM)
        status = pretrain_tell_plan(&run, status);
    const int code = status < 0 ? tool_fail_of_ranks(status, run.mesh) : tool_flush();
    release(&run, status);
    return code;
}
