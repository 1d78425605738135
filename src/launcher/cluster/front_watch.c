/* The front while the job runs: it sleeps until a command ends, a signal comes, a command says
 * something (receive.c), or it is time for the next character on the lifelines. A host that has
 * sent lines for the front and sends none any more is lost. */
#include "launcher/cluster/front_watch.h"

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
#define POLL_NS INT64_C(250000000) /* for ranks that wait for each other */
/* Hosts that were told to stop need 0.3 s for their ranks' own end, and 0.6 s to kill them. */
#define STOP_NS INT64_C(4000000000)
#define KILL_NS INT64_C(1000000000)
#define TELL_NS INT64_C(12000000000)  /* ssh gives up after 10 s */
#define ITSELF_NS INT64_C(2000000000) /* for an mpirun that ends the job on its own */
/* With a host lost: pdsh and mpirun, which lead to all hosts, may wait for it for long. */
#define LOST_NS INT64_C(300000000)
enum { USAGE = 2 }; /* the rank has said what is wrong with its command line */

static void say_to(const struct shoali_child *child, char word)
{
    if (child->running && child->lifeline >= 0)
        (void)!send(child->lifeline, &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say(const struct shoali_watch *watch, char word)
{
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->front->command[i].lifeline)
            say_to(&watch->child[i], word);
}

/* To commands without a lifeline, which pass it on or end. */
static void send_signal(const struct shoali_watch *watch, int signal, bool all)
{
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->child[i].running && (all || !watch->front->command[i].lifeline))
            kill(-watch->child[i].pid, signal);
}

static void name(const struct shoali_watch *watch, int32_t index, char *text, size_t bytes)
{
    const char *host = watch->front->command[index].host;
    snprintf(text, bytes, host ? "host %s" : "%s",
             host ? host : watch->front->command[index].words.value[0]);
}

#define MISSED_NS (BEAT_NS + BEAT_NS / 2)

/* A host from which nothing has come for too long. Returns when one may be next. */
static int64_t find_lost(struct shoali_watch *watch)
{
    const int64_t timeout_ns = watch->front->options->host_timeout * INT64_C(1000000000);
    const int64_t now_ns = shoali_now_ns();
    int64_t next_ns = INT64_MAX;
    if (timeout_ns == 0 || watch->culprit >= 0 || watch->stop_signal)
        return next_ns;
    for (int32_t i = 0; i < watch->front->world.nodes; i++) {
        const int64_t end_ns = watch->received_ns[i] + timeout_ns;
        if (watch->received_ns[i] > 0 && now_ns >= end_ns && watch->lost_node < 0)
            shoali_watch_lose(watch, i, MISSED_NS);
        if (watch->received_ns[i] > 0 && end_ns < next_ns)
            next_ns = end_ns;
    }
    return watch->lost_node < 0 ? next_ns : INT64_MAX;
}

/* A front that did not run has received nothing. */
static void forgive_absence(struct shoali_watch *watch)
{
    const int64_t late_ns = shoali_now_ns() - watch->beat_ns;
    for (int32_t i = 0; late_ns > BEAT_NS && i < watch->front->world.nodes; i++)
        if (watch->received_ns[i] > 0)
            watch->received_ns[i] += late_ns;
}

/* Hosts know of their own ranks alone. What a host that says nothing has said before is no news of
 * it. Later than a host finds a silent rank (run/poll.c), which is the reason where there is one.
 */
static void find_stuck(struct shoali_watch *watch)
{
    const int64_t limit_ns = watch->front->options->silent_rank_timeout * INT64_C(1000000000);
    for (int32_t i = 0; i < watch->front->world.nodes; i++)
        if (shoali_now_ns() - watch->received_ns[i] > MISSED_NS)
            watch->stuck.since_ns = 0;
    (void)shoali_copies_poll(&watch->copies, watch->view);
    if (limit_ns == 0 || watch->culprit >= 0 || watch->stop_signal || watch->ended ||
        !shoali_ranks_stuck(watch->view, watch->copies.ranks, limit_ns + BEAT_NS, &watch->stuck))
        return;
    watch->has_end = true;
    watch->end = (struct shoali_wire_end){.rank = -1, .cause = 'W'};
    watch->culprit = 0;
}

static void ask_overseer(struct shoali_watch *watch)
{
    struct shoali_straggler straggler;
    if (watch->warned_straggler)
        return;
    (void)shoali_copies_poll(&watch->copies, watch->view);
    shoali_ranks_straggler(watch->view, watch->copies.ranks, &straggler);
    watch->warned_straggler =
        shoali_straggler_warn(&straggler, &watch->straggler_polls, watch->view);
}

static bool failed(const struct shoali_child *child)
{
    return child->signal || child->code;
}

/* 1 is also how a host ends whose ranks learnt of another host's failure; 143 how one ends that was
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
        shoali_watch_receive(watch);
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

/* It ends its ranks at a second SIGINT, and waits for them after SIGTERM. */
static bool is_hydra(const struct shoali_watch *watch)
{
    const enum shoali_remote_launcher by = watch->front->launcher;
    return by == SHOALI_BY_MPICH || by == SHOALI_BY_IMPI || by == SHOALI_BY_MVAPICH;
}

static void ask_to_save(struct shoali_watch *watch)
{
    say(watch, shoali_lifeline_word(SIGUSR1));
    if (watch->front->launcher == SHOALI_BY_PDSH) /* which it would end */
        shoali_watch_signal(watch, shoali_lifeline_word(SIGUSR1));
    else
        send_signal(watch, SIGUSR1, false);
}

static void take_signal(struct shoali_watch *watch, int signal)
{
    if (signal == SIGCHLD)
        return;
    note_asked(watch, signal);
    if (signal == SIGUSR1) {
        ask_to_save(watch);
        return;
    }
    say(watch, shoali_lifeline_word(signal));
    if (watch->signals++ == 0 && watch->culprit < 0)
        watch->stop_signal = signal;
    if (watch->front->launcher == SHOALI_BY_PDSH)
        shoali_watch_signal(watch, shoali_lifeline_word(signal));
    else if (watch->front->command[0].words_in && watch->front->args->grace_period > 0)
        say_to(&watch->child[0], shoali_lifeline_word(signal));
    else if (watch->signals == 1)
        send_signal(watch, signal, false);
    if (watch->signals > 1 && watch->front->launcher != SHOALI_BY_PDSH)
        send_signal(watch, is_hydra(watch) ? SIGINT : SIGTERM, false);
}

/* Not while the job is being stopped. */
static void heed_overseer(struct shoali_watch *watch)
{
    struct shoali_overseer *overseer = watch->front->overseer;
    if (!overseer || watch->culprit >= 0 || watch->stop_signal || watch->ended)
        return;
    switch (overseer->poll(overseer->user, watch->front)) {
    case SHOALI_GO_ON:
        break;
    case SHOALI_ASK_TO_SAVE:
        ask_to_save(watch);
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
        earlier(earlier(watch->lost_due_ns, watch->poll_ns), earlier(watch->beat_ns, deadline));
    const int64_t wait_ms = until > now ? (until - now + 999999) / 1000000 : 0;
    struct signalfd_siginfo info;
    poll(watch->watched, (nfds_t)watch->count + 1, (int)wait_ms);
    shoali_watch_receive(watch);
    while (read(watch->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        take_signal(watch, (int)info.ssi_signo);
    if (shoali_deadline_passed(watch->beat_ns)) {
        say(watch, '.');
        forgive_absence(watch);
        ask_overseer(watch);
        watch->beat_ns = shoali_deadline_ns(BEAT_NS);
        heed_overseer(watch);
    }
    if (shoali_deadline_passed(watch->poll_ns)) {
        find_stuck(watch);
        watch->poll_ns = shoali_deadline_ns(POLL_NS);
    }
    watch->lost_due_ns = earlier(find_lost(watch), shoali_unstarted_find(watch));
    (void)shoali_watch_signal_rest(watch);
    collect(watch);
}

static shoal_status start_one(struct shoali_watch *watch, int32_t index,
                              const struct shoali_str *message)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_front *front = watch->front;
    const struct shoali_command *command = &front->command[index];
    struct shoali_child *child = &watch->child[index];
    int pair[2] = {-1, -1}, pipes[2] = {-1, -1};
    const bool mpi = front->launcher != SHOALI_BY_SSH && front->launcher != SHOALI_BY_PDSH;
    if ((command->lifeline || command->words_in) &&
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "cannot make a lifeline: %s", strerror(errno));
    if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) != 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot make a pipe: %s", strerror(errno));
        goto done;
    }
    fcntl(pipes[1], F_SETFL, 0); /* it is the command's, which expects to wait */
    child->errors = pipes[0];
    const struct shoali_start start = {.words = &command->words,
                                       .assignments = &front->assignments,
                                       .secret = mpi ? front->message.secret : NULL,
                                       .input = pair[1],
                                       .output = -1,
                                       .errors = pipes[1]};
    SHOAL_TRY(status, shoali_start(&start, front->arena, &child->pid), done);
    child->running = true;
    watch->running++;
    child->lifeline = pair[0];
    pair[0] = -1;
    /* The buffer of a socket holds more than a message's limit. */
    if (command->lifeline && send(child->lifeline, message->text, message->length,
                                  MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)message->length)
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
    const int32_t node = watch->unstarted ? watch->unstarted_node : watch->lost_node;
    const char *lost = node >= 0 ? watch->front->world.node[node].name : NULL;
    for (int32_t i = 0; i < watch->count; i++) {
        const char *host = watch->front->command[i].host;
        if (watch->child[i].running && (!lost || !host || strcmp(host, lost) != 0))
            return false;
    }
    return true;
}

/* A host that was lost does not learn that it is to end: nothing waits for its command. */
static void await_stop(struct shoali_watch *watch, int64_t deadline)
{
    while (!only_lost_runs(watch) && !shoali_deadline_passed(deadline))
        wait_events(watch, deadline);
}

/* Those that do not listen are the user's business to look at: they cannot be reached. */
static void end_all(struct shoali_watch *watch)
{
    const bool lost = watch->lost_node >= 0 || watch->unstarted;
    struct shoali_family family;
    shoali_family_find(watch, &family);
    say(watch, 'F');
    /* Open MPI's mpirun crashes now and then when it is told to end while it does, as it does when
     * a rank has ended, and leaves its daemons. */
    if (watch->front->launcher == SHOALI_BY_OPENMPI && !lost && watch->has_end &&
        watch->end.rank >= 0)
        await_stop(watch, shoali_deadline_ns(ITSELF_NS));
    send_signal(watch, SIGTERM, false);
    await_stop(watch,
               shoali_deadline_ns(lost && !watch->front->command[0].host ? LOST_NS : STOP_NS));
    for (int32_t i = 0; i < watch->count; i++)
        if (watch->child[i].running && watch->front->command[i].lifeline && !lost)
            SHOALI_ERROR("launcher",
                         "host %s does not answer; its own launcher ends the ranks there when it "
                         "loses the connection",
                         watch->front->command[i].host);
    send_signal(watch, SIGTERM, true);
    await_all(watch, shoali_deadline_ns(lost ? LOST_NS : KILL_NS));
    send_signal(watch, SIGKILL, true);
    await_all(watch, shoali_deadline_ns(KILL_NS));
    shoali_family_end(&family);
    if (watch->front->launcher == SHOALI_BY_OPENMPI)
        shoali_cleanup_mpirun((int32_t)watch->child[0].pid);
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
    (void)shoali_copies_poll(&watch->copies, watch->view);
    /* The first word may be of a rank that had learnt of the failure. */
    for (int32_t r = 0; verdict.cause == SHOALI_CAUSE_ENDED && verdict.signal == 0 &&
                        r < watch->copies.ranks && shoali_rank_is_echo(&watch->view[verdict.rank]);
         r++)
        if (watch->view[r].known && watch->view[r].page.failure != 0 &&
            !shoali_rank_is_echo(&watch->view[r])) {
            verdict.rank = r;
            verdict.pid = (int)watch->view[r].page.pid;
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
    if (shoali_unstarted_is_reason(watch)) {
        shoali_unstarted_report(watch);
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
    return code == 128 + SIGPIPE && !watch->has_end && is_hydra(watch);
}

/* 255 is ssh's own word. */
static int exit_code_of(const struct shoali_watch *watch)
{
    /* An srun that was told to end may say 0 of a step that it has given up; who asks for a grace
     * period has ranks that leave with 0. */
    const bool trusted = !watch->stop_signal || watch->front->launcher != SHOALI_BY_SLURM ||
                         watch->front->args->grace_period > 0;
    bool well = watch->running == 0 && trusted;
    for (int32_t i = 0; i < watch->count; i++)
        well = well && !failed(&watch->child[i]);
    if (watch->culprit >= 0) {
        const struct shoali_child *child = &watch->child[watch->culprit];
        int code = child->signal ? 128 + child->signal : child->code;
        code = watch->host_code ? watch->host_code : code;
        if (watch->lost_node >= 0 || watch->unstarted ||
            (watch->has_end && strchr("SW", watch->end.cause)))
            return 1;
        if (watch->has_end)
            code = watch->end.signal ? 128 + watch->end.signal : watch->end.code;
        return code == 255 || broke_its_pipe(watch, code) ? 1 : code;
    }
    return well ? 0 : 128 + watch->stop_signal;
}

/* Until all have ended; soon after a second signal. */
static void await_saves(struct shoali_watch *watch, int64_t deadline)
{
    struct shoali_waiting waiting = {0};
    while (watch->running > 0 && watch->signals < 2 && !shoali_deadline_passed(deadline)) {
        wait_events(watch, deadline);
        shoali_watch_say_saving(watch, &waiting);
    }
    const int64_t signalled = shoali_deadline_ns(TELL_NS);
    while (watch->running > 0 && shoali_watch_signal_rest(watch) &&
           !shoali_deadline_passed(signalled))
        wait_events(watch, signalled);
    if (watch->signals > 1)
        await_all(watch, shoali_deadline_ns(STOP_NS));
}

static void supervise(struct shoali_watch *watch)
{
    const int32_t grace = watch->front->args->grace_period;
    struct shoali_waiting waiting = {0};
    while (watch->running > 0 && watch->culprit < 0 && !watch->stop_signal && !watch->ended) {
        wait_events(watch, INT64_MAX);
        shoali_watch_say_silent(watch, &waiting);
    }
    if (watch->stop_signal) {
        SHOALI_INFO("launcher", "signal %d (%s): stopping the job on %d host%s", watch->stop_signal,
                    strsignal(watch->stop_signal), (int)watch->front->world.nodes,
                    watch->front->world.nodes == 1 ? "" : "s");
        await_saves(watch, shoali_deadline_ns(grace * INT64_C(1000000000) + STOP_NS));
    }
    if (watch->running > 0)
        end_all(watch);
    if (watch->culprit >= 0) {
        report(watch);
    } else if (watch->stop_signal) {
        (void)shoali_copies_poll(&watch->copies, watch->view);
        shoali_stop_report(watch->front->args->program, watch->view, watch->copies.ranks,
                           exit_code_of(watch) == 0);
    }
}

static shoal_status make_tables(struct shoali_watch *watch)
{
    const struct shoali_world *world = &watch->front->world;
    struct shoali_arena *arena = watch->front->arena;
    const size_t ranks = (size_t)world->ranks, count = (size_t)watch->count;
    watch->child = shoali_arena_alloc(arena, count * sizeof(watch->child[0]));
    watch->watched = shoali_arena_alloc(arena, (count + 1) * sizeof(watch->watched[0]));
    watch->received_ns =
        shoali_arena_alloc(arena, (size_t)world->nodes * sizeof(watch->received_ns[0]));
    watch->view = shoali_arena_alloc(arena, ranks * sizeof(watch->view[0]));
    watch->copies.page = shoali_arena_alloc(arena, ranks * sizeof(watch->copies.page[0]));
    watch->sender = shoali_arena_alloc(arena, (size_t)world->nodes * sizeof(watch->sender[0]));
    if (!watch->child || !watch->watched || !watch->received_ns || !watch->view ||
        !watch->copies.page || !watch->sender)
        return SHOAL_ENOMEM;
    watch->copies.job = watch->front->job_id;
    watch->copies.ranks = world->ranks;
    memset(watch->sender, 0, (size_t)world->nodes * sizeof(watch->sender[0]));
    memset(watch->received_ns, 0, (size_t)world->nodes * sizeof(watch->received_ns[0]));
    memset(watch->view, 0, ranks * sizeof(watch->view[0]));
    memset(watch->copies.page, 0, ranks * sizeof(watch->copies.page[0]));
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
    struct shoali_str message = {0};
    sigset_t signals, old_mask;
    struct sigaction old_child, plain = {.sa_handler = SIG_DFL};
    int held = -1;
    shoali_job_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, &old_mask);
    sigaction(SIGCHLD, &plain, &old_child);
    watch.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (watch.signal_fd < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot watch for signals: %s", strerror(errno));
        goto done;
    }
    SHOAL_TRY(status, make_tables(&watch), done);
    shoali_stale_segments_unlink();
    held = shoali_job_hold(front->job_id);
    SHOAL_TRY(status, shoali_secret_message_write(&front->message, &message), done);
    watch.beat_ns = shoali_deadline_ns(BEAT_NS);
    shoali_unstarted_begin(&watch);
    for (int32_t i = 0; i < watch.count && status == SHOAL_OK; i++)
        status = start_one(&watch, i, &message);
    if (status < 0) {
        end_all(&watch);
    } else {
        supervise(&watch);
        *exit_code = exit_code_of(&watch);
    }
done:
    if (message.text)
        memset(message.text, 0, message.length);
    shoali_str_fini(&message);
    for (int32_t i = 0; watch.child && i < watch.count; i++) {
        if (watch.child[i].lifeline >= 0)
            close(watch.child[i].lifeline);
        if (watch.child[i].errors >= 0)
            close(watch.child[i].errors);
    }
    shoali_watch_signal_end(&watch);
    shoali_copies_drop(&watch.copies);
    shoali_cleanup_segments(front->job_id);
    shoali_job_let_go(held, front->job_id);
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
