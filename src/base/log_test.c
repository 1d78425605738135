#include "base/log.h"
#include "base/test_cmocka.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct seen {
    int count, rank;
    shoal_log_level level;
    char subsystem[32], text[4096];
};

static void remember(void *user, shoal_log_level level, const char *subsystem, int rank,
                     const char *text)
{
    struct seen *seen = user;
    seen->count++;
    seen->rank = rank;
    seen->level = level;
    snprintf(seen->subsystem, sizeof(seen->subsystem), "%s", subsystem);
    snprintf(seen->text, sizeof(seen->text), "%s", text);
}

static int reset_context(void **state)
{
    (void)state;
    shoali_context_get()->logger = NULL;
    shoali_context_get()->rank = 0;
    return 0;
}

static void test_levels_per_subsystem(void **state)
{
    (void)state;
    struct seen seen = {0};
    assert_int_equal(shoal_log_configure("warning,comm=debug,zero=off", remember, &seen), SHOAL_OK);
    SHOALI_INFO("engine", "not shown");
    SHOALI_ERROR("zero", "not shown");
    assert_int_equal(seen.count, 0);
    shoali_context_get()->rank = 3;
    SHOALI_DEBUG("comm", "sent %d bytes\n", 12);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.rank, 3);
    assert_int_equal(seen.level, SHOAL_LOG_DEBUG);
    assert_string_equal(seen.subsystem, "comm");
    assert_string_equal(seen.text, "sent 12 bytes");
    SHOALI_WARN("engine", "shown");
    assert_int_equal(seen.count, 2);
    shoali_log(SHOAL_LOG_TRACE, "comm", "not shown");
    assert_int_equal(seen.count, 2);
}

static void test_long_lines_arrive_whole(void **state)
{
    (void)state;
    struct seen seen = {0};
    assert_int_equal(shoal_log_configure("info", remember, &seen), SHOAL_OK);
    errno = ERANGE;
    SHOALI_WARN("base", "%03000d|", 7);
    assert_int_equal(errno, ERANGE);
    assert_int_equal(strlen(seen.text), 3001);
    assert_int_equal(seen.text[3000], '|');
}

static void test_wrong_words_are_named(void **state)
{
    (void)state;
    struct shoali_logger logger;
    assert_int_equal(shoali_logger_init(&logger, "warning,comm=loud"), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "\"comm=loud\""));
    assert_int_equal(shoali_logger_init(&logger, "=info"), SHOAL_ECONFIG);
    assert_int_equal(shoali_logger_init(&logger, "a_name_that_is_too_long=info"), SHOAL_ECONFIG);
    assert_int_equal(shoali_logger_init(&logger, ""), SHOAL_OK);
    assert_int_equal(logger.level, SHOAL_LOG_INFO);
}

static void test_environment_is_read_without_a_spec(void **state)
{
    (void)state;
    struct shoali_logger logger;
    setenv("SHOAL_LOG", "error,data=trace", 1);
    assert_int_equal(shoali_logger_init(&logger, NULL), SHOAL_OK);
    unsetenv("SHOAL_LOG");
    assert_int_equal(logger.level, SHOAL_LOG_ERROR);
    assert_int_equal(logger.subsystem_count, 1);
    assert_int_equal(logger.subsystem_level[0], SHOAL_LOG_TRACE);
}

static void test_default_sink_writes_lines_to_stderr(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    SHOALI_INFO("base", "hello");
    SHOALI_DEBUG("base", "hidden");
    shoali_context_get()->rank = 2;
    SHOALI_INFO("base", "hidden as well");
    SHOALI_WARN("base", "careful");
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    char text[256];
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, "[shoal] rank 0: hello\n[shoal] rank 2: warning: careful\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_levels_per_subsystem, reset_context),
        cmocka_unit_test_setup(test_long_lines_arrive_whole, reset_context),
        cmocka_unit_test_setup(test_wrong_words_are_named, reset_context),
        cmocka_unit_test_setup(test_environment_is_read_without_a_spec, reset_context),
        cmocka_unit_test_setup(test_default_sink_writes_lines_to_stderr, reset_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
