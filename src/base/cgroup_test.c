/* Limits of control groups, in a folder that stands for the root of the file system. */
#include "base/base.h"
#include "base/cgroup.h"

#include "base/test_cmocka.h"
#include "base/test_folder.h"

static void test_no_limit(void **state)
{
    (void)state;
    assert_true(shoali_cgroup_cpus(folder) == 0);
    put_in_folder("/proc/self/cgroup", "0::/job\n");
    put_in_folder("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
    assert_true(shoali_cgroup_cpus(folder) == 0);
    put_in_folder("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put_in_folder("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_true(shoali_cgroup_cpus(folder) == 0);
    put_in_folder("/sys/fs/cgroup/job/cpu.max", "nonsense\n");
    assert_true(shoali_cgroup_cpus(folder) == 0);
}

/* The least of the process's group and those around it; not that of a neighbour. */
static void test_unified(void **state)
{
    (void)state;
    put_in_folder("/proc/self/cgroup", "1:name=systemd:/else\n0::/slice/job\n");
    put_in_folder("/sys/fs/cgroup/slice/job/cpu.max", "400000 100000\n");
    put_in_folder("/sys/fs/cgroup/slice/other/cpu.max", "10000 100000\n");
    assert_true(shoali_cgroup_cpus(folder) == 4);
    put_in_folder("/sys/fs/cgroup/slice/cpu.max", "75000 50000\n");
    assert_true(shoali_cgroup_cpus(folder) == 1.5);
    put_in_folder("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_true(shoali_cgroup_cpus(folder) == 0.5);
}

/* Inside a container the group's files are at the root, whatever /proc/self/cgroup says. */
static void test_container(void **state)
{
    (void)state;
    put_in_folder("/proc/self/cgroup", "0::/../../docker/0123\n");
    put_in_folder("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_true(shoali_cgroup_cpus(folder) == 2);
}

static void test_version1(void **state)
{
    (void)state;
    put_in_folder("/proc/self/cgroup", "5:cpuset:/set\n4:cpuacct,cpu:/a/b\n3:memory:/m\n");
    put_in_folder("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n");
    put_in_folder("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    put_in_folder("/sys/fs/cgroup/cpu,cpuacct/set/cpu.cfs_quota_us", "100000\n");
    put_in_folder("/sys/fs/cgroup/cpu,cpuacct/set/cpu.cfs_period_us", "100000\n");
    assert_true(shoali_cgroup_cpus(folder) == 2.5);
    put_in_folder("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "100000\n");
    put_in_folder("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
    assert_true(shoali_cgroup_cpus(folder) == 1);
}

static void test_rounding(void **state)
{
    (void)state;
    assert_int_equal(shoali_cgroup_limit_cores(8, 0), 8);
    assert_int_equal(shoali_cgroup_limit_cores(8, 1.5), 1);
    assert_int_equal(shoali_cgroup_limit_cores(8, 0.1), 1);
    assert_int_equal(shoali_cgroup_limit_cores(8, 3.99), 3);
    assert_int_equal(shoali_cgroup_limit_cores(2, 64), 2);
    assert_int_equal(shoali_cgroup_limit_cores(2, 1e300), 2);
    assert_int_equal(shoali_cgroup_limit_cores(0, 0), 1);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
int main(void)
{
    const struct CMUnitTest tests[] = {IN_FOLDER(test_no_limit), IN_FOLDER(test_unified),
                                       IN_FOLDER(test_container), IN_FOLDER(test_version1),
                                       cmocka_unit_test(test_rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
