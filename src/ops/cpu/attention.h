/* attention - what forward and backward share: small products, masks, row reductions, dropout. */
#ifndef SHOALI_OPS_CPU_ATTENTION_H
#define SHOALI_OPS_CPU_ATTENTION_H

#include "ops/cpu/gemm.h"
#include "ops/vmath.h"

#define ATT_TILE SHOALI_ATTENTION_TILE
#define ATT_UNITS (ATT_TILE / 16)

/* A product inside a tile: out[rows][16*units] = init + a b. See struct gemm_tile for the strides.
 */
struct att_product {
    const void *a, *b;
    const float *init; /* rows out_row apart; NULL: +0 */
    float *out;
    int64_t a_row, a_step, b_step; /* bytes */
    int64_t out_row;               /* elements */
    int64_t rows, units, steps;
    bool pairs;
};

/* Units of the next panel when `units` are left: as wide as the tile allows, but no lone last unit.
 */
SHOALI_INLINE int att_panel_units(int64_t units)
{
#if GEMM_UNITS == 3
    if (units == 4)
        return 2;
#endif
    return (int)SHOALI_MIN(GEMM_UNITS, units);
}

static inline void att_multiply(const struct att_product *p)
{
    int units;
    for (int64_t u = 0; u < p->units; u += units) {
        units = att_panel_units(p->units - u);
        struct gemm_tile tile = {.a_row = p->a_row,
                                 .a_step = p->a_step,
                                 .b = (const char *)p->b + 64 * u,
                                 .b_step = p->b_step,
                                 .init_row = p->out_row,
                                 .out_row = p->out_row,
                                 .steps = p->steps};
        for (int64_t i = 0; i < p->rows; i += GEMM_ROWS) {
            tile.a = (const char *)p->a + i * p->a_row;
            tile.init = p->init ? p->init + i * p->out_row + 16 * u : NULL;
            tile.out = p->out + i * p->out_row + 16 * u;
            SHOALI_CPU_SYMBOL(gemm_tile)
            (&tile, (int)SHOALI_MIN(GEMM_ROWS, p->rows - i), units, p->pairs);
        }
    }
}

/* Keys of the tile that begins at key j which query t sees: 0 .. 64. */
SHOALI_INLINE int64_t att_visible(int32_t causal, int64_t q_len, int64_t kv_len, int64_t t,
                                  int64_t j)
{
    int64_t end = causal ? t + kv_len - q_len + 1 : kv_len;
    end = SHOALI_MIN(end, kv_len) - j;
    return SHOALI_MAX(0, SHOALI_MIN(end, ATT_TILE));
}

/* x with the lanes from `valid` on replaced. */
SHOALI_INLINE v16 att_first_lanes(v16 x, int64_t valid, float rest)
{
    if (valid >= 16)
        return x;
    const v16i limit = v16i_set1((uint32_t)SHOALI_MAX(valid, 0));
    return v16_select(v16i_geu(v16i_iota(), limit), v16_set1(rest), x);
}

/* x * mask / (1 - p) for the elements `first` .. first+15 of the mask's index space. */
SHOALI_INLINE v16 att_drop(v16 x, const struct shoali_stream *stream, uint64_t first,
                           float probability)
{
    const v16m keep = v16_dropout_keep(stream, first, shoali_dropout_threshold(probability));
    const v16 scale = v16_set1((float)(1.0 / (1.0 - (double)probability)));
    return v16_select(keep, v16_mul(x, scale), v16_set1(0.0f));
}

/* e^x for x <= 0 (and a little above) with an error of 2 ulp, cheaper than v16_exp: below -87 it
 * stays at e^-87, so masked elements must be zeroed after it. x = n ln2 + r; the polynomial is
 * v16_exp's. */
SHOALI_INLINE v16 att_exp(v16 x)
{
    const v16 magic = v16_set1(0x1.8p23f);
    x = v16_max(v16_set1(-87.0f), x);
    const v16 shifted = v16_fma(x, v16_set1(0x1.715476p+0f), magic);
    const v16 n = v16_sub(shifted, magic);
    v16 r = v16_fnma(n, v16_set1(0x1.62e4p-1f), x);
    r = v16_fnma(n, v16_set1(0x1.7f7d1cp-20f), r);
    v16 p = v16_set1(0x1.6d432ap-10f);
    p = v16_fma(p, r, v16_set1(0x1.1110ep-7f));
    p = v16_fma(p, r, v16_set1(0x1.5554eap-5f));
    p = v16_fma(p, r, v16_set1(0x1.555556p-3f));
    p = v16_fma(p, r, v16_set1(0.5f));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_fma(p, r, v16_set1(1.0f));
    return v16_from_bits(v16i_add(v16_bits(p), v16i_shl(v16_bits(shifted), 23)));
}

/* P and dS as operands of the next product, rounded to bf16; only with pairs. */
SHOALI_INLINE void att_store_bf16(uint16_t *to, v16 x)
{
#if SHOALI_CPU_PAIRS
    const __m256bh half = _mm512_cvtneps_pbh(x);
    memcpy(to, &half, sizeof half);
#else
    v16_store_bf16(to, x);
#endif
}

SHOALI_INLINE int64_t att_element_bytes(shoal_dtype dtype)
{
    return dtype == SHOAL_F32 ? 4 : 2;
}

#endif
