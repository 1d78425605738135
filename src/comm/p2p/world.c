/* The ranks of a job: joining, the verdict, pieces, and the transport's errors. */
#include "comm/p2p/p2p.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DELIVER_NS = 1000000000,
    NAP_NS = 200000,
    AWAY_NS = 1000000,
    AWAY_LOOKS = 64,
    GRACE_NS = 500000000
};

static shoal_status fail_of(const struct shoali_p2p_world *world, const char *what, int code)
{
    char text[512];
    world->p2p->describe(code, text, sizeof text);
    return SHOAL_FAIL(SHOAL_EIO, "%s cannot %s: %s", world->p2p->name, what, text);
}

/* ---- the transport's calls ---------------------------------------------------------------------------- */

shoal_status shoali_p2p_send(struct shoali_p2p_world *world, const void *data, size_t bytes,
                             int32_t rank, int32_t tag, struct shoali_p2p_request *request)
{
    const int code = world->p2p->send(world->comm, data, bytes, rank, tag, request);
    return code ? fail_of(world, "send to another rank", code) : SHOAL_OK;
}

shoal_status shoali_p2p_receive(struct shoali_p2p_world *world, void *data, size_t bytes,
                                int32_t rank, int32_t tag, struct shoali_p2p_request *request)
{
    const int code = world->p2p->receive(world->comm, data, bytes, rank, tag, request);
    return code ? fail_of(world, "receive from another rank", code) : SHOAL_OK;
}

shoal_status shoali_p2p_test(struct shoali_p2p_world *world, struct shoali_p2p_request *request,
                             bool *done, size_t *bytes)
{
    const int code = world->p2p->test(request, done, bytes);
    return code ? fail_of(world, "go on with a message between ranks", code) : SHOAL_OK;
}

static void advance(struct shoali_p2p_world *world)
{
    if (world->p2p->progress)
        world->p2p->progress(world->comm);
}

/* ---- pieces --------------------------------------------------------------------------------- */

struct shoali_p2p_piece *shoali_p2p_take_piece(struct shoali_p2p_world *world)
{
    pthread_mutex_lock(&world->lock);
    struct shoali_p2p_piece *piece = world->pieces;
    if (piece)
        world->pieces = piece->next;
    pthread_mutex_unlock(&world->lock);
    if (!piece && !shoali_fault("alloc"))
        piece = aligned_alloc(64, sizeof *piece);
    if (!piece)
        (void)SHOAL_FAIL(SHOAL_ENOMEM, "no memory for a piece of %d bytes between the ranks",
                         SHOALI_P2P_PIECE_BYTES);
    return piece;
}

void shoali_p2p_put_piece(struct shoali_p2p_world *world, struct shoali_p2p_piece *piece)
{
    if (!piece)
        return;
    pthread_mutex_lock(&world->lock);
    piece->next = world->pieces;
    world->pieces = piece;
    pthread_mutex_unlock(&world->lock);
}

/* ---- the verdict ---------------------------------------------------------------------------- */

/* With the lock. */
static bool set_verdict(struct shoali_p2p_world *world, const struct shoali_p2p_verdict *verdict)
{
    if (atomic_load(&world->aborted))
        return false;
    world->verdict = *verdict;
    world->verdict.sentence[SHOALI_P2P_SENTENCE_BYTES - 1] = '\0';
    if (world->verdict.status >= 0 || world->verdict.rank >= world->size)
        world->verdict.status = SHOAL_EPEER; /* no verdict of this library */
    atomic_store(&world->aborted, true);
    return true;
}

static struct shoali_p2p_listener *find_listener(struct shoali_p2p_world *world, int32_t rank)
{
    for (int32_t i = 0; i < world->audience_count; i++)
        if (world->audience[i].rank == rank)
            return &world->audience[i];
    return NULL;
}

/* Says to who sent this verdict that it has come. */
static void acknowledge(struct shoali_p2p_world *world, const struct shoali_p2p_verdict *verdict)
{
    static const char word = 0; /* what `received` is for, which a transport may be writing now */
    struct shoali_p2p_listener *to = find_listener(world, verdict->from);
    if (!world->p2p->find_lost || !to)
        return;
    if (world->p2p->send(world->comm, &word, 1, to->rank, SHOALI_P2P_RECEIVED_TAG, &to->verdict) !=
        0)
        to->verdict.word = 0; /* it does not wait any more */
}

/* Has the rank got the verdict, or sent its own, or gone? */
static bool is_told(struct shoali_p2p_world *world, struct shoali_p2p_listener *listener)
{
    bool sent = true, received = true;
    if (world->p2p->test(&listener->verdict, &sent, NULL) != 0)
        sent = true;
    if (!world->p2p->find_lost)
        return sent;
    if (listener->done)
        return true;
    if (world->p2p->test(&listener->received, &received, NULL) != 0)
        received = true;
    listener->done = received || world->p2p->find_lost(world->comm, &listener->rank, 1) >= 0;
    return listener->done;
}

/* Another rank may have come to a verdict of its own, and wait for us. */
static void answer_others(struct shoali_p2p_world *world)
{
    bool done = false;
    size_t bytes = 0;
    if (!world->p2p->find_lost || world->p2p->test(&world->incoming_request, &done, &bytes) != 0 ||
        !done)
        return;
    if (bytes == sizeof world->incoming) {
        struct shoali_p2p_listener *sender = find_listener(world, world->incoming.from);
        if (sender)
            sender->done = true;
        acknowledge(world, &world->incoming);
    }
    (void)world->p2p->receive(world->comm, &world->incoming, sizeof world->incoming,
                              SHOALI_P2P_ANY_SOURCE, SHOALI_P2P_VERDICT_TAG,
                              &world->incoming_request);
}

/* The transport may need calls of this rank to bring them there; and where it only says that it has
 * taken a message, a process that ends may take it back. */
static void deliver(struct shoali_p2p_world *world)
{
    const int64_t deadline_ns = shoali_now_ns() + DELIVER_NS;
    for (int32_t i = 0; i < world->audience_count && world->p2p->find_lost; i++) {
        struct shoali_p2p_listener *listener = &world->audience[i];
        if (world->p2p->receive(world->comm, &world->received, 1, listener->rank,
                                SHOALI_P2P_RECEIVED_TAG, &listener->received) != 0)
            listener->done = true;
    }
    for (;;) {
        int32_t left = 0;
        advance(world);
        answer_others(world);
        for (int32_t i = 0; i < world->audience_count; i++)
            left += !is_told(world, &world->audience[i]);
        if (left == 0 || shoali_now_ns() > deadline_ns)
            return;
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    }
}

/* One that is gone needs no word; where the transport cannot tell who is, as MPI, mpirun ends them
 * all. */
static void warn_untold(const struct shoali_p2p_world *world, int32_t rank)
{
    if (world->p2p->find_lost && world->p2p->find_lost(world->comm, &rank, 1) < 0)
        SHOALI_WARN("comm", "rank %d could not be told of the failure", (int)rank);
}

/* `but`: who has told this rank, -1. */
static void tell(struct shoali_p2p_world *world, int32_t but)
{
    for (int32_t i = 0; i < world->audience_count; i++) {
        struct shoali_p2p_listener *to = &world->audience[i];
        if (to->rank != but &&
            world->p2p->send(world->comm, &world->verdict, sizeof world->verdict, to->rank,
                             SHOALI_P2P_VERDICT_TAG, &to->verdict) != 0)
            warn_untold(world, to->rank);
    }
}

void shoali_p2p_world_abort(struct shoali_p2p_world *world, int32_t rank, shoal_status status,
                            const char *sentence)
{
    struct shoali_p2p_verdict verdict = {
        .status = (int32_t)status, .rank = rank, .from = world->rank};
    snprintf(verdict.sentence, sizeof verdict.sentence, "%s", sentence);
    (void)shoali_p2p_world_aborted(world); /* another's that has come is the first */
    pthread_mutex_lock(&world->lock);
    const bool first = set_verdict(world, &verdict);
    pthread_mutex_unlock(&world->lock);
    if (!first)
        return;
    tell(world, -1);
    deliver(world);
}

bool shoali_p2p_world_aborted(struct shoali_p2p_world *world)
{
    bool done = false, passes_on = false;
    size_t bytes = 0;
    if (atomic_load(&world->aborted))
        return true;
    if (world->one_thread && !pthread_equal(pthread_self(), world->owner))
        return false; /* the owner looks */
    advance(world);
    pthread_mutex_lock(&world->lock);
    if (!atomic_load(&world->aborted) &&
        world->p2p->test(&world->incoming_request, &done, &bytes) == 0 && done &&
        bytes == sizeof world->incoming) {
        world->aborted_ns = shoali_now_ns();
        if (set_verdict(world, &world->incoming))
            acknowledge(world, &world->incoming);
        passes_on = world->audience_count < world->size - 1;
        world->verdict.from = world->rank;
    }
    pthread_mutex_unlock(&world->lock);
    if (passes_on)
        tell(world, world->incoming.from);
    return atomic_load(&world->aborted);
}

bool shoali_p2p_is_final(struct shoali_p2p_world *world, int32_t *looks)
{
    return shoali_p2p_world_aborted(world) &&
           (world->aborted_ns == 0 ||
            (++*looks > AWAY_LOOKS && shoali_now_ns() - world->aborted_ns > GRACE_NS));
}

shoal_status shoali_p2p_verdict(struct shoali_p2p_world *world)
{
    /* A transport takes what has come in order, a little with each call; the verdict is the
     * last. */
    const int64_t now_ns = shoali_now_ns();
    const bool was_away = now_ns - atomic_exchange(&world->looked_ns, now_ns) > AWAY_NS;
    for (int32_t i = 0; was_away && i < AWAY_LOOKS; i++)
        if (shoali_p2p_world_aborted(world))
            break;
    if (!shoali_p2p_world_aborted(world))
        return SHOAL_OK;
    const struct shoali_p2p_verdict *verdict = &world->verdict;
    if (verdict->rank >= 0 && verdict->rank != world->rank)
        return SHOAL_FAIL(SHOAL_EPEER, "rank %d failed: %s", (int)verdict->rank, verdict->sentence);
    return SHOAL_FAIL((shoal_status)verdict->status, "%s", verdict->sentence);
}

/* ---- joining -------------------------------------------------------------------------------- */

static void add_listener(struct shoali_p2p_world *world, int64_t distance)
{
    const int32_t rank =
        (int32_t)((world->rank + distance % world->size + world->size) % world->size);
    if (rank != world->rank && !find_listener(world, rank))
        world->audience[world->audience_count++].rank = rank;
}

static shoal_status list_audience(struct shoali_p2p_world *world)
{
    const bool all = world->size <= SHOALI_P2P_MAX_RANKS;
    const size_t most = all ? (size_t)world->size : 64;
    world->audience = shoali_calloc(most, sizeof *world->audience, "the group of all ranks");
    if (!world->audience)
        return SHOAL_ENOMEM;
    for (int64_t distance = 1; distance < world->size;
         distance = all ? distance + 1 : 2 * distance) {
        add_listener(world, distance);
        if (!all)
            add_listener(world, -distance);
    }
    return SHOAL_OK;
}

shoal_status shoali_p2p_world_create(const struct shoali_p2p_world_args *args,
                                     struct shoali_p2p_world **out)
{
    shoal_status status = SHOAL_OK;
    bool asked = false; /* the transport may write into the world from here on */
    struct shoali_p2p_world *world = shoali_calloc(1, sizeof *world, "the group of all ranks");
    *out = NULL;
    if (!world) {
        shoali_free(args->where);
        return SHOAL_ENOMEM;
    }
    pthread_mutex_init(&world->lock, NULL);
    world->p2p = args->p2p;
    world->comm = args->comm;
    world->rank = args->rank;
    world->size = args->size;
    world->largest_tag = args->largest_tag;
    world->one_thread = args->one_thread;
    world->where = args->where;
    world->forced = -1;
    world->references = 1;
    world->owner = pthread_self();
    world->timeout_ns = (int64_t)(args->timeout_s * 1e9);
    world->next_tag = SHOALI_P2P_FIRST_TAG + SHOALI_P2P_TAGS; /* the first is the world's group's */
    SHOAL_TRY(status, shoali_ops_select(NULL, NULL, &world->ops), done);
    SHOAL_TRY(status, list_audience(world), done);
    asked = true;
    SHOAL_TRY(status,
              shoali_p2p_receive(world, &world->incoming, sizeof world->incoming,
                                 SHOALI_P2P_ANY_SOURCE, SHOALI_P2P_VERDICT_TAG,
                                 &world->incoming_request),
              done);
    *out = world;
    return SHOAL_OK;
done:
    pthread_mutex_destroy(&world->lock);
    shoali_free(args->where);
    if (!asked) {
        shoali_free(world->audience);
        shoali_free(world);
    }
    return status;
}

void shoali_p2p_world_retain(struct shoali_p2p_world *world)
{
    pthread_mutex_lock(&world->lock);
    world->references++;
    pthread_mutex_unlock(&world->lock);
}

void shoali_p2p_world_release(struct shoali_p2p_world *world)
{
    pthread_mutex_lock(&world->lock);
    const int32_t left = --world->references;
    pthread_mutex_unlock(&world->lock);
    if (left > 0 || atomic_load(&world->aborted))
        return; /* what the transport may still write to and read from stays */
    world->p2p->cancel(&world->incoming_request);
    if (world->p2p->release(&world->comm) != 0)
        SHOALI_DEBUG("comm", "the transport cannot be released");
    while (world->pieces) {
        struct shoali_p2p_piece *piece = world->pieces;
        world->pieces = piece->next;
        free(piece);
    }
    pthread_mutex_destroy(&world->lock);
    shoali_free(world->where);
    shoali_free(world->audience);
    shoali_free(world);
}
