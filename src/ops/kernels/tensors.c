/* tensors - descriptions of the kernels that look at whole tensors: sums, and the updates that read
 * what follows from them. */
#include "ops/kernel.h"

#define F32 SHOALI_ALWAYS(SHOAL_F32)
#define LIMBS SHOALI_ALWAYS(SHOAL_I64)

/* Elements [first, first + count) lie in the tensor. */
static shoal_status check_piece(const char *name, int64_t first, int64_t count, int64_t all)
{
    if (first >= 0 && first <= all - count)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s: elements [%lld, %lld + %lld) are not inside a tensor of %lld", name,
                      (long long)first, (long long)first, (long long)count, (long long)all);
}

/* ---- square_sums ---- */

static int64_t sums_control(const void *block)
{
    return ((const struct shoali_square_sums_args *)block)->count > 0 ? 3 : 0;
}

static int64_t sums_of_rows(const void *block)
{
    const struct shoali_square_sums_args *args = block;
    return args->count > 0 ? 3 * args->matrices * args->rows : 0;
}

static int64_t sums_of_columns(const void *block)
{
    const struct shoali_square_sums_args *args = block;
    return args->count > 0 ? 3 * args->matrices * args->columns : 0;
}

static shoal_status check_square_sums(const void *block)
{
    const struct shoali_square_sums_args *args = block;
    return check_piece("square_sums", args->first, args->count,
                       args->matrices * args->rows * args->columns);
}

const struct shoali_kernel shoali_kernel_square_sums = {
    .type = {.name = "square_sums",
             .args_bytes = sizeof(struct shoali_square_sums_args),
             .pointers =
                 {SHOALI_IN(square_sums, x, F32, SHOALI_COUNT(square_sums, count)),
                  SHOALI_OPTIONAL_IN(square_sums, control, F32, SHOALI_COUNT_BY(sums_control)),
                  SHOALI_OPTIONAL_INOUT(square_sums, tensor, LIMBS, SHOALI_COUNT_BY(sums_control)),
                  SHOALI_OPTIONAL_INOUT(square_sums, row, LIMBS, SHOALI_COUNT_BY(sums_of_rows)),
                  SHOALI_OPTIONAL_INOUT(square_sums, column, LIMBS,
                                        SHOALI_COUNT_BY(sums_of_columns))}},
    .products = {{{SHOALI_SIZE(square_sums, count)}},
                 {{SHOALI_SIZE(square_sums, matrices), SHOALI_SIZE(square_sums, rows),
                   SHOALI_SIZE(square_sums, columns)}}},
    .check = check_square_sums,
};

shoal_status shoali_op_square_sums(const struct shoali_exec *exec,
                                   const struct shoali_square_sums_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_square_sums, args);
}

/* ---- lamb ---- */

static int64_t lamb_three(const void *block)
{
    return ((const struct shoali_lamb_args *)block)->count > 0 ? 3 : 0;
}

const struct shoali_kernel shoali_kernel_lamb = {
    .type = {.name = "lamb",
             .args_bytes = sizeof(struct shoali_lamb_args),
             .pointers = {SHOALI_IN(lamb, param, F32, SHOALI_COUNT(lamb, count)),
                          SHOALI_IN(lamb, grad, F32, SHOALI_COUNT(lamb, count)),
                          SHOALI_OPTIONAL_IN(lamb, control, F32, SHOALI_COUNT_BY(lamb_three)),
                          SHOALI_INOUT(lamb, exp_avg, F32, SHOALI_COUNT(lamb, count)),
                          SHOALI_INOUT(lamb, exp_avg_sq, F32, SHOALI_COUNT(lamb, count)),
                          SHOALI_INOUT(lamb, param_sum, LIMBS, SHOALI_COUNT_BY(lamb_three)),
                          SHOALI_INOUT(lamb, update_sum, LIMBS, SHOALI_COUNT_BY(lamb_three))}},
    .products = {{{SHOALI_SIZE(lamb, count)}}},
};

shoal_status shoali_op_lamb(const struct shoali_exec *exec, const struct shoali_lamb_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_lamb, args);
}

/* ---- lamb_apply ---- */

static int64_t lamb_apply_control(const void *block)
{
    return ((const struct shoali_lamb_apply_args *)block)->count > 0 ? 3 : 0;
}

static int64_t lamb_apply_one(const void *block)
{
    return ((const struct shoali_lamb_apply_args *)block)->count > 0 ? 1 : 0;
}

const struct shoali_kernel shoali_kernel_lamb_apply = {
    .type = {.name = "lamb_apply",
             .args_bytes = sizeof(struct shoali_lamb_apply_args),
             .pointers = {SHOALI_INOUT(lamb_apply, param, F32, SHOALI_COUNT(lamb_apply, count)),
                          SHOALI_IN(lamb_apply, exp_avg, F32, SHOALI_COUNT(lamb_apply, count)),
                          SHOALI_IN(lamb_apply, exp_avg_sq, F32, SHOALI_COUNT(lamb_apply, count)),
                          SHOALI_IN(lamb_apply, factor, F32, SHOALI_COUNT_BY(lamb_apply_one)),
                          SHOALI_OPTIONAL_IN(lamb_apply, control, F32,
                                             SHOALI_COUNT_BY(lamb_apply_control)),
                          SHOALI_OPTIONAL_OUT(lamb_apply, low, SHOALI_OF(lamb_apply, low_dtype),
                                              SHOALI_COUNT(lamb_apply, count))}},
    .dtypes = {SHOALI_DTYPE_OF_OPTIONAL(lamb_apply, low_dtype, SHOALI_DTYPE_HALF, low)},
    .products = {{{SHOALI_SIZE(lamb_apply, count)}}},
};

shoal_status shoali_op_lamb_apply(const struct shoali_exec *exec,
                                  const struct shoali_lamb_apply_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_lamb_apply, args);
}

/* ---- adafactor ---- */

static shoal_status check_columns(const char *name, const float *column, int64_t columns)
{
    if (column != NULL || columns <= 1)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s: a matrix of %lld columns needs their factors", name,
                      (long long)columns);
}

static int64_t adafactor_three(const void *block)
{
    return ((const struct shoali_adafactor_args *)block)->count > 0 ? 3 : 0;
}

static shoal_status check_adafactor(const void *block)
{
    shoal_status status;
    const struct shoali_adafactor_args *args = block;
    SHOAL_TRY(status,
              check_piece("adafactor", args->first, args->count,
                          args->matrices * args->rows * args->columns),
              done);
    SHOAL_TRY(status, check_columns("adafactor", args->column, args->columns), done);
done:
    return status;
}

const struct shoali_kernel shoali_kernel_adafactor = {
    .type = {.name = "adafactor",
             .args_bytes = sizeof(struct shoali_adafactor_args),
             .pointers = {SHOALI_IN(adafactor, grad, F32, SHOALI_COUNT(adafactor, count)),
                          SHOALI_OPTIONAL_IN(adafactor, control, F32,
                                             SHOALI_COUNT_BY(adafactor_three)),
                          SHOALI_IN(adafactor, row, F32, SHOALI_COUNT2(adafactor, matrices, rows)),
                          SHOALI_OPTIONAL_IN(adafactor, column, F32,
                                             SHOALI_COUNT2(adafactor, matrices, columns)),
                          SHOALI_INOUT(adafactor, sum, LIMBS, SHOALI_COUNT_BY(adafactor_three))}},
    .products = {{{SHOALI_SIZE(adafactor, count)}},
                 {{SHOALI_SIZE(adafactor, matrices), SHOALI_SIZE(adafactor, rows),
                   SHOALI_SIZE(adafactor, columns)}}},
    .check = check_adafactor,
};

shoal_status shoali_op_adafactor(const struct shoali_exec *exec,
                                 const struct shoali_adafactor_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_adafactor, args);
}

/* ---- adafactor_apply ---- */

static int64_t adafactor_control(const void *block)
{
    return ((const struct shoali_adafactor_apply_args *)block)->count > 0 ? 3 : 0;
}

static int64_t adafactor_one(const void *block)
{
    return ((const struct shoali_adafactor_apply_args *)block)->count > 0 ? 1 : 0;
}

static shoal_status check_adafactor_apply(const void *block)
{
    shoal_status status;
    const struct shoali_adafactor_apply_args *args = block;
    SHOAL_TRY(status,
              check_piece("adafactor_apply", args->first, args->count,
                          args->matrices * args->rows * args->columns),
              done);
    SHOAL_TRY(status, check_columns("adafactor_apply", args->column, args->columns), done);
done:
    return status;
}

const struct shoali_kernel shoali_kernel_adafactor_apply = {
    .type =
        {.name = "adafactor_apply",
         .args_bytes = sizeof(struct shoali_adafactor_apply_args),
         .pointers =
             {SHOALI_INOUT(adafactor_apply, param, F32, SHOALI_COUNT(adafactor_apply, count)),
              SHOALI_IN(adafactor_apply, grad, F32, SHOALI_COUNT(adafactor_apply, count)),
              SHOALI_OPTIONAL_IN(adafactor_apply, control, F32, SHOALI_COUNT_BY(adafactor_control)),
              SHOALI_IN(adafactor_apply, row, F32, SHOALI_COUNT2(adafactor_apply, matrices, rows)),
              SHOALI_OPTIONAL_IN(adafactor_apply, column, F32,
                                 SHOALI_COUNT2(adafactor_apply, matrices, columns)),
              SHOALI_IN(adafactor_apply, factor, F32, SHOALI_COUNT_BY(adafactor_one)),
              SHOALI_OPTIONAL_OUT(adafactor_apply, low, SHOALI_OF(adafactor_apply, low_dtype),
                                  SHOALI_COUNT(adafactor_apply, count))}},
    .dtypes = {SHOALI_DTYPE_OF_OPTIONAL(adafactor_apply, low_dtype, SHOALI_DTYPE_HALF, low)},
    .products = {{{SHOALI_SIZE(adafactor_apply, count)}},
                 {{SHOALI_SIZE(adafactor_apply, matrices), SHOALI_SIZE(adafactor_apply, rows),
                   SHOALI_SIZE(adafactor_apply, columns)}}},
    .check = check_adafactor_apply,
};

shoal_status shoali_op_adafactor_apply(const struct shoali_exec *exec,
                                       const struct shoali_adafactor_apply_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_adafactor_apply, args);
}
