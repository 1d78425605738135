/* Hosts that have not said a word since the launcher's program was started: it may wait for them
 * for ever. A host speaks before its first rank is started. */
#include "launcher/cluster/front_watch.h"

#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)

static bool is_hydra(const struct shoali_watch *watch)
{
    const enum shoali_remote_launcher by = watch->front->launcher;
    return by == SHOALI_BY_MPICH || by == SHOALI_BY_MVAPICH || by == SHOALI_BY_IMPI;
}

void shoali_unstarted_begin(struct shoali_watch *watch)
{
    const int64_t seconds = watch->front->options->start_timeout;
    /* Outside an allocation srun may wait in Slurm's queue for days. */
    const bool queues = watch->front->launcher == SHOALI_BY_SLURM && !getenv("SLURM_JOB_ID");
    watch->start_due_ns =
        seconds > 0 && !queues ? shoali_deadline_ns(seconds * SECOND_NS) : INT64_MAX;
}

/* "bash: line 1: /usr/bin/hydra_pmi_proxy: No such file or directory": mpirun waits for it. */
static void read_proxy(struct shoali_watch *watch, const char *line)
{
    const bool failed = strstr(line, "No such file") || strstr(line, "not found") ||
                        strstr(line, "ermission denied") || strstr(line, "cannot execute");
    if (watch->proxy[0] || !failed || !strstr(line, "hydra"))
        return;
    snprintf(watch->proxy, sizeof(watch->proxy), "%s", line);
    watch->start_due_ns = shoali_deadline_ns(SECOND_NS / 2);
}

/* The host that a complaint of ssh's names: "ssh: connect to host HOST port 22: REASON",
 * "ssh: Could not resolve hostname HOST: REASON", "USER@HOST: Permission denied (publickey).".
 * "Host key verification failed." names none. False: the line is no complaint. */
static bool read_complaint(const char *line, char host[80])
{
    char first[8];
    host[0] = '\0';
    return strncmp(line, "Host key verification failed", 28) == 0 ||
           sscanf(line, "ssh: connect to host %79s port %7[0-9]", host, first) == 2 ||
           sscanf(line, "ssh: Could not resolve hostname %79[^: ]: %7s", host, first) == 2 ||
           (strstr(line, ": Permission denied (") && !strchr(line, '/') &&
            sscanf(line, "%*[^@: ]@%79[^: ]%7[:]", host, first) == 2);
}

/* mpirun ends of it and names no host, or waits for ever (Hydra). Of a host that speaks the
 * complaint is not. */
static void read_unreached(struct shoali_watch *watch, const char *line)
{
    const struct shoali_world *world = &watch->front->world;
    char host[80];
    int32_t node = -1;
    if (watch->unreached[0] || !read_complaint(line, host))
        return;
    for (int32_t i = 0; i < world->nodes && node < 0; i++)
        node = strcmp(world->node[i].name, host) == 0 ? i : -1;
    if (node >= 0 && watch->received_ns[node] > 0)
        return;
    snprintf(watch->unreached, sizeof(watch->unreached), "%.*s", (int)strcspn(line, "\r"), line);
    watch->unreached_node = node;
    if (is_hydra(watch))
        watch->start_due_ns = shoali_deadline_ns(SECOND_NS / 2);
}

void shoali_unstarted_receive(struct shoali_watch *watch, const char *line)
{
    if (watch->start_due_ns == INT64_MAX || watch->stop_signal)
        return;
    if (is_hydra(watch))
        read_proxy(watch, line);
    read_unreached(watch, line);
}

/* Has the process this word among its arguments? */
static bool has_word(int32_t pid, const char *word)
{
    char path[48], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t count = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
    if (file >= 0)
        close(file);
    text[count > 0 ? count : 0] = '\0';
    bool found = false;
    for (const char *at = text; count > 0 && at < text + count && !found; at += strlen(at) + 1)
        found = strcmp(at, word) == 0;
    return found;
}

/* The other host to which no connection of mpirun's is left; -1: that is not known. */
static int32_t find_without_ssh(const struct shoali_watch *watch)
{
    const struct shoali_world *world = &watch->front->world;
    struct shoali_family family;
    int32_t without = -1;
    shoali_family_find(watch, &family);
    for (int32_t i = 0; i < world->nodes && without < 0; i++) {
        bool served = world->node[i].here || watch->received_ns[i] > 0;
        /* after mpirun itself, whose arguments name all of them */
        for (int32_t k = 1; k < family.count && !served; k++)
            served = has_word(family.member[k].pid, world->node[i].name);
        without = served ? -1 : i;
    }
    free(family.member);
    return without;
}

int64_t shoali_unstarted_find(struct shoali_watch *watch)
{
    int32_t silent = -1, count = 0;
    if (watch->culprit >= 0 || watch->stop_signal || watch->ended)
        return INT64_MAX;
    for (int32_t i = watch->front->world.nodes - 1; i >= 0; i--)
        if (watch->received_ns[i] == 0) {
            silent = i;
            count++;
        }
    if (count == 0) {
        watch->start_due_ns = INT64_MAX;
        watch->unreached[0] = '\0';
    }
    if (!shoali_deadline_passed(watch->start_due_ns))
        return watch->start_due_ns;
    if (watch->proxy[0])
        silent = find_without_ssh(watch);
    else if (watch->unreached[0])
        silent = watch->unreached_node;
    watch->unstarted = true;
    watch->unstarted_node = silent;
    watch->unstarted_count = count;
    watch->culprit = silent >= 0 && silent < watch->count ? silent : 0;
    return INT64_MAX;
}

static const char *advice_of(const struct shoali_watch *watch)
{
    switch (watch->front->launcher) {
    case SHOALI_BY_OPENMPI:
        return "mpirun waits for its daemon: see that `ssh HOST orted --version` works";
    case SHOALI_BY_MPICH:
    case SHOALI_BY_MVAPICH:
    case SHOALI_BY_IMPI:
        return "mpirun waits for its hydra_pmi_proxy: see that `ssh HOST true` works and that all "
               "hosts have the same MPI at the same path";
    case SHOALI_BY_SLURM:
        return "srun waits for nodes or for other steps (squeue --steps)";
    default:
        return "its ssh, a shell's start-up files, --venv_script or a file system may wait";
    }
}

bool shoali_unstarted_is_reason(const struct shoali_watch *watch)
{
    return watch->unstarted || watch->unreached[0];
}

static void report_unreached(const struct shoali_watch *watch)
{
    const struct shoali_node *node =
        watch->unreached_node >= 0 ? &watch->front->world.node[watch->unreached_node] : NULL;
    if (node)
        SHOALI_ERROR("launcher",
                     "host %s cannot be reached (%s): make `ssh -oBatchMode=yes %s true` work, "
                     "without a password, or leave the host out with --exclude %s",
                     node->name, watch->unreached, shoali_node_login(node), node->name);
    else
        SHOALI_ERROR("launcher",
                     "a host cannot be reached (%s): make `ssh -oBatchMode=yes HOST true` work for "
                     "all hosts, without a password",
                     watch->unreached);
}

void shoali_unstarted_report(const struct shoali_watch *watch)
{
    const struct shoali_world *world = &watch->front->world;
    const int seconds = (int)watch->front->options->start_timeout;
    const bool named =
        watch->unstarted_node >= 0 &&
        (watch->proxy[0] || watch->unstarted_count < world->nodes || world->nodes == 1);
    const char *host = named ? world->node[watch->unstarted_node].name : "";
    if (watch->unreached[0])
        report_unreached(watch);
    else if (watch->proxy[0])
        SHOALI_ERROR("launcher",
                     "%s%s cannot start %s's hydra_pmi_proxy: install the same MPI at the same "
                     "path on all hosts, or give --launcher ssh",
                     named ? "host " : "a host", host,
                     shoali_launcher_name_of(watch->front->launcher));
    else
        SHOALI_ERROR(
            "launcher", "%s%s has started %s rank within %d s: %s; --start_timeout sets the limit",
            named ? "host " : "no host", host, named ? "no" : "a", seconds, advice_of(watch));
}
