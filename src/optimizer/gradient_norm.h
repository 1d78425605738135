/* gradient_norm - the norm of all gradients, the overflow flag, and the control block that each
 * optimizer step reads.
 *
 * The squared norm is a 192-bit integer in units of 2^-62 (ops.h norm2), so the order of segments,
 * shards and ranks does not matter. One small device block per engine holds it. In one step:
 *
 *   shoali_gradient_norm_begin      zeros limbs and flag
 *   shoali_gradient_norm_add        each segment of this rank, each element once
 *   shoali_gradient_norm_split      on the host: limbs and flag as words
 *   the caller                      adds the words of all ranks up: integers, exact
 *   shoali_gradient_norm_join       on the host: the sums as limbs and flag
 *   the kernel `clip` (ops_flat.h)  writes norm, multiplier and skip
 *   the caller                      copies these to `control`. shoali_optimizer_step reads them.
 *
 * A word carries 32 bits in an int64, so the sum over up to 2^31 ranks cannot overflow. The last
 * word counts ranks that saw a NaN, an infinity or a value >= 2^60.
 */
#ifndef SHOALI_GRADIENT_NORM_H
#define SHOALI_GRADIENT_NORM_H

#include "base/base.h"
#include "ops/ops.h"

#define SHOALI_GRADIENT_NORM_WORDS 7

struct shoali_gradient_norm {
    struct shoali_device *device;        /* borrowed */
    struct shoali_device_stream *stream; /* borrowed */
    void *memory;                        /* owned device block */
    uint64_t *limbs;                     /* device, [3] */
    uint32_t *flag;                      /* device */
    float *control; /* device, [3]: norm, multiplier, skip (shoali_clip_args) */
};

/* Makes the device block. fini accepts a zeroed struct. */
SHOAL_CHECKED shoal_status shoali_gradient_norm_init(struct shoali_gradient_norm *norm,
                                                     struct shoali_device *device,
                                                     struct shoali_device_stream *stream);
void shoali_gradient_norm_fini(struct shoali_gradient_norm *norm);
SHOAL_CHECKED shoal_status shoali_gradient_norm_begin(struct shoali_gradient_norm *norm);
SHOAL_CHECKED shoal_status shoali_gradient_norm_add(struct shoali_gradient_norm *norm,
                                                    const struct shoali_exec *exec,
                                                    const float *grad, int64_t count);

/* limbs <-> words on the host; carries are propagated by join. */
void shoali_gradient_norm_split(const uint64_t limbs[3], uint32_t flag,
                                int64_t words[SHOALI_GRADIENT_NORM_WORDS]);
void shoali_gradient_norm_join(const int64_t words[SHOALI_GRADIENT_NORM_WORDS], uint64_t limbs[3],
                               uint32_t *flag);

#endif
