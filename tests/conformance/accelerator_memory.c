/* Memory, copies, and reads of tensors. */
#include "accelerator_suite.h"

static void test_alloc(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {0, 0, 1, 63, 64, 65, 4096, 3 << 20, (2 << 20) + 1};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    void *address[SIZES];
    int64_t sum = 0, total, available, before;
    shoali_device_memory(f->device, &total, &before);
    assert_true(total > 0 && before > 0 && before <= total);
    for (int i = 0; i < SIZES; i++) {
        OK(shoali_device_alloc(f->device, sizes[i], &address[i]));
        assert_non_null(address[i]);
        assert_int_equal((uintptr_t)address[i] % 64, 0);
        for (int j = 0; j < i; j++) {
            const char *a = address[i], *b = address[j];
            assert_ptr_not_equal(a, b);
            assert_true(a + sizes[i] <= b || b + sizes[j] <= a);
        }
        sum += (int64_t)sizes[i];
        assert_int_equal(counters_of(f).allocated_bytes, sum);
    }
    shoali_device_memory(f->device, &total, &available);
    assert_true(available >= 0 && available <= total);
    for (int i = 0; i < SIZES; i++)
        shoali_device_free(f->device, address[i]);
    assert_int_equal(counters_of(f).allocated_bytes, 0);
    assert_int_equal(counters_of(f).peak_bytes, sum);
    assert_int_equal(counters_of(f).alloc_count, SIZES);
    shoali_device_free(f->device, device_buffer(f, 1));
    assert_int_equal(counters_of(f).peak_bytes, sum);
}

static void test_out_of_memory(void **state)
{
    struct fixture *f = *state;
    limit_memory("1048576");
    struct shoali_device *small;
    OK(shoali_device_create(current, 0, NULL, &small));
    limit_memory(NULL);
    void *address;
    assert_int_equal(shoali_device_alloc(small, 2000000, &address), SHOAL_ENOMEM);
    assert_null(address);
    assert_non_null(strstr(shoal_error_message(), "2000000 bytes"));
    assert_non_null(strstr(shoal_error_message(), "1048576 bytes"));
    assert_int_equal(shoali_device_alloc(small, SIZE_MAX - 10, &address), SHOAL_ENOMEM);
    OK(shoali_device_alloc(small, 600000, &address));
    void *second;
    assert_int_equal(shoali_device_alloc(small, 600000, &second), SHOAL_ENOMEM);
    shoali_device_free(small, address);
    OK(shoali_device_alloc(small, 1000000, &second));
    shoali_device_free(small, second);
    shoali_device_destroy(small);

    assert_true(shoali_fault_arm("device_alloc:1"));
    OK(shoali_device_alloc(f->device, 8, &address));
    assert_int_equal(shoali_device_alloc(f->device, 8, &second), SHOAL_ENOMEM);
    assert_null(second);
    assert_true(shoali_fault_arm(NULL));
    shoali_device_free(f->device, address);
}

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

/* Zeros in every kind of block, also where somebody else has written. */
static void test_zeros(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {1, 4096, 100000, ((size_t)2 << 20) - 1, ((size_t)6 << 20) + 5};
    for (int32_t round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            void *address;
            OK(shoali_device_alloc_zeroed(f->stream[0], sizes[i], &address));
            check_zeros(f->stream[0], address, sizes[i]);
            OK(shoali_fill(f->stream[0], address, 0xA7, sizes[i]));
            OK(shoali_stream_synchronize(f->stream[0]));
            shoali_device_free(f->device, address);
        }
}

static void test_copies(void **state)
{
    struct fixture *f = *state;
    uint32_t in[COUNT], out[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        in[i] = i * 2654435761u;
    uint32_t *a = device_buffer(f, COUNT), *b = device_buffer(f, COUNT);
    OK(shoali_upload(f->stream[0], a, in, BYTES));
    OK(shoali_copy(f->stream[0], b, a, BYTES, SHOALI_DEVICE_TO_DEVICE));
    OK(shoali_fill(f->stream[0], a, 0x5a, 7));
    OK(shoali_download(f->stream[0], out, b, BYTES));
    assert_memory_equal(in, out, BYTES);
    OK(shoali_download(f->stream[0], out, a, BYTES));
    memset(in, 0x5a, 7);
    assert_memory_equal(in, out, BYTES);

    /* Parts at odd offsets, nothing at all, and an overlap. */
    OK(shoali_download(f->stream[0], out, (char *)b + 9, 11));
    assert_memory_equal(out, (char *)in + 9, 11);
    OK(shoali_copy(f->stream[0], a, a, 0, SHOALI_DEVICE_TO_DEVICE));
    OK(shoali_fill(f->stream[0], NULL, 1, 0));
    assert_int_equal(shoali_copy(f->stream[0], a + 1, a, 8, SHOALI_DEVICE_TO_DEVICE), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "overlap"));
    shoali_device_free(f->device, a);
    shoali_device_free(f->device, b);
}

static void test_pinned_copies(void **state)
{
    struct fixture *f = *state;
    void *memory;
    uint32_t *a = device_buffer(f, COUNT);
    OK(shoali_device_host_alloc(f->device, 2 * BYTES, &memory));
    uint32_t *pinned = memory;
    for (uint32_t i = 0; i < COUNT; i++)
        pinned[i] = i + 1;
    OK(shoali_copy(f->stream[0], a, pinned, BYTES, SHOALI_HOST_TO_DEVICE));
    OK(mix(f->stream[0], &(struct mix_args){.out = a, .a = a, .count = COUNT, .value = 7}));
    OK(shoali_copy(f->stream[0], pinned + COUNT, a, BYTES, SHOALI_DEVICE_TO_HOST));
    OK(shoali_stream_synchronize(f->stream[0]));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(pinned[COUNT + i], 3 * (i + 1) + 7);
    /* Freed with a copy pending: the copy still has its source. */
    OK(shoali_copy(f->stream[0], a, pinned, BYTES, SHOALI_HOST_TO_DEVICE));
    shoali_device_host_free(f->device, memory);
    uint32_t out[COUNT];
    OK(shoali_download(f->stream[0], out, a, BYTES));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(out[i], i + 1);
    shoali_device_free(f->device, a);
    assert_int_equal(counters_of(f).alloc_count, 1); /* pinned memory is not device memory */
}

/* ---- reads of tensors: explicit, counted, on memory that the host may not be able to touch ---- */

static void make_tensor(struct fixture *f, struct shoal_tensor *tensor, shoal_dtype dtype,
                        shoal_shape shape, const void *value)
{
    const size_t bytes = (size_t)shoal_shape_count(&shape) * shoal_dtype_bytes(dtype);
    shoali_device_free(f->device, tensor->data);
    shoali_tensor_describe(tensor, dtype, &shape);
    OK(shoali_device_alloc(f->device, bytes, &tensor->data));
    OK(shoali_upload(f->stream[0], tensor->data, value, bytes));
    tensor->stream = f->stream[0];
}

static void test_read(void **state)
{
    struct fixture *f = *state;
    struct shoal_tensor tensor = {0};
    static const int32_t value[6] = {1, 2, 3, 4, 5, 6};
    int32_t out[6] = {0};
    make_tensor(f, &tensor, SHOAL_I32, shoal_shape_2(2, 3), value);
    const int64_t before = counters_of(f).host_sync_count;
    OK(shoal_tensor_read(&tensor, 0, 6, out));
    assert_memory_equal(out, value, sizeof out);
    assert_int_equal(counters_of(f).host_sync_count, before + 1);
    OK(shoal_tensor_read(&tensor, 4, 2, out));
    assert_int_equal(out[0], 5);
    assert_int_equal(out[1], 6);
    /* Behind the work of the tensor's stream. */
    OK(mix(f->stream[0], &(struct mix_args){.out = tensor.data, .count = 6, .value = 8}));
    OK(shoal_tensor_read(&tensor, 5, 1, out));
    assert_int_equal(out[0], 8);
    shoali_device_free(f->device, tensor.data);
}

static void test_read_errors(void **state)
{
    struct fixture *f = *state;
    struct shoal_tensor tensor = {0};
    static const int32_t value[6] = {1, 2, 3, 4, 5, 6};
    int32_t out[8];
    make_tensor(f, &tensor, SHOAL_I32, shoal_shape_2(2, 3), value);
    assert_int_equal(shoal_tensor_read(&tensor, -1, 1, out), SHOAL_EINVAL);
    assert_int_equal(shoal_tensor_read(&tensor, 0, 7, out), SHOAL_EINVAL);
    assert_int_equal(shoal_tensor_read(&tensor, 6, 1, out), SHOAL_EINVAL);
    assert_int_equal(shoal_tensor_read(&tensor, 7, 0, out), SHOAL_EINVAL);
    assert_int_equal(shoal_tensor_read(&tensor, 3, INT64_MAX, out), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "[2, 3]"));
    OK(shoal_tensor_read(&tensor, 6, 0, out));
    struct shoal_tensor meta;
    shoali_tensor_describe(&meta, SHOAL_I32, &tensor.shape);
    assert_int_equal(shoal_tensor_read(&meta, 0, 6, out), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "no memory"));
    shoali_device_free(f->device, tensor.data);
}

static void test_get_scalar(void **state)
{
    struct fixture *f = *state;
    struct shoal_tensor tensor = {0};
    const shoal_shape scalar = {0, {0}};
    double value;
    make_tensor(f, &tensor, SHOAL_F32, scalar, &(float){-1.5f});
    OK(shoal_tensor_get_scalar(&tensor, &value));
    assert_true(value == -1.5);
    make_tensor(f, &tensor, SHOAL_F64, shoal_shape_2(1, 1), &(double){0.1});
    OK(shoal_tensor_get_scalar(&tensor, &value));
    assert_true(value == 0.1);
    make_tensor(f, &tensor, SHOAL_F16, scalar, &(uint16_t){0xc200});
    OK(shoal_tensor_get_scalar(&tensor, &value));
    assert_true(value == -3.0);
    make_tensor(f, &tensor, SHOAL_BF16, scalar, &(uint16_t){0x4040});
    OK(shoal_tensor_get_scalar(&tensor, &value));
    assert_true(value == 3.0);
    make_tensor(f, &tensor, SHOAL_I32, scalar, &(int32_t){3});
    assert_int_equal(shoal_tensor_get_scalar(&tensor, &value), SHOAL_EINVAL);
    make_tensor(f, &tensor, SHOAL_F32, shoal_shape_1(2), (float[2]){1, 2});
    assert_int_equal(shoal_tensor_get_scalar(&tensor, &value), SHOAL_EINVAL);
    shoali_device_free(f->device, tensor.data);
}

int accelerator_memory(void)
{
    const struct CMUnitTest tests[] = {
        ACCELERATOR_TEST(test_alloc),         ACCELERATOR_TEST(test_out_of_memory),
        ACCELERATOR_TEST(test_zeros),         ACCELERATOR_TEST(test_copies),
        ACCELERATOR_TEST(test_pinned_copies), ACCELERATOR_TEST(test_read),
        ACCELERATOR_TEST(test_read_errors),   ACCELERATOR_TEST(test_get_scalar),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
