/* launcher - starts and watches the processes of a job on this machine. Level L9. What several hosts
 * need beside it stands in cluster.h.
 *
 *   options.c    the flags of `shoal run`, one table, and what they mean for a job
 *   command.c    `shoal run`: which kind of job it is
 *   hostfile.c   the hosts of a hostfile, and which of them is this machine
 *   slots.c      --include / --exclude
 *   port.c       where the ranks meet
 *   cores.c      core lists and who gets which core
 *   numa.c       the order of cores in the machine, and memory beside them (hwloc)
 *   environment.c  program path, arguments and environment of each rank
 *   spawn.c      fork, files, process groups, exec
 *   supervise.c  waits for deaths and signals, picks the rank to blame, takes the job down
 *   leftovers.c  the job's shared memory segments and the processes that escaped their group;
 *                leftovers_mpi.c: what a killed MPI leaves in files
 *   guard.c      a process that takes the job down when the launcher itself is killed
 *   look.c       the boards of the ranks while the job runs, and why it failed (ranks.h)
 *   launch.c     the order of all this
 *
 * Invariants: everything that can be wrong is checked before the first fork. A rank's process stays
 * a zombie until the job is over, so that its pid and group number cannot be taken by a stranger.
 * Every process of a job carries SHOAL_JOB_ID in its environment; segments, in the user's folder of
 * /dev/shm, begin with "shoal-" and that id. A job's secret is in its environment alone: never in an
 * argument, a file or a line of output.
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
#ifndef SHOALI_LAUNCHER_H
#define SHOALI_LAUNCHER_H

#include "base/arena.h"
#include "base/config_table.h"
#include "base/process.h"
#include "comm/bootstrap/secret.h"
#include "launcher/ranks.h"
#include "shoal/launcher.h"

#include <stdbool.h>
#include <sys/types.h>

#define SHOALI_GUARD_NAME "shoal-guard" /* in ps; no sweep ends it, as it ends by itself */

struct shoali_rank {
    pid_t pid;
    bool running;   /* started and not seen dead */
    bool stopped;   /* ran when the job was stopped */
    bool own_group; /* leads a process group of its own */
    int code;       /* exit code, when it left by itself */
    int signal;     /* that killed it, 0 none */
};

struct shoali_rank_view;
struct shoali_rank_progress;
struct shoali_job {
    const shoal_launch_args *args;
    struct shoali_arena arena;
    char id[64];                           /* SHOAL_JOB_ID */
    char secret[SHOALI_SECRET_TEXT_BYTES]; /* SHOAL_SECRET; "": not drawn yet */
    const char *program_path;              /* resolved */
    int32_t master_port;
    int port_keeper;          /* a socket, -1: none */
    struct shoali_ints slots; /* of the ranks, from include/exclude; count 0: not given */
    struct shoali_ints cores; /* to share among the ranks; count 0: no binding */
    const char *pid_file;     /* NULL: none */
    char log_stamp[32];       /* beginning of the rank logs' names */
    int32_t ranks, running;   /* of this machine */
    int32_t first_rank;       /* the number of the first of them in the world */
    int32_t world_ranks;
    int32_t node_rank, nodes;
    const char *host; /* this machine's name in the world, NULL: the job is of this machine alone */
    char *const
        *variables; /* NAME=VALUE that the ranks get beside the inherited ones, NULL: none */
    int lifeline;   /* a descriptor, -1: none (cluster.h) */
    int64_t lifeline_end_ns;      /* when its silence is too long */
    bool failed_elsewhere;        /* the job has, on another host */
    bool inherits_secret;         /* the ranks have it from the environment of this process */
    struct shoali_rank *rank;     /* shared with the guard */
    struct shoali_process self;   /* the launcher */
    struct shoali_process daemon; /* of MPI, which started it */
    pid_t guard;                  /* 0: none */
    bool reaper;                  /* all children of this process are of the job, orphans too */
    bool of_mpi;                  /* one rank of mpirun's or srun's, which end the others */
    int signal_fd;                /* SIGCHLD and the signals that stop a job */
    int culprit;                  /* rank to blame, -1 none */
    int stop_signal;              /* that stopped the job from outside, 0 none */
    int asked;                 /* the first of those that came, also while it was being stopped */
    bool impatient;            /* a second signal came: no grace */
    bool reports;              /* to the front, which says it to the user (ranks.h) */
    bool beats;                /* this process speaks for its host */
    int silent;                /* rank that made no progress, -1 none */
    int crash;                 /* the signal of a fault in whose handler it hangs, 0 none */
    int64_t silence_ns;        /* of a rank, how long is too long; 0: it may be for ever */
    int64_t host_silence_ns;   /* of the lifeline */
    int64_t look_ns, beat_ns;  /* when the boards are looked at and sent next */
    struct shoali_stuck stuck; /* ranks that wait for each other */
    bool is_stuck;             /* ... for too long */
    int64_t memory_kills;      /* of the machine when the job began */
    struct shoali_rank_view *view;         /* [world_ranks]; NULL: no memory for them */
    struct shoali_rank_progress *progress; /* [ranks]: since when nothing of them ran */
    bool told_straggler;
    int32_t straggler_looks; /* in a row that saw one */
    bool term_sent, kill_sent;
};

/* The flags of `shoal run`. */
struct shoali_launch_options {
    uint64_t given[SHOALI_GIVEN_WORDS];
    const char *hostfile, *include, *exclude, *master_addr, *rank_log_folder, *core_list;
    const char *launcher_args, *autotuning, *venv_script, *comment;
    int64_t num_nodes, num_gpus, min_elastic_nodes, max_elastic_nodes, master_port, node_rank;
    int64_t max_restarts, restart_backoff;
    int64_t ssh_port, grace_period, silent_rank_timeout, host_timeout;
    int32_t launcher, log_level;
    bool module, no_python, no_local_rank, no_ssh, no_ssh_check, force_multi, save_pid;
    bool elastic_training, bind_cores, quiet, help, dry_run, no_preflight;
    /* what `shoal run` writes for itself on other hosts */
    const char *world_info, *job_id;
    int32_t secret_from, rank_of;
    bool report;
};
extern const struct shoali_section shoali_launch_section;

/* Checks the flags against each other and turns them into launch arguments (borrowing strings). */
SHOAL_CHECKED shoal_status shoali_launch_resolve(const struct shoali_launch_options *options,
                                                 shoal_launch_args *args);
/* Hosts in the order of their file, which is the order of ranks. */
struct shoali_host {
    const char *name;
    int32_t slots;
    int32_t line;   /* of the file */
    bool *selected; /* [slots], by the filters */
    bool here;      /* it is this machine */
};
struct shoali_hosts {
    const char *file; /* NULL: no hostfile, localhost alone */
    struct shoali_host *host;
    int32_t count;
};
/* Does the name, or the address, mean this machine? Asks no other machine. */
bool shoali_host_is_here(const char *name);
/* NAME slots=N, one per line; `file` NULL: localhost with one slot per core. */
SHOAL_CHECKED shoal_status shoali_hosts_read(const char *file, struct shoali_arena *arena,
                                             struct shoali_hosts *hosts);
/* Marks the slots that the filters leave (NULL, NULL: all). */
SHOAL_CHECKED shoal_status shoali_slots_select(const char *include, const char *exclude,
                                               struct shoali_hosts *hosts);
/* The port where the ranks meet, from the arguments, from MASTER_PORT, or a free one, which the
 * socket *keeper keeps from other jobs (-1: none is needed). */
SHOAL_CHECKED shoal_status shoali_port_choose(int32_t wanted, int32_t *port, int *keeper);
/* "0-3,8" as core numbers. Ascending, no overlap. */
SHOAL_CHECKED shoal_status shoali_cores_parse(const char *list, struct shoali_arena *arena,
                                              struct shoali_ints *cores);
/* The cores to share: those of the list, which this process must be allowed to use, or one logical
 * core of every physical core it may use. */
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
SHOAL_CHECKED shoal_status shoali_rank_arguments(struct shoali_job *job, int32_t rank,
                                                 char ***argv);
SHOAL_CHECKED shoal_status shoali_rank_environment(struct shoali_job *job, int32_t rank,
                                                   char ***envp);
/* Writes this process' number to TMPDIR/PID.deepspeed; *file, in the arena, is to be removed. */
SHOAL_CHECKED shoal_status shoali_pid_file_write(struct shoali_arena *arena, const char **file);
/* Runs a job whose `args` are set and whose other members are those of shoali_job_none, or what a
 * node of a larger job has (cluster.h). */
SHOAL_CHECKED shoal_status shoali_job_run(struct shoali_job *job, int *exit_code);
extern const struct shoali_job shoali_job_none;

/* Starts every rank; `mask` is the signal mask they get. On an error those already started run. */
SHOAL_CHECKED shoal_status shoali_job_spawn(struct shoali_job *job, const void *mask);
/* Waits until all ranks are gone, by themselves or because the job failed, then reaps them. */
SHOAL_CHECKED shoal_status shoali_job_supervise(struct shoali_job *job, int *exit_code);
/* Takes all ranks down at once (a start that failed half-way). */
void shoali_job_kill(struct shoali_job *job);

/* Takes what has come on the job's lifeline; returns a signal for the ranks, 0: none. */
int shoali_lifeline_hear(struct shoali_job *job);
void shoali_lifeline_begin(struct shoali_job *job, int descriptor);
/* Seconds: of a rank without progress, of a host without a word; and so much later than the front a
 * host gives up, which can say more. */
enum { SHOALI_SILENT_RANK_S = 60, SHOALI_HOST_TIMEOUT_S = 4, SHOALI_FRONT_FIRST_S = 2 };
/* The boards of the ranks (ranks.h): once a second while the job runs, and at its end. */
SHOAL_CHECKED shoal_status shoali_look_begin(struct shoali_job *job);
void shoali_look(struct shoali_job *job);
void shoali_look_end(struct shoali_job *job);
/* Says why the job has failed: the block, or lines to the front. */
void shoali_look_report(struct shoali_job *job, const char *rest);
/* To the front, of ranks that another's failure ends. */
void shoali_look_last_words(struct shoali_job *job);
/* Removes the boards of the job's own ranks. */
void shoali_look_board_unlink(const struct shoali_job *job);
/* The signals that a job waits for, a sigset_t. One that the caller ignores (nohup) stays ignored. */
void shoali_job_signals(void *set);

/* Makes the job's id: pid, pid namespace and a random part. */
SHOAL_CHECKED shoal_status shoali_job_id_make(char *id, size_t bytes);
/* What to do with the processes of the job beside the launcher and the guards. */
enum shoali_leftovers {
    SHOALI_COUNT,
    SHOALI_ASK,  /* SIGTERM to those that a rank's group does not reach */
    SHOALI_KILL, /* SIGKILL to all */
};
/* Returns how many were found. */
int32_t shoali_leftover_processes(const struct shoali_job *job, enum shoali_leftovers what);
/* Removes the session folder of an Open MPI's mpirun that has ended without doing so. */
void shoali_leftover_of_mpirun(int32_t pid);
/* Ends the daemon of Open MPI that started this host's ranks and should have ended with the job; the
 * folder `session` (NULL: none) goes with it. Nothing where it is another program or has ended. */
void shoali_leftover_of_orted(const struct shoali_process *daemon, const char *session);
/* Removes what MPIs that were killed in MPI_Init have left in this host's memory: what nobody has open,
 * and was made at `since` or later. Looks for a moment at what somebody has. */
void shoali_leftover_of_mpi_memory(time_t since);
/* Removes the job's segments. */
void shoali_leftover_segments_unlink(const char *job_id);
/* Starts the guard, which lives until it is stopped or has cleaned up after the launcher; of a rank of
 * mpirun's, after all of the job on this host. */
SHOAL_CHECKED shoal_status shoali_guard_start(struct shoali_job *job);
void shoali_guard_stop(struct shoali_job *job);
/* Removes segments of jobs of this pid namespace whose launcher is gone. */
void shoali_stale_segments_unlink(void);

#endif
