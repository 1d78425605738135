/* Collectives in the order of a device's stream, and beside it. */
#include "comm/group.h"

#include <string.h>
#include <time.h>

enum { IN, OUT };

/* A post on its way through a stream. */
struct ordered {
    struct shoal_group *group;
    uint64_t ticket; /* number among the group's posts on streams, from 0 */
    struct shoali_post post;
    void *request;
    bool begun;
    char here[256];   /* a caller's may be gone by then */
    int64_t counts[]; /* all_to_all_v: to send, then to receive */
};

/* The last that touches the group, which may then be destroyed. */
static void finish(struct ordered *own)
{
    struct shoal_group *group = own->group;
    shoali_free(own);
    atomic_fetch_add(&group->over, 1);
}

static shoal_status advance(struct ordered *own, void *const *buffers, bool may_wait)
{
    const struct shoali_comm_ops *ops = own->group->ops;
    void *object = own->group->object;
    shoal_status status;
    if (!own->begun) {
        if (atomic_load(&own->group->over) != own->ticket)
            return SHOAL_IN_PROGRESS;
        own->begun = true;
        own->post.in = buffers[IN];
        own->post.out = own->post.kind == SHOALI_BROADCAST ? buffers[IN] : buffers[OUT];
        status = ops->post(object, &own->post, &own->request);
        if (status < 0 || !own->request)
            return status;
    }
    return may_wait ? ops->wait(object, own->request) : ops->test(object, own->request);
}

static shoal_status poll(void *user, void *const *buffers, bool may_wait)
{
    struct ordered *own = user;
    const shoal_status status = advance(own, buffers, may_wait);
    if (status == SHOAL_IN_PROGRESS)
        return status;
    if (status < 0)
        own->group->ops->abort(own->group->object, status, shoal_error_message());
    finish(own);
    return status;
}

static void drop(void *user, shoal_status status, const char *sentence)
{
    struct ordered *own = user;
    own->group->ops->abort(own->group->object, status, sentence);
    finish(own);
}

static struct ordered *make(struct shoal_group *group, const struct shoali_post *post)
{
    const bool sized = post->kind == SHOALI_ALL_TO_ALL_V;
    const size_t ranks = sized ? (size_t)group->size : 0;
    struct ordered *own =
        shoali_calloc(1, sizeof *own + 2 * ranks * sizeof own->counts[0], "a post on a stream");
    if (!own)
        return NULL;
    own->group = group;
    own->ticket = group->posted;
    own->post = *post;
    /* the end of a long path says more than its beginning */
    const size_t length = strlen(post->here), kept = sizeof own->here - 1;
    memcpy(own->here, post->here + (length > kept ? length - kept : 0),
           length > kept ? kept : length);
    own->post.here = own->here;
    if (!sized)
        return own;
    memcpy(own->counts, post->send_counts, ranks * sizeof own->counts[0]);
    memcpy(own->counts + ranks, post->recv_counts, ranks * sizeof own->counts[0]);
    own->post.send_counts = own->counts;
    own->post.recv_counts = own->counts + ranks;
    return own;
}

/* The group takes the post over in any case: it is over when it has been dropped. */
static shoal_status launch(struct shoal_group *group, struct shoali_device_stream *stream,
                           const struct shoali_post *post)
{
    struct ordered *own = make(group, post);
    if (!own)
        return SHOAL_ENOMEM;
    const struct shoali_host_task task = {
        .name = shoali_collective_name(post->kind),
        .buffer = {[IN] = {(void *)(uintptr_t)post->in, shoali_post_in_bytes(post, group->size)},
                   [OUT] = {post->out, shoali_post_out_bytes(post, group->size)}},
        .poll = poll,
        .drop = drop,
        .user = own};
    group->posted++;
    group->stream = stream;
    return shoali_launch_host(stream, &task);
}

/* A copy to pinned memory, the collective, a copy back. Of a broadcast `in` and `out` are the same
 * buffer. */
static shoal_status launch_staged(struct shoal_group *group, struct shoali_device_stream *stream,
                                  const struct shoali_post *post)
{
    struct shoali_post host = *post;
    const size_t in_bytes = shoali_post_in_bytes(post, group->size);
    const size_t out_bytes = shoali_post_out_bytes(post, group->size);
    void *in = NULL, *out = NULL;
    shoal_status status = SHOAL_OK;
    if (in_bytes > 0) {
        SHOAL_TRY(status, shoali_stream_staging(stream, IN, in_bytes, &in), done);
        SHOAL_TRY(status, shoali_copy(stream, in, post->in, in_bytes, SHOALI_DEVICE_TO_HOST), done);
    }
    if (post->kind == SHOALI_BROADCAST)
        out = in;
    else if (out_bytes > 0)
        SHOAL_TRY(status, shoali_stream_staging(stream, OUT, out_bytes, &out), done);
    host.in = in;
    host.out = out;
    SHOAL_TRY(status, launch(group, stream, &host), done);
    if (out_bytes > 0)
        SHOAL_TRY(status, shoali_copy(stream, post->out, out, out_bytes, SHOALI_HOST_TO_DEVICE),
                  done);
done:
    return status;
}

static shoal_status check_requests(const struct shoal_group *group, const struct shoali_post *post)
{
    for (int32_t i = 0; i < SHOALI_OUTSTANDING_MAX; i++)
        if (group->request[i].used)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s at %s goes into a stream while a request of this group is not "
                              "over: wait for it first",
                              shoali_collective_name(post->kind), post->here);
    return SHOAL_OK;
}

shoal_status shoali_comm_post_on(shoal_group *group, struct shoali_device_stream *stream,
                                 const struct shoali_post *post)
{
    shoal_status status;
    const struct shoali_accelerator *accelerator =
        shoali_device_accelerator(shoali_stream_device(stream));
    if (accelerator->host_accessible)
        return shoali_comm_post(group, post, NULL);
    SHOAL_TRY(status, shoali_group_check(group, post), done);
    SHOAL_TRY(status, check_requests(group, post), done);
    if (accelerator->exportable && group->device_memory)
        SHOAL_TRY(status, launch(group, stream, post), done);
    else
        SHOAL_TRY(status, launch_staged(group, stream, post), done);
done:
    return status;
}

/* A failed device drops what its streams hold, but they may be a moment behind. The stream is there
 * as long as one of its posts is not over. */
shoal_status shoali_comm_settle(shoal_group *group)
{
    shoal_status status = SHOAL_OK;
    if (atomic_load(&group->over) == group->posted)
        return SHOAL_OK;
    status = shoali_stream_synchronize(group->stream);
    while (atomic_load(&group->over) != group->posted)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    return status;
}

/* ---- beside a stream ---- */

static shoal_status make_side(struct shoali_device *device, struct shoali_comm_side *side)
{
    shoal_status status = SHOAL_OK;
    if (side->ready)
        return SHOAL_OK;
    if (!side->stream)
        SHOAL_TRY(status, shoali_stream_create(device, &side->stream), done);
    for (int32_t i = 0; i < SHOALI_COMM_SIDE_DEPTH; i++)
        if (!side->done[i])
            SHOAL_TRY(status, shoali_event_create(device, &side->done[i]), done);
    SHOAL_TRY(status, shoali_event_create(device, &side->ready), done);
done:
    return status;
}

void shoali_comm_side_fini(struct shoali_comm_side *side)
{
    shoali_stream_destroy(side->stream);
    shoali_event_destroy(side->ready);
    for (int32_t i = 0; i < SHOALI_COMM_SIDE_DEPTH; i++)
        shoali_event_destroy(side->done[i]);
    *side = (struct shoali_comm_side){0};
}

shoal_status shoali_comm_post_beside(shoal_group *group, struct shoali_device_stream *stream,
                                     struct shoali_comm_side *side, const struct shoali_post *post,
                                     struct shoali_comm_pending *pending)
{
    shoal_status status;
    struct shoali_device *device = shoali_stream_device(stream);
    int32_t event = 0;
    *pending = (struct shoali_comm_pending){0};
    if (shoali_device_accelerator(device)->host_accessible)
        return shoali_comm_post(group, post, &pending->request);
    while (event < SHOALI_COMM_SIDE_DEPTH && side->taken & 1u << event)
        event++;
    if (event == SHOALI_COMM_SIDE_DEPTH)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%s at %s: %d posts outside the stream are pending: wait for earlier ones",
            shoali_collective_name(post->kind), post->here, SHOALI_COMM_SIDE_DEPTH);
    SHOAL_TRY(status, make_side(device, side), done);
    SHOAL_TRY(status, shoali_event_record(side->ready, stream), done);
    SHOAL_TRY(status, shoali_stream_wait_event(side->stream, side->ready), done);
    SHOAL_TRY(status, shoali_comm_post_on(group, side->stream, post), done);
    SHOAL_TRY(status, shoali_event_record(side->done[event], side->stream), done);
    side->taken |= 1u << event;
    pending->side = side;
    pending->event = event;
done:
    return status;
}

shoal_status shoali_comm_pending_test(struct shoali_comm_pending *pending)
{
    return shoal_request_test(&pending->request);
}

shoal_status shoali_comm_pending_wait(struct shoali_comm_pending *pending,
                                      struct shoali_device_stream *stream)
{
    struct shoali_comm_pending own = *pending;
    *pending = (struct shoali_comm_pending){0};
    if (!own.side)
        return shoal_request_wait(&own.request);
    own.side->taken &= ~(1u << own.event);
    return shoali_stream_wait_event(stream, own.side->done[own.event]);
}
