/* Requests: posting, advancing, waiting, and what happens when a wait fails. */
#include "comm/p2p/large.h"

#include "base/waiting.h"
#include "comm/timeout.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Nobody rings: who waits has to look, which is also what makes a transport go on. */
enum {
    POLLS = 200,            /* looks without giving the core away */
    YIELD_NS = 2000000,     /* after so long a wait it sleeps between looks */
    NAP_NS = 50000,         /* at first, */
    LONG_NAP_NS = 500000,   /* and when it has waited for SLICE_NS */
    SLICE_NS = 40000000,    /* between looks at the deadline */
    ABSENT_NS = 1000000000, /* not looked for so long: this rank did not run itself */
    RING_LOOKS = 20,        /* as POLLS, where the transport rings, */
    SHORT_NS = 300000, /* a collective of few bytes is looked for longer, between others' turns, */
    REST_NS = 1000000, /* and the longest rest then */
    LOST_NS = 200000000, /* for another rank's verdict to come, where it says more than ours */
    LIST_BYTES = 128     /* of missing ranks */
};

static void fill(struct shoali_p2p_group *group, int32_t index, const struct shoali_post *post)
{
    struct shoali_p2p_op *op = &group->op[index];
    *op = (struct shoali_p2p_op){
        .index = index, .post = *post, .element_bytes = shoal_dtype_bytes(post->dtype)};
    op->record = (struct shoali_record){.group = (uint64_t)group->tag};
    op->record.sequence = shoali_post_is_message(post) ? 0 : group->sequence++;
    shoali_post_describe(post, &op->record);
}

static void free_room(struct shoali_p2p_op *op)
{
    shoali_free(op->room);
    op->room = NULL;
}

/* ---- ranks that are gone -------------------------------------------------------------------- */

/* Ranks of the group that the operation still waits for. */
static int32_t list_needed(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                           int32_t *needed)
{
    int32_t count = 0;
    if (shoali_post_is_message(&op->post)) {
        needed[0] = op->post.peer;
        return 1;
    }
    if (group->large)
        return shoali_p2p_large_list_needed(group, op, needed);
    for (int32_t r = 0; r < group->size; r++) {
        const struct shoali_p2p_peer *peer = &group->peer[r];
        if (r != group->rank && (!peer->here || peer->sending || peer->in.moved < peer->in.bytes ||
                                 peer->out.moved < peer->out.bytes))
            needed[count++] = r;
    }
    return count;
}

/* The first of these ranks of the group that is lost, -1. */
static int32_t find_lost(const struct shoali_p2p_group *group, const int32_t *ranks, int32_t count)
{
    const struct shoali_p2p_world *world = group->world;
    int32_t world_rank[SHOALI_P2P_MAX_RANKS];
    for (int32_t i = 0; i < count; i++)
        world_rank[i] = group->world_rank[ranks[i]];
    const int32_t found =
        world->p2p->find_lost ? world->p2p->find_lost(world->comm, world_rank, count) : -1;
    return found < 0 ? -1 : ranks[found];
}

static shoal_status fail_of_lost(const struct shoali_p2p_group *group, int32_t rank)
{
    const struct shoali_p2p_world *world = group->world;
    const int32_t lost = group->world_rank[rank];
    return SHOAL_FAIL(SHOAL_EPEER,
                      "rank %d%s%s%s is gone: it was killed or left without shoal_comm_destroy, or "
                      "its machine or the network to it is down; its own output says more",
                      (int)lost, world->where ? " (" : "",
                      world->where ? world->where[lost].text : "", world->where ? ")" : "");
}

static struct shoali_p2p_op *held_by(struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    return &group->op[shoali_queue_first(&group->queue, op->index)];
}

/* Is a rank lost that the operation waits for? Then that becomes the verdict, when no other
 * comes. */
static void check_lost(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    int32_t needed[SHOALI_P2P_MAX_RANKS];
    if (!group->world->p2p->find_lost)
        return;
    const struct shoali_p2p_op *first = held_by(group, op);
    const int32_t lost = find_lost(group, needed, list_needed(group, first, needed));
    const int64_t now_ns = shoali_now_ns();
    if (lost < 0 || op->lost_ns == 0)
        op->lost_ns = lost < 0 ? 0 : now_ns;
    if (lost < 0 || now_ns - op->lost_ns < LOST_NS)
        return;
    const shoal_status status = fail_of_lost(group, lost);
    shoali_p2p_world_abort(group->world, -1, status, shoal_error_message());
}

static void await_verdict(struct shoali_p2p_world *world, int64_t deadline_ns)
{
    while (!shoali_p2p_world_aborted(world) && shoali_now_ns() < deadline_ns)
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}

/* What a transport says of a connection that broke is less than what there is to say. */
static shoal_status explain(struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                            shoal_status status)
{
    char sentence[SHOALI_P2P_SENTENCE_BYTES];
    int32_t all[SHOALI_P2P_MAX_RANKS], count = 0;
    const int64_t deadline_ns = shoali_now_ns() + LOST_NS;
    /* A rank that comes late after another's end may meet its last call before its verdict. */
    if (status == SHOAL_EMISMATCH)
        await_verdict(group->world, deadline_ns);
    if (status != SHOAL_EIO)
        return status;
    /* An MPI names nobody, and its own error is the consequence of another rank's end. */
    if (!group->world->p2p->find_lost) {
        snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
        return SHOAL_FAIL(SHOAL_EPEER, "another rank has ended, or the network to it is down: %s",
                          sentence);
    }
    while (!group->large && count < group->size) {
        all[count] = count;
        count++;
    }
    if (group->large)
        count = list_needed(group, op, all);
    const int32_t lost = find_lost(group, all, count);
    if (lost < 0)
        return status;
    await_verdict(group->world, deadline_ns);
    return fail_of_lost(group, lost);
}

static shoal_status advance(void *backend, int32_t index)
{
    struct shoali_p2p_group *group = backend;
    struct shoali_p2p_op *op = &group->op[index];
    const shoal_status status = shoali_post_is_message(&op->post)
                                    ? shoali_p2p_message_advance(group, op)
                                : group->large ? shoali_p2p_large_advance(group, op)
                                               : shoali_p2p_collective_advance(group, op);
    if (status == SHOAL_OK)
        free_room(op);
    return status;
}

/* One pass. A failure becomes the verdict. */
static shoal_status progress(struct shoali_p2p_group *group)
{
    shoal_status status = shoali_queue_advance(&group->queue, advance, group);
    if (status < 0) {
        status = explain(group, &group->op[group->queue.failed], status);
        shoali_p2p_world_abort(group->world, -1, status, shoal_error_message());
    }
    return status;
}

/* Gives the request of an aborted world up and makes the verdict this rank's error. Nothing more is
 * sent. */
static shoal_status fail(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    group->queue.gave_up = true;
    shoali_queue_remove(&group->queue, op->index);
    free_room(op);
    return shoali_p2p_verdict(group->world);
}

static shoal_status check_thread(struct shoali_p2p_group *group)
{
    const struct shoali_p2p_world *world = group->world;
    if (!world->one_thread || pthread_equal(pthread_self(), world->owner))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "this program started %s without threads, and a second one of its threads "
                      "uses the group: %s",
                      world->p2p->name, world->one_thread);
}

shoal_status shoali_p2p_post(void *backend, const struct shoali_post *post, void **out)
{
    struct shoali_p2p_group *group = backend;
    shoal_status status = SHOAL_OK;
    int32_t index;
    *out = NULL;
    SHOAL_TRY(status, check_thread(group), done);
    SHOAL_TRY(status, shoali_p2p_verdict(group->world), done);
    SHOAL_TRY(status, shoali_queue_add(&group->queue, post, &index), done);
    fill(group, index, post);
    if (progress(group) < 0)
        status = fail(group, &group->op[index]);
    else if (!shoali_queue_take_done(&group->queue, index))
        *out = &group->op[index];
done:
    return status;
}

/* ---- deadlines ------------------------------------------------------------------------------ */

/* Those whose envelope has not come, of a large group among the neighbours; `last` NULL or the
 * first one's last call. */
static int32_t find_missing(const struct shoali_p2p_group *group, int32_t *missing,
                            const struct shoali_record **last)
{
    int32_t count = 0;
    if (group->large)
        return shoali_p2p_large_list_missing(group, missing, last);
    for (int32_t r = 0; r < group->size; r++)
        if (r != group->rank && !group->peer[r].here)
            missing[count++] = r;
    *last = count > 0 && group->peer[missing[0]].received ? &group->peer[missing[0]].last : NULL;
    return count;
}

/* "rank 2" or "ranks 2, 3" of the world. */
static void list_ranks(const struct shoali_p2p_group *group, const int32_t *ranks, int32_t count,
                       char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "%s ", count > 1 ? "ranks" : "rank");
    for (int32_t i = 0; i < count && at + 16 < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%d", i ? ", " : "",
                               (int)group->world_rank[ranks[i]]);
}

/* What the operation waits for; how many ranks are missing. */
static int32_t find_late(struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                         struct shoali_late *late)
{
    int32_t ranks[SHOALI_P2P_MAX_RANKS];
    op = held_by(group, op);
    *late = (struct shoali_late){.post = &op->post, .record = &op->record};
    if (shoali_post_is_message(&op->post)) {
        late->peer.world_rank = group->world_rank[op->post.peer];
        return 0;
    }
    const int32_t count = find_missing(group, ranks, &late->last);
    if (count > 0)
        list_ranks(group, ranks, count, late->missing, LIST_BYTES);
    return count;
}

/* Whom it waits for; of a collective, unless a lower rank of the group has come and says it. In a
 * large group those say it that miss neighbours. */
static void say_waiting(struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                        struct shoali_waiting *waiting)
{
    struct shoali_late late;
    waiting->since_ns = op->waiting_since_ns;
    if (!shoali_waiting_due(waiting, op->record.here))
        return;
    const int32_t count = find_late(group, op, &late);
    if (!shoali_post_is_message(late.post)) {
        for (int32_t r = 0; r < group->rank && !group->large; r++)
            if (group->peer[r].here)
                return;
        if (group->large && count == 0)
            return;
    }
    shoali_late_warn(&late, shoali_waiting_seconds(waiting), "");
}

/* Percent. In a large group the neighbours that have come may wait for others, whom they name. */
static int32_t patience_of(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    int32_t ranks[SHOALI_P2P_MAX_RANKS];
    const struct shoali_record *last;
    const bool patient = group->large && !shoali_post_is_message(&op->post) &&
                         find_missing(group, ranks, &last) == 0;
    return op->post.patience + (patient ? 50 : 0);
}

/* A rank that was stopped has waited for nobody meanwhile. */
static void check_deadline(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    struct shoali_p2p_world *world = group->world;
    const int64_t now_ns = shoali_now_ns();
    struct shoali_late late;
    char text[SHOALI_P2P_SENTENCE_BYTES];
    if (now_ns - op->checked_ns > ABSENT_NS)
        op->waiting_since_ns += now_ns - op->checked_ns;
    op->checked_ns = now_ns;
    if (!shoali_late_is_over(world->timeout_ns, op->waiting_since_ns, patience_of(group, op)))
        return;
    find_late(group, op, &late);
    shoali_late_describe(&late, world->timeout_ns, text, sizeof text);
    shoali_p2p_world_abort(world, -1, SHOAL_ETIMEOUT, text);
}

/* Nothing more to wait for: done, or failed. What all ranks have come to completes even when one of
 * them failed right afterwards. */
static bool is_over(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    return shoali_queue_is_done(&group->queue, op->index) || progress(group) < 0 ||
           shoali_queue_is_done(&group->queue, op->index) ||
           shoali_p2p_is_final(group->world, &op->looks);
}

static void begin_waiting(struct shoali_p2p_op *op)
{
    if (op->waiting_since_ns == 0)
        op->waiting_since_ns = op->checked_ns = shoali_now_ns();
}

static uint64_t get_moves(const struct shoali_p2p_world *world)
{
    return world->p2p->moves ? world->p2p->moves(world->comm) : 0;
}

/* Few bytes are a matter of microseconds, of which waking up is many. */
static bool is_short(const struct shoali_p2p_op *op)
{
    return op->post.count * (int64_t)op->element_bytes <= SHOALI_P2P_INLINE_BYTES;
}

/* `seen`: the transport's moves before the operation was looked at. */
static void pause_between(const struct shoali_p2p_world *world, const struct shoali_p2p_op *op,
                          uint64_t seen, int64_t waited_ns, int32_t looks)
{
    if (world->p2p->rest) {
        if (looks < RING_LOOKS)
            return;
        if (world->p2p->moves && is_short(op) && waited_ns < SHORT_NS)
            sched_yield();
        else
            world->p2p->rest(world->comm, seen, REST_NS);
        return;
    }
    if (looks < POLLS)
        return;
    if (waited_ns < YIELD_NS)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, waited_ns < SLICE_NS ? NAP_NS : LONG_NAP_NS}, NULL);
}

static shoal_status finish(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    return shoali_queue_take_done(&group->queue, op->index) ? SHOAL_OK : fail(group, op);
}

shoal_status shoali_p2p_wait(void *backend, void *request)
{
    struct shoali_p2p_group *group = backend;
    struct shoali_p2p_op *op = request;
    struct shoali_p2p_world *world = group->world;
    uint64_t moves = group->moves, seen = get_moves(world);
    int64_t still_since_ns = 0;
    struct shoali_waiting waiting = {0};
    op->waiting_since_ns = 0;
    for (int32_t looks = 0; !is_over(group, op); looks += looks < POLLS) {
        begin_waiting(op);
        const int64_t now_ns = shoali_now_ns();
        check_lost(group, op);
        if (now_ns - op->checked_ns >= SLICE_NS) {
            check_deadline(group, op);
            say_waiting(group, op, &waiting);
        }
        if (still_since_ns == 0 || moves != group->moves)
            still_since_ns = now_ns;
        moves = group->moves;
        pause_between(world, op, seen, now_ns - still_since_ns, looks);
        seen = get_moves(world);
    }
    shoali_waiting_end(&waiting, op->record.here);
    if (still_since_ns > 0) /* who has waited has looked for verdicts all the time */
        atomic_store(&world->looked_ns, shoali_now_ns());
    return finish(group, op);
}

shoal_status shoali_p2p_test_op(void *backend, void *request)
{
    struct shoali_p2p_group *group = backend;
    struct shoali_p2p_op *op = request;
    if (!is_over(group, op)) {
        begin_waiting(op);
        check_lost(group, op);
        if (shoali_now_ns() - op->checked_ns < SLICE_NS)
            return SHOAL_IN_PROGRESS;
        check_deadline(group, op);
        if (!is_over(group, op))
            return SHOAL_IN_PROGRESS;
    }
    return finish(group, op);
}

shoal_status shoali_p2p_run(struct shoali_p2p_group *group, const struct shoali_post *post)
{
    void *request = NULL;
    const shoal_status status = shoali_p2p_post(group, post, &request);
    return status == SHOAL_OK && request ? shoali_p2p_wait(group, request) : status;
}

void shoali_p2p_abort(void *backend, shoal_status status, const char *sentence)
{
    struct shoali_p2p_group *group = backend;
    shoali_p2p_world_abort(group->world, group->world->rank, status, sentence);
}

shoal_status shoali_p2p_get_verdict(void *backend)
{
    return shoali_p2p_verdict(((struct shoali_p2p_group *)backend)->world);
}

void shoali_p2p_relay(void *backend, shoal_status status, const char *sentence)
{
    shoali_p2p_world_abort(((struct shoali_p2p_group *)backend)->world, -1, status, sentence);
}
