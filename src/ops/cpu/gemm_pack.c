/* gemm_pack - brings operands of the matrix product into the layouts the register tile reads. */
#include "ops/cpu/gemm.h"
#include "ops/cpu/pairs.h"

/* ---- widening -------------------------------------------------------------------------------- */

SHOALI_INLINE float widen_one(const uint16_t *x, shoal_dtype dtype)
{
    return dtype == SHOAL_BF16 ? shoali_bf16_to_f32(*x) : shoali_f16_to_f32(*x);
}

#if defined(__AVX2__)
SHOALI_INLINE __m256 widen_eight(const uint16_t *x, shoal_dtype dtype)
{
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)x);
    if (dtype == SHOAL_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
#elif SHOALI_CPU_NEON
SHOALI_INLINE void widen_eight(const uint16_t *x, shoal_dtype dtype, float *to)
{
    const uint16x8_t half = vld1q_u16(x), zero = vdupq_n_u16(0);
    if (dtype == SHOAL_F16) {
        const float16x8_t number = vreinterpretq_f16_u16(half);
        vst1q_f32(to, vcvt_f32_f16(vget_low_f16(number)));
        vst1q_f32(to + 4, vcvt_high_f32_f16(number));
    } else {
        vst1q_f32(to, vreinterpretq_f32_u16(vzip1q_u16(zero, half)));
        vst1q_f32(to + 4, vreinterpretq_f32_u16(vzip2q_u16(zero, half)));
    }
}
#endif

/* to[0..n) = fp32 bits of x[0..n), one 16-bit dtype. */
SHOALI_INLINE void widen(const uint16_t *x, int64_t n, shoal_dtype dtype, uint32_t *to)
{
    int64_t i = 0;
#if defined(__AVX2__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps((float *)(void *)(to + i), widen_eight(x + i, dtype));
#elif SHOALI_CPU_NEON
    for (; i + 8 <= n; i += 8)
        widen_eight(x + i, dtype, (float *)(void *)(to + i));
#endif
    for (; i < n; i++) {
        float value = widen_one(x + i, dtype);
        memcpy(to + i, &value, sizeof value);
    }
}

/* to[0..n) = pairs (low half from x, high half from y; y NULL: zero). */
SHOALI_INLINE void pair_up(const uint16_t *x, const uint16_t *y, int64_t n, uint32_t *to)
{
    int64_t i = 0;
#if defined(__AVX512BW__)
    for (; i + 16 <= n; i += 16) {
        const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        __m256i high = _mm256_setzero_si256();
        if (y)
            high = _mm256_loadu_si256((const __m256i *)(const void *)(y + i));
        const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        _mm512_storeu_si512(to + i, pairs_mixed(both));
    }
#endif
#if defined(__AVX2__)
    for (; i + 8 <= n; i += 8) {
        __m256i low =
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(x + i)));
        __m256i high = _mm256_setzero_si256();
        if (y)
            high = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(y + i)));
        _mm256_storeu_si256((__m256i *)(void *)(to + i),
                            _mm256_or_si256(low, _mm256_slli_epi32(high, 16)));
    }
#elif SHOALI_CPU_NEON
    for (; i + 8 <= n; i += 8) {
        const uint16x8_t low = vld1q_u16(x + i), high = y ? vld1q_u16(y + i) : vdupq_n_u16(0);
        vst1q_u32(to + i, vreinterpretq_u32_u16(vzip1q_u16(low, high)));
        vst1q_u32(to + i + 4, vreinterpretq_u32_u16(vzip2q_u16(low, high)));
    }
#endif
    for (; i < n; i++)
        to[i] = (uint32_t)x[i] | (uint32_t)(y ? y[i] : 0) << 16;
}

#define FETCH_AHEAD 16 /* rows */
#define FETCH_BYTES_AHEAD 128

/* ---- rows that already run along the panel --------------------------------------------------- */

SHOALI_INLINE void pack_one_row(const struct gemm_source *from, int64_t k, bool last_half,
                                int64_t c0, int64_t columns, uint32_t *to)
{
    if (from->dtype == SHOAL_F32) {
        memcpy(to, from->x + 4 * (k * from->ld + c0), (size_t)columns * 4);
        return;
    }
    const uint16_t *x = (const uint16_t *)(const void *)from->x + k * from->ld + c0;
    if (from->pairs)
        pair_up(x, last_half ? NULL : x + from->ld, columns, to);
    else
        widen(x, columns, from->dtype, to);
}

/* Asks for a row that will be packed soon: rows lie too far apart for the CPU to foresee them. */
SHOALI_INLINE void fetch_row(const struct gemm_source *from, int64_t k, int64_t c0, int64_t columns)
{
    const int64_t bytes = from->dtype == SHOAL_F32 ? 4 : 2;
    const char *row = from->x + bytes * (k * from->ld + c0);
    for (int64_t at = 0; at < columns * bytes; at += 64)
        __builtin_prefetch(row + at);
}

/* Inlined with constant columns, so that a row is a few vector moves. */
SHOALI_INLINE void pack_full_rows(const struct gemm_source *from, int64_t k0, int64_t k, int64_t c0,
                                  int64_t columns, uint32_t *to)
{
    const int64_t per_step = from->pairs ? 2 : 1;
    for (int64_t i = 0; i < k; i += per_step, to += columns) {
        if (columns >= 16 && i + FETCH_AHEAD < k)
            fetch_row(from, k0 + i + FETCH_AHEAD, c0, columns);
        pack_one_row(from, k0 + i, i + 1 == k, c0, columns, to);
    }
}

SHOALI_INLINE void pack_rows_as(const struct gemm_source *from, int64_t k0, int64_t k, int64_t c0,
                                int64_t columns, int64_t width, uint32_t *to)
{
    if (columns == GEMM_ROWS && width == GEMM_ROWS) {
        pack_full_rows(from, k0, k, c0, GEMM_ROWS, to);
    } else if (columns == GEMM_COLUMNS && width == GEMM_COLUMNS) {
        pack_full_rows(from, k0, k, c0, GEMM_COLUMNS, to);
    } else if (columns == width) {
        pack_full_rows(from, k0, k, c0, columns, to);
    } else {
        const int64_t per_step = from->pairs ? 2 : 1;
        for (int64_t i = 0; i < k; i += per_step, to += width) {
            pack_one_row(from, k0 + i, i + 1 == k, c0, columns, to);
            memset(to + columns, 0, (size_t)(width - columns) * 4);
        }
    }
}

/* Inlined for the two usual kinds, so that no row asks which one it is. */
void SHOALI_CPU_SYMBOL(pack_rows)(const struct gemm_source *from, int64_t k0, int64_t k, int64_t c0,
                                  int64_t columns, int64_t width, uint32_t *to)
{
    const struct gemm_source wide = {from->x, from->ld, SHOAL_F32, false};
    const struct gemm_source pairs = {from->x, from->ld, SHOAL_BF16, true};
    if (from->dtype == SHOAL_F32)
        pack_rows_as(&wide, k0, k, c0, columns, width, to);
    else if (from->pairs)
        pack_rows_as(&pairs, k0, k, c0, columns, width, to);
    else
        pack_rows_as(from, k0, k, c0, columns, width, to);
}

/* ---- tiles of A from columns ----------------------------------------------------------------- */

#if GEMM_ROWS == 8 && defined(__AVX512F__)
/* Two tiles at a time, whose rows of fp32 are one cache line: every line is read once. Runs of rows
 * go over all columns, as memory gives whole rows faster, and ask for those of the next run. */
SHOALI_INLINE int64_t pack_tile_pairs(const struct gemm_source *from, int64_t k0, int64_t k,
                                      int64_t c0, int64_t columns, uint32_t *to)
{
    const int64_t per_step = from->pairs ? 2 : 1, steps = gemm_steps(k, from->pairs);
    const int64_t whole = columns & ~(int64_t)15;
    for (int64_t first = 0; first < k; first += FETCH_AHEAD) {
        const int64_t end = SHOALI_MIN(first + FETCH_AHEAD, k);
        for (int64_t c = 0; c < whole; c += 16) {
            uint32_t *left = to + c * steps + gemm_steps(first, from->pairs) * 8;
            for (int64_t i = first; i < end; i += per_step, left += 8) {
                uint32_t row[16] __attribute__((aligned(64)));
                if (i + FETCH_AHEAD < k)
                    fetch_row(from, k0 + i + FETCH_AHEAD, c0 + c, 16);
                pack_one_row(from, k0 + i, i + 1 == k, c0 + c, 16, row);
                memcpy(left, row, 32);
                memcpy(left + 8 * steps, row + 8, 32);
            }
        }
    }
    return whole;
}
#else
static int64_t pack_tile_pairs(const struct gemm_source *from, int64_t k0, int64_t k, int64_t c0,
                               int64_t columns, uint32_t *to)
{
    (void)from, (void)k0, (void)k, (void)c0, (void)columns, (void)to;
    return 0;
}
#endif

void SHOALI_CPU_SYMBOL(pack_tiles)(const struct gemm_source *from, int64_t k0, int64_t k,
                                   int64_t c0, int64_t columns, uint32_t *to)
{
    /* Short runs of k for all tiles: a cache line of A holds columns of more than one tile. */
    const int64_t run = 16, steps = gemm_steps(k, from->pairs);
    const struct gemm_source pairs = {from->x, from->ld, SHOAL_BF16, true};
    const int64_t begin = from->pairs ? pack_tile_pairs(&pairs, k0, k, c0, columns, to)
                                      : pack_tile_pairs(from, k0, k, c0, columns, to);
    for (int64_t i = 0; i < k; i += run) {
        for (int64_t c = begin; c < columns; c += GEMM_ROWS)
            SHOALI_CPU_SYMBOL(pack_rows)
        (from, k0 + i, SHOALI_MIN(run, k - i), c0 + c, SHOALI_MIN(GEMM_ROWS, columns - c),
         GEMM_ROWS, to + c * steps + gemm_steps(i, from->pairs) * GEMM_ROWS);
    }
}

void SHOALI_CPU_SYMBOL(pack_straight)(const struct gemm_source *from, int64_t k0, int64_t k,
                                      int64_t r0, int64_t rows, int64_t to_ld, uint32_t *to)
{
    for (int64_t r = 0; r < rows; r++, to += to_ld) {
        const uint16_t *x = (const uint16_t *)(const void *)from->x + (r0 + r) * from->ld + k0;
        if (from->dtype == SHOAL_F32) {
            memcpy(to, from->x + 4 * ((r0 + r) * from->ld + k0), (size_t)k * 4);
            continue;
        }
        if (!from->pairs) {
            widen(x, k, from->dtype, to);
            continue;
        }
        memcpy(to, x, (size_t)(k / 2) * 4);
        if (k % 2)
            to[k / 2] = x[k - 1];
    }
}

/* ---- transposing ----------------------------------------------------------------------------- */

/* to[s][0..16) = word s of 16 rows; four steps. */
#if defined(__AVX512F__)
SHOALI_INLINE __m512 gather_lanes(const char *x, int64_t row)
{
    __m512 t = _mm512_castps128_ps512(_mm_loadu_ps((const float *)(const void *)x));
    t = _mm512_insertf32x4(t, _mm_loadu_ps((const float *)(const void *)(x + 4 * row)), 1);
    t = _mm512_insertf32x4(t, _mm_loadu_ps((const float *)(const void *)(x + 8 * row)), 2);
    return _mm512_insertf32x4(t, _mm_loadu_ps((const float *)(const void *)(x + 12 * row)), 3);
}

SHOALI_INLINE void transpose_four(const char *x, int64_t row, int64_t to_ld, float *to)
{
    __m512 t0 = gather_lanes(x, row), t1 = gather_lanes(x + row, row);
    __m512 t2 = gather_lanes(x + 2 * row, row), t3 = gather_lanes(x + 3 * row, row);
    __m512d u0 = _mm512_castps_pd(_mm512_unpacklo_ps(t0, t1));
    __m512d u1 = _mm512_castps_pd(_mm512_unpackhi_ps(t0, t1));
    __m512d u2 = _mm512_castps_pd(_mm512_unpacklo_ps(t2, t3));
    __m512d u3 = _mm512_castps_pd(_mm512_unpackhi_ps(t2, t3));
    _mm512_storeu_ps(to, _mm512_castpd_ps(_mm512_unpacklo_pd(u0, u2)));
    _mm512_storeu_ps(to + to_ld, _mm512_castpd_ps(_mm512_unpackhi_pd(u0, u2)));
    _mm512_storeu_ps(to + 2 * to_ld, _mm512_castpd_ps(_mm512_unpacklo_pd(u1, u3)));
    _mm512_storeu_ps(to + 3 * to_ld, _mm512_castpd_ps(_mm512_unpackhi_pd(u1, u3)));
}
#elif defined(__AVX2__)
SHOALI_INLINE __m256 gather_lanes(const char *x, int64_t row)
{
    return _mm256_insertf128_ps(
        _mm256_castps128_ps256(_mm_loadu_ps((const float *)(const void *)x)),
        _mm_loadu_ps((const float *)(const void *)(x + 4 * row)), 1);
}

SHOALI_INLINE void transpose_four(const char *x, int64_t row, int64_t to_ld, float *to)
{
    for (int half = 0; half < 2; half++, x += 8 * row, to += 8) {
        __m256 t0 = gather_lanes(x, row), t1 = gather_lanes(x + row, row);
        __m256 t2 = gather_lanes(x + 2 * row, row), t3 = gather_lanes(x + 3 * row, row);
        __m256d u0 = _mm256_castps_pd(_mm256_unpacklo_ps(t0, t1));
        __m256d u1 = _mm256_castps_pd(_mm256_unpackhi_ps(t0, t1));
        __m256d u2 = _mm256_castps_pd(_mm256_unpacklo_ps(t2, t3));
        __m256d u3 = _mm256_castps_pd(_mm256_unpackhi_ps(t2, t3));
        _mm256_storeu_ps(to, _mm256_castpd_ps(_mm256_unpacklo_pd(u0, u2)));
        _mm256_storeu_ps(to + to_ld, _mm256_castpd_ps(_mm256_unpackhi_pd(u0, u2)));
        _mm256_storeu_ps(to + 2 * to_ld, _mm256_castpd_ps(_mm256_unpacklo_pd(u1, u3)));
        _mm256_storeu_ps(to + 3 * to_ld, _mm256_castpd_ps(_mm256_unpackhi_pd(u1, u3)));
    }
}
#elif SHOALI_CPU_NEON
SHOALI_INLINE float32x4_t four_words(const char *x)
{
    return vld1q_f32((const float *)(const void *)x);
}
SHOALI_INLINE void store_halves(float *to, float64x2_t x)
{
    vst1q_f32(to, vreinterpretq_f32_f64(x));
}

SHOALI_INLINE void transpose_four(const char *x, int64_t row, int64_t to_ld, float *to)
{
    for (int quarter = 0; quarter < 4; quarter++, x += 4 * row, to += 4) {
        const float32x4_t t0 = four_words(x), t1 = four_words(x + row);
        const float32x4_t t2 = four_words(x + 2 * row), t3 = four_words(x + 3 * row);
        const float64x2_t u0 = vreinterpretq_f64_f32(vtrn1q_f32(t0, t1));
        const float64x2_t u1 = vreinterpretq_f64_f32(vtrn2q_f32(t0, t1));
        const float64x2_t u2 = vreinterpretq_f64_f32(vtrn1q_f32(t2, t3));
        const float64x2_t u3 = vreinterpretq_f64_f32(vtrn2q_f32(t2, t3));
        store_halves(to, vtrn1q_f64(u0, u2));
        store_halves(to + to_ld, vtrn1q_f64(u1, u3));
        store_halves(to + 2 * to_ld, vtrn2q_f64(u0, u2));
        store_halves(to + 3 * to_ld, vtrn2q_f64(u1, u3));
    }
}
#else
SHOALI_INLINE void transpose_four(const char *x, int64_t row, int64_t to_ld, float *to)
{
    for (int s = 0; s < 4; s++) {
        for (int c = 0; c < 16; c++)
            memcpy(to + s * to_ld + c, x + c * row + 4 * s, sizeof(float));
    }
}
#endif

/* The 4-byte word `s` of stored row c. */
SHOALI_INLINE uint32_t word_at(const struct gemm_source *from, int64_t c, int64_t k, bool last_half)
{
    uint32_t word = 0;
    if (from->dtype == SHOAL_F32) {
        memcpy(&word, from->x + 4 * (c * from->ld + k), 4);
        return word;
    }
    const char *x = from->x + 2 * (c * from->ld + k);
    uint16_t half;
    memcpy(&half, x, 2);
    if (!from->pairs) {
        float value = widen_one(&half, from->dtype);
        memcpy(&word, &value, 4);
    } else if (last_half) {
        word = half;
    } else {
        memcpy(&word, x, 4);
    }
    return word;
}

/* Any part of a unit, word by word: edges. */
static void transpose_words(const struct gemm_source *from, int64_t k0, int64_t k, int64_t c0,
                            int64_t columns, int64_t to_ld, uint32_t *to)
{
    const int64_t per_step = from->pairs ? 2 : 1;
    for (int64_t i = 0; i < k; i += per_step, to += to_ld) {
        for (int64_t c = 0; c < columns; c++)
            to[c] = word_at(from, c0 + c, k0 + i, i + 1 == k);
        memset(to + columns, 0, (size_t)(16 - columns) * 4);
    }
}

/* Sixteen rows whose words are fp32 or pairs in place. */
static void transpose_unit(const char *x, int64_t row_bytes, int64_t fours, int64_t to_ld,
                           float *to)
{
    for (int64_t f = 0; f < fours; f++, x += 16, to += 4 * to_ld) {
        /* Four of the sixteen rows each time: a line of each by the time it is used up. */
        for (int64_t r = 4 * (f & 3); r < 4 * (f & 3) + 4; r++)
            __builtin_prefetch(x + r * row_bytes + FETCH_BYTES_AHEAD);
        transpose_four(x, row_bytes, to_ld, to);
    }
}

/* Sixteen rows that are widened on the way. */
static void transpose_widening(const struct gemm_source *from, int64_t k0, int64_t k, int64_t c0,
                               int64_t to_ld, float *to)
{
    uint32_t block[16][16];
    for (int64_t i = 0; i < k; i += 16, to += 16 * to_ld) {
        int64_t n = SHOALI_MIN(16, k - i);
        const uint16_t *x = (const uint16_t *)(const void *)from->x + c0 * from->ld + k0 + i;
        for (int c = 0; c < 16; c++)
            widen(x + c * from->ld, n, from->dtype, block[c]);
        transpose_unit((const char *)block, sizeof block[0], n / 4, to_ld, to);
    }
}

void SHOALI_CPU_SYMBOL(pack_transposed)(const struct gemm_source *from, int64_t k0, int64_t k,
                                        int64_t c0, int64_t columns, int64_t width, uint32_t *to)
{
    const int64_t bytes = from->dtype == SHOAL_F32 ? 4 : 2;
    const int64_t per_four = from->pairs ? 8 : 4; /* elements of k in four words */
    for (int64_t c = 0; c < columns; c += 16) {
        int64_t fours = columns - c >= 16 ? k / per_four : 0;
        if (fours > 0 && bytes == 2 && !from->pairs)
            transpose_widening(from, k0, fours * per_four, c0 + c, width,
                               (float *)(void *)(to + c));
        else if (fours > 0)
            transpose_unit(from->x + bytes * ((c0 + c) * from->ld + k0), bytes * from->ld, fours,
                           width, (float *)(void *)(to + c));
        int64_t done = fours * per_four;
        transpose_words(from, k0 + done, k - done, c0 + c, SHOALI_MIN(16, columns - c), width,
                        to + c + 4 * fours * width);
    }
}
