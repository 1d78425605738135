/* reduce - sums over a middle dim, their reverse, and the arithmetic of collectives. Threads split
 * outputs. */
#include "base/nontemporal.h"
#include "ops/cpu/range.h"

#define WIDE 4 /* vectors side by side, so that additions do not wait for each other */

SHOALI_INLINE void put(void *y, int64_t i, int64_t lanes, v16 v, int32_t accumulate,
                       shoal_dtype dtype)
{
    if (accumulate)
        v = v16_add(lanes_load(y, i, lanes, dtype), v);
    lanes_store(y, i, lanes, v, dtype);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Contiguous rows, lane order. */
static void reduce_rows_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_reduce_args *args = block;
    const float factor = (float)args->factor;
    for (int64_t row = begin; row < end; row++) {
        v16 sum = v16_set1(0.0f);
        for (int64_t c = 0; c < args->reduced; c += 16)
            sum = v16_add(sum, lanes_load(args->x, row * args->reduced + c,
                                          SHOALI_MIN(16, args->reduced - c), args->dtype));
        put(args->y, row, 1, v16_set1(factor * v16_sum(sum)), args->accumulate, args->dtype_out);
    }
}

/* n <= 16*units neighbouring columns of one outer index, row order. Inlined with constant units. */
SHOALI_INLINE void reduce_columns(const struct shoali_reduce_args *args, int64_t outer,
                                  int64_t inner, int64_t n, const int units)
{
    v16 sum[WIDE];
    for (int u = 0; u < units; u++)
        sum[u] = v16_set1(0.0f);
    int64_t at = outer * args->reduced * args->inner + inner;
    for (int64_t r = 0; r < args->reduced; r++, at += args->inner) {
        for (int u = 0; u < units; u++)
            sum[u] = v16_add(
                sum[u], lanes_load(args->x, at + 16 * u, SHOALI_MIN(16, n - 16 * u), args->dtype));
    }
    for (int u = 0; u < units; u++)
        put(args->y, outer * args->inner + inner + 16 * u, SHOALI_MIN(16, n - 16 * u),
            v16_mul(v16_set1((float)args->factor), sum[u]), args->accumulate, args->dtype_out);
}

static void reduce_columns_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_reduce_args *args = block;
    for (int64_t i = begin, n; i < end; i += n) {
        const int64_t outer = i / args->inner, inner = i % args->inner;
        n = SHOALI_MIN(args->inner - inner, end - i);
        if (n >= 16 * WIDE) {
            n = 16 * WIDE;
            reduce_columns(args, outer, inner, n, WIDE);
        } else {
            n = SHOALI_MIN(n, 16);
            reduce_columns(args, outer, inner, n, 1);
        }
    }
}

void SHOALI_CPU_SYMBOL(reduce)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_reduce_args *reduce = args;
    const bool rows = reduce->inner == 1 && !reduce->row_order;
    range_run_wide(context->threads, rows ? reduce_rows_range : reduce_columns_range, reduce,
                   reduce->outer * reduce->inner, rows ? 1 : 16, rows ? 1 : 16 * WIDE,
                   4 * reduce->reduced);
}

/* ---- the reverse ----------------------------------------------------------------------------- */

/* Rows of y: with inner 1 each is one value repeated, else a copy of x's row. */
static void broadcast_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_broadcast_args *args = block;
    const bool repeat = args->inner == 1;
    const int64_t width = repeat ? args->reduced : args->inner;
    const v16 factor = v16_set1((float)args->factor);
    for (int64_t row = begin; row < end; row++) {
        const int64_t from = repeat ? row : row / args->reduced * args->inner;
        float lane[16];
        v16_store(lane, lanes_load(args->x, from, 1, args->dtype));
        for (int64_t c = 0; c < width; c += 16) {
            const int64_t lanes = SHOALI_MIN(16, width - c);
            const v16 x =
                repeat ? v16_set1(lane[0]) : lanes_load(args->x, from + c, lanes, args->dtype);
            put(args->y, row * width + c, lanes, v16_mul(factor, x), args->accumulate, args->dtype);
        }
    }
}

void SHOALI_CPU_SYMBOL(broadcast)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_broadcast_args *broadcast = args;
    const bool repeat = broadcast->inner == 1;
    range_run(context->threads, broadcast_range, broadcast,
              repeat ? broadcast->outer : broadcast->outer * broadcast->reduced, 1,
              8 * (repeat ? broadcast->reduced : broadcast->inner));
}

/* ---- arithmetic of collectives --------------------------------------------------------------- */

SHOALI_INLINE v16 combine(enum shoali_reduce_op op, v16 a, v16 b)
{
    switch (op) {
    case SHOALI_MIN:
        return v16_min(a, b);
    case SHOALI_MAX:
        return v16_max(a, b);
    case SHOALI_PROD:
        return v16_mul(a, b);
    default:
        return v16_add(a, b);
    }
}

/* Sixteen elements of all sources by the tree: as a binary counter carries, a sum of 2^n sources
 * waits in waiting[n] for its neighbour. `lanes` of them are there. */
SHOALI_INLINE v16 tree_of(const struct shoali_reduce_sources_args *args, int64_t i, int64_t lanes,
                          const shoal_dtype dtype)
{
    v16 waiting[9];
    _Static_assert(SHOALI_REDUCE_MAX_SOURCES <= 1 << 8, "a tree is deeper");
    v16 sum = v16_set1(0);
    for (int32_t s = 0; s < args->sources; s++) {
        int level = 0;
        sum = lanes == 16 ? v16_load_as(args->x[s], i, dtype)
                          : lanes_load(args->x[s], i, lanes, dtype);
        for (int32_t carry = s; carry & 1; carry >>= 1)
            sum = v16_add(waiting[level++], sum);
        waiting[level] = sum;
    }
    return sum;
}

/* WIDE vectors from element i on, all sources before any destination: a destination may be a
 * source. */
SHOALI_INLINE void combine_wide(const struct shoali_reduce_sources_args *args, int64_t i,
                                enum shoali_reduce_op op, const shoal_dtype dtype)
{
    v16 acc[WIDE];
    const int32_t in_order = op == SHOALI_SUM_TREE ? 0 : args->sources;
    for (int u = 0; u < WIDE; u++)
        acc[u] = in_order ? v16_load_as(args->x[0], i + 16 * u, dtype)
                          : tree_of(args, i + 16 * u, 16, dtype);
    for (int32_t s = 1; s < in_order; s++) {
        for (int u = 0; u < WIDE; u++)
            acc[u] = combine(op, acc[u], v16_load_as(args->x[s], i + 16 * u, dtype));
    }
    if (op == SHOALI_AVG) {
        for (int u = 0; u < WIDE; u++)
            acc[u] = v16_mul(acc[u], v16_set1(1.0f / (float)args->sources));
    }
    if (args->nontemporal) {
        for (int32_t d = 0; d < args->destinations; d++)
            for (int u = 0; u < WIDE; u++)
                lanes_stream(args->y[d], i + 16 * u, acc[u], dtype);
        return;
    }
    for (int32_t d = 0; d < args->destinations; d++) {
        for (int u = 0; u < WIDE; u++)
            v16_store_as(args->y[d], i + 16 * u, acc[u], dtype);
    }
}

static void combine_tail(const struct shoali_reduce_sources_args *args, int64_t i, int64_t lanes)
{
    const int32_t in_order = args->op == SHOALI_SUM_TREE ? 0 : args->sources;
    v16 acc = in_order ? lanes_load(args->x[0], i, lanes, args->dtype)
                       : tree_of(args, i, lanes, args->dtype);
    for (int32_t s = 1; s < in_order; s++)
        acc = combine(args->op, acc, lanes_load(args->x[s], i, lanes, args->dtype));
    if (args->op == SHOALI_AVG)
        acc = v16_mul(acc, v16_set1(1.0f / (float)args->sources));
    for (int32_t d = 0; d < args->destinations; d++)
        lanes_store(args->y[d], i, lanes, acc, args->dtype);
}

static void sources_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_reduce_sources_args *args = block;
    int64_t i = begin;
    for (; i + 16 * WIDE <= end; i += 16 * WIDE) {
        if (args->dtype == SHOAL_F32 && args->op == SHOALI_SUM)
            combine_wide(args, i, SHOALI_SUM, SHOAL_F32);
        else if (args->dtype == SHOAL_BF16 && args->op == SHOALI_SUM)
            combine_wide(args, i, SHOALI_SUM, SHOAL_BF16);
        else
            combine_wide(args, i, args->op, args->dtype);
    }
    for (; i < end; i += 16)
        combine_tail(args, i, SHOALI_MIN(16, end - i));
    if (args->nontemporal)
        shoali_nontemporal_end();
}

/* Exact sums: in uint64, where they wrap as the reference's do. The block stays in registers and
 * the first-level cache. */
static void integers_range(const void *block, int64_t begin, int64_t end)
{
    enum { BLOCK = 64 };
    const struct shoali_reduce_sources_args *args = block;
    uint64_t sum[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = SHOALI_MIN(BLOCK, end - i);
        for (int32_t s = 0; s < args->sources; s++) {
            const uint64_t *x = (const uint64_t *)args->x[s] + i;
            for (int64_t j = 0; j < n; j++)
                sum[j] = s == 0 ? x[j] : sum[j] + x[j];
        }
        for (int32_t d = 0; d < args->destinations; d++) {
            uint64_t *to = (uint64_t *)args->y[d] + i;
            if (args->nontemporal && n == BLOCK)
                shoali_nontemporal_copy(to, sum, sizeof sum);
            else
                memcpy(to, sum, (size_t)n * sizeof sum[0]);
        }
    }
    if (args->nontemporal)
        shoali_nontemporal_end();
}

/* Of integers the exact sums alone: nothing else is on a step's way. */
bool SHOALI_CPU_SYMBOL(reduce_sources_supports)(const void *args)
{
    const struct shoali_reduce_sources_args *sources = args;
    return sources->dtype != SHOAL_I64 || sources->op == SHOALI_SUM;
}

/* Past the caches whether or not the caller has said so. */
static bool streams(const struct shoali_reduce_sources_args *args, const struct shoali_pool *pool)
{
    const int64_t bytes =
        (int64_t)shoal_dtype_bytes(args->dtype) * (args->sources + args->destinations);
    for (int32_t d = 0; d < args->destinations; d++)
        for (int32_t s = 0; s < args->sources; s++)
            if (!range_streams(pool, args->y[d], args->x[s], args->count, bytes))
                return false;
    return true;
}

void SHOALI_CPU_SYMBOL(reduce_sources)(const void *args,
                                       const struct shoali_kernel_context *context)
{
    struct shoali_reduce_sources_args sources = *(const struct shoali_reduce_sources_args *)args;
    const bool integers = sources.dtype == SHOAL_I64;
    sources.nontemporal = sources.nontemporal || streams(&sources, context->threads);
    range_run(context->threads, integers ? integers_range : sources_range, &sources, sources.count,
              64, 4 * (sources.sources + sources.destinations));
}
