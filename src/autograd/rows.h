/* rows - what the files of op rows share. A rows_X.c holds, per op: its row, and the public
 * function that records it.
 *
 * FLOPs count a multiply and an add as two; attention counts the full T x T products, causal or
 * not, as model FLOPs do. Element-wise ops count one per element. Bytes are those of inputs,
 * parameters and outputs, once each.
 */
#ifndef SHOALI_AUTOGRAD_ROWS_H
#define SHOALI_AUTOGRAD_ROWS_H

#include "autograd/tape.h"

#define SHOALI_ROW_HEAD .abi = SHOALI_OP_ROW_ABI, .bytes = sizeof(struct shoali_op_row)

/* base + elements; also for meta mode's NULL. */
static inline void *shoali_at(const void *base, int64_t elements, shoal_dtype dtype)
{
    return (void *)((uintptr_t)base + (uintptr_t)elements * shoal_dtype_bytes(dtype));
}
static inline bool shoali_is_float(shoal_dtype dtype)
{
    return dtype == SHOAL_F32 || dtype == SHOAL_BF16 || dtype == SHOAL_F16 || dtype == SHOAL_F64;
}
/* Type of statistics and parameter gradients beside `dtype`. */
static inline shoal_dtype shoali_wide(shoal_dtype dtype)
{
    return dtype == SHOAL_F64 ? SHOAL_F64 : SHOAL_F32;
}
static inline int64_t shoali_count(const struct shoal_tensor *tensor)
{
    return shoal_shape_count(&tensor->shape);
}
static inline int64_t shoali_last_dim(const shoal_shape *shape)
{
    return shape->ndim > 0 ? shape->dim[shape->ndim - 1] : 1;
}
/* Rows of the last dim; a row of length 0 counts as none. */
static inline int64_t shoali_row_count(const struct shoal_tensor *tensor)
{
    const int64_t columns = shoali_last_dim(&tensor->shape);
    return columns > 0 ? shoali_count(tensor) / columns : 0;
}

/* SHOAL_EINVAL unless input `index` is there. */
SHOAL_CHECKED shoal_status shoali_row_need(const struct shoali_node *node, int32_t index);
/* ... and is of a floating type. */
SHOAL_CHECKED shoal_status shoali_row_need_float(const struct shoali_node *node, int32_t index);
SHOAL_CHECKED shoal_status shoali_row_need_i32(const struct shoali_node *node, int32_t index);
/* ... and has input 0's type and shape. */
SHOAL_CHECKED shoal_status shoali_row_need_like_first(const struct shoali_node *node,
                                                      int32_t index);
/* SHOAL_EINVAL unless parameter `index` is there with the type and a shape that are expected. */
SHOAL_CHECKED shoal_status shoali_row_need_param(const struct shoali_node *node, int32_t index,
                                                 shoal_dtype dtype, const shoal_shape *shape);
/* Output 0 like input 0. */
SHOAL_CHECKED shoal_status shoali_row_output_like_first(struct shoal_tape *tape,
                                                        struct shoali_node *node);
/* Resolves dim < 0 from the end; SHOAL_EINVAL when outside. */
SHOAL_CHECKED shoal_status shoali_row_dim(const struct shoali_node *node, int32_t ndim,
                                          int32_t *dim);
/* Global number of a tensor's first element, given the samples this tape holds. */
int64_t shoali_row_first_element(const struct shoal_tape *tape, const struct shoal_tensor *tensor);

/* Launches a kernel of ops.h, unless in meta mode. The fronts settle the empty cases. */
#define SHOALI_RUN(tape, kernel, args) \
    SHOALI_LAUNCH(tape, shoali_op_##kernel(shoali_tape_exec(tape), args))

/* Sum of all inputs', parameters' and outputs' bytes. */
int64_t shoali_cost_bytes(const struct shoali_node *node);
/* One FLOP per element of output 0, the same backward. */
void shoali_cost_elementwise(const struct shoal_tape *tape, const struct shoali_node *node,
                             int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes);
/* Copies: bytes alone. */
void shoali_cost_move(const struct shoal_tape *tape, const struct shoali_node *node,
                      int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes);

/* The kernel's name for an activation; SHOALI_GELU_ERF stands for NONE too, which callers test
 * first. */
enum shoali_unary shoali_activation_kernel(shoal_activation activation);
#endif
