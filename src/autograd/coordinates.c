/* coordinates.c - where outputs lie in their wholes: the rules that rows pick from. */
#include "autograd/rows.h"

#include <inttypes.h>

void shoali_tape_set_block(struct shoal_tensor *tensor, const shoal_shape *global,
                           const int64_t *offset)
{
    shoal_status status;
    if (tensor == NULL)
        return;
    struct shoal_tape *tape = tensor->tape;
    SHOAL_TRY(status, shoali_block_make(&tensor->shape, global, offset, &tensor->block), done);
done:
    (void)shoali_tape_poison(tape, status);
}

/* ---- default ---- */

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

/* ---- rules ---- */

void shoali_block_keep(struct shoali_node *node)
{
    node->out[0]->tensor.block = node->in[0]->tensor.block;
}

void shoali_block_forget(struct shoali_node *node)
{
    node->out[0]->tensor.block = shoali_block_whole(&node->out[0]->tensor.shape);
}

/* Input 0's block, cut at its dims. */
static bool aligned(const struct shoal_tensor *tensor, struct shoali_block *block, int32_t *first)
{
    *block = tensor->block;
    return shoali_block_align(block, &tensor->shape, first);
}

void shoali_block_leading(struct shoali_node *node, int32_t leading)
{
    struct shoali_block in, block = {0};
    int32_t first[SHOAL_MAX_DIMS + 1];
    struct shoal_tensor *out = &node->out[0]->tensor;
    if (!aligned(&node->in[0]->tensor, &in, first))
        return;
    bool fits = shoali_block_append(&block, &in, 0, first[leading]);
    for (int32_t d = leading; fits && d < out->shape.ndim; d++)
        fits = shoali_block_append_whole(&block, out->shape.dim[d]);
    if (fits)
        out->block = block;
}

void shoali_block_swapped(struct shoali_node *node, int32_t dim_a, int32_t dim_b)
{
    struct shoali_block in, block = {0};
    int32_t first[SHOAL_MAX_DIMS + 1];
    struct shoal_tensor *out = &node->out[0]->tensor;
    if (!aligned(&node->in[0]->tensor, &in, first))
        return;
    bool fits = true;
    for (int32_t d = 0; fits && d < out->shape.ndim; d++) {
        const int32_t from = d == dim_a ? dim_b : d == dim_b ? dim_a : d;
        fits = shoali_block_append(&block, &in, first[from], first[from + 1]);
    }
    if (fits)
        out->block = block;
}

void shoali_block_sliced(struct shoali_node *node, int32_t dim, int64_t begin, int64_t count)
{
    struct shoali_block block;
    int32_t first[SHOAL_MAX_DIMS + 1];
    struct shoal_tensor *out = &node->out[0]->tensor;
    if (aligned(&node->in[0]->tensor, &block, first) &&
        shoali_block_slice(&block, first[dim], first[dim + 1], begin, count))
        out->block = block;
}

void shoali_block_reduced(struct shoali_node *node, int32_t dim)
{
    struct shoali_block in, block = {0};
    int32_t first[SHOAL_MAX_DIMS + 1];
    struct shoal_tensor *out = &node->out[0]->tensor;
    if (aligned(&node->in[0]->tensor, &in, first) &&
        shoali_block_append(&block, &in, 0, first[dim]) &&
        shoali_block_append(&block, &in, first[dim + 1], in.ndim))
        out->block = block;
}

/* Where part i lies along dim; false when it does not stand behind the parts before it. */
static bool continues(const struct shoal_tensor *part, int32_t dim, bool is_first, int64_t *global,
                      int64_t *offset, int64_t *end)
{
    struct shoali_block block;
    int32_t first[SHOAL_MAX_DIMS + 1];
    int64_t part_global, part_offset;
    if (!aligned(part, &block, first) ||
        !shoali_block_join(&block, first[dim], first[dim + 1], &part_global, &part_offset))
        return false;
    if (is_first) {
        *global = part_global;
        *offset = part_offset;
        *end = part_offset;
    }
    const bool behind = part_global == *global && part_offset == *end;
    *end += part->shape.dim[dim];
    return behind;
}

void shoali_block_joined(struct shoali_node *node, int32_t dim)
{
    struct shoali_block in, block = {0};
    int32_t first[SHOAL_MAX_DIMS + 1], like = 0;
    struct shoal_tensor *out = &node->out[0]->tensor;
    int64_t global = 0, offset = 0, end = 0;
    bool follow = true;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_INPUTS && node->in[i] != NULL; i++) {
        const struct shoal_tensor *part = &node->in[i]->tensor;
        const struct shoali_block whole = shoali_block_whole(&part->shape);
        follow = continues(part, dim, i == 0, &global, &offset, &end) && follow;
        if (shoali_block_equal(&node->in[like]->tensor.block, &whole) ||
            node->in[like]->tensor.shape.dim[dim] == 0)
            like = i;
    }
    if (!aligned(&node->in[like]->tensor, &in, first))
        return;
    bool fits = shoali_block_append(&block, &in, 0, first[dim]) &&
                shoali_block_append_whole(&block, out->shape.dim[dim]);
    if (fits && follow) {
        block.global[block.ndim - 1] = global;
        block.offset[block.ndim - 1] = offset;
    }
    if (fits && shoali_block_append(&block, &in, first[dim + 1], in.ndim))
        out->block = block;
}

bool shoali_block_dim(const struct shoal_tensor *tensor, int32_t dim, int64_t *global,
                      int64_t *offset)
{
    struct shoali_block block;
    int32_t first[SHOAL_MAX_DIMS + 1];
    return aligned(tensor, &block, first) &&
           shoali_block_join(&block, first[dim], first[dim + 1], global, offset);
}
