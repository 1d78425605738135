/* gemm - the parts of the matrix product: register tiles, packing, blocking.
 *
 * C is cut into register tiles of GEMM_ROWS x GEMM_UNITS*16. A tile walks k from first to last with
 * one accumulator per element, so the order of a sum depends on K alone. B is brought, one panel of
 * GEMM_COLUMNS columns at a time, into the layout [k][columns] (or packed as a whole before:
 * pack_b); A is read by broadcasts straight from row-major memory, or from tiles [k][GEMM_ROWS]
 * when it is stored transposed. With pairs (bf16 on a CPU with vdpbf16ps or BFDOT) a step of k is
 * two elements side by side in 32 bits. A product of few rows goes another way, with the same bits:
 * gemv.c.
 */
#ifndef SHOALI_OPS_CPU_GEMM_H
#define SHOALI_OPS_CPU_GEMM_H

#include "ops/cpu/isa.h"

#if defined(__AVX512F__)
#define GEMM_ROWS 8
#define GEMM_UNITS 3
#elif defined(__AVX2__) || SHOALI_CPU_NEON
#define GEMM_ROWS 6 /* NEON: 24 sums, 4 registers of B and 4 of A are its 32 */
#define GEMM_UNITS 1
#else
#define GEMM_ROWS 4
#define GEMM_UNITS 1
#endif
#define GEMM_COLUMNS (GEMM_UNITS * 16)

/* One register tile. Strides of a and b in bytes (16-bit operands have odd ones), of c in elements.
 */
struct gemm_tile {
    const char *a, *a_next; /* a_next: of the tile that comes next, for the cache */
    int64_t a_row, a_step;
    const char *b;
    int64_t b_step;
    const float *init; /* what the accumulators start from; NULL: +0 */
    float *out;
    int64_t init_row, out_row;
    int64_t steps;
};
/* out[rows][units*16] = init + sum. pairs: operands are bf16 pairs. */
void SHOALI_CPU_SYMBOL(gemm_tile)(const struct gemm_tile *tile, int rows, int units, bool pairs);

/* Whether operands of this type are multiplied as bf16 pairs. */
SHOALI_INLINE bool gemm_pairs(shoal_dtype dtype)
{
    return SHOALI_CPU_PAIRS && dtype == SHOAL_BF16;
}

/* How an operand lies in memory, as seen by the packers: `x` is its stored matrix. */
struct gemm_source {
    const char *x;
    int64_t ld; /* elements between stored rows */
    shoal_dtype dtype;
    bool pairs; /* wanted: bf16 pairs; else fp32 */
};
/* Elements of 4 bytes that k elements make. */
SHOALI_INLINE int64_t gemm_steps(int64_t k, bool pairs)
{
    return pairs ? (k + 1) / 2 : k;
}
/* to[step][width] from stored [k][columns] at row k0, column c0; columns up to width are filled
 * with zeros. */
void SHOALI_CPU_SYMBOL(pack_rows)(const struct gemm_source *from, int64_t k0, int64_t k, int64_t c0,
                                  int64_t columns, int64_t width, uint32_t *to);
/* The same from stored [columns][k]. */
void SHOALI_CPU_SYMBOL(pack_transposed)(const struct gemm_source *from, int64_t k0, int64_t k,
                                        int64_t c0, int64_t columns, int64_t width, uint32_t *to);
/* Tiles of GEMM_ROWS columns behind each other, each to[step][GEMM_ROWS], from stored [k][columns];
 * the last one is filled with zeros. */
void SHOALI_CPU_SYMBOL(pack_tiles)(const struct gemm_source *from, int64_t k0, int64_t k,
                                   int64_t c0, int64_t columns, uint32_t *to);
/* to[row][step], rows `to_ld` words apart, from stored [rows][k]: a copy that widens, completes
 * the last pair, or keeps rows apart that would share cache sets. */
void SHOALI_CPU_SYMBOL(pack_straight)(const struct gemm_source *from, int64_t k0, int64_t k,
                                      int64_t r0, int64_t rows, int64_t to_ld, uint32_t *to);

/* Asks for the lines of one tile of a matrix of C's shape, whose first element is `first`. */
SHOALI_INLINE void gemm_fetch_tile(const void *matrix, shoal_dtype dtype, int64_t ld, int64_t first,
                                   int rows, int64_t columns)
{
    const int64_t bytes = (int64_t)shoal_dtype_bytes(dtype);
    const char *row = (const char *)matrix + first * bytes;
    for (int i = 0; i < rows; i++, row += ld * bytes)
        for (int64_t at = 0; at < columns * bytes; at += 64)
            __builtin_prefetch(row + at, 1);
}
/* The same for all that gemm_finish will touch and does not write past the caches. */
void SHOALI_CPU_SYMBOL(gemm_fetch)(const struct shoali_gemm_args *args, int64_t m0, int rows,
                                   int64_t n0, int64_t columns);
/* Finishes rows x columns sums (`sum`, rows sum_ld apart) into C at row m0, column n0: before,
 * accumulate, bias, preact, activation, residual, rounding; or into `fixed`; past the caches where
 * args say so. */
void SHOALI_CPU_SYMBOL(gemm_finish)(const struct shoali_gemm_args *args, const float *sum,
                                    int64_t sum_ld, int64_t m0, int64_t rows, int64_t n0,
                                    int64_t columns);

/* Whether gemm_finish should write past the caches: whole lines of sums alone, so many that they
 * would have left the caches before anybody reads them. */
bool SHOALI_CPU_SYMBOL(gemm_streams)(const struct shoali_gemm_args *args,
                                     const struct shoali_pool *pool);

/* Products of at most GEMM_ROWS rows, without packing B (gemv.c): whether it takes one, and the
 * product. */
bool SHOALI_CPU_SYMBOL(gemv_takes)(const struct shoali_gemm_args *args);
void SHOALI_CPU_SYMBOL(gemv)(const struct shoali_gemm_args *args, struct shoali_pool *threads);

/* One step of a register tile: acc += a (one element or pair, broadcast) * b. */
#if SHOALI_CPU_NEON
/* A lane of a register that a scalar load fills: one that broadcasts takes a multiplier's turn. */
SHOALI_INLINE vec gemm_step(const char *a, vec b, vec acc, bool pairs)
{
#if SHOALI_CPU_BFDOT
    if (pairs) {
        uint32_t word;
        memcpy(&word, a, sizeof word);
        return vbfdotq_lane_f32(acc, vreinterpretq_bf16_f32(b), vcreate_bf16(word), 0);
    }
#endif
    (void)pairs;
    float value;
    memcpy(&value, a, sizeof value);
    return vfmaq_n_f32(acc, b, value);
}
#else
SHOALI_INLINE vec gemm_step(const char *a, vec b, vec acc, bool pairs)
{
#if defined(__AVX512BF16__)
    if (pairs) {
        int32_t word;
        memcpy(&word, a, sizeof word);
        return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_set1_epi32(word), (__m512bh)b);
    }
#else
    (void)pairs;
#endif
    float value;
    memcpy(&value, a, sizeof value);
    return vec_fma(vec_set1(value), b, acc);
}
#endif

#endif
