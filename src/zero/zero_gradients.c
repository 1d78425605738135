/* From the micro-batches' gradients to their sum over ranks. */
#include "zero/zero_internal.h"

#include <math.h>

double shoali_zero_seed(struct shoali_zero *zero, double loss_scale)
{
    zero->forget_errors = zero->forget_errors || loss_scale != zero->loss_scale;
    zero->loss_scale = loss_scale;
    return zero->args.exact ? loss_scale : loss_scale / (double)zero->args.gas;
}

/* ---- sinks ---------------------------------------------------------------------------------- */

static void point_sinks(struct shoali_zero *zero, const struct shoali_zero_unit *unit, void *buffer,
                        bool accumulate)
{
    const struct shoali_module *module = zero->args.module;
    const shoal_dtype dtype = shoali_zero_gradient_dtype(zero);
    const int64_t micro_batches = zero->args.gas * zero->world;
    for (int32_t i = unit->first_param; i < unit->first_param + unit->param_count; i++) {
        struct shoal_param *param = module->param[i];
        const int32_t head_room =
            shoali_zero_ceil_log2(micro_batches * (param->uses > 0 ? param->uses : 1));
        param->sink = (struct shoali_sink){
            .destination = shoali_zero_at(buffer, zero->offset[i] - unit->begin, dtype),
            .dtype = dtype,
            .accumulate = accumulate,
            .unit_log2 = zero->args.unit_log2,
            .limit = ldexp(1.0, 63 - zero->args.unit_log2 - head_room),
            .flag = zero->param_flag + i,
        };
    }
}

/* Elements of a message of stage 0, where every rank needs every sum. */
static int64_t message_limit(const struct shoali_zero *zero)
{
    const int64_t limit = zero->args.reduce_bucket_size;
    return limit > 0 && limit < zero->flat_count ? limit : zero->flat_count;
}

static int32_t message_count(const struct shoali_zero *zero)
{
    if (zero->stage > 0)
        return zero->bucket_count;
    return zero->flat_count ? (int32_t)((zero->flat_count - 1) / message_limit(zero) + 1) : 0;
}

shoal_status shoali_zero_micro_begin(struct shoali_zero *zero, int64_t index)
{
    shoal_status status = SHOAL_OK;
    zero->micro = index;
    if (index == 0) {
        SHOAL_TRY(status, shoali_clip_begin(&zero->clip), done);
        SHOAL_TRY(status, shoali_fill(zero->args.exec.stream, zero->loss_sum, 0, zero->small_bytes),
                  done);
    }
    for (int32_t u = 0; u < zero->unit_count && zero->stage < 2; u++)
        point_sinks(
            zero, &zero->unit[u],
            shoali_zero_at(zero->gradients, zero->unit[u].whole, shoali_zero_gradient_dtype(zero)),
            index > 0);
    SHOAL_TRY(status, shoali_zero_gradients_settle(zero), done);
    zero->unsent = zero->stage < 2 ? message_count(zero) : 0;
    for (int32_t i = 0; i < zero->args.module->param_count; i++)
        zero->ready[i] = false;
done:
    return status;
}

/* ---- sums over ranks ------------------------------------------------------------------------ */

/* What gradients are multiplied with before the sum. */
static double factor_before(const struct shoali_zero *zero)
{
    const struct shoali_zero_args *args = &zero->args;
    if (args->exact || zero->world == 1)
        return 1.0;
    if (args->prescale_gradients)
        return args->gradient_sum ? 1.0 : 1.0 / (double)zero->world;
    return args->gradient_predivide_factor != 1.0 ? 1.0 / args->gradient_predivide_factor : 1.0;
}

/* What the sums are too large by, loss scale aside. */
static double factor_after(const struct shoali_zero *zero)
{
    const struct shoali_zero_args *args = &zero->args;
    const double ranks = args->exact || args->gradient_sum ? 1.0 : (double)zero->world;
    if (args->exact || zero->world == 1)
        return ranks;
    if (args->prescale_gradients)
        return 1.0;
    return args->gradient_predivide_factor != 1.0 ? ranks / args->gradient_predivide_factor : ranks;
}

static shoal_status scale(const struct shoali_zero_channel *channel, const struct shoali_zero *zero,
                          void *gradients, int64_t count)
{
    const double factor = factor_before(zero);
    if (factor == 1.0)
        return SHOAL_OK;
    return shoali_op_unary(&channel->exec, &(struct shoali_unary_args){.x = gradients,
                                                                       .y = gradients,
                                                                       .count = count,
                                                                       .alpha = factor,
                                                                       .kind = SHOALI_SCALE,
                                                                       .dtype = SHOAL_F32});
}

static shoal_status all_reduce(const struct shoali_zero_channel *channel,
                               const struct shoali_post *named, void *data)
{
    struct shoali_post post = *named;
    post.kind = SHOALI_ALL_REDUCE;
    post.in = post.out = data;
    return shoali_comm_device(channel->group, channel->exec.stream, &post);
}

/* Sums a bucket; the own part of the sum goes to `out`. `named`: all but the buffers. */
static shoal_status reduce_bucket(const struct shoali_zero_channel *channel,
                                  const struct shoali_zero *zero,
                                  const struct shoali_zero_bucket *bucket,
                                  const struct shoali_post *named, void *whole, void *out)
{
    shoal_status status;
    struct shoali_post post = *named;
    if (zero->args.quantized_gradients && zero->stage == 3)
        return shoali_zero_reduce_quantized(channel, zero, bucket, named, whole, out);
    post.kind = SHOALI_REDUCE_SCATTER;
    post.in = whole;
    post.out = out;
    post.count = bucket->part;
    if (!zero->args.all_reduce)
        return shoali_comm_device(channel->group, channel->exec.stream, &post);
    post.count = zero->parts * bucket->part;
    SHOAL_TRY(status, all_reduce(channel, &post, whole), done);
    SHOAL_TRY(status,
              shoali_copy(channel->exec.stream, out,
                          shoali_zero_at(whole, zero->seat * bucket->part, post.dtype),
                          (size_t)bucket->part * shoal_dtype_bytes(post.dtype),
                          SHOALI_DEVICE_TO_DEVICE),
              done);
done:
    return status;
}

/* Sums a bucket's gradients into the own part. */
static shoal_status sum_bucket(const struct shoali_zero_channel *channel,
                               const struct shoali_zero *zero,
                               const struct shoali_zero_bucket *bucket,
                               const struct shoali_post *named, void *whole, bool accumulate)
{
    shoal_status status;
    void *part = shoali_zero_at(zero->part_gradients, bucket->local, named->dtype);
    SHOAL_TRY(status, scale(channel, zero, whole, zero->parts * bucket->part), done);
    SHOAL_TRY(status,
              reduce_bucket(channel, zero, bucket, named, whole, accumulate ? zero->arrival : part),
              done);
    if (accumulate)
        SHOAL_TRY(status,
                  shoali_op_axpy(&channel->exec, &(struct shoali_axpy_args){.x = zero->arrival,
                                                                            .y = part,
                                                                            .count = bucket->part,
                                                                            .a = 1.0,
                                                                            .accumulate = 1,
                                                                            .dtype = SHOAL_F32}),
                  done);
done:
    return status;
}

/* Job of stages 2 and 3: a unit. */
static shoal_status reduce_unit(const struct shoali_zero_channel *channel,
                                const struct shoali_zero_job *job)
{
    shoal_status status = SHOAL_OK;
    char here[SHOALI_ZERO_HERE_BYTES];
    const struct shoali_zero *zero = job->zero;
    const struct shoali_zero_unit *unit = job->unit;
    const struct shoali_post named = {.here = shoali_zero_here(unit, SHOAL_HERE, here),
                                      .tag = (int32_t)(unit - zero->unit),
                                      .dtype = shoali_zero_gradient_dtype(zero),
                                      .op = SHOAL_SUM};
    for (int32_t b = unit->first_bucket; b < unit->first_bucket + unit->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &zero->bucket[b];
        void *whole = shoali_zero_at(job->buffer, bucket->whole - unit->whole, named.dtype);
        SHOAL_TRY(status, sum_bucket(channel, zero, bucket, &named, whole, job->accumulate), done);
    }
done:
    return status;
}

/* ---- stages 0, 1: message by message in the last micro-batch's backward --------------------- */

static int64_t message_begin(const struct shoali_zero *zero, int32_t message)
{
    return zero->stage > 0 ? zero->bucket[message].begin : message * message_limit(zero);
}

/* Job of stages 0 and 1. */
static shoal_status reduce_message(const struct shoali_zero_channel *channel,
                                   const struct shoali_zero_job *job)
{
    shoal_status status;
    const struct shoali_zero *zero = job->zero;
    struct shoali_post named = {.here = SHOAL_HERE,
                                .tag = job->message,
                                .dtype = shoali_zero_gradient_dtype(zero),
                                .op = SHOAL_SUM};
    if (zero->stage > 0) {
        const struct shoali_zero_bucket *bucket = &zero->bucket[job->message];
        return sum_bucket(channel, zero, bucket, &named,
                          shoali_zero_at(zero->gradients, bucket->whole, named.dtype), false);
    }
    const int64_t begin = message_begin(zero, job->message), limit = message_limit(zero);
    char *data = shoali_zero_at(zero->gradients, begin, named.dtype);
    named.count = limit < zero->flat_count - begin ? limit : zero->flat_count - begin;
    SHOAL_TRY(status, scale(channel, zero, data, named.count), done);
    SHOAL_TRY(status, all_reduce(channel, &named, data), done);
done:
    return status;
}

/* Messages from the end of the flat space, which backward completes first, down to `begin`. */
static shoal_status send_messages(struct shoali_zero *zero, int64_t begin)
{
    shoal_status status = SHOAL_OK;
    uint32_t ticket;
    while (zero->unsent > 0 && message_begin(zero, zero->unsent - 1) >= begin) {
        zero->unsent--;
        SHOAL_TRY(status,
                  shoali_zero_post(
                      zero,
                      &(struct shoali_zero_job){.run = reduce_message, .message = zero->unsent},
                      &ticket),
                  done);
    }
done:
    return status;
}

/* Frozen parameters and those that no op used have no gradient; the tape would say the latter only
 * at its end, and the buffer may hold what another unit left. What the tape writes later would be
 * zeros, into a buffer that is being sent or is another unit's: it adds nothing instead. */
static shoal_status zero_unused(struct shoali_zero *zero, int32_t first, int32_t count)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = zero->args.module;
    for (int32_t i = first; i < first + count; i++) {
        struct shoal_param *param = module->param[i];
        if (!zero->ready[i] && !param->sink.accumulate)
            SHOAL_TRY(status,
                      shoali_fill(zero->args.exec.stream, param->sink.destination, 0,
                                  (size_t)param->count * shoal_dtype_bytes(param->sink.dtype)),
                      done);
        param->sink.accumulate = true;
    }
done:
    return status;
}

shoal_status shoali_zero_layer_done(struct shoali_zero *zero, int32_t index)
{
    shoal_status status = SHOAL_OK;
    const int32_t first = zero->own_first[index], count = zero->own_first[index + 1] - first;
    if (zero->micro + 1 < zero->args.gas || count == 0)
        return SHOAL_OK;
    SHOAL_TRY(status, zero_unused(zero, first, count), done);
    SHOAL_TRY(status, send_messages(zero, zero->offset[first]), done);
done:
    return status;
}

/* Job of MiCS: the own parts' sums over the ranks that have the same. */
static shoal_status reduce_replicas(const struct shoali_zero_channel *channel,
                                    const struct shoali_zero_job *job)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero *zero = job->zero;
    struct shoali_zero_channel over = *channel;
    struct shoali_post post = {
        .here = SHOAL_HERE, .dtype = shoali_zero_gradient_dtype(zero), .op = SHOAL_SUM};
    const int64_t limit =
        zero->args.reduce_bucket_size > 0 ? zero->args.reduce_bucket_size : zero->part_count;
    over.group = channel->replicas;
    for (int64_t at = 0; at < zero->part_count; at += post.count) {
        post.count = limit < zero->part_count - at ? limit : zero->part_count - at;
        SHOAL_TRY(status,
                  all_reduce(&over, &post, shoali_zero_at(zero->part_gradients, at, post.dtype)),
                  done);
    }
done:
    return status;
}

shoal_status shoali_zero_sum_gradients(struct shoali_zero *zero, double *factor)
{
    shoal_status status = SHOAL_OK;
    uint32_t ticket;
    *factor = factor_after(zero);
    if (zero->stage < 2 && zero->world > 1)
        SHOAL_TRY(status, send_messages(zero, 0), done);
    SHOAL_TRY(status, shoali_zero_gradients_settle(zero), done);
    if (zero->replicas > 1 && zero->stage > 0)
        SHOAL_TRY(
            status,
            shoali_zero_post(zero, &(struct shoali_zero_job){.run = reduce_replicas}, &ticket),
            done);
    SHOAL_TRY(status, shoali_zero_await_all(zero), done);
done:
    return status;
}

/* ---- stages 2, 3: unit by unit during backward ---------------------------------------------- */

/* Exact sums of the step's earlier micro-batches ride in their owner's contribution: integers may
 * be added in any order, and so they are added once. fp32 sums are added after the sum over ranks.
 */
static bool rides_along(const struct shoali_zero *zero)
{
    return zero->args.exact && zero->micro > 0;
}

static shoal_status load_sums(struct shoali_zero *zero, const struct shoali_zero_unit *unit)
{
    shoal_status status;
    struct shoali_device_stream *stream = zero->args.exec.stream;
    const shoal_dtype dtype = shoali_zero_gradient_dtype(zero);
    const size_t item = shoal_dtype_bytes(dtype);
    SHOAL_TRY(status, shoali_fill(stream, unit->gradients, 0, (size_t)unit->padded * item), done);
    for (int32_t b = unit->first_bucket; b < unit->first_bucket + unit->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &zero->bucket[b];
        const int64_t own = bucket->whole - unit->whole + zero->seat * bucket->part;
        SHOAL_TRY(status,
                  shoali_copy(stream, shoali_zero_at(unit->gradients, own, dtype),
                              shoali_zero_at(zero->part_gradients, bucket->local, dtype),
                              (size_t)bucket->part * item, SHOALI_DEVICE_TO_DEVICE),
                  done);
    }
done:
    return status;
}

shoal_status shoali_zero_gradients_begin(struct shoali_zero *zero, int32_t index)
{
    shoal_status status = SHOAL_OK;
    const size_t item = shoal_dtype_bytes(shoali_zero_gradient_dtype(zero));
    for (int32_t n = zero->need_begin[index]; n < zero->need_begin[index + 1]; n++) {
        struct shoali_zero_unit *unit = &zero->unit[zero->need[n]];
        if (!unit->trains || unit->gradients)
            continue;
        if (zero->reducing.unit == unit) /* its sums are about to be read */
            SHOAL_TRY(status, shoali_zero_gradients_settle(zero), done);
        SHOAL_TRY(status,
                  shoali_zero_take(zero, (size_t)unit->padded * item, &unit->gradients_home,
                                   &unit->gradients),
                  done);
        point_sinks(zero, unit, unit->gradients, rides_along(zero));
        if (rides_along(zero) && !zero->planning)
            SHOAL_TRY(status, load_sums(zero, unit), done);
    }
done:
    return status;
}

shoal_status shoali_zero_gradients_settle(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    if (!zero->reducing.unit)
        return SHOAL_OK;
    if (!zero->planning)
        SHOAL_TRY(status, shoali_zero_await(zero, zero->reducing.ticket), done);
    shoali_zero_give(zero, zero->reducing.gradients);
    zero->reducing.unit = NULL;
done:
    return status;
}

/* One unit at a time is summed, beside the backward of the next: that takes one buffer more. */
shoal_status shoali_zero_gradients_end(struct shoali_zero *zero, int32_t index)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_unit *unit =
        zero->own_unit[index] < 0 ? NULL : &zero->unit[zero->own_unit[index]];
    if (!unit || !unit->gradients)
        return SHOAL_OK;
    struct shoali_zero_job job = {.run = reduce_unit,
                                  .unit = unit,
                                  .buffer = unit->gradients,
                                  .accumulate = zero->micro > 0 && !rides_along(zero)};
    SHOAL_TRY(status, shoali_zero_gradients_settle(zero), done);
    zero->reducing.ticket = 0;
    if (!zero->planning) {
        SHOAL_TRY(status, zero_unused(zero, unit->first_param, unit->param_count), done);
        if (zero->forget_errors)
            SHOAL_TRY(status, shoali_zero_forget_errors(zero), done);
        SHOAL_TRY(status, shoali_zero_post(zero, &job, &zero->reducing.ticket), done);
    }
    zero->reducing.unit = unit;
    zero->reducing.gradients = unit->gradients;
    unit->gradients = NULL;
    if (!zero->comm.worker)
        SHOAL_TRY(status, shoali_zero_gradients_settle(zero), done);
done:
    return status;
}

/* ---- the sums as fp32 ----------------------------------------------------------------------- */

int64_t shoali_zero_piece(const struct shoali_zero *zero)
{
    int64_t piece = zero->args.exact ? zero->chunk_count : INT64_MAX;
    if (zero->stage == 3 && zero->args.sub_group_size > 0 && zero->args.sub_group_size < piece)
        piece = zero->args.sub_group_size;
    return piece;
}

shoal_status shoali_zero_final_gradient(struct shoali_zero *zero, int64_t local, int64_t count,
                                        const float **gradient)
{
    void *sums = zero->part_gradients ? zero->part_gradients : zero->gradients;
    if (!zero->args.exact) {
        *gradient = (const float *)sums + local;
        return SHOAL_OK;
    }
    *gradient = zero->chunk;
    return shoali_op_from_fixed(
        &zero->args.exec,
        &(struct shoali_from_fixed_args){.fixed = (const int64_t *)sums + local,
                                         .y = zero->chunk,
                                         .count = count,
                                         .unit_log2 = zero->args.unit_log2,
                                         .divisor = (double)(zero->args.gas * zero->world)});
}
