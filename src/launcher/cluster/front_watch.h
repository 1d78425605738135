/* front_watch - the front while the job runs: its commands, and what it knows of hosts and ranks
 * from what they say. One thread.
 *
 *   front_watch.c  waits for the commands and ends them; names the host to blame
 *   receive.c      reads what hosts say: passed on, but for what is for the front
 *   say.c          says for which hosts the front waits
 *   unstarted.c    ends a job whose hosts start no rank
 *   unreachable.c  asks hosts that have become silent
 *   signal_hosts.c brings signals to hosts of pdsh
 *   family.c       ends processes that the commands leave on this machine
 *
 * How a job of several hosts ends. A node's standard input is its lifeline: one character a second,
 * others for signals that the user sent to the front (run/lifeline.c has the list). Its end, or
 * --host_timeout seconds of silence, means that the front or the connection is gone: the node stops
 * its ranks as after SIGHUP. With pdsh only the end comes this way, and characters by a connection
 * of their own when a signal does (signal_hosts.c). Open MPI's mpirun kills ranks at a signal, and
 * srun does nothing: where ranks have time to save, the characters go through their input to rank
 * 0, or to all ranks. Hydra passes signals on. With pdsh, MPI launchers and Slurm no characters
 * come once a second: the kernel says whether what the host sends is acknowledged (run/answers.c).
 *
 * The other way hosts send lines on standard error (watch/watch.h): that they are there, what their
 * ranks do, and who has failed. The first that fails decides the exit code, and the front says what
 * happened in one block; the others are told and stop at once.
 */
#ifndef SHOALI_FRONT_WATCH_H
#define SHOALI_FRONT_WATCH_H

#include "launcher/cluster/cluster.h"
#include "launcher/watch/watch.h"

#include "base/waiting.h"

#include <poll.h>
#include <sys/types.h>

struct shoali_child {
    pid_t pid;
    int lifeline; /* -1: none */
    int errors;   /* what it says, -1: nothing any more */
    bool running;
    int code, signal;
    char line[SHOALI_WIRE_BYTES]; /* the last line, or what follows a mark in it */
    size_t length;
    bool marked;    /* it is a line for the front */
    bool bracketed; /* it begins with "[", and is passed on when it is whole */
};

struct shoali_watch {
    const struct shoali_front *front;
    struct shoali_child *child;
    int32_t count, running;
    int signal_fd;
    int32_t culprit; /* -1: none */
    int stop_signal, signals;
    bool ended;      /* by the overseer */
    int64_t beat_ns; /* when the next one is due */
    int64_t poll_ns; /* and the next look whether the ranks go on */
    char host[80];   /* that failed, in the words of pdsh */
    int host_code;
    char unlinked[80]; /* host whose connection was closed while mpirun ran; "": none */
    char task[240];    /* of srun, what happened to it; "": nothing was said */
    struct shoali_copies copies;
    struct shoali_rank_view *view; /* [world.ranks] */
    int64_t *received_ns;          /* [world.nodes]; 0: nothing yet */
    struct pollfd *watched;        /* [count + 1] */
    pid_t *sender;                 /* [world.nodes], what tells hosts of pdsh; 0: none */
    char untold;                   /* the next word for them, 0: none */
    struct shoali_wire_end end;    /* the first rank that ended badly */
    bool has_end, warned_straggler;
    int32_t straggler_polls;
    struct shoali_stuck stuck;    /* ranks that wait for each other */
    int32_t lost_node;            /* -1: none */
    int64_t lost_ns, lost_due_ns; /* its silence; when that of another may be too long */
    int64_t start_due_ns;         /* when all hosts have to have said something; INT64_MAX: had */
    char proxy[160];              /* what a shell says of a launcher's daemon it cannot start */
    char unreached[160];          /* what ssh says of a host that it cannot reach */
    int32_t unreached_node;       /* of that; -1: not known which */
    bool unstarted;               /* some host had not; unstarted_node: -1: not known which */
    int32_t unstarted_node, unstarted_count;
    bool in_trace; /* of an mpirun that crashes (receive.c) */
};

/* Sets the time that hosts have to start. */
void shoali_unstarted_begin(struct shoali_watch *watch);
/* Reads what a launcher or its ssh says of a host on which it can start nothing. */
void shoali_unstarted_receive(struct shoali_watch *watch, const char *line);
/* Sets the culprit where the time is over; returns when it may be. */
int64_t shoali_unstarted_find(struct shoali_watch *watch);
/* Is a host that has not started its ranks the reason of the end? */
bool shoali_unstarted_is_reason(const struct shoali_watch *watch);
void shoali_unstarted_report(const struct shoali_watch *watch);

/* Processes that the commands have started here, with the commands. */
struct shoali_family {
    struct shoali_process *member; /* heap; owned */
    int32_t count, capacity;
};
/* As far as memory for the list can be had. */
void shoali_family_find(const struct shoali_watch *watch, struct shoali_family *family);
/* Kills the members that are left, and frees the list. */
void shoali_family_end(struct shoali_family *family);
/* Reads what has come; a line that says who failed sets the culprit, the first one alone. */
void shoali_watch_receive(struct shoali_watch *watch);
/* Sets the host that is lost: `first` was the first that has been silent for too long, which says
 * little where others have been for missed_ns. It may take 0.4 s to ask them. */
void shoali_watch_lose(struct shoali_watch *watch, int32_t first, int64_t missed_ns);
/* signal_hosts.c: a character of the lifeline (run/lifeline.c) to each host of a job by pdsh. Waits
 * for no answer. */
void shoali_watch_signal(struct shoali_watch *watch, char word);
/* Tells the word that had to wait for the one before. True: some hosts have not received the last.
 * */
bool shoali_watch_signal_rest(struct shoali_watch *watch);
void shoali_watch_signal_end(struct shoali_watch *watch);
/* say.c: where a line is due, of hosts whose launcher, or first rank's parent, has not started; of
 * ranks that save. */
void shoali_watch_say_silent(const struct shoali_watch *watch, struct shoali_waiting *waiting);
void shoali_watch_say_saving(const struct shoali_watch *watch, struct shoali_waiting *waiting);

#endif
