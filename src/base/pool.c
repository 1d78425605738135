/* Each run is one increment of `epoch` (workers wait for it) and one countdown of `remaining` (the
 * caller waits for it). A worker enters a run by moving its `turn` on to that epoch; when nothing
 * is left to claim the caller moves on the turns of those that have not come yet, which then find
 * themselves excused. Epoch and countdown are C11 atomics that a futex may sleep on; a side makes
 * the wake-up system call only when the other has said that it sleeps. "I sleep, is there news?"
 * against "there is news, do you sleep?" needs sequential consistency: with less, both could read
 * the old answer.
 */
#include "base/pool.h"

#include "base/arena.h"
#include "base/caches.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/lend.h"
#include "base/scratch.h"
#include "base/str.h"
#include "base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    THREADS_MAX = 4096,
    SPIN_NS = 200000,       /* a step's serial parts are shorter, and a sleep costs a tenth of it */
    SPIN_NS_MIN = 1000,     /* a waiter whose spins never paid off still tries this long */
    POLITE_NS = 10000,      /* from then on a spin offers the core to whoever else wants it */
    SLOW_YIELD_NS = 100000, /* another program had the core for its turn */
    CROWDED_WAITS = 256,
    LOOKS_PER_CLOCK_READ = 32,
    LOOK_NS = 50000, /* of one who sleeps, at those that he waits for */
    CACHE_LINE_BYTES = 64,
    CACHE_BYTES = 32 << 20, /* where the system does not say */
};

/* What one side of the pool knows about waiting for the other. */
struct waiter {
    int64_t spin_ns; /* halved by each spin in vain, restored by a useful one */
    int32_t crowded_waits, waits_to_yield; /* 0: a spin may yield */
};

struct worker {
    _Alignas(CACHE_LINE_BYTES) struct shoali_pool *pool;
    pthread_t thread;
    int32_t index;
    _Atomic uint32_t turn; /* the last epoch that it entered, or was excused from */
    struct shoali_borrower borrower;
    struct shoali_lend_sample sample; /* the caller's, at this one */
};

/* What is claimed of a share. */
struct cursor {
    _Alignas(CACHE_LINE_BYTES) _Atomic int64_t next;
    int64_t end;
};

struct shoali_pool {
    int32_t threads, started; /* with the caller; workers running */
    int32_t core_count;
    struct worker *workers; /* [threads - 1] */
    struct cursor *cursors; /* [threads] */
    struct waiter caller;
    struct shoali_borrower borrower;  /* the caller */
    struct shoali_lend_sample sample; /* the first worker's, at the caller */
    uint64_t shuffle;
    int64_t cache_bytes;
    size_t scratch_bytes; /* that every worker has */
    shoali_pool_fn fn;    /* NULL: workers leave */
    void *arg;
    struct shoali_context context;
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t epoch;
    _Atomic uint32_t sleeping_workers, awake_workers;
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t remaining;
    _Atomic uint32_t caller_sleeps;
};

/* Threads of all ranks in this process that compute or spin. The one process-wide variable of
 * Shoal: spinning is polite or not depending on what the other ranks' pools do, which no rank's own
 * state can tell. It influences waiting only, never a result. */
static _Atomic int32_t awake_threads;

int32_t shoali_awake_threads(void)
{
    return atomic_load_explicit(&awake_threads, memory_order_relaxed);
}

void shoali_awake_threads_add(int32_t count)
{
    atomic_fetch_add(&awake_threads, count);
}

/* A worker that is awake has a caller who is awake too, or soon will be. */
static void worker_wakes(struct shoali_pool *pool)
{
    shoali_awake_threads_add(atomic_fetch_add(&pool->awake_workers, 1) == 0 ? 2 : 1);
}

static void worker_sleeps(struct shoali_pool *pool)
{
    shoali_awake_threads_add(atomic_fetch_sub(&pool->awake_workers, 1) == 1 ? -2 : -1);
}

void shoali_pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* timeout_ns 0: until it is woken. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, long timeout_ns)
{
    const struct timespec timeout = {.tv_nsec = timeout_ns};
    /* Every outcome (woken, changed, interrupted) leads back to a look at the word. */
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout_ns > 0 ? &timeout : NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static bool reached(const _Atomic uint32_t *word, uint32_t value, bool equal)
{
    return (atomic_load_explicit(word, memory_order_acquire) == value) == equal;
}

/* Whoever is waited for may need this core. Where another program wants it, a yield gives that one
 * a whole turn, and again at the next wait: then it is only tried after twice as many waits. */
static void let_others_run(struct waiter *waiter)
{
    const int64_t begin = shoali_now_ns();
    sched_yield();
    if (shoali_now_ns() - begin < SLOW_YIELD_NS)
        return;
    const int32_t doubled = 2 * waiter->crowded_waits + 16;
    waiter->crowded_waits = doubled < CROWDED_WAITS ? doubled : CROWDED_WAITS;
    waiter->waits_to_yield = waiter->crowded_waits;
}

/* Spins for a bounded time until (*word == value) is `equal`; false when the caller has to sleep.
 */
static bool spin(const struct shoali_pool *pool, struct waiter *waiter,
                 const _Atomic uint32_t *word, uint32_t value, bool equal)
{
    if (reached(word, value, equal))
        return true;
    const int64_t begin = shoali_now_ns();
    int64_t spent = 0;
    if (waiter->waits_to_yield > 0)
        waiter->waits_to_yield--;
    else
        waiter->crowded_waits -= waiter->crowded_waits / 4;
    while (spent < waiter->spin_ns && shoali_awake_threads() <= pool->core_count) {
        for (int look = 0; look < LOOKS_PER_CLOCK_READ; look++) {
            if (reached(word, value, equal)) {
                waiter->spin_ns = SPIN_NS;
                return true;
            }
            shoali_pause_core();
        }
        spent = shoali_now_ns() - begin;
        if (spent > POLITE_NS && waiter->waits_to_yield == 0)
            let_others_run(waiter);
    }
    if (spent < waiter->spin_ns)
        return false;
    /* Ranks that are other processes are not counted: where they own the cores, spins fail. */
    waiter->spin_ns = waiter->spin_ns / 2 > SPIN_NS_MIN ? waiter->spin_ns / 2 : SPIN_NS_MIN;
    return false;
}

/* How long a worker sleeps that has nothing to do, of the caller's run or after it. One of them
 * looks after the caller; with more threads than cores a core that is free has takers. */
static long idle_ns(struct shoali_pool *pool, const struct worker *self)
{
    if (self->index != 1 || shoali_awake_threads() > pool->core_count ||
        !shoali_borrower_works(&pool->borrower))
        return 0;
    (void)shoali_lend(&pool->borrower, &pool->sample, true);
    return LOOK_NS;
}

/* The same for the caller and those of a run that are still at work. */
static long late_ns(struct shoali_pool *pool)
{
    if (shoali_awake_threads() > pool->core_count)
        return 0;
    for (int32_t i = 0; i < pool->started; i++)
        if (shoali_lend(&pool->workers[i].borrower, &pool->workers[i].sample, false))
            break;
    return LOOK_NS;
}

/* Waits for the run after `seen`. */
static void wait_for_run(struct shoali_pool *pool, struct worker *self, struct waiter *waiter,
                         uint32_t seen)
{
    if (spin(pool, waiter, &pool->epoch, seen, false))
        return;
    worker_sleeps(pool);
    atomic_fetch_add(&pool->sleeping_workers, 1);
    if (self->index == 1)
        pool->sample.seen_ns = 0;
    while (atomic_load(&pool->epoch) == seen)
        futex_wait(&pool->epoch, seen, idle_ns(pool, self));
    atomic_fetch_sub(&pool->sleeping_workers, 1);
    worker_wakes(pool);
}

static void wait_for_workers(struct shoali_pool *pool)
{
    if (spin(pool, &pool->caller, &pool->remaining, 0, true))
        return;
    atomic_store(&pool->caller_sleeps, 1);
    for (int32_t i = 0; i < pool->started; i++)
        pool->workers[i].sample.seen_ns = 0;
    for (uint32_t left; (left = atomic_load(&pool->remaining)) != 0;)
        futex_wait(&pool->remaining, left, late_ns(pool));
    atomic_store(&pool->caller_sleeps, 0);
}

static void *work(void *arg)
{
    struct worker *self = arg;
    struct shoali_pool *pool = self->pool;
    struct waiter waiter = {.spin_ns = SPIN_NS};
    shoali_fp_enter();
    worker_wakes(pool);
    for (uint32_t seen = 0;;) {
        wait_for_run(pool, self, &waiter, seen);
        seen = atomic_load(&pool->epoch);
        uint32_t before = seen - 1;
        if (!atomic_compare_exchange_strong(&self->turn, &before, seen))
            continue;
        shoali_pool_fn fn = pool->fn;
        if (!fn)
            break;
        *shoali_context_get() = pool->context;
        shoali_borrower_begin(&self->borrower);
        fn(pool->arg, self->index, pool->threads);
        const bool moved = shoali_borrower_end(&self->borrower);
        if (atomic_fetch_sub(&pool->remaining, 1) == 1 && atomic_load(&pool->caller_sleeps))
            futex_wake_all(&pool->remaining);
        if (moved)
            shoali_borrower_leave(&self->borrower, false);
    }
    worker_sleeps(pool);
    return NULL;
}

/* Lets all workers call `fn`, or leave when it is NULL. */
static void dispatch(struct shoali_pool *pool, shoali_pool_fn fn, void *arg)
{
    pool->fn = fn;
    pool->arg = arg;
    pool->context = *shoali_context_get();
    atomic_store_explicit(&pool->remaining, (uint32_t)pool->started, memory_order_relaxed);
    atomic_fetch_add(&pool->epoch, 1);
    if (atomic_load(&pool->sleeping_workers) > 0)
        futex_wake_all(&pool->epoch);
}

void shoali_pool_run(struct shoali_pool *pool, shoali_pool_fn fn, void *arg)
{
    if (!pool || pool->threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    dispatch(pool, fn, arg);
    fn(arg, 0, pool->threads);
    wait_for_workers(pool);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A permutation of [0, count) that the seed chooses: a multiple plus an offset, modulo count. */
static int64_t shuffled(uint64_t seed, int64_t piece, int64_t count)
{
    if (seed == 0 || count > INT32_MAX)
        return piece;
    int64_t factor = (int64_t)(seed % (uint64_t)count);
    while (greatest_divisor(factor, count) != 1)
        factor++;
    return (piece * (factor % count) + (int64_t)((seed >> 32) % (uint64_t)count)) % count;
}

static bool claim_alone(struct shoali_claim *claim)
{
    const struct shoali_pieces *pieces = claim->pieces;
    while (claim->next >= claim->end) {
        if (++claim->share >= pieces->shares)
            return false;
        claim->next = 0;
        claim->end = pieces->count(pieces->arg, claim->share, pieces->shares);
    }
    claim->piece = claim->next++;
    return true;
}

bool shoali_claim_next(struct shoali_claim *claim)
{
    struct shoali_pool *pool = claim->pool;
    if (!pool)
        return claim_alone(claim);
    for (; claim->visited < claim->pieces->shares; claim->visited++) {
        struct cursor *cursor = &pool->cursors[claim->share];
        /* The look spares a counter at its end the additions of all who pass by. */
        if (atomic_load_explicit(&cursor->next, memory_order_relaxed) < cursor->end) {
            const int64_t at = atomic_fetch_add_explicit(&cursor->next, 1, memory_order_relaxed);
            if (at < cursor->end) {
                claim->piece = shuffled(pool->shuffle, at, cursor->end);
                return true;
            }
        }
        claim->share = claim->share + 1 < claim->pieces->shares ? claim->share + 1 : 0;
    }
    return false;
}

struct pieces_run {
    struct shoali_pool *pool;
    const struct shoali_pieces *pieces;
};

static void work_on_pieces(void *arg, int32_t index, int32_t count)
{
    const struct pieces_run *run = arg;
    struct shoali_claim claim = {
        .index = index, .threads = count, .pieces = run->pieces, .pool = run->pool};
    claim.share = (int32_t)(((uint64_t)index + run->pool->shuffle) % (uint64_t)run->pieces->shares);
    run->pieces->work(run->pieces->arg, &claim);
}

/* Those that have not come have claimed nothing, and nothing is left for them. */
static void excuse_workers(struct shoali_pool *pool)
{
    const uint32_t epoch = atomic_load_explicit(&pool->epoch, memory_order_relaxed);
    for (int32_t i = 0; i < pool->started; i++) {
        uint32_t before = epoch - 1;
        if (atomic_load_explicit(&pool->workers[i].turn, memory_order_relaxed) == before &&
            atomic_compare_exchange_strong(&pool->workers[i].turn, &before, epoch))
            atomic_fetch_sub(&pool->remaining, 1);
    }
}

static void take_scratch(void *arg, int32_t index, int32_t count)
{
    const size_t *bytes = arg;
    (void)count;
    if (index > 0)                    /* not the caller */
        (void)shoali_scratch(*bytes); /* where it fails, the kernel asks again and does without */
}

/* The caller works on every run, so it has asked for what a worker that came too late may need next
 * time. */
static void share_scratch(struct shoali_pool *pool)
{
    size_t bytes = shoali_scratch_asked();
    if (bytes <= pool->scratch_bytes)
        return;
    pool->scratch_bytes = bytes;
    shoali_pool_run(pool, take_scratch, &bytes);
}

void shoali_pool_run_pieces(struct shoali_pool *pool, const struct shoali_pieces *given)
{
    struct shoali_pieces pieces = *given;
    if (pieces.shares == 0)
        pieces.shares = shoali_pool_threads(pool);
    SHOAL_ASSERT(pieces.shares > 0 && (!pool || pieces.shares <= pool->threads));
    if (!pool || pool->threads == 1) {
        struct shoali_claim claim = {.threads = 1, .share = -1, .pieces = &pieces};
        pieces.work(pieces.arg, &claim);
        return;
    }
    struct pieces_run run = {pool, &pieces};
    for (int32_t i = 0; i < pieces.shares; i++) {
        atomic_store_explicit(&pool->cursors[i].next, 0, memory_order_relaxed);
        pool->cursors[i].end = pieces.count(pieces.arg, i, pieces.shares);
    }
    shoali_borrower_begin(&pool->borrower);
    dispatch(pool, work_on_pieces, &run);
    work_on_pieces(&run, 0, pool->threads);
    if (shoali_borrower_end(&pool->borrower))
        shoali_borrower_leave(&pool->borrower, true);
    excuse_workers(pool);
    wait_for_workers(pool);
    share_scratch(pool);
}

void shoali_pool_shuffle(struct shoali_pool *pool, uint64_t seed)
{
    pool->shuffle = seed;
}

int64_t shoali_pool_cache_bytes(const struct shoali_pool *pool)
{
    if (pool && pool->shuffle != 0)
        return 0;
    return pool ? pool->cache_bytes : CACHE_BYTES;
}

/* Of as many last-level caches as so many threads fill, side by side: an estimate, since where they
 * run is the system's affair. sysconf is not asked: of a processor with several it says what they
 * have together. A virtual machine may not tell of the third level. */
static int64_t cache_bytes(int32_t threads)
{
    const struct shoali_cache last = shoali_caches_get()->last;
    const int64_t caches = (threads - 1) / last.cores + 1, bytes = last.bytes * caches;
    return last.level >= 3 || bytes > CACHE_BYTES ? bytes : CACHE_BYTES;
}

static shoal_status start_workers(struct shoali_pool *pool)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < pool->threads - 1 && status == SHOAL_OK; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){.pool = pool, .index = i + 1};
        const int refused =
            shoali_fault("thread") ? EAGAIN : shoali_thread_start(&worker->thread, work, worker);
        if (refused) {
            status = SHOAL_FAIL(SHOAL_EIO,
                                "cannot start thread %d of %d: %s; lower SHOAL_NUM_THREADS or "
                                "raise the limit of processes (ulimit -u)",
                                (int)i + 1, (int)pool->threads, strerror(refused));
        } else {
            pthread_setname_np(worker->thread, "shoal-pool");
            pool->started++;
        }
    }
    return status;
}

/* A variable's thread count; 0 when it is not set. OMP_NUM_THREADS may list one per nesting level.
 */
static shoal_status threads_from(const char *variable, int32_t *threads)
{
    char first[32];
    int64_t value;
    const char *text = getenv(variable);
    *threads = 0;
    if (!text || !*text)
        return SHOAL_OK;
    size_t length = strcspn(text, ",");
    if (length < sizeof(first)) {
        memcpy(first, text, length);
        first[length] = '\0';
        if (shoali_parse_i64(first, &value) && value >= 1 && value <= THREADS_MAX) {
            *threads = (int32_t)value;
            return SHOAL_OK;
        }
    }
    return SHOAL_FAIL(SHOAL_ECONFIG, "%s=\"%s\" is not a number of threads: give 1 to %d", variable,
                      text, THREADS_MAX);
}

bool shoali_pool_threads_given(void)
{
    const char *ours = getenv("SHOAL_NUM_THREADS"), *theirs = getenv("OMP_NUM_THREADS");
    return (ours && *ours) || (theirs && *theirs);
}

shoal_status shoali_pool_choose_threads(int32_t *threads)
{
    shoal_status status = SHOAL_OK;
    if (*threads <= 0)
        SHOAL_TRY(status, threads_from("SHOAL_NUM_THREADS", threads), done);
    if (*threads <= 0)
        SHOAL_TRY(status, threads_from("OMP_NUM_THREADS", threads), done);
    if (*threads <= 0)
        *threads = shoali_core_count();
    if (*threads > THREADS_MAX)
        status = SHOAL_FAIL(SHOAL_EINVAL, "a pool of %d threads is too large: give 1 to %d",
                            (int)*threads, THREADS_MAX);
done:
    return status;
}

/* Of whole cache lines, which no two threads write to. */
static shoal_status make_workers(struct shoali_pool *pool)
{
    const size_t workers = (size_t)pool->threads - 1;
    const size_t cursors = (size_t)pool->threads;
    if (!shoali_fault("alloc"))
        pool->workers = aligned_alloc(CACHE_LINE_BYTES, workers * sizeof *pool->workers);
    if (!shoali_fault("alloc"))
        pool->cursors = aligned_alloc(CACHE_LINE_BYTES, cursors * sizeof *pool->cursors);
    if (!pool->workers || !pool->cursors)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the %d threads of a pool",
                          (int)pool->threads);
    memset(pool->workers, 0, workers * sizeof *pool->workers);
    memset(pool->cursors, 0, cursors * sizeof *pool->cursors);
    return SHOAL_OK;
}

shoal_status shoali_pool_create(int32_t threads, struct shoali_pool **pool_out)
{
    shoal_status status;
    struct shoali_pool *pool = NULL;
    SHOAL_TRY(status, shoali_pool_choose_threads(&threads), done);
    pool = shoali_fault("alloc") ? NULL : aligned_alloc(CACHE_LINE_BYTES, sizeof(*pool));
    if (!pool) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a thread pool");
        goto done;
    }
    *pool = (struct shoali_pool){.threads = threads,
                                 .core_count = shoali_core_count(),
                                 .caller = {.spin_ns = SPIN_NS},
                                 .cache_bytes = cache_bytes(threads)};
    if (threads == 1)
        shoali_awake_threads_add(1);
    if (threads > 1) {
        SHOAL_TRY(status, make_workers(pool), done);
        SHOAL_TRY(status, start_workers(pool), done);
    }
    *pool_out = pool;
    pool = NULL;
done:
    shoali_pool_destroy(pool);
    return status;
}

void shoali_pool_destroy(struct shoali_pool *pool)
{
    if (!pool)
        return;
    if (pool->started > 0)
        dispatch(pool, NULL, NULL);
    for (int32_t i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    if (pool->threads == 1)
        shoali_awake_threads_add(-1);
    free(pool->workers);
    free(pool->cursors);
    free(pool);
}

int32_t shoali_pool_threads(const struct shoali_pool *pool)
{
    return pool ? pool->threads : 1;
}

void shoali_pool_slice(int64_t n, int64_t grain, int32_t index, int32_t count, int64_t *begin,
                       int64_t *end)
{
    SHOAL_ASSERT(n >= 0 && grain > 0 && index >= 0 && index < count);
    int64_t pieces = n / grain + (n % grain != 0);
    int64_t each = pieces / count, extra = pieces % count;
    int64_t first = index * each + (index < extra ? index : extra);
    int64_t last = first + each + (index < extra);
    /* The last piece may be short; its end is n, which first*grain never exceeds otherwise. */
    *begin = first < pieces ? first * grain : n;
    *end = last < pieces ? last * grain : n;
}

static int32_t allowed_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    /* More cores than a cpu_set_t has bits. */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < INT32_MAX ? (int32_t)online : 1;
}

int32_t shoali_core_count(void)
{
    return shoali_cgroup_limit_cores(allowed_cores(), shoali_cgroup_cpus(""));
}
