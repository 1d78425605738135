/* kernel - what is done with a description: checks, the question whether there is work, the launch.
 */
#include "ops/kernel.h"

#include <string.h>

int64_t shoali_extent(int64_t rows, int64_t stride, int64_t columns)
{
    int64_t before;
    if (rows <= 0 || columns <= 0)
        return 0;
    if (!shoali_mul(rows - 1, stride, &before) || before > INT64_MAX - columns)
        return INT64_MAX;
    return before + columns;
}

/* ---- checks of the lists ---- */

static shoal_status check_product(const struct shoali_kernel *kernel,
                                  const struct shoali_kernel_product *product, const void *args)
{
    int64_t value[SHOALI_KERNEL_MAX_FACTORS], total = 1;
    bool empty = false;
    int count = 0;
    for (; count < SHOALI_KERNEL_MAX_FACTORS && product->factor[count].name != NULL; count++) {
        memcpy(&value[count], (const char *)args + product->factor[count].offset, sizeof total);
        if (value[count] < 0)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %lld; a size is at least 0",
                              kernel->type.name, product->factor[count].name,
                              (long long)value[count]);
        empty = empty || value[count] == 0;
    }
    for (int i = 0; i < count && !empty; i++)
        if (!shoali_mul(total, value[i], &total))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s: the product of its sizes up to %s = %lld is beyond 64 bits",
                              kernel->type.name, product->factor[i].name, (long long)value[i]);
    return SHOAL_OK;
}

static bool counts(const struct shoali_kernel_dtype *member, const void *args)
{
    const void *pointer = args;
    if (member->of_optional != 0)
        memcpy(&pointer, (const char *)args + member->of_optional, sizeof pointer);
    return pointer != NULL;
}

static shoal_dtype dtype_of(const struct shoali_kernel_dtype *member, const void *args)
{
    shoal_dtype dtype;
    memcpy(&dtype, (const char *)args + member->offset, sizeof dtype);
    return dtype;
}

static shoal_status check_dtype(const struct shoali_kernel *kernel,
                                const struct shoali_kernel_dtype *member, const void *args)
{
    const shoal_dtype dtype = dtype_of(member, args);
    const bool half = dtype == SHOAL_BF16 || dtype == SHOAL_F16;
    const char *name = kernel->type.name;
    if (!counts(member, args))
        return SHOAL_OK;
    if (shoal_dtype_bytes(dtype) == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %d, which is no element type", name,
                          member->name, (int)dtype);
    if (member->allowed == SHOALI_DTYPE_FLOAT && !half && dtype != SHOAL_F32 && dtype != SHOAL_F64)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %s; it must be F32, BF16, F16 or F64", name,
                          member->name, shoal_dtype_name(dtype));
    if (member->allowed == SHOALI_DTYPE_HALF && !half)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %s; it must be BF16 or F16", name, member->name,
                          shoal_dtype_name(dtype));
    return SHOAL_OK;
}

/* An array with elements in it is there, unless it is optional; *empty: nothing is written. */
static shoal_status check_pointers(const struct shoali_kernel *kernel, const void *args,
                                   bool *empty)
{
    const struct shoali_kernel_pointer *missing = NULL;
    *empty = true;
    for (const struct shoali_kernel_pointer *at = kernel->type.pointers; at->name != NULL; at++) {
        const bool given = shoali_kernel_pointer_value(at, args) != NULL;
        if (shoali_kernel_pointer_count(at, args) == 0)
            continue;
        if ((at->use & SHOALI_WRITES) != 0 && (given || !at->optional))
            *empty = false;
        if (!given && !at->optional && missing == NULL)
            missing = at;
    }
    if (*empty || missing == NULL)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is NULL; only the optional arrays may be",
                      kernel->type.name, missing->name);
}

shoal_status shoali_kernel_check(const struct shoali_kernel *kernel, const void *args, bool *empty)
{
    shoal_status status = SHOAL_OK;
    *empty = true;
    for (int i = 0; i < SHOALI_KERNEL_MAX_PRODUCTS; i++)
        SHOAL_TRY(status, check_product(kernel, &kernel->products[i], args), done);
    for (int i = 0; kernel->dtypes[i].name != NULL; i++)
        SHOAL_TRY(status, check_dtype(kernel, &kernel->dtypes[i], args), done);
    if (kernel->check != NULL)
        SHOAL_TRY(status, kernel->check(args), done);
    SHOAL_TRY(status, check_pointers(kernel, args, empty), done);
done:
    return status;
}

uint32_t shoali_kernel_dtypes_of(const struct shoali_kernel *kernel, const void *args)
{
    uint32_t bits = 0;
    for (int i = 0; kernel->dtypes[i].name != NULL; i++)
        if (!kernel->dtypes[i].beside && counts(&kernel->dtypes[i], args))
            bits |= shoali_dtype_bit(dtype_of(&kernel->dtypes[i], args));
    return bits;
}

/* ---- launch ---- */

/* A device of a plan runs nothing, so the entry says what the function would take. */
static shoal_status plan_workspace(const struct shoali_exec *exec,
                                   const struct shoali_ops_table *table,
                                   const struct shoali_ops_entry *entry, const void *args)
{
    struct shoali_device *device = shoali_stream_device(exec->stream);
    void *address;
    if (!shoali_device_is_meta(device))
        return SHOAL_OK;
    if (entry->workspace)
        shoali_device_count_workspace(device,
                                      entry->workspace(args, shoali_device_threads(device)));
    const size_t bytes = table->stream_workspace ? table->stream_workspace(entry->kernel, args) : 0;
    return bytes > 0 ? shoali_stream_workspace(exec->stream, bytes, &address) : SHOAL_OK;
}

shoal_status shoali_kernel_launch(const struct shoali_exec *exec,
                                  const struct shoali_kernel *kernel, const void *args)
{
    shoal_status status;
    bool empty;
    SHOAL_TRY(status, shoali_kernel_check(kernel, args, &empty), done);
    if (empty)
        goto done;
    const struct shoali_ops_table *table;
    const struct shoali_ops_entry *entry = shoali_ops_choose(exec->ops, kernel, args, &table);
    SHOAL_TRY(status, plan_workspace(exec, table, entry, args), done);
    if (exec->ops->staged && table->memory == NULL) {
        SHOAL_TRY(status, shoali_kernel_stage(exec, kernel, entry, args), done);
        goto done;
    }
    SHOAL_TRY(status, shoali_launch(exec->stream, &kernel->type, entry->fn, args), done);
done:
    return status;
}

/* ---- for checks of their own ---- */

shoal_status shoali_check_at_least(const char *kernel, const char *name, int64_t value,
                                   int64_t least)
{
    if (value >= least)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %lld but must be at least %lld", kernel, name,
                      (long long)value, (long long)least);
}

shoal_status shoali_check_kind(const char *kernel, const char *name, int64_t value, int64_t end)
{
    if (value >= 0 && value < end)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %lld but must be 0 ... %lld", kernel, name,
                      (long long)value, (long long)(end - 1));
}

shoal_status shoali_check_probability(const char *kernel, float probability)
{
    if (probability >= 0 && probability < 1)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s: the dropout probability is %g but must be at least 0 and less than 1",
                      kernel, (double)probability);
}

shoal_status shoali_check_stride(const char *kernel, const char *name, int64_t stride, int64_t rows,
                                 int64_t columns)
{
    if (stride >= columns || rows <= 1)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s: %s is %lld but the stored matrix has %lld columns", kernel,
                      name, (long long)stride, (long long)columns);
}

shoal_status shoali_check_fixed(const char *kernel, int32_t unit_log2, double limit)
{
    const shoal_status status = shoali_check_kind(kernel, "unit_log2", unit_log2, 512);
    double largest = limit;
    for (int32_t i = 0; status == SHOAL_OK && i < unit_log2; i++)
        largest *= 2;
    if (status == SHOAL_OK && !(largest > 0 && largest <= 0x1p63))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: limit %g in units of 2^-%d must be positive and fit 63 bits", kernel,
                          limit, (int)unit_log2);
    return status;
}

shoal_status shoali_check_runs(const char *kernel, const struct shoali_runs *runs, int64_t count)
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
                            kernel, (long long)covered, (long long)count);
}
