/* Adam and AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019) with DeepSpeed's configuration keys.
 */
#include "optimizer/types.h"

#include <math.h>

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_adam_params, key, type, member, __VA_ARGS__)
#define ONE_KERNEL "A choice of torch's; here there is one fused kernel."
static const struct shoali_option adam_rows[] = {
    SHOALI_OPTIMIZER_ROW_LR(shoali_adam_params),
    OPTION("betas", FLOATS, betas, .default_text = "0.9,0.999",
           .help = "Decay of the first and second moment, both in [0, 1)."),
    OPTION("eps", FLOAT, eps, .default_number = 1e-8, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "Added to the root of the second moment."),
    OPTION("weight_decay", FLOAT, weight_decay, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "Decoupled (AdamW) or added to the gradient (adam_w_mode false)."),
    OPTION("bias_correction", BOOL, bias_correction, .default_number = 1,
           .help = "Divide the moments by 1 - beta^t."),
    OPTION("adam_w_mode", BOOL, adam_w_mode, .default_number = 1,
           .help =
               "Type Adam: true is decoupled weight decay (AdamW), false is L2. AdamW is always "
               "decoupled."),
    OPTION("amsgrad", BOOL, amsgrad, .state = SHOALI_PENDING,
           .help = "The AMSGrad variant; DeepSpeed's Adam refuses it too."),
    OPTION(
        "torch_adam", BOOL, torch_adam, .state = SHOALI_NOEFFECT,
        .help =
            "Chooses torch's code instead of DeepSpeed's; here both names mean the same formula."),
    OPTION("fused", BOOL, torch_adam, .state = SHOALI_NOEFFECT, .help = ONE_KERNEL),
    OPTION("foreach", BOOL, torch_adam, .state = SHOALI_NOEFFECT, .help = ONE_KERNEL),
    OPTION("capturable", BOOL, torch_adam, .state = SHOALI_NOEFFECT, .help = ONE_KERNEL),
    OPTION("fp32_optimizer_states", BOOL, fp32_optimizer_states, .default_number = 1,
           .state = SHOALI_PENDING,
           .help = "Keep the moments in fp32; false would keep them in the parameter's type."),
    OPTION("set_grad_none", BOOL, set_grad_none, .default_number = 1, .state = SHOALI_NOEFFECT,
           .help = "Gradients live in planned buffers and are overwritten."),
    SHOALI_OPTIMIZER_ROW_MAX_GRAD_NORM(shoali_adam_params),
};

static shoal_status adam_validate(void *config)
{
    const struct shoali_adam_params *params = config;
    return shoali_optimizer_check_betas(&params->betas);
}

static const struct shoali_section adam_section = {
    .name = "params",
    .help = "Parameters of Adam and AdamW.",
    .rows = adam_rows,
    .row_count = sizeof(adam_rows) / sizeof(adam_rows[0]),
    .struct_bytes = sizeof(struct shoali_adam_params),
    .given_offset = offsetof(struct shoali_adam_params, given),
    .validate = adam_validate,
};

static const struct shoali_optimizer_state adam_states[] = {
    {"exp_avg", SHOALI_STATE_ELEMENT, SHOAL_F32},
    {"exp_avg_sq", SHOALI_STATE_ELEMENT, SHOAL_F32},
};

static void adam_configure(struct shoali_optimizer *optimizer)
{
    const struct shoali_adam_params *params = &optimizer->params.adam;
    optimizer->lr = params->lr;
    optimizer->weight_decay = params->weight_decay;
    optimizer->beta[0] = params->betas.value[0];
    optimizer->beta[1] = params->betas.value[1];
    optimizer->state_count = 2;
}

static bool is_decoupled(const struct shoali_optimizer *optimizer)
{
    return optimizer->type == &shoali_optimizer_adamw || optimizer->params.adam.adam_w_mode;
}

/* With L2 the moments are those of gradients and weights: they mean nothing to the other mode. */
static const char *adam_formula(const struct shoali_optimizer *optimizer)
{
    return is_decoupled(optimizer) ? shoali_optimizer_adamw.name : "adam with adam_w_mode false";
}

static void adam_take_group(struct shoali_optimizer *optimizer,
                            const struct shoali_param_group_config *group)
{
    struct shoali_adam_params *params = &optimizer->params.adam;
    SHOALI_OPTIMIZER_TAKE(params, group, lr);
    SHOALI_OPTIMIZER_TAKE(params, group, betas);
    SHOALI_OPTIMIZER_TAKE(params, group, eps);
    SHOALI_OPTIMIZER_TAKE(params, group, weight_decay);
}

static shoal_status adam_step(const struct shoali_optimizer *optimizer,
                              const struct shoali_optimizer_now *now,
                              const struct shoali_optimizer_segment *segment)
{
    const struct shoali_adam_params *params = &optimizer->params.adam;
    const double beta1 = shoali_optimizer_beta(optimizer, now, 0);
    const double beta2 = shoali_optimizer_beta(optimizer, now, 1);
    double correction1 = 1, correction2 = 1;
    if (params->bias_correction) {
        correction1 = 1 - shoali_powi(beta1, (long)now->t);
        correction2 = 1 - shoali_powi(beta2, (long)now->t);
    }
    double lr = now->lr * segment->lr_multiplier;
    struct shoali_adam_args args = {
        .param = segment->param,
        .exp_avg = segment->state[0],
        .exp_avg_sq = segment->state[1],
        .grad = segment->grad,
        .control = now->control,
        .low = segment->low,
        .count = segment->count,
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .eps = (float)params->eps,
        .weight_decay = (float)(optimizer->weight_decay * segment->weight_decay_multiplier),
        .lr = (float)lr,
        .step_size = (float)(lr / correction1),
        .inv_sqrt_c2 = (float)(1 / sqrt(correction2)),
        .decoupled = is_decoupled(optimizer),
        .low_dtype = segment->low_dtype,
    };
    return shoali_op_adam(now->exec, &args);
}

const struct shoali_optimizer_type shoali_optimizer_adam = {
    .name = "adam",
    .states = adam_states,
    .state_count = 2,
    .params = &adam_section,
    .configure = adam_configure,
    .formula = adam_formula,
    .take_group = adam_take_group,
    .step = adam_step,
};
const struct shoali_optimizer_type shoali_optimizer_adamw = {
    .name = "adamw",
    .states = adam_states,
    .state_count = 2,
    .params = &adam_section,
    .configure = adam_configure,
    .formula = adam_formula,
    .take_group = adam_take_group,
    .step = adam_step,
};
