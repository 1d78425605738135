/* attention - what forward and backward share: small products, masks, exponentials, dropout. */
#ifndef SHOALI_OPS_CPU_ATTENTION_H
#define SHOALI_OPS_CPU_ATTENTION_H

#include "ops/attention_plain.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/pairs.h"
#include "ops/vmath.h"

/* Keys that a row's sum takes at once, and the width of a panel of packed K^T or V^T. */
#define ATT_TILE SHOALI_ATTENTION_TILE
/* Rows whose scores are worked on before the next: they stay in the first level of cache. A
 * multiple of every height of a register tile. */
#define ATT_GROUP (SHOALI_CPU_TILES ? 32 : 24)

/* Whether memory could hold the keys of a head; else the words of its scratch are beyond 64
 * bits. */
SHOALI_INLINE bool att_is_sane(int64_t kv_len, int64_t head_size)
{
    return kv_len <= INT64_C(1) << 40 && head_size <= 1 << 16;
}

/* Elements of a row that a product of pairs takes at once. */
#define ATT_WORD (SHOALI_CPU_TILES ? 32 : 2)

/* A product inside a tile: out[rows][16*units] = a b, or with `add` out + a b. Strides of a and b
 * in bytes, of out in elements. */
struct att_product {
    const void *a, *b;
    float *out;
    int64_t a_row, a_step, b_step;
    int64_t out_row;
    int64_t rows, units, steps;
    bool pairs, add;
};
/* Where tiles are multiplied, rows of A are words behind each other (a_step 4). */
/* Register tiles of at most att_rows(units) rows, each the whole sum over its steps. */
void SHOALI_CPU_SYMBOL(att_multiply)(const struct att_product *product);
#if SHOALI_CPU_TILES
/* The thread's last product is over: its tile registers are free. */
void SHOALI_CPU_SYMBOL(att_end)(void);
#else
SHOALI_INLINE void SHOALI_CPU_SYMBOL(att_end)(void)
{
}
#endif

#if SHOALI_CPU_TILES
/* to[column][row], rows `row_words` words apart, from stored [rows][columns] at row t0; whole steps
 * of rows, whole units of columns. */
void SHOALI_CPU_SYMBOL(att_pack_columns)(const struct gemm_source *from, int64_t t0, int64_t rows,
                                         int64_t columns, int64_t row_words, uint32_t *to);
#endif

/* Widest register tile in units. AVX-512 has registers for 6 x 4 units; a head of 64 is one tile
 * wide then, and of a step's operands less is loaded than by 8 x 2. */
#if defined(__AVX512F__)
#define ATT_PANEL 4
#else
#define ATT_PANEL 1
#endif
/* Units of each panel, the last one excepted, when a product is `units` wide. */
SHOALI_INLINE int64_t att_panel(int64_t units)
{
    const int64_t panels = (units + ATT_PANEL - 1) / ATT_PANEL;
    return (units + panels - 1) / panels;
}
/* Rows of its register tiles. */
SHOALI_INLINE int64_t att_rows(int64_t units)
{
#if SHOALI_CPU_TILES
    (void)units;
    return 32;
#elif defined(__AVX512F__)
    return att_panel(units) == 4 ? 6 : 8;
#else
    (void)units;
    return GEMM_ROWS;
#endif
}

/* Rows [at, at+rows) of the query tile that begins at t0, against the key tile at j. */
struct att_group {
    int64_t t0, at, rows, j;
};

/* Rows that are asked for while a tile is worked on, a few with each product: those of a large
 * model lie in a page of memory each, so the CPU does not foresee them. */
struct att_fetches {
    struct {
        const char *x;
        int64_t row_bytes, rows;
    } list[8];
    int count;
    int64_t bytes, at_once; /* of a row; rows with each product */
};
static inline void att_fetch_later(struct att_fetches *fetches, const void *x, int64_t row_bytes,
                                   int64_t rows)
{
    if (rows <= 0)
        return;
    fetches->list[fetches->count].x = x;
    fetches->list[fetches->count].row_bytes = row_bytes;
    fetches->list[fetches->count++].rows = rows;
}
/* Spreads them over `products`. */
static inline void att_fetch_spread(struct att_fetches *fetches, int64_t products)
{
    int64_t rows = 0;
    for (int i = 0; i < fetches->count; i++)
        rows += fetches->list[i].rows;
    fetches->at_once = rows / SHOALI_MAX(products, 1) + 1;
}
static inline void att_fetch(struct att_fetches *fetches)
{
    if (fetches->count == 0)
        return;
    const int last = fetches->count - 1;
    const int64_t row_bytes = fetches->list[last].row_bytes;
    const int64_t rows = SHOALI_MIN(fetches->at_once, fetches->list[last].rows);
    const char *x = fetches->list[last].x;
    for (int64_t r = 0; r < rows; r++, x += row_bytes) {
        for (int64_t at = 0; at < fetches->bytes; at += 64)
            __builtin_prefetch(x + at, 0, 2);
    }
    fetches->list[last].x = x;
    fetches->list[last].rows -= rows;
    fetches->count -= fetches->list[last].rows == 0;
}

/* Keys [begin, end) of the tile that begins at key j which query t sees, both 0 .. 64; none when
 * begin >= end. */
SHOALI_INLINE struct shoali_attention_keys att_seen(const struct shoali_attention_sight *sight,
                                                    int64_t t, int64_t j)
{
    struct shoali_attention_keys keys = shoali_attention_keys(sight, t);
    keys.begin = SHOALI_MAX(0, SHOALI_MIN(keys.begin - j, ATT_TILE));
    keys.end = SHOALI_MAX(0, SHOALI_MIN(keys.end - j, ATT_TILE));
    return keys;
}
/* The key tile that query t's sums begin with. */
SHOALI_INLINE int64_t att_first_tile(const struct shoali_attention_sight *sight, int64_t t)
{
    return shoali_attention_keys(sight, t).begin / ATT_TILE * ATT_TILE;
}

/* x with the lanes outside [begin, end) replaced. */
SHOALI_INLINE v16 att_lanes(v16 x, int64_t begin, int64_t end, float rest)
{
    if (begin <= 0 && end >= 16)
        return x;
    const v16i first = v16i_set1((uint32_t)SHOALI_MAX(0, SHOALI_MIN(begin, 16)));
    const v16i limit = v16i_set1((uint32_t)SHOALI_MAX(0, end));
    x = v16_select(v16i_geu(v16i_iota(), limit), v16_set1(rest), x);
    return v16_select(v16i_geu(v16i_iota(), first), x, v16_set1(rest));
}

/* Which of the elements `first` .. first+count-1 of the mask's index space dropout keeps, a row of
 * a tile. */
SHOALI_INLINE uint64_t att_keeps(const struct shoali_stream *stream, uint64_t first, int64_t count,
                                 float probability)
{
    _Static_assert(ATT_TILE <= 64, "bits of a row");
    return v16_dropout_keep(stream, first, count, shoali_dropout_threshold(probability));
}
/* What dropout multiplies elements at .. at+15 of that row with. */
SHOALI_INLINE v16 att_kept(uint64_t keeps, int64_t at, float probability)
{
    const v16 scale = v16_set1((float)(1.0 / (1.0 - (double)probability)));
    return v16_select(v16m_from_bits((uint32_t)(keeps >> at & 0xffff)), scale, v16_set1(0.0f));
}

#define ATT_LOG2E 1.4426950408889634

/* 2^x for x <= 126; below -126 it may stay at 2^-126, so masked elements must be zeroed after it.
 * 2^r on [-1/2, 1/2] to 1.1e-7, or to 2.8e-6 with `brief`, for results that are rounded to bf16
 * (2e-3); 2^0 is 1. Coefficients: least maximum of the relative error, rounded to float. */
SHOALI_INLINE v16 att_exp2(v16 x, bool brief)
{
    const v16 exponent = x;
#if defined(__AVX512F__)
    const v16 n = v16_rint(x);
#else
    const v16 magic = v16_set1(0x1.8p23f); /* leaves the integer in the low bits */
    x = v16_max(v16_set1(-126.0f), x);
    const v16 shifted = v16_add(x, magic);
    const v16 n = v16_sub(shifted, magic);
#endif
    const v16 r = v16_sub(x, n);
    v16 p;
    if (brief) {
        p = v16_fma(v16_set1(0x1.3a02ccp-7f), r, v16_set1(0x1.c9fc46p-5f));
        p = v16_fma(p, r, v16_set1(0x1.ec0378p-3f));
        p = v16_fma(p, r, v16_set1(0x1.62e12cp-1f));
    } else {
        p = v16_fma(v16_set1(0x1.5bba08p-10f), r, v16_set1(0x1.3cea88p-7f));
        p = v16_fma(p, r, v16_set1(0x1.c6b752p-5f));
        p = v16_fma(p, r, v16_set1(0x1.ebf9bcp-3f));
        p = v16_fma(p, r, v16_set1(0x1.62e42ap-1f));
    }
    p = v16_fma(p, r, v16_set1(1.0f));
#if defined(__AVX512F__)
    p = v16_ldexp(p, n);
#else
    p = v16_from_bits(v16i_add(v16_bits(p), v16i_shl(v16_bits(shifted), 23)));
#endif
    /* Zero, where tables are compiled for other vectors than those that they are compared with. */
    return SHOALI_CPU_TILES ? v16_select(v16_lt(exponent, v16_set1(-126.0f)), v16_set1(0.0f), p)
                            : p;
}

/* Thirty-two neighbours as an operand of the next product: with pairs rounded to bf16. */
SHOALI_INLINE void att_store(char *to, v16 low, v16 high, bool pairs)
{
    if (SHOALI_CPU_PAIRS && pairs) {
        pairs_store_two(to, low, high);
        return;
    }
    v16_store((float *)(void *)to, low);
    v16_store((float *)(void *)(to + 64), high);
}

/* Sixteen words, each with a row's element low and the next row's high, rounded to bf16; only with
 * pairs. */
SHOALI_INLINE void att_store_pair(char *to, v16 low, v16 high)
{
    pairs_store_mixed(to, low, high);
}

SHOALI_INLINE int64_t att_element_bytes(shoal_dtype dtype)
{
    return dtype == SHOAL_F32 ? 4 : 2;
}

/* A row of n sums, times factor, as elements of the type; with pairs as pairs.h rounds. */
SHOALI_INLINE void att_write(char *to, const float *sum, int64_t n, v16 factor, shoal_dtype dtype,
                             bool pairs)
{
    int64_t at = 0;
    for (; pairs && at + 32 <= n; at += 32)
        att_store(to + 2 * at, v16_mul(v16_load(sum + at), factor),
                  v16_mul(v16_load(sum + at + 16), factor), true);
    for (; at < n; at += 16)
        v16_store_as_n(to, at, SHOALI_MIN(16, n - at), v16_mul(v16_load(sum + at), factor), dtype);
}

#endif
