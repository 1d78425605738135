/* What a rank inherits. */
#include "base/test_cmocka.h"
#include "launcher/run/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Variables whose names begin as the launcher's do, or go on after them, are the user's. */
static void test_names_that_are_alike(void **state)
{
    (void)state;
    static const char *const names[] = {"R",           "RAN",      "RANKS",     "LOCAL",
                                        "LOCAL_RAN",   "WORLD",    "WORLD_SIZ", "WORLD_SIZE_2",
                                        "MASTER",      "MASTER_",  "SHOAL",     "SHOAL_JOB",
                                        "SHOAL_JOB_I", "SHOAL_COM"};
    char script[1024] = "test \"$RANK $WORLD_SIZE\" = '1 2' || test \"$RANK $WORLD_SIZE\" = '0 2' "
                        "|| exit 9";
    int code = -1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t length = strlen(script);
        snprintf(script + length, sizeof(script) - length, "; test \"$%s\" = mine || exit %d",
                 names[i], 20 + (int)i);
        setenv(names[i], "mine", 1);
    }
    setenv("RANK", "77", 1);
    const char *program[] = {"/bin/sh", "-c", script, "script", NULL};
    const shoal_launch_args args = {.program = program, .ranks = 2, .master_port = SHOAL_ANY_PORT};
    const shoal_status status = shoal_launch(&args, &code);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    unsetenv("RANK");
    assert_int_equal(status, SHOAL_OK);
    if (code >= 20)
        fail_msg("the variable %s was lost", names[code - 20]);
    assert_int_equal(code, 0);
}

/* The lines of a DLTS pod's file that are passed on, and no others. */
static void test_variables_of_a_pod(void **state)
{
    static const char text[] =
        "export PATH=/bad\n# export FC_TASK_INDEX=9\n"
        "export FC_TASKROLE_NAME=worker\r\nexport FC_TASKROLE_NAMES=x\n"
        "export  FC_TASK_INDEX=3 # of 4\nFC_TASK_INDEX=8\nexport FC_TASK_INDEX";
    char path[] = "/tmp/shoal-pod-XXXXXX";
    struct shoali_arena arena;
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    shoali_arena_init(&arena);
    char **list = shoali_pod_variables(path, &arena);
    assert_non_null(list);
    assert_string_equal(list[0], "FC_TASKROLE_NAME=worker");
    assert_string_equal(list[1], "FC_TASK_INDEX=3");
    assert_null(list[2]);
    unlink(path);
    list = shoali_pod_variables(path, &arena);
    assert_non_null(list);
    assert_null(list[0]);
    shoali_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_that_are_alike),
                                       cmocka_unit_test(test_variables_of_a_pod)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
