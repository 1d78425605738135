/* fronts - checks and launches of the kernels with a shape: products, norms, attention, embedding,
 * losses. */
#include "ops/kernels.h"

/* ---- matrix product ---- */

/* A stored matrix of more than one row needs a row stride of at least its columns. */
static shoal_status check_stride(const char *name, int64_t stride, int64_t rows, int64_t columns)
{
    if (stride >= columns || rows <= 1)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "gemm: %s is %lld but the stored matrix has %lld columns", name,
                      (long long)stride, (long long)columns);
}

static shoal_status check_gemm_types(const struct shoali_gemm_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_GEMM;
    shoal_status status;
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype_ab", args->dtype_ab), done);
    SHOAL_TRY(status,
              shoali_check_kind(kernel, "activation", args->activation, SHOALI_ACT_RELU + 1), done);
    if (args->dtype_c != args->dtype_ab && args->dtype_c != SHOAL_F32) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "gemm: dtype_c is %s; with operands of %s it may be F32 or %s",
                       shoal_dtype_name(args->dtype_c), shoal_dtype_name(args->dtype_ab),
                       shoal_dtype_name(args->dtype_ab));
        goto done;
    }
    if (args->bias != NULL && args->dtype_bias != args->dtype_c &&
        args->dtype_bias != args->dtype_ab) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "gemm: dtype_bias is %s; it may be %s or %s",
                            shoal_dtype_name(args->dtype_bias), shoal_dtype_name(args->dtype_c),
                            shoal_dtype_name(args->dtype_ab));
        goto done;
    }
done:
    return status;
}

shoal_status shoali_op_gemm(const struct shoali_exec *exec, const struct shoali_gemm_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_GEMM;
    const int64_t m = args->m, n = args->n, k = args->k;
    shoal_status status;
    int64_t outputs;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, &outputs, {"m", m}, {"n", n}), done);
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"k", k}, {"lda", args->lda}), done);
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"k", k}, {"ldb", args->ldb}), done);
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"m", m}, {"ldc", args->ldc}), done);
    SHOAL_TRY(status, check_stride("lda", args->lda, args->trans_a ? k : m, args->trans_a ? m : k),
              done);
    SHOAL_TRY(status, check_stride("ldb", args->ldb, args->trans_b ? n : k, args->trans_b ? k : n),
              done);
    SHOAL_TRY(status, check_stride("ldc", args->ldc, m, n), done);
    SHOAL_TRY(status, check_gemm_types(args), done);
    if (outputs == 0)
        goto done;
    SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"c", args->c}), done);
    if (k > 0)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"a", args->a}, {"b", args->b}), done);
    uint32_t dtypes = shoali_dtype_bit(args->dtype_ab) | shoali_dtype_bit(args->dtype_c);
    SHOAL_TRY(status, shoali_kernel_launch(exec, kernel, dtypes, args), done);
done:
    return status;
}

size_t shoali_op_packed_b_bytes(const struct shoali_ops *ops, int64_t n, int64_t k,
                                shoal_dtype dtype)
{
    const struct shoali_ops_table *table =
        shoali_kernel_table(ops, SHOALI_KERNEL_GEMM, shoali_dtype_bit(dtype));
    return table->packed_b_bytes != NULL ? table->packed_b_bytes(n, k, dtype) : 0;
}

shoal_status shoali_op_pack_b(const struct shoali_exec *exec, const struct shoali_pack_b_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_PACK_B;
    const int64_t n = args->n, k = args->k;
    shoal_status status;
    int64_t count;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, &count, {"n", n}, {"k", k}), done);
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"k", k}, {"ldb", args->ldb}), done);
    SHOAL_TRY(status, check_stride("ldb", args->ldb, args->trans_b ? n : k, args->trans_b ? k : n),
              done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(count, shoali_dtype_bit(args->dtype), {"b", args->b},
                               {"packed", args->packed});
done:
    return status;
}

/* ---- normalisation ---- */

shoal_status shoali_op_norm(const struct shoali_exec *exec, const struct shoali_norm_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_NORM;
    shoal_status status;
    int64_t count;
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, &count, {"rows", args->rows}, {"columns", args->columns}),
              done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    if (count == 0)
        goto done;
    SHOAL_TRY(status,
              SHOALI_CHECK_POINTERS(kernel, {"x", args->x}, {"gamma", args->gamma}, {"y", args->y},
                                    {"rstd", args->rstd}),
              done);
    if (!args->rms)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"mean", args->mean}), done);
    SHOAL_TRY(status, shoali_kernel_launch(exec, kernel, shoali_dtype_bit(args->dtype), args),
              done);
done:
    return status;
}

shoal_status shoali_op_norm_backward(const struct shoali_exec *exec,
                                     const struct shoali_norm_backward_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_NORM_BACKWARD;
    shoal_status status;
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, NULL, {"rows", args->rows}, {"columns", args->columns}),
              done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    if (args->columns == 0)
        goto done;
    /* Without rows the parameters' gradients are still overwritten, with zeros. */
    if (args->rows > 0)
        SHOAL_TRY(status,
                  SHOALI_CHECK_POINTERS(kernel, {"x", args->x}, {"gamma", args->gamma},
                                        {"dy", args->dy}, {"rstd", args->rstd}),
                  done);
    if (args->rows > 0 && !args->rms)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"mean", args->mean}), done);
    SHOAL_TRY(status, shoali_kernel_launch(exec, kernel, shoali_dtype_bit(args->dtype), args),
              done);
done:
    return status;
}

/* ---- attention ---- */

static shoal_status check_attention_mask(enum shoali_kernel kernel,
                                         const struct shoali_attention_args *args)
{
    const struct shoali_attention_mask *mask = &args->mask;
    const struct shoali_attention_mask whole =
        shoali_attention_mask_of(mask, args->heads, args->q_len, args->kv_len);
    shoal_status status;
    SHOAL_TRY(status, shoali_check_at_least(kernel, "mask.first_sample", mask->first_sample, 0),
              done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "mask.first_head", mask->first_head, 0), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "mask.first_query", mask->first_query, 0),
              done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "mask.first_key", mask->first_key, 0), done);
    SHOAL_TRY(
        status,
        shoali_check_at_least(kernel, "mask.heads", whole.heads, mask->first_head + args->heads),
        done);
    SHOAL_TRY(status,
              shoali_check_at_least(kernel, "mask.queries", whole.queries,
                                    mask->first_query + args->q_len),
              done);
    SHOAL_TRY(
        status,
        shoali_check_at_least(kernel, "mask.keys", whole.keys, mask->first_key + args->kv_len),
        done);
done:
    return status;
}

static shoal_status check_attention(enum shoali_kernel kernel,
                                    const struct shoali_attention_args *args)
{
    shoal_status status;
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, NULL, {"batch", args->batch}, {"q_len", args->q_len},
                                 {"q_stride", args->q_stride}),
              done);
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, NULL, {"batch", args->batch}, {"kv_len", args->kv_len},
                                 {"kv_stride", args->kv_stride}),
              done);
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, NULL, {"batch", args->batch}, {"heads", args->heads},
                                 {"q_len", args->q_len}, {"kv_len", args->kv_len}),
              done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "head_size", args->head_size, 1), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "heads", args->heads, 1), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "kv_heads", args->kv_heads, 1), done);
    if (args->heads % args->kv_heads != 0) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "attention: %lld heads cannot share %lld kv_heads evenly; heads must be a "
                       "multiple of kv_heads",
                       (long long)args->heads, (long long)args->kv_heads);
        goto done;
    }
    int64_t row, kv_row;
    SHOAL_TRY(
        status,
        SHOALI_CHECK_SIZES(kernel, &row, {"heads", args->heads}, {"head_size", args->head_size}),
        done);
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, &kv_row, {"kv_heads", args->kv_heads},
                                 {"head_size", args->head_size}),
              done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "q_stride", args->q_stride, row), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "kv_stride", args->kv_stride, kv_row), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "out_stride", args->out_stride, row), done);
    SHOAL_TRY(status, check_attention_mask(kernel, args), done);
    SHOAL_TRY(status, shoali_check_probability(kernel, args->dropout), done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
done:
    return status;
}

shoal_status shoali_op_attention(const struct shoali_exec *exec,
                                 const struct shoali_attention_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_ATTENTION;
    shoal_status status;
    SHOAL_TRY(status, check_attention(kernel, args), done);
    if (args->batch == 0 || args->q_len == 0)
        goto done;
    SHOAL_TRY(status,
              SHOALI_CHECK_POINTERS(kernel, {"q", args->q}, {"out", args->out}, {"lse", args->lse}),
              done);
    if (args->kv_len > 0)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"k", args->k}, {"v", args->v}), done);
    SHOAL_TRY(status, shoali_kernel_launch(exec, kernel, shoali_dtype_bit(args->dtype), args),
              done);
done:
    return status;
}

shoal_status shoali_op_attention_backward(const struct shoali_exec *exec,
                                          const struct shoali_attention_backward_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_ATTENTION_BACKWARD;
    const struct shoali_attention_args sizes = {
        .batch = args->batch,
        .q_len = args->q_len,
        .kv_len = args->kv_len,
        .heads = args->heads,
        .kv_heads = args->kv_heads,
        .head_size = args->head_size,
        .q_stride = args->q_stride,
        .kv_stride = args->kv_stride,
        .out_stride = args->out_stride,
        .dropout = args->dropout,
        .mask = args->mask,
        .dtype = args->dtype,
    };
    shoal_status status;
    SHOAL_TRY(status, check_attention(kernel, &sizes), done);
    if (args->batch == 0 || (args->q_len == 0 && args->kv_len == 0))
        goto done;
    /* Either side alone may be empty; the other's gradient is then zero. */
    if (args->q_len > 0)
        SHOAL_TRY(status,
                  SHOALI_CHECK_POINTERS(kernel, {"q", args->q}, {"out", args->out},
                                        {"dout", args->dout}, {"lse", args->lse},
                                        {"delta", args->delta}, {"dq", args->dq}),
                  done);
    if (args->kv_len > 0)
        SHOAL_TRY(status,
                  SHOALI_CHECK_POINTERS(kernel, {"k", args->k}, {"v", args->v}, {"dk", args->dk},
                                        {"dv", args->dv}),
                  done);
    SHOAL_TRY(status, shoali_kernel_launch(exec, kernel, shoali_dtype_bit(args->dtype), args),
              done);
done:
    return status;
}

/* ---- embedding ---- */

/* *count: of the numbers that are looked up. */
static shoal_status check_table(enum shoali_kernel kernel, int64_t rows, int64_t table_rows,
                                int64_t columns, shoal_dtype dtype, int64_t *count)
{
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, count, {"rows", rows}, {"columns", columns}),
              done);
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, NULL, {"table_rows", table_rows}, {"columns", columns}),
              done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", dtype), done);
done:
    return status;
}

/* A position is counted within a period. */
static shoal_status check_period(enum shoali_kernel kernel, int64_t period, int64_t first_position)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_check_at_least(kernel, "period", period, 1), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "first_position", first_position, 0), done);
done:
    return status;
}

shoal_status shoali_op_embedding(const struct shoali_exec *exec,
                                 const struct shoali_embedding_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_EMBEDDING;
    shoal_status status;
    int64_t count;
    SHOAL_TRY(status,
              check_table(kernel, args->rows, args->table_rows, args->columns, args->dtype, &count),
              done);
    if (args->positions != NULL)
        SHOAL_TRY(status, check_period(kernel, args->period, args->first_position), done);
    if (count == 0)
        goto done;
    SHOAL_TRY(status,
              SHOALI_CHECK_POINTERS(kernel, {"ids", args->ids}, {"out", args->out},
                                    {"bad_id", args->bad_id}),
              done);
    if (args->table_rows > 0)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"table", args->table}), done);
    SHOAL_TRY(status, shoali_kernel_launch(exec, kernel, shoali_dtype_bit(args->dtype), args),
              done);
done:
    return status;
}

/* A row's position is at most first_position + period - 1, or less when there are fewer rows. */
static shoal_status check_positions(const struct shoali_embedding_backward_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_EMBEDDING_BACKWARD;
    shoal_status status = SHOAL_OK;
    if (args->dpositions == NULL)
        goto done;
    SHOAL_TRY(status, check_period(kernel, args->period, args->first_position), done);
    const int64_t used = args->rows < args->period ? args->rows : args->period;
    SHOAL_TRY(status,
              shoali_check_at_least(kernel, "position_rows - first_position",
                                    args->position_rows - args->first_position, used),
              done);
done:
    return status;
}

shoal_status shoali_op_embedding_backward(const struct shoali_exec *exec,
                                          const struct shoali_embedding_backward_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_EMBEDDING_BACKWARD;
    shoal_status status;
    int64_t count;
    SHOAL_TRY(status,
              check_table(kernel, args->rows, args->table_rows, args->columns, args->dtype, &count),
              done);
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, NULL, {"position_rows", args->position_rows},
                                 {"columns", args->columns}),
              done);
    SHOAL_TRY(status, check_positions(args), done);
    if (args->columns == 0)
        goto done;
    if (count > 0)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"ids", args->ids}, {"dout", args->dout}),
                  done);
    SHOAL_TRY(status, shoali_kernel_launch(exec, kernel, shoali_dtype_bit(args->dtype), args),
              done);
done:
    return status;
}

/* ---- losses ---- */

static shoal_status check_rows(enum shoali_kernel kernel, int64_t rows, int64_t columns,
                               int64_t stride, shoal_dtype dtype)
{
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"rows", rows}, {"stride", stride}), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "columns", columns, rows > 0 ? 1 : 0), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "stride", stride, rows > 1 ? columns : 0),
              done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", dtype), done);
done:
    return status;
}

shoal_status shoali_op_cross_entropy(const struct shoali_exec *exec,
                                     const struct shoali_cross_entropy_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_CROSS_ENTROPY;
    shoal_status status;
    SHOAL_TRY(status, check_rows(kernel, args->rows, args->columns, args->stride, args->dtype),
              done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->rows, shoali_dtype_bit(args->dtype), {"logits", args->logits},
                               {"targets", args->targets}, {"loss", args->loss},
                               {"lse", args->lse});
done:
    return status;
}

shoal_status shoali_op_loss_mean(const struct shoali_exec *exec,
                                 const struct shoali_loss_mean_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_LOSS_MEAN;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"rows", args->rows}), done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"mean", args->mean}, {"count", args->count}),
              done);
    if (args->rows > 0)
        SHOAL_TRY(status,
                  SHOALI_CHECK_POINTERS(kernel, {"loss", args->loss}, {"targets", args->targets}),
                  done);
    SHOAL_TRY(status, shoali_kernel_launch(exec, kernel, shoali_dtype_bit(args->dtype), args),
              done);
done:
    return status;
}

shoal_status shoali_op_cross_entropy_backward(const struct shoali_exec *exec,
                                              const struct shoali_cross_entropy_backward_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_CROSS_ENTROPY_BACKWARD;
    shoal_status status;
    SHOAL_TRY(status, check_rows(kernel, args->rows, args->columns, args->stride, args->dtype),
              done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->rows, shoali_dtype_bit(args->dtype), {"logits", args->logits},
                               {"targets", args->targets}, {"lse", args->lse},
                               {"dloss", args->dloss}, {"count", args->count},
                               {"dlogits", args->dlogits});
done:
    return status;
}

/* [first, first + columns) lies in the vocabulary and is not empty, unless there are no rows. */
static shoal_status check_tile(const struct shoali_cross_entropy_tile_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_CROSS_ENTROPY_TILE;
    shoal_status status;
    SHOAL_TRY(status, check_rows(kernel, args->rows, args->columns, args->stride, args->dtype),
              done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "first", args->first, 0), done);
    SHOAL_TRY(status,
              shoali_check_at_least(kernel, "vocabulary - first", args->vocabulary - args->first,
                                    args->columns),
              done);
done:
    return status;
}

shoal_status shoali_op_cross_entropy_tile(const struct shoali_exec *exec,
                                          const struct shoali_cross_entropy_tile_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_CROSS_ENTROPY_TILE;
    shoal_status status;
    SHOAL_TRY(status, check_tile(args), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->rows, shoali_dtype_bit(args->dtype), {"logits", args->logits},
                               {"targets", args->targets}, {"largest", args->largest},
                               {"loss", args->loss}, {"lse", args->lse});
done:
    return status;
}

static shoal_status check_tile_backward(const struct shoali_cross_entropy_tile_backward_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_CROSS_ENTROPY_TILE_BACKWARD;
    shoal_status status;
    SHOAL_TRY(status, check_rows(kernel, args->rows, args->columns, args->stride, args->dtype),
              done);
    SHOAL_TRY(status,
              check_rows(kernel, args->rows, args->columns, args->stride_out, args->dtype_out),
              done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "first", args->first, 0), done);
    if ((args->dtype == SHOAL_F64) != (args->dtype_out == SHOAL_F64))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "cross_entropy_tile_backward: dtype is %s and dtype_out %s; F64 goes "
                            "with F64 alone",
                            shoal_dtype_name(args->dtype), shoal_dtype_name(args->dtype_out));
done:
    return status;
}

shoal_status
shoali_op_cross_entropy_tile_backward(const struct shoali_exec *exec,
                                      const struct shoali_cross_entropy_tile_backward_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_CROSS_ENTROPY_TILE_BACKWARD;
    shoal_status status;
    SHOAL_TRY(status, check_tile_backward(args), done);
    const uint32_t dtypes = shoali_dtype_bit(args->dtype) | shoali_dtype_bit(args->dtype_out);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->rows, dtypes, {"logits", args->logits},
                               {"targets", args->targets}, {"lse", args->lse},
                               {"dloss", args->dloss}, {"count", args->count},
                               {"dlogits", args->dlogits});
done:
    return status;
}

shoal_status shoali_op_softmax(const struct shoali_exec *exec,
                               const struct shoali_softmax_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_SOFTMAX;
    shoal_status status;
    int64_t count;
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, &count, {"rows", args->rows}, {"columns", args->columns}),
              done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    if (count == 0)
        goto done;
    SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"x", args->x}, {"y", args->y}), done);
    if (args->backward)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"dy", args->dy}), done);
    SHOAL_TRY(status, shoali_kernel_launch(exec, kernel, shoali_dtype_bit(args->dtype), args),
              done);
done:
    return status;
}
