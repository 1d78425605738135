/* This engine's tensors as checkpoint/ sees them. */
#include "engine/save/checkpoint.h"

static shoal_status read_kind(void *user, int64_t first, int64_t count, void *out)
{
    struct shoali_kind_access *access = user;
    return shoali_zero_read(access->zero, access->kind, first, count, out);
}

static shoal_status read_snapshot(void *user, int64_t first, int64_t count, void *out)
{
    struct shoali_kind_access *access = user;
    return shoali_zero_snapshot_read(access->zero, access->kind, first, count, out);
}

static void expect_snapshot(void *user, int64_t first, int64_t count)
{
    struct shoali_kind_access *access = user;
    shoali_zero_snapshot_expect(access->zero, access->kind, first, count);
}

static shoal_status write_kind(void *user, int64_t first, int64_t count, const void *in)
{
    struct shoali_kind_access *access = user;
    if (access->narrowing)
        shoali_narrowing_count(access->narrowing, first, in, count);
    return shoali_zero_write(access->zero, access->kind, first, count, in);
}

void shoali_engine_tensors_fini(struct shoali_engine_tensors *tensors)
{
    shoali_free(tensors->names);
    shoali_free(tensors->shapes);
    shoali_free(tensors->shards);
    shoali_free(tensors->aliases);
    shoali_narrowing_fini(&tensors->narrowing);
    for (int32_t k = 0; k < tensors->kind_count; k++)
        shoali_free(tensors->ranges[k]);
    for (int32_t k = 0; k < tensors->kind_count; k++) {
        shoali_free(tensors->kind_shapes[k]);
        shoali_free(tensors->kind_shards[k]);
        shoali_free(tensors->nothing[k]);
    }
}

shoal_status shoali_engine_tensors_init(struct shoali_engine_tensors *tensors,
                                        const struct shoal_engine *engine)
{
    const struct shoali_module *module = &engine->module;
    *tensors = (struct shoali_engine_tensors){0};
    tensors->names =
        shoali_calloc((size_t)module->param_count + 1, sizeof *tensors->names, "tensor names");
    tensors->shapes =
        shoali_calloc((size_t)module->param_count + 1, sizeof *tensors->shapes, "tensor shapes");
    tensors->shards =
        shoali_calloc((size_t)module->param_count + 1, sizeof *tensors->shards, "tensor shards");
    tensors->aliases =
        shoali_calloc((size_t)module->alias_count + 1, sizeof *tensors->aliases, "tied names");
    if (!tensors->names || !tensors->shapes || !tensors->shards || !tensors->aliases)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < module->alias_count; i++)
        tensors->aliases[i] = (struct shoali_checkpoint_alias){
            module->alias[i].name, module->param[module->alias[i].param]->name};
    for (int32_t i = 0; i < module->param_count; i++) {
        tensors->names[i] = module->param[i]->name;
        tensors->shapes[i] = *shoal_param_shape(module->param[i]);
        tensors->shards[i] = module->param[i]->shard;
    }
    return SHOAL_OK;
}

/* In the manifest. */
static const char *const kind_of[] = {[SHOALI_STATE_ELEMENT] = NULL,
                                      [SHOALI_STATE_ROW] = "row",
                                      [SHOALI_STATE_COLUMN] = "column",
                                      [SHOALI_STATE_TENSOR] = "tensor"};

/* Of a kind that is not per element a rank holds what belongs to parameters of its stage. */
static shoal_status add_small_shapes(struct shoali_engine_tensors *tensors,
                                     const struct shoal_engine *engine, int32_t at,
                                     enum shoali_state_kind of)
{
    const struct shoali_module *module = &engine->module;
    const size_t count = (size_t)module->param_count + 1;
    shoal_shape *shapes = shoali_calloc(count, sizeof *shapes, "tensor shapes");
    struct shoali_shard *nothing = shoali_calloc(count, sizeof *nothing, "tensor shards");
    const struct shoali_shard **shards = shoali_calloc(count, sizeof *shards, "tensor shards");
    tensors->kind_shapes[at] = shapes;
    tensors->nothing[at] = nothing;
    tensors->kind_shards[at] = shards;
    if (!shapes || !nothing || !shards)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < module->param_count; i++) {
        shapes[i] = shoali_state_shape(of, shoal_param_shape(module->param[i]));
        nothing[i] = shoali_shard_nothing(&shapes[i]);
        shards[i] = shoali_shard_is_nothing(module->param[i]->shard) ? &nothing[i] : NULL;
    }
    return SHOAL_OK;
}

static shoal_status add_known(struct shoali_engine_tensors *tensors,
                              const struct shoal_engine *engine, int32_t index,
                              struct shoali_zero_kind kind)
{
    const int32_t at = tensors->kind_count;
    tensors->ranges[at] = shoali_calloc((size_t)kind.range_count + 1, sizeof *tensors->ranges[at],
                                        "ranges of a checkpoint");
    if (!tensors->ranges[at])
        return SHOAL_ENOMEM;
    for (int32_t r = 0; r < kind.range_count; r++)
        tensors->ranges[at][r] =
            (struct shoali_checkpoint_range){kind.range[r].begin, kind.range[r].count};
    tensors->kind_count++;
    if (kind.of != SHOALI_STATE_ELEMENT &&
        add_small_shapes(tensors, engine, at, kind.of) != SHOAL_OK)
        return SHOAL_ENOMEM;
    tensors->access[at] = (struct shoali_kind_access){engine, engine->zero, index, SHOAL_F32, NULL};
    tensors->kind[at] = (struct shoali_checkpoint_kind){.name = kind.name,
                                                        .dtype = kind.dtype,
                                                        .ranges = tensors->ranges[at],
                                                        .range_count = kind.range_count,
                                                        .shapes = tensors->kind_shapes[at],
                                                        .shards = tensors->kind_shards[at],
                                                        .of = kind_of[kind.of],
                                                        .replicated = kind.replicated,
                                                        .user = &tensors->access[at],
                                                        .read = read_kind,
                                                        .write = write_kind};
    return SHOAL_OK;
}

shoal_status shoali_engine_tensors_add(struct shoali_engine_tensors *tensors,
                                       const struct shoal_engine *engine, int32_t index,
                                       const char *name)
{
    struct shoali_zero_kind kind;
    shoali_zero_get_kind(engine->zero, index, &kind);
    kind.name = name ? name : kind.name;
    return add_known(tensors, engine, index, kind);
}

/* As it is in zero's snapshot. */
static shoal_status add_snapshot_kind(struct shoali_engine_tensors *tensors,
                                      const struct shoal_engine *engine, int32_t index)
{
    shoal_status status;
    struct shoali_zero_kind kind;
    const int32_t at = tensors->kind_count;
    shoali_zero_snapshot_get_kind(engine->zero, index, &kind);
    SHOAL_TRY(status, add_known(tensors, engine, index, kind), done);
    tensors->kind[at].read = read_snapshot;
    tensors->kind[at].expect = expect_snapshot;
done:
    return status;
}

shoal_status shoali_engine_tensors_add_all(struct shoali_engine_tensors *tensors,
                                           const struct shoal_engine *engine, bool snapshot)
{
    shoal_status status = SHOAL_OK;
    for (int32_t k = 0; k < shoali_zero_kind_count(engine->zero); k++)
        SHOAL_TRY(status,
                  snapshot ? add_snapshot_kind(tensors, engine, k)
                           : shoali_engine_tensors_add(tensors, engine, k, NULL),
                  done);
done:
    return status;
}

struct shoali_checkpoint_args
shoali_engine_checkpoint_args(const struct shoali_engine_tensors *tensors,
                              const struct shoal_engine *engine, const char *dir, const char *tag)
{
    return (struct shoali_checkpoint_args){
        .dir = dir,
        .tag = tag,
        .group = engine->place.group,
        .names = tensors->names,
        .shapes = tensors->shapes,
        .tensor_count = engine->module.param_count,
        .shards = tensors->shards,
        .aliases = tensors->aliases,
        .alias_count = engine->module.alias_count,
        .kinds = tensors->kind,
        .kind_count = tensors->kind_count,
        .companions = engine->save.file,
        .companion_count = engine->save.file_count,
        .override_existing = engine->save.override_existing_checkpoint,
        .keep = {engine->config.checkpoint.keep_last, engine->config.checkpoint.keep_every},
        .buffer = engine->save.buffer,
        .buffer_bytes = engine->save.buffer_bytes};
}
