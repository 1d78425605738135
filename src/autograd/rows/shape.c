/* shape.c - reshape, slice, concat, transpose, and a parameter as a tensor. */
#include "autograd/rows/rows.h"

/* ---- reshape ---- */

static shoal_status reshape_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const shoal_shape *shape = shoali_node_attr(node);
    char got[128], wanted[128];
    SHOAL_TRY(status, shoali_row_need(node, 0), done);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    if (shoal_shape_count(shape) != shoali_count(x)) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "reshape: %s and %s have different numbers of elements",
                       shoali_shape_format(&x->shape, got), shoali_shape_format(shape, wanted));
        goto done;
    }
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, x->dtype, shape, x->bound), done);
    shoali_block_keep(node);
done:
    return status;
}

static shoal_status reshape_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    return shoali_grad_pass(tape, node, 0);
}

static const struct shoali_op_row reshape_row = {
    SHOALI_ROW_HEAD,          .name = "reshape",
    .infer = reshape_infer,   .backward_input = reshape_backward,
    .flags = SHOALI_ROW_VIEW,
};

shoal_tensor *shoal_reshape(shoal_tape *tape, shoal_tensor *x, shoal_shape shape)
{
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &reshape_row, .inputs = {x}, .attr = &shape, .attr_bytes = sizeof shape});
}

/* ---- slice and concat: blocks of one dim ---- */

/* A tensor seen as [outer, dim, inner]. */
struct blocks {
    int64_t outer, inner;
};

static struct blocks blocks_of(const shoal_shape *shape, int32_t dim)
{
    struct blocks blocks = {1, 1};
    for (int32_t d = 0; d < dim; d++)
        blocks.outer *= shape->dim[d];
    for (int32_t d = dim + 1; d < shape->ndim; d++)
        blocks.inner *= shape->dim[d];
    return blocks;
}

/* Copies (adds) `rows` of dim from x, whose dim has x_rows, to y, whose dim has y_rows. */
static shoal_status copy_block(struct shoal_tape *tape, const struct blocks *blocks, int64_t rows,
                               const void *x, int64_t x_rows, void *y, int64_t y_rows,
                               bool accumulate, shoal_dtype dtype)
{
    const struct shoali_copy_strided_args args = {
        .x = x,
        .y = y,
        .ndim = 2,
        .dim = {blocks->outer, rows * blocks->inner},
        .x_stride = {x_rows * blocks->inner, 1},
        .y_stride = {y_rows * blocks->inner, 1},
        .accumulate = accumulate,
        .dtype = dtype,
    };
    return SHOALI_RUN(tape, copy_strided, &args);
}

struct slice_attr {
    int32_t dim;
    int64_t begin, count;
};

static shoal_status slice_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct slice_attr *attr = shoali_node_attr(node);
    SHOAL_TRY(status, shoali_row_need(node, 0), done);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    SHOAL_TRY(status, shoali_row_dim(node, x->shape.ndim, &attr->dim), done);
    const int64_t length = x->shape.dim[attr->dim];
    if (attr->begin < 0 || attr->count < 0 || attr->begin > length - attr->count) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "slice: %lld elements from %lld are outside dim %d of "
                            "length %lld",
                            (long long)attr->count, (long long)attr->begin, (int)attr->dim,
                            (long long)length);
        goto done;
    }
    shoal_shape shape = x->shape;
    shape.dim[attr->dim] = attr->count;
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, x->dtype, &shape, -1), done);
    shoali_block_sliced(node, attr->dim, attr->begin, attr->count);
done:
    return status;
}

static shoal_status slice_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct slice_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct blocks blocks = blocks_of(&x->shape, attr->dim);
    return copy_block(
        tape, &blocks, attr->count, shoali_at(x->data, attr->begin * blocks.inner, x->dtype),
        x->shape.dim[attr->dim], node->out[0]->tensor.data, attr->count, false, x->dtype);
}

static shoal_status slice_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct slice_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct blocks blocks = blocks_of(&x->shape, attr->dim);
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    if (to == NULL)
        goto done;
    if (!accumulate && attr->count < x->shape.dim[attr->dim])
        SHOAL_TRY(status, shoali_tape_zero(tape, to, node->in[0]->bytes), done);
    SHOAL_TRY(status,
              copy_block(tape, &blocks, attr->count, shoali_node_grad(tape, node, 0), attr->count,
                         shoali_at(to, attr->begin * blocks.inner, x->dtype),
                         x->shape.dim[attr->dim], accumulate, x->dtype),
              done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row slice_row = {
    SHOALI_ROW_HEAD,
    .name = "slice",
    .infer = slice_infer,
    .forward = slice_forward,
    .backward_input = slice_backward,
    .cost = shoali_cost_move,
};

shoal_tensor *shoal_slice(shoal_tape *tape, shoal_tensor *x, int32_t dim, int64_t begin,
                          int64_t count)
{
    const struct slice_attr attr = {.dim = dim, .begin = begin, .count = count};
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &slice_row, .inputs = {x}, .attr = &attr, .attr_bytes = sizeof attr});
}

static bool differs_outside(const shoal_shape *a, const shoal_shape *b, int32_t dim)
{
    if (a->ndim != b->ndim)
        return true;
    for (int32_t d = 0; d < a->ndim; d++)
        if (d != dim && a->dim[d] != b->dim[d])
            return true;
    return false;
}

static shoal_status concat_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    int32_t *dim = shoali_node_attr(node);
    char got[128], expected[128];
    SHOAL_TRY(status, shoali_row_need(node, 0), done);
    const struct shoal_tensor *first = &node->in[0]->tensor;
    SHOAL_TRY(status, shoali_row_dim(node, first->shape.ndim, dim), done);
    shoal_shape shape = first->shape;
    for (int32_t i = 1; i < SHOALI_NODE_MAX_INPUTS && node->in[i] != NULL; i++) {
        const struct shoal_tensor *part = &node->in[i]->tensor;
        if (part->dtype != first->dtype || differs_outside(&part->shape, &first->shape, *dim)) {
            status = SHOAL_FAIL(
                SHOAL_EINVAL, "concat: part %d is %s %s; it must be %s %s except for dim %d",
                (int)i, shoal_dtype_name(part->dtype), shoali_shape_format(&part->shape, got),
                shoal_dtype_name(first->dtype), shoali_shape_format(&first->shape, expected),
                (int)*dim);
            goto done;
        }
        shape.dim[*dim] += part->shape.dim[*dim];
    }
    /* Parts of data-dependent size: the bounds add up. */
    int64_t bound = 0, count = 0;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS && node->in[i] != NULL; i++) {
        bound += node->in[i]->tensor.bound;
        count += shoali_count(&node->in[i]->tensor);
    }
    SHOAL_TRY(status,
              shoali_node_output(tape, node, 0, first->dtype, &shape, bound > count ? bound : -1),
              done);
    shoali_block_joined(node, *dim);
done:
    return status;
}

static shoal_status concat_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const int32_t dim = *(const int32_t *)shoali_node_attr(node);
    const struct shoal_tensor *out = &node->out[0]->tensor;
    const struct blocks blocks = blocks_of(&out->shape, dim);
    int64_t begin = 0;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS && node->in[i] != NULL; i++) {
        const struct shoal_tensor *part = &node->in[i]->tensor;
        const int64_t rows = part->shape.dim[dim];
        SHOAL_TRY(status,
                  copy_block(tape, &blocks, rows, part->data, rows,
                             shoali_at(out->data, begin * blocks.inner, out->dtype),
                             out->shape.dim[dim], false, out->dtype),
                  done);
        begin += rows;
    }
done:
    return status;
}

static shoal_status concat_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const int32_t dim = *(const int32_t *)shoali_node_attr(node);
    const struct shoal_tensor *out = &node->out[0]->tensor;
    const void *dy = shoali_node_grad(tape, node, 0);
    const struct blocks blocks = blocks_of(&out->shape, dim);
    int64_t begin = 0;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS && node->in[i] != NULL; i++) {
        const int64_t rows = node->in[i]->tensor.shape.dim[dim];
        void *to;
        bool accumulate;
        SHOAL_TRY(status, shoali_grad_begin(tape, node, i, true, &to, &accumulate), done);
        if (to != NULL)
            SHOAL_TRY(status,
                      copy_block(tape, &blocks, rows,
                                 shoali_at(dy, begin * blocks.inner, out->dtype),
                                 out->shape.dim[dim], to, rows, accumulate, out->dtype),
                      done);
        SHOAL_TRY(status, shoali_grad_end(tape, node, i), done);
        begin += rows;
    }
done:
    return status;
}

static const struct shoali_op_row concat_row = {
    SHOALI_ROW_HEAD,
    .name = "concat",
    .infer = concat_infer,
    .forward = concat_forward,
    .backward_input = concat_backward,
    .cost = shoali_cost_move,
};

shoal_tensor *shoal_concat(shoal_tape *tape, shoal_tensor *const *parts, int32_t count, int32_t dim)
{
    if (tape->status < 0)
        return NULL;
    if (count < 1)
        return shoali_tape_poison(tape, SHOAL_FAIL(SHOAL_EINVAL,
                                                   "concat: needs at least one part, "
                                                   "got %d",
                                                   (int)count));
    /* A node takes four inputs; more parts are joined from the left. */
    shoal_tensor *joined = parts[0];
    int32_t next = 1;
    do {
        struct shoali_record_args record = {
            .row = &concat_row, .inputs = {joined}, .attr = &dim, .attr_bytes = sizeof dim};
        for (int32_t i = 1; i < SHOALI_NODE_MAX_INPUTS && next < count; i++) {
            if (parts[next] == NULL)
                return shoali_tape_poison(
                    tape, SHOAL_FAIL(SHOAL_EINVAL, "concat: part %d is NULL", (int)next));
            record.inputs[i] = parts[next++];
        }
        joined = shoali_tape_record(tape, &record);
    } while (joined != NULL && next < count);
    return joined;
}

/* ---- transpose ---- */

struct transpose_attr {
    int32_t dim_a, dim_b;
};

static shoal_status transpose_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct transpose_attr *attr = shoali_node_attr(node);
    SHOAL_TRY(status, shoali_row_need(node, 0), done);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    SHOAL_TRY(status, shoali_row_dim(node, x->shape.ndim, &attr->dim_a), done);
    SHOAL_TRY(status, shoali_row_dim(node, x->shape.ndim, &attr->dim_b), done);
    shoal_shape shape = x->shape;
    shape.dim[attr->dim_a] = x->shape.dim[attr->dim_b];
    shape.dim[attr->dim_b] = x->shape.dim[attr->dim_a];
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, x->dtype, &shape, x->bound), done);
    shoali_block_swapped(node, attr->dim_a, attr->dim_b);
done:
    return status;
}

/* `shape` is of x; the swap is its own inverse, so backward is the same on the output's shape. */
static shoal_status run_transpose(struct shoal_tape *tape, const struct transpose_attr *attr,
                                  const shoal_shape *shape, const void *x, void *y, bool accumulate,
                                  shoal_dtype dtype)
{
    struct shoali_copy_strided_args args = {
        .x = x, .y = y, .ndim = shape->ndim, .accumulate = accumulate, .dtype = dtype};
    int64_t stride = 1;
    for (int32_t d = shape->ndim - 1; d >= 0; d--) {
        args.x_stride[d] = stride;
        stride *= shape->dim[d];
    }
    const int64_t swapped = args.x_stride[attr->dim_a];
    args.x_stride[attr->dim_a] = args.x_stride[attr->dim_b];
    args.x_stride[attr->dim_b] = swapped;
    stride = 1;
    for (int32_t d = shape->ndim - 1; d >= 0; d--) {
        const int32_t from = d == attr->dim_a ? attr->dim_b : d == attr->dim_b ? attr->dim_a : d;
        args.dim[d] = shape->dim[from];
        args.y_stride[d] = stride;
        stride *= args.dim[d];
    }
    return SHOALI_RUN(tape, copy_strided, &args);
}

static shoal_status transpose_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoal_tensor *x = &node->in[0]->tensor;
    return run_transpose(tape, shoali_node_attr(node), &x->shape, x->data,
                         node->out[0]->tensor.data, false, x->dtype);
}

static shoal_status transpose_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *out = &node->out[0]->tensor;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status,
                  run_transpose(tape, shoali_node_attr(node), &out->shape,
                                shoali_node_grad(tape, node, 0), to, accumulate, out->dtype),
                  done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row transpose_row = {
    SHOALI_ROW_HEAD,
    .name = "transpose",
    .infer = transpose_infer,
    .forward = transpose_forward,
    .backward_input = transpose_backward,
    .cost = shoali_cost_move,
};

shoal_tensor *shoal_transpose(shoal_tape *tape, shoal_tensor *x, int32_t dim_a, int32_t dim_b)
{
    const struct transpose_attr attr = {.dim_a = dim_a, .dim_b = dim_b};
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &transpose_row, .inputs = {x}, .attr = &attr, .attr_bytes = sizeof attr});
}

/* ---- a parameter as a tensor ---- */

static shoal_status param_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_param *param = node->param[0];
    if (param == NULL)
        return SHOAL_FAIL(SHOAL_EINVAL, "param_tensor: the parameter is NULL");
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, tape->args.dtype, &param->shape, -1), done);
    shoali_block_forget(node); /* whoever split the parameter sets its block */
done:
    return status;
}

static shoal_status param_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoal_param *param = node->param[0];
    const struct shoali_tape_tensor *out = node->out[0];
    const struct shoali_convert_args args = {
        .x = param->data,
        .y = out->tensor.data,
        .count = param->count,
        .dtype = param->dtype,
        .dtype_out = out->tensor.dtype,
    };
    if (param->dtype != out->tensor.dtype)
        return SHOALI_RUN(tape, convert, &args);
    return shoali_grad_add(tape, param->data, out->tensor.data, param->count, param->dtype, false);
}

static shoal_status param_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_param *param = node->param[0];
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_param_grad_begin(tape, node, 0, &to, &accumulate), done);
    const struct shoali_reduce_args args = {
        .x = shoali_node_grad(tape, node, 0),
        .y = to,
        .outer = 1,
        .reduced = 1,
        .inner = param->count,
        .factor = 1,
        .accumulate = accumulate,
        .dtype = node->out[0]->tensor.dtype,
        .dtype_out = shoali_wide(param->dtype),
    };
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, reduce, &args), done);
    SHOAL_TRY(status, shoali_param_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row param_row = {
    SHOALI_ROW_HEAD,
    .name = "param_tensor",
    .infer = param_infer,
    .forward = param_forward,
    .backward_weight = param_backward,
    .cost = shoali_cost_move,
};

shoal_tensor *shoal_param_tensor(shoal_tape *tape, shoal_param *param)
{
    return shoali_tape_record(tape,
                              &(struct shoali_record_args){.row = &param_row, .params = {param}});
}
