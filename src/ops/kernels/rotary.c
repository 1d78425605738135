/* rotary - description of rotary positions. */
#include "ops/kernel.h"

static shoal_status check_pairs(const struct shoali_rotary_args *args)
{
    const int64_t size = args->rotary_size;
    if (size < 0 || size % 2 != 0 || size > args->head_size || size > 2 * SHOALI_ROTARY_PAIRS)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "rotary: rotary_size is %lld; it must be even, and at most the "
                          "head_size %lld and %d",
                          (long long)size, (long long)args->head_size, 2 * SHOALI_ROTARY_PAIRS);
    for (int64_t i = 0; i < size / 2; i++)
        if (!(args->inverse_frequency[i] >= 0 && args->inverse_frequency[i] <= 1))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "rotary: inverse_frequency[%lld] is %g; it must be from 0 to 1",
                              (long long)i, (double)args->inverse_frequency[i]);
    return SHOAL_OK;
}

static shoal_status check_rotary(const void *block)
{
    const struct shoali_rotary_args *args = block;
    shoal_status status;
    int64_t turned;
    SHOAL_TRY(status, shoali_check_at_least("rotary", "heads", args->heads, 0), done);
    SHOAL_TRY(status, shoali_check_at_least("rotary", "head_size", args->head_size, 1), done);
    if (!shoali_mul(args->heads, args->head_size, &turned)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "rotary: %lld heads of %lld elements are beyond 64 bits",
                            (long long)args->heads, (long long)args->head_size);
        goto done;
    }
    SHOAL_TRY(status, shoali_check_at_least("rotary", "columns", args->columns, turned), done);
    SHOAL_TRY(status, shoali_check_at_least("rotary", "first_position", args->first_position, 0),
              done);
    if (args->first_position > SHOALI_ROTARY_POSITIONS - args->length) {
        status = SHOAL_FAIL(
            SHOAL_EINVAL, "rotary: position %lld and the %lld after it reach the limit %d",
            (long long)args->first_position, (long long)args->length, SHOALI_ROTARY_POSITIONS);
        goto done;
    }
    SHOAL_TRY(status, check_pairs(args), done);
done:
    return status;
}

const struct shoali_kernel shoali_kernel_rotary = {
    .type = {.name = "rotary",
             .args_bytes = sizeof(struct shoali_rotary_args),
             .pointers = {SHOALI_IN(rotary, x, SHOALI_OF(rotary, dtype),
                                    SHOALI_COUNT3(rotary, batch, length, columns)),
                          SHOALI_INOUT(rotary, y, SHOALI_OF(rotary, dtype),
                                       SHOALI_COUNT3(rotary, batch, length, columns))}},
    .dtypes = {SHOALI_DTYPE(rotary, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(rotary, batch), SHOALI_SIZE(rotary, length),
                   SHOALI_SIZE(rotary, columns)}}},
    .check = check_rotary,
};

shoal_status shoali_op_rotary(const struct shoali_exec *exec, const struct shoali_rotary_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_rotary, args);
}
