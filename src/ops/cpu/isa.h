/* isa - what every file of ops/cpu shares: the instruction set's name, its native vector, scratch
 * memory.
 *
 * Each file of this folder is compiled once per instruction set (generic, avx2, avx512,
 * avx512_bf16, neon, neon_bf16; some of them for ops/cpu/amx, too) with SHOALI_ISA set to that
 * name; symbols that cross files carry it through SHOALI_CPU_SYMBOL. `vec` is the widest native
 * register and serves the matrix kernels; everything element-wise uses the 16 lanes of ops/vmath.h,
 * whose bits are the same in all of them.
 */
#ifndef SHOALI_OPS_CPU_ISA_H
#define SHOALI_OPS_CPU_ISA_H

#include "base/pool.h"
#include "base/scratch.h"
#include "ops/ops.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif
/* ARM's Advanced SIMD, and its product of bf16 pairs. */
#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#include <arm_neon.h>
#define SHOALI_CPU_NEON 1
#else
#define SHOALI_CPU_NEON 0
#endif
#if SHOALI_CPU_NEON && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define SHOALI_CPU_BFDOT 1
#else
#define SHOALI_CPU_BFDOT 0
#endif

#define SHOALI_CPU_PASTE_(name, isa) shoali_cpu_##name##_##isa
#define SHOALI_CPU_PASTE(name, isa) SHOALI_CPU_PASTE_(name, isa)
/* The symbol `name` of this instruction set. */
#define SHOALI_CPU_SYMBOL(name) SHOALI_CPU_PASTE(name, SHOALI_ISA)

/* The table itself: shoali_ops_cpu_<isa>. */
#define SHOALI_CPU_TABLE_(isa) shoali_ops_cpu_##isa
#define SHOALI_CPU_PASTE_TABLE(isa) SHOALI_CPU_TABLE_(isa)

#define SHOALI_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define SHOALI_UNROLL _Pragma("unroll")
#define SHOALI_UNROLL_4 _Pragma("unroll 4")
#else
#define SHOALI_UNROLL _Pragma("GCC unroll 64")
#define SHOALI_UNROLL_4 _Pragma("GCC unroll 4")
#endif
#define SHOALI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SHOALI_MAX(a, b) ((a) > (b) ? (a) : (b))

/* bf16 pairs are multiplied by the CPU (vdpbf16ps, BFDOT, tiles); elsewhere 16-bit operands are
 * widened. SHOALI_CPU_TILES: this is compiled for ops/cpu/amx, whose products come 32 x 32 x 32 at
 * a time. */
#if !defined(SHOALI_CPU_TILES)
#define SHOALI_CPU_TILES 0
#endif
#if defined(__AVX512BF16__) || SHOALI_CPU_BFDOT || SHOALI_CPU_TILES
#define SHOALI_CPU_PAIRS 1
#else
#define SHOALI_CPU_PAIRS 0
#endif

#if defined(__AVX512F__)
typedef __m512 vec;
#define VEC_LANES 16
SHOALI_INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}
SHOALI_INLINE vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
SHOALI_INLINE void vec_store(float *p, vec x)
{
    _mm512_storeu_ps(p, x);
}
SHOALI_INLINE vec vec_set1(float x)
{
    return _mm512_set1_ps(x);
}
SHOALI_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
#elif defined(__AVX2__)
typedef __m256 vec;
#define VEC_LANES 8
SHOALI_INLINE vec vec_zero(void)
{
    return _mm256_setzero_ps();
}
SHOALI_INLINE vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
SHOALI_INLINE void vec_store(float *p, vec x)
{
    _mm256_storeu_ps(p, x);
}
SHOALI_INLINE vec vec_set1(float x)
{
    return _mm256_set1_ps(x);
}
SHOALI_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
#elif SHOALI_CPU_NEON
typedef float32x4_t vec;
#define VEC_LANES 4
SHOALI_INLINE vec vec_zero(void)
{
    return vdupq_n_f32(0.0f);
}
SHOALI_INLINE vec vec_load(const float *p)
{
    return vld1q_f32(p);
}
SHOALI_INLINE void vec_store(float *p, vec x)
{
    vst1q_f32(p, x);
}
SHOALI_INLINE vec vec_set1(float x)
{
    return vdupq_n_f32(x);
}
SHOALI_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}
#else
typedef float vec __attribute__((vector_size(16)));
#define VEC_LANES 4
SHOALI_INLINE vec vec_zero(void)
{
    return (vec){0, 0, 0, 0};
}
SHOALI_INLINE vec vec_load(const float *p)
{
    vec x;
    memcpy(&x, p, sizeof x);
    return x;
}
SHOALI_INLINE void vec_store(float *p, vec x)
{
    memcpy(p, &x, sizeof x);
}
SHOALI_INLINE vec vec_set1(float x)
{
    return (vec){x, x, x, x};
}
SHOALI_INLINE vec vec_fma(vec a, vec b, vec c)
{
    for (int i = 0; i < VEC_LANES; i++)
        c[i] = fmaf(a[i], b[i], c[i]);
    return c;
}
#endif
/* Threads for which a call's work is cut: those of the pool, also where it is another's just now
 * and the caller goes on alone, so that what it works in is what a plan knows. */
SHOALI_INLINE int32_t cpu_threads(const struct shoali_kernel_context *context)
{
    if (!context->threads && context->device)
        return shoali_device_threads(context->device);
    return shoali_pool_threads(context->threads);
}
/* Native vectors in a unit of 16 columns. */
#define VEC_PER_UNIT (16 / VEC_LANES)

/* The kernels of the table and the element types they hold for. SOME: for some arguments only,
 * those for which the predicate says so; the others fall to the tables behind this one. WORKING:
 * takes scratch memory, as <name>_workspace says. */
#define SHOALI_CPU_KERNELS(KERNEL, SOME, WORKING)                                        \
    WORKING(gemm, SHOALI_SHORT_FLOATS)                                                   \
    KERNEL(pack_b, SHOALI_SHORT_FLOATS)                                                  \
    KERNEL(norm, SHOALI_SHORT_FLOATS)                                                    \
    KERNEL(norm_backward, SHOALI_SHORT_FLOATS)                                           \
    KERNEL(rotary, SHOALI_SHORT_FLOATS)                                                  \
    WORKING(attention, SHOALI_SHORT_FLOATS)                                              \
    WORKING(attention_backward, SHOALI_SHORT_FLOATS)                                     \
    KERNEL(embedding, SHOALI_SHORT_FLOATS)                                               \
    KERNEL(embedding_backward, SHOALI_SHORT_FLOATS)                                      \
    KERNEL(cross_entropy, SHOALI_SHORT_FLOATS)                                           \
    KERNEL(cross_entropy_backward, SHOALI_SHORT_FLOATS)                                  \
    KERNEL(cross_entropy_tile, SHOALI_SHORT_FLOATS)                                      \
    KERNEL(cross_entropy_tile_backward, SHOALI_SHORT_FLOATS)                             \
    KERNEL(softmax, SHOALI_SHORT_FLOATS)                                                 \
    KERNEL(dropout, SHOALI_SHORT_FLOATS)                                                 \
    KERNEL(unary, SHOALI_SHORT_FLOATS)                                                   \
    KERNEL(glu, SHOALI_SHORT_FLOATS)                                                     \
    KERNEL(binary, SHOALI_SHORT_FLOATS)                                                  \
    KERNEL(axpy, SHOALI_SHORT_FLOATS)                                                    \
    KERNEL(reduce, SHOALI_SHORT_FLOATS)                                                  \
    KERNEL(broadcast, SHOALI_SHORT_FLOATS)                                               \
    SOME(copy_strided, SHOALI_SHORT_FLOATS, copy_strided_supports)                       \
    KERNEL(convert, SHOALI_SHORT_FLOATS)                                                 \
    KERNEL(set, SHOALI_SHORT_FLOATS)                                                     \
    KERNEL(random_fill, SHOALI_SHORT_FLOATS)                                             \
    KERNEL(to_fixed, SHOALI_SHORT_FLOATS)                                                \
    KERNEL(from_fixed, SHOALI_SHORT_FLOATS)                                              \
    KERNEL(norm2, SHOALI_SHORT_FLOATS)                                                   \
    KERNEL(adam, SHOALI_SHORT_FLOATS)                                                    \
    KERNEL(sgd, SHOALI_SHORT_FLOATS)                                                     \
    KERNEL(square_sums, SHOALI_SHORT_FLOATS)                                             \
    KERNEL(lamb, SHOALI_SHORT_FLOATS)                                                    \
    KERNEL(lamb_apply, SHOALI_SHORT_FLOATS)                                              \
    KERNEL(adafactor, SHOALI_SHORT_FLOATS)                                               \
    KERNEL(adafactor_apply, SHOALI_SHORT_FLOATS)                                         \
    SOME(reduce_sources, SHOALI_SHORT_FLOATS | 1u << SHOAL_I64, reduce_sources_supports) \
    KERNEL(quantize, SHOALI_SHORT_FLOATS)                                                \
    KERNEL(dequantize, SHOALI_SHORT_FLOATS)

#define KERNEL(name, dtypes) \
    void SHOALI_CPU_SYMBOL(name)(const void *args, const struct shoali_kernel_context *context);
#define SOME(name, dtypes, predicate) \
    KERNEL(name, dtypes) bool SHOALI_CPU_SYMBOL(predicate)(const void *args);
#define WORKING(name, dtypes) \
    KERNEL(name, dtypes)      \
    size_t SHOALI_CPU_SYMBOL(name##_workspace)(const void *args, int32_t threads);
SHOALI_CPU_KERNELS(KERNEL, SOME, WORKING)
#undef KERNEL
#undef SOME
#undef WORKING
size_t SHOALI_CPU_SYMBOL(packed_b_bytes)(int64_t n, int64_t k, shoal_dtype dtype);
void SHOALI_CPU_SYMBOL(explain_gemm)(const void *args, int32_t threads, struct shoali_str *text);

#endif
