/* clip - one decision of all ranks from the sums of gradients: norm, overflow, losses, stop.
 *
 *   small     device memory that a step's kernels write one number each to: the sum of losses in
 *             fixed point and its flag, and a flag per parameter for contributions out of range
 *   record    pinned memory that the small numbers are copied to
 *   words     integers that add up over ranks in any order: the step's one small message
 *   control   what the optimizer's kernels read: norm, multiplier, skip; host and device
 *
 * INVARIANTS. Each element of the parameters' wholes is in the norm once over everyone (layout.h:
 * counted). Nothing but exact integers is added up over ranks.
 */
#ifndef SHOALI_ZERO_CLIP_H
#define SHOALI_ZERO_CLIP_H

#include "optimizer/gradient_norm.h"
#include "zero/reduce.h"

struct shoali_zero_clip {
    const struct shoali_zero_setup *setup;
    const struct shoali_zero_layout *layout;
    const struct shoali_zero_gradients *gradients;
    struct shoali_gradient_norm norm;
    int64_t *loss_sum; /* device: begin of the small block */
    uint32_t *loss_flag;
    uint32_t *param_flag; /* [params] */
    size_t small_bytes;
    void *record;
    int64_t *words;
    uint64_t order; /* hash of the scopes of this step */
    double divisor; /* of stored gradients: unscale and mean; set by each reduce */
};
SHOAL_CHECKED shoal_status shoali_zero_clip_init(struct shoali_zero_clip *clip);
void shoali_zero_clip_fini(struct shoali_zero_clip *clip);
/* A step begins: sums and flags are zero. */
SHOAL_CHECKED shoal_status shoali_zero_clip_begin(struct shoali_zero_clip *clip);
SHOAL_CHECKED shoal_status shoali_zero_clip_add_loss(struct shoali_zero_clip *clip,
                                                     const float *loss);
/* A scope is entered. Ranks that run their layers in different orders would sum different layers'
 * gradients: the hash of a step's scopes is one of its words. */
void shoali_zero_clip_note_scope(struct shoali_zero_clip *clip, int32_t position);
/* The gradients were summed, and are `factor` too large. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_clip_decide(struct shoali_zero_clip *clip, double loss_scale,
                                                   double factor, uint32_t asks,
                                                   struct shoali_zero_verdict *verdict);
/* Pinned: the control block, which stays here after its way to the device. */
static inline const float *shoali_zero_host_control(const struct shoali_zero_clip *clip)
{
    return clip->record;
}

#endif
