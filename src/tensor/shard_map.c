/* shard_map.c - cutting a range of the flat space into pieces of named tensors. */
#include "tensor/tensor.h"

#include <string.h>

struct overlap {
    int64_t begin, count; /* in the flattened tensor */
};

/* What the flat range [begin, end) has of a tensor at [offset, offset + elements). */
static struct overlap overlap_of(int64_t offset, int64_t elements, int64_t begin, int64_t end)
{
    const int64_t from = begin > offset ? begin : offset;
    const int64_t to = end < offset + elements ? end : offset + elements;
    return (struct overlap){from - offset, to > from ? to - from : 0};
}

/* Checks all shapes and counts the tensors that the range touches. */
static shoal_status count_pieces(const char *const *names, const shoal_shape *shapes, int32_t count,
                                 int64_t begin, int64_t end, int32_t *pieces)
{
    int64_t offset = 0;
    *pieces = 0;
    for (int32_t i = 0; i < count; i++) {
        const int64_t elements = shoal_shape_count(&shapes[i]);
        int64_t next;
        if (elements < 0 || !shoali_add(offset, elements, &next)) {
            char text[128];
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "shard map: tensor %s of shape %s has a negative dim or makes the "
                              "flat space overflow 63 bits",
                              names[i], shoali_shape_format(&shapes[i], text));
        }
        *pieces += overlap_of(offset, elements, begin, end).count > 0;
        offset = next;
    }
    return SHOAL_OK;
}

shoal_status shoali_shard_map_range(const char *const *names, const shoal_shape *shapes,
                                    int32_t count, int64_t begin, int64_t end,
                                    struct shoali_arena *arena, struct shoali_shard_map *map)
{
    memset(map, 0, sizeof *map);
    if (begin < 0 || end < begin)
        return SHOAL_FAIL(SHOAL_EINVAL, "shard map: range [%lld, %lld) is not ordered or negative",
                          (long long)begin, (long long)end);
    shoal_status status;
    int32_t pieces;
    SHOAL_TRY(status, count_pieces(names, shapes, count, begin, end, &pieces), done);
    if (pieces == 0)
        goto done;
    struct shoali_shard *shard = shoali_arena_alloc(arena, (size_t)pieces * sizeof *shard);
    if (shard == NULL) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    int64_t offset = 0, elements = 0, covered = 0;
    int32_t used = 0;
    for (int32_t i = 0; i < count; i++, offset += elements) {
        elements = shoal_shape_count(&shapes[i]);
        const struct overlap part = overlap_of(offset, elements, begin, end);
        if (part.count == 0)
            continue;
        const char *name = shoali_arena_strdup(arena, names[i]);
        if (name == NULL) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        shard[used++] = (struct shoali_shard){
            .name = name,
            .global = shapes[i],
            .begin = part.begin,
            .count = part.count,
            .flat_offset = offset + part.begin - begin,
            .global_offset = offset,
            .param = i,
        };
        covered += part.count;
    }
    *map = (struct shoali_shard_map){shard, used, covered};
done:
    return status;
}
