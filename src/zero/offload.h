/* offload - masters and states outside the device: what is where, and the memory on the way.
 *
 *   sub-group   a run of the part space, at most sub_group_size and 2^22 elements; the first ones
 *               may stay on the device (ratio < 1), the others are chunks of a store
 *   stage       pinned memory that a sub-group's gradient and new weights pass through; as many
 *               sub-groups are under way as there are stages
 *   host        a cpu device with a pool of its own, where the update runs beside the device; when
 *               the device is the processor itself they are the same
 *
 * INVARIANT. Where masters and states lie changes no bit: sub-groups cut a flat shard between
 * elements, and the optimizer's kernels round alike on every device.
 */
#ifndef SHOALI_ZERO_OFFLOAD_H
#define SHOALI_ZERO_OFFLOAD_H

#include "zero/layout.h"
#include "zero/param_store.h"
#include "zero/setup.h"

struct shoali_zero_stage {
    float *gradient; /* [sub_group] */
    void *low;       /* [sub_group] new weights */
    struct shoali_event *arrived, *sent;
    bool sending;
};
#define SHOALI_ZERO_MAX_STAGES 16
struct shoali_zero_outside {
    const struct shoali_zero_setup *setup;
    const struct shoali_zero_layout *layout;
    bool meta;                  /* a plan: nothing is moved */
    struct shoali_device *host; /* memory that is not pinned */
    struct shoali_pool *pool;   /* its own; NULL when the device is a cpu too */
    struct shoali_exec exec;    /* kernels on the host */
    struct shoali_device_stream *upload;
    struct shoali_swap *optimizer;  /* rows: master, states; chunk 0 begins at device_count */
    int64_t sub_group;              /* elements */
    int64_t device_count;           /* first elements of the part space: on the device */
    int32_t set_count, stage_limit; /* nvme: buffers of the store; buffers on the way, at most */
    struct shoali_zero_stage stage[SHOALI_ZERO_MAX_STAGES];
    int32_t stage_count;
    void *device_low; /* device: new weights of a sub-group updated there, on their way out */
    const char *row_name[1 + SHOALI_OPTIMIZER_MAX_STATES];
};
/* What is where. Not collective, so that a mistake of the configuration is found by all ranks alike
 * before they wait for each other. */
SHOAL_CHECKED shoal_status shoali_zero_outside_plan(struct shoali_zero_outside *outside,
                                                    const struct shoali_zero_setup *setup,
                                                    const struct shoali_zero_layout *layout);
SHOAL_CHECKED shoal_status shoali_zero_outside_init(struct shoali_zero_outside *outside);
/* Waits for copies under way: memory of the host does not wait for them as the device's does. */
void shoali_zero_outside_stop(struct shoali_zero_outside *outside);
void shoali_zero_outside_fini(struct shoali_zero_outside *outside);
/* Adds to the memory that a report names. */
void shoali_zero_outside_memory(const struct shoali_zero_outside *outside,
                                const struct shoali_zero_param_store *store,
                                struct shoali_zero_memory *memory);

#endif
