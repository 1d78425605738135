/* search - what the files of the search share. For the files of this folder.
 *
 *   search.c  the loops over layouts, and the answer
 *   shape.c   one cut with one schedule: its timeline, and with each of ZeRO's stages its candidate
 *   predict.c the candidate of one layout
 */
#ifndef SHOALI_AUTOTUNING_SEARCH_H
#define SHOALI_AUTOTUNING_SEARCH_H

#include "autotuning/autotuning.h"

enum { SHOALI_SEARCH_KEPT = 64 };

/* What one run without memory said; `known` false: it cannot be trained so. */
struct shoali_search_costs {
    struct shoali_search_costs *next;
    struct shoali_costs_args args;
    struct shoali_costs costs;
    bool known;
};
/* A cut depends on the model alone. */
struct shoali_search_partition {
    struct shoali_search_partition *next;
    int32_t stages, chunks;
    const char *partition; /* NULL: as given */
    int32_t *begin;        /* NULL: it cannot be made */
};
struct shoali_candidate {
    shoal_layout layout;
    int32_t worst; /* the stage that needs most */
};
struct shoali_search {
    struct shoali_settings settings;
    shoal_plan_rates rates;
    shoal_plan_limit limit;
    struct shoali_arena arena, scratch; /* scratch: of one layout */
    int64_t train_batch;
    double slack;                      /* part of its memory that a layout may lack by formulas */
    struct shoali_search_costs *entry; /* the last that was made */
    struct shoali_search_partition *cut;
    struct shoali_candidate kept[SHOALI_SEARCH_KEPT]; /* fastest first */
    int32_t kept_count;
    struct shoali_candidate smallest;          /* needs least, of those that do not fit */
    const struct shoali_search_costs *refused; /* the last that cannot be trained */
};

/* A cut of the layers with its timeline, for all stages of ZeRO alike. */
struct shoali_shape {
    const struct shoali_costs *costs;
    struct shoali_costs_args cost_args;
    const char *partition; /* NULL: as given */
    int32_t group;         /* 0: as many as stages */
    struct shoali_speeds speeds;
    struct shoali_pipeline_args pipeline;
    struct shoali_virtual_stages stages;
    int32_t data;
    double makespan, ideal, tied; /* tied: seconds of the sum of weights that two stages use */
};

/* Makes the timeline and keeps what each stage of ZeRO makes of it. A cut that cannot be made, and
 * one that is slower than all that are kept, is none. */
SHOAL_CHECKED shoal_status shoali_search_shape(struct shoali_search *search,
                                               struct shoali_shape *shape);
/* Keeps what one stage of ZeRO makes of a shape; statuses as shoali_virtual_stages_make. */
SHOAL_CHECKED shoal_status shoali_search_one(struct shoali_search *search,
                                             struct shoali_shape *shape, int32_t stage);
/* A layout that does not fit: the smallest of those is remembered. */
void shoali_search_note_smallest(struct shoali_search *search,
                                 const struct shoali_candidate *candidate);

#endif
