/* tensor_read_test.c - explicit, counted host reads, on memory that the host cannot touch. */
#include "accelerator/test_kernels.h"

struct fixture {
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    struct shoal_tensor tensor;
};

static void make_tensor(struct fixture *f, shoal_dtype dtype, shoal_shape shape, const void *value)
{
    const size_t bytes = (size_t)shoal_shape_count(&shape) * shoal_dtype_bytes(dtype);
    shoali_device_free(f->device, f->tensor.data);
    shoali_tensor_describe(&f->tensor, dtype, &shape);
    OK(shoali_device_alloc(f->device, bytes, &f->tensor.data));
    OK(shoali_upload(f->stream, f->tensor.data, value, bytes));
    f->tensor.stream = f->stream;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    OK(shoali_device_create(&shoali_accelerator_sim, 0, NULL, &f->device));
    OK(shoali_stream_create(f->device, &f->stream));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    shoali_device_free(f->device, f->tensor.data);
    shoali_stream_destroy(f->stream);
    shoali_device_destroy(f->device);
    free(f);
    return 0;
}

static int64_t sync_count(const struct fixture *f)
{
    struct shoali_device_counters counters;
    shoali_device_get_counters(f->device, &counters);
    return counters.host_sync_count;
}

static void test_read(void **state)
{
    struct fixture *f = *state;
    static const int32_t value[6] = {1, 2, 3, 4, 5, 6};
    int32_t out[6] = {0};
    make_tensor(f, SHOAL_I32, shoal_shape_2(2, 3), value);
    const int64_t before = sync_count(f);
    OK(shoal_tensor_read(&f->tensor, 0, 6, out));
    assert_memory_equal(out, value, sizeof out);
    assert_int_equal(sync_count(f), before + 1);
    OK(shoal_tensor_read(&f->tensor, 4, 2, out));
    assert_int_equal(out[0], 5);
    assert_int_equal(out[1], 6);
    /* Behind the work of the tensor's stream. */
    OK(mix(f->stream, &(struct mix_args){.out = f->tensor.data, .count = 6, .value = 8}));
    OK(shoal_tensor_read(&f->tensor, 5, 1, out));
    assert_int_equal(out[0], 8);
}

static void test_read_errors(void **state)
{
    struct fixture *f = *state;
    static const int32_t value[6] = {1, 2, 3, 4, 5, 6};
    int32_t out[8];
    make_tensor(f, SHOAL_I32, shoal_shape_2(2, 3), value);
    assert_int_equal(shoal_tensor_read(&f->tensor, -1, 1, out), SHOAL_EINVAL);
    assert_int_equal(shoal_tensor_read(&f->tensor, 0, 7, out), SHOAL_EINVAL);
    assert_int_equal(shoal_tensor_read(&f->tensor, 6, 1, out), SHOAL_EINVAL);
    assert_int_equal(shoal_tensor_read(&f->tensor, 7, 0, out), SHOAL_EINVAL);
    assert_int_equal(shoal_tensor_read(&f->tensor, 3, INT64_MAX, out), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "[2, 3]"));
    OK(shoal_tensor_read(&f->tensor, 6, 0, out));
    struct shoal_tensor meta;
    shoali_tensor_describe(&meta, SHOAL_I32, &f->tensor.shape);
    assert_int_equal(shoal_tensor_read(&meta, 0, 6, out), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "no memory"));
}

static void test_get_scalar(void **state)
{
    struct fixture *f = *state;
    const shoal_shape scalar = {0, {0}};
    double value;
    make_tensor(f, SHOAL_F32, scalar, &(float){-1.5f});
    OK(shoal_tensor_get_scalar(&f->tensor, &value));
    assert_true(value == -1.5);
    make_tensor(f, SHOAL_F64, shoal_shape_2(1, 1), &(double){0.1});
    OK(shoal_tensor_get_scalar(&f->tensor, &value));
    assert_true(value == 0.1);
    make_tensor(f, SHOAL_F16, scalar, &(uint16_t){0xc200});
    OK(shoal_tensor_get_scalar(&f->tensor, &value));
    assert_true(value == -3.0);
    make_tensor(f, SHOAL_BF16, scalar, &(uint16_t){0x4040});
    OK(shoal_tensor_get_scalar(&f->tensor, &value));
    assert_true(value == 3.0);
    make_tensor(f, SHOAL_I32, scalar, &(int32_t){3});
    assert_int_equal(shoal_tensor_get_scalar(&f->tensor, &value), SHOAL_EINVAL);
    make_tensor(f, SHOAL_F32, shoal_shape_1(2), (float[2]){1, 2});
    assert_int_equal(shoal_tensor_get_scalar(&f->tensor, &value), SHOAL_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_get_scalar, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
