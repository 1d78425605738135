/* When another host's verdict ends waits on this one: after the moment in which what all ranks have
 * come to completes. */
#include "base/test_cmocka.h"
#include "comm/hierarchical/hierarchical.h"

#include <time.h>

static shoal_status verdict;

static shoal_status get_verdict(void *world)
{
    (void)world;
    return verdict;
}

static void test_settles(void **state)
{
    const struct shoali_comm_ops outer = {.verdict = get_verdict};
    struct shoali_hier_world world = {.outer = &outer};
    (void)state;
    verdict = SHOAL_OK;
    assert_int_equal(shoali_hier_poll(&world), SHOAL_OK);
    verdict = SHOAL_EPEER;
    const int64_t begin_ns = shoali_now_ns();
    int64_t passed_ns = 0;
    int32_t polls = 0;
    while (shoali_hier_poll(&world) == SHOAL_OK && passed_ns < INT64_C(20000000000)) {
        polls++;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        passed_ns = shoali_now_ns() - begin_ns;
    }
    assert_true(polls > 1);
    assert_in_range(passed_ns, 250000000, INT64_C(19000000000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_settles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
