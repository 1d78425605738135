/* engine - the object behind shoal/engine.h: composes all lower folders. Level L8.
 *
 *   engine.c             create, destroy: configuration -> mesh -> devices -> module -> plan of a
 *                        slot -> zero
 *   engine_train.c       forward, backward, step, train_batch
 *   engine_execute.c     a list of instructions, run
 *   engine_batch.c       a batch that changes
 *   engine_eval.c        eval_batch
 *   micro.c              a micro-batch in flight: load, forward, backward
 *   engine_stages.c      a pipeline: layers, boundaries, groups and memory of this rank (stages.h)
 *   engine_pipeline.c    and what its instructions do
 *   engine_blocks.c      who shares which block of a parameter, by the mesh
 *   engine_describe.c    the mesh as people read it
 *   engine_access.c      getters, parameters, fingerprint
 *   engine_checkpoint.c  save and load through checkpoint/
 *   engine_tensors.c     what a checkpoint has of this rank
 *   engine_save.c        saves beside the training
 *   engine_hashes.c      fingerprints of a step
 *   engine_unused.c      parameters that a step gave no gradient
 *   engine_groups.c      which parameter is updated by which values
 *   engine_report.c      lines and monitor events of a step
 *   plan*.c              an engine without memory steps; what it counted is the plan
 *   config*.c            ds_config.json
 *
 * Order of a step (rank r, gas micro-batches):
 *   for i in 0..gas-1:  load (coordinates of global micro-batch first+i), forward, backward
 *   zero_reduce -> verdict -> scaler -> zero_step (unless overflow) -> schedule
 * It is a list of instructions (pipeline_parallel/), made at creation. The scaler is updated after
 * the verdict, but gradients are unscaled with the scale they were made with. global_steps counts
 * every step, applied_steps those that changed weights; the schedule and Adam's t follow the
 * applied ones. Only what comes from elsewhere may have Adam's t ahead of the schedule:
 * optimizer_ahead.
 *
 * The slot's size comes from a meta run of the same forward and backward at create, so the first
 * step allocates what the last does.
 */
#ifndef SHOALI_ENGINE_H
#define SHOALI_ENGINE_H

#include "activation_checkpointing/activation_checkpointing.h"
#include "checkpoint/checkpoint.h"
#include "engine/config.h"
#include "engine/micro.h"
#include "engine/stages.h"
#include "pipeline_parallel/pipeline_parallel.h"
#include "shoal/engine.h"
#include "shoal/mesh.h"
#include "shoal/monitor.h"
#include "shoal/plan.h"
#include "zero/zero.h"

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

enum { SHOALI_ENGINE_FILES = 16, SHOALI_ENGINE_CUTS = 3 };

struct shoal_engine {
    struct shoali_ds_config config;
    struct shoali_batch_sizes batch, largest; /* of a step now; as the engine was created */
    struct shoali_optimizer optimizer;        /* of the parameters in no group */
    struct shoali_param_groups param_groups;
    struct shoali_param_about *param_about; /* [params] what made the groups; the config's arena */
    struct shoali_schedule schedule;
    struct shoali_loss_scaler scaler;
    const shoal_model *model;
    shoal_mesh *mesh;        /* borrowed, or own_mesh: all ranks along dp */
    shoal_mesh *own_mesh;    /* NULL: the caller's */
    shoal_group *group;      /* all ranks of the mesh; borrowed; NULL: one rank */
    int32_t rank, world;     /* in it: who speaks, and names in messages */
    shoal_group *data_group; /* of the ranks that share weights and divide samples; NULL: one */
    /* Where ranks that hold the same of a parameter are others: -1 for those split along ep, else
     * how many neighbours along tp belong to them; and the groups. */
    shoal_group *cuts[SHOALI_ENGINE_CUTS];
    int32_t cut_sharers[SHOALI_ENGINE_CUTS];
    struct shoali_engine_stages stages;
    shoal_group *sharers; /* owned; NULL: no such, or all of tp */
    struct shoali_tensor_parallel tensor_parallel;
    shoal_axes admitted;       /* axes other than dp; see shoali_engine_making */
    int32_t ranks_per_machine; /* of a plan, or 0 */
    int32_t data_rank, data_ranks;
    bool loss_elsewhere; /* another rank computes the same losses, and adds them */
    bool inference, blank_weights;
    bool meta; /* in a plan: accelerator/meta, comm/meta; nothing is computed, printed or written */
    uint64_t seed;

    struct shoali_pool *pool;
    struct shoali_device *device;
    struct shoali_ops ops;
    struct shoali_exec exec;
    struct shoali_module module;
    struct shoali_micro *micro; /* in flight, by slot */
    int32_t micro_count;
    /* One per input of the model: what a source fills, and the tape's tensors of them. */
    const void **batch_arrays;
    struct shoal_tensor **batch_inputs;
    struct shoali_instructions train_list, eval_list; /* of a step; of one micro-batch */
    struct shoali_step_list *step_list;               /* owned; of batches that were set */
    int32_t step_list_count;
    void *packed_weights; /* device; NULL: none */
    size_t packed_weights_bytes;
    struct shoali_micro_cost micro_cost;
    struct shoali_recompute recompute;
    struct shoali_observer observers[3]; /* fetch before recompute */
    const struct shoali_observer *watch; /* borrowed; NULL: none */
    struct shoali_zero *zero;
    struct shoali_comms_log *comms_log; /* NULL: not asked for */
    shoal_monitor *monitor;
    char *output_path; /* owned; "": the current folder */
    bool override_existing_checkpoint;
    void *save_buffer; /* NULL: not, or in a plan */
    int64_t save_buffer_bytes;
    struct shoali_engine_saver *saver; /* NULL: saves are made at once, or there was none yet */
    shoal_save_info save_info;
    struct shoali_checkpoint_companion file[SHOALI_ENGINE_FILES]; /* of each save; owned */
    int32_t file_count;

    int64_t
        micros_done; /* backward passes of this step: micro-batches, in a pipeline of each chunk */
    int64_t global_steps, applied_steps, skipped_in_a_row, optimizer_ahead;
    /* Samples that steps had less than the largest batch has: all steps, and those that changed
     * weights. */
    int64_t samples_behind, applied_samples_behind;
    bool stop;
    volatile sig_atomic_t stop_asked, save_asked; /* on this rank */
    bool save_requested;                          /* on some rank, since the last save */
    shoal_step_info info;
    double forward_ns, backward_ns; /* of the current step */
    int64_t step_begin_ns;
    struct {
        int64_t steps; /* of this run */
        double ms;     /* of those that count */
    } timed;           /* the throughput timer */
    struct {
        int64_t steps, counted; /* of this run; of them those that are measured */
        double ms, forward_ms, backward_ms, update_ms;
    } profile; /* with autotuning.enabled */
};

/* Frees what shoal_engine_add_file copied. */
void shoali_engine_drop_files(struct shoal_engine *engine);
/* engine_deepspeed.c: what shoal_engine_load_checkpoint and shoal_checkpoint_peek do with a folder of
 * DeepSpeed's (formats/deepspeed.h). */
SHOAL_CHECKED shoal_status shoali_engine_load_deepspeed(struct shoal_engine *engine,
                                                        const shoal_load_args *how);
SHOAL_CHECKED shoal_status shoali_engine_peek_deepspeed(const char *dir, const char *tag,
                                                        int64_t *step);

/* Refuses `what` in the middle of a step; otherwise drops a forward that had no backward. */
SHOAL_CHECKED shoal_status shoali_engine_between_steps(struct shoal_engine *engine,
                                                       const char *what);

/* engine_micros.c: what a micro-batch takes (micro_cost), by a pass without memory; before them. */
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
/* engine_batch.c: the next update's learning rate; a step of the batch of now is over. */
double shoali_engine_lr(const struct shoal_engine *engine);
void shoali_engine_count_samples(struct shoal_engine *engine, bool applied);

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
/* engine_train.c: a training micro-batch of a global number onto a slot; backward of its loss; the
 * end of a step. */
SHOAL_CHECKED shoal_status shoali_engine_load(struct shoal_engine *engine,
                                              struct shoali_micro *micro, const shoal_batch *batch,
                                              int64_t number);
SHOAL_CHECKED shoal_status shoali_engine_backward(struct shoal_engine *engine,
                                                  struct shoali_micro *micro);
SHOAL_CHECKED shoal_status shoali_engine_finish_step(struct shoal_engine *engine);
/* Asks the source for micro-batch `number`. */
/* engine_comms.c; close comes after everything that posts */
SHOAL_CHECKED shoal_status shoali_engine_comms_open(struct shoal_engine *engine);
void shoali_engine_comms_close(struct shoal_engine *engine);
SHOAL_CHECKED shoal_status shoali_engine_ask(struct shoal_engine *engine,
                                             const struct shoali_execution *execution,
                                             int64_t number, shoal_batch *batch);
/* engine_stages.c. With the mesh: how many stages, which schedule. When the model's parameters are
 * declared: the cut, what crosses it; from then on the module has nothing of other stages.
 * Collective. */
SHOAL_CHECKED shoal_status shoali_stages_init(struct shoal_engine *engine,
                                              const shoal_engine_args *args);
SHOAL_CHECKED shoal_status shoali_stages_cut(struct shoal_engine *engine,
                                             const shoal_engine_args *args);
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
/* engine_transfers.c. Before an instruction is executed: a transfer is under way, what is received has
 * come, and transfers that nothing stands in the way of begin. */
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
/* engine_pipeline.c: one instruction. */
SHOAL_CHECKED shoal_status shoali_pipeline_execute(struct shoal_engine *engine,
                                                   const struct shoali_execution *execution,
                                                   const struct shoali_instruction *one,
                                                   shoal_batch *batch);
/* What came from the stage before, as inputs of the slot's tape; the layers of a chunk; their
 * gradients. Of a run without memory: `buffer` is not written. */
SHOAL_CHECKED shoal_status shoali_chunk_add_inputs(struct shoali_micro *micro,
                                                   const struct shoali_chunk *chunk,
                                                   int64_t first_sample);
SHOAL_CHECKED shoal_status shoali_chunk_forward(struct shoal_engine *engine,
                                                struct shoali_micro *micro,
                                                const struct shoali_chunk *chunk);
SHOAL_CHECKED shoal_status shoali_chunk_backward(struct shoali_micro *micro,
                                                 const struct shoali_chunk *chunk, double seed,
                                                 char *buffer, bool defer_weight);
/* Arguments of a program, which may have been compiled with other headers. */
SHOAL_CHECKED shoal_status shoali_engine_read_args(const shoal_engine_args *args, size_t args_size,
                                                   shoal_engine_args *own);
SHOAL_CHECKED shoal_status shoali_plan_read_args(const shoal_plan_args *args, size_t args_size,
                                                 shoal_plan_args *own);
/* plan.c: what all groups of the engine sent so far: ZeRO's, the pipeline's, that of all ranks. */
SHOAL_CHECKED shoal_status shoali_engine_counters(struct shoal_engine *engine,
                                                  struct shoali_comm_counters *counters);
/* The mesh of a plan's ranks, over `group` or, NULL, arithmetic alone. *mesh is owned. */
SHOAL_CHECKED shoal_status shoali_plan_mesh(const shoal_plan_args *args, shoal_group *group,
                                            shoal_mesh **mesh);
/* What shoal_engine_create leaves zero. */
struct shoali_engine_making {
    bool meta;                 /* for a plan: args->group is from shoali_comm_create_meta or NULL */
    int32_t ranks_per_machine; /* of a plan: they share the cores; 0: all ranks */
    /* Axes other than dp and tp of which the mesh may have ranks. They cut parameters; but as no
     * layer computes with a part yet, their ranks compute the same micro-batches (those along ep, which are
     * along dp, too, their own). For tests, with layers that gather what they compute with. */
    shoal_axes admitted;
    /* Of all tapes, before the others: sees what each layer costs. Borrowed until destroy. */
    const struct shoali_observer *watch;
};
SHOAL_CHECKED shoal_status shoali_engine_make(const shoal_engine_args *args,
                                              const struct shoali_engine_making *making,
                                              shoal_engine **engine);
/* engine_blocks.c: before the configuration is read; when the model's parameters are declared;
 * filling in group, everyone, cuts and what is counted elsewhere. Collective. SHOAL_EUNSUPPORTED:
 * the mesh divides what the engine cannot. */
SHOAL_CHECKED shoal_status shoali_engine_open_mesh(struct shoal_engine *engine,
                                                   const shoal_engine_args *args);
SHOAL_CHECKED shoal_status shoali_engine_declare(struct shoal_engine *engine, shoal_dtype dtype);
SHOAL_CHECKED shoal_status shoali_engine_share_blocks(struct shoal_engine *engine,
                                                      struct shoali_zero_args *args);
/* engine_checkpoint.c: what a save needs, now. In a plan it is only counted. */
SHOAL_CHECKED shoal_status shoali_engine_prepare_saves(struct shoal_engine *engine);
/* engine_unused.c: at a step's begin; after its reduction, an error unless they are allowed. */
void shoali_engine_forget_touched(struct shoal_engine *engine);
SHOAL_CHECKED shoal_status shoali_engine_check_unused(struct shoal_engine *engine);
/* engine_access.c: of the numbers that a parameter has in a kind which is not per element, those
 * that this rank counts in hashes: [begin, begin + count) of the kind's flat space; `at`: where they
 * are in that of a rank which holds everything. *whole: where the parameter's are there, then the
 * next one's. */
struct shoali_zero_range shoali_engine_small_slice(const struct shoal_engine *engine, int32_t kind,
                                                   int32_t param, int64_t *whole);
/* Fills param_groups; for inference nothing. */
SHOAL_CHECKED shoal_status shoali_engine_make_groups(struct shoal_engine *engine);
/* Lines, CSV and JSON events of the step in engine->info; rank 0 does something. */
SHOAL_CHECKED shoal_status shoali_engine_report_step(struct shoal_engine *engine);
/* engine_profile.c: a step is over, in a run that is an experiment of autotuning. */
SHOAL_CHECKED shoal_status shoali_engine_profile_step(struct shoal_engine *engine);

/* With the key `hashes`: the weights before the first step of a run; what a step made of
 * everything, before global_steps is increased. Collective. */
SHOAL_CHECKED shoal_status shoali_engine_hash_start(struct shoal_engine *engine);
SHOAL_CHECKED shoal_status shoali_engine_hash_step(struct shoal_engine *engine);

#endif
