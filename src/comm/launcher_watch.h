/* launcher_watch - a rank ends itself when the launcher that started its job is gone.
 *
 * `shoal run` has better means to take a job down than its ranks: it does so when one fails, and
 * its guard (launcher/run/guard.c) when it was killed itself. This is for the time when neither is
 * left, as after the memory ran out or a kill of everything with that name: a rank that was started
 * through a wrapper, so that the kernel does not tie it to the launcher, would wait for the others,
 * or train on for nobody.
 *
 * The launcher names itself in SHOAL_LAUNCHER: process number, pid namespace and start time, which
 * no wrapper loses that hands the environment on, whatever descriptors it closes. One thread sleeps
 * until that process ends; it costs nothing meanwhile. When it has ended, it leaves the guard a
 * moment, then writes one sentence to standard error and ends the process with code 1. That is the
 * one place where the library ends a program.
 *
 * Nothing is watched without the variable (torchrun, mpirun, by hand) and in another pid namespace
 * than the launcher's (a container that a wrapper starts), where its number means another process.
 */
#ifndef SHOALI_LAUNCHER_WATCH_H
#define SHOALI_LAUNCHER_WATCH_H

#include "base/base.h"
#include "shoal/comm.h"

#define SHOALI_LAUNCHER_VARIABLE "SHOAL_LAUNCHER"

struct shoali_launcher_watch;
/* *watch NULL: there is nothing to watch; ranks that are threads are watched by the first one.
 * SHOAL_EINTERRUPTED: the launcher is gone already. Fault point "thread". */
SHOAL_CHECKED shoal_status shoali_launcher_watch_create(const shoal_comm_args *args,
                                                        struct shoali_launcher_watch **watch);
void shoali_launcher_watch_destroy(struct shoali_launcher_watch *watch); /* NULL is fine */

/* What the launcher puts into the variable: its own name. False: /proc does not tell. */
bool shoali_launcher_name(char *text, size_t bytes);

#endif
