/* predict.c - the step of the layout that the arguments say. */
#include "autotuning/search.h"

static shoal_status find_pipeline(const struct shoali_search *search, int64_t micro_batches,
                                  struct shoali_pipeline_args *pipeline)
{
    if (search->settings.plan.pipeline > 1)
        return shoali_virtual_stages_pipeline(&search->settings, micro_batches, pipeline);
    if (micro_batches > INT32_MAX / 8)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a step of %lld micro-batches is too long: give at most "
                          "%d",
                          (long long)micro_batches, INT32_MAX / 8);
    *pipeline = (struct shoali_pipeline_args){.schedule = SHOALI_1F1B,
                                              .stages = 1,
                                              .chunks = 1,
                                              .micro_batches = (int32_t)micro_batches,
                                              .group = 1,
                                              .training = true};
    return SHOAL_OK;
}

static shoal_status predict(struct shoali_search *search, shoal_layout *layout)
{
    shoal_status status;
    const shoal_plan_args *plan = &search->settings.plan;
    const shoal_engine_args *engine = &search->settings.engine;
    const struct shoali_ds_config *config = &search->settings.config;
    struct shoali_batch_sizes batch;
    struct shoali_costs costs;
    struct shoali_shape shape = {.costs = &costs, .group = engine->micro_batch_group};
    shoal_mesh *mesh = NULL;
    SHOAL_TRY(status, shoali_plan_mesh(plan, NULL, &mesh), done);
    shape.data = shoal_mesh_size(mesh, SHOAL_AXIS_DP);
    SHOAL_TRY(status, shoali_speeds_of(&search->rates, mesh, &shape.speeds), done);
    SHOAL_TRY(status, shoali_batch_triad(config, shape.data, &batch), done);
    search->train_batch = batch.train;
    shape.cost_args = (struct shoali_costs_args){.tensor = plan->tensor > 1 ? plan->tensor : 1,
                                                 .micro_batch = batch.micro,
                                                 .sequence_parallel = engine->sequence_parallel,
                                                 .recompute = engine->recompute_granularity,
                                                 .as_given = true};
    SHOAL_TRY(status, find_pipeline(search, batch.accumulation, &shape.pipeline), done);
    SHOAL_TRY(status,
              shoali_costs_make(&search->settings, &shape.cost_args, &search->arena, &costs), done);
    SHOAL_TRY(status, shoali_search_one(search, &shape, (int32_t)config->zero_optimization.stage),
              done);
    *layout = search->kept[0].layout;
done:
    shoal_mesh_destroy(mesh);
    return status;
}

shoal_status shoal_layout_predict(const shoal_engine_args *engine,
                                  const shoal_plan_args *given_plan, const shoal_plan_rates *rates,
                                  shoal_layout *layout)
{
    shoal_status status;
    shoal_plan_args plan = given_plan ? *given_plan : (shoal_plan_args){0};
    struct shoali_search *search = shoali_calloc(1, sizeof *search, "a prediction");
    *layout = (shoal_layout){0};
    if (!search)
        return SHOAL_ENOMEM;
    shoali_arena_init(&search->arena);
    shoali_arena_init(&search->scratch);
    shoal_plan_set_limit(INT64_MAX, &search->limit);
    search->rates = *rates;
    if (search->rates.flops <= 0 && search->rates.memory_bytes <= 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "a prediction needs a rate: give the rate of "
                                          "arithmetic or of memory");
        goto done;
    }
    plan.world_size = plan.world_size > 1 ? plan.world_size : 1;
    SHOAL_TRY(status, shoali_settings_init(&search->settings, engine, &plan), done);
    SHOAL_TRY(status, predict(search, layout), done);
done:
    shoali_settings_fini(&search->settings);
    shoali_arena_fini(&search->scratch);
    shoali_arena_fini(&search->arena);
    shoali_free(search);
    return status;
}
