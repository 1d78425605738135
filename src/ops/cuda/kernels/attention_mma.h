/* attention_mma - attention of 16-bit numbers by tensor cores: parts for all heads and types.
 *
 *   attention_mma.cu        the sizes and types for which the kernels are made
 *   attention_rows.h        rows in shared memory, and products of them
 *   attention_forward.h     the forward pass: a block has 128 queries of a head
 *   attention_dq.h          gradients of queries: a block has 64 queries
 *   attention_dkv.h         gradients of keys and values: a block has 64 keys of a group
 *
 * A warp has some rows of its block, queries or keys. Tiles of the other side come through two
 * stages of shared memory. Products of 16 rows and 8 columns stay in registers until their sum is
 * complete. So one thread adds to each result, in one order: tiles upward. For a key the heads of
 * its group come upward first. A result depends on its own queries and keys alone. The other heads
 * and samples of the launch do not matter, nor does the grid.
 *
 * A tile that all rows see whole takes a shorter path. Elsewhere a hidden score has the weight 0.
 *
 * BITS are those of the emulator: a tensor core's sums by its rule (matrices.h), and powers of two
 * by a polynomial instead of the GPU's own instruction, whose bits nobody documents. */
#ifndef SHOALI_OPS_CUDA_ATTENTION_MMA_H
#define SHOALI_OPS_CUDA_ATTENTION_MMA_H

#include "ops/cuda/kernels/attention_common.h"
#include "ops/cuda/kernels/matrices.h"

enum { MMA_THREADS = CUDA_ATTENTION_THREADS, MMA_QUERIES = CUDA_ATTENTION_QUERIES };
enum { MMA_OWN = CUDA_ATTENTION_OWN }; /* rows of a block of the backward pass */
#define LANE (THREAD % WARP)
#define WARP_OF_BLOCK (THREAD / WARP)
#define LANE_ROW (LANE / 4)        /* g of matrices.h: the lane has rows g and g + 8 of 16 */
#define LANE_COLUMN (LANE % 4 * 2) /* 2 t: and of 8 columns this one and the next */

/* ---- powers of two ---- */

#define POWER_RANGE 120.0f
#define POWER_MAGIC 0x1.8p23f /* adding it rounds to an integer */
/* 2^(POWER_RANGE (u - 1)) for 0 <= u <= 1. The exponent is n + r: n an integer, |r| <= 1/2; 2^r is
 * 1 + r P(r) to 1.1e-4, less than rounding to 16 bits costs. The least result is 2^-120: a softmax
 * has no smaller weight but 0. */
DEVICE float power_of(float u)
{
    const float shift = POWER_MAGIC - POWER_RANGE;
    const float shifted = v1_fma(u, POWER_RANGE, shift);
    const float r = v1_fma(u, POWER_RANGE, -(shifted - shift));
    float p = 0x1.c2a216p-5f;
    p = v1_fma(p, r, 0x1.f00c4cp-3f);
    p = v1_fma(p, r, 0x1.62f5fap-1f);
    p = v1_fma(p, r, 1.0f);
    return f32_of_bits(bits_of_f32(p) + (bits_of_f32(shifted) << 23));
}
/* The factor of a score for power_of; bias_of(x) is added, of the score x that gives 1. */
DEVICE float factor_of(const struct cuda_attention_args *args)
{
    return args->scale * (1.44269504f / POWER_RANGE);
}
DEVICE float bias_of(float x, float factor)
{
    return v1_fma(-x, factor, 1.0f);
}

/* The same of a row's lse: the scores then give probabilities. */
DEVICE float bias_of_lse(float lse)
{
    return v1_fma(-lse, 1.44269504f / POWER_RANGE, 1.0f);
}

/* ---- gradients ---- */

/* A score becomes its probability, and the gradient of the probability that of the score before its
 * scale. */
DEVICE void differentiate(float *score, float *gradient, float factor, float bias, float delta)
{
    *score = power_of(fma_cut(*score, factor, bias));
    *gradient = *score * (*gradient - delta);
}
/* The same behind dropout, with the score's own mask; hidden scores give zeros. */
DEVICE void differentiate_masked(const struct cuda_attention_args *args, float *score,
                                 float *gradient, float factor, float bias, float delta, int seen,
                                 uint32_t keep)
{
    if (args->keep_scale > 0)
        *gradient = keep & 1 ? *gradient * args->keep_scale : 0;
    differentiate(score, gradient, factor, bias, delta);
    *gradient = seen ? *gradient : 0;
    *score = seen && (keep & 1 || !(args->keep_scale > 0)) ? *score : 0;
}

/* ---- where a block works ---- */

struct place {
    int b, h, t, last; /* sample, head, first and last query */
};

/* ---- which keys a query sees ---- */

struct sight {
    int keys, past, window, causal; /* past: from a query's number to the end of what it sees */
};
DEVICE struct sight sight_of(const struct cuda_attention_args *args, int64_t b)
{
    struct sight sight;
    sight.keys = (int)keys_of(args, b);
    sight.past = (int)(args->kv_len - args->q_len) + 1;
    sight.window = (int)args->window;
    sight.causal = args->causal;
    return sight;
}
/* Query t sees keys [begin, end), none when begin >= end; neither falls as t rises. */
DEVICE int begin_of(const struct sight *sight, int t)
{
    const int begin = t + sight->past - sight->window;
    return sight->window > 0 && begin > 0 ? begin : 0;
}
DEVICE int end_of(const struct sight *sight, int t)
{
    const int end = t + sight->past;
    return sight->causal && end < sight->keys ? (end > 0 ? end : 0) : sight->keys;
}
/* Queries [begin, end) see key j. */
DEVICE int first_query(const struct sight *sight, int j)
{
    const int begin = j + 1 - sight->past;
    return sight->causal && begin > 0 ? begin : 0;
}
DEVICE int end_of_queries(const struct sight *sight, int j, int q_len)
{
    const int end = j + 1 - sight->past + sight->window;
    if (j >= sight->keys)
        return 0;
    return sight->window > 0 && end < q_len ? (end > 0 ? end : 0) : q_len;
}

/* ---- dropout ---- */

/* Bit i: whether the mask keeps element e + 16 i of a dense stream. */
DEVICE uint32_t keeps_of(const struct cuda_attention_args *args, uint64_t e, int count)
{
    uint32_t block[4] = {0}, bits = 0;
    uint64_t last = ~(uint64_t)0;
    UNROLL_BY_1
    for (int i = 0; i < count; i++, e += 16) {
        if (e / 64 != last)
            philox(&args->random, e / 64 * 16 + e % 16, block);
        last = e / 64;
        const uint32_t low = e & 16 ? block[1] : block[0], high = e & 16 ? block[3] : block[2];
        bits |= (uint32_t)((e & 32 ? high : low) >= args->threshold) << i;
    }
    return bits;
}
/* The mask of `rows` queries from t on and `count` keys from j on, as bits: two words a query. The
 * warp writes it together, two queries at a time. */
DEVICE void draw_mask(const struct cuda_attention_args *args, uint32_t (*keep)[2], int64_t b,
                      int64_t h, int t, int rows, int j, int count)
{
    UNROLL_BY_1
    for (int row = 0; row < rows; row += 2) {
        const uint64_t at = mask_at(args, b, h, t + row + LANE / 16) + (uint64_t)(j + LANE % 16);
        const uint32_t bits = keeps_of(args, at, count / 16);
        for (int i = 0; i < count / 32; i++) {
            const uint32_t low = lanes_where((int)(bits >> 2 * i & 1));
            const uint32_t high = lanes_where((int)(bits >> (2 * i + 1) & 1));
            if (LANE == 0)
                keep[row][i] = (low & 0xffffu) | high << 16;
            if (LANE == 16)
                keep[row + 1][i] = low >> 16 | (high & 0xffff0000u);
        }
    }
    warp_barrier();
}
#endif
