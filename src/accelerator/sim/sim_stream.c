/* sim_stream.c - queues of the simulated device, and who runs them when. */
#include "accelerator/sim/sim_device.h"

#include <signal.h>
#include <string.h>

/* A queue this long runs, so that forgetting to synchronise does not eat the host's memory. */
#define QUEUE_BOUND ((int64_t)1 << 16)
/* `random`: one call in this many runs a burst of up to as many pieces of work. */
#define BURST 8u

static struct sim_device *device_of(const struct shoali_device_stream *stream)
{
    return (struct sim_device *)stream->device;
}

/* NULL: the stream is gone, hence complete. */
static struct sim_stream *find_stream(const struct sim_device *sim, uint64_t id)
{
    struct sim_stream *stream = sim->streams;
    while (stream != NULL && stream->id != id)
        stream = stream->next;
    return stream;
}

static bool is_complete(const struct sim_device *sim, uint64_t stream, uint64_t number)
{
    const struct sim_stream *found = find_stream(sim, stream);
    return found == NULL || found->completed >= number;
}

static bool is_ready(const struct sim_device *sim, const struct sim_stream *stream)
{
    const struct sim_item *item = stream->head;
    return item != NULL &&
           (item->kind != SIM_WAIT || is_complete(sim, item->wait_stream, item->wait_number));
}

/* ---- running one piece of work ---- */

/* Offset of the index-th device pointer in the argument block: those of the list, then those of the
 * inline array. -1 past the last. */
static int64_t pointer_offset(const struct shoali_kernel_type *type, const void *args,
                              int32_t index)
{
    int32_t listed = 0, in_array = 0;
    while (type->pointers[listed].name != NULL)
        listed++;
    if (index < listed)
        return type->pointers[index].offset;
    if (type->array_offset != 0 || type->array_count_offset != 0) {
        memcpy(&in_array, (const char *)args + type->array_count_offset, sizeof in_array);
        SHOAL_ASSERT(in_array >= 0 &&
                     (size_t)in_array * sizeof(void *) + type->array_offset <= type->args_bytes);
    }
    if (index - listed >= in_array)
        return -1;
    return type->array_offset + (index - listed) * (int64_t)sizeof(void *);
}

static void run_kernel(struct sim_device *sim, struct sim_stream *stream, struct sim_item *item)
{
    struct shoali_kernel_context context = {.device = &sim->base, .stream = &stream->base};
    int64_t offset;
    for (int32_t i = 0; (offset = pointer_offset(item->type, item->args, i)) >= 0; i++) {
        void *pointer;
        memcpy(&pointer, item->args + offset, sizeof pointer);
        pointer = shoali_sim_translate(sim, pointer);
        memcpy(item->args + offset, &pointer, sizeof pointer);
    }
    if (shoali_pool_threads(sim->base.pool) == 1) {
        item->fn(item->args, &context);
        return;
    }
    context.threads = sim->base.pool;
    pthread_mutex_lock(&sim->base.pool_lock);
    item->fn(item->args, &context);
    pthread_mutex_unlock(&sim->base.pool_lock);
}

static void run_item(struct sim_device *sim, struct sim_stream *stream, struct sim_item *item)
{
    switch (item->kind) {
    case SIM_LAUNCH:
        run_kernel(sim, stream, item);
        break;
    case SIM_COPY:
        memcpy(shoali_sim_translate(sim, item->to), shoali_sim_translate(sim, item->from),
               item->bytes);
        break;
    case SIM_FILL:
        memset(shoali_sim_translate(sim, item->to), item->byte, item->bytes);
        break;
    case SIM_WAIT:
        break; /* it was ready */
    }
}

void shoali_sim_release(struct sim_device *sim)
{
    uint64_t oldest = sim->last_number + 1;
    for (const struct sim_stream *s = sim->streams; s != NULL; s = s->next)
        if (s->head != NULL && s->head->number < oldest)
            oldest = s->head->number;
    shoali_sim_memory_release(sim, oldest);
}

/* Drops the head, which has run, and what its completion makes free. */
static void finish_head(struct sim_device *sim, struct sim_stream *stream)
{
    struct sim_item *item = stream->head;
    stream->head = item->next;
    if (stream->head == NULL)
        stream->tail = NULL;
    stream->pending--;
    stream->completed = item->number;
    shoali_free(item);
    shoali_sim_release(sim);
    pthread_cond_broadcast(&sim->changed);
}

/* ---- the three modes ---- */

/* Runs as little as the wait needs: the stream up to the number, others only as far as it waits for
 * them. A stream cannot come up twice in the recursion because waits form no cycle. */
static void run_late(struct sim_device *sim, struct sim_stream *stream, uint64_t number)
{
    while (stream->completed < number) {
        struct sim_item *item = stream->head;
        SHOAL_ASSERT(item != NULL);
        if (!is_ready(sim, stream))
            run_late(sim, find_stream(sim, item->wait_stream), item->wait_number);
        run_item(sim, stream, item);
        finish_head(sim, stream);
    }
}

/* Runs the next piece of a stream chosen at random; false when no stream has one. */
static bool run_random(struct sim_device *sim)
{
    uint64_t ready = 0;
    for (const struct sim_stream *s = sim->streams; s != NULL; s = s->next)
        ready += is_ready(sim, s);
    if (ready == 0)
        return false;
    uint64_t chosen = shoali_random_below(&sim->random, sim->random_index++, ready);
    struct sim_stream *stream = sim->streams;
    while (!is_ready(sim, stream) || chosen-- > 0)
        stream = stream->next;
    run_item(sim, stream, stream->head);
    finish_head(sim, stream);
    return true;
}

static void run_random_burst(struct sim_device *sim)
{
    const uint32_t draw = shoali_random_u32(&sim->random, sim->random_index++);
    uint32_t steps = draw % BURST == 0 ? (draw / BURST) % BURST : (draw / BURST) & 1u;
    while (steps-- > 0 && run_random(sim)) {
    }
}

static void *run_thread(void *argument)
{
    struct sim_stream *stream = argument;
    struct sim_device *sim = device_of(&stream->base);
    *shoali_context_get() = stream->context;
    (void)shoali_fp_enter();
    pthread_mutex_lock(&sim->lock);
    for (;;) {
        while (!is_ready(sim, stream) && !(stream->stop && stream->head == NULL))
            pthread_cond_wait(&sim->changed, &sim->lock);
        struct sim_item *item = stream->head;
        if (item == NULL)
            break;
        pthread_mutex_unlock(&sim->lock);
        run_item(sim, stream, item);
        pthread_mutex_lock(&sim->lock);
        finish_head(sim, stream);
    }
    pthread_mutex_unlock(&sim->lock);
    return NULL;
}

void shoali_sim_wait(struct sim_device *sim, uint64_t stream, uint64_t number)
{
    while (!is_complete(sim, stream, number)) {
        if (sim->mode == SIM_LATE)
            run_late(sim, find_stream(sim, stream), number);
        else if (sim->mode == SIM_THREAD)
            pthread_cond_wait(&sim->changed, &sim->lock);
        else
            SHOAL_ASSERT(run_random(sim));
    }
}

void shoali_sim_drain(struct sim_device *sim)
{
    /* From the start after every wait: the lock may have been dropped and the list changed. */
    struct sim_stream *stream = sim->streams;
    while (stream != NULL) {
        if (stream->head == NULL) {
            stream = stream->next;
            continue;
        }
        shoali_sim_wait(sim, stream->id, stream->queued);
        stream = sim->streams;
    }
}

/* ---- streams ---- */

/* Starts the stream's thread with the signals of the outer world blocked; faults still come
 * through. */
static shoal_status start_thread(struct sim_stream *stream)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    sigset_t blocked, old;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof synchronous / sizeof synchronous[0]; i++)
        sigdelset(&blocked, synchronous[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &old);
    const int failed = pthread_create(&stream->thread, NULL, run_thread, stream);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed != 0)
        return SHOAL_FAIL(SHOAL_ENOMEM, "sim: cannot start a stream's thread: %s",
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
        SHOAL_TRY(status, start_thread(made), done);
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
    pthread_mutex_unlock(&sim->lock);
    return SHOAL_OK;
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
    if (sim->mode == SIM_RANDOM)
        run_random_burst(sim);
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

shoal_status shoali_sim_event_create(struct shoali_device *device, struct shoali_event **event)
{
    struct sim_event *made = shoali_calloc(1, sizeof *made, "a sim event");
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->base.device = device;
    *event = &made->base;
    return SHOAL_OK;
}

void shoali_sim_event_destroy(struct shoali_event *event)
{
    shoali_free(event); /* queued waits hold their own copy of the pair */
}

shoal_status shoali_sim_event_record(struct shoali_event *event,
                                     struct shoali_device_stream *stream)
{
    struct sim_device *sim = device_of(stream);
    struct sim_event *own = (struct sim_event *)event;
    const struct sim_stream *on = (struct sim_stream *)stream;
    pthread_mutex_lock(&sim->lock);
    own->stream = on->id;
    own->number = on->queued;
    pthread_mutex_unlock(&sim->lock);
    return SHOAL_OK;
}

shoal_status shoali_sim_event_synchronize(struct shoali_event *event)
{
    struct sim_device *sim = (struct sim_device *)event->device;
    const struct sim_event *own = (struct sim_event *)event;
    pthread_mutex_lock(&sim->lock);
    shoali_sim_wait(sim, own->stream, own->number);
    pthread_mutex_unlock(&sim->lock);
    return SHOAL_OK;
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
    if (!is_complete(sim, own->stream, own->number)) {
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

/* A kernel may be given NULL, live device memory and pinned host memory: nothing else would work on
 * a GPU. `bytes`: what it may touch from there on, 0 when that is not known. */
static shoal_status check_pointer(const struct sim_device *sim, const char *kernel,
                                  const char *name, const void *pointer, size_t bytes)
{
    const bool owned = shoali_sim_owns(&sim->base, pointer);
    if (pointer == NULL || shoali_sim_is_live(sim, pointer, bytes) ||
        (!owned && shoali_sim_is_pinned(sim, pointer)))
        return SHOAL_OK;
    if (owned && shoali_sim_is_live(sim, pointer, 0))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "kernel %s: %s needs %zu bytes from %p on, which is more than one "
                          "allocated block has there",
                          kernel, name, bytes, pointer);
    return SHOAL_FAIL(SHOAL_EINVAL, "kernel %s: %s is %p, which is %s", kernel, name, pointer,
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
                  check_pointer(sim, type->name, type->pointers[i].name,
                                shoali_kernel_pointer_value(&type->pointers[i], args),
                                shoali_kernel_pointer_bytes(&type->pointers[i], args)),
                  done);
    for (; (offset = pointer_offset(type, args, i)) >= 0; i++) {
        void *pointer;
        memcpy(&pointer, (const char *)args + offset, sizeof pointer);
        SHOAL_TRY(status, check_pointer(sim, type->name, "a pointer of the array", pointer, 0),
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
