/* Files of jobs of several hosts go when no launcher of the job lives, and not before. */
#include "launcher/run/run.h"

#include "base/test_cmocka.h"
#include "comm/folder.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[SHOALI_FOLDER_BYTES];

static void name_file(const char *id, const char *end, char path[160])
{
    snprintf(path, 160, "%s/shoal-%s-%s", folder, id, end);
}

static bool is_there(const char *id, const char *end)
{
    char path[160];
    name_file(id, end, path);
    return access(path, F_OK) == 0;
}

static void make(const char *id, const char *end)
{
    char path[160];
    name_file(id, end, path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
}

static void test_held_files_stay(void **state)
{
    (void)state;
    char id[40];
    snprintf(id, sizeof(id), "%d.0.00000001", (int)getpid());
    const int held = shoali_job_hold(id), second = shoali_job_hold(id);
    assert_true(held >= 0 && second >= 0);
    make(id, "board.0");
    make(id, "copy.1");
    shoali_stale_segments_unlink();
    assert_true(is_there(id, "board.0") && is_there(id, "copy.1") && is_there(id, "launcher"));
    shoali_job_let_go(held, id);
    shoali_stale_segments_unlink();
    assert_true(is_there(id, "board.0")); /* one of its launchers is left */
    close(second);
    shoali_stale_segments_unlink();
    assert_false(is_there(id, "board.0") || is_there(id, "copy.1") || is_there(id, "launcher"));
}

static void test_the_last_one_clears_up(void **state)
{
    (void)state;
    char id[40];
    snprintf(id, sizeof(id), "%d.0.00000003", (int)getpid());
    const int held = shoali_job_hold(id), second = shoali_job_hold(id);
    make(id, "board.0");
    shoali_job_let_go(held, id);
    assert_true(is_there(id, "board.0"));
    shoali_job_let_go(second, id);
    assert_false(is_there(id, "board.0") || is_there(id, "launcher"));
    shoali_job_let_go(-1, id);
}

/* The guard, which is no program of its own, keeps the file as long as it lives. */
static void test_a_fork_holds_and_a_program_does_not(void **state)
{
    (void)state;
    char id[40];
    int ready[2], end[2], how;
    snprintf(id, sizeof(id), "%d.0.00000002", (int)getpid());
    assert_int_equal(pipe(ready) | pipe(end), 0);
    const int held = shoali_job_hold(id);
    assert_true(held >= 0);
    const pid_t fork_alone = fork();
    if (fork_alone == 0) {
        char byte;
        close(end[1]);
        _exit(write(ready[1], "", 1) == 1 && read(end[0], &byte, 1) == 0 ? 0 : 1);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(held);
    shoali_stale_segments_unlink();
    assert_true(is_there(id, "launcher"));
    close(end[1]);
    assert_int_equal(waitpid(fork_alone, &how, 0), fork_alone);
    assert_int_equal(how, 0);
    const int again = shoali_job_hold(id);
    assert_true(again >= 0);
    const pid_t program = fork();
    if (program == 0) {
        execl("/bin/sleep", "sleep", "100", (char *)NULL);
        _exit(1);
    }
    close(again);
    for (int i = 0; i < 6000 && is_there(id, "launcher"); i++) {
        usleep(10000); /* until the exec has closed its copy */
        shoali_stale_segments_unlink();
    }
    assert_false(is_there(id, "launcher"));
    kill(program, SIGKILL);
    waitpid(program, NULL, 0);
}

int main(void)
{
    shoali_folder_path(folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_files_stay),
        cmocka_unit_test(test_the_last_one_clears_up),
        cmocka_unit_test(test_a_fork_holds_and_a_program_does_not),
    };
    return cmocka_run_group_tests_name("leftovers", tests, NULL, NULL);
}
