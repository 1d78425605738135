/* cgroup - the control groups that limit this process: its own and those around it, each of which
 * may be the one with a limit. Inside a container a group's own files are at the root of its view.
 */
#ifndef SHOALI_CGROUP_H
#define SHOALI_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* A mounted hierarchy. */
struct shoali_cgroup_tree {
    const char *mount;      /* such as /sys/fs/cgroup */
    const char *controller; /* "memory" of version 1; NULL: version 2 */
};
/* Calls `look` with the folder of each group, the innermost first and the mount last. `root` is put
 * in front of all paths: "", or a test's folder. */
void shoali_cgroup_walk(const char *root, const struct shoali_cgroup_tree *tree,
                        void (*look)(void *user, const char *folder), void *user);
/* The first number in a file of a group; false when there is none ("max", no such file). */
bool shoali_cgroup_number(const char *folder, const char *name, int64_t *value);
/* How many CPUs the groups leave to this process, such as 1.5; 0: they set no limit. Reads cpu.max
 * (version 2), cpu.cfs_quota_us and cpu.cfs_period_us (version 1). */
double shoali_cgroup_cpus(const char *root);
/* As a number of threads: `cores`, or the limit rounded down when it is less; at least 1. */
int32_t shoali_cgroup_limit_cores(int32_t cores, double cpus);

#endif
