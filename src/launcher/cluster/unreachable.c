/* Which of several silent hosts is the one. An mpirun passes on what its hosts say, one word after
 * the other: when the network of one fails in the middle of a word, it waits for the rest, and
 * nothing comes from the others either. So each is called once on the port of its sshd; a refusal
 * is an answer, too. The calls are children's, for a name may be asked of a server that is gone as
 * well. */
#include "launcher/cluster/front_watch.h"

#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS_ASKED = 64, SSH_PORT = 22, NOTHING = 1 };
#define ANSWER_NS INT64_C(400000000)
#define LOOK_NS INT64_C(5000000)

static int call(const char *host, int64_t port)
{
    char service[24];
    struct addrinfo *at, hints = {.ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof(service), "%lld", (long long)(port > 0 ? port : SSH_PORT));
    if (getaddrinfo(host, service, &hints, &at) != 0)
        return NOTHING;
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0; /* not asked is not unreachable */
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0 || errno == ECONNREFUSED)
        return 0;
    return NOTHING;
}

/* Returns once all have ended; those that take too long are ended. */
static void await_answers(pid_t *caller, bool *answers, int32_t count)
{
    const int64_t deadline = shoali_deadline_ns(ANSWER_NS);
    int32_t left = count;
    for (int how; left > 0; nanosleep(&(struct timespec){0, LOOK_NS}, NULL)) {
        const bool late = shoali_deadline_passed(deadline);
        for (int32_t i = 0; i < count; i++) {
            if (caller[i] > 0 && late)
                kill(caller[i], SIGKILL);
            if (caller[i] < 0 || waitpid(caller[i], &how, late ? 0 : WNOHANG) == 0)
                continue;
            answers[i] = WIFEXITED(how) && WEXITSTATUS(how) == 0;
            caller[i] = -1;
            left--;
        }
    }
}

/* The first of the hosts that have been silent for so long at which nobody answers, where another
 * answers; else -1. Takes up to 0.4 s. */
static int32_t find_unreachable(const struct shoali_watch *watch, int64_t silent_ns)
{
    const struct shoali_front *front = watch->front;
    pid_t caller[HOSTS_ASKED];
    int32_t node[HOSTS_ASKED], count = 0, answered = 0, first = -1;
    bool answers[HOSTS_ASKED] = {false};
    const int64_t now_ns = shoali_now_ns();
    for (int32_t i = 0; i < front->world.nodes && count < HOSTS_ASKED; i++) {
        if (watch->received_ns[i] == 0 || now_ns - watch->received_ns[i] < silent_ns)
            continue;
        const pid_t pid = fork();
        if (pid == 0)
            _exit(call(front->world.node[i].name, front->options->ssh_port));
        if (pid < 0)
            break;
        node[count] = i;
        caller[count++] = pid;
    }
    await_answers(caller, answers, count);
    for (int32_t i = count - 1; i >= 0; i--) {
        answered += answers[i];
        first = answers[i] ? first : node[i];
    }
    return answered > 0 ? first : -1;
}

void shoali_watch_lose(struct shoali_watch *watch, int32_t first, int64_t missed_ns)
{
    const int64_t now_ns = shoali_now_ns();
    int32_t silent = 0, node = -1;
    for (int32_t i = 0; i < watch->front->world.nodes; i++)
        silent += watch->received_ns[i] > 0 && now_ns - watch->received_ns[i] > missed_ns;
    if (silent > 1)
        node = find_unreachable(watch, missed_ns);
    watch->lost_node = node >= 0 ? node : first;
    watch->lost_ns = now_ns - watch->received_ns[watch->lost_node];
    watch->culprit = watch->count > watch->lost_node ? watch->lost_node : 0;
}
