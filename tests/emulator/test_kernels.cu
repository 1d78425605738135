/* Kernels of the tests of accelerators. */
#include "ops/cuda/kernels/matrices.h"

#include "accelerator/test_arguments.h"

KERNEL(test_mix, struct mix_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP)
        args->out[i] = 3u * (args->a != 0 ? args->a[i] : 0u) + (args->b != 0 ? args->b[i] : 0u) +
                       args->value;
}

KERNEL(test_sum, struct sum_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP) {
        uint32_t sum = 0;
        for (int32_t j = 0; j < args->input_count; j++)
            sum += args->input[j][i];
        args->out[i] = sum;
    }
}

KERNEL(test_products, struct products_args, 32)
{
    const int64_t at = BLOCK * 32 + THREAD;
    float d[4];
    for (int i = 0; i < 4; i++)
        d[i] = args->c[at * 4 + i];
    if (args->f16)
        mma_f16(d, args->a + at * 4, args->b + at * 2);
    else
        mma_bf16(d, args->a + at * 4, args->b + at * 2);
    for (int i = 0; i < 4; i++)
        args->d[at * 4 + i] = d[i];
}

struct fragments_shared {
    struct words4 row[32];
};
KERNEL(test_fragments, struct fragments_args, 32)
{
    SHARED(struct fragments_shared, s);
    uint32_t fragment[12];
    s->row[THREAD] = ((const struct words4 *)args->rows)[THREAD];
    block_barrier();
    load_matrices(fragment, &s->row[THREAD]);
    load_matrices_transposed(fragment + 4, &s->row[THREAD]);
    load_two_matrices(fragment + 8, &s->row[THREAD]);
    load_two_matrices_transposed(fragment + 10, &s->row[THREAD]);
    for (int i = 0; i < 12; i++)
        args->out[THREAD * 12 + i] = fragment[i];
}

#ifndef __CUDACC__
#include "emulator_queue.h"

float emulator_f16_to_f32(uint16_t x)
{
    return f32_of_f16(x);
}
uint16_t emulator_f32_to_f16(float x)
{
    return f16_of_f32(x);
}
#endif
