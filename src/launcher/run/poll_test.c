/* A rank that hangs: what the launcher says of it, and how soon. */
#include "launcher/run/run.h"

#include "base/clock.h"
#include "base/test_cmocka.h"
#include "shoal/log.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The rank is silent for a second. The slowest of 20 runs on a busy machine took 1.3 s. */
#define LIMIT_NS INT64_C(15000000000)

static char lines[4096]; /* what the launcher said */

static void sink(void *user, shoal_log_level level, const char *subsystem, int rank,
                 const char *text)
{
    const size_t length = strlen(lines);
    (void)user, (void)level, (void)rank;
    if (strcmp(subsystem, "launcher") == 0)
        snprintf(lines + length, sizeof(lines) - length, "%s\n", text);
}

static int setup(void **state)
{
    (void)state;
    unsetenv("MASTER_PORT");
    lines[0] = '\0';
    return shoal_log_configure("info", sink, NULL) == SHOAL_OK ? 0 : -1;
}

static void hang(int signal)
{
    (void)signal;
    for (;;)
        pause();
}

static void *run_on(void *arg)
{
    for (;;)
        usleep(1000);
    return arg;
}

/* A rank whose own handler of SIGSEGV never comes back, while a thread of a library runs on. */
static int hang_in_handler(void)
{
    const struct sigaction action = {.sa_handler = hang};
    pthread_t thread;
    if (sigaction(SIGSEGV, &action, NULL) != 0 || pthread_create(&thread, NULL, run_on, NULL) != 0)
        return 1;
    return pthread_kill(pthread_self(), SIGSEGV);
}

static void test_rank_that_hangs_in_its_handler(void **state)
{
    (void)state;
    const char *program[] = {"/bin/sh", "-c",
                             "test $RANK = 1 && exec /proc/$PPID/exe hang; exec sleep 100", NULL};
    shoal_launch_args args = {
        .program = program, .ranks = 2, .master_port = SHOAL_ANY_PORT, .silent_rank_timeout = 1};
    int code = -1;
    const int64_t begin = shoali_now_ns();
    assert_int_equal(shoal_launch(&args, &code), SHOAL_OK);
    assert_int_equal(code, 128 + SIGSEGV);
    assert_non_null(strstr(lines, "rank 1 (pid "));
    assert_non_null(strstr(lines, "was killed by signal 11 (Segmentation fault) and hung in its "
                                  "handler; stopping the other 1\n"));
    assert_non_null(strstr(lines, "a bug of the program"));
    assert_true(shoali_now_ns() - begin < LIMIT_NS);
}

/* A rank that has no status page, as it has not joined yet, is not waited for: it may fetch what it
 * needs. */
static void test_rank_that_comes_late(void **state)
{
    (void)state;
    const char *program[] = {"/bin/sh", "-c", "test $RANK = 1 && sleep 3; exit 0", NULL};
    shoal_launch_args args = {
        .program = program, .ranks = 2, .master_port = SHOAL_ANY_PORT, .silent_rank_timeout = 1};
    int code = -1;
    assert_int_equal(shoal_launch(&args, &code), SHOAL_OK);
    assert_int_equal(code, 0);
    assert_string_equal(lines, "");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "hang") == 0)
        return hang_in_handler();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_rank_that_hangs_in_its_handler, setup),
        cmocka_unit_test_setup(test_rank_that_comes_late, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
