/* Orders, timelines and lists of instructions, checked without running them. */
#include "base/str.h"
#include "base/test_cmocka.h"
#include "pipeline_parallel/pipeline_parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES = 8, CHUNKS = 4, MICROS = 24 };

static int setup(void **state)
{
    static struct shoali_arena arena;
    shoali_arena_init(&arena);
    *state = &arena;
    return 0;
}

static int teardown(void **state)
{
    shoali_arena_fini(*state);
    return 0;
}

/* ---- all lists of a step, run on paper ------------------------------------------------------ */

/* A stage's place in its list, and what is in its slots and buffers. */
struct stage {
    struct shoali_instructions made;
    int32_t at;
    int32_t slot[CHUNKS * MICROS], buffer[CHUNKS * MICROS]; /* cell + 1; 0: free */
    int32_t slots, buffers;                                 /* in use */
    int8_t has_input[CHUNKS][MICROS], has_gradient[CHUNKS][MICROS], loaded[CHUNKS][MICROS];
    int8_t forward[CHUNKS][MICROS], input[CHUNKS][MICROS], weight[CHUNKS][MICROS];
    int32_t next_forward[CHUNKS], next_input[CHUNKS], next_weight[CHUNKS];
    bool tied, stepped;
};
struct step {
    struct shoali_pipeline_args args;
    struct stage stage[STAGES];
};

static bool is_send(enum shoali_instruction_kind kind)
{
    return kind == SHOALI_DO_SEND_ACTIVATION || kind == SHOALI_DO_SEND_GRADIENT;
}

static bool is_receive(enum shoali_instruction_kind kind)
{
    return kind == SHOALI_DO_RECV_ACTIVATION || kind == SHOALI_DO_RECV_GRADIENT;
}

static void take_slot(struct stage *stage, const struct shoali_instruction *one)
{
    const int32_t cell = one->chunk * MICROS + one->micro + 1;
    assert_in_range(one->slot, 0, stage->made.slots - 1);
    if (stage->slot[one->slot] == cell)
        return;
    assert_int_equal(stage->slot[one->slot], 0);
    stage->slot[one->slot] = cell;
    assert_true(++stage->slots <= stage->made.slots);
}

static void give_slot(struct stage *stage, const struct shoali_instruction *one)
{
    assert_int_equal(stage->slot[one->slot], one->chunk * MICROS + one->micro + 1);
    stage->slot[one->slot] = 0;
    stage->slots--;
}

static void fill_buffer(struct stage *stage, const struct shoali_instruction *one)
{
    assert_in_range(one->buffer, 0, stage->made.buffers - 1);
    assert_int_equal(stage->buffer[one->buffer], 0);
    stage->buffer[one->buffer] = one->chunk * MICROS + one->micro + 1;
    assert_true(++stage->buffers <= stage->made.buffers);
}

static void empty_buffer(struct stage *stage, const struct shoali_instruction *one)
{
    assert_int_equal(stage->buffer[one->buffer], one->chunk * MICROS + one->micro + 1);
    stage->buffer[one->buffer] = 0;
    stage->buffers--;
}

/* What needs no other stage. */
static void run_alone(const struct step *step, int32_t s, struct stage *stage,
                      const struct shoali_instruction *one)
{
    const int32_t c = one->chunk, m = one->micro, p = step->args.stages;
    const int32_t own = c * p + s, last = p * step->args.chunks - 1;
    const bool training = step->args.training;
    switch (one->kind) {
    case SHOALI_DO_LOAD:
        assert_true(own == 0 || own == last);
        assert_int_equal(stage->loaded[c][m]++, 0);
        take_slot(stage, one);
        break;
    case SHOALI_DO_FORWARD:
        assert_int_equal(stage->loaded[c][m], own == 0 || own == last);
        assert_int_equal(stage->has_input[c][m], own > 0);
        assert_int_equal(m, stage->next_forward[c]++);
        stage->forward[c][m] = 1;
        take_slot(stage, one);
        if (!training)
            give_slot(stage, one);
        if (!training && own < last)
            fill_buffer(stage, one);
        break;
    case SHOALI_DO_BACKWARD:
    case SHOALI_DO_BACKWARD_INPUT:
        assert_true(training);
        assert_int_equal(stage->forward[c][m], 1);
        assert_int_equal(stage->has_gradient[c][m], own < last);
        assert_int_equal(m, stage->next_input[c]++); /* gradients are added in this order */
        assert_int_equal(stage->slot[one->slot], c * MICROS + m + 1);
        stage->input[c][m] = 1;
        if (own > 0)
            fill_buffer(stage, one);
        if (one->kind == SHOALI_DO_BACKWARD) {
            stage->next_weight[c]++;
            give_slot(stage, one);
        }
        break;
    case SHOALI_DO_BACKWARD_WEIGHT:
        assert_int_equal(step->args.schedule, SHOALI_ZB_H1);
        assert_int_equal(stage->input[c][m], 1);
        assert_int_equal(m, stage->next_weight[c]++);
        give_slot(stage, one);
        break;
    case SHOALI_DO_REDUCE_TIED:
        stage->tied = true;
        break;
    case SHOALI_DO_STEP:
        assert_true(training && (stage->tied || p == 1) && !stage->stepped);
        stage->stepped = true;
        break;
    default:
        fail_msg("%s needs another stage", shoali_instruction_name(one->kind));
    }
}

/* A transfer ends on both sides at once: nothing is sent before somebody receives it. */
static bool run_transfer(struct step *step, int32_t s)
{
    struct stage *from = &step->stage[s];
    const struct shoali_instruction *sent = &from->made.list[from->at];
    const int32_t p = step->args.stages;
    const bool forward = sent->kind == SHOALI_DO_SEND_ACTIVATION;
    const int32_t own = sent->chunk * p + s, to = own + (forward ? 1 : -1);
    struct stage *other = &step->stage[to % p];
    const struct shoali_instruction *got = &other->made.list[other->at];
    const enum shoali_instruction_kind wanted =
        forward ? SHOALI_DO_RECV_ACTIVATION : SHOALI_DO_RECV_GRADIENT;
    if (other->at >= other->made.count || got->kind != wanted || got->chunk != to / p ||
        got->micro != sent->micro)
        return false;
    assert_int_equal(forward ? from->forward[sent->chunk][sent->micro]
                             : from->input[sent->chunk][sent->micro],
                     1);
    if (!forward || !step->args.training)
        empty_buffer(from, sent);
    else
        assert_int_equal(from->slot[sent->slot], sent->chunk * MICROS + sent->micro + 1);
    take_slot(other, got);
    if (forward)
        other->has_input[got->chunk][got->micro] = 1;
    else
        other->has_gradient[got->chunk][got->micro] = 1;
    from->at++;
    other->at++;
    return true;
}

static void run(struct step *step)
{
    const int32_t p = step->args.stages, all = step->args.micro_batches;
    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t s = 0; s < p; s++) {
            struct stage *stage = &step->stage[s];
            while (stage->at < stage->made.count) {
                const struct shoali_instruction *one = &stage->made.list[stage->at];
                if (is_receive(one->kind) || (is_send(one->kind) && !run_transfer(step, s)))
                    break;
                if (!is_send(one->kind)) {
                    run_alone(step, s, stage, one);
                    stage->at++;
                }
                moved = true;
            }
        }
    }
    for (int32_t s = 0; s < p; s++) {
        struct stage *stage = &step->stage[s];
        assert_int_equal(stage->at, stage->made.count); /* else: a deadlock */
        assert_int_equal(stage->slots, 0);
        assert_int_equal(stage->buffers, 0);
        assert_int_equal(stage->stepped, step->args.training);
        for (int32_t c = 0; c < step->args.chunks; c++) {
            assert_int_equal(stage->next_forward[c], all);
            assert_int_equal(stage->next_weight[c], step->args.training ? all : 0);
        }
    }
}

/* Micro-batches in flight, as published. */
static int32_t bound(const struct shoali_pipeline_args *args, int32_t stage)
{
    const int32_t p = args->stages, all = args->micro_batches * args->chunks;
    int32_t slots = p - stage;
    if (p == 1)
        return 1;
    if (args->schedule == SHOALI_GPIPE)
        slots = all;
    else if (args->schedule == SHOALI_ZB_H1)
        slots = p;
    else if (args->chunks > 1)
        slots = 2 * (p - stage - 1) + (args->chunks - 1) * args->group + 1;
    slots = slots < all ? slots : all;
    return args->training ? slots : 1;
}

static void check(const struct shoali_pipeline_args *args, struct shoali_arena *arena)
{
    static struct step step;
    memset(&step, 0, sizeof step);
    assert_int_equal(shoali_pipeline_complete(args, &step.args), SHOAL_OK);
    for (int32_t s = 0; s < step.args.stages; s++) {
        struct shoali_instructions *made = &step.stage[s].made;
        assert_int_equal(shoali_instructions_make(args, s, arena, made), SHOAL_OK);
        assert_int_equal(made->slots, bound(&step.args, s));
        assert_true(made->buffers <= step.args.group);
    }
    run(&step);
}

static void test_all_lists(void **state)
{
    for (int32_t schedule = 0; schedule < SHOALI_SCHEDULES; schedule++)
        for (int32_t p = 1; p <= STAGES; p++)
            for (int32_t m = 1; m <= MICROS; m += 1 + m / 12)
                for (int32_t training = 0; training < 2; training++)
                    check(
                        &(struct shoali_pipeline_args){.schedule =
                                                           (enum shoali_pipeline_schedule)schedule,
                                                       .stages = p,
                                                       .micro_batches = m,
                                                       .training = training},
                        *state);
}

/* Every group that is allowed. */
static void test_interleaved_lists(void **state)
{
    int32_t checked = 0;
    for (int32_t p = 2; p <= 5; p++)
        for (int32_t v = 2; v <= CHUNKS; v++)
            for (int32_t group = p; group <= p + 3; group++)
                for (int32_t m = 1; m <= MICROS; m++)
                    for (int32_t training = 0; training < 2; training++) {
                        const struct shoali_pipeline_args args = {.schedule = SHOALI_INTERLEAVED,
                                                                  .stages = p,
                                                                  .chunks = v,
                                                                  .group = group,
                                                                  .micro_batches = m,
                                                                  .training = training};
                        struct shoali_pipeline_args complete;
                        if (shoali_pipeline_complete(&args, &complete) < 0)
                            continue;
                        check(&args, *state);
                        checked++;
                    }
    assert_true(checked > 500);
}

/* ---- golden orders -------------------------------------------------------------------------- */

/* "F0 F1 B0 ...": of a stage; with chunks "F0.1". */
static void assert_order(struct shoali_arena *arena, const struct shoali_pipeline_args *args,
                         int32_t stage, const char *wanted)
{
    struct shoali_orders orders;
    char text[4096] = "";
    size_t at = 0;
    assert_int_equal(shoali_orders_make(args, arena, &orders), SHOAL_OK);
    for (int32_t i = 0; i < orders.count; i++) {
        const struct shoali_compute *one = &orders.list[stage][i];
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%c%d", i ? " " : "",
                               "FBIW"[one->kind], one -> micro);
        if (orders.args.chunks > 1)
            at += (size_t)snprintf(text + at, sizeof text - at, ".%d", one->chunk);
    }
    assert_string_equal(text, wanted);
}

static void test_orders(void **state)
{
    struct shoali_pipeline_args args = {
        .schedule = SHOALI_1F1B, .stages = 4, .micro_batches = 5, .training = true};
    assert_order(*state, &args, 0, "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
    assert_order(*state, &args, 2, "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
    assert_order(*state, &args, 3, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
    args.schedule = SHOALI_GPIPE;
    assert_order(*state, &args, 3, "F0 F1 F2 F3 F4 B0 B1 B2 B3 B4");
    args = (struct shoali_pipeline_args){
        .schedule = SHOALI_ZB_H1, .stages = 2, .micro_batches = 3, .training = true};
    assert_order(*state, &args, 1, "F0 I0 F1 I1 W0 F2 I2 W1 W2");
    /* groups of 3 over 5 micro-batches: the last is short */
    args = (struct shoali_pipeline_args){
        .schedule = SHOALI_INTERLEAVED, .stages = 2, .chunks = 2, .group = 3, .micro_batches = 5};
    assert_order(*state, &args, 0, "F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 F3.0 F4.0 F3.1 F4.1");
}

/* Forwards before the first backward: the counts that Megatron documents, and one. */
static void test_warm_up(void **state)
{
    static const int32_t plain[] = {3, 2, 1, 0}, chunked[] = {10, 8, 6, 4};
    struct shoali_orders orders;
    for (int32_t chunks = 1; chunks <= 2; chunks++) {
        const struct shoali_pipeline_args args = {.schedule =
                                                      chunks > 1 ? SHOALI_INTERLEAVED : SHOALI_1F1B,
                                                  .stages = 4,
                                                  .chunks = chunks,
                                                  .micro_batches = 8,
                                                  .training = true};
        assert_int_equal(shoali_orders_make(&args, *state, &orders), SHOAL_OK);
        for (int32_t s = 0; s < 4; s++) {
            int32_t first = 0;
            while (orders.list[s][first].kind == SHOALI_FORWARD)
                first++;
            assert_int_equal(first, (chunks > 1 ? chunked : plain)[s] + 1);
        }
    }
}

/* ---- timelines ------------------------------------------------------------------------------ */

static struct shoali_timeline timeline_of(struct shoali_arena *arena,
                                          const struct shoali_pipeline_args *args,
                                          const struct shoali_durations *durations)
{
    struct shoali_orders orders;
    struct shoali_timeline timeline;
    assert_int_equal(shoali_orders_make(args, arena, &orders), SHOAL_OK);
    assert_int_equal(shoali_timeline_make(&orders, durations, arena, &timeline), SHOAL_OK);
    return timeline;
}

/* Bubbles at equal times are those of the papers: exactly, in units. */
static void test_bubbles(void **state)
{
    for (int32_t p = 2; p <= STAGES; p++)
        for (int32_t rounds = 2; rounds <= 3; rounds++) {
            struct shoali_pipeline_args args = {.schedule = SHOALI_1F1B,
                                                .stages = p,
                                                .micro_batches = rounds * p,
                                                .training = true};
            const double m = args.micro_batches;
            struct shoali_timeline line = timeline_of(*state, &args, NULL);
            assert_true(line.ideal == 3 * m);
            assert_true(line.makespan - line.ideal == 3.0 * (p - 1)); /* (p-1)/M of it */
            args.schedule = SHOALI_GPIPE;
            line = timeline_of(*state, &args, NULL);
            assert_true(line.makespan - line.ideal == 3.0 * (p - 1));
            args.schedule = SHOALI_ZB_H1;
            line = timeline_of(*state, &args, NULL);
            assert_true(line.makespan - line.ideal == (double)(p - 1));
            for (args.chunks = 2; args.chunks <= CHUNKS; args.chunks++) {
                args.schedule = SHOALI_INTERLEAVED;
                line = timeline_of(*state, &args, NULL);
                assert_true(line.ideal == 3 * m * args.chunks);
                assert_true(line.makespan - line.ideal ==
                            3.0 * (p - 1)); /* of 1/v as long chunks */
            }
        }
}

/* Given durations and transfers are what the timeline is made of. */
static void test_durations(void **state)
{
    const double forward[] = {1, 2}, input[] = {3, 5}, weight[] = {7, 11};
    const struct shoali_durations durations = {forward, input, weight, .transfer = 100};
    const struct shoali_pipeline_args args = {
        .schedule = SHOALI_1F1B, .stages = 2, .micro_batches = 1, .training = true};
    const struct shoali_timeline line = timeline_of(*state, &args, &durations);
    assert_true(line.begin[1][0] == 101 && line.end[1][0] == 103);
    assert_true(line.begin[1][1] == 103 && line.end[1][1] == 119);
    assert_true(line.begin[0][1] == 219 && line.makespan == 229);
    assert_true(line.ideal == 18);
}

/* Transfers are beside the computations: in a full 1f1b of two stages the last one, whose slot is
 * free when a micro-batch's backward is over, waits for the next one's activation alone. */
static void test_transfers_beside_computations(void **state)
{
    const double forward[] = {2, 2}, half[] = {2, 2};
    const struct shoali_durations durations = {forward, half, half, .transfer = 3, .beside = true};
    const struct shoali_pipeline_args args = {
        .schedule = SHOALI_1F1B, .stages = 2, .micro_batches = 20, .training = true};
    const struct shoali_timeline line = timeline_of(*state, &args, &durations);
    assert_true(line.begin[1][0] == 2 + 3);
    assert_true(line.begin[1][2] == 2 + 3 + 6 + 3); /* the gradient travels at the same time */
    assert_true(line.makespan == 2 + 3 + 20 * 6 + 19 * 3 + 3 + 4);
}

/* A list as its stage takes it: computations, sends and receives in a thread each. */
struct pace {
    struct shoali_instructions made;
    double *end; /* of each instruction; below 0: not yet */
    double free, lane_free[2];
    int32_t at, lane[2]; /* the next computation, send, receive */
};

static bool is_transfer(enum shoali_instruction_kind kind)
{
    return is_send(kind) || is_receive(kind);
}

/* The last instruction before `index` that has its slot (computations) or its buffer; -1: none. */
static int32_t holder_of(const struct pace *pace, int32_t index, bool slot)
{
    const struct shoali_instruction *one = &pace->made.list[index];
    for (int32_t i = index - 1; i >= 0; i--) {
        const struct shoali_instruction *before = &pace->made.list[i];
        if (slot ? one->slot >= 0 && before->slot == one->slot && !is_transfer(before->kind)
                 : one->buffer >= 0 && before->buffer == one->buffer &&
                       is_transfer(before->kind) != is_transfer(one->kind))
            return i;
    }
    return -1;
}

/* When nothing on this side stands in the way of the lane's next transfer; below 0: something
 * does. */
static double open_at(const struct pace *pace, bool receives)
{
    double time = pace->lane_free[receives];
    for (int slot = 0; slot < 2; slot++) {
        const int32_t holder = holder_of(pace, pace->lane[receives], slot);
        if (holder >= 0 && pace->end[holder] < 0)
            return -1;
        if (holder >= 0 && pace->end[holder] > time)
            time = pace->end[holder];
    }
    return time;
}

static void find_next(struct pace *pace, bool receives)
{
    int32_t *at = &pace->lane[receives];
    while (*at < pace->made.count &&
           !(receives ? is_receive(pace->made.list[*at].kind) : is_send(pace->made.list[*at].kind)))
        ++*at;
}

static void end_transfer(struct pace *pace, bool receives, double time)
{
    pace->lane_free[receives] = time;
    pace->end[pace->lane[receives]++] = time;
    find_next(pace, receives);
}

static bool run_next_transfer(struct pace *pace, const struct shoali_pipeline_args *args, int32_t s,
                              double duration)
{
    struct pace *own = &pace[s];
    if (own->lane[1] == own->made.count)
        return false;
    const struct shoali_instruction *one = &own->made.list[own->lane[1]];
    const int32_t step = one->kind == SHOALI_DO_RECV_ACTIVATION ? -1 : 1;
    const int32_t source = one->chunk * args->stages + s + step;
    struct pace *other = &pace[source % args->stages];
    const struct shoali_instruction *sent = &other->made.list[other->lane[0]];
    if (other->lane[0] == other->made.count || sent->micro != one->micro ||
        sent->chunk != source / args->stages ||
        (sent->kind == SHOALI_DO_SEND_ACTIVATION) != (one->kind == SHOALI_DO_RECV_ACTIVATION))
        return false;
    const double here = open_at(own, true), there = open_at(other, false);
    if (here < 0 || there < 0)
        return false;
    const double end = (here > there ? here : there) + duration;
    end_transfer(own, true, end);
    end_transfer(other, false, end);
    return true;
}

static bool run_next(struct pace *pace, int32_t own, const struct shoali_durations *durations)
{
    const struct shoali_instruction *one = &pace->made.list[pace->at];
    const int32_t buffer = holder_of(pace, pace->at, false);
    if (pace->at == pace->made.count)
        return false;
    if (is_transfer(one->kind)) {
        if (is_receive(one->kind) && pace->end[pace->at] < 0)
            return false;
        if (is_receive(one->kind) && pace->end[pace->at] > pace->free)
            pace->free = pace->end[pace->at];
        pace->at++;
        return true;
    }
    if (buffer >= 0 && pace->end[buffer] < 0)
        return false;
    if (buffer >= 0 && pace->end[buffer] > pace->free)
        pace->free = pace->end[buffer];
    if (one->kind == SHOALI_DO_FORWARD)
        pace->free += shoali_duration(durations, SHOALI_FORWARD, own);
    else if (one->kind == SHOALI_DO_BACKWARD)
        pace->free += shoali_duration(durations, SHOALI_BACKWARD, own);
    else if (one->kind == SHOALI_DO_BACKWARD_INPUT)
        pace->free += shoali_duration(durations, SHOALI_BACKWARD_INPUT, own);
    else if (one->kind == SHOALI_DO_BACKWARD_WEIGHT)
        pace->free += shoali_duration(durations, SHOALI_BACKWARD_WEIGHT, own);
    pace->end[pace->at++] = pace->free;
    return true;
}

static void begin_lists(struct shoali_arena *arena, const struct shoali_pipeline_args *args,
                        struct pace *pace)
{
    for (int32_t s = 0; s < args->stages; s++) {
        pace[s] = (struct pace){0};
        assert_int_equal(shoali_instructions_make(args, s, arena, &pace[s].made), SHOAL_OK);
        pace[s].end = shoali_arena_alloc(arena, (size_t)pace[s].made.count * sizeof(double));
        assert_non_null(pace[s].end);
        for (int32_t i = 0; i < pace[s].made.count; i++)
            pace[s].end[i] = -1;
        find_next(&pace[s], false);
        find_next(&pace[s], true);
    }
}

/* One thread a stage: a transfer when both have come to it. */
static double step_of_threads(struct shoali_arena *arena, const struct shoali_pipeline_args *args,
                              const struct shoali_durations *durations)
{
    struct pace pace[STAGES];
    double most = 0;
    begin_lists(arena, args, pace);
    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t s = 0; s < args->stages; s++) {
            struct pace *own = &pace[s];
            const struct shoali_instruction *one = &own->made.list[own->at];
            if (own->at == own->made.count || is_send(one->kind))
                continue;
            if (!is_receive(one->kind)) {
                moved |= run_next(own, one->chunk * args->stages + s, durations);
                continue;
            }
            const int32_t step = one->kind == SHOALI_DO_RECV_ACTIVATION ? -1 : 1;
            struct pace *other = &pace[(one->chunk * args->stages + s + step) % args->stages];
            if (other->at == other->made.count || !is_send(other->made.list[other->at].kind) ||
                other->made.list[other->at].micro != one->micro)
                continue;
            const double begin = own->free > other->free ? own->free : other->free;
            own->free = other->free = begin + durations->transfer;
            own->end[own->at++] = own->free;
            other->end[other->at++] = own->free;
            moved = true;
        }
    }
    for (int32_t s = 0; s < args->stages; s++) {
        assert_int_equal(pace[s].at, pace[s].made.count);
        most = pace[s].free > most ? pace[s].free : most;
    }
    return most;
}

static double step_of_lists(struct shoali_arena *arena, const struct shoali_pipeline_args *args,
                            const struct shoali_durations *durations)
{
    struct pace pace[STAGES];
    double most = 0;
    begin_lists(arena, args, pace);
    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t s = 0; s < args->stages; s++) {
            moved |= run_next_transfer(pace, args, s, durations->transfer);
            while (pace[s].at < pace[s].made.count &&
                   run_next(&pace[s], pace[s].made.list[pace[s].at].chunk * args->stages + s,
                            durations))
                moved = true;
        }
    }
    for (int32_t s = 0; s < args->stages; s++) {
        assert_int_equal(pace[s].at, pace[s].made.count); /* nobody waits for ever */
        assert_int_equal(pace[s].lane[0], pace[s].made.count);
        assert_int_equal(pace[s].lane[1], pace[s].made.count);
        most = pace[s].free > most ? pace[s].free : most;
    }
    return most;
}

static void test_timeline_is_that_of_the_lists(void **state)
{
    double forward[STAGES * CHUNKS], input[STAGES * CHUNKS], weight[STAGES * CHUNKS];
    for (int i = 0; i < STAGES * CHUNKS; i++) {
        forward[i] = 3 + i * 7 % 5;
        input[i] = 4 + i * 3 % 4;
        weight[i] = 2 + i * 5 % 7;
    }
    for (int32_t schedule = 0; schedule < SHOALI_SCHEDULES; schedule++)
        for (int32_t p = 2; p <= STAGES; p++)
            for (int32_t way = 0; way < 8; way++) {
                const bool beside = way % 2;
                const struct shoali_durations durations = {forward, input, weight, way / 2 * 2.0,
                                                           beside};
                const struct shoali_pipeline_args args = {
                    .schedule = (enum shoali_pipeline_schedule)schedule,
                    .stages = p,
                    .chunks = schedule == SHOALI_INTERLEAVED ? CHUNKS : 1,
                    .micro_batches = 3 * p,
                    .training = true};
                const struct shoali_timeline line = timeline_of(*state, &args, &durations);
                const double taken =
                    (beside ? step_of_lists : step_of_threads)(*state, &args, &durations);
                if (line.makespan != taken)
                    fail_msg("schedule %d, %d stages, way %d: %.0f, the lists take %.0f",
                             (int)schedule, (int)p, (int)way, line.makespan, taken);
            }
}

/* ---- pictures ------------------------------------------------------------------------------- */

static int32_t count_of(const char *text, const char *word)
{
    int32_t count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
        count++;
    return count;
}

/* A box for each computation, none beyond the picture's edge. */
static void test_picture(void **state)
{
    struct shoali_orders orders;
    struct shoali_timeline line;
    struct shoali_str svg = {0};
    const struct shoali_pipeline_args args = {.schedule = SHOALI_INTERLEAVED,
                                              .stages = 4,
                                              .chunks = 2,
                                              .micro_batches = 8,
                                              .training = true};
    assert_int_equal(shoali_orders_make(&args, *state, &orders), SHOAL_OK);
    assert_int_equal(shoali_timeline_make(&orders, NULL, *state, &line), SHOAL_OK);
    assert_true(shoali_timeline_bubble(&line) == 3.0 / 16);
    shoali_timeline_draw(&orders, &line, &svg);
    const char *text = shoali_str_get(&svg);
    assert_int_equal(count_of(text, "stroke-width"), 4 * 2 * 2 * 8);
    assert_int_equal(count_of(text, ">stage "), 4);
    assert_non_null(
        strstr(text, "interleaved: 4 stages of 2 chunks, 8 micro-batches, bubble 18.8 %"));
    for (const char *at = text; (at = strstr(at, "<rect x=\"")) != NULL; at++) {
        double left, width;
        int top;
        assert_int_equal(sscanf(at, "<rect x=\"%lf\" y=\"%d\" width=\"%lf\"", &left, &top, &width),
                         3);
        assert_true(left >= 0 && left + width <= 1200 - 16 + 0.01 && top < 34 + 4 * 36 + 40);
    }
    if (getenv("SHOAL_TEST_PICTURE")) {
        FILE *file = fopen(getenv("SHOAL_TEST_PICTURE"), "w");
        assert_non_null(file);
        assert_int_equal(fwrite(text, 1, svg.length, file), svg.length);
        fclose(file);
    }
    shoali_str_fini(&svg);
}

/* ---- mistakes ------------------------------------------------------------------------------- */

static void assert_refused(const struct shoali_pipeline_args *args, const char *words)
{
    struct shoali_pipeline_args complete;
    assert_int_equal(shoali_pipeline_complete(args, &complete), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), words));
}

static void test_mistakes(void **state)
{
    (void)state;
    enum shoali_pipeline_schedule schedule;
    assert_int_equal(shoali_pipeline_schedule_find("zb-h1", &schedule), SHOAL_OK);
    assert_int_equal(schedule, SHOALI_ZB_H1);
    assert_int_equal(shoali_pipeline_schedule_find("1b1f", &schedule), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "nearest is 1f1b"));
    struct shoali_pipeline_args args = {
        .schedule = SHOALI_1F1B, .stages = 4, .chunks = 2, .micro_batches = 8, .training = true};
    assert_refused(&args, "chunks are for the schedule interleaved");
    args.schedule = SHOALI_INTERLEAVED;
    args.micro_batches = 9;
    assert_refused(&args, "leave a group of 1");
    args.group = 3;
    assert_refused(&args, "give at least 4");
    args = (struct shoali_pipeline_args){.schedule = SHOALI_INTERLEAVED, .chunks = 2};
    assert_refused(&args, "there is one");
    struct shoali_arena arena;
    struct shoali_orders orders;
    shoali_arena_init(&arena);
    args = (struct shoali_pipeline_args){.stages = 1 << 16, .micro_batches = 1 << 16};
    assert_int_equal(shoali_orders_make(&args, &arena, &orders), SHOAL_EINVAL);
    shoali_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(test_interleaved_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(test_orders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_warm_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bubbles, setup, teardown),
        cmocka_unit_test_setup_teardown(test_durations, setup, teardown),
        cmocka_unit_test_setup_teardown(test_transfers_beside_computations, setup, teardown),
        cmocka_unit_test_setup_teardown(test_timeline_is_that_of_the_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(test_picture, setup, teardown),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
