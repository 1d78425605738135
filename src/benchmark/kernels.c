/* kernels.c - time of one kernel, called directly on host memory. */
#include "benchmark/benchmark.h"

shoal_status shoali_bench_init(struct shoali_bench *bench, const shoali_bench_run *run)
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

double shoali_bench_time(const struct shoali_bench *bench, const struct shoali_kernel *kernel,
                         const void *args)
{
    const struct shoali_kernel_context context = {.threads = bench->pool};
    const shoali_kernel_fn fn = shoali_ops_choose(&bench->ops, kernel, args, NULL)->fn;
    const double begin = shoali_seconds();
    double best = 1e30, end;
    do {
        const double start = shoali_seconds();
        fn(args, &context);
        end = shoali_seconds();
        best = end - start < best ? end - start : best;
    } while (end - begin < bench->run.seconds / bench->run.repeats);
    return best;
}

void shoali_bench_call(const struct shoali_bench *bench, const struct shoali_kernel *kernel,
                       const void *args)
{
    const struct shoali_kernel_context context = {.threads = bench->pool};
    shoali_ops_choose(&bench->ops, kernel, args, NULL)->fn(args, &context);
}
