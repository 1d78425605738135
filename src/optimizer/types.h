/* types - the optimizers that optimizer.c lists: one symbol per file that defines some. */
#ifndef SHOALI_OPTIMIZER_TYPES_H
#define SHOALI_OPTIMIZER_TYPES_H

#include "optimizer/optimizer.h"

extern const struct shoali_optimizer_type shoali_optimizer_adam, shoali_optimizer_adamw;
extern const struct shoali_optimizer_type shoali_optimizer_sgd;

/* Beyond any learning rate, decay or eps that makes sense; the upper end of ranges that only need a
 * lower. */
#define SHOALI_OPTIMIZER_LARGE 1e30

#endif
