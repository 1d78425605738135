/* attention - the products of attention's tiles, 32 x 32 sums at a time.
 *
 * Steps are filled up to whole ones: what lies beyond `steps` words of a row of A and of the rows
 * of B is there and zero in one of the two and finite in the other (attention.c,
 * attention_backward.c).
 */
#include "ops/cpu/attention.h"

#include "ops/cpu/amx/amx.h"

/* Configured once for a head's many small products; nothing lives in it between two of them. */
static _Thread_local struct amx_tiles tiles;

void SHOALI_CPU_SYMBOL(att_end)(void)
{
    AMX_RELEASE(&tiles);
    tiles.configured = 0;
}

void SHOALI_CPU_SYMBOL(att_multiply)(const struct att_product *p)
{
    struct amx_block block = {.a_row = p->a_row,
                              .a_half = 16 * p->a_row,
                              .a_step = 64,
                              .b_row = p->b_step,
                              .b_half = 64,
                              .b_step = 16 * p->b_step,
                              .steps = (p->steps + 15) / 16,
                              .init_row = p->out_row,
                              .out_row = p->out_row};
    for (int64_t row = 0; row < p->rows; row += AMX_SQUARE)
        for (int64_t unit = 0; unit < p->units; unit += 2) {
            block.a = (const char *)p->a + row * p->a_row;
            block.b = (const char *)p->b + 64 * unit;
            block.out = p->out + row * p->out_row + 16 * unit;
            block.init = p->add ? block.out : NULL;
            SHOALI_CPU_SYMBOL(amx_block)
            (&tiles, &block, (int)SHOALI_MIN(AMX_SQUARE, p->rows - row),
             (int)SHOALI_MIN(2, p->units - unit));
        }
}

void SHOALI_CPU_SYMBOL(att_pack_columns)(const struct gemm_source *from, int64_t t0, int64_t rows,
                                         int64_t columns, int64_t row_words, uint32_t *to)
{
    const struct amx_rows_to place = {to, 16 * row_words, row_words, 16};
    SHOALI_CPU_SYMBOL(amx_pack_columns)(from, t0, rows, 0, columns, &place);
}
