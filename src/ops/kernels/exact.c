/* exact - descriptions of the exact reduction's kernels, of norms and of the step's verdict. */
#include "ops/kernel.h"

#define F32 SHOALI_ALWAYS(SHOAL_F32)
#define I64 SHOALI_ALWAYS(SHOAL_I64)
#define FLAG SHOALI_ALWAYS(SHOAL_I32)

/* ---- to_fixed ---- */

static int64_t to_fixed_count(const void *block)
{
    return ((const struct shoali_to_fixed_args *)block)->count;
}

static int64_t to_fixed_flag(const void *block)
{
    return to_fixed_count(block) > 0 ? 1 : 0;
}

static shoal_status check_to_fixed(const void *block)
{
    const struct shoali_to_fixed_args *args = block;
    return shoali_check_fixed("to_fixed", args->unit_log2, args->limit);
}

const struct shoali_kernel shoali_kernel_to_fixed = {
    .type = {.name = "to_fixed",
             .args_bytes = sizeof(struct shoali_to_fixed_args),
             .pointers = {SHOALI_IN(to_fixed, x, F32, SHOALI_COUNT(to_fixed, count)),
                          SHOALI_INOUT(to_fixed, fixed, I64, SHOALI_COUNT(to_fixed, count)),
                          SHOALI_INOUT(to_fixed, flag, FLAG, SHOALI_COUNT_BY(to_fixed_flag))}},
    .products = {{{SHOALI_SIZE(to_fixed, count)}}},
    .check = check_to_fixed,
};

shoal_status shoali_op_to_fixed(const struct shoali_exec *exec,
                                const struct shoali_to_fixed_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_to_fixed, args);
}

/* ---- from_fixed ---- */

static shoal_status check_from_fixed(const void *block)
{
    const struct shoali_from_fixed_args *args = block;
    const shoal_status status = shoali_check_kind("from_fixed", "unit_log2", args->unit_log2, 512);
    if (status == SHOAL_OK && args->divisor == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "from_fixed: the divisor is 0");
    return status;
}

const struct shoali_kernel shoali_kernel_from_fixed = {
    .type = {.name = "from_fixed",
             .args_bytes = sizeof(struct shoali_from_fixed_args),
             .pointers = {SHOALI_IN(from_fixed, fixed, I64, SHOALI_COUNT(from_fixed, count)),
                          SHOALI_OUT(from_fixed, y, F32, SHOALI_COUNT(from_fixed, count))}},
    .products = {{{SHOALI_SIZE(from_fixed, count)}}},
    .check = check_from_fixed,
};

shoal_status shoali_op_from_fixed(const struct shoali_exec *exec,
                                  const struct shoali_from_fixed_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_from_fixed, args);
}

/* ---- norm2 ---- */

static int64_t norm2_count(const void *block)
{
    return ((const struct shoali_norm2_args *)block)->count;
}

static int64_t norm2_limbs(const void *block)
{
    return norm2_count(block) > 0 ? 3 : 0;
}

static int64_t norm2_flag(const void *block)
{
    return norm2_count(block) > 0 ? 1 : 0;
}

const struct shoali_kernel shoali_kernel_norm2 = {
    .type = {.name = "norm2",
             .args_bytes = sizeof(struct shoali_norm2_args),
             .pointers = {SHOALI_IN(norm2, x, F32, SHOALI_COUNT(norm2, count)),
                          SHOALI_INOUT(norm2, limbs, I64, SHOALI_COUNT_BY(norm2_limbs)),
                          SHOALI_INOUT(norm2, flag, FLAG, SHOALI_COUNT_BY(norm2_flag))}},
    .products = {{{SHOALI_SIZE(norm2, count)}}},
};

shoal_status shoali_op_norm2(const struct shoali_exec *exec, const struct shoali_norm2_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_norm2, args);
}

/* ---- clip ---- */

static int64_t clip_three(const void *block)
{
    (void)block;
    return 3;
}

static int64_t clip_one(const void *block)
{
    (void)block;
    return 1;
}

static shoal_status check_clip(const void *block)
{
    const struct shoali_clip_args *args = block;
    if (args->loss_scale > 0)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "clip: the loss scale is %g; it must be positive",
                      args->loss_scale);
}

const struct shoali_kernel shoali_kernel_clip = {
    .type = {.name = "clip",
             .args_bytes = sizeof(struct shoali_clip_args),
             .pointers = {SHOALI_IN(clip, limbs, I64, SHOALI_COUNT_BY(clip_three)),
                          SHOALI_IN(clip, flag, FLAG, SHOALI_COUNT_BY(clip_one)),
                          SHOALI_OUT(clip, out, F32, SHOALI_COUNT_BY(clip_three))}},
    .check = check_clip,
};
