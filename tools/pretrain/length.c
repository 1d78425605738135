/* How many steps a training has that is given in samples or tokens, as in Megatron: whole steps of
 * --train-samples, and those that reach --train-tokens. */
#include "pretrain/pretrain.h"

#include "base/json.h"

#include <jansson.h>
#include <math.h>

/* A number of the configuration, 0: none. */
static int64_t number_of(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return json_is_number(value) && json_number_value(value) >= 1 &&
                   json_number_value(value) < 0x1p53
               ? (int64_t)json_number_value(value)
               : 0;
}

/* The full batch: as the flags or the file say it, or micro-batches of all data ranks. What is
 * wrong with them the engine says. */
static shoal_status find_batch(struct pretrain_options *options, int64_t data_ranks)
{
    shoal_status status = SHOAL_OK;
    struct shoali_json *document = NULL;
    SHOAL_TRY(status, pretrain_load_config(options, &document), done);
    const json_t *root = shoali_json_root(document);
    const int64_t all = options->shared.global_batch_size > 0 ? options->shared.global_batch_size
                                                              : number_of(root, "train_batch_size");
    const int64_t micro = options->shared.micro_batch_size > 0
                              ? options->shared.micro_batch_size
                              : number_of(root, "train_micro_batch_size_per_gpu");
    const int64_t times = number_of(root, "gradient_accumulation_steps");
    int64_t batch = micro > 0 ? micro : 1;
    if (!shoali_mul(batch, times > 0 ? times : 1, &batch) || !shoali_mul(batch, data_ranks, &batch))
        batch = INT64_MAX;
    options->full_batch = all > 0 ? all : batch;
done:
    shoali_json_close(document);
    return status;
}

/* Steps that have as many samples. */
struct stretch {
    int64_t batch;
    double end; /* consumed samples up to which they surely have */
    bool last;  /* all further steps have */
};

static struct stretch stretch_at(const struct pretrain_options *options, int64_t consumed)
{
    const struct pretrain_schedule *schedule = &options->schedule;
    const struct pretrain_ramp *ramp = &options->ramp;
    struct stretch stretch = {options->full_batch, 0, true};
    if (ramp->start > 0 && ramp->start < stretch.batch && consumed <= ramp->samples) {
        const int64_t batch = pretrain_ramp_batch(ramp, stretch.batch, consumed);
        const double growths = (double)((stretch.batch - ramp->start) / ramp->increment);
        const double grown = (double)((batch - ramp->start) / ramp->increment);
        return (struct stretch){batch, (double)ramp->samples * (grown + 1) / growths, false};
    }
    for (int32_t i = 0; i < schedule->count; i++) {
        if (schedule->entry[i].samples > consumed)
            return (struct stretch){stretch.batch, (double)schedule->entry[i].samples, false};
        stretch.batch = schedule->entry[i].batch;
    }
    return stretch;
}

/* Whole steps within `samples`; up: and the one that reaches them. */
static int64_t steps_of(const struct pretrain_options *options, int64_t samples, bool up)
{
    int64_t steps = 0, consumed = 0;
    while (consumed < samples) {
        const struct stretch stretch = stretch_at(options, consumed);
        const int64_t left = samples - consumed, whole = left / stretch.batch;
        const double in_stretch = floor((stretch.end - (double)consumed) / (double)stretch.batch);
        const int64_t count = stretch.last || in_stretch >= (double)whole ? whole
                              : in_stretch > 1                            ? (int64_t)in_stretch
                                                                          : 1;
        if (whole < 1 || stretch.last)
            return steps + whole + (up && left % stretch.batch);
        steps += count;
        consumed += count * stretch.batch;
    }
    return steps;
}

shoal_status pretrain_take_length(struct pretrain_options *options, int64_t data_ranks)
{
    shoal_status status;
    SHOAL_TRY(status, find_batch(options, data_ranks), done);
    SHOAL_TRY(status, pretrain_ramp_check(&options->ramp, options->full_batch, 1, 1), done);
    if (options->train_samples > 0)
        options->train_iters = steps_of(options, options->train_samples, false);
    if (options->train_tokens > 0) {
        const int64_t samples = (options->train_tokens - 1) / options->seq_length + 1;
        const int64_t steps = steps_of(options, samples, true);
        if (options->train_iters == 0 || steps < options->train_iters)
            options->train_iters = steps;
    }
    if (options->train_samples > 0 && options->train_iters == 0)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "--train-samples %lld is less than a batch of %lld samples: give more",
                          (long long)options->train_samples, (long long)options->full_batch);
done:
    return status;
}
