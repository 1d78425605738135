/* Which parameter is updated by which values: from names and shapes to rules. */
#include "engine/engine.h"

#include "base/str.h"

#include <stdio.h>

shoal_status shoali_engine_make_groups(struct shoal_engine *engine)
{
    struct shoali_ds_config *config = &engine->config;
    const int32_t count = engine->module.param_count;
    if (engine->inference)
        return SHOAL_OK;
    engine->param_about =
        shoali_arena_alloc(&config->arena, ((size_t)count + 1) * sizeof *engine->param_about);
    if (!engine->param_about)
        return SHOAL_ENOMEM;
    for (int32_t p = 0; p < count; p++) {
        const struct shoal_param *param = engine->module.param[p];
        engine->param_about[p] =
            (struct shoali_param_about){.name = param->name,
                                        .ndim = param->shape.ndim,
                                        .count = shoal_param_count(param),
                                        .no_decay = (param->tags & SHOAL_PARAM_NO_DECAY) != 0,
                                        .frozen = (param->tags & SHOAL_PARAM_FROZEN) != 0,
                                        .lr_mult = param->lr_mult};
    }
    return shoali_param_groups_make(&config->optimizer, config->document, "optimizer",
                                    &engine->optimizer, engine->param_about, count, &config->arena,
                                    &engine->param_groups);
}

const char *shoal_engine_describe_weight_decay(const shoal_engine *engine, char *text, size_t bytes)
{
    struct shoali_str out = {0};
    if (!engine->inference)
        shoali_param_groups_describe(&engine->param_groups, &engine->config.optimizer,
                                     engine->param_about, engine->module.param_count, &out);
    if (bytes > 0)
        snprintf(text, bytes, "%s", shoali_str_get(&out));
    shoali_str_fini(&out);
    return text;
}
