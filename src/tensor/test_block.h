/* test_block - the block at an offset of a whole. For tests only. */
#ifndef SHOALI_TENSOR_TEST_BLOCK_H
#define SHOALI_TENSOR_TEST_BLOCK_H

#include "tensor/tensor.h"

/* An extent of `global` may be SHOALI_BLOCK_OPEN; `offset` NULL: 0. */
static inline struct shoali_block block_at(const shoal_shape *shape, const shoal_shape *global,
                                           const int64_t *offset)
{
    struct shoali_block block = shoali_block_whole(shape);
    for (int32_t d = 0; d < shape->ndim; d++) {
        block.global[d] = global->dim[d];
        block.offset[d] = offset != NULL ? offset[d] : 0;
    }
    return block;
}

#endif
