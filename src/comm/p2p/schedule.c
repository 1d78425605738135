/* Algorithms of more than one exchange: what a rank sends to whom, and gets from whom, step by
 * step.
 *
 * All work in `out`, which holds this rank's part before the first step; a reduce_scatter works in
 * `room`, which holds all of its input. A step is over when its send and its receive are. p2p.h
 * says which collectives have which. */
#include "comm/p2p/p2p.h"

#include <string.h>

struct
    fold { /* ranks of a power of two; the others hand theirs to a neighbour and get the result */
    int32_t power, rest, rank; /* rank -1: this one only hands over */
};

static struct fold fold_of(int32_t rank, int32_t size)
{
    struct fold fold = {.power = 1};
    while (fold.power * 2 <= size)
        fold.power *= 2;
    fold.rest = size - fold.power;
    if (rank >= 2 * fold.rest)
        fold.rank = rank - fold.rest;
    else
        fold.rank = rank % 2 ? -1 : rank / 2;
    return fold;
}

/* The group's number of a rank of the fold. */
static int32_t unfold(const struct fold *fold, int32_t rank)
{
    return rank < fold->rest ? 2 * rank : rank + fold->rest;
}

static int32_t log2_of(int32_t power)
{
    int32_t bits = 0;
    while (power > 1 << bits)
        bits++;
    return bits;
}

static struct shoali_p2p_range all_of(const struct shoali_p2p_op *op)
{
    return (struct shoali_p2p_range){0, op->post.count};
}

/* Slices first to first + count - 1 of `parts`. */
static struct shoali_p2p_range slices(const struct shoali_p2p_op *op, int32_t first, int32_t count,
                                      int32_t parts)
{
    const struct shoali_p2p_range from = shoali_p2p_slice(op, first, parts),
                                  to = shoali_p2p_slice(op, first + count - 1, parts);
    return (struct shoali_p2p_range){from.first, to.first + to.count - from.first};
}

/* Blocks of a reduce_scatter that ranks first to first + count - 1 of the fold are to have at the
 * end: each its own, and its neighbour's if that has handed over. */
static struct shoali_p2p_range blocks(const struct shoali_p2p_op *op, const struct fold *fold,
                                      int32_t first, int32_t count)
{
    const int32_t end = first + count;
    const int32_t from = first < fold->rest ? 2 * first : first + fold->rest,
                  to = end < fold->rest ? 2 * end : end + fold->rest;
    return (struct shoali_p2p_range){from * op->post.count, (to - from) * op->post.count};
}

static int32_t around(int32_t rank, int32_t size)
{
    return ((rank % size) + size) % size;
}

/* The first and the last step of a fold. A reduce_scatter's last one is of a block. */
static void fold_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                      const struct fold *fold, bool first, struct shoali_p2p_step *step)
{
    const bool odd = group->rank % 2, scatters = op->post.kind == SHOALI_REDUCE_SCATTER;
    const int64_t count = op->post.count;
    struct shoali_p2p_range range = all_of(op);
    if (group->rank >= 2 * fold->rest)
        return;
    if (scatters && first)
        range.count *= group->size;
    else if (scatters)
        range.first = (odd ? group->rank : group->rank + 1) * count;
    if (odd == first) {
        step->to = odd ? group->rank - 1 : group->rank + 1;
        step->send = range;
    } else {
        step->from = odd ? group->rank - 1 : group->rank + 1;
        step->receive = range;
        step->sums = first;
    }
}

static bool doubling_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                          int32_t number, struct shoali_p2p_step *step)
{
    const struct fold fold = fold_of(group->rank, group->size);
    const int32_t steps = log2_of(fold.power);
    if (number == 0 || number == steps + 1) {
        fold_step(group, op, &fold, number == 0, step);
        return true;
    }
    if (number > steps)
        return false;
    if (fold.rank < 0)
        return true;
    step->to = step->from = unfold(&fold, fold.rank ^ 1 << (number - 1));
    step->send = step->receive = all_of(op);
    step->sums = true;
    return true;
}

/* Halves of halves, summed; then, but for a reduce_scatter, the same way back. */
static bool halving_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                         int32_t number, struct shoali_p2p_step *step)
{
    const struct fold fold = fold_of(group->rank, group->size);
    const bool scatters = op->post.kind == SHOALI_REDUCE_SCATTER;
    const int32_t steps = log2_of(fold.power), last = scatters ? steps : 2 * steps;
    if (number == 0 || number == last + 1) {
        fold_step(group, op, &fold, number == 0, step);
        return true;
    }
    if (number > last)
        return false;
    if (fold.rank < 0)
        return true;
    const bool back = number > steps;
    const int32_t distance = back ? 1 << (number - steps - 1) : fold.power >> number;
    const int32_t partner = fold.rank ^ distance;
    const int32_t first = fold.rank / distance * distance, other = partner / distance * distance;
    const struct shoali_p2p_range own = scatters ? blocks(op, &fold, first, distance)
                                                 : slices(op, first, distance, fold.power),
                                  theirs = scatters ? blocks(op, &fold, other, distance)
                                                    : slices(op, other, distance, fold.power);
    step->to = step->from = unfold(&fold, partner);
    step->send = back ? own : theirs;
    step->receive = back ? theirs : own;
    step->sums = !back;
    return true;
}

static struct shoali_p2p_range block(const struct shoali_p2p_op *op, int32_t rank)
{
    return (struct shoali_p2p_range){rank * op->post.count, op->post.count};
}

static bool ring_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                      int32_t number, struct shoali_p2p_step *step)
{
    const int32_t size = group->size, rank = group->rank;
    const bool slices_go = op->post.kind == SHOALI_ALL_REDUCE,
               scatters = op->post.kind == SHOALI_REDUCE_SCATTER;
    if (number >= (slices_go ? 2 : 1) * (size - 1))
        return false;
    step->to = around(rank + 1, size);
    step->from = around(rank - 1, size);
    step->sums = scatters || (slices_go && number < size - 1);
    /* The second time round begins with the slice that is whole: rank + 1. A reduce_scatter begins
     * one earlier, so that the one that is whole is its own. */
    int32_t part = slices_go && !step->sums ? rank + 1 - (number - (size - 1)) : rank - number;
    part -= scatters;
    const int32_t sent = around(part, size), come = around(part - 1, size);
    step->send = slices_go ? shoali_p2p_slice(op, sent, size) : block(op, sent);
    step->receive = slices_go ? shoali_p2p_slice(op, come, size) : block(op, come);
    return true;
}

/* A rank that has it gives it to one that has not: twice as many after each step. */
static bool spread_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                        int32_t root, int32_t number, struct shoali_p2p_step *step)
{
    const int32_t size = group->size;
    const int32_t own = around(group->rank - root, size), distance = 1 << number;
    if (distance >= size)
        return false;
    if (own < distance && own + distance < size) {
        step->to = around(own + distance + root, size);
        step->send = all_of(op);
    } else if (own >= distance && own < 2 * distance) {
        step->from = around(own - distance + root, size);
        step->receive = all_of(op);
    }
    return true;
}

/* A sum goes to rank 0 first: who has handed its own over is done, half of those that are left each
 * time. */
static bool tree_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                      int32_t number, struct shoali_p2p_step *step)
{
    const int32_t rank = group->rank, size = group->size;
    int32_t steps = 0;
    if (op->post.kind == SHOALI_BROADCAST)
        return spread_step(group, op, op->post.peer, number, step);
    while (1 << steps < size)
        steps++;
    if (number >= steps)
        return spread_step(group, op, 0, number - steps, step);
    const int32_t distance = 1 << number, place = rank % (2 * distance);
    if (place == distance) {
        step->to = rank - distance;
        step->send = all_of(op);
    } else if (place == 0 && rank + distance < size) {
        step->from = rank + distance;
        step->receive = all_of(op);
        step->sums = true;
    }
    return true;
}

bool shoali_p2p_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                     int32_t number, struct shoali_p2p_step *step)
{
    *step = (struct shoali_p2p_step){.to = -1, .from = -1};
    switch (op->algorithm) {
    case SHOALI_P2P_RING:
        return ring_step(group, op, number, step);
    case SHOALI_P2P_DOUBLING:
        return doubling_step(group, op, number, step);
    case SHOALI_P2P_HALVING:
        return halving_step(group, op, number, step);
    default:
        return tree_step(group, op, number, step);
    }
}
