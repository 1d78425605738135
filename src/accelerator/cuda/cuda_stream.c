/* cuda_stream.c - streams, events, copies and launches on a GPU. */
#include "accelerator/cuda/cuda_device.h"

#include <sched.h>
#include <time.h>

#define YIELDS 64 /* naps that only let other threads run */
#define NAP_NS 20000

static struct cuda_device *device_of(const struct shoali_device_stream *stream)
{
    return (struct cuda_device *)stream->device;
}

static struct CUstream_st *handle_of(const struct shoali_device_stream *stream)
{
    return ((const struct cuda_stream *)stream)->handle;
}

/* Before work is queued: the context, and no failure so far. */
static shoal_status begin(struct cuda_device *cuda)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_cuda_enter(cuda), done);
    SHOAL_TRY(status, shoali_cuda_verdict(cuda), done);
done:
    return status;
}

/* ---- waits of the host ---- */

/* While there are tasks: until the event has passed, without holding up the driver. */
static shoal_status await(struct cuda_device *cuda, struct CUevent_st *event)
{
    shoal_status status = SHOAL_OK;
    for (int32_t asked = 0; shoali_cuda_has_tasks(); asked++) {
        const unsigned code = cuda->driver->event_query(event);
        if (code != SHOALI_CUDA_NOT_READY)
            return shoali_cuda_done(cuda, code, shoali_cuda_names.event_query);
        if (asked < YIELDS)
            (void)sched_yield();
        else
            (void)nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    }
    return status;
}

/* The same for all that the stream has. */
static shoal_status await_stream(struct cuda_device *cuda, const struct cuda_stream *stream)
{
    shoal_status status = SHOAL_OK;
    if (!shoali_cuda_has_tasks())
        return SHOAL_OK;
    SHOAL_TRY(status, CUDA_DONE(cuda, event_record, stream->end, stream->handle), done);
    SHOAL_TRY(status, await(cuda, stream->end), done);
done:
    return status;
}

/* Until all that the stream has is over, without a word. */
static void drain(struct cuda_device *cuda, const struct cuda_stream *stream)
{
    if (shoali_cuda_has_tasks() && cuda->driver->event_record(stream->end, stream->handle) == 0)
        while (shoali_cuda_has_tasks() &&
               cuda->driver->event_query(stream->end) == SHOALI_CUDA_NOT_READY)
            (void)sched_yield();
    (void)cuda->driver->stream_synchronize(stream->handle);
}

/* ---- streams ---- */

shoal_status shoali_cuda_stream_create(struct shoali_device *device,
                                       struct shoali_device_stream **stream)
{
    shoal_status status;
    struct cuda_device *cuda = (struct cuda_device *)device;
    void *word = NULL;
    struct cuda_stream *made = shoali_calloc(1, sizeof *made, "a cuda stream");
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->base.device = device;
    SHOAL_TRY(status, shoali_cuda_enter(cuda), done);
    SHOAL_TRY(status,
              CUDA_DONE(cuda, host_alloc, &word, sizeof *made->word, SHOALI_CUDA_HOST_PORTABLE),
              done);
    made->word = word;
    *made->word = 0;
    SHOAL_TRY(status,
              CUDA_DONE(cuda, stream_create, &made->handle, SHOALI_CUDA_STREAM_NON_BLOCKING), done);
    SHOAL_TRY(status, CUDA_DONE(cuda, event_create, &made->end, SHOALI_CUDA_EVENT_DISABLE_TIMING),
              done);
    pthread_mutex_lock(&cuda->lock);
    made->next = cuda->streams;
    cuda->streams = made;
    pthread_mutex_unlock(&cuda->lock);
    *stream = &made->base;
    made = NULL;
done:
    if (made != NULL && made->handle != NULL)
        (void)cuda->driver->stream_destroy(made->handle);
    if (made != NULL && made->word != NULL)
        (void)cuda->driver->host_free(word);
    shoali_free(made);
    return status;
}

void shoali_cuda_stream_destroy(struct shoali_device_stream *stream)
{
    struct cuda_device *cuda = device_of(stream);
    struct cuda_stream *old = (struct cuda_stream *)stream;
    const bool entered = shoali_cuda_enter_to_end(cuda);
    if (entered)
        drain(cuda, old);
    pthread_mutex_lock(&cuda->lock);
    while (old->head != NULL) { /* after an error of the GPU its thread drops them */
        pthread_mutex_unlock(&cuda->lock);
        (void)sched_yield();
        pthread_mutex_lock(&cuda->lock);
    }
    struct cuda_stream **link = &cuda->streams;
    while (*link != old)
        link = &(*link)->next;
    *link = old->next;
    pthread_mutex_unlock(&cuda->lock);
    if (entered) {
        (void)cuda->driver->event_destroy(old->end);
        (void)cuda->driver->stream_destroy(old->handle);
        (void)cuda->driver->host_free((void *)(uintptr_t)old->word);
    }
    shoali_free(old);
}

shoal_status shoali_cuda_stream_synchronize(struct shoali_device_stream *stream)
{
    shoal_status status;
    struct cuda_device *cuda = device_of(stream);
    SHOAL_TRY(status, shoali_cuda_enter(cuda), done);
    SHOAL_TRY(status, await_stream(cuda, (struct cuda_stream *)stream), done);
    SHOAL_TRY(status, CUDA_DONE(cuda, stream_synchronize, handle_of(stream)), done);
    SHOAL_TRY(status, shoali_cuda_verdict(cuda), done);
done:
    return status;
}

/* ---- events ---- */

shoal_status shoali_cuda_event_create(struct shoali_device *device, bool timed,
                                      struct shoali_event **event)
{
    shoal_status status;
    struct cuda_device *cuda = (struct cuda_device *)device;
    struct cuda_event *made = shoali_calloc(1, sizeof *made, "a cuda event");
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->base.device = device;
    SHOAL_TRY(status, shoali_cuda_enter(cuda), done);
    SHOAL_TRY(
        status,
        CUDA_DONE(cuda, event_create, &made->handle, timed ? 0 : SHOALI_CUDA_EVENT_DISABLE_TIMING),
        done);
    *event = &made->base;
    made = NULL;
done:
    shoali_free(made);
    return status;
}

void shoali_cuda_event_destroy(struct shoali_event *event)
{
    struct cuda_device *cuda = (struct cuda_device *)event->device;
    if (shoali_cuda_enter_to_end(cuda))
        (void)cuda->driver->event_destroy(((struct cuda_event *)event)->handle);
    shoali_free(event);
}

/* Also after a failure: an event that is not recorded would let others pass too early. */
shoal_status shoali_cuda_event_record(struct shoali_event *event,
                                      struct shoali_device_stream *stream)
{
    shoal_status status;
    struct cuda_device *cuda = device_of(stream);
    SHOAL_TRY(status, shoali_cuda_enter(cuda), done);
    SHOAL_TRY(
        status,
        CUDA_DONE(cuda, event_record, ((struct cuda_event *)event)->handle, handle_of(stream)),
        done);
done:
    return status;
}

shoal_status shoali_cuda_event_synchronize(struct shoali_event *event)
{
    shoal_status status;
    struct cuda_device *cuda = (struct cuda_device *)event->device;
    SHOAL_TRY(status, shoali_cuda_enter(cuda), done);
    SHOAL_TRY(status, await(cuda, ((struct cuda_event *)event)->handle), done);
    SHOAL_TRY(status, CUDA_DONE(cuda, event_synchronize, ((struct cuda_event *)event)->handle),
              done);
    SHOAL_TRY(status, shoali_cuda_verdict(cuda), done);
done:
    return status;
}

shoal_status shoali_cuda_event_elapsed(struct shoali_event *begin, struct shoali_event *end,
                                       int64_t *ns)
{
    shoal_status status;
    struct cuda_device *cuda = (struct cuda_device *)end->device;
    float ms = 0;
    SHOAL_TRY(status, shoali_cuda_enter(cuda), done);
    SHOAL_TRY(status,
              CUDA_DONE(cuda, event_elapsed, &ms, ((struct cuda_event *)begin)->handle,
                        ((struct cuda_event *)end)->handle),
              done);
    *ns = (int64_t)((double)ms * 1e6);
done:
    return status;
}

shoal_status shoali_cuda_stream_wait_event(struct shoali_device_stream *stream,
                                           struct shoali_event *event)
{
    shoal_status status;
    struct cuda_device *cuda = device_of(stream);
    SHOAL_TRY(status, shoali_cuda_enter(cuda), done);
    SHOAL_TRY(status,
              CUDA_DONE(cuda, stream_wait_event, handle_of(stream),
                        ((struct cuda_event *)event)->handle, 0),
              done);
done:
    return status;
}

/* ---- work ---- */

shoal_status shoali_cuda_copy(struct shoali_device_stream *stream, void *to, const void *from,
                              size_t bytes, enum shoali_copy_kind kind)
{
    shoal_status status;
    struct cuda_device *cuda = device_of(stream);
    struct CUstream_st *on = handle_of(stream);
    SHOAL_TRY(status, begin(cuda), done);
    if (kind != SHOALI_DEVICE_TO_DEVICE &&
        !shoali_cuda_is_pinned(cuda, kind == SHOALI_HOST_TO_DEVICE ? from : to))
        SHOAL_TRY(status, await_stream(cuda, (struct cuda_stream *)stream), done);
    switch (kind) {
    case SHOALI_HOST_TO_DEVICE:
        status = CUDA_DONE(cuda, copy_in, (uintptr_t)to, from, bytes, on);
        break;
    case SHOALI_DEVICE_TO_HOST:
        status = CUDA_DONE(cuda, copy_out, to, (uintptr_t)from, bytes, on);
        break;
    case SHOALI_DEVICE_TO_DEVICE:
        status = CUDA_DONE(cuda, copy_within, (uintptr_t)to, (uintptr_t)from, bytes, on);
        break;
    }
done:
    return status;
}

shoal_status shoali_cuda_fill(struct shoali_device_stream *stream, void *to, uint8_t byte,
                              size_t bytes)
{
    shoal_status status;
    struct cuda_device *cuda = device_of(stream);
    SHOAL_TRY(status, begin(cuda), done);
    SHOAL_TRY(status, CUDA_DONE(cuda, fill, (uintptr_t)to, byte, bytes, handle_of(stream)), done);
done:
    return status;
}

/* The function queues at once what the GPU is to do. */
shoal_status shoali_cuda_run(struct shoali_device_stream *stream,
                             const struct shoali_kernel_type *type, shoali_kernel_fn fn,
                             const void *args)
{
    shoal_status status;
    struct cuda_device *cuda = device_of(stream);
    const struct shoali_kernel_context context = {.device = &cuda->base, .stream = stream};
    (void)type;
    SHOAL_TRY(status, begin(cuda), done);
    fn(args, &context);
    SHOAL_TRY(status, shoali_cuda_verdict(cuda), done);
done:
    return status;
}
