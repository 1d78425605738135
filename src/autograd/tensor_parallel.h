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
 * A tensor that is cut along its last dim says so: its block lies in a larger whole. All other tensors
 * are on all ranks alike ("replicated"), or with sequence parallelism cut along the sequence.
 *
 * SEQUENCE PARALLEL. What is between a row and the next column (norms, dropout, residual sums) works
 * on T/t positions of each sample: rank r has the r-th part. A column weight gathers its input along
 * the sequence, a row weight's sum is scattered along it; backward does the opposite. Gradients of
 * parameters that are not cut are then sums over tp (shoal_param.sum_over_tensor).
 *
 * SUMS. fast: messages have the type of activations, sums are in rank order. exact: S logical splits
 * (the key exact_splits.tensor, a power of two, tp divides it); rank r of t stands for the S/t splits
 * from r S/t on. A sum over a cut dim is S partial sums in fp32, each in the order of one dot
 * product, joined by the binary tree over S leaves, rounded to the type of activations once: on one
 * rank with S splits as on S ranks. Units (heads) are divided by S first, so a rank of t has those of
 * its splits.
 *
 * Source: Shoeybi et al. 2019, Korthikanti et al. 2022.
 */
#ifndef SHOALI_TENSOR_PARALLEL_H
#define SHOALI_TENSOR_PARALLEL_H

#include "comm/comm.h"

struct shoali_tensor_parallel {
    shoal_group *group;  /* along tp, borrowed; NULL: one rank, or meta mode */
    int32_t ranks, rank; /* in it; ranks 0: 1 */
    bool sequence;
    bool overlap; /* the sum of an input's gradient runs beside the weight's gradient */
    bool exact;
    int32_t splits;          /* exact: S; 0: 1 */
    int32_t sequence_splits; /* exact: declared blocks of the sequence; 0: 1 */
};

#endif
