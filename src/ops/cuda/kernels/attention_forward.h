/* attention_forward - the kernel of the forward pass. No include guard: see attention_rows.h.
 *
 * A warp has 32 queries: their scores with a tile of keys become weights and, rounded to 16 bits, a
 * factor of the next product where they are, in registers. The largest score is a running one, and
 * sums shrink when it rises. A score that is infinite or NaN makes its row NaN. */

enum { SIZED(SCORES) = SIZED(TILE) / 8 };
struct SIZED(forward_shared) {
    SIZED(row) q[MMA_QUERIES], k[2][SIZED(TILE)], v[2][SIZED(TILE)];
    uint32_t keep[MMA_QUERIES][2]; /* of the tile */
    int sees[MMA_QUERIES][2];      /* the keys that a query sees, begin and end */
    struct place place;            /* what is not needed while tiles are added */
};
SAME(MMA_QUERIES, MMA_THREADS);
SAME(sizeof(struct SIZED(forward_shared)), CUDA_ATTENTION_FORWARD_SHARED(HEAD));

/* Where the block works. */
struct SIZED(forward) {
    struct place place;
    int begin, end, there;      /* the keys that they see; keys behind those that were fetched */
    int whole_begin, whole_end; /* the keys that all of them see */
    struct SIZED(source) k, v;
};
/* What the lane has of its four rows [16 rows][r]. */
struct SIZED(rows) {
    float out[2][SIZED(COLUMNS)][4], largest[2][2], total[2][2];
    uint32_t q[2][SIZED(KEEPS) ? SIZED(STEPS) : 1][4];
};

DEVICE struct SIZED(forward)
    SIZED(forward_at)(const struct cuda_attention_args *args, struct SIZED(forward_shared) * s)
{
    struct SIZED(forward) at;
    const int64_t tiles = (args->q_len + MMA_QUERIES - 1) / MMA_QUERIES;
    const int64_t head = quotient(BLOCK, tiles), b = quotient(head, args->heads);
    const struct sight sight = sight_of(args, b);
    const int q_len = (int)args->q_len;
    int64_t kv;
    at.place.b = (int)b;
    at.place.h = (int)remainder_of(head, args->heads);
    /* The tiles with most keys begin first. */
    at.place.t = (int)(tiles - 1 - remainder_of(BLOCK, tiles)) * MMA_QUERIES;
    at.place.last = at.place.t + MMA_QUERIES < q_len ? at.place.t + MMA_QUERIES - 1 : q_len - 1;
    at.begin = begin_of(&sight, at.place.t) / SIZED(TILE) * SIZED(TILE);
    at.end = end_of(&sight, at.place.last);
    at.whole_begin = begin_of(&sight, at.place.last);
    at.whole_end = args->keep_scale > 0 ? 0 : end_of(&sight, at.place.t);
    at.there = (int)args->kv_len - at.begin;
    kv = (b * args->kv_len + at.begin) * args->kv_stride +
         quotient(at.place.h, quotient(args->heads, args->kv_heads)) * HEAD;
    at.k = SIZED(source_at)(args->k, kv, args->kv_stride);
    at.v = SIZED(source_at)(args->v, kv, args->kv_stride);
    s->sees[THREAD][0] = begin_of(&sight, at.place.t + THREAD);
    s->sees[THREAD][1] = end_of(&sight, at.place.t + THREAD);
    if (THREAD == 0)
        s->place = at.place;
    return at;
}

DEVICE void SIZED(fetch_keys)(struct SIZED(forward_shared) * s, struct SIZED(forward) * at,
                              int stage)
{
    SIZED(fetch)(s->k[stage], &at->k, SIZED(TILE), at->there);
    SIZED(fetch)(s->v[stage], &at->v, SIZED(TILE), at->there);
    at->there -= SIZED(TILE);
    copies_commit();
}

/* The scores' part of 16 elements. */
DEVICE void SIZED(score_step)(struct SIZED(rows) * rows, struct SIZED(forward_shared) * s,
                              int stage, int step, float score[2][SIZED(SCORES)][4])
{
    const int kept = SIZED(KEEPS) ? step : 0;
    UNROLL
    for (int m = 0; m < 2 && !SIZED(KEEPS); m++)
        SIZED(load_a)(rows->q[m][0], &s->q[WARP_OF_BLOCK * 32 + m * 16], step * 16);
    UNROLL
    for (int n = 0; n < SIZED(SCORES); n += 2) {
        uint32_t b[4];
        SIZED(load_b)(b, &s->k[stage][n * 8], step * 16);
        UNROLL
        for (int m = 0; m < 2; m++) {
            MULTIPLY(score[m][n], rows->q[m][kept], b);
            MULTIPLY(score[m][n + 1], rows->q[m][kept], b + 2);
        }
    }
}
/* A loop where the compiler would run out of registers. */
DEVICE void SIZED(score)(struct SIZED(rows) * rows, struct SIZED(forward_shared) * s, int stage,
                         int whole, float score[2][SIZED(SCORES)][4])
{
    const int unrolled = whole || SIZED(KEEPS);
    UNROLL
    for (int step = 0; step < SIZED(STEPS) && unrolled; step++)
        SIZED(score_step)(rows, s, stage, step, score);
    UNROLL_BY_1
    for (int step = 0; step < SIZED(STEPS) && !unrolled; step++)
        SIZED(score_step)(rows, s, stage, step, score);
}

/* Hidden scores of a row become -inf. */
DEVICE void SIZED(hide)(const int sees[2], int j, float score[SIZED(SCORES)][4], int r)
{
    const int begin = sees[0] - j - LANE_COLUMN, end = sees[1] - j - LANE_COLUMN;
    UNROLL
    for (int n = 0; n < SIZED(SCORES); n++)
        UNROLL
    for (int i = 0; i < 2; i++)
        if (8 * n + i < begin || 8 * n + i >= end)
            score[n][2 * r + i] = -__builtin_inff();
}

/* Scores of a row become weights. */
DEVICE void SIZED(weigh)(struct SIZED(rows) * rows, float score[SIZED(SCORES)][4], int m, int r,
                         float factor, int whole)
{
    float most = rows->largest[m][r], total = 0;
    UNROLL
    for (int n = 0; n < SIZED(SCORES); n++)
        most = max_or_nan(max_or_nan(most, score[n][2 * r]), score[n][2 * r + 1]);
    most = max_or_nan(most, lane_xor_f32(most, 1));
    most = max_or_nan(most, lane_xor_f32(most, 2));
    const float bias = bias_of(most, factor);
    const float shrink = power_of(fma_cut(rows->largest[m][r], factor, bias));
    rows->largest[m][r] = most;
    UNROLL
    for (int n = 0; n < SIZED(SCORES); n++)
        UNROLL
    for (int i = 2 * r; i < 2 * r + 2; i++) {
        const float p = power_of(fma_cut(score[n][i], factor, bias));
        score[n][i] = whole || score[n][i] != -__builtin_inff() ? p : 0.0f;
        total += score[n][i];
    }
    rows->total[m][r] = v1_fma(rows->total[m][r], shrink, total);
    UNROLL
    for (int n = 0; n < SIZED(COLUMNS); n++) {
        rows->out[m][n][2 * r] *= shrink;
        rows->out[m][n][2 * r + 1] *= shrink;
    }
}

/* Weights that the mask drops become 0. */
DEVICE void SIZED(drop)(const uint32_t keep[2], float score[SIZED(SCORES)][4], int r)
{
    UNROLL
    for (int n = 0; n < SIZED(SCORES); n++)
        UNROLL
    for (int i = 0; i < 2; i++)
        if (!(keep[n / 4] >> (n % 4 * 8 + LANE_COLUMN + i) & 1))
            score[n][2 * r + i] = 0;
}

/* The warp's rows and a tile of keys; `whole`: all rows see all keys, and nothing is dropped. */
DEVICE void SIZED(add_tile)(const struct cuda_attention_args *args,
                            struct SIZED(forward_shared) * s, struct SIZED(rows) * rows, int j,
                            int stage, int whole)
{
    const float factor = factor_of(args);
    const int drops = !whole && args->keep_scale > 0;
    float score[2][SIZED(SCORES)][4] = {{{0}}};
    if (drops)
        draw_mask(args, &s->keep[WARP_OF_BLOCK * 32], s->place.b, s->place.h,
                  s->place.t + WARP_OF_BLOCK * 32, 32, j, SIZED(TILE));
    SIZED(score)(rows, s, stage, whole, score);
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int m = i / 2, r = i % 2, row = WARP_OF_BLOCK * 32 + m * 16 + r * 8 + LANE_ROW;
        if (!whole)
            SIZED(hide)(s->sees[row], j, score[m], r);
        SIZED(weigh)(rows, score[m], m, r, factor, whole);
        if (drops)
            SIZED(drop)(s->keep[row], score[m], r);
    }
    UNROLL
    for (int step = 0; step < SIZED(TILE) / 16; step++) {
        uint32_t a[2][4], b[4];
        UNROLL
        for (int m = 0; m < 2; m++)
            SIZED(pack)(a[m], score[m][2 * step], score[m][2 * step + 1]);
        UNROLL
        for (int n = 0; n < SIZED(COLUMNS); n += 2) {
            SIZED(load_b_across)(b, &s->v[stage][step * 16], n * 8);
            UNROLL
            for (int m = 0; m < 2; m++) {
                MULTIPLY(rows->out[m][n], a[m], b);
                MULTIPLY(rows->out[m][n + 1], a[m], b + 2);
            }
        }
    }
}

/* Waits for a tile, and sends for the next one. */
DEVICE void SIZED(next_tile)(struct SIZED(forward_shared) * s, struct SIZED(forward) * at, int j,
                             int stage)
{
    copies_wait(0);
    block_barrier();
    if (j + SIZED(TILE) < at->end)
        SIZED(fetch_keys)(s, at, stage ^ 1);
}

DEVICE void SIZED(add_tiles)(const struct cuda_attention_args *args,
                             struct SIZED(forward_shared) * s, struct SIZED(forward) * at,
                             struct SIZED(rows) * rows)
{
    int j = at->begin, stage = 0;
    while (j < at->end) {
        for (; j >= at->whole_begin && j + SIZED(TILE) <= at->whole_end;
             j += SIZED(TILE), stage ^= 1) {
            SIZED(next_tile)(s, at, j, stage);
            SIZED(add_tile)(args, s, rows, j, stage, 1);
        }
        if (j >= at->end)
            break;
        SIZED(next_tile)(s, at, j, stage);
        SIZED(add_tile)(args, s, rows, j, stage, 0);
        j += SIZED(TILE), stage ^= 1;
    }
}

DEVICE void SIZED(finish)(const struct cuda_attention_args *args, struct SIZED(forward_shared) * s,
                          struct SIZED(rows) * rows)
{
    const int64_t flat = (s->place.b * args->heads + s->place.h) * args->q_len, b = s->place.b;
    const float kept = args->keep_scale > 0 ? args->keep_scale : 1.0f;
    UNROLL
    for (int m = 0; m < 2; m++) {
        const int t = s->place.t + WARP_OF_BLOCK * 32 + m * 16;
        float factor[2];
        UNROLL
        for (int r = 0; r < 2; r++) {
            const float largest = rows->largest[m][r], wrong = largest - largest;
            float total = rows->total[m][r], lse;
            total += lane_xor_f32(total, 1);
            total += lane_xor_f32(total, 2);
            lse = v1_fma(largest, args->scale, v1_log(total)) + wrong;
            factor[r] = kept / total + wrong;
            if (largest == -__builtin_inff()) { /* a row without keys */
                lse = largest;
                factor[r] = 0;
            }
            if (LANE_COLUMN == 0 && t + 8 * r + LANE_ROW <= s->place.last)
                args->lse[flat + t + 8 * r + LANE_ROW] = lse;
        }
        SIZED(write)
        (args->o, (b * args->q_len + t) * args->out_stride + s->place.h * HEAD, args->out_stride,
         &s->q[WARP_OF_BLOCK * 32 + m * 16], rows->out[m], factor, s->place.last + 1 - t);
    }
}

DEVICE void SIZED(begin)(struct SIZED(rows) * rows, struct SIZED(forward_shared) * s)
{
    UNROLL
    for (int m = 0; m < 2; m++) {
        UNROLL
        for (int r = 0; r < 2; r++) {
            rows->largest[m][r] = -__builtin_inff();
            rows->total[m][r] = 0;
        }
        UNROLL
        for (int i = 0; i < 4 * SIZED(COLUMNS); i++)
            rows->out[m][i / 4][i % 4] = 0;
        UNROLL
        for (int step = 0; step < SIZED(STEPS) && SIZED(KEEPS); step++)
            SIZED(load_a)(rows->q[m][step], &s->q[WARP_OF_BLOCK * 32 + m * 16], step * 16);
    }
}

KERNEL(SIZED(attention), struct cuda_attention_args, MMA_THREADS)
{
    SHARED(struct SIZED(forward_shared), s);
    struct SIZED(forward) at = SIZED(forward_at)(args, s);
    struct SIZED(source) q = SIZED(source_at)(
        args->q,
        ((int64_t)at.place.b * args->q_len + at.place.t) * args->q_stride + at.place.h * HEAD,
        args->q_stride);
    struct SIZED(rows) rows;
    SIZED(fetch)(s->q, &q, MMA_QUERIES, at.place.last + 1 - at.place.t);
    SIZED(fetch_keys)(s, &at, 0);
    copies_wait(0);
    block_barrier();
    SIZED(begin)(&rows, s);
    SIZED(add_tiles)(args, s, &at, &rows);
    SIZED(finish)(args, s, &rows);
}
