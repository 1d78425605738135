/* kv_cache - keys and values of the positions that sequences have read, so that a tape can go on
 * with new tokens alone.
 *
 *   sequence  a text that grows; it has `positions` places.
 *   entry     one attention op of the model, in the order of the forward pass: a block
 *             [sequences, positions, 2 KV D] in the type of its activations, each row the k and v
 *             heads of one position as they stand in qkv.
 *   segment   new tokens of one sequence: rows [first_row, first_row + rows) of the pass, whose
 *             tokens are [1, all rows]. They stand at `position` and the following.
 *
 * A tape that generates (shoali_tape_begin's generation) computes rows with the training ops; those
 * that depend on a position ask the segments. Every op gives a row the same bits whatever its
 * neighbours are, so how a text is cut into passes, and which texts share a pass, changes no bit
 * of a logit.
 *
 * The first pass is one in meta mode: it says which entries there are. shoali_kv_cache_place then
 * takes the memory, once.
 */
#ifndef SHOALI_AUTOGRAD_KV_CACHE_H
#define SHOALI_AUTOGRAD_KV_CACHE_H

#include "base/base.h"
#include "tensor/tensor.h"

struct shoali_device;
struct shoali_kv_cache;

struct shoali_kv_segment {
    int32_t sequence;
    int64_t first_row, rows, position;
};
struct shoali_generation {
    struct shoali_kv_cache *cache;            /* borrowed */
    const struct shoali_kv_segment *segments; /* borrowed until the tape ends */
    int32_t segment_count;
};

SHOAL_CHECKED shoal_status shoali_kv_cache_create(struct shoali_device *device, int32_t sequences,
                                                  int64_t positions,
                                                  struct shoali_kv_cache **cache);
void shoali_kv_cache_destroy(struct shoali_kv_cache *cache);
/* Memory for the entries that a pass in meta mode met. */
SHOAL_CHECKED shoal_status shoali_kv_cache_place(struct shoali_kv_cache *cache);
int64_t shoali_kv_cache_positions(const struct shoali_kv_cache *cache);
/* A pass begins: the next attention op is the first. */
void shoali_kv_cache_rewind(struct shoali_kv_cache *cache);
/* The next attention op's entry, of `width` elements a row. *data is the first row, NULL before
 * there is memory. SHOAL_EINTERNAL when passes differ in their ops. */
SHOAL_CHECKED shoal_status shoali_kv_cache_next(struct shoali_kv_cache *cache, int64_t width,
                                                shoal_dtype dtype, void **data);

#endif
