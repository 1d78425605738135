/* When a wait says so, and what a thread says for a call that does not come back. */
#include "base/base.h"
#include "base/test_cmocka.h"
#include "base/waiting.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)

/* Is a line due after so many seconds? */
static bool due_after(struct shoali_waiting *waiting, double seconds, const char *place)
{
    waiting->since_ns = shoali_now_ns() - (int64_t)(seconds * 1e9);
    return shoali_waiting_due(waiting, place);
}

static void test_times(void **state)
{
    struct shoali_waiting waiting = {0};
    (void)state;
    assert_false(shoali_waiting_due(&waiting, NULL));
    assert_true(waiting.since_ns > 0);
    assert_false(due_after(&waiting, 4.5, NULL));
    assert_true(due_after(&waiting, 5.1, NULL));
    assert_false(due_after(&waiting, 6, NULL));
    assert_false(due_after(&waiting, 29.5, NULL));
    assert_true(due_after(&waiting, 30.1, NULL));
    assert_false(due_after(&waiting, 59.5, NULL));
    assert_true(due_after(&waiting, 60.1, NULL));
    assert_false(due_after(&waiting, 119.5, NULL));
    assert_true(due_after(&waiting, 120.1, NULL));
    /* who has not looked for long says it once */
    assert_true(due_after(&waiting, 1000, NULL));
    assert_false(due_after(&waiting, 1001, NULL));
    assert_true(shoali_waiting_seconds(&waiting) > 1000);
}

/* A place at which 20 s are usual speaks after 40 s; others are not touched by that. */
static void test_places(void **state)
{
    struct shoali_waiting first = {0}, second = {0}, other = {0}, quiet = {0};
    (void)state;
    assert_true(due_after(&first, 6, "a.c:1"));
    first.since_ns = shoali_now_ns() - 20 * SECOND_NS;
    shoali_waiting_end(&first, "a.c:1");
    assert_false(due_after(&second, 6, "a.c:1"));
    assert_false(due_after(&second, 39, "a.c:1"));
    assert_true(due_after(&second, 41, "a.c:1"));
    assert_true(due_after(&other, 6, "a.c:2"));
    quiet.since_ns = shoali_now_ns() - 100 * SECOND_NS; /* has said nothing */
    shoali_waiting_end(&quiet, "a.c:3");
    quiet = (struct shoali_waiting){0};
    assert_true(due_after(&quiet, 6, "a.c:3"));
    for (int i = 0; i < 100; i++) { /* more places than are remembered */
        char place[16];
        snprintf(place, sizeof place, "b.c:%d", i);
        first.since_ns = shoali_now_ns() - 20 * SECOND_NS;
        shoali_waiting_end(&first, place);
    }
    second = (struct shoali_waiting){0};
    assert_false(due_after(&second, 6, "b.c:99"));
    second = (struct shoali_waiting){0};
    assert_true(due_after(&second, 6, "a.c:1"));
}

/* The line comes on standard error while the caller does something else. */
static void test_aloud(void **state)
{
    int pipes[2];
    char text[512] = "";
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    const int errors = dup(STDERR_FILENO);
    dup2(pipes[1], STDERR_FILENO);
    struct shoali_waiting_aloud *aloud =
        shoali_waiting_aloud_begin(SHOAL_LOG_WARNING, "test", "looking for a name");
    assert_non_null(aloud);
    assert_int_equal(poll(&(struct pollfd){.fd = pipes[0], .events = POLLIN}, 1, 60000), 1);
    shoali_waiting_aloud_end(aloud);
    dup2(errors, STDERR_FILENO);
    close(errors);
    close(pipes[1]);
    const ssize_t count = read(pipes[0], text, sizeof text - 1);
    close(pipes[0]);
    assert_true(count > 0);
    assert_non_null(strstr(text, "warning: looking for a name: "));
    assert_non_null(strstr(text, " s so far\n"));
    shoali_waiting_aloud_end(NULL);
    /* one that is over at once says nothing */
    aloud = shoali_waiting_aloud_begin(SHOAL_LOG_WARNING, "test", "nothing");
    shoali_waiting_aloud_end(aloud);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times), cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_aloud)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
