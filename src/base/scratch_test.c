/* Working memory of threads. */
#include "base/scratch.h"
#include "base/test_cmocka.h"
#include "base/thread.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static void test_rounded(void **state)
{
    (void)state;
    const size_t huge = (size_t)2 << 20;
    assert_int_equal(shoali_scratch_rounded(0), 0);
    assert_int_equal(shoali_scratch_rounded(1), 4096);
    assert_int_equal(shoali_scratch_rounded(4096), 4096);
    assert_int_equal(shoali_scratch_rounded(huge - 1), huge);
    assert_int_equal(shoali_scratch_rounded(huge), huge);
    assert_int_equal(shoali_scratch_rounded(huge + 1), 2 * huge);
}

/* In a thread of its own, which has none yet. */
static void *use(void *passed)
{
    static const size_t sizes[] = {100, 5000, 64, 3 << 20, 5000, 0};
    bool right = shoali_scratch_asked() == 0;
    size_t most = 0;
    char *largest = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *memory = shoali_scratch(sizes[i]);
        if (sizes[i] > most) {
            most = sizes[i];
            largest = memory;
        }
        right = right && memory && (uintptr_t)memory % 64 == 0;
        if (memory)
            memset(memory, 1, sizes[i]);
        right = right && memory == largest; /* what is there serves smaller requests */
    }
    /* what was asked for is no matter of what the thread has */
    right = right && shoali_scratch_asked() == most;
    shoali_scratch_forget_asked();
    right = right && shoali_scratch_asked() == 0;
    (void)shoali_scratch(10);
    (void)shoali_scratch(7);
    *(bool *)passed = right && shoali_scratch_asked() == 10;
    return NULL;
}

static void test_grows(void **state)
{
    (void)state;
    pthread_t thread;
    bool passed = false;
    assert_int_equal(shoali_thread_start(&thread, use, &passed), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(passed);
}

/* A request that cannot be met leaves what the thread has. */
static void test_too_much(void **state)
{
    (void)state;
    void *const memory = shoali_scratch(4096);
    assert_non_null(memory);
    assert_null(shoali_scratch(SIZE_MAX));
    assert_null(shoali_scratch(SIZE_MAX / 2));
    assert_ptr_equal(shoali_scratch(4096), memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
