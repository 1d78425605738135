/* host_memory.c - how much memory the process may use. */
#include "accelerator/device.h"

#include "base/memory.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

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
    shoali_memory_read("", &total, &available);
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
    shoali_memory_read("", &total, &available);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < (rlim_t)total) {
        total = (int64_t)space.rlim_cur;
        available = available < total ? available : total;
    }
    *total_bytes = total;
    *available_bytes = available;
}
