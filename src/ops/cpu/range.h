/* range - work on [0, count) elements or rows, cut between the threads when it pays. */
#ifndef SHOALI_OPS_CPU_RANGE_H
#define SHOALI_OPS_CPU_RANGE_H

#include "ops/cpu/isa.h"
#include "ops/vmath.h"

/* Bytes that one thread moves in about the time another takes to wake. */
#define RANGE_SERIAL_BYTES (128 << 10)

/* v16_load_as_n and v16_store_as_n with a branch, which is never mispredicted but once a row,
 * before the mask. */
SHOALI_INLINE v16 lanes_load(const void *array, int64_t i, int64_t lanes, shoal_dtype dtype)
{
    return lanes >= 16 ? v16_load_as(array, i, dtype) : v16_load_as_n(array, i, lanes, dtype);
}
SHOALI_INLINE void lanes_store(void *array, int64_t i, int64_t lanes, v16 x, shoal_dtype dtype)
{
    if (lanes >= 16)
        v16_store_as(array, i, x, dtype);
    else
        v16_store_as_n(array, i, lanes, x, dtype);
}

typedef void (*range_fn)(const void *args, int64_t begin, int64_t end);
struct range_work {
    range_fn fn;
    const void *args;
    int64_t count, grain;
};

static inline void range_thread(void *arg, int32_t index, int32_t count)
{
    const struct range_work *work = arg;
    int64_t begin, end;
    shoali_pool_slice(work->count, work->grain, index, count, &begin, &end);
    if (begin < end)
        work->fn(work->args, begin, end);
}

/* Calls fn on parts of [0, count) cut at multiples of `grain`; each of the `count` moves or costs
 * `bytes`. */
static inline void range_run(struct shoali_pool *pool, range_fn fn, const void *args, int64_t count,
                             int64_t grain, int64_t bytes)
{
    struct range_work work = {fn, args, count, grain};
    if (count <= 0)
        return;
    if ((double)count * (double)bytes < RANGE_SERIAL_BYTES)
        fn(args, 0, count);
    else
        shoali_pool_run(pool, range_thread, &work);
}

#endif
