/* tensor_parallel.c - what goes along tp, and what every recorded op is asked. */
#include "autograd/rows/rows.h"

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
    if (!shoali_tensor_is_cut(tape)) /* splits without ranks */
        return SHOAL_OK;
    return shoali_node_post(tape, node, tape->args.tensor_parallel.group, &post);
}

shoal_status shoali_tensor_make_whole(struct shoal_tape *tape, struct shoali_record_args *record)
{
    const unsigned flags = record->row->flags;
    if (!shoali_tensor_is_cut(tape))
        return SHOAL_OK;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS && tape->status >= 0; i++) {
        if (record->inputs[i] && record->inputs[i]->columns.parts > 0 &&
            !(flags & SHOALI_ROW_COLUMNS))
            record->inputs[i] = shoali_tensor_gather_columns(tape, record->inputs[i]);
        if (record->inputs[i] && record->inputs[i]->sequence_part && !(flags & SHOALI_ROW_SEQUENCE))
            record->inputs[i] = shoali_tensor_gather_sequence(tape, record->inputs[i]);
    }
    return tape->status;
}

shoal_status shoali_tensor_note_param(struct shoal_param *param, bool is_part)
{
    if (is_part ? param->not_sum_over_tensor : param->sum_over_tensor)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "parameter %s is used on a part of the sequence and on the whole of it, "
                          "and its gradient would be a sum over ranks of one and not of the other: "
                          "split it along tp, or do without sequence_parallel",
                          param->name);
    param->sum_over_tensor = param->sum_over_tensor || is_part;
    param->not_sum_over_tensor = param->not_sum_over_tensor || !is_part;
    return SHOAL_OK;
}

shoal_status shoali_tensor_note_params(struct shoal_tape *tape, const struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    if (!shoali_tensor_is_cut(tape) || !node->needs_backward)
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
