/* Who shares which block of a parameter: the mesh answers, module and zero are told. */
#include "engine/engine.h"

enum { PLACES_MAX = 2 * 4 };

/* Axes of the dense generator whose ranks compute the same micro-batches. */
static shoal_axes same_axes(const struct shoal_engine *engine)
{
    return engine->admitted & ~SHOAL_AXIS_EP;
}

/* The mesh given, else the one that the configuration asks for; and what this engine asks it. */
shoal_status shoali_engine_open_mesh(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status;
    engine->mesh = args->mesh;
    if (!args->mesh) {
        shoal_mesh_args sizes = {.group = args->group};
        SHOAL_TRY(status, shoali_config_mesh(&engine->config, &sizes), done);
        SHOAL_TRY(status, shoal_mesh_create(&sizes, &engine->own_mesh), done);
        engine->mesh = engine->own_mesh;
    }
    SHOAL_TRY(status, shoali_config_check_mesh(&engine->config, engine->mesh), done);
    engine->rank = shoal_mesh_rank(engine->mesh);
    engine->world = shoal_mesh_ranks(engine->mesh);
    engine->data_ranks = shoal_mesh_size(engine->mesh, SHOAL_AXIS_DP);
    engine->data_rank = shoal_mesh_coordinate(engine->mesh, SHOAL_AXIS_DP, engine->rank);
    SHOAL_TRY(status, shoali_stages_init(engine, args), done);
    if (engine->data_ranks * shoal_mesh_size(engine->mesh, same_axes(engine)) *
            engine->stages.count !=
        engine->world) {
        char where[64];
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                            "the engine divides samples and layers alone yet, and of the mesh's %d "
                            "ranks %d are along dp and %d along pp (this one is %s): give a mesh "
                            "without other axes",
                            (int)engine->world, (int)engine->data_ranks, (int)engine->stages.count,
                            shoal_mesh_format(engine->mesh, engine->rank, where, sizeof where));
        goto done;
    }
    if (engine->world > 1 && !engine->group) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "the engine was given a mesh of %d ranks without a group, so there is "
                            "nobody to train with: set shoal_mesh_args.group",
                            (int)engine->world);
        goto done;
    }
    SHOAL_TRY(status,
              shoal_mesh_group(engine->mesh, (SHOAL_AXIS_DP | SHOAL_AXIS_CP) & ~engine->admitted,
                               &engine->data_group),
              done);
done:
    return status;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void add_place(const struct shoal_engine *engine, shoal_axes axis,
                      struct shoali_axis_place *places, int32_t *count)
{
    const int32_t ways = shoal_mesh_size(engine->mesh, axis);
    if (ways > 1)
        places[(*count)++] = (struct shoali_axis_place){
            axis, ways, shoal_mesh_coordinate(engine->mesh, axis, engine->rank)};
}

/* A block of a parameter that a layer takes for the whole would train something else. */
static shoal_status check_cuts(const struct shoal_engine *engine)
{
    for (int32_t i = 0; i < engine->module.param_count; i++) {
        const struct shoal_param *param = engine->module.param[i];
        if (param->cut_by & ~(engine->admitted | SHOAL_AXIS_EXPERT))
            return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                              "parameter %s is split along an axis of %d ranks, and no layer "
                              "computes with a part of it yet: give a mesh where that axis has one "
                              "rank",
                              param->name, (int)shoal_mesh_size(engine->mesh, param->cut_by));
    }
    return SHOAL_OK;
}

shoal_status shoali_engine_declare(struct shoal_engine *engine, shoal_dtype dtype)
{
    shoal_status status;
    static const shoal_axes axes[] = {SHOAL_AXIS_TP, SHOAL_AXIS_CP, SHOAL_AXIS_EP, SHOAL_AXIS_PP};
    struct shoali_axis_place places[PLACES_MAX];
    int32_t count = 0;
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        add_place(engine, axes[i], places, &count);
        add_place(engine, axes[i] | SHOAL_AXIS_EXPERT, places, &count);
    }
    SHOAL_TRY(status, shoali_module_init(&engine->module, engine->model, dtype, places, count),
              done);
    SHOAL_TRY(status, check_cuts(engine), done);
done:
    return status;
}

/* ---- zero ------------------------------------------------------------------------------------ */

/* Along the axes that do not cut it ranks hold the same of a parameter; the first counts it. */
static bool is_counted_elsewhere(const struct shoal_engine *engine, const struct shoal_param *param)
{
    const shoal_axes expert = param->cut_by & SHOAL_AXIS_EXPERT;
    const shoal_axes along = expert ? engine->admitted | SHOAL_AXIS_EP : same_axes(engine);
    if (engine->stages.count > 1 && engine->stages.index > engine->stages.first_stage[param->index])
        return param->count > 0 && engine->module.param[param->index]->uses > 1;
    return shoal_mesh_coordinate(engine->mesh, (along & ~param->cut_by) | expert, engine->rank) > 0;
}

shoal_status shoali_engine_share_blocks(struct shoal_engine *engine, struct shoali_zero_args *args)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = &engine->module;
    const size_t count = (size_t)module->param_count + 1;
    int32_t *cut_of = shoali_arena_alloc(&engine->config.arena, count * sizeof *cut_of);
    bool *elsewhere = shoali_arena_alloc(&engine->config.arena, count * sizeof *elsewhere);
    bool expert = false, any = false;
    if (!cut_of || !elsewhere)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < module->param_count; i++) {
        cut_of[i] = (module->param[i]->cut_by & SHOAL_AXIS_EXPERT) != 0;
        elsewhere[i] = is_counted_elsewhere(engine, module->param[i]);
        expert = expert || cut_of[i];
        any = any || elsewhere[i];
    }
    if (expert)
        SHOAL_TRY(status,
                  shoal_mesh_group(engine->mesh, SHOAL_AXIS_DP | SHOAL_AXIS_EXPERT,
                                   &engine->expert_group),
                  done);
    args->group = engine->data_group;
    args->everyone = engine->group;
    args->cuts = expert ? &engine->expert_group : NULL;
    args->cut_count = expert;
    args->cut_of = expert ? cut_of : NULL;
    engine->loss_elsewhere =
        shoal_mesh_coordinate(engine->mesh, same_axes(engine), engine->rank) > 0;
    args->loss_elsewhere = engine->loss_elsewhere;
    args->counted_elsewhere = any ? elsewhere : NULL;
done:
    return status;
}
