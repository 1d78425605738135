/* launcher.h - starts the ranks of a job and watches them.
 *
 * shoal_launch starts ranks of this machine, shoal_launch_command those of several hosts, too.
 *
 * The launcher starts one process per rank with the environment that DeepSpeed's launcher gives
 * (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...), waits for all of them, and when one fails takes
 * the whole job down: within a second no rank and no process that a rank started is left, and one
 * line says which rank failed first and why. Programs are started directly, without an interpreter.
 *
 * A job is over when every rank ended; processes that ranks started and left behind are then ended,
 * too. Signals SIGINT, SIGTERM and SIGHUP stop the job. When the launcher itself is killed, all
 * that it started is gone within a second, also what a wrapper started: a small process forked from
 * the caller, the guard, sees to that.
 *
 * Call from one thread only, at most one job at a time. While a job runs the calling thread blocks
 * those signals and SIGCHLD, and the process must not start others: a process without children of
 * its own adopts the orphans of the job (PR_SET_CHILD_SUBREAPER) and takes every child for one.
 */
#ifndef SHOAL_LAUNCHER_H
#define SHOAL_LAUNCHER_H

#include "shoal/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of master_port: a free one, whatever MASTER_PORT says. */
#define SHOAL_ANY_PORT (-1)

/* What to start. Zero-initialise, then set what differs; strings are borrowed for the call. */
typedef struct shoal_launch_args {
    const char *const *program; /* the program and its arguments, NULL-terminated */
    int32_t ranks; /* 0: one per slot that `include`, `exclude` or the hostfile leave, else 1 */
    const char *hostfile;          /* lines "NAME slots=N"; NULL: this machine, a slot per core */
    int32_t num_nodes;             /* only the first so many hosts of the hostfile; 0: all */
    const char *include, *exclude; /* "localhost:0,2" or "localhost" */
    const char *master_addr;       /* NULL: 127.0.0.1 */
    int32_t master_port; /* 0: MASTER_PORT, without it a free one; SHOAL_ANY_PORT: a free one */
    const char *rank_log_folder; /* NULL: ranks write where the launcher writes */
    const char *core_list;       /* "0-7,16-23"; NULL: the physical cores, with bind_cores */
    bool bind_cores;             /* each rank gets its own cores */
    bool no_local_rank;          /* do not append --local_rank=N to the arguments */
    bool save_pid;               /* write TMPDIR/PID.deepspeed while the job runs */
    int32_t grace_period; /* seconds that a signal leaves the ranks, to save and to leave with 0;
                             0: 0.3. A second signal, and a rank's failure, do not wait. */
    int32_t silent_rank_timeout; /* seconds in which nothing of a rank may run that others wait for,
                                    and that one may work in its handler of a fault (SIGSEGV, ...);
                                    0: 60; -1: any time */
} shoal_launch_args;

/* Runs a job to its end. Blocks. *exit_code: 0 when all ranks left with 0; else that of the rank
 * that failed first (128 + signal when a signal killed it), or 128 + signal when a signal stopped
 * the job, unless a grace period was given and all ranks left with 0 within it; the reason is
 * logged. SHOAL_EINVAL, before any rank is started: no such program, slots or cores that do not
 * exist, a mistake in the hostfile, a port in use; SHOAL_EUNSUPPORTED: other hosts than this
 * machine. Costs one fork and exec per rank, a fork for the guard, and a look at the ranks' boards a second.
 * DeepSpeed: launcher/launch.py. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_launch(const shoal_launch_args *args, int *exit_code);

/* Runs `shoal run`'s command line: argv[0] is the command's name, then flags, then the program and
 * its arguments. With --help nothing is started and *help is the help text, owned by the caller:
 * free(); so is what --dry-run prints; else *help = NULL. Blocks. Other hosts are reached by ssh, pdsh,
 * mpirun or srun, and start this process' own program file, with `run` as its first argument. Errors
 * of shoal_launch, SHOAL_ECONFIG for a wrong flag. DeepSpeed: launcher/runner.py. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_launch_command(int argc, char *const *argv,
                                                          int *exit_code, char **help);

/* What the ranks of a running job do, as a table: step, tokens a second, shares of the time that they
 * compute, wait for others, read and write, memory, and which rank the others wait for. `job`: the
 * process number of its launcher or of a rank, its id, or its folder (the current one of its ranks, or
 * one that their command line names); NULL: the only one that runs here. It looks twice, `seconds`
 * apart. `json` not 0: one JSON object. *text is the caller's: free(). SHOAL_ENOENT: there is no such
 * job; SHOAL_EINVAL: several. A job of several hosts is looked at where its `shoal run` was called. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_top(const char *job, double seconds, int32_t json,
                                               char **text);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The function behind the inline one above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_launch_sized(const shoal_launch_args *args,
                                                        size_t args_size, int *exit_code);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_launch(const shoal_launch_args *args, int *exit_code)
{
    return shoal_launch_sized(args, sizeof *args, exit_code);
}

#ifdef __cplusplus
}
#endif
#endif
