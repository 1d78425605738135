/* Included by attention_plain.c for float and double, after real.h.
 *
 * Scores are computed anew wherever they are needed, so there is no scratch memory; outputs of
 * a row are summed in chunks of head elements that fit an array. */

/* Where the vectors of one query and of its key head begin, in elements. */
struct R(attention_row) {
    int64_t query, out, key,
        value_step; /* q, out; first k and v of the sample's head; step to the next token */
    struct shoali_attention_keys sees;
    uint64_t mask; /* index of key 0 in the dropout stream */
    int64_t flat;  /* [b,h,t] of lse and delta */
};

static struct R(attention_row) R(attention_at)(const struct shoali_attention_backward_args *args,
                                               int64_t b, int64_t h, int64_t t)
{
    const int64_t group = args->heads / args->kv_heads;
    const struct shoali_attention_sight sight = shoali_attention_sight_of(
        args->q_len, args->kv_len, args->causal, args->window, args->key_count, b);
    const struct shoali_attention_mask mask =
        shoali_attention_mask_of(&args->mask, args->heads, args->q_len, args->kv_len);
    return (struct R(attention_row)){
        .query = (b * args->q_len + t) * args->q_stride + h * args->head_size,
        .out = (b * args->q_len + t) * args->out_stride + h * args->head_size,
        .key = b * args->kv_len * args->kv_stride + h / group * args->head_size,
        .value_step = args->kv_stride,
        .sees = shoali_attention_keys(&sight, t),
        .mask = shoali_attention_mask_row(&mask, b, h, t),
        .flat = (b * args->heads + h) * args->q_len + t,
    };
}

static REAL R(attention_dot)(const struct shoali_attention_backward_args *args, const void *x,
                             int64_t x_at, const void *y, int64_t y_at)
{
    REAL sum = 0;
    for (int64_t d = 0; d < args->head_size; d++)
        sum = R(fma)(R(load)(x, x_at + d, args->dtype), R(load)(y, y_at + d, args->dtype), sum);
    return sum;
}

static REAL R(score)(const struct shoali_attention_backward_args *args,
                     const struct R(attention_row) * row, int64_t j)
{
    const int64_t key = row->key + j * row->value_step;
    return R(attention_dot)(args, args->q, row->query, args->k, key) * (REAL)args->scale;
}

/* What dropout multiplies probability j with: 0 or 1/(1-p). */
static REAL R(keep_factor)(const struct shoali_attention_backward_args *args,
                           const struct R(attention_row) * row, int64_t j)
{
    if (!(args->dropout > 0))
        return 1;
    return dropout_keeps(&args->random, row->mask + (uint64_t)j, args->dropout)
               ? R(dropout_scale)(args->dropout)
               : 0;
}

static REAL R(row_lse)(const struct shoali_attention_backward_args *args,
                       const struct R(attention_row) * row)
{
    REAL largest = -(REAL)INFINITY, sum = 0;
    for (int64_t j = row->sees.begin; j < row->sees.end; j++)
        largest = R(max)(R(score)(args, row, j), largest);
    for (int64_t j = row->sees.begin; j < row->sees.end; j++)
        sum += R(exp)(R(score)(args, row, j) - largest);
    return row->sees.begin < row->sees.end ? largest + R(log)(sum) : -(REAL)INFINITY;
}

/* sum over the keys of weight_j * vector_j, elements d .. d+count-1 of the head, count <= 64. */
static void R(attention_out)(const struct shoali_attention_backward_args *args,
                             const struct R(attention_row) * row, void *out, int64_t d,
                             int64_t count)
{
    REAL sum[64] = {0};
    const REAL lse = ((const REAL *)args->lse)[row->flat];
    for (int64_t j = row->sees.begin; j < row->sees.end; j++) {
        const REAL p = R(exp)(R(score)(args, row, j) - lse) * R(keep_factor)(args, row, j);
        const int64_t value = row->key + j * row->value_step + d;
        for (int64_t i = 0; i < count; i++)
            sum[i] = R(fma)(p, R(load)(args->v, value + i, args->dtype), sum[i]);
    }
    for (int64_t i = 0; i < count; i++)
        R(store)(out, row->out + d + i, sum[i], args->dtype);
}

static void R(attention)(const struct shoali_attention_args *a)
{
    /* The helpers take the larger argument block; `out` and `lse` are this kernel's outputs. */
    const struct shoali_attention_backward_args args = {
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .key_count = a->key_count,
        .lse = a->lse,
        .batch = a->batch,
        .q_len = a->q_len,
        .kv_len = a->kv_len,
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .head_size = a->head_size,
        .q_stride = a->q_stride,
        .kv_stride = a->kv_stride,
        .out_stride = a->out_stride,
        .window = a->window,
        .scale = a->scale,
        .causal = a->causal,
        .dropout = a->dropout,
        .random = a->random,
        .mask = a->mask,
        .dtype = a->dtype,
    };
    for (int64_t flat = 0; flat < a->batch * a->heads * a->q_len; flat++) {
        const int64_t t = flat % a->q_len, h = flat / a->q_len % a->heads;
        const struct R(attention_row) row =
            R(attention_at)(&args, flat / a->q_len / a->heads, h, t);
        ((REAL *)a->lse)[row.flat] = R(row_lse)(&args, &row);
        for (int64_t d = 0; d < a->head_size; d += 64)
            R(attention_out)(&args, &row, a->out, d, a->head_size - d < 64 ? a->head_size - d : 64);
    }
}

/* The gradient of score j (before its scale), from dout; *p is the probability after dropout. */
static REAL R(score_gradient)(const struct shoali_attention_backward_args *args,
                              const struct R(attention_row) * row, int64_t j, REAL *p)
{
    const int64_t value = row->key + j * row->value_step;
    const REAL probability = R(exp)(R(score)(args, row, j) - ((const REAL *)args->lse)[row->flat]);
    const REAL keep = R(keep_factor)(args, row, j);
    const REAL dp = R(attention_dot)(args, args->dout, row->out, args->v, value) * keep;
    *p = probability * keep;
    return probability * (dp - ((const REAL *)args->delta)[row->flat]);
}

static void R(attention_dq)(const struct shoali_attention_backward_args *args,
                            const struct R(attention_row) * row, int64_t d, int64_t count)
{
    REAL sum[64] = {0}, p;
    for (int64_t j = row->sees.begin; j < row->sees.end; j++) {
        const REAL ds = R(score_gradient)(args, row, j, &p);
        const int64_t key = row->key + j * row->value_step + d;
        for (int64_t i = 0; i < count; i++)
            sum[i] = R(fma)(ds, R(load)(args->k, key + i, args->dtype), sum[i]);
    }
    for (int64_t i = 0; i < count; i++)
        R(store)(args->dq, row->query + d + i, sum[i] * (REAL)args->scale, args->dtype);
}

/* dk and dv of one key: over the query heads of its group, then over the queries that see it. */
static void R(attention_dkv)(const struct shoali_attention_backward_args *args, int64_t b,
                             int64_t kv_head, int64_t j, int64_t d, int64_t count)
{
    REAL dk[64] = {0}, dv[64] = {0}, p;
    const int64_t group = args->heads / args->kv_heads;
    for (int64_t index = 0; index < group * args->q_len; index++) {
        const struct R(attention_row) row =
            R(attention_at)(args, b, kv_head * group + index / args->q_len, index % args->q_len);
        if (j < row.sees.begin || j >= row.sees.end)
            continue;
        const REAL ds = R(score_gradient)(args, &row, j, &p);
        for (int64_t i = 0; i < count; i++) {
            dk[i] = R(fma)(ds, R(load)(args->q, row.query + d + i, args->dtype), dk[i]);
            dv[i] = R(fma)(p, R(load)(args->dout, row.out + d + i, args->dtype), dv[i]);
        }
    }
    const int64_t at = (b * args->kv_len + j) * args->kv_stride + kv_head * args->head_size + d;
    for (int64_t i = 0; i < count; i++) {
        R(store)(args->dk, at + i, dk[i] * (REAL)args->scale, args->dtype);
        R(store)(args->dv, at + i, dv[i], args->dtype);
    }
}

static void R(attention_backward)(const struct shoali_attention_backward_args *args)
{
    const int64_t size = args->head_size;
    for (int64_t flat = 0; flat < args->batch * args->heads * args->q_len; flat++) {
        const int64_t t = flat % args->q_len, h = flat / args->q_len % args->heads;
        const struct R(attention_row) row =
            R(attention_at)(args, flat / args->q_len / args->heads, h, t);
        ((REAL *)args->delta)[flat] =
            R(attention_dot)(args, args->dout, row.out, args->out, row.out);
        for (int64_t d = 0; d < size; d += 64)
            R(attention_dq)(args, &row, d, size - d < 64 ? size - d : 64);
    }
    for (int64_t flat = 0; flat < args->batch * args->kv_heads * args->kv_len; flat++) {
        const int64_t j = flat % args->kv_len, h = flat / args->kv_len % args->kv_heads;
        for (int64_t d = 0; d < size; d += 64)
            R(attention_dkv)
        (args, flat / args->kv_len / args->kv_heads, h, j, d, size - d < 64 ? size - d : 64);
    }
}
