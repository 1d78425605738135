/* Optimizer states of a checkpoint: whether they mean to this run's optimizer what they meant to
 * the one that made them. Of what lives across steps they and the engine's numbers are all that a
 * checkpoint has; shoali_engine_forget_unsaved names the rest. */
#include "engine/save/checkpoint.h"

#include <jansson.h>
#include <string.h>

#define HOW_TO_DROP                                                                               \
    "give that optimizer, or drop its states with --no-load-optim (--finetune: start at step 0, " \
    "too)"

/* ---- the formula ---------------------------------------------------------------------------- */

static shoal_status check_formula(const struct shoal_engine *engine,
                                  const struct shoali_stored_states *stored)
{
    const char *own = shoali_optimizer_formula(&engine->optimizer);
    if (!stored->formula) {
        if (engine->place.rank == 0)
            SHOALI_WARN("engine",
                        "%s does not say which optimizer made its states: they are taken as those "
                        "of `%s`",
                        stored->where, own);
        return SHOAL_OK;
    }
    if (strcmp(stored->formula, own) != 0)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%s has optimizer states of `%s`, and this run another optimizer, `%s`: " HOW_TO_DROP,
            stored->where, stored->formula, own);
    if (stored->optimizer && strcmp(stored->optimizer, engine->optimizer.type->name) != 0 &&
        engine->place.rank == 0)
        SHOALI_WARN("engine",
                    "%s was trained with optimizer `%s`, this run uses `%s`: both are `%s`, so its "
                    "states are continued",
                    stored->where, stored->optimizer, engine->optimizer.type->name, own);
    return SHOAL_OK;
}

/* ---- kinds ---------------------------------------------------------------------------------- */

static bool is_weights(const char *name)
{
    return strcmp(name, "model") == 0 || strcmp(name, "master") == 0;
}

static bool keeps(const struct shoal_engine *engine, const char *name)
{
    struct shoali_zero_kind kind;
    for (int32_t k = 0; k < shoali_zero_kind_count(engine->zero); k++) {
        shoali_zero_get_kind(engine->zero, k, &kind);
        if (strcmp(kind.name, name) == 0)
            return true;
    }
    return false;
}

static bool has(const struct shoali_stored_states *stored, const char *name)
{
    for (int32_t i = 0; i < stored->kind_count; i++)
        if (strcmp(stored->kind[i], name) == 0)
            return true;
    return false;
}

/* A state that would be lost. One that no optimizer here keeps is news of a later version, or what
 * another program's optimizer is another one for. */
static shoal_status check_kind(const struct shoal_engine *engine,
                               const struct shoali_stored_states *stored, const char *name)
{
    if (is_weights(name) || keeps(engine, name))
        return SHOAL_OK;
    if (stored->all_states || shoali_optimizer_is_state(name))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s has a state `%s`, which `%s` as configured here does not keep: it "
                          "was trained with another optimizer; " HOW_TO_DROP,
                          stored->where, name, shoali_optimizer_formula(&engine->optimizer));
    if (engine->place.rank == 0)
        SHOALI_WARN("engine", "%s has `%s`, which this version does not know: it is not read",
                    stored->where, name);
    return SHOAL_OK;
}

shoal_status shoali_engine_check_states(const struct shoal_engine *engine,
                                        const struct shoali_stored_states *stored)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_kind kind;
    SHOAL_TRY(status, check_formula(engine, stored), done);
    for (int32_t i = 0; i < stored->kind_count; i++)
        SHOAL_TRY(status, check_kind(engine, stored, stored->kind[i]), done);
    for (int32_t k = 1; k < shoali_zero_kind_count(engine->zero); k++) {
        shoali_zero_get_kind(engine->zero, k, &kind);
        if (is_weights(kind.name) || has(stored, kind.name))
            continue;
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s has no state `%s`, which `%s` as configured here needs: it was "
                            "trained with another optimizer; " HOW_TO_DROP,
                            stored->where, kind.name, shoali_optimizer_formula(&engine->optimizer));
        goto done;
    }
done:
    return status;
}

/* ---- Shoal's own checkpoints ---------------------------------------------------------------- */

/* Older ones say `adam` for both of its modes: as this run's, when it is adam too; else the usual
 * one. */
static const char *formula_of(const struct shoal_engine *engine, const char *optimizer,
                              const char *formula)
{
    if (formula || !optimizer || strcmp(optimizer, "adam") != 0)
        return formula ? formula : optimizer;
    return strcmp(engine->optimizer.type->name, optimizer) == 0
               ? shoali_optimizer_formula(&engine->optimizer)
               : "adamw";
}

shoal_status shoali_engine_check_stored(const struct shoal_engine *engine,
                                        const struct shoali_checkpoint_info *info,
                                        const char *folder)
{
    shoal_status status;
    json_t *object = NULL;
    struct shoali_str where = {0};
    const char *kind[16];
    SHOAL_TRY(status, shoali_json_read(info->engine_json, strlen(info->engine_json), &object, NULL),
              done);
    shoali_str_append(&where, "the checkpoint %s/%s", folder, info->tag);
    for (int32_t i = 0; i < info->kind_count; i++)
        kind[i] = info->kind_name[i];
    const char *optimizer = json_string_value(json_object_get(object, "optimizer"));
    const char *formula = json_string_value(json_object_get(object, "optimizer_formula"));
    const struct shoali_stored_states stored = {.where = shoali_str_get(&where),
                                                .optimizer = optimizer,
                                                .formula = formula_of(engine, optimizer, formula),
                                                .kind = kind,
                                                .kind_count = info->kind_count};
    if (where.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a checkpoint's name");
    else
        SHOAL_TRY(status, shoali_engine_check_states(engine, &stored), done);
done:
    shoali_str_fini(&where);
    json_decref(object);
    return status;
}

bool shoali_engine_add_optimizer(json_t *object, const struct shoali_optimizer *optimizer)
{
    const char *formula = shoali_optimizer_formula(optimizer);
    if (strcmp(formula, optimizer->type->name) != 0 &&
        json_object_set_new(object, "optimizer_formula", json_string(formula)) != 0)
        return false;
    return json_object_set_new(object, "betas",
                               json_pack("[f, f]", optimizer->beta[0], optimizer->beta[1])) == 0 &&
           json_object_set_new(object, "weight_decay", json_real(optimizer->weight_decay)) == 0;
}

void shoali_engine_log_optimizer(const struct shoal_engine *engine, const json_t *object)
{
    const struct shoali_optimizer *own = &engine->optimizer;
    const json_t *betas = json_object_get(object, "betas");
    const json_t *decay = json_object_get(object, "weight_decay");
    const double first = json_number_value(json_array_get(betas, 0));
    const double second = json_number_value(json_array_get(betas, 1));
    if (betas && (first != own->beta[0] || second != own->beta[1]))
        SHOALI_WARN("engine",
                    "the checkpoint was trained with betas (SGD: momentum, 0) %g, %g, this run "
                    "uses %g, %g",
                    first, second, own->beta[0], own->beta[1]);
    if (decay && json_number_value(decay) != own->weight_decay)
        SHOALI_WARN("engine", "the checkpoint was trained with weight_decay %g, this run uses %g",
                    json_number_value(decay), own->weight_decay);
}

/* ---- what no checkpoint has ----------------------------------------------------------------- */

void shoali_engine_forget_unsaved(struct shoal_engine *engine, bool warn)
{
    if (shoali_zero_forget_errors(engine->zero) && warn && engine->place.rank == 0 &&
        engine->step.global_steps > 0)
        SHOALI_WARN("engine",
                    "zeropp_loco_param: a checkpoint does not have LoCo's errors of quantized "
                    "gradients: on any layout they begin at 0, as after reset_T steps, so the next "
                    "steps are not those of an uninterrupted run");
}
