/* pool - the rank's own threads.
 *
 * One pool per rank, owned by the engine (or the tool). run() calls fn(arg, index, count) once on
 * every thread, index 0 on the caller, and returns when all are done. Work is split statically by
 * shoali_pool_slice, so what a thread computes is a function of (n, index, count) alone; kernels
 * split outputs, never a sum. Waiting is a bounded spin (skipped when more threads of the process
 * are awake than there are cores), then a futex. No OpenMP: ThreadSanitizer sees all of it. Workers
 * block all signals, inherit the caller's context per run and set the floating-point environment
 * (round to nearest, denormals kept) at start. A pool of 1 thread makes no thread at all.
 * run() is not reentrant and is called by the owner thread only. Fault point "thread" makes the
 * start of a thread fail.
 */
#ifndef SHOALI_POOL_H
#define SHOALI_POOL_H

#include "base/error.h"

#include <stdint.h>

struct shoali_pool;
typedef void (*shoali_pool_fn)(void *arg, int32_t index, int32_t count);

/* threads <= 0: SHOAL_NUM_THREADS, else OMP_NUM_THREADS, else the cores this process may run on. */
SHOAL_CHECKED shoal_status shoali_pool_create(int32_t threads, struct shoali_pool **pool);
void shoali_pool_destroy(struct shoali_pool *pool);
/* 1 for a NULL pool. */
int32_t shoali_pool_threads(const struct shoali_pool *pool);
/* A NULL pool runs fn(arg, 0, 1) on the caller. */
void shoali_pool_run(struct shoali_pool *pool, shoali_pool_fn fn, void *arg);
/* The part of [0, n) of thread `index` of `count`, cut at multiples of `grain`; may be empty. */
void shoali_pool_slice(int64_t n, int64_t grain, int32_t index, int32_t count, int64_t *begin,
                       int64_t *end);
/* Sets the calling thread's floating-point control word to the fixed value and returns the old one;
 * every public entry that may compute calls it and restores on return. */
uint32_t shoali_fp_enter(void);
void shoali_fp_leave(uint32_t saved);
/* Number of cores this process may run on (sched_getaffinity). */
int32_t shoali_core_count(void);
/* Threads of all pools and workers of the process that compute or spin, callers included: more than
 * cores means that spinning steals time from one that computes. Sleeping ones do not count: a rank
 * may have several pools and workers of which one is at work. For worker.c. */
int32_t shoali_awake_threads(void);
void shoali_awake_threads_add(int32_t count);
/* Tells the core that this is a spin. */
void shoali_pause_core(void);

#endif
