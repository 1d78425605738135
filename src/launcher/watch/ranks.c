#include "launcher/watch/watch.h"

#include "base/clock.h"
#include "base/process.h"
#include "comm/status_page_file.h"

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
    const int pid = (int)view->page.pid;
    view->state = 0;
    view->resident_bytes = view->run_ns = 0;
    if (!shoali_process_read(pid, &process) || (int64_t)process.start != view->page.start)
        return;
    view->state = process.state;
    view->resident_bytes = resident(pid);
    view->run_ns = shoali_process_run_ns(pid);
}

int32_t shoali_ranks_poll(const char *job, int32_t ranks, struct shoali_rank_view *view)
{
    int32_t count = 0;
    for (int32_t r = 0; r < ranks; r++) {
        struct shoali_status_page *page = shoali_status_page_attach(job, r, false);
        const bool here = page != NULL;
        view[r].state = 0; /* without its status page nothing is known of the process */
        if (!here)
            page = shoali_status_page_attach(job, r, true);
        if (page && shoali_status_page_read(page, &view[r].page)) {
            view[r].known = true;
            if (here)
                look_at_process(&view[r]);
        }
        shoali_status_page_detach(page);
        count += view[r].known;
    }
    return count;
}

/* ---- who is waited for ---------------------------------------------------------------------- */

struct tally {
    int32_t met, last;
    double late_ns; /* of the meetings at which it was last */
};
struct came {
    uint64_t key;
    int64_t wall_ns;
    int32_t rank;
};
/* The meetings of one ring. */
struct meetings {
    struct tally *tally;   /* [ranks] */
    struct came *came;     /* [ranks * SHOALI_STATUS_PAGE_RING_MOST]: all arrivals, by key */
    int32_t count, across; /* meetings; those of several hosts */
    double all_ns;         /* of everybody's lateness */
};

static int by_key(const void *a, const void *b)
{
    const struct came *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Those who came to one collective. */
static void count_meeting(const struct shoali_rank_view *view, const struct came *came,
                          int32_t count, struct meetings *meetings)
{
    const struct came *first = came, *last = came;
    bool across = false;
    if (count < 2)
        return;
    for (int32_t i = 0; i < count; i++) {
        meetings->tally[came[i].rank].met++;
        across = across || view[came[i].rank].page.node != view[came->rank].page.node;
        first = came[i].wall_ns < first->wall_ns ? &came[i] : first;
        last = came[i].wall_ns > last->wall_ns ? &came[i] : last;
    }
    const double late_ns = (double)(last->wall_ns - first->wall_ns);
    meetings->tally[last->rank].last++;
    meetings->tally[last->rank].late_ns += late_ns;
    meetings->all_ns += late_ns;
    meetings->count++;
    meetings->across += across;
}

static void count_meetings(const struct shoali_rank_view *view, int32_t ranks,
                           const struct shoali_status_page_ring *ring, struct meetings *meetings)
{
    int32_t count = 0, begin = 0;
    memset(meetings->tally, 0, (size_t)ranks * sizeof *meetings->tally);
    meetings->count = meetings->across = 0;
    meetings->all_ns = 0;
    for (int32_t r = 0; r < ranks; r++)
        for (int32_t i = ring->first; view[r].known && i < ring->first + ring->count; i++)
            if (view[r].page.arrival[i].key)
                meetings->came[count++] =
                    (struct came){view[r].page.arrival[i].key, view[r].page.arrival[i].wall_ns, r};
    qsort(meetings->came, (size_t)count, sizeof *meetings->came, by_key);
    for (int32_t i = 1; i <= count; i++)
        if (i == count || meetings->came[i].key != meetings->came[begin].key) {
            count_meeting(view, meetings->came + begin, i - begin, meetings);
            begin = i;
        }
}

/* The newest ring in which enough was met, where there are several hosts by ranks of several; else
 * the one in which most was. */
static const struct shoali_status_page_ring *choose_ring(const struct shoali_rank_view *view,
                                                         int32_t ranks, struct meetings *meetings)
{
    const struct shoali_status_page_ring *most = &shoali_status_page_rings[0];
    int32_t count = 0, first = -1;
    bool several = false;
    for (int32_t r = 0; r < ranks; r++) {
        if (!view[r].known)
            continue;
        first = first < 0 ? r : first;
        several = several || view[r].page.node != view[first].page.node;
    }
    for (int32_t i = 0; i < SHOALI_STATUS_PAGE_RINGS; i++) {
        count_meetings(view, ranks, &shoali_status_page_rings[i], meetings);
        if ((several ? meetings->across : meetings->count) >= LEAST_MEETINGS)
            return &shoali_status_page_rings[i];
        if (meetings->count > count) {
            count = meetings->count;
            most = &shoali_status_page_rings[i];
        }
    }
    count_meetings(view, ranks, most, meetings);
    return most;
}

/* How long it is from one collective to the next, by a ring of the rank. */
static double period_of(const struct shoali_status_page_view *page,
                        const struct shoali_status_page_ring *ring)
{
    int64_t first = INT64_MAX, last = 0;
    int32_t count = 0;
    for (int32_t i = ring->first; i < ring->first + ring->count; i++) {
        if (page->arrival[i].key == 0)
            continue;
        count++;
        first = page->arrival[i].wall_ns < first ? page->arrival[i].wall_ns : first;
        last = page->arrival[i].wall_ns > last ? page->arrival[i].wall_ns : last;
    }
    return count > 1 ? (double)(last - first) / (count - 1) * ring->chances / 4096 : 0;
}

void shoali_ranks_straggler(const struct shoali_rank_view *view, int32_t ranks,
                            struct shoali_straggler *straggler)
{
    struct meetings meetings = {
        .tally = calloc((size_t)ranks + 1, sizeof *meetings.tally),
        .came = calloc((size_t)ranks * SHOALI_STATUS_PAGE_RING_MOST + 1, sizeof *meetings.came),
    };
    int32_t worst = -1;
    *straggler = (struct shoali_straggler){.rank = -1};
    if (!meetings.tally || !meetings.came)
        goto done;
    const struct shoali_status_page_ring *ring = choose_ring(view, ranks, &meetings);
    for (int32_t r = 0; r < ranks; r++)
        if (meetings.tally[r].met >= LEAST_MEETINGS &&
            2 * meetings.tally[r].late_ns > meetings.all_ns)
            worst = r;
    straggler->meetings = meetings.count;
    if (worst >= 0) {
        const struct tally *tally = &meetings.tally[worst];
        const double period_ns = period_of(&view[worst].page, ring);
        const double mean_ns = tally->late_ns / tally->last, wait_ns = tally->late_ns / tally->met;
        straggler->late_ms = mean_ns * 1e-6;
        straggler->others_wait = period_ns > wait_ns ? wait_ns / period_ns : period_ns > 0;
        if (mean_ns > MARGIN_NS)
            straggler->rank = worst;
    }
done:
    free(meetings.tally);
    free(meetings.came);
}

/* In a call that it has not left, and not computing beside it. */
static bool is_blocked(const struct shoali_rank_view *view)
{
    return view->known && view->page.unfinished > 0 && (view->page.waits || view->page.reads) &&
           view->page.failure == 0;
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
        const struct shoali_status_page_view *page = &view[r].page, *first = &view[0].page;
        blocked = is_blocked(&view[r]);
        meet = meet && page->count == first->count && strcmp(page->here, first->here) == 0 &&
               strcmp(page->collective, first->collective) == 0;
        waits = waits && page->waits;
        mark = mark * 31 + (uint64_t)page->posted * 7 + (uint64_t)page->unfinished;
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
        if (view[r].known && view[r].page.waits && view[r].page.waited_ns > longest)
            longest = view[r].page.waited_ns;
    for (int32_t r = 0; r < ranks; r++)
        if (view[r].known && !view[r].page.waits && view[r].page.came_ns < least) {
            least = view[r].page.came_ns;
            missing = r;
        }
    *waited_ns = longest;
    return longest > 0 ? missing : -1;
}
