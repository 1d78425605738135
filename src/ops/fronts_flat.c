/* fronts_flat - checks and launches of the kernels over flat arrays: element-wise, moving, exact,
 * updates. */
#include "ops/kernels.h"

static const uint32_t f32_bit = 1u << SHOAL_F32;

/* Runs, when there are any, are those of `count` elements. */
static shoal_status check_runs(enum shoali_kernel kernel, const struct shoali_runs *runs,
                               int64_t count)
{
    int64_t covered = 1;
    bool fit = runs->ndim >= 0 && runs->ndim <= SHOALI_BLOCK_MAX_DIMS;
    for (int32_t d = 0; fit && d < runs->ndim; d++)
        fit = runs->count[d] >= 0 && runs->stride[d] >= 0 &&
              shoali_mul(covered, runs->count[d], &covered);
    fit = fit && (runs->ndim == 0 || (covered == count && runs->stride[runs->ndim - 1] == 1));
    return fit ? SHOAL_OK
               : SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: the runs cover %lld elements and the call has %lld; they must "
                            "be equal, and the last stride 1",
                            shoali_kernel_rows[kernel].type.name, (long long)covered,
                            (long long)count);
}

shoal_status shoali_op_dropout(const struct shoali_exec *exec,
                               const struct shoali_dropout_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_DROPOUT;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    SHOAL_TRY(status, shoali_check_probability(kernel, args->probability), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "first_element", args->first_element, 0), done);
    SHOAL_TRY(status, check_runs(kernel, &args->runs, args->count), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, shoali_dtype_bit(args->dtype), {"x", args->x},
                               {"y", args->y});
done:
    return status;
}

shoal_status shoali_op_unary(const struct shoali_exec *exec, const struct shoali_unary_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_UNARY;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    SHOAL_TRY(status, shoali_check_kind(kernel, "kind", args->kind, SHOALI_ADD_SCALAR + 1), done);
    if (args->backward && args->count > 0)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"dy", args->dy}), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, shoali_dtype_bit(args->dtype), {"x", args->x},
                               {"y", args->y});
done:
    return status;
}

shoal_status shoali_op_binary(const struct shoali_exec *exec, const struct shoali_binary_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_BINARY;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"b_count", args->b_count}), done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    SHOAL_TRY(status, shoali_check_kind(kernel, "kind", args->kind, SHOALI_DIV + 1), done);
    if (args->count > 0 && (args->b_count == 0 || args->count % args->b_count != 0)) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "binary: b has %lld elements, which do not divide the %lld of a",
                            (long long)args->b_count, (long long)args->count);
        goto done;
    }
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, shoali_dtype_bit(args->dtype), {"a", args->a},
                               {"b", args->b}, {"y", args->y});
done:
    return status;
}

shoal_status shoali_op_axpy(const struct shoali_exec *exec, const struct shoali_axpy_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_AXPY;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, shoali_dtype_bit(args->dtype), {"y", args->y});
done:
    return status;
}

shoal_status shoali_op_reduce(const struct shoali_exec *exec, const struct shoali_reduce_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_REDUCE;
    shoal_status status;
    int64_t inputs, outputs;
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, &inputs, {"outer", args->outer},
                                 {"reduced", args->reduced}, {"inner", args->inner}),
              done);
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, &outputs, {"outer", args->outer}, {"inner", args->inner}),
              done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    if (args->dtype_out != args->dtype && args->dtype_out != SHOAL_F32) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "reduce: dtype_out is %s; for %s it may be F32 or %s",
                            shoal_dtype_name(args->dtype_out), shoal_dtype_name(args->dtype),
                            shoal_dtype_name(args->dtype));
        goto done;
    }
    if (inputs > 0)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"x", args->x}), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(
        outputs, shoali_dtype_bit(args->dtype) | shoali_dtype_bit(args->dtype_out), {"y", args->y});
done:
    return status;
}

shoal_status shoali_op_broadcast(const struct shoali_exec *exec,
                                 const struct shoali_broadcast_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_BROADCAST;
    shoal_status status;
    int64_t count;
    SHOAL_TRY(status,
              SHOALI_CHECK_SIZES(kernel, &count, {"outer", args->outer}, {"reduced", args->reduced},
                                 {"inner", args->inner}),
              done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(count, shoali_dtype_bit(args->dtype), {"x", args->x},
                               {"y", args->y});
done:
    return status;
}

shoal_status shoali_op_copy_strided(const struct shoali_exec *exec,
                                    const struct shoali_copy_strided_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_COPY_STRIDED;
    shoal_status status;
    SHOAL_TRY(status, shoali_check_kind(kernel, "ndim", args->ndim, SHOAL_MAX_DIMS + 1), done);
    SHOAL_TRY(status, shoali_check_known(kernel, "dtype", args->dtype), done);
    if (args->accumulate)
        SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    const shoal_shape shape = {
        args->ndim, {args->dim[0], args->dim[1], args->dim[2], args->dim[3], args->dim[4]}};
    const int64_t count = shoal_shape_count(&shape);
    char text[128];
    if (count < 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "copy_strided: %s is no valid shape",
                            shoali_shape_format(&shape, text));
        goto done;
    }
    SHOALI_LAUNCH_UNLESS_EMPTY(count, shoali_dtype_bit(args->dtype), {"x", args->x},
                               {"y", args->y});
done:
    return status;
}

shoal_status shoali_op_convert(const struct shoali_exec *exec,
                               const struct shoali_convert_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_CONVERT;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, shoali_check_known(kernel, "dtype", args->dtype), done);
    SHOAL_TRY(status, shoali_check_known(kernel, "dtype_out", args->dtype_out), done);
    if (args->x == args->y && args->count > 0 &&
        shoal_dtype_bytes(args->dtype) != shoal_dtype_bytes(args->dtype_out)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "convert: %s cannot become %s in place, the sizes differ",
                            shoal_dtype_name(args->dtype), shoal_dtype_name(args->dtype_out));
        goto done;
    }
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count,
                               shoali_dtype_bit(args->dtype) | shoali_dtype_bit(args->dtype_out),
                               {"x", args->x}, {"y", args->y});
done:
    return status;
}

shoal_status shoali_op_set(const struct shoali_exec *exec, const struct shoali_set_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_SET;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, shoali_check_known(kernel, "dtype", args->dtype), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, shoali_dtype_bit(args->dtype), {"y", args->y});
done:
    return status;
}

shoal_status shoali_op_random_fill(const struct shoali_exec *exec,
                                   const struct shoali_random_fill_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_RANDOM_FILL;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "first_element", args->first_element, 0), done);
    SHOAL_TRY(status, check_runs(kernel, &args->runs, args->count), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, shoali_dtype_bit(args->dtype), {"y", args->y});
done:
    return status;
}

/* ---- exact reduction ---- */

shoal_status shoali_op_to_fixed(const struct shoali_exec *exec,
                                const struct shoali_to_fixed_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_TO_FIXED;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, shoali_check_kind(kernel, "unit_log2", args->unit_log2, 512), done);
    double largest = args->limit;
    for (int32_t i = 0; i < args->unit_log2; i++)
        largest *= 2;
    if (!(largest > 0 && largest <= 0x1p63)) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "to_fixed: limit %g in units of 2^-%d must be positive and fit 63 bits",
                            args->limit, (int)args->unit_log2);
        goto done;
    }
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, f32_bit, {"x", args->x}, {"fixed", args->fixed},
                               {"flag", args->flag});
done:
    return status;
}

shoal_status shoali_op_from_fixed(const struct shoali_exec *exec,
                                  const struct shoali_from_fixed_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_FROM_FIXED;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, shoali_check_kind(kernel, "unit_log2", args->unit_log2, 512), done);
    if (args->divisor == 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "from_fixed: the divisor is 0");
        goto done;
    }
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, f32_bit, {"fixed", args->fixed}, {"y", args->y});
done:
    return status;
}

/* ---- quantized messages ---- */

static shoal_status check_bits(enum shoali_kernel kernel, int32_t bits)
{
    return bits == 4 || bits == 8 ? SHOAL_OK
                                  : SHOAL_FAIL(SHOAL_EINVAL, "%s: %d bits: give 4 or 8",
                                               shoali_kernel_rows[kernel].type.name, (int)bits);
}

shoal_status shoali_op_quantize(const struct shoali_exec *exec,
                                const struct shoali_quantize_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_QUANTIZE;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, check_bits(kernel, args->bits), done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, shoali_dtype_bit(args->dtype), {"x", args->x},
                               {"message", args->message});
done:
    return status;
}

shoal_status shoali_op_dequantize(const struct shoali_exec *exec,
                                  const struct shoali_dequantize_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_DEQUANTIZE;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, check_bits(kernel, args->bits), done);
    SHOAL_TRY(status, shoali_check_float(kernel, "dtype", args->dtype), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, shoali_dtype_bit(args->dtype),
                               {"message", args->message}, {"y", args->y});
done:
    return status;
}

shoal_status shoali_op_norm2(const struct shoali_exec *exec, const struct shoali_norm2_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_NORM2;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, f32_bit, {"x", args->x}, {"limbs", args->limbs},
                               {"flag", args->flag});
done:
    return status;
}

shoal_status shoali_op_clip(const struct shoali_exec *exec, const struct shoali_clip_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_CLIP;
    shoal_status status;
    if (!(args->loss_scale > 0)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "clip: the loss scale is %g; it must be positive",
                            args->loss_scale);
        goto done;
    }
    SHOALI_LAUNCH_UNLESS_EMPTY(1, f32_bit, {"limbs", args->limbs}, {"flag", args->flag},
                               {"out", args->out});
done:
    return status;
}

/* ---- optimizer ---- */

/* The bits of F32 and of the low-precision copy, which must be a 16-bit float. */
static shoal_status check_low(enum shoali_kernel kernel, const void *low, shoal_dtype dtype,
                              uint32_t *dtypes)
{
    *dtypes = f32_bit;
    if (low == NULL)
        return SHOAL_OK;
    if (dtype != SHOAL_BF16 && dtype != SHOAL_F16)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: low_dtype is %s; the copy may be BF16 or F16",
                          shoali_kernel_rows[kernel].type.name, shoal_dtype_name(dtype));
    *dtypes |= shoali_dtype_bit(dtype);
    return SHOAL_OK;
}

shoal_status shoali_op_adam(const struct shoali_exec *exec, const struct shoali_adam_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_ADAM;
    shoal_status status;
    uint32_t dtypes;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, check_low(kernel, args->low, args->low_dtype, &dtypes), done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, dtypes, {"param", args->param},
                               {"exp_avg", args->exp_avg}, {"exp_avg_sq", args->exp_avg_sq},
                               {"grad", args->grad});
done:
    return status;
}

shoal_status shoali_op_sgd(const struct shoali_exec *exec, const struct shoali_sgd_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_SGD;
    shoal_status status;
    uint32_t dtypes;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, check_low(kernel, args->low, args->low_dtype, &dtypes), done);
    if (args->momentum != 0 && args->count > 0)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"momentum_buffer", args->momentum_buffer}),
                  done);
    SHOALI_LAUNCH_UNLESS_EMPTY(args->count, dtypes, {"param", args->param}, {"grad", args->grad});
done:
    return status;
}
