/* The status pages of a job's ranks while it runs and when it has failed (watch/watch.h): beats to
 * the front, the straggler, a rank that makes no progress, and the verdict. */
#include "launcher/run/run.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "comm/status_page_file.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS INT64_C(1000000000)
/* Less than these is nobody's trouble. */
#define STRAGGLER_LATE_MS 20.0
#define STRAGGLER_SHARE 0.3
/* LOOKS: in a row. Who starts, saves or waits for a lock is late for a moment. */
enum { STRAGGLER_MEETINGS = 4, STRAGGLER_LOOKS = 4 };
/* A rank in its handler of a fault that runs for less than a PART of the time prints no trace, but
 * hangs, and it is ended after CRASH_NS of that. */
enum { CRASH_RUN_PART = 20 };
#define CRASH_NS (2 * LOOK_NS)
enum { ROOM_MS = 1000 }; /* a slow reader makes some by then */
/* A program that refuses an argument has ended by then. */
#define REFUSAL_NS (10 * LOOK_NS)

/* Of a rank: how much of it had run when that changed last. */
struct shoali_rank_progress {
    int64_t run_ns, posted, since_ns, poll_ns;
    int crash;        /* the signal of a fault in whose handler it is; 0: none */
    int64_t crash_ns; /* since then */
};

void shoali_poll_end(struct shoali_job *job)
{
    shoali_free(job->view);
    shoali_free(job->progress);
    job->view = NULL;
    job->progress = NULL;
}

/* In one write, so that lines of ranks do not come between. False: nobody has read for so long that
 * there is no room. */
static bool send_lines(struct shoali_str *lines)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    const bool room = poll(&out, 1, ROOM_MS) != 0;
    if (room && !lines->failed && lines->length > 0)
        (void)!write(STDERR_FILENO, lines->text, lines->length);
    lines->length = 0;
    return room;
}

static void beat(struct shoali_job *job)
{
    struct shoali_str lines = {0};
    if (job->beats)
        shoali_str_append(&lines, "%cH\t%d\n", SHOALI_WIRE_MARK, (int)job->node_rank);
    bool room = send_lines(&lines);
    for (int32_t i = 0; i < job->ranks && room; i++) {
        const struct shoali_rank_view *view = &job->view[job->first_rank + i];
        if (view->known)
            shoali_wire_status_page(job->first_rank + i, view, &lines);
        room = send_lines(&lines);
    }
    shoali_str_fini(&lines);
}

/* A short silence is found in time by looking more often. */
static int64_t pace(const struct shoali_job *job)
{
    bool is_short = job->silence_ns > 0 && job->silence_ns < 4 * LOOK_NS;
    for (int32_t i = 0; i < job->ranks; i++)
        is_short = is_short || job->progress[i].crash;
    return is_short ? LOOK_NS / 4 : LOOK_NS;
}

shoal_status shoali_poll_begin(struct shoali_job *job)
{
    job->view =
        shoali_calloc((size_t)job->world_ranks, sizeof job->view[0], "status pages of ranks");
    job->progress = shoali_calloc((size_t)job->ranks, sizeof job->progress[0], "ranks' progress");
    job->memory_kills = shoali_memory_kills();
    job->begin_ns = shoali_now_ns();
    if (!job->view || !job->progress)
        return SHOAL_ENOMEM;
    job->beat_ns = shoali_deadline_ns(LOOK_NS);
    job->poll_ns = shoali_deadline_ns(pace(job));
    /* From its first word on the front finds out when the host is lost. */
    if (job->reports)
        beat(job);
    return SHOAL_OK;
}

/* Also before it has a status page. */
static bool is_stopped(const struct shoali_job *job, int32_t index)
{
    const struct shoali_rank_view *view = &job->view[job->first_rank + index];
    struct shoali_process process;
    if (view->known)
        return view->state == 'T';
    return shoali_process_read((int32_t)job->rank[index].pid, &process) && process.state == 'T';
}

/* Does a rank wait for others? Of those on other hosts it is not known. */
static bool some_wait(const struct shoali_job *job)
{
    bool waits = job->nodes > 1;
    for (int32_t r = 0; r < job->world_ranks; r++)
        waits = waits || (job->view[r].known && job->view[r].page.waited_ns > LOOK_NS / 2);
    return waits;
}

/* Is it anybody's trouble when nothing of the rank runs? Where waits are not counted, as while
 * ranks join or save, a slow disk is no failure. */
static bool is_wanted(const struct shoali_rank_view *view, bool waited_for)
{
    const bool gone = view->state == 0 || view->state == 'Z';
    return waited_for && view->known && !gone && view->page.backend[0];
}

/* The rank's process on this host; 0: none, or its number is another namespace's. */
static int32_t process_of(const struct shoali_job *job, int32_t index)
{
    const struct shoali_rank_view *view = &job->view[job->first_rank + index];
    if (!view->known)
        return (int32_t)job->rank[index].pid;
    return view->state == 0 || view->state == 'Z' ? 0 : (int32_t)view->page.pid;
}

/* Does the rank hang in its handler of a fault? Its other threads may run for ever. */
static bool has_crashed(const struct shoali_job *job, int32_t index,
                        struct shoali_rank_progress *progress)
{
    const int32_t pid = process_of(job, index);
    const int64_t now_ns = shoali_now_ns();
    const int64_t posted = job->view[job->first_rank + index].page.posted;
    const int crash = pid > 0 ? shoali_process_crash(pid) : 0;
    const bool anew = !progress->crash || posted != progress->posted;
    if (!crash) {
        if (progress->crash)
            *progress = (struct shoali_rank_progress){0};
        return false;
    }
    const int64_t run_ns = shoali_process_run_ns(pid);
    const bool works = (run_ns - progress->run_ns) * CRASH_RUN_PART > now_ns - progress->poll_ns;
    if (anew) { /* that of the first fault: handlers fail, too */
        progress->crash = crash;
        progress->crash_ns = now_ns;
    }
    if (anew || works)
        progress->since_ns = now_ns;
    progress->run_ns = run_ns;
    progress->posted = posted;
    progress->poll_ns = now_ns;
    const int64_t least_ns = job->silence_ns < CRASH_NS ? job->silence_ns : CRASH_NS;
    return now_ns - progress->since_ns >= least_ns ||
           now_ns - progress->crash_ns >= job->silence_ns;
}

/* Has nothing of the rank run for too long, and others wait for it? */
static bool is_silent(const struct shoali_job *job, int32_t index, bool waited_for,
                      struct shoali_rank_progress *progress)
{
    const struct shoali_rank_view *view = &job->view[job->first_rank + index];
    const int64_t now_ns = shoali_now_ns();
    const bool stopped = is_stopped(job, index);
    const bool wanted = stopped || is_wanted(view, waited_for);
    const bool moved = !wanted || progress->since_ns == 0 || view->run_ns != progress->run_ns ||
                       view->page.posted != progress->posted;
    /* Who waits for a stopped rank may be on another host, and look silent as well. */
    const int64_t limit_ns = job->silence_ns + (stopped ? 0 : LOOK_NS / 2);
    progress->run_ns = view->run_ns;
    progress->posted = view->page.posted;
    if (moved)
        progress->since_ns = now_ns;
    return now_ns - progress->since_ns >= limit_ns && job->world_ranks > 1 &&
           (view->page.world > 1 || !view->known);
}

/* The first rank that hangs; job->crash: how. */
static void find_silent(struct shoali_job *job)
{
    const bool waited_for = some_wait(job);
    for (int32_t i = 0; i < job->ranks; i++) {
        struct shoali_rank_progress *progress = &job->progress[i];
        bool hangs = has_crashed(job, i, progress);
        if (!progress->crash)
            hangs = is_silent(job, i, waited_for, progress);
        if (hangs && job->silence_ns > 0 && job->silent < 0) {
            job->silent = i;
            job->crash = progress->crash;
        }
    }
}

/* Later than a silent rank, which is the reason where there is one. */
static void find_stuck(struct shoali_job *job)
{
    if (job->silence_ns > 0 && !job->reports && job->silent < 0 &&
        shoali_ranks_stuck(job->view, job->world_ranks, job->silence_ns + LOOK_NS / 4, &job->stuck))
        job->is_stuck = true;
}

static void say_straggler(struct shoali_job *job)
{
    struct shoali_straggler straggler;
    if (job->warned_straggler || job->host)
        return;
    shoali_ranks_straggler(job->view, job->world_ranks, &straggler);
    job->warned_straggler = shoali_straggler_warn(&straggler, &job->straggler_polls, job->view);
}

bool shoali_straggler_warn(const struct shoali_straggler *straggler, int32_t *looks,
                           const struct shoali_rank_view *view)
{
    if (straggler->rank < 0 || straggler->meetings < STRAGGLER_MEETINGS ||
        straggler->late_ms < STRAGGLER_LATE_MS || straggler->others_wait < STRAGGLER_SHARE)
        *looks = 0;
    else
        ++*looks;
    if (*looks < STRAGGLER_LOOKS)
        return false;
    const struct shoali_status_page_view *page = &view[straggler->rank].page;
    SHOALI_WARN("launcher",
                "rank %d (%s%s%s) is slow: it reaches collectives %.0f ms after the first rank, "
                "and the others wait for it for %.0f %% of the time; `shoal top` shows more",
                (int)straggler->rank, page->host, page->name[0] ? ", " : "", page->name,
                straggler->late_ms, 100 * straggler->others_wait);
    return true;
}

void shoali_poll(struct shoali_job *job)
{
    const int64_t now_ns = shoali_now_ns();
    if (now_ns < job->poll_ns)
        return;
    /* Not looked for long: the launcher did not run itself, nor did perhaps its ranks. */
    if (now_ns - job->poll_ns > LOOK_NS)
        memset(job->progress, 0, (size_t)job->ranks * sizeof job->progress[0]);
    job->poll_ns = shoali_deadline_ns(pace(job));
    (void)shoali_ranks_poll(job->id, job->world_ranks, job->view);
    find_silent(job);
    find_stuck(job);
    if (now_ns < job->beat_ns)
        return;
    job->beat_ns = shoali_deadline_ns(LOOK_NS);
    say_straggler(job);
    if (job->reports)
        beat(job);
    if (job->receives_nothing && job->host_silence_ns > 0 && !job->stop_signal &&
        shoali_answers_silence_ns(job) >= job->host_silence_ns)
        shoali_lifeline_lose(job, SHOALI_LIFELINE_SILENT);
}

/* The first that ended may have learnt of the one that failed. */
static int32_t find_cause(const struct shoali_job *job)
{
    const int32_t culprit = job->culprit;
    if (!shoali_rank_is_echo(&job->view[job->first_rank + culprit]))
        return culprit;
    for (int32_t i = 0; i < job->ranks; i++) {
        const struct shoali_rank_view *view = &job->view[job->first_rank + i];
        if (view->known && view->page.failure != 0 && !shoali_rank_is_echo(view))
            return i;
    }
    return culprit;
}

static void send_last_words(const struct shoali_job *job)
{
    struct shoali_str lines = {0};
    for (int32_t i = 0; i < job->ranks; i++)
        if (job->view[job->first_rank + i].known) {
            shoali_wire_last_words(job->first_rank + i, &job->view[job->first_rank + i], &lines);
            send_lines(&lines);
        }
    shoali_str_fini(&lines);
}

void shoali_poll_last_words(struct shoali_job *job)
{
    (void)shoali_ranks_poll(job->id, job->world_ranks, job->view);
    if (job->reports)
        send_last_words(job);
}

void shoali_poll_unlink(const struct shoali_job *job)
{
    for (int32_t i = 0; i < job->ranks; i++)
        shoali_status_page_unlink(job->id, job->first_rank + i);
}

static void report_to_front(const struct shoali_job *job, const struct shoali_verdict *verdict)
{
    struct shoali_str lines = {0};
    send_last_words(job);
    shoali_str_append(&lines, "%cE\t%d\t%d\t%d\t%d\t%c\t%s\n", SHOALI_WIRE_MARK, (int)verdict->rank,
                      (int)verdict->pid, verdict->code, verdict->signal,
                      shoali_cause_letter(verdict->cause), job->host);
    send_lines(&lines);
    shoali_str_fini(&lines);
}

bool shoali_poll_refused(struct shoali_job *job, int32_t index)
{
    const struct shoali_rank *rank = &job->rank[index];
    (void)shoali_ranks_poll(job->id, job->world_ranks, job->view);
    return rank->code != 0 && rank->signal == 0 && !job->args->no_local_rank &&
           !job->view[job->first_rank + index].known &&
           shoali_now_ns() - job->begin_ns < REFUSAL_NS &&
           !shoali_program_is_self(job->args->program[0]);
}

void shoali_poll_report(struct shoali_job *job, const char *rest)
{
    (void)shoali_ranks_poll(job->id, job->world_ranks, job->view);
    const int32_t index = find_cause(job);
    const struct shoali_rank *rank = &job->rank[index];
    struct shoali_verdict verdict = {.rank = job->first_rank + index,
                                     .pid = (int32_t)rank->pid,
                                     .code = rank->code,
                                     .signal = rank->signal,
                                     .host = job->host,
                                     .rest = rest,
                                     .log_folder = job->args->rank_log_folder,
                                     .silent_ns = job->silence_ns};
    const struct shoali_rank_view *view = &job->view[job->first_rank + index];
    /* It had failed, and was ended while it gave up what it held: the failure is what counts. */
    if (index != job->culprit && view->known && view->page.failure != 0 &&
        ((rank->signal == SIGTERM && job->term_sent) ||
         (rank->signal == SIGKILL && job->kill_sent))) {
        verdict.signal = 0;
        verdict.code = 1;
    }
    if (job->is_stuck) {
        verdict.silent_ns = shoali_stuck_limit(&job->stuck, job->silence_ns);
        verdict.cause = SHOALI_CAUSE_STUCK;
        verdict.rank = -1;
    } else if (index == job->silent && job->crash) {
        verdict.cause = SHOALI_CAUSE_CRASH;
        verdict.signal = job->crash;
    } else if (index == job->silent)
        verdict.cause = SHOALI_CAUSE_SILENT;
    else if (verdict.signal == SIGKILL && job->memory_kills >= 0 &&
             shoali_memory_kills() > job->memory_kills)
        verdict.cause = SHOALI_CAUSE_MEMORY;
    else if (shoali_poll_refused(job, index))
        verdict.cause = SHOALI_CAUSE_REFUSED;
    if (job->reports)
        report_to_front(job, &verdict);
    else
        shoali_verdict_print(&verdict, job->view, job->world_ranks);
}
