/* hierarchical - ranks of several hosts: what stays on a host goes through its memory, and what
 * leaves it is sent once per host.
 *
 * A group is composed of groups of two other backends, and moves nothing itself:
 *
 *   all      all of its ranks, by the backend between hosts (mpi, ...)
 *   near     its ranks on this host, by the backend within one (shm)
 *   leaders  one rank of each host, the first: a part of `all`
 *
 * A collective is a list of steps, each of them a post to one of the three (steps.c):
 *
 *   all_reduce      near: sum          leaders: sum              near: broadcast
 *   reduce_scatter  near: sum          leaders: reduce_scatter   near: broadcast, each takes its part
 *   all_gather      near: all_gather   leaders: all_gather       near: broadcast
 *   broadcast       root's host: broadcast   leaders: broadcast  other hosts: broadcast
 *   all_to_all      near: all_gather   leaders: all_to_all       near: broadcast, each takes its part
 *   barrier         near               leaders                   near
 *   send, recv      near, or all for a rank of another host
 *
 * so that a host sends and receives what a single rank on it would. What these would not make
 * smaller goes through `all` at once, after two barriers in which the ranks agree: all_to_all_v,
 * large all_to_alls, averages, and trees (SHOAL_SUM_TREE) that do not divide at hosts. A group on
 * one host is `near` alone, one with a rank per host `all` alone. Ranks that an MPI has brought
 * together are divided even when one host has them all (`near_alone`).
 *
 * BITS. Integers, minima, maxima and trees that divide at hosts have the bits of every other
 * backend: exact reductions do not know that there are hosts. Other sums of floats are taken within
 * each host in rank order, then over hosts in the order of their first ranks; of 16-bit types each
 * of the two is rounded. So in fast reductions the bits depend on which ranks share a host, and on
 * nothing else.
 *
 * AGREEMENT. Each step carries what the caller posted (struct shoali_post, `call`), so that the
 * first step near and the first between leaders find what differs, with the call sites of both, and
 * a step that is waited for too long names the user's call. A step that waits for others who wait
 * themselves has a later deadline: the rank that is late is named, not those that wait for it.
 *
 * FAILURE. There are two worlds with a verdict each: of the host and of all. A rank that gives up
 * tells both; whoever meets a verdict in one relays it to the other. A verdict of another host ends
 * waits on this one after a moment (SETTLE_NS), in which what all ranks have come to completes.
 *
 * HOSTS. Ranks are on one host when machine, host name and /dev/shm are the same (hosts.c).
 * SHOAL_PRETEND_HOSTS=3,1 (so many ranks per host, again and again) or cyclic:2 (that many hosts in
 * turn) says something else, for tests; then ranks that are threads or processes of one machine are
 * divided, too.
 */
#ifndef SHOALI_HIERARCHICAL_H
#define SHOALI_HIERARCHICAL_H

#include "comm/queue.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SHOALI_HIER_ROOM_BYTES = 1 << 20 };

/* Who is where, of a group. */
struct shoali_hier_layout {
    int32_t size, rank, hosts, host, place; /* place: among the ranks of its host */
    int32_t largest, local;                 /* ranks of a host: at most, on this one */
    bool in_order;                          /* ranks of a host follow each other, equally many */
    bool
        levels; /* several hosts, several ranks on one, and an element of each fits into the room */
    int32_t *host_of, *place_of; /* [size] */
    int32_t *count_of, *id_of;   /* [hosts] ranks there; number of the host in the world */
    int32_t *at;                 /* [hosts * largest] rank at a place, -1 */
};

/* Of one rank; all its groups share it. */
struct shoali_hier_world {
    const struct shoali_comm_ops *outer, *inner;
    void *all, *near;     /* of the whole world, until the last group is gone */
    pthread_mutex_t lock; /* references */
    int32_t references;
    _Atomic int64_t seen_ns; /* when a verdict of all was first seen; 0: none */
    _Atomic int64_t between[SHOALI_COLLECTIVE_COUNT];
};

enum shoali_hier_where {
    SHOALI_HIER_OVER, /* no step is left */
    SHOALI_HIER_SKIP, /* nothing to do for this rank */
    SHOALI_HIER_NEAR,
    SHOALI_HIER_LEADERS,
    SHOALI_HIER_ALL
};

struct shoali_hier_op {
    int32_t index; /* in the queue */
    struct shoali_post post;
    struct shoali_record call;
    int32_t step;       /* the next one */
    int64_t first;      /* element at which the present chunk begins */
    shoal_status error; /* < 0: a step has failed */
    /* The present step; NULL: none is under way. */
    void *request, *object;
    const struct shoali_comm_ops *ops;
};

struct shoali_hier_group {
    struct shoali_hier_world *world;
    struct shoali_hier_layout layout;
    void *all, *near, *leaders; /* NULL: not needed, or not for this rank */
    bool whole;                 /* the world's group: all and near are the world's */
    struct shoali_hier_op op[SHOALI_QUEUE_REQUESTS];
    struct shoali_queue queue;
    unsigned char *room[2]; /* SHOALI_HIER_ROOM_BYTES each, that the host's ranks reach; NULL */
};

/* Divides `all`, a group of `outer` over all ranks, when they are on several hosts and one of them
 * has several; else it stays what it is. Takes it over, on failure too. Collective. */
struct shoali_hier_args {
    const struct shoali_comm_ops *outer, *inner;
    void *all;
    double timeout_s;
    struct shoal_thread_world *threads;
    bool near_alone; /* divides also when all are on one host: `outer` is then for verdicts alone */
};
SHOAL_CHECKED shoal_status shoali_hierarchical_create(const struct shoali_hier_args *args,
                                                      const struct shoali_comm_ops **ops,
                                                      void **object);
/* Are hosts pretended? */
bool shoali_hierarchical_is_pretended(void);

/* hosts.c: a number per rank of the group, the same for ranks of one host. Collective. */
SHOAL_CHECKED shoal_status shoali_hier_find_hosts(const struct shoali_comm_ops *ops, void *all,
                                                  int32_t *host);
/* Where the hosts of `size` ranks are pretended: as SHOAL_PRETEND_HOSTS says. */
SHOAL_CHECKED shoal_status shoali_hier_pretend(const char *text, int32_t size, int32_t *host);
/* `host`: of each of the ranks, any numbers. */
SHOAL_CHECKED shoal_status shoali_hier_layout_init(struct shoali_hier_layout *layout,
                                                   const int32_t *host, int32_t size, int32_t rank);
void shoali_hier_layout_fini(struct shoali_hier_layout *layout);

/* steps.c: what comes next, with what belongs before it (copies into the room) done; fills `post`
 * but for what is the same in all steps. */
enum shoali_hier_where shoali_hier_next(const struct shoali_hier_group *group,
                                        struct shoali_hier_op *op, struct shoali_post *post);
/* Bytes that this rank sends to other hosts in a step. */
int64_t shoali_hier_crossing(const struct shoali_hier_group *group, enum shoali_hier_where where,
                             const struct shoali_post *post);

/* progress.c */
shoal_status shoali_hier_post(void *group, const struct shoali_post *post, void **request);
shoal_status shoali_hier_test(void *group, void *request);
shoal_status shoali_hier_wait(void *group, void *request);
void shoali_hier_abort(void *group, shoal_status status, const char *sentence);
/* Posts and waits, without `agree`. */
SHOAL_CHECKED shoal_status shoali_hier_run(struct shoali_hier_group *group,
                                           const struct shoali_post *post);
SHOAL_CHECKED shoal_status shoali_hier_run_on(const struct shoali_comm_ops *ops, void *object,
                                              const struct shoali_post *post);
/* Have other hosts' ranks failed for long enough? For `watch`. */
shoal_status shoali_hier_poll(void *world);

#endif
