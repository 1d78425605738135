/* clip - global gradient norm, overflow flag and the control block that every optimizer step reads.
 *
 * The squared norm is a 192-bit integer in units of 2^-62 (ops.h norm2), so the order of segments,
 * shards and ranks does not matter. One small device block per engine holds it. In one step:
 *
 *   shoali_clip_begin(&clip);                              zero
 *   shoali_clip_add(&clip, exec, grad, count);  ...        every segment this rank owns, each
 * element once shoali_clip_take(&clip, words);                        with several ranks: device ->
 * host, waits all_reduce(words, SHOALI_CLIP_WORDS, I64, SUM);        the caller's: integers, exact
 *   shoali_clip_put(&clip, words);                         back
 *   shoali_clip_finish(&clip, exec, loss_scale, max_norm); writes clip.control on the device
 *   shoali_optimizer_step(... now.control = clip.control ...)
 *   shoali_clip_result(&clip, &result);                    device -> host, waits
 *
 * With one rank take and put fall away and the step waits once, at the end. Words carry 32 bits
 * each in an int64, so the sum over up to 2^31 ranks cannot overflow; the last word counts ranks
 * that saw a NaN, an infinity or a value >= 2^60.
 */
#ifndef SHOALI_CLIP_H
#define SHOALI_CLIP_H

#include "base/base.h"
#include "ops/ops.h"

#define SHOALI_CLIP_WORDS 7

struct shoali_clip {
    struct shoali_device *device;        /* borrowed */
    struct shoali_device_stream *stream; /* borrowed */
    void *memory;                        /* owned device block */
    uint64_t *limbs;                     /* device, [3] */
    uint32_t *flag;                      /* device */
    float *control; /* device, [3]: norm, multiplier, skip (shoali_clip_args) */
};
struct shoali_clip_result {
    float norm;       /* of the unscaled gradient; NaN when skipped */
    float multiplier; /* that gradients were multiplied with */
    bool skip;        /* overflow: nothing was updated */
};

/* Makes the device block. fini accepts a zeroed struct. */
SHOAL_CHECKED shoal_status shoali_clip_init(struct shoali_clip *clip, struct shoali_device *device,
                                            struct shoali_device_stream *stream);
void shoali_clip_fini(struct shoali_clip *clip);
SHOAL_CHECKED shoal_status shoali_clip_begin(struct shoali_clip *clip);
SHOAL_CHECKED shoal_status shoali_clip_add(struct shoali_clip *clip, const struct shoali_exec *exec,
                                           const float *grad, int64_t count);
/* Marks the step as overflowed whatever the gradients say (exact mode: a contribution out of
 * range). */
SHOAL_CHECKED shoal_status shoali_clip_mark(struct shoali_clip *clip);
SHOAL_CHECKED shoal_status shoali_clip_take(struct shoali_clip *clip,
                                            int64_t words[SHOALI_CLIP_WORDS]);
SHOAL_CHECKED shoal_status shoali_clip_put(struct shoali_clip *clip,
                                           const int64_t words[SHOALI_CLIP_WORDS]);
/* loss_scale: the scale the gradients were made with (the old one). max_norm 0: no clipping. */
SHOAL_CHECKED shoal_status shoali_clip_finish(struct shoali_clip *clip,
                                              const struct shoali_exec *exec, double loss_scale,
                                              double max_norm);
SHOAL_CHECKED shoal_status shoali_clip_result(struct shoali_clip *clip,
                                              struct shoali_clip_result *result);

/* limbs <-> words on the host; carries are propagated by join. */
void shoali_clip_split_words(const uint64_t limbs[3], uint32_t flag,
                             int64_t words[SHOALI_CLIP_WORDS]);
void shoali_clip_join_words(const int64_t words[SHOALI_CLIP_WORDS], uint64_t limbs[3],
                            uint32_t *flag);

#endif
