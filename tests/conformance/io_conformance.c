/* What every backend of io has to do. Stamps the suite on the one that the argument names; without
 * one it looks whether each built backend is stamped: one line of tests/CMakeLists.txt. */
#include "base/test_cmocka.h"
#include "io/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

struct rig {
    const char *backend;
    char folder[64];
    char path[96];
    struct shoali_io_args args;
    struct shoali_io *io;
};

static int set_up(void **state)
{
    struct rig *rig = *state;
    strcpy(rig->folder, "/tmp/shoal-io-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    snprintf(rig->path, sizeof rig->path, "%s/swap", rig->folder);
    rig->args = (struct shoali_io_args){.backend = rig->backend,
                                        .block_bytes = 16384,
                                        .queue_depth = 8,
                                        .threads = 3,
                                        .overlap_events = true,
                                        .direct = true};
    assert_int_equal(shoali_io_create(&rig->args, &rig->io), SHOAL_OK);
    assert_string_equal(shoali_io_backend(rig->io), rig->backend);
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    shoali_fault_arm(NULL);
    shoali_io_destroy(rig->io);
    rig->io = NULL;
    (void)unlink(rig->path);
    assert_int_equal(rmdir(rig->folder), 0);
    return 0;
}

static void restart(struct rig *rig)
{
    shoali_io_destroy(rig->io);
    rig->io = NULL;
    assert_int_equal(shoali_io_create(&rig->args, &rig->io), SHOAL_OK);
}

static unsigned char *aligned(size_t bytes)
{
    unsigned char *memory =
        aligned_alloc(SHOALI_IO_ALIGN, (bytes + 2 * SHOALI_IO_ALIGN) & ~(size_t)4095);
    assert_non_null(memory);
    return memory;
}

static unsigned char byte_at(int64_t offset)
{
    return (unsigned char)(((uint64_t)offset * 0x9E3779B97F4A7C15u) >> 56);
}

static shoal_status transfer(struct shoali_io_file *file, enum shoali_io_kind kind, int64_t offset,
                             void *memory, size_t bytes)
{
    struct shoali_io_request *request = NULL;
    shoal_status status = shoali_io_post(file, kind, offset, memory, bytes, &request);
    return status < 0 ? status : shoali_io_wait(request);
}

/* A file of `bytes` with byte_at in it. */
static struct shoali_io_file *make_file(struct rig *rig, size_t bytes)
{
    struct shoali_io_file *file = NULL;
    unsigned char *memory = aligned(bytes);
    for (size_t i = 0; i < bytes; i++)
        memory[i] = byte_at((int64_t)i);
    assert_int_equal(shoali_io_open(rig->io, rig->path, (int64_t)bytes, &file), SHOAL_OK);
    assert_int_equal(transfer(file, SHOALI_IO_WRITE, 0, memory, bytes), SHOAL_OK);
    free(memory);
    return file;
}

static void test_writes_are_read_back(void **state)
{
    struct rig *rig = *state;
    for (int variant = 0; variant < 8; variant++) {
        rig->args.direct = variant & 1;
        rig->args.overlap_events = variant & 2;
        rig->args.single_submit = variant & 4;
        restart(rig);
        const size_t bytes = 300001; /* with an unaligned tail */
        struct shoali_io_file *file = make_file(rig, bytes);
        unsigned char *memory = aligned(bytes);
        memset(memory, 0, bytes);
        struct shoali_io_request *request = NULL;
        assert_int_equal(shoali_io_post(file, SHOALI_IO_READ, 0, memory, bytes, &request),
                         SHOAL_OK);
        /* past the page cache goes all but the tail */
        assert_int_equal(request->bulk,
                         shoali_io_is_direct(file) ? bytes - bytes % SHOALI_IO_ALIGN : 0);
        assert_int_equal(shoali_io_wait(request), SHOAL_OK);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(memory[i], byte_at((int64_t)i));
        struct stat info;
        assert_int_equal(stat(rig->path, &info), 0);
        assert_int_equal(info.st_size, bytes);
        assert_int_equal(info.st_mode & 0777, 0600);
        shoali_io_close(file);
        free(memory);
    }
}

/* Random ranges, many at once, against a model in memory: offsets and memory of all alignments. */
static void test_random_requests_agree_with_a_model(void **state)
{
    struct rig *rig = *state;
    enum { BYTES = 400000, ROUNDS = 60, TOGETHER = 12 };
    const char *given = getenv("TEST_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)shoali_now_ns();
    print_message("TEST_SEED=%llu\n", (unsigned long long)seed);
    unsigned short random[3] = {(unsigned short)seed, (unsigned short)(seed >> 16),
                                (unsigned short)(seed >> 32)};
    struct shoali_io_file *file = make_file(rig, BYTES);
    unsigned char *model = malloc(BYTES);
    assert_non_null(model);
    for (int64_t i = 0; i < BYTES; i++)
        model[i] = byte_at(i);
    for (int round = 0; round < ROUNDS; round++) {
        struct shoali_io_request *request[TOGETHER];
        unsigned char *memory[TOGETHER];
        int64_t offset[TOGETHER];
        size_t bytes[TOGETHER], shift[TOGETHER];
        const bool writes = nrand48(random) & 1;
        for (int i = 0; i < TOGETHER; i++) { /* each in its own part of the file */
            const int64_t part = BYTES / TOGETHER, begin = nrand48(random) % part;
            bytes[i] = (size_t)(nrand48(random) % (part - begin + 1));
            offset[i] = i * part + begin;
            shift[i] = (size_t)(nrand48(random) & 1 ? offset[i] : nrand48(random)) % 4096;
            memory[i] = aligned(bytes[i] + 4096);
            unsigned char *data = memory[i] + shift[i];
            for (size_t k = 0; writes && k < bytes[i]; k++)
                model[offset[i] + (int64_t)k] = data[k] = (unsigned char)nrand48(random);
            assert_int_equal(shoali_io_post(file, writes ? SHOALI_IO_WRITE : SHOALI_IO_READ,
                                            offset[i], data, bytes[i], &request[i]),
                             SHOAL_OK);
        }
        for (int i = TOGETHER - 1; i >= 0; i--) {
            assert_int_equal(shoali_io_wait(request[i]), SHOAL_OK);
            assert_memory_equal(memory[i] + shift[i], model + offset[i], bytes[i]);
            free(memory[i]);
        }
    }
    unsigned char *whole = aligned(BYTES);
    assert_int_equal(transfer(file, SHOALI_IO_READ, 0, whole, BYTES), SHOAL_OK);
    assert_memory_equal(whole, model, BYTES);
    free(whole);
    free(model);
}

/* Many more requests than the queue holds, none waited for until all are posted. */
static void test_a_full_queue_does_not_block(void **state)
{
    struct rig *rig = *state;
    enum { REQUESTS = 200, BYTES = 5000 };
    rig->args.queue_depth = 2;
    restart(rig);
    struct shoali_io_file *file = make_file(rig, REQUESTS * BYTES);
    unsigned char *memory = aligned(REQUESTS * BYTES);
    struct shoali_io_request *request[REQUESTS];
    for (int i = 0; i < REQUESTS; i++)
        assert_int_equal(shoali_io_post(file, SHOALI_IO_READ, (int64_t)i * BYTES,
                                        memory + (ptrdiff_t)i * BYTES, BYTES, &request[i]),
                         SHOAL_OK);
    bool done = false;
    const int64_t deadline = shoali_deadline_ns(5000000000);
    while (!done && !shoali_deadline_passed(deadline))
        assert_int_equal(shoali_io_test(request[REQUESTS - 1], &done), SHOAL_OK);
    assert_true(done);
    for (int i = 0; i < REQUESTS; i++)
        assert_int_equal(shoali_io_wait(request[i]), SHOAL_OK);
    for (int64_t i = 0; i < (int64_t)REQUESTS * BYTES; i++)
        assert_int_equal(memory[i], byte_at(i));
    free(memory);
}

static void test_a_short_file_names_path_offset_and_bytes(void **state)
{
    struct rig *rig = *state;
    struct shoali_io_file *file = make_file(rig, 100000);
    unsigned char *memory = aligned(100000);
    assert_int_equal(truncate(rig->path, 70000), 0);
    assert_int_equal(transfer(file, SHOALI_IO_READ, 4096, memory, 90000), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), rig->path));
    assert_non_null(strstr(shoal_error_message(), "90000 bytes expected at offset 4096"));
    assert_non_null(strstr(shoal_error_message(), "found 65904: the file ends at byte 70000"));
    /* What is there is still read, and other requests were not harmed. */
    struct shoali_io_request *bad, *good;
    assert_int_equal(shoali_io_post(file, SHOALI_IO_READ, 69999, memory, 2, &bad), SHOAL_OK);
    assert_int_equal(shoali_io_post(file, SHOALI_IO_READ, 0, memory + 8192, 70000, &good),
                     SHOAL_OK);
    assert_int_equal(shoali_io_wait(bad), SHOAL_EIO);
    assert_int_equal(shoali_io_wait(good), SHOAL_OK);
    assert_int_equal(memory[8192 + 69999], byte_at(69999));
    free(memory);
}

static void test_fault_points(void **state)
{
    struct rig *rig = *state;
    struct shoali_io_file *file = make_file(rig, 60000);
    unsigned char *memory = aligned(60000);
    memset(memory, 0, 60000);
    assert_true(shoali_fault_arm("io_short:1"));
    assert_int_equal(transfer(file, SHOALI_IO_READ, 0, memory, 4096), SHOAL_OK);
    assert_int_equal(transfer(file, SHOALI_IO_READ, 4096, memory + 4096, 55904), SHOAL_OK);
    for (int64_t i = 0; i < 60000; i++)
        assert_int_equal(memory[i], byte_at(i));
    assert_true(shoali_fault_arm("io_short"));
    assert_int_equal(transfer(file, SHOALI_IO_WRITE, 8192, memory, 4096), SHOAL_OK);
    assert_int_equal(transfer(file, SHOALI_IO_READ, 8192, memory + 8192, 4096), SHOAL_OK);
    assert_memory_equal(memory, memory + 8192, 4096);
    assert_true(shoali_fault_arm("io_read,io_write:1"));
    assert_int_equal(transfer(file, SHOALI_IO_WRITE, 0, memory, 60000), SHOAL_OK);
    assert_int_equal(transfer(file, SHOALI_IO_WRITE, 512, memory, 100), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), rig->path));
    assert_non_null(strstr(shoal_error_message(), "writing 100 bytes at offset 512"));
    assert_int_equal(transfer(file, SHOALI_IO_READ, 0, memory, 60000), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), "reading 60000 bytes at offset 0"));
    assert_int_equal(transfer(file, SHOALI_IO_READ, 0, memory, 60000), SHOAL_OK);
    free(memory);
}

/* What a signal interrupts is done again: a request's first block, also one that was cut short. */
static void test_interrupted(void **state)
{
    struct rig *rig = *state;
    static const char *const faults[] = {"io_interrupt", "io_interrupt,io_short"};
    struct shoali_io_file *file = make_file(rig, 60000);
    unsigned char *memory = aligned(60000);
    for (int i = 0; i < 2; i++) {
        memset(memory, 0, 60000);
        assert_true(shoali_fault_arm(faults[i]));
        assert_int_equal(transfer(file, SHOALI_IO_READ, 0, memory, 60000), SHOAL_OK);
        for (int64_t k = i ? 20000 : 0; k < 60000; k++)
            assert_int_equal(memory[k], byte_at(k));
        memset(memory, 1 + i, 20000);
        assert_true(shoali_fault_arm(faults[i]));
        assert_int_equal(transfer(file, SHOALI_IO_WRITE, 0, memory, 20000), SHOAL_OK);
        assert_true(shoali_fault_arm(NULL));
        memset(memory, 0, 60000);
        assert_int_equal(transfer(file, SHOALI_IO_READ, 0, memory, 60000), SHOAL_OK);
        for (int64_t k = 0; k < 60000; k++)
            assert_int_equal(memory[k], k < 20000 ? 1 + i : byte_at(k));
    }
    free(memory);
}

static void test_a_missing_file_and_folder(void **state)
{
    struct rig *rig = *state;
    struct shoali_io_file *file = NULL;
    assert_int_equal(shoali_io_open(rig->io, rig->path, 0, &file), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), rig->path));
    assert_null(file);
    char path[160];
    snprintf(path, sizeof path, "%s/none/swap", rig->folder);
    assert_int_equal(shoali_io_open(rig->io, path, 4096, &file), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), path));
}

static void test_destroy_waits_for_requests(void **state)
{
    struct rig *rig = *state;
    enum { BYTES = 2000000 };
    struct shoali_io_file *file = make_file(rig, BYTES);
    unsigned char *memory = aligned(BYTES);
    struct shoali_io_request *request;
    for (int i = 0; i < 20; i++)
        assert_int_equal(
            shoali_io_post(file, SHOALI_IO_READ, i * 100000, memory + i * 100000, 100000, &request),
            SHOAL_OK);
    shoali_io_destroy(rig->io);
    rig->io = NULL;
    for (int64_t i = 0; i < BYTES; i++)
        assert_int_equal(memory[i], byte_at(i));
    free(memory);
}

static void test_sizes_that_make_no_sense(void **state)
{
    struct rig *rig = *state;
    struct shoali_io *io = NULL;
    struct shoali_io_args args = rig->args;
    args.queue_depth = 0;
    assert_int_equal(shoali_io_create(&args, &io), SHOAL_EINVAL);
    args = rig->args;
    args.backend = "floppy";
    assert_int_equal(shoali_io_create(&args, &io), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "floppy"));
    struct shoali_io_file *file = make_file(rig, 4096);
    struct shoali_io_request *request = NULL;
    assert_int_equal(shoali_io_post(file, SHOALI_IO_READ, -1, NULL, 1, &request), SHOAL_EINVAL);
    assert_int_equal(transfer(file, SHOALI_IO_READ, 9999999, NULL, 0), SHOAL_OK);
    assert_null(io);
}

/* Mounts a small file system over the rig's folder, or skips the test. */
static void mount_small(struct rig *rig, const char *type, const char *options)
{
    if (mount("none", rig->folder, type, 0, options) == 0)
        return;
    print_message("no %s to test on: mount: %s\n", type, strerror(errno));
    skip();
}

static void test_a_full_disk(void **state)
{
    struct rig *rig = *state;
    struct shoali_io_file *file = NULL, *other = NULL;
    mount_small(rig, "tmpfs", "size=1m");
    assert_int_equal(shoali_io_open(rig->io, rig->path, 8 << 20, &file), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), rig->path));
    assert_non_null(strstr(shoal_error_message(), "8388608 bytes"));
    assert_int_equal(access(rig->path, F_OK), -1); /* nothing half made stays */
    unsigned char *memory = aligned(2 << 20);
    memset(memory, 1, 2 << 20);
    assert_int_equal(shoali_io_open(rig->io, rig->path, 65536, &other), SHOAL_OK);
    const shoal_status status = transfer(other, SHOALI_IO_WRITE, 0, memory, 2 << 20);
    char message[512];
    snprintf(message, sizeof message, "%s", shoal_error_message());
    shoali_io_close(other);
    assert_int_equal(umount(rig->folder), 0);
    assert_int_equal(status, SHOAL_EIO);
    assert_non_null(strstr(message, rig->path));
    assert_non_null(strstr(message, "disk is full: 2097152 bytes"));
    free(memory);
}

/* ramfs has no O_DIRECT (tmpfs has it since Linux 6.6). */
static void test_without_direct_io_it_is_buffered(void **state)
{
    struct rig *rig = *state;
    mount_small(rig, "ramfs", NULL);
    struct shoali_io_file *file = make_file(rig, 50000);
    assert_false(shoali_io_is_direct(file));
    unsigned char *memory = aligned(50000);
    assert_int_equal(transfer(file, SHOALI_IO_READ, 0, memory, 50000), SHOAL_OK);
    for (int64_t i = 0; i < 50000; i++)
        assert_int_equal(memory[i], byte_at(i));
    shoali_io_close(file);
    assert_int_equal(umount(rig->folder), 0);
    free(memory);
}

/* What is read alone needs no permission to write; what is written can be flushed. */
static void test_reading_alone(void **state)
{
    struct rig *rig = *state;
    struct shoali_io_file *file = make_file(rig, 50000);
    assert_int_equal(shoali_io_sync(file), SHOAL_OK);
    assert_true(shoali_fault_arm("io_sync"));
    assert_int_equal(shoali_io_sync(file), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), rig->path));
    shoali_fault_arm(NULL);
    shoali_io_close(file);
    assert_int_equal(chmod(rig->path, 0400), 0);
    assert_int_equal(shoali_io_open_to_read(rig->io, rig->path, &file), SHOAL_OK);
    unsigned char *memory = aligned(50000);
    assert_int_equal(transfer(file, SHOALI_IO_READ, 0, memory, 50000), SHOAL_OK);
    for (int64_t i = 0; i < 50000; i++)
        assert_int_equal(memory[i], byte_at(i));
    assert_int_equal(transfer(file, SHOALI_IO_WRITE, 0, memory, 50000), SHOAL_EIO);
    shoali_io_close(file);
    free(memory);
    assert_int_equal(unlink(rig->path), 0);
    assert_int_equal(shoali_io_open_to_read(rig->io, rig->path, &file), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), "cannot be opened: No such file"));
}

/* Nothing is in the folder while the file is open: rmdir works. */
static void test_an_unnamed_file(void **state)
{
    struct rig *rig = *state;
    unsigned char *memory = aligned(50000);
    for (int32_t wants_name = 0; wants_name < 2; wants_name++) {
        struct shoali_io_file *file = NULL;
        assert_true(shoali_fault_arm(wants_name ? "io_tmpfile" : NULL));
        assert_int_equal(shoali_io_open_unnamed(rig->io, rig->folder, "label", 50000, &file),
                         SHOAL_OK);
        assert_int_equal(rmdir(rig->folder), 0);
        assert_int_equal(mkdir(rig->folder, 0700), 0);
        assert_non_null(strstr(shoali_io_path(file), "/label"));
        for (int64_t i = 0; i < 50000; i++)
            memory[i] = byte_at(i);
        assert_int_equal(transfer(file, SHOALI_IO_WRITE, 0, memory, 50000), SHOAL_OK);
        memset(memory, 0, 50000);
        assert_int_equal(transfer(file, SHOALI_IO_READ, 0, memory, 50000), SHOAL_OK);
        for (int64_t i = 0; i < 50000; i++)
            assert_int_equal(memory[i], byte_at(i));
        assert_int_equal(transfer(file, SHOALI_IO_READ, 4096, memory, 50000), SHOAL_EIO);
        assert_non_null(strstr(shoal_error_message(), "/label"));
        shoali_io_close(file);
        assert_int_equal(shoali_io_open_unnamed(rig->io, "/no/such", "label", 50000, &file),
                         SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_message(), "\"/no/such\": cannot make a file there"));
    }
    free(memory);
}

static void test_the_environment_chooses(void **state)
{
    struct rig *rig = *state;
    rig->args.backend = NULL;
    assert_int_equal(setenv("SHOAL_IO", rig->backend, 1), 0);
    restart(rig);
    assert_string_equal(shoali_io_backend(rig->io), rig->backend);
    assert_int_equal(unsetenv("SHOAL_IO"), 0);
    restart(rig);
    char best[240];
    shoali_io_describe(best, sizeof best); /* "posix; why not uring" */
    best[strcspn(best, ";")] = '\0';
    assert_string_equal(shoali_io_backend(rig->io), best);
    assert_int_equal(setenv("SHOAL_IO", "floppy", 1), 0);
    struct shoali_io *io = NULL;
    assert_int_equal(shoali_io_create(&rig->args, &io), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "SHOAL_IO"));
    assert_int_equal(unsetenv("SHOAL_IO"), 0);
}

static int stamp(const char *backend)
{
    struct shoali_io *io = NULL;
    const struct shoali_io_args args = {
        .backend = backend, .block_bytes = 4096, .queue_depth = 1, .threads = 1};
    const bool works = shoali_io_create(&args, &io) == SHOAL_OK;
    shoali_io_destroy(io);
    if (!works) {
        print_message("skipped: %s cannot be used here\n", backend);
        return 77;
    }
    struct rig rig = {.backend = backend};
    const struct CMUnitTest tests[] = {
        {"writes_are_read_back", test_writes_are_read_back, set_up, tear_down, &rig},
        {"random", test_random_requests_agree_with_a_model, set_up, tear_down, &rig},
        {"full_queue", test_a_full_queue_does_not_block, set_up, tear_down, &rig},
        {"short_file", test_a_short_file_names_path_offset_and_bytes, set_up, tear_down, &rig},
        {"fault_points", test_fault_points, set_up, tear_down, &rig},
        {"interrupted", test_interrupted, set_up, tear_down, &rig},
        {"missing", test_a_missing_file_and_folder, set_up, tear_down, &rig},
        {"destroy", test_destroy_waits_for_requests, set_up, tear_down, &rig},
        {"no_sense", test_sizes_that_make_no_sense, set_up, tear_down, &rig},
        {"full_disk", test_a_full_disk, set_up, tear_down, &rig},
        {"buffered", test_without_direct_io_it_is_buffered, set_up, tear_down, &rig},
        {"reading_alone", test_reading_alone, set_up, tear_down, &rig},
        {"unnamed", test_an_unnamed_file, set_up, tear_down, &rig},
        {"environment", test_the_environment_chooses, set_up, tear_down, &rig},
    };
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}

/* STAMPED: the names that tests/CMakeLists.txt has, each with a blank in front and behind. The
 * refusal of another name lists the backends. */
static void test_each_is_stamped(void **state)
{
    (void)state;
    struct shoali_io *io = NULL;
    const struct shoali_io_args args = {
        .backend = "floppy", .block_bytes = 4096, .queue_depth = 1, .threads = 1};
    assert_int_equal(shoali_io_create(&args, &io), SHOAL_ECONFIG);
    const char *list = strstr(shoal_error_message(), "\"floppy\": ");
    char names[64], *rest = NULL;
    int count = 0;
    assert_non_null(list);
    snprintf(names, sizeof names, "%s", list + strlen("\"floppy\": "));
    for (char *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
        char word[66];
        snprintf(word, sizeof word, " %s ", name);
        if (!strstr(STAMPED, word))
            fail_msg("no test runs the suite on %s: name it in tests/CMakeLists.txt", name);
        count++;
    }
    assert_int_equal(count, 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_is_stamped)};
    return argc > 1 ? stamp(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
