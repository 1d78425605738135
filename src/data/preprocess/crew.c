/* Threads that make pieces, and the caller who takes them in order.
 *
 * A ring of slots is between them. Slot n mod slots holds piece n from when it is read until it is
 * taken. Invariant under the mutex: taken <= begun <= taken + slots; a slot is "made" when its
 * piece may be taken. Reading has a mutex of its own, so that pieces are numbered in the order in
 * which they are read and nobody who takes has to wait for a slow input. */
#include "data/preprocess/preprocess.h"

#include "base/thread.h"

#include <pthread.h>
#include <string.h>

#define SLOTS_PER_WORKER 3
#define WORKERS_MAX 1024

struct slot {
    struct shoali_piece piece;
    bool made;
};

struct crew {
    const struct shoali_crew_args *args;
    struct shoali_context context;
    pthread_mutex_t reading, mutex;
    pthread_cond_t changed;
    struct slot *slot;
    int64_t slots, begun, taken;
    bool ended, stop; /* ended: nothing more will be begun */
};

struct worker {
    struct crew *crew;
    pthread_t thread;
    struct shoali_piece_tools tools;
};

static void fail_piece(struct shoali_piece *piece, shoal_status status)
{
    piece->status = status;
    piece->message[0] = '\0';
    strncat(piece->message, shoal_error_message(), sizeof piece->message - 1);
}

/* Reads the next piece into its slot; NULL: there is none. */
static struct slot *begin_piece(struct crew *crew)
{
    struct slot *slot = NULL;
    pthread_mutex_lock(&crew->reading);
    pthread_mutex_lock(&crew->mutex);
    while (!crew->stop && !crew->ended && crew->begun - crew->taken >= crew->slots)
        pthread_cond_wait(&crew->changed, &crew->mutex);
    if (!crew->stop && !crew->ended)
        slot = &crew->slot[crew->begun % crew->slots];
    pthread_mutex_unlock(&crew->mutex);
    if (slot) {
        const shoal_status status = shoali_line_input_next(crew->args->input, &slot->piece.text);
        slot->piece.status = SHOAL_OK;
        if (status < 0)
            fail_piece(&slot->piece, status);
        pthread_mutex_lock(&crew->mutex);
        slot->made = false;
        crew->ended = status != SHOAL_OK;
        crew->begun += status != SHOAL_END;
        pthread_cond_broadcast(&crew->changed);
        pthread_mutex_unlock(&crew->mutex);
        if (status == SHOAL_END)
            slot = NULL;
    }
    pthread_mutex_unlock(&crew->reading);
    return slot;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct crew *crew = worker->crew;
    *shoali_context_get() = crew->context;
    for (struct slot *slot = begin_piece(crew); slot; slot = begin_piece(crew)) {
        if (slot->piece.status == SHOAL_OK)
            shoali_piece_make(crew->args->task, crew->args->input, &worker->tools, &slot->piece);
        pthread_mutex_lock(&crew->mutex);
        slot->made = true;
        pthread_cond_broadcast(&crew->changed);
        pthread_mutex_unlock(&crew->mutex);
    }
    return NULL;
}

/* The next piece in order; NULL: all are taken. */
static struct slot *wait_for_piece(struct crew *crew)
{
    struct slot *slot = &crew->slot[crew->taken % crew->slots];
    pthread_mutex_lock(&crew->mutex);
    while (!(crew->taken < crew->begun && slot->made) &&
           !(crew->ended && crew->taken == crew->begun))
        pthread_cond_wait(&crew->changed, &crew->mutex);
    if (crew->taken == crew->begun)
        slot = NULL;
    pthread_mutex_unlock(&crew->mutex);
    return slot;
}

static shoal_status take_all(struct crew *crew)
{
    shoal_status status = SHOAL_OK;
    for (struct slot *slot = wait_for_piece(crew); slot; slot = wait_for_piece(crew)) {
        const struct shoali_piece *piece = &slot->piece;
        if (piece->status < 0)
            status = SHOAL_FAIL(piece->status, "%s", piece->message);
        else if (crew->args->take)
            status = crew->args->take(crew->args->user, piece);
        if (status < 0)
            return status;
        pthread_mutex_lock(&crew->mutex);
        slot->made = false;
        crew->taken++;
        pthread_cond_broadcast(&crew->changed);
        pthread_mutex_unlock(&crew->mutex);
    }
    return status;
}

static shoal_status start(struct crew *crew, struct worker *worker, int32_t count, int32_t *started)
{
    int error = 0;
    for (*started = 0; *started < count; ++*started) {
        worker[*started].crew = crew;
        error = shoali_fault("thread")
                    ? 11
                    : shoali_thread_start(&worker[*started].thread, work, &worker[*started]);
        if (error)
            break;
    }
    return *started > 0 ? SHOAL_OK
                        : SHOAL_FAIL(SHOAL_ENOMEM, "cannot start a thread: %s", strerror(error));
}

static void finish(struct crew *crew, struct worker *worker, int32_t started)
{
    pthread_mutex_lock(&crew->mutex);
    crew->stop = true;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->mutex);
    for (int32_t i = 0; i < started; i++) {
        pthread_join(worker[i].thread, NULL);
        const uint8_t *seen = worker[i].tools.seen;
        for (size_t b = 0; seen && b < SHOALI_CODE_POINTS / 8; b++)
            crew->args->seen[b] |= seen[b];
    }
}

static shoal_status make_tools(const struct shoali_crew_args *args, struct worker *worker,
                               int32_t count)
{
    for (int32_t i = 0; args->seen && i < count; i++) {
        worker[i].tools.seen = shoali_calloc(SHOALI_CODE_POINTS / 8, 1, "the set of code points");
        if (!worker[i].tools.seen)
            return SHOAL_ENOMEM;
    }
    return SHOAL_OK;
}

shoal_status shoali_crew_run(const struct shoali_crew_args *args)
{
    shoal_status status = SHOAL_ENOMEM;
    const int32_t wanted = args->workers > 0 ? args->workers : shoali_core_count();
    const int32_t count = wanted < WORKERS_MAX ? wanted : WORKERS_MAX;
    int32_t started = 0;
    struct crew crew = {
        .args = args, .context = *shoali_context_get(), .slots = SLOTS_PER_WORKER * (int64_t)count};
    struct worker *worker = shoali_calloc((size_t)count, sizeof *worker, "threads");
    crew.slot = shoali_calloc((size_t)crew.slots, sizeof *crew.slot, "pieces of the input");
    crew.context.scope = ""; /* borrowed from the caller's stack of scopes */
    pthread_mutex_init(&crew.reading, NULL);
    pthread_mutex_init(&crew.mutex, NULL);
    pthread_cond_init(&crew.changed, NULL);
    if (!worker || !crew.slot)
        goto done;
    SHOAL_TRY(status, make_tools(args, worker, count), done);
    SHOAL_TRY(status, start(&crew, worker, count, &started), done);
    SHOAL_TRY(status, take_all(&crew), done);
done:
    finish(&crew, worker, started);
    for (int32_t i = 0; worker && i < count; i++)
        shoali_piece_tools_fini(&worker[i].tools);
    for (int64_t i = 0; crew.slot && i < crew.slots; i++)
        shoali_piece_fini(&crew.slot[i].piece, args->task->key_count);
    pthread_cond_destroy(&crew.changed);
    pthread_mutex_destroy(&crew.mutex);
    pthread_mutex_destroy(&crew.reading);
    shoali_free(worker);
    shoali_free(crew.slot);
    return status;
}
