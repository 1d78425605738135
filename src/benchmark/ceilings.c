/* ceilings.c - what a device does at most: a copy within its memory, a square product.
 *
 * Both grow until they take a millisecond or so, because less shows the time of a launch. */
#include "benchmark/benchmark.h"
#include "ops/kernel.h"

#include <stdio.h>

enum { LEAST_SIDE = 64, MOST_SIDE = 8192, MOST_CALLS = 64 };
#define LEAST_COPY ((size_t)1 << 18)
#define MOST_COPY ((size_t)1 << 28)
#define GROWN_SECONDS 1e-3
#define SAMPLE_SECONDS 2e-3

/* ---- copies ---- */

static shoal_status time_copies(struct shoali_bench *bench, int32_t copies, double *seconds)
{
    const struct shoali_ceilings *ceilings = bench->ceilings;
    char *from = ceilings->copy, *to = from + ceilings->copy_bytes;
    shoal_status status;
    int64_t ns;
    SHOAL_TRY(status, shoali_event_record(bench->begin, bench->exec.stream), done);
    for (int32_t i = 0; i < copies; i++)
        SHOAL_TRY(status,
                  shoali_copy(bench->exec.stream, i % 2 ? from : to, i % 2 ? to : from,
                              ceilings->copy_bytes, SHOALI_DEVICE_TO_DEVICE),
                  done);
    SHOAL_TRY(status, shoali_event_record(bench->end, bench->exec.stream), done);
    SHOAL_TRY(status, shoali_event_elapsed(bench->begin, bench->end, &ns), done);
    *seconds = (double)(ns > 0 ? ns : 1) * 1e-9;
done:
    return status;
}

static int32_t calls_of(double seconds)
{
    const double calls = SAMPLE_SECONDS / seconds;
    return calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (int32_t)calls;
}

/* Half of what is free is left to what is measured, at the least. */
static bool has_room(const struct shoali_bench *bench, size_t bytes)
{
    int64_t total, available;
    shoali_device_memory(bench->device, &total, &available);
    return (double)bytes < 0.25 * (double)available;
}

static shoal_status choose_copy(struct shoali_bench *bench)
{
    struct shoali_ceilings *ceilings = bench->ceilings;
    shoal_status status;
    double seconds = 0;
    for (size_t bytes = LEAST_COPY;; bytes *= 2) {
        shoali_device_free(bench->device, ceilings->copy);
        ceilings->copy = NULL;
        ceilings->copy_bytes = bytes;
        SHOAL_TRY(status, shoali_device_alloc(bench->device, 2 * bytes, &ceilings->copy), done);
        SHOAL_TRY(status, shoali_fill(bench->exec.stream, ceilings->copy, 1, 2 * bytes), done);
        SHOAL_TRY(status, time_copies(bench, 2, &seconds), done); /* the first ones warm up */
        SHOAL_TRY(status, time_copies(bench, 1, &seconds), done);
        if (seconds >= GROWN_SECONDS || bytes >= MOST_COPY || !has_room(bench, 4 * bytes))
            break;
    }
    ceilings->copies = calls_of(seconds);
done:
    return status;
}

/* ---- products ---- */

static shoal_status make_product(struct shoali_bench *bench, int64_t side, shoal_dtype dtype)
{
    struct shoali_ceilings *ceilings = bench->ceilings;
    struct shoali_gemm_args *gemm = &ceilings->gemm;
    const int64_t count = side * side;
    void *a = NULL, *b = NULL, *c = NULL;
    const struct shoali_bench_array arrays[] = {SHOALI_BENCH_ARRAY(a, count, dtype),
                                                SHOALI_BENCH_ARRAY(b, count, dtype),
                                                SHOALI_BENCH_ARRAY(c, count, dtype)};
    shoali_operands_destroy(&ceilings->operands);
    const shoal_status status = shoali_operands_create(bench, arrays, 3, 0, &ceilings->operands);
    if (status < 0)
        return status;
    *gemm = (struct shoali_gemm_args){.a = a,
                                      .b = b,
                                      .c = c,
                                      .m = side,
                                      .n = side,
                                      .k = side,
                                      .lda = side,
                                      .ldb = side,
                                      .ldc = side,
                                      .dtype_ab = dtype,
                                      .dtype_c = dtype,
                                      .dtype_bias = dtype};
    return SHOAL_OK;
}

static shoal_status time_products(struct shoali_bench *bench, int32_t calls, double *seconds)
{
    return shoali_device_time(bench, &bench->ceilings->operands, &shoali_kernel_gemm,
                              &bench->ceilings->gemm, calls, seconds);
}

static shoal_status choose_product(struct shoali_bench *bench, shoal_dtype dtype)
{
    shoal_status status;
    double seconds = 0;
    for (int64_t side = LEAST_SIDE;; side *= 2) {
        SHOAL_TRY(status, make_product(bench, side, dtype), done);
        if (shoali_device_runs_on_host(bench, &shoali_kernel_gemm, &bench->ceilings->gemm))
            return SHOAL_OK;
        SHOAL_TRY(status, time_products(bench, bench->ceilings->operands.sets, &seconds), done);
        SHOAL_TRY(status, time_products(bench, 1, &seconds), done);
        if (seconds >= GROWN_SECONDS || side >= MOST_SIDE ||
            !has_room(bench, 4 * bench->ceilings->operands.set_bytes))
            break;
    }
    bench->ceilings->products = calls_of(seconds);
done:
    return status;
}

/* ---- both ---- */

shoal_status shoali_ceilings_sample(struct shoali_bench *bench, double *gbs, double *gflops)
{
    const struct shoali_ceilings *ceilings = bench->ceilings;
    const double side = (double)ceilings->gemm.m;
    shoal_status status;
    double seconds;
    SHOAL_TRY(status, time_copies(bench, ceilings->copies, &seconds), done);
    *gbs = 2e-9 * (double)ceilings->copy_bytes * ceilings->copies / seconds;
    *gflops = 0;
    if (ceilings->products == 0)
        return SHOAL_OK;
    SHOAL_TRY(status, time_products(bench, ceilings->products, &seconds), done);
    *gflops = 2e-9 * side * side * side * ceilings->products / seconds;
done:
    return status;
}

static shoal_status emit(struct shoali_bench *bench, const char *name, const char *unit,
                         const struct shoali_samples *samples)
{
    shoali_bench_result result = {
        .bench = bench->subject, .name = name, .unit = unit, .emulated = bench->facts.emulated};
    return shoali_bench_emit(&bench->run, &result, samples, NULL);
}

static shoal_status emit_both(struct shoali_bench *bench, shoal_dtype dtype)
{
    struct shoali_samples copy = {.count = 0}, product = {.count = 0};
    const struct shoali_ceilings *ceilings = bench->ceilings;
    const long long side = (long long)ceilings->gemm.m;
    shoal_status status;
    char name[96];
    for (int32_t i = 0; i < bench->run.repeats; i++) {
        double gbs, gflops;
        SHOAL_TRY(status, shoali_ceilings_sample(bench, &gbs, &gflops), done);
        shoali_samples_add(&copy, gbs);
        shoali_samples_add(&product, gflops);
    }
    snprintf(name, sizeof name, "the device's copy of %zu KiB", ceilings->copy_bytes >> 10);
    SHOAL_TRY(status, emit(bench, name, "GB/s", &copy), done);
    if (ceilings->products == 0)
        goto done;
    snprintf(name, sizeof name, "the device's product %lldx%lldx%lld %s", side, side, side,
             shoal_dtype_name(dtype));
    SHOAL_TRY(status, emit(bench, name, "GFLOP/s", &product), done);
done:
    return status;
}

shoal_status shoali_ceilings_create(struct shoali_bench *bench, shoal_dtype dtype)
{
    shoal_status status;
    bench->ceilings = shoali_calloc(1, sizeof *bench->ceilings, "a device's limits");
    if (bench->ceilings == NULL)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, choose_copy(bench), done);
    SHOAL_TRY(status, choose_product(bench, dtype), done);
    SHOAL_TRY(status, emit_both(bench, dtype), done);
done:
    return status;
}

void shoali_ceilings_destroy(struct shoali_bench *bench)
{
    if (bench->ceilings == NULL)
        return;
    if (bench->ceilings->copy != NULL)
        shoali_device_free(bench->device, bench->ceilings->copy);
    shoali_operands_destroy(&bench->ceilings->operands);
    shoali_free(bench->ceilings);
    bench->ceilings = NULL;
}
