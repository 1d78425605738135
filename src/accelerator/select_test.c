/* select_test.c - choosing an accelerator by name, by environment and by probing. */
#include "accelerator/test_kernels.h"

static int clean(void **state)
{
    (void)state;
    return unsetenv("SHOAL_ACCELERATOR") | unsetenv("DS_ACCELERATOR");
}

static const char *selected(const char *name)
{
    const struct shoali_accelerator *accelerator;
    OK(shoali_accelerator_select(name, &accelerator));
    return accelerator->name;
}

static void test_order(void **state)
{
    (void)state;
    assert_string_equal(selected(NULL), "cpu");
    assert_string_equal(selected("sim"), "sim");
    assert_int_equal(setenv("DS_ACCELERATOR", "sim", 1), 0);
    assert_string_equal(selected(NULL), "sim");
    assert_int_equal(setenv("SHOAL_ACCELERATOR", "cpu", 1), 0);
    assert_string_equal(selected(NULL), "cpu");
    assert_string_equal(selected("sim"), "sim");
    assert_int_equal(setenv("SHOAL_ACCELERATOR", "", 1), 0); /* empty is unset */
    assert_string_equal(selected(NULL), "sim");
}

static void test_unknown(void **state)
{
    (void)state;
    const struct shoali_accelerator *accelerator;
    assert_int_equal(shoali_accelerator_select("tpuv9", &accelerator), SHOAL_ECONFIG);
    assert_null(accelerator);
    assert_non_null(strstr(shoal_error_message(), "cpu, cuda, sim"));
    assert_int_equal(setenv("SHOAL_ACCELERATOR", "cpx", 1), 0);
    assert_int_equal(shoali_accelerator_select(NULL, &accelerator), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "did you mean 'cpu'"));
    assert_non_null(strstr(shoal_error_message(), "cpu, cuda, sim"));
}

/* In a process without a driver: the library that is named is none. */
static void test_absent_driver(void **state)
{
    (void)state;
    const struct shoali_accelerator *accelerator;
    assert_int_equal(setenv("SHOAL_CUDA_DRIVER", "/nowhere/libcuda.so", 1), 0);
    assert_int_equal(shoali_accelerator_select("cuda", &accelerator), SHOAL_EUNSUPPORTED);
    assert_non_null(strstr(shoal_error_message(), "SHOAL_CUDA_DRIVER=/nowhere/libcuda.so: "));
    assert_string_equal(selected(NULL), "cpu");
    assert_int_equal(unsetenv("SHOAL_CUDA_DRIVER"), 0);
}

static void test_list(void **state)
{
    (void)state;
    const struct shoali_accelerator *const *all = shoali_accelerator_all();
    int32_t count = 0;
    for (; all[count] != NULL; count++) {
        assert_int_equal(all[count]->abi, SHOALI_ACCELERATOR_ABI);
        assert_int_equal(all[count]->bytes, sizeof **all);
    }
    assert_int_equal(count, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, clean, clean),
        cmocka_unit_test_setup_teardown(test_unknown, clean, clean),
        cmocka_unit_test_setup_teardown(test_absent_driver, clean, clean),
        cmocka_unit_test_setup_teardown(test_list, clean, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
