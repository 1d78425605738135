/* Jobs run in order, their writes are seen, the first failure sticks. */
#include "base/worker.h"

#include "base/fault.h"
#include "base/test_cmocka.h"

#include <string.h>
#include <time.h>

struct note {
    int32_t *list, *count; /* plain: the worker's until the wait */
    int32_t value;
    int64_t sleep_ns;
};

static shoal_status append(const void *job)
{
    const struct note *note = job;
    if (note->sleep_ns > 0)
        nanosleep(&(struct timespec){0, note->sleep_ns}, NULL);
    note->list[(*note->count)++] = note->value;
    return note->value == 13 ? SHOAL_FAIL(SHOAL_EIO, "number %d is unlucky", (int)note->value)
                             : SHOAL_OK;
}

static void test_order(void **state)
{
    enum { JOBS = 1000 };
    int32_t list[JOBS], count = 0;
    uint32_t ticket = 0;
    struct shoali_worker *worker;
    (void)state;
    assert_int_equal(shoali_worker_create(&worker), SHOAL_OK);
    for (int32_t i = 0; i < JOBS; i++) {
        struct note note = {list, &count, 100 + i, i % 200 == 0 ? 1000000 : 0};
        assert_int_equal(shoali_worker_post(worker, append, &note, sizeof note, &ticket), SHOAL_OK);
        assert_int_equal(ticket, i + 1);
        memset(&note, 0xff, sizeof note); /* it was copied */
        if (i % 97 == 0) {
            assert_int_equal(shoali_worker_wait(worker, ticket), SHOAL_OK);
            assert_int_equal(count, i + 1);
        }
    }
    assert_int_equal(shoali_worker_wait(worker, ticket), SHOAL_OK);
    assert_int_equal(count, JOBS);
    for (int32_t i = 0; i < JOBS; i++)
        assert_int_equal(list[i], 100 + i);
    shoali_worker_destroy(worker);
}

static void test_failure_sticks(void **state)
{
    int32_t list[8], count = 0;
    uint32_t ticket = 0, last = 0;
    struct shoali_worker *worker;
    (void)state;
    assert_int_equal(shoali_worker_create(&worker), SHOAL_OK);
    for (int32_t i = 12; i < 16; i++) {
        const struct note note = {list, &count, i, 0};
        const shoal_status status =
            shoali_worker_post(worker, append, &note, sizeof note, i == 12 ? &ticket : &last);
        assert_true(status == SHOAL_OK || (status == SHOAL_EIO && i >= 13));
    }
    assert_int_equal(shoali_worker_wait(worker, last), SHOAL_EIO);
    assert_string_equal(shoal_error_message(), "number 13 is unlucky");
    assert_int_equal(count, 2); /* those after it were dropped */
    shoali_error_clear();
    assert_int_equal(shoali_worker_wait(worker, ticket), SHOAL_EIO);
    assert_string_equal(shoal_error_message(), "number 13 is unlucky");
    shoali_worker_destroy(worker);
}

static void test_destroy_finishes(void **state)
{
    int32_t list[8], count = 0;
    struct shoali_worker *worker;
    (void)state;
    shoali_worker_destroy(NULL);
    assert_int_equal(shoali_worker_create(&worker), SHOAL_OK);
    for (int32_t i = 0; i < 8; i++) {
        const struct note note = {list, &count, i, 500000};
        assert_int_equal(shoali_worker_post(worker, append, &note, sizeof note, NULL), SHOAL_OK);
    }
    shoali_worker_destroy(worker);
    assert_int_equal(count, 8);
}

static void test_no_thread(void **state)
{
    static const char *const points[] = {"thread", "alloc"};
    struct shoali_worker *worker;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_true(shoali_fault_arm(points[i]));
        assert_true(shoali_worker_create(&worker) < 0);
        assert_true(shoali_fault_arm(NULL));
        assert_null(worker);
        assert_non_null(strstr(shoal_error_message(), "cannot"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_failure_sticks),
        cmocka_unit_test(test_destroy_finishes),
        cmocka_unit_test(test_no_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
