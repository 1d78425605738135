/* What the order of samples of data files is made of, beside the files themselves
 * (order.c). A checkpoint's client object has in `data`
 *
 *   "order": {"seed": 1234, "mid-level-dataset-surplus": 0.005, "seq-length": 1024,
 *             "dataloader-type": "single", ...}
 *   "batches": "rampup-batch-size 16 8 300000"
 *
 * A run that continues keeps the seed and the surplus of the order that was begun: they say how
 * samples are shuffled, and another shuffle would bring some twice and others never. The other
 * numbers say what a sample is. Where one of them differs another order begins at the next sample,
 * and a line tells it. */
#include "pretrain/pretrain.h"

#include "base/json.h"
#include "base/str.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const kept_keys[] = {"seed", "mid-level-dataset-surplus"};

/* ---- this run's ----------------------------------------------------------------------------- */

/* NULL: no memory. */
static json_t *own_order(const struct pretrain *run)
{
    const struct pretrain_options *options = &run->options;
    const struct pretrain_data *data = &options->data;
    const bool masked = pretrain_samples(options) != SHOAL_SAMPLE_NEXT_TOKEN;
    const bool cyclic = data->order == SHOAL_ORDER_CYCLIC;
    json_t *order =
        json_pack("{s:I, s:f, s:I, s:s}", kept_keys[0], (json_int_t)options->shared.seed,
                  kept_keys[1], data->surplus, "seq-length", (json_int_t)options->seq_length,
                  "dataloader-type", cyclic ? "cyclic" : "single");
    bool good = order;
    if (good && masked)
        good = json_object_set_new(order, "mask-prob", json_real(data->mask_prob)) == 0 &&
               json_object_set_new(order, "short-seq-prob", json_real(data->short_seq_prob)) == 0;
    if (good && data->eod_mask_loss)
        good = json_object_set_new(order, "eod-mask-loss", json_true()) == 0;
    if (good)
        return order;
    json_decref(order);
    return NULL;
}

static shoal_status no_memory(void)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the description of an order of samples");
}

/* As flags; "": it does not vary. */
static void describe_batches(const struct pretrain_options *options, struct shoali_str *out)
{
    const struct pretrain_ramp *ramp = &options->ramp;
    const struct pretrain_schedule *schedule = &options->schedule;
    if (ramp->start > 0)
        shoali_str_append(out, "rampup-batch-size %lld %lld %lld", (long long)ramp->start,
                          (long long)ramp->increment, (long long)ramp->samples);
    for (int32_t i = 0; i < schedule->count; i++)
        shoali_str_append(out, "%s %lld:%lld", i ? "" : "step-batch-size-schedule",
                          (long long)schedule->entry[i].tokens,
                          (long long)schedule->entry[i].batch);
}

/* ---- the checkpoint's ----------------------------------------------------------------------- */

shoal_status pretrain_drawn_read(struct pretrain_drawn *drawn, const json_t *data)
{
    const json_t *order = json_object_get(data, "order");
    const char *batches = json_string_value(json_object_get(data, "batches"));
    drawn->order = json_is_object(order) ? json_deep_copy(order) : NULL;
    drawn->batches = batches ? strdup(batches) : NULL;
    if ((json_is_object(order) && !drawn->order) || (batches && !drawn->batches))
        return no_memory();
    return SHOAL_OK;
}

void pretrain_drawn_fini(struct pretrain_drawn *drawn)
{
    json_decref(drawn->order);
    free(drawn->batches);
    *drawn = (struct pretrain_drawn){0};
}

/* The seed and the surplus of the order that the run has. */
uint64_t pretrain_drawn_seed(const struct pretrain *run)
{
    const json_t *seed = json_object_get(run->stored.drawn.order, kept_keys[0]);
    return (uint64_t)(json_is_integer(seed) ? json_integer_value(seed) : run->options.shared.seed);
}

double pretrain_drawn_surplus(const struct pretrain *run)
{
    const json_t *surplus = json_object_get(run->stored.drawn.order, kept_keys[1]);
    return json_is_number(surplus) ? json_number_value(surplus) : run->options.data.surplus;
}

shoal_status pretrain_drawn_write(const struct pretrain *run, bool ordered, struct shoali_str *out)
{
    shoal_status status = SHOAL_OK;
    char *text = NULL;
    json_t *order = ordered ? own_order(run) : NULL;
    if (ordered &&
        (!order ||
         json_object_set_new(order, kept_keys[0],
                             json_integer((json_int_t)pretrain_drawn_seed(run))) != 0 ||
         json_object_set_new(order, kept_keys[1], json_real(pretrain_drawn_surplus(run))) != 0)) {
        status = no_memory();
        goto done;
    }
    if (ordered) {
        SHOAL_TRY(status, shoali_json_write(order, JSON_COMPACT, "an order of samples", &text),
                  done);
        shoali_str_append(out, ",\"order\":%s", text);
    }
    shoali_str_append(out, ",\"batches\":\"");
    describe_batches(&run->options, out);
    shoali_str_append(out, "\"");
done:
    free(text);
    json_decref(order);
    return status;
}

/* ---- what differs --------------------------------------------------------------------------- */

static bool is_kept(const char *key)
{
    return strcmp(key, kept_keys[0]) == 0 || strcmp(key, kept_keys[1]) == 0;
}

static void append_value(struct shoali_str *out, const json_t *value)
{
    char *text = NULL;
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6);
    if (value && shoali_json_write(value, flags, "a number of an order", &text) < 0)
        out->failed = true;
    shoali_str_append(out, "%s", text ? text : "none");
    free(text);
}

/* Numbers of this run that are others in the checkpoint, as "--seq-length 12 (not 8), ...". */
static void list_differences(const json_t *own, const json_t *stored, bool kept,
                             struct shoali_str *out)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)own, key, value)
    {
        const json_t *other = json_object_get(stored, key);
        if (is_kept(key) != kept || (other && json_equal(value, other)))
            continue;
        shoali_str_append(out, "%s--%s ", *shoali_str_get(out) ? ", " : "", key);
        append_value(out, value);
        shoali_str_append(out, " (not ");
        append_value(out, other);
        shoali_str_append(out, ")");
    }
    json_object_foreach((json_t *)(uintptr_t)stored, key,
                        value) if (!kept && !is_kept(key) && !json_object_get(own, key))
        shoali_str_append(out, "%sno --%s", *shoali_str_get(out) ? ", " : "", key);
}

static shoal_status compare_orders(const struct pretrain *run, bool *other)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str begun = {0}, kept = {0};
    const char *load = run->options.load;
    json_t *own = own_order(run);
    if (!own)
        return no_memory();
    list_differences(own, run->stored.drawn.order, false, &begun);
    list_differences(own, run->stored.drawn.order, true, &kept);
    *other = *shoali_str_get(&begun) != '\0';
    if (begun.failed || kept.failed)
        status = no_memory();
    else if (*other && run->options.data.strict)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--strict-data: the samples are not those of the checkpoint in %s: %s; "
                            "give its values",
                            load, shoali_str_get(&begun));
    else if (*other && pretrain_is_first(run))
        fprintf(stderr,
                "shoal pretrain: the samples are not those of the checkpoint in %s: %s: another "
                "order of them begins, in which some may come again; --strict-data refuses it\n",
                load, shoali_str_get(&begun));
    else if (*shoali_str_get(&kept) && pretrain_is_first(run))
        fprintf(stderr,
                "shoal pretrain: %s: the samples of data files keep the order that the checkpoint "
                "in %s began\n",
                shoali_str_get(&kept), load);
    shoali_str_fini(&begun);
    shoali_str_fini(&kept);
    json_decref(own);
    return status;
}

static void compare_batches(const struct pretrain *run)
{
    struct shoali_str own = {0};
    const char *stored = run->stored.drawn.batches;
    describe_batches(&run->options, &own);
    const char *text = shoali_str_get(&own);
    if (stored && !own.failed && strcmp(stored, text) != 0 && pretrain_is_first(run))
        fprintf(stderr,
                "shoal pretrain: the checkpoint in %s was trained with %s%s, this run has %s%s: "
                "its steps have other batches from here on\n",
                run->options.load, *stored ? "--" : "one batch size", stored,
                *text ? "--" : "one batch size", text);
    shoali_str_fini(&own);
}

shoal_status pretrain_drawn_check(struct pretrain *run)
{
    shoal_status status = SHOAL_OK;
    bool other = false;
    compare_batches(run);
    if (run->stored.order[0].count > 0 && run->stored.drawn.order)
        SHOAL_TRY(status, compare_orders(run, &other), done);
    if (other)
        pretrain_order_forget(&run->stored);
done:
    return status;
}
