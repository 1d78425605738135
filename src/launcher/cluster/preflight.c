/* Better a table and a sentence before the start than N hosts of which one cannot. Every host is
 * asked over ssh at once, and has twenty seconds. */
#include "launcher/cluster/cluster.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/plain.h"
#include "base/waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_NS INT64_C(20000000000)
enum { AT_ONCE = 64, VALUE_BYTES = 128, ANSWER_BYTES_MAX = 1 << 16 };
static const double skew_max_s = 5;
static const int64_t shm_min_bytes = INT64_C(64) << 20;

struct host {
    const struct shoali_node *node;
    pid_t pid;  /* 0: not started, or ended */
    int output; /* -1: closed */
    int64_t begin_ns;
    double seconds, skew;
    int code; /* exit code, -1: none in time */
    bool whole;
    struct shoali_str text;
    char last[VALUE_BYTES]; /* line that is no part of a report: what ssh or a shell said */
};

/* The value of a line "KEY VALUE" of the report, "" when there is none. */
static const char *value_of(const struct host *host, const char *key, char value[VALUE_BYTES])
{
    const size_t length = strlen(key);
    *value = '\0';
    for (const char *at = shoali_str_get(&host->text); *at; at += strcspn(at, "\n"), at += *at != 0)
        if (strncmp(at, key, length) == 0 && at[length] == ' ')
            snprintf(value, VALUE_BYTES, "%.*s", (int)strcspn(at + length + 1, "\n"),
                     at + length + 1);
    return value;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- asking --------------------------------------------------------------------------------- */
static shoal_status make_words(const struct shoali_front *front, const struct shoali_node *node,
                               struct shoali_text_list *words)
{
    shoal_status status;
    struct shoali_text_list inner = {.arena = front->arena};
    const bool deposit = front->launcher == SHOALI_BY_PDSH;
    SHOAL_TRY(status, shoali_ssh_command(front, node, words), done);
    shoali_text_list_add(&inner, "%s", front->self);
    shoali_text_list_add(&inner, "run");
    shoali_text_list_add(&inner, "--report");
    shoali_text_list_add(&inner, "--node_rank=%d", (int)(node - front->world.node));
    if (front->master_port)
        shoali_text_list_add(&inner, "--master_port=%d", (int)front->master_port);
    if (deposit) {
        shoali_text_list_add(&inner, "--job_id=%s", front->job_id);
        shoali_text_list_add(&inner, "--secret_from=deposit");
    }
    for (const char *const *word = front->args->program; *word; word++)
        shoali_text_list_add(&inner, "%s", *word);
    shoali_remote_command(front, words->count > 0 || *front->options->venv_script, &inner, words);
    if (words->failed || inner.failed)
        status = SHOAL_ENOMEM;
done:
    return status;
}

static shoal_status ask(const struct shoali_front *front, const struct shoali_str *message,
                        struct host *host)
{
    shoal_status status;
    struct shoali_text_list words = {.arena = front->arena};
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    SHOAL_TRY(status, make_words(front, host->node, &words), done);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0 || pipe2(out, O_CLOEXEC) != 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot make pipes for %d hosts: %s",
                            (int)front->world.nodes, strerror(errno));
        goto done;
    }
    /* The output of a command whose input has ended; the message fits into the buffer. */
    if (send(in[0], message->text, message->length, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        (ssize_t)message->length)
        status = SHOAL_FAIL(SHOAL_EIO, "cannot hand the job's secret to ssh: %s", strerror(errno));
    const struct shoali_start start = {
        .words = &words, .input = in[1], .output = out[1], .errors = out[1]};
    host->begin_ns = shoali_now_ns();
    if (status == SHOAL_OK)
        SHOAL_TRY(status, shoali_start(&start, front->arena, &host->pid), done);
    host->output = out[0];
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    out[0] = -1;
done:
    for (int i = 0; i < 2; i++) {
        if (in[i] >= 0)
            close(in[i]);
        if (out[i] >= 0)
            close(out[i]);
    }
    return status;
}

/* ---- listening ------------------------------------------------------------------------------ */
static void finish(struct host *host, bool in_time)
{
    int how = 0;
    if (!in_time)
        kill(-host->pid, SIGKILL);
    waitpid(host->pid, &how, 0);
    close(host->output);
    host->output = -1;
    host->pid = 0;
    host->seconds = 1e-9 * (double)(shoali_now_ns() - host->begin_ns);
    host->code = !in_time ? -1 : WIFEXITED(how) ? WEXITSTATUS(how) : 255;
}

static void listen_to(struct host *host)
{
    char part[4096], value[VALUE_BYTES];
    ssize_t count;
    while ((count = read(host->output, part, sizeof(part))) > 0)
        if (host->text.length < ANSWER_BYTES_MAX)
            shoali_str_append_bytes(&host->text, part, (size_t)count);
    const bool whole = strstr(shoali_str_get(&host->text), "\nend\n") != NULL;
    if (whole && !host->whole)
        host->skew = shoali_strtod(value_of(host, "clock", value), NULL) - now_s();
    host->whole = whole;
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
        finish(host, true);
}

static void say_waiting(const struct host *hosts, int32_t count, struct shoali_waiting *waiting)
{
    const struct host *first = NULL;
    int32_t open = 0;
    for (int32_t i = 0; i < count; i++) {
        first = !first && hosts[i].pid > 0 ? &hosts[i] : first;
        open += hosts[i].pid > 0;
    }
    if (first && shoali_waiting_due(waiting, NULL))
        SHOALI_WARN("launcher", "waiting for %.0f s for the answer of host %s%s by ssh",
                    shoali_waiting_seconds(waiting), first->node->name,
                    open > 1 ? " and others" : "");
}

/* Waits for some of those that were asked; true while there are any. */
static bool wait_some(struct host *hosts, int32_t count)
{
    struct pollfd watched[AT_ONCE];
    struct host *of[AT_ONCE];
    int32_t open = 0;
    for (int32_t i = 0; i < count; i++) {
        if (hosts[i].pid > 0 && shoali_now_ns() - hosts[i].begin_ns > ANSWER_NS)
            finish(&hosts[i], false);
        if (hosts[i].pid > 0) {
            watched[open] = (struct pollfd){.fd = hosts[i].output, .events = POLLIN};
            of[open++] = &hosts[i];
        }
    }
    if (open > 0 && poll(watched, (nfds_t)open, 200) > 0)
        for (int32_t i = 0; i < open; i++)
            if (watched[i].revents)
                listen_to(of[i]);
    return open > 0;
}

static int32_t count_open(const struct host *hosts, int32_t count)
{
    int32_t open = 0;
    for (int32_t i = 0; i < count; i++)
        open += hosts[i].pid > 0;
    return open;
}

static shoal_status ask_all(const struct shoali_front *front, struct host *hosts)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str message = {0};
    struct shoali_waiting waiting = {0};
    const int32_t count = front->world.nodes;
    if (front->launcher == SHOALI_BY_PDSH)
        SHOAL_TRY(status, shoali_secret_message_write(&front->message, &message), done);
    for (int32_t next = 0; next < count || count_open(hosts, count) > 0;) {
        while (next < count && count_open(hosts, count) < AT_ONCE)
            SHOAL_TRY(status, ask(front, &message, &hosts[next++]), done);
        (void)wait_some(hosts, count);
        say_waiting(hosts, count, &waiting);
    }
done:
    for (int32_t i = 0; i < count; i++)
        if (hosts[i].pid > 0)
            finish(&hosts[i], false);
    if (message.text)
        memset(message.text, 0, message.length);
    shoali_str_fini(&message);
    return status;
}

/* ---- judging -------------------------------------------------------------------------------- */
/* The last line that is not the report's: ssh and shells write their complaint last. */
static void keep_last_line(struct host *host)
{
    const char *text = shoali_str_get(&host->text);
    size_t end = strlen(text), begin;
    while (end > 0 && strchr("\r\n", text[end - 1]))
        end--;
    for (begin = end; begin > 0 && text[begin - 1] != '\n';)
        begin--;
    snprintf(host->last, sizeof(host->last), "%.*s", (int)(end - begin), text + begin);
}

static shoal_status check_answer(const struct shoali_front *front, struct host *host)
{
    const char *name = host->node->name;
    keep_last_line(host);
    if (host->code == -1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "host %s has not answered in %d s: is it up? Leave it out with --exclude "
                          "%s",
                          name, (int)(ANSWER_NS / 1000000000), name);
    if (host->code == 255)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "host %s cannot be reached (%s): make `ssh -oBatchMode=yes %s true` work, "
            "without a password, or leave the host out with --exclude %s",
            name, host->last, shoali_node_login(host->node), name);
    if (host->code == 126 || host->code == 127)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "host %s cannot start %s (%s): install the same program at the same path "
                          "on all hosts",
                          name, front->self, host->last);
    if (host->code != 0 || !host->whole)
        return SHOAL_FAIL(SHOAL_EINVAL, "host %s could not report (exit code %d): %s", name,
                          host->code, host->last);
    return SHOAL_OK;
}

/* A file that has to be the same on all hosts. */
static shoal_status check_file(const struct host *host, const struct host *first, const char *key,
                               const char *what)
{
    char ours[VALUE_BYTES], theirs[VALUE_BYTES];
    value_of(host, key, ours);
    value_of(first, key, theirs);
    if (strncmp(ours, "missing ", 8) == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "host %s does not have the %s %s: copy it to the same path on all hosts",
                          host->node->name, what, ours + 8);
    if (strcmp(ours, theirs) != 0)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "the %s of host %s is not that of host %s (hashes %s and %s): copy one of "
            "them to all hosts",
            what, host->node->name, first->node->name, ours, theirs);
    return SHOAL_OK;
}

static shoal_status check_host(const struct shoali_front *front, struct host *host,
                               const struct host *first, const char *own_hash)
{
    shoal_status status;
    char value[VALUE_BYTES];
    const char *name = host->node->name;
    SHOAL_TRY(status, check_answer(front, host), done);
    if (strcmp(value_of(host, "binary", value), own_hash) != 0) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "%s on host %s is another build than on this machine (hashes %s and %s): "
                       "copy one of them to all hosts",
                       front->self, name, value, own_hash);
        goto done;
    }
    SHOAL_TRY(status, check_file(host, first, "program", "program"), done);
    SHOAL_TRY(status, check_file(host, first, "config", "configuration"), done);
    if (fabs(host->skew) > skew_max_s) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "the clock of host %s is %.1f s %s that of this machine: set it (NTP), "
                            "or nothing that they write can be compared",
                            name, fabs(host->skew), host->skew > 0 ? "ahead of" : "behind");
        goto done;
    }
    if (strtoll(value_of(host, "shm", value), NULL, 10) < shm_min_bytes) {
        char free_text[32];
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "host %s has %s free in /dev/shm, and its ranks need at least 64 MiB to "
                       "talk: clear it up, or enlarge it (docker run --shm-size=1g)",
                       name, shoali_format_bytes(shoali_strtod(value, NULL), free_text));
        goto done;
    }
    if (strcmp(value_of(host, "port", value), "busy") == 0)
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "port %d is in use on host %s: give another with --master_port, or none "
                       "for a free one",
                       (int)front->master_port, name);
done:
    return status;
}

/* ---- the table ------------------------------------------------------------------------------ */
static const char *same_or_not(const struct host *host, const char *key, const char *wanted)
{
    char value[VALUE_BYTES];
    if (!host->whole)
        return "-";
    value_of(host, key, value);
    if (strncmp(value, "missing", 7) == 0)
        return "missing";
    return !*value ? "-" : strcmp(value, wanted) == 0 ? "same" : "differs";
}

static void print_row(const struct host *host, const struct host *first, const char *own_hash)
{
    char program[VALUE_BYTES], config[VALUE_BYTES], shm[VALUE_BYTES], port[VALUE_BYTES];
    char clock[32] = "-", shm_text[32] = "-";
    value_of(first, "program", program);
    value_of(first, "config", config);
    value_of(host, "port", port);
    if (host->whole) {
        shoali_snprintf(clock, sizeof(clock), "%+.1f s", host->skew);
        shoali_format_bytes(shoali_strtod(value_of(host, "shm", shm), NULL), shm_text);
    }
    SHOALI_INFO("launcher", "%-16s %5d  %-7s  %-7s  %-7s  %9s  %10s  %5s  %5.2f s  %s",
                host->node->name, (int)host->node->slots.count,
                same_or_not(host, "binary", own_hash), same_or_not(host, "program", program),
                same_or_not(host, "config", config), clock, shm_text, *port ? port : "-",
                host->seconds, host->whole ? "" : "no report");
}

static shoal_status check_all(struct shoali_front *front, struct host *hosts)
{
    shoal_status status = SHOAL_OK;
    char own_hash[17], value[VALUE_BYTES];
    SHOAL_TRY(status, shoali_file_hash(front->self, own_hash), done);
    if (!front->options->no_preflight) {
        SHOALI_INFO("launcher", "%-16s %5s  %-7s  %-7s  %-7s  %9s  %10s  %5s  %7s", "host", "ranks",
                    "shoal", "program", "config", "clock", "free shm", "port", "time");
        for (int32_t i = 0; i < front->world.nodes; i++)
            print_row(&hosts[i], &hosts[0], own_hash);
    }
    for (int32_t i = 0; i < front->world.nodes; i++)
        SHOAL_TRY(status,
                  front->options->no_preflight ? check_answer(front, &hosts[i])
                                               : check_host(front, &hosts[i], &hosts[0], own_hash),
                  done);
    if (!front->master_port)
        front->master_port = (int32_t)strtol(value_of(&hosts[0], "port", value), NULL, 10);
    if (!front->master_addr && *value_of(&hosts[0], "address", value))
        front->master_addr = shoali_arena_strdup(front->arena, value);
done:
    return status;
}

shoal_status shoali_preflight(struct shoali_front *front)
{
    shoal_status status;
    const int32_t count = front->world.nodes;
    struct host *hosts = shoali_arena_alloc(front->arena, (size_t)count * sizeof(hosts[0]));
    if (!hosts)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < count; i++)
        hosts[i] = (struct host){.node = &front->world.node[i], .output = -1, .code = -1};
    SHOAL_TRY(status, ask_all(front, hosts), done);
    SHOAL_TRY(status, check_all(front, hosts), done);
done:
    for (int32_t i = 0; i < count; i++)
        shoali_str_fini(&hosts[i].text);
    return status;
}
