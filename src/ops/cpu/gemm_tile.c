/* gemm_tile - the register tile of the matrix product, for every number of rows and units. */
#include "ops/cpu/gemm.h"

#define VECS (GEMM_UNITS * VEC_PER_UNIT)

/* Steps of B that are asked for before their turn: a panel streams out of the second-level cache.
 * On Sapphire Rapids the loop gains 8 % by it, on Zen 4 nothing is lost. */
#if defined(__AVX512F__)
#define B_AHEAD 8
#else
#define B_AHEAD 0
#endif
/* The same of one or two rows: a generator's packed weights come from memory. */
#define B_AHEAD_FEW_ROWS (3 * B_AHEAD)

/* Inlined with constant rows and units, so that acc lives in registers. */
SHOALI_INLINE void run_tile(const struct gemm_tile *t, int rows, int units, bool pairs)
{
    const int vecs = units * VEC_PER_UNIT, ahead = rows <= 2 ? B_AHEAD_FEW_ROWS : B_AHEAD;
    vec acc[GEMM_ROWS][VECS];
    SHOALI_UNROLL
    for (int i = 0; i < rows; i++) {
        SHOALI_UNROLL
        for (int j = 0; j < vecs; j++)
            acc[i][j] = t->init ? vec_load(t->init + i * t->init_row + j * VEC_LANES) : vec_zero();
    }
    const char *a[GEMM_ROWS];
    SHOALI_UNROLL
    for (int i = 0; i < rows; i++)
        a[i] = t->a + i * t->a_row;
    const char *b = t->b;
    const int64_t a_step = t->a_step, b_step = t->b_step, a_end = a_step * t->steps;
    const char *a_next = t->a_next;
    const int64_t a_row = t->a_row;
    SHOALI_UNROLL_4
    for (int64_t at = 0; at != a_end; at += a_step, b += b_step) {
        vec bv[VECS];
        /* 16 steps of 4 bytes are a cache line of each of eight rows. Into the second level: in the
         * first the rows of both tiles would share sets when they lie a power of two apart. */
        __builtin_prefetch(a_next + (at >> 2 & 7) * a_row + (at & ~(int64_t)63), 0, 2);
        SHOALI_UNROLL
        for (int j = 0; j < units && ahead > 0; j++)
            __builtin_prefetch(b + ahead * b_step + 64 * j, 0, 3);
        SHOALI_UNROLL
        for (int j = 0; j < vecs; j++)
            bv[j] = vec_load((const float *)(const void *)b + j * VEC_LANES);
        SHOALI_UNROLL
        for (int i = 0; i < rows; i++) {
            SHOALI_UNROLL
            for (int j = 0; j < vecs; j++)
                acc[i][j] = gemm_step(a[i] + at, bv[j], acc[i][j], pairs);
        }
    }
    SHOALI_UNROLL
    for (int i = 0; i < rows; i++) {
        SHOALI_UNROLL
        for (int j = 0; j < vecs; j++)
            vec_store(t->out + i * t->out_row + j * VEC_LANES, acc[i][j]);
    }
}

SHOALI_INLINE void run_rows(const struct gemm_tile *t, int rows, int units, bool pairs)
{
    switch (rows) {
    case 1:
        run_tile(t, 1, units, pairs);
        break;
    case 2:
        run_tile(t, 2, units, pairs);
        break;
    case 3:
        run_tile(t, 3, units, pairs);
        break;
    case 4:
        run_tile(t, 4, units, pairs);
        break;
#if GEMM_ROWS > 4
    case 5:
        run_tile(t, 5, units, pairs);
        break;
    case 6:
        run_tile(t, 6, units, pairs);
        break;
#endif
#if GEMM_ROWS > 6
    case 7:
        run_tile(t, 7, units, pairs);
        break;
    case 8:
        run_tile(t, 8, units, pairs);
        break;
#endif
    default:
        break;
    }
}

SHOALI_INLINE void run_units(const struct gemm_tile *t, int rows, int units, bool pairs)
{
    if (units == 1)
        run_rows(t, rows, 1, pairs);
#if GEMM_UNITS == 3
    else if (units == 2)
        run_rows(t, rows, 2, pairs);
    else
        run_rows(t, rows, 3, pairs);
#endif
}

void SHOALI_CPU_SYMBOL(gemm_tile)(const struct gemm_tile *tile, int rows, int units, bool pairs)
{
#if SHOALI_CPU_PAIRS
    if (pairs)
        run_units(tile, rows, units, true);
    else
#endif
        run_units(tile, rows, units, false);
    (void)pairs;
}
