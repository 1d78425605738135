/* tensor.c - what stands before a column weight and behind a row weight, and before any row whose
 * inputs are divided. */
#include "autograd/rows/exact_splits.h"
#include "autograd/rows/sequence.h"

enum shoali_tensor_rule shoali_tensor_rule(const struct shoal_tape *tape,
                                           const struct shoal_param *weight, int32_t out_dim)
{
    if (!shoali_is_tensor_parallel(tape) || weight == NULL || weight->shape.ndim != 2 ||
        (weight->cut_by & (SHOAL_AXIS_TP | SHOAL_AXIS_EXPERT)) != SHOAL_AXIS_TP)
        return SHOALI_TENSOR_WHOLE;
    return weight->tensor_dim == out_dim ? SHOALI_TENSOR_COLUMN : SHOALI_TENSOR_ROW;
}

void shoali_tensor_done(shoal_tape *tape, shoal_tensor *x, const shoal_tensor *kept)
{
    if (tape->status >= 0 && x != NULL && x != kept)
        shoali_tensor_close(tape, shoali_tape_tensor_of(x));
}

shoal_status shoali_tensor_make_whole(struct shoal_tape *tape, struct shoali_record_args *record)
{
    const unsigned flags = record->row->flags;
    if (!shoali_is_tensor_parallel(tape))
        return SHOAL_OK;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS && tape->status >= 0; i++) {
        if (record->inputs[i] && record->inputs[i]->columns.parts > 0 &&
            !(flags & SHOALI_ROW_COLUMNS))
            record->inputs[i] = shoali_tensor_gather_columns(tape, record->inputs[i]);
        if (record->inputs[i] && record->inputs[i]->sequence_part && !(flags & SHOALI_ROW_SEQUENCE))
            record->inputs[i] = shoali_tensor_gather_sequence(tape, record->inputs[i]);
    }
    return tape->status;
}

/* ---- enter: x as it is ---- */

static shoal_status enter_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    return shoali_row_output_like_first(tape, node);
}

/* With exact sums a product gives its share in the wide type, and what it becomes is rounded behind
 * the sum: then `to` is another type than what is sent. */
static bool rounds_behind(const struct shoali_node *node)
{
    const struct shoal_tensor *x = &node->in[0]->tensor;
    return node->out[0]->wide_grad && shoali_wide(x->dtype) != x->dtype;
}

static shoal_dtype sent_as(const struct shoali_node *node)
{
    const shoal_dtype dtype = node->in[0]->tensor.dtype;
    return node->out[0]->wide_grad ? shoali_wide(dtype) : dtype;
}

/* Rounds a sum that has come into input 0's gradient. */
static shoal_status round_gradient(struct shoal_tape *tape, const struct shoali_node *node,
                                   const void *sum)
{
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct shoali_split_end end = {.sum = sum,
                                         .c = tape->grad_temp[0] != NULL ? tape->grad_temp[0]
                                                                         : node->in[0]->grad,
                                         .rows = shoali_row_count(x),
                                         .columns = shoali_last_dim(&x->shape),
                                         .dtype = x->dtype};
    return shoali_split_finish(tape, &end);
}

static shoal_status enter_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    if (rounds_behind(node) && node->in[0]->tensor.needs_grad)
        SHOAL_TRY(status, round_gradient(tape, node, shoali_node_grad(tape, node, 0)), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
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
                  shoali_tensor_post(tape, node, shoali_node_grad(tape, node, 0),
                                     rounds_behind(node) ? node->out[0]->grad : to, shoali_count(x),
                                     sent_as(node), SHOALI_TENSOR_SUM),
                  done);
done:
    return status;
}

static const struct shoali_op_row enter_row = {
    SHOALI_ROW_HEAD,
    .name = "enter_column",
    .infer = enter_infer,
    .backward_post = enter_backward,
    .backward_finish = enter_finish,
    .cost = shoali_cost_move,
    .flags = SHOALI_ROW_VIEW | SHOALI_ROW_HELPER | SHOALI_ROW_HURRIED,
};

/* ---- enter with sequence parallelism: the whole sequence ---- */

/* The scratch: the message in the order of ranks, where samples make one necessary, and what comes,
 * where it is rounded behind the sum. */
static shoal_status enter_sequence_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct shoali_sequence sequence = shoali_sequence_of(tape, &node->in[0]->tensor);
    const int64_t count = shoali_count(&node->in[0]->tensor);
    const void *from = shoali_node_grad(tape, node, 0);
    void *to, *packed = NULL;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    if (to == NULL)
        return SHOAL_OK;
    shoali_sequence_as(&sequence, sent_as(node));
    const bool packs = sequence.outer > 1, rounds = rounds_behind(node);
    const size_t bytes =
        (packs ? shoali_sequence_bytes(&sequence) : 0) + (rounds ? sequence.bytes : 0);
    if (bytes > 0)
        SHOAL_TRY(status, shoali_node_scratch(tape, node, bytes, &packed), done);
    if (rounds) {
        to = packed;
        packed = shoali_at(packed, (int64_t)sequence.bytes, SHOAL_U8);
    }
    if (packs) {
        SHOAL_TRY(status, shoali_sequence_pack(tape, &sequence, from, packed), done);
        from = packed;
    }
    SHOAL_TRY(
        status,
        shoali_tensor_post(tape, node, from, to, count, sequence.dtype, SHOALI_TENSOR_SCATTER),
        done);
done:
    return status;
}

static shoal_status enter_sequence_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    if (rounds_behind(node) && node->in[0]->tensor.needs_grad)
        SHOAL_TRY(status,
                  round_gradient(tape, node, shoali_slot_address(tape->args.slot, node->scratch)),
                  done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
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
    .backward_finish = enter_sequence_finish,
    .cost = shoali_cost_move,
    .flags = SHOALI_ROW_COLLECTIVE | SHOALI_ROW_HELPER | SHOALI_ROW_HURRIED | SHOALI_ROW_SEQUENCE,
};

/* Sums over tp are exact only as a tree of declared splits. */
static shoal_status check_exact(const struct shoal_tape *tape)
{
    const struct shoali_tensor_parallel *tp = &tape->args.tensor_parallel;
    if (!tp->exact || (tp->splits > 0 && tp->splits % tp->ranks == 0))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "exact_splits.tensor is %d, but there are %d ranks along tp: with "
                      "\"reduction\": \"exact\" the number of ranks must divide it",
                      (int)tp->splits, (int)tp->ranks);
}

shoal_tensor *shoali_tensor_enter(shoal_tape *tape, shoal_tensor *x)
{
    if (tape->status < 0 || x == NULL)
        return NULL;
    if (check_exact(tape) < 0)
        return shoali_tape_poison(tape, SHOAL_EINVAL);
    const struct shoali_op_row *row = x->sequence_part ? &enter_sequence_row : &enter_row;
    if (!x->sequence_part && !x->needs_grad)
        return x;
    shoal_tensor *entered =
        shoali_tape_record(tape, &(struct shoali_record_args){.row = row, .inputs = {x}});
    if (entered != NULL)
        shoali_tape_tensor_of(entered)->wide_grad = tape->args.tensor_parallel.exact;
    return entered;
}

/* ---- leave: the sum, and what comes behind it ---- */

struct leave_attr {
    shoal_activation activation;
    bool wide; /* shares of an exact sum, in the wide type */
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
    const struct leave_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = attr->wide ? tape->args.dtype : x->dtype;
    if (node->param[BIAS] != NULL)
        SHOAL_TRY(status, shoali_row_need_param(node, BIAS, dtype, &bias), done);
    if (scatters) {
        SHOAL_TRY(status, shoali_sequence_check(tape, shape.dim[1]), done);
        shape.dim[1] /= ranks;
    }
    const struct shoali_tape_tensor *residual = node->in[RESIDUAL];
    if (residual != NULL &&
        (residual->tensor.dtype != dtype || !shoali_shape_equal(&residual->tensor.shape, &shape))) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "linear: the residual is %s %s; %s %s is needed",
                            shoal_dtype_name(residual->tensor.dtype),
                            shoali_shape_format(&residual->tensor.shape, got),
                            shoal_dtype_name(dtype), shoali_shape_format(&shape, expected));
        goto done;
    }
    SHOAL_TRY(status, shoali_node_output(tape, node, RESULT, dtype, &shape, -1), done);
    if (scatters)
        shoali_block_sliced(node, 1, rank * shape.dim[1], shape.dim[1]);
    else
        shoali_block_keep(node);
    node->out[RESULT]->tensor.sequence_part = scatters;
    if (is_active(node) && node->needs_backward)
        SHOAL_TRY(status, shoali_node_output(tape, node, PREACT, dtype, &shape, -1), done);
done:
    return status;
}

static shoal_status leave_post(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct leave_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[PARTIAL]->tensor, *y = &node->out[RESULT]->tensor;
    return shoali_tensor_post(tape, node, x->data, attr->wide ? x->data : y->data, shoali_count(y),
                              x->dtype, SHOALI_TENSOR_SUM);
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

/* The end of the product, as if this rank had made the whole sum. */
static shoal_status finish_wide(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct leave_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *y = &node->out[RESULT]->tensor;
    const struct shoal_param *bias = node->param[BIAS];
    const struct shoali_split_end end = {
        .sum = node->scratch != SHOALI_NO_SEGMENT
                   ? shoali_slot_address(tape->args.slot, node->scratch)
                   : node->in[PARTIAL]->tensor.data,
        .c = y->data,
        .bias = bias != NULL ? bias->data : NULL,
        .residual = node->in[RESIDUAL] != NULL ? node->in[RESIDUAL]->tensor.data : NULL,
        .preact = node->out[PREACT] != NULL ? node->out[PREACT]->tensor.data : NULL,
        .activation = shoali_activation_epilogue(attr->activation),
        .rows = shoali_row_count(y),
        .columns = shoali_last_dim(&y->shape),
        .dtype = y->dtype};
    return shoali_split_finish(tape, &end);
}

static shoal_status leave_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct leave_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *y = &node->out[RESULT]->tensor;
    const struct shoal_param *bias = node->param[BIAS];
    const int64_t count = shoali_count(y);
    if (attr->wide)
        return finish_wide(tape, node);
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

static shoal_status bias_rows(struct shoal_tape *tape, struct shoali_node *node, int32_t param,
                              const struct shoali_range *rows, void *to, bool accumulate)
{
    (void)param;
    const struct shoal_tensor *y = &node->out[RESULT]->tensor;
    const int64_t columns = shoali_last_dim(&y->shape);
    const struct shoali_reduce_args args = {
        .x = shoali_at(shoali_node_grad(tape, node, RESULT), rows->first * columns, y->dtype),
        .y = to,
        .outer = 1,
        .reduced = rows->count,
        .inner = columns,
        .factor = 1,
        .accumulate = accumulate,
        .row_order = true,
        .dtype = y->dtype,
        .dtype_out = shoali_wide(y->dtype),
    };
    return SHOALI_RUN(tape, reduce, &args);
}

static shoal_status leave_bias(struct shoal_tape *tape, struct shoali_node *node)
{
    return node->param[BIAS] != NULL ? shoali_contribute(tape, node, BIAS, bias_rows) : SHOAL_OK;
}

/* The shares' gradient has the type of activations, whatever theirs is. */
static shoal_status leave_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *y = &node->out[RESULT]->tensor;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, leave_activation(tape, node), done);
    if (node->in[PARTIAL]->tensor.dtype == y->dtype) {
        SHOAL_TRY(status, shoali_grad_pass(tape, node, PARTIAL), done);
        goto done;
    }
    SHOAL_TRY(status, shoali_grad_begin(tape, node, PARTIAL, false, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status,
                  shoali_grad_add(tape, shoali_node_grad(tape, node, RESULT), to, shoali_count(y),
                                  y->dtype, false),
                  done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, PARTIAL), done);
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

/* The scratch: of wide shares the own part of the sum, which is rounded behind it; then the message
 * in the order of ranks, where samples make one necessary. */
static shoal_status scatter_post(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct leave_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *y = &node->out[RESULT]->tensor;
    struct shoali_sequence sequence = shoali_sequence_of(tape, y);
    const void *from = node->in[PARTIAL]->tensor.data;
    void *packed = NULL, *to = y->data;
    shoali_sequence_as(&sequence, node->in[PARTIAL]->tensor.dtype);
    const bool packs = sequence.outer > 1;
    const size_t bytes =
        (packs ? shoali_sequence_bytes(&sequence) : 0) + (attr->wide ? sequence.bytes : 0);
    if (bytes > 0)
        SHOAL_TRY(status, shoali_node_scratch(tape, node, bytes, &packed), done);
    if (attr->wide) {
        to = packed;
        packed = shoali_at(packed, (int64_t)sequence.bytes, SHOAL_U8);
    }
    if (packs) {
        SHOAL_TRY(status, shoali_sequence_pack(tape, &sequence, from, packed), done);
        from = packed;
    }
    SHOAL_TRY(status,
              shoali_tensor_post(tape, node, from, to, shoali_count(y), sequence.dtype,
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
    const struct leave_attr attr = {args->activation, args->wide};
    if (tape->status < 0 || x == NULL)
        return NULL;
    if (check_exact(tape) < 0)
        return shoali_tape_poison(tape, SHOAL_EINVAL);
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
