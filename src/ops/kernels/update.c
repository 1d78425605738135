/* update - descriptions of the optimizers' updates. */
#include "ops/kernel.h"

#define F32 SHOALI_ALWAYS(SHOAL_F32)

/* ---- adam ---- */

static int64_t adam_count(const void *block)
{
    return ((const struct shoali_adam_args *)block)->count;
}

static int64_t adam_control(const void *block)
{
    return adam_count(block) > 0 ? 3 : 0;
}

const struct shoali_kernel shoali_kernel_adam = {
    .type = {.name = "adam",
             .args_bytes = sizeof(struct shoali_adam_args),
             .pointers = {SHOALI_INOUT(adam, param, F32, SHOALI_COUNT(adam, count)),
                          SHOALI_INOUT(adam, exp_avg, F32, SHOALI_COUNT(adam, count)),
                          SHOALI_INOUT(adam, exp_avg_sq, F32, SHOALI_COUNT(adam, count)),
                          SHOALI_IN(adam, grad, F32, SHOALI_COUNT(adam, count)),
                          SHOALI_OPTIONAL_IN(adam, control, F32, SHOALI_COUNT_BY(adam_control)),
                          SHOALI_OPTIONAL_OUT(adam, low, SHOALI_OF(adam, low_dtype),
                                              SHOALI_COUNT(adam, count))}},
    .dtypes = {SHOALI_DTYPE_OF_OPTIONAL(adam, low_dtype, SHOALI_DTYPE_HALF, low)},
    .products = {{{SHOALI_SIZE(adam, count)}}},
};

shoal_status shoali_op_adam(const struct shoali_exec *exec, const struct shoali_adam_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_adam, args);
}

/* ---- sgd ---- */

static int64_t sgd_count(const void *block)
{
    return ((const struct shoali_sgd_args *)block)->count;
}

static int64_t sgd_buffer(const void *block)
{
    const struct shoali_sgd_args *args = block;
    return args->momentum != 0 ? args->count : 0;
}

static int64_t sgd_control(const void *block)
{
    return sgd_count(block) > 0 ? 3 : 0;
}

const struct shoali_kernel shoali_kernel_sgd = {
    .type = {.name = "sgd",
             .args_bytes = sizeof(struct shoali_sgd_args),
             .pointers = {SHOALI_INOUT(sgd, param, F32, SHOALI_COUNT(sgd, count)),
                          SHOALI_INOUT(sgd, momentum_buffer, F32, SHOALI_COUNT_BY(sgd_buffer)),
                          SHOALI_IN(sgd, grad, F32, SHOALI_COUNT(sgd, count)),
                          SHOALI_OPTIONAL_IN(sgd, control, F32, SHOALI_COUNT_BY(sgd_control)),
                          SHOALI_OPTIONAL_OUT(sgd, low, SHOALI_OF(sgd, low_dtype),
                                              SHOALI_COUNT(sgd, count))}},
    .dtypes = {SHOALI_DTYPE_OF_OPTIONAL(sgd, low_dtype, SHOALI_DTYPE_HALF, low)},
    .products = {{{SHOALI_SIZE(sgd, count)}}},
};

shoal_status shoali_op_sgd(const struct shoali_exec *exec, const struct shoali_sgd_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_sgd, args);
}
