/* qk_norm.c - the norm of each query and key head of packed qkv. */
#include "autograd/rows/exact_splits.h"

struct qk_norm_attr {
    int64_t heads, kv_heads;
    double eps;
    int32_t rms, gamma_plus_one;
    int64_t head_size, tokens; /* set by infer */
};

enum { Q_GAMMA, Q_BETA, K_GAMMA, K_BETA };
enum { RESULT, MEAN, RSTD };

/* Heads that share a gamma and, of exact sums, a split, which is a contribution of its own: where
 * they begin in a row of qkv, and in the statistics. */
struct part {
    int32_t gamma;
    int64_t first, heads, first_row;
};
enum { GAMMAS = 2 };

/* Parts of each gamma. */
static int32_t splits_of(const struct shoal_tape *tape, const struct shoali_node *node)
{
    const struct shoali_columns *columns = &node->in[0]->tensor.columns;
    return columns->parts > 0 ? shoali_columns_pieces(tape, columns) : 1;
}

static struct part part_of(const struct shoal_tape *tape, const struct shoali_node *node,
                           int32_t gamma, int32_t split)
{
    const struct qk_norm_attr *attr = shoali_node_attr(node);
    const struct shoali_columns *columns = &node->in[0]->tensor.columns;
    struct part part = {Q_GAMMA, 0, attr->heads, 0};
    if (gamma == 1)
        part = (struct part){K_GAMMA, attr->heads * attr->head_size, attr->kv_heads,
                             attr->tokens * attr->heads};
    if (splits_of(tape, node) == 1)
        return part;
    const struct shoali_interval piece = shoali_exact_splits_piece(tape, columns, split, gamma);
    part.first_row += (piece.begin - part.first) / attr->head_size * attr->tokens;
    part.first = piece.begin;
    part.heads = piece.count / attr->head_size;
    return part;
}

static shoal_status qk_norm_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct qk_norm_attr *attr = shoali_node_attr(node);
    SHOAL_TRY(status,
              shoali_row_need_packed_heads(node, attr->heads, attr->kv_heads, &attr->head_size),
              done);
    const struct shoal_tensor *qkv = &node->in[0]->tensor;
    const shoal_shape gamma = shoal_shape_1(attr->head_size);
    attr->tokens = shoali_row_count(qkv);
    const shoal_shape rows = shoal_shape_1(attr->tokens * (attr->heads + attr->kv_heads));
    for (int32_t i = Q_GAMMA; i <= K_BETA; i++)
        if (i == Q_GAMMA || i == K_GAMMA || node->param[i] != NULL)
            SHOAL_TRY(status, shoali_row_need_param(node, i, qkv->dtype, &gamma), done);
    /* each rank has the gradient that its heads give */
    for (int32_t i = Q_GAMMA; i <= K_BETA; i++)
        if (node->param[i] != NULL && shoali_is_tensor_parallel(tape) && node->needs_backward)
            SHOAL_TRY(status, shoali_tensor_note_param(node->param[i], qkv->columns.parts > 0),
                      done);
    SHOAL_TRY(status, shoali_row_output_like_first(tape, node), done);
    SHOAL_TRY(status, shoali_node_output(tape, node, MEAN, shoali_wide(qkv->dtype), &rows, -1),
              done);
    SHOAL_TRY(status, shoali_node_output(tape, node, RSTD, shoali_wide(qkv->dtype), &rows, -1),
              done);
done:
    return status;
}

/* y (+)= x in the value heads. */
static shoal_status copy_values(struct shoal_tape *tape, const struct shoali_node *node,
                                const void *x, void *y, bool accumulate)
{
    const struct qk_norm_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *qkv = &node->in[0]->tensor;
    const int64_t columns = qkv->shape.dim[2];
    const int64_t first = (attr->heads + attr->kv_heads) * attr->head_size;
    const struct shoali_copy_strided_args args = {
        .x = shoali_at(x, first, qkv->dtype),
        .y = shoali_at(y, first, qkv->dtype),
        .ndim = 2,
        .dim = {attr->tokens, columns - first},
        .x_stride = {columns, 1},
        .y_stride = {columns, 1},
        .accumulate = accumulate,
        .dtype = qkv->dtype,
    };
    return SHOALI_RUN(tape, copy_strided, &args);
}

static void *statistic(const struct shoali_node *node, int32_t output, const struct part *part)
{
    const struct shoal_tensor *tensor = &node->out[output]->tensor;
    return shoali_at(tensor->data, part->first_row, tensor->dtype);
}

static shoal_status qk_norm_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct qk_norm_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *qkv = &node->in[0]->tensor;
    void *y = node->out[RESULT]->tensor.data;
    const int32_t splits = splits_of(tape, node);
    for (int32_t i = 0; i < GAMMAS * splits; i++) {
        const struct part part = part_of(tape, node, i / splits, i % splits);
        const struct shoal_param *beta = node->param[part.gamma + 1];
        const struct shoali_norm_args args = {
            .x = shoali_at(qkv->data, part.first, qkv->dtype),
            .gamma = node->param[part.gamma]->data,
            .beta = beta != NULL ? beta->data : NULL,
            .y = shoali_at(y, part.first, qkv->dtype),
            .mean = statistic(node, MEAN, &part),
            .rstd = statistic(node, RSTD, &part),
            .rows = attr->tokens * part.heads,
            .columns = attr->head_size,
            .group = part.heads,
            .group_stride = qkv->shape.dim[2],
            .eps = attr->eps,
            .rms = attr->rms,
            .gamma_plus_one = attr->gamma_plus_one,
            .dtype = qkv->dtype,
        };
        SHOAL_TRY(status, SHOALI_RUN(tape, norm, &args), done);
    }
    SHOAL_TRY(status, copy_values(tape, node, qkv->data, y, false), done);
done:
    return status;
}

static struct shoali_norm_backward_args
backward_of(struct shoal_tape *tape, const struct shoali_node *node, const struct part *part)
{
    const struct qk_norm_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *qkv = &node->in[0]->tensor;
    return (struct shoali_norm_backward_args){
        .x = shoali_at(qkv->data, part->first, qkv->dtype),
        .gamma = node->param[part->gamma]->data,
        .dy = shoali_at(shoali_node_grad(tape, node, RESULT), part->first, qkv->dtype),
        .mean = statistic(node, MEAN, part),
        .rstd = statistic(node, RSTD, part),
        .rows = attr->tokens * part->heads,
        .columns = attr->head_size,
        .group = part->heads,
        .group_stride = qkv->shape.dim[2],
        .rms = attr->rms,
        .gamma_plus_one = attr->gamma_plus_one,
        .dtype = qkv->dtype,
    };
}

/* The kernel has one accumulate flag for both parameters, so each has a run of its own. */
static shoal_status parameter_gradient(struct shoal_tape *tape, struct shoali_node *node,
                                       int32_t gamma, int32_t param)
{
    shoal_status status;
    const int32_t splits = splits_of(tape, node);
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_param_grad_begin(tape, node, param, &to, &accumulate), done);
    for (int32_t s = 0; to != NULL && s < splits; s++) {
        const struct part part = part_of(tape, node, gamma, s);
        struct shoali_norm_backward_args args = backward_of(tape, node, &part);
        args.accumulate_params = accumulate;
        args.dgamma = param == part.gamma ? to : NULL;
        args.dbeta = param == part.gamma ? NULL : to;
        SHOAL_TRY(status, SHOALI_RUN(tape, norm_backward, &args), done);
        if (s + 1 < splits)
            SHOAL_TRY(status, shoali_param_grad_next(tape, node, param), done);
    }
    SHOAL_TRY(status, shoali_param_grad_end(tape, node, param), done);
done:
    return status;
}

static shoal_status head_gradients(struct shoal_tape *tape, struct shoali_node *node, void *to,
                                   bool accumulate)
{
    shoal_status status = SHOAL_OK;
    const shoal_dtype dtype = node->in[0]->tensor.dtype;
    const int32_t splits = splits_of(tape, node);
    for (int32_t i = 0; i < GAMMAS * splits; i++) {
        const struct part part = part_of(tape, node, i / splits, i % splits);
        struct shoali_norm_backward_args args = backward_of(tape, node, &part);
        args.accumulate_dx = accumulate;
        args.dx = shoali_at(to, part.first, dtype);
        SHOAL_TRY(status, SHOALI_RUN(tape, norm_backward, &args), done);
    }
    SHOAL_TRY(status, copy_values(tape, node, shoali_node_grad(tape, node, RESULT), to, accumulate),
              done);
done:
    return status;
}

static shoal_status qk_norm_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status, head_gradients(tape, node, to, accumulate), done);
    for (int32_t p = Q_GAMMA; p <= K_BETA; p++)
        SHOAL_TRY(status, parameter_gradient(tape, node, p < K_GAMMA ? 0 : 1, p), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static void qk_norm_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                         int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    const struct qk_norm_attr *attr = shoali_node_attr(node);
    const int64_t elements = attr->tokens * (attr->heads + attr->kv_heads) * attr->head_size;
    *flops_forward = elements * (attr->rms != 0 ? 4 : 7);
    *flops_backward = elements * (attr->rms != 0 ? 9 : 11);
    *bytes = shoali_cost_bytes(node);
}

static const struct shoali_op_row qk_norm_row = {
    SHOALI_ROW_HEAD,
    .name = "qk_norm",
    .infer = qk_norm_infer,
    .forward = qk_norm_forward,
    .backward_input = qk_norm_backward,
    .cost = qk_norm_cost,
    .saves_inputs = 1u,
    .saves_outputs = 1u << MEAN | 1u << RSTD,
    .flags = SHOALI_ROW_COLUMNS | SHOALI_ROW_NOTES_PARAMS,
};

shoal_tensor *shoal_qk_norm(shoal_tape *tape, shoal_tensor *qkv, const shoal_qk_norm_args *args)
{
    const shoal_qk_norm_args own = args ? *args : (shoal_qk_norm_args){0};
    struct shoali_heads mine;
    qkv = shoali_tensor_need_heads(tape, qkv, own.heads,
                                   own.kv_heads > 0 ? own.kv_heads : own.heads, &mine);
    const struct qk_norm_attr attr = {
        .heads = mine.heads,
        .kv_heads = mine.kv_heads,
        .eps = own.eps,
        .rms = own.rms,
        .gamma_plus_one = own.gamma_plus_one,
    };
    return shoali_tape_record(tape, &(struct shoali_record_args){
                                        .row = &qk_norm_row,
                                        .inputs = {qkv},
                                        .params = {[Q_GAMMA] = own.q_gamma,
                                                   [Q_BETA] = own.q_beta,
                                                   [K_GAMMA] = own.k_gamma,
                                                   [K_BETA] = own.k_beta},
                                        .attr = &attr,
                                        .attr_bytes = sizeof attr,
                                    });
}
