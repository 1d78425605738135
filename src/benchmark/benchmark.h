/* benchmark - measures parts and the whole beside the limits of the same run. Level L9.
 *
 *   samples.c    samples of a figure; results for the sink; memory
 *   limits.c     multiply-add peak, axpy bandwidth, lines in and out, round trip of a cache line
 *   kernels.c    time of one kernel; which table serves it
 *   gemm.c, attention.c, stream.c, comm.c, comm_data.c, step.c, generate.c, io.c, checkpoint.c, tune_io.c, tune_comm.c   one subject each
 *   step_swap.c  the part of a step that a drive bounds
 *
 * A sample of a short thing is the best of many calls: what disturbs only makes it slower. A sample
 * of a whole step or of a file is what it took. Limits are sampled between, not before all.
 */
#ifndef SHOALI_BENCHMARK_H
#define SHOALI_BENCHMARK_H

#include "base/base.h"
#include "benchmark/bench.h"
#include "ops/ops.h"

enum { SHOALI_SAMPLES_MAX = 1000 };
struct shoali_samples {
    double value[SHOALI_SAMPLES_MAX];
    int32_t count;
};
void shoali_samples_add(struct shoali_samples *samples, double value);
/* 0 without samples. */
double shoali_samples_median(const struct shoali_samples *samples);
double shoali_samples_min(const struct shoali_samples *samples);
double shoali_samples_max(const struct shoali_samples *samples);

/* The defaults filled in; SHOAL_EINVAL for numbers that make no sense. */
SHOAL_CHECKED shoal_status shoali_bench_run_init(const shoali_bench_run *given,
                                                 shoali_bench_run *run);
/* Fills in median, min, max, repeats, limit and ratio and calls the sink. `limit` may be NULL. */
SHOAL_CHECKED shoal_status shoali_bench_emit(const shoali_bench_run *run,
                                             shoali_bench_result *result,
                                             const struct shoali_samples *figure,
                                             const struct shoali_samples *limit);

/* Memory on huge pages where the system has them, filled: numbers in [-0.5, 0.5). free() it. */
SHOAL_CHECKED shoal_status shoali_bench_numbers(int64_t count, shoal_dtype dtype, void **memory);
double shoali_seconds(void);

/* FLOP/s of independent multiply-adds by all threads of the pool, in 1e9; bf16: of the processor's
 * bf16 products where it has them. 0 where it is not known. */
double shoali_limit_fma(struct shoali_pool *pool, shoal_dtype dtype);
/* Bytes per second of x[i] += a y[i] (12 bytes each) by all threads of the pool, in 1e9. */
double shoali_limit_axpy(struct shoali_pool *pool, float *x, const float *y, int64_t count);
enum { SHOALI_BENCH_LINE = 64 }; /* bytes */
/* Bytes per second of a loop of all threads that reads so many lines of x, at least one,
 * writes the last of them so often to y past the caches, and so on for some rounds, in 1e9. Both begin
 * at lines; y may be NULL when nothing is written. */
double shoali_limit_lines(struct shoali_pool *pool, const float *x, float *y, int64_t rounds,
                          int32_t reads, int32_t writes);
/* Microseconds of a cache line's way to another core and back; 0 with one core. */
double shoali_limit_round_trip(void);

/* Pool and kernels of a run. */
struct shoali_bench {
    shoali_bench_run run;
    struct shoali_pool *pool;
    struct shoali_ops ops;
};
SHOAL_CHECKED shoal_status shoali_bench_init(struct shoali_bench *bench,
                                             const shoali_bench_run *run);
void shoali_bench_fini(struct shoali_bench *bench);
/* Calls the kernel once. */
void shoali_bench_call(const struct shoali_bench *bench, const struct shoali_kernel *kernel,
                       const void *args);
/* Seconds of one call: the best of as many as fit in seconds / repeats. */
double shoali_bench_time(const struct shoali_bench *bench, const struct shoali_kernel *kernel,
                         const void *args);

#endif
