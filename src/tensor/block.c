/* block.c - where a tensor lies in its whole: cutting, slicing, and the global index of an element.
 */
#include "tensor/tensor.h"

#include <string.h>

struct shoali_block shoali_block_whole(const shoal_shape *shape)
{
    struct shoali_block block = {0};
    for (int32_t d = 0; d < shape->ndim; d++)
        (void)shoali_block_append_whole(&block, shape->dim[d]);
    return block;
}

bool shoali_block_equal(const struct shoali_block *a, const struct shoali_block *b)
{
    const size_t bytes = (size_t)(a->ndim > 0 ? a->ndim : 0) * sizeof(int64_t);
    return a->ndim == b->ndim && memcmp(a->count, b->count, bytes) == 0 &&
           memcmp(a->global, b->global, bytes) == 0 && memcmp(a->offset, b->offset, bytes) == 0;
}

/* ---- appending ---- */

bool shoali_block_append(struct shoali_block *block, const struct shoali_block *from, int32_t begin,
                         int32_t end)
{
    if (block->ndim + end - begin > SHOALI_BLOCK_MAX_DIMS)
        return false;
    for (int32_t d = begin; d < end; d++, block->ndim++) {
        block->count[block->ndim] = from->count[d];
        block->global[block->ndim] = from->global[d];
        block->offset[block->ndim] = from->offset[d];
    }
    return true;
}

bool shoali_block_append_whole(struct shoali_block *block, int64_t count)
{
    if (block->ndim >= SHOALI_BLOCK_MAX_DIMS)
        return false;
    block->count[block->ndim] = count;
    block->global[block->ndim] = count;
    block->offset[block->ndim] = 0;
    block->ndim++;
    return true;
}

/* ---- cutting and joining dims ---- */

static int64_t times(int64_t global, int64_t count)
{
    return global == SHOALI_BLOCK_OPEN ? global : global * count;
}

/* Dim d-1 takes in the whole dim d. */
static void merge(struct shoali_block *block, int32_t d)
{
    const int64_t inner = block->count[d];
    block->count[d - 1] *= inner;
    block->global[d - 1] = times(block->global[d - 1], inner);
    block->offset[d - 1] *= inner;
    for (int32_t i = d; i + 1 < block->ndim; i++) {
        block->count[i] = block->count[i + 1];
        block->global[i] = block->global[i + 1];
        block->offset[i] = block->offset[i + 1];
    }
    block->ndim--;
}

/* Dim d becomes two, the inner one whole and of `inner` elements. */
static bool cut(struct shoali_block *block, int32_t d, int64_t inner)
{
    const bool open = block->global[d] == SHOALI_BLOCK_OPEN;
    if (block->ndim == SHOALI_BLOCK_MAX_DIMS || block->count[d] % inner != 0 ||
        block->offset[d] % inner != 0 || (!open && block->global[d] % inner != 0))
        return false;
    for (int32_t i = block->ndim++; i > d + 1; i--) {
        block->count[i] = block->count[i - 1];
        block->global[i] = block->global[i - 1];
        block->offset[i] = block->offset[i - 1];
    }
    block->count[d] /= inner;
    block->global[d] = open ? SHOALI_BLOCK_OPEN : block->global[d] / inner;
    block->offset[d] /= inner;
    block->count[d + 1] = inner;
    block->global[d + 1] = inner;
    block->offset[d + 1] = 0;
    return true;
}

static bool is_whole(const struct shoali_block *block, int32_t d)
{
    return block->offset[d] == 0 && block->global[d] == block->count[d];
}

/* Takes dims before `end` until they multiply to `wanted`; *begin is the first of them. What is in
 * front of `end` may be cut, so *moved says how many dims came in before it. */
static bool take(struct shoali_block *block, int32_t end, int64_t wanted, int32_t *begin,
                 int32_t *moved)
{
    int32_t at = end;
    *moved = 0;
    while (wanted > 1 && at > 0) {
        const int64_t count = block->count[at - 1];
        if (wanted % count == 0) {
            wanted /= count;
            at--;
        } else if (count % wanted == 0) {
            if (!cut(block, at - 1, wanted))
                return false;
            ++*moved;
            wanted = 1;
        } else if (at > 1 && is_whole(block, at - 1)) {
            merge(block, at - 1);
            at--;
            --*moved;
        } else {
            return false;
        }
    }
    *begin = at;
    return wanted == 1;
}

bool shoali_block_align(struct shoali_block *block, const shoal_shape *shape, int32_t *first)
{
    if (shoal_shape_count(shape) == 0) {
        *block = shoali_block_whole(shape);
        for (int32_t d = 0; d <= shape->ndim; d++)
            first[d] = d;
        return true;
    }
    int32_t end = block->ndim;
    first[shape->ndim] = end;
    for (int32_t d = shape->ndim - 1; d >= 0; d--) {
        int32_t moved;
        if (!take(block, end, shape->dim[d], &first[d], &moved))
            return false;
        for (int32_t later = d + 1; later <= shape->ndim; later++)
            first[later] += moved;
        /* A dim of one element may stand at an offset of its own. */
        if (shape->dim[d] == 1 && first[d] > 0 && block->count[first[d] - 1] == 1)
            first[d]--;
        end = first[d];
    }
    if (shape->ndim > 0)
        first[0] = 0;
    return true;
}

bool shoali_block_join(const struct shoali_block *block, int32_t begin, int32_t end,
                       int64_t *global, int64_t *offset)
{
    struct shoali_block part = {0};
    (void)shoali_block_append(&part, block, begin, end);
    while (part.ndim > 1) {
        const int32_t last = part.ndim - 1;
        if (is_whole(&part, last)) {
            merge(&part, last);
            continue;
        }
        if (part.count[last - 1] != 1)
            return false;
        part.offset[last] += part.offset[last - 1] * part.global[last];
        part.global[last] = times(part.global[last - 1], part.global[last]);
        part.count[last - 1] = part.count[last];
        part.global[last - 1] = part.global[last];
        part.offset[last - 1] = part.offset[last];
        part.ndim--;
    }
    *global = part.ndim > 0 ? part.global[0] : 1;
    *offset = part.ndim > 0 ? part.offset[0] : 0;
    return true;
}

bool shoali_block_slice(struct shoali_block *block, int32_t begin, int32_t end, int64_t from,
                        int64_t count)
{
    for (int32_t d = begin; d < end; d++) {
        int64_t inner = 1;
        for (int32_t i = d + 1; i < end; i++)
            inner *= block->count[i];
        if (count == 0 || inner == 0) {
            block->count[begin] = 0;
            return true;
        }
        if (from % inner == 0 && count % inner == 0) {
            block->offset[d] += from / inner;
            block->count[d] = count / inner;
            return true;
        }
        if (from / inner != (from + count - 1) / inner)
            return false;
        block->offset[d] += from / inner;
        block->count[d] = 1;
        from %= inner;
    }
    return from == 0 && count == 1;
}

/* ---- numbers ---- */

int64_t shoali_block_runs(const struct shoali_block *block, struct shoali_runs *runs)
{
    uint64_t first = 0, stride = 1;
    int64_t count[SHOALI_BLOCK_MAX_DIMS], step[SHOALI_BLOCK_MAX_DIMS];
    int32_t found = 0; /* from the innermost on */
    for (int32_t d = block->ndim - 1; d >= 0; d--) {
        first += (uint64_t)block->offset[d] * stride;
        const bool follows =
            found > 0 && stride == (uint64_t)step[found - 1] * (uint64_t)count[found - 1];
        if (follows) {
            count[found - 1] *= block->count[d];
        } else if (block->count[d] != 1 || found == 0) {
            count[found] = block->count[d];
            step[found++] = (int64_t)(stride & INT64_MAX);
        }
        stride *= (uint64_t)block->global[d];
    }
    *runs = (struct shoali_runs){.ndim = found};
    for (int32_t d = 0; d < found; d++) {
        runs->count[d] = count[found - 1 - d];
        runs->stride[d] = step[found - 1 - d];
    }
    return (int64_t)(first & INT64_MAX);
}
