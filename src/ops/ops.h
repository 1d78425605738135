/* ops - math kernels: tables of functions, `ref` is the oracle, `cpu` the fast one. Level L3.
 *
 * A kernel is a C function on an argument block whose pointers are device addresses at the caller
 * and usable addresses when the kernel runs (accelerator.h translates). Kernels know pointers,
 * sizes and strides; they know nothing of tapes, FLOPs or gradients of anything else. Callers use
 * the fronts (shoali_op_*) that stand behind the argument blocks: they check the call by the
 * kernel's description (kernel.h), choose the first table that takes it (table.h), and launch.
 * Rules say which tables serve on which CPU (cpu_rules.h). docs/EXTENDING.md shows how to add a
 * kernel and a table.
 *
 * ORDER OF SUMS (binding for every backend; results are then equal bit by bit for scalar, AVX2,
 * AVX-512 and NEON and for any number of threads, where a kernel is marked [bits]):
 *   dot order   one accumulator from +0, k = 0, 1, ..., K-1, each acc = fma(a_k, b_k, acc) in fp32
 *               (fp64 for F64). Blocking of K continues the same accumulator. 16-bit operands are
 *               widened first; the instruction vdpbf16ps (backend avx512_bf16 alone) sums pairs
 *               its own way, BFDOT its own (neon_bf16 alone: cpu/bfdot.h), tiles theirs (backend
 *               amx, in an order that cpu/amx/amx.h says): bf16 products are not [bits] across
 *               backends. amx-emulated has the bits of amx.
 *   lane order  reduction of a contiguous row of n: 16 partial sums, partial j takes elements
 *               j, j+16, ... in order from +0; then
 *                 p[j] += p[j+8] (j < 8), p[j] += p[j+4] (j < 4), p[j] += p[j+2] (j < 2),
 *                 p[0] + p[1]
 *               Elements beyond n do not take part. Sums of products use fma into the partial. Max
 *               is order-free.
 *   row order   reduction over rows (column sums): one accumulator per column, rows in increasing
 *               order.
 * Threads split outputs, never a sum. Values are computed in fp32 whatever the storage (fp64 for
 * F64) and rounded once to the output's dtype (nearest even).
 *
 * Elementary functions are polynomials with explicit fma, written once in ops/vmath.h for a vector
 * of 16 floats and used by ref too, so exp, tanh, erf, log have the same bits in all backends.
 *
 * WHERE A FORMULA BELOW LEAVES A CHOICE, this is what [bits] means (each line one rounding unless
 * fma is written; doubles in an argument block are rounded to fp32 first; names of functions are
 * those of ops/vmath.h):
 *   norm            a row's n is (float)columns; y without beta: ((x-mean)*rstd)*gamma;
 *                   gamma_plus_one: gamma is gamma + 1 (one rounding)
 *   norm_backward   a = sum(h)/n (rms: a = 0), b = sum(h*xhat)/n, dx = rstd * fma(-xhat, b, h - a)
 *   cross_entropy   lse = max + log(sum exp(x-max))
 *                   backward: g = dloss/max(count,1), dx = (exp(x-lse) - onehot) * g
 *   softmax         y = exp(x-max) / sum;  backward: s = sum(y*dy) (fma), dx = y * (dy - s)
 *   dropout         scale = (float)(1/(1-(double)p)); v = keep ? x*scale : +0; v = residual + v
 *   relu_squared    r = relu(x), r*r; its derivative r + r
 *   unary backward  exp dy*exp(x), log dy/x, sqrt dy*(0.5/sqrt(x)), square dy*(x+x),
 *                   scale dy*alpha, the others dy times the *_derivative of vmath
 *   glu             y = f(a)*b;  backward: da = (dy*b)*f'(a), db = dy*f(a)
 *   rotary          angle = (float)position * inverse_frequency, c and s its shoali_cos and
 *                   shoali_sin (fp64), rounded; of a pair (a, b): fma(a, c, -(b*s)),
 *                   fma(b, c, a*s); inverse: s negated
 *   reduce          v = factor * sum;  accumulate everywhere: y + v, never fused
 *   adam            (1-b1), (1-b2), (-lr*wd) are fp32; d = sqrt(v)*inv_sqrt_c2, d = d + eps;
 *                   u = m/d, u = step_size*u, p = p - u
 *   sgd             g = fma(wd,p,g); buf = fma(momentum,buf,(1-dampening)*g);
 *                   g = fma(momentum,buf,g); p = fma(-lr,g,p)
 *   reduce_sources  acc = x[0]; acc = acc op x[s] (min, max: v16_min(acc, x), v16_max(acc, x));
 *                   avg: acc * (1/sources)
 *   loss_mean, random_fill, to_fixed, from_fixed
 *                   every operation in fp64, one rounding at the end
 *
 * `accumulate`: false = output is overwritten, true = output += result, the result being complete
 * before the one add. Parameter gradients are fp32 (fp64 when the operands are F64), or
 * integers that fp32 sums are rounded to.
 */
#ifndef SHOALI_OPS_H
#define SHOALI_OPS_H

#include "accelerator/accelerator.h"
#include "ops/ops_flat.h"

/* Where that work runs. Passed everywhere kernels are launched. */
struct shoali_exec {
    const struct shoali_ops *ops;
    struct shoali_device_stream *stream;
};

/* ---- argument blocks; SHOALI_KERNEL declares the kernel and its front ------------------------ */

enum shoali_activation {
    SHOALI_ACT_NONE,
    SHOALI_ACT_GELU_ERF,
    SHOALI_ACT_GELU_TANH,
    SHOALI_ACT_RELU,
    SHOALI_ACT_RELU_SQUARED,
    SHOALI_ACT_SILU
};

/* C[M,N] = epilogue(op(A)[M,K] op(B)[K,N]). [bits for F32]
 * op transposes when the flag is set: A is then stored [K,M], B [N,K]. lda, ldb, ldc: row strides
 * of the stored matrices. The sum is in dot order, then, each step only where it is asked for:
 *   before       v = before + v, or with k = 0 v = before
 *   accumulate   v = C + v
 *   bias         v = v + bias[n]
 *   preact       preact[m,n] = round(v), and v = that rounded value, so that backward sees the same
 *   activation   v = act(v)
 *   residual     v = residual[m,n] + v
 *   C = round(v), or instead of it
 *   fixed        fixed[m,n] (=|+= with accumulate) what to_fixed makes of v, by unit_log2, limit and flag
 * A and B have one dtype; dtype_c is F32 or dtype_ab; residual and preact are of dtype_c, bias of
 * dtype_c or dtype_ab. before is fp32 (fp64 of F64) with C's strides, and may be C: what earlier
 * products of a sum in pieces have left. Several accumulating products round that often; these
 * round a 16-bit C once.
 * fixed is for sums alone: dtype_c is F32, and of the steps only before is allowed.
 * packed_b: what pack_b made of b with the same n, k, trans_b and dtype; read in b's place, with
 * the same bits. */
struct shoali_gemm_args {
    const void *a, *b;
    void *c;
    const void *bias, *residual; /* optional */
    void *preact;                /* optional output */
    const void *packed_b;        /* optional */
    const void *before;          /* optional */
    int64_t *fixed;              /* optional, of C's shape, in its place */
    uint32_t *flag;              /* with fixed */
    int64_t m, n, k, lda, ldb, ldc;
    int32_t trans_a, trans_b, accumulate;
    enum shoali_activation activation;
    shoal_dtype dtype_ab, dtype_c, dtype_bias;
    int32_t unit_log2;   /* with fixed */
    int32_t nontemporal; /* a kernel's note to its parts: C or fixed goes past the caches */
    double limit;
};
SHOALI_KERNEL(gemm);

/* Brings B of a product into the layout that the kernel of gemm for dtype (of A and B) reads:
 * shoali_op_packed_b_bytes(), 64-byte aligned. Worth it when several products read one B. */
struct shoali_pack_b_args {
    const void *b;
    void *packed;
    int64_t n, k, ldb;
    int32_t trans_b;
    shoal_dtype dtype;
};
SHOALI_KERNEL(pack_b);
/* Bytes of a packed B of N x K elements; 0: the kernel of gemm for this dtype has no such layout,
 * and pack_b does nothing. Where another table's gemm takes a product, it reads b instead. */
size_t shoali_op_packed_b_bytes(const struct shoali_ops *ops, int64_t n, int64_t k,
                                shoal_dtype dtype);

/* y = (x - mean) * rstd * gamma + beta per row of `columns`; mean and rstd are saved (fp32). [bits]
 *   mean = sum(x)/n               lane order
 *   var  = sum((x-mean)^2)/n      lane order, fma
 *   rstd = 1/sqrt(var+eps)
 *   y    = fma((x-mean)*rstd, gamma, beta)
 * beta NULL: no bias. rms != 0: RMSNorm (mean = 0, var = sum(x^2)/n). gamma_plus_one: what is
 * stored is gamma - 1. With group > 0 rows lie in groups of so many, which begin group_stride
 * elements apart, in x, y (and dy, dx): heads within a row of q, k and v. */
struct shoali_norm_args {
    const void *x, *gamma, *beta;
    void *y;
    float *mean, *rstd; /* [rows]; in F64 runs they point to doubles */
    int64_t rows, columns;
    int64_t group, group_stride; /* group 0: one row behind the other */
    double eps;
    int32_t rms, gamma_plus_one;
    shoal_dtype dtype;
};
SHOALI_KERNEL(norm);
/* xhat = (x-mean)*rstd; h = dy*gamma; dx = rstd*(h - sum(h)/n - xhat*sum(h*xhat)/n) (lane order);
 * dx is added to when accumulate_dx. dgamma[c] = sum over rows dy*xhat (row order, fma), dbeta[c]
 * = sum dy; either may be NULL; dx may be NULL. [bits] */
struct shoali_norm_backward_args {
    const void *x, *gamma, *dy;
    const float *mean, *rstd;
    void *dx;
    float *dgamma, *dbeta; /* F64: doubles */
    int64_t rows, columns;
    int64_t group, group_stride;
    int32_t rms, gamma_plus_one, accumulate_dx, accumulate_params;
    shoal_dtype dtype;
};
SHOALI_KERNEL(norm_backward);
/* Element that a row begins with. */
static inline int64_t shoali_norm_row(int64_t row, int64_t columns, int64_t group, int64_t stride)
{
    return group > 0 ? row / group * stride + row % group * columns : row * columns;
}

/* Rotary positions (Su et al. 2021): in rows [batch, length] of `columns` elements the first
 * `heads` heads of head_size have their first rotary_size elements turned in pairs, pair i by
 * (first_position + t) * inverse_frequency[i]; everything else of a row is copied. A pair is the
 * elements i and i + rotary_size/2, or with `interleaved` 2i and 2i + 1. inverse: turned back,
 * which is the gradient. Positions are below 2^20, frequencies 0 .. 1. [bits] */
enum { SHOALI_ROTARY_PAIRS = 128, SHOALI_ROTARY_POSITIONS = 1 << 20 };
struct shoali_rotary_args {
    const void *x;
    void *y;
    int64_t batch, length, columns, heads, head_size, rotary_size, first_position;
    int32_t interleaved, inverse, accumulate;
    shoal_dtype dtype;
    float inverse_frequency[SHOALI_ROTARY_PAIRS];
};
SHOALI_KERNEL(rotary);

/* Causal (or full) attention without the T x T matrix. q[b,t,h,:] at q + ((b*q_len + t)*q_stride +
 * h*D), likewise k and v with kv_len and kv_stride; out with out_stride; strides in elements
 * between tokens, so a packed [B,T,3,H,D] works. Query t sees keys j <= t + kv_len - q_len when
 * causal, with window > 0 only the last `window` of them, and of sample b only keys below
 * key_count[b]: shoali_attention_keys. A query that sees none gives zeros, and lse -inf. kv head =
 * h / (heads/kv_heads). lse[b,h,t] (fp32, F64: double) = log sum exp of the scaled scores. p =
 * exp(s*scale - lse); with dropout p is multiplied by mask/(1-dropout), keep by the rule of
 * shoali_dropout_threshold at index shoali_attention_mask_row(b, h, t) + j. Threads split (b,h) or
 * query tiles, never a row's sum. Order of the row sums: keys in tiles of SHOALI_ATTENTION_TILE in
 * increasing order, the backend's own within a tile (not [bits] across backends, [bits] across
 * threads). */
#define SHOALI_ATTENTION_TILE 64
/* Where the call's heads, queries and keys lie in the whole attention, whose mask they draw from.
 * An extent of 0: the call's own, from 0. */
struct shoali_attention_mask {
    int64_t first_sample;
    int64_t heads, first_head;
    int64_t queries, first_query;
    int64_t keys, first_key;
};
struct shoali_attention_args {
    const void *q, *k, *v;
    const int32_t *key_count; /* [batch], optional */
    void *out;
    float *lse;
    int64_t batch, q_len, kv_len, heads, kv_heads, head_size;
    int64_t q_stride, kv_stride, out_stride;
    int64_t window; /* 0: all; else causal alone */
    double scale;
    int32_t causal;
    float dropout;
    struct shoali_stream random;
    struct shoali_attention_mask mask;
    shoal_dtype dtype;
};
SHOALI_KERNEL(attention);
/* Which keys the queries of a sample see. */
struct shoali_attention_sight {
    int64_t q_len, kv_len, window;
    int64_t keys; /* none from this one on */
    int32_t causal;
};
static inline struct shoali_attention_sight
shoali_attention_sight_of(int64_t q_len, int64_t kv_len, int32_t causal, int64_t window,
                          const int32_t *key_count, int64_t b)
{
    struct shoali_attention_sight sight = {q_len, kv_len, window, kv_len, causal};
    if (key_count && key_count[b] < kv_len)
        sight.keys = key_count[b] > 0 ? key_count[b] : 0;
    return sight;
}
/* Query t sees keys [begin, end); none when begin >= end. Neither falls as t rises. */
struct shoali_attention_keys {
    int64_t begin, end;
};
static inline struct shoali_attention_keys
shoali_attention_keys(const struct shoali_attention_sight *sight, int64_t t)
{
    struct shoali_attention_keys keys = {0, sight->keys};
    const int64_t past = t + sight->kv_len - sight->q_len + 1; /* the query's own key, and 1 */
    if (sight->causal && past < keys.end)
        keys.end = past > 0 ? past : 0;
    if (sight->window > 0 && past > sight->window)
        keys.begin = past - sight->window;
    return keys;
}
/* The mask with its extents of 0 filled in. */
static inline struct shoali_attention_mask
shoali_attention_mask_of(const struct shoali_attention_mask *mask, int64_t heads, int64_t q_len,
                         int64_t kv_len)
{
    struct shoali_attention_mask whole = *mask;
    whole.heads = mask->heads > 0 ? mask->heads : heads;
    whole.queries = mask->queries > 0 ? mask->queries : q_len;
    whole.keys = mask->keys > 0 ? mask->keys : kv_len;
    return whole;
}
/* Index of the mask at local sample b, head h, query t and key 0; `mask` is filled in. */
static inline uint64_t shoali_attention_mask_row(const struct shoali_attention_mask *mask,
                                                 int64_t b, int64_t h, int64_t t)
{
    uint64_t at = (uint64_t)(mask->first_sample + b) * (uint64_t)mask->heads;
    at = (at + (uint64_t)(mask->first_head + h)) * (uint64_t)mask->queries;
    at = (at + (uint64_t)(mask->first_query + t)) * (uint64_t)mask->keys;
    return at + (uint64_t)mask->first_key;
}
/* Gradients of the above from dout, recomputing p from lse. dq, dk, dv use q_stride / kv_stride
 * and are overwritten. delta[b,h,t] = sum_d dout*out (workspace, fp32, F64: double). dk, dv of a
 * kv head sum over queries in increasing order and over its query heads in increasing order. */
struct shoali_attention_backward_args {
    const void *q, *k, *v, *out, *dout;
    const int32_t *key_count; /* [batch], optional */
    const float *lse;
    float *delta;
    void *dq, *dk, *dv;
    int64_t batch, q_len, kv_len, heads, kv_heads, head_size;
    int64_t q_stride, kv_stride, out_stride;
    int64_t window;
    double scale;
    int32_t causal;
    float dropout;
    struct shoali_stream random;
    struct shoali_attention_mask mask;
    shoal_dtype dtype;
};
SHOALI_KERNEL(attention_backward);

/* out[r,:] = table[ids[r],:] + (positions ? positions[(r % period) + first_position,:] : 0). Ids
 * must be in [0,rows_in_table): others set *bad_id to r+1 (an int64 on the device, pre-set to 0)
 * and give zeros. With whole_rows > 0 the table is rows [first_row, first_row + table_rows) of so
 * many: ids of the others give -0, which changes no bit of what it is added to. [bits] */
struct shoali_embedding_args {
    const int32_t *ids;
    const void *table, *positions;
    void *out;
    int64_t *bad_id;
    int64_t rows, columns, table_rows, period, first_position;
    shoal_dtype dtype;
    int64_t first_row, whole_rows;
};
SHOALI_KERNEL(embedding);
/* dtable[ids[r],:] += dout[r,:], r increasing; with accumulate 0 the whole gradient is zeroed
 * first. Same for dpositions. Threads split columns. Either gradient may be NULL. [bits] */
struct shoali_embedding_backward_args {
    const int32_t *ids;
    const void *dout;
    float *dtable, *dpositions; /* F64: doubles */
    int64_t rows, columns, table_rows, position_rows, period, first_position;
    int32_t accumulate_table, accumulate_positions;
    shoal_dtype dtype;
    int64_t first_row; /* of the table in its whole; ids of other rows give nothing */
};
SHOALI_KERNEL(embedding_backward);

/* The probabilities that a loss wants of a row's classes: of its target, and of each other one. All
 * zeros: 1 and 0. Smoothed labels have others above 0; then the target's logit in a loss gives way
 * to the expected one, E = others * sum(x) + (target - others) * x[target], by fma, the sum in lane
 * order, and the onehot of a gradient to these two numbers. */
struct shoali_label_probabilities {
    double target, others;
};

/* Row losses: lse = log sum exp (max first; sum of exp in lane order), loss = lse -
 * logits[target], smoothed lse - E; target -1: loss 0. [bits] */
struct shoali_cross_entropy_args {
    const void *logits;
    const int32_t *targets;
    float *loss, *lse; /* [rows]; F64: doubles */
    int64_t rows, columns, stride;
    shoal_dtype dtype;
    struct shoali_label_probabilities labels;
};
SHOALI_KERNEL(cross_entropy);
/* mean = sum(loss)/max(count,1), count = targets >= 0, by 16 fp64 partials in lane order. out[0] =
 * mean, out[1] = count. */
struct shoali_loss_mean_args {
    const float *loss;
    const int32_t *targets;
    float *mean, *count; /* F64: doubles */
    int64_t rows;
    shoal_dtype dtype;
};
SHOALI_KERNEL(loss_mean);
/* dlogits = (exp(logits - lse) - [c == target]) * (dloss[0] / max(count[0],1)), the onehot being
 * the labels' probabilities; 0 for ignored rows. In place allowed. [bits] */
struct shoali_cross_entropy_backward_args {
    const void *logits;
    const int32_t *targets;
    const float *lse, *dloss, *count; /* F64: doubles */
    void *dlogits;
    int64_t rows, columns, stride;
    shoal_dtype dtype;
    struct shoali_label_probabilities labels;
};
SHOALI_KERNEL(cross_entropy_backward);

/* The same losses from logits that pass by in tiles of columns: columns [first, first + columns) of
 * `vocabulary`, first increasing from 0. Per row and tile m' = max(x), s' = sum exp(x-m') in lane
 * order. The first tile gives m = m', s = s'; each other one M = max(m, m'), s = fma(s, exp(m-M),
 * s' * exp(m'-M)), m = M. Between tiles `largest` holds m, `lse` s and `loss` the target's logit if
 * its tile has been, smoothed the sum of the tiles' E, in their order, where a tile without the
 * target has others * sum(x); the last tile turns them into lse = m + log(s) and the loss as above.
 * [bits] */
struct shoali_cross_entropy_tile_args {
    const void *logits; /* [rows, columns] */
    const int32_t *targets;
    float *largest, *loss, *lse; /* [rows]; F64: doubles */
    int64_t rows, columns, stride, first, vocabulary;
    shoal_dtype dtype;
    struct shoali_label_probabilities labels;
};
SHOALI_KERNEL(cross_entropy_tile);
/* dlogits of one tile, as cross_entropy_backward: target t is column t - first. In place is allowed
 * when both rows begin at the same address and dtype_out is not wider. dtype and dtype_out are both
 * F64 or none is. [bits] */
struct shoali_cross_entropy_tile_backward_args {
    const void *logits;
    const int32_t *targets;
    const float *lse, *dloss, *count; /* F64: doubles */
    void *dlogits;
    int64_t rows, columns, stride, stride_out, first;
    shoal_dtype dtype, dtype_out;
    struct shoali_label_probabilities labels;
};
SHOALI_KERNEL(cross_entropy_tile_backward);

/* The row losses out of `ways` parts of the vocabulary, each [3][rows]: largest m, sum s, and the
 * target's logit or 0 (smoothed: E), as cross_entropy_tile leaves them between tiles. M = max of m,
 * in order s = fma(s_p, exp(m_p - M), s), logit = sum; lse = M + log(s), loss = lse - logit; target
 * -1: loss 0; a target of `vocabulary` or more: NaN. [bits] */
struct shoali_cross_entropy_join_args {
    const float *parts; /* [ways][3][rows]; F64: doubles */
    const int32_t *targets;
    float *loss, *lse; /* [rows] */
    int64_t rows, ways, vocabulary;
    shoal_dtype dtype;
};
SHOALI_KERNEL(cross_entropy_join);

/* Softmax over the last dim; lane order. Backward: dx = y*(dy - sum(y*dy)). [bits] */
struct shoali_softmax_args {
    const void *x;  /* forward: input; backward: y */
    const void *dy; /* backward only */
    void *y;        /* forward: output; backward: dx */
    int64_t rows, columns;
    int32_t backward, accumulate;
    shoal_dtype dtype;
};
SHOALI_KERNEL(softmax);

/* y = residual + keep*x/(1-p); residual optional; keep by shoali_dropout_threshold at global
 * element index first_element + i, or with runs at first_element + shoali_runs_at(i). With p = 0 a
 * copy/add. Backward is the same kernel on dy without residual. [bits] */
struct shoali_dropout_args {
    const void *x, *residual;
    void *y;
    int64_t count, first_element;
    struct shoali_runs runs; /* ndim 0: contiguous */
    float probability;
    int32_t accumulate;
    struct shoali_stream random;
    shoal_dtype dtype;
};
SHOALI_KERNEL(dropout);
/* The one rule of every dropout mask: element kept when its shoali_random_dense_u32 >= p*2^32 (p as
 * double, rounded down). */
static inline uint32_t shoali_dropout_threshold(float probability)
{
    return (uint32_t)((double)probability * 4294967296.0);
}

enum shoali_unary {
    SHOALI_NEG,
    SHOALI_EXP,
    SHOALI_LOG,
    SHOALI_SQRT,
    SHOALI_TANH,
    SHOALI_SIGMOID,
    SHOALI_RELU,
    SHOALI_GELU_ERF,
    SHOALI_GELU_TANH,
    SHOALI_SILU,
    SHOALI_SQUARE,
    SHOALI_RELU_SQUARED /* max(x, 0)^2 */,
    SHOALI_SCALE /* y = alpha*x */,
    SHOALI_ADD_SCALAR /* y = x + alpha */
};
/* y = f(x). backward: y = dx (+)= dy * f'(x), x the forward input. [bits] */
struct shoali_unary_args {
    const void *x, *dy;
    void *y;
    int64_t count;
    double alpha;
    enum shoali_unary kind;
    int32_t backward, accumulate;
    shoal_dtype dtype;
};
SHOALI_KERNEL(unary);
/* Gated linear unit (Shazeer 2020): x [rows, 2 columns], y [rows, columns] = f(a) * b with a the
 * first half of a row and b the second. backward: y, of x's shape, is (+)= the gradient of x from
 * dy [rows, columns]. f: SHOALI_SILU, GELU_ERF, GELU_TANH, RELU, RELU_SQUARED or SIGMOID. [bits] */
struct shoali_glu_args {
    const void *x, *dy;
    void *y;
    int64_t rows, columns;
    enum shoali_unary kind;
    int32_t backward, accumulate;
    shoal_dtype dtype;
};
SHOALI_KERNEL(glu);
enum shoali_binary { SHOALI_ADD, SHOALI_SUB, SHOALI_MUL, SHOALI_DIV };
/* y (+)= a op b; b is repeated when b_count < count (b_count divides count: trailing-dims
 * broadcast). [bits] */
struct shoali_binary_args {
    const void *a, *b;
    void *y;
    int64_t count, b_count;
    enum shoali_binary kind;
    int32_t accumulate;
    shoal_dtype dtype;
};
SHOALI_KERNEL(binary);
/* y (+)= a * x, floats of any dtype; x NULL: y = 0. [bits] */
struct shoali_axpy_args {
    const void *x;
    void *y;
    int64_t count;
    double a;
    int32_t accumulate;
    shoal_dtype dtype;
};
SHOALI_KERNEL(axpy);
/* View x as [outer, reduced, inner]: y[outer, inner] (+)= factor * sum over reduced. inner == 1:
 * lane order; else, and with row_order always, row order. A sum over rows has to set it: a share of
 * the columns may be one column. Output dtype may be F32 with 16-bit input. [bits] */
struct shoali_reduce_args {
    const void *x;
    void *y;
    int64_t outer, reduced, inner;
    double factor;
    int32_t accumulate, row_order;
    shoal_dtype dtype, dtype_out;
};
SHOALI_KERNEL(reduce);
/* The reverse: y[outer, reduced, inner] (+)= factor * x[outer, inner]. */
struct shoali_broadcast_args {
    const void *x;
    void *y;
    int64_t outer, reduced, inner;
    double factor;
    int32_t accumulate;
    shoal_dtype dtype;
};
SHOALI_KERNEL(broadcast);
/* Copies (or adds) an nd block between strided arrays, any dtype; add for float dtypes. Strides in
 * elements. */
struct shoali_copy_strided_args {
    const void *x;
    void *y;
    int32_t ndim;
    int64_t dim[SHOAL_MAX_DIMS], x_stride[SHOAL_MAX_DIMS], y_stride[SHOAL_MAX_DIMS];
    int32_t accumulate;
    shoal_dtype dtype;
};
SHOALI_KERNEL(copy_strided);
/* y = (dtype_out) x for float and integer dtypes, rounding to nearest even. x == y allowed when
 * sizes are equal. [bits] */
struct shoali_convert_args {
    const void *x;
    void *y;
    int64_t count;
    shoal_dtype dtype, dtype_out;
};
SHOALI_KERNEL(convert);
/* y[i] = value for every element of a float dtype or i32/i64/u8. */
struct shoali_set_args {
    void *y;
    int64_t count;
    double value;
    shoal_dtype dtype;
};
SHOALI_KERNEL(set);
/* y[i] = mean + std * normal(first_element+i), or low + (high-low) * uniform: computed in fp64,
 * rounded once; with runs at first_element + shoali_runs_at(i). Init rules. [bits] */
struct shoali_random_fill_args {
    void *y;
    int64_t count, first_element;
    struct shoali_runs runs; /* ndim 0: contiguous */
    double a, b;             /* normal: mean, std; uniform: low, high */
    int32_t uniform;
    struct shoali_stream random;
    shoal_dtype dtype;
};
SHOALI_KERNEL(random_fill);

#endif
