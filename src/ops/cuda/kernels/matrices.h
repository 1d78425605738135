/* matrices - what a warp does with matrices of 16-bit elements: products by tensor cores, and
 * fragments of them from shared memory. All lanes of the warp call each function together.
 *
 * FRAGMENTS of mma.sync.m16n8k16. Lane 4 g + t has
 *   of a [16 x 16]  register i: row g + 8 (i & 1), columns 2 t and 2 t + 1, + 8 from i = 2 on
 *   of b [16 x 8]   register i: rows 2 t and 2 t + 1, + 8 for i = 1, column g
 *   of d [16 x 8]   register i: row g + 8 (i >> 1), column 2 t + (i & 1)
 * So two neighbouring d, as pairs of 16-bit elements, are an a.
 *
 * BITS. A tensor core adds 16 products and d in one step that cuts off bits:
 * tests/emulator/matrices.c has the rule of an H100. Nothing else here rounds otherwise than a CPU
 * does.
 */
#ifndef SHOALI_OPS_CUDA_MATRICES_H
#define SHOALI_OPS_CUDA_MATRICES_H

#include "ops/cuda/kernels/elements.h"

/* Sixteen or four bytes of elements in one access. */
struct ANY_TYPE words4 {
    uint32_t word[4];
} __attribute__((aligned(16)));
struct ANY_TYPE words1 {
    uint32_t word;
};

#ifdef __CUDACC__ /* ------------------------------------------------------------------------- */

#define warp_barrier() __syncwarp()
#define MMA(name, type)                                                                   \
    DEVICE void name(float d[4], const uint32_t a[4], const uint32_t b[2])                \
    {                                                                                     \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type               \
                     ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"         \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }
MMA(mma_bf16, "bf16")
MMA(mma_f16, "f16")
#undef MMA
/* Four matrices of 8 x 8, of which lane 8 i + r names row r of matrix i. */
#define LOAD_MATRICES(name, shape)                                                            \
    DEVICE void name(uint32_t to[4], const void *row)                                         \
    {                                                                                         \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" shape ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                     \
                     : "r"(shared_address(row))                                               \
                     : "memory");                                                             \
    }
LOAD_MATRICES(load_matrices, "")
LOAD_MATRICES(load_matrices_transposed, ".trans")
#undef LOAD_MATRICES
#define LOAD_TWO_MATRICES(name, shape)                                                  \
    DEVICE void name(uint32_t to[2], const void *row)                                   \
    {                                                                                   \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" shape ".shared.b16 {%0,%1}, [%2];" \
                     : "=r"(to[0]), "=r"(to[1])                                         \
                     : "r"(shared_address(row))                                         \
                     : "memory");                                                       \
    }
LOAD_TWO_MATRICES(load_two_matrices, "")
LOAD_TWO_MATRICES(load_two_matrices_transposed, ".trans")
#undef LOAD_TWO_MATRICES
/* Copies 16 or 4 bytes to shared memory, or puts zeros there; then `from` is not read. */
DEVICE void copy16_or_zero_later(void *to, const void *from, int copies)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(copies ? 16 : 0)
                 : "memory");
}
DEVICE void copy4_or_zero_later(void *to, const void *from, int copies)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(copies ? 4 : 0)
                 : "memory");
}
/* Nearest even, two at once. */
DEVICE uint32_t bf16_pair(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE uint32_t f16_pair(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
/* a b + c, cut to 0 .. 1; NaN gives 0. */
DEVICE float fma_cut(float a, float b, float c)
{
    float d;
    asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
    return d;
}
/* The larger one, and NaN if one of them is. */
DEVICE float max_or_nan(float a, float b)
{
    float d;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
}
#else /* the emulator ------------------------------------------------------------------------ */

DEVICE void mma_at(emulator_operation operation, float d[4], const uint32_t a[4],
                   const uint32_t b[2], const char *where)
{
    const struct emulator_mma in = {a, b};
    emulator_warp(operation, ALL_LANES, &in, d, where);
}
#define mma_bf16(d, a, b) mma_at(emulator_mma_bf16, d, a, b, HERE)
#define mma_f16(d, a, b) mma_at(emulator_mma_f16, d, a, b, HERE)
#define load_matrices(to, row) emulator_warp(emulator_matrices4, ALL_LANES, row, to, HERE)
#define load_matrices_transposed(to, row) \
    emulator_warp(emulator_matrices4_transposed, ALL_LANES, row, to, HERE)
#define load_two_matrices(to, row) emulator_warp(emulator_matrices2, ALL_LANES, row, to, HERE)
#define load_two_matrices_transposed(to, row) \
    emulator_warp(emulator_matrices2_transposed, ALL_LANES, row, to, HERE)
#define warp_barrier() emulator_warp(emulator_nothing, ALL_LANES, 0, 0, HERE)
DEVICE void copy_or_zero_at(void *to, const void *from, int copies, size_t bytes, const char *where)
{
    if (copies)
        emulator_copy_later(to, from, bytes, where);
    else
        emulator_zeros_later(to, bytes, where);
}
#define copy16_or_zero_later(to, from, copies) copy_or_zero_at(to, from, copies, 16, HERE)
#define copy4_or_zero_later(to, from, copies) copy_or_zero_at(to, from, copies, 4, HERE)
DEVICE uint32_t bf16_pair(float low, float high)
{
    return bf16_of_f32(low) | (uint32_t)bf16_of_f32(high) << 16;
}
DEVICE uint32_t f16_pair(float low, float high)
{
    return f16_of_f32(low) | (uint32_t)f16_of_f32(high) << 16;
}
DEVICE float fma_cut(float a, float b, float c)
{
    const float d = __builtin_fmaf(a, b, c);
    return d > 0 ? (d < 1 ? d : 1) : 0;
}
DEVICE float max_or_nan(float a, float b)
{
    return a > b || a != a ? a : b;
}

#endif
#endif
