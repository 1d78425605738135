/* sim_run.c - who runs the queues of the simulated device, and when.
 *
 * A task of the host may not be over when its turn comes: it waits for other ranks. Then the stream
 * stays at it and whoever runs looks at the other streams, because those ranks may wait for a task
 * that is queued there. Nobody waits inside a task with the lock held; in between the lock is
 * dropped for a nap. In `late` and `random` mode a thread of the device does the same while the
 * host is elsewhere and a task is queued: the streams of a GPU go on while its host waits for
 * another rank. It is not started before the first task, and it leaves the queues alone as long as
 * the host does something with the device every few milliseconds.
 */
#include "accelerator/sim/sim_device.h"
#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* `random`: one call in this many runs a burst of up to as many pieces of work. */
#define BURST 8u
#define NAP_NS 50000
#define YIELDS 16            /* naps that only let other threads run */
#define PATIENCE_NS 10000000 /* of the device's thread with a host that is elsewhere */

/* NULL: the stream is gone, hence complete. */
static struct sim_stream *find_stream(const struct sim_device *sim, uint64_t id)
{
    struct sim_stream *stream = sim->streams;
    while (stream != NULL && stream->id != id)
        stream = stream->next;
    return stream;
}

bool shoali_sim_is_complete(const struct sim_device *sim, uint64_t stream, uint64_t number)
{
    const struct sim_stream *found = find_stream(sim, stream);
    return found == NULL || found->completed >= number;
}

/* A task may be looked at, which does not say that it is over. */
static bool is_ready(const struct sim_device *sim, const struct sim_stream *stream)
{
    const struct sim_item *item = stream->head;
    return item != NULL && (item->kind != SIM_WAIT ||
                            shoali_sim_is_complete(sim, item->wait_stream, item->wait_number));
}

/* With the lock held: drops it for a while. The naps of one wait get longer. */
static void nap(struct sim_device *sim, int32_t *naps)
{
    pthread_mutex_unlock(&sim->lock);
    if (++*naps < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    pthread_mutex_lock(&sim->lock);
}

/* ---- running one piece of work ---- */

int64_t shoali_sim_pointer_offset(const struct shoali_kernel_type *type, const void *args,
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
    int64_t offset;
    for (int32_t i = 0; (offset = shoali_sim_pointer_offset(item->type, item->args, i)) >= 0; i++) {
        void *pointer;
        memcpy(&pointer, item->args + offset, sizeof pointer);
        pointer = shoali_sim_translate(sim, pointer);
        memcpy(item->args + offset, &pointer, sizeof pointer);
    }
    shoali_device_run_kernel(&stream->base, item->fn, item->args);
}

/* One look at a task; after a failure of the device only those that have begun go on. */
static shoal_status run_task(struct sim_device *sim, struct sim_item *item, bool failed)
{
    const struct shoali_host_task *task = &item->task;
    void *at[SHOALI_TASK_MAX_BUFFERS];
    if (failed && !item->begun) {
        task->drop(task->user, sim->failure.status, sim->failure.sentence);
        return SHOAL_OK;
    }
    item->begun = true;
    for (int32_t i = 0; i < SHOALI_TASK_MAX_BUFFERS; i++)
        at[i] = sim->base.accelerator->exportable
                    ? shoali_sim_translate(sim, task->buffer[i].address)
                    : task->buffer[i].address;
    return task->poll(task->user, at, sim->mode == SIM_THREAD);
}

/* SHOAL_IN_PROGRESS: a task that is not over. Else it is, with an error when a task has failed.
 * What comes after a failure is not run, as on a GPU. */
static shoal_status run_item(struct sim_device *sim, struct sim_stream *stream,
                             struct sim_item *item, bool failed)
{
    if (item->kind == SIM_TASK)
        return run_task(sim, item, failed);
    if (failed)
        return SHOAL_OK;
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
    case SIM_CLOCK:
        item->clock->ns = shoali_now_ns();
        break;
    case SIM_WAIT: /* it was ready */
    case SIM_TASK:
        break;
    }
    return SHOAL_OK;
}

void shoali_sim_release(struct sim_device *sim)
{
    uint64_t oldest = sim->last_number + 1;
    for (const struct sim_stream *s = sim->streams; s != NULL; s = s->next)
        if (s->head != NULL && s->head->number < oldest)
            oldest = s->head->number;
    shoali_sim_memory_release(sim, oldest);
}

static bool has_failed(const struct sim_device *sim)
{
    return sim->failure.status < 0;
}

shoal_status shoali_sim_verdict(const struct sim_device *sim)
{
    return has_failed(sim) ? SHOAL_FAIL(sim->failure.status, "%s", sim->failure.sentence)
                           : SHOAL_OK;
}

void shoali_sim_clock_drop(struct sim_clock *clock)
{
    if (clock != NULL && --clock->users == 0)
        shoali_free(clock);
}

/* Drops the head, which has run, and what its completion makes free. The first failure stays. */
static void finish_head(struct sim_device *sim, struct sim_stream *stream, shoal_status status)
{
    struct sim_item *item = stream->head;
    if (status < 0 && !has_failed(sim)) {
        (void)snprintf(sim->failure.sentence, sizeof sim->failure.sentence, "%s",
                       shoal_error_message());
        sim->failure.status = status;
    }
    stream->head = item->next;
    if (stream->head == NULL)
        stream->tail = NULL;
    stream->pending--;
    stream->completed = item->number;
    sim->task_count -= item->kind == SIM_TASK;
    shoali_sim_clock_drop(item->clock);
    shoali_free(item);
    shoali_sim_release(sim);
    pthread_cond_broadcast(&sim->changed);
}

/* With the lock held. False: a task that is not over. */
static bool run_head(struct sim_device *sim, struct sim_stream *stream)
{
    const shoal_status status = run_item(sim, stream, stream->head, has_failed(sim));
    if (status == SHOAL_IN_PROGRESS)
        return false;
    finish_head(sim, stream, status);
    return true;
}

/* ---- the three modes ---- */

/* Runs as little as the wait needs: the stream up to the number, others only as far as it waits for
 * them. A stream cannot come up twice in the recursion because waits form no cycle. False: a task
 * is not over. */
static bool run_to(struct sim_device *sim, struct sim_stream *stream, uint64_t number)
{
    while (stream != NULL && stream->completed < number) {
        const struct sim_item *item = stream->head;
        SHOAL_ASSERT(item != NULL);
        if (!is_ready(sim, stream) &&
            !run_to(sim, find_stream(sim, item->wait_stream), item->wait_number))
            return false;
        if (!run_head(sim, stream))
            return false;
    }
    return true;
}

/* Every stream as far as its last task needs, and no further: what comes after it stays late. */
static void run_tasks(struct sim_device *sim)
{
    for (struct sim_stream *s = sim->streams; s != NULL; s = s->next)
        (void)run_to(sim, s, s->last_task);
}

/* Runs the next piece of a stream chosen at random; of those after it when that is a task that is
 * not over. False when none of them could run. */
static bool run_random(struct sim_device *sim)
{
    uint64_t ready = 0;
    for (const struct sim_stream *s = sim->streams; s != NULL; s = s->next)
        ready += is_ready(sim, s);
    if (ready == 0)
        return false;
    const uint64_t chosen = shoali_random_below(&sim->random, sim->random_index++, ready);
    for (uint64_t i = 0; i < ready; i++) {
        struct sim_stream *stream = sim->streams;
        uint64_t skip = (chosen + i) % ready;
        while (!is_ready(sim, stream) || skip-- > 0)
            stream = stream->next;
        if (run_head(sim, stream))
            return true;
    }
    return false;
}

void shoali_sim_burst(struct sim_device *sim)
{
    const uint32_t draw = shoali_random_u32(&sim->random, sim->random_index++);
    uint32_t steps = draw % BURST == 0 ? (draw / BURST) % BURST : (draw / BURST) & 1u;
    while (steps-- > 0 && run_random(sim)) {
    }
}

void *shoali_sim_run_thread(void *argument)
{
    struct sim_stream *stream = argument;
    struct sim_device *sim = (struct sim_device *)stream->base.device;
    int32_t naps = 0;
    *shoali_context_get() = stream->context;
    (void)shoali_fp_enter();
    pthread_mutex_lock(&sim->lock);
    for (;;) {
        while (!is_ready(sim, stream) && !(stream->stop && stream->head == NULL))
            pthread_cond_wait(&sim->changed, &sim->lock);
        struct sim_item *item = stream->head;
        if (item == NULL)
            break;
        const bool failed = has_failed(sim);
        pthread_mutex_unlock(&sim->lock);
        const shoal_status status = run_item(sim, stream, item, failed);
        pthread_mutex_lock(&sim->lock);
        if (status == SHOAL_IN_PROGRESS) {
            nap(sim, &naps);
            continue;
        }
        naps = 0;
        finish_head(sim, stream, status);
    }
    pthread_mutex_unlock(&sim->lock);
    return NULL;
}

void shoali_sim_wait(struct sim_device *sim, uint64_t stream, uint64_t number)
{
    int32_t naps = 0;
    while (!shoali_sim_is_complete(sim, stream, number)) {
        sim->host_calls++;
        if (sim->mode == SIM_THREAD) {
            pthread_cond_wait(&sim->changed, &sim->lock);
            continue;
        }
        if (sim->mode == SIM_LATE ? run_to(sim, find_stream(sim, stream), number) : run_random(sim))
            continue;
        SHOAL_ASSERT(sim->task_count > 0);
        if (sim->mode == SIM_LATE)
            run_tasks(sim);
        nap(sim, &naps);
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

/* ---- the device's thread, for a host that is elsewhere ---- */

static void be_patient(struct sim_device *sim)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENCE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&sim->attend, &sim->lock, &until);
}

static void *run_alone(void *argument)
{
    struct sim_device *sim = argument;
    uint64_t seen = 0;
    int32_t naps = YIELDS;
    *shoali_context_get() = sim->context;
    (void)shoali_fp_enter();
    pthread_mutex_lock(&sim->lock);
    while (!sim->stop) {
        if (sim->task_count == 0) {
            pthread_cond_wait(&sim->attend, &sim->lock);
        } else if (seen != sim->host_calls) {
            seen = sim->host_calls;
            be_patient(sim);
        } else {
            if (sim->mode == SIM_LATE)
                run_tasks(sim);
            else
                (void)run_random(sim);
            nap(sim, &naps);
        }
    }
    pthread_mutex_unlock(&sim->lock);
    return NULL;
}

shoal_status shoali_sim_attend(struct sim_device *sim)
{
    shoal_status status;
    if (sim->mode == SIM_THREAD || sim->attended)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_sim_start(&sim->thread, run_alone, sim), done);
    sim->attended = true;
done:
    return status;
}

void shoali_sim_unattend(struct sim_device *sim)
{
    if (!sim->attended)
        return;
    pthread_mutex_lock(&sim->lock);
    sim->stop = true;
    pthread_cond_signal(&sim->attend);
    pthread_mutex_unlock(&sim->lock);
    pthread_join(sim->thread, NULL);
}
