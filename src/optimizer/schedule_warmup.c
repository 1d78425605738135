/* WarmupLR, WarmupDecayLR, WarmupCosineLR. */
#include "optimizer/schedule_types.h"

#include <math.h>

static const char *const warmup_types[] = {"log", "linear", NULL};

#define AT(member) offsetof(struct shoali_warmup_params, member)
#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_warmup_params, key, type, member, __VA_ARGS__)
#define ROW_MIN_LR                                                                 \
    {                                                                              \
        .key = "warmup_min_lr", .type = SHOALI_FLOAT, .offset = AT(warmup_min_lr), \
        .max = SHOALI_SCHEDULE_LARGE, .help = "Learning rate of the first step."   \
    }
#define ROW_WARMUP_STEPS                                                                     \
    {                                                                                        \
        .key = "warmup_num_steps", .type = SHOALI_INT, .offset = AT(warmup_num_steps),       \
        .default_number = 1000, .min = 0, .max = SHOALI_SCHEDULE_MAX_STEPS, .unit = "steps", \
        .help = "Length of the warm-up; below 2 counts as 2."                                \
    }
#define ROW_WARMUP_TYPE                                                                     \
    {                                                                                       \
        .key = "warmup_type", .type = SHOALI_ENUM, .offset = AT(warmup_type),               \
        .choices = warmup_types, .help = "Rise with the logarithm of the step or linearly." \
    }
#define ROW_TOTAL_STEPS                                                                           \
    {                                                                                             \
        .key = "total_num_steps", .type = SHOALI_INT, .offset = AT(total_num_steps),              \
        .default_number = SHOALI_SCHEDULE_UNSET, .min = 1, .max = SHOALI_SCHEDULE_MAX_STEPS,      \
        .unit = "steps", .help = "Step at which the decay ends.", .flags = SHOALI_OPTION_REQUIRED \
    }

#define ROW_LAST                                                                            \
    {                                                                                       \
        .key = "last_batch_iteration", .type = SHOALI_INT, .default_number = -1, .min = -1, \
        .max = SHOALI_SCHEDULE_MAX_STEPS, .state = SHOALI_IDLE,                             \
        .help = "A run continues at the step of its checkpoint."                            \
    }

static const struct shoali_option warmup_rows[] = {
    ROW_MIN_LR,
    OPTION("warmup_max_lr", FLOAT, warmup_max_lr, .default_number = SHOALI_SCHEDULE_UNSET,
           .max = SHOALI_SCHEDULE_LARGE,
           .help = "Learning rate after the warm-up; not given: the optimizer's lr."),
    ROW_WARMUP_STEPS,
    ROW_WARMUP_TYPE,
    ROW_LAST,
};
static const struct shoali_option decay_rows[] = {
    ROW_TOTAL_STEPS,
    ROW_MIN_LR,
    OPTION("warmup_max_lr", FLOAT, warmup_max_lr, .default_number = 1e-3,
           .auto_number = SHOALI_SCHEDULE_UNSET, .auto_help = "the optimizer's lr",
           .max = SHOALI_SCHEDULE_LARGE, .help = "Learning rate after the warm-up."),
    ROW_WARMUP_STEPS,
    ROW_WARMUP_TYPE,
    ROW_LAST,
};
static const struct shoali_option cosine_rows[] = {
    ROW_TOTAL_STEPS,
    OPTION("warmup_min_ratio", FLOAT, warmup_min_ratio, .max = 1,
           .help = "The warm-up begins at this part of the optimizer's lr."),
    ROW_WARMUP_STEPS,
    OPTION("cos_min_ratio", FLOAT, cos_min_ratio, .default_number = 1e-4, .max = 1,
           .help = "The decay ends at this part of the optimizer's lr."),
    ROW_WARMUP_TYPE,
    ROW_LAST,
};

#define WARMUP_SECTION(table, text)                                                    \
    {                                                                                  \
        .name = "params", .help = text, .rows = table,                                 \
        .row_count = sizeof(table) / sizeof((table)[0]),                               \
        .struct_bytes = sizeof(struct shoali_warmup_params), .given_offset = AT(given) \
    }
static const struct shoali_section warmup_section =
    WARMUP_SECTION(warmup_rows, "Parameters of WarmupLR.");
static const struct shoali_section decay_section =
    WARMUP_SECTION(decay_rows, "Parameters of WarmupDecayLR.");
static const struct shoali_section cosine_section =
    WARMUP_SECTION(cosine_rows, "Parameters of WarmupCosineLR.");

static int64_t warmup_steps(const struct shoali_warmup_params *params)
{
    return params->warmup_num_steps < 2 ? 2 : params->warmup_num_steps;
}

/* For 0 <= i < N. */
static double warmup_gamma(const struct shoali_warmup_params *params, int64_t i)
{
    double steps = (double)warmup_steps(params);
    if (params->warmup_type == SHOALI_WARMUP_LINEAR)
        return (double)i / steps;
    return shoali_ln((double)(i + 1)) / shoali_ln(steps);
}

static double between(const struct shoali_warmup_params *params, double gamma)
{
    return params->warmup_min_lr + (params->warmup_max_lr - params->warmup_min_lr) * gamma;
}

static double warmup_lr(const struct shoali_schedule *schedule, int64_t i)
{
    const struct shoali_warmup_params *params = &schedule->params.warmup;
    if (i < 0)
        return params->warmup_min_lr;
    return between(params, i < warmup_steps(params) ? warmup_gamma(params, i) : 1);
}

static double warmup_decay_lr(const struct shoali_schedule *schedule, int64_t i)
{
    const struct shoali_warmup_params *params = &schedule->params.warmup;
    int64_t steps = warmup_steps(params), total = params->total_num_steps;
    if (i < steps)
        return warmup_lr(schedule, i);
    return between(params, fmax(0, (double)(total - i) / fmax(1, (double)(total - steps))));
}

static double warmup_cosine_lr(const struct shoali_schedule *schedule, int64_t i)
{
    const struct shoali_warmup_params *params = &schedule->params.warmup;
    int64_t steps = warmup_steps(params);
    if (i < 0)
        return 0;
    double ratio;
    if (i < steps) {
        ratio = params->warmup_min_ratio + (1 - params->warmup_min_ratio) * warmup_gamma(params, i);
    } else {
        double fall = fmax(1, (double)(params->total_num_steps - steps));
        double progress = fmin(1, (double)(i - steps + 1) / fall);
        ratio = fmax(0, params->cos_min_ratio +
                            (1 - params->cos_min_ratio) * shoali_cosine_fall(progress));
    }
    return schedule->base_lr * ratio;
}

static shoal_status warmup_configure(struct shoali_schedule *schedule)
{
    struct shoali_warmup_params *params = &schedule->params.warmup;
    if (params->warmup_max_lr < 0)
        params->warmup_max_lr = schedule->base_lr;
    return SHOAL_OK;
}

static shoal_status total_configure(struct shoali_schedule *schedule)
{
    struct shoali_warmup_params *params = &schedule->params.warmup;
    if (params->total_num_steps < 1)
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s needs total_num_steps: the number of training steps",
                          schedule->type->name);
    if (params->total_num_steps < params->warmup_num_steps)
        SHOALI_WARN("optimizer", "%s: total_num_steps %lld ends before warmup_num_steps %lld",
                    schedule->type->name, (long long)params->total_num_steps,
                    (long long)params->warmup_num_steps);
    return warmup_configure(schedule);
}

const struct shoali_schedule_type shoali_schedule_warmup = {
    .name = "WarmupLR",
    .params = &warmup_section,
    .configure = warmup_configure,
    .lr = warmup_lr,
};
const struct shoali_schedule_type shoali_schedule_warmup_decay = {
    .name = "WarmupDecayLR",
    .params = &decay_section,
    .configure = total_configure,
    .lr = warmup_decay_lr,
};
const struct shoali_schedule_type shoali_schedule_warmup_cosine = {
    .name = "WarmupCosineLR",
    .params = &cosine_section,
    .configure = total_configure,
    .lr = warmup_cosine_lr,
};
