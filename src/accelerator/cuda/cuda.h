/* cuda - what kernels for a GPU need of the accelerator, beyond its table. Level L2.
 *
 * Kernels come in images: binaries for some kinds of GPU, in one file. shoali_cuda_load hands one
 * to the driver, once per process; its kernels can then be launched on every device. A table of
 * kernels (ops/cuda) has functions {args, context} as every other table. They run on the host,
 * compute a grid and call shoali_cuda_launch, which queues the kernel on the context's stream.
 *
 * ARGUMENTS travel by value: one struct of at most SHOALI_KERNEL_MAX_ARGS bytes, the same in the
 * kernel's text and here. Addresses in it are those of the device.
 *
 * Environment:
 *   SHOAL_CUDA_DRIVER   the driver's library, in place of libcuda.so.1
 *   SHOAL_CUDA_BYTES    at most so many bytes of the GPU's memory for each rank
 *   SHOAL_CUDA_PROFILE  1: time each kernel, and say at the end where the time went
 */
#ifndef SHOALI_ACCELERATOR_CUDA_H
#define SHOALI_ACCELERATOR_CUDA_H

#include "accelerator/accelerator.h"

struct CUkern_st;
struct CUstream_st;

/* A kernel of an image. */
struct shoali_cuda_kernel {
    const char *name;
    struct CUkern_st *handle; /* shoali_cuda_load finds it */
};
/* Puts the file of an image, which nvcc has written, into read-only data: from NAME_begin to
 * NAME_end. */
#define SHOALI_CUDA_EMBED(name, file)                \
    __asm__(".pushsection .rodata\n"                 \
            ".balign 64\n" #name "_begin:\n"         \
            ".incbin \"" file "\"\n" #name "_end:\n" \
            ".popsection\n");                        \
    extern const char name##_begin[], name##_end[]
struct shoali_cuda_image {
    /* What nvcc has made of the kernels; lives as long as the program. Nothing: the build had no
     * nvcc, and only an emulator knows the kernels. */
    const char *code, *end;
    struct shoali_cuda_kernel *kernels;
    int32_t kernel_count;
    bool tried; /* shoali_cuda_load has been called */
    bool loaded;
    char why[200]; /* not loaded: why */
};
/* Loads an image, unless that was tried before. False: image->why says why. Any thread. */
bool shoali_cuda_load(struct shoali_cuda_image *image);

struct shoali_cuda_grid {
    int64_t blocks, blocks_y;      /* 0 is 1 */
    int32_t threads, shared_bytes; /* of a block */
};
/* Around what a table's function gives to the GPU by itself: the time of what lies between belongs
 * to the name, where kernels are timed. */
int64_t shoali_cuda_time_begin(const struct shoali_kernel_context *context);
void shoali_cuda_time_end(const struct shoali_kernel_context *context, const char *name,
                          int64_t begin);
/* Queues a kernel of a loaded image with a copy of its arguments. An error is remembered by the
 * device: the launch that called the table's function returns it. */
void shoali_cuda_launch(const struct shoali_kernel_context *context,
                        const struct shoali_cuda_kernel *kernel, const void *args,
                        struct shoali_cuda_grid grid);
/* The driver's handle of the context's stream, for libraries of NVIDIA's. */
struct CUstream_st *shoali_cuda_native_stream(const struct shoali_kernel_context *context);
/* Remembers an error of a library's call, whose sentence is the thread's, as that of a launch. */
void shoali_cuda_launch_failed(const struct shoali_kernel_context *context, shoal_status status);
/* The stream's workspace (shoali_stream_workspace). NULL: there is no memory, which the device
 * remembers. */
void *shoali_cuda_workspace(const struct shoali_kernel_context *context, size_t bytes);
/* Of the context's device. */
int32_t shoali_cuda_multiprocessors(const struct shoali_kernel_context *context);
/* Zeros memory of the device in the stream's order, for a table's function. */
void shoali_cuda_clear(const struct shoali_kernel_context *context, void *address, size_t bytes);

#endif
