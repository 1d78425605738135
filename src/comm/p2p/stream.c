/* Bytes between two ranks, through pieces. */
#include "comm/p2p/p2p.h"

#include <string.h>

static size_t next_bytes(const struct shoali_p2p_stream *stream)
{
    const size_t left = stream->bytes - stream->begun;
    return left < SHOALI_P2P_PIECE_BYTES ? left : SHOALI_P2P_PIECE_BYTES;
}

/* Many are needed where the way is long, and there is memory for few where ranks are many. */
static bool has_room(const struct shoali_p2p_group *group, const struct shoali_p2p_stream *stream)
{
    const int32_t at_once = group->large ? 1 : group->size - 1; /* ranks that data goes to */
    const int32_t share = SHOALI_P2P_PIECES / (at_once > 1 ? at_once : 1);
    const uint32_t window = share < 2                   ? 2
                            : share > SHOALI_P2P_WINDOW ? SHOALI_P2P_WINDOW
                                                        : (uint32_t)share;
    return stream->begun < stream->bytes && stream->head - stream->tail < window;
}

void shoali_p2p_stream_drop_first(struct shoali_p2p_world *world, struct shoali_p2p_stream *stream)
{
    const uint32_t i = stream->tail++ % SHOALI_P2P_WINDOW;
    stream->moved += stream->slot[i].bytes;
    shoali_p2p_put_piece(world, stream->slot[i].piece);
    stream->slot[i].piece = NULL;
    stream->slot[i].here = false;
}

static shoal_status launch_send(struct shoali_p2p_group *group, int32_t rank, int32_t tag,
                                struct shoali_p2p_stream *stream)
{
    struct shoali_p2p_world *world = group->world;
    shoal_status status = SHOAL_OK;
    while (has_room(group, stream)) {
        const uint32_t i = stream->head % SHOALI_P2P_WINDOW;
        const size_t bytes = next_bytes(stream);
        struct shoali_p2p_piece *piece = shoali_p2p_take_piece(world);
        if (!piece)
            return SHOAL_ENOMEM;
        memcpy(piece->data, stream->from + stream->begun, bytes);
        stream->slot[i].piece = piece;
        stream->slot[i].bytes = bytes;
        SHOAL_TRY(status,
                  shoali_p2p_send(world, piece->data, bytes, group->world_rank[rank], tag,
                                  &stream->slot[i].request),
                  done);
        stream->begun += bytes;
        stream->head++;
        group->moves++;
    }
done:
    return status;
}

shoal_status shoali_p2p_stream_send(struct shoali_p2p_group *group, int32_t rank, int32_t tag,
                                    struct shoali_p2p_stream *stream)
{
    struct shoali_p2p_world *world = group->world;
    shoal_status status = SHOAL_OK;
    while (stream->head != stream->tail) {
        bool done = false;
        SHOAL_TRY(status,
                  shoali_p2p_test(world, &stream->slot[stream->tail % SHOALI_P2P_WINDOW].request,
                                  &done, NULL),
                  done);
        if (!done)
            break;
        shoali_p2p_stream_drop_first(world, stream);
    }
    SHOAL_TRY(status, launch_send(group, rank, tag, stream), done);
    status = stream->moved == stream->bytes ? SHOAL_OK : SHOAL_IN_PROGRESS;
done:
    return status;
}

const unsigned char *shoali_p2p_stream_first(const struct shoali_p2p_stream *stream)
{
    const uint32_t i = stream->tail % SHOALI_P2P_WINDOW;
    return stream->head != stream->tail && stream->slot[i].here ? stream->slot[i].piece->data
                                                                : NULL;
}

/* The pieces come in the order of their receives. */
static shoal_status look(struct shoali_p2p_group *group, int32_t rank,
                         struct shoali_p2p_stream *stream)
{
    shoal_status status = SHOAL_OK;
    for (uint32_t n = stream->tail; n != stream->head; n++) {
        const uint32_t i = n % SHOALI_P2P_WINDOW;
        size_t bytes = 0;
        if (!stream->slot[i].here)
            SHOAL_TRY(status,
                      shoali_p2p_test(group->world, &stream->slot[i].request, &stream->slot[i].here,
                                      &bytes),
                      done);
        else
            continue;
        if (!stream->slot[i].here)
            break;
        if (bytes != stream->slot[i].bytes) {
            status = SHOAL_FAIL(SHOAL_EMISMATCH,
                                "rank %d sent a piece of %zu bytes where %zu were expected: all "
                                "ranks of a group must make the same calls in the same order",
                                (int)group->world_rank[rank], bytes, stream->slot[i].bytes);
            goto done;
        }
    }
done:
    return status;
}

static shoal_status launch_receive(struct shoali_p2p_group *group, int32_t rank, int32_t tag,
                                   struct shoali_p2p_stream *stream)
{
    struct shoali_p2p_world *world = group->world;
    shoal_status status = SHOAL_OK;
    while (has_room(group, stream)) {
        const uint32_t i = stream->head % SHOALI_P2P_WINDOW;
        struct shoali_p2p_piece *piece = shoali_p2p_take_piece(world);
        if (!piece)
            return SHOAL_ENOMEM;
        stream->slot[i].piece = piece;
        stream->slot[i].bytes = next_bytes(stream);
        SHOAL_TRY(status,
                  shoali_p2p_receive(world, piece->data, stream->slot[i].bytes,
                                     group->world_rank[rank], tag, &stream->slot[i].request),
                  done);
        stream->begun += stream->slot[i].bytes;
        stream->head++;
        group->moves++;
    }
done:
    return status;
}

shoal_status shoali_p2p_stream_launch(struct shoali_p2p_group *group, int32_t rank, int32_t tag,
                                      bool sends, struct shoali_p2p_stream *stream)
{
    return sends ? launch_send(group, rank, tag, stream) : launch_receive(group, rank, tag, stream);
}

shoal_status shoali_p2p_stream_receive(struct shoali_p2p_group *group, int32_t rank, int32_t tag,
                                       struct shoali_p2p_stream *stream)
{
    struct shoali_p2p_world *world = group->world;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, look(group, rank, stream), done);
    for (const unsigned char *first; stream->to && (first = shoali_p2p_stream_first(stream));) {
        memcpy(stream->to + stream->moved, first,
               stream->slot[stream->tail % SHOALI_P2P_WINDOW].bytes);
        shoali_p2p_stream_drop_first(world, stream);
    }
    SHOAL_TRY(status, launch_receive(group, rank, tag, stream), done);
    status = stream->moved == stream->bytes ? SHOAL_OK : SHOAL_IN_PROGRESS;
done:
    return status;
}
