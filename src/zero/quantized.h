/* quantized - the wire of ZeRO++ (Wang et al. 2023): messages of few bits. Fast reduction only: the
 * bits depend on who owns what.
 *
 * qwZ   a rank's part of a bucket travels as 8-bit codes; every rank, the owner too, computes with
 *       what was sent, so all have the same weights.
 * qgZ   each rank's part of a gradient goes to its owner as 4-bit codes (an all-to-all in place of
 *       the reduce-scatter), which adds the contributions in fp32 in the order of ranks. Where the
 *       group is on several hosts with equally many ranks each (comm/hierarchical), it goes in two
 *       hops: within a host first, whose sums then travel as 4-bit codes to the same place of the
 *       other hosts, so that between hosts there is what one rank per host would send.
 * LoCo  (Xie et al. 2024) feeds back what qgZ lost: with h = gradient + e, Q(h) is sent and e
 *       becomes beta e + (1 - beta) (h - Q(h)), kept as 8-bit codes for each element that this
 *       rank sends, in either hop: in the second a rank sends sums over its host. Errors are in
 *       units of the loss scale, so they are forgotten when it changes, after an overflow, every
 *       reset_T steps, and when a checkpoint is loaded: none has them.
 */
#ifndef SHOALI_ZERO_QUANTIZED_H
#define SHOALI_ZERO_QUANTIZED_H

#include "zero/wire.h"

struct shoali_zero_quantized {
    const struct shoali_zero_setup *setup;
    const struct shoali_zero_layout *layout;
    void *message; /* room for both directions: jobs run one after the other */
    int64_t message_bytes;
    void *errors;                   /* LoCo */
    int64_t *errors_of;             /* [buckets] where its errors begin, in bytes */
    int64_t error_bytes, error_age; /* age: steps since they were forgotten */
    double loss_scale;              /* that they are made with */
    bool forget;                    /* before the next sum */
};
/* Replaces the functions of `wire` that the setup wants quantized; does nothing when it wants none.
 * Collective. */
SHOAL_CHECKED shoal_status shoali_zero_quantized_init(struct shoali_zero_quantized *quantized,
                                                      const struct shoali_zero_setup *setup,
                                                      const struct shoali_zero_layout *layout,
                                                      struct shoali_zero_wire *wire);
void shoali_zero_quantized_fini(struct shoali_zero_quantized *quantized);

#endif
