/* backward.c - the walk from the outputs' gradients to the inputs' and the parameters'. */
#include "autograd/tape/tape.h"

/* ---- one node ---- */

static shoal_status run_part(struct shoal_tape *tape, struct shoali_node *node,
                             shoal_status (*part)(struct shoal_tape *, struct shoali_node *))
{
    shoal_status status = SHOAL_OK;
    if (part != NULL)
        SHOAL_TRY(status, part(tape, node), done);
done:
    shoali_tape_free_workspaces(tape);
    return status;
}

/* The node's part in backward is over: memory goes back, parameters it did not reach are counted.
 */
shoal_status shoali_node_finish_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    node->weight_deferred = false;
    shoali_node_finish_grads(tape, node);
    shoali_node_unsave(tape, node);
    SHOAL_TRY(status, shoali_node_finish_params(tape, node), done);
done:
    return status;
}

static bool any_param_wants_grad(const struct shoali_node *node)
{
    for (int32_t i = 0; i < SHOALI_NODE_MAX_PARAMS; i++)
        if (shoali_param_wants_grad(node->param[i]))
            return true;
    return false;
}

static shoal_status backward_node(struct shoal_tape *tape, struct shoali_node *node);

/* The node before, whose collective goes beside this one's weight gradient: what it sends is
 * ready. */
static shoal_status hurry_sender(struct shoal_tape *tape, const struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    struct shoali_node *before = node->index > 0 ? tape->node[node->index - 1] : NULL;
    if (before == NULL || (before->row->flags & SHOALI_ROW_HURRIED) == 0 ||
        before->out[0] != node->in[0] || before->scope != node->scope || !before->needs_backward)
        return SHOAL_OK;
    before->hurried = true;
    SHOAL_TRY(status, backward_node(tape, before), done);
    if (before->pending && !tape->args.tensor_parallel.overlap)
        SHOAL_TRY(status, shoali_pending_finish(tape, before), done);
done:
    return status;
}

static shoal_status backward_node(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    if (!node->needs_backward)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_node_check_params(tape, node), done);
    SHOAL_TRY(status, shoali_pending_finish_grads(tape, node), done);
    if (node->out[0]->grad_state == SHOALI_GRAD_SET && node->row->backward_post != NULL) {
        SHOAL_ASSERT(node->row->backward_weight == NULL);
        SHOAL_TRY(status, shoali_pending_begin(tape, node, true), done);
        return SHOAL_OK; /* its part ends when it is finished */
    }
    if (node->out[0]->grad_state == SHOALI_GRAD_SET) {
        SHOAL_TRY(status, run_part(tape, node, node->row->backward_input), done);
        if (node->row->backward_weight != NULL && any_param_wants_grad(node)) {
            if (tape->defer_weight) {
                node->weight_deferred = true;
                return SHOAL_OK;
            }
            SHOAL_TRY(status, hurry_sender(tape, node), done);
            SHOAL_TRY(status, run_part(tape, node, node->row->backward_weight), done);
        }
    }
    SHOAL_TRY(status, shoali_node_finish_backward(tape, node), done);
done:
    if (status < 0 && node->scope >= 0)
        (void)shoali_error_prefix(status, "backward of %s in scope %s", node->row->name,
                                  shoali_tape_path(tape, node->scope));
    return status;
}

/* ---- scopes ---- */

static shoal_status enter_scope(struct shoal_tape *tape, struct shoali_tape_scope *scope)
{
    shoal_status status = SHOAL_OK;
    shoali_context_get()->scope = scope->scope.path;
    for (int32_t i = 0; i < tape->args.observer_count; i++) {
        const struct shoali_observer *observer = &tape->args.observers[i];
        if (observer->backward_begin != NULL)
            SHOAL_TRY(status, observer->backward_begin(observer->user, tape, &scope->scope), done);
    }
    SHOAL_TRY(status, shoali_scope_finish_unused(tape, &scope->scope), done);
    if (scope->dropped)
        SHOAL_TRY(status, shoali_scope_replay(tape, scope), done);
done:
    return status;
}

static shoal_status leave_scope(struct shoal_tape *tape, struct shoali_tape_scope *scope)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_pending_finish_from(tape, scope->scope.first_node), done);
    for (int32_t i = tape->args.observer_count - 1; i >= 0; i--) {
        const struct shoali_observer *observer = &tape->args.observers[i];
        if (observer->backward_end != NULL)
            SHOAL_TRY(status, observer->backward_end(observer->user, tape, &scope->scope), done);
    }
    shoali_context_get()->scope = shoali_tape_path(tape, scope->scope.parent);
done:
    return status;
}

static shoal_status walk(struct shoal_tape *tape)
{
    shoal_status status = SHOAL_OK;
    for (int32_t e = tape->event_count - 1; e >= 0; e--) {
        const int32_t event = tape->event[e];
        if (event >= 0) {
            if (!tape->node[event]->hurried)
                SHOAL_TRY(status, backward_node(tape, tape->node[event]), done);
            continue;
        }
        const int32_t index = (-1 - event) / 2;
        struct shoali_tape_scope *scope = tape->scope[index];
        if (event == SHOALI_SCOPE_END(index))
            SHOAL_TRY(status, enter_scope(tape, scope), done);
        else
            SHOAL_TRY(status, leave_scope(tape, scope), done);
    }
done:
    return status;
}

/* ---- ends ---- */

static shoal_status seed_output(struct shoal_tape *tape, struct shoal_tensor *tensor,
                                const void *seed, double seed_value)
{
    shoal_status status = SHOAL_OK;
    struct shoali_tape_tensor *output = shoali_tape_tensor_of(tensor);
    const int64_t count = shoal_shape_count(&tensor->shape);
    void *to;
    if (!tensor->needs_grad)
        return SHOAL_OK;
    const bool again = output->grad_state == SHOALI_GRAD_SET;
    if (!again && output->grad == NULL)
        SHOAL_TRY(status, shoali_grad_place(tape, output), done);
    output->grad_state = SHOALI_GRAD_SET;
    if (seed != NULL) {
        SHOAL_TRY(status, shoali_grad_add(tape, seed, output->grad, count, tensor->dtype, again),
                  done);
        goto done;
    }
    to = output->grad;
    if (again)
        SHOAL_TRY(status, shoali_tape_workspace(tape, output->bytes, &to), done);
    const struct shoali_set_args args = {
        .y = to, .count = count, .value = seed_value, .dtype = tensor->dtype};
    SHOAL_TRY(status, SHOALI_LAUNCH(tape, shoali_op_set(&tape->args.exec, &args)), done);
    if (again)
        SHOAL_TRY(status, shoali_grad_add(tape, to, output->grad, count, tensor->dtype, true),
                  done);
done:
    shoali_tape_free_workspaces(tape);
    return status;
}

/* Gradients of wanted inputs are made right where the caller wants them. */
static shoal_status point_inputs(struct shoal_tape *tape, const struct shoali_backward *backward)
{
    for (int32_t i = 0; i < backward->input_count; i++) {
        struct shoal_tensor *input = backward->inputs[i];
        if (input == NULL || input->tape != tape || input->node >= 0 || !input->needs_grad)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "backward: input %d is not an input of this tape that was added with "
                              "needs_grad",
                              (int)i);
        shoali_tape_tensor_of(input)->grad =
            shoali_tape_is_meta(tape) ? (void *)SHOALI_META_ADDRESS : backward->input_grads[i];
    }
    return SHOAL_OK;
}

static shoal_status finish_inputs(struct shoal_tape *tape, const struct shoali_backward *backward)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < backward->input_count; i++) {
        struct shoali_tape_tensor *input = shoali_tape_tensor_of(backward->inputs[i]);
        if (input->grad_state == SHOALI_GRAD_NONE)
            SHOAL_TRY(status, shoali_tape_zero(tape, input->grad, input->bytes), done);
    }
    for (int32_t i = 0; i < tape->tensor_count; i++)
        if (tape->tensor[i]->tensor.node < 0)
            shoali_grad_free(tape, tape->tensor[i]);
done:
    return status;
}

static shoal_status check_backward(const struct shoal_tape *tape,
                                   const struct shoali_backward *backward)
{
    if (tape->status < 0)
        return tape->status;
    if (!tape->needs_grad)
        return SHOAL_FAIL(SHOAL_EINVAL, "backward: the tape was begun without needs_grad, so "
                                        "nothing was saved");
    if (tape->backward_done)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "backward: it has already run and freed its inputs; record again");
    if (tape->open_scope >= 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "backward: scope %s is still open",
                          shoali_tape_path(tape, tape->open_scope));
    for (int32_t i = 0; i < backward->output_count; i++) {
        struct shoal_tensor *output = backward->outputs[i];
        if (output == NULL || output->tape != tape)
            return SHOAL_FAIL(SHOAL_EINVAL, "backward: output %d is not a tensor of this tape",
                              (int)i);
    }
    return SHOAL_OK;
}

/* ---- the calls ---- */

shoal_status shoali_tape_backward(struct shoal_tape *tape, const struct shoali_backward *backward)
{
    shoal_status status;
    const char *outer = shoali_context_get()->scope;
    SHOAL_TRY(status, check_backward(tape, backward), done);
    SHOAL_TRY(status, shoali_pending_finish_from(tape, 0), done);
    SHOAL_TRY(status, shoali_keep_begin_backward(tape), done);
    tape->backward_done = true;
    tape->defer_weight = backward->defer_weight;
    SHOAL_TRY(status, point_inputs(tape, backward), done);
    for (int32_t i = 0; i < backward->output_count; i++)
        SHOAL_TRY(status,
                  seed_output(tape, backward->outputs[i],
                              backward->seeds != NULL ? backward->seeds[i] : NULL,
                              backward->seed_value),
                  done);
    SHOAL_TRY(status, walk(tape), done);
    SHOAL_TRY(status, shoali_pending_finish_from(tape, 0), done);
    SHOAL_TRY(status, finish_inputs(tape, backward), done);
    SHOAL_TRY(status, shoali_tape_finish_unused(tape), done);
done:
    shoali_context_get()->scope = outer;
    (void)shoali_tape_poison(tape, status);
    return status;
}

shoal_status shoali_tape_backward_weight(struct shoal_tape *tape)
{
    shoal_status status = tape->status;
    if (status < 0)
        return status;
    if (!tape->backward_done || !tape->defer_weight || tape->weights_done)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "backward_weight: call it once, after a backward with defer_weight");
    tape->weights_done = true;
    for (int32_t n = tape->node_count - 1; n >= 0; n--) {
        struct shoali_node *node = tape->node[n];
        if (!node->weight_deferred)
            continue;
        SHOAL_TRY(status, run_part(tape, node, node->row->backward_weight), done);
        SHOAL_TRY(status, shoali_node_finish_backward(tape, node), done);
    }
done:
    (void)shoali_tape_poison(tape, status);
    return status;
}
