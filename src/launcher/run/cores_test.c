#include "base/test_cmocka.h"
#include "launcher/run/run.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if SHOALI_HAVE_HWLOC
#include <hwloc.h>
#endif

static bool pretends; /* that this process may use all cores up to 1023 */

/* In place of libc's, which cores.c and hwloc call. */
int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *allowed)
{
    memset(allowed, pretends ? 0xff : 0, bytes);
    const long got = pretends ? 0 : syscall(SYS_sched_getaffinity, pid, bytes, allowed);
    return got < 0 ? -1 : 0;
}

static shoal_status select_all(const char *list, struct shoali_ints *cores,
                               struct shoali_arena *arena)
{
    shoali_arena_init(arena);
    pretends = true;
    const shoal_status status = shoali_cores_select(list, arena, cores);
    pretends = false;
    return status;
}

static void test_list(void **state)
{
    (void)state;
    static const int64_t expected[] = {0, 2, 3, 4, 9, 1023};
    struct shoali_arena arena;
    struct shoali_ints cores;
    assert_int_equal(select_all("0,2-4,9-9,1023", &cores, &arena), SHOAL_OK);
    assert_int_equal(cores.count, 6);
    assert_memory_equal(cores.value, expected, sizeof(expected));
    shoali_arena_fini(&arena);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",       ",",   "1,",  "a",     "1-",  "-1",
                                        "3-1",    "1,1", "4,2", "0-3,3", "1;2", "1024",
                                        "0-2000", " 1",  "1 ",  "0x1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct shoali_arena arena;
        struct shoali_ints cores;
        if (select_all(wrong[i], &cores, &arena) != SHOAL_EINVAL)
            fail_msg("\"%s\" was accepted", wrong[i]);
        shoali_arena_fini(&arena);
    }
}

static void test_share(void **state)
{
    (void)state;
    int32_t first, count;
    shoali_cores_of_rank(8, 1, 3, &first, &count);
    assert_int_equal(first, 2);
    assert_int_equal(count, 2);
    shoali_cores_of_rank(2, 3, 4, &first, &count);
    assert_int_equal(first, 1);
    assert_int_equal(count, 1);
    /* Nobody reaches beyond the list, whatever the numbers. */
    for (int32_t cores = 1; cores <= 17; cores++)
        for (int32_t ranks = 1; ranks <= 20; ranks++)
            for (int32_t rank = 0; rank < ranks; rank++) {
                shoali_cores_of_rank(cores, rank, ranks, &first, &count);
                assert_true(count >= 1 && first >= 0 && first + count <= cores);
            }
}

static void test_select(void **state)
{
    (void)state;
    struct shoali_arena arena;
    struct shoali_ints cores;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    shoali_arena_init(&arena);
    assert_int_equal(shoali_cores_select(NULL, &arena, &cores), SHOAL_OK);
    assert_true(cores.count >= 1 && cores.count <= CPU_COUNT(&allowed));
    for (int32_t i = 0; i < cores.count; i++)
        assert_true(CPU_ISSET((size_t)cores.value[i], &allowed));
    assert_int_equal(shoali_cores_select("1023", &arena, &cores), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "1023"));
    setenv("KMP_AFFINITY", "compact", 1);
    assert_int_equal(shoali_cores_select(NULL, &arena, &cores), SHOAL_EINVAL);
    unsetenv("KMP_AFFINITY");
    shoali_arena_fini(&arena);
}

#if SHOALI_HAVE_HWLOC
static bool no_memory; /* for hwloc */

/* In place of hwloc's. */
int hwloc_topology_init(hwloc_topology_t *topology)
{
    __typeof__(&hwloc_topology_init) real =
        (__typeof__(&hwloc_topology_init))dlsym(RTLD_NEXT, "hwloc_topology_init");
    return no_memory ? -1 : real(topology);
}

/* Without a topology cores keep the order of their numbers, and memory is not bound. */
static void test_no_topology(void **state)
{
    (void)state;
    int64_t room[8] = {0, 1};
    struct shoali_ints cores = {.value = room};
    struct shoali_memory_policy policy = {.bound = true};
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    CPU_SET(0, &allowed);
    setenv("HWLOC_SYNTHETIC", "numa:2 core:2 pu:2", 1);
    no_memory = true;
    const bool ordered = shoali_numa_order(&allowed, &cores);
    shoali_numa_policy(room, 2, &policy);
    no_memory = false;
    unsetenv("HWLOC_SYNTHETIC");
    assert_false(ordered);
    assert_int_equal(cores.count, 0);
    assert_false(policy.bound);
}

/* Two nodes of memory, cores numbered in turn, two units a core. */
static void test_neighbours(void **state)
{
    (void)state;
    int64_t room[8];
    struct shoali_ints cores = {.value = room};
    struct shoali_memory_policy policy;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    for (size_t i = 0; i < 8; i++)
        CPU_SET(i, &allowed);
    setenv("HWLOC_SYNTHETIC", "numa:2 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)", 1);
    assert_true(shoali_numa_order(&allowed, &cores));
    assert_int_equal(cores.count, 4);
    assert_memory_equal(room, ((int64_t[]){0, 2, 1, 3}), 4 * sizeof(int64_t));
    shoali_numa_policy(room, 2, &policy);
    assert_true(policy.bound && policy.nodes[0] == 1);
    shoali_numa_policy(room + 2, 2, &policy);
    assert_true(policy.bound && policy.nodes[0] == 2);
    shoali_numa_policy(room, 4, &policy);
    assert_true(policy.bound && policy.nodes[0] == 3);
    /* the first unit of a core may be another's */
    CPU_CLR(2, &allowed);
    CPU_CLR(1, &allowed);
    CPU_CLR(5, &allowed);
    cores.count = 0;
    assert_true(shoali_numa_order(&allowed, &cores));
    assert_int_equal(cores.count, 3);
    assert_memory_equal(room, ((int64_t[]){0, 6, 3}), 3 * sizeof(int64_t));
    setenv("HWLOC_SYNTHETIC", "numa:1 core:4 pu:1", 1);
    shoali_numa_policy(room, 2, &policy);
    assert_false(policy.bound);
    unsetenv("HWLOC_SYNTHETIC");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_select),
#if SHOALI_HAVE_HWLOC
        cmocka_unit_test(test_no_topology),
        cmocka_unit_test(test_neighbours),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
