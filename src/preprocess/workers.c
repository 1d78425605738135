/* Threads that make pieces, and the caller who takes them in order.
 *
 * A ring of slots is between them. Slot n mod slots holds piece n from when it is read until it is
 * taken. Invariant under the mutex: taken <= begun <= taken + slots; a slot is "made" when its
 * piece may be taken. Reading has a mutex of its own, so that pieces are numbered in the order in
 * which they are read and nobody who takes has to wait for a slow input. */
#include "preprocess/preprocess.h"

#include "base/thread.h"

#include <pthread.h>
#include <string.h>

#define SLOTS_PER_WORKER 3
#define WORKERS_MAX 1024

struct slot {
    struct shoali_piece piece;
    bool made;
};

struct workers {
    const struct shoali_workers_args *args;
    struct shoali_context context;
    pthread_mutex_t reading, mutex;
    pthread_cond_t changed;
    struct slot *slot;
    int64_t slots, begun, taken;
    bool ended, stop; /* ended: nothing more will be begun */
};

struct worker {
    struct workers *workers;
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
static struct slot *begin_piece(struct workers *workers)
{
    struct slot *slot = NULL;
    pthread_mutex_lock(&workers->reading);
    pthread_mutex_lock(&workers->mutex);
    while (!workers->stop && !workers->ended && workers->begun - workers->taken >= workers->slots)
        pthread_cond_wait(&workers->changed, &workers->mutex);
    if (!workers->stop && !workers->ended)
        slot = &workers->slot[workers->begun % workers->slots];
    pthread_mutex_unlock(&workers->mutex);
    if (slot) {
        const shoal_status status = shoali_line_input_next(workers->args->input, &slot->piece.text);
        slot->piece.status = SHOAL_OK;
        if (status < 0)
            fail_piece(&slot->piece, status);
        pthread_mutex_lock(&workers->mutex);
        slot->made = false;
        workers->ended = status != SHOAL_OK;
        workers->begun += status != SHOAL_END;
        pthread_cond_broadcast(&workers->changed);
        pthread_mutex_unlock(&workers->mutex);
        if (status == SHOAL_END)
            slot = NULL;
    }
    pthread_mutex_unlock(&workers->reading);
    return slot;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct workers *workers = worker->workers;
    *shoali_context_get() = workers->context;
    for (struct slot *slot = begin_piece(workers); slot; slot = begin_piece(workers)) {
        if (slot->piece.status == SHOAL_OK)
            shoali_piece_make(workers->args->task, workers->args->input, &worker->tools,
                              &slot->piece);
        pthread_mutex_lock(&workers->mutex);
        slot->made = true;
        pthread_cond_broadcast(&workers->changed);
        pthread_mutex_unlock(&workers->mutex);
    }
    return NULL;
}

/* The next piece in order; NULL: all are taken. */
static struct slot *wait_for_piece(struct workers *workers)
{
    struct slot *slot = &workers->slot[workers->taken % workers->slots];
    pthread_mutex_lock(&workers->mutex);
    while (!(workers->taken < workers->begun && slot->made) &&
           !(workers->ended && workers->taken == workers->begun))
        pthread_cond_wait(&workers->changed, &workers->mutex);
    if (workers->taken == workers->begun)
        slot = NULL;
    pthread_mutex_unlock(&workers->mutex);
    return slot;
}

static shoal_status take_all(struct workers *workers)
{
    shoal_status status = SHOAL_OK;
    for (struct slot *slot = wait_for_piece(workers); slot; slot = wait_for_piece(workers)) {
        const struct shoali_piece *piece = &slot->piece;
        if (piece->status < 0)
            status = SHOAL_FAIL(piece->status, "%s", piece->message);
        else if (workers->args->take)
            status = workers->args->take(workers->args->user, piece);
        if (status < 0)
            return status;
        pthread_mutex_lock(&workers->mutex);
        slot->made = false;
        workers->taken++;
        pthread_cond_broadcast(&workers->changed);
        pthread_mutex_unlock(&workers->mutex);
    }
    return status;
}

static shoal_status start(struct workers *workers, struct worker *worker, int32_t count,
                          int32_t *started)
{
    int error = 0;
    for (*started = 0; *started < count; ++*started) {
        worker[*started].workers = workers;
        error = shoali_fault("thread")
                    ? 11
                    : shoali_thread_start(&worker[*started].thread, work, &worker[*started]);
        if (error)
            break;
    }
    return *started > 0 ? SHOAL_OK
                        : SHOAL_FAIL(SHOAL_ENOMEM, "cannot start a thread: %s", strerror(error));
}

static void finish(struct workers *workers, struct worker *worker, int32_t started)
{
    pthread_mutex_lock(&workers->mutex);
    workers->stop = true;
    pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->mutex);
    for (int32_t i = 0; i < started; i++) {
        pthread_join(worker[i].thread, NULL);
        const uint8_t *seen = worker[i].tools.seen;
        for (size_t b = 0; seen && b < SHOALI_CODE_POINTS / 8; b++)
            workers->args->seen[b] |= seen[b];
    }
}

static shoal_status make_tools(const struct shoali_workers_args *args, struct worker *worker,
                               int32_t count)
{
    for (int32_t i = 0; args->seen && i < count; i++) {
        worker[i].tools.seen = shoali_calloc(SHOALI_CODE_POINTS / 8, 1, "the set of code points");
        if (!worker[i].tools.seen)
            return SHOAL_ENOMEM;
    }
    return SHOAL_OK;
}

shoal_status shoali_workers_run(const struct shoali_workers_args *args)
{
    shoal_status status = SHOAL_ENOMEM;
    const int32_t wanted = args->workers > 0 ? args->workers : shoali_core_count();
    const int32_t count = wanted < WORKERS_MAX ? wanted : WORKERS_MAX;
    int32_t started = 0;
    struct workers workers = {
        .args = args, .context = *shoali_context_get(), .slots = SLOTS_PER_WORKER * (int64_t)count};
    struct worker *worker = shoali_calloc((size_t)count, sizeof *worker, "threads");
    workers.slot =
        shoali_calloc((size_t)workers.slots, sizeof *workers.slot, "pieces of the input");
    workers.context.scope = ""; /* borrowed from the caller's stack of scopes */
    pthread_mutex_init(&workers.reading, NULL);
    pthread_mutex_init(&workers.mutex, NULL);
    pthread_cond_init(&workers.changed, NULL);
    if (!worker || !workers.slot)
        goto done;
    SHOAL_TRY(status, make_tools(args, worker, count), done);
    SHOAL_TRY(status, start(&workers, worker, count, &started), done);
    SHOAL_TRY(status, take_all(&workers), done);
done:
    finish(&workers, worker, started);
    for (int32_t i = 0; worker && i < count; i++)
        shoali_piece_tools_fini(&worker[i].tools);
    for (int64_t i = 0; workers.slot && i < workers.slots; i++)
        shoali_piece_fini(&workers.slot[i].piece, args->task->key_count);
    pthread_cond_destroy(&workers.changed);
    pthread_mutex_destroy(&workers.mutex);
    pthread_mutex_destroy(&workers.reading);
    shoali_free(worker);
    shoali_free(workers.slot);
    return status;
}
