/* From the sums of gradients to one verdict: norm, losses, the step's shared record. */
#include "zero/zero_internal.h"

#include <math.h>

#define LOSS_UNIT_LOG2 44 /* losses are summed in units of 2^-44 */
#define LOSS_LIMIT \
    262144.0 /* 2^18, divided by the number of micro-batches: the sum stays below 2^62 units */
#define NORM_GRAIN \
    16 /* ranks that hold the same share the norm in slices of multiples of this many elements */

/* After the words of clip.h. */
enum { WORD_LOSS_NOT_FINITE = SHOALI_CLIP_WORDS, WORD_LOSS, WORD_STOP, WORD_ORDER, WORD_COUNT };
_Static_assert(WORD_COUNT == SHOALI_ZERO_RECORD_WORDS, "the record is allocated in zero.c");
#define ORDER_MASK (((int64_t)1 << 40) - 1) /* sums over a million ranks fit */

shoal_status shoali_zero_add_loss(struct shoali_zero *zero, const float *loss)
{
    return shoali_op_to_fixed(
        &zero->args.exec, &(struct shoali_to_fixed_args){
                              .x = loss,
                              .fixed = zero->loss_sum,
                              .flag = zero->loss_flag,
                              .count = 1,
                              .unit_log2 = LOSS_UNIT_LOG2,
                              .accumulate = 1,
                              .limit = LOSS_LIMIT / (double)((int64_t)1 << shoali_zero_ceil_log2(
                                                                 zero->args.gas * zero->world))});
}

/* Squares of the trainable own elements inside [begin, end) of the flat space. */
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
            const int64_t local = segment->local + (at - segment->begin);
            const float *gradient;
            SHOAL_TRY(status, shoali_zero_final_gradient(zero, local, count, &gradient), done);
            SHOAL_TRY(status, shoali_clip_add(&zero->clip, &zero->args.exec, gradient, count),
                      done);
        }
    }
done:
    return status;
}

/* Each element once over all ranks. */
static shoal_status measure(struct shoali_zero *zero)
{
    int64_t begin, end;
    shoali_pool_slice(zero->flat_count, NORM_GRAIN, zero->replica, zero->replicas, &begin, &end);
    return add_norm(zero, begin, end);
}

/* First parameter with an out-of-range contribution on this rank, -1 none. */
static int32_t find_rejected(const struct shoali_zero *zero, const char *flags)
{
    for (int32_t i = 0; i < zero->args.module->param_count; i++) {
        uint32_t flag;
        shoali_pinned_read(zero->args.device, &flag, flags + (size_t)i * sizeof flag, sizeof flag);
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
static shoal_status exchange_record(struct shoali_zero *zero, bool stop, int64_t *words,
                                    int32_t *rejected)
{
    shoal_status status;
    struct shoali_device_stream *stream = zero->args.exec.stream;
    char *record = zero->record;
    const int64_t order = (int64_t)zero->order & ORDER_MASK;
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
    shoali_pinned_read(zero->args.device, limbs, record + RECORD_LIMBS, sizeof limbs);
    shoali_pinned_read(zero->args.device, &flag, record + RECORD_FLAG, sizeof flag);
    shoali_pinned_read(zero->args.device, &words[WORD_LOSS], record + RECORD_SMALL,
                       sizeof(int64_t));
    shoali_pinned_read(zero->args.device, &loss_flag, record + RECORD_SMALL + 8, sizeof loss_flag);
    *rejected = find_rejected(zero, record + RECORD_SMALL + 12);
    shoali_clip_split_words(limbs, flag || *rejected >= 0, words);
    words[WORD_LOSS_NOT_FINITE] = loss_flag != 0;
    words[WORD_STOP] = stop;
    words[WORD_ORDER] = order;
    zero->order = 0;
    shoali_zero_pack_touched(zero, words + WORD_COUNT);
    if (zero->world > 1)
        SHOAL_TRY(status,
                  shoal_all_reduce(zero->args.group, words, words,
                                   WORD_COUNT + shoali_zero_touched_words(zero), SHOAL_I64,
                                   SHOAL_SUM, NULL),
                  done);
    shoali_zero_unpack_touched(zero, words + WORD_COUNT);
    if (words[WORD_ORDER] != order * zero->world)
        status = SHOAL_FAIL(SHOAL_EMISMATCH,
                            "the ranks ran the layers of this step in different orders, so that "
                            "one layer's gradients were added to another's: every rank has to run "
                            "the same layers in the same order");
done:
    return status;
}

shoal_status shoali_zero_reduce(struct shoali_zero *zero, double loss_scale, bool stop,
                                struct shoali_zero_verdict *verdict)
{
    shoal_status status;
    double factor;
    int64_t *words = zero->words;
    uint64_t limbs[3];
    uint32_t flag;
    float control[3];
    SHOAL_TRY(status, shoali_zero_sum_gradients(zero, &factor), done);
    SHOAL_TRY(status, measure(zero), done);
    SHOAL_TRY(status, exchange_record(zero, stop, words, &verdict->rejected_param), done);

    zero->divisor = loss_scale * factor;
    shoali_clip_join_words(words, limbs, &flag);
    shoali_ops_run(zero->args.exec.ops, &shoali_kernel_clip,
                   &(struct shoali_clip_args){.limbs = limbs,
                                              .flag = &flag,
                                              .out = control,
                                              .loss_scale = zero->divisor,
                                              .max_norm = zero->args.max_norm});
    shoali_pinned_write(zero->args.device, zero->record, control, sizeof control);
    SHOAL_TRY(status,
              shoali_copy(zero->args.exec.stream, zero->clip.control, zero->record, sizeof control,
                          SHOALI_HOST_TO_DEVICE),
              done);

    verdict->overflow = control[2] != 0.0f;
    zero->error_age++;
    if (verdict->overflow || zero->error_age == zero->args.loco_reset) {
        zero->forget_errors = true;
        zero->error_age = 0;
    }
    verdict->norm = (double)control[0];
    verdict->stop = words[WORD_STOP] != 0;
    verdict->loss = words[WORD_LOSS_NOT_FINITE] ? (double)NAN
                                                : ldexp((double)words[WORD_LOSS], -LOSS_UNIT_LOG2) /
                                                      (double)(zero->args.gas * zero->world);
done:
    return shoali_zero_tell(zero, status);
}
