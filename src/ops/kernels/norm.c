/* norm - descriptions of layer norm and RMS norm. */
#include "ops/kernel.h"

/* Elements of x and y from the first to the last. */
static int64_t extent(int64_t rows, int64_t columns, int64_t group, int64_t stride)
{
    return group > 0 ? shoali_extent(rows / group, stride, group * columns) : rows * columns;
}

static shoal_status check_groups(const char *kernel, int64_t rows, int64_t columns, int64_t group,
                                 int64_t stride)
{
    shoal_status status;
    int64_t width;
    SHOAL_TRY(status, shoali_check_at_least(kernel, "group", group, 0), done);
    if (group == 0)
        return SHOAL_OK;
    if (rows % group != 0 || !shoali_mul(group, columns, &width)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s: %lld rows are not divisible into groups of %lld",
                            kernel, (long long)rows, (long long)group);
        goto done;
    }
    SHOAL_TRY(status, shoali_check_at_least(kernel, "group_stride", stride, width), done);
done:
    return status;
}

static int64_t norm_x(const void *block)
{
    const struct shoali_norm_args *args = block;
    return extent(args->rows, args->columns, args->group, args->group_stride);
}

static int64_t norm_columns(const void *block)
{
    const struct shoali_norm_args *args = block;
    return args->rows > 0 ? args->columns : 0;
}

static int64_t norm_rows(const void *block)
{
    const struct shoali_norm_args *args = block;
    return args->columns > 0 ? args->rows : 0;
}

/* The mean of RMS norm is 0, and is written where there is an array for it. */
static shoal_status check_norm(const void *block)
{
    const struct shoali_norm_args *args = block;
    if (args->rms || args->mean != NULL || norm_rows(args) == 0)
        return check_groups("norm", args->rows, args->columns, args->group, args->group_stride);
    return SHOAL_FAIL(SHOAL_EINVAL, "norm: mean is NULL; only RMS norm does without");
}

const struct shoali_kernel shoali_kernel_norm = {
    .type = {.name = "norm",
             .args_bytes = sizeof(struct shoali_norm_args),
             .pointers = {SHOALI_IN(norm, x, SHOALI_OF(norm, dtype), SHOALI_COUNT_BY(norm_x)),
                          SHOALI_IN(norm, gamma, SHOALI_OF(norm, dtype),
                                    SHOALI_COUNT_BY(norm_columns)),
                          SHOALI_OPTIONAL_IN(norm, beta, SHOALI_OF(norm, dtype),
                                             SHOALI_COUNT_BY(norm_columns)),
                          SHOALI_OUT(norm, y, SHOALI_OF(norm, dtype), SHOALI_COUNT_BY(norm_x)),
                          SHOALI_OPTIONAL_OUT(norm, mean, SHOALI_REAL_OF(norm, dtype),
                                              SHOALI_COUNT_BY(norm_rows)),
                          SHOALI_OUT(norm, rstd, SHOALI_REAL_OF(norm, dtype),
                                     SHOALI_COUNT_BY(norm_rows))}},
    .dtypes = {SHOALI_DTYPE(norm, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(norm, rows), SHOALI_SIZE(norm, columns)}}},
    .check = check_norm,
};

shoal_status shoali_op_norm(const struct shoali_exec *exec, const struct shoali_norm_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_norm, args);
}

/* ---- backward ---- */

static int64_t backward_x(const void *block)
{
    const struct shoali_norm_backward_args *args = block;
    return extent(args->rows, args->columns, args->group, args->group_stride);
}

static shoal_status check_backward(const void *block)
{
    const struct shoali_norm_backward_args *args = block;
    return check_groups("norm_backward", args->rows, args->columns, args->group,
                        args->group_stride);
}

static int64_t backward_columns(const void *block)
{
    const struct shoali_norm_backward_args *args = block;
    return args->rows > 0 ? args->columns : 0;
}

static int64_t backward_rows(const void *block)
{
    const struct shoali_norm_backward_args *args = block;
    return args->columns > 0 ? args->rows : 0;
}

static int64_t backward_means(const void *block)
{
    const struct shoali_norm_backward_args *args = block;
    return args->rms ? 0 : backward_rows(block);
}

/* Without rows the parameters' gradients are still overwritten, with zeros. */
#define OF_DTYPE SHOALI_OF(norm_backward, dtype)
#define OF_REAL SHOALI_REAL_OF(norm_backward, dtype)
const struct shoali_kernel shoali_kernel_norm_backward = {
    .type = {.name = "norm_backward",
             .args_bytes = sizeof(struct shoali_norm_backward_args),
             .pointers = {SHOALI_IN(norm_backward, x, OF_DTYPE, SHOALI_COUNT_BY(backward_x)),
                          SHOALI_IN(norm_backward, gamma, OF_DTYPE,
                                    SHOALI_COUNT_BY(backward_columns)),
                          SHOALI_IN(norm_backward, dy, OF_DTYPE, SHOALI_COUNT_BY(backward_x)),
                          SHOALI_IN(norm_backward, mean, OF_REAL, SHOALI_COUNT_BY(backward_means)),
                          SHOALI_IN(norm_backward, rstd, OF_REAL, SHOALI_COUNT_BY(backward_rows)),
                          SHOALI_OPTIONAL_INOUT(norm_backward, dx, OF_DTYPE,
                                                SHOALI_COUNT_BY(backward_x)),
                          SHOALI_OPTIONAL_INOUT(norm_backward, dgamma, OF_REAL,
                                                SHOALI_COUNT(norm_backward, columns)),
                          SHOALI_OPTIONAL_INOUT(norm_backward, dbeta, OF_REAL,
                                                SHOALI_COUNT(norm_backward, columns))}},
    .dtypes = {SHOALI_DTYPE(norm_backward, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(norm_backward, rows), SHOALI_SIZE(norm_backward, columns)}}},
    .check = check_backward,
};

shoal_status shoali_op_norm_backward(const struct shoali_exec *exec,
                                     const struct shoali_norm_backward_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_norm_backward, args);
}
