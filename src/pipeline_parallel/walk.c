/* walk.c - a timeline of given durations: the lists, walked by all stages at once.
 *
 * The order is that of the lists: time by time of the units, transfers before computations. A stage
 * has three clocks, of its computations, its sends and its receives, each of which happen one after
 * the other. A transfer begins when the sender's sends and the receiver's receives before it are
 * over, what it carries has been computed, and the receiver's slot is free; a computation when its
 * input is there and its buffer, if it leaves something, has been sent. Where transfers are not
 * beside computations, both stages are at one when they are done with all that their lists have
 * before it. */
#include "pipeline_parallel/timeline.h"

/* Numbers of slots or buffers of one stage, the lowest free one first, and when each was given
 * back. */
struct places {
    int32_t *of; /* [chunk][micro] number; -1: none */
    bool *taken;
    double *free_at;
};

struct walk {
    const struct shoali_orders *orders;
    const struct shoali_durations *durations;
    struct shoali_timeline units;
    const struct shoali_timeline *timeline;
    /* of each stage */
    int32_t *at;                    /* computations done */
    double *free;                   /* when its computations so far are over */
    double *sent, *received;        /* its transfers */
    double *arrived;                /* when the input of the next computation is there */
    struct places *slots, *buffers; /* of each stage */
    int32_t *turns; /* stages that begin a computation at this time, by virtual stage */
    int32_t turn_count;
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* ---- places --------------------------------------------------------------------------------- */

static shoal_status init_places(const struct shoali_orders *orders, struct shoali_arena *arena,
                                struct places *places)
{
    const size_t cells = (size_t)orders->args.chunks * (size_t)orders->args.micro_batches;
    *places =
        (struct places){.of = shoali_arena_alloc(arena, cells * sizeof *places->of),
                        .taken = shoali_arena_alloc(arena, cells * sizeof *places->taken),
                        .free_at = shoali_arena_alloc(arena, cells * sizeof *places->free_at)};
    if (!places->of || !places->taken || !places->free_at)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < cells; i++) {
        places->of[i] = -1;
        places->taken[i] = false;
        places->free_at[i] = 0;
    }
    return SHOAL_OK;
}

static size_t cell(const struct walk *walk, const struct shoali_compute *one)
{
    return (size_t)one->chunk * (size_t)walk->orders->args.micro_batches + (size_t)one->micro;
}

/* When it is free. */
static double take(struct places *places, size_t cell)
{
    int32_t number = 0;
    if (places->of[cell] >= 0)
        return 0;
    while (places->taken[number])
        number++;
    places->taken[number] = true;
    places->of[cell] = number;
    return places->free_at[number];
}

static void give_back(struct places *places, size_t cell, double time)
{
    const int32_t number = places->of[cell];
    places->taken[number] = false;
    places->free_at[number] = time;
    places->of[cell] = -1;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static const struct shoali_compute *next_of(const struct walk *walk, int32_t stage)
{
    return &walk->orders->list[stage][walk->at[stage]];
}

/* Transfers are numbered by the consumer's virtual stage, gradients before activations. */
static int64_t turn_rank(const struct walk *walk, int32_t stage)
{
    const struct shoali_compute *one = next_of(walk, stage);
    return 2 * ((int64_t)one->chunk * walk->orders->args.stages + stage) +
           (one->kind == SHOALI_FORWARD);
}

static void collect_turns(struct walk *walk, double time)
{
    walk->turn_count = 0;
    for (int32_t s = 0; s < walk->orders->args.stages; s++) {
        if (walk->at[s] == walk->orders->count || walk->units.begin[s][walk->at[s]] != time)
            continue;
        int32_t place = walk->turn_count++;
        for (; place > 0 && turn_rank(walk, walk->turns[place - 1]) > turn_rank(walk, s); place--)
            walk->turns[place] = walk->turns[place - 1];
        walk->turns[place] = s;
    }
}

/* What a computation of `from` has left for this one: when that was. The last such computation of
 * `from` is among those that it has done. */
static double made_at(const struct walk *walk, const struct shoali_compute *one, int32_t from,
                      int32_t chunk)
{
    const bool forward = one->kind == SHOALI_FORWARD;
    for (int32_t i = walk->at[from] - 1; i >= 0; i--) {
        const struct shoali_compute *made = &walk->orders->list[from][i];
        if (made->micro == one->micro && made->chunk == chunk &&
            (made->kind == SHOALI_FORWARD) == forward && made->kind != SHOALI_BACKWARD_WEIGHT)
            return walk->timeline->end[from][i];
    }
    return 0;
}

/* Whether it leaves what is sent when its slot may be gone. */
static bool fills_buffer(const struct walk *walk, const struct shoali_compute *one, int32_t own)
{
    const struct shoali_pipeline_args *args = &walk->orders->args;
    if (args->stages == 1)
        return false;
    if (one->kind == SHOALI_FORWARD)
        return !args->training && own < args->stages * args->chunks - 1;
    return one->kind != SHOALI_BACKWARD_WEIGHT && own > 0;
}

static bool ends_slot(const struct walk *walk, enum shoali_compute_kind kind)
{
    return kind == SHOALI_BACKWARD || kind == SHOALI_BACKWARD_WEIGHT ||
           (kind == SHOALI_FORWARD && !walk->orders->args.training);
}

static void transfer(struct walk *walk, int32_t from, int32_t to)
{
    const struct shoali_compute *one = next_of(walk, to);
    const int32_t p = walk->orders->args.stages, own = one->chunk * p + to;
    const bool forward = one->kind == SHOALI_FORWARD;
    const struct shoali_compute made = {.micro = one->micro,
                                        .chunk = (forward ? own - 1 : own + 1) / p};
    if (!walk->durations->beside) {
        walk->free[from] = walk->free[to] =
            larger(walk->free[from], walk->free[to]) + walk->durations->transfer;
        return;
    }
    double begin = larger(walk->sent[from], walk->received[to]);
    begin = larger(begin, made_at(walk, one, from, made.chunk));
    if (forward)
        begin = larger(begin, take(&walk->slots[to], cell(walk, one)));
    walk->arrived[to] = walk->sent[from] = walk->received[to] = begin + walk->durations->transfer;
    if (!forward || !walk->orders->args.training)
        give_back(&walk->buffers[from], cell(walk, &made), walk->sent[from]);
}

static void compute(struct walk *walk, int32_t s)
{
    const struct shoali_compute *one = next_of(walk, s);
    const int32_t own = one->chunk * walk->orders->args.stages + s, at = walk->at[s];
    double begin = larger(walk->free[s], walk->arrived[s]);
    (void)take(&walk->slots[s], cell(walk, one));
    if (walk->durations->beside && fills_buffer(walk, one, own))
        begin = larger(begin, take(&walk->buffers[s], cell(walk, one)));
    walk->timeline->begin[s][at] = begin;
    walk->free[s] = begin + shoali_duration(walk->durations, one->kind, own);
    walk->timeline->end[s][at] = walk->free[s];
    if (ends_slot(walk, one->kind))
        give_back(&walk->slots[s], cell(walk, one), walk->free[s]);
    walk->arrived[s] = 0;
    walk->at[s]++;
}

static void run_turns(struct walk *walk)
{
    for (int32_t i = 0; i < walk->turn_count; i++) {
        const int32_t to = walk->turns[i];
        const int32_t from = shoali_compute_source(&walk->orders->args, next_of(walk, to), to);
        if (from >= 0)
            transfer(walk, from, to);
    }
    for (int32_t i = 0; i < walk->turn_count; i++)
        compute(walk, walk->turns[i]);
}

/* ---- the walk ------------------------------------------------------------------------------- */

static shoal_status init_walk(struct walk *walk, struct shoali_arena *arena)
{
    shoal_status status;
    const size_t stages = (size_t)walk->orders->args.stages;
    walk->at = shoali_arena_alloc(arena, stages * sizeof *walk->at);
    walk->turns = shoali_arena_alloc(arena, stages * sizeof *walk->turns);
    walk->free = shoali_arena_alloc(arena, 4 * stages * sizeof *walk->free);
    walk->slots = shoali_arena_alloc(arena, 2 * stages * sizeof *walk->slots);
    if (!walk->at || !walk->turns || !walk->free || !walk->slots)
        return SHOAL_ENOMEM;
    walk->sent = walk->free + stages;
    walk->received = walk->sent + stages;
    walk->arrived = walk->received + stages;
    walk->buffers = walk->slots + stages;
    for (size_t s = 0; s < stages; s++) {
        walk->at[s] = 0;
        walk->free[s] = walk->sent[s] = walk->received[s] = walk->arrived[s] = 0;
        SHOAL_TRY(status, init_places(walk->orders, arena, &walk->slots[s]), done);
        SHOAL_TRY(status, init_places(walk->orders, arena, &walk->buffers[s]), done);
    }
    SHOAL_TRY(status, shoali_timeline_make(walk->orders, NULL, arena, &walk->units), done);
done:
    return status;
}

shoal_status shoali_timeline_walk(const struct shoali_orders *orders,
                                  const struct shoali_durations *durations,
                                  struct shoali_arena *arena,
                                  const struct shoali_timeline *timeline)
{
    shoal_status status;
    double last = 0;
    struct walk walk = {.orders = orders, .durations = durations, .timeline = timeline};
    SHOAL_TRY(status, init_walk(&walk, arena), done);
    for (int32_t s = 0; s < orders->args.stages && orders->count > 0; s++)
        last = larger(last, walk.units.begin[s][orders->count - 1]);
    for (double time = 0; time <= last; time++) { /* units are whole numbers */
        collect_turns(&walk, time);
        run_turns(&walk);
    }
done:
    return status;
}
