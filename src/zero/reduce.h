/* reduce - gradients: sinks for the kernels, sums over ranks, and the sums as fp32.
 *
 *   whole     stages 0 and 1: a step's gradients of all parameters, padded
 *   part      stages 1 to 3: sums of the own parts
 *   buffer    stages 2 and 3: a unit's gradients while backward passes write them
 *   waiting   contributions that a unit still expects: each begin of a layer's backward adds one
 *             for each of its trainable parameters, and each grad_ready takes away as many as its
 *             tape has layers that declare the parameter
 *   summed    how often a unit went over the ranks in this step
 *
 * A UNIT IS COMPLETE when nothing is waiting, whatever scopes ended. So weight gradients may be
 * deferred, tapes may be alive side by side, and a parameter may be used by many layers. In stages
 * 2 and 3 a complete unit is summed over its group, added to the own parts, and its buffer goes to
 * the next; a micro-batch whose backward begins on a unit that still waits for another's writes to
 * the same buffer, and both are summed at once. In stages 0 and 1 all micro-batches are accumulated
 * and a message goes when every parameter in it has come as often as the step has uses of it; with
 * overlap that is during the last backward.
 *
 * ORDER OF ADDS. exact: none, they are integers. fast: within a buffer the order of grad_ready,
 * which the program alone decides; then ranks in their order; then a unit's sums in the order they
 * became complete. When each backward ends (backward_weight included) before the next begins, that
 * is micro-batch by micro-batch, as it always was, and deferring weights changes no bit.
 *
 * INVARIANTS. The first contribution of a step (stages 2 and 3: of a sum) overwrites; nothing is
 * zeroed but what no contribution reached. While a unit has no buffer its parameters have no sink.
 * At the step's end nothing is waiting, or a backward_weight was forgotten, which is an error.
 */
#ifndef SHOALI_ZERO_REDUCE_H
#define SHOALI_ZERO_REDUCE_H

#include "zero/pool.h"
#include "zero/wire.h"

struct shoali_zero_message { /* stages 0, 1 */
    int32_t unit;
    int64_t begin, count; /* flat space */
    int64_t whole;
    int32_t number; /* among the messages of its group */
};
struct shoali_zero_unit_gradients {
    void *buffer, *home; /* NULL: none; the one used last */
    int64_t waiting;
    int64_t summed;
};
struct shoali_zero_gradients {
    const struct shoali_zero_setup *setup;
    const struct shoali_zero_layout *layout;
    struct shoali_zero_jobs *jobs;
    struct shoali_zero_pool *pool;
    const struct shoali_zero_wire *wire;
    uint32_t *flag; /* device, [params]: a contribution was out of range */
    void *whole, *part;
    void *arrival; /* stages 2, 3, fast, several micro-batches: one bucket's part */
    int64_t arrival_count;
    float *chunk; /* exact: [chunk_count] */
    int64_t chunk_count;
    struct shoali_zero_unit_gradients *unit; /* [units] */
    int64_t *came;                           /* [params] layers whose contribution came this step */
    struct shoali_zero_message *message;
    int32_t message_count;
    int32_t unsent; /* messages [0, unsent) of the step are not yet posted */
    int32_t tail;   /* parameters behind it have come for good in this step */
    struct {        /* the unit that is being summed over ranks, -1 none */
        int32_t unit;
        void *buffer;
        uint32_t ticket;
    } reducing;
    bool planning; /* as in fetch.h */
};
/* Collective. The parts are borrowed. */
SHOAL_CHECKED shoal_status shoali_zero_gradients_init(struct shoali_zero_gradients *gradients);
void shoali_zero_gradients_fini(struct shoali_zero_gradients *gradients);
int64_t shoali_zero_gradients_bytes(const struct shoali_zero_gradients *gradients);
int64_t shoali_zero_gradients_buffer_bytes(const struct shoali_zero_gradients *gradients);

/* A step's micro-batch `index` begins its backward. */
SHOAL_CHECKED shoal_status shoali_zero_gradients_micro(struct shoali_zero_gradients *gradients,
                                                       int64_t index);
/* Backward of layer `index` begins: its units get buffers and sinks. */
SHOAL_CHECKED shoal_status shoali_zero_gradients_begin(struct shoali_zero_gradients *gradients,
                                                       int32_t index);
/* A tape has made its contribution to a parameter that `layers` of its layers declare. */
SHOAL_CHECKED shoal_status shoali_zero_gradients_ready(struct shoali_zero_gradients *gradients,
                                                       int32_t param, int32_t layers);
/* Of creation: where a unit's later sums of a step arrive. */
SHOAL_CHECKED shoal_status
shoali_zero_gradients_make_arrival(struct shoali_zero_gradients *gradients);
/* Waits until no unit is being summed and gives its buffer back. */
SHOAL_CHECKED shoal_status shoali_zero_gradients_settle(struct shoali_zero_gradients *gradients);
/* At the step: what is left to sum. Afterwards stored gradients are (true mean) * *factor * loss
 * scale. SHOAL_EINVAL, naming a parameter: a gradient is still to come. */
SHOAL_CHECKED shoal_status shoali_zero_gradients_sum(struct shoali_zero_gradients *gradients,
                                                     double *factor);
/* After it: those of parameters that several stages of a pipeline hold, over these. Collective over
 * those stages. */
SHOAL_CHECKED shoal_status shoali_zero_gradients_sum_tied(struct shoali_zero_gradients *gradients);
/* fp32 gradient of the elements that lie at `local` of the part space, count <= piece: a pointer
 * into the buffer, or into the chunk. Still multiplied by the loss scale. */
SHOAL_CHECKED shoal_status shoali_zero_final_gradient(const struct shoali_zero_gradients *gradients,
                                                      int64_t local, int64_t count,
                                                      const float **gradient);
/* Longest piece final_gradient can give. */
int64_t shoali_zero_piece(const struct shoali_zero_gradients *gradients);

#endif
