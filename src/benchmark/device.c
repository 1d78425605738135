/* device.c - figures of a device's kernels, by its own clock. */
#include "benchmark/benchmark.h"
#include "ops/kernel.h"

enum { MOST_CALLS = 4096 };

/* A block that no launch takes is of a kernel for the host alone. */
bool shoali_device_runs_on_host(const struct shoali_bench *bench,
                                const struct shoali_kernel *kernel, const void *args)
{
    const struct shoali_ops_table *table;
    (void)shoali_ops_choose(&bench->ops, kernel, args, &table);
    return (bench->ops.staged && table->memory == NULL) ||
           kernel->type.args_bytes > SHOALI_KERNEL_MAX_ARGS;
}

shoal_status shoali_device_time(struct shoali_bench *bench, struct shoali_operands *operands,
                                const struct shoali_kernel *kernel, const void *args, int32_t calls,
                                double *seconds)
{
    shoal_status status;
    int64_t ns;
    SHOAL_TRY(status, shoali_event_record(bench->begin, bench->exec.stream), done);
    for (int32_t i = 0; i < calls; i++)
        SHOAL_TRY(status, shoali_operands_launch(operands, kernel, args), done);
    SHOAL_TRY(status, shoali_event_record(bench->end, bench->exec.stream), done);
    SHOAL_TRY(status, shoali_event_elapsed(bench->begin, bench->end, &ns), done);
    *seconds = (double)(ns > 0 ? ns : 1) * 1e-9;
done:
    return status;
}

/* Each set once, apart from what is timed; then how many calls a sample has. */
static shoal_status warm_up(struct shoali_bench *bench, struct shoali_device_figure *figure,
                            int32_t *calls)
{
    shoal_status status;
    double seconds;
    const double share = bench->run.seconds / bench->run.repeats;
    SHOAL_TRY(status,
              shoali_device_time(bench, figure->operands, figure->kernel, figure->args,
                                 figure->operands->sets, &seconds),
              done);
    SHOAL_TRY(
        status,
        shoali_device_time(bench, figure->operands, figure->kernel, figure->args, 1, &seconds),
        done);
    *calls = share / seconds < MOST_CALLS ? (int32_t)(share / seconds) : MOST_CALLS;
    *calls = *calls > 1 ? *calls : 1;
done:
    return status;
}

static shoal_status emit_untimed(struct shoali_bench *bench,
                                 const struct shoali_device_figure *figure)
{
    shoali_bench_result result = {.bench = figure->bench,
                                  .name = figure->name,
                                  .unit = figure->flops > 0 ? "GFLOP/s" : "GB/s",
                                  .untimed = "runs on the host, with copies from and to the device",
                                  .emulated = bench->facts.emulated};
    return bench->run.sink(bench->run.user, &result);
}

static shoal_status emit(struct shoali_bench *bench, const struct shoali_device_figure *figure,
                         const struct shoali_samples *rate, const struct shoali_samples *limit,
                         double copy)
{
    const bool computes = figure->flops > 0;
    const double moved = figure->bytes * 1e-3 / figure->us;
    const shoali_bench_value values[] = {{"time", "us", figure->us},
                                         {"input", "sets", figure->operands->sets},
                                         {"memory", "GB/s", moved},
                                         {"of the copy", "%", 100 * moved / copy}};
    shoali_bench_result result = {.bench = figure->bench,
                                  .name = figure->name,
                                  .unit = computes ? "GFLOP/s" : "GB/s",
                                  .limit_name = computes ? "product" : "copy",
                                  .values = values,
                                  .value_count = computes ? 4 : 2,
                                  .emulated = bench->facts.emulated};
    return shoali_bench_emit(&bench->run, &result, rate, limit);
}

shoal_status shoali_device_measure(struct shoali_bench *bench, struct shoali_device_figure *figure)
{
    shoal_status status;
    struct shoali_samples rate = {.count = 0}, limit = {.count = 0}, copy = {.count = 0};
    const double work = (figure->flops > 0 ? figure->flops : figure->bytes) * 1e-9;
    int32_t calls;
    figure->us = figure->limit_us = 0;
    if (bench->ceilings == NULL) {
        SHOAL_TRY(status, shoali_bench_say_device(bench), done);
        SHOAL_TRY(status, shoali_ceilings_create(bench, figure->dtype), done);
    }
    if (shoali_device_runs_on_host(bench, figure->kernel, figure->args))
        return emit_untimed(bench, figure);
    SHOAL_TRY(status, warm_up(bench, figure, &calls), done);
    for (int32_t i = 0; i < bench->run.repeats; i++) {
        double gbs, gflops, seconds;
        SHOAL_TRY(status, shoali_ceilings_sample(bench, &gbs, &gflops), done);
        SHOAL_TRY(status,
                  shoali_device_time(bench, figure->operands, figure->kernel, figure->args, calls,
                                     &seconds),
                  done);
        shoali_samples_add(&copy, gbs);
        shoali_samples_add(&limit, figure->flops > 0 ? gflops : gbs);
        shoali_samples_add(&rate, work * calls / seconds);
    }
    figure->us = work * 1e6 / shoali_samples_median(&rate);
    if (shoali_samples_median(&limit) > 0)
        figure->limit_us = work * 1e6 / shoali_samples_median(&limit);
    SHOAL_TRY(status, emit(bench, figure, &rate, &limit, shoali_samples_median(&copy)), done);
done:
    return status;
}
