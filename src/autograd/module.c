/* module.c - parameters and layers of a model, declared before any memory exists. */
#include "autograd/autograd.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64 };

/* What a layer's `declare` fills. */
struct shoal_declaration {
    struct shoali_module *module;
    struct shoal_layer *layer;
    const struct shoali_axis_place *places;
    int32_t place_count;
    const struct shoali_tagger *tagger; /* NULL: none */
    int32_t capacity;                   /* of layer->param */
};

/* ---- names ---- */

static int32_t home_of(const struct shoali_module *module, const char *name)
{
    const uint64_t hash = shoali_hash64(name, strlen(name));
    return (int32_t)(hash & (uint64_t)(module->by_name_capacity - 1));
}

struct shoal_param *shoali_module_find(const struct shoali_module *module, const char *name)
{
    if (module->by_name_capacity == 0)
        return NULL;
    for (int32_t i = 0; i < module->alias_count; i++) /* few: one per tied use */
        if (strcmp(module->alias[i].name, name) == 0)
            return module->param[module->alias[i].param];
    int32_t at = home_of(module, name);
    while (module->by_name[at] >= 0) {
        struct shoal_param *param = module->param[module->by_name[at]];
        if (strcmp(param->name, name) == 0)
            return param;
        at = (at + 1) & (module->by_name_capacity - 1);
    }
    return NULL;
}

static void insert_name(struct shoali_module *module, int32_t index)
{
    int32_t at = home_of(module, module->param[index]->name);
    while (module->by_name[at] >= 0)
        at = (at + 1) & (module->by_name_capacity - 1);
    module->by_name[at] = index;
}

/* Makes room for one more parameter; the table stays at most half full. */
static shoal_status reserve_param(struct shoali_module *module)
{
    if (module->param_count < module->param_capacity)
        return SHOAL_OK;
    const int32_t capacity =
        module->param_capacity > 0 ? 2 * module->param_capacity : FIRST_CAPACITY;
    struct shoal_param **list =
        shoali_arena_alloc(&module->arena, (size_t)capacity * sizeof(*list));
    int32_t *table = shoali_arena_alloc(&module->arena, (size_t)capacity * 2 * sizeof(*table));
    if (list == NULL || table == NULL)
        return SHOAL_ENOMEM;
    if (module->param_count > 0)
        memcpy(list, module->param, (size_t)module->param_count * sizeof(*list));
    module->param = list;
    module->param_capacity = capacity;
    module->by_name = table;
    module->by_name_capacity = 2 * capacity;
    memset(table, 0xFF, (size_t)capacity * 2 * sizeof(*table));
    for (int32_t i = 0; i < module->param_count; i++)
        insert_name(module, i);
    return SHOAL_OK;
}

/* ---- declaring ---- */

static shoal_status append_to_layer(struct shoal_declaration *declaration,
                                    struct shoal_param *param)
{
    struct shoal_layer *layer = declaration->layer;
    if (layer->param_count == declaration->capacity) {
        const int32_t capacity = declaration->capacity > 0 ? 2 * declaration->capacity : 16;
        struct shoal_param **list =
            shoali_arena_alloc(&declaration->module->arena, (size_t)capacity * sizeof(*list));
        if (list == NULL)
            return SHOAL_ENOMEM;
        if (layer->param_count > 0)
            memcpy(list, layer->param, (size_t)layer->param_count * sizeof(*list));
        layer->param = list;
        declaration->capacity = capacity;
    }
    layer->param[layer->param_count++] = param;
    return SHOAL_OK;
}

/* From the arena; NULL when memory is exhausted. */
static const char *global_name(const struct shoal_declaration *declaration, const char *name)
{
    struct shoali_arena *arena = &declaration->module->arena;
    return name[0] == '/' ? shoali_arena_strdup(arena, name + 1)
                          : shoali_arena_printf(arena, "%s.%s", declaration->layer->name, name);
}

/* Remembers the name of a tied use, unless it is the primary's own or known already. */
static shoal_status add_alias(const struct shoal_declaration *declaration, const char *name,
                              const struct shoal_param *primary)
{
    struct shoali_module *module = declaration->module;
    const char *alias = global_name(declaration, name);
    if (alias == NULL)
        return SHOAL_ENOMEM;
    const struct shoal_param *known = shoali_module_find(module, alias);
    if (known == primary)
        return SHOAL_OK;
    if (known != NULL)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "parameter %s is tied to %s, but the name already stands for %s; give "
                          "the second use another name",
                          alias, primary->name, known->name);
    if (module->alias_count == module->alias_capacity) {
        const int32_t capacity = module->alias_capacity > 0 ? 2 * module->alias_capacity : 4;
        struct shoali_alias *list =
            shoali_arena_alloc(&module->arena, (size_t)capacity * sizeof(*list));
        if (list == NULL)
            return SHOAL_ENOMEM;
        if (module->alias_count > 0)
            memcpy(list, module->alias, (size_t)module->alias_count * sizeof(*list));
        module->alias = list;
        module->alias_capacity = capacity;
    }
    module->alias[module->alias_count++] = (struct shoali_alias){alias, primary->index};
    return SHOAL_OK;
}

static const struct shoali_axis_place *find_place(const struct shoal_declaration *declaration,
                                                  shoal_axes axis)
{
    for (int32_t i = 0; i < declaration->place_count; i++)
        if (declaration->places[i].axis == axis)
            return &declaration->places[i];
    return NULL;
}

static shoal_status cut_by(struct shoali_shard *shard, const shoal_param_split *split,
                           const int64_t *fine, const struct shoali_axis_place *place)
{
    struct shoali_dim_partition cut = {.dim = split->dim,
                                       .ways = place->ways,
                                       .index = place->index,
                                       .splits = place->splits,
                                       .part_count = split->part_count};
    _Static_assert(SHOAL_SPLIT_PARTS == SHOALI_SHARD_INTERVALS, "a part becomes an interval");
    memcpy(cut.part, split->part, sizeof cut.part);
    memcpy(cut.unit, split->unit, sizeof cut.unit);
    memcpy(cut.fine, fine, sizeof cut.fine);
    return shoali_shard_partition(shard, &cut);
}

/* What this rank holds of a parameter, by its splits, and which axes cut it. */
static shoal_status make_shard(const struct shoal_declaration *declaration,
                               const shoal_param_spec *spec, const char *name,
                               struct shoali_shard *shard, shoal_axes *axes)
{
    *shard = shoali_shard_whole(&spec->shape);
    *axes = 0;
    for (int32_t i = 0; i < SHOAL_SPLITS; i++)
        if (spec->split[i].axis == SHOAL_AXIS_EP)
            *axes = SHOAL_AXIS_EXPERT;
    const shoal_axes generator = *axes;
    for (int32_t i = 0; i < SHOAL_SPLITS && spec->split[i].axis != 0; i++) {
        const struct shoali_axis_place *place =
            find_place(declaration, spec->split[i].axis | generator);
        if (place == NULL || place->ways == 1)
            continue;
        const shoal_status status = cut_by(shard, &spec->split[i], spec->split_fine[i], place);
        if (status < 0)
            return shoali_error_prefix(status, "parameter %s", name);
        *axes |= spec->split[i].axis;
    }
    return SHOAL_OK;
}

/* What tp does to a dim, part by part, beside the shard, which may join parts. */
static shoal_status describe_columns(const struct shoal_declaration *declaration,
                                     const shoal_param_spec *spec, struct shoal_param *param)
{
    static const struct shoali_axis_place alone = {SHOAL_AXIS_TP, 1, 0, 1};
    const struct shoali_axis_place *place = find_place(declaration, SHOAL_AXIS_TP);
    struct shoali_columns *columns = &param->columns;
    int64_t first = 0; /* what the first rank has of the dim */
    int32_t s = 0;
    param->alike_count = param->count;
    while (s < SHOAL_SPLITS && spec->split[s].axis != SHOAL_AXIS_TP)
        s++;
    if (s == SHOAL_SPLITS || (param->cut_by & SHOAL_AXIS_EXPERT) != 0)
        return SHOAL_OK;
    if (place == NULL)
        place = &alone;
    const shoal_param_split *split = &spec->split[s];
    param->tensor_dim = split->dim;
    columns->parts = split->part_count > 0 ? split->part_count : 1;
    columns->splits = place->splits;
    for (int32_t p = 0; p < columns->parts; p++) {
        int32_t sharers;
        columns->whole[p] = split->part_count > 0 ? split->part[p] : spec->shape.dim[split->dim];
        columns->unit[p] = split->unit[p] > 0 ? split->unit[p] : 1;
        columns->fine[p] = spec->split_fine[s][p];
        const struct shoali_interval mine =
            shoali_shard_share_of(columns->whole[p], columns->unit[p], columns->fine[p],
                                  place->splits, place->ways, place->index, &sharers);
        columns->first[p] = mine.begin;
        columns->count[p] = mine.count;
        first += shoali_shard_share_of(columns->whole[p], columns->unit[p], columns->fine[p],
                                       place->splits, place->ways, 0, NULL)
                     .count;
        if (columns->splits > 1 && sharers > 1) /* several splits have the same: of several sums */
            return shoali_param_refuse_exact_splits(param, p);
        if (p > 0 && sharers != columns->sharers)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "parameter %s: %d ranks along tp share some of its parts and divide "
                              "others, which one matrix cannot do: use fewer ranks along tp",
                              param->name, (int)place->ways);
        columns->sharers = sharers;
    }
    param->alike_count = first;
    for (int32_t d = 0; d < param->shape.ndim; d++)
        param->alike_count *= d == split->dim ? 1 : param->shape.dim[d];
    return SHOAL_OK;
}

/* A second use may leave the splits out. */
static shoal_status check_tied_split(const struct shoal_declaration *declaration,
                                     const shoal_param_spec *spec,
                                     const struct shoal_param *primary)
{
    shoal_status status = SHOAL_OK;
    struct shoali_shard shard;
    shoal_axes axes;
    if (spec->split[0].axis == 0)
        return SHOAL_OK;
    SHOAL_TRY(status, make_shard(declaration, spec, spec->name, &shard, &axes), done);
    if (axes != primary->cut_by || (primary->shard && !shoali_shard_equal(&shard, primary->shard)))
        status = SHOAL_FAIL(
            SHOAL_EINVAL,
            "parameter %s.%s is tied to %s but split differently; give the same splits, or none",
            declaration->layer->name, spec->name, primary->name);
done:
    return status;
}

static shoal_status declare_tied(struct shoal_declaration *declaration,
                                 const shoal_param_spec *spec)
{
    shoal_status status;
    const struct shoal_layer *layer = declaration->layer;
    struct shoal_param *primary = shoali_module_find(declaration->module, spec->tied_to);
    char got[128], expected[128];
    if (primary == NULL)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "parameter %s.%s is tied to '%s', which no earlier layer declared; give "
                          "the full name LAYER.NAME of a parameter declared before",
                          layer->name, spec->name, spec->tied_to);
    if (!shoali_shape_equal(shoal_param_shape(primary), &spec->shape))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "parameter %s.%s has shape %s but is tied to %s of shape %s; the two must "
            "be equal",
            layer->name, spec->name, shoali_shape_format(&spec->shape, got), primary->name,
            shoali_shape_format(shoal_param_shape(primary), expected));
    SHOAL_TRY(status, check_tied_split(declaration, spec, primary), done);
    SHOAL_TRY(status, add_alias(declaration, spec->name, primary), done);
    bool again = false;
    for (int32_t i = 0; i < layer->param_count; i++)
        again = again || layer->param[i] == primary;
    primary->uses += again ? 0 : 1;
    primary->uses_here = primary->uses;
    SHOAL_TRY(status, append_to_layer(declaration, primary), done);
done:
    return status;
}

static shoal_status cut_param(const struct shoal_declaration *declaration,
                              const shoal_param_spec *spec, struct shoal_param *param)
{
    shoal_status status;
    struct shoali_shard shard;
    SHOAL_TRY(status, make_shard(declaration, spec, param->name, &shard, &param->cut_by), done);
    param->shape = shard.local;
    param->count = shoal_shape_count(&shard.local);
    SHOAL_TRY(status, describe_columns(declaration, spec, param), done);
    if ((param->cut_by & ~SHOAL_AXIS_EXPERT) == 0)
        return SHOAL_OK;
    struct shoali_shard *kept = shoali_arena_alloc(&declaration->module->arena, sizeof *kept);
    if (kept == NULL)
        return SHOAL_ENOMEM;
    *kept = shard;
    param->shard = kept;
done:
    return status;
}

static shoal_status declare_new(struct shoal_declaration *declaration, const shoal_param_spec *spec)
{
    shoal_status status;
    struct shoali_module *module = declaration->module;
    char text[128];
    const char *name = global_name(declaration, spec->name);
    struct shoal_param *param = shoali_arena_alloc(&module->arena, sizeof(*param));
    if (name == NULL || param == NULL)
        return SHOAL_ENOMEM;
    if (shoali_module_find(module, name) != NULL)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "parameter %s is declared twice; give it another name, or tied_to to use "
                          "the first one again",
                          name);
    const int64_t count = shoal_shape_count(&spec->shape);
    if (count < 0 || !shoali_add(module->whole_count, count, &module->whole_count))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "parameter %s: shape %s is not valid: give at most %d dims, none below 0, and "
            "fewer than 2^63 elements in the whole model",
            name, shoali_shape_format(&spec->shape, text), SHOAL_MAX_DIMS);
    SHOAL_TRY(status, reserve_param(module), done);
    *param = (struct shoal_param){
        .name = name,
        .index = module->param_count,
        .init = spec->init,
        .init_a = spec->init_a,
        .init_b = spec->init_b,
        .lr_mult = spec->lr_mult != 0 ? spec->lr_mult : 1,
        .tags = spec->tags,
        .uses = 1,
        .uses_here = 1,
        .dtype = module->dtype,
        .sink = {.dtype = module->dtype == SHOAL_F64 ? SHOAL_F64 : SHOAL_F32},
    };
    shoal_param_spec tagged = *spec;
    if (declaration->tagger && spec->split[0].axis == 0)
        SHOAL_TRY(status, declaration->tagger->tag(declaration->tagger->user, name, &tagged), done);
    SHOAL_TRY(status, cut_param(declaration, &tagged, param), done);
    param->begin = module->element_count;
    param->whole_begin = module->whole_count - count;
    module->element_count += param->count;
    module->param[module->param_count++] = param;
    insert_name(module, param->index);
    SHOAL_TRY(status, append_to_layer(declaration, param), done);
done:
    return status;
}

shoal_status shoal_declare_param(shoal_declaration *declaration, const shoal_param_spec *spec)
{
    shoal_status status;
    const shoal_param_spec own = spec ? *spec : (shoal_param_spec){0};
    if (own.name == NULL || own.name[0] == '\0')
        status = SHOAL_FAIL(SHOAL_EINVAL, "layer %s declares a parameter without a name",
                            declaration->layer->name);
    else
        status =
            own.tied_to != NULL ? declare_tied(declaration, &own) : declare_new(declaration, &own);
    return status;
}

/* Layers by name: indices plus 1, 0 where a place is empty; at most half of them are taken. */
struct layer_names {
    int32_t *place;
    int64_t capacity; /* a power of two */
};

static shoal_status make_layer_names(struct shoali_module *module, struct layer_names *names)
{
    names->capacity = 2;
    while (names->capacity < 2 * (int64_t)module->model->layer_count)
        names->capacity *= 2;
    const size_t bytes = (size_t)names->capacity * sizeof(*names->place);
    names->place = shoali_arena_alloc(&module->arena, bytes);
    if (names->place == NULL)
        return SHOAL_ENOMEM;
    memset(names->place, 0, bytes);
    return SHOAL_OK;
}

/* The layer's place, or the empty one where it belongs. */
static int32_t *find_layer(const struct shoali_module *module, const struct layer_names *names,
                           const char *name)
{
    int64_t at = (int64_t)(shoali_hash64(name, strlen(name)) & (uint64_t)(names->capacity - 1));
    while (names->place[at] > 0 && strcmp(module->layer[names->place[at] - 1].name, name) != 0)
        at = (at + 1) & (names->capacity - 1);
    return &names->place[at];
}

static shoal_status declare_layer(struct shoal_declaration *declaration, int32_t index,
                                  const struct layer_names *names)
{
    shoal_status status = SHOAL_OK;
    struct shoali_module *module = declaration->module;
    const shoal_layer_spec *spec = &module->model->layers[index];
    struct shoal_layer *layer = &module->layer[index];
    if (spec->type == NULL || spec->type->forward == NULL || spec->name == NULL)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "model %s: layer %d needs a name and a type with a forward function",
                          module->model->name, (int)index);
    int32_t *place = find_layer(module, names, spec->name);
    if (*place > 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "model %s: layers %d and %d are both named %s",
                          module->model->name, (int)*place - 1, (int)index, spec->name);
    *place = index + 1;
    *layer = (struct shoal_layer){.type = spec->type,
                                  .name = spec->name,
                                  .config = spec->config,
                                  .index = index,
                                  .here = true};
    declaration->layer = layer;
    declaration->capacity = 0;
    if (spec->type->declare != NULL)
        SHOAL_TRY(status, spec->type->declare(spec->config, declaration), done);
done:
    return status;
}

shoal_status shoali_module_init(struct shoali_module *module, const shoal_model *model,
                                shoal_dtype dtype, const struct shoali_axis_place *places,
                                int32_t place_count)
{
    return shoali_module_init_tagged(module, model, dtype, places, place_count, NULL);
}

shoal_status shoali_module_init_tagged(struct shoali_module *module, const shoal_model *model,
                                       shoal_dtype dtype, const struct shoali_axis_place *places,
                                       int32_t place_count, const struct shoali_tagger *tagger)
{
    shoal_status status = SHOAL_OK;
    struct layer_names names;
    struct shoal_declaration declaration = {
        .module = module, .places = places, .place_count = place_count, .tagger = tagger};
    *module = (struct shoali_module){.model = model, .dtype = dtype};
    shoali_arena_init(&module->arena);
    if (dtype != SHOAL_F32 && dtype != SHOAL_BF16 && dtype != SHOAL_F16 && dtype != SHOAL_F64)
        return SHOAL_FAIL(SHOAL_EINVAL, "model %s: %s is not a type to compute in", model->name,
                          shoal_dtype_name(dtype));
    module->layer =
        shoali_arena_alloc(&module->arena, (size_t)model->layer_count * sizeof(*module->layer));
    if (module->layer == NULL) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, make_layer_names(module, &names), done);
    for (int32_t i = 0; i < model->layer_count; i++) {
        SHOAL_TRY(status, declare_layer(&declaration, i, &names), done);
        module->layer_count = i + 1;
    }
done:
    if (status < 0)
        shoali_module_fini(module);
    return status;
}

void shoali_module_fini(struct shoali_module *module)
{
    shoali_arena_fini(&module->arena);
    *module = (struct shoali_module){0};
}

/* ---- layers of other ranks ---- */

static void count_uses_here(const struct shoali_module *module)
{
    for (int32_t i = 0; i < module->param_count; i++)
        module->param[i]->uses_here = 0;
    for (int32_t l = 0; l < module->layer_count; l++) {
        const struct shoal_layer *layer = &module->layer[l];
        for (int32_t i = 0; layer->here && i < layer->param_count; i++) {
            bool again = false;
            for (int32_t k = 0; k < i; k++)
                again = again || layer->param[k] == layer->param[i];
            layer->param[i]->uses_here += !again;
        }
    }
}

static shoal_status hold_nothing(struct shoali_module *module, struct shoal_param *param)
{
    struct shoali_shard *shard = shoali_arena_alloc(&module->arena, sizeof *shard);
    if (shard == NULL)
        return SHOAL_ENOMEM;
    *shard = shoali_shard_nothing(shoal_param_shape(param));
    param->shard = shard;
    param->shape = shard->local;
    param->count = param->alike_count = 0;
    return SHOAL_OK;
}

shoal_status shoali_module_keep_layers(struct shoali_module *module,
                                       const struct shoali_layer_run *runs, int32_t run_count)
{
    shoal_status status = SHOAL_OK;
    for (int32_t l = 0; l < module->layer_count; l++)
        module->layer[l].here = false;
    for (int32_t r = 0; r < run_count; r++)
        for (int32_t l = 0; l < runs[r].count; l++)
            module->layer[runs[r].first + l].here = true;
    count_uses_here(module);
    module->element_count = 0;
    for (int32_t i = 0; i < module->param_count; i++) {
        struct shoal_param *param = module->param[i];
        if (param->uses_here == 0)
            SHOAL_TRY(status, hold_nothing(module, param), done);
        param->cut_by |= SHOAL_AXIS_PP;
        param->begin = module->element_count;
        module->element_count += param->count;
    }
done:
    return status;
}

/* ---- the flat space ---- */

struct shoali_piece shoali_module_piece(const struct shoali_module *module, int64_t at, int64_t end)
{
    int32_t low = 0; /* the first parameter that reaches beyond `at` */
    for (int32_t high = module->param_count; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (module->param[middle]->begin + module->param[middle]->count <= at)
            low = middle + 1;
        else
            high = middle;
    }
    const struct shoal_param *param = module->param[low];
    const int64_t local = at - param->begin;
    struct shoali_piece piece = {param, local, param->count - local};
    if (param->shard != NULL)
        piece.first = shoali_shard_run(param->shard, local, &piece.count);
    if (piece.count > end - at)
        piece.count = end - at;
    return piece;
}
