/* wire - how one bucket travels between the ranks of its group.
 *
 *   gather   own part -> whole bucket on every rank; `own` may lie at its place in `out`
 *   reduce   whole bucket of every rank -> sum of the own part in `out`; `whole` is used up
 *
 * The plain wire sends elements as they are, and its sums are in the order of ranks. quantized.h
 * has another one. A wire runs jobs, one after the other: what it keeps needs no lock.
 *
 * GATHERS BY HOSTS (MiCS' hierarchical gather). Over a group on several hosts a gather is one of
 * the backend, in which one rank speaks for each host (comm/hierarchical). With the flag every rank
 * gathers the parts of its place on all hosts, all places at once, and then each host's parts from
 * its neighbours: the same bytes between hosts, sent and received by all ranks instead of one. The
 * first hop arrives at the end of `out`, from where the second takes it before it gets there, so
 * that it needs no room of its own.
 */
#ifndef SHOALI_ZERO_WIRE_H
#define SHOALI_ZERO_WIRE_H

#include "zero/jobs.h"

struct shoali_zero_wire {
    void *user;
    /* `named`: all but the buffers, the kind and the count. */
    shoal_status (*gather)(void *user, const struct shoali_zero_channel *channel,
                           const struct shoali_zero_bucket *bucket, const struct shoali_post *named,
                           const void *own, void *out);
    shoal_status (*reduce)(void *user, const struct shoali_zero_channel *channel,
                           const struct shoali_zero_bucket *bucket, const struct shoali_post *named,
                           void *whole, void *out);
    /* Optional, for a wire that remembers; called by the computing thread. The loss scale, before
     * each backward; before a unit's sum is posted, when none is under way; after a step's last. */
    void (*scaled)(void *user, double loss_scale);
    shoal_status (*prepare)(void *user, struct shoali_device_stream *stream);
    void (*stepped)(void *user, bool overflow);
};
/* all_reduce: sums by all-reduce instead of reduce-scatter. */
struct shoali_zero_wire shoali_zero_wire_plain(bool all_reduce);

/* `own`, of `count` elements, from every rank of the channel's group into `out`. */
SHOAL_CHECKED shoal_status shoali_zero_all_gather(const struct shoali_zero_channel *channel,
                                                  const struct shoali_post *named, const void *own,
                                                  void *out, int64_t count);
/* In place, over the channel's group. */
SHOAL_CHECKED shoal_status shoali_zero_all_reduce(const struct shoali_zero_channel *channel,
                                                  const struct shoali_post *named, void *data);

#endif
