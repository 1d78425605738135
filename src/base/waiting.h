/* waiting - warnings about long waits: after 5 s, after 30 s, and then each minute.
 *
 * Each wait that may take longer than some seconds has one of these, and a sentence of its own: who
 * waits, for whom, where. docs/FAILURES.md lists them. Long waits are usual at some places, such as
 * a pipeline stage on a slow machine. A place that has warned is silent until twice its longest
 * wait.
 *
 *   struct shoali_waiting waiting = {0};
 *   while (!is_there()) {
 *       if (shoali_waiting_due(&waiting, NULL))
 *           SHOALI_WARN("comm", "waiting for rank 0 for %.0f s", shoali_waiting_seconds(&waiting));
 *       ...
 *   }
 */
#ifndef SHOALI_WAITING_H
#define SHOALI_WAITING_H

#include "shoal/log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct shoali_waiting {
    int64_t since_ns; /* start of the wait; 0: the next call of shoali_waiting_due */
    int64_t due_ns;   /* time from the start to the next warning; 0: not known yet */
    bool warned;
};

/* Returns whether a warning is due. `place`: the call site. NULL: no place, so that this wait has
 * nothing to do with others. */
bool shoali_waiting_due(struct shoali_waiting *waiting, const char *place);
double shoali_waiting_seconds(const struct shoali_waiting *waiting);
/* Ends the wait. If it has warned, the place keeps its length. */
void shoali_waiting_end(const struct shoali_waiting *waiting, const char *place);

/* pthread_cond_wait that returns after a second at the latest. */
void shoali_waiting_sleep(pthread_cond_t *changed, pthread_mutex_t *mutex);

/* For a call that may block, such as MPI_Init or a name server: between begin and end a thread
 * prints "WHAT: 5 s so far" to standard error. begin returns NULL if there is no thread. */
struct shoali_waiting_aloud;
struct shoali_waiting_aloud *shoali_waiting_aloud_begin(shoal_log_level level,
                                                        const char *subsystem, const char *what);
void shoali_waiting_aloud_end(struct shoali_waiting_aloud *aloud);

/* The same as a notice about files: "WHAT PATH: 5 s so far". */
struct shoali_waiting_aloud *shoali_waiting_files_begin(const char *what, const char *path);
/* The same for opening and reading what another process may have to write: a pipe or a socket, not
 * a file or a terminal. `path` "-" is standard input. */
struct shoali_waiting_aloud *shoali_waiting_pipe_begin(const char *path);

#endif
