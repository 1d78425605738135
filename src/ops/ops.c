/* ops - which tables exist, which of them a rank uses, and the two kernels' fronts that are not a
 * launch. */
#include "ops/kernels.h"

#include <stdlib.h>
#include <string.h>

/* Best first. */
static const struct shoali_ops_table *const built[] = {
#if defined(SHOALI_OPS_CPU) && defined(__x86_64__)
    &shoali_ops_cpu_avx512_bf16,
    &shoali_ops_cpu_avx512,
    &shoali_ops_cpu_avx2,
#elif defined(SHOALI_OPS_CPU)
    &shoali_ops_cpu_generic,
#endif
    &shoali_ops_ref,
    NULL,
};
#define BUILT_COUNT (sizeof built / sizeof built[0] - 1)

const struct shoali_ops_table *const *shoali_ops_all(void)
{
    return built;
}

static shoal_status unknown_name(const char *name)
{
    const char *names[BUILT_COUNT];
    struct shoali_str list = {0};
    for (size_t i = 0; i < BUILT_COUNT; i++) {
        names[i] = built[i]->name;
        shoali_str_append(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = shoali_nearest(name, names, BUILT_COUNT);
    const shoal_status status =
        SHOAL_FAIL(SHOAL_ECONFIG, "kernel table '%s' is unknown%s%s%s; set SHOAL_OPS to one of: %s",
                   name, near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                   near != NULL ? "'?" : "", shoali_str_get(&list));
    shoali_str_fini(&list);
    return status;
}

shoal_status shoali_ops_select(const char *name, struct shoali_ops *ops)
{
    *ops = (struct shoali_ops){0};
    if (name == NULL)
        name = getenv("SHOAL_OPS");
    if (name != NULL && name[0] == '\0')
        name = NULL;
    size_t first = 0;
    while (name != NULL && first < BUILT_COUNT && strcmp(built[first]->name, name) != 0)
        first++;
    if (first == BUILT_COUNT)
        return unknown_name(name);
    if (name != NULL && !built[first]->probe())
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "this CPU cannot run the kernel table '%s'; leave SHOAL_OPS unset to use "
                          "the best that it can",
                          name);
    size_t used = 0;
    for (size_t i = first; i < BUILT_COUNT; i++) {
        SHOAL_ASSERT(built[i]->abi == SHOALI_OPS_ABI && built[i]->bytes == sizeof *built[i]);
        if (built[i]->probe())
            ops->chain[used++] = built[i];
    }
    ops->name = ops->chain[0]->name;
    return SHOAL_OK;
}

int32_t shoali_ops_kernel_count(void)
{
    return SHOALI_KERNEL_COUNT;
}

const char *shoali_ops_kernel_name(int32_t index)
{
    return shoali_kernel_rows[index].type.name;
}

const char *shoali_ops_kernel_source(const struct shoali_ops *ops, int32_t index, shoal_dtype dtype)
{
    return shoali_kernel_table(ops, (enum shoali_kernel)index, shoali_dtype_bit(dtype))->name;
}

/* ---- reduce_sources ---- */

static shoal_status check_reduce_sources(const struct shoali_reduce_sources_args *args)
{
    const enum shoali_kernel kernel = SHOALI_KERNEL_REDUCE_SOURCES;
    shoal_status status;
    SHOAL_TRY(status, SHOALI_CHECK_SIZES(kernel, NULL, {"count", args->count}), done);
    SHOAL_TRY(status, shoali_check_known(kernel, "dtype", args->dtype), done);
    SHOAL_TRY(status, shoali_check_kind(kernel, "op", (int64_t)args->op, SHOALI_AVG + 1), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "sources", args->sources, 1), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "destinations", args->destinations, 0), done);
    if (args->sources > SHOALI_REDUCE_MAX_SOURCES ||
        args->destinations > SHOALI_REDUCE_MAX_SOURCES) {
        status = SHOAL_FAIL(
            SHOAL_EINVAL, "reduce_sources: %d sources and %d destinations, but at most %d of each",
            (int)args->sources, (int)args->destinations, SHOALI_REDUCE_MAX_SOURCES);
        goto done;
    }
    const bool integer =
        args->dtype == SHOAL_I32 || args->dtype == SHOAL_I64 || args->dtype == SHOAL_U8;
    if ((integer && args->op == SHOALI_AVG) || (!integer && args->op == SHOALI_BOR)) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "reduce_sources: there is no %s of %s",
                            integer ? "average" : "bitwise or", shoal_dtype_name(args->dtype));
        goto done;
    }
    for (int32_t i = 0; i < args->sources && args->count > 0; i++)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"x[i]", args->x[i]}), done);
    for (int32_t i = 0; i < args->destinations && args->count > 0; i++)
        SHOAL_TRY(status, SHOALI_CHECK_POINTERS(kernel, {"y[i]", args->y[i]}), done);
done:
    return status;
}

void shoali_host_reduce(const struct shoali_ops *ops, const struct shoali_reduce_sources_args *args)
{
    SHOAL_ASSERT(check_reduce_sources(args) == SHOAL_OK);
    const uint32_t dtypes = shoali_dtype_bit(args->dtype);
    const enum shoali_kernel kernel = SHOALI_KERNEL_REDUCE_SOURCES;
    if (args->count > 0)
        shoali_kernel_in(shoali_kernel_table(ops, kernel, dtypes), kernel, dtypes)(args, NULL);
}

/* What is launched in its place: host pointers, which no accelerator translates. */
struct borrowed_args {
    const struct shoali_reduce_sources_args *args;
    shoali_kernel_fn fn;
};
static void run_borrowed(const void *args, struct shoali_pool *pool)
{
    const struct borrowed_args *borrowed = args;
    borrowed->fn(borrowed->args, pool);
}

shoal_status shoali_op_reduce_sources(const struct shoali_exec *exec,
                                      const struct shoali_reduce_sources_args *args)
{
    static const struct shoali_kernel_type type = {
        "reduce_sources", sizeof(struct borrowed_args), 0, {0}, 0, 0};
    const enum shoali_kernel kernel = SHOALI_KERNEL_REDUCE_SOURCES;
    const struct shoali_accelerator *accelerator =
        shoali_device_accelerator(shoali_stream_device(exec->stream));
    shoal_status status;
    SHOAL_TRY(status, check_reduce_sources(args), done);
    if (args->count == 0)
        goto done;
    /* Where the host may use device addresses work is done within the launch, so borrowing is safe.
     */
    if (!accelerator->host_accessible) {
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                            "reduce_sources: the memory of accelerator '%s' is closed to the host; "
                            "use a communication backend that stages through host memory",
                            accelerator->name);
        goto done;
    }
    const uint32_t dtypes = shoali_dtype_bit(args->dtype);
    const struct borrowed_args borrowed = {
        args, shoali_kernel_in(shoali_kernel_table(exec->ops, kernel, dtypes), kernel, dtypes)};
    SHOAL_TRY(status, shoali_launch(exec->stream, &type, run_borrowed, &borrowed), done);
done:
    return status;
}
