#include "base/fault.h"

#include "base/error.h"
#include "base/test_cmocka.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_skip_and_once(void **state)
{
    (void)state;
    assert_true(shoali_fault_arm("send:2,recv"));
    assert_false(shoali_fault("send"));
    assert_true(shoali_fault("recv"));
    assert_false(shoali_fault("recv"));
    assert_false(shoali_fault("send"));
    assert_false(shoali_fault("other"));
    assert_true(shoali_fault("send"));
    assert_false(shoali_fault("send"));
    assert_true(shoali_fault_arm(NULL));
    assert_false(shoali_fault("recv"));
}

static void test_left(void **state)
{
    (void)state;
    assert_true(shoali_fault_arm("send:2,recv"));
    assert_int_equal(shoali_fault_left(), 2);
    assert_false(shoali_fault("send"));
    assert_true(shoali_fault("recv"));
    assert_int_equal(shoali_fault_left(), 1);
    assert_false(shoali_fault("send"));
    assert_int_equal(shoali_fault_left(), 0);
    assert_true(shoali_fault("send"));
    assert_int_equal(shoali_fault_left(), -1);
    assert_true(shoali_fault_arm(NULL));
    assert_int_equal(shoali_fault_left(), -1);
}

static void test_rank(void **state)
{
    (void)state;
    assert_true(shoali_fault_arm("send@1=error"));
    assert_false(shoali_fault("send"));
    shoali_context_get()->rank = 1;
    assert_true(shoali_fault("send"));
    shoali_context_get()->rank = 0;
}

static void test_malformed(void **state)
{
    (void)state;
    static const char *const bad[] = {"a:",
                                      "a:x",
                                      "a@",
                                      "a=",
                                      "a=explode",
                                      ":1",
                                      "a,,b",
                                      "a@1:2",
                                      "=kill",
                                      "a:1x",
                                      "a:99999999999999999999",
                                      "a=killer"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (shoali_fault_arm(bad[i]))
            fail_msg("\"%s\" was accepted", bad[i]);
        assert_false(shoali_fault("a"));
    }
    assert_true(shoali_fault_arm(""));
}

static int status_of_child(const char *spec, int seconds)
{
    pid_t child = fork();
    if (child == 0) {
        if (seconds)
            alarm((unsigned)seconds);
        shoali_fault_arm(spec);
        _exit(shoali_fault("here") ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void test_deadly_actions(void **state)
{
    (void)state;
    int status = status_of_child("here=kill", 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = status_of_child("here=exit", 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    status = status_of_child("here=stop", 1);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
    status = status_of_child("here", 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void *pass_twice(void *arg)
{
    int *fired = arg;
    *fired = shoali_fault("env") * 2;
    *fired += shoali_fault("env");
    return NULL;
}

static void test_environment_arms_each_thread(void **state)
{
    (void)state;
    setenv("SHOAL_FAULT", "env:1", 1);
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        int fired = -1;
        assert_int_equal(pthread_create(&thread, NULL, pass_twice, &fired), 0);
        pthread_join(thread, NULL);
        assert_int_equal(fired, 1);
    }
    unsetenv("SHOAL_FAULT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_skip_and_once),  cmocka_unit_test(test_left),
        cmocka_unit_test(test_rank),           cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_deadly_actions), cmocka_unit_test(test_environment_arms_each_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
