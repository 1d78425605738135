/* linear.c - y = act(x w + bias) + residual. */
#include "autograd/rows/exact_splits.h"

struct linear_attr {
    shoal_activation activation;
    int32_t weight_out_in;
    enum shoali_tensor_rule rule;
    int64_t rows, in, out; /* set by infer */
};

enum { X, RESIDUAL };
enum { WEIGHT, BIAS };
enum { RESULT, PREACT };

static shoal_status check_weight(const struct shoali_node *node, struct linear_attr *attr)
{
    const struct shoal_tensor *x = &node->in[X]->tensor;
    const struct shoal_param *weight = node->param[WEIGHT];
    char x_text[128], weight_text[128];
    const shoal_status status = shoali_exact_splits_check(weight);
    if (status < 0)
        return status;
    attr->in = shoali_last_dim(&x->shape);
    const bool matrix = weight != NULL && weight->shape.ndim == 2;
    const int64_t takes = matrix ? weight->shape.dim[attr->weight_out_in != 0 ? 1 : 0] : -1;
    if (x->shape.ndim == 0 || takes != attr->in || attr->in == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "linear: x %s and weight %s %s do not fit; the last dim of x must be the "
                          "weight's %s dim%s",
                          shoali_shape_format(&x->shape, x_text),
                          weight != NULL ? weight->name : "NULL",
                          weight != NULL ? shoali_shape_format(&weight->shape, weight_text) : "",
                          attr->weight_out_in != 0 ? "second" : "first",
                          attr->weight_out_in != 0 ? " (weight_out_in is set)" : "");
    attr->out = weight->shape.dim[attr->weight_out_in != 0 ? 0 : 1];
    attr->rows = shoali_row_count(x);
    return shoali_row_need_param(node, WEIGHT, x->dtype, &weight->shape);
}

/* Dims of the weight. */
static int32_t in_dim(const struct linear_attr *attr)
{
    return attr->weight_out_in != 0 ? 1 : 0;
}

static int32_t out_dim(const struct linear_attr *attr)
{
    return attr->weight_out_in != 0 ? 0 : 1;
}

/* The share of a rank in a sum over tp that is exact: it is rounded behind the sum. */
static bool is_wide_share(const struct shoal_tape *tape, const struct shoali_node *node)
{
    const struct linear_attr *attr = shoali_node_attr(node);
    return attr->rule == SHOALI_TENSOR_ROW &&
           shoali_exact_splits_of(tape, node->param[WEIGHT], in_dim(attr)) > 0;
}

static shoal_status linear_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct linear_attr *attr = shoali_node_attr(node);
    char got[128], expected[128];
    SHOAL_TRY(status, shoali_row_need_float(node, X), done);
    SHOAL_TRY(status, check_weight(node, attr), done);
    const struct shoal_tensor *x = &node->in[X]->tensor;
    const shoal_shape bias_shape = shoal_shape_1(attr->out);
    if (node->param[BIAS] != NULL)
        SHOAL_TRY(status, shoali_row_need_param(node, BIAS, x->dtype, &bias_shape), done);
    shoal_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = attr->out;
    const struct shoali_tape_tensor *residual = node->in[RESIDUAL];
    if (residual != NULL && (residual->tensor.dtype != x->dtype ||
                             !shoali_shape_equal(&residual->tensor.shape, &shape))) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "linear: the residual is %s %s; %s %s is needed",
                            shoal_dtype_name(residual->tensor.dtype),
                            shoali_shape_format(&residual->tensor.shape, got),
                            shoal_dtype_name(x->dtype), shoali_shape_format(&shape, expected));
        goto done;
    }
    SHOAL_TRY(status,
              shoali_node_output(tape, node, RESULT,
                                 is_wide_share(tape, node) ? shoali_wide(x->dtype) : x->dtype,
                                 &shape, -1),
              done);
    shoali_block_leading(node, shape.ndim - 1);
    if (attr->rule == SHOALI_TENSOR_COLUMN ||
        shoali_exact_splits_of(tape, node->param[WEIGHT], out_dim(attr)) > 0)
        shoali_tensor_set_columns(node, &node->param[WEIGHT]->columns);
    else
        node->out[RESULT]->tensor.columns = (struct shoali_columns){0};
    if (attr->activation != SHOAL_ACTIVATION_NONE && node->needs_backward)
        SHOAL_TRY(status, shoali_node_output(tape, node, PREACT, x->dtype, &shape, -1), done);
    if (!shoali_param_wants_grad(node->param[WEIGHT]))
        node->saves_inputs = 0;
done:
    return status;
}

static shoal_status linear_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct linear_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[X]->tensor;
    const struct shoal_param *bias = node->param[BIAS];
    shoal_status status;
    struct shoali_gemm_args args = {
        .a = x->data,
        .b = node->param[WEIGHT]->data,
        .c = node->out[RESULT]->tensor.data,
        .bias = bias != NULL ? bias->data : NULL,
        .residual = node->in[RESIDUAL] != NULL ? node->in[RESIDUAL]->tensor.data : NULL,
        .preact = node->out[PREACT] != NULL ? node->out[PREACT]->tensor.data : NULL,
        .m = attr->rows,
        .n = attr->out,
        .k = attr->in,
        .lda = attr->in,
        .ldb = attr->weight_out_in != 0 ? attr->in : attr->out,
        .ldc = attr->out,
        .trans_b = attr->weight_out_in != 0,
        .activation = shoali_activation_epilogue(attr->activation),
        .dtype_ab = x->dtype,
        .dtype_c = x->dtype,
        .dtype_bias = x->dtype,
    };
    const struct shoali_split_product product = {
        .gemm = args, .weight = &node->param[WEIGHT], .weights = 1, .dim = in_dim(attr)};
    if (is_wide_share(tape, node))
        return shoali_split_partial(tape, &product, args.c);
    if (shoali_exact_splits_of(tape, node->param[WEIGHT], in_dim(attr)) > 0)
        return shoali_split_gemm(tape, &product);
    SHOAL_TRY(status, shoali_packed_get(tape, node->param[WEIGHT], SHOALI_PACKED_FORWARD, &args),
              done);
    SHOAL_TRY(status, SHOALI_RUN(tape, gemm, &args), done);
done:
    return status;
}

/* The output's gradient becomes the gradient before the activation, in place, once for both parts
 * of backward. The residual's share is taken before that. */
static shoal_status backward_activation(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct linear_attr *attr = shoali_node_attr(node);
    void *dy = node->out[RESULT]->grad, *to;
    bool accumulate;
    const shoal_dtype dtype = node->out[RESULT]->tensor.dtype;
    const int64_t count = attr->rows * attr->out;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, RESIDUAL, true, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status, shoali_grad_add(tape, dy, to, count, dtype, accumulate), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, RESIDUAL), done);
    const struct shoali_unary_args args = {
        .x = node->out[PREACT]->tensor.data,
        .dy = dy,
        .y = dy,
        .count = count,
        .kind = shoali_activation_kernel(attr->activation),
        .backward = 1,
        .dtype = dtype,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, unary, &args), done);
done:
    return status;
}

static shoal_status linear_backward_input(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct linear_attr *attr = shoali_node_attr(node);
    void *to;
    bool accumulate;
    if (attr->activation != SHOAL_ACTIVATION_NONE)
        SHOAL_TRY(status, backward_activation(tape, node), done);
    const int32_t splits = shoali_exact_splits_of(tape, node->param[WEIGHT], out_dim(attr));
    SHOAL_TRY(status, shoali_grad_begin(tape, node, X, splits == 0, &to, &accumulate), done);
    struct shoali_gemm_args args = {
        .a = shoali_node_grad(tape, node, RESULT),
        .b = node->param[WEIGHT]->data,
        .c = to,
        .m = attr->rows,
        .n = attr->in,
        .k = attr->out,
        .lda = attr->out,
        .ldb = attr->weight_out_in != 0 ? attr->in : attr->out,
        .ldc = attr->in,
        .trans_b = attr->weight_out_in == 0,
        .accumulate = accumulate,
        .dtype_ab = node->in[X]->tensor.dtype,
        .dtype_c = node->in[X]->tensor.dtype,
    };
    const struct shoali_split_product product = {
        .gemm = args, .weight = &node->param[WEIGHT], .weights = 1, .dim = out_dim(attr)};
    if (to != NULL && splits > 0) {
        SHOAL_TRY(status, shoali_split_input_gradient(tape, node, X, &product), done);
    } else if (to != NULL) {
        SHOAL_TRY(status,
                  shoali_packed_get(tape, node->param[WEIGHT], SHOALI_PACKED_BACKWARD, &args),
                  done);
        SHOAL_TRY(status, SHOALI_RUN(tape, gemm, &args), done);
    }
    SHOAL_TRY(status, shoali_grad_end(tape, node, X), done);
    if (attr->activation == SHOAL_ACTIVATION_NONE)
        SHOAL_TRY(status, shoali_grad_pass(tape, node, RESIDUAL), done);
done:
    return status;
}

/* dW = x^T dy, or its transpose dy^T x for [out, in], of some rows. */
static struct shoali_gemm_args weight_gradient(struct shoal_tape *tape,
                                               const struct shoali_node *node, int32_t param,
                                               const struct shoali_range *rows)
{
    (void)param;
    const struct linear_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = node->in[X]->tensor.dtype;
    const void *x = shoali_at(node->in[X]->tensor.data, rows->first * attr->in, dtype);
    const void *dy =
        shoali_at(shoali_node_grad(tape, node, RESULT), rows->first * attr->out, dtype);
    const bool out_in = attr->weight_out_in != 0;
    return (struct shoali_gemm_args){
        .a = out_in ? dy : x,
        .b = out_in ? x : dy,
        .m = out_in ? attr->out : attr->in,
        .n = out_in ? attr->in : attr->out,
        .k = rows->count,
        .lda = out_in ? attr->out : attr->in,
        .ldb = out_in ? attr->in : attr->out,
        .ldc = out_in ? attr->in : attr->out,
        .trans_a = 1,
        .dtype_ab = dtype,
        .dtype_c = shoali_wide(dtype),
    };
}

static shoal_status bias_gradient(struct shoal_tape *tape, struct shoali_node *node, int32_t param,
                                  const struct shoali_range *rows, void *to, bool accumulate)
{
    (void)param;
    const struct linear_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = node->in[X]->tensor.dtype;
    const struct shoali_reduce_args args = {
        .x = shoali_at(shoali_node_grad(tape, node, RESULT), rows->first * attr->out, dtype),
        .y = to,
        .outer = 1,
        .reduced = rows->count,
        .inner = attr->out,
        .factor = 1,
        .accumulate = accumulate,
        .row_order = true,
        .dtype = dtype,
        .dtype_out = shoali_wide(dtype),
    };
    return SHOALI_RUN(tape, reduce, &args);
}

static shoal_status linear_backward_weight(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_contribute_product(tape, node, WEIGHT, weight_gradient), done);
    SHOAL_TRY(status, shoali_contribute(tape, node, BIAS, bias_gradient), done);
done:
    return status;
}

static void linear_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                        int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    const struct linear_attr *attr = shoali_node_attr(node);
    *flops_forward = 2 * attr->rows * attr->in * attr->out;
    *flops_backward = *flops_forward * ((node->in[X]->tensor.needs_grad ? 1 : 0) +
                                        (shoali_param_wants_grad(node->param[WEIGHT]) ? 1 : 0));
    *bytes = shoali_cost_bytes(node);
}

static const struct shoali_op_row linear_row = {
    SHOALI_ROW_HEAD,
    .name = "linear",
    .infer = linear_infer,
    .forward = linear_forward,
    .backward_input = linear_backward_input,
    .backward_weight = linear_backward_weight,
    .cost = linear_cost,
    .saves_inputs = 1u << X,
    .saves_outputs = 1u << PREACT,
    .flags = SHOALI_ROW_SEQUENCE,
};

/* The part of a row weight: its columns of x, and a share of each output. */
static const struct shoali_op_row linear_of_columns_row = {
    SHOALI_ROW_HEAD,
    .name = "linear",
    .infer = linear_infer,
    .forward = linear_forward,
    .backward_input = linear_backward_input,
    .backward_weight = linear_backward_weight,
    .cost = linear_cost,
    .saves_inputs = 1u << X,
    .saves_outputs = 1u << PREACT,
    .flags = SHOALI_ROW_COLUMNS,
};

static shoal_tensor *record_linear(shoal_tape *tape, shoal_tensor *x, shoal_param *weight,
                                   const shoal_linear_args *args, enum shoali_tensor_rule rule)
{
    const struct linear_attr attr = {
        .activation = args->activation, .weight_out_in = args->weight_out_in, .rule = rule};
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = rule == SHOALI_TENSOR_ROW ? &linear_of_columns_row : &linear_row,
                  .inputs = {[X] = x, [RESIDUAL] = args->residual},
                  .params = {[WEIGHT] = weight, [BIAS] = args->bias},
                  .attr = &attr,
                  .attr_bytes = sizeof attr,
              });
}

static shoal_tensor *record_column(shoal_tape *tape, shoal_tensor *x, shoal_param *weight,
                                   const shoal_linear_args *args)
{
    shoal_tensor *whole = x;
    if (x != NULL && x->columns.parts > 0)
        whole = shoali_tensor_gather_columns(tape, x);
    shoal_tensor *entered = shoali_tensor_enter(tape, whole);
    shoal_tensor *y = record_linear(tape, entered, weight, args, SHOALI_TENSOR_COLUMN);
    shoali_tensor_done(tape, entered, x);
    return y;
}

/* Bias, activation and residual come behind the sum. */
static shoal_tensor *record_row(shoal_tape *tape, shoal_tensor *x, shoal_param *weight,
                                const shoal_linear_args *args)
{
    shoal_tensor *mine = x;
    const shoal_linear_args product = {.weight_out_in = args->weight_out_in};
    if (x != NULL && x->columns.parts == 0)
        mine = shoali_tensor_take_columns(tape, x, &weight->columns);
    if (mine != NULL && !shoali_columns_equal(&mine->columns, &weight->columns))
        return shoali_tape_poison(
            tape,
            SHOAL_FAIL(
                SHOAL_EINVAL,
                "linear: tp divides the last dim of x and the inputs of weight %s differently; "
                "give this weight and the one that made x the same parts and units",
                weight->name));
    const bool wide = shoali_exact_splits_of(tape, weight, args->weight_out_in ? 1 : 0) > 0;
    shoal_tensor *partial = record_linear(tape, mine, weight, &product, SHOALI_TENSOR_ROW);
    shoali_tensor_done(tape, mine, x);
    return shoali_tensor_leave(tape, partial,
                               &(struct shoali_leave_args){.bias = args->bias,
                                                           .residual = args->residual,
                                                           .activation = args->activation,
                                                           .wide = wide});
}

shoal_tensor *shoal_linear(shoal_tape *tape, shoal_tensor *x, shoal_param *weight,
                           const shoal_linear_args *args)
{
    const shoal_linear_args own = args ? *args : (shoal_linear_args){0};
    const enum shoali_tensor_rule rule =
        shoali_tensor_rule(tape, weight, own.weight_out_in ? 0 : 1);
    if (rule != SHOALI_TENSOR_WHOLE && shoali_tensor_check_shares(tape, weight) < 0)
        return shoali_tape_poison(tape, SHOAL_EINVAL);
    if (rule == SHOALI_TENSOR_ROW)
        return record_row(tape, x, weight, &own);
    if (rule == SHOALI_TENSOR_COLUMN)
        return record_column(tape, x, weight, &own);
    /* what is added to a part of the sequence is that part */
    shoal_tensor *part = own.residual != NULL && own.residual->sequence_part
                             ? shoali_tensor_take_sequence(tape, x)
                             : x;
    shoal_tensor *y = record_linear(tape, part, weight, &own, rule);
    shoali_tensor_done(tape, part, x);
    return y;
}
