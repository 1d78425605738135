/* grad.c - gradients of activations: buffers, fan-in, hand-over from a node's output to its input.
 */
#include "autograd/tape/tape.h"

shoal_status shoali_grad_place(struct shoal_tape *tape, struct shoali_tape_tensor *tensor)
{
    shoal_status status;
    const size_t wide = tensor->tensor.dtype == SHOAL_F64 ? sizeof(double) : sizeof(float);
    const size_t bytes = tensor->wide_grad ? (size_t)tensor->tensor.bound * wide : tensor->bytes;
    SHOAL_TRY(status, shoali_slot_alloc(tape->args.slot, bytes, &tensor->grad_segment), done);
    tensor->grad = shoali_slot_address(tape->args.slot, tensor->grad_segment);
done:
    return status;
}

void shoali_grad_free(struct shoal_tape *tape, struct shoali_tape_tensor *tensor)
{
    shoali_slot_free(tape->args.slot, tensor->grad_segment);
    tensor->grad_segment = SHOALI_NO_SEGMENT;
    tensor->grad = NULL;
    tensor->grad_state = SHOALI_GRAD_NONE;
}

shoal_status shoali_grad_add(struct shoal_tape *tape, const void *x, void *y, int64_t count,
                             shoal_dtype dtype, bool accumulate)
{
    const struct shoali_axpy_args args = {
        .x = x, .y = y, .count = count, .a = 1, .accumulate = accumulate, .dtype = dtype};
    if (count == 0)
        return SHOAL_OK;
    if (accumulate)
        return SHOALI_LAUNCH(tape, shoali_op_axpy(&tape->args.exec, &args));
    return SHOALI_LAUNCH(tape, shoali_copy(tape->args.exec.stream, y, x,
                                           (size_t)count * shoal_dtype_bytes(dtype),
                                           SHOALI_DEVICE_TO_DEVICE));
}

static int64_t count_of(const struct shoali_tape_tensor *tensor)
{
    return shoal_shape_count(&tensor->tensor.shape);
}

const void *shoali_node_grad(struct shoal_tape *tape, const struct shoali_node *node,
                             int32_t output)
{
    (void)tape;
    const struct shoali_tape_tensor *out = node->out[output];
    return out != NULL && out->grad_state == SHOALI_GRAD_SET ? out->grad : NULL;
}

/* A gradient that was to take the output's buffer gets one of its own, because a second
 * contribution comes. */
static shoal_status keep_promise(struct shoal_tape *tape, struct shoali_node *node,
                                 struct shoali_tape_tensor *in)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_grad_place(tape, in), done);
    SHOAL_TRY(
        status,
        shoali_grad_add(tape, node->out[0]->grad, in->grad, count_of(in), in->tensor.dtype, false),
        done);
    in->grad_state = SHOALI_GRAD_SET;
    node->pass_input = -1;
done:
    return status;
}

shoal_status shoali_grad_begin(struct shoal_tape *tape, struct shoali_node *node, int32_t input,
                               bool can_accumulate, void **to, bool *accumulate)
{
    shoal_status status = SHOAL_OK;
    struct shoali_tape_tensor *in = node->in[input];
    *to = NULL;
    *accumulate = false;
    if (in == NULL || !in->tensor.needs_grad)
        return SHOAL_OK;
    if (in->grad_state == SHOALI_GRAD_PROMISED)
        SHOAL_TRY(status, keep_promise(tape, node, in), done);
    if (in->grad_state == SHOALI_GRAD_NONE) {
        if (in->grad == NULL) /* else the caller of backward owns it */
            SHOAL_TRY(status, shoali_grad_place(tape, in), done);
        in->grad_state = SHOALI_GRAD_SET;
        *to = in->grad;
        goto done;
    }
    if (can_accumulate) {
        *to = in->grad;
        *accumulate = true;
        goto done;
    }
    SHOAL_TRY(status, shoali_tape_workspace(tape, in->bytes, &tape->grad_temp[input]), done);
    *to = tape->grad_temp[input];
done:
    return status;
}

shoal_status shoali_grad_end(struct shoal_tape *tape, struct shoali_node *node, int32_t input)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_tape_tensor *in = node->in[input];
    void *temp = tape->grad_temp[input];
    if (temp == NULL)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_grad_add(tape, temp, in->grad, count_of(in), in->tensor.dtype, true),
              done);
    shoali_tape_workspace_free(tape, temp);
    tape->grad_temp[input] = NULL;
done:
    return status;
}

shoal_status shoali_grad_begin_over(struct shoal_tape *tape, struct shoali_node *node,
                                    int32_t input, void **to, bool *accumulate)
{
    struct shoali_tape_tensor *in = node->in[input];
    const bool mine = in != NULL && in->tensor.needs_grad && in->root == in && !in->external &&
                      in->refs == 1 && (node->saves_inputs >> input & 1u) != 0 &&
                      in->grad_state == SHOALI_GRAD_NONE && in->grad == NULL;
    if (!mine)
        return shoali_grad_begin(tape, node, input, false, to, accumulate);
    /* The one reference is this node's save: nobody reads the values after this kernel. */
    in->grad_segment = in->segment;
    in->grad = shoali_slot_address(tape->args.slot, in->segment);
    in->grad_state = SHOALI_GRAD_SET;
    in->segment = SHOALI_NO_SEGMENT;
    *to = in->grad;
    *accumulate = false;
    return SHOAL_OK;
}

shoal_status shoali_grad_pass(struct shoal_tape *tape, struct shoali_node *node, int32_t input)
{
    shoal_status status = SHOAL_OK;
    struct shoali_tape_tensor *in = node->in[input];
    const struct shoali_tape_tensor *out = node->out[0];
    void *to;
    bool accumulate;
    if (in == NULL || !in->tensor.needs_grad)
        return SHOAL_OK;
    const bool movable = in->grad_state == SHOALI_GRAD_NONE && in->grad == NULL &&
                         node->pass_input < 0 && in->bytes == out->bytes &&
                         !(tape->defer_weight && node->row->backward_weight != NULL);
    if (movable) {
        in->grad_state = SHOALI_GRAD_PROMISED;
        node->pass_input = input;
        return SHOAL_OK;
    }
    SHOAL_TRY(status, shoali_grad_begin(tape, node, input, true, &to, &accumulate), done);
    SHOAL_TRY(status,
              shoali_grad_add(tape, out->grad, to, count_of(in), in->tensor.dtype, accumulate),
              done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, input), done);
done:
    return status;
}

void shoali_node_finish_grads(struct shoal_tape *tape, struct shoali_node *node)
{
    struct shoali_tape_tensor *out = node->out[0];
    if (node->pass_input >= 0) {
        struct shoali_tape_tensor *in = node->in[node->pass_input];
        in->grad = out->grad;
        in->grad_segment = out->grad_segment;
        in->grad_state = SHOALI_GRAD_SET;
        out->grad_segment = SHOALI_NO_SEGMENT;
        node->pass_input = -1;
    }
    shoali_grad_free(tape, out);
}
