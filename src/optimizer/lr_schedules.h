/* lr_schedules - pure functions from a step number to a learning rate.
 *
 * Index. Every schedule is a function of DeepSpeed's i = last_batch_iteration: -1 before the first
 * update, increased by one after every *applied* update (a skipped step does not advance it). So
 * the update number s (0-based, applied updates only) runs with lr(s - 1), and i alone is the state
 * that a checkpoint stores. Types: LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR
 * as in DeepSpeed, and "Megatron": the --lr-decay-style family, whose num_steps (in steps) is i +
 * 1, so its first update runs with num_steps = 0.
 *
 *   WarmupLR        min + (max-min) g(i);  g = ln(i+1)/ln N (log) or i/N (linear) for i < N, then
 * 1; i<0: min WarmupDecayLR   the same, after N: g = max(0, (T-i)/max(1,T-N)) WarmupCosineLR  base
 * * ratio;  i<0: 0;  i<N: r0+(1-r0)g(i);  then max(0, c+(1-c)(1+cos(pi*p))/2), p = min(1,
 * (i-N+1)/max(1,T-N)) LRRangeTest     min (1 + rate q),  q = (i+1)/size, floored when staircase
 *   OneCycle        triangle of first + second steps between cycle_min_lr and cycle_max_lr, then
 * decay Megatron        warmup: init + (max-init) n/W; then constant | linear | cosine |
 * inverse-square-root | WSD between max and min until lr_decay_iters; min after that (constant:
 * always max)
 *
 * No libm: cos, ln, pow come from base/mathx.h, so all ranks and machines agree on every bit.
 */
#ifndef SHOALI_LR_SCHEDULES_H
#define SHOALI_LR_SCHEDULES_H

#include "base/base.h"

enum shoali_warmup_type { SHOALI_WARMUP_LOG, SHOALI_WARMUP_LINEAR };
enum shoali_decay_style {
    SHOALI_DECAY_LINEAR,
    SHOALI_DECAY_CONSTANT,
    SHOALI_DECAY_COSINE,
    SHOALI_DECAY_INVERSE_SQRT,
    SHOALI_DECAY_WSD
};
enum shoali_wsd_style {
    SHOALI_WSD_EXPONENTIAL,
    SHOALI_WSD_LINEAR,
    SHOALI_WSD_COSINE,
    SHOALI_WSD_MINUS_SQRT
};

/* One struct serves the three Warmup types; each type's rows name the keys it has. */
struct shoali_warmup_params {
    double warmup_min_lr, warmup_max_lr; /* max not given: WarmupLR uses base_lr */
    int64_t warmup_num_steps, total_num_steps;
    int32_t warmup_type;
    double warmup_min_ratio, cos_min_ratio;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_range_test_params {
    double lr_range_test_min_lr, lr_range_test_step_rate;
    int64_t lr_range_test_step_size;
    bool lr_range_test_staircase;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_one_cycle_params {
    double cycle_min_lr, cycle_max_lr, decay_lr_rate;
    int64_t cycle_first_step_size, cycle_second_step_size; /* second not given: first */
    int64_t cycle_first_stair_count, cycle_second_stair_count;
    int64_t decay_step_size;
    bool cycle_momentum;
    double cycle_min_mom, cycle_max_mom, decay_mom_rate;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_megatron_params {
    double lr, min_lr, lr_warmup_init;      /* lr not given: base_lr */
    double lr_warmup_iters, lr_decay_iters; /* of Megatron's samples: may be no whole steps */
    double lr_warmup_fraction;              /* of lr_decay_iters; instead of lr_warmup_iters */
    int32_t lr_decay_style, lr_wsd_decay_style;
    double lr_wsd_decay_iters;
    uint64_t given[SHOALI_GIVEN_WORDS];
};

struct shoali_schedule;
struct shoali_schedule_type {
    const char *name; /* "WarmupLR" */
    const struct shoali_section *params;
    /* optional: resolves defaults that depend on other values, checks them */
    shoal_status (*configure)(struct shoali_schedule *schedule);
    double (*lr)(const struct shoali_schedule *schedule, int64_t i);
    /* optional: its steps are samples in units of the full batch, n of them before this update */
    double (*lr_at)(const struct shoali_schedule *schedule, double n);
    /* optional: NULL or a negative result leaves momentum alone */
    double (*momentum)(const struct shoali_schedule *schedule, int64_t i);
};
/* Plain values, copyable. type NULL: constant base_lr. */
struct shoali_schedule {
    const struct shoali_schedule_type *type;
    double base_lr; /* the optimizer's lr */
    union {
        struct shoali_warmup_params warmup;
        struct shoali_range_test_params range_test;
        struct shoali_one_cycle_params one_cycle;
        struct shoali_megatron_params megatron;
    } params;
};

/* The `scheduler` section for the engine's root table. */
struct shoali_scheduler_config {
    const char *type;      /* NULL: section absent, constant lr */
    struct json_t *params; /* read through its path by shoali_schedule_make */
    uint64_t given[SHOALI_GIVEN_WORDS];
};
extern const struct shoali_section shoali_scheduler_section;

/* Makes the schedule that `config` names from `path`.params; type NULL gives constant base_lr. */
SHOAL_CHECKED shoal_status shoali_schedule_make(const struct shoali_scheduler_config *config,
                                                struct shoali_json *document, const char *path,
                                                double base_lr, struct shoali_arena *arena,
                                                struct shoali_schedule *schedule);

/* Learning rate at i = last_batch_iteration >= -1. */
double shoali_schedule_lr(const struct shoali_schedule *schedule, int64_t i);
/* The same where updates had fewer samples than the full batch: n full batches of them came before.
 * Megatron's schedules count these, as Megatron does; DeepSpeed's count updates, as DeepSpeed
 * does. */
double shoali_schedule_lr_at(const struct shoali_schedule *schedule, int64_t i, double n);
/* True when the schedule cycles momentum: *momentum is beta1 (adam, beta2 then 0.99) or sgd's
 * momentum. */
bool shoali_schedule_momentum(const struct shoali_schedule *schedule, int64_t i, double *momentum);

#endif
