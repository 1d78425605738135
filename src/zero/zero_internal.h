/* zero_internal - the object behind zero.h, shared by the files of this folder. */
#ifndef SHOALI_ZERO_INTERNAL_H
#define SHOALI_ZERO_INTERNAL_H

#include "optimizer/clip.h"
#include "zero/zero.h"

/* Elements converted at a time where exact sums become fp32 gradients: bounds the extra memory. */
#define SHOALI_ZERO_CHUNK ((int64_t)1 << 20)

/* A run of neighbouring trainable parameters with equal multipliers, cut to the own part. */
struct shoali_zero_segment {
    int64_t begin, count; /* flat space */
    double lr_multiplier, weight_decay_multiplier;
};

struct shoali_zero {
    struct shoali_zero_args args;
    struct shoali_optimizer optimizer;
    int32_t rank, world;
    int64_t flat_count, padded_count;
    int64_t own_begin, own_end; /* updated by this rank; within [0, flat_count] */
    int64_t part_count;         /* padded_count / world (stage 0: padded_count) */
    int64_t *offset;            /* [params] */
    struct shoali_zero_segment *segment;
    int32_t segment_count;

    void *weights;        /* [padded], compute dtype */
    float *master;        /* [part]; F32: inside weights */
    void *gradients;      /* [padded], F32 or I64 */
    void *part_gradients; /* stage >= 1 with several ranks: the reduced own part */
    float *state[SHOALI_OPTIMIZER_MAX_STATES]; /* [part] each */
    float *chunk;                              /* exact: [SHOALI_ZERO_CHUNK] */
    struct shoali_clip clip;
    int64_t *loss_sum; /* device: fixed point; beside it the loss flag */
    uint32_t *loss_flag;
    uint32_t *param_flag; /* device, [params]: a contribution was out of range */
    size_t small_bytes;   /* of the block that begins at loss_sum */
    void *record;         /* pinned host: what the device's small values are copied to */
    double divisor;       /* of stored gradients: unscale and mean, set by reduce */
    struct shoali_observer observer;
};

/* Address of flat element `index` in a buffer that begins at flat element `base`. */
static inline char *shoali_zero_at(void *buffer, int64_t base, int64_t index, shoal_dtype dtype)
{
    return (char *)buffer + (size_t)(index - base) * shoal_dtype_bytes(dtype);
}
/* The reduced gradient buffer and the flat element it begins at. */
static inline void *shoali_zero_reduced(const struct shoali_zero *zero, int64_t *base)
{
    *base = zero->part_gradients ? zero->own_begin : 0;
    return zero->part_gradients ? zero->part_gradients : zero->gradients;
}
/* fp32 gradient of [begin, begin+count), count <= chunk when exact: a pointer into the buffer, or
 * into the chunk. Still multiplied by the loss scale. */
SHOAL_CHECKED shoal_status shoali_zero_final_gradient(struct shoali_zero *zero, int64_t begin,
                                                      int64_t count, const float **gradient);
/* Longest piece final_gradient can give. */
int64_t shoali_zero_piece(const struct shoali_zero *zero);
/* Gathers the parts of the weights from all ranks (stages 1, 2). */
SHOAL_CHECKED shoal_status shoali_zero_gather_weights(struct shoali_zero *zero);

#endif
