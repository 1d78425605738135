/* attention_backward - gradients of one key-value head, recomputing P from lse.
 *
 * A (batch, kv head) belongs to one thread: its query heads in order, each one's query tiles in
 * order, each tile against the key tiles it sees: P = exp(S*scale - lse), dP = dO V^T, dS = P (dP -
 * delta); then dV += P^T dO, dK += dS^T Q, dQ += dS K, the last two times scale at their end. dK,
 * dV of the head are carried in fp32 scratch, linear in T. On a CPU with bf16 pairs a bf16 run
 * feeds all five products with bf16, so P and dS are rounded, and written as the products read
 * them: with two queries in a word for the sums over queries, and dS by rows too. Where tiles are
 * multiplied those words are a B, so dV and dK are summed transposed, from columns of dO and Q, and
 * turned when they are written.
 */
#include "ops/cpu/attention_backward.h"

/* End of the keys of the tile at j that row t sees. */
static int64_t seen_end(const struct backward_head *head, int64_t t, int64_t j)
{
    return att_seen(&head->sight, t, j).end;
}

/* Makes rows [t0, t0+rows) readable both ways. */
static void bring_operand(const struct backward *f, struct operand *x, int64_t t0, int64_t rows)
{
    const int64_t bytes = att_element_bytes(f->args->dtype), d = f->args->head_size;
    x->a = x->b = x->source.x + t0 * x->source.ld * bytes;
    x->a_row = x->b_step = x->source.ld * bytes;
#if SHOALI_CPU_TILES
    SHOALI_CPU_SYMBOL(att_pack_columns)(&x->source, t0, rows, d, ATT_QUERIES / 2, x->b_copy);
    x->b = (const char *)x->b_copy;
#else
    if (!f->b_direct) {
        SHOALI_CPU_SYMBOL(pack_rows)(&x->source, t0, rows, 0, d, f->d_width, x->b_copy);
        x->b = (const char *)x->b_copy;
        x->b_step = 4 * f->d_width;
    }
#endif
    if (f->a_direct)
        return;
    if (f->pairs) {
        SHOALI_CPU_SYMBOL(pack_straight)(&x->source, 0, d, t0, rows, f->a_ld, x->a_copy);
        x->a = (const char *)x->a_copy;
        x->a_row = 4 * f->a_ld;
    } else {
        x->a = x->b;
        x->a_row = x->b_step;
    }
}

/* out[row][0..64) = x K^T for rows [at, at+rows) of the tile, as far as keys are seen. */
static void against_keys(struct backward_head *head, const struct operand *x,
                         const uint32_t *packed, const struct att_group *g, float *out)
{
    const struct backward *f = head->shared;
    const int64_t height = att_rows(ATT_TILE / 16);
    struct att_product product = {.b = packed + g->j / ATT_TILE * f->transposed_words,
                                  .b_step = 4 * ATT_TILE,
                                  .a_row = x->a_row,
                                  .a_step = 4,
                                  .out_row = ATT_TILE,
                                  .steps = f->d_steps,
                                  .pairs = f->pairs};
    for (int64_t i = 0; i < g->rows; i += height) {
        product.rows = SHOALI_MIN(height, g->rows - i);
        product.units = (seen_end(head, g->t0 + g->at + i + product.rows - 1, g->j) + 15) / 16;
        product.a = x->a + (g->at + i) * x->a_row;
        product.out = out + i * ATT_TILE;
        SHOALI_CPU_SYMBOL(att_multiply)(&product);
        att_fetch(&head->fetches);
    }
}

/* The rows of the tile, of `rows`, that see a key of [first, last]: from .. to-1. */
static void find_readers(const struct shoali_attention_sight *sight, int64_t t0, int64_t rows,
                         int64_t first, int64_t last, int64_t *from, int64_t *to)
{
    const int64_t shift = sight->kv_len - sight->q_len;
    *from = sight->causal ? SHOALI_MAX(0, SHOALI_MIN(first - shift - t0, rows)) : 0;
    *to = rows;
    if (sight->window > 0)
        *to = SHOALI_MAX(*from, SHOALI_MIN(rows, last - shift - t0 + sight->window));
}

#if SHOALI_CPU_TILES
/* sum[column][key] += rows^T x, x being P or dS: queries in order, whole steps of them, from the
 * first that sees a key of the tile to the last. */
static void add_transposed(struct backward_head *head, const char *x, const struct operand *rows_of,
                           int64_t t0, int64_t rows, int64_t j, float *sum)
{
    const struct backward *f = head->shared;
    const int64_t keys = SHOALI_MIN(ATT_TILE, f->args->kv_len - j);
    int64_t from, to;
    find_readers(&head->sight, t0, rows, j, j + keys - 1, &from, &to);
    const int64_t first = from / ATT_WORD * ATT_WORD;
    const struct att_product product = {.a = rows_of->b + 2 * first,
                                        .a_row = 2 * ATT_QUERIES,
                                        .a_step = 4,
                                        .b = x + 4 * (first / 2 * ATT_TILE),
                                        .b_step = 4 * ATT_TILE,
                                        .out = sum + j,
                                        .out_row = f->keys_ld,
                                        .rows = f->d_width,
                                        .units = (keys + 15) / 16,
                                        .steps = to > from ? (to - first + 1) / 2 : 0,
                                        .pairs = true,
                                        .add = j < head->started};
    SHOALI_CPU_SYMBOL(att_multiply)(&product);
    att_fetch(&head->fetches);
}
#else
/* sum[key] += x^T rows, x being P or dS: queries in order; only those that see a key of the block.
 */
static void add_transposed(struct backward_head *head, const char *x, const struct operand *rows_of,
                           int64_t t0, int64_t rows, int64_t j, float *sum)
{
    const struct backward *f = head->shared;
    const struct shoali_attention_backward_args *args = f->args;
    const int64_t keys = SHOALI_MIN(ATT_TILE, args->kv_len - j), per_step = f->pairs ? 2 : 1;
    const int64_t height = att_rows(f->d_width / 16);
    struct att_product product = {.a_row = 4,
                                  .a_step = 4 * ATT_TILE,
                                  .b_step = rows_of->b_step,
                                  .out_row = f->d_width,
                                  .units = f->d_width / 16,
                                  .pairs = f->pairs};
    for (int64_t i = 0; i < keys; i += height) {
        int64_t from, to;
        product.rows = SHOALI_MIN(height, keys - i);
        find_readers(&head->sight, t0, rows, j + i, j + i + product.rows - 1, &from, &to);
        product.steps = to > from ? gemm_steps(to, f->pairs) - from / per_step : 0;
        from /= per_step;
        product.a = x + from * product.a_step + 4 * i;
        product.b = rows_of->b + from * product.b_step;
        product.out = sum + (j + i) * f->d_width;
        product.add = j < head->started;
        SHOALI_CPU_SYMBOL(att_multiply)(&product);
        att_fetch(&head->fetches);
    }
}
#endif

static void add_dq(struct backward_head *head, int64_t t0, int64_t rows, int64_t j)
{
    const struct backward *f = head->shared;
    const int64_t height = att_rows(f->d_width / 16);
    struct att_product product = {.a_row = ATT_TILE * (f->pairs ? 2 : 4),
                                  .a_step = 4,
                                  .b = head->k_rows + j / ATT_TILE * f->rows_words,
                                  .b_step = 4 * f->d_width,
                                  .out_row = f->d_width,
                                  .units = f->d_width / 16,
                                  .pairs = f->pairs};
    if (f->k_direct) {
        product.b_step = 4 * head->k.ld;
        product.b = head->k.x + j * product.b_step;
    }
    for (int64_t i = 0; i < rows; i += height) {
        const int64_t start = att_first_tile(&head->sight, t0 + i);
        product.rows = SHOALI_MIN(height, rows - i);
        product.steps = gemm_steps(seen_end(head, t0 + i + product.rows - 1, j), f->pairs);
        if (j < start || (product.steps == 0 && j > start))
            continue;
        product.a = head->ds_rows + i * product.a_row;
        product.out = head->dq_sum + i * f->d_width;
        product.add = j > start;
        SHOALI_CPU_SYMBOL(att_multiply)(&product);
        att_fetch(&head->fetches);
    }
}

/* Rows of fp32 sums, times `factor`, to a gradient with `stride` elements between rows. */
static void write_rows(const struct backward *f, const float *sum, double factor, int64_t rows,
                       char *to, int64_t stride)
{
    const int64_t row_bytes = stride * att_element_bytes(f->args->dtype);
    for (int64_t r = 0; r < rows; r++, to += row_bytes)
        att_write(to, sum + r * f->d_width, f->args->head_size, v16_set1((float)factor),
                  f->args->dtype, f->pairs);
}

/* What exponents and dS of a row need. */
static void make_row(struct backward_head *head, int64_t t0, int64_t row)
{
    const struct shoali_attention_backward_args *args = head->shared->args;
    const int64_t t = t0 + row, at = t * args->out_stride, d = args->head_size;
    v16 sum = v16_set1(0.0f);
    for (int64_t c = 0; c < d; c += 16) {
        const int64_t n = SHOALI_MIN(16, d - c);
        sum = v16_fma(v16_load_as_n(head->dout.source.x, at + c, n, args->dtype),
                      v16_load_as_n(head->out, at + c, n, args->dtype), sum);
    }
    head->delta[t] = v16_sum(sum);
    head->shift[row] = (float)((double)head->lse[t] * -ATT_LOG2E);
}

/* First elements of a query head of all samples in q (and dq), and in out (and dout). */
static void find_queries(const struct shoali_attention_backward_args *args, int64_t query_head,
                         int64_t *q_at, int64_t *out_at)
{
    const int64_t b = query_head / args->heads, h = query_head % args->heads;
    *q_at = b * args->q_len * args->q_stride + h * args->head_size;
    *out_at = b * args->q_len * args->out_stride + h * args->head_size;
}
/* The same of a key-value head in k, v, dk and dv. */
static int64_t find_keys(const struct shoali_attention_backward_args *args, int64_t kv_head)
{
    return kv_head / args->kv_heads * args->kv_len * args->kv_stride +
           kv_head % args->kv_heads * args->head_size;
}

/* What the next tile reads, and what this one writes; with a key-value head's last query head also
 * the keys and values of the next one, and where its own gradients go. */
static void plan_fetches(struct backward_head *head, int64_t t0, int64_t rows, int64_t tiles)
{
    const struct shoali_attention_backward_args *args = head->shared->args;
    const int64_t bytes = att_element_bytes(args->dtype), group = args->heads / args->kv_heads;
    const int64_t q_row = bytes * args->q_stride, kv_row = bytes * args->kv_stride;
    const int64_t out_row = bytes * args->out_stride;
    const int64_t keys = SHOALI_MIN(rows, args->kv_len - t0);
    struct att_fetches *fetches = &head->fetches;
    int64_t next = t0 + rows, next_head = head->query_head, q_at, out_at;
    if (next == args->q_len) {
        next = 0;
        next_head++;
    }
    fetches->count = 0;
    fetches->bytes = args->head_size * bytes;
    if ((head->query_head + 1) % group == 0) {
        const int64_t here = find_keys(args, head->kv_head) * bytes + t0 * kv_row;
        att_fetch_later(fetches, (char *)args->dv + here, kv_row, keys);
        att_fetch_later(fetches, (char *)args->dk + here, kv_row, keys);
    }
    if ((head->query_head + 1) % group == 0 && head->kv_head + 1 < head->kv_heads_end) {
        const int64_t there = find_keys(args, head->kv_head + 1) * bytes + t0 * kv_row;
        att_fetch_later(fetches, (const char *)args->v + there, kv_row, keys);
        att_fetch_later(fetches, (const char *)args->k + there, kv_row, keys);
    }
    if (next_head < head->kv_heads_end * group) {
        const int64_t left = SHOALI_MIN(ATT_QUERIES, args->q_len - next);
        find_queries(args, next_head, &q_at, &out_at);
        att_fetch_later(fetches, (const char *)args->q + q_at * bytes + next * q_row, q_row, left);
        out_at = out_at * bytes + next * out_row;
        att_fetch_later(fetches, (const char *)args->out + out_at, out_row, left);
        att_fetch_later(fetches, (const char *)args->dout + out_at, out_row, left);
    }
    att_fetch_later(fetches, head->dq + t0 * q_row, q_row, rows);
    /* Fewer products on the diagonal than the five of every eight rows. */
    att_fetch_spread(fetches, tiles * (rows / 4 + 8));
}

static void query_tile(struct backward_head *head, int64_t t0)
{
    const struct backward *f = head->shared;
    const struct shoali_attention_backward_args *args = f->args;
    const int64_t rows = SHOALI_MIN(ATT_QUERIES, args->q_len - t0);
    const int64_t begin = att_first_tile(&head->sight, t0);
    const int64_t end = shoali_attention_keys(&head->sight, t0 + rows - 1).end;
    bring_operand(f, &head->q, t0, rows);
    bring_operand(f, &head->dout, t0, rows);
    for (int64_t r = 0; r < rows; r++)
        make_row(head, t0, r);
    plan_fetches(head, t0, rows, SHOALI_MAX(0, end - begin + ATT_TILE - 1) / ATT_TILE);
    for (int64_t r = 0; r < rows; r++) {
        if (att_first_tile(&head->sight, t0 + r) >= end)
            memset(head->dq_sum + r * f->d_width, 0, (size_t)f->d_width * sizeof(float));
    }
    if (head->started == 0)
        head->first = begin;
    for (int64_t j = begin; j < end; j += ATT_TILE) {
        for (int64_t at = 0; at < rows; at += ATT_GROUP) {
            const struct att_group g = {t0, at, SHOALI_MIN(ATT_GROUP, rows - at), j};
            if (seen_end(head, t0 + at + g.rows - 1, j) == 0 ||
                att_seen(&head->sight, t0 + at, j).begin == ATT_TILE)
                continue; /* no product reads them */
            against_keys(head, &head->q, head->kt, &g, head->s);
            against_keys(head, &head->dout, head->vt, &g, head->dp);
            SHOALI_CPU_SYMBOL(att_soft_gradients)(head, &g);
        }
        add_transposed(head, head->p, &head->dout, t0, rows, j, head->dv);
        add_transposed(head, head->ds, &head->q, t0, rows, j, head->dk);
        head->started = SHOALI_MAX(head->started, j + ATT_TILE);
        add_dq(head, t0, rows, j);
    }
    write_rows(f, head->dq_sum, args->scale, rows,
               head->dq + t0 * args->q_stride * att_element_bytes(args->dtype), args->q_stride);
}

static void enter_query_head(struct backward_head *head, int64_t query_head)
{
    const struct shoali_attention_backward_args *args = head->shared->args;
    const int64_t bytes = att_element_bytes(args->dtype);
    const int64_t b = query_head / args->heads, h = query_head % args->heads;
    int64_t q_at, out_at;
    find_queries(args, query_head, &q_at, &out_at);
    q_at *= bytes;
    out_at *= bytes;
    head->query_head = query_head;
    const bool pairs = head->shared->pairs;
    head->q.source =
        (struct gemm_source){(const char *)args->q + q_at, args->q_stride, args->dtype, pairs};
    head->dout.source = (struct gemm_source){(const char *)args->dout + out_at, args->out_stride,
                                             args->dtype, pairs};
    head->out = (const char *)args->out + out_at;
    head->dq = (char *)args->dq + q_at;
    head->lse = args->lse + query_head * args->q_len;
    head->delta = args->delta + query_head * args->q_len;
    const struct shoali_attention_mask mask =
        shoali_attention_mask_of(&args->mask, args->heads, args->q_len, args->kv_len);
    head->random_base = shoali_attention_mask_row(&mask, b, h, 0);
    head->random_row = (uint64_t)mask.keys;
}

/* No query sees keys begin .. end-1. */
static void clear_unseen(struct backward_head *head, int64_t begin, int64_t end)
{
    const int64_t width = head->shared->d_width, ld = head->shared->keys_ld;
#if SHOALI_CPU_TILES
    for (int64_t c = 0; c < width; c++)
        for (int64_t i = c * ld + begin; i < c * ld + end; i++)
            head->dk[i] = head->dv[i] = 0;
#else
    (void)ld;
    for (int64_t i = begin * width; i < end * width; i++)
        head->dk[i] = head->dv[i] = 0;
#endif
}

/* dK or dV of the head. */
static void write_keys(const struct backward_head *head, const float *sum, double factor, char *to)
{
    const struct backward *f = head->shared;
    const int64_t kv_len = f->args->kv_len, stride = f->args->kv_stride;
#if SHOALI_CPU_TILES
    const struct gemm_source from = {(const char *)sum, f->keys_ld, SHOAL_F32, false};
    for (int64_t j = 0; j < kv_len; j += ATT_TILE) {
        const int64_t keys = SHOALI_MIN(ATT_TILE, kv_len - j);
        SHOALI_CPU_SYMBOL(pack_transposed)
        (&from, j, keys, 0, f->d_width, f->d_width, (uint32_t *)(void *)head->dq_sum);
        write_rows(f, head->dq_sum, factor, keys,
                   to + j * stride * att_element_bytes(f->args->dtype), stride);
    }
#else
    write_rows(f, sum, factor, kv_len, to, stride);
#endif
}

static void work_head(struct backward_head *head, int64_t kv_head)
{
    const struct backward *f = head->shared;
    const struct shoali_attention_backward_args *args = f->args;
    const int64_t d = args->head_size, group = args->heads / args->kv_heads;
    const int64_t at = find_keys(args, kv_head) * att_element_bytes(args->dtype);
    head->kv_head = kv_head;
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
        if (!f->k_direct)
            SHOALI_CPU_SYMBOL(pack_rows)
        (&head->k, j, keys, 0, d, f->d_width, head->k_rows + i * f->rows_words);
    }
    head->started = 0;
    head->sight = shoali_attention_sight_of(args->q_len, args->kv_len, args->causal, args->window,
                                            args->key_count, kv_head / args->kv_heads);
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
        enter_query_head(head, h);
        for (int64_t t0 = 0; t0 < args->q_len; t0 += ATT_QUERIES)
            query_tile(head, t0);
    }
    clear_unseen(head, 0, head->started > 0 ? head->first : 0);
    clear_unseen(head, head->started, args->kv_len);
    write_keys(head, head->dk, args->scale, (char *)args->dk + at);
    write_keys(head, head->dv, 1, (char *)args->dv + at);
}

#define PARTS 14
/* Words of scratch for each part. Returns their sum. */
static int64_t scratch_words(const struct backward *f, int64_t words[PARTS])
{
    const int64_t square = ATT_QUERIES * ATT_TILE / (f->pairs ? 2 : 1);
    const int64_t sums = f->kv_tiles * ATT_TILE * f->d_width,
                  transposed = f->kv_tiles * f->transposed_words;
    const int64_t a_copy = f->a_direct || !f->pairs ? 0 : ATT_QUERIES * f->a_ld,
                  b_copy = f->b_direct ? 0 : gemm_steps(ATT_QUERIES, f->pairs) * f->d_width;
    const int64_t part[PARTS] = {ATT_GROUP * ATT_TILE,
                                 ATT_GROUP * ATT_TILE,
                                 square,
                                 square,
                                 f->pairs ? square : 0,
                                 ATT_QUERIES * f->d_width,
                                 a_copy,
                                 a_copy,
                                 b_copy,
                                 b_copy,
                                 f->k_direct ? 0 : f->kv_tiles * f->rows_words,
                                 2 * transposed,
                                 sums,
                                 sums};
    int64_t total = 0;
    for (int i = 0; i < PARTS; i++)
        total += words[i] = part[i];
    return total;
}

static bool take_memory(const struct backward *f, struct backward_head *head)
{
    const int64_t transposed = f->kv_tiles * f->transposed_words;
    int64_t words[PARTS];
    uint32_t *part[PARTS];
    uint32_t *memory = shoali_scratch((size_t)scratch_words(f, words) * sizeof *memory);
    if (!memory)
        return false;
    for (int i = 0; i < PARTS; i++) {
        part[i] = memory;
        memory += words[i];
    }
    if (SHOALI_CPU_TILES) /* what no head writes is read to fill steps */
        memset(part[6], 0, (size_t)(part[12] - part[6]) * 4);
    *head = (struct backward_head){
        .shared = f, .p = (char *)part[2], .ds = (char *)part[3], .k_rows = part[10]};
    head->s = (float *)(void *)part[0];
    head->dp = (float *)(void *)part[1];
    head->ds_rows = f->pairs ? (char *)part[4] : head->ds;
    head->dq_sum = (float *)(void *)part[5];
    head->q.a_copy = part[6];
    head->dout.a_copy = part[7];
    head->q.b_copy = part[8];
    head->dout.b_copy = part[9];
    head->kt = part[11];
    head->vt = part[11] + transposed;
    head->dk = (float *)(void *)part[12];
    head->dv = (float *)(void *)part[13];
    return true;
}

static int64_t pieces_of(const void *arg, int32_t share, int32_t shares)
{
    const struct backward *f = arg;
    int64_t begin, end;
    shoali_pool_slice(f->args->batch * f->args->kv_heads, 1, share, shares, &begin, &end);
    return end - begin;
}

/* A piece is a head of keys: its gradient is a sum over the queries. */
static void work(void *arg, struct shoali_claim *claim)
{
    struct backward *f = arg;
    struct backward_head head;
    int64_t begin;
    if (!take_memory(f, &head)) {
        atomic_store(&f->failed, true);
        return;
    }
    while (shoali_claim_next(claim)) {
        shoali_pool_slice(f->args->batch * f->args->kv_heads, 1, claim->share,
                          claim->pieces->shares, &begin, &head.kv_heads_end);
        work_head(&head, begin + claim->piece);
    }
    SHOALI_CPU_SYMBOL(att_end)();
}

static struct backward prepare(const struct shoali_attention_backward_args *att)
{
    const int64_t d = att->head_size;
    struct backward f = {.args = att};
    f.pairs = SHOALI_CPU_PAIRS && att->dtype == SHOAL_BF16;
    f.scale = (float)(att->scale * ATT_LOG2E);
    f.kv_tiles = (att->kv_len + ATT_TILE - 1) / ATT_TILE;
    /* Rows of a large model lie a multiple of the cache's way apart: read more than once or twice,
     * they are worth a copy. */
    const bool whole = att->dtype == SHOAL_F32 && d % 16 == 0;
    f.b_direct = whole && f.kv_tiles == 1;
    f.a_direct = f.kv_tiles == 1 && (att->dtype == SHOAL_F32 || (f.pairs && d % ATT_WORD == 0));
    f.k_direct = whole && att->q_len <= ATT_QUERIES;
    f.d_width = (d + 15) / 16 * 16;
    f.d_steps = gemm_steps(d, f.pairs);
    f.a_ld = (f.d_steps + 15) / 16 * 16;
    f.keys_ld = f.kv_tiles * ATT_TILE;
    f.transposed_words = f.a_ld * ATT_TILE;
    f.rows_words = gemm_steps(ATT_TILE, f.pairs) * f.d_width;
    return f;
}

size_t SHOALI_CPU_SYMBOL(attention_backward_workspace)(const void *args, int32_t threads)
{
    const struct shoali_attention_backward_args *att = args;
    int64_t words[PARTS];
    (void)threads;
    if (!att_is_sane(att->kv_len, att->head_size))
        return SIZE_MAX;
    const struct backward f = prepare(att);
    return (size_t)scratch_words(&f, words) * sizeof(uint32_t);
}

void SHOALI_CPU_SYMBOL(attention_backward)(const void *args,
                                           const struct shoali_kernel_context *context)
{
    const struct shoali_attention_backward_args *att = args;
    const int64_t d = att->head_size;
    struct backward f = prepare(att);
    const bool small =
        (double)(att->batch * att->heads * d) * (double)(att->q_len * att->kv_len) < 16384.0;
    const struct shoali_pieces pieces = {.count = pieces_of, .work = work, .arg = &f};
    shoali_pool_run_pieces(small ? NULL : context->threads, &pieces);
    if (atomic_load(&f.failed))
        shoali_attention_backward_plain(att);
}
