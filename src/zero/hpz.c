/* The second copy of the weights. */
#include "zero/hpz.h"

#include "zero/pool.h"

int32_t shoali_zero_hpz_size(const struct shoali_zero_setup *setup, int32_t size)
{
    const int32_t wanted = setup->stage == 3 && setup->args.hpz_size > 1 ? setup->args.hpz_size : 0;
    return wanted < size ? wanted : size > 1 && wanted ? size : 0;
}

static int32_t sharers(const struct shoali_zero_hpz *hpz, const struct shoali_zero_unit *unit)
{
    return shoali_zero_hpz_size(hpz->setup, hpz->layout->group[unit->group].size);
}

shoal_status shoali_zero_hpz_init(struct shoali_zero_hpz *hpz,
                                  const struct shoali_zero_setup *setup,
                                  const struct shoali_zero_layout *layout)
{
    shoal_status status = SHOAL_ENOMEM;
    const size_t item = shoal_dtype_bytes(shoali_zero_dtype(setup));
    if (setup->stage != 3 || setup->args.hpz_size <= 1)
        return SHOAL_OK;
    *hpz = (struct shoali_zero_hpz){.setup = setup, .layout = layout};
    const size_t units = (size_t)layout->unit_count;
    hpz->begin_of = shoali_calloc(units + 1, sizeof *hpz->begin_of, "the second copy");
    hpz->good = shoali_calloc(units + 1, sizeof *hpz->good, "the second copy");
    if (!hpz->begin_of || !hpz->good)
        goto done;
    for (int32_t u = 0; u < layout->unit_count; u++) {
        const int32_t ranks = sharers(hpz, &layout->unit[u]);
        hpz->begin_of[u + 1] = hpz->begin_of[u] + (ranks ? layout->unit[u].padded / ranks : 0);
    }
    SHOAL_TRY(
        status,
        shoali_zero_alloc_shared(setup, (size_t)shoali_zero_hpz_count(hpz) * item, &hpz->copy),
        done);
done:
    return status;
}

void shoali_zero_hpz_fini(struct shoali_zero_hpz *hpz)
{
    if (!hpz->setup)
        return;
    shoali_zero_free_shared(hpz->setup, hpz->copy);
    shoali_free(hpz->begin_of);
    shoali_free(hpz->good);
}

int64_t shoali_zero_hpz_count(const struct shoali_zero_hpz *hpz)
{
    return hpz->setup ? hpz->begin_of[hpz->layout->unit_count] : 0;
}

/* This rank's slice of a bucket of the copy. */
struct slice {
    void *at;
    int64_t count;
    int32_t ranks;
};
static struct slice slice_of(const struct shoali_zero_hpz *hpz,
                             const struct shoali_zero_channel *channel,
                             const struct shoali_zero_bucket *bucket)
{
    const struct shoali_zero_unit *unit = &hpz->layout->unit[bucket->unit];
    const int32_t ranks = sharers(hpz, unit);
    const int64_t begin = hpz->begin_of[bucket->unit] + (bucket->whole - unit->whole) / ranks;
    return (struct slice){.at = shoali_zero_at(hpz->copy, begin, shoali_zero_dtype(hpz->setup)),
                          .count = channel->cut->parts * bucket->part / ranks,
                          .ranks = ranks};
}

shoal_status shoali_zero_hpz_gather(const struct shoali_zero_hpz *hpz,
                                    const struct shoali_zero_channel *channel,
                                    const struct shoali_zero_bucket *bucket,
                                    const struct shoali_post *named, void *out)
{
    const struct slice slice = slice_of(hpz, channel, bucket);
    struct shoali_post post = *named;
    post.kind = SHOALI_ALL_GATHER;
    post.in = slice.at;
    post.out = out;
    post.count = slice.count;
    return shoali_comm_post_on(channel->nearby, channel->exec.stream, &post);
}

shoal_status shoali_zero_hpz_keep(const struct shoali_zero_hpz *hpz,
                                  const struct shoali_zero_channel *channel,
                                  const struct shoali_zero_bucket *bucket, void *gathered)
{
    const struct slice slice = slice_of(hpz, channel, bucket);
    const shoal_dtype dtype = shoali_zero_dtype(hpz->setup);
    const int64_t first = channel->cut->rank % slice.ranks * slice.count;
    return shoali_copy(channel->exec.stream, slice.at, shoali_zero_at(gathered, first, dtype),
                       (size_t)slice.count * shoal_dtype_bytes(dtype), SHOALI_DEVICE_TO_DEVICE);
}
