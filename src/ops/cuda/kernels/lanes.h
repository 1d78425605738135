/* lanes - sixteen lanes share a row, so that their partial sums are those of the lane order
 * (ops/ops.h). All lanes of a warp make the same turns: those without a row work on the last one,
 * and write nothing. */
#ifndef SHOALI_OPS_CUDA_LANES_H
#define SHOALI_OPS_CUDA_LANES_H

#include "ops/cuda/kernels/elements.h"

enum { ROW_LANES = 16 };

/* The end of the lane order: each lane has its partial sum, and gets the total. */
DEVICE float lane_total(float partial)
{
    partial += lane_xor_f32(partial, 8);
    partial += lane_xor_f32(partial, 4);
    partial += lane_xor_f32(partial, 2);
    return partial + lane_xor_f32(partial, 1);
}
#define ROW_LANE (THREAD % ROW_LANES)
#define ROWS_PER_BLOCK (THREADS / ROW_LANES)
/* The first row of the block's turn, and this lane's; all lanes of a warp make the same turns. */
#define FIRST_ROWS (BLOCK * ROWS_PER_BLOCK)
#define ROW_STEP (BLOCKS * ROWS_PER_BLOCK)
#define OWN_ROW(rows_begin) ((rows_begin) + THREAD / ROW_LANES)
DEVICE int64_t least_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
/* Where a row of a norm begins: rows may lie in groups (arguments.h), of which fewer than 2^31. */
DEVICE int64_t norm_row(int64_t row, int64_t columns, int64_t group, int64_t stride)
{
    if (group == 0)
        return row * columns;
    const uint32_t outer = (uint32_t)row / (uint32_t)group;
    return outer * stride + (row - outer * group) * columns;
}

#endif
