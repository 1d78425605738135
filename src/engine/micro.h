/* micro - a micro-batch in flight: its tape, its memory, its loss. For the files of this folder.
 *
 * A slot holds one. load puts the batch's arrays onto the tape, forward runs the layers, backward
 * their gradients; end frees all but the memory. Schedules keep several alive; without a pipeline
 * there is one.
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
};

struct shoali_micro_load {
    const shoal_batch *batch; /* NULL: meta mode */
    int64_t samples, step, first_sample;
    bool training, needs_grad;
};
/* Begins the tape with a batch: host arrays are copied, so they may change afterwards. */
SHOAL_CHECKED shoal_status shoali_micro_load(struct shoal_engine *engine, struct shoal_tape *tape,
                                             const struct shoali_micro_load *load);
/* Runs all layers; *loss is the last boundary. */
SHOAL_CHECKED shoal_status shoali_micro_forward(struct shoal_engine *engine,
                                                struct shoal_tape *tape,
                                                struct shoal_tensor **loss);
/* Gradients of micro->loss into the step's index-th contribution; ends the micro-batch. */
SHOAL_CHECKED shoal_status shoali_micro_backward(struct shoal_engine *engine,
                                                 struct shoali_micro *micro, int64_t index);
void shoali_micro_end(struct shoali_micro *micro);

#endif
