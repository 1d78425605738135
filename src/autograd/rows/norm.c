/* norm.c - layer norm and RMS norm over the last dim, or over the query and key heads of qkv. */
#include "autograd/rows/exact_splits.h"

struct norm_attr {
    double eps;
    int32_t rms, gamma_plus_one;
    int64_t rows, columns; /* set by infer */
};

enum { GAMMA, BETA };
enum { RESULT, MEAN, RSTD };

static shoal_status norm_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct norm_attr *attr = shoali_node_attr(node);
    SHOAL_TRY(status, shoali_row_need_float(node, 0), done);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    attr->columns = shoali_last_dim(&x->shape);
    attr->rows = shoali_row_count(x);
    const shoal_shape columns = shoal_shape_1(attr->columns), rows = shoal_shape_1(attr->rows);
    const int64_t bound = attr->columns > 0 ? x->bound / attr->columns : 0;
    if (node->param[GAMMA] != NULL)
        SHOAL_TRY(status, shoali_row_need_param(node, GAMMA, x->dtype, &columns), done);
    if (node->param[BETA] != NULL)
        SHOAL_TRY(status, shoali_row_need_param(node, BETA, x->dtype, &columns), done);
    SHOAL_TRY(status, shoali_row_output_like_first(tape, node), done);
    if (x->shape.ndim > 0)
        shoali_block_leading(node, x->shape.ndim - 1);
    SHOAL_TRY(status, shoali_node_output(tape, node, MEAN, shoali_wide(x->dtype), &rows, bound),
              done);
    SHOAL_TRY(status, shoali_node_output(tape, node, RSTD, shoali_wide(x->dtype), &rows, bound),
              done);
done:
    return status;
}

/* A norm without gamma is one whose gamma - 1 is 0: zeros, to be freed; NULL: it has a gamma. */
static shoal_status make_zeros(struct shoal_tape *tape, const struct shoali_node *node,
                               void **zeros)
{
    shoal_status status = SHOAL_OK;
    const struct norm_attr *attr = shoali_node_attr(node);
    const size_t bytes = (size_t)attr->columns * shoal_dtype_bytes(node->in[0]->tensor.dtype);
    *zeros = NULL;
    if (node->param[GAMMA] != NULL)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_tape_workspace(tape, bytes, zeros), done);
    SHOAL_TRY(status, shoali_tape_zero(tape, *zeros, bytes), done);
done:
    return status;
}

static shoal_status norm_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct norm_attr *attr = shoali_node_attr(node);
    void *zeros;
    SHOAL_TRY(status, make_zeros(tape, node, &zeros), done);
    const struct shoali_norm_args args = {
        .x = node->in[0]->tensor.data,
        .gamma = zeros != NULL ? zeros : node->param[GAMMA]->data,
        .beta = node->param[BETA] != NULL ? node->param[BETA]->data : NULL,
        .y = node->out[RESULT]->tensor.data,
        .mean = node->out[MEAN]->tensor.data,
        .rstd = node->out[RSTD]->tensor.data,
        .rows = attr->rows,
        .columns = attr->columns,
        .eps = attr->eps,
        .rms = attr->rms,
        .gamma_plus_one = zeros != NULL || attr->gamma_plus_one,
        .dtype = node->in[0]->tensor.dtype,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, norm, &args), done);
done:
    if (zeros != NULL)
        shoali_tape_workspace_free(tape, zeros);
    return status;
}

/* What one call writes; the kernel has one accumulate flag for both parameters. */
struct norm_targets {
    void *dx, *dgamma, *dbeta;
    const void *zeros; /* instead of gamma; NULL: there is one */
    bool accumulate_dx, accumulate_params;
};

static shoal_status run_norm_backward(struct shoal_tape *tape, const struct shoali_node *node,
                                      const struct norm_targets *targets, int64_t first,
                                      int64_t rows)
{
    const struct norm_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const shoal_dtype wide = shoali_wide(x->dtype);
    const int64_t at = first * attr->columns;
    const struct shoali_norm_backward_args args = {
        .x = shoali_at(x->data, at, x->dtype),
        .gamma = targets->zeros != NULL ? targets->zeros : node->param[GAMMA]->data,
        .dy = shoali_at(shoali_node_grad(tape, node, RESULT), at, x->dtype),
        .mean = shoali_at(node->out[MEAN]->tensor.data, first, wide),
        .rstd = shoali_at(node->out[RSTD]->tensor.data, first, wide),
        .dx = targets->dx != NULL ? shoali_at(targets->dx, at, x->dtype) : NULL,
        .dgamma = targets->dgamma,
        .dbeta = targets->dbeta,
        .rows = rows,
        .columns = attr->columns,
        .rms = attr->rms,
        .gamma_plus_one = targets->zeros != NULL || attr->gamma_plus_one,
        .accumulate_dx = targets->accumulate_dx,
        .accumulate_params = targets->accumulate_params,
        .dtype = x->dtype,
    };
    return SHOALI_RUN(tape, norm_backward, &args);
}

/* All blocks of contributions; most often there is one, and one call. */
static shoal_status run_blocks(struct shoal_tape *tape, struct shoali_node *node,
                               const struct shoali_blocks *blocks,
                               const struct norm_targets *targets)
{
    shoal_status status = SHOAL_OK;
    for (int64_t b = 0; b < blocks->blocks; b++) {
        struct norm_targets each = *targets;
        for (int64_t s = 0; s < blocks->samples; s++) {
            each.accumulate_params = targets->accumulate_params || s > 0;
            SHOAL_TRY(
                status,
                run_norm_backward(tape, node, &each, shoali_blocks_row(blocks, b, s), blocks->rows),
                done);
        }
        for (int32_t p = GAMMA; b + 1 < blocks->blocks && p <= BETA; p++)
            SHOAL_TRY(status, shoali_param_grad_next(tape, node, p), done);
    }
done:
    return status;
}

static shoal_status norm_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct norm_targets targets = {0};
    const struct shoali_blocks blocks =
        shoali_blocks_of(tape, node->param[GAMMA], &node->in[0]->tensor);
    void *dbeta, *zeros;
    bool accumulate_beta;
    SHOAL_TRY(status, make_zeros(tape, node, &zeros), done);
    targets.zeros = zeros;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &targets.dx, &targets.accumulate_dx),
              done);
    SHOAL_TRY(
        status,
        shoali_param_grad_begin(tape, node, GAMMA, &targets.dgamma, &targets.accumulate_params),
        done);
    SHOAL_TRY(status, shoali_param_grad_begin(tape, node, BETA, &dbeta, &accumulate_beta), done);
    if (targets.dgamma == NULL)
        targets.accumulate_params = accumulate_beta;
    const bool together = dbeta == NULL || accumulate_beta == targets.accumulate_params;
    if (together)
        targets.dbeta = dbeta;
    SHOAL_TRY(status, run_blocks(tape, node, &blocks, &targets), done);
    if (!together) { /* sinks that add, which have no blocks */
        const struct norm_targets beta_only = {
            .zeros = zeros, .dbeta = dbeta, .accumulate_params = accumulate_beta};
        SHOAL_TRY(status, run_norm_backward(tape, node, &beta_only, 0, blocks.rows), done);
    }
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
    SHOAL_TRY(status, shoali_param_grad_end(tape, node, GAMMA), done);
    SHOAL_TRY(status, shoali_param_grad_end(tape, node, BETA), done);
done:
    if (zeros != NULL)
        shoali_tape_workspace_free(tape, zeros);
    return status;
}

static void norm_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                      int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    const struct norm_attr *attr = shoali_node_attr(node);
    shoali_cost_elementwise(tape, node, flops_forward, flops_backward, bytes);
    /* sum, centred square and its sum, scale, affine; RMS norm needs no mean */
    *flops_forward *= attr->rms != 0 ? 4 : 7;
    *flops_backward *= attr->rms != 0 ? 9 : 11;
}

static const struct shoali_op_row layer_norm_row = {
    SHOALI_ROW_HEAD,
    .name = "layer_norm",
    .infer = norm_infer,
    .forward = norm_forward,
    .backward_input = norm_backward,
    .cost = norm_cost,
    .saves_inputs = 1u,
    .saves_outputs = 1u << MEAN | 1u << RSTD,
    .flags = SHOALI_ROW_SEQUENCE,
};

static const struct shoali_op_row rms_norm_row = {
    SHOALI_ROW_HEAD,
    .name = "rms_norm",
    .infer = norm_infer,
    .forward = norm_forward,
    .backward_input = norm_backward,
    .cost = norm_cost,
    .saves_inputs = 1u,
    .saves_outputs = 1u << MEAN | 1u << RSTD,
    .flags = SHOALI_ROW_SEQUENCE,
};

static shoal_tensor *record_norm(shoal_tape *tape, shoal_tensor *x, const shoal_norm_args *args)
{
    const struct norm_attr attr = {
        .eps = args->eps, .rms = args->rms, .gamma_plus_one = args->gamma_plus_one};
    return shoali_tape_record(
        tape, &(struct shoali_record_args){.row = args->rms ? &rms_norm_row : &layer_norm_row,
                                           .inputs = {x},
                                           .params = {[GAMMA] = args->gamma, [BETA] = args->beta},
                                           .attr = &attr,
                                           .attr_bytes = sizeof attr});
}

shoal_tensor *shoal_layer_norm(shoal_tape *tape, shoal_tensor *x, shoal_param *gamma,
                               shoal_param *beta, double eps)
{
    return record_norm(tape, x, &(shoal_norm_args){.gamma = gamma, .beta = beta, .eps = eps});
}

shoal_tensor *shoal_rms_norm(shoal_tape *tape, shoal_tensor *x, shoal_param *gamma, double eps)
{
    return record_norm(tape, x, &(shoal_norm_args){.gamma = gamma, .eps = eps, .rms = true});
}

shoal_tensor *shoal_norm(shoal_tape *tape, shoal_tensor *x, const shoal_norm_args *args)
{
    return record_norm(tape, x, args ? args : &(shoal_norm_args){0});
}
