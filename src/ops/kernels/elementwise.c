/* elementwise - descriptions of functions of elements, sums over a dim, and their reverse. */
#include "ops/kernel.h"

/* ---- dropout ---- */

static shoal_status check_dropout(const void *block)
{
    const struct shoali_dropout_args *args = block;
    shoal_status status;
    SHOAL_TRY(status, shoali_check_probability("dropout", args->probability), done);
    SHOAL_TRY(status, shoali_check_at_least("dropout", "first_element", args->first_element, 0),
              done);
    SHOAL_TRY(status, shoali_check_runs("dropout", &args->runs, args->count), done);
done:
    return status;
}

const struct shoali_kernel shoali_kernel_dropout = {
    .type = {.name = "dropout",
             .args_bytes = sizeof(struct shoali_dropout_args),
             .pointers = {SHOALI_IN(dropout, x, SHOALI_OF(dropout, dtype),
                                    SHOALI_COUNT(dropout, count)),
                          SHOALI_OPTIONAL_IN(dropout, residual, SHOALI_OF(dropout, dtype),
                                             SHOALI_COUNT(dropout, count)),
                          SHOALI_INOUT(dropout, y, SHOALI_OF(dropout, dtype),
                                       SHOALI_COUNT(dropout, count))}},
    .dtypes = {SHOALI_DTYPE(dropout, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(dropout, count)}}},
    .check = check_dropout,
};

shoal_status shoali_op_dropout(const struct shoali_exec *exec,
                               const struct shoali_dropout_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_dropout, args);
}

/* ---- unary ---- */

static int64_t unary_dy(const void *block)
{
    const struct shoali_unary_args *args = block;
    return args->backward ? args->count : 0;
}

static shoal_status check_unary(const void *block)
{
    const struct shoali_unary_args *args = block;
    return shoali_check_kind("unary", "kind", args->kind, SHOALI_ADD_SCALAR + 1);
}

const struct shoali_kernel shoali_kernel_unary = {
    .type = {.name = "unary",
             .args_bytes = sizeof(struct shoali_unary_args),
             .pointers = {SHOALI_IN(unary, x, SHOALI_OF(unary, dtype), SHOALI_COUNT(unary, count)),
                          SHOALI_IN(unary, dy, SHOALI_OF(unary, dtype), SHOALI_COUNT_BY(unary_dy)),
                          SHOALI_INOUT(unary, y, SHOALI_OF(unary, dtype),
                                       SHOALI_COUNT(unary, count))}},
    .dtypes = {SHOALI_DTYPE(unary, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(unary, count)}}},
    .check = check_unary,
};

shoal_status shoali_op_unary(const struct shoali_exec *exec, const struct shoali_unary_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_unary, args);
}

/* ---- gated linear unit ---- */

static int64_t glu_x(const void *block)
{
    const struct shoali_glu_args *args = block;
    return 2 * args->rows * args->columns;
}

static int64_t glu_dy(const void *block)
{
    const struct shoali_glu_args *args = block;
    return args->backward ? args->rows * args->columns : 0;
}

static int64_t glu_y(const void *block)
{
    const struct shoali_glu_args *args = block;
    return args->rows * args->columns * (args->backward ? 2 : 1);
}

static shoal_status check_glu(const void *block)
{
    const struct shoali_glu_args *args = block;
    const enum shoali_unary kind = args->kind;
    if (args->rows * args->columns > INT64_MAX / 2)
        return SHOAL_FAIL(SHOAL_EINVAL, "glu: %lld rows of 2 x %lld elements are beyond 64 bits",
                          (long long)args->rows, (long long)args->columns);
    if (kind == SHOALI_SILU || kind == SHOALI_GELU_ERF || kind == SHOALI_GELU_TANH ||
        kind == SHOALI_RELU || kind == SHOALI_RELU_SQUARED || kind == SHOALI_SIGMOID)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "glu: function %d is not a gate", (int)kind);
}

const struct shoali_kernel shoali_kernel_glu = {
    .type = {.name = "glu",
             .args_bytes = sizeof(struct shoali_glu_args),
             .pointers = {SHOALI_IN(glu, x, SHOALI_OF(glu, dtype), SHOALI_COUNT_BY(glu_x)),
                          SHOALI_IN(glu, dy, SHOALI_OF(glu, dtype), SHOALI_COUNT_BY(glu_dy)),
                          SHOALI_INOUT(glu, y, SHOALI_OF(glu, dtype), SHOALI_COUNT_BY(glu_y))}},
    .dtypes = {SHOALI_DTYPE(glu, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(glu, rows), SHOALI_SIZE(glu, columns)}}},
    .check = check_glu,
};

shoal_status shoali_op_glu(const struct shoali_exec *exec, const struct shoali_glu_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_glu, args);
}

/* ---- binary ---- */

static int64_t binary_b(const void *block)
{
    const struct shoali_binary_args *args = block;
    return args->count > 0 ? args->b_count : 0;
}

static shoal_status check_binary(const void *block)
{
    const struct shoali_binary_args *args = block;
    const shoal_status status = shoali_check_kind("binary", "kind", args->kind, SHOALI_DIV + 1);
    if (status == SHOAL_OK && args->count > 0 &&
        (args->b_count == 0 || args->count % args->b_count != 0))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "binary: b has %lld elements, which do not divide the %lld of a",
                          (long long)args->b_count, (long long)args->count);
    return status;
}

const struct shoali_kernel shoali_kernel_binary = {
    .type = {.name = "binary",
             .args_bytes = sizeof(struct shoali_binary_args),
             .pointers = {SHOALI_IN(binary, a, SHOALI_OF(binary, dtype),
                                    SHOALI_COUNT(binary, count)),
                          SHOALI_IN(binary, b, SHOALI_OF(binary, dtype), SHOALI_COUNT_BY(binary_b)),
                          SHOALI_INOUT(binary, y, SHOALI_OF(binary, dtype),
                                       SHOALI_COUNT(binary, count))}},
    .dtypes = {SHOALI_DTYPE(binary, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(binary, count)}}, {{SHOALI_SIZE(binary, b_count)}}},
    .check = check_binary,
};

shoal_status shoali_op_binary(const struct shoali_exec *exec, const struct shoali_binary_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_binary, args);
}

/* ---- axpy ---- */

const struct shoali_kernel shoali_kernel_axpy = {
    .type = {.name = "axpy",
             .args_bytes = sizeof(struct shoali_axpy_args),
             .pointers = {SHOALI_OPTIONAL_IN(axpy, x, SHOALI_OF(axpy, dtype),
                                             SHOALI_COUNT(axpy, count)),
                          SHOALI_INOUT(axpy, y, SHOALI_OF(axpy, dtype),
                                       SHOALI_COUNT(axpy, count))}},
    .dtypes = {SHOALI_DTYPE(axpy, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(axpy, count)}}},
};

shoal_status shoali_op_axpy(const struct shoali_exec *exec, const struct shoali_axpy_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_axpy, args);
}

/* ---- reduce ---- */

/* Also a sum of nothing is written. */
static shoal_status check_reduce(const void *block)
{
    const struct shoali_reduce_args *args = block;
    if (args->dtype_out == args->dtype || args->dtype_out == SHOAL_F32)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "reduce: dtype_out is %s; for %s it may be F32 or %s",
                      shoal_dtype_name(args->dtype_out), shoal_dtype_name(args->dtype),
                      shoal_dtype_name(args->dtype));
}

const struct shoali_kernel shoali_kernel_reduce = {
    .type = {.name = "reduce",
             .args_bytes = sizeof(struct shoali_reduce_args),
             .pointers = {SHOALI_IN(reduce, x, SHOALI_OF(reduce, dtype),
                                    SHOALI_COUNT3(reduce, outer, reduced, inner)),
                          SHOALI_INOUT(reduce, y, SHOALI_OF(reduce, dtype_out),
                                       SHOALI_COUNT2(reduce, outer, inner))}},
    .dtypes = {SHOALI_DTYPE(reduce, dtype, SHOALI_DTYPE_FLOAT),
               SHOALI_DTYPE(reduce, dtype_out, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(reduce, outer), SHOALI_SIZE(reduce, reduced),
                   SHOALI_SIZE(reduce, inner)}},
                 {{SHOALI_SIZE(reduce, outer), SHOALI_SIZE(reduce, inner)}}},
    .check = check_reduce,
};

shoal_status shoali_op_reduce(const struct shoali_exec *exec, const struct shoali_reduce_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_reduce, args);
}

/* ---- broadcast ---- */

static int64_t broadcast_x(const void *block)
{
    const struct shoali_broadcast_args *args = block;
    return args->reduced > 0 ? args->outer * args->inner : 0;
}

const struct shoali_kernel shoali_kernel_broadcast = {
    .type = {.name = "broadcast",
             .args_bytes = sizeof(struct shoali_broadcast_args),
             .pointers = {SHOALI_IN(broadcast, x, SHOALI_OF(broadcast, dtype),
                                    SHOALI_COUNT_BY(broadcast_x)),
                          SHOALI_INOUT(broadcast, y, SHOALI_OF(broadcast, dtype),
                                       SHOALI_COUNT3(broadcast, outer, reduced, inner))}},
    .dtypes = {SHOALI_DTYPE(broadcast, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(broadcast, outer), SHOALI_SIZE(broadcast, reduced),
                   SHOALI_SIZE(broadcast, inner)}},
                 {{SHOALI_SIZE(broadcast, outer), SHOALI_SIZE(broadcast, inner)}}},
};

shoal_status shoali_op_broadcast(const struct shoali_exec *exec,
                                 const struct shoali_broadcast_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_broadcast, args);
}
