/* send and recv: an envelope with what fits, then a stream. */
#include "comm/p2p/p2p.h"

#include <stddef.h>
#include <string.h>

static struct shoali_p2p_envelope *envelope_of(const struct shoali_p2p_op *op)
{
    return (struct shoali_p2p_envelope *)(void *)op->envelope->data;
}

static size_t bytes_of(const struct shoali_p2p_op *op)
{
    return (size_t)op->post.count * op->element_bytes;
}

static bool fits(const struct shoali_p2p_op *op)
{
    return bytes_of(op) <= SHOALI_P2P_INLINE_BYTES;
}

static shoal_status begin(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    struct shoali_p2p_world *world = group->world;
    const int32_t peer = group->world_rank[op->post.peer], tag = group->tag + 1;
    shoal_status status = SHOAL_OK;
    op->begun = true;
    op->here = false;
    op->stream = (struct shoali_p2p_stream){0};
    op->envelope = shoali_p2p_take_piece(world);
    if (!op->envelope)
        return SHOAL_ENOMEM;
    struct shoali_p2p_envelope *envelope = envelope_of(op);
    if (!fits(op)) {
        op->stream.bytes = bytes_of(op);
        op->stream.from = op->post.in;
        op->stream.to = op->post.out;
    }
    if (op->post.kind == SHOALI_RECV) {
        SHOAL_TRY(status,
                  shoali_p2p_receive(world, envelope, sizeof *envelope, peer, tag, &op->request),
                  done);
        return SHOAL_OK;
    }
    envelope->record = op->record;
    envelope->bytes = fits(op) ? (uint32_t)bytes_of(op) : 0;
    if (envelope->bytes > 0)
        memcpy(envelope->data, op->post.in, envelope->bytes);
    SHOAL_TRY(status,
              shoali_p2p_send(world, envelope,
                              offsetof(struct shoali_p2p_envelope, data) + envelope->bytes, peer,
                              tag, &op->request),
              done);
done:
    return status;
}

static shoal_status check(const struct shoali_p2p_group *group, struct shoali_p2p_op *op,
                          size_t bytes)
{
    struct shoali_p2p_envelope *envelope = envelope_of(op);
    const size_t head = offsetof(struct shoali_p2p_envelope, data);
    envelope->record.here[SHOALI_HERE_BYTES - 1] = '\0';
    if (bytes >= head && bytes - head == envelope->bytes && op->post.agree) {
        const struct shoali_seat seats[2] = {
            {.world_rank = group->world_rank[op->post.peer], .record = &envelope->record},
            {.world_rank = group->world_rank[group->rank], .record = &op->record}};
        const shoal_status status = op->post.agree(seats, 2);
        if (status < 0)
            return status;
    }
    if (bytes < head || bytes - head != envelope->bytes ||
        envelope->bytes != (fits(op) ? bytes_of(op) : 0))
        return SHOAL_FAIL(SHOAL_EMISMATCH,
                          "rank %d sent another count than the %lld elements that rank %d receives",
                          (int)group->world_rank[op->post.peer], (long long)op->post.count,
                          (int)group->world_rank[group->rank]);
    return SHOAL_OK;
}

shoal_status shoali_p2p_message_advance(struct shoali_p2p_group *group, struct shoali_p2p_op *op)
{
    struct shoali_p2p_world *world = group->world;
    const bool sends = op->post.kind == SHOALI_SEND;
    shoal_status status = SHOAL_OK;
    size_t bytes = 0;
    if (!op->begun)
        SHOAL_TRY(status, begin(group, op), done);
    if (!op->here) {
        SHOAL_TRY(status, shoali_p2p_test(world, &op->request, &op->here, sends ? NULL : &bytes),
                  done);
        if (op->here && !sends) {
            SHOAL_TRY(status, check(group, op, bytes), done);
            if (envelope_of(op)->bytes > 0)
                memcpy(op->post.out, envelope_of(op)->data, envelope_of(op)->bytes);
        }
        if (!op->here && !sends)
            return SHOAL_IN_PROGRESS;
    }
    if (op->stream.bytes > 0)
        status = sends
                     ? shoali_p2p_stream_send(group, op->post.peer, group->tag + 1, &op->stream)
                     : shoali_p2p_stream_receive(group, op->post.peer, group->tag + 1, &op->stream);
    if (status == SHOAL_OK && !op->here)
        status = SHOAL_IN_PROGRESS;
    if (status == SHOAL_OK) {
        shoali_p2p_put_piece(world, op->envelope);
        op->envelope = NULL;
    }
done:
    return status;
}
