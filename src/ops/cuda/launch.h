/* launch - for the functions of table `cuda`, which queue kernels on a GPU.
 *
 * A function computes the kernel's argument block (kernels/arguments.h) and its grid. Kernels of
 * elements walk their arrays with all threads of the grid, so any grid gives the same results.
 *
 *   kernels/       the text of the kernels; list.h names them, all.cu is what nvcc compiles
 *   image.c        the image, in the library where the build had nvcc
 *   elementwise.c  and others: the functions, by kinds of kernels
 *   table.c        the table
 */
#ifndef SHOALI_OPS_CUDA_LAUNCH_H
#define SHOALI_OPS_CUDA_LAUNCH_H

#include "accelerator/cuda/cuda.h"
#include "ops/cuda/kernels/arguments.h"
#include "ops/cuda/kernels/list.h"
#include "ops/kernel.h"

enum cuda_kernel {
#define CUDA_KERNEL(name) CUDA_##name,
    CUDA_KERNELS(CUDA_KERNEL)
#undef CUDA_KERNEL
        CUDA_KERNEL_COUNT
};
extern struct shoali_cuda_image shoali_cuda_kernels;

/* Blocks for so many rows of 16 lanes each: no more than the GPU has room for at once. */
static inline int64_t shoali_cuda_row_blocks(const struct shoali_kernel_context *context,
                                             int64_t rows)
{
    const int64_t room = 16 * (int64_t)shoali_cuda_multiprocessors(context);
    return (rows + 15) / 16 < room ? (rows + 15) / 16 : room;
}

static inline void shoali_cuda_queue(const struct shoali_kernel_context *context,
                                     enum cuda_kernel kernel, const void *args,
                                     struct shoali_cuda_grid grid)
{
    shoali_cuda_launch(context, &shoali_cuda_kernels.kernels[kernel], args, grid);
}

/* One thread for four elements or so, and no more blocks than the GPU has room for at once. */
static inline void shoali_cuda_queue_flat(const struct shoali_kernel_context *context,
                                          enum cuda_kernel kernel, const void *args, int64_t count)
{
    const int64_t room = 16 * (int64_t)shoali_cuda_multiprocessors(context);
    const int64_t blocks = (count + 1023) / 1024;
    shoali_cuda_queue(
        context, kernel, args,
        (struct shoali_cuda_grid){.blocks = blocks < room ? blocks : room, .threads = 256});
}

/* attention.c */
void shoali_cuda_attention(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_attention_backward(const void *args, const struct shoali_kernel_context *context);
/* elementwise.c */
void shoali_cuda_axpy(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_binary(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_convert(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_copy_strided(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_glu(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_set(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_unary(const void *args, const struct shoali_kernel_context *context);
bool shoali_cuda_converts(const void *args);
bool shoali_cuda_copies(const void *args);
/* losses.c */
void shoali_cuda_cross_entropy(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_cross_entropy_backward(const void *args,
                                        const struct shoali_kernel_context *context);
void shoali_cuda_cross_entropy_tile(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_cross_entropy_tile_backward(const void *args,
                                             const struct shoali_kernel_context *context);
void shoali_cuda_loss_mean(const void *args, const struct shoali_kernel_context *context);
/* products.c */
void shoali_cuda_gemm(const void *args, const struct shoali_kernel_context *context);
size_t shoali_cuda_stream_workspace(const struct shoali_kernel *kernel, const void *args);
/* rows.c */
void shoali_cuda_norm(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_norm_backward(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_reduce(const void *args, const struct shoali_kernel_context *context);
bool shoali_cuda_reduces(const void *args);
/* tokens.c */
void shoali_cuda_dropout(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_embedding(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_embedding_backward(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_rotary(const void *args, const struct shoali_kernel_context *context);
/* updates.c */
void shoali_cuda_adam(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_from_fixed(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_norm2(const void *args, const struct shoali_kernel_context *context);
void shoali_cuda_to_fixed(const void *args, const struct shoali_kernel_context *context);

#endif
