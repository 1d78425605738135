#include "launcher/run/run.h"

#include "base/str.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CORE_MAX = CPU_SETSIZE };

/* "12" or "3-7" at `text`; the character after it, or NULL. */
static const char *parse_range(const char *text, int64_t *first, int64_t *last)
{
    char *end;
    if (*text < '0' || *text > '9')
        return NULL;
    *first = *last = strtol(text, &end, 10);
    if (*end == '-') {
        text = end + 1;
        if (*text < '0' || *text > '9')
            return NULL;
        *last = strtol(text, &end, 10);
    }
    return end;
}

/* "0-3,8" as core numbers. Ascending, no overlap. */
static shoal_status parse_list(const char *list, struct shoali_arena *arena,
                               struct shoali_ints *cores)
{
    *cores = (struct shoali_ints){0};
    cores->value = shoali_arena_alloc(arena, CORE_MAX * sizeof(int64_t));
    if (!cores->value)
        return SHOAL_ENOMEM;
    int64_t least = 0;
    for (const char *at = list;;) {
        int64_t first, last;
        const char *end = parse_range(at, &first, &last);
        if (!end || (*end && *end != ','))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "core list \"%s\" is malformed at \"%s\": write numbers and ranges "
                              "with commas, such as 0-7,16-23",
                              list, at);
        if (first < least || last < first)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "core list \"%s\": \"%s\" does not ascend: name every core once, in "
                              "ascending order",
                              list, at);
        if (last >= CORE_MAX)
            return SHOAL_FAIL(SHOAL_EINVAL, "core list \"%s\": core %lld is beyond the limit of %d",
                              list, (long long)last, CORE_MAX - 1);
        for (int64_t core = first; core <= last; core++)
            cores->value[cores->count++] = core;
        least = last + 1;
        if (!*end)
            return SHOAL_OK;
        at = end + 1;
    }
}

/* The lowest logical core of the physical core that `core` belongs to; itself when unknown. */
static int64_t first_sibling(int64_t core)
{
    char path[96], *text = NULL;
    size_t bytes = 0;
    int64_t first = core, last;
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%lld/topology/thread_siblings_list",
             (long long)core);
    if (shoali_read_file(path, &text, &bytes) < 0 || !parse_range(text, &first, &last))
        first = core;
    free(text);
    return first;
}

/* One logical core per physical core among those allowed: the lowest of each. */
static void select_physical(const cpu_set_t *allowed, struct shoali_ints *cores)
{
    cpu_set_t taken;
    CPU_ZERO(&taken);
    for (int32_t core = 0; core < CORE_MAX; core++) {
        if (!CPU_ISSET(core, allowed))
            continue;
        int64_t physical = first_sibling(core);
        if (physical < CORE_MAX && CPU_ISSET(physical, &taken))
            continue;
        if (physical < CORE_MAX)
            CPU_SET(physical, &taken);
        cores->value[cores->count++] = core;
    }
}

shoal_status shoali_cores_select(const char *list, struct shoali_arena *arena,
                                 struct shoali_ints *cores)
{
    shoal_status status;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (getenv("KMP_AFFINITY"))
        return SHOAL_FAIL(SHOAL_EINVAL, "KMP_AFFINITY is set and would undo the binding of ranks "
                                        "to cores: unset it, or leave out --bind_cores_to_rank");
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "cannot read the CPU affinity of this process: %s",
                          strerror(errno));
    if (!list) {
        *cores = (struct shoali_ints){0};
        cores->value = shoali_arena_alloc(arena, CORE_MAX * sizeof(int64_t));
        if (!cores->value)
            return SHOAL_ENOMEM;
        if (!shoali_numa_order(&allowed, cores))
            select_physical(&allowed, cores);
        cores->count = shoali_cgroup_limit_cores(cores->count, shoali_cgroup_cpus(""));
        return SHOAL_OK;
    }
    SHOAL_TRY(status, parse_list(list, arena, cores), done);
    for (int32_t i = 0; i < cores->count; i++) {
        if (CPU_ISSET((size_t)cores->value[i], &allowed))
            continue;
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "core list \"%s\": this process may not use core %lld; it may use %d "
                            "cores",
                            list, (long long)cores->value[i], CPU_COUNT(&allowed));
        goto done;
    }
done:
    return status;
}

void shoali_cores_of_rank(int32_t core_count, int32_t rank, int32_t ranks, int32_t *first,
                          int32_t *count)
{
    *count = core_count / ranks > 0 ? core_count / ranks : 1;
    /* More ranks than cores: they share, in turn. */
    *first = rank * *count % core_count;
}
