/* table - the oracle's table: complete, for every dtype. */
#include "ops/ref/ref.h"

static bool probe(void)
{
    return true;
}

const struct shoali_ops_table shoali_ops_ref = {
    .abi = SHOALI_OPS_ABI,
    .bytes = sizeof(struct shoali_ops_table),
    .name = "ref",
    .probe = probe,
    .dtypes = (1u << SHOAL_DTYPE_COUNT) - 1u,
    .reduce_dtypes = (1u << SHOAL_DTYPE_COUNT) - 1u,
    .gemm = shoali_ref_gemm,
    .pack_b = shoali_ref_pack_b,
    .norm = shoali_ref_norm,
    .norm_backward = shoali_ref_norm_backward,
    .attention = shoali_ref_attention,
    .attention_backward = shoali_ref_attention_backward,
    .embedding = shoali_ref_embedding,
    .embedding_backward = shoali_ref_embedding_backward,
    .cross_entropy = shoali_ref_cross_entropy,
    .loss_mean = shoali_ref_loss_mean,
    .cross_entropy_backward = shoali_ref_cross_entropy_backward,
    .cross_entropy_tile = shoali_ref_cross_entropy_tile,
    .cross_entropy_tile_backward = shoali_ref_cross_entropy_tile_backward,
    .softmax = shoali_ref_softmax,
    .dropout = shoali_ref_dropout,
    .unary = shoali_ref_unary,
    .binary = shoali_ref_binary,
    .axpy = shoali_ref_axpy,
    .reduce = shoali_ref_reduce,
    .broadcast = shoali_ref_broadcast,
    .copy_strided = shoali_ref_copy_strided,
    .convert = shoali_ref_convert,
    .set = shoali_ref_set,
    .random_fill = shoali_ref_random_fill,
    .to_fixed = shoali_ref_to_fixed,
    .from_fixed = shoali_ref_from_fixed,
    .norm2 = shoali_ref_norm2,
    .clip = shoali_ref_clip,
    .adam = shoali_ref_adam,
    .sgd = shoali_ref_sgd,
    .reduce_sources = shoali_ref_reduce_sources,
    .quantize = shoali_ref_quantize,
    .dequantize = shoali_ref_dequantize,
};
