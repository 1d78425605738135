/* tune_io.c - the setting of io that is fastest on a folder's disk. */
#include "benchmark/io.h"

#include "base/plain.h"
#include "io/io.h"

static const int64_t block_bytes[] = {1 << 20, 8 << 20};
static const int32_t depths[] = {32, 128}, threads[] = {1, 2, 4, 8};
enum { BLOCKS = 2, DEPTHS = 2, THREADS = 4, WAYS = 4 };

/* The index-th setting; false beyond the last. io_uring has no threads of ours, and threads have no
 * system calls to put together. */
static bool setting(int32_t index, bool uring, shoali_bench_io_args *args)
{
    const int32_t ways = uring ? WAYS : THREADS;
    if (index >= BLOCKS * DEPTHS * ways)
        return false;
    const int32_t way = index % ways;
    args->block_bytes = block_bytes[index / ways / DEPTHS];
    args->queue_depth = depths[index / ways % DEPTHS];
    args->single_submit = uring ? way & 1 : 0;
    args->no_overlap = uring ? way >> 1 : 0;
    args->run.threads = uring ? 1 : threads[way];
    return true;
}

/* Seconds per 1e9 bytes written and read, as offloading does both. */
static double cost(const struct shoali_io_speed *speed)
{
    return (speed->read > 0 ? 1 / speed->read : 0) + (speed->write > 0 ? 1 / speed->write : 0);
}

/* What shoali_io_create takes for these arguments. */
static shoal_status is_uring(const shoali_bench_io_args *args, bool *uring)
{
    struct shoali_io *io = NULL;
    shoal_status status;
    SHOAL_TRY(status,
              shoali_io_create(&(struct shoali_io_args){.backend = args->backend,
                                                        .block_bytes = SHOALI_IO_ALIGN,
                                                        .queue_depth = 1,
                                                        .threads = 1},
                               &io),
              done);
    *uring = shoali_strcasecmp(shoali_io_backend(io), "uring") == 0;
    shoali_io_destroy(io);
done:
    return status;
}

shoal_status shoali_tune_io(const shoali_bench_io_args *args, shoali_bench_io_args *best)
{
    shoali_bench_io_args tried;
    shoali_bench_run run;
    double least = 0;
    bool uring;
    shoal_status status;
    SHOAL_TRY(status, shoali_bench_io_init(args, 2, 3, &tried, &run), done);
    SHOAL_TRY(status, is_uring(args, &uring), done);
    for (int32_t i = 0; setting(i, uring, &tried); i++) {
        struct shoali_io_speed speed;
        SHOAL_TRY(status, shoali_bench_io_measure(&tried, &run, &speed), done);
        if (i > 0 && cost(&speed) >= least)
            continue;
        least = cost(&speed);
        *best = tried;
    }
done:
    return status;
}
