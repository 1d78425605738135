/* attention_tile - the register tiles of attention's products: short sums, so what a tile costs
 * besides its multiplications counts. */
#include "ops/cpu/attention.h"

#define ROWS 8
#define VECS (ATT_PANEL * VEC_PER_UNIT)

/* Inlined with constant rows and units, so that acc lives in registers. */
SHOALI_INLINE void run_tile(const struct att_product *p, int64_t row, int64_t unit, int rows,
                            int units, bool pairs)
{
    const int vecs = units * VEC_PER_UNIT;
    const int64_t a_row = p->a_row, a_step = p->a_step, b_step = p->b_step, out_row = p->out_row;
    const char *a = (const char *)p->a + row * a_row, *b = (const char *)p->b + 64 * unit;
    float *const out = p->out + row * out_row + 16 * unit;
    float *at = out;
    vec acc[ROWS][VECS];
    SHOALI_UNROLL
    for (int i = 0; i < rows; i++) {
        SHOALI_UNROLL
        for (int j = 0; j < vecs; j++)
            acc[i][j] = p->add ? vec_load(at + j * VEC_LANES) : vec_zero();
        at += out_row;
    }
    SHOALI_UNROLL_4
    for (int64_t left = p->steps; left > 0; left--, a += a_step, b += b_step) {
        vec bv[VECS];
        SHOALI_UNROLL
        for (int j = 0; j < vecs; j++)
            bv[j] = vec_load((const float *)(const void *)b + j * VEC_LANES);
        SHOALI_UNROLL
        for (int i = 0; i < rows; i++) {
            SHOALI_UNROLL
            for (int j = 0; j < vecs; j++)
                acc[i][j] = gemm_step(a + i * a_row, bv[j], acc[i][j], pairs);
        }
    }
    at = out;
    SHOALI_UNROLL
    for (int i = 0; i < rows; i++) {
        SHOALI_UNROLL
        for (int j = 0; j < vecs; j++)
            vec_store(at + j * VEC_LANES, acc[i][j]);
        at += out_row;
    }
}

SHOALI_INLINE void run_rows(const struct att_product *p, int64_t row, int64_t unit, int rows,
                            int units, bool pairs)
{
    switch (rows) {
    case 1:
        run_tile(p, row, unit, 1, units, pairs);
        break;
    case 2:
        run_tile(p, row, unit, 2, units, pairs);
        break;
    case 3:
        run_tile(p, row, unit, 3, units, pairs);
        break;
    case 4:
        run_tile(p, row, unit, 4, units, pairs);
        break;
#if GEMM_ROWS > 4
    case 5:
        run_tile(p, row, unit, 5, units, pairs);
        break;
    case 6:
        run_tile(p, row, unit, 6, units, pairs);
        break;
#endif
#if GEMM_ROWS > 6
    case 7:
        if (units < 4)
            run_tile(p, row, unit, 7, units, pairs);
        break;
    case 8:
        if (units < 4)
            run_tile(p, row, unit, 8, units, pairs);
        break;
#endif
    default:
        break;
    }
}

SHOALI_INLINE void run_units(const struct att_product *p, int64_t row, int64_t unit, int rows,
                             int units, bool pairs)
{
    if (units == 1)
        run_rows(p, row, unit, rows, 1, pairs);
#if ATT_PANEL == 4
    else if (units == 2)
        run_rows(p, row, unit, rows, 2, pairs);
    else if (units == 3)
        run_rows(p, row, unit, rows, 3, pairs);
    else
        run_rows(p, row, unit, rows, 4, pairs);
#endif
}

void SHOALI_CPU_SYMBOL(att_multiply)(const struct att_product *p)
{
    if (p->units == 0)
        return;
    const int64_t panel = att_panel(p->units), height = att_rows(p->units);
    for (int64_t unit = 0; unit < p->units; unit += panel) {
        const int units = (int)SHOALI_MIN(panel, p->units - unit);
        for (int64_t row = 0; row < p->rows; row += height) {
            const int rows = (int)SHOALI_MIN(height, p->rows - row);
#if SHOALI_CPU_PAIRS
            if (p->pairs) {
                run_units(p, row, unit, rows, units, true);
                continue;
            }
#endif
            run_units(p, row, unit, rows, units, false);
        }
    }
}
