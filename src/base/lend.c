#include "base/lend.h"

#include "base/clock.h"

#include <sys/syscall.h>
#include <unistd.h>

enum { AWAY, WORKING, MOVING, MOVED };
enum { LEAST_LOOK_NS = 20000, STILL_PART = 8 }; /* who had less than an eighth of the time stands */

/* A pool's caller may be another thread each time, and may have the pthread_t of one that is
 * over. */
static void know(struct shoali_borrower *self)
{
    const int32_t tid = (int32_t)syscall(SYS_gettid); /* 0.1 us beside a launch */
    if (self->known && self->tid == tid)
        return;
    clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
    self->tid = tid;
    self->known = pthread_getcpuclockid(pthread_self(), &clock) == 0;
    atomic_store_explicit(&self->clock, clock, memory_order_relaxed);
}

void shoali_borrower_begin(struct shoali_borrower *self)
{
    know(self);
    if (self->known)
        atomic_store_explicit(&self->state, WORKING, memory_order_release);
}

bool shoali_borrower_end(struct shoali_borrower *self)
{
    uint32_t state = WORKING;
    return !atomic_compare_exchange_strong(&self->state, &state, AWAY) && state != AWAY;
}

/* The calling thread leaves `core` for the others of its set, which stays what it is. */
static void leave_core(const cpu_set_t *home, int core)
{
    cpu_set_t others = *home;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) > 0)
        (void)sched_setaffinity(0, sizeof others, &others);
}

void shoali_borrower_leave(struct shoali_borrower *self, bool stay)
{
    while (atomic_load_explicit(&self->state, memory_order_acquire) == MOVING)
        sched_yield();
    if (atomic_load_explicit(&self->state, memory_order_relaxed) == MOVED) {
        if (!stay)
            leave_core(&self->home, sched_getcpu());
        (void)sched_setaffinity(0, sizeof self->home, &self->home);
    }
    atomic_store_explicit(&self->state, AWAY, memory_order_release);
}

bool shoali_borrower_works(const struct shoali_borrower *borrower)
{
    return atomic_load_explicit(&borrower->state, memory_order_acquire) == WORKING;
}

static bool stands_still(const struct shoali_borrower *borrower, struct shoali_lend_sample *sample)
{
    struct timespec spent;
    const struct shoali_lend_sample before = *sample;
    const clockid_t clock = atomic_load_explicit(&borrower->clock, memory_order_relaxed);
    if (clock_gettime(clock, &spent) != 0)
        return false;
    sample->spent_ns = (int64_t)spent.tv_sec * 1000000000 + spent.tv_nsec;
    sample->seen_ns = shoali_now_ns();
    const int64_t passed = sample->seen_ns - before.seen_ns;
    return before.seen_ns != 0 && passed >= LEAST_LOOK_NS &&
           (sample->spent_ns - before.spent_ns) * STILL_PART < passed;
}

/* The borrower's set becomes the core of the calling thread, if that is in it and not all of it. */
static bool move_here(struct shoali_borrower *borrower, int core)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(core, &here);
    if (sched_getaffinity(borrower->tid, sizeof borrower->home, &borrower->home) != 0 ||
        !CPU_ISSET(core, &borrower->home) || CPU_COUNT(&borrower->home) < 2)
        return false;
    return sched_setaffinity(borrower->tid, sizeof here, &here) == 0;
}

bool shoali_lend(struct shoali_borrower *borrower, struct shoali_lend_sample *sample, bool leave)
{
    uint32_t state = WORKING;
    const int core = sched_getcpu();
    if (core < 0 || core >= CPU_SETSIZE || !shoali_borrower_works(borrower) ||
        !stands_still(borrower, sample) ||
        !atomic_compare_exchange_strong(&borrower->state, &state, MOVING))
        return false;
    cpu_set_t own;
    const bool moved = move_here(borrower, core);
    sample->seen_ns = 0;
    atomic_store_explicit(&borrower->state, moved ? MOVED : WORKING, memory_order_release);
    if (moved && leave && sched_getaffinity(0, sizeof own, &own) == 0) {
        leave_core(&own, core);
        (void)sched_setaffinity(0, sizeof own, &own);
    }
    return moved;
}
