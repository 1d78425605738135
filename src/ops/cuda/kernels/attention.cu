/* Attention in the order of ops/attention_plain_real.h: scores in dot order, sums over keys or queries
 * one by one.
 *
 * A block has FEW queries of a head and goes through their keys in chunks of MANY, or it has FEW keys
 * and goes through the queries of their group. Of a chunk each thread has one: it computes its scores
 * with the few. Then a thread has some elements of the few's results, and adds the chunk up. Vectors
 * are read in slices of SLICE elements. */
#include "ops/cuda/kernels/attention_common.h"

enum { MANY = CUDA_ATTENTION_THREADS, FEW = CUDA_ATTENTION_FEW, SLICE = 64 };
/* Of the few, a thread has every second one's element THREAD % SLICE. */
enum { OWN = FEW * SLICE / MANY };
enum { Q_SIDE, OUT_SIDE }; /* where the vectors of queries lie: in q, dq or in out, dout */
struct attention_shared {
    float many[MANY][SLICE + 1], few[FEW][SLICE], p[FEW][MANY], ds[FEW][MANY];
    float largest[FEW], lse[FEW], delta[FEW];
    int64_t few_at[2][FEW], many_at[2][MANY]; /* elements; < 0: there is none */
    int64_t begin[MANY], end[MANY];           /* the keys that a query sees */
};
SAME(sizeof(struct attention_shared), CUDA_ATTENTION_SHARED);

/* Where the vectors of one query lie, in elements, and which keys it sees. */
struct query {
    int64_t q, out, key, begin, end, flat;
    uint64_t mask; /* of key 0 */
};
DEVICE struct query query_at(const struct cuda_attention_args *args, int64_t b, int64_t h,
                             int64_t t)
{
    struct query query;
    const int64_t group = quotient(args->heads, args->kv_heads);
    const int64_t past = t + args->kv_len - args->q_len + 1; /* its own key, and 1 */
    const int64_t keys = keys_of(args, b);
    query.begin = 0;
    query.end = keys;
    if (args->causal && past < keys)
        query.end = past > 0 ? past : 0;
    if (args->window > 0 && past > args->window)
        query.begin = past - args->window;
    query.q = (b * args->q_len + t) * args->q_stride + h * args->head_size;
    query.out = (b * args->q_len + t) * args->out_stride + h * args->head_size;
    query.key = b * args->kv_len * args->kv_stride + quotient(h, group) * args->head_size;
    query.flat = (b * args->heads + h) * args->q_len + t;
    query.mask = mask_at(args, b, h, t);
    return query;
}

/* ---- vectors, in slices ---- */

DEVICE void load_slice(const struct cuda_attention_args *args, float *to, int stride,
                       const void *from, const int64_t *at, int vectors, int64_t d_first,
                       int32_t dtype)
{
    UNROLL_BY_8
    for (int i = THREAD; i < vectors * SLICE; i += MANY) {
        const int vector = i / SLICE, d = i % SLICE;
        to[vector * stride + d] = at[vector] >= 0 && d_first + d < args->head_size
                                      ? load_as(from, at[vector] + d_first + d, dtype)
                                      : 0.0f;
    }
}
DEVICE void load_many(const struct cuda_attention_args *args, struct attention_shared *s,
                      const void *from, const int64_t *at, int64_t d_first)
{
    block_barrier();
    BY_TYPE(args->dtype, load_slice, args, &s->many[0][0], SLICE + 1, from, at, MANY, d_first);
    block_barrier();
}

/* The products of the thread's vector of `many` with each of `few`, in dot order. */
DEVICE void dots(const struct cuda_attention_args *args, struct attention_shared *s,
                 const void *few, const int64_t *few_at, const void *many, const int64_t *many_at,
                 float sum[FEW])
{
    UNROLL
    for (int f = 0; f < FEW; f++)
        sum[f] = 0;
    for (int64_t d_first = 0; d_first < args->head_size; d_first += SLICE) {
        const int depth =
            args->head_size - d_first < SLICE ? (int)(args->head_size - d_first) : (int)SLICE;
        block_barrier();
        BY_TYPE(args->dtype, load_slice, args, &s->few[0][0], SLICE, few, few_at, FEW, d_first);
        load_many(args, s, many, many_at, d_first);
        for (int d = 0; d < depth; d++) {
            const float x = s->many[THREAD][d];
            UNROLL
            for (int f = 0; f < FEW; f++)
                sum[f] = v1_fma(s->few[f][d], x, sum[f]);
        }
    }
}

/* Puts the thread's products into shared memory, where a loop may index them. */
DEVICE void keep_products(float to[FEW][MANY], const float from[FEW])
{
    UNROLL
    for (int f = 0; f < FEW; f++)
        to[f][THREAD] = from[f];
}

/* ---- a block of queries ---- */

/* What dropout multiplies a probability with. */
DEVICE float keep_factor(const struct cuda_attention_args *args, const struct query *query,
                         int64_t j)
{
    if (!(args->keep_scale > 0))
        return 1;
    return dense_keeps(&args->random, query->mask + (uint64_t)j, args->threshold) ? args->keep_scale
                                                                                  : 0;
}

/* The block's queries. In `begin` and `end` are the keys that they see; none where there is none. */
struct few_queries {
    int64_t b, h, t, first, end; /* the first query; the keys that any of them sees */
};
DEVICE struct few_queries set_queries(const struct cuda_attention_args *args,
                                      struct attention_shared *s)
{
    struct few_queries few;
    const int64_t tiles = (args->q_len + FEW - 1) / FEW;
    few.t = remainder_of(BLOCK, tiles) * FEW;
    few.h = remainder_of(quotient(BLOCK, tiles), args->heads);
    few.b = quotient(quotient(BLOCK, tiles), args->heads);
    few.first = INT64_MAX;
    few.end = 0;
    for (int f = 0; f < FEW; f++) {
        const int there = few.t + f < args->q_len;
        const struct query query = query_at(args, few.b, few.h, there ? few.t + f : few.t);
        if (THREAD == 0) {
            s->few_at[Q_SIDE][f] = there ? query.q : -1;
            s->few_at[OUT_SIDE][f] = there ? query.out : -1;
            s->begin[f] = query.begin;
            s->end[f] = there ? query.end : query.begin;
        }
        if (there && query.begin < query.end && query.begin < few.first)
            few.first = query.begin;
        if (there && query.begin < query.end && query.end > few.end)
            few.end = query.end;
    }
    block_barrier();
    return few;
}
/* The chunk's keys: their vectors' places. */
DEVICE void set_keys(const struct cuda_attention_args *args, struct attention_shared *s,
                     const struct few_queries *few, int64_t first)
{
    const int64_t j = first + THREAD;
    const int64_t key = query_at(args, few->b, few->h, few->t).key;
    block_barrier();
    s->many_at[Q_SIDE][THREAD] = j < few->end ? key + j * args->kv_stride : -1;
    block_barrier();
}
DEVICE int sees(const struct attention_shared *s, int f, int64_t j)
{
    return j >= s->begin[f] && j < s->end[f];
}

/* Each query's largest score, in shared memory. */
DEVICE void find_largest(const struct cuda_attention_args *args, struct attention_shared *s,
                         const struct few_queries *few)
{
    float largest[FEW], sum[FEW];
    UNROLL
    for (int f = 0; f < FEW; f++)
        largest[f] = -__builtin_inff();
    for (int64_t first = few->first; first < few->end; first += MANY) {
        set_keys(args, s, few, first);
        dots(args, s, args->q, s->few_at[Q_SIDE], args->k, s->many_at[Q_SIDE], sum);
        UNROLL
        for (int f = 0; f < FEW; f++)
            if (sees(s, f, first + THREAD))
                largest[f] = v1_max(sum[f] * args->scale, largest[f]);
    }
    UNROLL
    for (int f = 0; f < FEW; f++)
        s->p[f][THREAD] = largest[f];
    for (int width = MANY / 2; width > 0; width /= 2) {
        block_barrier();
        for (int f = 0; f < FEW && THREAD < width; f++)
            s->p[f][THREAD] = v1_max(s->p[f][THREAD + width], s->p[f][THREAD]);
    }
    block_barrier();
    if (THREAD < FEW)
        s->largest[THREAD] = s->p[THREAD][0];
    block_barrier();
}

/* The logarithm of each query's sum of exp, which one thread adds up. */
DEVICE void find_lse(const struct cuda_attention_args *args, struct attention_shared *s,
                     const struct few_queries *few)
{
    float total = 0, sum[FEW];
    find_largest(args, s, few);
    for (int64_t first = few->first; first < few->end; first += MANY) {
        set_keys(args, s, few, first);
        dots(args, s, args->q, s->few_at[Q_SIDE], args->k, s->many_at[Q_SIDE], sum);
        UNROLL
        for (int f = 0; f < FEW; f++)
            s->p[f][THREAD] = v1_exp(sum[f] * args->scale - s->largest[f]);
        block_barrier();
        for (int i = 0; THREAD < FEW && i < MANY; i++)
            if (sees(s, THREAD, first + i))
                total += s->p[THREAD][i];
        block_barrier();
    }
    if (THREAD < FEW)
        s->lse[THREAD] = s->begin[THREAD] < s->end[THREAD] ? s->largest[THREAD] + v1_log(total)
                                                           : -__builtin_inff();
    block_barrier();
}

/* Adds the chunk's vectors in `many` by weight, for the thread's element of its queries. */
DEVICE void add_chunk(const struct attention_shared *s, const float weight[FEW][MANY],
                      int64_t first, float sum[OWN])
{
    const int d = THREAD % SLICE, own = THREAD / SLICE * OWN;
    for (int i = 0; i < MANY; i++) {
        const float x = s->many[i][d];
        UNROLL
        for (int f = 0; f < OWN; f++)
            if (sees(s, own + f, first + i))
                sum[f] = v1_fma(weight[own + f][i], x, sum[f]);
    }
}

KERNEL_TOGETHER(attention, struct cuda_attention_args, MANY, 1)
{
    SHARED(struct attention_shared, s);
    const struct few_queries few = set_queries(args, s);
    const int own = THREAD / SLICE * OWN;
    float dot[FEW];
    find_lse(args, s, &few);
    if (THREAD < FEW && few.t + THREAD < args->q_len)
        args->lse[(few.b * args->heads + few.h) * args->q_len + few.t + THREAD] = s->lse[THREAD];
    for (int64_t d_first = 0; d_first < args->head_size; d_first += SLICE) {
        float sum[OWN] = {0};
        for (int64_t first = few.first; first < few.end; first += MANY) {
            set_keys(args, s, &few, first);
            dots(args, s, args->q, s->few_at[Q_SIDE], args->k, s->many_at[Q_SIDE], dot);
            keep_products(s->p, dot);
            for (int f = 0; f < FEW; f++) {
                const struct query query = query_at(args, few.b, few.h, few.t + f);
                if (sees(s, f, first + THREAD))
                    s->p[f][THREAD] = v1_exp(s->p[f][THREAD] * args->scale - s->lse[f]) *
                                      keep_factor(args, &query, first + THREAD);
            }
            load_many(args, s, args->v, s->many_at[Q_SIDE], d_first);
            add_chunk(s, s->p, first, sum);
        }
        UNROLL
        for (int f = 0; f < OWN; f++)
            if (s->few_at[OUT_SIDE][own + f] >= 0 && d_first + THREAD % SLICE < args->head_size)
                store_as(args->o, s->few_at[OUT_SIDE][own + f] + d_first + THREAD % SLICE, sum[f],
                         args->dtype);
    }
}

/* ---- gradients ---- */

/* The gradient of a score before its scale; *p is the probability behind dropout. */
DEVICE float score_gradient(const struct cuda_attention_args *args, const struct query *query,
                            int64_t j, float score, float dp, float lse, float delta, float *p)
{
    const float probability = v1_exp(score * args->scale - lse);
    const float keep = keep_factor(args, query, j);
    *p = probability * keep;
    return probability * (dp * keep - delta);
}

/* Each query's sum of dout * out: one thread's, in dot order. */
DEVICE void find_delta(const struct cuda_attention_args *args, struct attention_shared *s,
                       const struct few_queries *few)
{
    const int64_t flat = (few->b * args->heads + few->h) * args->q_len + few->t + THREAD;
    if (THREAD < FEW && few->t + THREAD < args->q_len) {
        const int64_t at = s->few_at[OUT_SIDE][THREAD];
        float sum = 0;
        for (int64_t d = 0; d < args->head_size; d++)
            sum = v1_fma(load_as(args->dout, at + d, args->dtype),
                         load_as(args->out, at + d, args->dtype), sum);
        s->delta[THREAD] = sum;
        s->lse[THREAD] = args->lse[flat];
        args->delta[flat] = sum;
    }
    block_barrier();
}

KERNEL_TOGETHER(attention_dq, struct cuda_attention_args, MANY, 1)
{
    SHARED(struct attention_shared, s);
    const struct few_queries few = set_queries(args, s);
    const int own = THREAD / SLICE * OWN;
    float score[FEW], dp[FEW], p;
    find_delta(args, s, &few);
    for (int64_t d_first = 0; d_first < args->head_size; d_first += SLICE) {
        float sum[OWN] = {0};
        for (int64_t first = few.first; first < few.end; first += MANY) {
            set_keys(args, s, &few, first);
            dots(args, s, args->q, s->few_at[Q_SIDE], args->k, s->many_at[Q_SIDE], score);
            keep_products(s->p, score);
            dots(args, s, args->dout, s->few_at[OUT_SIDE], args->v, s->many_at[Q_SIDE], dp);
            keep_products(s->ds, dp);
            for (int f = 0; f < FEW; f++) {
                const struct query query = query_at(args, few.b, few.h, few.t + f);
                if (sees(s, f, first + THREAD))
                    s->ds[f][THREAD] = score_gradient(args, &query, first + THREAD, s->p[f][THREAD],
                                                      s->ds[f][THREAD], s->lse[f], s->delta[f], &p);
            }
            load_many(args, s, args->k, s->many_at[Q_SIDE], d_first);
            add_chunk(s, s->ds, first, sum);
        }
        UNROLL
        for (int f = 0; f < OWN; f++)
            if (s->few_at[Q_SIDE][own + f] >= 0 && d_first + THREAD % SLICE < args->head_size)
                store_as(args->dq, s->few_at[Q_SIDE][own + f] + d_first + THREAD % SLICE,
                         sum[f] * args->scale, args->dtype);
    }
}

/* The chunk's queries, numbered through the heads of the group. */
DEVICE struct query set_many_queries(const struct cuda_attention_args *args,
                                     struct attention_shared *s, int64_t b, int64_t kv_head,
                                     int64_t index)
{
    const int64_t group = quotient(args->heads, args->kv_heads);
    const int there = index < group * args->q_len;
    const int64_t at = there ? index : 0;
    const struct query query = query_at(args, b, kv_head * group + quotient(at, args->q_len),
                                        remainder_of(at, args->q_len));
    block_barrier();
    s->many_at[Q_SIDE][THREAD] = there ? query.q : -1;
    s->many_at[OUT_SIDE][THREAD] = there ? query.out : -1;
    s->begin[THREAD] = query.begin;
    s->end[THREAD] = there ? query.end : query.begin;
    block_barrier();
    return query;
}

/* Adds what the chunk's queries give to the thread's element of its keys. */
DEVICE void add_queries(const struct attention_shared *s, const float weight[FEW][MANY], int64_t j,
                        float sum[OWN])
{
    const int d = THREAD % SLICE, own = THREAD / SLICE * OWN;
    for (int i = 0; i < MANY; i++) {
        const float x = s->many[i][d];
        UNROLL
        for (int f = 0; f < OWN; f++)
            if (sees(s, i, j + own + f))
                sum[f] = v1_fma(weight[own + f][i], x, sum[f]);
    }
}

/* Over the heads of the group, and then over the queries that see the key. */
KERNEL(attention_dkv, struct cuda_attention_args, MANY)
{
    SHARED(struct attention_shared, s);
    const int64_t tiles = (args->kv_len + FEW - 1) / FEW, j = remainder_of(BLOCK, tiles) * FEW;
    const int64_t kv_head = remainder_of(quotient(BLOCK, tiles), args->kv_heads);
    const int64_t b = quotient(quotient(BLOCK, tiles), args->kv_heads);
    const int64_t all = quotient(args->heads, args->kv_heads) * args->q_len;
    const int own = THREAD / SLICE * OWN;
    float score[FEW], dp[FEW];
    if (THREAD < FEW)
        s->few_at[Q_SIDE][THREAD] =
            j + THREAD < args->kv_len
                ? (b * args->kv_len + j + THREAD) * args->kv_stride + kv_head * args->head_size
                : -1;
    for (int64_t d_first = 0; d_first < args->head_size; d_first += SLICE) {
        float dk[OWN] = {0}, dv[OWN] = {0};
        for (int64_t first = 0; first < all; first += MANY) {
            const struct query query = set_many_queries(args, s, b, kv_head, first + THREAD);
            dots(args, s, args->k, s->few_at[Q_SIDE], args->q, s->many_at[Q_SIDE], score);
            keep_products(s->p, score);
            dots(args, s, args->v, s->few_at[Q_SIDE], args->dout, s->many_at[OUT_SIDE], dp);
            keep_products(s->ds, dp);
            for (int f = 0; f < FEW; f++)
                if (sees(s, THREAD, j + f))
                    s->ds[f][THREAD] = score_gradient(args, &query, j + f, s->p[f][THREAD],
                                                      s->ds[f][THREAD], args->lse[query.flat],
                                                      args->delta[query.flat], &s->p[f][THREAD]);
            load_many(args, s, args->q, s->many_at[Q_SIDE], d_first);
            add_queries(s, s->ds, j, dk);
            load_many(args, s, args->dout, s->many_at[OUT_SIDE], d_first);
            add_queries(s, s->p, j, dv);
        }
        UNROLL
        for (int f = 0; f < OWN; f++)
            if (s->few_at[Q_SIDE][own + f] >= 0 && d_first + THREAD % SLICE < args->head_size) {
                const int64_t at = s->few_at[Q_SIDE][own + f] + d_first + THREAD % SLICE;
                store_as(args->dk, at, dk[f] * args->scale, args->dtype);
                store_as(args->dv, at, dv[f], args->dtype);
            }
    }
}
