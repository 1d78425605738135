/* worker - one thread that runs its owner's jobs in the order of posting.
 *
 * A job is a function and a small block of arguments, copied when it is posted. Tickets count jobs
 * from 1. The first job that fails is remembered with its sentence; the jobs after it are dropped,
 * and every later post and wait returns that failure. What a job wrote is visible to the owner
 * after the wait for its ticket. Owner: one thread. Waiting on either side is a bounded spin
 * (skipped when there are more threads on the machine than cores), then a futex, so that an idle
 * worker takes no core from those that compute. The worker blocks all signals and sets the
 * floating-point environment. Fault point "thread" makes the start fail.
 */
#ifndef SHOALI_WORKER_H
#define SHOALI_WORKER_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct shoali_worker;
typedef shoal_status (*shoali_worker_fn)(const void *job);
enum { SHOALI_WORKER_JOB_BYTES = 64, SHOALI_WORKER_DEPTH = 16 };

SHOAL_CHECKED shoal_status shoali_worker_create(struct shoali_worker **worker);
/* Waits for the posted jobs. NULL is fine. */
void shoali_worker_destroy(struct shoali_worker *worker);
/* Copies `bytes` (<= SHOALI_WORKER_JOB_BYTES) of arguments. Waits when SHOALI_WORKER_DEPTH jobs are
 * unfinished. *ticket may be NULL. */
SHOAL_CHECKED shoal_status shoali_worker_post(struct shoali_worker *worker, shoali_worker_fn fn,
                                              const void *job, size_t bytes, uint32_t *ticket);
/* Until the job and all before it have finished. */
SHOAL_CHECKED shoal_status shoali_worker_wait(struct shoali_worker *worker, uint32_t ticket);

#endif
