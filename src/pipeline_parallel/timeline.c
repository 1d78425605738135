/* timeline.c - when each computation begins and ends; in units. */
#include "pipeline_parallel/timeline.h"

#include <string.h>

double shoali_duration(const struct shoali_durations *durations, enum shoali_compute_kind kind,
                       int32_t virtual_stage)
{
    const struct shoali_durations units = {0};
    const struct shoali_durations *of = durations ? durations : &units;
    const double input = of->backward_input ? of->backward_input[virtual_stage] : 1;
    const double weight = of->backward_weight ? of->backward_weight[virtual_stage] : 1;
    switch (kind) {
    case SHOALI_FORWARD:
        return of->forward ? of->forward[virtual_stage] : 1;
    case SHOALI_BACKWARD:
        return input + weight;
    case SHOALI_BACKWARD_INPUT:
        return input;
    case SHOALI_BACKWARD_WEIGHT:
        return weight;
    }
    return 0;
}

int32_t shoali_compute_source(const struct shoali_pipeline_args *args,
                              const struct shoali_compute *one, int32_t stage)
{
    const int32_t p = args->stages, own = one->chunk * p + stage;
    if (p == 1 || one->kind == SHOALI_BACKWARD_WEIGHT)
        return -1;
    if (one->kind == SHOALI_FORWARD)
        return own == 0 ? -1 : (own - 1) % p;
    return own == p * args->chunks - 1 ? -1 : (own + 1) % p;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* ---- units ---------------------------------------------------------------------------------- */

/* When what others wait for was there: [virtual stage][micro]; below 0: not yet. */
struct progress {
    double *forward, *input; /* ends of forwards, of the part of backwards that is sent */
    int32_t *at;             /* of each stage: computations done */
    double *free;            /* of each stage: when it is */
};

static size_t cell(const struct shoali_orders *orders, int32_t virtual_stage, int32_t micro)
{
    return (size_t)virtual_stage * (size_t)orders->args.micro_batches + (size_t)micro;
}

/* When a computation's input is there; below 0: nobody knows yet. */
static double ready(const struct shoali_orders *orders, const struct progress *progress,
                    const struct shoali_compute *one, int32_t stage)
{
    const int32_t p = orders->args.stages, own = one->chunk * p + stage;
    const int32_t last = p * orders->args.chunks - 1;
    const double *from = progress->forward;
    int32_t source = own;
    switch (one->kind) {
    case SHOALI_FORWARD:
        source = own - 1;
        break;
    case SHOALI_BACKWARD:
    case SHOALI_BACKWARD_INPUT:
        from = own == last ? progress->forward : progress->input;
        source = own == last ? own : own + 1;
        break;
    case SHOALI_BACKWARD_WEIGHT:
        from = progress->input;
        break;
    }
    if (source < 0)
        return 0;
    return from[cell(orders, source, one->micro)];
}

/* Does what a stage can do by now; how much that was. */
static int32_t advance(const struct shoali_orders *orders, int32_t stage, struct progress *progress,
                       struct shoali_timeline *timeline)
{
    const int32_t before = progress->at[stage];
    while (progress->at[stage] < orders->count) {
        const int32_t at = progress->at[stage];
        const struct shoali_compute *one = &orders->list[stage][at];
        const int32_t own = one->chunk * orders->args.stages + stage;
        const double input = ready(orders, progress, one, stage);
        if (input < 0)
            break;
        const double begin = input > progress->free[stage] ? input : progress->free[stage];
        const double end = begin + shoali_duration(NULL, one->kind, own);
        timeline->begin[stage][at] = begin;
        timeline->end[stage][at] = progress->free[stage] = end;
        if (one->kind == SHOALI_FORWARD)
            progress->forward[cell(orders, own, one->micro)] = end;
        else if (one->kind != SHOALI_BACKWARD_WEIGHT)
            progress->input[cell(orders, own, one->micro)] = end;
        progress->at[stage]++;
    }
    return progress->at[stage] - before;
}

/* begin and end of every computation; not filled in. */
static shoal_status allocate_timeline(const struct shoali_orders *orders,
                                      struct shoali_arena *arena, struct shoali_timeline *timeline)
{
    const size_t stages = (size_t)orders->args.stages;
    *timeline = (struct shoali_timeline){
        .begin = shoali_arena_alloc(arena, stages * sizeof *timeline->begin),
        .end = shoali_arena_alloc(arena, stages * sizeof *timeline->end)};
    if (!timeline->begin || !timeline->end)
        return SHOAL_ENOMEM;
    for (size_t s = 0; s < stages; s++) {
        const size_t bytes = (size_t)orders->count * sizeof(double);
        timeline->begin[s] = shoali_arena_alloc(arena, bytes);
        timeline->end[s] = shoali_arena_alloc(arena, bytes);
        if (!timeline->begin[s] || !timeline->end[s])
            return SHOAL_ENOMEM;
    }
    return SHOAL_OK;
}

static shoal_status allocate_progress(const struct shoali_orders *orders,
                                      struct shoali_arena *arena, struct progress *progress)
{
    const struct shoali_pipeline_args *args = &orders->args;
    const size_t stages = (size_t)args->stages;
    const size_t cells = stages * (size_t)args->chunks * (size_t)args->micro_batches;
    *progress = (struct progress){.forward = shoali_arena_alloc(arena, cells * sizeof(double)),
                                  .input = shoali_arena_alloc(arena, cells * sizeof(double)),
                                  .at = shoali_arena_alloc(arena, stages * sizeof(int32_t)),
                                  .free = shoali_arena_alloc(arena, stages * sizeof(double))};
    if (!progress->forward || !progress->input || !progress->at || !progress->free)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < cells; i++)
        progress->forward[i] = progress->input[i] = -1;
    for (size_t s = 0; s < stages; s++) {
        progress->at[s] = 0;
        progress->free[s] = 0;
    }
    return SHOAL_OK;
}

static shoal_status make_units(const struct shoali_orders *orders, struct shoali_arena *arena,
                               struct shoali_timeline *timeline)
{
    shoal_status status;
    struct progress progress;
    const int32_t stages = orders->args.stages;
    SHOAL_TRY(status, allocate_progress(orders, arena, &progress), done);
    for (int64_t left = (int64_t)stages * orders->count, did; left > 0; left -= did) {
        did = 0;
        for (int32_t s = 0; s < stages; s++)
            did += advance(orders, s, &progress, timeline);
        if (did == 0)
            return SHOAL_FAIL(
                SHOAL_EINTERNAL,
                "the schedule %s of %d stages, %d chunks and %d micro-batches deadlocks",
                shoali_pipeline_schedule_name(orders->args.schedule), stages, orders->args.chunks,
                orders->args.micro_batches);
    }
done:
    return status;
}

shoal_status shoali_timeline_make(const struct shoali_orders *orders,
                                  const struct shoali_durations *durations,
                                  struct shoali_arena *arena, struct shoali_timeline *timeline)
{
    shoal_status status;
    *timeline = (struct shoali_timeline){0};
    SHOAL_TRY(status, allocate_timeline(orders, arena, timeline), done);
    if (durations)
        SHOAL_TRY(status, shoali_timeline_walk(orders, durations, arena, timeline), done);
    else
        SHOAL_TRY(status, make_units(orders, arena, timeline), done);
    for (int32_t s = 0; s < orders->args.stages && orders->count > 0; s++) {
        double sum = 0;
        for (int32_t i = 0; i < orders->count; i++)
            sum += timeline->end[s][i] - timeline->begin[s][i];
        timeline->ideal = larger(timeline->ideal, sum);
        timeline->makespan = larger(timeline->makespan, timeline->end[s][orders->count - 1]);
    }
done:
    return status;
}
