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
    int32_t polls = 0;
    while (shoali_hier_poll(&world) == SHOAL_OK) {
        polls++;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    assert_true(polls > 0);
    assert_true(shoali_now_ns() - begin_ns >= 250000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_settles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
