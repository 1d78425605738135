/* host_memory.c - how much memory the process may use. */
#include "accelerator/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The first number in a file; false when there is none ("max", no such file). */
static bool read_number(const char *path, int64_t *value)
{
    char text[64] = "";
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    const char *line = fgets(text, sizeof text, file);
    (void)fclose(file);
    if (line == NULL)
        return false;
    text[strcspn(text, "\n")] = '\0';
    return shoali_parse_i64(text, value);
}

/* MemAvailable counts reclaimable cache too, unlike sysconf's free pages. */
static bool read_available(int64_t *bytes)
{
    char line[128];
    long long kib;
    bool found = false;
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, "MemAvailable: %lld kB", &kib) == 1;
    (void)fclose(file);
    if (found)
        *bytes = (int64_t)kib * 1024;
    return found;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void shoali_host_memory(int64_t *total_bytes, int64_t *available_bytes)
{
    const int64_t page = (int64_t)sysconf(_SC_PAGESIZE);
    int64_t total = (int64_t)sysconf(_SC_PHYS_PAGES) * page;
    int64_t available = (int64_t)sysconf(_SC_AVPHYS_PAGES) * page;
    (void)read_available(&available);
    /* Inside a container the group's own files are at the root of its view. */
    int64_t limit, used;
    if (read_number("/sys/fs/cgroup/memory.max", &limit) &&
        read_number("/sys/fs/cgroup/memory.current", &used)) {
        total = min_i64(total, limit);
        available = min_i64(available, limit > used ? limit - used : 0);
    }
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < (rlim_t)total) {
        total = (int64_t)space.rlim_cur;
        available = min_i64(available, total);
    }
    *total_bytes = total;
    *available_bytes = available;
}
