/* What `shoal report` says of files, also on a machine whose kernel refuses io_uring: a seccomp
 * filter in a child stands for it. */
#include "base/test_cmocka.h"
#include "io/io.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 3, TEXT_BYTES = 240 };

/* From now on io_uring_setup fails with `error` in this process. */
static bool refuse_uring(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool uring_works(void)
{
    struct shoali_io *io = NULL;
    const struct shoali_io_args args = {
        .backend = "uring", .block_bytes = 4096, .queue_depth = 1, .threads = 1};
    const bool works = shoali_io_create(&args, &io) == SHOAL_OK;
    shoali_io_destroy(io);
    return works;
}

/* In a child; 0: the text has all the words, and a context is what the text says. */
static int describe_refused(int error, const char *variable, const char *const words[3])
{
    char text[TEXT_BYTES];
    struct shoali_io *io = NULL;
    const struct shoali_io_args args = {.block_bytes = 4096, .queue_depth = 1, .threads = 1};
    if (!refuse_uring(error))
        return SKIPPED;
    if (variable)
        setenv("SHOAL_IO", variable, 1);
    shoali_io_describe(text, sizeof text);
    for (int i = 0; i < 3; i++)
        if (!strstr(text, words[i])) {
            fprintf(stderr, "\"%s\" lacks \"%s\"\n", text, words[i]);
            return 1;
        }
    const bool works = shoali_io_create(&args, &io) == SHOAL_OK;
    shoali_io_destroy(io);
    return works == (strncmp(text, "none", 4) != 0) ? 0 : 2;
}

static void test_a_kernel_that_refuses(void **state)
{
    (void)state;
    static const struct {
        int error;
        const char *variable, *words[3];
    } cases[] = {
        {EPERM, NULL, {"posix; ", "Operation not permitted", "kernel.io_uring_disabled"}},
        {ENOSYS, NULL, {"posix; ", "Function not implemented", "seccomp"}},
        {ENOMEM, NULL, {"posix; ", "Cannot allocate memory", ""}},
        {EPERM, "uring", {"none: ", "SHOAL_IO asks for uring", "kernel.io_uring_disabled"}},
        {EPERM, "posix", {"posix, as SHOAL_IO says", "", ""}},
    };
    if (!uring_works()) {
        print_message("io_uring cannot be used here: skipped\n");
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int result = 0;
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(describe_refused(cases[i].error, cases[i].variable, cases[i].words));
        assert_int_equal(waitpid(child, &result, 0), child);
        if (WIFEXITED(result) && WEXITSTATUS(result) == SKIPPED)
            skip(); /* no seccomp here */
        assert_int_equal(result, 0);
    }
}

static void test_what_is_used_here(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    unsetenv("SHOAL_IO");
    shoali_io_describe(text, sizeof text);
    if (uring_works())
        assert_string_equal(text, "uring");
    else
        assert_true(strncmp(text, "posix; ", 7) == 0 && strlen(text) > 20);
    setenv("SHOAL_IO", "floppy", 1);
    shoali_io_describe(text, sizeof text);
    assert_string_equal(text, "none: SHOAL_IO=floppy names no backend: uring, posix");
    unsetenv("SHOAL_IO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_used_here),
        cmocka_unit_test(test_a_kernel_that_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
