/* step - a training step, and all that it works on.
 *
 *   train.c      forward, backward, step, train_batch
 *   execute.c    a list of instructions, run
 *   micros.c     what a micro-batch takes, by a pass without memory; the lists; the slots
 *   micro.h, .c  a micro-batch in flight: load, forward, backward of a chunk of layers
 *   stages.h, .c a pipeline: layers, boundaries, groups and memory of this rank
 *   transfers.c  its messages, in the order of the list and ahead of it
 *   batch.c      a batch that changes, samples, learning rate
 *   evaluate.c   eval_batch
 *   hashes.c     fingerprints of a step
 *   unused.c     parameters that a step gave no gradient
 *   report.c     lines and monitor events of a step
 *   profile.c    a step that autotuning measures
 *
 * Order of a step (rank r, gas micro-batches):
 *   for i in 0..gas-1:  load (coordinates of global micro-batch first+i), forward, backward
 *   zero_reduce -> verdict -> scaler -> zero_step (unless overflow) -> schedule
 * It is a list of instructions (pipeline_parallel/), made at creation. The scaler is updated after
 * the verdict, but gradients are unscaled with the scale they were made with. global_steps counts
 * every step, applied_steps those that changed weights; the schedule and Adam's t follow the
 * applied ones. Only what comes from elsewhere may have Adam's t ahead of the schedule:
 * optimizer_ahead.
 */
#ifndef SHOALI_ENGINE_STEP_H
#define SHOALI_ENGINE_STEP_H

#include "activation_checkpointing/activation_checkpointing.h"
#include "engine/config/config.h"
#include "engine/step/micro.h"
#include "engine/step/stages.h"
#include "pipeline_parallel/pipeline_parallel.h"
#include "shoal/engine.h"

#include <signal.h>

/* What one micro-batch costs, by its ops' rows. */
struct shoali_micro_cost {
    int64_t slot_bytes;                                  /* activations, gradients of activations */
    int64_t kept_bytes;                                  /* of kept_slot */
    int64_t flops_forward, flops_backward, flops_replay; /* replay: recomputed scopes, as a whole */
    int64_t forward_bytes;                               /* that kernels read and write */
};

/* A step's list by its micro-batches. */
struct shoali_step_list {
    int64_t accumulation;
    struct shoali_instructions list; /* in the configuration's arena */
};

struct shoali_engine_step {
    struct shoali_batch_sizes batch, largest; /* of a step now; as the engine was created */
    struct shoali_schedule schedule;
    struct shoali_loss_scaler scaler;
    struct shoali_recompute recompute;
    struct shoali_observer observers[3]; /* fetch before recompute */
    const struct shoali_observer *watch; /* borrowed; NULL: none */

    struct shoali_micro *micro; /* in flight, by slot */
    int32_t micro_count;
    struct shoali_micro_cost micro_cost;
    /* One per input of the model: what a source fills, and the tape's tensors of them. */
    const void **batch_arrays;
    struct shoal_tensor **batch_inputs;
    struct shoali_instructions train_list, eval_list; /* of a step; of one micro-batch */
    struct shoali_step_list *lists;                   /* owned; of batches that were set */
    int32_t list_count;

    int64_t micros_done; /* backward passes of this step: of each micro-batch, on each chunk */
    int64_t global_steps, applied_steps, skipped_in_a_row, optimizer_ahead;
    /* Samples of all steps since the run's start, and of those that changed weights. */
    int64_t consumed_samples, applied_samples;
    bool stop;
    volatile sig_atomic_t stop_asked, save_asked; /* on this rank */
    bool save_requested;                          /* on some rank, since the last save */

    shoal_step_info info;
    double forward_ns, backward_ns; /* of the current step */
    int64_t begin_ns;
    struct {
        int64_t steps; /* of this run */
        double ms;     /* of those that count */
    } timed;           /* the throughput timer */
    struct {
        int64_t steps, counted; /* of this run; of them those that are measured */
        double ms, forward_ms, backward_ms, update_ms;
    } profile; /* with autotuning.enabled */
};

/* Refuses `what` in the middle of a step; otherwise drops a forward that had no backward. */
SHOAL_CHECKED shoal_status shoali_engine_between_steps(struct shoal_engine *engine,
                                                       const char *what);

/* micros.c: what a micro-batch takes (micro_cost), by a pass without memory; before them. */
SHOAL_CHECKED shoal_status shoali_engine_measure_micro(struct shoal_engine *engine);
void shoali_engine_drop_micros(struct shoal_engine *engine);
/* Makes the lists of instructions and the slots they need, unless they are there: an engine for
 * inference, which may be used for generation alone, has them from its first forward pass on. */
SHOAL_CHECKED shoal_status shoali_engine_need_micros(struct shoal_engine *engine);

/* Makes the lists alone. */
SHOAL_CHECKED shoal_status shoali_engine_make_lists(struct shoal_engine *engine);
/* The list of a training step of so many micro-batches of this rank. */
SHOAL_CHECKED shoal_status shoali_engine_make_step_list(struct shoal_engine *engine,
                                                        int64_t micro_batches,
                                                        struct shoali_instructions *list);

/* batch.c: the next update's learning rate; a step of the current batch size is over. */
double shoali_engine_lr(const struct shoal_engine *engine);
void shoali_engine_count_samples(struct shoal_engine *engine, bool applied);
/* Warns when the checkpoint that was loaded had steps of another size. */
void shoali_engine_log_batch(const struct shoal_engine *engine, int64_t stored);

/* What a list of instructions works on. */
struct shoali_execution {
    const struct shoali_instructions *instructions;
    shoal_batch_source source;
    void *user;
    int64_t step;  /* passed to the source; -1: evaluation */
    int64_t first; /* global number of micro-batch 0 of the list */
    /* After each forward pass, or NULL. */
    shoal_status (*forwarded)(void *state, const shoal_batch *batch, struct shoal_tensor *loss);
    void *state;
};
/* Stops at the first error; the step's status (SHOAL_SKIPPED) is the last instruction's. */
SHOAL_CHECKED shoal_status shoali_engine_execute(struct shoal_engine *engine,
                                                 const struct shoali_execution *execution);
/* A micro-batch of a global number onto a slot, of step -1 an evaluation's; one backward pass of a
 * chunk, whose inputs' gradients come into `buffer`. The caller checks that the step has room for
 * it. */
SHOAL_CHECKED shoal_status shoali_engine_load(struct shoal_engine *engine,
                                              struct shoali_micro *micro, const shoal_batch *batch,
                                              int64_t step, int64_t number);
SHOAL_CHECKED shoal_status shoali_engine_backward(struct shoal_engine *engine,
                                                  struct shoali_micro *micro,
                                                  const struct shoali_chunk *chunk, char *buffer,
                                                  bool defer_weight);
/* train.c: the end of a step. */
SHOAL_CHECKED shoal_status shoali_engine_finish_step(struct shoal_engine *engine);

/* stages.c. With the mesh: how many stages, which schedule. When the model's parameters are
 * declared: the cut, what crosses it. When all ranks have the same cut: the groups. From then
 * on the module has nothing of other stages; collective. */
SHOAL_CHECKED shoal_status shoali_stages_init(struct shoal_engine *engine,
                                              const shoal_engine_args *args);
SHOAL_CHECKED shoal_status shoali_stages_partition(struct shoal_engine *engine,
                                                   const shoal_engine_args *args);
SHOAL_CHECKED shoal_status shoali_stages_join(struct shoal_engine *engine);
/* A tape of no engine: what layers do, without memory. */
SHOAL_CHECKED shoal_status shoali_engine_create_tape(struct shoal_engine *engine,
                                                     struct shoali_slot *slot,
                                                     struct shoali_slot *kept, bool meta,
                                                     struct shoal_tape **tape);
/* Fills in what zero has to know; the lists are made. */
SHOAL_CHECKED shoal_status shoali_stages_describe(struct shoal_engine *engine,
                                                  struct shoali_zero_args *args);
/* Memory of slots and buffers; the slots exist. */
SHOAL_CHECKED shoal_status shoali_stages_place(struct shoal_engine *engine);
/* Adds what the groups of stages have sent. */
SHOAL_CHECKED shoal_status shoali_stages_counters(const struct shoal_engine *engine,
                                                  struct shoali_comm_counters *counters);
void shoali_stages_fini(struct shoal_engine *engine);
/* transfers.c. Before an instruction is executed: a transfer is under way, what is received
 * has come, and transfers that nothing stands in the way of begin. */
void shoali_transfers_begin(struct shoal_engine *engine, const struct shoali_execution *execution);
SHOAL_CHECKED shoal_status shoali_transfers_reach(struct shoal_engine *engine,
                                                  const struct shoali_execution *execution,
                                                  const struct shoali_instruction *one);
/* All are over, or given up after a failure. Returns `status`, or how a transfer has failed. */
SHOAL_CHECKED shoal_status shoali_transfers_end(struct shoal_engine *engine, shoal_status status);
/* The groups, collective; the lanes, when slots and buffers are there. */
SHOAL_CHECKED shoal_status shoali_transfers_split(struct shoal_engine *engine);
SHOAL_CHECKED shoal_status shoali_transfers_init(struct shoal_engine *engine);
void shoali_transfers_fini(struct shoal_engine *engine);
bool shoali_crossing_travels(const struct shoali_crossing *crossing, bool gradients);
char *shoali_stages_buffer(const struct shoal_engine *engine, int32_t buffer);

/* micro.c: what came from the stage before, as inputs of the slot's tape; the layers of a chunk;
 * their gradients. Of a run without memory: `buffer` is not written. */
SHOAL_CHECKED shoal_status shoali_chunk_add_inputs(struct shoali_micro *micro,
                                                   const struct shoali_chunk *chunk,
                                                   int64_t first_sample);
SHOAL_CHECKED shoal_status shoali_chunk_forward(struct shoal_engine *engine,
                                                struct shoali_micro *micro,
                                                const struct shoali_chunk *chunk);
SHOAL_CHECKED shoal_status shoali_chunk_backward(struct shoali_micro *micro,
                                                 const struct shoali_chunk *chunk, double seed,
                                                 char *buffer, bool defer_weight);

/* unused.c: at a step's begin; after its reduction, an error unless they are allowed. */
void shoali_engine_reset_unused(struct shoal_engine *engine);
SHOAL_CHECKED shoal_status shoali_engine_check_unused(struct shoal_engine *engine);

/* Lines, CSV and JSON events of the step in engine->step.info; rank 0 does something. */
SHOAL_CHECKED shoal_status shoali_engine_report_step(struct shoal_engine *engine);
/* profile.c: a step is over, in a run that is an experiment of autotuning. */
SHOAL_CHECKED shoal_status shoali_engine_profile_step(struct shoal_engine *engine);

/* With the key `hashes`: the weights before the first step of a run; what a step made of
 * everything, before global_steps is increased. Collective. */
SHOAL_CHECKED shoal_status shoali_engine_hash_start(struct shoal_engine *engine);
SHOAL_CHECKED shoal_status shoali_engine_hash_step(struct shoal_engine *engine);

#endif
