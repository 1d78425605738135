/* large - groups of more ranks than exchange all with all.
 *
 * Up to SHOALI_P2P_MAX_RANKS every rank receives from every other in each collective. In a larger
 * group it receives from its neighbours in a binomial tree over the group's ranks: the parent of r
 * is r without its lowest bit, so a rank has log2(ranks) neighbours at most, and of the others it
 * holds only a number.
 *
 *   gate   A rank tells its parent that it has come, with the record of its call, and again when
 *          everybody below it has; who has nobody below says both at once. Rank 0 then opens the
 *          gate and each rank passes that on. Records are compared along every edge, so that all
 *          are the same when the gate opens, and no data moves before. A barrier is no more.
 *   data   Steps of one exchange each (schedule.c and below), through two streams:
 *            broadcast       tree
 *            all_reduce      halving (Rabenseifner's); integers of few bytes: doubling
 *            reduce_scatter  blocks of a chunk side by side in memory of the group's own, halving
 *            all_gather      up the binomial tree and down again; above GATHER_BYTES a ring
 *            all_to_all(_v)  N - 1 exchanges with ever more distant partners
 *
 * BITS. Sums of floats are added in halving's order at every size: pairs of neighbours that exceed
 * a power of two, then pairs at half of that power, a quarter, ..., 1. So the order is a matter of
 * the number of ranks alone, as in smaller groups, but another one; 16-bit types are rounded at
 * each step. Integers, minima and maxima have the bits of every backend. An average is the sum
 * times 1/ranks. Sums by a tree of neighbours (SHOAL_SUM_TREE) are for integers only: nobody splits
 * a layer over more than 256 ranks.
 *
 * FAILURE. A rank that has come is not blamed for one below it that has not: who waits for the
 * second word of a neighbour waits half as long again, so that this neighbour speaks first. The
 * verdict goes from rank to rank (world.c). What ranks want of each other in an all_to_all_v is not
 * compared beforehand; a piece of another size is the sentence.
 */
#ifndef SHOALI_P2P_LARGE_H
#define SHOALI_P2P_LARGE_H

#include "comm/p2p/p2p.h"

enum { SHOALI_P2P_CHILDREN = 32 };

struct shoali_p2p_note {
    struct shoali_record record;
    int32_t whole; /* everybody below has come, too; of a parent: the gate is open */
    int32_t zero;
};
struct shoali_p2p_neighbour {
    int32_t rank;
    bool here, whole, listening, sending;
    bool received; /* of an earlier collective, whose record is `last` */
    struct shoali_record last;
    struct shoali_p2p_note got;
    struct shoali_p2p_request receive, send;
};
struct shoali_p2p_large {
    int32_t children;
    struct shoali_p2p_neighbour child[SHOALI_P2P_CHILDREN], parent; /* parent.rank -1: rank 0 */
    struct shoali_p2p_note sent[2]; /* that this rank has come; that all below it have */
    struct shoali_p2p_request first_word;
    bool first_sending;
    /* data: one part of the collective after the other, each of some steps */
    int32_t part, number;
    bool in_step;
    struct shoali_p2p_op inner;
    struct shoali_p2p_stream out, in;
    unsigned char *room; /* blocks of a reduce_scatter's chunk, places of an all_to_all_v */
    size_t room_bytes;
};

/* The state of a group of that size and rank; NULL: no memory (and an error). */
struct shoali_p2p_large *shoali_p2p_large_create(int32_t rank, int32_t size);
void shoali_p2p_large_destroy(struct shoali_p2p_large *large);
SHOAL_CHECKED shoal_status shoali_p2p_large_advance(struct shoali_p2p_group *group,
                                                    struct shoali_p2p_op *op);
/* Ranks of the group that are waited for now; at most SHOALI_P2P_CHILDREN + 1. */
int32_t shoali_p2p_large_list_needed(const struct shoali_p2p_group *group,
                                     const struct shoali_p2p_op *op, int32_t *needed);
/* The neighbours that have not come, their number; `last` NULL or the last call of the first. */
int32_t shoali_p2p_large_list_missing(const struct shoali_p2p_group *group, int32_t *missing,
                                      const struct shoali_record **last);

#endif
