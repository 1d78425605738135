/* Cores in the order of the machine, and the memory beside them, through hwloc. Without hwloc cores
 * have the order of their numbers, which on many machines alternates between sockets, and memory is
 * not bound. */
#include "launcher/run/run.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void shoali_memory_policy_apply(const struct shoali_memory_policy *policy)
{
    /* A kernel or a container that refuses leaves the memory where it falls: slower, not wrong. */
    if (policy->bound)
        (void)syscall(SYS_set_mempolicy, MPOL_BIND, policy->nodes, 8 * sizeof(policy->nodes));
}

#if SHOALI_HAVE_HWLOC
#include <hwloc.h>

static bool load(hwloc_topology_t *topology)
{
    if (hwloc_topology_init(topology) != 0)
        return false;
    if (hwloc_topology_load(*topology) == 0)
        return true;
    hwloc_topology_destroy(*topology);
    return false;
}

bool shoali_numa_order(const void *allowed, struct shoali_ints *cores)
{
    const cpu_set_t *set = allowed;
    hwloc_topology_t topology;
    if (!load(&topology))
        return false;
    for (hwloc_obj_t core = NULL;
         (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core));) {
        int unit = hwloc_bitmap_first(core->cpuset);
        while (unit >= 0 && !(unit < CPU_SETSIZE && CPU_ISSET((size_t)unit, set)))
            unit = hwloc_bitmap_next(core->cpuset, unit);
        if (unit >= 0)
            cores->value[cores->count++] = unit;
    }
    hwloc_topology_destroy(topology);
    return cores->count > 0;
}

void shoali_numa_policy(const int64_t *cores, int32_t count, struct shoali_memory_policy *policy)
{
    enum { BITS = 8 * sizeof(policy->nodes[0]), LIMIT = 8 * sizeof(policy->nodes) };
    hwloc_topology_t topology;
    *policy = (struct shoali_memory_policy){.bound = false};
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc(), nodes = hwloc_bitmap_alloc();
    const bool loaded = cpus && nodes && load(&topology);
    for (int32_t i = 0; i < count && loaded; i++)
        hwloc_bitmap_set(cpus, (unsigned)cores[i]);
    /* With one node there is nothing to choose. */
    if (loaded && hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) > 1) {
        hwloc_cpuset_to_nodeset(topology, cpus, nodes);
        for (int node = hwloc_bitmap_first(nodes); node >= 0 && node < LIMIT;
             node = hwloc_bitmap_next(nodes, node)) {
            policy->nodes[(unsigned)node / BITS] |= 1ul << ((unsigned)node % BITS);
            policy->bound = true;
        }
    }
    if (loaded)
        hwloc_topology_destroy(topology);
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(nodes);
}
#else
bool shoali_numa_order(const void *allowed, struct shoali_ints *cores)
{
    (void)allowed;
    (void)cores;
    return false;
}

void shoali_numa_policy(const int64_t *cores, int32_t count, struct shoali_memory_policy *policy)
{
    (void)cores;
    (void)count;
    *policy = (struct shoali_memory_policy){.bound = false};
}
#endif
