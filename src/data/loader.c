/* The pure function (dataset, seed, n) -> sample n, and the loader in front of it. */
#include "data/indexed/indexed.h"
#include "data/masked.h"

#include <string.h>

struct shoal_loader {
    struct shoali_loader_order order;
    struct shoali_prefetch *prefetch; /* NULL: none */
    int32_t depth;                    /* of it */
};

static shoal_status make_window(const shoal_loader_args *args, int64_t number, int32_t *tokens,
                                int32_t *targets)
{
    shoal_status status = SHOAL_OK;
    int64_t length = args->seq_length, first, have = 0;
    int64_t total = shoal_dataset_token_count(args->dataset, args->split);
    if (shoali_mul(number, length, &first) && first < total - 1)
        have = total - 1 - first < length ? total - 1 - first : length;
    if (have > 0) {
        SHOAL_TRY(status, shoal_dataset_read(args->dataset, args->split, first, have, tokens),
                  done);
        SHOAL_TRY(status, shoal_dataset_read(args->dataset, args->split, first + 1, have, targets),
                  done);
    }
    for (int64_t t = have; t < length; t++) {
        tokens[t] = 0;
        targets[t] = -1;
    }
done:
    return status;
}

struct shoali_stream shoali_loader_stream(const shoal_loader_args *args)
{
    return shoali_stream_make(args->seed, args->split == SHOAL_SPLIT_TRAIN ? "sample" : "eval",
                              args->split == SHOAL_SPLIT_TEST ? "test" : "", 0);
}

static shoal_status make_random(const shoal_loader_args *args, int64_t number, int32_t *tokens,
                                int32_t *targets)
{
    shoal_status status;
    int64_t total = shoal_dataset_token_count(args->dataset, args->split);
    const struct shoali_stream stream = shoali_loader_stream(args);
    int64_t first = (int64_t)shoali_random_below(&stream, (uint64_t)number,
                                                 (uint64_t)(total - args->seq_length));
    SHOAL_TRY(status,
              shoal_dataset_read(args->dataset, args->split, first, args->seq_length, tokens),
              done);
    SHOAL_TRY(status,
              shoal_dataset_read(args->dataset, args->split, first + 1, args->seq_length, targets),
              done);
done:
    return status;
}

static bool is_mock(const shoal_dataset *dataset)
{
    return !shoali_dataset_indexed(dataset) && shoal_dataset_file_count(dataset) == 0;
}

static void make_empty(const struct shoali_loader_order *order, int32_t *const *arrays)
{
    if (order->masked) {
        shoali_masked_empty(
            order->masked,
            &(struct shoali_masked_sample){arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]});
        return;
    }
    for (int64_t t = 0; t < order->args.seq_length; t++) {
        arrays[0][t] = 0;
        arrays[1][t] = -1;
    }
}

/* A sample of data files. */
static shoal_status make_indexed(const struct shoali_loader_order *order, int64_t number,
                                 int32_t *const *arrays)
{
    if (!order->args.sequential || number < shoali_segments_count(order->segments))
        return shoali_segments_read(order->segments, number, arrays);
    make_empty(order, arrays);
    return SHOAL_OK;
}

static shoal_status make_sample(const struct shoali_loader_order *order, int64_t number,
                                int32_t *const *arrays)
{
    const shoal_loader_args *args = &order->args;
    if (order->segments)
        return make_indexed(order, number, arrays);
    if (order->masked)
        return shoali_masked_mock(
            order->masked, args, number,
            &(struct shoali_masked_sample){arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]});
    if (args->sequential)
        return make_window(args, number, arrays[0], arrays[1]);
    return make_random(args, number, arrays[0], arrays[1]);
}

shoal_status shoali_loader_make(const struct shoali_loader_order *order, int64_t first,
                                int32_t *const *arrays)
{
    shoal_status status = SHOAL_OK;
    const int64_t samples = order->args.micro_batch;
    if (first < 0 || first > INT64_MAX - samples)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the samples from %lld on cannot be made: their numbers are from 0 to "
                          "2^63 - 1",
                          (long long)first);
    for (int64_t b = 0; b < samples; b++) {
        int32_t *to[SHOALI_ARRAYS_MAX];
        for (int32_t i = 0; i < order->array_count; i++)
            to[i] = arrays[i] + b * order->numbers[i];
        SHOAL_TRY(status, make_sample(order, first + b, to), done);
    }
done:
    return status;
}

int64_t shoali_loader_numbers(const struct shoali_loader_order *order)
{
    int64_t numbers = 0;
    for (int32_t i = 0; i < order->array_count; i++)
        numbers += order->args.micro_batch * order->numbers[i];
    return numbers;
}

/* ---- opening ---- */

static void list_arrays(struct shoali_loader_order *order)
{
    static const char *const next[] = {"tokens", "targets"};
    static const char *const masked[] = {"tokens", "types", "targets", "key_count", "is_random"};
    const bool masks = order->args.kind != SHOAL_SAMPLE_NEXT_TOKEN;
    order->array_count = masks ? 5 : 2;
    for (int32_t i = 0; i < order->array_count; i++) {
        order->name[i] = masks ? masked[i] : next[i];
        order->numbers[i] = i < 3 ? order->args.seq_length : 1;
    }
}

/* What only masked samples need. */
static shoal_status check_masked(const shoal_loader_args *args)
{
    const struct shoali_indexed_data *data = shoali_dataset_indexed(args->dataset);
    if (args->seq_length < SHOALI_MASKED_EXTRA + 2)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a sequence length of %lld holds no masked sample: [CLS], two [SEP] and "
                          "two tokens need %d",
                          (long long)args->seq_length, SHOALI_MASKED_EXTRA + 2);
    if (!(args->mask_prob > 0) || args->mask_prob >= 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "--mask-prob is %g; give a probability in (0, 1)",
                          args->mask_prob);
    if (args->short_seq_prob > 1 || (args->short_seq_prob > 0 && args->short_seq_prob < 1e-9))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--short-seq-prob is %g; give 0, or a probability of at least 1e-9",
                          args->short_seq_prob);
    if (args->eod_mask_loss || args->keep_last_partial || args->no_extra_token)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s is for samples of the next token, not for masked ones",
                          args->eod_mask_loss ? "--eod-mask-loss"
                                              : "another partition into samples");
    if (data && !data->by_documents)
        return SHOAL_FAIL(SHOAL_EINVAL, "masked samples need a dataset that is split by documents: "
                                        "set shoal_dataset_args.split_documents");
    if (!data && !is_mock(args->dataset))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "masked samples are made of sentences, which text does not have: make "
                          "data files of it with shoal preprocess --split-sentences, and give "
                          "--data-path PREFIX_text_sentence");
    if (!data && shoal_dataset_vocab_size(args->dataset) < 5)
        return SHOAL_FAIL(SHOAL_EINVAL, "masked samples of mock data need a vocabulary of 5 "
                                        "tokens; give a larger --vocab-size");
    return SHOAL_OK;
}

static shoal_status make_masked(struct shoali_loader_order *order)
{
    shoal_status status;
    const shoal_loader_args *args = &order->args;
    const struct shoali_indexed_data *data = shoali_dataset_indexed(args->dataset);
    SHOAL_TRY(status, check_masked(args), done);
    if (data && !data->tokenizer)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s has no .tokens.json that says which tokens are [CLS], [SEP], [MASK] "
                          "and [PAD]: give --tokenizer-type and --vocab-file",
                          data->file[0]->prefix);
    order->masked = shoali_calloc(1, sizeof *order->masked, "masked samples");
    if (!order->masked)
        return SHOAL_ENOMEM;
    order->masked->seq_length = args->seq_length;
    order->masked->mask_prob = args->mask_prob;
    order->masked->pairs = args->kind == SHOAL_SAMPLE_MASKED_PAIRS;
    order->masked->vocab_size = shoal_dataset_vocab_size(args->dataset);
    SHOAL_TRY(status, shoali_masked_init(order->masked, data ? data->tokenizer : NULL), done);
done:
    return status;
}

static shoal_status check_args(const shoal_loader_args *args)
{
    static const char *const names[SHOAL_SPLIT_COUNT] = {"train", "validation", "test"};
    int64_t elements, samples;
    if (!args->dataset || (int)args->split < 0 || args->split >= SHOAL_SPLIT_COUNT)
        return SHOAL_FAIL(SHOAL_EINVAL, "a loader needs a dataset and a split");
    if (args->seq_length < 1 || args->micro_batch < 1 || args->micro_batches < 1)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "loader: seq_length %lld, micro_batch %lld and micro_batches %lld must be "
            "positive",
            (long long)args->seq_length, (long long)args->micro_batch,
            (long long)args->micro_batches);
    if (!shoali_mul(args->seq_length, args->micro_batch, &elements) || elements > INT64_MAX / 64 ||
        !shoali_mul(args->micro_batches, args->micro_batch, &samples))
        return SHOAL_FAIL(SHOAL_EINVAL, "loader: a batch of %lld x %lld tokens is too large",
                          (long long)args->micro_batch, (long long)args->seq_length);
    for (int32_t i = 0; i < args->order_count; i++)
        if (args->order_samples[i] < 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "loader: order_samples[%d] is %lld; it is a number of "
                              "samples",
                              (int)i, (long long)args->order_samples[i]);
    if ((int)args->kind < 0 || args->kind > SHOAL_SAMPLE_MASKED_PAIRS)
        return SHOAL_FAIL(SHOAL_EINVAL, "loader: sample kind %d does not exist", (int)args->kind);
    if (shoali_dataset_indexed(args->dataset)) /* whose parts are checked one by one */
        return SHOAL_OK;
    if (args->order != SHOAL_ORDER_SINGLE || args->eod_mask_loss || args->keep_last_partial ||
        args->no_extra_token)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s is for data files, not for text",
                          args->order != SHOAL_ORDER_SINGLE ? "--dataloader-type cyclic"
                          : args->eod_mask_loss             ? "--eod-mask-loss"
                                                            : "another partition into samples");
    int64_t total = shoal_dataset_token_count(args->dataset, args->split);
    const bool windows = args->sequential && args->kind == SHOAL_SAMPLE_NEXT_TOKEN;
    int64_t needed = windows ? 2 : args->seq_length + 1;
    if (total < needed)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "the %s part has %lld tokens, but a sequence length of %lld needs at least "
            "%lld; give more text, another split or a shorter sequence length",
            names[args->split], (long long)total, (long long)args->seq_length, (long long)needed);
    return SHOAL_OK;
}

shoal_status shoal_loader_create(const shoal_loader_args *args, shoal_loader **loader)
{
    shoal_status status;
    shoal_loader_args own = {0};
    shoal_loader *made = NULL;
    *loader = NULL;
    if (args)
        own = *args;
    SHOAL_TRY(status, check_args(&own), done);
    made = shoali_calloc(1, sizeof(*made), "a loader");
    if (!made) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    if (own.sequential)
        own.sample_count = 0;
    if (own.mask_prob == 0)
        own.mask_prob = 0.15;
    if (own.short_seq_prob == 0)
        own.short_seq_prob = 0.1;
    made->order.args = own;
    list_arrays(&made->order);
    if (own.kind != SHOAL_SAMPLE_NEXT_TOKEN)
        SHOAL_TRY(status, make_masked(&made->order), done);
    if (shoali_dataset_indexed(own.dataset))
        SHOAL_TRY(
            status,
            shoali_segments_open(&(struct shoali_order_args){shoali_dataset_indexed(own.dataset),
                                                             &own, made->order.masked},
                                 &made->order.segments),
            done);
    made->order.args.order_samples = NULL; /* borrowed for the call */
    *loader = made;
    made = NULL;
done:
    shoal_loader_destroy(made);
    return status;
}

void shoal_loader_destroy(shoal_loader *loader)
{
    if (!loader)
        return;
    shoali_prefetch_destroy(loader->prefetch);
    shoali_segments_close(loader->order.segments);
    if (loader->order.masked)
        shoali_masked_fini(loader->order.masked);
    shoali_free(loader->order.masked);
    shoali_free(loader);
}

int64_t shoal_loader_seq_length(const shoal_loader *loader)
{
    return loader->order.args.seq_length;
}

int64_t shoal_loader_micro_batch(const shoal_loader *loader)
{
    return loader->order.args.micro_batch;
}

int64_t shoal_loader_micro_batches(const shoal_loader *loader)
{
    return loader->order.args.micro_batches;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

int64_t shoal_loader_step_count(const shoal_loader *loader)
{
    const shoal_loader_args *args = &loader->order.args;
    if (!args->sequential)
        return 0;
    int64_t total = shoal_dataset_token_count(args->dataset, args->split);
    int64_t windows = loader->order.segments ? shoali_segments_count(loader->order.segments)
                                             : divide_up(total - 1, args->seq_length);
    return divide_up(windows, args->micro_batch * args->micro_batches);
}

int32_t shoal_loader_order(const shoal_loader *loader, const int64_t **samples)
{
    *samples = NULL;
    return loader->order.segments ? shoali_segments_asked(loader->order.segments, samples) : 0;
}

const char *shoal_loader_array(const shoal_loader *loader, int32_t index, int64_t *numbers)
{
    const struct shoali_loader_order *order = &loader->order;
    if (index < 0 || index >= order->array_count)
        return NULL;
    *numbers = order->numbers[index];
    return order->name[index];
}

/* The first one of a micro-batch of a step; false: it does not fit 64 bits. */
static bool sample_number(const shoal_loader_args *args, int64_t step, int64_t micro,
                          int64_t *number)
{
    return shoali_mul(step, args->micro_batches, number) && shoali_add(*number, micro, number) &&
           shoali_mul(*number, args->micro_batch, number);
}

shoal_status shoal_loader_get_arrays(shoal_loader *loader, int64_t step, int64_t micro,
                                     int32_t *const *arrays)
{
    if (step < 0 || micro < 0 || micro >= loader->order.args.micro_batches)
        return SHOAL_FAIL(
            SHOAL_EINVAL, "there is no micro-batch %lld of step %lld; a step has %lld",
            (long long)micro, (long long)step, (long long)loader->order.args.micro_batches);
    int64_t first;
    if (!sample_number(&loader->order.args, step, micro, &first))
        first = loader->order.args.sequential ? INT64_MAX - loader->order.args.micro_batch : -1;
    return shoal_loader_get_samples(loader, first, arrays);
}

shoal_status shoal_loader_get_samples(shoal_loader *loader, int64_t first, int32_t *const *arrays)
{
    shoal_status status = SHOAL_END;
    if (loader->prefetch)
        status = shoali_prefetch_get(loader->prefetch, first, arrays);
    if (status == SHOAL_END)
        status = shoali_loader_make(&loader->order, first, arrays);
    return status;
}

shoal_status shoal_loader_get(shoal_loader *loader, int64_t step, int64_t micro, int32_t *tokens,
                              int32_t *targets)
{
    if (loader->order.masked)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "masked samples have %d arrays: shoal_loader_get_arrays "
                          "fills them",
                          (int)loader->order.array_count);
    return shoal_loader_get_arrays(loader, step, micro, (int32_t *const[]){tokens, targets});
}

int32_t shoal_loader_prefetch_depth(int64_t count)
{
    return count < 32 ? (int32_t)(2 * count) : 64;
}

int64_t shoal_loader_plan_bytes(int64_t batch_bytes, int64_t count)
{
    return shoali_prefetch_bytes(batch_bytes, shoal_loader_prefetch_depth(count));
}

int64_t shoal_loader_host_bytes(const shoal_loader *loader)
{
    const int64_t bytes = shoali_loader_numbers(&loader->order) * (int64_t)sizeof(int32_t);
    return loader->prefetch ? shoali_prefetch_bytes(bytes, loader->depth) : 0;
}

/* A list that was checked, in samples. */
static shoal_status list_samples(const shoal_loader_args *args, const shoal_prefetch_args *list,
                                 struct shoali_prefetch_list *samples)
{
    const bool own = list->per_step > 0;
    const int64_t b = args->micro_batch;
    *samples = (struct shoali_prefetch_list){.first = list->first * b,
                                             .stride = (list->count > 1 ? list->stride : 1) * b,
                                             .count = list->count,
                                             .depth = list->depth};
    if (shoali_mul(own ? list->per_step : args->micro_batches, b, &samples->per_step) &&
        sample_number(args, own ? 0 : list->first_step, own ? list->begin : 0, &samples->begin) &&
        shoali_add(samples->begin, list->samples_before, &samples->begin))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "prefetch: step %lld, begin %lld, per_step %lld and samples_before %lld give "
                      "numbers of samples beyond 2^63",
                      (long long)list->first_step, (long long)list->begin,
                      (long long)list->per_step, (long long)list->samples_before);
}

shoal_status shoal_loader_prefetch(shoal_loader *loader, const shoal_prefetch_args *args)
{
    shoal_status status;
    shoal_prefetch_args list = {0};
    struct shoali_prefetch_list samples;
    int64_t span, below = loader->order.args.micro_batches;
    if (args)
        list = *args;
    if (list.stride == 0)
        list.stride = 1;
    if (list.per_step > 0 && list.per_step < below)
        below = list.per_step;
    if (list.first_step < 0 || list.first < 0 || list.count < 1 || list.stride < 1 ||
        !shoali_mul(list.count - 1, list.stride, &span) || !shoali_add(span, list.first, &span) ||
        span >= below || list.per_step < 0 || list.begin < 0 || list.samples_before < 0) {
        status = SHOAL_FAIL(
            SHOAL_EINVAL,
            "prefetch: %lld micro-batches from %lld with stride %lld are not all below %lld",
            (long long)list.count, (long long)list.first, (long long)list.stride, (long long)below);
        goto done;
    }
    if (list.depth < 1)
        list.depth = shoal_loader_prefetch_depth(list.count);
    SHOAL_TRY(status, list_samples(&loader->order.args, &list, &samples), done);
    shoali_prefetch_destroy(loader->prefetch);
    loader->prefetch = NULL;
    loader->depth = list.depth;
    status = shoali_prefetch_create(&loader->order, &samples, &loader->prefetch);
done:
    return status;
}
