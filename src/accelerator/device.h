/* device - what every accelerator's objects begin with, so that the fronts dispatch and count
 * without a registry. For the files of this folder only. */
#ifndef SHOALI_ACCELERATOR_DEVICE_H
#define SHOALI_ACCELERATOR_DEVICE_H

#include "accelerator/accelerator.h"

#include <pthread.h>
#include <stdatomic.h>

/* Pinned memory that is kept between uses. */
struct shoali_pinned_block {
    void *memory; /* NULL: none yet */
    size_t bytes;
};

/* First member of every backend's device. */
struct shoali_device {
    const struct shoali_accelerator *accelerator;
    struct shoali_pool *pool;  /* borrowed, may be NULL (one thread) */
    pthread_mutex_t pool_lock; /* held around a kernel that uses the pool: it serves one caller */
    /* Atomic: the rank's main thread and its communication thread both count. */
    _Atomic int64_t allocated_bytes, peak_bytes, alloc_count, host_sync_count, launch_count;
    _Atomic int64_t host_bytes, host_peak_bytes;
    _Atomic int64_t workspace_bytes;        /* of a thread, as asked for */
    _Atomic int64_t stream_workspace_bytes; /* device memory of all streams, at most */
    int32_t threads;                        /* of the pool, or what a plan expects of it */
    int32_t index;                          /* of the accelerator's; set by the front */
};
/* First member of every backend's stream and event. */
struct shoali_device_stream {
    struct shoali_device *device;
    struct shoali_pinned_block staging[SHOALI_STAGING_BLOCKS];
    void *workspace; /* device memory; NULL: none yet */
    size_t workspace_bytes;
};
struct shoali_event {
    struct shoali_device *device;
    bool timed;    /* set by the front, */
    bool recorded; /* of timed events alone */
};

void shoali_device_init(struct shoali_device *device, const struct shoali_accelerator *accelerator,
                        struct shoali_pool *pool);
void shoali_device_fini(struct shoali_device *device);
/* Count an allocation, and its end. */
void shoali_device_count_alloc(struct shoali_device *device, size_t bytes);
void shoali_device_count_free(struct shoali_device *device, size_t bytes);
/* Count pinned host memory: bytes > 0 that was allocated, < 0 that was freed. */
void shoali_device_count_host(struct shoali_device *device, int64_t bytes);
/* The `counters` member of every table. */
void shoali_device_read_counters(const struct shoali_device *device,
                                 struct shoali_device_counters *counters);
/* SHOAL_EINVAL unless the index is >= 0. A CPU is shared by as many ranks as there are, so the
 * index of the cpu and sim devices is a label only. */
SHOAL_CHECKED shoal_status shoali_device_check_index(const struct shoali_accelerator *accelerator,
                                                     int32_t index);
/* Memory in bytes that this machine gives the process: installed, or the control group's or the
 * address space's limit when that is smaller; and how much of it is free now. */
void shoali_host_memory(int64_t *total_bytes, int64_t *available_bytes);

#endif
