/* binary.c - sum, difference, product, quotient; b may be a trailing block of a's shape. */
#include "autograd/rows/rows.h"

struct binary_attr {
    enum shoali_binary kind;
    int64_t count, b_count; /* set by infer */
};

enum { A, B };

static bool is_trailing_block(const shoal_shape *a, const shoal_shape *b)
{
    if (shoal_shape_count(b) == 1)
        return true;
    for (int32_t d = 1; d <= b->ndim; d++)
        if (d > a->ndim || a->dim[a->ndim - d] != b->dim[b->ndim - d])
            return false;
    return true;
}

/* Along tp both have the same part, or b is the same for all and needs no gradient, which would be
 * a sum over ranks. */
static shoal_status check_parts(const struct shoali_node *node)
{
    const struct shoal_tensor *a = &node->in[A]->tensor, *b = &node->in[B]->tensor;
    const bool alike = shoali_columns_equal(&a->columns, &b->columns) &&
                       a->sequence_part == b->sequence_part && a->shape.ndim == b->shape.ndim;
    const bool apart =
        a->columns.parts > 0 || b->columns.parts > 0 || a->sequence_part || b->sequence_part;
    const bool plain = b->columns.parts == 0 && !b->sequence_part && !b->needs_grad;
    if (alike || plain || !apart)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                      "%s: tp divides only one of the operands; use two whole tensors, or make "
                      "both with weights that are split in the same way",
                      node->row->name);
}

static shoal_status binary_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct binary_attr *attr = shoali_node_attr(node);
    char a_text[128], b_text[128];
    SHOAL_TRY(status, shoali_row_need_float(node, A), done);
    SHOAL_TRY(status, shoali_row_need_float(node, B), done);
    const struct shoal_tensor *a = &node->in[A]->tensor, *b = &node->in[B]->tensor;
    if (a->dtype != b->dtype || !is_trailing_block(&a->shape, &b->shape)) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: %s %s and %s %s do not fit; types must be equal and the second "
                            "shape the first's or its last dims",
                            node->row->name, shoal_dtype_name(a->dtype),
                            shoali_shape_format(&a->shape, a_text), shoal_dtype_name(b->dtype),
                            shoali_shape_format(&b->shape, b_text));
        goto done;
    }
    SHOAL_TRY(status, check_parts(node), done);
    attr->count = shoali_count(a);
    attr->b_count = shoali_count(b);
    SHOAL_TRY(status, shoali_row_output_like_first(tape, node), done);
    /* A factor is read only for the other one's gradient; a quotient only for the divisor's. */
    if (attr->kind == SHOALI_MUL && !a->needs_grad)
        node->saves_inputs &= ~(1u << B);
    if (attr->kind == SHOALI_MUL && !b->needs_grad)
        node->saves_inputs &= ~(1u << A);
    if (attr->kind == SHOALI_DIV && !b->needs_grad)
        node->saves_outputs = 0;
done:
    return status;
}

static shoal_status run_kind(struct shoal_tape *tape, const struct shoali_node *node,
                             enum shoali_binary kind, const void *a, const void *b, void *y,
                             bool accumulate)
{
    const struct binary_attr *attr = shoali_node_attr(node);
    const struct shoali_binary_args args = {
        .a = a,
        .b = b,
        .y = y,
        .count = attr->count,
        .b_count = attr->b_count,
        .kind = kind,
        .accumulate = accumulate,
        .dtype = node->in[A]->tensor.dtype,
    };
    return SHOALI_RUN(tape, binary, &args);
}

static shoal_status binary_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct binary_attr *attr = shoali_node_attr(node);
    return run_kind(tape, node, attr->kind, node->in[A]->tensor.data, node->in[B]->tensor.data,
                    node->out[0]->tensor.data, false);
}

/* b's gradient (+)= factor * full, summed over the dims that b lacks. */
static shoal_status give_to_b(struct shoal_tape *tape, struct shoali_node *node, const void *full,
                              double factor)
{
    shoal_status status;
    const struct binary_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = node->in[B]->tensor.dtype;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, B, true, &to, &accumulate), done);
    const struct shoali_axpy_args same = {.x = full,
                                          .y = to,
                                          .count = attr->count,
                                          .a = factor,
                                          .accumulate = accumulate,
                                          .dtype = dtype};
    const struct shoali_reduce_args fewer = {
        .x = full,
        .y = to,
        .outer = 1,
        .reduced = attr->b_count > 0 ? attr->count / attr->b_count : 0,
        .inner = attr->b_count,
        .factor = factor,
        .accumulate = accumulate,
        .row_order = true,
        .dtype = dtype,
        .dtype_out = dtype,
    };
    if (to != NULL && attr->b_count == attr->count)
        SHOAL_TRY(status, SHOALI_RUN(tape, axpy, &same), done);
    else if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, reduce, &fewer), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, B), done);
done:
    return status;
}

/* a's gradient (+)= dy op b. */
static shoal_status give_to_a(struct shoal_tape *tape, struct shoali_node *node,
                              enum shoali_binary kind)
{
    shoal_status status;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, A, true, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status,
                  run_kind(tape, node, kind, shoali_node_grad(tape, node, 0),
                           node->in[B]->tensor.data, to, accumulate),
                  done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, A), done);
done:
    return status;
}

static shoal_status add_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct binary_attr *attr = shoali_node_attr(node);
    const void *dy = shoali_node_grad(tape, node, 0);
    SHOAL_TRY(status, shoali_grad_pass(tape, node, A), done);
    if (attr->kind == SHOALI_ADD && attr->b_count == attr->count)
        SHOAL_TRY(status, shoali_grad_pass(tape, node, B), done);
    else
        SHOAL_TRY(status, give_to_b(tape, node, dy, attr->kind == SHOALI_SUB ? -1 : 1), done);
done:
    return status;
}

static shoal_status mul_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const void *dy = shoali_node_grad(tape, node, 0);
    const struct shoali_tape_tensor *a = node->in[A];
    const struct binary_attr *attr = shoali_node_attr(node);
    void *product;
    SHOAL_TRY(status, give_to_a(tape, node, SHOALI_MUL), done);
    if (!node->in[B]->tensor.needs_grad)
        goto done;
    SHOAL_TRY(status, shoali_tape_workspace(tape, a->bytes, &product), done);
    const struct shoali_binary_args args = {
        .a = dy,
        .b = a->tensor.data,
        .y = product,
        .count = attr->count,
        .b_count = attr->count,
        .kind = SHOALI_MUL,
        .dtype = a->tensor.dtype,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, binary, &args), done);
    SHOAL_TRY(status, give_to_b(tape, node, product, 1), done);
    shoali_tape_workspace_free(tape, product);
done:
    return status;
}

/* y = a/b: da = dy/b, db = -(dy*y)/b. */
static shoal_status div_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct binary_attr *attr = shoali_node_attr(node);
    void *product;
    SHOAL_TRY(status, give_to_a(tape, node, SHOALI_DIV), done);
    if (!node->in[B]->tensor.needs_grad)
        goto done;
    SHOAL_TRY(status, shoali_tape_workspace(tape, node->out[0]->bytes, &product), done);
    const struct shoali_binary_args args = {
        .a = shoali_node_grad(tape, node, 0),
        .b = node->out[0]->tensor.data,
        .y = product,
        .count = attr->count,
        .b_count = attr->count,
        .kind = SHOALI_MUL,
        .dtype = node->in[A]->tensor.dtype,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, binary, &args), done);
    SHOAL_TRY(status,
              run_kind(tape, node, SHOALI_DIV, product, node->in[B]->tensor.data, product, false),
              done);
    SHOAL_TRY(status, give_to_b(tape, node, product, -1), done);
    shoali_tape_workspace_free(tape, product);
done:
    return status;
}

static const struct shoali_op_row add_row = {
    SHOALI_ROW_HEAD,
    .name = "add",
    .infer = binary_infer,
    .forward = binary_forward,
    .backward_input = add_backward,
    .cost = shoali_cost_elementwise,
    .flags = SHOALI_ROW_COLUMNS | SHOALI_ROW_SEQUENCE,
};
static const struct shoali_op_row mul_row = {
    SHOALI_ROW_HEAD,
    .name = "mul",
    .infer = binary_infer,
    .forward = binary_forward,
    .backward_input = mul_backward,
    .cost = shoali_cost_elementwise,
    .saves_inputs = 1u << A | 1u << B,
    .flags = SHOALI_ROW_COLUMNS | SHOALI_ROW_SEQUENCE,
};
static const struct shoali_op_row div_row = {
    SHOALI_ROW_HEAD,
    .name = "div",
    .infer = binary_infer,
    .forward = binary_forward,
    .backward_input = div_backward,
    .cost = shoali_cost_elementwise,
    .saves_inputs = 1u << B,
    .saves_outputs = 1u,
    .flags = SHOALI_ROW_COLUMNS | SHOALI_ROW_SEQUENCE,
};

static shoal_tensor *record_binary(shoal_tape *tape, const struct shoali_op_row *row,
                                   enum shoali_binary kind, shoal_tensor *a, shoal_tensor *b)
{
    const struct binary_attr attr = {.kind = kind};
    shoal_tensor *a_part = a, *b_part = b;
    if (a != NULL && b != NULL && a->sequence_part != b->sequence_part &&
        a->shape.ndim == b->shape.ndim) { /* of both the same part */
        a_part = shoali_tensor_take_sequence(tape, a);
        b_part = shoali_tensor_take_sequence(tape, b);
    }
    shoal_tensor *y = shoali_tape_record(
        tape,
        &(struct shoali_record_args){
            .row = row, .inputs = {a_part, b_part}, .attr = &attr, .attr_bytes = sizeof attr});
    shoali_tensor_done(tape, a_part, a);
    shoali_tensor_done(tape, b_part, b);
    return y;
}

shoal_tensor *shoal_add(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b)
{
    return record_binary(tape, &add_row, SHOALI_ADD, a, b);
}

shoal_tensor *shoal_sub(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b)
{
    return record_binary(tape, &add_row, SHOALI_SUB, a, b);
}

shoal_tensor *shoal_mul(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b)
{
    return record_binary(tape, &mul_row, SHOALI_MUL, a, b);
}

shoal_tensor *shoal_div(shoal_tape *tape, shoal_tensor *a, shoal_tensor *b)
{
    return record_binary(tape, &div_row, SHOALI_DIV, a, b);
}
