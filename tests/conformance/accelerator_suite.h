/* accelerator_suite - what every accelerator has to do, on device 0 with three streams. Its
 * settings come from the environment, so a mode is a variable: SHOAL_SIM_STREAMS=late. Each
 * accelerator bounds its memory by SHOAL_<NAME>_BYTES. */
#ifndef SHOAL_TEST_ACCELERATOR_SUITE_H
#define SHOAL_TEST_ACCELERATOR_SUITE_H

#include "accelerator/test_kernels.h"

/* accelerator_kernels.c: as mix, by a kernel of the stamped accelerator; and its kernel that adds
 * arrays. */
shoal_status launch_mix(struct shoali_device_stream *stream, const struct mix_args *args);
shoali_kernel_fn sum_function(void);
#define mix launch_mix

enum { COUNT = 1000, BYTES = COUNT * 4 }; /* elements of most buffers */

/* What a test starts with. */
struct fixture {
    struct shoali_pool *pool;
    struct shoali_device *device;
    struct shoali_device_stream *stream[3];
};

/* The one that is stamped. */
extern const struct shoali_accelerator *current;
int accelerator_setup(void **state);
int accelerator_teardown(void **state);
/* Bounds the memory of devices that are made from now on; NULL: as it comes. */
void limit_memory(const char *bytes);
const char *limit_name(void);
#define ACCELERATOR_TEST(function) \
    cmocka_unit_test_setup_teardown(function, accelerator_setup, accelerator_teardown)

/* How many tests failed. */
int accelerator_memory(void);
int accelerator_streams(void);
int accelerator_tasks(void);

static inline uint32_t *device_buffer(struct fixture *f, size_t count)
{
    void *address;
    OK(shoali_device_alloc(f->device, count * sizeof(uint32_t), &address));
    return address;
}

static inline struct shoali_device_counters counters_of(const struct fixture *f)
{
    struct shoali_device_counters counters;
    shoali_device_get_counters(f->device, &counters);
    return counters;
}

#endif
