/* rng - counter-based random numbers (Philox4x32-10, Salmon et al. 2011, "Parallel random numbers:
 * as easy as 1, 2, 3").
 *
 * A random value is a pure function of (stream, index): no state, no order, no rank. A stream is
 * made from the run's seed, a logical name ("init", "dropout", "data", "sample"), the hash of a
 * path (a parameter's or scope's name) and a number (the step). Two different tuples give
 * independent streams. The index is the global element, so a shard draws the same values as the
 * whole. One counter serves one element: uniform uses word 0, normal uses words 0 and 1
 * (Box-Muller, cosine branch only). Dropout masks, which every step draws anew, are dense: a
 * counter serves four elements by its four words.
 */
#ifndef SHOALI_RNG_H
#define SHOALI_RNG_H

#include <stdint.h>

struct shoali_stream {
    uint32_t key[2];  /* Philox key */
    uint32_t high[2]; /* upper half of the counter: the stream's second identity */
};

/* `name` the kind of stream, `path` what it belongs to ("" if nothing), `number` step or index. */
struct shoali_stream shoali_stream_make(uint64_t seed, const char *name, const char *path,
                                        uint64_t number);
/* The raw block for an index. */
void shoali_philox(const struct shoali_stream *stream, uint64_t index, uint32_t out[4]);
/* Uniform integer, 32 bits. */
uint32_t shoali_random_u32(const struct shoali_stream *stream, uint64_t index);
/* The same of dense streams. Element i is of group i / 64, which has the blocks 16 (i / 64) .. +15;
 * its words are those blocks' words 0, then their words 1, and so on, so that sixteen blocks side
 * by side are words in order. */
uint32_t shoali_random_dense_u32(const struct shoali_stream *stream, uint64_t index);
/* Uniform integer in [0, bound), bound <= 2^63, by 64x64->128 multiply of two words (bias < 2^-1
 * ulp of bound/2^64). */
uint64_t shoali_random_below(const struct shoali_stream *stream, uint64_t index, uint64_t bound);
/* Uniform in [0, 1): (word0 >> 8) * 2^-24, exact in float. */
float shoali_random_uniform(const struct shoali_stream *stream, uint64_t index);
/* Standard normal. */
double shoali_random_normal(const struct shoali_stream *stream, uint64_t index);

#endif
