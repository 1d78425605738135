/* sim.c - the simulated device: settings, device objects, the table. */
#include "accelerator/sim/sim_device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_BYTES ((int64_t)8 << 30)
#define MAX_BYTES ((int64_t)1 << 40)

struct sim_settings {
    int64_t bytes, seed;
    enum sim_mode mode;
};

/* The variable's text, NULL when unset or empty. */
static const char *setting(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

static shoal_status read_settings(struct sim_settings *settings)
{
    static const char *const modes[] = {
        [SIM_LATE] = "late", [SIM_RANDOM] = "random", [SIM_THREAD] = "thread"};
    const int64_t page = (int64_t)sysconf(_SC_PAGESIZE);
    *settings = (struct sim_settings){.bytes = DEFAULT_BYTES, .mode = SIM_LATE};
    const char *text = setting("SHOAL_SIM_BYTES");
    if (text != NULL && (!shoali_parse_i64(text, &settings->bytes) || settings->bytes < 1 ||
                         settings->bytes > MAX_BYTES))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "SHOAL_SIM_BYTES='%s' is not a number of bytes from 1 to %lld", text,
                          (long long)MAX_BYTES);
    settings->bytes = (settings->bytes + page - 1) / page * page;
    text = setting("SHOAL_SIM_SEED");
    if (text != NULL && !shoali_parse_i64(text, &settings->seed))
        return SHOAL_FAIL(SHOAL_ECONFIG, "SHOAL_SIM_SEED='%s' is not an integer", text);
    text = setting("SHOAL_SIM_STREAMS");
    if (text == NULL)
        return SHOAL_OK;
    for (int i = SIM_LATE; i <= SIM_THREAD; i++) {
        if (strcmp(text, modes[i]) == 0) {
            settings->mode = (enum sim_mode)i;
            return SHOAL_OK;
        }
    }
    return SHOAL_FAIL(SHOAL_ECONFIG, "SHOAL_SIM_STREAMS='%s' is none of late, random, thread",
                      text);
}

static bool sim_probe(void)
{
    const int file = memfd_create("shoal-sim-probe", MFD_CLOEXEC);
    if (file >= 0)
        (void)close(file);
    return file >= 0;
}

static int32_t sim_device_count(void)
{
    return 1;
}

/* Waits for a time: on a clock that nobody sets. */
static void init_attend(struct sim_device *sim)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sim->attend, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static shoal_status create(const struct shoali_accelerator *accelerator, int32_t index,
                           struct shoali_pool *pool, struct shoali_device **device)
{
    shoal_status status;
    struct sim_settings settings;
    struct sim_device *sim = NULL;
    SHOAL_TRY(status, shoali_device_check_index(accelerator, index), done);
    SHOAL_TRY(status, read_settings(&settings), done);
    sim = shoali_calloc(1, sizeof *sim, "a sim device");
    if (sim == NULL) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, shoali_sim_memory_open(sim, (size_t)settings.bytes), done);
    shoali_device_init(&sim->base, accelerator, pool);
    pthread_mutex_init(&sim->lock, NULL);
    pthread_cond_init(&sim->changed, NULL);
    init_attend(sim);
    sim->context = *shoali_context_get();
    sim->context.scope = ""; /* the creator's scope ends before the device does */
    sim->mode = settings.mode;
    sim->random = shoali_stream_make((uint64_t)settings.seed, "sim", "", (uint64_t)index);
    *device = &sim->base;
    sim = NULL;
done:
    shoali_free(sim);
    return status;
}

static shoal_status create_open(int32_t index, struct shoali_pool *pool,
                                struct shoali_device **device)
{
    return create(&shoali_accelerator_sim, index, pool, device);
}

static shoal_status create_closed(int32_t index, struct shoali_pool *pool,
                                  struct shoali_device **device)
{
    return create(&shoali_accelerator_sim_closed, index, pool, device);
}

static shoal_status choose_variant(const struct shoali_accelerator **chosen)
{
    const char *text = setting("SHOAL_SIM_MEMORY");
    const bool closed = text != NULL && strcmp(text, "closed") == 0;
    if (text != NULL && !closed && strcmp(text, "open") != 0)
        return SHOAL_FAIL(SHOAL_ECONFIG, "SHOAL_SIM_MEMORY='%s' is none of open, closed", text);
    *chosen = closed ? &shoali_accelerator_sim_closed : &shoali_accelerator_sim;
    return SHOAL_OK;
}

static void sim_device_destroy(struct shoali_device *device)
{
    struct sim_device *sim = (struct sim_device *)device;
    pthread_mutex_lock(&sim->lock);
    shoali_sim_drain(sim);
    pthread_mutex_unlock(&sim->lock);
    shoali_sim_unattend(sim);
    while (sim->streams != NULL) /* those the owner left */
        shoali_stream_destroy(&sim->streams->base);
    shoali_sim_memory_close(sim);
    pthread_cond_destroy(&sim->attend);
    pthread_cond_destroy(&sim->changed);
    pthread_mutex_destroy(&sim->lock);
    shoali_device_fini(&sim->base);
    shoali_free(sim);
}

static shoal_status sim_alloc(struct shoali_device *device, size_t bytes, void **address)
{
    struct sim_device *sim = (struct sim_device *)device;
    pthread_mutex_lock(&sim->lock);
    const shoal_status status = shoali_sim_memory_alloc(sim, bytes, address);
    pthread_mutex_unlock(&sim->lock);
    if (status == SHOAL_OK)
        shoali_device_count_alloc(device, bytes);
    return status;
}

static void sim_free(struct shoali_device *device, void *address)
{
    struct sim_device *sim = (struct sim_device *)device;
    pthread_mutex_lock(&sim->lock);
    const size_t bytes = shoali_sim_memory_free(sim, address);
    pthread_mutex_unlock(&sim->lock);
    shoali_device_count_free(device, bytes);
}

static shoal_status sim_host_alloc(struct shoali_device *device, size_t bytes, void **memory)
{
    struct sim_device *sim = (struct sim_device *)device;
    pthread_mutex_lock(&sim->lock);
    const shoal_status status = shoali_sim_pinned_alloc(sim, bytes, memory);
    pthread_mutex_unlock(&sim->lock);
    return status;
}

static void sim_host_free(struct shoali_device *device, void *memory)
{
    struct sim_device *sim = (struct sim_device *)device;
    pthread_mutex_lock(&sim->lock);
    shoali_sim_pinned_free(sim, memory);
    pthread_mutex_unlock(&sim->lock);
}

static void sim_memory(struct shoali_device *device, int64_t *total_bytes, int64_t *available_bytes)
{
    struct sim_device *sim = (struct sim_device *)device;
    pthread_mutex_lock(&sim->lock);
    *total_bytes = (int64_t)sim->bytes;
    *available_bytes = (int64_t)sim->bytes - sim->used_bytes;
    pthread_mutex_unlock(&sim->lock);
}

static void sim_facts(struct shoali_device *device, struct shoali_device_facts *facts)
{
    (void)device;
    *facts = (struct shoali_device_facts){
        .name = "simulated by the host", .cache_bytes = 1 << 16, .emulated = true};
}

static bool sim_owns(struct shoali_device *device, const void *address)
{
    return shoali_sim_owns(device, address);
}

/* clang-format off */
#define SIM_MEMBERS                                                                              \
    .abi = SHOALI_ACCELERATOR_ABI, .bytes = sizeof(struct shoali_accelerator), .name = "sim",    \
    .probe = sim_probe, .memory_name = "sim", .variant = choose_variant,                         \
    .device_count = sim_device_count, .device_destroy = sim_device_destroy, .alloc = sim_alloc,  \
    .free = sim_free, .owns = sim_owns, .host_alloc = sim_host_alloc,                            \
    .host_free = sim_host_free, .stream_create = shoali_sim_stream_create,                       \
    .stream_destroy = shoali_sim_stream_destroy,                                                 \
    .stream_synchronize = shoali_sim_stream_synchronize, .event_create = shoali_sim_event_create, \
    .event_destroy = shoali_sim_event_destroy, .event_record = shoali_sim_event_record,          \
    .event_synchronize = shoali_sim_event_synchronize,                                           \
    .event_elapsed = shoali_sim_event_elapsed,                                                   \
    .stream_wait_event = shoali_sim_stream_wait_event, .launch = shoali_sim_launch,              \
    .copy = shoali_sim_copy, .fill = shoali_sim_fill, .launch_host = shoali_sim_launch_host,     \
    .memory = sim_memory, .facts = sim_facts, .counters = shoali_device_read_counters
/* clang-format on */

/* Kernels of the host and tasks get the alias. */
const struct shoali_accelerator shoali_accelerator_sim = {SIM_MEMBERS, .device_create = create_open,
                                                          .exportable = true, .host_kernels = true};
const struct shoali_accelerator shoali_accelerator_sim_closed = {SIM_MEMBERS,
                                                                 .device_create = create_closed};
