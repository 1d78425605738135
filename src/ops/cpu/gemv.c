/* gemv - the matrix product of a few rows: B is read once, where it lies and as it is.
 *
 * With so few rows nothing of B is used again, so a product takes the time that memory takes to
 * give B, if nothing else holds it up: packing, widened copies, rows asked for too late. Threads
 * get ranges of columns. The sums of a range stay in the first-level cache, one per element of C,
 * and each is added to in the order of k, so bits are those of the register tile (gemm.h).
 *
 *   B stored [k][columns]   GEMV_STEPS rows at a time, from the first column of the range to the
 *                           last: as many streams, each with its next piece on the way
 *   B stored [columns][k]   a panel of columns at a time, transposed piece by piece into the
 *                           first-level cache; the next panel is on its way from memory
 */
#include "ops/cpu/gemm.h"
#include "ops/cpu/range.h"

#if SHOALI_CPU_NEON
#define GEMV_STEPS \
    4 /* rows, or pairs of rows, of B that are added at once: half of the registers */
#else
#define GEMV_STEPS 8
#endif
#define GEMV_SUMS 4096 /* of a block of columns, all rows of C: 16 KiB */
#define GEMV_PIECE 64  /* steps that are added without a look at A's layout */

struct gemv {
    const struct shoali_gemm_args *args;
    struct gemm_source a, b;
    int64_t steps; /* of k: elements, or pairs */
};
/* Columns [begin, begin + count) and their sums. */
struct columns {
    int64_t begin, count, ld;
    float *sums;
};

/* Whether the product is one for this file: A is not transposed and B is not packed. */
bool SHOALI_CPU_SYMBOL(gemv_takes)(const struct shoali_gemm_args *args)
{
    return args->m <= GEMM_ROWS && args->k > 0 && !args->trans_a && args->packed_b == NULL &&
           args->fixed == NULL;
}

/* ---- B stored [k][columns] ------------------------------------------------------------------- */

#if SHOALI_CPU_BFDOT
/* Words of one row beside those of the next: sixteen columns of pairs. */
SHOALI_INLINE v16 load_pairs(const struct gemv *g, int64_t step, int64_t column, int64_t lanes)
{
    uint16_t rest[2][16] = {{0}};
    const uint16_t *x = (const uint16_t *)(const void *)g->b.x + 2 * step * g->b.ld + column;
    const uint16_t *y = 2 * step + 1 < g->args->k ? x + g->b.ld : NULL;
    if (lanes < 16) {
        memcpy(rest[0], x, (size_t)lanes * sizeof *x);
        if (y)
            memcpy(rest[1], y, (size_t)lanes * sizeof *y);
        x = rest[0];
        y = rest[1];
    }
    const uint16x8_t zero = vdupq_n_u16(0), low[2] = {vld1q_u16(x), vld1q_u16(x + 8)};
    const uint16x8_t high[2] = {y ? vld1q_u16(y) : zero, y ? vld1q_u16(y + 8) : zero};
    return (v16){vreinterpretq_f32_u16(vzip1q_u16(low[0], high[0])),
                 vreinterpretq_f32_u16(vzip2q_u16(low[0], high[0])),
                 vreinterpretq_f32_u16(vzip1q_u16(low[1], high[1])),
                 vreinterpretq_f32_u16(vzip2q_u16(low[1], high[1]))};
}
#elif SHOALI_CPU_PAIRS
/* Words of one row beside those of the next: sixteen columns of pairs. */
SHOALI_INLINE v16 interleave(__m256i low, __m256i high)
{
    const __m512i order = _mm512_or_si512(
        _mm512_set1_epi32(16 << 16),
        _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                           _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)));
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, both));
}

SHOALI_INLINE v16 load_pairs(const struct gemv *g, int64_t step, int64_t column, int64_t lanes)
{
    const __mmask16 mask = (__mmask16)(lanes >= 16 ? 0xffffu : (1u << lanes) - 1);
    const uint16_t *x = (const uint16_t *)(const void *)g->b.x + 2 * step * g->b.ld + column;
    const __m256i low = _mm256_maskz_loadu_epi16(mask, x);
    const bool whole = 2 * step + 1 < g->args->k;
    return interleave(
        low, _mm256_maskz_loadu_epi16((__mmask16)(whole ? mask : 0), whole ? x + g->b.ld : x));
}
#endif

/* Sixteen columns of one step, `lanes` of them there. */
SHOALI_INLINE v16 load_step(const struct gemv *g, int64_t step, int64_t column, int64_t lanes,
                            const shoal_dtype dtype, const bool pairs)
{
#if SHOALI_CPU_PAIRS
    if (pairs)
        return load_pairs(g, step, column, lanes);
#endif
    (void)pairs;
    return lanes_load(g->b.x, step * g->b.ld + column, lanes, dtype);
}

SHOALI_INLINE v16 add_step(uint32_t word, v16 b, v16 sum, const bool pairs)
{
    float value;
#if SHOALI_CPU_BFDOT
    const char *a = (const char *)&word;
    if (pairs)
        return (v16){gemm_step(a, b.a, sum.a, true), gemm_step(a, b.b, sum.b, true),
                     gemm_step(a, b.c, sum.c, true), gemm_step(a, b.d, sum.d, true)};
#elif SHOALI_CPU_PAIRS
    if (pairs)
        return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32((int32_t)word), (__m512bh)b);
#endif
    (void)pairs;
    memcpy(&value, &word, sizeof value);
    return v16_fma(v16_set1(value), b, sum);
}

/* Asks for the lines of the rows that come next; a step of pairs has two. */
SHOALI_INLINE void fetch_steps(const struct gemv *g, int64_t step, int64_t column, const int steps,
                               const shoal_dtype dtype, const bool pairs)
{
    const int64_t bytes = dtype == SHOAL_F32 ? 4 : 2, rows = pairs ? 2 : 1;
    const char *next = g->b.x + bytes * ((step + steps) * rows * g->b.ld + column);
    SHOALI_UNROLL
    for (int s = 0; s < steps * rows; s++)
        __builtin_prefetch(next + s * bytes * g->b.ld);
}

/* sums += A's words of `steps` steps, [row][GEMV_STEPS], times those of B. Inlined with constant
 * steps, so that B's lanes stay in registers. */
SHOALI_INLINE void add_steps(const struct gemv *g, const struct columns *at, const uint32_t *a,
                             int64_t step, const int steps, const shoal_dtype dtype,
                             const bool pairs)
{
    const int64_t per_line = dtype == SHOAL_F32 ? 16 : 32;
    for (int64_t c = 0; c < at->count; c += 16) {
        const int64_t lanes = SHOALI_MIN(16, at->count - c);
        v16 b[GEMV_STEPS];
        if (steps > 1 && c % per_line == 0)
            fetch_steps(g, step, at->begin + c, steps, dtype, pairs);
        SHOALI_UNROLL
        for (int s = 0; s < steps; s++)
            b[s] = load_step(g, step + s, at->begin + c, lanes, dtype, pairs);
        for (int64_t i = 0; i < g->args->m; i++) {
            float *sums = at->sums + i * at->ld + c;
            v16 sum = v16_load(sums);
            SHOALI_UNROLL
            for (int s = 0; s < steps; s++)
                sum = add_step(a[i * GEMV_STEPS + s], b[s], sum, pairs);
            v16_store(sums, sum);
        }
    }
}

/* All of k for some columns. */
SHOALI_INLINE void run_rows_as(const struct gemv *g, const struct columns *at,
                               const shoal_dtype dtype, const bool pairs)
{
    const int64_t per_step = pairs ? 2 : 1;
    uint32_t a[GEMM_ROWS * GEMV_STEPS];
    memset(at->sums, 0, (size_t)(g->args->m * at->ld) * sizeof(float));
    for (int64_t step = 0; step < g->steps;) {
        const bool many = g->steps - step >= GEMV_STEPS;
        const int64_t k0 = step * per_step;
        const int64_t k = SHOALI_MIN((many ? GEMV_STEPS : 1) * per_step, g->args->k - k0);
        SHOALI_CPU_SYMBOL(pack_straight)(&g->a, k0, k, 0, g->args->m, GEMV_STEPS, a);
        if (many)
            add_steps(g, at, a, step, GEMV_STEPS, dtype, pairs);
        else
            add_steps(g, at, a, step, 1, dtype, pairs);
        step += many ? GEMV_STEPS : 1;
    }
}

static void run_rows(const struct gemv *g, const struct columns *at)
{
    if (g->b.dtype == SHOAL_F32)
        run_rows_as(g, at, SHOAL_F32, false);
    else if (g->b.dtype == SHOAL_F16)
        run_rows_as(g, at, SHOAL_F16, false);
#if SHOALI_CPU_PAIRS
    else
        run_rows_as(g, at, SHOAL_BF16, true);
#else
    else
        run_rows_as(g, at, SHOAL_BF16, false);
#endif
}

/* ---- B stored [columns][k] ------------------------------------------------------------------- */

#if defined(__AVX512F__)
/* Eight words of one stored row and eight of another, widened to fp32 or pairs as they are. */
SHOALI_INLINE __m512 load_halves(const char *x, const char *y, const shoal_dtype dtype,
                                 const bool pairs)
{
    if (dtype == SHOAL_F32 || pairs) {
        const __m512d low =
            _mm512_castpd256_pd512(_mm256_loadu_pd((const double *)(const void *)x));
        const __m256d high = _mm256_loadu_pd((const double *)(const void *)y);
        return _mm512_castpd_ps(_mm512_mask_broadcast_f64x4(low, 0xf0, high));
    }
    const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)x);
    const __m128i high = _mm_loadu_si128((const __m128i *)(const void *)y);
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    if (dtype == SHOAL_F16)
        return _mm512_cvtph_ps(both);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(both), 16));
}

/* step[8] from eight words of sixteen stored rows. Rows four apart share a register, so that whole
 * quarters of it need to be exchanged only once. */
SHOALI_INLINE void transpose_eight(const char *x, int64_t row, const shoal_dtype dtype,
                                   const bool pairs, __m512 *step)
{
    __m512 quarter[8];
    SHOALI_UNROLL
    for (int half = 0; half < 2; half++) {
        __m512 v[4];
        SHOALI_UNROLL
        for (int r = 0; r < 4; r++)
            v[r] =
                load_halves(x + (8 * half + r) * row, x + (8 * half + 4 + r) * row, dtype, pairs);
        const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1]));
        const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
        const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3]));
        const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
        quarter[4 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        quarter[4 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        quarter[4 * half + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        quarter[4 * half + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    SHOALI_UNROLL
    for (int s = 0; s < 4; s++) {
        step[s] = _mm512_shuffle_f32x4(quarter[s], quarter[4 + s], 0x88);
        step[4 + s] = _mm512_shuffle_f32x4(quarter[s], quarter[4 + s], 0xdd);
    }
}

/* Whole blocks of sixteen steps: sums += a[row][GEMV_PIECE] times B from x on. Each block asks for
 * as much of what comes next, in the order of memory, which is the fastest. Inlined with one row as
 * a constant. */
SHOALI_INLINE void add_blocks(const struct gemv *g, const char *x, const char *next,
                              const uint32_t *a, int64_t steps, const struct columns *at,
                              const int64_t rows, const shoal_dtype dtype, const bool pairs)
{
    const int64_t word = dtype == SHOAL_F32 || pairs ? 4 : 2, row = (pairs ? 2 : word) * g->b.ld;
    for (int64_t s = 0; s < steps; s += 16, x += 16 * word, next += 256 * word) {
        __m512 b[16];
        SHOALI_UNROLL
        for (int line = 0; line < 4 * word; line++)
            __builtin_prefetch(next + 64 * line, 0, 2);
        transpose_eight(x, row, dtype, pairs, b);
        transpose_eight(x + 8 * word, row, dtype, pairs, b + 8);
        for (int64_t i = 0; i < rows; i++) {
            v16 sum = v16_load(at->sums + i * at->ld);
            SHOALI_UNROLL
            for (int t = 0; t < 16; t++)
                sum = add_step(a[i * GEMV_PIECE + s + t], b[t], sum, pairs);
            v16_store(at->sums + i * at->ld, sum);
        }
    }
}

static void add_piece(const struct gemv *g, const char *x, const char *next, const uint32_t *a,
                      int64_t steps, const struct columns *at)
{
    const int64_t rows = g->args->m;
    if (g->b.dtype == SHOAL_F32 && rows == 1)
        add_blocks(g, x, next, a, steps, at, 1, SHOAL_F32, false);
    else if (g->b.dtype == SHOAL_F32)
        add_blocks(g, x, next, a, steps, at, rows, SHOAL_F32, false);
    else if (g->b.dtype == SHOAL_F16)
        add_blocks(g, x, next, a, steps, at, rows, SHOAL_F16, false);
#if SHOALI_CPU_PAIRS
    else if (rows == 1)
        add_blocks(g, x, next, a, steps, at, 1, SHOAL_BF16, true);
    else
        add_blocks(g, x, next, a, steps, at, rows, SHOAL_BF16, true);
#else
    else
        add_blocks(g, x, next, a, steps, at, rows, SHOAL_BF16, false);
#endif
}

/* Whole blocks of k for sixteen columns; returns the steps that are done. */
static int64_t run_blocks(const struct gemv *g, const struct columns *at, int64_t end_column)
{
    const int64_t bytes = (int64_t)shoal_dtype_bytes(g->b.dtype), per_step = g->b.pairs ? 2 : 1;
    const int64_t end = at->count == 16 ? g->args->k / per_step / 16 * 16 : 0;
    const char *x = g->b.x + bytes * at->begin * g->b.ld;
    const char *next = at->begin + 16 < end_column ? x + 16 * bytes * g->b.ld : x;
    uint32_t a[GEMM_ROWS * GEMV_PIECE];
    if (end > 0)
        memset(at->sums, 0, (size_t)(g->args->m * at->ld) * sizeof(float));
    for (int64_t step = 0; step < end; step += GEMV_PIECE) {
        const int64_t steps = SHOALI_MIN(GEMV_PIECE, end - step), k0 = step * per_step;
        SHOALI_CPU_SYMBOL(pack_straight)
        (&g->a, k0, steps * per_step, 0, g->args->m, GEMV_PIECE, a);
        add_piece(g, x + bytes * k0, next + 16 * bytes * k0, a, steps, at);
    }
    return end;
}
#else
static int64_t run_blocks(const struct gemv *g, const struct columns *at, int64_t end_column)
{
    (void)g, (void)at, (void)end_column;
    return 0;
}
#endif

/* All of k for at most sixteen columns; the thread's columns go on to `end_column`. */
static void run_columns(const struct gemv *g, const struct columns *at, int64_t end_column)
{
    const bool pairs = g->b.pairs;
    const int64_t per_step = pairs ? 2 : 1;
    uint32_t a[GEMM_ROWS * GEMV_PIECE], b[GEMV_PIECE * 16] __attribute__((aligned(64)));
    struct gemm_tile tile = {.a = (const char *)a,
                             .a_next = (const char *)a,
                             .a_row = 4 * GEMV_PIECE,
                             .a_step = 4,
                             .b = (const char *)b,
                             .b_step = 4 * 16,
                             .out = at->sums,
                             .init_row = at->ld,
                             .out_row = at->ld};
    for (int64_t step = run_blocks(g, at, end_column); step < g->steps; step += GEMV_PIECE) {
        const int64_t k0 = step * per_step;
        const int64_t k = SHOALI_MIN(GEMV_PIECE * per_step, g->args->k - k0);
        SHOALI_CPU_SYMBOL(pack_straight)(&g->a, k0, k, 0, g->args->m, GEMV_PIECE, a);
        SHOALI_CPU_SYMBOL(pack_transposed)(&g->b, k0, k, at->begin, at->count, 16, b);
        tile.steps = gemm_steps(k, pairs);
        tile.init = step > 0 ? at->sums : NULL;
        SHOALI_CPU_SYMBOL(gemm_tile)(&tile, (int)g->args->m, 1, pairs);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

static void work(const void *arg, int64_t begin, int64_t end)
{
    const struct gemv *g = arg;
    const struct shoali_gemm_args *args = g->args;
    float sums[GEMV_SUMS] __attribute__((aligned(64)));
    struct columns at = {.sums = sums, .begin = begin};
    const int64_t most = args->trans_b ? 16 : GEMV_SUMS / args->m / 16 * 16;
    for (; at.begin < end; at.begin += at.count) {
        at.count = SHOALI_MIN(most, end - at.begin);
        at.ld = (at.count + 15) / 16 * 16;
        if (args->trans_b)
            run_columns(g, &at, end);
        else
            run_rows(g, &at);
        SHOALI_CPU_SYMBOL(gemm_finish)(args, sums, at.ld, 0, args->m, at.begin, at.count);
    }
}

void SHOALI_CPU_SYMBOL(gemv)(const struct shoali_gemm_args *args, struct shoali_pool *threads)
{
    const bool pairs = gemm_pairs(args->dtype_ab);
    const struct gemv g = {.args = args,
                           .a = {args->a, args->lda, args->dtype_ab, pairs},
                           .b = {args->b, args->ldb, args->dtype_ab, pairs},
                           .steps = gemm_steps(args->k, pairs)};
    /* A thread's columns are one piece: the rows of B are read as far as they lie side by side, and
     * a product is over before a piece that another thread could take is worth its claim. */
    range_run_wide(threads, work, &g, args->n, 32, args->trans_b ? 32 : GEMV_SUMS,
                   args->k * (int64_t)shoal_dtype_bytes(args->dtype_ab));
}
