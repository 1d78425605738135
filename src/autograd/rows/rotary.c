/* rotary.c - positions as turns of the query and key heads. */
#include "autograd/rows/rows.h"
#include "base/mathx.h"

struct rotary_attr {
    int64_t heads, kv_heads, rotary_size;
    int32_t interleaved;
    float inverse_frequency[SHOALI_ROTARY_PAIRS];
    int64_t head_size, first_position; /* set by infer */
};

/* ---- frequencies ---- */

#define TWO_PI 6.28318530717958647692

static shoal_status check_rope(const shoal_rope_args *rope)
{
    const bool llama3 = rope->scaling == SHOAL_ROPE_SCALING_LLAMA3;
    if (rope->rotary_size < 0 || rope->rotary_size % 2 != 0 ||
        rope->rotary_size > 2 * SHOALI_ROTARY_PAIRS)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "rotary positions: rotary_size is %lld; it must be even and at most %d",
                          (long long)rope->rotary_size, 2 * SHOALI_ROTARY_PAIRS);
    if (!(rope->base >= 1))
        return SHOAL_FAIL(SHOAL_EINVAL, "rotary positions: base is %g; it must be at least 1",
                          rope->base);
    if (rope->scaling != SHOAL_ROPE_SCALING_NONE && rope->scaling != SHOAL_ROPE_SCALING_LINEAR &&
        !llama3)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "rotary positions: scaling %d is unknown; use one of enum shoal_rope_scaling",
            (int)rope->scaling);
    if (rope->scaling != SHOAL_ROPE_SCALING_NONE && !(rope->factor >= 1))
        return SHOAL_FAIL(SHOAL_EINVAL, "rotary positions: factor is %g; it must be at least 1",
                          rope->factor);
    if (llama3 &&
        (!(rope->low_freq_factor > 0) || !(rope->high_freq_factor > rope->low_freq_factor) ||
         rope->original_max_position < 1))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "rotary positions: Llama 3 scaling has frequency factors %g and %g and %lld original "
            "positions; it needs 0 < low < high and at least 1 position",
            rope->low_freq_factor, rope->high_freq_factor, (long long)rope->original_max_position);
    return SHOAL_OK;
}

/* Long waves are stretched by the factor, short ones stay, those between are mixed. */
static double scale_llama3(const shoal_rope_args *rope, double frequency)
{
    const double turns = (double)rope->original_max_position * frequency / TWO_PI;
    if (turns < rope->low_freq_factor)
        return frequency / rope->factor;
    if (turns > rope->high_freq_factor)
        return frequency;
    const double smooth =
        (turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * frequency / rope->factor + smooth * frequency;
}

shoal_status shoal_rope_frequencies(const shoal_rope_args *args, float *inverse_frequency)
{
    shoal_status status;
    shoal_rope_args rope = {0};
    if (args)
        rope = *args;
    if (rope.base == 0)
        rope.base = 10000;
    SHOAL_TRY(status, check_rope(&rope), done);
    for (int64_t i = 0; i < rope.rotary_size / 2; i++) {
        double frequency =
            i == 0 ? 1 : shoali_pow(rope.base, -2.0 * (double)i / (double)rope.rotary_size);
        if (rope.scaling == SHOAL_ROPE_SCALING_LINEAR)
            frequency /= rope.factor;
        else if (rope.scaling == SHOAL_ROPE_SCALING_LLAMA3)
            frequency = scale_llama3(&rope, frequency);
        inverse_frequency[i] = (float)frequency;
    }
done:
    return status;
}

/* ---- the op ---- */

static shoal_status rotary_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct rotary_attr *attr = shoali_node_attr(node);
    int64_t whole;
    char text[128];
    SHOAL_TRY(status,
              shoali_row_need_packed_heads(node, attr->heads, attr->kv_heads, &attr->head_size),
              done);
    const struct shoal_tensor *qkv = &node->in[0]->tensor;
    if (attr->rotary_size < 0 || attr->rotary_size % 2 != 0 ||
        attr->rotary_size > attr->head_size || attr->rotary_size > 2 * SHOALI_ROTARY_PAIRS) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "rotary: rotary_size is %lld, but heads have %lld elements; it must "
                            "be even, not larger, and at most %d",
                            (long long)attr->rotary_size, (long long)attr->head_size,
                            2 * SHOALI_ROTARY_PAIRS);
        goto done;
    }
    if (!shoali_block_dim(qkv, 1, &whole, &attr->first_position)) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "rotary: the place of qkv %s in the sequence is unknown: split it into "
                            "whole positions",
                            shoali_shape_format(&qkv->shape, text));
        goto done;
    }
    if (tape->generation == NULL &&
        attr->first_position + qkv->shape.dim[1] > SHOALI_ROTARY_POSITIONS) {
        status = SHOAL_FAIL(
            SHOAL_EINVAL, "rotary: the sequence has %lld positions; at most %d are supported",
            (long long)(attr->first_position + qkv->shape.dim[1]), SHOALI_ROTARY_POSITIONS);
        goto done;
    }
    SHOAL_TRY(status, shoali_row_output_like_first(tape, node), done);
done:
    return status;
}

static struct shoali_rotary_args whole_of(const struct shoali_node *node, const void *x, void *y)
{
    const struct rotary_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *qkv = &node->in[0]->tensor;
    struct shoali_rotary_args args = {
        .x = x,
        .y = y,
        .batch = qkv->shape.dim[0],
        .length = qkv->shape.dim[1],
        .columns = qkv->shape.dim[2],
        .heads = attr->heads + attr->kv_heads,
        .head_size = attr->head_size,
        .rotary_size = attr->rotary_size,
        .first_position = attr->first_position,
        .interleaved = attr->interleaved,
        .dtype = qkv->dtype,
    };
    for (int64_t i = 0; i < attr->rotary_size / 2; i++)
        args.inverse_frequency[i] = attr->inverse_frequency[i];
    return args;
}

/* Each sequence of a generation is at a position of its own. */
static shoal_status turn_segments(struct shoal_tape *tape, const struct shoali_rotary_args *whole)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_generation *generation = tape->generation;
    for (int32_t i = 0; i < generation->segment_count; i++) {
        const struct shoali_kv_segment *segment = &generation->segments[i];
        struct shoali_rotary_args args = *whole;
        args.x = shoali_at(whole->x, segment->first_row * whole->columns, whole->dtype);
        args.y = shoali_at(whole->y, segment->first_row * whole->columns, whole->dtype);
        args.batch = 1;
        args.length = segment->rows;
        args.first_position = segment->position;
        SHOAL_TRY(status, SHOALI_RUN(tape, rotary, &args), done);
    }
done:
    return status;
}

static shoal_status rotary_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoali_rotary_args args =
        whole_of(node, node->in[0]->tensor.data, node->out[0]->tensor.data);
    return tape->generation != NULL ? turn_segments(tape, &args) : SHOALI_RUN(tape, rotary, &args);
}

static shoal_status rotary_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    struct shoali_rotary_args args = whole_of(node, shoali_node_grad(tape, node, 0), to);
    args.inverse = 1;
    args.accumulate = accumulate;
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, rotary, &args), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

/* Three operations for each element that is turned. */
static void rotary_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                        int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    const struct rotary_attr *attr = shoali_node_attr(node);
    const shoal_shape *shape = &node->in[0]->tensor.shape;
    *flops_forward =
        3 * shape->dim[0] * shape->dim[1] * (attr->heads + attr->kv_heads) * attr->rotary_size;
    *flops_backward = *flops_forward;
    *bytes = shoali_cost_bytes(node);
}

static const struct shoali_op_row rotary_row = {
    SHOALI_ROW_HEAD,
    .name = "rotary",
    .infer = rotary_infer,
    .forward = rotary_forward,
    .backward_input = rotary_backward,
    .cost = rotary_cost,
    .flags = SHOALI_ROW_COLUMNS,
};

shoal_tensor *shoal_rotary(shoal_tape *tape, shoal_tensor *qkv, const shoal_rotary_args *args)
{
    const shoal_rotary_args own = args ? *args : (shoal_rotary_args){0};
    struct shoali_heads mine;
    qkv = shoali_tensor_need_heads(tape, qkv, own.heads,
                                   own.kv_heads > 0 ? own.kv_heads : own.heads, &mine);
    struct rotary_attr attr = {
        .heads = mine.heads,
        .kv_heads = mine.kv_heads,
        .rotary_size = own.rotary_size,
        .interleaved = own.interleaved,
    };
    for (int64_t i = 0; i < own.rotary_size / 2 && i < SHOALI_ROTARY_PAIRS; i++)
        attr.inverse_frequency[i] = own.inverse_frequency[i];
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &rotary_row, .inputs = {qkv}, .attr = &attr, .attr_bytes = sizeof attr});
}
