/* Two counters that only grow: `posted`, moved by the owner, and `finished`, moved by the worker;
 * the jobs between lie in a ring. A side that sleeps says so first and looks again, as in pool.c.
 */
#include "base/worker.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/pool.h"
#include "base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPIN_NS = 20000, LOOKS_PER_CLOCK_READ = 32, SENTENCE_BYTES = 1024, CACHE_LINE_BYTES = 64 };

struct job {
    shoali_worker_fn fn; /* NULL: leave */
    struct shoali_context context;
    _Alignas(16) unsigned char argument[SHOALI_WORKER_JOB_BYTES];
};

/* A counter, and whether somebody sleeps until it moves. */
struct side {
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t count;
    _Atomic uint32_t sleeper;
};

struct shoali_worker {
    pthread_t thread;
    bool started;
    int32_t core_count;
    struct job job[SHOALI_WORKER_DEPTH];
    struct side posted, finished;
    _Atomic uint32_t failed; /* the two below are valid */
    shoal_status failure;
    char sentence[SENTENCE_BYTES];
};

static void move_on(struct side *side)
{
    atomic_fetch_add(&side->count, 1);
    if (atomic_load(&side->sleeper))
        syscall(SYS_futex, &side->count, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool has_reached(const struct side *side, uint32_t count)
{
    return (int32_t)(atomic_load(&side->count) - count) >= 0;
}

static bool spin(const struct shoali_worker *worker, const struct side *side, uint32_t count)
{
    if (has_reached(side, count))
        return true;
    if (shoali_awake_threads() > worker->core_count)
        return false;
    const int64_t deadline = shoali_now_ns() + SPIN_NS;
    do {
        for (int look = 0; look < LOOKS_PER_CLOCK_READ; look++) {
            if (has_reached(side, count))
                return true;
            shoali_pause_core();
        }
    } while (shoali_now_ns() < deadline);
    return false;
}

static void sleep_until(struct side *side, uint32_t count)
{
    atomic_store(&side->sleeper, 1);
    for (uint32_t now; now = atomic_load(&side->count), (int32_t)(now - count) < 0;)
        syscall(SYS_futex, &side->count, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
    atomic_store(&side->sleeper, 0);
}

static void await(const struct shoali_worker *worker, struct side *side, uint32_t count)
{
    if (!spin(worker, side, count))
        sleep_until(side, count);
}

static void await_job(struct shoali_worker *worker, uint32_t next)
{
    if (spin(worker, &worker->posted, next))
        return;
    shoali_awake_threads_add(-1);
    sleep_until(&worker->posted, next);
    shoali_awake_threads_add(1);
}

static void run(struct shoali_worker *worker, const struct job *job)
{
    if (atomic_load(&worker->failed))
        return;
    *shoali_context_get() = job->context;
    worker->failure = job->fn(job->argument);
    if (worker->failure >= 0)
        return;
    strncat(worker->sentence, shoal_error_message(), SENTENCE_BYTES - 1);
    atomic_store(&worker->failed, 1);
}

static void *work(void *arg)
{
    struct shoali_worker *worker = arg;
    shoali_fp_enter();
    shoali_awake_threads_add(1);
    for (uint32_t next = 1;; next++) {
        await_job(worker, next);
        const struct job *job = &worker->job[next % SHOALI_WORKER_DEPTH];
        if (!job->fn)
            break;
        run(worker, job);
        move_on(&worker->finished);
    }
    shoali_awake_threads_add(-1);
    return NULL;
}

static shoal_status start(struct shoali_worker *worker)
{
    const int refused =
        shoali_fault("thread") ? EAGAIN : shoali_thread_start(&worker->thread, work, worker);
    if (refused)
        return SHOAL_FAIL(SHOAL_EIO,
                          "cannot start a thread: %s; raise the limit of processes (ulimit -u)",
                          strerror(refused));
    worker->started = true;
    return SHOAL_OK;
}

shoal_status shoali_worker_create(struct shoali_worker **out)
{
    shoal_status status = SHOAL_ENOMEM;
    struct shoali_worker *worker =
        shoali_fault("alloc") ? NULL : aligned_alloc(CACHE_LINE_BYTES, sizeof *worker);
    *out = NULL;
    if (!worker)
        return SHOAL_FAIL(status, "cannot allocate a worker");
    *worker = (struct shoali_worker){.core_count = shoali_core_count()};
    SHOAL_TRY(status, start(worker), done);
    *out = worker;
    worker = NULL;
done:
    shoali_worker_destroy(worker);
    return status;
}

static uint32_t push(struct shoali_worker *worker, shoali_worker_fn fn, const void *argument,
                     size_t bytes)
{
    const uint32_t ticket = atomic_load(&worker->posted.count) + 1;
    struct job *job = &worker->job[ticket % SHOALI_WORKER_DEPTH];
    await(worker, &worker->finished, ticket - SHOALI_WORKER_DEPTH);
    job->fn = fn;
    job->context = *shoali_context_get();
    job->context.scope = ""; /* the poster's scope may end before the job runs */
    if (bytes > 0)
        memcpy(job->argument, argument, bytes);
    move_on(&worker->posted);
    return ticket;
}

void shoali_worker_destroy(struct shoali_worker *worker)
{
    if (!worker)
        return;
    if (worker->started) {
        push(worker, NULL, NULL, 0);
        pthread_join(worker->thread, NULL);
    }
    free(worker);
}

static shoal_status verdict(const struct shoali_worker *worker)
{
    return atomic_load(&worker->failed) ? SHOAL_FAIL(worker->failure, "%s", worker->sentence)
                                        : SHOAL_OK;
}

shoal_status shoali_worker_post(struct shoali_worker *worker, shoali_worker_fn fn, const void *job,
                                size_t bytes, uint32_t *ticket)
{
    SHOAL_ASSERT(fn && bytes <= SHOALI_WORKER_JOB_BYTES);
    const uint32_t given = push(worker, fn, job, bytes);
    if (ticket)
        *ticket = given;
    return verdict(worker);
}

shoal_status shoali_worker_wait(struct shoali_worker *worker, uint32_t ticket)
{
    await(worker, &worker->finished, ticket);
    return verdict(worker);
}
