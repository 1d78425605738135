/* Who holds what: gathered once per save or load, then looked up element by element. */
#include "checkpoint/checkpoint_internal.h"

#include <stdlib.h>

const struct shoali_checkpoint_range *
shoali_checkpoint_ranges(const struct shoali_checkpoint_kind *kind,
                         struct shoali_checkpoint_range *single, int32_t *count)
{
    *single = (struct shoali_checkpoint_range){kind->begin, kind->count};
    *count = kind->range_count > 0 ? kind->range_count : 1;
    return kind->range_count > 0 ? kind->ranges : single;
}

/* Of two that begin together the longer one comes last, where the look-up finds it. */
static int by_begin(const void *a, const void *b)
{
    const struct shoali_checkpoint_holding *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->count > y->count) - (x->count < y->count);
}

int32_t shoali_checkpoint_holder(const struct shoali_checkpoint_run *run, int32_t kind, int32_t nth,
                                 int64_t at, int64_t end, int64_t *count)
{
    const struct shoali_checkpoint_holding *holding = run->holding[kind];
    int32_t low = 0; /* the first that begins after `at` */
    for (int32_t high = run->holding_count[kind]; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (holding[middle].begin <= at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || at - holding[low - 1].begin >= holding[low - 1].count)
        return -1;
    const int64_t left = holding[low - 1].begin + holding[low - 1].count - at;
    *count = left < end - at ? left : end - at;
    /* Copies lie together. */
    const struct shoali_checkpoint_holding *copy = &holding[low - 1] - nth;
    return nth < low && copy->begin == holding[low - 1].begin ? copy->rank : -1;
}

int32_t shoali_checkpoint_owner(const struct shoali_checkpoint_run *run, int32_t kind, int64_t at,
                                int64_t end, int64_t *count)
{
    return shoali_checkpoint_holder(run, kind, 0, at, end, count);
}

/* The ranks' parts of a kind have to cover the flat space, each element as often as it is said. */
static shoal_status check_cover(const struct shoali_checkpoint_run *run, int32_t kind)
{
    const char *name = run->args->kinds[kind].name;
    const int64_t flat_count = run->flat_count[kind];
    int64_t sum = 0, count = 0;
    for (int32_t h = 0; h < run->holding_count[kind]; h++)
        sum += run->holding[kind][h].count;
    for (int64_t at = 0; at < flat_count; at += count)
        if (shoali_checkpoint_owner(run, kind, at, flat_count, &count) < 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "kind `%s`: no rank holds element %lld of %lld", name,
                              (long long)at, (long long)flat_count);
    const int32_t copies = run->args->kinds[kind].copies;
    if (sum != flat_count * (copies > 1 ? copies : 1))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "kind `%s`: the ranks hold %lld elements together, the tensors have %lld",
                          name, (long long)sum, (long long)flat_count);
    return SHOAL_OK;
}

/* Room for everybody's ranges; the number per rank is the same. */
struct gathered {
    struct shoali_checkpoint_range *own, *all; /* all: [size][count] */
    int32_t count;
};

static shoal_status make_room(struct shoali_checkpoint_run *run, int32_t kind,
                              struct gathered *gathered)
{
    struct shoali_checkpoint_range single;
    const struct shoali_checkpoint_range *range =
        shoali_checkpoint_ranges(&run->args->kinds[kind], &single, &gathered->count);
    const size_t own = (size_t)gathered->count, all = own * (size_t)run->size;
    gathered->own = shoali_arena_alloc(&run->arena, own * sizeof *gathered->own);
    gathered->all = shoali_arena_alloc(&run->arena, all * sizeof *gathered->all);
    run->holding[kind] = shoali_arena_alloc(&run->arena, all * sizeof *run->holding[kind]);
    if (!gathered->own || !gathered->all || !run->holding[kind])
        return SHOAL_ENOMEM;
    for (int32_t r = 0; r < gathered->count; r++)
        gathered->own[r] = range[r];
    return SHOAL_OK;
}

static shoal_status learn_kind(struct shoali_checkpoint_run *run, int32_t kind)
{
    shoal_status status;
    struct gathered gathered = {0};
    SHOAL_TRY(status, shoali_checkpoint_agree(run, make_room(run, kind, &gathered)), done);
    const struct shoali_checkpoint_range *all = run->size > 1 ? gathered.all : gathered.own;
    if (run->size > 1)
        SHOAL_TRY(status,
                  shoal_all_gather(run->args->group, gathered.own, gathered.all, 2 * gathered.count,
                                   SHOAL_I64, NULL),
                  done);
    int32_t count = 0;
    for (int32_t i = 0; i < run->size * gathered.count; i++)
        if (all[i].count > 0)
            run->holding[kind][count++] =
                (struct shoali_checkpoint_holding){all[i].begin, all[i].count, i / gathered.count};
    qsort(run->holding[kind], (size_t)count, sizeof *run->holding[kind], by_begin);
    run->holding_count[kind] = count;
    SHOAL_TRY(status, check_cover(run, kind), done);
done:
    return status;
}

shoal_status shoali_checkpoint_learn_holders(struct shoali_checkpoint_run *run)
{
    shoal_status status = SHOAL_OK;
    for (int32_t k = 0; k < run->args->kind_count; k++)
        if (!run->args->kinds[k].replicated)
            SHOAL_TRY(status, learn_kind(run, k), done);
done:
    return status;
}
