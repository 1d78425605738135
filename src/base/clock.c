#include "base/clock.h"

#include <time.h>

int64_t shoali_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t shoali_deadline_ns(int64_t timeout_ns)
{
    int64_t deadline;
    if (timeout_ns < 0 || __builtin_add_overflow(shoali_now_ns(), timeout_ns, &deadline))
        return INT64_MAX;
    return deadline;
}

bool shoali_deadline_passed(int64_t deadline_ns)
{
    return deadline_ns != INT64_MAX && shoali_now_ns() >= deadline_ns;
}
