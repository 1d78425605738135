/* attention.c - self-attention from packed qkv. */
#include "autograd/rows/rows.h"

struct attention_attr {
    int64_t heads, kv_heads;         /* that are here */
    int64_t first_head, whole_heads; /* query heads, where tp divides them */
    double scale, dropout;
    int32_t full;
    int64_t window;
    int64_t batch, length, head_size; /* set by infer, as is mask */
    struct shoali_attention_mask mask;
    bool generating;
    void *cache; /* of k and v, when generating */
};

enum { QKV, KEY_COUNT };
enum { RESULT, LSE };

static int64_t packed_heads(const struct attention_attr *attr)
{
    return attr->heads + 2 * attr->kv_heads;
}

/* Where this call's samples, positions and heads lie in the whole attention. A split of the packed
 * dim gives each part its share of q, k and v heads, so the part is all that counts. False when it
 * cannot be known. */
static bool find_mask(const struct shoal_tensor *qkv, struct attention_attr *attr)
{
    int64_t samples, whole, offset;
    struct shoali_attention_mask mask = {0};
    const int64_t packed = qkv->shape.dim[2];
    if (!shoali_block_dim(qkv, 0, &samples, &mask.first_sample) ||
        !shoali_block_dim(qkv, 1, &mask.queries, &mask.first_query) ||
        !shoali_block_dim(qkv, 2, &whole, &offset) || whole % packed != 0 || offset % packed != 0)
        return false;
    mask.keys = mask.queries;
    mask.first_key = mask.first_query;
    mask.heads = whole / packed * attr->heads;
    mask.first_head = offset / packed * attr->heads;
    if (qkv->columns.parts > 0) {
        mask.heads = attr->whole_heads;
        mask.first_head = attr->first_head;
    }
    attr->mask = mask;
    return true;
}

/* The output's last dim holds the heads of the mask. */
static void place_heads(struct shoali_node *node, const struct attention_attr *attr)
{
    struct shoali_block *block = &node->out[RESULT]->tensor.block;
    shoali_block_leading(node, 2);
    if (attr->mask.heads == 0 || block->count[block->ndim - 1] != attr->heads * attr->head_size)
        return;
    block->global[block->ndim - 1] = attr->mask.heads * attr->head_size;
    block->offset[block->ndim - 1] = attr->mask.first_head * attr->head_size;
}

/* Which keys are seen. */
static shoal_status check_sight(const struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct attention_attr *attr = shoali_node_attr(node);
    const struct shoali_tape_tensor *counts = node->in[KEY_COUNT];
    char text[128];
    if (attr->window < 0 || (attr->window > 0 && attr->full))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "attention: the window is %lld positions; it must be at least 0, and 0 "
                          "with full attention",
                          (long long)attr->window);
    if (attr->generating && (attr->full || counts != NULL))
        return SHOAL_FAIL(SHOAL_EINVAL, "attention: generation works position by position; it "
                                        "needs causal attention without padding (key_count)");
    if (counts == NULL)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_row_need_i32(node, KEY_COUNT), done);
    if (counts->tensor.shape.ndim != 1 || counts->tensor.shape.dim[0] != attr->batch)
        status = SHOAL_FAIL(
            SHOAL_EINVAL,
            "attention: key_count is %s; it must have one number for each of the %lld samples",
            shoali_shape_format(&counts->tensor.shape, text), (long long)attr->batch);
done:
    return status;
}

static shoal_status attention_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct attention_attr *attr = shoali_node_attr(node);
    char text[128];
    SHOAL_TRY(status,
              shoali_row_need_packed_heads(node, attr->heads, attr->kv_heads, &attr->head_size),
              done);
    const struct shoal_tensor *qkv = &node->in[QKV]->tensor;
    if (!(attr->dropout >= 0 && attr->dropout < 1)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "attention: dropout %g is outside [0, 1)", attr->dropout);
        goto done;
    }
    attr->batch = qkv->shape.dim[0];
    attr->length = qkv->shape.dim[1];
    SHOAL_TRY(status, check_sight(node), done);
    if (attr->scale == 0)
        attr->scale = 1.0 / __builtin_sqrt((double)attr->head_size);
    const shoal_shape out = shoal_shape_3(attr->batch, attr->length, attr->heads * attr->head_size);
    const shoal_shape lse = shoal_shape_3(attr->batch, attr->heads, attr->length);
    SHOAL_TRY(status, shoali_node_output(tape, node, RESULT, qkv->dtype, &out, -1), done);
    SHOAL_TRY(status, shoali_node_output(tape, node, LSE, shoali_wide(qkv->dtype), &lse, -1), done);
    if (!find_mask(qkv, attr) && attr->dropout > 0) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "attention: dropout needs the place of qkv %s in the whole tensor: split it "
                       "into whole samples, positions and equal heads",
                       shoali_shape_format(&qkv->shape, text));
        goto done;
    }
    place_heads(node, attr);
    if (qkv->columns.parts > 0) {
        struct shoali_columns queries = qkv->columns;
        queries.parts = 1;
        queries.sharers = 1;
        shoali_tensor_set_columns(node, &queries);
    }
    if (attr->generating)
        SHOAL_TRY(status,
                  shoali_kv_cache_next(tape->generation->cache,
                                       2 * attr->kv_heads * attr->head_size, qkv->dtype,
                                       &attr->cache),
                  done);
done:
    return status;
}

static struct shoali_stream random_of(const struct shoal_tape *tape, const struct shoali_node *node)
{
    const struct attention_attr *attr = shoali_node_attr(node);
    const struct shoali_stream none = {0};
    return attr->dropout > 0 ? shoali_node_random(tape, node) : none;
}

/* The segment's keys and values go to their places in the cache. */
static shoal_status remember(struct shoal_tape *tape, const struct shoali_node *node,
                             const struct shoali_kv_segment *segment, void *cache)
{
    const struct attention_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *qkv = &node->in[QKV]->tensor;
    const int64_t d = attr->head_size, stride = packed_heads(attr) * d;
    const int64_t width = 2 * attr->kv_heads * d;
    const struct shoali_copy_strided_args args = {
        .x = shoali_at(qkv->data, segment->first_row * stride + attr->heads * d, qkv->dtype),
        .y = shoali_at(cache, segment->position * width, qkv->dtype),
        .ndim = 2,
        .dim = {segment->rows, width},
        .x_stride = {stride, 1},
        .y_stride = {width, 1},
        .dtype = qkv->dtype,
    };
    return SHOALI_RUN(tape, copy_strided, &args);
}

/* New rows against all positions of their sequence. */
static shoal_status attend_segment(struct shoal_tape *tape, const struct shoali_node *node,
                                   const struct shoali_kv_segment *segment)
{
    shoal_status status;
    const struct attention_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *qkv = &node->in[QKV]->tensor;
    const shoal_dtype dtype = qkv->dtype;
    const int64_t d = attr->head_size, stride = packed_heads(attr) * d;
    const int64_t width = 2 * attr->kv_heads * d, row = segment->first_row;
    void *cache = shoali_at(
        attr->cache, segment->sequence * shoali_kv_cache_positions(tape->generation->cache) * width,
        dtype);
    const struct shoali_attention_args args = {
        .q = shoali_at(qkv->data, row * stride, dtype),
        .k = cache,
        .v = shoali_at(cache, attr->kv_heads * d, dtype),
        .out = shoali_at(node->out[RESULT]->tensor.data, row * attr->heads * d, dtype),
        .lse = shoali_at(node->out[LSE]->tensor.data, row * attr->heads, shoali_wide(dtype)),
        .batch = 1,
        .q_len = segment->rows,
        .kv_len = segment->position + segment->rows,
        .heads = attr->heads,
        .kv_heads = attr->kv_heads,
        .head_size = d,
        .q_stride = stride,
        .kv_stride = width,
        .out_stride = attr->heads * d,
        .window = attr->window,
        .scale = attr->scale,
        .causal = 1,
        .dtype = dtype,
    };
    SHOAL_TRY(status, remember(tape, node, segment, cache), done);
    SHOAL_TRY(status, SHOALI_RUN(tape, attention, &args), done);
done:
    return status;
}

static shoal_status attend_segments(struct shoal_tape *tape, const struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_generation *generation = tape->generation;
    for (int32_t i = 0; i < generation->segment_count; i++)
        SHOAL_TRY(status, attend_segment(tape, node, &generation->segments[i]), done);
done:
    return status;
}

static const int32_t *key_count_of(const struct shoali_node *node)
{
    return node->in[KEY_COUNT] != NULL ? node->in[KEY_COUNT]->tensor.data : NULL;
}

static shoal_status attention_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct attention_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *qkv = &node->in[QKV]->tensor;
    const int64_t d = attr->head_size, stride = packed_heads(attr) * d;
    if (attr->generating)
        return attend_segments(tape, node);
    const struct shoali_attention_args args = {
        .q = qkv->data,
        .k = shoali_at(qkv->data, attr->heads * d, qkv->dtype),
        .v = shoali_at(qkv->data, (attr->heads + attr->kv_heads) * d, qkv->dtype),
        .key_count = key_count_of(node),
        .out = node->out[RESULT]->tensor.data,
        .lse = node->out[LSE]->tensor.data,
        .batch = attr->batch,
        .q_len = attr->length,
        .kv_len = attr->length,
        .heads = attr->heads,
        .kv_heads = attr->kv_heads,
        .head_size = d,
        .q_stride = stride,
        .kv_stride = stride,
        .out_stride = attr->heads * d,
        .window = attr->window,
        .scale = attr->scale,
        .causal = attr->full == 0,
        .dropout = (float)attr->dropout,
        .random = random_of(tape, node),
        .mask = attr->mask,
        .dtype = qkv->dtype,
    };
    return SHOALI_RUN(tape, attention, &args);
}

static shoal_status attention_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct attention_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *qkv = &node->in[QKV]->tensor;
    const int64_t d = attr->head_size, stride = packed_heads(attr) * d;
    void *to, *delta;
    bool accumulate;
    SHOAL_TRY(status, shoali_tape_workspace(tape, node->out[LSE]->bytes, &delta), done);
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    const struct shoali_attention_backward_args args = {
        .q = qkv->data,
        .k = shoali_at(qkv->data, attr->heads * d, qkv->dtype),
        .v = shoali_at(qkv->data, (attr->heads + attr->kv_heads) * d, qkv->dtype),
        .key_count = key_count_of(node),
        .out = node->out[RESULT]->tensor.data,
        .dout = shoali_node_grad(tape, node, RESULT),
        .lse = node->out[LSE]->tensor.data,
        .delta = delta,
        .dq = to,
        .dk = shoali_at(to, attr->heads * d, qkv->dtype),
        .dv = shoali_at(to, (attr->heads + attr->kv_heads) * d, qkv->dtype),
        .batch = attr->batch,
        .q_len = attr->length,
        .kv_len = attr->length,
        .heads = attr->heads,
        .kv_heads = attr->kv_heads,
        .head_size = d,
        .q_stride = stride,
        .kv_stride = stride,
        .out_stride = attr->heads * d,
        .window = attr->window,
        .scale = attr->scale,
        .causal = attr->full == 0,
        .dropout = (float)attr->dropout,
        .random = random_of(tape, node),
        .mask = attr->mask,
        .dtype = qkv->dtype,
    };
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, attention_backward, &args), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
    shoali_tape_workspace_free(tape, delta);
done:
    return status;
}

static void attention_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                           int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    const struct attention_attr *attr = shoali_node_attr(node);
    const bool narrow = attr->window > 0 && attr->window < attr->length;
    const int64_t keys = narrow ? attr->window : attr->length;
    *flops_forward = 4 * attr->batch * attr->heads * attr->length * keys * attr->head_size;
    *flops_backward = 2 * *flops_forward;
    *bytes = shoali_cost_bytes(node);
}

static const struct shoali_op_row attention_row = {
    SHOALI_ROW_HEAD,
    .name = "attention",
    .infer = attention_infer,
    .forward = attention_forward,
    .backward_input = attention_backward,
    .cost = attention_cost,
    .saves_inputs = 1u << QKV | 1u << KEY_COUNT,
    .saves_outputs = 1u << RESULT | 1u << LSE,
    .flags = SHOALI_ROW_COLUMNS,
};

shoal_tensor *shoal_attention(shoal_tape *tape, shoal_tensor *qkv, const shoal_attention_args *args)
{
    const shoal_attention_args own = args ? *args : (shoal_attention_args){0};
    struct shoali_heads mine;
    qkv = shoali_tensor_need_heads(tape, qkv, own.heads,
                                   own.kv_heads > 0 ? own.kv_heads : own.heads, &mine);
    const struct attention_attr attr = {
        .heads = mine.heads,
        .kv_heads = mine.kv_heads,
        .first_head = mine.first_head,
        .whole_heads = mine.whole_heads,
        .scale = own.scale,
        .dropout = tape->training ? own.dropout : 0,
        .full = own.full,
        .window = own.window,
        .generating = tape->generation != NULL,
    };
    return shoali_tape_record(tape, &(struct shoali_record_args){.row = &attention_row,
                                                                 .inputs = {qkv, own.key_count},
                                                                 .attr = &attr,
                                                                 .attr_bytes = sizeof attr});
}
