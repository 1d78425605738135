/* gemm - descriptions of the matrix product and of what packs its B. */
#include "ops/kernel.h"

static bool gemm_works(const struct shoali_gemm_args *args)
{
    return args->m > 0 && args->n > 0;
}

static int64_t gemm_a(const void *block)
{
    const struct shoali_gemm_args *args = block;
    if (!gemm_works(args))
        return 0;
    return args->trans_a ? shoali_extent(args->k, args->lda, args->m)
                         : shoali_extent(args->m, args->lda, args->k);
}

static int64_t gemm_b(const void *block)
{
    const struct shoali_gemm_args *args = block;
    if (!gemm_works(args))
        return 0;
    return args->trans_b ? shoali_extent(args->n, args->ldb, args->k)
                         : shoali_extent(args->k, args->ldb, args->n);
}

static int64_t gemm_c(const void *block)
{
    const struct shoali_gemm_args *args = block;
    return shoali_extent(args->m, args->ldc, args->n);
}

static int64_t gemm_flag(const void *block)
{
    return gemm_c(block) > 0 && ((const struct shoali_gemm_args *)block)->fixed != NULL ? 1 : 0;
}

static int64_t gemm_bias(const void *block)
{
    const struct shoali_gemm_args *args = block;
    return gemm_works(args) ? args->n : 0;
}

/* Where the sums go: C, or integers. */
static shoal_status check_sums(const struct shoali_gemm_args *args)
{
    const bool finished = args->bias != NULL || args->preact != NULL || args->residual != NULL ||
                          args->activation != SHOALI_ACT_NONE;
    const char *wrong = args->c != NULL               ? "c is given, too"
                        : args->flag == NULL          ? "flag is NULL"
                        : args->dtype_c != SHOAL_F32  ? "dtype_c is not F32"
                        : args->dtype_ab == SHOAL_F64 ? "the operands are F64"
                        : finished ? "there is a bias, preact, residual or activation"
                                   : NULL;
    if (args->fixed == NULL && args->c == NULL && gemm_works(args))
        return SHOAL_FAIL(SHOAL_EINVAL, "gemm: c is NULL; only the optional arrays may be");
    if (args->fixed == NULL)
        return SHOAL_OK;
    if (wrong != NULL)
        return SHOAL_FAIL(SHOAL_EINVAL, "gemm: fixed takes plain fp32 sums in the place of c; %s",
                          wrong);
    return shoali_check_fixed("gemm", args->unit_log2, args->limit);
}

static shoal_status check_gemm(const void *block)
{
    const struct shoali_gemm_args *args = block;
    const int64_t m = args->m, n = args->n, k = args->k;
    const bool bias_fits = args->dtype_bias == args->dtype_c || args->dtype_bias == args->dtype_ab;
    shoal_status status;
    SHOAL_TRY(
        status,
        shoali_check_stride("gemm", "lda", args->lda, args->trans_a ? k : m, args->trans_a ? m : k),
        done);
    SHOAL_TRY(
        status,
        shoali_check_stride("gemm", "ldb", args->ldb, args->trans_b ? n : k, args->trans_b ? k : n),
        done);
    SHOAL_TRY(status, shoali_check_stride("gemm", "ldc", args->ldc, m, n), done);
    SHOAL_TRY(status,
              shoali_check_kind("gemm", "activation", args->activation, SHOALI_ACT_SILU + 1), done);
    SHOAL_TRY(status, check_sums(args), done);
    if (args->dtype_c != args->dtype_ab && args->dtype_c != SHOAL_F32)
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "gemm: dtype_c is %s; with operands of %s it may be F32 or %s",
                       shoal_dtype_name(args->dtype_c), shoal_dtype_name(args->dtype_ab),
                       shoal_dtype_name(args->dtype_ab));
    else if (args->bias != NULL && !bias_fits)
        status = SHOAL_FAIL(SHOAL_EINVAL, "gemm: dtype_bias is %s; it may be %s or %s",
                            shoal_dtype_name(args->dtype_bias), shoal_dtype_name(args->dtype_c),
                            shoal_dtype_name(args->dtype_ab));
done:
    return status;
}

/* Who multiplies a type adds to fp32, too (check_gemm has the combinations): gradients of weights
 * are products of 16-bit operands whose result is fp32, and stay with the table that is best at
 * those. */
const struct shoali_kernel shoali_kernel_gemm = {
    .type =
        {.name = "gemm",
         .args_bytes = sizeof(struct shoali_gemm_args),
         .pointers =
             {SHOALI_IN(gemm, a, SHOALI_OF(gemm, dtype_ab), SHOALI_COUNT_BY(gemm_a)),
              SHOALI_IN(gemm, b, SHOALI_OF(gemm, dtype_ab), SHOALI_COUNT_BY(gemm_b)),
              SHOALI_OPTIONAL_INOUT(gemm, c, SHOALI_OF(gemm, dtype_c), SHOALI_COUNT_BY(gemm_c)),
              SHOALI_OPTIONAL_IN(gemm, bias, SHOALI_OF(gemm, dtype_bias),
                                 SHOALI_COUNT_BY(gemm_bias)),
              SHOALI_OPTIONAL_IN(gemm, residual, SHOALI_OF(gemm, dtype_c), SHOALI_COUNT_BY(gemm_c)),
              SHOALI_OPTIONAL_OUT(gemm, preact, SHOALI_OF(gemm, dtype_c), SHOALI_COUNT_BY(gemm_c)),
              /* the table knows how long it is */
              SHOALI_OPTIONAL_IN(gemm, packed_b, SHOALI_OF(gemm, dtype_ab), SHOALI_COUNT_BY(NULL)),
              SHOALI_OPTIONAL_IN(gemm, before, SHOALI_REAL_OF(gemm, dtype_ab),
                                 SHOALI_COUNT_BY(gemm_c)),
              SHOALI_OPTIONAL_INOUT(gemm, fixed, SHOALI_ALWAYS(SHOAL_I64), SHOALI_COUNT_BY(gemm_c)),
              SHOALI_OPTIONAL_INOUT(gemm, flag, SHOALI_ALWAYS(SHOAL_I32),
                                    SHOALI_COUNT_BY(gemm_flag))}},
    .dtypes = {SHOALI_DTYPE(gemm, dtype_ab, SHOALI_DTYPE_FLOAT),
               SHOALI_DTYPE_BESIDE(gemm, dtype_c, SHOALI_DTYPE_FLOAT, c),
               SHOALI_DTYPE_BESIDE(gemm, dtype_bias, SHOALI_DTYPE_FLOAT, bias)},
    .products = {{{SHOALI_SIZE(gemm, m), SHOALI_SIZE(gemm, n)}},
                 {{SHOALI_SIZE(gemm, k), SHOALI_SIZE(gemm, lda)}},
                 {{SHOALI_SIZE(gemm, k), SHOALI_SIZE(gemm, ldb)}},
                 {{SHOALI_SIZE(gemm, m), SHOALI_SIZE(gemm, ldc)}}},
    .check = check_gemm,
};

/* The table that packs B for a type, which is the first that multiplies it; NULL: it has no packed
 * layout, or its products run staged. */
static const struct shoali_ops_table *packer(const struct shoali_ops *ops, shoal_dtype dtype)
{
    const struct shoali_ops_table *table = shoali_ops_table_for(ops, &shoali_kernel_gemm, dtype);
    const bool reached = table->memory != NULL || !ops->staged;
    return reached && table->packed_b_bytes != NULL ? table : NULL;
}

shoal_status shoali_op_gemm(const struct shoali_exec *exec, const struct shoali_gemm_args *args)
{
    struct shoali_gemm_args product = *args;
    const struct shoali_ops_table *table = NULL;
    if (product.packed_b != NULL) {
        (void)shoali_ops_choose(exec->ops, &shoali_kernel_gemm, args, &table);
        if (table != packer(exec->ops, product.dtype_ab)) {
            if (product.packed_b == product.b)
                return SHOAL_FAIL(SHOAL_EINTERNAL, "gemm: kernels %s cannot read b as it is packed",
                                  table->name);
            product.packed_b = NULL;
        }
    }
    return shoali_kernel_launch(exec, &shoali_kernel_gemm, &product);
}

size_t shoali_op_packed_b_bytes(const struct shoali_ops *ops, int64_t n, int64_t k,
                                shoal_dtype dtype)
{
    const struct shoali_ops_table *table = packer(ops, dtype);
    return table != NULL ? table->packed_b_bytes(n, k, dtype) : 0;
}

/* ---- pack_b ---- */

static int64_t pack_b_b(const void *block)
{
    const struct shoali_pack_b_args *args = block;
    return args->trans_b ? shoali_extent(args->n, args->ldb, args->k)
                         : shoali_extent(args->k, args->ldb, args->n);
}

/* At least: a layout may round up. */
static shoal_status check_pack_b(const void *block)
{
    const struct shoali_pack_b_args *args = block;
    return shoali_check_stride("pack_b", "ldb", args->ldb, args->trans_b ? args->n : args->k,
                               args->trans_b ? args->k : args->n);
}

const struct shoali_kernel shoali_kernel_pack_b = {
    .type = {.name = "pack_b",
             .args_bytes = sizeof(struct shoali_pack_b_args),
             .pointers = {SHOALI_IN(pack_b, b, SHOALI_OF(pack_b, dtype), SHOALI_COUNT_BY(pack_b_b)),
                          SHOALI_OUT(pack_b, packed, SHOALI_OF(pack_b, dtype),
                                     SHOALI_COUNT2(pack_b, n, k))}},
    .dtypes = {SHOALI_DTYPE(pack_b, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(pack_b, n), SHOALI_SIZE(pack_b, k)}},
                 {{SHOALI_SIZE(pack_b, k), SHOALI_SIZE(pack_b, ldb)}}},
    .check = check_pack_b,
};

shoal_status shoali_op_pack_b(const struct shoali_exec *exec, const struct shoali_pack_b_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_pack_b, args);
}
