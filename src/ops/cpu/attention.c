/* attention - forward: one query tile against the key tiles it sees; the T x T matrix never exists.
 *
 * For a thread's (batch, head): keys are packed once, transposed, as [D][64] per tile, values as
 * [64][D] (fp32 values whose D is a multiple of 16 are read in place). Per query tile: S = Q K^T, a
 * running row maximum and sum, O = O*correction + P V. All state of a tile is fp32. On a CPU with
 * bf16 pairs the two products of a bf16 run take bf16 operands, so P is rounded.
 */
#include "ops/cpu/attention.h"

#include <stdatomic.h>

struct forward {
    const struct shoali_attention_args *args;
    atomic_bool failed; /* a thread had no memory */
    bool pairs, q_direct, v_direct, by_tile;
    int64_t q_tiles, kv_tiles, d_units, d_steps, q_ld;
    int64_t kt_words, v_words; /* of one tile */
};

/* One thread's memory and the head it works on. */
struct forward_head {
    const struct forward *shared;
    struct gemm_source q, k, v;
    char *out;
    float *lse;
    uint64_t random_base;                  /* mask index of (b, h, t = 0, j = 0) */
    uint64_t random_row;                   /* step to the next t */
    int64_t packed;                        /* key tiles already packed */
    uint32_t *kt, *vp, *qp;                /* packed keys, values, queries */
    float *s, *o;                          /* [64][64], [64][D] */
    float *row_max, *correction, *row_sum; /* [64], [64], [64][16] */
    uint16_t *p;                           /* pairs: P as bf16 */
};

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

/* Largest scaled score of the first `valid` of a row, -inf when there is none. */
SHOALI_INLINE float row_top(const float *s, v16 scale, int64_t valid)
{
    v16 top = v16_set1(-INFINITY);
    if (valid == ATT_TILE) {
        SHOALI_UNROLL
        for (int u = 0; u < ATT_UNITS; u++)
            top = v16_max(v16_mul(v16_load(s + 16 * u), scale), top);
    } else {
        for (int64_t at = 0; at < valid; at += 16)
            top = v16_max(att_first_lanes(v16_mul(v16_load(s + at), scale), valid - at, -INFINITY),
                          top);
    }
    return v16_largest(top);
}

/* New row maxima, and the factors that bring what was summed before to them. */
static void raise_maxima(struct forward_head *head, int64_t t0, int64_t rows, int64_t j)
{
    const struct shoali_attention_args *args = head->shared->args;
    const v16 scale = v16_set1((float)args->scale);
    float here[ATT_TILE] = {0};
    for (int64_t r = 0; r < rows; r++)
        here[r] = row_top(head->s + r * ATT_TILE, scale,
                          att_visible(args->causal, args->q_len, args->kv_len, t0 + r, j));
    for (int64_t r = 0; r < ATT_TILE; r += 16) {
        const v16 before = v16_load(head->row_max + r), now = v16_max(v16_load(here + r), before);
        const v16 factor = v16_exp(v16_sub(before, now));
        v16_store(head->row_max + r, now);
        v16_store(head->correction + r, v16_select(v16_eq(before, now), v16_set1(1.0f), factor));
    }
}

SHOALI_INLINE void store_p(const struct forward_head *head, int64_t at, v16 p)
{
    if (head->shared->pairs)
        att_store_bf16(head->p + at, p);
    else
        v16_store(head->s + at, p);
}

/* Sixteen scores become exponentials; the sum of a row leaves dropout out. */
SHOALI_INLINE void soft_unit(const struct forward_head *head, int64_t at, uint64_t random,
                             int64_t valid, v16 shift, v16 *sum)
{
    const struct shoali_attention_args *args = head->shared->args;
    v16 p = att_exp(v16_fma(v16_load(head->s + at), v16_set1((float)args->scale), shift));
    p = att_first_lanes(p, valid, 0.0f);
    *sum = v16_add(*sum, p);
    if (args->dropout > 0)
        p = att_drop(p, &args->random, random, args->dropout);
    store_p(head, at, p);
}

/* Scores of a row become P, its sum goes on. The sum is kept in 16 lanes until the row is finished.
 */
static void soft_row(struct forward_head *head, int64_t row, uint64_t random, int64_t valid)
{
    const v16 shift = v16_set1(-head->row_max[row]), correction = v16_set1(head->correction[row]);
    float *sums = head->row_sum + 16 * row;
    v16 sum = v16_set1(0.0f);
    if (valid == ATT_TILE) {
        SHOALI_UNROLL
        for (int u = 0; u < ATT_UNITS; u++)
            soft_unit(head, row * ATT_TILE + 16 * u, random + 16 * (uint64_t)u, 16, shift, &sum);
    } else {
        int64_t at = 0;
        for (; at < valid; at += 16)
            soft_unit(head, row * ATT_TILE + at, random + (uint64_t)at, valid - at, shift, &sum);
        for (; at < ATT_TILE; at += 16)
            store_p(head, row * ATT_TILE + at, v16_set1(0.0f));
    }
    v16_store(sums, v16_fma(v16_load(sums), correction, sum));
}

/* S = Q K^T for the rows of query tile t0 and key tile j, as far as it is seen. */
static void scores(const struct forward_head *head, int64_t t0, int64_t rows, int64_t j)
{
    const struct forward *f = head->shared;
    const struct shoali_attention_args *args = f->args;
    const int64_t bytes = att_element_bytes(args->dtype);
    struct att_product product = {.b = head->kt + j / ATT_TILE * f->kt_words,
                                  .b_step = 4 * ATT_TILE,
                                  .a_step = 4,
                                  .out_row = ATT_TILE,
                                  .steps = f->d_steps,
                                  .pairs = f->pairs};
    product.a_row = f->q_direct ? bytes * head->q.ld : 4 * f->q_ld;
    const char *q = f->q_direct ? head->q.x + t0 * product.a_row : (const char *)head->qp;
    for (int64_t i = 0; i < rows; i += GEMM_ROWS) {
        product.rows = SHOALI_MIN(GEMM_ROWS, rows - i);
        const int64_t seen =
            att_visible(args->causal, args->q_len, args->kv_len, t0 + i + product.rows - 1, j);
        product.units = (seen + 15) / 16;
        product.a = q + i * product.a_row;
        product.out = head->s + i * ATT_TILE;
        att_multiply(&product);
    }
}

/* O = O*correction + P V. */
static void add_values(const struct forward_head *head, int64_t t0, int64_t rows, int64_t j)
{
    const struct forward *f = head->shared;
    const struct shoali_attention_args *args = f->args;
    const int64_t width = 16 * f->d_units;
    struct att_product product = {.b = head->vp + j / ATT_TILE * f->v_words,
                                  .b_step = 4 * width,
                                  .a_step = 4,
                                  .a_row = ATT_TILE * (f->pairs ? 2 : 4),
                                  .out_row = width,
                                  .units = f->d_units,
                                  .pairs = f->pairs};
    const char *p = f->pairs ? (const char *)head->p : (const char *)head->s;
    if (f->v_direct) {
        product.b_step = 4 * head->v.ld;
        product.b = head->v.x + j * product.b_step;
    }
    for (int64_t r = 0; j > 0 && r < rows; r++) {
        const v16 correction = v16_set1(head->correction[r]);
        float *o = head->o + r * width;
        if (head->correction[r] == 1.0f)
            continue;
        for (int64_t u = 0; u < f->d_units; u++)
            v16_store(o + 16 * u, v16_mul(v16_load(o + 16 * u), correction));
    }
    for (int64_t i = 0; i < rows; i += GEMM_ROWS) {
        product.rows = SHOALI_MIN(GEMM_ROWS, rows - i);
        const int64_t seen =
            att_visible(args->causal, args->q_len, args->kv_len, t0 + i + product.rows - 1, j);
        product.steps = gemm_steps(seen, f->pairs);
        product.a = p + i * product.a_row;
        product.out = head->o + i * width;
        product.init = j > 0 ? product.out : NULL;
        att_multiply(&product);
    }
}

/* O / sum to the output, and the log of the sum. A row that sees nothing is zero. */
static void write_rows(const struct forward_head *head, int64_t t0, int64_t rows)
{
    const struct shoali_attention_args *args = head->shared->args;
    for (int64_t r = 0; r < rows; r++) {
        const float sum = v16_sum(v16_load(head->row_sum + 16 * r));
        const v16 factor = v16_set1(sum > 0 ? 1.0f / sum : sum == 0 ? 0.0f : sum);
        const float *o = head->o + r * 16 * head->shared->d_units;
        char *out = head->out + (t0 + r) * args->out_stride * att_element_bytes(args->dtype);
        for (int64_t d = 0; d < args->head_size; d += 16)
            v16_store_as_n(out, d, SHOALI_MIN(16, args->head_size - d),
                           v16_mul(v16_load(o + d), factor), args->dtype);
        head->lse[t0 + r] = head->row_max[r] + v1_log(sum);
    }
}

static void query_tile(struct forward_head *head, int64_t tile)
{
    const struct forward *f = head->shared;
    const struct shoali_attention_args *args = f->args;
    const int64_t t0 = tile * ATT_TILE, rows = SHOALI_MIN(ATT_TILE, args->q_len - t0);
    int64_t end = args->causal ? t0 + rows + args->kv_len - args->q_len : args->kv_len;
    end = SHOALI_MAX(0, SHOALI_MIN(end, args->kv_len));
    for (int64_t r = 0; r < ATT_TILE; r++)
        head->row_max[r] = -INFINITY;
    memset(head->row_sum, 0, 16 * ATT_TILE * sizeof(float));
    if (end == 0)
        memset(head->o, 0, (size_t)(rows * 16 * f->d_units) * sizeof(float));
    pack_tiles(head, (end + ATT_TILE - 1) / ATT_TILE);
    if (!f->q_direct)
        SHOALI_CPU_SYMBOL(pack_straight)
    (&head->q, 0, args->head_size, t0, rows, f->q_ld, head->qp);
    for (int64_t j = 0; j < end; j += ATT_TILE) {
        scores(head, t0, rows, j);
        raise_maxima(head, t0, rows, j);
        for (int64_t r = 0; r < rows; r++) {
            const uint64_t first =
                head->random_base + (uint64_t)(t0 + r) * head->random_row + (uint64_t)j;
            soft_row(head, r, first,
                     att_visible(args->causal, args->q_len, args->kv_len, t0 + r, j));
        }
        add_values(head, t0, rows, j);
    }
    write_rows(head, t0, rows);
}

static void enter_head(struct forward_head *head, int64_t bh)
{
    const struct shoali_attention_args *args = head->shared->args;
    const int64_t bytes = att_element_bytes(args->dtype), d = args->head_size;
    const int64_t b = bh / args->heads, h = bh % args->heads,
                  kv = h / (args->heads / args->kv_heads);
    const int64_t q_at = b * args->q_len * args->q_stride + h * d;
    const int64_t kv_at = b * args->kv_len * args->kv_stride + kv * d;
    const bool pairs = head->shared->pairs;
    head->q = (struct gemm_source){(const char *)args->q + q_at * bytes, args->q_stride,
                                   args->dtype, pairs};
    head->k = (struct gemm_source){(const char *)args->k + kv_at * bytes, args->kv_stride,
                                   args->dtype, pairs};
    head->v = (struct gemm_source){(const char *)args->v + kv_at * bytes, args->kv_stride,
                                   args->dtype, pairs};
    head->out = (char *)args->out + (b * args->q_len * args->out_stride + h * d) * bytes;
    head->lse = args->lse + bh * args->q_len;
    const struct shoali_attention_mask mask =
        shoali_attention_mask_of(&args->mask, args->heads, args->q_len, args->kv_len);
    head->random_base = shoali_attention_mask_row(&mask, b, h, 0);
    head->random_row = (uint64_t)mask.keys;
    head->packed = 0;
}

static bool take_memory(const struct forward *f, struct forward_head *head)
{
    const int64_t width = 16 * f->d_units;
    const int64_t words[] = {f->kv_tiles * f->kt_words,
                             f->v_direct ? 0 : f->kv_tiles * f->v_words,
                             f->q_direct ? 0 : ATT_TILE * f->q_ld,
                             ATT_TILE * ATT_TILE,
                             ATT_TILE * width,
                             18 * ATT_TILE,
                             f->pairs ? ATT_TILE * ATT_TILE / 2 : 0};
    uint32_t *part[7];
    int64_t total = 0;
    for (int i = 0; i < 7; i++)
        total += words[i];
    uint32_t *memory = SHOALI_CPU_SYMBOL(scratch)((size_t)total * 4);
    if (!memory)
        return false;
    for (int i = 0; i < 7; i++) {
        part[i] = memory;
        memory += words[i];
    }
    *head = (struct forward_head){.shared = f, .kt = part[0], .vp = part[1], .qp = part[2]};
    head->s = (float *)(void *)part[3];
    head->o = (float *)(void *)part[4];
    head->row_max = (float *)(void *)part[5];
    head->row_sum = head->row_max + ATT_TILE;
    head->correction = head->row_sum + 16 * ATT_TILE;
    head->p = (uint16_t *)(void *)part[6];
    return true;
}

static void work(void *arg, int32_t index, int32_t count)
{
    struct forward *f = arg;
    const int64_t heads = f->args->batch * f->args->heads;
    struct forward_head head;
    if (!take_memory(f, &head)) {
        atomic_store(&f->failed, true);
        return;
    }
    if (f->by_tile) {
        for (int64_t at = index, in = -1; at < heads * f->q_tiles; at += count) {
            if (at / f->q_tiles != in) {
                in = at / f->q_tiles;
                enter_head(&head, in);
            }
            query_tile(&head, at % f->q_tiles);
        }
        return;
    }
    int64_t begin, end;
    shoali_pool_slice(heads, 1, index, count, &begin, &end);
    for (int64_t bh = begin; bh < end; bh++) {
        enter_head(&head, bh);
        for (int64_t tile = 0; tile < f->q_tiles; tile++)
            query_tile(&head, tile);
    }
}

void SHOALI_CPU_SYMBOL(attention)(const void *args, struct shoali_pool *pool)
{
    const struct shoali_attention_args *att = args;
    const int64_t d = att->head_size, heads = att->batch * att->heads;
    const int32_t threads = shoali_pool_threads(pool);
    struct forward f = {.args = att};
    f.pairs = SHOALI_CPU_PAIRS && att->dtype == SHOAL_BF16;
    f.q_direct = att->dtype == SHOAL_F32 || (f.pairs && d % 2 == 0);
    f.v_direct = att->dtype == SHOAL_F32 && d % 16 == 0;
    f.q_tiles = (att->q_len + ATT_TILE - 1) / ATT_TILE;
    f.kv_tiles = (att->kv_len + ATT_TILE - 1) / ATT_TILE;
    f.d_units = (d + 15) / 16;
    f.d_steps = gemm_steps(d, f.pairs);
    f.q_ld = (f.d_steps + 15) / 16 * 16;
    f.kt_words = (f.d_steps + 15) / 16 * 16 * ATT_TILE;
    f.v_words = gemm_steps(ATT_TILE, f.pairs) * 16 * f.d_units;
    f.by_tile = heads % threads != 0 && heads < 8 * (int64_t)threads;
    if (threads == 1 || (double)(heads * d) * (double)(att->q_len * att->kv_len) < 32768.0)
        work(&f, 0, 1);
    else
        shoali_pool_run(pool, work, &f);
    if (atomic_load(&f.failed))
        shoali_ops_ref.attention(args, pool);
}
