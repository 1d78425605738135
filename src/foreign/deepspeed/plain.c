/* Stage 0: the optimizer numbers its parameters through its groups and does not say which they are.
 * Each group keeps the order of the model, so walking the model's tensors each one is the next of
 * one of the groups: the one whose shape it has. Where two groups have the same shape next, nobody
 * can tell. */
#include "foreign/deepspeed/deepspeed.h"
#include "foreign/pickle.h"

#include <stdio.h>
#include <string.h>

enum { GROUPS_MAX = 64 };

struct group {
    const struct shoali_value *params;  /* numbers in "state" */
    const struct shoali_value *masters; /* tensors; NULL: the module's own are */
    int64_t next;
};
struct reading {
    struct shoali_deepspeed *checkpoint;
    struct shoali_tensor_file *model;
    const struct shoali_value *state;
    struct group group[GROUPS_MAX];
    int32_t groups, file;
};

static const struct shoali_value *state_of(const struct reading *reading, const struct group *group)
{
    int64_t number, key;
    if (!shoali_value_int(shoali_value_at(group->params, group->next), &number))
        return NULL;
    for (int64_t i = 0; i < shoali_value_count(reading->state); i++)
        if (shoali_value_int(reading->state->as.list.item[2 * i], &key) && key == number)
            return reading->state->as.list.item[2 * i + 1];
    return NULL;
}

static bool same_shape(const struct shoali_file_tensor *a, const struct shoali_file_tensor *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int32_t d = 0; d < a->ndim; d++)
        if (a->dim[d] != b->dim[d])
            return false;
    return true;
}

/* Whether the next of a group has the tensor's shape; a group without a state or masters tells
 * nothing by shape. */
static bool could_be(const struct reading *reading, const struct group *group,
                     const struct shoali_file_tensor *tensor)
{
    if (group->next >= shoali_value_count(group->params))
        return false;
    const struct shoali_file_tensor *master =
        shoali_value_tensor(shoali_value_at(group->masters, group->next));
    const struct shoali_value *states = state_of(reading, group);
    if (master)
        return same_shape(master, tensor);
    for (int64_t i = 0; i < shoali_value_count(states); i++) {
        const struct shoali_file_tensor *own = shoali_value_tensor(states->as.list.item[2 * i + 1]);
        if (own && own->ndim > 0)
            return same_shape(own, tensor);
    }
    return true;
}

/* Kinds of one parameter, whole. */
static shoal_status place_all(struct reading *reading, struct shoali_deepspeed_param *param,
                              const struct group *group, const struct shoali_file_tensor *tensor)
{
    shoal_status status;
    const struct shoali_value *states = state_of(reading, group);
    const struct shoali_file_tensor *master =
        shoali_value_tensor(shoali_value_at(group->masters, group->next));
    struct shoali_deepspeed_place place = {
        .file = reading->file, .tensor = master ? master : tensor, .count = param->count};
    SHOAL_TRY(status, shoali_deepspeed_place(reading->checkpoint, param, &place), done);
    for (int64_t i = 0; i < shoali_value_count(states); i++) {
        const char *name = shoali_value_text(states->as.list.item[2 * i]);
        const struct shoali_value *value = states->as.list.item[2 * i + 1];
        place.tensor = shoali_value_tensor(value);
        if (name && strcmp(name, "step") == 0)
            SHOAL_TRY(status, shoali_deepspeed_step(reading->checkpoint, reading->model, value),
                      done);
        else if (name && place.tensor && place.tensor->count == param->count) {
            place.kind = shoali_deepspeed_kind(reading->checkpoint, name);
            if (place.kind < 0)
                return shoali_input_fail(&reading->model->input, value->at,
                                         "an optimizer with too many states per parameter");
            SHOAL_TRY(status, shoali_deepspeed_place(reading->checkpoint, param, &place), done);
        }
    }
done:
    return status;
}

static shoal_status assign(struct reading *reading, const char *name,
                           const struct shoali_file_tensor *tensor)
{
    shoal_status status = SHOAL_OK;
    struct group *found = NULL;
    shoal_shape shape;
    for (int32_t g = 0; g < reading->groups; g++) {
        if (!could_be(reading, &reading->group[g], tensor))
            continue;
        if (found)
            return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                              "%s: two optimizer groups continue with a parameter of the shape of "
                              "`%s`, and the file does not tell them apart: convert it with "
                              "DeepSpeed's ds_to_universal, or load only the weights (--finetune)",
                              reading->model->input.path, name);
        found = &reading->group[g];
    }
    if (!shoali_file_tensor_shape(tensor, &shape))
        return shoali_input_fail(&reading->model->input, tensor->at,
                                 "`%s` has more than %d dimensions", name, SHOAL_MAX_DIMS);
    struct shoali_deepspeed_param *param = shoali_deepspeed_add(reading->checkpoint, name, &shape);
    if (!param)
        return SHOAL_ENOMEM;
    param->frozen = found == NULL;
    const struct shoali_deepspeed_place place = {
        .file = reading->file, .tensor = tensor, .count = param->count};
    if (!found)
        return shoali_deepspeed_place(reading->checkpoint, param, &place);
    SHOAL_TRY(status, place_all(reading, param, found, tensor), done);
    found->next++;
done:
    return status;
}

/* Names that are no parameters, or second names of some. */
static bool is_skipped(const struct reading *reading, const char *name)
{
    const struct shoali_value *buffers = shoali_value_get(reading->model->root, "buffer_names");
    for (int64_t i = 0; i < shoali_value_count(buffers); i++) {
        const char *buffer = shoali_value_text(shoali_value_at(buffers, i));
        if (buffer && strcmp(buffer, name) == 0)
            return true;
    }
    for (int32_t i = 0; i < reading->checkpoint->shared_count; i++)
        if (strcmp(reading->checkpoint->shared[i].name, name) == 0)
            return true;
    return false;
}

/* Without shared_params: a name whose elements lie where another's do is its second name. */
static shoal_status share_alike(struct reading *reading, const char *name,
                                const struct shoali_file_tensor *tensor, bool *shared)
{
    struct shoali_deepspeed *checkpoint = reading->checkpoint;
    *shared = false;
    for (int32_t p = 0; p < checkpoint->param_count && !*shared; p++) {
        const struct shoali_file_tensor *other = shoali_value_tensor(shoali_value_get(
            shoali_value_get(reading->model->root, "module"), checkpoint->param[p].name));
        if (!other || other->at != tensor->at || !same_shape(other, tensor) || tensor->count == 0)
            continue;
        struct shoali_deepspeed_shared *larger = shoali_arena_alloc(
            &checkpoint->arena, ((size_t)checkpoint->shared_count + 1) * sizeof *larger);
        if (!larger)
            return SHOAL_ENOMEM;
        memcpy(larger, checkpoint->shared, (size_t)checkpoint->shared_count * sizeof *larger);
        checkpoint->shared = larger;
        larger[checkpoint->shared_count++] = (struct shoali_deepspeed_shared){
            shoali_arena_strdup(&checkpoint->arena, name), checkpoint->param[p].name};
        *shared = true;
    }
    return SHOAL_OK;
}

/* {state, param_groups} itself, or wrapped with masters for 16-bit weights. */
static shoal_status take_groups(struct reading *reading, const struct shoali_value *optimizer)
{
    const struct shoali_value *wrapped = shoali_value_get(optimizer, "optimizer_state_dict");
    const struct shoali_value *own = wrapped ? wrapped : optimizer;
    const struct shoali_value *groups = shoali_value_get(own, "param_groups");
    const struct shoali_value *masters = shoali_value_get(optimizer, "fp32_groups");
    reading->state = shoali_value_get(own, "state");
    if (shoali_value_get(optimizer, "fp32_groups_flat"))
        return SHOAL_FAIL(
            SHOAL_EUNSUPPORTED,
            "%s: the masters of a fused 16-bit optimizer without ZeRO have no parameter names: "
            "save with stage 1, or load only the weights (--finetune)",
            reading->model->input.path);
    for (int64_t g = 0; g < shoali_value_count(groups) && g < GROUPS_MAX; g++)
        reading->group[reading->groups++] =
            (struct group){.params = shoali_value_get(shoali_value_at(groups, g), "params"),
                           .masters = shoali_value_at(masters, g)};
    shoali_deepspeed_optimizer_numbers(reading->checkpoint, optimizer);
    return SHOAL_OK;
}

shoal_status shoali_deepspeed_open_plain(struct shoali_deepspeed *checkpoint,
                                         struct shoali_tensor_file *model)
{
    shoal_status status;
    struct reading reading = {.checkpoint = checkpoint, .model = model};
    const struct shoali_value *module = shoali_value_get(model->root, "module");
    reading.file = shoali_deepspeed_path(checkpoint, model->input.path);
    if (reading.file < 0)
        return SHOAL_ENOMEM;
    if (!module || module->kind != SHOALI_VALUE_DICT)
        return shoali_input_fail(&model->input, -1, "it does not have a module's weights");
    SHOAL_TRY(status, take_groups(&reading, shoali_value_get(model->root, "optimizer")), done);
    for (int64_t i = 0; i < shoali_value_count(module); i++) {
        const char *name = shoali_value_text(module->as.list.item[2 * i]);
        const struct shoali_file_tensor *tensor =
            shoali_value_tensor(module->as.list.item[2 * i + 1]);
        bool shared = false;
        if (!name || !tensor || is_skipped(&reading, name))
            continue;
        SHOAL_TRY(status, share_alike(&reading, name, tensor, &shared), done);
        if (!shared)
            SHOAL_TRY(status, assign(&reading, name, tensor), done);
    }
    for (int32_t g = 0; g < reading.groups; g++)
        if (reading.group[g].next != shoali_value_count(reading.group[g].params))
            status =
                shoali_input_fail(&model->input, -1,
                                  "its optimizer's group %d has %lld parameters, of which "
                                  "%lld are among the module's weights",
                                  (int)g, (long long)shoali_value_count(reading.group[g].params),
                                  (long long)reading.group[g].next);
done:
    return status;
}
