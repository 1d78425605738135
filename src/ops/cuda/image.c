#include "ops/cuda/launch.h"

static struct shoali_cuda_kernel kernels[CUDA_KERNEL_COUNT] = {
#define CUDA_KERNEL(name) {"shoal_" #name, NULL},
    CUDA_KERNELS(CUDA_KERNEL)
#undef CUDA_KERNEL
};

#ifdef SHOALI_CUDA_IMAGE
SHOALI_CUDA_EMBED(shoali_cuda_image, SHOALI_CUDA_IMAGE);
#define BEGIN shoali_cuda_image_begin
#define END shoali_cuda_image_end
#else
#define BEGIN NULL
#define END NULL
#endif

struct shoali_cuda_image shoali_cuda_kernels = {
    .code = BEGIN, .end = END, .kernels = kernels, .kernel_count = CUDA_KERNEL_COUNT};
