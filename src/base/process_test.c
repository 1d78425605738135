/* What is read of processes that the test knows. */
#include "base/process.h"
#include "base/test_cmocka.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <poll.h>

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
    assert_true(shoali_process_is_there(&child));
    again = child;
    again.start++;
    assert_false(shoali_process_is_there(&again));

    kill(pid, SIGKILL);
    if (descriptor >= 0) {
        struct pollfd watched = {.fd = descriptor, .events = POLLIN};
        assert_int_equal(poll(&watched, 1, 60000), 1);
        close(descriptor);
    } else {
        siginfo_t info;
        assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    }
    assert_true(shoali_process_read(pid, &again)); /* a zombie */
    assert_true(shoali_process_has_ended(&again));
    assert_false(shoali_process_is_there(&child));
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

static void fail_again(int signal)
{
    (void)signal;
    raise(SIGABRT);
}

static void come_back(int signal)
{
    (void)signal;
}

/* A child that blocks `mask`, says when it is ready, and hangs in the handlers of what it then
 * gets. */
static int start_hanging(const sigset_t *mask)
{
    int ends[2];
    char letter;
    assert_int_equal(pipe(ends), 0);
    const int pid = fork();
    if (pid == 0) {
        sigaction(SIGBUS, &(struct sigaction){.sa_handler = hang}, NULL);
        sigaction(SIGABRT, &(struct sigaction){.sa_handler = hang}, NULL);
        sigaction(SIGSEGV, &(struct sigaction){.sa_handler = fail_again}, NULL);
        sigaction(SIGFPE, &(struct sigaction){.sa_handler = come_back}, NULL);
        sigprocmask(SIG_SETMASK, mask, NULL);
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

/* What the child's signal makes of it, within a minute; with 0 nothing may come. */
static void expect_crash(const sigset_t *mask, int signal, int expected)
{
    const int pid = start_hanging(mask);
    int found = 0;
    assert_int_equal(shoali_process_crash(pid), 0);
    kill(pid, signal);
    for (int look = 0; look < (expected ? 6000 : 20) && found != expected; look++) {
        usleep(10000);
        found = shoali_process_crash(pid);
    }
    assert_int_equal(found, expected);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(shoali_process_crash(pid), 0);
}

static void test_knows_who_hangs_in_a_handler(void **state)
{
    (void)state;
    sigset_t none, all, shielded;
    sigemptyset(&none);
    sigfillset(&all);
    sigfillset(&shielded); /* as threads of libraries do */
    sigdelset(&shielded, SIGSEGV);
    sigdelset(&shielded, SIGBUS);
    sigdelset(&shielded, SIGFPE);
    sigdelset(&shielded, SIGILL);
    expect_crash(&none, SIGBUS, SIGBUS);
    expect_crash(&none, SIGSEGV, SIGSEGV); /* whose handler fails itself */
    expect_crash(&none, SIGFPE, 0);        /* whose handler comes back */
    expect_crash(&all, SIGUSR1, 0);
    expect_crash(&shielded, SIGUSR1, 0);
    assert_int_equal(shoali_process_crash(getpid()), 0);
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
