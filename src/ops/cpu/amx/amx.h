/* amx - products of bf16 on the tile registers of AMX, or on an emulation of them.
 *
 * A table with four kernels, for bf16 alone: gemm, pack_b, attention, attention_backward. All else
 * falls to the tables behind it. The folder is compiled twice: as cpu-amx for CPUs that have
 * tiles, and as cpu-amx-emulated, which computes the same bits in plain vectors on any CPU. The
 * second is chosen by name only; it is how machines without AMX test what the first one does. Its
 * instructions they test by a trap (tests/tools/tile_trap.h).
 * What attention does besides its products, packing and what follows a sum are ops/cpu's files,
 * compiled for these tables with SHOALI_CPU_TILES.
 *
 * ORDER OF SUMS. Every product of these tables sums K in steps of 32 elements, k rising, the last
 * step filled with zeros. A step is one instruction TDPBF16PS per tile, which is
 *     even = odd = +0
 *     for p = 0 ... 15:   even = fma(a[2p], b[2p], even);  odd = fma(a[2p+1], b[2p+1], odd)
 *     c = c + (even + odd)
 * with every operation rounded to nearest even in fp32, operands that are denormal read as zeros of
 * their sign and results that are tiny after rounding replaced by such zeros, whatever the thread's
 * control word says. c begins as +0 and is carried in fp32. So an element of C is a function of its
 * row of A, its column of B and K: not of threads, blocks, packing, or the number of rows.
 * Attention's products have the same order: over the head's elements for S = Q K^T and dP = dO V^T;
 * over keys, steps beginning at multiples of 32, for O = P V and dQ = dS K; over queries, likewise,
 * for dV = P^T dO and dK = dS^T Q. What a row does not see is +0 in P and dS.
 * The bits are those of TDPBF16PS as measured on hardware (Sapphire Rapids); amx_test.c compares
 * the two tables where a machine has both.
 *
 * TILES. A tile register holds 16 rows of 64 bytes. Four of them are 32 x 32 sums, two are 32 rows
 * of A by one step, two are one step by 32 columns of B:
 *     A   16 rows x 32 elements, in place when A is stored by rows, else packed
 *     B   16 pairs x 16 columns, each a word (k low, k+1 high)
 *     packed A: for each 16 rows, for each step 1 KiB; packed B: for each 16 columns, for each step
 *     1 KiB; what lies beyond rows, columns or K is zeros.
 * The number of rows is the only thing that is configured anew: at the last rows of a block.
 */
#ifndef SHOALI_OPS_AMX_H
#define SHOALI_OPS_AMX_H

#include "ops/cpu/amx/tiles.h"
#include "ops/cpu/gemm.h"

#define AMX_ROWS 16 /* and columns, of a tile of sums */
#define AMX_STEP 32 /* elements of k in a tile of A or B */
#define AMX_TILE_BYTES 1024
#define AMX_TILE_WORDS 256
#define AMX_SQUARE 32 /* rows and columns of what four tiles of sums cover */

static inline int64_t amx_steps(int64_t k)
{
    return (k + AMX_STEP - 1) / AMX_STEP;
}

/* Up to 32 x 32 sums over `steps`. Strides of a and b in bytes, of sums in elements. The rows are
 * those that are configured. */
struct amx_block {
    const char *a; /* rows 0 .. 15; rows 16 .. begin a_half later */
    int64_t a_row, a_half, a_step;
    const char *a_last; /* NULL, or the last step's: rows 64 bytes apart */
    const char *b;      /* columns 0 .. 15; columns 16 .. begin b_half later */
    int64_t b_row, b_half, b_step;
    int64_t steps;
    const float *init; /* what the sums start from; NULL: +0 */
    float *out;
    int64_t init_row, out_row;
};
/* rows: at most 32, as configured; units: 1 or 2, of 16 columns. */
void SHOALI_CPU_SYMBOL(amx_block)(struct amx_tiles *tiles, const struct amx_block *block, int rows,
                                  int units);

/* A panel of B: up to 32 columns from c0 on, k elements of each; units of 16 columns `unit_words`
 * apart. `transposed`: stored [columns][k]. */
void SHOALI_CPU_SYMBOL(amx_pack_b)(const struct gemm_source *from, bool transposed, int64_t k,
                                   int64_t c0, int64_t columns, int64_t unit_words, uint32_t *to);
/* Rows [r0, r0+rows) of A stored by rows, as packed A; 16 rows are a unit. */
void SHOALI_CPU_SYMBOL(amx_pack_rows)(const struct gemm_source *from, int64_t k, int64_t r0,
                                      int64_t rows, int64_t unit_words, uint32_t *to);

/* A product of few rows that need not pack B (few_rows.c): whether it is one, and the product,
 * which is false when it has no memory. */
bool SHOALI_CPU_SYMBOL(amx_few_rows_takes)(const struct shoali_gemm_args *args);
size_t SHOALI_CPU_SYMBOL(amx_few_rows_workspace)(const struct shoali_gemm_args *args);
bool SHOALI_CPU_SYMBOL(amx_few_rows)(const struct shoali_gemm_args *args,
                                     struct shoali_pool *threads);

/* Where rows of A go that are stored as columns: 16 of them, one step. In words. */
struct amx_rows_to {
    uint32_t *to;
    int64_t group, row,
        step; /* from 16 rows to the next 16, from a row and from a step to the next */
};
/* Columns [c0, c0+columns) of [k][columns], from row k0 on, become rows; zeros fill the last group
 * and the last step. */
void SHOALI_CPU_SYMBOL(amx_pack_columns)(const struct gemm_source *from, int64_t k0, int64_t k,
                                         int64_t c0, int64_t columns, const struct amx_rows_to *to);

#endif
