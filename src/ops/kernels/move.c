/* move - descriptions of what copies, converts and fills. */
#include "ops/kernel.h"

/* ---- copy_strided ---- */

static int64_t copied(const struct shoali_copy_strided_args *args, const int64_t *stride)
{
    int64_t end = 1;
    for (int32_t d = 0; d < args->ndim; d++) {
        if (args->dim[d] == 0)
            return 0;
        end = shoali_extent(args->dim[d], stride[d], end);
    }
    return end;
}

static int64_t copy_x(const void *block)
{
    const struct shoali_copy_strided_args *args = block;
    return copied(args, args->x_stride);
}

static int64_t copy_y(const void *block)
{
    const struct shoali_copy_strided_args *args = block;
    return copied(args, args->y_stride);
}

static shoal_status check_copy(const void *block)
{
    static const char name[] = "copy_strided";
    const struct shoali_copy_strided_args *args = block;
    char text[128];
    shoal_shape shape = {.ndim = args->ndim};
    shoal_status status;
    SHOAL_TRY(status, shoali_check_kind(name, "ndim", args->ndim, SHOAL_MAX_DIMS + 1), done);
    for (int32_t d = 0; d < args->ndim; d++) {
        shape.dim[d] = args->dim[d];
        SHOAL_TRY(status, shoali_check_at_least(name, "x_stride", args->x_stride[d], 0), done);
        SHOAL_TRY(status, shoali_check_at_least(name, "y_stride", args->y_stride[d], 0), done);
    }
    if (shoal_shape_count(&shape) < 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "copy_strided: %s is not a valid shape",
                            shoali_shape_format(&shape, text));
    else if (args->accumulate && args->dtype >= SHOAL_I32)
        status = SHOAL_FAIL(SHOAL_EINVAL, "copy_strided: it adds floats, and dtype is %s",
                            shoal_dtype_name(args->dtype));
done:
    return status;
}

#define OF_DTYPE SHOALI_OF(copy_strided, dtype)
const struct shoali_kernel shoali_kernel_copy_strided = {
    .type = {.name = "copy_strided",
             .args_bytes = sizeof(struct shoali_copy_strided_args),
             .pointers = {SHOALI_IN(copy_strided, x, OF_DTYPE, SHOALI_COUNT_BY(copy_x)),
                          SHOALI_INOUT(copy_strided, y, OF_DTYPE, SHOALI_COUNT_BY(copy_y))}},
    .dtypes = {SHOALI_DTYPE(copy_strided, dtype, SHOALI_DTYPE_ANY)},
    .check = check_copy,
};

shoal_status shoali_op_copy_strided(const struct shoali_exec *exec,
                                    const struct shoali_copy_strided_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_copy_strided, args);
}

/* ---- convert ---- */

static shoal_status check_convert(const void *block)
{
    const struct shoali_convert_args *args = block;
    if (args->x != args->y || args->count == 0 ||
        shoal_dtype_bytes(args->dtype) == shoal_dtype_bytes(args->dtype_out))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "convert: %s cannot become %s in place, the sizes differ",
                      shoal_dtype_name(args->dtype), shoal_dtype_name(args->dtype_out));
}

const struct shoali_kernel shoali_kernel_convert = {
    .type = {.name = "convert",
             .args_bytes = sizeof(struct shoali_convert_args),
             .pointers = {SHOALI_IN(convert, x, SHOALI_OF(convert, dtype),
                                    SHOALI_COUNT(convert, count)),
                          SHOALI_OUT(convert, y, SHOALI_OF(convert, dtype_out),
                                     SHOALI_COUNT(convert, count))}},
    .dtypes = {SHOALI_DTYPE(convert, dtype, SHOALI_DTYPE_ANY),
               SHOALI_DTYPE(convert, dtype_out, SHOALI_DTYPE_ANY)},
    .products = {{{SHOALI_SIZE(convert, count)}}},
    .check = check_convert,
};

shoal_status shoali_op_convert(const struct shoali_exec *exec,
                               const struct shoali_convert_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_convert, args);
}

/* ---- set ---- */

const struct shoali_kernel shoali_kernel_set = {
    .type = {.name = "set",
             .args_bytes = sizeof(struct shoali_set_args),
             .pointers = {SHOALI_OUT(set, y, SHOALI_OF(set, dtype), SHOALI_COUNT(set, count))}},
    .dtypes = {SHOALI_DTYPE(set, dtype, SHOALI_DTYPE_ANY)},
    .products = {{{SHOALI_SIZE(set, count)}}},
};

shoal_status shoali_op_set(const struct shoali_exec *exec, const struct shoali_set_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_set, args);
}

/* ---- random_fill ---- */

static shoal_status check_random(const void *block)
{
    const struct shoali_random_fill_args *args = block;
    const shoal_status status =
        shoali_check_at_least("random_fill", "first_element", args->first_element, 0);
    return status != SHOAL_OK ? status : shoali_check_runs("random_fill", &args->runs, args->count);
}

const struct shoali_kernel shoali_kernel_random_fill = {
    .type = {.name = "random_fill",
             .args_bytes = sizeof(struct shoali_random_fill_args),
             .pointers = {SHOALI_OUT(random_fill, y, SHOALI_OF(random_fill, dtype),
                                     SHOALI_COUNT(random_fill, count))}},
    .dtypes = {SHOALI_DTYPE(random_fill, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(random_fill, count)}}},
    .check = check_random,
};

shoal_status shoali_op_random_fill(const struct shoali_exec *exec,
                                   const struct shoali_random_fill_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_random_fill, args);
}
