/* Memory without bytes: addresses that differ, counters that count, copies that give zeros. */
#include "accelerator/accelerator.h"
#include "base/test_cmocka.h"

#include <stdint.h>
#include <sys/mman.h>

#define OK(call) assert_int_equal(call, SHOAL_OK)

static void kernel(const void *args, const struct shoali_kernel_context *context)
{
    (void)args;
    (void)context;
    fail_msg("a kernel ran on a meta device");
}

static void test_counts(void **state)
{
    const size_t huge = (size_t)1 << 50;
    struct shoali_device_counters counters;
    struct shoali_device *device;
    void *a, *b, *c;
    (void)state;
    OK(shoali_device_create(shoali_accelerator_meta(&shoali_accelerator_cpu), 0, NULL, &device));
    assert_true(shoali_device_accelerator(device)->host_accessible);
    OK(shoali_device_alloc(device, huge, &a));
    OK(shoali_device_alloc(device, 0, &b));
    OK(shoali_device_alloc(device, 100, &c));
    assert_true((uintptr_t)a % 64 == 0 && (uintptr_t)c % 64 == 0);
    assert_true((char *)a + huge <= (char *)b && b != c);
    shoali_device_free(device, a);
    OK(shoali_device_alloc(device, 1, &a));
    shoali_device_get_counters(device, &counters);
    assert_int_equal(counters.allocated_bytes, 101);
    assert_int_equal(counters.peak_bytes, (int64_t)huge + 100);
    assert_int_equal(counters.alloc_count, 4);
    assert_int_equal(shoali_device_alloc(device, SIZE_MAX / 2, &a), SHOAL_EINVAL);
    shoali_device_destroy(device);
}

static void test_work(void **state)
{
    static const struct shoali_kernel_type type = {.name = "none", .args_bytes = 4};
    struct shoali_device_counters counters;
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    void *memory, *pinned;
    int32_t value = 7, args = 0;
    (void)state;
    OK(shoali_device_create(shoali_accelerator_meta(&shoali_accelerator_sim), 0, NULL, &device));
    assert_false(shoali_device_accelerator(device)->host_accessible);
    OK(shoali_stream_create(device, &stream));
    OK(shoali_device_alloc(device, 64, &memory));
    OK(shoali_device_host_alloc(device, 8, &pinned));
    OK(shoali_fill(stream, memory, 1, 64));
    OK(shoali_launch(stream, &type, kernel, &args));
    OK(shoali_upload(stream, memory, &value, sizeof value));
    OK(shoali_download(stream, &value, memory, sizeof value));
    assert_int_equal(value, 0);
    /* pinned memory is as imaginary as the device's, on every machine: no process has its address
     */
    assert_true(shoali_device_is_meta(device));
    assert_int_equal(mprotect((void *)((uintptr_t)pinned & ~(uintptr_t)4095), 1, PROT_READ), -1);
    value = 7;
    shoali_pinned_write(device, pinned, &value, sizeof value);
    OK(shoali_copy(stream, (char *)pinned + 1, memory, 7, SHOALI_DEVICE_TO_HOST));
    shoali_pinned_read(device, &value, pinned, sizeof value);
    assert_int_equal(value, 0);
    shoali_device_get_counters(device, &counters);
    assert_true(counters.host_bytes == 8 && counters.launch_count == 1);
    assert_int_equal(counters.workspace_bytes, 0);
    shoali_device_set_threads(device, 3);
    shoali_device_count_workspace(device, 4097);
    shoali_device_get_counters(device, &counters);
    assert_int_equal(counters.workspace_bytes, 3 * 8192);
    shoali_device_count_workspace(device, SIZE_MAX); /* of what no memory holds */
    shoali_device_get_counters(device, &counters);
    assert_int_equal(counters.workspace_bytes, INT64_MAX);
    shoali_device_host_free(device, pinned);
    shoali_device_get_counters(device, &counters);
    assert_true(counters.host_bytes == 0 && counters.host_peak_bytes == 8);
    shoali_stream_destroy(stream);
    shoali_device_destroy(device);
}

static void test_room(void **state)
{
    struct shoali_host_room alone, shared;
    (void)state;
    shoali_host_room(1, &alone);
    shoali_host_room(1000, &shared);
    assert_true(alone.free_bytes > 0 && alone.data_bytes > 0 && alone.address_space_bytes > 0);
    assert_true(shared.free_bytes < alone.free_bytes / 100);
    assert_true(shared.data_bytes > alone.data_bytes / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
