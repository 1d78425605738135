/* attention_backward - gradients of one key-value head, recomputing P from lse.
 *
 * A (batch, kv head) belongs to one thread: its query heads in order, each one's query tiles in
 * order, each tile against the key tiles it sees: P = exp(S*scale - lse), dP = dO V^T, dS = P (dP -
 * delta) scale; then dV += P^T dO, dK += dS^T Q, dQ += dS K. dK, dV of the head are carried in fp32
 * scratch, linear in T. On a CPU with bf16 pairs a bf16 run feeds all five products with bf16, so P
 * and dS are rounded.
 */
#include "ops/cpu/attention.h"

#include <stdatomic.h>

struct backward {
    const struct shoali_attention_backward_args *args;
    atomic_bool failed; /* a thread had no memory */
    bool pairs;
    bool a_direct; /* rows of Q and dO are broadcast from where they are */
    bool b_direct; /* rows of Q, dO and K are read as [k][columns] where they are */
    int64_t kv_tiles, d_width, d_steps, a_ld;
    int64_t transposed_words, rows_words; /* of one packed tile */
};

/* An operand of a query tile: how it is read as A (rows) and as B (columns). */
struct operand {
    struct gemm_source source;
    uint32_t *a_copy, *b_copy;
    const char *a, *b;
    int64_t a_row, b_step;
};

struct backward_head {
    const struct backward *shared;
    struct operand q, dout;
    struct gemm_source k, v;
    const char *out;
    char *dq;
    const float *lse;
    float *delta;
    uint64_t random_base, random_row;
    uint32_t *kt, *vt, *k_rows;   /* tiles: K^T, V^T, K */
    float *dk, *dv, *dq_sum;      /* fp32 sums, rows d_width apart */
    float *p, *ds;                /* [64][64] */
    uint16_t *p_half, *ds_half;   /* pairs: the same as bf16, */
    uint32_t *p_pairs, *ds_pairs; /* and with two queries in a word: [32][64] */
};

static int64_t seen_keys(const struct shoali_attention_backward_args *args, int64_t t, int64_t j)
{
    return att_visible(args->causal, args->q_len, args->kv_len, t, j);
}

/* Makes rows [t0, t0+rows) readable both ways. */
static void bring_operand(const struct backward *f, struct operand *x, int64_t t0, int64_t rows)
{
    const int64_t bytes = att_element_bytes(f->args->dtype), d = f->args->head_size;
    const char *here = x->source.x + t0 * x->source.ld * bytes;
    x->a = here;
    x->a_row = x->source.ld * bytes;
    x->b = here;
    x->b_step = x->source.ld * bytes;
    if (!f->a_direct) {
        SHOALI_CPU_SYMBOL(pack_straight)(&x->source, 0, d, t0, rows, f->a_ld, x->a_copy);
        x->a = (const char *)x->a_copy;
        x->a_row = 4 * f->a_ld;
    }
    if (!f->b_direct) {
        SHOALI_CPU_SYMBOL(pack_rows)(&x->source, t0, rows, 0, d, f->d_width, x->b_copy);
        x->b = (const char *)x->b_copy;
        x->b_step = 4 * f->d_width;
    }
}

/* out[row][0..64) = x K^T for every row of the tile, as far as keys are seen. */
static void against_keys(const struct backward_head *head, const struct operand *x,
                         const uint32_t *packed, int64_t t0, int64_t rows, int64_t j, float *out)
{
    const struct backward *f = head->shared;
    struct att_product product = {.b = packed + j / ATT_TILE * f->transposed_words,
                                  .b_step = 4 * ATT_TILE,
                                  .a_row = x->a_row,
                                  .a_step = 4,
                                  .out_row = ATT_TILE,
                                  .steps = f->d_steps,
                                  .pairs = f->pairs};
    for (int64_t i = 0; i < rows; i += GEMM_ROWS) {
        product.rows = SHOALI_MIN(GEMM_ROWS, rows - i);
        product.units = (seen_keys(f->args, t0 + i + product.rows - 1, j) + 15) / 16;
        product.a = x->a + i * x->a_row;
        product.out = out + i * ATT_TILE;
        att_multiply(&product);
    }
}

static void store_probabilities(const struct backward_head *head, int64_t at, v16 p, v16 ds)
{
    if (head->shared->pairs) {
        att_store_bf16(head->p_half + at, p);
        att_store_bf16(head->ds_half + at, ds);
    } else {
        v16_store(head->p + at, p);
        v16_store(head->ds + at, ds);
    }
}

/* Scores and dP of one row become P (with dropout) and dS; what is not seen becomes zeros. */
static void probabilities(const struct backward_head *head, int64_t row, int64_t t, int64_t j)
{
    const struct shoali_attention_backward_args *args = head->shared->args;
    const int64_t valid = seen_keys(args, t, j);
    const uint64_t first = head->random_base + (uint64_t)t * head->random_row + (uint64_t)j;
    const v16 scale = v16_set1((float)args->scale), shift = v16_set1(-head->lse[t]);
    const v16 delta = v16_set1(head->delta[t]), zero = v16_set1(0.0f);
    for (int64_t u = 0; u < ATT_TILE; u += 16) {
        const int64_t at = row * ATT_TILE + u;
        if (u >= valid) {
            store_probabilities(head, at, zero, zero);
            continue;
        }
        v16 p = att_exp(v16_fma(v16_load(head->p + at), scale, shift)),
            dp = v16_load(head->ds + at);
        p = att_first_lanes(p, valid - u, 0.0f);
        dp = att_first_lanes(dp, valid - u, 0.0f);
        v16 dropped = p;
        if (args->dropout > 0) {
            const v16 kept =
                att_drop(v16_set1(1.0f), &args->random, first + (uint64_t)u, args->dropout);
            dropped = v16_mul(p, kept);
            dp = v16_mul(dp, kept);
        }
        store_probabilities(head, at, dropped, v16_mul(v16_mul(p, v16_sub(dp, delta)), scale));
    }
}

/* sum[key] += x^T rows, x being P or dS: queries in order; only those that see a key of the block.
 */
static void add_transposed(const struct backward_head *head, const void *x,
                           const struct operand *rows_of, int64_t t0, int64_t rows, int64_t j,
                           float *sum)
{
    const struct backward *f = head->shared;
    const struct shoali_attention_backward_args *args = f->args;
    const int64_t keys = SHOALI_MIN(ATT_TILE, args->kv_len - j), per_step = f->pairs ? 2 : 1;
    struct att_product product = {.a_row = 4,
                                  .a_step = 4 * ATT_TILE,
                                  .b_step = rows_of->b_step,
                                  .out_row = f->d_width,
                                  .units = f->d_width / 16,
                                  .pairs = f->pairs};
    for (int64_t i = 0; i < keys; i += GEMM_ROWS) {
        int64_t from = args->causal ? j + i - (args->kv_len - args->q_len) - t0 : 0;
        from = SHOALI_MAX(0, SHOALI_MIN(from, rows)) / per_step;
        product.rows = SHOALI_MIN(GEMM_ROWS, keys - i);
        product.steps = gemm_steps(rows, f->pairs) - from;
        product.a = (const char *)x + from * product.a_step + 4 * i;
        product.b = rows_of->b + from * product.b_step;
        product.out = sum + (j + i) * f->d_width;
        product.init = product.out;
        att_multiply(&product);
    }
}

static void add_dq(const struct backward_head *head, int64_t t0, int64_t rows, int64_t j)
{
    const struct backward *f = head->shared;
    struct att_product product = {.a_row = ATT_TILE * (f->pairs ? 2 : 4),
                                  .a_step = 4,
                                  .b = head->k_rows + j / ATT_TILE * f->rows_words,
                                  .b_step = 4 * f->d_width,
                                  .out_row = f->d_width,
                                  .units = f->d_width / 16,
                                  .pairs = f->pairs};
    const char *ds = f->pairs ? (const char *)head->ds_half : (const char *)head->ds;
    if (f->b_direct) {
        product.b_step = 4 * head->k.ld;
        product.b = head->k.x + j * product.b_step;
    }
    for (int64_t i = 0; i < rows; i += GEMM_ROWS) {
        product.rows = SHOALI_MIN(GEMM_ROWS, rows - i);
        product.steps = gemm_steps(seen_keys(f->args, t0 + i + product.rows - 1, j), f->pairs);
        product.a = ds + i * product.a_row;
        product.out = head->dq_sum + i * f->d_width;
        product.init = j > 0 ? product.out : NULL;
        att_multiply(&product);
    }
}

/* Interleaves two queries into a word, so that products over queries can take pairs. */
static void pair_queries(const uint16_t *half, int64_t rows, uint32_t *to)
{
    const struct gemm_source from = {(const char *)half, ATT_TILE, SHOAL_BF16, true};
    SHOALI_CPU_SYMBOL(pack_rows)(&from, 0, rows, 0, ATT_TILE, ATT_TILE, to);
}

/* Rows of fp32 sums to a gradient with `stride` elements between rows. */
static void write_rows(const struct backward *f, const float *sum, int64_t rows, char *to,
                       int64_t stride)
{
    const int64_t d = f->args->head_size;
    for (int64_t r = 0; r < rows; r++, to += stride * att_element_bytes(f->args->dtype)) {
        for (int64_t c = 0; c < d; c += 16)
            v16_store_as_n(to, c, SHOALI_MIN(16, d - c), v16_load(sum + r * f->d_width + c),
                           f->args->dtype);
    }
}

static void make_delta(const struct backward_head *head, int64_t t)
{
    const struct shoali_attention_backward_args *args = head->shared->args;
    const int64_t at = t * args->out_stride, d = args->head_size;
    v16 sum = v16_set1(0.0f);
    for (int64_t c = 0; c < d; c += 16) {
        const int64_t n = SHOALI_MIN(16, d - c);
        sum = v16_fma(v16_load_as_n(head->dout.source.x, at + c, n, args->dtype),
                      v16_load_as_n(head->out, at + c, n, args->dtype), sum);
    }
    head->delta[t] = v16_sum(sum);
}

static void query_tile(struct backward_head *head, int64_t t0)
{
    const struct backward *f = head->shared;
    const struct shoali_attention_backward_args *args = f->args;
    const int64_t rows = SHOALI_MIN(ATT_TILE, args->q_len - t0);
    const void *p = f->pairs ? (const void *)head->p_pairs : head->p;
    const void *ds = f->pairs ? (const void *)head->ds_pairs : head->ds;
    int64_t end = args->causal ? t0 + rows + args->kv_len - args->q_len : args->kv_len;
    end = SHOALI_MAX(0, SHOALI_MIN(end, args->kv_len));
    bring_operand(f, &head->q, t0, rows);
    bring_operand(f, &head->dout, t0, rows);
    for (int64_t r = 0; r < rows; r++)
        make_delta(head, t0 + r);
    if (end == 0)
        memset(head->dq_sum, 0, (size_t)(rows * f->d_width) * sizeof(float));
    for (int64_t j = 0; j < end; j += ATT_TILE) {
        against_keys(head, &head->q, head->kt, t0, rows, j, head->p);
        against_keys(head, &head->dout, head->vt, t0, rows, j, head->ds);
        for (int64_t r = 0; r < rows; r++)
            probabilities(head, r, t0 + r, j);
        if (f->pairs) {
            pair_queries(head->p_half, rows, head->p_pairs);
            pair_queries(head->ds_half, rows, head->ds_pairs);
        }
        add_transposed(head, p, &head->dout, t0, rows, j, head->dv);
        add_transposed(head, ds, &head->q, t0, rows, j, head->dk);
        add_dq(head, t0, rows, j);
    }
    write_rows(f, head->dq_sum, rows,
               head->dq + t0 * args->q_stride * att_element_bytes(args->dtype), args->q_stride);
}

static void enter_query_head(struct backward_head *head, int64_t b, int64_t h)
{
    const struct shoali_attention_backward_args *args = head->shared->args;
    const int64_t bytes = att_element_bytes(args->dtype), d = args->head_size;
    const int64_t q_at = (b * args->q_len * args->q_stride + h * d) * bytes;
    const int64_t out_at = (b * args->q_len * args->out_stride + h * d) * bytes;
    const int64_t row = (b * args->heads + h) * args->q_len;
    const bool pairs = head->shared->pairs;
    head->q.source =
        (struct gemm_source){(const char *)args->q + q_at, args->q_stride, args->dtype, pairs};
    head->dout.source = (struct gemm_source){(const char *)args->dout + out_at, args->out_stride,
                                             args->dtype, pairs};
    head->out = (const char *)args->out + out_at;
    head->dq = (char *)args->dq + q_at;
    head->lse = args->lse + row;
    head->delta = args->delta + row;
    const struct shoali_attention_mask mask =
        shoali_attention_mask_of(&args->mask, args->heads, args->q_len, args->kv_len);
    head->random_base = shoali_attention_mask_row(&mask, b, h, 0);
    head->random_row = (uint64_t)mask.keys;
}

static void kv_head(struct backward_head *head, int64_t b, int64_t kv)
{
    const struct backward *f = head->shared;
    const struct shoali_attention_backward_args *args = f->args;
    const int64_t d = args->head_size, group = args->heads / args->kv_heads;
    const int64_t at =
        (b * args->kv_len * args->kv_stride + kv * d) * att_element_bytes(args->dtype);
    head->k =
        (struct gemm_source){(const char *)args->k + at, args->kv_stride, args->dtype, f->pairs};
    head->v =
        (struct gemm_source){(const char *)args->v + at, args->kv_stride, args->dtype, f->pairs};
    for (int64_t i = 0; i < f->kv_tiles; i++) {
        const int64_t j = i * ATT_TILE, keys = SHOALI_MIN(ATT_TILE, args->kv_len - j);
        SHOALI_CPU_SYMBOL(pack_transposed)
        (&head->k, 0, d, j, keys, ATT_TILE, head->kt + i * f->transposed_words);
        SHOALI_CPU_SYMBOL(pack_transposed)
        (&head->v, 0, d, j, keys, ATT_TILE, head->vt + i * f->transposed_words);
        if (!f->b_direct)
            SHOALI_CPU_SYMBOL(pack_rows)
        (&head->k, j, keys, 0, d, f->d_width, head->k_rows + i * f->rows_words);
    }
    memset(head->dk, 0, (size_t)(args->kv_len * f->d_width) * sizeof(float));
    memset(head->dv, 0, (size_t)(args->kv_len * f->d_width) * sizeof(float));
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        enter_query_head(head, b, h);
        for (int64_t t0 = 0; t0 < args->q_len; t0 += ATT_TILE)
            query_tile(head, t0);
    }
    write_rows(f, head->dk, args->kv_len, (char *)args->dk + at, args->kv_stride);
    write_rows(f, head->dv, args->kv_len, (char *)args->dv + at, args->kv_stride);
}

#define PARTS 16
static bool take_memory(const struct backward *f, struct backward_head *head)
{
    const int64_t square = ATT_TILE * ATT_TILE, half = f->pairs ? square / 2 : 0;
    const int64_t sums = f->kv_tiles * ATT_TILE * f->d_width,
                  transposed = f->kv_tiles * f->transposed_words;
    const int64_t a_copy = f->a_direct ? 0 : ATT_TILE * f->a_ld,
                  b_copy = f->b_direct ? 0 : f->rows_words;
    const int64_t words[PARTS] = {square,
                                  square,
                                  half,
                                  half,
                                  half,
                                  half,
                                  ATT_TILE * f->d_width,
                                  a_copy,
                                  a_copy,
                                  b_copy,
                                  b_copy,
                                  f->b_direct ? 0 : f->kv_tiles * f->rows_words,
                                  transposed,
                                  transposed,
                                  sums,
                                  sums};
    uint32_t *part[PARTS];
    int64_t total = 0;
    for (int i = 0; i < PARTS; i++)
        total += words[i];
    uint32_t *memory = SHOALI_CPU_SYMBOL(scratch)((size_t)total * 4);
    if (!memory)
        return false;
    for (int i = 0; i < PARTS; i++) {
        part[i] = memory;
        memory += words[i];
    }
    *head = (struct backward_head){.shared = f, .p_pairs = part[4], .ds_pairs = part[5]};
    head->p = (float *)(void *)part[0];
    head->ds = (float *)(void *)part[1];
    head->p_half = (uint16_t *)(void *)part[2];
    head->ds_half = (uint16_t *)(void *)part[3];
    head->dq_sum = (float *)(void *)part[6];
    head->q.a_copy = part[7];
    head->dout.a_copy = part[8];
    head->q.b_copy = part[9];
    head->dout.b_copy = part[10];
    head->k_rows = part[11];
    head->kt = part[12];
    head->vt = part[13];
    head->dk = (float *)(void *)part[14];
    head->dv = (float *)(void *)part[15];
    return true;
}

static void work(void *arg, int32_t index, int32_t count)
{
    struct backward *f = arg;
    struct backward_head head;
    int64_t begin, end;
    shoali_pool_slice(f->args->batch * f->args->kv_heads, 1, index, count, &begin, &end);
    if (begin < end && !take_memory(f, &head)) {
        atomic_store(&f->failed, true);
        return;
    }
    for (int64_t i = begin; i < end; i++)
        kv_head(&head, i / f->args->kv_heads, i % f->args->kv_heads);
}

void SHOALI_CPU_SYMBOL(attention_backward)(const void *args, struct shoali_pool *pool)
{
    const struct shoali_attention_backward_args *att = args;
    const int64_t d = att->head_size;
    struct backward f = {.args = att};
    f.pairs = SHOALI_CPU_PAIRS && att->dtype == SHOAL_BF16;
    f.a_direct = att->dtype == SHOAL_F32 || (f.pairs && d % 2 == 0);
    f.b_direct = att->dtype == SHOAL_F32 && d % 16 == 0;
    f.kv_tiles = (att->kv_len + ATT_TILE - 1) / ATT_TILE;
    f.d_width = (d + 15) / 16 * 16;
    f.d_steps = gemm_steps(d, f.pairs);
    f.a_ld = (f.d_steps + 15) / 16 * 16;
    f.transposed_words = f.a_ld * ATT_TILE;
    f.rows_words = gemm_steps(ATT_TILE, f.pairs) * f.d_width;
    if ((double)(att->batch * att->heads * d) * (double)(att->q_len * att->kv_len) < 16384.0)
        work(&f, 0, 1);
    else
        shoali_pool_run(pool, work, &f);
    if (atomic_load(&f.failed))
        shoali_ops_ref.attention_backward(args, pool);
}
