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

/* A hierarchy of control groups: cgroup v2, or v1's memory controller. */
struct hierarchy {
    const char *mount, *limit, *used;
    const char *tag; /* its lines in /proc/self/cgroup are "N:TAG:/GROUP" */
};
static const struct hierarchy hierarchies[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.current", "::"},
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ":memory:"},
};

/* The limit of one control group, given by its folder below the root of the view. */
static void apply_group(const struct hierarchy *tree, const char *group, int64_t *total,
                        int64_t *available)
{
    char path[4400];
    int64_t limit, used;
    snprintf(path, sizeof path, "%s%s/%s", tree->mount, group, tree->limit);
    if (!read_number(path, &limit))
        return;
    snprintf(path, sizeof path, "%s%s/%s", tree->mount, group, tree->used);
    if (!read_number(path, &used))
        return;
    *total = min_i64(*total, limit);
    *available = min_i64(*available, limit > used ? limit - used : 0);
}

/* The process's group of a hierarchy, "" when it has none. */
static void find_group(const struct hierarchy *tree, char *group, size_t bytes)
{
    char line[4200];
    FILE *file = fopen("/proc/self/cgroup", "re");
    group[0] = '\0';
    while (file != NULL && group[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *tag = strchr(line, ':');
        line[strcspn(line, "\n")] = '\0';
        if (tag && strncmp(tag, tree->tag, strlen(tree->tag)) == 0)
            snprintf(group, bytes, "%s", tag + strlen(tree->tag));
    }
    if (file != NULL)
        (void)fclose(file);
}

/* The process's groups and those around them: each may be the one with a limit. Inside a container
 * the group's own files are at the root of its view. */
static void apply_groups(int64_t *total, int64_t *available)
{
    for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++) {
        char group[4200];
        find_group(&hierarchies[i], group, sizeof group);
        for (char *end = group + strlen(group); end > group; end = strrchr(group, '/')) {
            *end = '\0';
            apply_group(&hierarchies[i], group, total, available);
        }
        apply_group(&hierarchies[i], "", total, available);
    }
}

static void machine_memory(int64_t *total, int64_t *available)
{
    const int64_t page = (int64_t)sysconf(_SC_PAGESIZE);
    *total = (int64_t)sysconf(_SC_PHYS_PAGES) * page;
    *available = (int64_t)sysconf(_SC_AVPHYS_PAGES) * page;
    (void)read_available(available);
    apply_groups(total, available);
}

/* What is left of a limit when `used` pages (field `index` of statm) count towards it. */
static int64_t left_of(__rlimit_resource_t resource, int index)
{
    long long pages[6] = {0};
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return INT64_MAX;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        for (int i = 0; i < 6 && fscanf(file, "%lld", &pages[i]) == 1; i++) {
        }
        (void)fclose(file);
    }
    const int64_t used = pages[index] * (int64_t)sysconf(_SC_PAGESIZE);
    return (int64_t)limit.rlim_cur > used ? (int64_t)limit.rlim_cur - used : 0;
}

void shoali_host_room(int32_t sharers, struct shoali_host_room *room)
{
    int64_t total, available;
    machine_memory(&total, &available);
    *room = (struct shoali_host_room){
        .free_bytes = available / (sharers > 0 ? sharers : 1),
        .data_bytes = left_of(RLIMIT_DATA, 5),
        .address_space_bytes = left_of(RLIMIT_AS, 0),
    };
}

void shoali_host_memory(int64_t *total_bytes, int64_t *available_bytes)
{
    int64_t total, available;
    struct rlimit space;
    machine_memory(&total, &available);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < (rlim_t)total) {
        total = (int64_t)space.rlim_cur;
        available = min_i64(available, total);
    }
    *total_bytes = total;
    *available_bytes = available;
}
