/* What a save asks of the disk, through wrappers of the system's calls: all is flushed before a
 * name says that it is there, and calls that are interrupted or write less than asked for are
 * continued where they stopped. */
#include "checkpoint_model.h"

#include "base/str.h"
#include "base/test_cmocka.h"
#include "checkpoint/checkpoint_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the wrappers ---- */

enum { EVENTS_MAX = 400, EVENT_BYTES = 200 };
static char events[EVENTS_MAX][EVENT_BYTES]; /* "flush PATH", "rename PATH" (the new name) */
static atomic_int event_count;
static atomic_bool stutters;
static atomic_uint calls;

int __real_fsync(int descriptor);
int __wrap_fsync(int descriptor);
int __real_fdatasync(int descriptor);
int __wrap_fdatasync(int descriptor);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
ssize_t __real_write(int descriptor, const void *data, size_t bytes);
ssize_t __wrap_write(int descriptor, const void *data, size_t bytes);
ssize_t __real_pwrite(int descriptor, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int descriptor, const void *data, size_t bytes, off_t at);
ssize_t __real_read(int descriptor, void *data, size_t bytes);
ssize_t __wrap_read(int descriptor, void *data, size_t bytes);
ssize_t __real_pread(int descriptor, void *data, size_t bytes, off_t at);
ssize_t __wrap_pread(int descriptor, void *data, size_t bytes, off_t at);
int __real_posix_fallocate(int descriptor, off_t at, off_t bytes);
int __wrap_posix_fallocate(int descriptor, off_t at, off_t bytes);

static int refusal; /* of memory on the disk: an errno; 0: none */
int __wrap_posix_fallocate(int descriptor, off_t at, off_t bytes)
{
    return refusal ? refusal : __real_posix_fallocate(descriptor, at, bytes);
}

static void note(const char *what, const char *path)
{
    const int at = atomic_fetch_add(&event_count, 1);
    if (at < EVENTS_MAX)
        snprintf(events[at], EVENT_BYTES, "%s %s", what, path);
}

static void note_flush(int descriptor)
{
    char link[64], path[EVENT_BYTES - 16];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t bytes = readlink(link, path, sizeof path - 1);
    path[bytes > 0 ? bytes : 0] = '\0';
    note("flush", path);
}

int __wrap_fsync(int descriptor)
{
    note_flush(descriptor);
    return __real_fsync(descriptor);
}

int __wrap_fdatasync(int descriptor)
{
    note_flush(descriptor);
    return __real_fdatasync(descriptor);
}

int __wrap_rename(const char *from, const char *to)
{
    note("rename", to);
    return __real_rename(from, to);
}

/* How many bytes a call moves; -1: it is interrupted, which sets errno. */
static ssize_t admit(size_t bytes)
{
    const unsigned call = stutters ? atomic_fetch_add(&calls, 1) : 0;
    if (call % 3 == 1) {
        errno = EINTR;
        return -1;
    }
    return (ssize_t)(call % 3 == 2 && bytes > 1 ? bytes / 2 : bytes);
}

ssize_t __wrap_write(int descriptor, const void *data, size_t bytes)
{
    const ssize_t some = admit(bytes);
    return some < 0 ? -1 : __real_write(descriptor, data, (size_t)some);
}

ssize_t __wrap_pwrite(int descriptor, const void *data, size_t bytes, off_t at)
{
    const ssize_t some = admit(bytes);
    return some < 0 ? -1 : __real_pwrite(descriptor, data, (size_t)some, at);
}

ssize_t __wrap_read(int descriptor, void *data, size_t bytes)
{
    const ssize_t some = admit(bytes);
    return some < 0 ? -1 : __real_read(descriptor, data, (size_t)some);
}

ssize_t __wrap_pread(int descriptor, void *data, size_t bytes, off_t at)
{
    const ssize_t some = admit(bytes);
    return some < 0 ? -1 : __real_pread(descriptor, data, (size_t)some, at);
}

/* ---- the tests ---- */

static void begin(struct model *model, char dir[64], struct model_run *run)
{
    *model = (struct model){.max_shard_bytes = 4000};
    model_add(model, "a", shoal_shape_2(30, 40));
    model_add(model, "b", shoal_shape_1(500));
    model_add_kind(model, "model", SHOAL_F32, false);
    model_add_kind(model, "master", SHOAL_BF16, true);
    model_folder_make(dir);
    *run = (struct model_run){.model = model,
                              .dir = dir,
                              .tag = "one",
                              .ranks = 2,
                              .layout = 4,
                              .content = 1,
                              .step = 1,
                              .refusing_rank = -1};
    assert_int_equal(setenv("SHOAL_IO", "posix", 1), 0); /* whose calls are these */
    event_count = 0;
}

/* The first place from `from` on of an event whose path ends so; -1: there is none. */
static int find(int from, const char *what, const char *dir, const char *name)
{
    char text[EVENT_BYTES];
    snprintf(text, sizeof text, "%s %s%s%s", what, dir, *name ? "/" : "", name);
    for (int i = from; i < event_count; i++)
        if (strcmp(events[i], text) == 0)
            return i;
    return -1;
}

static void expect_between(int from, int to, const char *what, const char *dir, const char *name)
{
    const int at = find(from, what, dir, name);
    if (at < 0 || at > to)
        fail_msg("\"%s %s/%s\" is not between events %d and %d, but at %d", what, dir, name, from,
                 to, at);
}

/* After a power cut at any moment `latest` names a checkpoint that is there and whole. */
static void test_order(void **state)
{
    (void)state;
    static const char *const files[] = {"one.partial/model-00001-of-00002.safetensors",
                                        "one.partial/model-00002-of-00002.safetensors",
                                        "one.partial/master-00001-of-00001.safetensors"};
    char dir[64];
    struct model model;
    struct model_run run;
    begin(&model, dir, &run);
    for (int pass = 0; pass < 2; pass++) { /* a new tag, and one that exists */
        event_count = 0;
        model_save_expect(&run, SHOAL_OK);
        assert_true(event_count < EVENTS_MAX);
        const int manifest = find(0, "rename", dir, "one.partial/manifest.json");
        const int placed = find(0, "rename", dir, "one");
        const int latest = find(0, "rename", dir, "latest");
        assert_true(manifest > 0 && placed > manifest && latest > placed);
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
            expect_between(0, manifest, "flush", dir, files[i]);
        expect_between(0, manifest, "flush", dir, "one.partial/manifest.json.tmp");
        expect_between(manifest, placed, "flush", dir, "one.partial");
        expect_between(placed, latest, "flush", dir, "");
        expect_between(placed, latest, "flush", dir, "latest.tmp");
        expect_between(latest, event_count, "flush", dir, "");
        assert_int_equal(find(0, "rename", dir, "one.old") >= 0, pass);
        run.step++;
    }
    model_folder_remove(dir);
}

/* Of three calls one is interrupted and one moves half of what it should. */
static void test_short_calls(void **state)
{
    (void)state;
    char dir[64];
    struct model model;
    struct model_run run;
    begin(&model, dir, &run);
    for (int32_t pass = 0; pass < 6; pass++) { /* so that each call is met by each */
        const int32_t ranks = 1 + pass % 2;
        run.ranks = ranks;
        run.step++;
        calls = (unsigned)pass / 2;
        stutters = true;
        model_save(&run);
        stutters = false;
        assert_true(calls > 12);
        for (int32_t r = 0; r < ranks; r++)
            if (run.status[r] != SHOAL_OK)
                fail_msg("%s", run.message[r]);
        model_load_expect(&run, SHOAL_OK); /* asserts every byte */
        stutters = true;
        model_load(&run);
        stutters = false;
        for (int32_t r = 0; r < ranks; r++)
            if (run.status[r] != SHOAL_OK)
                fail_msg("%s", run.message[r]);
    }
    model_folder_remove(dir);
}

/* Files of weights, which are written and read without io's threads. */
static void test_short_blocks(void **state)
{
    (void)state;
    enum { BYTES = 50000, AT = 100 };
    static char data[BYTES], back[BYTES];
    char dir[64], path[128];
    model_folder_make(dir);
    snprintf(path, sizeof path, "%s/file", dir);
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (char)(i * i % 251);
    const int file = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(file >= 0);
    for (unsigned first = 0; first < 3; first++) {
        memset(back, 0, BYTES);
        calls = first;
        stutters = true;
        const shoal_status written = shoali_checkpoint_pwrite(file, path, data, BYTES, AT);
        calls = first;
        const shoal_status read = shoali_checkpoint_pread(file, path, back, BYTES, AT);
        stutters = false;
        assert_int_equal(written, SHOAL_OK);
        assert_int_equal(read, SHOAL_OK);
        assert_memory_equal(back, data, BYTES);
        assert_int_equal(ftruncate(file, 0), 0);
    }
    close(file);
    model_folder_remove(dir);
}

/* A text of many pieces, written and read back. */
static void test_short_files(void **state)
{
    (void)state;
    enum { BYTES = 200000 };
    char dir[64], path[128], *back = NULL, *text = malloc(BYTES);
    size_t bytes = 0;
    assert_non_null(text);
    model_folder_make(dir);
    snprintf(path, sizeof path, "%s/file", dir);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = (char)('a' + i * i % 23);
    for (unsigned first = 0; first < 3; first++) {
        calls = first;
        stutters = true;
        const shoal_status status = shoali_write_file_atomic(path, text, BYTES);
        calls = first;
        const shoal_status read = shoali_read_file(path, &back, &bytes);
        stutters = false;
        assert_int_equal(status, SHOAL_OK);
        assert_int_equal(read, SHOAL_OK);
        assert_int_equal(bytes, BYTES);
        assert_memory_equal(back, text, BYTES);
        free(back);
    }
    free(text);
    model_folder_remove(dir);
}

/* Each reason for which a file gets no room has its own sentence. */
static void test_no_room(void **state)
{
    (void)state;
    static const struct {
        int error;
        const char *text;
    } refusals[] = {{ENOSPC, "/file: the disk is full: the checkpoint needs 7000 more bytes"},
                    {EDQUOT, "/file: the disk is full: the checkpoint needs 7000 more bytes"},
                    {EFBIG, "/file: a file of 5000 bytes"},
                    {EIO, "/file: cannot reserve space: Input/output error"}};
    char dir[64], path[128];
    model_folder_make(dir);
    snprintf(path, sizeof path, "%s/file", dir);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        refusal = refusals[i].error;
        const shoal_status status = shoali_checkpoint_create_file(path, 5000, 7000);
        refusal = 0;
        assert_int_equal(status, SHOAL_EIO);
        model_expect_text(shoal_error_message(), refusals[i].text);
        unlink(path);
    }
    assert_int_equal(shoali_checkpoint_create_file(path, 5000, 7000), SHOAL_OK);
    model_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order), cmocka_unit_test(test_short_calls),
        cmocka_unit_test(test_short_blocks), cmocka_unit_test(test_short_files),
        cmocka_unit_test(test_no_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
