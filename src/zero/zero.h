/* zero - who holds which part of weights, gradients and optimizer states; reduction; the update.
 * Level L6.
 *
 * All parameters of a module lie in one flat space in canonical order without gaps: flat order =
 * file order. Frozen ones take part in weights only by having no segment in the optimizer's walk. A
 * rank owns [own_begin, own_end) of it: everything in stage 0, the r-th of N equal parts (padded to
 * N*16 elements) in stages 1-3.
 *
 *              weights (compute dtype)   gradients (F32, or I64 exact)   master + states (F32)
 *   stage 0    all                       all                             all
 *   stage 1    all                       all                             own part
 *   stage 2    all                       own part + buckets              own part
 *   stage 3    own part + fetched layers own part + buckets              own part
 *
 * fp32 models: master = weights (one buffer). Gradients are written by the kernels through sinks
 * straight into the flat gradient buffer; the first micro-batch of a step overwrites, nothing is
 * zeroed.
 *
 * REDUCTION fast: fp32 sums in rank order; seed of backward = loss_scale/gas; the mean over N is
 * folded into the update's multiplier. prescale_gradients and gradient_predivide_factor scale
 * before the sum as DeepSpeed does. REDUCTION exact: each contribution is converted once to a
 * 64-bit integer (unit 2^-unit) and summed as integers over micro-batches and ranks; then g =
 * (float)((double)sum * 2^-unit / M). Seed = loss scale alone. Order-free, so the bits do not
 * depend on N, the stage, buckets or the backend. A contribution of magnitude >=
 * 2^(63-unit-ceil(log2(M*uses))) or NaN skips the step on every rank.
 *
 * STEP  reduce -> norm2 of the own part (each element once) -> {limbs, flag, loss} of all ranks
 * gathered in one small message (the step's only host synchronisation) -> host decides norm,
 * overflow, clip -> control {norm, multiplier, skip} to the device -> the optimizer on every
 * segment of the own part -> weights gathered (stages 1-3). The norm is a 192-bit integer sum, so
 * it is the same number for any layout.
 *
 * Sources: Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion parameter
 * models".
 */
#ifndef SHOALI_ZERO_H
#define SHOALI_ZERO_H

#include "autograd/autograd.h"
#include "optimizer/optimizer.h"

struct shoali_zero;

struct shoali_zero_args {
    struct shoali_module *module; /* borrowed; its params get data and sinks */
    struct shoali_device *device;
    struct shoali_exec exec;
    shoal_group *group;                       /* NULL: one rank */
    const struct shoali_optimizer *optimizer; /* NULL: inference, weights only */
    uint64_t seed;                            /* of init */
    int32_t stage;
    bool exact;
    int32_t unit_log2;
    int64_t reduce_bucket_size; /* elements */
    bool prescale_gradients, gradient_sum;
    double gradient_predivide_factor, max_norm;
    int64_t gas;
};
/* Places and initialises everything. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_create(const struct shoali_zero_args *args,
                                              struct shoali_zero **zero);
void shoali_zero_destroy(struct shoali_zero *zero);

/* Seed of a micro-batch's backward for this loss scale: loss_scale/gas, exact: loss_scale. */
double shoali_zero_seed(const struct shoali_zero *zero, double loss_scale);
/* Adds a micro-batch's loss (device scalar) to the step's fixed-point sum; asynchronous. */
SHOAL_CHECKED shoal_status shoali_zero_add_loss(struct shoali_zero *zero, const float *loss);
/* Before the micro-batch's backward: points the sinks; `index` counts 0..gas-1 within the step. */
SHOAL_CHECKED shoal_status shoali_zero_micro_begin(struct shoali_zero *zero, int64_t index);
/* Observer for tapes (prefetch, grad_ready); borrowed. */
const struct shoali_observer *shoali_zero_observer(struct shoali_zero *zero);

/* The step's shared record: what each rank adds; the sums come back. Losses in fixed point 2^-44.
 */
struct shoali_zero_verdict {
    double loss;            /* mean over the global batch; NaN when one was not finite */
    double norm;            /* of the gradient after unscaling and averaging; NaN on overflow */
    bool overflow;          /* some rank saw NaN, infinity or an exact contribution out of range */
    bool stop;              /* some rank passed stop */
    int32_t rejected_param; /* this rank's first parameter with a contribution out of range (exact),
                               -1 none */
};
/* Sums the gradients over ranks and decides. Collective; the step's one host synchronisation. */
SHOAL_CHECKED shoal_status shoali_zero_reduce(struct shoali_zero *zero, double loss_scale,
                                              bool stop, struct shoali_zero_verdict *verdict);
/* Updates weights unless the reduce found an overflow. t = 1-based optimizer step. */
struct shoali_zero_now {
    double lr;
    int64_t t;
    bool cycle_momentum; /* the schedule gives beta1 */
    double momentum;
};
SHOAL_CHECKED shoal_status shoali_zero_step(struct shoali_zero *zero,
                                            const struct shoali_zero_now *now);

/* What checkpoints, fingerprints and getters see: one stored kind of element-wise tensors. */
struct shoali_zero_kind {
    const char *name; /* "model", "master", "exp_avg", ... */
    shoal_dtype dtype;
    void *data;           /* device: the elements [begin, begin+count) of the flat space */
    int64_t begin, count; /* held by this rank */
    bool replicated;      /* all ranks hold the same */
};
int32_t shoali_zero_kind_count(const struct shoali_zero *zero);
void shoali_zero_get_kind(const struct shoali_zero *zero, int32_t index,
                          struct shoali_zero_kind *kind);
int64_t shoali_zero_param_offset(const struct shoali_zero *zero,
                                 int32_t param);                /* in the flat space */
int64_t shoali_zero_flat_count(const struct shoali_zero *zero); /* unpadded */
/* After masters were written from outside (load, set): rounds them into the weights. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_masters_changed(struct shoali_zero *zero);
/* Copies elements of a kind to/from the host; the range must be held. */
SHOAL_CHECKED shoal_status shoali_zero_read(struct shoali_zero *zero, int32_t kind, int64_t first,
                                            int64_t count, void *out);
SHOAL_CHECKED shoal_status shoali_zero_write(struct shoali_zero *zero, int32_t kind, int64_t first,
                                             int64_t count, const void *in);
/* Elements [first, first+count) of a parameter's final (reduced, averaged, unscaled, not clipped)
 * fp32 gradient; they must lie in the own part; valid until the next micro_begin. */
SHOAL_CHECKED shoal_status shoali_zero_read_gradient(struct shoali_zero *zero, int32_t param,
                                                     int64_t first, int64_t count, float *out);
/* The part of the flat space this rank updates. */
void shoali_zero_own_range(const struct shoali_zero *zero, int64_t *begin, int64_t *end);

struct shoali_zero_memory {
    int64_t weights_bytes, gradients_bytes, states_bytes, buffers_bytes;
};
void shoali_zero_memory(const struct shoali_zero *zero, struct shoali_zero_memory *memory);

#endif
