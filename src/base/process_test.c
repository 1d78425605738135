/* What is read of processes that the test knows. */
#include "base/process.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <poll.h>

#include <cmocka.h>

/* A child with a name that looks like the end of a name, in a session of its own. */
static int start_child(void)
{
    int ends[2];
    char letter;
    assert_int_equal(pipe(ends), 0);
    int pid = fork();
    if (pid == 0) {
        setsid();
        prctl(PR_SET_NAME, "a) Z 1 (b");
        if (write(ends[1], "r", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(read(ends[0], &letter, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void test_reads_a_child(void **state)
{
    (void)state;
    struct shoali_process self, child, again;
    int pid = start_child();
    int descriptor = shoali_process_open(pid);
    assert_true(shoali_process_read(getpid(), &self));
    assert_true(shoali_process_read(pid, &child));
    assert_int_equal(self.pid, getpid());
    assert_int_equal(self.parent, getppid());
    assert_int_equal(self.group, getpgrp());
    assert_int_equal(self.session, getsid(0));
    assert_true(self.words_end > self.words_begin);
    assert_non_null(strstr((const char *)self.words_begin, "process_test"));
    assert_int_equal(child.parent, getpid());
    assert_int_equal(child.group, pid);
    assert_int_equal(child.session, pid);
    assert_string_equal(child.name, "a) Z 1 (b");
    assert_true(child.start >= self.start);
    assert_false(shoali_process_has_ended(&child));

    kill(pid, SIGKILL);
    if (descriptor >= 0) {
        struct pollfd watched = {.fd = descriptor, .events = POLLIN};
        assert_int_equal(poll(&watched, 1, 20000), 1);
        close(descriptor);
    } else {
        siginfo_t info;
        assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    }
    assert_true(shoali_process_read(pid, &again)); /* a zombie */
    assert_true(shoali_process_has_ended(&again));
    assert_int_equal(again.start, child.start);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(shoali_process_read(pid, &again));
}

static void hang(int signal)
{
    (void)signal;
    for (;;)
        pause();
}

/* A child that says when it is ready, and hangs in the handler of what it then gets. */
static int start_hanging(bool block_all)
{
    int ends[2];
    char letter;
    assert_int_equal(pipe(ends), 0);
    const int pid = fork();
    if (pid == 0) {
        const struct sigaction action = {.sa_handler = hang};
        sigset_t all;
        sigfillset(&all);
        sigaction(SIGBUS, &action, NULL);
        if (block_all)
            sigprocmask(SIG_SETMASK, &all, NULL);
        if (write(ends[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    assert_int_equal(read(ends[0], &letter, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void test_knows_who_hangs_in_a_handler(void **state)
{
    (void)state;
    const int pid = start_hanging(false), blocks = start_hanging(true);
    assert_int_equal(shoali_process_crash(pid), 0);
    kill(pid, SIGBUS);
    int found = 0;
    for (int look = 0; look < 2000 && found == 0; look++) {
        found = shoali_process_crash(pid);
        usleep(10000);
    }
    assert_int_equal(found, SIGBUS);
    assert_int_equal(shoali_process_crash(blocks), 0);
    assert_int_equal(shoali_process_crash(getpid()), 0);
    kill(pid, SIGKILL);
    kill(blocks, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(waitpid(blocks, NULL, 0), blocks);
    assert_int_equal(shoali_process_crash(pid), 0);
}

static void test_namespace_is_the_childs_too(void **state)
{
    (void)state;
    int result = 0;
    const unsigned long ours = shoali_process_namespace();
    assert_int_not_equal(ours, 0);
    int pid = fork();
    if (pid == 0)
        _exit(shoali_process_namespace() == ours ? 0 : 1);
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_a_child),
        cmocka_unit_test(test_knows_who_hangs_in_a_handler),
        cmocka_unit_test(test_namespace_is_the_childs_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
