#include "launcher/ranks.h"

#include "base/clock.h"
#include "base/process.h"
#include "comm/board_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARGIN_NS INT64_C(1000000)
enum { LEAST_MEETINGS = 4 };

/* ---- looking -------------------------------------------------------------------------------- */

static int64_t resident(int pid)
{
    char path[64];
    long long all, pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", pid);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%lld %lld", &all, &pages) != 2)
        pages = 0;
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void look_at_process(struct shoali_rank_view *view)
{
    struct shoali_process process;
    const int pid = (int)view->board.pid;
    view->state = 0;
    view->resident_bytes = view->run_ns = 0;
    if (!shoali_process_read(pid, &process) || (int64_t)process.start != view->board.start)
        return;
    view->state = process.state;
    view->resident_bytes = resident(pid);
    view->run_ns = shoali_process_run_ns(pid);
}

int32_t shoali_ranks_look(const char *job, int32_t ranks, struct shoali_rank_view *view)
{
    int32_t count = 0;
    for (int32_t r = 0; r < ranks; r++) {
        struct shoali_board *board = shoali_board_attach(job, r, false);
        const bool here = board != NULL;
        view[r].state = 0; /* without its board nothing is known of the process */
        if (!here)
            board = shoali_board_attach(job, r, true);
        if (board && shoali_board_read(board, &view[r].board)) {
            view[r].known = true;
            if (here)
                look_at_process(&view[r]);
        }
        shoali_board_detach(board);
        count += view[r].known;
    }
    return count;
}

/* ---- who is waited for ---------------------------------------------------------------------- */

static bool find_arrival(const struct shoali_board_view *board, uint64_t key, int64_t *wall_ns)
{
    for (int32_t i = 0; i < SHOALI_BOARD_ARRIVALS; i++)
        if (board->arrival[i].key == key) {
            *wall_ns = board->arrival[i].wall_ns;
            return true;
        }
    return false;
}

struct tally {
    int32_t met, last;
    double late_ns; /* of the meetings at which it was last */
};

/* One meeting that `by` took part in, as the first of those that have it. */
static bool count_meeting(const struct shoali_rank_view *view, int32_t ranks, int32_t by,
                          uint64_t key, struct tally *tally)
{
    int64_t first = INT64_MAX, last = INT64_MIN, at = 0;
    int32_t last_rank = -1, met = 0;
    for (int32_t r = 0; r < ranks; r++) {
        if (!view[r].known || !find_arrival(&view[r].board, key, &at))
            continue;
        if (r < by)
            return false; /* counted */
        met++;
        first = at < first ? at : first;
        if (at > last) {
            last = at;
            last_rank = r;
        }
    }
    if (met < 2)
        return false;
    for (int32_t r = by; r < ranks; r++)
        tally[r].met += view[r].known && find_arrival(&view[r].board, key, &at);
    tally[last_rank].last++;
    tally[last_rank].late_ns += (double)(last - first);
    return true;
}

/* How long it is from one collective to the next, of those in the ring of all. */
static double period_of(const struct shoali_board_view *board)
{
    int64_t first = INT64_MAX, last = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < SHOALI_BOARD_RECENT; i++) {
        if (board->arrival[i].key == 0)
            continue;
        count++;
        first = board->arrival[i].wall_ns < first ? board->arrival[i].wall_ns : first;
        last = board->arrival[i].wall_ns > last ? board->arrival[i].wall_ns : last;
    }
    return count > 1 ? (double)(last - first) / (count - 1) : 0;
}

void shoali_ranks_straggler(const struct shoali_rank_view *view, int32_t ranks,
                            struct shoali_straggler *straggler)
{
    struct tally *tally = calloc((size_t)ranks + 1, sizeof *tally);
    int32_t meetings = 0, worst = -1;
    double all_ns = 0;
    *straggler = (struct shoali_straggler){.rank = -1};
    for (int32_t r = 0; tally && r < ranks; r++)
        for (int32_t i = 0; view[r].known && i < SHOALI_BOARD_ARRIVALS; i++)
            if (view[r].board.arrival[i].key)
                meetings += count_meeting(view, ranks, r, view[r].board.arrival[i].key, tally);
    for (int32_t r = 0; tally && r < ranks; r++)
        all_ns += tally[r].late_ns;
    for (int32_t r = 0; tally && r < ranks; r++)
        if (tally[r].met >= LEAST_MEETINGS && 2 * tally[r].late_ns > all_ns)
            worst = r;
    straggler->meetings = meetings;
    if (worst >= 0) {
        const double mean_ns = tally[worst].late_ns / tally[worst].last;
        const double period_ns = period_of(&view[worst].board);
        const double wait_ns = tally[worst].late_ns / tally[worst].met;
        straggler->late_ms = mean_ns * 1e-6;
        straggler->others_wait = period_ns > wait_ns ? wait_ns / period_ns : period_ns > 0;
        if (mean_ns > MARGIN_NS)
            straggler->rank = worst;
    }
    free(tally);
}

/* In a call that it has not left, and not computing beside it. */
static bool is_blocked(const struct shoali_rank_view *view)
{
    return view->known && view->board.unfinished > 0 && (view->board.waits || view->board.reads) &&
           view->board.failure == 0;
}

int64_t shoali_stuck_limit(const struct shoali_stuck *stuck, int64_t limit_ns)
{
    return stuck->in_one_call ? 3 * limit_ns : limit_ns;
}

bool shoali_ranks_stuck(const struct shoali_rank_view *view, int32_t ranks, int64_t limit_ns,
                        struct shoali_stuck *stuck)
{
    const int64_t now_ns = shoali_now_ns();
    uint64_t mark = 1;
    bool blocked = ranks > 1, meet = true, waits = true;
    for (int32_t r = 0; r < ranks && blocked; r++) {
        const struct shoali_board_view *board = &view[r].board, *first = &view[0].board;
        blocked = is_blocked(&view[r]);
        meet = meet && board->count == first->count && strcmp(board->here, first->here) == 0 &&
               strcmp(board->collective, first->collective) == 0;
        waits = waits && board->waits;
        mark = mark * 31 + (uint64_t)board->posted * 7 + (uint64_t)board->unfinished;
    }
    if (!blocked || (meet && !waits)) { /* a slow disk is no failure */
        stuck->since_ns = 0;
        return false;
    }
    if (stuck->since_ns == 0 || mark != stuck->mark)
        stuck->since_ns = now_ns;
    stuck->mark = mark;
    stuck->in_one_call = meet;
    return now_ns - stuck->since_ns >= shoali_stuck_limit(stuck, limit_ns);
}

int32_t shoali_ranks_missing(const struct shoali_rank_view *view, int32_t ranks, int64_t *waited_ns)
{
    int32_t missing = -1;
    int64_t longest = 0, least = INT64_MAX;
    for (int32_t r = 0; r < ranks; r++)
        if (view[r].known && view[r].board.waits && view[r].board.waited_ns > longest)
            longest = view[r].board.waited_ns;
    for (int32_t r = 0; r < ranks; r++)
        if (view[r].known && !view[r].board.waits && view[r].board.came_ns < least) {
            least = view[r].board.came_ns;
            missing = r;
        }
    *waited_ns = longest;
    return longest > 0 ? missing : -1;
}
