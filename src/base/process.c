#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Fields of /proc/PID/stat, counted from the one after the name. */
enum {
    FIELD_PARENT = 1,
    FIELD_GROUP,
    FIELD_SESSION,
    FIELD_START = 19,
    FIELD_WORDS_BEGIN = 45,
    FIELD_WORDS_END
};

static bool read_stat(int32_t pid, char *text, size_t bytes)
{
    char path[48];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    ssize_t count = read(descriptor, text, bytes - 1);
    close(descriptor);
    text[count > 0 ? count : 0] = '\0';
    return count > 0;
}

bool shoali_process_read(int32_t pid, struct shoali_process *process)
{
    char text[1024];
    if (!read_stat(pid, text, sizeof(text)))
        return false;
    /* The name is the program's choice: it may hold spaces and parentheses. */
    char *begin = strchr(text, '('), *end = strrchr(text, ')');
    if (!begin || !end || end < begin || end[1] != ' ')
        return false;
    *process = (struct shoali_process){.pid = pid, .state = end[2]};
    snprintf(process->name, sizeof(process->name), "%.*s", (int)(end - begin - 1), begin + 1);
    char *at = end + 3;
    for (int field = FIELD_PARENT; field <= FIELD_WORDS_END; field++) {
        const long long value = strtoll(at, &at, 10);
        if (field == FIELD_PARENT)
            process->parent = (int32_t)value;
        else if (field == FIELD_GROUP)
            process->group = (int32_t)value;
        else if (field == FIELD_SESSION)
            process->session = (int32_t)value;
        else if (field == FIELD_START)
            process->start = (uint64_t)value;
        else if (field == FIELD_WORDS_BEGIN)
            process->words_begin = (uintptr_t)value;
        else if (field == FIELD_WORDS_END)
            process->words_end = (uintptr_t)value;
    }
    return true;
}

bool shoali_process_has_ended(const struct shoali_process *process)
{
    return process->state == 'Z' || process->state == 'X';
}

bool shoali_process_is_there(const struct shoali_process *process)
{
    struct shoali_process now;
    return process->pid > 0 && shoali_process_read(process->pid, &now) &&
           now.start == process->start && !shoali_process_has_ended(&now);
}

int64_t shoali_process_peak_bytes(void)
{
    char line[128];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmHWM: %lld", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

int64_t shoali_process_run_ns(int32_t pid)
{
    char path[64];
    int64_t sum = 0;
    struct dirent *entry;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    while (folder && (entry = readdir(folder))) {
        long long ran = 0;
        char name[384];
        snprintf(name, sizeof(name), "%s/%s/schedstat", path, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(name, "re");
        if (file && fscanf(file, "%lld", &ran) == 1)
            sum += ran;
        if (file)
            fclose(file);
    }
    if (folder)
        closedir(folder);
    return sum;
}

/* What the thread blocks. False: it is gone, or its process leaves a core, which takes its time. */
static bool read_blocked(const char *path, unsigned long long *blocked)
{
    char text[4096];
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    const ssize_t count = read(descriptor, text, sizeof(text) - 1);
    close(descriptor);
    text[count > 0 ? count : 0] = '\0';
    const char *at = strstr(text, "\nSigBlk:");
    return at && sscanf(at, "\nSigBlk: %llx", blocked) == 1 && !strstr(text, "CoreDumping:\t1");
}

static bool blocks(unsigned long long mask, int signal)
{
    return mask >> (signal - 1) & 1;
}

/* A thread that is shielded from signals blocks SIGTERM, too. A handler that fails itself blocks
 * two. */
static int fault_of(unsigned long long mask)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };
    int found = 0, count = 0;
    for (int i = 0; i < FAULTS; i++)
        if (blocks(mask, faults[i])) {
            found = found ? found : faults[i];
            count++;
        }
    return count < FAULTS && !blocks(mask, SIGTERM) ? found : 0;
}

int shoali_process_crash(int32_t pid)
{
    char path[64];
    struct dirent *entry;
    int found = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    while (folder && found == 0 && (entry = readdir(folder))) {
        unsigned long long blocked = 0;
        char name[384];
        snprintf(name, sizeof(name), "%s/%s/status", path, entry->d_name);
        if (entry->d_name[0] != '.' && read_blocked(name, &blocked))
            found = fault_of(blocked);
    }
    if (folder)
        closedir(folder);
    return found;
}

unsigned long shoali_process_namespace(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (unsigned long)info.st_ino : 0;
}

int shoali_process_open(int32_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}
