/* sequence.c - the whole of a sequence out of each rank's positions. */
#include "autograd/rows/sequence.h"

struct shoali_sequence shoali_sequence_of(const struct shoal_tape *tape,
                                          const struct shoal_tensor *part)
{
    const int64_t outer = part->shape.dim[0];
    return (struct shoali_sequence){
        .outer = outer,
        .inner = outer > 0 ? shoali_count(part) / outer : 0,
        .ranks = tape->args.tensor_parallel.ranks,
        .rank = tape->args.tensor_parallel.rank,
        .dtype = part->dtype,
        .bytes = (size_t)part->bound * shoal_dtype_bytes(part->dtype),
    };
}

shoal_status shoali_sequence_check(const struct shoal_tape *tape, int64_t length)
{
    const int32_t ranks = tape->args.tensor_parallel.ranks;
    if (length % ranks == 0)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "sequence_parallel: a sequence of %lld cannot be divided by the %d ranks "
                      "along tp; use a length that is a multiple of the ranks",
                      (long long)length, (int)ranks);
}

bool shoali_tensor_scatters(const struct shoal_tape *tape, const shoal_tensor *x)
{
    return tape->status >= 0 && x != NULL && shoali_is_tensor_parallel(tape) &&
           tape->args.tensor_parallel.sequence && tape->generation == NULL && x->shape.ndim > 2;
}

static shoal_status permute(struct shoal_tape *tape, const struct shoali_sequence *sequence,
                            const void *from, void *to, bool pack)
{
    const int64_t ranks = sequence->ranks, outer = sequence->outer, inner = sequence->inner;
    const struct shoali_copy_strided_args args = {
        .x = from,
        .y = to,
        .ndim = 3,
        .dim = {ranks, outer, inner},
        .x_stride = {pack ? inner : outer * inner, pack ? ranks * inner : inner, 1},
        .y_stride = {pack ? outer * inner : inner, pack ? inner : ranks * inner, 1},
        .dtype = sequence->dtype,
    };
    return SHOALI_RUN(tape, copy_strided, &args);
}

shoal_status shoali_sequence_pack(struct shoal_tape *tape, const struct shoali_sequence *sequence,
                                  const void *from, void *to)
{
    return permute(tape, sequence, from, to, true);
}

shoal_status shoali_sequence_unpack(struct shoal_tape *tape, const struct shoali_sequence *sequence,
                                    const void *from, void *to)
{
    return permute(tape, sequence, from, to, false);
}

shoal_status shoali_sequence_gather_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *x = &node->in[0]->tensor;
    shoal_shape shape = x->shape;
    shape.dim[1] *= tape->args.tensor_parallel.ranks;
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, x->dtype, &shape, -1), done);
    shoali_block_leading(node, 1);
    node->out[0]->tensor.columns = x->columns;
done:
    return status;
}

shoal_status shoali_sequence_gather_post(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct shoali_sequence sequence = shoali_sequence_of(tape, x);
    void *to = node->out[0]->tensor.data;
    if (sequence.outer > 1)
        SHOAL_TRY(status, shoali_node_scratch(tape, node, shoali_sequence_bytes(&sequence), &to),
                  done);
    SHOAL_TRY(status,
              shoali_tensor_post(tape, node, x->data, to, shoali_count(x), x->dtype,
                                 SHOALI_TENSOR_GATHER),
              done);
done:
    return status;
}

shoal_status shoali_sequence_gather_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoali_sequence sequence = shoali_sequence_of(tape, &node->in[0]->tensor);
    if (node->scratch == SHOALI_NO_SEGMENT)
        return SHOAL_OK;
    return shoali_sequence_unpack(tape, &sequence,
                                  shoali_slot_address(tape->args.slot, node->scratch),
                                  node->out[0]->tensor.data);
}

/* ---- for ops that all ranks compute alike ---- */

/* The gradient is the same on all ranks; each takes its part of it. */
static shoal_status own_part(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoali_sequence sequence = shoali_sequence_of(tape, &node->in[0]->tensor);
    const int64_t inner = sequence.inner;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, true, &to, &accumulate), done);
    const struct shoali_copy_strided_args args = {
        .x = shoali_at(shoali_node_grad(tape, node, 0), sequence.rank * inner, sequence.dtype),
        .y = to,
        .ndim = 2,
        .dim = {sequence.outer, inner},
        .x_stride = {sequence.ranks * inner, 1},
        .y_stride = {inner, 1},
        .accumulate = accumulate,
        .dtype = sequence.dtype,
    };
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, copy_strided, &args), done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row gather_row = {
    SHOALI_ROW_HEAD,
    .name = "gather_sequence",
    .infer = shoali_sequence_gather_infer,
    .forward_post = shoali_sequence_gather_post,
    .forward_finish = shoali_sequence_gather_finish,
    .backward_input = own_part,
    .cost = shoali_cost_move,
    .flags = SHOALI_ROW_COLLECTIVE | SHOALI_ROW_HELPER | SHOALI_ROW_SEQUENCE | SHOALI_ROW_COLUMNS,
};

shoal_tensor *shoali_tensor_gather_sequence(shoal_tape *tape, shoal_tensor *x)
{
    return shoali_tape_record(tape,
                              &(struct shoali_record_args){.row = &gather_row, .inputs = {x}});
}

/* ---- own positions of what all ranks have ---- */

static shoal_status take_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct shoali_tensor_parallel *tp = &tape->args.tensor_parallel;
    shoal_shape shape = x->shape;
    SHOAL_TRY(status, shoali_sequence_check(tape, shape.dim[1]), done);
    shape.dim[1] /= tp->ranks;
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, x->dtype, &shape, -1), done);
    shoali_block_sliced(node, 1, tp->rank * shape.dim[1], shape.dim[1]);
    node->out[0]->tensor.sequence_part = true;
done:
    return status;
}

static shoal_status take_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct shoal_tensor *y = &node->out[0]->tensor;
    const struct shoali_sequence sequence = shoali_sequence_of(tape, y);
    const int64_t inner = sequence.inner;
    const struct shoali_copy_strided_args args = {
        .x = shoali_at(node->in[0]->tensor.data, sequence.rank * inner, y->dtype),
        .y = y->data,
        .ndim = 2,
        .dim = {sequence.outer, inner},
        .x_stride = {sequence.ranks * inner, 1},
        .y_stride = {inner, 1},
        .dtype = y->dtype,
    };
    return SHOALI_RUN(tape, copy_strided, &args);
}

static shoal_status take_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct shoal_tensor *y = &node->out[0]->tensor;
    const struct shoali_sequence sequence = shoali_sequence_of(tape, y);
    void *to, *gathered;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    if (to == NULL)
        return SHOAL_OK;
    gathered = to;
    if (sequence.outer > 1)
        SHOAL_TRY(status,
                  shoali_node_scratch(tape, node, shoali_sequence_bytes(&sequence), &gathered),
                  done);
    SHOAL_TRY(status,
              shoali_tensor_post(tape, node, shoali_node_grad(tape, node, 0), gathered,
                                 shoali_count(y), y->dtype, SHOALI_TENSOR_GATHER),
              done);
done:
    return status;
}

static shoal_status take_finish(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_sequence sequence = shoali_sequence_of(tape, &node->out[0]->tensor);
    void *to = tape->grad_temp[0] != NULL ? tape->grad_temp[0] : node->in[0]->grad;
    if (node->scratch != SHOALI_NO_SEGMENT)
        SHOAL_TRY(status,
                  shoali_sequence_unpack(tape, &sequence,
                                         shoali_slot_address(tape->args.slot, node->scratch), to),
                  done);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row take_row = {
    SHOALI_ROW_HEAD,
    .name = "take_sequence",
    .infer = take_infer,
    .forward = take_forward,
    .backward_post = take_backward,
    .backward_finish = take_finish,
    .cost = shoali_cost_move,
    .flags = SHOALI_ROW_HELPER | SHOALI_ROW_NOTES_PARAMS,
};

shoal_tensor *shoali_tensor_take_sequence(shoal_tape *tape, shoal_tensor *x)
{
    if (!shoali_tensor_scatters(tape, x) || x->sequence_part)
        return x;
    return shoali_tape_record(tape, &(struct shoali_record_args){.row = &take_row, .inputs = {x}});
}
