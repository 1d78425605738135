/* A collective of a large group: the gate, then parts of the data. */
#include "comm/p2p/large.h"

#include <stdlib.h>
#include <string.h>

enum {
    GATHER_BYTES = 4 << 20, /* of all blocks: to here the tree beats the ring */
    DOUBLING_BYTES = 4096,  /* of integers */
    CHUNK_BYTES = 8 << 20   /* of all blocks of a reduce_scatter at once */
};

struct shoali_p2p_large *shoali_p2p_large_create(int32_t rank, int32_t size)
{
    struct shoali_p2p_large *large = shoali_calloc(1, sizeof *large, "a large group");
    if (!large)
        return NULL;
    large->parent.rank = rank == 0 ? -1 : rank & (rank - 1);
    for (int64_t bit = 1; rank + bit < size && !(rank & bit); bit <<= 1)
        large->child[large->children++].rank = rank + (int32_t)bit;
    return large;
}

void shoali_p2p_large_destroy(struct shoali_p2p_large *large)
{
    if (large)
        shoali_free(large->room);
    shoali_free(large);
}

static shoal_status make_room(struct shoali_p2p_large *large, size_t bytes)
{
    if (large->room_bytes >= bytes)
        return SHOAL_OK;
    shoali_free(large->room);
    large->room_bytes = 0;
    large->room = shoali_malloc(bytes, "a large group's collective");
    if (!large->room)
        return SHOAL_ENOMEM;
    large->room_bytes = bytes;
    return SHOAL_OK;
}

/* ---- the gate ------------------------------------------------------------------------------- */

static shoal_status say(struct shoali_p2p_group *group, int32_t rank,
                        const struct shoali_p2p_note *note, struct shoali_p2p_request *request)
{
    return shoali_p2p_send(group->world, note, sizeof *note, group->world_rank[rank], group->tag,
                           request);
}

static shoal_status listen_to(struct shoali_p2p_group *group, struct shoali_p2p_neighbour *from)
{
    from->listening = true;
    return shoali_p2p_receive(group->world, &from->got, sizeof from->got,
                              group->world_rank[from->rank], group->tag, &from->receive);
}

static shoal_status begin(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    struct shoali_p2p_large *large = group->large;
    shoal_status status = SHOAL_OK;
    op->begun = true;
    op->phase = INT32_MAX;
    large->part = -1;
    large->in_step = large->first_sending = false;
    large->sent[0] = (struct shoali_p2p_note){.record = op->record};
    large->sent[1] = (struct shoali_p2p_note){.record = op->record, .whole = 1};
    large->parent.here = large->parent.whole = large->parent.sending = false;
    for (int32_t i = 0; i < large->children; i++) {
        struct shoali_p2p_neighbour *child = &large->child[i];
        child->here = child->whole = child->sending = false;
        SHOAL_TRY(status, listen_to(group, child), done);
    }
    if (large->parent.rank < 0)
        goto done;
    SHOAL_TRY(status, listen_to(group, &large->parent), done);
    if (large->children > 0) {
        SHOAL_TRY(status, say(group, large->parent.rank, &large->sent[0], &large->first_word),
                  done);
        large->first_sending = true;
    }
done:
    return status;
}

static shoal_status agree(const struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                          const struct shoali_p2p_neighbour *other)
{
    const struct shoali_seat seats[2] = {
        {.world_rank = group->world_rank[other->rank], .record = &other->got.record},
        {.world_rank = group->world_rank[group->rank], .record = &op->record}};
    const bool swapped = other->rank > group->rank; /* the lower one is named first */
    return op->post.agree
               ? op->post.agree(swapped ? (struct shoali_seat[]){seats[1], seats[0]} : seats, 2)
               : SHOAL_OK;
}

/* What a neighbour has said meanwhile. */
static shoal_status receive_from(struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                                 struct shoali_p2p_neighbour *from)
{
    shoal_status status = SHOAL_OK;
    while (from->listening) {
        bool done = false;
        size_t bytes = 0;
        SHOAL_TRY(status, shoali_p2p_test(group->world, &from->receive, &done, &bytes), done);
        if (!done)
            return SHOAL_OK;
        from->listening = false;
        if (bytes != sizeof from->got) {
            status = SHOAL_FAIL(SHOAL_EMISMATCH,
                                "rank %d sent %zu bytes where the record of a collective was "
                                "expected: all ranks of a group must make the same calls in the "
                                "same order",
                                (int)group->world_rank[from->rank], bytes);
            goto done;
        }
        from->got.record.here[SHOALI_HERE_BYTES - 1] = '\0';
        from->here = true;
        from->whole = from->got.whole != 0;
        SHOAL_TRY(status, agree(group, op, from), done);
        if (!from->whole)
            SHOAL_TRY(status, listen_to(group, from), done);
    }
done:
    return status;
}

static bool all_are_whole(const struct shoali_p2p_large *large)
{
    for (int32_t i = 0; i < large->children; i++)
        if (!large->child[i].whole)
            return false;
    return true;
}

/* SHOAL_OK when all ranks have come and this one has told those below it. */
static shoal_status pass_gate(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    struct shoali_p2p_large *large = group->large;
    struct shoali_p2p_neighbour *parent = &large->parent;
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < large->children; i++)
        SHOAL_TRY(status, receive_from(group, op, &large->child[i]), done);
    if (!all_are_whole(large))
        return SHOAL_IN_PROGRESS;
    if (parent->rank >= 0 && !parent->sending) {
        SHOAL_TRY(status, say(group, parent->rank, &large->sent[1], &parent->send), done);
        parent->sending = true;
    }
    if (parent->rank >= 0)
        SHOAL_TRY(status, receive_from(group, op, parent), done);
    if (parent->rank >= 0 && !parent->whole)
        return SHOAL_IN_PROGRESS;
    for (int32_t i = large->children - 1; i >= 0; i--) { /* who has most below first */
        SHOAL_TRY(status, say(group, large->child[i].rank, &large->sent[1], &large->child[i].send),
                  done);
        large->child[i].sending = true;
    }
    op->agreed = true;
done:
    return status;
}

static shoal_status finish_send(struct shoali_p2p_group *group, bool *sending,
                                struct shoali_p2p_request *request, bool *all)
{
    bool done = !*sending;
    shoal_status status = SHOAL_OK;
    if (*sending)
        status = shoali_p2p_test(group->world, request, &done, NULL);
    *sending = !done;
    *all &= done;
    return status;
}

/* The notes of this rank have left. */
static shoal_status finish_gate(struct shoali_p2p_group *group)
{
    struct shoali_p2p_large *large = group->large;
    bool all = true;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, finish_send(group, &large->first_sending, &large->first_word, &all), done);
    SHOAL_TRY(status, finish_send(group, &large->parent.sending, &large->parent.send, &all), done);
    for (int32_t i = 0; i < large->children; i++)
        SHOAL_TRY(status, finish_send(group, &large->child[i].sending, &large->child[i].send, &all),
                  done);
    if (!all)
        return SHOAL_IN_PROGRESS;
    for (int32_t i = -1; i < large->children; i++) {
        struct shoali_p2p_neighbour *other = i < 0 ? &large->parent : &large->child[i];
        other->received = other->received || other->here;
        other->last = other->got.record;
    }
done:
    return status;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static bool is_integer(shoal_dtype dtype)
{
    return dtype == SHOAL_I64 || dtype == SHOAL_I32 || dtype == SHOAL_U8;
}

static size_t bytes_of(const struct shoali_p2p_op *op, int64_t count)
{
    return (size_t)count * op->element_bytes;
}

static void keep_own(const struct shoali_p2p_op *op, int64_t to, int64_t from, int64_t count)
{
    unsigned char *out = (unsigned char *)op->post.out + bytes_of(op, to);
    const unsigned char *in = (const unsigned char *)op->post.in + bytes_of(op, from);
    if (count > 0 && out != in)
        memcpy(out, in, bytes_of(op, count));
}

/* A sum over `memory`, which holds this rank's part and will hold all. */
static void begin_sum(struct shoali_p2p_op *inner, void *memory, int64_t count)
{
    inner->post.kind = SHOALI_ALL_REDUCE;
    inner->post.in = inner->post.out = memory;
    inner->post.count = count;
    if (inner->post.op == SHOAL_AVG || inner->post.op == SHOAL_SUM_TREE)
        inner->post.op = SHOAL_SUM;
    inner->algorithm = is_integer(inner->post.dtype) && bytes_of(inner, count) <= DOUBLING_BYTES
                           ? SHOALI_P2P_DOUBLING
                           : SHOALI_P2P_HALVING;
}

/* Elements of a block in part `part` of a reduce_scatter. */
static struct shoali_p2p_range chunk_of(const struct shoali_p2p_group *group,
                                        const struct shoali_p2p_op *op, int32_t part)
{
    const int64_t fit = CHUNK_BYTES / ((int64_t)op->element_bytes * group->size);
    const int64_t most = fit > 0 ? fit : 1, first = part * most, left = op->post.count - first;
    return (struct shoali_p2p_range){first, left < most ? left : most};
}

static shoal_status begin_chunk(struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                                struct shoali_p2p_range chunk)
{
    struct shoali_p2p_large *large = group->large;
    const size_t bytes = bytes_of(op, chunk.count);
    const shoal_status status = make_room(large, bytes * (size_t)group->size);
    for (int32_t r = 0; r < group->size && status == SHOAL_OK; r++)
        memcpy(large->room + (size_t)r * bytes,
               (const unsigned char *)op->post.in + bytes_of(op, r * op->post.count + chunk.first),
               bytes);
    begin_sum(&large->inner, large->room, chunk.count * group->size);
    return status;
}

/* Where the blocks of an all_to_all_v begin: [size + 1] of `in`, then of `out`. */
static shoal_status place_blocks(struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    const size_t places = (size_t)group->size + 1;
    const shoal_status status = make_room(group->large, 2 * places * sizeof(int64_t));
    int64_t *in = (int64_t *)(void *)group->large->room, *out = in + places;
    if (status < 0)
        return status;
    in[0] = out[0] = 0;
    for (int32_t r = 0; r < group->size; r++) {
        in[r + 1] = in[r] + op->post.send_counts[r];
        out[r + 1] = out[r] + op->post.recv_counts[r];
    }
    keep_own(op, out[group->rank], in[group->rank], op->post.recv_counts[group->rank]);
    return SHOAL_OK;
}

/* Readies part `large->part`; *more false: there are no more. */
static shoal_status begin_part(struct shoali_p2p_group *group, const struct shoali_p2p_op *op,
                               bool *more)
{
    struct shoali_p2p_large *large = group->large;
    const struct shoali_post *post = &op->post;
    large->inner = *op;
    large->number = 0;
    *more = large->part == 0 && post->count > 0;
    switch (post->kind) {
    case SHOALI_BROADCAST:
        large->inner.algorithm = SHOALI_P2P_TREE;
        return SHOAL_OK;
    case SHOALI_ALL_REDUCE:
        if (*more)
            keep_own(op, 0, 0, post->count);
        begin_sum(&large->inner, post->out, post->count);
        return SHOAL_OK;
    case SHOALI_REDUCE_SCATTER:
        *more = chunk_of(group, op, large->part).count > 0;
        return *more ? begin_chunk(group, op, chunk_of(group, op, large->part)) : SHOAL_OK;
    case SHOALI_ALL_GATHER:
        if (*more)
            keep_own(op, group->rank * post->count, 0, post->count);
        large->inner.algorithm = bytes_of(op, post->count * group->size) > GATHER_BYTES ||
                                         group->world->forced == SHOALI_P2P_RING
                                     ? SHOALI_P2P_RING
                                     : SHOALI_P2P_TREE;
        return SHOAL_OK;
    case SHOALI_ALL_TO_ALL:
        if (*more)
            keep_own(op, group->rank * post->count, group->rank * post->count, post->count);
        return SHOAL_OK;
    case SHOALI_ALL_TO_ALL_V:
        *more = large->part == 0;
        return *more ? place_blocks(group, op) : SHOAL_OK;
    default:
        *more = false;
        return SHOAL_OK;
    }
}

static void divide(const struct shoali_p2p_op *op, int64_t count, int32_t ranks)
{
    const float factor = 1.0f / (float)ranks;
    for (int64_t i = 0; i < count; i++) {
        if (op->post.dtype == SHOAL_F32) {
            ((float *)op->post.out)[i] *= factor;
            continue;
        }
        uint16_t *x = (uint16_t *)op->post.out + i;
        *x = op->post.dtype == SHOAL_BF16 ? shoali_f32_to_bf16(shoali_bf16_to_f32(*x) * factor)
                                          : shoali_f32_to_f16(shoali_f16_to_f32(*x) * factor);
    }
}

static void end_part(struct shoali_p2p_group *group, const struct shoali_p2p_op *op)
{
    struct shoali_p2p_large *large = group->large;
    if (op->post.kind == SHOALI_REDUCE_SCATTER) {
        const struct shoali_p2p_range chunk = chunk_of(group, op, large->part);
        memcpy((unsigned char *)op->post.out + bytes_of(op, chunk.first),
               large->room + bytes_of(op, group->rank * chunk.count), bytes_of(op, chunk.count));
    }
    const bool last =
        op->post.kind == SHOALI_ALL_REDUCE ||
        (op->post.kind == SHOALI_REDUCE_SCATTER && chunk_of(group, op, large->part + 1).count <= 0);
    if (last && op->post.op == SHOAL_AVG)
        divide(op, op->post.count, group->size);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int32_t bits_of(int32_t size)
{
    int32_t bits = 0;
    while ((int64_t)1 << bits < size)
        bits++;
    return bits;
}

/* Blocks of a subtree go to its root's parent; then all blocks come back, as a broadcast's. */
static bool gather_step(const struct shoali_p2p_group *group, struct shoali_p2p_op *inner,
                        int32_t number, struct shoali_p2p_step *step)
{
    const int32_t bits = bits_of(group->size), rank = group->rank;
    const int64_t count = inner->post.count;
    if (number >= bits) {
        struct shoali_p2p_op whole = *inner;
        whole.post.kind = SHOALI_BROADCAST;
        whole.post.peer = 0;
        whole.post.count = count * group->size;
        return shoali_p2p_step(group, &whole, number - bits, step);
    }
    const int64_t bit = (int64_t)1 << number, left = group->size - rank;
    *step = (struct shoali_p2p_step){.to = -1, .from = -1};
    if (rank & (bit - 1))
        return true;
    if (rank & bit) {
        step->to = rank - (int32_t)bit;
        step->send = (struct shoali_p2p_range){rank * count, (left < bit ? left : bit) * count};
    } else if (bit < left) {
        step->from = rank + (int32_t)bit;
        step->receive = (struct shoali_p2p_range){step->from * count,
                                                  (left - bit < bit ? left - bit : bit) * count};
    }
    return true;
}

/* With ever more distant partners. */
static bool pair_step(const struct shoali_p2p_group *group, const struct shoali_p2p_op *inner,
                      int32_t number, struct shoali_p2p_step *step)
{
    const int32_t size = group->size, distance = number + 1;
    const int64_t count = inner->post.count;
    const int64_t *in = (const int64_t *)(const void *)group->large->room, *out = in + size + 1;
    if (distance >= size)
        return false;
    *step = (struct shoali_p2p_step){.to = (group->rank + distance) % size,
                                     .from = (group->rank + size - distance) % size};
    step->send = (struct shoali_p2p_range){step->to * count, count};
    step->receive = (struct shoali_p2p_range){step->from * count, count};
    if (inner->post.kind == SHOALI_ALL_TO_ALL_V) {
        step->send = (struct shoali_p2p_range){in[step->to], inner->post.send_counts[step->to]};
        step->receive =
            (struct shoali_p2p_range){out[step->from], inner->post.recv_counts[step->from]};
    }
    return true;
}

static bool is_paired(const struct shoali_p2p_op *inner)
{
    return inner->post.kind == SHOALI_ALL_TO_ALL || inner->post.kind == SHOALI_ALL_TO_ALL_V;
}

static bool begin_step(struct shoali_p2p_group *group)
{
    struct shoali_p2p_large *large = group->large;
    struct shoali_p2p_op *inner = &large->inner;
    struct shoali_p2p_step *step = &inner->step;
    const struct shoali_post *post = &inner->post;
    const bool gathers = post->kind == SHOALI_ALL_GATHER && inner->algorithm == SHOALI_P2P_TREE;
    const bool found = is_paired(inner) ? pair_step(group, inner, large->number, step)
                       : gathers        ? gather_step(group, inner, large->number, step)
                                        : shoali_p2p_step(group, inner, large->number, step);
    if (!found)
        return false;
    const bool from_in =
        is_paired(inner) || (post->kind == SHOALI_BROADCAST && group->rank == post->peer);
    large->out = large->in = (struct shoali_p2p_stream){0};
    if (step->to >= 0) {
        large->out.from = (const unsigned char *)(from_in ? post->in : post->out) +
                          bytes_of(inner, step->send.first);
        large->out.bytes = bytes_of(inner, step->send.count);
    }
    if (step->from >= 0) {
        large->in.bytes = bytes_of(inner, step->receive.count);
        large->in.to =
            step->sums ? NULL : (unsigned char *)post->out + bytes_of(inner, step->receive.first);
    }
    return true;
}

/* The first piece of a step that sums is added to what is there. */
static bool add_piece(struct shoali_p2p_group *group)
{
    struct shoali_p2p_large *large = group->large;
    const struct shoali_p2p_op *inner = &large->inner;
    const struct shoali_p2p_step *step = &inner->step;
    const unsigned char *piece = shoali_p2p_stream_first(&large->in);
    struct shoali_reduce_sources_args args;
    if (!piece)
        return false;
    const size_t bytes = large->in.slot[large->in.tail % SHOALI_P2P_WINDOW].bytes;
    if (step->to == step->from && step->send.first == step->receive.first &&
        large->out.begun < large->in.moved + bytes)
        return false; /* the same elements have to be sent first */
    args.x[0] = args.y[0] =
        (unsigned char *)inner->post.out + bytes_of(inner, step->receive.first) + large->in.moved;
    args.x[1] = piece;
    shoali_p2p_reduce(group, inner, &args, 2, (int64_t)(bytes / inner->element_bytes));
    shoali_p2p_stream_drop_first(group->world, &large->in);
    return true;
}

static shoal_status advance_step(struct shoali_p2p_group *group)
{
    struct shoali_p2p_large *large = group->large;
    const struct shoali_p2p_step *step = &large->inner.step;
    shoal_status received = SHOAL_OK, sent = SHOAL_OK;
    if (step->from >= 0)
        received = shoali_p2p_stream_receive(group, step->from, group->tag, &large->in);
    if (received >= 0 && step->to >= 0)
        sent = shoali_p2p_stream_send(group, step->to, group->tag, &large->out);
    if (received < 0 || sent < 0)
        return received < 0 ? received : sent;
    if (received == SHOAL_IN_PROGRESS && step->sums) {
        while (add_piece(group))
            ;
        if (large->in.moved == large->in.bytes)
            received = SHOAL_OK;
    }
    return received == SHOAL_OK && sent == SHOAL_OK ? SHOAL_OK : SHOAL_IN_PROGRESS;
}

static shoal_status advance_part(struct shoali_p2p_group *group)
{
    struct shoali_p2p_large *large = group->large;
    for (;; large->number++, large->in_step = false) {
        if (!large->in_step && !begin_step(group))
            return SHOAL_OK;
        large->in_step = true;
        const shoal_status status = advance_step(group);
        if (status != SHOAL_OK)
            return status;
    }
}

static shoal_status advance_data(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    struct shoali_p2p_large *large = group->large;
    shoal_status status = SHOAL_OK;
    bool more = true;
    for (;;) {
        if (large->part >= 0) {
            status = advance_part(group);
            if (status != SHOAL_OK)
                return status;
            end_part(group, op);
        }
        large->part++;
        SHOAL_TRY(status, begin_part(group, op, &more), done);
        if (!more)
            break;
    }
    large->part = INT32_MAX;
done:
    return status;
}

shoal_status shoali_p2p_large_advance(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    shoal_status status = SHOAL_OK;
    if (!op->begun && op->post.op == SHOAL_SUM_TREE && !is_integer(op->post.dtype) &&
        (op->post.kind == SHOALI_ALL_REDUCE || op->post.kind == SHOALI_REDUCE_SCATTER))
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "a sum of %s by a tree of neighbours is for groups of at most %d ranks, "
                          "and this one has %d: split layers over fewer",
                          shoal_dtype_name(op->post.dtype), SHOALI_P2P_MAX_RANKS, (int)group->size);
    if (!op->begun)
        SHOAL_TRY(status, begin(group, op), done);
    if (!op->agreed) {
        status = pass_gate(group, op);
        if (status != SHOAL_OK)
            goto done;
    }
    if (group->large->part != INT32_MAX) {
        status = advance_data(group, op);
        if (status != SHOAL_OK)
            goto done;
    }
    status = finish_gate(group);
done:
    return status;
}

/* ---- who is waited for ---------------------------------------------------------------------- */

int32_t shoali_p2p_large_list_needed(const struct shoali_p2p_group *group,
                                     const struct shoali_p2p_op *op, int32_t *needed)
{
    const struct shoali_p2p_large *large = group->large;
    const struct shoali_p2p_step *step = &large->inner.step;
    int32_t count = 0;
    for (int32_t i = 0; i < large->children; i++)
        if (!large->child[i].whole || large->child[i].sending)
            needed[count++] = large->child[i].rank;
    if (large->parent.rank >= 0 && (!large->parent.whole || large->parent.sending))
        needed[count++] = large->parent.rank;
    if (!op->agreed || !large->in_step || count > 0)
        return count;
    if (step->from >= 0 && large->in.moved < large->in.bytes)
        needed[count++] = step->from;
    if (step->to >= 0 && step->to != step->from && large->out.moved < large->out.bytes)
        needed[count++] = step->to;
    return count;
}

int32_t shoali_p2p_large_list_missing(const struct shoali_p2p_group *group, int32_t *missing,
                                      const struct shoali_record **last)
{
    const struct shoali_p2p_large *large = group->large;
    int32_t count = 0;
    *last = NULL;
    for (int32_t i = 0; i < large->children; i++) {
        if (large->child[i].here)
            continue;
        if (count == 0 && large->child[i].received)
            *last = &large->child[i].last;
        missing[count++] = large->child[i].rank;
    }
    return count;
}
