/* LRRangeTest and OneCycle (Smith 2018, "A disciplined approach to neural network
 * hyper-parameters"). */
#include "optimizer/schedule_types.h"

#include <math.h>

#define AT(member) offsetof(struct shoali_range_test_params, member)
#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_range_test_params, key, type, member, __VA_ARGS__)
static const struct shoali_option range_rows[] = {
    OPTION("lr_range_test_min_lr", FLOAT, lr_range_test_min_lr, .default_number = 1e-3,
           .max = SHOALI_SCHEDULE_LARGE, .help = "Learning rate at the beginning."),
    OPTION("lr_range_test_step_size", INT, lr_range_test_step_size, .default_number = 2000,
           .min = 1, .max = SHOALI_SCHEDULE_MAX_STEPS, .unit = "steps",
           .help = "Steps after which it has grown by min_lr * step_rate."),
    OPTION("lr_range_test_step_rate", FLOAT, lr_range_test_step_rate, .default_number = 1,
           .max = SHOALI_SCHEDULE_LARGE, .help = "Growth per step_size, as a part of min_lr."),
    OPTION("lr_range_test_staircase", BOOL, lr_range_test_staircase,
           .help = "Grow in jumps at every step_size."),
};
static const struct shoali_section range_section = {
    .name = "params",
    .help = "Parameters of LRRangeTest.",
    .rows = range_rows,
    .row_count = sizeof(range_rows) / sizeof(range_rows[0]),
    .struct_bytes = sizeof(struct shoali_range_test_params),
    .given_offset = AT(given),
};
#undef AT
#undef OPTION

static double range_lr(const struct shoali_schedule *schedule, int64_t i)
{
    const struct shoali_range_test_params *params = &schedule->params.range_test;
    double q = (double)(i + 1) / (double)params->lr_range_test_step_size;
    if (params->lr_range_test_staircase)
        q = floor(q);
    return params->lr_range_test_min_lr * (1 + params->lr_range_test_step_rate * q);
}

const struct shoali_schedule_type shoali_schedule_range_test = {
    .name = "LRRangeTest",
    .params = &range_section,
    .lr = range_lr,
};

#define AT(member) offsetof(struct shoali_one_cycle_params, member)
#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_one_cycle_params, key, type, member, __VA_ARGS__)
static const struct shoali_option cycle_rows[] = {
    OPTION("cycle_min_lr", FLOAT, cycle_min_lr, .max = SHOALI_SCHEDULE_LARGE,
           .help = "Learning rate at both ends of the cycle.", .flags = SHOALI_OPTION_REQUIRED),
    OPTION("cycle_max_lr", FLOAT, cycle_max_lr, .max = SHOALI_SCHEDULE_LARGE,
           .help = "Learning rate at its top.", .flags = SHOALI_OPTION_REQUIRED),
    OPTION("decay_lr_rate", FLOAT, decay_lr_rate, .max = SHOALI_SCHEDULE_LARGE,
           .help = "After the cycle: lr = min / (1 + rate * steps / decay_step_size)."),
    OPTION("cycle_first_step_size", INT, cycle_first_step_size, .default_number = 2000, .min = 1,
           .max = SHOALI_SCHEDULE_MAX_STEPS, .unit = "steps", .help = "Length of the rise."),
    OPTION("cycle_second_step_size", INT, cycle_second_step_size,
           .default_number = SHOALI_SCHEDULE_UNSET, .max = SHOALI_SCHEDULE_MAX_STEPS,
           .unit = "steps", .help = "Length of the fall; not given: as the rise."),
    OPTION("cycle_first_stair_count", INT, cycle_first_stair_count,
           .max = SHOALI_SCHEDULE_MAX_STEPS, .help = "Stairs in the rise; 0 is a straight line."),
    OPTION("cycle_second_stair_count", INT, cycle_second_stair_count,
           .default_number = SHOALI_SCHEDULE_UNSET, .max = SHOALI_SCHEDULE_MAX_STEPS,
           .help = "Stairs in the fall; not given: as in the rise."),
    OPTION("decay_step_size", INT, decay_step_size, .max = SHOALI_SCHEDULE_MAX_STEPS,
           .unit = "steps", .help = "Unit of the decay after the cycle; 0: no decay."),
    OPTION("cycle_momentum", BOOL, cycle_momentum, .default_number = 1,
           .help = "Cycle the momentum against the learning rate."),
    OPTION("cycle_min_mom", FLOAT, cycle_min_mom, .default_number = 0.8, .max = 1,
           .help = "Momentum at the top of the cycle."),
    OPTION("cycle_max_mom", FLOAT, cycle_max_mom, .default_number = 0.9, .max = 1,
           .help = "Momentum at both ends."),
    OPTION("decay_mom_rate", FLOAT, decay_mom_rate, .max = SHOALI_SCHEDULE_LARGE,
           .help = "After the cycle: momentum = max * (1 + rate * steps / decay_step_size)."),
};
static const struct shoali_section cycle_section = {
    .name = "params",
    .help = "Parameters of OneCycle.",
    .rows = cycle_rows,
    .row_count = sizeof(cycle_rows) / sizeof(cycle_rows[0]),
    .struct_bytes = sizeof(struct shoali_one_cycle_params),
    .given_offset = AT(given),
};

/* Position of update b = i + 1 between the ends (0) and the top (1) of the cycle. */
static double cycle_height(const struct shoali_one_cycle_params *params, int64_t b)
{
    int64_t first = params->cycle_first_step_size, second = params->cycle_second_step_size;
    int64_t total = first + second;
    double turn = 1 + (double)b / (double)total;
    double x = turn - floor(turn), top = (double)first / (double)total;
    bool rising = x <= top;
    int64_t stairs = rising ? params->cycle_first_stair_count : params->cycle_second_stair_count;
    if (stairs == 0)
        return rising ? x / top : (x - 1) / (top - 1);
    int64_t within = b % total;
    double position = rising ? (double)within * (double)stairs / (double)first
                             : (double)(total - within) * (double)stairs / (double)second;
    return floor(position) / (double)stairs;
}

/* Decay units since the end of the cycle, -1 inside it. */
static double cycle_decay(const struct shoali_one_cycle_params *params, int64_t i)
{
    int64_t total = params->cycle_first_step_size + params->cycle_second_step_size;
    if (i < total)
        return -1;
    if (params->decay_step_size == 0)
        return 0;
    return (double)(i - total + 1) / (double)params->decay_step_size;
}

static double cycle_lr(const struct shoali_schedule *schedule, int64_t i)
{
    const struct shoali_one_cycle_params *params = &schedule->params.one_cycle;
    double decay = cycle_decay(params, i), low = params->cycle_min_lr;
    if (decay >= 0)
        return low / (1 + params->decay_lr_rate * decay);
    return low + (params->cycle_max_lr - low) * cycle_height(params, i + 1);
}

static double cycle_momentum(const struct shoali_schedule *schedule, int64_t i)
{
    const struct shoali_one_cycle_params *params = &schedule->params.one_cycle;
    if (!params->cycle_momentum)
        return SHOALI_SCHEDULE_UNSET;
    double decay = cycle_decay(params, i), high = params->cycle_max_mom;
    if (decay >= 0)
        return high * (1 + params->decay_mom_rate * decay);
    return high - (high - params->cycle_min_mom) * cycle_height(params, i + 1);
}

static shoal_status cycle_configure(struct shoali_schedule *schedule)
{
    struct shoali_one_cycle_params *params = &schedule->params.one_cycle;
    if (params->cycle_second_step_size < 0)
        params->cycle_second_step_size = params->cycle_first_step_size;
    if (params->cycle_second_stair_count < 0)
        params->cycle_second_stair_count = params->cycle_first_stair_count;
    if (params->cycle_max_lr < params->cycle_min_lr)
        return SHOAL_FAIL(SHOAL_ECONFIG, "OneCycle: cycle_max_lr %g is below cycle_min_lr %g",
                          params->cycle_max_lr, params->cycle_min_lr);
    return SHOAL_OK;
}

const struct shoali_schedule_type shoali_schedule_one_cycle = {
    .name = "OneCycle",
    .params = &cycle_section,
    .configure = cycle_configure,
    .lr = cycle_lr,
    .momentum = cycle_momentum,
};
