/* cluster - a job on several hosts, from one `shoal run`.
 *
 *   slurm.c      the nodes of Slurm's allocation
 *   world.c      which hosts with which slots, who is which rank; the same in words
 *   words.c      a command line: words, shell quoting, splitting
 *   letter.c     what a host's launcher needs and nobody may see: secret, exported variables
 *   exports.c    which variables go to the other hosts: prefixes, .deepspeed_env, .shoal_env
 *   commands.c   the command lines of each --launcher
 *   preflight.c  asks every host before anything starts, prints the table, refuses
 *   report.c     what a host answers
 *   front.c      the order of all this, on the machine where the user is
 *   start.c      a process of the front's own
 *   watch.c      waits for the commands, passes signals on, names the host to blame
 *   hear.c       what they say: passed on, but for what is for the front
 *   node.c       the launcher of one host
 *   lifeline.c   the host's end of the connection to the front
 *   mpi_rank.c   a rank that an MPI launcher or Slurm has started
 *   mpi_watch.c  its parent
 *   elastic.h    an agent that restarts a job on the hosts that are left
 *
 * Words: the *front* is the `shoal run` that the user calls; a *node* is a host of the job, numbered
 * in the order of the hostfile. Ranks are numbered node by node, slot by slot, whatever number of
 * slots each has.
 *
 * Two shapes. With ssh and pdsh the front starts one `shoal run` per node, which starts its ranks
 * and watches them as those of a job of one machine: guard, process groups, sweep. With Open MPI,
 * MPICH, Intel MPI, MVAPICH and Slurm the front starts their program once, which starts every rank
 * by itself as `shoal run --rank_of NAME PROGRAM`: that translates the variables, starts the program
 * as its child, and tells the front what became of it.
 *
 * How secrets travel (secret of the job, values of exported variables): never on a command line.
 *   ssh            on standard input, the letter; the connection is encrypted
 *   pdsh           gives its commands no input: the pre-flight connection leaves the letter in a
 *                  file of this user alone in the user's folder of /dev/shm; the node takes and
 *                  removes it
 *   mpirun, srun   in their environment; their flags name the variables only (-x NAME, -genvlist,
 *                  --export=ALL), and environments are readable by their user alone
 *   --no_ssh       not at all: it is the user's own SHOAL_SECRET_FILE or SHOAL_SECRET on each host
 *
 * How a job of several hosts ends. A node's standard input is its lifeline: one character a second,
 * others for signals that the user sent to the front (lifeline.c has the list). Its end, or
 * --host_timeout seconds of silence, means that the front or the connection is gone: the node stops its
 * ranks as after SIGHUP. With pdsh there are no characters, only the end. The other way hosts send
 * lines on standard error (ranks.h): that they are there, what their ranks do, and who has failed. The
 * first that fails decides the exit code, and the front says what happened in one block; the others
 * are told and stop at once.
 */
#ifndef SHOALI_CLUSTER_H
#define SHOALI_CLUSTER_H

#include "launcher/launcher.h"

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

/* ---- who is which rank ---------------------------------------------------------------------- */
struct shoali_node {
    const char *name;
    struct shoali_ints slots; /* ascending */
    int32_t first_rank;
    bool here;
};
struct shoali_words;
struct shoali_world {
    struct shoali_node *node;
    int32_t nodes, ranks;
    const char *file; /* the hostfile, NULL: none */
    bool named;       /* without a file: the nodes are those of Slurm's allocation, in its order */
};
/* The selected slots of the first `num_nodes` hosts (0: all) that have any. `ranks_per_node` > 0
 * replaces the slots of each by 0..N-1. */
SHOAL_CHECKED shoal_status shoali_world_make(const struct shoali_hosts *hosts, int32_t num_nodes,
                                             int32_t ranks_per_node, struct shoali_arena *arena,
                                             struct shoali_world *world);
/* As many nodes and ranks as were asked for, or as the allocation around has, by Slurm's variables. */
SHOAL_CHECKED shoal_status shoali_slurm_world(const shoal_launch_args *args,
                                              struct shoali_arena *arena,
                                              struct shoali_world *world);
/* Adds the names of "node[03-07,9],other2"; false: it is no such list. */
bool shoali_slurm_names(const char *list, struct shoali_words *names);
/* A variable that is a number from 1; 0: it is not. */
int32_t shoali_environment_number(const char *name);
/* "worker-0:0,1@worker-1:0", the grammar of --include, in the order of nodes. NULL: no memory. */
const char *shoali_world_print(const struct shoali_world *world, struct shoali_arena *arena);
/* Reads that, and DeepSpeed's world_info. */
SHOAL_CHECKED shoal_status shoali_world_parse(const char *text, struct shoali_arena *arena,
                                              struct shoali_world *world);
/* The node of a rank. */
int32_t shoali_world_node_of(const struct shoali_world *world, int32_t rank);

/* ---- command lines -------------------------------------------------------------------------- */
struct shoali_words {
    struct shoali_arena *arena;
    char **value; /* NULL-terminated */
    int32_t count, capacity;
    bool failed; /* no memory, once and for all */
};
/* A word; "" where it could not be kept. */
static inline const char *shoali_words_at(const struct shoali_words *words, int32_t index)
{
    const char *word = words->value[index];
    return word ? word : "";
}
void shoali_words_add(struct shoali_words *words, const char *format, ...) SHOAL_PRINTF(2, 3);
void shoali_words_add_all(struct shoali_words *words, const struct shoali_words *more);
/* Words between blanks; '...' and "..." keep blanks, \ keeps the next character. `what` names the
 * text in the error. */
SHOAL_CHECKED shoal_status shoali_words_split(struct shoali_words *words, const char *text,
                                              const char *what);
/* As a POSIX shell, and fish, read them back; '...' only where it is needed. */
void shoali_shell_quote(struct shoali_str *out, const char *word);
void shoali_words_print(const struct shoali_words *words, struct shoali_str *out);

/* ---- variables for the other hosts ---------------------------------------------------------- */
/* NAME=VALUE texts: those of this environment whose names begin with a prefix of the list, then
 * those of the files, the last of a name wins. A program that is Python finds the modules of the
 * folder first. */
SHOAL_CHECKED shoal_status shoali_exports_collect(const char *program, const char *folder,
                                                  struct shoali_words *exports);

/* ---- the letter ----------------------------------------------------------------------------- */
struct shoali_letter {
    char secret[SHOALI_SECRET_TEXT_BYTES];
    struct shoali_words variables; /* NAME=VALUE */
};
enum { SHOALI_LETTER_BYTES_MAX = 65536 };
enum shoali_secret_from { SHOALI_FROM_ENVIRONMENT, SHOALI_FROM_STDIN, SHOALI_FROM_DEPOSIT };
SHOAL_CHECKED shoal_status shoali_letter_write(const struct shoali_letter *letter,
                                               struct shoali_str *out);
/* Reads no byte beyond the letter's end. */
SHOAL_CHECKED shoal_status shoali_letter_read(int descriptor, struct shoali_arena *arena,
                                              struct shoali_letter *letter);
/* Leaves the letter that comes from the descriptor for the node of the job; takes it. */
SHOAL_CHECKED shoal_status shoali_letter_deposit(int descriptor, const char *job_id,
                                                 int32_t node_rank, struct shoali_arena *arena);
SHOAL_CHECKED shoal_status shoali_letter_take(const char *job_id, int32_t node_rank,
                                              struct shoali_arena *arena,
                                              struct shoali_letter *letter);

/* ---- the front ------------------------------------------------------------------------------ */
/* One command that the front starts. */
struct shoali_command {
    const char *host; /* NULL: it stands for all of them */
    struct shoali_words words;
    bool lifeline; /* its input carries the letter and the characters */
};
struct shoali_front;
enum shoali_advice { SHOALI_GO_ON, SHOALI_ASK_TO_SAVE, SHOALI_END_IT };
/* An agent that starts jobs one after the other (elastic.h): what it adds to one, and learns of it. */
struct shoali_overseer {
    const struct shoali_words *variables; /* NAME=VALUE for all ranks */
    enum shoali_advice (*look)(void *user, const struct shoali_front *front); /* once a second */
    void *user;
    bool ended; /* it was `look` that ended the job */
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
    struct shoali_letter letter;
    struct shoali_words assignments; /* NAME=VALUE that the commands get in their environment */
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
/* All hosts and slots that the flags name, whether they are there or not. */
SHOAL_CHECKED shoal_status shoali_world_find(const struct shoali_launch_options *options,
                                             const shoal_launch_args *args,
                                             struct shoali_arena *arena,
                                             struct shoali_world *world);
/* The value of --NAME VALUE or --NAME=VALUE among a program's arguments, of the last one as its
 * parser sees it; NULL: not given. A name may be written with _ for -. */
const char *shoali_program_flag(const char *const *program, const char *name);
/* Fills front->command and ->assignments. */
SHOAL_CHECKED shoal_status shoali_commands_make(struct shoali_front *front);
/* The words of `ssh HOST`, without what the host is to do; a node that is here has none. */
SHOAL_CHECKED shoal_status shoali_ssh_words(const struct shoali_front *front,
                                            const struct shoali_node *node,
                                            struct shoali_words *words);
/* Adds `cd FOLDER && exec WORDS` as one word where it goes through a shell, else the words. */
void shoali_remote_words(const struct shoali_front *front, bool shell,
                         const struct shoali_words *inner, struct shoali_words *out);
/* "" or the launcher's program that has to be there. */
const char *shoali_launcher_name_of(enum shoali_remote_launcher launcher);
SHOAL_CHECKED shoal_status shoali_preflight(struct shoali_front *front);
/* A process of the front's own: it leads a process group, and ends with the front. Descriptors that
 * are -1: /dev/null for the input, the front's own for the rest. */
struct shoali_start {
    const struct shoali_words *words;
    const struct shoali_words *assignments; /* NAME=VALUE, NULL: none */
    const char *secret;                     /* for SHOAL_SECRET in its environment, NULL: none */
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
/* Runs the program as the rank that the launcher of that name says, and tells the front how it went. */
SHOAL_CHECKED shoal_status shoali_mpi_rank_run(const struct shoali_launch_options *options,
                                               const shoal_launch_args *args,
                                               struct shoali_arena *arena, int *exit_code);
SHOAL_CHECKED shoal_status shoali_mpi_watch(struct shoali_job *job, int32_t local_rank,
                                            const char *path, char **argv, char **envp,
                                            int *exit_code);
/* xxh3 of a file as 16 digits. */
SHOAL_CHECKED shoal_status shoali_file_hash(const char *path, char text[17]);
/* An address by which other hosts reach this one, "" when it has none. */
void shoali_own_address(char *text, size_t bytes);
/* Characters on a lifeline, and signals. */
char shoali_lifeline_word(int signal);

#endif
