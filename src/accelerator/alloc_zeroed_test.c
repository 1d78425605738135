/* alloc_zeroed_test.c - zeros in every kind of block, also where somebody else has written. */
#include "accelerator/test_kernels.h"

#include <stdlib.h>

static void check_zeros(struct shoali_device_stream *stream, const void *address, size_t bytes)
{
    unsigned char *host = malloc(bytes);
    assert_non_null(host);
    memset(host, 1, bytes);
    OK(shoali_download(stream, host, address, bytes));
    for (size_t i = 0; i < bytes; i++)
        if (host[i] != 0)
            fail_msg("byte %zu of %zu is %d", i, bytes, (int)host[i]);
    free(host);
}

static void test_zeros(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, 100000, ((size_t)2 << 20) - 1, ((size_t)6 << 20) + 5};
    for (const struct shoali_accelerator *const *a = shoali_accelerator_all(); *a != NULL; a++) {
        struct shoali_device *device;
        struct shoali_device_stream *stream;
        void *address;
        if (!(*a)->probe())
            continue;
        OK(shoali_device_create(*a, 0, NULL, &device));
        OK(shoali_stream_create(device, &stream));
        for (int32_t round = 0; round < 3; round++)
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                OK(shoali_device_alloc_zeroed(stream, sizes[i], &address));
                check_zeros(stream, address, sizes[i]);
                OK(shoali_fill(stream, address, 0xA7, sizes[i]));
                OK(shoali_stream_synchronize(stream));
                shoali_device_free(device, address);
            }
        shoali_stream_destroy(stream);
        shoali_device_destroy(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_zeros)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
