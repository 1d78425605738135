/* A group whose other ranks do not exist: records of the host come out as if all had posted the
 * same, and nothing else is touched. */
#include "base/test_cmocka.h"
#include "comm/comm.h"

#include <stdint.h>

enum { RANKS = 3 };

static void test_sums(void **state)
{
    shoal_group *group = *state;
    int64_t longs[2] = {5, -7};
    double doubles[1] = {0.5};
    ok(shoal_all_reduce(group, longs, longs, 2, SHOAL_I64, SHOAL_SUM, NULL));
    assert_true(longs[0] == 15 && longs[1] == -21);
    ok(shoal_all_reduce(group, doubles, doubles, 1, SHOAL_F64, SHOAL_SUM, NULL));
    assert_true(doubles[0] == 1.5);
}

/* A single byte is a record, too. */
static void test_copies(void **state)
{
    shoal_group *group = *state;
    uint8_t own = 9, largest = 0, all[RANKS] = {0};
    ok(shoal_all_reduce(group, &own, &largest, 1, SHOAL_U8, SHOAL_MAX, NULL));
    assert_int_equal(largest, 9);
    ok(shoal_all_gather(group, &own, all, 1, SHOAL_U8, NULL));
    for (int32_t r = 0; r < RANKS; r++)
        assert_int_equal(all[r], 9);
    ok(shoal_all_reduce(group, &own, all, 0, SHOAL_U8, SHOAL_MAX, NULL));
    assert_int_equal(all[0], 9);
}

/* Addresses of alloc are no memory. */
static void test_device(void **state)
{
    shoal_group *group = *state;
    void *memory = NULL, *other = NULL;
    ok(shoal_comm_alloc(group, 100, &memory));
    ok(shoal_comm_alloc(group, 100, &other));
    assert_true((uintptr_t)other - (uintptr_t)memory >= 100);
    ok(shoal_all_reduce(group, memory, memory, 25, SHOAL_F32, SHOAL_SUM, NULL));
    shoal_comm_free(group, other);
    shoal_comm_free(group, memory);
}

static int make_group(void **state)
{
    shoal_group *group = NULL;
    ok(shoali_comm_create_meta(1, RANKS, NULL, &group));
    *state = group;
    return 0;
}

static int drop_group(void **state)
{
    shoal_comm_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_device),
    };
    return cmocka_run_group_tests(tests, make_group, drop_group);
}
