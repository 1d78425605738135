/* Save and load: the engine's tensors and numbers through checkpoint/. */
#include "engine/engine_checkpoint.h"
#include "formats/deepspeed.h"

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

/* Other splits are other sums, and no mistake: a run may go on with more ranks than it was made for. */
static void compare_splits(const json_t *object, const char *member, const char *name, int64_t own)
{
    const json_t *stored = json_object_get(object, member);
    const int64_t splits = stored ? json_integer_value(stored) : 1;
    if (splits != own)
        SHOALI_WARN(
            "engine",
            "the checkpoint was trained with exact_splits.%s %lld, this run uses %lld: what "
            "it computes from here on has other bits",
            name, (long long)splits, (long long)own);
}

shoal_status shoali_engine_numbers(const struct shoal_engine *engine, char **text)
{
    struct shoali_loss_scaler_state scaler;
    shoali_loss_scaler_save(&engine->scaler, &scaler);
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:f, s:I, s:I, s:s, s:s, s:s, s:s, s:{s:f, s:I, s:I, s:I}}",
        "global_steps", (json_int_t)engine->global_steps, "applied_steps",
        (json_int_t)engine->applied_steps, "skipped_steps", (json_int_t)engine->info.skipped_steps,
        "lr", shoali_engine_lr(engine), "train_batch_size", (json_int_t)engine->largest.train,
        "seed", (json_int_t)engine->seed, "dtype", shoal_dtype_name(engine->module.dtype),
        "optimizer", engine->optimizer.type->name, "reduction",
        engine->config.reduction == SHOALI_REDUCTION_EXACT ? "exact" : "fast", "kernels",
        engine->ops.name, "loss_scaler", "scale", scaler.scale, "iteration",
        (json_int_t)scaler.iteration, "last_overflow", (json_int_t)scaler.last_overflow,
        "hysteresis_left", (json_int_t)scaler.hysteresis_left);
    if (!add_number(object, "optimizer_ahead", engine->optimizer_ahead, 0) ||
        !add_number(object, "samples_behind", engine->samples_behind, 0) ||
        !add_number(object, "applied_samples_behind", engine->applied_samples_behind, 0) ||
        !add_number(object, "exact_splits_tensor", engine->config.exact_splits.tensor, 1) ||
        !add_number(object, "exact_splits_sequence", engine->config.exact_splits.sequence, 1)) {
        json_decref(object);
        object = NULL;
    }
    const shoal_status status =
        shoali_json_write(object, JSON_COMPACT, "the engine's numbers", text);
    json_decref(object);
    return status;
}

/* What makes this run's numbers others than those of the run that saved. */
static void tell_differences(const struct shoal_engine *engine, const json_t *object, int64_t train,
                             int64_t seed, const char *kernels)
{
    if (train != engine->largest.train)
        SHOALI_WARN("engine",
                    "the checkpoint was trained with train_batch_size %lld, this run uses %lld",
                    (long long)train, (long long)engine->largest.train);
    if ((uint64_t)seed != engine->seed)
        SHOALI_WARN("engine",
                    "the checkpoint was trained with seed %lld, this run uses %llu: data order and "
                    "dropout differ",
                    (long long)seed, (unsigned long long)engine->seed);
    if (strcmp(kernels, engine->ops.name) != 0)
        SHOALI_WARN("engine",
                    "the checkpoint was trained with kernels %s, this run uses %s: 16-bit results "
                    "may differ in the last bits",
                    kernels, engine->ops.name);
    if (engine->config.reduction == SHOALI_REDUCTION_EXACT) {
        compare_splits(object, "exact_splits_tensor", "tensor", engine->config.exact_splits.tensor);
        compare_splits(object, "exact_splits_sequence", "sequence",
                       engine->config.exact_splits.sequence);
    }
}

static shoal_status restore_numbers(struct shoal_engine *engine, const char *text)
{
    shoal_status status = SHOAL_OK;
    json_int_t steps, applied, skipped, train, seed, iteration, last, left;
    double scale;
    const char *kernels;
    json_t *object = NULL;
    json_error_t error;
    SHOAL_TRY(status, shoali_json_read(text, strlen(text), &object, NULL), done);
    if (json_unpack_ex(object, &error, 0, "{s:I, s:I, s:I, s:I, s:I, s:s, s:{s:F, s:I, s:I, s:I}}",
                       "global_steps", &steps, "applied_steps", &applied, "skipped_steps", &skipped,
                       "train_batch_size", &train, "seed", &seed, "kernels", &kernels,
                       "loss_scaler", "scale", &scale, "iteration", &iteration, "last_overflow",
                       &last, "hysteresis_left", &left) != 0) {
        status = json_error_code(&error) == json_error_out_of_memory
                     ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the engine's numbers")
                     : SHOAL_FAIL(SHOAL_ECORRUPT, "the checkpoint's `engine` part lacks a number "
                                                  "this version needs");
        goto done;
    }
    SHOAL_TRY(status,
              shoali_loss_scaler_restore(
                  &engine->scaler, &(struct shoali_loss_scaler_state){.scale = scale,
                                                                      .iteration = iteration,
                                                                      .last_overflow = last,
                                                                      .hysteresis_left = left}),
              done);
    engine->global_steps = steps;
    engine->applied_steps = applied;
    engine->optimizer_ahead = json_integer_value(json_object_get(object, "optimizer_ahead"));
    engine->samples_behind = json_integer_value(json_object_get(object, "samples_behind"));
    engine->applied_samples_behind =
        json_integer_value(json_object_get(object, "applied_samples_behind"));
    engine->info.skipped_steps = skipped;
    tell_differences(engine, object, train, seed, kernels);
done:
    json_decref(object);
    return status;
}

/* ---- save ----------------------------------------------------------------------------------- */

/* Memory that nobody has written to is only promised: it is touched, so that the system says now
 * whether it has it. */
static void *allocate_touched(size_t bytes)
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
        engine->save_buffer = allocate_touched((size_t)size.buffer_bytes);
    if (!engine->meta && !engine->save_buffer)
        status = SHOAL_ENOMEM;
    else
        engine->save_buffer_bytes = size.buffer_bytes;
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
    args.step = engine->global_steps;
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
    args.step = engine->global_steps;
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
    snprintf(default_tag, sizeof default_tag, "global_step%lld", (long long)engine->global_steps);
    const struct shoali_save_request request = {.dir = dir,
                                                .tag = tag ? tag : default_tag,
                                                .client_json = client_json,
                                                .tag_chosen = tag != NULL};
    engine->save_requested = false;
    if (engine->config.checkpoint.writer.decoupled) {
        SHOAL_TRY(status, shoali_engine_saver_begin(engine, &request), done);
        goto done;
    }
    shoali_board_io_begin(shoali_board_get());
    status = save_now(engine, &request);
    shoali_board_io_end(shoali_board_get());
    if (status < 0)
        goto done;
    engine->save_info.step = engine->global_steps;
    engine->save_info.seconds = (double)(shoali_now_ns() - begin_ns) * 1e-9;
    engine->save_info.stall_ms = engine->save_info.seconds * 1e3;
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
    for (int32_t k = 1; k < shoali_zero_kind_count(engine->zero) && !weights_only; k++) {
        shoali_zero_get_kind(engine->zero, k, &kind);
        if (strcmp(kind.name, "model") == 0)
            continue;
        if (!has_kind(info, kind.name))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "the checkpoint has no `%s`: it was trained with another optimizer; "
                              "load weights only (--finetune) to start this one afresh",
                              kind.name);
        SHOAL_TRY(status, shoali_engine_tensors_add(tensors, engine, k, NULL), done);
    }
    SHOAL_TRY(status, add_comparison(tensors, engine, info), done);
done:
    return status;
}

/* The optimizer begins afresh at a later step: its t, and the schedule, count from 0. */
static void forget_progress(struct shoal_engine *engine)
{
    shoali_loss_scaler_init(&engine->scaler, &engine->config.fp16);
    engine->applied_steps = engine->optimizer_ahead = 0;
    engine->applied_samples_behind = 0;
    engine->info.skipped_steps = 0;
}

static shoal_status load(struct shoal_engine *engine, const shoal_load_args *how,
                         char **client_json)
{
    shoal_status status;
    struct shoali_engine_tensors tensors;
    struct shoali_checkpoint_info info = {0};
    const bool module_only = how->module_only || engine->inference;
    SHOAL_TRY(status, shoali_engine_tensors_init(&tensors, engine), done);
    SHOAL_TRY(status, shoali_engine_between_steps(engine, "loading a checkpoint"), done);
    SHOAL_TRY(status, shoal_engine_wait_save(engine), done);
    if (client_json)
        *client_json = NULL;
    if (shoali_deepspeed_is(how->dir, how->tag)) {
        SHOAL_TRY(status, shoali_engine_load_deepspeed(engine, how), done);
        if (!module_only && how->no_optimizer_states)
            forget_progress(engine);
        goto done;
    }
    SHOAL_TRY(status, shoali_checkpoint_open(how->dir, how->tag, &info), done);
    SHOAL_TRY(status,
              choose_kinds(&tensors, engine, &info, module_only || how->no_optimizer_states), done);
    struct shoali_checkpoint_args args =
        shoali_engine_checkpoint_args(&tensors, engine, how->dir, info.tag);
    args.not_strict = how->not_strict;
    SHOAL_TRY(status, shoali_checkpoint_load(&args), done);
    SHOAL_TRY(status, shoali_zero_masters_changed(engine->zero), done);
    if (!module_only)
        SHOAL_TRY(status, restore_numbers(engine, info.engine_json), done);
    if (!module_only && how->no_optimizer_states)
        forget_progress(engine);
    if (client_json) {
        *client_json = info.client_json;
        info.client_json = NULL;
    }
done:
    shoali_checkpoint_info_fini(&info);
    shoali_engine_tensors_fini(&tensors);
    return status;
}

shoal_status shoal_engine_load_sized(shoal_engine *engine, const shoal_load_args *args,
                                     size_t args_size, char **client_json)
{
    shoal_status status;
    shoal_load_args own = {0};
    SHOAL_TRY(status, SHOALI_SIZED_READ(shoal_load_args, not_strict, args, args_size, &own), done);
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
    if (shoali_deepspeed_is(dir, tag))
        return shoali_engine_peek_deepspeed(dir, tag, step);
    SHOAL_TRY(status, shoali_checkpoint_peek(dir, tag, &info), done);
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
    if (shoali_deepspeed_is(dir, tag)) {
        *folder = shoali_deepspeed_folder(dir, tag);
        return *folder ? SHOAL_OK : SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
    }
    SHOAL_TRY(status, shoali_checkpoint_peek(dir, tag, &info), done);
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
