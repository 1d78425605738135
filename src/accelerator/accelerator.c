/* accelerator.c - selection, and the fronts that check, count and dispatch. */
#include "accelerator/device.h"

#include "base/scratch.h"

#include <stdlib.h>
#include <string.h>

static const struct shoali_accelerator *const built[] = {
    &shoali_accelerator_cpu,
    /* Behind cpu, which always probes true: these must be asked for by name. */
    &shoali_accelerator_cuda,
    &shoali_accelerator_sim,
    NULL,
};
#define BUILT_COUNT (sizeof built / sizeof built[0] - 1)

const struct shoali_accelerator *const *shoali_accelerator_all(void)
{
    return built;
}

static const char *environment_or(const char *name, const char *variable)
{
    if (name != NULL)
        return name;
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static shoal_status unknown_name(const char *name)
{
    const char *names[BUILT_COUNT];
    struct shoali_str list = {0};
    for (size_t i = 0; i < BUILT_COUNT; i++) {
        names[i] = built[i]->name;
        shoali_str_append(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = shoali_nearest(name, names, BUILT_COUNT);
    const shoal_status status =
        near != NULL
            ? SHOAL_FAIL(SHOAL_ECONFIG,
                         "accelerator '%s' is unknown; did you mean '%s'? Built in: %s", name, near,
                         shoali_str_get(&list))
            : SHOAL_FAIL(SHOAL_ECONFIG,
                         "accelerator '%s' is unknown; set SHOAL_ACCELERATOR to one of: %s", name,
                         shoali_str_get(&list));
    shoali_str_fini(&list);
    return status;
}

static shoal_status does_not_work(const struct shoali_accelerator *accelerator)
{
    struct shoali_str why = {0};
    if (accelerator->describe != NULL)
        accelerator->describe(&why);
    const shoal_status status =
        SHOAL_FAIL(SHOAL_EUNSUPPORTED, "accelerator '%s' does not work on this machine%s%s",
                   accelerator->name, why.length > 0 ? ": " : "", shoali_str_get(&why));
    shoali_str_fini(&why);
    return status;
}

shoal_status shoali_accelerator_select(const char *name,
                                       const struct shoali_accelerator **accelerator)
{
    *accelerator = NULL;
    const char *wanted = environment_or(name, "SHOAL_ACCELERATOR");
    wanted = environment_or(wanted, "DS_ACCELERATOR");
    for (size_t i = 0; i < BUILT_COUNT; i++) {
        const bool named = wanted != NULL && strcmp(wanted, built[i]->name) == 0;
        if (wanted != NULL && !named)
            continue;
        if (built[i]->probe()) {
            *accelerator = built[i];
            return built[i]->variant != NULL ? built[i]->variant(accelerator) : SHOAL_OK;
        }
        if (named)
            return does_not_work(built[i]);
    }
    return wanted != NULL ? unknown_name(wanted)
                          : SHOAL_FAIL(SHOAL_EUNSUPPORTED, "no accelerator works on this machine");
}

/* ---- what the backends share ---- */

void shoali_device_init(struct shoali_device *device, const struct shoali_accelerator *accelerator,
                        struct shoali_pool *pool)
{
    device->accelerator = accelerator;
    device->pool = pool;
    device->threads = shoali_pool_threads(pool);
    pthread_mutex_init(&device->pool_lock, NULL);
}

void shoali_device_fini(struct shoali_device *device)
{
    pthread_mutex_destroy(&device->pool_lock);
}

static void raise_to(_Atomic int64_t *highest, int64_t value)
{
    int64_t before = atomic_load(highest);
    while (value > before && !atomic_compare_exchange_weak(highest, &before, value)) {
    }
}

/* Adds to a sum and keeps its highest value. */
static void count(_Atomic int64_t *sum, _Atomic int64_t *highest, int64_t bytes)
{
    raise_to(highest, atomic_fetch_add(sum, bytes) + bytes);
}

void shoali_device_count_alloc(struct shoali_device *device, size_t bytes)
{
    count(&device->allocated_bytes, &device->peak_bytes, (int64_t)bytes);
    atomic_fetch_add(&device->alloc_count, 1);
}

void shoali_device_count_host(struct shoali_device *device, int64_t bytes)
{
    count(&device->host_bytes, &device->host_peak_bytes, bytes);
}

void shoali_device_count_workspace(struct shoali_device *device, size_t bytes)
{
    raise_to(&device->workspace_bytes, bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX);
}

void shoali_device_set_threads(struct shoali_device *device, int32_t threads)
{
    device->threads = threads;
}

int32_t shoali_device_threads(const struct shoali_device *device)
{
    return device->threads;
}

void shoali_device_run_kernel(struct shoali_device_stream *stream, shoali_kernel_fn fn,
                              const void *args)
{
    struct shoali_device *device = stream->device;
    struct shoali_kernel_context context = {.device = device, .stream = stream};
    /* Where the rank's other thread has the pool: results do not depend on the number of threads,
     * so going on alone beats waiting for the end of its matrix product. */
    const bool shared =
        shoali_pool_threads(device->pool) > 1 && pthread_mutex_trylock(&device->pool_lock) == 0;
    if (shared)
        context.threads = device->pool;
    shoali_scratch_forget_asked();
    fn(args, &context);
    shoali_device_count_workspace(device, shoali_scratch_asked());
    if (shared)
        pthread_mutex_unlock(&device->pool_lock);
}

bool shoali_device_owns(struct shoali_device *device, const void *address)
{
    return device->accelerator->owns(device, address);
}

void shoali_device_count_foreign(struct shoali_device *device, int64_t bytes)
{
    if (bytes >= 0)
        shoali_device_count_alloc(device, (size_t)bytes);
    else
        shoali_device_count_free(device, (size_t)-bytes);
}

void shoali_device_count_free(struct shoali_device *device, size_t bytes)
{
    atomic_fetch_sub(&device->allocated_bytes, (int64_t)bytes);
}

static int64_t workspace_of_all(const struct shoali_device *device)
{
    const size_t bytes = shoali_scratch_rounded((size_t)atomic_load(&device->workspace_bytes));
    int64_t all;
    return bytes < INT64_MAX && shoali_mul((int64_t)bytes, device->threads, &all) ? all : INT64_MAX;
}

void shoali_device_read_counters(const struct shoali_device *device,
                                 struct shoali_device_counters *counters)
{
    *counters = (struct shoali_device_counters){
        .allocated_bytes = atomic_load(&device->allocated_bytes),
        .peak_bytes = atomic_load(&device->peak_bytes),
        .alloc_count = atomic_load(&device->alloc_count),
        .host_sync_count = atomic_load(&device->host_sync_count),
        .launch_count = atomic_load(&device->launch_count),
        .host_bytes = atomic_load(&device->host_bytes),
        .host_peak_bytes = atomic_load(&device->host_peak_bytes),
        .workspace_bytes = workspace_of_all(device),
        .stream_workspace_bytes = atomic_load(&device->stream_workspace_bytes),
    };
}

shoal_status shoali_device_check_index(const struct shoali_accelerator *accelerator, int32_t index)
{
    if (index < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: device index %d is negative", accelerator->name,
                          (int)index);
    return SHOAL_OK;
}

/* ---- fronts: devices and memory ---- */

shoal_status shoali_device_create(const struct shoali_accelerator *accelerator, int32_t index,
                                  struct shoali_pool *pool, struct shoali_device **device)
{
    shoal_status status;
    SHOAL_ASSERT(accelerator->abi == SHOALI_ACCELERATOR_ABI);
    SHOAL_ASSERT(accelerator->bytes == sizeof *accelerator);
    *device = NULL;
    SHOAL_TRY(status, accelerator->device_create(index, pool, device), done);
    (*device)->index = index;
done:
    return status;
}

void shoali_device_destroy(struct shoali_device *device)
{
    if (device == NULL)
        return;
    device->accelerator->device_destroy(device);
}

const struct shoali_accelerator *shoali_device_accelerator(const struct shoali_device *device)
{
    return device->accelerator;
}

int32_t shoali_device_index(const struct shoali_device *device)
{
    return device->index;
}

struct shoali_pool *shoali_device_pool(const struct shoali_device *device)
{
    return device->pool;
}

static shoal_status try_alloc_fault(const struct shoali_device *device, size_t bytes)
{
    return shoali_fault("device_alloc")
               ? SHOAL_FAIL(SHOAL_ENOMEM, "%s: fault 'device_alloc' refused %zu bytes",
                            device->accelerator->name, bytes)
               : SHOAL_OK;
}

shoal_status shoali_device_alloc(struct shoali_device *device, size_t bytes, void **address)
{
    shoal_status status;
    *address = NULL;
    SHOAL_TRY(status, try_alloc_fault(device, bytes), done);
    status = device->accelerator->alloc(device, bytes, address);
done:
    return status;
}

shoal_status shoali_device_alloc_zeroed(struct shoali_device_stream *stream, size_t bytes,
                                        void **address)
{
    struct shoali_device *device = stream->device;
    const struct shoali_accelerator *accelerator = device->accelerator;
    shoal_status status;
    if (accelerator->alloc_zeroed == NULL) {
        SHOAL_TRY(status, shoali_device_alloc(device, bytes, address), done);
        status = shoali_fill(stream, *address, 0, bytes);
        if (status < 0) {
            shoali_device_free(device, *address);
            *address = NULL;
        }
        goto done;
    }
    *address = NULL;
    SHOAL_TRY(status, try_alloc_fault(device, bytes), done);
    status = accelerator->alloc_zeroed(device, bytes, address);
done:
    return status;
}

void shoali_device_free(struct shoali_device *device, void *address)
{
    if (address != NULL)
        device->accelerator->free(device, address);
}

shoal_status shoali_device_host_alloc(struct shoali_device *device, size_t bytes, void **memory)
{
    *memory = NULL;
    if (shoali_fault("host_alloc"))
        return SHOAL_FAIL(SHOAL_ENOMEM, "%s: fault 'host_alloc' refused %zu bytes",
                          device->accelerator->name, bytes);
    return device->accelerator->host_alloc(device, bytes, memory);
}

void shoali_device_host_free(struct shoali_device *device, void *memory)
{
    if (memory != NULL)
        device->accelerator->host_free(device, memory);
}

bool shoali_device_is_meta(const struct shoali_device *device)
{
    return device->accelerator->meta;
}

void shoali_pinned_read(const struct shoali_device *device, void *to, const void *pinned,
                        size_t bytes)
{
    if (device->accelerator->meta)
        memset(to, 0, bytes);
    else
        memcpy(to, pinned, bytes);
}

void shoali_pinned_write(const struct shoali_device *device, void *pinned, const void *from,
                         size_t bytes)
{
    if (!device->accelerator->meta)
        memcpy(pinned, from, bytes);
}

void shoali_device_memory(struct shoali_device *device, int64_t *total_bytes,
                          int64_t *available_bytes)
{
    device->accelerator->memory(device, total_bytes, available_bytes);
}

void shoali_device_get_facts(struct shoali_device *device, struct shoali_device_facts *facts)
{
    *facts = (struct shoali_device_facts){0};
    if (device->accelerator->facts != NULL)
        device->accelerator->facts(device, facts);
}

void shoali_device_get_counters(const struct shoali_device *device,
                                struct shoali_device_counters *counters)
{
    device->accelerator->counters(device, counters);
}

/* ---- fronts: streams and events ---- */

shoal_status shoali_stream_create(struct shoali_device *device,
                                  struct shoali_device_stream **stream)
{
    *stream = NULL;
    return device->accelerator->stream_create(device, stream);
}

void shoali_stream_destroy(struct shoali_device_stream *stream)
{
    if (stream == NULL)
        return;
    struct shoali_device *device = stream->device;
    struct shoali_pinned_block staging[SHOALI_STAGING_BLOCKS];
    void *const workspace = stream->workspace;
    memcpy(staging, stream->staging, sizeof staging);
    atomic_fetch_sub(&device->stream_workspace_bytes, (int64_t)stream->workspace_bytes);
    device->accelerator->stream_destroy(stream);
    shoali_device_free(device, workspace);
    for (int32_t i = 0; i < SHOALI_STAGING_BLOCKS; i++)
        shoali_device_host_free(device, staging[i].memory);
}

struct shoali_device *shoali_stream_device(const struct shoali_device_stream *stream)
{
    return stream->device;
}

shoal_status shoali_stream_synchronize(struct shoali_device_stream *stream)
{
    atomic_fetch_add(&stream->device->host_sync_count, 1);
    return stream->device->accelerator->stream_synchronize(stream);
}

shoal_status shoali_event_create(struct shoali_device *device, struct shoali_event **event)
{
    *event = NULL;
    return device->accelerator->event_create(device, false, event);
}

shoal_status shoali_event_create_timed(struct shoali_device *device, struct shoali_event **event)
{
    shoal_status status;
    *event = NULL;
    SHOAL_TRY(status, device->accelerator->event_create(device, true, event), done);
    (*event)->timed = true;
done:
    return status;
}

void shoali_event_destroy(struct shoali_event *event)
{
    if (event != NULL)
        event->device->accelerator->event_destroy(event);
}

shoal_status shoali_event_record(struct shoali_event *event, struct shoali_device_stream *stream)
{
    shoal_status status;
    SHOAL_ASSERT(event->device == stream->device);
    SHOAL_TRY(status, event->device->accelerator->event_record(event, stream), done);
    if (event->timed)
        event->recorded = true;
done:
    return status;
}

shoal_status shoali_event_synchronize(struct shoali_event *event)
{
    atomic_fetch_add(&event->device->host_sync_count, 1);
    return event->device->accelerator->event_synchronize(event);
}

shoal_status shoali_event_elapsed(struct shoali_event *begin, struct shoali_event *end, int64_t *ns)
{
    shoal_status status;
    SHOAL_ASSERT(begin->device == end->device);
    *ns = 0;
    if (!begin->recorded || !end->recorded)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the time between two events of device %s: the %s is %s; create it by "
                          "shoali_event_create_timed and record it first",
                          end->device->accelerator->name, begin->recorded ? "second" : "first",
                          (begin->recorded ? end : begin)->timed ? "not recorded" : "not timed");
    SHOAL_TRY(status, shoali_event_synchronize(end), done);
    SHOAL_TRY(status, end->device->accelerator->event_elapsed(begin, end, ns), done);
done:
    return status;
}

shoal_status shoali_stream_wait_event(struct shoali_device_stream *stream,
                                      struct shoali_event *event)
{
    SHOAL_ASSERT(event->device == stream->device);
    return event->device->accelerator->stream_wait_event(stream, event);
}

/* ---- fronts: work ---- */

void *shoali_kernel_pointer_value(const struct shoali_kernel_pointer *pointer, const void *args)
{
    void *value;
    memcpy(&value, (const char *)args + pointer->offset, sizeof value);
    return value;
}

int64_t shoali_kernel_pointer_count(const struct shoali_kernel_pointer *pointer, const void *args)
{
    const struct shoali_kernel_count *count = &pointer->count;
    int64_t product = 1;
    if (count->of != NULL)
        return count->of(args);
    for (int i = 0; i < 3 && count->factor[i] != 0; i++) {
        int64_t value;
        memcpy(&value, (const char *)args + count->factor[i], sizeof value);
        product *= value;
    }
    return count->factor[0] != 0 ? product : -1;
}

size_t shoali_kernel_pointer_bytes(const struct shoali_kernel_pointer *pointer, const void *args)
{
    const struct shoali_kernel_element *element = &pointer->element;
    shoal_dtype dtype = element->dtype;
    const int64_t count = shoali_kernel_pointer_count(pointer, args);
    if (count <= 0)
        return 0;
    if (element->dtype_at != 0)
        memcpy(&dtype, (const char *)args + element->dtype_at, sizeof dtype);
    if (element->real && dtype != SHOAL_F64)
        dtype = SHOAL_F32;
    return (size_t)count * shoal_dtype_bytes(dtype);
}

shoal_status shoali_launch(struct shoali_device_stream *stream,
                           const struct shoali_kernel_type *type, shoali_kernel_fn fn,
                           const void *args)
{
    SHOAL_ASSERT(type->args_bytes <= SHOALI_KERNEL_MAX_ARGS);
    atomic_fetch_add(&stream->device->launch_count, 1);
    return stream->device->accelerator->launch(stream, type, fn, args);
}

shoal_status shoali_copy(struct shoali_device_stream *stream, void *to, const void *from,
                         size_t bytes, enum shoali_copy_kind kind)
{
    if (bytes == 0)
        return SHOAL_OK;
    /* A GPU leaves an overlapping copy undefined; refuse it everywhere. */
    const uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    if (a < b + bytes && b < a + bytes)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "copy of %zu bytes: source %p and destination %p overlap; copy through a "
                          "third buffer",
                          bytes, from, to);
    return stream->device->accelerator->copy(stream, to, from, bytes, kind);
}

shoal_status shoali_fill(struct shoali_device_stream *stream, void *to, uint8_t byte, size_t bytes)
{
    if (bytes == 0)
        return SHOAL_OK;
    return stream->device->accelerator->fill(stream, to, byte, bytes);
}

shoal_status shoali_launch_host(struct shoali_device_stream *stream,
                                const struct shoali_host_task *task)
{
    return stream->device->accelerator->launch_host(stream, task);
}

shoal_status shoali_stream_staging(struct shoali_device_stream *stream, int32_t block, size_t bytes,
                                   void **memory)
{
    shoal_status status = SHOAL_OK;
    struct shoali_pinned_block *staging = &stream->staging[block];
    *memory = NULL;
    if (staging->memory == NULL || staging->bytes < bytes) {
        shoali_device_host_free(stream->device, staging->memory);
        *staging = (struct shoali_pinned_block){0};
        SHOAL_TRY(status, shoali_device_host_alloc(stream->device, bytes, &staging->memory), done);
        staging->bytes = bytes;
    }
    *memory = staging->memory;
done:
    return status;
}

shoal_status shoali_stream_workspace(struct shoali_device_stream *stream, size_t bytes,
                                     void **address)
{
    shoal_status status = SHOAL_OK;
    *address = NULL;
    if (stream->workspace == NULL) {
        SHOAL_TRY(status, shoali_device_alloc(stream->device, bytes, &stream->workspace), done);
        stream->workspace_bytes = bytes;
        atomic_fetch_add(&stream->device->stream_workspace_bytes, (int64_t)bytes);
    }
    SHOAL_ASSERT(bytes <= stream->workspace_bytes);
    *address = stream->workspace;
done:
    return status;
}

shoal_status shoali_upload(struct shoali_device_stream *stream, void *device_to,
                           const void *host_from, size_t bytes)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_copy(stream, device_to, host_from, bytes, SHOALI_HOST_TO_DEVICE),
              done);
    SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
done:
    return status;
}

shoal_status shoali_download(struct shoali_device_stream *stream, void *host_to,
                             const void *device_from, size_t bytes)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_copy(stream, host_to, device_from, bytes, SHOALI_DEVICE_TO_HOST),
              done);
    SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
done:
    return status;
}
