/* linear_cross_entropy.c - the head of a language model, logits = x weight^T and their mean
 * cross-entropy, in tiles of the vocabulary.
 *
 * The rows x V logits are never in memory: forward makes a tile of them and keeps each row's
 * running maximum and sum of exponentials; backward makes the tile again, turns it into its
 * gradient in place, and adds its share of dx and of those rows of dweight that belong to it. The
 * price is that second product.
 *
 * The logits of a tile are fp32 (fp64 for F64), their gradient of x's type. dx adds the tiles'
 * products in increasing order in fp32 and is rounded once; an element of dweight is one product of
 * one tile. So nothing depends on threads or on memory, only on TILE, which is part of the result.
 */
#include "autograd/rows/vocab_parallel_loss.h"

/* Columns of a tile: a product as wide as its inner dimension is long, and 4 KB of logits per row.
 */
enum { TILE = 1024 };
/* Rows of a power of two bytes would meet in few sets of a cache. */
enum { PADDING = 16 };

struct head_attr {
    int64_t rows, in, vocabulary; /* set by infer */
    int64_t first, whole;         /* where tp divides the vocabulary; set by infer */
    struct shoali_loss_labels labels;
};

/* Rows of the weight: all, a piece of them, or a tile. */
struct span {
    int64_t first, count;
};

enum { X, TARGETS };
enum { WEIGHT };
enum { RESULT, LSE, COUNT };

static shoal_status head_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct head_attr *attr = shoali_node_attr(node);
    const struct shoal_param *weight = node->param[WEIGHT];
    char x_text[128], weight_text[128];
    SHOAL_TRY(status, shoali_row_need_float(node, X), done);
    const struct shoal_tensor *x = &node->in[X]->tensor;
    attr->in = shoali_last_dim(&x->shape);
    if (x->shape.ndim == 0 || attr->in == 0 || weight == NULL || weight->shape.ndim != 2 ||
        weight->shape.dim[0] == 0 || weight->shape.dim[1] != attr->in) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "linear_cross_entropy: x %s and weight %s %s do not fit; the weight "
                            "must be [classes, last dim of x]",
                            shoali_shape_format(&x->shape, x_text),
                            weight != NULL ? weight->name : "NULL",
                            weight != NULL ? shoali_shape_format(&weight->shape, weight_text) : "");
        goto done;
    }
    SHOAL_TRY(status, shoali_row_need_param(node, WEIGHT, x->dtype, &weight->shape), done);
    SHOAL_TRY(status, shoali_exact_splits_check(weight), done);
    attr->rows = shoali_row_count(x);
    attr->vocabulary = weight->shape.dim[0];
    shoal_shape logits = x->shape;
    const bool cut = node->row->forward_post != NULL;
    attr->first = cut ? weight->columns.first[0] : 0;
    attr->whole = cut ? weight->columns.whole[0] : attr->vocabulary;
    logits.dim[logits.ndim - 1] = attr->whole;
    SHOAL_TRY(status, shoali_loss_smooth(node, attr->whole, &attr->labels), done);
    SHOAL_TRY(status, shoali_row_need_targets(node, TARGETS, &logits), done);
    if (cut) {
        status =
            shoali_vocab_parallel_loss_outputs(tape, node, TARGETS, x->dtype, &weight->columns);
        goto done;
    }
    const struct shoal_tensor *targets = &node->in[TARGETS]->tensor;
    const shoal_dtype wide = shoali_wide(x->dtype);
    const shoal_shape scalar = {0}, rows = shoal_shape_1(attr->rows);
    SHOAL_TRY(status, shoali_node_output(tape, node, RESULT, wide, &scalar, 1), done);
    SHOAL_TRY(status, shoali_node_output(tape, node, LSE, wide, &rows, targets->bound), done);
    SHOAL_TRY(status, shoali_node_output(tape, node, COUNT, wide, &scalar, 1), done);
done:
    return status;
}

/* The tile that begins at `first` in a span. */
static struct span tile_at(const struct span *span, int64_t first)
{
    const int64_t left = span->first + span->count - first;
    return (struct span){first, left < TILE ? left : TILE};
}

/* Pieces that sums over the vocabulary are made of here, and one of them. */
static int32_t pieces_of(const struct shoal_tape *tape, const struct shoali_node *node)
{
    const struct shoali_columns *columns = &node->param[WEIGHT]->columns;
    return columns->splits > 1 ? shoali_columns_pieces(tape, columns) : 1;
}

static struct span piece_of(const struct shoal_tape *tape, const struct shoali_node *node,
                            int32_t index)
{
    const struct head_attr *attr = shoali_node_attr(node);
    if (node->param[WEIGHT]->columns.splits <= 1)
        return (struct span){0, attr->vocabulary};
    const struct shoali_interval piece =
        shoali_columns_piece(tape, &node->param[WEIGHT]->columns, index);
    return (struct span){piece.begin, piece.count};
}

/* Elements between rows of a tile, in the wide type. */
static int64_t tile_stride(const struct head_attr *attr)
{
    return (attr->vocabulary < TILE ? attr->vocabulary : TILE) + PADDING;
}

static shoal_status tile_workspace(struct shoal_tape *tape, const struct shoali_node *node,
                                   void **logits)
{
    const struct head_attr *attr = shoali_node_attr(node);
    return shoali_tape_workspace(tape, node->out[LSE]->bytes * (size_t)tile_stride(attr), logits);
}

static shoal_status tile_logits(struct shoal_tape *tape, const struct shoali_node *node,
                                const struct span *tile, void *logits)
{
    const struct head_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[X]->tensor;
    const struct shoali_gemm_args args = {
        .a = x->data,
        .b = shoali_at(node->param[WEIGHT]->data, tile->first * attr->in, x->dtype),
        .c = logits,
        .m = attr->rows,
        .n = tile->count,
        .k = attr->in,
        .lda = attr->in,
        .ldb = attr->in,
        .ldc = tile_stride(attr),
        .trans_b = 1,
        .dtype_ab = x->dtype,
        .dtype_c = shoali_wide(x->dtype),
    };
    return SHOALI_RUN(tape, gemm, &args);
}

static shoal_status forward_tiles(struct shoal_tape *tape, const struct shoali_node *node,
                                  void *logits, void *largest, void *loss)
{
    shoal_status status = SHOAL_OK;
    const struct head_attr *attr = shoali_node_attr(node);
    const struct span all = {0, attr->vocabulary};
    for (int64_t first = 0; first < attr->vocabulary; first += TILE) {
        const struct span tile = tile_at(&all, first);
        const struct shoali_cross_entropy_tile_args args = {
            .logits = logits,
            .targets = node->in[TARGETS]->tensor.data,
            .largest = largest,
            .loss = loss,
            .lse = node->out[LSE]->tensor.data,
            .rows = attr->rows,
            .columns = tile.count,
            .stride = tile_stride(attr),
            .first = first,
            .vocabulary = attr->vocabulary,
            .dtype = shoali_wide(node->in[X]->tensor.dtype),
            .labels = attr->labels.wanted,
        };
        SHOAL_TRY(status, tile_logits(tape, node, &tile, logits), done);
        SHOAL_TRY(status, SHOALI_RUN(tape, cross_entropy_tile, &args), done);
    }
done:
    return status;
}

static shoal_status head_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct head_attr *attr = shoali_node_attr(node);
    void *logits = NULL, *largest = NULL, *loss = NULL;
    SHOAL_TRY(status, tile_workspace(tape, node, &logits), done);
    SHOAL_TRY(status, shoali_tape_workspace(tape, node->out[LSE]->bytes, &largest), done);
    SHOAL_TRY(status, shoali_tape_workspace(tape, node->out[LSE]->bytes, &loss), done);
    SHOAL_TRY(status, forward_tiles(tape, node, logits, largest, loss), done);
    const struct shoali_loss_mean_args mean = {
        .loss = loss,
        .targets = node->in[TARGETS]->tensor.data,
        .mean = node->out[RESULT]->tensor.data,
        .count = node->out[COUNT]->tensor.data,
        .rows = attr->rows,
        .dtype = shoali_wide(node->in[X]->tensor.dtype),
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, loss_mean, &mean), done);
done:
    shoali_tape_workspace_free(tape, loss);
    shoali_tape_workspace_free(tape, largest);
    shoali_tape_workspace_free(tape, logits);
    return status;
}

/* ---- forward where the vocabulary is in pieces ---- */

static shoal_status cut_piece(struct shoal_tape *tape, struct shoali_node *node, int32_t index,
                              void *logits)
{
    shoal_status status;
    const struct head_attr *attr = shoali_node_attr(node);
    const struct span piece = piece_of(tape, node, index);
    struct shoali_cross_entropy_tile_args args = {
        .logits = logits,
        .stride = tile_stride(attr),
        .dtype = node->out[LSE]->tensor.dtype,
        .labels = attr->labels.wanted,
    };
    SHOAL_TRY(status, shoali_vocab_parallel_loss_begin(tape, node, index, &args), done);
    for (int64_t at = piece.first; at < piece.first + piece.count; at += TILE) {
        const struct span tile = tile_at(&piece, at);
        args.columns = tile.count;
        args.first = attr->first + at;
        SHOAL_TRY(status, tile_logits(tape, node, &tile, logits), done);
        SHOAL_TRY(status, SHOALI_RUN(tape, cross_entropy_tile, &args), done);
    }
done:
    return status;
}

static shoal_status cut_post(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    void *logits = NULL;
    SHOAL_TRY(status, tile_workspace(tape, node, &logits), done);
    for (int32_t i = 0; i < pieces_of(tape, node); i++)
        SHOAL_TRY(status, cut_piece(tape, node, i, logits), done);
    SHOAL_TRY(status, shoali_vocab_parallel_loss_post(tape, node), done);
done:
    shoali_tape_workspace_free(tape, logits);
    return status;
}

static shoal_status cut_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct head_attr *attr = shoali_node_attr(node);
    return shoali_vocab_parallel_loss_join(tape, node, attr->whole);
}

/* ---- backward ---- */

/* Elements between rows of the gradient, which begin where the logits' rows do. */
static int64_t gradient_stride(const struct shoali_node *node)
{
    const shoal_dtype dtype = node->in[X]->tensor.dtype;
    const size_t wide = shoal_dtype_bytes(shoali_wide(dtype));
    return tile_stride(shoali_node_attr(node)) * (int64_t)(wide / shoal_dtype_bytes(dtype));
}

static shoal_status tile_gradient(struct shoal_tape *tape, const struct shoali_node *node,
                                  const struct span *tile, void *logits)
{
    shoal_status status;
    const struct head_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = node->in[X]->tensor.dtype;
    const struct shoali_cross_entropy_tile_backward_args args = {
        .logits = logits,
        .targets = node->in[TARGETS]->tensor.data,
        .lse = node->out[LSE]->tensor.data,
        .dloss = shoali_node_grad(tape, node, RESULT),
        .count = node->out[COUNT]->tensor.data,
        .dlogits = logits,
        .rows = attr->rows,
        .columns = tile->count,
        .stride = tile_stride(attr),
        .stride_out = gradient_stride(node),
        .first = attr->first + tile->first,
        .dtype = shoali_wide(dtype),
        .dtype_out = dtype,
        .labels = attr->labels.wanted,
    };
    SHOAL_TRY(status, tile_logits(tape, node, tile, logits), done);
    SHOAL_TRY(status, SHOALI_RUN(tape, cross_entropy_tile_backward, &args), done);
done:
    return status;
}

/* dx (+)= dlogits weight, in the wide type. */
static shoal_status tile_input(struct shoal_tape *tape, const struct shoali_node *node,
                               const struct span *tile, const void *dlogits, void *dx, bool add)
{
    const struct head_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = node->in[X]->tensor.dtype;
    const struct shoali_gemm_args args = {
        .a = dlogits,
        .b = shoali_at(node->param[WEIGHT]->data, tile->first * attr->in, dtype),
        .c = dx,
        .m = attr->rows,
        .n = attr->in,
        .k = tile->count,
        .lda = gradient_stride(node),
        .ldb = attr->in,
        .ldc = attr->in,
        .accumulate = add,
        .dtype_ab = dtype,
        .dtype_c = shoali_wide(dtype),
    };
    return SHOALI_RUN(tape, gemm, &args);
}

/* The tile's rows of dweight = dlogits^T x. */
static shoal_status tile_weight(struct shoal_tape *tape, struct shoali_node *node,
                                const struct span *tile, const void *dlogits)
{
    shoal_status status;
    const struct head_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[X]->tensor;
    const int64_t begin = tile->first * attr->in, count = tile->count * attr->in;
    bool wanted;
    struct shoali_gemm_args args = {
        .a = dlogits,
        .b = x->data,
        .m = tile->count,
        .n = attr->in,
        .k = attr->rows,
        .lda = gradient_stride(node),
        .ldb = attr->in,
        .ldc = attr->in,
        .trans_a = 1,
        .dtype_ab = x->dtype,
        .dtype_c = shoali_wide(x->dtype),
    };
    SHOAL_TRY(status, shoali_param_grad_product(tape, node, WEIGHT, begin, count, &args, &wanted),
              done);
    if (wanted)
        SHOAL_TRY(status, SHOALI_RUN(tape, gemm, &args), done);
    SHOAL_TRY(status, shoali_param_grad_part_end(tape, node, WEIGHT, begin, count), done);
done:
    return status;
}

/* A piece's tiles: dx, in the wide type, and rows of dweight. */
static shoal_status backward_piece(struct shoal_tape *tape, struct shoali_node *node,
                                   const struct span *piece, void *logits, void *dx)
{
    shoal_status status = SHOAL_OK;
    for (int64_t at = piece->first; at < piece->first + piece->count; at += TILE) {
        const struct span tile = tile_at(piece, at);
        SHOAL_TRY(status, tile_gradient(tape, node, &tile, logits), done);
        if (dx != NULL)
            SHOAL_TRY(status, tile_input(tape, node, &tile, logits, dx, at > piece->first), done);
        SHOAL_TRY(status, tile_weight(tape, node, &tile, logits), done);
    }
done:
    return status;
}

/* Pieces [first, first + count), whose shares of dx are joined by a tree. */
static shoal_status backward_pieces(struct shoal_tape *tape, struct shoali_node *node,
                                    int32_t first, int32_t count, void *logits, void *dx)
{
    shoal_status status;
    const int32_t half = count / 2;
    const struct shoal_tensor *x = &node->in[X]->tensor;
    const shoal_dtype wide = shoali_wide(x->dtype);
    const struct span piece = piece_of(tape, node, first);
    void *right = NULL;
    if (count == 1)
        return backward_piece(tape, node, &piece, logits, dx);
    if (dx != NULL)
        SHOAL_TRY(status,
                  shoali_tape_workspace(tape, (size_t)x->bound * shoal_dtype_bytes(wide), &right),
                  done);
    SHOAL_TRY(status, backward_pieces(tape, node, first, half, logits, dx), done);
    SHOAL_TRY(status, backward_pieces(tape, node, first + half, half, logits, right), done);
    if (dx != NULL)
        SHOAL_TRY(status, shoali_split_add(tape, dx, right, shoali_count(x), wide), done);
done:
    shoali_tape_workspace_free(tape, right);
    return status;
}

/* Sums of splits end as those that come from other ranks do. */
static shoal_status round_input(struct shoal_tape *tape, const struct shoali_node *node,
                                const void *sum, void *to)
{
    const struct head_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[X]->tensor;
    const struct shoali_convert_args round = {.x = sum,
                                              .y = to,
                                              .count = shoali_count(x),
                                              .dtype = shoali_wide(x->dtype),
                                              .dtype_out = x->dtype};
    const struct shoali_split_end end = {
        .sum = sum, .c = to, .rows = attr->rows, .columns = attr->in, .dtype = x->dtype};
    return pieces_of(tape, node) > 1 ? shoali_split_finish(tape, &end)
                                     : SHOALI_RUN(tape, convert, &round);
}

/* Both parts at once: a deferred dweight would need a third product. */
static shoal_status head_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *x = &node->in[X]->tensor;
    const shoal_dtype wide = shoali_wide(x->dtype);
    void *logits = NULL, *sum = NULL, *to;
    bool accumulate;
    SHOAL_TRY(status, tile_workspace(tape, node, &logits), done);
    SHOAL_TRY(status, shoali_grad_begin(tape, node, X, false, &to, &accumulate), done);
    const bool narrow = to != NULL && wide != x->dtype && !node->in[X]->wide_grad;
    if (narrow)
        SHOAL_TRY(status,
                  shoali_tape_workspace(tape, (size_t)x->bound * shoal_dtype_bytes(wide), &sum),
                  done);
    SHOAL_TRY(status,
              backward_pieces(tape, node, 0, pieces_of(tape, node), logits, narrow ? sum : to),
              done);
    if (narrow)
        SHOAL_TRY(status, round_input(tape, node, sum, to), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, X), done);
done:
    shoali_tape_workspace_free(tape, sum);
    shoali_tape_workspace_free(tape, logits);
    return status;
}

static void head_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                      int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    const struct head_attr *attr = shoali_node_attr(node);
    const int64_t logits = attr->rows * attr->vocabulary, product = 2 * logits * attr->in;
    const int64_t products = 1 + (node->in[X]->tensor.needs_grad ? 1 : 0) +
                             (shoali_param_wants_grad(node->param[WEIGHT]) ? 1 : 0);
    *flops_forward = product + shoali_loss_flops(&attr->labels) * logits;
    *flops_backward = products * product + 4 * logits;
    *bytes = shoali_cost_bytes(node);
}

static const struct shoali_op_row head_row = {
    SHOALI_ROW_HEAD,
    .name = "linear_cross_entropy",
    .infer = head_infer,
    .forward = head_forward,
    .backward_input = head_backward,
    .cost = head_cost,
    .saves_inputs = 1u << X | 1u << TARGETS,
    .saves_outputs = 1u << LSE | 1u << COUNT,
};

static const struct shoali_op_row cut_row = {
    SHOALI_ROW_HEAD,
    .name = "linear_cross_entropy",
    .infer = head_infer,
    .forward_post = cut_post,
    .forward_finish = cut_finish,
    .backward_input = head_backward,
    .cost = head_cost,
    .saves_inputs = 1u << X | 1u << TARGETS,
    .saves_outputs = 1u << LSE | 1u << COUNT,
    .flags = SHOALI_ROW_COLLECTIVE,
};

shoal_tensor *shoal_linear_cross_entropy(shoal_tape *tape, shoal_tensor *x, shoal_param *weight,
                                         shoal_tensor *targets)
{
    return shoal_linear_cross_entropy_smoothed(tape, x, weight, targets, 0);
}

shoal_tensor *shoal_linear_cross_entropy_smoothed(shoal_tape *tape, shoal_tensor *x,
                                                  shoal_param *weight, shoal_tensor *targets,
                                                  double label_smoothing)
{
    const struct head_attr attr = {.labels = {.smoothing = label_smoothing}};
    struct shoali_record_args record = {.row = &head_row,
                                        .inputs = {x, targets},
                                        .params = {weight},
                                        .attr = &attr,
                                        .attr_bytes = sizeof attr};
    const enum shoali_tensor_rule rule = shoali_tensor_rule(tape, weight, 0);
    const bool pieces = shoali_exact_splits_of(tape, weight, 0) > 0 && weight->columns.parts == 1;
    if (rule == SHOALI_TENSOR_WHOLE && pieces)
        record.row = &cut_row;
    if (rule == SHOALI_TENSOR_WHOLE)
        return shoali_tape_record(tape, &record);
    if (rule == SHOALI_TENSOR_ROW || weight->columns.parts != 1)
        return shoali_tape_poison(
            tape, SHOAL_FAIL(SHOAL_EINVAL,
                             "linear_cross_entropy: tp must divide the classes of weight %s, its "
                             "first dim, as one part",
                             weight->name));
    if (shoali_tensor_check_shares(tape, weight) < 0)
        return shoali_tape_poison(tape, SHOAL_EINVAL);
    record.row = &cut_row;
    record.inputs[0] = shoali_tensor_enter(tape, x);
    shoal_tensor *loss = shoali_tape_record(tape, &record);
    shoali_tensor_done(tape, record.inputs[0], x);
    return loss;
}
