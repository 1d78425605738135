/* The parent of a rank that an MPI launcher or Slurm has started. mpirun says of a failed rank at most
 * a signal, and some never tell, or wait for ever; this process tells the front what the rank's board
 * says, and ends with it. The rank finds its MPI by the environment and the descriptors that it
 * inherits, as through any wrapper script. */
#include "launcher/cluster.h"
#include "launcher/ranks.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOP_NS INT64_C(500000000)

static pid_t start_rank(const char *path, char **argv, char **envp, const sigset_t *mask)
{
    const pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    /* It must not outlive this process, which mpirun may kill. */
    signal(SIGPIPE, SIG_DFL); /* start.c ignores it for mpirun */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
        sigprocmask(SIG_SETMASK, mask, NULL) == 0)
        execve(path, argv, envp);
    fprintf(stderr, "shoal: cannot start %s: %s\n", path, strerror(errno));
    _exit(127);
}

/* Passes signals on to the rank until it ends. mpirun signals its processes' groups, so the rank may
 * have them already; a second time is no harm but to who counts them: SIGUSR1 asks for one save. */
static void await_rank(struct shoali_job *job, int signals)
{
    struct shoali_rank *rank = &job->rank[0];
    struct signalfd_siginfo info;
    struct pollfd watched = {.fd = signals, .events = POLLIN};
    int64_t kill_ns = INT64_MAX;
    int how = 0;
    while (waitpid(rank->pid, &how, WNOHANG) != rank->pid) {
        int64_t until = job->look_ns < kill_ns ? job->look_ns : kill_ns;
        until -= shoali_now_ns();
        poll(&watched, 1, until > 0 ? (int)(until / 1000000 + 1) : 0);
        while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            if (info.ssi_signo == SIGCHLD)
                continue;
            kill(rank->pid, (int)info.ssi_signo);
            if (info.ssi_signo == SIGUSR1)
                continue;
            job->stop_signal = (int)info.ssi_signo;
            kill_ns = shoali_deadline_ns(job->args->grace_period * INT64_C(1000000000) + STOP_NS);
        }
        shoali_look(job);
        if (job->silent >= 0 || shoali_deadline_passed(kill_ns)) {
            if (job->silent >= 0 && kill_ns == INT64_MAX)
                shoali_look_report(job, "");
            kill(rank->pid, SIGKILL);
            kill_ns = INT64_MAX - 1;
        }
    }
    rank->code = WIFEXITED(how) ? WEXITSTATUS(how) : 0;
    rank->signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

shoal_status shoali_mpi_watch(struct shoali_job *job, int32_t local_rank, const char *path,
                              char **argv, char **envp, int *exit_code)
{
    shoal_status status = SHOAL_OK;
    struct shoali_rank rank = {0};
    sigset_t set, old;
    /* One rank of the host is this process' job; the first one of each speaks for the host. */
    job->rank = &rank;
    job->first_rank += local_rank;
    job->ranks = 1;
    job->reports = true;
    job->beats = local_rank == 0;
    job->of_mpi = true;
    if (!shoali_process_read(getpid(), &job->self))
        return SHOAL_FAIL(SHOAL_EIO, "cannot read /proc/self/stat");
    if (!shoali_process_read(job->self.parent, &job->daemon) ||
        strcmp(job->daemon.name, "orted") != 0)
        job->daemon = (struct shoali_process){0};
    SHOAL_TRY(status, shoali_look_begin(job), done);
    SHOAL_TRY(status, shoali_guard_start(job), done);
    shoali_job_signals(&set);
    sigprocmask(SIG_BLOCK, &set, &old);
    const int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    rank.pid = signals < 0 ? -1 : start_rank(path, argv, envp, &old);
    if (rank.pid < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot start %s: %s", path, strerror(errno));
        goto done;
    }
    job->culprit = 0; /* whom the report is about */
    await_rank(job, signals);
    if ((rank.code || rank.signal) && job->stop_signal)
        shoali_look_last_words(job);
    else if ((rank.code || rank.signal) && job->silent < 0)
        shoali_look_report(job, "");
    shoali_look_board_unlink(job);
    if (rank.code == 0 && rank.signal == 0) /* else there may be more to clear away */
        shoali_guard_stop(job);
    *exit_code = rank.signal ? 128 + rank.signal : rank.code;
done:
    shoali_look_end(job);
    return status;
}
