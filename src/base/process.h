/* process - what the kernel tells of a process by its number.
 *
 * A number alone does not name a process for long: it is given again once its owner is gone. The
 * number and the start time together do, within one pid namespace until the machine stops. Nothing
 * here allocates or touches the last error: it serves while an error is on its way, and between
 * a fork and what follows.
 */
#ifndef SHOALI_PROCESS_H
#define SHOALI_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct shoali_process {
    int32_t pid, parent, group, session;
    uint64_t start;                   /* clock ticks since the machine started */
    uintptr_t words_begin, words_end; /* where its arguments are; 0 unless it may be traced */
    char state;    /* a letter as in ps: 'Z' has ended and waits to be taken note of */
    char name[20]; /* of the program file or the main thread, cut by the kernel */
};

/* False: there is no such process, or /proc does not show it. */
bool shoali_process_read(int32_t pid, struct shoali_process *process);
/* Has it ended, whether or not its parent has taken note? */
bool shoali_process_has_ended(const struct shoali_process *process);
/* Nanoseconds that its threads have run, those that are left. */
int64_t shoali_process_run_ns(int32_t pid);
/* The most memory that this process has used since its program was started; -1: not known. rusage
 * also counts what the program before an exec used. */
int64_t shoali_process_peak_bytes(void);
/* The signal of a fault (SIGSEGV, SIGABRT, ...) in whose handler a thread of it is: such a signal
 * is blocked there, and neither all of them nor SIGTERM is; 0: none, or the handler blocks all, or
 * a core is being written. A library's handler that prints a trace may never come back, as it
 * allocates or locks in what the fault has broken. A thread that left its handler by a jump may
 * look the same for ever. */
int shoali_process_crash(int32_t pid);
/* Is this very process, number and start, still there and not ended? */
bool shoali_process_is_there(const struct shoali_process *process);
/* Identity of the namespace that this process' numbers belong to, 0 when unknown. */
unsigned long shoali_process_namespace(void);
/* A descriptor that becomes readable when the process ends; -1: none, or an old kernel. */
int shoali_process_open(int32_t pid);

#endif
