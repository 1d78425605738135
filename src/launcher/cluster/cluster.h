/* cluster - a job on several hosts, from one `shoal run`.
 *
 *   front.c        the order of all this, on the machine where the user is
 *   slurm.c        the nodes of Slurm's allocation
 *   text_list.c    a list of texts: a command line, its quoting for a shell, its splitting
 *   secret_message.c  what a host's launcher needs and nobody may see: secret, exported variables
 *   exports.c      which variables go to the other hosts: prefixes, .deepspeed_env, .shoal_env
 *   commands.c     the command lines of each --launcher
 *   installed.c    whether the launcher's program is the one that is meant
 *   preflight.c    asks every host before anything starts, prints the table, refuses
 *   report.c       what a host answers
 *   start.c        a process of the front's own
 *   front_watch.h  the front while the job runs, and how a job ends
 *   node.c         the launcher of one host
 *   mpi_rank.c     a rank that an MPI launcher or Slurm has started
 *   mpi_watch.c    its parent
 *
 * Terms: the *front* is the `shoal run` that the user calls; a *node* is a host of the job,
 * numbered in the order of the hostfile.
 *
 * Two shapes. With ssh and pdsh the front starts one `shoal run` per node, which starts its ranks
 * and watches them as those of a job of one machine: guard, process groups, sweep. With Open MPI,
 * MPICH, Intel MPI, MVAPICH and Slurm the front starts their program once, which starts every rank
 * by itself as `shoal run --rank_of NAME PROGRAM`: that translates the variables, starts the
 * program as its child, and tells the front what became of it.
 *
 * Invariants. A host that cannot take its part is found before anything starts. No secret is on a
 * command line (secret_message.c). A host whose front is gone stops its ranks (front_watch.h).
 */
#ifndef SHOALI_CLUSTER_H
#define SHOALI_CLUSTER_H

#include "launcher/hosts/hosts.h"
#include "launcher/run/run.h"

#include "base/str.h"

enum shoali_remote_launcher {
    SHOALI_BY_PDSH,
    SHOALI_BY_OPENMPI,
    SHOALI_BY_MVAPICH,
    SHOALI_BY_SLURM,
    SHOALI_BY_MPICH,
    SHOALI_BY_IMPI,
    SHOALI_BY_SSH,
    SHOALI_LAUNCHER_COUNT,
};

/* ---- which hosts ---------------------------------------------------------------------------- */
/* All hosts and slots that the flags name, whether they are there or not. */
SHOAL_CHECKED shoal_status shoali_world_find(const struct shoali_launch_options *options,
                                             const shoal_launch_args *args,
                                             struct shoali_arena *arena,
                                             struct shoali_world *world);
/* As many nodes and ranks as were asked for, or as the allocation around has, by Slurm's
 * variables. */
SHOAL_CHECKED shoal_status shoali_slurm_world(const shoal_launch_args *args,
                                              struct shoali_arena *arena,
                                              struct shoali_world *world);
/* A variable that is a number from 1; 0: it is not. */
int32_t shoali_environment_number(const char *name);

/* ---- command lines -------------------------------------------------------------------------- */
struct shoali_text_list {
    struct shoali_arena *arena;
    char **value; /* NULL-terminated */
    int32_t count, capacity;
    bool failed; /* no memory, once and for all */
};
/* A word; "" where it could not be kept. */
static inline const char *shoali_text_list_at(const struct shoali_text_list *words, int32_t index)
{
    const char *word = words->value[index];
    return word ? word : "";
}
void shoali_text_list_add(struct shoali_text_list *words, const char *format, ...)
    SHOAL_PRINTF(2, 3);
void shoali_text_list_add_all(struct shoali_text_list *words, const struct shoali_text_list *more);
/* Words between blanks; '...' and "..." keep blanks, \ keeps the next character. `what` names the
 * text in the error. */
SHOAL_CHECKED shoal_status shoali_text_list_split(struct shoali_text_list *words, const char *text,
                                                  const char *what);
/* Each quoted for a shell. */
void shoali_text_list_print(const struct shoali_text_list *words, struct shoali_str *out);

/* ---- variables for the other hosts ---------------------------------------------------------- */
/* NAME=VALUE texts: those of this environment whose names begin with a prefix of the list, then
 * those of the files, the last of a name wins. A program that is Python finds the modules of the
 * folder first. */
SHOAL_CHECKED shoal_status shoali_exports_collect(const char *program, const char *folder,
                                                  struct shoali_text_list *exports);

/* ---- the secret message ---------------------------------------------------------------------- */
struct shoali_secret_message {
    char secret[SHOALI_SECRET_TEXT_BYTES];
    struct shoali_text_list variables; /* NAME=VALUE */
};
enum { SHOALI_SECRET_MESSAGE_BYTES_MAX = 65536 };
enum shoali_secret_from { SHOALI_FROM_ENVIRONMENT, SHOALI_FROM_STDIN, SHOALI_FROM_DEPOSIT };
SHOAL_CHECKED shoal_status shoali_secret_message_write(const struct shoali_secret_message *message,
                                                       struct shoali_str *out);
/* Reads no byte beyond the message's end. */
SHOAL_CHECKED shoal_status shoali_secret_message_read(int descriptor, struct shoali_arena *arena,
                                                      struct shoali_secret_message *message);
/* Leaves the message that comes from the descriptor for the node of the job; takes it. */
SHOAL_CHECKED shoal_status shoali_secret_message_deposit(int descriptor, const char *job_id,
                                                         int32_t node_rank,
                                                         struct shoali_arena *arena);
SHOAL_CHECKED shoal_status shoali_secret_message_take(const char *job_id, int32_t node_rank,
                                                      struct shoali_arena *arena,
                                                      struct shoali_secret_message *message);

/* ---- the front ------------------------------------------------------------------------------ */
/* One command that the front starts. */
struct shoali_command {
    const char *host; /* NULL: it stands for all of them */
    struct shoali_text_list words;
    bool lifeline; /* its input carries the message and the characters */
    bool words_in; /* its input carries those of them that stop the job, to parents of ranks */
};
struct shoali_front;
enum shoali_advice { SHOALI_GO_ON, SHOALI_ASK_TO_SAVE, SHOALI_END_IT };
/* An agent that starts jobs one after the other (elastic/elastic.h): what it adds to one, and
 * learns of it. */
struct shoali_overseer {
    const struct shoali_text_list *variables; /* NAME=VALUE for all ranks */
    enum shoali_advice (*poll)(void *user, const struct shoali_front *front); /* once a second */
    void *user;
    bool ended; /* it was `poll` that ended the job */
    int asked;  /* the first signal that stops a job, whenever it came; 0: none */
};
struct shoali_front {
    const struct shoali_launch_options *options;
    struct shoali_overseer *overseer; /* NULL: none */
    const shoal_launch_args *args;
    struct shoali_arena *arena;
    struct shoali_world world;
    enum shoali_remote_launcher launcher;
    const char *self, *folder; /* path of this program, current folder */
    const char *master_addr;
    int32_t master_port; /* 0: not known yet */
    char job_id[64];
    struct shoali_secret_message message;
    struct shoali_text_list assignments; /* NAME=VALUE that the commands get in their environment */
    struct shoali_command *command;
    int32_t commands;
};
/* Does this job need other machines, or was it asked to act as if? */
bool shoali_front_needed(const struct shoali_launch_options *options,
                         const struct shoali_world *world);
/* Checks, asks the hosts, prints or runs. `dry` takes what --dry-run prints. */
SHOAL_CHECKED shoal_status shoali_front_run(const struct shoali_launch_options *options,
                                            const shoal_launch_args *args,
                                            const struct shoali_world *world,
                                            struct shoali_overseer *overseer,
                                            struct shoali_arena *arena, char **dry, int *exit_code);
/* front->launcher: the one that was asked for, else pdsh where it is installed, else ssh. */
SHOAL_CHECKED shoal_status shoali_front_choose_launcher(struct shoali_front *front);
/* Is the launcher's program, at that path, of the kind that was asked for? Without a flag, pdsh
 * gives way to ssh. */
SHOAL_CHECKED shoal_status shoali_front_check_launcher(struct shoali_front *front,
                                                       const char *path);
/* Fills front->command and ->assignments. */
SHOAL_CHECKED shoal_status shoali_commands_make(struct shoali_front *front);
/* The words of `ssh HOST`, without what the host is to do; a node that is here has none. */
SHOAL_CHECKED shoal_status shoali_ssh_command(const struct shoali_front *front,
                                              const struct shoali_node *node,
                                              struct shoali_text_list *words);
/* Adds `cd FOLDER && exec WORDS` as one word where it goes through a shell, else the words. */
void shoali_remote_command(const struct shoali_front *front, bool shell,
                           const struct shoali_text_list *inner, struct shoali_text_list *out);
/* "" or the launcher's program that has to be there. */
const char *shoali_launcher_name_of(enum shoali_remote_launcher launcher);
SHOAL_CHECKED shoal_status shoali_preflight(struct shoali_front *front);
/* A process of the front's own: it leads a process group, and ends with the front. Descriptors that
 * are -1: /dev/null for the input, the front's own for the rest. */
struct shoali_start {
    const struct shoali_text_list *words;
    const struct shoali_text_list *assignments; /* NAME=VALUE, NULL: none */
    const char *secret; /* for SHOAL_SECRET in its environment, NULL: none */
    int input, output, errors;
    bool silent; /* output and errors that are -1: /dev/null, too */
};
SHOAL_CHECKED shoal_status shoali_start(const struct shoali_start *start,
                                        struct shoali_arena *arena, pid_t *pid);
/* Starts the commands, and waits until all have ended. */
SHOAL_CHECKED shoal_status shoali_watch(const struct shoali_front *front, int *exit_code);

/* ---- a host --------------------------------------------------------------------------------- */
/* Prints what the pre-flight asks for. */
SHOAL_CHECKED shoal_status shoali_report(const struct shoali_launch_options *options,
                                         const char *const *program, char **text);
/* A node of the world that the flags give. */
SHOAL_CHECKED shoal_status shoali_node_run(const struct shoali_launch_options *options,
                                           const shoal_launch_args *args,
                                           const struct shoali_world *world,
                                           struct shoali_arena *arena, int *exit_code);
/* How long a host bears that the front is silent; -1: for ever. */
int64_t shoali_host_silence_ns(const struct shoali_launch_options *options);
/* Runs the program as the rank that the launcher of that name says, and tells the front how it
 * went. */
SHOAL_CHECKED shoal_status shoali_mpi_rank_run(const struct shoali_launch_options *options,
                                               const shoal_launch_args *args,
                                               struct shoali_arena *arena, int *exit_code);
SHOAL_CHECKED shoal_status shoali_mpi_watch(struct shoali_job *job, int32_t local_rank,
                                            const char *path, char **argv, char **envp,
                                            int *exit_code);
/* Of a host of pdsh: opens and removes `signal_pipe`; writes the character of the options into
 * that of another process. */
void shoali_signal_pipe_begin(struct shoali_job *job);
void shoali_signal_pipe_end(struct shoali_job *job);
SHOAL_CHECKED shoal_status shoali_signal_pipe_send(const struct shoali_launch_options *options);
/* xxh3 of a file as 16 digits. */
SHOAL_CHECKED shoal_status shoali_file_hash(const char *path, char text[17]);

#endif
