/* thread - starts a thread that takes no signals: they belong to the embedding program's own
 * threads.
 *
 * That holds for those of its own faults, too, but for abort(), which lets SIGABRT through. A
 * library's handler that prints a trace may hang in what the fault has broken, and from outside
 * nothing tells such a rank from one that works (process.h); with the signal blocked the system
 * ends the process at once, with a core where there are cores. The threads of `sim` let faults
 * through, because its own handler explains them.
 */
#ifndef SHOALI_THREAD_H
#define SHOALI_THREAD_H

#include <pthread.h>

/* As pthread_create, with no attributes: 0, or the error. */
int shoali_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
