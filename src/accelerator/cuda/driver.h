/* driver - the functions of NVIDIA's driver library that Shoal calls, found when the program runs.
 *
 * The build needs neither a driver nor NVIDIA's headers: the declarations below are Shoal's own,
 * and a test compares them with cuda.h where that is installed. All functions exist since driver
 * 525 (CUDA 12.0). SHOAL_CUDA_DRIVER names another library, such as the emulator of the tests.
 *
 *   address   of device memory: 64 bits, which a pointer of the host holds too
 *   code      what each function returns: 0, or an error's number
 *   handle    a struct that only the driver knows; the tags are NVIDIA's, so that types compare
 */
#ifndef SHOALI_ACCELERATOR_CUDA_DRIVER_H
#define SHOALI_ACCELERATOR_CUDA_DRIVER_H

#include "base/base.h"

struct CUctx_st;
struct CUevent_st;
struct CUfunc_st;
struct CUkern_st;
struct CUlaunchConfig_st;
struct CUlib_st;
struct CUstream_st;

/* What a launch says besides its arguments: CUlaunchConfig. */
struct shoali_cuda_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    struct CUstream_st *stream;
    void *attributes;
    unsigned attribute_count;
};

enum {
    /* codes */
    SHOALI_CUDA_OUT_OF_MEMORY = 2,
    SHOALI_CUDA_NOT_READY = 600,
    SHOALI_CUDA_NOT_SUPPORTED = 801,
    /* attributes of a device */
    SHOALI_CUDA_MULTIPROCESSORS = 16,
    SHOALI_CUDA_L2_BYTES = 38,
    SHOALI_CUDA_CAPABILITY_MAJOR = 75,
    SHOALI_CUDA_CAPABILITY_MINOR = 76,
    /* attribute of a kernel */
    SHOALI_CUDA_DYNAMIC_SHARED = 8,
    /* flags */
    SHOALI_CUDA_HOST_PORTABLE = 1,
    SHOALI_CUDA_STREAM_NON_BLOCKING = 1,
    SHOALI_CUDA_EVENT_DISABLE_TIMING = 2,
    SHOALI_CUDA_WAIT_GREATER_OR_EQUAL = 0
};

/* F(member, symbol, parameters) */
/* clang-format off */
#define SHOALI_CUDA_FUNCTIONS(F)                                                                   \
    F(init, cuInit, (unsigned flags))                                                              \
    F(driver_version, cuDriverGetVersion, (int *version))                                          \
    F(error_name, cuGetErrorName, (unsigned code, const char **name))                              \
    F(error_string, cuGetErrorString, (unsigned code, const char **text))                          \
    F(device_count, cuDeviceGetCount, (int *count))                                                \
    F(device_get, cuDeviceGet, (int *device, int index))                                           \
    F(device_name, cuDeviceGetName, (char *name, int bytes, int device))                           \
    F(device_attribute, cuDeviceGetAttribute, (int *value, unsigned attribute, int device))        \
    F(device_total, cuDeviceTotalMem_v2, (size_t *bytes, int device))                              \
    F(context_retain, cuDevicePrimaryCtxRetain, (struct CUctx_st **context, int device))           \
    F(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                 \
    F(context_set, cuCtxSetCurrent, (struct CUctx_st *context))                                    \
    F(context_synchronize, cuCtxSynchronize, (void))                                               \
    F(memory_info, cuMemGetInfo_v2, (size_t *available, size_t *total))                            \
    F(memory_alloc, cuMemAlloc_v2, (unsigned long long *address, size_t bytes))                    \
    F(memory_free, cuMemFree_v2, (unsigned long long address))                                     \
    F(host_alloc, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                   \
    F(host_free, cuMemFreeHost, (void *memory))                                                    \
    F(copy_in, cuMemcpyHtoDAsync_v2,                                                               \
      (unsigned long long to, const void *from, size_t bytes, struct CUstream_st *stream))         \
    F(copy_out, cuMemcpyDtoHAsync_v2,                                                              \
      (void *to, unsigned long long from, size_t bytes, struct CUstream_st *stream))               \
    F(copy_within, cuMemcpyDtoDAsync_v2,                                                           \
      (unsigned long long to, unsigned long long from, size_t bytes, struct CUstream_st *stream))  \
    F(fill, cuMemsetD8Async,                                                                       \
      (unsigned long long to, unsigned char byte, size_t bytes, struct CUstream_st *stream))       \
    F(stream_create, cuStreamCreate, (struct CUstream_st **stream, unsigned flags))                \
    F(stream_destroy, cuStreamDestroy_v2, (struct CUstream_st *stream))                            \
    F(stream_synchronize, cuStreamSynchronize, (struct CUstream_st *stream))                       \
    F(stream_wait_event, cuStreamWaitEvent,                                                        \
      (struct CUstream_st *stream, struct CUevent_st *event, unsigned flags))                      \
    F(stream_wait_value, cuStreamWaitValue32_v2,                                                   \
      (struct CUstream_st *stream, unsigned long long word, uint32_t value, unsigned flags))       \
    F(event_create, cuEventCreate, (struct CUevent_st **event, unsigned flags))                    \
    F(event_destroy, cuEventDestroy_v2, (struct CUevent_st *event))                                \
    F(event_elapsed, cuEventElapsedTime,                                                           \
      (float *ms, struct CUevent_st *begin, struct CUevent_st *end))                               \
    F(event_record, cuEventRecord, (struct CUevent_st *event, struct CUstream_st *stream))         \
    F(event_query, cuEventQuery, (struct CUevent_st *event))                                       \
    F(event_synchronize, cuEventSynchronize, (struct CUevent_st *event))                           \
    F(library_load, cuLibraryLoadData,                                                             \
      (struct CUlib_st **library, const void *image, unsigned *options, void **values,             \
       unsigned count, unsigned *library_options, void **library_values, unsigned library_count))  \
    F(library_kernel, cuLibraryGetKernel,                                                          \
      (struct CUkern_st **kernel, struct CUlib_st *library, const char *name))                     \
    F(kernel_set_attribute, cuKernelSetAttribute,                                                  \
      (unsigned attribute, int value, struct CUkern_st *kernel, int device))                       \
    F(launch, cuLaunchKernelEx,                                                                    \
      (const struct CUlaunchConfig_st *config, struct CUfunc_st *function, void **arguments,       \
       void **extra))
/* clang-format on */

#define SHOALI_CUDA_MEMBER(member, symbol, parameters) unsigned(*member) parameters;
struct shoali_cuda_driver {
    SHOALI_CUDA_FUNCTIONS(SHOALI_CUDA_MEMBER)
};

/* What NVIDIA calls each function. */
#define SHOALI_CUDA_NAME(member, symbol, parameters) const char *member;
struct shoali_cuda_names {
    SHOALI_CUDA_FUNCTIONS(SHOALI_CUDA_NAME)
};
extern const struct shoali_cuda_names shoali_cuda_names;

/* The driver, opened and initialised once per process; devices: how many it shows, at least 1.
 * NULL: there is none that works, and *why is a part of a sentence that says so. Any thread. */
const struct shoali_cuda_driver *shoali_cuda_driver(int32_t *devices, const char **why);
/* The driver is the emulator of the tests: it exports this name. */
#define SHOALI_CUDA_EMULATOR_MARK "emulator_of_shoal"
bool shoali_cuda_driver_is_emulated(void);
/* Whether SHOAL_CUDA_DRIVER names the library. */
bool shoali_cuda_driver_is_named(void);
/* An error with the call's name, the code's name and its sentence: SHOAL_ENOMEM for memory, else
 * SHOAL_EDEVICE. SHOAL_OK for 0. */
SHOAL_CHECKED shoal_status shoali_cuda_check(const struct shoali_cuda_driver *driver, unsigned code,
                                             const char *call);

#endif
