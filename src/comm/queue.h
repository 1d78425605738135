/* queue - the requests of a group: lanes, holding, removal. comm/algorithms, comm/p2p and
 * comm/hierarchical use it.
 *
 * A backend has an array of SHOALI_QUEUE_REQUESTS requests of its own type. The queue knows their
 * indices alone. The backend says how a request advances, and how a rank waits between two passes:
 * algorithms sleeps until another rank rings, p2p and hierarchical poll.
 *
 * Terms.
 *   lane        requests that advance one after the other, in order of posts: a group's
 *               collectives; the sends to a rank; the receives from a rank
 *   unfinished  posted, and not over. Request and operands stay until then.
 *   held        behind an unfinished request of the same lane. A held request does not advance.
 *   pass        advances each unfinished request that is not held, in order of posts
 *
 * Invariants.
 *   A request is free, unfinished or done. The queue lists the unfinished ones in order of posts.
 *   A failed request stays unfinished until its waiter removes it.
 *   An index is free again only after shoali_queue_take_done or shoali_queue_remove.
 *   One thread at a time uses a queue. There is no lock.
 *
 * Files. queue.c */
#ifndef SHOALI_COMM_QUEUE_H
#define SHOALI_COMM_QUEUE_H

#include "comm/comm.h"

enum { SHOALI_QUEUE_REQUESTS = 17 /* 16 outstanding and one that is waited for */ };

enum shoali_request_state { SHOALI_REQUEST_FREE, SHOALI_REQUEST_UNFINISHED, SHOALI_REQUEST_DONE };

/* Zeros: no requests. */
struct shoali_queue {
    bool messages_overlap; /* messages have no lane, and are never held */
    bool gave_up;          /* a request of an aborted world: nothing advances */
    int32_t failed;        /* index of the request that ended the last pass with an error */
    int32_t count;
    int32_t unfinished[SHOALI_QUEUE_REQUESTS]; /* [count] indices in order of posts */
    int32_t lane[SHOALI_QUEUE_REQUESTS];
    enum shoali_request_state state[SHOALI_QUEUE_REQUESTS];
};

/* Takes a free request and appends it. SHOAL_EINVAL: none is free. */
SHOAL_CHECKED shoal_status shoali_queue_add(struct shoali_queue *queue,
                                            const struct shoali_post *post, int32_t *index);
/* One pass. `advance` gives SHOAL_OK when the request is done, SHOAL_IN_PROGRESS when the request
 * needs others. Its first error ends the pass and is the answer. */
SHOAL_CHECKED shoal_status shoali_queue_advance(struct shoali_queue *queue,
                                                shoal_status (*advance)(void *group, int32_t index),
                                                void *group);
static inline bool shoali_queue_is_done(const struct shoali_queue *queue, int32_t index)
{
    return queue->state[index] == SHOALI_REQUEST_DONE;
}
/* True: the request was done, and is free. */
static inline bool shoali_queue_take_done(struct shoali_queue *queue, int32_t index)
{
    const bool done = shoali_queue_is_done(queue, index);
    if (done)
        queue->state[index] = SHOALI_REQUEST_FREE;
    return done;
}
/* Frees a request that is given up. */
void shoali_queue_remove(struct shoali_queue *queue, int32_t index);
/* The first unfinished collective, for which a collective waits. A message waits for itself. */
int32_t shoali_queue_first(const struct shoali_queue *queue, int32_t index);

#endif
