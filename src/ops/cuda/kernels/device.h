/* device - what the text of a kernel may use: C that nvcc takes as CUDA C++, and gcc for the
 * emulator of the tests (tests/emulator/emulator.h).
 *
 *   KERNEL(name, struct name_args, threads) { ... args->x ... }
 *       the kernel shoal_name, with one dimension of at most so many threads in a block
 *   KERNEL_TOGETHER(name, struct name_args, threads, blocks)
 *       the same with registers for so many blocks on a multiprocessor
 *   SHARED(struct name_shared, s)
 *       the block's shared memory, all of it one struct
 *
 * So no templates, no conversion from void * without a cast, no designated members out of order.
 *
 * BITS. Kernels have the bits of table `ref`, but those of attention_mma.h: only + - * / sqrt fma,
 * conversions and the polynomials of vmath, in the order that ops/ops.h says. nvcc gets -fmad=false
 * -prec-div=true -prec-sqrt=true -ftz=false, gcc -ffp-contract=off. Each output has one thread, or
 * lanes in a stated order, that add to it; only integers are added atomically.
 */
#ifndef SHOALI_OPS_CUDA_DEVICE_H
#define SHOALI_OPS_CUDA_DEVICE_H

#include <stdint.h>

#define ALL_LANES 0xffffffffu
#define WARP 32

#ifdef __CUDACC__ /* ------------------------------------------------------------------------- */

#define DEVICE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define UNROLL_BY_1 _Pragma("unroll 1")
#define UNROLL_BY_8 _Pragma("unroll 8")
#define UNROLL_BY_2 _Pragma("unroll 2")
#define TABLE static __device__ const
#define ANY_TYPE /* of a type: it may stand in for others */
#define KERNEL_EXPANDED(name, type, threads, bounds)                                  \
    DEVICE void name##_body(const type *args);                                        \
    extern "C" __global__ void bounds shoal_##name(const __grid_constant__ type args) \
    {                                                                                 \
        name##_body(&args);                                                           \
    }                                                                                 \
    DEVICE void name##_body(const type *args)
#define SAME(a, b) static_assert((a) == (b), "host and kernel agree")
#define SHARED(type, name)                                    \
    extern __shared__ __align__(128) unsigned char shared_[]; \
    type *const name = (type *)shared_
#define THREAD ((int)threadIdx.x)
#define THREADS ((int)blockDim.x)
#define BLOCK ((int64_t)blockIdx.x)
#define BLOCKS ((int64_t)gridDim.x)
#define BLOCK_Y ((int64_t)blockIdx.y)
#define BLOCKS_Y ((int64_t)gridDim.y)
#define block_barrier() __syncthreads()
DEVICE float lane_xor_f32(float x, int lanes)
{
    return __shfl_xor_sync(ALL_LANES, x, lanes);
}
DEVICE double lane_xor_f64(double x, int lanes)
{
    return __shfl_xor_sync(ALL_LANES, x, lanes);
}
DEVICE int64_t lane_xor_i64(int64_t x, int lanes)
{
    return (int64_t)__shfl_xor_sync(ALL_LANES, (long long)x, lanes);
}
DEVICE uint32_t lanes_where(int yes)
{
    return __ballot_sync(ALL_LANES, yes);
}
DEVICE int64_t atomic_add_i64(int64_t *x, int64_t add)
{
    return (int64_t)atomicAdd((unsigned long long *)x, (unsigned long long)add);
}
DEVICE void atomic_or_u32(uint32_t *x, uint32_t bits)
{
    atomicOr(x, bits);
}
DEVICE void atomic_max_i64(int64_t *x, int64_t value)
{
    atomicMax((long long *)x, (long long)value);
}
DEVICE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
DEVICE void copy16_later(void *to_shared, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to_shared)),
                 "l"(from)
                 : "memory");
}
DEVICE void copy4_later(void *to_shared, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to_shared)),
                 "l"(from)
                 : "memory");
}
DEVICE void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
#define copies_wait(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")
DEVICE uint32_t bits_of_f32(float x)
{
    return __float_as_uint(x);
}
DEVICE float f32_of_bits(uint32_t x)
{
    return __uint_as_float(x);
}
DEVICE uint64_t bits_of_f64(double x)
{
    return (uint64_t)__double_as_longlong(x);
}
DEVICE int leading_zeros(uint32_t x)
{
    return __clz((int)x);
}

#else /* the emulator ------------------------------------------------------------------------ */

#include "emulator.h"

#include <math.h>
#include <string.h>

#define HERE2(line) __FILE__ ":" #line
#define HERE1(line) HERE2(line)
#define HERE HERE1(__LINE__)
#define DEVICE static inline __attribute__((always_inline, unused))
#define UNROLL
#define UNROLL_BY_1
#define UNROLL_BY_8
#define UNROLL_BY_2
#define TABLE static const
#define ANY_TYPE __attribute__((may_alias))
#define KERNEL_EXPANDED(name, type, max_threads, bounds)                                          \
    static void name##_body(const type *args);                                                    \
    static void name##_run(const void *args)                                                      \
    {                                                                                             \
        name##_body((const type *)args);                                                          \
    }                                                                                             \
    extern const struct emulator_kernel emulated_shoal_##name;                                    \
    __attribute__((visibility("default")))                                                        \
    const struct emulator_kernel emulated_shoal_##name = {name##_run, sizeof(type), max_threads}; \
    static void name##_body(const type *args)
#define SAME(a, b) _Static_assert((a) == (b), "host and kernel agree")
#define SHARED(type, name) type *const name = (type *)emulator_shared(sizeof(type), HERE)
#define THREAD ((int)emulator_here.thread)
#define THREADS ((int)emulator_threads)
#define BLOCK ((int64_t)emulator_here.block)
#define BLOCKS ((int64_t)emulator_blocks)
#define BLOCK_Y ((int64_t)emulator_here.block_y)
#define BLOCKS_Y ((int64_t)emulator_blocks_y)
#define block_barrier() emulator_barrier(HERE)
#define LANE_XOR(name, type, value)                                           \
    DEVICE value name##_at(value x, int lanes, const char *where)             \
    {                                                                         \
        const type in = {x, lanes};                                           \
        value out = 0;                                                        \
        emulator_warp(LANE_XOR_OPERATION(name), ALL_LANES, &in, &out, where); \
        return out;                                                           \
    }
#define LANE_XOR_OPERATION(name) emulator_##name
#define emulator_lane_xor_f32 emulator_xor_f32
#define emulator_lane_xor_f64 emulator_xor_f64
#define emulator_lane_xor_i64 emulator_xor_i64
LANE_XOR(lane_xor_f32, struct emulator_lane_f32, float)
LANE_XOR(lane_xor_f64, struct emulator_lane_f64, double)
LANE_XOR(lane_xor_i64, struct emulator_lane_i64, int64_t)
#define lane_xor_f32(x, lanes) lane_xor_f32_at(x, lanes, HERE)
#define lane_xor_f64(x, lanes) lane_xor_f64_at(x, lanes, HERE)
#define lane_xor_i64(x, lanes) lane_xor_i64_at(x, lanes, HERE)
DEVICE uint32_t lanes_where_at(int yes, const char *where)
{
    uint32_t bits = 0;
    emulator_warp(emulator_ballot, ALL_LANES, &yes, &bits, where);
    return bits;
}
#define lanes_where(yes) lanes_where_at(yes, HERE)
DEVICE int64_t atomic_add_i64(int64_t *x, int64_t add)
{
    return (int64_t)__atomic_fetch_add((uint64_t *)x, (uint64_t)add, __ATOMIC_RELAXED);
}
DEVICE void atomic_or_u32(uint32_t *x, uint32_t bits)
{
    (void)__atomic_fetch_or(x, bits, __ATOMIC_RELAXED);
}
DEVICE void atomic_max_i64(int64_t *x, int64_t value)
{
    if (*x < value) /* threads are fibers */
        *x = value;
}
#define copy16_later(to, from) emulator_copy_later(to, from, 16, HERE)
#define copy4_later(to, from) emulator_copy_later(to, from, 4, HERE)
#define copies_commit() emulator_commit()
#define copies_wait(groups) emulator_wait(groups)
DEVICE uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
DEVICE float f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
DEVICE uint64_t bits_of_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
DEVICE int leading_zeros(uint32_t x)
{
    return x != 0 ? __builtin_clz(x) : 32;
}

#endif

/* With a name that may be a macro. */
#define KERNEL(name, type, threads) KERNEL_EXPANDED(name, type, threads, __launch_bounds__(threads))
#define KERNEL_TOGETHER(name, type, threads, blocks) \
    KERNEL_EXPANDED(name, type, threads, __launch_bounds__(threads, blocks))

/* The thread's first element and the step to its next one, where all threads share a count. */
#define FIRST (BLOCK * THREADS + THREAD)
#define STEP (BLOCKS * THREADS)

#endif
