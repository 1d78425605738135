/* "Cannot be read" is not "another machine". */
#include "base/test_cmocka.h"
#include "comm/machine.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void test_same_machine(void **state)
{
    (void)state;
    char first[SHOALI_BOOT_BYTES], second[SHOALI_BOOT_BYTES];
    assert_int_equal(shoali_machine_read_boot(first), SHOAL_OK);
    assert_int_equal(shoali_machine_read_boot(second), SHOAL_OK);
    assert_int_equal(first[SHOALI_BOOT_BYTES - 1], 0);
    assert_false(shoali_machine_differs(first, second));
}

static void test_differs(void **state)
{
    (void)state;
    char unknown[SHOALI_BOOT_BYTES] = "", one[SHOALI_BOOT_BYTES] = "one",
         other[SHOALI_BOOT_BYTES] = "other";
    assert_true(shoali_machine_differs(one, other));
    assert_false(shoali_machine_differs(one, one));
    assert_false(shoali_machine_differs(one, unknown));
    assert_false(shoali_machine_differs(unknown, one));
    assert_false(shoali_machine_differs(unknown, unknown));
}

static void test_without_descriptors(void **state)
{
    (void)state;
    char boot[SHOALI_BOOT_BYTES];
    struct rlimit limit;
    const int next = dup(0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {.rlim_cur = (rlim_t)next, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const shoal_status status = shoali_machine_read_boot(boot);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), "Too many open files: raise the limit"));
    assert_int_equal(boot[0], 0);
    assert_string_equal(shoali_descriptor_advice(EACCES), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_machine),
                                       cmocka_unit_test(test_differs),
                                       cmocka_unit_test(test_without_descriptors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
