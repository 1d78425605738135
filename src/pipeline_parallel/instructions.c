/* instructions.c - a stage's list: its computations, and what is loaded, sent and received. */
#include "pipeline_parallel/pipeline_parallel.h"

#include <stdlib.h>
#include <string.h>

const char *shoali_instruction_name(enum shoali_instruction_kind kind)
{
    static const char *const names[] = {"load",
                                        "receive activation",
                                        "forward",
                                        "send activation",
                                        "receive gradient",
                                        "backward",
                                        "backward of inputs",
                                        "backward of weights",
                                        "send gradient",
                                        "reduce tied gradients",
                                        "step"};
    return names[kind];
}

/* An instruction with what orders it: time, at one time transfers before computations, and among
 * transfers a number that both of their ends give it. */
struct event {
    double time;
    int64_t rank;
    struct shoali_instruction one;
};
struct events {
    struct event *event;
    int32_t count;
};

static int compare_events(const void *left, const void *right)
{
    const struct event *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static void add(struct events *events, double time, int64_t rank, enum shoali_instruction_kind kind,
                const struct shoali_compute *of, int32_t chunk)
{
    events->event[events->count++] = (struct event){
        .time = time,
        .rank = rank,
        .one = {.kind = kind, .micro = of->micro, .chunk = chunk, .slot = -1, .buffer = -1}};
}

static enum shoali_instruction_kind does(enum shoali_compute_kind kind)
{
    static const enum shoali_instruction_kind kinds[] = {
        SHOALI_DO_FORWARD, SHOALI_DO_BACKWARD, SHOALI_DO_BACKWARD_INPUT, SHOALI_DO_BACKWARD_WEIGHT};
    return kinds[kind];
}

/* What `stage` has to do with a computation of `on` and its input. */
static void add_compute(const struct shoali_orders *orders, const struct shoali_timeline *timeline,
                        int32_t on, int32_t index, int32_t stage, struct events *events)
{
    const struct shoali_pipeline_args *args = &orders->args;
    const struct shoali_compute *one = &orders->list[on][index];
    const int32_t p = args->stages, own = one->chunk * p + on, last = p * args->chunks - 1;
    const int32_t source = shoali_compute_source(args, one, on);
    const bool forward = one->kind == SHOALI_FORWARD;
    const double time = timeline->begin[on][index];
    /* below every computation's: the consumer's virtual stage, and whether it goes forward */
    const int64_t rank = 2 * (int64_t)own + forward - 2 * ((int64_t)last + 1);
    if (source == stage) /* in the source's numbers */
        add(events, time, rank, forward ? SHOALI_DO_SEND_ACTIVATION : SHOALI_DO_SEND_GRADIENT, one,
            (forward ? own - 1 : own + 1) / p);
    if (on != stage)
        return;
    if (source >= 0)
        add(events, time, rank, forward ? SHOALI_DO_RECV_ACTIVATION : SHOALI_DO_RECV_GRADIENT, one,
            one->chunk);
    if (forward && (own == 0 || own == last))
        add(events, time, 2 * (int64_t)index, SHOALI_DO_LOAD, one, one->chunk);
    add(events, time, 2 * (int64_t)index + 1, does(one->kind), one, one->chunk);
}

/* ---- slots and buffers ---------------------------------------------------------------------- */

/* Numbers in use, the lowest free one first. [chunk][micro]: the number; -1: none. */
struct numbers {
    int32_t *of;
    bool *taken;
    int32_t most;
};

static shoal_status numbers_init(struct numbers *numbers, const struct shoali_pipeline_args *args,
                                 struct shoali_arena *arena)
{
    const size_t cells = (size_t)args->chunks * (size_t)args->micro_batches;
    *numbers = (struct numbers){.of = shoali_arena_alloc(arena, cells * sizeof *numbers->of),
                                .taken = shoali_arena_alloc(arena, cells * sizeof *numbers->taken)};
    if (!numbers->of || !numbers->taken)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < cells; i++) {
        numbers->of[i] = -1;
        numbers->taken[i] = false;
    }
    return SHOAL_OK;
}

static int32_t take(struct numbers *numbers, size_t cell)
{
    int32_t number = 0;
    if (numbers->of[cell] >= 0)
        return numbers->of[cell];
    while (numbers->taken[number])
        number++;
    numbers->taken[number] = true;
    if (number >= numbers->most)
        numbers->most = number + 1;
    return numbers->of[cell] = number;
}

static int32_t give_back(struct numbers *numbers, size_t cell)
{
    const int32_t number = numbers->of[cell];
    numbers->taken[number] = false;
    numbers->of[cell] = -1;
    return number;
}

/* Whether the computation ends the life of its slot. */
static bool ends_slot(const struct shoali_pipeline_args *args, enum shoali_instruction_kind kind)
{
    return kind == SHOALI_DO_BACKWARD || kind == SHOALI_DO_BACKWARD_WEIGHT ||
           (kind == SHOALI_DO_FORWARD && !args->training);
}

/* Whether it leaves behind what will be sent when the slot may be gone. */
static bool fills_buffer(const struct shoali_pipeline_args *args, int32_t stage,
                         const struct shoali_instruction *one)
{
    const int32_t own = one->chunk * args->stages + stage;
    if (args->stages == 1)
        return false;
    if (one->kind == SHOALI_DO_FORWARD)
        return !args->training && own < args->stages * args->chunks - 1;
    return (one->kind == SHOALI_DO_BACKWARD || one->kind == SHOALI_DO_BACKWARD_INPUT) && own > 0;
}

static bool empties_buffer(const struct shoali_pipeline_args *args,
                           enum shoali_instruction_kind kind)
{
    return kind == SHOALI_DO_SEND_GRADIENT ||
           (kind == SHOALI_DO_SEND_ACTIVATION && !args->training);
}

static void number(const struct shoali_pipeline_args *args, int32_t stage, struct numbers *slots,
                   struct numbers *buffers, struct shoali_instruction *one)
{
    const size_t cell = (size_t)one->chunk * (size_t)args->micro_batches + (size_t)one->micro;
    if (empties_buffer(args, one->kind)) {
        one->buffer = give_back(buffers, cell);
        return;
    }
    if (fills_buffer(args, stage, one))
        one->buffer = take(buffers, cell);
    one->slot = ends_slot(args, one->kind) ? give_back(slots, cell) : take(slots, cell);
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* Without a pipeline a micro-batch comes after the other, however many there are. */
static shoal_status make_alone(const struct shoali_pipeline_args *args, struct shoali_arena *arena,
                               struct shoali_instructions *instructions)
{
    static const enum shoali_instruction_kind each[] = {SHOALI_DO_LOAD, SHOALI_DO_FORWARD,
                                                        SHOALI_DO_BACKWARD};
    const int32_t kinds = args->training ? 3 : 2;
    const int64_t count = (int64_t)args->micro_batches * kinds + args->training;
    int32_t at = 0;
    struct shoali_instruction *list = shoali_arena_alloc(arena, (size_t)count * sizeof *list);
    if (!list)
        return SHOAL_ENOMEM;
    for (int32_t micro = 0; micro < args->micro_batches; micro++)
        for (int32_t k = 0; k < kinds; k++)
            list[at++] = (struct shoali_instruction){.kind = each[k], .micro = micro, .buffer = -1};
    if (args->training)
        list[at++] = (struct shoali_instruction){.kind = SHOALI_DO_STEP, .buffer = -1};
    *instructions = (struct shoali_instructions){.list = list, .count = at, .slots = 1};
    return SHOAL_OK;
}

static shoal_status collect(const struct shoali_orders *orders, int32_t stage,
                            struct shoali_arena *arena, struct events *events)
{
    shoal_status status;
    struct shoali_timeline timeline;
    SHOAL_TRY(status, shoali_timeline_make(orders, NULL, arena, &timeline), done);
    /* a computation, a load and two transfers */
    events->event = shoali_arena_alloc(arena, 4 * (size_t)orders->count * sizeof *events->event);
    if (!events->event)
        return SHOAL_ENOMEM;
    events->count = 0;
    for (int32_t s = 0; s < orders->args.stages; s++)
        for (int32_t i = 0; i < orders->count; i++)
            add_compute(orders, &timeline, s, i, stage, events);
    qsort(events->event, (size_t)events->count, sizeof *events->event, compare_events);
done:
    return status;
}

static shoal_status make_stage(const struct shoali_pipeline_args *args, int32_t stage,
                               struct shoali_arena *scratch, struct shoali_arena *arena,
                               struct shoali_instructions *instructions)
{
    shoal_status status;
    struct shoali_orders orders;
    struct events events;
    struct numbers slots, buffers;
    SHOAL_TRY(status, shoali_orders_make(args, scratch, &orders), done);
    SHOAL_TRY(status, collect(&orders, stage, scratch, &events), done);
    SHOAL_TRY(status, numbers_init(&slots, args, scratch), done);
    SHOAL_TRY(status, numbers_init(&buffers, args, scratch), done);
    int32_t count = events.count;
    struct shoali_instruction *list = shoali_arena_alloc(arena, ((size_t)count + 2) * sizeof *list);
    if (!list)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < count; i++) {
        list[i] = events.event[i].one;
        number(args, stage, &slots, &buffers, &list[i]);
    }
    if (args->training) {
        list[count++] = (struct shoali_instruction){.kind = SHOALI_DO_REDUCE_TIED, .buffer = -1};
        list[count++] = (struct shoali_instruction){.kind = SHOALI_DO_STEP, .buffer = -1};
    }
    *instructions = (struct shoali_instructions){
        .list = list, .count = count, .slots = slots.most, .buffers = buffers.most};
done:
    return status;
}

shoal_status shoali_instructions_make(const struct shoali_pipeline_args *args, int32_t stage,
                                      struct shoali_arena *arena,
                                      struct shoali_instructions *instructions)
{
    shoal_status status;
    struct shoali_pipeline_args complete;
    struct shoali_arena scratch;
    *instructions = (struct shoali_instructions){0};
    shoali_arena_init(&scratch);
    SHOAL_TRY(status, shoali_pipeline_complete(args, &complete), done);
    if (complete.stages == 1)
        SHOAL_TRY(status, make_alone(&complete, arena, instructions), done);
    else
        SHOAL_TRY(status, make_stage(&complete, stage, &scratch, arena, instructions), done);
done:
    shoali_arena_fini(&scratch);
    return status;
}
