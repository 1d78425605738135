#include "launcher/hosts/hosts.h"
#include "launcher/run/run.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

shoal_status shoali_pid_file_write(int64_t name, struct shoali_arena *arena, const char **file)
{
    const char *folder = getenv("TMPDIR");
    char *path =
        shoali_arena_printf(arena, "%s/%lld.deepspeed", folder && *folder ? folder : "/tmp",
                            name ? (long long)name : (long long)getpid());
    if (!path)
        return SHOAL_ENOMEM;
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor < 0)
        return SHOAL_FAIL(errno == EEXIST ? SHOAL_EINVAL : SHOAL_EIO,
                          "cannot write the pid file %s: %s%s", path, strerror(errno),
                          errno == EEXIST ? "; it is left from a job that was killed: remove it"
                                          : "");
    *file = path;
    int failed = dprintf(descriptor, "%d", (int)getpid()) < 0;
    failed |= close(descriptor) != 0;
    return failed ? SHOAL_FAIL(SHOAL_EIO, "cannot write the pid file %s", path) : SHOAL_OK;
}

static void stamp_time(char *stamp, size_t bytes)
{
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(stamp, bytes, "%Y%m%d%H%M%S", &local);
}

/* shoal_launch starts ranks of this machine alone; `shoal run` has decided before that they are. */
static shoal_status check_world(const struct shoali_world *world)
{
    if (world->nodes == 1 && world->node[0].here)
        return SHOAL_OK;
    const struct shoali_node *other = world->node;
    while (other->here)
        other++;
    return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                      "host %s of %s is another machine: start the job with `shoal run` or "
                      "shoal_launch_command, which reach other machines",
                      other->name, world->file ? world->file : "the job");
}

/* How many ranks, and on which slots. */
static shoal_status choose_slots(struct shoali_job *job)
{
    shoal_status status;
    const shoal_launch_args *args = job->args;
    const bool filtered = args->include || args->exclude;
    struct shoali_hosts hosts;
    struct shoali_world *world =
        shoali_arena_alloc(&job->arena, sizeof *world); /* the job's from here */
    if (!world)
        return SHOAL_ENOMEM;
    if (args->ranks < 0 || (args->ranks && filtered)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "%d ranks: give a positive number, or include/exclude",
                            args->ranks);
        goto done;
    }
    SHOAL_TRY(status, shoali_hosts_read(args->hostfile, &job->arena, &hosts), done);
    SHOAL_TRY(status, shoali_slots_select(args->include, args->exclude, &hosts), done);
    const bool said = filtered || hosts.file || args->ranks;
    SHOAL_TRY(
        status,
        shoali_world_make(&hosts, args->num_nodes, said ? args->ranks : 1, &job->arena, world),
        done);
    SHOAL_TRY(status, check_world(world), done);
    if (said)
        job->slots = world->node[0].slots;
    job->world = world;
    job->world_ranks = job->ranks = world->ranks;
done:
    return status;
}

/* The table of ranks, where the guard sees whom the launcher has started. */
static shoal_status make_rank_table(struct shoali_job *job)
{
    const size_t bytes = (size_t)job->ranks * sizeof(job->rank[0]);
    if (shoali_fault("alloc"))
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the table of %d ranks", job->ranks);
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the table of %d ranks: %s", job->ranks,
                          strerror(errno));
    job->rank = table;
    return SHOAL_OK;
}

/* On this machine's devices, with a line where the user has named others. */
static shoal_status say_world(struct shoali_job *job)
{
    const char *devices = NULL, *given = getenv("CUDA_VISIBLE_DEVICES");
    if (!job->world)
        return SHOAL_OK;
    const shoal_status status = shoali_rank_devices(job, &devices);
    if (status == SHOAL_OK && devices && given && strcmp(given, devices) != 0)
        SHOALI_WARN("launcher",
                    "CUDA_VISIBLE_DEVICES=%s is replaced by %s, the slots of the ranks: choose "
                    "devices with --include localhost:SLOT,SLOT, or give no number of ranks",
                    given, devices);
    if (status == SHOAL_OK)
        shoali_processes_say_world(job, job->world, devices);
    return status;
}

/* All that can be wrong before the first process is started. */
static shoal_status prepare(struct shoali_job *job)
{
    shoal_status status;
    const shoal_launch_args *args = job->args;
    if (!args->program || !args->program[0])
        return SHOAL_FAIL(SHOAL_EINVAL, "no program to start: write it after the flags");
    SHOAL_TRY(status, shoali_program_find(args->program[0], &job->arena, &job->program_path), done);
    if (!job->host)
        SHOAL_TRY(status, choose_slots(job), done);
    if (args->bind_cores || args->core_list)
        SHOAL_TRY(status, shoali_cores_select(args->core_list, &job->arena, &job->cores), done);
    if (job->node_rank == 0)
        SHOAL_TRY(status,
                  shoali_port_choose(args->master_port, &job->master_port, &job->port_keeper),
                  done);
    else
        job->master_port = args->master_port;
    if (!job->id[0])
        SHOAL_TRY(status, shoali_job_id_make(job->id, sizeof(job->id)), done);
    SHOAL_TRY(status, say_world(job), done);
    stamp_time(job->log_stamp, sizeof(job->log_stamp));
    if (args->rank_log_folder && shoali_make_dirs(args->rank_log_folder) < 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "no folder for the logs of the ranks: %s",
                            shoal_error_message());
        goto done;
    }
    SHOAL_TRY(status, make_rank_table(job), done);
done:
    return status;
}

void shoali_job_signals(void *signals)
{
    sigset_t *set = signals;
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        struct sigaction action;
        if (sigaction(stops[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(set, stops[i]);
    }
}

/* Makes this process the one that orphans of the job come to. Not where orphans of others may come
 * too: then only those are the job's that carry its id. */
static void adopt_orphans(struct shoali_job *job)
{
    int already = 1;
    siginfo_t info;
    const bool childless = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0;
    job->reaper = childless && errno == ECHILD && prctl(PR_GET_CHILD_SUBREAPER, &already) == 0 &&
                  !already && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

static void reap(struct shoali_job *job)
{
    for (int32_t i = 0; i < job->ranks; i++)
        if (job->rank[i].pid > 0 && !job->rank[i].running)
            waitpid(job->rank[i].pid, NULL, 0);
    while (job->reaper && waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    if (job->reaper)
        prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* Takes the signals that came while the job was being stopped, lest they hit the caller afterwards.
 */
static void drain_signals(struct shoali_job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof(info)) > 0)
        if (info.ssi_signo != SIGCHLD && info.ssi_signo != SIGUSR1 && !job->asked)
            job->asked = (int)info.ssi_signo;
}

static shoal_status run(struct shoali_job *job, int *exit_code)
{
    shoal_status status;
    sigset_t signals, old_mask;
    struct sigaction old_child, plain = {.sa_handler = SIG_DFL};
    shoali_job_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, &old_mask);
    /* With SIGCHLD ignored the kernel would reap the ranks behind our back. */
    sigaction(SIGCHLD, &plain, &old_child);
    job->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (job->signal_fd < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot watch for signals: %s", strerror(errno));
        goto done;
    }
    if (job->args->save_pid)
        SHOAL_TRY(status, shoali_pid_file_write(job->pid_name, &job->arena, &job->pid_file), done);
    adopt_orphans(job);
    status = shoali_guard_start(job);
    if (status == SHOAL_OK)
        status = shoali_job_spawn(job, &old_mask);
    if (status < 0)
        shoali_job_kill(job);
    else
        status = shoali_job_supervise(job, exit_code);
    shoali_guard_stop(job);
    reap(job);
    shoali_cleanup_segments(job->id);
done:
    if (job->pid_file)
        unlink(job->pid_file);
    if (job->signal_fd >= 0) {
        drain_signals(job);
        close(job->signal_fd);
    }
    sigaction(SIGCHLD, &old_child, NULL);
    pthread_sigmask(SIG_SETMASK, &old_mask, NULL);
    return status;
}

const struct shoali_job shoali_job_none = {.signal_fd = -1,
                                           .log_file = -1,
                                           .port_keeper = -1,
                                           .culprit = -1,
                                           .silent = -1,
                                           .lifeline = -1,
                                           .signal_pipe = -1,
                                           .silence_ns = SHOALI_SILENT_RANK_S * INT64_C(1000000000),
                                           .host_silence_ns =
                                               SHOALI_HOST_TIMEOUT_S * INT64_C(1000000000),
                                           .nodes = 1};

shoal_status shoali_job_run(struct shoali_job *job, int *exit_code)
{
    shoal_status status;
    if (!shoali_process_read(getpid(), &job->self))
        job->self = (struct shoali_process){.pid = getpid(), .session = getsid(0)};
    SHOAL_TRY(status, prepare(job), done);
    SHOAL_TRY(status, shoali_poll_begin(job), done);
    shoali_stale_segments_unlink();
    SHOAL_TRY(status, run(job, exit_code), done);
done:
    shoali_poll_end(job);
    if (job->port_keeper >= 0)
        close(job->port_keeper);
    if (job->rank)
        munmap(job->rank, (size_t)job->ranks * sizeof(job->rank[0]));
    return status;
}

shoal_status shoal_launch(const shoal_launch_args *args, int *exit_code)
{
    shoal_status status;
    shoal_launch_args own = {0};
    struct shoali_job job = shoali_job_none;
    *exit_code = 0;
    job.args = &own;
    shoali_arena_init(&job.arena);
    if (args)
        own = *args;
    if (own.silent_rank_timeout != 0)
        job.silence_ns = own.silent_rank_timeout * INT64_C(1000000000);
    SHOAL_TRY(status, shoali_job_run(&job, exit_code), done);
done:
    shoali_arena_fini(&job.arena);
    return status;
}
