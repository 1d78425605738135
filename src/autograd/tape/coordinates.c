/* coordinates.c - where inputs, and outputs that no row says more of, lie in their wholes. */
#include "autograd/tape/tape.h"

#include <inttypes.h>

/* What is made of samples in an unknown order: one range, as if each sample had an equal part of
 * it. What is not, is the same for all samples: a whole. */
static shoal_status flat_block(const struct shoal_tape *tape, struct shoal_tensor *tensor)
{
    const int64_t samples = tape->batch_rows;
    if (tensor->shape.ndim == 0 || samples <= 0 || tensor->bound % samples != 0) {
        tensor->block = shoali_block_whole(&tensor->shape);
        return SHOAL_OK;
    }
    const int64_t each = tensor->bound / samples;
    if (each > 0 && tape->first_sample > (INT64_MAX - tensor->bound) / each)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "sample %" PRId64 " has no place in a tensor of %" PRId64
                          " elements a sample: positions are counted in 63 bits; use a smaller "
                          "global batch",
                          tape->first_sample, each);
    tensor->block = (struct shoali_block){.ndim = 1,
                                          .count = {shoal_shape_count(&tensor->shape)},
                                          .global = {SHOALI_BLOCK_OPEN},
                                          .offset = {tape->first_sample * each}};
    return SHOAL_OK;
}

shoal_status shoali_block_default(const struct shoal_tape *tape, const struct shoali_node *node,
                                  struct shoal_tensor *out)
{
    const struct shoali_block whole = shoali_block_whole(&out->shape);
    bool found = false;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS; i++) {
        const struct shoali_tape_tensor *in = node->in[i];
        if (in == NULL || !shoali_shape_equal(&in->tensor.shape, &out->shape))
            continue;
        out->block = in->tensor.block;
        if (in->tensor.columns.parts > 0 && (node->row->flags & SHOALI_ROW_COLUMNS) != 0)
            out->columns = in->tensor.columns;
        out->sequence_part = out->sequence_part || in->tensor.sequence_part;
        found = true;
        if (!shoali_block_equal(&out->block, &whole))
            return SHOAL_OK;
    }
    return found ? SHOAL_OK : flat_block(tape, out);
}

struct shoali_block shoali_block_of_input(const struct shoal_tape *tape,
                                          const struct shoal_tensor *input)
{
    struct shoali_block block = shoali_block_whole(&input->shape);
    if (block.ndim > 0 && block.count[0] > 0) {
        block.global[0] = SHOALI_BLOCK_OPEN;
        block.offset[0] = tape->first_sample;
    }
    return block;
}
