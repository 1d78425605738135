/* Weights on demand: which units are gathered, when they come and when they go. Every decision is a
 * function of the layer list, so all ranks gather the same units in the same order.
 *
 * A pass over the model has positions: layer i computes forward at position i, and backward, when
 * there is training, at 2 * layers - 1 - i. */
#include "zero/zero_internal.h"

/* ---- one unit ------------------------------------------------------------------------------- */

static shoal_status gather_bucket(const struct shoali_zero_channel *channel,
                                  const struct shoali_zero *zero,
                                  const struct shoali_zero_bucket *bucket,
                                  const struct shoali_post *named, const void *own, void *out)
{
    struct shoali_post post = *named;
    if (zero->args.quantized_weights && zero->stage == 3)
        return shoali_zero_gather_quantized(channel, zero, bucket, named, own, out);
    post.kind = SHOALI_ALL_GATHER;
    post.in = own;
    post.out = out;
    post.count = bucket->part;
    post.dtype = zero->args.module->dtype;
    return shoali_comm_device(channel->group, channel->exec.stream, &post);
}

/* hpZ: this rank's slice of the second copy of a bucket. */
static void *second_of(const struct shoali_zero *zero, const struct shoali_zero_bucket *bucket)
{
    return shoali_zero_at(zero->second, bucket->whole / zero->nearby, zero->args.module->dtype);
}

static int64_t second_count(const struct shoali_zero *zero, const struct shoali_zero_bucket *bucket)
{
    return zero->parts * bucket->part / zero->nearby;
}

static shoal_status gather_second(const struct shoali_zero_channel *channel,
                                  const struct shoali_zero *zero,
                                  const struct shoali_zero_bucket *bucket,
                                  const struct shoali_post *named, void *out)
{
    struct shoali_post post = *named;
    post.kind = SHOALI_ALL_GATHER;
    post.in = second_of(zero, bucket);
    post.out = out;
    post.count = second_count(zero, bucket);
    post.dtype = zero->args.module->dtype;
    return shoali_comm_device(channel->nearby, channel->exec.stream, &post);
}

static shoal_status keep_second(const struct shoali_zero_channel *channel,
                                const struct shoali_zero *zero,
                                const struct shoali_zero_bucket *bucket, void *gathered)
{
    const shoal_dtype dtype = zero->args.module->dtype;
    const int64_t count = second_count(zero, bucket);
    return shoali_copy(channel->exec.stream, second_of(zero, bucket),
                       shoali_zero_at(gathered, zero->rank % zero->nearby * count, dtype),
                       (size_t)count * shoal_dtype_bytes(dtype), SHOALI_DEVICE_TO_DEVICE);
}

/* Job: the unit's buckets into its buffer. */
static shoal_status gather_unit(const struct shoali_zero_channel *channel,
                                const struct shoali_zero_job *job)
{
    shoal_status status = SHOAL_OK;
    char here[SHOALI_ZERO_HERE_BYTES];
    const struct shoali_zero *zero = job->zero;
    const struct shoali_zero_unit *unit = job->unit;
    const shoal_dtype dtype = zero->args.module->dtype;
    const struct shoali_post named = {.here = shoali_zero_here(unit, SHOAL_HERE, here),
                                      .tag = (int32_t)(unit - zero->unit)};
    for (int32_t b = unit->first_bucket; b < unit->first_bucket + unit->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &zero->bucket[b];
        char *out = shoali_zero_at(job->buffer, bucket->whole - unit->whole, dtype);
        if (job->nearby) {
            SHOAL_TRY(status, gather_second(channel, zero, bucket, &named, out), done);
            continue;
        }
        const void *own = zero->outside.param
                              ? shoali_zero_at(out, zero->seat * bucket->part, dtype)
                              : shoali_zero_at(zero->weights, bucket->local, dtype);
        SHOAL_TRY(status, gather_bucket(channel, zero, bucket, &named, own, out), done);
        if (zero->nearby)
            SHOAL_TRY(status, keep_second(channel, zero, bucket, out), done);
    }
done:
    return status;
}

static shoal_status settle(struct shoali_zero *zero, struct shoali_zero_unit *unit)
{
    const uint32_t ticket = unit->gathering;
    unit->gathering = 0;
    return shoali_zero_await(zero, ticket);
}

static void point_params(struct shoali_zero *zero, const struct shoali_zero_unit *unit)
{
    struct shoali_module *module = zero->args.module;
    for (int32_t i = unit->first_param; i < unit->first_param + unit->param_count; i++)
        module->param[i]->data =
            unit->weights
                ? shoali_zero_at(unit->weights, zero->offset[i] - unit->begin, module->dtype)
                : NULL;
}

static shoal_status refresh(struct shoali_zero *zero, struct shoali_zero_unit *unit)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_job job = {
        .run = gather_unit, .unit = unit, .buffer = unit->weights, .nearby = unit->second};
    if (zero->outside.param && !unit->second)
        SHOAL_TRY(status, shoali_zero_load_own_parts(zero, (int32_t)(unit - zero->unit)), done);
    unit->second = zero->nearby > 0;
    if (zero->world > 1)
        SHOAL_TRY(status, shoali_zero_post(zero, &job, &unit->gathering), done);
done:
    return status;
}

static shoal_status fetch(struct shoali_zero *zero, struct shoali_zero_unit *unit)
{
    shoal_status status;
    const size_t bytes = (size_t)unit->padded * shoal_dtype_bytes(zero->args.module->dtype);
    if (unit->weights)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_zero_take(zero, bytes, &unit->weights_home, &unit->weights), done);
    zero->live += unit->count;
    zero->live_peak = zero->live > zero->live_peak ? zero->live : zero->live_peak;
    if (zero->planning)
        return SHOAL_OK;
    SHOAL_TRY(status, refresh(zero, unit), done);
    point_params(zero, unit);
done:
    return status;
}

static void release(struct shoali_zero *zero, struct shoali_zero_unit *unit)
{
    unit->holders = 0;
    if (!unit->weights || unit->persistent)
        return;
    shoali_zero_give(zero, unit->weights);
    unit->weights = NULL;
    zero->live -= unit->count;
    point_params(zero, unit);
}

/* ---- a pass over the layers ----------------------------------------------------------------- */

static int32_t position_count(const struct shoali_zero *zero)
{
    const int32_t layers = zero->args.module->layer_count;
    return zero->args.optimizer ? 2 * layers : layers;
}

static int32_t layer_at(const struct shoali_zero *zero, int32_t position)
{
    const int32_t layers = zero->args.module->layer_count;
    return position < layers ? position : 2 * layers - 1 - position;
}

/* Elements of the units of the layers at positions [0, position), where passes follow each other.
 */
static int64_t elements_until(const struct shoali_zero *zero, int64_t position)
{
    const int32_t layers = zero->args.module->layer_count, count = position_count(zero);
    const int64_t forward = zero->elements_before[layers];
    const int64_t pass = count > layers ? 2 * forward : forward;
    const int32_t at = (int32_t)(position % count);
    return position / count * pass + (at <= layers
                                          ? zero->elements_before[at]
                                          : 2 * forward - zero->elements_before[2 * layers - at]);
}

/* The next position of this pass, or of one that follows, that uses the unit; some layer does. */
static int64_t next_use(const struct shoali_zero *zero, int32_t unit, int32_t position)
{
    const int32_t layers = zero->args.module->layer_count, count = position_count(zero);
    const int32_t begin = zero->use_begin[unit], end = zero->use_begin[unit + 1];
    const bool forward = position < layers;
    /* forward: uses behind this layer begin at low; backward: uses before it end there */
    const int32_t limit = forward ? position + 1 : layer_at(zero, position);
    int32_t low = begin;
    for (int32_t high = end; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (zero->use[middle] < limit)
            low = middle + 1;
        else
            high = middle;
    }
    if (forward && low < end)
        return zero->use[low];
    if (forward && count > layers)
        return 2 * (int64_t)layers - 1 - zero->use[end - 1];
    if (!forward && low > begin)
        return 2 * (int64_t)layers - 1 - zero->use[low - 1];
    return (int64_t)count + zero->use[begin];
}

/* Another micro-batch with the same weights follows this pass, as far as this rank knows. */
static bool pass_repeats(const struct shoali_zero *zero)
{
    return !zero->args.optimizer || zero->micro + 1 < zero->args.gas;
}

static bool used_again_soon(const struct shoali_zero *zero, int32_t unit, int32_t position)
{
    const int64_t next = next_use(zero, unit, position);
    if (zero->live > zero->args.fetch.max_live ||
        (next >= position_count(zero) && !pass_repeats(zero)))
        return false;
    return elements_until(zero, next) - elements_until(zero, (int64_t)position + 1) <=
           zero->args.fetch.max_reuse_distance;
}

/* The next layer's units, while this layer computes. */
static shoal_status ask_for_layer(struct shoali_zero *zero, int32_t layer)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_fetch *limit = &zero->args.fetch;
    int64_t asked = 0;
    for (int32_t n = zero->need_begin[layer]; n < zero->need_begin[layer + 1]; n++) {
        struct shoali_zero_unit *unit = &zero->unit[zero->need[n]];
        if (unit->weights)
            continue;
        asked += unit->count;
        if (asked > limit->prefetch_bucket || zero->live + unit->count > limit->max_live)
            break;
        SHOAL_TRY(status, fetch(zero, unit), done);
    }
done:
    return status;
}

static shoal_status look_ahead(struct shoali_zero *zero, int32_t position)
{
    if (!zero->args.overlap || position + 1 >= position_count(zero))
        return SHOAL_OK;
    return ask_for_layer(zero, layer_at(zero, position + 1));
}

/* Own parts that wait in a file are read one layer before they are gathered. */
static shoal_status read_ahead(struct shoali_zero *zero, int32_t position)
{
    shoal_status status = SHOAL_OK;
    const int32_t count = position_count(zero);
    for (int32_t p = position + 1; p <= position + 2 && zero->outside.param; p++) {
        const int32_t layer = layer_at(zero, p % count);
        for (int32_t n = zero->need_begin[layer]; n < zero->need_begin[layer + 1]; n++)
            if (!zero->unit[zero->need[n]].weights && !zero->planning)
                SHOAL_TRY(status, shoali_zero_prefetch_own_parts(zero, zero->need[n]), done);
    }
done:
    return status;
}

static shoal_status hold_layer(struct shoali_zero *zero, int32_t layer)
{
    shoal_status status = SHOAL_OK;
    for (int32_t n = zero->need_begin[layer]; n < zero->need_begin[layer + 1]; n++) {
        struct shoali_zero_unit *unit = &zero->unit[zero->need[n]];
        SHOAL_TRY(status, fetch(zero, unit), done);
        SHOAL_TRY(status, settle(zero, unit), done);
        unit->holders++;
    }
done:
    return status;
}

/* A forward that had no backward, as in an evaluation, leaves units that were kept for it. */
static shoal_status drop_kept(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    for (int32_t u = 0; u < zero->unit_count; u++) {
        SHOAL_TRY(status, settle(zero, &zero->unit[u]), done);
        if (!used_again_soon(zero, u, -1))
            release(zero, &zero->unit[u]);
    }
done:
    return status;
}

static shoal_status enter(struct shoali_zero *zero, int32_t position)
{
    shoal_status status;
    if (position == 0 && zero->position != position_count(zero) - 1)
        SHOAL_TRY(status, drop_kept(zero), done);
    zero->position = position;
    SHOAL_TRY(status, hold_layer(zero, layer_at(zero, position)), done);
    SHOAL_TRY(status, look_ahead(zero, position), done);
    SHOAL_TRY(status, read_ahead(zero, position), done);
done:
    return status;
}

static void let_go(struct shoali_zero *zero, int32_t layer, int32_t position)
{
    for (int32_t n = zero->need_begin[layer]; n < zero->need_begin[layer + 1]; n++) {
        struct shoali_zero_unit *unit = &zero->unit[zero->need[n]];
        if (unit->holders > 0 && --unit->holders == 0 &&
            !used_again_soon(zero, zero->need[n], position))
            release(zero, unit);
    }
}

static void leave(struct shoali_zero *zero, int32_t position)
{
    let_go(zero, layer_at(zero, position), position);
}

/* Ranks that run their layers in different orders would sum different layers' gradients: the hash
 * of a step's scopes goes into its shared record. */
static void note_order(struct shoali_zero *zero, int32_t position)
{
    zero->order = (zero->order + (uint64_t)position + 1) * 0x9e3779b97f4a7c15u;
    zero->order ^= zero->order >> 29;
}

shoal_status shoali_zero_idle_forward(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; zero->fetches && i < zero->args.module->layer_count; i++) {
        note_order(zero, i);
        SHOAL_TRY(status, enter(zero, i), done);
        leave(zero, i);
    }
done:
    return shoali_zero_tell(zero, status);
}

/* ---- after the own parts changed ------------------------------------------------------------ */

shoal_status shoali_zero_gather_weights(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_channel here = {.group = zero->args.group, .exec = zero->args.exec};
    const shoal_dtype dtype = zero->args.module->dtype;
    if (zero->stage == 0 && !zero->fetches)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_zero_await_all(zero), done); /* the buffers go */
    for (int32_t b = 0; b < zero->bucket_count && !zero->fetches; b++) {
        char *out = shoali_zero_at(zero->weights, zero->bucket[b].whole, dtype);
        SHOAL_TRY(status,
                  gather_bucket(&here, zero, &zero->bucket[b],
                                &(struct shoali_post){.here = SHOAL_HERE, .tag = b},
                                shoali_zero_at(out, zero->seat * zero->bucket[b].part, dtype), out),
                  done);
    }
    for (int32_t u = 0; u < zero->unit_count && zero->fetches; u++) {
        zero->unit[u].gathering = 0;
        zero->unit[u].second = false;
        if (zero->unit[u].persistent)
            SHOAL_TRY(status, refresh(zero, &zero->unit[u]), done);
        release(zero, &zero->unit[u]);
    }
    SHOAL_TRY(status, shoali_zero_await_all(zero), done);
done:
    return status;
}

/* ---- the observer --------------------------------------------------------------------------- */

static int32_t backward_position(const struct shoali_zero *zero, int32_t layer)
{
    return 2 * zero->args.module->layer_count - 1 - layer;
}

static shoal_status forward_begin(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)tape;
    if (!scope->layer)
        return SHOAL_OK;
    note_order(user, scope->layer->index);
    return shoali_zero_tell(user, enter(user, scope->layer->index));
}

static shoal_status forward_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)tape;
    if (scope->layer)
        leave(user, scope->layer->index);
    return SHOAL_OK;
}

static shoal_status backward_begin(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero *zero = user;
    (void)tape;
    if (!scope->layer)
        return SHOAL_OK;
    note_order(zero, backward_position(zero, scope->layer->index));
    if (zero->fetches)
        SHOAL_TRY(status, enter(zero, backward_position(zero, scope->layer->index)), done);
    if (zero->stage >= 2)
        SHOAL_TRY(status, shoali_zero_gradients_begin(zero, scope->layer->index), done);
done:
    return shoali_zero_tell(zero, status);
}

static shoal_status backward_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero *zero = user;
    (void)tape;
    if (!scope->layer)
        return SHOAL_OK;
    if (zero->stage >= 2)
        SHOAL_TRY(status, shoali_zero_gradients_end(zero, scope->layer->index), done);
    if (zero->fetches)
        leave(zero, backward_position(zero, scope->layer->index));
done:
    return shoali_zero_tell(zero, status);
}

/* Layers of a group run again one after the other, up to the one whose backward is next. */
static shoal_status replay_begin(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    shoal_status status;
    struct shoali_zero *zero = user;
    const int32_t layer = scope->layer->index, last = layer_at(zero, zero->position + 1);
    (void)tape;
    SHOAL_TRY(status, hold_layer(zero, layer), done);
    if (zero->args.overlap && layer < last)
        SHOAL_TRY(status, ask_for_layer(zero, layer + 1), done);
done:
    return shoali_zero_tell(zero, status);
}

static shoal_status replay_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct shoali_zero *zero = user;
    (void)tape;
    let_go(zero, scope->layer->index, zero->position);
    return SHOAL_OK;
}

static shoal_status grad_ready(void *user, struct shoal_tape *tape, struct shoal_param *param)
{
    struct shoali_zero *zero = user;
    (void)tape;
    zero->ready[param->index] = true;
    return SHOAL_OK;
}

/* Stages 0 and 1 with overlap. */
static shoal_status layer_done(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)tape;
    return scope->layer ? shoali_zero_layer_done(user, scope->layer->index) : SHOAL_OK;
}

/* ---- creation ------------------------------------------------------------------------------- */

static shoal_status choose_persistent(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = zero->args.module;
    const size_t item = shoal_dtype_bytes(module->dtype);
    int64_t left = zero->args.fetch.model_persistence;
    for (int32_t u = 0; u < zero->unit_count; u++) {
        struct shoali_zero_unit *unit = &zero->unit[u];
        unit->persistent = unit->count <= left;
        for (int32_t i = unit->first_param; i < unit->first_param + unit->param_count; i++)
            unit->persistent =
                unit->persistent && module->param[i]->count <= zero->args.fetch.param_persistence;
        if (!unit->persistent)
            continue;
        left -= unit->count;
        SHOAL_TRY(status,
                  shoali_zero_alloc_shared(zero, (size_t)unit->padded * item, &unit->weights),
                  done);
        point_params(zero, unit);
    }
done:
    return status;
}

/* Walks the scopes of a pass without sending. */
static shoal_status plan_pass(struct shoali_zero *zero, int32_t positions)
{
    shoal_status status = SHOAL_OK;
    const int32_t layers = zero->args.module->layer_count;
    for (int32_t p = 0; p < positions; p++) {
        if (p == layers) /* as micro_begin does */
            SHOAL_TRY(status, shoali_zero_gradients_settle(zero), done);
        if (zero->fetches)
            SHOAL_TRY(status, enter(zero, p), done);
        if (p >= layers && zero->stage >= 2) {
            SHOAL_TRY(status, shoali_zero_gradients_begin(zero, layer_at(zero, p)), done);
            SHOAL_TRY(status, shoali_zero_gradients_end(zero, layer_at(zero, p)), done);
        }
        if (zero->fetches)
            leave(zero, p);
    }
done:
    return status;
}

/* A step, then an evaluation: the buffers of both exist before the first step. */
static shoal_status make_pool(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    const int32_t layers = zero->args.module->layer_count, count = position_count(zero);
    const int32_t passes = zero->args.optimizer && zero->args.gas > 1 ? 2 : 1;
    zero->planning = true;
    for (zero->micro = 0; zero->micro < passes; zero->micro++)
        SHOAL_TRY(status, plan_pass(zero, count), done);
    for (int32_t p = 0; p < 2; p++)
        SHOAL_TRY(status, plan_pass(zero, layers), done);
    for (int32_t u = 0; u < zero->unit_count; u++)
        release(zero, &zero->unit[u]);
    SHOAL_TRY(status, shoali_zero_gradients_settle(zero), done);
done:
    zero->planning = false;
    zero->micro = 0;
    return status;
}

shoal_status shoali_zero_watch(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    zero->observer = (struct shoali_observer){.user = zero};
    if (zero->stage < 2 && !zero->fetches) {
        if (zero->comm.worker && zero->args.optimizer) {
            zero->observer.backward_end = layer_done;
            zero->observer.grad_ready = grad_ready;
        }
        return SHOAL_OK;
    }
    if (zero->fetches) {
        zero->observer.forward_begin = forward_begin;
        zero->observer.forward_end = forward_end;
        zero->observer.replay_begin = replay_begin;
        zero->observer.replay_end = replay_end;
        SHOAL_TRY(status, choose_persistent(zero), done);
    }
    zero->observer.backward_begin = backward_begin;
    zero->observer.backward_end = backward_end;
    zero->observer.grad_ready = grad_ready;
    SHOAL_TRY(status, make_pool(zero), done);
done:
    return status;
}
