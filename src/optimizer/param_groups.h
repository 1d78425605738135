/* param_groups - which parameter is updated with which values.
 *
 *   "optimizer": {
 *     "type": "AdamW",
 *     "params": { "lr": 3e-4, "weight_decay": 0.1 },
 *     "no_decay": ["1-D", "transformer.wpe.*"],
 *     "param_groups": [ { "params": ["transformer.wte.*"], "lr": 1e-4, "betas": [0.9, 0.95] } ]
 *   }
 *
 * Without more keys `weight_decay` is that of every parameter, as in DeepSpeed and torch.
 * `no_decay` takes it away from parameters by name; its word "1-D" is Megatron's rule: tensors of
 * one dimension and names that end in ".bias". A parameter that its model tags SHOAL_PARAM_NO_DECAY
 * never decays.
 *
 * A group is torch's: parameters by name, and values that replace those of `params`. A parameter is
 * in one group at most; the others make the group of `params`. A schedule gives the rate of
 * `params`; a group's `lr` is kept in proportion to it, so that it is the group's rate where the
 * schedule says `params.lr`. `no_decay` also holds inside groups.
 *
 * Patterns are those of fnmatch(3) over whole names: *, ? and [...]; a star matches dots, too. One
 * that matches nothing is an error, because it is a name spelled wrongly.
 *
 * What comes out is a rule per parameter, a pure function of names, shapes and configuration; where
 * a parameter's elements lie cannot change it. States are kept per parameter, so training may go on
 * from a checkpoint with other groups.
 */
#ifndef SHOALI_OPTIMIZER_PARAM_GROUPS_H
#define SHOALI_OPTIMIZER_PARAM_GROUPS_H

#include "optimizer/optimizer.h"

#include "base/str.h"

/* The entry of `no_decay` that is a rule about shapes and not a name. */
#define SHOALI_NO_DECAY_1D "1-D"

/* What the rules look at. */
struct shoali_param_about {
    const char *name;
    int32_t ndim;
    int64_t count; /* elements */
    bool no_decay; /* the model's tag */
    bool frozen;
    double lr_mult; /* the model's own */
};
struct shoali_param_rule {
    const struct shoali_optimizer *optimizer; /* of its group; borrowed */
    double lr_multiplier, weight_decay_multiplier;
    bool by_name, by_shape; /* why weight_decay_multiplier is 0, when it is not the model's tag */
};
struct shoali_param_groups {
    struct shoali_optimizer *group; /* [count]; 0 is that of `params`; owned by the arena */
    int32_t count;
    struct shoali_param_rule *rule; /* [params]; owned by the arena */
};

/* Finds each parameter's rule. `base` was made from the same configuration. SHOAL_ECONFIG names the
 * key that is wrong, and names near a pattern that matches nothing. */
SHOAL_CHECKED shoal_status shoali_param_groups_make(const struct shoali_optimizer_config *config,
                                                    struct shoali_json *document, const char *path,
                                                    const struct shoali_optimizer *base,
                                                    const struct shoali_param_about *param,
                                                    int32_t param_count, struct shoali_arena *arena,
                                                    struct shoali_param_groups *groups);
/* Appends what decays: "weight decay 0.1: 50 tensors, 124318464 parameters; 98 tensors, 121344
 * parameters do not decay (1-D)". */
void shoali_param_groups_describe(const struct shoali_param_groups *groups,
                                  const struct shoali_optimizer_config *config,
                                  const struct shoali_param_about *param, int32_t param_count,
                                  struct shoali_str *out);

/* The keys of one element of `param_groups`. */
struct shoali_param_group_config {
    struct shoali_strings params;
    double lr, lr_mult, weight_decay, eps, momentum, dampening;
    struct shoali_floats betas;
    bool nesterov;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
extern const struct shoali_section shoali_param_group_section;

#endif
