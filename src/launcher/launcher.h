/* launcher - starts and watches the processes of a job on this machine. Level L9.
 *
 *   options.c    the flags of `shoal run`, one table, and what they mean for a job
 *   slots.c      --include / --exclude
 *   cores.c      core lists and who gets which core
 *   environment.c  program path, arguments and environment of each rank
 *   spawn.c      fork, files, process groups, exec
 *   supervise.c  waits for deaths and signals, picks the rank to blame, takes the job down
 *   leftovers.c  the job's shared memory segments and the processes that escaped their group
 *   launch.c     the order of all this
 *
 * Invariants: everything that can be wrong is checked before the first fork. A rank's process stays
 * a zombie until the job is over, so that its pid and group number cannot be taken by a stranger.
 * Every process of a job carries SHOAL_JOB_ID in its environment; segments, in the
 * user's folder of /dev/shm, begin with "shoal-" and that id. A job's secret is in its environment
 * alone: never in an argument, a file or a line of output.
 */
#ifndef SHOALI_LAUNCHER_H
#define SHOALI_LAUNCHER_H

#include "base/arena.h"
#include "base/config_table.h"
#include "comm/bootstrap/secret.h"
#include "shoal/launcher.h"

#include <stdbool.h>
#include <sys/types.h>

#define SHOALI_DEFAULT_PORT 29500

struct shoali_rank {
    pid_t pid;
    bool running;   /* started and not seen dead */
    bool stopped;   /* ran when the job was stopped */
    bool own_group; /* leads a process group of its own */
    int code;       /* exit code, when it left by itself */
    int signal;     /* that killed it, 0 none */
};

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
    int32_t ranks, running;
    struct shoali_rank *rank;
    int signal_fd;   /* SIGCHLD and the signals that stop a job */
    int culprit;     /* rank to blame, -1 none */
    int stop_signal; /* that stopped the job from outside, 0 none */
    bool impatient;  /* a second signal came: no grace */
    bool term_sent, kill_sent;
};

/* The flags of `shoal run`. */
struct shoali_launch_options {
    uint64_t given[SHOALI_GIVEN_WORDS];
    const char *hostfile, *include, *exclude, *master_addr, *rank_log_folder, *core_list;
    const char *launcher_args, *autotuning, *venv_script;
    int64_t num_nodes, num_gpus, min_elastic_nodes, max_elastic_nodes, master_port, node_rank;
    int64_t ssh_port, grace_period;
    int32_t launcher, log_level;
    bool module, no_python, no_local_rank, no_ssh, no_ssh_check, force_multi, save_pid;
    bool elastic_training, bind_cores, quiet, help;
};
extern const struct shoali_section shoali_launch_section;

/* Checks the flags against each other and turns them into launch arguments (borrowing strings). */
SHOAL_CHECKED shoal_status shoali_launch_resolve(const struct shoali_launch_options *options,
                                                 shoal_launch_args *args);
/* Slots of localhost that the filters leave, ascending; count 0 when neither is given. */
SHOAL_CHECKED shoal_status shoali_slots_select(const char *include, const char *exclude,
                                               int32_t slot_count, struct shoali_arena *arena,
                                               struct shoali_ints *slots);
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

/* Finds the program as execvp would; SHOAL_EINVAL says what is wrong with it. */
SHOAL_CHECKED shoal_status shoali_program_find(const char *name, struct shoali_arena *arena,
                                               const char **path);
SHOAL_CHECKED shoal_status shoali_rank_arguments(struct shoali_job *job, int32_t rank,
                                                 char ***argv);
SHOAL_CHECKED shoal_status shoali_rank_environment(struct shoali_job *job, int32_t rank,
                                                   char ***envp);

/* Starts every rank; `mask` is the signal mask they get. On an error those already started run. */
SHOAL_CHECKED shoal_status shoali_job_spawn(struct shoali_job *job, const void *mask);
/* Waits until all ranks are gone, by themselves or because the job failed, then reaps them. */
SHOAL_CHECKED shoal_status shoali_job_supervise(struct shoali_job *job, int *exit_code);
/* Takes all ranks down at once (a start that failed half-way). */
void shoali_job_kill(struct shoali_job *job);

/* Makes the job's id: pid, pid namespace and a random part. */
SHOAL_CHECKED shoal_status shoali_job_id_make(char *id, size_t bytes);
/* Kills every process that carries the job's id except the caller; returns how many were found. */
int32_t shoali_leftover_processes_kill(const char *job_id);
/* Removes the job's segments. */
void shoali_leftover_segments_unlink(const char *job_id);
/* Removes segments of jobs of this pid namespace whose launcher is gone. */
void shoali_stale_segments_unlink(void);

#endif
