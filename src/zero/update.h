/* update - fp32 masters and optimizer states of the own parts, their initial values, and the step.
 *
 *   master   the weights that are updated; fp32 models without offload have no others, so there it
 *            is the buffer of weights itself, and lies where weights lie (`weight` of a segment)
 *            16-bit models without training have none: what is drawn, loaded or set is rounded into
 *            the weights (shoali_zero_source)
 *   state    one buffer of the part space for each state of the optimizer that is per element
 *
 * Both hold the first shoali_zero_outside.device_count elements of the part space; the others are
 * updated outside (offload_step.c). The optimizer sees segments: it knows neither parameters nor
 * ranks. An optimizer that measures sees them once for each measure, then for the step: a pass over
 * the segments each time.
 *
 * INVARIANT. Weights are masters rounded once, wherever the update ran.
 */
#ifndef SHOALI_ZERO_UPDATE_H
#define SHOALI_ZERO_UPDATE_H

#include "zero/clip.h"
#include "zero/fetch.h"
#include "zero/offload.h"
#include "zero/snapshot.h"
#include "zero/tensors.h"

struct shoali_zero_masters {
    const struct shoali_zero_setup *setup;
    const struct shoali_zero_layout *layout;
    const struct shoali_zero_gradients *gradients;
    const struct shoali_zero_clip *clip;
    struct shoali_zero_weights *weights;
    struct shoali_zero_outside *outside;
    struct shoali_zero_tensors *tensors;
    struct shoali_zero_snapshot *snapshot; /* owned by zero; NULL: none */
    float *master;
    float *state[SHOALI_OPTIMIZER_MAX_STATES];
};
SHOAL_CHECKED shoal_status shoali_zero_masters_init(struct shoali_zero_masters *masters);
void shoali_zero_masters_fini(struct shoali_zero_masters *masters);
/* Initial values of everything; the weights are to be rounded afterwards. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_masters_initialise(struct shoali_zero_masters *masters);
/* Updates all own parts, or with now NULL rounds masters into weights. */
SHOAL_CHECKED shoal_status shoali_zero_masters_step(struct shoali_zero_masters *masters,
                                                    const struct shoali_zero_now *now);
/* A pass where something is offloaded (offload_step.c): `measure` of all segments, or with -1 the
 * step. now NULL: masters are rounded into weights. */
SHOAL_CHECKED shoal_status shoali_zero_offload_pass(struct shoali_zero_masters *masters,
                                                    const struct shoali_optimizer_now *now,
                                                    int32_t measure);
/* What a pass does with a piece. */
SHOAL_CHECKED static inline shoal_status
shoali_zero_update_piece(const struct shoali_optimizer *optimizer,
                         const struct shoali_optimizer_now *now, int32_t measure,
                         const struct shoali_optimizer_segment *piece)
{
    return measure >= 0 ? shoali_optimizer_measure(optimizer, measure, now, piece)
                        : shoali_optimizer_step(optimizer, now, piece);
}

/* Where a part's element lies in `master`. */
static inline float *shoali_zero_master(const struct shoali_zero_masters *masters, int64_t local,
                                        int64_t weight)
{
    return masters->master + (shoali_zero_master_is_weights(masters->setup) ? weight : local);
}
/* Where it lies in what weights are made of: masters, or, where there are none, the weights. */
static inline shoal_dtype shoali_zero_source_dtype(const struct shoali_zero_setup *setup)
{
    return shoali_zero_keeps_masters(setup) ? SHOAL_F32 : shoali_zero_dtype(setup);
}
static inline void *shoali_zero_source(const struct shoali_zero_masters *masters, int64_t local,
                                       int64_t weight)
{
    if (shoali_zero_keeps_masters(masters->setup))
        return shoali_zero_master(masters, local, weight);
    return shoali_zero_at(masters->weights->data, weight, shoali_zero_dtype(masters->setup));
}

#endif
