/* attention_dq - the kernel of the gradients of queries; it also writes delta. No include guard:
 * see attention_rows.h.
 *
 * A warp has 16 queries. Of a tile it takes 16 keys at a time: scores and the probabilities'
 * gradients are in registers where the third product wants them. */

struct SIZED(dq_shared) {
    SIZED(row) q[MMA_OWN], dout[MMA_OWN], k[2][SIZED(TILE)], v[2][SIZED(TILE)];
    uint32_t keep[MMA_OWN][2]; /* of the tile */
    int sees[MMA_OWN][2];      /* the keys that a query sees, begin and end */
    float delta[MMA_OWN];
};
SAME(sizeof(struct SIZED(dq_shared)), CUDA_ATTENTION_DQ_SHARED(HEAD));

/* Where the block works. */
struct SIZED(dq) {
    int b, h, t, last;          /* its queries, first and last */
    int begin, end, there;      /* the keys that they see; keys behind those that were fetched */
    int whole_begin, whole_end; /* the keys that all of them see */
    struct SIZED(source) k, v;
};
/* What the lane has of its two rows. */
struct SIZED(dq_rows) {
    struct SIZED(own) own;
    float sum[SIZED(COLUMNS)][4], bias[2], delta[2];
};

DEVICE struct SIZED(dq)
    SIZED(dq_at)(const struct cuda_attention_args *args, struct SIZED(dq_shared) * s)
{
    struct SIZED(dq) at;
    const int64_t tiles = (args->q_len + MMA_OWN - 1) / MMA_OWN;
    const int64_t head = quotient(BLOCK, tiles), b = quotient(head, args->heads);
    const struct sight sight = sight_of(args, b);
    const int q_len = (int)args->q_len;
    int64_t kv;
    at.b = (int)b;
    at.h = (int)remainder_of(head, args->heads);
    /* The tiles with most keys begin first. */
    at.t = (int)(tiles - 1 - remainder_of(BLOCK, tiles)) * MMA_OWN;
    at.last = at.t + MMA_OWN < q_len ? at.t + MMA_OWN - 1 : q_len - 1;
    at.begin = begin_of(&sight, at.t) / SIZED(TILE) * SIZED(TILE);
    at.end = end_of(&sight, at.last);
    at.whole_begin = begin_of(&sight, at.last);
    at.whole_end = args->keep_scale > 0 ? 0 : end_of(&sight, at.t);
    at.there = (int)args->kv_len - at.begin;
    kv = (b * args->kv_len + at.begin) * args->kv_stride +
         quotient(at.h, quotient(args->heads, args->kv_heads)) * HEAD;
    at.k = SIZED(source_at)(args->k, kv, args->kv_stride);
    at.v = SIZED(source_at)(args->v, kv, args->kv_stride);
    if (THREAD < MMA_OWN) {
        s->sees[THREAD][0] = begin_of(&sight, at.t + THREAD);
        s->sees[THREAD][1] = end_of(&sight, at.t + THREAD);
    }
    return at;
}

DEVICE void SIZED(dq_fetch)(struct SIZED(dq_shared) * s, struct SIZED(dq) * at, int stage)
{
    SIZED(fetch)(s->k[stage], &at->k, SIZED(TILE), at->there);
    SIZED(fetch)(s->v[stage], &at->v, SIZED(TILE), at->there);
    at->there -= SIZED(TILE);
    copies_commit();
}

/* The sum of dout * out of the block's rows: a lane adds eight products, then lanes add theirs. */
DEVICE void SIZED(find_delta)(const struct cuda_attention_args *args, struct SIZED(dq_shared) * s,
                              const struct SIZED(dq) * at)
{
    const int64_t b = at->b, flat = (b * args->heads + at->h) * args->q_len;
    const int column = THREAD % SIZED(COLUMNS) * 8;
    for (int row = THREAD / SIZED(COLUMNS); row < MMA_OWN; row += SIZED(AT_ONCE)) {
        const int t = at->t + row, there = t <= at->last;
        const int64_t place =
            (b * args->q_len + (there ? t : 0)) * args->out_stride + at->h * HEAD + column;
        const struct words4 out = *(const struct words4 *)((const uint16_t *)args->out + place);
        const struct words4 dout = *(const struct words4 *)&s->dout[row][column];
        float sum = 0;
        UNROLL
        for (int i = 0; i < 4; i++) {
            sum = v1_fma(WIDEN((uint16_t)dout.word[i]), WIDEN((uint16_t)out.word[i]), sum);
            sum = v1_fma(WIDEN((uint16_t)(dout.word[i] >> 16)),
                         WIDEN((uint16_t)(out.word[i] >> 16)), sum);
        }
        for (int lanes = SIZED(COLUMNS) / 2; lanes > 0; lanes /= 2)
            sum += lane_xor_f32(sum, lanes);
        if (column == 0)
            s->delta[row] = sum;
        if (column == 0 && there)
            args->delta[flat + t] = sum;
    }
    block_barrier();
}

/* The warp's rows and 16 keys of a tile; j is the first one's number, and `whole` as in the forward
 * pass. */
DEVICE void SIZED(dq_add)(const struct cuda_attention_args *args, struct SIZED(dq_shared) * s,
                          struct SIZED(dq_rows) * rows, int j, int of_tile, int stage, int whole)
{
    const int row = WARP_OF_BLOCK * 16 + LANE_ROW;
    const float factor = factor_of(args);
    float score[2][4] = {{0}}, gradient[2][4] = {{0}};
    SIZED(two_products)
    (score, gradient, &rows->own, &s->q[WARP_OF_BLOCK * 16], &s->dout[WARP_OF_BLOCK * 16],
     &s->k[stage][of_tile], &s->v[stage][of_tile]);
    UNROLL
    for (int i = 0; i < 8; i++) {
        const int n = i / 4, r = i / 2 % 2, e = i % 4, place = 8 * n + LANE_COLUMN + e % 2;
        const int *sees = s->sees[row + 8 * r];
        if (whole)
            differentiate(&score[n][e], &gradient[n][e], factor, rows->bias[r], rows->delta[r]);
        else
            differentiate_masked(args, &score[n][e], &gradient[n][e], factor, rows->bias[r],
                                 rows->delta[r], j + place >= sees[0] && j + place < sees[1],
                                 s->keep[row + 8 * r][of_tile / 32] >> (of_tile % 32 + place));
    }
    SIZED(add_product)(rows->sum, gradient, &s->k[stage][of_tile]);
}

DEVICE void SIZED(dq_tile)(const struct cuda_attention_args *args, struct SIZED(dq_shared) * s,
                           struct SIZED(dq) * at, struct SIZED(dq_rows) * rows, int j, int stage,
                           int whole)
{
    copies_wait(0);
    block_barrier();
    if (j + SIZED(TILE) < at->end)
        SIZED(dq_fetch)(s, at, stage ^ 1);
    if (!whole && args->keep_scale > 0)
        draw_mask(args, &s->keep[WARP_OF_BLOCK * 16], at->b, at->h, at->t + WARP_OF_BLOCK * 16, 16,
                  j, SIZED(TILE));
    UNROLL_BY_2
    for (int i = 0; i < SIZED(TILE) && whole; i += 16)
        SIZED(dq_add)(args, s, rows, j + i, i, stage, 1);
    UNROLL_BY_1
    for (int i = 0; i < SIZED(TILE) && !whole; i += 16)
        SIZED(dq_add)(args, s, rows, j + i, i, stage, 0);
}

DEVICE void SIZED(dq_begin)(const struct cuda_attention_args *args, struct SIZED(dq_shared) * s,
                            const struct SIZED(dq) * at, struct SIZED(dq_rows) * rows)
{
    const int64_t flat = ((int64_t)at->b * args->heads + at->h) * args->q_len;
    SIZED(load_own)(&rows->own, &s->q[WARP_OF_BLOCK * 16], &s->dout[WARP_OF_BLOCK * 16]);
    UNROLL
    for (int r = 0; r < 2; r++) {
        const int row = WARP_OF_BLOCK * 16 + LANE_ROW + 8 * r, t = at->t + row;
        rows->bias[r] = bias_of_lse(t <= at->last ? args->lse[flat + t] : 0.0f);
        rows->delta[r] = s->delta[row];
    }
    UNROLL
    for (int i = 0; i < 4 * SIZED(COLUMNS); i++)
        rows->sum[i / 4][i % 4] = 0;
}

KERNEL(SIZED(attention_dq), struct cuda_attention_args, MMA_THREADS)
{
    SHARED(struct SIZED(dq_shared), s);
    struct SIZED(dq) at = SIZED(dq_at)(args, s);
    const int64_t first = (int64_t)at.b * args->q_len + at.t;
    struct SIZED(source) q =
        SIZED(source_at)(args->q, first * args->q_stride + at.h * HEAD, args->q_stride);
    struct SIZED(source) dout =
        SIZED(source_at)(args->dout, first * args->out_stride + at.h * HEAD, args->out_stride);
    struct SIZED(dq_rows) rows;
    const float factor[2] = {args->scale, args->scale};
    const int own = WARP_OF_BLOCK * 16;
    int j = at.begin, stage = 0;
    SIZED(fetch)(s->q, &q, MMA_OWN, at.last + 1 - at.t);
    SIZED(fetch)(s->dout, &dout, MMA_OWN, at.last + 1 - at.t);
    SIZED(dq_fetch)(s, &at, 0);
    copies_wait(0);
    block_barrier();
    SIZED(find_delta)(args, s, &at);
    SIZED(dq_begin)(args, s, &at, &rows);
    while (j < at.end) {
        for (; j >= at.whole_begin && j + SIZED(TILE) <= at.whole_end; j += SIZED(TILE), stage ^= 1)
            SIZED(dq_tile)(args, s, &at, &rows, j, stage, 1);
        if (j >= at.end)
            break;
        SIZED(dq_tile)(args, s, &at, &rows, j, stage, 0);
        j += SIZED(TILE), stage ^= 1;
    }
    SIZED(write)
    (args->dq, (first + own) * args->q_stride + at.h * HEAD, args->q_stride, &s->q[own], rows.sum,
     factor, at.last + 1 - at.t - own);
}
