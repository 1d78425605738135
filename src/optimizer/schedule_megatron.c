/* Megatron's --lr-decay-style family: linear warm-up, then one of five decays. */
#include "optimizer/schedule_types.h"

#include <math.h>

/* in the order of the enums */
static const char *const decay_styles[] = {"linear", "constant", "cosine", "inverse-square-root",
                                           "WSD",    NULL};
static const char *const wsd_styles[] = {"exponential", "linear", "cosine", "minus_sqrt", NULL};

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_megatron_params, key, type, member, __VA_ARGS__)
static const struct shoali_option megatron_rows[] = {
    OPTION("lr", FLOAT, lr, .default_number = SHOALI_SCHEDULE_UNSET, .max = SHOALI_SCHEDULE_LARGE,
           .help = "Highest learning rate; not given: the optimizer's lr."),
    OPTION("min_lr", FLOAT, min_lr, .max = SHOALI_SCHEDULE_LARGE,
           .help = "Lowest learning rate, kept after the decay."),
    OPTION("lr_warmup_init", FLOAT, lr_warmup_init, .max = SHOALI_SCHEDULE_LARGE,
           .help = "Learning rate at the beginning of the warm-up."),
    OPTION("lr_warmup_iters", FLOAT, lr_warmup_iters, .max = SHOALI_SCHEDULE_MAX_STEPS,
           .unit = "steps", .help = "Length of the warm-up."),
    OPTION("lr_warmup_fraction", FLOAT, lr_warmup_fraction, .max = 1,
           .help =
               "Length of the warm-up as a part of lr_decay_iters; instead of lr_warmup_iters."),
    OPTION("lr_decay_iters", FLOAT, lr_decay_iters, .default_number = SHOALI_SCHEDULE_UNSET,
           .min = 1, .max = SHOALI_SCHEDULE_MAX_STEPS, .unit = "steps",
           .help = "Step at which the decay ends."),
    OPTION("lr_decay_style", ENUM, lr_decay_style, .choices = decay_styles,
           .help = "Shape of the decay."),
    OPTION("lr_wsd_decay_style", ENUM, lr_wsd_decay_style, .choices = wsd_styles,
           .help = "Shape of the last part of WSD (warm-up, stable, decay)."),
    OPTION("lr_wsd_decay_iters", FLOAT, lr_wsd_decay_iters, .max = SHOALI_SCHEDULE_MAX_STEPS,
           .unit = "steps", .help = "Length of the last part of WSD."),
};
static const struct shoali_section megatron_section = {
    .name = "params",
    .help = "Parameters of Megatron's schedules.",
    .rows = megatron_rows,
    .row_count = sizeof(megatron_rows) / sizeof(megatron_rows[0]),
    .struct_bytes = sizeof(struct shoali_megatron_params),
    .given_offset = offsetof(struct shoali_megatron_params, given),
};

/* Part of max - min that is left at num_steps n of the last `length` steps before `end`. */
static double wsd_left(const struct shoali_megatron_params *params, double n)
{
    const double begin = params->lr_decay_iters - params->lr_wsd_decay_iters;
    if (n <= begin)
        return 1;
    double q = (n - begin) / params->lr_wsd_decay_iters;
    switch ((enum shoali_wsd_style)params->lr_wsd_decay_style) {
    case SHOALI_WSD_LINEAR:
        return 1 - q;
    case SHOALI_WSD_COSINE:
        return shoali_cosine_fall(q);
    case SHOALI_WSD_MINUS_SQRT:
        return 1 - sqrt(q);
    case SHOALI_WSD_EXPONENTIAL:
        break;
    }
    return 2 * shoali_pow(0.5, q) - 1;
}

static double inverse_sqrt_lr(const struct shoali_megatron_params *params, double n)
{
    double warmup = fmax(params->lr_warmup_iters, 1);
    return fmax(params->min_lr, params->lr * sqrt(warmup) / sqrt(fmax(n, 1)));
}

static double lr_at(const struct shoali_schedule *schedule, double n)
{
    const struct shoali_megatron_params *params = &schedule->params.megatron;
    const double warmup = params->lr_warmup_iters, end = params->lr_decay_iters;
    if (warmup > 0 && n <= warmup)
        return params->lr_warmup_init + (params->lr - params->lr_warmup_init) * n / warmup;
    if (params->lr_decay_style == SHOALI_DECAY_CONSTANT)
        return params->lr;
    if (n > end)
        return params->min_lr;
    if (params->lr_decay_style == SHOALI_DECAY_INVERSE_SQRT)
        return inverse_sqrt_lr(params, n);
    double ratio = (n - warmup) / (end - warmup), left = 1 - ratio;
    if (params->lr_decay_style == SHOALI_DECAY_COSINE)
        left = shoali_cosine_fall(ratio);
    else if (params->lr_decay_style == SHOALI_DECAY_WSD)
        left = wsd_left(params, n);
    return params->min_lr + left * (params->lr - params->min_lr);
}

static double megatron_lr(const struct shoali_schedule *schedule, int64_t i)
{
    return lr_at(schedule, (double)(i + 1));
}

static shoal_status megatron_configure(struct shoali_schedule *schedule)
{
    struct shoali_megatron_params *params = &schedule->params.megatron;
    bool endless = params->lr_decay_style == SHOALI_DECAY_CONSTANT;
    if (params->lr < 0)
        params->lr = schedule->base_lr;
    if (params->lr_decay_iters < 1 && (!endless || params->lr_warmup_fraction > 0))
        return SHOAL_FAIL(SHOAL_ECONFIG, "lr_decay_iters: give the number of steps of the decay");
    if (params->lr_warmup_fraction > 0 && params->lr_warmup_iters > 0)
        return SHOAL_FAIL(SHOAL_ECONFIG, "give lr_warmup_iters or lr_warmup_fraction, not both");
    if (params->lr_warmup_fraction > 0) {
        params->lr_warmup_iters = floor(params->lr_warmup_fraction * params->lr_decay_iters);
        params->lr_warmup_fraction = 0;
    }
    if (!endless && params->lr_warmup_iters >= params->lr_decay_iters)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "the warm-up of %g steps must end before lr_decay_iters %g",
                          params->lr_warmup_iters, params->lr_decay_iters);
    if (params->min_lr > params->lr)
        return SHOAL_FAIL(SHOAL_ECONFIG, "min_lr %g is above lr %g", params->min_lr, params->lr);
    if (params->lr_decay_style == SHOALI_DECAY_WSD &&
        (params->lr_wsd_decay_iters < 1 || params->lr_wsd_decay_iters > params->lr_decay_iters))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "lr_wsd_decay_iters: WSD needs 1 to lr_decay_iters %g, got %g",
                          params->lr_decay_iters, params->lr_wsd_decay_iters);
    return SHOAL_OK;
}

const struct shoali_schedule_type shoali_schedule_megatron = {
    .name = "Megatron",
    .params = &megatron_section,
    .configure = megatron_configure,
    .lr = megatron_lr,
    .lr_at = lr_at,
};
