/* Norm, losses, the step's message. */
#include "zero/verdict.h"

#include "zero/touched.h"

#include <math.h>

#define LOSS_UNIT_LOG2 44 /* losses are summed in units of 2^-44 */
#define LOSS_LIMIT \
    262144.0 /* 2^18, divided by the number of micro-batches: the sum stays below 2^62 units */

/* After the words of clip.h. From WORD_ORDER on there is one for each stage of a pipeline, then come
 * those of touched.h. */
enum { WORD_LOSS_NOT_FINITE = SHOALI_CLIP_WORDS, WORD_LOSS, WORD_ASKS, WORD_ORDER };
#define ORDER_MASK (((int64_t)1 << 40) - 1) /* sums over a million ranks fit */

shoal_status shoali_zero_judge_add_loss(struct shoali_zero_judge *judge, const float *loss)
{
    return shoali_op_to_fixed(
        &judge->setup->args.exec,
        &(struct shoali_to_fixed_args){
            .x = loss,
            .fixed = judge->loss_sum,
            .flag = judge->loss_flag,
            .count = 1,
            .unit_log2 = LOSS_UNIT_LOG2,
            .accumulate = 1,
            .limit = LOSS_LIMIT /
                     (double)((int64_t)1 << shoali_zero_ceil_log2(judge->setup->micro_batches))});
}

/* Squares of own elements [local, local + count) of the part space. */
static shoal_status add_norm(struct shoali_zero_judge *judge, int64_t local, int64_t count)
{
    shoal_status status = SHOAL_OK;
    const int64_t limit = shoali_zero_piece(judge->gradients);
    int64_t piece;
    for (int64_t at = local; at < local + count; at += piece) {
        const float *gradient;
        piece = local + count - at < limit ? local + count - at : limit;
        SHOAL_TRY(status, shoali_zero_final_gradient(judge->gradients, at, piece, &gradient), done);
        SHOAL_TRY(status, shoali_clip_add(&judge->clip, &judge->setup->args.exec, gradient, piece),
                  done);
    }
done:
    return status;
}

/* What is trainable and counted here: each element of the wholes once over everyone. */
static shoal_status measure(struct shoali_zero_judge *judge)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = judge->layout;
    for (int32_t s = 0, c = 0; s < layout->segment_count && c < layout->counted_count;) {
        const struct shoali_zero_segment *segment = &layout->segment[s];
        const struct shoali_zero_range *counted = &layout->counted[c];
        const int64_t segment_end = segment->begin + segment->count;
        const int64_t counted_end = counted->begin + counted->count;
        const int64_t begin = segment->begin > counted->begin ? segment->begin : counted->begin;
        const int64_t end = segment_end < counted_end ? segment_end : counted_end;
        if (begin < end)
            SHOAL_TRY(status,
                      add_norm(judge, segment->local + (begin - segment->begin), end - begin),
                      done);
        s += segment_end <= counted_end;
        c += counted_end <= segment_end;
    }
done:
    return status;
}

/* First parameter with an out-of-range contribution on this rank, -1 none. */
static int32_t find_rejected(const struct shoali_zero_judge *judge, const char *flags)
{
    for (int32_t i = 0; i < judge->setup->args.module->param_count; i++) {
        uint32_t flag;
        shoali_pinned_read(judge->setup->args.device, &flag, flags + (size_t)i * sizeof flag,
                           sizeof flag);
        if (flag)
            return i;
    }
    return -1;
}

/* The pinned record: control[3] at 0, then these, then the small device block as it is. */
#define RECORD_LIMBS 16
#define RECORD_FLAG 40
#define RECORD_SMALL 64

/* Each bit counts by itself in a word of sums: so many bits for each count of ranks. */
enum { ASK_BITS = 20 };
static int64_t pack_asks(uint32_t asks)
{
    int64_t word = 0;
    for (int32_t i = 0; asks >> i; i++)
        word |= (int64_t)(asks >> i & 1) << (i * ASK_BITS);
    return word;
}

static bool was_asked(int64_t word, uint32_t ask)
{
    const int32_t index = shoali_zero_ceil_log2(ask);
    return (word >> (index * ASK_BITS) & (((int64_t)1 << ASK_BITS) - 1)) != 0;
}

static int32_t words_before_touched(const struct shoali_zero_setup *setup)
{
    return WORD_ORDER + setup->args.pipeline.stages;
}

/* Other stages have other layers: each compares with its own ranks. In a plan there are no others. */
static shoal_status check_order(const struct shoali_zero_judge *judge, const int64_t *words,
                                int64_t order)
{
    const struct shoali_zero_setup *setup = judge->setup;
    const struct shoali_zero_pipeline *pipeline = &setup->args.pipeline;
    if (words[WORD_ORDER + pipeline->stage] == order * (setup->world / pipeline->stages) ||
        shoali_device_is_meta(setup->args.device))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EMISMATCH,
                      "the ranks ran the layers of this step in different orders, so that "
                      "one layer's gradients were added to another's: every rank has to run "
                      "the same layers in the same order");
}

/* One small message: integer words that add up over ranks in any order. */
static shoal_status exchange_record(struct shoali_zero_judge *judge, uint32_t asks, int64_t *words,
                                    int32_t *rejected)
{
    shoal_status status;
    struct shoali_device_stream *stream = judge->setup->args.exec.stream;
    const struct shoali_device *device = judge->setup->args.device;
    char *record = judge->record;
    const int64_t order = (int64_t)judge->order & ORDER_MASK;
    uint64_t limbs[3];
    uint32_t flag, loss_flag;
    SHOAL_TRY(
        status,
        shoali_copy(stream, record + RECORD_LIMBS, judge->clip.limbs, 24, SHOALI_DEVICE_TO_HOST),
        done);
    SHOAL_TRY(status,
              shoali_copy(stream, record + RECORD_FLAG, judge->clip.flag, 4, SHOALI_DEVICE_TO_HOST),
              done);
    SHOAL_TRY(status,
              shoali_copy(stream, record + RECORD_SMALL, judge->loss_sum, judge->small_bytes,
                          SHOALI_DEVICE_TO_HOST),
              done);
    SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
    shoali_pinned_read(device, limbs, record + RECORD_LIMBS, sizeof limbs);
    shoali_pinned_read(device, &flag, record + RECORD_FLAG, sizeof flag);
    shoali_pinned_read(device, &words[WORD_LOSS], record + RECORD_SMALL, sizeof(int64_t));
    shoali_pinned_read(device, &loss_flag, record + RECORD_SMALL + 8, sizeof loss_flag);
    *rejected = find_rejected(judge, record + RECORD_SMALL + 12);
    shoali_clip_split_words(limbs, flag || *rejected >= 0, words);
    words[WORD_LOSS_NOT_FINITE] = loss_flag != 0;
    if (judge->setup->args.loss_elsewhere)
        words[WORD_LOSS] = 0;
    words[WORD_ASKS] = pack_asks(asks);
    const int32_t before = words_before_touched(judge->setup);
    for (int32_t i = WORD_ORDER; i < before; i++)
        words[i] = i == WORD_ORDER + judge->setup->args.pipeline.stage ? order : 0;
    judge->order = 0;
    shoali_zero_pack_touched(judge->setup, words + before);
    if (judge->setup->world > 1)
        SHOAL_TRY(status,
                  shoal_all_reduce(judge->setup->everyone, words, words,
                                   before + shoali_zero_touched_words(judge->setup), SHOAL_I64,
                                   SHOAL_SUM, NULL),
                  done);
    shoali_zero_unpack_touched(judge->setup, words + before);
    SHOAL_TRY(status, check_order(judge, words, order), done);
done:
    return status;
}

shoal_status shoali_zero_judge_decide(struct shoali_zero_judge *judge, double loss_scale,
                                      double factor, uint32_t asks,
                                      struct shoali_zero_verdict *verdict)
{
    shoal_status status;
    const struct shoali_zero_setup *setup = judge->setup;
    int64_t *words = judge->words;
    uint64_t limbs[3];
    uint32_t flag;
    float control[3];
    SHOAL_TRY(status, measure(judge), done);
    SHOAL_TRY(status, exchange_record(judge, asks, words, &verdict->rejected_param), done);

    judge->divisor = loss_scale * factor;
    shoali_clip_join_words(words, limbs, &flag);
    shoali_ops_run(setup->args.exec.ops, &shoali_kernel_clip,
                   &(struct shoali_clip_args){.limbs = limbs,
                                              .flag = &flag,
                                              .out = control,
                                              .loss_scale = judge->divisor,
                                              .max_norm = setup->args.max_norm});
    shoali_pinned_write(setup->args.device, judge->record, control, sizeof control);
    SHOAL_TRY(status,
              shoali_copy(setup->args.exec.stream, judge->clip.control, judge->record,
                          sizeof control, SHOALI_HOST_TO_DEVICE),
              done);

    verdict->overflow = control[2] != 0.0f;
    verdict->norm = (double)control[0];
    verdict->stop = was_asked(words[WORD_ASKS], SHOALI_ZERO_STOP);
    verdict->save = was_asked(words[WORD_ASKS], SHOALI_ZERO_SAVE);
    verdict->failed = was_asked(words[WORD_ASKS], SHOALI_ZERO_FAILED);
    verdict->loss = words[WORD_LOSS_NOT_FINITE]
                        ? (double)NAN
                        : ldexp((double)words[WORD_LOSS], -LOSS_UNIT_LOG2) / (double)setup->mean_of;
done:
    return status;
}

/* ---- creation ------------------------------------------------------------------------------- */

shoal_status shoali_zero_judge_init(struct shoali_zero_judge *judge)
{
    shoal_status status;
    const struct shoali_zero_args *args = &judge->setup->args;
    judge->small_bytes = 12 + (size_t)args->module->param_count * sizeof(uint32_t);
    SHOAL_TRY(status, shoali_clip_init(&judge->clip, args->device, args->exec.stream), done);
    SHOAL_TRY(status,
              shoali_device_alloc_zeroed(args->exec.stream, judge->small_bytes,
                                         (void **)&judge->loss_sum),
              done);
    judge->loss_flag = (uint32_t *)(judge->loss_sum + 1);
    judge->param_flag = judge->loss_flag + 1;
    SHOAL_TRY(
        status,
        shoali_device_host_alloc(args->device, RECORD_SMALL + judge->small_bytes, &judge->record),
        done);
    judge->words = shoali_calloc(
        (size_t)(words_before_touched(judge->setup) + shoali_zero_touched_words(judge->setup)),
        sizeof(int64_t), "the step's record");
    if (!judge->words)
        status = SHOAL_ENOMEM;
done:
    return status;
}

void shoali_zero_judge_fini(struct shoali_zero_judge *judge)
{
    if (!judge->setup)
        return;
    struct shoali_device *device = judge->setup->args.device;
    if (judge->loss_sum)
        shoali_device_free(device, judge->loss_sum);
    if (judge->record)
        shoali_device_host_free(device, judge->record);
    shoali_free(judge->words);
    shoali_clip_fini(&judge->clip);
}

shoal_status shoali_zero_judge_begin(struct shoali_zero_judge *judge)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_clip_begin(&judge->clip), done);
    SHOAL_TRY(status,
              shoali_fill(judge->setup->args.exec.stream, judge->loss_sum, 0, judge->small_bytes),
              done);
done:
    return status;
}

void shoali_zero_judge_note(struct shoali_zero_judge *judge, int32_t position)
{
    judge->order = (judge->order + (uint64_t)position + 1) * 0x9e3779b97f4a7c15u;
    judge->order ^= judge->order >> 29;
}
