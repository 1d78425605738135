/* autotuning - which layout is fastest: arithmetic over what one layer of each kind costs. Level
 * L9.
 *
 *   settings.c   the configuration and the arguments, read once; the same with another layout
 *   layers.c     what each layer costs: an engine without memory, watched
 *   stages.c     layers to stages: durations, memory, the schedule's timeline
 *   draw.c       shoal_layout_draw
 *   traffic.c    ZeRO's memory and messages by formulas
 *   network.c    what a collective takes, by algorithm (network.h)
 *   search.c     all layouts, the best of them (search.h)
 *   shape.c      one cut with one schedule
 *   predict.c    the step of the one layout that the arguments say
 *   verify.c     real plans of the best
 *   cluster.c    rates by name
 *
 * COSTS of a layer are those of one rank and one micro-batch. Layers of the same table and the same
 * configuration are of one kind and cost the same, so a model of one layer of each kind is run, not
 * the whole: what 96 layers cost is known after three.
 *
 *   kept    bytes of the slot that its forward leaves for its backward
 *   work    beyond what it and those before it keep: the most that its forward or backward uses
 *   of a stage's slot: max over its layers l of (kept of all up to l) + work(l)
 *   deferred  what the first part of its backward leaves for the second, which is of weights
 *
 * TIME of a computation is that of its products at the rate of arithmetic, and of everything else
 * at the rate of memory; a backward reads and writes twice what a forward does, and adds to the
 * gradients of all weights. Messages of tensor parallelism belong to the computation that waits for
 * them. Of a backward's two parts, that of weights takes half of each product's FLOPs.
 *
 * STEP of a rank: the timeline of the pipeline with the messages of tp and pp in it; then those of
 * dp that nothing hides; then the update.
 */
#ifndef SHOALI_AUTOTUNING_H
#define SHOALI_AUTOTUNING_H

#include "autotuning/network.h"
#include "engine/engine.h"
#include "shoal/autotuning.h"

/* ---- settings ------------------------------------------------------------------------------- */

struct shoali_settings {
    shoal_engine_args engine; /* borrowed members */
    shoal_plan_args plan;
    struct shoali_ds_config config;
    struct json_t *root; /* the configuration as it is written; borrowed from config.document */
};
SHOAL_CHECKED shoal_status shoali_settings_init(struct shoali_settings *settings,
                                                const shoal_engine_args *engine,
                                                const shoal_plan_args *plan);
void shoali_settings_fini(struct shoali_settings *settings);
/* The configuration with another stage (< 0: as it is) and other batch sizes; *text is owned by the
 * caller: free(). */
SHOAL_CHECKED shoal_status shoali_settings_write(const struct shoali_settings *settings,
                                                 int32_t stage,
                                                 const struct shoali_batch_sizes *batch,
                                                 char **text);

/* ---- layers --------------------------------------------------------------------------------- */

struct shoali_layer_cost {
    const char *type;
    int64_t parameters;       /* of this rank, tied ones where they are declared first */
    int64_t whole_parameters; /* of all ranks along tp */
    int64_t tied_parameters;  /* second uses */
    double weight;            /* of the cut: what it trains, tied parameters at each use */
    double flops_forward, flops_backward, flops_weight, flops_replay;
    double bytes; /* read and written by a forward, but in products */
    struct shoali_sent tensor_forward, tensor_backward; /* along tp; replay: in backward */
    int64_t kept_bytes, work_bytes, boundary_bytes;
    int64_t deferred_bytes, deferred_work_bytes; /* the same where weight gradients come later */
};
struct shoali_costs {
    struct shoali_layer_cost *layer; /* of the whole model, in the arena */
    int32_t layer_count;
    int64_t inputs_bytes;                        /* of the slot: the batch */
    int64_t parameters;                          /* of the whole model */
    int32_t tensor;                              /* ranks along tp */
    double weight_bytes, gradient_bytes, states; /* of an element; states: numbers */
    double reused; /* elements that stage 3 keeps from one use to the next (zero/fetch.h) */
    bool overlaps;
};
struct shoali_costs_args {
    int32_t tensor;
    int64_t micro_batch;
    bool sequence_parallel;
    const char *recompute; /* granularity; with `as_given` the engine's arguments count */
    bool as_given;
};
/* Statuses of shoal_engine_create: what cannot be trained so. */
SHOAL_CHECKED shoal_status shoali_costs_make(const struct shoali_settings *settings,
                                             const struct shoali_costs_args *args,
                                             struct shoali_arena *arena,
                                             struct shoali_costs *costs);

/* ---- stages --------------------------------------------------------------------------------- */

/* What messages and computations of a layout take: per second; 0: not known, costs nothing. */
struct shoali_speeds {
    double flops, memory;
    struct shoali_network network;
    struct shoali_network_place tensor, pipeline, data; /* groups along tp, pp, dp */
};
/* SHOAL_EINVAL as shoali_network_of. */
SHOAL_CHECKED shoal_status shoali_speeds_of(const shoal_plan_rates *rates, const shoal_mesh *mesh,
                                            struct shoali_speeds *speeds);

struct shoali_virtual_stages_args {
    const struct shoali_costs *costs;
    const struct shoali_pipeline_args *pipeline; /* complete */
    const struct shoali_speeds *speeds;          /* NULL: durations in FLOPs */
    const struct shoali_settings *settings;      /* how layers are cut */
    int32_t *begin;                              /* ... already; NULL: not yet */
};
/* By virtual stage; memory from the arena. */
struct shoali_virtual_stages {
    int32_t count;
    int32_t *begin; /* [count + 1], its first layer */
    double *forward, *backward_input, *backward_weight;
    double *exposed, *hidden; /* of a micro-batch: time of messages along tp, in the above or not */
    struct shoali_durations durations;
};
/* Where virtual stages begin: [stages * chunks + 1], by the settings. Statuses as
 * shoali_partition_make. */
SHOAL_CHECKED shoal_status shoali_virtual_stages_partition(
    const struct shoali_virtual_stages_args *args, struct shoali_arena *arena, int32_t **begin);
SHOAL_CHECKED shoal_status shoali_virtual_stages_make(const struct shoali_virtual_stages_args *args,
                                                      struct shoali_arena *arena,
                                                      struct shoali_virtual_stages *stages);
/* What the slot of a virtual stage needs; deferred: its weight gradients come later (zb-h1). */
int64_t shoali_virtual_stages_slot_bytes(const struct shoali_costs *costs,
                                         const struct shoali_virtual_stages *stages,
                                         int32_t virtual_stage, bool deferred);
/* Micro-batches of one chunk that a stage has in flight at most, as published. */
int32_t shoali_virtual_stages_in_flight(const struct shoali_pipeline_args *pipeline, int32_t stage);
/* The pipeline that the engine's arguments ask for; micro_batches of a step. SHOAL_EINVAL as
 * shoali_pipeline_complete. */
SHOAL_CHECKED shoal_status shoali_virtual_stages_pipeline(const struct shoali_settings *settings,
                                                          int64_t micro_batches,
                                                          struct shoali_pipeline_args *pipeline);

/* ---- zero ----------------------------------------------------------------------------------- */

/* A rank's parameters under ZeRO, by the formulas of zero.h. */
struct shoali_state {
    int64_t parameters, largest_layer; /* elements that this rank holds of the model */
    int32_t data, stage;               /* ranks along dp; ZeRO's stage */
    int64_t micro_batches;
};
/* Weights, gradients, masters, states, live units. */
double shoali_state_bytes(const struct shoali_costs *costs, const struct shoali_state *state);
/* Seconds of messages along dp in a step: gathers before the first forward (stages 1 and 2), what
 * can run beside the backward of the last micro-batch, beside each backward, beside all
 * computation. */
struct shoali_state_time {
    double gathers, last_backward, backwards, all;
};
void shoali_state_messages(const struct shoali_costs *costs, const struct shoali_state *state,
                           const struct shoali_speeds *speeds, struct shoali_state_time *time);
/* Of the update. */
double shoali_state_update(const struct shoali_costs *costs, const struct shoali_state *state,
                           const struct shoali_speeds *speeds);

/* ---- search --------------------------------------------------------------------------------- */

/* Plans the ranks of a layout that need most: the first along tp, whose pieces are the largest, of
 * the first, the last and `worst` stage; and writes what they need. Errors: it cannot be made. */
SHOAL_CHECKED shoal_status shoali_verify(const struct shoali_settings *settings,
                                         const shoal_plan_limit *limit, int32_t worst,
                                         shoal_layout *layout, shoal_plan_verdict *verdict);

#endif
