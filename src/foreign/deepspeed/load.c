/* A checkpoint of DeepSpeed into an engine: every rank reads what it holds, in pieces. */
#include "engine/save/checkpoint.h"
#include "engine/save/foreign_checkpoint.h"
#include "foreign/deepspeed/deepspeed.h"

#include <stdio.h>
#include <string.h>

enum { PIECE = 1 << 20, LISTED = 8 };

struct loading {
    struct shoal_engine *engine;
    struct shoali_deepspeed checkpoint;
    int32_t *found; /* [params] of the checkpoint; -1: none, its values stay */
    float *buffer;  /* PIECE numbers */
    const shoal_load_args *how;
    struct shoali_narrowing narrowing;
};

/* ---- names ---- */

/* What wrappers put in front of names, and what models without a head lack. */
static const char *const prefixes[] = {"module.",      "_orig_mod.", "base_model.model.", "model.",
                                       "transformer.", "bert.",      "language_model."};
enum { PREFIXES = sizeof prefixes / sizeof prefixes[0] };

/* choice < 0: the name as it is; even: with a prefix in front, odd: without one. */
static int32_t find(const struct shoali_deepspeed *checkpoint, const char *name, int choice)
{
    char other[1024];
    if (choice < 0)
        return shoali_deepspeed_find(checkpoint, name);
    const char *prefix = prefixes[choice / 2];
    const size_t length = strlen(prefix);
    if (choice % 2 == 0) {
        (void)snprintf(other, sizeof other, "%s%s", prefix, name);
        return shoali_deepspeed_find(checkpoint, other);
    }
    return strncmp(name, prefix, length) == 0 ? shoali_deepspeed_find(checkpoint, name + length)
                                              : -1;
}

/* One decision for all names: the one that finds most. */
static int choose_names(const struct loading *loading)
{
    const struct shoali_module *module = &loading->engine->module;
    int best = -1;
    int32_t most = -1;
    for (int choice = -1; choice < 2 * PREFIXES; choice++) {
        int32_t count = 0;
        for (int32_t p = 0; p < module->param_count; p++)
            count += find(&loading->checkpoint, module->param[p]->name, choice) >= 0;
        if (count > most) {
            most = count;
            best = choice;
        }
    }
    return best;
}

/* What does not fit, as one sentence. */
static void complain(struct shoali_str *wrong, int32_t *count, const char *what, const char *name,
                     const char *detail)
{
    if (*count < LISTED)
        shoali_str_append(wrong, "%s%s%s`%s`%s", *count > 0 ? ", " : "", what, *what ? " " : "",
                          name, detail);
    ++*count;
}

/* True: the shape is another, which no option lets pass. */
static bool match_one(struct loading *loading, int32_t p, int choice, struct shoali_str *wrong,
                      int32_t *count)
{
    const struct shoali_module *module = &loading->engine->module;
    char own[128], theirs[128], detail[300];
    const char *name = module->param[p]->name;
    const shoal_shape *shape = shoal_param_shape(module->param[p]);
    loading->found[p] = find(&loading->checkpoint, name, choice);
    for (int32_t a = 0; loading->found[p] < 0 && a < module->alias_count; a++)
        if (module->alias[a].param == p)
            loading->found[p] = find(&loading->checkpoint, module->alias[a].name, choice);
    if (loading->found[p] < 0) {
        complain(wrong, count, "missing", name, "");
        return false;
    }
    const struct shoali_deepspeed_param *param = &loading->checkpoint.param[loading->found[p]];
    if (shoali_shape_equal(&param->shape, shape))
        return false;
    snprintf(detail, sizeof detail, " is %s and not %s", shoali_shape_format(&param->shape, theirs),
             shoali_shape_format(shape, own));
    complain(wrong, count, "", name, detail);
    return true;
}

static shoal_status match(struct loading *loading)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = &loading->engine->module;
    const struct shoali_deepspeed *checkpoint = &loading->checkpoint;
    struct shoali_str wrong = {0};
    int32_t count = 0;
    bool misfit = false;
    const int choice = choose_names(loading);
    bool *used = shoali_calloc((size_t)checkpoint->param_count + 1, sizeof *used, "parameters");
    loading->found = shoali_calloc((size_t)module->param_count + 1, sizeof *loading->found,
                                   "parameters of a checkpoint");
    if (!used || !loading->found) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t p = 0; p < module->param_count; p++) {
        misfit = match_one(loading, p, choice, &wrong, &count) || misfit;
        if (loading->found[p] >= 0)
            used[loading->found[p]] = true;
    }
    for (int32_t p = 0; p < checkpoint->param_count; p++)
        if (!used[p])
            complain(&wrong, &count, "extra", checkpoint->param[p].name, "");
    if (count > LISTED)
        shoali_str_append(&wrong, " and %d more", (int)(count - LISTED));
    if (count > 0 && loading->how->not_strict && !misfit && loading->engine->place.rank == 0)
        SHOALI_WARN("engine",
                    "%s: its parameters are not this model's: %s; missing parameters keep their "
                    "values, and extra ones are not read",
                    checkpoint->folder, shoali_str_get(&wrong));
    if (count > 0 && (misfit || !loading->how->not_strict))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: its parameters are not this model's: %s; give the flags of the "
                            "model that was trained (its vocabulary with "
                            "--make-vocab-size-divisible-by 1)",
                            checkpoint->folder, shoali_str_get(&wrong));
done:
    shoali_free(used);
    shoali_str_fini(&wrong);
    return status;
}

/* ---- numbers of parameters ---- */

static shoal_status load_range(struct loading *loading, int32_t kind, int32_t theirs, int64_t begin,
                               int64_t end)
{
    shoal_status status = SHOAL_OK;
    for (int64_t at = begin; at < end;) {
        const struct shoali_piece piece =
            shoali_module_piece(&loading->engine->module, at, end - at < PIECE ? end : at + PIECE);
        SHOAL_TRY(status,
                  shoali_deepspeed_read(&loading->checkpoint, loading->found[piece.param->index],
                                        theirs, piece.first, piece.count, loading->buffer),
                  done);
        if (kind == 0)
            shoali_narrowing_count(&loading->narrowing, at, loading->buffer, piece.count);
        SHOAL_TRY(status,
                  shoali_zero_write(loading->engine->zero, kind, at, piece.count, loading->buffer),
                  done);
        at += piece.count;
    }
done:
    return status;
}

static shoal_status load_kind(struct loading *loading, int32_t index, const char *name)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_kind kind;
    shoali_zero_get_kind(loading->engine->zero, index, &kind);
    const int32_t theirs = shoali_deepspeed_find_kind(&loading->checkpoint, name);
    if (theirs < 0 || kind.of != SHOALI_STATE_ELEMENT)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s has no `%s` of one value per element",
                          loading->checkpoint.folder, name);
    if (kind.replicated)
        SHOAL_TRY(status, load_range(loading, index, theirs, 0, kind.count), done);
    for (int32_t r = 0; r < kind.range_count && !kind.replicated; r++)
        SHOAL_TRY(status,
                  load_range(loading, index, theirs, kind.range[r].begin,
                             kind.range[r].begin + kind.range[r].count),
                  done);
done:
    return status;
}

/* Its files name the optimizer by hyperparameters alone; of Adam often not the kind of its weight
 * decay, which is then this run's. */
static shoal_status check_states(const struct loading *loading)
{
    const struct shoali_deepspeed *checkpoint = &loading->checkpoint;
    const struct shoali_optimizer *own = &loading->engine->optimizer;
    const char *name = checkpoint->numbers.optimizer;
    const bool adam = name && strcmp(name, "adam") == 0;
    struct shoali_stored_states stored = {.where = checkpoint->folder,
                                          .formula = name,
                                          .kind = checkpoint->kind,
                                          .kind_count = checkpoint->kind_count,
                                          .all_states = true};
    if (adam && checkpoint->numbers.decoupled == 0)
        stored.formula = "adam with adam_w_mode false";
    else if (adam && checkpoint->numbers.decoupled < 0 && strcmp(own->type->name, name) == 0)
        stored.formula = shoali_optimizer_formula(own);
    else if (adam)
        stored.formula = "adamw";
    if (checkpoint->numbers.formula)
        stored.formula = checkpoint->numbers.formula;
    return shoali_engine_check_states(loading->engine, &stored);
}

static shoal_status load_kinds(struct loading *loading, bool weights_only)
{
    shoal_status status;
    struct shoali_zero_kind kind;
    SHOAL_TRY(status, load_kind(loading, 0, "master"), done);
    for (int32_t k = 1; k < shoali_zero_kind_count(loading->engine->zero) && !weights_only; k++) {
        shoali_zero_get_kind(loading->engine->zero, k, &kind);
        if (strcmp(kind.name, "model") != 0)
            SHOAL_TRY(status, load_kind(loading, k, kind.name), done);
    }
done:
    return status;
}

/* ---- numbers of the training ---- */

static shoal_status take_scaler(struct loading *loading)
{
    const struct shoali_deepspeed_numbers *numbers = &loading->checkpoint.numbers;
    struct shoali_loss_scaler_state state;
    if (!numbers->dynamic_loss_scale || !(numbers->loss_scale > 0))
        return SHOAL_OK;
    shoali_loss_scaler_save(&loading->engine->step.scaler, &state);
    state.scale = numbers->loss_scale;
    if (numbers->scaler_iteration >= 0) {
        state.iteration = numbers->scaler_iteration;
        state.last_overflow = numbers->scaler_last_overflow;
    }
    if (numbers->scaler_hysteresis_left > 0)
        state.hysteresis_left = numbers->scaler_hysteresis_left;
    return shoali_loss_scaler_restore(&loading->engine->step.scaler, &state);
}

/* What the checkpoint leaves open, and what was put in its place. */
static void tell(const struct loading *loading)
{
    const struct shoali_deepspeed *checkpoint = &loading->checkpoint;
    const struct shoali_deepspeed_numbers *numbers = &checkpoint->numbers;
    const struct shoal_engine *engine = loading->engine;
    char stage[32];
    snprintf(stage, sizeof stage, "ZeRO stage %d", (int)numbers->stage);
    SHOALI_INFO("engine",
                "continuing from DeepSpeed %s's checkpoint %s (%s, %d rank%s): step %lld, of which "
                "%lld were applied; it does not record data order, seeds or dropout: this run's "
                "own are used from sample %lld on",
                numbers->version ? numbers->version : "(of a version that is not named)",
                checkpoint->folder, numbers->stage < 0 ? "universal" : stage, (int)numbers->ranks,
                numbers->ranks == 1 ? "" : "s", (long long)engine->step.global_steps,
                (long long)engine->step.applied_steps, (long long)engine->step.consumed_samples);
    if (numbers->train_batch_size > 0)
        shoali_engine_log_batch(engine, numbers->train_batch_size);
}

/* Samples that were consumed: as the checkpoint counts them, else of steps of its batch or of this
 * run's. Megatron's schedules count those of applied steps. */
static shoal_status take_samples(struct loading *loading)
{
    const struct shoali_deepspeed_numbers *numbers = &loading->checkpoint.numbers;
    struct shoal_engine *engine = loading->engine;
    const int64_t steps = engine->step.global_steps;
    const int64_t batch =
        numbers->train_batch_size > 0 ? numbers->train_batch_size : engine->step.batch.train;
    int64_t *consumed = &engine->step.consumed_samples, *applied = &engine->step.applied_samples;
    bool fits = true;
    if (numbers->global_samples >= 0)
        *consumed = numbers->global_samples;
    else
        fits = shoali_mul(steps, batch, consumed);
    if (engine->step.applied_steps == steps)
        *applied = *consumed;
    else
        fits = fits && shoali_mul(engine->step.applied_steps, batch, applied);
    if (fits)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s: %lld steps of %lld samples are more than 64 bits count",
                      loading->checkpoint.folder, (long long)steps, (long long)batch);
}

/* Of the schedule; without one, of the optimizer. DeepSpeed's 16-bit optimizers without ZeRO begin
 * with an update by nothing, which the schedule does not see. */
static int64_t applied_steps(const struct shoali_deepspeed_numbers *numbers, int64_t skipped)
{
    if (numbers->last_batch_iteration >= 0)
        return numbers->last_batch_iteration + 1;
    return numbers->optimizer_step >= 0 ? numbers->optimizer_step : numbers->global_steps - skipped;
}

static shoal_status take_numbers(struct loading *loading)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_deepspeed_numbers *numbers = &loading->checkpoint.numbers;
    struct shoal_engine *engine = loading->engine;
    if (numbers->global_steps < 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: it does not say how many steps it has done (`global_steps`); load "
                          "its weights only (--finetune)",
                          loading->checkpoint.folder);
    const int64_t skipped = numbers->skipped_steps > 0 ? numbers->skipped_steps : 0;
    SHOAL_TRY(status, take_scaler(loading), done);
    engine->step.global_steps = numbers->global_steps;
    engine->step.applied_steps = applied_steps(numbers, skipped);
    engine->step.optimizer_ahead =
        numbers->optimizer_step >= 0 ? numbers->optimizer_step - engine->step.applied_steps : 0;
    engine->step.info.skipped_steps = skipped;
    SHOAL_TRY(status, take_samples(loading), done);
    if (engine->place.rank == 0)
        tell(loading);
done:
    return status;
}

static shoal_status load(struct shoal_engine *engine, const shoal_load_args *how)
{
    shoal_status status;
    struct loading loading = {.engine = engine, .how = how};
    const bool module_only = how->module_only || engine->inference;
    SHOAL_TRY(status, shoali_deepspeed_open(how->dir, how->tag, &loading.checkpoint), done);
    loading.buffer = shoali_malloc(PIECE * sizeof *loading.buffer, "a piece of a checkpoint");
    if (!loading.buffer) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, match(&loading), done);
    if (!module_only && !how->no_optimizer_states)
        SHOAL_TRY(status, check_states(&loading), done);
    SHOAL_TRY(status, shoali_narrowing_init(&loading.narrowing, engine), done);
    SHOAL_TRY(status, load_kinds(&loading, module_only || how->no_optimizer_states), done);
    SHOAL_TRY(status, shoali_narrowing_check(&loading.narrowing, how->dir), done);
    SHOAL_TRY(status, shoali_zero_masters_changed(engine->zero), done);
    if (!module_only)
        SHOAL_TRY(status, take_numbers(&loading), done);
done:
    shoali_deepspeed_close(&loading.checkpoint);
    shoali_free(loading.found);
    shoali_free(loading.buffer);
    shoali_narrowing_fini(&loading.narrowing);
    return status;
}

static shoal_status peek(const char *dir, const char *tag, int64_t *step)
{
    struct shoali_deepspeed checkpoint;
    const shoal_status status = shoali_deepspeed_open(dir, tag, &checkpoint);
    if (status == SHOAL_OK && step)
        *step = checkpoint.numbers.global_steps > 0 ? checkpoint.numbers.global_steps : 0;
    shoali_deepspeed_close(&checkpoint);
    return status;
}

const struct shoali_foreign_checkpoint shoali_checkpoint_deepspeed = {
    .name = "DeepSpeed",
    .probe = shoali_deepspeed_is,
    .folder = shoali_deepspeed_folder,
    .peek = peek,
    .load = load,
};
