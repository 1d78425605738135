/* Batch sizes that change, as Megatron's.
 *
 *   --rampup-batch-size START INCREMENT SAMPLES
 *          grows from START by INCREMENT to train_batch_size, at equal intervals over the first
 *          SAMPLES samples
 *   --step-batch-size-schedule TOKENS:BATCH ...
 *          BATCH from so many consumed tokens on, in whole samples
 *
 * Data do not depend on it: a step that begins after c consumed samples takes the samples from c
 * on, whatever batches came before. */
#include "pretrain/pretrain.h"

#include "base/json.h"
#include "base/str.h"

#include <jansson.h>
#include <stdlib.h>
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
        return SHOAL_FAIL(SHOAL_EINVAL, "--rampup-batch-size takes three whole numbers above 0: "
                                        "the first batch, the increment and the samples of the "
                                        "ramp; such as 16 8 300000");
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
                          "--rampup-batch-size starts with %lld samples, more than the final "
                          "batch of %lld: give a smaller start",
                          (long long)ramp->start, (long long)full);
    if ((full - ramp->start) % ramp->increment)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "--rampup-batch-size: from %lld to the batch of %lld there is no whole "
                          "number of increments of %lld: change one of them",
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

/* ---- --step-batch-size-schedule ---- */

#define SCHEDULE "--step-batch-size-schedule"

/* Of digits and K, M, B or T. */
static bool read_amount(const char *text, size_t length, int64_t *amount)
{
    static const struct {
        char suffix;
        int64_t factor;
    } units[] = {{'K', 1000}, {'M', 1000000}, {'B', 1000000000}, {'T', 1000000000000}};
    char digits[20];
    int64_t factor = 1;
    for (size_t u = 0; u < 4 && length > 0; u++)
        if ((text[length - 1] & ~0x20) == units[u].suffix)
            factor = units[u].factor;
    length -= factor > 1;
    if (length == 0 || length >= sizeof digits)
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    return shoali_parse_i64(digits, amount) && *amount >= 0 &&
           !__builtin_mul_overflow(*amount, factor, amount);
}

static shoal_status add_entry(struct pretrain_schedule *schedule, const char *text, size_t length)
{
    const char *colon = memchr(text, ':', length);
    const size_t left = colon ? (size_t)(colon - text) : 0;
    struct pretrain_schedule_entry *entry = &schedule->entry[schedule->count];
    if (schedule->count == PRETRAIN_SCHEDULE_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL, SCHEDULE " has more than %d entries",
                          PRETRAIN_SCHEDULE_MAX);
    if (!colon || !read_amount(text, left, &entry->tokens) ||
        !read_amount(colon + 1, length - left - 1, &entry->batch) || entry->batch < 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          SCHEDULE " has \"%.*s\": give TOKENS:BATCH, whole numbers with K, M, B "
                                   "or T behind them or not, such as 0:768 250B:1536",
                          (int)length, text);
    schedule->count++;
    return SHOAL_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const struct pretrain_schedule_entry *x = a, *y = b;
    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

shoal_status pretrain_schedule_read(const struct shoali_strings *words, int64_t seq_length,
                                    struct pretrain_schedule *schedule)
{
    shoal_status status = SHOAL_OK;
    *schedule = (struct pretrain_schedule){0};
    for (int32_t i = 0; i < words->count; i++)
        for (const char *at = words->value[i]; *at;) {
            const size_t length = strcspn(at, " ,");
            if (length > 0)
                SHOAL_TRY(status, add_entry(schedule, at, length), done);
            at += length + (at[length] != '\0');
        }
    if (words->count == 0)
        return SHOAL_OK;
    qsort(schedule->entry, (size_t)schedule->count, sizeof schedule->entry[0], compare_entries);
    if (schedule->count == 0 || schedule->entry[0].tokens != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, SCHEDULE " must set the batch from 0 tokens on: begin "
                                                 "with an entry 0:BATCH");
    for (int32_t i = 0; i < schedule->count; i++) {
        struct pretrain_schedule_entry *entry = &schedule->entry[i];
        entry->samples = entry->tokens / (seq_length > 0 ? seq_length : 1);
        if (i > 0 && entry->samples <= entry[-1].samples)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              SCHEDULE ": %lld and %lld tokens are both %lld samples of "
                                       "--seq-length %lld; entries must start at different "
                                       "samples",
                              (long long)entry[-1].tokens, (long long)entry->tokens,
                              (long long)entry->samples, (long long)seq_length);
    }
done:
    return status;
}

static int64_t largest_of(const struct pretrain_schedule *schedule)
{
    int64_t largest = 0;
    for (int32_t i = 0; i < schedule->count; i++)
        largest = schedule->entry[i].batch > largest ? schedule->entry[i].batch : largest;
    return largest;
}

shoal_status pretrain_schedule_take_batch(struct pretrain_options *options)
{
    shoal_status status;
    struct shoali_json *document = NULL;
    if (options->schedule.count == 0 || options->shared.global_batch_size > 0)
        return SHOAL_OK;
    SHOAL_TRY(status, pretrain_load_config(options, &document), done);
    const json_t *root = shoali_json_root(document);
    if (!json_is_number(json_object_get(root, "train_batch_size")) &&
        !json_is_number(json_object_get(root, "gradient_accumulation_steps")))
        options->shared.global_batch_size = largest_of(&options->schedule);
done:
    shoali_json_close(document);
    return status;
}

shoal_status pretrain_schedule_check(const struct pretrain_schedule *schedule, int64_t full,
                                     int64_t micro, int64_t data_ranks)
{
    const int64_t largest = largest_of(schedule);
    for (int32_t i = 0; i < schedule->count; i++) {
        const int64_t batch = schedule->entry[i].batch;
        if (batch % (micro * data_ranks))
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              SCHEDULE ": the batch %lld is not a multiple of %lld, which is "
                                       "micro-batch %lld * %lld data-parallel ranks",
                              (long long)batch, (long long)(micro * data_ranks), (long long)micro,
                              (long long)data_ranks);
    }
    if (schedule->count == 0 || largest == full)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      SCHEDULE ": the largest batch is %lld, and train_batch_size is %lld: give "
                               "the same value",
                      (long long)largest, (long long)full);
}

static int64_t batch_of(const struct pretrain_options *options, int64_t full, int64_t consumed)
{
    const struct pretrain_schedule *schedule = &options->schedule;
    int64_t batch = pretrain_ramp_batch(&options->ramp, full, consumed);
    for (int32_t i = 0; i < schedule->count && schedule->entry[i].samples <= consumed; i++)
        batch = schedule->entry[i].batch;
    return batch;
}

bool pretrain_batch_varies(const struct pretrain_options *options)
{
    return options->ramp.start > 0 || options->schedule.count > 0;
}

/* The list of micro-batches that this rank will ask for, from the next step on. */
static shoal_status prefetch(struct pretrain *run)
{
    shoal_prefetch_args list = {.first_step = shoal_engine_global_steps(run->engine)};
    shoal_engine_get_micro_range(run->engine, &list.first, &list.count);
    if (!run->train)
        return SHOAL_OK;
    list.per_step = run->batch_now / run->micro_batch;
    list.samples_before = shoal_engine_consumed_samples(run->engine);
    return shoal_loader_prefetch(run->train, &list);
}

shoal_status pretrain_next_batch(struct pretrain *run, bool *changed)
{
    shoal_status status = SHOAL_OK;
    const int64_t consumed = shoal_engine_consumed_samples(run->engine);
    const int64_t batch = batch_of(&run->options, run->train_batch, consumed);
    *changed = batch != run->batch_now;
    if (!*changed)
        return SHOAL_OK;
    SHOAL_TRY(status, shoal_engine_set_train_batch_size(run->engine, batch), done);
    run->batch_now = batch;
    SHOAL_TRY(status, prefetch(run), done);
done:
    return status;
}
