#include "base/memory.h"

#include "base/cgroup.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 8300 };

/* MemAvailable counts reclaimable cache too, unlike sysconf's free pages. */
static void read_available(const char *root, int64_t *bytes)
{
    char path[PATH_BYTES], line[128];
    long long kib;
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, "MemAvailable: %lld kB", &kib) == 1;
    (void)fclose(file);
    if (found)
        *bytes = (int64_t)kib * 1024;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- control groups ------------------------------------------------------------------------- */

/* What the kernel takes back from a group before it refuses memory: names of memory.stat. Those of
 * version 1 with "total_" count the groups within, as the limit does. */
static const char *const unified_names[] = {"inactive_file", "active_file", "slab_reclaimable",
                                            NULL};
static const char *const version1_names[] = {"total_inactive_file", "total_active_file", NULL};
static const char *const alone_names[] = {"inactive_file", "active_file", NULL};

/* The sum of these entries; -1: there is none. */
static int64_t sum_entries(const char *folder, const char *const *names)
{
    char path[PATH_BYTES], line[160];
    int64_t sum = -1;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        int64_t value;
        char *blank = strchr(line, ' ');
        line[strcspn(line, "\n")] = '\0';
        for (const char *const *name = names; blank && *name; name++)
            if (strncmp(line, *name, strlen(*name)) == 0 && line + strlen(*name) == blank &&
                shoali_parse_i64(blank + 1, &value) && value > 0)
                sum = (sum < 0 ? 0 : sum) + value;
    }
    if (file)
        (void)fclose(file);
    return sum;
}

struct memory {
    int64_t total, available;
};

static void apply(struct memory *memory, int64_t limit, int64_t used, int64_t reclaimable)
{
    const int64_t kept = used - min_i64(used, reclaimable > 0 ? reclaimable : 0);
    memory->total = min_i64(memory->total, limit);
    memory->available = min_i64(memory->available, limit > kept ? limit - kept : 0);
}

static void look_unified(void *user, const char *folder)
{
    int64_t limit, used;
    if (shoali_cgroup_number(folder, "memory.max", &limit) &&
        shoali_cgroup_number(folder, "memory.current", &used))
        apply(user, limit, used, sum_entries(folder, unified_names));
}

static void look_version1(void *user, const char *folder)
{
    int64_t limit, used;
    if (!shoali_cgroup_number(folder, "memory.limit_in_bytes", &limit) ||
        !shoali_cgroup_number(folder, "memory.usage_in_bytes", &used))
        return;
    int64_t reclaimable = sum_entries(folder, version1_names);
    if (reclaimable < 0)
        reclaimable = sum_entries(folder, alone_names);
    apply(user, limit, used, reclaimable);
}

void shoali_memory_read(const char *root, int64_t *total_bytes, int64_t *available_bytes)
{
    static const struct shoali_cgroup_tree unified[] = {{"/sys/fs/cgroup", NULL},
                                                        {"/sys/fs/cgroup/unified", NULL}};
    static const struct shoali_cgroup_tree version1 = {"/sys/fs/cgroup/memory", "memory"};
    const int64_t page = (int64_t)sysconf(_SC_PAGESIZE);
    struct memory memory = {.total = (int64_t)sysconf(_SC_PHYS_PAGES) * page,
                            .available = (int64_t)sysconf(_SC_AVPHYS_PAGES) * page};
    read_available(root, &memory.available);
    for (size_t i = 0; i < sizeof unified / sizeof unified[0]; i++)
        shoali_cgroup_walk(root, &unified[i], look_unified, &memory);
    shoali_cgroup_walk(root, &version1, look_version1, &memory);
    *total_bytes = memory.total;
    *available_bytes = memory.available;
}
