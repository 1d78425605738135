/* Conformance of every built table with ref: kernels with a shape. */
#include "base/mathx.h"
#include "ops/attention_plain.h"
#include "ops/conformance/conformance.h"

/* ---- gemm ---- */

struct gemm_case {
    int64_t m, n, k;
    int32_t trans_a, trans_b, accumulate, preact, residual;
    enum shoali_activation activation;
    shoal_dtype dtype_c;
    int64_t bias, pad, before;
};

/* dot order makes the result exact between tables. Products of pairs (|a|,|b| <= 1): each of K sums
 * errs by at most 2^-24 K on either side; a stored 16-bit sum may then differ by one unit, which is
 * 2^-8 of at most about 3 sqrt(K)+6.
 */
static double gemm_pairs_tolerance(const struct gemm_case *g)
{
    const double k = (double)g->k;
    return k * k * 0x1p-22 + 1.2 * 0x1p-8 * (3 * sqrt(k) + 6);
}

static void run_gemm(struct trial *t, const struct gemm_case *g)
{
    const shoal_dtype ab = t->dtype, dtype_bias = g->bias == 2 ? ab : g->dtype_c;
    const int64_t lda = (g->trans_a ? g->m : g->k) + g->pad, a_rows = g->trans_a ? g->k : g->m;
    const int64_t ldb = (g->trans_b ? g->k : g->n) + g->pad, b_rows = g->trans_b ? g->n : g->k;
    const int64_t ldc = g->n + g->pad, c_count = g->m * ldc;
    struct shoali_gemm_args args = {
        .a = floats_between(t, a_rows * lda, ab, -1, 1),
        .b = floats_between(t, b_rows * ldb, ab, -1, 1),
        .c = floats(t, c_count, g->dtype_c),
        .bias = g->bias > 0 ? floats(t, g->n, dtype_bias) : NULL,
        .residual = g->residual ? floats(t, c_count, g->dtype_c) : NULL,
        .preact = g->preact ? floats(t, c_count, g->dtype_c) : NULL,
        .before = g->before ? floats(t, c_count, SHOAL_F32) : NULL,
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .lda = lda,
        .ldb = ldb,
        .ldc = ldc,
        .trans_a = g->trans_a,
        .trans_b = g->trans_b,
        .accumulate = g->accumulate,
        .activation = g->activation,
        .dtype_ab = ab,
        .dtype_c = g->dtype_c,
        .dtype_bias = dtype_bias,
    };
    if (g->before == 2 && g->dtype_c == SHOAL_F32) /* in place */
        args.before = args.c;
    call(t, &args);
    give_within(t, args.c, c_count, g->dtype_c, 0, gemm_pairs_tolerance(g));
    if (args.preact != NULL)
        give_within(t, args.preact, c_count, g->dtype_c, 0, gemm_pairs_tolerance(g));
}

static void gemm_small(struct trial *t)
{
    struct gemm_case g = {0};
    g.trans_a = (int32_t)pick(t, 2);
    g.trans_b = (int32_t)pick(t, 2);
    g.accumulate = (int32_t)pick(t, 2);
    g.preact = (int32_t)pick(t, 2);
    g.residual = (int32_t)pick(t, 2);
    g.activation = (enum shoali_activation)pick(t, SHOALI_ACT_SILU + 1);
    g.dtype_c = pick(t, 2) ? SHOAL_F32 : t->dtype;
    g.bias = pick(t, 3);
    g.pad = pick(t, 2) * 3;
    g.before = pick(t, 3);
    g.m = pick_size(t);
    g.n = pick_size(t);
    g.k = pick_size(t) - 1; /* 0 among them */
    run_gemm(t, &g);
}
/* Across the blocks of any tiling: results must not depend on them. */
static void gemm_large(struct trial *t)
{
    static const int64_t sizes[][3] = {{70, 270, 400}, {72, 272, 400}, {1200, 20, 20}};
    const int64_t *size = sizes[pick(t, 3)];
    struct gemm_case g = {.m = size[0], .n = size[1], .k = size[2]};
    g.dtype_c = SHOAL_F32;
    g.bias = 1;
    g.trans_a = (int32_t)pick(t, 2);
    g.trans_b = (int32_t)pick(t, 2);
    run_gemm(t, &g);
}

/* Sums as integers are what to_fixed makes of the table's own sums: of any order of them, so that
 * pairs are compared with themselves alone. */
static void run_fixed(struct trial *t, int64_t m, int64_t n, int64_t pad)
{
    const int32_t trans_a = (int32_t)pick(t, 2), trans_b = (int32_t)pick(t, 2);
    const int32_t accumulate = (int32_t)pick(t, 2);
    const int64_t k = 72;
    const bool before = pick(t, 2) != 0, outside = pick(t, 2) != 0;
    const int64_t lda = trans_a ? m : k, ldb = trans_b ? k : n, ldc = n + pad, count = m * ldc;
    struct shoali_gemm_args args = {
        .a = floats_between(t, m * k, t->dtype, -1, 1),
        .b = floats_between(t, n * k, t->dtype, -1, 1),
        .before = before ? floats(t, count, SHOAL_F32) : NULL,
        .fixed = block(t, count, SHOAL_I64),
        .flag = block(t, 1, SHOAL_I32),
        .m = m,
        .n = n,
        .k = k,
        .lda = lda,
        .ldb = ldb,
        .ldc = ldc,
        .trans_a = trans_a,
        .trans_b = trans_b,
        .accumulate = accumulate,
        .dtype_ab = t->dtype,
        .dtype_c = SHOAL_F32,
        .unit_log2 = 44,
        .limit = outside ? 0x1p-1 : 0x1p15,
    };
    int64_t *want = block(t, count, SHOAL_I64);
    uint32_t flag = 0;
    *args.flag = 0;
    memcpy(want, args.fixed, (size_t)count * sizeof *want);
    call(t, &args);
    if (t->unsupported)
        return;
    struct shoali_gemm_args sums = args;
    sums.fixed = NULL;
    sums.accumulate = 0;
    sums.c = block(t, count, SHOAL_F32);
    run_entry(t, &sums);
    for (int64_t i = 0; i < m; i++) {
        const struct shoali_to_fixed_args row = {
            (const float *)sums.c + i * ldc, want + i * ldc, &flag, n, 44, accumulate, args.limit};
        shoali_ops_entry(&shoali_ops_ref, &shoali_kernel_to_fixed)->fn(&row, &t->context);
    }
    assert_memory_equal(want, args.fixed, (size_t)count * sizeof *want);
    assert_int_equal(*args.flag, flag);
    give_within(t, sums.c, count, SHOAL_F32, 0, gemm_pairs_tolerance(&(struct gemm_case){.k = k}));
    if (t->dtype != SHOAL_BF16)
        give(t, args.fixed, count, SHOAL_I64);
}
static void gemm_fixed(struct trial *t)
{
    static const int64_t sizes[] = {1, 8, 16, 33, 64};
    const int64_t m = sizes[pick(t, 5)], n = sizes[pick(t, 5)];
    run_fixed(t, m, n, 4 * pick(t, 2));
}
/* More than what a backend may keep of fp32 sums at once. */
static void gemm_fixed_pieces(struct trial *t)
{
    run_fixed(t, 8208, 8, 0);
}

/* A table's packed layout is its own business: what counts is its product, and that the layout fits
 * into the memory that the table asked for. */
static void pack_b(struct trial *t)
{
    const int32_t trans_b = (int32_t)pick(t, 2);
    const int64_t pad = pick(t, 2) * 3, m = 9, n = pick_size(t), k = pick_size(t);
    const int64_t ldb = (trans_b ? k : n) + pad, b_rows = trans_b ? n : k;
    /* A table without a layout writes nothing; the description asks for as much as B has. */
    const bool packs = t->table->packed_b_bytes != NULL;
    const size_t bytes = packs ? t->table->packed_b_bytes(n, k, t->dtype)
                               : (size_t)(n * k) * shoal_dtype_bytes(t->dtype);
    unsigned char *packed = block(t, (int64_t)bytes, SHOAL_U8), guard[GUARD_BYTES];
    memcpy(guard, packed + bytes, GUARD_BYTES);
    const struct shoali_gemm_args product = {
        .a = floats_between(t, m * k, t->dtype, -1, 1),
        .b = floats_between(t, b_rows * ldb, t->dtype, -1, 1),
        .c = floats(t, m * n, t->dtype),
        .packed_b = packs ? packed : NULL,
        .m = m,
        .n = n,
        .k = k,
        .lda = k,
        .ldb = ldb,
        .ldc = n,
        .trans_b = trans_b,
        .dtype_ab = t->dtype,
        .dtype_c = t->dtype,
        .dtype_bias = t->dtype,
    };
    call(t, &(struct shoali_pack_b_args){product.b, packed, n, k, ldb, trans_b, t->dtype});
    if (t->unsupported)
        return;
    assert_memory_equal(guard, packed + bytes, GUARD_BYTES);
    shoali_ops_entry(t->table, &shoali_kernel_gemm)->fn(&product, &t->context);
    give_within(t, product.c, m * n, t->dtype, 0,
                gemm_pairs_tolerance(&(struct gemm_case){.k = k}));
}

/* ---- norm ---- */

static void norm(struct trial *t)
{
    const int32_t rms = (int32_t)pick(t, 2);
    const bool bias = pick(t, 2) != 0;
    const int64_t rows = pick_rows(t), columns = pick_size(t);
    const struct shoali_norm_args args = {
        .x = floats_between(t, rows * columns, t->dtype, -1, 5),
        .gamma = floats(t, columns, t->dtype),
        .beta = bias ? floats(t, columns, t->dtype) : NULL,
        .y = block(t, rows * columns, t->dtype),
        .mean = block(t, rows, SHOAL_F32),
        .rstd = block(t, rows, SHOAL_F32),
        .rows = rows,
        .columns = columns,
        .eps = 1e-5,
        .rms = rms,
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.y, rows * columns, t->dtype);
    give(t, args.rstd, rows, SHOAL_F32);
    if (!rms)
        give(t, args.mean, rows, SHOAL_F32);
}

static void norm_backward(struct trial *t)
{
    const int32_t rms = (int32_t)pick(t, 2), accumulate_dx = (int32_t)pick(t, 2);
    const int32_t accumulate_params = (int32_t)pick(t, 2);
    const int64_t wanted = pick(t, 4); /* which outputs */
    const int64_t rows = pick_rows(t) - 1, columns = pick(t, 4) ? pick_size(t) : 96;
    struct shoali_norm_backward_args args = {
        .x = floats(t, rows * columns, t->dtype),
        .gamma = floats(t, columns, t->dtype),
        .dy = floats(t, rows * columns, t->dtype),
        .mean = floats_between(t, rows, SHOAL_F32, -1, 1),
        .rstd = floats_between(t, rows, SHOAL_F32, 0.5, 2),
        .dx = wanted != 1 ? floats(t, rows * columns, t->dtype) : NULL,
        .dgamma = wanted != 2 ? floats(t, columns, SHOAL_F32) : NULL,
        .dbeta = wanted != 3 ? floats(t, columns, SHOAL_F32) : NULL,
        .rows = rows,
        .columns = columns,
        .rms = rms,
        .accumulate_dx = accumulate_dx,
        .accumulate_params = accumulate_params,
        .dtype = t->dtype,
    };
    call(t, &args);
    if (args.dx != NULL)
        give(t, args.dx, rows * columns, t->dtype);
    if (args.dgamma != NULL)
        give(t, args.dgamma, columns, SHOAL_F32);
    if (args.dbeta != NULL)
        give(t, args.dbeta, columns, SHOAL_F32);
}

/* Heads between other columns: what is no head keeps what it was. */
static void norm_heads(struct trial *t)
{
    const int64_t group = 1 + pick(t, 3), extra = 7 * pick(t, 2), columns = pick_size(t);
    const int64_t tokens = pick_rows(t), rows = tokens * group, stride = group * columns + extra;
    const struct shoali_norm_args args = {
        .x = floats_between(t, tokens * stride, t->dtype, -1, 5),
        .gamma = floats(t, columns, t->dtype),
        .y = floats(t, tokens * stride, t->dtype),
        .rstd = block(t, rows, SHOAL_F32),
        .rows = rows,
        .columns = columns,
        .group = group,
        .group_stride = stride,
        .eps = 1e-6,
        .rms = 1,
        .gamma_plus_one = (int32_t)pick(t, 2),
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.y, tokens * stride, t->dtype);
    give(t, args.rstd, rows, SHOAL_F32);
}

static void norm_heads_backward(struct trial *t)
{
    const int64_t group = 1 + pick(t, 3), extra = 7 * pick(t, 2), columns = pick_size(t);
    const int64_t tokens = pick_rows(t), rows = tokens * group, stride = group * columns + extra;
    const struct shoali_norm_backward_args args = {
        .x = floats(t, tokens * stride, t->dtype),
        .gamma = floats(t, columns, t->dtype),
        .dy = floats(t, tokens * stride, t->dtype),
        .mean = floats_between(t, rows, SHOAL_F32, -1, 1),
        .rstd = floats_between(t, rows, SHOAL_F32, 0.5, 2),
        .dx = floats(t, tokens * stride, t->dtype),
        .dgamma = floats(t, columns, SHOAL_F32),
        .dbeta = floats(t, columns, SHOAL_F32),
        .rows = rows,
        .columns = columns,
        .group = group,
        .group_stride = stride,
        .rms = (int32_t)pick(t, 2),
        .gamma_plus_one = (int32_t)pick(t, 2),
        .accumulate_dx = (int32_t)pick(t, 2),
        .dtype = t->dtype,
    };
    call(t, &args);
    give(t, args.dx, tokens * stride, t->dtype);
    give(t, args.dgamma, columns, SHOAL_F32);
    give(t, args.dbeta, columns, SHOAL_F32);
}

static void rotary(struct trial *t)
{
    static const int64_t sizes[][2] = {{1, 0},   {2, 2},   {16, 16}, {17, 10},  {33, 32},
                                       {64, 64}, {80, 36}, {70, 70}, {256, 256}};
    static const int64_t lengths[] = {1, 2, 17, 150};
    const int64_t *size = sizes[pick(t, 9)], heads = pick(t, 4), extra = 5 * pick(t, 2);
    const int64_t length = lengths[pick(t, 4)], batch = 1 + 2 * pick(t, 2);
    struct shoali_rotary_args args = {.batch = batch, .length = length, .dtype = t->dtype};
    args.head_size = size[0];
    args.rotary_size = size[1];
    args.heads = heads;
    args.columns = heads * args.head_size + extra;
    args.first_position = (int64_t[]){0, 1000, SHOALI_ROTARY_POSITIONS - 150}[pick(t, 3)];
    args.interleaved = (int32_t)pick(t, 2);
    args.inverse = (int32_t)pick(t, 2);
    args.accumulate = (int32_t)pick(t, 2);
    for (int64_t i = 0; i < args.rotary_size / 2; i++)
        args.inverse_frequency[i] = (float)shoali_pow(10000, -2.0 * (double)i / (double)size[1]);
    args.x = floats(t, batch * length * args.columns, t->dtype);
    args.y = floats(t, batch * length * args.columns, t->dtype);
    call(t, &args);
    give(t, args.y, batch * length * args.columns, t->dtype);
}

/* ---- attention ---- */

/* Sizes of heads: all kinds, and those that tensor cores take. */
static const int64_t head_sizes[] = {1, 8, 16, 17, 32, 64, 80}, wide_head_sizes[] = {64, 128};

static struct shoali_attention_args attention_args(struct trial *t, bool wide)
{
    static const int64_t lengths[] = {1, 5, 16, 63, 64, 65, 130};
    static const int64_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}};
    struct shoali_attention_args args = {0};
    args.causal = (int32_t)pick(t, 2);
    const bool packed = pick(t, 2) != 0;
    args.dropout = pick(t, 2) ? 0.3f : 0.0f;
    const int64_t *h = heads[pick(t, 4)];
    args.heads = h[0];
    args.kv_heads = h[1];
    args.q_len = lengths[pick(t, 7)];
    args.kv_len = args.q_len + (int64_t[]){0, 0, 3, 70, -4}[pick(t, 5)];
    args.kv_len = args.kv_len < 1 ? 1 : args.kv_len;
    args.head_size = wide ? wide_head_sizes[pick(t, 2)] : head_sizes[pick(t, 7)];
    args.batch = 1 + pick(t, 2);
    if (args.causal)
        args.window = (int64_t[]){0, 0, 1, 20, 64, 100}[pick(t, 6)];
    else if (pick(t, 2) != 0)
        args.key_count = ints(t, args.batch, -2, args.kv_len + 5);
    args.scale = 1 / sqrt((double)args.head_size);
    args.mask.first_sample = 5;
    if (pick(t, 2) != 0) {
        args.mask.heads = 9;
        args.mask.first_head = 3;
        args.mask.queries = 301;
        args.mask.first_query = 17;
        args.mask.keys = 400;
        args.mask.first_key = 5;
    }
    args.random = next_stream(t);
    args.dtype = t->dtype;
    const int64_t q_row = args.heads * args.head_size, kv_row = args.kv_heads * args.head_size;
    args.q_stride = packed ? q_row + 2 * kv_row : q_row;
    args.kv_stride = packed ? q_row + 2 * kv_row : kv_row;
    args.out_stride = q_row;
    args.q = floats_between(t, args.batch * args.q_len * args.q_stride, t->dtype, -1, 1);
    args.k = floats_between(t, args.batch * args.kv_len * args.kv_stride, t->dtype, -1, 1);
    args.v = floats_between(t, args.batch * args.kv_len * args.kv_stride, t->dtype, -1, 1);
    args.out = block(t, args.batch * args.q_len * args.out_stride, t->dtype);
    args.lse = block(t, args.batch * args.heads * args.q_len, SHOAL_F32);
    return args;
}
/* Relative error of a probability and of a row's sum: a score errs by D^1.5 2^-24 (|q|,|k| <= 1,
 * scaled), the sum by its length. Twice for both sides, twice for numerator and denominator. */
static double attention_eps(const struct shoali_attention_args *args)
{
    const double d = (double)args->head_size;
    const double group = (double)(args->heads / args->kv_heads);
    const double terms = (double)args->kv_len + (double)args->q_len * group + 16;
    return 4 * (d * sqrt(d) + terms) * 0x1p-24 / (1 - (double)args->dropout);
}
/* The same where scores, probabilities and gradients are rounded to bf16. */
static const double pairs_eps = 0x1p-7;

static void forward(struct trial *t, bool wide)
{
    const struct shoali_attention_args args = attention_args(t, wide);
    call(t, &args);
    const double eps = attention_eps(&args);
    const double d = (double)args.head_size;
    give_within(t, args.out, args.batch * args.q_len * args.out_stride, t->dtype, eps,
                pairs_eps / (1 - (double)args.dropout));
    /* lse itself is as large as log(kv_len) + sqrt(D). */
    give_within(t, args.lse, args.batch * args.heads * args.q_len, SHOAL_F32,
                eps + (6 + sqrt(d)) * 0x1p-22, pairs_eps);
}

static void attention(struct trial *t)
{
    forward(t, false);
}

static void wide_attention(struct trial *t)
{
    forward(t, true);
}

static void backward(struct trial *t, bool wide)
{
    const struct shoali_attention_args f = attention_args(t, wide);
    shoali_attention_plain(&f);
    struct shoali_attention_backward_args args = {
        .q = f.q,
        .k = f.k,
        .v = f.v,
        .key_count = f.key_count,
        .out = f.out,
        .lse = f.lse,
        .dout = floats_between(t, f.batch * f.q_len * f.out_stride, t->dtype, -1, 1),
        .delta = block(t, f.batch * f.heads * f.q_len, SHOAL_F32),
        .dq = block(t, f.batch * f.q_len * f.q_stride, t->dtype),
        .dk = block(t, f.batch * f.kv_len * f.kv_stride, t->dtype),
        .dv = block(t, f.batch * f.kv_len * f.kv_stride, t->dtype),
        .batch = f.batch,
        .q_len = f.q_len,
        .kv_len = f.kv_len,
        .heads = f.heads,
        .kv_heads = f.kv_heads,
        .head_size = f.head_size,
        .q_stride = f.q_stride,
        .kv_stride = f.kv_stride,
        .out_stride = f.out_stride,
        .window = f.window,
        .scale = f.scale,
        .causal = f.causal,
        .dropout = f.dropout,
        .random = f.random,
        .mask = f.mask,
        .dtype = f.dtype,
    };
    call(t, &args);
    /* A score's gradient is p (dp - delta), |dp - delta| about 2 sqrt(D); p sums to 1 over keys and
     * to less than 8 per query head over the queries of a key (1 + 1/2 + 1/3 + ... for the first).
     */
    const double eps = attention_eps(&f), group = (double)(f.heads / f.kv_heads);
    const double pairs = pairs_eps / (1 - (double)f.dropout);
    const double slope = 4 * sqrt((double)f.head_size) * f.scale / (1 - (double)f.dropout);
    const int64_t kv = f.batch * f.kv_len * f.kv_stride;
    give_within(t, args.dq, f.batch * f.q_len * f.q_stride, t->dtype, slope * eps, slope * pairs);
    give_within(t, args.dk, kv, t->dtype, 8 * group * slope * eps, 8 * group * slope * pairs);
    give_within(t, args.dv, kv, t->dtype, 8 * group * eps, 8 * group * pairs);
}

static void attention_backward(struct trial *t)
{
    backward(t, false);
}

static void wide_attention_backward(struct trial *t)
{
    backward(t, true);
}

/* ---- embedding ---- */

static void embedding(struct trial *t)
{
    const bool with_positions = pick(t, 2) != 0, with_bad = pick(t, 2) != 0;
    const int64_t others = 3 * pick(t, 2); /* rows of the whole on either side of the table's */
    const int64_t rows = pick_rows(t), columns = pick_size(t), table_rows = 9;
    int32_t *ids = ints(t, rows, 0, table_rows + 2 * others);
    int64_t *bad_id = block(t, 1, SHOAL_I64);
    *bad_id = 0;
    if (with_bad)
        ids[rows / 2] = rows % 2 ? -1 : (int32_t)(table_rows + 2 * others);
    const struct shoali_embedding_args args = {
        .ids = ids,
        .table = floats(t, table_rows * columns, t->dtype),
        .positions = with_positions ? floats(t, 12 * columns, t->dtype) : NULL,
        .out = block(t, rows * columns, t->dtype),
        .bad_id = bad_id,
        .rows = rows,
        .columns = columns,
        .table_rows = table_rows,
        .period = 10,
        .first_position = 2,
        .dtype = t->dtype,
        .first_row = others,
        .whole_rows = others > 0 ? table_rows + 2 * others : 0,
    };
    call(t, &args);
    give(t, args.out, rows * columns, t->dtype);
    give(t, bad_id, 1, SHOAL_I64);
}

static void embedding_backward(struct trial *t)
{
    const int64_t wanted = pick(t, 3);
    const int32_t accumulate_table = (int32_t)pick(t, 2);
    const int32_t accumulate_positions = (int32_t)pick(t, 2);
    const int64_t others = 3 * pick(t, 2);
    const int64_t rows = pick_rows(t) - 1, columns = pick_size(t), table_rows = 9;
    const struct shoali_embedding_backward_args args = {
        .ids = ints(t, rows, 0, table_rows + 2 * others),
        .dout = floats(t, rows * columns, t->dtype),
        .dtable = wanted != 1 ? floats(t, table_rows * columns, SHOAL_F32) : NULL,
        .dpositions = wanted != 2 ? floats(t, 12 * columns, SHOAL_F32) : NULL,
        .rows = rows,
        .columns = columns,
        .table_rows = table_rows,
        .position_rows = 12,
        .period = 10,
        .first_position = 2,
        .accumulate_table = accumulate_table,
        .accumulate_positions = accumulate_positions,
        .dtype = t->dtype,
        .first_row = others,
    };
    call(t, &args);
    if (args.dtable != NULL)
        give(t, args.dtable, table_rows * columns, SHOAL_F32);
    if (args.dpositions != NULL)
        give(t, args.dpositions, 12 * columns, SHOAL_F32);
}

const struct conformance_case shaped_cases[] = {
    CONFORMANCE_TRIALS(gemm_small, gemm, 2304000, FLOATS32, 60),
    CONFORMANCE_TRIALS(gemm_large, gemm, 9, FLOATS32, 0),
    CONFORMANCE_TRIALS(gemm_fixed, gemm, 1600, FLOATS32, 200),
    CONFORMANCE_TRIALS(gemm_fixed_pieces, gemm, 1, 1u << SHOAL_BF16, 1),
    CONFORMANCE_TRIALS(pack_b, pack_b, 400, FLOATS32, 40),
    CONFORMANCE_TRIALS(norm, norm, 400, FLOATS32, 0),
    CONFORMANCE_TRIALS(norm_backward, norm_backward, 3200, FLOATS32, 0),
    CONFORMANCE_TRIALS(norm_heads, norm, 1200, FLOATS32, 0),
    CONFORMANCE_TRIALS(norm_heads_backward, norm_backward, 4800, FLOATS32, 0),
    CONFORMANCE_TRIALS(rotary, rotary, 13824, FLOATS32, 0),
    CONFORMANCE_TRIALS(attention, attention, 188160, FLOATS32, 24),
    CONFORMANCE_TRIALS(attention_backward, attention_backward, 188160, FLOATS32, 12),
    CONFORMANCE_TRIALS(wide_attention, attention, 53760, FLOATS16, 24),
    CONFORMANCE_TRIALS(wide_attention_backward, attention_backward, 53760, FLOATS16, 16),
    CONFORMANCE_TRIALS(embedding, embedding, 800, FLOATS32, 0),
    CONFORMANCE_TRIALS(embedding_backward, embedding_backward, 2400, FLOATS32, 0),
};
const size_t shaped_case_count = SHOALI_COUNT_OF(shaped_cases);
