/* elementwise.c - functions of one tensor, of two with broadcast, and dropout. */
#include "autograd/rows/rows.h"

/* ---- one tensor ---- */

struct unary_attr {
    enum shoali_unary kind;
    double alpha;
};

static shoal_status unary_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct unary_attr *attr = shoali_node_attr(node);
    SHOAL_TRY(status, shoali_row_need_float(node, 0), done);
    SHOAL_TRY(status, shoali_row_output_like_first(tape, node), done);
    if (attr->kind == SHOALI_SCALE || attr->kind == SHOALI_ADD_SCALAR)
        node->saves_inputs = 0; /* the derivative is a constant */
done:
    return status;
}

static shoal_status unary_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct unary_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct shoali_unary_args args = {
        .x = x->data,
        .y = node->out[0]->tensor.data,
        .count = shoali_count(x),
        .alpha = attr->alpha,
        .kind = attr->kind,
        .dtype = x->dtype,
    };
    return SHOALI_RUN(tape, unary, &args);
}

static shoal_status scale_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct unary_attr *attr = shoali_node_attr(node);
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    const struct shoali_axpy_args args = {
        .x = shoali_node_grad(tape, node, 0),
        .y = to,
        .count = shoali_count(&node->in[0]->tensor),
        .a = attr->alpha,
        .accumulate = accumulate,
        .dtype = node->in[0]->tensor.dtype,
    };
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, axpy, &args), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static shoal_status unary_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct unary_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    void *to;
    bool accumulate;
    if (attr->kind == SHOALI_ADD_SCALAR)
        return shoali_grad_pass(tape, node, 0);
    if (attr->kind == SHOALI_SCALE)
        return scale_backward(tape, node);
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    const struct shoali_unary_args args = {
        .x = x->data,
        .dy = shoali_node_grad(tape, node, 0),
        .y = to,
        .count = shoali_count(x),
        .alpha = attr->alpha,
        .kind = attr->kind,
        .backward = 1,
        .accumulate = accumulate,
        .dtype = x->dtype,
    };
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, unary, &args), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row unary_row = {
    SHOALI_ROW_HEAD,
    .name = "unary",
    .infer = unary_infer,
    .forward = unary_forward,
    .backward_input = unary_backward,
    .cost = shoali_cost_elementwise,
    .saves_inputs = 1u,
    .flags = SHOALI_ROW_COLUMNS | SHOALI_ROW_SEQUENCE,
};

static shoal_tensor *record_unary(shoal_tape *tape, shoal_tensor *x, enum shoali_unary kind,
                                  double alpha)
{
    const struct unary_attr attr = {.kind = kind, .alpha = alpha};
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &unary_row, .inputs = {x}, .attr = &attr, .attr_bytes = sizeof attr});
}

shoal_tensor *shoal_gelu(shoal_tape *tape, shoal_tensor *x, shoal_activation kind)
{
    return record_unary(tape, x, shoali_activation_kernel(kind), 0);
}

shoal_tensor *shoal_relu(shoal_tape *tape, shoal_tensor *x)
{
    return record_unary(tape, x, SHOALI_RELU, 0);
}

shoal_tensor *shoal_tanh(shoal_tape *tape, shoal_tensor *x)
{
    return record_unary(tape, x, SHOALI_TANH, 0);
}

shoal_tensor *shoal_sigmoid(shoal_tape *tape, shoal_tensor *x)
{
    return record_unary(tape, x, SHOALI_SIGMOID, 0);
}

shoal_tensor *shoal_silu(shoal_tape *tape, shoal_tensor *x)
{
    return record_unary(tape, x, SHOALI_SILU, 0);
}

shoal_tensor *shoal_exp(shoal_tape *tape, shoal_tensor *x)
{
    return record_unary(tape, x, SHOALI_EXP, 0);
}

shoal_tensor *shoal_ln(shoal_tape *tape, shoal_tensor *x)
{
    return record_unary(tape, x, SHOALI_LOG, 0);
}

shoal_tensor *shoal_sqrt(shoal_tape *tape, shoal_tensor *x)
{
    return record_unary(tape, x, SHOALI_SQRT, 0);
}

shoal_tensor *shoal_square(shoal_tape *tape, shoal_tensor *x)
{
    return record_unary(tape, x, SHOALI_SQUARE, 0);
}

shoal_tensor *shoal_scale(shoal_tape *tape, shoal_tensor *x, double factor)
{
    return record_unary(tape, x, SHOALI_SCALE, factor);
}

shoal_tensor *shoal_add_scalar(shoal_tape *tape, shoal_tensor *x, double value)
{
    return record_unary(tape, x, SHOALI_ADD_SCALAR, value);
}

/* ---- gated linear unit ---- */

/* Of two parts that tp divides alike one is left. */
static shoal_status halve_columns(struct shoali_node *node)
{
    struct shoali_columns half = node->in[0]->tensor.columns;
    if (half.parts != 2 || half.whole[0] != half.whole[1] || half.first[0] != half.first[1] ||
        half.count[0] != half.count[1])
        return SHOAL_FAIL(SHOAL_EINVAL, "glu: tp does not divide both halves of x; declare the "
                                        "weight that makes x with two parts of equal units");
    half.parts = 1;
    shoali_tensor_set_columns(node, &half);
    return SHOAL_OK;
}

static shoal_status glu_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct unary_attr *attr = shoali_node_attr(node);
    char text[128];
    SHOAL_TRY(status, shoali_row_need_float(node, 0), done);
    shoal_shape shape = node->in[0]->tensor.shape;
    const int64_t columns = shoali_last_dim(&shape);
    if (attr->kind == SHOALI_NEG || shape.ndim == 0 || columns % 2 != 0) {
        status = SHOAL_FAIL(
            SHOAL_EINVAL,
            "glu: x is %s and the activation is %s; it needs an even last dim and an activation",
            shoali_shape_format(&shape, text), attr->kind == SHOALI_NEG ? "none" : "given");
        goto done;
    }
    shape.dim[shape.ndim - 1] = columns / 2;
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, node->in[0]->tensor.dtype, &shape, -1),
              done);
    shoali_block_leading(node, shape.ndim - 1);
    if (node->in[0]->tensor.columns.parts > 0)
        SHOAL_TRY(status, halve_columns(node), done);
done:
    return status;
}

static struct shoali_glu_args glu_of(const struct shoali_node *node)
{
    const struct unary_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    return (struct shoali_glu_args){
        .x = x->data,
        .rows = shoali_row_count(x),
        .columns = shoali_last_dim(&x->shape) / 2,
        .kind = attr->kind,
        .dtype = x->dtype,
    };
}

static shoal_status glu_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    struct shoali_glu_args args = glu_of(node);
    args.y = node->out[0]->tensor.data;
    return SHOALI_RUN(tape, glu, &args);
}

static shoal_status glu_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct shoali_glu_args args = glu_of(node);
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &args.y, &accumulate), done);
    args.dy = shoali_node_grad(tape, node, 0);
    args.backward = 1;
    args.accumulate = accumulate;
    if (args.y != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, glu, &args), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

/* The function and a product; both gradients. */
static void glu_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                     int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    shoali_cost_elementwise(tape, node, flops_forward, flops_backward, bytes);
    *flops_forward *= 2;
    *flops_backward *= 4;
}

static const struct shoali_op_row glu_row = {
    SHOALI_ROW_HEAD,
    .name = "glu",
    .infer = glu_infer,
    .forward = glu_forward,
    .backward_input = glu_backward,
    .cost = glu_cost,
    .saves_inputs = 1u,
    .flags = SHOALI_ROW_COLUMNS | SHOALI_ROW_SEQUENCE,
};

shoal_tensor *shoal_glu(shoal_tape *tape, shoal_tensor *x, shoal_activation activation)
{
    const bool none = activation == SHOAL_ACTIVATION_NONE;
    const struct unary_attr attr = {.kind =
                                        none ? SHOALI_NEG : shoali_activation_kernel(activation)};
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &glu_row, .inputs = {x}, .attr = &attr, .attr_bytes = sizeof attr});
}

/* ---- dropout ---- */

struct dropout_attr {
    double probability;
    int64_t first_element; /* set by infer, as runs: a replay draws the same mask */
    struct shoali_runs runs;
};

enum { X, RESIDUAL };

static shoal_status dropout_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct dropout_attr *attr = shoali_node_attr(node);
    SHOAL_TRY(status, shoali_row_need_float(node, X), done);
    if (!(attr->probability > 0 && attr->probability < 1)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "dropout: probability %g is outside [0, 1)",
                            attr->probability);
        goto done;
    }
    if (node->in[RESIDUAL] != NULL)
        SHOAL_TRY(status, shoali_row_need_like_first(node, RESIDUAL), done);
    SHOAL_TRY(status, shoali_row_output_like_first(tape, node), done);
    if (node->in[X]->tensor.columns.parts > 1) {
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                            "dropout: tp divides x in %d parts, which do not form one block; apply "
                            "dropout to the result of each part",
                            (int)node->in[X]->tensor.columns.parts);
        goto done;
    }
    attr->first_element = shoali_block_runs(&node->out[0]->tensor.block, &attr->runs);
done:
    return status;
}

/* Forward on x, backward on the gradient: the same mask. */
static shoal_status run_dropout(struct shoal_tape *tape, const struct shoali_node *node,
                                const void *x, const void *residual, void *y, bool accumulate)
{
    const struct dropout_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *out = &node->out[0]->tensor;
    const struct shoali_dropout_args args = {
        .x = x,
        .residual = residual,
        .y = y,
        .count = shoali_count(out),
        .first_element = attr->first_element,
        .runs = attr->runs,
        .probability = (float)attr->probability,
        .accumulate = accumulate,
        .random = shoali_node_random(tape, node),
        .dtype = out->dtype,
    };
    return SHOALI_RUN(tape, dropout, &args);
}

static shoal_status dropout_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const void *residual = node->in[RESIDUAL] != NULL ? node->in[RESIDUAL]->tensor.data : NULL;
    return run_dropout(tape, node, node->in[X]->tensor.data, residual, node->out[0]->tensor.data,
                       false);
}

static shoal_status dropout_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, X, true, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status,
                  run_dropout(tape, node, shoali_node_grad(tape, node, 0), NULL, to, accumulate),
                  done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, X), done);
    SHOAL_TRY(status, shoali_grad_pass(tape, node, RESIDUAL), done);
done:
    return status;
}

static const struct shoali_op_row dropout_row = {
    SHOALI_ROW_HEAD,
    .name = "dropout",
    .infer = dropout_infer,
    .forward = dropout_forward,
    .backward_input = dropout_backward,
    .cost = shoali_cost_elementwise,
    .flags = SHOALI_ROW_COLUMNS | SHOALI_ROW_SEQUENCE,
};

shoal_tensor *shoal_dropout(shoal_tape *tape, shoal_tensor *x, double probability,
                            shoal_tensor *residual)
{
    const struct dropout_attr attr = {.probability = probability};
    if (!tape->training || probability == 0)
        return residual != NULL ? shoal_add(tape, x, residual) : x;
    shoal_tensor *part =
        residual != NULL && residual->sequence_part ? shoali_tensor_take_sequence(tape, x) : x;
    shoal_tensor *y =
        shoali_tape_record(tape, &(struct shoali_record_args){.row = &dropout_row,
                                                              .inputs = {part, residual},
                                                              .attr = &attr,
                                                              .attr_bytes = sizeof attr});
    shoali_tensor_done(tape, part, x);
    return y;
}
