/* What the commands of a job say on standard error: passed on, without the lines that the hosts'
 * launchers put there for the front (watch/watch.h). What pdsh and srun say themselves of a host or
 * a task is read, too: srun's own code is the largest of all ranks', those that it has ended itself
 * among them. */
#include "launcher/cluster/front_watch.h"

#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int signal_of(const char *text)
{
    for (int number = 1; number < 32; number++) {
        const char *name = strsignal(number);
        if (name && strncmp(text, name, strlen(name)) == 0)
            return number;
    }
    return 0;
}

/* "srun: error: Task launch for StepId=1.0 failed on node HOST: Communication connection failure":
 * srun cancels its step next. */
static bool read_launch(struct shoali_watch *watch, const char *line)
{
    char host[64], why[64];
    if (sscanf(line, "srun: error: Task launch for %*s failed on node %63[^:]: %63[^\n]", host,
               why) != 2)
        return false;
    snprintf(watch->task, sizeof(watch->task),
             "Slurm cannot start ranks on node %.48s (%s): see `scontrol show node %.48s`", host,
             why, host);
    watch->host_code = 1;
    return true;
}

/* "srun: error: HOST: task 2: Exited with exit code 7", "srun: error: HOST: tasks 0-1,3: Killed",
 * "slurmstepd-HOST: error: *** STEP 6.0 ON HOST CANCELLED AT ..." */
static void read_srun(struct shoali_watch *watch, const char *line)
{
    static const char mark[] = "srun: error: ", exited[] = "Exited with exit code ";
    char host[64], which[32];
    int end = 0;
    const char *what = line + sizeof(mark) - 1;
    if (read_launch(watch, line)) {
        watch->culprit = 0;
        return;
    }
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
static void read_pdsh(struct shoali_watch *watch, char *line)
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

/* "Connection to HOST closed by remote host.": ssh's words through mpirun, which itself says
 * nothing of hosts. It may go on without the connection (MPICH): this is the reason only when it
 * does not. */
static void read_ssh(struct shoali_watch *watch, char *line)
{
    static const char begin[] = "Connection to ", mark[] = " closed by remote host";
    const char *host = line + sizeof(begin) - 1;
    char *end = strstr(line, mark);
    if (watch->unlinked[0] || watch->stop_signal || !end ||
        strncmp(line, begin, sizeof(begin) - 1) != 0)
        return;
    snprintf(watch->unlinked, sizeof(watch->unlinked), "%.*s", (int)(end - host), host);
}

/* A host waits a moment before it says that a rank was killed, for what its other ranks say of
 * that; those of other hosts may have learnt of it by then, and left, or written to its sockets
 * (SIGPIPE). Such a first word gives way to a death. */
static bool is_hearsay(struct shoali_watch *watch, const struct shoali_wire_end *end)
{
    const struct shoali_rank_view *view = &watch->view[end->rank];
    if (end->cause == 'E' && end->signal == SIGPIPE)
        return true;
    if (end->cause != 'E' || end->signal != 0 || end->code != 1)
        return false;
    (void)shoali_copies_poll(&watch->copies, watch->view);
    return shoali_rank_is_echo(view) || !view->known || view->page.failure == 0;
}

static void take_end(struct shoali_watch *watch, int32_t index, const struct shoali_wire_end *end)
{
    const bool better = watch->has_end && !is_hearsay(watch, end) && is_hearsay(watch, &watch->end);
    if (watch->stop_signal || (watch->has_end && !better))
        return;
    watch->has_end = true;
    watch->end = *end;
    if (watch->culprit < 0)
        watch->culprit = index;
}

/* A line of a host's launcher. */
static void read_wire(struct shoali_watch *watch, int32_t index, const char *line)
{
    struct shoali_wire_end end;
    int32_t about = 0;
    const char kind = shoali_wire_read(&watch->copies, line, &about, &end);
    if (kind == 0)
        return;
    const int32_t node = kind == 'H' ? about : shoali_world_node_of(&watch->front->world, about);
    if (node < watch->front->world.nodes)
        watch->received_ns[node] = shoali_now_ns();
    if (kind == 'E')
        take_end(watch, index, &end);
}

static void pass_on(const char *text, size_t length)
{
    if (length > 0)
        (void)!write(STDERR_FILENO, text, length);
}

/* pdsh writes whole lines, "HOST: " before each; srun's own are whole. */
static void receive_line(struct shoali_watch *watch, int32_t index)
{
    struct shoali_child *child = &watch->child[index];
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

/* Text that is passed on as it comes, and read when its line is whole. */
static void keep_plain(struct shoali_watch *watch, struct shoali_child *child, char c)
{
    if (c != '\n') {
        if (child->length < sizeof(child->line) - 2)
            child->line[child->length++] = c;
        return;
    }
    child->line[child->length] = '\0';
    child->length = 0;
    read_ssh(watch, child->line);
    shoali_unstarted_receive(watch, child->line);
}

/* mpirun may crash while it ends a job that has failed (front_watch.c), and prints where. That is
 * no news of the job. Its lines begin with "[HOST:PID] ", and those that may do are kept until they
 * are whole. */
static bool is_of_crash(struct shoali_watch *watch, const struct shoali_child *child)
{
    char mark[32];
    const char *end = strchr(child->line, ']');
    const int length = snprintf(mark, sizeof(mark), ":%d", (int)child->pid);
    const bool own =
        end && end - child->line > length && strncmp(end - length, mark, (size_t)length) == 0;
    const bool ends = watch->has_end || watch->lost_node >= 0 || watch->stop_signal;
    if (own && ends && strstr(end, "*** Process received signal ***"))
        watch->in_trace = true;
    const bool dropped = own && watch->in_trace;
    if (own && strstr(end, "*** End of error message ***"))
        watch->in_trace = false;
    return dropped;
}

/* A line that begins with a bracket, whole: passed on, or no news. */
static void keep_bracketed(struct shoali_watch *watch, struct shoali_child *child)
{
    const size_t length = child->length;
    child->line[length] = '\0';
    if (is_of_crash(watch, child))
        return;
    child->line[length] = '\n';
    pass_on(child->line, length + 1);
}

/* What is kept of a bracketed line, then what follows. */
static void pass_plain(const struct shoali_child *child, const char *text, size_t length)
{
    if (child->bracketed)
        pass_on(child->line, child->length);
    else
        pass_on(text, length);
}

/* Before character i of the part is read. Returns where what is to be passed on begins. */
static size_t hold_back(struct shoali_watch *watch, struct shoali_child *child, const char *part,
                        size_t plain, size_t i)
{
    const bool openmpi = watch->front->launcher == SHOALI_BY_OPENMPI;
    if (openmpi && !child->bracketed && child->length == 0 && part[i] == '[') {
        pass_on(part + plain, i - plain);
        child->bracketed = true;
    } else if (child->bracketed && part[i] == '\n') {
        keep_bracketed(watch, child);
        child->bracketed = false;
        return i + 1;
    } else if (child->bracketed && child->length >= sizeof(child->line) - 3) {
        pass_on(child->line, child->length);
        child->bracketed = false;
        return i;
    }
    return plain;
}

static void receive_part(struct shoali_watch *watch, int32_t index, const char *part, size_t count)
{
    struct shoali_child *child = &watch->child[index];
    const bool lines =
        watch->front->launcher == SHOALI_BY_PDSH || watch->front->launcher == SHOALI_BY_SLURM;
    size_t plain = 0; /* where what is to be passed on begins */
    for (size_t i = 0; i < count; i++) {
        const char c = part[i];
        if (!lines && (!child->marked || c == SHOALI_WIRE_MARK)) {
            if (c != SHOALI_WIRE_MARK) {
                plain = hold_back(watch, child, part, plain, i);
                keep_plain(watch, child, c);
                continue;
            }
            if (!child->marked) /* else mpirun has cut a line short */
                pass_plain(child, part + plain, i - plain);
            child->marked = true;
            child->bracketed = false;
            child->length = 0;
        } else if (c != '\n') {
            if (child->length < sizeof(child->line) - 2)
                child->line[child->length++] = c;
        } else if (lines) {
            receive_line(watch, index);
        } else {
            child->line[child->length] = '\0';
            read_wire(watch, index, child->line);
            child->marked = false;
            child->length = 0;
            plain = i + 1;
        }
    }
    if (!lines && !child->marked && !child->bracketed)
        pass_on(part + plain, count - plain);
}

void shoali_watch_receive(struct shoali_watch *watch)
{
    char part[4096];
    for (int32_t i = 0; i < watch->count; i++) {
        struct shoali_child *child = &watch->child[i];
        ssize_t count = -1;
        while (child->errors >= 0 && (count = read(child->errors, part, sizeof(part))) > 0)
            receive_part(watch, i, part, (size_t)count);
        if (child->errors >= 0 && count == 0) {
            if (child->bracketed)
                pass_on(child->line, child->length);
            close(child->errors);
            child->errors = -1;
        }
    }
}
