/* The launcher cannot clean up after its own SIGKILL. The guard is a child of it that sleeps until
 * then, in a session of its own, so that what kills the launcher's group or terminal spares it.
 *
 * mpirun ends the parents of ranks (cluster/mpi_watch.c) with SIGKILL as it pleases, and on other
 * hosts than the front's nobody would remove what lies in memory. There the guard kills nobody, for
 * the ranks of a host end one after the other and the first word of a death counts: it waits until
 * they are gone. */
#include "launcher/run/run.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A process between fork and exec carries no environment for a moment: one empty sweep is not
 * enough. */
enum { EMPTY_SWEEPS = 3, FILES_MAX = 65536 };
#define SWEEP_NS INT64_C(10000000)
#define GIVE_UP_NS INT64_C(3000000000)
#define OTHERS_NS INT64_C(100000000) /* for words of parents whose ranks are gone */
/* So long after its rank has failed, an orted has forgotten to end: mpirun may crash before it says
 * so. */
#define ORTED_NS INT64_C(5000000000)

static void await_others(const struct shoali_job *job, int64_t deadline)
{
    do
        nanosleep(&(struct timespec){0, OTHERS_NS}, NULL);
    while (shoali_cleanup_processes(job, SHOALI_COUNT) > 0 && !shoali_deadline_passed(deadline));
}

static void end_job(const struct shoali_job *job, time_t since)
{
    const int64_t deadline = shoali_deadline_ns(GIVE_UP_NS);
    const int64_t orted_ns = shoali_deadline_ns(ORTED_NS);
    if (job->of_mpi)
        await_others(job, deadline);
    for (int empty = job->of_mpi ? EMPTY_SWEEPS : 0;
         empty < EMPTY_SWEEPS && !shoali_deadline_passed(deadline);) {
        empty = shoali_cleanup_processes(job, SHOALI_KILL) > 0 ? 0 : empty + 1;
        nanosleep(&(struct timespec){0, SWEEP_NS}, NULL);
    }
    shoali_cleanup_segments(job->id);
    if (job->of_mpi)
        shoali_cleanup_mpi_memory(since);
    if (job->pid_file)
        unlink(job->pid_file);
    while (shoali_process_is_there(&job->daemon) && !shoali_deadline_passed(orted_ns))
        nanosleep(&(struct timespec){0, OTHERS_NS}, NULL);
    shoali_cleanup_orted(&job->daemon, getenv("OMPI_MCA_orte_jobfam_session_dir"));
}

/* Lets ps show a guard instead of a second launcher: who ends "shoal run" by its name or picks the
 * wrong one of two is not to hit the guard. The words of the command line are this process' own
 * copy. */
static void show_as_guard(void)
{
    struct shoali_process self;
    prctl(PR_SET_NAME, SHOALI_GUARD_NAME);
    if (!shoali_process_read(getpid(), &self) || self.words_end <= self.words_begin)
        return;
    const size_t bytes = self.words_end - self.words_begin;
    memset((void *)self.words_begin, 0, bytes);
    snprintf((char *)self.words_begin, bytes, SHOALI_GUARD_NAME);
}

/* What reads the ranks' output, and PMI at its end of a socket, waits until all have let go. */
static void let_go(void)
{
    const int nothing = open("/dev/null", O_RDWR);
    const long most = sysconf(_SC_OPEN_MAX);
    for (int i = 0; nothing >= 0 && i <= STDERR_FILENO; i++)
        dup2(nothing, i);
    for (int i = STDERR_FILENO + 1; i < (most > 0 && most < FILES_MAX ? (int)most : FILES_MAX); i++)
        close(i);
}

static void guard(const struct shoali_job *job) __attribute__((noreturn));
static void guard(const struct shoali_job *job)
{
    const time_t since = time(NULL); /* before there is a rank */
    sigset_t all, wake;
    siginfo_t info;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&wake);
    sigaddset(&wake, SIGTERM);
    setsid();
    show_as_guard();
    if (job->of_mpi)
        let_go();
    /* The kernel sends it when the launcher ends; from anybody else it means nothing. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    while (getppid() == job->self.pid)
        sigwaitinfo(&wake, &info);
    SHOALI_ERROR("launcher", "the launcher (pid %d) is gone; ending what it started",
                 (int)job->self.pid);
    end_job(job, since);
    _exit(0);
}

shoal_status shoali_guard_start(struct shoali_job *job)
{
    job->guard = fork();
    if (job->guard == 0)
        guard(job);
    if (job->guard > 0)
        return SHOAL_OK;
    job->guard = 0;
    return SHOAL_FAIL(SHOAL_EIO, "cannot start the guard of the job: fork: %s", strerror(errno));
}

void shoali_guard_stop(struct shoali_job *job)
{
    if (job->guard == 0)
        return;
    kill(job->guard, SIGKILL);
    waitpid(job->guard, NULL, 0);
    job->guard = 0;
}
