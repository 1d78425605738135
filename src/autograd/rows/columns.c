/* columns.c - tensors whose last dim tp divides: which part is whose, and the whole of it. */
#include "autograd/rows/rows.h"

/* ---- whose columns ---- */

bool shoali_columns_equal(const struct shoali_columns *a, const struct shoali_columns *b)
{
    bool equal = a->parts == b->parts;
    for (int32_t p = 0; equal && p < a->parts; p++)
        equal =
            a->whole[p] == b->whole[p] && a->first[p] == b->first[p] && a->count[p] == b->count[p];
    return equal;
}

void shoali_tensor_set_columns(struct shoali_node *node, const struct shoali_columns *columns)
{
    struct shoal_tensor *out = &node->out[0]->tensor;
    struct shoali_block *block = &out->block;
    const int64_t count = shoali_last_dim(&out->shape);
    out->columns = *columns;
    /* one part is a contiguous block, of which dropout knows the place */
    if (columns->parts != 1 || block->ndim < 1 || block->count[block->ndim - 1] != count)
        return;
    block->global[block->ndim - 1] = columns->whole[0];
    block->offset[block->ndim - 1] = columns->first[0];
}

static int64_t local_columns(const struct shoali_columns *columns, int32_t ranks, int32_t rank)
{
    int64_t sum = 0;
    for (int32_t p = 0; p < columns->parts; p++)
        sum += shoali_shard_share_of(columns->whole[p], columns->unit[p], columns->fine[p],
                                     columns->splits, ranks, rank, NULL)
                   .count;
    return sum;
}

static int64_t whole_columns(const struct shoali_columns *columns)
{
    int64_t sum = 0;
    for (int32_t p = 0; p < columns->parts; p++)
        sum += columns->whole[p];
    return sum;
}

static int64_t most_columns(const struct shoali_columns *columns, int32_t ranks)
{
    int64_t most = 0;
    for (int32_t r = 0; r < ranks; r++) {
        const int64_t count = local_columns(columns, ranks, r);
        most = count > most ? count : most;
    }
    return most;
}

shoal_status shoali_tensor_check_shares(const struct shoal_tape *tape,
                                        const struct shoal_param *weight)
{
    const struct shoali_columns *columns = &weight->columns;
    const int32_t ranks = tape->args.tensor_parallel.ranks;
    for (int32_t p = 0; p < columns->parts; p++) {
        const int64_t units = columns->whole[p] / columns->unit[p];
        bool empty = columns->fine[p] > 0 && units < ranks && ranks % units != 0;
        for (int32_t r = 0; r < ranks && !empty; r++)
            empty = shoali_shard_share(columns->whole[p], columns->unit[p], columns->fine[p], ranks,
                                       r, NULL)
                        .count == 0;
        if (empty)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%d ranks along tp cannot divide parameter %s: it has %lld units of "
                              "%lld indices (heads, groups of heads, rows); use at most that many "
                              "ranks, or a number that heads of a group can share",
                              (int)ranks, weight->name, (long long)units,
                              (long long)columns->unit[p]);
    }
    return SHOAL_OK;
}

/* ---- heads ---- */

/* False: qkv is cut, but not into whole heads. */
static bool tensor_heads(const shoal_tensor *qkv, int64_t heads, int64_t kv_heads,
                         struct shoali_heads *mine)
{
    const struct shoali_columns *c = &qkv->columns;
    *mine = (struct shoali_heads){heads, kv_heads, 0, heads};
    if (c->parts == 0)
        return true;
    if (c->parts != 3 || heads < 1 || kv_heads < 1 || c->whole[0] % heads != 0)
        return false;
    const int64_t size = c->whole[0] / heads;
    bool fits = size > 0;
    for (int32_t p = 0; fits && p < 3; p++)
        fits = c->whole[p] == (p == 0 ? heads : kv_heads) * size && c->first[p] % size == 0 &&
               c->count[p] % size == 0 && c->count[p] > 0;
    if (!fits || c->count[1] != c->count[2] || c->first[1] != c->first[2])
        return false;
    mine->heads = c->count[0] / size;
    mine->kv_heads = c->count[1] / size;
    mine->first_head = c->first[0] / size;
    /* each query head's key head is here */
    const int64_t group = heads / kv_heads, last = mine->first_head + mine->heads - 1;
    return mine->heads % mine->kv_heads == 0 && mine->first_head / group == c->first[1] / size &&
           last / group == c->first[1] / size + mine->kv_heads - 1 &&
           (mine->kv_heads == 1 || mine->heads == mine->kv_heads * group);
}

shoal_tensor *shoali_tensor_need_heads(shoal_tape *tape, shoal_tensor *qkv, int64_t heads,
                                       int64_t kv_heads, struct shoali_heads *mine)
{
    *mine = (struct shoali_heads){heads, kv_heads, 0, heads};
    if (tape->status < 0 || qkv == NULL)
        return qkv;
    if (qkv->sequence_part)
        qkv = shoali_tensor_gather_sequence(tape, qkv);
    if (qkv == NULL || tensor_heads(qkv, heads, kv_heads, mine))
        return qkv;
    *mine = (struct shoali_heads){heads, kv_heads, 0, heads};
    return shoali_tensor_gather_columns(tape, qkv);
}

/* ---- moving them ---- */

struct columns_attr {
    struct shoali_columns columns;
    int64_t whole, mine, most; /* columns; set by infer, as is rows */
    int64_t rows;
};

/* Between the whole and one rank's columns, whose rows are `stride` apart. */
static shoal_status move_columns(struct shoal_tape *tape, const struct columns_attr *attr,
                                 int32_t rank, const void *from, void *to, int64_t stride,
                                 bool to_whole, bool accumulate, shoal_dtype dtype)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_columns *columns = &attr->columns;
    int64_t local = 0, begin = 0;
    for (int32_t p = 0; p < columns->parts; p++) {
        const struct shoali_interval part =
            shoali_shard_share_of(columns->whole[p], columns->unit[p], columns->fine[p],
                                  columns->splits, tape->args.tensor_parallel.ranks, rank, NULL);
        const int64_t global = begin + part.begin;
        const struct shoali_copy_strided_args args = {
            .x = shoali_at(from, to_whole ? local : global, dtype),
            .y = shoali_at(to, to_whole ? global : local, dtype),
            .ndim = 2,
            .dim = {attr->rows, part.count},
            .x_stride = {to_whole ? stride : attr->whole, 1},
            .y_stride = {to_whole ? attr->whole : stride, 1},
            .accumulate = accumulate,
            .dtype = dtype,
        };
        SHOAL_TRY(status, SHOALI_RUN(tape, copy_strided, &args), done);
        local += part.count;
        begin += columns->whole[p];
    }
done:
    return status;
}

/* What all send is as wide as the widest share: own columns, then nothing of meaning. The scratch
 * has a place for each rank; the own one is what is sent. */
static shoal_status post_columns(struct shoal_tape *tape, struct shoali_node *node,
                                 const void *from, shoal_dtype dtype)
{
    shoal_status status;
    const struct columns_attr *attr = shoali_node_attr(node);
    const struct shoali_tensor_parallel *tp = &tape->args.tensor_parallel;
    const int64_t count = attr->rows * attr->most;
    const size_t bytes = (size_t)count * shoal_dtype_bytes(dtype);
    void *all;
    SHOAL_TRY(status, shoali_node_scratch(tape, node, bytes * (size_t)tp->ranks, &all), done);
    void *own = shoali_at(all, tp->rank * count, dtype);
    const struct shoali_copy_strided_args args = {
        .x = from,
        .y = own,
        .ndim = 2,
        .dim = {attr->rows, attr->mine},
        .x_stride = {attr->mine, 1},
        .y_stride = {attr->most, 1},
        .dtype = dtype,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, copy_strided, &args), done);
    SHOAL_TRY(status, shoali_tensor_post(tape, node, own, all, count, dtype, SHOALI_TENSOR_GATHER),
              done);
done:
    return status;
}

static shoal_status place_columns(struct shoal_tape *tape, struct shoali_node *node, void *to,
                                  shoal_dtype dtype)
{
    shoal_status status = SHOAL_OK;
    const struct columns_attr *attr = shoali_node_attr(node);
    const void *all = shoali_slot_address(tape->args.slot, node->scratch);
    for (int32_t r = 0; r < tape->args.tensor_parallel.ranks; r++)
        SHOAL_TRY(status,
                  move_columns(tape, attr, r, shoali_at(all, r * attr->rows * attr->most, dtype),
                               to, attr->most, true, false, dtype),
                  done);
done:
    return status;
}

static shoal_status own_columns(struct shoal_tape *tape, struct shoali_node *node, const void *from,
                                void *to, bool accumulate, shoal_dtype dtype)
{
    const struct columns_attr *attr = shoali_node_attr(node);
    return move_columns(tape, attr, tape->args.tensor_parallel.rank, from, to, attr->mine, false,
                        accumulate, dtype);
}

static void count_columns(const struct shoal_tape *tape, const struct shoal_tensor *x,
                          struct columns_attr *attr)
{
    const struct shoali_tensor_parallel *tp = &tape->args.tensor_parallel;
    attr->rows = shoali_row_count(x);
    attr->whole = whole_columns(&attr->columns);
    attr->mine = local_columns(&attr->columns, tp->ranks, tp->rank);
    attr->most = most_columns(&attr->columns, tp->ranks);
}

/* ---- gather ---- */

static shoal_status gather_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct columns_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    shoal_shape shape = x->shape;
    count_columns(tape, x, attr);
    if (attr->columns.sharers > 1 && node->needs_backward) {
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                            "keys or values that %d ranks share along tp are read by an op that "
                            "needs those of all ranks: use fewer ranks along tp",
                            (int)attr->columns.sharers);
        goto done;
    }
    shape.dim[shape.ndim - 1] = attr->whole;
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, x->dtype, &shape, -1), done);
    shoali_block_leading(node, shape.ndim - 1);
done:
    return status;
}

static shoal_status gather_post(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoal_tensor *x = &node->in[0]->tensor;
    return post_columns(tape, node, x->data, x->dtype);
}

static shoal_status gather_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoal_tensor *y = &node->out[0]->tensor;
    return place_columns(tape, node, y->data, y->dtype);
}

static shoal_status gather_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status,
                  own_columns(tape, node, shoali_node_grad(tape, node, 0), to, accumulate,
                              node->in[0]->tensor.dtype),
                  done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row gather_row = {
    SHOALI_ROW_HEAD,
    .name = "gather_columns",
    .infer = gather_infer,
    .forward_post = gather_post,
    .forward_finish = gather_finish,
    .backward_input = gather_backward,
    .cost = shoali_cost_move,
    .flags = SHOALI_ROW_COLLECTIVE | SHOALI_ROW_HELPER | SHOALI_ROW_COLUMNS | SHOALI_ROW_SEQUENCE,
};

shoal_tensor *shoali_tensor_gather_columns(shoal_tape *tape, shoal_tensor *x)
{
    if (tape->status < 0 || x == NULL || x->columns.parts == 0)
        return x;
    const struct columns_attr attr = {.columns = x->columns};
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &gather_row, .inputs = {x}, .attr = &attr, .attr_bytes = sizeof attr});
}

/* ---- take ---- */

static shoal_status take_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct columns_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    shoal_shape shape = x->shape;
    count_columns(tape, x, attr);
    shape.dim[shape.ndim - 1] = attr->mine;
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, x->dtype, &shape, -1), done);
    shoali_block_leading(node, shape.ndim - 1);
    shoali_tensor_set_columns(node, &attr->columns);
done:
    return status;
}

static shoal_status take_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoal_tensor *y = &node->out[0]->tensor;
    return own_columns(tape, node, node->in[0]->tensor.data, y->data, false, y->dtype);
}

static shoal_status take_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const shoal_dtype dtype = node->in[0]->tensor.dtype;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status, post_columns(tape, node, shoali_node_grad(tape, node, 0), dtype), done);
done:
    return status;
}

static shoal_status take_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    void *to = tape->grad_temp[0] != NULL ? tape->grad_temp[0] : node->in[0]->grad;
    if (node->scratch != SHOALI_NO_SEGMENT)
        SHOAL_TRY(status, place_columns(tape, node, to, node->in[0]->tensor.dtype), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row take_row = {
    SHOALI_ROW_HEAD,          .name = "take_columns",         .infer = take_infer,
    .forward = take_forward,  .backward_post = take_backward, .backward_finish = take_finish,
    .cost = shoali_cost_move, .flags = SHOALI_ROW_HELPER,
};

shoal_tensor *shoali_tensor_take_columns(shoal_tape *tape, shoal_tensor *x,
                                         const struct shoali_columns *columns)
{
    const struct columns_attr attr = {.columns = *columns};
    if (tape->status < 0 || x == NULL)
        return NULL;
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &take_row, .inputs = {x}, .attr = &attr, .attr_bytes = sizeof attr});
}
