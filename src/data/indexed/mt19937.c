/* The Mersenne twister (Matsumoto and Nishimura, 1998) as NumPy's RandomState and torch use it.
 *
 * A shuffle is Fisher and Yates' from the last index down. NumPy draws j <= i by masking words to
 * the next power of two minus one until one is small enough: 32-bit words, or two of them, high
 * word first, where i does not fit. torch walks up and takes the remainder.
 *
 * The twister of 64-bit words (Nishimura, 2000) is that of C++'s mt19937_64. */
#include "data/indexed/indexed.h"

#define WORDS 624
#define HALF 397
#define WORDS_64 312
#define HALF_64 156

void shoali_mt19937_init(struct shoali_mt19937 *generator, uint32_t seed)
{
    uint32_t *state = generator->state;
    state[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        state[i] = UINT32_C(1812433253) * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    generator->next = WORDS;
}

static void refill(struct shoali_mt19937 *generator)
{
    uint32_t *state = generator->state;
    for (int i = 0; i < WORDS; i++) {
        const uint32_t y =
            (state[i] & UINT32_C(0x80000000)) | (state[(i + 1) % WORDS] & UINT32_C(0x7fffffff));
        state[i] = state[(i + HALF) % WORDS] ^ (y >> 1) ^ (y & 1 ? UINT32_C(0x9908b0df) : 0);
    }
    generator->next = 0;
}

uint32_t shoali_mt19937_next(struct shoali_mt19937 *generator)
{
    if (generator->next == WORDS)
        refill(generator);
    uint32_t y = generator->state[generator->next++];
    y ^= y >> 11;
    y ^= (y << 7) & UINT32_C(0x9d2c5680);
    y ^= (y << 15) & UINT32_C(0xefc60000);
    return y ^ (y >> 18);
}

uint64_t shoali_mt19937_draw(struct shoali_mt19937 *generator, uint64_t most)
{
    uint64_t mask = most, value;
    if (most == 0)
        return 0;
    for (int shift = 1; shift < 64; shift *= 2)
        mask |= mask >> shift;
    do {
        value = shoali_mt19937_next(generator);
        if (most > UINT32_MAX)
            value = value << 32 | shoali_mt19937_next(generator);
        value &= mask;
    } while (value > most);
    return value;
}

double shoali_mt19937_real(struct shoali_mt19937 *generator)
{
    const uint32_t high = shoali_mt19937_next(generator) >> 5;
    const uint32_t low = shoali_mt19937_next(generator) >> 6;
    return ((double)high * 67108864.0 + (double)low) / 9007199254740992.0;
}

void shoali_mt19937_64_init(struct shoali_mt19937_64 *generator, uint64_t seed)
{
    uint64_t *state = generator->state;
    state[0] = seed;
    for (uint64_t i = 1; i < WORDS_64; i++)
        state[i] = UINT64_C(6364136223846793005) * (state[i - 1] ^ (state[i - 1] >> 62)) + i;
    generator->next = WORDS_64;
}

uint64_t shoali_mt19937_64_next(struct shoali_mt19937_64 *generator)
{
    uint64_t *state = generator->state;
    for (int i = 0; generator->next == WORDS_64 && i < WORDS_64; i++) {
        const uint64_t y = (state[i] & UINT64_C(0xffffffff80000000)) |
                           (state[(i + 1) % WORDS_64] & UINT64_C(0x7fffffff));
        state[i] =
            state[(i + HALF_64) % WORDS_64] ^ (y >> 1) ^ (y & 1 ? UINT64_C(0xb5026f5aa96619e9) : 0);
    }
    if (generator->next == WORDS_64)
        generator->next = 0;
    uint64_t y = state[generator->next++];
    y ^= (y >> 29) & UINT64_C(0x5555555555555555);
    y ^= (y << 17) & UINT64_C(0x71d67fffeda60000);
    y ^= (y << 37) & UINT64_C(0xfff7eee000000000);
    return y ^ (y >> 43);
}

void shoali_mt19937_shuffle_i32(struct shoali_mt19937 *generator, int32_t *value, int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--) {
        const uint64_t j = shoali_mt19937_draw(generator, (uint64_t)i);
        const int32_t kept = value[i];
        value[i] = value[j];
        value[j] = kept;
    }
}

void shoali_mt19937_shuffle_i64(struct shoali_mt19937 *generator, int64_t *value, int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--) {
        const uint64_t j = shoali_mt19937_draw(generator, (uint64_t)i);
        const int64_t kept = value[i];
        value[i] = value[j];
        value[j] = kept;
    }
}

void shoali_mt19937_permute(struct shoali_mt19937 *generator, int32_t *value, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        value[i] = (int32_t)i;
    for (int64_t i = 0; i < count - 1; i++) {
        const int64_t j = i + shoali_mt19937_next(generator) % (uint32_t)(count - i);
        const int32_t kept = value[i];
        value[i] = value[j];
        value[j] = kept;
    }
}
