/* pack - operands in the layouts of amx.h. */
#include "ops/cpu/amx/amx.h"
#include "ops/cpu/range.h"

/* Words of a step of 16 columns are a B tile; those of an incomplete last one are zeros. */
static void clear_rest(uint32_t *tile, int64_t k)
{
    const int64_t pairs = (k + 1) / 2;
    if (k < AMX_STEP)
        memset(tile + 16 * pairs, 0, (size_t)(16 - pairs) * 64);
}

void SHOALI_CPU_SYMBOL(amx_pack_b)(const struct gemm_source *from, bool transposed, int64_t k,
                                   int64_t c0, int64_t columns, uint32_t *to)
{
    const int64_t rest = k % AMX_STEP;
    if (k == 0)
        return;
    if (transposed)
        SHOALI_CPU_SYMBOL(pack_transposed)(from, 0, k, c0, columns, 16, to);
    else
        SHOALI_CPU_SYMBOL(pack_rows)(from, 0, k, c0, columns, 16, to);
    if (rest > 0)
        clear_rest(to + k / AMX_STEP * AMX_TILE_WORDS, rest);
}

void SHOALI_CPU_SYMBOL(amx_pack_rows)(const struct gemm_source *from, int64_t k, int64_t r0,
                                      int64_t rows, uint32_t *to)
{
    const int64_t steps = amx_steps(k);
    for (int64_t r = 0; r < (rows + 15) / 16 * 16; r++) {
        const char *x = from->x + 2 * (r0 + r) * from->ld;
        char *row = (char *)(to + r / 16 * steps * AMX_TILE_WORDS) + r % 16 * 64;
        for (int64_t step = 0; step < steps; step++, row += AMX_TILE_BYTES) {
            const int64_t n = r < rows ? SHOALI_MIN(AMX_STEP, k - AMX_STEP * step) : 0;
            if (n < AMX_STEP)
                memset(row, 0, 64);
            if (n > 0)
                memcpy(row, x + 64 * step, (size_t)n * 2);
        }
    }
}

/* A tile of A is one of B, transposed word by word. */
static void pack_tile(const struct gemm_source *from, int64_t k0, int64_t k, int64_t c0,
                      int64_t columns, int64_t row, uint32_t *to)
{
    uint32_t words[AMX_TILE_WORDS] __attribute__((aligned(64)));
    const struct gemm_source tile = {(const char *)words, AMX_STEP, SHOAL_BF16, true};
    SHOALI_CPU_SYMBOL(pack_rows)(from, k0, k, c0, columns, 16, words);
    clear_rest(words, k);
    SHOALI_CPU_SYMBOL(pack_transposed)(&tile, 0, AMX_STEP, 0, 16, row, to);
}

void SHOALI_CPU_SYMBOL(amx_pack_columns)(const struct gemm_source *from, int64_t k0, int64_t k,
                                         int64_t c0, int64_t columns, const struct amx_rows_to *to)
{
    /* Steps outside: a cache line of a stored row holds columns of two groups. */
    for (int64_t at = 0; at < k; at += AMX_STEP)
        for (int64_t c = 0; c < columns; c += 16)
            pack_tile(from, k0 + at, SHOALI_MIN(AMX_STEP, k - at), c0 + c,
                      SHOALI_MIN(16, columns - c), to->row,
                      to->to + c / 16 * to->group + at / AMX_STEP * to->step);
}

/* ---- B as a whole: units of 16 columns behind each other ---- */

size_t SHOALI_CPU_SYMBOL(packed_b_bytes)(int64_t n, int64_t k, shoal_dtype dtype)
{
    (void)dtype;
    return (size_t)((n + 15) / 16 * amx_steps(k)) * AMX_TILE_BYTES;
}

static void pack_units(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_pack_b_args *args = block;
    const struct gemm_source from = {args->b, args->ldb, args->dtype, true};
    for (int64_t n = begin; n < end; n += 16)
        SHOALI_CPU_SYMBOL(amx_pack_b)
    (&from, args->trans_b, args->k, n, SHOALI_MIN(16, end - n),
     (uint32_t *)args->packed + n / 16 * amx_steps(args->k) * AMX_TILE_WORDS);
}

void SHOALI_CPU_SYMBOL(pack_b)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_pack_b_args *pack = args;
    range_run(context->threads, pack_units, pack, pack->n, 16, 4 * pack->k);
}
