/* What a job may leave behind: segments in the user's folder of /dev/shm, and processes that left
 * their rank's group. Both are found by the job's id, never by a name that another job could share.
 * What an MPI leaves behind is in cleanup_mpi.c.
 *
 * The id of a job of one machine names its launcher, so the next launcher can see that it is gone.
 * The id of a job of several hosts names nobody that a host knows. There each of its launchers
 * keeps a file of the job open and locked, which says that one of them lives, in whatever
 * namespace. */
#include "launcher/run/run.h"

#include "base/plain.h"
#include "base/str.h"
#include "comm/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

shoal_status shoali_job_id_make(char *id, size_t bytes)
{
    uint32_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return SHOAL_FAIL(SHOAL_EIO, "cannot draw a random job id: %s", strerror(errno));
    snprintf(id, bytes, "%d.%lx.%08x", (int)getpid(), shoali_process_namespace(), (unsigned)random);
    return SHOAL_OK;
}

/* Does the block of NUL-terminated NAME=VALUE texts hold this one? */
static bool holds_variable(const char *block, size_t bytes, const char *variable)
{
    for (const char *at = block; at < block + bytes; at += strlen(at) + 1)
        if (strcmp(at, variable) == 0)
            return true;
    return false;
}

/* Reads by hand because it must not touch the last error: it runs while an error is on its way.
 */
static void read_environment(int pid, struct shoali_str *block)
{
    char path[48], part[4096];
    ssize_t count;
    snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    while ((count = read(descriptor, part, sizeof(part))) > 0)
        shoali_str_append_bytes(block, part, (size_t)count);
    close(descriptor);
}

static bool carries_id(const struct shoali_job *job, int pid)
{
    char variable[96];
    struct shoali_str block = {0};
    snprintf(variable, sizeof(variable), "SHOAL_JOB_ID=%s", job->id);
    read_environment(pid, &block);
    bool found = holds_variable(shoali_str_get(&block), block.length, variable);
    /* Hosts of one job may share a table of processes: containers, network namespaces. */
    snprintf(variable, sizeof(variable), "CROSS_RANK=%d", (int)job->node_rank);
    if (found && job->nodes > 1)
        found = holds_variable(shoali_str_get(&block), block.length, variable);
    shoali_str_fini(&block);
    return found;
}

/* A signal to the group of a rank reaches it. Once the launcher is gone the group's number may pass
 * to a stranger, but not in the same session with a start after the launcher's. */
static bool in_rank_group(const struct shoali_job *job, const struct shoali_process *process)
{
    if (process->session != job->self.session || process->start < job->self.start)
        return false;
    for (int32_t i = 0; i < job->ranks; i++)
        if (job->rank[i].pid > 0 &&
            (process->pid == job->rank[i].pid ||
             (job->rank[i].own_group && process->group == job->rank[i].pid)))
            return true;
    return false;
}

static bool is_of_the_job(const struct shoali_job *job, const struct shoali_process *process)
{
    if (process->pid == getpid() || process->pid == job->guard ||
        shoali_process_has_ended(process) || strcmp(process->name, SHOALI_GUARD_NAME) == 0)
        return false;
    const bool adopted = job->reaper && process->parent == getpid();
    return adopted || in_rank_group(job, process) || carries_id(job, process->pid);
}

/* The descriptor is taken before the process is looked at, so that its number cannot pass to
 * another one in between. */
static bool treat(const struct shoali_job *job, int pid, enum shoali_cleanup what)
{
    struct shoali_process process;
    const int descriptor = shoali_process_open(pid);
    const int signal = what == SHOALI_KILL ? SIGKILL : SIGTERM;
    bool ours = shoali_process_read(pid, &process) && is_of_the_job(job, &process);
    if (ours && (what == SHOALI_KILL || (what == SHOALI_ASK && !in_rank_group(job, &process)))) {
        if (descriptor >= 0)
            ours = syscall(SYS_pidfd_send_signal, descriptor, signal, NULL, 0) == 0;
        else
            ours = kill(pid, signal) == 0;
    }
    if (descriptor >= 0)
        close(descriptor);
    return ours;
}

int32_t shoali_cleanup_processes(const struct shoali_job *job, enum shoali_cleanup what)
{
    int32_t count = 0;
    struct dirent *entry;
    DIR *folder = opendir("/proc");
    if (!folder)
        return 0;
    while ((entry = readdir(folder))) {
        int64_t pid;
        if (shoali_ascii_digit(entry->d_name[0]) && shoali_parse_i64(entry->d_name, &pid))
            count += treat(job, (int)pid, what);
    }
    closedir(folder);
    return count;
}

/* Calls wanted(name) for every file in the folder of segments and removes those it accepts. */
static void unlink_segments(bool (*wanted)(const char *name, const void *user), const void *user)
{
    struct dirent *entry;
    const int descriptor = shoali_folder_open();
    DIR *folder = descriptor < 0 ? NULL : fdopendir(descriptor);
    if (!folder) {
        if (descriptor >= 0)
            close(descriptor);
        return;
    }
    while ((entry = readdir(folder)))
        if (wanted(entry->d_name, user))
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
}

static bool is_of_job(const char *name, const void *user)
{
    const char *prefix = user;
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

void shoali_cleanup_segments(const char *job_id)
{
    char prefix[96];
    snprintf(prefix, sizeof(prefix), "shoal-%s-", job_id);
    unlink_segments(is_of_job, prefix);
}

static bool is_stale(const char *name, const void *user)
{
    int pid, end = 0;
    unsigned long space, ours = *(const unsigned long *)user;
    unsigned random;
    return sscanf(name, "shoal-%d.%lx.%8x-%n", &pid, &space, &random, &end) == 3 && end > 0 &&
           space == ours && ours != 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

/* ---- jobs of several hosts ------------------------------------------------------------------- */
static const char held_end[] = "-launcher";

/* An opened file that a sweep has removed before it was locked is nobody's sign. */
static int hold_once(int folder, const char *name, bool *removed)
{
    struct stat info;
    int file = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    *removed = false;
    if (file < 0)
        return -1;
    if (flock(file, LOCK_SH) == 0 && fstat(file, &info) == 0 && info.st_nlink > 0)
        return file;
    *removed = true;
    close(file);
    return -1;
}

int shoali_job_hold(const char *job_id)
{
    enum { TRIES = 8 };
    char name[96];
    bool removed = true;
    int file = -1;
    const int folder = shoali_folder_open();
    snprintf(name, sizeof(name), "shoal-%.64s%s", job_id, held_end);
    for (int i = 0; i < TRIES && folder >= 0 && removed && file < 0; i++)
        file = hold_once(folder, name, &removed);
    if (folder >= 0)
        close(folder);
    return file;
}

void shoali_job_let_go(int file, const char *job_id)
{
    if (file < 0)
        return;
    if (flock(file, LOCK_EX | LOCK_NB) == 0)
        shoali_cleanup_segments(job_id);
    close(file);
}

/* Locks the file of a job that no launcher holds; -1: one does, or it is no such file. */
static int take_unheld(int folder, const char *name, char id[64])
{
    const size_t length = strlen(name), end = sizeof(held_end) - 1;
    if (length <= 6 + end || length - 6 - end > 63 || strncmp(name, "shoal-", 6) != 0 ||
        strcmp(name + length - end, held_end) != 0)
        return -1;
    const int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0) {
        snprintf(id, 64, "%.*s", (int)(length - 6 - end), name + 6);
        return file;
    }
    if (file >= 0)
        close(file);
    return -1;
}

/* A folder that is changed while it is read may show a file twice, or a new one not at all. */
static void unlink_unheld(void)
{
    const int descriptor = shoali_folder_open();
    DIR *folder = descriptor < 0 ? NULL : fdopendir(descriptor);
    struct dirent *entry;
    char id[64];
    if (!folder && descriptor >= 0)
        close(descriptor);
    while (folder && (entry = readdir(folder))) {
        const int file = take_unheld(dirfd(folder), entry->d_name, id);
        if (file < 0)
            continue;
        shoali_cleanup_segments(id);
        close(file);
    }
    if (folder)
        closedir(folder);
}

void shoali_stale_segments_unlink(void)
{
    /* Processes of another namespace have numbers of their own: a job is only judged dead from its
     * own. */
    unsigned long space = shoali_process_namespace();
    unlink_segments(is_stale, &space);
    unlink_unheld();
}
