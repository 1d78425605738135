/* schedule_types - the schedules that lr_schedules.c lists: one symbol per type. */
#ifndef SHOALI_SCHEDULE_TYPES_H
#define SHOALI_SCHEDULE_TYPES_H

#include "optimizer/lr_schedules.h"

extern const struct shoali_schedule_type shoali_schedule_warmup, shoali_schedule_warmup_decay,
    shoali_schedule_warmup_cosine; /* schedule_warmup.c */
extern const struct shoali_schedule_type shoali_schedule_range_test,
    shoali_schedule_one_cycle;                                     /* schedule_cycle.c */
extern const struct shoali_schedule_type shoali_schedule_megatron; /* schedule_megatron.c */

/* Marks "not given" in members whose default depends on other values; all real values are >= 0. */
#define SHOALI_SCHEDULE_UNSET (-1)
#define SHOALI_SCHEDULE_LARGE 1e30
#define SHOALI_SCHEDULE_MAX_STEPS 1e15
#define SHOALI_PI 3.14159265358979323846

/* (1 + cos(pi x)) / 2: from 1 at x = 0 to 0 at x = 1. */
static inline double shoali_cosine_fall(double x)
{
    return 0.5 * (1 + shoali_cos(SHOALI_PI * x));
}

#endif
