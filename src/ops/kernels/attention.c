/* attention - descriptions of attention and its gradients. */
#include "ops/kernel.h"

/* What both blocks say of sizes. */
static struct shoali_attention_args sizes_of(const struct shoali_attention_backward_args *args)
{
    return (struct shoali_attention_args){
        .batch = args->batch,
        .q_len = args->q_len,
        .kv_len = args->kv_len,
        .heads = args->heads,
        .kv_heads = args->kv_heads,
        .head_size = args->head_size,
        .q_stride = args->q_stride,
        .kv_stride = args->kv_stride,
        .out_stride = args->out_stride,
        .window = args->window,
        .causal = args->causal,
        .dropout = args->dropout,
        .mask = args->mask,
    };
}

static shoal_status check_mask(const char *kernel, const struct shoali_attention_args *args)
{
    const struct shoali_attention_mask *mask = &args->mask;
    const struct shoali_attention_mask whole =
        shoali_attention_mask_of(mask, args->heads, args->q_len, args->kv_len);
    const struct {
        const char *name;
        int64_t value, least;
    } rule[] = {
        {"mask.first_sample", mask->first_sample, 0},
        {"mask.first_head", mask->first_head, 0},
        {"mask.first_query", mask->first_query, 0},
        {"mask.first_key", mask->first_key, 0},
        {"mask.heads", whole.heads, mask->first_head + args->heads},
        {"mask.queries", whole.queries, mask->first_query + args->q_len},
        {"mask.keys", whole.keys, mask->first_key + args->kv_len},
    };
    shoal_status status = SHOAL_OK;
    for (size_t i = 0; i < sizeof rule / sizeof rule[0]; i++)
        SHOAL_TRY(status, shoali_check_at_least(kernel, rule[i].name, rule[i].value, rule[i].least),
                  done);
done:
    return status;
}

static shoal_status check_sizes(const char *kernel, const struct shoali_attention_args *args)
{
    shoal_status status;
    int64_t row, kv_row;
    SHOAL_TRY(status, shoali_check_at_least(kernel, "head_size", args->head_size, 1), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "heads", args->heads, 1), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "kv_heads", args->kv_heads, 1), done);
    if (args->heads % args->kv_heads != 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: %lld heads cannot share %lld kv_heads evenly; heads must be a "
                            "multiple of kv_heads",
                            kernel, (long long)args->heads, (long long)args->kv_heads);
        goto done;
    }
    if (!shoali_mul(args->heads, args->head_size, &row)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s: %lld heads of %lld elements are beyond 64 bits",
                            kernel, (long long)args->heads, (long long)args->head_size);
        goto done;
    }
    kv_row = args->kv_heads * args->head_size;
    SHOAL_TRY(status, shoali_check_at_least(kernel, "window", args->window, 0), done);
    if (args->window > 0 && !args->causal) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: a window of %lld keys ends at the query's own, so only causal "
                            "attention has one",
                            kernel, (long long)args->window);
        goto done;
    }
    SHOAL_TRY(status, shoali_check_at_least(kernel, "q_stride", args->q_stride, row), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "kv_stride", args->kv_stride, kv_row), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "out_stride", args->out_stride, row), done);
    SHOAL_TRY(status, check_mask(kernel, args), done);
    SHOAL_TRY(status, shoali_check_probability(kernel, args->dropout), done);
done:
    return status;
}

static int64_t q_extent(const struct shoali_attention_args *args)
{
    return shoali_extent(args->batch * args->q_len, args->q_stride, args->heads * args->head_size);
}

static int64_t out_extent(const struct shoali_attention_args *args)
{
    return shoali_extent(args->batch * args->q_len, args->out_stride,
                         args->heads * args->head_size);
}

static int64_t kv_extent(const struct shoali_attention_args *args)
{
    return shoali_extent(args->batch * args->kv_len, args->kv_stride,
                         args->kv_heads * args->head_size);
}

static int64_t rows_of(const struct shoali_attention_args *args)
{
    return args->batch * args->heads * args->q_len;
}

/* ---- forward ---- */

static shoal_status check_attention(const void *block)
{
    return check_sizes("attention", block);
}

static int64_t attention_q(const void *block)
{
    return q_extent(block);
}

/* Without queries nothing is read. */
static int64_t attention_kv(const void *block)
{
    const struct shoali_attention_args *args = block;
    return args->q_len > 0 ? kv_extent(args) : 0;
}

static int64_t attention_out(const void *block)
{
    return out_extent(block);
}

static int64_t attention_rows(const void *block)
{
    return rows_of(block);
}

#define OF_DTYPE SHOALI_OF(attention, dtype)
const struct shoali_kernel shoali_kernel_attention = {
    .type = {.name = "attention",
             .args_bytes = sizeof(struct shoali_attention_args),
             .pointers = {SHOALI_IN(attention, q, OF_DTYPE, SHOALI_COUNT_BY(attention_q)),
                          SHOALI_IN(attention, k, OF_DTYPE, SHOALI_COUNT_BY(attention_kv)),
                          SHOALI_IN(attention, v, OF_DTYPE, SHOALI_COUNT_BY(attention_kv)),
                          SHOALI_OPTIONAL_IN(attention, key_count, SHOALI_ALWAYS(SHOAL_I32),
                                             SHOALI_COUNT(attention, batch)),
                          SHOALI_OUT(attention, out, OF_DTYPE, SHOALI_COUNT_BY(attention_out)),
                          SHOALI_OUT(attention, lse, SHOALI_REAL_OF(attention, dtype),
                                     SHOALI_COUNT_BY(attention_rows))}},
    .dtypes = {SHOALI_DTYPE(attention, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(attention, batch), SHOALI_SIZE(attention, q_len),
                   SHOALI_SIZE(attention, q_stride)}},
                 {{SHOALI_SIZE(attention, batch), SHOALI_SIZE(attention, kv_len),
                   SHOALI_SIZE(attention, kv_stride)}},
                 {{SHOALI_SIZE(attention, batch), SHOALI_SIZE(attention, q_len),
                   SHOALI_SIZE(attention, out_stride)}},
                 {{SHOALI_SIZE(attention, batch), SHOALI_SIZE(attention, heads),
                   SHOALI_SIZE(attention, q_len), SHOALI_SIZE(attention, kv_len)}}},
    .check = check_attention,
};
#undef OF_DTYPE

shoal_status shoali_op_attention(const struct shoali_exec *exec,
                                 const struct shoali_attention_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_attention, args);
}

/* ---- backward: either side alone may be empty; the other's gradient is then zero ---- */

static shoal_status check_backward(const void *block)
{
    const struct shoali_attention_args sizes = sizes_of(block);
    return check_sizes("attention_backward", &sizes);
}

static int64_t backward_q(const void *block)
{
    const struct shoali_attention_args sizes = sizes_of(block);
    return q_extent(&sizes);
}

static int64_t backward_kv(const void *block)
{
    const struct shoali_attention_args sizes = sizes_of(block);
    return kv_extent(&sizes);
}

static int64_t backward_out(const void *block)
{
    const struct shoali_attention_args sizes = sizes_of(block);
    return out_extent(&sizes);
}

static int64_t backward_rows(const void *block)
{
    const struct shoali_attention_args sizes = sizes_of(block);
    return rows_of(&sizes);
}

#define OF_DTYPE SHOALI_OF(attention_backward, dtype)
#define OF_REAL SHOALI_REAL_OF(attention_backward, dtype)
const struct shoali_kernel shoali_kernel_attention_backward = {
    .type = {.name = "attention_backward",
             .args_bytes = sizeof(struct shoali_attention_backward_args),
             .pointers =
                 {SHOALI_IN(attention_backward, q, OF_DTYPE, SHOALI_COUNT_BY(backward_q)),
                  SHOALI_IN(attention_backward, k, OF_DTYPE, SHOALI_COUNT_BY(backward_kv)),
                  SHOALI_IN(attention_backward, v, OF_DTYPE, SHOALI_COUNT_BY(backward_kv)),
                  SHOALI_IN(attention_backward, out, OF_DTYPE, SHOALI_COUNT_BY(backward_out)),
                  SHOALI_IN(attention_backward, dout, OF_DTYPE, SHOALI_COUNT_BY(backward_out)),
                  SHOALI_OPTIONAL_IN(attention_backward, key_count, SHOALI_ALWAYS(SHOAL_I32),
                                     SHOALI_COUNT(attention_backward, batch)),
                  SHOALI_IN(attention_backward, lse, OF_REAL, SHOALI_COUNT_BY(backward_rows)),
                  SHOALI_OUT(attention_backward, delta, OF_REAL, SHOALI_COUNT_BY(backward_rows)),
                  SHOALI_OUT(attention_backward, dq, OF_DTYPE, SHOALI_COUNT_BY(backward_q)),
                  SHOALI_OUT(attention_backward, dk, OF_DTYPE, SHOALI_COUNT_BY(backward_kv)),
                  SHOALI_OUT(attention_backward, dv, OF_DTYPE, SHOALI_COUNT_BY(backward_kv))}},
    .dtypes = {SHOALI_DTYPE(attention_backward, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(attention_backward, batch), SHOALI_SIZE(attention_backward, q_len),
                   SHOALI_SIZE(attention_backward, q_stride)}},
                 {{SHOALI_SIZE(attention_backward, batch), SHOALI_SIZE(attention_backward, kv_len),
                   SHOALI_SIZE(attention_backward, kv_stride)}},
                 {{SHOALI_SIZE(attention_backward, batch), SHOALI_SIZE(attention_backward, q_len),
                   SHOALI_SIZE(attention_backward, out_stride)}},
                 {{SHOALI_SIZE(attention_backward, batch), SHOALI_SIZE(attention_backward, heads),
                   SHOALI_SIZE(attention_backward, q_len),
                   SHOALI_SIZE(attention_backward, kv_len)}}},
    .check = check_backward,
};

shoal_status shoali_op_attention_backward(const struct shoali_exec *exec,
                                          const struct shoali_attention_backward_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_attention_backward, args);
}
