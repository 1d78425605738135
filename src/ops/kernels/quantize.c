/* quantize - descriptions of what makes and reads quantized messages. */
#include "ops/kernel.h"

static shoal_status check_bits(const char *kernel, int32_t bits)
{
    return bits == 4 || bits == 8
               ? SHOAL_OK
               : SHOAL_FAIL(SHOAL_EINVAL, "%s: %d bits: give 4 or 8", kernel, (int)bits);
}

static int64_t quantize_message(const void *block)
{
    const struct shoali_quantize_args *args = block;
    return shoali_quantized_bytes(args->count, args->bits);
}

static shoal_status check_quantize(const void *block)
{
    return check_bits("quantize", ((const struct shoali_quantize_args *)block)->bits);
}

const struct shoali_kernel shoali_kernel_quantize = {
    .type = {.name = "quantize",
             .args_bytes = sizeof(struct shoali_quantize_args),
             .pointers = {SHOALI_IN(quantize, x, SHOALI_OF(quantize, dtype),
                                    SHOALI_COUNT(quantize, count)),
                          SHOALI_OUT(quantize, message, SHOALI_ALWAYS(SHOAL_U8),
                                     SHOALI_COUNT_BY(quantize_message))}},
    .dtypes = {SHOALI_DTYPE(quantize, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(quantize, count)}}},
    .check = check_quantize,
};

shoal_status shoali_op_quantize(const struct shoali_exec *exec,
                                const struct shoali_quantize_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_quantize, args);
}

/* ---- dequantize ---- */

static int64_t dequantize_message(const void *block)
{
    const struct shoali_dequantize_args *args = block;
    return shoali_quantized_bytes(args->count, args->bits);
}

static shoal_status check_dequantize(const void *block)
{
    return check_bits("dequantize", ((const struct shoali_dequantize_args *)block)->bits);
}

const struct shoali_kernel shoali_kernel_dequantize = {
    .type = {.name = "dequantize",
             .args_bytes = sizeof(struct shoali_dequantize_args),
             .pointers = {SHOALI_IN(dequantize, message, SHOALI_ALWAYS(SHOAL_U8),
                                    SHOALI_COUNT_BY(dequantize_message)),
                          SHOALI_INOUT(dequantize, y, SHOALI_OF(dequantize, dtype),
                                       SHOALI_COUNT(dequantize, count))}},
    .dtypes = {SHOALI_DTYPE(dequantize, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(dequantize, count)}}},
    .check = check_dequantize,
};

shoal_status shoali_op_dequantize(const struct shoali_exec *exec,
                                  const struct shoali_dequantize_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_dequantize, args);
}
