/* What a rank maps when another names a segment, and what it does not even look into. */
#include "comm/shm/shm.h"

#include "base/test_cmocka.h"
#include "comm/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 8192 };

static char folder[SHOALI_FOLDER_BYTES];

static bool says(const char *text)
{
    return strstr(shoal_error_message(), text) != NULL;
}

/* Refused, with a word of why; the file keeps what it holds. */
static void refuse(const char *name, const char *text)
{
    struct shoali_segment segment = {.bytes = BYTES, .fd = -1};
    snprintf(segment.name, sizeof(segment.name), "%s", name);
    assert_int_equal(shoali_shm_attach(NULL, &segment), SHOAL_EIO);
    if (!says(text))
        fail_msg("%s: %s", name, shoal_error_message());
    assert_null(segment.base);
}

static int make_file(const char *path, mode_t mode, off_t bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(posix_fallocate(fd, 0, bytes), 0);
    return fd;
}

static void own_segments_are_mapped(void **state)
{
    (void)state;
    struct shoali_segment made = {.fd = -1}, seen = {.fd = -1, .bytes = BYTES};
    assert_int_equal(shoali_shm_create(NULL, BYTES, &made), SHOAL_OK);
    assert_int_equal(strncmp(made.name, folder, strlen(folder)), 0);
    memcpy(seen.name, made.name, sizeof(seen.name));
    assert_int_equal(shoali_shm_attach(NULL, &seen), SHOAL_OK);
    *(volatile char *)made.base = 7;
    assert_int_equal(*(volatile char *)seen.base, 7);
    shoali_shm_detach(NULL, &seen);
    shoali_shm_detach(NULL, &made);
    assert_int_equal(access(made.name, F_OK), -1);
}

/* The sentence says what is missing, and does not send the reader to another machine. */
static void no_descriptors_are_said_as_such(void **state)
{
    (void)state;
    struct rlimit limit;
    struct shoali_segment made = {.fd = -1}, seen = {.fd = -1, .bytes = BYTES};
    assert_int_equal(shoali_shm_create(NULL, BYTES, &made), SHOAL_OK);
    memcpy(seen.name, made.name, sizeof(seen.name));
    const int next = dup(0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {.rlim_cur = (rlim_t)next, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const shoal_status status = shoali_shm_attach(NULL, &seen);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, SHOAL_EIO);
    assert_true(says("Too many open files: raise the limit with `ulimit -n`"));
    assert_false(says("one machine"));
    shoali_shm_detach(NULL, &made);
}

static void foreign_paths_are_not_opened(void **state)
{
    (void)state;
    char name[112], outside[] = "/tmp/shoal-segment-XXXXXX";
    int fd = mkstemp(outside);
    assert_int_equal(posix_fallocate(fd, 0, BYTES), 0);
    refuse(outside, "Operation not permitted");
    refuse("/etc/passwd", "Operation not permitted");
    refuse("/dev/shm/shoal-x", "Operation not permitted");
    refuse("/proc/self/mem", "Operation not permitted");
    refuse("/proc/1/fd/../mem", "Operation not permitted");
    refuse("/proc/1/fd/0/x", "Operation not permitted");
    refuse("", "Operation not permitted");
    snprintf(name, sizeof(name), "%s/../../../..%s", folder, outside);
    refuse(name, "Operation not permitted");
    snprintf(name, sizeof(name), "%s/shoal-x/../../../..%s", folder, outside);
    refuse(name, "Operation not permitted");
    snprintf(name, sizeof(name), "%s/secret", folder);
    refuse(name, "Operation not permitted");
    snprintf(name, sizeof(name), "%s/shoal-test-link", folder);
    assert_int_equal(symlink(outside, name), 0);
    refuse(name, "symbolic links");
    assert_int_equal(unlink(name), 0);
    close(fd);
    unlink(outside);
}

static void strange_files_are_not_mapped(void **state)
{
    (void)state;
    char name[112];
    snprintf(name, sizeof(name), "%s/shoal-test-%d", folder, (int)getpid());
    close(make_file(name, 0600, BYTES / 2));
    refuse(name, "its size is wrong");
    assert_int_equal(truncate(name, BYTES), 0); /* a hole: writing to it could be a SIGBUS */
    refuse(name, "its memory is not reserved");
    unlink(name);
    close(make_file(name, 0640, BYTES));
    refuse(name, "other users may open it");
    assert_int_equal(chmod(name, 0602), 0);
    refuse(name, "other users may open it");
    if (getuid() == 0) {
        assert_int_equal(chmod(name, 0600), 0);
        assert_int_equal(chown(name, 65534, 65534), 0);
        refuse(name, "it belongs to another user");
    }
    unlink(name);
    assert_int_equal(mkfifo(name, 0600), 0); /* does not wait for its other end */
    refuse(name, "it is no file in memory");
    unlink(name);
}

static void descriptors_are_sealed(void **state)
{
    (void)state;
    char name[112];
    struct shoali_segment segment = {.bytes = BYTES, .fd = -1};
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(posix_fallocate(fd, 0, BYTES), 0);
    snprintf(name, sizeof(name), "/proc/%d/fd/%d", (int)getpid(), fd);
    refuse(name, "its size may change");
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    snprintf(segment.name, sizeof(segment.name), "%s", name);
    assert_int_equal(shoali_shm_attach(NULL, &segment), SHOAL_OK);
    assert_int_equal(ftruncate(fd, 0), -1);
    shoali_shm_detach(NULL, &segment);
    close(fd);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    snprintf(name, sizeof(name), "/proc/%d/fd/%d", (int)getpid(), ends[1]);
    refuse(name, "it is no file in memory");
    close(ends[0]);
    close(ends[1]);
}

/* The folder is this user's alone, whatever had been done to it. */
static void folder_is_closed(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(chmod(folder, 0710), 0);
    int fd = shoali_folder_open();
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    close(fd);
}

/* A rank that ended before it joined is known by a note of the job's, to ranks that the job's own
 * launcher has numbered. */
static void ended_ranks_are_known(void **state)
{
    (void)state;
    const shoal_comm_args args = {.rank = 1, .world_size = 3};
    char path[SHOALI_FOLDER_BYTES + 64];
    snprintf(path, sizeof path, "%s/shoal-segment-test-%d-ended.2", folder, (int)getpid());
    char job[64];
    snprintf(job, sizeof job, "segment-test-%d", (int)getpid());
    setenv("SHOAL_JOB_ID", job, 1);
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "3", 1);
    assert_false(shoali_shm_has_ended(&args, 2));
    shoali_shm_note_ended(job, 2);
    assert_true(shoali_shm_has_ended(&args, 2));
    assert_false(shoali_shm_has_ended(&args, 0));
    setenv("RANK", "0", 1); /* a world that the program numbers itself */
    assert_false(shoali_shm_has_ended(&args, 2));
    assert_int_equal(unlink(path), 0);
    unsetenv("SHOAL_JOB_ID");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

int main(void)
{
    int fd = shoali_folder_open();
    shoali_folder_path(folder);
    if (fd < 0) {
        printf("skipped: %s cannot be used\n", folder);
        return 77;
    }
    close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_segments_are_mapped),
        cmocka_unit_test(no_descriptors_are_said_as_such),
        cmocka_unit_test(foreign_paths_are_not_opened),
        cmocka_unit_test(strange_files_are_not_mapped),
        cmocka_unit_test(descriptors_are_sealed),
        cmocka_unit_test(folder_is_closed),
        cmocka_unit_test(ended_ranks_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
