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
#include "launcher/ranks.h"

#include "base/error.h"
#include "base/log.h"

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
    return view && view->known && view->board.failure == (int64_t)SHOAL_EPEER;
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
        SHOALI_ERROR("launcher", "the ranks wait for each other: none has gone on for %.1f s%s%s",
                     (double)verdict->silent_ns * 1e-9, *rest ? "; " : "", rest);
        return;
    }
    snprintf(who, sizeof(who), "rank %d (%.80s%spid %d)", (int)verdict->rank, host, comma,
             (int)verdict->pid);
    if (verdict->cause == SHOALI_CAUSE_SILENT)
        snprintf(what, sizeof(what), "has made no progress for %.1f s",
                 (double)verdict->silent_ns * 1e-9);
    else if (verdict->cause == SHOALI_CAUSE_CRASH)
        snprintf(what, sizeof(what), "was killed by signal %d (%s), in whose handler it hung",
                 verdict->signal, strsignal(verdict->signal));
    else if (verdict->signal)
        snprintf(what, sizeof(what), "was killed by signal %d (%s)", verdict->signal,
                 strsignal(verdict->signal));
    else
        snprintf(what, sizeof(what), "exited with code %d", verdict->code);
    SHOALI_ERROR("launcher", "%s %s%s%s", who, what, *rest ? "; " : "", rest);
}

static void print_where(const struct shoali_board_view *board)
{
    char text[256];
    int at = 0;
    if (board->name[0])
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s", board->name);
    if (board->step >= 0)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%sstep %lld", at ? "; " : "",
                       (long long)board->step + 1);
    if (board->goal > 0 && board->step >= 0)
        at += snprintf(text + at, sizeof(text) - (size_t)at, " of %lld", (long long)board->goal);
    if (board->doing[0] && at < (int)sizeof(text))
        at += snprintf(text + at, sizeof(text) - (size_t)at, ", in %s", board->doing);
    if (board->doing[0] && board->micro >= 0 && at < (int)sizeof(text))
        at += snprintf(text + at, sizeof(text) - (size_t)at, " of micro-batch %lld",
                       (long long)board->micro);
    if (at > 0)
        SHOALI_ERROR("launcher", "  where: %s", text);
}

/* "all_reduce of 12 f32 at src/a.c:10" */
static void format_call(const struct shoali_board_view *board, char *text, size_t bytes)
{
    const char *from = strstr(board->here, "src/");
    snprintf(text, bytes, "%s of %lld %s at %s", board->collective, (long long)board->count,
             board->dtype, from ? from : board->here);
}

static void print_call(const struct shoali_board_view *board)
{
    char call[256];
    if (board->posted == 0)
        return;
    format_call(board, call, sizeof(call));
    SHOALI_ERROR("launcher", "  its last call: %s, %s", call,
                 board->unfinished > 0 ? "where it waited for the others"
                                       : "which was over: it did not come to the next one");
}

static bool waits_alike(const struct shoali_board_view *a, const struct shoali_board_view *b)
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
        bool told = false;
        if (r == culprit || !view[r].known || view[r].board.unfinished <= 0)
            continue;
        for (int32_t other = 0; other < r && !told; other++)
            told = other != culprit && view[other].known && view[other].board.unfinished > 0 &&
                   waits_alike(&view[other].board, &view[r].board);
        for (int32_t other = r; other < ranks && !told; other++)
            if (other != culprit && view[other].known && view[other].board.unfinished > 0 &&
                waits_alike(&view[other].board, &view[r].board)) {
                if (at < (int)sizeof(list) - 16)
                    at += snprintf(list + at, sizeof(list) - (size_t)at, "%s%d", count ? ", " : "",
                                   (int)other);
                count++;
            }
        if (told)
            continue;
        format_call(&view[r].board, call, sizeof(call));
        SHOALI_ERROR("launcher", "  rank%s %s %s in %s", count > 1 ? "s" : "", list,
                     count > 1 ? "were" : "was", call);
        lines++;
    }
}

static const char *advice_of(const struct shoali_verdict *verdict,
                             const struct shoali_board_view *board)
{
    if (verdict->cause == SHOALI_CAUSE_MEMORY)
        return "the kernel killed it for want of memory: `shoal plan` with the same flags says "
               "what "
               "a rank needs; fewer ranks of a host, a smaller micro-batch, recompute or offload "
               "need less";
    if (verdict->cause == SHOALI_CAUSE_SILENT)
        return "its process ran not at all: stopped (kill -STOP), waiting for a disk or a network "
               "file system, or for a lock; `--silent_rank_timeout` sets how long is too long";
    if (verdict->cause == SHOALI_CAUSE_STUCK)
        return "one of them has made a call that the others have not, or left one out: compare the "
               "places, and what leads there (different data, files, configuration or code); "
               "`--silent_rank_timeout` sets how long is too long";
    if (verdict->cause == SHOALI_CAUSE_HOST)
        return "look whether the host runs and its network is up; ranks there end by themselves "
               "when they find the connection gone; `--host_timeout` sets how long is too long";
    if (verdict->signal == SIGSEGV || verdict->signal == SIGBUS || verdict->signal == SIGILL ||
        verdict->signal == SIGFPE || verdict->signal == SIGABRT)
        return "a bug of the program or a damaged build: start the rank under a debugger, or let "
               "it "
               "leave a core file (ulimit -c unlimited)";
    if (verdict->signal == SIGKILL)
        return "somebody sent it that, or memory ran out: dmesg tells of the second; continue from "
               "the last checkpoint with --load";
    if (board && board->failure == (int64_t)SHOAL_EMISMATCH)
        return "the ranks did not do the same: compare the two places, and what leads there "
               "(different data, files, configuration or code)";
    if (board && board->failure == (int64_t)SHOAL_ETIMEOUT)
        return "look at the rank that did not come: its host, its output";
    return NULL;
}

void shoali_verdict_print(const struct shoali_verdict *verdict, const struct shoali_rank_view *view,
                          int32_t ranks)
{
    const bool named = view && verdict->rank >= 0 && verdict->rank < ranks;
    const struct shoali_rank_view *culprit =
        named && view[verdict->rank].known ? &view[verdict->rank] : NULL;
    const struct shoali_board_view *board = culprit ? &culprit->board : NULL;
    print_first(verdict);
    if (board && board->failure != 0)
        SHOALI_ERROR("launcher", "  why: %s", board->sentence);
    if (board) {
        print_where(board);
        print_call(board);
    }
    if (view && (board || verdict->rank < 0))
        print_others(view, ranks, verdict->rank);
    for (int32_t i = 0; board && i < SHOALI_BOARD_LINES; i++)
        if (board->line[i][0])
            SHOALI_ERROR("launcher", "  it said: %s", board->line[i]);
    if (board && verdict->log_folder)
        SHOALI_ERROR("launcher", "  its log: %s/*_rank%d.log", verdict->log_folder,
                     (int)verdict->rank);
    const char *advice = advice_of(verdict, board);
    if (advice && (board || verdict->cause != SHOALI_CAUSE_ENDED))
        SHOALI_ERROR("launcher", "  what to do: %s", advice);
}
