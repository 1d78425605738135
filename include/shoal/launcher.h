/* launcher.h - starts the ranks of a job and watches them.
 *
 * Functions
 *   shoal_launch          starts ranks on this machine
 *   shoal_launch_command  runs the command line of `shoal run`, on one or several hosts
 *   shoal_top             shows what the ranks of a running job do
 *
 * Invariants
 * - The launcher starts one process per rank, without an interpreter, in the environment of
 *   DeepSpeed's launcher (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...).
 * - When a rank fails, the launcher ends the job. Within a second no rank and no process of a rank
 *   is running. One line says which rank failed first and why.
 * - A job ends when every rank has ended. Leftover processes of ranks are then killed.
 * - SIGINT, SIGTERM and SIGHUP stop the job. If the launcher itself is killed, the guard ends all
 *   that the launcher started within a second. The guard is a small process forked from the caller.
 * - Call from one thread, for one job at a time. During a job the calling thread blocks these
 *   signals and SIGCHLD, and the process must not start other processes. A process without children
 *   adopts the orphans of the job (PR_SET_CHILD_SUBREAPER) and takes every child for one of them.
 */
#ifndef SHOAL_LAUNCHER_H
#define SHOAL_LAUNCHER_H

#include "shoal/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For master_port: a free port, whatever MASTER_PORT says. */
#define SHOAL_ANY_PORT (-1)

/* A job. Zero-initialise, then set what differs. Strings are borrowed for the call. */
typedef struct shoal_launch_args {
    const char *const *program; /* the program and its arguments, NULL-terminated */
    int32_t ranks; /* 0: one per slot that `include`, `exclude` or the hostfile leave, else 1 */
    const char *hostfile;          /* lines "NAME slots=N"; NULL: this machine, a slot per core */
    int32_t num_nodes;             /* use only the first hosts of the hostfile; 0: all */
    const char *include, *exclude; /* "localhost:0,2" or "localhost" */
    const char *master_addr;       /* NULL: 127.0.0.1 */
    int32_t master_port; /* 0: MASTER_PORT, without it a free one; SHOAL_ANY_PORT: a free one */
    const char *rank_log_folder; /* NULL: ranks write where the launcher writes */
    const char *core_list;       /* "0-7,16-23"; NULL: the physical cores, with bind_cores */
    bool bind_cores;             /* each rank gets its own cores */
    bool no_local_rank;          /* no --local_rank=N before the program's arguments */
    bool save_pid;               /* write TMPDIR/PID.deepspeed while the job runs */
    /* Seconds that a signal leaves the ranks to save and to exit with 0; 0: 0.3. A second signal,
     * or a rank's failure, ends the job without this period. */
    int32_t grace_period;
    /* Seconds without activity after which a rank that others wait for fails. It also limits a
     * rank's fault handler (SIGSEGV, ...). 0: 60; -1: no limit. */
    int32_t silent_rank_timeout;
} shoal_launch_args;

/* Runs a job to its end; blocks. Logs the reason of a failure. If all ranks exit with 0, *exit_code
 * is 0. Otherwise it is that of the rank that failed first (128 + signal if a signal killed it).
 * After a signal stopped the job it is 128 + signal, or 0 if all ranks exited with 0 within a given
 * grace period. SHOAL_EINVAL, before any rank starts: no such program, slots or cores that do not
 * exist, a mistake in the hostfile, a port in use. SHOAL_EUNSUPPORTED: other hosts than this
 * machine. Cost: one fork and exec per rank, a fork for the guard, and a read of the ranks' status
 * pages once a second. DeepSpeed: launcher/launch.py. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_launch(const shoal_launch_args *args, int *exit_code);

/* Runs the command line of `shoal run`; blocks. argv[0] is the command's name; flags, the program
 * and its arguments follow. With --help nothing is started and *help is the help text. With
 * --dry-run *help is the text that it prints. Otherwise *help is NULL. *help is owned by the
 * caller: free(). Other hosts are reached by ssh, pdsh, mpirun or srun. They start this process'
 * own program file, with `run` as its first argument. Errors of shoal_launch; SHOAL_ECONFIG: a
 * wrong flag. DeepSpeed: launcher/runner.py. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_launch_command(int argc, char *const *argv,
                                                          int *exit_code, char **help);

/* Formats a table of the ranks of a running job: step, tokens/s, shares of the time for computing,
 * waiting, reading and writing, memory, and the rank that others wait for. `job` is the process
 * number of its launcher or of a rank, its id, or its folder. That is the current folder of its
 * ranks, or a folder of their command line. NULL: the only job on this machine. The status pages
 * are read twice, `seconds` apart. `json` not 0: one JSON object. *text is owned by the caller:
 * free(). Works on the host where `shoal run` was called. SHOAL_ENOENT: there is no such job.
 * SHOAL_EINVAL: there are several. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_top(const char *job, double seconds, int32_t json,
                                               char **text);

#ifdef __cplusplus
}
#endif
#endif
