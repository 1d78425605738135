/* test_kernels - kernels and helpers that the tests of this folder share. */
#ifndef SHOALI_ACCELERATOR_TEST_KERNELS_H
#define SHOALI_ACCELERATOR_TEST_KERNELS_H

#include "accelerator/accelerator.h"
#include "accelerator/test_arguments.h"
#include "base/test_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                        \
    do {                                                \
        if ((call) != SHOAL_OK) {                       \
            print_error("%s\n", shoal_error_message()); \
            fail_msg("%s", #call);                      \
        }                                               \
    } while (0)

static inline void mix_slice(void *arg, int32_t index, int32_t count)
{
    const struct mix_args *args = arg;
    int64_t begin, end;
    shoali_pool_slice(args->count, 16, index, count, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        args->out[i] = 3u * (args->a != NULL ? args->a[i] : 0u) +
                       (args->b != NULL ? args->b[i] : 0u) + args->value;
}

static inline void mix_kernel(const void *args, const struct shoali_kernel_context *context)
{
    struct mix_args copy = *(const struct mix_args *)args;
    shoali_pool_run(context->threads, mix_slice, &copy);
}

static const struct shoali_kernel_type mix_type = {
    .name = "mix",
    .args_bytes = sizeof(struct mix_args),
    .pointers = {{"out", offsetof(struct mix_args, out), SHOALI_WRITES,
                  .count = {{offsetof(struct mix_args, count)}}},
                 {"a", offsetof(struct mix_args, a), SHOALI_READS, true,
                  .count = {{offsetof(struct mix_args, count)}}},
                 {"b", offsetof(struct mix_args, b), SHOALI_READS, true,
                  .count = {{offsetof(struct mix_args, count)}}}},
};

static inline shoal_status mix(struct shoali_device_stream *stream, const struct mix_args *args)
{
    return shoali_launch(stream, &mix_type, mix_kernel, args);
}

#endif
