/* hpz - ZeRO++'s second copy of the weights (Wang et al. 2023): the first gather after an update
 * leaves one, cut over hpz_size neighbours of the group, from which later gathers come. A unit's
 * copy is good until its own parts change.
 */
#ifndef SHOALI_ZERO_HPZ_H
#define SHOALI_ZERO_HPZ_H

#include "zero/jobs.h"

struct shoali_zero_hpz {
    const struct shoali_zero_setup *setup; /* NULL: there is no second copy */
    const struct shoali_zero_layout *layout;
    void *copy;        /* [count], compute dtype */
    int64_t *begin_of; /* [units + 1] in it */
    bool *good;        /* [units] */
};
/* How many ranks of a group of `size` share a copy; 0: none. */
int32_t shoali_zero_hpz_size(const struct shoali_zero_setup *setup, int32_t size);
/* Collective. */
SHOAL_CHECKED shoal_status shoali_zero_hpz_init(struct shoali_zero_hpz *hpz,
                                                const struct shoali_zero_setup *setup,
                                                const struct shoali_zero_layout *layout);
void shoali_zero_hpz_fini(struct shoali_zero_hpz *hpz);
int64_t shoali_zero_hpz_count(const struct shoali_zero_hpz *hpz); /* elements of the own slices */
/* A bucket from the copy; into the copy, from the gathered bucket. */
SHOAL_CHECKED shoal_status shoali_zero_hpz_gather(const struct shoali_zero_hpz *hpz,
                                                  const struct shoali_zero_channel *channel,
                                                  const struct shoali_zero_bucket *bucket,
                                                  const struct shoali_post *named, void *out);
SHOAL_CHECKED shoal_status shoali_zero_hpz_keep(const struct shoali_zero_hpz *hpz,
                                                const struct shoali_zero_channel *channel,
                                                const struct shoali_zero_bucket *bucket,
                                                void *gathered);

#endif
