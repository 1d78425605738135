/* Algorithms of more than one exchange: what a rank sends to whom, and gets from whom, step by step.
 *
 * All work in `out`, which holds this rank's part before the first step. A step is over when its send
 * and its receive are. p2p.h says which collectives have which. */
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

static int32_t around(int32_t rank, int32_t size)
{
    return ((rank % size) + size) % size;
}

/* The first and the last step of a fold. */
static void fold_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                      const struct fold *fold, bool first, struct shoali_p2p_step *step)
{
    const bool odd = group->rank % 2;
    if (group->rank >= 2 * fold->rest)
        return;
    if (odd == first) {
        step->to = odd ? group->rank - 1 : group->rank + 1;
        step->send = all_of(op);
    } else {
        step->from = odd ? group->rank - 1 : group->rank + 1;
        step->receive = all_of(op);
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

/* Halves of halves, summed; then the same way back. */
static bool halving_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                         int32_t number, struct shoali_p2p_step *step)
{
    const struct fold fold = fold_of(group->rank, group->size);
    const int32_t steps = log2_of(fold.power);
    if (number == 0 || number == 2 * steps + 1) {
        fold_step(group, op, &fold, number == 0, step);
        return true;
    }
    if (number > 2 * steps)
        return false;
    if (fold.rank < 0)
        return true;
    const bool back = number > steps;
    const int32_t distance = back ? 1 << (number - steps - 1) : fold.power >> number;
    const int32_t partner = fold.rank ^ distance;
    const struct shoali_p2p_range own = slices(op, fold.rank / distance * distance, distance,
                                               fold.power),
                                  theirs = slices(op, partner / distance * distance, distance,
                                                  fold.power);
    step->to = step->from = unfold(&fold, partner);
    step->send = back ? own : theirs;
    step->receive = back ? theirs : own;
    step->sums = !back;
    return true;
}

static bool ring_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                      int32_t number, struct shoali_p2p_step *step)
{
    const int32_t size = group->size, rank = group->rank;
    const bool reduces = op->post.kind == SHOALI_ALL_REDUCE;
    if (number >= (reduces ? 2 : 1) * (size - 1))
        return false;
    step->to = around(rank + 1, size);
    step->from = around(rank - 1, size);
    step->sums = reduces && number < size - 1;
    /* The second time round begins with the slice that is whole: rank + 1. */
    const int32_t slice = reduces && !step->sums ? rank + 1 - (number - (size - 1)) : rank - number;
    if (reduces) {
        step->send = shoali_p2p_slice(op, around(slice, size), size);
        step->receive = shoali_p2p_slice(op, around(slice - 1, size), size);
    } else {
        step->send =
            (struct shoali_p2p_range){around(slice, size) * op->post.count, op->post.count};
        step->receive =
            (struct shoali_p2p_range){around(slice - 1, size) * op->post.count, op->post.count};
    }
    return true;
}

/* A rank that has it gives it to one that has not: twice as many after each step. */
static bool tree_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                      int32_t number, struct shoali_p2p_step *step)
{
    const int32_t root = op->post.peer, size = group->size;
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
