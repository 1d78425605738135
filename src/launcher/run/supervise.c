/* Ranks are watched through one signalfd, and their status pages once a second. When a rank
 * fails the others get SIGTERM and a grace, then SIGKILL with all that they started. What ranks
 * leave behind that end well gets the same grace. That one has ended without a failure is noted for
 * those that wait for it to join. */
#include "launcher/run/run.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/waiting.h"
#include "comm/shm/shm.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_NS INT64_C(300000000)
#define KILL_WAIT_NS INT64_C(600000000)
#define SWEEP_NS INT64_C(10000000)
#define SAVING_NS INT64_C(50000000)
#define LISTEN_NS INT64_C(300000000)
#define WAIT_NS INT64_C(1000000000) /* between two looks at how long ranks save */

/* A number of the ranks or of the guard, which stay zombies until the end. */
static bool is_kept(const struct shoali_job *job, pid_t pid)
{
    bool kept = pid == job->guard;
    for (int32_t i = 0; i < job->ranks && !kept; i++)
        kept = job->rank[i].pid == pid;
    return kept;
}

/* Orphans that were adopted and have ended would else stay zombies as long as the job runs. The
 * kernel shows the oldest zombie first: once a rank is one, those of which a signal tells have to
 * do. */
static void reap_orphans(const struct shoali_job *job, pid_t named)
{
    siginfo_t info = {.si_pid = 0};
    if (!job->reaper)
        return;
    if (named > 0 && !is_kept(job, named))
        waitpid(named, NULL, WNOHANG);
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0 &&
           !is_kept(job, info.si_pid)) {
        waitpid(info.si_pid, NULL, WNOHANG);
        info.si_pid = 0;
    }
}

/* Whether a process has a handler for a signal; one without it would die of it. */
static bool catches(pid_t pid, int signal)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "SigCgt: %llx", &caught) == 1)
            break;
    if (file)
        fclose(file);
    return caught >> (signal - 1) & 1;
}

/* SIGUSR1 is the ranks': shoal pretrain saves. */
static void pass_on(const struct shoali_job *job, int signal)
{
    int32_t takers = 0;
    for (int32_t i = 0; i < job->ranks; i++)
        if (job->rank[i].pid > 0 && catches(job->rank[i].pid, signal))
            takers += kill(job->rank[i].pid, signal) == 0;
    if (takers == 0)
        SHOALI_WARN("launcher", "SIGUSR1 was not passed on: no rank has a handler for it (yet)");
}

/* Waits for a signal, at most timeout_ns, and takes note of all that came. */
static void wait_signals(struct shoali_job *job, int64_t timeout_ns)
{
    struct pollfd watched[] = {{.fd = job->signal_fd, .events = POLLIN},
                               {.fd = job->lifeline, .events = POLLIN},
                               {.fd = job->signal_pipe, .events = POLLIN}};
    if (job->lifeline >= 0 && job->lifeline_end_ns != INT64_MAX) {
        const int64_t left_ns = job->lifeline_end_ns - shoali_now_ns();
        if (timeout_ns < 0 || left_ns < timeout_ns)
            timeout_ns = left_ns > 0 ? left_ns : 0;
    }
    int milliseconds = timeout_ns < 0 ? -1 : (int)((timeout_ns + 999999) / 1000000);
    const int ready = poll(watched, sizeof(watched) / sizeof(watched[0]), milliseconds);
    if (shoali_lifeline_receive(job) == SIGUSR1)
        pass_on(job, SIGUSR1);
    if (ready <= 0)
        return;
    struct signalfd_siginfo info[8];
    ssize_t bytes;
    while ((bytes = read(job->signal_fd, info, sizeof(info))) > 0) {
        for (size_t i = 0; i < (size_t)bytes / sizeof(info[0]); i++) {
            if (info[i].ssi_signo == SIGCHLD) {
                reap_orphans(job, (pid_t)info[i].ssi_pid);
                continue;
            }
            if (info[i].ssi_signo == SIGUSR1) {
                pass_on(job, SIGUSR1);
                continue;
            }
            job->asked = job->asked ? job->asked : (int)info[i].ssi_signo;
            /* The first says why the job ends, a second that the user is in a hurry. */
            if (job->stop_signal || job->culprit >= 0)
                job->impatient = true;
            else
                job->stop_signal = (int)info[i].ssi_signo;
        }
    }
}

/* A look at the status pages costs some microseconds a rank. */
static void wait_and_look(struct shoali_job *job)
{
    const int64_t left_ns = job->poll_ns - shoali_now_ns();
    wait_signals(job, left_ns > 0 ? left_ns : 0);
    shoali_poll(job);
    if (job->silent >= 0 && job->culprit < 0 && !job->stop_signal && !job->failed_elsewhere)
        job->culprit = job->silent;
    if (job->is_stuck && job->culprit < 0 && !job->stop_signal && !job->failed_elsewhere)
        job->culprit = 0; /* one of all */
}

static bool failed(const struct shoali_rank *rank)
{
    return rank->signal || rank->code;
}

/* Exit code 1 is also how a rank ends that was told of another's failure. */
static bool may_be_echo(const struct shoali_rank *rank)
{
    return !rank->signal && rank->code == 1;
}

/* Did it die of itself, and not of what the launcher sent after the first failure? */
static bool is_cause(const struct shoali_job *job, const struct shoali_rank *rank)
{
    if (rank->signal)
        return !(rank->signal == SIGTERM && job->term_sent) &&
               !(rank->signal == SIGKILL && job->kill_sent);
    return rank->code > 1 && rank->code != 128 + SIGTERM;
}

static void blame(struct shoali_job *job, int index)
{
    const struct shoali_rank *rank = &job->rank[index];
    if (!failed(rank) || job->stop_signal || job->failed_elsewhere)
        return;
    if (job->culprit < 0)
        job->culprit = index;
    else if (may_be_echo(&job->rank[job->culprit]) && is_cause(job, rank))
        job->culprit = index;
}

/* Looks which ranks have ended; they stay zombies. */
static void collect(struct shoali_job *job)
{
    for (int index = 0; index < job->ranks; index++) {
        struct shoali_rank *rank = &job->rank[index];
        siginfo_t info = {.si_pid = 0};
        if (!rank->running ||
            waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == 0)
            continue;
        rank->running = false;
        job->running--;
        if (info.si_code == CLD_EXITED)
            rank->code = info.si_status;
        else
            rank->signal = info.si_status;
        if (!failed(rank) && job->running > 0)
            shoali_shm_note_ended(job->id, job->first_rank + index);
        if (!failed(rank))
            shoali_processes_say_end(rank->pid);
        blame(job, index);
    }
}

/* To every rank and its group. Zombies keep their numbers, so no stranger can be hit. */
static void send_all(const struct shoali_job *job, int signal)
{
    for (int32_t i = 0; i < job->ranks; i++) {
        const struct shoali_rank *rank = &job->rank[i];
        if (rank->pid > 0 && rank->own_group)
            kill(-rank->pid, signal);
        else if (rank->pid > 0)
            kill(rank->pid, signal);
    }
}

/* Ranks that the failure takes with it: those that ran, and those that had learnt of it and left.
 * */
static int32_t count_others(const struct shoali_job *job)
{
    int32_t others = 0;
    for (int index = 0; index < job->ranks; index++)
        others += index != job->culprit && (job->rank[index].stopped || failed(&job->rank[index]));
    return others;
}

/* Whoever read standard output, like head(1), has what it wanted. */
static bool reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
}

/* What happened to a rank: "rank 1 (pid 12) exited with code 5". */
static void describe(const struct shoali_job *job, int index, char *text, size_t bytes)
{
    const struct shoali_rank *rank = &job->rank[index];
    const char *host = job->host ? job->host : "", *comma = job->host ? ", " : "";
    const int number = job->first_rank + index;
    if (rank->signal)
        snprintf(text, bytes, "rank %d (%.80s%spid %d) was killed by signal %d (%s)", number, host,
                 comma, (int)rank->pid, rank->signal, strsignal(rank->signal));
    else
        snprintf(text, bytes, "rank %d (%.80s%spid %d) exited with code %d", number, host, comma,
                 (int)rank->pid, rank->code);
}

/* Were the ranks given time to end by themselves, and have all of them ended well? */
static bool all_saved(const struct shoali_job *job)
{
    bool saved = job->args->grace_period > 0 && job->culprit < 0 && job->running == 0;
    for (int32_t i = 0; i < job->ranks && saved; i++)
        saved = !failed(&job->rank[i]);
    return saved;
}

/* That the user stopped the job, and how its ranks took it. */
static void report_stop(const struct shoali_job *job)
{
    char text[256], signal[64];
    int failure = -1;
    snprintf(signal, sizeof(signal), "stopped by signal %d (%s)", job->stop_signal,
             strsignal(job->stop_signal));
    for (int32_t i = 0; i < job->ranks && failure < 0; i++)
        if (job->args->grace_period > 0 && !job->rank[i].running && failed(&job->rank[i]) &&
            !(job->rank[i].signal == SIGTERM || job->rank[i].code == 128 + SIGTERM ||
              job->rank[i].signal == job->stop_signal))
            failure = i;
    if (all_saved(job)) {
        SHOALI_INFO("launcher", "%s: all ranks have ended by themselves with code 0", signal);
    } else if (failure >= 0) {
        describe(job, failure, text, sizeof(text));
        SHOALI_ERROR("launcher", "%s; %s instead of 0", signal, text);
    } else if (job->args->grace_period > 0 && job->running > 0) {
        SHOALI_ERROR("launcher", "%s; %s; ending what still runs (%d of %d ranks)", signal,
                     job->impatient ? "a second signal came" : "the grace period is over",
                     job->running, job->ranks);
    } else {
        SHOALI_ERROR("launcher", "%s; stopping %d rank%s", signal, count_others(job),
                     count_others(job) == 1 ? "" : "s");
    }
}

/* A rank that leaves with it has said in a sentence what is wrong with its command line or its
 * configuration; which rank that was, and how many learnt of it, is nothing to the user. */
enum { USAGE = 2 };

static void report(struct shoali_job *job)
{
    char rest[48] = "no other rank was running";
    const int32_t others = count_others(job);
    if (job->culprit < 0 && job->failed_elsewhere && !job->stop_signal) {
        shoali_poll_last_words(job); /* the host where it did has said so */
        return;
    }
    if (job->culprit < 0) {
        report_stop(job);
        if (job->reports)
            shoali_poll_last_words(job);
        if (job->reports || job->node_rank > 0 || job->failed_elsewhere)
            return; /* the front says it */
        (void)shoali_ranks_poll(job->id, job->world_ranks, job->view);
        shoali_stop_report(job->args->program, job->view, job->world_ranks, all_saved(job));
        return;
    }
    shoali_processes_say_failure(job);
    if (job->is_stuck)
        snprintf(rest, sizeof(rest), "stopping all %d", job->ranks);
    else if (others > 0)
        snprintf(rest, sizeof(rest), "stopping the other %d", others);
    if (job->rank[job->culprit].signal == SIGPIPE && reader_left())
        return;
    if (job->rank[job->culprit].code == USAGE && job->rank[job->culprit].signal == 0 &&
        !shoali_poll_refused(job, job->culprit))
        return;
    shoali_poll_report(job, rest);
}

void shoali_job_kill(struct shoali_job *job)
{
    int64_t deadline = shoali_deadline_ns(KILL_WAIT_NS);
    job->kill_sent = true;
    for (;;) {
        send_all(job, SIGKILL);
        int32_t strangers = shoali_cleanup_processes(job, SHOALI_KILL);
        collect(job);
        if ((job->running == 0 && strangers == 0) || shoali_deadline_passed(deadline))
            break;
        wait_signals(job, SWEEP_NS);
    }
    if (job->running > 0)
        SHOALI_ERROR("launcher", "%d rank%s not end although killed (waiting for a device?)",
                     job->running, job->running == 1 ? " does" : "s do");
}

static int64_t grace_of(const struct shoali_job *job)
{
    const int32_t seconds = job->args->grace_period;
    if (job->culprit >= 0 || job->failed_elsewhere || seconds == 0)
        return GRACE_NS;
    SHOALI_INFO("launcher",
                "signal %d (%s): the ranks have %d s to end by themselves; a second signal ends "
                "them at once",
                job->stop_signal, strsignal(job->stop_signal), (int)seconds);
    return seconds * INT64_C(1000000000);
}

/* A wrapper may end of the signal while what it started still saves. */
static bool is_saving(const struct shoali_job *job)
{
    return job->args->grace_period > 0 && job->culprit < 0 && !job->failed_elsewhere &&
           shoali_cleanup_processes(job, SHOALI_COUNT) > 0;
}

/* A rank that was killed said nothing. The others look for such ranks when they wait for it: one of
 * them says which it was and in what, if it is not ended before. */
static void listen_to_ranks(struct shoali_job *job)
{
    const int64_t deadline = shoali_deadline_ns(LISTEN_NS);
    const int32_t running = job->running;
    /* SIGPIPE: whoever read its output has left, and nothing has failed */
    if (job->culprit < 0 || job->rank[job->culprit].signal == 0 ||
        job->rank[job->culprit].signal == SIGPIPE)
        return;
    while (!job->impatient && job->running == running && !shoali_deadline_passed(deadline)) {
        wait_signals(job, deadline - shoali_now_ns());
        collect(job);
    }
}

/* The front says it where there is one. */
static void say_saving(const struct shoali_job *job, struct shoali_waiting *waiting)
{
    if (shoali_waiting_due(waiting, NULL) && !job->reports)
        SHOALI_WARN("launcher",
                    "waiting for %.0f s for %d of %d ranks to save and end; a second signal ends "
                    "them at once",
                    shoali_waiting_seconds(waiting), (int)job->running, (int)job->ranks);
}

static void stop(struct shoali_job *job)
{
    for (int32_t i = 0; i < job->ranks; i++)
        job->rank[i].stopped = job->rank[i].running;
    listen_to_ranks(job);
    int64_t deadline = shoali_deadline_ns(grace_of(job));
    job->term_sent = true;
    send_all(job, SIGTERM);
    (void)shoali_cleanup_processes(job, SHOALI_ASK);
    struct shoali_waiting waiting = {0};
    while (!job->impatient && !shoali_deadline_passed(deadline)) {
        int64_t wait_ns = deadline - shoali_now_ns();
        if (job->running == 0) {
            if (!is_saving(job))
                break;
            /* Not all of them are children whose end is a signal. */
            wait_ns = wait_ns < SAVING_NS ? wait_ns : SAVING_NS;
        }
        wait_signals(job, wait_ns < WAIT_NS ? wait_ns : WAIT_NS);
        collect(job);
        say_saving(job, &waiting);
    }
    report(job);
    shoali_job_kill(job);
}

/* Lets go of the ranks, which have all ended, so that what is left as a child is an orphan. */
static bool has_no_children(struct shoali_job *job)
{
    for (int32_t i = 0; i < job->ranks; i++) {
        waitpid(job->rank[i].pid, NULL, 0);
        job->rank[i].pid = 0;
    }
    pid_t orphan;
    do
        orphan = waitpid(-1, NULL, WNOHANG);
    while (orphan > 0);
    return orphan < 0 && errno == ECHILD;
}

/* All ranks have ended well. What they started and left, a wrapper's daemon or a helper, ends with
 * the job: with its ranks gone nobody would look after it. */
static void clear_up(struct shoali_job *job)
{
    const int64_t deadline = shoali_deadline_ns(GRACE_NS);
    int32_t count;
    shoali_guard_stop(job);
    if (job->reaper && has_no_children(job))
        return;
    while ((count = shoali_cleanup_processes(job, SHOALI_COUNT)) > 0 &&
           !shoali_deadline_passed(deadline))
        wait_signals(job, SWEEP_NS);
    if (count == 0)
        return;
    SHOALI_WARN("launcher",
                "%d process%s outlived the ranks that started %s and %s ended: a wrapper must wait "
                "for its child processes (or exec them)",
                (int)count, count == 1 ? "" : "es", count == 1 ? "it" : "them",
                count == 1 ? "is" : "are");
    shoali_job_kill(job);
}

static int exit_code_of(const struct shoali_job *job)
{
    if (job->culprit < 0 && job->failed_elsewhere && !job->stop_signal)
        return 128 + SIGTERM;
    if (job->culprit < 0)
        return job->stop_signal && !all_saved(job) ? 128 + job->stop_signal : 0;
    const struct shoali_rank *rank = &job->rank[job->culprit];
    if (job->silent == job->culprit && job->crash)
        return 128 + job->crash;
    if (job->silent == job->culprit || job->is_stuck)
        return 1; /* it was ended by the launcher */
    return rank->signal ? 128 + rank->signal : rank->code;
}

shoal_status shoali_job_supervise(struct shoali_job *job, int *exit_code)
{
    collect(job);
    while (job->running > 0 && job->culprit < 0 && !job->stop_signal && !job->failed_elsewhere) {
        wait_and_look(job);
        collect(job);
    }
    if (job->culprit >= 0 || job->stop_signal || job->failed_elsewhere)
        stop(job);
    else
        clear_up(job);
    *exit_code = exit_code_of(job);
    return SHOAL_OK;
}
