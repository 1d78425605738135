/* The front while the job runs: it sleeps until a command ends, a signal comes, a command says
 * something, or it is time for the next character on the lifelines. What commands say on standard
 * error is passed on, without the lines that the hosts' launchers put there for it (ranks.h): who has
 * failed, and what the ranks do. A host that has sent such lines and sends none any more is lost.
 * What pdsh and srun say themselves of a host or a task is read, too: srun's own code is the largest of
 * all ranks', those that it has ended itself among them. */
#include "launcher/cluster.h"
#include "launcher/ranks.h"

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
enum { USAGE = 2 }; /* the rank has said what is wrong with its command line */

struct child {
    pid_t pid;
    int lifeline; /* -1: none */
    int errors;   /* what it says, -1: nothing any more */
    bool running;
    int code, signal;
    char line[SHOALI_WIRE_BYTES]; /* of pdsh: the last line; else what follows a mark */
    size_t length;
    bool marked; /* it is a line for the front */
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
    char host[80];   /* that failed, in the words of pdsh */
    int host_code;
    char task[160]; /* of srun, what happened to it; "": nothing was said */
    struct shoali_copies copies;
    struct shoali_rank_view *view; /* [world.ranks] */
    int64_t *heard_ns;             /* [world.nodes]; 0: nothing yet */
    struct pollfd *watched;        /* [count + 1] */
    struct shoali_wire_end end;    /* the first rank that ended badly */
    bool has_end, told_straggler;
    int32_t straggler_looks;
    int32_t lost_node; /* -1: none */
    int64_t lost_ns;
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
static void read_srun(struct watch *watch, const char *line)
{
    static const char mark[] = "srun: error: ", exited[] = "Exited with exit code ";
    char host[64], which[32];
    int end = 0;
    const char *what = line + sizeof(mark) - 1;
    if (strstr(line, " CANCELLED AT ")) {
        snprintf(watch->task, sizeof(watch->task), "the job was cancelled by Slurm%s",
                 strstr(line, "TIME LIMIT") ? ", as its time is over: give --time in "
                                              "--launcher_args"
                                            : " (scancel)");
        watch->host_code = 128 + SIGTERM;
    } else if (strncmp(line, mark, sizeof(mark) - 1) == 0 &&
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
static void read_pdsh(struct watch *watch, char *line)
{
    static const char mark[] = ": ssh exited with exit code ";
    char *end = strstr(line, mark), *host = strstr(line, ": ");
    if (watch->culprit >= 0 || watch->stop_signal || strncmp(line, "pdsh@", 5) != 0 || !end ||
        host >= end)
        return;
    watch->culprit = 0;
    watch->host_code = (int)strtol(end + sizeof(mark) - 1, NULL, 10);
    snprintf(watch->host, sizeof(watch->host), "%.*s", (int)(end - host - 2), host + 2);
}

static void take_end(struct watch *watch, int32_t index, const struct shoali_wire_end *end)
{
    if (watch->has_end || watch->stop_signal)
        return;
    watch->has_end = true;
    watch->end = *end;
    if (watch->culprit < 0)
        watch->culprit = index;
}

/* A line of a host's launcher. */
static void read_wire(struct watch *watch, int32_t index, const char *line)
{
    struct shoali_wire_end end;
    int32_t about = 0;
    const char kind = shoali_wire_read(&watch->copies, line, &about, &end);
    if (kind == 0)
        return;
    const int32_t node = kind == 'H' ? about : shoali_world_node_of(&watch->front->world, about);
    if (node < watch->front->world.nodes)
        watch->heard_ns[node] = shoali_now_ns();
    if (kind == 'E')
        take_end(watch, index, &end);
}

static void pass_on(const char *text, size_t length)
{
    if (length > 0)
        (void)!write(STDERR_FILENO, text, length);
}

/* pdsh writes whole lines, "HOST: " before each; srun's own are whole. */
static void hear_line(struct watch *watch, int32_t index)
{
    struct child *child = &watch->child[index];
    child->line[child->length] = '\0';
    const char *mark = memchr(child->line, SHOALI_WIRE_MARK, child->length);
    if (mark) {
        read_wire(watch, index, mark + 1);
    } else {
        child->line[child->length] = '\n';
        pass_on(child->line, child->length + 1);
        child->line[child->length] = '\0';
        if (watch->front->launcher == SHOALI_BY_PDSH)
            read_pdsh(watch, child->line);
        else if (watch->culprit < 0 && !watch->stop_signal)
            read_srun(watch, child->line);
    }
    child->length = 0;
}

static void hear_part(struct watch *watch, int32_t index, const char *part, size_t count)
{
    struct child *child = &watch->child[index];
    const bool lines =
        watch->front->launcher == SHOALI_BY_PDSH || watch->front->launcher == SHOALI_BY_SLURM;
    size_t plain = 0; /* where what is to be passed on begins */
    for (size_t i = 0; i < count; i++) {
        const char c = part[i];
        if (!lines && (!child->marked || c == SHOALI_WIRE_MARK)) {
            if (c != SHOALI_WIRE_MARK)
                continue;
            if (!child->marked) /* else mpirun has cut a line short */
                pass_on(part + plain, i - plain);
            child->marked = true;
            child->length = 0;
        } else if (c != '\n') {
            if (child->length < sizeof(child->line) - 2)
                child->line[child->length++] = c;
        } else if (lines) {
            hear_line(watch, index);
        } else {
            child->line[child->length] = '\0';
            read_wire(watch, index, child->line);
            child->marked = false;
            plain = i + 1;
        }
    }
    if (!lines && !child->marked)
        pass_on(part + plain, count - plain);
}

static void hear_errors(struct watch *watch)
{
    char part[4096];
    for (int32_t i = 0; i < watch->count; i++) {
        struct child *child = &watch->child[i];
        ssize_t count = -1;
        while (child->errors >= 0 && (count = read(child->errors, part, sizeof(part))) > 0)
            hear_part(watch, i, part, (size_t)count);
        if (child->errors >= 0 && count == 0) {
            close(child->errors);
            child->errors = -1;
        }
    }
}

/* A host from which nothing has come for too long. */
static void find_lost(struct watch *watch)
{
    const int64_t timeout_ns = watch->front->options->host_timeout * INT64_C(1000000000);
    const int64_t now_ns = shoali_now_ns();
    for (int32_t i = 0; timeout_ns > 0 && i < watch->front->world.nodes; i++)
        if (watch->heard_ns[i] > 0 && now_ns - watch->heard_ns[i] > timeout_ns &&
            watch->lost_node < 0 && watch->culprit < 0 && !watch->stop_signal) {
            watch->lost_node = i;
            watch->lost_ns = now_ns - watch->heard_ns[i];
            watch->culprit = watch->count > i ? i : 0;
        }
}

/* A front that did not run has heard nobody. */
static void forgive_absence(struct watch *watch)
{
    const int64_t late_ns = shoali_now_ns() - watch->beat_ns;
    for (int32_t i = 0; late_ns > BEAT_NS && i < watch->front->world.nodes; i++)
        if (watch->heard_ns[i] > 0)
            watch->heard_ns[i] += late_ns;
}

static void look(struct watch *watch)
{
    struct shoali_straggler straggler;
    find_lost(watch);
    if (watch->told_straggler)
        return;
    (void)shoali_copies_look(&watch->copies, watch->view);
    shoali_ranks_straggler(watch->view, watch->copies.ranks, &straggler);
    watch->told_straggler = shoali_straggler_warn(&straggler, &watch->straggler_looks, watch->view);
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
        hear_errors(watch);
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
    for (int32_t i = 0; i <= watch->count; i++)
        watch->watched[i] = (struct pollfd){
            .fd = i < watch->count ? watch->child[i].errors : watch->signal_fd, .events = POLLIN};
    const int64_t now = shoali_now_ns();
    const int64_t until = watch->beat_ns < deadline ? watch->beat_ns : deadline;
    const int64_t wait_ms = until > now ? (until - now + 999999) / 1000000 : 0;
    struct signalfd_siginfo info;
    poll(watch->watched, (nfds_t)watch->count + 1, (int)wait_ms);
    hear_errors(watch);
    while (read(watch->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        take_signal(watch, (int)info.ssi_signo);
    if (shoali_deadline_passed(watch->beat_ns)) {
        say(watch, '.');
        forgive_absence(watch);
        look(watch);
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
    if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) != 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot make a pipe: %s", strerror(errno));
        goto done;
    }
    fcntl(pipes[1], F_SETFL, 0); /* it is the command's, which expects to wait */
    child->errors = pipes[0];
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

/* Is every command that still runs the one that leads to the lost host? */
static bool only_lost_runs(const struct watch *watch)
{
    const char *lost =
        watch->lost_node >= 0 ? watch->front->world.node[watch->lost_node].name : NULL;
    for (int32_t i = 0; i < watch->count; i++) {
        const char *host = watch->front->command[i].host;
        if (watch->child[i].running && (!lost || !host || strcmp(host, lost) != 0))
            return false;
    }
    return true;
}

/* A host that was lost does not hear that it is to end: nothing waits for its command. */
static void await_stop(struct watch *watch, int64_t deadline)
{
    while (!only_lost_runs(watch) && !shoali_deadline_passed(deadline))
        wait_events(watch, deadline);
}

/* Those that do not listen are the user's business to look at: they cannot be reached. */
static void end_all(struct watch *watch)
{
    say(watch, 'F');
    send_signal(watch, SIGTERM, false);
    await_stop(watch, shoali_deadline_ns(STOP_NS));
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->child[i].running && watch->child[i].lifeline >= 0 && watch->lost_node < 0)
            SHOALI_ERROR("launcher",
                         "host %s does not answer; its own launcher ends the ranks "
                         "there when it finds the connection gone",
                         watch->front->command[i].host);
    send_signal(watch, SIGTERM, true);
    await_all(watch, shoali_deadline_ns(KILL_NS));
    send_signal(watch, SIGKILL, true);
    await_all(watch, shoali_deadline_ns(KILL_NS));
}

static const char *count_rest(const struct watch *watch, char text[64])
{
    const int32_t others = watch->front->world.nodes - 1;
    text[0] = '\0';
    if (others > 0)
        snprintf(text, 64, "stopping the other %d host%s", (int)others, others == 1 ? "" : "s");
    return text;
}

/* What a host's launcher has said, or that it says nothing: the block. */
static void report_block(struct watch *watch)
{
    static const char causes[] = "ESHM";
    const char *cause = strchr(causes, watch->end.cause ? watch->end.cause : 'E');
    char rest[64];
    struct shoali_verdict verdict = {
        .cause = cause ? (enum shoali_cause)(cause - causes) : SHOALI_CAUSE_ENDED,
        .rank = watch->end.rank,
        .pid = watch->end.pid,
        .code = watch->end.code,
        .signal = watch->end.signal,
        .host = watch->end.host,
        .rest = count_rest(watch, rest),
        .log_folder = watch->front->args->rank_log_folder,
        .silent_ns = watch->front->options->silent_rank_timeout * INT64_C(1000000000)};
    if (watch->lost_node >= 0) {
        verdict.cause = SHOALI_CAUSE_HOST;
        verdict.rank = -1;
        verdict.host = watch->front->world.node[watch->lost_node].name;
        verdict.silent_ns = watch->lost_ns;
    }
    (void)shoali_copies_look(&watch->copies, watch->view);
    /* The first word may be of a rank that had heard of the failure. */
    for (int32_t r = 0; verdict.cause == SHOALI_CAUSE_ENDED && verdict.signal == 0 &&
                        r < watch->copies.ranks && shoali_rank_is_echo(&watch->view[verdict.rank]);
         r++)
        if (watch->view[r].known && watch->view[r].board.failure != 0 &&
            !shoali_rank_is_echo(&watch->view[r])) {
            verdict.rank = r;
            verdict.pid = (int)watch->view[r].board.pid;
            verdict.host =
                watch->front->world.node[shoali_world_node_of(&watch->front->world, r)].name;
        }
    if (verdict.code == USAGE && verdict.cause == SHOALI_CAUSE_ENDED)
        return;
    shoali_verdict_print(&verdict, watch->view, watch->copies.ranks);
}

static void report(struct watch *watch)
{
    const struct child *child = &watch->child[watch->culprit];
    char who[160], rest[64];
    if (watch->has_end || watch->lost_node >= 0) {
        report_block(watch);
        return;
    }
    if (*watch->task) {
        SHOALI_ERROR("launcher", "%s", watch->task);
        return;
    }
    name(watch, watch->culprit, who, sizeof(who));
    if (watch->host_code)
        snprintf(who, sizeof(who), "host %s", watch->host);
    const bool one = watch->host_code || watch->front->command[watch->culprit].host;
    const char *others = one ? count_rest(watch, rest) : "", *comma = *others ? "; " : "";
    const int code = watch->host_code ? watch->host_code : child->code;
    if (child->signal && !watch->host_code)
        SHOALI_ERROR("launcher", "%s: its %s was killed by signal %d (%s)%s%s", who,
                     watch->front->command[watch->culprit].words.value[0], child->signal,
                     strsignal(child->signal), comma, others);
    else if (code == 255 && (watch->host_code || watch->front->launcher == SHOALI_BY_SSH))
        SHOALI_ERROR("launcher",
                     "%s: the connection is gone (ssh ended with code 255): its sshd was ended, or "
                     "the network is down; ranks there end by themselves%s%s",
                     who, comma, others);
    else
        SHOALI_ERROR("launcher", "%s ended with code %d%s%s", who, code, comma, others);
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
        if (watch->lost_node >= 0 || (watch->has_end && watch->end.cause == 'S'))
            return 1;
        if (watch->has_end)
            code = watch->end.signal ? 128 + watch->end.signal : watch->end.code;
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

static shoal_status make_tables(struct watch *watch)
{
    const struct shoali_world *world = &watch->front->world;
    struct shoali_arena *arena = watch->front->arena;
    const size_t ranks = (size_t)world->ranks, count = (size_t)watch->count;
    watch->child = shoali_arena_alloc(arena, count * sizeof(watch->child[0]));
    watch->watched = shoali_arena_alloc(arena, (count + 1) * sizeof(watch->watched[0]));
    watch->heard_ns = shoali_arena_alloc(arena, (size_t)world->nodes * sizeof(watch->heard_ns[0]));
    watch->view = shoali_arena_alloc(arena, ranks * sizeof(watch->view[0]));
    watch->copies.board = shoali_arena_alloc(arena, ranks * sizeof(watch->copies.board[0]));
    if (!watch->child || !watch->watched || !watch->heard_ns || !watch->view ||
        !watch->copies.board)
        return SHOAL_ENOMEM;
    watch->copies.job = watch->front->job_id;
    watch->copies.ranks = world->ranks;
    memset(watch->heard_ns, 0, (size_t)world->nodes * sizeof(watch->heard_ns[0]));
    memset(watch->view, 0, ranks * sizeof(watch->view[0]));
    memset(watch->copies.board, 0, ranks * sizeof(watch->copies.board[0]));
    memset(watch->child, 0, count * sizeof(watch->child[0]));
    for (int32_t i = 0; i < watch->count; i++)
        watch->child[i].lifeline = watch->child[i].errors = -1;
    return SHOAL_OK;
}

shoal_status shoali_watch(const struct shoali_front *front, int *exit_code)
{
    shoal_status status = SHOAL_OK;
    struct watch watch = {
        .front = front, .count = front->commands, .culprit = -1, .signal_fd = -1, .lost_node = -1};
    struct shoali_str letter = {0};
    sigset_t signals, old_mask;
    struct sigaction old_child, plain = {.sa_handler = SIG_DFL};
    shoali_job_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, &old_mask);
    sigaction(SIGCHLD, &plain, &old_child);
    watch.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (watch.signal_fd < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot watch for signals: %s", strerror(errno));
        goto done;
    }
    SHOAL_TRY(status, make_tables(&watch), done);
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
    for (int32_t i = 0; watch.child && i < watch.count; i++) {
        if (watch.child[i].lifeline >= 0)
            close(watch.child[i].lifeline);
        if (watch.child[i].errors >= 0)
            close(watch.child[i].errors);
    }
    shoali_copies_drop(&watch.copies);
    shoali_leftover_segments_unlink(front->job_id);
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
