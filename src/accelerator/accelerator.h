/* accelerator - devices: memory, streams, events, one launch point; no math. Level L2.
 *
 * A device's memory is opaque: only `accelerator/<x>` and the kernels launched through it may touch
 * it. Everything else moves bytes with shoali_copy or hands addresses to
 * shoali_device_launch. Work on one stream runs in order; across streams only events order. A
 * buffer may be freed or reused when the event of its last user on every stream has passed;
 * shoali_device_free does that wait itself by quarantining.
 *
 *   cpu   memory is the process's; streams run each piece of work at once on the caller and its
 *         pool.
 *   sim   proves readiness for a GPU: one memfd mapped twice, the *device* range PROT_NONE for
 *         ever, whose addresses are handed out, and a read-write *alias* at a constant distance.
 *         The launch point copies the argument block and translates its pointers when the work
 *         runs. Streams run `late` (only when somebody waits), `random` (seeded interleaving) or on
 *         a `thread`: SHOAL_SIM_STREAMS (default late). Freed memory is filled with 0xFF (NaN) and
 *         quarantined; fresh memory is filled with 0xFF too. Size of the reservation:
 *         SHOAL_SIM_BYTES (default 8 GiB, lazily committed by the kernel). SHOAL_SIM_MEMORY=closed:
 *         as on a GPU, neither kernels of the host nor tasks get addresses that work; kernels of
 *         tables for this memory alone do (ops/table.h).
 *   cuda  NVIDIA's GPUs, through their driver (accelerator/cuda/cuda.h). It has no memory in common
 *         with the host but pinned memory.
 *   meta  stands in for one of the others in a plan: what it hands out, pinned memory too, are
 *         addresses that no process can have, so touching one is a crash every time; launches and
 *         copies do nothing, copies to the host give zeros; only the counters are real. It is not
 *         chosen by a name. The rank's own code reads and writes pinned memory with
 *         shoali_pinned_read and shoali_pinned_write, which know that.
 *
 * Work of the host in a stream (shoali_launch_host) is a task {poll, drop}: when the stream's
 * earlier work is over, poll is called until it says something else than SHOAL_IN_PROGRESS; the
 * stream's later work comes after that. So the host can put a collective into a stream and go on
 * (comm/comm.h). A task that is not over holds up its stream alone: whoever runs streams looks at
 * the others meanwhile, and streams go on while the host is busy elsewhere, as a GPU's do. Nobody
 * waits for a task but the one who waits for its stream, and a task has a deadline of its own.
 *
 *   A task's error has no caller to go to. The device remembers the first one; from then on every
 *   call that queues or waits returns it with its sentence, and what is queued is not run (as after
 *   an error of a GPU's kernel). Only freeing and destroying go on as before.
 *
 *   Which memory a task may touch: what it names as its buffers. It gets addresses that work while
 *   it runs and no longer. `exportable` says that these may be of device memory, and that every
 *   thread of the process can use them, those of other ranks too: cpu (the address itself) and sim
 *   (the alias). A device that is not exportable has to be copied from and to pinned memory around
 *   the task. On cuda that will depend on what the peers can map.
 *
 * Selection: SHOAL_ACCELERATOR, else DS_ACCELERATOR, else cpu; an unknown name is SHOAL_ECONFIG
 * listing the known ones.
 *
 * Threads: a device belongs to one rank; calls come from the rank's main thread or its
 * communication thread, never at the same time on the same stream.
 */
#ifndef SHOALI_ACCELERATOR_H
#define SHOALI_ACCELERATOR_H

#include "tensor/tensor.h"

struct shoali_device;
struct shoali_device_stream;
struct shoali_event;

#define SHOALI_KERNEL_MAX_POINTERS 16
#define SHOALI_KERNEL_MAX_ARGS 1024
/* What the elements behind a pointer are: a member of the argument block says it, or they always
 * are `dtype`. */
struct shoali_kernel_element {
    uint16_t dtype_at; /* offset of that member; 0: none */
    bool real;         /* F64 where the member says F64, else F32 */
    shoal_dtype dtype;
};
/* How many elements an array has: what a function says, or the product of the block's int64_t
 * members at these offsets (0: no more of them). Neither: not known here. */
struct shoali_kernel_count {
    uint16_t factor[3];
    int64_t (*of)(const void *args);
};
enum shoali_pointer_use { SHOALI_READS = 1, SHOALI_WRITES = 2, SHOALI_UPDATES = 3 };
/* One device pointer of an argument block. */
struct shoali_kernel_pointer {
    const char *name; /* of the member; NULL ends a list */
    uint16_t offset;
    enum shoali_pointer_use use;
    bool optional; /* NULL is an answer */
    struct shoali_kernel_element element;
    struct shoali_kernel_count count; /* of elements from the address on that it may touch */
};
/* What a launch needs to know of a kernel besides its function: the argument block's size and its
 * device pointers, so that `sim` and `cuda` can copy, check and translate. `array_offset` and
 * `array_count_offset` describe one optional inline array of pointers and its int32 count. */
struct shoali_kernel_type {
    const char *name;
    uint16_t args_bytes;
    struct shoali_kernel_pointer pointers[SHOALI_KERNEL_MAX_POINTERS + 1];
    uint16_t array_offset, array_count_offset; /* both 0: none */
};
/* The pointer's value in an argument block, and how many elements and bytes from there on the
 * kernel may touch; -1 and 0 where that is not known. */
void *shoali_kernel_pointer_value(const struct shoali_kernel_pointer *pointer, const void *args);
int64_t shoali_kernel_pointer_count(const struct shoali_kernel_pointer *pointer, const void *args);
size_t shoali_kernel_pointer_bytes(const struct shoali_kernel_pointer *pointer, const void *args);

/* Where a kernel runs. On the host: `threads` may help, and are NULL when the caller is to work
 * alone; device and stream are NULL when the kernel was called on host memory without them. */
struct shoali_kernel_context {
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    struct shoali_pool *threads;
};
typedef void (*shoali_kernel_fn)(const void *args, const struct shoali_kernel_context *context);

enum shoali_copy_kind { SHOALI_HOST_TO_DEVICE, SHOALI_DEVICE_TO_HOST, SHOALI_DEVICE_TO_DEVICE };

struct shoali_device_counters {
    int64_t allocated_bytes, peak_bytes; /* device memory now and at most */
    int64_t alloc_count;                 /* device allocations ever */
    int64_t host_bytes, host_peak_bytes; /* pinned host memory now and at most */
    int64_t host_sync_count;             /* explicit waits of the host for the device */
    int64_t launch_count;
    int64_t workspace_bytes; /* host memory of all threads that kernels take for their work */
    int64_t stream_workspace_bytes; /* of allocated_bytes: what shoali_stream_workspace took */
};

/* What a device is, for people and for benchmarks. "" and 0: not known. */
struct shoali_device_facts {
    char name[96], capability[32], driver[40];
    int64_t cache_bytes; /* of the last level */
    bool emulated;       /* times mean nothing */
};

/* Work of the host in a stream's order. */
enum { SHOALI_TASK_MAX_BUFFERS = 2 };
struct shoali_host_task {
    const char *name; /* of what it does, for messages; lives as long as the program */
    struct {
        void *address; /* device memory, pinned memory or NULL */
        size_t bytes;
    } buffer[SHOALI_TASK_MAX_BUFFERS];
    /* `buffers` are those above, at addresses for this call. On whatever thread runs the stream.
     * With may_wait it may wait until it is over; else it has to return at once. Any other answer
     * than SHOAL_IN_PROGRESS is its last call: it frees `user`. */
    shoal_status (*poll)(void *user, void *const *buffers, bool may_wait);
    /* Instead of the first poll when there will be none, with the error that is why; frees `user`.
     */
    void (*drop)(void *user, shoal_status status, const char *sentence);
    void *user;
};

/* The table of one accelerator. All members are required unless marked optional. */
struct shoali_accelerator {
    uint32_t abi; /* SHOALI_ACCELERATOR_ABI */
    size_t bytes; /* sizeof the table */
    const char *name;
    bool (*probe)(void);
    bool host_accessible;    /* host code may dereference device addresses */
    bool exportable;         /* a task's buffers may be device memory */
    bool host_kernels;       /* kernels of the host may be launched: they reach device memory */
    bool meta;               /* there is no memory, pinned neither */
    const char *memory_name; /* by which kernel tables name it (ops/table.h); NULL: the host's */
    /* Optional: the table that the environment asks for in place of this one, of the same name. */
    shoal_status (*variant)(const struct shoali_accelerator **chosen);
    /* Optional: appends what it found on this machine, or why it does not work. */
    void (*describe)(struct shoali_str *text);

    int32_t (*device_count)(void);
    shoal_status (*device_create)(int32_t index, struct shoali_pool *pool,
                                  struct shoali_device **device);
    void (*device_destroy)(struct shoali_device *device);
    shoal_status (*alloc)(struct shoali_device *device, size_t bytes,
                          void **address); /* 64-byte aligned */
    /* The same, of zeros. NULL: fresh memory may hold anything, so it is filled. */
    shoal_status (*alloc_zeroed)(struct shoali_device *device, size_t bytes, void **address);
    void (*free)(struct shoali_device *device, void *address);
    /* Whether an address is device memory. NULL: nobody asks, as host_kernels is true. */
    bool (*owns)(struct shoali_device *device, const void *address);
    shoal_status (*host_alloc)(struct shoali_device *device, size_t bytes,
                               void **memory); /* pinned */
    void (*host_free)(struct shoali_device *device, void *memory);
    shoal_status (*stream_create)(struct shoali_device *device,
                                  struct shoali_device_stream **stream);
    void (*stream_destroy)(struct shoali_device_stream *stream);
    shoal_status (*stream_synchronize)(struct shoali_device_stream *stream);
    /* A timed event keeps when the stream came to it. */
    shoal_status (*event_create)(struct shoali_device *device, bool timed,
                                 struct shoali_event **event);
    void (*event_destroy)(struct shoali_event *event);
    shoal_status (*event_record)(struct shoali_event *event, struct shoali_device_stream *stream);
    shoal_status (*event_synchronize)(struct shoali_event *event);
    /* Of timed events that have passed: from one to the other, by the device's clock. */
    shoal_status (*event_elapsed)(struct shoali_event *begin, struct shoali_event *end,
                                  int64_t *ns);
    shoal_status (*stream_wait_event)(struct shoali_device_stream *stream,
                                      struct shoali_event *event);
    /* A kernel that runs on the host runs by shoali_device_run_kernel. */
    shoal_status (*launch)(struct shoali_device_stream *stream,
                           const struct shoali_kernel_type *type, shoali_kernel_fn fn,
                           const void *args);
    /* Asynchronous in the stream; host memory must be pinned (host_alloc) or live until
     * synchronize. */
    shoal_status (*copy)(struct shoali_device_stream *stream, void *to, const void *from,
                         size_t bytes, enum shoali_copy_kind kind);
    shoal_status (*fill)(struct shoali_device_stream *stream, void *to, uint8_t byte, size_t bytes);
    /* Takes the task over: after an error it has been dropped, or the error is its own. */
    shoal_status (*launch_host)(struct shoali_device_stream *stream,
                                const struct shoali_host_task *task);
    void (*memory)(struct shoali_device *device, int64_t *total_bytes, int64_t *available_bytes);
    /* Optional: what the device is. */
    void (*facts)(struct shoali_device *device, struct shoali_device_facts *facts);
    void (*counters)(const struct shoali_device *device, struct shoali_device_counters *counters);
};
#define SHOALI_ACCELERATOR_ABI 6u
extern const struct shoali_accelerator shoali_accelerator_cuda, shoali_accelerator_cpu,
    shoali_accelerator_sim, shoali_accelerator_sim_closed;
/* The meta table that looks to others as `like` does. */
const struct shoali_accelerator *shoali_accelerator_meta(const struct shoali_accelerator *like);

/* Chooses by `name`, or the environment, or probing when NULL. */
SHOAL_CHECKED shoal_status shoali_accelerator_select(const char *name,
                                                     const struct shoali_accelerator **accelerator);
/* NULL-terminated list of the built ones, in probing order. */
const struct shoali_accelerator *const *shoali_accelerator_all(void);

/* Fronts: the first member of every device, stream and event struct is its accelerator table /
 * device, so these dispatch without a registry. */
SHOAL_CHECKED shoal_status shoali_device_create(const struct shoali_accelerator *accelerator,
                                                int32_t index, struct shoali_pool *pool,
                                                struct shoali_device **device);
void shoali_device_destroy(struct shoali_device *device); /* NULL is fine */
const struct shoali_accelerator *shoali_device_accelerator(const struct shoali_device *device);
int32_t shoali_device_index(const struct shoali_device *device);
struct shoali_pool *shoali_device_pool(const struct shoali_device *device);
/* Threads that a kernel has. A plan's device, which launches nothing, is told of them. */
int32_t shoali_device_threads(const struct shoali_device *device);
void shoali_device_set_threads(struct shoali_device *device, int32_t threads);
/* A kernel takes so many bytes of working memory per thread; the most of any counts. */
void shoali_device_count_workspace(struct shoali_device *device, size_t bytes);
/* bytes 0 gives a valid unique-enough non-NULL address. Fault point "device_alloc". */
SHOAL_CHECKED shoal_status shoali_device_alloc(struct shoali_device *device, size_t bytes,
                                               void **address);
/* The same, of zeros from the stream's next work on. Memory that the system has cleared is not
 * touched. */
SHOAL_CHECKED shoal_status shoali_device_alloc_zeroed(struct shoali_device_stream *stream,
                                                      size_t bytes, void **address);
void shoali_device_free(struct shoali_device *device, void *address);
SHOAL_CHECKED shoal_status shoali_device_host_alloc(struct shoali_device *device, size_t bytes,
                                                    void **memory);
void shoali_device_host_free(struct shoali_device *device, void *memory);
/* A plan: what the device hands out must not be touched. */
bool shoali_device_is_meta(const struct shoali_device *device);
/* memcpy from and to pinned memory by code that a plan runs too: there it reads zeros, and writes
 * nothing. */
void shoali_pinned_read(const struct shoali_device *device, void *to, const void *pinned,
                        size_t bytes);
void shoali_pinned_write(const struct shoali_device *device, void *pinned, const void *from,
                         size_t bytes);
SHOAL_CHECKED shoal_status shoali_stream_create(struct shoali_device *device,
                                                struct shoali_device_stream **stream);
void shoali_stream_destroy(struct shoali_device_stream *stream);
struct shoali_device *shoali_stream_device(const struct shoali_device_stream *stream);
SHOAL_CHECKED shoal_status
shoali_stream_synchronize(struct shoali_device_stream *stream); /* counted */
SHOAL_CHECKED shoal_status shoali_event_create(struct shoali_device *device,
                                               struct shoali_event **event);
/* An event that shoali_event_elapsed takes. */
SHOAL_CHECKED shoal_status shoali_event_create_timed(struct shoali_device *device,
                                                     struct shoali_event **event);
void shoali_event_destroy(struct shoali_event *event);
SHOAL_CHECKED shoal_status shoali_event_record(struct shoali_event *event,
                                               struct shoali_device_stream *stream);
SHOAL_CHECKED shoal_status shoali_event_synchronize(struct shoali_event *event); /* counted */
/* Waits for `end`, which is recorded behind `begin` in the order of streams, and gives the time
 * from one to the other as the device has seen it. SHOAL_EINVAL: an event without time, or never
 * recorded. */
SHOAL_CHECKED shoal_status shoali_event_elapsed(struct shoali_event *begin,
                                                struct shoali_event *end, int64_t *ns);
SHOAL_CHECKED shoal_status shoali_stream_wait_event(struct shoali_device_stream *stream,
                                                    struct shoali_event *event);
SHOAL_CHECKED shoal_status shoali_launch(struct shoali_device_stream *stream,
                                         const struct shoali_kernel_type *type, shoali_kernel_fn fn,
                                         const void *args);
SHOAL_CHECKED shoal_status shoali_copy(struct shoali_device_stream *stream, void *to,
                                       const void *from, size_t bytes, enum shoali_copy_kind kind);
SHOAL_CHECKED shoal_status shoali_fill(struct shoali_device_stream *stream, void *to, uint8_t byte,
                                       size_t bytes);
/* Puts work of the host into the stream. Takes the task over, on failure too. */
SHOAL_CHECKED shoal_status shoali_launch_host(struct shoali_device_stream *stream,
                                              const struct shoali_host_task *task);
/* A block of pinned memory that belongs to the stream, for work of that stream alone: it holds what
 * the stream's last user put there, because the stream runs in order. The next call for the same
 * block may free it, when it asks for more (what is queued keeps it until then). Blocks 0 and 1
 * serve collectives (comm/), SHOALI_STAGING_KERNEL serves kernels of the host (ops/staged.c). */
enum { SHOALI_STAGING_KERNEL = 2, SHOALI_STAGING_BLOCKS };
SHOAL_CHECKED shoal_status shoali_stream_staging(struct shoali_device_stream *stream, int32_t block,
                                                 size_t bytes, void **memory);
/* Device memory that belongs to the stream, for kernels of that stream alone, which run in its
 * order. All callers ask for the same size: it is allocated at the first call and freed with the
 * stream. */
SHOAL_CHECKED shoal_status shoali_stream_workspace(struct shoali_device_stream *stream,
                                                   size_t bytes, void **address);
/* Runs a kernel of the host at once, on the calling thread and, where nobody else uses them, the
 * device's threads. Counts its workspace. */
void shoali_device_run_kernel(struct shoali_device_stream *stream, shoali_kernel_fn fn,
                              const void *args);
/* Whether an address is memory of a device whose host_kernels is false. */
bool shoali_device_owns(struct shoali_device *device, const void *address);
/* Counts memory that came from elsewhere (communication buffers) among the device's; negative when
 * it goes. */
void shoali_device_count_foreign(struct shoali_device *device, int64_t bytes);
/* Copies to or from ordinary host memory and waits; for small or rare transfers. Counted. */
SHOAL_CHECKED shoal_status shoali_upload(struct shoali_device_stream *stream, void *device_to,
                                         const void *host_from, size_t bytes);
SHOAL_CHECKED shoal_status shoali_download(struct shoali_device_stream *stream, void *host_to,
                                           const void *device_from, size_t bytes);
void shoali_device_memory(struct shoali_device *device, int64_t *total_bytes,
                          int64_t *available_bytes);
void shoali_device_get_facts(struct shoali_device *device, struct shoali_device_facts *facts);
void shoali_device_get_counters(const struct shoali_device *device,
                                struct shoali_device_counters *counters);
/* Bytes of host memory that a process of this machine can have now when `sharers` processes share
 * what is free: control groups, and the process's own limits (address space, data). */
struct shoali_host_room {
    int64_t free_bytes;          /* of the machine or control group, one share */
    int64_t data_bytes;          /* left of RLIMIT_DATA: private memory; INT64_MAX: no limit */
    int64_t address_space_bytes; /* left of RLIMIT_AS: shared memory of all ranks counts too */
};
void shoali_host_room(int32_t sharers, struct shoali_host_room *room);

#endif
