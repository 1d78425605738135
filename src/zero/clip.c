/* Norm, losses, the step's message. */
#include "zero/clip.h"

#include "zero/used_params.h"

#include <math.h>

#define LOSS_UNIT_LOG2 44 /* losses are summed in units of 2^-44 */
#define LOSS_LIMIT \
    262144.0 /* 2^18, divided by the number of micro-batches: the sum stays below 2^62 units */

/* After the words of clip.h. From WORD_ORDER on there is one for each stage of a pipeline, then
 * come those of used_params.h. */
enum { WORD_LOSS_NOT_FINITE = SHOALI_GRADIENT_NORM_WORDS, WORD_LOSS, WORD_ASKS, WORD_ORDER };
#define ORDER_MASK (((int64_t)1 << 40) - 1) /* sums over a million ranks fit */

shoal_status shoali_zero_clip_add_loss(struct shoali_zero_clip *clip, const float *loss)
{
    return shoali_op_to_fixed(
        &clip->setup->args.exec,
        &(struct shoali_to_fixed_args){
            .x = loss,
            .fixed = clip->loss_sum,
            .flag = clip->loss_flag,
            .count = 1,
            .unit_log2 = LOSS_UNIT_LOG2,
            .accumulate = 1,
            .limit = LOSS_LIMIT /
                     (double)((int64_t)1 << shoali_zero_ceil_log2(clip->setup->micro_batches))});
}

/* Squares of own elements [local, local + count) of the part space. */
static shoal_status add_norm(struct shoali_zero_clip *clip, int64_t local, int64_t count)
{
    shoal_status status = SHOAL_OK;
    const int64_t limit = shoali_zero_piece(clip->gradients);
    int64_t piece;
    for (int64_t at = local; at < local + count; at += piece) {
        const float *gradient;
        piece = local + count - at < limit ? local + count - at : limit;
        SHOAL_TRY(status, shoali_zero_final_gradient(clip->gradients, at, piece, &gradient), done);
        SHOAL_TRY(status,
                  shoali_gradient_norm_add(&clip->norm, &clip->setup->args.exec, gradient, piece),
                  done);
    }
done:
    return status;
}

/* What is trainable and counted here: each element of the wholes once over everyone. */
static shoal_status measure(struct shoali_zero_clip *clip)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = clip->layout;
    for (int32_t s = 0, c = 0; s < layout->segment_count && c < layout->counted_count;) {
        const struct shoali_zero_segment *segment = &layout->segment[s];
        const struct shoali_zero_range *counted = &layout->counted[c];
        const int64_t segment_end = segment->begin + segment->count;
        const int64_t counted_end = counted->begin + counted->count;
        const int64_t begin = segment->begin > counted->begin ? segment->begin : counted->begin;
        const int64_t end = segment_end < counted_end ? segment_end : counted_end;
        if (begin < end)
            SHOAL_TRY(status,
                      add_norm(clip, segment->local + (begin - segment->begin), end - begin), done);
        s += segment_end <= counted_end;
        c += counted_end <= segment_end;
    }
done:
    return status;
}

/* First parameter with an out-of-range contribution on this rank, -1 none. */
static int32_t find_rejected(const struct shoali_zero_clip *clip, const char *flags)
{
    for (int32_t i = 0; i < clip->setup->args.module->param_count; i++) {
        uint32_t flag;
        shoali_pinned_read(clip->setup->args.device, &flag, flags + (size_t)i * sizeof flag,
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

static int32_t words_before_used(const struct shoali_zero_setup *setup)
{
    return WORD_ORDER + setup->args.pipeline.stages;
}

/* Other stages have other layers: each compares with its own ranks. In a plan there are no
 * others. */
static shoal_status check_order(const struct shoali_zero_clip *clip, const int64_t *words,
                                int64_t order)
{
    const struct shoali_zero_setup *setup = clip->setup;
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
static shoal_status exchange_record(struct shoali_zero_clip *clip, uint32_t asks, int64_t *words,
                                    int32_t *rejected)
{
    shoal_status status;
    struct shoali_device_stream *stream = clip->setup->args.exec.stream;
    const struct shoali_device *device = clip->setup->args.device;
    char *record = clip->record;
    const int64_t order = (int64_t)clip->order & ORDER_MASK;
    uint64_t limbs[3];
    uint32_t flag, loss_flag;
    SHOAL_TRY(
        status,
        shoali_copy(stream, record + RECORD_LIMBS, clip->norm.limbs, 24, SHOALI_DEVICE_TO_HOST),
        done);
    SHOAL_TRY(status,
              shoali_copy(stream, record + RECORD_FLAG, clip->norm.flag, 4, SHOALI_DEVICE_TO_HOST),
              done);
    SHOAL_TRY(status,
              shoali_copy(stream, record + RECORD_SMALL, clip->loss_sum, clip->small_bytes,
                          SHOALI_DEVICE_TO_HOST),
              done);
    SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
    shoali_pinned_read(device, limbs, record + RECORD_LIMBS, sizeof limbs);
    shoali_pinned_read(device, &flag, record + RECORD_FLAG, sizeof flag);
    shoali_pinned_read(device, &words[WORD_LOSS], record + RECORD_SMALL, sizeof(int64_t));
    shoali_pinned_read(device, &loss_flag, record + RECORD_SMALL + 8, sizeof loss_flag);
    *rejected = find_rejected(clip, record + RECORD_SMALL + 12);
    shoali_gradient_norm_split(limbs, flag || *rejected >= 0, words);
    words[WORD_LOSS_NOT_FINITE] = loss_flag != 0;
    if (clip->setup->args.loss_elsewhere)
        words[WORD_LOSS] = 0;
    words[WORD_ASKS] = pack_asks(asks);
    const int32_t before = words_before_used(clip->setup);
    for (int32_t i = WORD_ORDER; i < before; i++)
        words[i] = i == WORD_ORDER + clip->setup->args.pipeline.stage ? order : 0;
    clip->order = 0;
    shoali_zero_pack_used(clip->setup, words + before);
    if (clip->setup->world > 1)
        SHOAL_TRY(status,
                  shoal_all_reduce(clip->setup->everyone, words, words,
                                   before + shoali_zero_used_words(clip->setup), SHOAL_I64,
                                   SHOAL_SUM, NULL),
                  done);
    shoali_zero_unpack_used(clip->setup, words + before);
    SHOAL_TRY(status, check_order(clip, words, order), done);
done:
    return status;
}

shoal_status shoali_zero_clip_decide(struct shoali_zero_clip *clip, double loss_scale,
                                     double factor, uint32_t asks,
                                     struct shoali_zero_verdict *verdict)
{
    shoal_status status;
    const struct shoali_zero_setup *setup = clip->setup;
    int64_t *words = clip->words;
    uint64_t limbs[3];
    uint32_t flag;
    float control[3];
    SHOAL_TRY(status, measure(clip), done);
    SHOAL_TRY(status, exchange_record(clip, asks, words, &verdict->rejected_param), done);

    clip->divisor = loss_scale * factor;
    shoali_gradient_norm_join(words, limbs, &flag);
    shoali_ops_run(setup->args.exec.ops, &shoali_kernel_clip,
                   &(struct shoali_clip_args){.limbs = limbs,
                                              .flag = &flag,
                                              .out = control,
                                              .loss_scale = clip->divisor,
                                              .max_norm = setup->args.max_norm});
    shoali_pinned_write(setup->args.device, clip->record, control, sizeof control);
    SHOAL_TRY(status,
              shoali_copy(setup->args.exec.stream, clip->norm.control, clip->record, sizeof control,
                          SHOALI_HOST_TO_DEVICE),
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

shoal_status shoali_zero_clip_init(struct shoali_zero_clip *clip)
{
    shoal_status status;
    const struct shoali_zero_args *args = &clip->setup->args;
    clip->small_bytes = 12 + (size_t)args->module->param_count * sizeof(uint32_t);
    SHOAL_TRY(status, shoali_gradient_norm_init(&clip->norm, args->device, args->exec.stream),
              done);
    SHOAL_TRY(
        status,
        shoali_device_alloc_zeroed(args->exec.stream, clip->small_bytes, (void **)&clip->loss_sum),
        done);
    clip->loss_flag = (uint32_t *)(clip->loss_sum + 1);
    clip->param_flag = clip->loss_flag + 1;
    SHOAL_TRY(
        status,
        shoali_device_host_alloc(args->device, RECORD_SMALL + clip->small_bytes, &clip->record),
        done);
    clip->words = shoali_calloc(
        (size_t)(words_before_used(clip->setup) + shoali_zero_used_words(clip->setup)),
        sizeof(int64_t), "the step's record");
    if (!clip->words)
        status = SHOAL_ENOMEM;
done:
    return status;
}

void shoali_zero_clip_fini(struct shoali_zero_clip *clip)
{
    if (!clip->setup)
        return;
    struct shoali_device *device = clip->setup->args.device;
    if (clip->loss_sum)
        shoali_device_free(device, clip->loss_sum);
    if (clip->record)
        shoali_device_host_free(device, clip->record);
    shoali_free(clip->words);
    shoali_gradient_norm_fini(&clip->norm);
}

shoal_status shoali_zero_clip_begin(struct shoali_zero_clip *clip)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_gradient_norm_begin(&clip->norm), done);
    SHOAL_TRY(status,
              shoali_fill(clip->setup->args.exec.stream, clip->loss_sum, 0, clip->small_bytes),
              done);
done:
    return status;
}

void shoali_zero_clip_note_scope(struct shoali_zero_clip *clip, int32_t position)
{
    clip->order = (clip->order + (uint64_t)position + 1) * 0x9e3779b97f4a7c15u;
    clip->order ^= clip->order >> 29;
}
