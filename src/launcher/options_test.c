/* The command line of `shoal run`. */
#include "launcher/launcher.h"

#include "shoal/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS_MAX = 24 };

static char lines[1024];

static void sink(void *user, shoal_log_level level, const char *subsystem, int rank,
                 const char *text)
{
    (void)user;
    (void)level;
    (void)subsystem;
    (void)rank;
    size_t length = strlen(lines);
    snprintf(lines + length, sizeof(lines) - length, "%s\n", text);
}

/* Splits at spaces and runs; a free port unless the line says otherwise. */
static shoal_status command(const char *line, int *exit_code, char **help)
{
    static char copy[512];
    char port[] = "--master_port=0", name[] = "run";
    char *words[WORDS_MAX] = {name, port};
    int count = strstr(line, "--master_port") ? 1 : 2;
    snprintf(copy, sizeof(copy), "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        assert_true(count < WORDS_MAX - 1);
        words[count++] = word;
    }
    words[count] = NULL;
    lines[0] = '\0';
    assert_int_equal(shoal_log_configure("info", sink, NULL), SHOAL_OK);
    return shoal_launch_command(count, words, exit_code, help);
}

static void expect_exit(const char *line, int expected)
{
    int code = -1;
    char *help = NULL;
    if (command(line, &code, &help) < 0)
        fail_msg("%s: %s", line, shoal_error_message());
    assert_null(help);
    assert_int_equal(code, expected);
}

static void expect_refused(const char *line, shoal_status expected, const char *in_message)
{
    int code = -1;
    char *help = NULL;
    shoal_status status = command(line, &code, &help);
    if (status != expected || !strstr(shoal_error_message(), in_message))
        fail_msg("%s: %s \"%s\"", line, shoal_status_name(status), shoal_error_message());
    assert_int_equal(shoal_status_exit_code(status), 2);
}

static void test_flags(void **state)
{
    (void)state;
    unsetenv("KMP_AFFINITY");
    expect_exit("/bin/true", 0);
    expect_exit("--num_gpus 2 /bin/true", 0);
    expect_exit("--num_accelerators=2 --no_local_rank /usr/bin/test 1 = 1", 0);
    expect_exit("--include localhost:0 --num_nodes -1 /bin/true", 0);
    expect_exit("-i localhost:0 /bin/true", 0);
    expect_exit("--num_nodes 1 --bind_cores_to_rank /bin/true", 0);
    expect_exit("--hostfile /nowhere/hostfile /bin/true", 0);
    assert_non_null(strstr(lines, "/nowhere/hostfile"));
}

/* What follows the program is the program's, whatever it looks like. */
static void test_arguments_are_the_programs(void **state)
{
    (void)state;
    expect_exit("--no_local_rank /usr/bin/test --num_gpus = --num_gpus", 0);
    expect_exit("--no_local_rank /usr/bin/test -q = --help", 1);
}

static void test_quiet(void **state)
{
    (void)state;
    expect_exit("-q --hostfile /nowhere/hostfile /bin/true", 0);
    assert_string_equal(lines, "");
    expect_exit("--log_level error --hostfile /nowhere/hostfile /bin/true", 0);
    assert_string_equal(lines, "");
    expect_exit("-q /bin/false", 1); /* the verdict is always shown */
    assert_non_null(strstr(lines, "exited with code 1"));
}

static void test_notices(void **state)
{
    (void)state;
    expect_exit("--no_python /bin/true", 0);
    assert_non_null(strstr(lines, "started directly"));
    expect_exit("--module /bin/true", 0);
    assert_non_null(strstr(lines, "interpreter"));
}

static void test_mistakes(void **state)
{
    (void)state;
    expect_refused("", SHOAL_EINVAL, "no program");
    expect_refused("--num_gpus 2", SHOAL_EINVAL, "no program");
    expect_refused("--num_gpu 2 /bin/true", SHOAL_ECONFIG, "num_gpus");
    expect_refused("--num_gpus x /bin/true", SHOAL_ECONFIG, "num_gpus");
    expect_refused("--num_gpus 0 /bin/true", SHOAL_EINVAL, "at least 1");
    expect_refused("--num_gpus 1 --include localhost:0 /bin/true", SHOAL_EINVAL, "--include");
    expect_refused("--num_nodes 1 --exclude localhost:0 /bin/true", SHOAL_EINVAL, "--exclude");
    expect_refused("--include localhost:0 --exclude localhost:0 /bin/true", SHOAL_EINVAL, "one");
    expect_refused("--master_port 70000 /bin/true", SHOAL_ECONFIG, "master_port");
    expect_refused("--log_level loud /bin/true", SHOAL_ECONFIG, "log_level");
    expect_refused("--bind_core_list 3-1 /bin/true", SHOAL_EINVAL, "ascend");
    expect_refused("--hostfile /etc/passwd /bin/true", SHOAL_EUNSUPPORTED, "not supported yet");
    expect_refused("--num_nodes 2 /bin/true", SHOAL_EUNSUPPORTED, "not supported yet");
    expect_refused("--launcher slurm /bin/true", SHOAL_EUNSUPPORTED, "not supported yet");
    expect_refused("--ssh_port 22 /bin/true", SHOAL_EUNSUPPORTED, "not supported yet");
    expect_refused("--elastic_training /bin/true", SHOAL_EUNSUPPORTED, "not supported yet");
    expect_refused("--enable_each_rank_log /dev/null/x /bin/true", SHOAL_EINVAL, "/dev/null");
}

static void test_help_names_every_flag_that_works(void **state)
{
    (void)state;
    int code = -1;
    char *help = NULL;
    assert_int_equal(command("--num_gpus 2 --help", &code, &help), SHOAL_OK);
    assert_non_null(help);
    for (int32_t i = 0; i < shoali_launch_section.row_count; i++)
        if (shoali_launch_section.rows[i].state != SHOALI_PENDING &&
            !strstr(help, shoali_launch_section.rows[i].key))
            fail_msg("--%s is not in the help text", shoali_launch_section.rows[i].key);
    free(help);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),    cmocka_unit_test(test_arguments_are_the_programs),
        cmocka_unit_test(test_quiet),    cmocka_unit_test(test_notices),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_help_names_every_flag_that_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
