/* The parent of a rank that an MPI launcher or Slurm has started. mpirun says of a failed rank at
 * most a signal, and some never tell, or wait for ever; this process tells the front what the
 * rank's status page says, and ends with it. The rank finds its MPI by the environment and the
 * descriptors that it inherits, as through any wrapper script. */
#include "launcher/cluster/cluster.h"
#include "launcher/watch/watch.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOP_NS INT64_C(500000000)
#define NAP_NS INT64_C(50000000)

static int64_t kill_deadline(const struct shoali_job *job)
{
    return shoali_deadline_ns(job->args->grace_period * INT64_C(1000000000) + STOP_NS);
}

static pid_t start_rank(const char *path, char **argv, char **envp, const sigset_t *mask, int log)
{
    const pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    /* It must not outlive this process, which mpirun may kill. */
    signal(SIGPIPE, SIG_DFL); /* start.c ignores it for mpirun */
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) /* its parent's input is the lifeline */
        dup2(null, STDIN_FILENO);
    if (null > STDIN_FILENO)
        close(null);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
        (log < 0 || (dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0)) &&
        sigprocmask(SIG_SETMASK, mask, NULL) == 0)
        execve(path, argv, envp);
    fprintf(stderr, "shoal: cannot start %s: %s\n", path, strerror(errno));
    _exit(127);
}

/* Passes signals on to the rank until it ends. mpirun signals its processes' groups, so the rank
 * may have them already; a second time is no harm but to who counts them: SIGUSR1 asks for one
 * save. */
static void await_rank(struct shoali_job *job, int signals)
{
    struct shoali_rank *rank = &job->rank[0];
    struct signalfd_siginfo info;
    struct pollfd watched[2] = {{.fd = signals, .events = POLLIN}, {.events = POLLIN}};
    int64_t kill_ns = INT64_MAX;
    int64_t again_ns = INT64_MAX; /* from when on a signal is the user's second */
    int how = 0;
    while (waitpid(rank->pid, &how, WNOHANG) != rank->pid) {
        int64_t until = job->poll_ns < kill_ns ? job->poll_ns : kill_ns;
        until -= shoali_now_ns();
        watched[1].fd = job->lifeline;
        poll(watched, 2, until > 0 ? (int)(until / 1000000 + 1) : 0);
        while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            if (info.ssi_signo == SIGCHLD)
                continue;
            kill(rank->pid, (int)info.ssi_signo);
            if (info.ssi_signo == SIGUSR1)
                continue;
            job->impatient = job->impatient || shoali_deadline_passed(again_ns);
            again_ns = job->stop_signal ? again_ns : shoali_deadline_ns(STOP_NS);
            job->stop_signal = (int)info.ssi_signo;
            kill_ns = kill_deadline(job);
        }
        (void)shoali_lifeline_receive(job); /* SIGUSR1 comes as a signal */
        shoali_poll(job);
        if (job->stop_signal && kill_ns == INT64_MAX) {
            kill(rank->pid, SIGTERM);
            kill_ns = kill_deadline(job);
        }
        if (job->impatient && kill_ns < INT64_MAX - 1)
            kill_ns = 0;
        if (job->silent >= 0 || shoali_deadline_passed(kill_ns)) {
            if (job->silent >= 0 && kill_ns == INT64_MAX)
                shoali_poll_report(job, "");
            kill(rank->pid, SIGKILL);
            kill_ns = INT64_MAX - 1;
        }
    }
    rank->code = WIFEXITED(how) ? WEXITSTATUS(how) : 0;
    rank->signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

/* A wrapper may have ended while what it started still saves; no mpirun ends it where the
 * connection is gone. */
static void end_orphans(const struct shoali_job *job)
{
    const int64_t deadline = kill_deadline(job);
    while (shoali_cleanup_processes(job, SHOALI_COUNT) > 0 && !shoali_deadline_passed(deadline))
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    (void)shoali_cleanup_processes(job, SHOALI_KILL);
}

shoal_status shoali_mpi_watch(struct shoali_job *job, int32_t local_rank, const char *path,
                              char **argv, char **envp, int *exit_code)
{
    shoal_status status = SHOAL_OK;
    struct shoali_rank rank = {0};
    sigset_t set, old;
    int held = -1;
    /* One rank of the host is this process' job; the first one of each speaks for the host. */
    job->rank = &rank;
    job->first_rank += local_rank;
    job->ranks = 1;
    job->reports = true;
    job->beats = local_rank == 0;
    job->of_mpi = true;
    job->receives_nothing = true;
    if (!shoali_process_read(getpid(), &job->self))
        return SHOAL_FAIL(SHOAL_EIO, "cannot read /proc/self/stat");
    if (!shoali_process_read(job->self.parent, &job->daemon) ||
        strcmp(job->daemon.name, "orted") != 0)
        job->daemon = (struct shoali_process){0};
    if (job->beats)
        shoali_stale_segments_unlink();
    held = shoali_job_hold(job->id);
    SHOAL_TRY(status, shoali_poll_begin(job), done);
    SHOAL_TRY(status, shoali_guard_start(job), done);
    shoali_job_signals(&set);
    sigprocmask(SIG_BLOCK, &set, &old);
    const int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    shoali_lifeline_begin(job, STDIN_FILENO);
    rank.pid = signals < 0 ? -1 : start_rank(path, argv, envp, &old, job->log_file);
    if (rank.pid < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot start %s: %s", path, strerror(errno));
        goto done;
    }
    job->culprit = 0; /* whom the report is about */
    await_rank(job, signals);
    if (job->cut_off) {
        end_orphans(job);
        shoali_cleanup_orted(&job->daemon, getenv("OMPI_MCA_orte_jobfam_session_dir"));
    }
    if ((rank.code || rank.signal) && job->stop_signal)
        shoali_poll_last_words(job);
    else if ((rank.code || rank.signal) && job->silent < 0)
        shoali_poll_report(job, "");
    shoali_poll_unlink(job);
    if (rank.code == 0 && rank.signal == 0) /* else there may be more to clear away */
        shoali_guard_stop(job);
    *exit_code = rank.signal ? 128 + rank.signal : rank.code;
done:
    shoali_job_let_go(held, job->id);
    shoali_poll_end(job);
    return status;
}
