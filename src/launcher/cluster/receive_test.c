/* Which rank's end the front takes for the reason, of those that hosts tell. */
#include "launcher/cluster/front_watch.h"

#include "base/test_cmocka.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, TEXT_BYTES = 1024 };

struct end {
    int rank, code, signal;
};

/* The rank to blame where the ends come in this order. */
static int blamed(const struct end *end, int count)
{
    static struct shoali_rank_view view[RANKS];
    static struct shoali_status_page *page[RANKS];
    struct shoali_node node = {.name = "worker-0", .slots = {.count = RANKS}};
    struct shoali_front front = {.launcher = SHOALI_BY_OPENMPI};
    struct shoali_child child = {.pid = 77, .lifeline = -1};
    int64_t received_ns[1] = {0};
    char text[TEXT_BYTES] = "";
    size_t used = 0;
    int in[2];
    front.world.node = &node;
    front.world.nodes = 1;
    front.world.ranks = RANKS;
    struct shoali_watch watch = {.front = &front,
                                 .child = &child,
                                 .count = 1,
                                 .culprit = -1,
                                 .lost_node = -1,
                                 .start_due_ns = INT64_MAX,
                                 .view = view,
                                 .received_ns = received_ns,
                                 .copies = {.job = "none", .ranks = RANKS, .page = page}};
    for (int i = 0; i < count; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%cE\t%d\t100\t%d\t%d\tE\tworker-0\n",
                             SHOALI_WIRE_MARK, end[i].rank, end[i].code, end[i].signal);
    assert_int_equal(pipe(in), 0);
    fcntl(in[0], F_SETFL, O_NONBLOCK);
    child.errors = in[0];
    assert_int_equal(write(in[1], text, used), (ssize_t)used);
    close(in[1]);
    shoali_watch_receive(&watch);
    assert_true(watch.has_end);
    assert_int_equal(watch.culprit, 0);
    return watch.end.rank;
}

static void test_first(void **state)
{
    (void)state;
    assert_int_equal(blamed((struct end[]){{2, 0, SIGKILL}, {0, 0, SIGSEGV}}, 2), 2);
    assert_int_equal(blamed((struct end[]){{3, 7, 0}, {0, 0, SIGKILL}}, 2), 3);
    assert_int_equal(blamed((struct end[]){{1, 0, SIGPIPE}}, 1), 1);
    assert_int_equal(blamed((struct end[]){{1, 0, SIGPIPE}, {2, 0, SIGPIPE}}, 2), 1);
}

/* A rank that leaves with code 1 without a word, and one that a broken socket has ended, give way
 * to the rank that was killed. */
static void test_hearsay(void **state)
{
    (void)state;
    assert_int_equal(blamed((struct end[]){{1, 1, 0}, {0, 0, SIGKILL}}, 2), 0);
    assert_int_equal(blamed((struct end[]){{2, 0, SIGPIPE}, {0, 0, SIGKILL}}, 2), 0);
    assert_int_equal(blamed((struct end[]){{2, 0, SIGPIPE}, {0, 7, 0}, {3, 0, SIGSEGV}}, 3), 0);
}

/* srun cancels a step that it cannot start on a node: the node is the reason. */
static void test_launch(void **state)
{
    static const char lines[] =
        "srun: error: Task launch for StepId=1.0 failed on node worker-1: Communication connection "
        "failure\nsrun: error: Application launch failed: Communication connection failure\n"
        "slurmstepd-worker-0: error: *** STEP 1.0 ON worker-0 CANCELLED AT 2026-11-29T11:21 ***\n"
        "srun: error: worker-0: tasks 0-1: Killed\n";
    struct shoali_front front = {.launcher = SHOALI_BY_SLURM};
    struct shoali_child child = {.pid = 77, .lifeline = -1};
    struct shoali_watch watch = {
        .front = &front, .child = &child, .count = 1, .culprit = -1, .lost_node = -1};
    int in[2];
    (void)state;
    assert_int_equal(pipe(in), 0);
    fcntl(in[0], F_SETFL, O_NONBLOCK);
    child.errors = in[0];
    assert_int_equal(write(in[1], lines, sizeof lines - 1), (ssize_t)sizeof lines - 1);
    close(in[1]);
    shoali_watch_receive(&watch);
    assert_string_equal(watch.task, "Slurm cannot start ranks on node worker-1 (Communication "
                                    "connection failure): see `scontrol show node worker-1`");
    assert_int_equal(watch.culprit, 0);
    assert_int_equal(watch.host_code, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_hearsay),
        cmocka_unit_test(test_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
