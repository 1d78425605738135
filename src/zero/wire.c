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

static shoal_status gather_over(shoal_group *group, const struct shoali_zero_channel *channel,
                                const struct shoali_post *named, const void *own, void *out,
                                int64_t count)
{
    struct shoali_post post = *named;
    post.kind = SHOALI_ALL_GATHER;
    post.in = own;
    post.out = out;
    post.count = count;
    return shoali_comm_post_on(group, channel->exec.stream, &post);
}

/* Host h's part lies at place `hosts - h` from the end until block h is gathered, which ends before
 * those of later hosts: (h + 1) (places - 1) <= hosts (places - 1). */
static shoal_status gather_by_hosts(const struct shoali_zero_channel *channel,
                                    const struct shoali_post *named, const void *own, void *out,
                                    int64_t count)
{
    shoal_status status;
    const int32_t places = shoal_comm_size(channel->within);
    const int32_t hosts = shoal_comm_size(channel->across);
    const int32_t place = shoal_comm_rank(channel->within);
    const shoal_dtype dtype = named->dtype;
    char *first = shoali_zero_at(out, (int64_t)hosts * (places - 1) * count, dtype);
    char *mine = shoali_zero_at(first, shoal_comm_rank(channel->across) * count, dtype);
    SHOAL_TRY(status, copy(channel, own, mine, count, dtype), done);
    SHOAL_TRY(status, gather_over(channel->across, channel, named, mine, first, count), done);
    for (int32_t h = 0; h < hosts; h++) {
        char *block = shoali_zero_at(out, (int64_t)h * places * count, dtype);
        char *here = shoali_zero_at(block, place * count, dtype);
        SHOAL_TRY(status,
                  copy(channel, shoali_zero_at(first, h * count, dtype), here, count, dtype), done);
        SHOAL_TRY(status, gather_over(channel->within, channel, named, here, block, count), done);
    }
done:
    return status;
}

shoal_status shoali_zero_all_gather(const struct shoali_zero_channel *channel,
                                    const struct shoali_post *named, const void *own, void *out,
                                    int64_t count)
{
    if (!channel->group)
        return copy(channel, own, out, count, named->dtype);
    if (channel->gathers_by_hosts)
        return gather_by_hosts(channel, named, own, out, count);
    return gather_over(channel->group, channel, named, own, out, count);
}

static shoal_status gather(void *user, const struct shoali_zero_channel *channel,
                           const struct shoali_zero_bucket *bucket, const struct shoali_post *named,
                           const void *own, void *out)
{
    (void)user;
    return shoali_zero_all_gather(channel, named, own, out, bucket->part);
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
