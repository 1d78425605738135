/* autotuning.h - which layout trains a model fastest: pipelines as timelines, and a search.
 *
 *   shoal_cluster_find("a100", &rates, &limit);
 *   shoal_layout_search(&engine_args, &plan_args, &rates, &limit, layouts, 10, &count);
 *
 * plan.h says what one layout needs, by running an engine without memory. There are thousands of
 * layouts, so here the engine runs without memory for one layer of each kind (by tensor-parallel
 * size, micro-batch and recompute); everything else is arithmetic: which layers a stage has, the
 * schedule's timeline, ZeRO's formulas. Only the layouts that are named at the end are planned as
 * plan.h does, and the answer says which those are.
 *
 * A timeline knows computation and what it waits for: other stages, and messages at given rates. It
 * does not know noise, and no kernel that is slower for small pieces.
 */
#ifndef SHOAL_AUTOTUNING_H
#define SHOAL_AUTOTUNING_H

#include "shoal/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rates and device memory of one rank in a cluster of a known kind, as its makers state them times
 * what training reaches of that: 60 to 72 % of the arithmetic, 80 % of the rest. SHOAL_EINVAL names
 * those there are. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_cluster_find(const char *name,
                                                           shoal_plan_rates *rates,
                                                           shoal_plan_limit *limit);
/* The index-th name; NULL beyond the last. */
SHOAL_API const char *shoal_cluster_name(int32_t index);

/* ---- pipelines ------------------------------------------------------------------------------ */

/* A pipeline's step. Seconds with rates; without them FLOPs, so that ratios hold. */
typedef struct shoal_layout_pipeline {
    const char *schedule; /* static */
    int32_t stages, chunks;
    int64_t micro_batches;
    bool seconds;
    double step, ideal;  /* first begin to last end; the longest work of a stage without gaps */
    double bubble;       /* step / ideal - 1 */
    double equal_bubble; /* the same where all layers take equally long in each stage */
} shoal_layout_pipeline;
/* One stage of it. */
typedef struct shoal_layout_stage {
    int32_t layers;
    int64_t parameters;       /* of a rank */
    double forward, backward; /* of a micro-batch: all chunks */
    int32_t in_flight;        /* micro-batches of one chunk that are alive at once, at most */
    int64_t activations_bytes;
    int64_t reserved[4]; /* 0 */
} shoal_layout_stage;

/* The pipeline that `engine` describes on the mesh of `args`: its stages (at most `capacity` are
 * written; NULL: none) and, unless NULL, its picture as an SVG document, owned by the caller:
 * free(). Nothing of it runs. rates NULL: none. SHOAL_EINVAL and SHOAL_ECONFIG name what is wrong. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_layout_draw(
    const shoal_engine_args *engine, const shoal_plan_args *args, const shoal_plan_rates *rates,
    shoal_layout_pipeline *pipeline, shoal_layout_stage *stages, int32_t capacity, char **svg);

/* ---- search --------------------------------------------------------------------------------- */

typedef struct shoal_layout {
    int32_t tensor, pipeline, chunks, data, stage;
    const char *schedule;      /* static; NULL: no pipeline */
    const char *recompute;     /* granularity, static; NULL: none */
    const char *partition;     /* method, static; NULL: as given, or no pipeline */
    int32_t micro_batch_group; /* of chunks in turn; 0: as many as stages */
    bool sequence_parallel;
    bool planned; /* memory is of a plan of the ranks that need most, not of formulas */
    int64_t micro_batch, accumulation;
    int64_t memory_bytes; /* device memory of the rank that needs most */
    double step_s, tokens_per_second;
    double bubble;    /* part of the ideal time */
    double compute_s; /* of the busiest rank */
    double exposed_s; /* communication that nothing hides: of a step */
    double hidden_s;  /* ... and that computation hides */
    double update_s;
    double reserved[4]; /* 0 */
} shoal_layout;

/* The fastest layouts that fit `limit`, fastest first. `engine` gives the model and the
 * configuration: global batch, types, optimizer, overlap and what the layout does not choose; `args`
 * the ranks, and the sizes that are to stay as given (0: any). *count: how many were found, at most
 * `capacity`. SHOAL_END: none fits, and the first one is what needs least. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_layout_search(
    const shoal_engine_args *engine, const shoal_plan_args *args, const shoal_plan_rates *rates,
    const shoal_plan_limit *limit, shoal_layout *layouts, int32_t capacity, int32_t *count);

/* What a step of the layout that `engine` and `args` describe takes, by the same arithmetic: nothing is
 * planned, memory_bytes are of formulas. Offload is not part of it. rates must have one that is above 0.
 * SHOAL_EINVAL, SHOAL_ECONFIG: it cannot be trained so. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_layout_predict(const shoal_engine_args *engine,
                                                             const shoal_plan_args *args,
                                                             const shoal_plan_rates *rates,
                                                             shoal_layout *layout);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_cluster_find_sized(const char *name,
                                                              shoal_plan_rates *rates,
                                                              size_t rates_size,
                                                              shoal_plan_limit *limit,
                                                              size_t limit_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_layout_draw_sized(
    const shoal_engine_args *engine, size_t engine_size, const shoal_plan_args *args,
    size_t args_size, const shoal_plan_rates *rates, size_t rates_size,
    shoal_layout_pipeline *pipeline, size_t pipeline_size, shoal_layout_stage *stages,
    int32_t capacity, char **svg);
SHOAL_API SHOAL_CHECKED shoal_status shoal_layout_search_sized(
    const shoal_engine_args *engine, size_t engine_size, const shoal_plan_args *args,
    size_t args_size, const shoal_plan_rates *rates, size_t rates_size,
    const shoal_plan_limit *limit, size_t limit_size, shoal_layout *layouts, int32_t capacity,
    int32_t *count);
SHOAL_API SHOAL_CHECKED shoal_status shoal_layout_predict_sized(
    const shoal_engine_args *engine, size_t engine_size, const shoal_plan_args *args,
    size_t args_size, const shoal_plan_rates *rates, size_t rates_size, shoal_layout *layout);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_cluster_find(const char *name,
                                                           shoal_plan_rates *rates,
                                                           shoal_plan_limit *limit)
{
    return shoal_cluster_find_sized(name, rates, sizeof *rates, limit, sizeof *limit);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_layout_draw(
    const shoal_engine_args *engine, const shoal_plan_args *args, const shoal_plan_rates *rates,
    shoal_layout_pipeline *pipeline, shoal_layout_stage *stages, int32_t capacity, char **svg)
{
    return shoal_layout_draw_sized(engine, sizeof *engine, args, sizeof *args, rates, sizeof *rates,
                                   pipeline, sizeof *pipeline, stages, capacity, svg);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_layout_search(
    const shoal_engine_args *engine, const shoal_plan_args *args, const shoal_plan_rates *rates,
    const shoal_plan_limit *limit, shoal_layout *layouts, int32_t capacity, int32_t *count)
{
    return shoal_layout_search_sized(engine, sizeof *engine, args, sizeof *args, rates,
                                     sizeof *rates, limit, sizeof *limit, layouts, capacity, count);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_layout_predict(const shoal_engine_args *engine,
                                                             const shoal_plan_args *args,
                                                             const shoal_plan_rates *rates,
                                                             shoal_layout *layout)
{
    return shoal_layout_predict_sized(engine, sizeof *engine, args, sizeof *args, rates,
                                      sizeof *rates, layout);
}

#ifdef __cplusplus
}
#endif
#endif
