/* parts - the object behind zero.h: its parts, put together. For zero.c, which makes them and lets
 * the tape's scopes drive them, and access.c, which shows what they hold.
 */
#ifndef SHOALI_ZERO_PARTS_H
#define SHOALI_ZERO_PARTS_H

#include "zero/quantized.h"
#include "zero/update.h"

struct shoali_zero {
    struct shoali_zero_setup setup;
    struct shoali_zero_layout layout;
    struct shoali_zero_jobs jobs;
    struct shoali_zero_pool pool;
    struct shoali_zero_wire wire;
    struct shoali_zero_quantized quantized;
    struct shoali_zero_outside outside;
    struct shoali_zero_param_store store;
    struct shoali_zero_weights weights;
    struct shoali_zero_clip clip;
    struct shoali_zero_tensors tensors;
    struct shoali_zero_gradients gradients;
    struct shoali_zero_masters masters;
    struct shoali_observer observer;
    bool summed;   /* by reduce_tied, in this step */
    double factor; /* that gradients_sum gave */
};
/* facts.c: compares units, buckets and arenas with the ranks of each group; `own` is how far this
 * rank came. Collective over everyone. */
SHOAL_CHECKED shoal_status shoali_zero_agree(const struct shoali_zero *zero, shoal_status own);

#endif
