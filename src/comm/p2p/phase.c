/* What goes in streams, for data that does not fit beside the records. */
#include "comm/p2p/p2p.h"

#include <string.h>

struct shoali_p2p_range shoali_p2p_slice(const struct shoali_p2p_op *op, int32_t index,
                                         int32_t parts)
{
    int64_t begin, end;
    shoali_pool_slice(op->post.count, (int64_t)(64 / op->element_bytes), index, parts, &begin,
                      &end);
    return (struct shoali_p2p_range){begin, end - begin};
}

static struct shoali_p2p_range slice_of(const struct shoali_p2p_group *group,
                                        const struct shoali_p2p_op *op, int32_t rank)
{
    return shoali_p2p_slice(op, rank, group->size);
}

static int64_t sum_before(const int64_t *counts, int32_t end)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < end; i++)
        sum += counts[i];
    return sum;
}

static void put(const struct shoali_p2p_op *op, struct shoali_p2p_stream *stream, int64_t first,
                int64_t count)
{
    stream->from = (const unsigned char *)op->post.in + (size_t)first * op->element_bytes;
    stream->bytes = (size_t)count * op->element_bytes;
}

static void get(const struct shoali_p2p_op *op, struct shoali_p2p_stream *stream, int64_t first,
                int64_t count)
{
    stream->to = (unsigned char *)op->post.out + (size_t)first * op->element_bytes;
    stream->bytes = (size_t)count * op->element_bytes;
}

/* Sources of a sum. */
static void get_sources(const struct shoali_p2p_op *op, struct shoali_p2p_stream *stream,
                        int64_t count)
{
    stream->bytes = (size_t)count * op->element_bytes;
}

static void keep_own(const struct shoali_p2p_op *op, int64_t to, int64_t from, int64_t count)
{
    unsigned char *out = (unsigned char *)op->post.out + (size_t)to * op->element_bytes;
    const unsigned char *in = (const unsigned char *)op->post.in + (size_t)from * op->element_bytes;
    if (count > 0 && out != in)
        memcpy(out, in, (size_t)count * op->element_bytes);
}

static void begin_all_to_all_v(struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    const struct shoali_post *post = &op->post;
    for (int32_t r = 0; r < group->size; r++) {
        const int64_t sent = post->send_counts[r], wanted = post->recv_counts[r];
        const int64_t from = sum_before(post->send_counts, r);
        const int64_t to = sum_before(post->recv_counts, r);
        if (r == group->rank)
            keep_own(op, to, from, wanted);
        else if (!shoali_p2p_is_inline(group, op, (size_t)sent * op->element_bytes))
            put(op, &group->peer[r].out, from, sent);
        if (r != group->rank &&
            !shoali_p2p_is_inline(group, op, (size_t)wanted * op->element_bytes))
            get(op, &group->peer[r].in, to, wanted);
    }
}

static void begin_first(struct shoali_p2p_group *group, const struct shoali_p2p_op *op, int32_t r)
{
    const struct shoali_post *post = &op->post;
    struct shoali_p2p_stream *out = &group->peer[r].out, *in = &group->peer[r].in;
    const struct shoali_p2p_range own = slice_of(group, op, group->rank),
                                  theirs = slice_of(group, op, r);
    switch (post->kind) {
    case SHOALI_ALL_REDUCE:
        if (op->algorithm == SHOALI_P2P_GATHER) {
            put(op, out, 0, post->count);
            get_sources(op, in, post->count);
            return;
        }
        put(op, out, theirs.first, theirs.count);
        get_sources(op, in, own.count);
        return;
    case SHOALI_REDUCE_SCATTER:
        put(op, out, r * post->count, post->count);
        get_sources(op, in, post->count);
        return;
    case SHOALI_BROADCAST:
        if (group->rank == post->peer)
            put(op, out, theirs.first, theirs.count);
        else if (r == post->peer)
            get(op, in, own.first, own.count);
        return;
    case SHOALI_ALL_GATHER:
        put(op, out, 0, post->count);
        get(op, in, r * post->count, post->count);
        return;
    default: /* all_to_all */
        put(op, out, r * post->count, post->count);
        get(op, in, r * post->count, post->count);
    }
}

/* Slices that this rank has to all, and theirs; a root has everything. */
static void begin_second(struct shoali_p2p_group *group, const struct shoali_p2p_op *op, int32_t r)
{
    const struct shoali_post *post = &op->post;
    const bool broadcast = post->kind == SHOALI_BROADCAST;
    const struct shoali_p2p_range own = slice_of(group, op, group->rank),
                                  theirs = slice_of(group, op, r);
    const bool from_in = broadcast && group->rank == post->peer;
    if (!broadcast || r != post->peer) {
        struct shoali_p2p_stream *out = &group->peer[r].out;
        put(op, out, own.first, own.count);
        if (!from_in)
            out->from = (const unsigned char *)post->out + (size_t)own.first * op->element_bytes;
    }
    if (!from_in)
        get(op, &group->peer[r].in, theirs.first, theirs.count);
}

static bool has_second(const struct shoali_post *post)
{
    return post->kind == SHOALI_ALL_REDUCE || post->kind == SHOALI_BROADCAST;
}

/* Where steps work. */
static unsigned char *work_at(const struct shoali_p2p_op *op, int64_t first)
{
    unsigned char *work = op->post.kind == SHOALI_REDUCE_SCATTER ? op->room : op->post.out;
    return work + (size_t)first * op->element_bytes;
}

static void begin_steps(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    if (op->post.kind == SHOALI_ALL_REDUCE)
        keep_own(op, 0, 0, op->post.count);
    if (op->post.kind == SHOALI_ALL_GATHER)
        keep_own(op, group->rank * op->post.count, 0, op->post.count);
    if (op->post.kind == SHOALI_REDUCE_SCATTER)
        memcpy(op->room, op->post.in, (size_t)(group->size * op->post.count) * op->element_bytes);
}

/* Streams of a step. */
static bool begin_step(struct shoali_p2p_group *group, struct shoali_p2p_op *op, int32_t number)
{
    const bool root = op->post.kind == SHOALI_BROADCAST && group->rank == op->post.peer;
    struct shoali_p2p_step *step = &op->step;
    if (number == 0)
        begin_steps(group, op);
    if (!shoali_p2p_step(group, op, number, step)) {
        if (op->post.kind == SHOALI_REDUCE_SCATTER)
            memcpy(op->post.out, work_at(op, group->rank * op->post.count),
                   (size_t)op->post.count * op->element_bytes);
        return false;
    }
    if (step->to >= 0) {
        struct shoali_p2p_stream *out = &group->peer[step->to].out;
        put(op, out, step->send.first, step->send.count);
        if (!root)
            out->from = work_at(op, step->send.first);
    }
    if (step->from >= 0) {
        struct shoali_p2p_stream *in = &group->peer[step->from].in;
        get_sources(op, in, step->receive.count);
        in->to = step->sums ? NULL : work_at(op, step->receive.first);
    }
    return true;
}

bool shoali_p2p_has_steps(const struct shoali_p2p_op *op)
{
    return op->algorithm != SHOALI_P2P_DIRECT && op->algorithm != SHOALI_P2P_GATHER;
}

bool shoali_p2p_phase_begin(struct shoali_p2p_group *group, struct shoali_p2p_op *op, int32_t phase)
{
    const struct shoali_post *post = &op->post;
    for (int32_t r = 0; r < group->size; r++)
        group->peer[r].out = group->peer[r].in = (struct shoali_p2p_stream){0};
    if (shoali_p2p_has_steps(op))
        return begin_step(group, op, phase);
    if (phase > 1 || (phase == 1 && (!has_second(post) || op->algorithm == SHOALI_P2P_GATHER)))
        return false;
    if (post->kind == SHOALI_ALL_TO_ALL_V) {
        begin_all_to_all_v(group, op);
        return true;
    }
    if (phase == 0 && post->kind == SHOALI_ALL_GATHER)
        keep_own(op, group->rank * post->count, 0, post->count);
    if (phase == 0 && post->kind == SHOALI_ALL_TO_ALL)
        keep_own(op, group->rank * post->count, group->rank * post->count, post->count);
    for (int32_t r = 0; r < group->size; r++)
        if (r != group->rank)
            (phase == 0 ? begin_first : begin_second)(group, op, r);
    return true;
}

/* ---- sums ----------------------------------------------------------------------------------- */

void shoali_p2p_reduce(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                       struct shoali_reduce_sources_args *args, int32_t sources, int64_t count)
{
    if (count == 0)
        return;
    args->sources = sources;
    args->destinations = 1;
    args->count = count;
    args->op = (enum shoali_reduce_op)op->post.op;
    args->dtype = op->post.dtype;
    args->nontemporal = 0;
    shoali_host_reduce(&group->world->ops, args);
}

/* One piece of every rank, when all of them are here. */
static bool reduce_pieces(struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    struct shoali_reduce_sources_args args;
    const struct shoali_post *post = &op->post;
    const struct shoali_p2p_stream *any = &group->peer[group->rank == 0 ? 1 : 0].in;
    const bool gathers = op->algorithm == SHOALI_P2P_GATHER;
    int64_t own = post->kind == SHOALI_ALL_REDUCE ? slice_of(group, op, group->rank).first
                                                  : group->rank * post->count;
    if (gathers)
        own = 0;
    const size_t moved = any->moved, bytes = any->slot[any->tail % SHOALI_P2P_WINDOW].bytes;
    const size_t in_offset = (size_t)own * op->element_bytes + moved;
    for (int32_t r = 0; r < group->size; r++) {
        /* In place: what is not sent yet must stay. */
        if (gathers && r != group->rank && group->peer[r].out.begun < moved + bytes)
            return false;
        args.x[r] = r == group->rank ? (const unsigned char *)post->in + in_offset
                                     : shoali_p2p_stream_first(&group->peer[r].in);
        if (!args.x[r])
            return false;
    }
    args.y[0] = (unsigned char *)post->out + (post->kind == SHOALI_ALL_REDUCE ? in_offset : moved);
    shoali_p2p_reduce(group, op, &args, group->size, (int64_t)(bytes / op->element_bytes));
    for (int32_t r = 0; r < group->size; r++)
        if (r != group->rank)
            shoali_p2p_stream_drop_first(group->world, &group->peer[r].in);
    return true;
}

/* The first piece of a step is added to what is there. */
static bool add_piece(struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    const struct shoali_p2p_step *step = &op->step;
    struct shoali_p2p_stream *in = &group->peer[step->from].in;
    const unsigned char *piece = shoali_p2p_stream_first(in);
    struct shoali_reduce_sources_args args;
    if (!piece)
        return false;
    const size_t bytes = in->slot[in->tail % SHOALI_P2P_WINDOW].bytes;
    if (step->to == step->from && step->send.first == step->receive.first &&
        group->peer[step->to].out.begun < in->moved + bytes)
        return false; /* the same elements have to be sent first */
    args.x[0] = args.y[0] = work_at(op, step->receive.first) + in->moved;
    args.x[1] = piece;
    shoali_p2p_reduce(group, op, &args, 2, (int64_t)(bytes / op->element_bytes));
    shoali_p2p_stream_drop_first(group->world, in);
    return true;
}

shoal_status shoali_p2p_phase_launch(struct shoali_p2p_group *group)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 1; i < group->size; i++) {
        const int32_t to = (group->rank + i) % group->size;
        const int32_t from = (group->rank + group->size - i) % group->size;
        SHOAL_TRY(status,
                  shoali_p2p_stream_launch(group, from, group->tag, false, &group->peer[from].in),
                  done);
        SHOAL_TRY(status,
                  shoali_p2p_stream_launch(group, to, group->tag, true, &group->peer[to].out),
                  done);
    }
done:
    return status;
}

static shoal_status move_streams(struct shoali_p2p_group *group, bool *over)
{
    *over = true;
    for (int32_t i = 1; i < group->size; i++) { /* not all at the same rank at once */
        const int32_t to = (group->rank + i) % group->size;
        const int32_t from = (group->rank + group->size - i) % group->size;
        const shoal_status received =
            shoali_p2p_stream_receive(group, from, group->tag, &group->peer[from].in);
        if (received < 0)
            return received;
        const shoal_status sent =
            shoali_p2p_stream_send(group, to, group->tag, &group->peer[to].out);
        if (sent < 0)
            return sent;
        *over &= received == SHOAL_OK && sent == SHOAL_OK;
    }
    return SHOAL_OK;
}

/* All pieces that can be; false: none could. */
static bool sum_up(struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    bool any = false;
    if (shoali_p2p_has_steps(op) && op->step.sums && op->step.from >= 0)
        while (add_piece(group, op))
            any = true;
    else if (!shoali_p2p_has_steps(op) && op->phase == 0 &&
             (op->post.kind == SHOALI_ALL_REDUCE || op->post.kind == SHOALI_REDUCE_SCATTER))
        while (reduce_pieces(group, op))
            any = true;
    return any;
}

/* A sum makes room for pieces, or was the last thing to do: nobody is waited for before that is
 * seen. */
shoal_status shoali_p2p_phase_advance(struct shoali_p2p_group *group,
                                      const struct shoali_p2p_op *op)
{
    shoal_status status = SHOAL_OK;
    bool over = false;
    do
        SHOAL_TRY(status, move_streams(group, &over), done);
    while (!over && sum_up(group, op));
    return over ? SHOAL_OK : SHOAL_IN_PROGRESS;
done:
    return status;
}
