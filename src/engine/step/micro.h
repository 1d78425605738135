/* micro - a micro-batch in flight: its tape, its memory, its loss. For the files of this folder.
 *
 * A slot holds a micro-batch on one chunk of layers (stages.h): begin opens its tape, the batch's
 * arrays or the activations of the previous stage are its inputs, forward runs the layers, backward
 * their gradients; end frees all but the memory. Schedules keep several alive. Without a pipeline
 * there is one, and its chunk is the whole model.
 */
#ifndef SHOALI_ENGINE_MICRO_H
#define SHOALI_ENGINE_MICRO_H

#include "autograd/autograd.h"
#include "shoal/engine.h"

struct shoali_micro {
    struct shoali_slot *slot;
    struct shoali_slot *kept_slot; /* inputs of recomputed scopes; NULL: they stay in `slot` */
    struct shoal_tape *tape;
    struct shoal_tensor *loss; /* of the last forward, until backward; NULL otherwise */
    bool begun;                /* the tape is, for the micro-batch that is in the slot */
    /* Of a pipeline; lists have room for the largest boundary. */
    char *received, *gradient; /* device: where activations and their gradients arrive */
    struct shoal_tensor **in, **out;
    int32_t in_count, out_count;
};

struct shoali_micro_load {
    const shoal_batch *batch; /* NULL: meta mode */
    int64_t samples, step, first_sample;
    bool training, needs_grad;
};
/* Begins the tape with a batch: host arrays are copied, so they may change afterwards. */
SHOAL_CHECKED shoal_status shoali_micro_load(struct shoal_engine *engine, struct shoal_tape *tape,
                                             const struct shoali_micro_load *load);
/* The same in two steps. */
SHOAL_CHECKED shoal_status shoali_micro_begin(struct shoal_tape *tape,
                                              const struct shoali_micro_load *load);
SHOAL_CHECKED shoal_status shoali_micro_add_batch(struct shoal_engine *engine,
                                                  struct shoal_tape *tape,
                                                  const struct shoali_micro_load *load);
/* Frees all but the memory. */
void shoali_micro_end(struct shoali_micro *micro);

#endif
