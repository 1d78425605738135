/* tensor_parallel.c - what goes along tp, and whose gradients are parts of sums over tp. */
#include "autograd/tape/tape.h"

shoal_status shoali_tensor_post(struct shoal_tape *tape, struct shoali_node *node, const void *in,
                                void *out, int64_t count, shoal_dtype dtype,
                                enum shoali_tensor_kind kind)
{
    static const enum shoali_collective collective[] = {
        [SHOALI_TENSOR_SUM] = SHOALI_ALL_REDUCE,
        [SHOALI_TENSOR_SCATTER] = SHOALI_REDUCE_SCATTER,
        [SHOALI_TENSOR_GATHER] = SHOALI_ALL_GATHER,
    };
    const struct shoali_post post = {
        .kind = collective[kind],
        .here = SHOALI_HERE,
        .in = in,
        .out = out,
        .count = count,
        .dtype = dtype,
        .op = tape->args.tensor_parallel.exact ? SHOAL_SUM_TREE : SHOAL_SUM,
    };
    if (!shoali_is_tensor_parallel(tape)) /* splits without ranks */
        return SHOAL_OK;
    return shoali_node_post(tape, node, tape->args.tensor_parallel.group, &post);
}

shoal_status shoali_tensor_note_param(struct shoal_param *param, bool is_part)
{
    if (is_part ? param->not_sum_over_tensor : param->sum_over_tensor)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "parameter %s is used on a shard of the sequence and on the whole "
                          "sequence, so its gradient has no single sum over ranks: split it along "
                          "tp, or turn sequence_parallel off",
                          param->name);
    param->sum_over_tensor = param->sum_over_tensor || is_part;
    param->not_sum_over_tensor = param->not_sum_over_tensor || !is_part;
    return SHOAL_OK;
}

shoal_status shoali_tensor_note_params(struct shoal_tape *tape, const struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    if (!shoali_is_tensor_parallel(tape) || !node->needs_backward)
        return SHOAL_OK;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_PARAMS; i++) {
        struct shoal_param *param = node->param[i];
        if (!shoali_param_wants_grad(param) || (param->cut_by & SHOAL_AXIS_TP) ||
            (node->row->flags & SHOALI_ROW_NOTES_PARAMS))
            continue;
        SHOAL_TRY(status, shoali_tensor_note_param(param, node->out[0]->tensor.sequence_part),
                  done);
    }
done:
    return status;
}
