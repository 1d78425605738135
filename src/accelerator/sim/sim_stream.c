/* sim_stream.c - streams and events of the simulated device, and what enters the queues. */
#include "accelerator/sim/sim_device.h"

#include <signal.h>
#include <string.h>

/* A queue this long runs, so that forgetting to synchronise does not eat the host's memory. */
#define QUEUE_BOUND ((int64_t)1 << 16)

static struct sim_device *device_of(const struct shoali_device_stream *stream)
{
    return (struct sim_device *)stream->device;
}

/* ---- streams ---- */

/* With the signals of the outer world blocked; faults still come through. */
shoal_status shoali_sim_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    sigset_t blocked, old;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof synchronous / sizeof synchronous[0]; i++)
        sigdelset(&blocked, synchronous[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &old);
    const int failed = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed != 0)
        return SHOAL_FAIL(SHOAL_ENOMEM, "sim: cannot start a thread for streams: %s",
                          strerror(failed));
    return SHOAL_OK;
}

shoal_status shoali_sim_stream_create(struct shoali_device *device,
                                      struct shoali_device_stream **stream)
{
    shoal_status status = SHOAL_OK;
    struct sim_device *sim = (struct sim_device *)device;
    struct sim_stream *made = shoali_calloc(1, sizeof *made, "a sim stream");
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->base.device = device;
    made->context = *shoali_context_get();
    made->context.scope = ""; /* the creator's scope ends before the thread does */
    if (sim->mode == SIM_THREAD)
        SHOAL_TRY(status, shoali_sim_start(&made->thread, shoali_sim_run_thread, made), done);
    pthread_mutex_lock(&sim->lock);
    made->id = ++sim->last_stream;
    made->next = sim->streams;
    sim->streams = made;
    pthread_mutex_unlock(&sim->lock);
    *stream = &made->base;
    made = NULL;
done:
    shoali_free(made);
    return status;
}

void shoali_sim_stream_destroy(struct shoali_device_stream *stream)
{
    struct sim_device *sim = device_of(stream);
    struct sim_stream *old = (struct sim_stream *)stream;
    pthread_mutex_lock(&sim->lock);
    shoali_sim_wait(sim, old->id, old->queued);
    struct sim_stream **link = &sim->streams;
    while (*link != old)
        link = &(*link)->next;
    *link = old->next;
    old->stop = true;
    pthread_cond_broadcast(&sim->changed);
    pthread_mutex_unlock(&sim->lock);
    if (sim->mode == SIM_THREAD)
        pthread_join(old->thread, NULL);
    shoali_free(old);
}

shoal_status shoali_sim_stream_synchronize(struct shoali_device_stream *stream)
{
    struct sim_device *sim = device_of(stream);
    const struct sim_stream *own = (struct sim_stream *)stream;
    pthread_mutex_lock(&sim->lock);
    shoali_sim_wait(sim, own->id, own->queued);
    const shoal_status status = shoali_sim_verdict(sim);
    pthread_mutex_unlock(&sim->lock);
    return status;
}

/* With the lock held: appends the item, and lets the mode run something. */
static void enqueue(struct sim_device *sim, struct sim_stream *stream, struct sim_item *item)
{
    if (stream->pending >= QUEUE_BOUND)
        shoali_sim_wait(sim, stream->id, stream->queued);
    item->number = ++sim->last_number;
    stream->queued = item->number;
    if (stream->tail != NULL)
        stream->tail->next = item;
    else
        stream->head = item;
    stream->tail = item;
    stream->pending++;
    sim->host_calls++;
    if (item->kind == SIM_TASK) {
        stream->last_task = item->number;
        if (sim->task_count++ == 0)
            pthread_cond_signal(&sim->attend);
    }
    if (sim->mode == SIM_RANDOM)
        shoali_sim_burst(sim);
    else if (sim->mode == SIM_THREAD)
        pthread_cond_broadcast(&sim->changed);
}

static struct sim_item *new_item(enum sim_kind kind, size_t args_bytes)
{
    struct sim_item *item =
        shoali_calloc(1, sizeof *item + args_bytes, "a piece of work of a sim stream");
    if (item != NULL)
        item->kind = kind;
    return item;
}

/* ---- events ---- */

shoal_status shoali_sim_event_create(struct shoali_device *device, bool timed,
                                     struct shoali_event **event)
{
    (void)timed;
    struct sim_event *made = shoali_calloc(1, sizeof *made, "a sim event");
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->base.device = device;
    *event = &made->base;
    return SHOAL_OK;
}

void shoali_sim_event_destroy(struct shoali_event *event)
{
    struct sim_device *sim = (struct sim_device *)event->device;
    pthread_mutex_lock(&sim->lock);
    shoali_sim_clock_drop(((struct sim_event *)event)->clock);
    pthread_mutex_unlock(&sim->lock);
    shoali_free(event); /* queued waits hold their own copy of the pair */
}

/* With the lock held: queues the reading of a clock that is the event's from now on. */
static shoal_status queue_clock(struct sim_device *sim, struct sim_event *event,
                                struct sim_stream *stream)
{
    struct sim_item *item = new_item(SIM_CLOCK, 0);
    struct sim_clock *clock = shoali_calloc(1, sizeof *clock, "the time of a sim event");
    if (item == NULL || clock == NULL) {
        shoali_free(item);
        shoali_free(clock);
        return SHOAL_ENOMEM;
    }
    shoali_sim_clock_drop(event->clock);
    clock->users = 2;
    event->clock = item->clock = clock;
    enqueue(sim, stream, item);
    return SHOAL_OK;
}

shoal_status shoali_sim_event_record(struct shoali_event *event,
                                     struct shoali_device_stream *stream)
{
    struct sim_device *sim = device_of(stream);
    struct sim_event *own = (struct sim_event *)event;
    struct sim_stream *on = (struct sim_stream *)stream;
    pthread_mutex_lock(&sim->lock);
    const shoal_status status = event->timed ? queue_clock(sim, own, on) : SHOAL_OK;
    if (status == SHOAL_OK) {
        own->stream = on->id;
        own->number = on->queued;
    }
    pthread_mutex_unlock(&sim->lock);
    return status;
}

/* Both have passed: nobody writes their clocks. */
shoal_status shoali_sim_event_elapsed(struct shoali_event *begin, struct shoali_event *end,
                                      int64_t *ns)
{
    struct sim_device *sim = (struct sim_device *)end->device;
    pthread_mutex_lock(&sim->lock);
    *ns = ((const struct sim_event *)end)->clock->ns - ((const struct sim_event *)begin)->clock->ns;
    pthread_mutex_unlock(&sim->lock);
    return SHOAL_OK;
}

shoal_status shoali_sim_event_synchronize(struct shoali_event *event)
{
    struct sim_device *sim = (struct sim_device *)event->device;
    const struct sim_event *own = (struct sim_event *)event;
    pthread_mutex_lock(&sim->lock);
    shoali_sim_wait(sim, own->stream, own->number);
    const shoal_status status = shoali_sim_verdict(sim);
    pthread_mutex_unlock(&sim->lock);
    return status;
}

shoal_status shoali_sim_stream_wait_event(struct shoali_device_stream *stream,
                                          struct shoali_event *event)
{
    struct sim_device *sim = device_of(stream);
    const struct sim_event *own = (struct sim_event *)event;
    struct sim_item *item = new_item(SIM_WAIT, 0);
    if (item == NULL)
        return SHOAL_ENOMEM;
    pthread_mutex_lock(&sim->lock);
    if (!shoali_sim_is_complete(sim, own->stream, own->number)) {
        item->wait_stream = own->stream;
        item->wait_number = own->number;
        enqueue(sim, (struct sim_stream *)stream, item);
        item = NULL;
    }
    pthread_mutex_unlock(&sim->lock);
    shoali_free(item);
    return SHOAL_OK;
}

/* ---- work ---- */

/* A kernel ("kernel axpy") may be given NULL, live device memory and pinned host memory: nothing
 * else would work on a GPU. `bytes`: what it may touch from there on, 0 when that is not known. */
static shoal_status check_pointer(const struct sim_device *sim, const char *noun,
                                  const char *kernel, const char *name, const void *pointer,
                                  size_t bytes)
{
    const bool owned = shoali_sim_owns(&sim->base, pointer);
    if (pointer == NULL || shoali_sim_is_live(sim, pointer, bytes) ||
        (!owned && shoali_sim_is_pinned(sim, pointer)))
        return SHOAL_OK;
    if (owned && shoali_sim_is_live(sim, pointer, 0))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s %s: %s needs %zu bytes from %p on, which is more than one "
                          "allocated block has there",
                          noun, kernel, name, bytes, pointer);
    return SHOAL_FAIL(SHOAL_EINVAL, "%s %s: %s is %p, which is %s", noun, kernel, name, pointer,
                      owned ? "device memory that is not allocated (freed, or past the end of a "
                              "block)"
                            : "ordinary host memory; copy it to the device or take it from "
                              "shoali_device_host_alloc");
}

static shoal_status check_pointers(const struct sim_device *sim,
                                   const struct shoali_kernel_type *type, const void *args)
{
    shoal_status status = SHOAL_OK;
    int32_t i = 0;
    int64_t offset;
    for (; type->pointers[i].name != NULL; i++)
        SHOAL_TRY(status,
                  check_pointer(sim, "kernel", type->name, type->pointers[i].name,
                                shoali_kernel_pointer_value(&type->pointers[i], args),
                                shoali_kernel_pointer_bytes(&type->pointers[i], args)),
                  done);
    for (; (offset = shoali_sim_pointer_offset(type, args, i)) >= 0; i++) {
        void *pointer;
        memcpy(&pointer, (const char *)args + offset, sizeof pointer);
        SHOAL_TRY(status,
                  check_pointer(sim, "kernel", type->name, "a pointer of the array", pointer, 0),
                  done);
    }
done:
    return status;
}

shoal_status shoali_sim_launch(struct shoali_device_stream *stream,
                               const struct shoali_kernel_type *type, shoali_kernel_fn fn,
                               const void *args)
{
    shoal_status status = SHOAL_ENOMEM;
    struct sim_device *sim = device_of(stream);
    struct sim_item *item = new_item(SIM_LAUNCH, type->args_bytes);
    pthread_mutex_lock(&sim->lock);
    if (item == NULL)
        goto done;
    SHOAL_TRY(status, shoali_sim_verdict(sim), done);
    item->type = type;
    item->fn = fn;
    memcpy(item->args, args, type->args_bytes);
    SHOAL_TRY(status, check_pointers(sim, type, item->args), done);
    enqueue(sim, (struct sim_stream *)stream, item);
    item = NULL;
done:
    pthread_mutex_unlock(&sim->lock);
    shoali_free(item);
    return status;
}

/* The side of a copy or fill that has to be device memory, or has to be not. */
static shoal_status check_side(const struct sim_device *sim, const char *work, const char *side,
                               const void *address, size_t bytes, bool on_device)
{
    const bool owned = shoali_sim_owns(&sim->base, address);
    if (!on_device && owned)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: the %s %p is device memory, not host memory", work,
                          side, address);
    if (on_device && !owned)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: the %s %p is host memory, not device memory", work,
                          side, address);
    if (on_device && !shoali_sim_is_live(sim, address, bytes))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: %zu bytes of the %s %p are not inside one allocated block", work,
                          bytes, side, address);
    return SHOAL_OK;
}

shoal_status shoali_sim_copy(struct shoali_device_stream *stream, void *to, const void *from,
                             size_t bytes, enum shoali_copy_kind kind)
{
    shoal_status status = SHOAL_ENOMEM;
    struct sim_device *sim = device_of(stream);
    struct sim_item *item = new_item(SIM_COPY, 0);
    pthread_mutex_lock(&sim->lock);
    if (item == NULL)
        goto done;
    SHOAL_TRY(status, shoali_sim_verdict(sim), done);
    SHOAL_TRY(status,
              check_side(sim, "copy", "destination", to, bytes, kind != SHOALI_DEVICE_TO_HOST),
              done);
    SHOAL_TRY(status, check_side(sim, "copy", "source", from, bytes, kind != SHOALI_HOST_TO_DEVICE),
              done);
    item->to = to;
    item->from = from;
    item->bytes = bytes;
    enqueue(sim, (struct sim_stream *)stream, item);
    item = NULL;
done:
    pthread_mutex_unlock(&sim->lock);
    shoali_free(item);
    return status;
}

shoal_status shoali_sim_fill(struct shoali_device_stream *stream, void *to, uint8_t byte,
                             size_t bytes)
{
    shoal_status status = SHOAL_ENOMEM;
    struct sim_device *sim = device_of(stream);
    struct sim_item *item = new_item(SIM_FILL, 0);
    pthread_mutex_lock(&sim->lock);
    if (item == NULL)
        goto done;
    SHOAL_TRY(status, shoali_sim_verdict(sim), done);
    SHOAL_TRY(status, check_side(sim, "fill", "destination", to, bytes, true), done);
    item->to = to;
    item->byte = byte;
    item->bytes = bytes;
    enqueue(sim, (struct sim_stream *)stream, item);
    item = NULL;
done:
    pthread_mutex_unlock(&sim->lock);
    shoali_free(item);
    return status;
}

shoal_status shoali_sim_launch_host(struct shoali_device_stream *stream,
                                    const struct shoali_host_task *task)
{
    static const char *const names[SHOALI_TASK_MAX_BUFFERS] = {"its first buffer",
                                                               "its second buffer"};
    shoal_status status = SHOAL_ENOMEM;
    struct sim_device *sim = device_of(stream);
    struct sim_item *item = new_item(SIM_TASK, 0);
    pthread_mutex_lock(&sim->lock);
    if (item == NULL)
        goto done;
    SHOAL_TRY(status, shoali_sim_verdict(sim), done);
    for (int32_t i = 0; i < SHOALI_TASK_MAX_BUFFERS; i++)
        SHOAL_TRY(status,
                  check_pointer(sim, "task", task->name, names[i], task->buffer[i].address,
                                task->buffer[i].bytes),
                  done);
    SHOAL_TRY(status, shoali_sim_attend(sim), done);
    item->task = *task;
    enqueue(sim, (struct sim_stream *)stream, item);
    item = NULL;
done:
    pthread_mutex_unlock(&sim->lock);
    shoali_free(item);
    if (status < 0)
        task->drop(task->user, status, shoal_error_message());
    return status;
}
