/* Opening a folder of weights, and reading elements. */
#include "checkpoint/weight_folder.h"
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/weight_source.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where weights are looked for, and the index of each for several files; as transformers does. */
static const struct {
    const char *single, *index;
} places[] = {
    {"model.safetensors", "model.safetensors.index.json"},
    {"pytorch_model.bin", "pytorch_model.bin.index.json"},
};
enum { PLACES = sizeof places / sizeof places[0] };

/* ---- files ---------------------------------------------------------------------------------- */

static const char *path_of(struct shoali_weight_folder *folder, const char *name)
{
    return shoali_arena_printf(&folder->arena, "%s/%s", folder->dir, name);
}

static shoal_dtype dtype_of(const struct shoali_file_tensor *weight)
{
    const shoal_dtype dtype = shoali_element_dtype(weight->type);
    return dtype == SHOAL_F32 || dtype == SHOAL_BF16 || dtype == SHOAL_F16 || dtype == SHOAL_F64
               ? dtype
               : SHOAL_DTYPE_COUNT;
}

static shoal_status add_tensors(struct shoali_weight_folder *folder, int32_t index)
{
    const struct shoali_tensor_file *view = &folder->file[index].view;
    struct shoali_folder_tensor *grown = shoali_arena_alloc(
        &folder->arena, ((size_t)folder->tensor_count + (size_t)view->count + 1) * sizeof *grown);
    if (!grown)
        return SHOAL_ENOMEM;
    if (folder->tensor_count > 0)
        memcpy(grown, folder->tensor, (size_t)folder->tensor_count * sizeof *grown);
    folder->tensor = grown;
    for (int32_t i = 0; i < view->count; i++) {
        struct shoali_folder_tensor *tensor = &grown[folder->tensor_count++];
        *tensor = (struct shoali_folder_tensor){
            .weight = &view->tensor[i], .dtype = dtype_of(&view->tensor[i]), .file = index};
        if (!shoali_file_tensor_shape(tensor->weight, &tensor->shape))
            tensor->shape.ndim = -1;
    }
    return SHOAL_OK;
}

static shoal_status open_file(struct shoali_weight_folder *folder, const char *name)
{
    shoal_status status;
    struct shoali_folder_file *file = &folder->file[folder->file_count];
    const char *path = path_of(folder, name);
    file->name = shoali_arena_strdup(&folder->arena, name);
    if (!path || !file->name)
        return SHOAL_ENOMEM;
    folder->file_count++;
    SHOAL_TRY(status, shoali_tensor_file_open(path, &file->view), done);
    SHOAL_TRY(status, add_tensors(folder, folder->file_count - 1), done);
done:
    return status;
}

/* ---- the index ------------------------------------------------------------------------------ */

static shoal_status check_file_name(struct shoali_json *document, const char *tensor,
                                    const json_t *value)
{
    const char *name = json_string_value(value);
    if (name && *name && !strchr(name, '/') && *name != '.')
        return SHOAL_OK;
    return shoali_json_locate(document, "weight_map",
                              SHOAL_FAIL(SHOAL_ECONFIG,
                                         "weight_map: the file of `%s` must be a name in the same "
                                         "folder",
                                         tensor));
}

/* The files of the map, each once. */
static shoal_status open_files(struct shoali_weight_folder *folder, struct shoali_json *document,
                               json_t *map)
{
    shoal_status status = SHOAL_OK;
    const char *tensor;
    json_t *value;
    json_t *seen = json_object();
    int failed = seen == NULL;
    folder->file =
        shoali_arena_alloc(&folder->arena, (json_object_size(map) + 1) * sizeof *folder->file);
    if (!folder->file) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    json_object_foreach(map, tensor, value)
    {
        SHOAL_TRY(status, check_file_name(document, tensor, value), done);
        if (json_object_get(seen, json_string_value(value)))
            continue;
        failed |= json_object_set_new(seen, json_string_value(value), json_true());
        SHOAL_TRY(status, open_file(folder, json_string_value(value)), done);
    }
    if (failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the list of a folder's files");
done:
    json_decref(seen);
    return status;
}

/* A tensor is where the index says. */
static shoal_status compare_index(const struct shoali_weight_folder *folder, const char *path,
                                  json_t *map)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        const int32_t found = shoali_weight_folder_find(folder, tensor);
        const char *file = found < 0 ? NULL : folder->file[folder->tensor[found].file].name;
        if (!file || strcmp(file, json_string_value(value)) != 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s: `%s` is not in %s, where it should be", path,
                              tensor, json_string_value(value));
    }
    return SHOAL_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct shoali_folder_tensor *)a)->weight->name,
                  ((const struct shoali_folder_tensor *)b)->weight->name);
}

static shoal_status sort(struct shoali_weight_folder *folder)
{
    if (folder->tensor_count > 0)
        qsort(folder->tensor, (size_t)folder->tensor_count, sizeof *folder->tensor, by_name);
    for (int32_t i = 1; i < folder->tensor_count; i++) {
        const struct shoali_folder_tensor *a = &folder->tensor[i - 1], *b = &folder->tensor[i];
        if (strcmp(a->weight->name, b->weight->name) == 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s: `%s` is in %s and in %s", folder->dir,
                              a->weight->name, folder->file[a->file].name,
                              folder->file[b->file].name);
    }
    return SHOAL_OK;
}

/* ---- opening -------------------------------------------------------------------------------- */

static shoal_status open_index(struct shoali_weight_folder *folder, const char *name)
{
    shoal_status status;
    struct shoali_json *document = NULL;
    const char *path = path_of(folder, name);
    if (!path)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_json_load(path, &document), done);
    json_t *map = json_object_get(shoali_json_root(document), "weight_map");
    if (!json_is_object(map)) {
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s: there is no object `weight_map`", path);
        goto done;
    }
    SHOAL_TRY(status, open_files(folder, document, map), done);
    SHOAL_TRY(status, sort(folder), done);
    SHOAL_TRY(status, compare_index(folder, path, map), done);
done:
    shoali_json_close(document);
    return status;
}

static shoal_status open_single(struct shoali_weight_folder *folder, const char *name)
{
    shoal_status status;
    folder->file = shoali_arena_alloc(&folder->arena, sizeof *folder->file);
    if (!folder->file)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, open_file(folder, name), done);
    SHOAL_TRY(status, sort(folder), done);
done:
    return status;
}

static shoal_status init(struct shoali_weight_folder *folder, const char *dir)
{
    *folder = (struct shoali_weight_folder){0};
    shoali_arena_init(&folder->arena);
    folder->dir = shoali_arena_strdup(&folder->arena, dir);
    folder->raw = shoali_malloc(SHOALI_WEIGHT_PIECE_BYTES, "a piece of a weight");
    return folder->dir && folder->raw ? SHOAL_OK : SHOAL_ENOMEM;
}

static shoal_status open_kind(struct shoali_weight_folder *folder, const json_t *manifest,
                              const char *name)
{
    shoal_status status = SHOAL_OK;
    size_t i;
    json_t *kind, *file;
    const json_t *files = NULL;
    json_array_foreach(json_object_get(manifest, "kinds"), i, kind)
    {
        if (strcmp(json_string_value(json_object_get(kind, "name")), name) == 0)
            files = json_object_get(kind, "files");
    }
    if (!files)
        return SHOAL_FAIL(SHOAL_ENOENT, "%s has no tensors of the kind `%s`", folder->dir, name);
    folder->file =
        shoali_arena_alloc(&folder->arena, (json_array_size(files) + 1) * sizeof *folder->file);
    if (!folder->file)
        return SHOAL_ENOMEM;
    json_array_foreach(files, i, file)
    {
        SHOAL_TRY(status, open_file(folder, json_string_value(json_object_get(file, "name"))),
                  done);
    }
    SHOAL_TRY(status, sort(folder), done);
done:
    return status;
}

shoal_status shoali_weight_folder_open_kind(struct shoali_weight_folder *folder, const char *dir,
                                            const char *kind)
{
    shoal_status status;
    json_t *manifest = NULL;
    SHOAL_TRY(status, init(folder, dir), done);
    SHOAL_TRY(status, shoali_manifest_read(dir, ".", &manifest), done);
    SHOAL_TRY(status, open_kind(folder, manifest, kind), done);
done:
    json_decref(manifest);
    return status;
}

/* ---- checkpoints of other programs ---------------------------------------------------------- */

const struct shoali_weight_source *shoali_weight_source_find(const char *dir)
{
    int32_t i = 0;
    while (shoali_weight_sources[i] && !shoali_weight_sources[i]->probe(dir))
        i++;
    return shoali_weight_sources[i];
}

static shoal_status list_source(struct shoali_weight_folder *folder)
{
    shoal_status status;
    SHOAL_TRY(status, folder->source->open(folder->dir, &folder->opened), done);
    const int32_t count = folder->source->count(folder->opened);
    struct shoali_file_tensor *weight =
        shoali_arena_alloc(&folder->arena, ((size_t)count + 1) * sizeof *weight);
    folder->tensor =
        shoali_arena_alloc(&folder->arena, ((size_t)count + 1) * sizeof *folder->tensor);
    if (!weight || !folder->tensor) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t i = 0; i < count; i++) {
        struct shoali_folder_tensor *tensor = &folder->tensor[folder->tensor_count++];
        *tensor =
            (struct shoali_folder_tensor){.weight = &weight[i], .dtype = SHOAL_F32, .file = i};
        weight[i] = (struct shoali_file_tensor){
            .name = folder->source->get(folder->opened, i, &tensor->shape)};
    }
    if (count > 0)
        qsort(folder->tensor, (size_t)count, sizeof *folder->tensor, by_name);
done:
    return status;
}

shoal_status shoali_weight_folder_open(struct shoali_weight_folder *folder, const char *dir)
{
    const shoal_status status = init(folder, dir);
    if (status < 0)
        return status;
    for (int i = 0; i < PLACES; i++) {
        if (shoali_has_file(folder->dir, places[i].single))
            return open_single(folder, places[i].single);
        if (shoali_has_file(folder->dir, places[i].index))
            return open_index(folder, places[i].index);
    }
    folder->source = shoali_weight_source_find(dir);
    if (folder->source)
        return list_source(folder);
    return SHOAL_FAIL(SHOAL_ENOENT,
                      "%s has no weights: neither model.safetensors nor pytorch_model.bin, nor an "
                      "index of several such files",
                      dir);
}

void shoali_weight_folder_close(struct shoali_weight_folder *folder)
{
    for (int32_t i = 0; i < folder->file_count; i++)
        shoali_tensor_file_close(&folder->file[i].view);
    if (folder->source)
        folder->source->close(folder->opened);
    shoali_free(folder->raw);
    shoali_arena_fini(&folder->arena);
}

static int against_name(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct shoali_folder_tensor *)tensor)->weight->name);
}

int32_t shoali_weight_folder_find(const struct shoali_weight_folder *folder, const char *name)
{
    const struct shoali_folder_tensor *at =
        folder->tensor_count > 0 ? bsearch(name, folder->tensor, (size_t)folder->tensor_count,
                                           sizeof *folder->tensor, against_name)
                                 : NULL;
    return at ? (int32_t)(at - folder->tensor) : -1;
}

/* ---- elements ------------------------------------------------------------------------------- */

static void round_to(const float *wide, int64_t count, shoal_dtype dtype, uint16_t *out)
{
    for (int64_t i = 0; i < count && dtype == SHOAL_BF16; i++)
        out[i] = shoali_f32_to_bf16(wide[i]);
    for (int64_t i = 0; i < count && dtype == SHOAL_F16; i++)
        out[i] = shoali_f32_to_f16(wide[i]);
}

/* fp64 numbers that are finite and no fp32 numbers. */
static shoal_status count_lost_f64(struct shoali_weight_folder *folder, int32_t tensor,
                                   int64_t first, int64_t count)
{
    enum { ROOM = 512 };
    shoal_status status = SHOAL_OK;
    struct shoali_folder_tensor *from = &folder->tensor[tensor];
    double wide[ROOM];
    for (int64_t at = 0; at < count; at += ROOM) {
        const int64_t part = count - at < ROOM ? count - at : ROOM;
        SHOAL_TRY(status,
                  shoali_tensor_file_read(&folder->file[from->file].view, from->weight, first + at,
                                          part, wide),
                  done);
        for (int64_t i = 0; i < part; i++)
            from->lost += isfinite(wide[i]) && !isfinite((float)wide[i]);
    }
done:
    return status;
}

static shoal_status read_f32(struct shoali_weight_folder *folder, int32_t tensor, int64_t first,
                             int64_t count, float *out)
{
    const struct shoali_folder_tensor *from = &folder->tensor[tensor];
    if (folder->source)
        return folder->source->read(folder->opened, from->file, first, count, out);
    return shoali_tensor_file_read_f32(&folder->file[from->file].view, from->weight, first, count,
                                       out);
}

/* What a file of fp64 lost on the way to these fp32 numbers; without infinities it is not read
 * again. */
static shoal_status check_f64(struct shoali_weight_folder *folder, int32_t tensor, int64_t first,
                              int64_t count, const float *values)
{
    bool infinite = false;
    for (int64_t i = 0; i < count && folder->tensor[tensor].dtype == SHOAL_F64; i++)
        infinite |= !isfinite(values[i]);
    return infinite ? count_lost_f64(folder, tensor, first, count) : SHOAL_OK;
}

shoal_status shoali_weight_folder_read(struct shoali_weight_folder *folder, int32_t tensor,
                                       int64_t first, int64_t count, shoal_dtype dtype, void *out)
{
    shoal_status status = SHOAL_OK;
    enum { AT_ONCE = SHOALI_WEIGHT_PIECE_BYTES / (int)sizeof(float) };
    const struct shoali_folder_tensor *from = &folder->tensor[tensor];
    if (from->dtype == dtype && !folder->source)
        return shoali_tensor_file_read(&folder->file[from->file].view, from->weight, first, count,
                                       out);
    if (dtype == SHOAL_F32) {
        SHOAL_TRY(status, read_f32(folder, tensor, first, count, out), done);
        return check_f64(folder, tensor, first, count, out);
    }
    for (int64_t at = 0; at < count; at += AT_ONCE) {
        const int64_t part = count - at < AT_ONCE ? count - at : AT_ONCE;
        float *wide = (float *)(void *)folder->raw;
        SHOAL_TRY(status, read_f32(folder, tensor, first + at, part, wide), done);
        SHOAL_TRY(status, check_f64(folder, tensor, first + at, part, wide), done);
        shoali_weight_count_lost(folder, tensor, wide, part, dtype);
        round_to(wide, part, dtype, (uint16_t *)out + at);
    }
done:
    return status;
}

/* ---- what a type does not hold -------------------------------------------------------------- */

enum { LOST_SHOWN = 4 };

int64_t shoali_weight_lost(const float *values, int64_t count, shoal_dtype dtype)
{
    enum { BF16_INFINITY = 0x7f80, F16_INFINITY = 0x7c00, NO_SIGN = 0x7fff };
    int64_t lost = 0;
    for (int64_t i = 0; i < count && dtype == SHOAL_BF16; i++)
        lost += isfinite(values[i]) && (shoali_f32_to_bf16(values[i]) & NO_SIGN) == BF16_INFINITY;
    for (int64_t i = 0; i < count && dtype == SHOAL_F16; i++)
        lost += isfinite(values[i]) && (shoali_f32_to_f16(values[i]) & NO_SIGN) == F16_INFINITY;
    return lost;
}

void shoali_weight_count_lost(struct shoali_weight_folder *folder, int32_t tensor,
                              const float *values, int64_t count, shoal_dtype dtype)
{
    folder->tensor[tensor].lost += shoali_weight_lost(values, count, dtype);
}

void shoali_weight_lost_add(struct shoali_weight_lost *sum, const char *name, int64_t lost)
{
    if (lost == 0)
        return;
    sum->lost += lost;
    if (sum->tensors++ < LOST_SHOWN)
        shoali_str_append(&sum->names, "%s`%s` (%lld)", sum->tensors > 1 ? ", " : "", name,
                          (long long)lost);
}

bool shoali_weight_lost_end(struct shoali_weight_lost *sum, shoal_dtype dtype,
                            struct shoali_str *out)
{
    const char *type = dtype == SHOAL_F16    ? "fp16 (65504)"
                       : dtype == SHOAL_BF16 ? "bf16 (3.39e38)"
                                             : "fp32 (3.40e38)";
    if (sum->tensors > LOST_SHOWN)
        shoali_str_append(&sum->names, " and %d more tensors", (int)sum->tensors - LOST_SHOWN);
    if (sum->lost > 0)
        shoali_str_append(out, "%lld number%s beyond the range of %s: %s", (long long)sum->lost,
                          sum->lost == 1 ? " is" : "s are", type, shoali_str_get(&sum->names));
    out->failed = out->failed || sum->names.failed;
    shoali_str_fini(&sum->names);
    return sum->lost > 0;
}

bool shoali_weight_describe_lost(const struct shoali_weight_folder *folder, const int32_t *found,
                                 int32_t count, shoal_dtype dtype, struct shoali_str *out)
{
    struct shoali_weight_lost sum = {0};
    for (int32_t i = 0; i < count; i++)
        if (found[i] >= 0)
            shoali_weight_lost_add(&sum, folder->tensor[found[i]].weight->name,
                                   folder->tensor[found[i]].lost);
    return shoali_weight_lost_end(&sum, dtype, out);
}

shoal_status shoali_weight_agree(shoal_group *group, shoal_status status)
{
    const struct shoali_checkpoint_args args = {.group = group};
    struct shoali_checkpoint_run run;
    shoali_checkpoint_run_init(&run, &args, "load weights");
    status = shoali_checkpoint_agree(&run, status);
    shoali_checkpoint_run_fini(&run);
    return status;
}
