/* liveness.c - when a tensor's memory comes and goes; dropping and replaying a scope. */
#include "autograd/tape/tape.h"

/* ---- memory of one tensor ---- */

shoal_status shoali_tensor_place(struct shoal_tape *tape, struct shoali_tape_tensor *root)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_slot_alloc(tape->args.slot, root->bytes, &root->segment), done);
    if (!shoali_tape_is_meta(tape))
        root->tensor.data = shoali_slot_address(tape->args.slot, root->segment);
done:
    return status;
}

void shoali_tensor_free(struct shoal_tape *tape, struct shoali_tape_tensor *root)
{
    if (root->external)
        return;
    shoali_tensor_forget_kept(tape, root);
    shoali_slot_free(tape->args.slot, root->segment);
    root->segment = SHOALI_NO_SEGMENT;
    root->tensor.data = NULL;
}

/* The memory is there: in meta mode only the segment tells. */
static bool has_memory(const struct shoali_tape_tensor *tensor)
{
    const struct shoali_tape_tensor *root = tensor->root;
    return root->external || root->segment != SHOALI_NO_SEGMENT || root->stay == SHOALI_STAY_BLOCK;
}

void shoali_tensor_unref(struct shoal_tape *tape, struct shoali_tape_tensor *tensor)
{
    struct shoali_tape_tensor *root = tensor->root;
    SHOAL_ASSERT(root->refs > 0);
    if (--root->refs == 0 && root->root_reads == 0)
        shoali_tensor_free(tape, root);
}

void shoali_tensor_close(struct shoal_tape *tape, struct shoali_tape_tensor *tensor)
{
    if (!tensor->open)
        return;
    tensor->open = false;
    shoali_tensor_unref(tape, tensor);
}

/* ---- what a backward will read ---- */

static struct shoali_tape_tensor *saved_tensor(const struct shoali_node *node, int32_t index)
{
    if (index < SHOALI_NODE_MAX_INPUTS)
        return (node->saves_inputs >> index & 1u) != 0 ? node->in[index] : NULL;
    index -= SHOALI_NODE_MAX_INPUTS;
    return (node->saves_outputs >> index & 1u) != 0 ? node->out[index] : NULL;
}

void shoali_node_save(struct shoali_node *node)
{
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS + SHOALI_NODE_MAX_OUTPUTS; i++) {
        struct shoali_tape_tensor *tensor = saved_tensor(node, i);
        if (tensor == NULL)
            continue;
        tensor->saves++;
        tensor->root->refs++;
    }
}

void shoali_node_unsave(struct shoal_tape *tape, struct shoali_node *node)
{
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS + SHOALI_NODE_MAX_OUTPUTS; i++) {
        struct shoali_tape_tensor *tensor = saved_tensor(node, i);
        if (tensor == NULL)
            continue;
        tensor->saves--;
        shoali_tensor_unref(tape, tensor);
    }
}

/* ---- scopes: drop and replay ---- */

static bool owned_inside(const struct shoali_tape_scope *scope,
                         const struct shoali_tape_tensor *tensor)
{
    return tensor->scope >= scope->scope.index && tensor->scope < scope->last_scope;
}

static bool made_inside(const struct shoali_tape_scope *scope,
                        const struct shoali_tape_tensor *tensor)
{
    const int32_t node = tensor->tensor.node;
    return node >= scope->scope.first_node &&
           node < scope->scope.first_node + scope->scope.node_count;
}

/* Adds `change` holds to everything that the scope's nodes read from outside. */
static void hold_outer_inputs(struct shoal_tape *tape, const struct shoali_tape_scope *scope,
                              bool hold)
{
    for (int32_t n = 0; n < scope->scope.node_count; n++) {
        const struct shoali_node *node = tape->node[scope->scope.first_node + n];
        for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS; i++) {
            struct shoali_tape_tensor *in = node->in[i];
            if (in == NULL || made_inside(scope, in))
                continue;
            const int32_t saves = (int32_t)(node->saves_inputs >> i & 1u);
            in->root->holds += hold ? 1 + saves : -1 - saves;
            if (hold)
                in->root->refs++;
            else
                shoali_tensor_unref(tape, in);
        }
    }
}

static void drop_inner(struct shoal_tape *tape, const struct shoali_tape_scope *scope)
{
    /* A view that lives on keeps the memory it shares. */
    for (int32_t pass = 0; pass < 2; pass++)
        for (int32_t n = 0; n < scope->scope.node_count; n++) {
            const struct shoali_node *node = tape->node[scope->scope.first_node + n];
            for (int32_t o = 0; o < SHOALI_NODE_MAX_OUTPUTS && node->out[o] != NULL; o++) {
                struct shoali_tape_tensor *out = node->out[o];
                if (pass == 0)
                    out->root->kept = false;
                else if (!owned_inside(scope, out))
                    out->root->kept = true;
            }
        }
    for (int32_t n = 0; n < scope->scope.node_count; n++) {
        const struct shoali_node *node = tape->node[scope->scope.first_node + n];
        for (int32_t o = 0; o < SHOALI_NODE_MAX_OUTPUTS && node->out[o] != NULL; o++) {
            struct shoali_tape_tensor *root = node->out[o]->root;
            if (made_inside(scope, root) && !root->kept && has_memory(root))
                shoali_tensor_free(tape, root);
        }
    }
}

void shoali_scope_drop(struct shoal_tape *tape, struct shoali_tape_scope *scope)
{
    hold_outer_inputs(tape, scope, true);
    drop_inner(tape, scope);
    scope->dropped = true;
}

void shoali_scope_drop_early(struct shoal_tape *tape, const struct shoali_tape_scope *scope)
{
    drop_inner(tape, scope);
}

static bool output_is_wanted(const struct shoali_tape_tensor *out)
{
    return (out->saves > 0 || out->reads > 0) &&
           (!has_memory(out) || out->root->tensor.data != out->tensor.data);
}

/* Marks which nodes have to run again: those whose results a backward or a marked node reads, and
 * collectives, which all ranks replay alike. */
static void mark_replayed(struct shoal_tape *tape, const struct shoali_tape_scope *scope)
{
    for (int32_t n = scope->scope.node_count - 1; n >= 0; n--) {
        struct shoali_node *node = tape->node[scope->scope.first_node + n];
        bool run = (node->row->flags & SHOALI_ROW_COLLECTIVE) != 0;
        for (int32_t o = 0; o < SHOALI_NODE_MAX_OUTPUTS && node->out[o] != NULL; o++)
            run = run || output_is_wanted(node->out[o]);
        node->replayed = run && (node->row->flags & SHOALI_ROW_SIDE_EFFECT) == 0;
        for (int32_t i = 0; node->replayed && i < SHOALI_NODE_MAX_INPUTS; i++)
            if (node->in[i] != NULL) {
                node->in[i]->reads++;
                node->in[i]->root->root_reads++;
            }
    }
}

static void forget_reads(struct shoal_tape *tape, struct shoali_node *node)
{
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS; i++) {
        struct shoali_tape_tensor *in = node->in[i];
        if (in == NULL)
            continue;
        in->reads--;
        if (--in->root->root_reads == 0 && in->root->refs == 0 && has_memory(in))
            shoali_tensor_free(tape, in->root);
    }
}

static shoal_status check_replay_inputs(const struct shoal_tape *tape,
                                        const struct shoali_node *node)
{
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS; i++)
        if (node->in[i] != NULL && !has_memory(node->in[i]))
            return SHOAL_FAIL(SHOAL_EINTERNAL,
                              "replay of %s in scope %s: input %d was freed when its scope ended",
                              node->row->name, shoali_tape_path(tape, node->scope), (int)i);
    return SHOAL_OK;
}

static shoal_status replay_node(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const bool view = (node->row->flags & SHOALI_ROW_VIEW) != 0;
    SHOAL_TRY(status, check_replay_inputs(tape, node), done);
    SHOAL_TRY(status, shoali_pending_finish_inputs(tape, node), done);
    for (int32_t o = view ? 1 : 0; o < SHOALI_NODE_MAX_OUTPUTS && node->out[o] != NULL; o++)
        if (!has_memory(node->out[o]))
            SHOAL_TRY(status, shoali_tensor_place(tape, node->out[o]), done);
    SHOAL_TRY(status, shoali_node_forward(tape, node), done);
    for (int32_t o = view ? 1 : 0; o < SHOALI_NODE_MAX_OUTPUTS && node->out[o] != NULL; o++) {
        const struct shoali_tape_tensor *root = node->out[o]->root;
        if (root->refs == 0 && root->root_reads == 0)
            shoali_tensor_free(tape, node->out[o]->root);
    }
    forget_reads(tape, node);
    node->replayed = false;
done:
    return status;
}

/* The scope of the node's layer in a group that is replayed. */
static struct shoali_scope *layer_in_group(const struct shoal_tape *tape, int32_t group,
                                           const struct shoali_node *node)
{
    int32_t s = node->scope;
    while (s != group && tape->scope[s]->scope.parent != group)
        s = tape->scope[s]->scope.parent;
    return s != group ? &tape->scope[s]->scope : NULL;
}

/* Tells the observers that the replay goes from one layer to the next; NULL: from or to none. */
static shoal_status change_layer(struct shoal_tape *tape, struct shoali_scope **layer,
                                 struct shoali_scope *next)
{
    shoal_status status = SHOAL_OK;
    if (*layer == next)
        return SHOAL_OK;
    for (int32_t i = tape->args.observer_count - 1; *layer != NULL && i >= 0; i--) {
        const struct shoali_observer *observer = &tape->args.observers[i];
        if (observer->replay_end != NULL)
            SHOAL_TRY(status, observer->replay_end(observer->user, tape, *layer), done);
    }
    *layer = next;
    for (int32_t i = 0; next != NULL && i < tape->args.observer_count; i++) {
        const struct shoali_observer *observer = &tape->args.observers[i];
        if (observer->replay_begin != NULL)
            SHOAL_TRY(status, observer->replay_begin(observer->user, tape, next), done);
    }
done:
    return status;
}

/* Runs the marked nodes in order. */
static shoal_status replay_nodes(struct shoal_tape *tape, const struct shoali_tape_scope *scope)
{
    shoal_status status = SHOAL_OK;
    const bool group = scope->scope.group_layers > 0;
    struct shoali_scope *layer = NULL;
    mark_replayed(tape, scope);
    for (int32_t n = 0; n < scope->scope.node_count; n++) {
        struct shoali_node *node = tape->node[scope->scope.first_node + n];
        if (group)
            SHOAL_TRY(status,
                      change_layer(tape, &layer, layer_in_group(tape, scope->scope.index, node)),
                      done);
        if (node->replayed)
            SHOAL_TRY(status, replay_node(tape, node), done);
    }
    SHOAL_TRY(status, change_layer(tape, &layer, NULL), done);
    SHOAL_TRY(status, shoali_pending_finish_from(tape, scope->scope.first_node), done);
done:
    return status;
}

shoal_status shoali_scope_replay(struct shoal_tape *tape, struct shoali_tape_scope *scope)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_keep_bring_back(tape, scope), done);
    SHOAL_TRY(status, replay_nodes(tape, scope), done);
    hold_outer_inputs(tape, scope, false);
    scope->dropped = false;
done:
    return status;
}
