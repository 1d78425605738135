/* Worlds, words, variables and letters of jobs on several hosts. What hosts do with them, tests/cluster. */
#include "launcher/cluster.h"
#include "launcher/watch.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct shoali_arena arena;

static int setup(void **state)
{
    (void)state;
    shoali_arena_init(&arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    shoali_arena_fini(&arena);
    return 0;
}

/* The filter's world in words, from a hostfile of 4, 2 and 3 slots. */
static void expect_world(const char *include, const char *exclude, int32_t nodes, int32_t ranks,
                         const char *wanted)
{
    char path[] = "/tmp/shoal_hosts_XXXXXX";
    struct shoali_hosts hosts;
    struct shoali_world world = {0};
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_true(dprintf(file, "worker-0 slots=4\nworker-1 slots=2\nworker-2 slots=3\n") > 0);
    close(file);
    assert_int_equal(shoali_hosts_read(path, &arena, &hosts), SHOAL_OK);
    unlink(path);
    shoal_status status = shoali_slots_select(include, exclude, &hosts);
    if (status == SHOAL_OK)
        status = shoali_world_make(&hosts, nodes, ranks, &arena, &world);
    if (!wanted) {
        assert_int_equal(status, SHOAL_EINVAL);
        return;
    }
    assert_int_equal(status, SHOAL_OK);
    assert_string_equal(shoali_world_print(&world, &arena), wanted);
}

static void test_world(void **state)
{
    (void)state;
    expect_world(NULL, NULL, 0, 0, "worker-0:0,1,2,3@worker-1:0,1@worker-2:0,1,2");
    expect_world(NULL, NULL, 2, 0, "worker-0:0,1,2,3@worker-1:0,1");
    expect_world(NULL, NULL, 0, 1, "worker-0:0@worker-1:0@worker-2:0");
    expect_world(NULL, NULL, 1, 6, "worker-0:0,1,2,3,4,5"); /* whatever its slots, as DeepSpeed */
    expect_world("worker-0:0,2@worker-1", NULL, 0, 0, "worker-0:0,2@worker-1:0,1");
    expect_world("worker-2@worker-1:1", NULL, 0, 0, "worker-1:1@worker-2:0,1,2");
    expect_world(NULL, "worker-0@worker-2:0,1", 0, 0, "worker-1:0,1@worker-2:2");
    expect_world(NULL, "worker-0", 1, 0, "worker-1:0,1");
    expect_world("worker-0:4", NULL, 0, 0, NULL);
    expect_world("worker-3", NULL, 0, 0, NULL);
    expect_world(NULL, NULL, 4, 0, NULL);
}

/* The call for ranks of this machine knows no other. */
static void test_launch_stays_here(void **state)
{
    (void)state;
    char path[] = "/tmp/shoal_hosts_XXXXXX";
    const char *const program[] = {"/bin/true", NULL};
    const shoal_launch_args args = {.program = program, .hostfile = path};
    const int file = mkstemp(path);
    int code = 0;
    assert_true(file >= 0);
    assert_true(dprintf(file, "localhost slots=1\nworker-1 slots=2\n") > 0);
    close(file);
    const shoal_status status = shoal_launch(&args, &code);
    unlink(path);
    assert_int_equal(status, SHOAL_EUNSUPPORTED);
    assert_non_null(strstr(shoal_error_message(), "host worker-1 of "));
    assert_non_null(strstr(shoal_error_message(), "shoal_launch_command"));
}

static void test_world_in_words(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "worker-0", "worker-0:", ":0", "a:0@", "a:0,@b:1",
                                        "a:x", "a:0,1x", "a:-1", "a:0@@b:0", "a:99999999999",
                                        /* {}, [1], {"a": []}, {"a": [-1]}, {"a": 1} */
                                        "e30=", "WzFd", "eyJhIjogW119",
                                        "eyJhIjogWy0xXX0=", "eyJhIjogMX0="};
    struct shoali_world world;
    assert_int_equal(shoali_world_parse("a:0,2@b.c:1@fe80::1:0,3,4", &arena, &world), SHOAL_OK);
    assert_int_equal(world.nodes, 3);
    assert_int_equal(world.ranks, 6);
    assert_string_equal(world.node[2].name, "fe80::1");
    assert_int_equal(world.node[2].slots.value[1], 3);
    assert_int_equal(world.node[0].slots.value[1], 2);
    static const int32_t node_of[] = {0, 0, 1, 2, 2, 2};
    for (int32_t rank = 0; rank < 6; rank++)
        assert_int_equal(shoali_world_node_of(&world, rank), node_of[rank]);
    assert_string_equal(shoali_world_print(&world, &arena), "a:0,2@b.c:1@fe80::1:0,3,4");
    /* DeepSpeed's: {"worker-0": [0, 1], "worker-1": [0, 1]} and {"b": [3], "a": [0]} */
    assert_int_equal(shoali_world_parse("eyJ3b3JrZXItMCI6IFswLCAxXSwgIndvcmtlci0xIjogWzAsIDFdfQ==",
                                        &arena, &world),
                     SHOAL_OK);
    assert_string_equal(shoali_world_print(&world, &arena), "worker-0:0,1@worker-1:0,1");
    assert_int_equal(world.node[1].first_rank, 2);
    assert_int_equal(shoali_world_parse("eyJiIjogWzNdLCAiYSI6IFswXX0=", &arena, &world), SHOAL_OK);
    assert_string_equal(shoali_world_print(&world, &arena), "b:3@a:0");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (shoali_world_parse(wrong[i], &arena, &world) != SHOAL_EINVAL)
            fail_msg("\"%s\" is taken", wrong[i]);
}

/* What the splitter makes of a text, between bars. */
static void expect_split(const char *text, const char *wanted)
{
    struct shoali_words words = {.arena = &arena};
    struct shoali_str got = {0};
    const shoal_status status = shoali_words_split(&words, text, "--launcher_args");
    for (int32_t i = 0; i < words.count; i++)
        shoali_str_append(&got, "%s|", words.value[i]);
    if (wanted) {
        assert_int_equal(status, SHOAL_OK);
        assert_string_equal(shoali_str_get(&got), wanted);
    } else {
        assert_int_equal(status, SHOAL_EINVAL);
    }
    shoali_str_fini(&got);
}

static void test_split(void **state)
{
    (void)state;
    expect_split("", "");
    expect_split("  a\tb\n c ", "a|b|c|");
    expect_split("'a b' \"c d\" e\\ f", "a b|c d|e f|");
    expect_split("x='1 2'\"3 4\" '' \"\"", "x=1 23 4|||");
    expect_split("'\\' \"\\\"\" \\'", "\\|\"|'|");
    expect_split("'a", NULL);
    expect_split("a \"b", NULL);
    expect_split("a\\", NULL);
}

/* A shell reads back what was quoted. */
static void test_quoting(void **state)
{
    (void)state;
    static const char *const words[] = {
        "plain-1.0/x_y@z", "",          "a b",   "it's", "\\",      "'\\''",
        "$HOME `x` *?[~",  "new\nline", "\"!\"", "100%", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct shoali_str line = {0};
        char got[64] = "";
        shoali_str_append(&line, "printf %%s ");
        shoali_shell_quote(&line, words[i]);
        FILE *shell = popen(shoali_str_get(&line), "r");
        assert_non_null(shell);
        got[fread(got, 1, sizeof(got) - 1, shell)] = '\0';
        assert_int_equal(pclose(shell), 0);
        assert_string_equal(got, words[i]);
        shoali_str_fini(&line);
    }
}

static void test_letter(void **state)
{
    (void)state;
    struct shoali_letter sent = {.variables.arena = &arena}, got;
    struct shoali_str text = {0};
    int pair[2];
    char rest[4] = "";
    memset(sent.secret, 'f', sizeof(sent.secret) - 1);
    shoali_words_add(&sent.variables, "A=1 2\n3");
    shoali_words_add(&sent.variables, "B=");
    assert_int_equal(shoali_letter_write(&sent, &text), SHOAL_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(write(pair[0], text.text, text.length), (ssize_t)text.length);
    assert_int_equal(write(pair[0], "..T", 3), 3);
    assert_int_equal(shoali_letter_read(pair[1], &arena, &got), SHOAL_OK);
    assert_string_equal(got.secret, sent.secret);
    assert_int_equal(got.variables.count, 2);
    assert_string_equal(got.variables.value[0], "A=1 2\n3");
    assert_string_equal(got.variables.value[1], "B=");
    assert_int_equal(read(pair[1], rest, 3), 3); /* the lifeline's characters are left */
    assert_string_equal(rest, "..T");
    assert_int_equal(write(pair[0], text.text, text.length - 1), (ssize_t)text.length - 1);
    close(pair[0]);
    assert_int_equal(shoali_letter_read(pair[1], &arena, &got), SHOAL_EINVAL);
    close(pair[1]);
    shoali_str_fini(&text);
    for (int i = 0; i < 700; i++)
        shoali_words_add(&sent.variables, "V%d=%0100d", i, i);
    assert_int_equal(shoali_letter_write(&sent, &text), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "65536"));
    shoali_str_fini(&text);
}

static void test_lifeline(void **state)
{
    (void)state;
    struct shoali_job job = shoali_job_none;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    job.host = "worker-0";
    shoali_lifeline_begin(&job, pair[1]);
    assert_int_equal(shoali_lifeline_hear(&job), 0);
    assert_true(job.lifeline_end_ns == INT64_MAX); /* no characters yet: pdsh sends none */
    assert_int_equal(write(pair[0], "..U.", 4), 4);
    assert_int_equal(shoali_lifeline_hear(&job), 10); /* SIGUSR1 */
    assert_true(job.lifeline_end_ns < INT64_MAX && !job.stop_signal && !job.failed_elsewhere);
    assert_int_equal(write(pair[0], "T", 1), 1);
    assert_int_equal(shoali_lifeline_hear(&job), 0);
    assert_int_equal(job.stop_signal, 15);
    assert_false(job.impatient);
    assert_int_equal(write(pair[0], "I", 1), 1);
    assert_int_equal(shoali_lifeline_hear(&job), 0);
    assert_true(job.impatient && job.stop_signal == 15);
    job.stop_signal = 0;
    close(pair[0]);
    assert_int_equal(shoali_lifeline_hear(&job), 0);
    assert_true(job.stop_signal == 1 && job.lifeline == -1);
    /* silence */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, &pair[0]), 0);
    job.stop_signal = 0;
    shoali_lifeline_begin(&job, pair[1]);
    job.lifeline_end_ns = 1;
    assert_int_equal(shoali_lifeline_hear(&job), 0);
    assert_int_equal(job.stop_signal, 1);
    close(pair[0]);
    close(pair[1]);
}

/* Of hosts that are silent together the one at which nobody answers. Here nobody listens, and says so;
 * 255.255.255.255 is no host's. */
static void test_unreachable(void **state)
{
    static const char *const names[][2] = {{"127.0.0.1", "255.255.255.255"},
                                           {"255.255.255.255", "127.0.0.1"},
                                           {"127.0.0.1", "127.0.0.1"},
                                           {"255.255.255.255", "255.255.255.255"}};
    static const int32_t wanted[] = {1, 0, -1, -1};
    static const int64_t second_ns = 1000000000;
    (void)state;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        struct shoali_node node[2];
        int64_t heard_ns[2] = {shoali_now_ns() - second_ns, shoali_now_ns() - second_ns};
        struct shoali_launch_options options = {.ssh_port = 1};
        struct shoali_front front = {.options = &options, .world = {.node = node, .nodes = 2}};
        const struct shoali_watch watch = {.front = &front, .heard_ns = heard_ns};
        memset(node, 0, sizeof(node));
        node[0].name = names[i][0];
        node[1].name = names[i][1];
        assert_int_equal(shoali_watch_unreachable(&watch, second_ns / 2), wanted[i]);
        heard_ns[wanted[i] >= 0 ? wanted[i] : 0] = shoali_now_ns(); /* it has been heard */
        assert_int_equal(shoali_watch_unreachable(&watch, second_ns / 2), -1);
    }
}

/* What Slurm says of its nodes: the lists of SLURM_JOB_NODELIST; NULL: none. */
static void test_slurm_names(void **state)
{
    (void)state;
    static const char *const lists[][2] = {
        {"node", "node"},
        {"a,b", "a b"},
        {"node[07-10,12],other2", "node07 node08 node09 node10 node12 other2"},
        {"n[3,5]", "n3 n5"},
        {"r[0-1]n[1-2]-x,z", "r0n1-x r0n2-x r1n1-x r1n2-x z"},
        {"w[098-101]", "w098 w099 w100 w101"},
        {"", NULL},
        {"a,", NULL},
        {",a", NULL},
        {"n[", NULL},
        {"n[1", NULL},
        {"n[]", NULL},
        {"n[a]", NULL},
        {"n[3-1]", NULL},
        {"n[1-99999999999]", NULL},
        {"n[0-65535]m[0-65535]", NULL},
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct shoali_words names = {.arena = &arena};
        struct shoali_str text = {0};
        const bool known = shoali_slurm_names(lists[i][0], &names);
        if (known != (lists[i][1] != NULL))
            fail_msg("%s is%s a list", lists[i][0], known ? "" : " not");
        if (!known)
            continue;
        shoali_words_print(&names, &text);
        assert_string_equal(shoali_str_get(&text), lists[i][1]);
        shoali_str_fini(&text);
    }
}

/* Tasks of an allocation's nodes: SLURM_TASKS_PER_NODE where somebody asked for a number. */
static void test_slurm_world(void **state)
{
    (void)state;
    struct shoali_world world;
    shoal_launch_args args = {0};
    setenv("SLURM_JOB_NODELIST", "w[1-4]", 1);
    setenv("SLURM_NNODES", "4", 1);
    setenv("SLURM_TASKS_PER_NODE", "3,1(x2),2", 1);
    unsetenv("SLURM_NTASKS_PER_NODE");
    unsetenv("SLURM_NTASKS");
    assert_int_equal(shoali_slurm_world(&args, &arena, &world), SHOAL_OK);
    assert_true(world.named);
    assert_string_equal(shoali_world_print(&world, &arena), "w1:0@w2:0@w3:0@w4:0");
    setenv("SLURM_NTASKS", "7", 1);
    assert_int_equal(shoali_slurm_world(&args, &arena, &world), SHOAL_OK);
    assert_string_equal(shoali_world_print(&world, &arena), "w1:0,1,2@w2:0@w3:0@w4:0,1");
    args.num_nodes = 2;
    args.ranks = 2;
    assert_int_equal(shoali_slurm_world(&args, &arena, &world), SHOAL_OK);
    assert_string_equal(shoali_world_print(&world, &arena), "w1:0,1@w2:0,1");
    args.num_nodes = 5;
    assert_int_equal(shoali_slurm_world(&args, &arena, &world), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "SLURM_JOB_NODELIST=w[1-4]"));
    unsetenv("SLURM_JOB_NODELIST");
    assert_int_equal(shoali_slurm_world(&args, &arena, &world), SHOAL_OK);
    assert_false(world.named);
    assert_int_equal(world.ranks, 10);
    unsetenv("SLURM_NNODES");
    unsetenv("SLURM_NTASKS");
    unsetenv("SLURM_TASKS_PER_NODE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_world, setup, teardown),
        cmocka_unit_test(test_launch_stays_here),
        cmocka_unit_test_setup_teardown(test_world_in_words, setup, teardown),
        cmocka_unit_test_setup_teardown(test_split, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quoting, setup, teardown),
        cmocka_unit_test_setup_teardown(test_letter, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lifeline, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unreachable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slurm_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slurm_world, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
