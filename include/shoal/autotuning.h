/* autotuning.h - searches the fastest layout for a model, and predicts pipelines as timelines.
 *
 *   shoal_cluster_find("a100", &rates, &limit);
 *   shoal_layout_search(&engine_args, &plan_args, &rates, &limit, layouts, 10, &count);
 *
 * Terms
 *   layout    sizes of the mesh, schedule, micro-batch, ZeRO stage and recompute of a run.
 *   timeline  the begin and the end of each operation of a pipeline's schedule.
 *
 * Method
 * - plan.h plans one layout by running an engine without memory. There are thousands of layouts, so
 *   the search runs only one layer of each kind (per tensor-parallel size, micro-batch and
 *   recompute).
 * - The rest is arithmetic: the layers of a stage, the schedule's timeline, ZeRO's formulas.
 * - The layouts of the result are planned as plan.h does. Each says whether it was.
 * - A timeline accounts for computation, for waits on other stages, and for messages at given
 *   rates. It has no noise, and small kernels run at the same rate as large ones.
 */
#ifndef SHOAL_AUTOTUNING_H
#define SHOAL_AUTOTUNING_H

#include "shoal/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills rates and device memory of one rank in a cluster of a known kind. They are the maker's
 * numbers times the share that training reaches: 60 to 72 % of the arithmetic, 80 % of the rest.
 * SHOAL_EINVAL lists the known names. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_cluster_find(const char *name, shoal_plan_rates *rates,
                                                        shoal_plan_limit *limit);
/* Returns the index-th name; NULL beyond the last. */
SHOAL_API const char *shoal_cluster_name(int32_t index);

/* ---- pipelines ------------------------------------------------------------------------------ */

/* One step of a pipeline. Times are seconds with rates and FLOPs without, so that ratios hold. */
typedef struct shoal_layout_pipeline {
    const char *schedule; /* static */
    int32_t stages, chunks;
    int64_t micro_batches;
    bool seconds;
    double step, ideal; /* first begin to last end; the longest work of a stage without gaps */
    double bubble;      /* first begin to last end; the longest work of a stage without idle time */
    double equal_bubble; /* bubble if all layers of a stage take equally long */
} shoal_layout_pipeline;
/* One stage of a pipeline. */
typedef struct shoal_layout_stage {
    int32_t layers;
    int64_t parameters;       /* of a rank */
    double forward, backward; /* of a micro-batch, all chunks */
    int32_t in_flight;        /* most micro-batches of one chunk whose activations exist at once */
    int64_t activations_bytes;
} shoal_layout_stage;

/* Predicts the pipeline that `engine` describes on the mesh of `args`. Writes at most `capacity`
 * stages (NULL: none). Unless `svg` is NULL, *svg is a picture as an SVG document, owned by the
 * caller: free(). Trains nothing. `rates` may be NULL. SHOAL_EINVAL and SHOAL_ECONFIG name what is
 * wrong. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_layout_draw(
    const shoal_engine_args *engine, const shoal_plan_args *args, const shoal_plan_rates *rates,
    shoal_layout_pipeline *pipeline, shoal_layout_stage *stages, int32_t capacity, char **svg);

/* ---- search --------------------------------------------------------------------------------- */

typedef struct shoal_layout {
    int32_t tensor, pipeline, chunks, data, stage;
    const char *schedule;      /* static; NULL: no pipeline */
    const char *recompute;     /* granularity, static; NULL: none */
    const char *partition;     /* method, static; NULL: as given, or no pipeline */
    int32_t micro_batch_group; /* micro-batches of a chunk in sequence; 0: as many as stages */
    bool sequence_parallel;
    bool planned; /* memory_bytes is of a plan of the ranks that need most, not of formulas */
    int64_t micro_batch, accumulation;
    int64_t memory_bytes; /* device memory of the rank that needs most */
    double step_s, tokens_per_second;
    double bubble;    /* part of the ideal time */
    double compute_s; /* share of the ideal time */
    double exposed_s; /* communication of a step that no computation hides */
    double hidden_s;  /* communication of a step that computation hides */
    double update_s;
} shoal_layout;

/* Searches the fastest layouts that fit `limit`, fastest first. `engine` gives the model and the
 * configuration: global batch, types, optimizer, overlap and everything that a layout does not
 * choose. `args` gives the ranks and the sizes that are fixed (0: any). *count is the number of
 * layouts found, at most `capacity`. SHOAL_END: no layout fits, and the first one needs least
 * memory. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_layout_search(
    const shoal_engine_args *engine, const shoal_plan_args *args, const shoal_plan_rates *rates,
    const shoal_plan_limit *limit, shoal_layout *layouts, int32_t capacity, int32_t *count);

/* Predicts a step of the layout that `engine` and `args` describe, by the same arithmetic. Plans
 * nothing: memory_bytes comes from formulas. Offload is not included. At least one of `rates` must
 * be above 0. SHOAL_EINVAL, SHOAL_ECONFIG: the layout cannot be trained. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_layout_predict(const shoal_engine_args *engine,
                                                          const shoal_plan_args *args,
                                                          const shoal_plan_rates *rates,
                                                          shoal_layout *layout);

#ifdef __cplusplus
}
#endif
#endif
