/* rows.c - checks, costs and empty cases that rows share. */
#include "autograd/rows/rows.h"

/* ---- checks ---- */

shoal_status shoali_row_need(const struct shoali_node *node, int32_t index)
{
    return node->in[index] != NULL
               ? SHOAL_OK
               : SHOAL_FAIL(SHOAL_EINVAL, "%s: input %d is NULL", node->row->name, (int)index);
}

shoal_status shoali_row_need_float(const struct shoali_node *node, int32_t index)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_row_need(node, index), done);
    const shoal_dtype dtype = node->in[index]->tensor.dtype;
    if (!shoali_is_float(dtype))
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s: input %d is %s; it must be a floating type",
                            node->row->name, (int)index, shoal_dtype_name(dtype));
done:
    return status;
}

shoal_status shoali_row_need_i32(const struct shoali_node *node, int32_t index)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_row_need(node, index), done);
    const shoal_dtype dtype = node->in[index]->tensor.dtype;
    if (dtype != SHOAL_I32)
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s: input %d is %s; it must be I32", node->row->name,
                            (int)index, shoal_dtype_name(dtype));
done:
    return status;
}

shoal_status shoali_row_need_like_first(const struct shoali_node *node, int32_t index)
{
    shoal_status status;
    char got[128], expected[128];
    SHOAL_TRY(status, shoali_row_need(node, index), done);
    const struct shoal_tensor *first = &node->in[0]->tensor, *other = &node->in[index]->tensor;
    if (other->dtype != first->dtype || !shoali_shape_equal(&other->shape, &first->shape))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: input %d is %s %s but input 0 is %s %s; they must "
                            "be equal",
                            node->row->name, (int)index, shoal_dtype_name(other->dtype),
                            shoali_shape_format(&other->shape, got), shoal_dtype_name(first->dtype),
                            shoali_shape_format(&first->shape, expected));
done:
    return status;
}

shoal_status shoali_row_need_param(const struct shoali_node *node, int32_t index, shoal_dtype dtype,
                                   const shoal_shape *shape)
{
    const struct shoal_param *param = node->param[index];
    char got[128], expected[128];
    if (param == NULL)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: parameter %d is NULL", node->row->name, (int)index);
    if (param->dtype != dtype || !shoali_shape_equal(&param->shape, shape))
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: parameter %s is %s %s; %s %s is needed",
                          node->row->name, param->name, shoal_dtype_name(param->dtype),
                          shoali_shape_format(&param->shape, got), shoal_dtype_name(dtype),
                          shoali_shape_format(shape, expected));
    return SHOAL_OK;
}

shoal_status shoali_row_need_packed_heads(const struct shoali_node *node, int64_t heads,
                                          int64_t kv_heads, int64_t *head_size)
{
    shoal_status status;
    char text[128];
    SHOAL_TRY(status, shoali_row_need_float(node, 0), done);
    const shoal_shape *shape = &node->in[0]->tensor.shape;
    const bool fits = heads > 0 && kv_heads > 0 && heads % kv_heads == 0;
    const int64_t packed = fits ? heads + 2 * kv_heads : 1;
    if (!fits || shape->ndim != 3 || shape->dim[2] == 0 || shape->dim[2] % packed != 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: qkv %s does not split into %lld query and 2 x %lld key/value "
                            "heads; it must be [B, T, (H + 2*KV) * D] with H a multiple of KV",
                            node->row->name, shoali_shape_format(shape, text), (long long)heads,
                            (long long)kv_heads);
        goto done;
    }
    *head_size = shape->dim[2] / packed;
done:
    return status;
}

shoal_status shoali_row_output_like_first(struct shoal_tape *tape, struct shoali_node *node)
{
    return shoali_node_output(tape, node, 0, node->in[0]->tensor.dtype, &node->in[0]->tensor.shape,
                              -1);
}

shoal_status shoali_row_dim(const struct shoali_node *node, int32_t ndim, int32_t *dim)
{
    const int32_t resolved = *dim < 0 ? *dim + ndim : *dim;
    if (resolved < 0 || resolved >= ndim)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: dim %d does not exist in a tensor of %d dims",
                          node->row->name, (int)*dim, (int)ndim);
    *dim = resolved;
    return SHOAL_OK;
}

enum shoali_unary shoali_activation_kernel(shoal_activation activation)
{
    switch (activation) {
    case SHOAL_ACTIVATION_RELU:
        return SHOALI_RELU;
    case SHOAL_ACTIVATION_GELU_TANH:
        return SHOALI_GELU_TANH;
    case SHOAL_ACTIVATION_RELU_SQUARED:
        return SHOALI_RELU_SQUARED;
    case SHOAL_ACTIVATION_SILU:
        return SHOALI_SILU;
    case SHOAL_ACTIVATION_GELU:
    case SHOAL_ACTIVATION_NONE:
        break;
    }
    return SHOALI_GELU_ERF;
}

/* ---- costs ---- */

int64_t shoali_cost_bytes(const struct shoali_node *node)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS; i++)
        if (node->in[i] != NULL)
            bytes += (int64_t)node->in[i]->bytes;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_PARAMS; i++)
        if (node->param[i] != NULL)
            bytes += node->param[i]->count * (int64_t)shoal_dtype_bytes(node->param[i]->dtype);
    for (int32_t i = 0; i < SHOALI_NODE_MAX_OUTPUTS; i++)
        if (node->out[i] != NULL)
            bytes += (int64_t)node->out[i]->bytes;
    return bytes;
}

void shoali_cost_elementwise(const struct shoal_tape *tape, const struct shoali_node *node,
                             int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    *flops_forward = shoali_count(&node->out[0]->tensor);
    *flops_backward = *flops_forward;
    *bytes = shoali_cost_bytes(node);
}

void shoali_cost_move(const struct shoal_tape *tape, const struct shoali_node *node,
                      int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    *flops_forward = 0;
    *flops_backward = 0;
    *bytes = shoali_cost_bytes(node);
}

enum shoali_activation shoali_activation_epilogue(shoal_activation activation)
{
    switch (activation) {
    case SHOAL_ACTIVATION_GELU:
        return SHOALI_ACT_GELU_ERF;
    case SHOAL_ACTIVATION_GELU_TANH:
        return SHOALI_ACT_GELU_TANH;
    case SHOAL_ACTIVATION_RELU:
        return SHOALI_ACT_RELU;
    case SHOAL_ACTIVATION_RELU_SQUARED:
        return SHOALI_ACT_RELU_SQUARED;
    case SHOAL_ACTIVATION_SILU:
        return SHOALI_ACT_SILU;
    case SHOAL_ACTIVATION_NONE:
        break;
    }
    return SHOALI_ACT_NONE;
}
