/* kernels.c - time of one kernel, called directly on host memory. */
#include "benchmark/benchmark.h"

#include <string.h>

shoal_status shoali_bench_init(struct shoali_bench *bench, const shoal_bench_run *run)
{
    shoal_status status;
    bench->pool = NULL;
    SHOAL_TRY(status, shoali_bench_run_init(run, &bench->run), done);
    SHOAL_TRY(status, shoali_ops_select(bench->run.ops, &bench->ops), done);
    SHOAL_TRY(status, shoali_pool_create(bench->run.threads, &bench->pool), done);
done:
    return status;
}

void shoali_bench_fini(struct shoali_bench *bench)
{
    shoali_pool_destroy(bench->pool);
}

shoali_kernel_fn shoali_bench_kernel(const struct shoali_bench *bench, size_t offset,
                                     shoal_dtype dtype)
{
    shoali_kernel_fn fn = NULL;
    for (int i = 0; bench->ops.chain[i]; i++) {
        const struct shoali_ops_table *table = bench->ops.chain[i];
        memcpy(&fn, (const char *)table + offset, sizeof fn);
        if (fn && (table->dtypes >> dtype & 1))
            break;
    }
    return fn;
}

double shoali_bench_time(const struct shoali_bench *bench, shoali_kernel_fn fn, const void *args)
{
    const double begin = shoali_seconds();
    double best = 1e30, end;
    do {
        const double start = shoali_seconds();
        fn(args, bench->pool);
        end = shoali_seconds();
        best = end - start < best ? end - start : best;
    } while (end - begin < bench->run.seconds / bench->run.repeats);
    return best;
}
