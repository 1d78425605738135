#include "base/rng.h"

#include "base/hash.h"
#include "base/mathx.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 10 };

/* Multipliers and key increments of Philox4x32 (Salmon et al. 2011, section 3.3 and its code). */
static const uint32_t multiplier0 = 0xD2511F53u, multiplier1 = 0xCD9E8D57u;
static const uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;

/* Two seeds of the tuple's hash, one for each half of the stream's identity. */
static const uint64_t key_seed = 0x73686f616c2d6b65u, high_seed = 0x73686f616c2d6869u;

static void store_le64(unsigned char *bytes, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
}

struct shoali_stream shoali_stream_make(uint64_t seed, const char *name, const char *path,
                                        uint64_t number)
{
    unsigned char tuple[32];
    store_le64(tuple, seed);
    store_le64(tuple + 8, shoali_hash64(name, strlen(name)));
    store_le64(tuple + 16, shoali_hash64(path, strlen(path)));
    store_le64(tuple + 24, number);
    uint64_t key = shoali_hash64_seeded(tuple, sizeof(tuple), key_seed);
    uint64_t high = shoali_hash64_seeded(tuple, sizeof(tuple), high_seed);
    return (struct shoali_stream){
        .key = {(uint32_t)key, (uint32_t)(key >> 32)},
        .high = {(uint32_t)high, (uint32_t)(high >> 32)},
    };
}

void shoali_philox(const struct shoali_stream *stream, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = stream->high[0], c3 = stream->high[1];
    uint32_t k0 = stream->key[0], k1 = stream->key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t product0 = (uint64_t)multiplier0 * c0;
        uint64_t product1 = (uint64_t)multiplier1 * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += weyl0;
        k1 += weyl1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t shoali_random_u32(const struct shoali_stream *stream, uint64_t index)
{
    uint32_t block[4];
    shoali_philox(stream, index, block);
    return block[0];
}

uint32_t shoali_random_dense_u32(const struct shoali_stream *stream, uint64_t index)
{
    uint32_t block[4];
    shoali_philox(stream, index / 64 * 16 + index % 16, block);
    return block[index % 64 / 16];
}

uint64_t shoali_random_below(const struct shoali_stream *stream, uint64_t index, uint64_t bound)
{
    uint32_t block[4];
    shoali_philox(stream, index, block);
    uint64_t word = (uint64_t)block[1] << 32 | block[0];
    return (uint64_t)((unsigned __int128)word * bound >> 64);
}

float shoali_random_uniform(const struct shoali_stream *stream, uint64_t index)
{
    return (float)(shoali_random_u32(stream, index) >> 8) * 0x1p-24f;
}

double shoali_random_normal(const struct shoali_stream *stream, uint64_t index)
{
    uint32_t block[4];
    shoali_philox(stream, index, block);
    /* The half keeps the logarithm's argument above 0 and below 1. */
    double radius = ((double)block[0] + 0.5) * 0x1p-32;
    double turn = (double)block[1] * 0x1p-32;
    return sqrt(-2.0 * shoali_ln(radius)) * shoali_cos(turn * 0x1.921fb54442d18p+2);
}
