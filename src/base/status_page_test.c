#include "base/base.h"
#include "base/test_cmocka.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct shoali_status_page page;
static struct shoali_status_page_view view;

static void test_reads_what_was_said(void **state)
{
    (void)state;
    memset(&page, 0, sizeof page);
    assert_false(shoali_status_page_read(&page, &view)); /* not begun */
    shoali_status_page_begin(&page, 3, 8);
    shoali_status_page_say_step(&page, 41);
    shoali_status_page_say_doing(&page, "backward", 2);
    shoali_status_page_count_step(&page, 41, 4096);
    shoali_status_page_count_tokens(&page, 100, 1000);
    shoali_status_page_count_tokens(&page, 100, 1000);
    shoali_status_page_put_text(page.name, SHOALI_STATUS_PAGE_NAME_WORDS, "tp 1, pp 0");
    assert_true(shoali_status_page_read(&page, &view));
    assert_int_equal(view.rank, 3);
    assert_int_equal(view.world, 8);
    assert_int_equal(view.pid, getpid());
    assert_int_equal(view.step, 41);
    assert_int_equal(view.micro, 2);
    assert_int_equal(view.tokens, 200);
    assert_int_equal(view.goal, 1000);
    assert_int_equal(view.memory_bytes, 4096);
    assert_string_equal(view.doing, "backward");
    assert_string_equal(view.name, "tp 1, pp 0");
    assert_int_equal(view.posted, 0);
    assert_int_equal(view.failure, 0);
}

static int32_t post(uint64_t key, const char *here)
{
    return shoali_status_page_post(&page,
                                   &(struct shoali_status_page_post){.key = key,
                                                                     .name = "reduce_scatter",
                                                                     .dtype = "F32",
                                                                     .here = here,
                                                                     .count = (int64_t)key});
}

/* Of a long path the end is kept; of the arrivals the last ones. */
static void test_collectives(void **state)
{
    (void)state;
    char path[200];
    memset(path, 'a', sizeof path);
    strcpy(path + 150, "/src/zero/reduce.c:164");
    memset(&page, 0, sizeof page);
    shoali_status_page_begin(&page, 0, 2);
    for (uint64_t key = 1; key <= SHOALI_STATUS_PAGE_ARRIVALS + 5; key++) {
        const int32_t ticket = post(key, path);
        shoali_status_page_leave(&page, ticket);
    }
    post(1000, path);
    assert_true(shoali_status_page_read(&page, &view));
    assert_int_equal(view.posted, SHOALI_STATUS_PAGE_ARRIVALS + 6);
    assert_int_equal(view.unfinished, 1);
    assert_int_equal(view.count, 1000);
    assert_string_equal(view.collective, "reduce_scatter");
    assert_string_equal(view.dtype, "F32");
    assert_string_equal(view.here, "src/zero/reduce.c:164");
    bool first = false, newest = false;
    for (int i = 0; i < SHOALI_STATUS_PAGE_ARRIVALS; i++) {
        first = first || view.arrival[i].key == 1;
        newest = newest || (view.arrival[i].key == 1000 && view.arrival[i].wall_ns > 0);
    }
    assert_false(first);
    assert_true(newest);
}

/* Who is seen a thousand collectives before another one has some of the same arrivals as that
 * one. */
static void test_arrivals_meet(void **state)
{
    (void)state;
    static struct shoali_status_page_view earlier;
    int32_t shared = 0, recent = 0;
    memset(&page, 0, sizeof page);
    shoali_status_page_begin(&page, 0, 2);
    for (uint64_t key = 1; key <= 4000; key++) {
        shoali_status_page_leave(&page, post(key, "here"));
        for (int32_t i = 0; i < 3; i++) /* messages are no meetings */
            shoali_status_page_leave(&page, post(0, "here"));
        if (key == 3000)
            assert_true(shoali_status_page_read(&page, &earlier));
    }
    assert_true(shoali_status_page_read(&page, &view));
    for (int32_t i = 0; i < SHOALI_STATUS_PAGE_ARRIVALS; i++)
        for (int32_t j = 0; j < SHOALI_STATUS_PAGE_ARRIVALS; j++)
            shared += view.arrival[i].key && view.arrival[i].key == earlier.arrival[j].key;
    for (int32_t i = 0; i < SHOALI_STATUS_PAGE_RING_MOST; i++)
        recent += view.arrival[i].key > 4000 - 2 * SHOALI_STATUS_PAGE_RING_MOST;
    assert_in_range(shared, 2, 8);
    assert_int_equal(recent, SHOALI_STATUS_PAGE_RING_MOST);
}

static void expect_call(const char *here, int64_t unfinished)
{
    assert_true(shoali_status_page_read(&page, &view));
    assert_string_equal(view.here, here);
    assert_int_equal(view.unfinished, unfinished);
}

/* Several are open: the one that is waited in is shown, else the oldest, and one that is over only
 * when all are. */
static void test_which_call(void **state)
{
    (void)state;
    memset(&page, 0, sizeof page);
    shoali_status_page_begin(&page, 0, 2);
    expect_call("", 0);
    const int32_t gather = post(1, "gather.c:1"), save = post(2, "save.c:2");
    expect_call("gather.c:1", 2);
    shoali_status_page_wait_begin(&page, save);
    expect_call("save.c:2", 2);
    shoali_status_page_wait_end(&page);
    expect_call("gather.c:1", 2);
    shoali_status_page_wait_begin(&page, gather);
    shoali_status_page_leave(&page, save);
    expect_call("gather.c:1", 1);
    const int32_t again = post(3, "save.c:3");
    expect_call("gather.c:1", 2);
    shoali_status_page_leave(&page, again);
    shoali_status_page_leave(&page, gather);
    shoali_status_page_wait_end(&page);
    expect_call("save.c:3", 0);
}

/* More than there is room for: counted, and the oldest is still shown. */
static void test_many_calls(void **state)
{
    int32_t ticket[SHOALI_STATUS_PAGE_CALLS + 2];
    (void)state;
    memset(&page, 0, sizeof page);
    shoali_status_page_begin(&page, 0, 2);
    for (int32_t i = 0; i < SHOALI_STATUS_PAGE_CALLS + 2; i++) {
        ticket[i] = post((uint64_t)i + 1, i == 0 ? "first.c:1" : "later.c:1");
        assert_int_equal(ticket[i], i < SHOALI_STATUS_PAGE_CALLS ? i + 1 : 0);
    }
    expect_call("first.c:1", SHOALI_STATUS_PAGE_CALLS + 2);
    for (int32_t i = 0; i < SHOALI_STATUS_PAGE_CALLS + 2; i++)
        shoali_status_page_leave(&page, ticket[i]);
    expect_call("later.c:1", 0);
    assert_int_equal(post(99, "new.c:1"), 1); /* the oldest one's place */
    expect_call("new.c:1", 1);
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, 20000000}, NULL);
}

static void *wait_elsewhere(void *arg)
{
    (void)arg;
    shoali_status_page_wait_begin(&page, 0);
    nap();
    shoali_status_page_wait_end(&page);
    return NULL;
}

/* A wait that is under way counts; one of another thread does not; nor one while files are
 * written. */
static void test_waits(void **state)
{
    (void)state;
    pthread_t thread;
    memset(&page, 0, sizeof page);
    shoali_status_page_begin(&page, 0, 2);
    assert_int_equal(pthread_create(&thread, NULL, wait_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(shoali_status_page_read(&page, &view));
    assert_int_equal(view.wait_ns, 0);
    shoali_status_page_wait_begin(&page, 0);
    nap();
    assert_true(shoali_status_page_read(&page, &view));
    assert_true(view.waits && view.waited_ns >= 20000000 && view.wait_ns >= 20000000);
    shoali_status_page_wait_end(&page);
    assert_true(shoali_status_page_read(&page, &view));
    const int64_t before = view.wait_ns;
    shoali_status_page_io_begin(&page);
    shoali_status_page_wait_begin(&page, 0);
    nap();
    shoali_status_page_wait_end(&page);
    shoali_status_page_io_end(&page);
    assert_true(shoali_status_page_read(&page, &view));
    assert_false(view.waits || view.reads);
    assert_true(view.io_ns >= 20000000);
    assert_true(before >= 20000000 && view.wait_ns == before);
}

/* The first failure stays; the last lines do, oldest first, without what would move a cursor. */
static void test_last_words(void **state)
{
    (void)state;
    char text[32];
    memset(&page, 0, sizeof page);
    shoali_status_page_begin(&page, 0, 1);
    for (int i = 0; i < SHOALI_STATUS_PAGE_LINES + 2; i++) {
        snprintf(text, sizeof text, "line %d\x1b[A", i);
        shoali_status_page_log(&page, text);
    }
    shoali_status_page_fail(&page, SHOAL_EIO, "the disk is full");
    shoali_status_page_fail(&page, SHOAL_EPEER, "rank 1 failed");
    assert_true(shoali_status_page_read(&page, &view));
    assert_string_equal(view.line[0], "line 2 [A");
    assert_string_equal(view.line[SHOALI_STATUS_PAGE_LINES - 1], "line 7 [A");
    assert_int_equal(view.failure, SHOAL_EIO);
    assert_string_equal(view.sentence, "the disk is full");
}

/* Lines of the log of this thread come to its status page. */
/* A folder that a reader would not see as it is makes the rank one that says nothing of stops. */
static void test_stop(void **state)
{
    char path[SHOALI_STATUS_PAGE_SAVE_WORDS * 8 + 2];
    (void)state;
    memset(&page, 0, sizeof page);
    shoali_status_page_begin(&page, 0, 1);
    assert_true(shoali_status_page_read(&page, &view));
    assert_int_equal(view.stop, SHOALI_STOP_UNKNOWN);
    shoali_status_page_say_stop(&page, SHOALI_STOP_SAVES, "a folder");
    assert_true(shoali_status_page_read(&page, &view));
    assert_int_equal(view.stop, SHOALI_STOP_SAVES);
    assert_string_equal(view.save, "a folder");
    shoali_status_page_say_stop(&page, SHOALI_STOP_ENDS, NULL);
    assert_true(shoali_status_page_read(&page, &view));
    assert_int_equal(view.stop, SHOALI_STOP_ENDS);
    assert_string_equal(view.save, "");
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    shoali_status_page_say_stop(&page, SHOALI_STOP_SAVES, path);
    assert_true(shoali_status_page_read(&page, &view));
    assert_int_equal(view.stop, SHOALI_STOP_UNKNOWN);
    assert_string_equal(view.save, "");
    path[sizeof path - 2] = '\0'; /* as long as it may be */
    shoali_status_page_say_stop(&page, SHOALI_STOP_SAVES, path);
    assert_true(shoali_status_page_read(&page, &view));
    assert_string_equal(view.save, path);
    shoali_status_page_say_stop(&page, SHOALI_STOP_SAVES, "a\tb");
    assert_true(shoali_status_page_read(&page, &view));
    assert_int_equal(view.stop, SHOALI_STOP_UNKNOWN);
    shoali_status_page_say_stop(NULL, SHOALI_STOP_SAVES, "x");
}

static void test_log_comes_here(void **state)
{
    (void)state;
    memset(&page, 0, sizeof page);
    shoali_status_page_begin(&page, 0, 1);
    shoali_context_get()->page = &page;
    SHOALI_WARN("test", "said %d", 7);
    shoali_context_get()->page = NULL;
    SHOALI_WARN("test", "said to nobody");
    assert_true(shoali_status_page_read(&page, &view));
    assert_string_equal(view.line[SHOALI_STATUS_PAGE_LINES - 1], "said 7");
    assert_int_equal(view.lines, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_was_said),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_arrivals_meet),
        cmocka_unit_test(test_which_call),
        cmocka_unit_test(test_many_calls),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_log_comes_here),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
