/* The command line of `shoal run`. */
#include "launcher/command/command.h"

#include "base/test_cmocka.h"
#include "shoal/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORDS_MAX = 24 };

static char lines[4096];

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

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0755), 0);
}

/* A script of Python's is started by the python3 of PATH, here one that tells how. */
static void test_python_scripts(void **state)
{
    char folder[] = "/tmp/shoal-python-XXXXXX", path[64], script[64], line[256], old[4096];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(old, sizeof(old), "%s", getenv("PATH") ? getenv("PATH") : "");
    snprintf(path, sizeof(path), "%s/python3", folder);
    write_file(path, "#!/bin/sh\ntest \"$1 $3 $4\" = '-u --local_rank=0 a' && exit 7\nexit 9\n");
    snprintf(script, sizeof(script), "%s/train.py", folder);
    write_file(script, "#!/bin/sh\ntest \"$1 $2\" = '--local_rank=0 a' && exit 8\nexit 9\n");
    setenv("PATH", folder, 1);
    snprintf(line, sizeof(line), "%s a", script);
    expect_exit(line, 7);
    snprintf(line, sizeof(line), "--no_python %s a", script);
    expect_exit(line, 8);
    setenv("PATH", old, 1);
    expect_refused("/nowhere/train.py", SHOAL_EINVAL, "cannot start /nowhere/train.py");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(script), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* The devices are the slots, whatever says which these are; the user's own wish stays where nothing
 * does, and where it hides all devices. */
static void test_devices(void **state)
{
    static const struct {
        const char *given, *flags, *devices;
    } cases[] = {
        {NULL, "", "none"},
        {"2,3", "", "2,3"},
        {NULL, "--num_gpus 3", "0,1,2"},
        {"2,3", "--num_gpus 2", "0,1"},
        {"", "--num_gpus 2", ""},
        {"2,3", "--include localhost:0", "0"},
        {NULL, "--world_info localhost:1,3 --master_port 0", "1,3"},
    };
    char line[256];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].given)
            setenv("CUDA_VISIBLE_DEVICES", cases[i].given, 1);
        snprintf(line, sizeof(line),
                 "%s --no_local_rank /bin/sh -c "
                 "test$IFS\"${CUDA_VISIBLE_DEVICES-none}\"$IFS=$IFS'%s'",
                 cases[i].flags, cases[i].devices);
        expect_exit(line, 0);
        const bool replaced = cases[i].given && *cases[i].given && *cases[i].flags;
        assert_true(replaced == (strstr(lines, "CUDA_VISIBLE_DEVICES=2,3 is replaced by") != NULL));
        unsetenv("CUDA_VISIBLE_DEVICES");
    }
}

/* What scripts of DeepSpeed's users look for. */
static void test_lines_of_processes(void **state)
{
    (void)state;
    expect_exit("--num_gpus 2 /bin/true", 0);
    assert_string_equal(lines, "");
    expect_exit("--log_level info --num_gpus 2 /bin/true a'b", 0);
    static const char *const wanted[] = {
        "WORLD INFO DICT: {'localhost': [0, 1]}\n",
        "nnodes=1, num_local_procs=2, node_rank=0\n",
        "global_rank_mapping=defaultdict(<class 'list'>, {'localhost': [0, 1]})\n",
        "dist_world_size=2\n",
        "Setting CUDA_VISIBLE_DEVICES=0,1\n",
        " spawned with command: ['/bin/true', '--local_rank=0', \"a'b\"]\n",
        " spawned with command: ['/bin/true', '--local_rank=1', \"a'b\"]\n",
        " exits successfully.\n",
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (!strstr(lines, wanted[i]))
            fail_msg("\"%s\" is not in: %s", wanted[i], lines);
    expect_exit("--log_level info --no_local_rank /bin/sh -c exit$IFS'5'", 5);
    assert_non_null(strstr(lines, "Killing subprocess "));
    assert_non_null(
        strstr(lines, "['/bin/sh', '-c', \"exit$IFS'5'\"] exits with return code = 5\n"));
    expect_exit("--log_level info --no_local_rank /bin/sh -c kill$IFS-9$IFS$$", 137);
    assert_non_null(strstr(lines, " exits with return code = -9\n"));
    expect_exit("--log_level warning --num_gpus 2 /bin/true", 0);
    assert_string_equal(lines, "");
}

/* The ranks of the second of two hosts, by DeepSpeed's own words for a node. */
static void test_lines_of_a_node(void **state)
{
    (void)state;
    char path[64];
    setenv("SHOAL_SECRET", "0123456789abcdef0123456789abcdef", 1);
    expect_exit("--world_info worker-0:0,1@worker-1:2,5 --node_rank 1 --master_addr 127.0.0.1 "
                "--master_port 29521 --log_level info /bin/true",
                0);
    assert_non_null(strstr(lines, "WORLD INFO DICT: {'worker-0': [0, 1], 'worker-1': [2, 5]}\n"));
    assert_non_null(strstr(lines, "nnodes=2, num_local_procs=2, node_rank=1\n"));
    assert_non_null(strstr(lines, "{'worker-0': [0, 1], 'worker-1': [2, 3]})\n"));
    assert_non_null(strstr(lines, "dist_world_size=4\nSetting CUDA_VISIBLE_DEVICES=2,5\n"));
    unsetenv("SHOAL_SECRET");
    /* {"localhost": [0, 1]}; the number names the pid file, whose content is the launcher's */
    setenv("TMPDIR", "/tmp", 1);
    snprintf(path, sizeof(path), "/tmp/99%d.deepspeed", (int)getpid());
    char line[256];
    snprintf(line, sizeof(line),
             "--world_info=eyJsb2NhbGhvc3QiOiBbMCwgMV19 --master_port 29521 --save_pid 99%d "
             "--no_local_rank /bin/sh -c test$IFS$(cat$IFS%s)$IFS=$IFS'%d'",
             (int)getpid(), path, (int)getpid());
    expect_exit(line, 0);
    assert_int_not_equal(access(path, F_OK), 0);
    expect_exit("--world_info=eyJsb2NhbGhvc3QiOiBbMCwgMV19 --master_port 29521 --save_pid 0 "
                "/bin/true",
                0);
    expect_refused("--save_pid 17 /bin/true", SHOAL_EINVAL, "only with --world_info");
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
    expect_refused("--hostfile /etc/passwd /bin/true", SHOAL_EINVAL, "/etc/passwd:1: ");
    expect_refused("--num_nodes 0 /bin/true", SHOAL_EINVAL, "at least 1");
    expect_refused("--num_nodes 2 /bin/true", SHOAL_EINVAL, "--hostfile");
    expect_refused("--launcher rsh /bin/true", SHOAL_ECONFIG, "launcher");
    expect_refused("--ssh_port 70000 /bin/true", SHOAL_ECONFIG, "ssh_port");
    expect_refused("--module --no_python some.program", SHOAL_EINVAL, "give one of them");
    expect_refused("--no_ssh /bin/true", SHOAL_EINVAL, "--node_rank");
    expect_refused("--no_ssh --node_rank 1 /bin/true", SHOAL_EINVAL, "has 1 host:");
    expect_refused("--dry-run /bin/true", SHOAL_EINVAL, "--force_multi");
    expect_refused("--force_multi", SHOAL_EINVAL, "no program");
    expect_refused("--min_elastic_nodes 2 /bin/true", SHOAL_EINVAL, "--elastic_training: add it");
    expect_refused("--elastic_training /bin/true", SHOAL_EINVAL, "--deepspeed_config FILE");
    expect_refused("--enable_elastic_training /bin/true", SHOAL_EINVAL, "--deepspeed_config FILE");
    expect_refused("--world_info a:0@b:0 --enable_elastic_training /bin/true", SHOAL_EINVAL,
                   "names 2 hosts");
    expect_refused("--elastic_training --no_ssh /bin/true", SHOAL_EINVAL, "leave --no_ssh out");
    expect_refused("--elastic_training --max_elastic_nodes 0 /bin/true", SHOAL_EINVAL,
                   "at least 1 host");
    expect_refused("--autotuning fast /bin/true", SHOAL_EINVAL, "give tune, to find");
    expect_refused("--autotuning tune /bin/true", SHOAL_EINVAL, "--deepspeed_config FILE");
    expect_refused("--enable_each_rank_log /dev/null/x /bin/true", SHOAL_EINVAL, "/dev/null");
}

static char hostfile[64];

/* Writes a hostfile; returns "--hostfile PATH" and the rest of a command line. */
static const char *with_hosts(const char *text, const char *rest)
{
    static char line[256];
    FILE *file = fopen(hostfile, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    snprintf(line, sizeof(line), "--hostfile %s %s", hostfile, rest);
    return line;
}

/* Is it a job of `ranks` on this machine? */
static void expect_ranks(const char *hosts, const char *flags, int ranks)
{
    char rest[160];
    snprintf(rest, sizeof(rest), "%s --no_local_rank /bin/sh -c exit$IFS$((WORLD_SIZE!=%d))", flags,
             ranks);
    expect_exit(with_hosts(hosts, rest), 0);
}

static void test_hostfile_of_this_machine(void **state)
{
    (void)state;
    char own[300] = "", full[400];
    assert_int_equal(gethostname(own, 256), 0);
    strcat(own, " slots=2");
    snprintf(full, sizeof(full), "%.*s.some.domain slots=2\n", (int)strcspn(own, ". "), own);
    expect_ranks("localhost slots=3\n", "", 3);
    expect_ranks("# all of it\n\n  127.0.0.1\tslots=2 # a comment\r\n", "", 2);
    expect_ranks("127.0.1.1 slots=1", "", 1);
    expect_ranks("::1 slots=2 max_slots=4\n", "", 2);
    expect_ranks(own, "", 2);
    if (!strchr(own, '.'))
        expect_ranks(full, "", 2);
    expect_ranks("localhost slots=4\n", "--num_gpus 1", 1);
    expect_ranks("localhost slots=4\n", "--num_nodes 1", 4);
    expect_ranks("localhost slots=4\n", "--include localhost:1,3", 2);
    expect_ranks("localhost slots=4\n", "--include 127.0.0.1:1", 1);
    expect_ranks("localhost slots=4\n", "--exclude localhost:0", 3);
    expect_exit(with_hosts("localhost slots=4\n",
                           "--include localhost:1,3 --no_local_rank /bin/sh -c "
                           "test$IFS$CUDA_VISIBLE_DEVICES$IFS=$IFS'1,3'"),
                0);
    /* the others are not needed */
    expect_ranks("localhost slots=2\nworker-1 slots=4\n", "--num_nodes 1", 2);
    expect_ranks("worker-1 slots=4\nlocalhost slots=2\n", "--include localhost", 2);
    expect_ranks("worker-1 slots=4\nlocalhost slots=2\n", "--exclude worker-1", 2);
}

static void expect_bad_hosts(const char *hosts, const char *flags, shoal_status expected,
                             const char *in_message)
{
    char rest[160];
    snprintf(rest, sizeof(rest), "%s /bin/true", flags);
    expect_refused(with_hosts(hosts, rest), expected, in_message);
}

static void test_hostfile_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *hosts, *flags;
        shoal_status status;
        const char *message;
    } mistakes[] = {
        {"", "", SHOAL_EINVAL, "names no host"},
        {"# nothing\n", "", SHOAL_EINVAL, "names no host"},
        {"\nlocalhost\n", "", SHOAL_EINVAL, ":2: \"localhost\" is no host"},
        {"localhost slots=0\n", "", SHOAL_EINVAL, ":1: "},
        {"localhost slots=-1\n", "", SHOAL_EINVAL, ":1: "},
        {"localhost slots=4x\n", "", SHOAL_EINVAL, ":1: "},
        {"localhost slots=99999999999999999999\n", "", SHOAL_EINVAL, ":1: "},
        {"localhost slot=4\n", "", SHOAL_EINVAL, "slots=2"},
        {"slots=4\n", "", SHOAL_EINVAL, ":1: "},
        {"localhost slots=1\nlocalhost slots=1\n", "", SHOAL_EINVAL, ":2: host localhost stands"},
        {"localhost slots=1\n127.0.0.1 slots=1\n", "", SHOAL_EINVAL, ":2: 127.0.0.1 is this"},
        {"me@localhost slots=1\nlocalhost slots=1\n", "", SHOAL_EINVAL,
         ":2: host localhost stands"},
        {"@worker-0 slots=1\n", "", SHOAL_EINVAL, ":1: \"@worker-0\" is no host"},
        {"me@ slots=1\n", "", SHOAL_EINVAL, ":1: \"me@\" is no host"},
        {"a,b@worker-0 slots=1\n", "", SHOAL_EINVAL, "user@worker-0 slots=2"},
        {"-oProxyCommand=x slots=1\n", "", SHOAL_EINVAL, ":1: "},
        {"localhost slots=4\n", "--num_nodes 2", SHOAL_EINVAL, "names only 1"},
        {"localhost slots=4\n", "--include localhost:4", SHOAL_EINVAL, "0 to 3"},
        {"localhost slots=4\n", "--exclude localhost", SHOAL_EINVAL, "leaves no slot"},
        {"localhost slots=4\n", "--include worker-1", SHOAL_EINVAL, "\"worker-1\" is not in"},
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++)
        expect_bad_hosts(mistakes[i].hosts, mistakes[i].flags, mistakes[i].status,
                         mistakes[i].message);
    expect_refused("--hostfile /tmp /bin/true", SHOAL_EINVAL, "hostfile /tmp");
    expect_refused("--master_addr me@worker-0 /bin/true", SHOAL_EINVAL,
                   "--master_addr me@worker-0: ");
}

static void test_help_names_every_flag_that_works(void **state)
{
    (void)state;
    int code = -1;
    char *help = NULL;
    assert_int_equal(command("--num_gpus 2 --help-all", &code, &help), SHOAL_OK);
    assert_non_null(help);
    for (int32_t i = 0; i < shoali_launch_section.row_count; i++)
        if (shoali_launch_section.rows[i].state != SHOALI_PENDING &&
            shoali_launch_section.rows[i].state != SHOALI_ELSEWHERE &&
            !(shoali_launch_section.rows[i].flags & SHOALI_OPTION_HIDDEN) &&
            !strstr(help, shoali_launch_section.rows[i].key))
            fail_msg("--%s is not in the help text", shoali_launch_section.rows[i].key);
    free(help);
}

int main(void)
{
    snprintf(hostfile, sizeof(hostfile), "/tmp/shoal_hosts_%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_arguments_are_the_programs),
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_python_scripts),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_lines_of_processes),
        cmocka_unit_test(test_lines_of_a_node),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_help_names_every_flag_that_works),
        cmocka_unit_test(test_hostfile_of_this_machine),
        cmocka_unit_test(test_hostfile_mistakes),
    };
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(hostfile);
    return failures;
}
