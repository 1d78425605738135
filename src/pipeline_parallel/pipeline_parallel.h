/* pipeline_parallel - who does what when: layers cut into stages, and a step as a list of
 * instructions for each. Level L6; pure functions of integers, no communication.
 *
 * WORDS
 *   p, v, M        stages (pipeline ranks), chunks of each, micro-batches of a step
 *   virtual stage  the layers of one chunk: number chunk * p + stage, 0 ... p v - 1. Activations go
 *                  from a virtual stage to the next, gradients back.
 *   micro          the micro-batch's number among those of this data-parallel rank in this step
 *   slot           memory of one micro-batch in flight on one virtual stage: its tape, and its
 *                  activations. LOAD or RECV_ACTIVATION takes one; BACKWARD gives it back
 *                  (BACKWARD_WEIGHT where backward is in two parts; without training FORWARD).
 *   buffer         memory of what leaves a slot that is given back: a gradient, or without training
 *                  an activation, until it is sent
 *
 *   orders.c        a schedule is the order in which each stage computes
 *   timeline.c      an order with durations: when each computation begins and ends. The picture
 *   walk.c          and the bubble of plans, and by unit durations the lists below
 *   draw.c          a timeline as a picture
 *   instructions.c  a stage's list: its computations, and between them loads, sends and receives
 *   partition.c     which layers belong to which virtual stage; layout.c  ... as a text says
 *
 * SCHEDULES, F: forward, B: backward, of every chunk in the order of micro-batches (so gradients
 * are added up in the order of one rank)
 *   gpipe        all F, then all B: the oracle. M in flight.                    Huang et al. 2019
 *   1f1b         stage r does min(p-r-1, M) F, then F and B in turn. p-r in flight; bubble
 *                (p-1)/M of the ideal time.                                 Narayanan et al. 2019
 *   interleaved  v chunks, in groups of N micro-batches: min(2(p-r-1) + (v-1)N, vM) F first. One
 *                more than that in flight; bubble (p-1)/(vM).               Narayanan et al. 2021
 *   zb-h1        1f1b whose backward is two computations: of the input, which the stage before
 *                waits for, and of the weights, which stage r does r micro-batches later. p in
 *                flight; bubble (p-1)/(3M) when all three take the same time.
 *                                                                               Qi et al. 2024
 *
 * LISTS. Sends and receives stand where the receiver needs them, at the latest: a transfer has the
 * time at which its consumer begins in the timeline of unit durations (F 1, B 2), and both ends
 * have it before what they compute from that time on. All transfers are so in one order on all
 * ranks, which is why no list deadlocks, even where a send ends with its receive only.
 * Where transfers are beside the computations (engine/step/stages.h, TRANSFERS), a list is the
 * order of each kind. A timeline of given durations knows both ways (walk.c).
 */
#ifndef SHOALI_PIPELINE_PARALLEL_H
#define SHOALI_PIPELINE_PARALLEL_H

#include "base/base.h"

/* ---- orders --------------------------------------------------------------------------------- */

enum shoali_pipeline_schedule { SHOALI_GPIPE, SHOALI_1F1B, SHOALI_INTERLEAVED, SHOALI_ZB_H1 };
enum { SHOALI_SCHEDULES = 4 };
/* "1f1b". */
const char *shoali_pipeline_schedule_name(enum shoali_pipeline_schedule schedule);
/* SHOAL_EINVAL names the nearest. */
SHOAL_CHECKED shoal_status shoali_pipeline_schedule_find(const char *name,
                                                         enum shoali_pipeline_schedule *schedule);

struct shoali_pipeline_args {
    enum shoali_pipeline_schedule schedule;
    int32_t stages, chunks, micro_batches; /* 0: 1 */
    int32_t group; /* interleaved: N, micro-batches of a chunk in turn; 0: as many as stages */
    bool training; /* false: forward alone */
};
/* The same with 0 filled in. SHOAL_EINVAL, with a sentence: chunks without `interleaved`, chunks
 * without stages, a group that M does not allow. */
SHOAL_CHECKED shoal_status shoali_pipeline_complete(const struct shoali_pipeline_args *args,
                                                    struct shoali_pipeline_args *complete);

enum shoali_compute_kind {
    SHOALI_FORWARD,
    SHOALI_BACKWARD,
    SHOALI_BACKWARD_INPUT,
    SHOALI_BACKWARD_WEIGHT
};
struct shoali_compute {
    enum shoali_compute_kind kind;
    int32_t micro, chunk;
};
/* What every stage computes, in order; memory from the arena. */
struct shoali_orders {
    struct shoali_pipeline_args args; /* complete */
    struct shoali_compute **list;     /* [stages][count] */
    int32_t count;
};
SHOAL_CHECKED shoal_status shoali_orders_make(const struct shoali_pipeline_args *args,
                                              struct shoali_arena *arena,
                                              struct shoali_orders *orders);

/* ---- timelines ------------------------------------------------------------------------------ */

/* Durations in any unit, of each virtual stage: arrays of stages * chunks; NULL: 1 each, which
 * makes a whole backward 2. A whole backward is the sum of its two parts. */
struct shoali_durations {
    const double *forward, *backward_input, *backward_weight;
    double transfer; /* of an activation or a gradient between two stages */
    bool beside;     /* transfers are beside the computations; else both stages are at one */
};
struct shoali_timeline {
    double **begin, **end; /* [stages][count], as the orders' lists */
    double makespan;       /* of the step: the last end */
    double ideal;          /* of a stage without gaps: the longest sum of durations */
};
/* Every computation begins when its stage is free and its input is there; with durations as the
 * lists are carried out: transfers wait for each other, for slots and for buffers, or for the
 * stages. SHOAL_EINTERNAL when orders wait for each other. O(all computations), and of each time
 * the square of the stages that begin then. */
SHOAL_CHECKED shoal_status shoali_timeline_make(const struct shoali_orders *orders,
                                                const struct shoali_durations *durations,
                                                struct shoali_arena *arena,
                                                struct shoali_timeline *timeline);
/* What is lost: makespan beyond the ideal, as a part of the ideal. (p-1)/M for 1f1b and gpipe,
 * (p-1)/(vM) interleaved, where all computations take the same time. */
double shoali_timeline_bubble(const struct shoali_timeline *timeline);
/* As SVG: a row per stage, a box per computation, to scale. */
struct shoali_str;
void shoali_timeline_draw(const struct shoali_orders *orders,
                          const struct shoali_timeline *timeline, struct shoali_str *svg);
double shoali_duration(const struct shoali_durations *durations, enum shoali_compute_kind kind,
                       int32_t virtual_stage);
/* The stage that a computation's input comes from over the wire; -1: it is there already. */
int32_t shoali_compute_source(const struct shoali_pipeline_args *args,
                              const struct shoali_compute *one, int32_t stage);

/* ---- instructions --------------------------------------------------------------------------- */

enum shoali_instruction_kind {
    SHOALI_DO_LOAD, /* the batch's arrays, onto the slot's tape: first and last virtual stage */
    SHOALI_DO_RECV_ACTIVATION,
    SHOALI_DO_FORWARD, /* the chunk's layers */
    SHOALI_DO_SEND_ACTIVATION,
    SHOALI_DO_RECV_GRADIENT,
    SHOALI_DO_BACKWARD, /* ... and their gradients */
    SHOALI_DO_BACKWARD_INPUT,
    SHOALI_DO_BACKWARD_WEIGHT,
    SHOALI_DO_SEND_GRADIENT,
    SHOALI_DO_REDUCE_TIED, /* gradients of tied weights, over the stages that hold them */
    SHOALI_DO_STEP         /* reduce, decide, update */
};
struct shoali_instruction {
    enum shoali_instruction_kind kind;
    int32_t micro, chunk;
    int32_t slot; /* of LOAD to BACKWARD */
    int32_t
        buffer; /* written by BACKWARD, BACKWARD_INPUT or an untrained FORWARD, read by the send;
                       -1: nothing is sent */
};
struct shoali_instructions {
    const struct shoali_instruction *list; /* in the arena */
    int32_t count;
    int32_t slots, buffers; /* alive at once, at most */
};
/* SHOAL_ENOMEM; SHOAL_EINVAL as shoali_pipeline_complete. */
SHOAL_CHECKED shoal_status shoali_instructions_make(const struct shoali_pipeline_args *args,
                                                    int32_t stage, struct shoali_arena *arena,
                                                    struct shoali_instructions *instructions);
/* "forward", for messages. */
const char *shoali_instruction_name(enum shoali_instruction_kind kind);

#endif
