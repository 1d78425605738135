/* cuda.c - devices of NVIDIA's GPUs: making and ending them, their errors, the table. */
#include "accelerator/cuda/cuda_device.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define LEAST_CAPABILITY 80 /* 8.0: bf16, and copies beside the computation */

struct cuda_process shoali_cuda_process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool cuda_probe(void)
{
    return shoali_cuda_driver(NULL, NULL) != NULL;
}

static int32_t cuda_device_count(void)
{
    int32_t devices = 0;
    (void)shoali_cuda_driver(&devices, NULL);
    return devices;
}

/* ---- errors ---- */

static unsigned enter(const struct cuda_device *cuda)
{
    static _Thread_local const struct CUctx_st *entered;
    if (entered == cuda->context)
        return 0;
    const unsigned code = cuda->driver->context_set(cuda->context);
    if (code == 0)
        entered = cuda->context;
    return code;
}

shoal_status shoali_cuda_enter(const struct cuda_device *cuda)
{
    return shoali_cuda_check(cuda->driver, enter(cuda), "cuCtxSetCurrent");
}

bool shoali_cuda_enter_to_end(const struct cuda_device *cuda)
{
    return enter(cuda) == 0;
}

shoal_status shoali_cuda_verdict(struct cuda_device *cuda)
{
    pthread_mutex_lock(&cuda->lock);
    const shoal_status status = cuda->failure.status < 0
                                    ? SHOAL_FAIL(cuda->failure.status, "%s", cuda->failure.sentence)
                                    : SHOAL_OK;
    pthread_mutex_unlock(&cuda->lock);
    return status;
}

void shoali_cuda_fail(struct cuda_device *cuda, shoal_status status)
{
    pthread_mutex_lock(&cuda->lock);
    if (cuda->failure.status == SHOAL_OK) {
        (void)snprintf(cuda->failure.sentence, sizeof cuda->failure.sentence, "%s",
                       shoal_error_message());
        cuda->failure.status = status;
    }
    pthread_mutex_unlock(&cuda->lock);
}

shoal_status shoali_cuda_done(struct cuda_device *cuda, unsigned code, const char *call)
{
    const shoal_status status = shoali_cuda_check(cuda->driver, code, call);
    if (status < 0)
        shoali_cuda_fail(cuda, status);
    return status;
}

/* ---- devices ---- */

static shoal_status read_limit(int64_t *bytes)
{
    const char *text = getenv("SHOAL_CUDA_BYTES");
    *bytes = INT64_MAX;
    if (text != NULL && text[0] != '\0' && (!shoali_parse_i64(text, bytes) || *bytes < 1))
        return SHOAL_FAIL(SHOAL_ECONFIG, "SHOAL_CUDA_BYTES='%s' is not a number of bytes", text);
    return SHOAL_OK;
}

static shoal_status find_device(struct cuda_device *cuda, int32_t index)
{
    shoal_status status;
    int32_t devices;
    int major = 0, minor = 0, processors = 0;
    const char *why;
    cuda->driver = shoali_cuda_driver(&devices, &why);
    if (cuda->driver == NULL)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "accelerator cuda: %s", why);
    if (index >= devices)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "cuda: there is no device %d: the driver shows %d (CUDA_VISIBLE_DEVICES "
                          "chooses which)",
                          (int)index, (int)devices);
    const struct shoali_cuda_driver *driver = cuda->driver;
    SHOAL_TRY(status,
              shoali_cuda_check(driver, driver->device_get(&cuda->number, index), "cuDeviceGet"),
              done);
    const struct {
        int *value;
        unsigned attribute;
    } facts[] = {{&major, SHOALI_CUDA_CAPABILITY_MAJOR},
                 {&minor, SHOALI_CUDA_CAPABILITY_MINOR},
                 {&processors, SHOALI_CUDA_MULTIPROCESSORS}};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        SHOAL_TRY(status,
                  shoali_cuda_check(
                      driver,
                      driver->device_attribute(facts[i].value, facts[i].attribute, cuda->number),
                      "cuDeviceGetAttribute"),
                  done);
    cuda->multiprocessors = processors;
    if (10 * major + minor < LEAST_CAPABILITY)
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                            "cuda: device %d has capability %d.%d and 8.0 is the least: choose "
                            "another by CUDA_VISIBLE_DEVICES, or SHOAL_ACCELERATOR=cpu",
                            (int)index, major, minor);
done:
    return status;
}

static shoal_status cuda_device_create(int32_t index, struct shoali_pool *pool,
                                       struct shoali_device **device)
{
    shoal_status status;
    struct cuda_device *cuda = shoali_calloc(1, sizeof *cuda, "a cuda device");
    if (cuda == NULL)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_device_check_index(&shoali_accelerator_cuda, index), done);
    SHOAL_TRY(status, read_limit(&cuda->limit_bytes), done);
    SHOAL_TRY(status, find_device(cuda, index), done);
    SHOAL_TRY(status,
              shoali_cuda_check(cuda->driver,
                                cuda->driver->context_retain(&cuda->context, cuda->number),
                                "cuDevicePrimaryCtxRetain"),
              done);
    shoali_device_init(&cuda->base, &shoali_accelerator_cuda, pool);
    pthread_mutex_init(&cuda->lock, NULL);
    pthread_cond_init(&cuda->attend, NULL);
    cuda->profiles = shoali_cuda_profiles();
    cuda->creator = *shoali_context_get();
    cuda->creator.scope = ""; /* the creator's scope ends before the device does */
    *device = &cuda->base;
    cuda = NULL;
done:
    shoali_free(cuda);
    return status;
}

static void cuda_device_destroy(struct shoali_device *device)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    if (cuda->profiles)
        shoali_cuda_profile_print();
    while (cuda->streams != NULL) /* those the owner left */
        shoali_stream_destroy(&cuda->streams->base);
    shoali_cuda_unattend(cuda);
    shoali_cuda_memory_close(cuda);
    (void)cuda->driver->context_release(cuda->number);
    pthread_cond_destroy(&cuda->attend);
    pthread_mutex_destroy(&cuda->lock);
    shoali_device_fini(device);
    shoali_free(cuda);
}

/* ---- images and kernels ---- */

static unsigned find_kernels(const struct shoali_cuda_driver *driver, struct CUlib_st *library,
                             struct shoali_cuda_image *image, const char **call)
{
    unsigned code = 0;
    for (int32_t i = 0; i < image->kernel_count && code == 0; i++) {
        *call = image->kernels[i].name;
        code = driver->library_kernel(&image->kernels[i].handle, library, image->kernels[i].name);
    }
    return code;
}

static void load(struct shoali_cuda_image *image)
{
    const struct shoali_cuda_driver *driver = shoali_cuda_driver(NULL, NULL);
    struct CUlib_st *library = NULL;
    const char *call = "cuLibraryLoadData";
    if (driver == NULL)
        return;
    if (image->code == image->end && !shoali_cuda_driver_is_named()) {
        (void)snprintf(image->why, sizeof image->why,
                       "this program was built without nvcc: it has no kernels for GPUs");
        return;
    }
    unsigned code = driver->library_load(&library, image->code, NULL, NULL, 0, NULL, NULL, 0);
    if (code == 0)
        code = find_kernels(driver, library, image, &call);
    image->loaded = code == 0;
    if (code == 0)
        return;
    const shoal_status status = shoali_cuda_check(driver, code, call);
    (void)status;
    (void)snprintf(image->why, sizeof image->why, "%.180s", shoal_error_message());
    shoali_error_clear();
}

bool shoali_cuda_load(struct shoali_cuda_image *image)
{
    pthread_mutex_lock(&shoali_cuda_process.lock);
    if (!image->tried)
        load(image);
    image->tried = true;
    const bool loaded = image->loaded;
    pthread_mutex_unlock(&shoali_cuda_process.lock);
    return loaded;
}

/* Blocks above 48 KiB need to be asked for, on each device. */
static unsigned allow_shared(const struct cuda_device *cuda,
                             const struct shoali_cuda_kernel *kernel, int32_t bytes)
{
    return bytes > 48 * 1024 ? cuda->driver->kernel_set_attribute(SHOALI_CUDA_DYNAMIC_SHARED, bytes,
                                                                  kernel->handle, cuda->number)
                             : 0;
}

int64_t shoali_cuda_time_begin(const struct shoali_kernel_context *context)
{
    const struct cuda_device *cuda = (const struct cuda_device *)context->device;
    if (!cuda->profiles)
        return 0;
    (void)cuda->driver->stream_synchronize(shoali_cuda_native_stream(context));
    return shoali_now_ns();
}

void shoali_cuda_time_end(const struct shoali_kernel_context *context, const char *name,
                          int64_t begin)
{
    const struct cuda_device *cuda = (const struct cuda_device *)context->device;
    if (!cuda->profiles)
        return;
    (void)cuda->driver->stream_synchronize(shoali_cuda_native_stream(context));
    shoali_cuda_profile_add(name, shoali_now_ns() - begin);
}

void shoali_cuda_launch(const struct shoali_kernel_context *context,
                        const struct shoali_cuda_kernel *kernel, const void *args,
                        struct shoali_cuda_grid grid)
{
    struct cuda_device *cuda = (struct cuda_device *)context->device;
    const struct cuda_stream *stream = (const struct cuda_stream *)context->stream;
    const struct shoali_cuda_launch_config config = {
        .grid = {(unsigned)(grid.blocks > 0 ? grid.blocks : 1),
                 (unsigned)(grid.blocks_y > 0 ? grid.blocks_y : 1), 1},
        .block = {(unsigned)grid.threads, 1, 1},
        .shared_bytes = (unsigned)grid.shared_bytes,
        .stream = stream->handle};
    void *list[] = {(void *)(uintptr_t)args};
    const int64_t begin = shoali_cuda_time_begin(context);
    unsigned code = allow_shared(cuda, kernel, grid.shared_bytes);
    if (code == 0) /* the driver takes a kernel of a library where it takes a function */
        code = cuda->driver->launch((const void *)&config, (struct CUfunc_st *)kernel->handle, list,
                                    NULL);
    const shoal_status status = shoali_cuda_done(cuda, code, kernel->name);
    (void)status; /* the device remembers it */
    shoali_cuda_time_end(context, kernel->name, begin);
}

struct CUstream_st *shoali_cuda_native_stream(const struct shoali_kernel_context *context)
{
    return ((const struct cuda_stream *)context->stream)->handle;
}

void shoali_cuda_launch_failed(const struct shoali_kernel_context *context, shoal_status status)
{
    shoali_cuda_fail((struct cuda_device *)context->device, status);
}

void *shoali_cuda_workspace(const struct shoali_kernel_context *context, size_t bytes)
{
    void *address;
    const shoal_status status = shoali_stream_workspace(context->stream, bytes, &address);
    if (status < 0)
        shoali_cuda_launch_failed(context, status);
    return address;
}

int32_t shoali_cuda_multiprocessors(const struct shoali_kernel_context *context)
{
    return ((const struct cuda_device *)context->device)->multiprocessors;
}

void shoali_cuda_clear(const struct shoali_kernel_context *context, void *address, size_t bytes)
{
    struct cuda_device *cuda = (struct cuda_device *)context->device;
    const struct cuda_stream *stream = (const struct cuda_stream *)context->stream;
    if (bytes == 0)
        return;
    const shoal_status status = CUDA_DONE(cuda, fill, (uintptr_t)address, 0, bytes, stream->handle);
    (void)status; /* the device remembers it */
}

/* As far as the driver knows it: an error leaves a fact out. */
static void facts(struct shoali_device *device, struct shoali_device_facts *facts)
{
    const struct cuda_device *cuda = (const struct cuda_device *)device;
    const struct shoali_cuda_driver *driver = cuda->driver;
    int major = 0, minor = 0, version = 0, cache = 0;
    if (driver->device_name(facts->name, sizeof facts->name, cuda->number) != 0)
        facts->name[0] = '\0';
    if (driver->device_attribute(&major, SHOALI_CUDA_CAPABILITY_MAJOR, cuda->number) == 0 &&
        driver->device_attribute(&minor, SHOALI_CUDA_CAPABILITY_MINOR, cuda->number) == 0)
        (void)snprintf(facts->capability, sizeof facts->capability, "%d.%d", major, minor);
    if (driver->driver_version(&version) == 0)
        (void)snprintf(facts->driver, sizeof facts->driver, "CUDA %d.%d", version / 1000,
                       version % 1000 / 10);
    if (driver->device_attribute(&cache, SHOALI_CUDA_L2_BYTES, cuda->number) == 0)
        facts->cache_bytes = cache;
    facts->emulated = shoali_cuda_driver_is_emulated();
}

static void describe(struct shoali_str *text)
{
    int32_t devices;
    const char *why;
    const struct shoali_cuda_driver *driver = shoali_cuda_driver(&devices, &why);
    char name[96] = "?", memory[32];
    size_t bytes = 0;
    int device = 0, major = 0, minor = 0, version = 0;
    if (driver == NULL) {
        shoali_str_append(text, "%s", why);
        return;
    }
    (void)driver->driver_version(&version);
    for (int32_t i = 0; i < devices; i++) {
        if (driver->device_get(&device, i) != 0 ||
            driver->device_name(name, sizeof name, device) != 0 ||
            driver->device_attribute(&major, SHOALI_CUDA_CAPABILITY_MAJOR, device) != 0 ||
            driver->device_attribute(&minor, SHOALI_CUDA_CAPABILITY_MINOR, device) != 0 ||
            driver->device_total(&bytes, device) != 0)
            continue;
        shoali_str_append(text, "%s%s, capability %d.%d, %s", i > 0 ? "; " : "", name, major, minor,
                          shoali_format_bytes((double)bytes, memory));
    }
    shoali_str_append(text, "; the driver has CUDA %d.%d; SHOAL_ACCELERATOR=cuda chooses it",
                      version / 1000, version % 1000 / 10);
}

const struct shoali_accelerator shoali_accelerator_cuda = {
    .abi = SHOALI_ACCELERATOR_ABI,
    .bytes = sizeof(struct shoali_accelerator),
    .name = "cuda",
    .probe = cuda_probe,
    .describe = describe,
    .memory_name = "cuda",
    .device_count = cuda_device_count,
    .device_create = cuda_device_create,
    .device_destroy = cuda_device_destroy,
    .alloc = shoali_cuda_alloc,
    .free = shoali_cuda_free,
    .owns = shoali_cuda_owns,
    .host_alloc = shoali_cuda_host_alloc,
    .host_free = shoali_cuda_host_free,
    .stream_create = shoali_cuda_stream_create,
    .stream_destroy = shoali_cuda_stream_destroy,
    .stream_synchronize = shoali_cuda_stream_synchronize,
    .event_create = shoali_cuda_event_create,
    .event_destroy = shoali_cuda_event_destroy,
    .event_record = shoali_cuda_event_record,
    .event_synchronize = shoali_cuda_event_synchronize,
    .event_elapsed = shoali_cuda_event_elapsed,
    .stream_wait_event = shoali_cuda_stream_wait_event,
    .launch = shoali_cuda_run,
    .copy = shoali_cuda_copy,
    .fill = shoali_cuda_fill,
    .launch_host = shoali_cuda_launch_host,
    .memory = shoali_cuda_memory,
    .facts = facts,
    .counters = shoali_device_read_counters,
};
