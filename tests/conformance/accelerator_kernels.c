/* The suite's kernels, for the host and for GPUs (tests/emulator/test_kernels.cu). */
#include "accelerator_suite.h"

#include "accelerator/cuda/cuda.h"

#undef mix

enum { MIX, SUM };
static struct shoali_cuda_kernel kernels[] = {{"shoal_test_mix", NULL}, {"shoal_test_sum", NULL}};

#ifdef SHOALI_CUDA_TEST_IMAGE
SHOALI_CUDA_EMBED(test_image, SHOALI_CUDA_TEST_IMAGE);
static struct shoali_cuda_image image = {
    .code = test_image_begin, .end = test_image_end, .kernels = kernels, .kernel_count = 2};
#else
static struct shoali_cuda_image image = {.kernels = kernels, .kernel_count = 2};
#endif

static void run_mix(const void *args, const struct shoali_kernel_context *context)
{
    shoali_cuda_launch(context, &kernels[MIX], args,
                       (struct shoali_cuda_grid){.blocks = 3, .threads = 64});
}
static void run_sum(const void *args, const struct shoali_kernel_context *context)
{
    shoali_cuda_launch(context, &kernels[SUM], args,
                       (struct shoali_cuda_grid){.blocks = 2, .threads = 32});
}
static void sum_kernel(const void *args, const struct shoali_kernel_context *context)
{
    const struct sum_args *a = args;
    (void)context;
    for (int64_t i = 0; i < a->count; i++) {
        a->out[i] = 0;
        for (int32_t j = 0; j < a->input_count; j++)
            a->out[i] += a->input[j][i];
    }
}

static bool on_gpu(void)
{
    if (current->host_kernels)
        return false;
    if (!shoali_cuda_load(&image))
        fail_msg("the tests' kernels: %s", image.why);
    return true;
}

shoal_status launch_mix(struct shoali_device_stream *stream, const struct mix_args *args)
{
    return shoali_launch(stream, &mix_type, on_gpu() ? run_mix : mix_kernel, args);
}

shoali_kernel_fn sum_function(void)
{
    return on_gpu() ? run_sum : sum_kernel;
}
