/* blocks.c - which block of a whole an op's result is, by the rules that rows name. */
#include "autograd/rows/rows.h"

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
    out->sequence_part = leading > 1 && node->in[0]->tensor.sequence_part;
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
