/* The front while the job runs: it sleeps until a command ends, a signal comes, or it is time for
 * the next character on the lifelines. pdsh waits for all of its hosts, also when one has failed; it
 * says that at once, though ("pdsh@HERE: HOST: ssh exited with exit code N"), so what it says is
 * read and passed on. So is what srun says, whose own code is the largest of all ranks', those that
 * it has ended itself among them ("srun: error: HOST: task 2: Exited with exit code 7"). */
#include "launcher/cluster.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BEAT_NS INT64_C(1000000000)
/* Hosts that were told to stop need 0.3 s for their ranks' own end, and 0.6 s to kill them. */
#define STOP_NS INT64_C(4000000000)
#define KILL_NS INT64_C(1000000000)

struct child {
    pid_t pid;
    int lifeline; /* -1: none */
    bool running;
    int code, signal;
};

struct watch {
    const struct shoali_front *front;
    struct child *child;
    int32_t count, running;
    int signal_fd;
    int32_t culprit; /* -1: none */
    int stop_signal, signals;
    bool ended;      /* by the overseer */
    int64_t beat_ns; /* when the next one is due */
    int errors;      /* what pdsh or srun says, -1: not read */
    char line[512];  /* the last line of it, as far as it has come */
    size_t length;
    char host[80]; /* that failed, in its words */
    int host_code;
    char task[160]; /* of srun, what happened to it; "": nothing was said */
};

static void say(const struct watch *watch, char word)
{
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->child[i].running && watch->child[i].lifeline >= 0)
            (void)!send(watch->child[i].lifeline, &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* To commands without a lifeline, which pass it on or end. */
static void send_signal(const struct watch *watch, int signal, bool all)
{
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->child[i].running && (all || watch->child[i].lifeline < 0))
            kill(-watch->child[i].pid, signal);
}

static void name(const struct watch *watch, int32_t index, char *text, size_t bytes)
{
    const char *host = watch->front->command[index].host;
    snprintf(text, bytes, host ? "host %s" : "%s",
             host ? host : watch->front->command[index].words.value[0]);
}

static int signal_of(const char *text)
{
    for (int number = 1; number < 32; number++) {
        const char *said = strsignal(number);
        if (said && strncmp(text, said, strlen(said)) == 0)
            return number;
    }
    return 0;
}

/* "srun: error: HOST: task 2: Exited with exit code 7", "srun: error: HOST: tasks 0-1,3: Killed",
 * "slurmstepd-HOST: error: *** STEP 6.0 ON HOST CANCELLED AT ..." */
static void read_srun(struct watch *watch)
{
    static const char mark[] = "srun: error: ", exited[] = "Exited with exit code ";
    char host[64], which[32];
    int end = 0;
    const char *what = watch->line + sizeof(mark) - 1;
    if (strstr(watch->line, " CANCELLED AT ")) {
        snprintf(watch->task, sizeof(watch->task), "the job was cancelled by Slurm%s",
                 strstr(watch->line, "TIME LIMIT") ? ", as its time is over: give --time in "
                                                     "--launcher_args"
                                                   : " (scancel)");
        watch->host_code = 128 + SIGTERM;
    } else if (strncmp(watch->line, mark, sizeof(mark) - 1) == 0 &&
               sscanf(what, "%63[^:]: %*[a-z] %31[0-9,-]: %n", host, which, &end) == 2 && end > 0) {
        what += end;
        const bool left = strncmp(what, exited, sizeof(exited) - 1) == 0;
        const int code =
            left ? (int)strtol(what + sizeof(exited) - 1, NULL, 10) : 128 + signal_of(what);
        if (code == 0 || code == 128)
            return;
        watch->host_code = code;
        snprintf(watch->task, sizeof(watch->task),
                 "rank%s %s (%s) %s %d; srun has ended the others", strpbrk(which, ",-") ? "s" : "",
                 which, host, left ? "exited with code" : "was killed by signal",
                 left ? code : code - 128);
    }
    if (*watch->task)
        watch->culprit = 0;
}

/* "pdsh@HERE: HOST: ssh exited with exit code N" */
static void read_line(struct watch *watch)
{
    static const char mark[] = ": ssh exited with exit code ";
    watch->line[watch->length] = '\0';
    watch->length = 0;
    if (watch->front->launcher == SHOALI_BY_SLURM) {
        if (watch->culprit < 0 && !watch->stop_signal)
            read_srun(watch);
        return;
    }
    char *end = strstr(watch->line, mark), *host = strstr(watch->line, ": ");
    if (watch->culprit >= 0 || watch->stop_signal || strncmp(watch->line, "pdsh@", 5) != 0 ||
        !end || host >= end)
        return;
    watch->culprit = 0;
    watch->host_code = (int)strtol(end + sizeof(mark) - 1, NULL, 10);
    snprintf(watch->host, sizeof(watch->host), "%.*s", (int)(end - host - 2), host + 2);
}

static void hear_errors(struct watch *watch)
{
    char part[4096];
    ssize_t count = 0;
    while (watch->errors >= 0 && (count = read(watch->errors, part, sizeof(part))) > 0) {
        (void)!write(STDERR_FILENO, part, (size_t)count);
        for (ssize_t i = 0; i < count; i++) {
            if (part[i] == '\n')
                read_line(watch);
            else if (watch->length < sizeof(watch->line) - 1)
                watch->line[watch->length++] = part[i];
        }
    }
    if (watch->errors >= 0 && count == 0) {
        close(watch->errors);
        watch->errors = -1;
    }
}

static bool failed(const struct child *child)
{
    return child->signal || child->code;
}

/* 1 is also how a host ends whose ranks heard of another host's failure; 143 how one ends that was
 * told to. */
static bool may_be_echo(const struct child *child)
{
    return !child->signal && (child->code == 1 || child->code == 128 + SIGTERM);
}

static void blame(struct watch *watch, int32_t index)
{
    const struct child *child = &watch->child[index];
    if (!failed(child) || watch->stop_signal || watch->ended)
        return;
    if (watch->culprit < 0 ||
        (may_be_echo(&watch->child[watch->culprit]) && !may_be_echo(child) && !child->signal))
        watch->culprit = index;
}

static void collect(struct watch *watch)
{
    for (int32_t i = 0; i < watch->count; i++) {
        struct child *child = &watch->child[i];
        int how;
        if (!child->running || waitpid(child->pid, &how, WNOHANG) != child->pid)
            continue;
        child->running = false;
        watch->running--;
        child->code = WIFEXITED(how) ? WEXITSTATUS(how) : 0;
        child->signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
        if (child->lifeline >= 0)
            close(child->lifeline);
        child->lifeline = -1;
        blame(watch, i);
    }
}

static void note_asked(const struct watch *watch, int signal)
{
    struct shoali_overseer *overseer = watch->front->overseer;
    if (overseer && !overseer->asked && signal != SIGCHLD && signal != SIGUSR1)
        overseer->asked = signal;
}

static void take_signal(struct watch *watch, int signal)
{
    if (signal == SIGCHLD)
        return;
    note_asked(watch, signal);
    say(watch, shoali_lifeline_word(signal));
    if (signal == SIGUSR1) {
        send_signal(watch, signal, false);
        return;
    }
    if (watch->signals++ == 0 && watch->culprit < 0)
        watch->stop_signal = signal;
    send_signal(watch, watch->signals == 1 ? signal : SIGTERM, false);
}

/* Not while the job is being stopped. */
static void heed_overseer(struct watch *watch)
{
    struct shoali_overseer *overseer = watch->front->overseer;
    if (!overseer || watch->culprit >= 0 || watch->stop_signal || watch->ended)
        return;
    switch (overseer->look(overseer->user, watch->front)) {
    case SHOALI_GO_ON:
        break;
    case SHOALI_ASK_TO_SAVE:
        say(watch, shoali_lifeline_word(SIGUSR1));
        break;
    case SHOALI_END_IT:
        watch->ended = overseer->ended = true;
    }
}

static void wait_events(struct watch *watch, int64_t deadline)
{
    struct pollfd watched[2] = {{.fd = watch->signal_fd, .events = POLLIN},
                                {.fd = watch->errors, .events = POLLIN}};
    const int64_t now = shoali_now_ns();
    const int64_t until = watch->beat_ns < deadline ? watch->beat_ns : deadline;
    const int64_t wait_ms = until > now ? (until - now + 999999) / 1000000 : 0;
    struct signalfd_siginfo info;
    poll(watched, 2, (int)wait_ms);
    hear_errors(watch);
    while (read(watch->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        take_signal(watch, (int)info.ssi_signo);
    if (shoali_deadline_passed(watch->beat_ns)) {
        say(watch, '.');
        watch->beat_ns = shoali_deadline_ns(BEAT_NS);
        heed_overseer(watch);
    }
    collect(watch);
}

static shoal_status start_one(struct watch *watch, int32_t index, const struct shoali_str *letter)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_front *front = watch->front;
    const struct shoali_command *command = &front->command[index];
    struct child *child = &watch->child[index];
    int pair[2] = {-1, -1}, pipes[2] = {-1, -1};
    const bool mpi = front->launcher != SHOALI_BY_SSH && front->launcher != SHOALI_BY_PDSH;
    if (command->lifeline && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "cannot make a lifeline: %s", strerror(errno));
    if (front->launcher == SHOALI_BY_PDSH || front->launcher == SHOALI_BY_SLURM) {
        if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) != 0)
            return SHOAL_FAIL(SHOAL_EIO, "cannot make a pipe: %s", strerror(errno));
        fcntl(pipes[1], F_SETFL, 0); /* it is the command's, which expects to wait */
        watch->errors = pipes[0];
    }
    const struct shoali_start start = {.words = &command->words,
                                       .assignments = &front->assignments,
                                       .secret = mpi ? front->letter.secret : NULL,
                                       .input = pair[1],
                                       .output = -1,
                                       .errors = pipes[1]};
    SHOAL_TRY(status, shoali_start(&start, front->arena, &child->pid), done);
    child->running = true;
    watch->running++;
    child->lifeline = pair[0];
    pair[0] = -1;
    /* The buffer of a socket holds more than a letter's limit. */
    if (command->lifeline && send(child->lifeline, letter->text, letter->length,
                                  MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)letter->length)
        status = SHOAL_FAIL(SHOAL_EIO, "cannot hand the job's secret to %s: %s",
                            command->words.value[0], strerror(errno));
done:
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
    if (pipes[1] >= 0)
        close(pipes[1]);
    return status;
}

/* Until all have ended or the time is over. */
static void await_all(struct watch *watch, int64_t deadline)
{
    while (watch->running > 0 && !shoali_deadline_passed(deadline))
        wait_events(watch, deadline);
}

/* Those that do not listen are the user's business to look at: they cannot be reached. */
static void end_all(struct watch *watch)
{
    say(watch, 'F');
    send_signal(watch, SIGTERM, false);
    await_all(watch, shoali_deadline_ns(STOP_NS));
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->child[i].running && watch->child[i].lifeline >= 0)
            SHOALI_ERROR("launcher",
                         "host %s does not answer; its own launcher ends the ranks "
                         "there when it finds the connection gone",
                         watch->front->command[i].host);
    send_signal(watch, SIGTERM, true);
    await_all(watch, shoali_deadline_ns(KILL_NS));
    send_signal(watch, SIGKILL, true);
    await_all(watch, shoali_deadline_ns(KILL_NS));
}

static void report(const struct watch *watch)
{
    const struct child *child = &watch->child[watch->culprit];
    const int32_t others = watch->front->world.nodes - 1;
    char who[160], rest[64] = "";
    if (*watch->task) {
        SHOALI_ERROR("launcher", "%s", watch->task);
        return;
    }
    name(watch, watch->culprit, who, sizeof(who));
    if (watch->host_code)
        snprintf(who, sizeof(who), "host %s", watch->host);
    if (others > 0 && (watch->host_code || watch->front->command[watch->culprit].host))
        snprintf(rest, sizeof(rest), "; the other %d host%s stopped", (int)others,
                 others == 1 ? " was" : "s were");
    const int code = watch->host_code ? watch->host_code : child->code;
    if (child->signal && !watch->host_code)
        SHOALI_ERROR("launcher", "%s: its %s was killed by signal %d (%s)%s", who,
                     watch->front->command[watch->culprit].words.value[0], child->signal,
                     strsignal(child->signal), rest);
    else if (code == 255 && (watch->host_code || watch->front->launcher == SHOALI_BY_SSH))
        SHOALI_ERROR("launcher", "%s: the connection is gone (ssh ended with code 255)%s", who,
                     rest);
    else
        SHOALI_ERROR("launcher", "%s ended with code %d%s", who, code, rest);
}

/* 255 is ssh's own word. */
static int exit_code_of(const struct watch *watch)
{
    bool well = watch->running == 0;
    for (int32_t i = 0; i < watch->count; i++)
        well = well && !failed(&watch->child[i]);
    if (watch->culprit >= 0) {
        const struct child *child = &watch->child[watch->culprit];
        int code = child->signal ? 128 + child->signal : child->code;
        code = watch->host_code ? watch->host_code : code;
        return code == 255 ? 1 : code;
    }
    return well ? 0 : 128 + watch->stop_signal;
}

static void supervise(struct watch *watch)
{
    const int32_t grace = watch->front->args->grace_period;
    while (watch->running > 0 && watch->culprit < 0 && !watch->stop_signal && !watch->ended)
        wait_events(watch, INT64_MAX);
    if (watch->stop_signal) {
        SHOALI_INFO("launcher", "signal %d (%s): stopping the job on %d host%s", watch->stop_signal,
                    strsignal(watch->stop_signal), (int)watch->front->world.nodes,
                    watch->front->world.nodes == 1 ? "" : "s");
        await_all(watch, shoali_deadline_ns(grace * INT64_C(1000000000) + STOP_NS));
    }
    if (watch->running > 0)
        end_all(watch);
    if (watch->culprit >= 0)
        report(watch);
}

shoal_status shoali_watch(const struct shoali_front *front, int *exit_code)
{
    shoal_status status = SHOAL_OK;
    struct watch watch = {
        .front = front, .count = front->commands, .culprit = -1, .signal_fd = -1, .errors = -1};
    struct shoali_str letter = {0};
    sigset_t signals, old_mask;
    struct sigaction old_child, plain = {.sa_handler = SIG_DFL};
    shoali_job_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, &old_mask);
    sigaction(SIGCHLD, &plain, &old_child);
    watch.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    watch.child = shoali_arena_alloc(front->arena, (size_t)watch.count * sizeof(watch.child[0]));
    if (watch.signal_fd < 0 || !watch.child) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot watch for signals: %s", strerror(errno));
        goto done;
    }
    for (int32_t i = 0; i < watch.count; i++)
        watch.child[i].lifeline = -1;
    SHOAL_TRY(status, shoali_letter_write(&front->letter, &letter), done);
    watch.beat_ns = shoali_deadline_ns(BEAT_NS);
    for (int32_t i = 0; i < watch.count && status == SHOAL_OK; i++)
        status = start_one(&watch, i, &letter);
    if (status < 0) {
        end_all(&watch);
    } else {
        supervise(&watch);
        *exit_code = exit_code_of(&watch);
    }
done:
    if (letter.text)
        memset(letter.text, 0, letter.length);
    shoali_str_fini(&letter);
    for (int32_t i = 0; watch.child && i < watch.count; i++)
        if (watch.child[i].lifeline >= 0)
            close(watch.child[i].lifeline);
    if (watch.errors >= 0)
        close(watch.errors);
    if (watch.signal_fd >= 0) {
        struct signalfd_siginfo info;
        while (read(watch.signal_fd, &info, sizeof(info)) > 0)
            note_asked(&watch, (int)info.ssi_signo);
        close(watch.signal_fd);
    }
    sigaction(SIGCHLD, &old_child, NULL);
    pthread_sigmask(SIG_SETMASK, &old_mask, NULL);
    return status;
}
