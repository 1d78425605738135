/* The plain wire. */
#include "zero/wire.h"

static shoal_status copy(const struct shoali_zero_channel *channel, const void *from, void *to,
                         int64_t count, shoal_dtype dtype)
{
    if (from == to)
        return SHOAL_OK;
    return shoali_copy(channel->exec.stream, to, from, (size_t)count * shoal_dtype_bytes(dtype),
                       SHOALI_DEVICE_TO_DEVICE);
}

static shoal_status gather(void *user, const struct shoali_zero_channel *channel,
                           const struct shoali_zero_bucket *bucket, const struct shoali_post *named,
                           const void *own, void *out)
{
    struct shoali_post post = *named;
    (void)user;
    if (!channel->group)
        return copy(channel, own, out, bucket->part, named->dtype);
    post.kind = SHOALI_ALL_GATHER;
    post.in = own;
    post.out = out;
    post.count = bucket->part;
    return shoali_comm_post_on(channel->group, channel->exec.stream, &post);
}

shoal_status shoali_zero_all_reduce(const struct shoali_zero_channel *channel,
                                    const struct shoali_post *named, void *data)
{
    struct shoali_post post = *named;
    if (!channel->group)
        return SHOAL_OK;
    post.kind = SHOALI_ALL_REDUCE;
    post.in = post.out = data;
    return shoali_comm_post_on(channel->group, channel->exec.stream, &post);
}

static shoal_status reduce_scatter(void *user, const struct shoali_zero_channel *channel,
                                   const struct shoali_zero_bucket *bucket,
                                   const struct shoali_post *named, void *whole, void *out)
{
    struct shoali_post post = *named;
    (void)user;
    if (!channel->group)
        return copy(channel, whole, out, bucket->part, named->dtype);
    post.kind = SHOALI_REDUCE_SCATTER;
    post.in = whole;
    post.out = out;
    post.count = bucket->part;
    return shoali_comm_post_on(channel->group, channel->exec.stream, &post);
}

static shoal_status all_reduce(void *user, const struct shoali_zero_channel *channel,
                               const struct shoali_zero_bucket *bucket,
                               const struct shoali_post *named, void *whole, void *out)
{
    shoal_status status;
    struct shoali_post post = *named;
    (void)user;
    post.count = channel->cut->parts * bucket->part;
    SHOAL_TRY(status, shoali_zero_all_reduce(channel, &post, whole), done);
    SHOAL_TRY(status,
              copy(channel, shoali_zero_at(whole, channel->cut->seat * bucket->part, post.dtype),
                   out, bucket->part, post.dtype),
              done);
done:
    return status;
}

struct shoali_zero_wire shoali_zero_wire_plain(bool by_all_reduce)
{
    return (struct shoali_zero_wire){.gather = gather,
                                     .reduce = by_all_reduce ? all_reduce : reduce_scatter};
}
