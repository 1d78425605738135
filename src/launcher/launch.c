#include "launcher/launcher.h"

#include "base/log.h"
#include "base/pool.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Binds and lets go: better one sentence now than N ranks that cannot meet. A port that was not
 * asked for by its number is kept, so that the system gives it to nobody else before rank 0 listens
 * there, which SO_REUSEADDR allows as long as the keeper does not. */
static shoal_status probe_port(int32_t wanted, int32_t *port, int *keeper)
{
    shoal_status status = SHOAL_OK;
    const bool any = wanted == SHOAL_ANY_PORT;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t bytes = sizeof(address);
    int yes = 1;
    if (wanted == 0)
        wanted = SHOALI_DEFAULT_PORT;
    if (wanted < SHOAL_ANY_PORT || wanted > 65535)
        return SHOAL_FAIL(SHOAL_EINVAL, "master port %d does not exist: give 1 to 65535", wanted);
    address.sin_port = htons((uint16_t)(any ? 0 : wanted));
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return SHOAL_FAIL(SHOAL_EIO, "cannot make a socket: %s", strerror(errno));
    /* Only a listener counts as a user of the port, not the rest of the previous job. */
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(descriptor, (struct sockaddr *)&address, bytes) != 0 ||
        (!any && listen(descriptor, 1) != 0))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            errno == EADDRINUSE
                                ? "port %d is already in use: choose another with --master_port "
                                  "(0 takes a free one) (%s)"
                                : "port %d cannot be used: choose another with --master_port (%s)",
                            wanted, strerror(errno));
    else if (getsockname(descriptor, (struct sockaddr *)&address, &bytes) != 0)
        status = SHOAL_FAIL(SHOAL_EIO, "cannot ask for the port's number: %s", strerror(errno));
    *port = ntohs(address.sin_port);
    if (any && status == SHOAL_OK)
        *keeper = descriptor;
    else
        close(descriptor);
    return status;
}

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

/* All that can be wrong before the first process is started. */
static shoal_status prepare(struct shoali_job *job)
{
    shoal_status status;
    const shoal_launch_args *args = job->args;
    if (!args->program || !args->program[0])
        return SHOAL_FAIL(SHOAL_EINVAL, "no program to start: write it after the flags");
    SHOAL_TRY(status, shoali_program_find(args->program[0], &job->arena, &job->program_path), done);
    SHOAL_TRY(status,
              shoali_slots_select(args->include, args->exclude, shoali_core_count(), &job->arena,
                                  &job->slots),
              done);
    job->ranks = job->slots.count ? job->slots.count : args->ranks;
    if (job->ranks == 0)
        job->ranks = 1;
    if (job->ranks < 0 || (args->ranks && job->slots.count)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "%d ranks: give a positive number, or include/exclude",
                            args->ranks);
        goto done;
    }
    if (args->bind_cores || args->core_list)
        SHOAL_TRY(status, shoali_cores_select(args->core_list, &job->arena, &job->cores), done);
    SHOAL_TRY(status, probe_port(args->master_port, &job->master_port, &job->port_keeper), done);
    SHOAL_TRY(status, shoali_job_id_make(job->id, sizeof(job->id)), done);
    stamp_time(job->log_stamp, sizeof(job->log_stamp));
    if (args->rank_log_folder && shoali_make_dirs(args->rank_log_folder) < 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "no folder for the logs of the ranks: %s",
                            shoal_error_message());
        goto done;
    }
    job->rank = shoali_arena_alloc(&job->arena, (size_t)job->ranks * sizeof(job->rank[0]));
    if (!job->rank)
        status = SHOAL_ENOMEM;
done:
    return status;
}

/* The signals that a job waits for. One that the caller ignores (nohup) stays ignored. */
static void fill_signals(sigset_t *set)
{
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        struct sigaction action;
        if (sigaction(stops[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(set, stops[i]);
    }
}

static void reap(struct shoali_job *job)
{
    for (int32_t i = 0; i < job->ranks; i++)
        if (job->rank[i].pid > 0 && !job->rank[i].running)
            waitpid(job->rank[i].pid, NULL, 0);
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
    status = shoali_job_spawn(job, &old_mask);
    if (status < 0)
        shoali_job_kill(job);
    else
        status = shoali_job_supervise(job, exit_code);
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

shoal_status shoal_launch(const shoal_launch_args *args, int *exit_code)
{
    shoal_status status;
    struct shoali_job job = {.args = args, .signal_fd = -1, .port_keeper = -1, .culprit = -1};
    *exit_code = 0;
    shoali_arena_init(&job.arena);
    SHOAL_TRY(status, prepare(&job), done);
    shoali_stale_segments_unlink();
    SHOAL_TRY(status, run(&job, exit_code), done);
done:
    if (job.port_keeper >= 0)
        close(job.port_keeper);
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
