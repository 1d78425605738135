/* block - up to 32 x 32 sums in four tile registers. */
#include "ops/cpu/amx/amx.h"

/* The sums' first values. */
SHOALI_INLINE void begin_sums(struct amx_tiles *tiles, const struct amx_block *x, const bool lower,
                              const bool right)
{
    const int64_t row = 4 * x->init_row;
    const float *below = x->init ? x->init + 16 * x->init_row : NULL;
    if (!x->init) {
        AMX_ZERO(tiles, 0);
        if (right)
            AMX_ZERO(tiles, 1);
        if (lower)
            AMX_ZERO(tiles, 2);
        if (lower && right)
            AMX_ZERO(tiles, 3);
        return;
    }
    AMX_LOAD(tiles, 0, x->init, row);
    if (right)
        AMX_LOAD(tiles, 1, x->init + 16, row);
    if (lower)
        AMX_LOAD(tiles, 2, below, row);
    if (lower && right)
        AMX_LOAD(tiles, 3, below + 16, row);
}

SHOALI_INLINE void end_sums(const struct amx_tiles *tiles, const struct amx_block *x,
                            const bool lower, const bool right)
{
    const int64_t row = 4 * x->out_row;
    float *below = x->out + 16 * x->out_row;
    AMX_STORE(tiles, 0, x->out, row);
    if (right)
        AMX_STORE(tiles, 1, x->out + 16, row);
    if (lower)
        AMX_STORE(tiles, 2, below, row);
    if (lower && right)
        AMX_STORE(tiles, 3, below + 16, row);
}

/* Inlined with constant halves. The operands of the next step are loaded between the products of
 * this one, each as soon as its register has been read for the last time. */
SHOALI_INLINE void run_block(struct amx_tiles *tiles, const struct amx_block *x, const bool lower,
                             const bool right)
{
    const char *a = x->a, *b = x->b;
    int64_t a_row = x->a_row, a_half = x->a_half;
    begin_sums(tiles, x, lower, right);
    for (int64_t step = 0; step < x->steps; step++, a += x->a_step, b += x->b_step) {
        if (x->a_last && step + 1 == x->steps) {
            a = x->a_last;
            a_row = 64;
            a_half = AMX_TILE_BYTES;
        }
        if (step > 0) {
            AMX_MULTIPLY(tiles, 0, 4, 6);
            if (lower)
                AMX_MULTIPLY(tiles, 2, 5, 6);
        }
        AMX_LOAD(tiles, 6, b, x->b_row);
        if (step > 0 && right)
            AMX_MULTIPLY(tiles, 1, 4, 7);
        AMX_LOAD(tiles, 4, a, a_row);
        if (step > 0 && lower && right)
            AMX_MULTIPLY(tiles, 3, 5, 7);
        if (right)
            AMX_LOAD(tiles, 7, b + x->b_half, x->b_row);
        if (lower)
            AMX_LOAD(tiles, 5, a + a_half, a_row);
    }
    if (x->steps > 0) {
        AMX_MULTIPLY(tiles, 0, 4, 6);
        if (lower)
            AMX_MULTIPLY(tiles, 2, 5, 6);
        if (right)
            AMX_MULTIPLY(tiles, 1, 4, 7);
        if (lower && right)
            AMX_MULTIPLY(tiles, 3, 5, 7);
    }
    end_sums(tiles, x, lower, right);
}

void SHOALI_CPU_SYMBOL(amx_block)(struct amx_tiles *tiles, const struct amx_block *block, int rows,
                                  int units)
{
    amx_configure(tiles, rows);
    AMX_MEMORY();
    if (rows > 16 && units > 1)
        run_block(tiles, block, true, true);
    else if (rows > 16)
        run_block(tiles, block, true, false);
    else if (units > 1)
        run_block(tiles, block, false, true);
    else
        run_block(tiles, block, false, false);
    AMX_MEMORY();
}
