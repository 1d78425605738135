/* What control groups leave of memory, in a folder that stands for the root of the file system. */
#include "base/base.h"
#include "base/memory.h"

#include "base/test_cmocka.h"
#include "base/test_folder.h"

#define MIB (INT64_C(1) << 20)

/* FOLDER/NAME holds so many MiB. */
static void put_mib(const char *path, int64_t mib)
{
    char text[32];
    snprintf(text, sizeof text, "%lld\n", (long long)(mib * MIB));
    put_in_folder(path, text);
}

static void expect(int64_t total_mib, int64_t available_mib)
{
    int64_t total, available;
    shoali_memory_read(folder, &total, &available);
    assert_int_equal(total, total_mib * MIB);
    assert_int_equal(available, available_mib * MIB);
}

static void begin(void)
{
    put_in_folder("/proc/meminfo", "MemTotal: 1 kB\nMemAvailable: 1048576000 kB\n");
}

static void test_unified(void **state)
{
    (void)state;
    begin();
    put_in_folder("/proc/self/cgroup", "0::/slice/job\n");
    put_mib("/sys/fs/cgroup/slice/job/memory.max", 256);
    put_mib("/sys/fs/cgroup/slice/job/memory.current", 255);
    expect(256, 1);
    /* 200 + 40 + 5 MiB of cache; what has no such name, or is no number, is none */
    put_in_folder(
        "/sys/fs/cgroup/slice/job/memory.stat",
        "anon 5242880\nfile 262144000\ninactive_anon 99999999\ninactive_file 209715200\n"
        "active_file 41943040\nactive_file_more 999999999\nslab_reclaimable 5242880\nshmem x\n");
    expect(256, 246);
    /* the group around has the narrower limit, and its own count */
    put_mib("/sys/fs/cgroup/slice/memory.max", 200);
    put_mib("/sys/fs/cgroup/slice/memory.current", 190);
    put_in_folder("/sys/fs/cgroup/slice/memory.stat", "inactive_file 10485760\nactive_file 0\n");
    expect(200, 20);
    /* more cache than is in use: the two files are read one after the other */
    put_in_folder("/sys/fs/cgroup/slice/memory.stat", "inactive_file 999999999999\n");
    expect(200, 200);
    put_in_folder("/sys/fs/cgroup/slice/memory.max", "max\n");
    expect(256, 246);
}

static void test_version1(void **state)
{
    (void)state;
    begin();
    put_in_folder("/proc/self/cgroup", "3:cpu:/c\n2:memory:/m\n");
    put_mib("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", 256);
    put_mib("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", 255);
    expect(256, 1);
    put_in_folder("/sys/fs/cgroup/memory/m/memory.stat",
                  "cache 1\ninactive_file 104857600\nactive_file 0\n");
    expect(256, 101);
    put_in_folder("/sys/fs/cgroup/memory/m/memory.stat",
                  "inactive_file 0\nactive_file 0\ntotal_inactive_file 209715200\n"
                  "total_active_file 52428800\n");
    expect(256, 251);
    put_mib("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", 600);
    expect(256, 0);
}

static void test_both(void **state)
{
    (void)state;
    begin();
    put_in_folder("/proc/self/cgroup", "2:memory:/m\n0::/u\n");
    put_mib("/sys/fs/cgroup/memory/memory.limit_in_bytes", 300);
    put_mib("/sys/fs/cgroup/memory/memory.usage_in_bytes", 100);
    put_mib("/sys/fs/cgroup/unified/u/memory.max", 400);
    put_mib("/sys/fs/cgroup/unified/u/memory.current", 250);
    expect(300, 150);
    put_in_folder("/proc/meminfo", "MemAvailable: 1024 kB\n");
    expect(300, 1);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
int main(void)
{
    const struct CMUnitTest tests[] = {IN_FOLDER(test_unified), IN_FOLDER(test_version1),
                                       IN_FOLDER(test_both)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
