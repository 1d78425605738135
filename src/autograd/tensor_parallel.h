/* tensor_parallel - what ops need to know when ranks share matrices.
 *
 * WORDS
 *   column   a weight whose output dim is cut along tp: each rank computes its columns of y. Forward
 *            needs nothing of the others; the input's gradient is a sum over ranks.
 *   row      a weight whose input dim is cut: each rank has the columns of x that its rows take, and
 *            y is a sum over ranks. The input's gradient needs nothing of the others.
 *   vocabulary  a table [V, C] whose rows are cut: row as an embedding (a rank without the row adds
 *            nothing), column as the head (its logits are cut, and so are the loss's sums over V).
 * An op finds out which by the shard of its parameter (shoal_param.shard), so a model says how its
 * parameters are cut (shoal_param_split) and its forward stays one piece of code: sizes in it, such
 * as numbers of heads, are those of the whole.
 *
 * A tensor that is cut along its last dim says so (shoal_tensor.columns), and rows that compute on
 * such carry SHOALI_ROW_COLUMNS: element-wise ones, gated units, attention and what is done to
 * heads, the loss. All other tensors are on all ranks alike ("replicated"), or with sequence
 * parallelism cut along the sequence (sequence_part; SHOALI_ROW_SEQUENCE). An input of any other
 * row is gathered before it; then all ranks compute the same, and the gradient of a rank's part is
 * its part of the gradient.
 *
 * HOW. An op with a cut parameter is recorded as several nodes, of which the op's own computes on
 * this rank's part and the others (rows/tensor.c, rows/columns.c) talk:
 *   enter    before a column: x as it is. Backward sums x's gradient, beside the kernels of the
 *            weight's gradient (SHOALI_ROW_HURRIED), unless `overlap` is off. The bits are the
 * same.
 *   leave    behind a row: the sum over tp; then, each rounded to the type of activations, bias,
 *            activation, residual. Backward hands the gradient on. A bias is added once, and
 *            is replicated.
 *   gather, take   a whole out of each rank's columns; and back.
 * Those nodes count for no random stream (SHOALI_ROW_HELPER): dropout draws the same masks with any
 * number of ranks, from coordinates in the whole; in attention, of whole heads.
 *
 * HEADS, UNEVEN SHARES. Dims are divided in whole units, the first ranks having one more. Ranks
 * that outnumber the groups of query heads divide a group, and all of them have its key and value
 * head, whose gradient is then a sum over those that share it.
 *
 * SEQUENCE PARALLEL. What is between a row and the next column (norms, dropout, residual sums)
 * works on T/t positions of each sample: rank r has the r-th part. A column weight gathers its
 * input along the sequence, a row weight's sum is scattered along it; backward does the opposite.
 * Gradients of parameters that are not cut are then sums over tp (shoal_param.sum_over_tensor):
 * zero sums them over the ranks of dp and tp together, as if tp divided the samples, too.
 *
 * SUMS. All go through shoali_tensor_post. fast: messages have the type of activations, sums are in
 * rank order. exact: S logical splits (the key exact_splits.tensor, a power of two, tp divides it);
 * rank r of t stands for the S/t splits from r S/t on. A sum over a cut dim is S shares in fp32,
 * each in the order of one dot product (of a dim of several parts, q, k and v: one for each, added
 * in the order of the parts), joined by the binary tree over S leaves, and rounded to the type of
 * activations once, behind what follows it in a product (bias, activation, residual): on one rank
 * with S splits as on S ranks. A rank joins its splits, which are a subtree, and messages are of
 * fp32 (SHOAL_SUM_TREE). So with splits
 *   row         y of one node on one rank; on several the node's result is the share, in fp32
 *   column      x's gradient: on several ranks the share is in the buffer of the gradient of what
 *               `enter` made, which is as wide (wide_grad)
 *   vocabulary  the loss joins the three numbers of every split in their order, of which all ranks
 *               have all: rows/vocab_parallel_loss.h
 * Units (heads) are divided by S first, so a rank of t has those of its splits. What several splits
 * would share (a group's key head) is refused. rows/exact_splits.h has the functions.
 *
 * CONTRIBUTIONS. exact: what each rank along tp adds to a parameter that is not cut is one or
 * several contributions, each an integer, and on one rank it is the same ones: of a norm of heads
 * one for each split, and of all that is not split one for each declared block of the sequence
 * (exact_splits.sequence; ranks of sequence parallelism have whole blocks), of a block one fp32 sum
 * over the samples of the micro-batch, each complete before the add. A parameter that is split has
 * one contribution, whatever tp is: its ranks have other elements.
 *
 * Source: Shoeybi et al. 2019, Korthikanti et al. 2022.
 */
#ifndef SHOALI_TENSOR_PARALLEL_H
#define SHOALI_TENSOR_PARALLEL_H

#include "comm/comm.h"
#include "tensor/tensor.h"

struct shoal_param;
struct shoal_tape;
struct shoali_node;

struct shoali_tensor_parallel {
    shoal_group *group;  /* along tp, borrowed; NULL: one rank, or meta mode */
    int32_t ranks, rank; /* in it; ranks 0: 1 */
    bool sequence;
    bool overlap; /* the sum of an input's gradient runs beside the weight's gradient */
    bool exact;
    int32_t splits;          /* exact: S; 0: 1 */
    int32_t sequence_splits; /* exact: declared blocks of the sequence; 0: 1 */
};

enum shoali_tensor_kind {
    SHOALI_TENSOR_SUM,     /* out [count] = sum of in [count] */
    SHOALI_TENSOR_SCATTER, /* out [count] = the own part of the sum of in [ranks][count] */
    SHOALI_TENSOR_GATHER   /* out [ranks][count] = in [count] of all; in may be its place in out */
};
/* What a node posts along tp, in forward_post or backward_post. */
SHOAL_CHECKED shoal_status shoali_tensor_post(struct shoal_tape *tape, struct shoali_node *node,
                                              const void *in, void *out, int64_t count,
                                              shoal_dtype dtype, enum shoali_tensor_kind kind);

/* x with its whole last dim on all ranks; x itself if it is not cut. In rows/columns.c. */
struct shoal_tensor *shoali_tensor_gather_columns(struct shoal_tape *tape, struct shoal_tensor *x);
/* Remembers whether the gradients that the node will make of its parameters are parts of sums over
 * tp. SHOAL_EINVAL: another node's are not. */
SHOAL_CHECKED shoal_status shoali_tensor_note_params(struct shoal_tape *tape,
                                                     const struct shoali_node *node);
/* The same of one parameter. */
SHOAL_CHECKED shoal_status shoali_tensor_note_param(struct shoal_param *param, bool is_part);

#endif
