/* cuda_task.c - work of the host in a GPU's streams: see cuda_device.h. */
#include "accelerator/cuda/cuda_device.h"

#include "base/thread.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#define YIELDS 64 /* naps that only let other threads run */
#define NAP_NS 20000

/* ---- the thread ---- */

/* Of all devices: see empty_quarantine. */
static void count_task(int64_t more)
{
    pthread_mutex_lock(&shoali_cuda_process.lock);
    shoali_cuda_process.task_count += more;
    pthread_mutex_unlock(&shoali_cuda_process.lock);
}

/* With the lock held. The stream goes on behind the task, before anything that may wait for the
 * driver: who waits there for the stream may hold the driver's locks. */
static void finish(struct cuda_device *cuda, struct cuda_stream *stream)
{
    struct cuda_task *task = stream->head;
    stream->head = task->next;
    if (stream->head == NULL)
        stream->tail = NULL;
    __atomic_store_n(stream->word, task->number, __ATOMIC_RELEASE);
    (void)cuda->driver->event_destroy(task->ready);
    cuda->task_count--;
    shoali_free(task);
}

bool shoali_cuda_has_tasks(void)
{
    pthread_mutex_lock(&shoali_cuda_process.lock);
    const bool has = shoali_cuda_process.task_count > 0;
    pthread_mutex_unlock(&shoali_cuda_process.lock);
    return has;
}

/* Without the lock: only the thread looks at a head. True: the task is over. */
static bool look_at(struct cuda_device *cuda, struct cuda_task *task)
{
    void *buffers[SHOALI_TASK_MAX_BUFFERS];
    shoal_status status = SHOAL_OK;
    const unsigned code = task->begun ? 0 : cuda->driver->event_query(task->ready);
    if (code == SHOALI_CUDA_NOT_READY)
        return false;
    if (!task->begun) {
        status = shoali_cuda_done(cuda, code, "cuEventQuery");
        if (status == SHOAL_OK)
            status = shoali_cuda_verdict(cuda);
    }
    if (status < 0) {
        task->task.drop(task->task.user, status, shoal_error_message());
        return true;
    }
    task->begun = true;
    for (int32_t i = 0; i < SHOALI_TASK_MAX_BUFFERS; i++)
        buffers[i] = task->task.buffer[i].address;
    status = task->task.poll(task->task.user, buffers, false);
    if (status < 0)
        shoali_cuda_fail(cuda, status);
    return status != SHOAL_IN_PROGRESS;
}

/* Looks at the first task of each stream. True: one was over. Tasks count until their streams go on
 * (shoali_cuda_has_tasks). */
static bool look_around(struct cuda_device *cuda)
{
    int64_t finished = 0;
    pthread_mutex_lock(&cuda->lock);
    struct cuda_stream *stream = cuda->streams;
    while (stream != NULL) {
        struct cuda_task *task = stream->head;
        struct cuda_stream *next = stream->next;
        if (task != NULL) {
            /* A stream with a task is not destroyed, and its neighbours are read again. */
            pthread_mutex_unlock(&cuda->lock);
            const bool over = look_at(cuda, task);
            pthread_mutex_lock(&cuda->lock);
            next = stream->next;
            if (over)
                finish(cuda, stream);
            finished += over;
        }
        stream = next;
    }
    pthread_mutex_unlock(&cuda->lock);
    if (finished > 0)
        count_task(-finished);
    return finished > 0;
}

static void nap(int32_t *naps)
{
    if (++*naps < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}

static void *attend(void *argument)
{
    struct cuda_device *cuda = argument;
    int32_t naps = 0;
    *shoali_context_get() = cuda->creator;
    (void)shoali_fp_enter();
    if (shoali_cuda_enter(cuda) < 0)
        shoali_cuda_fail(cuda, SHOAL_EIO);
    pthread_mutex_lock(&cuda->lock);
    while (!cuda->stop) {
        if (cuda->task_count == 0) {
            pthread_cond_wait(&cuda->attend, &cuda->lock);
            continue;
        }
        pthread_mutex_unlock(&cuda->lock);
        if (look_around(cuda))
            naps = 0;
        else
            nap(&naps);
        pthread_mutex_lock(&cuda->lock);
    }
    pthread_mutex_unlock(&cuda->lock);
    return NULL;
}

static shoal_status start_thread(struct cuda_device *cuda)
{
    int failed = 0;
    pthread_mutex_lock(&cuda->lock);
    if (!cuda->attended)
        failed = shoali_thread_start(&cuda->thread, attend, cuda);
    cuda->attended = failed == 0;
    pthread_mutex_unlock(&cuda->lock);
    return failed == 0
               ? SHOAL_OK
               : SHOAL_FAIL(SHOAL_ENOMEM, "cuda: cannot start a thread for work of the host: %s",
                            strerror(failed));
}

void shoali_cuda_unattend(struct cuda_device *cuda)
{
    if (!cuda->attended)
        return;
    pthread_mutex_lock(&cuda->lock);
    cuda->stop = true;
    pthread_cond_signal(&cuda->attend);
    pthread_mutex_unlock(&cuda->lock);
    pthread_join(cuda->thread, NULL);
}

/* ---- queueing ---- */

/* Without a lock: a stream whose queue is full holds up the caller until a task is over. The event
 * stands before the wait, and the thread sees the task last. */
static unsigned queue(struct cuda_device *cuda, struct cuda_stream *stream, struct cuda_task *task)
{
    unsigned code = cuda->driver->event_record(task->ready, stream->handle);
    if (code == 0)
        code = cuda->driver->stream_wait_value(stream->handle, (uintptr_t)stream->word,
                                               task->number, SHOALI_CUDA_WAIT_GREATER_OR_EQUAL);
    if (code != 0)
        return code;
    pthread_mutex_lock(&cuda->lock);
    if (stream->tail != NULL)
        stream->tail->next = task;
    else
        stream->head = task;
    stream->tail = task;
    stream->queued = task->number;
    if (cuda->task_count++ == 0)
        pthread_cond_signal(&cuda->attend);
    pthread_mutex_unlock(&cuda->lock);
    return 0;
}

/* Where streams cannot wait for memory: the host waits for the stream, and runs the task. */
static shoal_status run_at_once(struct cuda_device *cuda, struct cuda_stream *stream,
                                const struct shoali_host_task *task)
{
    shoal_status status;
    void *buffers[SHOALI_TASK_MAX_BUFFERS];
    SHOAL_TRY(status, CUDA_DONE(cuda, stream_synchronize, stream->handle), done);
    for (int32_t i = 0; i < SHOALI_TASK_MAX_BUFFERS; i++)
        buffers[i] = task->buffer[i].address;
    do
        status = task->poll(task->user, buffers, true);
    while (status == SHOAL_IN_PROGRESS);
    if (status < 0)
        shoali_cuda_fail(cuda, status);
    return status;
done:
    task->drop(task->user, status, shoal_error_message());
    return status;
}

shoal_status shoali_cuda_launch_host(struct shoali_device_stream *on,
                                     const struct shoali_host_task *given)
{
    shoal_status status = SHOAL_ENOMEM;
    struct cuda_device *cuda = (struct cuda_device *)on->device;
    struct cuda_stream *stream = (struct cuda_stream *)on;
    unsigned code;
    struct cuda_task *task = shoali_calloc(1, sizeof *task, "a task of a cuda stream");
    if (task == NULL)
        goto done;
    SHOAL_TRY(status, shoali_cuda_enter(cuda), done);
    SHOAL_TRY(status, shoali_cuda_verdict(cuda), done);
    SHOAL_TRY(status, CUDA_DONE(cuda, event_create, &task->ready, SHOALI_CUDA_EVENT_DISABLE_TIMING),
              done);
    SHOAL_TRY(status, start_thread(cuda), done);
    task->task = *given;
    task->number = stream->queued + 1;
    count_task(1);
    code = queue(cuda, stream, task);
    if (code == 0)
        return SHOAL_OK;
    count_task(-1);
    if (code == SHOALI_CUDA_NOT_SUPPORTED) {
        (void)cuda->driver->event_destroy(task->ready);
        shoali_free(task);
        return run_at_once(cuda, stream, given);
    }
    status = shoali_cuda_done(cuda, code, "cuStreamWaitValue32");
done:
    if (task != NULL && task->ready != NULL)
        (void)cuda->driver->event_destroy(task->ready);
    shoali_free(task);
    if (status < 0)
        given->drop(given->user, status, shoal_error_message());
    return status;
}
