/* loss - descriptions of cross entropy, whole and in tiles of the vocabulary, and of softmax. */
#include "ops/kernel.h"

static shoal_status check_rows(const char *kernel, int64_t rows, int64_t columns, int64_t stride)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_check_at_least(kernel, "columns", columns, rows > 0 ? 1 : 0), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "stride", stride, rows > 1 ? columns : 0),
              done);
done:
    return status;
}

#define TARGETS SHOALI_ALWAYS(SHOAL_I32)

/* ---- cross_entropy ---- */

static int64_t loss_logits(const void *block)
{
    const struct shoali_cross_entropy_args *args = block;
    return shoali_extent(args->rows, args->stride, args->columns);
}

static shoal_status check_loss(const void *block)
{
    const struct shoali_cross_entropy_args *args = block;
    return check_rows("cross_entropy", args->rows, args->columns, args->stride);
}

#define OF_DTYPE SHOALI_OF(cross_entropy, dtype)
#define OF_REAL SHOALI_REAL_OF(cross_entropy, dtype)
const struct shoali_kernel shoali_kernel_cross_entropy = {
    .type =
        {.name = "cross_entropy",
         .args_bytes = sizeof(struct shoali_cross_entropy_args),
         .pointers = {SHOALI_IN(cross_entropy, logits, OF_DTYPE, SHOALI_COUNT_BY(loss_logits)),
                      SHOALI_IN(cross_entropy, targets, TARGETS, SHOALI_COUNT(cross_entropy, rows)),
                      SHOALI_OUT(cross_entropy, loss, OF_REAL, SHOALI_COUNT(cross_entropy, rows)),
                      SHOALI_OUT(cross_entropy, lse, OF_REAL, SHOALI_COUNT(cross_entropy, rows))}},
    .dtypes = {SHOALI_DTYPE(cross_entropy, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(cross_entropy, rows), SHOALI_SIZE(cross_entropy, stride)}}},
    .check = check_loss,
};
#undef OF_DTYPE
#undef OF_REAL

shoal_status shoali_op_cross_entropy(const struct shoali_exec *exec,
                                     const struct shoali_cross_entropy_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_cross_entropy, args);
}

/* ---- loss_mean ---- */

/* Also the mean of no rows is written. */
static int64_t mean_one(const void *block)
{
    (void)block;
    return 1;
}

#define OF_REAL SHOALI_REAL_OF(loss_mean, dtype)
const struct shoali_kernel shoali_kernel_loss_mean = {
    .type = {.name = "loss_mean",
             .args_bytes = sizeof(struct shoali_loss_mean_args),
             .pointers = {SHOALI_IN(loss_mean, loss, OF_REAL, SHOALI_COUNT(loss_mean, rows)),
                          SHOALI_IN(loss_mean, targets, TARGETS, SHOALI_COUNT(loss_mean, rows)),
                          SHOALI_OUT(loss_mean, mean, OF_REAL, SHOALI_COUNT_BY(mean_one)),
                          SHOALI_OUT(loss_mean, count, OF_REAL, SHOALI_COUNT_BY(mean_one))}},
    .dtypes = {SHOALI_DTYPE(loss_mean, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(loss_mean, rows)}}},
};
#undef OF_REAL

shoal_status shoali_op_loss_mean(const struct shoali_exec *exec,
                                 const struct shoali_loss_mean_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_loss_mean, args);
}

/* ---- cross_entropy_backward ---- */

static int64_t backward_logits(const void *block)
{
    const struct shoali_cross_entropy_backward_args *args = block;
    return shoali_extent(args->rows, args->stride, args->columns);
}

static int64_t backward_rows(const void *block)
{
    const struct shoali_cross_entropy_backward_args *args = block;
    return args->rows;
}

static int64_t backward_one(const void *block)
{
    return backward_rows(block) > 0 ? 1 : 0;
}

static shoal_status check_backward(const void *block)
{
    const struct shoali_cross_entropy_backward_args *args = block;
    return check_rows("cross_entropy_backward", args->rows, args->columns, args->stride);
}

#define OF_DTYPE SHOALI_OF(cross_entropy_backward, dtype)
#define OF_REAL SHOALI_REAL_OF(cross_entropy_backward, dtype)
const struct shoali_kernel shoali_kernel_cross_entropy_backward = {
    .type = {.name = "cross_entropy_backward",
             .args_bytes = sizeof(struct shoali_cross_entropy_backward_args),
             .pointers = {SHOALI_IN(cross_entropy_backward, logits, OF_DTYPE,
                                    SHOALI_COUNT_BY(backward_logits)),
                          SHOALI_IN(cross_entropy_backward, targets, TARGETS,
                                    SHOALI_COUNT(cross_entropy_backward, rows)),
                          SHOALI_IN(cross_entropy_backward, lse, OF_REAL,
                                    SHOALI_COUNT(cross_entropy_backward, rows)),
                          SHOALI_IN(cross_entropy_backward, dloss, OF_REAL,
                                    SHOALI_COUNT_BY(backward_one)),
                          SHOALI_IN(cross_entropy_backward, count, OF_REAL,
                                    SHOALI_COUNT_BY(backward_one)),
                          SHOALI_OUT(cross_entropy_backward, dlogits, OF_DTYPE,
                                     SHOALI_COUNT_BY(backward_logits))}},
    .dtypes = {SHOALI_DTYPE(cross_entropy_backward, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(cross_entropy_backward, rows),
                   SHOALI_SIZE(cross_entropy_backward, stride)}}},
    .check = check_backward,
};
#undef OF_DTYPE
#undef OF_REAL

shoal_status shoali_op_cross_entropy_backward(const struct shoali_exec *exec,
                                              const struct shoali_cross_entropy_backward_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_cross_entropy_backward, args);
}

/* ---- cross_entropy_tile ---- */

static int64_t tile_logits(const void *block)
{
    const struct shoali_cross_entropy_tile_args *args = block;
    return shoali_extent(args->rows, args->stride, args->columns);
}

/* [first, first + columns) lies in the vocabulary and is not empty, unless there are no rows. */
static shoal_status check_tile(const void *block)
{
    static const char name[] = "cross_entropy_tile";
    const struct shoali_cross_entropy_tile_args *args = block;
    shoal_status status;
    SHOAL_TRY(status, check_rows(name, args->rows, args->columns, args->stride), done);
    SHOAL_TRY(status, shoali_check_at_least(name, "first", args->first, 0), done);
    SHOAL_TRY(status,
              shoali_check_at_least(name, "vocabulary - first", args->vocabulary - args->first,
                                    args->columns),
              done);
done:
    return status;
}

#define OF_DTYPE SHOALI_OF(cross_entropy_tile, dtype)
#define OF_REAL SHOALI_REAL_OF(cross_entropy_tile, dtype)
const struct shoali_kernel shoali_kernel_cross_entropy_tile = {
    .type = {.name = "cross_entropy_tile",
             .args_bytes = sizeof(struct shoali_cross_entropy_tile_args),
             .pointers = {SHOALI_IN(cross_entropy_tile, logits, OF_DTYPE,
                                    SHOALI_COUNT_BY(tile_logits)),
                          SHOALI_IN(cross_entropy_tile, targets, TARGETS,
                                    SHOALI_COUNT(cross_entropy_tile, rows)),
                          SHOALI_INOUT(cross_entropy_tile, largest, OF_REAL,
                                       SHOALI_COUNT(cross_entropy_tile, rows)),
                          SHOALI_INOUT(cross_entropy_tile, loss, OF_REAL,
                                       SHOALI_COUNT(cross_entropy_tile, rows)),
                          SHOALI_INOUT(cross_entropy_tile, lse, OF_REAL,
                                       SHOALI_COUNT(cross_entropy_tile, rows))}},
    .dtypes = {SHOALI_DTYPE(cross_entropy_tile, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(cross_entropy_tile, rows),
                   SHOALI_SIZE(cross_entropy_tile, stride)}}},
    .check = check_tile,
};
#undef OF_DTYPE
#undef OF_REAL

shoal_status shoali_op_cross_entropy_tile(const struct shoali_exec *exec,
                                          const struct shoali_cross_entropy_tile_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_cross_entropy_tile, args);
}

/* ---- cross_entropy_tile_backward ---- */

static int64_t tile_backward_logits(const void *block)
{
    const struct shoali_cross_entropy_tile_backward_args *args = block;
    return shoali_extent(args->rows, args->stride, args->columns);
}

static int64_t tile_backward_dlogits(const void *block)
{
    const struct shoali_cross_entropy_tile_backward_args *args = block;
    return shoali_extent(args->rows, args->stride_out, args->columns);
}

static int64_t tile_backward_rows(const void *block)
{
    const struct shoali_cross_entropy_tile_backward_args *args = block;
    return args->rows;
}

static int64_t tile_backward_one(const void *block)
{
    return tile_backward_rows(block) > 0 ? 1 : 0;
}

static shoal_status check_tile_backward(const void *block)
{
    static const char name[] = "cross_entropy_tile_backward";
    const struct shoali_cross_entropy_tile_backward_args *args = block;
    shoal_status status;
    SHOAL_TRY(status, check_rows(name, args->rows, args->columns, args->stride), done);
    SHOAL_TRY(status, check_rows(name, args->rows, args->columns, args->stride_out), done);
    SHOAL_TRY(status, shoali_check_at_least(name, "first", args->first, 0), done);
    if ((args->dtype == SHOAL_F64) != (args->dtype_out == SHOAL_F64))
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "%s: dtype is %s and dtype_out %s; with F64 both must be F64",
                       name, shoal_dtype_name(args->dtype), shoal_dtype_name(args->dtype_out));
done:
    return status;
}

#define OF_REAL SHOALI_REAL_OF(cross_entropy_tile_backward, dtype)
const struct shoali_kernel shoali_kernel_cross_entropy_tile_backward = {
    .type = {.name = "cross_entropy_tile_backward",
             .args_bytes = sizeof(struct shoali_cross_entropy_tile_backward_args),
             .pointers = {SHOALI_IN(cross_entropy_tile_backward, logits,
                                    SHOALI_OF(cross_entropy_tile_backward, dtype),
                                    SHOALI_COUNT_BY(tile_backward_logits)),
                          SHOALI_IN(cross_entropy_tile_backward, targets, TARGETS,
                                    SHOALI_COUNT(cross_entropy_tile_backward, rows)),
                          SHOALI_IN(cross_entropy_tile_backward, lse, OF_REAL,
                                    SHOALI_COUNT(cross_entropy_tile_backward, rows)),
                          SHOALI_IN(cross_entropy_tile_backward, dloss, OF_REAL,
                                    SHOALI_COUNT_BY(tile_backward_one)),
                          SHOALI_IN(cross_entropy_tile_backward, count, OF_REAL,
                                    SHOALI_COUNT_BY(tile_backward_one)),
                          SHOALI_OUT(cross_entropy_tile_backward, dlogits,
                                     SHOALI_OF(cross_entropy_tile_backward, dtype_out),
                                     SHOALI_COUNT_BY(tile_backward_dlogits))}},
    .dtypes = {SHOALI_DTYPE(cross_entropy_tile_backward, dtype, SHOALI_DTYPE_FLOAT),
               SHOALI_DTYPE(cross_entropy_tile_backward, dtype_out, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(cross_entropy_tile_backward, rows),
                   SHOALI_SIZE(cross_entropy_tile_backward, stride)}},
                 {{SHOALI_SIZE(cross_entropy_tile_backward, rows),
                   SHOALI_SIZE(cross_entropy_tile_backward, stride_out)}}},
    .check = check_tile_backward,
};
#undef OF_REAL

shoal_status
shoali_op_cross_entropy_tile_backward(const struct shoali_exec *exec,
                                      const struct shoali_cross_entropy_tile_backward_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_cross_entropy_tile_backward, args);
}

/* ---- cross_entropy_join ---- */

static int64_t join_parts(const void *block)
{
    const struct shoali_cross_entropy_join_args *args = block;
    return 3 * args->ways * args->rows;
}

static shoal_status check_join(const void *block)
{
    const struct shoali_cross_entropy_join_args *args = block;
    return shoali_check_at_least("cross_entropy_join", "ways", args->ways, 1);
}

#define OF_REAL SHOALI_REAL_OF(cross_entropy_join, dtype)
const struct shoali_kernel shoali_kernel_cross_entropy_join = {
    .type = {.name = "cross_entropy_join",
             .args_bytes = sizeof(struct shoali_cross_entropy_join_args),
             .pointers = {SHOALI_IN(cross_entropy_join, parts, OF_REAL,
                                    SHOALI_COUNT_BY(join_parts)),
                          SHOALI_IN(cross_entropy_join, targets, TARGETS,
                                    SHOALI_COUNT(cross_entropy_join, rows)),
                          SHOALI_OUT(cross_entropy_join, loss, OF_REAL,
                                     SHOALI_COUNT(cross_entropy_join, rows)),
                          SHOALI_OUT(cross_entropy_join, lse, OF_REAL,
                                     SHOALI_COUNT(cross_entropy_join, rows))}},
    .dtypes = {SHOALI_DTYPE(cross_entropy_join, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(cross_entropy_join, rows), SHOALI_SIZE(cross_entropy_join, ways)}}},
    .check = check_join,
};
#undef OF_REAL

shoal_status shoali_op_cross_entropy_join(const struct shoali_exec *exec,
                                          const struct shoali_cross_entropy_join_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_cross_entropy_join, args);
}

/* ---- softmax ---- */

static int64_t softmax_all(const void *block)
{
    const struct shoali_softmax_args *args = block;
    return args->rows * args->columns;
}

static int64_t softmax_dy(const void *block)
{
    const struct shoali_softmax_args *args = block;
    return args->backward ? softmax_all(block) : 0;
}

#define OF_DTYPE SHOALI_OF(softmax, dtype)
const struct shoali_kernel shoali_kernel_softmax = {
    .type = {.name = "softmax",
             .args_bytes = sizeof(struct shoali_softmax_args),
             .pointers = {SHOALI_IN(softmax, x, OF_DTYPE, SHOALI_COUNT2(softmax, rows, columns)),
                          SHOALI_IN(softmax, dy, OF_DTYPE, SHOALI_COUNT_BY(softmax_dy)),
                          SHOALI_INOUT(softmax, y, OF_DTYPE,
                                       SHOALI_COUNT2(softmax, rows, columns))}},
    .dtypes = {SHOALI_DTYPE(softmax, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(softmax, rows), SHOALI_SIZE(softmax, columns)}}},
};

shoal_status shoali_op_softmax(const struct shoali_exec *exec,
                               const struct shoali_softmax_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_softmax, args);
}
