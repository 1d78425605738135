/* ops_flat - argument blocks of the kernels that read flat buffers: gradients, weights and states
 * without shapes. Part of ops.h, which says what [bits], the order of sums and `accumulate` mean.
 */
#ifndef SHOALI_OPS_FLAT_H
#define SHOALI_OPS_FLAT_H

#include "ops/table.h"

/* ---- exact reduction (DESIGN section 6) ----------------------------------------------------- */

/* fixed[i] (=|+=) rint(x[i] * 2^unit_log2) as int64 (adds wrap on uint64). |x| >= limit, NaN:
 * *flag |= 1 (uint32 on the device) and the contribution is 0. */
struct shoali_to_fixed_args {
    const float *x;
    int64_t *fixed;
    uint32_t *flag;
    int64_t count;
    int32_t unit_log2, accumulate;
    double limit;
};
SHOALI_KERNEL(to_fixed);
/* y[i] = (float)((double)fixed[i] * 2^-unit_log2 / divisor). */
struct shoali_from_fixed_args {
    const int64_t *fixed;
    float *y;
    int64_t count;
    int32_t unit_log2;
    double divisor;
};
SHOALI_KERNEL(from_fixed);
/* A message holds `count` elements in blocks of SHOALI_QUANTIZE_BLOCK: one fp32 scale per block,
 * then the codes, `bits` = 8 (a signed byte) or 4 (two's complement, two per byte, the even element
 * low). scale = max|x| / (2^(bits-1) - 1), code = x / scale rounded to nearest even and clamped: an
 * element is off by at most half a scale, give or take fp32 rounding. A block with a NaN or an
 * infinity gets the scale NaN. A message is shoali_quantized_bytes long, a multiple of 16. */
enum { SHOALI_QUANTIZE_BLOCK = 256 };
static inline int64_t shoali_quantized_blocks(int64_t count)
{
    return count / SHOALI_QUANTIZE_BLOCK + (count % SHOALI_QUANTIZE_BLOCK != 0);
}
static inline int64_t shoali_quantized_bytes(int64_t count, int32_t bits)
{
    const int64_t codes = bits == 8 ? count : count / 2 + count % 2;
    return (4 * shoali_quantized_blocks(count) + codes + 15) / 16 * 16;
}
struct shoali_quantize_args {
    const void *x;
    void *message;
    int64_t count;
    int32_t bits;
    shoal_dtype dtype;
};
SHOALI_KERNEL(quantize);
/* y (=|+=) code * scale in fp32, rounded to dtype. */
struct shoali_dequantize_args {
    const void *message;
    void *y;
    int64_t count;
    int32_t bits, accumulate;
    shoal_dtype dtype;
};
SHOALI_KERNEL(dequantize);
/* Adds sum over i of rint(x_i^2 * 2^62) to the 192-bit integer limbs[3] (little end first, two's
 * complement unused: values >= 0). The square is exact in fp64. Any NaN, infinity or |x| >= 2^60:
 * *flag |= 1. Order-free, so any split gives the same bits. */
struct shoali_norm2_args {
    const float *x;
    uint64_t *limbs;
    uint32_t *flag;
    int64_t count;
};
SHOALI_KERNEL(norm2);
/* The decision for a step, which shoali_ops_run computes on the host:
 *   norm = sqrt(limbs * 2^-62) / loss_scale; bad = *flag != 0 ; multiplier = (1/loss_scale) *
 *   (max_norm > 0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1) ; out[0] = norm (NaN when
 *   bad), out[1] = multiplier, out[2] = bad ? 1 : 0   (floats) */
struct shoali_clip_args {
    const uint64_t *limbs;
    const uint32_t *flag;
    float *out;
    double loss_scale, max_norm;
};
extern const struct shoali_kernel shoali_kernel_clip;

/* ---- optimizer ------------------------------------------------------------------------------ */

/* g = grad[i]*control[1]; when control[2] != 0 nothing is written. control = out of
 * shoali_clip_args (NULL: 1, 0). L2: g = fma(wd, p, g);  m = fma(b1, m, (1-b1)*g);  v = fma(b2, v,
 * (1-b2)*(g*g)); d = sqrt(v)*inv_sqrt_c2 + eps;  decoupled: p = fma(-lr*wd, p, p);  p = p -
 * step_size*(m/d)  with step_size = lr/c1 (host, rounded to float). low (bf16/f16, optional) =
 * round(p). All fp32, IEEE, in this order. [bits] */
struct shoali_adam_args {
    float *param, *exp_avg, *exp_avg_sq;
    const float *grad, *control;
    void *low;
    int64_t count;
    float beta1, beta2, eps, weight_decay, lr, step_size, inv_sqrt_c2;
    int32_t decoupled;
    shoal_dtype low_dtype;
};
SHOALI_KERNEL(adam);
/* torch's SGD: g += wd*p; buf = momentum*buf + (1-dampening)*g (first step: buf = g); g = nesterov
 * ? g + momentum*buf : buf; p -= lr*g. momentum 0: no buffer. */
struct shoali_sgd_args {
    float *param, *momentum_buffer;
    const float *grad, *control;
    void *low;
    int64_t count;
    float lr, momentum, dampening, weight_decay;
    int32_t nesterov, first;
    shoal_dtype low_dtype;
};
SHOALI_KERNEL(sgd);

/* ---- sums over whole tensors ----------------------------------------------------------------- */

/* What an optimizer needs to know of a whole tensor of which a rank holds a piece: sums of squares
 * over the tensor, over each of its rows, over each of its columns. A sum is a 192-bit integer in
 * units of 2^-98 (limbs, little end first), so the order of pieces, ranks and threads does not
 * matter. Of each term x the square is exact in fp64, at most 2^56 (NaN counts as that), and
 * rounded to the unit: 2^37 terms fit.
 *
 * The tensor is `matrices` matrices of `rows` x `columns`; the piece is its elements [first, first
 * + count). Element e is in row e / columns and in column e / (rows * columns) * columns +
 * e % columns. */

/* Adds the squares of x[i]*control[1] (control NULL: of x[i]) to tensor[3], row[matrices*rows][3]
 * and column[matrices*columns][3], each of which may be NULL. control[2] != 0: adds nothing. */
struct shoali_square_sums_args {
    const float *x, *control;
    uint64_t *tensor, *row, *column;
    int64_t count, first, matrices, rows, columns;
};
SHOALI_KERNEL(square_sums);
/* First half of LAMB. g = grad[i]*control[1]; m = fma(b1, m, (1-b1)*g); v = fma(b2, v,
 * (1-b2)*(g*g)); d = sqrt(v) + eps, or sqrt(v + eps) with eps_inside; u = fma(wd, p, m/d). Writes m
 * and v; adds p^2 to param_sum[3] and u^2 to update_sum[3]. control[2] != 0: does nothing.
 * [bits] */
struct shoali_lamb_args {
    const float *param, *grad, *control;
    float *exp_avg, *exp_avg_sq;
    uint64_t *param_sum, *update_sum;
    int64_t count;
    float beta1, beta2, eps, weight_decay;
    int32_t eps_inside;
};
SHOALI_KERNEL(lamb);
/* Second half: the same u of the new m and v; p = fma(-factor[0], u, p); low = round(p). [bits] */
struct shoali_lamb_apply_args {
    float *param;
    const float *exp_avg, *exp_avg_sq, *factor, *control;
    void *low;
    int64_t count;
    float eps, weight_decay;
    int32_t eps_inside;
    shoal_dtype low_dtype;
};
SHOALI_KERNEL(lamb_apply);
/* Adafactor's update u = g / sqrt(max(row[r] * column[c], floor)), g = grad[i]*control[1], r and c
 * the element's row and column (column NULL: 1, of a tensor of one column). Adds u^2 to sum[3].
 * control[2] != 0: does nothing. */
struct shoali_adafactor_args {
    const float *grad, *control, *row, *column;
    uint64_t *sum;
    int64_t count, first, matrices, rows, columns;
    float floor;
};
SHOALI_KERNEL(adafactor);
/* The same u; p = fma(-decay, p, p); p = fma(-factor[0], u, p); low = round(p). [bits] */
struct shoali_adafactor_apply_args {
    float *param;
    const float *grad, *control, *row, *column, *factor;
    void *low;
    int64_t count, first, matrices, rows, columns;
    float floor, decay;
    shoal_dtype low_dtype;
};
SHOALI_KERNEL(adafactor_apply);

/* ---- collectives' arithmetic ---------------------------------------------------------------- */

enum shoali_reduce_op {
    SHOALI_SUM,
    SHOALI_MIN,
    SHOALI_MAX,
    SHOALI_PROD,
    SHOALI_BOR,
    SHOALI_AVG,
    SHOALI_SUM_TREE
};
#define SHOALI_REDUCE_MAX_SOURCES 256
/* y[i] = x[0][i] op x[1][i] op ... in source order; fp32 arithmetic for 16-bit floats with one
 * rounding; integers wrap. AVG: sum * (1/sources). SUM_TREE, of a power of two of sources:
 * neighbours are added, then neighbours of those sums, to the last. y may equal any source. Up to 4
 * further destinations receive the same values (direct both-write). [bits] */
struct shoali_reduce_sources_args {
    const void *x[SHOALI_REDUCE_MAX_SOURCES];
    int32_t sources;
    void *y[SHOALI_REDUCE_MAX_SOURCES];
    int32_t destinations;
    int64_t count;
    enum shoali_reduce_op op;
    shoal_dtype dtype;
    /* Nobody reads the results soon: store them past the caches. No y may be a source then, and
     * all are aligned to 64 bytes. A hint: tables may ignore it. */
    int32_t nontemporal;
};
extern const struct shoali_kernel shoali_kernel_reduce_sources;
/* Runs on host memory, on the calling thread: collectives do their arithmetic there. */
void shoali_host_reduce(const struct shoali_ops *ops,
                        const struct shoali_reduce_sources_args *args);

#endif
