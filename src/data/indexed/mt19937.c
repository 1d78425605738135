/* The Mersenne twister (Matsumoto and Nishimura, 1998) as NumPy's RandomState and torch use it.
 *
 * A shuffle is Fisher and Yates' from the last index down. NumPy draws j <= i by masking words to
 * the next power of two minus one until one is small enough: 32-bit words, or two of them, high
 * word first, where i does not fit. torch walks up and takes the remainder. */
#include "data/indexed/indexed.h"

#define WORDS 624
#define HALF 397

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

/* In [0, most]. */
static uint64_t draw(struct shoali_mt19937 *generator, uint64_t most)
{
    uint64_t mask = most, value;
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

void shoali_mt19937_shuffle_i32(struct shoali_mt19937 *generator, int32_t *value, int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--) {
        const uint64_t j = draw(generator, (uint64_t)i);
        const int32_t kept = value[i];
        value[i] = value[j];
        value[j] = kept;
    }
}

void shoali_mt19937_shuffle_i64(struct shoali_mt19937 *generator, int64_t *value, int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--) {
        const uint64_t j = draw(generator, (uint64_t)i);
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
