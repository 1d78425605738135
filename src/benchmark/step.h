/* step - what step.c, step_device.c and step_swap.c share. */
#ifndef SHOALI_BENCHMARK_STEP_H
#define SHOALI_BENCHMARK_STEP_H

#include "benchmark/benchmark.h"
#include "shoal/comm.h"
#include "shoal/engine.h"

#define SHOALI_STEP_ARRAYS 8 /* of a micro-batch at most */

struct shoali_step {
    const shoali_bench_step_args *args;
    shoali_bench_run run;
    struct shoali_pool *pool; /* for the limit; as many threads as the engine has */
    shoal_group *group;
    shoal_mesh *mesh; /* NULL: all ranks along dp */
    shoal_model *model;
    shoal_engine *engine;
    shoal_dataset *dataset; /* random tokens */
    shoal_loader *loader;
    int32_t *batch;                      /* owned: all arrays of a micro-batch, */
    int32_t *arrays[SHOALI_STEP_ARRAYS]; /* ... and each of them */
    int64_t sequence;
    double tokens_per_step; /* all ranks */
    struct shoali_samples rate, peak;
    struct shoali_samples forward, backward, reduce, update; /* ms of a step, this rank */
    struct shoali_bench on; /* of a device that is not the host; its own device is NULL elsewhere */
    struct shoali_samples copy, host; /* there: GB/s of the device, ms of a step by the host */
};
/* Of a device that is not the host: its limits, before the samples. Collective, as the others. */
SHOAL_CHECKED shoal_status shoali_step_device_open(struct shoali_step *step);
void shoali_step_device_close(struct shoali_step *step);
/* Around steps: replaces the host's seconds by those of the device. */
SHOAL_CHECKED shoal_status shoali_step_device_begin(struct shoali_step *step);
SHOAL_CHECKED shoal_status shoali_step_device_end(struct shoali_step *step, int32_t steps,
                                                  double *seconds);
/* This rank's GFLOP/s, of the device or of the host's threads. */
SHOAL_CHECKED shoal_status shoali_step_peak(struct shoali_step *step, double *gflops);
/* Makes step->engine from the configuration of the arguments, or from `text` instead. */
SHOAL_CHECKED shoal_status shoali_step_make_engine(struct shoali_step *step, const char *text);
/* Makes `steps` steps and adds a sample of each part of a step, the mean over the steps. */
SHOAL_CHECKED shoal_status shoali_step_train(struct shoali_step *step, int32_t steps,
                                             double *seconds);
/* Drops the samples of the parts of a step. */
void shoali_step_forget(struct shoali_step *step);

/* The update of masters and states that lie in a file, beside the drive and the same update without
 * the file. All collective. *swap stays NULL where nothing lies in a file. */
struct shoali_step_swap;
SHOAL_CHECKED shoal_status shoali_step_swap_create(struct shoali_step *step,
                                                   struct shoali_step_swap **swap);
void shoali_step_swap_destroy(struct shoali_step_swap *swap); /* NULL is fine */
/* Right before the steps of a sample: the drive. */
SHOAL_CHECKED shoal_status shoali_step_swap_sample(struct shoali_step_swap *swap,
                                                   struct shoali_step *step);
/* After the last sample: replaces the engine by one that keeps the states in host memory, and calls
 * the sink on rank 0. */
SHOAL_CHECKED shoal_status shoali_step_swap_finish(struct shoali_step_swap *swap,
                                                   struct shoali_step *step);

#endif
