/* optimizer - update rules, learning-rate schedules, loss scaling, norm and clipping. Level L5.
 *
 * Five small headers; this one is the update rules.
 *
 *   optimizer.h     the table of optimizers; a step on one segment of a flat shard
 *   param_groups.h  which parameter decays, and with which values it is updated
 *   lr_schedules.h  pure functions from a step number to a learning rate
 *   loss_scaler.h   the dynamic fp16 loss scale
 *   gradient_norm.h exact gradient norm, overflow flag and the control block of every step
 *
 * An optimizer here is a row of a const table: a name, the states it keeps, the configuration keys
 * of its `params`, and functions that update a *segment*: a contiguous piece of a flat fp32 shard
 * with its gradient and states. It owns no memory and knows no ranks: ZeRO, offload and checkpoint
 * allocate, move and store states by reading `states`, so every optimizer works with all of them. A
 * segment may be cut anywhere between elements; cutting does not change a bit.
 *
 * WHOLE TENSORS. Where an update needs to know more than an element (Lamb: norms of a tensor;
 * Adafactor: means of its rows and columns) it has *measures* before its step. One measure is
 *
 *   add        on each segment: adds squares of its elements to sums of the tensor, of its rows or
 *              of its columns; may update states of kind element, too
 *   conclude   on the host, once per tensor, with the sums of all its segments on all ranks:
 *              updates the states of the other kinds, and fills in factors, which later measures
 *              and the step read on the device
 *
 * Sums are 192-bit integers (ops_flat.h, square_sums). So they have no order: a tensor gives the
 * same bits however it is cut over segments, sub-groups, ranks, stages and devices. Segments of an
 * optimizer that measures lie in one tensor and say where. States of kind row, column and tensor
 * are small: each rank that holds a part of the tensor keeps them whole, on the host.
 *
 * Who decides what:
 *   the schedule       lr of this step (and beta1 when it cycles momentum)
 *   the caller         t, the number of this update: 1 for the first *applied* one (skipped steps
 *                      do not count), segments, multipliers per parameter (weight decay off for
 *                      norms and biases)
 *   the control block  clip multiplier, unscaling by the loss scale and "skip": three floats on the
 *                      device, of the kernel `clip`, so that a step without measures needs no host
 *                      synchronisation
 * Bias corrections are computed on the host in double with shoali_powi, then rounded to float once.
 *
 *   struct shoali_optimizer adamw;
 *   SHOAL_TRY(status, shoali_optimizer_make(&config.optimizer, document, "optimizer", arena,
 *                                           &adamw), done);
 *   for (s = 0; s < adamw.state_count; s++) allocate and zero adamw.type->states[s] ...
 *   for (m = 0; m < adamw.type->measure_count; m++) {
 *       zero the sums;
 *       SHOAL_TRY(status, shoali_optimizer_measure(&adamw, m, &now, &segment), done); ...
 *       add the ranks' sums;
 *       adamw.type->measures[m].conclude(&adamw, &now, &tensor); ...
 *   }
 *   SHOAL_TRY(status, shoali_optimizer_step(&adamw, &now, &segment), done); ...
 *
 * Model: DeepSpeed's `optimizer` section {type, params}; "Adam" is AdamW unless adam_w_mode is
 * false.
 */
#ifndef SHOALI_OPTIMIZER_H
#define SHOALI_OPTIMIZER_H

#include "base/base.h"
#include "ops/ops.h"

/* ---- the table ------------------------------------------------------------------------------ */

/* What there is one number for: the shape of a state, of sums and of factors follows from that of
 * the parameter. A parameter of more than two dims is a list of matrices, its last two. */
enum shoali_state_kind {
    SHOALI_STATE_ELEMENT, /* the parameter's shape: rides in the flat shard */
    SHOALI_STATE_ROW,     /* without the last dim; of one dim or none: the parameter's shape */
    SHOALI_STATE_COLUMN,  /* without the last but one; of one dim or none: [0] */
    SHOALI_STATE_TENSOR   /* [1] */
};
shoal_shape shoali_state_shape(enum shoali_state_kind kind, const shoal_shape *param);
/* A table lists those of kind element first. */
struct shoali_optimizer_state {
    const char *name; /* as in checkpoints: "exp_avg" */
    enum shoali_state_kind kind;
    shoal_dtype dtype;
};
#define SHOALI_OPTIMIZER_MAX_STATES 4

struct shoali_optimizer;
struct shoali_optimizer_now;
struct shoali_optimizer_segment;
struct shoali_optimizer_tensor;
struct shoali_param_group_config;

/* At most, of a measure; of an optimizer. */
enum { SHOALI_OPTIMIZER_MAX_SUMS = 4, SHOALI_OPTIMIZER_MAX_FACTORS = 4 };
enum { SHOALI_OPTIMIZER_PARAMS_ROOM = 32 }; /* doubles */

struct shoali_optimizer_measure {
    enum shoali_state_kind sum[SHOALI_OPTIMIZER_MAX_SUMS]; /* not element */
    int32_t sum_count;
    bool writes_states; /* of kind element */
    shoal_status (*add)(const struct shoali_optimizer *optimizer,
                        const struct shoali_optimizer_now *now,
                        const struct shoali_optimizer_segment *segment);
    void (*conclude)(const struct shoali_optimizer *optimizer,
                     const struct shoali_optimizer_now *now,
                     const struct shoali_optimizer_tensor *tensor);
};

struct shoali_optimizer_type {
    const char *name; /* lower case: "adamw" */
    const struct shoali_optimizer_state *states;
    int32_t state_count; /* at most; a configured optimizer may need fewer */
    const struct shoali_section *params;
    const struct shoali_optimizer_measure *measures; /* in this order before the step; NULL: none */
    int32_t measure_count;
    /* That measures fill in. Those of a tensor follow each other in this order, so that several
     * numbers of kind tensor are an array. */
    enum shoali_state_kind factor[SHOALI_OPTIMIZER_MAX_FACTORS];
    int32_t factor_count;
    /* After params were read (or defaulted): fills lr, weight_decay, state_count. */
    void (*configure)(struct shoali_optimizer *optimizer);
    /* Optional, for a type of several update rules: the one of this configuration, in a word that
     * two types with one rule share. */
    const char *(*formula)(const struct shoali_optimizer *optimizer);
    /* Puts the keys that are given in a group into params (param_groups.h). */
    void (*take_group)(struct shoali_optimizer *optimizer,
                       const struct shoali_param_group_config *group);
    shoal_status (*step)(const struct shoali_optimizer *optimizer,
                         const struct shoali_optimizer_now *now,
                         const struct shoali_optimizer_segment *segment);
};

/* ---- a configured optimizer: plain values, copyable ------------------------------------------ */

struct shoali_adam_params {
    double lr, eps, weight_decay;
    struct shoali_floats betas;
    bool bias_correction, adam_w_mode;
    bool amsgrad, torch_adam, fp32_optimizer_states,
        set_grad_none; /* not supported or without effect */
    double max_grad_norm;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_sgd_params {
    double lr, momentum, dampening, weight_decay;
    bool nesterov, maximize;
    double max_grad_norm;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_lamb_params {
    double lr, eps, weight_decay, max_coeff, min_coeff;
    struct shoali_floats betas;
    bool bias_correction, eps_inside_sqrt, amsgrad;
    double max_grad_norm;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_adafactor_params {
    double lr, beta2_decay, d, weight_decay;
    struct shoali_floats eps;
    bool foreach, maximize;
    double max_grad_norm;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct shoali_optimizer {
    const struct shoali_optimizer_type *type; /* NULL: none was configured */
    double lr; /* base lr; a schedule's warmup_max_lr falls back to it */
    double
        weight_decay; /* base weight decay; the caller may overwrite both before the first step */
    double beta[2];   /* adam; sgd: {momentum, 0} - what DeepSpeed's progress line calls mom */
    int32_t state_count; /* states kept in this configuration: sgd without momentum keeps none */
    union {
        struct shoali_adam_params adam;
        struct shoali_sgd_params sgd;
        struct shoali_lamb_params lamb;
        struct shoali_adafactor_params adafactor;
        double room[SHOALI_OPTIMIZER_PARAMS_ROOM]; /* of one whose struct is its file's alone */
    } params;
};

/* The `optimizer` section for the engine's root table. */
struct shoali_optimizer_config {
    const char *type;               /* NULL: section absent */
    struct json_t *params;          /* read through its path by shoali_optimizer_make */
    struct shoali_strings no_decay; /* these two: param_groups.h */
    struct json_t *param_groups;
    bool legacy_fusion; /* accepted, no effect */
    uint64_t given[SHOALI_GIVEN_WORDS];
};
extern const struct shoali_section shoali_optimizer_section;

/* Makes the optimizer that `config` names, with its params from `path`.params of the document. With
 * config->type NULL: *optimizer is zeroed (type NULL) and SHOAL_OK. Lists go to the arena. */
SHOAL_CHECKED shoal_status shoali_optimizer_make(const struct shoali_optimizer_config *config,
                                                 struct shoali_json *document, const char *path,
                                                 struct shoali_arena *arena,
                                                 struct shoali_optimizer *optimizer);
/* After a change of optimizer->params. */
void shoali_optimizer_configure(struct shoali_optimizer *optimizer);
/* What the states are made by: the type's name, unless it has several update rules. States mean the
 * same to optimizers of one formula alone. */
const char *shoali_optimizer_formula(const struct shoali_optimizer *optimizer);
/* Whether a type of the table keeps states of this name. */
bool shoali_optimizer_is_state(const char *name);
/* States of kind element; they come first. */
int32_t shoali_optimizer_element_states(const struct shoali_optimizer *optimizer);

/* ---- the step -------------------------------------------------------------------------------- */

/* What is the same for all segments of one step. */
struct shoali_optimizer_now {
    const struct shoali_exec *exec;
    const float *control; /* device: gradient_norm.h; NULL: multiplier 1, never skip */
    double lr;            /* from the schedule, before the segment's multiplier */
    int64_t t; /* 1 for the first applied update: bias correction; sgd's first use of momentum */
    bool cycle_momentum; /* OneCycle: beta1 (or sgd momentum) = momentum, adam's beta2 = 0.99 */
    double momentum;
    float multiplier; /* control[1] on the host; of use to conclude */
};
/* A parameter that an optimizer with measures updates: `matrices` matrices of rows x columns. One
 * without two dims is a column of numbers, rows = its elements. */
struct shoali_optimizer_tensor {
    int64_t count, matrices, rows, columns;
    bool is_matrix; /* two dims or more: there are sums, states and factors of columns */
    double lr_multiplier, weight_decay_multiplier;
    /* For conclude, on the host: of the measure; of the states that are not of kind element, else
     * NULL, updated; of the optimizer, to be filled in. */
    const double *sum[SHOALI_OPTIMIZER_MAX_SUMS];
    float *state[SHOALI_OPTIMIZER_MAX_STATES];
    float *factor[SHOALI_OPTIMIZER_MAX_FACTORS];
};
void shoali_optimizer_tensor_init(struct shoali_optimizer_tensor *tensor, const shoal_shape *shape);
/* One contiguous piece: all pointers are device addresses of its first element. */
struct shoali_optimizer_segment {
    float *param;      /* fp32 master, updated */
    const float *grad; /* reduced, still times the loss scale; not changed */
    float *state[SHOALI_OPTIMIZER_MAX_STATES]; /* of kind element, in the order of type->states */
    void *low;                                 /* 16-bit copy to refresh, or NULL */
    shoal_dtype low_dtype;
    int64_t count;
    double lr_multiplier,
        weight_decay_multiplier; /* normally 1; weight decay 0 for norms and biases */
    /* Of an optimizer with measures: the tensor, and the piece's first element in it. Device
     * addresses of the whole tensor's sums ([3] words each) and factors. */
    const struct shoali_optimizer_tensor *tensor;
    int64_t first;
    uint64_t *sum[SHOALI_OPTIMIZER_MAX_SUMS];
    const float *factor[SHOALI_OPTIMIZER_MAX_FACTORS];
};
/* Launches measure `index` on one segment, as shoali_optimizer_step does the update. */
SHOAL_CHECKED shoal_status shoali_optimizer_measure(const struct shoali_optimizer *optimizer,
                                                    int32_t index,
                                                    const struct shoali_optimizer_now *now,
                                                    const struct shoali_optimizer_segment *segment);
/* Launches the update of one segment; asynchronous in exec's stream. Not collective. When control
 * says skip nothing is written. SHOAL_EINVAL for t < 1 or a missing pointer. */
SHOAL_CHECKED shoal_status shoali_optimizer_step(const struct shoali_optimizer *optimizer,
                                                 const struct shoali_optimizer_now *now,
                                                 const struct shoali_optimizer_segment *segment);

#endif
