/* zero_internal - the object behind zero.h, shared by the files of this folder.
 *
 *   zero_layout.c    units, buckets, ranges, segments: pure arithmetic
 *   zero.c           memory and initial values
 *   zero_pool.c      buffers of live units
 *   zero_comm.c      the communication thread
 *   zero_quantized.c messages of few bits
 *   zero_fetch.c     weights on demand, the observer
 *   zero_gradients.c sinks, sums over ranks
 *   zero_reduce.c    from the sums to the verdict
 *   zero_touched.c   which parameters got a gradient
 *   zero_step.c      the update
 *   zero_offload.c   what lies outside the device: creation, memory, initial values
 *   zero_offload_step.c   the update there
 *   zero_offload_params.c own parts of the weights there
 *   zero_access.c    what is held, for checkpoints and getters
 */
#ifndef SHOALI_ZERO_INTERNAL_H
#define SHOALI_ZERO_INTERNAL_H

#include "optimizer/clip.h"
#include "zero/zero.h"

/* Elements converted at a time where exact sums become fp32 gradients: bounds the extra memory. */
#define SHOALI_ZERO_CHUNK ((int64_t)1 << 20)

/* Words of the step's shared record before those of zero_touched.c. */
#define SHOALI_ZERO_RECORD_WORDS (SHOALI_CLIP_WORDS + 4)

/* The "whole" space is the flat space with each unit padded: buffers that hold everything. The
 * "part" space is the same for the own parts. */
struct shoali_zero_bucket {
    int64_t begin, count; /* flat space */
    int64_t whole, local; /* where it begins in the whole and in the part space */
    int64_t part;         /* elements of one part, padded */
    int64_t errors;       /* LoCo: where its errors begin, in bytes */
};
struct shoali_zero_unit {
    int32_t first_param, param_count, first_bucket, bucket_count;
    int64_t begin, count;                /* flat space */
    int64_t whole, padded;               /* whole space */
    const char *name;                    /* of its first layer */
    uint32_t gathering;                  /* ticket of a gather under way, 0 none */
    int32_t holders;                     /* scopes that use it now */
    bool trains;                         /* some parameter is not frozen */
    bool persistent;                     /* stage 3: always gathered */
    bool second;                         /* hpZ: the second copy is that of these weights */
    void *weights;                       /* stage 3: gathered, NULL when not */
    void *gradients;                     /* stages 2, 3: this micro-batch's, NULL when not in use */
    void *weights_home, *gradients_home; /* buffers used last */
};

/* A run of neighbouring trainable parameters with equal rules, inside one own range. */
struct shoali_zero_segment {
    int64_t begin, count;  /* flat space */
    int64_t local, weight; /* in the part buffers; in `weights` */
    const struct shoali_optimizer *optimizer;
    double lr_multiplier, weight_decay_multiplier;
};

struct shoali_zero_buffer {
    void *memory;
    size_t bytes;
    bool taken;
    struct shoali_zero_buffer *next;
};

/* Where collectives run: on the computing thread, or on the communication thread. */
struct shoali_zero_channel {
    shoal_group *group;    /* the ranks that share one partition */
    shoal_group *nearby;   /* hpZ: those that share a second copy of the weights, else NULL */
    shoal_group *replicas; /* MiCS: those that hold the same parts, else NULL */
    struct shoali_exec exec;
};
struct shoali_zero_job {
    struct shoali_zero *zero; /* this and the ticket are filled in by post */
    shoal_status (*run)(const struct shoali_zero_channel *channel,
                        const struct shoali_zero_job *job);
    const struct shoali_zero_unit *unit;
    void *buffer;
    int32_t message;
    uint32_t ticket;
    bool accumulate;
    bool nearby; /* gather from the second copy */
};
struct shoali_zero_comm {
    struct shoali_zero_channel channel; /* of jobs */
    struct shoali_worker *worker;       /* NULL: jobs run when they are posted */
    struct shoali_event *ready[SHOALI_WORKER_DEPTH], *done[SHOALI_WORKER_DEPTH];
    uint32_t posted; /* ticket of the last job, 0 none */
};

/* What a sub-group passes through on its way to the host and back: pinned memory. */
struct shoali_zero_stage {
    float *gradient; /* [sub_group] */
    void *low;       /* [sub_group] new weights */
    struct shoali_event *arrived, *sent;
    bool sending;
};
#define SHOALI_ZERO_MAX_STAGES 16
struct shoali_zero_outside {
    bool active;                /* something is offloaded: masters are not the weights */
    bool meta;                  /* a plan: nothing is moved */
    struct shoali_device *host; /* a cpu device: memory that is not pinned */
    struct shoali_pool *pool;   /* its own; NULL when the device is a cpu too */
    struct shoali_exec exec;    /* kernels on the host */
    struct shoali_device_stream *upload;
    struct shoali_swap *optimizer;  /* rows: master, states; chunk 0 begins at device_count */
    struct shoali_swap *param;      /* one row: own parts of the weights; chunk = unit */
    int64_t sub_group;              /* elements */
    int64_t device_count;           /* first elements of the part space: on the device */
    int32_t set_count, stage_limit; /* nvme: buffers of the store; buffers on the way, at most */
    int32_t resident_count;         /* first units whose own parts stay in host memory */
    struct shoali_zero_stage stage[SHOALI_ZERO_MAX_STAGES];
    int32_t stage_count;
    void *device_low; /* device: new weights of a sub-group updated there, on their way out */
    const char *row_name[1 + SHOALI_OPTIMIZER_MAX_STATES];
};

struct shoali_zero {
    struct shoali_zero_args args;
    struct shoali_optimizer optimizer;
    int32_t rank, world, stage; /* stage 0 when there is one rank */
    int32_t parts, seat;        /* a bucket is cut in so many; this rank owns the seat-th */
    int32_t replicas, replica;  /* so many ranks own the same; this one is the replica-th */
    int32_t nearby;             /* hpZ: ranks that share a second copy; 0 none */
    bool fetches;               /* weights are gathered on demand: stage 3, offloaded weights */

    int64_t flat_count, whole_count, part_count;
    int64_t *offset;        /* [params], flat space */
    int32_t *unit_of_param; /* [params] */
    bool *ready;            /* [params] this micro-batch's gradient is complete */
    struct shoali_zero_unit *unit;
    struct shoali_zero_bucket *bucket;
    int32_t unit_count, bucket_count;
    struct shoali_zero_range *part_range;   /* [buckets] own elements in the part buffers */
    struct shoali_zero_range *weight_range; /* ... in `weights` */
    struct shoali_zero_range *whole_range;  /* all elements in whole buffers */
    struct shoali_zero_segment *segment;
    int32_t segment_count;
    /* Of layer i: its units are need[need_begin[i]] ... need[need_begin[i+1] - 1]. */
    int32_t *need_begin, *need, *own_unit; /* own_unit: -1 none */
    int32_t *own_first; /* [layers + 1] layer i declared parameters own_first[i]... first */
    /* Unit u is used by layers use[use_begin[u]] ... use[use_begin[u+1] - 1], in this order. */
    int32_t *use_begin, *use;
    int64_t *elements_before; /* [layers + 1] of the units of the layers before layer i */

    void *second;  /* hpZ: [whole / nearby], compute dtype */
    void *message; /* quantized messages */
    int64_t message_bytes;
    void *errors;                   /* LoCo: 8-bit codes for what this rank sends */
    int64_t error_bytes, error_age; /* age: steps since they were forgotten */
    double loss_scale;              /* that they are made with */
    bool forget_errors;             /* before the next sum */
    void *weights;                  /* compute dtype; [whole], stage 3 [part] */
    float *master;                  /* [part]; F32 models without offload: weights */
    void *gradients;                /* stages 0, 1: [whole], F32 or I64 */
    void *part_gradients;           /* stages 1-3: [part] */
    void *arrival;                  /* stages 2, 3, fast, gas > 1: one bucket's part */
    int64_t arrival_count;
    float *state[SHOALI_OPTIMIZER_MAX_STATES]; /* [part] each */
    float *chunk;                              /* exact: [chunk_count] */
    struct shoali_zero_buffer *pool;
    int64_t chunk_count;
    int32_t position;        /* of the scope entered last, in the pass over the layers */
    int64_t live, live_peak; /* gathered elements that are not persistent: now, at most */
    int64_t micro;
    int32_t unsent; /* stages 0, 1: messages [0, unsent) of the step are not yet posted */
    uint64_t order; /* stages 2, 3: hash of the scopes of this step */
    struct {        /* stages 2, 3: the unit that is being summed over ranks, NULL none */
        const struct shoali_zero_unit *unit;
        void *gradients;
        uint32_t ticket;
    } reducing;
    struct shoali_zero_comm comm;
    bool planning; /* scopes are walked to make the pool: nothing is sent */

    struct shoali_clip clip;
    int64_t *loss_sum; /* device: fixed point; beside it the loss flag */
    uint32_t *loss_flag;
    uint32_t *param_flag; /* device, [params]: a contribution was out of range */
    size_t small_bytes;   /* of the block that begins at loss_sum */
    void *record;         /* pinned host: what the device's small values are copied to */
    int64_t *words;       /* the step's shared record */
    double divisor;       /* of stored gradients: unscale and mean, set by reduce */
    struct shoali_observer observer;
    struct shoali_zero_outside outside;
};

static inline char *shoali_zero_at(void *buffer, int64_t index, shoal_dtype dtype)
{
    return (char *)buffer + (size_t)index * shoal_dtype_bytes(dtype);
}
static inline shoal_dtype shoali_zero_gradient_dtype(const struct shoali_zero *zero)
{
    return zero->args.exact ? SHOAL_I64 : SHOAL_F32;
}
static inline bool shoali_zero_master_is_weights(const struct shoali_zero *zero)
{
    return zero->args.module->dtype == SHOAL_F32 && !zero->outside.active;
}
/* Where a part's element lies in `master`. */
static inline float *shoali_zero_master(const struct shoali_zero *zero, int64_t local,
                                        int64_t weight)
{
    return zero->master + (shoali_zero_master_is_weights(zero) ? weight : local);
}
/* Elements of the part space whose masters and states are in device memory. */
static inline int64_t shoali_zero_device_count(const struct shoali_zero *zero)
{
    return zero->outside.active ? zero->outside.device_count : zero->part_count;
}

static inline int32_t shoali_zero_ceil_log2(int64_t value)
{
    int32_t bits = 0;
    while (bits < 63 && ((uint64_t)1 << bits) < (uint64_t)value)
        bits++;
    return bits;
}

/* ---- zero_layout.c ---- */
SHOAL_CHECKED shoal_status shoali_zero_lay_out(struct shoali_zero *zero);
void shoali_zero_layout_fini(struct shoali_zero *zero);
/* The range that holds flat element `index`, NULL when none does. */
const struct shoali_zero_range *shoali_zero_find_range(const struct shoali_zero_range *range,
                                                       int32_t count, int64_t index);
/* The first bucket whose own part has elements at or behind `at` of the part space. */
int32_t shoali_zero_first_part(const struct shoali_zero *zero, int64_t at);

/* ---- zero_touched.c ---- */
/* The parameters' `touched` as words that add up over ranks, and back: then of any rank. */
int32_t shoali_zero_touched_words(const struct shoali_zero *zero);
void shoali_zero_pack_touched(const struct shoali_zero *zero, int64_t *words);
void shoali_zero_unpack_touched(const struct shoali_zero *zero, const int64_t *words);

/* ---- zero_pool.c ---- */
/* Zeroed memory that collectives reach without staging. Collective. */
SHOAL_CHECKED shoal_status shoali_zero_alloc_shared(struct shoali_zero *zero, size_t bytes,
                                                    void **address);
void shoali_zero_free_shared(struct shoali_zero *zero, void *address);
/* A buffer of the pool, or a new one. *home is the one that the caller had last time, which it gets
 * again when possible: so passes that are alike need no buffers that the first did not. All ranks
 * ask in the same order. */
SHOAL_CHECKED shoal_status shoali_zero_take(struct shoali_zero *zero, size_t bytes, void **home,
                                            void **address);
void shoali_zero_give(struct shoali_zero *zero, void *address);
int64_t shoali_zero_pool_bytes(const struct shoali_zero *zero);
void shoali_zero_pool_fini(struct shoali_zero *zero);

/* ---- zero_comm.c ---- */
SHOAL_CHECKED shoal_status shoali_zero_comm_init(struct shoali_zero *zero); /* collective */
/* Waits for the jobs and ends the thread. */
void shoali_zero_comm_stop(struct shoali_zero *zero);
void shoali_zero_comm_fini(struct shoali_zero *zero);
/* Ranks post the same jobs in the same order. What the computing stream was given before is
 * finished when the job begins. Ticket 0: the job is over. */
SHOAL_CHECKED shoal_status shoali_zero_post(struct shoali_zero *zero, struct shoali_zero_job *job,
                                            uint32_t *ticket);
/* The host until the job is posted to its stream, the computing stream until it is done. An error
 * of any job is returned here. */
SHOAL_CHECKED shoal_status shoali_zero_await(struct shoali_zero *zero, uint32_t ticket);
SHOAL_CHECKED shoal_status shoali_zero_await_all(struct shoali_zero *zero);

/* Hands on the status of something collective. A failure is told to the other ranks, which wait for
 * this one: else they would until the timeout, and this one for them when it destroys its groups.
 */
SHOAL_CHECKED shoal_status shoali_zero_tell(const struct shoali_zero *zero, shoal_status status);

/* A call site that also names the unit's layer: in a message about ranks that do different things.
 */
enum { SHOALI_ZERO_HERE_BYTES = 256 };
const char *shoali_zero_here(const struct shoali_zero_unit *unit, const char *here,
                             char text[SHOALI_ZERO_HERE_BYTES]);

/* ---- zero.c ---- */
/* Writes the initial masters of elements [begin, end) of the part space; base NULL: to their place
 * on the device, else from base on. */
SHOAL_CHECKED shoal_status shoali_zero_initialise(struct shoali_zero *zero,
                                                  const struct shoali_exec *exec, int64_t begin,
                                                  int64_t end, float *base);

/* ---- zero_offload.c ---- */
/* What is where. Not collective, so that a mistake of the configuration is found by all ranks alike
 * before they wait for each other. */
SHOAL_CHECKED shoal_status shoali_zero_offload_plan(struct shoali_zero *zero);
SHOAL_CHECKED shoal_status shoali_zero_offload_init(struct shoali_zero *zero);
void shoali_zero_offload_fini(struct shoali_zero *zero);
/* Initial masters of what is not on the device. */
SHOAL_CHECKED shoal_status shoali_zero_offload_initialise(struct shoali_zero *zero);
/* Where element `at` of a kind's buffer is when it is not on the device: store, row, element of the
 * row. Cuts *count to what lies in one place; false: on the device. */
struct shoali_zero_place {
    struct shoali_swap *swap;
    int32_t row;
    int64_t first;
};
bool shoali_zero_offload_find(const struct shoali_zero *zero, int32_t kind, int64_t at,
                              int64_t *count, struct shoali_zero_place *place);
int32_t shoali_zero_state_rows(const struct shoali_zero *zero); /* masters and states */
void shoali_zero_offload_memory(const struct shoali_zero *zero, struct shoali_zero_memory *memory);

/* ---- zero_offload_step.c ---- */
/* Updates all sub-groups, or with now NULL only rounds masters into weights. */
SHOAL_CHECKED shoal_status shoali_zero_offload_step(struct shoali_zero *zero,
                                                    const struct shoali_zero_now *now);

/* ---- zero_offload_params.c ---- */
SHOAL_CHECKED shoal_status shoali_zero_offload_params_plan(struct shoali_zero *zero);
SHOAL_CHECKED shoal_status shoali_zero_offload_params_init(struct shoali_zero *zero);
/* Puts this rank's own parts of a unit in their places in unit->weights. */
SHOAL_CHECKED shoal_status shoali_zero_load_own_parts(struct shoali_zero *zero, int32_t unit);
/* Starts reading them from the file. */
SHOAL_CHECKED shoal_status shoali_zero_prefetch_own_parts(struct shoali_zero *zero, int32_t unit);

/* ---- zero_quantized.c ---- */
SHOAL_CHECKED shoal_status shoali_zero_quantized_init(struct shoali_zero *zero);
SHOAL_CHECKED shoal_status shoali_zero_forget_errors(struct shoali_zero *zero);
/* As an all-gather of `own` and a reduce-scatter of `whole`. */
SHOAL_CHECKED shoal_status shoali_zero_gather_quantized(const struct shoali_zero_channel *channel,
                                                        const struct shoali_zero *zero,
                                                        const struct shoali_zero_bucket *bucket,
                                                        const struct shoali_post *named,
                                                        const void *own, void *out);
SHOAL_CHECKED shoal_status shoali_zero_reduce_quantized(const struct shoali_zero_channel *channel,
                                                        const struct shoali_zero *zero,
                                                        const struct shoali_zero_bucket *bucket,
                                                        const struct shoali_post *named,
                                                        void *whole, void *out);

/* ---- zero_fetch.c ---- */
/* Fills zero->observer and makes the pool. */
SHOAL_CHECKED shoal_status shoali_zero_watch(struct shoali_zero *zero);
/* After the own parts changed: gathers what has to be (stages 1, 2: everything), forgets the rest.
 */
SHOAL_CHECKED shoal_status shoali_zero_gather_weights(struct shoali_zero *zero);

/* ---- zero_gradients.c ---- */
/* Backward of layer `index` begins: its units get buffers and sinks. Ends: its own unit is summed.
 */
SHOAL_CHECKED shoal_status shoali_zero_gradients_begin(struct shoali_zero *zero, int32_t index);
SHOAL_CHECKED shoal_status shoali_zero_gradients_end(struct shoali_zero *zero, int32_t index);
/* Waits until no unit is being summed and gives its buffer back. */
SHOAL_CHECKED shoal_status shoali_zero_gradients_settle(struct shoali_zero *zero);
/* Stages 0 and 1: after the backward of layer `index` the gradients that lie behind the layer's own
 * are complete, and these too: whole messages of them are on their way. */
SHOAL_CHECKED shoal_status shoali_zero_layer_done(struct shoali_zero *zero, int32_t index);
/* At the step: what is left to sum. Afterwards stored gradients are (true mean) * *factor * loss
 * scale. */
SHOAL_CHECKED shoal_status shoali_zero_sum_gradients(struct shoali_zero *zero, double *factor);
/* fp32 gradient of the elements that lie at `local` of the part buffers, count <= piece: a pointer
 * into the buffer, or into the chunk. Still multiplied by the loss scale. */
SHOAL_CHECKED shoal_status shoali_zero_final_gradient(struct shoali_zero *zero, int64_t local,
                                                      int64_t count, const float **gradient);
/* Longest piece final_gradient can give. */
int64_t shoali_zero_piece(const struct shoali_zero *zero);

#endif
