/* From the micro-batches' gradients to one verdict: sinks, sums over ranks, norm, the step's shared
 * record. */
#include "zero/zero_internal.h"

#include <math.h>
#include <string.h>

#define LOSS_UNIT_LOG2 44 /* losses are summed in units of 2^-44 */
#define LOSS_LIMIT \
    262144.0 /* 2^18, divided by the number of micro-batches: the sum stays below 2^62 units */
#define NORM_GRAIN \
    16 /* stage 0: ranks share the norm in slices of multiples of this many elements */

/* After the words of clip.h. */
enum { WORD_LOSS_NOT_FINITE = SHOALI_CLIP_WORDS, WORD_LOSS, WORD_STOP, WORD_COUNT };

double shoali_zero_seed(const struct shoali_zero *zero, double loss_scale)
{
    return zero->args.exact ? loss_scale : loss_scale / (double)zero->args.gas;
}

static int32_t ceil_log2(int64_t value)
{
    int32_t bits = 0;
    while (((int64_t)1 << bits) < value)
        bits++;
    return bits;
}

shoal_status shoali_zero_micro_begin(struct shoali_zero *zero, int64_t index)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = zero->args.module;
    const shoal_dtype dtype = zero->args.exact ? SHOAL_I64 : SHOAL_F32;
    const int64_t micro_batches = zero->args.gas * zero->world;
    if (index == 0) {
        SHOAL_TRY(status, shoali_clip_begin(&zero->clip), done);
        SHOAL_TRY(status, shoali_fill(zero->args.exec.stream, zero->loss_sum, 0, zero->small_bytes),
                  done);
    }
    for (int32_t i = 0; i < module->param_count; i++) {
        struct shoal_param *param = module->param[i];
        const int32_t head_room = ceil_log2(micro_batches * (param->uses > 0 ? param->uses : 1));
        param->sink = (struct shoali_sink){
            .destination = shoali_zero_at(zero->gradients, 0, zero->offset[i], dtype),
            .dtype = dtype,
            .accumulate = index > 0,
            .unit_log2 = zero->args.unit_log2,
            .limit = ldexp(1.0, 63 - zero->args.unit_log2 - head_room),
            .flag = zero->param_flag + i,
        };
    }
done:
    return status;
}

shoal_status shoali_zero_add_loss(struct shoali_zero *zero, const float *loss)
{
    return shoali_op_to_fixed(
        &zero->args.exec,
        &(struct shoali_to_fixed_args){
            .x = loss,
            .fixed = zero->loss_sum,
            .flag = zero->loss_flag,
            .count = 1,
            .unit_log2 = LOSS_UNIT_LOG2,
            .accumulate = 1,
            .limit = LOSS_LIMIT / (double)((int64_t)1 << ceil_log2(zero->args.gas * zero->world))});
}

static shoal_status scale_gradients(struct shoali_zero *zero, double factor)
{
    return shoali_op_unary(&zero->args.exec,
                           &(struct shoali_unary_args){.x = zero->gradients,
                                                       .y = zero->gradients,
                                                       .count = zero->padded_count,
                                                       .alpha = factor,
                                                       .kind = SHOALI_SCALE,
                                                       .dtype = SHOAL_F32});
}

static shoal_status all_reduce_buckets(struct shoali_zero *zero, shoal_dtype dtype)
{
    shoal_status status = SHOAL_OK;
    int64_t bucket =
        zero->args.reduce_bucket_size > 0 ? zero->args.reduce_bucket_size : zero->flat_count;
    for (int64_t at = 0; at < zero->flat_count; at += bucket) {
        const int64_t left = zero->flat_count - at;
        void *data = shoali_zero_at(zero->gradients, 0, at, dtype);
        SHOAL_TRY(status,
                  shoali_comm_device(zero->args.group, zero->args.exec.stream,
                                     &(struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                                           .here = SHOAL_HERE,
                                                           .in = data,
                                                           .out = data,
                                                           .count = left < bucket ? left : bucket,
                                                           .dtype = dtype,
                                                           .op = SHOAL_SUM}),
                  done);
    }
done:
    return status;
}

/* Sums over ranks; afterwards stored gradients are (true mean) * *factor * loss scale. */
static shoal_status sum_over_ranks(struct shoali_zero *zero, double *factor)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_args *args = &zero->args;
    const shoal_dtype dtype = args->exact ? SHOAL_I64 : SHOAL_F32;
    *factor = args->exact || args->gradient_sum ? 1.0 : (double)zero->world;
    if (zero->world == 1)
        return SHOAL_OK;
    if (!args->exact && args->prescale_gradients) {
        SHOAL_TRY(status, scale_gradients(zero, 1.0 / *factor), done);
        *factor = 1.0;
    } else if (!args->exact && args->gradient_predivide_factor != 1.0) {
        SHOAL_TRY(status, scale_gradients(zero, 1.0 / args->gradient_predivide_factor), done);
        *factor /= args->gradient_predivide_factor;
    }
    if (!zero->part_gradients)
        return all_reduce_buckets(zero, dtype);
    SHOAL_TRY(status,
              shoali_comm_device(args->group, args->exec.stream,
                                 &(struct shoali_post){.kind = SHOALI_REDUCE_SCATTER,
                                                       .here = SHOAL_HERE,
                                                       .in = zero->gradients,
                                                       .out = zero->part_gradients,
                                                       .count = zero->part_count,
                                                       .dtype = dtype,
                                                       .op = SHOAL_SUM}),
              done);
done:
    return status;
}

int64_t shoali_zero_piece(const struct shoali_zero *zero)
{
    return zero->args.exact ? SHOALI_ZERO_CHUNK : INT64_MAX;
}

shoal_status shoali_zero_final_gradient(struct shoali_zero *zero, int64_t begin, int64_t count,
                                        const float **gradient)
{
    int64_t base;
    void *buffer = shoali_zero_reduced(zero, &base);
    if (!zero->args.exact) {
        *gradient = (const float *)buffer + (begin - base);
        return SHOAL_OK;
    }
    *gradient = zero->chunk;
    return shoali_op_from_fixed(
        &zero->args.exec,
        &(struct shoali_from_fixed_args){.fixed = (const int64_t *)buffer + (begin - base),
                                         .y = zero->chunk,
                                         .count = count,
                                         .unit_log2 = zero->args.unit_log2,
                                         .divisor = (double)(zero->args.gas * zero->world)});
}

/* Squares of the trainable elements of [begin, end), each once over all ranks. */
static shoal_status add_norm(struct shoali_zero *zero, int64_t begin, int64_t end)
{
    shoal_status status = SHOAL_OK;
    const int64_t piece = shoali_zero_piece(zero);
    for (int32_t s = 0; s < zero->segment_count; s++) {
        const struct shoali_zero_segment *segment = &zero->segment[s];
        int64_t at = segment->begin > begin ? segment->begin : begin;
        int64_t stop =
            segment->begin + segment->count < end ? segment->begin + segment->count : end;
        for (; at < stop; at += piece < stop - at ? piece : stop - at) {
            const int64_t count = piece < stop - at ? piece : stop - at;
            const float *gradient;
            SHOAL_TRY(status, shoali_zero_final_gradient(zero, at, count, &gradient), done);
            SHOAL_TRY(status, shoali_clip_add(&zero->clip, &zero->args.exec, gradient, count),
                      done);
        }
    }
done:
    return status;
}

static shoal_status measure(struct shoali_zero *zero)
{
    int64_t begin = zero->own_begin, end = zero->own_end;
    if (!zero->part_gradients && zero->world > 1)
        shoali_pool_slice(zero->flat_count, NORM_GRAIN, zero->rank, zero->world, &begin, &end);
    return add_norm(zero, begin, end);
}

/* First parameter with an out-of-range contribution on this rank, -1 none. */
static int32_t find_rejected(const struct shoali_zero *zero, const char *flags)
{
    for (int32_t i = 0; i < zero->args.module->param_count; i++) {
        uint32_t flag;
        memcpy(&flag, flags + (size_t)i * sizeof flag, sizeof flag);
        if (flag)
            return i;
    }
    return -1;
}

/* The pinned record: control[3] at 0, then these, then the small device block as it is. */
#define RECORD_LIMBS 16
#define RECORD_FLAG 40
#define RECORD_SMALL 64

/* One small message: integer words that add up over ranks in any order. */
static shoal_status exchange_record(struct shoali_zero *zero, bool stop, int64_t words[WORD_COUNT],
                                    int32_t *rejected)
{
    shoal_status status;
    struct shoali_device_stream *stream = zero->args.exec.stream;
    char *record = zero->record;
    uint64_t limbs[3];
    uint32_t flag, loss_flag;
    SHOAL_TRY(
        status,
        shoali_copy(stream, record + RECORD_LIMBS, zero->clip.limbs, 24, SHOALI_DEVICE_TO_HOST),
        done);
    SHOAL_TRY(status,
              shoali_copy(stream, record + RECORD_FLAG, zero->clip.flag, 4, SHOALI_DEVICE_TO_HOST),
              done);
    SHOAL_TRY(status,
              shoali_copy(stream, record + RECORD_SMALL, zero->loss_sum, zero->small_bytes,
                          SHOALI_DEVICE_TO_HOST),
              done);
    SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
    memcpy(limbs, record + RECORD_LIMBS, sizeof limbs);
    memcpy(&flag, record + RECORD_FLAG, sizeof flag);
    memcpy(&words[WORD_LOSS], record + RECORD_SMALL, sizeof(int64_t));
    memcpy(&loss_flag, record + RECORD_SMALL + 8, sizeof loss_flag);
    *rejected = find_rejected(zero, record + RECORD_SMALL + 12);
    shoali_clip_split_words(limbs, flag || *rejected >= 0, words);
    words[WORD_LOSS_NOT_FINITE] = loss_flag != 0;
    words[WORD_STOP] = stop;
    if (zero->world > 1)
        SHOAL_TRY(status,
                  shoal_all_reduce(zero->args.group, words, words, WORD_COUNT, SHOAL_I64, SHOAL_SUM,
                                   NULL),
                  done);
done:
    return status;
}

shoal_status shoali_zero_reduce(struct shoali_zero *zero, double loss_scale, bool stop,
                                struct shoali_zero_verdict *verdict)
{
    shoal_status status;
    double factor;
    int64_t words[WORD_COUNT] = {0};
    uint64_t limbs[3];
    uint32_t flag;
    float control[3];
    SHOAL_TRY(status, sum_over_ranks(zero, &factor), done);
    SHOAL_TRY(status, measure(zero), done);
    SHOAL_TRY(status, exchange_record(zero, stop, words, &verdict->rejected_param), done);

    zero->divisor = loss_scale * factor;
    shoali_clip_join_words(words, limbs, &flag);
    shoali_ops_ref.clip(&(struct shoali_clip_args){.limbs = limbs,
                                                   .flag = &flag,
                                                   .out = control,
                                                   .loss_scale = zero->divisor,
                                                   .max_norm = zero->args.max_norm},
                        NULL);
    memcpy(zero->record, control, sizeof control);
    SHOAL_TRY(status,
              shoali_copy(zero->args.exec.stream, zero->clip.control, zero->record, sizeof control,
                          SHOALI_HOST_TO_DEVICE),
              done);

    verdict->overflow = control[2] != 0.0f;
    verdict->norm = (double)control[0];
    verdict->stop = words[WORD_STOP] != 0;
    verdict->loss = words[WORD_LOSS_NOT_FINITE] ? (double)NAN
                                                : ldexp((double)words[WORD_LOSS], -LOSS_UNIT_LOG2) /
                                                      (double)(zero->args.gas * zero->world);
done:
    return status;
}
