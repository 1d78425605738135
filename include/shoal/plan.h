/* plan.h - plans memory, traffic and work of a run without running it.
 *
 *   shoal_plan_make(&engine_args, &(shoal_plan_args){.world_size = 1024}, &plan);
 *   shoal_plan_get_limit(NULL, ranks_of_this_machine, &limit);
 *   shoal_plan_check(&plan, &limit, &verdict);
 *   if (verdict.missing_bytes > 0) ...
 *
 * Terms
 *   plan     the bytes, messages and FLOPs of one rank.
 *   limit    the memory that a rank may use.
 *   verdict  the memory that a plan lacks under a limit.
 *
 * Invariants
 * - A plan is not a formula. An engine is created as for training, on a device without memory and
 *   in a group without other ranks. It runs one step that computes nothing. The plan is what it
 *   allocated and sent, so it follows every option and agrees with the counters of a run.
 * - A plan needs neither the model's memory nor other ranks. It takes milliseconds for any number
 *   of ranks.
 * - All ranks hold shards of equal, padded size, so one rank's plan holds for every rank. Only
 *   updated_parameters may be smaller on the last ranks.
 * - Not included: the program itself, thread stacks and the layout's tables. Data takes what the
 *   loader keeps ready and a tokenizer, because tokens are read from a file (data.h).
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
    /* Optional, for suggestions: the same training with less memory and more work, and the flag
     * that selects it, e.g. a GPT with cross_entropy_loss_fusion. Borrowed. */
    const shoal_model *lean_model;
    const char *lean_model_flag;
    /* The mesh of these ranks (mesh.h). 0: 1; all 0: from the configuration. The remaining factor
     * is dp. */
    int32_t tensor, context, expert, pipeline, expert_tensor;
    const char *order; /* NULL: "tp-cp-ep-dp-pp" */
    /* Ranks that share the cores of a machine like this one. Used unless the number of threads is
     * given. 0: all ranks. */
    int32_t ranks_per_machine;
} shoal_plan_args;

/* Traffic of one kind of collective in an optimizer step. Elements are counted as in a ring, e.g.
 * all_reduce 2 * count * (N-1)/N (comm.h's counters). */
typedef struct shoal_plan_traffic {
    const char *name;
    int64_t calls, elements, bytes;
} shoal_plan_traffic;
#define SHOAL_PLAN_TRAFFIC 16

/* The plan of one rank. Work is per optimizer step. */
typedef struct shoal_plan {
    int32_t rank, world_size, stage; /* the configuration's ZeRO stage */
    int64_t train_batch, micro_batch, accumulation;
    int64_t parameters, largest_layer; /* elements: of the model, of the layer that uses most */
    int64_t live_parameters;           /* stage 3: most that are gathered at once */
    int64_t updated_parameters;        /* by this rank's optimizer */

    /* device memory */
    int64_t weights_bytes, gradients_bytes, master_bytes, states_bytes;
    int64_t packed_weights_bytes; /* weights in the layout that products read, too */
    int64_t activations_bytes;    /* the tape: activations, their gradients, workspaces */
    int64_t buffers_bytes;        /* zero: gathered units, sums in progress, conversions */
    int64_t other_bytes;          /* scalars, flags */
    int64_t device_bytes;         /* sum: the peak */
    /* host memory */
    int64_t pinned_bytes;     /* staging of batches, collectives and records */
    int64_t comm_bytes;       /* control memory and bounce areas of groups in one machine */
    int64_t data_bytes;       /* batches that are ready or in use, the tokenizer */
    int64_t host_state_bytes; /* offloaded weights, states and their buffers */
    int64_t checkpoint_bytes; /* for saves, with `saves` of the engine's arguments */
    int64_t host_bytes;       /* sum, with workspace_bytes below */
    int64_t nvme_bytes;       /* files of offloaded states and weights */
    int64_t shared_bytes;     /* of device_bytes: memory that all ranks of the machine map */

    shoal_plan_traffic traffic[SHOAL_PLAN_TRAFFIC]; /* entries with calls */
    int32_t traffic_count;
    int64_t sent_elements,
        sent_bytes; /* here and below INT64_MAX stands for more than 64 bits hold */

    int64_t flops_forward, flops_backward, flops_replay; /* replay: forward again by recompute */
    int64_t kernel_bytes; /* read and written by forward, backward and replay */
    int64_t update_bytes; /* read and written by the optimizer */
    bool overlaps;        /* communication overlaps with computation */

    /* the mesh: sizes, and the coordinates of this rank */
    int32_t tensor_ranks, pipeline_stages, data_ranks;
    int32_t tensor_rank, pipeline_stage, data_rank;
    int32_t in_flight; /* most micro-batches whose activations exist at once */

    /* Part of host_bytes: workspaces of kernels, of all threads of the rank. It depends on this
     * machine's kernels and on the number of threads. Where sizes depend on data
     * (shoal_select_rows) it is planned for no rows. */
    int64_t workspace_bytes;
    int64_t device_workspace_bytes; /* part of device_bytes: workspaces of a device's kernels */
} shoal_plan;

/* Plans one rank of a training with the arguments of shoal_engine_create; their `group` is not
 * used. SHOAL_ECONFIG and SHOAL_EINVAL as there. Not collective. Cost: some milliseconds and a few
 * MB for any model, proportional to layers and to the messages of a step. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_plan_make(const shoal_engine_args *engine,
                                                     const shoal_plan_args *args, shoal_plan *plan);

/* Memory that a rank may use. INT64_MAX: no limit. */
typedef struct shoal_plan_limit {
    int64_t device_bytes, host_bytes;
    bool device_is_host; /* device memory is host memory, and the two needs add up */
    /* Limits of the process itself: private memory, and addresses (with all ranks' shared
     * memory). */
    int64_t data_bytes, address_space_bytes;
    const char *device_name; /* of device_bytes in messages, static */
} shoal_plan_limit;
/* Fills the limit of this machine: the accelerator's memory (NULL: as an engine chooses), and the
 * host's free memory divided by the ranks that share it. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_plan_get_limit(const char *accelerator,
                                                          int32_t ranks_per_machine,
                                                          shoal_plan_limit *limit);
/* Fills a limit of device memory. */
SHOAL_API void shoal_plan_set_limit(int64_t bytes, shoal_plan_limit *limit);

/* The kind of memory that fits worst. */
typedef struct shoal_plan_verdict {
    int64_t need_bytes, have_bytes;
    int64_t missing_bytes; /* need - have; <= 0: it fits */
    const char *what;      /* "its share of this machine's free memory"; static */
} shoal_plan_verdict;
SHOAL_API void shoal_plan_check(const shoal_plan *plan, const shoal_plan_limit *limit,
                                shoal_plan_verdict *verdict);

/* Plans alternatives in the order of their cost: higher stages, the lean model, recompute, smaller
 * micro-batches, offload, all of these, more ranks. Returns the first one that fits. If none fits
 * it returns the one that needs least, which shoal_plan_check tells. `change` receives the keys and
 * flags to set ("zero_optimization.stage 3, --recompute-granularity full"), truncated to `bytes`.
 * SHOAL_END: there is no alternative. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_plan_suggest(const shoal_engine_args *engine,
                                                        const shoal_plan_args *args,
                                                        const shoal_plan_limit *limit,
                                                        shoal_plan *plan, char *change,
                                                        size_t bytes);

/* Rates of given hardware. */
typedef struct shoal_plan_rates {
    double flops, memory_bytes, network_bytes; /* per second and rank; 0: unknown, costs nothing */
    double node_bytes;      /* rate to ranks of the same machine; 0: network_bytes */
    double latency_s;       /* of a message */
    int32_t ranks_per_node; /* 0: all ranks are in one machine */
    /* The network, for predictions from single messages (autotuning.h): */
    double node_latency_s; /* of a message within a machine; 0: latency_s */
    /* Per second of one link out of a machine. 0: network_bytes for each rank. */
    double link_bytes;
    int32_t links_per_node; /* shared by the machine's ranks; 0: one link per rank */
    /* "best" (NULL), "ring", "doubling", "tree", "rabenseifner", "two_level", "direct" */
    const char *collective_algorithm;
} shoal_plan_rates;
typedef struct shoal_plan_time {
    double compute_s; /* the larger of FLOPs and bytes of kernels */
    double network_s, update_s;
    /* With overlap the longer of compute_s and network_s, else their sum; plus update_s. */
    double step_s;
} shoal_plan_time;
SHOAL_API void shoal_plan_get_time(const shoal_plan *plan, const shoal_plan_rates *rates,
                                   shoal_plan_time *time);

/* Formats the plan as a JSON object on one line. *json is owned by the caller: free(). */
SHOAL_API SHOAL_CHECKED shoal_status shoal_plan_to_json(const shoal_plan *plan, char **json);

#ifdef __cplusplus
}
#endif
#endif
