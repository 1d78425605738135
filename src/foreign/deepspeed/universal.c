/* Universal checkpoints: zero/NAME/KIND.pt, each a tensor or a dict with it as "param". */
#include "foreign/deepspeed/deepspeed.h"
#include "foreign/pickle.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The shape that model states say; false: they do not. */
static bool stated_shape(const struct shoali_value *root, const char *name, shoal_shape *shape)
{
    const struct shoali_value *shapes = shoali_value_get(root, "param_shapes");
    for (int64_t g = 0; g < shoali_value_count(shapes); g++) {
        const struct shoali_value *group = shoali_value_at(shapes, g);
        if (shoali_deepspeed_shape(shoali_value_get(group, name), shape))
            return true;
    }
    return shoali_deepspeed_shape(shoali_value_get(shapes, name), shape);
}

/* A file with one tensor. */
static shoal_status place_file(struct shoali_deepspeed *checkpoint,
                               struct shoali_deepspeed_param *param, const char *path,
                               const struct shoali_file_tensor *tensor, const char *kind)
{
    const struct shoali_deepspeed_place place = {.file = shoali_deepspeed_path(checkpoint, path),
                                                 .kind = shoali_deepspeed_kind(checkpoint, kind),
                                                 .tensor = tensor,
                                                 .count = param->count};
    if (place.file < 0)
        return SHOAL_ENOMEM;
    if (place.kind < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: more than %d states per parameter", path,
                          SHOALI_DEEPSPEED_KINDS - 1);
    if (tensor->count != param->count)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: %lld elements, and `%s` has %lld", path,
                          (long long)tensor->count, param->name, (long long)param->count);
    return shoali_deepspeed_place(checkpoint, param, &place);
}

static const struct shoali_file_tensor *only_tensor(const struct shoali_tensor_file *file)
{
    const struct shoali_file_tensor *own = shoali_value_tensor(file->root);
    return own ? own : shoali_value_tensor(shoali_value_get(file->root, "param"));
}

/* fp32.pt makes the parameter. */
static shoal_status read_weights(struct shoali_deepspeed *checkpoint,
                                 const struct shoali_tensor_file *model, const char *folder,
                                 const char *name, struct shoali_deepspeed_param **param)
{
    shoal_status status;
    struct shoali_tensor_file file = {0};
    shoal_shape shape;
    const char *path = shoali_arena_printf(&checkpoint->arena, "%s/%s/fp32.pt", folder, name);
    if (!path)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_tensor_file_open(path, &file), done);
    /* what visiting the tree found has its place in the file */
    const struct shoali_file_tensor *tensor = only_tensor(&file);
    if (!tensor ||
        (!stated_shape(model->root, name, &shape) && !shoali_file_tensor_shape(tensor, &shape))) {
        status = shoali_input_fail(&file.input, -1, "it holds no tensor `param`");
        goto done;
    }
    *param = shoali_deepspeed_add(checkpoint, name, &shape);
    if (!*param)
        status = SHOAL_ENOMEM;
    else
        SHOAL_TRY(status, place_file(checkpoint, *param, path, tensor, "master"), done);
done:
    shoali_tensor_file_close(&file);
    return status;
}

static shoal_status read_state(struct shoali_deepspeed *checkpoint,
                               struct shoali_deepspeed_param *param, const char *folder,
                               const char *file_name)
{
    shoal_status status;
    struct shoali_tensor_file file = {0};
    char kind[64];
    const char *path =
        shoali_arena_printf(&checkpoint->arena, "%s/%s/%s", folder, param->name, file_name);
    if (!path)
        return SHOAL_ENOMEM;
    snprintf(kind, sizeof kind, "%.*s", (int)(strlen(file_name) - 3), file_name);
    SHOAL_TRY(status, shoali_tensor_file_open(path, &file), done);
    const struct shoali_file_tensor *tensor = only_tensor(&file);
    if (strcmp(kind, "step") == 0)
        status = shoali_deepspeed_step(checkpoint, &file, file.root);
    else if (tensor)
        status = place_file(checkpoint, param, path, tensor, kind);
    else
        status = shoali_input_fail(&file.input, -1, "it holds no tensor `param`");
done:
    shoali_tensor_file_close(&file);
    return status;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool is_shared(const struct shoali_deepspeed *checkpoint, const char *name)
{
    for (int32_t i = 0; i < checkpoint->shared_count; i++)
        if (strcmp(checkpoint->shared[i].name, name) == 0)
            return true;
    return false;
}

static shoal_status read_param(struct shoali_deepspeed *checkpoint,
                               const struct shoali_tensor_file *model, const char *folder,
                               const char *name)
{
    shoal_status status;
    struct dirent **entry = NULL;
    struct shoali_deepspeed_param *param = NULL;
    int32_t states = 0;
    const char *path = shoali_arena_printf(&checkpoint->arena, "%s/%s", folder, name);
    if (!path)
        return SHOAL_ENOMEM;
    const int count = scandir(path, &entry, is_visible, alphasort);
    if (count < 0)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: %s", path, strerror(errno));
    status = read_weights(checkpoint, model, folder, name, &param);
    for (int i = 0; i < count; i++) {
        const char *file = entry[i]->d_name;
        const size_t length = strlen(file);
        const bool is_state =
            length > 3 && strcmp(file + length - 3, ".pt") == 0 && strcmp(file, "fp32.pt") != 0;
        if (status == SHOAL_OK && is_state) {
            status = read_state(checkpoint, param, folder, file);
            states++;
        }
        free(entry[i]);
    }
    free(entry);
    if (status == SHOAL_OK)
        param->frozen = states == 0;
    return status;
}

static shoal_status read_optimizer(struct shoali_deepspeed *checkpoint, const char *folder)
{
    shoal_status status;
    struct shoali_tensor_file file = {0};
    const char *path = shoali_arena_printf(&checkpoint->arena, "%s/optimizer_state.pt", folder);
    if (!path)
        return SHOAL_ENOMEM;
    status = shoali_tensor_file_open(path, &file);
    if (status == SHOAL_OK)
        shoali_deepspeed_optimizer_numbers(checkpoint, file.root);
    if (status == SHOAL_ENOENT)
        status = SHOAL_OK; /* loss scale and the like are not known then */
    shoali_tensor_file_close(&file);
    return status;
}

shoal_status shoali_deepspeed_open_universal(struct shoali_deepspeed *checkpoint,
                                             struct shoali_tensor_file *model)
{
    shoal_status status = SHOAL_OK;
    struct dirent **entry = NULL;
    struct stat info;
    const char *folder = shoali_arena_printf(&checkpoint->arena, "%s/zero", checkpoint->folder);
    if (!folder)
        return SHOAL_ENOMEM;
    const int count = scandir(folder, &entry, is_visible, alphasort);
    if (count < 0)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        const char *name = entry[i]->d_name;
        const char *path = shoali_arena_printf(&checkpoint->arena, "%s/%s", folder, name);
        if (!path)
            status = SHOAL_ENOMEM;
        if (status == SHOAL_OK && stat(path, &info) == 0 && S_ISDIR(info.st_mode) &&
            !is_shared(checkpoint, name))
            status = read_param(checkpoint, model, folder, name);
        free(entry[i]);
    }
    free(entry);
    if (status == SHOAL_OK)
        status = read_optimizer(checkpoint, folder);
    checkpoint->numbers.stage = -1;
    return status;
}
