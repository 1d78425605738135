/* Ranks are watched through one signalfd: nothing is polled while the job is healthy. When a rank
 * fails the others get SIGTERM and a grace, then SIGKILL with all that they started. That one has
 * ended without a failure is noted for those that wait for it to join. */
#include "launcher/launcher.h"

#include "base/clock.h"
#include "base/log.h"
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
#define FOREVER_NS INT64_C(-1)

/* Waits for a signal, at most timeout_ns, and takes note of all that came. */
static void wait_signals(struct shoali_job *job, int64_t timeout_ns)
{
    struct pollfd descriptor = {.fd = job->signal_fd, .events = POLLIN};
    int milliseconds = timeout_ns < 0 ? -1 : (int)((timeout_ns + 999999) / 1000000);
    if (poll(&descriptor, 1, milliseconds) <= 0)
        return;
    struct signalfd_siginfo info[8];
    ssize_t bytes;
    while ((bytes = read(job->signal_fd, info, sizeof(info))) > 0) {
        for (size_t i = 0; i < (size_t)bytes / sizeof(info[0]); i++) {
            if (info[i].ssi_signo == SIGCHLD)
                continue;
            /* The first says why the job ends, a second that the user is in a hurry. */
            if (job->stop_signal || job->culprit >= 0)
                job->impatient = true;
            else
                job->stop_signal = (int)info[i].ssi_signo;
        }
    }
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
    if (!failed(rank) || job->stop_signal)
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
            shoali_shm_note_ended(job->id, index);
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

/* Ranks that the failure takes with it: those that ran, and those that had heard of it and left. */
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

static void report(const struct shoali_job *job)
{
    int32_t others = count_others(job);
    char rest[48] = "no other rank was running";
    if (job->culprit < 0) {
        SHOALI_ERROR("launcher", "stopped by signal %d (%s); stopping %d rank%s", job->stop_signal,
                     strsignal(job->stop_signal), others, others == 1 ? "" : "s");
        return;
    }
    if (others > 0)
        snprintf(rest, sizeof(rest), "stopping the other %d", others);
    const struct shoali_rank *rank = &job->rank[job->culprit];
    if (rank->signal == SIGPIPE && reader_left())
        return;
    if (rank->signal)
        SHOALI_ERROR("launcher", "rank %d (pid %d) was killed by signal %d (%s); %s", job->culprit,
                     (int)rank->pid, rank->signal, strsignal(rank->signal), rest);
    else
        SHOALI_ERROR("launcher", "rank %d (pid %d) exited with code %d; %s", job->culprit,
                     (int)rank->pid, rank->code, rest);
}

void shoali_job_kill(struct shoali_job *job)
{
    int64_t deadline = shoali_deadline_ns(KILL_WAIT_NS);
    job->kill_sent = true;
    for (;;) {
        send_all(job, SIGKILL);
        int32_t strangers = shoali_leftover_processes_kill(job->id);
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
    if (job->culprit >= 0 || seconds == 0)
        return GRACE_NS;
    SHOALI_INFO("launcher", "signal %d (%s): the ranks have %d s to end by themselves",
                job->stop_signal, strsignal(job->stop_signal), (int)seconds);
    return seconds * INT64_C(1000000000);
}

static void stop(struct shoali_job *job)
{
    int64_t deadline = shoali_deadline_ns(grace_of(job));
    for (int32_t i = 0; i < job->ranks; i++)
        job->rank[i].stopped = job->rank[i].running;
    job->term_sent = true;
    send_all(job, SIGTERM);
    while (job->running > 0 && !job->impatient && !shoali_deadline_passed(deadline)) {
        wait_signals(job, deadline - shoali_now_ns());
        collect(job);
    }
    report(job);
    shoali_job_kill(job);
}

static int exit_code_of(const struct shoali_job *job)
{
    if (job->culprit < 0)
        return job->stop_signal ? 128 + job->stop_signal : 0;
    const struct shoali_rank *rank = &job->rank[job->culprit];
    return rank->signal ? 128 + rank->signal : rank->code;
}

shoal_status shoali_job_supervise(struct shoali_job *job, int *exit_code)
{
    collect(job);
    while (job->running > 0 && job->culprit < 0 && !job->stop_signal) {
        wait_signals(job, FOREVER_NS);
        collect(job);
    }
    if (job->culprit >= 0 || job->stop_signal)
        stop(job);
    *exit_code = exit_code_of(job);
    return SHOAL_OK;
}
