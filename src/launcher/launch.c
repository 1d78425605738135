#include "launcher/launcher.h"

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

static shoal_status write_pid_file(struct shoali_job *job)
{
    const char *folder = getenv("TMPDIR");
    char *path = shoali_arena_printf(&job->arena, "%s/%d.deepspeed",
                                     folder && *folder ? folder : "/tmp", (int)getpid());
    if (!path)
        return SHOAL_ENOMEM;
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor < 0)
        return SHOAL_FAIL(errno == EEXIST ? SHOAL_EINVAL : SHOAL_EIO,
                          "cannot write the pid file %s: %s%s", path, strerror(errno),
                          errno == EEXIST ? "; it is left from a job that was killed: remove it"
                                          : "");
    job->pid_file = path;
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

/* How many ranks, and on which slots. */
static shoal_status choose_slots(struct shoali_job *job)
{
    shoal_status status;
    const shoal_launch_args *args = job->args;
    const bool filtered = args->include || args->exclude;
    struct shoali_hosts hosts;
    struct shoali_ints slots;
    if (args->ranks < 0 || (args->ranks && filtered)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "%d ranks: give a positive number, or include/exclude",
                            args->ranks);
        goto done;
    }
    SHOAL_TRY(status, shoali_hosts_read(args->hostfile, &job->arena, &hosts), done);
    SHOAL_TRY(status, shoali_slots_select(args->include, args->exclude, &hosts), done);
    SHOAL_TRY(status, shoali_slots_here(&hosts, args->num_nodes, &job->arena, &slots), done);
    if (filtered)
        job->slots = slots;
    if (args->ranks)
        job->ranks = args->ranks;
    else
        job->ranks = filtered || hosts.file ? slots.count : 1;
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

/* All that can be wrong before the first process is started. */
static shoal_status prepare(struct shoali_job *job)
{
    shoal_status status;
    const shoal_launch_args *args = job->args;
    if (!args->program || !args->program[0])
        return SHOAL_FAIL(SHOAL_EINVAL, "no program to start: write it after the flags");
    SHOAL_TRY(status, shoali_program_find(args->program[0], &job->arena, &job->program_path), done);
    SHOAL_TRY(status, choose_slots(job), done);
    if (args->bind_cores || args->core_list)
        SHOAL_TRY(status, shoali_cores_select(args->core_list, &job->arena, &job->cores), done);
    SHOAL_TRY(status, shoali_port_choose(args->master_port, &job->master_port, &job->port_keeper),
              done);
    SHOAL_TRY(status, shoali_job_id_make(job->id, sizeof(job->id)), done);
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

/* The signals that a job waits for. One that the caller ignores (nohup) stays ignored. */
static void fill_signals(sigset_t *set)
{
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
static void drain_signals(int signal_fd)
{
    struct signalfd_siginfo info;
    while (read(signal_fd, &info, sizeof(info)) > 0)
        continue;
}

static shoal_status run(struct shoali_job *job, int *exit_code)
{
    shoal_status status;
    sigset_t signals, old_mask;
    struct sigaction old_child, plain = {.sa_handler = SIG_DFL};
    fill_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, &old_mask);
    /* With SIGCHLD ignored the kernel would reap the ranks behind our back. */
    sigaction(SIGCHLD, &plain, &old_child);
    job->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (job->signal_fd < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot watch for signals: %s", strerror(errno));
        goto done;
    }
    if (job->args->save_pid)
        SHOAL_TRY(status, write_pid_file(job), done);
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
    shoali_leftover_segments_unlink(job->id);
done:
    if (job->pid_file)
        unlink(job->pid_file);
    if (job->signal_fd >= 0) {
        drain_signals(job->signal_fd);
        close(job->signal_fd);
    }
    sigaction(SIGCHLD, &old_child, NULL);
    pthread_sigmask(SIG_SETMASK, &old_mask, NULL);
    return status;
}

shoal_status shoal_launch_sized(const shoal_launch_args *args, size_t args_size, int *exit_code)
{
    shoal_status status;
    shoal_launch_args own = {0};
    struct shoali_job job = {.args = &own, .signal_fd = -1, .port_keeper = -1, .culprit = -1};
    *exit_code = 0;
    shoali_arena_init(&job.arena);
    if (!shoali_process_read(getpid(), &job.self))
        job.self = (struct shoali_process){.pid = getpid(), .session = getsid(0)};
    SHOAL_TRY(status, SHOALI_SIZED_READ(shoal_launch_args, grace_period, args, args_size, &own),
              done);
    SHOAL_TRY(status, prepare(&job), done);
    shoali_stale_segments_unlink();
    SHOAL_TRY(status, run(&job, exit_code), done);
done:
    if (job.port_keeper >= 0)
        close(job.port_keeper);
    if (job.rank)
        munmap(job.rank, (size_t)job.ranks * sizeof(job.rank[0]));
    shoali_arena_fini(&job.arena);
    return status;
}

/* What the launcher says while it runs; its sink stays the caller's. */
static shoal_log_level log_level(const struct shoali_launch_options *options)
{
    static const shoal_log_level levels[] = {SHOAL_LOG_DEBUG, SHOAL_LOG_INFO, SHOAL_LOG_WARNING,
                                             SHOAL_LOG_ERROR, SHOAL_LOG_ERROR};
    return options->quiet ? SHOAL_LOG_ERROR : levels[options->log_level];
}

static shoal_status write_help(const struct shoali_flag_args *flags, char **help)
{
    struct shoali_str text = {0};
    shoali_str_append(&text, "usage: shoal run [flags] PROGRAM [ARGUMENTS]\n\n"
                             "Starts PROGRAM on several ranks of this machine, waits for all of "
                             "them, and ends all when\none fails.\n\n");
    shoali_flags_help(flags, &text);
    *help = text.failed ? NULL : text.text;
    return text.failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the help text") : SHOAL_OK;
}

shoal_status shoal_launch_command(int argc, char *const *argv, int *exit_code, char **help)
{
    shoal_status status;
    struct shoali_launch_options options = {0};
    struct shoali_arena arena;
    struct shoali_strings rest = {0};
    struct shoali_flags table = {&shoali_launch_section, &options};
    const struct shoali_flag_args flags = {
        .command = "shoal run", .tables = &table, .table_count = 1, .stop_at_word = true};
    struct shoali_context *context = shoali_context_get();
    struct shoali_logger *old_logger = context->logger, logger;
    shoal_launch_args args = {0};

    *exit_code = 0;
    *help = NULL;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_config_defaults(&shoali_launch_section, &options, &arena), done);
    SHOAL_TRY(status, shoali_flags_parse(&flags, argc, argv, &arena, &rest), done);
    if (options.help) {
        SHOAL_TRY(status, write_help(&flags, help), done);
        goto done;
    }
    SHOAL_TRY(status, shoali_logger_init(&logger, "info"), done);
    if (old_logger)
        logger = *old_logger;
    logger.level = log_level(&options);
    context->logger = &logger;
    SHOAL_TRY(status, shoali_launch_resolve(&options, &args), done);
    const char **program =
        shoali_arena_alloc(&arena, ((size_t)rest.count + 1) * sizeof(const char *));
    if (!program) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    if (rest.count)
        memcpy(program, rest.value, (size_t)rest.count * sizeof(const char *));
    args.program = program;
    SHOAL_TRY(status, shoal_launch(&args, exit_code), done);
done:
    context->logger = old_logger;
    shoali_arena_fini(&arena);
    return status;
}
