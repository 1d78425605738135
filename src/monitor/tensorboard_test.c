/* Event files: the bytes that TensorBoard's own writer makes (version 2.20 of the package), files
 * of several runs, and disks that are full. tests/cli/monitor_test.sh reads a run's file with the
 * package itself. */
#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "monitor/tensorboard.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { TIME_AT = 12 + 1, TIME_BYTES = 8 }; /* of a record: the event begins with the time */

/* Records of the package's RecordWriter, of events at other times. */
static const char *const golden[] = {
    "1800000000000000a37f4b22092d431cebe2361a3f1a0d627261696e2e4576656e743a32308e04c2",
    "2800000000000000ff70164a09000000000000f83f10ac022a1a0a080a0161150000003f0a0e0a07547261696e2f62"
    "15000000c045cbca6f",
    "2a00000000000000ae8d91f509000000000000f83f10012a1d0a1b0a0163420c0807120412020801420268694a080a"
    "060a04746578741083d184"};

static size_t read_hex(const char *hex, unsigned char *bytes)
{
    const size_t count = strlen(hex) / 2;
    for (size_t i = 0; i < count; i++) {
        unsigned byte = 0;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (unsigned char)byte;
    }
    return count;
}

static uint32_t read_u32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* By the polynomial x^32 + x^28 + ... of Castagnoli, highest bit first. */
static uint32_t checksum(const unsigned char *data, size_t bytes)
{
    uint32_t crc = ~0u, reversed = 0;
    for (size_t i = 0; i < 8 * bytes; i++) {
        const uint32_t bit = data[i / 8] >> i % 8 & 1u;
        crc = crc << 1 ^ ((crc >> 31 ^ bit) ? 0x1EDC6F41u : 0);
    }
    for (int i = 0; i < 32; i++)
        reversed |= (crc >> i & 1) << (31 - i);
    reversed = ~reversed;
    return (reversed >> 15 | reversed << 17) + 0xa282ead8u;
}

/* Bytes of the record at `at`, whose checksums are right. */
static size_t check_record(const unsigned char *at, size_t left)
{
    assert_true(left >= 16);
    const size_t bytes = read_u32(at);
    assert_true(read_u32(at + 4) == 0 && bytes <= left - 16);
    assert_int_equal(read_u32(at + 8), checksum(at, 8));
    assert_int_equal(read_u32(at + 12 + bytes), checksum(at + 12, bytes));
    return bytes + 16;
}

/* The record at `at` is golden[index] at another time; its bytes. */
static size_t expect_golden(const unsigned char *at, size_t left, size_t index)
{
    unsigned char want[256];
    const size_t bytes = read_hex(golden[index], want);
    assert_int_equal(check_record(want, bytes), bytes);
    assert_int_equal(check_record(at, left), bytes);
    memcpy(want + TIME_AT, at + TIME_AT, TIME_BYTES);
    assert_memory_equal(at, want, bytes - 4);
    double seconds;
    memcpy(&seconds, at + TIME_AT, sizeof seconds);
    assert_true(seconds > 1.6e9);
    return bytes;
}

/* The path of the folder's n-th file by name; how many there are. */
static int find_file(const char *of, int n, char path[512])
{
    struct dirent **entry;
    int files = 0;
    const int count = scandir(of, &entry, NULL, alphasort);
    assert_true(count >= 0);
    for (int i = 0; i < count; i++) {
        if (entry[i]->d_name[0] != '.' && files++ == n)
            snprintf(path, 512, "%s/%s", of, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return files;
}

static void test_bytes(void **state)
{
    const char *root = *state;
    struct shoali_event_file *file;
    char path[512], *data;
    size_t bytes, at = 0;
    ok(shoali_event_file_create(root, &file));
    ok(shoali_event_file_write(file, 300, (const shoal_event[]){{"a", 0.5}, {"Train/b", -2}}, 2));
    ok(shoali_event_file_write_text(file, 1, "c", "hi"));
    shoali_event_file_destroy(file);
    assert_int_equal(find_file(root, 0, path), 1);
    assert_non_null(strstr(path, "/events.out.tfevents."));
    ok(shoali_read_file(path, &data, &bytes));
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++)
        at += expect_golden((unsigned char *)data + at, bytes - at, i);
    assert_int_equal(at, bytes);
    free(data);
}

/* Lengths of more than one byte of a varint, and what is below a folder with a name. */
static void test_monitor(void **state)
{
    const char *root = *state;
    char below[256], path[512], *data;
    size_t bytes, at = 0;
    static char long_text[40000];
    int records = 0;
    snprintf(below, sizeof below, "%s/a/run", root);
    memset(long_text, 'x', sizeof long_text - 1);
    for (int run = 1; run <= 2; run++) {
        shoal_monitor *monitor;
        ok(shoal_monitor_create(&(shoal_monitor_args){.tensorboard_enabled = true,
                                                      .tensorboard_output_path = below,
                                                      .tensorboard_job_name = "."},
                                &monitor));
        assert_true(shoal_monitor_enabled(monitor));
        ok(shoal_monitor_write_text(monitor, 0, "configuration", long_text));
        ok(shoal_monitor_write(monitor, 1, (int64_t)1 << 40, &(shoal_event){"lr", 1}, 1));
        shoal_monitor_destroy(monitor);
        assert_int_equal(find_file(below, 0, path), run);
    }
    ok(shoali_read_file(path, &data, &bytes));
    for (; at < bytes; records++)
        at += check_record((unsigned char *)data + at, bytes - at);
    assert_int_equal(records, 3);
    assert_true(bytes > sizeof long_text);
    free(data);
    ok(shoal_monitor_write_text(NULL, 0, "configuration", "no monitor"));
}

static long bytes_of(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 ? (long)file.st_size : -1;
}

/* What does not fit is not there in part, of any sink, and a later batch is read. */
static void test_full_disk(void **state)
{
    const char *root = *state;
    char path[3][512], events[256], *data;
    struct rlimit usual;
    long before[3];
    size_t bytes, at = 0;
    shoal_monitor *monitor;
    snprintf(events, sizeof events, "%s/events", root);
    const shoal_monitor_args all[3] = {
        {.tensorboard_enabled = true,
         .tensorboard_output_path = root,
         .tensorboard_job_name = "events"},
        {.csv_enabled = true, .csv_output_path = root, .csv_job_name = "csv"},
        {.jsonl_enabled = true, .jsonl_output_path = root, .jsonl_job_name = "j"}};
    const shoal_event event = {"loss", 0.123456789};
    for (int i = 0; i < 3; i++) {
        ok(shoal_monitor_create(&all[i], &monitor));
        ok(shoal_monitor_write(monitor, 1, 1, &event, 1));
        if (i == 0)
            find_file(events, 0, path[0]);
        else
            snprintf(path[i], 512, "%s/%s", root, i == 1 ? "csv/loss.csv" : "j.jsonl");
        before[i] = bytes_of(path[i]);
        assert_true(before[i] > 0);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
        const struct rlimit tight = {.rlim_cur = (rlim_t)before[i] + 5, .rlim_max = usual.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        const shoal_status status = shoal_monitor_write(monitor, 2, 2, &event, 1);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
        assert_int_equal(status, SHOAL_EIO);
        assert_non_null(strstr(shoal_error_message(), path[i]));
        assert_non_null(strstr(shoal_error_message(), strerror(EFBIG)));
        assert_int_equal(bytes_of(path[i]), before[i]);
        ok(shoal_monitor_write(monitor, 3, 3, &event, 1));
        assert_true(bytes_of(path[i]) > before[i]);
        shoal_monitor_destroy(monitor);
    }
    ok(shoali_read_file(path[0], &data, &bytes));
    while (at < bytes)
        at += check_record((unsigned char *)data + at, bytes - at);
    free(data);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {IN_FOLDER(test_bytes), IN_FOLDER(test_monitor),
                                       IN_FOLDER(test_full_disk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
