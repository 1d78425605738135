/* run - a job of this machine: starts its ranks, supervises them, and removes all that they leave.
 *
 *   launch.c       the order of all this
 *   port.c         where the ranks meet
 *   cores.c        core lists and who gets which core
 *   numa.c         the order of cores in the machine, and memory beside them (hwloc)
 *   arguments.c    where --local_rank stands; flags of the user's program
 *   environment.c  program path and environment of each rank
 *   pod.c          variables of a DLTS pod
 *   processes.c    what DeepSpeed's launcher says of the processes
 *   spawn.c        fork, files, process groups, exec
 *   supervise.c    waits for deaths and signals, picks the rank to blame, takes the job down
 *   poll.c         the status pages of the ranks while the job runs, and why it failed
 *                  (watch/watch.h)
 *   stopped.c      the time after a signal, and what it has saved or lost
 *   lifeline.c     of a host of several: the connection to the front
 *   answers.c      ... whether its other end answers, where no characters come
 *   guard.c        a process that takes the job down when the launcher itself is killed
 *   cleanup.c      the job's shared memory segments and the processes that escaped their group;
 *                  cleanup_mpi.c: what a killed MPI leaves in files
 *
 * Invariants: everything that can be wrong is checked before the first fork. A rank's process stays
 * a zombie until the job is over, so that its pid and group number cannot be taken by a stranger.
 * Every process of a job carries SHOAL_JOB_ID in its environment; segments, in the user's folder of
 * /dev/shm, begin with "shoal-" and that id. A job's secret is in its environment alone: never in
 * an argument, a file or a line of output.
 *
 * How nothing of a job outlives it, whatever its ranks start (wrappers, helpers, daemons):
 *   a process of the job is    in the group of a rank, or carries the job's id, or is an orphan
 *                              that the launcher adopted (PR_SET_CHILD_SUBREAPER)
 *   the job ends or fails      the launcher ends them all, by group, by id, by adoption
 *   the launcher is killed     the kernel kills the ranks themselves (PR_SET_PDEATHSIG, which a
 *                              wrapper's child does not have); the guard, in a session of its own,
 *                              ends the rest and removes the segments
 *   the guard is killed, too   ranks that joined a group end themselves (comm/launcher_watch.h);
 *                              segments are removed by the next launcher
 */
#ifndef SHOALI_RUN_H
#define SHOALI_RUN_H

#include "base/arena.h"
#include "base/config_table.h"
#include "base/process.h"
#include "comm/bootstrap/secret.h"
#include "launcher/launcher.h"
#include "launcher/watch/watch.h"
#include "shoal/launcher.h"

#include <stdbool.h>
#include <sys/types.h>

#define SHOALI_PROCESSES_LOG "processes" /* subsystem of the lines of processes.c */
#define SHOALI_GUARD_NAME "shoal-guard"  /* in ps; no sweep ends it, as it ends by itself */

struct shoali_rank {
    pid_t pid;
    bool running;   /* started and not seen dead */
    bool stopped;   /* ran when the job was stopped */
    bool own_group; /* leads a process group of its own */
    int code;       /* exit code, when it left by itself */
    int signal;     /* that killed it, 0 none */
};

struct shoali_rank_view;
struct shoali_world; /* hosts/hosts.h */
struct shoali_rank_progress;
struct shoali_job {
    const shoal_launch_args *args;
    struct shoali_arena arena;
    char id[64];                           /* SHOAL_JOB_ID */
    char secret[SHOALI_SECRET_TEXT_BYTES]; /* SHOAL_SECRET; "": not drawn yet */
    const char *program_path;              /* resolved */
    int32_t master_port;
    int port_keeper;                  /* a socket, -1: none */
    struct shoali_ints slots;         /* of the ranks; count 0: nothing says which */
    const struct shoali_world *world; /* borrowed; NULL: a rank of mpirun's or srun's */
    int64_t pid_name;                 /* of the pid file, 0: this process' number */
    struct shoali_ints cores;         /* to share among the ranks; count 0: no binding */
    const char *pid_file;             /* NULL: none */
    char log_stamp[32];               /* beginning of the rank logs' names */
    int32_t ranks, running;           /* of this machine */
    int32_t first_rank;               /* the number of the first of them in the world */
    int32_t world_ranks;
    int32_t node_rank, nodes;
    const char *host; /* this machine's name in the world, NULL: the job is of this machine alone */
    char *const
        *variables;  /* NAME=VALUE that the ranks get beside the inherited ones, NULL: none */
    int lifeline;    /* a descriptor, -1: none (cluster/cluster.h) */
    int signal_pipe; /* a pipe with the same characters, -1: none (cluster/signal_hosts.c) */
    int64_t lifeline_end_ns;      /* when its silence is too long */
    bool failed_elsewhere;        /* the job has, on another host */
    bool cut_off;                 /* from the front, which was silent for too long or is gone */
    bool inherits_secret;         /* the ranks have it from the environment of this process */
    struct shoali_rank *rank;     /* shared with the guard */
    struct shoali_process self;   /* the launcher */
    struct shoali_process daemon; /* of MPI, which started it */
    pid_t guard;                  /* 0: none */
    bool reaper;                  /* all children of this process are of the job, orphans too */
    bool of_mpi;                  /* one rank of mpirun's or srun's, which end the others */
    int log_file;                 /* of the one rank of an MPI launcher's; -1: its output is ours */
    int signal_fd;                /* SIGCHLD and the signals that stop a job */
    int culprit;                  /* rank to blame, -1 none */
    int stop_signal;              /* that stopped the job from outside, 0 none */
    int asked;                 /* the first of those that came, also while it was being stopped */
    bool impatient;            /* a second signal came: no grace */
    bool reports;              /* to the front, which says it to the user (watch/watch.h) */
    bool beats;                /* this process speaks for its host */
    bool receives_nothing;     /* no characters come from the front (answers.c) */
    int silent;                /* rank that made no progress, -1 none */
    int crash;                 /* the signal of a fault in whose handler it hangs, 0 none */
    int64_t silence_ns;        /* of a rank, how long is too long; 0: it may be for ever */
    int64_t host_silence_ns;   /* of the lifeline */
    int64_t poll_ns, beat_ns;  /* when the status pages are looked at and sent next */
    struct shoali_stuck stuck; /* ranks that wait for each other */
    bool is_stuck;             /* ... for too long */
    int64_t memory_kills;      /* of the machine when the job began */
    int64_t begin_ns;          /* when that was */
    struct shoali_rank_view *view;         /* [world_ranks]; NULL: no memory for them */
    struct shoali_rank_progress *progress; /* [ranks]: since when nothing of them ran */
    bool warned_straggler;
    int32_t straggler_polls; /* in a row that saw one */
    bool term_sent, kill_sent;
};

/* The port where the ranks meet, from the arguments, from MASTER_PORT, or a free one, which the
 * socket *keeper keeps from other jobs (-1: none is needed). */
SHOAL_CHECKED shoal_status shoali_port_choose(int32_t wanted, int32_t *port, int *keeper);
/* The cores to share: those of the list, as "0-3,8", ascending without overlap, which this process
 * must be allowed to use; NULL: one logical core of every physical core it may use. */
SHOAL_CHECKED shoal_status shoali_cores_select(const char *list, struct shoali_arena *arena,
                                               struct shoali_ints *cores);
/* The `*count` consecutive entries of cores, from `*first`, of local rank `rank` among `ranks`. */
void shoali_cores_of_rank(int32_t core_count, int32_t rank, int32_t ranks, int32_t *first,
                          int32_t *count);

/* Nodes of memory that a process is bound to. */
struct shoali_memory_policy {
    bool bound;
    unsigned long nodes[16]; /* a bit each */
};
/* One logical core of each physical one among those allowed (a cpu_set_t), neighbours beside each
 * other; false: hwloc is not there, or knows nothing. */
bool shoali_numa_order(const void *allowed, struct shoali_ints *cores);
/* The memory beside the cores; none on a machine with one node. */
void shoali_numa_policy(const int64_t *cores, int32_t count, struct shoali_memory_policy *policy);
/* For this process and what it starts. A system call and no more: it may be made after fork. */
void shoali_memory_policy_apply(const struct shoali_memory_policy *policy);

/* Finds the program as execvp would; SHOAL_EINVAL says what is wrong with it. */
SHOAL_CHECKED shoal_status shoali_program_find(const char *name, struct shoali_arena *arena,
                                               const char **path);
/* The value of --NAME VALUE or --NAME=VALUE among a program's arguments, of the last one as its
 * parser sees it; NULL: not given. A name may be written with _ for -. */
const char *shoali_program_flag(const char *const *program, const char *name);
/* Is it the file that this process executes? */
bool shoali_program_is_self(const char *name);
SHOAL_CHECKED shoal_status shoali_rank_arguments(struct shoali_job *job, int32_t rank,
                                                 char ***argv);
SHOAL_CHECKED shoal_status shoali_rank_environment(struct shoali_job *job, int32_t rank,
                                                   char ***envp);
/* "1,3" of the slots that the ranks of this machine use; NULL: the variable stays as it is. */
SHOAL_CHECKED shoal_status shoali_rank_devices(struct shoali_job *job, const char **list);
/* FC_TASKROLE_NAME=... and FC_TASK_INDEX=... of the file that a DLTS pod has for them, ending with
 * NULL; NULL: no memory. A file that cannot be read has none. */
char **shoali_pod_variables(const char *path, struct shoali_arena *arena);
/* processes.c. */
void shoali_processes_say_world(const struct shoali_job *job, const struct shoali_world *world,
                                const char *devices);
void shoali_processes_say_start(pid_t pid, char *const *argv);
void shoali_processes_say_end(pid_t pid);
/* Of the rank to blame. */
void shoali_processes_say_failure(struct shoali_job *job);
/* Writes this process' number to TMPDIR/NAME.deepspeed, where NAME is the number (0: its own);
 * *file, in the arena, is to be removed. */
SHOAL_CHECKED shoal_status shoali_pid_file_write(int64_t name, struct shoali_arena *arena,
                                                 const char **file);
/* Runs a job whose `args` are set and whose other members are those of shoali_job_none, or what a
 * node of a larger job has (cluster/cluster.h). */
SHOAL_CHECKED shoal_status shoali_job_run(struct shoali_job *job, int *exit_code);
extern const struct shoali_job shoali_job_none;

/* Starts every rank; `mask` is the signal mask they get. On an error those already started run. */
SHOAL_CHECKED shoal_status shoali_job_spawn(struct shoali_job *job, const void *mask);
/* Waits until all ranks are gone, by themselves or because the job failed, then reaps them. */
SHOAL_CHECKED shoal_status shoali_job_supervise(struct shoali_job *job, int *exit_code);
/* Takes all ranks down at once (a start that failed half-way). */
void shoali_job_kill(struct shoali_job *job);

/* Takes what has come on the job's lifeline; returns a signal for the ranks, 0: none. */
int shoali_lifeline_receive(struct shoali_job *job);
void shoali_lifeline_begin(struct shoali_job *job, int descriptor);
#define SHOALI_LIFELINE_SILENT "has been silent for too long (--host_timeout)"
/* Stops the job as after SIGHUP; `how` ends the sentence "the connection ...". */
void shoali_lifeline_lose(struct shoali_job *job, const char *how);
/* Characters on a lifeline, and signals. */
char shoali_lifeline_word(int signal);
/* For how long nobody at the other end of this launcher's words to the front has acknowledged what
 * was repeated; 0: it has, or the kernel does not say. */
int64_t shoali_answers_silence_ns(const struct shoali_job *job);
/* The status pages of the ranks (watch/watch.h): once a second while the job runs, and at its end.
 * */
SHOAL_CHECKED shoal_status shoali_poll_begin(struct shoali_job *job);
void shoali_poll(struct shoali_job *job);
void shoali_poll_end(struct shoali_job *job);
/* Says why the job has failed: the block, or lines to the front. */
void shoali_poll_report(struct shoali_job *job, const char *rest);
/* Whether its ranks save when a signal stops them: --exit-signal-handler. */
bool shoali_program_saves_at_exit(const char *const *program);
/* How long ranks of the program have after a signal; --grace_period decides where it is given. */
int32_t shoali_grace_choose(const struct shoali_launch_options *options,
                            const char *const *program);
/* Says what a job that a signal stopped has saved or lost, and how it goes on. Nothing where its
 * program shows no steps. view: NULL, or [ranks]; well: all ranks have ended with 0. */
void shoali_stop_report(const char *const *program, const struct shoali_rank_view *view,
                        int32_t ranks, bool well);
/* Has it left soon after its start, without joining? It may not know --local_rank. */
bool shoali_poll_refused(struct shoali_job *job, int32_t index);
/* To the front, of ranks that another's failure ends. */
void shoali_poll_last_words(struct shoali_job *job);
/* Removes the status pages of the job's own ranks. */
void shoali_poll_unlink(const struct shoali_job *job);
/* The signals that a job waits for, a sigset_t. One that the caller ignores (nohup) stays
 * ignored. */
void shoali_job_signals(void *set);

/* Makes the job's id: pid, pid namespace and a random part. */
SHOAL_CHECKED shoal_status shoali_job_id_make(char *id, size_t bytes);
/* What to do with the processes of the job beside the launcher and the guards. */
enum shoali_cleanup {
    SHOALI_COUNT,
    SHOALI_ASK,  /* SIGTERM to those that a rank's group does not reach */
    SHOALI_KILL, /* SIGKILL to all */
};
/* Returns how many were found. */
int32_t shoali_cleanup_processes(const struct shoali_job *job, enum shoali_cleanup what);
/* Removes the session folder of an Open MPI's mpirun that has ended without doing so. */
void shoali_cleanup_mpirun(int32_t pid);
/* Ends the daemon of Open MPI that started this host's ranks and should have ended with the job;
 * the folder `session` (NULL: none) goes with it. Nothing where it is another program or has
 * ended. */
void shoali_cleanup_orted(const struct shoali_process *daemon, const char *session);
/* Removes what MPIs that were killed in MPI_Init have left in this host's memory: what nobody has
 * open, and was made at `since` or later. Looks for a moment at what somebody has. */
void shoali_cleanup_mpi_memory(time_t since);
/* Removes the job's segments. */
void shoali_cleanup_segments(const char *job_id);
/* Starts the guard, which lives until it is stopped or has cleaned up after the launcher; of a rank
 * of mpirun's, after all of the job on this host. */
SHOAL_CHECKED shoal_status shoali_guard_start(struct shoali_job *job);
void shoali_guard_stop(struct shoali_job *job);
/* Removes segments of jobs whose launchers are gone: of this pid namespace and several hosts. */
void shoali_stale_segments_unlink(void);
/* Shows other launchers that the job of several hosts lives, as long as a process has the
 * descriptor; -1: it cannot be shown. */
int shoali_job_hold(const char *job_id);
/* Closes it, and removes what the job has left here where no other launcher of it lives. */
void shoali_job_let_go(int file, const char *job_id);

#endif
