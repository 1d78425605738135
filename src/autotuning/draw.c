/* draw.c - a pipeline that nobody runs: its stages, its bubble, its picture. */
#include "autotuning/autotuning.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

/* What a drawing is made of, in its arena. */
struct drawing {
    struct shoali_settings settings;
    struct shoali_arena arena;
    struct shoali_batch_sizes batch;
    struct shoali_costs costs;
    struct shoali_pipeline_args pipeline;
    struct shoali_speeds speeds;
    bool seconds;
    struct shoali_virtual_stages stages;
    struct shoali_orders orders;
    struct shoali_timeline timeline, equal;
};

/* The mesh of the ranks, as arithmetic. */
static shoal_status read_mesh(struct drawing *drawing, const shoal_plan_rates *rates)
{
    shoal_status status;
    shoal_mesh *mesh = NULL;
    const shoal_plan_args *plan = &drawing->settings.plan;
    SHOAL_TRY(status, shoali_plan_mesh(plan, NULL, &mesh), done);
    if (rates)
        SHOAL_TRY(status, shoali_speeds_of(rates, mesh, &drawing->speeds), done);
    drawing->seconds = rates && (rates->flops > 0 || rates->memory_bytes > 0);
    SHOAL_TRY(status,
              shoali_batch_triad(&drawing->settings.config, shoal_mesh_size(mesh, SHOAL_AXIS_DP),
                                 &drawing->batch),
              done);
done:
    shoal_mesh_destroy(mesh);
    return status;
}

static shoal_status prepare(struct drawing *drawing, const shoal_plan_rates *rates)
{
    shoal_status status;
    const shoal_plan_args *plan = &drawing->settings.plan;
    SHOAL_TRY(status, read_mesh(drawing, rates), done);
    SHOAL_TRY(status,
              shoali_virtual_stages_pipeline(&drawing->settings, drawing->batch.accumulation,
                                             &drawing->pipeline),
              done);
    SHOAL_TRY(status,
              shoali_costs_make(&drawing->settings,
                                &(struct shoali_costs_args){
                                    .tensor = plan->tensor > 1 ? plan->tensor : 1,
                                    .micro_batch = drawing->batch.micro,
                                    .sequence_parallel = drawing->settings.engine.sequence_parallel,
                                    .as_given = true},
                                &drawing->arena, &drawing->costs),
              done);
    SHOAL_TRY(status,
              shoali_virtual_stages_make(
                  &(struct shoali_virtual_stages_args){.costs = &drawing->costs,
                                                       .pipeline = &drawing->pipeline,
                                                       .speeds = drawing->seconds ? &drawing->speeds
                                                                                  : NULL,
                                                       .settings = &drawing->settings},
                  &drawing->arena, &drawing->stages),
              done);
    SHOAL_TRY(status, shoali_orders_make(&drawing->pipeline, &drawing->arena, &drawing->orders),
              done);
    SHOAL_TRY(status,
              shoali_timeline_make(&drawing->orders, &drawing->stages.durations, &drawing->arena,
                                   &drawing->timeline),
              done);
    SHOAL_TRY(status,
              shoali_timeline_make(&drawing->orders, NULL, &drawing->arena, &drawing->equal), done);
done:
    return status;
}

static shoal_status fill_stage(struct drawing *drawing, int32_t stage, shoal_layout_stage *out)
{
    shoal_status status;
    const struct shoali_virtual_stages *stages = &drawing->stages;
    struct shoali_instructions list;
    int64_t slot = 0;
    *out = (shoal_layout_stage){0};
    SHOAL_TRY(status, shoali_instructions_make(&drawing->pipeline, stage, &drawing->arena, &list),
              done);
    for (int32_t k = stage; k < stages->count; k += drawing->pipeline.stages) {
        const int64_t bytes = shoali_virtual_stages_slot_bytes(
            &drawing->costs, stages, k, drawing->pipeline.schedule == SHOALI_ZB_H1);
        slot = bytes > slot ? bytes : slot;
        out->layers += stages->begin[k + 1] - stages->begin[k];
        out->forward += stages->forward[k];
        out->backward += stages->backward_input[k] + stages->backward_weight[k];
        for (int32_t l = stages->begin[k]; l < stages->begin[k + 1]; l++)
            out->parameters += drawing->costs.layer[l].parameters +
                               (stage > 0 ? drawing->costs.layer[l].tied_parameters : 0);
    }
    out->in_flight = list.slots;
    out->activations_bytes = list.slots * slot;
done:
    return status;
}

/* Finished by a free(): the caller may have another allocator of strings than ours. */
static shoal_status draw(const struct drawing *drawing, char **svg)
{
    struct shoali_str text = {0};
    shoali_timeline_draw(&drawing->orders, &drawing->timeline, &text);
    const char *drawn = shoali_str_get(&text);
    *svg = text.failed ? NULL : malloc(strlen(drawn) + 1);
    if (*svg)
        strcpy(*svg, drawn);
    shoali_str_fini(&text);
    return *svg ? SHOAL_OK : SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a picture of the pipeline");
}

shoal_status shoal_layout_draw(const shoal_engine_args *engine, const shoal_plan_args *given_plan,
                               const shoal_plan_rates *rates, shoal_layout_pipeline *pipeline,
                               shoal_layout_stage *stages, int32_t capacity, char **svg)
{
    shoal_status status;
    const shoal_plan_args plan = given_plan ? *given_plan : (shoal_plan_args){0};
    shoal_layout_pipeline found = {0};
    struct drawing drawing = {0};
    shoali_arena_init(&drawing.arena);
    if (svg)
        *svg = NULL;
    SHOAL_TRY(status, shoali_settings_init(&drawing.settings, engine, &plan), done);
    SHOAL_TRY(status, prepare(&drawing, rates), done);
    found = (shoal_layout_pipeline){.schedule =
                                        shoali_pipeline_schedule_name(drawing.pipeline.schedule),
                                    .stages = drawing.pipeline.stages,
                                    .chunks = drawing.pipeline.chunks,
                                    .micro_batches = drawing.pipeline.micro_batches,
                                    .seconds = drawing.seconds,
                                    .step = drawing.timeline.makespan,
                                    .ideal = drawing.timeline.ideal,
                                    .bubble = shoali_timeline_bubble(&drawing.timeline),
                                    .equal_bubble = shoali_timeline_bubble(&drawing.equal)};
    for (int32_t s = 0; stages && s < found.stages && s < capacity; s++)
        SHOAL_TRY(status, fill_stage(&drawing, s, &stages[s]), done);
    if (svg)
        SHOAL_TRY(status, draw(&drawing, svg), done);
done:
    if (pipeline)
        *pipeline = found;
    shoali_settings_fini(&drawing.settings);
    shoali_arena_fini(&drawing.arena);
    return status;
}
