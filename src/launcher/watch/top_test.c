/* Which jobs `shoal top` finds. What it shows of one that runs, tests/cluster/top_test.sh. */
#include "launcher/watch/watch.h"

#include "base/base.h"
#include "base/test_cmocka.h"
#include "comm/folder.h"
#include "comm/status_page_file.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char job[64], folder[64];

static int setup(void **state)
{
    (void)state;
    static int count;
    snprintf(job, sizeof(job), "%d.%d.0000aaaa", (int)getpid(), count++);
    strcpy(folder, "shoal_top_XXXXXX"); /* of the folder where the test runs */
    setenv("SHOAL_JOB_ID", job, 1);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    shoali_status_page_unlink(job, 0);
    return rmdir(folder);
}

static void expect_found(const char *text, bool found)
{
    char *out = NULL, named[128];
    const shoal_status status = shoal_top(text, 0.01, 1, &out);
    snprintf(named, sizeof(named), "{\"job\": \"%s\", \"ranks\": [{\"rank\": 0, ", job);
    if (found && (status < 0 || strncmp(out, named, strlen(named)) != 0))
        fail_msg("of %s: %s", text, status < 0 ? shoal_error_message() : out);
    if (!found)
        assert_int_equal(status, SHOAL_ENOENT);
    if (!found)
        assert_non_null(strstr(shoal_error_message(), "no running job matches \""));
    free(out);
}

/* This program again as a rank with such a word, in `place`. Returns when it has its status page;
 * `in`: it ends when that is closed. */
static pid_t start_rank(const char *place, const char *word, int *in)
{
    int input[2], output[2];
    char ready = 0, self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(length > 0);
    self[length] = '\0';
    assert_int_equal(pipe2(input, O_CLOEXEC) | pipe2(output, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(input[0], STDIN_FILENO);
        dup2(output[1], STDOUT_FILENO);
        if (chdir(place) == 0)
            execl(self, self, "rank", word, (char *)NULL);
        _exit(127);
    }
    close(input[0]);
    close(output[1]);
    assert_int_equal(read(output[0], &ready, 1), 1);
    close(output[0]);
    *in = input[1];
    return pid;
}

static int be_rank(void)
{
    char end;
    if (!shoali_status_page_open(0, 1) || write(STDOUT_FILENO, "x", 1) != 1)
        return 1;
    return (int)read(STDIN_FILENO, &end, 1); /* its status page stays */
}

static void end_rank(pid_t pid, int in)
{
    int how = -1;
    close(in);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
}

/* A folder of a job: its ranks work there, or a word of theirs means it. */
static void test_folder(void **state)
{
    (void)state;
    char flag[96], whole[4200], here[4096];
    assert_non_null(getcwd(here, sizeof(here)));
    snprintf(whole, sizeof(whole), "%s/%s", here, folder);
    snprintf(flag, sizeof(flag), "--save=%s", folder);
    const struct {
        const char *place, *word;
        bool found;
    } cases[] = {{".", flag, true},       {".", folder, true},   {"/", whole, true},
                 {folder, "none", true},  {".", "none", false},  {"/", flag, false},
                 {".", "--save=", false}, {".", "--save", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int in;
        const pid_t pid = start_rank(cases[i].place, cases[i].word, &in);
        expect_found(folder, cases[i].found);
        expect_found(job, true);
        end_rank(pid, in);
    }
}

/* What a rank has left that is gone is no running job. */
static void test_rank_that_is_gone(void **state)
{
    (void)state;
    int in;
    const pid_t pid = start_rank(".", "none", &in);
    expect_found(job, true);
    end_rank(pid, in);
    expect_found(job, false);
}

static void test_seconds(void **state)
{
    static const double seconds[] = {0, -1, 3600.5, NAN};
    char *out = NULL;
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(shoal_top(job, seconds[i], 1, &out), SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_message(), "give more than 0, at most 3600"));
        assert_null(out);
    }
}

/* As the front does when the job is over. */
static void remove_copy(void)
{
    char name[128];
    const int memory = shoali_folder_open();
    snprintf(name, sizeof(name), "shoal-%s-copy.0", job);
    assert_int_equal(unlinkat(memory, name, 0), 0);
    close(memory);
}

/* A copy is another host's, and so is its process: here nobody has that number. */
static void test_copy(void **state)
{
    (void)state;
    struct shoali_status_page *copy = shoali_status_page_make_copy(job, 0);
    assert_non_null(copy);
    shoali_status_page_begin(copy, 0, 1);
    atomic_store(&copy->pid, INT32_MAX);
    expect_found(job, true);
    shoali_status_page_detach(copy);
    remove_copy();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0)
        return be_rank();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rank_that_is_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_seconds, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
