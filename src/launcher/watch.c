/* The front while the job runs: it sleeps until a command ends, a signal comes, a command says
 * something (hear.c), or it is time for the next character on the lifelines. A host that has sent
 * lines for the front and sends none any more is lost. */
#include "launcher/watch.h"

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
#define LOOK_NS INT64_C(250000000) /* for ranks that wait for each other */
/* Hosts that were told to stop need 0.3 s for their ranks' own end, and 0.6 s to kill them. */
#define STOP_NS INT64_C(4000000000)
#define KILL_NS INT64_C(1000000000)
#define ITSELF_NS INT64_C(2000000000) /* for an mpirun that ends the job on its own */
/* With a host lost: pdsh and mpirun, which lead to all hosts, may wait for it for long. */
#define LOST_NS INT64_C(300000000)
enum { USAGE = 2 }; /* the rank has said what is wrong with its command line */

static void say(const struct shoali_watch *watch, char word)
{
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->child[i].running && watch->child[i].lifeline >= 0)
            (void)!send(watch->child[i].lifeline, &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* To commands without a lifeline, which pass it on or end. */
static void send_signal(const struct shoali_watch *watch, int signal, bool all)
{
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->child[i].running && (all || watch->child[i].lifeline < 0))
            kill(-watch->child[i].pid, signal);
}

static void name(const struct shoali_watch *watch, int32_t index, char *text, size_t bytes)
{
    const char *host = watch->front->command[index].host;
    snprintf(text, bytes, host ? "host %s" : "%s",
             host ? host : watch->front->command[index].words.value[0]);
}

#define MISSED_NS (BEAT_NS + BEAT_NS / 2)

/* `first` was the first that has been silent for too long, which says little where others are silent. */
static void lose(struct shoali_watch *watch, int32_t first)
{
    const int64_t now_ns = shoali_now_ns();
    int32_t silent = 0, node = -1;
    for (int32_t i = 0; i < watch->front->world.nodes; i++)
        silent += watch->heard_ns[i] > 0 && now_ns - watch->heard_ns[i] > MISSED_NS;
    if (silent > 1)
        node = shoali_watch_unreachable(watch, MISSED_NS);
    watch->lost_node = node >= 0 ? node : first;
    watch->lost_ns = now_ns - watch->heard_ns[watch->lost_node];
    watch->culprit = watch->count > watch->lost_node ? watch->lost_node : 0;
}

/* A host from which nothing has come for too long. Returns when one may be next. */
static int64_t find_lost(struct shoali_watch *watch)
{
    const int64_t timeout_ns = watch->front->options->host_timeout * INT64_C(1000000000);
    const int64_t now_ns = shoali_now_ns();
    int64_t next_ns = INT64_MAX;
    if (timeout_ns == 0 || watch->culprit >= 0 || watch->stop_signal)
        return next_ns;
    for (int32_t i = 0; i < watch->front->world.nodes; i++) {
        const int64_t end_ns = watch->heard_ns[i] + timeout_ns;
        if (watch->heard_ns[i] > 0 && now_ns >= end_ns && watch->lost_node < 0)
            lose(watch, i);
        if (watch->heard_ns[i] > 0 && end_ns < next_ns)
            next_ns = end_ns;
    }
    return watch->lost_node < 0 ? next_ns : INT64_MAX;
}

/* A front that did not run has heard nobody. */
static void forgive_absence(struct shoali_watch *watch)
{
    const int64_t late_ns = shoali_now_ns() - watch->beat_ns;
    for (int32_t i = 0; late_ns > BEAT_NS && i < watch->front->world.nodes; i++)
        if (watch->heard_ns[i] > 0)
            watch->heard_ns[i] += late_ns;
}

/* Hosts know of their own ranks alone. What a host that says nothing has said before is no news of it. Later
 * than a host finds a silent rank (look.c), which is the reason where there is one. */
static void find_stuck(struct shoali_watch *watch)
{
    const int64_t limit_ns = watch->front->options->silent_rank_timeout * INT64_C(1000000000);
    for (int32_t i = 0; i < watch->front->world.nodes; i++)
        if (shoali_now_ns() - watch->heard_ns[i] > MISSED_NS)
            watch->stuck.since_ns = 0;
    (void)shoali_copies_look(&watch->copies, watch->view);
    if (limit_ns == 0 || watch->culprit >= 0 || watch->stop_signal || watch->ended ||
        !shoali_ranks_stuck(watch->view, watch->copies.ranks, limit_ns + BEAT_NS, &watch->stuck))
        return;
    watch->has_end = true;
    watch->end = (struct shoali_wire_end){.rank = -1, .cause = 'W'};
    watch->culprit = 0;
}

static void look(struct shoali_watch *watch)
{
    struct shoali_straggler straggler;
    if (watch->told_straggler)
        return;
    (void)shoali_copies_look(&watch->copies, watch->view);
    shoali_ranks_straggler(watch->view, watch->copies.ranks, &straggler);
    watch->told_straggler = shoali_straggler_warn(&straggler, &watch->straggler_looks, watch->view);
}

static bool failed(const struct shoali_child *child)
{
    return child->signal || child->code;
}

/* 1 is also how a host ends whose ranks heard of another host's failure; 143 how one ends that was
 * told to. */
static bool may_be_echo(const struct shoali_child *child)
{
    return !child->signal && (child->code == 1 || child->code == 128 + SIGTERM);
}

static void blame(struct shoali_watch *watch, int32_t index)
{
    const struct shoali_child *child = &watch->child[index];
    if (!failed(child) || watch->stop_signal || watch->ended)
        return;
    if (watch->culprit < 0 ||
        (may_be_echo(&watch->child[watch->culprit]) && !may_be_echo(child) && !child->signal))
        watch->culprit = index;
}

static void collect(struct shoali_watch *watch)
{
    for (int32_t i = 0; i < watch->count; i++) {
        struct shoali_child *child = &watch->child[i];
        int how;
        if (!child->running || waitpid(child->pid, &how, WNOHANG) != child->pid)
            continue;
        shoali_hear(watch);
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

static void note_asked(const struct shoali_watch *watch, int signal)
{
    struct shoali_overseer *overseer = watch->front->overseer;
    if (overseer && !overseer->asked && signal != SIGCHLD && signal != SIGUSR1)
        overseer->asked = signal;
}

static void take_signal(struct shoali_watch *watch, int signal)
{
    if (signal == SIGCHLD)
        return;
    note_asked(watch, signal);
    say(watch, shoali_lifeline_word(signal));
    if (signal == SIGUSR1) {
        if (watch->front->launcher != SHOALI_BY_PDSH)
            send_signal(watch, signal, false);
        return;
    }
    if (watch->signals++ == 0 && watch->culprit < 0)
        watch->stop_signal = signal;
    send_signal(watch, watch->signals == 1 ? signal : SIGTERM, false);
}

/* Not while the job is being stopped. */
static void heed_overseer(struct shoali_watch *watch)
{
    struct shoali_overseer *overseer = watch->front->overseer;
    if (!overseer || watch->culprit >= 0 || watch->stop_signal || watch->ended)
        return;
    switch (overseer->look(overseer->user, watch->front)) {
    case SHOALI_GO_ON:
        break;
    case SHOALI_ASK_TO_SAVE:
        say(watch, shoali_lifeline_word(SIGUSR1));
        if (watch->front->launcher != SHOALI_BY_PDSH) /* which it would end */
            send_signal(watch, SIGUSR1, false);
        break;
    case SHOALI_END_IT:
        watch->ended = overseer->ended = true;
    }
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void wait_events(struct shoali_watch *watch, int64_t deadline)
{
    for (int32_t i = 0; i <= watch->count; i++)
        watch->watched[i] = (struct pollfd){
            .fd = i < watch->count ? watch->child[i].errors : watch->signal_fd, .events = POLLIN};
    const int64_t now = shoali_now_ns();
    const int64_t until =
        earlier(earlier(watch->lost_due_ns, watch->look_ns), earlier(watch->beat_ns, deadline));
    const int64_t wait_ms = until > now ? (until - now + 999999) / 1000000 : 0;
    struct signalfd_siginfo info;
    poll(watch->watched, (nfds_t)watch->count + 1, (int)wait_ms);
    shoali_hear(watch);
    while (read(watch->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        take_signal(watch, (int)info.ssi_signo);
    if (shoali_deadline_passed(watch->beat_ns)) {
        say(watch, '.');
        forgive_absence(watch);
        look(watch);
        watch->beat_ns = shoali_deadline_ns(BEAT_NS);
        heed_overseer(watch);
    }
    if (shoali_deadline_passed(watch->look_ns)) {
        find_stuck(watch);
        watch->look_ns = shoali_deadline_ns(LOOK_NS);
    }
    watch->lost_due_ns = find_lost(watch);
    collect(watch);
}

static shoal_status start_one(struct shoali_watch *watch, int32_t index,
                              const struct shoali_str *letter)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_front *front = watch->front;
    const struct shoali_command *command = &front->command[index];
    struct shoali_child *child = &watch->child[index];
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
static void await_all(struct shoali_watch *watch, int64_t deadline)
{
    while (watch->running > 0 && !shoali_deadline_passed(deadline))
        wait_events(watch, deadline);
}

/* Is every command that still runs the one that leads to the lost host? */
static bool only_lost_runs(const struct shoali_watch *watch)
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
static void await_stop(struct shoali_watch *watch, int64_t deadline)
{
    while (!only_lost_runs(watch) && !shoali_deadline_passed(deadline))
        wait_events(watch, deadline);
}

/* Those that do not listen are the user's business to look at: they cannot be reached. */
static void end_all(struct shoali_watch *watch)
{
    const bool lost = watch->lost_node >= 0;
    say(watch, 'F');
    /* Open MPI's mpirun crashes now and then when it is told to end while it does, as it does when a
     * rank has ended, and leaves its daemons. */
    if (watch->front->launcher == SHOALI_BY_OPENMPI && !lost && watch->has_end &&
        watch->end.rank >= 0)
        await_stop(watch, shoali_deadline_ns(ITSELF_NS));
    send_signal(watch, SIGTERM, false);
    await_stop(watch,
               shoali_deadline_ns(lost && !watch->front->command[0].host ? LOST_NS : STOP_NS));
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->child[i].running && watch->child[i].lifeline >= 0 && !lost)
            SHOALI_ERROR("launcher",
                         "host %s does not answer; its own launcher ends the ranks "
                         "there when it finds the connection gone",
                         watch->front->command[i].host);
    send_signal(watch, SIGTERM, true);
    await_all(watch, shoali_deadline_ns(lost ? LOST_NS : KILL_NS));
    send_signal(watch, SIGKILL, true);
    await_all(watch, shoali_deadline_ns(KILL_NS));
    if (watch->front->launcher == SHOALI_BY_OPENMPI)
        shoali_leftover_of_mpirun((int32_t)watch->child[0].pid);
}

static const char *count_rest(const struct shoali_watch *watch, char text[64])
{
    const int32_t others = watch->front->world.nodes - 1;
    text[0] = '\0';
    if (others > 0)
        snprintf(text, 64, "stopping the other %d host%s", (int)others, others == 1 ? "" : "s");
    return text;
}

/* What a host's launcher has said, or that it says nothing: the block. */
static void report_block(struct shoali_watch *watch)
{
    char rest[64];
    struct shoali_verdict verdict = {.cause = shoali_cause_of(watch->end.cause),
                                     .rank = watch->end.rank,
                                     .pid = watch->end.pid,
                                     .code = watch->end.code,
                                     .signal = watch->end.signal,
                                     .host = watch->end.host,
                                     .rest = count_rest(watch, rest),
                                     .log_folder = watch->front->args->rank_log_folder,
                                     .silent_ns = watch->front->options->silent_rank_timeout *
                                                  INT64_C(1000000000)};
    if (watch->lost_node >= 0) {
        verdict.cause = SHOALI_CAUSE_HOST;
        verdict.rank = -1;
        verdict.host = watch->front->world.node[watch->lost_node].name;
        verdict.silent_ns = watch->lost_ns;
    }
    if (verdict.cause == SHOALI_CAUSE_STUCK)
        verdict.silent_ns = shoali_stuck_limit(&watch->stuck, verdict.silent_ns);
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

static void report(struct shoali_watch *watch)
{
    const struct shoali_child *child = &watch->child[watch->culprit];
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
    const bool of_mpirun = !watch->front->command[watch->culprit].host;
    const char *host = watch->host_code                  ? watch->host
                       : of_mpirun && child->code == 255 ? watch->unlinked
                                                         : "";
    if (*host)
        snprintf(who, sizeof(who), "host %s", host);
    const bool one = *host || !of_mpirun;
    const char *others = one ? count_rest(watch, rest) : "", *comma = *others ? "; " : "";
    const int code = watch->host_code ? watch->host_code : child->code;
    if (child->signal && !watch->host_code)
        SHOALI_ERROR("launcher", "%s: its %s was killed by signal %d (%s)%s%s", who,
                     watch->front->command[watch->culprit].words.value[0], child->signal,
                     strsignal(child->signal), comma, others);
    else if (code == 255 && (*host || watch->front->launcher == SHOALI_BY_SSH))
        SHOALI_ERROR("launcher",
                     "%s: the connection is gone (ssh ended with code 255): its sshd was ended, or "
                     "the network is down; ranks there end by themselves%s%s",
                     who, comma, others);
    else
        SHOALI_ERROR("launcher", "%s ended with code %d%s%s", who, code, comma, others);
}

/* Hydra ends of a broken pipe when one of its hosts is gone with what it had to say. */
static bool broke_its_pipe(const struct shoali_watch *watch, int code)
{
    const enum shoali_remote_launcher by = watch->front->launcher;
    return code == 128 + SIGPIPE && !watch->has_end &&
           (by == SHOALI_BY_MPICH || by == SHOALI_BY_IMPI || by == SHOALI_BY_MVAPICH);
}

/* 255 is ssh's own word. */
static int exit_code_of(const struct shoali_watch *watch)
{
    /* An srun that was told to end may say 0 of a step that it has given up; who asks for a grace period
     * has ranks that leave with 0. */
    const bool trusted = !watch->stop_signal || watch->front->launcher != SHOALI_BY_SLURM ||
                         watch->front->args->grace_period > 0;
    bool well = watch->running == 0 && trusted;
    for (int32_t i = 0; i < watch->count; i++)
        well = well && !failed(&watch->child[i]);
    if (watch->culprit >= 0) {
        const struct shoali_child *child = &watch->child[watch->culprit];
        int code = child->signal ? 128 + child->signal : child->code;
        code = watch->host_code ? watch->host_code : code;
        if (watch->lost_node >= 0 || (watch->has_end && strchr("SW", watch->end.cause)))
            return 1;
        if (watch->has_end)
            code = watch->end.signal ? 128 + watch->end.signal : watch->end.code;
        return code == 255 || broke_its_pipe(watch, code) ? 1 : code;
    }
    return well ? 0 : 128 + watch->stop_signal;
}

static void supervise(struct shoali_watch *watch)
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

static shoal_status make_tables(struct shoali_watch *watch)
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
    struct shoali_watch watch = {.front = front,
                                 .count = front->commands,
                                 .culprit = -1,
                                 .signal_fd = -1,
                                 .lost_node = -1,
                                 .lost_due_ns = INT64_MAX};
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
