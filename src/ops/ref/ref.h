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

void shoali_ref_gemm(const void *args, struct shoali_pool *pool);
void shoali_ref_pack_b(const void *args, struct shoali_pool *pool);
void shoali_ref_norm(const void *args, struct shoali_pool *pool);
void shoali_ref_norm_backward(const void *args, struct shoali_pool *pool);
void shoali_ref_attention(const void *args, struct shoali_pool *pool);
void shoali_ref_attention_backward(const void *args, struct shoali_pool *pool);
void shoali_ref_embedding(const void *args, struct shoali_pool *pool);
void shoali_ref_embedding_backward(const void *args, struct shoali_pool *pool);
void shoali_ref_cross_entropy(const void *args, struct shoali_pool *pool);
void shoali_ref_loss_mean(const void *args, struct shoali_pool *pool);
void shoali_ref_cross_entropy_backward(const void *args, struct shoali_pool *pool);
void shoali_ref_cross_entropy_tile(const void *args, struct shoali_pool *pool);
void shoali_ref_cross_entropy_tile_backward(const void *args, struct shoali_pool *pool);
void shoali_ref_softmax(const void *args, struct shoali_pool *pool);
void shoali_ref_dropout(const void *args, struct shoali_pool *pool);
void shoali_ref_unary(const void *args, struct shoali_pool *pool);
void shoali_ref_binary(const void *args, struct shoali_pool *pool);
void shoali_ref_axpy(const void *args, struct shoali_pool *pool);
void shoali_ref_reduce(const void *args, struct shoali_pool *pool);
void shoali_ref_broadcast(const void *args, struct shoali_pool *pool);
void shoali_ref_copy_strided(const void *args, struct shoali_pool *pool);
void shoali_ref_convert(const void *args, struct shoali_pool *pool);
void shoali_ref_set(const void *args, struct shoali_pool *pool);
void shoali_ref_random_fill(const void *args, struct shoali_pool *pool);
void shoali_ref_quantize(const void *args, struct shoali_pool *pool);
void shoali_ref_dequantize(const void *args, struct shoali_pool *pool);
void shoali_ref_to_fixed(const void *args, struct shoali_pool *pool);
void shoali_ref_from_fixed(const void *args, struct shoali_pool *pool);
void shoali_ref_norm2(const void *args, struct shoali_pool *pool);
void shoali_ref_clip(const void *args, struct shoali_pool *pool);
void shoali_ref_adam(const void *args, struct shoali_pool *pool);
void shoali_ref_sgd(const void *args, struct shoali_pool *pool);
void shoali_ref_reduce_sources(const void *args, struct shoali_pool *pool);

#endif
