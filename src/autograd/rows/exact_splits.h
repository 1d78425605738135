/* exact_splits - sums over a dim that is declared in logical splits (autograd/tensor_parallel.h,
 * SUMS):
 * what the files of tp's rows and of products share. Nothing here is of use without exact_splits.
 *
 * A split's share of a product is one dot product per part of the dim (q, k, v; the weights of
 * linears), added in the order of the parts, in fp32. Shares are joined by the binary tree over all
 * splits. A rank joins those of its own, which are a subtree; ranks are joined by SHOAL_SUM_TREE.
 * What comes behind the sum (bias, activation, residual, the rounding) is the end of one gemm,
 * whether the sum was made here or came from others, so that both have the same bits.
 */
#ifndef SHOALI_AUTOGRAD_EXACT_SPLITS_H
#define SHOALI_AUTOGRAD_EXACT_SPLITS_H

#include "autograd/rows/rows.h"

/* This rank's splits of a sum over dim `dim` of a weight; 0: the sum is not in splits. */
int32_t shoali_exact_splits_of(const struct shoal_tape *tape, const struct shoal_param *weight,
                               int32_t dim);
/* SHOAL_EINVAL: some split of exact sums would have nothing of the weight (NULL: fine). */
SHOAL_CHECKED shoal_status shoali_exact_splits_check(const struct shoal_param *weight);
/* Local indices of part `part` in this rank's split number `split`. */
struct shoali_interval shoali_exact_splits_piece(const struct shoal_tape *tape,
                                                 const struct shoali_columns *columns,
                                                 int32_t split, int32_t part);

/* Whole pieces of a dim of one part that sums are made of here: this rank's splits, or one. */
static inline int32_t shoali_columns_pieces(const struct shoal_tape *tape,
                                            const struct shoali_columns *columns)
{
    const int32_t ranks = shoali_is_tensor_parallel(tape) ? tape->args.tensor_parallel.ranks : 1;
    return columns->splits > 1 ? columns->splits / ranks : 1;
}
/* The index-th of them. */
struct shoali_interval shoali_columns_piece(const struct shoal_tape *tape,
                                            const struct shoali_columns *columns, int32_t index);

/* C = A B, summed over a declared dim of the weights that are B, behind each other along A's
 * columns. */
struct shoali_split_product {
    struct shoali_gemm_args gemm; /* all of it but b, k and ldb; c may be NULL for a partial */
    struct shoal_param *const *weight;
    int32_t weights, dim;
};
/* To gemm.c, with its end. */
SHOAL_CHECKED shoal_status shoali_split_gemm(struct shoal_tape *tape,
                                             const struct shoali_split_product *product);
/* This rank's subtree, in the wide type, rows n apart. */
SHOAL_CHECKED shoal_status shoali_split_partial(struct shoal_tape *tape,
                                                const struct shoali_split_product *product,
                                                void *partial);
/* left += right: a node of the tree. */
SHOAL_CHECKED shoal_status shoali_split_add(struct shoal_tape *tape, void *left, const void *right,
                                            int64_t count, shoal_dtype wide);
/* The end of a gemm for a sum that is there: c = round(act(sum + bias) + residual). */
struct shoali_split_end {
    const void *sum; /* wide; may be c */
    void *c;
    const void *bias, *residual;
    void *preact;
    enum shoali_activation activation;
    int64_t rows, columns;
    shoal_dtype dtype; /* of c and what is added */
};
SHOAL_CHECKED shoal_status shoali_split_finish(struct shoal_tape *tape,
                                               const struct shoali_split_end *end);

/* In backward: the gradient of input `index` by a product over a column weight's outputs, between
 * shoali_grad_begin(.., false) and shoali_grad_end. Where tp cuts it, this rank's share, which is
 * rounded behind the sum. */
SHOAL_CHECKED shoal_status shoali_split_input_gradient(struct shoal_tape *tape,
                                                       struct shoali_node *node, int32_t index,
                                                       const struct shoali_split_product *product);

/* CONTRIBUTIONS. Of a parameter that tp does not divide: rows of a tensor [B, T, ..] whose
 * gradients are one contribution, for each declared block of the sequence that is here. A block's
 * are those of its samples in turn, each complete. Without sequence splits, or where the tensor has
 * no sequence: all rows as one. */
struct shoali_blocks {
    int64_t blocks, samples; /* runs: block by block the samples */
    int64_t rows, stride;    /* of a run; of a sample */
};
struct shoali_blocks shoali_blocks_of(const struct shoal_tape *tape,
                                      const struct shoal_param *param,
                                      const struct shoal_tensor *tensor);
/* The whole contribution of a node's output 0 to a parameter, from begin to end: `run` writes or
 * adds what these rows give. */
struct shoali_range {
    int64_t first, count;
};
typedef shoal_status shoali_rows_gradient(struct shoal_tape *tape, struct shoali_node *node,
                                          int32_t param, const struct shoali_range *rows, void *to,
                                          bool accumulate);
SHOAL_CHECKED shoal_status shoali_contribute(struct shoal_tape *tape, struct shoali_node *node,
                                             int32_t param, shoali_rows_gradient *run);
/* The same of a weight whose gradient is a product over the rows: `product` says which, but for
 * where its sums go. */
typedef struct shoali_gemm_args shoali_rows_product(struct shoal_tape *tape,
                                                    const struct shoali_node *node, int32_t param,
                                                    const struct shoali_range *rows);
SHOAL_CHECKED shoal_status shoali_contribute_product(struct shoal_tape *tape,
                                                     struct shoali_node *node, int32_t param,
                                                     shoali_rows_product *product);
static inline int64_t shoali_blocks_row(const struct shoali_blocks *blocks, int64_t block,
                                        int64_t sample)
{
    return sample * blocks->stride + block * blocks->rows;
}

#endif
