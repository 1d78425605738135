/* tensor.c - what stands before a column weight and behind a row weight. */
#include "autograd/rows/sequence.h"

enum shoali_tensor_rule shoali_tensor_rule(const struct shoal_tape *tape,
                                           const struct shoal_param *weight, int32_t out_dim)
{
    if (!shoali_tensor_is_cut(tape) || weight == NULL || weight->shape.ndim != 2 ||
        (weight->cut_by & (SHOAL_AXIS_TP | SHOAL_AXIS_EXPERT)) != SHOAL_AXIS_TP)
        return SHOALI_TENSOR_WHOLE;
    return weight->tensor_dim == out_dim ? SHOALI_TENSOR_COLUMN : SHOALI_TENSOR_ROW;
}

void shoali_tensor_done(shoal_tape *tape, shoal_tensor *x, const shoal_tensor *kept)
{
    if (tape->status >= 0 && x != NULL && x != kept)
        shoali_tensor_close(tape, shoali_tape_tensor_of(x));
}

static shoal_status gradient_has_come(struct shoal_tape *tape, struct shoali_node *node)
{
    return shoali_grad_end(tape, node, 0);
}

/* ---- enter: x as it is ---- */

static shoal_status enter_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    return shoali_row_output_like_first(tape, node);
}

static shoal_status enter_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *x = &node->in[0]->tensor;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status,
                  shoali_tensor_post(tape, node, shoali_node_grad(tape, node, 0), to,
                                     shoali_count(x), x->dtype, SHOALI_TENSOR_SUM),
                  done);
done:
    return status;
}

static const struct shoali_op_row enter_row = {
    SHOALI_ROW_HEAD,
    .name = "enter_column",
    .infer = enter_infer,
    .backward_post = enter_backward,
    .backward_finish = gradient_has_come,
    .cost = shoali_cost_move,
    .flags = SHOALI_ROW_VIEW | SHOALI_ROW_HELPER | SHOALI_ROW_HURRIED,
};

/* ---- enter with sequence parallelism: the whole sequence ---- */

static shoal_status enter_sequence_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoali_sequence sequence = shoali_sequence_of(tape, &node->in[0]->tensor);
    const void *from = shoali_node_grad(tape, node, 0);
    void *to, *packed;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    if (to == NULL)
        return SHOAL_OK;
    if (sequence.outer > 1) {
        SHOAL_TRY(status,
                  shoali_node_scratch(tape, node, shoali_sequence_bytes(&sequence), &packed), done);
        SHOAL_TRY(status, shoali_sequence_pack(tape, &sequence, from, packed), done);
        from = packed;
    }
    SHOAL_TRY(status,
              shoali_tensor_post(tape, node, from, to, shoali_count(&node->in[0]->tensor),
                                 sequence.dtype, SHOALI_TENSOR_SCATTER),
              done);
done:
    return status;
}

static const struct shoali_op_row enter_sequence_row = {
    SHOALI_ROW_HEAD,
    .name = "enter_column_sequence",
    .infer = shoali_sequence_gather_infer,
    .forward_post = shoali_sequence_gather_post,
    .forward_finish = shoali_sequence_gather_finish,
    .backward_post = enter_sequence_backward,
    .backward_finish = gradient_has_come,
    .cost = shoali_cost_move,
    .flags = SHOALI_ROW_COLLECTIVE | SHOALI_ROW_HELPER | SHOALI_ROW_HURRIED | SHOALI_ROW_SEQUENCE,
};

static shoal_status refuse_exact(const struct shoal_tape *tape)
{
    if (!tape->args.tensor_parallel.exact)
        return SHOAL_OK;
    return SHOAL_FAIL(
        SHOAL_EUNSUPPORTED,
        "`reduction` is \"exact\", and sums over the %d ranks along tp are in another "
        "order than one rank's: use \"fast\", or one rank along tp",
        (int)tape->args.tensor_parallel.ranks);
}

shoal_tensor *shoali_tensor_enter(shoal_tape *tape, shoal_tensor *x)
{
    if (tape->status < 0 || x == NULL)
        return NULL;
    if (refuse_exact(tape) < 0)
        return shoali_tape_poison(tape, SHOAL_EUNSUPPORTED);
    const struct shoali_op_row *row = x->sequence_part ? &enter_sequence_row : &enter_row;
    if (!x->sequence_part && !x->needs_grad)
        return x;
    return shoali_tape_record(tape, &(struct shoali_record_args){.row = row, .inputs = {x}});
}

/* ---- leave: the sum, and what comes behind it ---- */

struct leave_attr {
    shoal_activation activation;
};
enum { PARTIAL, RESIDUAL };
enum { BIAS };
enum { RESULT, PREACT };

static bool is_active(const struct shoali_node *node)
{
    const struct leave_attr *attr = shoali_node_attr(node);
    return attr->activation != SHOAL_ACTIVATION_NONE;
}

static shoal_status leave_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *x = &node->in[PARTIAL]->tensor;
    const bool scatters = node->row->backward_post != NULL;
    const int32_t ranks = tape->args.tensor_parallel.ranks, rank = tape->args.tensor_parallel.rank;
    shoal_shape shape = x->shape;
    char got[128], expected[128];
    const shoal_shape bias = shoal_shape_1(shoali_last_dim(&shape));
    if (node->param[BIAS] != NULL)
        SHOAL_TRY(status, shoali_row_need_param(node, BIAS, x->dtype, &bias), done);
    if (scatters) {
        SHOAL_TRY(status, shoali_sequence_check(tape, shape.dim[1]), done);
        shape.dim[1] /= ranks;
    }
    const struct shoali_tape_tensor *residual = node->in[RESIDUAL];
    if (residual != NULL && (residual->tensor.dtype != x->dtype ||
                             !shoali_shape_equal(&residual->tensor.shape, &shape))) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "linear: the residual is %s %s; %s %s is needed",
                            shoal_dtype_name(residual->tensor.dtype),
                            shoali_shape_format(&residual->tensor.shape, got),
                            shoal_dtype_name(x->dtype), shoali_shape_format(&shape, expected));
        goto done;
    }
    SHOAL_TRY(status, shoali_node_output(tape, node, RESULT, x->dtype, &shape, -1), done);
    if (scatters)
        shoali_block_sliced(node, 1, rank * shape.dim[1], shape.dim[1]);
    else
        shoali_block_keep(node);
    node->out[RESULT]->tensor.sequence_part = scatters;
    if (is_active(node) && node->needs_backward)
        SHOAL_TRY(status, shoali_node_output(tape, node, PREACT, x->dtype, &shape, -1), done);
done:
    return status;
}

static shoal_status leave_post(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoal_tensor *x = &node->in[PARTIAL]->tensor, *y = &node->out[RESULT]->tensor;
    return shoali_tensor_post(tape, node, x->data, y->data, shoali_count(y), y->dtype,
                              SHOALI_TENSOR_SUM);
}

static shoal_status add_to(struct shoal_tape *tape, void *y, int64_t count, const void *b,
                           int64_t b_count, shoal_dtype dtype)
{
    const struct shoali_binary_args args = {.a = y,
                                            .b = b,
                                            .y = y,
                                            .count = count,
                                            .b_count = b_count,
                                            .kind = SHOALI_ADD,
                                            .dtype = dtype};
    return SHOALI_RUN(tape, binary, &args);
}

static shoal_status leave_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct leave_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *y = &node->out[RESULT]->tensor;
    const struct shoal_param *bias = node->param[BIAS];
    const int64_t count = shoali_count(y);
    if (bias != NULL)
        SHOAL_TRY(status, add_to(tape, y->data, count, bias->data, bias->count, y->dtype), done);
    if (node->out[PREACT] != NULL)
        SHOAL_TRY(
            status,
            shoali_grad_add(tape, y->data, node->out[PREACT]->tensor.data, count, y->dtype, false),
            done);
    const struct shoali_unary_args act = {.x = y->data,
                                          .y = y->data,
                                          .count = count,
                                          .kind = shoali_activation_kernel(attr->activation),
                                          .dtype = y->dtype};
    if (is_active(node))
        SHOAL_TRY(status, SHOALI_RUN(tape, unary, &act), done);
    if (node->in[RESIDUAL] != NULL)
        SHOAL_TRY(status,
                  add_to(tape, y->data, count, node->in[RESIDUAL]->tensor.data, count, y->dtype),
                  done);
done:
    return status;
}

/* As linear's: the residual's share, then the gradient before the activation, in place. */
static shoal_status leave_activation(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct leave_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *y = &node->out[RESULT]->tensor;
    void *dy = node->out[RESULT]->grad, *to;
    bool accumulate;
    if (!is_active(node))
        return shoali_grad_pass(tape, node, RESIDUAL);
    SHOAL_TRY(status, shoali_grad_begin(tape, node, RESIDUAL, true, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status, shoali_grad_add(tape, dy, to, shoali_count(y), y->dtype, accumulate),
                  done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, RESIDUAL), done);
    const struct shoali_unary_args args = {
        .x = node->out[PREACT]->tensor.data,
        .dy = dy,
        .y = dy,
        .count = shoali_count(y),
        .kind = shoali_activation_kernel(attr->activation),
        .backward = 1,
        .dtype = y->dtype,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, unary, &args), done);
done:
    return status;
}

static shoal_status leave_bias(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *y = &node->out[RESULT]->tensor;
    void *to;
    bool accumulate;
    if (node->param[BIAS] == NULL)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_param_grad_begin(tape, node, BIAS, &to, &accumulate), done);
    const struct shoali_reduce_args args = {
        .x = shoali_node_grad(tape, node, RESULT),
        .y = to,
        .outer = 1,
        .reduced = shoali_row_count(y),
        .inner = shoali_last_dim(&y->shape),
        .factor = 1,
        .accumulate = accumulate,
        .dtype = y->dtype,
        .dtype_out = shoali_wide(y->dtype),
    };
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, reduce, &args), done);
    SHOAL_TRY(status, shoali_param_grad_end(tape, node, BIAS), done);
done:
    return status;
}

static shoal_status leave_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    SHOAL_TRY(status, leave_activation(tape, node), done);
    SHOAL_TRY(status, shoali_grad_pass(tape, node, PARTIAL), done);
done:
    return status;
}

static const struct shoali_op_row leave_row = {
    SHOALI_ROW_HEAD,
    .name = "leave_row",
    .infer = leave_infer,
    .forward_post = leave_post,
    .forward_finish = leave_finish,
    .backward_input = leave_backward,
    .backward_weight = leave_bias,
    .cost = shoali_cost_elementwise,
    .saves_outputs = 1u << PREACT,
    .flags = SHOALI_ROW_COLLECTIVE | SHOALI_ROW_HELPER,
};

/* ---- leave with sequence parallelism: the own positions of the sum ---- */

static shoal_status scatter_post(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct shoal_tensor *y = &node->out[RESULT]->tensor;
    const struct shoali_sequence sequence = shoali_sequence_of(tape, y);
    const void *from = node->in[PARTIAL]->tensor.data;
    void *packed;
    if (sequence.outer > 1) {
        SHOAL_TRY(status,
                  shoali_node_scratch(tape, node, shoali_sequence_bytes(&sequence), &packed), done);
        SHOAL_TRY(status, shoali_sequence_pack(tape, &sequence, from, packed), done);
        from = packed;
    }
    SHOAL_TRY(status,
              shoali_tensor_post(tape, node, from, y->data, shoali_count(y), y->dtype,
                                 SHOALI_TENSOR_SCATTER),
              done);
done:
    return status;
}

static shoal_status scatter_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *y = &node->out[RESULT]->tensor;
    const struct shoali_sequence sequence = shoali_sequence_of(tape, y);
    void *to, *gathered;
    bool accumulate;
    SHOAL_TRY(status, leave_activation(tape, node), done);
    SHOAL_TRY(status, leave_bias(tape, node), done);
    SHOAL_TRY(status, shoali_grad_begin(tape, node, PARTIAL, false, &to, &accumulate), done);
    if (to == NULL)
        return SHOAL_OK;
    gathered = to;
    if (sequence.outer > 1)
        SHOAL_TRY(status,
                  shoali_node_scratch(tape, node, shoali_sequence_bytes(&sequence), &gathered),
                  done);
    SHOAL_TRY(status,
              shoali_tensor_post(tape, node, shoali_node_grad(tape, node, RESULT), gathered,
                                 shoali_count(y), y->dtype, SHOALI_TENSOR_GATHER),
              done);
done:
    return status;
}

static shoal_status scatter_backward_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_sequence sequence = shoali_sequence_of(tape, &node->out[RESULT]->tensor);
    if (node->scratch != SHOALI_NO_SEGMENT)
        SHOAL_TRY(status,
                  shoali_sequence_unpack(tape, &sequence,
                                         shoali_slot_address(tape->args.slot, node->scratch),
                                         node->in[PARTIAL]->grad),
                  done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, PARTIAL), done);
done:
    return status;
}

static const struct shoali_op_row scatter_row = {
    SHOALI_ROW_HEAD,
    .name = "leave_row_sequence",
    .infer = leave_infer,
    .forward_post = scatter_post,
    .forward_finish = leave_finish,
    .backward_post = scatter_backward,
    .backward_finish = scatter_backward_finish,
    .cost = shoali_cost_elementwise,
    .saves_outputs = 1u << PREACT,
    .flags = SHOALI_ROW_COLLECTIVE | SHOALI_ROW_HELPER | SHOALI_ROW_SEQUENCE,
};

shoal_tensor *shoali_tensor_leave(shoal_tape *tape, shoal_tensor *x,
                                  const struct shoali_leave_args *args)
{
    const struct leave_attr attr = {args->activation};
    if (tape->status < 0 || x == NULL)
        return NULL;
    if (refuse_exact(tape) < 0)
        return shoali_tape_poison(tape, SHOAL_EUNSUPPORTED);
    const bool scatters = shoali_tensor_scatters(tape, x);
    shoal_tensor *y = shoali_tape_record(
        tape, &(struct shoali_record_args){.row = scatters ? &scatter_row : &leave_row,
                                           .inputs = {[PARTIAL] = x, [RESIDUAL] = args->residual},
                                           .params = {[BIAS] = args->bias},
                                           .attr = &attr,
                                           .attr_bytes = sizeof attr});
    shoali_tensor_done(tape, x, NULL);
    return y;
}
