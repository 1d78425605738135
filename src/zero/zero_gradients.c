/* From the micro-batches' gradients to their sum over ranks. */
#include "zero/zero_internal.h"

#include <math.h>

double shoali_zero_seed(const struct shoali_zero *zero, double loss_scale)
{
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

shoal_status shoali_zero_micro_begin(struct shoali_zero *zero, int64_t index)
{
    shoal_status status = SHOAL_OK;
    zero->micro = index;
    if (index == 0) {
        SHOAL_TRY(status, shoali_clip_begin(&zero->clip), done);
        SHOAL_TRY(status, shoali_fill(zero->args.exec.stream, zero->loss_sum, 0, zero->small_bytes),
                  done);
    }
    if (zero->stage < 2)
        point_sinks(zero, &zero->unit[0], zero->gradients, index > 0);
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

static shoal_status scale(struct shoali_zero *zero, void *gradients, int64_t count)
{
    const double factor = factor_before(zero);
    if (factor == 1.0)
        return SHOAL_OK;
    return shoali_op_unary(&zero->args.exec, &(struct shoali_unary_args){.x = gradients,
                                                                         .y = gradients,
                                                                         .count = count,
                                                                         .alpha = factor,
                                                                         .kind = SHOALI_SCALE,
                                                                         .dtype = SHOAL_F32});
}

static shoal_status all_reduce(struct shoali_zero *zero, void *data, int64_t count)
{
    return shoali_comm_device(zero->args.group, zero->args.exec.stream,
                              &(struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                                    .here = SHOAL_HERE,
                                                    .in = data,
                                                    .out = data,
                                                    .count = count,
                                                    .dtype = shoali_zero_gradient_dtype(zero),
                                                    .op = SHOAL_SUM});
}

/* Sums a bucket; the own part of the sum goes to `out`. */
static shoal_status reduce_bucket(struct shoali_zero *zero, const struct shoali_zero_bucket *bucket,
                                  void *whole, void *out)
{
    shoal_status status;
    const shoal_dtype dtype = shoali_zero_gradient_dtype(zero);
    if (!zero->args.all_reduce)
        return shoali_comm_device(zero->args.group, zero->args.exec.stream,
                                  &(struct shoali_post){.kind = SHOALI_REDUCE_SCATTER,
                                                        .here = SHOAL_HERE,
                                                        .in = whole,
                                                        .out = out,
                                                        .count = bucket->part,
                                                        .dtype = dtype,
                                                        .op = SHOAL_SUM});
    SHOAL_TRY(status, all_reduce(zero, whole, zero->world * bucket->part), done);
    SHOAL_TRY(status,
              shoali_copy(zero->args.exec.stream, out,
                          shoali_zero_at(whole, zero->rank * bucket->part, dtype),
                          (size_t)bucket->part * shoal_dtype_bytes(dtype), SHOALI_DEVICE_TO_DEVICE),
              done);
done:
    return status;
}

static shoal_status add(struct shoali_zero *zero, const void *x, void *y, int64_t count)
{
    return shoali_op_axpy(
        &zero->args.exec,
        &(struct shoali_axpy_args){
            .x = x, .y = y, .count = count, .a = 1.0, .accumulate = 1, .dtype = SHOAL_F32});
}

/* Sums a unit's gradients into the own parts. */
static shoal_status reduce_unit(struct shoali_zero *zero, const struct shoali_zero_unit *unit,
                                void *gradients, bool accumulate)
{
    shoal_status status;
    const shoal_dtype dtype = shoali_zero_gradient_dtype(zero);
    SHOAL_TRY(status, scale(zero, gradients, unit->padded), done);
    for (int32_t b = unit->first_bucket; b < unit->first_bucket + unit->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &zero->bucket[b];
        void *part = shoali_zero_at(zero->part_gradients, bucket->local, dtype);
        SHOAL_TRY(status,
                  reduce_bucket(zero, bucket,
                                shoali_zero_at(gradients, bucket->whole - unit->whole, dtype),
                                accumulate ? zero->arrival : part),
                  done);
        if (accumulate)
            SHOAL_TRY(status, add(zero, zero->arrival, part, bucket->part), done);
    }
done:
    return status;
}

/* Stage 0: every rank needs every sum. */
static shoal_status reduce_everywhere(struct shoali_zero *zero)
{
    shoal_status status;
    const shoal_dtype dtype = shoali_zero_gradient_dtype(zero);
    const int64_t limit = zero->args.reduce_bucket_size;
    const int64_t bucket = limit > 0 ? limit : zero->flat_count;
    SHOAL_TRY(status, scale(zero, zero->gradients, zero->flat_count), done);
    for (int64_t at = 0; at < zero->flat_count; at += bucket) {
        const int64_t left = zero->flat_count - at;
        SHOAL_TRY(status,
                  all_reduce(zero, shoali_zero_at(zero->gradients, at, dtype),
                             left < bucket ? left : bucket),
                  done);
    }
done:
    return status;
}

shoal_status shoali_zero_sum_gradients(struct shoali_zero *zero, double *factor)
{
    *factor = factor_after(zero);
    if (zero->world == 1 || zero->stage >= 2)
        return SHOAL_OK;
    return zero->stage == 0 ? reduce_everywhere(zero)
                            : reduce_unit(zero, &zero->unit[0], zero->gradients, false);
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
        const int64_t own = bucket->whole - unit->whole + zero->rank * bucket->part;
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
        SHOAL_TRY(status, shoali_zero_take(zero, (size_t)unit->padded * item, &unit->gradients),
                  done);
        point_sinks(zero, unit, unit->gradients, rides_along(zero));
        if (rides_along(zero) && !zero->planning)
            SHOAL_TRY(status, load_sums(zero, unit), done);
    }
done:
    return status;
}

/* Frozen parameters and those that no op used have no gradient; the tape would say the latter only
 * at its end, and the buffer holds what another unit left. */
static shoal_status zero_unused(struct shoali_zero *zero, const struct shoali_zero_unit *unit)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = zero->args.module;
    for (int32_t i = unit->first_param; i < unit->first_param + unit->param_count; i++) {
        const struct shoal_param *param = module->param[i];
        if (zero->ready[i])
            continue;
        SHOAL_TRY(status,
                  shoali_fill(zero->args.exec.stream, param->sink.destination, 0,
                              (size_t)param->count * shoal_dtype_bytes(param->sink.dtype)),
                  done);
    }
done:
    return status;
}

shoal_status shoali_zero_gradients_end(struct shoali_zero *zero, int32_t index)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_unit *unit =
        zero->own_unit[index] < 0 ? NULL : &zero->unit[zero->own_unit[index]];
    if (!unit || !unit->gradients)
        return SHOAL_OK;
    if (!zero->planning) {
        if (!rides_along(zero))
            SHOAL_TRY(status, zero_unused(zero, unit), done);
        SHOAL_TRY(status,
                  reduce_unit(zero, unit, unit->gradients, zero->micro > 0 && !rides_along(zero)),
                  done);
    }
    /* What the tape writes later would be zeros for unused parameters, into another unit's buffer:
     * adding nothing instead. */
    point_sinks(zero, unit, unit->gradients, true);
    shoali_zero_give(zero, unit->gradients);
    unit->gradients = NULL;
done:
    return status;
}

/* ---- the sums as fp32 ----------------------------------------------------------------------- */

int64_t shoali_zero_piece(const struct shoali_zero *zero)
{
    int64_t piece = zero->args.exact ? SHOALI_ZERO_CHUNK : INT64_MAX;
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
