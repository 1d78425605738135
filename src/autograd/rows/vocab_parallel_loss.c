/* vocab_parallel_loss.c - losses of logits whose vocabulary is in pieces. */
#include "autograd/rows/vocab_parallel_loss.h"

#include <math.h>

enum { LOGITS, TARGETS };

static shoal_dtype wide_of(const struct shoali_node *node)
{
    return node->out[SHOALI_LOSS_LSE]->tensor.dtype;
}

static int64_t rows_of(const struct shoali_node *node)
{
    return shoali_count(&node->out[SHOALI_LOSS_LSE]->tensor);
}

static int32_t ranks_of(const struct shoal_tape *tape)
{
    return shoali_is_tensor_parallel(tape) ? tape->args.tensor_parallel.ranks : 1;
}

shoal_status shoali_loss_smooth(const struct shoali_node *node, int64_t classes,
                                struct shoali_loss_labels *labels)
{
    const double smoothing = labels->smoothing;
    labels->wanted = (struct shoali_label_probabilities){0};
    if (!(smoothing >= 0 && smoothing < 1))
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: label_smoothing is %g; it must be 0 or more, below 1",
                          node->row->name, smoothing);
    if (smoothing > 0 && classes < 2)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: label_smoothing is %g, but there is only one class: set it to 0",
                          node->row->name, smoothing);
    if (smoothing > 0)
        labels->wanted = (struct shoali_label_probabilities){
            .target = 1 - smoothing, .others = smoothing / (double)(classes - 1)};
    return SHOAL_OK;
}

int64_t shoali_loss_flops(const struct shoali_loss_labels *labels)
{
    return labels->smoothing > 0 ? 5 : 4; /* max, subtract, exp, sum; the sum of logits */
}

shoal_status shoali_vocab_parallel_loss_outputs(struct shoal_tape *tape, struct shoali_node *node,
                                                int32_t index, shoal_dtype dtype,
                                                const struct shoali_columns *columns)
{
    shoal_status status;
    const struct shoal_tensor *targets = &node->in[index]->tensor;
    const shoal_dtype wide = shoali_wide(dtype);
    const int64_t pieces = (int64_t)shoali_columns_pieces(tape, columns) * ranks_of(tape);
    const int64_t count = shoali_count(targets);
    const shoal_shape scalar = {0}, rows = shoal_shape_1(count);
    const shoal_shape parts = shoal_shape_3(pieces, 3, count);
    SHOAL_TRY(status, shoali_node_output(tape, node, SHOALI_LOSS_RESULT, wide, &scalar, 1), done);
    SHOAL_TRY(status, shoali_node_output(tape, node, SHOALI_LOSS_LSE, wide, &rows, targets->bound),
              done);
    SHOAL_TRY(status, shoali_node_output(tape, node, SHOALI_LOSS_COUNT, wide, &scalar, 1), done);
    SHOAL_TRY(status,
              shoali_node_output(tape, node, SHOALI_LOSS_PARTS, wide, &parts,
                                 3 * pieces * targets->bound),
              done);
done:
    return status;
}

/* Numbers of all pieces, and of one rank's. */
static int64_t pieces_of(const struct shoali_node *node)
{
    return node->out[SHOALI_LOSS_PARTS]->tensor.shape.dim[0];
}

static int64_t own_count(const struct shoal_tape *tape, const struct shoali_node *node)
{
    return pieces_of(node) / ranks_of(tape) * 3 * rows_of(node);
}

static void *own_parts(const struct shoal_tape *tape, const struct shoali_node *node)
{
    const int32_t rank = ranks_of(tape) > 1 ? tape->args.tensor_parallel.rank : 0;
    return shoali_at(node->out[SHOALI_LOSS_PARTS]->tensor.data, own_count(tape, node) * rank,
                     wide_of(node));
}

shoal_status shoali_vocab_parallel_loss_begin(struct shoal_tape *tape, struct shoali_node *node,
                                              int32_t index,
                                              struct shoali_cross_entropy_tile_args *tile)
{
    shoal_status status = SHOAL_OK;
    const int64_t rows = rows_of(node);
    const shoal_dtype wide = wide_of(node);
    void *own = shoali_at(own_parts(tape, node), 3 * rows * index, wide);
    tile->targets = node->in[TARGETS]->tensor.data;
    tile->largest = own;
    tile->lse = shoali_at(own, rows, wide);
    tile->loss = shoali_at(own, 2 * rows, wide);
    tile->rows = rows;
    tile->vocabulary = INT64_MAX; /* no tile is the last: the join is */
    const struct shoali_set_args largest = {
        .y = own, .count = rows, .value = -(double)INFINITY, .dtype = wide};
    const struct shoali_set_args others = {.y = tile->lse, .count = 2 * rows, .dtype = wide};
    if (rows > 0) {
        SHOAL_TRY(status, SHOALI_RUN(tape, set, &largest), done);
        SHOAL_TRY(status, SHOALI_RUN(tape, set, &others), done);
    }
done:
    return status;
}

shoal_status shoali_vocab_parallel_loss_post(struct shoal_tape *tape, struct shoali_node *node)
{
    return shoali_tensor_post(tape, node, own_parts(tape, node),
                              node->out[SHOALI_LOSS_PARTS]->tensor.data, own_count(tape, node),
                              wide_of(node), SHOALI_TENSOR_GATHER);
}

shoal_status shoali_vocab_parallel_loss_join(struct shoal_tape *tape, struct shoali_node *node,
                                             int64_t vocabulary)
{
    shoal_status status;
    void *loss;
    SHOAL_TRY(status, shoali_tape_workspace(tape, node->out[SHOALI_LOSS_LSE]->bytes, &loss), done);
    const struct shoali_cross_entropy_join_args join = {
        .parts = node->out[SHOALI_LOSS_PARTS]->tensor.data,
        .targets = node->in[TARGETS]->tensor.data,
        .loss = loss,
        .lse = node->out[SHOALI_LOSS_LSE]->tensor.data,
        .rows = rows_of(node),
        .ways = pieces_of(node),
        .vocabulary = vocabulary,
        .dtype = wide_of(node),
    };
    const struct shoali_loss_mean_args mean = {
        .loss = loss,
        .targets = join.targets,
        .mean = node->out[SHOALI_LOSS_RESULT]->tensor.data,
        .count = node->out[SHOALI_LOSS_COUNT]->tensor.data,
        .rows = join.rows,
        .dtype = join.dtype,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, cross_entropy_join, &join), done);
    SHOAL_TRY(status, SHOALI_RUN(tape, loss_mean, &mean), done);
done:
    shoali_tape_workspace_free(tape, loss);
    return status;
}

/* ---- cross-entropy ---- */

static shoal_status cut_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_row_need_float(node, LOGITS), done);
    const struct shoal_tensor *logits = &node->in[LOGITS]->tensor;
    shoal_shape whole = logits->shape;
    whole.dim[whole.ndim - 1] = logits->columns.whole[0];
    SHOAL_TRY(status, shoali_row_need_targets(node, TARGETS, &whole), done);
    SHOAL_TRY(status, shoali_loss_smooth(node, logits->columns.whole[0], shoali_node_attr(node)),
              done);
    SHOAL_TRY(
        status,
        shoali_vocab_parallel_loss_outputs(tape, node, TARGETS, logits->dtype, &logits->columns),
        done);
done:
    return status;
}

static shoal_status cut_post(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct shoal_tensor *logits = &node->in[LOGITS]->tensor;
    const struct shoali_loss_labels *labels = shoali_node_attr(node);
    for (int32_t i = 0; i < shoali_columns_pieces(tape, &logits->columns); i++) {
        const struct shoali_interval piece = shoali_columns_piece(tape, &logits->columns, i);
        struct shoali_cross_entropy_tile_args tile = {
            .logits = shoali_at(logits->data, piece.begin, logits->dtype),
            .columns = piece.count,
            .stride = shoali_last_dim(&logits->shape),
            .first = logits->columns.first[0] + piece.begin,
            .dtype = logits->dtype,
            .labels = labels->wanted,
        };
        SHOAL_TRY(status, shoali_vocab_parallel_loss_begin(tape, node, i, &tile), done);
        if (piece.count > 0)
            SHOAL_TRY(status, SHOALI_RUN(tape, cross_entropy_tile, &tile), done);
    }
    SHOAL_TRY(status, shoali_vocab_parallel_loss_post(tape, node), done);
done:
    return status;
}

static shoal_status cut_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    return shoali_vocab_parallel_loss_join(tape, node, node->in[LOGITS]->tensor.columns.whole[0]);
}

static shoal_status cut_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *logits = &node->in[LOGITS]->tensor;
    const void *values = logits->data;
    const struct shoali_loss_labels *labels = shoali_node_attr(node);
    const int64_t columns = shoali_last_dim(&logits->shape);
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin_over(tape, node, LOGITS, &to, &accumulate), done);
    const struct shoali_cross_entropy_tile_backward_args args = {
        .logits = values,
        .targets = node->in[TARGETS]->tensor.data,
        .lse = node->out[SHOALI_LOSS_LSE]->tensor.data,
        .dloss = shoali_node_grad(tape, node, SHOALI_LOSS_RESULT),
        .count = node->out[SHOALI_LOSS_COUNT]->tensor.data,
        .dlogits = to,
        .rows = rows_of(node),
        .columns = columns,
        .stride = columns,
        .stride_out = columns,
        .first = logits->columns.first[0],
        .dtype = logits->dtype,
        .dtype_out = logits->dtype,
        .labels = labels->wanted,
    };
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, cross_entropy_tile_backward, &args), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, LOGITS), done);
done:
    return status;
}

static void cut_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                     int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    const int64_t count = shoali_count(&node->in[LOGITS]->tensor);
    *flops_forward = shoali_loss_flops(shoali_node_attr(node)) * count;
    *flops_backward = 4 * count;
    *bytes = shoali_cost_bytes(node);
}

static const struct shoali_op_row cut_row = {
    SHOALI_ROW_HEAD,
    .name = "cross_entropy",
    .infer = cut_infer,
    .forward_post = cut_post,
    .forward_finish = cut_finish,
    .backward_input = cut_backward,
    .cost = cut_cost,
    .saves_inputs = 1u << LOGITS | 1u << TARGETS,
    .saves_outputs = 1u << SHOALI_LOSS_LSE | 1u << SHOALI_LOSS_COUNT,
    .flags = SHOALI_ROW_COLLECTIVE | SHOALI_ROW_COLUMNS,
};

shoal_tensor *shoali_vocab_parallel_cross_entropy(shoal_tape *tape, shoal_tensor *logits,
                                                  shoal_tensor *targets, double label_smoothing)
{
    const struct shoali_loss_labels labels = {.smoothing = label_smoothing};
    return shoali_tape_record(tape, &(struct shoali_record_args){.row = &cut_row,
                                                                 .inputs = {logits, targets},
                                                                 .attr = &labels,
                                                                 .attr_bytes = sizeof labels});
}
