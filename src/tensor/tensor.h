/* tensor - element types, shapes, 16-bit conversions and shard maps. Level L1: no memory, no math.
 *
 * A shard map says which slices of which globally named tensors lie at which offsets of a rank's
 * flat buffer. It is the only language in which zero, checkpoint, offload and (later) tensor
 * parallelism speak of "who holds what"; none of them knows the others. Flat order is file order:
 * tensors in canonical order without gaps, so a data-parallel shard is one contiguous range of the
 * flat space.
 */
#ifndef SHOALI_TENSOR_H
#define SHOALI_TENSOR_H

#include "base/base.h"
#include "shoal/tensor.h"

struct shoali_device_stream;

/* The tensor as autograd's ops see it. Host code never dereferences `data`. */
struct shoal_tensor {
    shoal_dtype dtype;
    shoal_shape shape;                   /* of the local block */
    shoal_shape global;                  /* of the whole */
    int64_t offset[SHOAL_MAX_DIMS];      /* of the local block in the whole */
    void *data;                          /* device address; NULL in meta mode and when dropped */
    struct shoali_device_stream *stream; /* borrowed: reads are ordered after its work; NULL meta */

    /* owned by autograd: */
    struct shoal_tape *tape; /* NULL: not on a tape */
    int32_t node;            /* producer, -1 = a tape input */
    int32_t id;              /* index in the tape */
    int64_t bound;           /* elements allocated when data-dependent, else count */
    bool needs_grad;
};

bool shoali_shape_equal(const shoal_shape *a, const shoal_shape *b);
/* "[12, 64, 128]" in a caller's buffer of 128 bytes; returns `buffer`. */
const char *shoali_shape_format(const shoal_shape *shape, char *buffer);
/* Fills a tensor description: whole (global = shape, offset 0), no data. */
void shoali_tensor_describe(struct shoal_tensor *tensor, shoal_dtype dtype,
                            const shoal_shape *shape);

/* Scalar conversions, round to nearest even; NaN stays NaN (quiet), overflow gives infinity. */
static inline float shoali_bf16_to_f32(uint16_t x)
{
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)x << 16};
    return v.f;
}
static inline uint16_t shoali_f32_to_bf16(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    if ((v.u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((v.u >> 16) | 0x40u);
    return (uint16_t)((v.u + 0x7fffu + ((v.u >> 16) & 1u)) >> 16);
}
float shoali_f16_to_f32(uint16_t x);
uint16_t shoali_f32_to_f16(float x);

/* One piece of a flat buffer: elements [begin, begin+count) of the flattened tensor `name`. */
struct shoali_shard {
    const char *name;      /* global name, borrowed from the map's arena */
    shoal_shape global;    /* of the whole tensor */
    int64_t begin, count;  /* in the flattened whole tensor */
    int64_t flat_offset;   /* in the holder's local flat buffer, elements */
    int64_t global_offset; /* of the tensor's first element in the global flat space */
    int32_t param;         /* index in canonical order */
};
struct shoali_shard_map {
    struct shoali_shard *shard;
    int32_t count;
    int64_t elements; /* of the local flat buffer that are covered */
};
/* Cuts the contiguous range [begin, end) of the flat space made of `count` tensors laid out without
 * gaps in order. Memory from the arena. */
SHOAL_CHECKED shoal_status shoali_shard_map_range(const char *const *names,
                                                  const shoal_shape *shapes, int32_t count,
                                                  int64_t begin, int64_t end,
                                                  struct shoali_arena *arena,
                                                  struct shoali_shard_map *map);

#endif
