/* linears.c - the products of one input with several weights, side by side in one tensor.
 *
 * Files keep q_proj, k_proj and v_proj apart, and gate_proj and up_proj, while attention and gated
 * units read one packed tensor. Each product writes its columns of it, and backward reads them
 * there: nothing is copied. The input's gradient is the sum of those of the products in the order
 * of the weights, each rounded to the type of the activations as it is added.
 */
#include "autograd/rows/exact_splits.h"

struct linears_attr {
    int32_t count, weight_out_in;
    bool cut;                                          /* the weights are columns */
    int64_t rows, in, total, first[SHOAL_LINEARS + 1]; /* set by infer */
};

enum { BIASES = SHOAL_LINEARS }; /* parameters: weights, then biases */

static shoal_status check_weight(const struct shoali_node *node, const struct linears_attr *attr,
                                 int32_t index, int64_t *out)
{
    shoal_status status;
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct shoal_param *weight = node->param[index], *bias = node->param[BIASES + index];
    char x_text[128], weight_text[128];
    const int32_t in_dim = attr->weight_out_in != 0 ? 1 : 0;
    SHOAL_TRY(status, shoali_exact_splits_check(weight), done);
    if (weight == NULL || weight->shape.ndim != 2 || attr->in == 0 ||
        weight->shape.dim[in_dim] != attr->in)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "linears: x %s and weight %s %s do not fit; the last dim of x must be "
                          "the weight's %s dim",
                          shoali_shape_format(&x->shape, x_text),
                          weight != NULL ? weight->name : "NULL",
                          weight != NULL ? shoali_shape_format(&weight->shape, weight_text) : "",
                          in_dim == 1 ? "second" : "first");
    *out = weight->shape.dim[1 - in_dim];
    const shoal_shape bias_shape = shoal_shape_1(*out);
    SHOAL_TRY(status, shoali_row_need_param(node, index, x->dtype, &weight->shape), done);
    if (bias != NULL)
        SHOAL_TRY(status, shoali_row_need_param(node, BIASES + index, x->dtype, &bias_shape), done);
done:
    return status;
}

/* The output's parts are the weights'. */
static shoal_status join_columns(struct shoali_node *node, const struct linears_attr *attr)
{
    struct shoali_columns all = {0};
    for (int32_t i = 0; i < attr->count; i++) {
        const struct shoali_columns *one = &node->param[i]->columns;
        for (int32_t p = 0; p < one->parts; p++, all.parts++) {
            if (all.parts == SHOALI_COLUMNS_PARTS)
                return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                                  "linears: tp divides the weights into more than %d parts "
                                  "together; declare one weight for each part",
                                  SHOALI_COLUMNS_PARTS);
            all.whole[all.parts] = one->whole[p];
            all.first[all.parts] = one->first[p];
            all.count[all.parts] = one->count[p];
            all.unit[all.parts] = one->unit[p];
            all.fine[all.parts] = one->fine[p];
        }
        all.sharers = one->sharers > all.sharers ? one->sharers : all.sharers;
        all.splits = one->splits;
    }
    shoali_tensor_set_columns(node, &all);
    return SHOAL_OK;
}

/* This rank's splits of the input gradient's sum; 0: it is not in splits. */
static int32_t splits_of(const struct shoal_tape *tape, const struct shoali_node *node,
                         const struct linears_attr *attr)
{
    const int32_t out_dim = attr->weight_out_in != 0 ? 0 : 1;
    for (int32_t i = 0; i < attr->count; i++)
        if (shoali_exact_splits_of(tape, node->param[i], out_dim) == 0)
            return 0;
    return shoali_exact_splits_of(tape, node->param[0], out_dim);
}

static shoal_status linears_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct linears_attr *attr = shoali_node_attr(node);
    SHOAL_TRY(status, shoali_row_need_float(node, 0), done);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    bool wanted = false;
    if (attr->count < 1 || attr->count > SHOAL_LINEARS || x->shape.ndim == 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "linears: %d weights, and x has %d dims; give 1 to %d weights, and x "
                            "with at least one dim",
                            (int)attr->count, (int)x->shape.ndim, SHOAL_LINEARS);
        goto done;
    }
    attr->in = shoali_last_dim(&x->shape);
    attr->rows = shoali_row_count(x);
    for (int32_t i = 0; i < attr->count; i++) {
        int64_t out = 0;
        SHOAL_TRY(status, check_weight(node, attr, i, &out), done);
        attr->first[i + 1] = attr->first[i] + out;
        wanted = wanted || shoali_param_wants_grad(node->param[i]);
    }
    attr->total = attr->first[attr->count];
    shoal_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = attr->total;
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, x->dtype, &shape, -1), done);
    shoali_block_leading(node, shape.ndim - 1);
    node->out[0]->tensor.columns = (struct shoali_columns){0};
    if (attr->cut || splits_of(tape, node, attr) > 0)
        SHOAL_TRY(status, join_columns(node, attr), done);
    if (!wanted)
        node->saves_inputs = 0;
done:
    return status;
}

static int64_t out_of(const struct linears_attr *attr, int32_t index)
{
    return attr->first[index + 1] - attr->first[index];
}

static int64_t weight_stride(const struct linears_attr *attr, int32_t index)
{
    return attr->weight_out_in != 0 ? attr->in : out_of(attr, index);
}

static shoal_status linears_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct linears_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor, *y = &node->out[0]->tensor;
    for (int32_t i = 0; i < attr->count; i++) {
        const struct shoal_param *bias = node->param[BIASES + i];
        struct shoali_gemm_args args = {
            .a = x->data,
            .b = node->param[i]->data,
            .c = shoali_at(y->data, attr->first[i], y->dtype),
            .bias = bias != NULL ? bias->data : NULL,
            .m = attr->rows,
            .n = out_of(attr, i),
            .k = attr->in,
            .lda = attr->in,
            .ldb = weight_stride(attr, i),
            .ldc = attr->total,
            .trans_b = attr->weight_out_in != 0,
            .dtype_ab = x->dtype,
            .dtype_c = x->dtype,
            .dtype_bias = x->dtype,
        };
        SHOAL_TRY(status, shoali_packed_get(tape, node->param[i], SHOALI_PACKED_FORWARD, &args),
                  done);
        SHOAL_TRY(status, SHOALI_RUN(tape, gemm, &args), done);
    }
done:
    return status;
}

static shoal_status split_backward_input(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct linears_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = node->in[0]->tensor.dtype;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    const struct shoali_split_product product = {
        .gemm = {.a = shoali_node_grad(tape, node, 0),
                 .c = to,
                 .m = attr->rows,
                 .n = attr->in,
                 .lda = attr->total,
                 .ldb = attr->in > attr->total ? attr->in : attr->total,
                 .ldc = attr->in,
                 .trans_b = attr->weight_out_in == 0,
                 .dtype_ab = dtype,
                 .dtype_c = dtype},
        .weight = node->param,
        .weights = attr->count,
        .dim = attr->weight_out_in != 0 ? 0 : 1};
    if (to != NULL)
        SHOAL_TRY(status, shoali_split_input_gradient(tape, node, 0, &product), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static shoal_status linears_backward_input(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct linears_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = node->in[0]->tensor.dtype;
    const void *dy = shoali_node_grad(tape, node, 0);
    void *to;
    bool accumulate;
    if (splits_of(tape, node, attr) > 0)
        return split_backward_input(tape, node);
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    for (int32_t i = 0; to != NULL && i < attr->count; i++) {
        struct shoali_gemm_args args = {
            .a = shoali_at(dy, attr->first[i], dtype),
            .b = node->param[i]->data,
            .c = to,
            .m = attr->rows,
            .n = attr->in,
            .k = out_of(attr, i),
            .lda = attr->total,
            .ldb = weight_stride(attr, i),
            .ldc = attr->in,
            .trans_b = attr->weight_out_in == 0,
            .accumulate = accumulate || i > 0,
            .dtype_ab = dtype,
            .dtype_c = dtype,
        };
        SHOAL_TRY(status, shoali_packed_get(tape, node->param[i], SHOALI_PACKED_BACKWARD, &args),
                  done);
        SHOAL_TRY(status, SHOALI_RUN(tape, gemm, &args), done);
    }
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static struct shoali_gemm_args weight_gradient(struct shoal_tape *tape,
                                               const struct shoali_node *node, int32_t index,
                                               const struct shoali_range *rows)
{
    const struct linears_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = node->in[0]->tensor.dtype;
    const bool out_in = attr->weight_out_in != 0;
    const void *x = shoali_at(node->in[0]->tensor.data, rows->first * attr->in, dtype);
    const void *dy = shoali_at(shoali_node_grad(tape, node, 0),
                               rows->first * attr->total + attr->first[index], dtype);
    const int64_t out = out_of(attr, index);
    return (struct shoali_gemm_args){
        .a = out_in ? dy : x,
        .b = out_in ? x : dy,
        .m = out_in ? out : attr->in,
        .n = out_in ? attr->in : out,
        .k = rows->count,
        .lda = out_in ? attr->total : attr->in,
        .ldb = out_in ? attr->in : attr->total,
        .ldc = out_in ? attr->in : out,
        .trans_a = 1,
        .dtype_ab = dtype,
        .dtype_c = shoali_wide(dtype),
    };
}

static bool wants_bias(const struct shoali_node *node)
{
    bool wanted = false;
    for (int32_t i = 0; i < SHOAL_LINEARS; i++)
        wanted = wanted || shoali_param_wants_grad(node->param[BIASES + i]);
    return wanted;
}

/* Column sums of a block of the whole gradient, of which each bias takes its part. */
static shoal_status block_sums(struct shoal_tape *tape, struct shoali_node *node,
                               const struct shoali_blocks *blocks, int64_t block, void *sums)
{
    shoal_status status = SHOAL_OK;
    const struct linears_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = node->in[0]->tensor.dtype;
    const void *dy = shoali_node_grad(tape, node, 0);
    for (int64_t s = 0; s < blocks->samples; s++) {
        const struct shoali_reduce_args reduce = {
            .x = shoali_at(dy, shoali_blocks_row(blocks, block, s) * attr->total, dtype),
            .y = sums,
            .outer = 1,
            .reduced = blocks->rows,
            .inner = attr->total,
            .factor = 1,
            .accumulate = s > 0,
            .row_order = true,
            .dtype = dtype,
            .dtype_out = shoali_wide(dtype),
        };
        SHOAL_TRY(status, SHOALI_RUN(tape, reduce, &reduce), done);
    }
done:
    return status;
}

static shoal_status take_bias(struct shoal_tape *tape, const struct shoali_node *node,
                              int32_t index, const void *sums, void *to, bool accumulate)
{
    const struct linears_attr *attr = shoali_node_attr(node);
    const shoal_dtype wide = shoali_wide(node->in[0]->tensor.dtype);
    const struct shoali_axpy_args args = {
        .x = shoali_at(sums, attr->first[index], wide),
        .y = to,
        .count = out_of(attr, index),
        .a = 1,
        .accumulate = accumulate,
        .dtype = wide,
    };
    return to != NULL ? SHOALI_RUN(tape, axpy, &args) : SHOAL_OK;
}

/* Weights are columns, or none is, and biases are as their weights. */
static shoal_status bias_gradients(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct linears_attr *attr = shoali_node_attr(node);
    const shoal_dtype wide = shoali_wide(node->in[0]->tensor.dtype);
    const struct shoali_blocks blocks =
        shoali_blocks_of(tape, node->param[0], &node->out[0]->tensor);
    void *sums = NULL, *to[SHOAL_LINEARS];
    bool accumulate[SHOAL_LINEARS];
    SHOAL_TRY(status,
              shoali_tape_workspace(tape, (size_t)attr->total * shoal_dtype_bytes(wide), &sums),
              done);
    for (int32_t i = 0; i < attr->count; i++)
        SHOAL_TRY(status, shoali_param_grad_begin(tape, node, BIASES + i, &to[i], &accumulate[i]),
                  done);
    for (int64_t b = 0; b < blocks.blocks; b++) {
        SHOAL_TRY(status, block_sums(tape, node, &blocks, b, sums), done);
        for (int32_t i = 0; i < attr->count; i++) {
            SHOAL_TRY(status, take_bias(tape, node, i, sums, to[i], accumulate[i]), done);
            if (b + 1 < blocks.blocks)
                SHOAL_TRY(status, shoali_param_grad_next(tape, node, BIASES + i), done);
        }
    }
    for (int32_t i = 0; i < attr->count; i++)
        SHOAL_TRY(status, shoali_param_grad_end(tape, node, BIASES + i), done);
done:
    shoali_tape_workspace_free(tape, sums);
    return status;
}

static shoal_status linears_backward_weight(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct linears_attr *attr = shoali_node_attr(node);
    for (int32_t i = 0; i < attr->count; i++)
        SHOAL_TRY(status, shoali_contribute_product(tape, node, i, weight_gradient), done);
    if (wants_bias(node))
        SHOAL_TRY(status, bias_gradients(tape, node), done);
done:
    return status;
}

static void linears_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                         int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    const struct linears_attr *attr = shoali_node_attr(node);
    *flops_forward = 2 * attr->rows * attr->in * attr->total;
    *flops_backward = node->in[0]->tensor.needs_grad ? *flops_forward : 0;
    for (int32_t i = 0; i < attr->count; i++)
        if (shoali_param_wants_grad(node->param[i]))
            *flops_backward += 2 * attr->rows * attr->in * out_of(attr, i);
    *bytes = shoali_cost_bytes(node);
}

static const struct shoali_op_row linears_row = {
    SHOALI_ROW_HEAD,
    .name = "linears",
    .infer = linears_infer,
    .forward = linears_forward,
    .backward_input = linears_backward_input,
    .backward_weight = linears_backward_weight,
    .cost = linears_cost,
    .saves_inputs = 1u,
    .flags = SHOALI_ROW_SEQUENCE,
};

/* All weights are columns along tp, or none is. */
static shoal_status find_rule(const struct shoal_tape *tape,
                              const struct shoali_record_args *record, struct linears_attr *attr)
{
    const int32_t out_dim = attr->weight_out_in != 0 ? 0 : 1;
    for (int32_t i = 0; i < attr->count; i++) {
        const bool column =
            shoali_tensor_rule(tape, record->params[i], out_dim) == SHOALI_TENSOR_COLUMN;
        if (shoali_tensor_rule(tape, record->params[i], out_dim) == SHOALI_TENSOR_ROW ||
            (i > 0 && column != attr->cut))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "linears: tp divides %s and %s in different ways; split the outputs "
                              "of all of them, or of none",
                              record->params[0]->name, record->params[i]->name);
        attr->cut = column;
        if (column && shoali_tensor_check_shares(tape, record->params[i]) < 0)
            return SHOAL_EINVAL;
    }
    return SHOAL_OK;
}

shoal_tensor *shoal_linears(shoal_tape *tape, shoal_tensor *x, const shoal_linears_args *args)
{
    const shoal_linears_args own = args ? *args : (shoal_linears_args){0};
    struct linears_attr attr = {.weight_out_in = own.weight_out_in};
    struct shoali_record_args record = {
        .row = &linears_row, .inputs = {x}, .attr = &attr, .attr_bytes = sizeof attr};
    while (attr.count < SHOAL_LINEARS && own.weight[attr.count] != NULL)
        attr.count++;
    for (int32_t i = 0; i < attr.count; i++) {
        record.params[i] = own.weight[i];
        record.params[BIASES + i] = own.bias[i];
    }
    if (find_rule(tape, &record, &attr) < 0)
        return shoali_tape_poison(tape, SHOAL_EINVAL);
    if (attr.cut && x != NULL && x->columns.parts > 0)
        record.inputs[0] = shoali_tensor_gather_columns(tape, x);
    if (attr.cut)
        record.inputs[0] = shoali_tensor_enter(tape, record.inputs[0]);
    shoal_tensor *y = shoali_tape_record(tape, &record);
    if (attr.cut)
        shoali_tensor_done(tape, record.inputs[0], x);
    return y;
}
