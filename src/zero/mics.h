/* mics - MiCS (Zhang et al. 2022): parts are cut over shard_size neighbours of a group instead of
 * all of it, so gathers stay near. Ranks with the same parts are replicas; their parts' gradients
 * are summed over them once per step, and each takes a slice of the norm.
 */
#ifndef SHOALI_ZERO_MICS_H
#define SHOALI_ZERO_MICS_H

#include "zero/jobs.h"

/* In how many parts a bucket is cut over a group of `size` ranks. */
int32_t shoali_zero_mics_parts(const struct shoali_zero_setup *setup, int32_t size);
/* Posts the sums of `part_gradients` over the replicas, when there are any. */
SHOAL_CHECKED shoal_status shoali_zero_mics_reduce(struct shoali_zero_jobs *jobs,
                                                   void *part_gradients);

#endif
