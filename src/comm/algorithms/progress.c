/* Requests: posting, advancing, waiting, and what happens when a wait fails. */
#include "comm/algorithms/slots.h"

#include "base/waiting.h"
#include "comm/timeout.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* How long a sleeper trusts that it will be rung before it looks at deadlines and dead ranks. */
enum {
    SLICE_NS = 40000000,
    ABSENT_NS = 1000000000, /* not looked for so long: this rank did not run itself */
    POLLS = 64,             /* before the clock is asked: most waits are over by then */
    PAUSES = 16,
    SLOW_YIELD_NS = 200000, /* somebody else had the core for his whole turn */
    CROWDED_WAITS = 65536   /* the most that a slow yield keeps from the next try */
};

static void fill_request(struct shoali_slots_group *group, struct shoali_slots_request *request,
                         const struct shoali_post *post)
{
    struct shoali_record *record = &request->wire.record;
    request->post = *post;
    request->element_bytes = shoal_dtype_bytes(post->dtype);
    request->waiting_since_ns = 0;
    request->published = request->direct = request->posted_place = false;
    request->step = request->steps = 0;
    request->bytes = request->moved = 0;
    request->wire.reachable = 0;
    request->wire.in = request->wire.out = (struct shoali_place){0};
    record->sequence = shoali_post_is_message(post) ? 0 : group->sequence++;
    record->group = group->shared->identity;
    shoali_post_describe(post, record);
}

static shoal_status advance(void *backend, int32_t index)
{
    struct shoali_slots_group *group = backend;
    struct shoali_slots_request *request = &group->request[index];
    return shoali_post_is_message(&request->post) ? shoali_message_advance(group, request)
                                                  : shoali_collective_advance(group, request);
}

/* One pass. A failure becomes the verdict. */
static shoal_status progress(struct shoali_slots_group *group)
{
    const shoal_status status = shoali_queue_advance(&group->queue, advance, group);
    if (status < 0) {
        shoali_world_abort(group->world, -1, status, shoal_error_message());
        shoali_group_ring_all(group);
    }
    return status;
}

/* Only where buffers are ordinary memory that the caller may free; a shared arena outlives this.
 * Without a limit: who is busy only computes, and as a thread of this process it cannot be killed
 * alone. */
static void wait_until_hands_off(const struct shoali_slots_group *group)
{
    if (!group->world->host->any_address)
        return;
    for (int32_t r = 0; r < group->size; r++)
        while (r != group->rank && atomic_load(&group->slot[r].busy))
            nanosleep(&(struct timespec){0, 100000}, NULL);
}

/* Gives the request of an aborted world up and makes the verdict this rank's error. Nothing more is
 * published: others may still read what the request said, and a later one would overwrite that. */
static shoal_status fail(struct shoali_slots_group *group,
                         const struct shoali_slots_request *request)
{
    group->queue.gave_up = true;
    wait_until_hands_off(group);
    shoali_queue_remove(&group->queue, request->index);
    return shoali_world_verdict(group->world);
}

shoal_status shoali_slots_post(void *backend, const struct shoali_post *post, void **out)
{
    struct shoali_slots_group *group = backend;
    shoal_status status = SHOAL_OK;
    int32_t index;
    *out = NULL;
    SHOAL_TRY(status, shoali_world_verdict(group->world), done);
    shoali_world_say_place(group->world);
    if (!group->beside)
        shoali_world_say_core(group->world);
    SHOAL_TRY(status, shoali_queue_add(&group->queue, post, &index), done);
    struct shoali_slots_request *request = &group->request[index];
    request->index = index;
    fill_request(group, request, post);
    if (progress(group) < 0)
        status = fail(group, request);
    else if (!shoali_queue_take_done(&group->queue, index))
        *out = request;
done:
    return status;
}

/* "rank 2" or "ranks 2 (tp 0, pp 1), 3 (tp 1, pp 1)": those that have not arrived at the group's
 * round, "" without any; the first or -1. */
static int32_t list_missing(const struct shoali_slots_group *group, char *text, size_t bytes)
{
    char list[360] = "", name[SHOALI_PLACE_BYTES];
    int32_t first = -1, count = 0, at = 0;
    for (int32_t r = 0; r < group->size; r++) {
        if (shoali_group_has_arrived(group, r))
            continue;
        if (first < 0)
            first = r;
        if ((size_t)at + sizeof(name) < sizeof(list)) {
            shoali_seat_name(shoali_slots_seat(group, r), " (", name);
            at += snprintf(list + at, sizeof(list) - (size_t)at, "%s%d%s%s", count ? ", " : "",
                           (int)shoali_slots_number(group, r), name, name[0] ? ")" : "");
        }
        count++;
    }
    if (count > 0)
        snprintf(text, bytes, "%s %s", count > 1 ? "ranks" : "rank", list);
    return first;
}

/* What the request waits for; the first rank that is missing, or -1. */
static int32_t find_late(const struct shoali_slots_group *group,
                         const struct shoali_slots_request *request, struct shoali_late *late)
{
    const int32_t peer = request->post.peer;
    request = &group->request[shoali_queue_first(&group->queue, request->index)];
    *late = (struct shoali_late){.post = &request->post, .record = &request->wire.record};
    if (shoali_post_is_message(&request->post)) {
        late->peer = (struct shoali_seat){.world_rank = shoali_slots_number(group, peer),
                                          .shared = shoali_slots_seat(group, peer)};
        return -1;
    }
    const int32_t first = list_missing(group, late->missing, sizeof late->missing);
    if (first >= 0 && group->round > 1)
        late->last = &group->slot[first].front[(group->round - 1) % 2].wire.record;
    return first;
}

/* Whom it waits for; of a collective, unless a lower rank of the group has come and says it. */
static void say_waiting(const struct shoali_slots_group *group,
                        const struct shoali_slots_request *request, struct shoali_waiting *waiting)
{
    struct shoali_late late;
    char doing[SHOALI_PLACE_BYTES] = "";
    waiting->since_ns = request->waiting_since_ns;
    if (!shoali_waiting_due(waiting, request->wire.record.here))
        return;
    const int32_t first = find_late(group, request, &late);
    for (int32_t r = 0; r < group->rank && !shoali_post_is_message(late.post); r++)
        if (shoali_group_has_arrived(group, r))
            return;
    if (first >= 0)
        shoali_seat_doing(shoali_slots_seat(group, first), "; last seen in ", doing);
    shoali_late_warn(&late, shoali_waiting_seconds(waiting), doing);
}

/* A rank that was stopped, or whose machine slept, has waited for nobody meanwhile: the others may
 * have been stopped with it. */
static void forgive_absence(struct shoali_slots_request *request, int64_t looked_ns, int64_t now_ns)
{
    if (now_ns - looked_ns > ABSENT_NS)
        request->waiting_since_ns += now_ns - looked_ns;
}

/* Looks for dead ranks and at the deadline; either becomes the verdict. */
static void check_health(struct shoali_slots_group *group, struct shoali_slots_request *request)
{
    struct shoali_slots_world *world = group->world;
    struct shoali_late late;
    char text[SHOALI_SENTENCE_BYTES], name[SHOALI_PLACE_BYTES], doing[SHOALI_PLACE_BYTES];
    int32_t dead = world->host->find_dead ? world->host->find_dead(world->user) : -1;
    shoal_status status;
    if (dead >= 0) {
        const struct shoali_seat_shared *seat = &world->shared->seat[dead];
        snprintf(text, sizeof(text),
                 "rank %d (pid %d%s) is gone%s: it was killed or left without shoal_comm_destroy; "
                 "its own output says more",
                 (int)seat->number, (int)atomic_load(&seat->pid),
                 shoali_seat_name(seat, ", ", name),
                 shoali_seat_doing(seat, ", last seen in ", doing));
        /* All ranks get this sentence, and may be ended before they say it: the first one does. */
        if (shoali_world_abort(world, -1, SHOAL_EPEER, text))
            SHOALI_ERROR("comm", "%s", text);
    } else if (world->look && (status = world->look(world->poll_user)) < 0) {
        (void)shoali_world_abort(world, -1, status, shoal_error_message());
    } else if (shoali_late_is_over(world->timeout_ns, request->waiting_since_ns,
                                   request->post.patience)) {
        find_late(group, request, &late);
        shoali_late_describe(&late, world->timeout_ns, text, sizeof(text));
        (void)shoali_world_abort(world, -1, SHOAL_ETIMEOUT, text);
    } else {
        return;
    }
    shoali_group_ring_all(group);
}

/* Nothing more to wait for: done, or failed. What all ranks have come to completes even when one of
 * them failed right afterwards. */
static bool is_over(struct shoali_slots_group *group, const struct shoali_slots_request *request)
{
    return shoali_queue_is_done(&group->queue, request->index) || progress(group) < 0 ||
           shoali_queue_is_done(&group->queue, request->index) ||
           atomic_load(&group->world->shared->verdict) == SHOALI_VERDICT_SET;
}

static void pause_core(int times)
{
#if defined(__x86_64__)
    for (int i = 0; i < times; i++)
        __builtin_ia32_pause();
#else
    (void)times;
#endif
}

/* Whoever is waited for may need this core: when there are too few of them, or when the system has
 * put two ranks on one. Where others than ranks want it, a yield gives them a whole turn, which
 * costs far more than sleeping; then it is only tried again after twice as many waits. */
static void let_others_run(struct shoali_slots_group *group)
{
    const int64_t begin_ns = shoali_now_ns();
    sched_yield();
    if (shoali_now_ns() - begin_ns < SLOW_YIELD_NS)
        return;
    const int32_t doubled = 2 * group->crowded_waits + 16;
    group->crowded_waits = doubled < CROWDED_WAITS ? doubled : CROWDED_WAITS;
    group->waits_to_yield = group->crowded_waits;
}

/* Looks some times; false: not over. */
static bool poll(struct shoali_slots_group *group, struct shoali_slots_request *request)
{
    const int polls = group->spin_ns > 0 && !group->world->takes_turns ? POLLS : 0;
    for (int i = 0; i < polls; i++) {
        if (is_over(group, request))
            return true;
        pause_core(1);
    }
    return false;
}

/* Looks again and again for a time; false: not over. */
static bool spin(struct shoali_slots_group *group, struct shoali_slots_request *request)
{
    request->waiting_since_ns = shoali_now_ns();
    if (group->waits_to_yield > 0)
        group->waits_to_yield--;
    else
        group->crowded_waits -= group->crowded_waits / 4;
    while (shoali_now_ns() - request->waiting_since_ns < group->spin_ns) {
        if (is_over(group, request))
            return true;
        if (group->waits_to_yield == 0)
            let_others_run(group);
        else if (!group->world->takes_turns)
            pause_core(PAUSES);
        else
            return false;
    }
    return false;
}

static void sleep_until_over(struct shoali_slots_group *group, struct shoali_slots_request *request)
{
    struct shoali_slot *slot = &group->slot[group->rank];
    struct shoali_slots_world *world = group->world;
    int64_t slice_ns =
        world->timeout_ns > 0 && world->timeout_ns < SLICE_NS ? world->timeout_ns : SLICE_NS;
    int64_t looked_ns = request->waiting_since_ns;
    struct shoali_waiting waiting = {0};
    for (;;) {
        uint32_t bell = atomic_load(&slot->bell);
        atomic_store(&slot->sleeping, 1);
        bool over = is_over(group, request);
        if (!over)
            shoali_futex_wait(&slot->bell, bell, slice_ns);
        atomic_store(&slot->sleeping, 0);
        if (over) {
            shoali_waiting_end(&waiting, request->wire.record.here);
            return;
        }
        const int64_t now_ns = shoali_now_ns();
        if (now_ns - looked_ns < slice_ns)
            continue;
        forgive_absence(request, looked_ns, now_ns);
        check_health(group, request);
        say_waiting(group, request, &waiting);
        looked_ns = now_ns;
    }
}

static shoal_status finish(struct shoali_slots_group *group,
                           const struct shoali_slots_request *request)
{
    return shoali_queue_take_done(&group->queue, request->index) ? SHOAL_OK : fail(group, request);
}

shoal_status shoali_slots_wait(void *backend, void *request)
{
    struct shoali_slots_group *group = backend;
    struct shoali_slots_request *own = request;
    if (!is_over(group, own) && !poll(group, own)) {
        if (!spin(group, own))
            sleep_until_over(group, own);
        if (!group->beside)
            (void)shoali_world_part(group->world);
    }
    return finish(group, own);
}

shoal_status shoali_slots_test(void *backend, void *request)
{
    struct shoali_slots_group *group = backend;
    struct shoali_slots_request *own = request;
    if (!is_over(group, own)) {
        int64_t now_ns = shoali_now_ns();
        if (own->waiting_since_ns == 0)
            own->waiting_since_ns = own->checked_ns = now_ns;
        if (now_ns - own->checked_ns < SLICE_NS)
            return SHOAL_IN_PROGRESS;
        own->checked_ns = now_ns;
        check_health(group, own);
        if (!is_over(group, own))
            return SHOAL_IN_PROGRESS;
    }
    return finish(group, own);
}

shoal_status shoali_slots_run(struct shoali_slots_group *group, const struct shoali_post *post)
{
    void *request = NULL;
    shoal_status status = shoali_slots_post(group, post, &request);
    return status == SHOAL_OK && request ? shoali_slots_wait(group, request) : status;
}

void shoali_slots_destroy(void *backend)
{
    struct shoali_slots_group *group = backend;
    /* peer -1 tells it from the barriers of ranks that go on. */
    const struct shoali_post barrier = {
        .kind = SHOALI_BARRIER, .here = "shoal_comm_destroy", .dtype = SHOAL_U8, .peer = -1};
    if (shoali_slots_run(group, &barrier) != SHOAL_OK) {
        SHOALI_DEBUG("comm", "left an aborted group: %s", shoal_error_message());
        wait_until_hands_off(group); /* of requests that nobody has waited for */
    }
    struct shoali_slots_world *world = group->world;
    shoali_arenas_drop(world, group);
    if (group->segment.base)
        world->host->detach(world->user, &group->segment);
    shoali_free(group);
    shoali_world_release(world);
}

int32_t shoali_slots_rank(const void *group)
{
    return ((const struct shoali_slots_group *)group)->rank;
}

int32_t shoali_slots_size(const void *group)
{
    return ((const struct shoali_slots_group *)group)->size;
}

void shoali_slots_second_thread(void *backend)
{
    struct shoali_slots_group *group = backend;
    group->beside = true;
    if (group->world->core_count < 2 * group->world->size)
        group->spin_ns = 0;
}

void shoali_slots_abort(void *backend, shoal_status status, const char *sentence)
{
    struct shoali_slots_group *group = backend;
    shoali_world_say_place(group->world);
    (void)shoali_world_abort(group->world, group->world->rank, status, sentence);
    shoali_group_ring_all(group);
}

shoal_status shoali_slots_verdict(void *backend)
{
    return shoali_world_verdict(((struct shoali_slots_group *)backend)->world);
}

void shoali_slots_relay(void *backend, shoal_status status, const char *sentence)
{
    struct shoali_slots_group *group = backend;
    (void)shoali_world_abort(group->world, -1, status, sentence);
    shoali_group_ring_all(group);
}

void shoali_slots_watch(void *backend, shoal_status (*look)(void *user), void *user)
{
    struct shoali_slots_world *world = ((struct shoali_slots_group *)backend)->world;
    world->look = look;
    world->poll_user = user;
}
