/* network - what a collective takes among ranks of several hosts. Level L9.
 *
 * A message of m bytes takes alpha + m / b (Hockney 1994): alpha is a latency in seconds, b bytes
 * per second. There are two kinds of them, near (between ranks of one host) and far (between
 * hosts). A host has `links`, each of which carries far.bytes_per_s; a rank uses one at a time.
 * Where f ranks of a host send out of it at once each has min(link, links * link / f). Links meet
 * in a network that is never the narrowest place (a fat tree without oversubscription).
 *
 * A GROUP is n ranks on h hosts, q = n / h on each. Other groups of its kind work at the same time:
 * if the hosts are full, R / q of them share a host's links (R ranks of a host). So a far step in
 * which k ranks of a group's host send has f = k R / q flows. Groups that differ along another axis
 * of the mesh do the same, which is why ranks along dp, with q = 1 beside 8 ranks along tp, have an
 * eighth of the links each.
 *
 * ALGORITHMS, for S bytes: what all ranks have together of a gather or scatter, what each has of a
 * sum. Arithmetic of sums is not counted: it is far below the rates of links.
 *
 *   ring          reduce_scatter or all_gather: n - 1 steps of S/n; all_reduce both. Ranks of a host are
 *                 neighbours, so one of them sends out (k = 1), and each step waits for the slowest
 * link
 *   doubling      recursive doubling: all_reduce log2 n steps of S; all_gather log2 n steps that double
 *                 what is sent, S/n first. Near distances first. Far steps: k = q
 *   tree          binomial: a sum to one rank, a broadcast from it, log2 n steps of S each, k = 1
 *   rabenseifner  all_reduce as a scattered sum by halving, then a gather by doubling: 2 log2 n
 * steps
 *                 of S/2, S/4, ..., near ones first. Far steps: k = q
 *   direct        reduce_scatter or all_gather: n - 1 messages of S/n, to each other rank its part; all_reduce
 *                 both. What comm/p2p does, and so the backends mpi and ucx. Far messages: k = q
 *   two_level     a scattered sum within each host, the sum of each part over hosts (q of them at once, k = q, by
 *                 the best of ring, tree and rabenseifner), a gather within each host
 *
 * A number of ranks that is no power of two costs doubling and rabenseifner one step more of S
 * (twice: there and back), as the ranks beyond it are folded into others. What an algorithm does
 * not do (a tree gathers nothing) takes forever; `best` is the least of all, as libraries of
 * accelerators choose.
 *
 * Sources: Hockney, "The communication challenge for MPP", 1994; Thakur, Rabenseifner and Gropp,
 * "Optimization of collective communication operations in MPICH", 2005; Patarasuk and Yuan,
 * "Bandwidth optimal all-reduce algorithms", 2009; two levels: Sanders and Traeff, 2002, and
 * BlueConnect, Cho et al. 2019.
 */
#ifndef SHOALI_AUTOTUNING_NETWORK_H
#define SHOALI_AUTOTUNING_NETWORK_H

#include "engine/engine.h"
#include "shoal/plan.h"

struct shoali_network_link {
    double latency_s, bytes_per_s; /* 0: costs nothing */
};
struct shoali_network {
    struct shoali_network_link near, far;
    int32_t links, ranks_per_node; /* links 0: each rank has one of its own; ranks 0: one host */
    int32_t algorithm;             /* enum shoali_algorithm */
};
/* SHOAL_EINVAL: there is no such algorithm. */
SHOAL_CHECKED shoal_status shoali_network_of(const shoal_plan_rates *rates,
                                             struct shoali_network *network);

/* A group's place: `near` of its ranks on each of `hosts`. */
struct shoali_network_place {
    int32_t ranks, near, hosts;
};
/* Of the group of rank 0 along an axis. */
void shoali_network_place_of(const shoal_mesh *mesh, shoal_axes axis, int32_t ranks_per_node,
                             struct shoali_network_place *place);

enum shoali_algorithm {
    SHOALI_ALGORITHM_BEST,
    SHOALI_ALGORITHM_RING,
    SHOALI_ALGORITHM_DOUBLING,
    SHOALI_ALGORITHM_TREE,
    SHOALI_ALGORITHM_RABENSEIFNER,
    SHOALI_ALGORITHM_TWO_LEVEL,
    SHOALI_ALGORITHM_DIRECT,
    SHOALI_ALGORITHM_COUNT
};
/* Seconds of an all_reduce, reduce_scatter, all_gather, all_to_all, broadcast or send, by the
 * network's algorithm where it does the kind, else by the best one. */
double shoali_network_best(const struct shoali_network *network,
                           const struct shoali_network_place *place, enum shoali_collective kind,
                           double bytes);

/* What a group's counters (comm/wrap/record.c) say of some steps. */
struct shoali_sent {
    double bytes[SHOALI_COLLECTIVE_COUNT], calls[SHOALI_COLLECTIVE_COUNT];
};
/* Seconds of it, call after call, all calls of a kind being of the same size. */
double shoali_network_sent_time(const struct shoali_network *network,
                                const struct shoali_network_place *place,
                                const struct shoali_sent *sent);

#endif
