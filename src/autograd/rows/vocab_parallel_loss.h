/* vocab_parallel_loss - row losses of logits whose vocabulary tp divides, or that exact_splits
 * declares in pieces.
 *
 * Of each piece there are three fp32 numbers per row, [3][rows]: the largest logit, the sum of
 * exponentials and the target's logit. The last is 0 where the target is in another piece. With
 * smoothed labels it is what they expect of the piece, which adds up over pieces as well.
 *
 * A rank makes those of its pieces (one, or its splits), all exchange them, and each joins them in
 * the order of the vocabulary. Gradients need nothing more. */
#ifndef SHOALI_AUTOGRAD_VOCAB_PARALLEL_LOSS_H
#define SHOALI_AUTOGRAD_VOCAB_PARALLEL_LOSS_H

#include "autograd/rows/exact_splits.h"

/* Outputs of such nodes. PARTS: [pieces of all ranks][3][rows]. */
enum { SHOALI_LOSS_RESULT, SHOALI_LOSS_LSE, SHOALI_LOSS_COUNT, SHOALI_LOSS_PARTS };
/* Describes them: `targets` are input `index`. `columns`: how the vocabulary is divided. */
SHOAL_CHECKED shoal_status shoali_vocab_parallel_loss_outputs(struct shoal_tape *tape,
                                                              struct shoali_node *node,
                                                              int32_t index, shoal_dtype dtype,
                                                              const struct shoali_columns *columns);
/* The memory of the three numbers of this rank's piece `index`, as tiles of logits begin with
 * them. */
SHOAL_CHECKED shoal_status
shoali_vocab_parallel_loss_begin(struct shoal_tape *tape, struct shoali_node *node, int32_t index,
                                 struct shoali_cross_entropy_tile_args *tile);
SHOAL_CHECKED shoal_status shoali_vocab_parallel_loss_post(struct shoal_tape *tape,
                                                           struct shoali_node *node);
/* Losses, their mean over targets, which are input 1. */
SHOAL_CHECKED shoal_status shoali_vocab_parallel_loss_join(struct shoal_tape *tape,
                                                           struct shoali_node *node,
                                                           int64_t vocabulary);
/* Attribute of a loss's node. */
struct shoali_loss_labels {
    double smoothing;
    struct shoali_label_probabilities wanted; /* set by infer */
};
/* What is wanted of `classes` of the whole. SHOAL_EINVAL: a smoothing that is none. */
SHOAL_CHECKED shoal_status shoali_loss_smooth(const struct shoali_node *node, int64_t classes,
                                              struct shoali_loss_labels *labels);
/* FLOPs of a logit in forward. */
int64_t shoali_loss_flops(const struct shoali_loss_labels *labels);

/* Cross-entropy of logits with one part of columns. */
shoal_tensor *shoali_vocab_parallel_cross_entropy(shoal_tape *tape, shoal_tensor *logits,
                                                  shoal_tensor *targets, double label_smoothing);

#endif
