/* The control groups of this process, version 1 and 2. */
#include "base/cgroup.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 8192, GROUP_BYTES = 4200, LINE_BYTES = 4300 };

/* Is `name` in the list "cpu,cpuacct"? */
static bool lists(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (;;) {
        const size_t bytes = strcspn(list, ",");
        if (bytes == length && strncmp(list, name, length) == 0)
            return true;
        if (!list[bytes])
            return false;
        list += bytes + 1;
    }
}

/* The group in a line "NUMBER:CONTROLLERS:/GROUP" of this hierarchy; NULL: another's line. */
static const char *group_of(char *line, const char *controller)
{
    char *list = strchr(line, ':');
    char *group = list ? strchr(list + 1, ':') : NULL;
    if (!group)
        return NULL;
    *group++ = '\0';
    list++;
    return (controller ? lists(list, controller) : !*list) ? group : NULL;
}

/* The process's group, "" when it has none. */
static void find_group(const char *root, const char *controller, char group[GROUP_BYTES])
{
    char path[PATH_BYTES], line[LINE_BYTES];
    const char *found = NULL;
    group[0] = '\0';
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    while (!found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        found = group_of(line, controller);
        if (found)
            snprintf(group, GROUP_BYTES, "%s", found);
    }
    (void)fclose(file);
}

void shoali_cgroup_walk(const char *root, const struct shoali_cgroup_tree *tree,
                        void (*look)(void *user, const char *folder), void *user)
{
    char group[GROUP_BYTES], folder[PATH_BYTES];
    find_group(root, tree->controller, group);
    for (size_t length = strlen(group); length > 0 && group[length - 1] == '/';)
        group[--length] = '\0';
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s%s", root, tree->mount, group);
        look(user, folder);
        char *slash = strrchr(group, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
}

bool shoali_cgroup_number(const char *folder, const char *name, int64_t *value)
{
    char text[64] = "", path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    const bool read = fgets(text, sizeof text, file) != NULL;
    (void)fclose(file);
    text[strcspn(text, " \n")] = '\0';
    return read && shoali_parse_i64(text, value);
}

/* ---- CPUs ----------------------------------------------------------------------------------- */

static void take_least(double *cpus, int64_t quota, int64_t period)
{
    const double given = period > 0 && quota > 0 ? (double)quota / (double)period : 0;
    if (given > 0 && (*cpus <= 0 || given < *cpus))
        *cpus = given;
}

/* cpu.max holds "QUOTA PERIOD" or "max PERIOD". */
static void look_unified(void *user, const char *folder)
{
    char path[PATH_BYTES + 64];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fscanf(file, "%lld %lld", &quota, &period) == 2)
        take_least(user, quota, period);
    (void)fclose(file);
}

/* A quota of -1 is none. */
static void look_version1(void *user, const char *folder)
{
    int64_t quota, period;
    if (shoali_cgroup_number(folder, "cpu.cfs_quota_us", &quota) &&
        shoali_cgroup_number(folder, "cpu.cfs_period_us", &period))
        take_least(user, quota, period);
}

double shoali_cgroup_cpus(const char *root)
{
    static const struct shoali_cgroup_tree unified = {"/sys/fs/cgroup", NULL};
    static const struct shoali_cgroup_tree version1[] = {{"/sys/fs/cgroup/cpu", "cpu"},
                                                         {"/sys/fs/cgroup/cpu,cpuacct", "cpu"}};
    double cpus = 0;
    shoali_cgroup_walk(root, &unified, look_unified, &cpus);
    for (size_t i = 0; i < sizeof version1 / sizeof version1[0]; i++)
        shoali_cgroup_walk(root, &version1[i], look_version1, &cpus);
    return cpus;
}

int32_t shoali_cgroup_limit_cores(int32_t cores, double cpus)
{
    const int32_t most = cpus <= 0 || cpus >= cores ? cores : (int32_t)cpus;
    return most > 1 ? most : 1;
}
