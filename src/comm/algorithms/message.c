/* send and recv over a channel of two pieces. */
#include "comm/algorithms/slots.h"

#include <string.h>

enum { PIECES = 2 };

static unsigned char *piece_at(const struct shoali_slots_group *group, int32_t from, int32_t to,
                               uint32_t number)
{
    size_t channel = (size_t)from * (size_t)group->size + (size_t)to;
    return group->pieces + (channel * PIECES + number % PIECES) * group->piece_bytes;
}

static size_t piece_size(const struct shoali_slots_group *group,
                         const struct shoali_slots_request *request)
{
    size_t left = request->bytes - request->moved;
    return left < group->piece_bytes ? left : group->piece_bytes;
}

/* The first piece carries the record. A large message from memory that the receiver can reach is
 * just its place: the receiver copies it and the sender is done when the piece has been taken. */
static void put_piece(struct shoali_slots_group *group, struct shoali_slots_request *request,
                      struct shoali_channel *channel, uint32_t head)
{
    const struct shoali_post *post = &request->post;
    struct shoali_wire *wire = &channel->wire[head % PIECES];
    if (!request->published) {
        *wire = request->wire;
        if (request->bytes > group->piece_bytes)
            wire->in = shoali_place_of(group->world, post->in, request->bytes);
        if (!shoali_members_have(&wire->in.members, group->shared->world_rank[post->peer]))
            wire->in = (struct shoali_place){0};
        request->posted_place = wire->in.arena != 0;
        request->published = true;
    }
    if (request->posted_place) {
        request->moved = request->bytes;
    } else {
        size_t bytes = piece_size(group, request);
        if (bytes > 0)
            memcpy(piece_at(group, group->rank, post->peer, head),
                   (const unsigned char *)post->in + request->moved, bytes);
        request->moved += bytes;
    }
    atomic_store(&channel->head, head + 1);
    shoali_group_ring(group, post->peer);
}

static shoal_status advance_send(struct shoali_slots_group *group,
                                 struct shoali_slots_request *request)
{
    struct shoali_channel *channel = shoali_group_channel(group, group->rank, request->post.peer);
    while (!request->published || request->moved < request->bytes) {
        uint32_t head = atomic_load(&channel->head);
        if (head - atomic_load(&channel->tail) == PIECES)
            return SHOAL_IN_PROGRESS;
        put_piece(group, request, channel, head);
    }
    bool taken = atomic_load(&channel->tail) == atomic_load(&channel->head);
    return request->posted_place && !taken ? SHOAL_IN_PROGRESS : SHOAL_OK;
}

/* With or without `check`, a wrong size never writes past the receiver's buffer. */
static shoal_status check_first(const struct shoali_slots_group *group,
                                const struct shoali_slots_request *request,
                                const struct shoali_record *sent)
{
    const struct shoali_seat seats[2] = {
        {.world_rank = shoali_slots_number(group, request->post.peer),
         .shared = shoali_slots_seat(group, request->post.peer),
         .record = sent},
        {.world_rank = shoali_slots_number(group, group->rank),
         .shared = shoali_slots_seat(group, group->rank),
         .record = &request->wire.record}};
    shoal_status status = request->post.agree ? request->post.agree(seats, 2) : SHOAL_OK;
    size_t sent_bytes = (size_t)sent->count * shoal_dtype_bytes((shoal_dtype)sent->dtype);
    char own[256], theirs[256], a[SHOALI_PLACE_BYTES], b[SHOALI_PLACE_BYTES];
    if (status == SHOAL_OK && sent_bytes != request->bytes)
        status = SHOAL_FAIL(SHOAL_EMISMATCH, "%s posted %s, %s posted %s: the sizes differ",
                            shoali_rank_format(&seats[0], a), shoali_record_format(sent, theirs),
                            shoali_rank_format(&seats[1], b),
                            shoali_record_format(seats[1].record, own));
    return status;
}

/* SHOAL_IN_PROGRESS: the world is aborted, leave the piece alone. */
static shoal_status take_piece(struct shoali_slots_group *group,
                               struct shoali_slots_request *request, struct shoali_channel *channel,
                               uint32_t tail)
{
    const struct shoali_post *post = &request->post;
    const struct shoali_wire *wire = &channel->wire[tail % PIECES];
    shoal_status status = SHOAL_OK;
    if (!request->published) {
        status = check_first(group, request, &wire->record);
        if (status < 0)
            return status;
    }
    if (!request->published && wire->in.arena != 0) {
        if (!shoali_group_enter_busy(group))
            return SHOAL_IN_PROGRESS;
        memcpy(post->out, shoali_place_resolve(group->world, &wire->in), request->bytes);
        shoali_group_leave_busy(group);
        request->moved = request->bytes;
    } else {
        size_t bytes = piece_size(group, request);
        if (bytes > 0)
            memcpy((unsigned char *)post->out + request->moved,
                   piece_at(group, post->peer, group->rank, tail), bytes);
        request->moved += bytes;
    }
    request->published = true;
    atomic_store(&channel->tail, tail + 1);
    shoali_group_ring(group, post->peer);
    return SHOAL_OK;
}

static shoal_status advance_recv(struct shoali_slots_group *group,
                                 struct shoali_slots_request *request)
{
    struct shoali_channel *channel = shoali_group_channel(group, request->post.peer, group->rank);
    while (!request->published || request->moved < request->bytes) {
        uint32_t tail = atomic_load(&channel->tail);
        if (atomic_load(&channel->head) == tail)
            return SHOAL_IN_PROGRESS;
        shoal_status status = take_piece(group, request, channel, tail);
        if (status != SHOAL_OK)
            return status;
    }
    return SHOAL_OK;
}

shoal_status shoali_message_advance(struct shoali_slots_group *group,
                                    struct shoali_slots_request *request)
{
    request->bytes = (size_t)request->post.count * request->element_bytes;
    return request->post.kind == SHOALI_SEND ? advance_send(group, request)
                                             : advance_recv(group, request);
}
