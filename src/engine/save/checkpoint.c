/* Save and load: the engine's tensors and numbers through checkpoint/. */
#include "engine/save/checkpoint.h"
#include "engine/save/foreign_checkpoint.h"

#include "base/waiting.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPARED_AT_ONCE = 4096 };

/* ---- the engine's numbers ------------------------------------------------------------------- */

/* What most runs have is not written. False: no memory. */
static bool add_number(json_t *object, const char *name, int64_t value, int64_t common)
{
    return value == common || json_object_set_new(object, name, json_integer(value)) == 0;
}

/* Other splits are other sums, and no mistake: a run may go on with more ranks than it was made
 * for. */
static void compare_splits(const json_t *object, const char *member, const char *name, int64_t own)
{
    const json_t *stored = json_object_get(object, member);
    const int64_t splits = stored ? json_integer_value(stored) : 1;
    if (splits != own)
        SHOALI_WARN("engine",
                    "the checkpoint was trained with exact_splits.%s %lld, this run uses %lld: its "
                    "results have other bits from here on",
                    name, (long long)splits, (long long)own);
}

shoal_status shoali_engine_numbers(const struct shoal_engine *engine, char **text)
{
    struct shoali_loss_scaler_state scaler;
    shoali_loss_scaler_save(&engine->step.scaler, &scaler);
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:s, s:s, s:s, s:s, s:{s:f, s:I, s:I, s:I}}",
        "global_steps", (json_int_t)engine->step.global_steps, "applied_steps",
        (json_int_t)engine->step.applied_steps, "consumed_samples",
        (json_int_t)engine->step.consumed_samples, "applied_samples",
        (json_int_t)engine->step.applied_samples, "skipped_steps",
        (json_int_t)engine->step.info.skipped_steps, "lr", shoali_engine_lr(engine),
        "train_batch_size", (json_int_t)engine->step.largest.train, "seed",
        (json_int_t)engine->seed, "dtype", shoal_dtype_name(engine->module.dtype), "optimizer",
        engine->optimizer.type->name, "reduction",
        engine->config.reduction == SHOALI_REDUCTION_EXACT ? "exact" : "fast", "kernels",
        engine->ops.name, "loss_scaler", "scale", scaler.scale, "iteration",
        (json_int_t)scaler.iteration, "last_overflow", (json_int_t)scaler.last_overflow,
        "hysteresis_left", (json_int_t)scaler.hysteresis_left);
    if (!shoali_engine_add_optimizer(object, &engine->optimizer) ||
        !add_number(object, "optimizer_ahead", engine->step.optimizer_ahead, 0) ||
        !add_number(object, "exact_splits_tensor", engine->config.exact_splits.tensor, 1) ||
        !add_number(object, "exact_splits_sequence", engine->config.exact_splits.sequence, 1)) {
        json_decref(object);
        object = NULL;
    }
    shoal_status status = SHOAL_OK;
    if (object)
        SHOAL_TRY(status, shoali_engine_add_options(object, engine), done);
    SHOAL_TRY(status, shoali_json_write(object, JSON_COMPACT, "the engine's numbers", text), done);
done:
    json_decref(object);
    return status;
}

/* What makes this run's numbers others than those of the run that saved. Kernels are each rank's
 * own, all else is said once. */
static void log_differences(const struct shoal_engine *engine, const json_t *object, int64_t train,
                            int64_t seed, const char *kernels)
{
    const char *dtype = json_string_value(json_object_get(object, "dtype"));
    const char *own = shoal_dtype_name(engine->module.dtype);
    if (strcmp(kernels, engine->ops.name) != 0)
        SHOALI_WARN("engine",
                    "the checkpoint was trained with kernels %s, this run uses %s: 16-bit results "
                    "may differ in the last bits",
                    kernels, engine->ops.name);
    if (engine->place.rank != 0)
        return;
    shoali_engine_log_batch(engine, train);
    if ((uint64_t)seed != engine->seed)
        SHOALI_WARN("engine",
                    "the checkpoint was trained with seed %lld, this run uses %llu: dropout and "
                    "what else is drawn differs from here on",
                    (long long)seed, (unsigned long long)engine->seed);
    if (dtype && strcmp(dtype, own) != 0)
        SHOALI_WARN("engine", "the checkpoint was trained in %s, this run computes in %s", dtype,
                    own);
    if (engine->config.reduction == SHOALI_REDUCTION_EXACT) {
        compare_splits(object, "exact_splits_tensor", "tensor", engine->config.exact_splits.tensor);
        compare_splits(object, "exact_splits_sequence", "sequence",
                       engine->config.exact_splits.sequence);
    }
}

/* Samples of so many steps. Checkpoints without the number say how many samples their steps had
 * less than `train` each. */
static shoal_status read_samples(const json_t *object, const char *name, const char *behind,
                                 int64_t steps, int64_t train, int64_t *samples)
{
    const json_t *stored = json_object_get(object, name);
    bool fits = true;
    if (stored)
        *samples = json_integer_value(stored);
    else
        fits = shoali_mul(steps, train, samples) &&
               !__builtin_sub_overflow(
                   *samples, json_integer_value(json_object_get(object, behind)), samples);
    if (fits && *samples >= 0 && (!stored || json_is_integer(stored)))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_ECORRUPT, "the checkpoint's `engine` part has no usable `%s`", name);
}

/* The rate of the next step, after the engine's numbers are the checkpoint's. */
static void log_rate(const struct shoal_engine *engine, const json_t *object)
{
    const json_t *stored = json_object_get(object, "lr");
    const double own = shoali_engine_lr(engine);
    if (json_is_number(stored) && json_number_value(stored) != own)
        SHOALI_WARN("engine",
                    "the checkpoint would continue with learning rate %g, this run does with %g",
                    json_number_value(stored), own);
}

/* A checkpoint's `engine` part, read and found usable before a load changes anything. */
struct stored_numbers {
    json_t *object; /* owned, or NULL */
    json_int_t steps, applied, skipped, train, seed;
    int64_t consumed_samples, applied_samples;
    const char *kernels;             /* in `object` */
    struct shoali_str other_options; /* of this run's configuration; owned */
    struct shoali_loss_scaler scaler;
};

static shoal_status read_numbers(const struct shoal_engine *engine, const char *text,
                                 bool optimizer, struct stored_numbers *numbers)
{
    shoal_status status = SHOAL_OK;
    json_int_t iteration, last, left;
    double scale;
    json_error_t error;
    SHOAL_TRY(status, shoali_json_read(text, strlen(text), &numbers->object, NULL), done);
    if (json_unpack_ex(
            numbers->object, &error, 0, "{s:I, s:I, s:I, s:I, s:I, s:s, s:{s:F, s:I, s:I, s:I}}",
            "global_steps", &numbers->steps, "applied_steps", &numbers->applied, "skipped_steps",
            &numbers->skipped, "train_batch_size", &numbers->train, "seed", &numbers->seed,
            "kernels", &numbers->kernels, "loss_scaler", "scale", &scale, "iteration", &iteration,
            "last_overflow", &last, "hysteresis_left", &left) != 0) {
        status = json_error_code(&error) == json_error_out_of_memory
                     ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the engine's numbers")
                     : SHOAL_FAIL(SHOAL_ECORRUPT, "the checkpoint's `engine` part lacks a number "
                                                  "this version needs");
        goto done;
    }
    numbers->scaler = engine->step.scaler;
    SHOAL_TRY(status,
              shoali_loss_scaler_restore(
                  &numbers->scaler, &(struct shoali_loss_scaler_state){.scale = scale,
                                                                       .iteration = iteration,
                                                                       .last_overflow = last,
                                                                       .hysteresis_left = left}),
              done);
    SHOAL_TRY(status,
              read_samples(numbers->object, "consumed_samples", "samples_behind", numbers->steps,
                           numbers->train, &numbers->consumed_samples),
              done);
    SHOAL_TRY(status,
              read_samples(numbers->object, "applied_samples", "applied_samples_behind",
                           numbers->applied, numbers->train, &numbers->applied_samples),
              done);
    SHOAL_TRY(
        status,
        shoali_engine_compare_options(engine, numbers->object, optimizer, &numbers->other_options),
        done);
done:
    return status;
}

/* `schedule`: the position in the schedule is the checkpoint's, too. */
static void use_numbers(struct shoal_engine *engine, const struct stored_numbers *numbers,
                        bool schedule)
{
    const json_t *object = numbers->object;
    engine->step.scaler = numbers->scaler;
    engine->step.global_steps = numbers->steps;
    engine->step.applied_steps = numbers->applied;
    engine->step.optimizer_ahead = json_integer_value(json_object_get(object, "optimizer_ahead"));
    engine->step.consumed_samples = numbers->consumed_samples;
    engine->step.applied_samples = numbers->applied_samples;
    engine->step.info.skipped_steps = numbers->skipped;
    log_differences(engine, object, numbers->train, numbers->seed, numbers->kernels);
    if (numbers->other_options.length > 0 && engine->place.rank == 0)
        SHOALI_WARN("engine", "options that the checkpoint was not trained with: %s",
                    shoali_str_get(&numbers->other_options));
    if (schedule && engine->place.rank == 0) {
        shoali_engine_log_optimizer(engine, object);
        log_rate(engine, object);
    }
}

/* ---- save ----------------------------------------------------------------------------------- */

/* Memory that nobody has written to is only promised: it is touched, so that the system says now
 * whether it has it. */
static void *allocate_prefaulted(size_t bytes)
{
    enum { PAGE = 4096 };
    volatile char *memory = shoali_malloc_for_files(bytes, "the buffer of checkpoints");
    for (size_t at = 0; memory && at < bytes; at += PAGE)
        memory[at] = 0;
    return (void *)memory;
}

shoal_status shoali_engine_prepare_saves(struct shoal_engine *engine)
{
    shoal_status status;
    struct shoali_engine_tensors tensors;
    struct shoali_checkpoint_size size;
    SHOAL_TRY(status, shoali_engine_tensors_init(&tensors, engine), done);
    SHOAL_TRY(status, shoali_engine_tensors_add_all(&tensors, engine, false), done);
    const struct shoali_checkpoint_args args =
        shoali_engine_checkpoint_args(&tensors, engine, "", NULL);
    SHOAL_TRY(status, shoali_checkpoint_get_size(&args, &size), done);
    if (!engine->meta)
        engine->save.buffer = allocate_prefaulted((size_t)size.buffer_bytes);
    if (!engine->meta && !engine->save.buffer)
        status = SHOAL_ENOMEM;
    else
        engine->save.buffer_bytes = size.buffer_bytes;
    if (status == SHOAL_OK && engine->config.checkpoint.writer.decoupled)
        SHOAL_TRY(status, shoali_engine_saver_create(engine), done);
done:
    shoali_engine_tensors_fini(&tensors);
    return status;
}

shoal_status shoal_engine_check_save(shoal_engine *engine, const char *dir, bool ignore_space)
{
    shoal_status status;
    struct shoali_engine_tensors tensors;
    SHOAL_TRY(status, shoali_engine_tensors_init(&tensors, engine), done);
    if (!dir || !*dir) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "the folder to save in is empty: give --save DIR");
        goto done;
    }
    SHOAL_TRY(status, shoali_engine_tensors_add_all(&tensors, engine, false), done);
    struct shoali_checkpoint_args args = shoali_engine_checkpoint_args(&tensors, engine, dir, NULL);
    args.step = engine->step.global_steps;
    SHOAL_TRY(status, shoali_checkpoint_check(&args, ignore_space != 0), done);
done:
    shoali_engine_tensors_fini(&tensors);
    return status;
}

/* At once. */
static shoal_status save_now(struct shoal_engine *engine, const struct shoali_save_request *request)
{
    shoal_status status;
    struct shoali_engine_tensors tensors;
    char *numbers = NULL;
    SHOAL_TRY(status, shoali_engine_tensors_init(&tensors, engine), done);
    SHOAL_TRY(status, shoali_engine_numbers(engine, &numbers), done);
    SHOAL_TRY(status, shoali_engine_tensors_add_all(&tensors, engine, false), done);
    struct shoali_checkpoint_args args =
        shoali_engine_checkpoint_args(&tensors, engine, request->dir, request->tag);
    args.engine_json = numbers;
    args.client_json = request->client_json;
    args.step = engine->step.global_steps;
    args.tag_chosen = request->tag_chosen;
    SHOAL_TRY(status, shoali_checkpoint_save(&args), done);
done:
    shoali_engine_tensors_fini(&tensors);
    free(numbers);
    return status;
}

shoal_status shoal_engine_save_checkpoint(shoal_engine *engine, const char *dir, const char *tag,
                                          const char *client_json)
{
    shoal_status status;
    char default_tag[64];
    struct shoali_waiting_aloud *aloud;
    const int64_t begin_ns = shoali_now_ns();
    SHOAL_TRY(status, shoali_engine_between_steps(engine, "saving a checkpoint"), done);
    if (engine->inference) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "this engine was created for inference: it has no optimizer states to save");
        goto done;
    }
    if (!dir || !*dir) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "the folder to save in is empty: give --save DIR");
        goto done;
    }
    snprintf(default_tag, sizeof default_tag, "global_step%lld",
             (long long)engine->step.global_steps);
    const struct shoali_save_request request = {.dir = dir,
                                                .tag = tag ? tag : default_tag,
                                                .client_json = client_json,
                                                .tag_chosen = tag != NULL};
    engine->step.save_requested = false;
    if (engine->config.checkpoint.writer.decoupled) {
        SHOAL_TRY(status, shoali_engine_saver_begin(engine, &request), done);
        goto done;
    }
    aloud = shoali_waiting_files_begin("saving a checkpoint into", dir);
    shoali_status_page_io_begin(shoali_status_page_get());
    status = save_now(engine, &request);
    shoali_waiting_aloud_end(aloud);
    shoali_status_page_io_end(shoali_status_page_get());
    if (status < 0)
        goto done;
    engine->save.info.step = engine->step.global_steps;
    engine->save.info.seconds = (double)(shoali_now_ns() - begin_ns) * 1e-9;
    engine->save.info.stall_ms = engine->save.info.seconds * 1e3;
done:
    return status;
}

/* ---- load ----------------------------------------------------------------------------------- */

/* -1: there is none. */
static int32_t find_kind(const struct shoali_checkpoint_info *info, const char *name)
{
    for (int32_t i = 0; i < info->kind_count; i++)
        if (strcmp(info->kind_name[i], name) == 0)
            return i;
    return -1;
}

static bool has_kind(const struct shoali_checkpoint_info *info, const char *name)
{
    return find_kind(info, name) >= 0;
}

static shoal_status refuse_element(const struct shoal_engine *engine, int64_t at, uint16_t got,
                                   float master, uint16_t want)
{
    const struct shoali_piece piece = shoali_module_piece(&engine->module, at, at + 1);
    return SHOAL_FAIL(SHOAL_ECORRUPT,
                      "the checkpoint's 16-bit weights are not its masters rounded to nearest: "
                      "`%s`, element %lld: 0x%04x, but the master %.9g gives 0x%04x; load another "
                      "checkpoint",
                      piece.param->name, (long long)piece.first, (unsigned)got, (double)master,
                      (unsigned)want);
}

/* Stands in the place of a write: the masters are loaded, the rounded weights must follow from
 * them.
 */
static shoal_status compare_rounded(void *user, int64_t first, int64_t count, const void *in)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_kind_access *access = user;
    const uint16_t *got = in;
    const bool bf16 = access->rounded == SHOAL_BF16;
    float master[COMPARED_AT_ONCE];
    for (int64_t at = 0; at < count; at += COMPARED_AT_ONCE) {
        const int64_t part = count - at < COMPARED_AT_ONCE ? count - at : COMPARED_AT_ONCE;
        SHOAL_TRY(status, shoali_zero_read(access->zero, 0, first + at, part, master), done);
        for (int64_t i = 0; i < part; i++) {
            const uint16_t want =
                bf16 ? shoali_f32_to_bf16(master[i]) : shoali_f32_to_f16(master[i]);
            const float value =
                bf16 ? shoali_bf16_to_f32(got[at + i]) : shoali_f16_to_f32(got[at + i]);
            if (got[at + i] != want && !(isnan(value) && isnan(master[i])))
                return refuse_element(access->engine, first + at + i, got[at + i], master[i], want);
        }
    }
done:
    return status;
}

/* 16-bit weights beside masters: nobody needs them, but if they say something else one of the two
 * is not what was saved. After all kinds that are loaded. */
static shoal_status add_comparison(struct shoali_engine_tensors *tensors,
                                   const struct shoal_engine *engine,
                                   const struct shoali_checkpoint_info *info)
{
    shoal_status status = SHOAL_OK;
    const int32_t model = find_kind(info, "model"), at = tensors->kind_count;
    if (!has_kind(info, "master") || model < 0 || shoal_dtype_bytes(info->kind_dtype[model]) != 2)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_engine_tensors_add(tensors, engine, 0, "model"), done);
    tensors->kind[at].dtype = tensors->access[at].rounded = info->kind_dtype[model];
    tensors->kind[at].write = compare_rounded;
done:
    return status;
}

/* An engine without masters takes 16-bit weights as they are, into the last kind. */
static shoal_status add_weights(struct shoali_engine_tensors *tensors,
                                const struct shoal_engine *engine)
{
    shoal_status status;
    const int32_t at = tensors->kind_count;
    SHOAL_TRY(status, shoali_engine_tensors_add(tensors, engine, 0, "model"), done);
    tensors->kind[at].dtype = engine->module.dtype;
    tensors->access[at].kind = shoali_zero_kind_count(engine->zero) - 1;
done:
    return status;
}

/* Of the weights that were just added, unless the checkpoint's run computed in the same type. */
static shoal_status count_narrowing(struct shoali_engine_tensors *tensors,
                                    const struct shoal_engine *engine,
                                    const struct shoali_checkpoint_info *info, int32_t model)
{
    if (model >= 0 && info->kind_dtype[model] == engine->module.dtype)
        return SHOAL_OK;
    tensors->access[0].narrowing = &tensors->narrowing;
    return shoali_narrowing_init(&tensors->narrowing, engine);
}

/* fp32 masters come from "master", or from "model" when the checkpoint is fp32; states under their
 * own names. */
static shoal_status choose_kinds(struct shoali_engine_tensors *tensors,
                                 const struct shoal_engine *engine,
                                 const struct shoali_checkpoint_info *info, bool weights_only)
{
    shoal_status status;
    const char *master = has_kind(info, "master") ? "master" : "model";
    struct shoali_zero_kind kind;
    const int32_t model = find_kind(info, "model");
    if (!shoali_zero_has_masters(engine->zero) && model >= 0 &&
        info->kind_dtype[model] == engine->module.dtype)
        return add_weights(tensors, engine);
    for (int32_t i = 0; i < info->kind_count; i++)
        if (strcmp(info->kind_name[i], master) == 0 && info->kind_dtype[i] != SHOAL_F32)
            return SHOAL_FAIL(
                SHOAL_EUNSUPPORTED,
                "the checkpoint holds only %s weights; fp32 weights or masters are needed",
                shoal_dtype_name(info->kind_dtype[i]));
    SHOAL_TRY(status, shoali_engine_tensors_add(tensors, engine, 0, master), done);
    SHOAL_TRY(status, count_narrowing(tensors, engine, info, model), done);
    for (int32_t k = 1; k < shoali_zero_kind_count(engine->zero) && !weights_only; k++) {
        shoali_zero_get_kind(engine->zero, k, &kind);
        if (strcmp(kind.name, "model") == 0)
            continue;
        SHOAL_TRY(status, shoali_engine_tensors_add(tensors, engine, k, NULL), done);
    }
    SHOAL_TRY(status, add_comparison(tensors, engine, info), done);
done:
    return status;
}

/* After a load: nothing is left of steps that this engine did before. Without states the optimizer
 * begins afresh at a later step: its t, and the schedule, count from 0. */
static void settle(struct shoal_engine *engine, bool module_only, bool no_states)
{
    engine->step.skipped_in_a_row = 0;
    if (!module_only && no_states) {
        shoali_loss_scaler_init(&engine->step.scaler, &engine->config.fp16);
        engine->step.applied_steps = engine->step.optimizer_ahead = 0;
        engine->step.applied_samples = 0;
        engine->step.info.skipped_steps = 0;
    }
    shoali_engine_forget_unsaved(engine, !module_only);
}

/* The row of the program that wrote DIR/TAG; NULL: Shoal, or none that this build knows. */
static const struct shoali_foreign_checkpoint *find_foreign(const char *dir, const char *tag)
{
    int32_t i = 0;
    while (shoali_foreign_checkpoints[i] && !shoali_foreign_checkpoints[i]->probe(dir, tag))
        i++;
    return shoali_foreign_checkpoints[i];
}

/* Says what may have been left out, where a folder has no checkpoint of Shoal. */
static shoal_status say_left_out(shoal_status status)
{
    if (status >= 0 || shoali_foreign_checkpoints[0])
        return status;
    return shoali_error_prefix(status, "this build has no reader of other programs' checkpoints "
                                       "(SHOAL_WITH_FOREIGN=OFF)");
}

static shoal_status load(struct shoal_engine *engine, const shoal_load_args *how,
                         char **client_json)
{
    shoal_status status;
    struct shoali_engine_tensors tensors;
    struct shoali_checkpoint_info info = {0};
    struct stored_numbers numbers = {0};
    struct shoali_waiting_aloud *aloud;
    const bool module_only = how->module_only || engine->inference;
    SHOAL_TRY(status, shoali_engine_tensors_init(&tensors, engine), done);
    SHOAL_TRY(status, shoali_engine_between_steps(engine, "loading a checkpoint"), done);
    SHOAL_TRY(status, shoal_engine_wait_save(engine), done);
    if (client_json)
        *client_json = NULL;
    const struct shoali_foreign_checkpoint *foreign = find_foreign(how->dir, how->tag);
    if (foreign) {
        aloud = shoali_waiting_files_begin("loading the checkpoint of", how->dir);
        status = foreign->load(engine, how);
        shoali_waiting_aloud_end(aloud);
        if (status < 0)
            goto done;
        settle(engine, module_only, how->no_optimizer_states);
        goto done;
    }
    SHOAL_TRY(status, say_left_out(shoali_checkpoint_open(how->dir, how->tag, &info)), done);
    if (!module_only && !how->no_optimizer_states)
        SHOAL_TRY(status, shoali_engine_check_stored(engine, &info, how->dir), done);
    if (!module_only)
        SHOAL_TRY(status,
                  read_numbers(engine, info.engine_json, !how->no_optimizer_states, &numbers),
                  done);
    SHOAL_TRY(status,
              choose_kinds(&tensors, engine, &info, module_only || how->no_optimizer_states), done);
    struct shoali_checkpoint_args args =
        shoali_engine_checkpoint_args(&tensors, engine, how->dir, info.tag);
    args.not_strict = how->not_strict;
    aloud = shoali_waiting_files_begin("loading the checkpoint of", args.dir);
    status = shoali_checkpoint_load(&args);
    shoali_waiting_aloud_end(aloud);
    if (status < 0)
        goto done;
    SHOAL_TRY(status, shoali_narrowing_check(&tensors.narrowing, how->dir), done);
    SHOAL_TRY(status, shoali_zero_masters_changed(engine->zero), done);
    if (!module_only)
        use_numbers(engine, &numbers, !how->no_optimizer_states);
    settle(engine, module_only, how->no_optimizer_states);
    if (client_json) {
        *client_json = info.client_json;
        info.client_json = NULL;
    }
done:
    json_decref(numbers.object);
    shoali_str_fini(&numbers.other_options);
    shoali_checkpoint_info_fini(&info);
    shoali_engine_tensors_fini(&tensors);
    return status;
}

shoal_status shoal_engine_load(shoal_engine *engine, const shoal_load_args *args,
                               char **client_json)
{
    shoal_status status;
    shoal_load_args own = {0};
    if (args)
        own = *args;
    if (!own.dir) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "shoal_engine_load needs a folder: shoal_load_args.dir");
        goto done;
    }
    SHOAL_TRY(status, load(engine, &own, client_json), done);
done:
    return status;
}

shoal_status shoal_engine_load_checkpoint(shoal_engine *engine, const char *dir, const char *tag,
                                          bool weights_only, char **client_json)
{
    return load(engine, &(shoal_load_args){.dir = dir, .tag = tag, .module_only = weights_only},
                client_json);
}

shoal_status shoal_checkpoint_peek(const char *dir, const char *tag, char **client_json,
                                   int64_t *step)
{
    shoal_status status;
    struct shoali_checkpoint_info info = {0};
    if (client_json)
        *client_json = NULL;
    const struct shoali_foreign_checkpoint *foreign = find_foreign(dir, tag);
    if (foreign)
        return foreign->peek(dir, tag, step);
    SHOAL_TRY(status, say_left_out(shoali_checkpoint_peek(dir, tag, &info)), done);
    if (client_json) {
        *client_json = info.client_json;
        info.client_json = NULL;
    }
    if (step)
        *step = info.step;
done:
    shoali_checkpoint_info_fini(&info);
    return status;
}

shoal_status shoal_checkpoint_find(const char *dir, const char *tag, char **folder)
{
    shoal_status status;
    struct shoali_checkpoint_info info = {0};
    struct shoali_str path = {0};
    *folder = NULL;
    const struct shoali_foreign_checkpoint *foreign = find_foreign(dir, tag);
    if (foreign) {
        *folder = foreign->folder(dir, tag);
        return *folder ? SHOAL_OK : SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
    }
    SHOAL_TRY(status, say_left_out(shoali_checkpoint_peek(dir, tag, &info)), done);
    shoali_str_append(&path, "%s/%s", dir, info.tag);
    if (path.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
    else
        *folder = path.text;
    path.text = *folder ? NULL : path.text;
done:
    shoali_str_fini(&path);
    shoali_checkpoint_info_fini(&info);
    return status;
}
