/* pending.c - split rows: a collective is on its way while the next kernels run.
 *
 * A node with forward_post (backward_post) is begun there and enters the tape's list. The list is
 * in posting order, which is the recorded one (its reverse in backward) and so the same on all
 * ranks; finishing only waits, so ranks may finish at different times. What the collective reads
 * and writes is held until then. Meta mode keeps the same list, so that the plan has what is held.
 */
#include "autograd/tape/tape.h"

/* ---- the list ---- */

static struct shoali_tape_tensor *held(const struct shoali_node *node, int32_t index)
{
    return index < SHOALI_NODE_MAX_INPUTS ? node->in[index]
                                          : node->out[index - SHOALI_NODE_MAX_INPUTS];
}

static void enlist(struct shoal_tape *tape, struct shoali_node *node, bool backward)
{
    SHOAL_ASSERT(tape->pending_count < SHOALI_TAPE_MAX_PENDING && !node->pending);
    tape->pending[tape->pending_count++] = node;
    node->pending = true;
    node->pending_backward = backward;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS + SHOALI_NODE_MAX_OUTPUTS; i++) {
        struct shoali_tape_tensor *tensor = held(node, i);
        if (tensor == NULL)
            continue;
        if (backward && i < SHOALI_NODE_MAX_INPUTS)
            tensor->grad_from = node;
        if (backward)
            continue;
        tensor->root->refs++;
        if (i >= SHOALI_NODE_MAX_INPUTS)
            tensor->root->from = node;
    }
}

static void delist(struct shoal_tape *tape, struct shoali_node *node)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < tape->pending_count; i++)
        if (tape->pending[i] != node)
            tape->pending[kept++] = tape->pending[i];
    tape->pending_count = kept;
    node->pending = false;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS + SHOALI_NODE_MAX_OUTPUTS; i++) {
        struct shoali_tape_tensor *tensor = held(node, i);
        if (tensor == NULL)
            continue;
        if (tensor->grad_from == node)
            tensor->grad_from = NULL;
        if (tensor->root->from == node)
            tensor->root->from = NULL;
        if (!node->pending_backward)
            shoali_tensor_unref(tape, tensor);
    }
    shoali_slot_free(tape->args.slot, node->scratch);
    node->scratch = SHOALI_NO_SEGMENT;
}

/* ---- begin ---- */

shoal_status shoali_node_scratch(struct shoal_tape *tape, struct shoali_node *node, size_t bytes,
                                 void **memory)
{
    shoal_status status;
    SHOAL_ASSERT(node->scratch == SHOALI_NO_SEGMENT);
    *memory = NULL;
    SHOAL_TRY(status, shoali_slot_alloc(tape->args.slot, bytes, &node->scratch), done);
    *memory = shoali_slot_address(tape->args.slot, node->scratch);
done:
    return status;
}

shoal_status shoali_node_post(struct shoal_tape *tape, struct shoali_node *node, shoal_group *group,
                              const struct shoali_post *post)
{
    if (shoali_tape_is_meta(tape))
        return SHOAL_OK;
    if (node->collective == NULL)
        node->collective = shoali_arena_alloc(&tape->arena, sizeof(*node->collective));
    if (node->collective == NULL)
        return SHOAL_ENOMEM;
    return shoali_comm_post_beside(group, tape->args.exec.stream, &tape->side, post,
                                   node->collective);
}

static bool adds_up(const struct shoal_tape *tape)
{
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS; i++)
        if (tape->grad_temp[i] != NULL)
            return true;
    return false;
}

shoal_status shoali_pending_begin(struct shoal_tape *tape, struct shoali_node *node, bool backward)
{
    shoal_status status = SHOAL_OK;
    if (tape->pending_count == SHOALI_TAPE_MAX_PENDING)
        SHOAL_TRY(status, shoali_pending_finish(tape, tape->pending[0]), done);
    SHOAL_TRY(status,
              backward ? node->row->backward_post(tape, node) : node->row->forward_post(tape, node),
              done);
    enlist(tape, node, backward);
    /* A gradient that is added to another one is complete before the add, and its temporary belongs
     * to the running node alone. */
    if (backward && adds_up(tape))
        SHOAL_TRY(status, shoali_pending_finish(tape, node), done);
done:
    shoali_tape_free_workspaces(tape);
    return status;
}

/* ---- finish ---- */

shoal_status shoali_pending_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const bool backward = node->pending_backward;
    shoal_status (*finish)(struct shoal_tape *, struct shoali_node *) =
        backward ? node->row->backward_finish : node->row->forward_finish;
    if (node->collective != NULL)
        SHOAL_TRY(status, shoali_comm_pending_wait(node->collective, tape->args.exec.stream), done);
    if (finish != NULL)
        SHOAL_TRY(status, finish(tape, node), done);
done:
    if (status < 0 && node->scope >= 0)
        (void)shoali_error_prefix(status, "%s in scope %s", node->row->name,
                                  shoali_tape_path(tape, node->scope));
    delist(tape, node);
    if (status >= 0 && backward)
        status = shoali_node_finish_backward(tape, node);
    return status;
}

shoal_status shoali_pending_finish_from(struct shoal_tape *tape, int32_t first_node)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < tape->pending_count;) {
        if (tape->pending[i]->index < first_node) {
            i++;
            continue;
        }
        SHOAL_TRY(status, shoali_pending_finish(tape, tape->pending[i]), done);
    }
done:
    return status;
}

shoal_status shoali_pending_finish_inputs(struct shoal_tape *tape, const struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    if (tape->pending_count == 0 || (node->row->flags & SHOALI_ROW_VIEW) != 0)
        return SHOAL_OK;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS; i++)
        if (node->in[i] != NULL && node->in[i]->root->from != NULL)
            SHOAL_TRY(status, shoali_pending_finish(tape, node->in[i]->root->from), done);
done:
    return status;
}

shoal_status shoali_pending_finish_grads(struct shoal_tape *tape, const struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; tape->pending_count > 0 && i < SHOALI_NODE_MAX_INPUTS; i++)
        if (node->in[i] != NULL && node->in[i]->grad_from != NULL)
            SHOAL_TRY(status, shoali_pending_finish(tape, node->in[i]->grad_from), done);
    if (node->out[0]->grad_from != NULL)
        SHOAL_TRY(status, shoali_pending_finish(tape, node->out[0]->grad_from), done);
done:
    return status;
}

/* Others make progress only while each rank looks at its requests. */
shoal_status shoali_pending_poll(struct shoal_tape *tape)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < tape->pending_count; i++)
        if (tape->pending[i]->collective != NULL)
            SHOAL_TRY(status, shoali_comm_pending_test(tape->pending[i]->collective), done);
done:
    return status < 0 ? status : SHOAL_OK;
}

void shoali_pending_abandon(struct shoal_tape *tape)
{
    for (int32_t i = 0; i < tape->pending_count; i++)
        if (tape->pending[i]->collective != NULL)
            (void)!shoali_comm_pending_wait(tape->pending[i]->collective, tape->args.exec.stream);
    tape->pending_count = 0;
}

shoal_status shoali_tensor_arrive(const struct shoal_tensor *tensor)
{
    shoal_status status = SHOAL_OK;
    struct shoal_tape *tape = tensor->tape;
    struct shoali_tape_tensor *root = tape->tensor[tensor->id]->root;
    if (root->from != NULL)
        SHOAL_TRY(status, shoali_pending_finish(tape, root->from), done);
done:
    (void)shoali_tape_poison(tape, status);
    return status;
}
