/* What a job may leave behind: segments in the user's folder of /dev/shm, and processes that left
 * their rank's group. Both are found by the job's id, never by a name that another job could share.
 */
#include "launcher/launcher.h"

#include "base/str.h"
#include "comm/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Processes of another namespace have numbers of their own: a job is only judged dead from its own.
 */
static unsigned long namespace_number(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (unsigned long)info.st_ino : 0;
}

shoal_status shoali_job_id_make(char *id, size_t bytes)
{
    uint32_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return SHOAL_FAIL(SHOAL_EIO, "cannot draw a random job id: %s", strerror(errno));
    snprintf(id, bytes, "%d.%lx.%08x", (int)getpid(), namespace_number(), (unsigned)random);
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

/* Reads by hand because it must not touch the error record: it runs while an error is on its way.
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

/* Kills the process if it belongs to the job. The descriptor is taken before its environment is
 * read, so that the number cannot pass to another process in between. */
static bool kill_if_ours(int pid, const char *variable)
{
    struct shoali_str block = {0};
    int descriptor = (int)syscall(SYS_pidfd_open, pid, 0);
    read_environment(pid, &block);
    bool ours = holds_variable(shoali_str_get(&block), block.length, variable);
    shoali_str_fini(&block);
    if (ours && descriptor >= 0)
        ours = syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, NULL, 0) == 0;
    else if (ours)
        ours = kill(pid, SIGKILL) == 0;
    if (descriptor >= 0)
        close(descriptor);
    return ours;
}

int32_t shoali_leftover_processes_kill(const char *job_id)
{
    char variable[96];
    int32_t count = 0;
    struct dirent *entry;
    DIR *folder = opendir("/proc");
    if (!folder)
        return 0;
    snprintf(variable, sizeof(variable), "SHOAL_JOB_ID=%s", job_id);
    while ((entry = readdir(folder))) {
        int64_t pid;
        if (!isdigit((unsigned char)entry->d_name[0]) || !shoali_parse_i64(entry->d_name, &pid) ||
            pid == getpid())
            continue;
        count += kill_if_ours((int)pid, variable);
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

void shoali_leftover_segments_unlink(const char *job_id)
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

void shoali_stale_segments_unlink(void)
{
    unsigned long space = namespace_number();
    unlink_segments(is_stale, &space);
}
