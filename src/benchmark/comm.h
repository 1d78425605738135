/* comm - what comm.c and comm_data.c share. */
#ifndef SHOALI_BENCHMARK_COMM_H
#define SHOALI_BENCHMARK_COMM_H

#include "benchmark/benchmark.h"
#include "shoal/comm.h"

enum shoali_bench_collective {
    SHOALI_BENCH_ALL_REDUCE,
    SHOALI_BENCH_REDUCE_SCATTER,
    SHOALI_BENCH_ALL_GATHER,
    SHOALI_BENCH_BROADCAST,
    SHOALI_BENCH_ALL_TO_ALL
};
struct shoali_bench_op {
    const char *name;
    enum shoali_bench_collective kind;
};

struct shoali_bench_rank {
    const shoali_bench_comm_args *args;
    const shoali_bench_run *run;
    const struct shoali_bench_op *op;
    shoal_group *group;
    int32_t rank, ranks;
    void *in, *out;
    float *x, *y; /* for the limit */
    int64_t axpy_count;
};
struct shoali_bench_message {
    int64_t count; /* elements of a block, as collectives count */
    int64_t bytes; /* of the larger buffer of a rank */
};
/* The message nearest to the asked size, at least one element. */
void shoali_bench_message_init(const struct shoali_bench_rank *self, int64_t bytes,
                               struct shoali_bench_message *message);
/* One call of the collective; all_reduce and all_gather in place. */
SHOAL_CHECKED shoal_status shoali_bench_collect(const struct shoali_bench_rank *self,
                                                const struct shoali_bench_message *message);
/* Calls it once on known data and compares every element; then makes all data zeros, which stay
 * zeros however often they are summed. */
SHOAL_CHECKED shoal_status shoali_bench_check(const struct shoali_bench_rank *self,
                                              const struct shoali_bench_message *message);

#endif
