/* loss.c - softmax and the losses. */
#include "autograd/rows/vocab_parallel_loss.h"

/* ---- softmax ---- */

static shoal_status softmax_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_row_need_float(node, 0), done);
    SHOAL_TRY(status, shoali_row_output_like_first(tape, node), done);
    if (node->in[0]->tensor.shape.ndim > 0)
        shoali_block_leading(node, node->in[0]->tensor.shape.ndim - 1);
done:
    return status;
}

static shoal_status softmax_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct shoali_softmax_args args = {
        .x = x->data,
        .y = node->out[0]->tensor.data,
        .rows = shoali_row_count(x),
        .columns = shoali_last_dim(&x->shape),
        .dtype = x->dtype,
    };
    return SHOALI_RUN(tape, softmax, &args);
}

static shoal_status softmax_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *y = &node->out[0]->tensor;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    const struct shoali_softmax_args args = {
        .x = y->data,
        .dy = shoali_node_grad(tape, node, 0),
        .y = to,
        .rows = shoali_row_count(y),
        .columns = shoali_last_dim(&y->shape),
        .backward = 1,
        .accumulate = accumulate,
        .dtype = y->dtype,
    };
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, softmax, &args), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static void softmax_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                         int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    shoali_cost_elementwise(tape, node, flops_forward, flops_backward, bytes);
    *flops_forward *= 5; /* max, subtract, exp, sum, divide */
    *flops_backward *= 4;
}

static const struct shoali_op_row softmax_row = {
    SHOALI_ROW_HEAD,
    .name = "softmax",
    .infer = softmax_infer,
    .forward = softmax_forward,
    .backward_input = softmax_backward,
    .cost = softmax_cost,
    .saves_outputs = 1u,
};

shoal_tensor *shoal_softmax(shoal_tape *tape, shoal_tensor *x)
{
    return shoali_tape_record(tape,
                              &(struct shoali_record_args){.row = &softmax_row, .inputs = {x}});
}

/* ---- cross-entropy ---- */

enum { LOGITS, TARGETS };
enum { RESULT, LSE, COUNT };

shoal_status shoali_row_need_targets(const struct shoali_node *node, int32_t index,
                                     const shoal_shape *logits)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_row_need_i32(node, index), done);
    const struct shoali_tape_tensor *targets = node->in[index];
    const int64_t vocabulary = shoali_last_dim(logits);
    char got[128], expected[128];
    shoal_shape rows = *logits;
    rows.ndim = rows.ndim > 0 ? rows.ndim - 1 : 0;
    if (logits->ndim == 0 || !shoali_shape_equal(&targets->tensor.shape, &rows))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: targets %s do not fit logits %s; they must be the logits' dims "
                            "without the last",
                            node->row->name, shoali_shape_format(&targets->tensor.shape, got),
                            shoali_shape_format(logits, expected));
    else if (targets->ids_known && targets->id_max >= vocabulary)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: a target is %d but the logits have %lld classes; negative targets "
                            "are ignored, others must be below",
                            node->row->name, (int)targets->id_max, (long long)vocabulary);
done:
    return status;
}

static shoal_status cross_entropy_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_row_need_float(node, LOGITS), done);
    const struct shoal_tensor *logits = &node->in[LOGITS]->tensor;
    SHOAL_TRY(status, shoali_row_need_targets(node, TARGETS, &logits->shape), done);
    SHOAL_TRY(status,
              shoali_loss_smooth(node, shoali_last_dim(&logits->shape), shoali_node_attr(node)),
              done);
    const struct shoal_tensor *targets = &node->in[TARGETS]->tensor;
    const shoal_dtype wide = shoali_wide(logits->dtype);
    const shoal_shape scalar = {0}, rows = shoal_shape_1(shoali_count(targets));
    SHOAL_TRY(status, shoali_node_output(tape, node, RESULT, wide, &scalar, 1), done);
    SHOAL_TRY(status, shoali_node_output(tape, node, LSE, wide, &rows, targets->bound), done);
    SHOAL_TRY(status, shoali_node_output(tape, node, COUNT, wide, &scalar, 1), done);
done:
    return status;
}

static shoal_status cross_entropy_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *logits = &node->in[LOGITS]->tensor;
    const int32_t *targets = node->in[TARGETS]->tensor.data;
    const struct shoali_loss_labels *labels = shoali_node_attr(node);
    void *row_loss;
    const int64_t columns = shoali_last_dim(&logits->shape);
    SHOAL_TRY(status, shoali_tape_workspace(tape, node->out[LSE]->bytes, &row_loss), done);
    const struct shoali_cross_entropy_args rows = {
        .logits = logits->data,
        .targets = targets,
        .loss = row_loss,
        .lse = node->out[LSE]->tensor.data,
        .rows = shoali_count(&node->in[TARGETS]->tensor),
        .columns = columns,
        .stride = columns,
        .dtype = logits->dtype,
        .labels = labels->wanted,
    };
    const struct shoali_loss_mean_args mean = {
        .loss = row_loss,
        .targets = targets,
        .mean = node->out[RESULT]->tensor.data,
        .count = node->out[COUNT]->tensor.data,
        .rows = rows.rows,
        .dtype = logits->dtype,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, cross_entropy, &rows), done);
    SHOAL_TRY(status, SHOALI_RUN(tape, loss_mean, &mean), done);
done:
    shoali_tape_workspace_free(tape, row_loss);
    return status;
}

/* The gradient overwrites the logits when nothing else reads them: they are the largest tensor of a
 * language model. */
static shoal_status cross_entropy_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *logits = &node->in[LOGITS]->tensor;
    const struct shoali_loss_labels *labels = shoali_node_attr(node);
    const void *values = logits->data;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin_over(tape, node, LOGITS, &to, &accumulate), done);
    const int64_t columns = shoali_last_dim(&logits->shape);
    const struct shoali_cross_entropy_backward_args args = {
        .logits = values,
        .targets = node->in[TARGETS]->tensor.data,
        .lse = node->out[LSE]->tensor.data,
        .dloss = shoali_node_grad(tape, node, RESULT),
        .count = node->out[COUNT]->tensor.data,
        .dlogits = to,
        .rows = shoali_count(&node->in[TARGETS]->tensor),
        .columns = columns,
        .stride = columns,
        .dtype = logits->dtype,
        .labels = labels->wanted,
    };
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, cross_entropy_backward, &args), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, LOGITS), done);
done:
    return status;
}

static void cross_entropy_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                               int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    const int64_t count = shoali_count(&node->in[LOGITS]->tensor);
    *flops_forward = shoali_loss_flops(shoali_node_attr(node)) * count;
    *flops_backward = 4 * count; /* subtract, exp, subtract, scale */
    *bytes = shoali_cost_bytes(node);
}

static const struct shoali_op_row cross_entropy_row = {
    SHOALI_ROW_HEAD,
    .name = "cross_entropy",
    .infer = cross_entropy_infer,
    .forward = cross_entropy_forward,
    .backward_input = cross_entropy_backward,
    .cost = cross_entropy_cost,
    .saves_inputs = 1u << LOGITS | 1u << TARGETS,
    .saves_outputs = 1u << LSE | 1u << COUNT,
};

shoal_tensor *shoal_cross_entropy_smoothed(shoal_tape *tape, shoal_tensor *logits,
                                           shoal_tensor *targets, double label_smoothing)
{
    const struct shoali_loss_labels labels = {.smoothing = label_smoothing};
    if (tape->status >= 0 && logits != NULL && logits->columns.parts == 1)
        return shoali_vocab_parallel_cross_entropy(tape, logits, targets, label_smoothing);
    return shoali_tape_record(tape, &(struct shoali_record_args){.row = &cross_entropy_row,
                                                                 .inputs = {logits, targets},
                                                                 .attr = &labels,
                                                                 .attr_bytes = sizeof labels});
}

shoal_tensor *shoal_cross_entropy(shoal_tape *tape, shoal_tensor *logits, shoal_tensor *targets)
{
    return shoal_cross_entropy_smoothed(tape, logits, targets, 0);
}

/* ---- mean squared error ---- */

enum { PREDICTION, TARGET };

static shoal_status mse_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const shoal_shape scalar = {0};
    SHOAL_TRY(status, shoali_row_need_float(node, PREDICTION), done);
    SHOAL_TRY(status, shoali_row_need_like_first(node, TARGET), done);
    SHOAL_TRY(status,
              shoali_node_output(tape, node, 0, shoali_wide(node->in[0]->tensor.dtype), &scalar, 1),
              done);
done:
    return status;
}

/* difference = x - target in fp32 (fp64 for F64): 16-bit operands are widened first. `other` is
 * workspace of the same size, used only then. */
static shoal_status difference(struct shoal_tape *tape, const struct shoali_node *node,
                               void *result, void *other)
{
    shoal_status status = SHOAL_OK;
    const struct shoal_tensor *x = &node->in[PREDICTION]->tensor;
    const struct shoal_tensor *target = &node->in[TARGET]->tensor;
    const shoal_dtype wide = shoali_wide(x->dtype);
    const int64_t count = shoali_count(x);
    struct shoali_binary_args args = {.a = x->data,
                                      .b = target->data,
                                      .y = result,
                                      .count = count,
                                      .b_count = count,
                                      .kind = SHOALI_SUB,
                                      .dtype = wide};
    if (wide != x->dtype) {
        const struct shoali_convert_args widen_x = {
            .x = x->data, .y = result, .count = count, .dtype = x->dtype, .dtype_out = wide};
        const struct shoali_convert_args widen_target = {
            .x = target->data, .y = other, .count = count, .dtype = x->dtype, .dtype_out = wide};
        SHOAL_TRY(status, SHOALI_RUN(tape, convert, &widen_x), done);
        SHOAL_TRY(status, SHOALI_RUN(tape, convert, &widen_target), done);
        args.a = result;
        args.b = other;
    }
    SHOAL_TRY(status, SHOALI_RUN(tape, binary, &args), done);
done:
    return status;
}

static size_t wide_bytes(const struct shoali_node *node)
{
    const struct shoal_tensor *x = &node->in[PREDICTION]->tensor;
    return (size_t)x->bound * shoal_dtype_bytes(shoali_wide(x->dtype));
}

static shoal_status mse_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *x = &node->in[PREDICTION]->tensor;
    const int64_t count = shoali_count(x);
    const shoal_dtype wide = shoali_wide(x->dtype);
    void *delta = NULL, *square = NULL;
    SHOAL_TRY(status, shoali_tape_workspace(tape, wide_bytes(node), &delta), done);
    SHOAL_TRY(status, shoali_tape_workspace(tape, wide_bytes(node), &square), done);
    SHOAL_TRY(status, difference(tape, node, delta, square), done);
    const struct shoali_unary_args squares = {
        .x = delta, .y = square, .count = count, .kind = SHOALI_SQUARE, .dtype = wide};
    SHOAL_TRY(status, SHOALI_RUN(tape, unary, &squares), done);
    const struct shoali_reduce_args mean = {
        .x = square,
        .y = node->out[0]->tensor.data,
        .outer = 1,
        .reduced = count,
        .inner = 1,
        .factor = count > 0 ? 1.0 / (double)count : 0,
        .dtype = wide,
        .dtype_out = wide,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, reduce, &mean), done);
done:
    shoali_tape_workspace_free(tape, square);
    shoali_tape_workspace_free(tape, delta);
    return status;
}

/* Gives factor * delta, which is in the wide type, to input `index`. */
static shoal_status give_delta(struct shoal_tape *tape, struct shoali_node *node, int32_t index,
                               const void *delta, void *scaled, double factor)
{
    shoal_status status;
    const struct shoal_tensor *x = &node->in[index]->tensor;
    const shoal_dtype wide = shoali_wide(x->dtype);
    const int64_t count = shoali_count(x);
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, index, wide == x->dtype, &to, &accumulate),
              done);
    const bool direct = wide == x->dtype;
    const struct shoali_axpy_args scale = {.x = delta,
                                           .y = direct ? to : scaled,
                                           .count = count,
                                           .a = factor,
                                           .accumulate = accumulate,
                                           .dtype = wide};
    const struct shoali_convert_args narrow = {
        .x = scaled, .y = to, .count = count, .dtype = wide, .dtype_out = x->dtype};
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, axpy, &scale), done);
    if (to != NULL && !direct)
        SHOAL_TRY(status, SHOALI_RUN(tape, convert, &narrow), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, index), done);
done:
    return status;
}

static shoal_status mse_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *x = &node->in[PREDICTION]->tensor;
    const int64_t count = shoali_count(x);
    const double factor = count > 0 ? 2.0 / (double)count : 0;
    void *delta = NULL, *other = NULL;
    SHOAL_TRY(status, shoali_tape_workspace(tape, wide_bytes(node), &delta), done);
    SHOAL_TRY(status, shoali_tape_workspace(tape, wide_bytes(node), &other), done);
    SHOAL_TRY(status, difference(tape, node, delta, other), done);
    const struct shoali_binary_args times_dloss = {
        .a = delta,
        .b = shoali_node_grad(tape, node, 0),
        .y = delta,
        .count = count,
        .b_count = 1,
        .kind = SHOALI_MUL,
        .dtype = shoali_wide(x->dtype),
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, binary, &times_dloss), done);
    SHOAL_TRY(status, give_delta(tape, node, PREDICTION, delta, other, factor), done);
    SHOAL_TRY(status, give_delta(tape, node, TARGET, delta, other, -factor), done);
done:
    shoali_tape_workspace_free(tape, other);
    shoali_tape_workspace_free(tape, delta);
    return status;
}

static void mse_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                     int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    const int64_t count = shoali_count(&node->in[PREDICTION]->tensor);
    *flops_forward = 3 * count;
    *flops_backward = 3 * count;
    *bytes = shoali_cost_bytes(node);
}

static const struct shoali_op_row mse_row = {
    SHOALI_ROW_HEAD,
    .name = "mse",
    .infer = mse_infer,
    .forward = mse_forward,
    .backward_input = mse_backward,
    .cost = mse_cost,
    .saves_inputs = 1u << PREDICTION | 1u << TARGET,
};

shoal_tensor *shoal_mse(shoal_tape *tape, shoal_tensor *x, shoal_tensor *target)
{
    return shoali_tape_record(tape,
                              &(struct shoali_record_args){.row = &mse_row, .inputs = {x, target}});
}
