/* side_stream - a second stream of a device, with a thread that enqueues on it.
 *
 * The owner is one thread with a stream of its own, the main stream. Jobs run on the side stream's
 * thread in the order of posting, concurrently with the owner and the main stream. A post or a wait
 * for a job orders the two streams, and blocks the host only as long as the thread enqueues:
 *
 *   ready   event of a post: a job's work starts after the main stream's work before the post
 *   done    event of a job: the main stream's work after the wait starts after the job's work
 *
 * Both are rings of SHOALI_WORKER_DEPTH events, indexed by ticket. A post that reuses events first
 * waits for the job that had them. A job calls begin before its work on `stream`, and end after.
 *
 * INVARIANT. The thread has begun `begun` jobs, in the order of tickets; so a job needs no ticket.
 * After a failed job no other job runs, and each later post and wait returns its status.
 *
 * Clients: zero/jobs.c (collectives of units), engine/step/transfers.c (messages of pipelines).
 */
#ifndef SHOALI_SIDE_STREAM_H
#define SHOALI_SIDE_STREAM_H

#include "accelerator/accelerator.h"
#include "base/worker.h"

/* The owner may read all but `begun`. worker NULL: not initialised, or stopped. */
struct shoali_side_stream {
    struct shoali_worker *worker;
    struct shoali_device_stream *stream, *main_stream; /* owned; borrowed until fini */
    struct shoali_event *ready[SHOALI_WORKER_DEPTH], *done[SHOALI_WORKER_DEPTH];
    uint32_t posted, finished; /* tickets: the last one, the last one that a wait has seen over */
    uint32_t begun;            /* ticket of the job that runs; the thread's */
};
/* After a failure the caller calls fini. */
SHOAL_CHECKED shoal_status shoali_side_stream_init(struct shoali_side_stream *side,
                                                   struct shoali_device *device,
                                                   struct shoali_device_stream *main_stream);
/* Waits for the posted jobs and ends the thread. */
void shoali_side_stream_stop(struct shoali_side_stream *side);
/* Stops; zeros are fine. */
void shoali_side_stream_fini(struct shoali_side_stream *side);
/* Copies `bytes` of arguments as shoali_worker_post does. */
SHOAL_CHECKED shoal_status shoali_side_stream_post(struct shoali_side_stream *side,
                                                   shoali_worker_fn fn, const void *job,
                                                   size_t bytes);
/* For the job with the ticket and all before it; ticket 0: none. Returns any job's failure. */
SHOAL_CHECKED shoal_status shoali_side_stream_wait(struct shoali_side_stream *side,
                                                   uint32_t ticket);
/* In a job. */
SHOAL_CHECKED shoal_status shoali_side_stream_begin(struct shoali_side_stream *side);
SHOAL_CHECKED shoal_status shoali_side_stream_end(struct shoali_side_stream *side);

#endif
