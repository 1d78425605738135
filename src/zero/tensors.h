/* tensors - what an optimizer knows of whole tensors: sums over them, factors that follow from the
 * sums, and states that are not per element (optimizer.h says what each of these is).
 *
 *   sums      192-bit integers, for one measure at a time: on the device, added to by the segments
 *             that are updated there; with offload a second copy on the host, for the others
 *   record    pinned host memory: the sums of both on their way, as words that add up over ranks,
 *             as numbers; the factors on their way to the device; the states
 *   factors   on the device; host kernels read those in the record
 *
 * A measure is: all segments add; the device's sums come to the host (one wait); the ranks of a
 * group add theirs in one message; every rank concludes for every tensor; the factors go to the
 * device. What a rank concludes are the same bits on all that hold a part of
 * the tensor, so states are kept by each of them, and stored once.
 *
 * INVARIANT. Over the ranks of a group each element of a tensor is in a sum once: of ranks with the
 * same elements the first adds, or each has them all and nothing is sent. Integers have no
 * order, so stages, ranks, buckets, sub-groups and offload do not change a bit.
 */
#ifndef SHOALI_ZERO_TENSORS_H
#define SHOALI_ZERO_TENSORS_H

#include "zero/jobs.h"
#include "zero/offload.h"

struct shoali_zero_tensors {
    const struct shoali_zero_setup *setup;
    const struct shoali_zero_layout *layout;
    const struct shoali_zero_jobs *jobs;
    const struct shoali_zero_outside *outside;
    const struct shoali_optimizer_type *type;  /* NULL: nothing of all this is needed */
    struct shoali_optimizer_tensor *tensor;    /* [params] */
    const struct shoali_optimizer **rule;      /* [params]: the optimizer of each; NULL: frozen */
    int64_t *begin[SHOALI_STATE_TENSOR + 1];   /* numbers of a kind before each: [params + 1] */
    int64_t sum_count, factor_count;           /* numbers: of the largest measure, of all factors */
    uint64_t *sum, *outside_sum;               /* [sum_count][3]; device, pinned */
    float *factor;                             /* device */
    void *record;                              /* pinned; what follows points into it */
    uint64_t *arrived;                         /* [sum_count][3] */
    int64_t *words;                            /* [sum_count][6] */
    double *number;                            /* [sum_count] */
    float *sent;                               /* [factor_count] */
    float *state[SHOALI_OPTIMIZER_MAX_STATES]; /* those that are not of kind element */
    int64_t device_bytes, host_bytes;
};
/* SHOAL_EUNSUPPORTED: a parameter is a block of a whole that other ranks have the rest of. */
SHOAL_CHECKED shoal_status shoali_zero_tensors_init(struct shoali_zero_tensors *tensors);
void shoali_zero_tensors_fini(struct shoali_zero_tensors *tensors);

/* All sums of a measure are zero. */
SHOAL_CHECKED shoal_status shoali_zero_tensors_begin(struct shoali_zero_tensors *tensors,
                                                     int32_t measure);
/* Says in a segment where it lies: elements from flat element `begin` on, which are of parameter
 * `param`, updated on the host or on the device. measure -1: of the step. */
void shoali_zero_tensors_point(const struct shoali_zero_tensors *tensors, int32_t measure,
                               int32_t param, int64_t begin, bool on_host,
                               struct shoali_optimizer_segment *segment);
/* The sums are complete when the streams are done: adds the ranks', concludes. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_tensors_conclude(struct shoali_zero_tensors *tensors,
                                                        int32_t measure,
                                                        const struct shoali_optimizer_now *now);

#endif
