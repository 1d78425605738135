/* pool - the rank's own threads.
 *
 * One pool per rank, owned by the engine (or the tool). run() calls fn(arg, index, count) once on
 * every thread, index 0 on the caller, and returns when all are done. run_pieces() is for kernels:
 * their outputs are cut into pieces, and who computes a piece changes no bit of it; kernels never
 * cut a sum.
 *
 *   shares   Each thread has a share of the pieces, which is a function of sizes alone: in a quiet
 *            machine a thread finds in its cache what it left there, and its reads run ahead of it.
 *   claims   A piece is claimed by an atomic counter of its share. A thread whose own share is
 *            claimed goes on with the shares of others, so that one whose core is taken by another
 *            program holds up the run by one piece, and one that has not come yet by nothing.
 *
 * Waiting is a bounded spin (skipped when more threads of the process are awake than there are
 * cores), then a futex. No OpenMP: ThreadSanitizer sees all of it. Workers block all signals,
 * inherit the caller's context per run and set the floating-point environment (round to nearest,
 * denormals kept) at start. A pool of 1 thread makes no thread at all. Neither run is reentrant,
 * and both are called by the owner thread only. Fault point "thread" makes the start of a thread
 * fail.
 */
#ifndef SHOALI_POOL_H
#define SHOALI_POOL_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct shoali_pool;
typedef void (*shoali_pool_fn)(void *arg, int32_t index, int32_t count);

/* threads <= 0: SHOAL_NUM_THREADS, else OMP_NUM_THREADS, else shoali_core_count(). */
SHOAL_CHECKED shoal_status shoali_pool_create(int32_t threads, struct shoali_pool **pool);
/* The number of threads that it would have. */
SHOAL_CHECKED shoal_status shoali_pool_choose_threads(int32_t *threads);
/* Whether one of these variables is set, and not empty. */
bool shoali_pool_threads_given(void);
void shoali_pool_destroy(struct shoali_pool *pool);
/* 1 for a NULL pool. */
int32_t shoali_pool_threads(const struct shoali_pool *pool);
/* A NULL pool runs fn(arg, 0, 1) on the caller. */
void shoali_pool_run(struct shoali_pool *pool, shoali_pool_fn fn, void *arg);

/* One thread's claims in a run of pieces: what it claimed last, and where it looks next. */
struct shoali_claim {
    int32_t index, threads; /* of the thread */
    int32_t share;
    int64_t piece; /* of the share */
    const struct shoali_pieces *pieces;
    struct shoali_pool *pool; /* NULL: this thread has all of them */
    int32_t visited;          /* shares of which nothing is left */
    int64_t next, end;        /* without a pool */
};
struct shoali_pieces {
    int32_t shares; /* at most the pool's threads, of a NULL pool any number; 0: one per thread */
    int64_t (*count)(const void *arg, int32_t share, int32_t shares); /* pieces of a share */
    /* Called once on each thread that comes while there is something to claim, and on the
     * caller. */
    void (*work)(void *arg, struct shoali_claim *claim);
    void *arg;
};
void shoali_pool_run_pieces(struct shoali_pool *pool, const struct shoali_pieces *pieces);
/* Claims another piece; false: none is left. A share's pieces are claimed in order. */
bool shoali_claim_next(struct shoali_claim *claim);
/* For tests: from now on threads begin with any share and claim its pieces in any order, which
 * depends on the seed, and caches are said to hold nothing; 0: as always. */
void shoali_pool_shuffle(struct shoali_pool *pool, uint64_t seed);
/* Bytes of the last-level caches that the threads work in; what a kernel writes beyond that leaves
 * them again. */
int64_t shoali_pool_cache_bytes(const struct shoali_pool *pool);

/* The part of [0, n) of thread `index` of `count`, cut at multiples of `grain`; may be empty. */
void shoali_pool_slice(int64_t n, int64_t grain, int32_t index, int32_t count, int64_t *begin,
                       int64_t *end);
/* Sets the calling thread's floating-point control word to the fixed value and returns the old one;
 * every public entry that may compute calls it and restores on return. */
uint32_t shoali_fp_enter(void);
void shoali_fp_leave(uint32_t saved);
/* Number of cores this process may use: its affinity, and at most the CPU limit of its control
 * groups rounded down (cgroup.h); at least 1. */
int32_t shoali_core_count(void);
/* Threads of all pools and workers of the process that compute or spin, callers included: more than
 * cores means that spinning steals time from one that computes. Sleeping ones do not count: a rank
 * may have several pools and workers of which one is at work. For worker.c. */
int32_t shoali_awake_threads(void);
void shoali_awake_threads_add(int32_t count);
/* Tells the core that this is a spin. */
void shoali_pause_core(void);

#endif
