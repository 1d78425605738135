/* loss_scaler - the scale that keeps small fp16 gradients from vanishing.
 *
 * The loss is multiplied by `scale` before backward and gradients are divided by it before the
 * update. Dynamic rule (DeepSpeed's, as its ZeRO optimizers use it), with c scale, i iteration, l
 * iteration of the last overflow (-1), h hysteresis left (H when full): overflow: if H = 1 or h =
 * 1: c = max(c/2, min), an error when c is already min; else h -= 1.  l = i. clean:    with
 * consecutive_hysteresis h = H; s = i - l - 1; if s > 0 and s % window = 0: h = H, c *= 2. always
 * i += 1. So the first overflow after a refill only lowers h, and growth comes on the (window+1)-th
 * clean step.
 *
 * THE ENGINE'S BUSINESS: gradients of a step were made with the scale *before* update(); unscale
 * (gradient_norm.h: loss_scale) with that old value also when update() then grows or halves it.
 * Update once per step, with the flag reduced over all ranks, so the state is the same everywhere.
 * All scales are powers of two when the initial and minimum ones are: exact reduction requires
 * that.
 */
#ifndef SHOALI_LOSS_SCALER_H
#define SHOALI_LOSS_SCALER_H

#include "base/base.h"

/* The `fp16` section for the engine's root table. */
struct shoali_fp16_config {
    bool enabled, auto_cast;
    double loss_scale; /* 0: dynamic */
    int64_t initial_scale_power, loss_scale_window, hysteresis;
    bool consecutive_hysteresis;
    double min_loss_scale;
    bool fp16_master_weights_and_grads;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
extern const struct shoali_section shoali_fp16_section;

struct shoali_loss_scaler {
    /* state: what a checkpoint stores */
    double scale;
    int64_t iteration, last_overflow, hysteresis_left;
    /* configuration */
    bool dynamic, consecutive_hysteresis;
    int64_t window, hysteresis;
    double min_scale;
};

/* From the fp16 section (its values already checked by the section); not enabled: scale 1 for ever,
 * for fp32 and bf16. */
void shoali_loss_scaler_init(struct shoali_loss_scaler *scaler,
                             const struct shoali_fp16_config *config);
/* One step's verdict. A static scale never changes. SHOAL_ENUMERIC when an overflow comes at the
 * minimum scale: training has diverged. Cheap, not collective. */
SHOAL_CHECKED shoal_status shoali_loss_scaler_update(struct shoali_loss_scaler *scaler,
                                                     bool overflow);
/* SHOAL_ECONFIG when some reachable scale is no power of two: call it for "reduction": "exact". */
SHOAL_CHECKED shoal_status shoali_loss_scaler_check_exact(const struct shoali_loss_scaler *scaler);

/* The state in numbers, for the manifest. */
struct shoali_loss_scaler_state {
    double scale;
    int64_t iteration, last_overflow, hysteresis_left;
};
void shoali_loss_scaler_save(const struct shoali_loss_scaler *scaler,
                             struct shoali_loss_scaler_state *state);
/* Takes the state over. A static scaler ignores it and keeps its configured scale, and so does a
 * dynamic one when the state is a static one's. SHOAL_ECORRUPT names the value that cannot be. */
SHOAL_CHECKED shoal_status shoali_loss_scaler_restore(struct shoali_loss_scaler *scaler,
                                                      const struct shoali_loss_scaler_state *state);

#endif
