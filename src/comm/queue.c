#include "comm/queue.h"

enum { NO_LANE = -1, COLLECTIVES = 0 };

static int32_t lane_of(const struct shoali_queue *queue, const struct shoali_post *post)
{
    if (!shoali_post_is_message(post))
        return COLLECTIVES;
    if (queue->messages_overlap)
        return NO_LANE;
    return 1 + 2 * post->peer + (post->kind == SHOALI_RECV);
}

shoal_status shoali_queue_add(struct shoali_queue *queue, const struct shoali_post *post,
                              int32_t *index)
{
    int32_t i = 0;
    while (i < SHOALI_QUEUE_REQUESTS && queue->state[i] != SHOALI_REQUEST_FREE)
        i++;
    if (i == SHOALI_QUEUE_REQUESTS)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "a group has at most %d outstanding requests: wait for earlier ones before %s "
            "at %s",
            SHOALI_QUEUE_REQUESTS, shoali_collective_name(post->kind), post->here);
    queue->state[i] = SHOALI_REQUEST_UNFINISHED;
    queue->lane[i] = lane_of(queue, post);
    queue->unfinished[queue->count++] = i;
    *index = i;
    return SHOAL_OK;
}

static void unlist(struct shoali_queue *queue, int32_t index)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < queue->count; i++)
        if (queue->unfinished[i] != index)
            queue->unfinished[kept++] = queue->unfinished[i];
    queue->count = kept;
}

/* The earlier request needs others, or it would have left the list. */
static bool is_held(const struct shoali_queue *queue, int32_t at)
{
    const int32_t lane = queue->lane[queue->unfinished[at]];
    for (int32_t i = 0; i < at && lane != NO_LANE; i++)
        if (queue->lane[queue->unfinished[i]] == lane)
            return true;
    return false;
}

shoal_status shoali_queue_advance(struct shoali_queue *queue,
                                  shoal_status (*advance)(void *group, int32_t index), void *group)
{
    for (int32_t i = 0; i < queue->count && !queue->gave_up;) {
        const int32_t index = queue->unfinished[i];
        const shoal_status status = is_held(queue, i) ? SHOAL_IN_PROGRESS : advance(group, index);
        if (status < 0) {
            queue->failed = index;
            return status;
        }
        if (status == SHOAL_OK) {
            queue->state[index] = SHOALI_REQUEST_DONE;
            unlist(queue, index);
        } else {
            i++;
        }
    }
    return SHOAL_OK;
}

void shoali_queue_remove(struct shoali_queue *queue, int32_t index)
{
    unlist(queue, index);
    queue->state[index] = SHOALI_REQUEST_FREE;
}

int32_t shoali_queue_first(const struct shoali_queue *queue, int32_t index)
{
    for (int32_t i = 0; i < queue->count && queue->lane[index] == COLLECTIVES; i++)
        if (queue->lane[queue->unfinished[i]] == COLLECTIVES)
            return queue->unfinished[i];
    return index;
}
