/* From the micro-batches' gradients to their sum over ranks. */
#include "zero/reduce.h"

#include "zero/mics.h"

#include <math.h>

static bool is_frozen(const struct shoali_zero_gradients *gradients, int32_t param)
{
    return (gradients->layout->args.module->param[param]->tags & SHOAL_PARAM_FROZEN) != 0;
}

/* ---- sinks ---------------------------------------------------------------------------------- */

/* buffer NULL: nothing may be written. */
static void point_sinks(struct shoali_zero_gradients *gradients, int32_t index, void *buffer,
                        bool accumulate)
{
    const struct shoali_zero_setup *setup = gradients->setup;
    const struct shoali_zero_layout *layout = gradients->layout;
    const struct shoali_zero_unit *unit = &layout->unit[index];
    const shoal_dtype dtype = shoali_zero_gradient_dtype(setup);
    for (int32_t i = unit->first_param; i < unit->first_param + unit->param_count; i++) {
        struct shoal_param *param = layout->args.module->param[i];
        const int64_t each = setup->args.contributions > 1 ? setup->args.contributions : 1;
        const int32_t head_room = shoali_zero_ceil_log2(setup->micro_batches *
                                                        (param->uses > 0 ? param->uses : 1) * each);
        param->sink = (struct shoali_sink){
            .destination =
                buffer ? shoali_zero_at(buffer, param->begin - unit->begin, dtype) : NULL,
            .dtype = dtype,
            .accumulate = accumulate,
            .unit_log2 = setup->args.unit_log2,
            .limit = ldexp(1.0, 63 - setup->args.unit_log2 - head_room),
            .flag = gradients->flag + i,
        };
    }
}

/* What no contribution reached: frozen parameters, and those of layers that did not run. The buffer
 * may hold what another unit left. */
static shoal_status zero_untouched(struct shoali_zero_gradients *gradients, int32_t unit,
                                   bool frozen)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_unit *of = &gradients->layout->unit[unit];
    for (int32_t i = of->first_param; i < of->first_param + of->param_count; i++) {
        struct shoal_param *param = gradients->layout->args.module->param[i];
        if (param->sink.accumulate || (is_frozen(gradients, i) && !frozen))
            continue;
        SHOAL_TRY(status,
                  shoali_fill(gradients->setup->args.exec.stream, param->sink.destination, 0,
                              (size_t)param->count * shoal_dtype_bytes(param->sink.dtype)),
                  done);
        param->sink.accumulate = true;
    }
done:
    return status;
}

/* An abandoned backward may have left units that wait. */
static void begin_step(struct shoali_zero_gradients *gradients)
{
    const struct shoali_zero_layout *layout = gradients->layout;
    const shoal_dtype dtype = shoali_zero_gradient_dtype(gradients->setup);
    for (int32_t u = 0; u < layout->unit_count; u++) {
        struct shoali_zero_unit_gradients *unit = &gradients->unit[u];
        if (unit->buffer)
            shoali_zero_give(gradients->pool, unit->buffer);
        *unit = (struct shoali_zero_unit_gradients){.home = unit->home};
        if (gradients->setup->stage < 2)
            point_sinks(gradients, u,
                        shoali_zero_at(gradients->whole, layout->unit[u].whole, dtype), false);
    }
    for (int32_t i = 0; i < layout->args.module->param_count; i++)
        gradients->came[i] = 0;
    gradients->unsent = gradients->message_count;
    gradients->tail = layout->args.module->param_count - 1;
}

shoal_status shoali_zero_gradients_micro(struct shoali_zero_gradients *gradients, int64_t index)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_zero_gradients_settle(gradients), done);
    if (index == 0)
        begin_step(gradients);
done:
    return status;
}

/* ---- sums over ranks ------------------------------------------------------------------------ */

/* What gradients are multiplied with before the sum. */
static double factor_before(const struct shoali_zero_setup *setup)
{
    const struct shoali_zero_args *args = &setup->args;
    if (args->exact || setup->data_ranks == 1)
        return 1.0;
    if (args->prescale_gradients)
        return args->gradient_sum ? 1.0 : 1.0 / (double)setup->data_ranks;
    return args->gradient_predivide_factor != 1.0 ? 1.0 / args->gradient_predivide_factor : 1.0;
}

/* What the sums are too large by, loss scale aside. */
static double factor_after(const struct shoali_zero_setup *setup)
{
    const struct shoali_zero_args *args = &setup->args;
    const double ranks = args->exact || args->gradient_sum ? 1.0 : (double)setup->data_ranks;
    if (args->exact || setup->data_ranks == 1)
        return ranks;
    if (args->prescale_gradients)
        return 1.0;
    return args->gradient_predivide_factor != 1.0 ? ranks / args->gradient_predivide_factor : ranks;
}

static shoal_status scale(const struct shoali_zero_channel *channel,
                          const struct shoali_zero_setup *setup, void *data, int64_t count)
{
    const double factor = factor_before(setup);
    if (factor == 1.0)
        return SHOAL_OK;
    return shoali_op_unary(&channel->exec, &(struct shoali_unary_args){.x = data,
                                                                       .y = data,
                                                                       .count = count,
                                                                       .alpha = factor,
                                                                       .kind = SHOALI_SCALE,
                                                                       .dtype = SHOAL_F32});
}

/* Sums a bucket's gradients into the own part. */
static shoal_status sum_bucket(const struct shoali_zero_channel *channel,
                               const struct shoali_zero_gradients *gradients,
                               const struct shoali_zero_bucket *bucket,
                               const struct shoali_post *named, void *whole, bool accumulate)
{
    shoal_status status;
    const struct shoali_zero_wire *wire = gradients->wire;
    void *part = shoali_zero_at(gradients->part, bucket->local, named->dtype);
    void *out = accumulate ? gradients->arrival : part;
    SHOAL_TRY(status, scale(channel, gradients->setup, whole, channel->cut->parts * bucket->part),
              done);
    SHOAL_TRY(status, wire->reduce(wire->user, channel, bucket, named, whole, out), done);
    if (accumulate)
        SHOAL_TRY(status,
                  shoali_op_axpy(&channel->exec, &(struct shoali_axpy_args){.x = out,
                                                                            .y = part,
                                                                            .count = bucket->part,
                                                                            .a = 1.0,
                                                                            .accumulate = 1,
                                                                            .dtype = SHOAL_F32}),
                  done);
done:
    return status;
}

/* ---- stages 0, 1: message by message -------------------------------------------------------- */

static shoal_status reduce_message(const struct shoali_zero_channel *channel,
                                   const struct shoali_zero_job *job)
{
    shoal_status status;
    const struct shoali_zero_gradients *gradients = job->user;
    const struct shoali_zero_message *message = &gradients->message[job->index];
    const struct shoali_post named = {.here = SHOAL_HERE,
                                      .tag = message->number,
                                      .count = message->count,
                                      .dtype = shoali_zero_gradient_dtype(gradients->setup),
                                      .op = SHOAL_SUM};
    void *data = shoali_zero_at(gradients->whole, message->whole, named.dtype);
    if (gradients->setup->stage > 0)
        return sum_bucket(channel, gradients, &gradients->layout->bucket[job->index], &named, data,
                          false);
    SHOAL_TRY(status, scale(channel, gradients->setup, data, message->count), done);
    SHOAL_TRY(status, shoali_zero_all_reduce(channel, &named, data), done);
done:
    return status;
}

/* Messages from the end of the flat space, which backward completes first, down to `begin`. */
static shoal_status send_messages(struct shoali_zero_gradients *gradients, int64_t begin)
{
    shoal_status status = SHOAL_OK;
    uint32_t ticket;
    while (gradients->unsent > 0 && gradients->message[gradients->unsent - 1].begin >= begin) {
        const int32_t index = --gradients->unsent;
        struct shoali_zero_job job = {
            .run = reduce_message,
            .user = gradients,
            .group = gradients->layout->unit[gradients->message[index].unit].group,
            .index = index};
        SHOAL_TRY(status, shoali_zero_post(gradients->jobs, &job, &ticket), done);
    }
done:
    return status;
}

/* With overlap: what lies behind all parameters that are still to come. */
static shoal_status send_complete(struct shoali_zero_gradients *gradients)
{
    const struct shoali_module *module = gradients->layout->args.module;
    const int32_t before = gradients->tail;
    int32_t tail = before;
    while (tail >= 0 && (is_frozen(gradients, tail) ||
                         gradients->came[tail] ==
                             gradients->setup->args.gas * (int64_t)module->param[tail]->uses_here))
        tail--;
    gradients->tail = tail;
    if (tail == before || !gradients->jobs->side.worker)
        return SHOAL_OK;
    return send_messages(gradients, module->param[tail + 1]->begin);
}

/* ---- stages 2, 3: unit by unit -------------------------------------------------------------- */

static shoal_status reduce_unit(const struct shoali_zero_channel *channel,
                                const struct shoali_zero_job *job)
{
    shoal_status status = SHOAL_OK;
    char here[SHOALI_ZERO_HERE_BYTES];
    const struct shoali_zero_gradients *gradients = job->user;
    const struct shoali_zero_unit *unit = &gradients->layout->unit[job->index];
    const struct shoali_post named = {.here = shoali_zero_here(unit, SHOAL_HERE, here),
                                      .tag = job->index,
                                      .dtype = shoali_zero_gradient_dtype(gradients->setup),
                                      .op = SHOAL_SUM};
    for (int32_t b = unit->first_bucket; b < unit->first_bucket + unit->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &gradients->layout->bucket[b];
        void *whole = shoali_zero_at(job->buffer, bucket->whole - unit->whole, named.dtype);
        SHOAL_TRY(status, sum_bucket(channel, gradients, bucket, &named, whole, job->accumulate),
                  done);
    }
done:
    return status;
}

/* Exact sums of the step so far ride in their owner's contribution: integers may be added in any
 * order, and so they are added once. fp32 sums are added after the sum over ranks. */
static bool rides_along(const struct shoali_zero_gradients *gradients, int32_t unit)
{
    return gradients->setup->args.exact && gradients->unit[unit].summed > 0;
}

static shoal_status load_sums(struct shoali_zero_gradients *gradients, int32_t index)
{
    shoal_status status;
    const struct shoali_zero_layout *layout = gradients->layout;
    const struct shoali_zero_unit *unit = &layout->unit[index];
    void *buffer = gradients->unit[index].buffer;
    struct shoali_device_stream *stream = gradients->setup->args.exec.stream;
    const shoal_dtype dtype = shoali_zero_gradient_dtype(gradients->setup);
    const size_t item = shoal_dtype_bytes(dtype);
    const int64_t seat = layout->group[unit->group].seat;
    SHOAL_TRY(status, shoali_fill(stream, buffer, 0, (size_t)unit->padded * item), done);
    for (int32_t b = unit->first_bucket; b < unit->first_bucket + unit->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &layout->bucket[b];
        const int64_t own = bucket->whole - unit->whole + seat * bucket->part;
        SHOAL_TRY(status,
                  shoali_copy(stream, shoali_zero_at(buffer, own, dtype),
                              shoali_zero_at(gradients->part, bucket->local, dtype),
                              (size_t)bucket->part * item, SHOALI_DEVICE_TO_DEVICE),
                  done);
    }
done:
    return status;
}

static shoal_status open_unit(struct shoali_zero_gradients *gradients, int32_t index)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_unit_gradients *unit = &gradients->unit[index];
    const bool rides = rides_along(gradients, index);
    const size_t item = shoal_dtype_bytes(shoali_zero_gradient_dtype(gradients->setup));
    if (gradients->reducing.unit == index) /* its sums are about to be read */
        SHOAL_TRY(status, shoali_zero_gradients_settle(gradients), done);
    SHOAL_TRY(status,
              shoali_zero_take(gradients->pool,
                               (size_t)gradients->layout->unit[index].padded * item, &unit->home,
                               &unit->buffer),
              done);
    point_sinks(gradients, index, unit->buffer, rides);
    if (rides && !gradients->planning)
        SHOAL_TRY(status, load_sums(gradients, index), done);
done:
    return status;
}

/* Where a unit's second sum of a step arrives before it is added to the first. With one micro-batch
 * that happens only where tapes of it share a parameter: no plan counts on it. */
shoal_status shoali_zero_gradients_make_arrival(struct shoali_zero_gradients *gradients)
{
    const struct shoali_zero_layout *layout = gradients->layout;
    for (int32_t b = 0; b < layout->bucket_count && !gradients->arrival; b++)
        if (layout->bucket[b].part > gradients->arrival_count)
            gradients->arrival_count = layout->bucket[b].part;
    if (gradients->arrival_count == 0 || gradients->arrival)
        return SHOAL_OK;
    return shoali_device_alloc_zeroed(gradients->setup->args.exec.stream,
                                      (size_t)gradients->arrival_count * sizeof(float),
                                      &gradients->arrival);
}

/* Messages in few bits have a scale for each block, padding included: what another unit or an
 * overflow left there would change the numbers beside it, and NaN would never leave. */
static shoal_status zero_padding(const struct shoali_zero_gradients *gradients, int32_t index)
{
    const struct shoali_zero_unit *unit = &gradients->layout->unit[index];
    const shoal_dtype dtype = shoali_zero_gradient_dtype(gradients->setup);
    if (unit->count == unit->padded)
        return SHOAL_OK;
    return shoali_fill(gradients->setup->args.exec.stream,
                       shoali_zero_at(gradients->unit[index].buffer, unit->count, dtype), 0,
                       (size_t)(unit->padded - unit->count) * shoal_dtype_bytes(dtype));
}

/* One unit at a time is summed, beside the backward of the next: that takes one buffer more. */
static shoal_status close_unit(struct shoali_zero_gradients *gradients, int32_t index)
{
    shoal_status status;
    struct shoali_zero_unit_gradients *unit = &gradients->unit[index];
    const struct shoali_zero_wire *wire = gradients->wire;
    struct shoali_zero_job job = {.run = reduce_unit,
                                  .user = gradients,
                                  .buffer = unit->buffer,
                                  .group = gradients->layout->unit[index].group,
                                  .index = index,
                                  .accumulate = unit->summed > 0 && !rides_along(gradients, index)};
    SHOAL_TRY(status, shoali_zero_gradients_settle(gradients), done);
    gradients->reducing.ticket = 0;
    if (!gradients->planning) {
        if (job.accumulate)
            SHOAL_TRY(status, shoali_zero_gradients_make_arrival(gradients), done);
        SHOAL_TRY(status, zero_untouched(gradients, index, true), done);
        if (wire->prepare) {
            SHOAL_TRY(status, zero_padding(gradients, index), done);
            SHOAL_TRY(status, wire->prepare(wire->user, gradients->setup->args.exec.stream), done);
        }
        SHOAL_TRY(status, shoali_zero_post(gradients->jobs, &job, &gradients->reducing.ticket),
                  done);
    }
    if (gradients->planning)
        shoali_zero_jobs_note(gradients->jobs, SHOALI_ZERO_SUMS, index);
    gradients->reducing.unit = index;
    gradients->reducing.buffer = unit->buffer;
    point_sinks(gradients, index, NULL, false);
    unit->buffer = NULL;
    unit->summed++;
    if (!gradients->jobs->side.worker)
        SHOAL_TRY(status, shoali_zero_gradients_settle(gradients), done);
done:
    return status;
}

shoal_status shoali_zero_gradients_settle(struct shoali_zero_gradients *gradients)
{
    shoal_status status = SHOAL_OK;
    if (gradients->reducing.unit < 0)
        return SHOAL_OK;
    if (!gradients->planning)
        SHOAL_TRY(status, shoali_zero_await(gradients->jobs, gradients->reducing.ticket), done);
    shoali_zero_give(gradients->pool, gradients->reducing.buffer);
    gradients->reducing.unit = -1;
done:
    return status;
}

/* ---- contributions -------------------------------------------------------------------------- */

shoal_status shoali_zero_gradients_begin(struct shoali_zero_gradients *gradients, int32_t index)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = gradients->layout;
    const struct shoal_layer *layer = &layout->args.module->layer[index];
    for (int32_t n = layout->need_begin[index];
         n < layout->need_begin[index + 1] && gradients->setup->stage >= 2; n++)
        if (layout->unit[layout->need[n]].trains && !gradients->unit[layout->need[n]].buffer)
            SHOAL_TRY(status, open_unit(gradients, layout->need[n]), done);
    for (int32_t i = 0; i < layer->param_count; i++) {
        const int32_t param = layer->param[i]->index;
        gradients->unit[layout->unit_of_param[param]].waiting += !is_frozen(gradients, param);
    }
done:
    return status;
}

shoal_status shoali_zero_gradients_ready(struct shoali_zero_gradients *gradients, int32_t param,
                                         int32_t layers)
{
    const int32_t unit = gradients->layout->unit_of_param[param];
    gradients->came[param] += layers;
    gradients->unit[unit].waiting -= layers;
    if (gradients->setup->stage < 2)
        return send_complete(gradients);
    return gradients->unit[unit].waiting == 0 ? close_unit(gradients, unit) : SHOAL_OK;
}

/* ---- the step's end ------------------------------------------------------------------------- */

static shoal_status find_missing(const struct shoali_zero_gradients *gradients, int32_t unit)
{
    const struct shoali_module *module = gradients->layout->args.module;
    const struct shoali_zero_unit *of = &gradients->layout->unit[unit];
    int32_t missing = of->first_param;
    for (int32_t i = of->first_param; i < of->first_param + of->param_count; i++)
        if (!is_frozen(gradients, i) && gradients->came[i] * module->param[missing]->uses_here <
                                            gradients->came[missing] * module->param[i]->uses_here)
            missing = i;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "the step has ended, but the gradient of `%s` and others (%lld of them) are "
                      "still to come: run the weight part of every backward (defer_weight) before "
                      "it",
                      module->param[missing]->name, (long long)gradients->unit[unit].waiting);
}

/* Of layers that no micro-batch ran: gradients are zero. */
static shoal_status zero_never_run(struct shoali_zero_gradients *gradients, int32_t index)
{
    const struct shoali_zero_unit *unit = &gradients->layout->unit[index];
    const shoal_dtype dtype = shoali_zero_gradient_dtype(gradients->setup);
    if (gradients->setup->stage < 2)
        return zero_untouched(gradients, index, false);
    if (!unit->trains || gradients->unit[index].summed > 0)
        return SHOAL_OK;
    return shoali_fill(gradients->setup->args.exec.stream,
                       shoali_zero_at(gradients->part, unit->local, dtype), 0,
                       (size_t)unit->part * shoal_dtype_bytes(dtype));
}

shoal_status shoali_zero_gradients_sum(struct shoali_zero_gradients *gradients, double *factor)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = gradients->setup;
    *factor = factor_after(setup);
    for (int32_t u = 0; u < gradients->layout->unit_count; u++) {
        if (gradients->unit[u].waiting != 0)
            SHOAL_TRY(status, find_missing(gradients, u), done);
        SHOAL_TRY(status, zero_never_run(gradients, u), done);
    }
    if (setup->stage < 2 && setup->most_ranks > 1)
        SHOAL_TRY(status, send_messages(gradients, 0), done);
    SHOAL_TRY(status, shoali_zero_gradients_settle(gradients), done);
    SHOAL_TRY(status, shoali_zero_mics_reduce(gradients->jobs, gradients->part), done);
    SHOAL_TRY(status, shoali_zero_await_all(gradients->jobs), done);
done:
    return status;
}

/* The ranks of its group own the same part: it is a unit, which all of them cut alike. */
static shoal_status sum_tied(struct shoali_zero_gradients *gradients,
                             const struct shoali_zero_tied *tied)
{
    const struct shoali_zero_layout *layout = gradients->layout;
    const struct shoali_zero_unit *unit = &layout->unit[layout->unit_of_param[tied->param]];
    const bool parts = gradients->part != NULL;
    const shoal_dtype dtype = shoali_zero_gradient_dtype(gradients->setup);
    void *sums = shoali_zero_at(parts ? gradients->part : gradients->whole,
                                parts ? unit->local : unit->whole, dtype);
    if (!tied->group)
        return SHOAL_OK;
    return shoali_comm_post_on(tied->group, gradients->setup->args.exec.stream,
                               &(struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                                     .here = SHOAL_HERE,
                                                     .in = sums,
                                                     .out = sums,
                                                     .tag = tied->param,
                                                     .count = parts ? unit->part : unit->count,
                                                     .dtype = dtype,
                                                     .op = SHOAL_SUM});
}

shoal_status shoali_zero_gradients_sum_tied(struct shoali_zero_gradients *gradients)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_pipeline *pipeline = &gradients->setup->args.pipeline;
    for (int32_t i = 0; i < pipeline->tied_count; i++)
        if (!is_frozen(gradients, pipeline->tied[i].param))
            SHOAL_TRY(status, sum_tied(gradients, &pipeline->tied[i]), done);
done:
    return status;
}

int64_t shoali_zero_piece(const struct shoali_zero_gradients *gradients)
{
    const struct shoali_zero_args *args = &gradients->setup->args;
    int64_t piece = args->exact ? gradients->chunk_count : INT64_MAX;
    if (gradients->setup->stage == 3 && args->sub_group_size > 0 && args->sub_group_size < piece)
        piece = args->sub_group_size;
    return piece;
}

shoal_status shoali_zero_final_gradient(const struct shoali_zero_gradients *gradients,
                                        int64_t local, int64_t count, const float **gradient)
{
    const struct shoali_zero_setup *setup = gradients->setup;
    const void *sums = gradients->part ? gradients->part : gradients->whole;
    if (!setup->args.exact) {
        *gradient = (const float *)sums + local;
        return SHOAL_OK;
    }
    *gradient = gradients->chunk;
    return shoali_op_from_fixed(
        &setup->args.exec, &(struct shoali_from_fixed_args){.fixed = (const int64_t *)sums + local,
                                                            .y = gradients->chunk,
                                                            .count = count,
                                                            .unit_log2 = setup->args.unit_log2,
                                                            .divisor = (double)setup->mean_of});
}
