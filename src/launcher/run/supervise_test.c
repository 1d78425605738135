/* How long ranks are given, by what ends the job. */
#include "launcher/run/run.h"

#include "base/str.h"
#include "base/test_cmocka.h"
#include "base/test_folder.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --grace_period is for a user's signal. After a failure the ranks get the usual moment, as a job
 * whose rank has failed will not save. A rank that is given a minute leaves a file. */
static void test_grace_after_a_failure(void **state)
{
    (void)state;
    for (int deaf = 0; deaf < 2; deaf++) {
        char script[512], path[96];
        int code = -1;
        snprintf(
            script, sizeof(script),
            "if test $RANK = 1; then while ! test -e %s/ready%d; do sleep 0.01; done; exit 3; fi; "
            "trap '%s' TERM; echo >%s/ready%d; sleep 60 & wait; wait; echo >%s/late",
            folder, deaf, deaf ? "" : "sleep 60", folder, deaf, folder);
        const char *program[] = {"/bin/sh", "-c", script, "script", NULL};
        const shoal_launch_args args = {
            .program = program, .ranks = 2, .master_port = SHOAL_ANY_PORT, .grace_period = 120};
        assert_int_equal(shoal_launch(&args, &code), SHOAL_OK);
        assert_int_equal(code, 3);
        snprintf(path, sizeof(path), "%s/late", folder);
        assert_int_equal(access(path, F_OK), -1);
    }
}

static void test_grace_lets_ranks_finish(void **state)
{
    char script[256], path[96], *text = NULL;
    size_t bytes = 0;
    int code = -1;
    (void)state;
    snprintf(script, sizeof(script),
             "cd %s; trap 'echo saved >saved; exit 0' TERM; "
             "if test $RANK = 1; then while ! test -e ready; do sleep 0.01; done; exit 3; fi; "
             "sleep 30 & echo >ready; wait",
             folder);
    const char *program[] = {"/bin/sh", "-c", script, "script", NULL};
    const shoal_launch_args args = {.program = program, .ranks = 2, .master_port = SHOAL_ANY_PORT};
    assert_int_equal(shoal_launch(&args, &code), SHOAL_OK);
    assert_int_equal(code, 3);
    snprintf(path, sizeof(path), "%s/saved", folder);
    assert_int_equal(shoali_read_file(path, &text, &bytes), SHOAL_OK);
    assert_string_equal(text, "saved\n");
    free(text);
}

/* Under nohup: a signal that was ignored ends nothing; another one does. */
static void test_ignored_signals(void **state)
{
    (void)state;
    static const struct {
        int ignored, code;
    } cases[] = {{SIGHUP, 5}, {SIGINT, 128 + SIGHUP}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int result = 0;
        const pid_t pid = fork();
        if (pid == 0) {
            const char *program[] = {"/bin/sh", "-c", "kill -HUP $PPID; sleep 0.5; exit 5", NULL};
            const shoal_launch_args args = {
                .program = program, .ranks = 1, .master_port = SHOAL_ANY_PORT};
            int code = 99;
            signal(SIGHUP, SIG_DFL);
            signal(cases[i].ignored, SIG_IGN);
            const shoal_status status = shoal_launch(&args, &code);
            _exit(status < 0 ? 98 : code);
        }
        assert_int_equal(waitpid(pid, &result, 0), pid);
        assert_true(WIFEXITED(result));
        assert_int_equal(WEXITSTATUS(result), cases[i].code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_grace_after_a_failure),
                                       cmocka_unit_test(test_grace_lets_ranks_finish),
                                       cmocka_unit_test(test_ignored_signals)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
