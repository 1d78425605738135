/* hosts - which hosts and slots a job has, and who is which rank.
 *
 *   hostfile.c  the hosts of a hostfile, and which of them is this machine
 *   slots.c     --include and --exclude
 *   world.c     the nodes and ranks of a job; the same in words
 *
 * Terms. A *host* is a line of the hostfile, with its *slots*. A *node* is a host of the job. The
 * *world* is all nodes with their ranks.
 *
 * Invariants. Nodes have the order of the hostfile. Ranks are numbered node by node, slot by slot,
 * whatever number of slots each has. No function here asks another machine.
 */
#ifndef SHOALI_HOSTS_H
#define SHOALI_HOSTS_H

#include "base/arena.h"
#include "base/config_table.h"
#include "shoal/launcher.h"

#include <stdbool.h>

/* Hosts in the order of their file, which is the order of ranks. */
struct shoali_host {
    const char *name;
    const char *login; /* USER@NAME when the file says so; else NULL */
    int32_t slots;
    int32_t line;   /* of the file */
    bool *selected; /* [slots], by the filters */
    bool here;      /* it is this machine, and this user */
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

struct shoali_node {
    const char *name;
    const char *login;        /* what ssh takes instead: USER@NAME of the hostfile; else NULL */
    int32_t line;             /* of the hostfile; 0: none */
    struct shoali_ints slots; /* ascending */
    int32_t first_rank;
    bool here;
};
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
/* "worker-0:0,1@worker-1:0", the grammar of --include, in the order of nodes. NULL: no memory. */
const char *shoali_world_print(const struct shoali_world *world, struct shoali_arena *arena);
/* Reads that, and DeepSpeed's world_info. */
SHOAL_CHECKED shoal_status shoali_world_parse(const char *text, struct shoali_arena *arena,
                                              struct shoali_world *world);
/* The node of a rank. */
int32_t shoali_world_node_of(const struct shoali_world *world, int32_t rank);

/* What ssh and pdsh take for the host of a node. */
static inline const char *shoali_node_login(const struct shoali_node *node)
{
    return node->login ? node->login : node->name;
}

#endif
