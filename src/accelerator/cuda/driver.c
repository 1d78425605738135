#include "accelerator/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_DEVICE 100u

#define NAME(member, symbol, parameters) .member = #symbol,
const struct shoali_cuda_names shoali_cuda_names = {SHOALI_CUDA_FUNCTIONS(NAME)};
#undef NAME

static struct {
    pthread_once_t once;
    struct shoali_cuda_driver driver;
    bool works, emulated;
    int devices;
    char why[256];
} state = {.once = PTHREAD_ONCE_INIT};

static const char *library_name(void)
{
    const char *name = getenv("SHOAL_CUDA_DRIVER");
    return name != NULL && name[0] != '\0' ? name : NULL;
}

bool shoali_cuda_driver_is_named(void)
{
    return library_name() != NULL;
}

bool shoali_cuda_driver_is_emulated(void)
{
    return state.emulated;
}

/* Streams share eight hardware queues unless told otherwise, and then one that waits for the host
 * holds up others. Kernels that are loaded at their first launch would wait for all streams. */
static void set_environment(void)
{
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

static void *open_library(void)
{
    static const char *const usual[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
                                        "/usr/local/cuda/compat/libcuda.so.1"};
    const char *name = library_name();
    void *library = NULL;
    if (name != NULL) {
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            (void)snprintf(state.why, sizeof state.why, "SHOAL_CUDA_DRIVER=%.100s: %.100s", name,
                           dlerror());
        return library;
    }
    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && library == NULL; i++)
        library = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        (void)snprintf(state.why, sizeof state.why,
                       "NVIDIA's driver is not installed: there is no libcuda.so.1");
    return library;
}

static bool find_functions(void *library)
{
    const char *missing = NULL;
    void *symbol;
/* A pointer to a function is copied as bytes: C has no conversion from one to data. */
#define FIND(member, name, parameters)     \
    symbol = dlsym(library, #name);        \
    if (symbol == NULL && missing == NULL) \
        missing = #name;                   \
    memcpy(&state.driver.member, &symbol, sizeof state.driver.member);
    SHOALI_CUDA_FUNCTIONS(FIND)
#undef FIND
    if (missing != NULL)
        (void)snprintf(state.why, sizeof state.why,
                       "the driver is too old: it has no %s; install driver 525 or later", missing);
    return missing == NULL;
}

static void open_driver(void)
{
    void *library = open_library();
    if (library == NULL || !find_functions(library))
        return; /* an opened library stays: closing a driver is not safe */
    state.emulated = dlsym(library, SHOALI_CUDA_EMULATOR_MARK) != NULL;
    set_environment();
    unsigned code = state.driver.init(0);
    if (code == 0)
        code = state.driver.device_count(&state.devices);
    if (code == 0 && state.devices == 0)
        code = NO_DEVICE;
    state.works = code == 0;
    if (code == NO_DEVICE) {
        (void)snprintf(state.why, sizeof state.why,
                       "the driver shows no GPU (CUDA_VISIBLE_DEVICES limits what it shows)");
    } else if (code != 0) {
        const shoal_status status = shoali_cuda_check(&state.driver, code, "cuInit");
        (void)status;
        (void)snprintf(state.why, sizeof state.why, "%.200s", shoal_error_message());
        shoali_error_clear();
    }
}

const struct shoali_cuda_driver *shoali_cuda_driver(int32_t *devices, const char **why)
{
    (void)pthread_once(&state.once, open_driver);
    if (devices != NULL)
        *devices = (int32_t)state.devices;
    if (why != NULL)
        *why = state.why;
    return state.works ? &state.driver : NULL;
}

shoal_status shoali_cuda_check(const struct shoali_cuda_driver *driver, unsigned code,
                               const char *call)
{
    const char *name = NULL, *text = NULL;
    if (code == 0)
        return SHOAL_OK;
    if (driver->error_name(code, &name) != 0 || name == NULL)
        name = "an error without a name";
    if (driver->error_string(code, &text) != 0 || text == NULL)
        text = "no more is known";
    return SHOAL_FAIL(code == SHOALI_CUDA_OUT_OF_MEMORY ? SHOAL_ENOMEM : SHOAL_EIO,
                      "the GPU's driver: %s gave %s (%u): %s", call, name, code, text);
}
