/* The ranks of a job: joining, the verdict, pieces, and MPI's errors. */
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
    GRACE_NS = 100000000
};

static shoal_status fail_of_mpi(const struct shoali_mpi_world *world, const char *call, int code)
{
    char text[512];
    world->mpi->describe(code, text, sizeof text);
    return SHOAL_FAIL(SHOAL_EIO, "%s: %s failed: %s", world->mpi->name, call, text);
}

/* ---- MPI's calls ---------------------------------------------------------------------------- */

shoal_status shoali_mpi_send(struct shoali_mpi_world *world, const void *data, size_t bytes,
                             int32_t rank, int32_t tag, struct shoali_mpi_request *request)
{
    const int code = world->mpi->send(world->comm, data, bytes, rank, tag, request);
    return code ? fail_of_mpi(world, "MPI_Isend", code) : SHOAL_OK;
}

shoal_status shoali_mpi_receive(struct shoali_mpi_world *world, void *data, size_t bytes,
                                int32_t rank, int32_t tag, struct shoali_mpi_request *request)
{
    const int code = world->mpi->receive(world->comm, data, bytes, rank, tag, request);
    return code ? fail_of_mpi(world, "MPI_Irecv", code) : SHOAL_OK;
}

shoal_status shoali_mpi_test(struct shoali_mpi_world *world, struct shoali_mpi_request *request,
                             bool *done, size_t *bytes)
{
    const int code = world->mpi->test(request, done, bytes);
    return code ? fail_of_mpi(world, "MPI_Test", code) : SHOAL_OK;
}

/* ---- pieces --------------------------------------------------------------------------------- */

struct shoali_mpi_piece *shoali_mpi_take_piece(struct shoali_mpi_world *world)
{
    pthread_mutex_lock(&world->lock);
    struct shoali_mpi_piece *piece = world->pieces;
    if (piece)
        world->pieces = piece->next;
    pthread_mutex_unlock(&world->lock);
    if (!piece && !shoali_fault("alloc"))
        piece = aligned_alloc(64, sizeof *piece);
    if (!piece)
        (void)SHOAL_FAIL(SHOAL_ENOMEM, "no memory for a piece of %d bytes between the ranks",
                         SHOALI_MPI_PIECE_BYTES);
    return piece;
}

void shoali_mpi_put_piece(struct shoali_mpi_world *world, struct shoali_mpi_piece *piece)
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
static bool set_verdict(struct shoali_mpi_world *world, const struct shoali_mpi_verdict *verdict)
{
    if (atomic_load(&world->condemned))
        return false;
    world->verdict = *verdict;
    world->verdict.sentence[SHOALI_MPI_SENTENCE_BYTES - 1] = '\0';
    if (world->verdict.status >= 0 || world->verdict.rank >= world->size)
        world->verdict.status = SHOAL_EPEER; /* no verdict of this library */
    atomic_store(&world->condemned, true);
    return true;
}

/* MPI may need calls of this rank to bring them there. */
static void deliver(struct shoali_mpi_world *world)
{
    const int64_t deadline_ns = shoali_now_ns() + DELIVER_NS;
    for (;;) {
        int32_t left = 0;
        for (int32_t r = 0; r < world->size; r++) {
            bool done = true;
            if (r != world->rank &&
                world->mpi->test(&world->verdict_request[r], &done, NULL) == 0 && !done)
                left++;
        }
        if (left == 0 || shoali_now_ns() > deadline_ns)
            return;
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    }
}

void shoali_mpi_condemn(struct shoali_mpi_world *world, int32_t rank, shoal_status status,
                        const char *sentence)
{
    struct shoali_mpi_verdict verdict = {.status = (int32_t)status, .rank = rank};
    snprintf(verdict.sentence, sizeof verdict.sentence, "%s", sentence);
    (void)shoali_mpi_condemned(world); /* another's that has come is the first */
    pthread_mutex_lock(&world->lock);
    const bool first = set_verdict(world, &verdict);
    pthread_mutex_unlock(&world->lock);
    if (!first)
        return;
    for (int32_t r = 0; r < world->size; r++)
        if (r != world->rank &&
            world->mpi->send(world->comm, &world->verdict, sizeof world->verdict, r,
                             SHOALI_MPI_VERDICT_TAG, &world->verdict_request[r]) != 0)
            SHOALI_WARN("comm", "rank %d could not be told of the failure", (int)r);
    deliver(world);
}

bool shoali_mpi_condemned(struct shoali_mpi_world *world)
{
    bool done = false;
    size_t bytes = 0;
    if (atomic_load(&world->condemned))
        return true;
    pthread_mutex_lock(&world->lock);
    if (!atomic_load(&world->condemned) &&
        world->mpi->test(&world->incoming_request, &done, &bytes) == 0 && done &&
        bytes == sizeof world->incoming) {
        world->condemned_ns = shoali_now_ns();
        (void)set_verdict(world, &world->incoming);
    }
    pthread_mutex_unlock(&world->lock);
    return atomic_load(&world->condemned);
}

bool shoali_mpi_is_final(struct shoali_mpi_world *world, int32_t *looks)
{
    return shoali_mpi_condemned(world) &&
           (world->condemned_ns == 0 ||
            (++*looks > AWAY_LOOKS && shoali_now_ns() - world->condemned_ns > GRACE_NS));
}

shoal_status shoali_mpi_verdict(struct shoali_mpi_world *world)
{
    /* MPI takes what has come in order, a little with each call; the verdict is the last. */
    const int64_t now_ns = shoali_now_ns();
    const bool was_away = now_ns - atomic_exchange(&world->looked_ns, now_ns) > AWAY_NS;
    for (int32_t i = 0; was_away && i < AWAY_LOOKS; i++)
        if (shoali_mpi_condemned(world))
            break;
    if (!shoali_mpi_condemned(world))
        return SHOAL_OK;
    const struct shoali_mpi_verdict *verdict = &world->verdict;
    if (verdict->rank >= 0 && verdict->rank != world->rank)
        return SHOAL_FAIL(SHOAL_EPEER, "rank %d failed: %s", (int)verdict->rank, verdict->sentence);
    return SHOAL_FAIL((shoal_status)verdict->status, "%s", verdict->sentence);
}

/* ---- joining -------------------------------------------------------------------------------- */

static shoal_status check_world(const struct shoali_mpi_world *world)
{
    if (world->size > SHOALI_MPI_MAX_RANKS)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "backend mpi has at most %d ranks, not %d",
                          SHOALI_MPI_MAX_RANKS, (int)world->size);
    if (!world->serialized && !world->mpi->is_main_thread())
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "this program started %s without threads and uses it from another than "
                          "its main one: start it with MPI_Init_thread(..., "
                          "MPI_THREAD_SERIALIZED, ...)",
                          world->mpi->name);
    return SHOAL_OK;
}

/* Every rank of the communicator has to come. */
static shoal_status duplicate(struct shoali_mpi_world *world, bool job, int32_t handle)
{
    struct shoali_mpi_request request;
    const int64_t deadline_ns = shoali_deadline_ns(world->timeout_ns);
    bool done = false;
    int code = world->mpi->duplicate(job, handle, &world->comm, &request);
    if (code)
        return fail_of_mpi(world, "MPI_Comm_idup", code);
    for (int32_t looks = 0; !done; looks++) {
        code = world->mpi->test(&request, &done, NULL);
        if (code)
            return fail_of_mpi(world, "MPI_Comm_idup", code);
        if (!done && shoali_deadline_passed(deadline_ns))
            return SHOAL_FAIL(SHOAL_ETIMEOUT,
                              "not all ranks of the MPI communicator came within %.1f s: each has "
                              "to join",
                              (double)world->timeout_ns * 1e-9);
        if (!done && looks > 100)
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    }
    code = world->mpi->ready(world->comm, &world->rank, &world->size, &world->largest_tag);
    return code ? fail_of_mpi(world, "MPI_Comm_rank", code) : SHOAL_OK;
}

shoal_status shoali_mpi_world_create(const struct shoali_mpi_table *mpi, bool job, int32_t handle,
                                     double timeout_s, struct shoali_mpi_world **out)
{
    shoal_status status = SHOAL_OK;
    bool asked = false; /* MPI may write into the world from here on */
    struct shoali_mpi_world *world = shoali_calloc(1, sizeof *world, "a world of ranks");
    *out = NULL;
    if (!world)
        return SHOAL_ENOMEM;
    pthread_mutex_init(&world->lock, NULL);
    world->mpi = mpi;
    world->references = 1;
    world->owner = pthread_self();
    world->timeout_ns = (int64_t)(timeout_s * 1e9);
    world->next_tag = SHOALI_MPI_FIRST_TAG + SHOALI_MPI_TAGS; /* the first is the world's group's */
    SHOAL_TRY(status, shoali_ops_select(NULL, &world->ops), done);
    if (!job && !mpi->running()) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "MPI is not running: shoal_comm_from_mpi comes after "
                                          "MPI_Init and before MPI_Finalize");
        goto done;
    }
    const int code = mpi->start(&world->serialized);
    if (code) {
        status = fail_of_mpi(world, "MPI_Init_thread", code);
        goto done;
    }
    asked = true;
    SHOAL_TRY(status, duplicate(world, job, handle), done);
    SHOAL_TRY(status, check_world(world), done);
    SHOAL_TRY(status,
              shoali_mpi_receive(world, &world->incoming, sizeof world->incoming,
                                 SHOALI_MPI_ANY_SOURCE, SHOALI_MPI_VERDICT_TAG,
                                 &world->incoming_request),
              done);
    *out = world;
    return SHOAL_OK;
done:
    pthread_mutex_destroy(&world->lock);
    if (!asked)
        shoali_free(world);
    return status;
}

void shoali_mpi_world_retain(struct shoali_mpi_world *world)
{
    pthread_mutex_lock(&world->lock);
    world->references++;
    pthread_mutex_unlock(&world->lock);
}

void shoali_mpi_world_release(struct shoali_mpi_world *world)
{
    pthread_mutex_lock(&world->lock);
    const int32_t left = --world->references;
    pthread_mutex_unlock(&world->lock);
    if (left > 0 || atomic_load(&world->condemned))
        return; /* what MPI may still write to and read from stays */
    world->mpi->cancel(&world->incoming_request);
    if (world->mpi->release(&world->comm) != 0)
        SHOALI_DEBUG("comm", "MPI_Comm_free failed");
    while (world->pieces) {
        struct shoali_mpi_piece *piece = world->pieces;
        world->pieces = piece->next;
        free(piece);
    }
    pthread_mutex_destroy(&world->lock);
    shoali_free(world);
}
