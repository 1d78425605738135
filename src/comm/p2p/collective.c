/* One collective: envelopes and the first pieces, agreement, then streams. */
#include "comm/p2p/p2p.h"

#include <string.h>

/* ---- what goes beside the record ------------------------------------------------------------ */

static size_t counts_bytes(const struct shoali_p2p_group *group, const struct shoali_post *post)
{
    return post->kind == SHOALI_ALL_TO_ALL_V ? 2 * sizeof(int64_t) * (size_t)group->size : 0;
}

bool shoali_p2p_is_inline(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                          size_t bytes)
{
    return group->size == 1 || bytes + counts_bytes(group, &op->post) <= SHOALI_P2P_INLINE_BYTES;
}

static int64_t sum_before(const int64_t *counts, int32_t end)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < end; i++)
        sum += counts[i];
    return sum;
}

/* Where in `in` the data for rank `to` begins. */
static const unsigned char *data_for(const struct shoali_p2p_op *op, int32_t to)
{
    const struct shoali_post *post = &op->post;
    int64_t first = 0;
    if (post->kind == SHOALI_REDUCE_SCATTER || post->kind == SHOALI_ALL_TO_ALL)
        first = to * post->count;
    else if (post->kind == SHOALI_ALL_TO_ALL_V)
        first = sum_before(post->send_counts, to);
    return (const unsigned char *)post->in + (size_t)first * op->element_bytes;
}

/* Bytes that rank `from` has for rank `to`; one of them is this rank. */
static size_t data_bytes(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                         int32_t from, int32_t to)
{
    const struct shoali_post *post = &op->post;
    switch (post->kind) {
    case SHOALI_BROADCAST:
        return from == post->peer ? (size_t)post->count * op->element_bytes : 0;
    case SHOALI_ALL_REDUCE:
    case SHOALI_REDUCE_SCATTER:
    case SHOALI_ALL_GATHER:
    case SHOALI_ALL_TO_ALL:
        return (size_t)post->count * op->element_bytes;
    case SHOALI_ALL_TO_ALL_V:
        return (size_t)(from == group->rank ? post->send_counts[to] : post->recv_counts[from]) *
               op->element_bytes;
    default:
        return 0;
    }
}

static size_t inline_bytes(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                           int32_t from, int32_t to)
{
    const size_t bytes = data_bytes(group, op, from, to);
    return shoali_p2p_is_inline(group, op, bytes) ? bytes : 0;
}

static void fill_envelope(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                          int32_t to, struct shoali_p2p_envelope *envelope)
{
    const struct shoali_post *post = &op->post;
    const size_t counts = counts_bytes(group, post),
                 bytes = inline_bytes(group, op, group->rank, to);
    envelope->record = op->record;
    envelope->bytes = (uint32_t)(counts + bytes);
    if (counts > 0) {
        memcpy(envelope->data, post->send_counts, counts / 2);
        memcpy(envelope->data + counts / 2, post->recv_counts, counts / 2);
    }
    if (bytes > 0)
        memcpy(envelope->data + counts, data_for(op, to), bytes);
}

/* Is there more than what came beside the records? For some ranks perhaps in an all_to_all_v. */
static bool needs_streams(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    const struct shoali_post *post = &op->post;
    for (int32_t r = 0; r < group->size && post->kind == SHOALI_ALL_TO_ALL_V; r++)
        if (!shoali_p2p_is_inline(group, op, data_bytes(group, op, group->rank, r)) ||
            !shoali_p2p_is_inline(group, op, data_bytes(group, op, r, group->rank)))
            return true;
    if (post->kind == SHOALI_BROADCAST)
        return !shoali_p2p_is_inline(group, op, data_bytes(group, op, post->peer, group->rank));
    return post->kind != SHOALI_ALL_TO_ALL_V &&
           !shoali_p2p_is_inline(group, op, data_bytes(group, op, group->rank, group->rank));
}

static shoal_status make_room(const struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    const size_t bytes = (size_t)(group->size * op->post.count) * op->element_bytes;
    if (op->post.kind != SHOALI_REDUCE_SCATTER || !shoali_p2p_has_steps(op))
        return SHOAL_OK;
    op->room = shoali_malloc(bytes, "a reduce_scatter's sums");
    return op->room ? SHOAL_OK : SHOAL_ENOMEM;
}

static shoal_status begin(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    struct shoali_p2p_world *world = group->world;
    shoal_status status = SHOAL_OK;
    op->begun = true;
    op->phase = INT32_MAX;
    for (int32_t r = 0; r < group->size; r++)
        group->peer[r].here = group->peer[r].sending = false;
    for (int32_t i = 1; i < group->size; i++) {
        const int32_t r = (group->rank + i) % group->size;
        struct shoali_p2p_peer *peer = &group->peer[r];
        SHOAL_TRY(status,
                  shoali_p2p_receive(world, peer->got, sizeof *peer->got, group->world_rank[r],
                                     group->tag, &peer->receive_request),
                  done);
        fill_envelope(group, op, r, peer->sent);
        SHOAL_TRY(status,
                  shoali_p2p_send(world, peer->sent,
                                  offsetof(struct shoali_p2p_envelope, data) + peer->sent->bytes,
                                  group->world_rank[r], group->tag, &peer->send_request),
                  done);
        peer->sending = true;
    }
    if (needs_streams(group, op)) {
        op->algorithm = shoali_p2p_choose(group, op);
        SHOAL_TRY(status, make_room(group, op), done);
        op->phase = shoali_p2p_phase_begin(group, op, 0) ? 0 : INT32_MAX;
        SHOAL_TRY(status, shoali_p2p_phase_launch(group), done);
    }
done:
    return status;
}

/* ---- envelopes that come -------------------------------------------------------------------- */

static shoal_status look(struct shoali_p2p_group *group, bool *all_here, bool *all_sent)
{
    shoal_status status = SHOAL_OK;
    *all_here = *all_sent = true;
    for (int32_t r = 0; r < group->size; r++) {
        struct shoali_p2p_peer *peer = &group->peer[r];
        bool done = false;
        size_t bytes = 0;
        if (r == group->rank)
            continue;
        if (peer->sending) {
            SHOAL_TRY(status, shoali_p2p_test(group->world, &peer->send_request, &done, NULL),
                      done);
            peer->sending = !done;
        }
        if (!peer->here) {
            SHOAL_TRY(status,
                      shoali_p2p_test(group->world, &peer->receive_request, &peer->here, &bytes),
                      done);
            const size_t head = offsetof(struct shoali_p2p_envelope, data);
            if (peer->here && (bytes < head || bytes - head != peer->got->bytes)) {
                status = SHOAL_FAIL(SHOAL_EMISMATCH,
                                    "rank %d sent %zu bytes where the record of a collective was "
                                    "expected: ranks run different versions of Shoal",
                                    (int)group->world_rank[r], bytes);
                goto done;
            }
            if (peer->here)
                peer->got->record.here[SHOALI_HERE_BYTES - 1] = '\0';
        }
        *all_here &= peer->here;
        *all_sent &= !peer->sending;
    }
done:
    return status;
}

static shoal_status check_sizes(const struct shoali_p2p_group *group,
                                const struct shoali_p2p_op *op)
{
    for (int32_t r = 0; r < group->size; r++) {
        const size_t bytes =
            counts_bytes(group, &op->post) + inline_bytes(group, op, r, group->rank);
        if (r != group->rank && group->peer[r].got->bytes != bytes)
            return SHOAL_FAIL(SHOAL_EMISMATCH,
                              "rank %d sent %zu bytes for %s and %zu were expected: all ranks of a "
                              "group must make the same calls with the same counts and types",
                              (int)group->world_rank[r], (size_t)group->peer[r].got->bytes,
                              shoali_collective_name(op->post.kind), bytes);
    }
    return SHOAL_OK;
}

static shoal_status agree(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    struct shoali_seat seats[SHOALI_P2P_MAX_RANKS];
    const bool sized = op->post.kind == SHOALI_ALL_TO_ALL_V;
    for (int32_t r = 0; r < group->size; r++) {
        const struct shoali_p2p_envelope *got = group->peer[r].got;
        const int64_t *counts = (const int64_t *)(const void *)got->data;
        seats[r] = (struct shoali_seat){.world_rank = group->world_rank[r],
                                        .record = &got->record,
                                        .send_counts = sized ? counts : NULL,
                                        .recv_counts = sized ? counts + group->size : NULL};
    }
    seats[group->rank].record = &op->record;
    seats[group->rank].send_counts = op->post.send_counts;
    seats[group->rank].recv_counts = op->post.recv_counts;
    const shoal_status status = op->post.agree ? op->post.agree(seats, group->size) : SHOAL_OK;
    return status == SHOAL_OK ? check_sizes(group, op) : status;
}

static void take_sum(struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    struct shoali_reduce_sources_args args;
    for (int32_t r = 0; r < group->size; r++)
        args.x[r] = r == group->rank ? (const void *)data_for(op, r) : group->peer[r].got->data;
    args.y[0] = op->post.out;
    shoali_p2p_reduce(group, op, &args, group->size, op->post.count);
}

/* Where in `out` the data of rank `from` begins. */
static unsigned char *place_of(const struct shoali_p2p_op *op, int32_t from)
{
    const struct shoali_post *post = &op->post;
    int64_t first = 0;
    if (post->kind == SHOALI_ALL_TO_ALL_V)
        first = sum_before(post->recv_counts, from);
    else if (post->kind != SHOALI_BROADCAST)
        first = from * post->count;
    return (unsigned char *)post->out + (size_t)first * op->element_bytes;
}

/* What came beside the records. */
static void take(struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    const struct shoali_post *post = &op->post;
    if (post->kind == SHOALI_ALL_REDUCE || post->kind == SHOALI_REDUCE_SCATTER) {
        if (shoali_p2p_is_inline(group, op, (size_t)post->count * op->element_bytes))
            take_sum(group, op);
        return;
    }
    for (int32_t r = 0; r < group->size; r++) {
        const size_t bytes = inline_bytes(group, op, r, group->rank);
        const unsigned char *from = r == group->rank
                                        ? data_for(op, r)
                                        : group->peer[r].got->data + counts_bytes(group, post);
        if (bytes > 0 && place_of(op, r) != from)
            memmove(place_of(op, r), from, bytes);
    }
}

shoal_status shoali_p2p_collective_advance(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    shoal_status status = SHOAL_OK;
    bool all_here, all_sent;
    if (!op->begun)
        SHOAL_TRY(status, begin(group, op), done);
    SHOAL_TRY(status, look(group, &all_here, &all_sent), done);
    if (!all_here)
        return SHOAL_IN_PROGRESS;
    if (!op->agreed) {
        SHOAL_TRY(status, agree(group, op), done);
        op->agreed = true;
        take(group, op);
    }
    while (op->phase != INT32_MAX) {
        status = shoali_p2p_phase_advance(group, op);
        if (status != SHOAL_OK)
            goto done;
        op->phase = shoali_p2p_phase_begin(group, op, op->phase + 1) ? op->phase + 1 : INT32_MAX;
    }
    if (!all_sent)
        SHOAL_TRY(status, look(group, &all_here, &all_sent), done);
    if (!all_sent)
        return SHOAL_IN_PROGRESS;
    for (int32_t r = 0; r < group->size; r++) {
        group->peer[r].received = true;
        group->peer[r].last = group->peer[r].got->record;
    }
done:
    return status;
}
