#include "base/clock.h"
#include "base/test_cmocka.h"

static void test_time_moves_forward(void **state)
{
    (void)state;
    int64_t last = shoali_now_ns();
    for (int i = 0; i < 10000; i++) {
        int64_t now = shoali_now_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void test_deadlines(void **state)
{
    (void)state;
    assert_true(shoali_deadline_ns(-1) == INT64_MAX);
    assert_true(shoali_deadline_ns(INT64_MAX) == INT64_MAX);
    assert_false(shoali_deadline_passed(INT64_MAX));
    assert_true(shoali_deadline_passed(shoali_deadline_ns(0)));
    int64_t begin = shoali_now_ns(), deadline = shoali_deadline_ns(2000000);
    assert_false(shoali_deadline_passed(shoali_deadline_ns(60000000000)));
    while (!shoali_deadline_passed(deadline))
        ;
    assert_true(shoali_now_ns() - begin >= 2000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_moves_forward),
        cmocka_unit_test(test_deadlines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
