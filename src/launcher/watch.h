/* watch - the front while the job runs: its commands, and what it knows of hosts and ranks from what
 * they say. watch.c waits and ends, hear.c reads, unreachable.c asks hosts that say nothing. One thread. */
#ifndef SHOALI_WATCH_H
#define SHOALI_WATCH_H

#include "launcher/cluster.h"
#include "launcher/ranks.h"

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
    bool marked; /* it is a line for the front */
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
    int64_t look_ns; /* and the next look whether the ranks go on */
    char host[80];   /* that failed, in the words of pdsh */
    int host_code;
    char unlinked[80]; /* host whose connection was closed while mpirun ran; "": none */
    char task[160];    /* of srun, what happened to it; "": nothing was said */
    struct shoali_copies copies;
    struct shoali_rank_view *view; /* [world.ranks] */
    int64_t *heard_ns;             /* [world.nodes]; 0: nothing yet */
    struct pollfd *watched;        /* [count + 1] */
    struct shoali_wire_end end;    /* the first rank that ended badly */
    bool has_end, told_straggler;
    int32_t straggler_looks;
    struct shoali_stuck stuck;    /* ranks that wait for each other */
    int32_t lost_node;            /* -1: none */
    int64_t lost_ns, lost_due_ns; /* its silence; when that of another may be too long */
};

/* Reads what has come; a line that says who failed sets the culprit, the first one alone. */
void shoali_hear(struct shoali_watch *watch);
/* The first of the hosts that have been silent for so long at which nobody answers, where another
 * answers; else -1. Takes up to 0.4 s. */
int32_t shoali_watch_unreachable(const struct shoali_watch *watch, int64_t silent_ns);

#endif
