/* What all stages share: finding the files, numbers, reading. */
#include "foreign/deepspeed/deepspeed.h"
#include "foreign/pickle.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096, TAG_BYTES = 256, FILES_MAX = 1 << 20 };

/* ---- which folder ---- */

static bool join(char out[PATH_BYTES], const char *folder, const char *name)
{
    return snprintf(out, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES;
}

static bool is_folder(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    struct stat info;
    return join(path, folder, name) && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

static bool is_states_file(const char *name)
{
    return (strncmp(name, "mp_rank_", 8) == 0 || strncmp(name, "zero_pp_rank_", 13) == 0 ||
            strncmp(name, "bf16_zero_pp_rank_", 18) == 0) &&
           (ends_with(name, "_model_states.pt") || ends_with(name, "_optim_states.pt"));
}

/* Whether a folder itself has such files. */
static bool has_states(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir)))
        found = is_states_file(entry->d_name);
    if (dir)
        closedir(dir);
    return found;
}

/* The tag that DIR/latest names. */
static bool read_latest(const char *dir, const char *file, char tag[TAG_BYTES])
{
    char path[PATH_BYTES];
    *tag = '\0';
    if (join(path, dir, file))
        shoali_first_line(path, tag, TAG_BYTES);
    return *tag && !strchr(tag, '/') && tag[0] != '.' && is_folder(dir, tag);
}

/* DIR/TAG in `folder`; tag gets its name. */
static bool resolve(const char *dir, const char *asked, char folder[PATH_BYTES],
                    char tag[TAG_BYTES])
{
    if (asked)
        snprintf(tag, TAG_BYTES, "%s", asked);
    else if (!read_latest(dir, "latest", tag) && !read_latest(dir, "latest_universal", tag)) {
        const char *slash = strrchr(dir, '/');
        snprintf(tag, TAG_BYTES, "%s", slash ? slash + 1 : dir);
        return snprintf(folder, PATH_BYTES, "%s", dir) < PATH_BYTES && has_states(folder);
    }
    return join(folder, dir, tag) && has_states(folder);
}

bool shoali_deepspeed_is(const char *dir, const char *tag)
{
    char folder[PATH_BYTES], found[TAG_BYTES];
    return dir && resolve(dir, tag, folder, found);
}

char *shoali_deepspeed_folder(const char *dir, const char *tag)
{
    char folder[PATH_BYTES], found[TAG_BYTES];
    return resolve(dir, tag, folder, found) ? strdup(folder) : NULL;
}

/* ---- building ---- */

int32_t shoali_deepspeed_path(struct shoali_deepspeed *checkpoint, const char *path)
{
    if (checkpoint->path_count == checkpoint->path_capacity) {
        const int32_t capacity = 2 * checkpoint->path_capacity + 16;
        const char **larger =
            shoali_arena_alloc(&checkpoint->arena, (size_t)capacity * sizeof *larger);
        if (!larger)
            return -1;
        if (checkpoint->path_count > 0)
            memcpy(larger, checkpoint->path, (size_t)checkpoint->path_count * sizeof *larger);
        checkpoint->path = larger;
        checkpoint->path_capacity = capacity;
    }
    const char *own = shoali_arena_strdup(&checkpoint->arena, path);
    if (!own)
        return -1;
    checkpoint->path[checkpoint->path_count] = own;
    return checkpoint->path_count++;
}

struct shoali_deepspeed_param *shoali_deepspeed_add(struct shoali_deepspeed *checkpoint,
                                                    const char *name, const shoal_shape *shape)
{
    if (checkpoint->param_count == checkpoint->param_capacity) {
        const int32_t capacity = 2 * checkpoint->param_capacity + 64;
        struct shoali_deepspeed_param *larger =
            shoali_arena_alloc(&checkpoint->arena, (size_t)capacity * sizeof *larger);
        if (!larger)
            return NULL;
        if (checkpoint->param_count > 0)
            memcpy(larger, checkpoint->param, (size_t)checkpoint->param_count * sizeof *larger);
        checkpoint->param = larger;
        checkpoint->param_capacity = capacity;
    }
    struct shoali_deepspeed_param *param = &checkpoint->param[checkpoint->param_count];
    *param = (struct shoali_deepspeed_param){.name = shoali_arena_strdup(&checkpoint->arena, name),
                                             .shape = *shape,
                                             .count = shoal_shape_count(shape)};
    if (!param->name)
        return NULL;
    checkpoint->param_count++;
    return param;
}

int32_t shoali_deepspeed_find_kind(const struct shoali_deepspeed *checkpoint, const char *kind)
{
    for (int32_t k = 0; k < checkpoint->kind_count; k++)
        if (strcmp(checkpoint->kind[k], kind) == 0)
            return k;
    return -1;
}

int32_t shoali_deepspeed_kind(struct shoali_deepspeed *checkpoint, const char *name)
{
    const int32_t found = shoali_deepspeed_find_kind(checkpoint, name);
    if (found >= 0 || checkpoint->kind_count == SHOALI_DEEPSPEED_KINDS)
        return found;
    checkpoint->kind[checkpoint->kind_count] = shoali_arena_strdup(&checkpoint->arena, name);
    return checkpoint->kind[checkpoint->kind_count] ? checkpoint->kind_count++ : -1;
}

shoal_status shoali_deepspeed_place(struct shoali_deepspeed *checkpoint,
                                    struct shoali_deepspeed_param *param,
                                    const struct shoali_deepspeed_place *place)
{
    struct shoali_deepspeed_pieces *pieces = &param->kind[place->kind];
    const struct shoali_file_tensor *tensor = place->tensor;
    const char *path = checkpoint->path[place->file];
    if (tensor->stride || tensor->memory || tensor->type > SHOALI_ELEMENT_BF16)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: `%s` is not a contiguous tensor of floating-point numbers", path,
                          param->name);
    if (place->from < 0 || place->from > tensor->count - place->count ||
        place->begin != pieces->covered)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%s, byte %lld: `%s` should have elements %lld to %lld here, but the tensor has %lld",
            path, (long long)tensor->at, param->name, (long long)place->begin,
            (long long)(place->begin + place->count - 1), (long long)tensor->count);
    if (pieces->count == pieces->capacity) {
        const int32_t capacity = pieces->capacity > 0 ? 2 * pieces->capacity : 1;
        struct shoali_deepspeed_piece *larger =
            shoali_arena_alloc(&checkpoint->arena, (size_t)capacity * sizeof *larger);
        if (!larger)
            return SHOAL_ENOMEM;
        if (pieces->count > 0)
            memcpy(larger, pieces->piece, (size_t)pieces->count * sizeof *larger);
        pieces->piece = larger;
        pieces->capacity = capacity;
    }
    pieces->piece[pieces->count++] = (struct shoali_deepspeed_piece){
        .file = place->file,
        .type = tensor->type,
        .at = tensor->at + place->from * (int64_t)shoali_element_bytes(tensor->type),
        .begin = place->begin,
        .count = place->count};
    pieces->covered += place->count;
    return SHOAL_OK;
}

bool shoali_deepspeed_shape(const struct shoali_value *value, shoal_shape *shape)
{
    *shape = (shoal_shape){.ndim = (int32_t)shoali_value_count(value)};
    if (!shoali_value_is_sequence(value) || shoali_value_count(value) > SHOAL_MAX_DIMS)
        return false;
    for (int32_t d = 0; d < shape->ndim; d++)
        if (!shoali_value_int(shoali_value_at(value, d), &shape->dim[d]))
            return false;
    return shoal_shape_count(shape) >= 0 && shoal_shape_count(shape) < INT64_MAX / 64;
}

static shoal_status take_dict(struct shoali_deepspeed *checkpoint,
                              const struct shoali_tensor_file *file,
                              const struct shoali_value *shapes, bool frozen)
{
    for (int64_t i = 0; i < shoali_value_count(shapes); i++) {
        shoal_shape shape;
        const char *name = shoali_value_text(shapes->as.list.item[2 * i]);
        const struct shoali_value *value = shapes->as.list.item[2 * i + 1];
        if (!name || !shoali_deepspeed_shape(value, &shape))
            return shoali_input_fail(&file->input, value->at,
                                     "a parameter's shape is not a list of at most %d dimensions",
                                     SHOAL_MAX_DIMS);
        struct shoali_deepspeed_param *param = shoali_deepspeed_add(checkpoint, name, &shape);
        if (!param)
            return SHOAL_ENOMEM;
        param->frozen = frozen;
    }
    return SHOAL_OK;
}

shoal_status shoali_deepspeed_take_shapes(struct shoali_deepspeed *checkpoint,
                                          const struct shoali_tensor_file *file,
                                          const struct shoali_value *root, int32_t group_end[64],
                                          int32_t *groups)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_value *shapes = shoali_value_get(root, "param_shapes");
    *groups = 0;
    if (shapes && shapes->kind == SHOALI_VALUE_DICT) { /* of versions before there were groups */
        SHOAL_TRY(status, take_dict(checkpoint, file, shapes, false), done);
        group_end[(*groups)++] = checkpoint->param_count;
    }
    for (int64_t g = 0; shoali_value_is_sequence(shapes) && g < shoali_value_count(shapes); g++) {
        const struct shoali_value *group = shoali_value_at(shapes, g);
        if (group->kind != SHOALI_VALUE_DICT || g == 64)
            return shoali_input_fail(&file->input, group->at,
                                     "param_shapes is not a list of at most 64 dictionaries");
        SHOAL_TRY(status, take_dict(checkpoint, file, group, false), done);
        group_end[(*groups)++] = checkpoint->param_count;
    }
    const struct shoali_value *frozen = shoali_value_get(root, "frozen_param_shapes");
    if (frozen && frozen->kind == SHOALI_VALUE_DICT)
        SHOAL_TRY(status, take_dict(checkpoint, file, frozen, true), done);
done:
    return status;
}

/* shared_params; parameters that were added before it. */
static shoal_status take_shared(struct shoali_deepspeed *checkpoint,
                                const struct shoali_value *root)
{
    const struct shoali_value *shared = shoali_value_get(root, "shared_params");
    const int64_t count =
        shared && shared->kind == SHOALI_VALUE_DICT ? shoali_value_count(shared) : 0;
    checkpoint->shared =
        shoali_arena_alloc(&checkpoint->arena, ((size_t)count + 1) * sizeof *checkpoint->shared);
    if (!checkpoint->shared)
        return SHOAL_ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        const char *name = shoali_value_text(shared->as.list.item[2 * i]),
                   *source = shoali_value_text(shared->as.list.item[2 * i + 1]);
        if (!name || !source)
            continue;
        struct shoali_deepspeed_shared *own = &checkpoint->shared[checkpoint->shared_count++];
        own->name = shoali_arena_strdup(&checkpoint->arena, name);
        own->source = shoali_arena_strdup(&checkpoint->arena, source);
        if (!own->name || !own->source)
            return SHOAL_ENOMEM;
    }
    return SHOAL_OK;
}

/* ---- numbers ---- */

void shoali_deepspeed_take_int(const struct shoali_value *root, const char *key, int64_t *number)
{
    (void)shoali_value_int(shoali_value_get(root, key), number);
}

static bool is_enabled(const struct shoali_value *config, const char *section)
{
    int64_t enabled = 0;
    (void)shoali_value_int(shoali_value_get(shoali_value_get(config, section), "enabled"),
                           &enabled);
    return enabled != 0;
}

static void take_model_numbers(struct shoali_deepspeed *checkpoint, const struct shoali_value *root)
{
    struct shoali_deepspeed_numbers *numbers = &checkpoint->numbers;
    const struct shoali_value *config = shoali_value_get(root, "ds_config");
    const char *version = shoali_value_text(shoali_value_get(root, "ds_version"));
    shoali_deepspeed_take_int(root, "global_steps", &numbers->global_steps);
    shoali_deepspeed_take_int(root, "skipped_steps", &numbers->skipped_steps);
    shoali_deepspeed_take_int(root, "global_samples", &numbers->global_samples);
    shoali_deepspeed_take_int(config, "train_batch_size", &numbers->train_batch_size);
    shoali_deepspeed_take_int(shoali_value_get(root, "lr_scheduler"), "last_batch_iteration",
                              &numbers->last_batch_iteration);
    if (version)
        numbers->version = shoali_arena_strdup(&checkpoint->arena, version);
    if (config)
        numbers->dtype = is_enabled(config, "fp16")       ? "F16"
                         : is_enabled(config, "bf16")     ? "BF16"
                         : is_enabled(config, "bfloat16") ? "BF16"
                                                          : "F32";
}

/* ---- opening ---- */

struct listing {
    char **name; /* owned */
    int32_t count;
};

static void listing_fini(struct listing *list)
{
    for (int32_t i = 0; i < list->count; i++)
        free(list->name[i]);
    free(list->name);
}

static int is_states_entry(const struct dirent *entry)
{
    return is_states_file(entry->d_name);
}

static int by_version(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

/* Files of one ending, in the order of the numbers in their names. */
static shoal_status list_files(struct shoali_deepspeed *checkpoint, const char *end,
                               struct listing *list)
{
    struct dirent **entry = NULL;
    shoal_status status = SHOAL_OK;
    const int count = scandir(checkpoint->folder, &entry, is_states_entry, by_version);
    char path[PATH_BYTES];
    if (count < 0)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: %s", checkpoint->folder, strerror(errno));
    list->name = shoali_calloc((size_t)count + 1, sizeof *list->name, "names of files");
    if (!list->name || count > FILES_MAX)
        status = SHOAL_ENOMEM;
    for (int i = 0; i < count; i++) {
        if (status == SHOAL_OK && ends_with(entry[i]->d_name, end) &&
            join(path, checkpoint->folder, entry[i]->d_name)) {
            list->name[list->count] = strdup(path);
            if (list->name[list->count])
                list->count++;
            else
                status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a file");
        }
        free(entry[i]);
    }
    free(entry);
    return status;
}

/* Ranks of a model that is cut itself: mp_rank_01 and so on, or their count in the file. */
static shoal_status check_model_parallel(const struct shoali_tensor_file *model,
                                         const struct listing *list)
{
    int64_t degree = 1;
    (void)shoali_value_int(shoali_value_get(model->root, "mp_world_size"), &degree);
    for (int32_t i = 0; i < list->count; i++)
        if (!strstr(list->name[i], "mp_rank_00"))
            degree = degree > 1 ? degree : 2;
    if (degree > 1)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "%s: its model is partitioned by tensor or pipeline parallelism: convert "
                          "it with DeepSpeed's ds_to_universal, and load the result",
                          model->input.path);
    return SHOAL_OK;
}

/* Masters must be whole; states too, of what is trained. */
static shoal_status check_whole(const struct shoali_deepspeed *checkpoint)
{
    for (int32_t p = 0; p < checkpoint->param_count; p++) {
        const struct shoali_deepspeed_param *param = &checkpoint->param[p];
        for (int32_t k = 0; k < (param->frozen ? 1 : checkpoint->kind_count); k++)
            if (param->kind[k].covered != param->count)
                return SHOAL_FAIL(SHOAL_EINVAL,
                                  "%s: its files have %lld of the %lld elements of %s of `%s`",
                                  checkpoint->folder, (long long)param->kind[k].covered,
                                  (long long)param->count, checkpoint->kind[k], param->name);
    }
    if (checkpoint->param_count == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: a checkpoint without parameters", checkpoint->folder);
    return SHOAL_OK;
}

static shoal_status open_files(struct shoali_deepspeed *checkpoint)
{
    shoal_status status;
    struct listing models = {0}, optimizers = {0};
    struct shoali_tensor_file model = {0};
    SHOAL_TRY(status, list_files(checkpoint, "_model_states.pt", &models), done);
    SHOAL_TRY(status, list_files(checkpoint, "_optim_states.pt", &optimizers), done);
    if (models.count == 0) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "%s: there is no file *_model_states.pt", checkpoint->folder);
        goto done;
    }
    SHOAL_TRY(status, shoali_tensor_file_open(models.name[0], &model), done);
    if (!model.root || model.root->kind != SHOALI_VALUE_DICT) {
        status = shoali_input_fail(&model.input, -1, "no model states of DeepSpeed");
        goto done;
    }
    take_model_numbers(checkpoint, model.root);
    SHOAL_TRY(status, take_shared(checkpoint, model.root), done);
    const bool universal = is_folder(checkpoint->folder, "zero");
    if (!universal)
        SHOAL_TRY(status, check_model_parallel(&model, &models), done);
    if (shoali_deepspeed_kind(checkpoint, "master") < 0)
        status = SHOAL_ENOMEM;
    else if (universal)
        status = shoali_deepspeed_open_universal(checkpoint, &model);
    else if (optimizers.count > 0)
        status = shoali_deepspeed_open_zero(checkpoint, &model,
                                            (const char *const *)optimizers.name, optimizers.count);
    else
        status = shoali_deepspeed_open_plain(checkpoint, &model);
    if (status == SHOAL_OK)
        status = check_whole(checkpoint);
done:
    shoali_tensor_file_close(&model);
    listing_fini(&models);
    listing_fini(&optimizers);
    return status;
}

shoal_status shoali_deepspeed_open(const char *dir, const char *tag,
                                   struct shoali_deepspeed *checkpoint)
{
    char folder[PATH_BYTES], found[TAG_BYTES];
    *checkpoint = (struct shoali_deepspeed){.open_file = -1, .open = {.descriptor = -1}};
    shoali_arena_init(&checkpoint->arena);
    checkpoint->numbers = (struct shoali_deepspeed_numbers){.global_steps = -1,
                                                            .skipped_steps = -1,
                                                            .global_samples = -1,
                                                            .train_batch_size = -1,
                                                            .optimizer_step = -1,
                                                            .last_batch_iteration = -1,
                                                            .loss_scale = -1,
                                                            .scaler_iteration = -1,
                                                            .scaler_last_overflow = -1,
                                                            .scaler_hysteresis_left = -1,
                                                            .ranks = 1,
                                                            .decoupled = -1};
    if (!resolve(dir, tag, folder, found))
        return SHOAL_FAIL(SHOAL_ENOENT, "%s: there is no checkpoint of DeepSpeed%s%s", dir,
                          tag ? " named " : "", tag ? tag : "");
    checkpoint->folder = shoali_arena_strdup(&checkpoint->arena, folder);
    checkpoint->tag = shoali_arena_strdup(&checkpoint->arena, found);
    return checkpoint->folder && checkpoint->tag ? open_files(checkpoint) : SHOAL_ENOMEM;
}

void shoali_deepspeed_close(struct shoali_deepspeed *checkpoint)
{
    shoali_input_close(&checkpoint->open);
    shoali_arena_fini(&checkpoint->arena);
    *checkpoint = (struct shoali_deepspeed){.open_file = -1, .open = {.descriptor = -1}};
}

/* ---- reading ---- */

int32_t shoali_deepspeed_find(const struct shoali_deepspeed *checkpoint, const char *name)
{
    for (int32_t p = 0; p < checkpoint->param_count; p++)
        if (strcmp(checkpoint->param[p].name, name) == 0)
            return p;
    for (int32_t s = 0; s < checkpoint->shared_count; s++)
        for (int32_t p = 0; p < checkpoint->param_count; p++)
            if (strcmp(checkpoint->shared[s].name, name) == 0 &&
                strcmp(checkpoint->param[p].name, checkpoint->shared[s].source) == 0)
                return p;
    return -1;
}

static shoal_status read_piece(struct shoali_deepspeed *checkpoint,
                               const struct shoali_deepspeed_piece *piece, int64_t first,
                               int64_t count, float *out)
{
    shoal_status status = SHOAL_OK;
    const int64_t dim = piece->count;
    if (checkpoint->open_file != piece->file) {
        shoali_input_close(&checkpoint->open);
        checkpoint->open_file = -1;
        SHOAL_TRY(status, shoali_input_open(checkpoint->path[piece->file], &checkpoint->open),
                  done);
        checkpoint->open_file = piece->file;
    }
    struct shoali_tensor_file view = {.input = checkpoint->open};
    const struct shoali_file_tensor tensor = {.name = "",
                                              .type = piece->type,
                                              .ndim = 1,
                                              .dim = &dim,
                                              .count = piece->count,
                                              .at = piece->at};
    SHOAL_TRY(status, shoali_tensor_file_read_f32(&view, &tensor, first, count, out), done);
done:
    return status;
}

shoal_status shoali_deepspeed_read(struct shoali_deepspeed *checkpoint, int32_t param, int32_t kind,
                                   int64_t first, int64_t count, float *out)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_deepspeed_param *own = &checkpoint->param[param];
    const struct shoali_deepspeed_pieces *pieces = &own->kind[kind];
    SHOAL_ASSERT(first >= 0 && count >= 0 && first <= own->count - count);
    if (own->frozen && kind > 0) {
        memset(out, 0, (size_t)count * sizeof *out);
        return SHOAL_OK;
    }
    for (int32_t i = 0; i < pieces->count; i++) {
        const struct shoali_deepspeed_piece *piece = &pieces->piece[i];
        const int64_t low = piece->begin > first ? piece->begin : first;
        const int64_t end = piece->begin + piece->count, last = first + count;
        const int64_t high = end < last ? end : last;
        if (low < high)
            SHOAL_TRY(
                status,
                read_piece(checkpoint, piece, low - piece->begin, high - low, out + (low - first)),
                done);
    }
done:
    return status < 0 ? shoali_error_prefix(status, "`%s`", own->name) : status;
}
