/* gemm_plan - how a matrix product is cut: where A is read, blocks, pieces, threads.
 *
 * C is cut into shares, one per thread: rectangles of a grid. A share is cut into pieces of `rows`
 * rows by `columns` columns, which threads claim. Within a piece k is taken in blocks of kc, rows
 * in blocks of mc, columns in panels of GEMM_COLUMNS, rows of a block in register tiles: every
 * panel meets all rows of a block before the next panel comes.
 *
 *   A in place   Each panel reads A from where it lies. A panel of B then stays in the second-level
 *                cache, so kc may be long; A comes from the last level once per panel.
 *   A copied     A block of A, mc by kc, is copied so that it stays in half of the second-level
 *                cache while the panels pass; of a panel kc steps stay in the first level.
 *
 * Which is better depends on the caches, on the panel's width and on how A's rows lie: the cost in
 * gemm_plan.c decides. Sums are carried between blocks of k in fp32 and in order, so no plan
 * changes a bit.
 */
#ifndef SHOALI_OPS_CPU_GEMM_PLAN_H
#define SHOALI_OPS_CPU_GEMM_PLAN_H

#include "ops/cpu/gemm.h"

/* A in place, by rows or, stored transposed, by columns; copied, by rows that lie no multiple of a
 * cache's way apart, or as tiles [k][GEMM_ROWS]. */
#define GEMM_PIECE_COLUMNS 1536 /* of a piece, at most */
enum gemm_a_mode { A_DIRECT, A_COLUMNS, A_STRAIGHT, A_TILES };

struct gemm_plan {
    const struct shoali_gemm_args *args;
    struct gemm_source a, b;
    enum gemm_a_mode a_mode;
    bool pairs;
    const uint32_t *packed_b; /* NULL: panels are packed on the way */
    int64_t grain;            /* threads' columns begin at multiples of it */
    bool plain;               /* C is fp32 and takes the sum unchanged */
    bool carry_in_c;          /* plain, and no tile is narrower than a unit */
    bool keep_b;              /* packed panels of a piece serve all its blocks of rows */
    int64_t mc, kc;
    int64_t rows, columns; /* of a piece: rows whole blocks, columns whole panels */
    int32_t grid_m, grid_n;
};

void SHOALI_CPU_SYMBOL(gemm_plan)(const struct shoali_gemm_args *args, int32_t threads,
                                  struct gemm_plan *plan);
/* Words of scratch that a thread needs for A, for B and for carried sums. */
void SHOALI_CPU_SYMBOL(gemm_plan_words)(const struct gemm_plan *plan, int64_t words[3]);

SHOALI_INLINE int64_t gemm_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
SHOALI_INLINE int64_t gemm_round_up(int64_t n, int64_t multiple)
{
    return gemm_ceil_div(n, multiple) * multiple;
}
/* Words between rows of a straight copy of A: an odd number of lines, since rows a power of two
 * apart share cache sets. */
SHOALI_INLINE int64_t gemm_straight_ld(int64_t k, bool pairs)
{
    return gemm_round_up(gemm_steps(k, pairs), 32) + 16;
}

#endif
