/* The pieces of a chunk, and the runs of each, to and from their place. */
#include "checkpoint/checkpoint_internal.h"

#include <string.h>

/* ---- the pieces of a range ------------------------------------------------------------------ */

static int64_t whole_end(const struct shoali_checkpoint_space *space, int32_t tensor)
{
    return space->whole_begin[tensor] + shoal_shape_count(&space->shapes[tensor]);
}

/* A holding of a block before which none reaches beyond its element `at`. */
static int64_t find_holding(const struct shoali_checkpoint_holdings *list, int32_t tensor,
                            int32_t origin, int64_t at)
{
    int64_t low = 0;
    for (int64_t high = list->count; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        const struct shoali_checkpoint_holding *is = &list->holding[middle];
        const bool before = is->tensor != tensor   ? is->tensor < tensor
                            : is->origin != origin ? is->origin < origin
                                                   : is->reached <= at;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Sets the walk on the holdings of the next block that has elements in its range. */
static bool next_block(struct shoali_checkpoint_walk *walk)
{
    const struct shoali_checkpoint_space *space = walk->space;
    while (walk->place < space->order_count) {
        const int32_t tensor = space->order[walk->place];
        if (space->whole_begin[tensor] >= walk->end)
            break;
        if (++walk->origin >= space->view_count) {
            walk->origin = -1;
            walk->place++;
            continue;
        }
        const struct shoali_checkpoint_view *view = &space->view[walk->origin];
        if (view->origin[tensor] != walk->origin)
            continue;
        const int64_t base = space->whole_begin[tensor], next = whole_end(space, tensor);
        const int64_t from = (walk->begin > base ? walk->begin : base) - base;
        const int64_t to = (walk->end < next ? walk->end : next) - base;
        const struct shoali_shard *shard = view->shard[tensor];
        walk->low = shard ? shoali_shard_below(shard, from) : from;
        walk->high = shard ? shoali_shard_below(shard, to) : to;
        walk->holding = find_holding(walk->list, tensor, walk->origin, walk->low);
        return true;
    }
    return false;
}

/* What the next holding of the block that the walk is on has of its range, which may be nothing;
 * false: there are no more. */
static bool piece_of_block(struct shoali_checkpoint_walk *walk,
                           struct shoali_checkpoint_piece *piece)
{
    const struct shoali_checkpoint_space *space = walk->space;
    if (walk->holding >= walk->list->count || walk->place >= space->order_count)
        return false;
    const struct shoali_checkpoint_holding *is = &walk->list->holding[walk->holding];
    if (is->tensor != space->order[walk->place] || is->origin != walk->origin ||
        is->begin >= walk->high)
        return false;
    const int64_t from = walk->every_holder ? is->begin : is->fresh;
    const int64_t begin = from > walk->low ? from : walk->low;
    const int64_t stop = is->begin + is->count;
    *piece = (struct shoali_checkpoint_piece){
        .rank = is->rank,
        .range = is->range,
        .tensor = is->tensor,
        .origin = is->origin,
        .shard = space->view[is->origin].shard[is->tensor],
        .begin = begin,
        .count = (stop < walk->high ? stop : walk->high) - begin,
        .flat = space->view[space->view_of[is->rank]].begin[is->tensor] + begin,
        .whole = space->whole_begin[is->tensor],
    };
    walk->holding++;
    return true;
}

static bool next_piece(struct shoali_checkpoint_walk *walk, struct shoali_checkpoint_piece *piece)
{
    for (;;) {
        while (piece_of_block(walk, piece))
            if (piece->count > 0)
                return true;
        if (!next_block(walk))
            return false;
    }
}

/* Who has the one block has the other, so that a writer may give both itself. */
static bool held_alike(const struct shoali_checkpoint_space *space,
                       const struct shoali_checkpoint_piece *last,
                       const struct shoali_checkpoint_piece *next)
{
    for (int32_t v = 0; v < space->view_count; v++)
        if ((space->view[v].origin[last->tensor] == last->origin) !=
            (space->view[v].origin[next->tensor] == next->origin))
            return false;
    return true;
}

/* Of whole tensors, neighbours in the file and in one range: they travel as one. */
static bool follows(const struct shoali_checkpoint_space *space,
                    const struct shoali_checkpoint_piece *last,
                    const struct shoali_checkpoint_piece *next)
{
    return !last->shard && !next->shard && last->rank == next->rank && last->range == next->range &&
           last->flat + last->count == next->flat &&
           last->whole + last->begin + last->count == next->whole + next->begin &&
           held_alike(space, last, next);
}

struct shoali_checkpoint_walk shoali_checkpoint_walk(const struct shoali_checkpoint_run *run,
                                                     int32_t kind, int64_t begin, int64_t end,
                                                     bool every_holder)
{
    const struct shoali_checkpoint_space *space = run->space[kind];
    struct shoali_checkpoint_walk walk = {.space = space,
                                          .list = &run->holdings[kind],
                                          .begin = begin,
                                          .end = end,
                                          .origin = -1,
                                          .every_holder = every_holder};
    for (int32_t high = space->order_count; walk.place < high;) {
        const int32_t middle = walk.place + (high - walk.place) / 2;
        if (whole_end(space, space->order[middle]) <= begin)
            walk.place = middle + 1;
        else
            high = middle;
    }
    walk.holding = walk.list->count; /* on no block yet */
    walk.more = begin < end && next_piece(&walk, &walk.ahead);
    return walk;
}

bool shoali_checkpoint_next(struct shoali_checkpoint_walk *walk,
                            struct shoali_checkpoint_piece *piece)
{
    if (!walk->more)
        return false;
    *piece = walk->ahead;
    while ((walk->more = next_piece(walk, &walk->ahead)) &&
           follows(walk->space, piece, &walk->ahead))
        piece->count += walk->ahead.count;
    return true;
}

/* ---- the runs of a piece -------------------------------------------------------------------- */

/* Where element `at` of the block is in the files' order, and how many from it on follow. */
static int64_t place_of(const struct shoali_checkpoint_piece *piece, int64_t at, int64_t *count)
{
    const int64_t left = piece->begin + piece->count - at;
    int64_t run = left, element = at;
    if (piece->shard)
        element = shoali_shard_run(piece->shard, at, &run);
    *count = run < left ? run : left;
    return piece->whole + element;
}

char *shoali_checkpoint_direct(const struct shoali_checkpoint_piece *piece, char *memory,
                               int64_t first, size_t item)
{
    int64_t count;
    const int64_t place = place_of(piece, piece->begin, &count);
    return count == piece->count ? memory + (size_t)(place - first) * item : NULL;
}

void shoali_checkpoint_spread(const struct shoali_checkpoint_piece *piece, char *memory,
                              int64_t first, size_t item, const char *from)
{
    int64_t count;
    for (int64_t at = 0; at < piece->count; at += count) {
        const int64_t place = place_of(piece, piece->begin + at, &count);
        memcpy(memory + (size_t)(place - first) * item, from + (size_t)at * item,
               (size_t)count * item);
    }
}

char *shoali_checkpoint_collect(const struct shoali_checkpoint_piece *piece, char *memory,
                                int64_t first, size_t item, char *beside)
{
    char *direct = shoali_checkpoint_direct(piece, memory, first, item);
    int64_t count;
    if (direct)
        return direct;
    for (int64_t at = 0; at < piece->count; at += count) {
        const int64_t place = place_of(piece, piece->begin + at, &count);
        memcpy(beside + (size_t)at * item, memory + (size_t)(place - first) * item,
               (size_t)count * item);
    }
    return beside;
}
