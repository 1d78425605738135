/* Jobs of shell scripts: what they are given, how they end, and that nothing of them stays. */
#include "launcher/run/run.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "base/test_cmocka.h"
#include "comm/folder.h"
#include "shoal/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MILLISECONDS INT64_C(1000000)
/* The promise is a second. The slowest of 20 runs on a busy machine took 0.39 s. */
#define GONE_NS (5000 * MILLISECONDS)
/* For what has no promise: much less than the ranks sleep. The slowest took 1.1 s. */
#define WAIT_NS (15000 * MILLISECONDS)
/* Ends a wait that would last for ever. */
#define PATIENCE_NS (60000 * MILLISECONDS)

static char folder[64];
static char lines[4096]; /* what the launcher said */
static int line_count;

static void sink(void *user, shoal_log_level level, const char *subsystem, int rank,
                 const char *text)
{
    (void)user;
    (void)level;
    (void)rank;
    if (strcmp(subsystem, "launcher") != 0)
        return;
    size_t length = strlen(lines);
    snprintf(lines + length, sizeof(lines) - length, "%s\n", text);
    line_count++;
}

static int setup(void **state)
{
    (void)state;
    unsetenv("MASTER_PORT");
    strcpy(folder, "/tmp/shoal_launch_XXXXXX");
    lines[0] = '\0';
    line_count = 0;
    return mkdtemp(folder) && setenv("D", folder, 1) == 0 &&
                   shoal_log_configure("info", sink, NULL) == SHOAL_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    return rmdir(folder);
}

/* Runs a script on each of `ranks`; $D is the test's folder. */
static int run_script(int32_t ranks, const char *script, int64_t *elapsed_ns)
{
    const char *program[] = {"/bin/sh", "-c", script, "script", NULL};
    shoal_launch_args args = {.program = program, .ranks = ranks, .master_port = SHOAL_ANY_PORT};
    int code = -1;
    int64_t begin = shoali_now_ns();
    shoal_status status = shoal_launch(&args, &code);
    if (elapsed_ns)
        *elapsed_ns = shoali_now_ns() - begin;
    if (status < 0)
        fail_msg("%s", shoal_error_message());
    return code;
}

static char *read_text(const char *name)
{
    static char text[4096];
    char path[512], *data = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (shoali_read_file(path, &data, &bytes) < 0)
        fail_msg("%s", shoal_error_message());
    snprintf(text, sizeof(text), "%s", data);
    free(data);
    return text;
}

/* A process that is gone, or a zombie that its parent has not looked at. */
static bool is_gone(int pid)
{
    char path[64], *data = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (shoali_read_file(path, &data, &bytes) < 0)
        return true;
    const char *paren = strrchr(data, ')');
    bool zombie = !paren || paren[2] == 'Z' || paren[2] == 'X';
    free(data);
    return zombie;
}

/* All pids written to the file "pids", one per line, are gone. A killed process that is no child of
 * the launcher may have given back all it had and still wait for a core to become a zombie on. */
static void assert_pids_gone(int expected)
{
    int count = 0;
    const int64_t deadline = shoali_deadline_ns(PATIENCE_NS);
    for (char *at = read_text("pids"); *at; at += strcspn(at, "\n") + 1, count++) {
        while (!is_gone(atoi(at)) && !shoali_deadline_passed(deadline))
            usleep(1000);
        if (!is_gone(atoi(at)))
            fail_msg("process %d is still there", atoi(at));
    }
    assert_int_equal(count, expected);
}

static void test_environment(void **state)
{
    (void)state;
    unsetenv("SHOAL_COMM");
    int code = run_script(
        3,
        "echo \"$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_SIZE $CROSS_RANK $CROSS_SIZE $MASTER_ADDR "
        "$SHOAL_COMM $1\" >$D/$RANK; test -n \"$SHOAL_JOB_ID\" && test $MASTER_PORT -gt 0",
        NULL);
    assert_int_equal(code, 0);
    assert_string_equal(read_text("0"), "0 0 3 3 0 1 127.0.0.1 shm --local_rank=0\n");
    assert_string_equal(read_text("2"), "2 2 3 3 0 1 127.0.0.1 shm --local_rank=2\n");
    assert_int_equal(line_count, 0);
}

static void test_environment_overrides_inherited(void **state)
{
    (void)state;
    setenv("RANK", "77", 1);
    setenv("SHOAL_COMM", "thread", 1);
    int code = run_script(1, "test \"$RANK $SHOAL_COMM\" = \"0 thread\"", NULL);
    unsetenv("RANK");
    unsetenv("SHOAL_COMM");
    assert_int_equal(code, 0);
}

static void test_exit_code_of_the_failing_rank(void **state)
{
    (void)state;
    int64_t elapsed_ns;
    int code =
        run_script(4, "echo $$ >>$D/pids; test $RANK = 2 && exit 5; exec sleep 100", &elapsed_ns);
    assert_int_equal(code, 5);
    assert_int_equal(line_count, 2);
    assert_non_null(strstr(lines, "rank 2 (pid "));
    assert_non_null(strstr(lines, "exited with code 5; stopping the other 3\n"));
    assert_non_null(strstr(lines, "what to do: see its output; if it does not know the argument "));
    assert_non_null(strstr(lines, "--no_local_rank"));
    assert_true(elapsed_ns < GONE_NS);
}

static void test_killed_rank(void **state)
{
    (void)state;
    int64_t elapsed_ns;
    int code = run_script(2, "echo $$ >>$D/pids; test $RANK = 1 && kill -9 $$; exec sleep 100",
                          &elapsed_ns);
    assert_int_equal(code, 128 + 9);
    assert_int_equal(line_count, 1);
    assert_non_null(strstr(lines, "rank 1 (pid "));
    assert_non_null(strstr(lines, "was killed by signal 9 (Killed); stopping the other 1\n"));
    assert_true(elapsed_ns < GONE_NS);
}

static void test_only_rank_killed(void **state)
{
    (void)state;
    assert_int_equal(run_script(1, "kill -6 $$", NULL), 128 + 6);
    assert_non_null(strstr(lines, "signal 6 (Aborted); no other rank was running\n"));
}

/* Until process $pid has ended: the launcher leaves it a zombie. Without processes of its own, so
 * that the next command follows at once. */
#define AWAIT_END \
    "end=; until test \"$end\" = Z; do read number name end rest </proc/$pid/stat; done; "

static void test_one_that_left_well_is_no_other(void **state)
{
    (void)state;
    int code = run_script(3,
                          "case $RANK in 0) echo $$ >$D/0; exit 0;; "
                          "1) while ! test -s $D/0; do sleep 0.01; done; read pid <$D/0; " AWAIT_END
                          "exit 9;; esac; exec sleep 100",
                          NULL);
    assert_int_equal(code, 9);
    assert_non_null(strstr(lines, "rank 1 "));
    assert_non_null(strstr(lines, "stopping the other 1\n"));
}

/* Ranks that ignore SIGTERM, their children, and a child that left the process group. */
static void test_stubborn_ranks_and_their_children(void **state)
{
    (void)state;
    int64_t elapsed_ns;
    int code = run_script(2,
                          "trap '' TERM; sleep 100 & echo $! >>$D/pids; "
                          "setsid sleep 100 & echo $! >>$D/pids; echo $$ >>$D/pids; "
                          "if test $RANK = 1; then while test $(wc -l <$D/pids) -lt 6; "
                          "do sleep 0.01; done; exit 3; fi; wait",
                          &elapsed_ns);
    assert_int_equal(code, 3);
    assert_pids_gone(6);
    assert_true(elapsed_ns < GONE_NS);
}

/* Rank 0 leaves as soon as rank 1 is deaf to SIGTERM; rank 1 dies as soon as rank 0 has left. */
#define FIRST_RANK_0                                                         \
    "if test $RANK = 0; then while ! test -e $D/deaf; do sleep 0.01; done; " \
    "echo $$ >$D/0; "
#define THEN_RANK_1                                                                             \
    "trap '' TERM; echo >$D/deaf; while ! test -s $D/0; do :; done; read pid <$D/0; " AWAIT_END \
    "kill -11 $$"

/* Rank 0 learns of rank 1's death and leaves with 1 before the launcher sees rank 1 die. */
static void test_echo_does_not_hide_the_cause(void **state)
{
    (void)state;
    int code = run_script(2, FIRST_RANK_0 "exit 1; fi; " THEN_RANK_1, NULL);
    assert_int_equal(code, 128 + 11);
    assert_int_equal(line_count, 1);
    assert_non_null(strstr(lines, "rank 1 "));
    assert_non_null(strstr(lines, "stopping the other 1\n"));
}

static void test_first_failure_with_a_code_of_its_own_stays(void **state)
{
    (void)state;
    int code = run_script(2, FIRST_RANK_0 "exit 4; fi; " THEN_RANK_1, NULL);
    assert_int_equal(code, 4);
    assert_non_null(strstr(lines, "rank 0 "));
}

static int count_lines(const char *path)
{
    int count = 0;
    FILE *file = fopen(path, "r");
    for (int message; file && (message = fgetc(file)) != EOF;)
        count += message == '\n';
    if (file)
        fclose(file);
    return count;
}

/* Runs a job of two ranks in a process of its own; returns its pid when the file "pids" has as many
 * lines. */
static int start_job(const char *script, int line_total, int32_t grace_period)
{
    int pid = fork();
    if (pid == 0) {
        const char *program[] = {"/bin/sh", "-c", script, "script", NULL};
        shoal_launch_args args = {.program = program,
                                  .ranks = 2,
                                  .master_port = SHOAL_ANY_PORT,
                                  .grace_period = grace_period};
        int code = 0;
        shoal_status status = shoal_launch(&args, &code);
        _exit(status < 0 ? 99 : code);
    }
    assert_true(pid > 0);
    char path[512];
    snprintf(path, sizeof(path), "%s/pids", folder);
    int64_t deadline = shoali_deadline_ns(PATIENCE_NS);
    while (count_lines(path) < line_total && !shoali_deadline_passed(deadline))
        usleep(2000);
    return pid;
}

static void test_signals_stop_the_job(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        char path[512];
        int result = 0;
        snprintf(path, sizeof(path), "%s/pids", folder);
        unlink(path);
        int pid = start_job("sleep 100 & echo $! >>$D/pids; echo $$ >>$D/pids; wait", 4, 0);
        int64_t begin = shoali_now_ns();
        kill(pid, signals[i]);
        assert_int_equal(waitpid(pid, &result, 0), pid);
        assert_true(shoali_now_ns() - begin < GONE_NS);
        assert_true(WIFEXITED(result));
        assert_int_equal(WEXITSTATUS(result), 128 + signals[i]);
        assert_pids_gone(4);
    }
}

/* Ranks that take longer to save than the usual grace, and a user who does not want to wait. */
static void test_grace_period(void **state)
{
    (void)state;
    for (int hurried = 0; hurried < 2; hurried++) {
        char path[512], script[256];
        int result = 0;
        snprintf(path, sizeof(path), "%s/pids", folder);
        unlink(path);
        snprintf(script, sizeof(script),
                 /* not one long wait: a signal just before it would be taken at its end */
                 "trap 'sleep %d; echo saved >>$D/done.%d; exit 0' TERM; echo $$ >>$D/pids; "
                 "for i in $(seq 2400); do sleep 0.05; done",
                 hurried ? 100 : 1, hurried);
        int pid = start_job(script, 2, 120);
        int64_t begin = shoali_now_ns();
        kill(pid, SIGTERM);
        /* again and again: two that wait to be taken are one */
        while (hurried && waitpid(pid, &result, WNOHANG) == 0) {
            usleep(20000);
            kill(pid, SIGTERM);
        }
        if (!hurried)
            assert_int_equal(waitpid(pid, &result, 0), pid);
        assert_true(shoali_now_ns() - begin < WAIT_NS);
        /* all have saved and left with 0, or did not get to it */
        assert_int_equal(WEXITSTATUS(result), hurried ? 128 + SIGTERM : 0);
        assert_pids_gone(2);
        snprintf(path, sizeof(path), "%s/done.%d", folder, hurried);
        assert_int_equal(count_lines(path), hurried ? 0 : 2);
    }
}

static void test_ranks_die_with_a_killed_launcher(void **state)
{
    (void)state;
    int result = 0;
    int pid = start_job("echo $$ >>$D/pids; exec sleep 100", 2, 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_pids_gone(2);
}

static void test_rank_logs(void **state)
{
    (void)state;
    const char *program[] = {"/bin/sh", "-c", "echo out $RANK; echo error $RANK >&2", NULL};
    shoal_launch_args args = {.program = program,
                              .ranks = 2,
                              .master_port = SHOAL_ANY_PORT,
                              .no_local_rank = 1,
                              .rank_log_folder = folder};
    int code = -1, logs = 0;
    assert_int_equal(shoal_launch(&args, &code), SHOAL_OK);
    assert_int_equal(code, 0);
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        int rank;
        if (entry->d_name[0] == '.')
            continue;
        char expected[64];
        assert_int_equal(sscanf(entry->d_name + 14, "_rank%d.log", &rank), 1);
        snprintf(expected, sizeof(expected), "out %d\nerror %d\n", rank, rank);
        assert_string_equal(read_text(entry->d_name), expected);
        logs++;
    }
    closedir(dir);
    assert_int_equal(logs, 2);
}

static void test_pid_file(void **state)
{
    (void)state;
    char path[512], script[1024];
    setenv("TMPDIR", folder, 1);
    snprintf(path, sizeof(path), "%s/%d.deepspeed", folder, (int)getpid());
    snprintf(script, sizeof(script), "test \"$(cat %s)\" = %d", path, (int)getpid());
    const char *program[] = {"/bin/sh", "-c", script, NULL};
    shoal_launch_args args = {.program = program, .master_port = SHOAL_ANY_PORT, .save_pid = 1};
    int code = -1;
    assert_int_equal(shoal_launch(&args, &code), SHOAL_OK);
    assert_int_equal(code, 0);
    assert_int_equal(access(path, F_OK), -1);
    close(open(path, O_WRONLY | O_CREAT, 0600));
    assert_int_equal(shoal_launch(&args, &code), SHOAL_EINVAL);
    assert_int_equal(access(path, F_OK), 0); /* not ours to remove */
    unsetenv("TMPDIR");
}

static void test_binding(void **state)
{
    (void)state;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    char list[2][8];
    int found = 0;
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET((size_t)core, &allowed))
            snprintf(list[found++], sizeof(list[0]), "%d", core);
    if (found < 2)
        skip();
    char both[24];
    snprintf(both, sizeof(both), "%s,%s", list[0], list[1]);
    const char *program[] = {"/bin/sh", "-c",
                             "grep Cpus_allowed_list /proc/self/status | cut -f2 >$D/$RANK; "
                             "test \"$OMP_NUM_THREADS\" = 1",
                             NULL};
    shoal_launch_args args = {
        .program = program, .ranks = 2, .master_port = SHOAL_ANY_PORT, .core_list = both};
    int code = -1;
    assert_int_equal(shoal_launch(&args, &code), SHOAL_OK);
    assert_int_equal(code, 0);
    for (int rank = 0; rank < 2; rank++) {
        char name[4] = {(char)('0' + rank), '\0'}, expected[24];
        snprintf(expected, sizeof(expected), "%s\n", list[rank]);
        assert_string_equal(read_text(name), expected);
    }
}

static void test_segments_are_removed(void **state)
{
    (void)state;
    char mine[96], stale[96], segments[SHOALI_FOLDER_BYTES];
    struct stat info;
    close(shoali_folder_open());
    assert_int_equal(setenv("S", shoali_folder_path(segments), 1), 0);
    /* A process number that is certainly free: of a child already waited for. */
    int gone = fork();
    if (gone == 0)
        _exit(0);
    waitpid(gone, NULL, 0);
    assert_int_equal(stat("/proc/self/ns/pid", &info), 0);
    snprintf(stale, sizeof(stale), "%s/shoal-%d.%lx.0-arena", segments, gone,
             (unsigned long)info.st_ino);
    snprintf(mine, sizeof(mine), "%s/shoal-%d.%lx.00000001-arena", segments, (int)getpid(),
             (unsigned long)info.st_ino);
    close(open(stale, O_WRONLY | O_CREAT, 0600));
    close(open(mine, O_WRONLY | O_CREAT, 0600));
    int code = run_script(
        2, "echo >$S/shoal-$SHOAL_JOB_ID-arena.$RANK; echo $SHOAL_JOB_ID >$D/id; exit $RANK", NULL);
    bool stale_there = access(stale, F_OK) == 0, mine_there = access(mine, F_OK) == 0;
    unlink(stale);
    unlink(mine);
    assert_int_equal(code, 1);
    assert_false(stale_there);
    assert_true(mine_there); /* its launcher lives */
    char prefix[4096 + 8];
    snprintf(prefix, sizeof(prefix), "shoal-%s", read_text("id"));
    prefix[strcspn(prefix, "\n")] = '\0';
    DIR *dir = opendir(segments);
    struct dirent *entry;
    while ((entry = readdir(dir)))
        assert_int_not_equal(strncmp(entry->d_name, prefix, strlen(prefix)), 0);
    closedir(dir);
}

/* Each job has a secret of its own, the same for its ranks, also inside another job. */
static void test_secrets(void **state)
{
    (void)state;
    char first[4096] = "";
    setenv("SHOAL_SECRET", "that of the job around this one", 1);
    for (int job = 0; job < 2; job++) {
        assert_int_equal(run_script(2, "echo $SHOAL_SECRET >$D/$RANK", NULL), 0);
        assert_string_not_equal(read_text("0"), first);
        snprintf(first, sizeof(first), "%s", read_text("0"));
        assert_int_equal(strspn(first, "0123456789abcdef"), 64);
        assert_string_equal(first + 64, "\n");
        assert_string_equal(read_text("1"), first);
    }
    unsetenv("SHOAL_SECRET");
    assert_null(strstr(lines, "ecret"));
}

static void test_standard_input_is_rank_0s(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "hello\n", 6), 6);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    int code = run_script(2, "cat >$D/$RANK", NULL);
    dup2(saved, STDIN_FILENO);
    close(saved);
    assert_int_equal(code, 0);
    assert_string_equal(read_text("0"), "hello\n");
    assert_string_equal(read_text("1"), "");
}

/* What a program that has children of its own loses nothing of. */
static void test_children_of_the_caller(void **state)
{
    (void)state;
    int own = fork(), result = 0;
    if (own == 0) {
        for (;;)
            pause();
    }
    assert_int_equal(run_script(2, "setsid sleep 100 & echo $! >>$D/pids; exit 0", NULL), 0);
    assert_pids_gone(2);
    assert_non_null(strstr(lines, "2 processes outlived the ranks"));
    assert_int_equal(waitpid(own, &result, WNOHANG), 0);
    kill(own, SIGKILL);
    assert_int_equal(waitpid(own, &result, 0), own);
    assert_int_equal(WTERMSIG(result), SIGKILL);
}

static void expect_refused(const char *name, const char *in_message)
{
    const char *program[] = {name, NULL};
    shoal_launch_args args = {.program = program, .ranks = 2, .master_port = SHOAL_ANY_PORT};
    int code = -1;
    assert_int_equal(shoal_launch(&args, &code), SHOAL_EINVAL);
    if (!strstr(shoal_error_message(), in_message))
        fail_msg("\"%s\" does not say \"%s\"", shoal_error_message(), in_message);
}

static void test_programs_that_cannot_start(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof(path), "%s/train.py", folder);
    FILE *file = fopen(path, "w");
    fputs("print('hello')\n", file);
    fclose(file);
    expect_refused("shoal-no-such-program", "not in PATH");
    expect_refused("", "not in PATH");
    expect_refused("/nowhere/program", "No such file");
    expect_refused(folder, "not a file");
    expect_refused(path, "not executable");
    chmod(path, 0755);
    expect_refused(path, "#!");
}

/* Every allocation in turn fails: an error or a whole job, never a crash or a rank left behind. */
static void test_memory_runs_out(void **state)
{
    (void)state;
    const char *program[] = {"/bin/sh", "-c", "exit 0", NULL};
    shoal_launch_args args = {.program = program, .ranks = 2, .master_port = SHOAL_ANY_PORT};
    int failures = 0;
    for (bool fired = true; fired; failures += fired) {
        char spec[32];
        int code = -1;
        snprintf(spec, sizeof(spec), "alloc:%d", failures);
        assert_true(shoali_fault_arm(spec));
        shoal_status status = shoal_launch(&args, &code);
        fired = shoali_fault_left() < 0;
        shoali_fault_arm(NULL);
        assert_int_equal(status, fired ? SHOAL_ENOMEM : SHOAL_OK);
        assert_true(fired || code == 0);
        errno = 0;
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
    }
}

#define JOB_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_environment),
        JOB_TEST(test_environment_overrides_inherited),
        JOB_TEST(test_exit_code_of_the_failing_rank),
        JOB_TEST(test_killed_rank),
        JOB_TEST(test_only_rank_killed),
        JOB_TEST(test_one_that_left_well_is_no_other),
        JOB_TEST(test_stubborn_ranks_and_their_children),
        JOB_TEST(test_echo_does_not_hide_the_cause),
        JOB_TEST(test_first_failure_with_a_code_of_its_own_stays),
        JOB_TEST(test_signals_stop_the_job),
        JOB_TEST(test_grace_period),
        JOB_TEST(test_ranks_die_with_a_killed_launcher),
        JOB_TEST(test_rank_logs),
        JOB_TEST(test_pid_file),
        JOB_TEST(test_binding),
        JOB_TEST(test_segments_are_removed),
        JOB_TEST(test_secrets),
        JOB_TEST(test_standard_input_is_rank_0s),
        JOB_TEST(test_children_of_the_caller),
        JOB_TEST(test_programs_that_cannot_start),
        JOB_TEST(test_memory_runs_out),
    };
    /* nohup ignores SIGHUP, and a launcher leaves ignored what was ignored */
    for (size_t i = 0; i < 3; i++)
        signal((const int[]){SIGINT, SIGTERM, SIGHUP}[i], SIG_DFL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
