/* The block that a failed job ends with. Its first line is the verdict; each of the others stands
 * there when it is known:
 *
 *   rank 2 (worker-1, pid 4711) was killed by signal 9 (Killed); stopping the other 3
 *     why:     ...                            the sentence of the rank's own error
 *     where:   tp 0, pp 1; step 118, backward of micro-batch 3
 *     its last call: all_reduce of 12288 F32 at src/zero/reduce.c:210, which it has not left
 *     the others: ranks 0, 1 and 3 wait in ... for 0.1 s
 *     it said: "..."                          the end of its log
 *     do:      ...
 */
#include "launcher/watch/watch.h"

#include "base/error.h"
#include "base/log.h"
#include "base/plain.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t shoali_memory_kills(void)
{
    char line[128];
    long long count = -1;
    FILE *file = fopen("/proc/vmstat", "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "oom_kill %lld", &count) == 1)
            break;
    if (file)
        fclose(file);
    return count;
}

bool shoali_rank_is_echo(const struct shoali_rank_view *view)
{
    return view && view->known && view->page.failure == (int64_t)SHOAL_EPEER;
}

static void print_first(const struct shoali_verdict *verdict)
{
    char who[160], what[128];
    const char *host = verdict->host ? verdict->host : "", *comma = verdict->host ? ", " : "";
    const char *rest = verdict->rest ? verdict->rest : "";
    if (verdict->cause == SHOALI_CAUSE_HOST) {
        SHOALI_ERROR("launcher", "host %s does not answer: nothing came from it for %.1f s%s%s",
                     host, (double)verdict->silent_ns * 1e-9, *rest ? "; " : "", rest);
        return;
    }
    if (verdict->cause == SHOALI_CAUSE_STUCK) {
        SHOALI_ERROR("launcher",
                     "the ranks wait for each other: none has made progress for %.1f s%s%s",
                     (double)verdict->silent_ns * 1e-9, *rest ? "; " : "", rest);
        return;
    }
    snprintf(who, sizeof(who), "rank %d (%.80s%spid %d)", (int)verdict->rank, host, comma,
             (int)verdict->pid);
    if (verdict->cause == SHOALI_CAUSE_SILENT)
        shoali_snprintf(what, sizeof(what), "has made no progress for %.1f s",
                        (double)verdict->silent_ns * 1e-9);
    else if (verdict->cause == SHOALI_CAUSE_CRASH)
        snprintf(what, sizeof(what), "was killed by signal %d (%s) and hung in its handler",
                 verdict->signal, strsignal(verdict->signal));
    else if (verdict->signal)
        snprintf(what, sizeof(what), "was killed by signal %d (%s)", verdict->signal,
                 strsignal(verdict->signal));
    else
        snprintf(what, sizeof(what), "exited with code %d", verdict->code);
    SHOALI_ERROR("launcher", "%s %s%s%s", who, what, *rest ? "; " : "", rest);
}

static void print_where(const struct shoali_status_page_view *page)
{
    char text[256];
    int at = 0;
    if (page->name[0])
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s", page->name);
    if (page->step >= 0)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%sstep %lld", at ? "; " : "",
                       (long long)page->step + 1);
    if (page->goal > 0 && page->step >= 0)
        at += snprintf(text + at, sizeof(text) - (size_t)at, " of %lld", (long long)page->goal);
    if (page->doing[0] && at < (int)sizeof(text))
        at += snprintf(text + at, sizeof(text) - (size_t)at, ", in %s", page->doing);
    if (page->doing[0] && page->micro >= 0 && at < (int)sizeof(text))
        at += snprintf(text + at, sizeof(text) - (size_t)at, " of micro-batch %lld",
                       (long long)page->micro);
    if (at > 0)
        SHOALI_ERROR("launcher", "  where: %s", text);
}

/* "all_reduce of 12 f32 at src/a.c:10" */
static void format_call(const struct shoali_status_page_view *page, char *text, size_t bytes)
{
    const char *from = strstr(page->here, "src/");
    snprintf(text, bytes, "%s of %lld %s at %s", page->collective, (long long)page->count,
             page->dtype, from ? from : page->here);
}

static void print_call(const struct shoali_status_page_view *page)
{
    char call[256];
    if (page->posted == 0)
        return;
    format_call(page, call, sizeof(call));
    SHOALI_ERROR("launcher", "  its last call: %s, %s", call,
                 page->unfinished > 0 ? "where it waited for the others"
                                      : "which was complete: it did not reach the next one");
}

static bool waits_alike(const struct shoali_status_page_view *a,
                        const struct shoali_status_page_view *b)
{
    return strcmp(a->here, b->here) == 0 && strcmp(a->collective, b->collective) == 0 &&
           a->count == b->count;
}

/* Ranks that wait at the same place stand in one line. */
static void print_others(const struct shoali_rank_view *view, int32_t ranks, int32_t culprit)
{
    int32_t lines = 0;
    for (int32_t r = 0; r < ranks && lines < 4; r++) {
        char list[128] = "", call[256];
        int32_t count = 0, at = 0;
        bool reported = false;
        if (r == culprit || !view[r].known || view[r].page.unfinished <= 0)
            continue;
        for (int32_t other = 0; other < r && !reported; other++)
            reported = other != culprit && view[other].known && view[other].page.unfinished > 0 &&
                       waits_alike(&view[other].page, &view[r].page);
        for (int32_t other = r; other < ranks && !reported; other++)
            if (other != culprit && view[other].known && view[other].page.unfinished > 0 &&
                waits_alike(&view[other].page, &view[r].page)) {
                if (at < (int)sizeof(list) - 16)
                    at += snprintf(list + at, sizeof(list) - (size_t)at, "%s%d", count ? ", " : "",
                                   (int)other);
                count++;
            }
        if (reported)
            continue;
        format_call(&view[r].page, call, sizeof(call));
        SHOALI_ERROR("launcher", "  rank%s %s %s in %s", count > 1 ? "s" : "", list,
                     count > 1 ? "were" : "was", call);
        lines++;
    }
}

static bool is_of_a_full_disk(const struct shoali_status_page_view *page)
{
    return strstr(page->sentence, strerror(ENOSPC)) || strstr(page->sentence, strerror(EDQUOT)) ||
           strstr(page->sentence, "the disk is full");
}

static const char *advice_of(const struct shoali_verdict *verdict,
                             const struct shoali_status_page_view *page)
{
    if (verdict->cause == SHOALI_CAUSE_MEMORY)
        return "the kernel killed it because the machine ran out of memory: `shoal plan` with the "
               "same flags says what a rank needs; fewer ranks per host, a smaller micro-batch, "
               "recompute or offload need less";
    if (verdict->cause == SHOALI_CAUSE_SILENT)
        return "its process did not run: it is stopped (kill -STOP), or waits for a disk, a "
               "network file system or a lock; `--silent_rank_timeout` sets the limit";
    if (verdict->cause == SHOALI_CAUSE_STUCK)
        return "one of them made a call that the others did not, or skipped one: compare the "
               "places, and what leads there (different data, files, configuration or code); "
               "`--silent_rank_timeout` sets the limit";
    if (verdict->cause == SHOALI_CAUSE_HOST)
        return "check that the host runs and its network is up; ranks there end by themselves when "
               "they lose the connection; `--host_timeout` sets the limit";
    if (verdict->cause == SHOALI_CAUSE_REFUSED)
        return "see its output; if it does not know the argument --local_rank=N, which each rank "
               "gets: `shoal run --no_local_rank` leaves it out (the number is in LOCAL_RANK, too)";
    if (verdict->signal == SIGSEGV || verdict->signal == SIGBUS || verdict->signal == SIGILL ||
        verdict->signal == SIGFPE || verdict->signal == SIGABRT)
        return "a bug of the program or a damaged build: start the rank under a debugger, or let "
               "it write a core file (ulimit -c unlimited)";
    if (verdict->signal == SIGKILL)
        return "another process sent the signal, or memory ran out, which dmesg reports; continue "
               "from the last checkpoint with --load";
    if (page && page->failure != 0 && is_of_a_full_disk(page))
        return strstr(page->sentence, "make room")
                   ? "make room as the reason says; complete checkpoints remain: continue from the "
                     "last one, if there is one, with --load"
                   : "make room on that disk, or save elsewhere (--save); complete checkpoints "
                     "remain: continue from the last one with --load";
    if (page && page->failure == (int64_t)SHOAL_EMISMATCH)
        return "the ranks made different calls: compare the two places, and what leads there "
               "(different data, files, configuration or code)";
    if (page && page->failure == (int64_t)SHOAL_ETIMEOUT)
        return "check the rank that did not come: its host and its output";
    return NULL;
}

void shoali_verdict_print(const struct shoali_verdict *verdict, const struct shoali_rank_view *view,
                          int32_t ranks)
{
    const bool named = view && verdict->rank >= 0 && verdict->rank < ranks;
    const struct shoali_rank_view *culprit =
        named && view[verdict->rank].known ? &view[verdict->rank] : NULL;
    const struct shoali_status_page_view *page = culprit ? &culprit->page : NULL;
    print_first(verdict);
    if (page && page->failure != 0)
        SHOALI_ERROR("launcher", "  why: %s", page->sentence);
    if (page) {
        print_where(page);
        print_call(page);
    }
    if (view && (page || verdict->rank < 0))
        print_others(view, ranks, verdict->rank);
    for (int32_t i = 0; page && i < SHOALI_STATUS_PAGE_LINES; i++)
        if (page->line[i][0])
            SHOALI_ERROR("launcher", "  it said: %s", page->line[i]);
    if (page && verdict->log_folder)
        SHOALI_ERROR("launcher", "  its log: %s/*_rank%d.log", verdict->log_folder,
                     (int)verdict->rank);
    const char *advice = advice_of(verdict, page);
    if (advice && (page || verdict->cause != SHOALI_CAUSE_ENDED))
        SHOALI_ERROR("launcher", "  what to do: %s", advice);
}
