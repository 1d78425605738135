/* sim_device - the inside of the simulated device; for the files of this folder only.
 *
 * One lock per device guards everything. In `late` and `random` mode work runs on the host thread
 * that waits, with the lock held; in `thread` mode each stream has a thread, which drops the lock
 * while a piece of work runs. A task of the host that is not over stays its stream's head:
 * sim_run.c says who goes on with what meanwhile. Every piece of work has a sequence number of the
 * device's one counter, so
 *   - an event is a pair (stream id, number of the last piece before it): complete when the stream
 *     has completed that number. Ids are never reused; a stream that is gone has completed all.
 *   - a freed block is released once every number up to the free's has completed on every stream.
 * A wait only ever names work that was queued before it, so waits form no cycle.
 *
 * The first task that fails makes the device fail: its sentence is what every later call says that
 * queues or waits. What is queued then completes without being run; a task that has not begun is
 * told so (drop), one that has goes on until it is over, because others may hold its memory.
 */
#ifndef SHOALI_ACCELERATOR_SIM_DEVICE_H
#define SHOALI_ACCELERATOR_SIM_DEVICE_H

#include "accelerator/device.h"
#include "accelerator/sim/sim.h"

enum sim_mode { SIM_LATE, SIM_RANDOM, SIM_THREAD };
/* SIM_LIVE is in use; SIM_QUARANTINED is freed, but work queued before may still use it. */
enum sim_state { SIM_FREE, SIM_LIVE, SIM_QUARANTINED };

/* The reservation, cut without gaps into segments in address order. */
struct sim_segment {
    size_t offset, bytes; /* multiples of the granule */
    size_t asked;         /* SIM_LIVE and SIM_QUARANTINED: as asked for */
    uint64_t freed_at;    /* SIM_QUARANTINED: last number queued before the free */
    enum sim_state state;
};

/* Pinned host memory. */
struct sim_pinned {
    char *memory;
    size_t bytes;
    uint64_t freed_at;
    bool freed;
};

enum sim_kind { SIM_LAUNCH, SIM_COPY, SIM_FILL, SIM_WAIT, SIM_TASK, SIM_CLOCK };

/* When a stream came to a timed event: of the event, and of the work that reads the clock. */
struct sim_clock {
    int32_t users;
    int64_t ns;
};

struct sim_item {
    struct sim_item *next;
    uint64_t number;
    enum sim_kind kind;
    uint8_t byte;                          /* SIM_FILL */
    const struct shoali_kernel_type *type; /* SIM_LAUNCH */
    shoali_kernel_fn fn;
    void *to; /* SIM_COPY, SIM_FILL: addresses as the caller gave them */
    const void *from;
    size_t bytes;
    uint64_t wait_stream, wait_number; /* SIM_WAIT */
    struct sim_clock *clock;           /* SIM_CLOCK */
    struct shoali_host_task task;      /* SIM_TASK */
    bool begun;                        /* SIM_TASK */
    _Alignas(16) unsigned char args[]; /* SIM_LAUNCH: copy of the argument block */
};

struct sim_stream {
    struct shoali_device_stream base;
    struct sim_stream *next; /* in the device's list */
    uint64_t id;             /* from 1 */
    struct sim_item *head, *tail;
    int64_t pending;            /* items in the queue; the head stays until it has run */
    uint64_t queued, completed; /* numbers of the last item queued and completed */
    uint64_t last_task;         /* number of the last task queued */
    pthread_t thread;           /* SIM_THREAD */
    bool stop;
    struct shoali_context context; /* of the creator, for the thread */
};

struct sim_event {
    struct shoali_event base;
    uint64_t stream, number; /* 0: never recorded, complete */
    struct sim_clock *clock; /* of a timed event that was recorded */
};

struct sim_device {
    struct shoali_device base;
    enum sim_mode mode;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an item completed or was queued, or a stream has to stop */
    struct {
        shoal_status status; /* SHOAL_OK: none */
        char sentence[1024];
    } failure;

    /* The device's thread of `late` and `random`, from the first task on. */
    pthread_t thread;
    pthread_cond_t attend; /* there is a task again, or the thread has to stop */
    bool attended, stop;
    int64_t task_count;  /* queued */
    uint64_t host_calls; /* grows while the host does something with the device */
    struct shoali_context context;

    char *range;        /* device range, PROT_NONE; what callers see */
    char *alias;        /* the same memory, read-write */
    size_t bytes;       /* of each */
    size_t high_bytes;  /* the range's part that ever held a block */
    int64_t used_bytes; /* live and quarantined, with rounding and red zones */
    struct sim_segment *segment;
    size_t segment_count, segment_capacity;
    uint64_t next_release; /* smallest freed_at in quarantine, UINT64_MAX: nothing is in it */
    struct sim_pinned *pinned;
    size_t pinned_count, pinned_capacity;

    struct sim_stream *streams;
    uint64_t last_number, last_stream;
    struct shoali_stream random;
    uint64_t random_index;
};

/* ---- sim_memory.c: all but open and close with the lock held ---- */

shoal_status shoali_sim_memory_open(struct sim_device *sim, size_t bytes);
void shoali_sim_memory_close(struct sim_device *sim);
shoal_status shoali_sim_memory_alloc(struct sim_device *sim, size_t bytes, void **address);
/* Quarantines a live block; its bytes as asked for. */
size_t shoali_sim_memory_free(struct sim_device *sim, void *address);
shoal_status shoali_sim_pinned_alloc(struct sim_device *sim, size_t bytes, void **memory);
void shoali_sim_pinned_free(struct sim_device *sim, void *memory);
/* Releases the quarantined blocks freed before work number `oldest`, the first not yet complete. */
void shoali_sim_memory_release(struct sim_device *sim, uint64_t oldest);
/* True when [address, address+bytes) lies in one live block (its end counts when bytes is 0). */
bool shoali_sim_is_live(const struct sim_device *sim, const void *address, size_t bytes);
bool shoali_sim_is_pinned(const struct sim_device *sim, const void *address);
/* The address a kernel or copy has to use: device addresses move to the alias, others stay. */
void *shoali_sim_translate(const struct sim_device *sim, const void *address);

/* ---- sim_run.c ---- */

/* Offset of the index-th device pointer in the argument block: those of the list, then those of the
 * inline array. -1 past the last. */
int64_t shoali_sim_pointer_offset(const struct shoali_kernel_type *type, const void *args,
                                  int32_t index);
/* With the lock held: SHOAL_OK, or the device's failure as the caller's error. */
SHOAL_CHECKED shoal_status shoali_sim_verdict(const struct sim_device *sim);
bool shoali_sim_is_complete(const struct sim_device *sim, uint64_t stream, uint64_t number);
/* `random`, with the lock held: runs some of what is queued. */
void shoali_sim_burst(struct sim_device *sim);
/* With the lock held: one user of a clock less. NULL is fine. */
void shoali_sim_clock_drop(struct sim_clock *clock);
/* The thread of a stream. */
void *shoali_sim_run_thread(void *stream);
/* With the lock held: starts the device's thread, where the mode needs it and unless it runs. */
SHOAL_CHECKED shoal_status shoali_sim_attend(struct sim_device *sim);
/* Without the lock: ends it. */
void shoali_sim_unattend(struct sim_device *sim);
/* With the lock held: waits until the work `number` of a stream has completed, running what the
 * mode leaves to the host. */
void shoali_sim_wait(struct sim_device *sim, uint64_t stream, uint64_t number);
/* With the lock held: releases what no incomplete work can still use. */
void shoali_sim_release(struct sim_device *sim);
/* With the lock held: waits for everything queued so far. */
void shoali_sim_drain(struct sim_device *sim);

/* ---- sim_stream.c ---- */

SHOAL_CHECKED shoal_status shoali_sim_start(pthread_t *thread, void *(*run)(void *),
                                            void *argument);
/* The table's members. */
shoal_status shoali_sim_stream_create(struct shoali_device *device,
                                      struct shoali_device_stream **stream);
void shoali_sim_stream_destroy(struct shoali_device_stream *stream);
shoal_status shoali_sim_stream_synchronize(struct shoali_device_stream *stream);
shoal_status shoali_sim_event_create(struct shoali_device *device, bool timed,
                                     struct shoali_event **event);
void shoali_sim_event_destroy(struct shoali_event *event);
shoal_status shoali_sim_event_record(struct shoali_event *event,
                                     struct shoali_device_stream *stream);
shoal_status shoali_sim_event_synchronize(struct shoali_event *event);
shoal_status shoali_sim_event_elapsed(struct shoali_event *begin, struct shoali_event *end,
                                      int64_t *ns);
shoal_status shoali_sim_stream_wait_event(struct shoali_device_stream *stream,
                                          struct shoali_event *event);
shoal_status shoali_sim_launch(struct shoali_device_stream *stream,
                               const struct shoali_kernel_type *type, shoali_kernel_fn fn,
                               const void *args);
shoal_status shoali_sim_copy(struct shoali_device_stream *stream, void *to, const void *from,
                             size_t bytes, enum shoali_copy_kind kind);
shoal_status shoali_sim_fill(struct shoali_device_stream *stream, void *to, uint8_t byte,
                             size_t bytes);
shoal_status shoali_sim_launch_host(struct shoali_device_stream *stream,
                                    const struct shoali_host_task *task);

#endif
