/* verify.c - real plans of a layout. */
#include "autotuning/autotuning.h"

#include <stdlib.h>

static void describe(const struct shoali_settings *settings, const shoal_layout *layout, char *text,
                     shoal_engine_args *engine, shoal_plan_args *plan)
{
    *engine = settings->engine;
    engine->config_path = NULL;
    engine->config_text = text;
    engine->group = NULL;
    engine->mesh = NULL;
    engine->recompute_granularity = layout->recompute;
    engine->recompute_method = NULL;
    engine->recompute_num_layers = 0;
    engine->recompute_modules = NULL;
    engine->sequence_parallel = layout->sequence_parallel;
    engine->pipeline_schedule = layout->schedule;
    engine->virtual_stages = layout->chunks > 1 ? layout->chunks : 0;
    engine->micro_batch_group = layout->micro_batch_group;
    if (layout->partition)
        engine->partition_method = layout->partition;
    *plan = settings->plan;
    plan->tensor = layout->tensor;
    plan->pipeline = layout->pipeline;
}

shoal_status shoali_verify(const struct shoali_settings *settings, const shoal_plan_limit *limit,
                           int32_t worst, shoal_layout *layout, shoal_plan_verdict *verdict)
{
    shoal_status status;
    char *text = NULL;
    shoal_mesh *mesh = NULL;
    shoal_engine_args engine;
    shoal_plan_args args;
    const struct shoali_batch_sizes batch = {layout->micro_batch * layout->accumulation *
                                                 layout->data,
                                             layout->micro_batch, layout->accumulation};
    *verdict = (shoal_plan_verdict){.missing_bytes = INT64_MIN};
    SHOAL_TRY(status, shoali_settings_write(settings, layout->stage, &batch, &text), done);
    describe(settings, layout, text, &engine, &args);
    SHOAL_TRY(status, shoali_plan_mesh(&args, NULL, &mesh), done);
    layout->memory_bytes = 0;
    for (int32_t s = 0; s < layout->pipeline; s++) {
        shoal_plan made;
        shoal_plan_verdict found;
        if (s != 0 && s != worst && s != layout->pipeline - 1)
            continue;
        args.rank = shoal_mesh_member(mesh, SHOAL_AXIS_PP, 0, s);
        SHOAL_TRY(status, shoal_plan_make(&engine, &args, &made), done);
        shoal_plan_check(&made, limit, &found);
        if (made.device_bytes > layout->memory_bytes)
            layout->memory_bytes = made.device_bytes;
        if (found.missing_bytes > verdict->missing_bytes)
            *verdict = found;
    }
    layout->planned = true;
done:
    free(text);
    shoal_mesh_destroy(mesh);
    return status;
}
