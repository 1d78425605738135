#include "launcher/watch/watch.h"

#include "base/base.h"
#include "base/test_cmocka.h"
#include "comm/folder.h"
#include "comm/status_page_file.h"

#include <fcntl.h>
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
        struct shoali_status_page_view *page = &view[r].page;
        view[r].known = true;
        page->rank = r;
        page->world = RANKS;
        page->posted = 10;
        snprintf(page->host, sizeof page->host, "host-%d", (int)r);
        for (int i = 0; i < 10; i++) {
            page->arrival[i].key = (uint64_t)(100 + i);
            page->arrival[i].wall_ns =
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
        view[1].page.arrival[i].wall_ns += i % 4 == 1 ? 70000000 : 0;
    shoali_ranks_straggler(view, RANKS, &straggler);
    assert_int_equal(straggler.rank, 1);
    assert_true(straggler.late_ms > 69.9 && straggler.late_ms < 70.1);
    assert_true(straggler.others_wait > 0.19 && straggler.others_wait < 0.22);
    make_views(-1, 0); /* keys that nobody shares are no meetings */
    for (int32_t r = 0; r < RANKS; r++)
        for (int i = 0; i < 10; i++)
            view[r].page.arrival[i].key += (uint64_t)r * 1000;
    shoali_ranks_straggler(view, RANKS, &straggler);
    assert_int_equal(straggler.meetings, 0);
    assert_int_equal(straggler.rank, -1);
}

/* Of several hosts count the meetings of ranks of several, in the newest ring that has some. */
static void test_straggler_of_hosts(void **state)
{
    (void)state;
    struct shoali_straggler straggler;
    const struct shoali_status_page_ring *ring = &shoali_status_page_rings[2];
    make_views(1, 50000000); /* of all that come, host 0's two ranks are seen to meet */
    for (int32_t r = 0; r < RANKS; r++) {
        struct shoali_status_page_view *page = &view[r].page;
        page->node = r / 2;
        for (int i = 0; i < 10 && r == 2; i++)
            page->arrival[i].key += 1000;
        for (int i = 0; i < ring->count; i++) {
            page->arrival[ring->first + i].key = (uint64_t)(5000 + i);
            page->arrival[ring->first + i].wall_ns =
                INT64_C(900000000000) + i * INT64_C(27306666666) + (r == 2 ? 60000000 : 0);
        }
    }
    shoali_ranks_straggler(view, RANKS, &straggler);
    assert_int_equal(straggler.rank, 2);
    assert_int_equal(straggler.meetings, ring->count);
    assert_true(straggler.late_ms > 59.9 && straggler.late_ms < 60.1);
    assert_true(straggler.others_wait > 0.59 && straggler.others_wait < 0.61);
    for (int32_t r = 0; r < RANKS; r++) /* of one host: the newest */
        view[r].page.node = 0;
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
        view[r].page.waits = r != 2;
        view[r].page.waited_ns = r != 2 ? 5000000000 : 0;
    }
    assert_int_equal(shoali_ranks_missing(view, RANKS, &waited_ns), 2);
    assert_int_equal(waited_ns, 5000000000);
}

/* As the front's sweep does. */
static void remove_copy(const char *job, int32_t rank)
{
    char name[96];
    const int folder = shoali_folder_open();
    snprintf(name, sizeof name, "shoal-%s-copy.%d", job, (int)rank);
    assert_int_equal(unlinkat(folder, name, 0), 0);
    close(folder);
}

/* What a host sends comes to the front as it was. */
static void test_wire(void **state)
{
    (void)state;
    char job[64], *rest = NULL;
    struct shoali_status_page *pages[RANKS] = {NULL};
    struct shoali_str lines = {0};
    struct shoali_wire_end end;
    int32_t about = -1;
    snprintf(job, sizeof job, "%d.0.0000aaaa", (int)getpid());
    struct shoali_copies copies = {.job = job, .ranks = RANKS, .page = pages};
    make_views(1, 50000000);
    struct shoali_status_page_view *sent = &view[1].page;
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
    sent->stop = SHOALI_STOP_SAVES;
    memset(sent->save, 's', SHOALI_STATUS_PAGE_SAVE_WORDS * 8); /* as long as it may be */
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
    assert_int_equal(shoali_copies_poll(&copies, copy), 1);
    const struct shoali_status_page_view *got = &copy[1].page;
    assert_string_equal(got->name, sent->name);
    assert_string_equal(got->here, sent->here);
    assert_string_equal(got->host, "host-1");
    assert_string_equal(got->line[4], sent->line[4]);
    assert_string_equal(got->line[5], sent->line[5]);
    assert_string_equal(got->sentence, sent->sentence);
    assert_int_equal(got->failure, SHOAL_EIO);
    assert_int_equal(got->step, 17);
    assert_int_equal(got->micro, -1);
    assert_int_equal(got->stop, SHOALI_STOP_SAVES);
    assert_string_equal(got->save, sent->save);
    assert_true(got->waits && got->waited_ns >= 3000000000 && got->waited_ns < 300000000000);
    int same = 0;
    for (int i = 0; i < SHOALI_STATUS_PAGE_ARRIVALS; i++)
        same += got->arrival[i].key && got->arrival[i].wall_ns == sent->arrival[i].wall_ns;
    assert_int_equal(same, 10);
    shoali_copies_drop(&copies);
    remove_copy(job, 1);
    shoali_str_fini(&lines);
}

#define AT(member) offsetof(struct shoali_status_page_view, member)

/* Each number and each text by itself: none takes another's place, none is lost. */
static void test_wire_each_field(void **state)
{
    static const size_t numbers[] = {AT(world),  AT(node),         AT(pid),     AT(start),
                                     AT(step),   AT(steps),        AT(micro),   AT(goal),
                                     AT(tokens), AT(memory_bytes), AT(wait_ns), AT(io_ns),
                                     AT(posted), AT(count),        AT(came_ns), AT(unfinished)};
    static const size_t texts[] = {AT(name),       AT(backend), AT(host), AT(doing),
                                   AT(collective), AT(dtype),   AT(here), AT(save)};
    enum { NUMBERS = sizeof numbers / sizeof numbers[0], TEXTS = sizeof texts / sizeof texts[0] };
    char job[64], text[32];
    struct shoali_status_page *pages[RANKS] = {NULL};
    struct shoali_copies copies = {.job = job, .ranks = RANKS, .page = pages};
    struct shoali_wire_end end;
    int32_t about = -1;
    (void)state;
    snprintf(job, sizeof job, "%d.0.0000bbbb", (int)getpid());
    for (int64_t round = 0; round < 2; round++) { /* with other values, too */
        struct shoali_str lines = {0};
        memset(view, 0, sizeof view);
        memset(copy, 0, sizeof copy);
        char *sent = (char *)&view[0].page, *got = (char *)&copy[0].page;
        for (int64_t i = 0; i < NUMBERS; i++)
            *(int64_t *)(void *)(sent + numbers[i]) = 1000 * (round + 1) + i;
        for (int i = 0; i < TEXTS; i++)
            snprintf(sent + texts[i], 24, "text %d.%d", (int)round, i);
        view[0].page.stop = SHOALI_STOP_SAVES;
        view[0].page.arrival[1].key = 7;
        view[0].page.arrival[1].wall_ns = 70 + round;
        shoali_wire_status_page(0, &view[0], &lines);
        lines.text[strlen(lines.text) - 1] = '\0'; /* the line's end */
        assert_int_equal(shoali_wire_read(&copies, lines.text + 1, &about, &end), 'B');
        assert_int_equal(shoali_copies_poll(&copies, copy), 1);
        for (int64_t i = 0; i < NUMBERS; i++)
            assert_int_equal(*(int64_t *)(void *)(got + numbers[i]), 1000 * (round + 1) + i);
        for (int i = 0; i < TEXTS; i++) {
            snprintf(text, sizeof text, "text %d.%d", (int)round, i);
            assert_string_equal(got + texts[i], text);
        }
        assert_int_equal(copy[0].page.stop, SHOALI_STOP_SAVES);
        assert_false(copy[0].page.waits || copy[0].page.reads);
        assert_true(copy[0].page.sent_ns > 0);
        for (int i = 0; i < SHOALI_STATUS_PAGE_ARRIVALS; i++) {
            assert_int_equal(copy[0].page.arrival[i].key, i == 1 ? 7 : 0);
            assert_int_equal(copy[0].page.arrival[i].wall_ns, i == 1 ? 70 + round : 0);
        }
        shoali_str_fini(&lines);
    }
    shoali_copies_drop(&copies);
    remove_copy(job, 0);
}

static void test_wire_refuses(void **state)
{
    (void)state;
    struct shoali_status_page *pages[RANKS] = {NULL};
    struct shoali_copies copies = {.job = "1.0.0", .ranks = RANKS, .page = pages};
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
        strcpy(view[r].page.collective, "all_reduce");
        strcpy(view[r].page.here, "a.c:1");
        view[r].page.posted = 5;
        view[r].page.unfinished = 1;
        view[r].page.waits = true;
    }
    /* all in one call: it may take its time, but not for ever */
    assert_false(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    stuck.since_ns -= 120000000000;
    assert_false(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    stuck.since_ns -= 60000000000;
    assert_true(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    stuck = (struct shoali_stuck){0};
    strcpy(view[1].page.here, "b.c:2");
    assert_true(shoali_ranks_stuck(view, RANKS, 0, &stuck));
    assert_false(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    stuck.since_ns -= 60000000000;
    assert_true(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    /* one has gone on */
    view[0].page.posted++;
    assert_false(shoali_ranks_stuck(view, RANKS, 60000000000, &stuck));
    /* one computes, has left its last call, or says nothing */
    stuck.since_ns -= 60000000000;
    view[2].page.waits = false;
    assert_false(shoali_ranks_stuck(view, RANKS, 0, &stuck));
    view[2].page.reads = true; /* a call in the middle of a save */
    assert_true(shoali_ranks_stuck(view, RANKS, 0, &stuck));
    view[2].page.unfinished = 0;
    assert_false(shoali_ranks_stuck(view, RANKS, 0, &stuck));
    view[2].page.unfinished = 1;
    view[2].known = false;
    assert_false(shoali_ranks_stuck(view, RANKS, 0, &stuck));
}

/* ---- the block ------------------------------------------------------------------------------ */

static char output[4096];
static void take(void *user, shoal_log_level level, const char *subsystem, int rank,
                 const char *text)
{
    (void)user, (void)level, (void)subsystem, (void)rank;
    snprintf(output + strlen(output), sizeof output - strlen(output), "%s\n", text);
}

static void test_block(void **state)
{
    (void)state;
    make_views(-1, 0);
    for (int32_t r = 0; r < RANKS; r++) {
        strcpy(view[r].page.collective, "all_reduce");
        strcpy(view[r].page.dtype, "F32");
        strcpy(view[r].page.here, "/any/src/zero/reduce.c:164");
        view[r].page.count = 12;
        view[r].page.unfinished = r != 2;
    }
    strcpy(view[2].page.name, "tp 0, pp 1");
    strcpy(view[2].page.doing, "backward");
    view[2].page.step = 117;
    view[2].page.micro = 3;
    view[2].page.goal = 200;
    strcpy(view[2].page.line[5], "out of cheese");
    const struct shoali_verdict verdict = {
        .rank = 2, .pid = 812, .signal = 9, .host = "worker-1", .rest = "stopping the other 2"};
    assert_int_equal(shoal_log_configure("info", take, NULL), SHOAL_OK);
    output[0] = '\0';
    shoali_verdict_print(&verdict, view, RANKS);
    assert_int_equal(shoal_log_configure("info", NULL, NULL), SHOAL_OK);
    assert_string_equal(
        output,
        "rank 2 (worker-1, pid 812) was killed by signal 9 (Killed); stopping the other 2\n"
        "  where: tp 0, pp 1; step 118 of 200, in backward of micro-batch 3\n"
        "  its last call: all_reduce of 12 F32 at src/zero/reduce.c:164, which was "
        "complete: it did not reach the next one\n"
        "  ranks 0, 1 were in all_reduce of 12 F32 at src/zero/reduce.c:164\n"
        "  it said: out of cheese\n"
        "  what to do: another process sent the signal, or memory ran out, which dmesg reports; "
        "continue from the last checkpoint with --load\n");
}

/* What to do about a full disk is said, in whatever words the rank said that it is full. */
static void test_full_disk(void **state)
{
    (void)state;
    static const char *const sentences[] = {
        "a/b: cannot write: No space left on device",
        "a/b: the disk is full: the checkpoint needs 7 more",
        "no space for a/b (No space left on device): make room, or give --data-cache-path"};
    for (int i = 0; i < 3; i++) {
        make_views(-1, 0);
        view[0].page.failure = SHOAL_EIO;
        strcpy(view[0].page.sentence, sentences[i]);
        output[0] = '\0';
        assert_int_equal(shoal_log_configure("info", take, NULL), SHOAL_OK);
        shoali_verdict_print(&(struct shoali_verdict){.code = 1}, view, RANKS);
        assert_int_equal(shoal_log_configure("info", NULL, NULL), SHOAL_OK);
        assert_non_null(strstr(output, i < 2 ? "what to do: make room on that disk, or save else"
                                             : "what to do: make room as the reason says; comp"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_straggler),       cmocka_unit_test(test_straggler_of_hosts),
        cmocka_unit_test(test_missing),         cmocka_unit_test(test_wire),
        cmocka_unit_test(test_wire_each_field), cmocka_unit_test(test_wire_refuses),
        cmocka_unit_test(test_stuck),           cmocka_unit_test(test_block),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
