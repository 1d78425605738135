/* few_rows - products of at most 16 rows with a B stored [columns][k], which is read where it lies.
 *
 * Packing B would take longer than such a product. So the operands change places: columns of C are
 * rows of a tile of A, in place, and the few rows of A are one unit of B. An element is the sum of
 * the same products in the same order, and each is commutative, but for which of two NaNs it keeps.
 * The time is that of memory giving B, of which the next block is asked for while this one is
 * multiplied.
 */
#include "ops/cpu/amx/amx.h"
#include "ops/cpu/range.h"

struct swapped {
    const struct shoali_gemm_args *args;
    const uint32_t *rows; /* A, packed as a unit of B */
    int64_t steps;
};

bool SHOALI_CPU_SYMBOL(amx_few_rows_takes)(const struct shoali_gemm_args *args)
{
    return args->m <= AMX_ROWS && args->trans_b && !args->trans_a && args->k > 0 &&
           args->packed_b == NULL && args->fixed == NULL;
}

/* Into the second-level cache. */
static void fetch_rows(const char *b, int64_t row_bytes, int64_t rows, int64_t bytes)
{
    for (int64_t r = 0; r < rows; r++, b += row_bytes)
        for (int64_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(b + at, 0, 2);
}

/* to[row][column] of C from [column][row]. */
static void turn(const float *sums, int64_t columns, int64_t rows, float *to)
{
    for (int64_t c = 0; c < columns; c++)
        for (int64_t r = 0; r < rows; r++)
            to[r * AMX_SQUARE + c] = sums[c * AMX_ROWS + r];
}

/* Columns n .. n+columns-1 of C, at most 32. */
static void run_columns(const struct swapped *s, struct amx_tiles *tiles, int64_t n,
                        int64_t columns)
{
    const struct shoali_gemm_args *args = s->args;
    const char *b = (const char *)args->b + 2 * n * args->ldb;
    const int64_t whole = args->k / AMX_STEP * AMX_STEP;
    uint32_t last[2 * AMX_TILE_WORDS] __attribute__((aligned(64)));
    float sums[AMX_SQUARE * AMX_ROWS] __attribute__((aligned(64)));
    float turned[AMX_ROWS * AMX_SQUARE] __attribute__((aligned(64)));
    struct amx_block block = {.a = b,
                              .a_row = 2 * args->ldb,
                              .a_half = 32 * args->ldb,
                              .a_step = 64,
                              .b = (const char *)s->rows,
                              .b_row = 64,
                              .b_step = AMX_TILE_BYTES,
                              .steps = s->steps,
                              .out = sums,
                              .out_row = AMX_ROWS};
    if (whole < args->k) {
        const struct gemm_source rest = {b + 2 * whole, args->ldb, SHOAL_BF16, true};
        SHOALI_CPU_SYMBOL(amx_pack_rows)(&rest, args->k - whole, 0, columns, AMX_TILE_WORDS, last);
        block.a_last = (const char *)last;
    }
    SHOALI_CPU_SYMBOL(amx_block)(tiles, &block, (int)columns, 1);
    turn(sums, columns, args->m, turned);
    SHOALI_CPU_SYMBOL(gemm_finish)(args, turned, AMX_SQUARE, 0, args->m, n, columns);
}

static void columns_range(const void *block, int64_t begin, int64_t end)
{
    const struct swapped *s = block;
    const struct shoali_gemm_args *args = s->args;
    struct amx_tiles tiles = {.configured = 0};
    for (int64_t n = begin; n < end; n += AMX_SQUARE) {
        const int64_t next = n + AMX_SQUARE, after = SHOALI_MIN(AMX_SQUARE, args->n - next);
        if (after > 0)
            fetch_rows((const char *)args->b + 2 * next * args->ldb, 2 * args->ldb, after,
                       2 * args->k);
        run_columns(s, &tiles, n, SHOALI_MIN(AMX_SQUARE, end - n));
    }
    AMX_RELEASE(&tiles);
}

size_t SHOALI_CPU_SYMBOL(amx_few_rows_workspace)(const struct shoali_gemm_args *args)
{
    return (size_t)amx_steps(args->k) * AMX_TILE_BYTES;
}

bool SHOALI_CPU_SYMBOL(amx_few_rows)(const struct shoali_gemm_args *args,
                                     struct shoali_pool *threads)
{
    const int64_t steps = amx_steps(args->k);
    uint32_t *rows = shoali_scratch(SHOALI_CPU_SYMBOL(amx_few_rows_workspace)(args));
    const struct gemm_source a = {args->a, args->lda, SHOAL_BF16, true};
    const struct swapped swapped = {args, rows, steps};
    if (!rows)
        return false;
    SHOALI_CPU_SYMBOL(amx_pack_b)(&a, true, args->k, 0, args->m, steps * AMX_TILE_WORDS, rows);
    range_run(threads, columns_range, &swapped, args->n, AMX_SQUARE, 2 * args->k);
    return true;
}
