/* Caches as Linux describes them, and those that a test pretends. */
#include "base/caches.h"

#include <stdlib.h>

#include "base/test_cmocka.h"
#include "base/test_folder.h"

/* One of Linux's folders: level, size, list of cores, type, ways. */
static void describe(int index, const char *const texts[5])
{
    static const char *const names[5] = {"level", "size", "shared_cpu_list", "type",
                                         "ways_of_associativity"};
    char path[128];
    snprintf(path, sizeof path, "%s/index%d", folder, index);
    assert_true(mkdir(path, 0700) == 0 || index == 3);
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/index%d/%s", folder, index, names[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file, "%s\n", texts[i]);
        fclose(file);
    }
}
#define DESCRIBE(index, ...) describe(index, (const char *const[5]){__VA_ARGS__})

static void test_folders(void **state)
{
    (void)state;
    struct shoali_caches caches = shoali_caches_read(folder);
    assert_true(caches.last.bytes == 0 && caches.last.cores == 1); /* nothing there */
    assert_true(caches.l1.bytes == 0 && caches.l2.bytes == 0);
    DESCRIBE(0, "1", "64K", "0,64", "Instruction", "4");
    DESCRIBE(1, "1", "32K", "0,64", "Data", "8");
    caches = shoali_caches_read(folder);
    assert_true(caches.l1.bytes == 32 << 10 && caches.l1.cores == 2 && caches.l1.ways == 8);
    assert_true(caches.last.bytes == 32 << 10);
    DESCRIBE(2, "2", "1024K", "0,64", "Unified", "16");
    caches = shoali_caches_read(folder);
    assert_true(caches.l2.bytes == 1 << 20 && caches.l2.ways == 16);
    assert_true(caches.last.bytes == 1 << 20 && caches.last.cores == 2);
    assert_int_equal(shoali_cache_share(&caches, &caches.l2), 1 << 20); /* siblings count once */
    DESCRIBE(3, "3", "32768K", "0-7,64-71", "Unified", "16");
    caches = shoali_caches_read(folder);
    assert_true(caches.last.bytes == 32 << 20 && caches.last.cores == 16);
    assert_int_equal(caches.last.level, 3);
    assert_int_equal(shoali_cache_share(&caches, &caches.last), 4 << 20);
    DESCRIBE(3, "3", "36M", "0-4000000000", "Unified", "?");
    caches = shoali_caches_read(folder);
    assert_true(caches.last.bytes == 36 << 20 && caches.last.cores == 1);
    DESCRIBE(3, "3", "?", "0-1", "Unified", "16"); /* no size: the level below is the last */
    caches = shoali_caches_read(folder);
    assert_true(caches.last.bytes == 1 << 20 && caches.last.cores == 2 && caches.last.level == 2);
}

/* Whatever the machine tells, kernels have sizes. */
static void test_this_machine(void **state)
{
    (void)state;
    const struct shoali_caches *caches = shoali_caches_get();
    assert_true(caches->l1.bytes >= 8 << 10 && caches->l1.ways > 0);
    assert_true(caches->l2.bytes >= caches->l1.bytes && caches->last.bytes >= caches->l2.bytes);
    assert_ptr_equal(shoali_caches_get(), caches);
}

static void test_pretended(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",           "32K",           "32K,512K,16M",
                                        "0,1,2,3",    "32K,512K,16M,", "32K,512K,16M,8K",
                                        "32K 512K 1", "32K,-1,16M,8",  "32K,512K,16M,8,",
                                        "a,b,c,d",    "32Q,512K,1M,8"};
    const struct shoali_caches machine = *shoali_caches_get();
    assert_true(shoali_caches_pretend("48K,2M,3000000,12"));
    const struct shoali_caches *caches = shoali_caches_get();
    assert_true(caches->l1.bytes == 48 << 10 && caches->l1.ways == 12);
    assert_true(caches->l2.bytes == 2 << 20 && caches->last.bytes == 3000000);
    assert_int_equal(shoali_cache_share(caches, &caches->last), 3000000);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(shoali_caches_pretend(wrong[i]));
    assert_true(shoali_caches_pretend(NULL));
    assert_memory_equal(shoali_caches_get(), &machine, sizeof machine);
}

/* One that cannot be read is refused, with the variable and an example. */
static void test_variable(void **state)
{
    (void)state;
    assert_int_equal(shoali_caches_check(), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "SHOAL_CPU_CACHES is \"32K,512K\": give"));
    assert_non_null(strstr(shoal_error_message(), "32K,512K,16M,8"));
}

int main(void)
{
    /* Before the machine is asked for the first time. */
    setenv("SHOAL_CPU_CACHES", "32K,512K", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folders, make_folder, remove_folder),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_pretended),
        cmocka_unit_test(test_variable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
