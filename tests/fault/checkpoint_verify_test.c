/* What `shoal checkpoint verify` finds: bytes that changed in any chunk of any file, files that are
 * gone or have another length, with any number of threads; each by its range, and nothing else. */
#include "checkpoint_model.h"

#include "base/fault.h"
#include "base/str.h"
#include "base/test_cmocka.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of fp32 numbers; files of 3, 1 and 2 chunks. */
enum { CHUNK = 16 << 20, LARGE = 2 * (CHUNK / 4) + 1000, SMALL = 100, MIDDLE = CHUNK / 4 + 1 };
enum { FILES = 3, PLACES_MAX = 4 };

static char dir[64];

static const char *path_of(int file)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/one/model-0000%d-of-0000%d.safetensors", dir, file, FILES);
    return path;
}

static int64_t size_of(int file)
{
    struct stat info;
    assert_int_equal(stat(path_of(file), &info), 0);
    return info.st_size;
}

static void change_byte(int file, int64_t at)
{
    unsigned char byte;
    const int descriptor = open(path_of(file), O_RDWR);
    assert_int_equal(pread(descriptor, &byte, 1, (off_t)at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(descriptor, &byte, 1, (off_t)at), 1);
    close(descriptor);
}

static int save(void **state)
{
    struct model model = {.max_shard_bytes = 1};
    model_folder_make(dir);
    model_add(&model, "a", shoal_shape_1(LARGE));
    model_add(&model, "b", shoal_shape_1(SMALL));
    model_add(&model, "c", shoal_shape_1(MIDDLE));
    model_add_kind(&model, "model", SHOAL_F32, true);
    struct model_run run = {.model = &model,
                            .dir = dir,
                            .tag = "one",
                            .ranks = 1,
                            .content = 3,
                            .client_json = "{}",
                            .refusing_rank = -1};
    model_save_expect(&run, SHOAL_OK);
    (void)state;
    return 0;
}

static int drop(void **state)
{
    (void)state;
    model_folder_remove(dir);
    return 0;
}

/* `lines` are all of the damage; "": the checkpoint is whole. */
static void verify(const char *lines)
{
    char first[64];
    for (int32_t threads = 0; threads < 4; threads++) {
        struct shoali_str out = {0};
        bool good;
        assert_int_equal(shoali_checkpoint_verify(dir, "one", threads, &out, &good), SHOAL_OK);
        const char *text = shoali_str_get(&out), *rest = strchr(text, '\n');
        assert_non_null(rest);
        snprintf(first, sizeof first, "one: %s: %d files, 48.0 MiB read in ",
                 *lines ? "damaged" : "whole", FILES);
        if (strncmp(text, first, strlen(first)) != 0 || strcmp(rest + 1, lines) != 0)
            fail_msg("%d threads:\n%s, not %s...\n%s", (int)threads, text, first, lines);
        assert_int_equal(good, !*lines);
        shoali_str_fini(&out);
    }
}

/* Without the hashes. */
static void verify_ranges(const int *file, const int64_t *begin, int count)
{
    for (int32_t threads = 0; threads < 4; threads++) {
        struct shoali_str out = {0};
        char line[256];
        bool good;
        int lines = -1;
        assert_int_equal(shoali_checkpoint_verify(dir, "one", threads, &out, &good), SHOAL_OK);
        const char *text = shoali_str_get(&out);
        for (const char *at = text; at; at = strchr(at + 1, '\n'))
            lines++;
        assert_int_equal(lines, count + 1);
        assert_false(good);
        for (int i = 0; i < count; i++) {
            const int64_t size = size_of(file[i]);
            const int64_t end = begin[i] + CHUNK < size ? begin[i] + CHUNK : size;
            snprintf(line, sizeof line, "  damaged: %s, bytes %lld to %lld: hash ",
                     path_of(file[i]), (long long)begin[i], (long long)end - 1);
            if (!strstr(text, line))
                fail_msg("%d threads:\n%s, not %s", (int)threads, text, line);
        }
        shoali_str_fini(&out);
    }
}

static void test_whole(void **state)
{
    (void)state;
    verify("");
}

/* The first and the last byte of each chunk. */
static void test_each_chunk(void **state)
{
    (void)state;
    for (int file = 1; file <= FILES; file++)
        for (int64_t begin = 0; begin < size_of(file); begin += CHUNK) {
            const int64_t size = size_of(file), end = begin + CHUNK < size ? begin + CHUNK : size;
            for (int i = 0; i < 2; i++) {
                change_byte(file, i ? end - 1 : begin);
                verify_ranges(&file, &begin, 1);
                change_byte(file, i ? end - 1 : begin);
            }
        }
    verify("");
}

static void test_several(void **state)
{
    static const int file[PLACES_MAX] = {1, 1, 2, 3};
    static const int64_t begin[PLACES_MAX] = {0, 2 * CHUNK, 0, CHUNK};
    (void)state;
    for (int i = 0; i < PLACES_MAX; i++)
        change_byte(file[i], begin[i] + 10);
    verify_ranges(file, begin, PLACES_MAX);
    for (int i = 0; i < PLACES_MAX; i++)
        change_byte(file[i], begin[i] + 10);
    verify("");
}

static void test_lengths(void **state)
{
    char lines[512];
    const long long size = (long long)size_of(3);
    (void)state;
    assert_int_equal(truncate(path_of(3), size - 1), 0);
    snprintf(lines, sizeof lines, "  damaged: %s has %lld bytes, the manifest says %lld\n",
             path_of(3), size - 1, size);
    verify(lines);
    assert_int_equal(unlink(path_of(2)), 0);
    char more[1024];
    snprintf(more, sizeof more, "  damaged: %s is missing, the manifest lists it\n%s", path_of(2),
             lines);
    verify(more);
}

/* What a drive cannot read is damage. */
static void test_unreadable(void **state)
{
    char line[256];
    (void)state;
    for (int chunk = 0; chunk < 3; chunk++) {
        const int64_t begin = (int64_t)chunk * CHUNK, size = size_of(1);
        struct shoali_str out = {0};
        char spec[32];
        bool good;
        snprintf(spec, sizeof spec, "io_read:%d", chunk);
        assert_true(shoali_fault_arm(spec));
        assert_int_equal(shoali_checkpoint_verify(dir, "one", 1, &out, &good), SHOAL_OK);
        assert_true(shoali_fault_left() < 0 && shoali_fault_arm(NULL));
        snprintf(line, sizeof line, "  damaged: %s, bytes %lld to %lld: cannot be read\n",
                 path_of(1), (long long)begin,
                 (long long)(begin + CHUNK < size ? begin + CHUNK : size) - 1);
        if (good || !strstr(shoali_str_get(&out), line))
            fail_msg("%s, not %s", shoali_str_get(&out), line);
        shoali_str_fini(&out);
    }
}

/* Without memory there is an error, and no word of damage. */
static void test_memory(void **state)
{
    int64_t failures = 0;
    struct model model = {.max_shard_bytes = 1};
    struct model_run run = {.model = &model,
                            .dir = dir,
                            .tag = "small",
                            .ranks = 1,
                            .client_json = "{}",
                            .refusing_rank = -1};
    (void)state;
    model_add(&model, "a", shoal_shape_1(SMALL));
    model_add(&model, "b", shoal_shape_1(SMALL));
    model_add_kind(&model, "model", SHOAL_F32, true);
    model_save_expect(&run, SHOAL_OK);
    for (bool fired = true; fired; failures += fired) {
        struct shoali_str out = {0};
        char spec[32];
        bool good;
        snprintf(spec, sizeof spec, "alloc:%lld", (long long)failures);
        assert_true(shoali_fault_arm(spec));
        const shoal_status status = shoali_checkpoint_verify(dir, "small", 1, &out, &good);
        fired = shoali_fault_left() < 0;
        assert_true(shoali_fault_arm(NULL));
        /* The line of a long wait is done without. */
        if ((!(fired && status == SHOAL_ENOMEM) && !(status == SHOAL_OK && good)) ||
            strstr(shoali_str_get(&out), "damaged"))
            fail_msg("%s: %s, %s", spec, shoal_status_name(status), shoali_str_get(&out));
        shoali_str_fini(&out);
    }
    printf("%lld allocations failed, one after the other\n", (long long)failures);
    assert_true(failures > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),   cmocka_unit_test(test_each_chunk),
        cmocka_unit_test(test_several), cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, save, drop);
}
