/* Data of a run that continues: whether they are those of its checkpoint, and in which order their
 * samples come. A checkpoint's client object has, beside the model and the tokenizer,
 *
 *   "data": {"fingerprint": "9f...", "train_samples": [480], "valid_samples": [1600]}
 *
 * the hash of the data set, and for how many samples the orders of data files were made
 * (shoal_loader_order); these lists are missing for text and random tokens. drawn.c adds
 * what the orders were made of. */
#include "pretrain/pretrain.h"

#include "base/json.h"
#include "base/str.h"

#include <float.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const order_keys[] = {"train_samples", "valid_samples"};

/* ---- reading and writing ---- */

static shoal_status read_order(const json_t *list, struct pretrain_order *order)
{
    const size_t count = json_array_size(list);
    if (count == 0)
        return SHOAL_OK;
    order->samples = shoali_calloc(count, sizeof *order->samples, "the order of samples");
    if (!order->samples)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < count; i++)
        order->samples[order->count++] = json_integer_value(json_array_get(list, i));
    return SHOAL_OK;
}

shoal_status pretrain_stored_read(struct pretrain *run, const char *client)
{
    shoal_status status = SHOAL_OK;
    struct pretrain_stored *stored = &run->stored;
    json_t *root = NULL;
    SHOAL_TRY(status, shoali_json_read(client, strlen(client), &root, NULL), done);
    const json_t *data = json_object_get(root, "data");
    const char *text = json_string_value(json_object_get(data, "fingerprint"));
    char *end = NULL;
    stored->fingerprint = text ? strtoull(text, &end, 16) : 0;
    stored->known = text && end != text && !*end;
    for (int i = 0; i < 2 && stored->known; i++)
        SHOAL_TRY(status, read_order(json_object_get(data, order_keys[i]), &stored->order[i]),
                  done);
    SHOAL_TRY(status, pretrain_drawn_read(&stored->drawn, data), done);
done:
    if (status < 0)
        shoali_error_prefix(status, "%s: the checkpoint's description", run->options.load);
    json_decref(root);
    return status;
}

void pretrain_order_forget(struct pretrain_stored *stored)
{
    json_decref(stored->drawn.order);
    stored->drawn.order = NULL;
    stored->forgotten = stored->order[0].count > 0;
    for (int i = 0; i < 2; i++) {
        shoali_free(stored->order[i].samples);
        stored->order[i] = (struct pretrain_order){0};
    }
}

void pretrain_stored_fini(struct pretrain_stored *stored)
{
    pretrain_order_forget(stored);
    pretrain_drawn_fini(&stored->drawn);
}

/* A part without a loader keeps the order that the checkpoint has. */
static struct pretrain_order find_order(const struct pretrain *run, int part)
{
    const shoal_loader *loader = part ? run->valid : run->train;
    const int64_t *samples;
    if (!loader)
        return run->stored.order[part];
    const int32_t count = shoal_loader_order(loader, &samples);
    return (struct pretrain_order){(int64_t *)(uintptr_t)samples, count}; /* only read */
}

shoal_status pretrain_stored_write(const struct pretrain *run, struct shoali_str *out)
{
    shoal_status status;
    shoali_str_append(out, "{\"fingerprint\":\"%016" PRIx64 "\"",
                      shoal_dataset_fingerprint(run->dataset));
    for (int part = 0; part < 2; part++) {
        const struct pretrain_order order = find_order(run, part);
        if (order.count)
            shoali_str_append(out, ",\"%s\":[", order_keys[part]);
        for (int32_t i = 0; i < order.count; i++)
            shoali_str_append(out, "%s%" PRId64, i ? "," : "", order.samples[i]);
        if (order.count)
            shoali_str_append(out, "]");
    }
    SHOAL_TRY(status, pretrain_drawn_write(run, find_order(run, 0).count > 0, out), done);
    shoali_str_append(out, "}");
done:
    return status;
}

/* ---- other data than the checkpoint's ---- */

static shoal_status check_fingerprint(struct pretrain *run)
{
    struct pretrain_stored *stored = &run->stored;
    const bool strict = run->options.data.strict;
    const uint64_t own = shoal_dataset_fingerprint(run->dataset);
    if (!stored->known && strict)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--strict-data: the checkpoint in %s does not say which data it was "
                          "trained on (another program or an older version wrote it): leave "
                          "--strict-data out",
                          run->options.load);
    if (!stored->known || stored->fingerprint == own)
        return SHOAL_OK;
    if (strict)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--strict-data: the data are not those of the checkpoint in %s, whose "
                          "fingerprint is %016" PRIx64 ", not %016" PRIx64
                          ": give the same files, weights, --split and tokenizer",
                          run->options.load, stored->fingerprint, own);
    if (pretrain_is_first(run))
        fprintf(
            stderr,
            "shoal pretrain: the data are not those of the checkpoint in %s (files, weights, "
            "--split or tokenizer differ): the run continues with samples of these; --strict-data "
            "refuses it\n",
            run->options.load);
    pretrain_order_forget(stored);
    return SHOAL_OK;
}

shoal_status pretrain_stored_check(struct pretrain *run)
{
    shoal_status status = SHOAL_OK;
    if (!run->found || !run->dataset || run->options.finetune)
        return SHOAL_OK;
    SHOAL_TRY(status, check_fingerprint(run), done);
    SHOAL_TRY(status, pretrain_drawn_check(run), done);
done:
    return status;
}

/* ---- the order ---- */

/* Samples that the run will have consumed when it is over. */
static int64_t samples_at_end(const struct pretrain *run)
{
    const int64_t left = run->options.train_iters - shoal_engine_global_steps(run->engine);
    int64_t count;
    return shoali_mul(left > 0 ? left : 0, run->train_batch, &count) &&
                   shoali_add(count, shoal_engine_consumed_samples(run->engine), &count)
               ? count
               : INT64_MAX;
}

/* The arguments are those of a run from its start. Each validation sees the same samples. */
void pretrain_order_args(const struct pretrain *run, shoal_split split, shoal_loader_args *args)
{
    const bool train = split == SHOAL_SPLIT_TRAIN;
    const struct pretrain_order *order = &run->stored.order[train ? 0 : 1];
    const int64_t end = samples_at_end(run);
    args->order_samples = order->samples;
    args->order_count = order->count;
    if (order->count > 0) {
        const double surplus = pretrain_drawn_surplus(run);
        args->seed = pretrain_drawn_seed(run);
        args->surplus = surplus > 0 ? surplus : DBL_MIN; /* 0 would be the default */
    }
    if (order->count == 0) {
        if (train && end > args->sample_count)
            args->sample_count = end;
        return;
    }
    if (train)
        args->sample_count = end;
    else if (!shoali_mul(run->options.eval_iters, run->train_batch, &args->sample_count))
        args->sample_count = INT64_MAX;
}

/* Samples that an order was made for. */
static int64_t sum(const int64_t *samples, int32_t count)
{
    int64_t all = 0;
    for (int32_t i = 0; i < count; i++)
        all = shoali_add(all, samples[i], &all) ? all : INT64_MAX;
    return all;
}

static void say_order(const struct pretrain *run, int part)
{
    static const char *const words[] = {"training", "validation"};
    const struct pretrain_order *before = &run->stored.order[part];
    const int64_t *samples;
    const shoal_loader *loader = part ? run->valid : run->train;
    const int32_t count = loader ? shoal_loader_order(loader, &samples) : 0;
    if (count > 0 && before->count > 0 && sum(samples, count) > sum(before->samples, before->count))
        fprintf(stderr,
                "shoal pretrain: the %s samples of data files keep the order that the checkpoint "
                "in %s made for %lld; this run needs more, so it goes on behind its end\n",
                words[part], run->options.load, (long long)sum(before->samples, before->count));
    if (count > 0 && part == 0 && before->count == 0 && !run->stored.forgotten)
        fprintf(stderr,
                "shoal pretrain: the checkpoint in %s does not say in which order samples of data "
                "files came: the run continues in that of --train-iters %lld, in which some may "
                "come again\n",
                run->options.load, (long long)run->options.train_iters);
}

void pretrain_order_say(const struct pretrain *run)
{
    if (!run->found || run->options.finetune || !pretrain_is_first(run))
        return;
    for (int part = 0; part < 2; part++)
        say_order(run, part);
}
