/* setup - what every part of zero reads and none changes after creation: the caller's arguments,
 * and what follows from them alone.
 *
 *   stage      the one that was asked for; 0 when there is one data rank, because all stages are
 *              then the same
 *   fetches    weights are gathered on demand: stage 3 of several data ranks, and stage 3 of one
 *              whose weights are offloaded
 *   offloads   masters, states or weights wait outside the device: masters are not the weights
 *
 * A part is an object with a header of its own. It holds a pointer to this, to the layout, and to
 * the parts that it stands on; nothing below zero.c sees struct shoali_zero:
 *
 *   layout.h       who owns what: units, buckets, ranges, segments; pure arithmetic
 *   jobs.h         groups, and the communication thread
 *   pool.h         buffers of live units
 *   wire.h         how a bucket travels: as it is, or (quantized.h) in few bits
 *   param_store.h  own parts of the weights outside the device
 *   fetch.h        weights on demand;  hpz.h  their second copy
 *   reduce.h       sinks and sums over ranks;  mics.h  over replicas
 *   clip.h         one decision from the sums;  used_params.h  a part of its message
 *   update.h       masters, states, the optimizer
 *   tensors.h      what the optimizer knows of whole tensors
 *   offload.h      the same outside the device
 */
#ifndef SHOALI_ZERO_SETUP_H
#define SHOALI_ZERO_SETUP_H

#include "zero/zero.h"

struct shoali_zero_setup {
    struct shoali_zero_args args; /* offload: with the homes that were chosen */
    struct shoali_optimizer optimizer;
    shoal_group *everyone; /* of the verdict; NULL: one rank */
    int32_t rank, world;   /* in it */
    int32_t data_ranks;    /* that divide the micro-batches: args.group */
    int32_t most_ranks;    /* of the largest group that a parameter is cut over */
    int32_t stage;
    bool fetches, offloads;
    int64_t passes; /* backward passes of a step on this rank */
    /* Of the largest step, all data ranks together: the range of exact sums. */
    int64_t micro_batches;
    int64_t mean_of; /* ... of a step now: what a mean divides by */
};
SHOAL_CHECKED shoal_status shoali_zero_setup_init(struct shoali_zero_setup *setup,
                                                  const struct shoali_zero_args *args);

static inline char *shoali_zero_at(void *buffer, int64_t index, shoal_dtype dtype)
{
    return (char *)buffer + (size_t)index * shoal_dtype_bytes(dtype);
}
static inline shoal_dtype shoali_zero_dtype(const struct shoali_zero_setup *setup)
{
    return setup->args.module->dtype;
}
static inline shoal_dtype shoali_zero_gradient_dtype(const struct shoali_zero_setup *setup)
{
    return setup->args.exact ? SHOAL_I64 : SHOAL_F32;
}
static inline bool shoali_zero_master_is_weights(const struct shoali_zero_setup *setup)
{
    return shoali_zero_dtype(setup) == SHOAL_F32 && !setup->offloads;
}
/* Of the flat shard: masters, and states that are per element. */
/* Without training nothing is added to weights: 16-bit ones on the device need no fp32 beside them.
 */
static inline bool shoali_zero_keeps_masters(const struct shoali_zero_setup *setup)
{
    return setup->args.optimizer || shoali_zero_dtype(setup) == SHOAL_F32 || setup->offloads;
}
static inline int32_t shoali_zero_state_rows(const struct shoali_zero_setup *setup)
{
    return 1 + (setup->args.optimizer ? shoali_optimizer_element_states(&setup->optimizer) : 0);
}
static inline int32_t shoali_zero_ceil_log2(int64_t value)
{
    int32_t bits = 0;
    while (bits < 63 && ((uint64_t)1 << bits) < (uint64_t)value)
        bits++;
    return bits;
}
/* Hands on the status of something collective. A failure is told to the other ranks, which wait for
 * this one: else they would until the timeout, and this one for them when it destroys its groups.
 */
SHOAL_CHECKED shoal_status shoali_zero_share_failure(const struct shoali_zero_setup *setup,
                                                     shoal_status status);

#endif
