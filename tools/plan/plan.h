/* plan - `shoal plan`: what a training will need, on any number of ranks, without running it.
 *
 *   plan.c     the command: from flags to plans
 *   options.c  its flags
 *   print.c    plans as text and as JSON
 *   layout.c   --draw and --search: pipelines as pictures, the best layouts as a table
 *   rates.c    rates of clusters by name, and of this machine, measured
 *   cluster.c  ... and of a file that describes a cluster
 *
 * Terms. A *column* is the plan for one number of ranks. *Rates* are the speeds of devices and
 * links, by which the time of a step is predicted.
 *
 * Invariant. The flags of `shoal pretrain` are read by its own code and mean the same here.
 */
#ifndef SHOAL_PLAN_TOOL_H
#define SHOAL_PLAN_TOOL_H

#include "pretrain/pretrain.h"
#include "shoal/autotuning.h"

enum { PLANS_MAX = 64, EXIT_DOES_NOT_FIT = 3 };

struct plan_options {
    struct shoali_ints world_size;
    const char *memory_limit, *cluster, *draw;
    int32_t collective_algorithm; /* of plan_algorithms */
    int64_t nodes, ranks_per_node, links_per_node, results;
    double peak_tflops, memory_bandwidth, network_bandwidth, node_bandwidth, link_bandwidth;
    double latency_us, node_latency_us;
    bool json, search;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
extern const struct shoali_section plan_section;
extern const char *const plan_algorithms[]; /* the first is the best one */

/* One number of ranks. */
struct column {
    shoal_plan plan; /* of the rank that needs most */
    shoal_plan_limit limit;
    shoal_plan_verdict verdict;
    shoal_plan *kind; /* of each kind of ranks: stage, and first and last along tp; owned */
    int32_t kind_count;
    bool suggested;
    struct {
        char change[256];
        shoal_plan plan;
        shoal_plan_verdict verdict;
    } suggestion;
    shoal_plan_time time;
    /* With rates: the step by single messages; else, or where that cannot be said, step_s is 0. */
    shoal_layout predicted;
    char unpredicted[256]; /* why not */
    /* with a pipeline */
    shoal_layout_pipeline pipeline;
    shoal_layout_stage *stage; /* [pipeline.stages]; owned; NULL: none */
    char *svg;                 /* with --draw; owned */
};
struct planning {
    char name[96]; /* "shoal plan gpt" */
    struct pretrain_options options;
    struct plan_options own;
    int64_t dataset_bytes;
    shoal_model *model;
    struct pretrain_setup setup;
    shoal_plan_rates rates;
    char rates_from[320];      /* "measured here", for people; "" from flags */
    struct shoali_arena arena; /* of the cluster's file */
    struct column *column;
    int32_t count;
    /* --search */
    shoal_layout *layout; /* owned */
    int32_t layout_count;
    bool layout_fits;
    double search_s;
};

shoal_plan_args plan_args_of(const struct planning *planning, int32_t world);
/* What a rank may use: --memory-limit, else the cluster's, else this machine's share. */
SHOAL_CHECKED shoal_status plan_choose_limit(const struct planning *planning, int32_t world,
                                             shoal_plan_limit *limit);

/* Takes the values of the file of --cluster for flags that are not given; without a file does
 * nothing. Checks the ranks of the nodes. */
SHOAL_CHECKED shoal_status plan_read_cluster(struct planning *planning);
/* Rates of --cluster and of flags; `needed`: where neither gives any, of this machine, measured for
 * `world` ranks. */
SHOAL_CHECKED shoal_status plan_find_rates(struct planning *planning, int32_t world, bool needed);

/* Before anything is planned: whether --draw can be done. Afterwards: to its file. */
SHOAL_CHECKED shoal_status plan_check_draw(const struct planning *planning);
SHOAL_CHECKED shoal_status plan_write_picture(const struct planning *planning);
/* Stages and bubble of a column's pipeline; with --draw the picture. */
SHOAL_CHECKED shoal_status plan_draw(struct planning *planning, int32_t world,
                                     struct column *column);
/* --search, and the table. */
SHOAL_CHECKED shoal_status plan_search(struct planning *planning, int32_t world);
SHOAL_CHECKED shoal_status plan_show_search(const struct planning *planning);
void plan_show_pipeline(const struct planning *planning, const struct column *column);

void plan_show(const struct planning *planning);
SHOAL_CHECKED shoal_status plan_show_json(const struct planning *planning);
struct json_t;
/* A pipeline's members into a plan's object. 0 or, without memory, -1. */
int plan_pipeline_json(const struct column *column, struct json_t *object);

#endif
