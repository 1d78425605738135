/* Who shares which block of a parameter: the mesh answers, module and zero are told. */
#include "engine/engine.h"
#include "tensor_parallel/autotp.h"

enum { PLACES_MAX = 2 * 4 };

/* Axes of the dense generator whose ranks compute the same micro-batches: along tp each a part of
 * every layer. */
static shoal_axes same_axes(const struct shoal_engine *engine)
{
    return (engine->place.admitted | SHOAL_AXIS_TP) & ~SHOAL_AXIS_EP;
}

/* Groups are made by all ranks of the mesh, whatever their stage has. */
static shoal_status open_tensor_parallel(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status;
    shoal_group *together;
    struct shoali_tensor_parallel *tp = &engine->place.tensor_parallel;
    const int32_t ranks = shoal_mesh_size(engine->place.mesh, SHOAL_AXIS_TP);
    if (ranks == 1)
        return SHOAL_OK;
    *tp = (struct shoali_tensor_parallel){
        .ranks = ranks,
        .rank = shoal_mesh_coordinate(engine->place.mesh, SHOAL_AXIS_TP, engine->place.rank),
        .sequence = args->sequence_parallel,
        .overlap = !args->no_async_tensor_parallel,
    };
    SHOAL_TRY(status, shoal_mesh_group(engine->place.mesh, SHOAL_AXIS_TP, &tp->group), done);
    SHOAL_TRY(status,
              shoal_mesh_group(engine->place.mesh, SHOAL_AXIS_DP | SHOAL_AXIS_TP, &together), done);
done:
    return status;
}

/* The mesh given, else the one that the configuration asks for; and what this engine asks it. */
shoal_status shoali_engine_open_mesh(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status;
    engine->place.mesh = args->mesh;
    if (!args->mesh) {
        shoal_mesh_args sizes = {.group = args->group};
        SHOAL_TRY(status, shoali_config_mesh(&engine->config, &sizes), done);
        SHOAL_TRY(status, shoal_mesh_create(&sizes, &engine->place.own_mesh), done);
        engine->place.mesh = engine->place.own_mesh;
    }
    SHOAL_TRY(status, shoali_config_check_mesh(&engine->config, engine->place.mesh), done);
    engine->place.rank = shoal_mesh_rank(engine->place.mesh);
    engine->place.world = shoal_mesh_ranks(engine->place.mesh);
    engine->place.data_ranks = shoal_mesh_size(engine->place.mesh, SHOAL_AXIS_DP);
    engine->place.data_rank =
        shoal_mesh_coordinate(engine->place.mesh, SHOAL_AXIS_DP, engine->place.rank);
    SHOAL_TRY(status, shoali_stages_init(engine, args), done);
    if (engine->place.data_ranks * shoal_mesh_size(engine->place.mesh, same_axes(engine)) *
            engine->stages.count !=
        engine->place.world) {
        char where[64];
        status = SHOAL_FAIL(
            SHOAL_EUNSUPPORTED,
            "the engine supports data, tensor and pipeline parallelism only: of the "
            "mesh's %d ranks %d are along dp, %d along tp and %d along pp (this one is "
            "%s); give a mesh without other axes",
            (int)engine->place.world, (int)engine->place.data_ranks,
            (int)shoal_mesh_size(engine->place.mesh, SHOAL_AXIS_TP), (int)engine->stages.count,
            shoal_mesh_format(engine->place.mesh, engine->place.rank, where, sizeof where));
        goto done;
    }
    if (engine->place.world > 1 && !engine->place.group) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "the engine was given a mesh of %d ranks without a group, over which "
                            "they communicate: set shoal_mesh_args.group",
                            (int)engine->place.world);
        goto done;
    }
    SHOAL_TRY(status,
              shoal_mesh_group(engine->place.mesh,
                               (SHOAL_AXIS_DP | SHOAL_AXIS_CP) & ~engine->place.admitted,
                               &engine->place.data_group),
              done);
    SHOAL_TRY(status, open_tensor_parallel(engine, args), done);
done:
    return status;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void add_place(const struct shoal_engine *engine, shoal_axes axis,
                      struct shoali_axis_place *places, int32_t *count)
{
    /* the rank of tp is the engine's say: step/stages.c declares another one's shares */
    const int32_t index = axis == SHOAL_AXIS_TP
                              ? engine->place.tensor_parallel.rank
                              : shoal_mesh_coordinate(engine->place.mesh, axis, engine->place.rank);
    const int32_t ways = shoal_mesh_size(engine->place.mesh, axis);
    const int32_t splits = axis == SHOAL_AXIS_TP ? engine->place.tensor_parallel.splits : 1;
    if (ways > 1 || splits > 1)
        places[(*count)++] = (struct shoali_axis_place){axis, ways, index, splits};
}

/* A block of a parameter that a layer takes for the whole would train something else. */
static shoal_status check_cuts(const struct shoal_engine *engine)
{
    for (int32_t i = 0; i < engine->module.param_count; i++) {
        const struct shoal_param *param = engine->module.param[i];
        if (param->cut_by & ~(engine->place.admitted | SHOAL_AXIS_TP | SHOAL_AXIS_EXPERT))
            return SHOAL_FAIL(
                SHOAL_EUNSUPPORTED,
                "parameter %s is split along an axis of %d ranks, and no layer computes with a "
                "shard of it yet: give a mesh where that axis has one rank",
                param->name, (int)shoal_mesh_size(engine->place.mesh, param->cut_by));
    }
    return SHOAL_OK;
}

static void warn_if_whole(const struct shoal_engine *engine)
{
    for (int32_t i = 0; i < engine->module.param_count; i++)
        if (engine->module.param[i]->cut_by & SHOAL_AXIS_TP)
            return;
    SHOALI_WARN("engine",
                "the %d ranks along tp all compute the same: no parameter of model `%s` says how "
                "they divide it; declare shoal_param_spec.split, or give "
                "tensor_parallel.partition_config or preset_model",
                (int)engine->place.tensor_parallel.ranks, engine->model->name);
}

/* Rules that nothing is named after are those of another family. */
static bool warn_if_unmatched(const struct shoal_engine *engine, const struct shoali_autotp *autotp)
{
    const char *preset = engine->config.tensor_parallel.preset_model;
    int32_t own = 0;
    for (int32_t i = 0; i < engine->module.param_count; i++)
        if (shoali_autotp_knows(autotp, engine->module.param[i]->name))
            return false;
    for (int32_t i = 0; i < engine->module.param_count; i++)
        own += (engine->module.param[i]->cut_by & SHOAL_AXIS_TP) != 0;
    if (preset && preset[0])
        SHOALI_WARN("engine",
                    "tensor_parallel.preset_model is \"%s\", and no tensor of model `%s` matches "
                    "its rules: %s; leave the key out, or give the family of the model",
                    preset, engine->model->name,
                    own > 0 ? "the model says itself how ranks divide it" : "nothing is divided");
    else
        SHOALI_WARN("engine",
                    "no tensor of model `%s` matches the rules of "
                    "tensor_parallel.partition_config: %s; patterns match from the beginning of a "
                    "name, such as %s",
                    engine->model->name,
                    own > 0 ? "the model says itself how ranks divide it" : "nothing is divided",
                    engine->module.param_count > 0 ? engine->module.param[0]->name : "x.weight");
    return true;
}

/* A model of sequences has them as the first dim of its samples. */
static shoal_status check_sequence_splits(const struct shoal_engine *engine)
{
    const shoal_model *model = engine->model;
    const int64_t splits = engine->config.exact_splits.sequence;
    const shoal_shape *sample = model->input_count > 0 ? &model->inputs[0].sample_shape : NULL;
    if (sample == NULL || sample->ndim == 0 || sample->dim[0] % splits == 0)
        return SHOAL_OK;
    return SHOAL_FAIL(
        SHOAL_ECONFIG,
        "exact_splits.sequence is %lld, which does not divide a sequence of %lld (input "
        "%s): give a number that does, or another length",
        (long long)splits, (long long)sample->dim[0], model->inputs[0].name);
}

/* Ranks along tp have whole splits. */
static shoal_status check_whole_splits(const char *name, int32_t splits, int32_t ranks)
{
    if (ranks <= 1 || splits % ranks == 0)
        return SHOAL_OK;
    if ((ranks & (ranks - 1)) != 0)
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "exact_splits.%s is %d and %d ranks are along tp: with \"reduction\": "
            "\"exact\" sums are trees, which 2, 4, 8, ... ranks divide; use so many, or "
            "\"fast\"",
            name, (int)splits, (int)ranks);
    return SHOAL_FAIL(
        SHOAL_ECONFIG,
        "exact_splits.%s is %d and %d ranks are along tp: with \"reduction\": \"exact\" "
        "each has whole pieces of a sum: add \"exact_splits\": {\"%s\": %d}, to the run "
        "on fewer ranks, too, if it is to have the same bits",
        name, (int)splits, (int)ranks, name, (int)ranks);
}

static shoal_status read_exact_splits(struct shoal_engine *engine)
{
    shoal_status status;
    struct shoali_tensor_parallel *tp = &engine->place.tensor_parallel;
    const struct shoali_exact_splits_config *splits = &engine->config.exact_splits;
    if (engine->config.reduction != SHOALI_REDUCTION_EXACT)
        return SHOAL_OK;
    tp->exact = true;
    tp->splits = (int32_t)splits->tensor;
    tp->sequence_splits = (int32_t)splits->sequence;
    SHOAL_TRY(status, check_whole_splits("tensor", tp->splits, tp->ranks), done);
    if (tp->sequence)
        SHOAL_TRY(status, check_whole_splits("sequence", tp->sequence_splits, tp->ranks), done);
    SHOAL_TRY(status, check_sequence_splits(engine), done);
done:
    return status;
}

shoal_status shoali_engine_declare(struct shoal_engine *engine, shoal_dtype dtype)
{
    shoal_status status;
    static const shoal_axes axes[] = {SHOAL_AXIS_TP, SHOAL_AXIS_CP, SHOAL_AXIS_EP, SHOAL_AXIS_PP};
    struct shoali_axis_place places[PLACES_MAX];
    struct shoali_autotp autotp = {0};
    int32_t count = 0;
    SHOAL_TRY(status, read_exact_splits(engine), done);
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        add_place(engine, axes[i], places, &count);
        add_place(engine, axes[i] | SHOAL_AXIS_EXPERT, places, &count);
    }
    const struct shoali_tensor_parallel_config *keys = &engine->config.tensor_parallel;
    const struct shoali_tagger tagger = {&autotp, shoali_autotp_tag};
    /* One rank with splits sums as the ranks that will divide the same weights. */
    const bool cuts =
        engine->place.tensor_parallel.ranks > 1 || engine->place.tensor_parallel.splits > 1;
    const bool tags =
        cuts && (keys->partition_config || (keys->preset_model && keys->preset_model[0]));
    if (tags)
        SHOAL_TRY(status, shoali_autotp_init(&autotp, keys->preset_model, keys->partition_config),
                  done);
    SHOAL_TRY(status,
              shoali_module_init_tagged(&engine->module, engine->model, dtype, places, count,
                                        tags ? &tagger : NULL),
              done);
    SHOAL_TRY(status, check_cuts(engine), done);
    const bool warns = engine->place.rank == 0 && !engine->meta;
    if (warns && !(tags && warn_if_unmatched(engine, &autotp)) &&
        engine->place.tensor_parallel.ranks > 1)
        warn_if_whole(engine);
done:
    shoali_autotp_fini(&autotp);
    return status;
}

/* ---- zero ------------------------------------------------------------------------------------ */

/* Neighbours along tp that hold the same of a parameter, and of which each makes a part of its
 * gradient; 1: those that hold the same make the same. */
static int32_t sharers_of(const struct shoal_engine *engine, const struct shoal_param *param)
{
    if (param->sum_over_tensor)
        return engine->place.tensor_parallel.ranks;
    return param->columns.sharers > 1 ? param->columns.sharers : 1;
}

/* Along the axes that do not cut it ranks hold the same of a parameter; the first counts it. Those
 * along tp that sum their gradients divide it, as those along dp do. */
static bool is_counted_elsewhere(const struct shoal_engine *engine, const struct shoal_param *param)
{
    const shoal_axes expert = param->cut_by & SHOAL_AXIS_EXPERT;
    if (engine->stages.count > 1 && param->count > 0 && param->uses > 1 &&
        engine->stages.index > engine->stages.first_stage[param->index])
        return true;
    shoal_axes along = expert ? engine->place.admitted | SHOAL_AXIS_EP : same_axes(engine);
    if (sharers_of(engine, param) > 1)
        along &= ~SHOAL_AXIS_TP;
    return shoal_mesh_coordinate(engine->place.mesh, (along & ~param->cut_by) | expert,
                                 engine->place.rank) > 0;
}

/* The ranks of dp, and of `sharers` neighbours along tp, whose gradients are summed. */
static shoal_status open_sharers(struct shoal_engine *engine, int32_t sharers, shoal_group **group)
{
    shoal_status status;
    const struct shoali_tensor_parallel *tp = &engine->place.tensor_parallel;
    const shoal_axes data = SHOAL_AXIS_DP | SHOAL_AXIS_TP;
    shoal_group *all;
    SHOAL_TRY(status, shoal_mesh_group(engine->place.mesh, data, &all), done);
    *group = all;
    if (sharers == tp->ranks)
        goto done;
    if (engine->place.sharers) {
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                            "parameters are shared by different numbers of the %d ranks along tp; "
                            "use fewer ranks, so that all are divided",
                            (int)tp->ranks);
        goto done;
    }
    SHOAL_TRY(
        status,
        shoal_comm_split(all, tp->rank / sharers, shoal_comm_rank(all), &engine->place.sharers),
        done);
    *group = engine->place.sharers;
done:
    return status;
}

/* Which of the lists of groups a parameter's is: 0 that of dp, else 1 more than its index. */
static shoal_status find_cut(struct shoal_engine *engine, const struct shoal_param *param,
                             struct shoali_zero_args *args, int32_t *cut)
{
    shoal_status status = SHOAL_OK;
    const bool expert = (param->cut_by & SHOAL_AXIS_EXPERT) != 0;
    const int32_t sharers = expert ? -1 : sharers_of(engine, param);
    *cut = 0;
    if (sharers == 1)
        return SHOAL_OK;
    for (int32_t i = 0; i < args->cut_count && *cut == 0; i++)
        if (engine->place.cut_sharers[i] == sharers)
            *cut = i + 1;
    if (*cut > 0)
        return SHOAL_OK;
    SHOAL_ASSERT(args->cut_count < SHOALI_ENGINE_CUTS);
    shoal_group **group = &engine->place.cuts[args->cut_count];
    if (expert)
        SHOAL_TRY(status,
                  shoal_mesh_group(engine->place.mesh, SHOAL_AXIS_DP | SHOAL_AXIS_EXPERT, group),
                  done);
    else
        SHOAL_TRY(status, open_sharers(engine, sharers, group), done);
    engine->place.cut_sharers[args->cut_count++] = sharers;
    *cut = args->cut_count;
done:
    return status;
}

shoal_status shoali_engine_share_blocks(struct shoal_engine *engine, struct shoali_zero_args *args)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = &engine->module;
    const size_t count = (size_t)module->param_count + 1;
    int32_t *cut_of = shoali_arena_alloc(&engine->config.arena, count * sizeof *cut_of);
    bool *elsewhere = shoali_arena_alloc(&engine->config.arena, count * sizeof *elsewhere);
    bool any = false;
    if (!cut_of || !elsewhere)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < module->param_count; i++) {
        SHOAL_TRY(status, find_cut(engine, module->param[i], args, &cut_of[i]), done);
        elsewhere[i] = is_counted_elsewhere(engine, module->param[i]);
        any = any || elsewhere[i];
    }
    args->group = engine->place.data_group;
    args->everyone = engine->place.group;
    args->cuts = args->cut_count > 0 ? engine->place.cuts : NULL;
    args->cut_of = args->cut_count > 0 ? cut_of : NULL;
    engine->place.loss_elsewhere =
        shoal_mesh_coordinate(engine->place.mesh, same_axes(engine), engine->place.rank) > 0;
    args->loss_elsewhere = engine->place.loss_elsewhere;
    args->counted_elsewhere = any ? elsewhere : NULL;
done:
    return status;
}
