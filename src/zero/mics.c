/* Parts that several ranks own. */
#include "zero/mics.h"

#include "zero/wire.h"

int32_t shoali_zero_mics_parts(const struct shoali_zero_setup *setup, int32_t size)
{
    const int32_t shard = setup->args.shard_size;
    if (setup->stage == 0)
        return 1;
    return setup->stage == 3 && shard > 0 && shard < size ? shard : size;
}

/* Job: neighbouring units of one group, from unit `index` on. */
static shoal_status reduce_replicas(const struct shoali_zero_channel *channel,
                                    const struct shoali_zero_job *job)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = job->jobs->setup;
    const struct shoali_zero_layout *layout = job->jobs->layout;
    struct shoali_zero_channel over = *channel;
    struct shoali_post post = {
        .here = SHOAL_HERE, .dtype = shoali_zero_gradient_dtype(setup), .op = SHOAL_SUM};
    const struct shoali_zero_unit *unit = &layout->unit[job->index];
    int32_t last = job->index;
    while (last + 1 < layout->unit_count && layout->unit[last + 1].group == job->group)
        last++;
    const int64_t end = layout->unit[last].local + layout->unit[last].part;
    const int64_t limit = setup->args.reduce_bucket_size > 0 ? setup->args.reduce_bucket_size : end;
    over.group = channel->replicas;
    for (int64_t at = unit->local; at < end; at += post.count) {
        post.count = limit < end - at ? limit : end - at;
        SHOAL_TRY(status,
                  shoali_zero_all_reduce(&over, &post, shoali_zero_at(job->buffer, at, post.dtype)),
                  done);
    }
done:
    return status;
}

shoal_status shoali_zero_mics_reduce(struct shoali_zero_jobs *jobs, void *part_gradients)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = jobs->layout;
    uint32_t ticket;
    for (int32_t u = 0; u < layout->unit_count && jobs->setup->stage > 0; u++) {
        const int32_t group = layout->unit[u].group;
        if (layout->group[group].replicas == 1 || (u > 0 && layout->unit[u - 1].group == group))
            continue;
        struct shoali_zero_job job = {
            .run = reduce_replicas, .buffer = part_gradients, .group = group, .index = u};
        SHOAL_TRY(status, shoali_zero_post(jobs, &job, &ticket), done);
    }
done:
    return status;
}
