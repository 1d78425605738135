/* test_blocks - ops that stand in for layers which compute with blocks: one makes the whole of a
 * parameter that ranks hold in blocks, and hands each the block of its gradient. For ranks that
 * compute the same, on a device that the host reaches, whose launches are done when they return.
 */
#ifndef SHOALI_ENGINE_TEST_BLOCKS_H
#define SHOALI_ENGINE_TEST_BLOCKS_H

#include "autograd/rows/rows.h"

#include <string.h>

/* ---- a whole out of blocks ------------------------------------------------------------------- */

struct gather_attr {
    shoal_group *group; /* all ranks: those that hold the same say the same */
    const struct shoali_shard *shard;
};

static inline shoal_status gather_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct gather_attr *attr = shoali_node_attr(node);
    return shoali_node_output(tape, node, 0, shoali_node_in(node, 0)->dtype, &attr->shard->global,
                              -1);
}

/* The block's elements to their places in the whole (`to_whole`), or out of them. */
static inline void move_block(const struct shoali_shard *shard, char *block, char *whole,
                              size_t item, bool to_whole)
{
    const int64_t count = shoal_shape_count(&shard->local);
    int64_t run;
    for (int64_t at = 0; at < count; at += run) {
        char *inside = whole + (size_t)shoali_shard_run(shard, at, &run) * item;
        char *here = block + (size_t)at * item;
        memcpy(to_whole ? inside : here, to_whole ? here : inside, (size_t)run * item);
    }
}

static inline shoal_status gather_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct gather_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = shoali_node_in(node, 0), *y = shoali_node_out(node, 0);
    const size_t item = shoal_dtype_bytes(x->dtype);
    const size_t bytes = (size_t)shoal_shape_count(&y->shape) * item;
    if (shoali_tape_is_meta(tape))
        return SHOAL_OK;
    memset(y->data, 0, bytes);
    move_block(attr->shard, x->data, y->data, item, true);
    return shoal_all_reduce(attr->group, y->data, y->data, (int64_t)bytes, SHOAL_U8, SHOAL_BOR,
                            NULL);
}

static inline shoal_status gather_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct gather_attr *attr = shoali_node_attr(node);
    const void *gradient = shoali_node_grad(tape, node, 0);
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    if (to && !shoali_tape_is_meta(tape))
        move_block(attr->shard, to, (char *)(uintptr_t)gradient,
                   shoal_dtype_bytes(shoali_node_in(node, 0)->dtype), false);
    SHOAL_TRY(status, shoali_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row gather_row = {
    SHOALI_ROW_HEAD,           .name = "gather_blocks",           .infer = gather_infer,
    .forward = gather_forward, .backward_input = gather_backward, .cost = shoali_cost_move};

#endif
