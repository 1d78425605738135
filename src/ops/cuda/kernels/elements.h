/* elements - elements of arrays of F32, BF16 and F16, as ops/storage.h has them, and the functions
 * of ops/vmath.h of one lane. */
#ifndef SHOALI_OPS_CUDA_ELEMENTS_H
#define SHOALI_OPS_CUDA_ELEMENTS_H

#include "ops/cuda/kernels/arguments.h"
#include "ops/cuda/kernels/device.h"

#define SHOALI_V DEVICE
#define SHOALI_VMATH_TABLE TABLE
#include "ops/vmath_scalar.h"
#include "ops/vmath_tables.h"
#define VF_TYPE v1
#define VF(name) v1_##name
#define VI_TYPE v1i
#define VI(name) v1i_##name
#define VM_TYPE v1m
#include "ops/vmath_functions.h"
#undef VF_TYPE
#undef VF
#undef VI_TYPE
#undef VI
#undef VM_TYPE

DEVICE float f32_of_bf16(uint16_t x)
{
    return f32_of_bits((uint32_t)x << 16);
}
/* Nearest even; a NaN stays one. */
DEVICE uint16_t bf16_of_f32(float x)
{
    const uint32_t bits = bits_of_f32(x);
    return (uint16_t)(x != x ? (bits >> 16 | 0x40u) : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
#ifdef __CUDACC__ /* one instruction each, with the same results but for a NaN's bits */
DEVICE float f32_of_f16(uint16_t x)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}
DEVICE uint16_t f16_of_f32(float x)
{
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}
#else
DEVICE float f32_of_f16(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, magnitude = x & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity and NaN */
        return f32_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x400u)
        return f32_of_bits(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
    const float small = (float)magnitude * 0x1p-24f; /* exact */
    return f32_of_bits(sign | bits_of_f32(small));
}
/* Nearest even, with subnormal numbers. */
DEVICE uint16_t f16_of_f32(float x)
{
    const uint32_t bits = bits_of_f32(x), sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x47800000u) /* 65536 and beyond */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) { /* 2^-14: rounding may carry into the exponent */
        const uint32_t half = magnitude - ((127u - 15u) << 23);
        return (uint16_t)(sign | (half + 0xfffu + (half >> 13 & 1u)) >> 13);
    }
    /* Adding 1/2 leaves the integer of units of 2^-24 in the low bits, rounded by the addition. */
    const float shifted = f32_of_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (bits_of_f32(shifted) - 0x3f000000u));
}
#endif

DEVICE float load_as(const void *array, int64_t i, int32_t dtype)
{
    if (dtype == CUDA_F32)
        return ((const float *)array)[i];
    const uint16_t x = ((const uint16_t *)array)[i];
    return dtype == CUDA_BF16 ? f32_of_bf16(x) : f32_of_f16(x);
}
DEVICE void store_as(void *array, int64_t i, float x, int32_t dtype)
{
    if (dtype == CUDA_F32)
        ((float *)array)[i] = x;
    else
        ((uint16_t *)array)[i] = dtype == CUDA_BF16 ? bf16_of_f32(x) : f16_of_f32(x);
}
/* Four elements by one access; i % 4 is 0, and the array begins at a multiple of 16 bytes. */
struct four_f32 {
    float x[4];
} __attribute__((aligned(16)));
struct four_u16 {
    uint16_t x[4];
} __attribute__((aligned(8)));
DEVICE struct four_f32 load_four_as(const void *array, int64_t i, int32_t dtype)
{
    struct four_f32 four;
    if (dtype == CUDA_F32)
        return *(const struct four_f32 *)((const float *)array + i);
    const struct four_u16 stored = *(const struct four_u16 *)((const uint16_t *)array + i);
    UNROLL
    for (int j = 0; j < 4; j++)
        four.x[j] = dtype == CUDA_BF16 ? f32_of_bf16(stored.x[j]) : f32_of_f16(stored.x[j]);
    return four;
}
/* Calls a function with a type that the compiler knows, as its last argument. Loads in a loop stand
 * behind each other then, with no choice of a type between them. */
#define BY_TYPE(type, function, ...)                   \
    do {                                               \
        if ((type) == CUDA_F32)                        \
            function(__VA_ARGS__, (int32_t)CUDA_F32);  \
        else if ((type) == CUDA_BF16)                  \
            function(__VA_ARGS__, (int32_t)CUDA_BF16); \
        else                                           \
            function(__VA_ARGS__, (int32_t)CUDA_F16);  \
    } while (0)

/* With `accumulate` added to what is there. */
DEVICE void put_as(void *array, int64_t i, float x, int32_t accumulate, int32_t dtype)
{
    store_as(array, i, accumulate ? load_as(array, i, dtype) + x : x, dtype);
}

#endif
