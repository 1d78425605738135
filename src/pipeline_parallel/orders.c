/* orders.c - in which order each stage computes. */
#include "pipeline_parallel/pipeline_parallel.h"

#include "base/str.h"

#include <string.h>

static const char *const names[SHOALI_SCHEDULES] = {"gpipe", "1f1b", "interleaved", "zb-h1"};

const char *shoali_pipeline_schedule_name(enum shoali_pipeline_schedule schedule)
{
    return names[schedule];
}

shoal_status shoali_pipeline_schedule_find(const char *name,
                                           enum shoali_pipeline_schedule *schedule)
{
    for (int i = 0; i < SHOALI_SCHEDULES; i++)
        if (strcmp(names[i], name) == 0) {
            *schedule = (enum shoali_pipeline_schedule)i;
            return SHOAL_OK;
        }
    const char *nearest = shoali_nearest(name, names, SHOALI_SCHEDULES);
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "there is no pipeline schedule \"%s\"%s%s; there are: gpipe, 1f1b, "
                      "interleaved, zb-h1",
                      name, nearest ? "; nearest is " : "", nearest ? nearest : "");
}

/* ---- arguments ------------------------------------------------------------------------------ */

static int32_t at_least_1(int32_t value)
{
    return value > 0 ? value : 1;
}

static shoal_status check_group(const struct shoali_pipeline_args *args)
{
    const int32_t rest = args->micro_batches % args->group;
    if (args->group < args->stages)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%d micro-batches of a chunk in turn are fewer than %d pipeline stages: a stage would "
            "wait for a micro-batch that it has not sent; give at least %d",
            args->group, args->stages, args->stages);
    if (args->group > args->micro_batches || (rest != 0 && rest < args->stages))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%d micro-batches in groups of %d leave a group of %d, which is fewer than "
            "the %d pipeline stages: the interleaved schedule needs a multiple of %d "
            "micro-batches (gradient_accumulation_steps)",
            args->micro_batches, args->group, rest, args->stages, args->group);
    return SHOAL_OK;
}

shoal_status shoali_pipeline_complete(const struct shoali_pipeline_args *args,
                                      struct shoali_pipeline_args *complete)
{
    *complete = *args;
    complete->stages = at_least_1(args->stages);
    complete->chunks = at_least_1(args->chunks);
    complete->micro_batches = at_least_1(args->micro_batches);
    if (complete->group <= 0)
        complete->group = complete->stages;
    if (complete->chunks > 1 && complete->schedule != SHOALI_INTERLEAVED)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the pipeline schedule %s has one chunk of layers per stage, not %d; "
                          "chunks are for the schedule interleaved",
                          names[complete->schedule], complete->chunks);
    if (complete->chunks > 1 && complete->stages == 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%d chunks of layers need a pipeline of several stages; there is one",
                          complete->chunks);
    return complete->chunks > 1 && complete->training ? check_group(complete) : SHOAL_OK;
}

/* ---- fixed orders --------------------------------------------------------------------------- */

/* The k-th forward of a rank: micro-batches in groups, in a group a chunk after the other. The k-th
 * backward is the same with the chunks from the last to the first. */
static struct shoali_compute turn(const struct shoali_pipeline_args *args, int32_t k,
                                  enum shoali_compute_kind kind)
{
    const int32_t whole = args->group * args->chunks, begin = k / whole * args->group;
    const int32_t left = args->micro_batches - begin;
    const int32_t group = left < args->group ? left : args->group;
    const int32_t inside = k - begin * args->chunks, chunk = inside / group;
    return (struct shoali_compute){.kind = kind,
                                   .micro = begin + inside % group,
                                   .chunk =
                                       kind == SHOALI_FORWARD ? chunk : args->chunks - 1 - chunk};
}

static int32_t warm_up(const struct shoali_pipeline_args *args, int32_t stage)
{
    const int32_t all = args->chunks * args->micro_batches, behind = args->stages - stage - 1;
    int32_t forwards = behind;
    if (args->schedule == SHOALI_GPIPE || !args->training)
        forwards = all;
    else if (args->chunks > 1)
        forwards = 2 * behind + (args->chunks - 1) * args->group;
    return forwards < all ? forwards : all;
}

/* Forwards of the warm-up, then in turn, then the backwards that are left. */
static void fill_turns(struct shoali_orders *orders, int32_t stage)
{
    const struct shoali_pipeline_args *args = &orders->args;
    const int32_t all = args->chunks * args->micro_batches, first = warm_up(args, stage);
    int32_t at = 0, forward = 0, backward = 0;
    while (at < orders->count) {
        const bool goes_forward = forward < all && forward - backward <= first - (forward < first);
        const enum shoali_compute_kind kind = goes_forward ? SHOALI_FORWARD : SHOALI_BACKWARD;
        orders->list[stage][at++] = turn(args, goes_forward ? forward++ : backward++, kind);
    }
}

/* Stage r has r micro-batches between the two parts of their backward: the steps before the first
 * backward of weights are shorter by as much as its gradients come later than those of stage 0. */
static void fill_zero_bubble(struct shoali_orders *orders, int32_t stage)
{
    const int32_t all = orders->args.micro_batches, ahead = orders->args.stages - stage;
    struct shoali_compute *next = orders->list[stage];
    for (int32_t m = 0; m < ahead && m < all; m++)
        *next++ = (struct shoali_compute){.kind = SHOALI_FORWARD, .micro = m};
    for (int32_t m = 0; m < all + stage; m++) {
        if (m < all)
            *next++ = (struct shoali_compute){.kind = SHOALI_BACKWARD_INPUT, .micro = m};
        if (m >= stage)
            *next++ = (struct shoali_compute){.kind = SHOALI_BACKWARD_WEIGHT, .micro = m - stage};
        if (m + ahead < all)
            *next++ = (struct shoali_compute){.kind = SHOALI_FORWARD, .micro = m + ahead};
    }
}

/* ---- all ------------------------------------------------------------------------------------ */

shoal_status shoali_orders_make(const struct shoali_pipeline_args *args, struct shoali_arena *arena,
                                struct shoali_orders *orders)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_pipeline_complete(args, &orders->args), done);
    const struct shoali_pipeline_args *complete = &orders->args;
    const bool zero_bubble = complete->schedule == SHOALI_ZB_H1 && complete->training;
    const int64_t parts = zero_bubble ? 3 : complete->training ? 2 : 1;
    const int64_t count = parts * complete->chunks * complete->micro_batches;
    if (count * complete->stages > INT32_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a step of %d micro-batches over %d stages of %d chunks is too long",
                          complete->micro_batches, complete->stages, complete->chunks);
    const size_t stages = (size_t)complete->stages;
    orders->count = (int32_t)count;
    orders->list = shoali_arena_alloc(arena, stages * sizeof *orders->list);
    if (!orders->list)
        return SHOAL_ENOMEM;
    for (size_t s = 0; s < stages; s++) {
        orders->list[s] = shoali_arena_alloc(arena, (size_t)count * sizeof **orders->list);
        if (!orders->list[s])
            return SHOAL_ENOMEM;
        if (zero_bubble)
            fill_zero_bubble(orders, (int32_t)s);
        else
            fill_turns(orders, (int32_t)s);
    }
done:
    return status;
}
