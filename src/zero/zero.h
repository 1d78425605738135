/* zero - who holds which part of weights, gradients and optimizer states; reduction; the update.
 * Level L6.
 *
 * What a rank holds of a module's parameters (each a shard of its whole: tensor/shard.h) lies in
 * one flat space in canonical order without gaps: flat order = file order. Frozen ones take part in
 * weights only by having no segment in the optimizer's walk.
 *
 *   group    the N ranks that divide the micro-batches and hold the same of a parameter: most often
 *            args.group, or fewer (args.cuts), as ranks that hold other experts do not. ZeRO cuts
 *            over the group of each parameter; what is said of N and r below is of it. Means are
 *            over args.group, norm and verdict of everyone: with ranks that hold other blocks of
 *            the same parameters, or the same once more.
 *   unit     parameters of one group that are fetched and reduced together: in stages 2 and 3 those
 *            that one layer declared first (tied ones belong to their first layer), in stages 0 and
 *            1 all neighbours.
 *   bucket   a run of a unit, at most reduce_bucket_size and allgather_bucket_size elements: one
 *            message. It is cut in N equal parts of a multiple of 16 elements; rank r owns the
 *            r-th. Only the last bucket of a unit is padded, and only in memory.
 *   range    what a rank owns of one bucket: elements [begin, begin+count) of the flat space. A
 *            rank's parts follow each other in its part buffers.
 *
 *              weights (compute dtype)   gradients (F32, or I64 exact)   master + states (F32)
 *   stage 0    all                       all                             all
 *   stage 1    all                       all, own parts of the sums      own parts
 *   stage 2    all                       own parts + live units          own parts
 *   stage 3    own parts + live units    own parts + live units          own parts
 *
 * With one rank every stage is stage 0, except that weights are fetched when they are offloaded.
 * fp32 models: master = weights (one buffer), unless something is offloaded.
 *
 * GRADIENTS are written by the kernels through sinks; the first contribution of a step overwrites,
 * nothing is zeroed. Stages 0 and 1 accumulate in the whole buffer and sum over ranks once per
 * step. In stages 2 and 3 a unit gets a buffer when the backward of a layer that uses it begins;
 * when the gradients of all layers that began have come it is summed over ranks, added to the own
 * parts, and the buffer goes to the next unit. So weight gradients may be deferred, several tapes
 * may be alive, and backwards may follow in any order: reduce.h says which order of adds that is.
 *
 * FETCHES of stage 3 follow the layer list, which all ranks share: a layer's scope holds the units
 * it declared or is tied to, counted, in forward and again in backward. A unit is given back at the
 * scope's end unless it is used again within max_reuse_distance elements and no more than
 * max_live_parameters are gathered. Units of small parameters only stay gathered, and are refreshed
 * after an update. A parameter's `data` is NULL while it is not gathered.
 *
 * PIPELINES. A stage's ranks hold parameters of its layers (shoal_layer.here) and nothing of the
 * others, so every part of this folder sees a shorter flat space. What several stages hold has a
 * unit of its own, so that they cut it alike; own parts of its gradient are summed over those
 * stages after the sum over data ranks, it is counted by one of them, and all update it alike.
 *
 * REDUCTION fast: fp32 sums in rank order; seed of backward = loss_scale/gas; the mean over N is
 * folded into the update's multiplier. prescale_gradients and gradient_predivide_factor scale
 * before the sum as DeepSpeed does. With one micro-batch per rank and step all stages give the same
 * bits; with more, stages 2 and 3 add over ranks first and over micro-batches second, the others
 * the other way round. REDUCTION exact: each contribution is converted once to a 64-bit integer
 * (unit 2^-unit) and summed as integers over micro-batches and ranks; then g = (float)((double)sum
 * * 2^-unit / M). Seed = loss scale alone. Order-free, so the bits do not depend on N, the stage,
 * buckets or the backend. A contribution of magnitude >= 2^(63-unit-ceil(log2(M*uses*S))) or NaN
 * skips the step on every rank; S: the contributions of a use, one for each declared block of the
 * sequence or split of heads.
 *
 * FAILURES of anything collective on one rank abort the world with its sentence, because the others
 * wait for it; mistakes of the configuration are found before anything is collective.
 *
 * OVERLAP (overlap_comm): a communication thread with its own stream and group runs the collectives
 * in the order of posting. Stage 3: the next layer's units are gathered while this layer computes.
 * Stages 2 and 3: a unit is summed beside the next layer's backward, which takes one more unit
 * buffer. Stages 0 and 1: messages of reduce_bucket_size are summed as the last micro-batch's
 * backward completes them. The bits are the same with and without. An error of the thread is the
 * status of the next call here; the world is aborted with its sentence at once.
 *
 * ZERO++, MICS (stage 3; Wang et al. 2023, Zhang et al. 2022). hpZ: the first gather after an
 * update leaves a second copy of the weights, cut over hpz_size neighbours, from which later
 * gathers come. MiCS: parts are cut over shard_size neighbours; the parts' gradients are summed
 * over the replicas once per step; each replica takes a slice of the norm. qwZ, qgZ: quantized.h.
 *
 * STEP  reduce -> norm2 of what this rank counts -> {limbs, flag, loss} of all ranks
 * gathered in one small message (the step's only host synchronisation) -> host decides norm,
 * overflow, clip -> control {norm, multiplier, skip} to the device -> the optimizer on every
 * segment of the own parts -> weights gathered (stages 1-3). The norm is a 192-bit integer sum, so
 * it is the same number for any layout.
 *
 * WHOLE TENSORS  An optimizer may look at all own segments several times, with sums over whole
 * tensors between (optimizer.h): one message per group and time, of integers, and one more wait of
 * the host. Its states per row, column or tensor are on every rank that holds a part (tensors.h).
 *
 * OFFLOAD (stages 1 to 3; parameters: stage 3). The part space is cut in sub-groups of at most
 * sub_group_size and 2^22 elements. Masters and states of all of them, or with ratio < 1 of all but
 * the first, lie in host memory or in a file and are updated there: gradients of a sub-group are
 * copied to the host while the one before is updated, new weights are copied back while the next
 * one is. Own parts of the weights, when they are offloaded, are copied into their place in a
 * unit's buffer when it is gathered. Where states or weights lie does not change a bit of any
 * result.
 *
 * TRAFFIC per step and rank, in units of P (N-1)/N elements, with one micro-batch: 2, 2, 2, 3.
 *
 * Sources: Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion parameter
 * models".
 */
#ifndef SHOALI_ZERO_H
#define SHOALI_ZERO_H

#include "autograd/autograd.h"
#include "comm/comm.h"
#include "optimizer/param_groups.h"
#include "swap_tensor/swap_tensor.h"

struct shoali_zero;

/* Stage 3: what is gathered when. All in elements. */
struct shoali_zero_fetch {
    int64_t prefetch_bucket; /* overlap: at most so many of the next layer at once */
    int64_t param_persistence, model_persistence; /* units of parameters up to the first stay
                                                     gathered, up to the second in sum */
    int64_t max_live, max_reuse_distance;
    int64_t granularity; /* neighbouring layers below this are one unit, until they reach it */
};
/* Where something lives that is not in use. */
enum shoali_zero_home { SHOALI_ZERO_DEVICE, SHOALI_ZERO_CPU, SHOALI_ZERO_NVME };
struct shoali_zero_offload {
    enum shoali_zero_home optimizer; /* masters and states; with stage 0 only SHOALI_ZERO_DEVICE */
    enum shoali_zero_home param;     /* own parts of the weights; other than DEVICE: stage 3 */
    double ratio; /* share of the sub-groups whose masters and states are outside the device */
    /* One buffer holds a row of a sub-group. cpu: two make a stage, through which a sub-group
     * passes; at least one stage. nvme: 2 + states make a set; sets needed: 1, and 1 each for
     * pipeline_read and pipeline_write. */
    int64_t optimizer_buffers; /* 0: as many as needed */
    bool optimizer_pin, pipeline_read, pipeline_write;
    const char *optimizer_path, *param_path; /* folders; of use with nvme */
    /* nvme: param_max_in_cpu elements of the first units stay in host memory, the others pass
     * through param_buffers buffers, of which each must hold the own part of a unit. */
    int64_t param_buffers, param_buffer_size, param_max_in_cpu; /* sizes in elements */
    bool param_pin;
    struct shoali_io_args io;
};
/* What a rank of a pipeline runs: layers [first, first + count), forward or back. A backward of
 * inputs leaves the gradients of parameters to a later backward of weights. */
struct shoali_zero_pass {
    enum {
        SHOALI_ZERO_FORWARD,
        SHOALI_ZERO_BACKWARD,
        SHOALI_ZERO_BACKWARD_INPUT,
        SHOALI_ZERO_BACKWARD_WEIGHT
    } kind;
    int32_t first, count;
};
/* A parameter that several stages hold: its gradients are summed over them, too. */
struct shoali_zero_tied {
    int32_t param;
    shoal_group
        *group; /* the ranks that own the same part of it; NULL: this stage does not hold it */
};
/* Ranks of a stage enter the scopes of its layers, in one order. Zeros: there is one stage. */
struct shoali_zero_pipeline {
    int32_t stage, stages;
    /* A step of this rank, in order; NULL: gas times all layers forward and back. */
    const struct shoali_zero_pass *pass;
    int32_t pass_count;
    const struct shoali_zero_tied *tied; /* by parameter; the same ones on all stages */
    int32_t tied_count;
};
struct shoali_zero_args {
    struct shoali_module *module; /* borrowed; its params get data and sinks */
    struct shoali_device *device;
    struct shoali_exec exec;
    const struct shoali_ops *host_ops; /* for offload; NULL: as exec */
    shoal_group *group;                /* the ranks that divide the micro-batches; NULL: one */
    /* Those, and others that step with them: who holds other blocks, or the same and computes the
     * same micro-batches. NULL: there are none. */
    shoal_group *everyone;
    bool loss_elsewhere; /* another rank adds the losses of this one's micro-batches */
    /* [params] Outside of the parameter's group a rank holds the same, and counts it in norms and
     * hashes. Borrowed until create returns; NULL: none. */
    const bool *counted_elsewhere;
    /* Groups of ranks that hold the same of a parameter: i is cut over cuts[cut_of[i] - 1], or for
     * 0 over `group`. A NULL group in it is this rank alone. NULL: all over `group`. */
    shoal_group *const *cuts; /* borrowed until create returns; the groups until destroy */
    int32_t cut_count;
    const int32_t *cut_of;                    /* [params], borrowed until create returns */
    const struct shoali_optimizer *optimizer; /* NULL: inference, weights only */
    /* [params], borrowed; NULL: all by `optimizer`, those without the tag decay */
    const struct shoali_param_rule *rule;
    uint64_t seed; /* of init */
    bool zeros;    /* weights begin as zeros: others are loaded next */
    int32_t stage;
    bool exact;
    int32_t unit_log2;
    int32_t contributions; /* exact: of a use of a parameter in a micro-batch, at most; 0: 1 */
    int64_t reduce_bucket_size, allgather_bucket_size; /* elements; 0: no limit */
    int64_t sub_group_size; /* stage 3, offload: elements updated at once; 0: no limit */
    bool all_reduce;        /* stages 1-3: sum by all-reduce instead of reduce-scatter */
    bool prescale_gradients, gradient_sum;
    double gradient_predivide_factor, max_norm;
    int64_t gas;
    /* Stage 3; 0: no. */
    int32_t shard_size;       /* MiCS: so many consecutive ranks share one partition */
    bool hierarchical_gather; /* MiCS: gathers go between hosts first, then within (wire.h) */
    int32_t hpz_size; /* hpZ: so many consecutive ranks share a second copy of the weights */
    bool quantized_weights, quantized_gradients; /* qwZ, qgZ; not exact */
    int64_t loco_reset; /* qgZ: feed errors back, forget them after so many steps; 0: no */
    double loco_beta;
    bool overlap; /* collectives on a thread of their own, beside the computation */
    struct shoali_zero_fetch fetch;
    struct shoali_zero_offload offload; /* zero: none */
    struct shoali_zero_pipeline
        pipeline; /* lists: borrowed until create returns, `tied` until destroy */
};
/* Places and initialises everything. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_create(const struct shoali_zero_args *args,
                                              struct shoali_zero **zero);
void shoali_zero_destroy(struct shoali_zero *zero);
/* A digest of the gathers and sums of a step and an evaluation: the same on all ranks that run the
 * same layers. */
uint64_t shoali_zero_order(const struct shoali_zero *zero);

/* Steps of so many micro-batches from now on, at most as many as at creation: exact sums keep the
 * range of those. Between steps. */
void shoali_zero_set_accumulation(struct shoali_zero *zero, int64_t gas);
/* Seed of a micro-batch's backward for this loss scale: loss_scale/gas, exact: loss_scale. */
double shoali_zero_seed(struct shoali_zero *zero, double loss_scale);
/* Adds a micro-batch's loss (device scalar) to the step's fixed-point sum; asynchronous. */
SHOAL_CHECKED shoal_status shoali_zero_add_loss(struct shoali_zero *zero, const float *loss);
/* Before the micro-batch's backward: points the sinks; `index` counts 0..gas-1 within the step. */
SHOAL_CHECKED shoal_status shoali_zero_micro_begin(struct shoali_zero *zero, int64_t index);
/* Observer for tapes (fetches, gradients); borrowed. */
const struct shoali_observer *shoali_zero_observer(struct shoali_zero *zero);
/* Takes part in the fetches of one forward pass without computing: for a rank that has no
 * micro-batch left while others do. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_idle_forward(struct shoali_zero *zero);

/* The step's shared record: what each rank adds; the sums come back. Losses in fixed point 2^-44.
 */
struct shoali_zero_verdict {
    double loss;             /* mean over the global batch; NaN when one was not finite */
    double norm;             /* of the gradient after unscaling and averaging; NaN on overflow */
    bool overflow;           /* some rank saw NaN, infinity or an exact contribution out of range */
    bool stop, save, failed; /* some rank passed SHOALI_ZERO_STOP, ... */
    int32_t rejected_param; /* this rank's first parameter with a contribution out of range (exact),
                               -1 none */
};
/* What a rank says to all others with a step, in bits: stop, save, something of mine has failed. */
enum { SHOALI_ZERO_STOP = 1, SHOALI_ZERO_SAVE = 2, SHOALI_ZERO_FAILED = 4 };
/* Sums the gradients over ranks and decides. Collective; the step's one host synchronisation. */
SHOAL_CHECKED shoal_status shoali_zero_reduce(struct shoali_zero *zero, double loss_scale,
                                              uint32_t asks, struct shoali_zero_verdict *verdict);
/* Before it, of a pipeline: sums the gradients over data ranks, and those of tied parameters over
 * the stages that hold them. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_reduce_tied(struct shoali_zero *zero);
/* Updates weights unless the reduce found an overflow. t = 1-based optimizer step. */
struct shoali_zero_now {
    double lr;
    int64_t t;
    bool cycle_momentum; /* the schedule gives beta1 */
    double momentum;
};
SHOAL_CHECKED shoal_status shoali_zero_step(struct shoali_zero *zero,
                                            const struct shoali_zero_now *now);

/* Elements [begin, begin+count) of the flat space, which lie at element `at` of some buffer. */
struct shoali_zero_range {
    int64_t begin, count, at;
};
/* What checkpoints, fingerprints and getters see: one stored kind of tensors. Those of an
 * optimizer's states that are not per element have a flat space of their own, and no range: every
 * rank holds all of it, on the host; of a pipeline, each rank that of its stage's parameters. */
struct shoali_zero_kind {
    const char *name; /* "model", "master", "exp_avg", ... */
    shoal_dtype dtype;
    enum shoali_state_kind of; /* shoali_state_shape gives the tensors' shapes */
    int64_t count;             /* of its flat space */
    void *data; /* device; NULL when none of it is there. With ratio < 1 the first elements are */
    const struct shoali_zero_range *range; /* held by this rank; rising, some may be empty */
    int32_t range_count;
    bool replicated; /* it is the whole flat space */
};
int32_t shoali_zero_kind_count(const struct shoali_zero *zero);
void shoali_zero_get_kind(const struct shoali_zero *zero, int32_t index,
                          struct shoali_zero_kind *kind);
/* Where a parameter's numbers begin in the kind's flat space; param = their number: its end. */
int64_t shoali_zero_kind_offset(const struct shoali_zero *zero, int32_t index, int32_t param);
/* False: 16-bit weights without training, which have no masters. Kind 0, "master", then reads and
 * writes the weights themselves, widened and rounded to nearest. */
bool shoali_zero_has_masters(const struct shoali_zero *zero);
/* Forgets what a step takes over from those before it besides masters, states and t: LoCo's errors,
 * which no kind has. False: there is no such thing. */
bool shoali_zero_forget_errors(struct shoali_zero *zero);
/* After masters were written from outside (load, set): rounds them into the weights. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_masters_changed(struct shoali_zero *zero);
/* Copies elements of a kind to/from the host; they must be held. */
SHOAL_CHECKED shoal_status shoali_zero_read(struct shoali_zero *zero, int32_t kind, int64_t first,
                                            int64_t count, void *out);
SHOAL_CHECKED shoal_status shoali_zero_write(struct shoali_zero *zero, int32_t kind, int64_t first,
                                             int64_t count, const void *in);
/* The ranges of the flat space that this rank updates (their `at` is of the part buffers). */
const struct shoali_zero_range *shoali_zero_own_ranges(const struct shoali_zero *zero,
                                                       int32_t *count);
/* Of those the ones that this rank counts, rising: over everyone each element of each parameter's
 * whole is in one range of one rank. */
const struct shoali_zero_range *shoali_zero_counted_ranges(const struct shoali_zero *zero,
                                                           int32_t *count);
/* Elements [begin, begin+count) of the flat space of the final (reduced, averaged, unscaled, not
 * clipped) fp32 gradient; they must lie in one own range; valid until the next micro_begin. */
SHOAL_CHECKED shoal_status shoali_zero_read_gradient(struct shoali_zero *zero, int64_t begin,
                                                     int64_t count, float *out);

/* ---- a snapshot: zero/snapshot.h ---- */

/* Room for one at a time; staging_bytes of it for blocks that are changed before they were read
 * (rounded, and at least one). meta: it is only counted. SHOALI_ZERO_NVME has none: a store belongs
 * to one thread. */
SHOAL_CHECKED shoal_status shoali_zero_snapshot_create(struct shoali_zero *zero,
                                                       int64_t staging_bytes, bool meta);
int64_t shoali_zero_snapshot_bytes(const struct shoali_zero *zero);
/* Between steps: what is read from now on is what is there now. */
SHOAL_CHECKED shoal_status shoali_zero_snapshot_begin(struct shoali_zero *zero);
/* As shoali_zero_get_kind, and who holds what of it in a snapshot: of 16-bit weights who holds the
 * masters, of which they are made. */
void shoali_zero_snapshot_get_kind(const struct shoali_zero *zero, int32_t index,
                                   struct shoali_zero_kind *kind);
/* Of another thread: these elements will be read, each once; all was told; a read of what was told;
 * nothing more will be read. */
void shoali_zero_snapshot_expect(struct shoali_zero *zero, int32_t kind, int64_t first,
                                 int64_t count);
void shoali_zero_snapshot_expected(struct shoali_zero *zero);
SHOAL_CHECKED shoal_status shoali_zero_snapshot_read(struct shoali_zero *zero, int32_t kind,
                                                     int64_t first, int64_t count, void *out);
void shoali_zero_snapshot_end(struct shoali_zero *zero);
/* Of the last one; once it has ended. */
struct shoali_zero_snapshot_stats {
    int64_t staging_bytes, most_staged_bytes, copied_bytes;
    int64_t stall_ns;   /* that updates were held up */
    int64_t full_count; /* blocks that waited for room */
};
void shoali_zero_snapshot_get_stats(const struct shoali_zero *zero,
                                    struct shoali_zero_snapshot_stats *stats);

/* What is allocated. The first four, of which `buffers` are live units, sums under way and
 * conversions, are device memory. Offload, with
 *   part   elements of the part space, of which the masters and states of the first D are on the
 *          device;  rows = 1 + states (without training 1);  w = bytes of a weight
 *   G      elements of a sub-group = min(sub_group_size, 2^22, part)
 *   pad    rounds up to 4096 bytes
 * has of states
 *   device  4 rows D
 *   cpu     host 4 rows (part - D) + stages (4 + w) G, stages = min(buffers/2, 16, sub-groups)
 *   nvme    host sets rows pad(4 G) + sets 4096 + stages (4 + w) G, stages = 1 + pipeline_read;
 *           file: over the sub-groups rows pad(4 elements)
 * and of weights, beside the units that stay gathered
 *   cpu     host w part
 *   nvme    host w (elements kept there) + buffers (pad(w of the largest unit's part) + 4096);
 *           file: over the other units pad(w elements).
 * An optimizer that measures has on the device 24 bytes a sum and 4 a factor (in `buffers`), and
 * pinned 80 bytes a sum (offload: 24 more), 4 a factor and 4 a number of its small states. */
struct shoali_zero_memory {
    int64_t weights_bytes, gradients_bytes, states_bytes, buffers_bytes;
    int64_t master_bytes;     /* fp32 copies of the weights; part of states_bytes */
    int64_t live_elements;    /* stage 3: most that was gathered at once, persistent units aside */
    int64_t updated_elements; /* that this rank's optimizer updates */
    int64_t host_bytes, nvme_bytes;                  /* offload: outside the device */
    int64_t pinned_bytes;                            /* of host_bytes */
    int64_t states_read_bytes, states_written_bytes; /* masters and states, from and to the file */
};
void shoali_zero_memory(const struct shoali_zero *zero, struct shoali_zero_memory *memory);
/* What went over the group given at creation and over those that zero made of it. */
SHOAL_CHECKED shoal_status shoali_zero_counters(struct shoali_zero *zero,
                                                struct shoali_comm_counters *counters);

#endif
