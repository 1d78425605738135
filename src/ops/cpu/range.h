/* range - work on [0, count) elements or rows, which threads claim in pieces when it pays. */
#ifndef SHOALI_OPS_CPU_RANGE_H
#define SHOALI_OPS_CPU_RANGE_H

#include "base/nontemporal.h"
#include "ops/cpu/isa.h"
#include "ops/vmath.h"

/* Bytes that one thread moves in about the time another takes to wake. */
#define RANGE_SERIAL_BYTES (128 << 10)
/* Of a piece that a thread claims: some ten microseconds, beside which a claim is nothing. */
#define RANGE_PIECE_BYTES (256 << 10)

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

/* Elements i .. i+15 past the caches (base/nontemporal.h); they begin at a multiple of their half
 * line or line. */
SHOALI_INLINE void lanes_stream(void *array, int64_t i, v16 x, shoal_dtype dtype)
{
    char line[64];
    char *to = (char *)array + i * (dtype == SHOAL_F32 ? 4 : 2);
    v16_store_as(line, 0, x, dtype);
    if (dtype == SHOAL_F32)
        shoali_nontemporal_line(to, line);
    else
        shoali_nontemporal_half(to, line);
}

/* Whether a kernel that touches so many bytes should write y past the caches: what it writes would
 * have left them before anybody reads it. `also` is what it reads: in place, a line is there. */
SHOALI_INLINE bool range_streams(const struct shoali_pool *pool, const void *y, const void *also,
                                 int64_t count, int64_t bytes)
{
    return y != also && (uintptr_t)y % SHOALI_NONTEMPORAL_BYTES == 0 &&
           (double)count * (double)bytes > (double)shoali_pool_cache_bytes(pool);
}

/* Asks for what is read four lines later: beside stores past the caches the core itself fetches too
 * little ahead. */
SHOALI_INLINE void range_ahead(const void *line)
{
    __builtin_prefetch((const void *)((uintptr_t)line + 256));
}

/* How [0, count) is cut: shares at multiples of `grain`, their pieces after `piece` each. First
 * member of what a run of such pieces is given. */
struct range_cut {
    int64_t count, grain, piece;
};

static inline int64_t range_pieces(const void *arg, int32_t share, int32_t shares)
{
    const struct range_cut *cut = arg;
    int64_t begin, end;
    shoali_pool_slice(cut->count, cut->grain, share, shares, &begin, &end);
    return (end - begin + cut->piece - 1) / cut->piece;
}

/* Claims another piece; false: none is left. */
static inline bool range_next(const struct range_cut *cut, struct shoali_claim *claim,
                              int64_t *begin, int64_t *end)
{
    if (!shoali_claim_next(claim))
        return false;
    shoali_pool_slice(cut->count, cut->grain, claim->share, claim->pieces->shares, begin, end);
    *begin += claim->piece * cut->piece;
    *end = SHOALI_MIN(*end, *begin + cut->piece);
    return true;
}

typedef void (*range_fn)(const void *args, int64_t begin, int64_t end);
struct range_work {
    struct range_cut cut;
    range_fn fn;
    const void *args;
};

static inline void range_thread(void *arg, struct shoali_claim *claim)
{
    const struct range_work *work = arg;
    int64_t begin, end;
    while (range_next(&work->cut, claim, &begin, &end))
        work->fn(work->args, begin, end);
}

/* range_run with pieces that are multiples of `wide`, itself one of `grain`: for kernels that are
 * faster where more of their columns lie side by side. */
static inline void range_run_wide(struct shoali_pool *pool, range_fn fn, const void *args,
                                  int64_t count, int64_t grain, int64_t wide, int64_t bytes)
{
    struct range_work work = {{count, grain, 0}, fn, args};
    if (count <= 0)
        return;
    if ((double)count * (double)bytes < RANGE_SERIAL_BYTES || shoali_pool_threads(pool) == 1) {
        fn(args, 0, count);
        return;
    }
    work.cut.piece = (RANGE_PIECE_BYTES / SHOALI_MAX(bytes, 1) + wide) / wide * wide;
    const struct shoali_pieces pieces = {.count = range_pieces, .work = range_thread, .arg = &work};
    shoali_pool_run_pieces(pool, &pieces);
}

/* Calls fn on parts of [0, count) cut at multiples of `grain`; each of the `count` moves or costs
 * `bytes`. */
static inline void range_run(struct shoali_pool *pool, range_fn fn, const void *args, int64_t count,
                             int64_t grain, int64_t bytes)
{
    range_run_wide(pool, fn, args, count, grain, grain, bytes);
}

#endif
