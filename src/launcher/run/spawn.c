#include "launcher/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* All that the child needs between fork and exec, where only system calls are safe. */
struct start {
    const char *path;
    char **argv, **envp;
    const sigset_t *mask;
    cpu_set_t cores;
    struct shoali_memory_policy memory;
    bool bind, own_group;
    bool default_pipe; /* the launcher ignores SIGPIPE, the rank does not */
    int input, output; /* descriptors, -1: inherit */
    int report[2];     /* pipe: the child's errno, or nothing when exec succeeded */
    pid_t launcher;
};

static void run_child(const struct start *start) __attribute__((noreturn));
static void run_child(const struct start *start)
{
    /* A rank must not outlive the launcher; the second check is for one that died before prctl. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != start->launcher)
        goto failed;
    if (start->own_group && setpgid(0, 0) != 0)
        goto failed;
    if (start->default_pipe && signal(SIGPIPE, SIG_DFL) == SIG_ERR)
        goto failed;
    if (start->bind && sched_setaffinity(0, sizeof(start->cores), &start->cores) != 0)
        goto failed;
    shoali_memory_policy_apply(&start->memory);
    if (start->input >= 0 && dup2(start->input, STDIN_FILENO) < 0)
        goto failed;
    if (start->output >= 0 &&
        (dup2(start->output, STDOUT_FILENO) < 0 || dup2(start->output, STDERR_FILENO) < 0))
        goto failed;
    if (sigprocmask(SIG_SETMASK, start->mask, NULL) != 0)
        goto failed;
    execve(start->path, start->argv, start->envp);
failed:;
    int code = errno;
    ssize_t written = write(start->report[1], &code, sizeof(code));
    _exit(written == (ssize_t)sizeof(code) ? 127 : 126);
}

static shoal_status open_files(const struct shoali_job *job, int32_t index, struct start *start)
{
    const int32_t rank = job->first_rank + index;
    const char *folder = job->args->rank_log_folder;
    char path[4096];
    /* One reader of standard input, else the ranks take its bytes from each other; on a host of a
     * larger job it is the lifeline. */
    const bool reads = rank == 0 && !job->host;
    if (!reads)
        start->input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!reads && start->input < 0)
        return SHOAL_FAIL(SHOAL_EIO, "cannot open /dev/null: %s", strerror(errno));
    if (folder) {
        snprintf(path, sizeof(path), "%s/%s_rank%d.log", folder, job->log_stamp, rank);
        start->output = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (start->output < 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "cannot write the log of rank %d to %s: %s", rank, path,
                              strerror(errno));
    }
    if (pipe2(start->report, O_CLOEXEC) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "cannot make a pipe for rank %d: %s", rank, strerror(errno));
    return SHOAL_OK;
}

static void choose_cores(const struct shoali_job *job, int32_t rank, struct start *start)
{
    CPU_ZERO(&start->cores);
    start->bind = job->cores.count > 0;
    if (!start->bind)
        return;
    int32_t first, count;
    shoali_cores_of_rank(job->cores.count, rank, job->ranks, &first, &count);
    for (int32_t i = 0; i < count; i++)
        CPU_SET((size_t)job->cores.value[first + i], &start->cores);
    shoali_numa_policy(job->cores.value + first, count, &start->memory);
}

static void close_all(const int *descriptors, int count)
{
    for (int i = 0; i < count; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
}

/* Waits until the child runs its program; the errno of what failed, 0 for success. */
static int read_report(int descriptor)
{
    int code = 0;
    ssize_t count;
    do
        count = read(descriptor, &code, sizeof(code));
    while (count < 0 && errno == EINTR);
    return count == (ssize_t)sizeof(code) ? code : 0;
}

static shoal_status spawn_rank(struct shoali_job *job, int32_t rank, const sigset_t *mask)
{
    shoal_status status;
    struct shoali_rank *self = &job->rank[rank];
    struct start start = {.path = job->program_path,
                          .mask = mask,
                          .input = -1,
                          .output = -1,
                          .report = {-1, -1},
                          .launcher = getpid(),
                          .default_pipe = job->lifeline >= 0};
    /* In a group of its own a process may not read the terminal, so a rank 0 that may want to stays
     * in the launcher's. */
    start.own_group = self->own_group = rank > 0 || !isatty(STDIN_FILENO);
    SHOAL_TRY(status, shoali_rank_arguments(job, rank, &start.argv), done);
    SHOAL_TRY(status, shoali_rank_environment(job, rank, &start.envp), done);
    SHOAL_TRY(status, open_files(job, rank, &start), done);
    choose_cores(job, rank, &start);
    const pid_t pid = fork();
    if (pid == 0)
        run_child(&start);
    if (pid < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot start rank %d: fork: %s", job->first_rank + rank,
                            strerror(errno));
        goto done;
    }
    self->pid = pid; /* by this process alone: the child shares the table */
    self->running = true;
    shoali_processes_say_start(pid, start.argv);
    job->running++;
    close(start.report[1]);
    start.report[1] = -1;
    int code = read_report(start.report[0]);
    if (code == ENOEXEC)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "cannot start %s: it is neither a program for this machine nor a "
                            "script with a #! line",
                            start.path);
    else if (code)
        status = SHOAL_FAIL(SHOAL_EIO, "cannot start rank %d (%s): %s", job->first_rank + rank,
                            start.path, strerror(code));
done:
    close_all((int[]){start.input, start.output, start.report[0], start.report[1]}, 4);
    return status;
}

shoal_status shoali_job_spawn(struct shoali_job *job, const void *mask)
{
    shoal_status status = SHOAL_OK;
    for (int32_t rank = 0; rank < job->ranks; rank++)
        SHOAL_TRY(status, spawn_rank(job, rank, mask), done);
done:
    return status;
}
