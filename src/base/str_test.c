#include "base/str.h"

#include "base/fault.h"
#include "base/test_cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_builder(void **state)
{
    (void)state;
    struct shoali_str str = {0};
    assert_string_equal(shoali_str_get(&str), "");
    for (int i = 0; i < 500; i++)
        shoali_str_append(&str, "%d,", i % 10);
    shoali_str_append_bytes(&str, "end of it", 3);
    assert_int_equal(str.length, 1003);
    assert_string_equal(shoali_str_get(&str) + 996, "8,9,end");
    assert_false(str.failed);
    assert_true(shoali_fault_arm("alloc"));
    char *large = calloc(1, 5000);
    shoali_str_append_bytes(&str, large, 5000);
    free(large);
    assert_true(shoali_fault_arm(NULL));
    assert_true(str.failed);
    shoali_str_append(&str, "more");
    assert_int_equal(str.length, 1003);
    shoali_str_fini(&str);
    assert_null(str.text);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const keys[] = {"stage", "reduce_scatter", "overlap_comm", "lr", "betas"};
    assert_string_equal(shoali_nearest("stgae", keys, 5), "stage");
    assert_string_equal(shoali_nearest("overlap-comm", keys, 5), "overlap_comm");
    assert_string_equal(shoali_nearest("Overlap_com", keys, 5), "overlap_comm");
    assert_string_equal(shoali_nearest("reduce_scater_x", keys, 5), "reduce_scatter");
    assert_string_equal(shoali_nearest("beta", keys, 5), "betas");
    assert_null(shoali_nearest("xy", keys, 5));
    assert_null(shoali_nearest("lot", keys, 5));
    assert_null(shoali_nearest("gradient_clipping", keys, 5));
    assert_null(shoali_nearest("stage", keys, 0));
    char monster[400];
    memset(monster, 's', sizeof(monster) - 1);
    monster[sizeof(monster) - 1] = '\0';
    assert_null(shoali_nearest(monster, keys, 5));
}

static void test_transposition_counts_one(void **state)
{
    (void)state;
    static const char *const keys[] = {"abcd__", "badc"};
    assert_string_equal(shoali_nearest("abcd", keys, 2), "abcd__");
    static const char *const far[] = {"badcfehg"};
    assert_null(shoali_nearest("abcdefgh", far, 1));
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"007", 7},
        {"+12", 12},
        {"1e9", 1000000000},
        {"5_000_000", 5000000},
        {"2.5e3", 2500},
        {"4.0", 4},
        {"5000e-3", 5},
        {"1000000000000000000000000e-20", 10000},
        {"0e99999999999", 0},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"123456789.123456789e9", 123456789123456789},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int64_t value = 77;
        if (!shoali_parse_i64(good[i].text, &value) || value != good[i].value)
            fail_msg("\"%s\" gives %lld", good[i].text, (long long)value);
    }
    static const char *const bad[] = {
        "",      " 1",
        "1 ",    "1.5",
        "1e-1",  "abc",
        "1_",    "_1",
        "1__0",  "9223372036854775808",
        "1e19",  "-9223372036854775809",
        "--1",   "1e",
        "1e+",   ".",
        "e5",    "0x10",
        "1,000", "1e99999999999",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t value = 77;
        if (shoali_parse_i64(bad[i], &value) || value != 77)
            fail_msg("\"%s\" gives %lld", bad[i], (long long)value);
    }
}

static void test_numbers_and_bools(void **state)
{
    (void)state;
    double number = 0;
    assert_true(shoali_parse_f64("1e-8", &number));
    assert_true(number == 1e-8);
    assert_true(shoali_parse_f64("-.5", &number));
    assert_true(number == -0.5);
    static const char *const bad[] = {"", "1.0f", "nan", "inf", "0x1p3", " 1", "1e999", "1 2", "-"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(shoali_parse_f64(bad[i], &number));
    bool flag = false;
    assert_true(shoali_parse_bool("Yes", &flag));
    assert_true(flag);
    assert_true(shoali_parse_bool("off", &flag));
    assert_false(flag);
    assert_false(shoali_parse_bool("2", &flag));
    assert_false(shoali_parse_bool("", &flag));
}

static void test_parse_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"1", 1},
                {"4096", 4096},
                {"512B", 512},
                {"4K", 4096},
                {"4Ki", 4096},
                {"4kib", 4096},
                {"4KB", 4000},
                {"80GiB", INT64_C(80) << 30},
                {"80 G", INT64_C(80) << 30},
                {"1.5 TB", INT64_C(1500000000000)},
                {"1e3M", INT64_C(1000) << 20},
                {"0.5K", 512},
                {"1.9", 1},
                {"2P", INT64_C(2) << 50}};
    static const char *const bad[] = {"",     "G",     "-5GiB",  "5XiB", "0",   "0.1",   "0.1B",
                                      "1e30", "1 G x", "80GiBs", "4Q",   "nan", "1e999", "1 2"};
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!shoali_parse_bytes(good[i].text, &bytes) || bytes != good[i].bytes)
            fail_msg("\"%s\" gave %lld", good[i].text, (long long)bytes);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (shoali_parse_bytes(bad[i], &bytes))
            fail_msg("\"%s\" was taken as %lld", bad[i], (long long)bytes);
}

static void test_byte_texts(void **state)
{
    (void)state;
    char buffer[32];
    assert_string_equal(shoali_format_bytes(0, buffer), "0 B");
    assert_string_equal(shoali_format_bytes(1023, buffer), "1023 B");
    assert_string_equal(shoali_format_bytes(1536, buffer), "1.5 KiB");
    assert_string_equal(shoali_format_bytes(1048575, buffer), "1.0 MiB");
    assert_string_equal(shoali_format_bytes(-3.0 * 1024 * 1024 * 1024, buffer), "-3.0 GiB");
    assert_string_equal(shoali_format_bytes(1e30, buffer), "867361737988.4 EiB");
}

struct folder {
    char path[64], file[96];
};

static int make_folder(void **state)
{
    static struct folder folder;
    snprintf(folder.path, sizeof(folder.path), "/tmp/shoal-str-test-XXXXXX");
    if (!mkdtemp(folder.path))
        return -1;
    snprintf(folder.file, sizeof(folder.file), "%s/file", folder.path);
    *state = &folder;
    return 0;
}

static int remove_folder(void **state)
{
    struct folder *folder = *state;
    unlink(folder->file);
    return rmdir(folder->path);
}

static void test_files_round_trip(void **state)
{
    struct folder *folder = *state;
    size_t count = 200001;
    char *data = malloc(count);
    for (size_t i = 0; i < count; i++)
        data[i] = (char)(i * 31 + i / 256);
    for (int round = 0; round < 2; round++) {
        size_t bytes = round ? 0 : count, got = 99;
        char *back = NULL;
        assert_int_equal(shoali_write_file_atomic(folder->file, data, bytes), SHOAL_OK);
        assert_int_equal(shoali_read_file(folder->file, &back, &got), SHOAL_OK);
        assert_int_equal(got, bytes);
        assert_memory_equal(back, data, bytes);
        assert_int_equal(back[bytes], 0);
        free(back);
    }
    free(data);
}

static void test_failed_write_keeps_the_old_file(void **state)
{
    struct folder *folder = *state;
    assert_int_equal(shoali_write_file_atomic(folder->file, "old", 3), SHOAL_OK);
    assert_true(shoali_fault_arm("write_file"));
    assert_int_equal(shoali_write_file_atomic(folder->file, "new", 3), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), folder->file));
    assert_true(shoali_fault_arm(NULL));
    char *back;
    size_t bytes;
    assert_int_equal(shoali_read_file(folder->file, &back, &bytes), SHOAL_OK);
    assert_string_equal(back, "old");
    free(back);
    /* remove_folder fails if the temporary file is left behind */
}

static void test_unreadable_files(void **state)
{
    struct folder *folder = *state;
    char *data = NULL;
    size_t bytes;
    assert_int_equal(shoali_read_file(folder->file, &data, &bytes), SHOAL_ENOENT);
    assert_non_null(strstr(shoal_error_message(), folder->file));
    assert_int_equal(shoali_read_file(folder->path, &data, &bytes), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "folder"));
    assert_null(data);
    assert_int_equal(shoali_read_file("/proc/self/status", &data, &bytes), SHOAL_OK);
    assert_true(bytes > 100);
    free(data);
}

/* A file that is there is found, whatever memory is left. */
static void test_has_file(void **state)
{
    struct folder *folder = *state;
    assert_false(shoali_has_file(folder->path, "file"));
    assert_int_equal(shoali_write_file_atomic(folder->file, "x", 1), SHOAL_OK);
    assert_true(shoali_has_file(folder->path, "file"));
    assert_false(shoali_has_file(folder->path, "."));
    assert_true(shoali_fault_arm("alloc:0"));
    assert_true(shoali_has_file(folder->path, "file"));
    assert_true(shoali_fault_arm(NULL));
}

/* What a write left in errno is told behind the guard. */
static void test_file_limit(void **state)
{
    (void)state;
    const bool limited = shoali_file_limit_begin();
    errno = ENOSPC;
    shoali_file_limit_end(limited);
    assert_int_equal(errno, ENOSPC);
}

static void test_folders(void **state)
{
    struct folder *folder = *state;
    char path[128];
    struct stat info;
    snprintf(path, sizeof(path), "%s/a//b/c/", folder->path);
    assert_int_equal(shoali_make_dirs(path), SHOAL_OK);
    assert_int_equal(shoali_make_dirs(path), SHOAL_OK);
    assert_int_equal(stat(path, &info), 0);
    static const char *const parts[] = {"a/b/c", "a/b", "a"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder->path, parts[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(shoali_write_file_atomic(folder->file, "x", 1), SHOAL_OK);
    snprintf(path, sizeof(path), "%s/sub", folder->file);
    assert_int_equal(shoali_make_dirs(path), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), folder->file));
}

static void test_counts(void **state)
{
    static const struct {
        int64_t count;
        const char *exact, *words;
    } cases[] = {
        {0, "0", "0"},
        {999, "999", "999"},
        {1000, "1,000", "1.0 thousand"},
        {21472, "21,472", "21.5 thousand"},
        {999949, "999,949", "999.9 thousand"},
        {999996, "999,996", "1.00 million"},
        {124439808, "124,439,808", "124.44 million"},
        {999996000, "999,996,000", "1.00 billion"},
        {174604000000, "174,604,000,000", "174.60 billion"},
        {-1234, "-1,234", NULL},
        {-123, "-123", NULL},
    };
    char text[32];
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct shoali_str exact = {0};
        shoali_str_append_count(&exact, cases[k].count);
        assert_string_equal(shoali_str_get(&exact), cases[k].exact);
        shoali_str_fini(&exact);
        if (cases[k].words)
            assert_string_equal(shoali_format_count((double)cases[k].count, text), cases[k].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_builder),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_transposition_counts_one),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_numbers_and_bools),
        cmocka_unit_test(test_parse_bytes),
        cmocka_unit_test(test_byte_texts),
        cmocka_unit_test_setup_teardown(test_files_round_trip, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_failed_write_keeps_the_old_file, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_unreadable_files, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_has_file, make_folder, remove_folder),
        cmocka_unit_test(test_file_limit),
        cmocka_unit_test_setup_teardown(test_folders, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
