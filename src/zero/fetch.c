/* Which units are gathered, when they come and when they go. */
#include "zero/fetch.h"

/* ---- one unit ------------------------------------------------------------------------------- */

/* Job: the unit's buckets into its buffer. */
static shoal_status gather_unit(const struct shoali_zero_channel *channel,
                                const struct shoali_zero_job *job)
{
    shoal_status status = SHOAL_OK;
    char here[SHOALI_ZERO_HERE_BYTES];
    const struct shoali_zero_weights *weights = job->user;
    const struct shoali_zero_unit *unit = &weights->layout->unit[job->index];
    const struct shoali_zero_wire *wire = weights->wire;
    const shoal_dtype dtype = shoali_zero_dtype(weights->setup);
    const struct shoali_post named = {
        .here = shoali_zero_here(unit, SHOAL_HERE, here), .tag = job->index, .dtype = dtype};
    for (int32_t b = unit->first_bucket; b < unit->first_bucket + unit->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &weights->layout->bucket[b];
        char *out = shoali_zero_at(job->buffer, bucket->whole - unit->whole, dtype);
        if (job->nearby) {
            SHOAL_TRY(status, shoali_zero_hpz_gather(&weights->hpz, channel, bucket, &named, out),
                      done);
            continue;
        }
        const void *own = weights->data
                              ? shoali_zero_at(weights->data, bucket->local, dtype)
                              : shoali_zero_at(out, channel->cut->seat * bucket->part, dtype);
        SHOAL_TRY(status, wire->gather(wire->user, channel, bucket, &named, own, out), done);
        if (channel->nearby)
            SHOAL_TRY(status, shoali_zero_hpz_keep(&weights->hpz, channel, bucket, out), done);
    }
done:
    return status;
}

static shoal_status settle(struct shoali_zero_weights *weights, int32_t unit)
{
    const uint32_t ticket = weights->unit[unit].gathering;
    weights->unit[unit].gathering = 0;
    return shoali_zero_await(weights->jobs, ticket);
}

static void point_params(struct shoali_zero_weights *weights, int32_t index)
{
    const struct shoali_zero_layout *layout = weights->layout;
    const struct shoali_zero_unit *unit = &layout->unit[index];
    const struct shoali_module *module = layout->args.module;
    void *data = weights->unit[index].data;
    for (int32_t i = unit->first_param; i < unit->first_param + unit->param_count; i++)
        module->param[i]->data =
            data ? shoali_zero_at(data, module->param[i]->begin - unit->begin, module->dtype)
                 : NULL;
}

static shoal_status refresh(struct shoali_zero_weights *weights, int32_t index)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_gathered *unit = &weights->unit[index];
    bool *second = weights->hpz.setup ? &weights->hpz.good[index] : NULL;
    struct shoali_zero_job job = {.run = gather_unit,
                                  .user = weights,
                                  .buffer = unit->data,
                                  .group = weights->layout->unit[index].group,
                                  .index = index,
                                  .nearby = second && *second};
    if (!weights->data && !job.nearby)
        SHOAL_TRY(status, shoali_zero_param_store_load(weights->store, index, unit->data), done);
    if (second)
        *second = weights->jobs->away[job.group].nearby != NULL;
    if (weights->setup->most_ranks > 1)
        SHOAL_TRY(status, shoali_zero_post(weights->jobs, &job, &unit->gathering), done);
done:
    return status;
}

static shoal_status fetch(struct shoali_zero_weights *weights, int32_t index)
{
    shoal_status status;
    struct shoali_zero_gathered *unit = &weights->unit[index];
    const struct shoali_zero_unit *of = &weights->layout->unit[index];
    const size_t bytes = (size_t)of->padded * shoal_dtype_bytes(shoali_zero_dtype(weights->setup));
    if (unit->data)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_zero_take(weights->pool, bytes, &unit->home, &unit->data), done);
    weights->live += of->alike_count;
    weights->held += of->count;
    weights->held_peak = weights->held > weights->held_peak ? weights->held : weights->held_peak;
    if (weights->planning) {
        shoali_zero_jobs_note(weights->jobs, SHOALI_ZERO_GATHERS, index);
        return SHOAL_OK;
    }
    SHOAL_TRY(status, refresh(weights, index), done);
    point_params(weights, index);
done:
    return status;
}

static void release(struct shoali_zero_weights *weights, int32_t index)
{
    struct shoali_zero_gathered *unit = &weights->unit[index];
    if (!unit->data || unit->persistent || unit->holders > 0)
        return;
    shoali_zero_give(weights->pool, unit->data);
    unit->data = NULL;
    weights->live -= weights->layout->unit[index].alike_count;
    weights->held -= weights->layout->unit[index].count;
    point_params(weights, index);
}

/* ---- a pass over the layers ----------------------------------------------------------------- */

static int32_t position_count(const struct shoali_zero_weights *weights)
{
    const int32_t layers = weights->layout->args.module->layer_count;
    return weights->setup->args.optimizer ? 2 * layers : layers;
}

static int32_t layer_at(const struct shoali_zero_weights *weights, int32_t position)
{
    const int32_t layers = weights->layout->args.module->layer_count;
    return position < layers ? position : 2 * layers - 1 - position;
}

int32_t shoali_zero_backward_position(const struct shoali_zero_weights *weights, int32_t layer)
{
    return 2 * weights->layout->args.module->layer_count - 1 - layer;
}

/* alike_count of the units of the layers at positions [0, position), where passes follow each
 * other. */
static int64_t elements_until(const struct shoali_zero_weights *weights, int64_t position)
{
    const int32_t layers = weights->layout->args.module->layer_count,
                  count = position_count(weights);
    const int64_t forward = weights->layout->alike_before[layers];
    const int64_t pass = count > layers ? 2 * forward : forward;
    const int32_t at = (int32_t)(position % count);
    return position / count * pass +
           (at <= layers ? weights->layout->alike_before[at]
                         : 2 * forward - weights->layout->alike_before[2 * layers - at]);
}

/* The next position of this pass, or of one that follows, that uses the unit; some layer does. */
static int64_t next_use(const struct shoali_zero_weights *weights, int32_t unit, int32_t position)
{
    const int32_t layers = weights->layout->args.module->layer_count,
                  count = position_count(weights);
    const int32_t begin = weights->layout->use_begin[unit],
                  end = weights->layout->use_begin[unit + 1];
    const bool forward = position < layers;
    /* forward: uses behind this layer begin at low; backward: uses before it end there */
    const int32_t limit = forward ? position + 1 : layer_at(weights, position);
    int32_t low = begin;
    for (int32_t high = end; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (weights->layout->use[middle] < limit)
            low = middle + 1;
        else
            high = middle;
    }
    if (forward && low < end)
        return weights->layout->use[low];
    if (forward && count > layers)
        return 2 * (int64_t)layers - 1 - weights->layout->use[end - 1];
    if (!forward && low > begin)
        return 2 * (int64_t)layers - 1 - weights->layout->use[low - 1];
    return (int64_t)count + weights->layout->use[begin];
}

/* Another micro-batch with the same weights follows this pass, as far as this rank knows. */
static bool pass_repeats(const struct shoali_zero_weights *weights)
{
    return !weights->setup->args.optimizer || weights->micro + 1 < weights->setup->passes;
}

static bool used_again_soon(const struct shoali_zero_weights *weights, int32_t unit,
                            int32_t position)
{
    const int32_t *use_begin = weights->layout->use_begin;
    if (use_begin[unit] == use_begin[unit + 1]) /* of layers that other ranks run */
        return false;
    const int64_t next = next_use(weights, unit, position);
    if (weights->live > weights->setup->args.fetch.max_live ||
        (next >= position_count(weights) && !pass_repeats(weights)))
        return false;
    return elements_until(weights, next) - elements_until(weights, (int64_t)position + 1) <=
           weights->setup->args.fetch.max_reuse_distance;
}

/* The next layer's units, while this layer computes. */
static shoal_status ask_for_layer(struct shoali_zero_weights *weights, int32_t layer)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_fetch *limit = &weights->setup->args.fetch;
    const struct shoali_zero_layout *layout = weights->layout;
    int64_t asked = 0;
    for (int32_t n = layout->need_begin[layer]; n < layout->need_begin[layer + 1]; n++) {
        const int32_t unit = layout->need[n];
        if (weights->unit[unit].data)
            continue;
        asked += layout->unit[unit].alike_count;
        if (asked > limit->prefetch_bucket ||
            weights->live + layout->unit[unit].alike_count > limit->max_live)
            break;
        SHOAL_TRY(status, fetch(weights, unit), done);
    }
done:
    return status;
}

static shoal_status look_ahead(struct shoali_zero_weights *weights, int32_t position)
{
    if (!weights->setup->args.overlap || position + 1 >= position_count(weights))
        return SHOAL_OK;
    return ask_for_layer(weights, layer_at(weights, position + 1));
}

/* Own parts that wait in a file are read one layer before they are gathered. */
static shoal_status read_ahead(struct shoali_zero_weights *weights, int32_t position)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = weights->layout;
    const int32_t count = position_count(weights);
    for (int32_t p = position + 1; p <= position + 2 && weights->store->swap; p++) {
        const int32_t layer = layer_at(weights, p % count);
        for (int32_t n = layout->need_begin[layer]; n < layout->need_begin[layer + 1]; n++)
            if (!weights->unit[layout->need[n]].data && !weights->planning)
                SHOAL_TRY(status, shoali_zero_param_store_prefetch(weights->store, layout->need[n]),
                          done);
    }
done:
    return status;
}

static shoal_status hold_layer(struct shoali_zero_weights *weights, int32_t layer)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = weights->layout;
    for (int32_t n = layout->need_begin[layer]; n < layout->need_begin[layer + 1]; n++) {
        SHOAL_TRY(status, fetch(weights, layout->need[n]), done);
        SHOAL_TRY(status, settle(weights, layout->need[n]), done);
        weights->unit[layout->need[n]].holders++;
    }
done:
    return status;
}

/* A forward that had no backward, as in an evaluation, leaves units that were kept for it. */
static shoal_status drop_kept(struct shoali_zero_weights *weights)
{
    shoal_status status = SHOAL_OK;
    for (int32_t u = 0; u < weights->layout->unit_count; u++) {
        SHOAL_TRY(status, settle(weights, u), done);
        if (!used_again_soon(weights, u, -1))
            release(weights, u);
    }
done:
    return status;
}

shoal_status shoali_zero_weights_enter(struct shoali_zero_weights *weights, int32_t position)
{
    shoal_status status;
    if (position == 0 && weights->position != position_count(weights) - 1)
        SHOAL_TRY(status, drop_kept(weights), done);
    weights->position = position;
    SHOAL_TRY(status, hold_layer(weights, layer_at(weights, position)), done);
    SHOAL_TRY(status, look_ahead(weights, position), done);
    SHOAL_TRY(status, read_ahead(weights, position), done);
done:
    return status;
}

static void let_go(struct shoali_zero_weights *weights, int32_t layer, int32_t position)
{
    const struct shoali_zero_layout *layout = weights->layout;
    for (int32_t n = layout->need_begin[layer]; n < layout->need_begin[layer + 1]; n++) {
        struct shoali_zero_gathered *unit = &weights->unit[layout->need[n]];
        if (unit->holders > 0 && --unit->holders == 0 &&
            !used_again_soon(weights, layout->need[n], position))
            release(weights, layout->need[n]);
    }
}

void shoali_zero_weights_leave(struct shoali_zero_weights *weights, int32_t position)
{
    let_go(weights, layer_at(weights, position), position);
}

/* Layers of a group run again one after the other, up to the one whose backward is next. */
shoal_status shoali_zero_weights_replay(struct shoali_zero_weights *weights, int32_t layer)
{
    shoal_status status;
    const int32_t last = layer_at(weights, weights->position + 1);
    SHOAL_TRY(status, hold_layer(weights, layer), done);
    if (weights->setup->args.overlap && layer < last)
        SHOAL_TRY(status, ask_for_layer(weights, layer + 1), done);
done:
    return status;
}

void shoali_zero_weights_replayed(struct shoali_zero_weights *weights, int32_t layer)
{
    let_go(weights, layer, weights->position);
}

/* ---- after own parts changed ---------------------------------------------------------------- */

/* Stages 1 and 2: on the computing thread, in place. */
static shoal_status gather_all(struct shoali_zero_weights *weights)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = weights->layout;
    const shoal_dtype dtype = shoali_zero_dtype(weights->setup);
    const struct shoali_zero_wire *wire = weights->wire;
    for (int32_t b = 0; b < layout->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &layout->bucket[b];
        const struct shoali_zero_channel *here =
            &weights->jobs->here[layout->unit[bucket->unit].group];
        const struct shoali_post named = {
            .here = SHOAL_HERE, .tag = bucket->number, .dtype = dtype};
        char *out = shoali_zero_at(weights->data, bucket->whole, dtype);
        void *own = shoali_zero_at(out, here->cut->seat * bucket->part, dtype);
        SHOAL_TRY(status, wire->gather(wire->user, here, bucket, &named, own, out), done);
    }
done:
    return status;
}

void shoali_zero_weights_release(struct shoali_zero_weights *weights)
{
    for (int32_t u = 0; u < weights->layout->unit_count; u++) {
        weights->unit[u].holders = 0;
        release(weights, u);
    }
}

shoal_status shoali_zero_weights_changed(struct shoali_zero_weights *weights)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = weights->setup;
    if (setup->stage == 0 && !setup->fetches)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_zero_await_all(weights->jobs), done); /* the buffers go */
    if (!setup->fetches)
        return gather_all(weights);
    for (int32_t u = 0; u < weights->layout->unit_count; u++) {
        weights->unit[u].gathering = 0;
        weights->unit[u].holders = 0;
        if (weights->hpz.setup)
            weights->hpz.good[u] = false;
        if (weights->unit[u].persistent)
            SHOAL_TRY(status, refresh(weights, u), done);
        release(weights, u);
    }
    SHOAL_TRY(status, shoali_zero_await_all(weights->jobs), done);
done:
    return status;
}

/* ---- creation ------------------------------------------------------------------------------- */

static shoal_status choose_persistent(struct shoali_zero_weights *weights)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = weights->layout;
    const struct shoali_zero_fetch *limit = &weights->setup->args.fetch;
    const size_t item = shoal_dtype_bytes(shoali_zero_dtype(weights->setup));
    int64_t left = limit->model_persistence;
    for (int32_t u = 0; u < layout->unit_count; u++) {
        const struct shoali_zero_unit *unit = &layout->unit[u];
        bool stays = unit->alike_count <= left && unit->alike_count > 0;
        for (int32_t i = unit->first_param; i < unit->first_param + unit->param_count; i++)
            stays = stays && layout->args.module->param[i]->alike_count <= limit->param_persistence;
        weights->unit[u].persistent = stays;
        if (!stays)
            continue;
        left -= unit->alike_count;
        const size_t bytes = unit->padded > 0 ? (size_t)unit->padded * item : 1;
        SHOAL_TRY(status, shoali_zero_alloc_shared(weights->setup, bytes, &weights->unit[u].data),
                  done);
    }
done:
    return status;
}

/* Where weights are fetched, parameters point at what is gathered, when it is. */
static void point_all(struct shoali_zero_weights *weights)
{
    const struct shoali_zero_layout *layout = weights->layout;
    const struct shoali_module *module = layout->args.module;
    for (int32_t i = 0; i < module->param_count && !weights->setup->fetches; i++) {
        const struct shoali_zero_unit *unit = &layout->unit[layout->unit_of_param[i]];
        module->param[i]->data = shoali_zero_at(
            weights->data, unit->whole + (module->param[i]->begin - unit->begin), module->dtype);
    }
    for (int32_t u = 0; u < layout->unit_count && weights->setup->fetches; u++)
        point_params(weights, u);
}

shoal_status shoali_zero_weights_init(struct shoali_zero_weights *weights)
{
    shoal_status status = SHOAL_ENOMEM;
    const struct shoali_zero_setup *setup = weights->setup;
    const struct shoali_zero_layout *layout = weights->layout;
    const size_t bytes = (size_t)(setup->fetches ? layout->part_count : layout->whole_count) *
                         shoal_dtype_bytes(shoali_zero_dtype(setup));
    weights->unit = shoali_calloc((size_t)layout->unit_count + 1, sizeof *weights->unit, "weights");
    if (!weights->unit)
        goto done;
    status = SHOAL_OK;
    /* at stage 0 weights never travel after creation: memory of the rank's own has larger pages */
    if (setup->args.offload.param == SHOALI_ZERO_DEVICE)
        SHOAL_TRY(status,
                  setup->stage == 0
                      ? shoali_device_alloc_zeroed(setup->args.exec.stream, bytes, &weights->data)
                      : shoali_zero_alloc_shared(setup, bytes, &weights->data),
                  done);
    SHOAL_TRY(status, shoali_zero_hpz_init(&weights->hpz, setup, layout), done);
    if (setup->fetches)
        SHOAL_TRY(status, choose_persistent(weights), done);
    point_all(weights);
done:
    return status;
}

void shoali_zero_weights_fini(struct shoali_zero_weights *weights)
{
    if (!weights->setup)
        return;
    const struct shoali_zero_setup *setup = weights->setup;
    shoali_zero_hpz_fini(&weights->hpz);
    for (int32_t u = weights->unit ? weights->layout->unit_count - 1 : -1; u >= 0; u--)
        if (weights->unit[u].persistent) /* the last one is found first in the group's list */
            shoali_zero_free_shared(setup, weights->unit[u].data);
    if (setup->stage > 0)
        shoali_zero_free_shared(setup, weights->data);
    else if (weights->data)
        shoali_device_free(setup->args.device, weights->data);
    shoali_free(weights->unit);
}

int64_t shoali_zero_weights_bytes(const struct shoali_zero_weights *weights)
{
    const struct shoali_zero_layout *layout = weights->layout;
    int64_t count = weights->setup->fetches ? layout->part_count : layout->whole_count;
    if (!weights->data)
        count = 0;
    for (int32_t u = 0; u < layout->unit_count; u++)
        count += weights->unit[u].persistent ? layout->unit[u].padded : 0;
    count += shoali_zero_hpz_count(&weights->hpz);
    return count * (int64_t)shoal_dtype_bytes(shoali_zero_dtype(weights->setup));
}
