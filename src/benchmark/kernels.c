/* kernels.c - the accelerator of a run; time of one kernel, called directly on host memory. */
#include "benchmark/benchmark.h"

/* ---- the device ---- */

shoal_status shoali_bench_say_device(const struct shoali_bench *bench)
{
    const shoali_bench_device said = {.bench = bench->subject,
                                      .accelerator = shoali_device_accelerator(bench->device)->name,
                                      .name = bench->facts.name,
                                      .capability = bench->facts.capability,
                                      .driver = bench->facts.driver,
                                      .index = shoali_device_index(bench->device),
                                      .emulated = bench->facts.emulated};
    return bench->run.on_device ? bench->run.on_device(bench->run.user, &said) : SHOAL_OK;
}

shoal_status shoali_bench_init_on(struct shoali_bench *bench, const char *subject,
                                  const shoali_bench_run *run, struct shoali_device *device)
{
    shoal_status status;
    bench->borrowed = bench->device == NULL;
    bench->device = device;
    bench->subject = subject;
    SHOAL_TRY(status, shoali_bench_run_init(run, &bench->run), done);
    SHOAL_TRY(status,
              shoali_ops_select(bench->run.ops, shoali_device_accelerator(device), &bench->ops),
              done);
    SHOAL_TRY(status, shoali_stream_create(device, &bench->exec.stream), done);
    SHOAL_TRY(status, shoali_event_create_timed(device, &bench->begin), done);
    SHOAL_TRY(status, shoali_event_create_timed(device, &bench->end), done);
    bench->exec.ops = &bench->ops;
    shoali_device_get_facts(device, &bench->facts);
done:
    return status;
}

shoal_status shoali_bench_init_on_host(struct shoali_bench *bench, const shoali_bench_run *run)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_bench_run_init(run, &bench->run), done);
    SHOAL_TRY(status, shoali_ops_select(bench->run.ops, NULL, &bench->ops), done);
    SHOAL_TRY(status, shoali_pool_create(bench->run.threads, &bench->pool), done);
done:
    return status;
}

shoal_status shoali_bench_init(struct shoali_bench *bench, const char *subject,
                               const shoali_bench_run *run)
{
    shoal_status status;
    const struct shoali_accelerator *accelerator;
    SHOAL_TRY(status, shoali_bench_run_init(run, &bench->run), done);
    SHOAL_TRY(status, shoali_accelerator_select(run->accelerator, &accelerator), done);
    if (run->device < 0 || run->device >= accelerator->device_count())
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "bench %s: --device is %d, and accelerator %s has %d: give a number from "
                          "0 to %d",
                          subject, (int)run->device, accelerator->name,
                          (int)accelerator->device_count(), (int)accelerator->device_count() - 1);
    if (accelerator->host_accessible)
        return shoali_bench_init_on_host(bench, run);
    SHOAL_TRY(status, shoali_pool_create(bench->run.threads, &bench->pool), done);
    SHOAL_TRY(status, shoali_device_create(accelerator, run->device, bench->pool, &bench->device),
              done);
    SHOAL_TRY(status, shoali_bench_init_on(bench, subject, run, bench->device), done);
done:
    return status;
}

void shoali_bench_fini(struct shoali_bench *bench)
{
    shoali_ceilings_destroy(bench);
    shoali_event_destroy(bench->begin);
    shoali_event_destroy(bench->end);
    shoali_stream_destroy(bench->exec.stream);
    if (!bench->borrowed)
        shoali_device_destroy(bench->device);
    shoali_pool_destroy(bench->pool);
}

/* ---- on the host ---- */

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
