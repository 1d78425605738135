/* Trainable parameters that no micro-batch of a step gave a gradient to, on any rank. */
#include "base/str.h"
#include "engine/engine.h"

/* In a plan nobody says what other stages of a pipeline did. */
static bool is_unused(const struct shoal_engine *engine, const struct shoal_param *param)
{
    return !param->has_gradient && (param->uses_here > 0 || !engine->meta) &&
           (param->tags & SHOAL_PARAM_FROZEN) == 0 && shoal_param_count(param) > 0;
}

void shoali_engine_reset_unused(struct shoal_engine *engine)
{
    for (int32_t i = 0; i < engine->module.param_count; i++)
        engine->module.param[i]->has_gradient = false;
}

/* The first names, and how many more there are. */
static void list_unused(const struct shoal_engine *engine, struct shoali_str *names)
{
    enum { NAMED = 8 };
    int32_t found = 0;
    for (int32_t i = 0; i < engine->module.param_count; i++) {
        const struct shoal_param *param = engine->module.param[i];
        if (is_unused(engine, param) && found++ < NAMED)
            shoali_str_append(names, "%s%s", found > 1 ? ", " : "", param->name);
    }
    if (found > NAMED)
        shoali_str_append(names, " and %d more", (int)(found - NAMED));
}

static shoal_status refuse(const struct shoal_engine *engine)
{
    struct shoali_str names = {0};
    list_unused(engine, &names);
    const shoal_status status = SHOAL_FAIL(
        SHOAL_EINVAL,
        "step %lld: no rank and no micro-batch gave a gradient to %s; nothing was updated. Use "
        "them "
        "in the forward pass, freeze them, or set zero_optimization.ignore_unused_parameters to "
        "true",
        (long long)engine->step.global_steps + 1, shoali_str_get(&names));
    shoali_str_fini(&names);
    return status;
}

shoal_status shoali_engine_check_unused(struct shoal_engine *engine)
{
    bool any = false;
    for (int32_t i = 0; i < engine->module.param_count; i++) {
        struct shoal_param *param = engine->module.param[i];
        if (!is_unused(engine, param))
            continue;
        any = true;
        if (!engine->config.zero_optimization.ignore_unused_parameters || param->named_unused)
            continue;
        param->named_unused = true;
        if (engine->place.rank == 0)
            shoali_log(SHOAL_LOG_WARNING, "engine",
                       "step %lld: parameter %s got no gradient from any micro-batch of any rank; "
                       "it is updated as if its gradient were zero",
                       (long long)engine->step.global_steps + 1, param->name);
    }
    return any && !engine->config.zero_optimization.ignore_unused_parameters ? refuse(engine)
                                                                             : SHOAL_OK;
}
