/* tensor - element types, shapes, blocks, shards and 16-bit conversions. Level L1: no memory, no
 * math.
 *
 *   tensor.h  what a tensor of the tape is: type, shape, and the block of its whole that it is
 *   shard.h   which elements of a whole a rank holds: parameters, and what follows from them
 *
 * A block places an activation, whose dims an op may have merged or split; a shard places a
 * parameter, whose dims are as declared but may be cut in several parts each.
 */
#ifndef SHOALI_TENSOR_H
#define SHOALI_TENSOR_H

#include "base/base.h"
#include "shoal/tensor.h"

struct shoali_device_stream;

/* ---- blocks: where a tensor lies in its whole ----------------------------------------------- */

#define SHOALI_BLOCK_MAX_DIMS 8
/* Extent of a dim that nothing bounds: samples. It is one constant, so that no coordinate depends
 * on how many samples a run has; a power of two, so that what it is split into stays one. */
#define SHOALI_BLOCK_OPEN (INT64_C(1) << 31)

/* A local row-major block of a global one: dim d holds [offset, offset + count) of `global`. The
 * dims multiply to the tensor's elements in the tensor's order, but they need not be the tensor's:
 * reshaping keeps the block, because it keeps the order of the whole. ndim 0: one element. */
struct shoali_block {
    int32_t ndim;
    int64_t count[SHOALI_BLOCK_MAX_DIMS];
    int64_t global[SHOALI_BLOCK_MAX_DIMS];
    int64_t offset[SHOALI_BLOCK_MAX_DIMS];
};
/* The same as numbers: the block's i-th element, row-major over count[], is element first + sum of
 * its digits times stride[] of the whole. Neighbours that follow each other are one dim; the last
 * stride is 1. ndim 1: one contiguous range. */
struct shoali_runs {
    int32_t ndim;
    int64_t count[SHOALI_BLOCK_MAX_DIMS];
    int64_t stride[SHOALI_BLOCK_MAX_DIMS];
};

/* The whole of a shape. */
struct shoali_block shoali_block_whole(const shoal_shape *shape);
/* Cuts the block's dims so that dim d of `shape` is exactly the block's dims first[d] ..
 * first[d+1]-1 (first has shape->ndim + 1 entries). False when it cannot be cut so; the block is
 * then unspecified. */
bool shoali_block_align(struct shoali_block *block, const shoal_shape *shape, int32_t *first);
/* Appends dims [begin, end) of another block, or a whole dim. False: too many dims. */
bool shoali_block_append(struct shoali_block *block, const struct shoali_block *from, int32_t begin,
                         int32_t end);
bool shoali_block_append_whole(struct shoali_block *block, int64_t count);
/* Dims [begin, end) as one: its global extent and offset. False when they are no contiguous part
 * of their whole. */
bool shoali_block_join(const struct shoali_block *block, int32_t begin, int32_t end,
                       int64_t *global, int64_t *offset);
/* Narrows dims [begin, end), seen as one, to `count` elements from `from`. False when what is left
 * is no block. */
bool shoali_block_slice(struct shoali_block *block, int32_t begin, int32_t end, int64_t from,
                        int64_t count);
/* Global index of the first element, below 2^63 (it wraps), and the runs. */
int64_t shoali_block_runs(const struct shoali_block *block, struct shoali_runs *runs);
bool shoali_block_equal(const struct shoali_block *a, const struct shoali_block *b);

/* Global index of element i of the runs, relative to the first element, and in *length how many
 * elements from i on follow each other. */
static inline int64_t shoali_runs_at(const struct shoali_runs *runs, int64_t i, int64_t *length)
{
    uint64_t at = 0;
    *length = INT64_MAX;
    if (runs->ndim < 2) {
        *length -= i;
        return i;
    }
    for (int32_t d = runs->ndim - 1; d >= 0; d--) {
        const int64_t digit = i % runs->count[d];
        if (d == runs->ndim - 1)
            *length = runs->count[d] - digit;
        at += (uint64_t)digit * (uint64_t)runs->stride[d];
        i /= runs->count[d];
    }
    return (int64_t)(at & INT64_MAX);
}

/* How ranks along tp divide a last dim, or that of a parameter: in parts behind each other, each
 * divided on its own. parts 0: it is whole. */
enum { SHOALI_COLUMNS_PARTS = 4 };
struct shoali_columns {
    int32_t parts, sharers; /* neighbours that have the same: of keys and values; 0: 1 */
    int32_t splits; /* of exact sums over it, over all ranks, which have neighbours; 0, 1: none */
    int64_t whole[SHOALI_COLUMNS_PARTS], first[SHOALI_COLUMNS_PARTS], count[SHOALI_COLUMNS_PARTS];
    int64_t unit[SHOALI_COLUMNS_PARTS],
        fine[SHOALI_COLUMNS_PARTS]; /* by which others have theirs */
};

/* The tensor as autograd's ops see it. Host code never dereferences `data`. */
struct shoal_tensor {
    shoal_dtype dtype;
    shoal_shape shape;                   /* of the local block */
    struct shoali_block block;           /* where it lies in its whole */
    struct shoali_columns columns;       /* parts: tp cuts its last dim */
    bool sequence_part;                  /* tp cuts its dim 1: sequence parallel */
    void *data;                          /* device address; NULL in meta mode and when dropped */
    struct shoali_device_stream *stream; /* borrowed: reads are ordered after its work; NULL meta */
    /* Before the host reads: completes what is still on its way to `data`; NULL: nothing can be. */
    shoal_status (*arrive)(const struct shoal_tensor *tensor);

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
/* Fills a tensor description: a whole, without data. */
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

#endif
