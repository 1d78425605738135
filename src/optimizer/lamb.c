/* Lamb (You et al. 2020) as DeepSpeed's FusedLamb: Adam's update with weight decay inside, and a
 * step per tensor in proportion to the norm of the weights over that of the update. */
#include "optimizer/types.h"

#include <math.h>

enum { SUM_PARAM, SUM_UPDATE };

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_lamb_params, key, type, member, __VA_ARGS__)
static const struct shoali_option lamb_rows[] = {
    SHOALI_OPTIMIZER_ROW_LR(shoali_lamb_params),
    OPTION("betas", FLOATS, betas, .default_text = "0.9,0.999",
           .help = "Decay of the first and second moment, both in [0, 1)."),
    OPTION("eps", FLOAT, eps, .default_number = 1e-8, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "Added to the root of the second moment."),
    OPTION("eps_inside_sqrt", BOOL, eps_inside_sqrt,
           .help = "Add eps to the second moment, before its root is taken."),
    OPTION("weight_decay", FLOAT, weight_decay, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "Times the weights, added to the update before its norm is taken."),
    OPTION("bias_correction", BOOL, bias_correction, .default_number = 1,
           .help = "Multiply the step by sqrt(1 - beta2^t) / (1 - beta1^t)."),
    OPTION(
        "max_coeff", FLOAT, max_coeff, .default_number = 10, .max = SHOALI_OPTIMIZER_LARGE,
        .help =
            "Upper bound of the trust ratio: the norm of a tensor divided by that of its update."),
    OPTION("min_coeff", FLOAT, min_coeff, .default_number = 0.01, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "Lower bound of the trust ratio."),
    OPTION("amsgrad", BOOL, amsgrad, .state = SHOALI_PENDING,
           .help = "The AMSGrad variant; DeepSpeed's Lamb refuses it too."),
    SHOALI_OPTIMIZER_ROW_MAX_GRAD_NORM(shoali_lamb_params),
};

static shoal_status lamb_validate(void *config)
{
    const struct shoali_lamb_params *params = config;
    if (params->min_coeff > params->max_coeff)
        return SHOAL_FAIL(SHOAL_ECONFIG, "min_coeff: %g is above max_coeff, which is %g",
                          params->min_coeff, params->max_coeff);
    return shoali_optimizer_check_betas(&params->betas);
}

static const struct shoali_section lamb_section = {
    .name = "params",
    .help = "Parameters of Lamb.",
    .rows = lamb_rows,
    .row_count = sizeof(lamb_rows) / sizeof(lamb_rows[0]),
    .struct_bytes = sizeof(struct shoali_lamb_params),
    .given_offset = offsetof(struct shoali_lamb_params, given),
    .validate = lamb_validate,
};

static const struct shoali_optimizer_state lamb_states[] = {
    {"exp_avg", SHOALI_STATE_ELEMENT, SHOAL_F32},
    {"exp_avg_sq", SHOALI_STATE_ELEMENT, SHOAL_F32},
};

static void lamb_configure(struct shoali_optimizer *optimizer)
{
    const struct shoali_lamb_params *params = &optimizer->params.lamb;
    optimizer->lr = params->lr;
    optimizer->weight_decay = params->weight_decay;
    optimizer->beta[0] = params->betas.value[0];
    optimizer->beta[1] = params->betas.value[1];
    optimizer->state_count = 2;
}

static void lamb_take_group(struct shoali_optimizer *optimizer,
                            const struct shoali_param_group_config *group)
{
    struct shoali_lamb_params *params = &optimizer->params.lamb;
    SHOALI_OPTIMIZER_TAKE(params, group, lr);
    SHOALI_OPTIMIZER_TAKE(params, group, betas);
    SHOALI_OPTIMIZER_TAKE(params, group, eps);
    SHOALI_OPTIMIZER_TAKE(params, group, weight_decay);
}

static shoal_status lamb_add(const struct shoali_optimizer *optimizer,
                             const struct shoali_optimizer_now *now,
                             const struct shoali_optimizer_segment *segment)
{
    const struct shoali_lamb_params *params = &optimizer->params.lamb;
    const struct shoali_lamb_args args = {
        .param = segment->param,
        .grad = segment->grad,
        .control = now->control,
        .exp_avg = segment->state[0],
        .exp_avg_sq = segment->state[1],
        .param_sum = segment->sum[SUM_PARAM],
        .update_sum = segment->sum[SUM_UPDATE],
        .count = segment->count,
        .beta1 = (float)shoali_optimizer_beta(optimizer, now, 0),
        .beta2 = (float)shoali_optimizer_beta(optimizer, now, 1),
        .eps = (float)params->eps,
        .weight_decay = (float)(optimizer->weight_decay * segment->weight_decay_multiplier),
        .eps_inside = params->eps_inside_sqrt,
    };
    return shoali_op_lamb(now->exec, &args);
}

static void lamb_conclude(const struct shoali_optimizer *optimizer,
                          const struct shoali_optimizer_now *now,
                          const struct shoali_optimizer_tensor *tensor)
{
    const struct shoali_lamb_params *params = &optimizer->params.lamb;
    const double param = sqrt(*tensor->sum[SUM_PARAM]), update = sqrt(*tensor->sum[SUM_UPDATE]);
    double step = now->lr * tensor->lr_multiplier, ratio = 1;
    if (params->bias_correction)
        step *= sqrt(1 - shoali_powi(shoali_optimizer_beta(optimizer, now, 1), (long)now->t)) /
                (1 - shoali_powi(shoali_optimizer_beta(optimizer, now, 0), (long)now->t));
    if (param != 0 && update != 0) {
        ratio = param / update;
        ratio = ratio > params->max_coeff ? params->max_coeff : ratio;
        ratio = ratio < params->min_coeff ? params->min_coeff : ratio;
    }
    *tensor->factor[0] = (float)(step * ratio);
}

static shoal_status lamb_step(const struct shoali_optimizer *optimizer,
                              const struct shoali_optimizer_now *now,
                              const struct shoali_optimizer_segment *segment)
{
    const struct shoali_lamb_params *params = &optimizer->params.lamb;
    const struct shoali_lamb_apply_args args = {
        .param = segment->param,
        .exp_avg = segment->state[0],
        .exp_avg_sq = segment->state[1],
        .factor = segment->factor[0],
        .control = now->control,
        .low = segment->low,
        .count = segment->count,
        .eps = (float)params->eps,
        .weight_decay = (float)(optimizer->weight_decay * segment->weight_decay_multiplier),
        .eps_inside = params->eps_inside_sqrt,
        .low_dtype = segment->low_dtype,
    };
    return shoali_op_lamb_apply(now->exec, &args);
}

static const struct shoali_optimizer_measure lamb_measures[] = {
    {.sum = {[SUM_PARAM] = SHOALI_STATE_TENSOR, [SUM_UPDATE] = SHOALI_STATE_TENSOR},
     .sum_count = 2,
     .writes_states = true,
     .add = lamb_add,
     .conclude = lamb_conclude},
};

const struct shoali_optimizer_type shoali_optimizer_lamb = {
    .name = "lamb",
    .states = lamb_states,
    .state_count = 2,
    .params = &lamb_section,
    .measures = lamb_measures,
    .measure_count = 1,
    .factor = {SHOALI_STATE_TENSOR},
    .factor_count = 1,
    .configure = lamb_configure,
    .take_group = lamb_take_group,
    .step = lamb_step,
};
