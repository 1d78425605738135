/* benchmark - measures parts and the whole beside the limits of the same run. Level L10.
 *
 *   samples.c    samples of a figure; results for the sink; memory
 *   limits.c     multiply-add peak, axpy bandwidth, lines in and out, round trip of a cache line
 *   kernels.c    the accelerator, time of one kernel, which table serves it
 *   operands.c   the arrays of a call, on the host or in sets on a device
 *   device.c     figures of a device's kernels, by its events
 *   ceilings.c   what a device does at most: copies, products
 *   gemm.c, attention.c, stream.c, comm.c, comm_data.c, step.c, generate.c, io.c, checkpoint.c, tune_io.c, tune_comm.c   one subject each
 *   step_device.c  a step by a device's clock
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
/* SHOAL_EINVAL: so many numbers are none, or more than any memory has. */
SHOAL_CHECKED shoal_status shoali_bench_check_count(int64_t count);
/* One array of a kernel's call. */
struct shoali_bench_array {
    void *at; /* of the pointer that its address goes to */
    int64_t count;
    shoal_dtype dtype;
    const void *from; /* what it holds; NULL: numbers in [-0.5, 0.5), or zeros */
    bool zeros;
};
#define SHOALI_BENCH_ARRAY(pointer, elements, type) \
    ((struct shoali_bench_array){.at = &(pointer), .count = (elements), .dtype = (type)})
#define SHOALI_BENCH_ZEROS(pointer, elements, type) \
    ((struct shoali_bench_array){                   \
        .at = &(pointer), .count = (elements), .dtype = (type), .zeros = true})

/* FLOP/s of independent multiply-adds by all threads of the pool, in 1e9; bf16: of the processor's
 * bf16 products where it has them. 0 where it is not known. */
double shoali_limit_fma(struct shoali_pool *pool, shoal_dtype dtype);
/* Bytes per second of x[i] += a y[i] (12 bytes each) by all threads of the pool, in 1e9. */
double shoali_limit_axpy(struct shoali_pool *pool, float *x, const float *y, int64_t count);
enum { SHOALI_BENCH_LINE = 64 }; /* bytes */
/* Bytes per second of a loop of all threads that reads so many lines of x, at least one,
 * writes the last of them so often to y past the caches, and so on for some rounds, in 1e9. Both
 * begin at lines; y may be NULL when nothing is written. */
double shoali_limit_lines(struct shoali_pool *pool, const float *x, float *y, int64_t rounds,
                          int32_t reads, int32_t writes);
/* Microseconds of a cache line's way to another core and back; 0 with one core. */
double shoali_limit_round_trip(void);

/* Pool and kernels of a run, and the device of an accelerator whose memory is not the host's. */
struct shoali_bench {
    shoali_bench_run run;
    struct shoali_pool *pool;
    struct shoali_ops ops;
    struct shoali_device *device; /* NULL: kernels are called on host memory */
    const char *subject;
    bool borrowed; /* the device is somebody else's */
    struct shoali_device_facts facts;
    struct shoali_exec exec;
    struct shoali_event *begin, *end;
    struct shoali_ceilings *ceilings;
};
/* `subject` is for messages. *bench is zeros before. */
SHOAL_CHECKED shoal_status shoali_bench_init(struct shoali_bench *bench, const char *subject,
                                             const shoali_bench_run *run);
/* The same on the host, whatever accelerator is chosen. */
SHOAL_CHECKED shoal_status shoali_bench_init_on_host(struct shoali_bench *bench,
                                                     const shoali_bench_run *run);
/* The same for a device that is there, without a pool. */
SHOAL_CHECKED shoal_status shoali_bench_init_on(struct shoali_bench *bench, const char *subject,
                                                const shoali_bench_run *run,
                                                struct shoali_device *device);
void shoali_bench_fini(struct shoali_bench *bench);
/* Of a device: tells run.on_device what it is. */
SHOAL_CHECKED shoal_status shoali_bench_say_device(const struct shoali_bench *bench);

/* All arrays of a kernel's call. On a device there are several sets one behind the other, of which
 * the addresses are those of the first. */
enum { SHOALI_BENCH_ARRAYS = 12 };
struct shoali_operands {
    const struct shoali_bench *bench;
    void *host[SHOALI_BENCH_ARRAYS];
    char *base; /* on a device */
    size_t set_bytes;
    int32_t sets, next;
};
/* touched_bytes: what a call touches of a set, at the least; 0: all. *operands is zeros before, and
 * is destroyed after a failure too. */
SHOAL_CHECKED shoal_status shoali_operands_create(const struct shoali_bench *bench,
                                                  const struct shoali_bench_array *arrays,
                                                  int32_t count, size_t touched_bytes,
                                                  struct shoali_operands *operands);
void shoali_operands_destroy(struct shoali_operands *operands);
/* Queues a call on the next set of a device's. */
SHOAL_CHECKED shoal_status shoali_operands_launch(struct shoali_operands *operands,
                                                  const struct shoali_kernel *kernel,
                                                  const void *args);

/* Of a device: one figure. GFLOP/s stands beside the product of the same run, GB/s beside the copy.
 * Prints that a kernel is not timed because it runs on the host. The first one says what the device
 * is and measures its limits. */
struct shoali_device_figure {
    const char *bench, *name;
    shoal_dtype dtype; /* of the product that is a limit */
    const struct shoali_kernel *kernel;
    const void *args; /* on the first set */
    struct shoali_operands *operands;
    double flops, bytes; /* of a call; flops 0: a figure in GB/s */
    double us, limit_us; /* results: of a call; 0: not timed */
};
SHOAL_CHECKED shoal_status shoali_device_measure(struct shoali_bench *bench,
                                                 struct shoali_device_figure *figure);
/* Whether a call runs on the host, with copies from and to the device. */
bool shoali_device_runs_on_host(const struct shoali_bench *bench,
                                const struct shoali_kernel *kernel, const void *args);
/* Seconds of `calls` calls by the device's clock. */
SHOAL_CHECKED shoal_status shoali_device_time(struct shoali_bench *bench,
                                              struct shoali_operands *operands,
                                              const struct shoali_kernel *kernel, const void *args,
                                              int32_t calls, double *seconds);

/* What the device does at most, in GFLOP/s and GB/s (bytes read and written). create chooses their
 * sizes and emits both as figures; sample measures once more. A device without products of its own
 * has 0 GFLOP/s. */
struct shoali_ceilings {
    struct shoali_operands operands; /* of the product */
    struct shoali_gemm_args gemm;
    void *copy; /* two arrays */
    size_t copy_bytes;
    int32_t copies, products; /* of a sample */
};
SHOAL_CHECKED shoal_status shoali_ceilings_create(struct shoali_bench *bench, shoal_dtype dtype);
SHOAL_CHECKED shoal_status shoali_ceilings_sample(struct shoali_bench *bench, double *gbs,
                                                  double *gflops);
void shoali_ceilings_destroy(struct shoali_bench *bench);
/* Calls the kernel once. */
void shoali_bench_call(const struct shoali_bench *bench, const struct shoali_kernel *kernel,
                       const void *args);
/* Seconds of one call: the best of as many as fit in seconds / repeats. */
double shoali_bench_time(const struct shoali_bench *bench, const struct shoali_kernel *kernel,
                         const void *args);

#endif
