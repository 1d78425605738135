/* cuda_device - the inside of the accelerator cuda; for the files of this folder only.
 *
 *   device   one rank's view of a GPU. Ranks that are threads of one process share the GPU's
 *            context, and with it waits of the driver that concern all of its streams.
 *   task     work of the host in a stream (accelerator.h). The stream waits until a word in pinned
 *            memory has the task's number. A thread of the device looks at the tasks whose turn has
 *            come, and writes the word when one is over.
 *   block    device or pinned memory that was handed out.
 *
 * INVARIANTS
 *   The driver's free waits for all streams of the context. One of them may wait for a task, and
 *   the task for another rank, and that rank for the caller. So a block that is freed while a task
 *   of the process is queued waits in the quarantine; it goes back when no task is queued.
 *   `process.lock` keeps tasks from being queued meanwhile.
 *   The first error of a task or of the driver stays: `failure`. Later calls that queue or wait
 *   return it. Kernels that were queued behind a failed task still run; nobody sees their results.
 *   While a task of the process is queued the host waits by asking, again and again. The driver
 *   waits with locks held, at the least where it copies from or to memory that is not pinned, and
 *   then the thread of the tasks waits for the same locks.
 *   Context and stream are named in each call: never the driver's default stream, which waits for
 *   all others.
 */
#ifndef SHOALI_ACCELERATOR_CUDA_DEVICE_H
#define SHOALI_ACCELERATOR_CUDA_DEVICE_H

#include "accelerator/cuda/cuda.h"
#include "accelerator/cuda/driver.h"
#include "accelerator/device.h"

struct cuda_block {
    char *address;
    size_t bytes;
    bool pinned;
};
/* By address. */
struct cuda_blocks {
    struct cuda_block *block;
    size_t count, capacity;
};

struct cuda_task {
    struct cuda_task *next;
    struct shoali_host_task task;
    struct CUevent_st *ready; /* the stream's earlier work is over */
    uint32_t number;          /* the stream waits for its word to become this */
    bool begun;
};

struct cuda_stream {
    struct shoali_device_stream base;
    struct cuda_stream *next; /* in the device's list */
    struct CUstream_st *handle;
    struct CUevent_st *end; /* of what the stream has, for waits of the host */
    struct cuda_task *head, *tail;
    uint32_t queued;         /* number of the last task */
    volatile uint32_t *word; /* pinned; the number of the last task that is over */
};

struct cuda_event {
    struct shoali_event base;
    struct CUevent_st *handle;
};

struct cuda_device {
    struct shoali_device base;
    const struct shoali_cuda_driver *driver;
    int number; /* the driver's */
    int32_t multiprocessors;
    struct CUctx_st *context;
    int64_t limit_bytes; /* SHOAL_CUDA_BYTES; INT64_MAX: none */
    bool profiles;
    pthread_mutex_t lock;
    /* Under the lock: */
    struct cuda_blocks live, quarantine;
    struct cuda_stream *streams;
    struct {
        shoal_status status; /* SHOAL_OK: none */
        char sentence[1024];
    } failure;
    pthread_t thread; /* of tasks, from the first one on */
    pthread_cond_t attend;
    int64_t task_count;
    bool attended, stop;
    struct shoali_context creator;
};

/* What all devices of the process share. Taken before a device's lock. */
struct cuda_process {
    pthread_mutex_t lock;
    int64_t task_count; /* of all devices */
};
extern struct cuda_process shoali_cuda_process;

/* ---- cuda.c ---- */

/* Makes the device's context the calling thread's. */
SHOAL_CHECKED shoal_status shoali_cuda_enter(const struct cuda_device *cuda);
/* The same where something ends: the caller's error stays what it is. */
bool shoali_cuda_enter_to_end(const struct cuda_device *cuda);
/* SHOAL_OK, or the device's failure as the caller's error. */
SHOAL_CHECKED shoal_status shoali_cuda_verdict(struct cuda_device *cuda);
/* Remembers the calling thread's error, unless there was one before. */
void shoali_cuda_fail(struct cuda_device *cuda, shoal_status status);
/* Checks a code, and remembers what it says. */
SHOAL_CHECKED shoal_status shoali_cuda_done(struct cuda_device *cuda, unsigned code,
                                            const char *call);
#define CUDA_DONE(cuda, call, ...) \
    shoali_cuda_done(cuda, (cuda)->driver->call(__VA_ARGS__), shoali_cuda_names.call)

/* ---- cuda_memory.c: the table's members ---- */

shoal_status shoali_cuda_alloc(struct shoali_device *device, size_t bytes, void **address);
void shoali_cuda_free(struct shoali_device *device, void *address);
bool shoali_cuda_owns(struct shoali_device *device, const void *address);
shoal_status shoali_cuda_host_alloc(struct shoali_device *device, size_t bytes, void **memory);
void shoali_cuda_host_free(struct shoali_device *device, void *memory);
void shoali_cuda_memory(struct shoali_device *device, int64_t *total_bytes,
                        int64_t *available_bytes);
/* Whether an address is pinned memory of this device. */
bool shoali_cuda_is_pinned(struct cuda_device *cuda, const void *address);
/* Gives back all that is left, when no stream is. */
void shoali_cuda_memory_close(struct cuda_device *cuda);

/* ---- cuda_stream.c: the table's members ---- */

shoal_status shoali_cuda_stream_create(struct shoali_device *device,
                                       struct shoali_device_stream **stream);
void shoali_cuda_stream_destroy(struct shoali_device_stream *stream);
shoal_status shoali_cuda_stream_synchronize(struct shoali_device_stream *stream);
shoal_status shoali_cuda_event_create(struct shoali_device *device, bool timed,
                                      struct shoali_event **event);
void shoali_cuda_event_destroy(struct shoali_event *event);
shoal_status shoali_cuda_event_record(struct shoali_event *event,
                                      struct shoali_device_stream *stream);
shoal_status shoali_cuda_event_synchronize(struct shoali_event *event);
shoal_status shoali_cuda_event_elapsed(struct shoali_event *begin, struct shoali_event *end,
                                       int64_t *ns);
shoal_status shoali_cuda_stream_wait_event(struct shoali_device_stream *stream,
                                           struct shoali_event *event);
shoal_status shoali_cuda_copy(struct shoali_device_stream *stream, void *to, const void *from,
                              size_t bytes, enum shoali_copy_kind kind);
shoal_status shoali_cuda_fill(struct shoali_device_stream *stream, void *to, uint8_t byte,
                              size_t bytes);
shoal_status shoali_cuda_run(struct shoali_device_stream *stream,
                             const struct shoali_kernel_type *type, shoali_kernel_fn fn,
                             const void *args);

/* ---- cuda_profile.c ---- */

/* Whether SHOAL_CUDA_PROFILE asks for it. */
bool shoali_cuda_profiles(void);
void shoali_cuda_profile_add(const char *name, int64_t ns);
/* Lines of the log, the longest first; begins anew. */
void shoali_cuda_profile_print(void);

/* ---- cuda_task.c ---- */

/* Whether a task of the process is queued. */
bool shoali_cuda_has_tasks(void);

shoal_status shoali_cuda_launch_host(struct shoali_device_stream *stream,
                                     const struct shoali_host_task *task);
/* Ends the thread, when no task is queued. */
void shoali_cuda_unattend(struct cuda_device *cuda);

#endif
