/* rows - what the files of op rows share. A file holds, per op: its row, and the public
 * function that records it.
 *
 * FLOPs count a multiply and an add as two; attention counts the full T x T products, causal or
 * not, as model FLOPs do, and with a window T x window. Element-wise ops count one per element.
 * Bytes are those of inputs, parameters and outputs, once each.
 */
#ifndef SHOALI_AUTOGRAD_ROWS_H
#define SHOALI_AUTOGRAD_ROWS_H

#include "autograd/tape/tape.h"

/* `prepare` of all rows: gathers inputs whose partition the row's flags do not accept. */
SHOAL_CHECKED shoal_status shoali_tensor_make_whole(struct shoal_tape *tape,
                                                    struct shoali_record_args *record);
#define SHOALI_ROW_HEAD                                              \
    .abi = SHOALI_OP_ROW_ABI, .bytes = sizeof(struct shoali_op_row), \
    .prepare = shoali_tensor_make_whole

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
/* SHOAL_EINVAL unless input `index` is targets for logits of such a shape: I32, their dims without
 * the last, and as far as the host knows them below the last. */
SHOAL_CHECKED shoal_status shoali_row_need_targets(const struct shoali_node *node, int32_t index,
                                                   const shoal_shape *logits);
/* SHOAL_EINVAL unless input 0 is [B, T, (heads + 2 kv_heads) D], a multiple of kv_heads heads. */
SHOAL_CHECKED shoal_status shoali_row_need_packed_heads(const struct shoali_node *node,
                                                        int64_t heads, int64_t kv_heads,
                                                        int64_t *head_size);
/* Output 0 like input 0. */
SHOAL_CHECKED shoal_status shoali_row_output_like_first(struct shoal_tape *tape,
                                                        struct shoali_node *node);
/* Resolves dim < 0 from the end; SHOAL_EINVAL when outside. */
SHOAL_CHECKED shoal_status shoali_row_dim(const struct shoali_node *node, int32_t ndim,
                                          int32_t *dim);
/* COORDINATES. After shoali_node_output, infer says where output 0 lies in its whole by one of
 * these. Dims that an op mixes or reduces are whole in its result; dims that it only carries keep
 * their block. A rule that cannot be applied leaves the default, which shoali_node_output has set:
 * the block of an input of the same shape (the first that is no whole), else one range with an
 * equal part for each sample of the tape, or, for what is not made of samples, a whole. */
/* Input 0's block for another shape with the same elements in the same order. */
void shoali_block_keep(struct shoali_node *node);
/* A whole. */
void shoali_block_forget(struct shoali_node *node);
/* Input 0's first `leading` dims; the output's others are whole. */
void shoali_block_leading(struct shoali_node *node, int32_t leading);
/* Input 0 with two dims exchanged. */
void shoali_block_swapped(struct shoali_node *node, int32_t dim_a, int32_t dim_b);
/* `count` from `begin` on of one dim of input 0. */
void shoali_block_sliced(struct shoali_node *node, int32_t dim, int64_t begin, int64_t count);
/* Input 0 without one dim. */
void shoali_block_reduced(struct shoali_node *node, int32_t dim);
/* The inputs behind each other along dim: neighbours in their whole stay a block of it, anything
 * else makes a new whole of that dim. */
void shoali_block_joined(struct shoali_node *node, int32_t dim);
/* Where a dim lies in its whole; false when its elements are no contiguous part of it. */
bool shoali_block_dim(const struct shoal_tensor *tensor, int32_t dim, int64_t *global,
                      int64_t *offset);

/* ---- tp: rows/tensor.c, rows/columns.c; autograd/tensor_parallel.h ---- */

enum shoali_tensor_rule { SHOALI_TENSOR_WHOLE, SHOALI_TENSOR_COLUMN, SHOALI_TENSOR_ROW };
/* How tp cuts a matrix whose outputs are along out_dim. */
enum shoali_tensor_rule shoali_tensor_rule(const struct shoal_tape *tape,
                                           const struct shoal_param *weight, int32_t out_dim);
/* SHOAL_EINVAL: some rank has nothing of it; on all ranks alike. */
SHOAL_CHECKED shoal_status shoali_tensor_check_shares(const struct shoal_tape *tape,
                                                      const struct shoal_param *weight);
/* x as a column weight reads it. Its user closes it (shoali_tensor_done), if it is another. */
shoal_tensor *shoali_tensor_enter(shoal_tape *tape, shoal_tensor *x);
struct shoali_leave_args {
    struct shoal_param *bias;
    shoal_tensor *residual;
    shoal_activation activation;
    bool wide; /* x: shares of an exact sum, in the wide type (rows/exact_splits.h) */
};
/* act(sum over tp of x + bias) + residual; with sequence parallelism of this rank's positions.
 * Closes x. */
shoal_tensor *shoali_tensor_leave(shoal_tape *tape, shoal_tensor *x,
                                  const struct shoali_leave_args *args);
/* Gives back what no one but recorded nodes will read; if it is not `kept`. */
void shoali_tensor_done(shoal_tape *tape, shoal_tensor *x, const shoal_tensor *kept);
/* The whole of a sequence (of a last dim: shoali_tensor_gather_columns); own columns of a
 * replicated x, divided as `columns`. */
shoal_tensor *shoali_tensor_gather_sequence(shoal_tape *tape, shoal_tensor *x);
shoal_tensor *shoali_tensor_take_columns(shoal_tape *tape, shoal_tensor *x,
                                         const struct shoali_columns *columns);
/* Own positions of a replicated x, where sequences are divided; else x. */
shoal_tensor *shoali_tensor_take_sequence(shoal_tape *tape, shoal_tensor *x);
/* Whether what leaves a row weight is this rank's positions of x alone. */
bool shoali_tensor_scatters(const struct shoal_tape *tape, const shoal_tensor *x);
/* Says that output 0's last dim is so divided. */
void shoali_tensor_set_columns(struct shoali_node *node, const struct shoali_columns *columns);
bool shoali_columns_equal(const struct shoali_columns *a, const struct shoali_columns *b);
/* This rank's heads of packed qkv, of the whole's `heads` and `kv_heads`. Without cut columns
 * all. */
struct shoali_heads {
    int64_t heads, kv_heads, first_head, whole_heads;
};
/* For public ops on packed qkv: gathers qkv if heads are not divided, and counts those that are
 * here. */
shoal_tensor *shoali_tensor_need_heads(shoal_tape *tape, shoal_tensor *qkv, int64_t heads,
                                       int64_t kv_heads, struct shoali_heads *mine);

/* Launches a kernel of ops.h, unless in meta mode. The fronts settle the empty cases. */
#define SHOALI_RUN(tape, kernel, args) \
    SHOALI_LAUNCH(tape, shoali_op_##kernel(shoali_tape_exec(tape), args))

/* Gives a product whose b is the parameter its packed form, if there is one; packs it if the
 * parameter was written since. In meta mode: counts the product. */
SHOAL_CHECKED shoal_status shoali_packed_get(struct shoal_tape *tape, struct shoal_param *param,
                                             enum shoali_packed_use use,
                                             struct shoali_gemm_args *product);

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
/* ... at the end of a product. */
enum shoali_activation shoali_activation_epilogue(shoal_activation activation);
#endif
