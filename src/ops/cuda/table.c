/* table.c - kernels for the memory of NVIDIA's GPUs. What is missing here runs staged. */
#include "ops/cuda/blas.h"

/* Of a machine with a GPU and a build with nvcc, or of the emulator. */
static bool probe(void)
{
    return shoali_accelerator_cuda.probe() && shoali_cuda_load(&shoali_cuda_kernels);
}

static const char *why_not(void)
{
    return shoali_accelerator_cuda.probe() && !shoali_cuda_load(&shoali_cuda_kernels)
               ? shoali_cuda_kernels.why
               : "";
}

/* clang-format off */
static const struct shoali_ops_entry entries[] = {
    {&shoali_kernel_adam, shoali_cuda_adam, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_attention, shoali_cuda_attention, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_attention_backward, shoali_cuda_attention_backward, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_axpy, shoali_cuda_axpy, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_binary, shoali_cuda_binary, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_convert, shoali_cuda_convert, SHOALI_SHORT_FLOATS, shoali_cuda_converts, NULL},
    {&shoali_kernel_copy_strided, shoali_cuda_copy_strided, SHOALI_ALL_DTYPES, shoali_cuda_copies, NULL},
    {&shoali_kernel_cross_entropy, shoali_cuda_cross_entropy, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_cross_entropy_backward, shoali_cuda_cross_entropy_backward, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_cross_entropy_tile, shoali_cuda_cross_entropy_tile, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_cross_entropy_tile_backward, shoali_cuda_cross_entropy_tile_backward, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_dropout, shoali_cuda_dropout, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_embedding, shoali_cuda_embedding, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_embedding_backward, shoali_cuda_embedding_backward, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_from_fixed, shoali_cuda_from_fixed, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_gemm, shoali_cuda_gemm, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_glu, shoali_cuda_glu, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_loss_mean, shoali_cuda_loss_mean, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_norm, shoali_cuda_norm, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_norm2, shoali_cuda_norm2, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_norm_backward, shoali_cuda_norm_backward, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_reduce, shoali_cuda_reduce, SHOALI_SHORT_FLOATS, shoali_cuda_reduces, NULL},
    {&shoali_kernel_rotary, shoali_cuda_rotary, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_set, shoali_cuda_set, SHOALI_ALL_DTYPES, NULL, NULL},
    {&shoali_kernel_to_fixed, shoali_cuda_to_fixed, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_unary, shoali_cuda_unary, SHOALI_SHORT_FLOATS, NULL, NULL},
};
/* clang-format on */

const struct shoali_ops_table shoali_ops_cuda = {
    .abi = SHOALI_OPS_ABI,
    .bytes = sizeof(struct shoali_ops_table),
    .name = "cuda",
    .probe = probe,
    .entries = entries,
    .entry_count = sizeof entries / sizeof entries[0],
    .memory = "cuda",
    .stream_workspace = shoali_cuda_stream_workspace,
    .why_not = why_not,
    .describe = shoali_blas_describe,
    .digest = shoali_blas_digest,
};
