/* ref - the oracle: every kernel of ops.h in plain scalar C, for all dtypes, one thread, nothing
 * clever.
 *
 * What ops.h says of orders and roundings is followed literally here; other backends are compared
 * with this one. Kernels of floats are written once for float (F32, BF16, F16 storage) and double
 * (F64): the file x_real.h is included twice by x.c, after real.h has set REAL and R(). C has no
 * other way to write one text for two types without function-generating macros.
 */
#ifndef SHOALI_OPS_REF_H
#define SHOALI_OPS_REF_H

#include "ops/ops.h"

/* Every kernel: this is the list of those that exist, in the order of `shoal report`. */
#define SHOALI_REF_KERNELS(KERNEL)      \
    KERNEL(gemm)                        \
    KERNEL(pack_b)                      \
    KERNEL(norm)                        \
    KERNEL(norm_backward)               \
    KERNEL(rotary)                      \
    KERNEL(attention)                   \
    KERNEL(attention_backward)          \
    KERNEL(embedding)                   \
    KERNEL(embedding_backward)          \
    KERNEL(cross_entropy)               \
    KERNEL(loss_mean)                   \
    KERNEL(cross_entropy_backward)      \
    KERNEL(cross_entropy_tile)          \
    KERNEL(cross_entropy_tile_backward) \
    KERNEL(cross_entropy_join)          \
    KERNEL(softmax)                     \
    KERNEL(dropout)                     \
    KERNEL(unary)                       \
    KERNEL(glu)                         \
    KERNEL(binary)                      \
    KERNEL(axpy)                        \
    KERNEL(reduce)                      \
    KERNEL(broadcast)                   \
    KERNEL(copy_strided)                \
    KERNEL(convert)                     \
    KERNEL(set)                         \
    KERNEL(random_fill)                 \
    KERNEL(to_fixed)                    \
    KERNEL(from_fixed)                  \
    KERNEL(norm2)                       \
    KERNEL(clip)                        \
    KERNEL(adam)                        \
    KERNEL(sgd)                         \
    KERNEL(square_sums)                 \
    KERNEL(lamb)                        \
    KERNEL(lamb_apply)                  \
    KERNEL(adafactor)                   \
    KERNEL(adafactor_apply)             \
    KERNEL(reduce_sources)              \
    KERNEL(quantize)                    \
    KERNEL(dequantize)

#define KERNEL(name) \
    void shoali_ref_##name(const void *args, const struct shoali_kernel_context *context);
SHOALI_REF_KERNELS(KERNEL)
#undef KERNEL

/* f(x) and f'(x) of an element-wise function; alpha for the two that have it. */
float shoali_ref_function_f32(enum shoali_unary kind, float x, float alpha);
float shoali_ref_derivative_f32(enum shoali_unary kind, float x, float alpha);
double shoali_ref_function_f64(enum shoali_unary kind, double x, double alpha);
double shoali_ref_derivative_f64(enum shoali_unary kind, double x, double alpha);
static inline float function_f32(enum shoali_unary kind, float x, float alpha)
{
    return shoali_ref_function_f32(kind, x, alpha);
}
static inline double function_f64(enum shoali_unary kind, double x, double alpha)
{
    return shoali_ref_function_f64(kind, x, alpha);
}

#endif
