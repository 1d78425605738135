/* reduce.c - sum and mean over one dim or all. A scalar over all dims is fp32 for 16-bit
 * tensors, as losses are. */
#include "autograd/rows/rows.h"

struct reduce_attr {
    int32_t dim;
    bool mean;
    int64_t outer, reduced, inner; /* set by infer */
    double factor;
};

static shoal_status reduce_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct reduce_attr *attr = shoali_node_attr(node);
    SHOAL_TRY(status, shoali_row_need_float(node, 0), done);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    shoal_shape shape = {0};
    attr->outer = 1;
    attr->inner = 1;
    attr->reduced = shoali_count(x);
    if (attr->dim != SHOAL_ALL_DIMS) {
        SHOAL_TRY(status, shoali_row_dim(node, x->shape.ndim, &attr->dim), done);
        attr->reduced = x->shape.dim[attr->dim];
        for (int32_t d = 0; d < x->shape.ndim; d++) {
            attr->outer *= d < attr->dim ? x->shape.dim[d] : 1;
            attr->inner *= d > attr->dim ? x->shape.dim[d] : 1;
            if (d != attr->dim)
                shape.dim[shape.ndim++] = x->shape.dim[d];
        }
    }
    attr->factor = attr->mean && attr->reduced > 0 ? 1.0 / (double)attr->reduced : 1.0;
    const shoal_dtype dtype = attr->dim == SHOAL_ALL_DIMS ? shoali_wide(x->dtype) : x->dtype;
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, dtype, &shape, -1), done);
    if (attr->dim != SHOAL_ALL_DIMS)
        shoali_block_reduced(node, attr->dim);
done:
    return status;
}

static shoal_status reduce_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct reduce_attr *attr = shoali_node_attr(node);
    const struct shoali_reduce_args args = {
        .x = node->in[0]->tensor.data,
        .y = node->out[0]->tensor.data,
        .outer = attr->outer,
        .reduced = attr->reduced,
        .inner = attr->inner,
        .factor = attr->factor,
        .row_order = attr->dim != SHOAL_ALL_DIMS && attr->dim + 1 < node->in[0]->tensor.shape.ndim,
        .dtype = node->in[0]->tensor.dtype,
        .dtype_out = node->out[0]->tensor.dtype,
    };
    return SHOALI_RUN(tape, reduce, &args);
}

/* The output's gradient in the input's type: a scalar may have to be narrowed. */
static shoal_status narrow_gradient(struct shoal_tape *tape, const struct shoali_node *node,
                                    const void **dy)
{
    shoal_status status = SHOAL_OK;
    const shoal_dtype dtype = node->in[0]->tensor.dtype, given = node->out[0]->tensor.dtype;
    void *narrowed;
    if (given == dtype)
        goto done;
    SHOAL_TRY(status, shoali_tape_workspace(tape, shoal_dtype_bytes(dtype), &narrowed), done);
    const struct shoali_convert_args args = {
        .x = *dy, .y = narrowed, .count = 1, .dtype = given, .dtype_out = dtype};
    SHOAL_TRY(status, SHOALI_RUN(tape, convert, &args), done);
    *dy = narrowed;
done:
    return status;
}

static shoal_status reduce_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct reduce_attr *attr = shoali_node_attr(node);
    void *to;
    bool accumulate;
    const void *dy = shoali_node_grad(tape, node, 0);
    SHOAL_TRY(status, narrow_gradient(tape, node, &dy), done);
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    const struct shoali_broadcast_args args = {
        .x = dy,
        .y = to,
        .outer = attr->outer,
        .reduced = attr->reduced,
        .inner = attr->inner,
        .factor = attr->factor,
        .accumulate = accumulate,
        .dtype = node->in[0]->tensor.dtype,
    };
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, broadcast, &args), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static void reduce_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                        int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    *flops_forward = shoali_count(&node->in[0]->tensor);
    *flops_backward = *flops_forward;
    *bytes = shoali_cost_bytes(node);
}

static const struct shoali_op_row reduce_row = {
    SHOALI_ROW_HEAD,
    .name = "reduce",
    .infer = reduce_infer,
    .forward = reduce_forward,
    .backward_input = reduce_backward,
    .cost = reduce_cost,
};

static shoal_tensor *record_reduce(shoal_tape *tape, shoal_tensor *x, int32_t dim, bool mean)
{
    const struct reduce_attr attr = {.dim = dim, .mean = mean};
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &reduce_row, .inputs = {x}, .attr = &attr, .attr_bytes = sizeof attr});
}

shoal_tensor *shoal_sum(shoal_tape *tape, shoal_tensor *x, int32_t dim)
{
    return record_reduce(tape, x, dim, false);
}

shoal_tensor *shoal_mean(shoal_tape *tape, shoal_tensor *x, int32_t dim)
{
    return record_reduce(tape, x, dim, true);
}
