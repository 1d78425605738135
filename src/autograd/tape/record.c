/* record.c - one op becomes a node: infer, place, run. What rows see of a node. */
#include "autograd/tape/tape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what rows see ---- */

void *shoali_node_attr(const struct shoali_node *node)
{
    return node->attr;
}

struct shoal_tensor *shoali_node_in(const struct shoali_node *node, int32_t index)
{
    return node->in[index] != NULL ? &node->in[index]->tensor : NULL;
}

struct shoal_tensor *shoali_node_out(const struct shoali_node *node, int32_t index)
{
    return node->out[index] != NULL ? &node->out[index]->tensor : NULL;
}

/* Bound of an output of static size whose input is data-dependent: rows stay rows. */
static int64_t inherited_bound(const struct shoali_node *node, const shoal_shape *shape,
                               int64_t count)
{
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS; i++) {
        const struct shoali_tape_tensor *in = node->in[i];
        if (in == NULL || in->tensor.shape.ndim == 0 || shape->ndim == 0)
            continue;
        const int64_t in_count = shoal_shape_count(&in->tensor.shape);
        if (in->tensor.bound == in_count)
            continue;
        if (in->tensor.shape.dim[0] != shape->dim[0])
            return in_count == count ? in->tensor.bound : count;
        int64_t in_row = 1, row = 1;
        for (int32_t d = 1; d < in->tensor.shape.ndim; d++)
            in_row *= in->tensor.shape.dim[d];
        for (int32_t d = 1; d < shape->ndim; d++)
            row *= shape->dim[d];
        return in_row > 0 ? in->tensor.bound / in_row * row : count;
    }
    return count;
}

shoal_status shoali_node_output(struct shoal_tape *tape, struct shoali_node *node, int32_t index,
                                shoal_dtype dtype, const shoal_shape *shape, int64_t bound_count)
{
    SHOAL_ASSERT(index >= 0 && index < SHOALI_NODE_MAX_OUTPUTS && node->out[index] == NULL);
    const int64_t count = shoal_shape_count(shape);
    int64_t bound = bound_count;
    if (bound_count < 0)
        bound = count < 0 ? count : inherited_bound(node, shape, count);
    SHOAL_ASSERT(bound >= count);
    struct shoali_tape_tensor *made;
    shoal_status status;
    SHOAL_TRY(status, shoali_tape_new_tensor(tape, dtype, shape, bound, &made), done);
    made->tensor.node = node->index;
    made->tensor.needs_grad = index == 0 && node->needs_backward;
    SHOAL_TRY(status, shoali_block_default(tape, node, &made->tensor), done);
    node->out[index] = made;
done:
    return status;
}

struct shoali_stream shoali_node_random(const struct shoal_tape *tape,
                                        const struct shoali_node *node)
{
    const char *path = shoali_tape_path(tape, node->scope);
    char identity[20];
    (void)snprintf(identity, sizeof identity, "%016" PRIx64,
                   shoali_hash64_seeded(path, strlen(path), (uint64_t)node->ordinal));
    return shoali_stream_make(tape->args.seed, "dropout", identity, (uint64_t)tape->step);
}

/* ---- recording ---- */

static shoal_status check_input(const struct shoal_tape *tape, const struct shoali_node *node,
                                int32_t index)
{
    const struct shoali_tape_tensor *in = node->in[index];
    if (in == NULL)
        return SHOAL_OK;
    if (in->tensor.tape != tape)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: input %d belongs to another tape", node->row->name,
                          (int)index);
    if (!in->open)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: input %d was made in a scope that has ended; list it as an output "
                          "of that scope (or of its layer's boundary) to use it here",
                          node->row->name, (int)index);
    return SHOAL_OK;
}

/* Copies what the caller gave and finds out whether a gradient will pass here. */
static shoal_status fill_node(struct shoal_tape *tape, struct shoali_node *node,
                              const struct shoali_record_args *record)
{
    shoal_status status = SHOAL_OK;
    bool wanted = false;
    node->row = record->row;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS; i++) {
        node->in[i] = record->inputs[i] != NULL ? shoali_tape_tensor_of(record->inputs[i]) : NULL;
        SHOAL_TRY(status, check_input(tape, node, i), done);
        wanted = wanted || (node->in[i] != NULL && node->in[i]->tensor.needs_grad);
    }
    for (int32_t i = 0; i < SHOALI_NODE_MAX_PARAMS; i++) {
        node->param[i] = record->params[i];
        node->use[i] = -1;
        if (node->param[i] == NULL)
            continue;
        node->use[i] = shoali_tape_add_use(tape, node->param[i]);
        if (node->use[i] < 0)
            return SHOAL_ENOMEM;
        wanted = wanted || shoali_param_wants_grad(node->param[i]);
    }
    node->needs_backward =
        wanted && tape->needs_grad &&
        (record->row->backward_input != NULL || record->row->backward_post != NULL ||
         record->row->backward_weight != NULL);
    if (node->needs_backward) {
        node->saves_inputs = record->row->saves_inputs;
        node->saves_outputs = record->row->saves_outputs;
        for (int32_t i = 0; i < SHOALI_NODE_MAX_PARAMS; i++)
            if (shoali_param_wants_grad(node->param[i]))
                tape->use[node->use[i]].pending++;
    }
    if (record->attr_bytes > 0) {
        node->attr = shoali_arena_alloc(&tape->arena, record->attr_bytes);
        if (node->attr == NULL)
            return SHOAL_ENOMEM;
        memcpy(node->attr, record->attr, record->attr_bytes);
    }
done:
    return status;
}

static struct shoali_node *new_node(struct shoal_tape *tape, const struct shoali_op_row *row)
{
    if (shoali_grow(&tape->node, &tape->node_capacity, sizeof(*tape->node), tape->node_count + 1,
                    "nodes") < 0)
        return NULL;
    struct shoali_node *node = shoali_arena_alloc(&tape->arena, sizeof(*node));
    if (node == NULL)
        return NULL;
    node->index = tape->node_count;
    node->scope = tape->open_scope;
    int32_t *ordinals =
        node->scope >= 0 ? &tape->scope[node->scope]->ordinals : &tape->root_ordinals;
    node->ordinal = *ordinals;
    *ordinals += (row->flags & SHOALI_ROW_HELPER) == 0;
    node->scratch = SHOALI_NO_SEGMENT;
    node->pass_input = -1;
    return node;
}

static const struct shoal_layer *layer_of(const struct shoal_tape *tape,
                                          const struct shoali_node *node)
{
    const struct shoal_layer *layer = NULL;
    for (int32_t s = node->scope; s >= 0; s = tape->scope[s]->scope.parent)
        layer = tape->scope[s]->scope.layer;
    return layer;
}

shoal_status shoali_node_check_params(const struct shoal_tape *tape, const struct shoali_node *node)
{
    const bool meta = shoali_tape_is_meta(tape);
    for (int32_t i = 0; i < SHOALI_NODE_MAX_PARAMS; i++) {
        struct shoal_param *param = node->param[i];
        if (param && meta)
            param->reads++;
        if (meta || param == NULL || param->data != NULL || param->count == 0)
            continue;
        const struct shoal_layer *layer = layer_of(tape, node);
        bool declared = false;
        for (int32_t p = 0; layer != NULL && p < layer->param_count; p++)
            declared = declared || layer->param[p] == param;
        if (declared)
            return SHOAL_FAIL(SHOAL_EINTERNAL, "%s: parameter %s is not in memory in layer %s",
                              node->row->name, param->name, layer->name);
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: layer %s uses parameter %s without declaring it, and it is not "
                          "gathered now (ZeRO stage 3); declare it in that layer with tied_to = "
                          "\"%s\"",
                          node->row->name, layer != NULL ? layer->name : "(none)", param->name,
                          param->name);
    }
    return SHOAL_OK;
}

shoal_status shoali_node_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    if ((node->row->flags & SHOALI_ROW_VIEW) != 0)
        node->out[0]->tensor.data = node->in[0]->tensor.data;
    SHOAL_TRY(status, shoali_node_check_params(tape, node), done);
    if (tape->pending_count > 0)
        SHOAL_TRY(status, shoali_pending_poll(tape), done);
    if (node->row->forward_post != NULL)
        SHOAL_TRY(status, shoali_pending_begin(tape, node, false), done);
    else if (node->row->forward != NULL)
        SHOAL_TRY(status, node->row->forward(tape, node), done);
done:
    shoali_tape_free_workspaces(tape);
    return status;
}

static shoal_status place_outputs(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    struct shoali_tape_tensor *result = node->out[0];
    const bool view = (node->row->flags & SHOALI_ROW_VIEW) != 0;
    SHOAL_ASSERT(result != NULL);
    if (view) {
        result->root = node->in[0]->root;
        result->ids_known = node->in[0]->ids_known;
        result->id_min = node->in[0]->id_min;
        result->id_max = node->in[0]->id_max;
    }
    for (int32_t o = view ? 1 : 0; o < SHOALI_NODE_MAX_OUTPUTS && node->out[o] != NULL; o++)
        SHOAL_TRY(status, shoali_tensor_place(tape, node->out[o]), done);
    result->open = true;
    result->root->refs++;
done:
    return status;
}

static void account(struct shoal_tape *tape, const struct shoali_node *node)
{
    int64_t forward = 0, backward = 0, bytes = 0;
    if (node->row->cost != NULL)
        node->row->cost(tape, node, &forward, &backward, &bytes);
    if (!node->needs_backward)
        backward = 0;
    tape->flops_forward += forward;
    tape->flops_backward += backward;
    tape->cost_bytes += bytes;
    for (int32_t s = node->scope; s >= 0; s = tape->scope[s]->scope.parent) {
        tape->scope[s]->scope.flops_forward += forward;
        tape->scope[s]->scope.flops_backward += backward;
    }
}

static shoal_status record_node(struct shoal_tape *tape, struct shoali_node *node,
                                const struct shoali_record_args *record)
{
    shoal_status status;
    SHOAL_TRY(status, fill_node(tape, node, record), done);
    SHOAL_TRY(status, shoali_pending_finish_inputs(tape, node), done);
    SHOAL_TRY(status, record->row->infer(tape, node), done);
    SHOAL_TRY(status, shoali_tensor_note_params(tape, node), done);
    SHOAL_TRY(status, place_outputs(tape, node), done);
    shoali_node_save(node);
    SHOAL_TRY(status, shoali_node_forward(tape, node), done);
    for (int32_t o = 1; o < SHOALI_NODE_MAX_OUTPUTS && node->out[o] != NULL; o++)
        if (node->out[o]->refs == 0)
            shoali_tensor_free(tape, node->out[o]);
    SHOAL_TRY(status, shoali_tape_event(tape, node->index), done);
    tape->node[tape->node_count++] = node;
    account(tape, node);
done:
    return status;
}

struct shoal_tensor *shoali_tape_record(struct shoal_tape *tape,
                                        const struct shoali_record_args *record)
{
    shoal_status status = SHOAL_OK;
    if (tape->status < 0)
        return NULL;
    SHOAL_ASSERT(record->row->abi == SHOALI_OP_ROW_ABI &&
                 record->row->bytes == sizeof(*record->row));
    if (tape->backward_done)
        return shoali_tape_poison(tape,
                                  SHOAL_FAIL(SHOAL_EINVAL,
                                             "%s: the tape's backward has run; begin it again to "
                                             "record",
                                             record->row->name));
    struct shoali_record_args own = *record;
    if (own.row->prepare && own.row->prepare(tape, &own) < 0)
        return NULL;
    struct shoali_node *node = new_node(tape, own.row);
    if (node == NULL)
        return shoali_tape_poison(tape, SHOAL_ENOMEM);
    SHOAL_TRY(status, record_node(tape, node, &own), done);
done:
    if (status >= 0)
        return &node->out[0]->tensor;
    if (node->scope >= 0)
        (void)shoali_error_prefix(status, "in scope %s", shoali_tape_path(tape, node->scope));
    return shoali_tape_poison(tape, status);
}
