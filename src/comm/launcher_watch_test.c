/* A process that stands for a launcher is killed, and a rank that is no child of it ends. */
#include "base/test_cmocka.h"
#include "comm/launcher_watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAME_BYTES = 96 };

/* A process that only waits; its name goes to `name`. */
static int start_launcher(char name[NAME_BYTES])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int pid = fork();
    if (pid == 0) {
        char own[NAME_BYTES] = "";
        if (!shoali_launcher_name(own, sizeof(own)) ||
            write(ends[1], own, sizeof(own)) != (ssize_t)sizeof(own))
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    assert_int_equal(read(ends[0], name, NAME_BYTES), NAME_BYTES);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void stop_launcher(int pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* A rank of its own: initialises, says so, and waits, or leaves its group first. A signal ends it
 * after a minute. */
static int start_rank(const char *launcher, bool leaves, int *output)
{
    int ends[2];
    char letter = 0;
    assert_int_equal(pipe(ends), 0);
    int pid = fork();
    if (pid == 0) {
        shoal_group *group = NULL;
        dup2(ends[1], STDERR_FILENO);
        setenv(SHOALI_LAUNCHER_VARIABLE, launcher, 1);
        alarm(60);
        if (shoal_comm_init(&(shoal_comm_args){.world_size = 1}, &group) != SHOAL_OK)
            _exit(9);
        if (leaves)
            shoal_comm_destroy(group);
        if (write(ends[1], "r", 1) != 1)
            _exit(8);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &letter, 1), 1);
    assert_int_equal(letter, 'r');
    *output = ends[0];
    return pid;
}

static void test_rank_ends_with_its_launcher(void **state)
{
    (void)state;
    char name[NAME_BYTES], sent[256] = "", expected[256];
    int output, result = 0;
    int launcher = start_launcher(name);
    int rank = start_rank(name, false, &output);
    stop_launcher(launcher);
    assert_int_equal(waitpid(rank, &result, 0), rank);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 1);
    assert_true(read(output, sent, sizeof(sent) - 1) > 0);
    snprintf(expected, sizeof(expected),
             "[shoal] rank 0: the launcher (pid %d) is gone; this rank ends, too\n", launcher);
    assert_string_equal(sent, expected);
    close(output);
}

/* A zombie is gone, too: nobody may ever look at it. */
static void test_a_zombie_is_gone(void **state)
{
    (void)state;
    char name[NAME_BYTES];
    int output, result = 0;
    int launcher = start_launcher(name);
    int rank = start_rank(name, false, &output);
    kill(launcher, SIGKILL);
    assert_int_equal(waitpid(rank, &result, 0), rank);
    assert_int_equal(WEXITSTATUS(result), 1);
    waitpid(launcher, NULL, 0);
    close(output);
}

static void test_the_watch_ends_with_the_group(void **state)
{
    (void)state;
    char name[NAME_BYTES];
    int output;
    int launcher = start_launcher(name);
    int rank = start_rank(name, true, &output);
    struct pollfd closed = {.fd = output, .events = POLLIN};
    stop_launcher(launcher);
    assert_int_equal(poll(&closed, 1, 1000), 0);
    assert_int_equal(waitpid(rank, NULL, WNOHANG), 0);
    kill(rank, SIGKILL);
    waitpid(rank, NULL, 0);
    close(output);
}

static void expect_init(const char *launcher, shoal_status expected, const char *in_message)
{
    shoal_group *group = NULL;
    setenv(SHOALI_LAUNCHER_VARIABLE, launcher, 1);
    shoal_status status = shoal_comm_init(&(shoal_comm_args){.world_size = 1}, &group);
    unsetenv(SHOALI_LAUNCHER_VARIABLE);
    if (status != expected || (in_message && !strstr(shoal_error_message(), in_message)))
        fail_msg("\"%s\": %s \"%s\"", launcher, shoal_status_name(status), shoal_error_message());
    shoal_comm_destroy(group);
}

static void test_variable(void **state)
{
    (void)state;
    char name[NAME_BYTES], other[2 * NAME_BYTES];
    int pid;
    unsigned long space;
    unsigned long long start;
    int launcher = start_launcher(name);
    assert_int_equal(sscanf(name, "%d.%lx.%llu", &pid, &space, &start), 3);
    assert_int_equal(pid, launcher);
    expect_init(name, SHOAL_OK, NULL);
    expect_init("", SHOAL_OK, NULL);
    /* another namespace: its numbers mean nothing here */
    snprintf(other, sizeof(other), "%d.%lx.%llu", pid, space + 1, start);
    expect_init(other, SHOAL_OK, NULL);
    /* the number has passed to another process */
    snprintf(other, sizeof(other), "%d.%lx.%llu", pid, space, start - 1);
    expect_init(other, SHOAL_EINTERRUPTED, "is gone");
    expect_init("nonsense", SHOAL_EINVAL, "SHOAL_LAUNCHER=\"nonsense\"");
    snprintf(other, sizeof(other), "%s.", name);
    expect_init(other, SHOAL_EINVAL, "unset it");
    stop_launcher(launcher);
    expect_init(name, SHOAL_EINTERRUPTED, "start the job again");
}

static void test_no_thread(void **state)
{
    (void)state;
    char name[NAME_BYTES];
    int launcher = start_launcher(name);
    assert_true(shoali_fault_arm("thread"));
    expect_init(name, SHOAL_ENOMEM, "cannot watch the launcher");
    assert_true(shoali_fault_arm("alloc"));
    expect_init(name, SHOAL_ENOMEM, NULL);
    shoali_fault_arm(NULL);
    expect_init(name, SHOAL_OK, NULL);
    stop_launcher(launcher);
}

/* Without a descriptor for /proc a process does not know its start, and gives no name. */
static void test_no_descriptor(void **state)
{
    (void)state;
    char name[NAME_BYTES] = "";
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const bool named = shoali_launcher_name(name, sizeof(name));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_false(named);
    assert_string_equal(name, "");
    assert_true(shoali_launcher_name(name, sizeof(name)));
}

int main(void)
{
    unsetenv("SHOAL_COMM");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_ends_with_its_launcher),
        cmocka_unit_test(test_a_zombie_is_gone),
        cmocka_unit_test(test_the_watch_ends_with_the_group),
        cmocka_unit_test(test_variable),
        cmocka_unit_test(test_no_thread),
        cmocka_unit_test(test_no_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
