/* --rampup-batch-size START INCREMENT SAMPLES: Megatron's batch that grows while the first SAMPLES
 * samples are consumed, in equal shares of them, from START by INCREMENT to train_batch_size.
 *
 * The data do not know of it: samples follow each other in the order of a run of full batches. A
 * step of consumed samples c has those from c on, whatever batches came before. */
#include "pretrain.h"

#include "base/str.h"

#include <string.h>

shoal_status pretrain_ramp_read(const struct shoali_strings *words, struct pretrain_ramp *ramp)
{
    int64_t number[3];
    *ramp = (struct pretrain_ramp){0};
    if (words->count == 0)
        return SHOAL_OK;
    bool good = words->count == 3;
    for (int32_t i = 0; i < 3 && good; i++)
        good = shoali_parse_i64(words->value[i], &number[i]) && number[i] > 0 &&
               number[i] <= INT64_C(1000000000000);
    if (!good)
        return SHOAL_FAIL(SHOAL_EINVAL, "--rampup-batch-size takes three whole numbers of 1 and "
                                        "more: the first batch, by how much it grows, and the "
                                        "samples in which it grows; such as 16 8 300000");
    *ramp = (struct pretrain_ramp){number[0], number[1], number[2]};
    return SHOAL_OK;
}

int64_t pretrain_ramp_batch(const struct pretrain_ramp *ramp, int64_t full, int64_t consumed)
{
    if (ramp->start == 0 || ramp->start == full || consumed > ramp->samples)
        return full;
    const int64_t growths = (full - ramp->start) / ramp->increment;
    const double share = (double)ramp->samples / (double)growths;
    return ramp->start + ramp->increment * (int64_t)((double)consumed / share);
}

/* Before the first step: every batch of the ramp must be one that the ranks can divide. */
shoal_status pretrain_ramp_check(const struct pretrain_ramp *ramp, int64_t full, int64_t micro,
                                 int64_t data_ranks)
{
    const int64_t unit = micro * data_ranks;
    if (ramp->start == 0)
        return SHOAL_OK;
    if (ramp->start > full)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "--rampup-batch-size begins with %lld samples, more than the batch of "
                          "%lld that it grows to",
                          (long long)ramp->start, (long long)full);
    if ((full - ramp->start) % ramp->increment)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "--rampup-batch-size: from %lld to the batch of %lld there is no whole "
                          "number of steps of %lld",
                          (long long)ramp->start, (long long)full, (long long)ramp->increment);
    if (ramp->start % unit == 0 && (ramp->start == full || ramp->increment % unit == 0))
        return SHOAL_OK;
    const bool first = ramp->start % unit != 0;
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "--rampup-batch-size: %s %lld is not a multiple of %lld, which is "
                      "micro-batch %lld * %lld data-parallel ranks",
                      first ? "the first batch" : "an increment of",
                      (long long)(first ? ramp->start : ramp->increment), (long long)unit,
                      (long long)micro, (long long)data_ranks);
}

/* The list of micro-batches that this rank will ask for, from the next step on. */
static shoal_status prefetch(struct pretrain *run)
{
    shoal_prefetch_args list = {.first_step = shoal_engine_global_steps(run->engine)};
    shoal_engine_get_micro_range(run->engine, &list.first, &list.count);
    if (!run->train)
        return SHOAL_OK;
    list.per_step = run->batch_now / run->micro_batch;
    list.begin = shoal_engine_consumed_samples(run->engine) / run->micro_batch;
    return shoal_loader_prefetch(run->train, &list);
}

shoal_status pretrain_next_batch(struct pretrain *run, bool *changed)
{
    shoal_status status = SHOAL_OK;
    const int64_t consumed = shoal_engine_consumed_samples(run->engine);
    const int64_t batch = pretrain_ramp_batch(&run->options.ramp, run->train_batch, consumed);
    *changed = batch != run->batch_now;
    if (!*changed)
        return SHOAL_OK;
    SHOAL_TRY(status, shoal_engine_set_train_batch_size(run->engine, batch), done);
    run->batch_now = batch;
    SHOAL_TRY(status, prefetch(run), done);
done:
    return status;
}
