/* clock - monotonic time in nanoseconds, and deadlines. */
#ifndef SHOALI_CLOCK_H
#define SHOALI_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

int64_t shoali_now_ns(void);
/* A point in time `timeout_ns` from now; timeouts < 0 never expire (INT64_MAX). */
int64_t shoali_deadline_ns(int64_t timeout_ns);
bool shoali_deadline_passed(int64_t deadline_ns);

#endif
