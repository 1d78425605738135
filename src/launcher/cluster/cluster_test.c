/* Worlds, words, variables and letters of jobs on several hosts. What hosts do with them,
 * tests/cluster. */
#include "launcher/cluster/cluster.h"
#include "launcher/cluster/front_watch.h"

#include "base/clock.h"
#include "base/test_cmocka.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* The user of a line is for ssh; ranks, filters and addresses know the host's name alone. */
static void test_users(void **state)
{
    (void)state;
    char path[] = "/tmp/shoal_hosts_XXXXXX";
    struct shoali_hosts hosts;
    struct shoali_world world;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_true(dprintf(file, "me@worker-0 slots=2\nworker-1 slots=2\na@b.org@worker-2 slots=1\n"
                              "nobody-of-this-machine@localhost slots=1\n") > 0);
    close(file);
    assert_int_equal(shoali_hosts_read(path, &arena, &hosts), SHOAL_OK);
    unlink(path);
    assert_int_equal(shoali_slots_select(NULL, "worker-0:1", &hosts), SHOAL_OK);
    assert_int_equal(shoali_world_make(&hosts, 0, 0, &arena, &world), SHOAL_OK);
    assert_string_equal(shoali_world_print(&world, &arena),
                        "worker-0:0@worker-1:0,1@worker-2:0@localhost:0");
    assert_string_equal(shoali_node_login(&world.node[0]), "me@worker-0");
    assert_string_equal(shoali_node_login(&world.node[1]), "worker-1");
    assert_string_equal(shoali_node_login(&world.node[2]), "a@b.org@worker-2");
    assert_int_equal(world.node[2].line, 3);
    assert_false(world.node[3].here); /* as somebody else: over ssh */
    /* DeepSpeed's {"me@worker-0": [0]} */
    assert_int_equal(shoali_world_parse("eyJtZUB3b3JrZXItMCI6IFswXX0=", &arena, &world), SHOAL_OK);
    assert_string_equal(world.node[0].name, "worker-0");
}

/* A file that Windows has written: blanks, comments and empty lines. */
static void test_line_ends(void **state)
{
    (void)state;
    char path[] = "/tmp/shoal_hosts_XXXXXX";
    struct shoali_hosts hosts;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_true(dprintf(file, "worker-0 slots=2\r\n\r\n# a comment\r\nworker-1 slots=1\r\n"
                              "worker-2\tslots=3 # last\r\nworker-3 slots=1\r") > 0);
    close(file);
    if (shoali_hosts_read(path, &arena, &hosts) < 0)
        fail_msg("%s", shoal_error_message());
    unlink(path);
    static const int32_t slots[] = {2, 1, 3, 1};
    assert_int_equal(hosts.count, 4);
    for (int32_t i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "worker-%d", (int)i);
        assert_string_equal(hosts.host[i].name, name);
        assert_int_equal(hosts.host[i].slots, slots[i]);
    }
}

/* Variables for the other hosts: a name that begins as another's is another, in either order; the
 * last of a name wins, and line ends of Windows are none of a value. */
static void test_exports(void **state)
{
    (void)state;
    char folder[] = "/tmp/shoal_exports_XXXXXX", path[64];
    struct shoali_text_list exports = {.arena = &arena};
    static const char *const wanted[] = {"SHOAL_XY=1", "SHOAL_X=2", "SHOAL_Y=4", "FOO=a b", "FO=6"};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/env", folder);
    static const char text[] =
        "SHOAL_X=2\r\nSHOAL_Y=3\r\n\r\n# none\r\nFOO = a b \r\nFO=6\r\nSHOAL_Y=4\r\n";
    assert_int_equal(shoali_write_file_atomic(path, text, sizeof text - 1), SHOAL_OK);
    setenv("DS_ENV_FILE", path, 1);
    setenv("SHOAL_XY", "1", 1);
    const shoal_status status = shoali_exports_collect("/bin/true", folder, &exports);
    setenv("DS_ENV_FILE", folder, 1); /* cannot be read as a file */
    struct shoali_text_list none = {.arena = &arena};
    assert_int_equal(shoali_exports_collect("/bin/true", folder, &none), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "variables for the other hosts: "));
    unsetenv("DS_ENV_FILE");
    unsetenv("SHOAL_XY");
    unlink(path);
    rmdir(folder);
    if (status < 0)
        fail_msg("%s", shoal_error_message());
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        int found = 0;
        for (int32_t k = 0; k < exports.count; k++)
            found += strcmp(exports.value[k], wanted[i]) == 0;
        if (found != 1)
            fail_msg("%s is there %d times", wanted[i], found);
    }
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
    struct shoali_text_list words = {.arena = &arena};
    struct shoali_str got = {0};
    const shoal_status status = shoali_text_list_split(&words, text, "--launcher_args");
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
    struct shoali_secret_message sent = {.variables.arena = &arena}, got;
    struct shoali_str text = {0};
    int pair[2];
    char rest[4] = "";
    memset(sent.secret, 'f', sizeof(sent.secret) - 1);
    shoali_text_list_add(&sent.variables, "A=1 2\n3");
    shoali_text_list_add(&sent.variables, "B=");
    assert_int_equal(shoali_secret_message_write(&sent, &text), SHOAL_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(write(pair[0], text.text, text.length), (ssize_t)text.length);
    assert_int_equal(write(pair[0], "..T", 3), 3);
    assert_int_equal(shoali_secret_message_read(pair[1], &arena, &got), SHOAL_OK);
    assert_string_equal(got.secret, sent.secret);
    assert_int_equal(got.variables.count, 2);
    assert_string_equal(got.variables.value[0], "A=1 2\n3");
    assert_string_equal(got.variables.value[1], "B=");
    assert_int_equal(read(pair[1], rest, 3), 3); /* the lifeline's characters are left */
    assert_string_equal(rest, "..T");
    assert_int_equal(write(pair[0], text.text, text.length - 1), (ssize_t)text.length - 1);
    close(pair[0]);
    assert_int_equal(shoali_secret_message_read(pair[1], &arena, &got), SHOAL_EINVAL);
    close(pair[1]);
    shoali_str_fini(&text);
    for (int i = 0; i < 700; i++)
        shoali_text_list_add(&sent.variables, "V%d=%0100d", i, i);
    assert_int_equal(shoali_secret_message_write(&sent, &text), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "65536"));
    shoali_str_fini(&text);
    assert_int_equal(shoali_secret_message_take("1.0.of-nobody", 3, &arena, &got), SHOAL_EINVAL);
    assert_non_null(
        strstr(shoal_error_message(), "the secret of job 1.0.of-nobody is not on this"));
}

static void test_lifeline(void **state)
{
    (void)state;
    struct shoali_job job = shoali_job_none;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    job.host = "worker-0";
    shoali_lifeline_begin(&job, pair[1]);
    assert_int_equal(shoali_lifeline_receive(&job), 0);
    assert_true(job.lifeline_end_ns == INT64_MAX); /* no characters yet: pdsh sends none */
    assert_int_equal(write(pair[0], "..U.", 4), 4);
    assert_int_equal(shoali_lifeline_receive(&job), 10); /* SIGUSR1 */
    assert_true(job.lifeline_end_ns < INT64_MAX && !job.stop_signal && !job.failed_elsewhere);
    assert_int_equal(write(pair[0], "T", 1), 1);
    assert_int_equal(shoali_lifeline_receive(&job), 0);
    assert_int_equal(job.stop_signal, 15);
    assert_false(job.impatient);
    assert_int_equal(write(pair[0], "I", 1), 1);
    assert_int_equal(shoali_lifeline_receive(&job), 0);
    assert_true(job.impatient && job.stop_signal == 15);
    job.stop_signal = 0;
    close(pair[0]);
    assert_int_equal(shoali_lifeline_receive(&job), 0);
    assert_true(job.stop_signal == 1 && job.lifeline == -1);
    /* silence */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, &pair[0]), 0);
    job.stop_signal = 0;
    shoali_lifeline_begin(&job, pair[1]);
    job.lifeline_end_ns = 1;
    assert_int_equal(shoali_lifeline_receive(&job), 0);
    assert_int_equal(job.stop_signal, 1);
    close(pair[0]);
    close(pair[1]);
}

/* Of hosts that are silent together the one at which nobody answers. Here nobody listens, and says
 * so;
 * 255.255.255.255 is no host's. */
/* A host of pdsh receives the words by a pipe, those of another job or node not at all. */
static void test_told(void **state)
{
    struct shoali_job job = {.signal_pipe = -1, .lifeline = -1, .culprit = -1, .node_rank = 3};
    struct shoali_launch_options options = {.tell = "I", .job_id = job.id, .node_rank = 3};
    (void)state;
    snprintf(job.id, sizeof(job.id), "%d.0.told", (int)getpid());
    assert_int_equal(shoali_signal_pipe_send(&options), SHOAL_EIO); /* nobody listens */
    shoali_signal_pipe_begin(&job);
    assert_true(job.signal_pipe >= 0);
    job.lifeline_end_ns = INT64_MAX;
    assert_int_equal(shoali_lifeline_receive(&job), 0);
    assert_int_equal(job.stop_signal, 0);
    options.tell = "U";
    assert_int_equal(shoali_signal_pipe_send(&options), SHOAL_OK);
    assert_int_equal(shoali_lifeline_receive(&job), SIGUSR1);
    options.tell = "I";
    options.node_rank = 2;
    assert_int_equal(shoali_signal_pipe_send(&options), SHOAL_EIO);
    options.node_rank = 3;
    assert_int_equal(shoali_signal_pipe_send(&options), SHOAL_OK);
    assert_int_equal(shoali_lifeline_receive(&job), 0);
    assert_int_equal(job.stop_signal, SIGINT);
    assert_false(job.impatient);
    assert_true(job.lifeline_end_ns == INT64_MAX); /* no beat follows */
    options.tell = "T";
    assert_int_equal(shoali_signal_pipe_send(&options), SHOAL_OK);
    assert_int_equal(shoali_lifeline_receive(&job), 0);
    assert_true(job.impatient && job.stop_signal == SIGINT);
    options.tell = "no";
    assert_int_equal(shoali_signal_pipe_send(&options), SHOAL_EINVAL);
    shoali_signal_pipe_end(&job);
    options.tell = "I";
    assert_int_equal(shoali_signal_pipe_send(&options), SHOAL_EIO);
}

/* The parent of a rank that mpirun has started: its own rank is no culprit, the end no loss. */
static void test_words_in(void **state)
{
    int pipes[2];
    struct shoali_job job = {.signal_pipe = -1, .culprit = 0, .of_mpi = true};
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    shoali_lifeline_begin(&job, pipes[0]);
    assert_int_equal(write(pipes[1], "I", 1), 1);
    assert_int_equal(shoali_lifeline_receive(&job), 0);
    assert_int_equal(job.stop_signal, SIGINT);
    assert_true(job.lifeline_end_ns == INT64_MAX && !job.impatient);
    close(pipes[1]);
    job.stop_signal = 0;
    assert_int_equal(shoali_lifeline_receive(&job), 0);
    assert_true(job.lifeline < 0 && job.stop_signal == 0);
    close(pipes[0]);
}

static void test_unreachable(void **state)
{
    static const char *const names[][2] = {{"127.0.0.1", "255.255.255.255"},
                                           {"255.255.255.255", "127.0.0.1"},
                                           {"127.0.0.1", "127.0.0.1"},
                                           {"255.255.255.255", "255.255.255.255"}};
    static const int32_t wanted[] = {1, 0, -1, -1}; /* -1: the first that has been silent */
    /* Who has been silent has been so since the clock began, and the limit is half of that. */
    const int64_t limit_ns = shoali_now_ns() / 2;
    (void)state;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        struct shoali_node node[2];
        int64_t received_ns[2] = {1, 1};
        struct shoali_launch_options options = {.ssh_port = 1};
        struct shoali_front front = {.options = &options, .world = {.node = node, .nodes = 2}};
        struct shoali_watch watch = {.front = &front, .received_ns = received_ns, .lost_node = -1};
        memset(node, 0, sizeof(node));
        node[0].name = names[i][0];
        node[1].name = names[i][1];
        for (int32_t first = 0; first < 2; first++) {
            shoali_watch_lose(&watch, first, limit_ns);
            assert_int_equal(watch.lost_node, wanted[i] >= 0 ? wanted[i] : first);
            assert_true(watch.lost_ns > limit_ns);
        }
        const int32_t received = wanted[i] >= 0 ? wanted[i] : 0;
        received_ns[received] = shoali_now_ns();
        shoali_watch_lose(&watch, 1 - received, limit_ns);
        assert_int_equal(watch.lost_node, 1 - received);
    }
}

/* The front of an mpirun, its one child. */
static struct shoali_watch watch_of(struct shoali_front *front, struct shoali_child *child)
{
    *front = (struct shoali_front){.launcher = SHOALI_BY_OPENMPI};
    *child = (struct shoali_child){.pid = 77, .lifeline = -1};
    return (struct shoali_watch){.front = front,
                                 .child = child,
                                 .count = 1,
                                 .culprit = -1,
                                 .lost_node = -1,
                                 .start_due_ns = INT64_MAX};
}

/* What is passed on of `text`, which comes in pieces of `piece` bytes from an mpirun with number
 * 77. */
static void expect_passed_on(const char *text, size_t piece, bool ends, const char *wanted)
{
    struct shoali_front front;
    struct shoali_child child;
    struct shoali_watch watch = watch_of(&front, &child);
    int in[2], out[2];
    char got[512] = "";
    watch.has_end = ends;
    assert_int_equal(pipe(in) | pipe(out), 0);
    fcntl(in[0], F_SETFL, O_NONBLOCK);
    const int kept = dup(STDERR_FILENO);
    dup2(out[1], STDERR_FILENO);
    child.errors = in[0];
    for (size_t at = 0; text[at]; at += piece) {
        const size_t left = strlen(text + at), bytes = left < piece ? left : piece;
        assert_int_equal(write(in[1], text + at, bytes), (ssize_t)bytes);
        shoali_watch_receive(&watch);
        if (bytes < piece)
            break;
    }
    close(in[1]);
    shoali_watch_receive(&watch);
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(out[1]);
    (void)!read(out[0], got, sizeof(got) - 1);
    close(out[0]);
    if (strcmp(got, wanted) != 0)
        fail_msg("of \"%s\" in pieces of %zu came \"%s\"", text, piece, got);
}

/* What ssh says of a connection through mpirun names the host, and not that of another line. */
static void test_closed_connection(void **state)
{
    static const char lines[] = "A Connection to x closed by remote host.\n"
                                "Connection to worker-7 closed by remote host.\n"
                                "Connection to worker-8 closed by remote host.\n";
    struct shoali_front front;
    struct shoali_child child;
    struct shoali_watch watch = watch_of(&front, &child);
    int in[2];
    (void)state;
    assert_int_equal(pipe(in), 0);
    fcntl(in[0], F_SETFL, O_NONBLOCK);
    child.errors = in[0];
    assert_int_equal(write(in[1], lines, sizeof lines - 1), (ssize_t)sizeof lines - 1);
    close(in[1]);
    shoali_watch_receive(&watch);
    assert_string_equal(watch.unlinked, "worker-7");
}

/* An mpirun that crashes while it ends a job is no news. What ranks say of their crashes is. */
static void test_crash_of_mpirun(void **state)
{
    static const char trace[] = "step 1\n[head:77] *** Process received signal ***\n"
                                "[head:77] Signal: Segmentation fault (11)\n[head:77] [ 0] /lib/x\n"
                                "[head:77] *** End of error message ***\n[head:77] later\nend";
    static const char ranks[] =
        "[w-1:5] *** Process received signal ***\n[ 50%] done\n[shoal] x\n[a";
    static const char left[] = "step 1\n[head:77] later\nend";
    static const size_t pieces[] = {1, 2, 7, 4096};
    (void)state;
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        expect_passed_on(trace, pieces[i], true, left);
        expect_passed_on(trace, pieces[i], false, trace);
        expect_passed_on(ranks, pieces[i], true, ranks);
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
        shoal_launch_args args = {.num_nodes = 1};
        struct shoali_world world;
        struct shoali_str text = {0};
        for (const char *at = lists[i][1]; at && (at = strchr(at, ' ')); at++)
            args.num_nodes++;
        setenv("SLURM_JOB_NODELIST", lists[i][0], 1);
        const bool known = shoali_slurm_world(&args, &arena, &world) == SHOAL_OK;
        if (known != (lists[i][1] != NULL))
            fail_msg("%s is%s a list", lists[i][0], known ? "" : " not");
        if (!known)
            continue;
        for (int32_t node = 0; node < world.nodes; node++)
            shoali_str_append(&text, "%s%s", node > 0 ? " " : "", world.node[node].name);
        assert_string_equal(shoali_str_get(&text), lists[i][1]);
        shoali_str_fini(&text);
        args.num_nodes++; /* the list has no more */
        assert_int_equal(shoali_slurm_world(&args, &arena, &world), SHOAL_EINVAL);
    }
    setenv("SLURM_JOB_NODELIST", "", 1);
    assert_int_equal(shoali_slurm_world(&(shoal_launch_args){0}, &arena, &(struct shoali_world){0}),
                     SHOAL_OK);
    unsetenv("SLURM_JOB_NODELIST");
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
        cmocka_unit_test_setup_teardown(test_users, setup, teardown),
        cmocka_unit_test_setup_teardown(test_line_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exports, setup, teardown),
        cmocka_unit_test_setup_teardown(test_world_in_words, setup, teardown),
        cmocka_unit_test_setup_teardown(test_split, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quoting, setup, teardown),
        cmocka_unit_test_setup_teardown(test_letter, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lifeline, setup, teardown),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_words_in),
        cmocka_unit_test_setup_teardown(test_unreachable, setup, teardown),
        cmocka_unit_test(test_closed_connection),
        cmocka_unit_test(test_crash_of_mpirun),
        cmocka_unit_test_setup_teardown(test_slurm_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slurm_world, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
