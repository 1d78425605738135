/* The steps of each collective.
 *
 * `at` below is memory of the caller or of the room, whose two halves are a (what leaders send) and
 * b (what they get). Chunks are as large as the room allows; step 3 c + s is step s of chunk c. */
#include "comm/hierarchical/hierarchical.h"

#include <string.h>

static size_t bytes_of(const struct shoali_hier_op *op, int64_t count)
{
    return (size_t)count * shoal_dtype_bytes(op->post.dtype);
}

static const unsigned char *in_at(const struct shoali_hier_op *op, int64_t first)
{
    return (const unsigned char *)op->post.in + bytes_of(op, first);
}

static unsigned char *out_at(const struct shoali_hier_op *op, int64_t first)
{
    return (unsigned char *)op->post.out + bytes_of(op, first);
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from)
        memmove(to, from, bytes);
}

static enum shoali_hier_where leaders(const struct shoali_hier_group *group)
{
    return group->leaders ? SHOALI_HIER_LEADERS : SHOALI_HIER_SKIP;
}

static bool is_power_of_two(int32_t value)
{
    return (value & (value - 1)) == 0;
}

/* Can hosts add up what they have, each for itself? Where a tree would be rounded to 16 bits on the
 * way, its bits would be others. */
static bool divides(const struct shoali_hier_group *group, const struct shoali_post *post)
{
    const struct shoali_hier_layout *layout = &group->layout;
    if (post->op == SHOAL_SUM_TREE)
        return layout->in_order && is_power_of_two(layout->largest) &&
               is_power_of_two(layout->hosts) && shoal_dtype_bytes(post->dtype) != 2;
    return post->op != SHOAL_AVG;
}

/* ---- without data, or all at once ----------------------------------------------------------- */

static enum shoali_hier_where step_of_barrier(const struct shoali_hier_group *group,
                                              struct shoali_hier_op *op, struct shoali_post *post)
{
    post->kind = SHOALI_BARRIER;
    switch (op->step) {
    case 0:
        return SHOALI_HIER_NEAR;
    case 1:
        return leaders(group);
    case 2:
        return SHOALI_HIER_NEAR;
    default:
        return SHOALI_HIER_OVER;
    }
}

static enum shoali_hier_where step_of_flat(const struct shoali_hier_group *group,
                                           struct shoali_hier_op *op, struct shoali_post *post)
{
    if (op->step < 2)
        return step_of_barrier(group, op, post);
    *post = op->post;
    return op->step == 2 ? SHOALI_HIER_ALL : SHOALI_HIER_OVER;
}

/* ---- all_reduce, broadcast ------------------------------------------------------------------ */

static enum shoali_hier_where step_of_all_reduce(const struct shoali_hier_group *group,
                                                 struct shoali_hier_op *op,
                                                 struct shoali_post *post)
{
    *post = op->post;
    if (op->step > 0)
        post->in = post->out;
    switch (op->step) {
    case 0:
        return SHOALI_HIER_NEAR;
    case 1:
        return leaders(group);
    case 2:
        post->kind = SHOALI_BROADCAST;
        post->peer = 0;
        return SHOALI_HIER_NEAR;
    default:
        return SHOALI_HIER_OVER;
    }
}

static enum shoali_hier_where step_of_broadcast(const struct shoali_hier_group *group,
                                                struct shoali_hier_op *op, struct shoali_post *post)
{
    const struct shoali_hier_layout *layout = &group->layout;
    const int32_t host = layout->host_of[op->post.peer];
    const bool has_root = layout->host == host;
    *post = op->post;
    if (layout->rank != op->post.peer)
        post->in = post->out;
    switch (op->step) {
    case 0:
        if (!has_root)
            return step_of_barrier(group, op, post);
        post->peer = layout->place_of[op->post.peer];
        return SHOALI_HIER_NEAR;
    case 1:
        post->peer = host;
        return leaders(group);
    case 2:
        if (has_root)
            return step_of_barrier(group, op, post);
        post->peer = 0;
        return SHOALI_HIER_NEAR;
    default:
        return SHOALI_HIER_OVER;
    }
}

/* ---- all_gather ----------------------------------------------------------------------------- */

/* Ranks of a host follow each other: its blocks are in `out` where they belong. */
static enum shoali_hier_where step_of_gather_in_place(const struct shoali_hier_group *group,
                                                      struct shoali_hier_op *op,
                                                      struct shoali_post *post)
{
    const struct shoali_hier_layout *layout = &group->layout;
    const int64_t count = op->post.count;
    *post = op->post;
    switch (op->step) {
    case 0:
        post->out = out_at(op, layout->host * layout->largest * count);
        return SHOALI_HIER_NEAR;
    case 1:
        post->in = out_at(op, layout->host * layout->largest * count);
        post->count = layout->largest * count;
        return leaders(group);
    case 2:
        post->kind = SHOALI_BROADCAST;
        post->in = post->out;
        post->count = layout->size * count;
        post->peer = 0;
        return SHOALI_HIER_NEAR;
    default:
        return SHOALI_HIER_OVER;
    }
}

/* Elements of the present chunk, of which `blocks` have to fit into half of the room. */
static int64_t chunk_of(const struct shoali_hier_op *op, int64_t blocks)
{
    const int64_t most =
        SHOALI_HIER_ROOM_BYTES / (blocks * (int64_t)shoal_dtype_bytes(op->post.dtype));
    const int64_t left = op->post.count - op->first;
    return left < most ? left : most;
}

/* True when another chunk begins. */
static bool next_chunk(struct shoali_hier_op *op, int64_t chunk)
{
    op->first += chunk;
    op->step = 0;
    return op->first < op->post.count;
}

static enum shoali_hier_where step_of_all_gather(const struct shoali_hier_group *group,
                                                 struct shoali_hier_op *op,
                                                 struct shoali_post *post)
{
    const struct shoali_hier_layout *layout = &group->layout;
    const int64_t places = (int64_t)layout->hosts * layout->largest;
    if (layout->in_order)
        return step_of_gather_in_place(group, op, post);
    int64_t n = chunk_of(op, places);
    if (op->step == 3) {
        for (int32_t r = 0; r < layout->size; r++)
            copy(out_at(op, r * op->post.count + op->first),
                 group->room[1] +
                     bytes_of(op, (layout->host_of[r] * layout->largest + layout->place_of[r]) * n),
                 bytes_of(op, n));
        if (!next_chunk(op, n))
            return SHOALI_HIER_OVER;
        n = chunk_of(op, places);
    }
    *post = op->post;
    post->count = n;
    switch (op->step) {
    case 0:
        post->in = in_at(op, op->first);
        post->out = group->room[0];
        return SHOALI_HIER_NEAR;
    case 1:
        post->in = group->room[0];
        post->out = group->room[1];
        post->count = layout->largest * n;
        return leaders(group);
    default:
        post->kind = SHOALI_BROADCAST;
        post->in = post->out = group->room[1];
        post->count = places * n;
        post->peer = 0;
        return SHOALI_HIER_NEAR;
    }
}

/* ---- reduce_scatter ------------------------------------------------------------------------- */

static enum shoali_hier_where step_of_reduce_scatter(const struct shoali_hier_group *group,
                                                     struct shoali_hier_op *op,
                                                     struct shoali_post *post)
{
    const struct shoali_hier_layout *layout = &group->layout;
    const int64_t places = (int64_t)layout->hosts * layout->largest;
    int64_t n = chunk_of(op, places);
    if (op->step == 3) {
        copy(out_at(op, op->first), group->room[1] + bytes_of(op, layout->place * n),
             bytes_of(op, n));
        if (!next_chunk(op, n))
            return SHOALI_HIER_OVER;
        n = chunk_of(op, places);
    }
    *post = op->post;
    switch (op->step) {
    case 0:
        for (int64_t p = 0; p < places; p++)
            if (layout->at[p] >= 0)
                copy(group->room[0] + bytes_of(op, p * n),
                     in_at(op, layout->at[p] * op->post.count + op->first), bytes_of(op, n));
            else
                memset(group->room[0] + bytes_of(op, p * n), 0, bytes_of(op, n));
        post->kind = SHOALI_ALL_REDUCE;
        post->in = post->out = group->room[0];
        post->count = places * n;
        return SHOALI_HIER_NEAR;
    case 1:
        post->in = group->room[0];
        post->out = group->room[1];
        post->count = layout->largest * n;
        return leaders(group);
    default:
        post->kind = SHOALI_BROADCAST;
        post->in = post->out = group->room[1];
        post->count = layout->largest * n;
        post->peer = 0;
        return SHOALI_HIER_NEAR;
    }
}

/* ---- all_to_all ----------------------------------------------------------------------------- */

/* From every place of a host to every place of another. */
static int64_t pairs_of(const struct shoali_hier_layout *layout)
{
    return (int64_t)layout->hosts * layout->largest * layout->largest;
}

static bool is_small(const struct shoali_hier_group *group, const struct shoali_hier_op *op)
{
    return bytes_of(op, pairs_of(&group->layout) * op->post.count) <= SHOALI_HIER_ROOM_BYTES;
}

/* A leader: from [source][rank] to [host][source][place]. */
static void sort_for_hosts(const struct shoali_hier_group *group, const struct shoali_hier_op *op)
{
    const struct shoali_hier_layout *layout = &group->layout;
    const int64_t n = op->post.count;
    for (int32_t source = 0; source < layout->local; source++)
        for (int32_t r = 0; r < layout->size; r++)
            copy(group->room[1] + bytes_of(op, ((layout->host_of[r] * layout->largest + source) *
                                                    layout->largest +
                                                layout->place_of[r]) *
                                                   n),
                 group->room[0] + bytes_of(op, (source * layout->size + r) * n), bytes_of(op, n));
}

static enum shoali_hier_where step_of_all_to_all(const struct shoali_hier_group *group,
                                                 struct shoali_hier_op *op,
                                                 struct shoali_post *post)
{
    const struct shoali_hier_layout *layout = &group->layout;
    const int64_t n = op->post.count;
    if (!is_small(group, op))
        return step_of_flat(group, op, post);
    *post = op->post;
    switch (op->step) {
    case 0:
        post->kind = SHOALI_ALL_GATHER;
        post->out = group->room[0];
        post->count = layout->size * n;
        return SHOALI_HIER_NEAR;
    case 1:
        if (group->leaders)
            sort_for_hosts(group, op);
        post->in = group->room[1];
        post->out = group->room[0];
        post->count = layout->largest * layout->largest * n;
        return leaders(group);
    case 2:
        post->kind = SHOALI_BROADCAST;
        post->in = post->out = group->room[0];
        post->count = pairs_of(layout) * n;
        post->peer = 0;
        return SHOALI_HIER_NEAR;
    default:
        for (int32_t r = 0; r < layout->size; r++)
            copy(out_at(op, r * n),
                 group->room[0] +
                     bytes_of(op, ((layout->host_of[r] * layout->largest + layout->place_of[r]) *
                                       layout->largest +
                                   layout->place) *
                                      n),
                 bytes_of(op, n));
        return SHOALI_HIER_OVER;
    }
}

/* ---- any ------------------------------------------------------------------------------------ */

/* A message, or anything in a group of one level. */
static enum shoali_hier_where step_of_one(const struct shoali_hier_group *group,
                                          struct shoali_hier_op *op, struct shoali_post *post)
{
    const struct shoali_hier_layout *layout = &group->layout;
    *post = op->post;
    if (op->step > 0)
        return SHOALI_HIER_OVER;
    if (!shoali_post_is_message(post))
        return group->near ? SHOALI_HIER_NEAR : SHOALI_HIER_ALL;
    if (layout->host_of[op->post.peer] != layout->host || !group->near)
        return SHOALI_HIER_ALL;
    post->peer = layout->place_of[op->post.peer];
    return SHOALI_HIER_NEAR;
}

enum shoali_hier_where shoali_hier_next(const struct shoali_hier_group *group,
                                        struct shoali_hier_op *op, struct shoali_post *post)
{
    const struct shoali_hier_layout *layout = &group->layout;
    if (shoali_post_is_message(&op->post) || !layout->levels)
        return step_of_one(group, op, post);
    switch (op->post.kind) {
    case SHOALI_ALL_REDUCE:
        return (divides(group, &op->post) ? step_of_all_reduce : step_of_flat)(group, op, post);
    case SHOALI_REDUCE_SCATTER:
        return (divides(group, &op->post) ? step_of_reduce_scatter : step_of_flat)(group, op, post);
    case SHOALI_ALL_GATHER:
        return step_of_all_gather(group, op, post);
    case SHOALI_BROADCAST:
        return step_of_broadcast(group, op, post);
    case SHOALI_ALL_TO_ALL:
        return step_of_all_to_all(group, op, post);
    case SHOALI_ALL_TO_ALL_V:
        return step_of_flat(group, op, post);
    default:
        return step_of_barrier(group, op, post);
    }
}

/* ---- what crosses --------------------------------------------------------------------------- */

/* Of `ranks`, `away` are on other hosts. Each pair exchanges directly (p2p/p2p.h): of what is
 * summed or broadcast a rank has a slice, which it gets from or sends to everybody. */
static int64_t elements_away(const struct shoali_post *post, int32_t ranks, int32_t away, bool root)
{
    switch (post->kind) {
    case SHOALI_ALL_REDUCE:
        return 2 * post->count * away / ranks;
    case SHOALI_REDUCE_SCATTER:
    case SHOALI_ALL_GATHER:
    case SHOALI_ALL_TO_ALL:
        return post->count * away;
    case SHOALI_BROADCAST:
        return (root ? 2 : 1) * post->count * away / ranks;
    default:
        return 0;
    }
}

int64_t shoali_hier_crossing(const struct shoali_hier_group *group, enum shoali_hier_where where,
                             const struct shoali_post *post)
{
    const struct shoali_hier_layout *layout = &group->layout;
    int64_t elements = 0;
    if (where == SHOALI_HIER_LEADERS)
        elements =
            elements_away(post, layout->hosts, layout->hosts - 1, post->peer == layout->host);
    else if (where == SHOALI_HIER_ALL && post->kind == SHOALI_SEND)
        elements = post->count;
    else if (where == SHOALI_HIER_ALL && post->kind == SHOALI_ALL_TO_ALL_V)
        for (int32_t r = 0; r < layout->size; r++)
            elements += layout->host_of[r] == layout->host ? 0 : post->send_counts[r];
    else if (where == SHOALI_HIER_ALL)
        elements = elements_away(post, layout->size, layout->size - layout->local,
                                 post->peer == layout->rank);
    return elements * (int64_t)shoal_dtype_bytes(post->dtype);
}
