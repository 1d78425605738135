/* Who holds what: said by all ranks once per save or load, then looked up piece by piece. */
#include "checkpoint/checkpoint_internal.h"

#include <stdlib.h>
#include <string.h>

const struct shoali_checkpoint_range *
shoali_checkpoint_ranges(const struct shoali_checkpoint_kind *kind,
                         struct shoali_checkpoint_range *single, int32_t *count)
{
    *single = (struct shoali_checkpoint_range){kind->begin, kind->count};
    *count = kind->range_count > 0 ? kind->range_count : 1;
    return kind->range_count > 0 ? kind->ranges : single;
}

static const struct shoali_shard *own_shard(const struct shoali_shard *const *shards,
                                            int32_t tensor)
{
    return shards ? shards[tensor] : NULL;
}

static int64_t held_count(const struct shoali_shard *shard, const shoal_shape *shape)
{
    return shoal_shape_count(shard ? &shard->local : shape);
}

static const struct shoali_shard *const *shards_of(const struct shoali_checkpoint_args *args,
                                                   const struct shoali_checkpoint_kind *kind)
{
    return kind->shapes ? kind->shards : args->shards;
}

int64_t shoali_checkpoint_held_count(const struct shoali_checkpoint_args *args,
                                     const struct shoali_checkpoint_kind *kind)
{
    const shoal_shape *shapes = shoali_checkpoint_shapes(args, kind);
    int64_t count = 0;
    for (int32_t t = 0; t < args->tensor_count; t++)
        count += held_count(own_shard(shards_of(args, kind), t), &shapes[t]);
    return count;
}

/* ---- views: the flat spaces that there are --------------------------------------------------- */

struct words {
    int64_t *word;
    int64_t count;
};

/* This rank's shards: of each tensor that is cut its number and its intervals. */
static shoal_status pack_shards(struct shoali_checkpoint_run *run,
                                const struct shoali_checkpoint_space *space, struct words *words)
{
    const int32_t tensors = run->args->tensor_count;
    int64_t cut = 0;
    for (int32_t t = 0; t < tensors; t++)
        cut += own_shard(space->shards, t) != NULL;
    words->word = shoali_arena_alloc(&run->arena, (size_t)(cut * (1 + SHOALI_SHARD_WORDS) + 1) *
                                                      sizeof(int64_t));
    if (!words->word)
        return SHOAL_ENOMEM;
    for (int32_t t = 0; t < tensors; t++)
        if (own_shard(space->shards, t)) {
            words->word[words->count++] = t;
            words->count +=
                shoali_shard_pack(own_shard(space->shards, t), words->word + words->count);
        }
    return SHOAL_OK;
}

static shoal_status unpack_shards(struct shoali_checkpoint_run *run,
                                  const struct shoali_checkpoint_space *space,
                                  const struct words *words, struct shoali_checkpoint_view *view)
{
    for (int64_t at = 0; at < words->count;) {
        const int64_t tensor = words->word[at++];
        struct shoali_shard *shard = shoali_arena_alloc(&run->arena, sizeof *shard);
        if (!shard)
            return SHOAL_ENOMEM;
        const int32_t taken = tensor >= 0 && tensor < run->args->tensor_count
                                  ? shoali_shard_unpack(&space->shapes[tensor], words->word + at,
                                                        words->count - at, shard)
                                  : 0;
        if (taken == 0)
            return SHOAL_FAIL(SHOAL_EINTERNAL, "rank %d reports shards of unknown tensors",
                              view->rank);
        view->shard[tensor] = shard;
        at += taken;
    }
    return SHOAL_OK;
}

static shoal_status make_view(struct shoali_checkpoint_run *run,
                              struct shoali_checkpoint_view *view)
{
    const size_t tensors = (size_t)run->args->tensor_count;
    view->shard = shoali_arena_alloc(&run->arena, (tensors + 1) * sizeof *view->shard);
    view->begin = shoali_arena_alloc(&run->arena, (tensors + 1) * sizeof *view->begin);
    view->origin = shoali_arena_alloc(&run->arena, (tensors + 1) * sizeof *view->origin);
    if (!view->shard || !view->begin || !view->origin)
        return SHOAL_ENOMEM;
    memset(view->shard, 0, (tensors + 1) * sizeof *view->shard);
    return SHOAL_OK;
}

/* A block is known by the first view that has it. */
static void find_origins(struct shoali_checkpoint_run *run, struct shoali_checkpoint_space *space,
                         int32_t index)
{
    struct shoali_checkpoint_view *view = &space->view[index];
    int64_t begin = 0;
    for (int32_t t = 0; t < run->args->tensor_count; t++) {
        view->origin[t] = index;
        for (int32_t v = index; v > 0; v--)
            if (shoali_shard_equal(space->view[v - 1].shard[t], view->shard[t]))
                view->origin[t] = v - 1;
        view->begin[t] = begin;
        begin += held_count(view->shard[t], &space->shapes[t]);
        run->cut = run->cut || view->shard[t];
    }
    view->begin[run->args->tensor_count] = begin;
}

/* The view's first rank tells its shards; the others have made room for them. */
static shoal_status share_view(struct shoali_checkpoint_run *run,
                               struct shoali_checkpoint_space *space, int32_t index,
                               const struct words *own, int64_t count)
{
    shoal_status status = SHOAL_OK;
    struct shoali_checkpoint_view *view = &space->view[index];
    struct words words = {.count = count};
    SHOAL_TRY(status, shoali_checkpoint_agree(run, make_view(run, view)), done);
    words.word = run->rank == view->rank
                     ? own->word
                     : shoali_arena_alloc(&run->arena, (size_t)(count + 1) * sizeof(int64_t));
    SHOAL_TRY(status, shoali_checkpoint_agree(run, words.word ? SHOAL_OK : SHOAL_ENOMEM), done);
    if (count > 0 && run->size > 1)
        SHOAL_TRY(status,
                  shoal_broadcast(run->args->group, words.word, count, SHOAL_I64, view->rank, NULL),
                  done);
    SHOAL_TRY(status, shoali_checkpoint_agree(run, unpack_shards(run, space, &words, view)), done);
    find_origins(run, space, index);
done:
    return status;
}

/* What a rank says of its view: ranks that say the same have the same. */
struct view_name {
    int64_t hash, count;
};

/* Numbers the views in the order of their first ranks. */
static void number_views(struct shoali_checkpoint_space *space, int32_t ranks,
                         const struct view_name *name)
{
    for (int32_t r = 0; r < ranks; r++) {
        int32_t first = 0;
        while (name[first].hash != name[r].hash || name[first].count != name[r].count)
            first++;
        space->view_of[r] = first < r ? space->view_of[first] : space->view_count;
        if (first == r)
            space->view[space->view_count++].rank = r;
    }
}

static shoal_status learn_views(struct shoali_checkpoint_run *run,
                                struct shoali_checkpoint_space *space)
{
    shoal_status status;
    struct words own = {0};
    const size_t ranks = (size_t)run->size;
    struct view_name *name = shoali_arena_alloc(&run->arena, ranks * sizeof *name);
    space->view_of = shoali_arena_alloc(&run->arena, ranks * sizeof *space->view_of);
    space->view = shoali_arena_alloc(&run->arena, ranks * sizeof *space->view);
    status = name && space->view_of && space->view ? pack_shards(run, space, &own) : SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_checkpoint_agree(run, status), done);
    struct view_name mine = {.count = own.count};
    const uint64_t hash = shoali_hash64(own.word, (size_t)own.count * sizeof *own.word);
    memcpy(&mine.hash, &hash, sizeof mine.hash);
    name[0] = mine;
    if (run->size > 1)
        SHOAL_TRY(status, shoal_all_gather(run->args->group, &mine, name, 2, SHOAL_I64, NULL),
                  done);
    number_views(space, run->size, name);
    for (int32_t v = 0; v < space->view_count; v++)
        SHOAL_TRY(status, share_view(run, space, v, &own, name[space->view[v].rank].count), done);
done:
    return status;
}

/* ---- blocks make up their tensors ------------------------------------------------------------ */

static shoal_status check_blocks(const struct shoali_checkpoint_run *run,
                                 const struct shoali_checkpoint_space *space, int32_t tensor)
{
    const struct shoali_checkpoint_args *args = run->args;
    int64_t sum = 0;
    for (int32_t v = 0; v < space->view_count; v++) {
        if (space->view[v].origin[tensor] != v)
            continue;
        const struct shoali_shard *shard = space->view[v].shard[tensor];
        sum += held_count(shard, &space->shapes[tensor]);
        for (int32_t w = 0; w < v; w++)
            if (space->view[w].origin[tensor] == w &&
                shoali_shard_overlap(shard, space->view[w].shard[tensor]))
                return SHOAL_FAIL(SHOAL_EINVAL,
                                  "tensor `%s` is partitioned differently on rank %d and rank %d",
                                  args->names[tensor], space->view[w].rank, space->view[v].rank);
    }
    if (sum != shoal_shape_count(&space->shapes[tensor]))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "tensor `%s`: the blocks on all ranks have %lld elements, the tensor has "
                          "%lld",
                          args->names[tensor], (long long)sum,
                          (long long)shoal_shape_count(&space->shapes[tensor]));
    return SHOAL_OK;
}

/* ---- holdings: parts of blocks --------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct shoali_checkpoint_holding *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    if (x->origin != y->origin)
        return x->origin < y->origin ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->count != y->count)
        return x->count < y->count ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The tensor that element `at` of the view's flat space is of. */
static int32_t tensor_at(const struct shoali_checkpoint_view *view, int32_t tensors, int64_t at)
{
    int32_t low = 0;
    for (int32_t high = tensors; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (view->begin[middle + 1] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Ranges of all ranks: [size][count]. */
struct gathered {
    struct shoali_checkpoint_range *own, *all;
    int32_t count; /* of each rank, with empty ones to fill up */
};

/* The index-th range of all, tensor by tensor; to NULL it is counted alone. */
static int64_t add_range(const struct shoali_checkpoint_space *space, int32_t tensors,
                         const struct gathered *gathered, int32_t index,
                         struct shoali_checkpoint_holding *holding)
{
    const int32_t rank = index / gathered->count;
    const struct shoali_checkpoint_range *range = &gathered->all[index];
    const struct shoali_checkpoint_view *view = &space->view[space->view_of[rank]];
    const int64_t end = range->begin + range->count;
    int64_t made = 0;
    for (int64_t at = range->begin; at < end;) {
        const int32_t t = tensor_at(view, tensors, at);
        const int64_t stop = view->begin[t + 1] < end ? view->begin[t + 1] : end;
        if (holding)
            holding[made] = (struct shoali_checkpoint_holding){
                .tensor = t,
                .origin = view->origin[t],
                .rank = rank,
                .range = index % gathered->count,
                .begin = at - view->begin[t],
                .count = stop - at,
            };
        made++;
        at = stop;
    }
    return made;
}

static shoal_status make_room(struct shoali_checkpoint_run *run, int32_t kind,
                              struct gathered *gathered)
{
    struct shoali_checkpoint_range single;
    int32_t ranges;
    const struct shoali_checkpoint_range *range =
        shoali_checkpoint_ranges(&run->args->kinds[kind], &single, &ranges);
    const size_t own = (size_t)gathered->count, all = own * (size_t)run->size;
    gathered->own = shoali_arena_alloc(&run->arena, own * sizeof *gathered->own);
    gathered->all = shoali_arena_alloc(&run->arena, all * sizeof *gathered->all);
    if (!gathered->own || !gathered->all)
        return SHOAL_ENOMEM;
    for (int32_t r = 0; r < gathered->count; r++)
        gathered->own[r] = r < ranges ? range[r] : (struct shoali_checkpoint_range){0, 0};
    return SHOAL_OK;
}

/* Of a replicated kind the first rank of each view stands for the others. */
static shoal_status gather_ranges(struct shoali_checkpoint_run *run, int32_t kind,
                                  struct gathered *gathered)
{
    shoal_status status;
    struct shoali_checkpoint_range single;
    const struct shoali_checkpoint_space *space = run->space[kind];
    const bool replicated = run->args->kinds[kind].replicated;
    shoali_checkpoint_ranges(&run->args->kinds[kind], &single, &gathered->count);
    gathered->count = replicated ? 1 : gathered->count;
    if (run->size > 1 && !replicated)
        SHOAL_TRY(status,
                  shoal_all_reduce(run->args->group, &gathered->count, &gathered->count, 1,
                                   SHOAL_I32, SHOAL_MAX, NULL),
                  done);
    SHOAL_TRY(status, shoali_checkpoint_agree(run, make_room(run, kind, gathered)), done);
    if (replicated) {
        memset(gathered->all, 0, (size_t)run->size * sizeof *gathered->all);
        for (int32_t v = 0; v < space->view_count; v++)
            gathered->all[space->view[v].rank].count =
                space->view[v].begin[run->args->tensor_count];
    } else if (run->size > 1) {
        SHOAL_TRY(status,
                  shoal_all_gather(run->args->group, gathered->own, gathered->all,
                                   2 * gathered->count, SHOAL_I64, NULL),
                  done);
    } else {
        gathered->all = gathered->own;
    }
done:
    return status;
}

static shoal_status list_holdings(struct shoali_checkpoint_run *run, int32_t kind,
                                  const struct gathered *gathered)
{
    struct shoali_checkpoint_holdings *list = &run->holdings[kind];
    int64_t count = 0;
    for (int32_t i = 0; i < run->size * gathered->count; i++)
        count += add_range(run->space[kind], run->args->tensor_count, gathered, i, NULL);
    list->holding = shoali_arena_alloc(&run->arena, ((size_t)count + 1) * sizeof *list->holding);
    if (!list->holding)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < run->size * gathered->count; i++)
        list->count += add_range(run->space[kind], run->args->tensor_count, gathered, i,
                                 list->holding + list->count);
    qsort(list->holding, (size_t)list->count, sizeof *list->holding, by_place);
    return SHOAL_OK;
}

/* The holdings of a block have to cover it. Moves *next behind them. */
static shoal_status check_cover(struct shoali_checkpoint_run *run, int32_t kind, int32_t view,
                                int32_t tensor, int64_t *next)
{
    const struct shoali_checkpoint_holdings *list = &run->holdings[kind];
    const struct shoali_checkpoint_args *args = run->args;
    const struct shoali_checkpoint_space *space = run->space[kind];
    const int64_t whole = held_count(space->view[view].shard[tensor], &space->shapes[tensor]);
    int64_t reached = 0;
    for (; *next < list->count; ++*next) {
        struct shoali_checkpoint_holding *is = &list->holding[*next];
        if (is->tensor != tensor || is->origin != view || is->begin > reached)
            break;
        const int64_t end = is->begin + is->count;
        is->fresh = reached < end ? reached : end;
        is->reached = reached = end > reached ? end : reached;
    }
    if (reached != whole)
        return SHOAL_FAIL(
            SHOAL_EINVAL, "kind `%s`, tensor `%s`: no rank holds element %lld of %lld",
            args->kinds[kind].name, args->names[tensor], (long long)reached, (long long)whole);
    return SHOAL_OK;
}

static shoal_status learn_kind(struct shoali_checkpoint_run *run, int32_t kind)
{
    shoal_status status;
    struct gathered gathered = {0};
    const struct shoali_checkpoint_space *space = run->space[kind];
    int64_t next = 0;
    SHOAL_TRY(status, gather_ranges(run, kind, &gathered), done);
    SHOAL_TRY(status, shoali_checkpoint_agree(run, list_holdings(run, kind, &gathered)), done);
    for (int32_t t = 0; t < run->args->tensor_count; t++)
        for (int32_t v = 0; v < space->view_count; v++)
            if (space->view[v].origin[t] == v)
                SHOAL_TRY(status, check_cover(run, kind, v, t, &next), done);
done:
    return status;
}

/* Of the parameters' shapes, or of a kind's own. */
static shoal_status learn_space(struct shoali_checkpoint_run *run,
                                const struct shoali_checkpoint_kind *kind,
                                struct shoali_checkpoint_space **made)
{
    shoal_status status;
    const int32_t tensors = run->args->tensor_count;
    int64_t begin = 0;
    struct shoali_checkpoint_space *space = shoali_arena_alloc(&run->arena, sizeof *space);
    SHOAL_TRY(status, shoali_checkpoint_agree(run, space ? SHOAL_OK : SHOAL_ENOMEM), done);
    *space = (struct shoali_checkpoint_space){.shapes = shoali_checkpoint_shapes(run->args, kind),
                                              .shards = shards_of(run->args, kind)};
    space->whole_begin =
        shoali_arena_alloc(&run->arena, ((size_t)tensors + 1) * sizeof *space->whole_begin);
    space->order = shoali_arena_alloc(&run->arena, ((size_t)tensors + 1) * sizeof *space->order);
    status = space->whole_begin && space->order ? SHOAL_OK : SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_checkpoint_agree(run, status), done);
    space->order_count = tensors;
    for (int32_t t = 0; t < tensors; t++) {
        space->order[t] = t;
        space->whole_begin[t] = begin;
        begin += shoal_shape_count(&space->shapes[t]);
    }
    SHOAL_TRY(status, learn_views(run, space), done);
    for (int32_t t = 0; t < tensors && run->cut; t++)
        SHOAL_TRY(status, check_blocks(run, space, t), done);
    *made = space;
done:
    return status;
}

shoal_status shoali_checkpoint_learn_holders(struct shoali_checkpoint_run *run)
{
    shoal_status status = SHOAL_OK;
    struct shoali_checkpoint_space *shared = NULL; /* by the kinds without shapes of their own */
    for (int32_t k = 0; k < run->args->kind_count; k++) {
        const struct shoali_checkpoint_kind *kind = &run->args->kinds[k];
        if (kind->shapes || !shared)
            SHOAL_TRY(status, learn_space(run, kind, &run->space[k]), done);
        else
            run->space[k] = shared;
        if (!kind->shapes)
            shared = run->space[k];
        SHOAL_TRY(status, learn_kind(run, k), done);
    }
done:
    return status;
}
