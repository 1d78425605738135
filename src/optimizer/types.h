/* types - the optimizers that optimizer.c lists: one symbol per file that defines some. */
#ifndef SHOALI_OPTIMIZER_TYPES_H
#define SHOALI_OPTIMIZER_TYPES_H

#include "optimizer/optimizer.h"
#include "optimizer/param_groups.h"

extern const struct shoali_optimizer_type shoali_optimizer_adam, shoali_optimizer_adamw;
extern const struct shoali_optimizer_type shoali_optimizer_sgd;
extern const struct shoali_optimizer_type shoali_optimizer_lamb, shoali_optimizer_adafactor;

/* DeepSpeed's OneCycle sets betas to (momentum, this). */
#define SHOALI_OPTIMIZER_CYCLED_BETA2 0.99

/* beta1 (index 0) or beta2 of this step. */
static inline double shoali_optimizer_beta(const struct shoali_optimizer *optimizer,
                                           const struct shoali_optimizer_now *now, int32_t index)
{
    if (!now->cycle_momentum)
        return optimizer->beta[index];
    return index == 0 ? now->momentum : SHOALI_OPTIMIZER_CYCLED_BETA2;
}

/* Gives a group's key to the optimizer's params. */
#define SHOALI_OPTIMIZER_TAKE(params, group, member)                      \
    if (shoali_config_given(&shoali_param_group_section, group, #member)) \
    (params)->member = (group)->member

/* SHOAL_ECONFIG unless there are two, both in [0, 1). */
SHOAL_CHECKED shoal_status shoali_optimizer_check_betas(const struct shoali_floats *betas);

/* Beyond any learning rate, decay or eps that makes sense; the upper end of ranges that only need a
 * lower. */
#define SHOALI_OPTIMIZER_LARGE 1e30

/* Rows that every optimizer's `params` have; `params` is the struct's tag. */
#define SHOALI_OPTIMIZER_ROW_LR(params)                                           \
    {                                                                             \
        .key = "lr", .type = SHOALI_FLOAT, .offset = offsetof(struct params, lr), \
        .default_number = 1e-3, .max = SHOALI_OPTIMIZER_LARGE,                    \
        .help = "Learning rate; a scheduler overrides it from the first step."    \
    }
#define SHOALI_OPTIMIZER_ROW_MAX_GRAD_NORM(params)                                       \
    {                                                                                    \
        .key = "max_grad_norm", .type = SHOALI_FLOAT,                                    \
        .offset = offsetof(struct params, max_grad_norm), .max = SHOALI_OPTIMIZER_LARGE, \
        .help = "Counts as gradient_clipping, where that is not given."                  \
    }

#endif
