/* fault - named places where a test can make Shoal fail.
 *
 * SHOAL_FAULT="name[:skip][@rank][=action],..." arms points: the point's (skip+1)-th pass on that
 * rank (default every rank) triggers the action: `error` (default: the point returns true and the
 * caller fails as if the system had), `kill` (the process kills itself with SIGKILL), `stop`
 * (sleeps for ever), `exit` (leaves with code 7). Unarmed cost: one load and branch. The armed
 * list lives in the thread's context so that ranks as threads are armed separately: it is parsed
 * from the environment on a thread's first pass, or set by shoali_fault_arm.
 */
#ifndef SHOALI_FAULT_H
#define SHOALI_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* True when the caller has to fail now. */
bool shoali_fault(const char *name);
/* Arms (replaces) the calling thread's faults from a spec; NULL disarms. False: malformed spec. */
bool shoali_fault_arm(const char *spec);
/* Passes that the calling thread's first armed point still lets through; -1: it fired, or none is
 * armed. A loop over all passes ends when it is not -1, and not when a call succeeds: a call that
 * ignores an error succeeds, too. */
int64_t shoali_fault_left(void);

#endif
