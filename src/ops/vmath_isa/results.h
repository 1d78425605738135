/* results - every function of ops/vmath.h on an array, compiled once per instruction set for
 * vmath_test.c, which compares the bits. */
#ifndef SHOALI_OPS_VMATH_ISA_RESULTS_H
#define SHOALI_OPS_VMATH_ISA_RESULTS_H

#include "base/rng.h"

#include <stdint.h>

enum { VMATH_RESULTS = 36 };
/* out: VMATH_RESULTS words of 16 lanes for the 16 words of bits at `x`; `n` is a tail, 0 ... 16. */
typedef void (*vmath_results_fn)(const uint32_t x[16], const uint32_t y[16], int64_t n,
                                 const struct shoali_stream *random, uint64_t index,
                                 uint32_t out[VMATH_RESULTS][16]);
void vmath_results_portable(const uint32_t x[16], const uint32_t y[16], int64_t n,
                            const struct shoali_stream *random, uint64_t index,
                            uint32_t out[VMATH_RESULTS][16]);
void vmath_results_avx2(const uint32_t x[16], const uint32_t y[16], int64_t n,
                        const struct shoali_stream *random, uint64_t index,
                        uint32_t out[VMATH_RESULTS][16]);
void vmath_results_avx512(const uint32_t x[16], const uint32_t y[16], int64_t n,
                          const struct shoali_stream *random, uint64_t index,
                          uint32_t out[VMATH_RESULTS][16]);
void vmath_results_avx512_bf16(const uint32_t x[16], const uint32_t y[16], int64_t n,
                               const struct shoali_stream *random, uint64_t index,
                               uint32_t out[VMATH_RESULTS][16]);
void vmath_results_neon(const uint32_t x[16], const uint32_t y[16], int64_t n,
                        const struct shoali_stream *random, uint64_t index,
                        uint32_t out[VMATH_RESULTS][16]);
void vmath_results_neon_bf16(const uint32_t x[16], const uint32_t y[16], int64_t n,
                             const struct shoali_stream *random, uint64_t index,
                             uint32_t out[VMATH_RESULTS][16]);

#endif
