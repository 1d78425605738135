#include "base/error.h"
#include "base/test_cmocka.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

static shoal_status inner(void)
{
    return SHOAL_FAIL(SHOAL_EINVAL, "dim %d is %s", 3, "odd: give an even one");
}

static shoal_status middle(void)
{
    shoal_status status;
    SHOAL_TRY(status, inner(), done);
    fail_msg("SHOAL_TRY did not jump");
done:
    return status;
}

static void test_message_and_frames(void **state)
{
    (void)state;
    assert_int_equal(middle(), SHOAL_EINVAL);
    assert_string_equal(shoal_error_message(), "dim 3 is odd: give an even one");
    const char *trace = shoal_error_trace();
    assert_ptr_equal(strstr(trace, "dim 3 is odd: give an even one\n  at src/base/error_test.c:"),
                     trace);
    assert_non_null(strstr(trace, " inner()"));
}

static void test_prefix_keeps_code_and_frames(void **state)
{
    (void)state;
    assert_int_equal(shoali_error_prefix(middle(), "rank %d", 5), SHOAL_EINVAL);
    assert_string_equal(shoal_error_message(), "rank 5: dim 3 is odd: give an even one");
    assert_non_null(strstr(shoal_error_trace(), " inner()"));
}

static void test_new_error_replaces_and_may_quote_the_old(void **state)
{
    (void)state;
    (void)inner();
    SHOAL_FAIL(SHOAL_EPEER, "rank 2 said: %s", shoal_error_message());
    assert_string_equal(shoal_error_message(), "rank 2 said: dim 3 is odd: give an even one");
    assert_null(strstr(shoal_error_trace(), "inner"));
    shoali_error_clear();
    assert_string_equal(shoal_error_message(), "");
    assert_string_equal(shoal_error_trace(), "");
}

static void test_long_texts_are_cut(void **state)
{
    (void)state;
    char text[10000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    SHOAL_FAIL(SHOAL_EIO, "%s", text);
    size_t length = strlen(shoal_error_message());
    assert_in_range(length, 1000, 9000);
    for (int i = 0; i < 1000; i++)
        shoali_error_frame("here.c:1", "call()");
    shoali_error_prefix(SHOAL_EIO, "%s", text);
    assert_int_equal(shoal_error_message()[0], 'x');
    shoali_error_prefix(SHOAL_EIO, "rank 1");
    assert_memory_equal(shoal_error_message(), "rank 1: xx", 10);
    assert_in_range(strlen(shoal_error_trace()), length, 20000);
}

static void *other_thread(void *arg)
{
    *(int *)arg = shoal_error_message()[0] == '\0' && shoali_context_get()->step == -1 &&
                  shoali_context_get()->world == 1 && shoali_context_get()->scope[0] == '\0';
    (void)inner();
    shoali_context_get()->rank = 9;
    return NULL;
}

static void test_errors_and_contexts_are_per_thread(void **state)
{
    (void)state;
    SHOAL_FAIL(SHOAL_EIO, "mine");
    pthread_t thread;
    int fresh = 0;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &fresh), 0);
    pthread_join(thread, NULL);
    assert_true(fresh);
    assert_string_equal(shoal_error_message(), "mine");
    assert_int_equal(shoali_context_get()->rank, 0);
}

/* Places are cut between folders, never inside of a name. */
static void test_places(void **state)
{
    (void)state;
    const char *here = "/any/where/src/engine/engine_transfers.c:109 (gradient)";
    assert_string_equal(shoali_here_end(here, 100), "src/engine/engine_transfers.c:109 (gradient)");
    assert_string_equal(shoali_here_end(here, 44), "engine/engine_transfers.c:109 (gradient)");
    assert_string_equal(shoali_here_end(here, 38), "engine_transfers.c:109 (gradient)");
    assert_string_equal(shoali_here_end(here, 34), "engine_transfers.c:109 (gradient)");
    assert_string_equal(shoali_here_end("src/a/name.c:1 (of a/b)", 12), ":1 (of a/b)");
    assert_string_equal(shoali_here_end("", 12), "");
}

static void test_names_and_exit_codes(void **state)
{
    (void)state;
    for (int i = SHOAL_EEXIST; i <= SHOAL_SKIPPED; i++) {
        const int users = i >= SHOAL_EUNSUPPORTED || i < SHOAL_EINTERNAL;
        assert_memory_equal(shoal_status_name((shoal_status)i), "SHOAL_", 6);
        int expected = i >= 0 ? 0 : users ? 2 : 1;
        assert_int_equal(shoal_status_exit_code((shoal_status)i), expected);
    }
    assert_string_equal(shoal_status_name(SHOAL_EIO), "SHOAL_EIO");
    assert_string_equal(shoal_status_name((shoal_status)-99), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_and_frames),
        cmocka_unit_test(test_prefix_keeps_code_and_frames),
        cmocka_unit_test(test_new_error_replaces_and_may_quote_the_old),
        cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_errors_and_contexts_are_per_thread),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_names_and_exit_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
