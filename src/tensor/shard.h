/* shard - which elements of a whole tensor a rank holds. The one language in which parameters,
 * ZeRO, checkpoints, hashes and initial values say so.
 *
 *   interval  indices [begin, begin + count) of one dim of the whole.
 *   shard     in each dim a few intervals that rise and do not touch; the shard holds the elements
 *             whose every index is in one. Its local tensor is row-major with the intervals of a
 * dim behind each other. No shard (NULL where one may be given) is the whole. run       local
 * elements that follow each other in the whole, too.
 *
 * Several intervals in a dim are for matrices that hold several: columns of q, k and v, of a gate
 * and of what it gates, each cut by itself.
 *
 * Indices rise along the local order, so local elements have the order they have in the whole: a
 * range of the whole is one range of the shard, and files are written and read with rising offsets.
 *
 * Parameters lie behind each other in a rank's flat space, each with its local elements. A data
 * parallel part is a range of that space: so "who holds what" is a shard for each parameter and a
 * few ranges.
 */
#ifndef SHOALI_TENSOR_SHARD_H
#define SHOALI_TENSOR_SHARD_H

#include "tensor/tensor.h"

enum { SHOALI_SHARD_INTERVALS = 4 };

struct shoali_interval {
    int64_t begin, count;
};
struct shoali_shard {
    shoal_shape global, local;
    int32_t count[SHOAL_MAX_DIMS]; /* of intervals */
    struct shoali_interval interval[SHOAL_MAX_DIMS][SHOALI_SHARD_INTERVALS];
};

/* The whole of a shape, as a shard. */
struct shoali_shard shoali_shard_whole(const shoal_shape *global);

/* How a dim is cut. Its indices are `part_count` parts behind each other (0: one, the whole dim),
 * each a number of units of `unit` indices, and each divided on its own: of n units and `ways`
 * ranks, the first n mod ways have one more than the others. */
struct shoali_cut {
    int32_t dim;
    int32_t ways, index; /* this is the index-th of so many */
    int32_t part_count;
    int64_t part[SHOALI_SHARD_INTERVALS]; /* indices of each; they add up to the dim */
    int64_t unit[SHOALI_SHARD_INTERVALS]; /* 0: 1 */
};
/* Cuts a dim that is whole. SHOAL_EINVAL with a sentence naming the dim and the sizes when the
 * parts do not add up or are no whole number of units. */
SHOAL_CHECKED shoal_status shoali_shard_cut(struct shoali_shard *shard,
                                            const struct shoali_cut *cut);

/* Where local element `first` is in the whole, and in *count how many from it on follow each other
 * there (at least 1; beyond the shard's end none are counted). first < local elements. */
int64_t shoali_shard_run(const struct shoali_shard *shard, int64_t first, int64_t *count);
/* How many local elements are before element `global` of the whole: the first that is not. */
int64_t shoali_shard_below(const struct shoali_shard *shard, int64_t global);

#endif
