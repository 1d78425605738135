/* Hosts on which a launcher starts nothing: what ssh and shells say of them. */
#include "launcher/cluster/front_watch.h"

#include "base/clock.h"
#include "base/test_cmocka.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOSTS = 3 };

struct scene {
    struct shoali_launch_options options;
    struct shoali_front front;
    struct shoali_node node[HOSTS];
    struct shoali_command command;
    struct shoali_child child;
    int64_t received_ns[HOSTS];
    struct shoali_watch watch;
};

/* worker-0 has spoken, the others have 30 s for that. */
static struct shoali_watch *begin(struct scene *scene, enum shoali_remote_launcher launcher)
{
    static const char *const names[HOSTS] = {"worker-0", "worker-1", "worker-2"};
    unsetenv("SLURM_JOB_ID");
    *scene = (struct scene){.options = {.start_timeout = 30}};
    for (int i = 0; i < HOSTS; i++)
        scene->node[i].name = names[i];
    scene->front = (struct shoali_front){.options = &scene->options, .launcher = launcher};
    scene->front.world.node = scene->node;
    scene->front.world.nodes = HOSTS;
    scene->front.command = &scene->command;
    scene->child = (struct shoali_child){.pid = getpid(), .lifeline = -1, .errors = -1};
    scene->watch = (struct shoali_watch){.front = &scene->front,
                                         .child = &scene->child,
                                         .count = 1,
                                         .culprit = -1,
                                         .lost_node = -1,
                                         .received_ns = scene->received_ns};
    scene->received_ns[0] = shoali_now_ns();
    shoali_unstarted_begin(&scene->watch);
    return &scene->watch;
}

/* What the front prints of the host. */
static const char *report(const struct shoali_watch *watch, char text[1024])
{
    int out[2];
    memset(text, 0, 1024);
    assert_int_equal(pipe(out), 0);
    const int kept = dup(STDERR_FILENO);
    dup2(out[1], STDERR_FILENO);
    shoali_unstarted_report(watch);
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(out[1]);
    assert_true(read(out[0], text, 1023) > 0);
    close(out[0]);
    return text;
}

static const struct {
    const char *line;
    int node; /* -1: none is named; -2: the line says nothing of a host that cannot be reached */
} lines[] = {
    {"ssh: connect to host worker-1 port 22: No route to host\r", 1},
    {"ssh: connect to host worker-2 port 2222: Connection refused", 2},
    {"ssh: connect to host 10.0.0.9 port 22: Connection timed out", -1},
    {"ssh: Could not resolve hostname worker-2: Name or service not known", 2},
    {"me@worker-1: Permission denied (publickey,password).", 1},
    {"Host key verification failed.\r", -1},
    {"ssh: connect to host worker-0 port 22: Connection refused", -2}, /* it has spoken */
    {"ssh: connect to host worker-1", -2},
    {"step 1 ssh: connect to host worker-1 port 22: No route to host", -2},
    {"cp: me@x: Permission denied", -2},
};

static void test_unreached(void **state)
{
    struct scene scene;
    char text[1024], wanted[64];
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct shoali_watch *watch = begin(&scene, SHOALI_BY_OPENMPI);
        shoali_unstarted_receive(watch, lines[i].line);
        assert_int_equal(shoali_unstarted_is_reason(watch), lines[i].node > -2);
        if (lines[i].node == -2)
            continue;
        assert_int_equal(watch->unreached_node, lines[i].node);
        snprintf(wanted, sizeof wanted,
                 lines[i].node < 0 ? "a host cannot be reached (%.*s): make `ssh "
                                   : "host worker-%d cannot be reached (",
                 lines[i].node < 0 ? (int)strcspn(lines[i].line, "\r") : lines[i].node,
                 lines[i].line);
        if (!strstr(report(watch, text), wanted) || strchr(text, '\r'))
            fail_msg("of \"%s\" the front says: %s", lines[i].line, text);
    }
}

/* The first complaint counts, until all hosts have spoken. */
static void test_first(void **state)
{
    struct scene scene;
    struct shoali_watch *watch = begin(&scene, SHOALI_BY_SSH);
    (void)state;
    shoali_unstarted_receive(watch, lines[1].line);
    shoali_unstarted_receive(watch, lines[0].line);
    assert_int_equal(watch->unreached_node, 2);
    assert_true(shoali_unstarted_find(watch) < INT64_MAX);
    assert_true(shoali_unstarted_is_reason(watch));
    for (int i = 1; i < HOSTS; i++)
        scene.received_ns[i] = shoali_now_ns();
    assert_true(shoali_unstarted_find(watch) == INT64_MAX);
    assert_false(shoali_unstarted_is_reason(watch));
    shoali_unstarted_receive(watch, lines[0].line);
    assert_false(shoali_unstarted_is_reason(watch));
}

/* An mpirun of Open MPI ends by itself. For one that waits for ever (MPICH) the front ends
 * the job. */
static void test_moment(void **state)
{
    struct scene scene;
    (void)state;
    const int64_t moment_ns = shoali_deadline_ns(INT64_C(20000000000));
    struct shoali_watch *watch = begin(&scene, SHOALI_BY_OPENMPI);
    shoali_unstarted_receive(watch, lines[0].line);
    assert_true(shoali_unstarted_find(watch) > moment_ns);
    watch = begin(&scene, SHOALI_BY_MPICH);
    shoali_unstarted_receive(watch, lines[0].line);
    assert_true(shoali_unstarted_find(watch) < moment_ns);
    watch->start_due_ns = 0;
    assert_true(shoali_unstarted_find(watch) == INT64_MAX);
    assert_true(watch->unstarted);
    assert_int_equal(watch->unstarted_node, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unreached),
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
