/* A thread's signals, and those of who started it. */
#include "base/test_cmocka.h"
#include "base/thread.h"

#include <signal.h>
#include <stdint.h>

static void *read_mask(void *mask)
{
    return pthread_sigmask(SIG_BLOCK, NULL, mask) == 0 ? mask : NULL;
}

static void test_no_signals(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGPIPE, SIGSEGV, SIGFPE};
    sigset_t before, inside, after;
    pthread_t thread;
    void *result;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(shoali_thread_start(&thread, read_mask, &inside), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &inside);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    assert_int_equal(sigismember(&after, SIGUSR2), 1);
    assert_int_equal(sigismember(&inside, SIGUSR2), 1);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        assert_int_equal(sigismember(&inside, signals[i]), 1);
        assert_int_equal(sigismember(&after, signals[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_signals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
