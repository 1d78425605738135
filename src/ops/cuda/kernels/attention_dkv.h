/* attention_dkv - the kernel of the gradients of keys and values, which reads delta. No include
 * guard: see attention_rows.h.
 *
 * A warp has 16 keys, whose scores are the transposed ones: a row for a key, a column for a query.
 * It adds over the heads of the group upward and, of each, over the tiles of queries upward, 16 at
 * a time. Queries behind the last one are zeros with an lse of 0, and add zeros. */

struct SIZED(dkv_shared) {
    SIZED(row) k[MMA_OWN], v[MMA_OWN], q[2][SIZED(TILE)], dout[2][SIZED(TILE)];
    float lse[2][SIZED(TILE)], delta[2][SIZED(TILE)];
    uint32_t keep[SIZED(TILE)][2]; /* of the tile: a query's bits for the block's keys */
    int sees[MMA_OWN][2];          /* the queries that see a key, begin and end */
};
SAME(sizeof(struct SIZED(dkv_shared)), CUDA_ATTENTION_DKV_SHARED(HEAD));

/* Where the block works. */
struct SIZED(dkv) {
    int b, h, j, last;              /* its first head, its keys, first and last */
    int begin, end;                 /* the queries that see any of them, of each head */
    int whole_begin, whole_end;     /* the queries that see all of them */
    int left, there;                /* tiles to fetch; the next one's queries, and those behind */
    int64_t to_next_q, to_next_out; /* from behind a head's queries to the next head's */
    struct SIZED(source) q, dout;
    const float *lse, *delta;
};
/* What the lane has of its two rows. */
struct SIZED(dkv_rows) {
    struct SIZED(own) own;
    float dk[SIZED(COLUMNS)][4], dv[SIZED(COLUMNS)][4];
};

DEVICE void SIZED(set_queries)(const struct cuda_attention_args *args, struct SIZED(dkv) * at)
{
    const int64_t first = (int64_t)at->b * args->q_len + at->begin;
    const int64_t flat = ((int64_t)at->b * args->heads + at->h) * args->q_len + at->begin;
    const int tiles = (at->end - at->begin + SIZED(TILE) - 1) / SIZED(TILE);
    at->left = at->end > at->begin ? tiles * (int)quotient(args->heads, args->kv_heads) : 0;
    at->there = (int)args->q_len - at->begin;
    at->to_next_q = HEAD - tiles * SIZED(TILE) * args->q_stride;
    at->to_next_out = HEAD - tiles * SIZED(TILE) * args->out_stride;
    at->q = SIZED(source_at)(args->q, first * args->q_stride + at->h * HEAD, args->q_stride);
    at->dout =
        SIZED(source_at)(args->dout, first * args->out_stride + at->h * HEAD, args->out_stride);
    at->lse = args->lse + flat;
    at->delta = args->delta + flat;
}

DEVICE struct SIZED(dkv)
    SIZED(dkv_at)(const struct cuda_attention_args *args, struct SIZED(dkv_shared) * s)
{
    struct SIZED(dkv) at;
    const int64_t tiles = (args->kv_len + MMA_OWN - 1) / MMA_OWN, head = quotient(BLOCK, tiles);
    const int64_t b = quotient(head, args->kv_heads);
    const struct sight sight = sight_of(args, b);
    const int q_len = (int)args->q_len, kv_len = (int)args->kv_len;
    at.b = (int)b;
    at.h = (int)(remainder_of(head, args->kv_heads) * quotient(args->heads, args->kv_heads));
    at.j = (int)remainder_of(BLOCK, tiles) * MMA_OWN;
    at.last = at.j + MMA_OWN < kv_len ? at.j + MMA_OWN - 1 : kv_len - 1;
    at.begin = first_query(&sight, at.j) / SIZED(TILE) * SIZED(TILE);
    at.end = at.j < sight.keys
                 ? end_of_queries(&sight, at.last < sight.keys ? at.last : sight.keys - 1, q_len)
                 : 0;
    at.whole_begin = first_query(&sight, at.last);
    at.whole_end =
        args->keep_scale > 0 || at.last >= sight.keys ? 0 : end_of_queries(&sight, at.j, q_len);
    if (THREAD < MMA_OWN) {
        s->sees[THREAD][0] = first_query(&sight, at.j + THREAD);
        s->sees[THREAD][1] = end_of_queries(&sight, at.j + THREAD, q_len);
    }
    SIZED(set_queries)(args, &at);
    return at;
}

/* Sends for the next tile of queries, of this head or the next one. */
DEVICE void SIZED(fetch_queries)(const struct cuda_attention_args *args,
                                 struct SIZED(dkv_shared) * s, struct SIZED(dkv) * at, int stage)
{
    const int i = THREAD % SIZED(TILE);
    if (at->left-- <= 0)
        return;
    SIZED(fetch)(s->q[stage], &at->q, SIZED(TILE), at->there);
    SIZED(fetch)(s->dout[stage], &at->dout, SIZED(TILE), at->there);
    if (THREAD < SIZED(TILE))
        copy4_or_zero_later(&s->lse[stage][i], at->lse + i, i < at->there);
    else if (THREAD < 2 * SIZED(TILE))
        copy4_or_zero_later(&s->delta[stage][i], at->delta + i, i < at->there);
    copies_commit();
    at->there -= SIZED(TILE);
    at->lse += SIZED(TILE);
    at->delta += SIZED(TILE);
    if ((int)args->q_len - at->there >= at->end) {
        const int64_t back = args->q_len - ((int)args->q_len - at->there - at->begin);
        at->there = (int)args->q_len - at->begin;
        at->lse += back;
        at->delta += back;
        at->q.next += at->to_next_q;
        at->dout.next += at->to_next_out;
    }
}

/* The warp's keys and 16 queries of a tile; t is the first one's number. */
DEVICE void SIZED(dkv_add)(const struct cuda_attention_args *args, struct SIZED(dkv_shared) * s,
                           struct SIZED(dkv_rows) * rows, int t, int of_tile, int stage, int whole)
{
    const int row = WARP_OF_BLOCK * 16 + LANE_ROW;
    const float factor = factor_of(args);
    float score[2][4] = {{0}}, gradient[2][4] = {{0}};
    SIZED(two_products)
    (score, gradient, &rows->own, &s->k[WARP_OF_BLOCK * 16], &s->v[WARP_OF_BLOCK * 16],
     &s->q[stage][of_tile], &s->dout[stage][of_tile]);
    UNROLL
    for (int i = 0; i < 8; i++) {
        const int n = i / 4, r = i / 2 % 2, e = i % 4, place = 8 * n + LANE_COLUMN + e % 2;
        const int *sees = s->sees[row + 8 * r];
        const float bias = bias_of_lse(s->lse[stage][of_tile + place]);
        const float delta = s->delta[stage][of_tile + place];
        if (whole)
            differentiate(&score[n][e], &gradient[n][e], factor, bias, delta);
        else
            differentiate_masked(args, &score[n][e], &gradient[n][e], factor, bias, delta,
                                 t + place >= sees[0] && t + place < sees[1],
                                 s->keep[of_tile + place][(row + 8 * r) / 32] >>
                                     (row + 8 * r) % 32);
    }
    SIZED(add_product)(rows->dv, score, &s->dout[stage][of_tile]);
    SIZED(add_product)(rows->dk, gradient, &s->q[stage][of_tile]);
}

DEVICE void SIZED(dkv_tile)(const struct cuda_attention_args *args, struct SIZED(dkv_shared) * s,
                            struct SIZED(dkv) * at, struct SIZED(dkv_rows) * rows, int t, int stage,
                            int whole)
{
    enum { PART = SIZED(TILE) / 4 };
    copies_wait(0);
    block_barrier();
    SIZED(fetch_queries)(args, s, at, stage ^ 1);
    if (!whole && args->keep_scale > 0) {
        draw_mask(args, &s->keep[WARP_OF_BLOCK * PART], at->b, at->h, t + WARP_OF_BLOCK * PART,
                  PART, at->j, MMA_OWN);
        block_barrier();
    }
    UNROLL_BY_2
    for (int i = 0; i < SIZED(TILE) && whole; i += 16)
        SIZED(dkv_add)(args, s, rows, t + i, i, stage, 1);
    UNROLL_BY_1
    for (int i = 0; i < SIZED(TILE) && !whole; i += 16)
        SIZED(dkv_add)(args, s, rows, t + i, i, stage, 0);
}

/* All tiles of a head. The stage of the first one; returns that of the next head's. */
DEVICE int SIZED(dkv_head)(const struct cuda_attention_args *args, struct SIZED(dkv_shared) * s,
                           struct SIZED(dkv) * at, struct SIZED(dkv_rows) * rows, int stage)
{
    int t = at->begin;
    while (t < at->end) {
        for (; t >= at->whole_begin && t + SIZED(TILE) <= at->whole_end;
             t += SIZED(TILE), stage ^= 1)
            SIZED(dkv_tile)(args, s, at, rows, t, stage, 1);
        if (t >= at->end)
            break;
        SIZED(dkv_tile)(args, s, at, rows, t, stage, 0);
        t += SIZED(TILE), stage ^= 1;
    }
    return stage;
}

KERNEL(SIZED(attention_dkv), struct cuda_attention_args, MMA_THREADS)
{
    SHARED(struct SIZED(dkv_shared), s);
    struct SIZED(dkv) at = SIZED(dkv_at)(args, s);
    const int group = (int)quotient(args->heads, args->kv_heads), own = WARP_OF_BLOCK * 16;
    const int kept = args->keep_scale > 0;
    const float k_factor[2] = {args->scale, args->scale};
    const float v_factor[2] = {kept ? args->keep_scale : 1.0f, kept ? args->keep_scale : 1.0f};
    const int64_t first =
        ((int64_t)at.b * args->kv_len + at.j) * args->kv_stride + quotient(at.h, group) * HEAD;
    const int64_t to = first + own * args->kv_stride;
    struct SIZED(source) k = SIZED(source_at)(args->k, first, args->kv_stride);
    struct SIZED(source) v = SIZED(source_at)(args->v, first, args->kv_stride);
    struct SIZED(dkv_rows) rows;
    int stage = 0;
    SIZED(fetch)(s->k, &k, MMA_OWN, at.last + 1 - at.j);
    SIZED(fetch)(s->v, &v, MMA_OWN, at.last + 1 - at.j);
    copies_commit();
    SIZED(fetch_queries)(args, s, &at, 0);
    UNROLL
    for (int i = 0; i < 4 * SIZED(COLUMNS); i++)
        rows.dk[i / 4][i % 4] = rows.dv[i / 4][i % 4] = 0;
    copies_wait(0);
    block_barrier();
    SIZED(load_own)(&rows.own, &s->k[own], &s->v[own]);
    for (const int end = at.h + group; at.h < end; at.h++)
        stage = SIZED(dkv_head)(args, s, &at, &rows, stage);
    SIZED(write)
    (args->dk, to, args->kv_stride, &s->k[own], rows.dk, k_factor, at.last + 1 - at.j - own);
    SIZED(write)
    (args->dv, to, args->kv_stride, &s->v[own], rows.dv, v_factor, at.last + 1 - at.j - own);
}
