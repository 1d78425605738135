/* cut_loss - row losses of logits whose vocabulary tp divides. Each rank has per row the largest of its
 * logits, the sum of exponentials and the target's logit (or 0): [3][rows] fp32, which all exchange;
 * then each joins them in the order of ranks. Gradients need nothing more. */
#ifndef SHOALI_AUTOGRAD_CUT_LOSS_H
#define SHOALI_AUTOGRAD_CUT_LOSS_H

#include "autograd/rows/rows.h"

/* Outputs of such nodes. PARTS: [ranks][3][rows]. */
enum { SHOALI_LOSS_RESULT, SHOALI_LOSS_LSE, SHOALI_LOSS_COUNT, SHOALI_LOSS_PARTS };
/* Describes them: `targets` are input `index`. */
SHOAL_CHECKED shoal_status shoali_cut_loss_outputs(struct shoal_tape *tape,
                                                   struct shoali_node *node, int32_t index,
                                                   shoal_dtype dtype);
/* The memory of this rank's three numbers, as tiles of logits begin with them. */
SHOAL_CHECKED shoal_status shoali_cut_loss_begin(struct shoal_tape *tape, struct shoali_node *node,
                                                 struct shoali_cross_entropy_tile_args *tile);
SHOAL_CHECKED shoal_status shoali_cut_loss_post(struct shoal_tape *tape, struct shoali_node *node);
/* Losses, their mean over targets, which are input 1. */
SHOAL_CHECKED shoal_status shoali_cut_loss_join(struct shoal_tape *tape, struct shoali_node *node,
                                                int64_t vocabulary);
/* Cross-entropy of logits with one part of columns. */
shoal_tensor *shoali_cut_cross_entropy(shoal_tape *tape, shoal_tensor *logits,
                                       shoal_tensor *targets);

#endif
