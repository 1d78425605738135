/* shard - which elements of a whole tensor a rank holds. The one language in which parameters,
 * ZeRO, checkpoints, hashes and initial values say so.
 *
 *   interval  indices [begin, begin + count) of one dim of the whole.
 *   shard     in each dim a few intervals that rise and do not touch; the shard holds the elements
 *             whose every index is in one. Its local tensor is row-major with the intervals of a
 *             dim behind each other. No shard (NULL where one may be given) is the whole.
 *   nothing   the shard of a rank that holds none of a tensor: no interval in dim 0, or, of a tensor
 *             without dims, a local shape [0]. A pipeline's stage has nothing of the parameters of
 *             other stages' layers.
 *   run       local elements that follow each other in the whole, too.
 *
 * Several intervals in a dim are for matrices that hold several: columns of q, k and v, of a gate
 * and of what it gates, each cut by itself.
 *
 * Indices rise along the local order, so local elements have the order they have in the whole: a
 * range of the whole is one range of the shard, and files are written and read with rising offsets.
 *
 *   flat space   of a rank: what it holds of all parameters, behind each other in canonical order.
 *   part         a range of it: what ZeRO gives a rank of those that hold the same.
 *
 * So "who holds what" is a shard for each parameter and a few ranges of the flat space. Who speaks:
 *
 *   autograd    makes shards of a parameter's splits and a rank's place along the axes, and says
 *               where an element of the flat space is in the whole of its parameter
 *   zero        cuts flat spaces into ranges; it knows no wholes but for initial values, and which
 *               of its elements no other rank counts
 *   engine      who shares a block, by the mesh; getters, hashes, fingerprints: by runs
 *   checkpoint  ranks exchange shards and ranges; a piece of a file is a range of each shard
 *
 * The same shard of an activation is a shoali_block (tensor.h): it follows shapes through ops,
 * where a shard follows a declared cut.
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
struct shoali_shard shoali_shard_nothing(const shoal_shape *global);
/* NULL is a whole, which is something. */
bool shoali_shard_is_nothing(const struct shoali_shard *shard);

/* How a dim is cut. Its indices are `part_count` parts behind each other (0: one, the whole dim),
 * each a number of units of `unit` indices, and each divided on its own: of n units and `ways`
 * ranks, the first n mod ways have one more than the others. */
struct shoali_dim_partition {
    int32_t dim;
    int32_t ways, index; /* this is the index-th of so many */
    int32_t splits;      /* each part is divided into so many first, of which each of the ways has
                            neighbours; 0: as many as ways, which divide it */
    int32_t part_count;
    int64_t part[SHOALI_SHARD_INTERVALS]; /* indices of each; they add up to the dim */
    int64_t unit[SHOALI_SHARD_INTERVALS]; /* 0: 1 */
    int64_t fine[SHOALI_SHARD_INTERVALS]; /* of fewer units than ways, as shoal_param_spec says */
};
/* What the index-th of `ways` has of a part of `count` indices; *sharers (may be NULL) is how many
 * neighbours have the same. */
struct shoali_interval shoali_shard_share(int64_t count, int64_t unit, int64_t fine, int32_t ways,
                                          int32_t index, int32_t *sharers);
/* The same with `splits` as in a cut. */
struct shoali_interval shoali_shard_share_of(int64_t count, int64_t unit, int64_t fine,
                                             int32_t splits, int32_t ways, int32_t index,
                                             int32_t *sharers);
/* Cuts a dim that is whole. SHOAL_EINVAL with a sentence naming the dim and the sizes when the
 * parts do not add up or are no whole number of units. */
SHOAL_CHECKED shoal_status shoali_shard_partition(struct shoali_shard *shard,
                                                  const struct shoali_dim_partition *cut);

/* Where local element `first` is in the whole, and in *count how many from it on follow each other
 * there (at least 1; beyond the shard's end none are counted). first < local elements. */
int64_t shoali_shard_run(const struct shoali_shard *shard, int64_t first, int64_t *count);
/* How many local elements are before element `global` of the whole: the first that is not. */
int64_t shoali_shard_below(const struct shoali_shard *shard, int64_t global);

/* ---- two of them: NULL is the whole of the shape that both have ---- */

/* Both hold the same elements of wholes of one shape. */
bool shoali_shard_equal(const struct shoali_shard *a, const struct shoali_shard *b);
/* Some element is in both. */
bool shoali_shard_overlap(const struct shoali_shard *a, const struct shoali_shard *b);

/* ---- as words, for other ranks ---- */

/* At most. A shard of a tensor without dims is one word: how many elements it holds. */
enum { SHOALI_SHARD_WORDS = SHOAL_MAX_DIMS * (1 + 2 * SHOALI_SHARD_INTERVALS) };
/* Returns how many words it wrote. */
int32_t shoali_shard_pack(const struct shoali_shard *shard, int64_t words[SHOALI_SHARD_WORDS]);
/* Reads at most `count` words of a shard of this whole, and returns how many it took; 0 when they
 * are none. */
int32_t shoali_shard_unpack(const shoal_shape *global, const int64_t *words, int64_t count,
                            struct shoali_shard *shard);

#endif
