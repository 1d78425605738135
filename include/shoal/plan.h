/* plan.h - what a run will need, without running it.
 *
 *   shoal_plan_make(&engine_args, &(shoal_plan_args){.world_size = 1024}, &plan);
 *   shoal_plan_get_limit(NULL, ranks_of_this_machine, &limit);
 *   shoal_plan_judge(&plan, &limit, &verdict);
 *   if (verdict.missing_bytes > 0) ...
 *
 * A plan is no formula. An engine is made as for training, on a device whose memory has addresses
 * but no bytes and in a group whose other ranks do not exist, and takes one step in which nothing
 * is computed. What it allocated and sent is the plan; so it follows every option, and the run's
 * own counters agree with it. It needs neither the model's memory nor other ranks, and takes
 * milliseconds for any number of them. All ranks hold parts of equal, padded size, so one rank's
 * plan is every rank's; only the elements that it updates may be fewer on the last ones.
 *
 * Not counted: the program itself, thread stacks and the layout's tables. Data takes what the
 * loader keeps ready and a tokenizer: tokens are read from a file (data.h).
 */
#ifndef SHOAL_PLAN_H
#define SHOAL_PLAN_H

#include "shoal/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_plan_args {
    int32_t rank, world_size; /* world_size 0: 1 */
    bool prefetches;          /* with a loader that prefetches (data.h) */
    int64_t dataset_bytes;    /* with one: shoal_dataset_host_bytes */
    /* For suggestions, optional: the same training with less memory and more work, and what the
     * user writes to have it, e.g. a GPT with cross_entropy_loss_fusion. Borrowed. */
    const shoal_model *lean_model;
    const char *lean_model_flag;
    /* The mesh of these ranks (mesh.h); 0: 1, all 0: as the configuration says. What is left is along
     * dp. */
    int32_t tensor, context, expert, pipeline, expert_tensor;
    const char *order; /* NULL: "tp-cp-ep-dp-pp" */
    /* Ranks that share the cores of a machine like this one, unless the number of threads is given;
     * 0: all. */
    int32_t ranks_per_machine;
} shoal_plan_args;

/* What one kind of collective sends in an optimizer step: elements as in a ring, e.g. all_reduce
 * 2 * count * (N-1)/N (comm.h's counters). */
typedef struct shoal_plan_traffic {
    const char *name;
    int64_t calls, elements, bytes;
} shoal_plan_traffic;
#define SHOAL_PLAN_TRAFFIC 16

/* Everything of one rank, per optimizer step where it is about work. */
typedef struct shoal_plan {
    int32_t rank, world_size, stage; /* the configuration's stage */
    int64_t train_batch, micro_batch, accumulation;
    int64_t parameters, largest_layer; /* elements: all, of the layer that uses most */
    int64_t live_parameters;           /* stage 3: gathered at once, at most */
    int64_t updated_parameters;        /* by this rank's optimizer */

    /* device memory */
    int64_t weights_bytes, gradients_bytes, master_bytes, states_bytes;
    int64_t packed_weights_bytes; /* weights in the layout that products read, too */
    int64_t activations_bytes;    /* the tape's slot: activations, their gradients, workspaces */
    int64_t buffers_bytes;        /* zero: gathered units, sums under way, conversions */
    int64_t other_bytes;          /* scalars, flags */
    int64_t device_bytes;         /* sum: the peak */
    /* host memory */
    int64_t pinned_bytes;     /* staging of batches, collectives and records */
    int64_t comm_bytes;       /* control memory and bounce areas of groups in one machine */
    int64_t data_bytes;       /* batches kept ready and in use, the tokenizer */
    int64_t host_state_bytes; /* offloaded weights, states and their buffers */
    int64_t checkpoint_bytes; /* of saves, with `saves` of the engine's arguments */
    int64_t host_bytes;       /* sum, with workspace_bytes below */
    int64_t nvme_bytes;       /* files of offloaded states and weights */
    int64_t shared_bytes;     /* of device_bytes: in memory that all ranks of the machine map */

    shoal_plan_traffic traffic[SHOAL_PLAN_TRAFFIC]; /* those with calls */
    int32_t traffic_count;
    int64_t sent_elements, sent_bytes; /* as all below: INT64_MAX when 64 bits do not hold it */

    int64_t flops_forward, flops_backward, flops_replay; /* replay: forward again by recompute */
    int64_t kernel_bytes; /* read and written by forward, backward and replay */
    int64_t update_bytes; /* read and written by the optimizer */
    bool overlaps;        /* communication runs beside the computation */

    /* the mesh: sizes, and where this rank is */
    int32_t tensor_ranks, pipeline_stages, data_ranks;
    int32_t tensor_rank, pipeline_stage, data_rank;
    int32_t in_flight; /* micro-batches whose activations are alive at once, at most */

    /* Of host_bytes: what kernels work in, of all threads of the rank. It follows from this machine's
     * kernels and from the number of threads; where sizes depend on data (shoal_select_rows) it is that
     * of no rows. */
    int64_t workspace_bytes;
} shoal_plan;

/* Plans one rank of a training with the arguments of shoal_engine_create, whose `group` is not
 * used. SHOAL_ECONFIG and SHOAL_EINVAL as there. Not collective. Cost: some milliseconds and a few
 * MB for any model; proportional to layers and to the messages of a step. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_plan_make(const shoal_engine_args *engine,
                                                        const shoal_plan_args *args,
                                                        shoal_plan *plan);

/* What a rank may use. INT64_MAX: no limit. */
typedef struct shoal_plan_limit {
    int64_t device_bytes, host_bytes;
    bool device_is_host; /* device memory is host memory, and the two needs add up */
    /* Limits of the process itself: private memory, and addresses (with all ranks' shared memory)
     */
    int64_t data_bytes, address_space_bytes;
    const char *device_name; /* of device_bytes in messages, static */
} shoal_plan_limit;
/* This machine's: of the accelerator (NULL: as an engine chooses), and what is free of the host's
 * memory, divided by the ranks that share it. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_plan_get_limit(const char *accelerator,
                                                             int32_t ranks_per_machine,
                                                             shoal_plan_limit *limit);
/* A limit given by hand: of device memory. */
SHOAL_INLINE void shoal_plan_set_limit(int64_t bytes, shoal_plan_limit *limit);

/* The tightest kind of memory. */
typedef struct shoal_plan_verdict {
    int64_t need_bytes, have_bytes;
    int64_t missing_bytes; /* need - have: <= 0 it fits */
    const char *what;      /* "its share of this machine's free memory"; static */
} shoal_plan_verdict;
SHOAL_INLINE void shoal_plan_judge(const shoal_plan *plan, const shoal_plan_limit *limit,
                                   shoal_plan_verdict *verdict);

/* Plans alternatives in the order of what they cost (higher stages, the lean model, recompute,
 * smaller micro-batches, offload, all of them, more ranks) and gives the first that fits; when
 * nothing does, the one that needs least: shoal_plan_judge tells. `change` receives what it is, in
 * the user's words ("zero_optimization.stage 3, --recompute-granularity full"), cut to `bytes`.
 * SHOAL_END: there is no alternative at all. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_plan_suggest(const shoal_engine_args *engine,
                                                           const shoal_plan_args *args,
                                                           const shoal_plan_limit *limit,
                                                           shoal_plan *plan, char *change,
                                                           size_t bytes);

/* Seconds of a step on given hardware. */
typedef struct shoal_plan_rates {
    double flops, memory_bytes,
        network_bytes;      /* per second and rank; 0: not known, costs nothing */
    double node_bytes;      /* what a rank sends to ranks of its own machine; 0: as network_bytes */
    double latency_s;       /* of a message */
    int32_t ranks_per_node; /* 0: all ranks are in one machine */
    /* The network, for what predicts a step from single messages (autotuning.h): */
    double node_latency_s; /* of a message within a machine; 0: latency_s */
    double link_bytes; /* per second of one link out of a machine; 0: network_bytes for each rank */
    int32_t links_per_node; /* that its ranks share; 0: each rank has one of its own */
    /* "best" (NULL), "ring", "doubling", "tree", "rabenseifner", "two_level", "direct" */
    const char *collective_algorithm;
} shoal_plan_rates;
typedef struct shoal_plan_time {
    double compute_s; /* the larger of FLOPs and bytes of kernels */
    double network_s, update_s;
    double step_s; /* with overlap the longer of the first two, else their sum; and the update */
} shoal_plan_time;
SHOAL_INLINE void shoal_plan_get_time(const shoal_plan *plan, const shoal_plan_rates *rates,
                                      shoal_plan_time *time);

/* The plan as a JSON object on one line. *json is owned by the caller: free(). */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_plan_to_json(const shoal_plan *plan, char **json);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_plan_make_sized(const shoal_engine_args *engine,
                                                           size_t engine_size,
                                                           const shoal_plan_args *args,
                                                           size_t args_size, shoal_plan *plan,
                                                           size_t plan_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_plan_get_limit_sized(const char *accelerator,
                                                                int32_t ranks_per_machine,
                                                                shoal_plan_limit *limit,
                                                                size_t limit_size);
SHOAL_API void shoal_plan_set_limit_sized(int64_t bytes, shoal_plan_limit *limit,
                                          size_t limit_size);
SHOAL_API void shoal_plan_judge_sized(const shoal_plan *plan, size_t plan_size,
                                      const shoal_plan_limit *limit, size_t limit_size,
                                      shoal_plan_verdict *verdict, size_t verdict_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_plan_suggest_sized(
    const shoal_engine_args *engine, size_t engine_size, const shoal_plan_args *args,
    size_t args_size, const shoal_plan_limit *limit, size_t limit_size, shoal_plan *plan,
    size_t plan_size, char *change, size_t bytes);
SHOAL_API void shoal_plan_get_time_sized(const shoal_plan *plan, size_t plan_size,
                                         const shoal_plan_rates *rates, size_t rates_size,
                                         shoal_plan_time *time, size_t time_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_plan_to_json_sized(const shoal_plan *plan,
                                                              size_t plan_size, char **json);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_plan_make(const shoal_engine_args *engine,
                                                        const shoal_plan_args *args,
                                                        shoal_plan *plan)
{
    return shoal_plan_make_sized(engine, sizeof *engine, args, sizeof *args, plan, sizeof *plan);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_plan_get_limit(const char *accelerator,
                                                             int32_t ranks_per_machine,
                                                             shoal_plan_limit *limit)
{
    return shoal_plan_get_limit_sized(accelerator, ranks_per_machine, limit, sizeof *limit);
}
SHOAL_INLINE void shoal_plan_set_limit(int64_t bytes, shoal_plan_limit *limit)
{
    shoal_plan_set_limit_sized(bytes, limit, sizeof *limit);
}
SHOAL_INLINE void shoal_plan_judge(const shoal_plan *plan, const shoal_plan_limit *limit,
                                   shoal_plan_verdict *verdict)
{
    shoal_plan_judge_sized(plan, sizeof *plan, limit, sizeof *limit, verdict, sizeof *verdict);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_plan_suggest(const shoal_engine_args *engine,
                                                           const shoal_plan_args *args,
                                                           const shoal_plan_limit *limit,
                                                           shoal_plan *plan, char *change,
                                                           size_t bytes)
{
    return shoal_plan_suggest_sized(engine, sizeof *engine, args, sizeof *args, limit,
                                    sizeof *limit, plan, sizeof *plan, change, bytes);
}
SHOAL_INLINE void shoal_plan_get_time(const shoal_plan *plan, const shoal_plan_rates *rates,
                                      shoal_plan_time *time)
{
    shoal_plan_get_time_sized(plan, sizeof *plan, rates, sizeof *rates, time, sizeof *time);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_plan_to_json(const shoal_plan *plan, char **json)
{
    return shoal_plan_to_json_sized(plan, sizeof *plan, json);
}

#ifdef __cplusplus
}
#endif
#endif
