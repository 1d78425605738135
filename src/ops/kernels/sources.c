/* sources - description of the collectives' arithmetic. */
#include "ops/kernel.h"

static int64_t destinations_count(const void *block)
{
    const struct shoali_reduce_sources_args *args = block;
    return args->destinations > 0 ? args->count : 0;
}

static shoal_status check_pointers(const char *array, const void *const *pointers, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (pointers[i] == NULL)
            return SHOAL_FAIL(SHOAL_EINVAL, "reduce_sources: %s[%d] of %d is NULL", array, (int)i,
                              (int)count);
    return SHOAL_OK;
}

static shoal_status check_sources(const void *block)
{
    static const char name[] = "reduce_sources";
    const struct shoali_reduce_sources_args *args = block;
    const bool integer =
        args->dtype == SHOAL_I32 || args->dtype == SHOAL_I64 || args->dtype == SHOAL_U8;
    const bool some = args->count > 0;
    shoal_status status;
    SHOAL_TRY(status, shoali_check_kind(name, "op", (int64_t)args->op, SHOALI_SUM_TREE + 1), done);
    SHOAL_TRY(status, shoali_check_at_least(name, "sources", args->sources, 1), done);
    SHOAL_TRY(status, shoali_check_at_least(name, "destinations", args->destinations, 0), done);
    if (args->sources > SHOALI_REDUCE_MAX_SOURCES ||
        args->destinations > SHOALI_REDUCE_MAX_SOURCES) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: %d sources and %d destinations, but at most %d of each", name,
                            (int)args->sources, (int)args->destinations, SHOALI_REDUCE_MAX_SOURCES);
        goto done;
    }
    if ((integer && args->op == SHOALI_AVG) || (!integer && args->op == SHOALI_BOR)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s: there is no %s of %s", name,
                            integer ? "average" : "bitwise or", shoal_dtype_name(args->dtype));
        goto done;
    }
    if (args->op == SHOALI_SUM_TREE && (args->sources & (args->sources - 1)) != 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: %d sources, but a binary tree joins a power of two of them", name,
                            (int)args->sources);
        goto done;
    }
    SHOAL_TRY(status, check_pointers("x", args->x, some ? args->sources : 0), done);
    SHOAL_TRY(status,
              check_pointers("y", (const void *const *)args->y, some ? args->destinations : 0),
              done);
done:
    return status;
}

/* Two arrays of pointers. The first of each array stands for all: whether there is anything to do.
 */
const struct shoali_kernel shoali_kernel_reduce_sources = {
    .type = {.name = "reduce_sources",
             .args_bytes = sizeof(struct shoali_reduce_sources_args),
             .pointers = {SHOALI_IN(reduce_sources, x[0], SHOALI_OF(reduce_sources, dtype),
                                    SHOALI_COUNT(reduce_sources, count)),
                          SHOALI_OUT(reduce_sources, y[0], SHOALI_OF(reduce_sources, dtype),
                                     SHOALI_COUNT_BY(destinations_count))}},
    .dtypes = {SHOALI_DTYPE(reduce_sources, dtype, SHOALI_DTYPE_ANY)},
    .products = {{{SHOALI_SIZE(reduce_sources, count)}}},
    .check = check_sources,
};

void shoali_host_reduce(const struct shoali_ops *ops, const struct shoali_reduce_sources_args *args)
{
    shoali_ops_run(ops, &shoali_kernel_reduce_sources, args);
}
