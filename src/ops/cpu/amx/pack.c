/* pack - operands in the layouts of amx.h. */
#include "ops/cpu/amx/amx.h"
#include "ops/cpu/pairs.h"
#include "ops/cpu/range.h"

/* Words of a step of 16 columns are a B tile; those of an incomplete last one are zeros. */
static void clear_rest(uint32_t *tile, int64_t k)
{
    const int64_t pairs = (k + 1) / 2;
    if (k < AMX_STEP)
        memset(tile + 16 * pairs, 0, (size_t)(16 - pairs) * 64);
}

#if defined(__AVX512BW__)
#define ROWS_AHEAD 64 /* lie too far apart for the CPU to foresee them, and pass in a few cycles */

/* Elements c0 .. c0+31 of stored row k: a line or two. */
SHOALI_INLINE void fetch_line(const struct gemm_source *from, int64_t k, int64_t c0)
{
    const char *x = from->x + 2 * (k * from->ld + c0);
    __builtin_prefetch(x);
    if (((uintptr_t)x & 63) != 0)
        __builtin_prefetch(x + 63);
}

/* Words {x[i], y[i]} of sixteen columns. */
SHOALI_INLINE __m512i pair_words(const uint16_t *x, const uint16_t *y)
{
    const __m512i low =
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)x));
    return pairs_mixed(
        _mm512_inserti64x4(low, _mm256_loadu_si256((const __m256i *)(const void *)y), 1));
}

/* Two whole units at once, as a line of a stored row holds columns of both: 2 `pairs` rows. */
static void pack_two_units(const struct gemm_source *from, int64_t pairs, int64_t c0,
                           int64_t unit_words, uint32_t *to)
{
    const uint16_t *x = (const uint16_t *)(const void *)from->x + c0;
    for (int64_t p = 0; p < pairs; p++, x += 2 * from->ld, to += 16) {
        const uint16_t *y = x + from->ld;
        if (p + ROWS_AHEAD / 2 < pairs) {
            fetch_line(from, 2 * p + ROWS_AHEAD, c0);
            fetch_line(from, 2 * p + ROWS_AHEAD + 1, c0);
        }
        _mm512_storeu_si512(to, pair_words(x, y));
        _mm512_storeu_si512(to + unit_words, pair_words(x + 16, y + 16));
    }
}
#else
static void pack_two_units(const struct gemm_source *from, int64_t pairs, int64_t c0,
                           int64_t unit_words, uint32_t *to)
{
    for (int64_t unit = 0; unit < 2; unit++)
        SHOALI_CPU_SYMBOL(pack_rows)
    (from, 0, 2 * pairs, c0 + 16 * unit, 16, 16, to + unit * unit_words);
}
#endif

static void pack_unit(const struct gemm_source *from, bool transposed, int64_t k0, int64_t k,
                      int64_t c0, int64_t columns, uint32_t *to)
{
    if (transposed)
        SHOALI_CPU_SYMBOL(pack_transposed)(from, k0, k, c0, columns, 16, to);
    else
        SHOALI_CPU_SYMBOL(pack_rows)(from, k0, k, c0, columns, 16, to);
}

void SHOALI_CPU_SYMBOL(amx_pack_b)(const struct gemm_source *from, bool transposed, int64_t k,
                                   int64_t c0, int64_t columns, int64_t unit_words, uint32_t *to)
{
    const int64_t whole = !transposed && columns == 32 ? k & ~(int64_t)1 : 0;
    const int64_t rest = k % AMX_STEP;
    if (whole > 0)
        pack_two_units(from, whole / 2, c0, unit_words, to);
    for (int64_t c = 0; c < columns && k > 0; c += 16, to += unit_words) {
        if (whole < k)
            pack_unit(from, transposed, whole, k - whole, c0 + c, SHOALI_MIN(16, columns - c),
                      to + 8 * whole);
        if (rest > 0)
            clear_rest(to + k / AMX_STEP * AMX_TILE_WORDS, rest);
    }
}

void SHOALI_CPU_SYMBOL(amx_pack_rows)(const struct gemm_source *from, int64_t k, int64_t r0,
                                      int64_t rows, int64_t unit_words, uint32_t *to)
{
    const int64_t steps = amx_steps(k);
    for (int64_t r = 0; r < (rows + 15) / 16 * 16; r++) {
        const char *x = from->x + 2 * (r0 + r) * from->ld;
        char *row = (char *)(to + r / 16 * unit_words) + r % 16 * 64;
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

#if defined(__AVX512BW__)
/* to[c] = word c of each of sixteen rows, rows `row` words apart. */
SHOALI_INLINE void transpose_words(const __m512i x[16], int64_t row, uint32_t *to)
{
    __m512i pair[16], four[16], half[16];
    SHOALI_UNROLL
    for (int i = 0; i < 16; i += 2) {
        pair[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        pair[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    /* four[4 q + j]: in lane l, word 4 l + j of rows 4 q .. 4 q + 3 */
    SHOALI_UNROLL
    for (int i = 0; i < 16; i += 4) {
        four[i] = _mm512_unpacklo_epi64(pair[i], pair[i + 2]);
        four[i + 1] = _mm512_unpackhi_epi64(pair[i], pair[i + 2]);
        four[i + 2] = _mm512_unpacklo_epi64(pair[i + 1], pair[i + 3]);
        four[i + 3] = _mm512_unpackhi_epi64(pair[i + 1], pair[i + 3]);
    }
    /* half[4 h + j]: lanes 0, 2 of q = 2 h and 2 h + 1; half[8 + 4 h + j]: lanes 1, 3 */
    SHOALI_UNROLL
    for (int j = 0; j < 4; j++) {
        SHOALI_UNROLL
        for (int h = 0; h < 2; h++) {
            half[4 * h + j] = _mm512_shuffle_i32x4(four[8 * h + j], four[8 * h + 4 + j], 0x88);
            half[8 + 4 * h + j] = _mm512_shuffle_i32x4(four[8 * h + j], four[8 * h + 4 + j], 0xdd);
        }
    }
    SHOALI_UNROLL
    for (int j = 0; j < 4; j++) {
        SHOALI_UNROLL
        for (int odd = 0; odd < 2; odd++) {
            const __m512i low = half[8 * odd + j], high = half[8 * odd + 4 + j];
            _mm512_storeu_si512(to + (4 * odd + j) * row, _mm512_shuffle_i32x4(low, high, 0x88));
            _mm512_storeu_si512(to + (8 + 4 * odd + j) * row,
                                _mm512_shuffle_i32x4(low, high, 0xdd));
        }
    }
}

/* A whole step of 32 columns, the lines of which hold columns of both groups; asks for those of the
 * next step. */
static void pack_two_tiles(const struct gemm_source *from, int64_t k0, int64_t next, int64_t c0,
                           int64_t row, int64_t group, uint32_t *to)
{
    for (int64_t k = 0; k < next; k++)
        fetch_line(from, k0 + AMX_STEP + k, c0);
    for (int64_t half = 0; half < 2; half++) {
        const uint16_t *x =
            (const uint16_t *)(const void *)from->x + k0 * from->ld + c0 + 16 * half;
        __m512i pair[16];
        SHOALI_UNROLL
        for (int p = 0; p < 16; p++)
            pair[p] = pair_words(x + 2 * p * from->ld, x + (2 * p + 1) * from->ld);
        transpose_words(pair, row, to + half * group);
    }
}
#else
static void pack_two_tiles(const struct gemm_source *from, int64_t k0, int64_t next, int64_t c0,
                           int64_t row, int64_t group, uint32_t *to)
{
    (void)next;
    for (int64_t half = 0; half < 2; half++)
        pack_tile(from, k0, AMX_STEP, c0 + 16 * half, 16, row, to + half * group);
}
#endif

void SHOALI_CPU_SYMBOL(amx_pack_columns)(const struct gemm_source *from, int64_t k0, int64_t k,
                                         int64_t c0, int64_t columns, const struct amx_rows_to *to)
{
    /* Steps outside: memory gives whole rows faster. */
    for (int64_t at = 0; at < k; at += AMX_STEP) {
        const int64_t here = SHOALI_MIN(AMX_STEP, k - at),
                      next = SHOALI_MIN(AMX_STEP, k - at - here);
        for (int64_t c = 0; c < columns; c += 32) {
            uint32_t *tile = to->to + c / 16 * to->group + at / AMX_STEP * to->step;
            const int64_t there = SHOALI_MIN(32, columns - c);
            if (there == 32 && here == AMX_STEP) {
                pack_two_tiles(from, k0 + at, next, c0 + c, to->row, to->group, tile);
                continue;
            }
            for (int64_t half = 0; half < there; half += 16)
                pack_tile(from, k0 + at, here, c0 + c + half, SHOALI_MIN(16, there - half), to->row,
                          tile + half / 16 * to->group);
        }
    }
}

/* ---- B as a whole: units of 16 columns behind each other ---- */

size_t SHOALI_CPU_SYMBOL(packed_b_bytes)(int64_t n, int64_t k, shoal_dtype dtype)
{
    (void)dtype;
    return (size_t)((n + 15) / 16 * amx_steps(k)) * AMX_TILE_BYTES;
}

static void pack_panels(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_pack_b_args *args = block;
    const struct gemm_source from = {args->b, args->ldb, args->dtype, true};
    const int64_t unit_words = amx_steps(args->k) * AMX_TILE_WORDS;
    for (int64_t n = begin; n < end; n += AMX_SQUARE)
        SHOALI_CPU_SYMBOL(amx_pack_b)
    (&from, args->trans_b, args->k, n, SHOALI_MIN(AMX_SQUARE, end - n), unit_words,
     (uint32_t *)args->packed + n / 16 * unit_words);
}

void SHOALI_CPU_SYMBOL(pack_b)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_pack_b_args *pack = args;
    range_run(context->threads, pack_panels, pack, pack->n, AMX_SQUARE, 4 * pack->k);
}
