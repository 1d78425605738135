#include "launcher/launcher.h"
#include "launcher/ranks.h"

#include "base/base.h"
#include "comm/board_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3 };
static struct shoali_rank_view view[RANKS], copy[RANKS];

/* Ranks that meet 10 times, 100 ms apart; rank `slow` comes late each time. */
static void make_views(int32_t slow, int64_t late_ns)
{
    memset(view, 0, sizeof view);
    for (int32_t r = 0; r < RANKS; r++) {
        struct shoali_board_view *board = &view[r].board;
        view[r].known = true;
        board->rank = r;
        board->world = RANKS;
        board->posted = 10;
        snprintf(board->host, sizeof board->host, "host-%d", (int)r);
        for (int i = 0; i < 10; i++) {
            board->arrival[i].key = (uint64_t)(100 + i);
            board->arrival[i].wall_ns =
                INT64_C(1000000000000) + i * INT64_C(100000000) + (r == slow ? late_ns : r * 1000);
        }
    }
}

static void test_straggler(void **state)
{
    (void)state;
    struct shoali_straggler straggler;
    make_views(1, 50000000);
    shoali_ranks_straggler(view, RANKS, &straggler);
    assert_int_equal(straggler.rank, 1);
    assert_int_equal(straggler.meetings, 10);
    assert_true(straggler.late_ms > 49.9 && straggler.late_ms < 50.1);
    assert_true(straggler.others_wait > 0.52 && straggler.others_wait < 0.55);
    make_views(1, 3000); /* microseconds are nobody's trouble */
    shoali_ranks_straggler(view, RANKS, &straggler);
    assert_int_equal(straggler.rank, -1);
    /* stopped for a moment, and fast in between: another is last of most meetings */
    make_views(-1, 0);
    for (int i = 0; i < 10; i++)
        view[1].board.arrival[i].wall_ns += i % 4 == 1 ? 70000000 : 0;
    shoali_ranks_straggler(view, RANKS, &straggler);
    assert_int_equal(straggler.rank, 1);
    assert_true(straggler.late_ms > 69.9 && straggler.late_ms < 70.1);
    assert_true(straggler.others_wait > 0.19 && straggler.others_wait < 0.22);
    make_views(-1, 0); /* keys that nobody shares are no meetings */
    for (int32_t r = 0; r < RANKS; r++)
        for (int i = 0; i < 10; i++)
            view[r].board.arrival[i].key += (uint64_t)r * 1000;
    shoali_ranks_straggler(view, RANKS, &straggler);
    assert_int_equal(straggler.meetings, 0);
    assert_int_equal(straggler.rank, -1);
}

/* Of several hosts count the meetings of ranks of several, in the newest ring that has some. */
static void test_straggler_of_hosts(void **state)
{
    (void)state;
    struct shoali_straggler straggler;
    const struct shoali_board_ring *ring = &shoali_board_rings[2];
    make_views(1, 50000000); /* of all that come, host 0's two ranks are seen to meet */
    for (int32_t r = 0; r < RANKS; r++) {
        struct shoali_board_view *board = &view[r].board;
        board->node = r / 2;
        for (int i = 0; i < 10 && r == 2; i++)
            board->arrival[i].key += 1000;
        for (int i = 0; i < ring->count; i++) {
            board->arrival[ring->first + i].key = (uint64_t)(5000 + i);
            board->arrival[ring->first + i].wall_ns =
                INT64_C(900000000000) + i * INT64_C(27306666666) + (r == 2 ? 60000000 : 0);
        }
    }
    shoali_ranks_straggler(view, RANKS, &straggler);
    assert_int_equal(straggler.rank, 2);
    assert_int_equal(straggler.meetings, ring->count);
    assert_true(straggler.late_ms > 59.9 && straggler.late_ms < 60.1);
    assert_true(straggler.others_wait > 0.59 && straggler.others_wait < 0.61);
    for (int32_t r = 0; r < RANKS; r++) /* of one host: the newest */
        view[r].board.node = 0;
    shoali_ranks_straggler(view, RANKS, &straggler);
    assert_int_equal(straggler.rank, 1);
    assert_int_equal(straggler.meetings, 10);
}

static void test_missing(void **state)
{
    (void)state;
    int64_t waited_ns = 0;
    make_views(-1, 0);
    assert_int_equal(shoali_ranks_missing(view, RANKS, &waited_ns), -1);
    for (int32_t r = 0; r < RANKS; r++) {
        view[r].board.waits = r != 2;
        view[r].board.waited_ns = r != 2 ? 5000000000 : 0;
    }
    assert_int_equal(shoali_ranks_missing(view, RANKS, &waited_ns), 2);
    assert_int_equal(waited_ns, 5000000000);
}

/* What a host sends comes to the front as it was. */
static void test_wire(void **state)
{
    (void)state;
    char job[64], *rest = NULL;
    struct shoali_board *boards[RANKS] = {NULL};
    struct shoali_str lines = {0};
    struct shoali_wire_end end;
    int32_t about = -1;
    snprintf(job, sizeof job, "%d.0.0000aaaa", (int)getpid());
    struct shoali_copies copies = {.job = job, .ranks = RANKS, .board = boards};
    make_views(1, 50000000);
    struct shoali_board_view *sent = &view[1].board;
    strcpy(sent->name, "tp 1, pp 0");
    strcpy(sent->here, "src/zero/reduce.c:164");
    strcpy(sent->collective, "all_reduce");
    strcpy(sent->line[4], "step 7\xc3\xbc");
    strcpy(sent->line[5], "no space left");
    strcpy(sent->sentence, "cannot write: no space left");
    sent->failure = SHOAL_EIO;
    sent->step = 17;
    sent->micro = -1;
    sent->waits = true;
    sent->waited_ns = sent->wait_ns = 3000000000;
    shoali_wire_last_words(1, &view[1], &lines);
    int count = 0;
    for (char *line = strtok_r(lines.text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        assert_int_equal(line[0], SHOALI_WIRE_MARK);
        assert_true(strlen(line) < 4096 - 1); /* one write of a pipe */
        assert_true(shoali_wire_read(&copies, line + 1, &about, &end) != 0);
        assert_int_equal(about, 1);
        count++;
    }
    assert_int_equal(count, 4);
    memset(copy, 0, sizeof copy);
    assert_int_equal(shoali_copies_look(&copies, copy), 1);
    const struct shoali_board_view *got = &copy[1].board;
    assert_string_equal(got->name, sent->name);
    assert_string_equal(got->here, sent->here);
    assert_string_equal(got->host, "host-1");
    assert_string_equal(got->line[4], sent->line[4]);
    assert_string_equal(got->line[5], sent->line[5]);
    assert_string_equal(got->sentence, sent->sentence);
    assert_int_equal(got->failure, SHOAL_EIO);
    assert_int_equal(got->step, 17);
    assert_int_equal(got->micro, -1);
    assert_true(got->waits && got->waited_ns >= 3000000000 && got->waited_ns < 30000000000);
    int same = 0;
    for (int i = 0; i < SHOALI_BOARD_ARRIVALS; i++)
        same += got->arrival[i].key && got->arrival[i].wall_ns == sent->arrival[i].wall_ns;
    assert_int_equal(same, 10);
    shoali_copies_drop(&copies);
    shoali_leftover_segments_unlink(job);
    shoali_str_fini(&lines);
}

static void test_wire_refuses(void **state)
{
    (void)state;
    struct shoali_board *boards[RANKS] = {NULL};
    struct shoali_copies copies = {.job = "1.0.0", .ranks = RANKS, .board = boards};
    struct shoali_wire_end end;
    int32_t about;
    static const char *const wrong[] = {
        "", "B", "X\t1", "B\t3\tx", "B\t-1\tx", "E\t1\t2", "E\t9\t1\t1\t1\tE\th"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(shoali_wire_read(&copies, wrong[i], &about, &end), 0);
    assert_int_equal(shoali_wire_read(&copies, "E\t2\t77\t0\t9\tM\tworker-1", &about, &end), 'E');
    assert_int_equal(end.rank, 2);
    assert_int_equal(end.pid, 77);
    assert_int_equal(end.signal, 9);
    assert_int_equal(end.cause, 'M');
    assert_string_equal(end.host, "worker-1");
    assert_int_equal(shoali_wire_read(&copies, "H\t1", &about, &end), 'H');
    assert_int_equal(about, 1);
}

/* ---- ranks that wait for each other --------------------------------------------------------- */

static void test_stuck(void **state)
{
    (void)state;
    struct shoali_stuck stuck = {0};
    make_views(-1, 0);
    for (int32_t r = 0; r < RANKS; r++) {
        strcpy(view[r].board.collective, "all_reduce");
        strcpy(view[r].board.here, "a.c:1");
        view[r].board.posted = 5;
        view[r].board.unfinished = 1;
        view[r].board.waits = true;
    }
    /* all in one call: it may take its time, but not for ever */
    assert_false(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    stuck.since_ns -= 120000000000;
    assert_false(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    stuck.since_ns -= 60000000000;
    assert_true(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    stuck = (struct shoali_stuck){0};
    strcpy(view[1].board.here, "b.c:2");
    assert_true(shoali_ranks_stuck(view, RANKS, 0, &stuck));
    assert_false(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    stuck.since_ns -= 60000000000;
    assert_true(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    /* one has gone on */
    view[0].board.posted++;
    assert_false(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    /* one computes, has left its last call, or says nothing */
    stuck.since_ns -= 60000000000;
    view[2].board.waits = false;
    assert_false(shoali_ranks_stuck(view, RANKS, 0, &stuck));
    view[2].board.reads = true; /* a call in the middle of a save */
    assert_true(shoali_ranks_stuck(view, RANKS, 0, &stuck));
    view[2].board.unfinished = 0;
    assert_false(shoali_ranks_stuck(view, RANKS, 0, &stuck));
    view[2].board.unfinished = 1;
    view[2].known = false;
    assert_false(shoali_ranks_stuck(view, RANKS, 0, &stuck));
}

/* ---- the block ------------------------------------------------------------------------------ */

static char said[4096];
static void take(void *user, shoal_log_level level, const char *subsystem, int rank,
                 const char *text)
{
    (void)user, (void)level, (void)subsystem, (void)rank;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", text);
}

static void test_block(void **state)
{
    (void)state;
    make_views(-1, 0);
    for (int32_t r = 0; r < RANKS; r++) {
        strcpy(view[r].board.collective, "all_reduce");
        strcpy(view[r].board.dtype, "F32");
        strcpy(view[r].board.here, "/any/src/zero/reduce.c:164");
        view[r].board.count = 12;
        view[r].board.unfinished = r != 2;
    }
    strcpy(view[2].board.name, "tp 0, pp 1");
    strcpy(view[2].board.doing, "backward");
    view[2].board.step = 117;
    view[2].board.micro = 3;
    view[2].board.goal = 200;
    strcpy(view[2].board.line[5], "out of cheese");
    const struct shoali_verdict verdict = {
        .rank = 2, .pid = 812, .signal = 9, .host = "worker-1", .rest = "stopping the other 2"};
    assert_int_equal(shoal_log_configure("info", take, NULL), SHOAL_OK);
    said[0] = '\0';
    shoali_verdict_print(&verdict, view, RANKS);
    assert_int_equal(shoal_log_configure("info", NULL, NULL), SHOAL_OK);
    assert_string_equal(
        said, "rank 2 (worker-1, pid 812) was killed by signal 9 (Killed); stopping the other 2\n"
              "  where: tp 0, pp 1; step 118 of 200, in backward of micro-batch 3\n"
              "  its last call: all_reduce of 12 F32 at src/zero/reduce.c:164, which was over: it "
              "did not "
              "come to the next one\n"
              "  ranks 0, 1 were in all_reduce of 12 F32 at src/zero/reduce.c:164\n"
              "  it said: out of cheese\n"
              "  what to do: somebody sent it that, or memory ran out: dmesg tells of the second; "
              "continue "
              "from the last checkpoint with --load\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_straggler),    cmocka_unit_test(test_straggler_of_hosts),
        cmocka_unit_test(test_missing),      cmocka_unit_test(test_wire),
        cmocka_unit_test(test_wire_refuses), cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
