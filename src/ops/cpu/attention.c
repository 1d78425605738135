/* attention - forward: one query tile against the key tiles it sees; the T x T matrix never exists.
 *
 * For a thread's (batch, head): keys are packed once, transposed, as [D][64] per tile, values as
 * [64][D]. Per query tile: S = Q K^T, a row's shift and running sum, O = O*correction + P V. All
 * state of a tile is fp32. On a CPU with bf16 pairs the two products of a bf16 run take bf16
 * operands, so P is rounded.
 *
 * A row's shift is one of its scores, at first that of its first key, and not always the largest:
 * it is raised when an exponential would pass 2^24, which is rare. The result is the same sum with
 * all terms times the same power, so it loses nothing, and most tiles need neither maxima nor
 * corrections. Scores are kept in powers of two: scale has log2(e) in it.
 *
 * With a window a row's sums begin with the key tile that holds its first key, and its first shift
 * is that key's score: nothing depends on the rows beside it. Tiles that no row of a group sees are
 * left out.
 */
#include "ops/cpu/attention.h"

#include <stdatomic.h>

#define RAISE_ABOVE 24.0f

struct forward {
    const struct shoali_attention_args *args;
    atomic_bool failed; /* a thread had no memory */
    bool pairs, q_direct, v_direct;
    float scale;
    int64_t tiles; /* of the queries of all heads: the pieces of the work */
    int64_t q_tiles, kv_tiles, d_units, d_steps, q_ld;
    int64_t kt_words, v_words; /* of one tile */
};

/* One thread's memory and the head it works on. */
struct forward_head {
    const struct forward *shared;
    struct gemm_source q, k, v;
    struct gemm_source next_q, next_k, next_v; /* of the head that comes next; x NULL: none */
    struct att_fetches fetches;
    char *out;
    float *lse;
    struct shoali_attention_sight sight;
    uint64_t random_base;         /* mask index of (b, h, t = 0, j = 0) */
    uint64_t random_row;          /* step to the next t */
    int64_t packed;               /* key tiles already packed */
    uint32_t *kt, *vp, *qp;       /* packed keys, values, queries */
    const char *q_rows;           /* the query tile */
    int64_t q_row;                /* bytes */
    float *s, *o;                 /* [ATT_GROUP][64], [64][D] */
    char *p;                      /* [ATT_GROUP][64], fp32 or bf16 */
    float *row_shift, *row_sum;   /* [64], [64][16] */
    float *correction, *tile_sum; /* [ATT_GROUP], [ATT_GROUP][16] */
};

/* End of the keys of the tile at j that row t sees. */
static int64_t seen_end(const struct forward_head *head, int64_t t, int64_t j)
{
    return att_seen(&head->sight, t, j).end;
}

static void pack_tiles(struct forward_head *head, int64_t up_to)
{
    const struct forward *f = head->shared;
    const int64_t d = f->args->head_size;
    for (; head->packed < up_to; head->packed++) {
        const int64_t j = head->packed * ATT_TILE, keys = SHOALI_MIN(ATT_TILE, f->args->kv_len - j);
        SHOALI_CPU_SYMBOL(pack_transposed)
        (&head->k, 0, d, j, keys, ATT_TILE, head->kt + head->packed * f->kt_words);
        if (!f->v_direct)
            SHOALI_CPU_SYMBOL(pack_rows)
        (&head->v, j, keys, 0, d, 16 * f->d_units, head->vp + head->packed * f->v_words);
    }
}

/* The largest of a row's exponents. */
SHOALI_INLINE float row_top(const float *s, float scale, float shift,
                            struct shoali_attention_keys seen)
{
    v16 top = v16_set1(-INFINITY);
    for (int64_t at = 0; at < seen.end; at += 16) {
        const v16 x = v16_fma(v16_load(s + at), v16_set1(scale), v16_set1(shift));
        top = v16_max(att_lanes(x, seen.begin - at, seen.end - at, -INFINITY), top);
    }
    return v16_largest(top);
}

/* New shifts, and the factors that bring what was summed before to them. Only a row whose own
 * exponents are too large is raised: what a row gives does not depend on its neighbours. */
static void raise_shifts(const struct forward_head *head, const struct att_group *g)
{
    const struct forward *f = head->shared;
    float fall[ATT_GROUP + 8] = {0};
    for (int64_t r = 0; r < g->rows; r++) {
        const struct shoali_attention_keys seen = att_seen(&head->sight, g->t0 + g->at + r, g->j);
        const float *s = head->s + r * ATT_TILE;
        float *shift = head->row_shift + g->at + r;
        if (!(row_top(s, f->scale, -*shift, seen) > RAISE_ABOVE))
            continue;
        const float now = row_top(s, f->scale, 0, seen);
        fall[r] = SHOALI_MAX(-200.0f, *shift - now);
        *shift = now;
    }
    for (int64_t r = 0; r < g->rows; r += 16)
        v16_store(head->correction + r, att_exp2(v16_load(fall + r), false));
}

/* The first shifts, of the rows whose first key is in this tile; -inf as long as there is none. */
static void start_shifts(const struct forward_head *head, const struct att_group *g, bool first)
{
    for (int64_t r = 0; r < g->rows; r++) {
        const int64_t t = g->t0 + g->at + r;
        const struct shoali_attention_keys seen = att_seen(&head->sight, t, g->j);
        const bool begins = seen.begin < seen.end && att_first_tile(&head->sight, t) == g->j;
        float *shift = head->row_shift + g->at + r;
        if (begins)
            *shift = head->s[r * ATT_TILE + seen.begin] * head->shared->scale;
        else if (first)
            *shift = -INFINITY;
    }
}

/* Thirty-two scores become exponentials; the sum of a row leaves dropout out. */
struct soft {
    v16 scale, shift, sum[2], top;
    uint64_t keeps; /* with dropout */
};
SHOALI_INLINE void soft_units(const struct forward_head *head, struct soft *row, const float *s,
                              char *p, struct shoali_attention_keys seen, int64_t at, bool pairs,
                              bool dropout)
{
    const struct shoali_attention_args *args = head->shared->args;
    v16 x[2];
    SHOALI_UNROLL
    for (int u = 0; u < 2; u++) {
        const v16 score = v16_fma(v16_load(s + 16 * u), row->scale, row->shift);
        const int64_t begin = seen.begin - 16 * u, end = seen.end - 16 * u;
        row->top = v16_max(att_lanes(score, begin, end, -INFINITY), row->top);
        x[u] = att_lanes(att_exp2(score, pairs), begin, end, 0.0f);
        row->sum[u] = v16_add(row->sum[u], x[u]);
        if (dropout)
            x[u] = v16_mul(x[u], att_kept(row->keeps, at + 16 * u, args->dropout));
    }
    att_store(p, x[0], x[1], pairs);
}

/* P of one row, its sum of this tile; the largest exponent met. `width`: keys that P is read for.
 */
SHOALI_INLINE v16 soft_row(const struct forward_head *head, int64_t row, float shift,
                           struct shoali_attention_keys seen, int64_t width, uint64_t random,
                           bool pairs, bool dropout)
{
    const struct shoali_attention_args *args = head->shared->args;
    const int64_t bytes = pairs ? 2 : 4;
    const float *s = head->s + row * ATT_TILE;
    char *p = head->p + row * ATT_TILE * bytes;
    struct soft soft = {.scale = v16_set1(head->shared->scale),
                        .shift = v16_set1(-shift),
                        .sum = {v16_set1(0.0f), v16_set1(0.0f)},
                        .top = v16_set1(-INFINITY)};
    if (dropout)
        soft.keeps = att_keeps(&args->random, random, seen.end, args->dropout);
    if (seen.begin == 0 && seen.end == ATT_TILE) {
        SHOALI_UNROLL
        for (int at = 0; at < ATT_TILE; at += 32)
            soft_units(head, &soft, s + at, p + at * bytes, (struct shoali_attention_keys){0, 32},
                       at, pairs, dropout);
    } else {
        int64_t at = 0;
        for (; at < seen.end; at += 32) {
            const struct shoali_attention_keys here = {seen.begin - at, seen.end - at};
            soft_units(head, &soft, s + at, p + at * bytes, here, at, pairs, dropout);
        }
        for (; at < width; at += 32)
            att_store(p + at * bytes, v16_set1(0.0f), v16_set1(0.0f), pairs);
    }
    v16_store(head->tile_sum + 16 * row, v16_add(soft.sum[0], soft.sum[1]));
    return soft.top;
}

/* P and sums of a group; whether an exponential was too large for its shift. */
SHOALI_INLINE bool soft_rows(const struct forward_head *head, const struct att_group *g, bool pairs,
                             bool dropout)
{
    const int64_t t = g->t0 + g->at, width = seen_end(head, t + g->rows - 1, g->j);
    v16 top = v16_set1(-INFINITY);
    for (int64_t r = 0; r < g->rows; r++) {
        const uint64_t random =
            head->random_base + (uint64_t)(t + r) * head->random_row + (uint64_t)g->j;
        const struct shoali_attention_keys seen = att_seen(&head->sight, t + r, g->j);
        top = v16_max(
            soft_row(head, r, head->row_shift[g->at + r], seen, width, random, pairs, dropout),
            top);
    }
    return v16_largest(top) > RAISE_ABOVE;
}

static bool soft_group(const struct forward_head *head, const struct att_group *g)
{
    const bool dropout = head->shared->args->dropout > 0;
#if SHOALI_CPU_PAIRS
    if (head->shared->pairs)
        return dropout ? soft_rows(head, g, true, true) : soft_rows(head, g, true, false);
#endif
    return dropout ? soft_rows(head, g, false, true) : soft_rows(head, g, false, false);
}

/* What was summed before, brought to the shifts that were raised. */
static void correct(const struct forward_head *head, const struct att_group *g)
{
    const int64_t width = 16 * head->shared->d_units;
    for (int64_t r = 0; r < g->rows; r++) {
        const v16 correction = v16_set1(head->correction[r]);
        float *o = head->o + (g->at + r) * width, *sum = head->row_sum + 16 * (g->at + r);
        if (head->correction[r] == 1.0f)
            continue;
        v16_store(sum, v16_mul(v16_load(sum), correction));
        for (int64_t at = 0; at < width; at += 16)
            v16_store(o + at, v16_mul(v16_load(o + at), correction));
    }
}

/* S = Q K^T, as far as keys are seen. */
static void scores(struct forward_head *head, const struct att_group *g)
{
    const struct forward *f = head->shared;
    const int64_t height = att_rows(ATT_TILE / 16);
    struct att_product product = {.b = head->kt + g->j / ATT_TILE * f->kt_words,
                                  .b_step = 4 * ATT_TILE,
                                  .a_row = head->q_row,
                                  .a_step = 4,
                                  .out_row = ATT_TILE,
                                  .steps = f->d_steps,
                                  .pairs = f->pairs};
    for (int64_t i = 0; i < g->rows; i += height) {
        product.rows = SHOALI_MIN(height, g->rows - i);
        product.units = (seen_end(head, g->t0 + g->at + i + product.rows - 1, g->j) + 15) / 16;
        product.a = head->q_rows + (g->at + i) * head->q_row;
        product.out = head->s + i * ATT_TILE;
        SHOALI_CPU_SYMBOL(att_multiply)(&product);
        att_fetch(&head->fetches);
    }
}

/* O += P V. */
static void add_values(struct forward_head *head, const struct att_group *g, bool first)
{
    const struct forward *f = head->shared;
    const int64_t width = 16 * f->d_units, height = att_rows(f->d_units);
    struct att_product product = {.b = head->vp + g->j / ATT_TILE * f->v_words,
                                  .b_step = 4 * width,
                                  .a_step = 4,
                                  .a_row = ATT_TILE * (f->pairs ? 2 : 4),
                                  .out_row = width,
                                  .units = f->d_units,
                                  .pairs = f->pairs};
    if (f->v_direct) {
        product.b_step = 4 * head->v.ld;
        product.b = head->v.x + g->j * product.b_step;
    }
    for (int64_t i = 0; i < g->rows; i += height) {
        product.rows = SHOALI_MIN(height, g->rows - i);
        const int64_t seen = seen_end(head, g->t0 + g->at + i + product.rows - 1, g->j);
        product.steps = gemm_steps(seen, f->pairs);
        product.a = head->p + i * product.a_row;
        product.out = head->o + (g->at + i) * width;
        product.add = !first;
        SHOALI_CPU_SYMBOL(att_multiply)(&product);
        att_fetch(&head->fetches);
    }
}

/* `first`: the group's sums begin with this tile. */
static void work_group(struct forward_head *head, const struct att_group *g, bool first)
{
    float *sums = head->row_sum + 16 * g->at;
    scores(head, g);
    if (first || head->sight.window > 0)
        start_shifts(head, g, first);
    if (soft_group(head, g)) {
        raise_shifts(head, g);
        if (!first)
            correct(head, g);
        (void)soft_group(head, g);
    }
    for (int64_t i = 0; i < 16 * g->rows; i += 16) {
        const v16 sum = v16_load(head->tile_sum + i);
        v16_store(sums + i, first ? sum : v16_add(v16_load(sums + i), sum));
    }
    add_values(head, g, first);
}

/* The factor of each row of O and the log of its sum. A row that sees nothing is zero. */
static void finish_sums(const struct forward_head *head, int64_t t0, int64_t rows, float *factor)
{
    float sums[ATT_TILE];
    const v16 zero = v16_set1(0.0f), one = v16_set1(1.0f);
    for (int64_t r = 0; r < ATT_TILE; r++)
        sums[r] = r < rows ? v16_sum(v16_load(head->row_sum + 16 * r)) : 1.0f;
    for (int64_t r = 0; r < rows; r += 16) {
        const v16 sum = v16_load(sums + r), shift = v16_load(head->row_shift + r);
        const v16 low = v16_fma(shift, v16_set1(0x1.7f7d1cp-20f), v16_log(sum));
        v16_store(factor + r, v16_select(v16_eq(sum, zero), zero, v16_div(one, sum)));
        v16_store_n(head->lse + t0 + r, SHOALI_MIN(16, rows - r),
                    v16_fma(shift, v16_set1(0x1.62e4p-1f), low)); /* ln 2 in two parts */
    }
}

static void write_rows(const struct forward_head *head, int64_t t0, int64_t rows)
{
    const struct shoali_attention_args *args = head->shared->args;
    const int64_t row_bytes = args->out_stride * att_element_bytes(args->dtype);
    const float *o = head->o;
    char *out = head->out + t0 * row_bytes;
    float factor[ATT_TILE];
    finish_sums(head, t0, rows, factor);
    for (int64_t r = 0; r < rows; r++, o += 16 * head->shared->d_units, out += row_bytes)
        att_write(out, o, args->head_size, v16_set1(factor[r]), args->dtype, head->shared->pairs);
}

static void bring_queries(struct forward_head *head, int64_t t0, int64_t rows)
{
    const struct forward *f = head->shared;
    head->q_row = att_element_bytes(f->args->dtype) * head->q.ld;
    head->q_rows = head->q.x + t0 * head->q_row;
    if (f->q_direct)
        return;
    SHOALI_CPU_SYMBOL(pack_straight)
    (&head->q, 0, f->args->head_size, t0, rows, f->q_ld, head->qp);
    head->q_row = 4 * f->q_ld;
    head->q_rows = (const char *)head->qp;
}

/* What the next tile reads, and what this one writes. */
static void plan_fetches(struct forward_head *head, int64_t t0, int64_t rows, int64_t tiles)
{
    const struct forward *f = head->shared;
    const struct shoali_attention_args *args = f->args;
    const int64_t bytes = att_element_bytes(args->dtype), j = head->packed * ATT_TILE;
    const int64_t q_row = bytes * args->q_stride, kv_row = bytes * args->kv_stride;
    const int64_t q_left = SHOALI_MIN(ATT_TILE, args->q_len - t0 - rows);
    const int64_t kv_left = SHOALI_MIN(ATT_TILE, args->kv_len - j);
    struct att_fetches *fetches = &head->fetches;
    fetches->count = 0;
    if (kv_left > 0) {
        att_fetch_later(fetches, head->v.x + j * kv_row, kv_row, kv_left);
        att_fetch_later(fetches, head->k.x + j * kv_row, kv_row, kv_left);
    } else if (head->next_q.x) {
        att_fetch_later(fetches, head->next_v.x, kv_row, SHOALI_MIN(ATT_TILE, args->kv_len));
        att_fetch_later(fetches, head->next_k.x, kv_row, SHOALI_MIN(ATT_TILE, args->kv_len));
    }
    if (q_left > 0)
        att_fetch_later(fetches, head->q.x + (t0 + rows) * q_row, q_row, q_left);
    else if (head->next_q.x)
        att_fetch_later(fetches, head->next_q.x, q_row, SHOALI_MIN(ATT_TILE, args->q_len));
    att_fetch_later(fetches, head->out + t0 * args->out_stride * bytes, args->out_stride * bytes,
                    rows);
    /* A product of each of two kinds for every eight rows at most, less on the diagonal. */
    att_fetch_spread(fetches, tiles * (rows / 4));
}

/* Rows from `at` on see nothing. */
static void clear_rows(struct forward_head *head, int64_t at, int64_t rows)
{
    const int64_t width = 16 * head->shared->d_units;
    for (int64_t r = at; r < rows; r++)
        head->row_shift[r] = -INFINITY;
    memset(head->row_sum + 16 * at, 0, (size_t)(16 * (rows - at)) * sizeof(float));
    memset(head->o + at * width, 0, (size_t)((rows - at) * width) * sizeof(float));
}

static void query_tile(struct forward_head *head, int64_t tile)
{
    const struct forward *f = head->shared;
    const int64_t t0 = tile * ATT_TILE, rows = SHOALI_MIN(ATT_TILE, f->args->q_len - t0);
    const int64_t begin = att_first_tile(&head->sight, t0);
    const int64_t end = shoali_attention_keys(&head->sight, t0 + rows - 1).end;
    const int64_t tiles = SHOALI_MAX(0, end - begin + ATT_TILE - 1) / ATT_TILE;
    int64_t starts[(ATT_TILE + ATT_GROUP - 1) / ATT_GROUP]; /* each group's first key tile */
    for (int64_t at = 0; at < rows; at += ATT_GROUP) {
        starts[at / ATT_GROUP] = att_first_tile(&head->sight, t0 + at);
        if (starts[at / ATT_GROUP] >= end)
            clear_rows(head, at, SHOALI_MIN(at + ATT_GROUP, rows));
    }
    head->packed = SHOALI_MAX(head->packed, begin / ATT_TILE);
    pack_tiles(head, begin / ATT_TILE + tiles);
    bring_queries(head, t0, rows);
    plan_fetches(head, t0, rows, tiles);
    for (int64_t j = begin; j < end; j += ATT_TILE) {
        for (int64_t at = 0; at < rows; at += ATT_GROUP) {
            const struct att_group g = {t0, at, SHOALI_MIN(ATT_GROUP, rows - at), j};
            if (j >= starts[at / ATT_GROUP])
                work_group(head, &g, j == starts[at / ATT_GROUP]);
        }
    }
    write_rows(head, t0, rows);
}

/* Where the operands of head bh lie. */
static void find_operands(const struct forward *f, int64_t bh, struct gemm_source *q,
                          struct gemm_source *k, struct gemm_source *v)
{
    const struct shoali_attention_args *args = f->args;
    const int64_t bytes = att_element_bytes(args->dtype), d = args->head_size;
    const int64_t b = bh / args->heads, h = bh % args->heads,
                  kv = h / (args->heads / args->kv_heads);
    const int64_t q_at = b * args->q_len * args->q_stride + h * d;
    const int64_t kv_at = b * args->kv_len * args->kv_stride + kv * d;
    *q = (struct gemm_source){(const char *)args->q + q_at * bytes, args->q_stride, args->dtype,
                              f->pairs};
    *k = (struct gemm_source){(const char *)args->k + kv_at * bytes, args->kv_stride, args->dtype,
                              f->pairs};
    *v = (struct gemm_source){(const char *)args->v + kv_at * bytes, args->kv_stride, args->dtype,
                              f->pairs};
}

/* Makes bh the head worked on; the thread's next is bh + 1 if that is below `end`. */
static void enter_head(struct forward_head *head, int64_t bh, int64_t end)
{
    const struct forward *f = head->shared;
    const struct shoali_attention_args *args = f->args;
    const int64_t bytes = att_element_bytes(args->dtype), d = args->head_size;
    const int64_t b = bh / args->heads, h = bh % args->heads;
    find_operands(f, bh, &head->q, &head->k, &head->v);
    head->next_q.x = NULL;
    if (bh + 1 < end)
        find_operands(f, bh + 1, &head->next_q, &head->next_k, &head->next_v);
    head->sight = shoali_attention_sight_of(args->q_len, args->kv_len, args->causal, args->window,
                                            args->key_count, b);
    head->fetches.bytes = d * bytes;
    head->out = (char *)args->out + (b * args->q_len * args->out_stride + h * d) * bytes;
    head->lse = args->lse + bh * args->q_len;
    const struct shoali_attention_mask mask =
        shoali_attention_mask_of(&args->mask, args->heads, args->q_len, args->kv_len);
    head->random_base = shoali_attention_mask_row(&mask, b, h, 0);
    head->random_row = (uint64_t)mask.keys;
    head->packed = 0;
}

#define PARTS 7
/* Words of scratch for each part. Returns their sum. */
static int64_t scratch_words(const struct forward *f, int64_t words[PARTS])
{
    const int64_t part[PARTS] = {f->kv_tiles * f->kt_words,
                                 f->v_direct ? 0 : f->kv_tiles * f->v_words,
                                 f->q_direct ? 0 : ATT_TILE * f->q_ld,
                                 ATT_GROUP * ATT_TILE,
                                 ATT_GROUP * ATT_TILE,
                                 ATT_TILE * 16 * f->d_units,
                                 17 * (ATT_TILE + ATT_GROUP) + 16};
    int64_t total = 0;
    for (int i = 0; i < PARTS; i++)
        total += words[i] = part[i];
    return total;
}

static bool take_memory(const struct forward *f, struct forward_head *head)
{
    int64_t words[PARTS];
    uint32_t *part[PARTS];
    uint32_t *memory = shoali_scratch((size_t)scratch_words(f, words) * sizeof *memory);
    if (!memory)
        return false;
    if (SHOALI_CPU_TILES) /* what no head writes is read to fill steps */
        memset(memory, 0, (size_t)(words[0] + words[1] + words[2]) * 4);
    for (int i = 0; i < PARTS; i++) {
        part[i] = memory;
        memory += words[i];
    }
    *head = (struct forward_head){.shared = f, .kt = part[0], .vp = part[1], .qp = part[2]};
    head->s = (float *)(void *)part[3];
    head->p = (char *)part[4];
    head->o = (float *)(void *)part[5];
    head->row_sum = (float *)(void *)part[6];
    head->tile_sum = head->row_sum + 16 * ATT_TILE;
    head->row_shift = head->tile_sum + 16 * ATT_GROUP;
    head->correction = head->row_shift + ATT_TILE;
    return true;
}

static int64_t pieces_of(const void *arg, int32_t share, int32_t shares)
{
    const struct forward *f = arg;
    int64_t begin, end;
    shoali_pool_slice(f->tiles, 1, share, shares, &begin, &end);
    return end - begin;
}

static void work(void *arg, struct shoali_claim *claim)
{
    struct forward *f = arg;
    struct forward_head head;
    int64_t begin, end, before = -1;
    if (!take_memory(f, &head)) {
        atomic_store(&f->failed, true);
        return;
    }
    while (shoali_claim_next(claim)) {
        shoali_pool_slice(f->tiles, 1, claim->share, claim->pieces->shares, &begin, &end);
        const int64_t at = begin + claim->piece, bh = at / f->q_tiles;
        /* What is packed grows upwards, and may begin behind the keys of an earlier tile. */
        if (before < 0 || bh != before / f->q_tiles || at < before)
            enter_head(&head, bh, (end - 1) / f->q_tiles + 1);
        query_tile(&head, at % f->q_tiles);
        before = at;
    }
    SHOALI_CPU_SYMBOL(att_end)();
}

static struct forward prepare(const struct shoali_attention_args *att)
{
    const int64_t d = att->head_size;
    struct forward f = {.args = att};
    f.pairs = SHOALI_CPU_PAIRS && att->dtype == SHOAL_BF16;
    f.scale = (float)(att->scale * ATT_LOG2E);
    f.q_tiles = (att->q_len + ATT_TILE - 1) / ATT_TILE;
    f.kv_tiles = (att->kv_len + ATT_TILE - 1) / ATT_TILE;
    /* Rows of a large model lie a multiple of the cache's way apart: read more than once or twice,
     * they are worth a copy. */
    f.q_direct = f.kv_tiles == 1 && (att->dtype == SHOAL_F32 || (f.pairs && d % ATT_WORD == 0));
    f.v_direct = f.q_tiles == 1 && att->dtype == SHOAL_F32 && d % 16 == 0;
    f.d_units = (d + 15) / 16;
    f.d_steps = gemm_steps(d, f.pairs);
    f.q_ld = (f.d_steps + 15) / 16 * 16;
    f.kt_words = (f.d_steps + 15) / 16 * 16 * ATT_TILE;
    f.v_words = gemm_steps(ATT_TILE, f.pairs) * 16 * f.d_units;
    f.tiles = att->batch * att->heads * f.q_tiles;
    return f;
}

size_t SHOALI_CPU_SYMBOL(attention_workspace)(const void *args, int32_t threads)
{
    const struct shoali_attention_args *att = args;
    int64_t words[PARTS];
    (void)threads;
    if (!att_is_sane(att->kv_len, att->head_size))
        return SIZE_MAX;
    const struct forward f = prepare(att);
    return (size_t)scratch_words(&f, words) * sizeof(uint32_t);
}

void SHOALI_CPU_SYMBOL(attention)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_attention_args *att = args;
    const int64_t d = att->head_size, heads = att->batch * att->heads;
    struct forward f = prepare(att);
    const bool small = (double)(heads * d) * (double)(att->q_len * att->kv_len) < 32768.0;
    const struct shoali_pieces pieces = {.count = pieces_of, .work = work, .arg = &f};
    shoali_pool_run_pieces(small ? NULL : context->threads, &pieces);
    if (atomic_load(&f.failed))
        shoali_attention_plain(att);
}
