/* random - the random numbers of base/rng.h. */
#ifndef SHOALI_OPS_CUDA_RANDOM_H
#define SHOALI_OPS_CUDA_RANDOM_H

#include "ops/cuda/kernels/elements.h"

DEVICE void philox(const struct cuda_random *random, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = random->high[0], c3 = random->high[1];
    uint32_t k0 = random->key[0], k1 = random->key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t product0 = (uint64_t)SHOALI_PHILOX_MULTIPLIER0 * c0;
        const uint64_t product1 = (uint64_t)SHOALI_PHILOX_MULTIPLIER1 * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += SHOALI_PHILOX_WEYL0;
        k1 += SHOALI_PHILOX_WEYL1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
/* Whether the mask keeps an element of a dense stream. */
DEVICE int dense_keeps(const struct cuda_random *random, uint64_t index, uint32_t threshold)
{
    uint32_t block[4];
    philox(random, index / 64 * 16 + index % 16, block);
    const int word = (int)(index % 64 / 16);
    const uint32_t low = word & 1 ? block[1] : block[0], high = word & 1 ? block[3] : block[2];
    return (word & 2 ? high : low) >= threshold;
}

#endif
