/* Stochastic gradient descent with torch.optim.SGD's keys and rule. */
#include "optimizer/types.h"

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_sgd_params, key, type, member, __VA_ARGS__)
static const struct shoali_option sgd_rows[] = {
    SHOALI_OPTIMIZER_ROW_LR(shoali_sgd_params),
    OPTION("momentum", FLOAT, momentum, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "0 keeps no momentum buffer."),
    OPTION("dampening", FLOAT, dampening, .min = -SHOALI_OPTIMIZER_LARGE,
           .max = SHOALI_OPTIMIZER_LARGE,
           .help = "The gradient enters the momentum buffer times 1 - dampening."),
    OPTION("weight_decay", FLOAT, weight_decay, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "L2 penalty: added to the gradient."),
    OPTION("nesterov", BOOL, nesterov,
           .help = "Nesterov momentum; needs momentum > 0 and dampening 0."),
    OPTION("maximize", BOOL, maximize, .state = SHOALI_PENDING,
           .help = "Ascend instead of descend."),
    SHOALI_OPTIMIZER_ROW_MAX_GRAD_NORM(shoali_sgd_params),
};

static shoal_status sgd_validate(void *config)
{
    const struct shoali_sgd_params *params = config;
    if (params->nesterov && (params->momentum <= 0 || params->dampening != 0))
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "nesterov: needs momentum > 0 and dampening 0, got momentum %g, dampening %g",
            params->momentum, params->dampening);
    return SHOAL_OK;
}

static const struct shoali_section sgd_section = {
    .name = "params",
    .help = "Parameters of SGD.",
    .rows = sgd_rows,
    .row_count = sizeof(sgd_rows) / sizeof(sgd_rows[0]),
    .struct_bytes = sizeof(struct shoali_sgd_params),
    .given_offset = offsetof(struct shoali_sgd_params, given),
    .validate = sgd_validate,
};

static const struct shoali_optimizer_state sgd_states[] = {
    {"momentum_buffer", SHOALI_STATE_ELEMENT, SHOAL_F32},
};

static void sgd_configure(struct shoali_optimizer *optimizer)
{
    const struct shoali_sgd_params *params = &optimizer->params.sgd;
    optimizer->lr = params->lr;
    optimizer->weight_decay = params->weight_decay;
    optimizer->beta[0] = params->momentum;
    optimizer->beta[1] = 0;
    optimizer->state_count = params->momentum != 0;
}

static void sgd_take_group(struct shoali_optimizer *optimizer,
                           const struct shoali_param_group_config *group)
{
    struct shoali_sgd_params *params = &optimizer->params.sgd;
    SHOALI_OPTIMIZER_TAKE(params, group, lr);
    SHOALI_OPTIMIZER_TAKE(params, group, momentum);
    SHOALI_OPTIMIZER_TAKE(params, group, dampening);
    SHOALI_OPTIMIZER_TAKE(params, group, weight_decay);
    SHOALI_OPTIMIZER_TAKE(params, group, nesterov);
}

static shoal_status sgd_step(const struct shoali_optimizer *optimizer,
                             const struct shoali_optimizer_now *now,
                             const struct shoali_optimizer_segment *segment)
{
    const struct shoali_sgd_params *params = &optimizer->params.sgd;
    bool buffered = optimizer->state_count > 0;
    double momentum = now->cycle_momentum ? now->momentum : params->momentum;
    struct shoali_sgd_args args = {
        .param = segment->param,
        .momentum_buffer = buffered ? segment->state[0] : NULL,
        .grad = segment->grad,
        .control = now->control,
        .low = segment->low,
        .count = segment->count,
        .lr = (float)(now->lr * segment->lr_multiplier),
        .momentum = buffered ? (float)momentum : 0,
        .dampening = (float)params->dampening,
        .weight_decay = (float)(optimizer->weight_decay * segment->weight_decay_multiplier),
        .nesterov = params->nesterov,
        .first = now->t == 1,
        .low_dtype = segment->low_dtype,
    };
    return shoali_op_sgd(now->exec, &args);
}

const struct shoali_optimizer_type shoali_optimizer_sgd = {
    .name = "sgd",
    .states = sgd_states,
    .state_count = 1,
    .params = &sgd_section,
    .configure = sgd_configure,
    .take_group = sgd_take_group,
    .step = sgd_step,
};
