/* io - what io.c and tune_io.c share. */
#ifndef SHOALI_BENCHMARK_IO_H
#define SHOALI_BENCHMARK_IO_H

#include "benchmark/benchmark.h"

/* Medians, bytes per second in 1e9; 0: not asked for. */
struct shoali_io_speed {
    double read, write;
};
/* Measures one setting, whose defaults are filled in, and calls the sink of `run`. */
SHOAL_CHECKED shoal_status shoali_bench_io_measure(const shoali_bench_io_args *args,
                                                   const shoali_bench_run *run,
                                                   struct shoali_io_speed *speed);
/* Fills in the defaults; seconds and repeats are those of a figure where none are given. */
SHOAL_CHECKED shoal_status shoali_bench_io_init(const shoali_bench_io_args *given, double seconds,
                                                int32_t repeats, shoali_bench_io_args *args,
                                                shoali_bench_run *run);

#endif
