/* shard.c - cutting dims into intervals, the way between local and global elements, words. */
#include "tensor/shard.h"

struct shoali_shard shoali_shard_whole(const shoal_shape *global)
{
    struct shoali_shard shard = {.global = *global, .local = *global};
    for (int32_t d = 0; d < global->ndim; d++) {
        shard.count[d] = 1;
        shard.interval[d][0].count = global->dim[d];
    }
    return shard;
}

struct shoali_shard shoali_shard_nothing(const shoal_shape *global)
{
    struct shoali_shard shard = shoali_shard_whole(global);
    if (global->ndim == 0) {
        shard.local = (shoal_shape){.ndim = 1};
        return shard;
    }
    shard.count[0] = 0;
    shard.local.dim[0] = 0;
    return shard;
}

bool shoali_shard_is_nothing(const struct shoali_shard *shard)
{
    return shard != NULL && shoal_shape_count(&shard->local) == 0;
}

/* ---- cutting -------------------------------------------------------------------------------- */

static shoal_status check_cut(const struct shoali_shard *shard,
                              const struct shoali_dim_partition *cut)
{
    char text[128];
    int64_t sum = 0;
    const bool valid = cut->dim >= 0 && cut->dim < shard->global.ndim && cut->ways >= 1 &&
                       cut->index >= 0 && cut->index < cut->ways && cut->part_count >= 0 &&
                       cut->part_count <= SHOALI_SHARD_INTERVALS;
    if (!valid || shard->local.dim[cut->dim] != shard->global.dim[cut->dim])
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "dim %d of shape %s cannot be partitioned into %d parts of which this is "
                          "number %d, or is already partitioned",
                          (int)cut->dim, shoali_shape_format(&shard->global, text), (int)cut->ways,
                          (int)cut->index);
    for (int32_t p = 0; p < cut->part_count; p++) {
        const int64_t unit = cut->unit[p] > 0 ? cut->unit[p] : 1;
        if (cut->part[p] % unit != 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "dim %d of shape %s: part %d of %lld indices is not made of units of "
                              "%lld",
                              (int)cut->dim, shoali_shape_format(&shard->global, text), (int)p,
                              (long long)cut->part[p], (long long)unit);
        if (cut->fine[p] > 0 && unit % cut->fine[p] != 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "dim %d of shape %s: units of %lld indices of part %d are not made "
                              "of pieces of %lld",
                              (int)cut->dim, shoali_shape_format(&shard->global, text),
                              (long long)unit, (int)p, (long long)cut->fine[p]);
        sum += cut->part[p];
    }
    if (cut->part_count > 0 && sum != shard->global.dim[cut->dim])
        return SHOAL_FAIL(SHOAL_EINVAL, "dim %d of shape %s: its parts add up to %lld",
                          (int)cut->dim, shoali_shape_format(&shard->global, text), (long long)sum);
    return SHOAL_OK;
}

struct shoali_interval shoali_shard_share(int64_t count, int64_t unit, int64_t fine, int32_t ways,
                                          int32_t index, int32_t *sharers)
{
    const int64_t units = count / unit, each = units / ways, more = units % ways;
    const int64_t before = each * index + (index < more ? index : more);
    if (sharers)
        *sharers = 1;
    if (fine <= 0 || units == 0 || units >= ways || ways % units != 0)
        return (struct shoali_interval){before * unit, (each + (index < more)) * unit};
    const int32_t together = (int32_t)(ways / units);
    const int64_t begin = index / together * unit;
    if (fine == unit) {
        if (sharers)
            *sharers = together;
        return (struct shoali_interval){begin, unit};
    }
    struct shoali_interval piece =
        shoali_shard_share(unit, fine, 0, together, index % together, NULL);
    piece.begin += begin;
    return piece;
}

struct shoali_interval shoali_shard_share_of(int64_t count, int64_t unit, int64_t fine,
                                             int32_t splits, int32_t ways, int32_t index,
                                             int32_t *sharers)
{
    const int32_t each = splits > ways ? splits / ways : 1;
    struct shoali_interval all =
        shoali_shard_share(count, unit, fine, each * ways, each * index, sharers);
    const struct shoali_interval last =
        shoali_shard_share(count, unit, fine, each * ways, each * index + each - 1, NULL);
    all.count = last.begin + last.count - all.begin;
    return all;
}

shoal_status shoali_shard_partition(struct shoali_shard *shard,
                                    const struct shoali_dim_partition *cut)
{
    shoal_status status;
    SHOAL_TRY(status, check_cut(shard, cut), done);
    const int32_t d = cut->dim, parts = cut->part_count > 0 ? cut->part_count : 1;
    int32_t kept = 0;
    int64_t begin = 0, local = 0;
    for (int32_t p = 0; p < parts; p++) {
        const int64_t part = cut->part_count > 0 ? cut->part[p] : shard->global.dim[d];
        struct shoali_interval one =
            shoali_shard_share_of(part, cut->unit[p] > 0 ? cut->unit[p] : 1, cut->fine[p],
                                  cut->splits, cut->ways, cut->index, NULL);
        one.begin += begin;
        begin += part;
        local += one.count;
        struct shoali_interval *last = kept > 0 ? &shard->interval[d][kept - 1] : NULL;
        if (last != NULL && last->begin + last->count == one.begin)
            last->count += one.count;
        else if (one.count > 0 || parts == 1)
            shard->interval[d][kept++] = one;
    }
    shard->count[d] = kept;
    shard->local.dim[d] = local;
done:
    return status;
}

/* ---- local and global ----------------------------------------------------------------------- */

/* Where local index `at` of a dim is in the whole; *left indices of its interval follow, itself
 * counted. */
static int64_t dim_global(const struct shoali_shard *shard, int32_t d, int64_t at, int64_t *left)
{
    const struct shoali_interval *interval = shard->interval[d];
    while (at >= interval->count) {
        at -= interval->count;
        interval++;
    }
    *left = interval->count - at;
    return interval->begin + at;
}

static bool dim_is_whole(const struct shoali_shard *shard, int32_t d)
{
    return shard->local.dim[d] == shard->global.dim[d];
}

int64_t shoali_shard_run(const struct shoali_shard *shard, int64_t first, int64_t *count)
{
    int64_t global = 0, stride = 1, inner = 1;
    bool follows = true; /* everything inside dim d is whole */
    *count = 1;
    for (int32_t d = shard->global.ndim - 1; d >= 0; d--) {
        int64_t left;
        const int64_t digit = first % shard->local.dim[d];
        const int64_t at = dim_global(shard, d, digit, &left);
        /* The rest of the innermost cut dim's interval, less what of it is done further inside. */
        if (follows)
            *count = left * inner - global;
        follows = follows && dim_is_whole(shard, d);
        global += at * stride;
        stride *= shard->global.dim[d];
        inner *= shard->local.dim[d];
        first /= shard->local.dim[d];
    }
    return global;
}

/* Local indices of a dim below global index `at`; *inside: it has `at` itself. */
static int64_t dim_below(const struct shoali_shard *shard, int32_t d, int64_t at, bool *inside)
{
    int64_t below = 0;
    *inside = false;
    for (int32_t i = 0; i < shard->count[d]; i++) {
        const struct shoali_interval *interval = &shard->interval[d][i];
        const int64_t part = at - interval->begin;
        below += part <= 0 ? 0 : part < interval->count ? part : interval->count;
        *inside = *inside || (part >= 0 && part < interval->count);
    }
    return below;
}

int64_t shoali_shard_below(const struct shoali_shard *shard, int64_t global)
{
    int64_t digit[SHOAL_MAX_DIMS], result = 0;
    const int32_t ndim = shard->global.ndim;
    if (ndim == 0 || global <= 0)
        return ndim == 0 && global > 0 && !shoali_shard_is_nothing(shard);
    for (int32_t d = ndim - 1; d > 0; d--) {
        digit[d] = shard->global.dim[d] > 0 ? global % shard->global.dim[d] : 0;
        global = shard->global.dim[d] > 0 ? global / shard->global.dim[d] : 0;
    }
    digit[0] = global;
    bool inside = true; /* so far the digits are those of a local element */
    for (int32_t d = 0; d < ndim; d++) {
        result *= shard->local.dim[d];
        if (inside)
            result += dim_below(shard, d, digit[d], &inside);
    }
    return result;
}

/* ---- two of them ---------------------------------------------------------------------------- */

bool shoali_shard_equal(const struct shoali_shard *a, const struct shoali_shard *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    if (!shoali_shape_equal(&a->global, &b->global) || !shoali_shape_equal(&a->local, &b->local))
        return false;
    for (int32_t d = 0; d < a->global.ndim; d++) {
        if (a->count[d] != b->count[d])
            return false;
        for (int32_t i = 0; i < a->count[d]; i++)
            if (a->interval[d][i].begin != b->interval[d][i].begin ||
                a->interval[d][i].count != b->interval[d][i].count)
                return false;
    }
    return true;
}

static bool dim_overlaps(const struct shoali_shard *a, const struct shoali_shard *b, int32_t d)
{
    for (int32_t i = 0; i < a->count[d]; i++)
        for (int32_t k = 0; k < b->count[d]; k++) {
            const struct shoali_interval *x = &a->interval[d][i], *y = &b->interval[d][k];
            const int64_t begin = x->begin > y->begin ? x->begin : y->begin;
            if (begin < x->begin + x->count && begin < y->begin + y->count)
                return true;
        }
    return false;
}

bool shoali_shard_overlap(const struct shoali_shard *a, const struct shoali_shard *b)
{
    if (shoali_shard_is_nothing(a) || shoali_shard_is_nothing(b))
        return false;
    for (int32_t d = 0; a != NULL && b != NULL && d < a->global.ndim; d++)
        if (!dim_overlaps(a, b, d))
            return false;
    return true;
}

/* ---- words ---------------------------------------------------------------------------------- */

int32_t shoali_shard_pack(const struct shoali_shard *shard, int64_t words[SHOALI_SHARD_WORDS])
{
    int32_t count = 0;
    if (shard->global.ndim == 0)
        words[count++] = shoal_shape_count(&shard->local);
    for (int32_t d = 0; d < shard->global.ndim; d++) {
        words[count++] = shard->count[d];
        for (int32_t i = 0; i < shard->count[d]; i++) {
            words[count++] = shard->interval[d][i].begin;
            words[count++] = shard->interval[d][i].count;
        }
    }
    return count;
}

/* The intervals of one dim; how many words they are, 0: they are none of this dim. */
static int32_t unpack_dim(const int64_t *words, int64_t count, struct shoali_shard *shard,
                          int32_t d)
{
    int64_t end = 0;
    if (count < 1 || words[0] < 0 || words[0] > SHOALI_SHARD_INTERVALS || count < 1 + 2 * words[0])
        return 0;
    shard->count[d] = (int32_t)words[0];
    shard->local.dim[d] = 0;
    for (int32_t i = 0; i < shard->count[d]; i++) {
        const struct shoali_interval one = {words[1 + 2 * i], words[2 + 2 * i]};
        if (one.begin < end || one.count < 0 || one.begin > shard->global.dim[d] - one.count)
            return 0;
        end = one.begin + one.count;
        shard->interval[d][i] = one;
        shard->local.dim[d] += one.count;
    }
    return 1 + 2 * shard->count[d];
}

int32_t shoali_shard_unpack(const shoal_shape *global, const int64_t *words, int64_t count,
                            struct shoali_shard *shard)
{
    int32_t taken = 0;
    *shard = (struct shoali_shard){.global = *global, .local = *global};
    if (global->ndim == 0) {
        if (count < 1 || words[0] < 0 || words[0] > 1)
            return 0;
        *shard = words[0] > 0 ? shoali_shard_whole(global) : shoali_shard_nothing(global);
        return 1;
    }
    for (int32_t d = 0; d < global->ndim; d++) {
        const int32_t dim = unpack_dim(words + taken, count - taken, shard, d);
        if (dim == 0)
            return 0;
        taken += dim;
    }
    return taken;
}
