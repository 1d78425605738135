/* command - `shoal run`: its flags, and what they ask for.
 *
 *   options.c  the flags, one table, and what they mean for a job
 *   command.c  which kind of job it is: of this machine, of several hosts, elastic, tuned
 *
 * Invariant. Flags that exclude each other are refused before anything is asked or started.
 */
#ifndef SHOALI_LAUNCHER_COMMAND_H
#define SHOALI_LAUNCHER_COMMAND_H

#include "launcher/launcher.h"

/* Checks the flags against each other and turns them into launch arguments (borrowing strings). */
SHOAL_CHECKED shoal_status shoali_launch_resolve(const struct shoali_launch_options *options,
                                                 shoal_launch_args *args);

#endif
