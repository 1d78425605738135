/* scope.c - scopes, their observers, and the layers of a module as outermost scopes. */
#include "autograd/tape/tape.h"

#include <string.h>

const char *shoali_tape_path(const struct shoal_tape *tape, int32_t scope)
{
    return scope >= 0 ? tape->scope[scope]->scope.path : "";
}

/* ---- begin ---- */

/* How many scopes of this name the parent has by now: a path is an identity of random streams. */
static int32_t earlier_namesakes(const struct shoal_tape *tape, const char *name)
{
    int32_t found = 0;
    if (tape->open_scope < 0)
        return 0;
    for (int32_t s = tape->open_scope + 1; s < tape->scope_count; s++) {
        const struct shoali_scope *other = &tape->scope[s]->scope;
        found += other->parent == tape->open_scope && strcmp(other->name, name) == 0;
    }
    return found;
}

static const char *make_path(struct shoal_tape *tape, const char *name)
{
    if (tape->open_scope < 0 || tape->scope[tape->open_scope]->scope.group_layers > 0)
        return shoali_arena_strdup(&tape->arena, name);
    const char *parent = tape->scope[tape->open_scope]->scope.path;
    const int32_t again = earlier_namesakes(tape, name);
    return again > 0 ? shoali_arena_printf(&tape->arena, "%s/%s#%d", parent, name, (int)again + 1)
                     : shoali_arena_printf(&tape->arena, "%s/%s", parent, name);
}

static bool inside_recomputed(const struct shoal_tape *tape, int32_t scope)
{
    for (int32_t s = tape->scope[scope]->scope.parent; s >= 0; s = tape->scope[s]->scope.parent)
        if (tape->scope[s]->scope.recompute)
            return true;
    return false;
}

static shoal_status announce_begin(struct shoal_tape *tape, struct shoali_scope *scope)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < tape->args.observer_count; i++) {
        const struct shoali_observer *observer = &tape->args.observers[i];
        if (observer->forward_begin != NULL)
            SHOAL_TRY(status, observer->forward_begin(observer->user, tape, scope), done);
    }
done:
    return status;
}

static shoal_status begin_scope(struct shoal_tape *tape, const char *name,
                                const struct shoal_layer *layer, int32_t group_layers)
{
    shoal_status status;
    const int32_t index = tape->scope_count;
    SHOAL_TRY(
        status,
        shoali_grow(&tape->scope, &tape->scope_capacity, sizeof(*tape->scope), index + 1, "scopes"),
        done);
    struct shoali_tape_scope *made = shoali_arena_alloc(&tape->arena, sizeof(*made));
    const char *path = make_path(tape, name);
    if (made == NULL || path == NULL)
        return SHOAL_ENOMEM;
    made->scope = (struct shoali_scope){.name = path + strlen(path) - strlen(name),
                                        .path = path,
                                        .index = index,
                                        .parent = tape->open_scope,
                                        .first_node = tape->node_count,
                                        .layer = layer,
                                        .group_layers = group_layers};
    made->first_tensor = tape->tensor_count;
    made->used_bytes = shoali_slot_used_bytes(tape->args.slot);
    SHOAL_TRY(status, shoali_tape_event(tape, SHOALI_SCOPE_BEGIN(index)), done);
    tape->scope[tape->scope_count++] = made;
    tape->open_scope = index;
    shoali_context_get()->scope = path;
    SHOAL_TRY(status, announce_begin(tape, &made->scope), done);
    made->scope.recompute = made->scope.recompute || group_layers > 0;
    /* The outer replay brings everything back at once. */
    if (!tape->needs_grad || inside_recomputed(tape, index))
        made->scope.recompute = false;
done:
    return status;
}

/* ---- end ---- */

static shoal_status check_outputs(const struct shoal_tape *tape, const struct shoali_scope *scope,
                                  shoal_tensor *const *outputs, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (outputs[i] == NULL || outputs[i]->tape != tape)
            return SHOAL_FAIL(SHOAL_EINVAL, "scope %s: output %d of %d is %s", scope->path, (int)i,
                              (int)count, outputs[i] == NULL ? "NULL" : "a tensor of another tape");
        if (!shoali_tape_tensor_of(outputs[i])->open)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "scope %s: output %d was made in an inner scope that ended without "
                              "listing it",
                              scope->path, (int)i);
    }
    return SHOAL_OK;
}

/* Outputs go to the parent; the rest is closed. */
static void close_tensors(struct shoal_tape *tape, const struct shoali_tape_scope *scope,
                          shoal_tensor *const *outputs, int32_t count)
{
    const int32_t index = scope->scope.index;
    for (int32_t i = 0; i < count; i++) {
        struct shoali_tape_tensor *output = shoali_tape_tensor_of(outputs[i]);
        if (output->scope == index)
            output->scope = scope->scope.parent;
    }
    for (int32_t t = scope->first_tensor; t < tape->tensor_count; t++)
        if (tape->tensor[t]->scope == index)
            shoali_tensor_close(tape, tape->tensor[t]);
}

static shoal_status announce_end(struct shoal_tape *tape, struct shoali_scope *scope)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = tape->args.observer_count - 1; i >= 0; i--) {
        const struct shoali_observer *observer = &tape->args.observers[i];
        if (observer->forward_end != NULL)
            SHOAL_TRY(status, observer->forward_end(observer->user, tape, scope), done);
    }
done:
    return status;
}

static shoal_status end_scope(struct shoal_tape *tape, shoal_tensor *const *outputs, int32_t count)
{
    shoal_status status;
    struct shoali_tape_scope *ended = tape->scope[tape->open_scope];
    SHOAL_TRY(status, check_outputs(tape, &ended->scope, outputs, count), done);
    SHOAL_TRY(status, shoali_pending_finish_from(tape, ended->scope.first_node), done);
    ended->scope.node_count = tape->node_count - ended->scope.first_node;
    ended->last_scope = tape->scope_count;
    close_tensors(tape, ended, outputs, count);
    if (ended->scope.recompute)
        shoali_scope_drop(tape, ended);
    else if (inside_recomputed(tape, ended->scope.index))
        shoali_scope_drop_early(tape, ended);
    const size_t used = shoali_slot_used_bytes(tape->args.slot);
    ended->scope.saved_bytes = (int64_t)used - (int64_t)ended->used_bytes;
    SHOAL_TRY(status, shoali_tape_event(tape, SHOALI_SCOPE_END(ended->scope.index)), done);
    SHOAL_TRY(status, announce_end(tape, &ended->scope), done);
    tape->open_scope = ended->scope.parent;
    shoali_context_get()->scope = shoali_tape_path(tape, tape->open_scope);
done:
    return status;
}

void shoal_scope_begin(shoal_tape *tape, const char *name)
{
    shoal_status status = SHOAL_OK;
    if (tape->status < 0)
        return;
    SHOAL_TRY(status, begin_scope(tape, name, NULL, 0), done);
done:
    (void)shoali_tape_poison(tape, status);
}

void shoal_scope_end(shoal_tape *tape, shoal_tensor *const *outputs, int32_t output_count)
{
    shoal_status status = SHOAL_OK;
    if (tape->status < 0)
        return;
    if (tape->open_scope < 0 || tape->scope[tape->open_scope]->scope.layer != NULL)
        status = SHOAL_FAIL(SHOAL_EINVAL, "shoal_scope_end without a shoal_scope_begin%s%s",
                            tape->open_scope < 0 ? "" : " in layer ",
                            shoali_tape_path(tape, tape->open_scope));
    else
        SHOAL_TRY(status, end_scope(tape, outputs, output_count), done);
done:
    (void)shoali_tape_poison(tape, status);
}

/* ---- layers ---- */

static shoal_status name_params(struct shoal_tape *tape, const struct shoal_layer *layer)
{
    if (!tape->needs_grad)
        return SHOAL_OK;
    for (int32_t i = 0; i < layer->param_count; i++) {
        const int32_t use = shoali_tape_add_use(tape, layer->param[i]);
        if (use < 0)
            return SHOAL_ENOMEM;
        if (tape->use[use].declared++ == 0)
            tape->use[use].first_scope = tape->open_scope;
    }
    return SHOAL_OK;
}

int32_t shoal_boundary_count(const shoal_boundary *boundary)
{
    return boundary->count;
}

shoal_tensor *shoal_boundary_get(shoal_tape *tape, const shoal_boundary *boundary, int32_t index)
{
    if (tape->status < 0)
        return NULL;
    if (index < 0 || index >= boundary->count)
        return shoali_tape_poison(
            tape,
            SHOAL_FAIL(SHOAL_EINVAL, "%s asks for boundary tensor %d; the layer before it left %d",
                       shoali_tape_path(tape, tape->open_scope), (int)index, (int)boundary->count));
    return boundary->tensor[index];
}

static shoal_status set_boundary(struct shoal_tape *tape, shoal_boundary *boundary,
                                 shoal_tensor *const *tensors, int32_t count)
{
    const char *layer = shoali_tape_path(tape, tape->open_scope);
    if (count < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s leaves %d boundary tensors", layer, (int)count);
    for (int32_t i = 0; i < count; i++)
        if (tensors[i] == NULL)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s leaves NULL as boundary tensor %d of %d", layer,
                              (int)i, (int)count);
    struct shoal_tensor **list =
        shoali_arena_alloc(&tape->arena, (size_t)count * sizeof(struct shoal_tensor *));
    if (list == NULL)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < count; i++)
        list[i] = tensors[i];
    *boundary = (shoal_boundary){.count = count, .tensor = list};
    return SHOAL_OK;
}

void shoal_boundary_set(shoal_tape *tape, shoal_boundary *boundary, shoal_tensor *const *tensors,
                        int32_t count)
{
    if (tape->status >= 0)
        (void)shoali_tape_poison(tape, set_boundary(tape, boundary, tensors, count));
}

static bool is_in(const shoal_boundary *boundary, const shoal_tensor *tensor)
{
    for (int32_t i = 0; i < boundary->count; i++)
        if (boundary->tensor[i] == tensor)
            return true;
    return false;
}

/* What one layer made for the next is gone when that one does not pass it on. Inputs of the tape
 * stay; so do those of an open group, whose replay reads them. */
static void close_consumed(struct shoal_tape *tape, const shoal_boundary *before,
                           const shoal_boundary *after)
{
    const int32_t first_node =
        tape->open_scope >= 0 ? tape->scope[tape->open_scope]->scope.first_node : 0;
    for (int32_t i = 0; i < before->count; i++)
        if (before->tensor[i] != NULL && before->tensor[i]->node >= first_node &&
            before->tensor[i]->tape == tape && !is_in(after, before->tensor[i]))
            shoali_tensor_close(tape, shoali_tape_tensor_of(before->tensor[i]));
}

static shoal_status forward_layer(struct shoal_tape *tape, const struct shoal_layer *layer,
                                  shoal_boundary *boundary)
{
    shoal_status status;
    const shoal_boundary before = *boundary;
    SHOAL_TRY(status, begin_scope(tape, layer->name, layer, 0), done);
    SHOAL_TRY(status, name_params(tape, layer), done);
    layer->type->forward(layer, tape, boundary);
    SHOAL_TRY(status, tape->status, done);
    if (tape->scope[tape->open_scope]->scope.layer != layer) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "layer %s left scope %s open; call shoal_scope_end",
                            layer->name, shoali_tape_path(tape, tape->open_scope));
        goto done;
    }
    SHOAL_TRY(status, end_scope(tape, boundary->tensor, boundary->count), done);
    close_consumed(tape, &before, boundary);
    SHOAL_TRY(status, shoali_keep_inputs(tape), done);
done:
    return status;
}

int64_t shoali_tape_boundary_bytes(const struct shoal_tape *tape)
{
    int64_t bytes = 0;
    for (int32_t t = 0; t < tape->tensor_count; t++) {
        const struct shoal_tensor *tensor = &tape->tensor[t]->tensor;
        if (tape->tensor[t]->open && tensor->node >= 0)
            bytes += shoal_shape_count(&tensor->shape) * (int64_t)shoal_dtype_bytes(tensor->dtype);
    }
    return bytes;
}

/* How many layers from this one on are to be recomputed as one. */
static int32_t ask_for_group(const struct shoal_tape *tape, const struct shoal_layer *layer)
{
    int32_t layers = 1;
    for (int32_t i = 0; tape->needs_grad && i < tape->args.observer_count; i++) {
        const struct shoali_observer *observer = &tape->args.observers[i];
        const int32_t wanted = observer->group != NULL ? observer->group(observer->user, layer) : 1;
        layers = wanted > layers ? wanted : layers;
    }
    return layers;
}

static shoal_status forward_group(struct shoal_tape *tape, const struct shoal_layer *layer,
                                  int32_t count, shoal_boundary *boundary)
{
    shoal_status status;
    const shoal_boundary before = *boundary;
    const char *name =
        shoali_arena_printf(&tape->arena, "%s to %s", layer[0].name, layer[count - 1].name);
    if (name == NULL)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, begin_scope(tape, name, NULL, count), done);
    for (int32_t i = 0; i < count; i++)
        SHOAL_TRY(status, forward_layer(tape, &layer[i], boundary), done);
    SHOAL_TRY(status, end_scope(tape, boundary->tensor, boundary->count), done);
    close_consumed(tape, &before, boundary);
    SHOAL_TRY(status, shoali_keep_inputs(tape), done);
done:
    return status;
}

shoal_status shoali_tape_forward_layers(struct shoal_tape *tape, const struct shoali_module *module,
                                        int32_t first, int32_t count, shoal_boundary *boundary)
{
    shoal_status status = tape->status;
    const char *outer = shoali_context_get()->scope;
    if (status < 0)
        return status;
    if (first < 0 || count < 0 || first > module->layer_count - count)
        return SHOAL_FAIL(SHOAL_EINVAL, "layers %d to %d do not exist; the model has %d",
                          (int)first, (int)(first + count - 1), (int)module->layer_count);
    tape->ran_layers = true;
    for (int32_t i = first; i < first + count;) {
        const struct shoal_layer *layer = &module->layer[i];
        const int32_t wanted = ask_for_group(tape, layer), left = first + count - i;
        const int32_t layers = wanted < left ? wanted : left;
        if (layers > 1)
            SHOAL_TRY(status, forward_group(tape, layer, layers, boundary), done);
        else
            SHOAL_TRY(status, forward_layer(tape, layer, boundary), done);
        i += layers;
    }
done:
    shoali_context_get()->scope = outer;
    (void)shoali_tape_poison(tape, status);
    return status;
}
