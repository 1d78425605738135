/* shoal pretrain: the main loop. */
#include "pretrain.h"

#include "base/board.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/started.h"
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
            fprintf(stderr, "shoal pretrain: %s; starting from the beginning\n",
                    shoal_error_message());
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

/* Continuing needs the same token ids, so the stored tokenizer is used. */
static shoal_status take_tokenizer(struct pretrain *run, const char *client)
{
    shoal_status status = SHOAL_OK;
    char *text = NULL;
    json_t *root = NULL;
    SHOAL_TRY(status, shoali_json_read(client, strlen(client), &root, NULL), done);
    const json_t *tokenizer = json_object_get(root, "tokenizer");
    if (!tokenizer) /* of another program, or trained on random tokens */
        goto done;
    SHOAL_TRY(status,
              shoali_json_write(tokenizer, JSON_COMPACT, "the checkpoint's tokenizer", &text),
              done);
    SHOAL_TRY(status, shoal_tokenizer_from_json(text, strlen(text), &run->stored_tokenizer), done);
done:
    if (status < 0)
        shoali_error_prefix(status, "%s: the checkpoint's description", run->options.load);
    free(text);
    json_decref(root);
    return status;
}

static shoal_status peek_checkpoint(struct pretrain *run)
{
    shoal_status status = SHOAL_OK;
    char *client = NULL;
    if (!run->options.load || run->options.hub.folder)
        return SHOAL_OK;
    SHOAL_TRY(status, peek(run, &run->found, &client), done);
    if (client)
        SHOAL_TRY(status, take_tokenizer(run, client), done);
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
    const shoal_tokenizer *tokenizer = run->dataset ? shoal_dataset_tokenizer(run->dataset) : NULL;
    SHOAL_TRY(status, shoal_model_config_to_json(shoal_model_get_config(run->model), &model), done);
    const char *format = tokenizer ? "{\"model\":%s,\"tokenizer\":%s}" : "{\"model\":%s%s}";
    const char *text = tokenizer ? shoal_tokenizer_json(tokenizer) : "";
    const size_t bytes = strlen(model) + strlen(text) + 64;
    run->client_json = shoali_malloc(bytes, "the checkpoint's description");
    if (run->client_json)
        snprintf(run->client_json, bytes, format, model, text);
    else
        status = SHOAL_ENOMEM;
done:
    free(model);
    return status;
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* A training is worth more than its lines: it goes on without them, and its exit code tells. */
static void tell_lost_output(struct pretrain *run)
{
    const int error = errno;
    if (run->output_lost || !pretrain_is_first(run) || !ferror(stdout))
        return;
    run->output_lost = true;
    fprintf(stderr,
            "shoal pretrain: cannot write to standard output: %s; the training goes on, and ends "
            "with exit code 1\n",
            strerror(error));
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
    tell_lost_output(run);
}

/* The time of a step that is shown is a mean in which the last twenty weigh most. The first step,
 * which touches all memory for the first time, counts only until there is a second. */
static void show_step(struct pretrain *run, const shoal_step_info *info, int64_t first, double *ms)
{
    const int64_t counted = info->step - first;
    const double weight = counted <= 1 ? 1 : counted < 20 ? 1.0 / (double)counted : 0.05;
    const double tokens = (double)(info->train_batch_size * run->options.seq_length);
    const int32_t lines = shoal_mesh_size(run->mesh, SHOAL_AXIS_DP);
    shoali_board_count_tokens(shoali_board_get(),
                              info->train_batch_size * run->options.seq_length / lines,
                              run->options.train_iters);
    if (!run->progress)
        return;
    *ms += weight * (info->step_ms - *ms);
    run->step_ms = *ms;
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
    tell_lost_output(run);
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

/* By --exit-interval, which all ranks see alike. Time passes differently: a rank that ran out of it
 * asks all to stop after the next step. */
static bool asked_to_leave(struct pretrain *run, int64_t begin_ns)
{
    const struct pretrain_options *options = &run->options;
    const double minutes = (double)(shoali_now_ns() - begin_ns) * 1e-9 / 60;
    if (options->exit_minutes && minutes >= (double)options->exit_minutes)
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

/* Where the batch grows, the run saves, as Megatron's does; times of smaller steps count no more. */
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

static shoal_status train(struct pretrain *run)
{
    shoal_status status = SHOAL_OK;
    const struct pretrain_options *options = &run->options;
    struct pretrain_source source = {run, run->train, run->micro_per_step};
    const int64_t first = shoal_engine_global_steps(run->engine);
    const int64_t begin = shoali_now_ns();
    int64_t saved_step = -1, timed = first;
    double ms = 0;
    char where[96];
    while (shoal_engine_global_steps(run->engine) < options->train_iters &&
           !shoal_engine_stop_requested(run->engine)) {
        shoal_step_info info;
        SHOAL_TRY(status, begin_step(run, first, &timed, &saved_step), done);
        SHOAL_TRY(status, shoal_engine_train_batch(run->engine, pretrain_next, &source, &info),
                  done);
        show_step(run, &info, timed, &ms);
        SHOAL_TRY(status, after_step(run, &saved_step), done);
        if (asked_to_leave(run, begin))
            break;
    }
    if (run->progress)
        shoal_progress_finish(run->progress);
    const int64_t last = shoal_engine_global_steps(run->engine);
    if (options->save && saved_step != last && (last > first || !is_saved(run)))
        SHOAL_TRY(status, pretrain_save(run), done);
    SHOAL_TRY(status, pretrain_end_saves(run), done);
    snprintf(where, sizeof where, "iteration %lld on validation set", (long long)last);
    if (last >= options->train_iters && !shoal_engine_stop_requested(run->engine))
        SHOAL_TRY(status, pretrain_evaluate(run, where, &run->final_loss), done);
    SHOAL_TRY(status, show_comms(run), done);
    pretrain_show_memory(run);
done:
    return status;
}

/* A folder that cannot be written is a matter of the first second, not of the last. Mistakes of
 * other flags have been found by now: they leave no empty folder. */
static shoal_status check_save(const struct pretrain *run)
{
    const char *folder = run->options.save;
    if (!folder || !pretrain_is_first(run))
        return SHOAL_OK;
    if (shoali_make_dirs(folder) < 0)
        return shoali_error_prefix(SHOAL_EINVAL, "--save %s", folder);
    if (access(folder, W_OK | X_OK) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--save %s: cannot write there: %s", folder,
                          strerror(errno));
    return SHOAL_OK;
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
    SHOAL_TRY(status, pretrain_open_mesh(run), done);
    SHOAL_TRY(status, peek_checkpoint(run), done);
    SHOAL_TRY(status, pretrain_open_data(run), done);
    SHOAL_TRY(status, pretrain_make_model(&run->options, run->vocab_size, &run->model), done);
    SHOAL_TRY(status, pretrain_setup_init(&run->setup, &run->options, run->model, run->mesh), done);
    SHOAL_TRY(status, pretrain_check_plan(run), done);
    SHOAL_TRY(status, check_save(run), done);
    SHOAL_TRY(status, make_engine(run), done);
    SHOAL_TRY(status, pretrain_open_loaders(run), done);
    SHOAL_TRY(status, describe_client(run), done);
    SHOAL_TRY(status, load(run), done);
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
done:
    return status;
}

static void release(struct pretrain *run, shoal_status status)
{
    shoal_progress_destroy(run->progress);
    pretrain_drop_signals();
    if (status < 0 && run->group)
        shoal_comm_abort(run->group, status);
    shoal_loader_destroy(run->train);
    shoal_loader_destroy(run->valid);
    shoal_engine_destroy(run->engine);
    shoal_model_destroy(run->model);
    shoal_dataset_destroy(run->dataset);
    shoal_tokenizer_destroy(run->stored_tokenizer);
    shoal_mesh_destroy(run->mesh);
    shoal_comm_destroy(run->group);
    pretrain_free_batch(run);
    shoali_free(run->client_json);
    pretrain_setup_fini(&run->setup);
    pretrain_options_fini(&run->options);
}

int tool_pretrain(int argc, char **argv)
{
    struct pretrain run = {0};
    shoal_status status;
    char name[96];
    int skip = 0;
    struct pretrain_command command = {
        .name = name,
        .usage =
            "usage: [shoal run --num_gpus N] shoal pretrain MODEL --deepspeed_config FILE "
            "--data-path TEXT [flags]\n\n"
            "Trains a model on text, JSON lines or Megatron's data files: gpt, llama, bert, or\n"
            "one that is known by a name of its own (gpt2-124m), whose flags have their values\n"
            "then. bert learns from data files of `shoal preprocess --split-sentences`.\n"
            "Started by `shoal run`, mpirun or srun it is one of N ranks; alone it is one rank.\n\n"
            "`shoal pretrain --load FOLDER --finetune ...` needs no MODEL where FOLDER is one of\n"
            "the Hugging Face Hub (config.json, model.safetensors).\n\n",
        .trains = true};
    SHOAL_TRY(
        status,
        model_flags_word("shoal pretrain", argc, argv, &command.model, &skip, name, sizeof name),
        done);
    pretrain_expect_signals();
    command.any_model = !skip;
    status = pretrain_options_init(&run.options, &command, argc - skip, argv + skip);
    if (status == SHOAL_OK)
        SHOAL_TRY(status, prepare(&run), done);
    if (status == SHOAL_OK)
        SHOAL_TRY(status, train(&run), done);
done:;
    const int code = status < 0 ? tool_fail_of_ranks(status, run.mesh) : tool_flush();
    release(&run, status);
    return code;
}
